"""A pooled convolution at the network's input with its outputs integrated out.

    v = conv(x) + b + N(0, D_v),   z = average(v) + N(0, D_z)

Windows that share no pixel have noise of their own, p pixels each, so that

    z = average(conv(x)) + b + N(0, D_v / p + D_z)

and the average of a convolution is the same convolution, at a stride as much longer, of inputs
averaged beforehand. The law of everything else is what it was. A sweep draws pooled values in
place of all outputs, which are the most numerous latents, and moves further, as nothing holds the
weights to the outputs drawn before.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, DTypeLike, Float, PRNGKeyArray, Shaped

from jaxbnn.gibbs.chain import GibbsPosition
from jaxbnn.gibbs.latents import sample_pooled
from jaxbnn.gibbs.model import IntermediateNoise, check_one
from jaxbnn.gibbs.validation import check_model, checked_inputs, inputs_last, outputs_last
from jaxbnn.networks import AvgPool, Conv, Network
from jaxbnn.numerics.arguments import check_key
from jaxbnn.numerics.data import finite_array

Images = Shaped[Array | np.ndarray, "n ..."]


class CollapsedPooling(NamedTuple):
    """What `collapse_pooling` returns.

    Attributes
    ----------
    model
        A model without the AvgPool, its parameters those of the first but for the empty entry of
        that layer.
    x
        Averaged images, (n, rows, columns, channels).
    original, images
        The first model, and its inputs.
    """

    model: IntermediateNoise
    x: Float[Array, "n rows columns channels"]
    original: IntermediateNoise
    images: Images

    def restore(
        self,
        key: PRNGKeyArray,
        position: GibbsPosition,
        y: Shaped[Array | np.ndarray, "n ..."] | None = None,
    ) -> GibbsPosition:
        """Draw the outputs of the convolution given a position of the collapsed model.

        Returns a position of the first model: its law is the posterior's where the other's is. The
        targets `y` are needed where the pooled values are the network's outputs, no layer with
        noise being after the pooling. Raises ValueError for a position of another model, and for
        those of several chains, which go through jax.vmap.
        """
        check_key("key", key)
        check_one(self.model.network, position)
        _, pool = _pooled_convolution(self.original)
        params = (position.params[0], (), *position.params[1:])
        mean = self.original.stages[0].mean(params, inputs_last(self.original.network, self.images))
        variances = [self.original.variance(j, mean.dtype) for j in (0, 1)]
        pooled = position.pre[0] if position.pre else self._outputs(y, mean.dtype)
        expected = (*self.model.stages[0].output_shape, len(self.x))
        if np.shape(pooled) != expected:
            raise ValueError(
                f"the pooled values have shape {expected} here, but those of this position have "
                f"{np.shape(pooled)}; give a position of the collapsed model, whose x they are of."
            )
        outputs = sample_pooled(key, pool, mean, pooled, *variances)
        return GibbsPosition(params, (outputs, *position.pre), position.post)

    def _outputs(self, y, dtype: DTypeLike) -> Array:
        if y is None:
            raise ValueError(
                "the pooled values are the outputs of this network, so that restore needs them; "
                "write restore(key, position, y)."
            )
        finite_array("y", y)
        return outputs_last(self.model.network, y, dtype)


def collapse_pooling(model: IntermediateNoise, x: Images) -> CollapsedPooling:
    """Integrate out the outputs of a pooled convolution with which the network begins.

    Parameters
    ----------
    model
        Of a network that begins with Conv and AvgPool, whose windows share no pixel.
    x
        Images, (n, height, width, channels).

    Returns
    -------
    A model and inputs, under which the joint law of weights, biases and all later latents is that
    of the first; any kernel of `jaxbnn.gibbs` takes them. Its method `restore` draws what was
    integrated out.

    Raises
    ------
    ValueError
        If the network does not begin so, or windows share pixels; images that do not fit or are not
        finite.

    Notes
    -----
    The model is that of Piccioli et al., (7), who draw all outputs of the convolution; here they
    are integrated out of it.

    Examples
    --------
    >>> import jax
    >>> from jaxbnn.networks import Dense, Flatten
    >>> layers = (Conv(2, (3, 3)), AvgPool((2, 2)), Flatten(), Dense(1))
    >>> model = IntermediateNoise(Network(layers, (8, 8, 1)), (0.4, 0.1, 0.3))
    >>> collapsed = collapse_pooling(model, jnp.ones((5, 8, 8, 1)))
    >>> collapsed.model.network.layers[0].stride, collapsed.x.shape
    ((2, 2), (5, 7, 7, 1))
    >>> round(collapsed.model.noise_variance[0], 3)
    0.2
    >>> position = collapsed.model.zero_position(collapsed.x, jnp.ones((5, 1)))
    >>> [z.shape for z in collapsed.restore(jax.random.key(0), position).pre]
    [(6, 6, 2, 5), (3, 3, 2, 5)]
    """
    check_model(model)
    conv, pool = _pooled_convolution(model)
    inputs = checked_inputs(model.network, x)
    averaged = jnp.moveaxis(_window_means(inputs, pool.window, conv.stride), -1, 0)
    assert pool.stride is not None  # resolved at construction
    stride = (conv.stride[0] * pool.stride[0], conv.stride[1] * pool.stride[1])
    longer = Conv(conv.features, conv.window, stride, conv.bias)
    network = Network((longer, *model.network.layers[2:]), averaged.shape[1:])
    first, pooled, *others = _noise_variances(model)
    variances = (first / math.prod(pool.window) + pooled, *others)
    collapsed = IntermediateNoise(
        network, variances, model.weight_precision, model.bias_precision, model.output
    )
    return CollapsedPooling(collapsed, averaged, model, x)


def _pooled_convolution(model: IntermediateNoise) -> tuple[Conv, AvgPool]:
    layers = model.network.layers
    if len(layers) < 2 or not (isinstance(layers[0], Conv) and isinstance(layers[1], AvgPool)):
        raise ValueError(
            "collapse_pooling takes a network that begins with Conv and AvgPool, whose averages it "
            "takes of the data beforehand; use the model as it is."
        )
    conv, pool = layers[0], layers[1]
    assert pool.stride is not None
    if any(step < size for step, size in zip(pool.stride, pool.window, strict=True)):
        raise ValueError(
            f"windows of {pool.window} at strides of {pool.stride} share pixels, and so their "
            "noise; collapse_pooling takes windows that share none, so use the model as it is."
        )
    return conv, pool


def _noise_variances(model: IntermediateNoise) -> tuple:
    value, number = model.noise_variance, len(model.stages)
    one_each = isinstance(value, Sequence) or jnp.ndim(value) > 0
    return tuple(value[j] if one_each else value for j in range(number))  # type: ignore[index]


def _window_means(
    v: Float[Array, "..."], window: tuple[int, int], step: tuple[int, int]
) -> Float[Array, "..."]:
    """Return means over pixels `step` apart, `window` of them, from every pixel on."""
    rows, columns = (
        size - s * (w - 1) for size, w, s in zip(v.shape[:2], window, step, strict=True)
    )
    parts = [
        lax.slice(
            v,
            (i * step[0], j * step[1], 0, 0),
            (i * step[0] + rows, j * step[1] + columns, *v.shape[2:]),
        )
        for i in range(window[0])
        for j in range(window[1])
    ]
    return sum(parts[1:], parts[0]) / len(parts)
