"""Tests of diagnostics.covariance_distances: agreement of covariances: the definition, the null,
and the chains that must be caught.
"""

import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import linalg, stats

from jaxbnn.diagnostics import covariance_agreement, covariance_distance
from jaxbnn.diagnostics.covariances import _effective_draws, _either
from jaxbnn.diagnostics.moment_blocks import Moments, block_moments, judge_groups
from tests.diagnostics.chains import autoregressive
from tests.diagnostics.covariance_laws import MODES, NORMAL, one_scale, p_values

FACTOR = np.array([[1.0, 0.0], [0.5, 2.0]])
MIX = np.array([[1.0, 0.5, 0.0], [0.0, 2.0, -0.3], [0.0, 0.0, 0.5]])


def estimates_of(draws, num_blocks):
    """Covariance estimates of the blocks (chain, block, p, p), and the unbiased one of all."""
    chains, length, dim = draws.shape
    size = length // num_blocks
    kept = draws[:, length - num_blocks * size :].reshape(chains * num_blocks, size, dim)
    kept = kept[:, int(0.2 * size) :]
    kept = kept - kept.mean(axis=(0, 1))
    count = len(kept)
    means = kept.mean(axis=1)
    others = (means.sum(axis=0) - means) / (count - 1)
    blocks = np.einsum("bti,btj->bij", kept, kept) / kept.shape[1]
    blocks -= np.einsum("bi,bj->bij", means, others)
    # Mean of x x^T less that of products of draws from different blocks, about any origin.
    moved = kept + np.arange(dim)
    total, each = moved.mean(axis=1).sum(axis=0), moved.mean(axis=1)
    across = (np.outer(total, total) - each.T @ each) / count / (count - 1)
    whole = np.einsum("bti,btj->ij", moved, moved) / count / kept.shape[1] - across
    np.testing.assert_allclose(blocks.mean(axis=0), whole, rtol=1e-8, atol=1e-9)
    return blocks.reshape(chains, num_blocks, dim, dim), whole


def white(metric, matrices):
    root = np.linalg.inv(linalg.sqrtm(metric).real)
    return root @ matrices @ root


def trace_of_square(rows):
    """Trace of the square of the rows' covariance, without its noise, and the trace itself.

    The mean of (d_ij . d_kl)^2 / 4 over differences d of four different rows.
    """
    n = len(rows)
    gram = rows @ rows.T
    terms = [
        (gram[i, k] - gram[i, m] - gram[j, k] + gram[j, m]) ** 2 / 4
        for i, j, k, m in itertools.permutations(range(n), 4)
    ]
    return np.mean(terms), np.trace(np.cov(rows.T))


def beside(rows):
    """Correlation of neighbouring blocks' rows (chain, block, entry), about each chain's mean."""
    rest = rows - rows.mean(axis=1, keepdims=True)
    products = (rest[:, 1:] * rest[:, :-1]).sum(axis=2).mean()
    return products / (rest**2).sum(axis=2).mean() + 1 / (rows.shape[1] - 1)


def combined(p_values):
    return stats.cauchy.sf(np.mean(stats.cauchy.isf(p_values)))


def test_between_chains_equals_the_definition(rng, x64):
    """The F law has the mean and variance of all ways to assign eight blocks to two chains."""
    draws = rng.normal(size=(2, 83, 3)) @ MIX * np.array([1.0, 1.3])[:, None, None]
    found = covariance_agreement(draws.reshape(2, 83, 3, 1), num_blocks=4)
    blocks, whole = estimates_of(draws, 4)
    ratios, p_values = [], []
    for rows in rows_of(blocks, whole):
        centred = rows - rows.mean(axis=0)
        # As the sums of both chains are opposite, the share between them is 2 |s|^2 / 4.
        shares = [
            2 * (centred[list(four)].sum(axis=0) ** 2).sum() / 4 / (centred**2).sum()
            for four in itertools.combinations(range(8), 4)
        ]
        np.testing.assert_allclose(np.mean(shares), 1 / 7)
        v = max(2 / 7 * (1 / 7 * 6 / 7 / np.var(shares) - 1), 1)
        ratios.append(6 * shares[0] / (1 - shares[0]))
        p_values.append(stats.f.sf(ratios[-1], v, 6 * v))
    np.testing.assert_allclose([found.ratio, found.variance_ratio], ratios, rtol=1e-8)
    np.testing.assert_allclose(found.p_value, combined(p_values), rtol=1e-6)
    covariances = blocks.mean(axis=1)
    values = linalg.eigvalsh(covariances[0], covariances[1])
    expected = np.sqrt((np.log(values) ** 2).sum())
    np.testing.assert_allclose(found.distances[[0, 1], [1, 0]], expected, rtol=1e-7)
    np.testing.assert_allclose(np.diagonal(found.distances), 0)
    rows = rows_of(blocks, whole)[0].reshape(2, 4, 9)
    # Both means of four blocks have errors.
    chance = sum(np.trace(np.cov(chain.T)) / 4 for chain in rows)
    np.testing.assert_allclose(found.null_distance, np.sqrt(chance), rtol=1e-8)
    np.testing.assert_allclose(found.neighbour_correlation, beside(rows), rtol=1e-8)


@pytest.mark.long
def test_p_values_are_uniform_over_the_ways_to_assign_the_blocks(rng):
    """Given the blocks, each way is as likely as any other: the permutation test is exact.

    Where the degrees of freedom were kept below the number of entries, P(p < .05) was .025 here.
    """
    draws = NORMAL["AR(1), 0.9"].draw(rng, (4, 1000, 27)).astype(np.float32)
    second = block_moments(jnp.asarray(draws), 10).second
    rows = white(np.asarray(second).mean(axis=(0, 1)), np.asarray(second)).reshape(40, -1)
    order = np.argsort(rng.random((4000, 40)), axis=1)
    rows = jnp.asarray(rows, jnp.float32)
    one = jax.jit(lambda order: judge_groups(rows[order].reshape(4, 10, -1))[1])
    found = np.asarray(jax.lax.map(one, order))
    low, high = stats.binom.ppf([5e-7, 1 - 5e-7], len(found), 0.05)
    assert low <= (found < 0.05).sum() <= high


def judged(offset, sides, num_free):
    """Ratio and p-value of an offset with the errors of means over the sides' rows."""
    errors = [np.cov(rows.T) / len(rows) for rows in sides]
    parts = [trace_of_square(rows / np.sqrt(len(rows))) for rows in sides]
    traces = [trace for _, trace in parts]
    squares = [max(square, trace**2 / num_free) for square, trace in parts]
    noise = sum(traces)
    total = sum(squares) + (2 * np.trace(errors[0] @ errors[1]) if len(sides) == 2 else 0)
    total = max(total, noise**2 / num_free)
    freedom = noise**2 / sum(s / (len(r) - 1) for s, r in zip(squares, sides, strict=True))
    ratio = (offset**2).sum() / noise
    return ratio, stats.f.sf(ratio, noise**2 / total, freedom), noise


def rows_of(blocks, metric):
    """All whitened entries, and the variances in units of the metric's."""
    dim = len(metric)
    variances = np.diagonal(blocks, axis1=2, axis2=3) / np.diagonal(metric)
    return white(metric, blocks).reshape(-1, dim * dim), variances.reshape(-1, dim)


def test_against_a_reference_equals_the_definition(rng, x64):
    draws, others = rng.normal(size=(2, 160, 3)) @ MIX, rng.normal(size=(1, 200, 3)) @ MIX
    truth = MIX.T @ MIX
    blocks, whole = estimates_of(draws, 5)
    found = covariance_agreement(draws, truth, num_blocks=5)
    every, variances = rows_of(blocks, truth)
    judgements = [
        judged(every.mean(axis=0) - np.eye(3).ravel(), [every], 6),
        judged(variances.mean(axis=0) - 1, [variances], 3),
    ]
    np.testing.assert_allclose(found.ratio, judgements[0][0], rtol=1e-8)
    np.testing.assert_allclose(found.variance_ratio, judgements[1][0], rtol=1e-8)
    np.testing.assert_allclose(found.p_value, combined([j[1] for j in judgements]), rtol=1e-6)
    np.testing.assert_allclose(found.null_distance, np.sqrt(judgements[0][2]), rtol=1e-8)
    correlation = beside(every.reshape(2, 5, 9))
    np.testing.assert_allclose(found.neighbour_correlation, correlation, rtol=1e-8)

    other_blocks, other_whole = estimates_of(others, 5)
    noises = []
    for one, mean in ((blocks, whole), (other_blocks, other_whole)):
        rows, _ = rows_of(one, mean)
        noises.append(np.trace(np.cov(rows.T)) / len(rows))
    metric = (whole * noises[1] + other_whole * noises[0]) / sum(noises)
    sides = list(zip(rows_of(blocks, metric), rows_of(other_blocks, metric), strict=True))
    judgements = [
        judged(ours.mean(axis=0) - theirs.mean(axis=0), [ours, theirs], num_free)
        for (ours, theirs), num_free in zip(sides, (6, 3), strict=True)
    ]
    found = covariance_agreement(draws, others, num_blocks=5)
    np.testing.assert_allclose(found.ratio, judgements[0][0], rtol=1e-8)
    np.testing.assert_allclose(found.variance_ratio, judgements[1][0], rtol=1e-8)
    np.testing.assert_allclose(found.p_value, combined([j[1] for j in judgements]), rtol=1e-6)
    np.testing.assert_allclose(found.null_distance, np.sqrt(judgements[0][2]), rtol=1e-8)
    correlations = [beside(rows.reshape(-1, 5, 9)) for rows in sides[0]]
    np.testing.assert_allclose(found.neighbour_correlation, max(correlations), rtol=1e-8)


def test_numbers_of_rows_and_entries_do_not_overflow(rng):
    """400 rows to the fifth, and 120 coordinates squared times 400 squared, are no int32."""
    rows = rng.normal(size=(10, 40, 3)) + rng.normal(scale=0.1, size=(10, 1, 3))
    found = judge_groups(jnp.asarray(rows, jnp.float32))
    with jax.enable_x64(True):
        exact = judge_groups(jnp.asarray(rows))
    np.testing.assert_allclose(found, exact, rtol=1e-3)
    second = np.broadcast_to(np.eye(120, dtype=np.float32), (10, 40, 120, 120))
    first = rng.normal(size=(10, 40, 120)).astype(np.float32)
    white = Moments(jnp.asarray(second), jnp.asarray(first))
    # Normal means of variance 1 are those of one draw each.
    assert float(_effective_draws(white)) == pytest.approx(400, rel=0.05)


def test_second_moments_count_as_the_draws_that_would_vary_so(rng):
    """One normal draw has entries of variance 1 off the diagonal, and 2 on it.

    Of 465 entries in 390 rows that is known to .33 %.
    """
    noise = rng.normal(size=(10, 40, 30, 30)).astype(np.float32) / np.float32(np.sqrt(2))
    second = jnp.asarray(noise + noise.swapaxes(2, 3))
    white = Moments(second, jnp.zeros((10, 40, 30), jnp.float32))
    assert float(_effective_draws(white)) == pytest.approx(400, rel=0.0163)


@pytest.mark.long
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


def allowed(runs):
    """Counts of p < 0.05 that chance gives with probability 1e-6 at the edges of [.03, .07]."""
    return stats.binom.ppf(5e-7, runs, 0.03), stats.binom.isf(5e-7, runs, 0.07)


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
def test_p_values_keep_their_level(mode, rng):
    """P(p < .05) is between .03 and .07, autocorrelation and 27 coordinates notwithstanding."""
    found = p_values(rng, NORMAL["AR(1), 0.9"], (4, 1000, 27), mode, 150)
    low, high = allowed(150)
    assert low <= (found < 0.05).sum() <= high
    # Uniform p-values: a test that knows nothing has its p-values in the middle.
    assert stats.kstest(found, "uniform").pvalue > 1e-6


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("law", NORMAL)
@pytest.mark.parametrize("dim", [3, 10, 27, 60])
def test_p_values_keep_their_level_at_full_size(mode, law, dim, rng):
    found = p_values(rng, NORMAL[law], (4, 1000, dim), mode, 1000)
    if dim == 60 and law == "AR(1), 0.9":  # some 200 effective draws
        assert np.isnan(found).all()
        return
    low, high = allowed(1000)
    assert low <= (found < 0.05).sum() <= high


def test_one_wrong_scale_among_many_is_found(rng):
    found = p_values(rng, NORMAL["independent"], (4, 1000, 27), "chains", 25, one_scale)
    assert (found < 0.05).sum() >= 15


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


@pytest.mark.long
def test_too_few_effective_draws_are_refused(rng):
    slow = autoregressive(rng, 0.99, 8, 4000).reshape(4, 2, 4000).swapaxes(1, 2)
    with pytest.raises(ValueError, match="needs 3 effective draws in a block, 120 in all"):
        covariance_agreement(slow)
    assert np.isnan(jax.jit(covariance_agreement)(slow).p_value)
    assert covariance_agreement(slow, num_blocks=4).effective_draws > 48
    wide = rng.normal(size=(4, 100, 90))
    with pytest.raises(ValueError, match="90 coordinates needs 450 effective draws"):
        covariance_agreement(wide)


@pytest.mark.long
def test_each_side_is_judged_by_its_own_chains(rng):
    """Blocks worth one draw: P(p < .05) is .31 against one chain of independent draws."""
    slow = autoregressive(rng, 0.95, 16, 100)[..., None]
    one = rng.normal(size=(1, 1000, 1))
    sentence = "needs 3 effective draws in a block, 480 in all of 16 chains, but"
    for pair in ((slow, one), (one, slow)):
        with pytest.raises(ValueError, match=sentence):
            covariance_agreement(*pair)
        assert np.isnan(jax.jit(covariance_agreement)(*map(jnp.asarray, pair)).p_value)
    # As many chains of independent draws, and a reference worth less than their 480.
    many = rng.normal(size=(16, 100, 1))
    found = covariance_agreement(many, one[:, :300])
    assert found.effective_draws < 480
    assert found.p_value > 1e-6


def test_a_frozen_chain_and_nan(rng):
    draws = rng.normal(size=(4, 2000, 3)).astype(np.float32)  # compiled above
    draws[1] = draws[1, :1]
    found = covariance_agreement(draws)
    others = [0, 2, 3]
    assert np.isinf(found.distances[others, 1]).all()
    assert np.isinf(found.distances[1, others]).all()
    np.testing.assert_array_equal(found.distances, found.distances.T)
    assert found.p_value < 1e-6
    draws[0, 3, 1] = np.nan
    assert np.isnan(covariance_agreement(draws).p_value)


def test_a_reference_of_one_coordinate_has_two_axes(rng):
    draws, others = (rng.normal(size=(4, 1000)).astype(np.float32) for _ in range(2))
    expected = covariance_agreement(draws[..., None], others[..., None])
    for ours in (draws, draws[..., None]):
        chex.assert_trees_all_equal(covariance_agreement(ours, others), expected)
    known = covariance_agreement(draws, np.ones((1, 1)))
    assert known.p_value > 1e-3
    assert covariance_agreement(draws, np.full((1, 1), 4.0)).p_value < 1e-3
    with pytest.raises(ValueError, match="needs at least 20 draws per chain"):
        covariance_agreement(draws, np.eye(2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros((1, 100, 2)),), "needs at least 2 chains"),
        ((np.zeros((2, 10, 2)),), "needs at least 20 draws per chain"),
        ((np.zeros((2, 100, 2)), np.eye(3)), "reference covariance of all 2 coordinates"),
        ((np.zeros((2, 100, 2)), np.zeros((1, 100, 3))), "they have 2 and 3"),
        ((np.zeros((2, 100, 2)), FACTOR), "reference covariance must be symmetric, but is not"),
    ],
)
def test_bad_input_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        covariance_agreement(*arguments)
    for pair in ((FACTOR, np.eye(2)), (np.eye(2), np.stack([np.eye(2), FACTOR]))):
        with pytest.raises(ValueError, match="a covariance matrix must be symmetric"):
            covariance_distance(*pair)
    with pytest.raises(ValueError, match="at least 4 blocks a chain, but num_blocks is 1"):
        covariance_agreement(np.zeros((2, 100, 2)), num_blocks=1)


def test_a_p_value_near_one_does_not_cancel_one_near_zero():
    assert _either(jnp.float32(1e-4), jnp.float32(1 - 1e-6)) < 1e-3


@pytest.mark.parametrize("unit", [1e-24, 1e20])
def test_no_unit_matters_to_a_reference_matrix(unit, rng):
    draws = (rng.normal(size=(4, 4000, 2)) @ FACTOR.T).astype(np.float32)
    matrix = FACTOR @ FACTOR.T
    expected = covariance_agreement(draws, matrix)
    found = covariance_agreement((draws * np.float32(unit)), matrix * unit**2)
    np.testing.assert_allclose(found.p_value, expected.p_value, rtol=1e-3)
    np.testing.assert_allclose(found.ratio, expected.ratio, rtol=1e-3)


@pytest.mark.parametrize("unit", [1e-25, 1e-23, 1.0, 1e22])
def test_no_unit_matters_to_a_distance(unit):
    matrix = FACTOR @ FACTOR.T * unit**2
    found = covariance_distance(matrix, 2 * matrix)
    np.testing.assert_allclose(found, np.sqrt(2) * np.log(2), rtol=1e-5)
