"""Calls with None, words or keys where numbers or one of a few words are asked for; all found once.

Each with the words that it ends in now, as in `hostile_found`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import jaxbnn
from jaxbnn import diagnostics, dvi, gibbs, numerics, plots, thermalization
from jaxbnn.networks import mlp

KEY, WORDS = jax.random.key(0), np.array(["a", "b"])
X, Y, STEPS = np.eye(2, dtype=np.float32), np.ones((2, 1), np.float32), np.arange(100)
DRAWS = np.sin(np.arange(200.0)).reshape(2, 100, 1).astype(np.float32)
NETWORK, NOISE = mlp((2, 1)), jaxbnn.Gaussian(1.0)
MODEL = gibbs.IntermediateNoise(mlp((2, 3, 1)), 0.1)
UNIT = dvi.GaussianMoments(np.zeros((2, 1), np.float32), np.ones((2, 1), np.float32))


def _vi(**options):
    return dvi.deterministic_vi(NETWORK, NOISE, dvi.empirical_bayes(), **options)


def _fitted(**options):
    return dvi.fit(KEY, _vi(), _started(shape=(1,)), X, Y, 1, **options)


def _started(**options):
    return dvi.initial_position(KEY, NETWORK, **options)


def _q(leaf):
    return dvi.FactorisedNormal({"w": leaf}, {"w": leaf})


def _sweep(x=X, y=Y, **options):
    return jaxbnn.gibbs_sampler(MODEL, x, y, **options)


def _judged(**options):
    return diagnostics.blockwise_rhat(DRAWS, STEPS, **options)


def _in_words(**options):
    return diagnostics.energy_error_in_words(DRAWS[..., 0], 2, **options)


def _learned(value):
    prior = {"network": jaxbnn.normal_prior(NETWORK), "log_noise_scale": dist.Normal(0.0, 1.0)}
    posterior = jaxbnn.Posterior(NETWORK, prior, jaxbnn.LearnedGaussian(), X, Y)
    params = jaxbnn.networks.init(KEY, NETWORK)
    return posterior.log_likelihood({"network": params, "log_noise_scale": value})


def _scheduled(value):
    adaptation = jaxbnn.schedule(lambda step: {"step_size": value})
    return adaptation.init({"step_size": jnp.ones(())})


FOUND = [
    ("kl_weight must hold real numbers", lambda: _vi(kl_weight=None)),
    ("own_data must be", lambda: _fitted(own_data=WORDS)),
    ("q.mean['w'] must hold", lambda: dvi.kl_divergence(_q(WORDS), dvi.empirical_bayes())),
    ("q.mean['w'] must hold", lambda: dvi.kl_divergence(_q(1j * X), dvi.empirical_bayes())),
    ("must be numbers", lambda: _started(variance=None)),
    ("tolerance must hold real", lambda: dvi.nodes_for(1j)),
    ("max_correlation must hold", lambda: dvi.nodes_for(1e-3, max_correlation=[0.5j])),
    ("shape must be a tuple of", lambda: _started(shape=("3",))),
    ("shape must be a tuple of", lambda: numerics.standard_normal(KEY, (2, "3"))),
    ("shape must be a tuple of", lambda: numerics.standard_normal(KEY, (X[0], 2))),
    ("shape must be a tuple of", lambda: numerics.standard_normal(KEY, 1j)),
    ("rank must be a whole number", lambda: dvi.predictive(NOISE, UNIT, rank="1")),
    ("labels of a partition are", lambda: dvi.empirical_bayes(partition=KEY)),
    ("metric must be 'draws'", lambda: jaxbnn.window_adaptation(100, metric=X)),
    ("order must be 'sequential'", lambda: _sweep(order=WORDS)),
    ("bias must be 'joint'", lambda: _sweep(bias=KEY)),
    ("x must hold real numbers", lambda: gibbs.scale_moves(MODEL, None)),
    ("x must hold real numbers", lambda: _sweep(x=None)),
    ("y must hold real numbers", lambda: _sweep(y=None)),
    ("y must hold real numbers", lambda: _sweep(y={"a": "b"})),
    ("y must hold real numbers", lambda: dvi.expected_log_likelihood(NOISE, UNIT, None)),
    ("replica must be whole numbers", lambda: diagnostics.by_replica(X, None)),
    ("percentiles must hold real", lambda: _judged(percentiles=KEY)),
    ("is_whole must hold real", lambda: _in_words(is_whole=KEY)),
    ("mse must be a dict", lambda: thermalization.compare(STEPS, None)),
    ("draws must be one array", lambda: plots.trace(KEY)),
    ("axes must be Matplotlib axes", lambda: plots.trace(DRAWS, axes=KEY)),
    ("log_noise_scale'] must hold real", lambda: _learned("0.5")),
    ("what function returns as", lambda: _scheduled("1")),
]
