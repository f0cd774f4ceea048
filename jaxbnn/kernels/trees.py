"""Functions of positions that are PyTrees, shared by the kernels."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from jaxbnn.numerics import check_floating, check_real, standard_normal
from jaxbnn.numerics.arguments import a_or_an
from jaxbnn.numerics.arrays import float_dtype


def check_position(position: PyTree) -> None:
    """Raise TypeError if the position holds anything but floating-point (or complex) numbers."""
    if not jax.tree.leaves(position):
        raise TypeError("the position holds no array; give a PyTree of floating-point arrays.")
    for path, leaf in jax.tree_util.tree_leaves_with_path(position):
        dtype = getattr(leaf, "dtype", None)
        if dtype is not None and jnp.issubdtype(dtype, jnp.inexact):
            continue
        check_real(f"position{jax.tree_util.keystr(path)}", leaf)
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            raise TypeError(
                "the position must hold floating-point numbers, but a leaf of it has dtype "
                f"{jnp.result_type(leaf)}; start from x.astype(float)."
            )


def normal_like(rng_key: PRNGKeyArray, tree: PyTree) -> PyTree:
    """Return independent standard normals of the shapes and dtypes of `tree`."""
    leaves, structure = jax.tree.flatten(tree)
    for leaf in leaves:
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            raise TypeError(
                "the position must hold floating-point numbers, but a leaf of it has dtype "
                f"{jnp.result_type(leaf)}; start from x.astype(float)."
            )
    keys = jax.random.split(rng_key, len(leaves))
    return jax.tree.unflatten(
        structure,
        [
            standard_normal(key, jnp.shape(leaf), jnp.result_type(leaf))
            for key, leaf in zip(keys, leaves, strict=True)
        ],
    )


def widened(tree: PyTree) -> PyTree:
    """Return the tree with its halves as float32, in which kernels compute.

    Examples
    --------
    >>> widened(jnp.ones(2, jnp.bfloat16)).dtype
    dtype('float32')
    """
    return jax.tree.map(_widened, tree)


def _widened(leaf: Any) -> Array:
    dtype = jnp.result_type(leaf)
    return jnp.asarray(leaf, float_dtype(dtype) if jnp.issubdtype(dtype, jnp.floating) else dtype)


def inner_product(a: PyTree, b: PyTree, dtype: jnp.dtype) -> Float[Array, ""]:
    """Return the sum over all entries of a times b.

    As a sum of products and not a matrix product, so that no device rounds it to TF32.
    """
    sums = jax.tree.map(lambda x, y: jnp.sum(x * y).astype(dtype), a, b)
    return sum(jax.tree.leaves(sums), jnp.zeros((), dtype))


def as_terms(name: str, value: Any) -> Float[Array, "..."]:
    """Return what the function `name` returned as an array, or say what it should have."""
    if value is None or isinstance(value, tuple | list | dict):
        raise TypeError(
            f"{name} must return a number, or an array of terms, but returned {a_or_an(value)}; "
            "return the array alone."
        )
    check_real(f"what {name} returns", value)
    return jnp.asarray(value)


def as_scalar(name: str, value: Any) -> Float[Array, ""]:
    """Return what the function `name` returned as one number, or say what it should have."""
    value = as_terms(name, value)
    if value.ndim:
        raise ValueError(
            f"{name} must return one number, but returned shape {value.shape}; return the sum."
        )
    return value


def differentiable(name: str, value: Array) -> Float[Array, "..."]:
    """Return what the function `name` returned, or say that whole numbers have no gradient."""
    check_floating(f"what {name} returns", value)
    return value


def terms_and_gradient(
    name: str, terms_fn: Callable[[PyTree], Array], position: PyTree
) -> tuple[Float[Array, "..."], PyTree]:
    """Return the terms at `position` and the gradient of their sum, from one evaluation.

    Parameters
    ----------
    name
        What the function is called in the caller's signature.
    terms_fn
        Position to a scalar or to one term per datum.
    position
        Where.

    Examples
    --------
    >>> terms, gradient = terms_and_gradient("f", lambda x: -(x**2), jnp.array([1.0, 2.0]))
    >>> terms.tolist(), gradient.tolist()
    ([-1.0, -4.0], [-2.0, -4.0])
    """

    def total(position):
        terms = differentiable(name, as_terms(name, terms_fn(position)))
        return jnp.sum(terms), terms

    (_, terms), gradient = jax.value_and_grad(total, has_aux=True)(position)
    return terms, gradient
