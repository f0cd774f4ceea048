"""Gibbs sampling of the intermediate-noise posterior.

Every sweep draws all weights, biases and latents from their conditionals; nothing is rejected
and nothing is tuned (Piccioli et al., algorithms 1 and 2, with erratum A2: the last layer's
weights are drawn too).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.base import SamplingAlgorithm
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Shaped

from jaxbnn.gibbs.door import check_data, inputs_last
from jaxbnn.gibbs.model import GibbsPosition, IntermediateNoise, chain_values
from jaxbnn.gibbs.stages import split
from jaxbnn.gibbs.starts import satisfying
from jaxbnn.gibbs.sweep import Sweep, drawn_or_kept
from jaxbnn.gibbs.weights import Residuals, Spectrum
from jaxbnn.kernels.refresh import auxiliary_fields


@auxiliary_fields()
class GibbsState(NamedTuple):
    """State of `gibbs_sampler`.

    Attributes
    ----------
    position
        Weights and latents.
    spectrum
        The inputs' second moments, decomposed: they never change. None if the network does not
        begin with a Dense or Conv.
    residuals
        What the first layer's outputs say about its weights, at those in `position`.
    """

    position: GibbsPosition
    spectrum: Spectrum | None
    residuals: Residuals | None


class GibbsInfo(NamedTuple):
    """What summaries of kernels ask for: every draw of `gibbs_sampler` is accepted.

    Attributes
    ----------
    acceptance_rate
        1.
    is_accepted
        True.
    is_divergent
        Whether a conditional could not be drawn from, its precision matrix being singular to the
        last digit or a number infinite. What it would have drawn keeps its value: a matrix
        depends on the rest of the state alone, so that a sweep without this draw still leaves
        the posterior invariant. Where every sweep says so, the block never moves: raise the
        noise variances, rescale the inputs, or use float64.
    """

    acceptance_rate: Float[Array, ""]
    is_accepted: Bool[Array, ""]
    is_divergent: Bool[Array, ""]


def gibbs_sampler(
    model: IntermediateNoise,
    x: Shaped[Array | np.ndarray, "..."],
    y: Shaped[Array | np.ndarray, "..."],
    order: str = "sequential",
    bias: str = "joint",
) -> SamplingAlgorithm:
    """Return the Gibbs sampler of an intermediate-noise posterior.

    Parameters
    ----------
    model
        The model. Its variances and precisions may be traced, and may change from sweep to
        sweep (all but the ratio of the first layer's two precisions, which `init` uses).
    x, y
        Data with rows first; may be traced.
    order
        "sequential": layer by layer, X^(l), W^(l), Z^(l). "parallel": every second latent,
        all weights, the other latents; within each group the draws are independent of each
        other, so that a device may run them at once.
    bias
        "joint": weights and biases of a layer in one draw. "separate": one after the other.

    Returns
    -------
    The pair. Positions are `GibbsPosition`: start from `model.zero_position(x, y)`,
    `model.random_position(key, x, y)` or `model.informed_position(...)`. Logits that contradict
    their label are moved at `init`.

    Raises
    ------
    ValueError
        If the data do not fit the model, or `order` or `bias` is unknown.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> model = IntermediateNoise(mlp((2, 3, 1)), 0.01)
    >>> x = jnp.ones((5, 2))
    >>> _, y = model.simulate(jax.random.key(0), model.sample_prior(jax.random.key(1)), x)
    >>> kernel = gibbs_sampler(model, x, y)
    >>> state, info = kernel.step(jax.random.key(2), kernel.init(model.zero_position(x, y)))
    >>> state.position.post[0].shape
    (3, 5)
    """
    check_data(model.network, model.output, x, y)
    if bias not in ("joint", "separate"):
        raise ValueError(f"bias must be 'joint' or 'separate', but is {bias!r}.")
    sweep = Sweep(model, inputs_last(model.network, x), y, bias)
    updates = _schedule(model, order)

    def init(position: GibbsPosition, rng_key: PRNGKeyArray | None = None) -> GibbsState:
        position = satisfying(model, position, y)
        params, values = list(position.params), chain_values(model, position, y, sweep.dtype)
        return GibbsState(position, sweep.spectrum(), sweep.residuals(params, values))

    def step(rng_key: PRNGKeyArray, state: GibbsState) -> tuple[GibbsState, GibbsInfo]:
        params = list(state.position.params)
        values = chain_values(model, state.position, y, sweep.dtype)
        residuals, are_drawn = state.residuals, []
        for number, (is_latent, j) in enumerate(updates):
            key = jax.random.fold_in(rng_key, number)
            if not is_latent:
                fixed = (state.spectrum, residuals) if j == 0 else (None, None)
                index = sweep.stages[j].index
                drawn = sweep.draw_params(key, j, params, values, *fixed)
                params[index], is_drawn = drawn_or_kept(drawn, params[index])
                if j == 0:
                    residuals = None  # those of weights that are gone
            elif j == 0 and state.spectrum is not None:
                values[0], is_drawn, residuals = sweep.draw_first(key, params, values)
            else:
                drawn = sweep.draw_latent(key, j, params, values)
                values[j], is_drawn = drawn_or_kept(drawn, values[j])
            are_drawn.append(is_drawn)
        if state.spectrum is not None and residuals is None:
            residuals = sweep.residuals(params, values)
        latent = model.latent_stages
        position = GibbsPosition(tuple(params), *split(latent, values[: len(latent)]))
        failed = ~jnp.all(jnp.stack(are_drawn))
        info = GibbsInfo(jnp.ones((), sweep.dtype), jnp.ones((), bool), failed)
        return GibbsState(position, state.spectrum, residuals), info

    return SamplingAlgorithm(init, step)


def _schedule(model: IntermediateNoise, order: str) -> list[tuple[bool, int]]:
    """Return the updates of a sweep: (True, j) for the values of stage j, else its parameters."""
    stages, num_latent = model.stages, len(model.latent_stages)
    affine = [j for j, stage in enumerate(stages) if stage.is_affine]
    if order == "parallel":
        # Neighbours in the chain are never drawn at once.
        inputs = [(True, j) for j in range(1, num_latent, 2)]
        outputs = [(True, j) for j in range(0, num_latent, 2)]
        return [*inputs, *((False, j) for j in affine), *outputs]
    if order != "sequential":
        raise ValueError(f"order must be 'sequential' or 'parallel', but is {order!r}.")
    updates, done = [], 0
    for j in affine:
        # The input of the layer, its weights, then the latents back to the layer before.
        between = [(True, i) for i in range(j - 1, done - 1, -1)]
        updates += [*between[:1], (False, j), *between[1:]]
        done = j
    return [*updates, *((True, i) for i in range(num_latent - 1, done - 1, -1))]
