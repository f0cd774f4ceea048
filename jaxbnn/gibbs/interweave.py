"""Moves of all weights at once with the noise held fixed: the other half of an interweaving.

Gibbs draws weights given latents, which hold them within sqrt(Delta / n) of where they are. Seen
from the noise eps_j = v_j - f_j(v_(j-1)) of the stages, weights and latents move together:

    (weights, v_1, ..., v_L) <-> (weights, eps_1, ..., eps_L)

is a shear for each stage, so that its Jacobian is 1 whatever the activation. Given the noise the
weights have the density

    exp(-|v_last - f_last(v_(last-1)(weights, eps))|^2 / (2 Delta_last)) times their prior,

with v_last = y in regression, and the logits, which stay as they are, under a probit. A Metropolis
kernel that leaves it invariant, followed by the latents that its weights and the noise make, leaves
the posterior invariant: an ancillarity-sufficiency interweaving when it takes turns with Gibbs (Yu,
Meng (2011), Journal of Computational and Graphical Statistics 20, 531-570).
"""

from typing import NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.base import SamplingAlgorithm
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray, PyTree, Shaped

from jaxbnn.gibbs.chain import GibbsPosition, chain_values
from jaxbnn.gibbs.model import IntermediateNoise
from jaxbnn.gibbs.pieces import PiecewiseLinear
from jaxbnn.gibbs.stages import split
from jaxbnn.gibbs.starts import satisfying
from jaxbnn.gibbs.validation import check_data, inputs_last
from jaxbnn.kernels import pcn
from jaxbnn.kernels.arguments import check_one_number
from jaxbnn.kernels.refresh import auxiliary_fields
from jaxbnn.numerics import check_count, check_positive, sum_of_differences
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
        min(1, exp(log_ratio)), 0 where the log ratio is NaN.
    is_accepted
        Whether weights and latents moved.
    is_divergent
        Whether the log ratio is not a number or beyond any accepted.
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
    """Return a kernel that moves all weights with the noise of all stages held fixed.

    To be put after `gibbs_sampler` in a `cycle`: alone it never changes the noise.

    Parameters
    ----------
    model
        The model; its variances and precisions may be traced.
    x, y
        Data with rows first; may be traced.
    step_size
        eps of Hamiltonian Monte Carlo, in units of each layer's scale
        (lambda + h n / Delta)^(-1/2): lambda its prior precision, Delta the last noise variance,
        n the number of data, h = 1, 4 for the last layer. From 0.3 to 1 is usual. With "pcn",
        beta in (0, 1]. May be traced; `dual_averaging` finds it in warm-up.
    num_integration_steps
        Leapfrog steps of a proposal, each a gradient; not used by "pcn".
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

    Notes
    -----
    The model is that of Piccioli et al., (7); these moves are not in the paper.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> model, x = IntermediateNoise(mlp((2, 3, 1)), 0.01), jnp.ones((5, 2))
    >>> position, y = model.simulate(jax.random.key(0), model.sample_prior(jax.random.key(1)), x)
    >>> kernel = interweave(model, x, y, 0.1)
    >>> state, info = kernel.step(jax.random.key(2), kernel.init(position))
    >>> state.position.post[0].shape
    (3, 5)
    """
    check_data(model.network, model.output, x, y)
    check_positive("step_size", step_size)
    check_one_number("step_size", step_size)
    check_count("num_integration_steps", num_integration_steps)
    inputs = inputs_last(model.network, x)
    move = _move_of(model, inputs, step_size, num_integration_steps, proposal)

    def init(position: GibbsPosition, rng_key: PRNGKeyArray | None = None) -> InterweaveState:
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


def layer_scales(model: IntermediateNoise, params: PyTree, num_data: int) -> PyTree:
    """Return the scale of every weight and bias, shaped like the parameters."""
    scales: list = [()] * len(params)
    affine = [stage for stage in model.stages if stage.is_affine]
    for stage in affine:
        leaf = params[stage.index]["w"]
        data = num_data / model.variance(len(model.stages) - 1, leaf.dtype)
        data = data * (4 if stage is affine[-1] else 1)
        weight, bias = model.precisions(stage.affine_index, leaf.dtype)
        scales[stage.index] = {
            name: jnp.full_like(part, jax.lax.rsqrt((weight if name == "w" else bias) + data))
            for name, part in params[stage.index].items()
        }
    return tuple(scales)


def _move_of(model, x, step_size, num_integration_steps, proposal):
    """Return move(key, params, errors, last) -> (params, info)."""
    if proposal == "auto":
        layers = [stage.layer for stage in model.stages]
        has_steps = any(
            isinstance(layer, PiecewiseLinear) and all(piece[0] == 0 for piece in layer.pieces)
            for layer in layers
        )
        proposal = "pcn" if has_steps else "hmc"
    if proposal not in ("hmc", "pcn"):
        raise ValueError(f"proposal must be 'auto', 'hmc' or 'pcn', but is {proposal!r}.")

    def by_pcn(rng_key, params, errors, last):
        variances = jax.tree.map(jnp.square, _prior_scales(model, params))
        kernel = pcn(lambda p: output_terms(model, p, x, errors, last), step_size, variances)
        state, info = kernel.step(rng_key, kernel.init(params))
        return state.position, InterweaveInfo(*info)

    def by_hmc(rng_key, params, errors, last):
        # Differences from where the move begins, datum by datum: totals would cancel in float32.
        reference = output_terms(model, params, x, errors, last)
        log_prior_ratio = prior_log_ratio(model.prior, params)

        def log_density(p):
            terms = output_terms(model, p, x, errors, last)
            return sum_of_differences(terms, reference) + log_prior_ratio(p)

        scales = layer_scales(model, params, x.shape[-1])
        inverse_mass = jnp.square(ravel_pytree(scales)[0])
        kernel = blackjax.hmc(
            log_density, step_size, inverse_mass, num_integration_steps=num_integration_steps
        )
        state, info = kernel.step(rng_key, kernel.init(params))
        return state.position, InterweaveInfo(
            info.acceptance_rate, info.is_accepted, info.is_divergent
        )

    return by_pcn if proposal == "pcn" else by_hmc


def _prior_scales(model: IntermediateNoise, params: PyTree) -> PyTree:
    return layer_scales(model, params, 0)
