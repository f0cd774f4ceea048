"""Tests of gibbs.logit_scales: the scale of a probit's logits, drawn exactly.

`test_the_law_is_that_of_the_density` and Geweke's joint test catch a count that is one off, squares
that are halved, a lost prior and logits that are not scaled; the test of the composed kernel
catches one that goes on with the logits of before.
"""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxbnn.gibbs import (
    IntermediateNoise,
    gibbs_sampler,
    gibbs_with_moves,
    interwoven_gibbs,
    logit_scale_moves,
)
from jaxbnn.kernels import cycle
from jaxbnn.networks import Activation, Dense, Network
from tests.gibbs.cases import MODELS, data, drawn, patched
from tests.gibbs.test_sweeps import geweke
from tests.kit import both_sizes, for_mutants

module = importlib.import_module("jaxbnn.gibbs.logit_scales")
NAMES = ("probit", "binary", "conv")


def alone(model, x, y, order, bias):
    return logit_scale_moves(model, x)


def after_gibbs(model, x, y, order, bias):
    return cycle(gibbs_sampler(model, x, y, order, bias), logit_scale_moves(model, x))


@pytest.mark.parametrize("name", NAMES)
def test_the_law_is_that_of_the_density(name, x64):
    """log density + log Jacobian + log c along the orbit, against shape and rate.

    The Jacobian is that of a linear map, from what it makes of ones.
    """
    model, x, position, y = drawn(name)
    p, a, b = module.logit_scale_law(model, jnp.moveaxis(x, 0, -1), position)
    factors = np.array([0.3, 0.8, 1.7, 2.6])
    found = [
        float(model.log_density(module.scaled_logits(model, position, jnp.float64(c)), x, y))
        for c in factors
    ]
    image = module.scaled_logits(model, jax.tree.map(jnp.ones_like, position), jnp.float64(2.0))
    powers = sum(float(jnp.sum(jnp.log2(leaf))) for leaf in jax.tree.leaves(image))
    np.testing.assert_allclose(np.diff(found), np.diff(-a * factors**2 / 2), rtol=1e-9)
    assert p == powers / 2
    assert b == 0


def test_the_draws_are_of_the_gamma_law():
    model, x, position, _ = drawn("probit", dtype=np.float32)
    p, a, _ = module.logit_scale_law(model, jnp.moveaxis(x, 0, -1), position)
    kernel = logit_scale_moves(model, x)
    step = jax.jit(jax.vmap(lambda key: kernel.step(key, kernel.init(position))[0]))
    state = step(jax.random.split(jax.random.key(0), 20_000))
    squares = np.square(np.asarray(state.position.pre[-1][:, 0, 0] / position.pre[-1][0, 0]))
    law = stats.gamma(float(p), scale=2 / float(a))
    assert stats.kstest(squares, law.cdf).pvalue > 1e-6


def test_labels_and_hidden_units_see_nothing():
    model, x, position, y = drawn("conv", dtype=np.float32)
    kernel = logit_scale_moves(model, x)
    state, info = jax.jit(kernel.step)(jax.random.key(2), kernel.init(position))
    after = state.position
    assert not info.is_divergent
    np.testing.assert_array_equal(jnp.argmax(after.pre[-1], axis=0), y)
    for old, new in zip(
        position.pre[:-1] + position.post, after.pre[:-1] + after.post, strict=True
    ):
        np.testing.assert_array_equal(old, new)


SHORT = [("probit", alone)]
MORE = [(name, make) for name in NAMES for make in (alone, after_gibbs)]


@both_sizes(20_000)
@pytest.mark.parametrize(("name", "make"), SHORT)
def test_logit_scales_leave_the_joint_law_invariant(name, make, num_chains):
    result = geweke(name, "sequential", "joint", num_chains, make=make)
    assert result.passes, str(result)


@pytest.mark.long
@pytest.mark.parametrize(("name", "make"), MORE)
def test_more_logit_scales_leave_the_joint_law_invariant(name, make):
    result = geweke(name, "sequential", "joint", None, make=make)
    assert result.passes, str(result)


def off_by_one(law, model, position):
    """The number of what is scaled, counted with one too many."""
    return law._replace(p=law.p + 0.5)


def without_halves(law, model, position):
    """Halved squares, where they belong whole."""
    return law._replace(a=law.a / 2)


def without_prior(law, model, position):
    """The prior ratio of the weights is lost."""
    stage = model.stages[-1]
    weight, bias = model.precisions(stage.affine_index, law.a.dtype)
    entry = position.params[stage.index]
    return law._replace(
        a=law.a - weight * jnp.sum(entry["w"] ** 2) - bias * jnp.sum(entry["b"] ** 2)
    )


LAWS = [off_by_one, without_halves, without_prior]


def logits_left(position, new):
    """The logits are not scaled with the weights."""
    return new._replace(pre=position.pre)


def mutated(mutant):
    """A kernel whose law, or whose map, is the mutant's."""
    law_of, scaled = module.logit_scale_law, module.scaled_logits

    def wrong_law(model, x, position):
        return mutant(law_of(model, x, position), model, position)

    def wrong_map(model, position, factor):
        return mutant(position, scaled(model, position, factor))

    name, wrong = ("logit_scale_law", wrong_law) if mutant in LAWS else ("scaled_logits", wrong_map)

    def make(model, x, y, order, bias):
        return patched(logit_scale_moves(model, x), module, name, wrong)

    return make


@for_mutants(20_000)
@pytest.mark.parametrize("mutant", [*LAWS, logits_left])
def test_mutants_are_found(mutant, num_chains):
    result = geweke("probit", "sequential", "joint", num_chains, make=mutated(mutant))
    assert not result.passes, str(result)


def test_the_composed_kernel_has_it_and_keeps_its_caches():
    """A linear network's first layer is its last: what Gibbs keeps of it must follow the scale."""
    model = IntermediateNoise(Network((Dense(3),), (2,)), 0.3, 0.7, 1.6, "probit")
    x = data("linear", 5, np.float32)
    params = model.sample_prior(jax.random.key(1), np.float32)
    position, y = model.simulate(jax.random.key(0), params, x)
    # Of the two orders this one keeps residuals of the first layer.
    kernel = gibbs_with_moves(model, x, y, [logit_scale_moves(model, x)], "sequential")
    state, _ = jax.jit(kernel.step)(jax.random.key(3), jax.jit(kernel.init)(position))
    one, _ = jax.jit(kernel.step)(jax.random.key(4), state)
    fresh, _ = jax.jit(kernel.step)(jax.random.key(4), kernel.init(state.position))
    for a, b in zip(jax.tree.leaves(one.position), jax.tree.leaves(fresh.position), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_interwoven_gibbs_draws_the_scale_of_a_probit(monkeypatch):
    used = []
    interwoven = importlib.import_module("jaxbnn.gibbs.interwoven")
    monkeypatch.setattr(
        interwoven, "logit_scale_moves", lambda *a: used.append(a) or logit_scale_moves(*a)
    )
    for name, count in (("probit", 1), ("regression", 1), ("binary", 2)):
        model, x, _, y = drawn(name, dtype=np.float32)
        interwoven_gibbs(model, x, y, 0.1)
        assert len(used) == count


def test_what_has_no_such_scale_is_refused():
    x = data("regression", 2, np.float32)
    with pytest.raises(ValueError, match="outputs of a regression are data"):
        logit_scale_moves(MODELS["regression"], x)
    with pytest.raises(ValueError, match="x holds nan"):
        logit_scale_moves(MODELS["probit"], x.at[0, 0].set(jnp.nan))


def test_logits_behind_an_activation_have_none():
    network = Network((Dense(3), Activation("leaky_relu")), (2,))
    model = IntermediateNoise(network, 0.3, output="probit")
    x = data("regression", 4, np.float32)[:, :2]
    position, y = model.simulate(jax.random.key(0), model.sample_prior(jax.random.key(1)), x)
    with pytest.raises(ValueError, match="ends in an activation"):
        logit_scale_moves(model, x)
    kernel = interwoven_gibbs(model, x, y, 0.1, 1)
    state, info = jax.jit(kernel.step)(jax.random.key(2), kernel.init(position))
    assert not info.is_divergent
    assert jnp.all(jnp.argmax(state.position.post[-1], axis=0) == y)


def test_zeros_have_no_scale():
    model, x, _, y = drawn("probit", dtype=np.float32)
    kernel = logit_scale_moves(model, x)
    nothing = jax.tree.map(jnp.zeros_like, model.zero_position(x, y))
    state, info = jax.jit(kernel.step)(jax.random.key(0), kernel.init(nothing))
    assert info.is_divergent
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(state.position))
