"""Figure 2: the second moments of two activations, the asymptote, and table 1's correction."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from pydantic import Field

from experiments.studies.deterministic_vi import pictures
from experiments.study import Context, Row, Settings
from jaxbnn import dvi


class MomentsSettings(Settings):
    """The grid of means, the correlation of the picture, and those of the table of errors."""

    mu_low: float = -6.0
    mu_high: float = 6.0
    num_points: int = Field(ge=2)
    rho: float = Field(0.5, gt=-1, lt=1)
    correlations: tuple[float, ...]
    num_nodes: int = Field(16, ge=2)


def run_moments(settings: MomentsSettings, context: Context) -> list[Row]:
    """Compare the approximation of table 1 (as corrected) with exact moments on a grid."""

    def compute() -> dict[str, np.ndarray]:
        grid = np.linspace(settings.mu_low, settings.mu_high, settings.num_points)
        found = {"mu": grid}
        for name in ("heaviside", "relu"):
            one, two = (jnp.asarray(v, jnp.float32).ravel() for v in np.meshgrid(grid, grid))
            for rho in dict.fromkeys((settings.rho, *settings.correlations)):
                exact = _covariance(name, one, two, rho, "exact", settings.num_nodes)
                error = _covariance(name, one, two, rho, "asymptotic", None) - exact
                found[f"largest_{name}_{rho:g}"] = np.abs(error).max()
                if rho == settings.rho:
                    square = (settings.num_points, settings.num_points)
                    mean = _means(name, one) * _means(name, two)
                    asymptote = rho * np.asarray(norm.cdf(one) * norm.cdf(two))
                    residual = exact - (asymptote if name == "relu" else 0)
                    found[f"product_{name}"] = (exact + mean).reshape(square)
                    found[f"residual_{name}"] = residual.reshape(square)
                    found[f"error_{name}"] = error.reshape(square)
        return found

    found = context.stage("moments", compute)
    context.save_figure("figure_2", pictures.moments_figure(found, settings.rho))
    rows = []
    for name in ("heaviside", "relu"):
        setting = f"{name}, rho = {settings.rho:g}"
        for quantity in ("product", "residual"):
            value = float(np.abs(found[f"{quantity}_{name}"]).max())
            rows.append(Row(f"largest_{quantity}", setting, value, 0.0))
        for rho in dict.fromkeys((settings.rho, *settings.correlations)):
            value = float(found[f"largest_{name}_{rho:g}"])
            rows.append(Row("largest_error_of_table_1", f"{name}, rho = {rho:g}", value, 0.0))
    return rows


def _covariance(name, one, two, rho, rule, num_nodes) -> np.ndarray:
    """Return Cov(f(a1), f(a2)) for unit variances."""
    matrix = jnp.array([[1, rho], [rho, 1]], jnp.float32)
    inputs = dvi.GaussianMoments(
        jnp.stack([one, two], axis=1),
        jnp.ones((len(one), 2), jnp.float32),
        jnp.broadcast_to(matrix, (len(one), 2, 2)),
    )
    moments = jax.jit(
        lambda inputs: dvi.activation_moments(name, inputs, rule=rule, num_nodes=num_nodes)[0]
    )(inputs)
    return np.asarray(moments.covariance[:, 0, 1], np.float64)


def _means(name, mu) -> np.ndarray:
    mu = np.asarray(mu, np.float64)
    cdf = np.asarray(norm.cdf(mu))
    if name == "heaviside":
        return cdf
    return np.exp(-0.5 * mu**2) / math.sqrt(2 * math.pi) + mu * cdf
