"""Truncated MALA: balance and exact starts in a box, bounds that hold in float32."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxbnn.kernels import truncated_mala
from jaxbnn.kernels.truncated_mala import truncated_mala_log_ratio
from tests.kit import Target, both_sizes, check_exact_start, check_flux_identity, for_mutants
from tests.kit.exact_start import position_functions
from tests.kit.sizes import QUICK

TILT, STEP_SIZE = 1.5, 0.8
BOX = {"a": (0.0, 1.0), "b": (0.0, np.inf)}
LOWER, UPPER = {"a": 0.0, "b": 0.0}, {"a": 1.0, "b": np.inf}


def tilted_box() -> Target:
    """Density a exp(TILT a) on [0, 1], and b given a exponential with rate 1 + 2 a."""

    def sample(key):
        key_a, key_b = jax.random.split(key)
        u = jax.random.uniform(key_a)
        a = jnp.log1p(u * jnp.expm1(TILT)) / TILT
        return {"a": a, "b": jax.random.exponential(key_b) / (1 + 2 * a)}, None

    def log_density(x, data=None):
        return TILT * x["a"] + jnp.log(1 + 2 * x["a"]) - (1 + 2 * x["a"]) * x["b"]

    cdfs = {"x0": lambda a: np.expm1(TILT * np.clip(a, 0, 1)) / np.expm1(TILT)}
    return Target(sample, log_density, lambda x, data: position_functions(x, log_density(x)), cdfs)


TARGET = tilted_box()


def log_pi(x):
    rate = 1 + 2 * x["a"]
    return TILT * x["a"] + stats.expon.logpdf(x["b"], scale=1 / rate)


def log_q(x, y):
    """The proposal from its definition: independent truncated normals, by SciPy."""
    gradient = {"a": TILT + 2 / (1 + 2 * x["a"]) - 2 * x["b"], "b": -(1 + 2 * x["a"])}
    total = 0.0
    for name, (low, high) in BOX.items():
        mean = x[name] + STEP_SIZE**2 / 2 * gradient[name]
        ends = (low - mean) / STEP_SIZE, (high - mean) / STEP_SIZE
        total += stats.truncnorm.logpdf(y[name], *ends, loc=mean, scale=STEP_SIZE)
    return total


def normaliser(state, product):
    """Sum over coordinates of the log normaliser as printed, or the right one."""
    total = jnp.zeros(())
    for i, (low, high) in enumerate(BOX.values()):
        x = jnp.stack(jax.tree.leaves(state.position))[i]
        mean = x + STEP_SIZE**2 / 2 * state.gradient[i]
        below, above = ((end - mean) / STEP_SIZE for end in (low, high))
        cdf = jax.scipy.stats.norm.cdf
        mass = cdf(above) * cdf(below) if product else cdf(above) - cdf(below)
        total = total + jnp.log(mass)
    return total


def replaced_normaliser(product):
    """The log ratio with the difference of erratum D1 taken out, and the product put in."""

    def mutant(state, proposal, step_size, lower, upper):
        right = truncated_mala_log_ratio(state, proposal, step_size, lower, upper)
        right = right - (normaliser(state, False) - normaliser(proposal, False))
        if product:
            right = right + (normaliser(state, True) - normaliser(proposal, True))
        return right

    return mutant


MUTANTS = {"product normaliser": replaced_normaliser(True), "none": replaced_normaliser(False)}


def log_ratio(rule):
    kernel = truncated_mala(TARGET.log_density, STEP_SIZE, LOWER, UPPER)
    return lambda x, y: rule(kernel.init(x), kernel.init(y), STEP_SIZE, LOWER, UPPER)


@pytest.fixture
def pairs(rng):
    def draw():
        return {"a": rng.uniform(size=300), "b": rng.exponential(size=300) * 3}

    return draw(), draw()


def test_flux_identity(pairs):
    result = check_flux_identity(log_pi, log_q, log_ratio(truncated_mala_log_ratio), pairs)
    assert result.passes, result


@pytest.mark.short("none")
@pytest.mark.parametrize("name", MUTANTS)
def test_wrong_ratios_do_not_balance(pairs, name):
    result = check_flux_identity(log_pi, log_q, log_ratio(MUTANTS[name]), pairs)
    assert result.largest > 0.1


@both_sizes()
def test_exact_draws_stay_exact(num_chains):
    kernel = truncated_mala(TARGET.log_density, STEP_SIZE, LOWER, UPPER)
    result = check_exact_start(kernel, TARGET, steps=3, num_chains=num_chains)
    assert result.passes, str(result)


@for_mutants()
@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_found(monkeypatch, name, num_chains):
    module = importlib.import_module("jaxbnn.kernels.truncated_mala")
    monkeypatch.setattr(module, "truncated_mala_log_ratio", MUTANTS[name])
    kernel = truncated_mala(TARGET.log_density, STEP_SIZE, LOWER, UPPER)
    result = check_exact_start(kernel, TARGET, steps=3, num_chains=num_chains)
    assert not result.passes, str(result)
    assert result.moved > 0.1
    assert any(result.distances[f] > result.thresholds[f] for f in result.distances)


def last_positions(kernel, start, num_chains=1000, num_steps=10):
    def chain(key):
        def step(state, i):
            state, info = kernel.step(jax.random.fold_in(key, i), state)
            return state, (state.position, info.is_accepted)

        return jax.lax.scan(step, kernel.init(start), jnp.arange(num_steps))[1]

    keys = jax.random.split(jax.random.key(1), num_chains)
    return jax.jit(jax.vmap(chain), compiler_options=QUICK)(keys)


@pytest.mark.long
@pytest.mark.parametrize("slope", [0.0, 30.0, -1e4])
def test_positions_stay_in_the_box_in_float32(slope):
    """Bounds that float32 has to round, far from zero, and a drift through the wall."""
    low, high = np.array([100.1, -0.3, -np.inf]), np.array([100.2, 1e-3, 7.7])
    kernel = truncated_mala(lambda x: slope * jnp.sum(x), 0.7, low, high)
    start = jnp.array([100.15, 0.0, 7.0])
    positions, accepted = last_positions(kernel, start)
    assert positions.dtype == jnp.float32
    assert np.all(np.asarray(positions) >= low.astype(np.float32))
    assert np.all(np.asarray(positions) <= high.astype(np.float32))
    assert np.mean(accepted) > 0.1


def test_ratios_hold_in_float32_far_outside_the_box(x64):
    """A slope of 5,000 puts the mean 500 standard deviations beyond the wall."""

    def ratio(x, y, dtype):
        kernel = truncated_mala(lambda x: -5000 * x[0], jnp.asarray(0.2, dtype), 0.0, 1.0)

        def between(x, y):
            states = kernel.init(x), kernel.init(y)
            return truncated_mala_log_ratio(*states, jnp.asarray(0.2, dtype), 0.0, 1.0)

        x, y = (jnp.asarray([v], dtype) for v in (x, y))
        return jax.jit(between, compiler_options=QUICK)(x, y)

    for x, y in ((1e-4, 3e-4), (2e-3, 1e-5)):
        single, double = ratio(x, y, jnp.float32), ratio(x, y, jnp.float64)
        assert single.dtype == jnp.float32
        assert abs(float(double)) < 20
        assert abs(float(single) - float(double)) < 2e-3


def test_without_bounds_it_is_mala(x64):
    def log_density(x):
        return jnp.sum(x - jnp.exp(x))

    kernel = truncated_mala(log_density, 0.6, -jnp.inf, jnp.inf)
    x, y = np.array([0.3, -1.0]), np.array([-0.2, 0.4])
    found = truncated_mala_log_ratio(
        kernel.init(jnp.asarray(x)), kernel.init(jnp.asarray(y)), 0.6, -jnp.inf, jnp.inf
    )

    def log_normal(x, y):
        return stats.norm.logpdf(y, x + 0.18 * (1 - np.exp(x)), 0.6).sum()

    expected = (y - np.exp(y) - x + np.exp(x)).sum() + log_normal(y, x) - log_normal(x, y)
    assert float(found) == pytest.approx(expected, abs=1e-12)


@pytest.mark.long
def test_smaller_steps_are_accepted_more_often():
    def rate(step_size):
        kernel = truncated_mala(TARGET.log_density, step_size, LOWER, UPPER)

        def one(key):
            key_start, key_step = jax.random.split(key)
            start, _ = TARGET.sample(key_start)
            return kernel.step(key_step, kernel.init(start))[1].acceptance_rate

        return jnp.mean(jax.vmap(one)(jax.random.split(jax.random.key(0), 4000)))

    step_sizes = jnp.asarray([0.01, 0.2, 0.6, 1.5], jnp.float32)
    rates = np.asarray(jax.jit(jax.vmap(rate), compiler_options=QUICK)(step_sizes))
    assert np.all(np.diff(rates) < -0.02), rates
    assert rates[0] > 0.98


def test_bad_input_is_refused():
    def log_density(x):
        return -jnp.sum(x["w"] ** 2)

    start = {"b": jnp.array(0.5), "w": jnp.array([0.5, 2.0])}
    with pytest.raises(ValueError, match="step_size must be positive"):
        truncated_mala(log_density, -1.0, 0.0, 1.0)
    with pytest.raises(ValueError, match=r"position\['w'\] starts at 2, outside of its bounds"):
        truncated_mala(log_density, 0.1, 0.0, 1.0).init(start)
    with pytest.raises(ValueError, match=r"lower must be below upper .* position\['b'\]"):
        truncated_mala(log_density, 0.1, {"b": 1.0, "w": 0.0}, {"b": 1.0, "w": 3.0}).init(start)
    with pytest.raises(ValueError, match="lower must be below upper"):
        truncated_mala(log_density, 0.1, 0.0, np.nan).init(start)
    with pytest.raises(ValueError, match=r"lower must be below upper .* in float32"):
        truncated_mala(log_density, 0.1, 0.5, 0.5 + 1e-9).init({"w": jnp.full(1, 0.5)})
    with pytest.raises(ValueError, match=r"upper bound of position\['w'\] has shape \(3,\)"):
        truncated_mala(log_density, 0.1, 0.0, {"b": 1.0, "w": np.ones(3)}).init(start)
    with pytest.raises(ValueError, match="bounds must be numbers or shaped like the position"):
        truncated_mala(log_density, 0.1, {"b": 0.0}, 3.0).init(start)
