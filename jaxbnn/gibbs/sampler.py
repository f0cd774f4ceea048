"""Gibbs sampling of the intermediate-noise posterior.

Every sweep draws all weights, biases and latents from their conditionals; nothing is rejected
and nothing is tuned (Piccioli et al., algorithms 1 and 2, with erratum A2: the last layer's
weights are drawn too).
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.base import SamplingAlgorithm
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree, Shaped

from jaxbnn.gibbs.door import check_data, inputs_last
from jaxbnn.gibbs.latents import sample_inputs, sample_pooled
from jaxbnn.gibbs.linear_maps import feature_cross, feature_gram, unit_sums
from jaxbnn.gibbs.model import GibbsPosition, IntermediateNoise, chain_values
from jaxbnn.gibbs.pre_activations import sample_pre_activations
from jaxbnn.gibbs.probit import sample_binary_logit, sample_logits
from jaxbnn.gibbs.stages import Stage, split
from jaxbnn.gibbs.starts import satisfying
from jaxbnn.gibbs.weights import (
    Residuals,
    Spectrum,
    residual_sums,
    sample_bias,
    sample_from_spectrum,
    sample_weights,
    sample_weights_and_bias,
    spectrum_of,
)
from jaxbnn.networks import AvgPool, Conv, Dense

Order = Literal["sequential", "parallel"]
Bias = Literal["joint", "separate"]


class GibbsState(NamedTuple):
    """State of the Gibbs sampler.

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
    """What summaries of kernels ask for: every draw is accepted."""

    acceptance_rate: Float[Array, ""]
    is_accepted: Bool[Array, ""]


def gibbs_sampler(
    model: IntermediateNoise,
    x: Shaped[Array | np.ndarray, "n ..."],
    y: Shaped[Array | np.ndarray, "n ..."],
    order: Order = "sequential",
    bias: Bias = "joint",
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
    sweep = _Sweep(model, inputs_last(model.network, x), y, bias)
    updates = _schedule(model, order)

    def init(position: GibbsPosition, rng_key: PRNGKeyArray | None = None) -> GibbsState:
        position = satisfying(model, position, y)
        params, values = list(position.params), chain_values(model, position, y, sweep.dtype)
        return GibbsState(position, sweep.spectrum(), sweep.residuals(params, values))

    def step(rng_key: PRNGKeyArray, state: GibbsState) -> tuple[GibbsState, GibbsInfo]:
        params = list(state.position.params)
        values = chain_values(model, state.position, y, sweep.dtype)
        residuals = state.residuals
        for number, (is_latent, j) in enumerate(updates):
            key = jax.random.fold_in(rng_key, number)
            if not is_latent:
                fixed = (state.spectrum, residuals) if j == 0 else (None, None)
                params[sweep.stages[j].index] = sweep.draw_params(key, j, params, values, *fixed)
                if j == 0:
                    residuals = None  # those of weights that are gone
            elif j == 0 and state.spectrum is not None:
                values[0], residuals = sweep.draw_first(key, params, values)
            else:
                values[j] = sweep.draw_latent(key, j, params, values)
        if state.spectrum is not None and residuals is None:
            residuals = sweep.residuals(params, values)
        latent = model.latent_stages
        position = GibbsPosition(tuple(params), *split(latent, values[: len(latent)]))
        info = GibbsInfo(jnp.ones((), sweep.dtype), jnp.ones((), bool))
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


class _Sweep:
    """The conditionals of one model on given data, by number of the stage."""

    def __init__(self, model: IntermediateNoise, x: Array, y: Any, bias: str):
        self.model, self.x, self.bias = model, x, bias
        self.stages: tuple[Stage, ...] = model.stages
        self.dtype = x.dtype
        self.labels = None if model.output == "regression" else jnp.asarray(y)

    def spectrum(self) -> Spectrum | None:
        stage = self.stages[0]
        if not isinstance(stage.layer, Dense | Conv):
            return None
        weight, bias = self.model.precisions(stage, self.dtype)
        joint = stage.layer.bias and self.bias == "joint"
        gram, total, count = feature_gram(stage.layer, self.x)
        return spectrum_of(gram, total, count, weight / bias if joint else None)

    def residuals(self, params: list, values: list[Array]) -> Residuals | None:
        stage = self.stages[0]
        if not isinstance(stage.layer, Dense | Conv):
            return None
        return residual_sums(stage.layer, params[stage.index], self.x, values[0])

    def before(self, j: int, values: list[Array]) -> Array:
        return self.x if j == 0 else values[j - 1]

    def draw_params(
        self,
        key: PRNGKeyArray,
        j: int,
        params: list,
        values: list[Array],
        spectrum: Spectrum | None,
        residuals: Residuals | None,
    ) -> PyTree:
        stage = self.stages[j]
        assert isinstance(stage.layer, Dense | Conv)
        d = self.model.variance(j, self.dtype)
        weight, bias = self.model.precisions(stage, self.dtype)
        current = params[stage.index]
        if spectrum is not None and residuals is not None:
            return sample_from_spectrum(key, spectrum, residuals, current, d, weight, bias)
        inputs = stage.view(self.before(j, values))
        data = (inputs, values[j], d)
        if self.bias == "joint":
            return sample_weights_and_bias(key, stage.layer, current, *data, weight, bias)
        key_weights, key_bias = jax.random.split(key)
        current = sample_weights(key_weights, stage.layer, current, *data, weight)
        if "b" not in current:
            return current
        return sample_bias(key_bias, stage.layer, current, *data, bias)

    def draw_latent(
        self, key: PRNGKeyArray, j: int, params: list, values: list[Array]
    ) -> Float[Array, "..."]:
        """Draw the values of stage j given those of the stages before and after."""
        mean = self.stages[j].mean(params, self.before(j, values))
        return self.given_mean(key, j, params, mean, values)

    def draw_first(
        self, key: PRNGKeyArray, params: list, values: list[Array]
    ) -> tuple[Array, Residuals]:
        """Draw the values of the first stage, and the sums that its next weights will need."""
        stage = self.stages[0]
        assert isinstance(stage.layer, Dense | Conv)
        mean = stage.mean(params, self.x)
        value = self.given_mean(key, 0, params, mean, values)
        error = value - mean
        return value, Residuals(feature_cross(stage.layer, self.x, error), unit_sums(error))

    def given_mean(
        self, key: PRNGKeyArray, j: int, params: list, mean: Array, values: list[Array]
    ) -> Array:
        d = self.model.variance(j, self.dtype)
        if j + 1 == len(self.stages):
            assert self.labels is not None
            if self.model.output == "binary_probit":
                return sample_binary_logit(key, mean, self.labels, d)
            return sample_logits(key, mean, values[j], self.labels, d)
        child, after = self.stages[j + 1], values[j + 1]
        d_after = self.model.variance(j + 1, self.dtype)
        seen = child.view(mean)
        if isinstance(child.layer, Dense | Conv):
            drawn = sample_inputs(key, child.layer, params[child.index], seen, after, d, d_after)
        elif isinstance(child.layer, AvgPool):
            drawn = sample_pooled(key, child.layer, seen, after, d, d_after)
        else:
            drawn = sample_pre_activations(key, child.layer, seen, after, d, d_after)
        return drawn.reshape(mean.shape)
