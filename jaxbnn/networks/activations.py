"""Elementwise activations, by name or as any callable.

A name is preferred where it exists: other readings of a network (Gibbs conditionals, moment
propagation) know these functions by name and cannot look into a callable.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxbnn.numerics.arguments import check_function


def activation_function(function: str | Callable) -> Callable:
    """Return the elementwise function that a name stands for; a callable is returned as it is.

    Parameters
    ----------
    function
        One of relu, leaky_relu (slope 0.01 below zero), abs, sign (0 at 0), heaviside (0 at 0),
        hard_tanh, identity, sigmoid, tanh, gelu (z Phi(z), exact), erf, softplus; or a callable
        from an array to an array of the same shape.

    Raises
    ------
    ValueError
        If the name is not known.
    TypeError
        If it is neither a name nor a callable.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> activation_function("hard_tanh")(jnp.array([-2.0, 0.5])).tolist()
    [-1.0, 0.5]
    """
    if not isinstance(function, str):
        check_function(
            "function of Activation", function, "give a name, as 'relu', or an elementwise function"
        )
        return function
    if function not in _BY_NAME:
        raise ValueError(
            f"unknown activation {function!r}; use one of {', '.join(_BY_NAME)}, or a callable."
        )
    return _BY_NAME[function]


def heaviside(z: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Return 1 where z > 0, else 0, in the dtype of z.

    Examples
    --------
    >>> heaviside(jnp.array([-1.0, 0.0, 2.0])).tolist()
    [0.0, 0.0, 1.0]
    """
    return (z > 0).astype(z.dtype)


def identity(z: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Return z.

    Examples
    --------
    >>> float(identity(jnp.array(0.5)))
    0.5
    """
    return z


def gelu(z: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Return z Phi(z) with the normal distribution function itself, not its tanh approximation.

    Examples
    --------
    >>> round(float(gelu(jnp.array(1.0))), 4)
    0.8413
    """
    return jax.nn.gelu(z, approximate=False)


_BY_NAME: Mapping[str, Callable] = MappingProxyType(
    {
        "relu": jax.nn.relu,
        "leaky_relu": jax.nn.leaky_relu,
        "abs": jnp.abs,
        "sign": jnp.sign,
        "heaviside": heaviside,
        "hard_tanh": jax.nn.hard_tanh,
        "identity": identity,
        "sigmoid": jax.nn.sigmoid,
        "tanh": jnp.tanh,
        "gelu": gelu,
        "erf": jax.scipy.special.erf,
        "softplus": jax.nn.softplus,
    }
)
