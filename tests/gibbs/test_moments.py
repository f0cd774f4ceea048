"""A tiny network whose posterior moments are known from a three-dimensional integral."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from jaxbnn.gibbs import IntermediateNoise, gibbs_sampler
from jaxbnn.gibbs.sweep import Sweep
from jaxbnn.networks import Activation, Dense, Network
from tests.kit.sizes import QUICK

D = 0.2
X = np.array([[-0.7], [0.4], [1.5]], np.float32)
Y = np.array([[0.3], [0.5], [1.6]], np.float32)
MODEL = IntermediateNoise(Network((Dense(1), Activation("relu"), Dense(1, bias=False)), (1,)), D)


def functions(w1, b1, w2):
    return (w1, b1, w2, w1**2, b1**2, w2**2)


def exact_moments():
    """Integrate over a grid of 141 points a weight; the latents have been integrated by hand."""
    grid = np.linspace(-5, 5, 141)
    w1, b1, w2 = np.meshgrid(grid, grid, grid, indexing="ij")
    log_density = -(w1**2 + b1**2 + w2**2) / 2
    for x, y in zip(X[:, 0].astype(float), Y[:, 0].astype(float), strict=True):
        mean, v = w1 * x + b1, D * (1 + w2**2)
        # z < 0: y ~ N(0, v). z > 0: y ~ N(w2 z, v), a normal in z.
        off = special.log_ndtr(-mean / np.sqrt(D)) + stats.norm.logpdf(y, 0, np.sqrt(v))
        both = v + w2**2 * D
        centre = mean + w2 * D * (y - w2 * mean) / both
        on = special.log_ndtr(centre / np.sqrt(D * v / both))
        on += stats.norm.logpdf(y, w2 * mean, np.sqrt(both))
        log_density += np.logaddexp(off, on)
    weights = np.exp(log_density - log_density.max())
    return [np.sum(weights * f) / np.sum(weights) for f in functions(w1, b1, w2)]


def deviations(chains, sweeps):
    """Return (chain mean - exact) in standard errors, of weights and squares."""

    def chain(key):
        kernel = gibbs_sampler(MODEL, X, Y, "parallel")
        key_start, key_steps = jax.random.split(key)
        state = kernel.init(MODEL.random_position(key_start, X, Y))

        def sweep(i, state):
            return kernel.step(jax.random.fold_in(key_steps, i), state)[0]

        first, _, last = jax.lax.fori_loop(0, sweeps, sweep, state).position.params
        return jnp.stack(functions(first["w"][0, 0], first["b"][0], last["w"][0, 0]))

    keys = jax.random.split(jax.random.key(0), chains)
    found = np.asarray(jax.jit(jax.vmap(chain), compiler_options=QUICK)(keys), np.float64)
    errors = found.std(axis=0) / np.sqrt(chains)
    return (found.mean(axis=0) - exact_moments()) / errors


SIZES = pytest.mark.parametrize(
    ("chains", "sweeps"),
    [
        pytest.param(4_000, 200, id="short"),
        pytest.param(30_000, 1_000, id="full", marks=pytest.mark.long),
    ],
)


@pytest.mark.long
@SIZES
def test_posterior_moments(chains, sweeps):
    # Six standard normals: one of them beyond 5.2 with probability 1e-6.
    assert np.max(np.abs(deviations(chains, sweeps))) < 5.2


@pytest.mark.long
@SIZES
def test_last_layer_left_out_is_found(chains, sweeps, monkeypatch):
    """Erratum A2 as printed: the parallel loop over weights ends one layer early."""
    right = Sweep.draw_params

    def wrong(sweep, *numbers):
        return right(sweep, *(j for j in numbers if j != len(MODEL.stages) - 1))

    monkeypatch.setattr(Sweep, "draw_params", wrong)
    assert np.max(np.abs(deviations(chains, sweeps))) > 8


@pytest.mark.parametrize(
    "order",
    ["backward", *(pytest.param(o, marks=pytest.mark.long) for o in ("sequential", "parallel"))],
)
def test_every_array_moves(order):
    kernel = gibbs_sampler(MODEL, X, Y, order)
    state = jax.jit(kernel.init)(MODEL.zero_position(X, Y))
    new, info = jax.jit(kernel.step)(jax.random.key(0), state)
    # What a sweep keeps of the first layer belongs to where it ends.
    kept = jax.jit(kernel.init)(new.position).first_layer
    chex.assert_trees_all_close(new.first_layer, kept, rtol=1e-4, atol=1e-5)
    for before, after in zip(
        jax.tree.leaves(state.position), jax.tree.leaves(new.position), strict=True
    ):
        assert np.all(before != after)
    assert bool(info.is_accepted)
    assert float(info.acceptance_rate) == 1.0
