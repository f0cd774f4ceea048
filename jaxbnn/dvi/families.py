"""Gaussian approximations q of the weights: all independent, or correlated within a layer.

q's parameters are a PyTree, the `position` that variational inference moves. Where the likelihood
learns its noise, it is {"network": q, "log_noise_scale": q of one number}, like the parameters.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.typing import DTypeLike
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, PyTree

from jaxbnn.networks import Network, parameter_shapes
from jaxbnn.networks.forward import checked_dtype
from jaxbnn.networks.shapes import fan_in
from jaxbnn.numerics import (
    check_finite,
    check_floating,
    check_positive,
    check_real,
    is_concrete,
    standard_normal,
)
from jaxbnn.numerics.arguments import check_flag, check_key, check_type
from jaxbnn.numerics.arrays import widened
from jaxbnn.numerics.checks import broadcasts_to, check_one_number, check_shape
from jaxbnn.numerics.products import product

Scalar = Float[Array, ""]


class FactorisedNormal(NamedTuple):
    """q(w) = prod_i N(w_i; mean_i, exp(2 log_scale_i)).

    Attributes
    ----------
    mean, log_scale
        PyTrees shaped like the parameters.
    """

    mean: PyTree
    log_scale: PyTree


class LayerwiseNormal(NamedTuple):
    """q(w) = prod_layers N(w_layer; mean, L L^T).

    Attributes
    ----------
    mean
        A PyTree shaped like the parameters.
    factor
        One matrix a Dense in place of its {"w", "b"}: strictly below the diagonal it is L, on the
        diagonal log L; above it is not used. Rows and columns run over the entries of the matrix
        with b under w, row by row.
    """

    mean: PyTree
    factor: PyTree


Family = FactorisedNormal | LayerwiseNormal


def check_q(q: Family) -> None:
    """Raise unless q is one of the families, of floating-point arrays. Free once traced."""
    if not isinstance(q, FactorisedNormal | LayerwiseNormal):
        raise TypeError(
            "q must be a FactorisedNormal or a LayerwiseNormal, as initial_position draws it, but "
            f"is a {type(q).__name__}."
        )
    for path, leaf in jax.tree_util.tree_leaves_with_path(q):
        name = f"q{jax.tree_util.keystr(path)}"
        check_floating(name, leaf)
    if isinstance(q, LayerwiseNormal):
        _check_factors(q)
        return
    if jax.tree.map(jnp.shape, q.mean) != jax.tree.map(jnp.shape, q.log_scale):
        raise ValueError(
            f"q.mean and q.log_scale must have the same shapes, but have "
            f"{jax.tree.map(jnp.shape, q.mean)} and {jax.tree.map(jnp.shape, q.log_scale)}."
        )


def _check_factors(q: LayerwiseNormal) -> None:
    def check(layer, factor):
        size = sum(jnp.size(leaf) for leaf in layer.values())
        if jnp.shape(factor) != (size, size):
            raise ValueError(
                f"a layer of q with {size} parameters needs a factor of shape {(size, size)}, but "
                f"has {jnp.shape(factor)}; take q of one start, as initial_position draws it."
            )

    _map_dense(check, q.mean, q.factor)


def initial_position(
    rng_key: PRNGKeyArray,
    network: Network,
    *,
    mean_variance: ArrayLike = 1.0,
    variance: ArrayLike = 1.0,
    bias_mean_variance: ArrayLike | None = None,
    bias_variance: ArrayLike | None = None,
    correlated: bool = False,
    log_noise_scale: ArrayLike | None = None,
    shape: tuple[int, ...] = (),
    dtype: DTypeLike = float,
) -> PyTree:
    """Draw a place to start: means N(0, mean_variance / fan_in), variances variance / fan_in.

    fan_in counts the inputs of the layer, for its biases too, and is 1 in the ntk parametrisation.

    Parameters
    ----------
    rng_key
        Key of the draw.
    network
        The network.
    mean_variance, variance
        Numbers; the authors' toy example has 5 for both.
    bias_mean_variance, bias_variance
        The same for biases; by default as for weights. The mean variance may be 0.
    correlated
        Whether to return a `LayerwiseNormal` (of no correlation to begin with) and not a
        `FactorisedNormal`. Its size is the square of a layer's.
    log_noise_scale
        Where given, a start for the noise scale of `LearnedGaussian` too, of variance 1e-2.
    shape
        Leading axes: this many independent starts.
    dtype
        Of the leaves.

    Returns
    -------
    q, or {"network": q, "log_noise_scale": q}.

    Raises
    ------
    ValueError
        If a variance is not one positive number, or too small for the dtype, or log_noise_scale is
        not finite.
    TypeError
        What is no real number; the network is not a `Network`.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> q = initial_position(jax.random.key(0), mlp((4, 3, 2)), shape=(20,))
    >>> jax.tree.map(jnp.shape, q.mean[0])
    {'b': (20, 3), 'w': (20, 4, 3)}
    """
    check_key("rng_key", rng_key)
    check_type("shape", shape, tuple, "write (20,) for 20 of them")
    check_shape("shape", shape)
    checked_dtype(dtype)
    check_flag("correlated", correlated)
    if mean_variance is None or variance is None:
        raise TypeError("mean_variance and variance must be numbers; of a bias alone None is one.")
    numbers = {"mean_variance": mean_variance, "variance": variance, "bias_variance": bias_variance}
    for name, value in (numbers | {"bias_mean_variance": bias_mean_variance}).items():
        if value is None:
            continue
        check_one_number(name, value)
        if name in numbers:
            check_positive(name, value)
    if log_noise_scale is not None:
        check_real("log_noise_scale", log_noise_scale)
        check_finite("log_noise_scale", log_noise_scale, "give the logarithm of a scale")
        if not broadcasts_to(np.shape(log_noise_scale), shape):
            raise ValueError(
                f"log_noise_scale has shape {np.shape(log_noise_scale)} where shape is {shape}; "
                "give one number, or one for each q."
            )
    if bias_mean_variance is not None:
        check_finite("bias_mean_variance", bias_mean_variance, "give 0 or a positive number")
        if is_concrete(bias_mean_variance) and np.any(np.asarray(bias_mean_variance) < 0):
            raise ValueError(
                f"bias_mean_variance must not be negative, but is {bias_mean_variance}; give 0, "
                "or a positive number."
            )
    shapes = parameter_shapes(network, dtype)
    leaves, structure = jax.tree.flatten(shapes)
    keys = jax.tree.unflatten(structure, list(jax.random.split(rng_key, len(leaves))))
    scales = per_fan_in(network, 1.0, dtype)

    def of(path, value, bias_value, dtype):
        of_bias = path[-1].key == "b" and bias_value is not None
        return jnp.asarray(bias_value if of_bias else value, dtype)

    def draw(path, key, leaf, inverse_fan_in):
        noise = standard_normal(key, (*shape, *leaf.shape), leaf.dtype)
        number = of(path, mean_variance, bias_mean_variance, leaf.dtype)
        return noise * jnp.sqrt(number * inverse_fan_in)

    def spread(path, leaf, inverse_fan_in):
        number = of(path, variance, bias_variance, leaf.dtype)
        log_scale = 0.5 * jnp.log(number * inverse_fan_in)
        return jnp.broadcast_to(log_scale, (*shape, *leaf.shape))

    mean = jax.tree_util.tree_map_with_path(draw, keys, shapes, scales)
    log_scale = jax.tree_util.tree_map_with_path(spread, shapes, scales)
    if is_concrete(log_scale) and not all(
        np.isfinite(leaf).all() for leaf in jax.tree.leaves(log_scale)
    ):
        raise ValueError(
            "variance and bias_variance divided by the number of inputs must be numbers of "
            f"{jnp.result_type(dtype)}, but are {variance} and {bias_variance}; give larger ones, "
            "such as 1e-10."
        )
    q: Family = FactorisedNormal(mean, log_scale)
    if correlated:
        q = LayerwiseNormal(mean, _map_dense(lambda s: _diagonal_factor(s, shape), log_scale))
    if log_noise_scale is None:
        return q
    start = jnp.broadcast_to(jnp.asarray(log_noise_scale, jnp.result_type(dtype)), shape)
    return {
        "network": q,
        "log_noise_scale": FactorisedNormal(start, jnp.full_like(start, math.log(0.1))),
    }


def per_fan_in(network: Network, value: ArrayLike, dtype: DTypeLike = float) -> PyTree:
    """Return value / fan_in of the layer for every parameter, a PyTree of numbers.

    fan_in counts as 1 in the ntk parametrisation, which divides in the forward pass.

    Parameters
    ----------
    network
        The network.
    value
        A number.
    dtype
        Of the leaves.

    Raises
    ------
    ValueError
        The value is not one number.
    TypeError
        The value is not real; the network is not a `Network`.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> per_fan_in(mlp((4, 1)), 2.0)[0]["b"].item()
    0.5
    """
    check_one_number("value", value)
    number = jnp.asarray(value, jnp.result_type(dtype))

    def of_layer(layer):
        count = 1 if network.parametrisation == "ntk" else fan_in(layer["w"].shape)
        return jax.tree.map(lambda leaf: number / count, layer)

    return _map_dense(of_layer, parameter_shapes(network))


def moments_of(q: Family) -> tuple[PyTree, PyTree]:
    """Return the means and the variances of the single weights, shaped like the parameters.

    Examples
    --------
    >>> mean, variance = moments_of(FactorisedNormal(jnp.zeros(2), jnp.zeros(2)))
    >>> variance.tolist()
    [1.0, 1.0]
    """
    check_q(q)
    if isinstance(q, FactorisedNormal):
        return q.mean, jax.tree.map(lambda s: jnp.exp(2 * s), q.log_scale)

    def variances(mean, factor):
        of_rows = jnp.sum(jnp.square(lower_triangle(factor)), axis=1)
        return _as_layer(of_rows, mean)

    return q.mean, _map_dense(variances, q.mean, q.factor)


def entropy(q: Family) -> Scalar:
    """Return -E_q[log q].

    Examples
    --------
    >>> round(float(entropy(FactorisedNormal(jnp.zeros(2), jnp.zeros(2)))), 4)  # 2 * 1.4189
    2.8379
    """
    check_q(q)
    q = jax.tree.map(widened, q)
    if isinstance(q, FactorisedNormal):
        log_scales = [jnp.sum(leaf) for leaf in jax.tree.leaves(q.log_scale)]
    else:
        log_scales = [jnp.sum(jnp.diagonal(leaf)) for leaf in jax.tree.leaves(q.factor)]
    count = sum(leaf.size for leaf in jax.tree.leaves(q.mean))
    return sum(log_scales[1:], start=log_scales[0]) + 0.5 * count * (1 + math.log(2 * math.pi))


def draw_weights(rng_key: PRNGKeyArray, q: Family) -> PyTree:
    """Return one draw of the parameters, differentiable in q.

    Examples
    --------
    >>> q = FactorisedNormal({"w": jnp.zeros((2, 1))}, {"w": jnp.full((2, 1), -30.0)})
    >>> float(jnp.abs(draw_weights(jax.random.key(0), q)["w"]).max()) < 1e-10
    True
    """
    check_q(q)
    leaves, structure = jax.tree.flatten(q.mean)
    keys = jax.random.split(rng_key, len(leaves))
    noise = jax.tree.unflatten(
        structure,
        [standard_normal(k, v.shape, v.dtype) for k, v in zip(keys, leaves, strict=True)],
    )
    if isinstance(q, FactorisedNormal):
        return jax.tree.map(lambda m, s, e: m + jnp.exp(s) * e, q.mean, q.log_scale, noise)

    def shift(mean, factor, noise):
        vector = product(lower_triangle(factor), _as_vector(noise))
        return jax.tree.map(jnp.add, mean, _as_layer(vector, mean))

    return _map_dense(shift, q.mean, q.factor, noise)


def lower_triangle(factor: Float[Array, "k k"]) -> Float[Array, "k k"]:
    """Return L of a `LayerwiseNormal`'s factor.

    Examples
    --------
    >>> lower_triangle(jnp.array([[0.0, 9.0], [0.5, 0.0]])).tolist()
    [[1.0, 0.0], [0.5, 1.0]]
    """
    return jnp.tril(factor, -1) + jnp.diag(jnp.exp(jnp.diagonal(factor)))


def as_distributions(position: PyTree) -> PyTree:
    """Return q as NumPyro distributions.

    Parameters
    ----------
    position
        What was fitted, without further leading axes.

    Returns
    -------
    For a `FactorisedNormal` a PyTree shaped like the parameters, as priors are. For a
    `LayerwiseNormal` one `MultivariateNormal` a Dense, over the entries of the matrix with b
    under w.

    Raises
    ------
    TypeError
        q that is no FactorisedNormal or LayerwiseNormal.
    ValueError
        Numbers that are not finite, or scales that no float holds.

    Examples
    --------
    >>> q = FactorisedNormal({"w": jnp.zeros((2, 1))}, {"w": jnp.zeros((2, 1))})
    >>> as_distributions(q)["w"].event_shape
    (2, 1)
    """
    if isinstance(position, dict):
        return {name: as_distributions(q) for name, q in position.items()}
    check_q(position)
    check_finite("q", position, "fit it again, with a smaller learning rate")
    if isinstance(position, FactorisedNormal):
        scale = jax.tree.map(jnp.exp, position.log_scale)
        for leaf in jax.tree.leaves(scale):
            check_positive("each scale of q", leaf, "bring its logarithm nearer to zero")
        return jax.tree.map(lambda m, s: dist.Normal(m, s).to_event(m.ndim), position.mean, scale)

    def of_layer(mean, factor):
        return dist.MultivariateNormal(_as_vector(mean), scale_tril=lower_triangle(factor))

    return _map_dense(of_layer, position.mean, position.factor)


def _map_dense(function: Callable, tree: Any, *rest: Any) -> Any:
    """Map over the layers that have parameters, each a dict in the first tree."""
    if isinstance(tree, dict):
        return function(tree, *rest)
    return tuple(_map_dense(function, *entries) for entries in zip(tree, *rest, strict=True))


def _as_vector(layer: dict) -> Float[Array, " k"]:
    """Return the entries of w, then of b."""
    return jnp.concatenate([layer[name].reshape(-1) for name in ("w", "b") if name in layer])


def _as_layer(vector: Float[Array, " k"], like: dict) -> dict:
    """Undo `_as_vector`."""
    w = vector[: like["w"].size].reshape(like["w"].shape)
    return {"w": w, "b": vector[w.size :]} if "b" in like else {"w": w}


def _diagonal_factor(log_scale: dict, lead: tuple[int, ...]) -> Array:
    flat = [log_scale[name] for name in ("w", "b") if name in log_scale]
    vector = jnp.concatenate([leaf.reshape(*lead, -1) for leaf in flat], axis=-1)
    unit = jnp.eye(vector.shape[-1], dtype=vector.dtype)
    return vector[..., None] * jnp.expand_dims(unit, range(len(lead)))
