"""Data sets in which the covariances agree, or do not by a known amount, and what is found."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from scipy.signal import lfilter
from scipy.special import log_ndtr

from jaxbnn.diagnostics import covariance_agreement

MODES = ("chains", "matrix", "draws")
_BATCH = 25


class Law(NamedTuple):
    """Independent coordinates of variance 1: standard normal AR(1) chains, each number mapped.

    Attributes
    ----------
    autoregression
        phi of the underlying AR(1) chains.
    transform
        Maps standard normal numbers to standardised draws.
    """

    autoregression: float
    transform: Callable = lambda z: z

    def draw(self, rng, shape):
        """Return draws (..., draw, coordinate), stationary from the start."""
        phi = self.autoregression
        noise = rng.standard_normal(shape, dtype=np.float32)
        if phi:
            noise[..., 0, :] /= np.sqrt(1 - phi**2)
            noise = np.sqrt(1 - phi**2) * lfilter([1.0], [1.0, -phi], noise, axis=-2)
        return self.transform(noise)


def _skewed(z):
    """Exponential: skewness 2, kurtosis 9."""
    return -log_ndtr(-z) - 1


def _heavy(z):
    """sinh(z / 2), standardised: kurtosis 7."""
    return np.sinh(z / 2) / np.sqrt((np.exp(0.5) - 1) / 2)


def _very_heavy(z):
    """sinh(z), standardised: kurtosis 40."""
    return np.sinh(z) / np.sqrt((np.exp(2.0) - 1) / 2)


NORMAL = {"independent": Law(0.0), "AR(1), 0.5": Law(0.5), "AR(1), 0.9": Law(0.9)}
OTHERS = {
    "exponential": Law(0.0, _skewed),
    "exponential, AR(1), 0.9": Law(0.9, _skewed),
    "heavy tails, kurtosis 7": Law(0.0, _heavy),
    "heavy tails, kurtosis 7, AR(1), 0.9": Law(0.9, _heavy),
    "heavy tails, kurtosis 40": Law(0.0, _very_heavy),
}


def same(x):
    """Nothing wrong."""
    return x


def one_scale(x, factor=1.2):
    """One standard deviation of the first chain wrong."""
    x[:, 0, :, 0] *= factor
    return x


def one_correlation(x, rho=0.3):
    """Two coordinates of the first chain correlated, all variances right."""
    x[:, 0, :, 1] = rho * x[:, 0, :, 0] + np.sqrt(1 - rho**2) * x[:, 0, :, 1]
    return x


def one_direction(x, factor=1.5):
    """The scale of one direction of the first chain wrong, each coordinate having a share."""
    along = x[:, 0].mean(axis=-1, keepdims=True)
    x[:, 0] += (factor - 1) * along
    return x


def all_scales(x, factor=1.05):
    """Every standard deviation of the first chain wrong."""
    x[:, 0] *= factor
    return x


CHANGES = {
    "one standard deviation 1.2 times too large": one_scale,
    "one correlation of 0.3, variances right": one_correlation,
    "one direction 1.5 times too wide": one_direction,
    "all standard deviations 1.05 times too large": all_scales,
}


def p_values(rng, law, shape, mode, runs, change=same, reference=None):
    """P-values of `runs` data sets; NaN where the test refuses.

    Parameters
    ----------
    shape
        (chain, draw, coordinate) of one data set.
    mode
        "chains", "matrix" or "draws".
    change
        Makes the first chain wrong.
    reference
        Law and shape of the reference's draws in mode "draws"; as the chains' if None.
    """
    dim = shape[2]
    # Dependent coordinates of unequal scales: the truth is not the identity.
    mix = (np.eye(dim) + 0.5 * np.eye(dim, k=1)) * np.linspace(0.5, 2, dim)
    found = []
    for start in range(0, runs, _BATCH):
        # Batches of one size: one program.
        draws = change(law.draw(rng, (_BATCH, *shape))) @ mix
        if mode == "draws":
            other, other_shape = reference or (law, shape)
            found.append(_judge(draws, other.draw(rng, (_BATCH, *other_shape)) @ mix))
        else:
            found.append(_judge(draws, None if mode == "chains" else mix.T @ mix))
        found[-1] = np.asarray(found[-1])[: runs - start]
    return np.concatenate(found)


def _judge(draws, reference):
    draws = draws.astype(np.float32)
    if reference is None or reference.ndim == 2:
        fixed = None if reference is None else reference.astype(np.float32)
        return _map(draws, fixed)
    return _map_pairs(draws, reference.astype(np.float32))


@jax.jit
def _map(draws, reference):
    return jax.lax.map(lambda one: covariance_agreement(one, reference).p_value, draws)


@jax.jit
def _map_pairs(draws, others):
    return jax.lax.map(lambda both: covariance_agreement(*both).p_value, (draws, others))
