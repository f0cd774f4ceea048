"""The flux identity holds for right log ratios and fails for each wrong one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from tests.kit import check_deterministic_map, check_flux_identity, random_pairs
from tests.kit.mutants import MALA_PROPOSAL_RATIO_MUTANTS, leapfrog, mala_proposal_ratio
from tests.kit.targets import BEND, WIDTH, skew_banana, skew_banana_log_density

STEP_SIZE = 0.7


def log_proposal(x, y):
    bend = (x[1] - BEND * x[0] ** 2) / WIDTH**2
    gradient = np.array([1 - np.exp(x[0]) + 2 * BEND * x[0] * bend, -bend])
    return stats.norm.logpdf(y, x + STEP_SIZE**2 / 2 * gradient, STEP_SIZE).sum()


def log_ratio(proposal_ratio):
    log_density = skew_banana().log_density
    proposal = proposal_ratio(log_density, STEP_SIZE)
    return lambda x, y: log_density(y) - log_density(x) + proposal(x, y)


@pytest.fixture
def pairs(rng):
    return random_pairs(rng, 200, 2)


def test_mala_balances(pairs):
    ratio = log_ratio(mala_proposal_ratio)
    result = check_flux_identity(skew_banana_log_density, log_proposal, ratio, pairs)
    assert result.passes, result


@pytest.mark.parametrize("name", MALA_PROPOSAL_RATIO_MUTANTS)
def test_wrong_ratios_do_not(pairs, name):
    ratio = log_ratio(MALA_PROPOSAL_RATIO_MUTANTS[name])
    result = check_flux_identity(skew_banana_log_density, log_proposal, ratio, pairs)
    assert result.largest > 0.1


def test_float32_ratios_are_refused(pairs):
    with pytest.raises(ValueError, match="float64"):
        check_flux_identity(
            skew_banana_log_density,
            log_proposal,
            lambda x, y: jnp.sum((y - x).astype(jnp.float32)),
            pairs,
        )


def phase_points(rng):
    return {"p": rng.standard_normal((50, 2)), "x": rng.standard_normal((50, 2))}


def flow(direction):
    """Leapfrog forward, or backward: flip the momentum, go forward, flip it again."""
    trajectory = leapfrog(skew_banana().log_density, 0.2, 2)

    def move(point):
        x, p = trajectory(point["x"], direction * point["p"])
        return {"x": x, "p": direction * p}

    return move


def test_leapfrog_has_an_inverse_and_keeps_volume(rng):
    result = check_deterministic_map(flow(1.0), flow(-1.0), lambda point: 0.0, phase_points(rng))
    assert result.passes, result


@pytest.mark.parametrize(
    ("inverse", "jacobian"),
    [(lambda x: jnp.log(x) - 1.0, 1.0), (lambda x: jnp.log(x), 0.0), (lambda x: jnp.log(x), 1.01)],
    ids=["inverse", "no Jacobian", "Jacobian"],
)
def test_wrong_inverses_and_jacobians_are_found(rng, inverse, jacobian):
    points = np.abs(rng.standard_normal((50, 2))) + 0.1

    def log_abs_jacobian(x):
        return jacobian * jnp.sum(x)

    assert check_deterministic_map(jnp.exp, jnp.log, jnp.sum, points).passes
    assert not check_deterministic_map(jnp.exp, inverse, log_abs_jacobian, points).passes


def test_a_map_without_inverse_does_not_pass():
    points = np.ones((3, 2))
    result = check_deterministic_map(
        jnp.zeros_like, lambda x: jax.numpy.full_like(x, jnp.nan), lambda x: -jnp.inf, points
    )
    assert not result.passes
