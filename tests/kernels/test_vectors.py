"""Kernels on the vector of a position's numbers: the same moves, the same caches, the same law."""

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import jaxbnn
from jaxbnn.kernels import VectorState, on_vector, refresh

SHAPES = {"a": (2, 3), "b": (), "c": (4,)}
SIZE = 11


def log_density(position):
    """Each array has its own scale, and one bends another, so that no order of them is another."""
    a, b, c = (position[name] for name in SHAPES)
    bent = c - a.reshape(-1)[:4] ** 2
    return -jnp.sum(a**2) / 2 - 2 * (b - 1) ** 2 - 3 * jnp.sum(bent**2)


def start(dtype=jnp.float32):
    rng = np.random.default_rng(1)
    return {name: jnp.asarray(rng.normal(size=shape), dtype) for name, shape in SHAPES.items()}


KERNELS = {
    "hmc": lambda f: blackjax.hmc(f, 0.05, jnp.linspace(0.5, 2.0, SIZE), 7),
    "nuts": lambda f: blackjax.nuts(f, 0.05, jnp.linspace(0.5, 2.0, SIZE)),
    "mala": lambda f: blackjax.mala(f, 0.01),
    "mclmc": lambda f: blackjax.mclmc(
        f, L=2.0, step_size=0.3, inverse_mass_matrix=jnp.linspace(0.5, 2.0, SIZE)
    ),
}


@pytest.mark.parametrize("name", KERNELS)
def test_the_moves_are_those_of_the_kernel_on_the_position(name):
    make = KERNELS[name]
    ends = []
    for kernel in (
        make(log_density),
        on_vector(lambda whole: make(lambda v: log_density(whole(v)))),
    ):
        key_init, *keys = jax.random.split(jax.random.key(3), 6)
        state = kernel.init(start(), key_init)
        for key in keys:
            state, _ = jax.jit(kernel.step)(key, state)
        ends.append(state)
    jax.tree.map(
        lambda ours, theirs: np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=2e-4),
        ends[1].position,
        ends[0].position,
    )
    assert np.any(np.asarray(ends[1].position["a"]) != start()["a"])
    np.testing.assert_array_equal(ravel_pytree(ends[1].position)[0], ends[1].vector.position)


def hmc_on_vector():
    return on_vector(
        lambda whole: blackjax.hmc(lambda v: log_density(whole(v)), 0.05, jnp.ones(SIZE), 5)
    )


def test_what_another_kernel_moved_is_computed_again():
    def of_one(whole):
        return blackjax.mala(lambda block: log_density(whole(block)), 0.01)

    kernel = jaxbnn.cycle(hmc_on_vector(), jaxbnn.on_block(of_one, "c"))
    draws = jaxbnn.sample(
        jax.random.key(0),
        kernel,
        jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), start()),
        20,
        progress=False,
        collect=lambda state, info: (state.position, state.states[0]),
    )
    position, own = draws.positions
    moved = jax.vmap(jax.vmap(lambda p: ravel_pytree(p)[0]))(own.position)
    np.testing.assert_array_equal(moved, own.vector.position)
    expected = jax.vmap(jax.vmap(log_density))(own.position)
    np.testing.assert_allclose(own.vector.logdensity, expected, rtol=1e-4)
    assert np.any(np.asarray(position["c"]) != np.asarray(own.position["c"]))


def test_it_draws_from_its_target():
    """Second moments of a Gaussian of correlated arrays, by HMC from exact starts."""
    rng = np.random.default_rng(5)
    factor = np.linalg.cholesky(np.cov(rng.normal(size=(SIZE, 40))))
    precision = jnp.asarray(np.linalg.inv(factor @ factor.T), jnp.float32)
    whole = ravel_pytree(start())[1]

    def gaussian(position):
        vector = ravel_pytree(position)[0]
        return -vector @ precision @ vector / 2

    kernel = on_vector(
        lambda whole: blackjax.hmc(lambda v: gaussian(whole(v)), 0.4, jnp.ones(SIZE), 3)
    )
    chains = 4000
    exact = jnp.asarray(rng.normal(size=(chains, SIZE)) @ factor.T, jnp.float32)
    states = jax.vmap(lambda v: kernel.init(whole(v)))(exact)
    for key in jax.random.split(jax.random.key(1), 3):
        states, _ = jax.jit(jax.vmap(kernel.step))(jax.random.split(key, chains), states)
    white = np.linalg.solve(factor, np.asarray(states.vector.position, float).T)
    # Of each squared length the mean is SIZE and the variance 2 SIZE; five deviations: 6e-7.
    error = np.sqrt(2 * SIZE / chains)
    assert abs(np.mean(np.sum(white**2, axis=0)) - SIZE) < 5 * error
    assert np.mean(np.asarray(states.vector.position) != np.asarray(exact)) > 0.5


@pytest.mark.parametrize(
    ("act", "error", "sentence"),
    [
        (
            lambda: on_vector(lambda whole: 3).init(start()),
            TypeError,
            "what make_kernel returns must be a kernel",
        ),
        (
            lambda: hmc_on_vector().init(start() | {"b": jnp.zeros((), jnp.float16)}),
            TypeError,
            "a position of one dtype, but its arrays have float16 and float32",
        ),
        (
            lambda: hmc_on_vector().init(start() | {"b": jnp.zeros((), jnp.int32)}),
            TypeError,
            "must hold floating-point numbers",
        ),
        (lambda: hmc_on_vector().init({}), TypeError, "the position holds no array"),
    ],
)
def test_mistakes_are_told(act, error, sentence):
    with pytest.raises(error, match=sentence):
        act()


def test_its_state_can_be_refreshed():
    kernel = hmc_on_vector()
    state = refresh(kernel, kernel.init(start()), jax.tree.map(jnp.zeros_like, start()))
    assert isinstance(state, VectorState)
    np.testing.assert_allclose(state.vector.logdensity, -2.0)
