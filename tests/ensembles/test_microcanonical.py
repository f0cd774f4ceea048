"""The adjusted kernel keeps its target with frozen parameters, and its mutants do not."""

import functools
from types import SimpleNamespace

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.mcmc import adjusted_mclmc as blackjax_adjusted
from blackjax.mcmc.integrators import isokinetic_mclachlan

from jaxbnn import sample
from jaxbnn.ensembles.microcanonical import (
    adjusted_microcanonical,
    microcanonical,
    microcanonical_parameters,
    num_integration_steps,
)
from jaxbnn.ensembles.microcanonical_adaptation import microcanonical_adaptation
from tests.kernels.reference_measure import module_of
from tests.kit import both_sizes, check_exact_start, for_mutants
from tests.kit.targets import skew_banana

pytestmark = pytest.mark.third_party(reason="BlackJAX's kernels promote dtypes")

TARGET = skew_banana()
POSTERIOR = SimpleNamespace(log_density=TARGET.log_density)
# As an adaptation would leave them: unequal in the two directions, and not the best.
TUNED = {
    "step_size": jnp.array(0.9),
    "decoherence_length": jnp.array(2.5),
    "inverse_mass_matrix": jnp.array([0.7, 1.6]),
}


def check(num_chains, steps=2):
    kernel = adjusted_microcanonical(TUNED, POSTERIOR)
    return check_exact_start(kernel, TARGET, steps=steps, num_chains=num_chains)


@both_sizes(50_000)
def test_the_adjusted_kernel_leaves_its_target_invariant(num_chains):
    result = check(num_chains)
    assert result.passes, str(result)


def lost_kinetic_change(logdensity_fn, inverse_mass_matrix):
    step = isokinetic_mclachlan(logdensity_fn, inverse_mass_matrix)

    def mutant(state, step_size):
        state, change = step(state, step_size)
        return state, jnp.zeros_like(change)

    return mutant


def turned_kinetic_change(logdensity_fn, inverse_mass_matrix):
    step = isokinetic_mclachlan(logdensity_fn, inverse_mass_matrix)

    def mutant(state, step_size):
        state, change = step(state, step_size)
        return state, -change

    return mutant


def kinetic_change_of_another_metric(logdensity_fn, inverse_mass_matrix):
    """The direction is turned with one metric, and its energy counted with another."""
    step = isokinetic_mclachlan(logdensity_fn, inverse_mass_matrix)
    other = isokinetic_mclachlan(logdensity_fn, jnp.ones(2))

    def mutant(state, step_size):
        return step(state, step_size)[0], other(state, step_size)[1]

    return mutant


INTEGRATORS = [lost_kinetic_change, turned_kinetic_change, kinetic_change_of_another_metric]


@for_mutants(50_000)
@pytest.mark.parametrize("integrator", INTEGRATORS)
def test_wrong_energies_are_found(integrator, num_chains, monkeypatch):
    broken = functools.partial(blackjax.adjusted_mclmc, integrator=integrator)
    monkeypatch.setattr(module_of(microcanonical), "adjusted_mclmc", broken)
    assert not check(num_chains).passes


@for_mutants(50_000)
def test_accepting_always_is_found(num_chains, monkeypatch):
    def accept(key, log_ratio, state, proposal):
        return proposal, (jnp.array(True), jnp.ones(()), None)

    defaults = blackjax_adjusted.adjusted_mclmc_proposal.__kwdefaults__
    monkeypatch.setitem(defaults, "sample_proposal", accept)
    assert not check(num_chains).passes


@for_mutants(50_000)
def test_a_direction_that_is_not_redrawn_is_found(num_chains, monkeypatch):
    def always_the_same(key, position):
        return jnp.array([0.6, 0.8])

    monkeypatch.setattr(blackjax_adjusted, "generate_unit_vector", always_the_same)
    assert not check(num_chains).passes


def test_trajectories_are_as_long_as_the_decoherence_length():
    steps = [
        int(num_integration_steps({"step_size": jnp.array(eps), "decoherence_length": 1.0}))
        for eps in (0.1, 0.3, 1.0, 7.0)
    ]
    assert steps == [10, 4, 1, 1]


def test_all_trajectories_have_as_many_steps_as_are_given():
    kernel = adjusted_microcanonical(TUNED | {"num_integration_steps": jnp.array(7)}, POSTERIOR)
    _, info = kernel.step(jax.random.key(0), kernel.init(jnp.zeros(2)))
    assert info.num_integration_steps == 7


def test_a_step_of_too_large_an_energy_change_is_undone_and_told_of():
    """A wall of log density -1e4 x^4 beyond |x| = 1, for a step size that is right before it."""
    walled = SimpleNamespace(
        log_density=lambda x: (
            -jnp.sum(x**2) / 2 - 1e4 * jnp.sum(jnp.maximum(jnp.abs(x) - 1, 0) ** 4)
        )
    )
    position = jnp.array([0.9, 0.9, 0.9])
    parameters = jax.tree.map(
        lambda leaf: leaf[0],
        microcanonical_parameters(position[None], step_size=2.0, decoherence_length=2.0),
    )
    guarded = microcanonical(parameters | {"largest_energy_change": jnp.array(5.0)}, walled)
    free = microcanonical(parameters, walled)
    keys = jax.random.split(jax.random.key(0), 50)
    start, free_start = (kernel.init(position, jax.random.key(1)) for kernel in (guarded, free))
    new, info = jax.jit(jax.vmap(lambda key: guarded.step(key, start)))(keys)
    _, without = jax.jit(jax.vmap(lambda key: free.step(key, free_start)))(keys)
    assert 5 < np.count_nonzero(~info.nonans) < 50
    assert np.abs(without.energy_change).max() > 100
    assert np.abs(info.energy_change).max() <= 5
    undone = ~np.asarray(info.nonans)
    np.testing.assert_array_equal(new.position[undone], np.tile(position, (undone.sum(), 1)))
    before, after = start.vector.logdensity, new.vector.logdensity
    np.testing.assert_array_equal(after[undone], np.tile(before, undone.sum()))
    assert (np.asarray(new.position)[~undone] != np.asarray(position)).all()
    np.testing.assert_allclose(np.linalg.norm(new.vector.momentum, axis=1), 1, rtol=1e-5)
    assert len(np.unique(new.vector.momentum[undone], axis=0)) == undone.sum()
    np.testing.assert_array_equal(new.vector.num_halvings, 0)


def in_a_narrow_place(parameters, data):
    target = SimpleNamespace(log_density=lambda x: -jnp.sum(jnp.square(x / 1e-3)) / 2)
    return microcanonical(parameters, target)


@pytest.mark.parametrize("is_shortened", [0.0, 1.0])
def test_a_chain_where_steps_are_too_long_for_it_goes_on_by_shorter_ones(is_shortened):
    """A Gaussian of standard deviation .001, and a step size of 1."""
    start = 1e-3 * jax.random.normal(jax.random.key(0), (1, 8))
    parameters = microcanonical_parameters(start, step_size=1.0) | {
        "largest_energy_change": jnp.full(1, 5.0),
        "is_shortened": jnp.full(1, is_shortened),
    }
    draws = sample(
        jax.random.key(1), in_a_narrow_place, start, 4000, parameters=parameters,
        progress=False, collect=lambda state, info: (state.position, state.vector.num_halvings),
    )  # fmt: skip
    positions, halvings = (np.asarray(leaf)[0] for leaf in draws.positions)
    is_whole = np.asarray(draws.infos.nonans)[0]
    if not is_shortened:
        assert not is_whole.any()
        np.testing.assert_array_equal(halvings, 0)
        np.testing.assert_array_equal(positions, np.tile(start, (4000, 1)))
        return
    assert 0.7 < is_whole.mean() < 0.85  # one undone for each four that are not
    # A step of 2^-7, or 3 standard deviations a direction, changes the energy by a few nats.
    assert 5 < np.median(halvings) < 12
    after = np.where(is_whole[1:], np.maximum(halvings[:-1] - 0.25, 0), halvings[:-1] + 1)
    np.testing.assert_array_equal(halvings[1:], after)
    # Unadjusted, and with steps as long as they can be: of the right size, no more.
    np.testing.assert_allclose(positions[500:].std(axis=0), 1e-3, rtol=0.5)


def test_while_a_step_size_is_tuned_no_step_is_shortened_and_then_some_may_be():
    start = 1e-3 * jax.random.normal(jax.random.key(0), (1, 8))
    parameters = microcanonical_parameters(start, step_size=1.0) | {
        "largest_energy_change": jnp.full(1, 5.0),
        "is_shortened": jnp.ones(1),
    }
    adapt = microcanonical_adaptation(200, energy_error=0.05, is_preconditioned=False)
    state = adapt.init(jax.tree.map(lambda leaf: leaf[0], parameters))
    assert state.parameters["is_shortened"] == 0
    draws = sample(
        jax.random.key(1), in_a_narrow_place, start, 50, parameters=parameters,
        num_warmup=200, adapt=adapt, progress=False,
    )  # fmt: skip
    assert draws.parameters["is_shortened"].tolist() == [1.0]
    assert 1e-4 < draws.parameters["step_size"][0] < 1e-2
    assert np.asarray(draws.infos.nonans).mean() > 0.9


def test_a_reference_changes_nothing_but_the_rounding():
    posterior = SimpleNamespace(
        log_density=TARGET.log_density,
        log_density_from=lambda at: lambda x: TARGET.log_density(x) - TARGET.log_density(at),
    )
    x, key = jnp.array([0.3, -0.4]), jax.random.key(0)
    with_reference = adjusted_microcanonical(TUNED | {"reference": jnp.ones(2)}, posterior)
    plain = adjusted_microcanonical(TUNED, posterior)
    ends = [jax.jit(k.step)(key, k.init(x))[0].position for k in (with_reference, plain)]
    np.testing.assert_allclose(*ends, rtol=1e-4)


def test_the_parameters_before_anything_is_known():
    found = microcanonical_parameters({"w": np.zeros((3, 2, 2), np.float32), "b": np.zeros((3, 5))})
    assert found["inverse_mass_matrix"].shape == (3, 9)
    np.testing.assert_allclose(found["step_size"], 0.003)
    assert found["num_blow_ups"].tolist() == [0, 0, 0]
    given = microcanonical_parameters(np.zeros((2, 3)), step_size=0.5, decoherence_length=7.0)
    assert given["step_size"].tolist() == [0.5, 0.5]
    assert given["decoherence_length"].tolist() == [7, 7]


@pytest.mark.parametrize(
    ("positions", "options", "message"),
    [
        (np.zeros((4, 1)), {}, "at least two numbers, but this one has 1; use HMC"),
        (np.zeros((4, 2)), {"step_size": 0.0}, "step_size must be"),
        (np.zeros((4, 2)), {"decoherence_length": -1.0}, "decoherence_length must be"),
    ],
)
def test_bad_input_gets_one_sentence(positions, options, message):
    with pytest.raises(ValueError, match=message):
        microcanonical_parameters(positions, **options)


@pytest.mark.parametrize("make", [microcanonical, adjusted_microcanonical])
def test_parameters_that_do_not_fit_get_one_sentence(make):
    some = {name: TUNED[name] for name in ("step_size", "inverse_mass_matrix")}
    with pytest.raises(ValueError, match=r"needs parameters\['decoherence_length'\], which is not"):
        make(some, POSTERIOR)
    kernel = make(TUNED | {"inverse_mass_matrix": jnp.ones(3)}, POSTERIOR)
    with pytest.raises(ValueError, match=r"shape \(3,\) a chain, but the position has 2 numbers"):
        kernel.init(jnp.zeros(2), jax.random.key(0))
    kernel = make(TUNED, POSTERIOR)
    with pytest.raises(ValueError, match=r"matrix'\] is float32, but the position bfloat16"):
        kernel.init(jnp.zeros(2, jnp.bfloat16), jax.random.key(0))


def test_the_unadjusted_kernel_is_blackjax_s():
    x, key = jnp.array([0.3, -0.4]), jax.random.key(0)
    ours = microcanonical(TUNED, POSTERIOR)
    theirs = blackjax.mclmc(TARGET.log_density, 2.5, 0.9, inverse_mass_matrix=jnp.array([0.7, 1.6]))
    ends = [k.step(key, k.init(x, key))[0].position for k in (ours, theirs)]
    np.testing.assert_array_equal(*ends)


@pytest.mark.parametrize(
    ("positions", "sentence"),
    [
        (jnp.zeros((0, 3)), "positions holds zero chains"),
        ({}, "positions holds no arrays"),
        (jnp.zeros(()), "a single number without a chain axis"),
        ({"a": jnp.zeros((2, 3)), "b": jnp.zeros((3, 3))}, "stacked over the same chains"),
    ],
)
def test_positions_that_are_no_starts_get_one_sentence(positions, sentence):
    with pytest.raises(ValueError, match=sentence):
        microcanonical_parameters(positions)


def test_a_position_of_one_number_is_refused():
    """There is no other direction to turn to: the adjusted kernel stood still without a word."""
    ones = dict.fromkeys(("step_size", "decoherence_length"), jnp.ones(()))
    kernel = adjusted_microcanonical(ones | {"inverse_mass_matrix": jnp.ones(1)}, POSTERIOR)
    with pytest.raises(ValueError, match="at least two numbers, but this one has 1; use HMC"):
        kernel.init(jnp.ones(1), jax.random.key(0))
