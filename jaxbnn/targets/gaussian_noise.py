"""Gaussian noise: of known scale, of a scale that is learned, and with scales from the network."""

import abc
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, ArrayLike, Float

from jaxbnn.numerics import check_positive
from jaxbnn.targets.likelihoods import (
    Likelihood,
    Outputs,
    Targets,
    Terms,
    lay_out,
    make_unchecked,
    per_datum,
)
from jaxbnn.targets.own_parameters import within
from jaxbnn.targets.rounding import warn_of_rounded_targets

_HALF_LOG_2_PI = 0.5 * math.log(2 * math.pi)
# The exponential of more is beyond float32.
_FARTHEST = 88.0


@dataclasses.dataclass(frozen=True)
class Gaussian(Likelihood):
    """Gaussian noise of known scale: y = f(x) + noise_scale * xi, any number of columns.

    Parameters
    ----------
    noise_scale
        Standard deviation: a number, or one per output column. A leaf; may be traced.

    Raises
    ------
    ValueError
        If the noise scale is not positive.

    Warns
    -----
    UserWarning
        A `Posterior` of targets whose rounding alone moves differences of the log likelihood by
        more than a tenth of a nat: large targets with little noise. Standardise them.

    Examples
    --------
    >>> terms = Gaussian(0.5).log_prob(jnp.zeros((2, 1)), jnp.zeros((2, 1)))
    >>> [round(float(term), 4) for term in terms]
    [-0.2258, -0.2258]
    """

    noise_scale: ArrayLike
    has_gauss_newton_form: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the scale."""
        check_positive("noise_scale", self.noise_scale)

    def log_prob(self, outputs: Outputs, y: Targets) -> Terms:
        """Return one log-likelihood term a datum."""
        outputs = lay_out(outputs, y.ndim)
        scale = _scale_like(self.noise_scale, outputs)
        columns = math.prod(outputs.shape[1:])
        log_scales = jnp.sum(jnp.log(scale)) * (columns / scale.size)
        squares = per_datum(jnp.square((y.astype(outputs.dtype) - outputs) / scale))
        return -0.5 * squares - (log_scales + columns * _HALF_LOG_2_PI)

    def predictive(self, outputs: Outputs, rank: int) -> dist.Distribution:
        """Return N(outputs, noise_scale^2)."""
        outputs = lay_out(outputs, rank)
        return dist.Normal(outputs, _scale_like(self.noise_scale, outputs)).to_event(rank - 1)

    def check(self, outputs: tuple[int, ...], y: ArrayLike) -> None:
        """Raise ValueError unless the widths agree, and the scales are one or one a column."""
        super().check(outputs, y)
        columns = np.shape(y)[1:] or (1,)
        if np.ndim(self.noise_scale) and np.shape(self.noise_scale) != columns:
            raise ValueError(
                f"noise_scale has shape {np.shape(self.noise_scale)}, but y has columns of shape "
                f"{columns}; give one number, or one per column."
            )
        warn_of_rounded_targets(y, self.noise_scale)


@dataclasses.dataclass(frozen=True)
class LearnedGaussian(Likelihood):
    """Gaussian noise whose scale is a parameter: y = f(x) + exp(log_noise_scale) * xi.

    The position is {"network": params, "log_noise_scale": scalar}, and the prior the same dict:
    a prior on log_noise_scale is a density in the logarithm, so no Jacobian is added. It may also
    have the shape of a row of y: a scale for each column.

    Warns
    -----
    UserWarning
        A `Posterior` of targets whose rounding hides noise of a hundredth of their standard
        deviation. Standardise them.

    Examples
    --------
    >>> LearnedGaussian().learned
    ('log_noise_scale',)
    >>> float(LearnedGaussian().given({"log_noise_scale": jnp.array(0.0)}).noise_scale)
    1.0
    """

    learned: ClassVar[tuple[str, ...]] = ("log_noise_scale",)

    def given(self, parameters: Mapping[str, Array]) -> Gaussian:
        """Return the likelihood with this noise scale; its logarithm counts up to 87 from 0."""
        return make_unchecked(Gaussian, noise_scale=jnp.exp(within(parameters["log_noise_scale"])))

    def learned_shapes(self, columns: tuple[int, ...]) -> Mapping[str, Sequence[tuple[int, ...]]]:
        """Return that it is one number, or one a column."""
        return {"log_noise_scale": ((), columns or (1,))}

    def check(self, outputs: tuple[int, ...], y: ArrayLike) -> None:
        """Raise ValueError unless the widths agree."""
        super().check(outputs, y)
        warn_of_rounded_targets(y, None)

    def log_prob(self, outputs: Outputs, y: Targets) -> Terms:
        """Raise ValueError: the scale is not known."""
        raise ValueError("LearnedGaussian has a noise scale to learn; take likelihood.given(...).")

    def predictive(self, outputs: Outputs, rank: int) -> dist.Distribution:
        """Raise ValueError: the scale is not known."""
        raise ValueError("LearnedGaussian has a noise scale to learn; take likelihood.given(...).")


class NoiseFromOutputs(Likelihood):
    """Gaussian noise from the network: outputs (n, 2k) are k means, then k numbers l.

    Subclasses say what variance l stands for.

    Warns
    -----
    UserWarning
        As `LearnedGaussian`.

    Examples
    --------
    >>> outputs = jnp.zeros((1, 2))
    >>> HeteroscedasticGaussian().predictive(outputs, 1).variance.tolist()
    [1.0]
    """

    outputs_per_column: ClassVar[int | None] = 2

    @abc.abstractmethod
    def variance(self, raw: Float[Array, "..."]) -> Float[Array, "..."]:
        """Return the noise variances of values l."""

    def log_prob(self, outputs: Outputs, y: Targets) -> Terms:
        """Return one log-likelihood term a datum."""
        return self.predictive(outputs, y.ndim).log_prob(y.astype(outputs.dtype))

    def predictive(self, outputs: Outputs, rank: int) -> dist.Distribution:
        """Return N(means, variances)."""
        mean, raw = (lay_out(half, rank) for half in jnp.split(outputs, 2, axis=-1))
        variance = self.variance(raw)
        check_positive("a noise variance from the outputs", variance, "scale the inputs")
        return dist.Normal(mean, jnp.sqrt(variance)).to_event(rank - 1)

    def check(self, outputs: tuple[int, ...], y: ArrayLike) -> None:
        """Raise ValueError unless there are two outputs for each column of y."""
        super().check(outputs, y)
        warn_of_rounded_targets(y, None)


@dataclasses.dataclass(frozen=True)
class HeteroscedasticGaussian(NoiseFromOutputs):
    """Gaussian noise from the network: outputs (n, 2k) are k means, then k log variances.

    Examples
    --------
    >>> likelihood = HeteroscedasticGaussian()
    >>> outputs = jnp.array([[1.0, 0.0]])
    >>> round(float(likelihood.log_prob(outputs, jnp.array([[1.0]]))[0]), 4)
    -0.9189
    """

    def variance(self, raw: Float[Array, "..."]) -> Float[Array, "..."]:
        """Return exp(l)."""
        return jnp.exp(raw)

    def log_prob(self, outputs: Outputs, y: Targets) -> Terms:
        """Return one log-likelihood term a datum; of l far out no exponential and its logarithm."""
        mean, log_variance = (lay_out(half, y.ndim) for half in jnp.split(outputs, 2, axis=-1))
        squares = jnp.square(y.astype(mean.dtype) - mean) * _exp(-log_variance)
        return -0.5 * per_datum(squares + log_variance + 2 * _HALF_LOG_2_PI)

    def predictive(self, outputs: Outputs, rank: int) -> dist.Distribution:
        """Return N(means, exp(l)); e^(l/2) is within float32 for twice as long as e^l."""
        mean, log_variance = (lay_out(half, rank) for half in jnp.split(outputs, 2, axis=-1))
        return dist.Normal(mean, jnp.exp(0.5 * log_variance)).to_event(rank - 1)


@dataclasses.dataclass(frozen=True)
class SoftplusScaleGaussian(NoiseFromOutputs):
    """Gaussian noise from the network: outputs (n, 2k) are k means, then k values l.

    The standard deviations are softplus(l) + floor. Deep ensembles and microcanonical samplers of
    networks are most often trained and compared so; `dvi.SoftplusGaussian` has variances
    softplus(l) instead.

    Parameters
    ----------
    floor
        The least standard deviation, a positive number, in the units of y. A leaf; may be traced.

    Raises
    ------
    ValueError
        If the floor is not one positive number.

    Notes
    -----
    Lakshminarayanan, Pritzel, Blundell (2017), section 2.2.1, let the variance be softplus(l) +
    1e-6; Sommer et al. (2025) take the standard deviation, as here.

    Examples
    --------
    >>> likelihood = SoftplusScaleGaussian()
    >>> outputs = jnp.array([[1.0, 0.0]])  # scale log 2 + 1e-6
    >>> round(float(likelihood.log_prob(outputs, jnp.array([[1.0]]))[0]), 4)
    -0.5524
    """

    floor: ArrayLike = 1e-6

    def __post_init__(self) -> None:
        """Check the floor."""
        check_floor(self.floor)

    def scale(self, raw: Float[Array, "..."]) -> Float[Array, "..."]:
        """Return softplus(l) + floor."""
        return jax.nn.softplus(raw) + jnp.asarray(self.floor, raw.dtype)

    def variance(self, raw: Float[Array, "..."]) -> Float[Array, "..."]:
        """Return (softplus(l) + floor)^2."""
        return jnp.square(self.scale(raw))

    def log_prob(self, outputs: Outputs, y: Targets) -> Terms:
        """Return one log-likelihood term a datum."""
        mean, raw = (lay_out(half, y.ndim) for half in jnp.split(outputs, 2, axis=-1))
        scale = self.scale(raw)
        # The quotient is squared, not the scale: the square of a small floor underflows in float32.
        squares = jnp.square((y.astype(mean.dtype) - mean) / scale)
        return -per_datum(0.5 * squares + jnp.log(scale) + _HALF_LOG_2_PI)

    def predictive(self, outputs: Outputs, rank: int) -> dist.Distribution:
        """Return N(means, (softplus(l) + floor)^2)."""
        mean, raw = (lay_out(half, rank) for half in jnp.split(outputs, 2, axis=-1))
        return dist.Normal(mean, self.scale(raw)).to_event(rank - 1)


@jax.custom_jvp
def _exp(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return e^x, or e^88: of infinity times a residual that is zero there is no number."""
    return jnp.exp(jnp.minimum(x, _FARTHEST))


@_exp.defjvp
def _exp_jvp(primals, tangents):
    # The exponential's own, to the last digit.
    found = _exp(*primals)
    return found, tangents[0] * found


def check_floor(floor: ArrayLike) -> None:
    """Raise ValueError unless a floor of the noise is one positive number."""
    check_positive("floor", floor)
    if jnp.ndim(floor):
        raise ValueError(f"floor must be one number, but has shape {jnp.shape(floor)}.")


def _scale_like(scale: ArrayLike, outputs: Array) -> Array:
    """Return the scale as a scalar, or with the outputs' rank, in their dtype."""
    scale = jnp.asarray(scale, outputs.dtype)
    return scale if scale.ndim == 0 else jnp.expand_dims(scale, range(outputs.ndim - scale.ndim))
