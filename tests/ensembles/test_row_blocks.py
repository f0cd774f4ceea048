"""Tests of ensembles.row_blocks: the same posterior in blocks of rows, only where that pays, and
kept draws of its law.
"""

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import jaxbnn
from jaxbnn.ensembles import recipe, row_blocks
from jaxbnn.ensembles.row_blocks import InRowBlocks, in_row_blocks
from jaxbnn.networks import Activation, Conv, Dense, Flatten, Network
from jaxbnn.targets import Categorical, LearnedGaussian
from tests.ensembles import test_recipe


@pytest.fixture
def blocks_of_seven(monkeypatch):
    monkeypatch.setattr(row_blocks, "_ROWS", 7)
    monkeypatch.setattr(row_blocks, "_FEWEST_NUMBERS", 0)


def convolutional(rng, rows):
    layers = (Conv(2, (3, 3)), Activation("tanh"), Flatten(), Dense(3))
    network = Network(layers, (5, 5, 1))
    x = rng.normal(size=(rows, 5, 5, 1))
    prior = jaxbnn.normal_prior(network)
    return jaxbnn.Posterior(network, prior, Categorical(), x, rng.integers(0, 3, rows))


def perceptron(rng, rows):
    network = jaxbnn.mlp((2, 4, 1))
    x = rng.normal(size=(rows, 2))
    prior = {"network": jaxbnn.normal_prior(network), "log_noise_scale": dist.Normal(0, 1)}
    return jaxbnn.Posterior(network, prior, LearnedGaussian(), x, x[:, :1] ** 2)


@pytest.mark.short("convolutional-8", "perceptron-7", "perceptron-30")
@pytest.mark.parametrize("rows", [1, 6, 7, 8, 21, 30])
@pytest.mark.parametrize("model", [convolutional, perceptron])
def test_densities_and_gradients_are_the_same(rows, model, rng, blocks_of_seven, x64):
    posterior = model(rng, rows).tempered(0.7)
    blocked = in_row_blocks(posterior, 3)
    assert isinstance(blocked.network, InRowBlocks)
    positions = posterior.sample_prior(jax.random.key(0), (3,))
    reference = posterior.sample_prior(jax.random.key(1))

    def values(which):
        def at(position):
            return (
                jax.value_and_grad(which.log_density)(position),
                jax.value_and_grad(which.log_density_from(reference))(position),
                which.log_likelihood(position),
            )

        return jax.vmap(at)(positions)

    jax.tree.map(
        lambda found, expected: np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9),
        values(blocked),
        values(posterior),
    )


def test_there_are_blocks_only_where_they_pay(rng):
    network = jaxbnn.mlp((2, 100, 1))
    x = rng.normal(size=(3000, 2)).astype(np.float32)
    prior, likelihood = jaxbnn.normal_prior(network), jaxbnn.Gaussian(1.0)
    posterior = jaxbnn.Posterior(network, prior, likelihood, x, x[:, :1])
    assert isinstance(in_row_blocks(posterior, 10).network, InRowBlocks)
    assert in_row_blocks(posterior, 1) is posterior
    assert in_row_blocks(posterior.with_data(x[:100], x[:100, :1]), 10).network is network
    # Of a function nobody knows that its rows are independent.
    weights = dist.Normal(0, np.ones((2, 1), np.float32))
    function = jaxbnn.Posterior(lambda p, x: x @ p, weights, likelihood, x, x[:, :1])
    assert in_row_blocks(function, 10_000) is function


@pytest.mark.long
@pytest.mark.third_party(reason="BlackJAX's kernels promote dtypes")
def test_kept_draws_have_the_posterior_s_moments(blocks_of_seven, monkeypatch):
    seen = []
    monkeypatch.setattr(
        recipe, "in_row_blocks", lambda *a: seen.append(in_row_blocks(*a)) or seen[-1]
    )
    test_recipe.check_moments(test_recipe.run(kernel="adjusted_microcanonical"))
    assert isinstance(seen[0].network, InRowBlocks)
