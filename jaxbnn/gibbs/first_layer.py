"""What is kept of the first layer: its inputs are data and never change.

The second moments of the features are decomposed once, which serves every noise variance; and
the sums that the next draw of the weights needs are by-products of the draw of the outputs. A
sweep then passes over the data three times in this layer in place of five.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from jaxbnn.gibbs.linear_maps import feature_cross, unit_sums
from jaxbnn.gibbs.model import IntermediateNoise
from jaxbnn.gibbs.spectrum import (
    SHARE,
    Residuals,
    Spectrum,
    residual_sums,
    sample_from_spectrum,
    spectrum_of,
)
from jaxbnn.networks import Conv, Dense
from jaxbnn.numerics import is_concrete


class FirstLayer(NamedTuple):
    """Sums over the data, for a network that begins with a Dense or a Conv.

    Attributes
    ----------
    spectrum
        The inputs' second moments, decomposed.
    residuals
        What the layer's outputs say about its weights, at the weights of the same state. None
        where every sweep draws the outputs before the weights and so makes them anew.
    """

    spectrum: Spectrum
    residuals: Residuals | None

    def draw_params(
        self, key: PRNGKeyArray, model: IntermediateNoise, params: PyTree, dtype: DTypeLike
    ) -> PyTree:
        """Draw weights and biases from the sums."""
        assert self.residuals is not None
        noise_variance, precisions = model.variance(0, dtype), model.precisions(0, dtype)
        return sample_from_spectrum(
            key, self.spectrum, self.residuals, params, noise_variance, *precisions
        )

    def after_outputs(
        self, model: IntermediateNoise, x: Float[Array, "..."], errors: Float[Array, "..."]
    ) -> "FirstLayer":
        """Return the sums for new outputs, of which `errors` = outputs - mean."""
        layer = model.stages[0].layer
        assert isinstance(layer, Dense | Conv)
        return self._replace(
            residuals=Residuals(
                feature_cross(layer, model.stages[0].view(x), errors), unit_sums(errors)
            )
        )

    def after_params(
        self,
        model: IntermediateNoise,
        x: Float[Array, "..."],
        params: PyTree,
        outputs: Float[Array, "..."],
    ) -> "FirstLayer":
        """Return the sums for new weights, from the data themselves."""
        layer = model.stages[0].layer
        assert isinstance(layer, Dense | Conv)
        view = model.stages[0].view(x)
        return self._replace(residuals=residual_sums(layer, params, view, outputs))


def first_layer(model: IntermediateNoise, x: Float[Array, "..."], bias: str) -> FirstLayer | None:
    """Decompose the inputs of the first layer; None if it is not one with weights.

    Parameters
    ----------
    model
        The model.
    x
        Data with rows last.
    bias
        "joint" or "separate", as in `gibbs_sampler`.
    """
    layer = model.stages[0].layer
    if not isinstance(layer, Dense | Conv):
        return None
    weight, of_bias = model.precisions(0, x.dtype)
    ratio = weight / of_bias if layer.bias and bias == "joint" else None
    return FirstLayer(spectrum_of(layer, model.stages[0].view(x), ratio), None)


def can_be_kept(model: IntermediateNoise, x: Float[Array, "..."], bias: str) -> bool:
    """Return whether the decomposed inputs tell of the weights all that the inputs do.

    Not so where what an input tells is lost beside another that is much larger, or beside the
    inputs' distance from zero. True, too, where it cannot be known, since `x` or the model is
    traced or lies on other hosts: draws are NaN then where something is lost.
    """
    layer = model.stages[0].layer
    if not isinstance(layer, Dense | Conv):
        return True
    weight, of_bias = model.precisions(0, x.dtype)
    allowed = SHARE * model.variance(0, x.dtype) * weight
    if not is_concrete((x, allowed, of_bias)) or not x.is_fully_addressable:
        return True
    if _most_lost(layer, np.asarray(model.stages[0].view(x)), float(weight / of_bias)) <= allowed:
        return True
    with jax.ensure_compile_time_eval():
        kept = jax.jit(first_layer, static_argnames="bias")(model, x, bias=bias)
        return bool(kept.spectrum.lost <= allowed)


def _most_lost(layer: Dense | Conv, x: Float[np.ndarray, "..."], ratio: float) -> float:
    """Return an upper bound of what the decomposition loses.

    A direction is not seen where its root is below eps p times the largest, whose square is at most
    the trace of the second moments; twice that, for rounding.
    """
    window = math.prod(layer.window) if isinstance(layer, Conv) else 1
    num_channels = x.shape[-2]
    trace = window * float(np.linalg.norm(x.astype(float))) ** 2 + ratio * x.size / num_channels
    return (float(jnp.finfo(x.dtype).eps) * (window * num_channels + 1)) ** 2 * 2 * trace
