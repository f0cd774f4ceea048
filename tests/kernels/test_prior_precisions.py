"""Precisions and the noise scale are drawn from their conditionals: joint laws, and mutants."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

from jaxbnn.kernels import cycle, on_block, pcn, prior_precisions, underdamped_langevin
from jaxbnn.networks import mlp
from jaxbnn.targets import Gaussian, LearnedGaussian, LogGamma, Posterior, hierarchical_prior
from jaxbnn.targets.hierarchical import HierarchicalPrior
from jaxbnn.targets.log_gamma import numbers_of
from tests.kit import (
    check_exact_start,
    check_geweke,
    posterior_target,
    sizes_with_mutants,
    update_with,
)

module = importlib.import_module("jaxbnn.kernels.prior_precisions")

PARAMS = {"b": jnp.zeros(1), "w": jnp.zeros((2, 1))}
X = jnp.array([[-1.0, 0.4], [0.5, 1.0], [2.0, -0.7]])
Y = jnp.zeros((3, 1))
NOISE = {"log_noise_scale": LogGamma(2.0, 0.5, exponent=-0.5)}
# Noise of two columns: the same prior for both, and one each.
X2, Y2 = X[:, :1], jnp.array([[0.4, 3.0], [-0.3, -5.0], [0.2, 1.0]])
PARAMS2 = {"b": jnp.zeros(2), "w": jnp.zeros((1, 2))}
NOISE_OF_COLUMNS = {
    "expanded": LogGamma(2.0, 0.5, exponent=-0.5).expand((2,)),
    "of arrays": LogGamma(np.array([2.0, 5.0]), np.array([0.5, 1.5]), exponent=-0.5),
    "of an array, as an event": LogGamma(np.array([2.0, 5.0]), 0.5, exponent=-0.5).to_event(1),
}
# Places in the flat position: log_noise_scale, log_precision of b and of w, network b and w.
OF_NOISE, OF_PRECISIONS = ["x0"], ["x1", "x2", "x3"]


def apply(params, x):
    return jnp.tanh(x @ params["w"] + params["b"][None])


def make_posterior(is_centred, noise=NOISE):
    """Precisions of an input each and of the bias; unequal shapes, rates and scales."""
    prior = hierarchical_prior(
        PARAMS,
        concentration=1.5,
        rate=0.7,
        weight_precision=2.0,
        relevance=True,
        is_centred=is_centred,
        likelihood=noise,
    )
    return lambda y: Posterior(apply, prior, LearnedGaussian(), X.astype(y.dtype), y)


def make_posterior_of_columns(law):
    prior = hierarchical_prior(
        PARAMS2, concentration=1.5, rate=0.7, likelihood={"log_noise_scale": law}
    )
    return lambda y: Posterior(apply, prior, LearnedGaussian(), X2.astype(y.dtype), y)


def numbers_of_columns(law):
    """Return the concentrations and the rates of a law of two columns."""
    a, b = numbers_of(law, float)
    return np.broadcast_to(a, 2), np.broadcast_to(b, 2)


# (concentration, rate) given those of the prior, as a mistake makes them.
MUTANTS = {
    "lost Jacobian": lambda a, b, a0, b0: (a - 1, b),
    "shape off by half": lambda a, b, a0, b0: (a + 0.5, b),
    "half lost in the rate": lambda a, b, a0, b0: (a, b0 + 2 * (b - b0)),
}


def mutate(monkeypatch, change):
    precisions, noise = module.precisions_given, module.noise_precision_given
    monkeypatch.setattr(
        module,
        "precisions_given",
        lambda *args: [change(*pair, 1.5, 0.7) for pair in precisions(*args)],
    )
    monkeypatch.setattr(
        module, "noise_precision_given", lambda *args: change(*noise(*args), 2.0, 0.5)
    )


def exceeds(result, names):
    return any(result.distances[name] > result.thresholds[name] for name in names)


@sizes_with_mutants(30_000)
@pytest.mark.parametrize(
    "is_centred",
    [
        pytest.param(True, id="centred", marks=pytest.mark.long),  # Geweke's test below is of it
        pytest.param(False, id="non-centred"),
    ],
)
def test_the_posterior_is_invariant_and_mutants_are_caught(
    num_chains, with_mutants, is_centred, monkeypatch
):
    """Neither draw moves what the other looks at, so that each mutant shows in its own place."""
    make = make_posterior(is_centred)
    target = posterior_target(make, X, Y)

    def check():
        return check_exact_start(
            lambda y: prior_precisions(make(y)), target, steps=2, num_chains=num_chains
        )

    result = check()
    assert result.passes, str(result)
    if not with_mutants:
        return
    if not is_centred:
        with monkeypatch.context() as patch:  # z left behind, so that theta moves unasked
            patch.setattr(
                HierarchicalPrior, "standardised", lambda self, new, params: new["network"]
            )
            assert not check().passes
        return
    for name, change in MUTANTS.items():
        with monkeypatch.context() as patch:
            mutate(patch, change)
            found = check()
            assert exceeds(found, OF_PRECISIONS), f"{name}, of the precisions: {found}"
            assert exceeds(found, OF_NOISE), f"{name}, of the noise: {found}"


# What a mistake makes of a column's (concentration, rate), given those of the prior.
MUTANTS_OF_COLUMNS = {
    "sums over all columns": lambda a, b, a0, b0: (a0 + jnp.sum(a - a0), b0 + jnp.sum(b - b0)),
    "counts of all columns": lambda a, b, a0, b0: (a0 + jnp.sum(a - a0), b),
    "another column's residuals": lambda a, b, a0, b0: (a, b0 + (b - b0)[::-1]),
    "another column's prior": lambda a, b, a0, b0: (a - a0 + a0[::-1], b - b0 + b0[::-1]),
    "lost Jacobian": lambda a, b, a0, b0: (a - 1, b),
}


@sizes_with_mutants(30_000)
def test_the_posterior_with_noise_of_columns_is_invariant_and_mutants_are_caught(
    num_chains, with_mutants, monkeypatch
):
    law = NOISE_OF_COLUMNS["of arrays"]
    make, own = make_posterior_of_columns(law), numbers_of_columns(law)
    target = posterior_target(make, X2, Y2)

    def check():
        return check_exact_start(
            lambda y: prior_precisions(make(y)), target, steps=2, num_chains=num_chains
        )

    result = check()
    assert result.passes, str(result)
    given = module.noise_precision_given
    for name, change in MUTANTS_OF_COLUMNS.items() if with_mutants else ():
        with monkeypatch.context() as patch:
            patch.setattr(
                module,
                "noise_precision_given",
                lambda *args, change=change: change(*given(*args), *own),
            )
            found = check()
            assert exceeds(found, ["x0", "x1"]), f"{name}: {found}"


@sizes_with_mutants(30_000)
def test_geweke_with_data_drawn_anew(num_chains, with_mutants, monkeypatch):
    """Network by pCN given the precisions, precisions by their conditionals, data by the model."""
    make = make_posterior(True)
    model = make(Y)

    def draw_data(key, position):
        return model.predictive(position, X).sample(key)

    def sample_joint(key):
        key_prior, key_data = jax.random.split(key)
        position = model.sample_prior(key_prior)
        return position, draw_data(key_data, position)

    def kernel_of(y):
        posterior = make(y)

        def network_kernel(whole):
            variance = jax.tree.map(
                lambda law: jnp.broadcast_to(law.variance, law.event_shape),
                posterior.prior.given(whole(None)),
                is_leaf=lambda node: isinstance(node, dist.Distribution),
            )
            return pcn(lambda params: posterior.log_likelihood(whole(params)), 0.7, variance)

        return cycle(on_block(network_kernel, "network"), prior_precisions(posterior))

    def check():
        return check_geweke(
            sample_joint, draw_data, update_with(kernel_of), rounds=2, num_chains=num_chains
        )

    result = check()
    assert result.passes, str(result)
    # The exact start sees the others at this size.
    for name in ("shape off by half",) if with_mutants else ():
        with monkeypatch.context() as patch:
            mutate(patch, MUTANTS[name])
            found = check()
            assert exceeds(found, OF_PRECISIONS), f"{name}, of the precisions: {found}"
            assert exceeds(found, OF_NOISE), f"{name}, of the noise: {found}"


@pytest.mark.long
@pytest.mark.parametrize("what", ["likelihood", "posterior"])
def test_draws_follow_the_density_of_the_position_by_quadrature(x64, what):
    """One precision and the noise, tempered, against the posterior's own density."""
    posterior = make_posterior(True)(X[:, :1].astype(float)).tempered(0.4, what=what)
    start = posterior.sample_prior(jax.random.key(5))
    kernel = prior_precisions(posterior)

    @jax.jit
    @jax.vmap
    def draw(key):
        return kernel.step(key, kernel.init(start))[0].position

    draws = draw(jax.random.split(jax.random.key(0), 5_000))
    for path in (("log_precision", "b"), ("log_noise_scale",)):
        values = np.asarray(at(draws, path))
        grid = np.linspace(values.min() - 4, values.max() + 4, 2001)
        density = jax.vmap(lambda v, path=path: posterior.log_density(put(start, path, v)))
        logs = np.asarray(density(jnp.asarray(grid)))
        weights = np.exp(logs - logs.max())
        cdf = np.cumsum(weights) / weights.sum()
        found = scipy.stats.kstest(values, lambda v, g=grid, c=cdf: np.interp(v, g, c))
        assert found.pvalue > 1e-6, path


def at(tree, path):
    for name in path:
        tree = tree[name]
    return tree


def put(tree, path, value):
    if not path:
        return value
    return tree | {path[0]: put(tree[path[0]], path[1:], value)}


@pytest.mark.parametrize("law", NOISE_OF_COLUMNS.values(), ids=NOISE_OF_COLUMNS)
def test_noise_of_a_column_is_drawn_given_the_residuals_of_that_column(law):
    posterior = make_posterior_of_columns(law)(Y2)
    start = posterior.sample_prior(jax.random.key(5))
    kernel = prior_precisions(posterior)

    @jax.jit
    @jax.vmap
    def draw(key):
        return kernel.step(key, kernel.init(start))[0].position["log_noise_scale"]

    draws = np.asarray(draw(jax.random.split(jax.random.key(0), 5_000)), float)
    precisions = np.exp(-2 * draws)
    squares = np.sum(np.square(np.asarray(Y2 - apply(start["network"], X2), float)), axis=0)
    a, b = numbers_of_columns(law)

    def p_values(count, sums):
        laws = [scipy.stats.gamma(a[i] + count / 2, scale=1 / (b[i] + sums[i] / 2)) for i in (0, 1)]
        return [scipy.stats.kstest(precisions[:, i], laws[i].cdf).pvalue for i in (0, 1)]

    assert min(p_values(3, squares)) > 1e-6
    assert abs(np.corrcoef(draws.T)[0, 1]) < 5 / 5_000**0.5
    # Other sums are told apart, in both columns.
    assert max(p_values(3, squares[::-1])) < 1e-6
    assert max(p_values(6, np.full(2, squares.sum()))) < 1e-6


@pytest.mark.parametrize("y", [Y2[:, 1:], Y2[:, 1]], ids=["y (n, 1)", "y (n,)"])
def test_noise_of_the_only_column_is_drawn_as_one_number_is(y):
    def step_with(law):
        posterior = make_posterior(True, {"log_noise_scale": law})(y)
        position = posterior.sample_prior(jax.random.key(0))
        position["log_noise_scale"] = jnp.zeros(law.batch_shape)
        kernel = prior_precisions(posterior)
        return kernel.step(jax.random.key(1), kernel.init(position))[0].position

    law = NOISE["log_noise_scale"]
    one, column = step_with(law), step_with(law.expand((1,)))
    assert column["log_noise_scale"].shape == (1,)
    assert one["log_noise_scale"] != 0
    np.testing.assert_array_equal(column["log_noise_scale"][0], one["log_noise_scale"])


@pytest.mark.parametrize("is_centred", [True, False], ids=["centred", "non-centred"])
def test_the_likelihood_and_the_parameters_do_not_move(x64, is_centred):
    prior = hierarchical_prior(PARAMS, is_centred=is_centred)
    posterior = Posterior(apply, prior, Gaussian(0.3), X.astype(float), Y)
    kernel = prior_precisions(posterior)
    state = kernel.init(posterior.sample_prior(jax.random.key(0)))
    after, info = jax.jit(kernel.step)(jax.random.key(1), state)
    before = posterior.log_likelihood(state.position)
    np.testing.assert_allclose(posterior.log_likelihood(after.position), before, rtol=1e-12)
    moved = jax.tree.map(
        lambda a, b: bool(jnp.any(a != b)),
        after.position["log_precision"],
        state.position["log_precision"],
    )
    assert all(jax.tree.leaves(moved))
    assert not bool(info.is_divergent)


def test_noise_of_another_prior_is_left_alone():
    other = LogGamma(2.0, 0.5, exponent=-1.0)
    for law in (dist.Normal(-1.0, 1.0), other, other.expand((1,))):
        prior = hierarchical_prior(PARAMS, likelihood={"log_noise_scale": law})
        posterior = Posterior(apply, prior, LearnedGaussian(), X, Y)
        kernel = prior_precisions(posterior)
        position = posterior.sample_prior(jax.random.key(0))
        after = kernel.step(jax.random.key(1), kernel.init(position))[0].position
        assert after["log_noise_scale"] == position["log_noise_scale"]


@pytest.mark.parametrize("is_of_columns", [False, True], ids=["one", "of columns"])
def test_the_noise_is_drawn_where_the_posterior_is_traced(is_of_columns):
    law = NOISE_OF_COLUMNS["expanded"]
    posterior = make_posterior_of_columns(law)(Y2) if is_of_columns else make_posterior(True)(Y)
    position = posterior.sample_prior(jax.random.key(0))

    @jax.jit
    def step(posterior, key):
        kernel = prior_precisions(posterior)
        return kernel.step(key, kernel.init(position))[0].position["log_noise_scale"]

    assert jnp.all(step(posterior, jax.random.key(1)) != position["log_noise_scale"])


def test_overflow_keeps_the_old_value():
    posterior = make_posterior(True)(Y)
    position = posterior.sample_prior(jax.random.key(0))
    position["network"] = jax.tree.map(lambda leaf: leaf + 1e30, position["network"])
    kernel = prior_precisions(posterior)
    after, info = kernel.step(jax.random.key(1), kernel.init(position))
    assert bool(info.is_divergent)
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(after.position))


@pytest.mark.long
def test_in_a_cycle_with_a_gradient_kernel_precisions_of_useless_inputs_rise():
    """Of four inputs one matters: its precision is the smallest."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 4)).astype(np.float32)
    y = (2 * np.tanh(x[:, :1]) + 0.1 * rng.standard_normal((60, 1))).astype(np.float32)
    network = mlp((4, 5, 1))
    prior = hierarchical_prior(network, relevance=True, is_centred=False, likelihood=NOISE)
    posterior = Posterior(network, prior, LearnedGaussian(), x, y)
    kernel = cycle(
        underdamped_langevin(posterior.log_density, 0.02, refreshment=0.1),
        prior_precisions(posterior),
    )

    def chain(key):
        state = kernel.init(posterior.sample_prior(key), jax.random.fold_in(key, 0))

        def step(state, i):
            state, _ = kernel.step(jax.random.fold_in(key, i), state)
            return state, state.position["log_precision"][0]["w"]

        return jnp.mean(jax.lax.scan(step, state, jnp.arange(1, 4001))[1][2000:], axis=0)

    # One chain of sixteen has not found the way from the prior by then.
    means = np.asarray(jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(1), 24)))
    above = means[:, 1:] - means[:, :1]
    error = above.std(axis=0, ddof=1) / len(above) ** 0.5
    # As measured on 48 chains, these 24 among them, the differences are ten such errors and more:
    # seven lie between them and a false alarm. Without any difference one test in 700 passes.
    assert (above.mean(axis=0) > 3 * error).all()


@pytest.mark.parametrize("is_centred", [True, False], ids=["centred", "non-centred"])
def test_powers_of_prior_and_likelihood_are_in_the_conditionals(is_centred, x64):
    """Along log(tau) at fixed theta the density is the conditional's, Jacobian of z included."""
    posterior = (
        make_posterior(is_centred)(Y.astype(float)).tempered(0.4, what="posterior").tempered(0.5)
    )
    prior = posterior.prior
    position = jax.tree.map(
        lambda leaf: jnp.asarray(leaf, float), posterior.sample_prior(jax.random.key(0))
    )
    theta = prior.network_parameters(position)

    def density(shift, name):
        """Log density of log(tau) of one array shifted, or of the noise's precision."""
        moved = dict(position)
        if name == "noise":
            moved["log_noise_scale"] = position["log_noise_scale"] - shift / 2
            return posterior.log_density(moved)
        moved["log_precision"] = position["log_precision"] | {
            name: position["log_precision"][name] + shift
        }
        moved["network"] = prior.standardised(moved, theta)
        jacobian = 0.0 if is_centred else theta[name].size * shift / 2
        return posterior.log_density(moved) + jacobian

    def of_law(a, b, start, shift):
        each = a * (start + shift) - b * jnp.exp(start + shift)
        return jnp.sum(each)

    pairs = dict(
        zip(
            ["b", "w"],
            module.precisions_given(posterior, position["log_precision"], theta),
            strict=True,
        )
    )
    starts = dict(position["log_precision"])
    pairs["noise"] = module.noise_precision_given(posterior, position)
    starts["noise"] = -2 * position["log_noise_scale"]
    for name, (a, b) in pairs.items():
        for shift in (-1.0, 0.5, 2.0):
            found = of_law(a, b, starts[name], shift) - of_law(a, b, starts[name], 0.0)
            wanted = density(shift, name) - density(0.0, name)
            np.testing.assert_allclose(found, wanted, rtol=1e-8)


@pytest.mark.parametrize("law", NOISE_OF_COLUMNS.values(), ids=NOISE_OF_COLUMNS)
def test_powers_are_in_the_conditionals_of_each_column(law, x64):
    """Along the log precisions of the noise, each its own way, the density is the conditional's."""
    y = Y2.astype(float)
    posterior = make_posterior_of_columns(law)(y).tempered(0.4, what="posterior").tempered(0.5)
    position = posterior.sample_prior(jax.random.key(0))
    a, b = module.noise_precision_given(posterior, position)
    start = -2 * position["log_noise_scale"]

    def of_law(log_precision):
        return jnp.sum(a * log_precision - b * jnp.exp(log_precision))

    def density(log_precision):
        return posterior.log_density(position | {"log_noise_scale": -log_precision / 2})

    for shift in ((-1.0, 0.5), (2.0, 0.0), (0.0, 2.0)):
        moved = start + jnp.array(shift)
        found, wanted = of_law(moved) - of_law(start), density(moved) - density(start)
        np.testing.assert_allclose(found, wanted, rtol=1e-8)
