"""One hidden unit redrawn from the prior, with its latents: a choice among candidates.

`test_the_choice_is_by_the_density` catches a lost determinant, a lost prior precision and a wrong
noise variance in m. Geweke's joint test catches, on "regression": outgoing weights that are not
drawn with the unit, candidates without noise, a determinant that is lost, the unit as it is left
out of the choice.
"""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jaxbnn.gibbs import IntermediateNoise, redraw_noisy_units
from jaxbnn.gibbs.chain import chain_values
from jaxbnn.gibbs.hidden_units import by_unit, hidden_groups
from jaxbnn.networks import Activation, Conv, Dense, Flatten, Network
from tests.gibbs.cases import MODELS, drawn, patched
from tests.gibbs.test_sweeps import geweke
from tests.kit import both_sizes, for_mutants

module = importlib.import_module("jaxbnn.gibbs.redraws")
WITH_UNITS = [name for name in MODELS if name != "linear"]
NAMES = [
    name if name in ("regression", "conv") else pytest.param(name, marks=pytest.mark.long)
    for name in WITH_UNITS
]


def redraws(model, x, y, order, bias):
    return redraw_noisy_units(model, x, y, 3)


def one_redraw(name, number=0):
    model, x, position, y = drawn(name)
    values = chain_values(model, position, y, x.dtype)
    inputs = jnp.moveaxis(x, 0, -1)
    group = hidden_groups(model)[number]
    return module._Redraw(model, group, inputs, list(position.params), values), x, y, position


@pytest.mark.short("conv")
@pytest.mark.parametrize("name", NAMES)
def test_the_choice_is_by_the_density(name, x64):
    """m of a unit is the density of what it feeds, by SciPy, from the outputs of unit weights."""
    redraw, _, _, _ = one_redraw(name)
    model, group = redraw.model, redraw.group
    unit, u = 1, by_unit(redraw.values[group.following - 1], group.size)[:, 1]
    base, explained, residual = redraw.part_of(unit, u)
    target, shape = residual + explained, base.shape
    layer = redraw.last.layer
    window = (*layer.window, 1) if hasattr(layer, "window") else shape[:1]
    columns = []
    for i in range(int(np.prod(shape))):
        w = jnp.zeros(int(np.prod(shape))).at[i].set(1.0).reshape(*window, shape[-1])
        columns.append(np.ravel(module.linear(layer, w, redraw.one(u))))
    design = np.stack(columns, axis=1)
    d = float(model.variance(group.following, np.float64))
    weight = float(model.precisions(redraw.last.affine_index, np.float64)[0])
    covariance = d * np.eye(len(design)) + design @ design.T / weight
    exact = scipy.stats.multivariate_normal(np.zeros(len(design)), covariance).logpdf(
        np.ravel(target)
    )
    none = scipy.stats.norm(0, d**0.5).logpdf(np.ravel(target)).sum()
    log_mass, root, mean = redraw.outgoing_law(u, target, jnp.zeros(shape))
    assert float(log_mass) == pytest.approx(exact - none, rel=1e-9)
    # The same law from the weights as they are, beside the density of what these leave.
    left = scipy.stats.norm(0, d**0.5).logpdf(np.ravel(residual)).sum()
    from_base = redraw.outgoing_law(u, residual, base)
    assert float(from_base[0]) == pytest.approx(exact - left, rel=1e-9)
    for found, expected in zip(from_base[1:], (root, mean), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)
    # The law of the outgoing weights, one output after the other, is that of a regression.
    precision = design.T @ design / d + weight * np.eye(design.shape[1])
    solved = np.linalg.solve(precision, design.T @ np.ravel(target) / d)
    np.testing.assert_allclose(np.ravel(mean), solved, rtol=1e-8, atol=1e-10)
    inverse = np.linalg.inv(precision)[:: shape[-1], :: shape[-1]]
    np.testing.assert_allclose(
        np.asarray(root).T @ np.asarray(root), inverse, rtol=1e-8, atol=1e-12
    )


SHORT = ["regression"]


@both_sizes(20_000)
@pytest.mark.parametrize("name", SHORT)
def test_redraws_leave_the_joint_law_invariant(name, num_chains):
    result = geweke(name, "backward", "joint", num_chains, make=redraws)
    assert result.passes, str(result)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in WITH_UNITS if name not in SHORT])
def test_more_redraws_leave_the_joint_law_invariant(name):
    result = geweke(name, "backward", "joint", None, make=redraws)
    assert result.passes, str(result)


def outgoing_left(right):
    """Mutant: the outgoing weights stay those of the unit before."""

    def put(self, unit, entry, own, index, is_moved, outgoing):
        old = by_unit(self.params[self.last.index]["w"], self.group.size)[:, unit]
        right(self, unit, entry, own, index, is_moved, old)

    return "put", put


def without_noise(right):
    """Mutant: candidates have no noise of their own in their first stage."""

    def candidates(self, key_weights, key_noise, number):
        entry, own = right(self, key_weights, key_noise, number)
        value = module.affine(
            module.dataclasses.replace(self.first.layer, features=number),
            entry,
            self.first.view(self.before[self.group.first]),
        )
        return entry, [by_unit(value, number), *own[1:]]

    return "candidates", candidates


def without_determinant(right):
    """Mutant: m lacks its determinant, which is the price of weights that are free."""

    def outgoing_law(self, u, residual, base):
        log_mass, root, mean = right(self, u, residual, base)
        log_det = jnp.sum(jnp.log(jnp.diagonal(root)))
        return log_mass - base.shape[1] * log_det, root, mean

    return "outgoing_law", outgoing_law


def mutated(mutant):
    def make(model, x, y, order, bias):
        name, wrong = mutant(getattr(module._Redraw, mutant_of[mutant]))
        return patched(redraws(model, x, y, order, bias), module._Redraw, name, wrong)

    return make


mutant_of = {
    outgoing_left: "put",
    without_noise: "candidates",
    without_determinant: "outgoing_law",
}


@for_mutants(20_000)
@pytest.mark.parametrize("mutant", [outgoing_left, without_noise, without_determinant])
def test_mutants_are_found(mutant, num_chains):
    result = geweke("regression", "backward", "joint", num_chains, make=mutated(mutant), steps=3)
    assert not result.passes, str(result)


BORDERED = Network((Conv(4, (3, 3)), Activation("relu"), Flatten(), Dense(1)), (10, 10, 1))


@pytest.mark.short("1e-06")
@pytest.mark.parametrize("variance", [1e-4, 1e-6])
def test_images_with_borders_keep_what_they_explain(variance, rng, x64):
    """In float32, where pixels that are the same in all images make features that repeat.

    The last stage's residuals over D are chi-squared, as in float64; drawn in whole and not as a
    difference, the outgoing weights made them 1.5 times as large at D = 1e-5, 500 times at 1e-6.
    """
    x = np.zeros((1000, 10, 10, 1), np.float32)
    x[:, 3:7, 3:7] = rng.normal(size=(1000, 4, 4, 1))
    model = IntermediateNoise(BORDERED, variance)
    params = model.sample_prior(jax.random.key(0), jnp.float64)
    exact, y = model.simulate(jax.random.key(1), params, jnp.asarray(x, jnp.float64))
    start, y = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), (exact, y))
    kernel = redraw_noisy_units(model, x, y, 8)
    state = kernel.init(start)
    state, info = jax.jit(jax.vmap(kernel.step, (0, None)))(
        jax.random.split(jax.random.key(2), 6), state
    )
    assert not np.any(info.is_divergent)

    def squares(position):
        position = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), position)
        values = chain_values(model, position, y.astype(jnp.float64), jnp.float64)
        residual = values[-1] - model.stages[-1].mean(position.params, values[-2])
        return jnp.sum(residual**2) / variance

    found = jax.vmap(squares)(state.position)
    assert state.position.params[0]["w"].dtype == jnp.float32
    # Six draws, two-sided, 1e-6 in all; the prior and float32's rounding of 1 % aside.
    low, high = scipy.stats.chi2(1000).ppf([1e-6 / 12, 1 - 1e-6 / 12])
    assert np.all((found > 0.9 * low) & (found < 1.01 * high)), found


def test_bad_input_gets_one_sentence():
    model, x, _, y = drawn("linear", 3, np.float32)
    with pytest.raises(ValueError, match="no hidden units; leave redraw_noisy_units out"):
        redraw_noisy_units(model, x, y)
    model, x, _, y = drawn("regression", 3, np.float32)
    with pytest.raises(ValueError, match="num_candidates"):
        redraw_noisy_units(model, x, y, 0)


def test_zeros_are_left_or_left_behind():
    """At a zero start a unit has a density: its outgoing weights keep their prior."""
    model, x, _, y = drawn("regression", 3, np.float32)
    kernel = redraw_noisy_units(model, x, y)
    start = jax.jit(kernel.init)(model.zero_position(x, y))
    state, info = jax.jit(kernel.step)(jax.random.key(0), start)
    assert not info.is_divergent
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.position))
