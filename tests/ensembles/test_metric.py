"""A metric with directions: exact with either kernel that has it, in either precision, what a chain
does in its coordinates, and the diagonal's where it has none.
"""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax import adjusted_mclmc, mclmc
from blackjax.mcmc.metrics import default_metric

from jaxbnn.ensembles import adjusted_microcanonical, metric, microcanonical, recipe
from tests.kernels.reference_measure import module_of
from tests.kit import both_sizes, check_exact_start, for_mutants
from tests.kit.targets import skew_banana

pytestmark = pytest.mark.third_party(reason="BlackJAX's kernels promote dtypes")

TARGET = skew_banana()
POSTERIOR = SimpleNamespace(
    log_density=TARGET.log_density,
    log_density_from=lambda place: lambda x: TARGET.log_density(x) - TARGET.log_density(place),
)
TUNED = {
    "step_size": jnp.array(0.9),
    "decoherence_length": jnp.array(2.5),
    "inverse_mass_matrix": jnp.array([0.7, 1.6]),
    "directions": jnp.array([[0.8, -0.6]]),
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


# Adjusted microcanonical trajectories leave their target invariant in any coordinates.
@for_mutants(50_000)
def test_directions_that_are_not_orthonormal_are_found_with_hmc(num_chains, monkeypatch):
    true = metric.inverse_mass_matrix
    monkeypatch.setattr(metric, "inverse_mass_matrix", lambda p: true(p)._replace(U=2 * true(p).U))
    assert not check("hmc", num_chains).passes


def test_hmc_is_exact_where_float32_hardly_knows_the_narrow_directions():
    """Factors down to 3e-5, of directions that an SVD in float32 has found, from exact draws.

    BlackJAX's own kinetic energy is negative here, and its chains run off or stand still.
    """
    size, k, num_chains = 60, 20, 256
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.normal(size=(size, k)))[0]
    roots = np.geomspace(3e4, 10, k)  # of the precision's eigenvalues beside the prior's 1
    scores = rng.normal(size=(200, k)) * roots @ axes.T
    _, found, directions = jnp.linalg.svd(jnp.asarray(scores, np.float32), full_matrices=False)
    narrow = jnp.asarray(roots[:, None] * axes.T, np.float32)

    def log_density(x):
        return -(jnp.sum(jnp.square(x)) + jnp.sum(jnp.square(narrow @ x))) / 2

    posterior = SimpleNamespace(log_density_from=lambda place: log_density)  # which is 0 at 0
    kernel = recipe._hmc(
        {
            "step_size": jnp.asarray(0.5 * np.sqrt(size), np.float32),
            "num_integration_steps": jnp.asarray(5),
            "inverse_mass_matrix": jnp.ones(size, np.float32),
            "directions": directions[:k],
            "factors": 1 / jnp.sqrt(1 + jnp.square(found[:k]) / 200),
            "reference": jnp.zeros(size, np.float32),
        },
        posterior,
    )
    normals = rng.normal(size=(num_chains, size))
    inside = normals @ axes
    exact = normals + (inside * (1 / np.sqrt(1 + roots**2) - 1)) @ axes.T
    state = jax.vmap(kernel.init)(jnp.asarray(exact, np.float32))
    step, rates = jax.jit(jax.vmap(kernel.step)), []
    for i in range(10):
        state, info = step(jax.random.split(jax.random.key(i), num_chains), state)
        rates.append(float(jnp.mean(info.acceptance_rate)))
    assert state.position.dtype == np.float32
    assert min(rates) > 0.7
    # Means over chains of 20 numbers of variance 1 each: to 6 of their standard errors.
    squares = np.sum(np.square(np.asarray(state.position, float) @ axes * roots), axis=1)
    assert abs(squares.mean() - k) < 6 * np.sqrt(2 * k / num_chains)


def test_hmc_keeps_float32_positions_where_float64_is_on(x64):
    test_hmc_is_exact_where_float32_hardly_knows_the_narrow_directions()


def energies(size):
    """Kinetic energies of four momenta by a diagonal: ours, BlackJAX's, and those of float64."""
    rng = np.random.default_rng(1)
    diagonal = np.exp(rng.normal(size=size)).astype(np.float32)
    momenta = (rng.normal(size=(4, size)) / np.sqrt(diagonal)).astype(np.float32)
    exact = np.square(momenta.astype(float)) @ diagonal.astype(float) / 2
    ours = metric.euclidean_metric({"inverse_mass_matrix": jnp.asarray(diagonal)})
    theirs = default_metric(jnp.asarray(diagonal))
    found = (jax.jit(jax.vmap(m.kinetic_energy))(jnp.asarray(momenta)) for m in (ours, theirs))
    return *found, exact


@pytest.mark.parametrize("size", [100_000, 1_000_000])
def test_the_energy_of_a_long_diagonal_keeps_its_digits(size):
    """Of 100,000 numbers to .02 nats; BlackJAX's is a nat off on the CPU."""
    ours, _, exact = energies(size)
    np.testing.assert_allclose(ours, exact, rtol=4e-7)


@pytest.mark.parametrize("size", [100, 10_000])
def test_the_energy_of_a_short_diagonal_is_blackjaxs_to_the_last_bit(size):
    ours, theirs, exact = energies(size)
    np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_allclose(ours, exact, atol=0.03)


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


def test_factors_of_one_are_the_diagonal():
    diagonal = {k: v for k, v in TUNED.items() if k not in ("directions", "factors")}
    start, key = jnp.array([0.3, -0.2]), jax.random.key(1)
    ends = []
    for parameters in (diagonal, TUNED | {"factors": jnp.ones(1)}):
        kernel = adjusted_microcanonical(parameters, POSTERIOR)
        ends.append(kernel.step(key, kernel.init(start))[0].position)
    np.testing.assert_allclose(ends[1], ends[0], rtol=1e-5)
    assert not np.allclose(ends[0], start)


def check_coordinates(microcanonical, theirs):
    """A chain in the metric is that of the density in the metric's coordinates, in the same steps.

    `theirs(log_density)` is BlackJAX's own kernel on those coordinates.
    """
    sd, rows = np.sqrt(TUNED["inverse_mass_matrix"]), np.asarray(TUNED["directions"])
    matrix = sd[:, None] * (np.eye(2) + rows.T @ (np.diag(TUNED["factors"]) - 1) @ rows)
    start = np.array([0.3, -0.2])
    there = theirs(lambda u: TARGET.log_density(matrix @ u))
    here = microcanonical(TUNED, POSTERIOR)
    far = there.init(jnp.asarray(np.linalg.solve(matrix, start)), jax.random.key(9))
    near = here.init(jnp.asarray(start), jax.random.key(9))
    for i in range(10):
        far, info = there.step(jax.random.key(i), far)
        near, ours = here.step(jax.random.key(i), near)
        at = near.vector
        np.testing.assert_allclose(at.position, matrix @ far.position, rtol=1e-5)
        for name in {"energy_change", "acceptance_rate"} & set(info._fields):
            np.testing.assert_allclose(getattr(ours, name), getattr(info, name), atol=1e-5)
        gradient = jax.grad(TARGET.log_density)(at.position)
        np.testing.assert_allclose(at.logdensity_grad, gradient, rtol=1e-5, atol=1e-6)


def by_mclmc(log_density):
    return mclmc(log_density, L=TUNED["decoherence_length"], step_size=TUNED["step_size"])


def by_adjusted_mclmc(log_density):
    return adjusted_mclmc(log_density, TUNED["step_size"], 1.25, num_integration_steps=jnp.array(3))


@pytest.mark.short("adjusted")
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(microcanonical, by_mclmc), (adjusted_microcanonical, by_adjusted_mclmc)],
    ids=["unadjusted", "adjusted"],
)
def test_chains_are_those_of_the_metrics_coordinates(ours, theirs, x64, monkeypatch):
    check_coordinates(ours, theirs)
    true = metric.inverse_mass_matrix
    of_ours = module_of(ours)

    def of_the_wrong_power(parameters):
        return true(parameters | {"factors": jnp.sqrt(parameters["factors"])})

    monkeypatch.setattr(of_ours, "inverse_mass_matrix", of_the_wrong_power)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check_coordinates(ours, theirs)


def test_steps_that_are_undone_change_no_digit_but_turn():
    kernel = microcanonical(TUNED | {"largest_energy_change": jnp.array(1e-30)}, POSTERIOR)
    begun = kernel.init(jnp.array([0.3, -0.2]), jax.random.key(9))
    state, info = kernel.step(jax.random.key(0), begun)
    before, after = begun.vector, state.vector
    assert not info.nonans
    for name in ("position", "logdensity", "logdensity_grad"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name))
    assert not np.allclose(after.momentum, before.momentum)
