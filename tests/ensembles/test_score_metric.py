"""A metric with directions: found from scores, exact with either kernel that has it, in either
precision, and the diagonal's where it has none.
"""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax import mclmc
from blackjax.base import SamplingAlgorithm

from jaxbnn.ensembles import adjusted_microcanonical, microcanonical, recipe, score_metric
from tests.kernels.reference_measure import module_of
from tests.kit import both_sizes, check_exact_start, for_mutants
from tests.kit.targets import skew_banana

pytestmark = pytest.mark.third_party(reason="BlackJAX's kernels promote dtypes")

MODULE = module_of(score_metric)
TARGET = skew_banana()
POSTERIOR = SimpleNamespace(
    log_density=TARGET.log_density,
    log_density_from=lambda place: lambda x: TARGET.log_density(x) - TARGET.log_density(place),
)
TUNED = {
    "step_size": jnp.array(0.9),
    "decoherence_length": jnp.array(2.5),
    "inverse_mass_matrix": jnp.array([0.7, 1.6]),
    "directions": jnp.array([[0.8], [-0.6]]),
    "factors": jnp.array([0.6]),
}
MAKERS = {"adjusted_microcanonical": adjusted_microcanonical, "hmc": recipe._hmc}


def tuned(name, **changes):
    """Return a kernel with directions; energies of HMC are differences from a reference."""
    reference = {"reference": jnp.array([0.1, 0.2])} if name == "hmc" else {}
    return MAKERS[name](TUNED | reference | changes, POSTERIOR)


def check(name, num_chains, steps=2):
    return check_exact_start(tuned(name), TARGET, steps=steps, num_chains=num_chains)


@pytest.mark.parametrize("name", MAKERS)
@both_sizes(50_000)
def test_a_kernel_with_directions_leaves_its_target_invariant(num_chains, name):
    result = check(name, num_chains)
    assert result.passes, str(result)


def moved_elsewhere(make_kernel, log_density, parameters):
    """The position goes along directions that the density has not seen."""
    kernel = TRUE_METRIC(make_kernel, log_density, parameters | {"factors": jnp.ones(1)})

    def step(rng_key, state):
        new, info = kernel.step(rng_key, state)
        sd = jnp.sqrt(parameters["inverse_mass_matrix"])
        moved = (new.position - state.position) / sd
        moved = MODULE._stretched(moved, parameters["directions"], parameters["factors"])
        return new._replace(position=state.position + sd * moved), info

    return SamplingAlgorithm(kernel.init, step)


TRUE_METRIC = MODULE.in_metric


@pytest.mark.parametrize("name", MAKERS)
@for_mutants(50_000)
def test_a_density_of_another_place_is_found(num_chains, name, monkeypatch):
    monkeypatch.setattr(module_of(MAKERS[name]), "in_metric", moved_elsewhere)
    assert not check(name, num_chains).passes


def check_carried_gradients(name, tolerance=1e-4, **changes):
    """After each step the state is that of its position; refused steps change no digit."""
    kernel = tuned(name, **changes | {"step_size": jnp.array(1.6)})
    step = jax.jit(kernel.step)
    state = kernel.init(jnp.array([0.3, -0.2]))
    density = TARGET.log_density if name != "hmc" else POSTERIOR.log_density_from([0.1, 0.2])
    seen = set()
    for i in range(30):
        before, (state, info) = state, step(jax.random.key(i), state)
        seen.add(bool(info.is_accepted))
        if not info.is_accepted:
            jax.tree.map(np.testing.assert_array_equal, state, before)
        value, gradient = jax.value_and_grad(density)(state.position)
        for ours, theirs in zip(carried(state), (value, gradient), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)
    assert seen == {True, False}
    return state.position.dtype


def carried(state):
    return state.vector.logdensity, state.vector.logdensity_grad


@pytest.mark.parametrize("name", MAKERS)
def test_gradients_stay_those_of_the_position_and_refused_steps_change_nothing(name):
    assert check_carried_gradients(name) == np.float32


@pytest.mark.parametrize("name", MAKERS)
def test_float64_carries_them_to_its_own_precision(name, x64):
    # As they were written: 0.8 and -0.6 of float32 are no unit vector of float64.
    doubles = {key: jnp.round(jnp.asarray(value, float), 6) for key, value in TUNED.items()}
    assert check_carried_gradients(name, 1e-11, **doubles) == np.float64


# A gradient that came back wrong spoils the law by less than 50,000 chains tell.
@pytest.mark.long
def test_a_gradient_that_comes_back_wrong_is_found(monkeypatch):
    true = MODULE._stretched
    monkeypatch.setattr(MODULE, "_stretched", lambda v, d, f: true(v, d, jnp.minimum(f, 1)))
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check_carried_gradients("adjusted_microcanonical")


def test_factors_of_one_are_the_diagonal():
    diagonal = {k: v for k, v in TUNED.items() if k not in ("directions", "factors")}
    start, key = jnp.array([0.3, -0.2]), jax.random.key(1)
    ends = []
    for parameters in (diagonal, TUNED | {"factors": jnp.ones(1)}):
        kernel = adjusted_microcanonical(parameters, POSTERIOR)
        ends.append(kernel.step(key, kernel.init(start))[0].position)
    np.testing.assert_allclose(ends[1], ends[0], rtol=1e-5)
    assert not np.allclose(ends[0], start)


def unadjusted(num_steps, **changes):
    """Return the states of an unadjusted chain in the metric with directions, and its Infos."""
    kernel = microcanonical(TUNED | changes, POSTERIOR)
    states, infos = [kernel.init(jnp.array([0.3, -0.2]), jax.random.key(9))], []
    for i in range(num_steps):
        state, info = kernel.step(jax.random.key(i), states[-1])
        states.append(state)
        infos.append(info)
    return [state.vector for state in states], infos


def check_unadjusted():
    sd, v = np.sqrt(TUNED["inverse_mass_matrix"]), np.asarray(TUNED["directions"])
    matrix = sd[:, None] * (np.eye(2) + v @ (np.diag(TUNED["factors"]) - 1) @ v.T)
    kernel = mclmc(
        lambda u: TARGET.log_density(matrix @ u),
        L=TUNED["decoherence_length"],
        step_size=TUNED["step_size"],
    )
    theirs = kernel.init(jnp.asarray(np.linalg.solve(matrix, [0.3, -0.2])), jax.random.key(9))
    ours, infos = unadjusted(10)
    for i in range(10):
        theirs, info = kernel.step(jax.random.key(i), theirs)
        np.testing.assert_allclose(ours[i + 1].position, matrix @ theirs.position, rtol=1e-5)
        np.testing.assert_allclose(infos[i].energy_change, info.energy_change, atol=1e-5)
        gradient = jax.grad(TARGET.log_density)(ours[i + 1].position)
        np.testing.assert_allclose(ours[i + 1].logdensity_grad, gradient, rtol=1e-5, atol=1e-6)


def test_unadjusted_chains_are_those_of_the_metrics_coordinates(x64, monkeypatch):
    check_unadjusted()
    true = MODULE._stretched
    monkeypatch.setattr(MODULE, "_stretched", lambda v, d, f: true(v, d, jnp.minimum(f, 1)))
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check_unadjusted()


def test_steps_that_are_undone_change_no_digit_but_turn():
    (before, after), (info,) = unadjusted(1, largest_energy_change=jnp.array(1e-30))
    assert not info.nonans
    for name in ("position", "logdensity", "logdensity_grad"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name))
    assert not np.allclose(after.momentum, before.momentum)


def test_the_narrow_directions_of_a_gaussian_are_found():
    d, k = 40, 5
    roots = np.concatenate([[300.0, 100, 40, 20, 10], np.ones(d - k)])
    axes = np.linalg.qr(np.random.default_rng(0).normal(size=(d, d)))[0]
    sd = np.linspace(0.5, 2, d)  # of the diagonal metric
    normals = np.random.default_rng(1).normal(size=(2, 400, d))
    scores = (normals * roots) @ axes.T / sd  # covariance: the precision, in units of sd
    found = score_metric(jnp.asarray(scores), jnp.tile(jnp.asarray(sd**2), (2, 1)), k)
    assert found["directions"].shape == (2, d, k)
    precision = (axes * roots**2) @ axes.T
    for directions, factors in zip(found["directions"], found["factors"], strict=True):
        np.testing.assert_allclose(directions.T @ directions, np.eye(k), atol=1e-5)
        map_ = np.eye(d) + directions @ np.diag(factors - 1) @ directions.T
        # From 90,000: by 400 scores the directions are known to a few percent.
        assert np.linalg.eigvalsh(map_ @ precision @ map_)[-1] < 90


def test_scores_that_say_nothing_make_no_direction():
    same = jnp.ones((1, 9, 6))
    assert (score_metric(same, jnp.ones((1, 6)), 2)["factors"] == 1).all()
    # Three distinct scores tell of two directions, and not of how wide the others are.
    few = jnp.repeat(jax.random.normal(jax.random.key(0), (1, 3, 6)), 3, axis=1)
    assert (score_metric(few, jnp.ones((1, 6)), 2)["factors"] == 1).all()


@pytest.mark.parametrize("shape", [(2, 5, 30), (2, 30, 5)])
def test_more_directions_than_scores_tell_of_are_refused(shape):
    with pytest.raises(ValueError, match=r"num_directions is 5, but .* tell of fewer than 5"):
        score_metric(jnp.ones(shape), jnp.ones((2, shape[2])), 5)
