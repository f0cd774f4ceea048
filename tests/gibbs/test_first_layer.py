"""Tests of gibbs.first_layer and gibbs.spectrum: inputs that are decomposed once, and when not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxbnn.gibbs import IntermediateNoise, gibbs_sampler
from jaxbnn.gibbs.first_layer import can_be_kept
from jaxbnn.gibbs.spectrum import spectrum_of
from jaxbnn.networks import Activation, Conv, Dense, Flatten, Network, mlp

VARIANCE = 1e-2


def salary_and_flags(rng, share, num_flags=99):
    """A column of tens of thousands beside columns of zeros and ones."""
    salary, flags = rng.lognormal(11, 0.5, (1000, 1)), rng.random((1000, num_flags)) < share
    return np.concatenate([salary, flags], axis=1).astype(np.float32)


def whitened_draws(x, rng, sweeps):
    """Return 40 chains' weights in coordinates in which their exact law is the standard normal."""
    model = IntermediateNoise(mlp((x.shape[1], 1)), VARIANCE)
    w = np.append(rng.normal(size=x.shape[1]), 0.3)
    w[0] *= 1e-5
    design = np.concatenate([x, np.ones((len(x), 1))], axis=1, dtype=float)
    y = (design @ w + VARIANCE**0.5 * rng.normal(size=len(x))).astype(np.float32)
    kernel = gibbs_sampler(model, x, y[:, None])
    start = kernel.init(model.zero_position(x, y[:, None]))

    def chain(key):
        state, flags = jax.lax.scan(
            lambda state, key: (lambda s, info: (s, info.is_divergent))(*kernel.step(key, state)),
            start,
            jax.random.split(key, sweeps),
        )
        return state.position.params[0], jnp.any(flags)

    params, divergent = jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(0), 40))
    assert not np.any(divergent)
    precision = design.T @ design / VARIANCE + np.eye(len(w))
    mean = np.linalg.solve(precision, design.T @ y.astype(float) / VARIANCE)
    found = np.concatenate([params["w"][..., 0], params["b"]], axis=1).astype(float)
    return (found - mean) @ np.linalg.cholesky(precision)


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_an_input_in_other_units_hides_none_of_the_others(share, rng):
    """In float32 the flags are lost beside it in second moments, and kept their prior once.

    With .9 of them ones, it is what they tell beyond the constant feature that is lost.
    """
    x = salary_and_flags(rng, share)
    draws = whitened_draws(x, rng, sweeps=3)
    squares, means = np.sum(draws**2), 40 * np.sum(np.mean(draws, axis=0) ** 2)
    for value, degrees in ((squares, draws.size), (means, draws.shape[1])):
        low, high = stats.chi2(degrees).ppf([2.5e-7, 1 - 2.5e-7])  # 1e-6 in all
        assert low < value < high


def test_traced_inputs_that_would_be_lost_are_told_of():
    x = salary_and_flags(np.random.default_rng(0), 0.1)
    y = np.zeros((len(x), 1), np.float32)
    model = IntermediateNoise(mlp((x.shape[1], 1)), VARIANCE)

    @jax.jit
    def sweep(x):
        kernel = gibbs_sampler(model, x, y)
        return kernel.step(jax.random.key(0), kernel.init(model.zero_position(x, y)))

    state, info = sweep(x)
    assert info.is_divergent
    assert not np.any(state.position.params[0]["w"])  # nothing was drawn
    assert not sweep(x / x.max(axis=0))[1].is_divergent


@pytest.mark.parametrize("kind", ["normal", "repeated", "constant", "far", "pixels"])
def test_inputs_of_like_sizes_are_decomposed_once(kind, rng):
    x = rng.normal(size=(500, 30))
    x = {
        "normal": x,
        "repeated": np.repeat(x, 4, axis=1),
        "constant": np.concatenate([x, np.full((500, 60), -0.42)], axis=1),
        "far": x + 2000.0,  # years
        "pixels": np.where(rng.random((500, 30)) < rng.random(30) ** 3, rng.random((500, 30)), 0),
    }[kind].astype(np.float32)
    model = IntermediateNoise(mlp((x.shape[1], 3, 1)), 1e-4, (x.shape[1], 3.0))
    assert can_be_kept(model, jnp.asarray(x.T), "joint")
    y = np.zeros((500, 1), np.float32)
    kernel = gibbs_sampler(model, x, y)
    state = kernel.init(model.zero_position(x, y))
    assert state.first_layer is not None
    assert not kernel.step(jax.random.key(0), state)[1].is_divergent


@pytest.mark.short("sequential")
@pytest.mark.parametrize("order", ["sequential", "parallel", "backward"])
def test_inputs_may_be_flattened_first(order, rng):
    """The same chain as of inputs that are flat."""
    x = rng.normal(size=(6, 2, 2)).astype(np.float32)
    layers = (Dense(3), Activation("relu"), Dense(1))
    flat = IntermediateNoise(Network(layers, (4,)), 0.1)
    model = IntermediateNoise(Network((Flatten(), *layers), (2, 2)), 0.1)
    y = rng.normal(size=(6, 1)).astype(np.float32)

    def chain(model, x):
        kernel = gibbs_sampler(model, x, y, order)
        state = kernel.init(model.zero_position(x, y))
        for key in jax.random.split(jax.random.key(0), 3):
            state, _ = jax.jit(kernel.step)(key, state)
        return jax.tree.leaves(state.position)

    for one, other in zip(chain(model, x), chain(flat, x.reshape(6, 4)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_filters_see_what_one_channel_hides(rng):
    """Of images with a channel in other units, the filters' weights of the others are drawn."""
    x = rng.normal(size=(200, 4, 4, 2)).astype(np.float32)
    x[..., 0] = 1e6 * (1 + 0.1 * x[..., 0])
    network = Network((Conv(2, (2, 2)), Flatten(), Dense(1)), (4, 4, 2))
    model = IntermediateNoise(network, VARIANCE)
    images = jnp.moveaxis(jnp.asarray(x), 0, -1)
    assert not can_be_kept(model, images, "joint")
    assert can_be_kept(model, images.at[..., 0, :].multiply(1e-6), "joint")


def test_inputs_far_beyond_their_spread_are_decomposed_anew(rng):
    """Seconds since a distant day: what float32 keeps of them is lost in products of them."""
    x = (rng.normal(size=(500, 5)) + 2e6).astype(np.float32)
    model = IntermediateNoise(mlp((5, 3, 1)), 1e-4)
    assert not can_be_kept(model, jnp.asarray(x.T), "joint")
    y = np.zeros((500, 1), np.float32)
    kernel = gibbs_sampler(model, x, y)
    state = kernel.init(model.zero_position(x, y))
    assert not kernel.step(jax.random.key(0), state)[1].is_divergent


def far_from_zero(rng, kind):
    """Columns 1e4 from zero whose contrasts float32 still holds, and their second moment's size."""
    x = 1e4 + 0.03 * rng.normal(size=(300, 10))
    far = np.arange(300)[:, None] == {"the first alone": 0, "one alone": 7}.get(kind, -1)
    return {
        "the first alone": np.where(far, 1e7, x - 1e4),
        "one alone": np.where(far, 1e7, x - 1e4),
        "alone": x,
        "repeated": np.repeat(x, 2, axis=1),
        "constant": np.concatenate([x, np.full((300, 3), 1e4)], axis=1),
        "together": x + 30 * rng.normal(size=(300, 1)),  # each spreads, their contrasts do not
    }[kind].astype(np.float32)


@pytest.mark.parametrize("ratio", [1.0, None])
@pytest.mark.parametrize(
    "kind", ["alone", "repeated", "constant", "together", "the first alone", "one alone"]
)
def test_what_is_lost_beside_a_distance_from_zero_is_measured(kind, ratio, rng):
    """Beyond what the directions that are seen explain, by float64 of the same inputs."""
    x = far_from_zero(rng, kind)
    spectrum = jax.jit(lambda x: spectrum_of(Dense(3), x, ratio))(jnp.asarray(x.T))
    design = np.concatenate([x, np.ones((300, 1))], axis=1, dtype=float)[:, : len(spectrum.scale)]
    turned, seen = design @ np.asarray(spectrum.vectors, float), np.asarray(spectrum.values > 0)
    basis = np.linalg.qr(turned[:, seen])[0]
    rest = turned[:, ~seen] - basis @ (basis.T @ turned[:, ~seen])
    assert np.linalg.norm(rest, 2) ** 2 > 0.1
    np.testing.assert_allclose(spectrum.lost, np.max(np.sum(rest**2, axis=0)), rtol=0.1)


@pytest.mark.parametrize("kind", ["repeated", "constant", "sums", "one-hot", "few rows", "zero"])
def test_nothing_is_lost_where_directions_are_empty(kind, rng):
    x = rng.normal(size=(200, 8))
    x = {
        "repeated": 100 + np.repeat(x, 3, axis=1),
        "constant": np.concatenate([x, np.full((200, 9), 1e3)], axis=1),
        "sums": np.concatenate([x, x[:, :4] + x[:, 4:], x.sum(axis=1, keepdims=True)], axis=1),
        "one-hot": np.eye(8)[rng.integers(0, 8, 200)],
        "few rows": 100 + rng.normal(size=(20, 50)),
        "zero": np.concatenate([x, 0 * x], axis=1),
    }[kind]
    for ratio in (1.0, None):
        # Without the constant feature a column of them is one more, and is seen.
        assert spectrum_of(Dense(3), jnp.asarray(x.T, jnp.float32), ratio).lost == 0


def test_filters_far_from_zero_lose_their_contrasts(rng):
    images = jnp.asarray(1e4 + 0.01 * rng.normal(size=(4, 4, 2, 200)), jnp.float32)
    spectrum = spectrum_of(Conv(2, (2, 2)), images, None)
    # 9 positions and 200 images, each of variance 1e-4.
    assert 0.1 < spectrum.lost < 0.3
    assert spectrum_of(Conv(2, (2, 2)), images - 1e4, None).lost == 0


def test_a_pixel_far_away_hides_no_contrast(rng):
    images = rng.uniform(size=(4, 4, 1, 200)).astype(np.float32)
    images[0, 0, 0, 0] = 1e9
    assert spectrum_of(Conv(2, (2, 2)), jnp.asarray(images), None).lost > 10


def contrast_draws(x, y, variance, is_traced):
    """Return 500 draws of the first weight less the second, and whether any was not drawn."""
    model = IntermediateNoise(Network((Dense(1),), (x.shape[1],)), variance)

    def draws(x, kernel):
        start = kernel.init(model.zero_position(x, y))

        def one(key):
            state, info = kernel.step(key, start)
            w = state.position.params[0]["w"]
            return w[0, 0] - w[1, 0], info.is_divergent

        found, divergent = jax.vmap(one)(jax.random.split(jax.random.key(0), 500))
        return found, jnp.any(divergent)

    if is_traced:
        return jax.jit(lambda x: draws(x, gibbs_sampler(model, x, y)))(x)
    kernel = gibbs_sampler(model, x, y)
    return jax.jit(lambda: draws(x, kernel))()


def test_contrasts_far_from_zero_are_drawn_or_told_of(rng):
    """Once these had their prior, without a word."""
    x, variance = (1e4 + 0.03 * rng.normal(size=(200, 10))).astype(np.float32), 1e-3
    w = np.array([1.0, -1.0] + [0.0] * 8)
    design = np.concatenate([x, np.ones((200, 1))], axis=1, dtype=float)
    y = design[:, :10] @ w + variance**0.5 * rng.normal(size=200)
    y = y.astype(np.float32)[:, None]
    precision = design.T @ design / variance + np.eye(11)
    contrast = np.array([1.0, -1.0] + [0.0] * 9)
    exact = contrast @ np.linalg.solve(precision, design.T @ y[:, 0].astype(float) / variance)
    deviation = (contrast @ np.linalg.solve(precision, contrast)) ** 0.5
    found, divergent = contrast_draws(x, y, variance, is_traced=False)
    assert not divergent
    assert abs(np.mean(found, dtype=float) - exact) < 5 * deviation / 500**0.5
    assert np.std(found, dtype=float) == pytest.approx(deviation, rel=0.2)
    assert contrast_draws(x, y, variance, is_traced=True)[1]


@pytest.mark.parametrize(("variance", "is_lost"), [(0.3, True), (25.0, True), (1e4, False)])
def test_of_an_input_beside_one_much_larger_no_share_that_matters_is_lost(variance, is_lost, rng):
    """Concrete or traced: its weight was drawn from the prior where the data told a hundred times
    more, or as much."""
    x = (rng.normal(size=(20, 2)) * [1e7, 1.0]).astype(np.float32)
    y = x[:, 1:]
    model = IntermediateNoise(Network((Dense(1),), (2,)), variance)
    assert can_be_kept(model, jnp.asarray(x.T), "joint") != is_lost
    assert contrast_draws(x, y, variance, is_traced=True)[1] == is_lost


def test_precisions_of_biases_may_be_an_axis_beside_inputs_that_are_known(rng):
    """What is lost hangs on them, and cannot be looked at."""
    x = jnp.asarray(salary_and_flags(rng, 0.1).T)

    def kept(precision):
        model = IntermediateNoise(mlp((100, 1)), VARIANCE, 1.0, precision)
        assert can_be_kept(model, x, "joint")
        return precision

    jax.vmap(kept)(jnp.ones(2))
