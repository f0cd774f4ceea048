"""Simplified manifold MALA: balance, exact starts, and what happens where the metric fails."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbnn.kernels import cycle, smmala
from jaxbnn.kernels.smmala import smmala_log_ratio
from tests.kit import both_sizes, check_exact_start, check_flux_identity, for_mutants, random_pairs
from tests.kit.sizes import QUICK
from tests.kit.targets import BEND, WIDTH, skew_banana, skew_banana_log_density

BANANA = skew_banana()
STEP_SIZE = 0.9


def gradient_and_hessian(x):
    """Of the log density of `skew_banana`, by hand."""
    bend = (x[1] - BEND * x[0] ** 2) / WIDTH**2
    gradient = np.array([1 - np.exp(x[0]) + 2 * BEND * x[0] * bend, -bend])
    corner = 2 * BEND * bend - (2 * BEND * x[0] / WIDTH) ** 2 - np.exp(x[0])
    cross = 2 * BEND * x[0] / WIDTH**2
    return gradient, np.array([[corner, cross], [cross, -1 / WIDTH**2]])


def singular(x):
    """Rank one, so that SoftAbs has something to do."""
    return np.outer([1.0, x[0]], [1.0, x[0]])


def definite(x):
    return np.array([[np.exp(x[0]) + 1.0, 0.5], [0.5, 2.0]])


def in_jax(matrix):
    def rows(*entries):
        return lambda x: jnp.stack([entry(x) for entry in entries]).reshape(2, 2)

    def constant(value):
        return lambda x: jnp.full_like(x[0], value)

    def tilt(x):
        return x[0]

    return {
        singular: rows(constant(1.0), tilt, tilt, lambda x: x[0] ** 2),
        definite: rows(lambda x: jnp.exp(x[0]) + 1, *map(constant, (0.5, 0.5, 2.0))),
        None: None,
    }[matrix]


def log_proposal(softabs, metric, determinant=1.0):
    """Log density of N(mu, eps^2 M^-1) with M from eigenvalues lambda coth(alpha lambda)."""

    def log_q(x, y):
        gradient, hessian = gradient_and_hessian(x)
        m = -hessian if metric is None else metric(x)
        if softabs is not None:
            values, vectors = np.linalg.eigh(m)
            with np.errstate(invalid="ignore"):
                smooth = np.where(values == 0, 1 / softabs, values / np.tanh(softabs * values))
            m = (vectors * smooth) @ vectors.T
        residual = y - x - STEP_SIZE**2 / 2 * np.linalg.solve(m, gradient)
        square = residual @ m @ residual / STEP_SIZE**2
        return determinant * np.linalg.slogdet(m)[1] / 2 - square / 2

    return log_q


def log_ratio(softabs, metric):
    kernel = smmala(BANANA.log_density, STEP_SIZE, softabs=softabs, metric=in_jax(metric))
    return lambda x, y: smmala_log_ratio(kernel.init(x), kernel.init(y), STEP_SIZE)


@pytest.mark.parametrize(
    ("softabs", "metric"),
    [(1000.0, None), (0.7, None), (0.7, singular), (None, definite)],
    ids=["Hessian", "soft Hessian", "user's, singular", "user's, Cholesky"],
)
def test_flux_identity(rng, softabs, metric):
    pairs = random_pairs(rng, 200, 2, scale=0.7)
    ratio = log_ratio(softabs, metric)
    right = check_flux_identity(
        skew_banana_log_density, log_proposal(softabs, metric), ratio, pairs
    )
    assert right.passes, right
    if metric is None and softabs == 0.7:
        wrong = log_proposal(softabs, metric, determinant=0.0)
        assert check_flux_identity(skew_banana_log_density, wrong, ratio, pairs).largest > 0.1


@both_sizes()
def test_exact_draws_stay_exact(num_chains):
    kernel = smmala(BANANA.log_density, STEP_SIZE, softabs=2.0)
    result = check_exact_start(kernel, BANANA, steps=3, num_chains=num_chains)
    assert result.passes, str(result)


def no_determinant(state, proposal, step_size):
    there, here = proposal.log_det, state.log_det
    return smmala_log_ratio(state, proposal, step_size) - (there - here) / 2


def metric_of_the_start(state, proposal, step_size):
    return smmala_log_ratio(
        state, proposal._replace(metric=state.metric, log_det=state.log_det), step_size
    )


@for_mutants()
@pytest.mark.parametrize("mutant", [no_determinant, metric_of_the_start])
def test_mutants_are_found(monkeypatch, mutant, num_chains):
    module = importlib.import_module("jaxbnn.kernels.smmala")
    monkeypatch.setattr(module, "smmala_log_ratio", mutant)
    kernel = smmala(BANANA.log_density, STEP_SIZE, softabs=2.0)
    result = check_exact_start(kernel, BANANA, steps=3, num_chains=num_chains)
    assert not result.passes, str(result)
    assert result.moved > 0.1
    assert any(result.distances[f] > result.thresholds[f] for f in result.distances)


def run(kernel, position, num_steps, keys):
    """Return positions and infos of chains that all start at `position`."""

    def chain(key):
        def step(state, i):
            state, info = kernel.step(jax.random.fold_in(key, i), state)
            return state, (state.position, info)

        return jax.lax.scan(step, kernel.init(position), jnp.arange(num_steps))[1]

    return jax.jit(jax.vmap(chain), compiler_options=QUICK)(keys)


@pytest.mark.parametrize("softabs", [1000.0, None], ids=["eigh", "Cholesky"])
def test_a_metric_that_fails_rejects_and_is_counted(softabs):
    """The matrix is NaN (with Cholesky: negative) for x > 1, the log density finite."""

    def metric(x):
        bad = jnp.nan if softabs else -1.0
        return jnp.where(x > 1, bad, 1.0)[:, None]

    kernel = smmala(lambda x: -jnp.sum(x**2) / 2, 1.0, softabs=softabs, metric=metric)
    keys = jax.random.split(jax.random.key(0), 500)
    positions, infos = run(kernel, jnp.zeros(1), 10, keys)
    assert np.all(np.asarray(positions) <= 1)
    assert not np.any(np.asarray(infos.metric_failed & infos.is_accepted))
    assert np.all(np.asarray(infos.acceptance_rate)[np.asarray(infos.metric_failed)] == 0)
    # Proposals are N(x/2, 1) with x from N(0, 1) below 1, whose mean is -0.29 and variance 0.63:
    # about 13% of them are above 1.
    assert 0.08 < np.mean(infos.metric_failed) < 0.2
    assert np.mean(infos.is_accepted) > 0.5


@pytest.mark.long
def test_smaller_steps_are_accepted_more_often():
    def rate(step_size):
        kernel = smmala(BANANA.log_density, step_size, softabs=2.0)

        def one(key):
            key_start, key_step = jax.random.split(key)
            start, _ = BANANA.sample(key_start)
            return kernel.step(key_step, kernel.init(start))[1].acceptance_rate

        return jnp.mean(jax.vmap(one)(jax.random.split(jax.random.key(0), 4000)))

    step_sizes = jnp.asarray([0.02, 0.3, 0.9, 2.0], jnp.float32)
    rates = np.asarray(jax.jit(jax.vmap(rate), compiler_options=QUICK)(step_sizes))
    assert np.all(np.diff(rates) < -0.02), rates
    assert rates[0] > 0.98


def test_composed_with_another_kernel_the_caches_follow():
    """A cycle of two kernels starts the second from a state refreshed to where the first ended."""
    first = smmala(BANANA.log_density, 0.5, softabs=2.0)
    second = smmala(BANANA.log_density, 0.7, softabs=2.0)
    both = cycle(first, second)

    def step(key):
        state, _ = both.step(key, both.init(jnp.array([0.1, 0.3])))
        return state.states[1], second.init(state.position)

    cached, fresh = jax.jit(step, compiler_options=QUICK)(jax.random.key(0))
    for found, expected in zip(jax.tree.leaves(cached), jax.tree.leaves(fresh), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.long
def test_bad_input_is_refused():
    def log_density(x):
        return -jnp.sum(x["a"] ** 2) - jnp.sum(jnp.abs(x["b"][1]) ** 1.5)

    with pytest.raises(ValueError, match="step_size must be positive"):
        smmala(log_density, 0.0)
    for alpha in (0.0, -1.0):
        with pytest.raises(ValueError, match="softabs must be positive"):
            smmala(log_density, 0.1, softabs=alpha)
    # |x|^1.5 has no second derivative at 0.
    start = {"a": jnp.ones(2), "b": jnp.array([[1.0, 1.0], [0.0, 1.0]])}
    with pytest.raises(ValueError, match=r"coordinate 4 .* position\['b'\]\[1, 0\]; start"):
        smmala(log_density, 0.1).init(start)
    with pytest.raises(ValueError, match=r"metric must return a matrix of shape \(6, 6\)"):
        smmala(log_density, 0.1, metric=lambda x: jnp.eye(3)).init(start)
    with pytest.raises(ValueError, match="not positive definite; use softabs"):
        smmala(log_density, 0.1, softabs=None, metric=lambda x: -jnp.eye(6)).init(start)


@pytest.mark.parametrize("softabs", [None, 0.7])
def test_noise_has_the_inverse_metric_for_covariance(softabs, x64):
    module = importlib.import_module("jaxbnn.kernels.smmala")
    metric, _ = module._factor(jnp.array([[3.0, 0.5], [0.5, 2.0]]), softabs)
    unit = jnp.eye(2)
    root = np.stack([module._colour(metric, column) for column in unit], axis=1)
    whole = np.stack([module._solve(metric, column) for column in unit], axis=1)
    np.testing.assert_allclose(root @ root.T, whole, rtol=1e-9)
