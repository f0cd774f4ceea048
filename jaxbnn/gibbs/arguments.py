"""Whether the arguments of a conditional belong together; shapes only, free once traced."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, PyTree

from jaxbnn.kernels.arguments import check_positive_number
from jaxbnn.networks import AvgPool, Conv, Dense
from jaxbnn.networks.shapes import num_windows
from jaxbnn.numerics import check_real, is_concrete
from jaxbnn.numerics.arguments import a_or_an, check_type
from jaxbnn.numerics.arrays import as_array
from jaxbnn.numerics.checks import check_float


def check_affine(
    layer: Dense | Conv, params: PyTree, inputs: Array, outputs: Array, **numbers: ArrayLike
) -> None:
    """Refuse arrays that do not fit the layer, and variances or precisions that are not positive.

    inputs are (*input_shape, n) and outputs (*output_shape, n).
    """
    if not isinstance(layer, Dense | Conv):
        raise TypeError(f"layer must be a Dense or a Conv, but is {a_or_an(layer)}.")
    if not isinstance(params, dict) or set(params) not in ({"w"}, {"w", "b"}):
        raise ValueError('params must be {"w": ..., "b": ...}, or {"w": ...} without a bias.')
    check_arrays(inputs=inputs, outputs=outputs, **params)
    w, b = np.shape(params["w"]), np.shape(params.get("b", np.zeros(layer.features)))
    shape, found = np.shape(inputs), np.shape(outputs)
    expected: tuple[int, ...]
    if isinstance(layer, Conv):
        fits = len(shape) == 4 and w == (*layer.window, shape[-2], layer.features)
        expected = (
            (*num_windows(layer.window, layer.stride, shape), layer.features, shape[-1])
            if fits
            else ()
        )
    else:
        fits = len(shape) >= 2 and w == (shape[-2], layer.features)
        expected = (*shape[:-2], layer.features, shape[-1]) if fits else ()
    if not fits or found != expected or b != (layer.features,):
        raise ValueError(
            f"inputs (*input_shape, n), outputs (*output_shape, n), w and b must fit {layer}, but "
            f"their shapes are {shape}, {found}, {w} and {b}."
        )
    check_numbers(**numbers)


def check_pooled(layer: AvgPool, mean: Array, outputs: Array, **numbers: ArrayLike) -> None:
    """Refuse images that the pooling does not take to those given."""
    check_type("layer", layer, AvgPool, "draw the inputs of other layers by sample_inputs")
    check_arrays(mean=mean, outputs=outputs)
    shape, found = np.shape(mean), np.shape(outputs)
    assert layer.stride is not None  # resolved at construction
    fits = len(shape) == 4
    expected = (*num_windows(layer.window, layer.stride, shape), *shape[2:]) if fits else ()
    if not fits or found != expected or 0 in found:
        raise ValueError(
            f"mean (height, width, channels, n) and outputs must fit {layer}, but their shapes "
            f"are {shape} and {found}."
        )
    if jnp.result_type(mean) != jnp.result_type(outputs):
        raise TypeError(
            f"mean and outputs must be of one type, but are {jnp.result_type(mean)} and "
            f"{jnp.result_type(outputs)}; convert one of them."
        )
    check_numbers(**numbers)


def check_labels(mean: Array, labels: Array, noise_variance: ArrayLike, **others: Array) -> Array:
    """Return labels, (n,) whole numbers, as an array; refuse others, and logits that do not fit."""
    check_arrays(mean=mean, **others)
    check_real("labels", labels)
    labels = as_array(labels)
    if np.ndim(labels) != 1 or not jnp.issubdtype(labels.dtype, jnp.integer):
        raise ValueError(
            f"labels must be whole numbers (n,), but are {labels.dtype} of shape "
            f"{np.shape(labels)}."
        )
    shapes = {np.shape(values) for values in (mean, *others.values())}
    if len(shapes) > 1 or len(np.shape(mean)) != 2 or np.shape(mean)[1:] != np.shape(labels):
        raise ValueError(
            f"logits must be (classes, n) for labels (n,), but the shapes are {sorted(shapes)} "
            f"and {np.shape(labels)}."
        )
    classes = max(2, np.shape(mean)[0])
    if is_concrete(labels) and np.size(labels):
        low, high = np.min(np.asarray(labels)), np.max(np.asarray(labels))
        if low < 0 or high >= classes:
            raise ValueError(
                f"labels must lie in 0..{classes - 1}, one class a row of logits (two for one "
                f"row), but run from {low} to {high}."
            )
    check_numbers(noise_variance=noise_variance)
    return labels


def check_arrays(**arrays: Array) -> None:
    """Refuse what is not float32 or float64: fewer bits make NaN of truncated normals."""
    for name, values in arrays.items():
        if not isinstance(values, jax.Array | np.ndarray | np.generic):
            raise TypeError(
                f"{name} must be an array, but is {a_or_an(values)}; write jnp.asarray({name})."
            )
        check_float(name, values)


def check_numbers(**numbers: ArrayLike) -> None:
    """Refuse variances and precisions that are not positive, or not one for all units and data."""
    for name, value in numbers.items():
        check_positive_number(name, value)


def check_ratio(
    dtype: jnp.dtype, noise_variance: ArrayLike, next_noise_variance: ArrayLike
) -> None:
    """Refuse a latent noise so much larger than the next that the draw would lose all digits."""
    if is_concrete((noise_variance, next_noise_variance)):
        ratio = float(np.asarray(noise_variance)) / float(np.asarray(next_noise_variance))
        most = float(jnp.finfo(dtype).eps) ** -2
        if ratio > most:
            raise ValueError(
                f"noise_variance is {ratio:.1e} times next_noise_variance, but may be at most "
                f"{most:.1e} times that in {jnp.dtype(dtype).name}; use a larger "
                "next_noise_variance or float64."
            )
