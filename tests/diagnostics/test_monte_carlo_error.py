import arviz
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jaxbnn.diagnostics import mcse
from jaxbnn.diagnostics.monte_carlo_error import _beta_quantile
from tests.diagnostics.chains import assorted, autoregressive


@pytest.mark.parametrize("of", ["mean", "sd"])
def test_equals_arviz(of, rng, x64):
    draws = assorted(rng, 4, 301)
    expected = [arviz.mcse(draws[..., i], method=of) for i in range(draws.shape[2])]
    np.testing.assert_allclose(mcse(draws, of), expected, rtol=1e-8)


def exact_quantile(a, b, y):
    """The Beta quantile: an approximate one may choose a neighbouring order statistic."""
    shape = jax.ShapeDtypeStruct(a.shape, a.dtype)
    level = scipy.stats.norm.sf(y)

    def on_host(a, b):
        return scipy.stats.beta.ppf(level, np.asarray(a), np.asarray(b))

    return jax.pure_callback(on_host, shape, a, b, vmap_method="expand_dims")


@pytest.mark.parametrize(
    "probability", [0.05, *(pytest.param(p, marks=pytest.mark.long) for p in (0.5, 0.9))]
)
def test_quantile_equals_arviz(probability, rng, x64, monkeypatch):
    monkeypatch.setattr("jaxbnn.diagnostics.monte_carlo_error._beta_quantile", exact_quantile)
    # Of a size that no other test has, whose program would be taken.
    draws = assorted(rng, 4, 502)
    expected = [
        arviz.mcse(draws[..., i], method="quantile", prob=probability)
        for i in range(draws.shape[2])
    ]
    np.testing.assert_allclose(mcse(draws, "quantile", probability), expected, rtol=1e-9)


def test_mean_error_is_the_spread_of_means(rng):
    # 400 independent runs of one AR(0.7) chain: the standard deviation of their means is known to
    # 3.5 %, the average estimate to less; 4.9 standard errors and 5 % bias.
    draws = autoregressive(rng, 0.7, 400, 1000)
    estimate = np.mean(mcse(draws.T[None]))
    assert abs(estimate / draws.mean(axis=1).std(ddof=1) - 1) < 0.22


@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_beta_quantile(y):
    size, p = np.meshgrid([1.5, 10, 100, 1e3, 1e4, 1e6], [0.01, 0.05, 0.5, 0.9])
    a, b = (size * p + 1).ravel(), (size * (1 - p) + 1).ravel()
    ours = jax.vmap(lambda a, b: _beta_quantile(a, b, y))(
        jnp.asarray(a, jnp.float32), jnp.asarray(b, jnp.float32)
    )
    exact = scipy.stats.beta.ppf(scipy.stats.norm.sf(y), a, b)
    assert np.max(np.abs(ours - exact) / scipy.stats.beta.std(a, b)) < 0.01


def test_equal_draws_are_nan():
    draws = np.ones((2, 20))
    for arguments in [("mean",), ("sd",), ("quantile", 0.3)]:
        assert np.isnan(mcse(draws, *arguments))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("median",), "of must be 'mean', 'sd' or 'quantile', but is 'median'"),
        (("quantile",), "needs its probability"),
        (("quantile", 1.0), "needs its probability"),
        (("mean", 0.5), "takes no probability"),
    ],
)
def test_arguments_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        mcse(np.zeros((2, 20)), *arguments)
