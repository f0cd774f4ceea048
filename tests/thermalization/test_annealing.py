"""Tests of thermalization.annealing and thermalization.schedules: an annealed warm-up ends at the
model's posterior, with a step size found there.
"""

import dataclasses
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.base import SamplingAlgorithm

from jaxbnn.gibbs import IntermediateNoise
from jaxbnn.kernels.refresh import auxiliary_fields
from jaxbnn.networks import mlp
from jaxbnn.thermalization import annealing, sample_annealed
from jaxbnn.thermalization.annealing import stage_variances
from jaxbnn.thermalization.schedules import geometric

MODEL = IntermediateNoise(mlp((2, 3, 1)), (0.3, 1e-3, 0.02), 2.0, 1.5)
PARAMETERS = {"noise_variance": jnp.full(3, 0.1), "step_size": jnp.asarray(0.3)}


class Accepted(NamedTuple):
    acceptance_rate: jax.Array


class Lost(NamedTuple):
    acceptance_rate: jax.Array
    is_divergent: jax.Array


@auxiliary_fields()
class At(NamedTuple):
    position: Any


def dataset():
    keys = jax.random.split(jax.random.key(0), 3)
    x = jax.random.normal(keys[0], (20, 2))
    return x, MODEL.simulate(keys[1], MODEL.sample_prior(keys[2]), x)[1]


def test_the_schedule_is_geometric_and_raises_no_noise_that_is_larger():
    variances = np.stack(
        [geometric(stage_variances(MODEL), 0.1, 10)(jnp.asarray(step)) for step in range(12)]
    )
    np.testing.assert_allclose(variances[0], (0.3, 0.1, 0.1), rtol=1e-5)
    np.testing.assert_allclose(variances[10:], np.tile((0.3, 1e-3, 0.02), (2, 1)), rtol=1e-5)
    np.testing.assert_allclose(np.diff(np.log(variances[:11, 1])), np.log(1e-2) / 10, rtol=1e-3)
    assert np.all(variances[:, 0] == variances[0, 0])


@pytest.mark.long
def test_one_call_ends_at_the_models_posterior():
    x, y = dataset()
    zero = jax.tree.map(lambda leaf: jnp.stack([leaf] * 8), MODEL.zero_position(x, y))
    draws = sample_annealed(
        jax.random.key(1), MODEL, x, y, zero, 40, num_warmup=120, progress=False
    )
    assert draws.positions[0]["w"].shape == (8, 40, 2, 3)
    np.testing.assert_allclose(
        draws.parameters["noise_variance"], np.tile((0.3, 1e-3, 0.02), (8, 1)), rtol=1e-6
    )
    assert len(np.unique(draws.parameters["step_size"])) == 8
    assert 0.5 < float(np.mean(draws.acceptance_rate)) < 0.98


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"schedule": lambda step: 0.1}, "the schedule must end at the model's noise variance"),
        (
            {"schedule": lambda step: -0.1 * step.astype(float)},
            "noise variance at step 0 must be positive",
        ),
        (
            {"schedule": lambda step: jnp.where(step == 40, -1.0, 0.1)},
            "noise variance at step 40 must be positive",
        ),
        (
            {"schedule": lambda step: jnp.full(5, 1e-3)},
            r"one for each of the 3 stages, but returns shape \(5,\)",
        ),
        ({"start": 0.0}, "start must be positive"),
        ({"hold": 1.0}, "hold must lie between 0 and 1"),
    ],
)
def test_bad_schedules_get_one_sentence(options, words):
    with pytest.raises(ValueError, match=words):
        annealing(MODEL, 100, **options)


def test_a_schedule_of_no_numbers_is_refused():
    with pytest.raises(TypeError, match="what schedule returns must hold real numbers"):
        annealing(MODEL, 100, schedule=lambda step: None)


def test_a_schedule_serves_within_jit():
    """Of a model that is known there, of one that is traced, and of numbers that are."""

    def last(variance, start):
        model = dataclasses.replace(MODEL, noise_variance=variance)

        def values(step):
            return jnp.where(step < 50, start, jnp.stack(variance))

        adapt = annealing(model, 100, schedule=values)
        a, info = adapt.init(PARAMETERS), Accepted(jnp.asarray(0.9))
        steps = jnp.array([3, 98])
        return jnp.stack([adapt.update(a, step, None, info)[1]["noise_variance"] for step in steps])

    variance = tuple(jnp.asarray(v) for v in (0.3, 1e-3, 0.02))
    expected = [[0.5] * 3, [0.3, 1e-3, 0.02]]
    np.testing.assert_allclose(last(variance, 0.5), expected, rtol=1e-6)
    known = jax.jit(lambda _: last((0.3, 1e-3, 0.02), 0.5))
    np.testing.assert_allclose(known(0.0), expected, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(last)(variance, jnp.asarray(0.5)), expected, rtol=1e-6)


def test_a_warm_up_ends_at_the_models_noise_however_little_is_held():
    adapt = annealing(MODEL, 4, hold=0.01)
    a = adapt.init(PARAMETERS)
    for step in range(3):
        a, now = adapt.update(a, jnp.asarray(step), None, Accepted(jnp.asarray(0.8)))
    np.testing.assert_allclose(now["noise_variance"], (0.3, 1e-3, 0.02), rtol=1e-5)


def test_labels_that_do_not_exist_are_refused_before_anything_is_compiled():
    model = IntermediateNoise(mlp((2, 3, 3)), 0.1, output="probit")
    x, y = jnp.ones((3, 2)), jnp.array([1, 2, 3])
    zero = jax.tree.map(lambda leaf: leaf[None], model.zero_position(x, y - 1))
    with pytest.raises(ValueError, match="labels from 0 to 2, but runs from 1 to 3"):
        sample_annealed(jax.random.key(0), model, x, y, zero, 2, num_warmup=20, progress=False)


def test_what_an_annealed_run_sets_itself_is_not_for_its_caller():
    model, x, y = IntermediateNoise(mlp((2, 1)), 0.1), jnp.ones((3, 2)), jnp.ones((3, 1))
    zero = jax.tree.map(lambda leaf: leaf[None], model.zero_position(x, y))
    for name in ("parameters", "data", "adapt"):
        with pytest.raises(TypeError, match=f"sample_annealed sets {name} itself"):
            sample_annealed(jax.random.key(0), model, x, y, zero, 2, num_warmup=20, **{name: {}})


def test_a_schedule_of_ones_own():
    adapt = annealing(
        IntermediateNoise(mlp((2, 3, 1)), 1e-3),
        100,
        schedule=lambda step: jnp.where(step < 50, 0.1, 1e-3),
    )
    a, info = adapt.init(PARAMETERS), Accepted(jnp.asarray(0.9))
    _, early = adapt.update(a, jnp.asarray(3), None, info)
    _, late = adapt.update(a, jnp.asarray(60), None, info)
    np.testing.assert_allclose(early["noise_variance"], 0.1, rtol=1e-6)
    np.testing.assert_allclose(late["noise_variance"], 1e-3, rtol=1e-6)
    with pytest.raises(ValueError, match="'noise_variance'"):
        adapt.init({"step_size": 0.1})


def step_sizes(adapt, num_warmup, rate, **parameters):
    """Return the step sizes, the first among them, and the kept one, at a rate of acceptance."""

    def step(a, number):
        a, now = adapt.update(a, number, None, Accepted(jnp.asarray(rate)))
        return a, now["step_size"]

    begun = adapt.init(PARAMETERS | parameters)
    a, found = jax.lax.scan(step, begun, jnp.arange(num_warmup, dtype=jnp.uint32))
    return np.append(PARAMETERS["step_size"], found), float(adapt.final(a)["step_size"])


def test_what_cannot_be_accepted_counts_as_a_rejection():
    sizes, kept = step_sizes(annealing(MODEL, 40), 40, np.nan)
    rejected, kept_of_rejected = step_sizes(annealing(MODEL, 40), 40, 0.0)
    np.testing.assert_array_equal(sizes, rejected)
    assert np.all(np.diff(sizes[1:20]) < 0)
    assert kept == kept_of_rejected > 0


@pytest.mark.parametrize(("rate", "sign"), [(0.65, 1), (0.35, -1)])
def test_step_sizes_rise_where_more_is_accepted_than_is_asked_for(rate, sign):
    adapt = annealing(MODEL, 40, target_acceptance_rate=0.5)
    sizes, _ = step_sizes(adapt, 40, rate)
    assert np.all(sign * np.diff(sizes[1:20]) > 0)


def test_a_run_begins_at_the_noise_that_is_asked_for(monkeypatch):
    asked = {}

    def stop(*_, **options):
        asked.update(options)
        raise KeyboardInterrupt

    monkeypatch.setattr(import_module("jaxbnn.thermalization.annealing"), "sample", stop)
    x, y = jnp.ones((3, 2)), jnp.ones((3, 1))
    zero = jax.tree.map(lambda leaf: leaf[None], MODEL.zero_position(x, y))
    with pytest.raises(KeyboardInterrupt):
        sample_annealed(jax.random.key(0), MODEL, x, y, zero, 2, num_warmup=40, start=2.0)
    np.testing.assert_allclose(asked["parameters"]["noise_variance"], np.full((1, 3), 2.0))
    adapt = asked["adapt"]
    accepted = Accepted(jnp.asarray(0.8))
    _, now = adapt.update(adapt.init(PARAMETERS), jnp.asarray(0), None, accepted)
    final = np.array([0.3, 1e-3, 0.02])
    expected = final * (2.0 / final) ** (27 / 28)  # a step of the 28 that are not held
    np.testing.assert_allclose(now["noise_variance"], expected, rtol=1e-4)


@pytest.mark.parametrize(("num_warmup", "hold"), [(1, 0.3), (2, 0.3), (3, 0.3), (100, 0.01)])
def test_a_warm_up_that_ends_as_it_begins_anew_keeps_the_step_it_had(num_warmup, hold):
    """Dual averaging without a step gives exactly 1, whatever the chain: no step size of ours."""
    adapt = annealing(MODEL, num_warmup, hold=hold)
    found, kept = step_sizes(adapt, num_warmup, 0.1)
    assert kept != 1.0
    assert 0.999 * found.min() <= kept <= 1.001 * found.max()


def test_step_sizes_are_forgotten_where_the_schedule_ends():
    """Dual averaging that begins tries ten times the step; at its target rate it then stays."""
    model = IntermediateNoise(mlp((2, 3, 1)), 1e-3)

    def begins_anew(schedule=None, **parameters):
        adapt = annealing(model, 40, hold=0.5, schedule=schedule)
        sizes, _ = step_sizes(adapt, 40, 0.8, **parameters)
        return np.flatnonzero(sizes[1:] > 9 * sizes[:-1]).tolist()

    # The step after the first at the model's noise is the first that may be tuned by it.
    assert begins_anew() == [0, 21]
    for end in (7, 30):
        assert begins_anew(lambda step, end=end: jnp.where(step < end, 0.1, 1e-3)) == [0, end + 1]
    # At the model's noise from the first step on there is one law all the way.
    assert begins_anew(lambda step: 1e-3) == [0]
    assert begins_anew(anneal_from=jnp.asarray(0.0)) == [0]


def test_each_chain_may_begin_elsewhere():
    adapt = annealing(MODEL, 100)
    parameters, info = PARAMETERS | {"noise_variance": jnp.ones(3)}, Accepted(jnp.asarray(0.9))

    def first_of(anneal_from):
        given = parameters | {"anneal_from": jnp.asarray(anneal_from)}
        return adapt.update(adapt.init(given), jnp.asarray(0), None, info)[1]["noise_variance"]

    np.testing.assert_allclose(first_of(0.0), (0.3, 1e-3, 0.02), rtol=1e-5)
    assert 0.8 < float(first_of(1.0)[1]) < 1


def test_a_turn_follows_so_many_sweeps_and_their_rate_is_told(monkeypatch):
    """A turn that sets the weights to 7 and tells of a divergence; sweeps that count themselves."""
    x, y = dataset()
    position = MODEL.zero_position(x, y)

    def counting(model, x, y, *_):
        def step(rng_key, state):
            added = jax.tree.map(lambda leaf: leaf + 1, state.position.params)
            told = Accepted(jnp.asarray(0.25))
            return At(state.position._replace(params=added)), told

        return SamplingAlgorithm(lambda position, rng_key=None: At(position), step)

    def to_seven(model, x, y):
        def step(rng_key, state):
            met.append(state.position.params)
            sevens = jax.tree.map(lambda leaf: jnp.full_like(leaf, 7), state.position.params)
            return At(state.position._replace(params=sevens)), Lost(
                jnp.asarray(0.0), jnp.asarray(True)
            )

        return SamplingAlgorithm(lambda position, rng_key=None: At(position), step)

    met = []
    rooms = import_module("jaxbnn.thermalization.annealing")
    monkeypatch.setattr(rooms, "interwoven_gibbs", counting)
    monkeypatch.setattr(rooms, "turn_units", to_seven)
    kernel = rooms.make_annealed(MODEL, turns_every=4)(PARAMETERS, (x, y))
    state, info = kernel.step(jax.random.key(0), kernel.init(position))
    assert {float(v) for leaf in jax.tree.leaves(met) for v in np.ravel(leaf)} == {4.0}
    assert {float(v) for v in np.ravel(jax.tree.leaves(state.position.params)[0])} == {7.0}
    assert float(info.acceptance_rate) == 0.25
    assert bool(info.is_divergent)
    kernel = rooms.make_annealed(MODEL)(PARAMETERS, (x, y))
    state, _ = kernel.step(jax.random.key(0), kernel.init(position))
    assert {float(v) for v in np.ravel(jax.tree.leaves(state.position.params)[0])} == {1.0}


def test_turns_of_a_model_that_has_none_are_refused_before_anything_is_compiled():
    model = IntermediateNoise(mlp((2, 3, 3, 1)), 0.1)
    x, y = jnp.ones((3, 2)), jnp.ones((3, 1))
    zero = jax.tree.map(lambda leaf: leaf[None], model.zero_position(x, y))
    sampled = partial(sample_annealed, jax.random.key(0), model, x, y, zero, 2, num_warmup=2)
    with pytest.raises(ValueError, match="one hidden layer"):
        sampled(turns_every=5)
    with pytest.raises(ValueError, match="turns_every"):
        sampled(turns_every=-1)


@pytest.mark.long
def test_chains_with_turns_keep_the_models_noise_and_their_step_size_is_tuned():
    x, y = dataset()
    zero = jax.tree.map(lambda leaf: jnp.stack([leaf] * 4), MODEL.zero_position(x, y))
    draws = sample_annealed(
        jax.random.key(1), MODEL, x, y, zero, 20, num_warmup=40, turns_every=5, progress=False
    )
    assert draws.positions[0]["w"].shape == (4, 20, 2, 3)
    np.testing.assert_allclose(
        draws.parameters["noise_variance"], np.tile((0.3, 1e-3, 0.02), (4, 1)), rtol=1e-6
    )
    # A turn is seldom accepted: in the mean with the sweeps' it would drive the step size down.
    assert 0.6 < float(np.mean(draws.acceptance_rate)) < 0.98


@pytest.mark.long
def test_a_step_size_that_is_a_whole_number_is_tuned():
    x, y = dataset()
    starts = jax.tree.map(lambda leaf: jnp.stack([leaf] * 2), MODEL.zero_position(x, y))
    options = {"num_warmup": 40, "start": 0.01, "progress": False}
    found = [
        sample_annealed(jax.random.key(3), MODEL, x, y, starts, 2, step_size=first, **options)
        for first in (1, 1.0)
    ]
    steps = [np.asarray(draws.parameters["step_size"]) for draws in found]
    np.testing.assert_array_equal(*steps)
    assert (steps[0] != 1).all()


def test_a_kernel_is_of_the_variances_that_it_is_given(monkeypatch):
    room, seen = import_module("jaxbnn.thermalization.annealing"), []

    def of_model(model, x, y, *more):
        seen.append((model.noise_variance, *more))

    monkeypatch.setattr(room, "interwoven_gibbs", of_model)
    room.make_annealed(MODEL, 7)(PARAMETERS, dataset())
    ((variance, step_size, num_integration_steps),) = seen
    np.testing.assert_array_equal(variance, PARAMETERS["noise_variance"])
    assert step_size == PARAMETERS["step_size"]
    assert num_integration_steps == 7


def test_a_second_call_compiles_nothing(monkeypatch):
    room, traced = import_module("jaxbnn.thermalization.annealing"), []

    def still(model, x, y, step_size, num_integration_steps):
        def step(rng_key, state):
            traced.append(model)
            return At(state.position), Accepted(jnp.asarray(0.5) + 0 * step_size)

        return SamplingAlgorithm(lambda position, rng_key=None: At(position), step)

    monkeypatch.setattr(room, "interwoven_gibbs", still)
    x, y = dataset()
    zero = jax.tree.map(lambda leaf: jnp.stack([leaf] * 2), MODEL.zero_position(x, y))

    def run(model=MODEL, **options):
        options = {"num_warmup": 4, "num_integration_steps": 11, "progress": False} | options
        return sample_annealed(jax.random.key(1), model, x, y, zero, 2, **options)

    first, number = run(), len(traced)
    again = run(IntermediateNoise(mlp((2, 3, 1)), np.array([0.3, 1e-3, 0.02]), 2.0, 1.5))
    run(start=jnp.asarray(0.1))
    run(step_size=0.2)
    assert len(traced) == number
    jax.tree.map(np.testing.assert_array_equal, first.parameters, again.parameters)
    other = run(IntermediateNoise(mlp((2, 3, 1)), (0.3, 1e-3, 0.05), 2.0, 1.5))
    np.testing.assert_allclose(other.parameters["noise_variance"][0], (0.3, 1e-3, 0.05), rtol=1e-6)
    number = len(traced)
    run(IntermediateNoise(mlp((2, 3, 1)), (0.3, 1e-3, 0.02), 3.0, 1.5))
    assert len(traced) > number
    assert traced[-1].weight_precision == 3.0


def test_annealings_of_equal_numbers_are_one_object_in_each_precision():
    single = annealing(MODEL, 30, start=0.2)
    assert annealing(MODEL, 30, start=jnp.asarray(0.2)) is not annealing(MODEL, 31, start=0.2)
    assert annealing(dataclasses.replace(MODEL, weight_precision=9.0), 30, start=0.2) is single
    with jax.enable_x64(True):
        assert annealing(MODEL, 30, start=0.2) is not single
        parameters = {"noise_variance": jnp.full(3, 0.1), "step_size": jnp.asarray(0.3)}
        adapt = annealing(MODEL, 30, start=0.2)
        final = adapt.final(adapt.init(parameters))["noise_variance"]
        np.testing.assert_array_equal(final, (0.3, 1e-3, 0.02))
    inside = jax.jit(lambda: annealing(MODEL, 33).init(PARAMETERS).parameters["step_size"])
    assert inside() == annealing(MODEL, 33).init(PARAMETERS).parameters["step_size"]
    adapt = annealing(MODEL, 33)  # the one that was made inside
    np.testing.assert_allclose(adapt.final(adapt.init(PARAMETERS))["noise_variance"][1], 1e-3)
