"""Propagated moments against draws of weights and against equation (3) written out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr

from jaxbnn import Activation, Conv, Dense, Network, Residual, mlp
from jaxbnn.dvi import FactorisedNormal, LayerwiseNormal, propagate
from jaxbnn.networks import parameter_shapes
from tests.dvi.brute_force import compare_moments, output_draws
from tests.dvi.quadrature import density
from tests.kit.sizes import QUICK

X = np.array([[0.5, -1.0, 0.3], [-0.4, 0.2, 1.1]])
SHORT, LONG = 100_000, pytest.param(1_000_000, marks=pytest.mark.long)


def position(network, correlated=False, dtype=np.float64):
    """Return q of means and variances 2 / fan_in and 0.5 / fan_in, made without compiling."""
    generator = np.random.default_rng(0)

    def draw(leaf, spread):
        return (np.sqrt(spread / max(leaf.shape)) * generator.normal(size=leaf.shape)).astype(dtype)

    shapes = parameter_shapes(network)
    mean = jax.tree.map(lambda leaf: draw(leaf, 2.0), shapes)
    if not correlated:
        return FactorisedNormal(mean, jax.tree.map(lambda leaf: draw(leaf, 0.3) - 1, shapes))

    def factor(layer):
        if isinstance(layer, dict):
            size = sum(leaf.size for leaf in layer.values())
            # Correlations of all sizes, below the diagonal.
            noise = np.tril(generator.normal(size=(size, size)) / 8, -1)
            return (noise - np.eye(size)).astype(dtype)
        return tuple(factor(inner) for inner in layer)

    return LayerwiseNormal(mean, factor(mean))


def moments(network, q, **options):
    run = jax.jit(
        lambda q: propagate(network, q, jnp.asarray(X), **options), compiler_options=QUICK
    )
    return run(q)


@pytest.mark.parametrize("correlated", [False, True], ids=["factorised", "layerwise"])
@pytest.mark.parametrize("count", [SHORT, LONG])
def test_one_hidden_layer_is_exact(correlated, count, x64):
    network = mlp((3, 6, 2))
    q = position(network, correlated=correlated)
    found = moments(network, q, num_nodes=32)
    spread = q.factor if correlated else q.log_scale
    draws = output_draws(0, ("dense", "relu", "dense"), q.mean, spread, X, count)
    compare_moments(draws, np.asarray(found.mean), np.asarray(found.covariance))


@pytest.mark.long
@pytest.mark.parametrize("count", [40_000, LONG])
def test_two_hidden_layers_are_nearly_gaussian(count, x64):
    network = mlp((3, 40, 40, 2))
    q = position(network)
    found = moments(network, q)
    layers = ("dense", "relu", "dense", "relu", "dense")
    parts = [output_draws(s, layers, q.mean, q.log_scale, X, 2000) for s in range(count // 2000)]
    compare_moments(
        np.concatenate(parts), np.asarray(found.mean), np.asarray(found.covariance), slack=0.02
    )


@pytest.mark.short("relu")
@pytest.mark.parametrize("name", ["relu", "heaviside"])
def test_skip_connections(name, x64):
    network = Network((Dense(3), Residual((Activation(name), Dense(3)))), (3,))
    q = position(network, correlated=True)
    found = moments(network, q, num_nodes=48)
    draws = output_draws(1, ("dense", (name, "dense")), q.mean, q.factor, X, 200_000)
    compare_moments(draws, np.asarray(found.mean), np.asarray(found.covariance))
    if name == "heaviside":
        # Erratum C6: the printed 1 / Sigma_jj in place of 1 / sqrt(Sigma_jj) is found.
        first = moments(Network((Dense(3),), (3,)), LayerwiseNormal(q.mean[:1], q.factor[:1]))
        scale = np.sqrt(np.asarray(first.variance))
        phi = density(np.asarray(first.mean) / scale)
        w = np.asarray(q.mean[1][1]["w"])
        right = np.asarray(first.covariance) @ ((phi / scale)[..., None] * w)
        wrong = np.asarray(first.covariance) @ ((phi / scale**2)[..., None] * w)
        change = wrong - right
        mutant = np.asarray(found.covariance) + change + np.swapaxes(change, 1, 2)
        with pytest.raises(AssertionError):
            compare_moments(draws, np.asarray(found.mean), mutant)


def test_nested_skips_of_linear_layers_are_exact(x64):
    inner = (Dense(3), Residual((Dense(3),)))
    network = Network((Dense(3), Residual(inner), Residual((Activation("identity"),))), (3,))
    layers = ("dense", ("dense", ("dense",)), ("identity",))
    q = position(network)
    found = moments(network, q)
    draws = output_draws(2, layers, q.mean, q.log_scale, X, 200_000)
    compare_moments(draws, np.asarray(found.mean), np.asarray(found.covariance))


def test_equation_3_written_out(x64):
    """Three layers against sums over all index pairs, with Cov(W) as a (d, k, d, k) array."""
    network = mlp((3, 5, 4, 2), "heaviside")
    q = position(network, correlated=True)
    found = moments(network, q, num_nodes=48)
    second = X[:, :, None] * X[:, None]
    mean, covariance = X, np.zeros((2, 3, 3))
    for index, layer in enumerate(q.mean[::2]):
        w, b = np.asarray(layer["w"]), np.asarray(layer["b"])
        factor = np.asarray(q.factor[2 * index])
        triangle = np.tril(factor, -1) + np.diag(np.exp(np.diag(factor)))
        joint = (triangle @ triangle.T).reshape(len(w) + 1, w.shape[1], len(w) + 1, w.shape[1])
        weights, cross, biases = joint[:-1, :, :-1], joint[:-1, :, -1], joint[-1, :, -1]
        covariance = (
            np.einsum("njl,jilk->nik", second, weights)
            + np.einsum("ji,njl,lk->nik", w, covariance, w)
            + np.einsum("nj,jik->nik", mean, cross)
            + np.einsum("nj,jki->nik", mean, cross)
            + biases
        )
        mean = mean @ w + b
        if index == 2:
            break
        scale = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
        mu, h = mean / scale, ndtr(mean / scale)
        after = np.zeros_like(covariance)
        for n in range(2):
            for i in range(len(h[n])):
                for j in range(i):
                    rho = covariance[n, i, j] / scale[n, i] / scale[n, j]
                    after[n, i, j] = after[n, j, i] = step_covariance(mu[n, i], mu[n, j], rho)
            after[n] += np.diag(h[n] * (1 - h[n]))
        mean, covariance = h, after
        second = covariance + mean[:, :, None] * mean[:, None]
    np.testing.assert_allclose(found.mean, mean, rtol=1e-10)
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-7, atol=1e-9)
    single = jax.tree.map(lambda leaf: leaf.astype(np.float32), q)
    run = jax.jit(lambda q, x: propagate(network, q, x, num_nodes=48), compiler_options=QUICK)
    found = run(single, X.astype(np.float32))
    assert found.covariance.dtype == np.float32
    np.testing.assert_allclose(found.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-4, atol=1e-6)


def step_covariance(mu1, mu2, rho):
    from scipy.stats import multivariate_normal

    joint = multivariate_normal([0, 0], [[1, rho], [rho, 1]]).cdf([mu1, mu2])
    return joint - ndtr(mu1) * ndtr(mu2)


def test_diagonal_is_the_diagonal_with_one_hidden_layer(x64):
    network = mlp((3, 6, 2))
    q = position(network)
    full, diagonal = moments(network, q), moments(network, q, covariance="diagonal")
    assert diagonal.covariance is None
    np.testing.assert_allclose(diagonal.mean, full.mean)
    np.testing.assert_allclose(diagonal.variance, full.variance)
    np.testing.assert_allclose(
        np.diagonal(full.covariance, axis1=1, axis2=2), full.variance, rtol=1e-12
    )


def test_one_hidden_layer_makes_no_pair_covariances():
    network = mlp((3, 300, 2))
    q = position(network, dtype=np.float32)
    text = str(jax.make_jaxpr(lambda q: propagate(network, q, jnp.asarray(X, jnp.float32)))(q))
    assert "2,300]" in text
    assert "300,300" not in text
    deep = mlp((3, 30, 30, 2))
    q = position(deep, dtype=np.float32)
    text = str(jax.make_jaxpr(lambda q: propagate(deep, q, jnp.asarray(X, jnp.float32)))(q))
    assert "f32[2,30,30]" in text
    assert "30,30,30" not in text
    assert "900" not in text


def test_ntk_is_standard_with_scaled_weights(x64):
    standard = mlp((3, 4, 2))
    ntk = mlp((3, 4, 2), parametrisation="ntk", weight_scale=1.3, bias_scale=0.4)
    for correlated in (False, True):
        q = position(ntk, correlated=correlated)
        scales = [{"w": 1.3 / np.sqrt(d), "b": 0.4} for d in (3, 4)]
        mean, spread = list(q.mean), list(q[1])
        for i, s in zip((0, 2), scales, strict=True):
            mean[i] = {name: s[name] * value for name, value in q.mean[i].items()}
            if correlated:
                rows = np.repeat([s["w"], s["b"]], [q.mean[i]["w"].size, q.mean[i]["b"].size])
                below = np.tril(np.asarray(q[1][i]), -1) * rows[:, None]
                spread[i] = jnp.asarray(below + np.diag(np.diag(q[1][i]) + np.log(rows)))
            else:
                spread[i] = {n: value + np.log(s[n]) for n, value in q[1][i].items()}
        same = type(q)(tuple(mean), tuple(spread))
        found, expected = moments(ntk, q), moments(standard, same)
        np.testing.assert_allclose(found.covariance, expected.covariance, rtol=1e-10)
        np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-10)


@pytest.mark.parametrize("name", ["sign", "heaviside"])
def test_steps_of_zero_inputs_are_not_random(name):
    """Without biases: every draw of the weights has the output 0 there."""
    network = mlp((1, 3, 1), name, bias=False)
    q = position(network, dtype=np.float32)

    def total(q, x):
        found = propagate(network, q, x)
        return jnp.sum(found.mean) + jnp.sum(found.covariance), found

    run = jax.jit(jax.grad(total, has_aux=True), compiler_options=QUICK)
    slopes, found = run(q, jnp.array([[0.0], [0.5]]))
    assert [float(v[0, 0]) for v in (found.mean, found.variance)] == [0, 0]
    assert float(found.covariance[0, 0, 0]) == 0
    assert float(found.variance[1, 0]) > 0.1
    assert all(np.isfinite(slope).all() for slope in jax.tree.leaves(slopes))


def test_what_cannot_be_propagated():
    network = Network((Conv(2, (2, 2)),), (4, 4, 1))
    q = position(network, dtype=np.float32)
    with pytest.raises(ValueError, match=r"no Gaussian moments of Conv.*mcvi"):
        propagate(network, q, jnp.ones((2, 4, 4, 1)))
    network = Network((Dense(2, bias=False),), (4, 3))  # its product broadcasts
    q = jax.tree.map(jnp.asarray, position(network, dtype=np.float32))
    with pytest.raises(ValueError, match=r"no Gaussian moments of Dense.*of this shape.*mcvi"):
        propagate(network, q, jnp.ones((5, 4, 3)))
    network = mlp((3, 4, 2), "tanh")
    with pytest.raises(ValueError, match="x must have shape"):
        propagate(network, position(network, dtype=np.float32), jnp.ones((2, 5)))
    with pytest.raises(ValueError, match="x holds nan"):
        propagate(network, position(network, dtype=np.float32), jnp.full((2, 3), jnp.nan))
    with pytest.raises(ValueError, match="x, as float32, holds inf"):
        propagate(network, position(network, dtype=np.float32), np.full((2, 3), 1e39))


@pytest.mark.parametrize(
    ("layers", "is_correlated"),
    [((Dense(3),), True), ((Dense(3), Residual((Activation("relu"),))), False)],
    ids=["correlated weights", "skip"],
)
def test_the_diagonal_alone_is_that_of_the_whole(layers, is_correlated, x64):
    """Of units that are independent before the last layer, so that nothing is left out."""
    network = Network(layers, (3,))
    q = position(network, is_correlated)
    found = moments(network, q, covariance="diagonal")
    np.testing.assert_allclose(found.variance, moments(network, q).variance, rtol=1e-12)


def test_units_have_the_covariance_that_they_have_in_a_narrower_layer(x64):
    """Wide layers are computed another way."""
    q = position(mlp((3, 6, 9)))
    mean, scale = (
        (*tree[:2], jax.tree.map(lambda leaf: leaf[..., :2], tree[2]))
        for tree in (q.mean, q.log_scale)
    )
    part = moments(mlp((3, 6, 2)), FactorisedNormal(mean, scale))
    found = moments(mlp((3, 6, 9)), q).covariance[:, :2, :2]
    np.testing.assert_allclose(found, part.covariance, rtol=1e-10)
