"""pCNL keeps its target; the acceptances that its paper prints do not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbnn
from jaxbnn.kernels import dense_covariance
from jaxbnn.kernels.crank_nicolson import beta_from_delta
from jaxbnn.kernels.pcnl import PCNLState, pcnl, pcnl_log_ratio
from tests.kernels.reference_measure import (
    COVARIANCE,
    MEAN,
    TARGET,
    gradient,
    log_likelihood,
    log_normal,
    module_of,
    stale,
)
from tests.kit import both_sizes, check_exact_start, check_flux_identity, counting, random_pairs
from tests.kit.sizes import QUICK
from tests.kit.targets import skew_banana_log_density

DELTA = 0.4


def kernel():
    return pcnl(log_likelihood, delta=DELTA, covariance=dense_covariance(COVARIANCE), mean=MEAN)


def log_proposal(x, y):
    """Equation (6) around m."""
    away = (2 - DELTA) * (x - MEAN) + 2 * DELTA * COVARIANCE @ gradient(x)
    return log_normal(y, MEAN + away / (2 + DELTA), 8 * DELTA / (2 + DELTA) ** 2 * COVARIANCE)


def printed_parts(state, proposal):
    """Return u - m, v - m, g_u, g_v, l(u), l(v), C of the paper's formulas."""
    dtype = state.position.dtype
    mean = jnp.asarray(MEAN, dtype)
    return (
        state.position - mean,
        proposal.position - mean,
        state.gradient,
        proposal.gradient,
        jnp.sum(state.log_likelihood),
        jnp.sum(proposal.log_likelihood),
        jnp.asarray(COVARIANCE, dtype),
    )


def rho(u, v, g, l, covariance):
    return (
        -l
        - jnp.sum((v - u) * g) / 2
        - DELTA / 4 * jnp.sum((u + v) * g)
        + DELTA / 4 * jnp.sum(g * (covariance @ g))
    )


def rho_difference(state, proposal, *args):
    """Not a defect: erratum B6, exp(rho(u, v) - rho(v, u))."""
    u, v, g_u, g_v, l_u, l_v, covariance = printed_parts(state, proposal)
    return rho(u, v, g_u, l_u, covariance) - rho(v, u, g_v, l_v, covariance)


def equation_7(state, proposal, *args):
    """Defect: exp(rho(u, v)) - rho(v, u), as printed."""
    u, v, g_u, g_v, l_u, l_v, covariance = printed_parts(state, proposal)
    ratio = jnp.exp(rho(u, v, g_u, l_u, covariance)) - rho(v, u, g_v, l_v, covariance)
    return jnp.log(jnp.maximum(ratio, 0.0))


def algorithm_2(state, proposal, *args):
    """Defect: p(v | D) / p(u | D), without the proposal's ratio."""
    u, v, _, _, l_u, l_v, covariance = printed_parts(state, proposal)
    precision = jnp.linalg.inv(covariance)
    return l_v - l_u - (jnp.sum(v * (precision @ v)) - jnp.sum(u * (precision @ u))) / 2


def appendix_b(state, proposal, *args):
    """Defect: the sign of <u - v, g_u + g_v> / 2."""
    u, v, g_u, g_v, *_ = printed_parts(state, proposal)
    return rho_difference(state, proposal) - jnp.sum((u - v) * (g_u + g_v))


def without_mean(state, proposal, delta, covariance, mean):
    return pcnl_log_ratio(state, proposal, delta, covariance, None)


def without_covariance(state, proposal, delta, covariance, mean):
    return pcnl_log_ratio(state, proposal, delta, None, mean)


def delta_for_beta(state, proposal, delta, covariance, mean):
    return pcnl_log_ratio(state, proposal, beta_from_delta(delta), covariance, mean)


RATIO_MUTANTS = [
    equation_7,
    algorithm_2,
    appendix_b,
    without_mean,
    without_covariance,
    delta_for_beta,
]


def flux(log_ratio, rng):
    init = pcnl(log_likelihood, delta=DELTA).init
    covariance = COVARIANCE.tolist()

    def ratio(x, y):
        # Made in here, in float64.
        operator = dense_covariance(jnp.asarray(covariance, x.dtype))
        return log_ratio(init(x), init(y), DELTA, operator, MEAN)

    return check_flux_identity(
        skew_banana_log_density, log_proposal, ratio, random_pairs(rng, 200, 2)
    )


@pytest.mark.parametrize("log_ratio", [pcnl_log_ratio, rho_difference])
def test_flux_identity(log_ratio, rng):
    result = flux(log_ratio, rng)
    assert result.passes, result


@pytest.mark.parametrize("log_ratio", RATIO_MUTANTS)
def test_wrong_ratios_break_the_flux_identity(log_ratio, rng):
    assert flux(log_ratio, rng).largest > 0.1


@both_sizes()
def test_exact_draws_stay_exact(num_chains):
    result = check_exact_start(kernel(), TARGET, steps=3, num_chains=num_chains)
    assert result.passes, str(result)


@pytest.mark.long
@pytest.mark.parametrize(
    ("field", "num_chains"),
    [
        ("gradient", 100_000),
        pytest.param("gradient", None, marks=pytest.mark.long),
        pytest.param("log_likelihood", None, marks=pytest.mark.long),
    ],
)
def test_stale_caches_are_found(field, num_chains):
    mutant = stale(kernel(), field)
    result = check_exact_start(mutant, TARGET, steps=3, num_chains=num_chains)
    assert not result.passes, str(result)


@pytest.mark.long
@pytest.mark.parametrize("log_ratio", RATIO_MUTANTS)
def test_wrong_ratios_are_found_from_exact_draws(monkeypatch, log_ratio):
    monkeypatch.setattr(module_of(pcnl), "pcnl_log_ratio", log_ratio)
    result = check_exact_start(kernel(), TARGET, steps=3)
    assert not result.passes, str(result)


def test_one_evaluation_a_step():
    log_likelihood_fn = counting(log_likelihood)
    one = pcnl(log_likelihood_fn, 0.5)
    state = one.init(jnp.zeros(2))
    before = log_likelihood_fn.calls
    jax.make_jaxpr(lambda key, state: one.step(key, state))(jax.random.key(0), state)
    assert log_likelihood_fn.calls == before + 1


def test_beta_and_delta_are_two_names_of_one_step():
    beta = float(beta_from_delta(DELTA))
    positions = []
    for one in (pcnl(log_likelihood, delta=DELTA), pcnl(log_likelihood, beta)):
        step = jax.jit(
            lambda key, u, one=one: one.step(key, one.init(u))[0].position, compiler_options=QUICK
        )
        positions.append(step(jax.random.key(2), jnp.array([0.3, 0.2])))
    np.testing.assert_allclose(positions[0], positions[1], rtol=1e-5)


def test_float32_agrees_with_float64(rng):
    """A PyTree of 40,000 weights, 500 data, a small step."""
    u = {"w": rng.standard_normal((200, 100)), "b": rng.standard_normal(20_000)}
    v = jax.tree.map(lambda leaf: leaf + 0.05 * rng.standard_normal(leaf.shape), u)
    x = rng.standard_normal((500, 200))
    covariance = {"w": 0.5, "b": 2.0}

    def log_ratio(u, v, x):
        def terms(p):
            z = jnp.matmul(x, p["w"], precision="highest")
            return -0.5 * jnp.mean(jnp.square(z), axis=1) - 1e-3 * jnp.sum(jnp.cos(p["b"]))

        one = pcnl(terms, 0.05, covariance=covariance, mean=0.1)
        return pcnl_log_ratio(one.init(u), one.init(v), 0.01, covariance, 0.1)

    def compute(dtype):
        arguments = jax.tree.map(lambda a: jnp.asarray(a, dtype), (u, v, x))
        return jax.jit(log_ratio, compiler_options=QUICK)(*arguments)

    with jax.enable_x64(True):
        single, double = compute(jnp.float32), compute(jnp.float64)
    assert single.dtype == jnp.float32
    assert float(single) == pytest.approx(float(double), abs=0.01)


def test_an_impossible_or_undefined_proposal_is_rejected():
    state = PCNLState(jnp.zeros(2), jnp.zeros(()), jnp.zeros(2))
    for log_likelihood_value, slope in ((-jnp.inf, 0.0), (jnp.nan, 0.0), (-1.0, jnp.nan)):
        proposal = PCNLState(jnp.ones(2), jnp.asarray(log_likelihood_value), jnp.full(2, slope))
        ratio = pcnl_log_ratio(state, proposal, 0.3)
        kept, info = jaxbnn.kernels.metropolis(jax.random.key(0), ratio, state, proposal)
        assert info.acceptance_rate == 0.0
        np.testing.assert_array_equal(kept.position, state.position)


def test_refresh_leaves_nothing_stale():
    one = kernel()
    moved = jaxbnn.refresh(one, one.init(jnp.zeros(2)), jnp.ones(2))
    np.testing.assert_array_equal(moved.log_likelihood, log_likelihood(jnp.ones(2)))
    np.testing.assert_allclose(moved.gradient, gradient(np.ones(2)), rtol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "one of step_size"),
        ({"step_size": 0.1, "delta": 0.1}, "one of step_size"),
        ({"step_size": 1.2}, "delta of pCNL it means step_size beta = 0.968246"),
        ({"delta": 0.0}, r"delta must lie in \(0, 2\), but is 0; it means no beta"),
        ({"delta": 2.0}, "it means step_size beta = 1; give that"),
        ({"delta": 4.0}, "it means step_size beta = 0.942809, as delta = 1 does; give that"),
        ({"delta": np.nan}, "no beta"),
    ],
)
def test_bad_step_sizes(arguments, message):
    with pytest.raises(ValueError, match=message):
        pcnl(log_likelihood, **arguments)
