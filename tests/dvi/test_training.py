"""Tests of dvi.fit_input: runs side by side, stopping, batches, and what bad input gets."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxbnn import Categorical, Gaussian, HeteroscedasticGaussian, mlp
from jaxbnn.dvi import (
    DeterministicVI,
    VIInfo,
    VIState,
    deterministic_vi,
    empirical_bayes,
    fit,
    initial_position,
)
from jaxbnn.dvi.training import _stop
from jaxbnn.sampling import BadCheckpoint
from tests.kit.bits import assert_same
from tests.kit.sizes import QUICK
from tests.sampling.small_run import stop_after

pytestmark = pytest.mark.third_party(reason="Optax promotes dtypes")

# No hidden layer: how runs are run has nothing to do with it, and this compiles fast.
NETWORK = mlp((2, 2))
GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(3, 20, 2))
Y = np.sin(X[..., 0]) + 0.1 * GENERATOR.normal(size=(3, 20))


def algorithm(**options):
    options = {"optimizer": optax.adam(0.02)} | options
    return deterministic_vi(NETWORK, HeteroscedasticGaussian(), empirical_bayes(), **options)


def starts(runs, dtype=jnp.float64):
    return initial_position(jax.random.key(0), NETWORK, shape=(runs,), dtype=dtype)


@pytest.mark.long
def test_runs_side_by_side_equal_runs_alone(x64):
    vi = algorithm(method="ddvi")
    keys = jax.random.split(jax.random.key(1), 3)
    options = {"own_data": True, "batch_size": 6, "progress": False, "chunk_size": 4}
    together = fit(keys, vi, starts(3), X, Y, 30, **options)
    assert together.updates.tolist() == [6, 12, 18, 24, 30]  # whole epochs of three batches
    one = jax.tree.map(lambda leaf: leaf[1:2], starts(3))
    alone = fit(keys[1:2], vi, one, X[1:2], Y[1:2], 30, **options)
    for a, b in zip(
        jax.tree.leaves(together.positions), jax.tree.leaves(alone.positions), strict=True
    ):
        np.testing.assert_allclose(a[1], b[0], rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(together.elbo[1], alone.elbo[0], rtol=1e-9)
    assert not np.allclose(together.elbo[0], together.elbo[1])


@pytest.mark.long
def test_stopped_runs_stay_while_others_go_on(x64):
    # The second run starts at what the first would only reach late.
    vi = algorithm(optimizer=optax.adam(optax.exponential_decay(0.05, 20, 0.7)))
    seen = []
    options = {"stop_tolerance": 1e-3, "chunk_size": 10}
    long = fit(jax.random.key(1), vi, starts(2), X[0], Y[0], 600, progress=seen.append, **options)
    assert long.converged.all()
    assert not long.diverged.any()
    assert (long.num_updates < 600).all()
    assert (long.num_updates >= 100).all()
    assert seen[-1].done == long.num_updates.max()
    assert seen[-1].elbo.shape == (2,)
    first = int(np.argmin(long.num_updates))
    assert long.num_updates[first] < long.num_updates[1 - first]
    one = jax.tree.map(lambda leaf: leaf[first : first + 1], starts(2))
    alone = fit(jax.random.key(1), vi, one, X[0], Y[0], 600, progress=False, **options)
    assert alone.num_updates[0] == long.num_updates[first]
    np.testing.assert_allclose(
        alone.positions.mean[0]["w"][0], long.positions.mean[0]["w"][first], rtol=1e-8, atol=1e-10
    )
    late = fit(
        jax.random.key(1),
        vi,
        starts(2),
        X[0],
        Y[0],
        600,
        progress=False,
        min_updates=590,
        **options,
    )
    assert (late.num_updates >= 590).all()


def test_noise_of_batches_does_not_hide_that_nothing_moves():
    """A q that stays, with an ELBO that differs from batch to batch and by its draws."""

    def elbo(q, x, y, rng_key, num_data):
        value = jnp.sum(y) * num_data / y.shape[0] + jax.random.normal(rng_key)
        return VIInfo(value, value, value)

    def step(rng_key, state, x, y, num_data):
        info = elbo(state.position, x, y, rng_key, num_data)
        return state._replace(num_updates=state.num_updates + 1), info

    still = DeterministicVI(
        lambda q: VIState(q, (), jnp.zeros((), jnp.int32)),
        step,
        None,
        elbo,
        None,
        lambda x, y: None,
    )
    result = fit(
        jax.random.key(1), still, jnp.zeros((2, 1)), X[0], Y[0], 60, batch_size=6, chunk_size=3,
        stop_tolerance=1e-6, progress=False,
    )  # fmt: skip
    assert result.converged.all()
    assert result.num_updates.tolist() == [30, 30]
    assert result.elbo.std() > 1e-3


def test_stop_rule_looks_at_the_last_tenth():
    updates = np.arange(10, 210, 10)
    falling = np.array([[-1000.0 + u, -5.0] for u in updates]).T
    status = np.asarray(_stop(jnp.zeros(2, jnp.int32), falling, updates, 1.0))
    assert status.tolist() == [0, 1]
    few = np.asarray(_stop(jnp.zeros(2, jnp.int32), falling[:, :9], updates[:9], 1.0))
    assert few.tolist() == [0, 0]


def test_a_diverged_run_is_told_and_frozen():
    vi = algorithm()
    positions = starts(2, jnp.float32)
    # A log variance of 1e3 for one weight: its ELBO is not finite.
    spoiled = positions.log_scale[0]["w"].at[1, 0, 0].set(1e3)
    log_scale = ({"w": spoiled, "b": positions.log_scale[0]["b"]}, *positions.log_scale[1:])
    result = fit(
        jax.random.key(0), vi, positions._replace(log_scale=log_scale), X[0], Y[0], 10,
        progress=False,
    )  # fmt: skip
    assert result.diverged.tolist() == [False, True]
    assert result.num_updates.tolist() == [10, 0]
    assert np.isfinite(result.elbo[0]).all()
    assert np.isfinite(jax.tree.leaves(result.positions.mean)[0]).all()


def test_warm_up_and_clipping():
    """With no weight on the divergence, one clipped step of descent moves by the clip."""
    rate, clip = 0.5, 1e-3
    optimizer = optax.chain(optax.clip(clip), optax.sgd(rate))
    schedule = optax.linear_schedule(0.0, 1.0, 1, 1)
    vi = algorithm(optimizer=optimizer, kl_weight=schedule)
    state = vi.init(jax.tree.map(lambda leaf: leaf[0], starts(1, jnp.float32)))
    step = jax.jit(vi.step, compiler_options=QUICK)
    x, y = X[0].astype("f4"), Y[0].astype("f4")
    for expected_weight in (0.0, 0.0, 1.0):
        before = state.position
        state, info = step(jax.random.key(0), state, x, y)
        moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), state.position, before)
        assert max(jax.tree.leaves(moved)) <= clip * rate * 1.01
        assert float(info.kl) > 0
        weight = float(schedule(state.num_updates - 1))
        assert weight == expected_weight
    # A weight with no datum behind it feels the divergence alone: an unused input of zeros.
    zeros = np.zeros_like(x)
    for count, pulled in ((0, False), (5, True)):
        start = state._replace(num_updates=jnp.asarray(count, jnp.int32))
        after, _ = step(jax.random.key(0), start, zeros, y)
        change = np.abs(after.position.mean[0]["w"] - start.position.mean[0]["w"]).max()
        assert (change > 0) == pulled


def test_bad_input_gets_one_sentence():
    vi, positions = algorithm(), starts(1, jnp.float32)
    x, y = X[0], Y[0]

    def attempt(x=x, y=y, positions=positions, vi=vi, **options):
        fit(jax.random.key(0), vi, positions, x, y, 5, progress=False, **options)

    with pytest.raises(ValueError, match=r"batch_size must be at most .* 20, but is 21"):
        attempt(batch_size=21)
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        attempt(batch_size=0)
    with pytest.raises(ValueError, match="chunk_size must be at least 1"):
        attempt(chunk_size=-1)
    with pytest.raises(ValueError, match="stop_tolerance must be positive"):
        attempt(stop_tolerance=-1e-3)
    with pytest.raises(ValueError, match="no rows"):
        attempt(x=x[:0], y=y[:0])
    with pytest.raises(ValueError, match="x holds nan"):
        attempt(x=np.full_like(x, np.nan))
    with pytest.raises(ValueError, match="same leading axes"):
        attempt(y=y[:-1])
    with pytest.raises(ValueError, match="3 data sets for 1 runs"):
        attempt(x=X, y=Y, own_data=True)
    with pytest.raises(ValueError, match="positions must be stacked"):
        attempt(positions=initial_position(jax.random.key(0), mlp((2, 3))))
    with pytest.raises(ValueError, match="output width 4"):
        attempt(y=np.stack([y, y], axis=1))
    classes = deterministic_vi(mlp((2, 3)), Categorical(), empirical_bayes())
    more = initial_position(jax.random.key(0), mlp((2, 3)), shape=(1,))
    with pytest.raises(ValueError, match=r"labels must lie in 0\.\.2.*holds 3"):
        attempt(y=np.arange(20) % 4, positions=more, vi=classes)
    with pytest.raises(ValueError, match="variance must be positive"):
        initial_position(jax.random.key(0), NETWORK, variance=0.0)
    tanh = deterministic_vi(mlp((2, 4, 1), "tanh"), Gaussian(0.1), empirical_bayes())
    q = initial_position(jax.random.key(0), mlp((2, 4, 1), "tanh"))
    with pytest.raises(ValueError, match="gauss_hermite"):
        tanh.elbo(q, x.astype("f4"), y.astype("f4"))


STORED = {"batch_size": 6, "chunk_size": 3, "stop_tolerance": 1e-9, "own_data": True}


def stored(folder, progress=False, *, shift=0.0, rate=0.02, **options):
    vi = algorithm(method="ddvi", optimizer=optax.adam(rate))
    num_updates = options.pop("num_updates", 41)  # no whole number of chunks
    options = STORED | options
    key = options.pop("key", jax.random.key(1))
    positions = starts(3, jnp.float32)
    return fit(
        key,
        vi,
        positions,
        X,
        Y + shift,
        num_updates,
        checkpoint=folder,
        progress=progress,
        **options,
    )


def test_a_fit_that_was_stopped_goes_on_bit_for_bit(tmp_path):
    whole = stored(None)
    assert whole.updates.tolist() == [*range(3, 42, 3), 41]
    for num_chunks in (2, 5):
        with pytest.raises(KeyboardInterrupt):
            stored(tmp_path, stop_after(num_chunks))
    seen = []
    assert_same(stored(tmp_path, seen.append), whole)
    assert [p.done for p in seen] == [*range(24, 42, 3), 41]
    before = (tmp_path / "training.nc").read_bytes()
    assert_same(stored(tmp_path, seen.append), whole)
    assert len(seen) == 7
    assert (tmp_path / "training.nc").read_bytes() == before


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"shift": 1.0}, "data set"),
        ({"key": jax.random.key(3)}, "key"),
        ({"num_updates": 50}, "num_updates"),
        ({"batch_size": 5}, "batch_size"),
        ({"stop_tolerance": 1e-3}, "stop_tolerance"),
        ({"rate": 0.01}, "program"),
    ],
)
def test_another_fit_is_refused(tmp_path_factory, options, part):
    folder = tmp_path_factory.getbasetemp() / "stopped"
    if not folder.exists():
        with pytest.raises(KeyboardInterrupt):
            stored(folder, stop_after(2))
    with pytest.raises(BadCheckpoint, match=f"belongs to a training with another .*{part}"):
        stored(folder, **options)


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda number: optax.inject_hyperparams(optax.adam)(learning_rate=number),
        lambda number: optax.adagrad(0.02, initial_accumulator_value=number),
    ],
    ids=["inject_hyperparams", "adagrad"],
)
def test_settings_in_the_state_of_an_optimiser_are_compared(optimizer, tmp_path):
    """The program is the same: a fit would go on with the stored ones."""

    def run(number, progress=False):
        vi = algorithm(method="ddvi", optimizer=optimizer(number))
        options = {"chunk_size": 2, "progress": progress, "checkpoint": tmp_path}
        return fit(jax.random.key(1), vi, starts(1, jnp.float32), X[0], Y[0], 6, **options)

    with pytest.raises(KeyboardInterrupt):
        run(0.01, stop_after(1))
    with pytest.raises(
        BadCheckpoint, match="a training with another first state of the optimiser; call with what"
    ):
        run(0.02)
    assert run(0.01).num_updates.tolist() == [6]
