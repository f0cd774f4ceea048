"""Tests of gibbs.latents, gibbs.linear_maps, gibbs.model, gibbs.pieces,
gibbs.probit, gibbs.stages and gibbs.weights: each conditional against the joint log density,
numerically and in float64.

Along one block the log joint density is quadratic for Gaussian conditionals: its gradient and
Hessian, from automatic differentiation, give mean and covariance. The draw is affine in its
normal noise: zeros and unit vectors put in the noise's place give mean and covariance again.
For pre-activations and logits the draw maps uniforms to values; a fine grid of uniforms must
come out with the distribution function that quadrature of the joint density gives.
"""

from contextlib import contextmanager

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import stats

from jaxbnn.gibbs import activation_pieces, latents, pre_activations, probit, stages
from jaxbnn.gibbs.chain import chain_values
from jaxbnn.gibbs.factors import Whitened
from jaxbnn.gibbs.first_layer import first_layer
from jaxbnn.gibbs.linear_maps import average
from jaxbnn.gibbs.stages import split
from jaxbnn.gibbs.sweep import Sweep
from jaxbnn.gibbs.validation import inputs_last
from jaxbnn.networks import AvgPool, Conv, Network
from tests.gibbs.cases import ACTIVATIONS, MODELS, data
from tests.kit.sizes import QUICK

N = 3


@contextmanager
def noise_given(flat):
    """Let jax.random.normal hand out the entries of `flat` in turn, then zeros; counts them."""
    given = [0]

    def normal(key, shape=(), dtype=float):
        size = int(np.prod(shape))
        part = flat[given[0] : given[0] + size]
        given[0] += size
        return jnp.pad(part, (0, size - part.size)).reshape(shape).astype(dtype)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax.random, "normal", normal)
        yield given


def affine_map(draw):
    """Return mean and covariance of a draw(key) that is affine in its normal noise."""
    with noise_given(jnp.zeros(0)) as given:
        jax.eval_shape(draw, jax.random.key(0))

    def with_noise(flat):
        with noise_given(flat):
            value = ravel_pytree(draw(jax.random.key(0)))[0]
        return value, value

    jacobian, mean = jax.jacfwd(with_noise, has_aux=True)(jnp.zeros(given[0]))
    return mean, jacobian @ jacobian.T


def quadratic(log_density, block):
    """Return mean and covariance of the normal law that a quadratic log density describes."""
    flat, unravel = ravel_pytree(block)

    def gradient(flat):
        value = jax.grad(lambda flat: log_density(unravel(flat)))(flat)
        return value, value

    hessian, slope = jax.jacfwd(gradient, has_aux=True)(flat)
    covariance = jnp.linalg.inv(-hessian)
    return flat + covariance @ slope, covariance


def setting(name):
    """Return model, data, and a position whose weights did not make its latents."""
    model, x = MODELS[name], data(name, N)
    keys = jax.random.split(jax.random.key(0), 3)
    position, y = model.simulate(keys[0], model.sample_prior(keys[1]), x)
    return model, x, y, position._replace(params=model.sample_prior(keys[2]))


def sweep_over(key, model, x, y, position, first, bias="joint"):
    return Sweep(key, model, (inputs_last(model.network, x), y), position, first, bias)


def replaced(entries, index, entry):
    return (*entries[:index], entry, *entries[index + 1 :])


def latent_comparisons(name):
    """Return {stage: (drawn, wanted)} for the latents whose conditional is Gaussian."""
    model, x, y, position = setting(name)
    values, found = chain_values(model, position, y, x.dtype), {}
    for j in range(len(model.stages) - 1):
        if model.stages[j + 1].is_post:
            continue

        def log_density(value, j=j):
            pre, post = split(
                model.latent_stages, replaced(values, j, value)[: len(model.latent_stages)]
            )
            return model.log_density(position._replace(pre=pre, post=post), x, y)

        def draw(key, j=j):
            sweep = sweep_over(key, model, x, y, position, None)
            return sweep.sample_values(key, j, sweep.mean(j))

        found[f"latent {j}"] = affine_map(draw), quadratic(log_density, values[j])
    return found


def params_comparisons(name, bias):
    """Return {stage: (drawn, wanted)} for weights and biases, drawn jointly or in turn."""
    model, x, y, position = setting(name)
    params, found = list(position.params), {}
    for j, stage in enumerate(model.stages):
        if not stage.is_affine:
            continue
        kept = [None]
        if j == 0:  # as any other layer's, and from what is kept of the data
            kept.append(first_layer(model, inputs_last(model.network, x), bias))
        for i, first in enumerate(kept):

            def draw(key, j=j, first=first):
                return sweep_over(key, model, x, y, position, first, bias).sample_params(key, j)

            def log_density(block, index=stage.index):
                params = replaced(position.params, index, block)
                return model.log_density(position._replace(params=params), x, y)

            current = params[stage.index]
            if bias == "joint" or "b" not in current:
                found[f"params {j} {i}"] = affine_map(draw), quadratic(log_density, current)
                continue
            # Weights given the biases there are; then biases given the new weights.
            weights = quadratic(lambda w: log_density(current | {"w": w}), current["w"])  # noqa: B023
            found[f"weights {j} {i}"] = affine_map(lambda key: draw(key)["w"]), weights
            with noise_given(jnp.zeros(0)):
                new = draw(jax.random.key(0))
            mean, covariance = quadratic(lambda b: log_density(new | {"b": b}), new["b"])  # noqa: B023
            # The mean moves with the noise in the weights, too: its own comes last.
            found[f"bias {j} {i}"] = (new["b"], bias_covariance(draw)), (mean, covariance)
    return found


def bias_covariance(draw):
    """Return the covariance of the biases given the weights, from the noise that comes last."""
    with noise_given(jnp.zeros(0)) as given:
        shape = jax.eval_shape(draw, jax.random.key(0))["b"].shape

    def with_noise(last):
        with noise_given(jnp.concatenate([jnp.zeros(given[0] - last.size), last])):
            return draw(jax.random.key(0))["b"]

    jacobian = jax.jacfwd(with_noise)(jnp.zeros(shape))
    return jacobian @ jacobian.T


def assert_equal(comparisons):
    assert comparisons
    for name, (found, wanted) in comparisons.items():
        for what, a, b in zip(("mean", "covariance"), found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9, err_msg=f"{name}, {what}")


@pytest.mark.parametrize(
    "name",
    [
        "conv",
        *(
            pytest.param(n, marks=pytest.mark.long)
            for n in ("deep", "wide", "deep conv", "pool first")
        ),
    ],
)
def test_gaussian_latents_are_those_of_the_joint_density(name, x64):
    assert_equal(jax.jit(lambda: latent_comparisons(name), compiler_options=QUICK)())


@pytest.mark.short("conv-joint")
@pytest.mark.parametrize(
    ("name", "bias"),
    [
        ("conv", "joint"),
        ("regression", "separate"),
        *(
            pytest.param(name, bias, marks=pytest.mark.long)
            for name, bias in (("deep conv", "joint"), ("conv", "separate"), ("deep", "joint"))
        ),
    ],
)
def test_weights_and_biases_are_those_of_the_joint_density(name, bias, x64):
    assert_equal(jax.jit(lambda: params_comparisons(name, bias), compiler_options=QUICK)())


GRID = 4000


@pytest.mark.short("relu", "abs", "heaviside", "hard_tanh")
@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
def test_pre_activations_have_the_law_of_the_joint_density(activation, x64, monkeypatch):
    """A grid of uniforms in, the distribution function out: exact up to the grid's step."""
    sigma = activation_pieces(activation)
    grid = (np.arange(GRID) + 0.5) / GRID

    def uniforms(key, shape, dtype):
        return jnp.broadcast_to(jnp.asarray(grid, dtype)[:, None], shape)

    monkeypatch.setattr(pre_activations, "uniform_open", uniforms)
    normals = stats.norm.ppf(grid)
    monkeypatch.setattr(
        jax.random, "normal", lambda key, shape, dtype: jnp.broadcast_to(normals[:, None], shape)
    )
    mean = np.array([0.3, -1.2, 0.9, -0.1, 2.0])
    post = np.array([0.7, 0.4, -1.1, -0.6, -2.0])
    draw = jax.jit(
        lambda pre_variance, post_variance: pre_activations.sample_pre_activations(
            jax.random.key(0),
            sigma,
            jnp.broadcast_to(mean, (GRID, 5)),
            jnp.broadcast_to(post, (GRID, 5)),
            pre_variance,
            post_variance,
        ),
        compiler_options=QUICK,
    )
    for d_pre, d_post in ((0.3, 0.5), (0.02, 0.6), (1.5, 0.05)):
        draws = np.asarray(draw(d_pre, d_post))
        for i in range(5):
            z = grid_around(mean[i], d_pre)
            log_density = -((z - mean[i]) ** 2) / (2 * d_pre)
            log_density -= (apply_pieces(sigma, z) - post[i]) ** 2 / (2 * d_post)
            assert distance_to_density(draws[:, i], z, log_density) < 2.5 / GRID


def apply_pieces(sigma, z):
    """Evaluate an activation with NumPy."""
    value = np.zeros_like(z)
    for slope, intercept, low, high in sigma.pieces:
        value = np.where((z > low) & (z <= high), slope * z + intercept, value)
    return value


def grid_around(mean, variance):
    edges = mean + np.sqrt(variance) * np.linspace(-9, 9, 400_001)
    return (edges[1:] + edges[:-1]) / 2


def distance_to_density(draws, z, log_density):
    """Sup-distance of the draws' distribution function to that of a density on a grid z."""
    cdf = np.cumsum(np.exp(log_density - np.max(log_density)))
    at_draws = np.interp(np.sort(draws), z + (z[1] - z[0]) / 2, cdf / cdf[-1])
    steps = np.arange(draws.size + 1) / draws.size
    return max(np.max(steps[1:] - at_draws), np.max(at_draws - steps[:-1]))


def test_a_layer_without_conditionals_is_refused(monkeypatch):
    monkeypatch.setattr(stages, "AvgPool", type("OfAnotherName", (), {}))
    network = Network((Conv(2, (2, 2)), AvgPool((2, 2))), (3, 3, 1))
    with pytest.raises(TypeError, match=r"no Gibbs conditionals of layer 1 \(AvgPool\);"):
        stages.noisy_stages(network)


def test_logits_of_another_number_of_classes_are_refused():
    labels, key = jnp.array([0, 1, 1]), jax.random.key(0)
    with pytest.raises(ValueError, match="two classes or more, but has one; use sample_binary"):
        probit.sample_logits(key, jnp.zeros((1, 3)), jnp.zeros((1, 3)), labels, 1.0)
    with pytest.raises(ValueError, match=r"\(n,\) or \(1, n\), but they are \(2, 3\)"):
        probit.sample_binary_logit(key, jnp.zeros((2, 3)), labels, 1.0)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32])
def test_only_the_label_of_many_classes_is_raised(dtype):
    """Class 256 is not class 0, though eight bits cannot tell them apart."""
    logits = jnp.zeros((300, 1)).at[5].set(1.0)
    found = probit.satisfying_logits(logits, jnp.array([0], dtype))
    assert np.flatnonzero(found).tolist() == [0, 5]


@pytest.mark.short("sample_binary_logit")
@pytest.mark.parametrize("draw", [probit.sample_logits, probit.sample_binary_logit])
def test_logits_have_the_law_of_the_joint_density(draw, x64, monkeypatch):
    """The label's logit given the others', then the others given it: normals, cut off."""
    grid = (np.arange(GRID) + 0.5) / GRID
    monkeypatch.setattr(
        probit, "uniform_open", lambda key, shape, dtype: jnp.broadcast_to(jnp.asarray(grid), shape)
    )
    variance, label = 0.7, 1
    labels = jnp.full(GRID, label)
    if draw is probit.sample_binary_logit:
        means = np.array([-0.6])
        mean = jnp.full((1, GRID), means[0])
        found = draw(jax.random.key(0), mean, labels, variance)
        law = (found[0], means[0], 0.0)
    else:
        means, current = np.array([0.5, -0.4, 1.3]), np.array([0.2, 0.9, 0.8])
        found = draw(
            jax.random.key(0),
            jnp.asarray(np.repeat(means[:, None], GRID, 1)),
            jnp.asarray(np.repeat(current[:, None], GRID, 1)),
            labels,
            variance,
        )
        law = (found[1], means[1], 0.8)
        assert np.all(np.argmax(found, axis=0) == label)
        # The same uniform moved both: given z_1, the others' is again the one that was put in.
        for a in (0, 2):
            standard = stats.norm.cdf((np.asarray(found[a]) - means[a]) / np.sqrt(variance))
            below = stats.norm.cdf((np.asarray(found[1]) - means[a]) / np.sqrt(variance))
            ranks = standard / below
            straight = np.minimum(np.abs(ranks - grid), np.abs(ranks - (1 - grid)))
            np.testing.assert_allclose(straight, 0, atol=1e-9)
    values, mean, low = law
    scale = np.sqrt(variance)
    ranks = stats.truncnorm((low - mean) / scale, np.inf, mean, scale).cdf(values)
    np.testing.assert_allclose(np.sort(ranks), grid, atol=1e-9)


def minus_bias(self, j):
    """Erratum A3 as printed, in the draws alone: a convolution's outputs are W * X - b."""
    stage, params = self.stages[j], self.params
    if isinstance(stage.layer, Conv):
        wrong = params[stage.index] | {"b": -params[stage.index]["b"]}
        params = replaced(params, stage.index, wrong)
    return stage.mean(params, self._input(j))


def unscaled(sums):
    precision, linear = sums(None)
    return Whitened(jnp.eye(len(precision)), jnp.eye(len(precision)), linear)


LATENT_MUTANTS = {
    "minus the bias": (Sweep, "mean", minus_bias),
    "no projector in the pooled noise": (
        latents,
        "average",
        lambda layer, v: 0 * average(layer, v),
    ),
    "no scale in the gain": (latents, "whiten", unscaled),
}


@pytest.mark.long
@pytest.mark.parametrize("mutant", LATENT_MUTANTS)
def test_mutants_of_latents_are_found(mutant, x64, monkeypatch):
    monkeypatch.setattr(*LATENT_MUTANTS[mutant])
    with pytest.raises(AssertionError, match="latent"):
        assert_equal(jax.jit(lambda: latent_comparisons("conv"), compiler_options=QUICK)())


def test_the_wrong_sign_of_r_is_found(x64, monkeypatch):
    """The mean of a piece with r = a w + c - x for x - c - a w."""
    right = pre_activations._mode

    def wrong(piece, mean, post, pre_variance, post_variance):
        a, c = piece.slope, piece.intercept
        return right(piece, mean, 2 * (a * mean + c) - post, pre_variance, post_variance)

    monkeypatch.setattr(pre_activations, "_mode", wrong)
    with pytest.raises(AssertionError):
        test_pre_activations_have_the_law_of_the_joint_density("relu", None, monkeypatch)
