"""The part of the complement that is wanted while a chain on reduced inputs runs.

Of the first-layer weights that a chain on reduced inputs leaves out, a few coordinates are carried
beside it, standard normal and independent of everything in the target: those that further inputs
see (`reduce_inputs(..., also=...)`) and those that projections of the weights see
(`weight_projections`). Their joint law in time with the chain is that of the unreduced chain, and
nothing is stored that has the size of the weights.
"""

import math
from typing import Any, NamedTuple

import jax
from blackjax.base import SamplingAlgorithm
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, PyTree

from jaxbnn.kernels.arguments import check_one_number
from jaxbnn.kernels.crank_nicolson import check_beta
from jaxbnn.kernels.refresh import auxiliary_fields
from jaxbnn.kernels.trees import normal_like
from jaxbnn.wide.accepted_moves import autoregress, num_accepted
from jaxbnn.wide.input_reduction import InputReduction
from jaxbnn.wide.projections import WeightProjections


class Carried(NamedTuple):
    """Coordinates that `carry_complement` carries.

    Attributes
    ----------
    inputs
        Q2^T V, (s, h), that further inputs see: for `InputReduction.outputs`.
    weights
        (j,), that projections of the weights see beyond these: for `WeightProjections.of`.
    """

    inputs: Float[Array, "s h"]
    weights: Float[Array, " j"]


# Not a function of the position; `refresh` carries it over.
@auxiliary_fields("carried")
class CarriedState(NamedTuple):
    """State of `carry_complement`.

    Attributes
    ----------
    inner
        The kernel's own state.
    carried
        The carried coordinates of the complement.
    """

    inner: Any
    carried: Carried

    @property
    def position(self) -> PyTree:
        """The kernel's position."""
        return self.inner.position


def carry_complement(
    kernel: SamplingAlgorithm,
    step_size: ArrayLike,
    reduction: InputReduction,
    projections: WeightProjections | None = None,
) -> SamplingAlgorithm:
    """Carry coordinates of the complement beside pCN or pCNL on reduced inputs.

    Their acceptance does not see the complement, which only moves with each accepted move. Where
    draws are thinned, `repeat(kernel, thinning)` draws its moves once a kept draw.

    Parameters
    ----------
    kernel
        `pcn` or `pcnl` on the reduced network; or `repeat` of one.
    step_size
        Its beta.
    reduction
        The reduced network.
    projections
        Of `weight_projections`, where they are wanted.

    Returns
    -------
    The kernel, with `CarriedState` (`.position`, `.carried`) and the Info of the kernel it was
    given. Its `init` draws the coordinates from the prior and needs a key.

    Raises
    ------
    ValueError
        step_size outside (0, 1], or more than one number; no key at the start.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jaxbnn import pcn, wide
    >>> from jaxbnn.networks import init, mlp
    >>> network = mlp((50, 8, 1), "tanh", parametrisation="ntk")
    >>> x, x_test = jax.random.normal(jax.random.key(0), (2, 3, 50))
    >>> reduction = wide.reduce_inputs(network, x, also=x_test)
    >>> posterior = wide.reparametrise(reduction.network, reduction.x, jnp.zeros(3), 0.1)
    >>> kernel = carry_complement(pcn(posterior.log_likelihood, 0.5), 0.5, reduction)
    >>> start = init(jax.random.key(1), reduction.network)
    >>> state = kernel.init(start, jax.random.key(2))
    >>> state, info = jax.jit(kernel.step)(jax.random.key(3), state)
    >>> weights = posterior.to_weights(state.position)
    >>> reduction.outputs(weights, state.carried.inputs).shape  # at x_test
    (3, 1)
    """
    check_one_number("step_size", step_size)
    check_beta("step_size", step_size)

    def init(position: PyTree, rng_key: PRNGKeyArray | None = None) -> CarriedState:
        key_inner, key_carried = split_start_key(rng_key)
        carried = normal_like(key_carried, carried_like(reduction, projections))
        return CarriedState(kernel.init(position, key_inner), carried)

    def step(rng_key: PRNGKeyArray, state: CarriedState) -> tuple[CarriedState, Any]:
        key_inner, key_carried = jax.random.split(rng_key)
        inner, info = kernel.step(key_inner, state.inner)
        fresh = normal_like(key_carried, state.carried)
        moves = num_accepted(info).astype(reduction.basis.dtype)
        return CarriedState(inner, autoregress(state.carried, fresh, moves, step_size)), info

    return SamplingAlgorithm(init, step)


def carried_like(reduction: InputReduction, projections: WeightProjections | None) -> Carried:
    """Return the shapes and dtypes of what is carried."""
    dtype, width = reduction.basis.dtype, reduction.width
    num_weights = 0 if projections is None else projections.root.shape[1]
    return Carried(
        jax.ShapeDtypeStruct((reduction.also_basis.shape[1], width), dtype),  # type: ignore[arg-type]
        jax.ShapeDtypeStruct((num_weights,), dtype),  # type: ignore[arg-type]
    )


def split_start_key(rng_key: PRNGKeyArray | None) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    """Return two keys, or say why one is needed."""
    if rng_key is None:
        raise ValueError(
            "the complement of the start is drawn from the prior, which needs a key; call "
            "init(position, rng_key)."
        )
    first, second = jax.random.split(rng_key)
    return first, second


def num_left(reduction: InputReduction, carried: PyTree) -> int:
    """Return how many coordinates of the complement are not carried."""
    return reduction.dimension - sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(carried))
