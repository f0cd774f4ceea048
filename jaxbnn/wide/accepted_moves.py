"""What a Crank-Nicolson chain's accepted moves do to the coordinates that its acceptance ignores.

An accepted move of pCN or pCNL with step size beta makes of such a coordinate e ~ N(0, 1)

    c e + beta xi,    c = sqrt(1 - beta^2),    xi ~ N(0, 1),

and a rejected one leaves it as it is. Hence a accepted moves make of it, in one draw,
c^a e + sqrt(1 - c^(2a)) xi.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from blackjax.base import SamplingAlgorithm
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray, PyTree

from jaxbnn.kernels.refresh import auxiliary_fields


# A count is not a function of the position; `refresh` carries it over.
@auxiliary_fields("accepted")
class AcceptedState(NamedTuple):
    """State of `count_accepted`.

    Attributes
    ----------
    inner
        The kernel's own state.
    accepted
        How many of its moves were accepted so far.
    """

    inner: Any
    accepted: Int[Array, ""]

    @property
    def position(self) -> PyTree:
        """The kernel's position."""
        return self.inner.position


def count_accepted(kernel: SamplingAlgorithm) -> SamplingAlgorithm:
    """Count a kernel's accepted moves in its state, for `InputReduction.fill_in`.

    Let `collect` of `jaxbnn.sample` keep `state.accepted` with the position.

    Parameters
    ----------
    kernel
        Its Info has `is_accepted`; or `repeat` of such a kernel.

    Examples
    --------
    >>> from jaxbnn import pcn
    >>> kernel = count_accepted(pcn(lambda u: jnp.zeros(()), 0.5))
    >>> state, info = jax.jit(kernel.step)(jax.random.key(0), kernel.init(jnp.zeros(2)))
    >>> int(state.accepted)
    1
    """

    def init(position: PyTree, rng_key: PRNGKeyArray | None = None) -> AcceptedState:
        return AcceptedState(kernel.init(position, rng_key), jnp.zeros((), jnp.int32))

    def step(rng_key: PRNGKeyArray, state: AcceptedState) -> tuple[AcceptedState, Any]:
        inner, info = kernel.step(rng_key, state.inner)
        return AcceptedState(inner, state.accepted + num_accepted(info)), info

    return SamplingAlgorithm(init, step)


def num_accepted(info: Any) -> Int[Array, ""]:
    """Return how many moves a step accepted: of a kernel, or of `repeat` of one."""
    return jnp.sum(getattr(info, "infos", info).is_accepted, dtype=jnp.int32)


def autoregress(noise: PyTree, fresh: PyTree, moves: Float[Array, ""], step_size: ArrayLike):
    """Return c^a E + sqrt(1 - c^(2a)) xi, what a accepted moves of pCN or pCNL do to noise."""

    def move(noise, fresh):
        beta = jnp.minimum(jnp.asarray(step_size, noise.dtype), 1)  # as pCN takes a traced one
        # Zero moves keep the noise at beta = 1 too, where log c is -inf.
        moved = moves.astype(noise.dtype) * jnp.log1p(-jnp.square(beta)) / 2
        exponent = jnp.where(moves > 0, moved, jnp.zeros_like(moved))
        # Not c^a E: at small beta the rounding of c would be a part of 1 - c.
        return noise + jnp.expm1(exponent) * noise + jnp.sqrt(-jnp.expm1(2 * exponent)) * fresh

    return jax.tree.map(move, noise, fresh)
