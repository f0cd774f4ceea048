"""The conditionals of one model on given data, by number of the stage in the chain."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from jaxbnn.gibbs.latents import sample_inputs, sample_pooled
from jaxbnn.gibbs.linear_maps import feature_cross, unit_sums
from jaxbnn.gibbs.model import IntermediateNoise
from jaxbnn.gibbs.pre_activations import sample_pre_activations
from jaxbnn.gibbs.probit import sample_binary_logit, sample_logits
from jaxbnn.gibbs.stages import Stage
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


class Sweep:
    """The conditionals of one model on given data, by number of the stage."""

    def __init__(self, model: IntermediateNoise, x: Array, y: Any, bias: str):
        # A kernel made outside of its loop has the data turned over once, not once a sweep.
        self.model, self.x, self.bias = model, x, bias
        self.stages: tuple[Stage, ...] = model.stages
        self.dtype = x.dtype
        self.labels = None if model.output == "regression" else jnp.asarray(y)

    def spectrum(self) -> Spectrum | None:
        """Decompose the inputs of the first layer, if it is one with weights."""
        stage = self.stages[0]
        if not isinstance(stage.layer, Dense | Conv):
            return None
        weight, bias = self.model.precisions(stage, self.dtype)
        joint = stage.layer.bias and self.bias == "joint"
        return spectrum_of(stage.layer, self.x, weight / bias if joint else None)

    def residuals(self, params: list, values: list[Array]) -> Residuals | None:
        """Return what the first layer's outputs say about its weights, at those in `params`."""
        stage = self.stages[0]
        if not isinstance(stage.layer, Dense | Conv):
            return None
        return residual_sums(stage.layer, params[stage.index], self.x, values[0])

    def before(self, j: int, values: list[Array]) -> Array:
        """Return the values that stage j takes."""
        return self.x if j == 0 else values[j - 1]

    def mean(self, j: int, params: list, values: list[Array]) -> Array:
        """Return the values of stage j without their noise."""
        return self.stages[j].mean(params, self.before(j, values))

    def draw_params(
        self,
        key: PRNGKeyArray,
        j: int,
        params: list,
        values: list[Array],
        spectrum: Spectrum | None,
        residuals: Residuals | None,
    ) -> PyTree:
        """Draw the parameters of stage j; of the first from `spectrum` and `residuals`."""
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
        return self._given_mean(key, j, params, self.mean(j, params, values), values)

    def draw_first(
        self, key: PRNGKeyArray, params: list, values: list[Array]
    ) -> tuple[Array, Bool[Array, ""], Residuals]:
        """Draw the values of the first stage, and the sums that its next weights will need.

        With `drawn_or_kept` in between: the sums are those of what the state will hold.
        """
        stage = self.stages[0]
        assert isinstance(stage.layer, Dense | Conv)
        mean = self.mean(0, params, values)
        drawn = self._given_mean(key, 0, params, mean, values)
        value, is_drawn = drawn_or_kept(drawn, values[0])
        error = value - mean
        return (
            value,
            is_drawn,
            Residuals(feature_cross(stage.layer, self.x, error), unit_sums(error)),
        )

    def _given_mean(
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


def drawn_or_kept(drawn: PyTree, old: PyTree) -> tuple[PyTree, Bool[Array, ""]]:
    """Return what was drawn, or the old values where a number of it is not finite; and which."""
    # One sum is not finite if any number is not, and costs less than to look at each.
    finite = [jnp.isfinite(jnp.sum(leaf)) for leaf in jax.tree.leaves(drawn)]
    is_drawn = jnp.all(jnp.stack(finite)) if finite else jnp.ones((), bool)
    kept = jax.tree.map(lambda new, old: jnp.where(is_drawn, new, old), drawn, old)
    return kept, is_drawn
