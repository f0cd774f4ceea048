"""Tests of wide.design: the split into inner weights and an exactly drawn read-out, and both in the
runner.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import jaxbnn
from jaxbnn import wide
from jaxbnn.networks import init, mlp
from jaxbnn.wide.design import design_matrix
from tests.kit.sizes import QUICK
from tests.wide.linear_algebra import log_marginal, posterior_of_read_out

NETWORK = mlp((2, 3, 2), "gelu", parametrisation="ntk", bias_scale=0.5)
X = np.array([[0.3, -1.0], [1.2, 0.4], [-0.7, 0.9], [0.1, 0.2]], "f4")
Y = np.array([[0.2, -0.1], [0.1, 0.3], [0.9, -0.6], [0.0, 1.0]], "f4")
NOISE_SCALE = 0.4
PHI = init(jax.random.key(5), NETWORK)


def design():
    """Return Psi at PHI in float64."""
    compute = jax.jit(lambda phi: design_matrix(NETWORK, phi, X), compiler_options=QUICK)
    return np.asarray(compute(PHI), np.float64)


@pytest.fixture(scope="module")
def marginal():
    return wide.marginal_conditional(NETWORK, X, Y, NOISE_SCALE)


def test_log_likelihood_is_that_of_the_whole(marginal):
    psi = design()
    both = jax.jit(
        lambda phi: (marginal.log_likelihood(phi[:-1]), marginal.joint.log_likelihood(phi)),
        compiler_options=QUICK,
    )
    found, whole = both(PHI)
    np.testing.assert_array_equal(found, whole)
    assert float(np.sum(found)) == pytest.approx(log_marginal(psi, Y, NOISE_SCALE), abs=1e-4)


def test_read_outs_have_their_conditional_law(marginal):
    num_draws = 20_000
    keys = jax.random.split(jax.random.key(0), num_draws)
    draw = jax.jit(
        jax.vmap(lambda key: marginal.draw_read_out(key, PHI[:-1])), compiler_options=QUICK
    )
    *inner, read_out = draw(keys)
    np.testing.assert_array_equal(inner[0]["w"][7], PHI[0]["w"])
    draws = np.concatenate([read_out["w"], read_out["b"][:, None]], axis=1).astype(np.float64)

    psi = design()
    covariance, mean = posterior_of_read_out(psi, Y, NOISE_SCALE)
    root = np.linalg.inv(np.linalg.cholesky(covariance))
    # Columns of white noise, independent of each other: 8 means and 36 second moments.
    white = np.einsum("ij,njk->nki", root, draws - mean).reshape(num_draws, -1)
    products = np.einsum("ni,nj->nij", white, white) - np.eye(white.shape[1])
    statistics = np.concatenate([white, products.reshape(num_draws, -1)], axis=1)
    z = statistics.mean(0) / (statistics.std(0) / np.sqrt(num_draws))
    assert np.abs(z).max() < stats.norm.isf(1e-6 / 2 / 44)


@pytest.mark.long
def test_drawing_read_outs_does_not_change_the_chain_of_inner_weights(marginal):
    inner_kernel = jaxbnn.underdamped_langevin(
        lambda inner: marginal.log_likelihood(inner).sum(), 0.1, 0.5
    )
    kernel = wide.with_read_out(inner_kernel, marginal)

    @partial(jax.jit, compiler_options=QUICK)
    def run(key_init, key):
        state = kernel.init(PHI, key_init)
        new, info = kernel.step(key, state)
        alone, _ = inner_kernel.step(jax.random.split(key)[0], state.inner)
        return state, new, info, alone, jaxbnn.refresh(kernel, new, PHI)

    with jax.debug_key_reuse(False):  # the inner kernel's key is used again on purpose
        state, new, info, alone, moved = run(jax.random.key(1), jax.random.key(2))
    for leaf, same in zip(jax.tree.leaves(new.inner), jax.tree.leaves(alone), strict=True):
        np.testing.assert_array_equal(leaf, same)
    np.testing.assert_array_equal(new.position[0]["w"], alone.position[0]["w"])
    assert np.all(new.position[-1]["w"] != state.position[-1]["w"])
    assert info.is_accepted
    # Moved by another kernel, it keeps its momentum and nothing stale.
    np.testing.assert_array_equal(moved.inner.momentum[0]["w"], new.inner.momentum[0]["w"])
    np.testing.assert_array_equal(moved.inner.gradient[0]["w"], state.inner.gradient[0]["w"])


def test_traced_data_in_the_runner_and_read_outs_afterwards(marginal):
    def make_kernel(parameters, data):
        split = wide.marginal_conditional(NETWORK, data["x"], data["y"], data["noise_scale"])
        return jaxbnn.pcn(split.log_likelihood, parameters["step_size"])

    draws = jaxbnn.sample(
        jax.random.key(3),
        make_kernel,
        jax.tree.map(lambda leaf: jnp.stack([leaf, leaf / 2]), PHI[:-1]),
        3,
        parameters={"step_size": np.array([0.3, 0.6], "f4")},
        data={"x": X, "y": Y, "noise_scale": np.float32(NOISE_SCALE)},
        progress=False,
    )
    weights = jaxbnn.complete(jax.random.key(4), draws, marginal.draw_read_out)
    assert weights[-1]["w"].shape == (2, 3, 3, 2)
    assert len(np.unique(weights[-1]["w"])) == 36
