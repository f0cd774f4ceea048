"""Tests of gibbs.interweave and gibbs.interwoven: weights move with the noise held fixed.

`test_the_law_of_the_weights_is_that_of_the_density` catches a lost prior ratio, a lost factor of
one half, the noise of the last stage taken for another's, and logits of a probit that move.
Geweke's joint test catches, on "regression": latents that are not recomputed, a lost prior ratio,
and a lost accept step.
"""

import dataclasses
import importlib
from typing import Any, NamedTuple

import blackjax
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.base import SamplingAlgorithm

from jaxbnn import dual_averaging, sample
from jaxbnn.gibbs import (
    IntermediateNoise,
    gibbs_sampler,
    gibbs_with_moves,
    interweave,
    interwoven_gibbs,
    noncentred_scale_moves,
    redraw_noisy_units,
    scale_moves,
)
from jaxbnn.gibbs.chain import GibbsPosition, chain_values
from jaxbnn.gibbs.stages import split
from jaxbnn.kernels import cycle, on_vector
from jaxbnn.kernels.diagonal_metric import diagonal_metric
from jaxbnn.networks import mlp
from tests.gibbs.cases import MODELS, drawn, patched
from tests.gibbs.test_sweeps import geweke
from tests.kit import both_sizes, for_mutants

module = importlib.import_module("jaxbnn.gibbs.interweave")
interwoven = importlib.import_module("jaxbnn.gibbs.interwoven")


# A model of each kind now; the rest, which says the same, in the long tests.
NAMES = [
    name if name in ("regression", "probit", "conv") else pytest.param(name, marks=pytest.mark.long)
    for name in MODELS
]


def alone(model, x, y, order, bias):
    return interweave(model, x, y, 0.6, 2)


def all_moves(model, x, y, order, bias):
    return interwoven_gibbs(model, x, y, 0.6, 2, num_candidates=3, order=order)


def at_other_weights(model, x, y, position, params):
    """The position with other weights and the same noise, and the log density of the move."""
    before = jnp.moveaxis(x, 0, -1)
    values = chain_values(model, position, y, x.dtype)
    errors = module.noise_of(model, position.params, before, values)
    latents = module.values_given_noise(model, params, before, errors)
    if model.output != "regression":
        latents = [*latents, values[-1]]
    terms = [
        module.output_terms(model, p, before, errors, values[-1]) for p in (params, position.params)
    ]
    log_prior_ratio = module.prior_log_ratio(model.prior, position.params)(params)
    new = GibbsPosition(params, *split(model.latent_stages, latents))
    return new, float(jnp.sum(terms[0] - terms[1]) + log_prior_ratio)


@pytest.mark.short("probit")
@pytest.mark.parametrize("name", NAMES)
def test_the_law_of_the_weights_is_that_of_the_density(name, x64):
    """The joint density changes by what the kernel takes it to; the map there and back is one."""
    model, x, position, y = drawn(name)
    params = model.sample_prior(jax.random.key(7), np.float64)
    new, log_ratio = at_other_weights(model, x, y, position, params)
    exact = model.log_density(new, x, y) - model.log_density(position, x, y)
    assert log_ratio == pytest.approx(float(exact), rel=1e-9)
    back, _ = at_other_weights(model, x, y, new, position.params)
    for a, b in zip(jax.tree.leaves(back), jax.tree.leaves(position), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("name", ["regression", "probit"])
def test_the_map_to_the_noise_keeps_volume(name, x64):
    """Its automatic Jacobian, weights and latents together, has the determinant 1."""
    model, x, position, y = drawn(name, 2)
    before = jnp.moveaxis(x, 0, -1)
    flat, whole = jax.flatten_util.ravel_pytree(position)

    def to_noise(flat):
        position = whole(flat)
        values = chain_values(model, position, y, x.dtype)
        errors = module.noise_of(model, position.params, before, values)
        last = [values[-1]] if model.output != "regression" else []
        return jax.flatten_util.ravel_pytree((position.params, [*errors, *last]))[0]

    jacobian = jax.jacobian(to_noise)(flat)
    assert jacobian.shape[0] == jacobian.shape[1]
    assert abs(float(jnp.linalg.det(jacobian))) == pytest.approx(1.0, rel=1e-9)


@pytest.mark.long
def test_scales_follow_what_depends_on_a_unit(x64):
    """The sum of squared weights on all ways to the outputs, times the positions of a filter."""
    model, _, position, _ = drawn("regression")
    [stage] = module._moving(model)
    v = np.asarray(position.params[-1]["w"])
    scales = module.layer_scales(model, position.params, 7, stage)
    exact = (0.7 + 7 * np.sum(v**2, axis=1) / 0.2) ** -0.5
    np.testing.assert_allclose(scales["w"][0], exact, rtol=1e-9)
    np.testing.assert_allclose(scales["b"], (0.5 - 0.7 + exact**-2) ** -0.5, rtol=1e-9)
    # A filter, then a filter of one channel with six positions, then a Dense.
    model, _, position, _ = drawn("deep conv")
    first, second = module._moving(model)
    filters, last = (np.asarray(position.params[i]["w"]) for i in (3, 6))
    reach = np.sum(last**2)
    scales = module.layer_scales(model, position.params, 7, second)
    np.testing.assert_allclose(scales["w"][0, 0, 0], (1.3 + 7 * reach / 0.25) ** -0.5, rtol=1e-9)
    positions = np.prod(model.stages[3].output_shape[:-1])
    reach = positions * reach * np.sum(filters**2, axis=(0, 1, 3))
    scales = module.layer_scales(model, position.params, 7, first)
    exact = (1.3 + 7 * reach / 0.25) ** -0.5
    np.testing.assert_allclose(scales["w"][0, 0, 0], exact, rtol=1e-9)


def test_a_model_without_hidden_layers_is_taken():
    """Nothing lies above the one layer that there is."""
    model, _, position, _ = drawn("linear")
    [stage] = module._moving(model)
    scales = module.layer_scales(model, position.params, 0, stage)
    weight, bias = model.precisions(stage.affine_index, jnp.float32)
    np.testing.assert_allclose(scales["w"], np.full(scales["w"].shape, weight**-0.5), rtol=1e-5)
    np.testing.assert_allclose(scales["b"], np.full(scales["b"].shape, bias**-0.5), rtol=1e-5)


SHORT = [("regression", alone), pytest.param("binary", all_moves, marks=pytest.mark.long)]
# At the full size all moves of these would take up to half an hour and 4 GB; so many chains find a
# sup-distance of .02, and each move alone is tested at the full size.
LARGE = {"deep": 150_000, "wide": 150_000, "conv": 150_000, "deep conv": 150_000}
MORE = [pytest.param(name, alone, None, id=f"{name}-alone") for name in MODELS]
MORE += [pytest.param(name, all_moves, LARGE.get(name), id=f"{name}-all_moves") for name in MODELS]


@both_sizes(20_000)
@pytest.mark.parametrize(("name", "make"), SHORT)
def test_moves_leave_the_joint_law_invariant(name, make, num_chains):
    result = geweke(name, "sequential", "joint", num_chains, make=make)
    assert result.passes, str(result)


@pytest.mark.long
@pytest.mark.parametrize(("name", "make", "num_chains"), MORE)
def test_more_moves_leave_the_joint_law_invariant(name, make, num_chains):
    result = geweke(name, "backward", "joint", num_chains, make=make)
    assert result.passes, str(result)


def latents_left(model, x, y, order, bias):
    """Mutant: latents are not recomputed."""
    kernel = interweave(model, x, y, 0.6, 2)

    def step(rng_key, state):
        new, info = kernel.step(rng_key, state)
        return state._replace(position=state.position._replace(params=new.position.params)), info

    return kernel._replace(step=step)


def no_prior(model, x, y, order, bias):
    """Mutant: the prior ratio is lost."""
    kernel = interweave(model, x, y, 0.6, 2)
    return patched(kernel, module, "prior_log_ratio", lambda prior, old: lambda new: 0.0)


def other_noise(model, x, y, order, bias):
    """Mutant: the last stage has the noise variance of the first."""
    variances = (*model.noise_variance[:-1], model.noise_variance[0])
    wrong = dataclasses.replace(model, noise_variance=variances)
    return interweave(wrong, x, y, 0.6, 2)


@for_mutants(20_000)
@pytest.mark.parametrize("mutant", [latents_left, no_prior, other_noise])
def test_mutants_are_found(mutant, num_chains):
    result = geweke("regression", "sequential", "joint", num_chains, make=mutant, steps=3)
    assert not result.passes, str(result)


@pytest.mark.long  # in short: that a first layer is brought up to date, test_noncentred_scales.py
@pytest.mark.parametrize("order", ["sequential", "backward"])
def test_one_kernel_is_the_cycle_of_its_parts(order):
    """From given keys the same numbers; a first layer that stays stale is seen in the second."""
    model, x, position, y = drawn("regression", 6, np.float32)
    together = interwoven_gibbs(model, x, y, 0.3, 2, num_candidates=3, order=order)
    parts = (gibbs_sampler(model, x, y, order), interweave(model, x, y, 0.3, 2))
    scales = scale_moves(model, x), noncentred_scale_moves(model, x, y)
    one_by_one = cycle(*parts, *scales, redraw_noisy_units(model, x, y, 3))
    key = jax.random.key(5)
    ours, theirs = jax.jit(together.init)(position), jax.jit(one_by_one.init)(position)
    for i in range(2):
        ours, _ = jax.jit(together.step)(jax.random.fold_in(key, i), ours)
        theirs, _ = jax.jit(one_by_one.step)(jax.random.fold_in(key, i), theirs)
    leaves = zip(jax.tree.leaves(ours.position), jax.tree.leaves(theirs.position), strict=True)
    for a, b in leaves:
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4)


@pytest.mark.long  # in short: test_annealing.py
def test_the_step_adapts_in_warm_up():
    model, x, position, y = drawn("regression", 6, np.float32)
    starts = jax.tree.map(lambda leaf: jnp.stack([leaf] * 8), position)

    def make_kernel(parameters, data):
        return interwoven_gibbs(model, *data, parameters["step_size"], 2)

    draws = sample(
        jax.random.key(0),
        make_kernel,
        starts,
        100,
        parameters={"step_size": 5.0},
        data=(x, y),
        num_warmup=200,
        adapt=dual_averaging(0.8),
        collect=lambda state, info: info.acceptance_rate,
        progress=False,
    )
    assert float(draws.parameters["step_size"][0]) < 5.0
    assert 0.65 < float(np.mean(draws.positions)) < 0.95


@pytest.mark.long
def test_a_move_may_be_a_composition_whose_divergence_is_told():
    model, x, position, y = drawn("regression", 6, np.float32)
    parts = cycle(scale_moves(model, x), redraw_noisy_units(model, x, y, 2))
    kernel = gibbs_with_moves(model, x, y, [parts, never(model, x)])
    state, info = jax.jit(kernel.step)(jax.random.key(0), jax.jit(kernel.init)(position))
    assert bool(info.is_divergent)
    assert jax.tree.structure(state.position) == jax.tree.structure(position)


def never(model, x):
    """A move that stands where it is, and tells of a divergence."""
    kernel = scale_moves(model, x)

    def step(rng_key, state):
        return state, kernel.step(rng_key, state)[1]._replace(is_divergent=jnp.array(True))

    return kernel._replace(step=step)


def test_a_layer_without_the_symmetry_is_named_and_the_other_moves_stay(monkeypatch):
    """With hard_tanh no scale is drawn given the latents; what holds whatever the activation is."""
    model, x, y = (
        IntermediateNoise(mlp((2, 3, 1), "hard_tanh"), 0.1),
        jnp.ones((4, 2)),
        jnp.ones((4, 1)),
    )
    given, right = [], interwoven.gibbs_with_moves

    def told(model, x, y, moves, order):
        given.append(moves)
        return right(model, x, y, moves, order)

    monkeypatch.setattr(interwoven, "gibbs_with_moves", told)
    with pytest.warns(UserWarning, match=r"layer 0 \(Dense\) has no scale symmetry"):
        interwoven_gibbs(model, x, y, 0.3)
    names = [move.step.__qualname__.split(".")[0] for move in given[0]]
    assert names == ["interweave", "noncentred_scale_moves", "redraw_noisy_units"]


def test_bad_input_gets_one_sentence():
    model, x, _, y = drawn("regression", 3, np.float32)
    with pytest.raises(ValueError, match="step_size must be positive"):
        interweave(model, x, y, 0.0)
    with pytest.raises(ValueError, match="proposal must be 'auto', 'hmc' or 'pcn'"):
        interweave(model, x, y, 0.1, proposal="nuts")
    with pytest.raises(ValueError, match=r"step_size must lie in \(0, 1\], but is 1.5"):
        interweave(model, x, y, 1.5, proposal="pcn")
    with pytest.raises(ValueError, match="num_integration_steps must be"):
        interweave(model, x, y, 0.1, 0)
    with pytest.raises(TypeError, match="more_moves"):
        interwoven_gibbs(model, x, y, 0.1, more_moves=[3])
    with pytest.raises(ValueError, match="moves needs at least one kernel"):
        gibbs_with_moves(model, x, y, [])


def test_a_move_that_keeps_a_momentum_is_refused():
    model, x, position, y = drawn("probit", dtype=np.float32)
    for kernel in (
        blackjax.ghmc(lambda p: 0.0, 0.1, 1.0, 0.5, 0.1),
        on_vector(lambda whole: blackjax.mclmc(lambda v: 0.0 * v.sum(), 1.0, 0.1)),
    ):
        with pytest.raises(TypeError, match=r"keeps momentum.* put it into a cycle"):
            gibbs_with_moves(model, x, y, [kernel]).init(position)


class Counted(NamedTuple):
    """A state that does not say what it keeps."""

    position: Any
    count: Any


class CountedAside(NamedTuple):
    position: Any
    inner: Any
    auxiliary = ()


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Counting:
    position: Any
    count: Any
    auxiliary = ("count",)


@pytest.mark.parametrize(
    ("make_state", "words"),
    [
        (lambda p: Counted(p, 0), r"Counted, .*write `auxiliary = \(\)` into the class"),
        (lambda p: CountedAside(p, {"own": Counted(p, 0)}), "Counted, .*which of its fields"),
        (lambda p: CountedAside(p, {"own": Counting(p, 0)}), "keeps count from one step"),
        (lambda p: Counting(p, 0), "keeps count from one step"),
        (lambda p: {"position": p, "count": 0}, "must be a NamedTuple or a dataclass"),
    ],
    ids=["says nothing", "inside another", "in a dict", "a dataclass", "a dict"],
)
def test_a_move_must_say_what_it_keeps(make_state, words):
    """It begins anew in each step, so that a count would be lost without a word."""
    model, x, position, y = drawn("probit", dtype=np.float32)
    move = SamplingAlgorithm(lambda p, rng_key=None: make_state(p), lambda key, state: (state, ()))
    with pytest.raises(TypeError, match=words):
        gibbs_with_moves(model, x, y, [move]).init(position)


def test_a_layer_s_kinetic_energy_is_that_of_the_metric_for_many_numbers(monkeypatch):
    """BlackJAX's own loses .7 nats at 100,000 numbers."""
    module = importlib.import_module("jaxbnn.gibbs.interweave")
    asked = []

    def doubled(inverse_mass):
        asked.append(inverse_mass.shape)
        metric = diagonal_metric(inverse_mass)
        return metric._replace(
            kinetic_energy=lambda *a, **more: 2 * metric.kinetic_energy(*a, **more)
        )

    model, x, position, y = drawn("regression", 6, np.float32)

    def rate():
        kernel = interweave(model, x, y, 0.1)
        return float(
            jax.jit(kernel.step)(jax.random.key(0), kernel.init(position))[1].acceptance_rate
        )

    before = rate()
    monkeypatch.setattr(module, "diagonal_metric", doubled)
    assert rate() != before
    assert asked
