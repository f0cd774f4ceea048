"""Chains with known answers, made with NumPy."""

import numpy as np
from scipy.signal import lfilter


def autoregressive(rng, phi, chains, draws):
    """Stationary AR(1) chains of unit variance: true ESS is draws (1 - phi) / (1 + phi)."""
    noise = rng.normal(size=(chains, draws)) * np.sqrt(1 - phi**2)
    noise[:, 0] /= np.sqrt(1 - phi**2)
    return lfilter([1.0], [1.0, -phi], noise, axis=1)


def assorted(rng, chains, draws):
    """Coordinates of several characters, (chain, draw, 6): the shapes a diagnostic meets."""
    z = [autoregressive(rng, phi, chains, draws) for phi in (0.0, 0.7, 0.95, -0.5)]
    shifted = z[0] + 0.3 * np.arange(chains)[:, None]
    return np.stack([*z, shifted, np.tan(1.5 * np.tanh(z[1]))], axis=2)


def autocovariances(x):
    """Return sums of products at every lag, divided by the length."""
    x = x - x.mean()
    return np.array([x[: len(x) - k] @ x[k:] for k in range(len(x))]) / len(x)
