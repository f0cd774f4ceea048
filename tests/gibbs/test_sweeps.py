"""Tests of gibbs.sweep: Geweke's joint test, in every order, with both ways to draw biases."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbnn.gibbs import gibbs_sampler
from jaxbnn.gibbs.first_layer import FirstLayer
from tests.gibbs.cases import MODELS, data
from tests.kit import both_sizes, check_geweke, for_mutants, update_with

N = 2
ROUNDS = 4


def outputs_given(model, x):
    """Return data_given_parameters: the last noise, or the label that the logits have."""

    def sample(key, position):
        if model.output == "probit":
            return jnp.argmax(position.pre[-1], axis=0)
        if model.output == "binary_probit":
            return (position.pre[-1][0] > 0).astype(jnp.int32)
        last, before = model.stages[-1], (*position.pre, *position.post)
        latent = model.latent_stages
        if latent:
            before = position.post[-1] if latent[-1].is_post else position.pre[-1]
        else:
            before = jnp.moveaxis(x, 0, -1)
        mean = last.mean(position.params, before)
        d = model.variance(len(model.stages) - 1, mean.dtype)
        return jnp.moveaxis(mean + jnp.sqrt(d) * jax.random.normal(key, mean.shape), -1, 0)

    return sample


def functions_of(model, x):
    """Return test functions: of each array its mean, square and a projection, and products."""

    def functions(position, y):
        leaves = [*jax.tree.leaves(position), jnp.asarray(y, jnp.float32)]
        found, previous = {}, None
        for i, leaf in enumerate(leaves):
            flat = leaf.ravel()
            weights = np.random.default_rng(i).normal(size=flat.size).astype(np.float32)
            projection = jnp.sum(weights * flat)
            found |= {f"{i} mean": jnp.mean(flat), f"{i} square": jnp.mean(flat**2)}
            found |= {f"{i} projection": projection, f"{i} first": flat[0]}
            if previous is not None:
                found[f"{i - 1} {i}"] = previous * projection
            previous = projection
        return found | {"log density": model.log_density(position, x, y)}

    return functions


def geweke(name, order, bias, num_chains, make=gibbs_sampler, steps=1):
    model, x = MODELS[name], data(name, N, np.float32)
    return geweke_of(model, x, lambda y: make(model, x, y, order, bias), num_chains, steps)


def joint_of(model, x):
    """Return sample(key) -> (weights with latents, labels), all drawn from the model."""

    def sample(key):
        key_weights, key_latents = jax.random.split(key)
        return model.simulate(key_latents, model.sample_prior(key_weights), x)

    return sample


def geweke_of(model, x, make_kernel, num_chains, steps=1):
    """Geweke's joint test of a kernel of weights and latents, made for given labels."""
    return check_geweke(
        joint_of(model, x),
        outputs_given(model, x),
        update_with(make_kernel, steps),
        rounds=ROUNDS,
        test_functions=functions_of(model, x),
        num_chains=num_chains,
    )


CASES = [
    ("regression", "parallel", "separate"),
]
MORE = [
    ("binary", "sequential", "joint"),
    ("conv", "sequential", "joint"),
    ("deep", "backward", "joint"),
    ("regression", "backward", "separate"),
    ("conv", "backward", "joint"),
    ("deep conv", "backward", "joint"),
    ("pool first", "backward", "separate"),
    ("linear", "backward", "joint"),
    ("deep", "parallel", "joint"),
    ("deep conv", "parallel", "separate"),
    ("regression", "sequential", "joint"),
    ("deep", "sequential", "separate"),
    ("wide", "parallel", "joint"),
    ("probit", "sequential", "separate"),
    ("conv", "parallel", "separate"),
    ("deep conv", "sequential", "joint"),
    ("pool first", "sequential", "joint"),
    ("linear", "parallel", "separate"),
]


@both_sizes(40_000)
@pytest.mark.parametrize(("name", "order", "bias"), CASES)
def test_sweeps_leave_the_joint_law_invariant(name, order, bias, num_chains):
    result = geweke(name, order, bias, num_chains)
    assert result.passes, str(result)


@pytest.mark.long
@pytest.mark.parametrize(("name", "order", "bias"), MORE)
def test_more_sweeps_leave_the_joint_law_invariant(name, order, bias):
    result = geweke(name, order, bias, None)
    assert result.passes, str(result)


def one_noise_for_all(model, x, y, order, bias):
    """Mutant: every update of a sweep uses the same key."""
    kernel = gibbs_sampler(model, x, y, order, bias)

    def step(rng_key, state):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(jax.random, "fold_in", lambda key, number: rng_key)
            return kernel.step(rng_key, state)

    return kernel._replace(step=step)


def stale_sums(model, x, y, order, bias):
    """Mutant: the first layer's sums are not brought up to date."""
    kernel = gibbs_sampler(model, x, y, order, bias)

    def step(rng_key, state):
        new, info = kernel.step(rng_key, state)
        return new._replace(first_layer=state.first_layer), info

    return kernel._replace(step=step)


def sums_from_weights_that_are_gone(model, x, y, order, bias):
    """Mutant: the first layer's sums are taken to be those that the sweep began with."""
    kernel = gibbs_sampler(model, x, y, "sequential", bias)
    mutant = gibbs_sampler(model, x, y, order, bias)

    def step(rng_key, state):
        def old(sweep, model, x, errors):
            return state.first_layer

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FirstLayer, "after_outputs", old)
            new, info = mutant.step(rng_key, state)
        return kernel.init(new.position), info

    return kernel._replace(step=step)


@for_mutants(40_000)
@pytest.mark.third_party(reason="a mutant uses a key twice, which the check would see first")
@pytest.mark.parametrize(
    ("mutant", "order"),
    [
        (one_noise_for_all, "sequential"),
        (stale_sums, "sequential"),
        (sums_from_weights_that_are_gone, "backward"),
    ],
)
def test_mutants_of_sweeps_are_found(mutant, order, num_chains):
    result = geweke("regression", order, "joint", num_chains, make=mutant, steps=2)
    assert not result.passes, str(result)
