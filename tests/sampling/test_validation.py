"""Tests of sampling.contract: bad input ends in one sentence, before anything is compiled."""

import inspect

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbnn
from tests.kit import hostile_runner
from tests.sampling.tiny import ar, normal_log_density, walk

KEY = jax.random.key(0)
STARTS = np.zeros((3, 2), np.float32)
KERNEL = ar()
NAN = STARTS.copy()
NAN[2, 0] = np.nan


def make_kernel(parameters, data):
    return walk(normal_log_density, parameters["step_size"])


def no_step(parameters, data):
    return blackjax.slice_sampling(normal_log_density)


def run(kernel=KERNEL, positions=STARTS, num_samples=3, **options):
    return jaxbnn.sample(KEY, kernel, positions, num_samples, progress=False, **options)


STEP = {"kernel": make_kernel, "parameters": {"step_size": 0.1}}
MISTAKES = {
    "NaN position": ({"positions": NAN}, r"positions of chain 2 is not finite"),
    "NaN position of 16 bits": (
        {"positions": jnp.asarray(NAN, jnp.bfloat16)},
        r"positions of chain 2 is not finite",
    ),
    "infinite position": (
        {"positions": {"w": STARTS, "b": np.array([0.0, np.inf, 0.0])}},
        r"positions\['b'\] of chain 1 is not finite",
    ),
    "unequal chains": (
        {"positions": ({"w": STARTS}, {"w": STARTS[:2]})},
        r"positions\[0\]\['w'\] has 3 chains .* but positions\[1\]\['w'\] has 2",
    ),
    "no chain axis": ({"positions": {"w": STARTS, "b": np.float32(1)}}, "without a chain axis"),
    "a Python number": ({"positions": 0.0}, "without a chain axis"),
    "no arrays": ({"positions": ((), {})}, "holds no arrays"),
    "zero chains": ({"positions": STARTS[:0]}, "holds zero chains"),
    "zero samples": ({"num_samples": 0}, "num_samples must be at least 1, but is 0"),
    "negative warm-up": ({"num_warmup": -1}, "num_warmup must be at least 0, but is -1"),
    "chunk size": ({"chunk_size": 0}, "chunk_size must be at least 1, but is 0"),
    "thinning 0": ({"thinning": 0}, "thinning must be at least 1, but is 0"),
    "schedule of floats": ({"thinning": np.array([1.0, 2.0, 3.0])}, "schedule of whole numbers"),
    "schedule of two axes": ({"thinning": np.ones((3, 1), int)}, "one-dimensional schedule"),
    "short schedule": ({"thinning": [1, 2]}, "keeps 2 draws, but num_samples is 3"),
    "schedule from 0": ({"thinning": [0, 1, 2]}, "increase strictly from 1"),
    "flat schedule": ({"thinning": [1, 2, 2]}, "increase strictly from 1"),
    "falling schedule": ({"thinning": np.array([5, 3, 7], np.uint32)}, "increase strictly from 1"),
    "too many steps": ({"thinning": [1, 2, 2**32 - 1]}, "4,294,967,294 steps"),
    "step size 0": (STEP | {"parameters": {"step_size": 0.0}}, r"\['step_size'\] must be positive"),
    "an energy error below 0": (
        STEP | {"parameters": {"step_size": 0.5, "energy_error": -0.1}},
        r"\['energy_error'\] must be positive",
    ),
    "one chain's step size": (
        STEP | {"parameters": {"step_size": np.array([0.1, -0.2, 0.1])}},
        r"parameters\['step_size'\] must be positive and finite, but is -0.2 at entry 1 of 3",
    ),
    "infinite parameter": (
        STEP | {"parameters": {"step_size": 0.1, "mean": np.full(3, np.inf)}},
        r"parameters\['mean'\] holds inf",
    ),
    "parameters of too few chains": (
        STEP | {"parameters": {"step_size": np.ones(2)}},
        r"parameters\['step_size'\] has a leading axis of length 2, but there are 3 chains",
    ),
    "NaN data": (STEP | {"data": {"x": np.array([[0.0], [np.nan]])}}, r"data\['x'\] holds nan"),
    "adaptation without warm-up": (
        STEP | {"adapt": jaxbnn.dual_averaging(0.5)},
        "adapt changes parameters in warm-up only; give num_warmup",
    ),
    "adaptation for another warm-up": (
        STEP | {"adapt": jaxbnn.window_adaptation(100), "num_warmup": 50},
        "laid out over 100 warm-up steps, but num_warmup is 50",
    ),
    "adaptation of a finished kernel": (
        {"adapt": jaxbnn.dual_averaging(0.5), "num_warmup": 5},
        "kernel is a SamplingAlgorithm already",
    ),
    "parameters of a finished kernel": ({"parameters": {"a": 1.0}}, "SamplingAlgorithm already"),
    "data of a finished kernel": ({"data": np.ones(2)}, "SamplingAlgorithm already"),
    "nothing to adapt": (
        {"kernel": lambda parameters, data: KERNEL, "parameters": {"a": 1.0}, "num_warmup": 5}
        | {"adapt": jaxbnn.dual_averaging(0.5)},
        r"changes parameters\['step_size'\], which is not there",
    ),
    "no parameters to adapt": (
        {"kernel": no_step, "num_warmup": 5, "adapt": jaxbnn.dual_averaging(0.5)},
        r"changes parameters\['step_size'\], which is not there",
    ),
    "a whole-number step size to adapt": (
        STEP
        | {"parameters": {"step_size": 1}}
        | {"adapt": jaxbnn.dual_averaging(0.5), "num_warmup": 5},
        "holds whole numbers, which cannot be tuned",
    ),
    "a schedule of nothing": (
        STEP | {"adapt": jaxbnn.schedule(lambda t: {"noise": 1.0}), "num_warmup": 5},
        r"changes parameters\['noise'\], which is not there",
    ),
}


@pytest.mark.parametrize(("default", "impl"), [("threefry2x32", "rbg"), ("rbg", "threefry2x32")])
def test_raw_keys_of_another_implementation_get_one_sentence(default, impl):
    key = jax.random.key_data(jax.random.key(0, impl=impl))
    with (
        jax.default_prng_impl(default),
        pytest.raises(ValueError, match=rf'key is raw and has {len(key)} words.*impl="{impl}"'),
    ):
        jaxbnn.sample(key, KERNEL, STARTS, 3, progress=False)


def test_keys_whose_numbers_depend_on_where_chunks_are_cut_are_refused():
    key = jax.random.key(0, impl="unsafe_rbg")
    with pytest.raises(ValueError, match=r'computed beside it; give .*impl="rbg"'):
        jaxbnn.sample(key, KERNEL, STARTS, 3, progress=False)
    with (
        jax.default_prng_impl("unsafe_rbg"),
        pytest.raises(ValueError, match="computed beside it"),
    ):
        jaxbnn.sample(jax.random.key_data(key), KERNEL, STARTS, 3, progress=False)
    jaxbnn.sample(jax.random.key(0, impl="rbg"), KERNEL, STARTS, 3, progress=False)


@pytest.mark.parametrize("name", MISTAKES)
def test_one_sentence(name):
    options, sentence = MISTAKES[name]
    with pytest.raises(ValueError, match=sentence) as caught:
        run(**options)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


@pytest.mark.third_party(reason="BlackJAX's slice sampler promotes dtypes")
@pytest.mark.parametrize(
    "options",
    [
        {"num_warmup": 5, "parameters": {"step_size": 0.1}, "adapt": jaxbnn.dual_averaging(0.5)},
        {"reduce": {"a": jaxbnn.acceptance()}},
    ],
    ids=["adaptation", "reducer"],
)
def test_a_kernel_without_acceptance_rate_is_named(options):
    with pytest.raises(ValueError, match=r"Info \(SliceInfo\) has none"):
        run(kernel=no_step, **options)


@pytest.mark.parametrize(("value", "chain"), [(np.nan, 1), (-np.inf, 1), (np.inf, 1)])
def test_a_log_density_that_is_not_finite_names_the_chain(value, chain):
    def log_density(x):
        return jnp.where(x[0] > 2, jnp.asarray(value, x.dtype), -jnp.sum(x**2))

    starts = STARTS.copy()
    starts[chain] = 5.0
    with pytest.raises(ValueError, match=f"chain {chain} cannot start: log_density is"):
        run(walk(log_density), starts)


def test_a_gradient_that_is_nan_names_the_chain():
    # Finite at 0, its derivative is 0/0 there.
    kernel = blackjax.mala(lambda x: -jnp.sum(jnp.sqrt(x**2)), 0.1)
    with pytest.raises(ValueError, match="chain 1 cannot start: logdensity_grad is nan"):
        run(kernel, np.array([[1.0, 1.0], [1.0, 0.0]], np.float32))


def test_infinities_that_are_no_densities_may_start():
    def make(parameters, data):
        return walk(lambda x: -jnp.sum(x**2), jnp.exp(parameters["log_step_size"]))

    draws = run(make, parameters={"log_step_size": -1.0})  # negative, and right so
    assert np.isfinite(draws.positions).all()


@pytest.mark.parametrize("target", [0.0, 1.0, -0.5, 23.4])
def test_target_acceptance_rates_lie_between_0_and_1(target):
    for adaptation in (
        lambda: jaxbnn.dual_averaging(target),
        lambda: jaxbnn.window_adaptation(10, target_acceptance_rate=target),
    ):
        with pytest.raises(ValueError, match="must lie between 0 and 1"):
            adaptation()


@pytest.mark.parametrize("learning_rate", [0.0, -0.05, np.nan])
def test_learning_rates_are_positive(learning_rate):
    with pytest.raises(ValueError, match="learning_rate must be positive"):
        jaxbnn.dual_averaging(0.8, learning_rate=learning_rate)


def test_window_adaptation_needs_steps():
    with pytest.raises(ValueError, match="num_warmup must be at least 1, but is 0"):
        jaxbnn.window_adaptation(0)


CALLS = {
    f"{kind}: {name}": call
    for kind, calls in {
        "kernel": hostile_runner.KERNELS,
        "function": hostile_runner.FUNCTIONS,
        "key": hostile_runner.KEYS,
        "chain axis": hostile_runner.STARTS_OF_ONE_NUMBER,
    }.items()
    for name, call in calls.items()
}
WORDS = {
    "kernel: a tuple": "write blackjax.SamplingAlgorithm(init, step)",
    "kernel: a factory": "call it, as in blackjax.mala(log_density, 0.1)",
    "kernel: init of one argument": "cannot be called as kernel.init(position, rng_key)",
    "kernel: no position": "has no field position",
    "kernel: a dtype that drifts": "kernel.step changes state.count from int32[] to float32[]",
    "key: an int": "key must be one key such as jax.random.key(0), but is 0",
    "key: within jit": "sample cannot be called inside jax.jit",
    "key: closed over by jit": "sample cannot be called inside jax.jit",
    "chain axis: an index": "5 chains of one number each, from which the kernel cannot start",
    "chain axis: a Posterior's pCN": "one chain of 5 numbers is positions[None]",
}


@pytest.mark.third_party(reason="the mistakes are made as a user's program makes them")
@pytest.mark.parametrize("name", CALLS)
def test_a_mistake_is_one_sentence(monkeypatch, name):
    # Without the import hook, whose annotations would refuse some calls in many lines.
    monkeypatch.setattr(jaxbnn, "sample", inspect.unwrap(jaxbnn.sample))
    with pytest.raises((ValueError, TypeError)) as caught:
        CALLS[name]()
    message = str(caught.value)
    assert WORDS.get(name, "") in message
    assert message.endswith(".")
    assert "\n" not in message
    assert len(message) < 500


def test_chains_of_one_number_are_told(capsys):
    draws = jaxbnn.sample(KEY, walk(normal_log_density), np.zeros(5, np.float32), 4)
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "5 chains of one number"
    assert "4/4 steps" in told[1]
    assert repr(draws).startswith("Draws(5 chains of one number, 4 draws each, acceptance rate 0.")
    draws = run()
    assert "5 chains" not in capsys.readouterr().err
    assert repr(draws).startswith("Draws(3 chains of 2 numbers, 3 draws each, acceptance rate")
    assert repr(draws).endswith("; positions: float32 (3, 3, 2))")
    assert repr(run(collect=None)).endswith("; no positions kept)")


@pytest.mark.parametrize("which", ["data", "parameters", "positions"])
@pytest.mark.parametrize("beyond", [np.array([3_000_000_000]), np.array([1e39])])
def test_numbers_that_jax_does_not_hold_are_refused(which, beyond):
    """It would wrap them, or make them infinite, without a word."""
    given = {"data": np.zeros(1), "parameters": np.ones(1), "positions": np.zeros((1, 2))}
    given[which] = np.broadcast_to(beyond, np.shape(given[which]))

    def run():
        positions, parameters, data = given["positions"], given["parameters"], given["data"]
        options = {"parameters": {"s": parameters}, "data": {"d": data}, "progress": False}
        return jaxbnn.sample(KEY, lambda p, d: ar(), positions, 3, **options)

    with pytest.raises(ValueError, match=which + r".* holds (3e\+09|1e\+39), which (int|float)32"):
        run()
    with jax.enable_x64(True):
        if which == "data":
            assert run().positions.shape == (1, 3, 2)


@pytest.mark.parametrize("place", [0, 1])
def test_data_that_are_rounded_are_told(place):
    """Within the run, where a posterior is made of them, nothing can look at them."""
    seconds = 1.7e9 + np.arange(50.0)
    data = [np.arange(50.0), np.arange(50.0)]
    data[place] = seconds
    options = {"data": tuple(data), "progress": False}
    with pytest.warns(UserWarning, match=rf"^data\[{place}\], of numbers .* rounded to float32"):
        jaxbnn.sample(KEY, lambda parameters, data: KERNEL, STARTS, 1, **options)
