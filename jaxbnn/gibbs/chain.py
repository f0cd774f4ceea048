"""The intermediate-noise model as it makes data: weights from a prior, a chain of noisy stages."""

import dataclasses
from collections.abc import Sequence
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, PyTree, Shaped

from jaxbnn.gibbs.stages import Stage, merge, noisy_stages, split
from jaxbnn.gibbs.validation import (
    check_noise_variance,
    check_output,
    check_precision,
    inputs_last,
    outputs_last,
)
from jaxbnn.networks import Network, output_shape, parameter_shapes
from jaxbnn.networks.validation import check_params
from jaxbnn.numerics import standard_normal
from jaxbnn.numerics.arguments import check_key, short, typed_key
from jaxbnn.numerics.data import finite_array
from jaxbnn.targets import normal_prior

Output = Literal["regression", "probit", "binary_probit"]
Values = ArrayLike | Sequence[ArrayLike]


class GibbsPosition(NamedTuple):
    """Weights and latents of the intermediate-noise model.

    Attributes
    ----------
    params
        As `network.apply` takes them: a tuple with one entry a layer.
    pre
        Pre-activations, one array (*output_shape, n) a Dense, Conv or AvgPool in order. The last
        is missing in regression where it is y; under a probit it holds the logits.
    post
        Post-activations, one array (*output_shape, n) an Activation.
    """

    params: PyTree
    pre: tuple
    post: tuple


@dataclasses.dataclass(frozen=True, eq=False)
class NoisyChain:
    """What `IntermediateNoise` simulates from; its parameters are described there."""

    network: Network
    noise_variance: Values
    weight_precision: Values = 1.0
    bias_precision: Values = 1.0
    output: Output = "regression"

    def __post_init__(self):
        if jax.tree.leaves(self.noise_variance) and not isinstance(self.network, Network):
            raise TypeError(
                f"network must be a jaxbnn.networks.Network, but is {short(self.network)}; the "
                "Gibbs conditionals need to know the layers."
            )
        if not all(_is_given(v) for v in jax.tree.leaves(self._leaves())):
            return  # JAX rebuilds the dataclass with placeholders for its leaves
        stages = self.stages
        num_affine = sum(stage.is_affine for stage in stages)
        check_noise_variance(self.noise_variance, len(stages))
        for name in ("weight_precision", "bias_precision"):
            check_precision(name, getattr(self, name), num_affine)
        check_output(self.output, self.network)

    def _leaves(self):
        return (self.noise_variance, self.weight_precision, self.bias_precision)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The layers with noise, in order."""
        return noisy_stages(self.network)

    @property
    def latent_stages(self) -> tuple[Stage, ...]:
        """Those of them whose values are latent: all, less in regression the last."""
        return self.stages[:-1] if self.output == "regression" else self.stages

    def variance(self, stage_number: int, dtype: DTypeLike) -> Float[Array, ""]:
        """Return the noise variance of a stage, counted from 0."""
        return _entry(self.noise_variance, stage_number, dtype)

    def precisions(self, affine_index: int, dtype: DTypeLike) -> tuple[Array, Array]:
        """Return the prior precisions of weights and biases of a Dense or Conv, counted from 0."""
        return (
            _entry(self.weight_precision, affine_index, dtype),
            _entry(self.bias_precision, affine_index, dtype),
        )

    @property
    def prior(self) -> PyTree:
        """The prior, as `jaxbnn.targets.normal_prior` returns it."""
        return normal_prior(
            self.network,
            weight_precision=self.weight_precision,
            bias_precision=self.bias_precision,
        )

    def sample_prior(self, key: PRNGKeyArray, dtype: DTypeLike = float) -> PyTree:
        """Draw parameters from the prior, in JAX's default float unless told otherwise."""
        check_key("key", key)
        key = typed_key(key)
        shapes = parameter_shapes(self.network, dtype)
        return tuple(
            {
                name: distribution.sample(
                    jax.random.fold_in(key, 2 * index + (name == "b"))
                ).astype(shapes[index][name].dtype)
                for name, distribution in layer.items()
            }
            if layer
            else ()
            for index, layer in enumerate(self.prior)
        )

    def simulate(
        self, key: PRNGKeyArray, params: PyTree, x: Shaped[Array | np.ndarray, "n ..."]
    ) -> tuple[GibbsPosition, Shaped[Array, "n ..."]]:
        """Draw latents and outputs given parameters and inputs: (7).

        Returns
        -------
        The position, `params` in it, and y: (n, *output_shape) in regression, labels (n,)
        under a probit.

        Raises
        ------
        ValueError
            Parameters of another network, or inputs of another shape than its own.
        """
        check_key("key", key)
        check_params(self.network, params)
        finite_array("x", x)
        values = self.forward(key, params, inputs_last(self.network, x))
        latent = self.latent_stages
        pre, post = split(latent, values[: len(latent)])
        last = values[-1]
        if self.output == "regression":
            y = jnp.moveaxis(last, -1, 0)
            y = y.reshape(y.shape[0], *output_shape(self.network))
        elif self.output == "probit":
            y = jnp.argmax(last, axis=0)
        else:
            y = (last[0] > 0).astype(jnp.int32)
        return GibbsPosition(params, pre, post), y

    def forward(
        self, key: PRNGKeyArray | None, params: PyTree, before: Float[Array, "..."]
    ) -> list[Array]:
        """Run the chain with noise drawn from `key`, without any if it is None."""
        values = []
        for number, stage in enumerate(self.stages):
            value = stage.mean(params, before)
            if key is not None:
                noise = standard_normal(jax.random.fold_in(key, number), value.shape, value.dtype)
                value = value + jnp.sqrt(self.variance(number, value.dtype)) * noise
            values.append(value)
            before = value
        return values


def chain_values(model: NoisyChain, position: GibbsPosition, y, dtype) -> list[Array]:
    """Return the values of all stages in order: latents, and in regression y."""
    values = merge(model.latent_stages, position.pre, position.post)
    return (
        [*values, outputs_last(model.network, y, dtype)] if model.output == "regression" else values
    )


def _entry(value: Values, number: int, dtype: DTypeLike) -> Float[Array, ""]:
    one_each = isinstance(value, Sequence) or jnp.ndim(value) > 0
    return jnp.asarray(value[number] if one_each else value, dtype)  # type: ignore[index]


def _is_given(leaf) -> bool:
    return isinstance(leaf, str | int | float | complex | np.number | np.ndarray | jax.Array)
