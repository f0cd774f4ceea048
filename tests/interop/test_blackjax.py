"""BlackJAX's own loops run our kernels: the runner, thinning, and tempered SMC."""

from typing import NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.base import SamplingAlgorithm
from blackjax.smc.resampling import systematic
from blackjax.util import run_inference_algorithm, thin_algorithm
from scipy import stats

import jaxbnn
from jaxbnn.interop.blackjax import adaptable, inner_kernel

pytestmark = pytest.mark.third_party(reason="BlackJAX's loops promote dtypes")

# A linear model with a standard normal prior: everything about its posterior is known.
DESIGN = np.array([[1.0, 0.2], [-0.5, 1.0], [0.3, -1.5], [1.2, 0.7]])
Y = np.array([0.8, -1.0, 1.4, 0.3])
NOISE = 0.6
COVARIANCE = np.linalg.inv(np.eye(2) + DESIGN.T @ DESIGN / NOISE**2)
MEAN = COVARIANCE @ DESIGN.T @ Y / NOISE**2
LOG_EVIDENCE = stats.multivariate_normal.logpdf(
    Y, np.zeros(4), DESIGN @ DESIGN.T + NOISE**2 * np.eye(4)
)


def log_prior(u):
    return -0.5 * jnp.sum(u**2) - jnp.log(2 * jnp.pi)


def log_likelihood(u):
    residual = (jnp.asarray(Y, u.dtype) - jnp.asarray(DESIGN, u.dtype) @ u) / NOISE
    return jnp.sum(-0.5 * residual**2 - jnp.log(NOISE) - 0.5 * jnp.log(2 * jnp.pi))


def log_density(u):
    return log_prior(u) + log_likelihood(u)


def check_ends(ends):
    """Independent draws, one a chain: false alarms 1e-6 a number."""
    chains = len(ends)
    z = np.linalg.solve(np.linalg.cholesky(COVARIANCE), (ends - MEAN).T)
    assert np.abs(z.mean(1)).max() * np.sqrt(chains) < 5.0
    squares = (z**2).sum(1)
    assert stats.chi2.ppf(5e-7, chains) < squares[0] < stats.chi2.isf(5e-7, chains)
    assert stats.chi2.ppf(5e-7, chains) < squares[1] < stats.chi2.isf(5e-7, chains)
    assert abs((z[0] * z[1]).mean()) * np.sqrt(chains) < 5.5


@pytest.mark.long
def test_blackjax_runs_and_thins_our_kernels():
    kernel = jaxbnn.cycle(
        jaxbnn.pcn(log_likelihood, 0.7), jaxbnn.underdamped_langevin(log_density, 0.4, 0.5)
    )
    thinned = thin_algorithm(kernel, 10, info_transform=lambda info: jnp.mean(info.acceptance_rate))

    def run(key, start):
        return run_inference_algorithm(
            key,
            thinned,
            5,
            initial_position=start,
            transform=lambda state, info: (state.position, info),
        )[1]

    keys = jax.random.split(jax.random.key(0), 1000)
    starts = jnp.full((1000, 2), 1.5)
    positions, rates = jax.jit(jax.vmap(run))(keys, starts)
    assert positions.shape == (1000, 5, 2)
    assert 0.1 < rates.mean() < 0.99
    check_ends(np.asarray(positions[:, -1], float))


KERNELS = {
    "pcn": lambda target, step_size: jaxbnn.pcn(lambda u: target(u) - log_prior(u), step_size),
    "smmala": jaxbnn.smmala,
}


@pytest.mark.long
@pytest.mark.parametrize("name", ["pcn", pytest.param("smmala", marks=pytest.mark.long)])
def test_tempered_smc_with_our_kernel_inside(name):
    """20 runs of 400 particles: means, and evidences, which SMC estimates without bias."""
    runs, particles = 20, 400
    smc = blackjax.tempered_smc(
        log_prior,
        log_likelihood,
        resampling_fn=systematic,
        num_mcmc_steps=8,
        **inner_kernel(KERNELS[name], step_size=0.6),
    )

    def run(key):
        key_start, key_steps = jax.random.split(key)
        state = smc.init(jax.random.normal(key_start, (particles, 2)))

        def step(state, argument):
            state, info = smc.step(argument[0], state, argument[1])
            return state, info.log_likelihood_increment

        temperatures = jnp.array([0.1, 0.3, 0.6, 1.0, 1.0])
        keys = jax.random.split(key_steps, len(temperatures))
        state, increments = jax.lax.scan(step, state, (keys, temperatures))
        mean = state.weights @ state.particles
        second = (state.weights[:, None] * state.particles).T @ state.particles
        return mean, second, jnp.sum(increments)

    means, seconds, log_evidence = jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(5), runs))
    expected = {
        "mean": (means, MEAN),
        "second moment": (seconds, COVARIANCE + np.outer(MEAN, MEAN)),
        "evidence": (jnp.exp(log_evidence - LOG_EVIDENCE), 1.0),
    }
    for name_of, (found, exact) in expected.items():
        found = np.asarray(found, float)
        error = found.std(0, ddof=1) / np.sqrt(runs)
        # Student's t with 19 degrees of freedom; the bias of the moments is of order 1/particles.
        slack = 7.2 * error + (0 if name_of == "evidence" else 4 / particles)
        assert (np.abs(found.mean(0) - exact) < slack).all(), name_of
        assert (error < 0.05).all(), name_of


def test_parameters_of_each_particle():
    parts = inner_kernel(
        lambda target, step_size: jaxbnn.pcn(lambda u: target(u) - log_prior(u), step_size),
        step_size=jnp.array([1.0, 1e-4]),
    )
    smc = blackjax.tempered_smc(
        log_prior,
        lambda u: 0.0 * u[0],
        resampling_fn=lambda key, weights, n: jnp.arange(n),
        num_mcmc_steps=2,
        **parts,
    )
    start = jnp.ones((2, 2))
    moved = jnp.abs(smc.step(jax.random.key(0), smc.init(start), 0.5)[0].particles - start)
    assert moved[0].max() > 0.05 > moved[1].max()


def test_a_momentum_that_persists_has_its_law_in_each_smc_step():
    """Exact particles stay exact: false alarms 1e-6. Started at rest they have variance .39."""
    particles, steps = 2000, 5
    smc = blackjax.tempered_smc(
        lambda u: -0.5 * u**2,
        lambda u: 0.0 * u,
        resampling_fn=lambda key, weights, n: jnp.arange(n),
        num_mcmc_steps=3,
        **inner_kernel(
            lambda target, step_size: jaxbnn.underdamped_langevin(target, step_size, 0.1),
            step_size=0.8,
        ),
    )
    state = smc.init(jax.random.normal(jax.random.key(3), (particles,)))
    keys = jax.random.split(jax.random.key(4), steps)
    state, _ = jax.jit(
        lambda state: jax.lax.scan(lambda s, key: (smc.step(key, s, 0.5)[0], None), state, keys)
    )(state)
    squares = (np.asarray(state.particles, float) ** 2).sum()
    assert stats.chi2.ppf(5e-7, particles) < squares < stats.chi2.isf(5e-7, particles)


def test_a_kernel_that_draws_nothing_at_its_start_is_not_started_twice():
    def starts_again(make_kernel):
        parts = inner_kernel(make_kernel, step_size=0.5)

        def step(state):
            return parts["mcmc_step_fn"](jax.random.key(0), state, log_density, step_size=0.5)

        state = parts["mcmc_init_fn"](jnp.ones(2), log_density)
        return str(jax.make_jaxpr(step)(state)).count("cond[")

    assert starts_again(jaxbnn.pcn) == 0
    assert starts_again(lambda f, step_size: jaxbnn.underdamped_langevin(f, step_size, 0.5)) == 1


class Moved(NamedTuple):
    position: jax.Array


def test_an_adaptable_kernel_moves_by_the_parameters_that_it_is_given():
    def by_parameters(log_density_fn, step_size, inverse_mass_matrix):
        def step(rng_key, state):
            away = step_size * inverse_mass_matrix * log_density_fn(state.position)
            return Moved(state.position + away), None

        return SamplingAlgorithm(lambda position, rng_key=None: Moved(position), step)

    kernel, matrix = adaptable(by_parameters), jnp.array([1.0, 10.0])
    state, step = kernel.init(jnp.ones(2), jnp.sum), kernel.build_kernel()
    for sign in (1.0, -1.0):
        before = state.position
        state, _ = step(jax.random.key(0), state, jnp.sum, sign * 0.5, matrix)
        expected = before + sign * 0.5 * matrix * before.sum()
        np.testing.assert_allclose(state.position, expected)
        np.testing.assert_array_equal(state.state.position, state.position)
