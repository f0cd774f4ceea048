"""Tests of kernels.covariance_operator and kernels.crank_nicolson: pCN keeps its target, in any
dimension; each of its mutants does not.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbnn
from jaxbnn.kernels import covariance_operator, dense_covariance
from jaxbnn.kernels.covariance_operator import as_operator
from jaxbnn.kernels.crank_nicolson import beta_from_delta, crank_nicolson, delta_from_beta
from jaxbnn.kernels.pcn import pcn, pcn_log_ratio
from tests.kernels.reference_measure import (
    COVARIANCE,
    MEAN,
    TARGET,
    log_likelihood,
    log_normal,
    module_of,
    stale,
)
from tests.kit import both_sizes, check_exact_start, check_flux_identity, for_mutants, random_pairs
from tests.kit.sizes import QUICK
from tests.kit.targets import skew_banana_log_density

BETA = 0.6


def kernel(step_size=BETA):
    return pcn(log_likelihood, step_size, dense_covariance(COVARIANCE), mean=MEAN)


def log_proposal(x, y):
    return log_normal(y, MEAN + np.sqrt(1 - BETA**2) * (x - MEAN), BETA**2 * COVARIANCE)


def posterior_ratio(state, proposal):
    """Defect: the ratio of posteriors, prior included (erratum B5)."""

    def log_prior(x):
        away = x - jnp.asarray(MEAN, x.dtype)
        precision = jnp.asarray(np.linalg.inv(COVARIANCE), x.dtype)
        return -0.5 * jnp.sum(away * (precision @ away))

    return pcn_log_ratio(state, proposal) + log_prior(proposal.position) - log_prior(state.position)


def upside_down(state, proposal):
    return -pcn_log_ratio(state, proposal)


def accept_all(state, proposal):
    return jnp.zeros((), state.position.dtype)


RATIO_MUTANTS = [posterior_ratio, upside_down, accept_all]


def flux(log_ratio, rng):
    init = pcn(log_likelihood, BETA).init
    return check_flux_identity(
        skew_banana_log_density,
        log_proposal,
        lambda x, y: log_ratio(init(x), init(y)),
        random_pairs(rng, 200, 2),
    )


def test_flux_identity(rng):
    assert flux(pcn_log_ratio, rng).passes


@pytest.mark.parametrize("log_ratio", RATIO_MUTANTS)
def test_wrong_ratios_break_the_flux_identity(log_ratio, rng):
    assert flux(log_ratio, rng).largest > 0.1


@both_sizes()
def test_exact_draws_stay_exact(num_chains):
    result = check_exact_start(kernel(), TARGET, steps=3, num_chains=num_chains)
    assert result.passes, str(result)


@for_mutants()
def test_a_stale_log_likelihood_is_found(num_chains):
    mutant = stale(kernel(), "log_likelihood")
    result = check_exact_start(mutant, TARGET, steps=3, num_chains=num_chains)
    assert not result.passes, str(result)


@pytest.mark.long
@pytest.mark.parametrize("log_ratio", RATIO_MUTANTS)
def test_wrong_ratios_are_found_from_exact_draws(monkeypatch, log_ratio):
    monkeypatch.setattr(module_of(pcn), "pcn_log_ratio", log_ratio)
    result = check_exact_start(kernel(), TARGET, steps=3)
    assert not result.passes, str(result)


@pytest.mark.parametrize("dimension", [10, 100_000])
@pytest.mark.parametrize("name", ["pcn", "pcnl"])
def test_a_flat_likelihood_always_accepts(name, dimension):
    flat = getattr(jaxbnn, name)(lambda u: jnp.zeros(5, u.dtype), 0.9)
    step = jax.jit(lambda key, state: flat.step(key, state), compiler_options=QUICK)
    state = flat.init(jnp.ones(dimension))
    for key in jax.random.split(jax.random.key(0), 10):
        previous, (state, info) = state, step(key, state)
        assert info.acceptance_rate == 1.0
        assert info.is_accepted
        assert (np.asarray(state.position) != np.asarray(previous.position)).mean() > 0.99


def regression_acceptance(make, dimension, chains=16, beta=0.5, noise=0.3):
    """Mean acceptance at exact posterior draws: u ~ N(0, I), y = sum_k u_k / k + noise = 1."""
    a = 1 / np.arange(1.0, dimension + 1)
    rng = np.random.default_rng(0)
    prior, error = rng.standard_normal((chains, dimension)), noise * rng.standard_normal(chains)
    gain = a / (a @ a + noise**2)
    exact = prior + gain * (1.0 - prior @ a - error)[:, None]
    a = jnp.asarray(a, jnp.float32)
    one = make(lambda u: -0.5 * ((jnp.sum(a * u) - 1.0) / noise) ** 2, beta)

    def rate(key, position):
        def step(i, carry):
            state, total = carry
            state, info = one.step(jax.random.fold_in(key, i), state)
            return state, total + info.acceptance_rate / 4

        return jax.lax.fori_loop(0, 4, step, (one.init(position), 0.0))[1]

    keys = jax.random.split(jax.random.key(1), chains)
    return float(
        jnp.mean(
            jax.jit(jax.vmap(rate), compiler_options=QUICK)(keys, jnp.asarray(exact, jnp.float32))
        )
    )


@pytest.mark.long
@pytest.mark.parametrize("make", [pcn, jaxbnn.pcnl])
def test_acceptance_does_not_depend_on_the_dimension(make):
    rates = [regression_acceptance(make, d, 4000 if d < 1000 else 32) for d in (10, 100_000)]
    assert rates[0] > 0.3
    assert abs(rates[1] - rates[0]) < 0.2


@pytest.mark.long
def test_acceptance_of_mala_does():
    def mala(log_likelihood_fn, step_size):
        return jaxbnn.underdamped_langevin(
            lambda u: log_likelihood_fn(u) - jnp.sum(u**2) / 2, step_size, 1.0
        )

    assert regression_acceptance(mala, 100_000) < 1e-3


def test_step_size_conversions():
    betas = np.array([0.01, 0.1, 0.2, 0.5, 1.0])
    with jax.enable_x64(True):
        deltas = np.asarray(delta_from_beta(betas))
        np.testing.assert_allclose(np.sqrt(8 * deltas) / (2 + deltas), betas, rtol=1e-12)
        np.testing.assert_allclose(beta_from_delta(deltas[:-1]), betas[:-1], rtol=1e-12)
    table = [5.00025e-5, 0.00502516, 0.0204103, 0.143594, 2.0]
    np.testing.assert_allclose(deltas, table, rtol=1e-5)
    tiny = float(delta_from_beta(np.float32(1e-5)))
    assert tiny == pytest.approx(1e-10 / 2, rel=1e-6)


def test_small_steps_contract_right_in_float32(rng):
    # With c = sqrt(1 - beta^2) itself rounded, this is 5 % off.
    u = jnp.asarray(rng.standard_normal(200_000), jnp.float32)
    v = crank_nicolson(u, jnp.zeros_like(u), delta_from_beta(1e-3))
    u, v = np.asarray(u, np.float64), np.asarray(v, np.float64)
    assert u @ (u - v) / (u @ u) == pytest.approx(1 - np.sqrt(1 - 1e-6), rel=0.01)


TREE = {"b": jnp.array([0.5, -1.0]), "w": jnp.array([[1.0, 2.0], [0.1, -0.3]])}


@pytest.mark.parametrize(
    ("covariance", "matrix"),
    [
        (None, np.eye(6)),
        (2.5, 2.5 * np.eye(6)),
        ({"b": 2.0, "w": jnp.full((2, 2), 3.0)}, np.diag([2.0, 2.0, 3.0, 3.0, 3.0, 3.0])),
        (dense_covariance(np.eye(6) + 0.5), np.eye(6) + 0.5),
        (
            covariance_operator(lambda xi: {"b": xi["b"] + 0.5 * xi["w"][0], "w": 2.0 * xi["w"]}),
            None,
        ),
    ],
    ids=["identity", "number", "variances", "matrix", "square root"],
)
def test_covariances(covariance, matrix):
    operator = as_operator(covariance)
    flatten = jax.flatten_util.ravel_pytree
    unravel = flatten(TREE)[1]
    root = np.stack([flatten(operator.sqrt(unravel(e)))[0] for e in jnp.eye(6)], axis=1)
    whole = np.stack([flatten(operator.multiply(unravel(e)))[0] for e in jnp.eye(6)], axis=1)
    np.testing.assert_allclose(root @ root.T, whole, atol=1e-5)
    if matrix is not None:
        np.testing.assert_allclose(whole, matrix, atol=1e-5)


@pytest.mark.parametrize("mean", [None, 0.7, {"b": 1.0, "w": jnp.ones((2, 2))}])
def test_proposal_is_the_definition(mean):
    delta, beta = delta_from_beta(0.8), 0.8
    noise = jax.tree.map(jnp.cos, TREE)
    drift = jax.tree.map(jnp.sin, TREE)
    found = crank_nicolson(TREE, noise, delta, drift=drift, mean=mean)
    for name, u in TREE.items():
        m = np.asarray(mean[name] if isinstance(mean, dict) else mean or 0.0)
        c = np.sqrt(1 - beta**2)
        v = m + c * (u - m) + (1 - c) * np.asarray(drift[name]) + beta * np.asarray(noise[name])
        np.testing.assert_allclose(found[name], v, rtol=1e-5, atol=1e-6)


def test_a_traced_step_size_above_one_counts_as_one():
    def end(step_size):
        one = pcn(lambda u: -jnp.sum(u**2), step_size)
        return one.step(jax.random.key(0), one.init(jnp.ones(3)))[0].position

    ends = np.asarray(jax.jit(jax.vmap(end), compiler_options=QUICK)(jnp.array([1.0, 1.7])))
    np.testing.assert_array_equal(ends[0], ends[1])
    assert np.isfinite(ends).all()


@pytest.mark.third_party(reason="BlackJAX's dual averaging mixes dtypes")
def test_beta_is_tuned_in_warm_up():
    a = jnp.arange(1.0, 5.0)

    def make_kernel(parameters, data):
        return pcn(lambda u: -2.0 * (a * u - 1.0) ** 2, parameters["step_size"])

    draws = jaxbnn.sample(
        jax.random.key(0),
        make_kernel,
        jnp.zeros((8, 4)),
        500,
        parameters={"step_size": jnp.full(8, 0.9)},
        num_warmup=500,
        adapt=jaxbnn.dual_averaging(0.4),
        progress=False,
    )
    assert float(jnp.mean(draws.infos.acceptance_rate)) == pytest.approx(0.4, abs=0.05)


def test_refresh_leaves_nothing_stale():
    state = kernel().init(jnp.zeros(2))
    moved = jaxbnn.refresh(kernel(), state, jnp.ones(2))
    np.testing.assert_array_equal(moved.log_likelihood, log_likelihood(jnp.ones(2)))


@pytest.mark.parametrize(
    ("step_size", "message"),
    [
        (0.0, r"step_size must lie in \(0, 1\], but is 0"),
        (-0.1, r"\(0, 1\], but is -0.1"),
        (1.5, "but is 1.5; as the delta of pCNL it means step_size beta = 0.989743"),
        (np.nan, "but is nan"),
    ],
)
def test_bad_step_sizes(step_size, message):
    with pytest.raises(ValueError, match=message):
        pcn(log_likelihood, step_size)


@pytest.mark.parametrize(
    ("covariance", "message"),
    [
        (-1.0, "covariance must be positive"),
        (np.array([1.0, 0.0]), "covariance must be positive"),
        (np.eye(2) + 1.0, r"shape \(2, 2\) where the position has \(2,\).*dense_covariance"),
        ({"w": 1.0}, "give one number, or a PyTree like the position"),
    ],
)
def test_bad_covariances(covariance, message):
    def one_step():
        one = pcn(log_likelihood, 0.5, covariance)
        one.step(jax.random.key(0), one.init(jnp.zeros(2)))

    with pytest.raises(ValueError, match=message):
        one_step()


def test_bad_means():
    with pytest.raises(ValueError, match="mean holds nan"):
        pcn(log_likelihood, 0.5, mean=jnp.array([0.0, jnp.nan]))


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.ones((2, 3)), "square"),
        (np.array([[1.0, 0.5], [0.0, 1.0]]), "not symmetric"),
        (np.array([[1.0, 2.0], [2.0, 1.0]]), "not positive definite"),
        (np.eye(3), r"\(3, 3\) where the position has 2 entries"),
        (np.array([[1.0, np.nan], [np.nan, 1.0]]), r"nan at index \(0, 1\); give finite"),
        (np.array([[1.0, np.inf], [0.0, 1.0]]), r"inf at index \(0, 1\); give finite"),
    ],
)
def test_bad_matrices(matrix, message):
    with pytest.raises(ValueError, match=message):
        dense_covariance(matrix).sqrt(jnp.zeros(2))


def test_a_matrix_of_few_bits_is_refused():
    with pytest.raises(TypeError, match="must be float32 or float64, but is float16"):
        dense_covariance(jnp.eye(2, dtype=jnp.float16))


def test_what_rounding_left_unsymmetric_is_one_covariance():
    """The root is of the averaged matrix, and so must C g be."""
    operator = dense_covariance(np.array([[1.0, 0.9], [0.9 + 8e-5, 1.0]]))
    root, whole = (
        np.stack([function(e) for e in jnp.eye(2)], axis=1)
        for function in (operator.sqrt, operator.multiply)
    )
    np.testing.assert_allclose(root @ root.T, whole, atol=1e-6)


@pytest.mark.parametrize(
    ("sqrt", "multiply", "words"),
    [
        (lambda xi: xi[0], None, r"sqrt must return .* shapes are \(3,\), but returned \(\)"),
        (lambda xi: xi[:, None], None, r"but returned \(3, 1\)"),
        (lambda xi: (xi,), None, r"but returned \(\(3,\),\)"),
        (lambda xi: xi, lambda g: g[:1], r"multiply must return .* but returned \(1,\)"),
    ],
)
def test_an_operator_that_would_be_broadcast_is_refused(sqrt, multiply, words):
    operator = covariance_operator(sqrt, multiply)
    apply = operator.sqrt if multiply is None else operator.multiply
    with pytest.raises(ValueError, match=words):
        apply(jnp.ones(3))
