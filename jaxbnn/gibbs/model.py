"""The intermediate-noise model: Gaussian noise at every pre- and post-activation.

    Z^(l+1) = W^(l) X^(l) + b^(l) + noise,   X^(l+1) = sigma(Z^(l+1)) + noise

(Piccioli et al., (7), with erratum A10: the chain ends in Z^(L+1), which is the data y in
regression and latent logits under a probit).
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, PyTree, Shaped

from jaxbnn.gibbs.door import (
    check_noise_variance,
    check_output,
    check_precision,
    inputs_last,
    outputs_last,
)
from jaxbnn.gibbs.probit import satisfying_logits
from jaxbnn.gibbs.stages import Stage, merge, noisy_stages, split
from jaxbnn.networks import Network, output_shape, parameter_shapes
from jaxbnn.numerics import sum_of_differences

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


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["noise_variance", "weight_precision", "bias_precision"],
    meta_fields=["network", "output"],
)
@dataclasses.dataclass(frozen=True, eq=False)
class IntermediateNoise:
    """A network with noise at every stage, a normal prior, and what is observed of its output.

    A PyTree: variances and precisions are leaves and may be traced, network and output are
    static. Data go in with rows first, (n, *input_shape); latents have the data axis last.

    Parameters
    ----------
    network
        A chain of Dense, Conv, AvgPool, Activation and Flatten in the standard parametrisation.
        Activations are piecewise linear: see `activation_pieces`.
    noise_variance
        Delta: one for all stages, or one each, in the order of the layers with noise (all but
        Flatten), the last being that of y or of the logits. For an MLP with one hidden layer:
        (Delta_Z2, Delta_X2, Delta_Z3).
    weight_precision, bias_precision
        Of the zero-mean normal priors: one for all, or one per Dense or Conv in order.
    output
        "regression": y (n, *output_shape), or (n,) for a single output. "probit": labels (n,) of
        C classes, the largest of C outputs. "binary_probit": labels 0 or 1, whether the single
        output is positive.

    Raises
    ------
    ValueError
        If a variance or precision is not positive, their number is not that of the stages or
        layers, an activation is not piecewise linear, or the output does not fit the network.
    TypeError
        If a layer has no such reading.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> model = IntermediateNoise(mlp((2, 3, 1)), 0.01, weight_precision=(2.0, 3.0))
    >>> params = model.sample_prior(jax.random.key(0))
    >>> position, y = model.simulate(jax.random.key(1), params, jnp.ones((5, 2)))
    >>> y.shape, [z.shape for z in position.pre], [x.shape for x in position.post]
    ((5, 1), [(3, 5)], [(3, 5)])
    """

    network: Network
    noise_variance: Values
    weight_precision: Values = 1.0
    bias_precision: Values = 1.0
    output: Output = "regression"

    def __post_init__(self):
        if jax.tree.leaves(self.noise_variance) and not isinstance(self.network, Network):
            raise TypeError(
                f"network must be a jaxbnn.networks.Network, but is {self.network!r}; the Gibbs "
                "conditionals need to know the layers."
            )
        if not all(_is_number(v) for v in jax.tree.leaves(self._leaves())):
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

    def sample_prior(self, key: PRNGKeyArray, dtype: DTypeLike = float) -> PyTree:
        """Draw parameters from the prior, in JAX's default float unless told otherwise."""
        shapes = parameter_shapes(self.network, dtype)
        params: list = [() for _ in shapes]
        for stage in self.stages:
            if not stage.is_affine:
                continue
            precision = dict(
                zip("wb", self.precisions(stage.affine_index, shapes_dtype(shapes)), strict=True)
            )
            params[stage.index] = {
                name: jax.random.normal(
                    jax.random.fold_in(key, 2 * stage.index + (name == "b")), leaf.shape, leaf.dtype
                )
                / jnp.sqrt(precision[name])
                for name, leaf in shapes[stage.index].items()
            }
        return tuple(params)

    def simulate(
        self, key: PRNGKeyArray, params: PyTree, x: Shaped[Array | np.ndarray, "n ..."]
    ) -> tuple[GibbsPosition, Shaped[Array, "n ..."]]:
        """Draw latents and outputs given parameters and inputs: (7).

        Returns
        -------
        The position, `params` in it, and y: (n, *output_shape) in regression, labels (n,)
        under a probit.
        """
        values = self._forward(key, params, inputs_last(self.network, x))
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

    def log_density(
        self,
        position: GibbsPosition,
        x: Shaped[Array | np.ndarray, "n ..."],
        y: Shaped[Array | np.ndarray, "n ..."],
    ) -> Float[Array, ""]:
        """Return the log joint density of weights, latents and data, all constants included.

        Differentiable, so that any sampler of BlackJAX takes it with x and y bound; -inf where
        logits contradict their label.
        """
        return jnp.sum(self.log_terms(position, x, y)) + self.log_prior(position.params)

    def log_density_from(
        self,
        reference: GibbsPosition,
        x: Shaped[Array | np.ndarray, "n ..."],
        y: Shaped[Array | np.ndarray, "n ..."],
    ) -> Callable[[GibbsPosition], Array]:
        """Return position -> log_density(position) - log_density(reference), summed by datum.

        Near the reference it keeps its digits in float32 where two totals would cancel.
        """
        terms = self.log_terms(reference, x, y)
        prior = self.log_prior(reference.params)

        def difference(position: GibbsPosition) -> Array:
            total = sum_of_differences(self.log_terms(position, x, y), terms)
            return total + (self.log_prior(position.params) - prior)

        return difference

    def log_terms(
        self,
        position: GibbsPosition,
        x: Shaped[Array | np.ndarray, "n ..."],
        y: Shaped[Array | np.ndarray, "n ..."],
    ) -> Float[Array, " n"]:
        """Return log p(latents, y | weights) for each datum: `log_density` less the prior."""
        before = inputs_last(self.network, x)
        values = chain_values(self, position, y, before.dtype)
        terms = jnp.zeros(before.shape[-1], before.dtype)
        for number, (stage, value) in enumerate(zip(self.stages, values, strict=True)):
            d = self.variance(number, before.dtype)
            residual = value - stage.mean(position.params, before)
            squares = jnp.sum(jnp.square(residual), axis=tuple(range(residual.ndim - 1)))
            size = math.prod(stage.output_shape)
            terms = terms - squares / (2 * d) - size / 2 * jnp.log(2 * jnp.pi * d)
            before = value
        if self.output == "regression":
            return terms
        labels = jnp.asarray(y)
        contradicted = jnp.any(satisfying_logits(values[-1], labels) != values[-1], axis=0)
        return jnp.where(contradicted, -jnp.inf, terms)

    def log_prior(self, params: PyTree) -> Float[Array, ""]:
        """Return the log prior density of the weights and biases."""
        total = jnp.zeros((), shapes_dtype(params))
        for stage in self.stages:
            if not stage.is_affine:
                continue
            leaves = params[stage.index]
            precision = dict(
                zip("wb", self.precisions(stage.affine_index, total.dtype), strict=True)
            )
            for name, leaf in leaves.items():
                lam = precision[name]
                total = total - lam / 2 * jnp.sum(jnp.square(leaf))
                total = total + leaf.size / 2 * jnp.log(lam / (2 * jnp.pi))
        return total

    def _forward(self, key, params: PyTree, before: Array) -> list[Array]:
        """Run the chain with noise drawn from `key`, without any if it is None."""
        values = []
        for number, stage in enumerate(self.stages):
            value = stage.mean(params, before)
            if key is not None:
                noise = jax.random.normal(jax.random.fold_in(key, number), value.shape, value.dtype)
                value = value + jnp.sqrt(self.variance(number, value.dtype)) * noise
            values.append(value)
            before = value
        return values

    # The starting positions are in a file of their own.
    def zero_position(self, x, y) -> GibbsPosition:
        """Return zeros for every weight, bias and latent; see `starts.zero_position`."""
        from jaxbnn.gibbs.starts import zero_position

        return zero_position(self, x, y)

    def random_position(self, key: PRNGKeyArray, x, y) -> GibbsPosition:
        """Draw weights from the prior and latents given them; see `starts.random_position`."""
        from jaxbnn.gibbs.starts import random_position

        return random_position(self, key, x, y)

    def informed_position(self, position: GibbsPosition, x, y) -> GibbsPosition:
        """Return a teacher's weights and latents, checked; see `starts.informed_position`."""
        from jaxbnn.gibbs.starts import informed_position

        return informed_position(self, position, x, y)

    def position_from_weights(self, key, params: PyTree, x, y) -> GibbsPosition:
        """Draw latents given weights; see `starts.position_from_weights`."""
        from jaxbnn.gibbs.starts import position_from_weights

        return position_from_weights(self, key, params, x, y)


def chain_values(model: IntermediateNoise, position: GibbsPosition, y, dtype) -> list[Array]:
    """Return the values of all stages in order: latents, and in regression y."""
    values = merge(model.latent_stages, position.pre, position.post)
    return (
        [*values, outputs_last(model.network, y, dtype)] if model.output == "regression" else values
    )


def shapes_dtype(tree: PyTree):
    """Return the dtype of the first leaf."""
    return jax.tree.leaves(tree)[0].dtype


def _entry(value: Values, number: int, dtype: DTypeLike) -> Float[Array, ""]:
    one_each = isinstance(value, Sequence) or jnp.ndim(value) > 0
    return jnp.asarray(value[number] if one_each else value, dtype)  # type: ignore[index]


def _is_number(leaf) -> bool:
    return isinstance(leaf, int | float | np.number | np.ndarray | jax.Array)
