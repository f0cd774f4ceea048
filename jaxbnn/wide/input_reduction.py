"""Exact input reduction: with few data in many dimensions, a chain need not carry all weights.

The likelihood sees the first layer's weights V (p, h), bias row included, only through X V, where
X = [weight_scale / sqrt(d) x, bias_scale 1] (n, p). With the thin factorisation X = L Q^T, Q
(p, r) with orthonormal columns, r = min(n, p),

    V = Q U + (I - Q Q^T) E,    U = Q^T V (r, h),    E (p, h) standard normal and independent of U

a priori, and pCN moves both parts with the same step size and the same accept decision, which
depends on U only. Hence the chain of U is the pCN chain of a network with inputs sqrt(r) L, and
over m steps of which a were accepted

    E <- c^a E + sqrt(1 - c^(2a)) xi,    c = sqrt(1 - beta^2),    xi standard normal,

is drawn only where a draw is kept. A step then costs nothing that grows with p. The same holds for
pCNL: the gradient of the likelihood and the acceptance have nothing from E. Langevin's acceptance
sees E, through its length: see `reduced_langevin`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray, PyTree, Shaped

from jaxbnn.kernels.arguments import check_one_number
from jaxbnn.kernels.crank_nicolson import check_beta
from jaxbnn.networks import Dense, Network, apply
from jaxbnn.networks.validation import check_params
from jaxbnn.numerics import check_floating, is_concrete, standard_normal
from jaxbnn.numerics.arguments import check_key
from jaxbnn.numerics.data import finite_array, warn_of_rounded_inputs
from jaxbnn.numerics.products import product
from jaxbnn.wide.accepted_moves import autoregress
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
    also
        Further inputs, (m, r + s), in the basis [Q, Q2]; m = s = 0 without any.
    also_basis
        Q2, (p, s).
    """

    full: Network = field(metadata={"static": True})
    network: Network = field(metadata={"static": True})
    x: Any
    basis: Any
    also: Any
    also_basis: Any

    @property
    def dimension(self) -> int:
        """Return (p - r) h, the number of first-layer weights that the chain leaves out."""
        p, r = self.basis.shape
        return (p - r) * self.width

    @property
    def width(self) -> int:
        """Return h, the number of the first layer's units."""
        first = self.full.layers[0]
        assert isinstance(first, Dense)
        return first.features

    def reduce(self, params: PyTree) -> PyTree:
        """Return the reduced network's parameters, with Q^T V for the first layer's."""
        return ({"w": product(self.basis.T, stack_weights(params[0]))}, *params[1:])

    def restore(self, reduced: PyTree, noise: Float[Array, "p h"]) -> PyTree:
        """Return all of the network's parameters, V = Q U + (I - Q Q^T) E.

        For standard normal noise E independent of them, they are a draw of the full posterior if
        the reduced ones are one of theirs.
        """
        inside = reduced[0]["w"] - product(self.basis.T, noise)
        v = noise + product(self.basis, inside)
        first = self.full.layers[0]
        assert isinstance(first, Dense)
        return ({"w": v[:-1], "b": v[-1]} if first.bias else {"w": v}, *reduced[1:])

    def outputs(self, params: PyTree, inputs: Float[Array, "s h"]) -> Float[Array, "m k"]:
        """Return the network's outputs, without noise, at the inputs given as `also`.

        Parameters
        ----------
        params
            The reduced network's parameters: weights, not phi.
        inputs
            Q2^T V, the complement's part that these inputs see: `carried.inputs` of the state of
            `carry_complement` or `reduced_langevin`.
        """
        w = jnp.concatenate([params[0]["w"], inputs])
        wider = Network(self.network.layers, (w.shape[0],), "ntk")
        x = math.sqrt(w.shape[0]) * self.also  # the ntk form divides by it
        return apply(wider, ({"w": w}, *params[1:]), x)

    def fill_in(
        self,
        key: PRNGKeyArray,
        positions: PyTree,
        accepted: Int[Array | np.ndarray, " draw"],
        step_size: ArrayLike,
        function: Callable[[PyTree], PyTree] = lambda params: params,
    ) -> PyTree:
        """Return function(params) of the full network at each kept draw of a pCN or pCNL chain.

        Successive draws have the joint law of the unreduced chain that started at a draw from the
        prior of E. One draw's weights are held at a time.

        Parameters
        ----------
        key
            A key that the chain did not use.
        positions
            Kept positions of the reduced network in order, leaves (draw, ...): phi, its weights,
            or inner weights with their read-outs drawn.
        accepted
            Moves accepted up to each kept draw, from `count_accepted`.
        step_size
            beta in (0, 1], the same for all kept draws.
        function
            Of all parameters, for instance predictions.

        Raises
        ------
        ValueError
            Counts that are no whole numbers, one a draw, or that decrease; a beta outside (0, 1],
            or more than one; positions of another network or number of draws, or none.
        """
        check_key("key", key)
        _check_counts(accepted)
        check_kept(self.network, positions, len(accepted), "accepted")
        check_one_number("step_size", step_size)
        check_beta("step_size", step_size)
        shape, dtype = (self.basis.shape[0], self.width), self.basis.dtype
        moves = jnp.diff(jnp.asarray(accepted)).astype(dtype)
        # Before the first draw the noise is fresh, whatever has happened.
        away = jnp.concatenate([jnp.full(1, jnp.inf, dtype), moves])

        def step(noise, argument):
            index, moves, position = argument
            fresh = standard_normal(jax.random.fold_in(key, index), shape, dtype)
            noise = autoregress(noise, fresh, moves, step_size)
            return noise, function(self.restore(position, noise))

        indices = jnp.arange(len(accepted), dtype=jnp.uint32)
        return jax.lax.scan(step, jnp.zeros(shape, dtype), (indices, away, positions))[1]


def _check_counts(accepted: Int[Array | np.ndarray, " draw"]) -> None:
    """Refuse what is no count of moves, such as whether each step was accepted."""
    is_count = jnp.issubdtype(jnp.result_type(accepted), jnp.integer) and np.ndim(accepted) == 1
    if is_count and is_concrete(accepted):
        is_count = not np.any(np.diff(np.asarray(accepted, np.int64)) < 0)
    if not is_count:
        raise ValueError(
            "accepted must be whole numbers (draw,) that never decrease, the moves accepted up to "
            "each kept draw; collect state.accepted of count_accepted."
        )


def check_kept(network: Network, positions: PyTree, num_draws: int, beside: str) -> None:
    """Raise ValueError unless positions are `num_draws` draws of the reduced network, one or more.

    Parameters
    ----------
    network
        The reduced network.
    positions
        Leaves (draw, ...).
    num_draws
        Entries of what was kept with them.
    beside
        What that is called in the caller's signature.
    """
    if num_draws == 0:
        raise ValueError(f"there is no draw to fill in: {beside} is empty.")
    for path, leaf in jax.tree_util.tree_leaves_with_path(positions):
        if np.shape(leaf)[:1] != (num_draws,):
            raise ValueError(
                f"positions must have one entry a draw, {num_draws} as {beside} has, but "
                f"positions{jax.tree_util.keystr(path)} has shape {np.shape(leaf)}; keep both in "
                "one run."
            )
    check_params(network, jax.tree.map(lambda leaf: leaf[0], positions))


def reduce_inputs(
    network: Network,
    x: Shaped[ArrayLike, "n d"],
    *,
    also: Shaped[ArrayLike, "m d"] | None = None,
) -> InputReduction:
    """Rotate the inputs so that the first layer has min(n, d + 1) weights a unit, not d + 1.

    Parameters
    ----------
    network
        In the ntk parametrisation, its first layer a Dense that is not the last one.
    x
        Data of shape (n, d), floating point.
    also
        Further inputs, (m, d), at which outputs are wanted while the chain runs; the likelihood
        does not see them. Their part of the complement, min(m, d + 1 - n) numbers a unit, is then
        carried beside the chain; outputs at any inputs can be had without, by `fill_in`.

    Returns
    -------
    `InputReduction`, with the smaller `network`, its inputs `x`, `fill_in` and `outputs`.

    Raises
    ------
    ValueError
        A network of another form; x or also not of its shape, or not finite.
    TypeError
        Inputs that are not floating point, or of half precision.

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
    whitened = _whiten("x", x, first, network.input_shape[0])
    n, p = whitened.shape
    if also is not None:
        further = _whiten("also", also, first, network.input_shape[0])
        whitened = jnp.concatenate([whitened, further.astype(whitened.dtype)])
    basis, upper = jnp.linalg.qr(whitened.T)
    rank = min(n, p)
    layers = (Dense(first.features, bias=False), *network.layers[1:])
    return InputReduction(
        full=network,
        network=Network(layers, (rank,), "ntk"),
        x=math.sqrt(rank) * upper[:rank, :n].T,  # the ntk form divides by it
        basis=basis[:, :rank],
        also=upper[:, n:].T,
        also_basis=basis[:, rank:],
    )


def _whiten(name: str, x: Any, first: Dense, num_inputs: int) -> Float[Array, "n p"]:
    """Return [weight_scale / sqrt(d) x, bias_scale 1], or say what is wrong with x."""
    check_floating(name, x)
    given, x = x, finite_array(name, x)
    if jnp.finfo(x.dtype).bits < 32:
        raise TypeError(
            f"{name} has dtype {x.dtype}, in which no matrix can be factored; use "
            f"{name}.astype(jnp.float32)."
        )
    if x.ndim != 2 or x.shape[1] != num_inputs or x.shape[0] == 0:
        raise ValueError(f"{name} must have shape (n, {num_inputs}), n > 0, but has {x.shape}.")
    warn_of_rounded_inputs(given, np.dtype(x.dtype), name=name)
    scaled = x * (first.weight_scale / math.sqrt(num_inputs))
    if not first.bias:
        return scaled
    bias = jnp.full((x.shape[0], 1), first.bias_scale, x.dtype)
    return jnp.concatenate([scaled, bias], axis=1)
