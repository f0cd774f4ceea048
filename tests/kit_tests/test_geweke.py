"""The joint test passes right conditionals and finds each wrong one.

Model: mu ~ N(1, 2^2), tau ~ Gamma(3, 2), y_i ~ N(mu, 1 / tau), i = 1..4; all of it skew or off
centre, so that a wrong sign is not hidden.
"""

import blackjax
import jax
import jax.numpy as jnp
import pytest

from tests.kit import both_sizes, check_geweke, update_with

MEAN, SCALE, SHAPE, RATE, N = 1.0, 2.0, 3, 2.0, 4


def standard_gamma(key, shape):
    """Gamma of a whole-numbered shape, exactly, and much cheaper to compile than JAX's."""
    return jnp.sum(jax.random.exponential(key, (shape,)))


def simulate(key, theta):
    return theta["mu"] + jax.random.normal(key, (N,)) / jnp.sqrt(theta["tau"])


def sample_joint(key):
    key_mu, key_tau, key_y = jax.random.split(key, 3)
    theta = {
        "mu": MEAN + SCALE * jax.random.normal(key_mu),
        "tau": standard_gamma(key_tau, SHAPE) / RATE,
    }
    return theta, simulate(key_y, theta)


def draw_mu(key, theta, y, prior_sign=1.0, likelihood_power=1.0):
    tau = theta["tau"] * likelihood_power
    precision = 1 / SCALE**2 + N * tau
    mean = (prior_sign * MEAN / SCALE**2 + tau * jnp.sum(y)) / precision
    return {**theta, "mu": mean + jax.random.normal(key) / jnp.sqrt(precision)}


def draw_tau(key, theta, y, half=0.5, extra=0):
    rate = RATE + half * jnp.sum((y - theta["mu"]) ** 2)
    return {**theta, "tau": standard_gamma(key, SHAPE + N // 2 + extra) / rate}


def sweep(mu_defect, tau_defect):
    def update(key, theta, y):
        key_mu, key_tau = jax.random.split(key)
        theta = draw_mu(key_mu, theta, y, **mu_defect)
        return draw_tau(key_tau, theta, y, **tau_defect)

    return update


@pytest.mark.short("right-short", "mean at half precision-short")
@both_sizes(40_000)
@pytest.mark.parametrize(
    ("mu_defect", "tau_defect", "is_right"),
    [
        ({}, {}, True),
        ({"prior_sign": -1.0}, {}, False),
        ({"likelihood_power": 0.5}, {}, False),
        ({}, {"half": 1.0}, False),
        ({}, {"extra": -1}, False),
    ],
    ids=["right", "sign of the prior mean", "mean at half precision", "rate", "shape"],
)
def test_conditionals_of_a_normal_model(mu_defect, tau_defect, is_right, num_chains):
    update = sweep(mu_defect, tau_defect)
    result = check_geweke(sample_joint, simulate, update, rounds=3, num_chains=num_chains)
    assert result.passes == is_right, str(result)


@pytest.mark.short("right-short")
@both_sizes(40_000)
@pytest.mark.parametrize("noise", [1.0, 1.4], ids=["right", "data from another model"])
def test_a_metropolis_kernel_as_conditional(noise, num_chains):
    def sample(key):
        key_theta, key_y = jax.random.split(key)
        theta = 1.0 + jax.random.normal(key_theta, (1,))
        return theta, observe(key_y, theta)

    def observe(key, theta):
        return jnp.exp(theta / 2) + jax.random.normal(key, (1,))

    def make_kernel(y):
        def log_density(theta):
            residual = (y - jnp.exp(theta / 2)) / noise
            return -0.5 * jnp.sum((theta - 1.0) ** 2) - 0.5 * jnp.sum(residual**2)

        return blackjax.mala(log_density, 0.3)

    update = update_with(make_kernel, steps=2)
    result = check_geweke(sample, observe, update, rounds=3, num_chains=num_chains)
    assert result.passes == (noise == 1.0), str(result)
