"""The marginal-conditional split: sample the inner weights alone, draw the read-out exactly.

    p(W, theta_out | Y) = p(W | Y) p(theta_out | W, Y),    p(W | Y) ~ N(W; 0, I) exp(l(W)),

with theta_out | W, Y Gaussian. A chain moves W only; a read-out is drawn for each draw that is
kept, afterwards or, by `with_read_out`, in each step.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from blackjax.base import SamplingAlgorithm
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, PyTree, Shaped

from jaxbnn.kernels.refresh import auxiliary_fields
from jaxbnn.kernels.trees import normal_like
from jaxbnn.networks import Network, parameter_shapes
from jaxbnn.wide.linear_model import Form
from jaxbnn.wide.reparametrisation import Reparametrisation, reparametrise


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class MarginalConditional:
    """The posterior of the inner weights and, given them, of the read-out.

    Made by `marginal_conditional`. Inner weights are the network's parameters without the last
    entry, params[:-1]. A PyTree, like the reparametrisation it holds.

    Attributes
    ----------
    joint
        The reparametrised posterior of all weights, from `reparametrise`.
    """

    joint: Reparametrisation

    def log_likelihood(self, inner: PyTree) -> Float[Array, " terms"]:
        """Return terms of l(W), the log density relative to N(0, I): for `pcn` and `pcnl`."""
        return self.joint.log_likelihood(self._with_zeros(inner))

    def draw_read_out(self, key: PRNGKeyArray, inner: PyTree) -> PyTree:
        """Draw the read-out given the inner weights; returns all of the network's parameters.

        Of the form that `jaxbnn.complete(key, draws, marginal.draw_read_out)` takes.
        """
        *_, zeros = self._with_zeros(inner)
        return self.joint.to_weights((*inner, normal_like(key, zeros)))

    def _with_zeros(self, inner: PyTree) -> PyTree:
        leaves = [*jax.tree.leaves(inner), self.joint.x]
        shapes = parameter_shapes(self.joint.network, leaves[0].dtype)[-1]
        return (*inner, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes))


def marginal_conditional(
    network: Network,
    x: Shaped[ArrayLike, "..."],
    y: Shaped[ArrayLike, "..."],
    noise_scale: ArrayLike,
    *,
    form: Form | None = None,
) -> MarginalConditional:
    """Split the posterior into the inner weights' and, given them, the read-out's.

    Parameters
    ----------
    network, x, y, noise_scale, form
        As in `reparametrise`.

    Returns
    -------
    `MarginalConditional`, with `log_likelihood` and `draw_read_out`.

    Raises
    ------
    ValueError, TypeError
        As in `reparametrise`.

    Notes
    -----
    Pezzetti et al., section 3 and appendix C, with l(W) as in erratum B3.

    Examples
    --------
    >>> from jaxbnn.networks import init, mlp
    >>> network = mlp((1, 8, 1), "tanh", parametrisation="ntk")
    >>> x = jnp.array([[-1.0], [0.5], [1.0]])
    >>> marginal = marginal_conditional(network, x, jnp.array([0.3, -0.2, 0.1]), 0.1)
    >>> inner = init(jax.random.key(0), network)[:-1]
    >>> jax.jit(marginal.log_likelihood)(inner).shape  # for a kernel: pcn(..., 0.1)
    (3,)
    >>> jax.jit(marginal.draw_read_out)(jax.random.key(1), inner)[-1]["w"].shape
    (8, 1)
    """
    return MarginalConditional(reparametrise(network, x, y, noise_scale, form=form))


@auxiliary_fields()
class ReadOutState(NamedTuple):
    """State of `with_read_out`.

    Attributes
    ----------
    position
        All of the network's parameters.
    inner
        State of the kernel on the inner weights.
    """

    position: PyTree
    inner: Any


def with_read_out(kernel: SamplingAlgorithm, marginal: MarginalConditional) -> SamplingAlgorithm:
    """Follow each step of a kernel on the inner weights with an exact draw of the read-out.

    The position is all of the network's parameters, so that reducers see whole networks; the
    draw does not change how the inner weights move. Where only few draws are kept, it is cheaper
    to draw their read-outs afterwards, with `jaxbnn.complete`.

    Parameters
    ----------
    kernel
        Leaves N(W; 0, I) exp(l(W)) invariant: `pcn(marginal.log_likelihood, 0.1)` for instance.
    marginal
        The split that the kernel samples.

    Returns
    -------
    The kernel, with `ReadOutState` and the Info of the kernel it was given.

    Examples
    --------
    >>> from jaxbnn import pcn
    >>> from jaxbnn.networks import init, mlp
    >>> network = mlp((1, 8, 1), "tanh", parametrisation="ntk")
    >>> marginal = marginal_conditional(network, jnp.ones((3, 1)), jnp.zeros(3), 0.1)
    >>> kernel = with_read_out(pcn(marginal.log_likelihood, 0.5), marginal)
    >>> state = kernel.init(init(jax.random.key(0), network))
    >>> state, info = jax.jit(kernel.step)(jax.random.key(1), state)
    >>> state.position[-1]["w"].shape
    (8, 1)
    """

    def init(position: PyTree, rng_key: PRNGKeyArray | None = None) -> ReadOutState:
        return ReadOutState(position, kernel.init(position[:-1], rng_key))

    def step(rng_key: PRNGKeyArray, state: ReadOutState) -> tuple[ReadOutState, Any]:
        key_inner, key_read_out = jax.random.split(rng_key)
        inner, info = kernel.step(key_inner, state.inner)
        return ReadOutState(marginal.draw_read_out(key_read_out, inner.position), inner), info

    return SamplingAlgorithm(init, step)
