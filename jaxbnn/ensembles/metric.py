"""A chain's metric: a diagonal, and where they are known a few narrow directions beside it.

A network's posterior is much narrower in some directions than in all others, in such as move all
its outputs at once, and no diagonal sees them. In coordinates u, x = s (I + V (F - 1) V^T) u with s
the square root of the diagonal, V the directions and F their factors, below 1 where the posterior
is narrow. `likelihood_metric` finds them on a network's way in.
"""

import jax.numpy as jnp
import numpy as np
from blackjax.mcmc.metrics import LowRankInverseMassMatrix
from jaxtyping import Array, Float

DIAGONAL, DIRECTIONS, FACTORS = "inverse_mass_matrix", "directions", "factors"
# Entries of a kernel's parameters.
METRIC = (DIAGONAL, DIRECTIONS, FACTORS)


def inverse_mass_matrix(
    parameters: dict[str, Array],
) -> Float[Array, " d"] | LowRankInverseMassMatrix:
    """Return the metric of one chain's parameters, as BlackJAX's kernels take it.

    Parameters
    ----------
    parameters
        "inverse_mass_matrix" (d,); and "directions" (k, d), orthonormal rows, and "factors" (k,),
        or neither.

    Raises
    ------
    ValueError
        Directions and factors whose shapes do not fit.

    Examples
    --------
    >>> one_direction = {"directions": jnp.eye(1, 3), "factors": jnp.array([0.5])}
    >>> inverse_mass_matrix({"inverse_mass_matrix": jnp.ones(3)} | one_direction).lam.tolist()
    [0.25]
    """
    diagonal = parameters[DIAGONAL]
    if DIRECTIONS not in parameters:
        return diagonal
    directions, factors = parameters[DIRECTIONS], jnp.asarray(parameters.get(FACTORS, 1.0))
    if factors.ndim != 1 or np.shape(directions) != (*factors.shape, *np.shape(diagonal)):
        raise ValueError(
            "a metric with directions has parameters['directions'] of shape (k, d) and "
            f"parameters['factors'] (k,) a chain, for d = {np.size(diagonal)}, but they have "
            f"shapes {np.shape(directions)} and {factors.shape}."
        )
    return LowRankInverseMassMatrix(jnp.sqrt(diagonal), directions.T, jnp.square(factors))
