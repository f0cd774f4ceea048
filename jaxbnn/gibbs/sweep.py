"""A sweep under way: the values drawn so far, and each conditional given all the others."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from jaxbnn.gibbs.chain import GibbsPosition, chain_values
from jaxbnn.gibbs.first_layer import FirstLayer
from jaxbnn.gibbs.latents import sample_inputs, sample_pooled
from jaxbnn.gibbs.model import IntermediateNoise
from jaxbnn.gibbs.pre_activations import sample_pre_activations
from jaxbnn.gibbs.probit import sample_binary_logit, sample_logits
from jaxbnn.gibbs.stages import split
from jaxbnn.gibbs.weights import sample_bias, sample_weights, sample_weights_and_bias
from jaxbnn.networks import AvgPool, Conv, Dense


class Sweep:
    """Weights and latents of one chain, each drawn in turn given the others as they are then.

    Lives inside one call of `step`. Stages are counted from 0, and so are the values (pre- and
    post-activations) that they give; the input of stage j are the values of stage j - 1.
    """

    def __init__(
        self,
        rng_key: PRNGKeyArray,
        model: IntermediateNoise,
        data: tuple[Float[Array, "..."], Any],
        position: GibbsPosition,
        first: FirstLayer | None,
        bias: str = "joint",
    ):
        self.rng_key, self.model, self.bias = rng_key, model, bias
        self.x, y = data
        self.dtype = self.x.dtype
        self.stages = model.stages
        self.params = list(position.params)
        self.values = chain_values(model, position, y, self.dtype)
        self.labels = None if model.output == "regression" else jnp.asarray(y)
        self.first, self.first_is_stale = first, first is None or first.residuals is None
        self.are_drawn: list[Bool[Array, ""]] = []

    def draw_params(self, *numbers: int) -> None:
        """Draw weights and biases of each of these stages given its input and its values."""
        for j in numbers:
            index = self.stages[j].index
            self.params[index] = self._drawn_or_kept(
                self.sample_params(self._next_key(), j), self.params[index]
            )
            self.first_is_stale = self.first_is_stale or j == 0

    def draw_values(self, *numbers: int) -> None:
        """Draw the values of each of these stages given those around them and the weights."""
        for j in numbers:
            mean = self.mean(j)
            drawn = self.sample_values(self._next_key(), j, mean)
            feeds_sum = j + 1 < len(self.stages) and not self.stages[j + 1].is_post
            if feeds_sum:  # the only values whose conditional factors a matrix
                drawn = self._drawn_or_kept(drawn, self.values[j])
            else:
                self.are_drawn.append(jnp.ones((), bool))
            self.values[j] = drawn
            if j == 0 and self.first is not None:
                errors = self.values[0] - mean
                self.first = self.first.after_outputs(self.model, self.x, errors)
                self.first_is_stale = False

    def position(self) -> GibbsPosition:
        """Return weights and latents as they are now."""
        latent = self.model.latent_stages
        return GibbsPosition(tuple(self.params), *split(latent, self.values[: len(latent)]))

    def first_layer(self) -> FirstLayer | None:
        """Return the sums of the first layer at the weights and outputs of now."""
        if self.first is not None and self.first_is_stale:
            params = self.params[self.stages[0].index]
            self.first = self.first.after_params(self.model, self.x, params, self.values[0])
            self.first_is_stale = False
        return self.first

    def is_divergent(self) -> Bool[Array, ""]:
        """Return whether something kept its value because it could not be drawn."""
        return ~jnp.all(jnp.stack(self.are_drawn))

    def mean(self, j: int) -> Float[Array, "..."]:
        """Return the values of stage j without their noise."""
        return self.stages[j].mean(self.params, self._input(j))

    def sample_params(self, key: PRNGKeyArray, j: int) -> PyTree:
        """Return a draw of the weights and biases of stage j."""
        stage = self.stages[j]
        assert isinstance(stage.layer, Dense | Conv)
        current = self.params[stage.index]
        first = self.first_layer() if j == 0 else None
        if first is not None:
            return first.draw_params(key, self.model, current, self.dtype)
        noise_variance = self.model.variance(j, self.dtype)
        weight, bias = self.model.precisions(stage.affine_index, self.dtype)
        data = (stage.view(self._input(j)), self.values[j], noise_variance)
        if self.bias == "joint":
            return sample_weights_and_bias(key, stage.layer, current, *data, weight, bias)
        key_weights, key_bias = jax.random.split(key)
        current = sample_weights(key_weights, stage.layer, current, *data, weight)
        if "b" not in current:
            return current
        return sample_bias(key_bias, stage.layer, current, *data, bias)

    def sample_values(self, key: PRNGKeyArray, j: int, mean: Array) -> Float[Array, "..."]:
        """Return a draw of the values of stage j, whose mean given those before is `mean`."""
        noise_variance = self.model.variance(j, self.dtype)
        if j + 1 == len(self.stages):
            assert self.labels is not None
            if self.model.output == "binary_probit":
                return sample_binary_logit(key, mean, self.labels, noise_variance)
            return sample_logits(key, mean, self.values[j], self.labels, noise_variance)
        after = self.stages[j + 1]
        variances = (noise_variance, self.model.variance(j + 1, self.dtype))
        data = (after.view(mean), self.values[j + 1], *variances)
        if isinstance(after.layer, Dense | Conv):
            drawn = sample_inputs(key, after.layer, self.params[after.index], *data)
        elif isinstance(after.layer, AvgPool):
            drawn = sample_pooled(key, after.layer, *data)
        else:
            drawn = sample_pre_activations(key, after.layer, *data)
        return drawn.reshape(mean.shape)

    def _input(self, j: int) -> Array:
        return self.x if j == 0 else self.values[j - 1]

    def _next_key(self) -> PRNGKeyArray:
        return jax.random.fold_in(self.rng_key, len(self.are_drawn))

    def _drawn_or_kept(self, drawn: PyTree, old: PyTree) -> PyTree:
        """Return what was drawn, or the old values where a number of it is not finite."""
        # A sum is not finite if one of its numbers is not, and costs less than to look at each.
        finite = [jnp.isfinite(jnp.sum(leaf)) for leaf in jax.tree.leaves(drawn)]
        is_drawn = jnp.all(jnp.stack(finite)) if finite else jnp.ones((), bool)
        self.are_drawn.append(is_drawn)
        return jax.tree.map(lambda new, old: jnp.where(is_drawn, new, old), drawn, old)
