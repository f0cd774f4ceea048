"""Moves of the hidden layers' weights with the noise held fixed: the other half of an interweaving.

Gibbs draws weights given latents, which hold them within sqrt(Delta / n) of where they are. Seen
from the noise eps_j = v_j - f_j(v_(j-1)) of the stages, weights and latents move together:

    (weights, v_1, ..., v_L) <-> (weights, eps_1, ..., eps_L)

is a shear for each stage, so that its Jacobian is 1 whatever the activation. Given the noise the
weights have the density

    exp(-|v_last - f_last(v_(last-1)(weights, eps))|^2 / (2 Delta_last)) times their prior,

with v_last = y in regression, and the logits, which stay as they are, under a probit. Metropolis
kernels that leave it invariant, one layer after the other, followed by the latents that the weights
and the noise make, leave the posterior invariant: an ancillarity-sufficiency interweaving when it
takes turns with Gibbs (Yu, Meng (2011), Journal of Computational and Graphical Statistics 20,
531-570). The last layer is left to Gibbs, which draws it from this law. Hence the layers above one
that moves stand still, and may set the scale of its steps: a unit on which little depends takes
large ones.
"""

import math
from typing import NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.base import SamplingAlgorithm
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray, PyTree, Shaped

from jaxbnn.gibbs.chain import GibbsPosition, chain_values
from jaxbnn.gibbs.hidden_units import by_unit
from jaxbnn.gibbs.model import IntermediateNoise
from jaxbnn.gibbs.pieces import PiecewiseLinear
from jaxbnn.gibbs.stages import Stage, split
from jaxbnn.gibbs.starts import check_position, satisfying
from jaxbnn.gibbs.validation import check_data, check_model, inputs_last
from jaxbnn.kernels import pcn
from jaxbnn.kernels.arguments import check_step_size
from jaxbnn.kernels.crank_nicolson import check_beta
from jaxbnn.kernels.diagonal_metric import diagonal_metric
from jaxbnn.kernels.refresh import auxiliary_fields
from jaxbnn.numerics import check_count, sum_of_differences
from jaxbnn.numerics.arguments import check_word
from jaxbnn.targets.prior_density import prior_log_ratio


@auxiliary_fields()
class InterweaveState(NamedTuple):
    """State of `interweave`: there is nothing to cache.

    Attributes
    ----------
    position
        Weights and latents.
    """

    position: GibbsPosition


class InterweaveInfo(NamedTuple):
    """What happened in one step.

    Attributes
    ----------
    acceptance_rate
        Mean over the layers of min(1, exp(log_ratio)), 0 where the log ratio is NaN.
    is_accepted
        Whether any weights and latents moved.
    is_divergent
        Whether a log ratio is not a number or beyond any accepted.
    """

    acceptance_rate: Float[Array, ""]
    is_accepted: Bool[Array, ""]
    is_divergent: Bool[Array, ""]


def interweave(
    model: IntermediateNoise,
    x: Shaped[Array | np.ndarray, "n ..."],
    y: Shaped[Array | np.ndarray, "n ..."],
    step_size: ArrayLike,
    num_integration_steps: int = 5,
    proposal: str = "auto",
) -> SamplingAlgorithm:
    """Return a kernel that moves weights of hidden layers with the noise of all stages held fixed.

    To be put after `gibbs_sampler` in a `cycle`: alone it changes neither the noise nor the last
    layer. Layers take their turns from the data on; a network of one layer has its weights moved.

    Parameters
    ----------
    model
        The model; its variances and precisions may be traced.
    x, y
        Data with rows first; may be traced.
    step_size
        eps of Hamiltonian Monte Carlo, in units of each unit's scale
        (lambda + n h / Delta)^(-1/2): lambda its prior precision, Delta the last noise variance, n
        the number of data, h the sum of the squared weights on its ways to the outputs. From 0.3 to
        1 is usual. With "pcn", beta in (0, 1]. May be traced; `dual_averaging` finds it in warm-up.
    num_integration_steps
        Leapfrog steps of a proposal, each a gradient; not used by "pcn". On a CPU, five take about
        as long as one Gibbs sweep of 50-10-1, and as four of 784-12-10.
    proposal
        "hmc"; "pcn", a random walk that needs no gradient; "auto": "pcn" where an activation is
        made of steps (sign), whose gradient is nothing, and "hmc" otherwise.

    Returns
    -------
    The pair, with `InterweaveState` and `InterweaveInfo`. Positions are `GibbsPosition`.

    Raises
    ------
    ValueError
        If the data do not fit the model, the step size is not positive (of "pcn": in (0, 1]),
        there is no leapfrog step, or the proposal is unknown.
    TypeError, ValueError
        Of `init`: a position that is not of this model and these data.

    Notes
    -----
    The model is that of Piccioli et al., (7); these moves are not in the paper.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> model, x = IntermediateNoise(mlp((2, 3, 1)), 0.01), jnp.ones((5, 2))
    >>> position, y = model.simulate(jax.random.key(0), model.sample_prior(jax.random.key(1)), x)
    >>> kernel = interweave(model, x, y, 0.1)
    >>> state, info = jax.jit(kernel.step)(jax.random.key(2), kernel.init(position))
    >>> state.position.post[0].shape
    (3, 5)
    """
    check_model(model)
    check_data(model, x, y)
    proposal = _proposal_of(model, proposal)
    check_step_size(step_size)
    if proposal == "pcn":
        check_beta("step_size", step_size)
    check_count("num_integration_steps", num_integration_steps)
    inputs = inputs_last(model.network, x)
    move = _move_of(model, inputs, step_size, num_integration_steps, proposal)

    def init(position: GibbsPosition, rng_key: PRNGKeyArray | None = None) -> InterweaveState:
        check_position(model, position, inputs)
        return InterweaveState(satisfying(model, position, y))

    def step(rng_key: PRNGKeyArray, state: InterweaveState):
        values = chain_values(model, state.position, y, inputs.dtype)
        errors, last = noise_of(model, state.position.params, inputs, values), values[-1]
        params, info = move(rng_key, state.position.params, errors, last)
        latents = values_given_noise(model, params, inputs, errors)
        if model.output != "regression":
            latents = [*latents, last]
        # A rejected move keeps the latents themselves, not what rounding makes of them.
        kept = [
            jnp.where(info.is_accepted, new, old) for new, old in zip(latents, values, strict=False)
        ]
        return InterweaveState(GibbsPosition(params, *split(model.latent_stages, kept))), info

    return SamplingAlgorithm(init, step)


def noise_of(
    model: IntermediateNoise, params: PyTree, x: Float[Array, "..."], values: list[Array]
) -> list[Array]:
    """Return the noise of every stage but the last, from the values of all stages."""
    befores = [x, *values]
    return [
        value - stage.mean(params, before)
        for stage, value, before in zip(model.stages[:-1], values, befores, strict=False)
    ]


def values_given_noise(
    model: IntermediateNoise, params: PyTree, x: Float[Array, "..."], errors: list[Array]
) -> list[Array]:
    """Return the values of every stage but the last, for given noise: the inverse of `noise_of`."""
    values, before = [], x
    for stage, error in zip(model.stages[:-1], errors, strict=True):
        before = stage.mean(params, before) + error
        values.append(before)
    return values


def output_terms(
    model: IntermediateNoise,
    params: PyTree,
    x: Float[Array, "..."],
    errors: list[Array],
    last: Float[Array, "..."],
) -> Float[Array, " n"]:
    """Return log p(last | weights, noise) for each datum, without its constant."""
    values = values_given_noise(model, params, x, errors)
    residual = last - model.stages[-1].mean(params, values[-1] if values else x)
    squares = jnp.sum(jnp.square(residual), axis=tuple(range(residual.ndim - 1)))
    return -squares / (2 * model.variance(len(model.stages) - 1, squares.dtype))


def layer_scales(
    model: IntermediateNoise, params: PyTree, num_data: int, stage: Stage
) -> dict[str, Array]:
    """Return the scale of every weight and bias of one layer, from the layers above it.

    Parameters
    ----------
    model
        The model.
    params
        All weights.
    num_data
        n; 0 for the prior's scales.
    stage
        Of the layer.
    """
    above = [s for s in model.stages if s.is_affine and s.affine_index > stage.affine_index]
    entry = params[stage.index]
    dtype = entry["w"].dtype
    # Squared sensitivity of the outputs to each unit, summed over its ways to them.
    reach = jnp.ones(model.stages[-1].output_shape[-1:], dtype)
    for s, below in zip(reversed(above), reversed([stage, *above][:-1]), strict=True):
        w = params[s.index]["w"]
        squares = jnp.square(by_unit(w, params[below.index]["w"].shape[-1]))
        reach = _positions(s) * jnp.einsum("rko,o->k", squares, reach)
    data = num_data * reach / model.variance(len(model.stages) - 1, dtype)
    weight, bias = model.precisions(stage.affine_index, dtype)
    return {
        name: jnp.broadcast_to(jax.lax.rsqrt((weight if name == "w" else bias) + data), leaf.shape)
        for name, leaf in entry.items()
    }


def _positions(stage: Stage) -> int:
    return math.prod(stage.output_shape[:-1])


def _moving(model: IntermediateNoise) -> list[Stage]:
    affine = [stage for stage in model.stages if stage.is_affine]
    return affine[:-1] or affine


def _proposal_of(model: IntermediateNoise, proposal: str) -> str:
    """Return "hmc" or "pcn"."""
    check_word("proposal", proposal, ("auto", "hmc", "pcn"))
    if proposal == "auto":
        layers = [stage.layer for stage in model.stages]
        has_steps = any(
            isinstance(layer, PiecewiseLinear) and all(piece[0] == 0 for piece in layer.pieces)
            for layer in layers
        )
        proposal = "pcn" if has_steps else "hmc"
    return proposal


def _move_of(model, x, step_size, num_integration_steps, proposal):
    """Return move(key, params, errors, last) -> (params, info)."""

    def make_kernel(stage, params, log_terms):
        entry = params[stage.index]
        if proposal == "pcn":
            scales = layer_scales(model, params, 0, stage)
            return pcn(log_terms, step_size, jax.tree.map(jnp.square, scales))
        # Differences from where the move begins, datum by datum: totals would cancel in float32.
        reference = log_terms(entry)
        log_prior_ratio = prior_log_ratio(model.prior, params)

        def log_density(block):
            whole = _with(params, stage, block)
            return sum_of_differences(log_terms(block), reference) + log_prior_ratio(whole)

        scales = layer_scales(model, params, x.shape[-1], stage)
        metric = diagonal_metric(jnp.square(ravel_pytree(scales)[0]))
        return blackjax.hmc(
            log_density, step_size, metric, num_integration_steps=num_integration_steps
        )

    def move(rng_key, params, errors, last):
        infos = []
        for stage in _moving(model):

            def log_terms(block, stage=stage, params=params):
                return output_terms(model, _with(params, stage, block), x, errors, last)

            kernel = make_kernel(stage, params, log_terms)
            key = jax.random.fold_in(rng_key, stage.affine_index)
            state, info = kernel.step(key, kernel.init(params[stage.index]))
            params = _with(params, stage, state.position)
            infos.append(info)
        return params, InterweaveInfo(
            jnp.mean(jnp.stack([info.acceptance_rate for info in infos])),
            jnp.any(jnp.stack([info.is_accepted for info in infos])),
            jnp.any(jnp.stack([info.is_divergent for info in infos])),
        )

    return move


def _with(params: PyTree, stage: Stage, block: PyTree) -> PyTree:
    return (*params[: stage.index], block, *params[stage.index + 1 :])
