"""The intermediate-noise model: Gaussian noise at every pre- and post-activation.

    Z^(l+1) = W^(l) X^(l) + b^(l) + noise,   X^(l+1) = sigma(Z^(l+1)) + noise

(Piccioli et al., (7), with erratum A10: the chain ends in Z^(L+1), which is the data y in
regression and latent logits under a probit).
"""

import dataclasses
import math
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, Shaped

from jaxbnn.gibbs import starts
from jaxbnn.gibbs.chain import GibbsPosition, NoisyChain, chain_values
from jaxbnn.gibbs.probit import satisfying_logits
from jaxbnn.gibbs.validation import inputs_last
from jaxbnn.networks import Network, parameter_shapes
from jaxbnn.networks.validation import check_params
from jaxbnn.numerics import sum_of_differences
from jaxbnn.numerics.arguments import check_type
from jaxbnn.targets.prior_density import prior_log_prob, prior_log_ratio


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["noise_variance", "weight_precision", "bias_precision"],
    meta_fields=["network", "output"],
)
@dataclasses.dataclass(frozen=True, eq=False)
class IntermediateNoise(NoisyChain):
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
        log_prior_ratio = prior_log_ratio(self.prior, reference.params)

        def difference(position: GibbsPosition) -> Array:
            total = sum_of_differences(self.log_terms(position, x, y), terms)
            return total + log_prior_ratio(position.params)

        return difference

    def log_terms(
        self,
        position: GibbsPosition,
        x: Shaped[Array | np.ndarray, "n ..."],
        y: Shaped[Array | np.ndarray, "n ..."],
    ) -> Float[Array, " n"]:
        """Return log p(latents, y | weights) for each datum: `log_density` less the prior.

        Raises
        ------
        ValueError
            x or y of other shapes than the network's, or of other numbers of rows than each other
            or than the latents; positions of several chains at once.
        TypeError
            What is no `GibbsPosition`.
        """
        check_one(self.network, position)
        before = inputs_last(self.network, x)
        values = chain_values(self, position, y, before.dtype)
        _check_rows(before.shape[-1], y, values)
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
        return prior_log_prob(self.prior, params)

    def zero_position(self, x, y) -> GibbsPosition:
        """Return zeros for every weight, bias and latent; see `starts.zero_position`."""
        return starts.zero_position(self, x, y)

    def random_position(self, key: PRNGKeyArray, x, y) -> GibbsPosition:
        """Draw weights from the prior and latents given them; see `starts.random_position`."""
        return starts.random_position(self, key, x, y)

    def informed_position(self, position: GibbsPosition, x, y) -> GibbsPosition:
        """Return a teacher's weights and latents, checked; see `starts.informed_position`."""
        return starts.informed_position(self, position, x, y)

    def position_from_weights(self, key, params: PyTree, x, y) -> GibbsPosition:
        """Draw latents given weights; see `starts.position_from_weights`."""
        return starts.position_from_weights(self, key, params, x, y)


def check_one(network: Network, position: GibbsPosition) -> None:
    """Raise unless it is one position of the network; shapes only."""
    check_type("position", position, GibbsPosition, "write model.zero_position(x, y)")
    leaves, wanted = jax.tree.leaves(position.params), jax.tree.leaves(parameter_shapes(network))
    if len(leaves) == len(wanted) and all(
        np.ndim(leaf) > len(expected.shape) for leaf, expected in zip(leaves, wanted, strict=True)
    ):
        raise ValueError(
            f"the position's weights have the shapes {[np.shape(leaf) for leaf in leaves]}, but "
            f"those of one position are {[leaf.shape for leaf in wanted]}; chains go through "
            "jax.vmap."
        )
    check_params(network, position.params)


def _check_rows(rows: int, y: Shaped[Array | np.ndarray, "..."], values: list[Array]) -> None:
    """Raise where one row of targets or latents would be compared with all rows of x."""
    of_y, latent = np.shape(y)[:1], {value.shape[-1] for value in values}
    if of_y != (rows,) or latent - {rows}:
        raise ValueError(
            f"x, y and the latents must have as many rows, but x has {rows}, y has "
            f"{of_y[0] if of_y else 'none'} and the latents have "
            f"{', '.join(map(str, sorted(latent))) or 'none'}; give one target per datum, and the "
            "latents of these data."
        )
