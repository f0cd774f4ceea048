"""Tests of sampling.draws: streaming reducers against NumPy on stored draws, and what `collect`
chooses.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbnn
from tests.sampling.tiny import ar

KEY = jax.random.key(11)
STARTS = np.array([[0.0, 1.0], [-4.0, 2.0], [2.0, 0.5]], np.float32)
NUM, BATCH = 100, 7


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


def test_bad_batch_size():
    with pytest.raises(ValueError, match="batch_size must be at least 1, but is 0"):
        jaxbnn.batch_means(0)
