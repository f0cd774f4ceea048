"""Positions with parts of several types: no number is cut off to the type of another.

Everything is compared with the same numbers in float32 throughout.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import jaxbnn
from jaxbnn import dvi
from jaxbnn.kernels import power_posterior, prior_precisions, redraw_units
from jaxbnn.networks import init, mlp
from jaxbnn.targets import (
    Gaussian,
    LearnedGaussian,
    LogGamma,
    Posterior,
    expand_prior,
    hierarchical_prior,
    normal_prior,
)

HALVES = [jnp.bfloat16, jnp.float16]
NETWORK = mlp((1, 30, 1), "relu")
X = np.linspace(-1, 1, 50, dtype=np.float32)[:, None]


@pytest.fixture(autouse=True)
def promotion():
    """As users have it: whole numbers meet floats."""
    with jax.numpy_dtype_promotion("standard"):
        yield


def cast(tree, dtype):
    return jax.tree.map(lambda leaf: jnp.asarray(leaf).astype(dtype), tree)


def of_one_type(tree):
    return cast(tree, jnp.float32)


@pytest.mark.parametrize("dtype", [bool, jnp.uint8, jnp.int32])
def test_priors_of_whole_numbers_are_not_cut_off(dtype):
    """As a truth value log(.1) was 1, and as a whole number -2."""
    prior = {
        "bernoulli": dist.Bernoulli(0.1),
        "categorical": dist.Categorical(jnp.array([0.2, 0.8])),
        "poisson": dist.Poisson(2.5),
        "normal": dist.Normal(0.4, 0.5),
        "student": dist.StudentT(4.0, 0.5, 1.5),
        "gamma": LogGamma(2.0, 3.0, exponent=-0.5),
        "uniform": dist.Uniform(-0.5, 1.5),
    }
    posterior = Posterior(
        lambda p, x: p["normal"] * x[:, 0], prior, Gaussian(0.5), X, np.sin(3 * X[:, 0])
    )
    of_categories = jnp.log(jnp.array([0.2, 0.8]))

    def right(value):
        number = jnp.asarray(value, jnp.float32)
        others = [law.log_prob(number) for name, law in prior.items() if name != "categorical"]
        prior_part = sum(others) + of_categories[value]
        return prior_part + dist.Normal(number * X[:, 0], 0.5).log_prob(posterior.y).sum()

    ones, zeros = ({name: jnp.asarray(value, dtype) for name in prior} for value in (1, 0))
    found = posterior.log_density(ones)
    np.testing.assert_allclose(found, right(1), rtol=1e-6)
    difference = posterior.log_density_from(zeros)(ones)
    np.testing.assert_allclose(difference, right(1) - right(0), rtol=1e-5)
    assert difference.dtype == found.dtype == jnp.float32


@pytest.mark.parametrize("is_centred", [True, False])
def test_a_position_may_hold_whole_numbers_for_logarithms(is_centred):
    noise = {"log_noise_scale": dist.Normal(-1.0, 0.7)}
    prior = hierarchical_prior(NETWORK, is_centred=is_centred, likelihood=noise)
    posterior = Posterior(NETWORK, prior, LearnedGaussian(), X, np.sin(X))
    drawn = posterior.sample_prior(jax.random.key(0), ())
    other = posterior.sample_prior(jax.random.key(1), ())
    ones = jax.tree.map(lambda leaf: jnp.ones(leaf.shape, jnp.int32), drawn["log_precision"])
    whole = drawn | {"log_precision": ones, "log_noise_scale": jnp.array(0)}
    np.testing.assert_allclose(
        posterior.log_density(whole), posterior.log_density(of_one_type(whole)), rtol=1e-6
    )
    for reference in (other, whole):
        np.testing.assert_allclose(
            posterior.log_density_from(reference)(whole),
            posterior.log_density_from(of_one_type(reference))(of_one_type(whole)),
            rtol=1e-5,
            atol=1e-4,
        )


@pytest.mark.parametrize("dtype", HALVES)
def test_densities_of_halves_are_summed_in_single_precision(dtype):
    """The prior of a network of 2,700 weights was off by 18 nats in bfloat16."""
    network = mlp((1, 50, 50, 1), "tanh")
    posterior = Posterior(network, normal_prior(network), Gaussian(0.5), X, np.sin(X))
    params = cast(init(jax.random.key(0), network), dtype)
    for part in ("w", "b"):
        mixed = jax.tree_util.tree_map_with_path(
            lambda path, leaf, part=part: leaf.astype(
                jnp.float32 if path[-1].key == part else dtype
            ),
            params,
        )
        found = posterior.log_prior(mixed)
        np.testing.assert_allclose(found, posterior.log_prior(of_one_type(params)), rtol=1e-6)
    assert posterior.log_density(params).dtype == jnp.float32
    terms = posterior.log_likelihood(params).astype(jnp.float32)
    right = terms.sum() + posterior.log_prior(of_one_type(params))
    np.testing.assert_allclose(posterior.log_density(params), right, rtol=1e-6)


def test_targets_that_outputs_round_are_warned_of(x64):
    """x of 32 bits and y of 64: the likelihood computes in 32."""
    y = 1e6 + 0.01 * np.random.default_rng(0).standard_normal((50, 1))
    with pytest.warns(UserWarning, match="too much for float32"):
        Posterior(NETWORK, normal_prior(NETWORK), Gaussian(0.01), X, y)
    q = dvi.deterministic_vi(NETWORK, Gaussian(0.01), prior=normal_prior(NETWORK))
    start = cast(dvi.initial_position(jax.random.key(0), NETWORK, shape=(1,)), jnp.float32)
    with pytest.warns(UserWarning, match="too much for float32"):
        dvi.fit(jax.random.key(0), q, start, X, y, num_updates=1, progress=False)


def test_targets_may_be_a_list(annotations_unchecked):
    posterior = Posterior(NETWORK, normal_prior(NETWORK), Gaussian(0.5), X[:3], [0.0, 1.0, 2.0])
    assert posterior.y.tolist() == [0, 1, 2]


@pytest.mark.parametrize("dtype", HALVES)
def test_a_redrawn_unit_has_each_part_in_its_own_type(dtype):
    prior = expand_prior(dist.Normal(100.0, 1.0), init(jax.random.key(0), NETWORK))
    kernel = redraw_units(NETWORK, prior, lambda params: jnp.zeros(1))
    for part in ("w", "b"):
        params = jax.tree_util.tree_map_with_path(
            lambda path, leaf, part=part: leaf.astype(
                dtype if path[-1].key == part else jnp.float32
            ),
            init(jax.random.key(0), NETWORK),
        )
        state, _ = jax.jit(kernel.step)(jax.random.key(1), kernel.init(params))
        assert jax.tree.map(lambda leaf: leaf.dtype, state.position) == jax.tree.map(
            lambda leaf: leaf.dtype, params
        )
        single = np.asarray(state.position[0]["b" if part == "w" else "w"]).ravel()
        assert len(np.unique(single)) == single.size


@pytest.mark.parametrize("dtype", HALVES)
def test_a_ladder_keeps_its_digits_beside_halves(dtype):
    """In bfloat16 the rung .999 was the coldest, too, and terms were summed in their own type."""
    terms = (-20 - jax.random.normal(jax.random.key(0), (3000,))).astype(dtype)
    seen = []

    def make_kernel(temperature, parameters):
        seen.append(temperature.dtype)
        return jaxbnn.pcn(lambda p: terms + 0 * p["a"], 0.1)

    kernel = power_posterior(
        make_kernel,
        lambda p: -jnp.sum(p["b"] ** 2),
        lambda p: terms + 0 * p["a"],
        [0.0, 0.3, 0.997, 0.999, 1.0],
    )
    state = kernel.init({"a": jnp.zeros((), dtype), "b": jnp.zeros(())})
    state, info = jax.jit(kernel.step)(jax.random.key(1), state)
    assert set(seen) == {jnp.dtype(jnp.float32)}
    assert state.position["a"].dtype == dtype
    exact = np.asarray(terms, np.float64).sum()
    np.testing.assert_allclose(info.log_likelihood, np.full(5, exact), rtol=1e-6)


@pytest.mark.parametrize(("first", "others"), [("bfloat16", "float32"), ("float32", "float64")])
def test_a_variational_fit_takes_parts_of_several_types(first, others, x64):
    q = dvi.deterministic_vi(NETWORK, Gaussian(0.5), prior=normal_prior(NETWORK))
    start = dvi.initial_position(jax.random.key(0), NETWORK, shape=(1,), dtype=others)
    leaves, structure = jax.tree.flatten(start)
    mixed = jax.tree.unflatten(structure, [leaves[0].astype(first), *leaves[1:]])
    found, right = (
        dvi.fit(jax.random.key(1), q, one, X, np.sin(X), num_updates=20, progress=False)
        for one in (mixed, start)
    )
    assert found.elbo.dtype == right.elbo.dtype == others
    rtol = 0.05 if first == "bfloat16" else 1e-4
    np.testing.assert_allclose(found.elbo[..., -1], right.elbo[..., -1], rtol=rtol)


@pytest.mark.parametrize("part", ["log_precision", "log_noise_scale"])
@pytest.mark.parametrize("dtype", HALVES)
def test_precisions_keep_the_types_of_their_parts(part, dtype):
    noise = {"log_noise_scale": LogGamma(2.0, 1.0, exponent=-0.5)}
    prior = hierarchical_prior(NETWORK, likelihood=noise)
    posterior = Posterior(NETWORK, prior, LearnedGaussian(), X, np.sin(X))
    position = posterior.sample_prior(jax.random.key(0), ())
    position = position | {part: cast(position[part], dtype)}
    kernel = prior_precisions(posterior)
    state, _ = jax.jit(kernel.step)(jax.random.key(1), kernel.init(position))
    right, _ = kernel.step(jax.random.key(1), kernel.init(of_one_type(position)))
    jax.tree.map(lambda a, b: np.testing.assert_equal(a.dtype, b.dtype), state.position, position)
    for found, expected in zip(
        jax.tree.leaves(state.position), jax.tree.leaves(right.position), strict=True
    ):
        np.testing.assert_allclose(found.astype(float), expected, rtol=0.02, atol=0.02)


def test_arviz_is_given_numbers_that_it_reads():
    az = pytest.importorskip("arviz")
    draws = jax.random.normal(jax.random.key(0), (4, 100)).astype(jnp.bfloat16)
    data = jaxbnn.interop.arviz.to_arviz({"w": draws})
    np.testing.assert_array_equal(data.posterior["w"], draws.astype(jnp.float32))
    assert np.isfinite(az.summary(data)["ess_bulk"]).all()
