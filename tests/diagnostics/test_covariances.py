"""Agreement of covariances: the definition, the null, and the chains that must be caught."""

import jax
import numpy as np
import pytest
from scipy import linalg, stats

from jaxbnn.diagnostics import covariance_agreement, covariance_distance
from tests.diagnostics.chains import autoregressive

MIX = np.array([[1.0, 0.5, 0.0], [0.0, 2.0, -0.3], [0.0, 0.0, 0.5]])


def blocks_of(draws, num_blocks, metric):
    """Whitened second moments of each block, by NumPy, (chain, block, p, p)."""
    chains, length, dim = draws.shape
    kept = draws[:, length - length // num_blocks * num_blocks :]
    centred = kept - kept.mean(axis=1, keepdims=True)
    root = np.linalg.inv(linalg.sqrtm(metric(centred)).real)
    white = (centred @ root).reshape(chains, num_blocks, -1, dim)
    return np.einsum("cbli,cblj->cbij", white, white) / white.shape[2]


def mean_covariance(centred):
    return np.einsum("cli,clj->ij", centred, centred) / centred.shape[0] / centred.shape[1]


def f_test(ratio, rest, numerator, denominator):
    """P-value of the ratio with Satterthwaite's degrees of freedom."""
    covariance = np.cov(rest.T)
    components = np.trace(covariance) ** 2 / np.trace(covariance @ covariance)
    return stats.f.sf(ratio, numerator * components, denominator * components)


def test_between_chains_equals_the_definition(rng, x64):
    draws = rng.normal(size=(3, 83, 3)) @ MIX * np.array([1.0, 1.3, 0.9])[:, None, None]
    found = covariance_agreement(draws.reshape(3, 83, 3, 1), num_blocks=4)
    blocks = blocks_of(draws, 4, mean_covariance)
    per_chain = blocks.mean(axis=1)
    rest = (blocks - per_chain[:, None]).reshape(12, 9)
    noise = (rest**2).sum() / 9
    ratio = 4 * ((per_chain - per_chain.mean(axis=0)) ** 2).sum() / 2 / noise
    np.testing.assert_allclose(found.ratio, ratio, rtol=1e-9)
    np.testing.assert_allclose(found.p_value, f_test(ratio, rest, 2, 9), rtol=1e-6)
    np.testing.assert_allclose(found.null_distance, np.sqrt(noise / 2), rtol=1e-9)
    for i in range(3):
        for j in range(3):
            values = linalg.eigvalsh(per_chain[i], per_chain[j])
            expected = np.sqrt((np.log(values) ** 2).sum())
            np.testing.assert_allclose(found.distances[i, j], expected, rtol=1e-7, atol=1e-7)


def test_against_a_reference_equals_the_definition(rng, x64):
    draws, others = rng.normal(size=(2, 60, 3)) @ MIX, rng.normal(size=(1, 100, 3)) @ MIX
    blocks = blocks_of(draws, 5, lambda _: MIX.T @ MIX)
    rest = (blocks - blocks.mean(axis=(0, 1))).reshape(10, 9)
    noise = (rest**2).sum() / 9 / 10
    ratio = ((blocks.mean(axis=(0, 1)) - np.eye(3)) ** 2).sum() / noise
    found = covariance_agreement(draws, MIX.T @ MIX, num_blocks=5)
    np.testing.assert_allclose(found.ratio, ratio, rtol=1e-9)
    np.testing.assert_allclose(found.p_value, f_test(ratio, rest, 1, 9), rtol=1e-6)

    def moments(x):
        centred = x - x.mean(axis=1, keepdims=True)
        return mean_covariance(centred)

    metric = (moments(draws) + moments(others)) / 2
    sides = [blocks_of(x, 5, lambda _: metric) for x in (draws, others)]
    means = [side.mean(axis=(0, 1)) for side in sides]
    errors = [
        ((side - mean) ** 2).sum() / (n - 1) / n
        for side, mean, n in zip(sides, means, (10, 5), strict=True)
    ]
    found = covariance_agreement(draws, others, num_blocks=5)
    expected = ((means[0] - means[1]) ** 2).sum() / sum(errors)
    np.testing.assert_allclose(found.ratio, expected, rtol=1e-9)


def test_the_distance_is_invariant(rng, x64):
    a, b, c = (np.cov(rng.normal(size=(4, 30))) for _ in range(3))
    maps = rng.normal(size=(4, 4))
    plain = covariance_distance(a, b)
    np.testing.assert_allclose(covariance_distance(maps @ a @ maps.T, maps @ b @ maps.T), plain)
    np.testing.assert_allclose(covariance_distance(b, a), plain)
    np.testing.assert_allclose(covariance_distance(np.linalg.inv(a), np.linalg.inv(b)), plain)
    assert plain < covariance_distance(a, c) + covariance_distance(c, b)
    singular = np.diag([1.0, 2.0, 0.0])
    assert np.isinf(covariance_distance(np.eye(3), singular))
    assert np.isnan(covariance_distance(singular, np.eye(3)))


def test_p_values_keep_their_level(rng):
    """Under the null P(p < 0.01) is at most 0.02: of 1,000 runs 45 may be below by chance 1e-6.

    Autocorrelated (AR 0.9, effective sizes near 105 of 1,000) and heavy-tailed coordinates.
    """
    runs = 1000
    parts = [
        autoregressive(rng, 0.9, 3 * runs, 1000),
        rng.standard_t(6, size=(3 * runs, 1000)),
        rng.normal(size=(3 * runs, 1000)),
    ]
    draws = np.stack(parts, axis=-1).reshape(runs, 3, 1000, 3) @ MIX
    found = jax.jit(jax.vmap(covariance_agreement))(draws.astype(np.float32))
    allowed = stats.binom.isf(1e-6, runs, 0.02)
    assert (np.asarray(found.p_value) < 0.01).sum() <= allowed
    assert found.p_value.min() > 1e-6
    assert abs(found.ratio.mean() - 1) < 0.15
    assert abs(found.neighbour_correlation.mean()) < 0.05


def test_a_wrong_covariance_is_caught_where_rhat_is_blind(rng):
    draws = rng.normal(size=(4, 2000, 3)).astype(np.float32)
    rho = 0.35  # every marginal stays standard normal
    odd = draws.copy()
    odd[2, :, 1] = rho * odd[2, :, 0] + np.sqrt(1 - rho**2) * odd[2, :, 1]
    found = covariance_agreement(odd)
    assert found.p_value < 1e-6
    assert np.argmax(np.asarray(found.distances).sum(axis=0)) == 2
    assert found.distances[2, 0] > 3 * found.null_distance
    assert covariance_agreement(draws).p_value > 1e-6
    truth = np.eye(3, dtype=np.float32)
    assert covariance_agreement(odd[2:3], truth).p_value < 1e-6
    assert covariance_agreement(draws[2:3], truth).p_value > 1e-6
    assert covariance_agreement(odd[2:3], draws[:1]).p_value < 1e-6
    assert covariance_agreement(draws[2:3], draws[:1]).p_value > 1e-6


def test_short_blocks_are_told(rng):
    slow = autoregressive(rng, 0.999, 8, 4000).reshape(4, 2, 4000).swapaxes(1, 2)
    assert covariance_agreement(slow, num_blocks=40).neighbour_correlation > 0.3


def test_a_frozen_chain_and_nan(rng):
    draws = rng.normal(size=(4, 2000, 3)).astype(np.float32)  # compiled above
    draws[1] = draws[1, :1]
    found = covariance_agreement(draws)
    assert np.isinf(found.distances[0, 1])
    assert found.p_value < 1e-6
    draws[0, 3, 1] = np.nan
    assert np.isnan(covariance_agreement(draws).p_value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros((1, 100, 2)),), "needs at least 2 chains"),
        ((np.zeros((2, 10, 2)),), "needs at least 20 draws per chain"),
        ((np.zeros((2, 100, 2)), np.eye(3)), "reference covariance of all 2 coordinates"),
        ((np.zeros((2, 100, 2)), np.zeros((1, 100, 3))), "they have 2 and 3"),
    ],
)
def test_the_door(arguments, message):
    with pytest.raises(ValueError, match=message):
        covariance_agreement(*arguments)
    with pytest.raises(ValueError, match="at least 2 blocks a chain, but num_blocks is 1"):
        covariance_agreement(np.zeros((2, 100, 2)), num_blocks=1)
