"""Piecewise-linear activations: what the conditional of a pre-activation can be sampled for.

On the piece [low, high] the activation is slope * z + intercept; at a breakpoint it may jump.
"""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float


class Piece(NamedTuple):
    """slope * z + intercept for low <= z <= high, as `activation_pieces` returns it.

    Attributes
    ----------
    slope, intercept
        Of the line.
    low, high
        Ends of the piece; may be infinite.
    """

    slope: float
    intercept: float
    low: float
    high: float


@dataclass(frozen=True)
class PiecewiseLinear:
    """An activation given by its pieces, for `jaxbnn.networks.Activation`.

    Attributes
    ----------
    pieces
        Tuples (slope, intercept, low, high) from left to right: the first begins at -inf, the
        last ends at inf, each begins where the one before ends. Jumps are allowed; at a
        breakpoint the value is that of the piece on the left.

    Raises
    ------
    ValueError
        If the pieces do not cover the line in this way.

    Examples
    --------
    >>> inf = float("inf")
    >>> ramp = PiecewiseLinear(((0.0, 0.0, -inf, 0.0), (1.0, 0.0, 0.0, 2.0), (0.0, 3.0, 2.0, inf)))
    >>> ramp(jnp.array([-1.0, 0.5, 9.0])).tolist()
    [0.0, 0.5, 3.0]
    """

    pieces: tuple[tuple[float, float, float, float], ...]

    def __post_init__(self):
        try:
            pieces = tuple(Piece(*map(float, piece)) for piece in self.pieces)
        except (TypeError, ValueError):
            pieces = ()
        ends = [(-math.inf, -math.inf), *((p.low, p.high) for p in pieces), (math.inf, math.inf)]
        meet = all(left[1] == right[0] for left, right in itertools.pairwise(ends))
        increase = all(p.low < p.high for p in pieces)
        finite = all(math.isfinite(p.slope) and math.isfinite(p.intercept) for p in pieces)
        if not (pieces and meet and increase and finite):
            raise ValueError(
                "pieces must be tuples (slope, intercept, low, high) of finite slopes and "
                "intercepts that cover the line from -inf to inf, each beginning where the one "
                f"before ends, but are {self.pieces!r}."
            )
        object.__setattr__(self, "pieces", pieces)

    def __call__(self, z: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """Return the activation of z, elementwise."""
        first, *others = (Piece(*piece) for piece in self.pieces)
        value = _line(first, z)
        for piece in others:
            value = jnp.where(z > piece.low, _line(piece, z), value)
        return value


def activation_pieces(function: str | Callable) -> PiecewiseLinear:
    """Return the pieces of an activation that is piecewise linear.

    Parameters
    ----------
    function
        One of identity, relu, leaky_relu (slope 0.01), abs, sign, heaviside, hard_tanh; or a
        `PiecewiseLinear`.

    Raises
    ------
    ValueError
        If the pieces of the activation are not known.

    Examples
    --------
    >>> len(activation_pieces("hard_tanh").pieces)
    3
    >>> activation_pieces("tanh")
    Traceback (most recent call last):
    ValueError: the Gibbs sampler needs piecewise-linear activations, but one is 'tanh'; use ...
    """
    if isinstance(function, PiecewiseLinear):
        return function
    if isinstance(function, str) and function in _BY_NAME:
        return _BY_NAME[function]
    raise ValueError(
        f"the Gibbs sampler needs piecewise-linear activations, but one is {function!r}; use one "
        f"of {', '.join(_BY_NAME)}, or give its pieces: "
        "Activation(PiecewiseLinear(((slope, intercept, low, high), ...)))."
    )


def _line(piece: Piece, z: Array) -> Array:
    return piece.slope * z + piece.intercept


def _two(left: tuple[float, float], right: tuple[float, float]) -> PiecewiseLinear:
    return PiecewiseLinear(((*left, -math.inf, 0.0), (*right, 0.0, math.inf)))


_BY_NAME: Mapping[str, PiecewiseLinear] = MappingProxyType(
    {
        "identity": PiecewiseLinear(((1.0, 0.0, -math.inf, math.inf),)),
        "relu": _two((0.0, 0.0), (1.0, 0.0)),
        "leaky_relu": _two((0.01, 0.0), (1.0, 0.0)),
        "abs": _two((-1.0, 0.0), (1.0, 0.0)),
        "sign": _two((0.0, -1.0), (0.0, 1.0)),
        "heaviside": _two((0.0, 0.0), (0.0, 1.0)),
        "hard_tanh": PiecewiseLinear(
            ((0.0, -1.0, -math.inf, -1.0), (1.0, 0.0, -1.0, 1.0), (0.0, 1.0, 1.0, math.inf))
        ),
    }
)
