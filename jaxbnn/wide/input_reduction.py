"""Exact input reduction: with few data in many dimensions, a chain need not carry all weights.

The likelihood sees the first layer's weights V (p, h), bias row included, only through X V, where
X = [weight_scale / sqrt(d) x, bias_scale 1] (n, p). With the thin factorisation X = L Q^T, Q
(p, r) with orthonormal columns, r = min(n, p),

    V = Q U + (I - Q Q^T) E,    U = Q^T V (r, h),    E (p, h) standard normal and independent of U

a priori, and pCN moves both parts with the same step size and the same accept decision, which
depends on U only. Hence the chain of U is the pCN chain of a network with inputs sqrt(r) L, and
over m steps of which a were accepted

    E <- c^a E + sqrt(1 - c^(2a)) xi,    c = sqrt(1 - beta^2),    xi standard normal,

is drawn only where a draw is kept. A step then costs nothing that grows with p.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.base import SamplingAlgorithm
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray, PyTree, Shaped

from jaxbnn.networks import Dense, Network
from jaxbnn.numerics import check_finite
from jaxbnn.wide.design import stack_weights


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class InputReduction:
    """A smaller network with the same posterior, and the way back; made by `reduce_inputs`.

    Attributes
    ----------
    full, network
        The network as it was, and the one with r inputs and no bias in its first layer.
    x
        Its inputs sqrt(r) L, (n, r); give both to `reparametrise` or `marginal_conditional`.
    basis
        Q, (p, r).
    """

    full: Network = field(metadata={"static": True})
    network: Network = field(metadata={"static": True})
    x: Any
    basis: Any

    def reduce(self, params: PyTree) -> PyTree:
        """Return the reduced network's parameters, with Q^T V for the first layer's."""
        return ({"w": _multiply(self.basis.T, stack_weights(params[0]))}, *params[1:])

    def restore(self, reduced: PyTree, noise: Float[Array, "p h"]) -> PyTree:
        """Return all of the network's parameters, V = Q U + (I - Q Q^T) E.

        For standard normal noise E independent of them, they are a draw of the full posterior if
        the reduced ones are one of theirs.
        """
        inside = reduced[0]["w"] - _multiply(self.basis.T, noise)
        v = noise + _multiply(self.basis, inside)
        first = self.full.layers[0]
        assert isinstance(first, Dense)
        return ({"w": v[:-1], "b": v[-1]} if first.bias else {"w": v}, *reduced[1:])

    def fill_in(
        self,
        key: PRNGKeyArray,
        positions: PyTree,
        accepted: Int[Array | np.ndarray, " draw"],
        step_size: ArrayLike,
        function: Callable[[PyTree], PyTree] = lambda params: params,
    ) -> PyTree:
        """Return function(params) of the full network at each kept draw of one pCN chain.

        Successive draws have the joint law of the unreduced chain that started at a draw from the
        prior of E. One draw's weights are held at a time.

        Parameters
        ----------
        key
            A key that the chain did not use.
        positions
            Kept positions of the reduced network in order, leaves (draw, ...): of pCN on phi,
            or of inner weights with their read-outs drawn.
        accepted
            Moves accepted up to each kept draw, from `count_accepted`.
        step_size
            beta, the same for all kept draws.
        function
            Of all parameters, for instance predictions.
        """
        p, h = self.basis.shape[0], self.network.layers[0].features  # type: ignore[union-attr]
        dtype = self.basis.dtype
        num_draws = len(accepted)
        log_c = jnp.log1p(-jnp.square(jnp.asarray(step_size, dtype))) / 2
        moves = jnp.diff(jnp.asarray(accepted)).astype(dtype)
        # Before the first draw the noise is fresh, whatever has happened.
        away = jnp.concatenate([jnp.full(1, jnp.inf, dtype), moves])

        def step(noise, argument):
            index, moves, position = argument
            # Zero moves keep the noise at beta = 1 too, where log c is -inf.
            exponent = jnp.where(moves > 0, moves * log_c, jnp.zeros((), dtype))
            fresh = jax.random.normal(jax.random.fold_in(key, index), (p, h), dtype)
            noise = jnp.exp(exponent) * noise + jnp.sqrt(-jnp.expm1(2 * exponent)) * fresh
            return noise, function(self.restore(position, noise))

        indices = jnp.arange(num_draws, dtype=jnp.uint32)
        return jax.lax.scan(step, jnp.zeros((p, h), dtype), (indices, away, positions))[1]


def reduce_inputs(network: Network, x: Shaped[ArrayLike, "n d"]) -> InputReduction:
    """Rotate the inputs so that the first layer has min(n, d + 1) weights a unit, not d + 1.

    Parameters
    ----------
    network
        In the ntk parametrisation, its first layer a Dense that is not the last one.
    x
        Data of shape (n, d).

    Returns
    -------
    `InputReduction`, with the smaller `network`, its inputs `x`, and `fill_in`.

    Raises
    ------
    ValueError
        A network of another form; x not of its shape, or not finite.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> network = mlp((3072, 128, 10), "gelu", parametrisation="ntk")
    >>> reduction = reduce_inputs(network, jax.random.normal(jax.random.key(0), (16, 3072)))
    >>> reduction.network.input_shape, reduction.x.shape
    ((16,), (16, 16))
    """
    first = network.layers[0]
    if network.parametrisation != "ntk":
        raise ValueError(
            "input reduction needs standard normal weights, but the network is in the "
            f"{network.parametrisation} parametrisation; give it parametrisation='ntk'."
        )
    if not isinstance(first, Dense) or len(network.layers) == 1 or len(network.input_shape) != 1:
        raise ValueError(
            "input reduction needs a first layer that is a Dense of vectors and not the read-out, "
            f"but the layers are {network.layers} on inputs of shape {network.input_shape}; "
            "flatten the data before the network."
        )
    check_finite("x", x)
    x = jnp.asarray(x)
    if x.ndim != 2 or x.shape[1:] != network.input_shape or x.shape[0] == 0:
        raise ValueError(
            f"x must have shape (n, {network.input_shape[0]}), n > 0, but has {x.shape}."
        )
    whitened = x * (first.weight_scale / math.sqrt(x.shape[1]))
    if first.bias:
        bias = jnp.full((x.shape[0], 1), first.bias_scale, x.dtype)
        whitened = jnp.concatenate([whitened, bias], axis=1)
    basis, upper = jnp.linalg.qr(whitened.T)
    rank = basis.shape[1]
    layers = (Dense(first.features, bias=False), *network.layers[1:])
    # The ntk form divides by sqrt(r) again.
    reduced = Network(layers, (rank,), "ntk")
    return InputReduction(network, reduced, math.sqrt(rank) * upper.T, basis)


class AcceptedState(NamedTuple):
    """The position, the kernel's own state, and how many of its moves were accepted so far."""

    position: PyTree
    inner: Any
    accepted: Int[Array, ""]


# A count is not a function of the position; `refresh` carries it over.
AcceptedState.auxiliary = ("accepted",)  # type: ignore[attr-defined]


def count_accepted(kernel: SamplingAlgorithm) -> SamplingAlgorithm:
    """Count a kernel's accepted moves in its state, for `InputReduction.fill_in`.

    Let `collect` of `jaxbnn.sample` keep `state.accepted` with the position.

    Parameters
    ----------
    kernel
        Its Info has `is_accepted`.

    Examples
    --------
    >>> from jaxbnn import pcn
    >>> kernel = count_accepted(pcn(lambda u: jnp.zeros(()), 0.5))
    >>> state, info = jax.jit(kernel.step)(jax.random.key(0), kernel.init(jnp.zeros(2)))
    >>> int(state.accepted)
    1
    """

    def init(position: PyTree, rng_key: PRNGKeyArray | None = None) -> AcceptedState:
        return AcceptedState(position, kernel.init(position, rng_key), jnp.zeros((), jnp.int32))

    def step(rng_key: PRNGKeyArray, state: AcceptedState) -> tuple[AcceptedState, Any]:
        inner, info = kernel.step(rng_key, state.inner)
        accepted = state.accepted + info.is_accepted.astype(jnp.int32)
        return AcceptedState(inner.position, inner, accepted), info

    return SamplingAlgorithm(init, step)


def _multiply(a: Float[Array, "a b"], b: Float[Array, "b c"]) -> Float[Array, "a c"]:
    return jnp.matmul(a, b, precision="highest")
