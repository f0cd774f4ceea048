"""Expected log likelihoods at large variances, and Gauss-Newton matrices that are none."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy import integrate

import jaxbnn
from jaxbnn import dvi
from jaxbnn.networks import init, mlp

# Renamed since.
_MOMENTS = getattr(dvi, "GaussianMoments", None) or dvi.Moments

TITLE = (
    "Expected log likelihoods of labels, Gauss-Newton matrices, and a distribution as likelihood"
)


def measure():
    """Compare with adaptive quadrature; ask for the smallest diagonal of each matrix."""
    rows = [
        (f"error of E log sigmoid at variance {variance:g}", f"{_error(variance):+.1e}")
        for variance in (1e-6, 1.0, 100.0, 1e4, 1e6)
    ]
    exponential, normal = _likelihood("HeteroscedasticGaussian")(), dist.Normal(0.0, 1.0)
    for name, likelihood, prior in (
        ("heteroscedastic_gaussian", exponential, normal),
        ("softplus_gaussian", _likelihood("SoftplusGaussian")(), normal),
        ("gaussian, prior Cauchy(0, 0.07)", _likelihood("Gaussian")(1.0), dist.Cauchy(0.0, 0.07)),
    ):
        told = _told(lambda li=likelihood, p=prior: _smallest(li, p))
        rows.append((f"smallest eigenvalue of gauss_newton_metric, {name}", told))
    student = _told(lambda: _posterior(dist.StudentT(4.0), normal) and "a posterior")
    rows.append(("Posterior with dist.StudentT(4.0) as its likelihood", student))
    function = _told(lambda: _of_a_function() and "an algorithm")
    return [*rows, ("deterministic_vi of a function", function)]


def _told(function):
    try:
        return function()
    except (ValueError, TypeError) as error:
        return f"refused: {error}"
    except Exception as error:
        return f"failed: {type(error).__name__}"


def _error(variance):
    logits = _MOMENTS(jnp.zeros((1, 1)), jnp.full((1, 1), variance))
    found = dvi.expected_log_likelihood(_likelihood("Bernoulli")(), logits, jnp.array([1]))[0]
    s = np.sqrt(variance)

    def integrand(u):
        return -np.logaddexp(0, -s * u) * np.exp(-(u**2) / 2) / np.sqrt(2 * np.pi)

    cuts = sorted({c for z in (0, 1, 3, 10, 40) for c in (-z / s, z / s) if abs(c) < 12})
    parts = [
        integrate.quad(integrand, a, b)[0] for a, b in zip([-12, *cuts], [*cuts, 12], strict=True)
    ]
    return float(found) - sum(parts)


def _posterior(likelihood, prior):
    network = mlp((1, 2))
    is_gaussian = any(getattr(likelihood, name, None) for name in ("parameter", "noise_scale"))
    y = jnp.zeros((2, 2)) if is_gaussian else jnp.array([10.0, 10.0])
    return jaxbnn.Posterior(network, prior, likelihood, jnp.array([[1.0], [2.0]]), y)


def _smallest(likelihood, prior):
    posterior = _posterior(likelihood, prior)
    params = init(jax.random.key(0), posterior.network)
    matrix = jaxbnn.gauss_newton_metric(posterior)(params)
    return f"{np.linalg.eigvalsh(matrix).min():.1f}"


def _of_a_function():
    return dvi.deterministic_vi(lambda p, x: x, _likelihood("Gaussian")(1.0), dvi.empirical_bayes())


def _likelihood(name):
    """Return a likelihood's class, or the function of that name that came before it."""
    older = "".join(f"_{c.lower()}" if c.isupper() else c for c in name)[1:]
    rooms = (jaxbnn, dvi)
    return next(getattr(r, n) for n in (name, older) for r in rooms if hasattr(r, n))
