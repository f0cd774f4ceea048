"""Tests of sampling.draws, sampling.reducer, sampling.welford and sampling.two_floats: reducers.

They stand against NumPy, on stored draws and on streams of millions, and `collect` chooses what
they see.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.base import SamplingAlgorithm

import jaxbnn
from jaxbnn.sampling.reducer import Reducer
from jaxbnn.sampling.two_floats import TwoFloats
from jaxbnn.sampling.validation import check_reduced
from tests.sampling.tiny import WalkState, ar

KEY = jax.random.key(11)
STARTS = np.array([[0.0, 1.0], [-4.0, 2.0], [2.0, 0.5]], np.float32)
NUM, BATCH = 100, 7


class RateInfo(NamedTuple):
    acceptance_rate: jax.Array


def predict(x):
    return {"p": jax.nn.sigmoid(x), "class": x[0] > 0, "count": jnp.where(x[1] > 0, 3, 0)}


KERNEL = ar()
REDUCERS = {
    "moments": jaxbnn.moments(),
    "covariance": jaxbnn.covariance(),
    "covariance of a function": jaxbnn.covariance(predict),
    "batches": jaxbnn.batch_means(BATCH),
    "acceptance": jaxbnn.acceptance(),
    "prediction": jaxbnn.predictive_mean(predict),
}


@functools.cache
def run(kind):
    options = {"whole": {}, "cut": {"chunk_size": 33}, "thinned": {"thinning": 3}}[kind]
    return jaxbnn.sample(KEY, KERNEL, STARTS, NUM, reduce=REDUCERS, progress=False, **options)


@functools.cache
def every_rate():
    return jaxbnn.sample(KEY, KERNEL, STARTS, 3 * NUM, progress=False).infos.acceptance_rate


def close(actual, expected, rtol=2e-4):
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=1e-5)


KINDS = pytest.mark.parametrize("kind", ["whole", "cut", "thinned"])


def values_of(draws):
    x = draws.positions.astype(np.float64)
    return {
        "p": 1 / (1 + np.exp(-x)),
        "class": (x[..., 0] > 0).astype(float),
        "count": 3.0 * (x[..., 1] > 0),
    }


@pytest.mark.short("cut")
@KINDS
def test_moments(kind):
    draws = run(kind)
    x, reduced = draws.positions.astype(np.float64), draws.reduced["moments"]
    assert reduced.per_chain.num_draws.tolist() == [NUM] * 3
    close(reduced.per_chain.mean, x.mean(1))
    close(reduced.per_chain.variance, x.var(1, ddof=1))
    together = x.reshape(-1, 2)
    assert reduced.pooled.num_draws == 3 * NUM
    close(reduced.pooled.mean, together.mean(0))
    close(reduced.pooled.variance, together.var(0, ddof=1))


@KINDS
def test_covariance(kind):
    draws = run(kind)
    x, reduced = draws.positions.astype(np.float64), draws.reduced["covariance"]
    for c in range(3):
        close(reduced.per_chain.mean[c], x[c].mean(0))
        close(reduced.per_chain.covariance[c], np.cov(x[c].T))
    close(reduced.pooled.covariance, np.cov(x.reshape(-1, 2).T))
    close(reduced.pooled.mean, x.reshape(-1, 2).mean(0))
    v = values_of(draws)  # leaves in alphabetical order
    flat = np.concatenate([v["class"][..., None], v["count"][..., None], v["p"]], -1)
    of_function = draws.reduced["covariance of a function"]
    close(of_function.pooled.covariance, np.cov(flat.reshape(-1, 4).T))
    np.testing.assert_array_equal(
        of_function.per_chain.covariance, of_function.per_chain.covariance.swapaxes(1, 2)
    )


@KINDS
def test_batch_means(kind):
    draws = run(kind)
    x, reduced = draws.positions.astype(np.float64), draws.reduced["batches"]
    finished = NUM // BATCH
    batches = x[:, : finished * BATCH].reshape(3, finished, BATCH, 2).mean(2)
    close(reduced.per_chain.mean, x.mean(1))
    assert reduced.per_chain.num_batches.tolist() == [finished] * 3
    close(reduced.per_chain.standard_error, np.sqrt(batches.var(1, ddof=1) * BATCH / NUM))
    pooled = batches.reshape(-1, 2)
    close(reduced.pooled.mean, x.mean((0, 1)))
    close(reduced.pooled.standard_error, np.sqrt(pooled.var(0, ddof=1) * BATCH / (3 * NUM)))
    assert reduced.pooled.num_batches == 3 * finished


@KINDS
def test_predictions(kind):
    draws = run(kind)
    reduced, values = draws.reduced["prediction"], values_of(draws)
    for name, v in values.items():
        close(reduced.per_chain.mean[name], v.mean(1))
        close(reduced.per_chain.variance[name], v.var(1, ddof=1))
        close(reduced.pooled.mean[name], v.mean((0, 1)))
        close(reduced.pooled.variance[name], v.reshape(3 * NUM, -1).var(0, ddof=1).squeeze())


@KINDS
def test_acceptance_sees_every_step(kind):
    draws = run(kind)
    steps = 3 * NUM if kind == "thinned" else NUM
    rates, reduced = every_rate()[:, :steps], draws.reduced["acceptance"]
    is_nan = np.isnan(rates)
    assert is_nan.any()
    clean = np.where(is_nan, 0, rates)
    assert reduced.per_chain.num_steps.tolist() == [steps] * 3
    np.testing.assert_array_equal(reduced.per_chain.num_nan, is_nan.sum(1))
    close(reduced.per_chain.acceptance_rate, clean.mean(1))
    close(reduced.pooled.acceptance_rate, clean.mean())
    assert reduced.pooled.num_steps == 3 * steps
    assert reduced.pooled.num_nan == is_nan.sum()
    close(draws.acceptance_rate, clean.mean(1))


def test_complex_numbers_have_real_variances_and_a_hermitian_covariance(rng):
    x = (rng.normal(size=(2, 12, 3)) + 1j * rng.normal(size=(2, 12, 3))).astype(np.complex64)
    x[..., 1] += (2 - 1j) * x[..., 0]

    def reduce(reducer):
        states = []
        for chain in x:
            r = reducer.init(jnp.asarray(chain[0]))
            for draw in chain:
                r = reducer.update(r, jnp.asarray(draw))
            states.append(r)
        return reducer.finalise(states[0]), reducer.finalise(reducer.merge(*states))

    together = x.reshape(-1, 3)
    for seen, found in zip((x[0], together), reduce(jaxbnn.moments()), strict=True):
        assert found.variance.dtype == np.float32
        close(found.mean, seen.mean(0))
        close(found.variance, seen.var(0, ddof=1))
    for seen, found in zip((x[0], together), reduce(jaxbnn.covariance()), strict=True):
        close(found.mean, seen.mean(0))
        close(found.covariance, np.cov(seen.T))
    batches = together.reshape(-1, 4, 3).mean(1)
    for number, found in zip((3, 6), reduce(jaxbnn.batch_means(4)), strict=True):
        expected = np.sqrt(batches[:number].var(0, ddof=1) / number)
        close(found.standard_error, expected)


def test_results_that_are_nan_on_purpose_do_not_lose_a_run_in_which_jax_looks_for_nans():
    with jax.debug_nans(True):
        draws = jaxbnn.sample(
            KEY, KERNEL, STARTS, 5, reduce={"batches": jaxbnn.batch_means(10)}, progress=False
        )
    assert draws.positions.shape == (3, 5, 2)
    assert np.isnan(draws.reduced["batches"].pooled.standard_error).all()


def test_one_chain_is_its_own_pool_and_one_draw_has_no_variance():
    draws = jaxbnn.sample(KEY, KERNEL, STARTS[:1], 1, reduce=REDUCERS, progress=False)
    for reduced in draws.reduced.values():
        jax.tree.map(
            lambda one, all: np.testing.assert_array_equal(one[0], all),
            reduced.per_chain,
            reduced.pooled,
        )
    assert np.isnan(draws.reduced["moments"].pooled.variance).all()
    assert np.isnan(draws.reduced["covariance"].pooled.covariance).all()
    assert np.isnan(draws.reduced["batches"].pooled.standard_error).all()
    np.testing.assert_array_equal(draws.reduced["moments"].pooled.mean, draws.positions[0, 0])


def test_moments_and_covariance_far_from_zero(rng):
    # float32 at 1e4 resolves 1e-3; sums of squares would lose the variance altogether.
    x = (1e4 + rng.standard_normal((1000, 2))).astype(np.float32)
    for reducer, field in [(jaxbnn.moments(), "variance"), (jaxbnn.covariance(), "covariance")]:
        half = [
            jax.jit(lambda x, reducer=reducer: jax.lax.scan(
                lambda r, v: (reducer.update(r, v), None), reducer.init(x[0]), x
            )[0])(part)
            for part in (x[:300], x[300:])
        ]  # fmt: skip
        result = getattr(reducer.finalise(reducer.merge(*half)), field)
        exact = x.astype(np.float64).var(0, ddof=1)
        result = result if field == "variance" else np.diag(result)
        np.testing.assert_allclose(result, exact, rtol=5e-3)


def test_collect_chooses_what_is_kept_and_what_reducers_see():
    def collect(state, info):
        return {"big": state.position[0] > 1, "n": jnp.int32(2), "x": state.position, "weak": 1.0}

    draws = jaxbnn.sample(
        KEY, KERNEL, STARTS, 40, collect=collect, reduce={"m": jaxbnn.moments()}, progress=False
    )
    kept = draws.positions
    assert kept["big"].dtype == bool
    assert kept["n"].dtype == np.int32
    assert (kept["n"] == 2).all()
    assert (kept["weak"] == 1).all()
    np.testing.assert_allclose(kept["x"], run("whole").positions[:, :40], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(kept["big"], kept["x"][..., 0] > 1)
    moments = draws.reduced["m"].pooled
    close(moments.mean["big"], kept["big"].mean())
    close(moments.variance["big"], kept["big"].reshape(-1).var(ddof=1))
    assert moments.variance["n"] == 0


def test_nothing_collected():
    draws = jaxbnn.sample(
        KEY,
        KERNEL,
        STARTS,
        NUM,
        collect=None,
        reduce={"a": jaxbnn.acceptance(), "m": jaxbnn.moments()},
        progress=False,
    )
    assert draws.positions is None
    assert draws.infos is None
    expected = np.nan_to_num(every_rate()[:, :NUM]).mean(axis=1)
    np.testing.assert_allclose(draws.acceptance_rate, expected, rtol=1e-5)
    # Reducers see the position where nothing is collected.
    mean = run("whole").positions[:, :NUM].mean(axis=1)
    np.testing.assert_allclose(draws.reduced["m"].per_chain.mean, mean, rtol=1e-4, atol=1e-5)
    close(draws.reduced["a"].pooled.acceptance_rate, np.nan_to_num(every_rate()[:, :NUM]).mean())
    np.testing.assert_allclose(
        draws.final_state.position, run("whole").positions[:, -1], rtol=1e-5, atol=1e-6
    )


def test_keys_cannot_be_collected():
    with pytest.raises(ValueError, match="PRNG key"):
        jaxbnn.sample(
            KEY, KERNEL, STARTS, 2, collect=lambda s, i: jax.random.key(0), progress=False
        )


def test_equal_arguments_give_the_same_reducer():
    # A second run with a reducer made anew must find its compiled program.
    assert jaxbnn.moments() is jaxbnn.moments()
    assert jaxbnn.covariance(predict) is jaxbnn.covariance(predict)
    assert jaxbnn.predictive_mean(predict) is jaxbnn.predictive_mean(predict)
    assert jaxbnn.batch_means(3) is jaxbnn.batch_means(3)
    assert jaxbnn.acceptance() is jaxbnn.acceptance()


@pytest.mark.parametrize("every_step", [False, True])
def test_an_update_that_changes_what_it_keeps_is_refused(every_step):
    drifting = Reducer(
        init=lambda x: jnp.zeros((), jnp.int32),
        update=lambda r, x: r.astype(jnp.float32),
        merge=lambda one, other: one,
        finalise=lambda r: r,
        every_step=every_step,
    )
    options = {"reduce": {"rate": drifting}, "progress": False}
    with pytest.raises(ValueError, match="the update of a reducer changes r from int32"):
        jaxbnn.sample(KEY, KERNEL, STARTS, 3, thinning=2, **options)


def test_a_merge_that_fails_does_so_before_anything_is_drawn():
    """At the end of a run its draws would be lost."""
    seen = []

    def lost(one, other):
        raise KeyError("merge")

    failing = jaxbnn.moments()._replace(merge=lost)
    with pytest.raises(KeyError, match="merge"):
        jaxbnn.sample(KEY, KERNEL, STARTS, 3, reduce={"m": failing}, progress=seen.append)
    assert not seen


def test_bad_batch_size():
    with pytest.raises(ValueError, match="batch_size must be at least 1, but is 0"):
        jaxbnn.batch_means(0)


# Long streams: so many different numbers a chain, seen again and again, so that NumPy's means in
# float64 are those of the whole stream. Chains have different numbers.
LENGTH, IN_BATCH = 20_000, 50
LONG = pytest.mark.parametrize(
    "num_rounds", [10, pytest.param(500, marks=pytest.mark.long)], ids=["200,000", "10,000,000"]
)
DTYPES = pytest.mark.parametrize(
    ("dtype", "rtol"), [(np.float32, 3e-7), (np.float64, 1e-13)], ids=["float32", "float64"]
)


def reduced(reducer, x, num_rounds):
    """Results (per chain, merged) of so many rounds of x (chain, LENGTH, ...)."""

    def of_chain(x):
        see = lambda i, r: reducer.update(r, x[i % LENGTH])  # noqa: E731
        return jax.lax.fori_loop(0, num_rounds * LENGTH, see, reducer.init(x[0]))

    @jax.jit
    def of_all(x):
        chains = jax.vmap(of_chain)(x)
        one = [jax.tree.map(lambda leaf, c=c: leaf[c], chains) for c in range(len(x))]
        merged = functools.reduce(reducer.merge, one)
        return jax.vmap(reducer.finalise)(chains), reducer.finalise(merged)

    with jax.enable_x64(x.dtype == np.float64):
        return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), of_all(x))


def normals(rng, *shape):
    return rng.standard_normal((3, LENGTH, *shape))


def unbiased(squares, num_rounds, num_chains=1):
    """The mean square of the stream with the divisor of a variance."""
    total = num_rounds * LENGTH * num_chains
    return squares * total / (total - 1)


@LONG
@DTYPES
def test_rare_rejections_of_many_steps_are_not_rounded_away(rng, num_rounds, dtype, rtol):
    rates = (rng.random((3, LENGTH)) < 0.99).astype(dtype)
    per_chain, pooled = reduced(jaxbnn.acceptance(), rates, num_rounds)
    exact = rates.astype(np.float64)
    np.testing.assert_allclose(per_chain.acceptance_rate, exact.mean(1), rtol=rtol)
    np.testing.assert_allclose(pooled.acceptance_rate, exact.mean(), rtol=rtol)


@LONG
@DTYPES
@pytest.mark.parametrize("kind", ["skewed", "normal"])
def test_moments_of_many_draws(rng, num_rounds, dtype, rtol, kind):
    z = normals(rng)
    x = (1 / (1 + np.exp(-(5 + 2 * z))) if kind == "skewed" else 1 + z).astype(dtype)
    per_chain, pooled = reduced(jaxbnn.moments(), x, num_rounds)
    exact = x.astype(np.float64)
    np.testing.assert_allclose(per_chain.mean, exact.mean(1), rtol=rtol)
    np.testing.assert_allclose(pooled.mean, exact.mean(), rtol=rtol)
    np.testing.assert_allclose(per_chain.variance, unbiased(exact.var(1), num_rounds), rtol=rtol)
    np.testing.assert_allclose(pooled.variance, unbiased(exact.var(), num_rounds, 3), rtol=rtol)


@LONG
@DTYPES
def test_covariance_of_many_draws(rng, num_rounds, dtype, rtol):
    x = (np.array([100, -3, 1]) + normals(rng, 3) @ rng.standard_normal((3, 3))).astype(dtype)
    per_chain, pooled = reduced(jaxbnn.covariance(), x, num_rounds)
    exact = x.astype(np.float64)
    every = exact.reshape(-1, 3)
    # Entries may cancel: a rounding of the variances, which are larger.
    atol = rtol * every.var(0).max()
    for found, mean, squares, num_chains in [
        (per_chain, exact.mean(1), np.stack([np.cov(one.T, ddof=0) for one in exact]), 1),
        (pooled, every.mean(0), np.cov(every.T, ddof=0), 3),
    ]:
        np.testing.assert_allclose(found.mean, mean, rtol=rtol)
        expected = unbiased(squares, num_rounds, num_chains)
        np.testing.assert_allclose(found.covariance, expected, rtol=rtol, atol=atol)
        np.testing.assert_array_equal(found.covariance, found.covariance.swapaxes(-1, -2))


@LONG
@DTYPES
def test_batch_means_of_many_draws_far_from_zero(rng, num_rounds, dtype, rtol):
    x = (1000 + normals(rng)).astype(dtype)
    per_chain, pooled = reduced(jaxbnn.batch_means(IN_BATCH), x, num_rounds)
    exact = x.astype(np.float64)
    batches = exact.reshape(3, -1, IN_BATCH).mean(2)
    num_batches = num_rounds * batches.shape[1]
    np.testing.assert_allclose(per_chain.mean, exact.mean(1), rtol=rtol)
    np.testing.assert_allclose(pooled.mean, exact.mean(), rtol=rtol)
    np.testing.assert_allclose(
        per_chain.standard_error, batches.std(1) / np.sqrt(num_batches - 1), rtol=rtol
    )
    np.testing.assert_allclose(
        pooled.standard_error, batches.std() / np.sqrt(3 * num_batches - 1), rtol=rtol
    )


def test_many_steps_of_a_run(rng):
    """The position counts steps; what is seen of it is looked up, the rate too."""
    rates = jnp.asarray(rng.random(LENGTH) < 0.99, jnp.float32)
    seen = jnp.asarray(1000 + rng.standard_normal(LENGTH), jnp.float32)
    at = lambda values, step: values[step.astype(jnp.int32) % LENGTH]  # noqa: E731

    def init(position, rng_key=None):
        return WalkState(position, jnp.zeros(()))

    def step(rng_key, state):
        return init(state.position + 1), RateInfo(at(rates, state.position))

    reduce = {"rate": jaxbnn.acceptance(), "mean": jaxbnn.predictive_mean(lambda i: at(seen, i))}
    draws = jaxbnn.sample(
        KEY, SamplingAlgorithm(init, step), np.zeros(2, np.float32), 10 * LENGTH, collect=None,
        reduce=reduce, progress=False,
    )  # fmt: skip
    exact = [np.asarray(values, np.float64) for values in (rates, seen)]
    found = [draws.reduced["rate"].pooled.acceptance_rate, draws.reduced["mean"].pooled.mean]
    np.testing.assert_allclose(found, [x.mean() for x in exact], rtol=3e-7)
    np.testing.assert_allclose(draws.acceptance_rate, exact[0].mean(), rtol=3e-7)
    variance = draws.reduced["mean"].pooled.variance
    np.testing.assert_allclose(variance, unbiased(exact[1].var(), 10, 2), rtol=3e-7)


def test_two_floats_add_what_one_has_no_digits_for(rng):
    x = (rng.standard_normal(3000) * 10.0 ** rng.integers(-6, 7, 3000)).astype(np.float32)
    add = lambda total, v: (total.plus(v), total)  # noqa: E731
    zero = TwoFloats.of(jnp.zeros((), jnp.float32))
    total, partial = jax.jit(lambda x: jax.lax.scan(add, zero, x))(x)
    pairs = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), (total, partial))
    np.testing.assert_allclose(sum(pairs[0]), math.fsum(x), atol=2.0**-46 * np.abs(x).sum())
    np.testing.assert_array_equal(sum(pairs[1]).astype(np.float32), pairs[1].high)
    assert total.rounded() == total.high


def test_two_floats_of_many_equal_numbers():
    """Ones, to a sum that has no digits for them, nor for what an addition of them loses."""
    start = TwoFloats.of(jnp.float32(2.0**26))
    total = jax.jit(
        lambda start: jax.lax.fori_loop(0, 1000, lambda i, t: t.plus(jnp.float32(1)), start)
    )(start)
    assert int(total.high) + int(total.low) == 2**26 + 1000


@pytest.mark.parametrize("large", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_stays_so(large):
    def results(*x):
        reducers = (jaxbnn.moments(), jaxbnn.covariance(), jaxbnn.batch_means(1))
        x = jnp.asarray(x, jnp.float32)[:, None]
        for reducer in (*reducers, jaxbnn.acceptance()):
            values = x[:, 0] if reducer.every_step else x
            r = functools.reduce(reducer.update, values, reducer.init(values[0]))
            yield type(found := reducer.finalise(r)).__name__, found

    last, after = dict(results(0.5, 2.0, large)), dict(results(0.5, large, 2.0))
    for name, field in [("Moments", "mean"), ("Covariance", "mean"), ("BatchMeans", "mean")]:
        np.testing.assert_array_equal(getattr(last[name], field), [large])
        assert np.isnan(getattr(after[name], field))
    assert np.isnan(last["Moments"].variance)
    assert np.isnan(last["BatchMeans"].standard_error)
    rate = last["Acceptance"].acceptance_rate
    np.testing.assert_allclose(rate, 2.5 / 3 if np.isnan(large) else large, rtol=1e-6)


@pytest.mark.parametrize("first", [0.0, 1e20])
def test_variances_that_no_float_holds_are_infinite(first):
    x = jnp.array([[first, 1.0], [1e20 - first, 2.0], [3.0, 4.0]], jnp.float32)
    for reducer, field in [(jaxbnn.moments(), "variance"), (jaxbnn.covariance(), "covariance")]:
        found = getattr(
            reducer.finalise(functools.reduce(reducer.update, x, reducer.init(x[0]))), field
        )
        found = np.diag(found) if field == "covariance" else found
        assert found[0] == np.inf
        np.testing.assert_allclose(found[1], 7 / 3, rtol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_half_precision_can_be_reduced(dtype):
    """Counts beyond what it holds (256; 65,504) are no part of a mean or a variance."""
    reducer = jaxbnn.moments()
    r = reducer.init(jnp.zeros((), dtype))
    pair = jnp.asarray([0.5, 1.5], dtype)

    @jax.jit
    def many(r):
        return jax.lax.fori_loop(0, 100_000, lambda i, r: reducer.update(r, pair[i % 2]), r)

    found = reducer.finalise(many(r))
    assert found.mean.dtype == jnp.float32
    np.testing.assert_allclose([found.mean, found.variance], [1, 0.25], rtol=1e-4)


def test_more_than_can_be_counted_is_refused():
    def run(num_chains, reducer, thinning):
        starts = np.zeros((num_chains, 1), np.float32)
        options = {"reduce": {"r": reducer}, "thinning": thinning, "progress": False}
        return jaxbnn.sample(KEY, ar(), starts, 3, **options)

    with pytest.raises(ValueError, match="would see 3,000,000,000 steps of all chains"):
        run(1000, jaxbnn.acceptance(), [1, 2, 3_000_000])
    with pytest.raises(ValueError, match="counts 2,147,483,647 at most"):
        check_reduced({"m": jaxbnn.moments()}, 2**20, np.arange(1, 2**11 + 1))
    check_reduced({"m": jaxbnn.moments()}, 2**20, np.arange(1, 2**11))
