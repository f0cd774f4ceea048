"""Every MCMC kernel of BlackJAX runs in `sample` unchanged, alone and composed.

Not here: `orbital_hmc`, whose state is an orbit of several weighted positions; SG-MCMC, whose step
takes a minibatch; Laplace and coupled HMC, which sample other spaces than their log density's.
"""

import functools

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.mcmc import random_walk

import jaxbnn

SCALES = np.array([1.0, 0.5], np.float32)
KEY = jax.random.key(17)
ONES = np.ones(2, np.float32)


def log_density(x):
    return -0.5 * jnp.sum((x / SCALES) ** 2)


def propose(key, position):
    return position + 0.8 * jax.random.normal(key, (2,))


KERNELS = {
    "rmh": lambda: blackjax.rmh(log_density, propose),
    "irmh": lambda: blackjax.irmh(
        log_density,
        lambda key: 1.5 * jax.random.normal(key, (2,)),
        lambda new, old: -0.5 * jnp.sum((old.position / 1.5) ** 2),
    ),
    "additive_step_random_walk": lambda: blackjax.additive_step_random_walk(
        log_density, random_walk.normal(0.8 * jnp.ones(2))
    ),
    "mala": lambda: blackjax.mala(log_density, 0.2),
    "hmc": lambda: blackjax.hmc(log_density, 0.5, ONES, 4),
    "nuts": lambda: blackjax.nuts(log_density, 0.5, ONES, max_num_doublings=4),
    "dynamic_hmc": lambda: blackjax.dynamic_hmc(log_density, 0.3, ONES),
    "mhmc": lambda: blackjax.mhmc(log_density, 0.5, ONES, 4),
    "dmhmc": lambda: blackjax.dmhmc(log_density, 0.3, ONES),
    "ghmc": lambda: blackjax.ghmc(log_density, 0.5, ONES, alpha=0.4, delta=0.3),
    "rmhmc": lambda: blackjax.rmhmc(log_density, 0.3, lambda x: jnp.ones(2), 3),
    "barker": lambda: blackjax.barker(log_density, 0.8),
    "elliptical_slice": lambda: blackjax.elliptical_slice(
        lambda x: log_density(x) + 0.5 * jnp.sum(x**2), mean=jnp.zeros(2), cov=jnp.eye(2)
    ),
    "slice_sampling": lambda: blackjax.slice_sampling(log_density),
    "mclmc": lambda: blackjax.mclmc(log_density, L=1.5, step_size=0.3),
    "adjusted_mclmc": lambda: blackjax.adjusted_mclmc(log_density, 0.5, num_integration_steps=3),
    "mgrad_gaussian": lambda: blackjax.mgrad_gaussian(
        lambda x: log_density(x) + 0.5 * jnp.sum(x**2), covariance=jnp.eye(2), step_size=0.5
    ),
}
NUM_CHAINS, NUM_SAMPLES = 200, 60
LONG = pytest.mark.long
EACH = pytest.mark.parametrize("name", KERNELS)
pytestmark = pytest.mark.third_party(reason="BlackJAX's kernels promote dtypes")


@functools.cache
def make_kernel(name):
    return KERNELS[name]()


@functools.cache
def starts():
    return np.random.default_rng(6).standard_normal((NUM_CHAINS, 2)).astype(np.float32) * SCALES


def check_draws(draws, tolerance=0.15):
    """Moments of 200 chains from exact starts: a gross error, not a subtle one, is looked for."""
    x = draws.positions.astype(np.float64)
    assert x.shape == (NUM_CHAINS, NUM_SAMPLES, 2)
    assert np.isfinite(x).all()
    assert (x[:, 0] != x[:, -1]).any(1).mean() > 0.9
    last = x[:, NUM_SAMPLES // 2 :]
    # 200 independent chains: standard errors of a mean are at most 0.07, of a deviation 0.05.
    np.testing.assert_allclose(last.mean((0, 1)) / SCALES, 0, atol=0.36)
    np.testing.assert_allclose(last.std((0, 1)) / SCALES, 1, atol=0.25)


# Compiling is what these tests cost: alone now, one kernel of each kind of state and Info.
ALONE = ["nuts", "elliptical_slice"]


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [name if name in ALONE else pytest.param(name, marks=LONG) for name in KERNELS]
)
def test_a_kernel_runs_as_it_is(name):
    draws = jaxbnn.sample(KEY, make_kernel(name), starts(), NUM_SAMPLES, progress=False)
    check_draws(draws)
    has_rate = getattr(draws.infos, "acceptance_rate", None) is not None
    assert np.isfinite(draws.acceptance_rate).all() == has_rate
    for leaf in jax.tree.leaves(draws.infos):
        assert leaf.shape == (NUM_CHAINS, NUM_SAMPLES)
    if name == "nuts":
        assert draws.infos.num_integration_steps.dtype == np.int32
        assert draws.infos.is_divergent.dtype == bool
        assert draws.infos.momentum is None


def check_cycle(names):
    kernels = [make_kernel(name) for name in names]
    draws = jaxbnn.sample(KEY, jaxbnn.cycle(*kernels), starts(), NUM_SAMPLES, progress=False)
    check_draws(draws)
    assert np.isfinite(draws.acceptance_rate).all()  # of those components that have one
    end = draws.final_state
    density = np.asarray(jax.vmap(log_density)(end.position))
    likelihood = density + 0.5 * np.sum(np.asarray(end.position) ** 2, 1)

    @jax.jit
    @jax.vmap
    def refreshed(states, position, key):
        return [
            jaxbnn.refresh(kernel, state, position, jax.random.fold_in(key, i))
            for i, (kernel, state) in enumerate(zip(kernels, states, strict=True))
        ]

    keys = jax.random.split(jax.random.key(0), NUM_CHAINS)
    for name, state in zip(names, refreshed(end.states, end.position, keys), strict=True):
        np.testing.assert_array_equal(state.position, end.position)
        cached = likelihood if name in ("mgrad_gaussian", "elliptical_slice") else density
        np.testing.assert_allclose(state.logdensity, cached, rtol=1e-4, atol=1e-5, err_msg=name)
    # The last component is current as it is.
    last = end.states[-1]
    cached = likelihood if names[-1] in ("mgrad_gaussian", "elliptical_slice") else density
    np.testing.assert_allclose(last.logdensity, cached, rtol=1e-4, atol=1e-5)


# States with and without a gradient, and with a momentum; the others are in the long test.
TOGETHER = ["mala", "slice_sampling", "ghmc"]


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(TOGETHER, marks=LONG),
        pytest.param([name for name in KERNELS if name not in TOGETHER], marks=LONG),
    ],
    ids=["three kinds", "the others"],
)
def test_kernels_run_in_a_cycle(names):
    check_cycle(names)


@pytest.mark.long
@EACH
def test_each_kernel_runs_in_a_cycle_of_two(name):
    check_cycle([name, "additive_step_random_walk"])


def test_an_orbit_has_no_position_and_is_left_out():
    kernel = blackjax.orbital_hmc(log_density, 0.3, ONES, 5)
    assert not hasattr(kernel.init(jnp.zeros(2)), "position")
