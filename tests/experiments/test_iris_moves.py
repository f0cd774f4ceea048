"""Tests of experiments.studies.challenges.converged,
experiments.studies.challenges.converged_pictures, experiments.studies.challenges.moves and
experiments.studies.challenges.agreement: the helpers of the converged Iris posterior: what is
compared, and how.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.datasets import iris
from experiments.studies.challenges.agreement import (
    GROUPS,
    largest_by_chance,
    moments_of,
    scores_between,
)
from experiments.studies.challenges.converged import flatten
from experiments.studies.challenges.moves import (
    invariants_of,
    iris_posterior,
    kernel_on,
    start_parameters,
)
from jaxbnn import kernels, symmetry_moves


def data():
    x, y = iris()
    return {"x": jnp.asarray(x), "y": jnp.asarray(y)}


@pytest.mark.long
def test_symmetry_moves_leave_the_predictions_and_permutations_the_norms():
    target = iris_posterior(3, 3.0, data())
    params = target.sample_prior(jax.random.key(0))
    moves = symmetry_moves(target.network, target.prior, softmax=True)

    @jax.jit
    def compare(params):
        moved = moves.step(jax.random.key(1), moves.init(params))[0].position
        order = jnp.array([2, 0, 1])
        permuted = (
            {"w": params[0]["w"][:, order], "b": params[0]["b"][order]},
            (),
            {"w": params[2]["w"][order], "b": params[2]["b"]},
        )
        three = jax.tree.map(lambda *leaves: jnp.stack(leaves), params, moved, permuted)
        return jax.vmap(invariants_of(target, target.x))(three)

    three = compare(params)
    before, moved, permuted = ({k: v[i] for k, v in three.items()} for i in range(3))
    np.testing.assert_allclose(before["predictions"], moved["predictions"], atol=1e-5)
    assert before["predictions"].shape == (450,)
    for group, value in before.items():
        np.testing.assert_allclose(value, permuted[group], rtol=1e-5, atol=1e-5)
    assert abs(before["log density"] - moved["log density"]) > 1e-3


@pytest.mark.parametrize("sampler", ["HMC", "SMMALA"])
@pytest.mark.third_party(reason="BlackJAX's kernels")
def test_every_sampler_is_traced_with_the_moves(sampler):
    target = iris_posterior(2, 3.0, data())
    parameters = start_parameters(sampler, 2, with_moves=True)
    params = target.sample_prior(jax.random.key(0))

    def step(params, temperature):
        kernel = kernel_on(target.tempered(temperature), sampler, parameters, with_moves=True)
        return kernel.step(jax.random.key(0), kernel.init(params))

    state, info = jax.eval_shape(step, params, jnp.ones(()))
    assert isinstance(state.states[1], kernels.UnitRedrawsState)
    assert isinstance(state.states[2], kernels.SymmetryState)
    assert info.infos[0].acceptance_rate.shape == ()


def independent(rng, mean=0.0, correlation=0.0):
    found = {}
    for group in GROUPS:
        noise = rng.normal(size=(4, 400, 3))
        noise[..., 1] = correlation * noise[..., 0] + (1 - correlation**2) ** 0.5 * noise[..., 1]
        found[group] = noise + mean * (group == "predictions")
    return found


def test_scores_are_standard_where_samplers_agree_and_large_where_not(rng):
    scores = [
        scores_between(moments_of(independent(rng)), moments_of(independent(rng))) for _ in range(6)
    ]
    for name in (*GROUPS, "raw covariance"):
        z = np.concatenate([one[name] for one in scores])
        assert 0.5 < np.sqrt(np.mean(z**2)) < 1.7
    reference = moments_of(independent(rng))
    z = scores_between(moments_of(independent(rng, mean=0.3)), reference)
    limit = largest_by_chance(3)
    assert (np.abs(z["predictions"]) > limit).all()
    assert (np.abs(z["sorted norms"]) < 5).all()
    z = scores_between(moments_of(independent(rng, correlation=0.5)), reference)["raw covariance"]
    # The lower triangle, row by row: (1, 0) is the second.
    assert abs(z[1]) > largest_by_chance(6)
    assert (np.abs(np.delete(z, 1)) < 5).all()
    np.testing.assert_allclose(limit, 2.935, atol=1e-3)


def test_no_start_that_is_stuck_is_a_flat_array_of_none():
    positions = {"w": np.zeros((1, 0, 4, 3)), "b": np.zeros((1, 0, 3))}
    assert flatten(positions).shape == (1, 0, 15)
