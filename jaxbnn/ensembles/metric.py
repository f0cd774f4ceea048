"""A chain's metric: a diagonal, and where they are known a few narrow directions beside it.

A network's posterior is much narrower in some directions than in all others, in such as move all
its outputs at once, and no diagonal sees them. In coordinates u, x = s (I + V (F - 1) V^T) u with s
the square root of the diagonal, the columns of V the directions, which are rows of the parameters'
"directions", and F their "factors", below 1 where the posterior is narrow. `likelihood_metric`
finds them on a network's way in.
"""

import jax.numpy as jnp
import numpy as np
from blackjax.mcmc.metrics import LowRankInverseMassMatrix, Metric, default_metric
from jaxtyping import Array, Float

from jaxbnn.kernels.diagonal_metric import diagonal_metric

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
    if not {DIRECTIONS, FACTORS} & parameters.keys():
        return diagonal
    directions, factors = (jnp.asarray(parameters.get(name, 1.0)) for name in METRIC[1:])
    if factors.ndim != 1 or np.shape(directions) != (*factors.shape, *np.shape(diagonal)):
        raise ValueError(
            "a metric with directions has parameters['directions'] of shape (k, d) and "
            f"parameters['factors'] (k,) a chain, for d = {np.size(diagonal)}, but they have "
            f"shapes {np.shape(directions)} and {factors.shape}."
        )
    return LowRankInverseMassMatrix(jnp.sqrt(diagonal), directions.T, jnp.square(factors))


def euclidean_metric(parameters: dict[str, Array]) -> Metric:
    """Return the metric of one chain's parameters for HMC, accurate in narrow directions, too.

    With directions BlackJAX's kinetic energy is a difference of numbers as large as the momentum
    squared, of which float32 leaves nothing, or less than nothing, where factors are below a
    thousandth; and of a long diagonal it is a dot product, which loses a nat at 100,000 numbers.
    These are sums of squares. A diagonal of at most 10,000 numbers keeps BlackJAX's.
    """
    matrix = inverse_mass_matrix(parameters)
    if isinstance(matrix, LowRankInverseMassMatrix):
        return _with_directions(matrix, default_metric(matrix))
    return diagonal_metric(matrix) if jnp.ndim(matrix) == 1 else default_metric(matrix)


def _with_directions(matrix: LowRankInverseMassMatrix, whole: Metric) -> Metric:
    def kinetic_energy(momentum, position=None):
        scaled = matrix.sigma * momentum
        within = (jnp.sqrt(matrix.lam) - 1) * _dot(matrix.U.T, scaled)
        return jnp.sum(jnp.square(scaled + _dot(matrix.U, within))) / 2

    def sample_momentum(rng_key, position):
        # BlackJAX's noise is of the default dtype.
        return whole.sample_momentum(rng_key, position).astype(position.dtype)

    return whole._replace(kinetic_energy=kinetic_energy, sample_momentum=sample_momentum)


def _dot(a, b):
    # The default is TF32 on recent GPUs.
    return jnp.matmul(a, b, precision="highest")
