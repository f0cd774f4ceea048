"""Data, variances and precisions as a user gives them: one sentence for what does not fit."""

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, ArrayLike, Float, Shaped

from jaxbnn.networks import Flatten, Network, layer_shapes, output_shape
from jaxbnn.networks.validation import check_inputs
from jaxbnn.numerics import check_positive, check_real, is_concrete
from jaxbnn.numerics.arguments import a_or_an, check_word
from jaxbnn.numerics.arrays import as_array
from jaxbnn.numerics.checks import check_float
from jaxbnn.numerics.data import finite_array, warn_of_rounded_inputs
from jaxbnn.targets.rounding import as_computed, warn_of_rounded_targets

_LIMITS = (
    "without noise at some stages the Gibbs sampler cannot move: for the limits of none but the "
    "last (the classical posterior) and of none at post-activations (stochastic feed-forward "
    "networks) run HMC, NUTS or MALA, on jaxbnn.Posterior or on a log density of your own"
)


def inputs_last(network: Network, x: Shaped[Array | np.ndarray, "n ..."]) -> Float[Array, "..."]:
    """Return data (n, *input_shape) with the data axis last.

    Raises
    ------
    ValueError
        If the shape does not fit the network.
    TypeError
        If x is not floating point.
    """
    return jnp.moveaxis(check_inputs(network, x), 0, -1)


def outputs_last(
    network: Network, y: Shaped[Array | np.ndarray, "n ..."], dtype: DTypeLike
) -> Float[Array, "..."]:
    """Return y of a regression, (n, *output_shape), as the values of the last noisy layer.

    Raises
    ------
    ValueError
        If the shape does not fit the network.
    """
    check_real("y", y)
    y = as_array(y)
    shape = output_shape(network)
    if y.shape[1:] != shape and not (y.ndim == 1 and math.prod(shape) == 1):
        expected = ", ".join(("n", *map(str, shape)))
        raise ValueError(f"y must have shape ({expected}), but has {y.shape}.")
    noisy = [
        shape
        for layer, shape in zip(network.layers, layer_shapes(network), strict=True)
        if not isinstance(layer, Flatten)
    ]
    return jnp.moveaxis(y.reshape(y.shape[0], *noisy[-1]), 0, -1).astype(dtype)


def checked_inputs(network: Network, x) -> Float[Array, "..."]:
    """Return x with the data axis last; refuse data that no sweep can take."""
    finite_array("x", x)
    inputs = inputs_last(network, x)
    if inputs.shape[-1] == 0:
        raise ValueError("x has no rows; give at least one, or draw from the prior.")
    check_float("x", inputs)  # no factorisation has fewer bits
    return inputs


def check_model(model: Any) -> None:
    """Raise TypeError unless `model` is one with noise at its stages, and no bare network."""
    if not (hasattr(model, "network") and hasattr(model, "noise_variance")):
        raise TypeError(
            f"model must be an IntermediateNoise, but is {a_or_an(model)}; write "
            "IntermediateNoise(network, noise_variance)."
        )


def check_data(model: Any, x, y) -> None:
    """Say what is wrong with x and y, as far as it can be seen; warn of what floats round."""
    network = model.network
    inputs = checked_inputs(network, x)
    warn_of_rounded_inputs(x, inputs.dtype)
    is_regression = model.output == "regression"
    if is_regression:
        finite_array("y", y)
    check_rows(network, model.output, inputs, y)
    if is_regression:
        if is_concrete(model.noise_variance):
            noise_scale = math.sqrt(np.ravel(np.asarray(model.noise_variance))[-1])
            warn_of_rounded_targets(as_computed(y, inputs.dtype), noise_scale)
        return
    check_real("y", y)
    dtype = as_array(y).dtype
    if np.ndim(y) != 1 or not jnp.issubdtype(dtype, jnp.integer):
        raise ValueError(
            "y must be whole numbers of shape (n,) for a probit, but is "
            f"{dtype} of shape {np.shape(y)}."
        )
    classes = max(2, output_shape(network)[0])
    if is_concrete(y) and np.size(y):
        # NumPy's own numbers: within `jit` those of JAX are traced, constants too.
        low, high = np.min(np.asarray(y)), np.max(np.asarray(y))
        if low < 0 or high >= classes:
            raise ValueError(
                f"y must hold labels from 0 to {classes - 1}, but runs from {low} to {high}."
            )


def check_rows(network: Network, output: str, inputs: Array, y) -> None:
    """Say if y is of other rows than `inputs`, rows last, or in regression of other outputs."""
    check_real("y", y)
    if np.shape(y)[:1] != (inputs.shape[-1],):
        raise ValueError(f"x has {inputs.shape[-1]} rows, but y has shape {np.shape(y)}.")
    if output == "regression":
        outputs_last(network, y, inputs.dtype)


def check_noise_variance(value: ArrayLike | Sequence[ArrayLike], num_stages: int) -> None:
    """Say what is wrong with noise variances."""
    _check_values("noise_variance", value, num_stages, "layer with noise", _LIMITS)


def check_precision(name: str, value: ArrayLike | Sequence[ArrayLike], num_affine: int) -> None:
    """Say what is wrong with prior precisions."""
    advice = "give the inverse of the prior's variance"
    _check_values(name, value, num_affine, "Dense or Conv", advice)


def check_output(output: str, network: Network) -> None:
    """Say if the model's output is unknown or does not fit the network."""
    check_word("output", output, ("regression", "probit", "binary_probit"))
    if output == "regression":
        return
    shape = output_shape(network)
    fits = len(shape) == 1 and (shape[0] == 1 if output == "binary_probit" else shape[0] > 1)
    if not fits or isinstance(network.layers[-1], Flatten):
        wanted = "one output" if output == "binary_probit" else "one output a class, two at least"
        raise ValueError(
            f"output {output!r} needs {wanted}, from a Dense that ends the network, but the "
            f"outputs have shape {shape}; change the last layer, or use the other probit."
        )


def _check_values(name: str, value, number: int, what: str, advice: str) -> None:
    entries = tuple(value) if isinstance(value, tuple | list) else (value,)
    for entry in entries:
        check_positive(name, entry, advice)
        if isinstance(value, tuple | list) and jnp.ndim(entry) != 0:
            raise ValueError(
                f"{name} must be one number per {what}, but one of them has shape "
                f"{jnp.shape(entry)}."
            )
    shape = (len(value),) if isinstance(value, tuple | list) else jnp.shape(value)
    if shape not in ((), (number,)):
        raise ValueError(
            f"{name} must be one number or {number}, one per {what}, but has shape {shape}."
        )
