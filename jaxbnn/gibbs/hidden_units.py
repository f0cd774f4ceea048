"""The hidden units of a chain of noisy stages: what belongs to one of them, and its symmetries.

A unit is a unit of a Dense or a channel of a Conv, with its values in all stages up to the next
layer with weights: its pre-activation, its activation, what a pooling makes of it. In every array
of these stages the units are the last axis before the data, also after a Flatten.
"""

import itertools
import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxbnn.gibbs.model import IntermediateNoise
from jaxbnn.gibbs.pieces import PiecewiseLinear
from jaxbnn.gibbs.stages import Stage
from jaxbnn.networks import Conv, Dense


class Group(NamedTuple):
    """The units of one Dense or Conv.

    Attributes
    ----------
    first
        Number of their stage, which has their incoming weights.
    following
        That of the next stage with weights, their outgoing ones.
    size
        How many units.
    """

    first: int
    following: int
    size: int

    @property
    def own(self) -> range:
        """Numbers of the stages whose values belong to the units."""
        return range(self.first, self.following)


@dataclass(frozen=True)
class Scaling:
    """How far the scale of a unit reaches: c > 0 for its incoming weights and its first values.

    Attributes
    ----------
    group
        The units.
    end
        Number of the first stage that the scale does not reach: that of the outgoing weights,
        which have 1 / c; or a step, such as sign, which does not see the scale.
    """

    group: Group
    end: int

    @property
    def has_outgoing(self) -> bool:
        """Whether the outgoing weights take part."""
        return self.end == self.group.following


def hidden_groups(model: IntermediateNoise) -> tuple[Group, ...]:
    """Return the groups of hidden units, from the data to the labels.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> hidden_groups(IntermediateNoise(mlp((4, 3, 2)), 0.1))
    (Group(first=0, following=2, size=3),)
    """
    affine = [j for j, stage in enumerate(model.stages) if stage.is_affine]
    return tuple(
        Group(first, following, _features(model.stages[first]))
        for first, following in itertools.pairwise(affine)
    )


def scalings(model: IntermediateNoise) -> tuple[list[Scaling], list[str]]:
    """Return the scale symmetries of all groups, and a sentence for each group that has none.

    A stage is homogeneous if f(c v) = c f(v) for c > 0: pooling, the identity, and pieces without
    intercepts that meet at zero. A step has pieces without slopes that meet at zero: f(c v) = f(v).

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> scalings(IntermediateNoise(mlp((4, 3, 2), "hard_tanh"), 0.1))[1][0]
    'layer 0 (Dense) has no scale symmetry: scaled, hard_tanh would give another function; ...'
    """
    found, lost = [], []
    for group in hidden_groups(model):
        end = group.following
        for j in group.own:
            layer = model.stages[j].layer
            if not isinstance(layer, PiecewiseLinear) or _is_homogeneous(layer):
                continue
            if _is_step(layer):
                end = j
                break
            stage = model.stages[group.first]
            function = getattr(model.network.layers[model.stages[j].index], "function", None)
            name = function if isinstance(function, str) else "the activation"
            lost.append(
                f"layer {stage.index} ({type(stage.layer).__name__}) has no scale symmetry: "
                f"scaled, {name} would give another function; its scale move is left out."
            )
            break
        else:
            found.append(Scaling(group, end))
            continue
        if end < group.following:
            found.append(Scaling(group, end))
    return found, lost


def by_unit(array: Float[Array, "..."], size: int) -> Float[Array, "rest size columns"]:
    """Return values (*shape, units, n), or weights (..., units, outputs), with three axes."""
    return array.reshape(-1, size, array.shape[-1])


def unit_squares(array: Float[Array, "..."], size: int) -> Float[Array, " size"]:
    """Return the sum of squares that belongs to each unit, of arrays as `by_unit` takes them."""
    return jnp.sum(jnp.square(by_unit(array, size)), axis=(0, 2))


def times_unit(array: Float[Array, "..."], factor: Float[Array, " size"]) -> Float[Array, "..."]:
    """Return an array as `by_unit` takes it, each unit's part times its factor."""
    scaled = by_unit(array, factor.shape[0]) * factor[None, :, None]
    return scaled.reshape(array.shape)


def incoming_squares(w: Float[Array, "*inputs units"]) -> Float[Array, " units"]:
    """Return the sum of the squared incoming weights of each unit."""
    return jnp.sum(jnp.square(w), axis=tuple(range(w.ndim - 1)))


def scaled_weights(
    model: IntermediateNoise,
    params: PyTree,
    group: Group,
    factor: Float[Array, " units"],
    *,
    has_outgoing: bool = True,
) -> tuple:
    """Return parameters with each unit's incoming weights and bias times its factor.

    The outgoing weights are divided by it, unless they take no part.
    """
    scaled = list(params)
    index = model.stages[group.first].index
    scaled[index] = jax.tree.map(
        lambda leaf: leaf * factor.reshape((1,) * (leaf.ndim - 1) + factor.shape), scaled[index]
    )
    if has_outgoing:
        index = model.stages[group.following].index
        scaled[index] = scaled[index] | {"w": times_unit(scaled[index]["w"], 1 / factor)}
    return tuple(scaled)


def _features(stage: Stage) -> int:
    assert isinstance(stage.layer, Dense | Conv)
    return stage.layer.features


def _is_homogeneous(activation: PiecewiseLinear) -> bool:
    return _breaks_at_zero(activation) and all(piece[1] == 0 for piece in activation.pieces)


def _is_step(activation: PiecewiseLinear) -> bool:
    return _breaks_at_zero(activation) and all(piece[0] == 0 for piece in activation.pieces)


def _breaks_at_zero(activation: PiecewiseLinear) -> bool:
    ends = {end for piece in activation.pieces for end in piece[2:]}
    return ends <= {-math.inf, 0.0, math.inf}
