"""What is maximised and what predicts: the ELBO and the predictive of a network, by any method."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, PyTree, Shaped

from jaxbnn.dvi.divergence import EmpiricalBayes, kl_divergence
from jaxbnn.dvi.expected import (
    Expectation,
    expected_log_likelihood,
    mean_over_draws,
)
from jaxbnn.dvi.families import FactorisedNormal, Family, moments_of
from jaxbnn.dvi.learned import Learned, draw_learned, moments_given
from jaxbnn.dvi.moments import GaussianMoments, Rule
from jaxbnn.dvi.monte_carlo import activation_draws, weight_draws
from jaxbnn.dvi.predictive import Density, columns_of, mixture, predictive
from jaxbnn.dvi.propagate import propagate
from jaxbnn.networks import Network, apply, init, output_shape
from jaxbnn.numerics.arrays import as_array, widened
from jaxbnn.numerics.checks import check_positive_number
from jaxbnn.numerics.data import finite_array
from jaxbnn.targets import Likelihood
from jaxbnn.targets.prior_trees import JointPrior

Scalar = Float[Array, ""]
Method = Literal["dvi", "ddvi", "mcvi", "rmcvi"]


class VIInfo(NamedTuple):
    """The ELBO of `deterministic_vi` and its two parts: elbo = expected_log_likelihood - kl.

    With minibatches the expectation is scaled up to all data.

    Attributes
    ----------
    elbo
        In nats.
    expected_log_likelihood
        E_q log p(y | x, w).
    kl
        KL(q || prior), not weighted by a warm-up.
    """

    elbo: Scalar
    expected_log_likelihood: Scalar
    kl: Scalar


@dataclass(frozen=True, eq=False)
class VariationalModel:
    """A network, its likelihood and its prior under a Gaussian q; fields as in `deterministic_vi`.

    The ELBO is E_q log p(y | x, w) - KL(q || prior): `_expected_terms` and `_divergence`.
    """

    network: Network
    likelihood: Likelihood
    prior: PyTree | EmpiricalBayes
    method: Method
    moments: Rule
    num_nodes: int | None
    expectation: Expectation
    num_samples: int
    output_scale: ArrayLike
    output_shift: ArrayLike

    def __post_init__(self) -> None:
        """Refuse a prior that no divergence is known of, or of another shape than the position."""
        if isinstance(self.prior, JointPrior):
            raise ValueError(self.prior.why_refused())
        prior = self._priors()["network"]
        weights = jax.eval_shape(lambda key: init(key, self.network), jax.random.key(0))
        q = FactorisedNormal(weights, weights)
        jax.eval_shape(lambda q: kl_divergence(q, prior), q)

    def elbo(
        self,
        position: PyTree,
        x: Shaped[Array | np.ndarray, "n *input"],
        y: Shaped[Array | np.ndarray, "n *columns"],
        rng_key: PRNGKeyArray | None = None,
        num_data: ArrayLike | None = None,
    ) -> VIInfo:
        """Return the ELBO and its parts at the data; num_data is the number of all of them."""
        self.check(x, y)
        if num_data is not None:
            check_positive_number("num_data", num_data, "give the number of all data")
        x, y = as_array(x), as_array(y)
        terms = self._expected_terms(position, x, y, rng_key)
        scale = 1.0 if num_data is None else jnp.asarray(num_data, terms.dtype) / x.shape[0]
        expected = scale * jnp.sum(widened(terms))
        kl = self._divergence(position)
        return VIInfo(expected - kl, expected, kl)

    def predict(
        self,
        position: PyTree,
        x: Shaped[Array | np.ndarray, "n *input"],
        *,
        rank: int = 1,
        density: Density | None = None,
        rng_key: PRNGKeyArray | None = None,
        num_samples: int = 1000,
        num_nodes: int = 32,
    ) -> dist.Distribution:
        """Return the distribution of the targets at x; see `predictive`."""
        q, learned = self._split(position)
        x = finite_array("x", x)
        if self.method in ("dvi", "ddvi"):
            return predictive(
                self.likelihood,
                self._output_moments(q, x),
                rank,
                density=density,
                noise=learned or None,
                num_nodes=num_nodes,
                rng_key=rng_key,
                num_samples=num_samples,
            )
        if density not in (None, "monte_carlo"):
            raise ValueError(
                f"method {self.method!r} has draws and no moments of the outputs; use "
                "density='monte_carlo', or method='dvi'."
            )
        key_outputs, key_learned = jax.random.split(self._present(rng_key))
        draws = self._affine(weight_draws(key_outputs, self.network, q, x, num_samples))
        learned = moments_given(self.likelihood, learned, columns_of(self.likelihood, draws, rank))
        own = draw_learned(key_learned, learned, num_samples)
        return mixture(self.likelihood, draws, rank, own)

    def apply(self, params: PyTree, x: Shaped[Array | np.ndarray, "n *input"]) -> Array:
        """Return the network's outputs at x, scaled and shifted, (n, ...)."""
        return self._affine(apply(self.network, params, as_array(x)))

    def check(self, x: Shaped[ArrayLike, "..."], y: Shaped[ArrayLike, "..."]) -> None:
        """Raise unless the data fit the network and the likelihood."""
        finite_array("x", x)
        finite_array("y", y)
        if not np.shape(y) or np.shape(x)[:1] != np.shape(y)[:1]:
            raise ValueError(
                f"x and y must have as many rows, but have shapes {np.shape(x)} and {np.shape(y)}; "
                "give one target per datum."
            )
        self.likelihood.check((np.shape(y)[0], *output_shape(self.network)), y)

    def _expected_terms(
        self, position: PyTree, x: Array, y: Array, rng_key: PRNGKeyArray | None
    ) -> Float[Array, " n"]:
        """Return E_q log p(y_i | x_i, w), from moments of the outputs or from draws."""
        q, learned = self._split(position)
        if self.method in ("dvi", "ddvi"):
            return expected_log_likelihood(
                self.likelihood,
                self._output_moments(q, x),
                y,
                noise=learned or None,
                expectation=self.expectation,
                rng_key=rng_key,
                num_samples=self.num_samples,
            )
        key_outputs, key_learned = jax.random.split(self._present(rng_key))
        draw = weight_draws if self.method == "mcvi" else activation_draws
        draws = self._affine(draw(key_outputs, self.network, q, x, self.num_samples))
        return mean_over_draws(key_learned, self.likelihood, draws, y, learned)

    def _divergence(self, position: PyTree) -> Scalar:
        """Return KL(q || prior), of the network and of what the likelihood learns."""
        if not self.likelihood.learned:
            return kl_divergence(position, self.prior)
        parts = [kl_divergence(position[name], prior) for name, prior in self._priors().items()]
        return sum(parts[1:], start=parts[0])

    def _priors(self) -> dict[str, Any]:
        """Return the prior of the network and of each parameter that the likelihood learns."""
        learned = self.likelihood.learned
        if not learned:
            return {"network": self.prior}
        if not isinstance(self.prior, dict) or set(self.prior) != {"network", *learned}:
            own = ", ".join(f'"{name}": distribution' for name in learned)
            raise ValueError(
                f"with {type(self.likelihood).__name__} the prior must be "
                f'{{"network": prior, {own}}}, like the position; give it in that form.'
            )
        return {name: self.prior[name] for name in ("network", *learned)}

    def _split(self, position: PyTree) -> tuple[Family, Learned]:
        """Return q of the network's weights, and moments of what the likelihood learns."""
        learned = self.likelihood.learned
        if not learned:
            return position, {}
        if not isinstance(position, dict) or set(position) != {"network", *learned}:
            own = ", ".join(f'"{name}": q' for name in learned)
            raise ValueError(
                f"with {type(self.likelihood).__name__}, the position is "
                f'{{"network": q, {own}}}; give initial_position a {learned[0]}.'
            )
        return position["network"], {name: moments_of(position[name]) for name in learned}

    def _output_moments(self, q: Family, x: Array) -> GaussianMoments:
        """Return the moments of the outputs as the likelihood sees them."""
        raw = propagate(
            self.network,
            q,
            x,
            covariance="full" if self.method == "dvi" else "diagonal",
            rule=self.moments,
            num_nodes=self.num_nodes,
        )
        scale = _row(self.output_scale, raw.mean)
        assert raw.variance is not None
        matrix = raw.covariance
        if matrix is not None:
            matrix = matrix * scale[:, :, None] * scale[:, None, :]
        return GaussianMoments(self._affine(raw.mean), raw.variance * jnp.square(scale), matrix)

    def _affine(self, values: Array) -> Array:
        return values * _row(self.output_scale, values) + _row(self.output_shift, values)

    def _present(self, rng_key: PRNGKeyArray | None) -> PRNGKeyArray:
        if rng_key is None:
            raise ValueError(f"method {self.method!r} draws, and needs rng_key; give one.")
        return rng_key


def _row(values: ArrayLike, like: Array) -> Array:
    """Return one number an output, or a number, ready to broadcast against outputs."""
    values = jnp.asarray(values, like.dtype)
    return values.reshape(*(1,) * (like.ndim - values.ndim), *values.shape)
