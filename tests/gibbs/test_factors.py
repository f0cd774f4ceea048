"""Tests of gibbs.factors: nearly collinear features, in
float32 against float64.

A draw is affine in its noise: its value for no noise is the conditional's mean, its derivative a
root of the covariance. Both are compared in the coordinates in which the exact conditional,
from a QR decomposition in float64, is standard normal.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbnn.gibbs import factors, gibbs_sampler, sample_inputs, sample_weights_and_bias
from jaxbnn.gibbs.factors import inverse_factor, whiten
from jaxbnn.gibbs.spectrum import residual_sums, sample_from_spectrum, spectrum_of
from jaxbnn.networks import Dense
from tests.gibbs.cases import MODELS, data
from tests.gibbs.test_conditionals import noise_given
from tests.kit.sizes import QUICK

N = 40
LAMBDA = 2.0
EPS = np.finfo(np.float32).eps


def affine_in_noise(draw, *arguments):
    """Return the draw without noise, and its derivative in the noise."""
    with noise_given(jnp.zeros(0)) as given:
        jax.eval_shape(draw, *arguments)

    def with_noise(noise, *arguments):
        with noise_given(noise):
            value = draw(*arguments).ravel()
        return value, value

    both = jax.jit(jax.jacfwd(with_noise, has_aux=True), compiler_options=QUICK)
    return lambda *arguments: both(jnp.zeros(given[0], jnp.float32), *arguments)[::-1]


def joint(params):
    return jnp.append(params["w"][:, 0], params["b"][0])


def from_sums(phi, z, w, d):
    params = {"w": w[:-1, None], "b": w[-1:]}
    key = jax.random.key(0)
    return joint(sample_weights_and_bias(key, Dense(1), params, phi, z, d, LAMBDA, LAMBDA))


def from_spectrum(phi, z, w, d):
    params, layer = {"w": w[:-1, None], "b": w[-1:]}, Dense(1)
    spectrum, sums = spectrum_of(layer, phi, 1.0), residual_sums(layer, params, phi, z)
    key = jax.random.key(0)
    return joint(sample_from_spectrum(key, spectrum, sums, params, d, LAMBDA, LAMBDA))


def exact(rows, targets, ridge):
    """Return mean, and K with covariance K K^T, of the law exp(-|rows v - targets|^2 / 2 ...)."""
    rows = np.concatenate([rows, np.diag(np.sqrt(ridge))])
    targets = np.concatenate([targets, np.zeros(len(ridge))])
    q, r = np.linalg.qr(rows)
    return np.linalg.solve(r, q.T @ targets), r


def distance(found, mean, r):
    """Return the error of the mean in standard deviations, and that of the whitened covariance."""
    value, jacobian = (np.asarray(part, np.float64) for part in found)
    root = r @ jacobian
    return np.abs(r @ (value - mean)).max(), np.abs(root @ root.T - np.eye(len(r))).max()


def allowed(unit):
    """Return the errors that float32 cannot avoid, `unit` that of rounding what is drawn.

    A root that is off by E gives a whitened covariance that is off by E + E^T + E E^T.
    """
    return 0.1 + 10 * unit, 0.01 + (1 + 5 * unit) ** 2 - 1


def features(kind, d, rng, is_data):
    """Return (3, N): one feature of its own kind beside two others."""
    phi = rng.normal(size=(3, N)) + 0.5
    if kind == "constant":
        phi[1] = 1.0
    elif kind == "repeated":
        phi[1] = -phi[0]
    elif kind == "zero":
        phi[1] = 0.0
    elif kind == "all constant":
        phi[:] = [[1.0], [-1.0], [1.0]]
    if not is_data:  # latents have noise of their own
        phi += np.sqrt(d) * rng.normal(size=phi.shape)
    return phi


@pytest.mark.parametrize("draw", [from_sums, from_spectrum])
def test_weights_of_collinear_features(draw, rng):
    """Means within a tenth of a standard deviation, covariances within a hundredth and rounding."""
    is_data = draw is from_spectrum
    run = None
    for d in (1e-2, 1e-5, 1e-7, 1e-8):
        for scale in (1e-3, 1.0, 1e3):
            for kind in ("own", "constant", "repeated", "zero", "all constant"):
                phi = np.float32(scale * features(kind, d, rng, is_data))
                w = np.float32([*rng.normal(size=3) / max(1, scale), 0.3])
                exactly = np.vstack([phi, np.ones(N)]).astype(np.float64)
                z = np.float32(w @ exactly + np.sqrt(d) * rng.normal(size=N))
                arguments = (phi, z[None], w, np.float32(d))
                run = run or affine_in_noise(draw, *arguments)
                d64 = np.float64(np.float32(d))
                law = exact(exactly.T / np.sqrt(d64), z / np.sqrt(d64), np.full(4, LAMBDA))
                errors = distance(run(*arguments), *law)
                unit = EPS * np.linalg.norm(phi, 2) / np.sqrt(LAMBDA * d)
                assert np.all(np.array(errors) < allowed(unit)), (d, scale, kind, errors)


def test_weights_of_more_features_than_the_data_tell_apart(rng):
    """Fewer data than features, and features that are one: most pivots are lost at first."""
    d, num_features = np.float32(1e-2), 100
    runs: dict = {}
    for num_data, num_constant in ((10, 0), (10, 60), (150, 95)):
        phi = rng.normal(size=(num_features, num_data))
        phi[:num_constant] = -0.4
        phi = np.float32(phi)
        w = np.float32(rng.normal(size=num_features + 1))
        exactly = np.vstack([phi, np.ones(num_data)]).astype(np.float64)
        z = np.float32(w @ exactly + np.sqrt(d) * rng.normal(size=num_data))
        arguments = (phi, z[None], w, d)
        law = exact(
            exactly.T / np.sqrt(float(d)),
            z / np.sqrt(float(d)),
            np.full(num_features + 1, LAMBDA),
        )
        if num_data not in runs:
            runs[num_data] = affine_in_noise(from_spectrum, *arguments)
        errors = distance(runs[num_data](*arguments), *law)
        unit = EPS * np.linalg.norm(phi, 2) / np.sqrt(LAMBDA * float(d))
        assert np.all(np.array(errors) < allowed(unit)), (num_data, num_constant, errors)


@pytest.mark.parametrize("shape", [(4, 2), (12, 2)], ids=["whole", "pairs"])
def test_latents_under_large_weights_and_unequal_noise(shape, rng):
    """Output noise far below the latent's: v is all but given along some directions."""
    run = None
    m, k = shape

    def draw(t, mean, z, d, d_out):
        params = {"w": t, "b": jnp.zeros(k)}
        return sample_inputs(jax.random.key(0), Dense(k), params, mean, z, d, d_out)

    for d, d_out in ((1e-4, 1e-4), (1.0, 1e-8), (1e-8, 1.0), (1e-2, 1e-7)):
        for kind in ("own", "repeated", "zero", "large"):
            t = rng.normal(size=shape)
            t[:, 1] = {"repeated": t[:, 0], "zero": 0.0}.get(kind, t[:, 1])
            t = np.float32(t * (30.0 if kind == "large" else 1.0))
            mean = np.float32(rng.normal(size=(m, 1)))
            z = t.astype(float).T @ (mean[:, 0] + np.sqrt(d) * rng.normal(size=m))
            z = np.float32(z + np.sqrt(d_out) * rng.normal(size=k))
            arguments = (t, mean, z[:, None], np.float32(d), np.float32(d_out))
            run = run or affine_in_noise(draw, *arguments)
            d64, d_out64 = (np.float64(v) for v in arguments[3:])
            away = (z - t.astype(float).T @ mean[:, 0]) / np.sqrt(d_out64)
            law = exact(t.T / np.sqrt(d_out64), away, np.full(m, 1 / d64))
            value, jacobian = run(*arguments)
            errors = distance((np.asarray(value, float) - mean[:, 0], jacobian), *law)
            unit = EPS * np.linalg.norm(t, 2) * np.sqrt(d / d_out)
            assert np.all(np.array(errors) < allowed(unit)), (d, d_out, kind, errors)


def test_without_further_passes_collinear_features_are_found(rng, monkeypatch):
    """Mutant: the precision as float32 rounds it is all that is looked at."""
    monkeypatch.setattr(factors, "_MOST_PASSES", 1)
    with pytest.raises(AssertionError):
        test_weights_of_collinear_features(from_sums, rng)


@pytest.mark.long
def test_halves_are_the_whole(rng, x64):
    """Both kinds of factor of a matrix larger than a leaf, and the floor under its pivots."""
    phi = rng.normal(size=(70, 50))
    ridge = np.full(70, 1e-14)  # rank 50 but for this

    def sums(root):
        root = jnp.eye(70) if root is None else root
        return (root @ phi) @ (root @ phi).T + root @ np.diag(ridge) @ root.T, root @ phi

    whitened = jax.jit(lambda: whiten(sums), compiler_options=QUICK)()
    wanted = exact(phi.T, np.zeros(50), ridge)[1]
    np.testing.assert_allclose(
        np.abs(wanted @ whitened.root.T @ whitened.root @ wanted.T), np.eye(70), atol=1e-6
    )
    matrix = jnp.eye(70) + phi @ phi.T
    root = inverse_factor(matrix)
    np.testing.assert_allclose(root @ matrix @ root.T, np.eye(70), atol=1e-10)


@pytest.mark.long
def test_what_cannot_be_drawn_keeps_its_value_and_says_so():
    """An infinite target is no conditional; the rest of the sweep goes on."""
    model, x = MODELS["regression"], data("regression", 4, np.float32)
    keys = jax.random.split(jax.random.key(0), 4)
    position, y = model.simulate(keys[0], model.sample_prior(keys[1]), x)
    step = jax.jit(
        lambda key, y: gibbs_sampler(model, x, y).step(
            key, gibbs_sampler(model, x, y).init(position)
        ),
        compiler_options=QUICK,
    )
    new, info = step(keys[2], y)
    assert not bool(info.is_divergent)
    new, info = step(keys[3], y.at[0, 0].set(jnp.inf))
    assert bool(info.is_divergent)
    for after in jax.tree.leaves(new.position):
        assert np.all(np.isfinite(after))
    np.testing.assert_array_equal(new.position.params[2]["w"], position.params[2]["w"])
    assert np.any(new.position.params[0]["w"] != position.params[0]["w"])
