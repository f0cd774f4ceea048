"""Noise with heavier tails than Gaussian: Student-t and Laplace."""

import dataclasses
import math
from collections.abc import Mapping
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, ArrayLike, Float

from jaxbnn.targets.likelihoods import Outputs, Targets, Terms, lay_out, per_datum
from jaxbnn.targets.own_parameters import FARTHEST_COUNT, PositiveNumbers
from jaxbnn.targets.rounding import warn_of_rounded_targets

# Of scales from the location, from where on the square overflows.
_FAR = 1e18


@dataclasses.dataclass(frozen=True)
class StudentT(PositiveNumbers):
    """Student-t noise: y = f(x) + scale t, t with these degrees of freedom, any number of columns.

    Parameters
    ----------
    degrees, scale
        Positive numbers, leaves that may be traced; None, the default, learns log_degrees and
        log_noise_scale, and the position is {"network": params, "log_degrees": ..., ...}. A prior
        on a logarithm is a density in the logarithm: `LogGamma(2.0, 0.1)` on log_degrees is
        Gamma(2, 0.1) on the degrees (Juarez and Steel 2010).

    Raises
    ------
    ValueError
        If a number is not positive; `Posterior`, if the prior of one that is learnt is not of one
        number.

    Warns
    -----
    UserWarning
        A `Posterior` of targets that are large beside their noise, as `Gaussian`; or where the
        scale is learnt, as `LearnedGaussian`.

    Examples
    --------
    >>> terms = StudentT(4.0, 0.5).log_prob(jnp.zeros((2, 1)), jnp.array([0.0, 10.0]))
    >>> [round(float(term), 2) for term in terms]
    [-0.29, -11.83]
    """

    degrees: ArrayLike | None = None
    scale: ArrayLike | None = None
    logarithms: ClassVar[Mapping[str, str]] = {
        "degrees": "log_degrees",
        "scale": "log_noise_scale",
    }
    farthest: ClassVar[Mapping[str, float]] = {"degrees": FARTHEST_COUNT}

    def log_prob(self, outputs: Outputs, y: Targets) -> Terms:
        """Return one log-likelihood term a datum."""
        outputs = lay_out(outputs, y.ndim)
        degrees, scale = self.known(outputs.dtype)
        residuals = y.astype(outputs.dtype) - outputs
        distances = jnp.abs(residuals)
        is_far = distances > _FAR * scale * jnp.sqrt(jnp.minimum(degrees, 1))
        squares = jnp.square(_ratio(jnp.where(is_far, 0, residuals), scale))
        # Far out a square is beyond the numbers of float32, its logarithm is not.
        logarithms = jnp.log(jnp.where(is_far, distances, 1)) - jnp.log(scale)
        far_tail = 2 * logarithms - jnp.log(degrees)
        tail = jnp.where(is_far, far_tail, jnp.log1p(squares / degrees))
        height = log_gamma_step(degrees / 2) - 0.5 * jnp.log(math.pi * degrees) - jnp.log(scale)
        return per_datum(height - 0.5 * (degrees + 1) * tail)

    def predictive(self, outputs: Outputs, rank: int) -> dist.Distribution:
        """Return the Student-t distribution about the outputs."""
        outputs = lay_out(outputs, rank)
        degrees, scale = self.known(outputs.dtype)
        law = dist.StudentT(
            *(jnp.broadcast_to(v, outputs.shape) for v in (degrees, outputs, scale))
        )
        return law.to_event(rank - 1)

    def check(self, outputs: tuple[int, ...], y: ArrayLike) -> None:
        """Raise ValueError unless the widths agree."""
        super().check(outputs, y)
        warn_of_rounded_targets(y, self.scale)


@dataclasses.dataclass(frozen=True)
class Laplace(PositiveNumbers):
    """Laplace noise: p(y) = exp(-|y - f(x)| / scale) / (2 scale), any number of columns.

    Parameters
    ----------
    scale
        A positive number, a leaf that may be traced; None, the default, learns log_noise_scale.

    Raises
    ------
    ValueError
        If the scale is not positive; `Posterior`, if its prior is not of one number.

    Warns
    -----
    UserWarning
        As `StudentT`.

    Examples
    --------
    >>> terms = Laplace(0.5).log_prob(jnp.zeros((2, 1)), jnp.array([0.0, 10.0]))
    >>> [abs(float(term)) for term in terms]
    [0.0, 20.0]
    """

    scale: ArrayLike | None = None
    logarithms: ClassVar[Mapping[str, str]] = {"scale": "log_noise_scale"}

    def log_prob(self, outputs: Outputs, y: Targets) -> Terms:
        """Return one log-likelihood term a datum."""
        outputs = lay_out(outputs, y.ndim)
        (scale,) = self.known(outputs.dtype)
        distances = _ratio(jnp.abs(y.astype(outputs.dtype) - outputs), scale)
        return per_datum(-distances - jnp.log(2 * scale))

    def predictive(self, outputs: Outputs, rank: int) -> dist.Distribution:
        """Return the Laplace distribution about the outputs."""
        outputs = lay_out(outputs, rank)
        (scale,) = self.known(outputs.dtype)
        return dist.Laplace(outputs, jnp.broadcast_to(scale, outputs.shape)).to_event(rank - 1)

    def check(self, outputs: tuple[int, ...], y: ArrayLike) -> None:
        """Raise ValueError unless the widths agree."""
        super().check(outputs, y)
        warn_of_rounded_targets(y, self.scale)


@jax.custom_jvp
def _ratio(values: Float[Array, "..."], scale: Float[Array, ""]) -> Float[Array, "..."]:
    """Return values / scale; its derivative has no scale^-2, which is beyond float32 at 1e-20."""
    return values / scale


@_ratio.defjvp
def _ratio_jvp(primals, tangents):
    (values, scale), (change, of_scale) = primals, tangents
    ratio = _ratio(values, scale)
    return ratio, change / scale - ratio * (of_scale / scale)


def log_gamma_step(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return log(Gamma(x + 1/2) / Gamma(x)), x > 0, without the difference of large logarithms.

    From 10 on by its expansion, log(x) / 2 - 1 / (8 x) + 1 / (192 x^3) - 1 / (640 x^5) + ...

    Examples
    --------
    >>> round(float(log_gamma_step(jnp.array(1e6))), 4)  # float32; log(1e6) / 2 - 1.25e-7
    6.9078
    """
    far = jnp.maximum(x, 10.0)
    series = 0.5 * jnp.log(far) - (1 / 8 - (1 / 192 - 1 / (640 * far**2)) / far**2) / far
    near = jnp.minimum(x, 10.0)
    exact = jax.scipy.special.gammaln(near + 0.5) - jax.scipy.special.gammaln(near)
    return jnp.where(x < 10, exact, series)
