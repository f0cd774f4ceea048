"""Tests of wide.validation: the coordinates phi of whole networks: identities, gradients, data
sets, bad input.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbnn import wide
from jaxbnn.networks import (
    Activation,
    Conv,
    Dense,
    Flatten,
    Network,
    features,
    mlp,
    parameter_shapes,
)
from jaxbnn.wide import validation
from jaxbnn.wide.design import design_matrix
from jaxbnn.wide.validation import (
    as_computed,
    check_noise_scale,
    check_precision,
    check_rounding,
    rounding_error,
)
from tests.kit.sizes import QUICK
from tests.wide.linear_algebra import (
    log_joint,
    log_marginal,
    posterior_of_read_out,
    standard_normal,
)

NOISE_SCALE = 0.4
N = 5


def two_hidden_layers(width):
    layers = (
        Dense(3, weight_scale=1.4, bias_scale=0.1),
        Activation("gelu"),
        Dense(width, weight_scale=1.4, bias_scale=0.1),
        Activation("tanh"),
        Dense(2, weight_scale=1.3, bias_scale=0.7),
    )
    return Network(layers, (2,), "ntk")


NETWORKS = {
    "wide": two_hidden_layers(8),
    "narrow": two_hidden_layers(2),
    "no bias": mlp((2, 6, 1), "tanh", bias=False, parametrisation="ntk", weight_scale=1.5),
    "linear": mlp((2, 3), parametrisation="ntk"),
    "images": Network((Conv(2, (2, 2)), Activation("relu"), Flatten(), Dense(1)), (3, 3, 1), "ntk"),
}


def problem(name, rng, dtype=np.float64):
    network = NETWORKS[name]
    x = rng.standard_normal((N, *network.input_shape)).astype(dtype)
    y = rng.standard_normal((N, network.layers[-1].features)).astype(dtype)
    return network, x, y, normal_parameters(network, rng, dtype)


def normal_parameters(network, rng, dtype):
    return jax.tree.map(
        lambda leaf: jnp.asarray(rng.standard_normal(leaf.shape), dtype), parameter_shapes(network)
    )


quick_features = jax.jit(features, static_argnums=0, compiler_options=QUICK)


def numpy_design(network, params, x):
    """Return Psi, scaled and with its column of biases, from the features."""
    g = np.asarray(quick_features(network, params, x))
    last = network.layers[-1]
    psi = last.weight_scale / np.sqrt(g.shape[1]) * g
    return np.c_[psi, np.full(len(g), last.bias_scale)] if last.bias else psi


def stacked(read_out):
    rows = [np.asarray(read_out[name]) for name in ("w", "b") if name in read_out]
    return np.concatenate([row.reshape(-1, rows[0].shape[1]) for row in rows])


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("name", "form"), [*((name, None) for name in NETWORKS), ("wide", "features")]
)
def test_identities(name, form, rng):
    network, x, y, phi = problem(name, rng)
    posterior = wide.reparametrise(network, x, y, NOISE_SCALE, form=form)
    new_x = rng.standard_normal((3, *network.input_shape))

    @partial(jax.jit, compiler_options=QUICK)
    def everything(posterior, phi):
        theta = posterior.to_weights(phi)
        back = posterior.from_weights(theta)
        predictions = posterior.predict(phi, new_x), network.apply(theta, new_x)
        return theta, back, predictions, posterior.log_likelihood(phi), posterior.log_density(phi)

    theta, back, predictions, likelihood, density = everything(posterior, phi)
    for inner, same in zip(jax.tree.leaves(phi[:-1]), jax.tree.leaves(theta[:-1]), strict=True):
        np.testing.assert_array_equal(inner, same)
    for leaf, same in zip(jax.tree.leaves(phi), jax.tree.leaves(back), strict=True):
        np.testing.assert_allclose(same, leaf, atol=1e-11)
    np.testing.assert_allclose(*predictions, atol=1e-12)

    psi = numpy_design(network, phi, x)
    total = np.asarray(likelihood).sum()
    assert total == pytest.approx(log_marginal(psi, y, NOISE_SCALE), abs=1e-10)
    volume = y.shape[1] * np.linalg.slogdet(posterior_of_read_out(psi, y, NOISE_SCALE)[0])[1] / 2
    left = log_joint(stacked(theta[-1]), psi, y, NOISE_SCALE) + volume
    assert abs(left - standard_normal(stacked(phi[-1])) - total) < 1e-9
    squares = sum(np.sum(np.square(leaf)) for leaf in jax.tree.leaves(phi))
    assert float(density) == pytest.approx(total - squares / 2, abs=1e-10)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("form", ["data", "features"])
def test_gradients_are_finite_differences(form, rng):
    network, x, y, phi = problem("wide", rng)
    away = normal_parameters(network, rng, np.float64)
    log_sigma, step = np.log(0.4), 1e-5

    def along(distance, log_sigma):
        """Return l - |phi|^2 / 2 and a sum of weights, on a line through phi."""
        moved = jax.tree.map(lambda leaf, a: leaf + distance * a, phi, away)
        posterior = wide.reparametrise(network, x, y, jnp.exp(log_sigma), form=form)
        theta = posterior.to_weights(moved)[-1]
        return posterior.log_density(moved), jnp.sum(jnp.cos(theta["w"]))

    @partial(jax.jit, compiler_options=QUICK)
    def gradients(log_sigma):
        zero = jnp.zeros(())
        rows = [
            jax.grad(lambda *at, i=i: along(*at)[i], argnums=(0, 1))(zero, log_sigma)
            for i in range(2)
        ]
        posterior = wide.reparametrise(network, x, y, jnp.exp(log_sigma), form=form)
        of_phi = jax.grad(lambda phi: posterior.log_likelihood(phi).sum())(phi)
        return jnp.asarray(rows), of_phi[-1]

    value = jax.jit(lambda *at: jnp.stack(along(*at)), compiler_options=QUICK)
    found, of_read_out = gradients(log_sigma)
    for column, up, down in (
        (0, (step, log_sigma), (-step, log_sigma)),
        (1, (0.0, log_sigma + step), (0.0, log_sigma - step)),
    ):
        numeric = (np.asarray(value(*up)) - np.asarray(value(*down))) / (2 * step)
        np.testing.assert_allclose(np.asarray(found)[:, column], numeric, rtol=1e-6, atol=1e-6)
    assert not np.any(of_read_out["w"])  # l does not depend on phi's read-out
    assert not np.any(of_read_out["b"])


def test_differences_of_densities_keep_their_digits_in_float32(rng):
    network = mlp((600, 500, 1), "relu", parametrisation="ntk")
    x, y = rng.standard_normal((3, 600)).astype("f4"), rng.standard_normal(3).astype("f4")
    phi = normal_parameters(network, rng, "f4")

    @partial(jax.jit, compiler_options=QUICK)
    def differences(x, y, phi):
        posterior = wide.reparametrise(network, x, y, NOISE_SCALE)
        moved = jax.tree.map(lambda leaf: leaf + leaf / 1024, phi)
        terms = posterior.log_density_terms(moved) - posterior.log_density_terms(phi)
        return jnp.stack([jnp.sum(terms), posterior.log_density_from(phi)(moved)])

    found = differences(x, y, phi)
    with jax.enable_x64(True):
        exact = differences(*jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), (x, y, phi)))
    np.testing.assert_allclose(found, exact, atol=0.005)
    assert float(exact[1]) < -100


def test_data_sets_and_noise_scales_may_be_traced(rng):
    network, x, y, phi = problem("wide", rng, np.float32)
    several = np.stack([y, 2 * y]).astype("f4")
    scales = np.array([0.3, 0.6], "f4")

    def total(y, noise_scale):
        return wide.reparametrise(network, x, y, noise_scale).log_likelihood(phi).sum()

    found = jax.jit(jax.vmap(total), compiler_options=QUICK)(several, scales)
    psi = numpy_design(network, phi, x)
    exact = [log_marginal(psi, y, s) for y, s in zip(several, scales, strict=True)]
    np.testing.assert_allclose(found, exact, rtol=1e-4)


def test_one_output_may_come_without_its_axis(rng):
    network, x, y, _ = problem("no bias", rng, np.float32)
    posterior = wide.reparametrise(network, x, y[:, 0], NOISE_SCALE)
    np.testing.assert_array_equal(posterior.y, y)


def test_the_form_follows_the_shapes(rng):
    forms = {}
    for name, network in NETWORKS.items():
        x, y = np.ones((N, *network.input_shape), "f4"), np.ones((N, network.layers[-1].features))
        forms[name] = wide.reparametrise(network, x, y, NOISE_SCALE).form
    features_form = {"narrow", "linear"}
    assert {name for name, form in forms.items() if form == "features"} == features_form


GOOD = mlp((2, 4, 1), parametrisation="ntk")
X, Y = np.ones((3, 2), "f4"), np.ones(3, "f4")
NAN = np.array([1.0, np.nan, 0.0], "f4")
ENDS_IN_RELU = Network((Dense(1), Activation("relu")), (2,), "ntk")
NOT_FLAT = Network((Conv(2, (2, 2)), Dense(1)), (3, 3, 1), "ntk")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((ENDS_IN_RELU, X, Y, 0.1), "linear read-out, but the network ends in Activation; let a"),
        ((mlp((2, 4, 1)), X, Y, 0.1), "standard parametrisation; give it parametrisation='ntk'"),
        ((NOT_FLAT, np.ones((3, 3, 3, 1), "f4"), Y, 0.1), r"have shape \(2, 2, 2\); put a Flatten"),
        ((GOOD, X, Y, 0.0), "noise_scale must be positive and finite, but is 0; give the standard"),
        ((GOOD, X, Y, -0.1), "noise_scale must be positive and finite, but is -0.1"),
        ((GOOD, X, Y, np.ones(2)), r"one number for all outputs, but has shape \(2,\)"),
        ((GOOD, X, np.ones((3, 2)), 0.1), r"y must have shape \(3, 1\).*but has \(3, 2\)"),
        ((GOOD, X, np.ones(4), 0.1), r"y must have shape \(3, 1\).*but has \(4,\)"),
        ((GOOD, X[:, :1], Y, 0.1), r"x must have shape \(n, 2\), but has \(3, 1\)"),
        ((GOOD, X[:0], Y[:0], 0.1), "at least one"),
        ((GOOD, X, NAN, 0.1), r"y holds nan at index \(1,\)"),
        ((GOOD, NAN[:, None] * X, Y, 0.1), r"x holds nan at index \(1, 0\)"),
    ],
)
@pytest.mark.parametrize("make", [wide.reparametrise, wide.marginal_conditional])
def test_bad_input(make, arguments, message):
    with pytest.raises(ValueError, match=message):
        make(*arguments)


def test_other_likelihoods_and_integers_are_refused():
    with pytest.raises(TypeError, match="but is dict; the reparametrisation exists for Gaussian"):
        check_noise_scale({"temperature": 1.0})
    with pytest.raises(TypeError, match="x must be floating point"):
        wide.reparametrise(GOOD, np.ones((3, 2), int), Y, 0.1)


# Data whose feature matrices are singular, or nearly so.
ALIKE = {
    "repeated rows": lambda x: np.repeat(x[:10], 2, axis=0),
    "one row": lambda x: np.repeat(x[:1], 20, axis=0),
    "constant features": lambda x: np.concatenate([x[:, :1], np.ones_like(x[:, 1:])], axis=1),
    "rows apart": lambda x: x,
}


@pytest.mark.short(
    "repeated rows-data-float32",
    "one row-features-float32",
    "constant features-features-float32",
    "rows apart-data-float64",
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("form", ["data", "features"])
@pytest.mark.parametrize("kind", ALIKE)
def test_a_noise_that_rounding_swallows_is_refused_and_any_other_is_right(kind, form, dtype, rng):
    """l(W) and the read-out's mean against the singular values of Psi in float64."""
    network = mlp((3, 30, 1), "tanh", parametrisation="ntk")
    refused = []
    with jax.enable_x64(dtype == np.float64):
        x = ALIKE[kind](rng.standard_normal((20, 3))).astype(dtype)
        theta = normal_parameters(network, rng, dtype)
        noise = rng.standard_normal((20, 1))
        for variance in (1e-4, 1e-6, 1e-8, 1e-10, 1e-12):
            scale = float(np.sqrt(variance))
            outputs = np.asarray(features(network, theta, x), float)
            psi = np.concatenate([outputs / np.sqrt(30), np.ones((20, 1))], axis=1)
            y = psi[:, :1] + scale * noise  # nearly, of a read-out that exists
            if _is_refused(network, x, scale, form):
                refused.append(variance)
                continue
            if _is_too_coarse(network, x, y.astype(dtype), scale, form):
                assert dtype == np.float32
                continue
            posterior = wide.reparametrise(network, x, y.astype(dtype), scale, form=form)
            found = float(np.sum(np.asarray(posterior.log_likelihood(theta), float)))
            exact = _log_marginal_by_singular_values(psi, y.astype(dtype).astype(float), scale)
            assert abs(found - exact) < (1.0 if dtype == np.float32 else 0.01)
    assert not (dtype == np.float64 and refused)
    assert not (kind == "repeated rows" and dtype == np.float32) or refused == [1e-8, 1e-10, 1e-12]


@pytest.mark.parametrize("y", ["zero", "small"])
@pytest.mark.parametrize(("hidden", "weight_scale"), [((256,) * 3, 5.0), ((256,) * 2, 10.0)])
def test_large_weights_count_in_what_rounding_spoils(hidden, weight_scale, y):
    """Features of the order of 100 make the log likelihood NaN: seen at y = 0 and small ones too.

    The sizes of the inputs alone do not show it, nor do such targets.
    """
    network = mlp((2, *hidden, 1), "relu", parametrisation="ntk", weight_scale=weight_scale)
    x = np.random.default_rng(0).uniform(-1, 1, (200, 2)).astype(np.float32)
    targets = np.zeros(200, np.float32) if y == "zero" else 0.01 * np.sin(3 * x[:, 0])
    with pytest.raises(ValueError, match=r"noise_scale 0\.1 is too small for float32"):
        wide.reparametrise(network, x, targets, 0.1)


def _is_refused(network, x, scale, form):
    try:
        check_rounding(network, form, x, scale)
    except ValueError:
        with pytest.raises(ValueError, match="is too small for float"):
            wide.reparametrise(network, x, np.zeros((20, 1), x.dtype), scale, form=form)
        return True
    return False


def _is_too_coarse(network, x, y, scale, form):
    try:
        check_precision(network, form, x, y, scale)
    except ValueError:
        return True
    return False


def _log_marginal_by_singular_values(psi, y, noise_scale):
    u, values, _ = np.linalg.svd(psi)
    spread = np.zeros(len(y))
    spread[: len(values)] = values**2
    spread += noise_scale**2
    along = (u.T @ y)[:, 0]
    return -0.5 * (np.sum(along**2 / spread) + np.sum(np.log(2 * np.pi * spread)))


def test_a_noise_that_rounding_swallows_is_refused_while_something_is_traced():
    network = mlp((1, 8, 1), "tanh", parametrisation="ntk")
    x, y = jnp.ones((3, 1)), jnp.zeros((3, 1))
    likelihood = jax.jit(lambda phi: wide.reparametrise(network, x, y, 1e-5).log_likelihood(phi))
    with pytest.raises(ValueError, match="is too small for float32"):
        likelihood(normal_parameters(network, np.random.default_rng(0), np.float32))


def coarse_problem(n, noise_scale, offset):
    """Return a network of 64 units and data that it could have made but for the offset."""
    rng = np.random.default_rng(1)
    network = mlp((3, 64, 1), "tanh", parametrisation="ntk")
    x = rng.standard_normal((n, 3)).astype("f4")
    theta = normal_parameters(network, rng, np.float32)
    psi = numpy_design(network, theta, x).astype(float)
    noise = noise_scale * rng.standard_normal((n, 1))
    y = psi @ stacked(theta[-1]) + noise + offset
    return network, theta, x, y.astype("f4")


# Rows of data, fewer than units or more: the "data" form and the "features" form.
ROWS = {"data": 50, "features": 300}
COARSE = [
    ("features", 0.01, 30.0),
    ("features", 0.003, 30.0),
    ("features", 0.1, 3e4),
    ("data", 0.01, 1e4),
]
FINE = [
    ("features", 0.1, 0.0),
    ("features", 0.1, 30.0),
    ("features", 0.01, 0.0),
    ("data", 0.1, 1000.0),
    ("data", 0.01, 0.0),
]


@pytest.mark.parametrize(("form", "noise_scale", "offset"), COARSE)
def test_targets_that_float32_is_too_coarse_for_are_refused(form, noise_scale, offset):
    network, phi, x, y = coarse_problem(ROWS[form], noise_scale, offset)
    message = f"float32 is too coarse for these targets and noise_scale {noise_scale}.*subtract"
    for make in (wide.reparametrise, wide.marginal_conditional):
        with pytest.raises(ValueError, match=message):
            make(network, x, y, noise_scale)
    # Traced, they are not looked at.
    jax.eval_shape(lambda y: wide.reparametrise(network, x, y, noise_scale).log_density(phi), y)
    with jax.enable_x64(True):
        x, y = x.astype(float), y.astype(float)
        assert wide.reparametrise(network, x, y, noise_scale).form == form


def test_targets_that_are_known_while_something_is_traced_are_looked_at():
    network, phi, x, y = coarse_problem(300, 0.01, 30.0)
    x, y = jnp.asarray(x), jnp.asarray(y)
    with pytest.raises(ValueError, match="is too coarse"):
        jax.jit(lambda phi: wide.reparametrise(network, x, y, 0.01).log_density(phi))(phi)


@pytest.mark.parametrize(("form", "noise_scale", "offset"), FINE)
def test_targets_that_float32_is_fine_enough_for_are_accepted(form, noise_scale, offset):
    network, _, x, y = coarse_problem(ROWS[form], noise_scale, offset)
    assert wide.reparametrise(network, x, y, noise_scale).form == form


@pytest.mark.parametrize(
    ("spread", "shift", "is_refused"),
    [(0.9, 0.9, False), (1.1, 0.9, True), (0.9, 1.1, True), (np.nan, 0.9, True)],
)
def test_a_spread_of_045_nats_and_a_shift_of_02_deviations_are_allowed(
    spread, shift, is_refused, monkeypatch
):
    """Parts of them; a constant error does no harm, and of the shifts the mean square counts."""
    signs = np.array([1, -1, 1, -1]) * np.sqrt(3 / 4)
    errors, shifts = 50 + 0.45 * spread * signs, 0.2 * shift * np.array([0, 0, 2, 0])
    found = zip(errors, shifts, strict=True)
    monkeypatch.setattr(validation, "rounding_error", lambda *arguments: next(found))
    network, _, x, y = coarse_problem(50, 0.01, 0.0)
    assert _is_too_coarse(network, x, y, 0.01, "data") == is_refused
    assert next(found, None) is None


def test_less_offset_and_more_noise_help_where_it_is_said():
    network, _, x, y = coarse_problem(300, 0.01, 30.0)
    wide.reparametrise(network, x, y - y.mean(), 0.01)
    wide.reparametrise(network, x, y, 0.1)


@pytest.mark.short("features-0.01-30.0", "features-0.1-30.0", "data-0.01-10000.0", "data-0.01-0.0")
@pytest.mark.parametrize(("form", "noise_scale", "offset"), [*COARSE, *FINE])
def test_the_error_of_rounding_is_the_difference_to_float64(form, noise_scale, offset):
    """Of the log marginal likelihood and of the read-out's mean, by the SVD in float64."""
    network, theta, x, y = coarse_problem(ROWS[form], noise_scale, offset)
    psi, sigma = design_matrix(network, theta, jnp.asarray(x)), jnp.float32(noise_scale)
    error, shift = rounding_error(psi, y, sigma, form)

    terms, _, mean, _ = as_computed(psi, y, sigma, form)
    found = np.sum(np.asarray(terms, float))
    psi, y, sigma, mean = (np.asarray(values, float) for values in (psi, y, sigma, mean))
    exact = _log_marginal_by_singular_values(psi, y, sigma)
    u, values, vt = np.linalg.svd(psi, full_matrices=False)
    away = mean - vt.T @ ((values / (values**2 + sigma**2))[:, None] * (u.T @ y))
    whitened = np.sum(np.square(psi @ away / sigma)) + np.sum(np.square(away))
    # That of the log determinant is in `found` alone. Where no digit is right, neither is this.
    assert error == pytest.approx(found - exact, rel=0.5, abs=0.05)
    assert shift == pytest.approx(np.sqrt(whitened / min(psi.shape)), rel=0.5, abs=1e-4)
