"""Tests of ensembles.likelihood_metric: the prior's part is exact, the likelihood's is found where
it is large, in any units; and a chain in that metric needs no other.

Mutants that these find: scores with the prior's left in, scores that are centred, eigenvalues of a
sum in place of a mean, factors that are not roots, leaves that see each other's second derivatives.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax.flatten_util import ravel_pytree

import jaxbnn
from jaxbnn.ensembles.likelihood_metric import (
    first_metric,
    likelihood_metric,
    metrics,
    prior_variances,
)

SIZE, RECORDS = 12, 4000
RNG = np.random.default_rng(0)
PRECISIONS = np.exp(RNG.normal(size=SIZE))
BASIS = np.linalg.qr(RNG.normal(size=(SIZE, SIZE)))[0]
# What the likelihood adds to the prior's precisions: three directions that it tells of.
EXTRA = BASIS[:, :3] * [400.0, 90.0, 20.0] @ BASIS[:, :3].T


class Normal(NamedTuple):
    """What is asked of a posterior, as a PyTree."""

    precisions: np.ndarray

    def log_prior(self, position):
        return -jnp.sum(jnp.asarray(self.precisions) * position**2) / 2


def log_prior(position):
    return -jnp.sum(jnp.asarray(PRECISIONS) * position**2) / 2


def way(centre=0.0):
    """Places, and the scores of a posterior there, whose likelihood's have E[g g^T] = EXTRA."""
    places = RNG.normal(size=(RECORDS, SIZE)) + centre
    root = BASIS[:, :3] * np.sqrt([400.0, 90.0, 20.0])
    of_likelihood = RNG.normal(size=(RECORDS, 3)) @ root.T
    return places, of_likelihood - PRECISIONS * places


def implied_precision(metric):
    """The inverse of the covariance that a metric stands for."""
    sd = np.sqrt(np.asarray(metric["inverse_mass_matrix"]))
    directions, factors = (np.asarray(metric[name]) for name in ("directions", "factors"))
    stretched = np.eye(SIZE) + directions.T * (factors - 1) @ directions
    root = sd[:, None] * stretched
    return np.linalg.inv(root @ root.T)


@pytest.mark.parametrize("centre", [0.0, 30.0])
def test_it_is_the_precision_of_prior_and_likelihood(centre, x64):
    """Far from the prior's mean, too, where the prior's own score is large and tells nothing."""
    places, scores = way(centre)
    metric = likelihood_metric(log_prior, jnp.zeros(SIZE), places, scores, 3)
    found, exact = implied_precision(metric), np.diag(PRECISIONS) + EXTRA
    np.testing.assert_allclose(found, exact, atol=0.12 * np.abs(exact).max())
    # Its directions matter most: the posterior's sd along each of them.
    for column in BASIS[:, :3].T:
        assert column @ found @ column == pytest.approx(column @ exact @ column, rel=0.15)


def test_a_likelihood_that_does_not_fit_counts_by_its_mean_score(x64):
    """Uncentred: on the way in the mean score is what pulls, along the narrowest directions."""
    places = np.zeros((50, SIZE))
    scores = np.tile(30.0 * BASIS[:, 0], (50, 1))
    metric = likelihood_metric(lambda p: -jnp.sum(p**2) / 2, jnp.zeros(SIZE), places, scores, 1)
    np.testing.assert_allclose(np.abs(metric["directions"][0] @ BASIS[:, 0]), 1, rtol=1e-6)
    assert metric["factors"][0] == pytest.approx(1 / np.sqrt(1 + 900), rel=1e-6)


def test_scores_that_are_not_finite_tell_nothing():
    places, scores = way()
    scores[3, 1] = np.nan
    metric = likelihood_metric(log_prior, jnp.zeros(SIZE), places, scores, 3)
    np.testing.assert_array_equal(metric["factors"], 1)
    np.testing.assert_allclose(metric["inverse_mass_matrix"], 1 / PRECISIONS, rtol=1e-5)


def test_the_prior_s_variances_are_those_of_its_distributions():
    network = jaxbnn.mlp((2, 3, 1))
    prior = jaxbnn.normal_prior(network, weight_precision=(4.0, 0.5), bias_precision=2.0)
    x = np.ones((4, 2), np.float32)
    posterior = jaxbnn.Posterior(network, prior, jaxbnn.Gaussian(0.5), x, x[:, :1])
    position = posterior.sample_prior(jax.random.key(0))
    found = ravel_pytree(position)[1](prior_variances(posterior.log_prior, position))
    np.testing.assert_allclose(found[0]["w"], 0.25, rtol=1e-5)
    np.testing.assert_allclose(found[2]["w"], 2.0, rtol=1e-5)
    np.testing.assert_allclose(found[0]["b"], 0.5, rtol=1e-5)


@pytest.mark.long
def test_weights_of_a_hierarchical_prior_have_its_precisions_of_today():
    """Precisions and weights see each other: each leaf's second derivatives are its own."""
    network = jaxbnn.mlp((2, 3, 1))
    x = np.ones((4, 2), np.float32)
    prior = jaxbnn.hierarchical_prior(network)
    posterior = jaxbnn.Posterior(network, prior, jaxbnn.Gaussian(0.5), x, x[:, :1])
    position = posterior.sample_prior(jax.random.key(0))
    found = ravel_pytree(position)[1](prior_variances(posterior.log_prior, position))
    log_precision = position["log_precision"][0]["w"]
    np.testing.assert_allclose(found["network"][0]["w"], np.exp(-log_precision), rtol=1e-4)
    # Of log tau, tau ~ Gamma(1, 1): minus the second derivative is tau (1 + |w|^2 / 2).
    squares = np.sum(np.square(position["network"][0]["w"]))
    exact = 1 / (np.exp(log_precision) * (1 + squares / 2))
    np.testing.assert_allclose(found["log_precision"][0]["w"], exact, rtol=1e-4)


@pytest.mark.parametrize("scale", [0.1, 1.0, 3e4])
@pytest.mark.parametrize("kind", [dist.StudentT, dist.Cauchy, dist.Laplace])
@pytest.mark.parametrize("size", [1, 3, 10])
def test_heavy_tails_have_variances_of_the_size_of_the_numbers(kind, scale, size):
    """None is so wide, where the prior hardly curves, that chains fly off; over draws of it."""
    prior = dist.StudentT(3.0, 0.0, scale) if kind is dist.StudentT else kind(0.0, scale)
    draws = prior.sample(jax.random.key(2), (2000, size))
    found = jax.jit(jax.vmap(lambda x: prior_variances(lambda p: jnp.sum(prior.log_prob(p)), x)))(
        draws
    )
    largest = scale**2 + jnp.max(jnp.square(draws), axis=1, keepdims=True)
    assert (found > scale**2 / 10).all()
    assert (found < 20 * largest).all()


def test_tails_alone_have_a_variance_from_the_prior_s_gradient():
    tails = dist.StudentT(3.0)
    found = prior_variances(lambda p: jnp.sum(tails.log_prob(p)), jnp.array([10.0, 40.0]))
    slopes = jax.vmap(jax.grad(tails.log_prob))(jnp.array([10.0, 40.0]))
    np.testing.assert_allclose(found, 1 / np.mean(np.square(slopes)), rtol=1e-4)


def test_a_flat_prior_counts_as_one_and_normal_numbers_of_one_leaf_as_themselves():
    np.testing.assert_array_equal(prior_variances(lambda p: 0 * jnp.sum(p), jnp.ones(3)), 1)
    scales = jnp.array([1e-3, 1.0, 1e3])
    found = prior_variances(
        lambda p: jnp.sum(dist.Normal(0.5, scales).log_prob(p)), jnp.array([2.0, 0.0, 0.1])
    )
    np.testing.assert_allclose(found, np.square(scales), rtol=1e-3)


def test_chains_have_metrics_of_their_own_and_begin_with_the_prior_s():
    posterior = Normal(PRECISIONS.astype(np.float32))
    first = first_metric(posterior, jnp.zeros((2, SIZE)), 3)
    assert first["directions"].shape == (2, 3, SIZE)
    np.testing.assert_array_equal(first["factors"], 1)
    assert set(first_metric(posterior, jnp.zeros((2, SIZE)), 0)) == {"inverse_mass_matrix"}
    ways = [way(), way(2.0)]
    places, scores = (np.stack(part).astype(np.float32) for part in zip(*ways, strict=True))
    both = metrics(posterior, jnp.zeros((2, SIZE)), places, scores, 3)
    alone = likelihood_metric(log_prior, jnp.zeros(SIZE), places[1], scores[1], 3)
    np.testing.assert_allclose(both["factors"][1], alone["factors"], rtol=1e-4)
    assert not np.allclose(both["factors"][0], both["factors"][1], rtol=1e-4)
