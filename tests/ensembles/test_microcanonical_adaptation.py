"""Tests of ensembles.microcanonical_adaptation and ensembles.energy_error: on Gaussians of known
moments, step size, length and matrix become what they should be; blow-ups are counted.
"""

from typing import NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbnn
from jaxbnn.ensembles import (
    energy_errors,
    microcanonical_adaptation,
    microcanonical_parameters,
)
from jaxbnn.ensembles.microcanonical_adaptation import _autocorrelation_time, _falling

pytestmark = pytest.mark.third_party(reason="BlackJAX's kernels promote dtypes")

SCALES = np.geomspace(0.05, 2.0, 10).astype(np.float32)
STARTS = (np.random.default_rng(3).standard_normal((4, 10)) * SCALES).astype(np.float32)


def log_density(x, scales):
    return -0.5 * jnp.sum((x / scales) ** 2)


def unadjusted(parameters, data):
    return blackjax.mclmc(
        lambda x: log_density(x, data),
        parameters["decoherence_length"],
        parameters["step_size"],
        inverse_mass_matrix=parameters["inverse_mass_matrix"],
    )


def adjusted(parameters, data):
    steps = jnp.ceil(parameters["decoherence_length"] / parameters["step_size"]).astype(jnp.int32)
    return blackjax.adjusted_mclmc(
        lambda x: log_density(x, data),
        parameters["step_size"],
        inverse_mass_matrix=parameters["inverse_mass_matrix"],
        integration_steps_params=(jnp.clip(steps, 1, 50),),
        L_proposal_factor=1.25,
    )


def run(
    kernel, num_warmup=2000, num_samples=1000, step_size=None, starts=STARTS, wanted=None, **options
):
    parameters = microcanonical_parameters(starts, step_size=step_size) | (wanted or {})
    return jaxbnn.sample(
        jax.random.key(1), kernel, starts, num_samples, parameters=parameters, data=SCALES,
        num_warmup=num_warmup, progress=False,
        reduce={"energy": energy_errors()} if kernel is unadjusted else None,
        adapt=microcanonical_adaptation(num_warmup, **options),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("is_pooled", "step_size", "asked"),
    [
        (True, 1e-6, {"wanted": {"energy_error": jnp.full(4, 0.02)}}),
        pytest.param(False, 1e3, {"energy_error": 0.02}, marks=pytest.mark.long),
    ],
)
def test_a_gaussian_of_known_scales(is_pooled, step_size, asked):
    draws = run(unadjusted, step_size=step_size, is_pooled=is_pooled, **asked)
    found, p = draws.reduced["energy"], draws.parameters
    np.testing.assert_allclose(found.pooled.energy_error, 0.02, rtol=0.4)
    errors = np.square(draws.infos.energy_change).mean(axis=1) / 10
    np.testing.assert_allclose(found.per_chain.energy_error, errors, rtol=1e-4)
    assert found.pooled.num_steps == 4000
    assert found.pooled.num_blow_ups == 0
    # Standard deviations learnt from some hundred correlated draws of each chain.
    ratios = np.sqrt(p["inverse_mass_matrix"]) / SCALES
    assert (ratios > (0.6 if is_pooled else 0.3)).all()
    assert (ratios < (1.6 if is_pooled else 3)).all()
    assert len(set(p["step_size"].tolist())) == (1 if is_pooled else 4)
    # In units of the target, L is of the order of sqrt(d).
    assert (p["decoherence_length"] > 1).all()
    assert (p["decoherence_length"] < 40).all()
    # From 1e3 at least eight go down; from 1e-6 up, rounding decides on a step or three too large.
    assert ((p["num_blow_ups"] >= 8) == (step_size > 1)).all()
    # The bias of so small an energy error is small.
    np.testing.assert_allclose(draws.positions.std((0, 1)) / SCALES, 1, atol=0.2)


def test_the_energy_error_falls_geometrically_by_arguments_or_parameters():
    entries = {"start_energy_error": jnp.full(3, 0.4), "energy_error": jnp.full(3, 0.1)}
    for step, expected in ((0, 0.4), (50, 0.2), (100, 0.1), (150, 0.1)):
        for found in (
            _falling(jnp.asarray(step), 100, entries, 5.0, 6.0),
            _falling(jnp.asarray(step), 100, {}, 0.4, 0.1),
        ):
            np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_an_adjusted_kernel_is_tuned_by_its_acceptance():
    draws = run(
        adjusted, 600, 300, target_acceptance_rate=0.8, is_pooled=True, is_length_tuned=True
    )
    np.testing.assert_allclose(draws.acceptance_rate.mean(), 0.8, atol=0.1)
    ratios = np.sqrt(draws.parameters["inverse_mass_matrix"]) / SCALES
    assert ((ratios > 0.5) & (ratios < 2)).all()
    np.testing.assert_allclose(draws.positions.std((0, 1)) / SCALES, 1, atol=0.25)


def test_the_autocorrelation_time_of_a_series_of_known_time(rng):
    """AR(1) of coefficient a: (1 + a) / (1 - a)."""
    records = np.zeros((4000, 3), np.float32)
    noise = rng.standard_normal(records.shape)
    for i in range(1, len(records)):
        records[i] = 0.8 * records[i - 1] + noise[i]
    time_of = jax.jit(_autocorrelation_time)
    np.testing.assert_allclose(time_of(jnp.asarray(records)), 9, rtol=0.25)
    assert np.isnan(time_of(jnp.ones((4000, 3))))


class Told(NamedTuple):
    energy_change: jax.Array
    acceptance_rate: jax.Array


@pytest.mark.parametrize(
    ("target", "is_slow", "expected"),
    [(None, False, 0.4 * 0.1), (None, True, 50), (0.8, False, 0.4 * 50)],
    ids=["noise", "walk", "noise, adjusted"],
)
def test_a_window_of_a_few_draws_does_not_shorten_the_length(target, is_slow, expected):
    """Noise has a time of one step: eps long, or, of an adjusted kernel, as long as L was."""
    adapt = microcanonical_adaptation(
        200, energy_error=0.1, start_energy_error=0.1, is_preconditioned=False,
        target_acceptance_rate=target,
    )  # fmt: skip
    parameters = jax.tree.map(
        lambda x: x[0], microcanonical_parameters(STARTS, step_size=0.1, decoherence_length=50.0)
    )
    noise = np.random.default_rng(0).standard_normal((200, 10)).astype(np.float32)
    walk = np.cumsum(noise, axis=0) if is_slow else noise
    state = unadjusted(parameters, SCALES).init(jnp.asarray(STARTS[0]), jax.random.key(0))
    # An energy error of 1 / 10, which leaves the step size as it is.
    info = Told(jnp.ones(()), jnp.array(0.8))

    def step(a, seen):
        return adapt.update(a, seen[0], state._replace(position=seen[1]), info)[0], None

    steps = (jnp.arange(200, dtype=jnp.uint32), jnp.asarray(walk))
    a = jax.jit(lambda a: jax.lax.scan(step, a, steps)[0])(adapt.init(parameters))
    length = adapt.final(a)["decoherence_length"]
    np.testing.assert_allclose(length, expected, rtol=1e-5 if is_slow else 0.3)


def test_pooled_chains_start_from_their_geometric_means():
    adapt = microcanonical_adaptation(100, is_pooled=True)
    given = microcanonical_parameters(STARTS[:2]) | {
        "step_size": jnp.array([0.01, 1.0]), "decoherence_length": jnp.array([1.0, 100.0])
    }  # fmt: skip
    found = adapt.final(adapt.init(given))
    np.testing.assert_allclose(found["step_size"], 0.1, rtol=1e-5)
    np.testing.assert_allclose(found["decoherence_length"], 10, rtol=1e-5)


def test_chains_that_never_move_keep_their_matrix_and_are_counted():
    """A gradient that is not finite where the log density is (BlackJAX thread 973)."""

    adapt = microcanonical_adaptation(100)
    parameters = jax.tree.map(lambda x: x[0], microcanonical_parameters(STARTS))
    a = adapt.init(parameters)
    state = unadjusted(parameters, SCALES).init(jnp.asarray(STARTS[0]), jax.random.key(0))
    info = blackjax.mcmc.mclmc.MCLMCInfo(
        state.logdensity, jnp.zeros(()), jnp.zeros(()), jnp.array(False)
    )
    update = jax.jit(adapt.update)
    for step in range(100):
        a, learnt = update(a, jnp.uint32(step), state, info)
    assert learnt["num_blow_ups"] == 100
    assert learnt["step_size"] < 1e-8
    np.testing.assert_array_equal(learnt["inverse_mass_matrix"], 1)
    assert np.isfinite(adapt.final(a)["decoherence_length"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_warmup": 99}, "num_warmup is 99, too short for the windows"),
        ({"num_warmup": 200, "energy_error": 0.0}, "energy_error must be"),
        ({"num_warmup": 200, "target_acceptance_rate": 1.2}, "between 0 and 1|less than 1"),
    ],
)
def test_bad_arguments_get_one_sentence(options, message):
    with pytest.raises(ValueError, match=message):
        microcanonical_adaptation(**options)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"decoherence_length": None}, r"changes parameters\['decoherence_length'\], which is not"),
        ({"inverse_mass_matrix": np.ones((10, 10))}, "learns a diagonal inverse mass matrix"),
        ({"inverse_mass_matrix": np.ones(1)}, "at least two dimensions"),
        ({"energy_error": 0.0}, r"parameters\['energy_error'\] must be positive"),
        ({"inverse_mass_matrix": np.ones(9)}, "has 9 numbers a chain, but .* position has 10"),
    ],
)
def test_parameters_that_do_not_fit_get_one_sentence(change, message):
    adapt = microcanonical_adaptation(100)
    parameters = jax.tree.map(lambda x: x[0], microcanonical_parameters(STARTS)) | change
    parameters = {k: jnp.asarray(v, jnp.float32) for k, v in parameters.items() if v is not None}
    state = unadjusted(
        jax.tree.map(lambda x: x[0], microcanonical_parameters(STARTS)), SCALES
    ).init(jnp.asarray(STARTS[0]), jax.random.key(0))
    info = blackjax.mcmc.mclmc.MCLMCInfo(state.logdensity, 0.0, 0.0, jnp.array(True))
    with pytest.raises(ValueError, match=message):
        adapt.update(adapt.init(parameters), jnp.uint32(0), state, info)


def test_a_kernel_without_energy_change_gets_one_sentence():
    def kernel(parameters, data):
        return blackjax.mala(lambda x: log_density(x, data), parameters["step_size"])

    with pytest.raises(ValueError, match=r"Info \(MALAInfo\) has no energy change"):
        run(kernel, 100, 1)


def test_the_reducer_merges_chains():
    reducer = energy_errors()
    halves = []
    for values in ([0.1, 0.3], [0.5]):
        r = reducer.init((jnp.zeros(()), jnp.array(False)))
        for value in values:
            r = reducer.update(r, (jnp.array(value), jnp.array(False)))
        r = reducer.update(r, (jnp.array(0.0), jnp.array(True)))
        halves.append(r)
    merged = reducer.finalise(reducer.merge(*halves))
    np.testing.assert_allclose(merged.energy_error, 0.3, rtol=1e-6)
    assert (merged.num_steps, merged.num_blow_ups) == (5, 2)
