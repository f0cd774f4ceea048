"""The covariance of a Gaussian reference measure N(m, C), as an operator on positions.

A kernel needs of C only to draw from N(0, C), as A xi with A A^T = C and xi standard
normal, and where it uses gradients, C g. Neither asks for a matrix.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import ArrayLike, PyTree

from jaxbnn.kernels.arguments import check_bits
from jaxbnn.numerics import check_finite, check_positive, check_real, is_concrete
from jaxbnn.numerics.arguments import check_function, short
from jaxbnn.numerics.products import product


class CovarianceOperator(NamedTuple):
    """C = A A^T by what it does to a PyTree shaped like the position.

    Attributes
    ----------
    sqrt
        xi -> A xi, linear: any root, a triangular one or the symmetric one.
    multiply
        g -> C g.
    """

    sqrt: Callable[[PyTree], PyTree]
    multiply: Callable[[PyTree], PyTree]


def covariance_operator(
    sqrt: Callable[[PyTree], PyTree], multiply: Callable[[PyTree], PyTree] | None = None
) -> CovarianceOperator:
    """Return the operator of a covariance C = A A^T given by functions.

    Parameters
    ----------
    sqrt
        xi -> A xi, linear: any root, a triangular one or the symmetric one.
    multiply
        g -> C g. None: A applied to A^T g, the transpose found by JAX.

    Raises
    ------
    TypeError
        `sqrt` or `multiply` that is no function.
    ValueError
        When applied, a result that is not shaped like the position.

    Examples
    --------
    Summation, whose covariance is that of a random walk:

    >>> covariance_operator(jnp.cumsum).multiply(jnp.array([0.0, 0.0, 1.0])).tolist()
    [1.0, 2.0, 3.0]
    """
    check_function("sqrt", sqrt, "give xi -> A xi; a matrix goes through dense_covariance")
    if multiply is not None:
        check_function("multiply", multiply, "give g -> C g")

    def multiply_by_transpose(gradient):
        (transposed,) = jax.linear_transpose(sqrt, gradient)(gradient)
        return sqrt(transposed)

    return CovarianceOperator(
        _of_its_shape("sqrt", sqrt), _of_its_shape("multiply", multiply or multiply_by_transpose)
    )


def _of_its_shape(name: str, function: Callable[[PyTree], PyTree]) -> Callable[[PyTree], PyTree]:
    """Return the function, which must not give what would be broadcast against the position."""

    def apply(tree):
        result = function(tree)
        structures: list[Any] = [jax.tree.structure(value) for value in (tree, result)]
        shapes = [list(map(jnp.shape, jax.tree.leaves(value))) for value in (tree, result)]
        if structures[0] != structures[1] or shapes[0] != shapes[1]:
            given, found = (short(jax.tree.map(jnp.shape, value), 200) for value in (tree, result))
            raise ValueError(
                f"{name} must return a PyTree like the one it is given, whose shapes are {given}, "
                f"but returned {found}."
            )
        return result

    return apply


def dense_covariance(matrix: ArrayLike) -> CovarianceOperator:
    """Return the operator of a covariance matrix, by its Cholesky factor.

    Parameters
    ----------
    matrix
        (d, d), symmetric positive definite, where d counts the entries of the position, in
        the order of `jax.flatten_util.ravel_pytree`. Where rounding has left it unsymmetric, both
        sides are averaged.

    Raises
    ------
    ValueError
        A matrix that is not square, not finite, not symmetric or not positive definite.
    TypeError
        A matrix of fewer than 32 bits, which cannot be factored, or not of real numbers.

    Examples
    --------
    >>> covariance = dense_covariance(jnp.array([[4.0, 2.0], [2.0, 2.0]]))
    >>> covariance.sqrt(jnp.array([1.0, 0.0])), covariance.multiply(jnp.array([1.0, 0.0]))
    (Array([2., 1.], dtype=float32), Array([4., 2.], dtype=float32))
    """
    check_real("the covariance matrix", matrix)
    matrix = jnp.asarray(matrix)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"a covariance matrix must be square, but has shape {matrix.shape}.")
    check_bits("the covariance matrix", matrix)
    check_finite("the covariance matrix", matrix, "give finite covariances")
    if is_concrete(matrix):
        values = np.asarray(matrix)
        if not np.allclose(values, values.T, rtol=1e-4, atol=1e-6 * np.abs(values).max(initial=0)):
            raise ValueError("the covariance matrix is not symmetric; give (C + C^T) / 2.")
    # The Cholesky factor is that of the average: C g must be of the same C.
    matrix = (matrix + matrix.T) / 2
    factor = jnp.linalg.cholesky(matrix)
    if is_concrete(factor) and not np.isfinite(np.asarray(factor)).all():
        raise ValueError(
            "the covariance matrix is not positive definite; add a small multiple of the identity."
        )

    def apply(array, tree):
        vector, unravel = ravel_pytree(tree)
        if vector.shape != array.shape[:1]:
            raise ValueError(
                f"the covariance matrix is {array.shape} where the position has {vector.size} "
                "entries."
            )
        array = array.astype(vector.dtype)
        return unravel(product(array, vector))

    return CovarianceOperator(
        lambda noise: apply(factor, noise), lambda gradient: apply(matrix, gradient)
    )


def as_operator(covariance: PyTree | CovarianceOperator | None) -> CovarianceOperator:
    """Return any of the accepted ways to give a covariance as an operator.

    Parameters
    ----------
    covariance
        None for the identity; a positive number; a PyTree like the position of positive
        variances, scalars or one an entry (a diagonal C); or a `CovarianceOperator`.

    Raises
    ------
    ValueError
        A variance that is not positive; when applied, a PyTree not shaped like the position.
    """
    if covariance is None:
        return CovarianceOperator(lambda noise: noise, lambda gradient: gradient)
    if isinstance(covariance, CovarianceOperator):
        return covariance
    for path, leaf in jax.tree_util.tree_leaves_with_path(covariance):
        check_positive(f"covariance{jax.tree_util.keystr(path)}", leaf, "variances are positive")

    def sqrt(noise):
        variances = like_position("covariance", covariance, noise)
        return jax.tree.map(lambda variance, xi: jnp.sqrt(variance) * xi, variances, noise)

    def multiply(gradient):
        variances = like_position("covariance", covariance, gradient)
        return jax.tree.map(jnp.multiply, variances, gradient)

    return CovarianceOperator(sqrt, multiply)


def like_position(name: str, value: PyTree, position: PyTree) -> PyTree:
    """Return `value` as a tree like `position`: one number for all leaves, or leaf by leaf.

    Raises
    ------
    ValueError
        Another structure, or a leaf that is neither a scalar nor of the position's shape.
    """
    leaves, values = jax.tree.leaves(position), jax.tree.leaves(value)
    structure: Any = jax.tree.structure(position)
    found: Any = jax.tree.structure(value)
    if found == jax.tree.structure(0) and jnp.ndim(values[0]) == 0:
        values = values * len(leaves)
    elif found != structure:
        raise ValueError(
            f"{name} is {short(found, 100)} where the position is {short(structure, 200)}; give "
            "one number, or a PyTree like the position."
        )
    for one, leaf in zip(values, leaves, strict=True):
        check_real(name, one)
        if jnp.shape(one) not in ((), jnp.shape(leaf)):
            raise ValueError(
                f"{name} has a leaf of shape {jnp.shape(one)} where the position has "
                f"{jnp.shape(leaf)}; give a scalar or one number an entry (a covariance matrix "
                "goes through dense_covariance)."
            )
    return structure.unflatten(
        [jnp.asarray(one, jnp.result_type(leaf)) for one, leaf in zip(values, leaves, strict=True)]
    )
