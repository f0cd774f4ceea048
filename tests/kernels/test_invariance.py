"""Tests of kernels.metropolis: BlackJAX's random walk, MALA and HMC keep exact draws exact; each
mutant of them does not.

Chains start at exact draws and take STEPS steps; false-alarm rate 1e-6 a test. The kernels
that pass also show that the targets and their exact distribution functions are right.
"""

import blackjax
import jax.numpy as jnp
import pytest
from blackjax.mcmc import random_walk as blackjax_random_walk

from jaxbnn.networks import mlp
from jaxbnn.targets import Gaussian, Posterior, normal_prior
from tests.kit import both_sizes, check_exact_start, for_mutants, posterior_target
from tests.kit import mutants as kit
from tests.kit.sizes import SHORT
from tests.kit.targets import bent_regression, half_line, skew_banana

STEPS = 3
BANANA, HALF_LINE, REGRESSION = skew_banana(), half_line(), bent_regression()


def rwm(log_density, step_size):
    return blackjax.additive_step_random_walk(
        log_density, blackjax_random_walk.normal(jnp.asarray(step_size))
    )


def mala(log_density, step_size):
    return blackjax.mala(log_density, step_size**2 / 2)  # its step size is half our square


def hmc(log_density, step_size):
    return blackjax.hmc(log_density, step_size, jnp.ones(2), num_integration_steps=3)


KERNELS = {"rwm": (rwm, 1.0), "mala": (mala, 0.8), "hmc": (hmc, 0.5)}
OURS = {"rwm": kit.random_walk, "mala": kit.mala, "hmc": kit.hmc}
MUTANTS = [
    (kernel, name, make)
    for kernel, group in (
        ("rwm", kit.RANDOM_WALK_MUTANTS),
        ("mala", kit.MALA_MUTANTS),
        ("hmc", kit.HMC_MUTANTS),
    )
    for name, make in group.items()
]


@pytest.mark.short("hmc-short")
@both_sizes()
@pytest.mark.parametrize("name", KERNELS)
def test_kernels_keep_a_skew_target(name, num_chains):
    make, step_size = KERNELS[name]
    kernel = make(BANANA.log_density, step_size)
    result = check_exact_start(kernel, BANANA, steps=STEPS, num_chains=num_chains)
    assert result.passes, str(result)
    if num_chains is None:
        assert result.detectable <= 0.005


@pytest.mark.parametrize(
    ("name", "num_chains"),
    [
        ("mala", SHORT),
        *(pytest.param(name, None, marks=pytest.mark.long) for name in KERNELS),
    ],
)
def test_kernels_keep_parameters_and_data_jointly(name, num_chains):
    make, step_size = KERNELS[name]

    def make_kernel(data):
        return make(lambda theta: REGRESSION.log_density(theta, data), step_size)

    result = check_exact_start(make_kernel, REGRESSION, steps=STEPS, num_chains=num_chains)
    assert result.passes, str(result)


@pytest.mark.long
@pytest.mark.parametrize("name", OURS)
def test_the_kernels_that_mutate_are_right_without_their_defects(name):
    kernel = OURS[name](BANANA.log_density, KERNELS[name][1])
    result = check_exact_start(kernel, BANANA, steps=STEPS)
    assert result.passes, str(result)


@for_mutants()
@pytest.mark.parametrize(
    ("kernel", "make"),
    [pytest.param(kernel, make, id=f"{kernel}: {name}") for kernel, name, make in MUTANTS],
)
def test_mutants_are_found(kernel, make, num_chains):
    mutant = make(BANANA.log_density, KERNELS[kernel][1])
    result = check_exact_start(mutant, BANANA, steps=STEPS, num_chains=num_chains)
    assert not result.passes, str(result)
    # Found by its distribution, not by standing still or by a NaN.
    assert result.moved > 0.1
    assert any(result.distances[f] > result.thresholds[f] for f in result.distances)


@both_sizes()
def test_a_log_density_that_is_nan_outside_the_support(num_chains):
    right = rwm(HALF_LINE.log_density, 1.0)
    result = check_exact_start(right, HALF_LINE, steps=STEPS, num_chains=num_chains)
    assert result.passes, str(result)
    for name, make in kit.NAN_MUTANTS.items():
        mutant = make(HALF_LINE.log_density, 1.0)
        result = check_exact_start(mutant, HALF_LINE, steps=STEPS, num_chains=num_chains)
        assert not result.passes, f"{name}\n{result}"


@both_sizes(20_000)
def test_a_posterior_with_data_drawn_from_its_own_model(num_chains):
    x, network = jnp.array([[-1.0], [2.0]]), mlp((1, 1, 1), activation="tanh")

    def make_posterior(y):
        return Posterior(network, normal_prior(network), Gaussian(0.5), x, y)

    def make_kernel(y):
        return mala(make_posterior(y).log_density, 0.2)

    target = posterior_target(make_posterior, x, jnp.zeros((2, 1)))
    result = check_exact_start(make_kernel, target, steps=STEPS, num_chains=num_chains)
    assert result.passes, str(result)

    def wrong_noise(y):
        wrong = Posterior(network, normal_prior(network), Gaussian(0.8), x, y)
        return mala(wrong.log_density, 0.2)

    result = check_exact_start(wrong_noise, target, steps=STEPS, num_chains=num_chains)
    assert not result.passes, str(result)
