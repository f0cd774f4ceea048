"""One step of symmetry moves, from one point, many times: what it tells, and where it leads."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from jaxbnn.kernels import symmetry_moves, symmetry_steps
from jaxbnn.networks import init, mlp
from jaxbnn.networks.symmetries import weight_symmetries

NUM_STEPS = 300


def moved(activation, location=0.3, **options):
    """Return incoming weights of three units, those after each of the steps, and the infos."""
    network = mlp((2, 3, 1), activation)
    kernel = symmetry_moves(network, dist.Normal(location, 1.0), **options)
    params = init(jax.random.key(0), network)
    step = jax.jit(jax.vmap(kernel.step, (0, None)))
    states, infos = step(jax.random.split(jax.random.key(1), NUM_STEPS), kernel.init(params))
    return np.asarray(params[0]["w"]), np.asarray(states.position[0]["w"]), infos


def test_the_acceptance_rate_is_the_mean_over_the_moves():
    _, _, infos = moved("relu")
    means = np.mean(list(infos.by_move.values()), axis=0)
    np.testing.assert_allclose(infos.acceptance_rate, means, rtol=1e-5)


def test_tiny_steps_of_the_scales_are_accepted_and_leave_the_norms():
    start, ends, infos = moved("relu", scaling_step=1e-5)
    assert np.min(infos.by_move["scalings of layer 0 (Dense)"]) > 0.99
    norms = np.sort(np.linalg.norm(ends, axis=1), axis=1)
    expected = np.sort(np.linalg.norm(start, axis=0))
    np.testing.assert_allclose(norms, np.tile(expected, (NUM_STEPS, 1)), rtol=1e-3)


def test_each_of_the_six_orders_of_three_units_comes():
    """One stays away with a probability of 1e-23."""
    _, ends, _ = moved("gelu")
    assert len(np.unique(np.argsort(ends[:, 0], axis=1), axis=0)) == 6


def test_half_of_the_signs_are_flipped_under_a_symmetric_prior():
    """Five standard errors of 900 coins, two-sided 6e-7."""
    start, ends, _ = moved("tanh", location=0.0)
    sizes = np.abs(ends[:, 0])
    which = np.argmin(np.abs(sizes[:, :, None] - np.abs(start[0])), axis=2)
    is_flipped = np.sign(ends[:, 0]) != np.sign(start[0][which])
    assert abs(is_flipped.mean() - 0.5) < 5 * 0.5 / is_flipped.size**0.5


def test_units_with_priors_of_their_own_stay_at_their_places(monkeypatch):
    """Where the draws are the extreme ones: the number of a set and its draw, added up, round."""
    size = 10
    draws = jnp.where(jnp.arange(size) % 2 == 0, 0.0, 1 - 2.0**-23)
    monkeypatch.setattr(jax.random, "uniform", lambda *_: draws)
    network = mlp((1, size, 1), "tanh")
    (units,) = weight_symmetries(network).permutations
    params = init(jax.random.key(0), network)
    for sets in (np.arange(size), np.arange(size)[::-1]):
        found, _ = symmetry_steps.permutation_move([], units, sets)(jax.random.key(1), params)
        jax.tree.map(np.testing.assert_array_equal, found, params)
