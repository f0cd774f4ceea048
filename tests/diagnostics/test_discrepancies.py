"""Tests of diagnostics.blocks and diagnostics.moment_blocks: kernel discrepancies by brute force,
their null distribution, and what they must catch.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxbnn.diagnostics import kernel_stein_discrepancy, maximum_mean_discrepancy
from jaxbnn.diagnostics.blocks import _quadratic_tail, block_index, effective_draws
from tests.diagnostics.chains import autoregressive


def block_estimate(kernel, chain, block, is_kept):
    """Mean of the kernel over pairs of kept draws in blocks that differ and do not touch."""
    touching = (np.abs(block[:, None] - block) <= 1) & (chain[:, None] == chain)
    return kernel[~touching & is_kept[:, None] & is_kept].mean()


def neighbours_of(blocks):
    """Which blocks of two chains touch."""
    order = np.arange(blocks)
    chain = 2 * order // blocks
    return (np.abs(order[:, None] - order) == 1) & (chain[:, None] == chain)


def check_by_hand(found, products, touching):
    """From the inner products of blocks: estimate, jackknife over blocks, and neighbours."""
    count = len(products)
    used = ~touching & ~np.eye(count, dtype=bool)
    squared = products[used].mean()
    left_out = []
    for block in range(count):
        others = np.arange(count) != block
        left_out.append(products[used & others & others[:, None]].mean())
    error = np.sqrt((count - 1) * np.var(left_out))
    correlation = (products[touching].mean() - squared) / (np.diagonal(products).mean() - squared)
    expected = squared, error, correlation
    numbers = found.squared, found.standard_error, found.neighbour_correlation
    np.testing.assert_allclose(numbers, expected, rtol=1e-8)


def labels(chains, blocks, length):
    """Chain and block of each draw, and whether it lies behind the first fifth of its block."""
    chain, size = np.repeat(np.arange(chains), length), length // blocks
    order = np.tile(np.arange(length), chains)
    return chain, chain * 100 + order // size, order % size >= size // 5


def test_stein_equals_its_definition_by_autodiff(rng, x64):
    draws = rng.normal(size=(2, 24, 3))
    scores = np.sin(draws) - draws
    scale = np.array([1.0, 2.0, 0.5])

    def k(x, y):
        return 1 / jnp.sqrt(1 + jnp.sum(((x - y) / scale) ** 2))

    def u(x, sx, y, sy):
        # Derivatives by z = x / scale.
        cross = jax.jacfwd(jax.grad(k, 0), 1)(x, y)
        return (
            jnp.sum(sx * sy * scale**2) * k(x, y)
            + jnp.sum(sx * scale**2 * jax.grad(k, 1)(x, y))
            + jnp.sum(sy * scale**2 * jax.grad(k, 0)(x, y))
            + jnp.sum(jnp.diag(cross) * scale**2)
        )

    x, s = draws.reshape(-1, 3), scores.reshape(-1, 3)
    pairs = jax.jit(jax.vmap(jax.vmap(u, (None, None, 0, 0)), (0, 0, None, None)))(x, s, x, s)
    found = kernel_stein_discrepancy(draws, scores, length_scale=scale, num_blocks=8)
    expected = block_estimate(np.asarray(pairs), *labels(2, 4, 24))
    np.testing.assert_allclose(found.squared, expected, rtol=1e-9)
    # Less the first draw of the six of each block.
    products = np.asarray(pairs).reshape(8, 6, 8, 6)[:, 1:, :, 1:].mean(axis=(1, 3))
    check_by_hand(found, products, neighbours_of(8))


@pytest.mark.long
def test_mmd_equals_its_definition(rng, x64):
    x, y = rng.normal(size=(2, 40, 2)), rng.normal(size=(2, 80, 2)) + 0.5
    found = maximum_mean_discrepancy(x, y, length_scale=0.7, num_blocks=8)
    # Less the first fifth of each block.
    a, b = x.reshape(8, 10, 2)[:, 2:], y.reshape(8, 20, 2)[:, 4:]

    def mean(p, q):
        return np.exp(-((p[:, None] - q) ** 2).sum(axis=2) / 2 / 0.49).mean()

    products = np.array(
        [
            [mean(a[i], a[j]) + mean(b[i], b[j]) - mean(a[i], b[j]) - mean(b[i], a[j])
             for j in range(8)]
            for i in range(8)
        ]
    )  # fmt: skip
    check_by_hand(found, products, neighbours_of(8))


@pytest.mark.long
def test_the_default_scale_makes_units_irrelevant(rng):
    x = rng.normal(size=(4, 200, 2)).astype(np.float32)
    y = rng.normal(size=(4, 200, 2)).astype(np.float32) + 0.2
    units = np.array([1e-6, 1e6], np.float32)
    plain = kernel_stein_discrepancy(x, -x)
    np.testing.assert_allclose(kernel_stein_discrepancy(x * units, -x / units), plain, rtol=2e-3)
    plain = maximum_mean_discrepancy(x, y)
    np.testing.assert_allclose(maximum_mean_discrepancy(x * units, y * units), plain, rtol=2e-3)


def test_the_tail_of_a_quadratic_form(rng):
    # One component squared, less its mean: the rank-one case, exactly a chi-square.
    k = 64
    weights = np.append(np.full(k - 1, -1.0), k - 1.0)
    exact = stats.chi2.sf(k, 1)
    tail_of = jax.jit(_quadratic_tail)
    found = tail_of(jnp.asarray(weights, jnp.float32), jnp.float32(k * (k - 1)))
    assert 0.5 < float(found) / exact < 1.5
    weights = rng.normal(size=k) ** 3
    weights -= weights.mean()
    simulated = (rng.normal(size=(200_000, k)) ** 2) @ weights
    for tail in (0.7, 0.5, 0.1, 1e-2, 1e-3):
        value = jnp.float32(np.quantile(simulated, 1 - tail))
        assert 0.85 < float(tail_of(jnp.asarray(weights, jnp.float32), value)) / tail < 1.15


@pytest.fixture(scope="module")
def judge():
    """Both discrepancies of many runs, compiled once."""

    def one(x, y):
        stein = kernel_stein_discrepancy(x, -x, num_blocks=36, max_draws=720)
        return stein, maximum_mean_discrepancy(x, y, num_blocks=36, max_draws=720)

    compiled = jax.jit(one)

    def every(xs, ys):
        found = [compiled(x, y) for x, y in zip(xs, ys, strict=True)]
        return jax.tree.map(lambda *values: np.stack(values), *found)

    return every


def many(rng, runs, phi=0.6, length=400):
    """Autocorrelated runs of the standard normal law: 3 chains, of 400 draws worth 100 each."""
    draws = autoregressive(rng, phi, runs * 6, length)
    return draws.reshape(runs, 3, 2, length).swapaxes(2, 3)


@pytest.mark.long
def test_p_values_keep_their_level(rng, judge):
    """Under the null P(p < 0.01) is at most 0.03: of 200 runs 20 may be below by chance 1e-6."""
    runs = 200
    x, y = (many(rng, runs).astype(np.float32) for _ in range(2))
    for found in judge(x, y):
        assert (np.asarray(found.p_value) < 0.01).sum() <= stats.binom.isf(1e-6, runs, 0.03)
        assert found.p_value.min() > 1e-6
        # Unbiased, and the jackknife knows the spread, which it exaggerates where all is noise.
        spread = float(found.squared.std())
        assert abs(found.squared.mean()) < 6 * spread / np.sqrt(runs)
        assert 0.7 < found.standard_error.mean() / spread < 2
        assert found.neighbour_correlation.mean() < 0.3


def test_wrong_means_and_spreads_are_caught(rng, judge):
    x, y = (many(rng, 3, phi=0.5, length=800).astype(np.float32) for _ in range(2))
    maps = np.array([[1.0, 0.9], [0.0, np.sqrt(1 - 0.9**2)]], np.float32)
    wrong = np.stack([x[0] + 0.5, 1.7 * x[1], x[2] @ maps])
    for found in judge(wrong, y):
        assert (np.asarray(found.p_value) < 1e-6).all()
        assert (found.squared > 4 * found.standard_error).all()


@pytest.mark.long
def test_p_values_keep_their_level_where_neighbours_depend_on_each_other(rng):
    """Under the null P(p < .05) is at most .05: of 1000 runs 86 may be below by chance 1e-6.

    AR(1) chains at .9, 4 x 800 draws worth 168. Without gaps, and with 64 blocks, it was .13.
    """
    runs, shape = 1000, (4, 800, 10)
    x = autoregressive(rng, 0.9, runs * 40, 800).astype(np.float32)
    x = np.moveaxis(x.reshape(runs, 4, 10, 800), 2, 3).reshape(runs, *shape)
    judged = jax.jit(lambda every: jax.lax.map(_stein_of_normal, every))
    p = np.asarray(judged(x).p_value)
    assert np.isfinite(p).mean() > 0.99
    assert (p < 0.05).sum() <= stats.binom.isf(1e-6, runs, 0.05)


def _stein_of_normal(x):
    return kernel_stein_discrepancy(x, -x, max_draws=128)


@pytest.mark.long
def test_blocks_as_short_as_the_memory_are_refused(rng):
    slow = autoregressive(rng, 0.98, 4, 800)[..., None].astype(np.float32)
    quick = rng.normal(size=slow.shape).astype(np.float32)
    sentence = r"needs blocks worth 3 independent draws, but they are worth about [012]\.\d: "
    with pytest.raises(ValueError, match="kernel_stein_discrepancy " + sentence):
        kernel_stein_discrepancy(slow, -slow)
    for pair in ((slow, quick), (quick, slow)):
        with pytest.raises(ValueError, match="maximum_mean_discrepancy " + sentence):
            maximum_mean_discrepancy(*pair)
    # Nothing can be raised inside jit; a chain may be one block whatever its memory.
    found = jax.jit(lambda x: kernel_stein_discrepancy(x, -x))(slow)
    assert np.isnan(found.p_value)
    assert np.isfinite(found.squared)
    many_chains = slow[0].reshape(16, 50, 1)
    assert np.isfinite(kernel_stein_discrepancy(many_chains, -many_chains, num_blocks=16).p_value)


def test_one_slow_coordinate_among_quick_ones_is_refused(rng):
    """AR(1) at .99 beside four coordinates of independent draws: P(p < .05) was .15."""
    x = rng.normal(size=(4, 800, 5)).astype(np.float32)
    assert np.isfinite(kernel_stein_discrepancy(x, -x, max_draws=256).p_value)
    x[..., 0] = autoregressive(rng, 0.99, 4, 800)
    with pytest.raises(ValueError, match=r"are worth about [012]\.\d: "):
        kernel_stein_discrepancy(x, -x, max_draws=256)
    # Of many that are alike none is slow: the worth of the noisiest is no reason to refuse.
    many = autoregressive(rng, 0.9, 40, 800).reshape(4, 10, 800).swapaxes(1, 2)
    assert effective_draws(jnp.asarray(many), 32) > 3.5


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("draw", [0, 25])
def test_draws_that_are_not_used_count_if_they_are_not_finite(value, draw, rng):
    """The first fifth of a block is left out, and of the rest all but the evenly spaced ones."""
    x = rng.normal(size=(4, 200, 2)).astype(np.float32)
    options = {"num_blocks": 8, "max_draws": 32, "length_scale": 1.0}
    spoiled = x.copy()
    assert draw not in block_index("here", 4, 200, 8, 32)
    spoiled[0, draw, 1] = value
    for found in (
        kernel_stein_discrepancy(spoiled, -x, **options),
        kernel_stein_discrepancy(x, spoiled, **options),
        maximum_mean_discrepancy(spoiled, x, **options),
        maximum_mean_discrepancy(x, spoiled, **options),
    ):
        assert np.isnan(found).all()
    assert np.isfinite(kernel_stein_discrepancy(x, -x, **options)).all()


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
def test_draws_that_a_block_is_worth(rng, phi):
    """Of a mean over n of AR(1): n (1 - phi) / (1 + phi), less what blocks this short add."""
    x = autoregressive(rng, phi, 4 * 50, 4000).reshape(4, 50, 4000).swapaxes(1, 2)
    lag = np.arange(1, 100)
    exact = 100 / (1 + 2 * np.sum((1 - lag / 100) * phi**lag))
    # Constant coordinates, and any unit, make no difference.
    units = np.append(np.geomspace(1e-15, 1e15, 49), 0.0)
    found = float(effective_draws(jnp.asarray(x * units, jnp.float32), 128))
    assert abs(found / exact - 1) < 0.1


@pytest.mark.parametrize("far", [10.0, 3000.0, 30_000.0])
def test_modes_far_apart_are_told_from_distances_inside_them(rng, far):
    """In float32, against the kernel from differences in float64."""
    mode = far * rng.integers(0, 2, size=(2, 400, 1))
    draws = (mode + rng.normal(size=(2, 400, 2))).astype(np.float32)
    scores = (mode - draws).astype(np.float32)
    found = kernel_stein_discrepancy(draws, scores, length_scale=1.0, num_blocks=8)
    x, s = (v.astype(float).reshape(-1, 2) for v in (draws, scores))
    apart = x[:, None] - x
    q = 1 + (apart**2).sum(axis=2)
    along = ((s[:, None] - s) * apart).sum(axis=2)
    pairs = s @ s.T / np.sqrt(q) + (along + 2) / q**1.5 - 3 * (q - 1) / q**2.5
    expected = block_estimate(pairs, *labels(2, 4, 400))
    assert abs(found.squared - expected) < 0.01 * found.standard_error


def test_the_door(rng):
    x = rng.normal(size=(2, 100, 2))
    with pytest.raises(ValueError, match="one score for each coordinate"):
        kernel_stein_discrepancy(x, x[..., :1])
    with pytest.raises(ValueError, match="needs at least 8 blocks"):
        kernel_stein_discrepancy(x, -x, num_blocks=4)
    with pytest.raises(ValueError, match="length_scale must be positive"):
        kernel_stein_discrepancy(x, -x, length_scale=0.0)
    with pytest.raises(ValueError, match="same coordinates in both sets, but they have 2 and 1"):
        maximum_mean_discrepancy(x, x[..., :1])
    with pytest.raises(ValueError, match="a multiple of both numbers of chains"):
        maximum_mean_discrepancy(x, rng.normal(size=(3, 100, 2)))
