"""Tests of what is called inside `jit`, with known numbers of JAX and with traced ones.

There an operation on known numbers is traced, too: a check that compares them in Python or by what
NumPy hands on to them ends in JAX's own words, though the same call is fine outside.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.errors import JAXIndexError, JAXTypeError

from jaxbnn import (
    Gaussian,
    Posterior,
    diagnostics,
    dvi,
    gibbs,
    normal_prior,
    numerics,
    prediction,
)
from jaxbnn.networks import mlp
from jaxbnn.thermalization import classical_posterior
from tests.kit import hostile_options as tried

# Of scikit-learn and Matplotlib, and what needs a model's own trace.
ELSEWHERE = {"BayesianRegressor", "BayesianClassifier", "sample_network"} | {
    name for name, (function, _) in tried.TRIED.items() if "plots" in function.__module__
}
# Made here: within `jit` they would be traced.
HALF, LABELS, X = jnp.asarray(0.5), jnp.asarray(tried.LABELS), jnp.asarray(tried.X)
KEY = jax.random.key(0)
# Temperatures 0, 1/2, 1 for log likelihoods, too.
LADDERS = jnp.broadcast_to(jnp.linspace(0, 1, 3), (2, 8, 3))
POSTERIOR = Posterior(mlp((2, 3, 1)), normal_prior(mlp((2, 3, 1))), Gaussian(HALF), X, X[:, :1])
POSITION = POSTERIOR.sample_prior(KEY)
BINARY = gibbs.IntermediateNoise(mlp((2, 3, 1)), 0.5, output="binary_probit")
CLASSES = classical_posterior(BINARY, X, LABELS)
PROBIT = gibbs.IntermediateNoise(mlp((2, 3, 2), "relu"), jnp.full(3, 0.1), output="probit")


@pytest.fixture(autouse=True)
def keys_may_be_used_again():
    """What is tried is made anew for each call, from the same keys."""
    with jax.debug_key_reuse(False):
        yield


def _of_jax(given):
    """Return arguments with arrays of JAX for those of NumPy and for numbers; records stay."""
    if (isinstance(given, np.ndarray) and given.dtype.kind in "fiub") or type(given) is float:
        return jnp.asarray(given)
    if type(given) is dict:
        return {name: _of_jax(value) for name, value in given.items()}
    return type(given)(map(_of_jax, given)) if type(given) in (tuple, list) else given


def _error_within_jit(call):
    def run(x):
        call()
        return x

    try:
        jax.eval_shape(run, 1.0)
    except Exception as error:  # what is wrong outside, too, may be anything
        return error
    return None


def _call_of(name, is_traced):
    """Return the call of a public function, with known numbers of JAX or with traced ones."""
    function, before = tried.TRIED[name]
    made = before(), tried.NEEDED.get(name, {})
    known = _of_jax(made)

    def call():
        arguments, options = _of_jax(made) if is_traced else known
        function(*arguments, **options)

    return call


@pytest.mark.parametrize("is_traced", [False, True], ids=["known", "traced"])
@pytest.mark.parametrize("name", sorted(set(tried.TRIED) - ELSEWHERE))
def test_a_public_function_within_jit_does_not_end_in_words_of_jax(name, is_traced):
    error = _error_within_jit(_call_of(name, is_traced))
    assert not isinstance(error, (JAXTypeError, JAXIndexError))


ANSWERED = {
    "labels of a probit": lambda: gibbs.gibbs_sampler(PROBIT, X, LABELS),
    "weight of the divergence": lambda: dvi.deterministic_vi(
        tried.NETWORK, tried.NOISE, dvi.empirical_bayes(), kl_weight=HALF
    ),
    "a fraction": lambda: numerics.check_fraction("level", HALF),
    "a power": lambda: POSTERIOR.tempered(HALF).log_density(POSITION),
    "the power of a temperature": lambda: CLASSES.log_density(CLASSES.sample_prior(KEY)),
    "log likelihoods": lambda: diagnostics.bennett_acceptance_ratio(LADDERS, LADDERS[0, 0]),
}
REFUSED = (
    "blockwise_rhat", "compare", "energy_error_in_words", "fit", "merge_time", "predict",
    "reliability", "sample", "score_time", "stationarity_time", "summary",
)  # fmt: skip


@pytest.mark.parametrize("what", ANSWERED)
def test_numbers_of_jax_are_looked_at_within_jit(what):
    assert _error_within_jit(ANSWERED[what]) is None


@pytest.mark.parametrize("is_traced", [False, True], ids=["known", "traced"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_works_on_the_host_says_so_within_jit(name, is_traced):
    with pytest.raises(ValueError, match=rf"^{name} cannot be called inside jax\.jit"):
        raise _error_within_jit(_call_of(name, is_traced))


def test_scores_are_made_on_the_host():
    draws, x, posterior = tried.TRIED["predict"][1]()
    error = _error_within_jit(lambda: prediction.scores(draws, x, tried.Y, posterior))
    assert str(error).startswith("scores cannot be called inside jax.jit")
