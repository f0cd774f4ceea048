"""Tests of models that learn: chains that learn degrees of freedom, scales, concentrations and
cutpoints keep exact draws exact.

Parameters are drawn from the prior and data from the model, so that the prior's draws and its
density, the predictive law's draws and the likelihood's terms must all be of one model; false-alarm
rate 1e-6 a test.
"""

from dataclasses import dataclass

import blackjax
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
import pytest

from jaxbnn.networks import mlp
from jaxbnn.targets import (
    Laplace,
    LogGamma,
    NegativeBinomial,
    Ordinal,
    Posterior,
    StudentT,
    normal_prior,
)
from tests.kit import check_exact_start, posterior_target

NUM_CHAINS, STEPS = 20_000, 4
X = jnp.array([[-1.0], [0.5], [2.0]])
NETWORK = mlp((1, 1, 1), activation="tanh")
NOISE = LogGamma(2.0, 1.0, exponent=-0.5)
NUMBERS, COUNTS = jnp.zeros((3, 1)), jnp.zeros((3, 1), jnp.int32)
CASES = {
    # The command's prior of the degrees, and a noise scale beside it.
    "StudentT": (
        StudentT(),
        {"log_degrees": LogGamma(2.0, 0.1), "log_noise_scale": NOISE},
        NUMBERS,
    ),
    "Laplace": (Laplace(), {"log_noise_scale": NOISE}, NUMBERS),
    "NegativeBinomial": (NegativeBinomial(), {"log_concentration": LogGamma(2.0, 1.0)}, COUNTS),
    "Ordinal": (
        Ordinal(3),
        {"cutpoint_gaps": dist.Normal(0.0, 1.0).expand((2,)).to_event(1)},
        COUNTS[:, 0],
    ),
}


class OfTheNumber(LogGamma):
    """A density of the number itself, taken for one of its logarithm."""

    def log_prob(self, value):
        return super().log_prob(value) - value


class WithoutItsScale:
    """Terms that lack the logarithm of the scale."""

    def log_prob(self, outputs, y):
        return super().log_prob(outputs, y) + jnp.log(jnp.asarray(self.scale))


@dataclass(frozen=True)
class StudentTWithoutItsScale(WithoutItsScale, StudentT):
    """Student-t terms that lack it."""


@dataclass(frozen=True)
class LaplaceWithoutItsScale(WithoutItsScale, Laplace):
    """Laplace terms that lack it."""


@dataclass(frozen=True)
class OfOtherDegrees(StudentT):
    """Terms with a tail of a third of the degrees."""

    def log_prob(self, outputs, y):
        return StudentT(jnp.asarray(self.degrees) / 3, self.scale).log_prob(outputs, y)


@dataclass(frozen=True)
class OfOtherSpread(NegativeBinomial):
    """Terms of counts with four times the concentration."""

    def log_prob(self, outputs, y):
        return NegativeBinomial(4 * jnp.asarray(self.concentration)).log_prob(outputs, y)


@dataclass(frozen=True)
class OfOtherGaps(Ordinal):
    """Terms of cutpoints with half the first one, and the roots of the gaps."""

    def given(self, parameters):
        return super().given({"cutpoint_gaps": 0.5 * parameters["cutpoint_gaps"]})


MUTANTS = {
    "StudentT-prior": (
        "StudentT",
        StudentT(),
        CASES["StudentT"][1] | {"log_degrees": OfTheNumber(2.0, 0.1)},
    ),
    "StudentT-scale": ("StudentT", StudentTWithoutItsScale(), CASES["StudentT"][1]),
    "StudentT-degrees": ("StudentT", OfOtherDegrees(), CASES["StudentT"][1]),
    "Laplace-scale": ("Laplace", LaplaceWithoutItsScale(), CASES["Laplace"][1]),
    "NegativeBinomial-spread": ("NegativeBinomial", OfOtherSpread(), CASES["NegativeBinomial"][1]),
    "NegativeBinomial-prior": (
        "NegativeBinomial",
        NegativeBinomial(),
        {"log_concentration": OfTheNumber(2.0, 1.0)},
    ),
    "Ordinal-gaps": ("Ordinal", OfOtherGaps(3), CASES["Ordinal"][1]),
}


def _posterior(likelihood, own, y):
    prior = {"network": normal_prior(NETWORK), **own}
    return Posterior(NETWORK, prior, likelihood, X, y)


def _kernel(likelihood, own):
    """Return y -> HMC of the posterior, with a step that is right for numbers near 1."""

    def of(y):
        posterior = _posterior(likelihood, own, y)
        dim = sum(leaf.size for leaf in jax.tree.leaves(posterior.sample_prior(jax.random.key(0))))
        return blackjax.hmc(posterior.log_density, 0.3, jnp.ones(dim), num_integration_steps=3)

    return of


def _target(name):
    likelihood, own, y = CASES[name]
    return posterior_target(lambda y: _posterior(likelihood, own, y), X, y)


@pytest.mark.short("StudentT")
@pytest.mark.parametrize("name", CASES)
def test_what_is_learnt_and_the_data_keep_their_joint_law(name):
    kernel = _kernel(*CASES[name][:2])
    result = check_exact_start(kernel, _target(name), steps=STEPS, num_chains=NUM_CHAINS)
    assert result.passes, str(result)
    assert result.moved > 0.5


@pytest.mark.long
@pytest.mark.parametrize("mutant", MUTANTS)
def test_models_that_do_not_agree_with_themselves_are_found(mutant):
    name, likelihood, own = MUTANTS[mutant]
    result = check_exact_start(
        _kernel(likelihood, own), _target(name), steps=STEPS, num_chains=NUM_CHAINS
    )
    assert not result.passes, str(result)
