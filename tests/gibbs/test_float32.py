"""Tests of gibbs.pre_activations: float32 at noise variances where the printed formulas are NaN."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbnn.gibbs import IntermediateNoise, activation_pieces, gibbs_sampler, pre_activations
from jaxbnn.gibbs.chain import chain_values
from jaxbnn.gibbs.pieces import PiecewiseLinear
from jaxbnn.gibbs.pre_activations import sample_pre_activations
from jaxbnn.networks import mlp
from tests.kit import Target, both_sizes, check_exact_start
from tests.kit.sizes import QUICK

D = 1e-5


def model_with(activation, d):
    return IntermediateNoise(mlp((2, 2, 1), activation), d, (2.0, 2.0), 1.5)


X = jnp.asarray([[0.3, -1.0], [1.2, 0.4], [-0.7, 0.9], [2.1, -0.2], [0.5, 1.4]], jnp.float32)


def target(model):
    d = model.noise_variance

    def sample(key):
        key_weights, key_latents = jax.random.split(key)
        return model.simulate(key_latents, model.sample_prior(key_weights), X)

    def functions(position, y):
        """Weights, and the noise in every latent in units of its standard deviation."""
        values = chain_values(model, position, y, X.dtype)
        found = {
            f"w{i}": leaf.ravel()[0] for i, leaf in enumerate(jax.tree.leaves(position.params))
        }
        before = X.T
        for j, (stage, value) in enumerate(zip(model.stages, values, strict=True)):
            noise = (value - stage.mean(position.params, before)) / np.sqrt(d)
            found |= {f"noise {j} {i}": e for i, e in enumerate(noise.ravel()[:3])}
            found |= {f"noise {j} sum": jnp.sum(noise), f"noise {j} square": jnp.sum(noise**2)}
            before = value
        return found

    return Target(sample, lambda position, y: model.log_density(position, X, y), functions)


# A sign unit that is constant over the data differs from the bias by the noise alone.
@pytest.mark.long  # the short test of collinear features is in test_factors.py
@both_sizes(60_000)
@pytest.mark.parametrize(
    ("activation", "d", "order"),
    [
        ("sign", 1e-7, "sequential"),
        ("relu", D, "sequential"),
        ("relu", D, "parallel"),
        ("identity", 1e-8, "parallel"),
    ],
)
def test_sweeps_are_invariant(activation, d, order, num_chains):
    model = model_with(activation, d)
    result = check_exact_start(
        lambda y: gibbs_sampler(model, X, y, order), target(model), steps=5, num_chains=num_chains
    )
    assert result.passes, str(result)


@pytest.mark.short("relu", "hard_tanh")
@pytest.mark.parametrize("name", ["relu", "leaky_relu", "abs", "sign", "hard_tanh"])
def test_pre_activations_agree_with_float64_in_the_tails(name, rng):
    """Both pieces far tails, w/sqrt(D) up to 1,000: the same uniforms give the same draws."""
    n = 4000
    mean, post = rng.uniform(-3, 3, (2, n))
    post[: n // 2] = -np.abs(mean[: n // 2]) - rng.uniform(0, 1, n // 2)

    def draw(dtype):
        uniform = np.asarray(jnp.linspace(0.01, 0.99, n, dtype=jnp.float32))
        with pytest.MonkeyPatch.context() as patch, jax.enable_x64(dtype == np.float64):
            patch.setattr(
                "jaxbnn.gibbs.pre_activations.uniform_open",
                lambda key, shape, dtype: jnp.asarray(uniform, dtype),
            )
            given = (jnp.asarray(np.asarray(v, np.float32), dtype) for v in (mean, post))
            sample = jax.jit(
                lambda m, x: sample_pre_activations(
                    jax.random.key(0), activation_pieces(name), m, x, dtype(D), dtype(D)
                ),
                compiler_options=QUICK,
            )
            return np.asarray(sample(*given), np.float64)

    single, double = draw(np.float32), draw(np.float64)
    assert np.all(np.isfinite(single))
    # A uniform next to the odds of two pieces may fall on either side; elsewhere draws agree.
    same = np.abs(single - double) < 1e-3 * np.sqrt(D) + 2e-6 * np.abs(double)
    assert np.mean(same) > 0.998


# Steps of one unit, and one slope.
STAIRS = PiecewiseLinear(
    (
        *((0.0, float(k), k - 0.5 if k > -8 else -np.inf, k + 0.5) for k in range(-8, 8)),
        (0.7, 2.4, 7.5, np.inf),
    )
)


@pytest.mark.parametrize("variance", [1e-4, 1e-6, 1e-8])
@pytest.mark.parametrize(
    ("activation", "border", "values"),
    [("hard_tanh", 1.0, (1.0, 0.0)), (STAIRS, 7.5, (7.325, 0.1))],
)
def test_pieces_far_from_the_first_share_their_mass_as_in_float64(
    activation, border, values, variance, rng
):
    """Two pieces hold the mass; beside the first one their heights would round by 2 and more."""
    n = 2000
    pieces = activation_pieces(activation) if isinstance(activation, str) else activation
    middle, next_variance = values[0], values[1] or variance
    mean = border + np.sqrt(variance) * rng.normal(size=n)
    post = middle + np.sqrt(next_variance) * rng.normal(size=n)
    mean, post = mean.astype(np.float32), post.astype(np.float32)
    uniform = rng.uniform(size=n).astype(np.float32)

    def draw(dtype):
        with pytest.MonkeyPatch.context() as patch, jax.enable_x64(dtype == np.float64):
            patch.setattr(pre_activations, "uniform_open", lambda *_: jnp.asarray(uniform, dtype))
            given = (jnp.asarray(value, dtype) for value in (mean, post))
            noise = (dtype(np.float32(v)) for v in (variance, next_variance))
            return sample_pre_activations(jax.random.key(0), pieces, *given, *noise)

    single, double = (np.asarray(draw(dtype), np.float64) for dtype in (np.float32, np.float64))
    is_above = single > border, double > border
    assert 0.2 < is_above[1].mean() < 0.8
    # A uniform next to the share of a piece may fall on either side, and a draw on the border.
    assert np.mean(is_above[0] == is_above[1]) > 0.99


def test_a_piece_without_mass_is_not_chosen_by_the_largest_uniform(monkeypatch):
    """What rounding left of the masses went to the last piece, hundreds of deviations off."""
    mean = jnp.linspace(-1.02, -0.98, 1001)
    largest = jnp.full(mean.shape, 1 - 2.0**-24)
    monkeypatch.setattr(pre_activations, "uniform_open", lambda key, shape, dtype: largest)
    z = sample_pre_activations(
        jax.random.key(0), activation_pieces("hard_tanh"), mean, mean, 1e-5, 1e-5
    )
    assert float(jnp.max(z)) < -0.9
