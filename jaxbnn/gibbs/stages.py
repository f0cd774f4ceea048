"""A network as a chain of noisy stages: what the intermediate-noise model reads in its layers.

Dense, Conv and AvgPool give a pre-activation, Activation a post-activation, each with noise
of its own; Flatten only changes the shape. Stage j maps the values of stage j - 1 (the data
for j = 0) to its own.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Array, Float, PyTree

from jaxbnn.gibbs.linear_maps import affine, average
from jaxbnn.gibbs.pieces import PiecewiseLinear, activation_pieces
from jaxbnn.networks import (
    Activation,
    AvgPool,
    Conv,
    Dense,
    Flatten,
    Network,
    Residual,
    layer_shapes,
)


@dataclass(frozen=True)
class Stage:
    """A layer with noise at its output.

    Attributes
    ----------
    layer
        Dense, Conv, AvgPool, or the pieces of an activation.
    index
        Of the layer in the network, and of its parameters.
    input_shape, output_shape
        Of one datum, the input after any Flatten.
    affine_index
        How many layers with parameters come before this one.
    """

    layer: Dense | Conv | AvgPool | PiecewiseLinear
    index: int
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    affine_index: int

    @property
    def is_affine(self) -> bool:
        """Whether the layer has parameters."""
        return isinstance(self.layer, Dense | Conv)

    @property
    def is_post(self) -> bool:
        """Whether the stage's values are post-activations."""
        return isinstance(self.layer, PiecewiseLinear)

    def mean(self, params: PyTree, inputs: Float[Array, "..."]) -> Float[Array, "..."]:
        """Return what the layer gives without noise; `inputs` are the values before it."""
        inputs = self.view(inputs)
        if isinstance(self.layer, Dense | Conv):
            return affine(self.layer, params[self.index], inputs)
        if isinstance(self.layer, AvgPool):
            return average(self.layer, inputs)
        return self.layer(inputs)

    def view(self, inputs: Float[Array, "..."]) -> Float[Array, "..."]:
        """Return the values before the layer in the shape in which it takes them."""
        return inputs.reshape(*self.input_shape, inputs.shape[-1])


def noisy_stages(network: Network) -> tuple[Stage, ...]:
    """Return the stages of a network.

    Raises
    ------
    ValueError
        If an activation is not piecewise linear, the network has no layer with parameters or is
        not in the standard parametrisation.
    TypeError
        If a layer has no such reading.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> [stage.output_shape for stage in noisy_stages(mlp((4, 3, 2)))]
    [(3,), (3,), (2,)]
    """
    if network.parametrisation != "standard":
        raise ValueError(
            "the intermediate-noise model is one of networks in the standard parametrisation; "
            "leave out parametrisation='ntk', and put the scales into the prior precisions."
        )
    stages: list[Stage] = []
    shape, num_affine = network.input_shape, 0
    for index, (layer, output) in enumerate(
        zip(network.layers, layer_shapes(network), strict=True)
    ):
        match layer:
            case Flatten():
                shape = (math.prod(shape),)
                continue
            case Residual():
                raise TypeError(
                    f"layer {index} is a Residual, for which there are no Gibbs conditionals; "
                    "use layers in a chain, or another sampler."
                )
            case Activation():
                stage = Stage(activation_pieces(layer.function), index, shape, output, num_affine)
            case Dense() | Conv() | AvgPool():
                stage = Stage(layer, index, shape, output, num_affine)
            case _:
                raise TypeError(
                    f"there are no Gibbs conditionals of layer {index} ({type(layer).__name__}); "
                    "use Dense, Conv, AvgPool, Activation and Flatten, or another sampler."
                )
        stages.append(stage)
        num_affine += stage.is_affine
        shape = output
    if num_affine == 0:
        raise ValueError("the network has no Dense or Conv, so no parameters; add a layer.")
    return tuple(stages)


def merge(stages: Sequence[Stage], pre: Sequence, post: Sequence) -> list:
    """Return the latents of the stages in the chain's order."""
    next_pre, next_post = iter(pre), iter(post)
    return [next(next_post) if stage.is_post else next(next_pre) for stage in stages]


def split(stages: Sequence[Stage], values: Sequence) -> tuple[tuple, tuple]:
    """Return the chain's latents as pre- and post-activations.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> split(noisy_stages(mlp((4, 3, 2))), ["Z2", "X2", "Z3"])
    (('Z2', 'Z3'), ('X2',))
    """
    pairs = list(zip(stages, values, strict=True))
    pre = tuple(value for stage, value in pairs if not stage.is_post)
    return pre, tuple(value for stage, value in pairs if stage.is_post)
