import arviz
import blackjax.diagnostics
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbnn.diagnostics import autocorrelation, ess_bulk, ess_geyer, ess_tail, ess_tfp
from tests.diagnostics.chains import assorted, autocovariances, autoregressive


def geyer(x):
    """Erratum D7, word for word."""
    gamma, v = autocovariances(x), len(x)
    pairs = [gamma[2 * m] + gamma[2 * m + 1] for m in range(v // 2)]
    total, smallest = 0.0, np.inf
    for m, pair in enumerate(pairs):
        if pair <= 0 and m > 0:
            break
        smallest = min(smallest, pair)
        total += smallest
    return v * x.var(ddof=1) / (2 * total - gamma[0])


def tfp(x):
    """Pezzetti et al., section 4.2, with R normalised by its number of terms."""
    n = len(x)
    r = autocovariances(x) * n / (n - np.arange(n))
    r = r / r[0]
    total = 0.0
    for i in range(1, n):
        if r[i] < 0:
            break
        total += (1 - i / n) * r[i]
    return n / (1 + 2 * total)


@pytest.mark.parametrize(("ours", "definition"), [(ess_geyer, geyer), (ess_tfp, tfp)])
@pytest.mark.parametrize("length", [150, 151])
def test_equals_the_definition(ours, definition, length, rng, x64):
    draws = assorted(rng, 3, length)
    expected = np.apply_along_axis(definition, 1, draws)
    np.testing.assert_allclose(ours(draws), expected, rtol=1e-9)


@pytest.mark.long
def test_printed_values_for_autoregressions(rng):
    # Errata D7 and B9: means of 10 runs, v = 1e5. A run's relative standard deviation is about
    # sqrt(2 (2L + 1) / v) with 2L + 1 lags kept, some six times (1 + phi) / (1 - phi) of them:
    # 1.1, 1.9, 4.8, 15 and 1 per cent; the difference of two such means of ten at five of its
    # standard deviations (a false alarm in 1e6) is 2.2 times that.
    phis = [0.0, 0.5, 0.9, 0.99, -0.5]
    draws = np.stack([autoregressive(rng, phi, 10, 100_000) for phi in phis], axis=2)
    draws = draws.astype(np.float32)
    geyer_mean = np.asarray(ess_geyer(draws), float).mean(axis=0)
    printed = np.array([99_795.0, 32_871.0, 5_246.0, 494.0, 300_593.0])
    tolerance = np.array([0.025, 0.042, 0.11, 0.33, 0.025])
    assert (np.abs(geyer_mean / printed - 1) < tolerance).all(), geyer_mean
    tfp_mean = np.asarray(ess_tfp(draws), float).mean(axis=0)
    assert abs(tfp_mean[2] / 5260 - 1) < 0.11
    assert abs(tfp_mean[4] / 1e5 - 1) < 1e-6  # truncated at the first lag: N exactly


@pytest.mark.parametrize(("ours", "method"), [(ess_bulk, "bulk"), (ess_tail, "tail")])
@pytest.mark.parametrize("length", [300, 301])
def test_equals_arviz(ours, method, length, rng, x64):
    draws = assorted(rng, 4, length)
    expected = [arviz.ess(draws[..., i], method=method) for i in range(draws.shape[2])]
    np.testing.assert_allclose(ours(draws), expected, rtol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("length", [4, 5, 11])
def test_short_chains_equal_arviz(length, rng, x64):
    draws = rng.normal(size=(2, length, 4))
    expected = [arviz.ess(draws[..., i], method="bulk") for i in range(draws.shape[2])]
    np.testing.assert_allclose(ess_bulk(draws), expected, rtol=1e-9)


@pytest.mark.long
@pytest.mark.third_party(reason="BlackJAX's diagnostics mix integers and floats")
def test_equals_blackjax(rng, x64):
    # Without the shifted chains, whose correlations stay positive to the last lag: there
    # BlackJAX keeps a pair more than ArviZ does (2 % less ESS).
    draws = jnp.asarray(assorted(rng, 4, 300)[..., :4])
    theirs = jax.jit(blackjax.diagnostics.ess_bulk)(draws)
    np.testing.assert_allclose(ess_bulk(draws), theirs, rtol=1e-9)


def test_disagreement_is_seen_by_pooled_ess_only(rng):
    # Erratum D7: AR(0.9), v = 5000, in two separated groups: 280 per chain, and 4.8.
    draws = autoregressive(rng, 0.9, 4, 5000)
    apart = draws + np.array([[0.0], [0.0], [20.0], [20.0]])
    together, separated = np.asarray(ess_bulk(np.stack([draws, apart], axis=2)))
    assert 800 < together < 1400
    assert separated < 8
    np.testing.assert_allclose(ess_geyer(draws), ess_geyer(apart), rtol=1e-3)
    assert abs(np.mean(ess_geyer(draws)) / 280 - 1) < 0.35


def test_constant_chain_is_nan_and_its_neighbours_are_not(rng):
    draws = rng.normal(size=(3, 50)).astype(np.float32)
    draws[1] = 0.1
    for ess in (ess_geyer, ess_tfp):
        assert np.isnan(ess(draws)).tolist() == [False, True, False]
    assert np.isnan(autocorrelation(draws, 3)).any(axis=1).tolist() == [False, True, False]


@pytest.mark.parametrize("ess", [ess_bulk, ess_tail])
def test_equal_draws_have_no_ess(ess):
    assert np.isnan(ess(np.full((3, 50), 0.1, np.float32)))


def test_chains_frozen_apart_count_once_each():
    draws = np.array([[0.0], [0.3], [1.0]], np.float32) + np.zeros((1, 50), np.float32)
    assert abs(float(ess_bulk(draws)) - 3) < 0.5


def test_tail_with_most_draws_equal_looks_at_the_other_tail(rng):
    draws = np.maximum(rng.normal(size=(4, 500)) - 1.0, 0)
    assert 1000 < float(ess_tail(draws)) < 4000
    assert 1000 < float(ess_tail(-draws)) < 4000


def test_an_alternating_chain_has_no_finite_ess():
    assert np.isposinf(ess_geyer(np.tile([1.0, -1.0], (2, 64)))).all()


@pytest.mark.parametrize("probability", [0.0, 1.0, 1.5])
def test_tail_probability_is_checked(probability):
    with pytest.raises(ValueError, match="between 0 and 1"):
        ess_tail(np.zeros((2, 10)), probability)
