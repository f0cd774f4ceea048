"""Tests of experiments.studies.function_space and experiments.benchmarks.function_space: the
function-space study: the limit's kernel, its numbers, and one run from config to files.
"""

import json
import math
from pathlib import Path

import jax
import numpy as np
import pytest
from pydantic import ValidationError
from scipy.integrate import quad
from scipy.special import erf, ndtr
from scipy.stats import norm

from experiments.__main__ import main
from experiments.benchmarks.function_space import programs
from experiments.studies.function_space import grid, nngp
from experiments.studies.function_space.cells import GridSettings
from experiments.studies.function_space.nngp_limit import compare, conditional_outputs
from experiments.studies.function_space.problem import Problem, wide_network
from experiments.studies.function_space.summaries import (
    Estimate,
    acceptance_of,
    ess_of,
    infinite_width_acceptance,
    mean_rhats,
    rhats_at,
    shape_of,
)
from jaxbnn import Activation, Dense, Network, mlp
from jaxbnn.networks import init
from jaxbnn.wide import reparametrise

CONFIGS = Path(__file__).parents[2] / "configs" / "function_space"
# Variances of u and v and their correlation.
CASES = [(1.0, 1.0, 1.0), (2.0, 0.7, 0.5), (1.3, 2.2, -0.8), (0.1, 5.0, 0.99), (2.0, 2.0, 0.0)]


def expected_product(function, a, b, r):
    """E[psi(u) psi(v)] by Gauss-Hermite quadrature, of v given u and of u."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    weights = weights / weights.sum()
    u = math.sqrt(a) * nodes[:, None]
    v = math.sqrt(b) * (r * nodes[:, None] + math.sqrt(1 - r * r) * nodes)
    return (weights[:, None] * weights * function(u) * function(v)).sum()


def expected_relu_product(a, b, r):
    """The same of ReLU, which has a kink: v given u in closed form, and u from 0 on."""
    spread = math.sqrt(b * (1 - r * r))

    def integrand(t):
        mean = math.sqrt(b) * r * t
        inner = max(mean, 0.0)
        if spread > 0:
            inner = mean * ndtr(mean / spread) + spread * norm.pdf(mean / spread)
        return math.sqrt(a) * t * inner * norm.pdf(t)

    return quad(integrand, 0, 12, epsabs=1e-13)[0]


@pytest.mark.parametrize(("a", "b", "r"), CASES)
def test_closed_forms_of_the_kernels_equal_quadrature(a, b, r):
    c = r * math.sqrt(a * b)
    arguments = [np.array([[value]]) for value in (a, c, b)]
    gelu = expected_product(lambda z: z * ndtr(z), a, b, r)
    assert nngp.gelu_product(*arguments).item() == pytest.approx(gelu, abs=1e-12)
    assert nngp.erf_product(*arguments).item() == pytest.approx(
        expected_product(erf, a, b, r), abs=1e-9
    )
    relu = expected_relu_product(a, b, r)
    assert nngp.relu_product(*arguments).item() == pytest.approx(relu, abs=1e-10)


def test_the_kernel_is_the_covariance_of_random_networks(rng):
    """With one hidden layer it is exact at any width: width 2, by Monte Carlo."""
    network, x = wide_network((2,), 4, 1), rng.standard_normal((3, 4))
    num = 400_000
    hidden = math.sqrt(2 / 4) * np.einsum("nd,rdh->rnh", x, rng.standard_normal((num, 4, 2)))
    hidden += 0.1 * rng.standard_normal((num, 1, 2))
    g = hidden * ndtr(hidden)
    f = np.einsum("rnh,rh->rn", g, rng.standard_normal((num, 2))) / math.sqrt(2)
    f += 0.1 * rng.standard_normal((num, 1))
    products = f[:, :, None] * f[:, None, :]
    error = products.std(axis=0) / math.sqrt(num)
    kernel = nngp.nngp_kernel(network, x)
    assert (np.abs(products.mean(axis=0) - kernel) < 5 * error).all()
    assert (error < 0.01 * np.diag(kernel).max()).all()


def test_the_kernel_of_two_layers_is_the_recursion(rng):
    x = rng.standard_normal((2, 3))
    network = wide_network((5, 7), 3, 2)
    first = 2 * x @ x.T / 3 + 0.01

    def layer(s, weight_variance):
        r = s[0, 1] / math.sqrt(s[0, 0] * s[1, 1])
        product = [
            expected_product(lambda z: z * ndtr(z), s[i, i], s[j, j], 1.0 if i == j else r)
            for i in range(2)
            for j in range(2)
        ]
        return weight_variance * np.reshape(product, (2, 2)) + 0.01

    expected = layer(layer(first, 2.0), 1.0)
    np.testing.assert_allclose(nngp.nngp_kernel(network, x), expected, rtol=1e-10)


def test_the_process_s_posterior_is_the_conditional_of_the_joint_normal(rng):
    network = wide_network((3,), 4, 2)
    x, x_new, y = (rng.standard_normal(shape) for shape in ((5, 4), (3, 4), (5, 2)))
    found = nngp.nngp_posterior(network, x, y, x_new, 0.1)
    joint = nngp.nngp_kernel(network, np.concatenate([x, x_new]))
    joint[:5, :5] += 0.01 * np.eye(5)
    precision = np.linalg.inv(joint)
    covariance = np.linalg.inv(precision[5:, 5:])
    np.testing.assert_allclose(found.covariance, covariance, atol=1e-10)
    np.testing.assert_allclose(found.mean, -covariance @ precision[5:, :5] @ y, atol=1e-10)


@pytest.mark.parametrize(
    "network",
    [
        mlp((2, 3, 1), "tanh", parametrisation="ntk"),
        mlp((2, 3, 1), "gelu"),
        Network((Activation("gelu"), Dense(1)), (2,), "ntk"),
        Network((Dense(3), Activation("gelu")), (2,), "ntk"),
    ],
)
def test_networks_without_a_closed_form_are_refused(network):
    with pytest.raises(ValueError, match=r"closed form|ntk parametrisation only|end in a Dense"):
        nngp.nngp_kernel(network, np.ones((1, 2)))


def test_outputs_given_the_features_are_those_of_the_linear_model(rng):
    g, y = rng.standard_normal((7, 6)), rng.standard_normal((5, 2))
    psi = np.concatenate([1.5 * g / math.sqrt(6), np.full((7, 1), 0.3)], axis=1)
    posterior = np.linalg.inv(np.eye(7) + psi[:5].T @ psi[:5] / 0.01)
    read_out = Dense(2, weight_scale=1.5, bias_scale=0.3)
    with jax.enable_x64(True):
        mean, covariance = conditional_outputs(jax.numpy.asarray(g), read_out, y)
    np.testing.assert_allclose(mean, psi[5:] @ posterior @ psi[:5].T @ y / 0.01, atol=1e-9)
    np.testing.assert_allclose(covariance, psi[5:] @ posterior @ psi[5:].T, atol=1e-9)


def test_squared_differences_from_the_process_have_no_bias(rng):
    exact = nngp.GaussianProcess(np.zeros((4, 3)), np.eye(4))
    found = []
    for offset in (0.0, 0.5):
        noisy = [rng.standard_normal((4, 4, 3)) + offset for _ in range(300)]
        second = [m @ m.swapaxes(1, 2) / 3 + np.eye(4) for m in noisy]
        values = [
            compare({"mean": m, "second": s}, exact) for m, s in zip(noisy, second, strict=True)
        ]
        squares = np.array([value["mean"].value for value in values])
        errors = np.array([value["mean"].error for value in values])
        found.append(squares.mean())
        assert abs(squares.mean() - offset**2) < 5 * squares.std() / math.sqrt(300)
        assert 0.5 < np.sqrt(np.mean(errors**2)) / squares.std() < 2
    assert found[1] > found[0] + 0.1


@pytest.mark.parametrize("num_chains", [4, 12])
@pytest.mark.parametrize("offset", [0.0, 0.05])
def test_squared_differences_of_covariances_have_no_bias(offset, num_chains, rng):
    """The outer product of the mean is not known either: from all chains, it made them smaller."""
    deviation = 0.1  # of a chain's mean, to the fourth power less than what is looked for
    truth = rng.standard_normal((4, 3))
    exact = nngp.GaussianProcess(np.zeros((4, 3)), np.eye(4))
    squares, errors = [], []
    for _ in range(400):
        means = truth + deviation * rng.standard_normal((num_chains, 4, 3))
        second = truth @ truth.T / 3 + (1 + offset) * np.eye(4)
        noisy = second + 0.1 * rng.standard_normal((num_chains, 4, 4))
        value = compare({"mean": means, "second": noisy}, exact)["covariance"]
        squares.append(value.value)
        errors.append(value.error)
    spread = np.std(squares)
    # Of twelve chains less than half the difference from what one product for all chains gives.
    assert abs(np.mean(squares) - offset**2 / 4) < 5 * spread / math.sqrt(400) + 2 * deviation**4
    assert 0.5 < np.sqrt(np.mean(np.square(errors))) / spread < 2


def test_the_paper_s_effective_sample_size_has_a_floor(rng):
    """Of a random walk it tends to zero; of 400 draws the rule gives .013 a draw all the same."""
    walks = np.cumsum(rng.standard_normal((1, 400, 400)), axis=1)
    assert 0.011 < ess_of(walks).mean.value < 0.015


def test_acceptance_has_the_error_of_correlated_rates(rng):
    independent = rng.uniform(size=(1, 4000))
    found = acceptance_of(independent)
    assert found.value == pytest.approx(independent.mean())
    assert found.error == pytest.approx(math.sqrt(1 / 12 / 4000), rel=0.6)
    # Each rate ten times: no more is known.
    repeated = acceptance_of(np.repeat(independent, 10, axis=1))
    assert repeated.error == pytest.approx(found.error, rel=1e-9)
    assert acceptance_of(np.ones((1, 100))) == (1.0, 0.0)


def test_ess_a_draw_of_an_autoregression_and_of_a_chain_that_never_moves(rng):
    noise = rng.standard_normal((2, 20_000, 2))
    series = np.zeros_like(noise)
    for i in range(1, noise.shape[1]):
        series[:, i] = 0.8 * series[:, i - 1] + 0.6 * noise[:, i]
    found = ess_of(series)
    assert found.mean.value == pytest.approx(0.2 / 1.8, rel=0.1)
    assert abs(found.mean.value - 0.2 / 1.8) < 6 * found.mean.error
    assert found.low <= found.mean.value <= found.high
    assert ess_of(np.ones_like(series)).mean.value == 0.0


def test_rhat_is_the_printed_statistic(rng):
    series = rng.standard_normal((3, 40, 2)) + np.array([0.0, 0.3, 0.0])[:, None, None]
    found = rhats_at(series, [10, 40])
    for row, n in zip(found, (10, 40), strict=True):
        x = series[:, :n]
        within = x.var(axis=1, ddof=1).mean(axis=0)
        between = n * x.mean(axis=1).var(axis=0, ddof=1)
        np.testing.assert_allclose(row, ((n - 1) / n * within + between / n) / within, rtol=1e-5)


def test_an_rhat_has_the_error_of_its_chains_not_of_its_directions(rng):
    """All directions share three chains: over repetitions the mean moves by what is stated."""

    def estimate():
        level = rng.normal(size=(6, 1, 1)) * 0.3  # of a chain, the same for all directions
        return mean_rhats(rng.normal(size=(6, 200, 30)) + level, [200])[0]

    found = [estimate() for _ in range(60)]
    stated = np.sqrt(np.mean([error**2 for _, error in found]))
    true = np.std([value for value, _ in found], ddof=1)
    assert 0.5 < stated / true < 2.5
    (root,) = mean_rhats(np.ones((3, 9, 2)) * rng.normal(size=(3, 9, 2)), [9], root=True)
    assert root.value < 2.0
    assert math.isnan(mean_rhats(rng.normal(size=(2, 9, 2)), [9])[0].error)


@pytest.mark.parametrize("s_0", [0.0, 0.5])
def test_the_limit_of_wide_networks_is_extrapolated(s_0):
    rates = {
        width: Estimate(2 * norm.cdf(-(s_0 + 20 / math.sqrt(width)) / 2), 1e-4)
        for width in (128, 512, 1024, 2096, 4192)
    }
    limit = infinite_width_acceptance(rates)
    assert limit.value == pytest.approx(2 * norm.cdf(-s_0 / 2), abs=1e-6)
    assert 0 < limit.error < 0.01
    two = infinite_width_acceptance({width: rates[width] for width in (128, 512)})
    assert two.value == pytest.approx(limit.value, abs=1e-6)
    assert math.isnan(two.error)


@pytest.mark.parametrize(
    ("c", "exponent", "s_0"), [(500, 0.8, 0.0), (1500, 1.5, 0.0), (20, 0.5, -0.3)]
)
def test_no_limit_is_told_where_a_line_does_not_hold(c, exponent, s_0):
    rates = {
        width: Estimate(2 * norm.cdf(-(s_0 + c * width**-exponent) / 2), 1e-3)
        for width in (512, 1024, 2096)
    }
    assert all(map(math.isnan, infinite_width_acceptance(rates)))


def test_the_shape_of_a_curve_in_words():
    def curve(*values):
        return shape_of([Estimate(value, 0.01) for value in values])

    assert curve(0.1, 0.5, 0.9) == "rises"
    assert curve(0.1, 0.5, 0.2) == "rises, then falls"
    assert curve(0.5, 0.52, 0.49) == "constant"


def test_the_published_form_has_the_same_density(rng):
    """Up to a constant, at two positions; in float64."""
    network = wide_network((5,), 3, 2)
    with jax.enable_x64(True):
        x, y = (jax.numpy.asarray(rng.standard_normal(shape)) for shape in ((4, 3), (4, 2)))
        posterior = reparametrise(network, x, y, programs.NOISE_SCALE, form="features")
        positions = [init(jax.random.key(i), network) for i in range(2)]
        ours = [float(jax.jit(posterior.log_density)(phi)) for phi in positions]
        published = jax.jit(lambda phi: programs.published_log_density(network, phi, x, y))
        theirs = [float(published(phi)) for phi in positions]
    assert theirs[1] - theirs[0] == pytest.approx(ours[1] - ours[0], rel=1e-9)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_steps": 100}, "16 of them"),
        ({"num_burn_in": 5}, "multiple of thinning"),
        ({"step_sizes": (1.5,)}, "lie in"),
        ({"samplers": ("HMC",)}, "samplers"),
        ({"refreshment": 0.0}, "refreshment"),
    ],
)
def test_settings_that_make_no_run_are_refused(change, words):
    good = {
        "samplers": ("pCN",),
        "widths": (8,),
        "step_sizes": (0.1,),
        "refreshment": 0.01,
        "num_train": 4,
        "num_test": 2,
        "num_chains": 1,
        "num_steps": 160,
        "num_burn_in": 0,
        "thinning": 10,
        "num_directions": 2,
    }
    GridSettings(**good)
    with pytest.raises(ValidationError, match=words):
        GridSettings(**{**good, **change})


def small_problem(num_train, num_test):
    rng = np.random.default_rng(1)
    x, x_test = (rng.standard_normal((n, 20)).astype("f4") for n in (num_train, num_test))
    return Problem(x, np.eye(10, dtype="f4")[:num_train] - np.float32(0.1), x_test)


def run(name, tmp_path, *options):
    arguments = [str(CONFIGS / f"{name}.toml"), "--scale", "smoke", "--out", str(tmp_path)]
    assert main([*arguments, *options]) == 0
    folder = tmp_path / "function_space" / name / "smoke"
    return json.loads((folder / "metrics.json").read_text())["rows"], folder


@pytest.mark.long
def test_a_run_has_acceptance_and_ess_of_every_cell(tmp_path, monkeypatch):
    monkeypatch.setattr(grid, "cifar_problem", lambda *_: small_problem(10, 3))
    change = ["samplers=['pCN']", "widths=[8]", "step_sizes=[0.2, 0.1]"]
    options = [part for text in change for part in ("--set", text)]
    rows, folder = run("figure1", tmp_path, *options)
    settings = {(row["quantity"], row["setting"]) for row in rows}
    for size in ("0.2", "0.1"):
        where = f"pCN, step size {size}, width 8"
        assert ("acceptance_rate", where) in settings
        for series in ("weights", "predictions"):
            assert ("ess_per_step", f"{where}, {series}") in settings
    rates = {row["setting"]: row for row in rows if row["quantity"] == "acceptance_rate"}
    small, large = (rates[f"pCN, step size {size}, width 8"]["value"] for size in ("0.1", "0.2"))
    assert 0 < large < small < 1
    assert all(row["standard_error"] > 0 for row in rates.values())
    assert {path.name for path in folder.glob("*.png")} == {"acceptance.png", "ess.png"}
    assert all(path.stat().st_size > 5_000 for path in folder.glob("*.png"))
    # Directions of weights are as many as there are, and no weights are kept.
    with np.load(folder / "stages" / "pCN_layers_1_width_8.npz") as stage:
        assert stage["weights"].shape == (2, 1, 16, 5)
        assert max(stage[name].size for name in stage.files) == 2 * 16 * 5


@pytest.mark.long
@pytest.mark.parametrize("config", sorted(CONFIGS.glob("*.toml")), ids=lambda path: path.stem)
def test_every_config_s_smoke_scale_runs(config, tmp_path, sets_or_skip):
    rows, folder = run(config.stem, tmp_path)
    assert all(set(row) >= {"quantity", "value", "standard_error"} for row in rows)
    assert list(folder.glob("*.png"))


@pytest.mark.long
def test_the_benchmark_runs(tmp_path):
    change = ["widths=[64]", "num_rounds=1", "with_picture=false", "memory_steps=1"]
    options = [part for text in change for part in ("--set", text)]
    assert main(["benchmark", "function_space", "--out", str(tmp_path), *options]) == 0
    folder = tmp_path / "benchmarks" / "function_space"
    rows = json.loads((folder / "metrics.json").read_text())["rows"]
    assert all(row["value"] > 0 for row in rows)
    assert {row["setting"].split(",")[0] for row in rows} == {"pCN", "pCNL", "LMC"}
