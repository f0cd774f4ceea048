"""What is asked for of starts, objectives and fits has its effect."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
import pytest

from jaxbnn import Gaussian, mlp
from jaxbnn.dvi import (
    DeterministicVI,
    VIInfo,
    VIState,
    deterministic_vi,
    fit,
    initial_position,
)
from jaxbnn.targets import StudentT

STANDARD_NORMAL = dist.Normal(0.0, 1.0)


def test_means_of_biases_start_at_their_own_variance():
    q = initial_position(jax.random.key(0), mlp((4, 3, 2)), bias_mean_variance=0.0)
    assert not np.any(q.mean[0]["b"])
    assert np.all(q.mean[0]["w"] != 0)


def test_biases_start_with_their_own_variance():
    """0.04, over a fan-in of 4."""
    q = initial_position(jax.random.key(0), mlp((4, 3)), variance=1.0, bias_variance=0.04)
    np.testing.assert_allclose(np.exp(2 * q.log_scale[0]["b"]), 0.01, rtol=1e-5)
    np.testing.assert_allclose(np.exp(2 * q.log_scale[0]["w"]), 0.25, rtol=1e-5)


def test_means_start_with_the_variance_over_the_fan_in():
    """Of 10,000 weights: five standard errors of a variance, two-sided 7e-7."""
    q = initial_position(jax.random.key(0), mlp((50, 200)), mean_variance=3.0)
    assert abs(np.var(q.mean[0]["w"]) * 50 / 3 - 1) < 5 * (2 / 10_000) ** 0.5


def test_the_fan_in_of_ntk_networks_counts_as_one():
    q = initial_position(jax.random.key(0), mlp((4, 3), parametrisation="ntk"))
    assert all(np.all(leaf == 0) for leaf in jax.tree.leaves(q.log_scale))


def test_the_noise_starts_with_a_standard_deviation_of_a_tenth():
    start = initial_position(jax.random.key(0), mlp((4, 3)), log_noise_scale=-1.0)
    np.testing.assert_allclose(np.exp(2 * start["log_noise_scale"].log_scale), 0.01, rtol=1e-5)


def test_an_expectation_by_monte_carlo_is_taken_by_it():
    """Student's t has none in closed form, and says so."""
    network = mlp((2, 1))
    vi = deterministic_vi(network, StudentT(4.0, 1.0), STANDARD_NORMAL, expectation="monte_carlo")
    q = initial_position(jax.random.key(0), network)
    assert np.isfinite(vi.elbo(q, jnp.ones((3, 2)), jnp.zeros(3), jax.random.key(1)).elbo)


def test_moments_by_a_rule_are_taken_by_it():
    """tanh has none that are exact, and says so."""
    network = mlp((2, 3, 1), "tanh")
    vi = deterministic_vi(network, Gaussian(1.0), STANDARD_NORMAL, moments="gauss_hermite")
    q = initial_position(jax.random.key(0), network)
    assert np.isfinite(vi.elbo(q, jnp.ones((3, 2)), jnp.zeros(3)).elbo)


@pytest.mark.parametrize("num_data", [None, 100])
def test_a_step_follows_the_slope_of_the_elbo_per_datum(num_data):
    network, x, y = mlp((2, 1)), jnp.ones((4, 2)), jnp.ones(4)
    vi = deterministic_vi(network, Gaussian(1.0), STANDARD_NORMAL, optimizer=optax.sgd(1.0))
    q = initial_position(jax.random.key(0), network)
    moved, _ = vi.step(jax.random.key(1), vi.init(q), x, y, num_data)
    slopes = jax.grad(lambda q: vi.elbo(q, x, y, None, num_data).elbo)(q)
    for new, old, slope in zip(*map(jax.tree.leaves, (moved.position, q, slopes)), strict=True):
        np.testing.assert_allclose(new - old, slope / (num_data or 4), rtol=1e-3, atol=1e-6)


def algorithm_that(moves):
    """Return a VI whose next position is `moves(rng_key, position, num_updates, rows of x)`."""

    def step(rng_key, state, x, y, num_data=None):
        zero = jnp.zeros(())
        position = moves(rng_key, state.position, state.num_updates, x)
        return VIState(position, (), state.num_updates + 1), VIInfo(zero, zero, zero)

    def init(position):
        return VIState(position, (), jnp.zeros((), jnp.int32))

    return DeterministicVI(init, step, None, None, None, lambda x, y: None)


def fitted(vi, position, x, num_updates, **options):
    """Return the positions at the end, of runs side by side."""
    x = np.asarray(x, np.float32)
    y = np.zeros(len(x), np.float32)
    key = jax.random.key(0)
    return fit(key, vi, position, x, y, num_updates, progress=False, **options).positions


def notes_of_keys():
    """Return a VI whose position takes down, update after update, what the key draws."""
    return algorithm_that(
        lambda rng_key, position, number, x: position.at[number].set(jax.random.normal(rng_key))
    )


def test_each_epoch_leaves_out_other_rows():
    """Five rows in batches of two: one is out at random, and out of all 40 epochs with 1e-27."""
    visits = algorithm_that(lambda rng_key, position, number, x: position + jnp.sum(x, axis=0))
    found = fitted(visits, jnp.zeros((1, 5)), np.eye(5), num_updates=80, batch_size=2)[0]
    assert found.sum() == 160
    assert found.min() > 0


def test_every_update_has_a_key_of_its_own():
    found = fitted(notes_of_keys(), jnp.zeros((1, 4)), np.ones((3, 1)), num_updates=4)
    assert len(np.unique(found)) == 4


def test_every_run_has_a_key_of_its_own():
    found = fitted(notes_of_keys(), jnp.zeros((3, 1)), np.ones((3, 1)), num_updates=1)
    assert len(np.unique(found)) == 3
