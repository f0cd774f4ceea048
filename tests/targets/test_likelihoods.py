"""Tests of targets.gaussian_noise and targets.labels: terms against scipy.stats, and predictive
distributions against the terms.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.optimize
import scipy.special
import scipy.stats

from jaxbnn.targets import (
    Bernoulli,
    Categorical,
    CrossEntropy,
    Gaussian,
    HeteroscedasticGaussian,
    LearnedGaussian,
    Likelihood,
    Ordinal,
    Posterior,
    SoftplusScaleGaussian,
    normal_prior,
)
from jaxbnn.targets.likelihoods import lay_out

N = 7


def _apply(params, x):
    """Outputs are the parameters, so that the tests choose them."""
    return params["outputs"] + 0.0 * x.sum()


def _posterior(likelihood, outputs, y, **more):
    params = {"outputs": outputs}
    prior = normal_prior(params)
    if likelihood.learned:
        prior = {"network": prior, "log_noise_scale": dist.Normal(0.0, 1.0)}
        params = {"network": params, **more}
    return Posterior(_apply, prior, likelihood, np.ones((N, 1)), y), params


def _softmax(logits):
    return scipy.special.log_softmax(logits, axis=-1)


def _gaussian_case(rng, shape, likelihood, scale, **more):
    outputs, y = rng.normal(size=(2, *shape))
    terms = scipy.stats.norm.logpdf(y, outputs, scale)
    return likelihood, outputs, y, terms.reshape(N, -1).sum(axis=1), more


def _cases(rng):
    yield _gaussian_case(rng, (N,), Gaussian(0.3), 0.3)
    yield _gaussian_case(rng, (N, 1), Gaussian(2), 2)
    yield _gaussian_case(rng, (N, 3), Gaussian(0.3), 0.3)
    yield _gaussian_case(rng, (N, 3), Gaussian(np.array([1.0, 2, 3])), np.array([1.0, 2, 3]))
    yield _gaussian_case(rng, (N, 2, 3), Gaussian(0.3), 0.3)
    log_scale = {"log_noise_scale": jnp.asarray(-0.7)}
    yield _gaussian_case(rng, (N, 3), LearnedGaussian(), np.exp(-0.7), **log_scale)

    outputs, y = rng.normal(size=(N, 4)), rng.normal(size=(N, 2))
    terms = scipy.stats.norm.logpdf(y, outputs[:, :2], np.exp(outputs[:, 2:] / 2)).sum(axis=1)
    yield HeteroscedasticGaussian(), outputs, y, terms, {}
    outputs, y = rng.normal(size=(N, 2)), rng.normal(size=N)
    terms = scipy.stats.norm.logpdf(y, outputs[:, 0], np.exp(outputs[:, 1] / 2))
    yield HeteroscedasticGaussian(), outputs, y, terms, {}

    outputs, y = rng.normal(size=(N, 4)), rng.normal(size=(N, 2))
    scale = np.log1p(np.exp(outputs[:, 2:])) + 1e-6
    terms = scipy.stats.norm.logpdf(y, outputs[:, :2], scale).sum(axis=1)
    yield SoftplusScaleGaussian(), outputs, y, terms, {}
    outputs, y = rng.normal(size=(N, 2)), rng.normal(size=N)
    terms = scipy.stats.norm.logpdf(y, outputs[:, 0], np.log1p(np.exp(outputs[:, 1])) + 0.1)
    yield SoftplusScaleGaussian(0.1), outputs, y, terms, {}

    outputs, y = 3 * rng.normal(size=(N, 2)), rng.integers(0, 2, size=(N, 2))
    terms = scipy.stats.bernoulli.logpmf(y, scipy.special.expit(outputs)).sum(axis=1)
    yield Bernoulli(), outputs, y, terms, {}
    yield Bernoulli(), outputs[:, :1], y[:, 0] == 1, _bernoulli_terms(outputs[:, 0], y[:, 0]), {}

    outputs, y = 3 * rng.normal(size=(N, 5)), rng.integers(0, 5, size=N)
    terms = _softmax(outputs)[np.arange(N), y]
    yield Categorical(), outputs, y, terms, {}
    yield Categorical(), outputs, y.astype(np.uint8), terms, {}
    yield CrossEntropy(temperature=2.0), outputs, y, terms / 4, {}
    yield CrossEntropy(temperature=0.5), outputs, y, terms, {}


def _bernoulli_terms(logits, y):
    return np.where(y == 1, scipy.special.log_expit(logits), scipy.special.log_expit(-logits))


NUM_CASES = 16


def test_all_cases_are_run():
    assert len(list(_cases(np.random.default_rng(0)))) == NUM_CASES


@pytest.mark.parametrize("index", range(NUM_CASES))
def test_terms_and_predictive_agree_with_scipy(x64, rng, index):
    likelihood, outputs, y, expected, more = list(_cases(rng))[index]
    posterior, params = _posterior(likelihood, jnp.asarray(outputs), y, **more)

    @jax.jit
    def everything(params, key):
        predictive = posterior.predictive(params, posterior.x)
        # NumPyro's Bernoulli mixes dtypes.
        with jax.numpy_dtype_promotion("standard"):
            draws = jax.vmap(predictive.sample)(jax.random.split(key, 3))
            predictive_terms = predictive.log_prob(posterior.y)
        return posterior.log_likelihood(params), predictive_terms, draws

    terms, predictive_terms, draws = everything(params, jax.random.key(0))
    np.testing.assert_allclose(terms, expected, rtol=1e-12)
    assert draws.shape == (3, *posterior.y.shape)
    temperature = getattr(likelihood, "temperature", 0.5)
    np.testing.assert_allclose(predictive_terms, 2 * temperature * expected, rtol=1e-12)


@pytest.mark.parametrize("temperature", [None, 2.0])
def test_the_predictive_of_classes_is_the_softmax(x64, rng, temperature):
    likelihood = Categorical() if temperature is None else CrossEntropy(temperature)
    outputs = rng.normal(size=(N, 3))
    posterior, params = _posterior(likelihood, jnp.asarray(outputs), np.arange(N) % 3)
    probabilities = posterior.predictive(params, posterior.x).probs
    np.testing.assert_allclose(probabilities, np.exp(_softmax(outputs)), rtol=1e-12)


def test_an_output_of_shape_n_is_one_column(x64, rng):
    outputs, y = rng.normal(size=(2, N))
    expected = scipy.stats.norm.logpdf(y, outputs, 0.5)
    for targets in (y, y[:, None]):
        posterior, params = _posterior(Gaussian(0.5), jnp.asarray(outputs), targets)
        np.testing.assert_allclose(posterior.log_likelihood(params), expected, rtol=1e-12)
        predictive = posterior.predictive(params, posterior.x)
        np.testing.assert_allclose(predictive.log_prob(targets), expected, rtol=1e-12)


@pytest.mark.parametrize("likelihood", [Bernoulli(), Categorical()], ids=["Bernoulli", "classes"])
@pytest.mark.parametrize("size", [200.0, 1e30])
def test_confident_outputs_stay_finite_in_float32(likelihood, size):
    """Far in the tails, where exp overflows, terms and gradients are still those of the limit."""
    y = np.array([0, 1, 0, 1, 0, 1, 0])
    signs = np.where(np.arange(N) < 4, 1, -1) * (2 * y - 1)  # right, then wrong
    logits = jnp.asarray(size * signs, jnp.float32)[:, None]
    classes = isinstance(likelihood, Categorical)
    outputs = jnp.concatenate([jnp.zeros_like(logits), logits], 1) if classes else logits
    posterior, params = _posterior(likelihood, outputs, y)
    terms, gradient = jax.vjp(posterior.log_likelihood, params)
    np.testing.assert_allclose(terms, np.where(np.arange(N) < 4, 0.0, -np.float32(size)))
    expected = np.where(np.arange(N) < 4, 0, 2 * y - 1)
    (gradient,) = gradient(jnp.ones_like(terms))
    np.testing.assert_allclose(gradient["outputs"][:, -1], expected, atol=1e-6)


def test_scales_by_softplus_hold_far_out_in_float32():
    """At the floor no scale is zero, and large scales are the outputs themselves."""
    raw = np.array([-1e30, -200.0, -50.0, 0.0, 50.0, 1e5, 1e30])
    scale = np.maximum(np.logaddexp(0, raw), 0) + 1e-6
    outputs = jnp.asarray(np.stack([np.zeros(N), raw], axis=1), jnp.float32)
    y = jnp.full(N, 1e-3, jnp.float32)
    terms, pull = jax.vjp(lambda o: SoftplusScaleGaussian().log_prob(o, y), outputs)
    np.testing.assert_allclose(terms, scipy.stats.norm.logpdf(1e-3, 0, scale), rtol=1e-5)
    assert np.isfinite(pull(jnp.ones_like(terms))[0]).all()
    np.testing.assert_allclose(SoftplusScaleGaussian().predictive(outputs, 1).scale, scale, 1e-5)
    # Where the variance itself would be nought in float32.
    small = SoftplusScaleGaussian(1e-25).log_prob(outputs[:1], jnp.zeros(1))
    np.testing.assert_allclose(small, 25 * np.log(10) - 0.5 * np.log(2 * np.pi), rtol=1e-6)


def test_log_variances_below_the_end_of_the_exponential_have_terms_and_slopes():
    """A target that its mean meets: infinity times zero."""
    log_variance = np.array([-80.0, -95.0, -170.0, -95.0], np.float32)
    mean = np.array([1.0, 1.0, 1.0, 3.0], np.float32)
    y = jnp.ones(4)

    def terms(outputs):
        return HeteroscedasticGaussian().log_prob(outputs, y)

    outputs = jnp.asarray(np.stack([mean, log_variance], axis=1))
    scale = np.exp(0.5 * log_variance.astype(float))
    expected = scipy.stats.norm.logpdf(np.asarray(y, float), mean.astype(float), scale)
    np.testing.assert_allclose(terms(outputs)[:3], expected[:3], rtol=1e-5)
    assert terms(outputs)[3] < -1e37
    slopes = jax.grad(lambda outputs: terms(outputs)[:3].sum())(outputs)
    np.testing.assert_array_equal(slopes[:3], [[0, -0.5]] * 3)


def test_the_noise_scale_may_be_traced(rng):
    outputs, y = jnp.asarray(rng.normal(size=(2, N, 2)), jnp.float32)

    def total(noise_scale):
        posterior, params = _posterior(Gaussian(noise_scale), outputs, y)
        return posterior.log_likelihood(params).sum()

    values = jax.jit(jax.vmap(total))(jnp.array([0.5, 2.0]))
    expected = [scipy.stats.norm.logpdf(y, outputs, s).sum() for s in (0.5, 2.0)]
    np.testing.assert_allclose(values, expected, rtol=1e-5)


def _data_error(likelihood, outputs, y, **more):
    return lambda: _posterior(likelihood, jnp.zeros(outputs, jnp.float32), np.asarray(y), **more)


LABELS = [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize(
    ("make", "error", "sentence"),
    [
        (lambda: Gaussian(0.0), ValueError, "noise_scale must be positive"),
        (lambda: SoftplusScaleGaussian(0.0), ValueError, "floor must be positive"),
        (lambda: SoftplusScaleGaussian(np.ones(2)), ValueError, "floor must be one number"),
        (lambda: CrossEntropy(-1.0), ValueError, "temperature must be positive"),
        (
            _data_error(Gaussian(np.ones(3)), (N, 2), np.zeros((N, 2))),
            ValueError,
            r"noise_scale has shape \(3,\)",
        ),
        (
            _data_error(Gaussian(1.0), (N, 2), np.zeros((N, 3))),
            ValueError,
            r"Gaussian needs a network of output width 3 for y of shape \(7, 3\)",
        ),
        (_data_error(Gaussian(1.0), (N, 2), np.zeros(N)), ValueError, "output width 1"),
        (
            _data_error(LearnedGaussian(), (N, 2), np.zeros(N), log_noise_scale=0.0),
            ValueError,
            "LearnedGaussian needs a network of output width 1",
        ),
        (
            _data_error(HeteroscedasticGaussian(), (N, 3), np.zeros((N, 3))),
            ValueError,
            "HeteroscedasticGaussian needs a network of output width 6",
        ),
        (_data_error(Bernoulli(), (N, 2), np.zeros(N)), ValueError, "Bernoulli needs a network"),
        (
            _data_error(Bernoulli(), (N, 1), LABELS),
            ValueError,
            r"labels of Bernoulli must be 0 or 1, but y holds 2 at index \(2,\)",
        ),
        (_data_error(Categorical(), (N, 1), LABELS), ValueError, "one output per class"),
        (
            _data_error(Categorical(), (N, 2), LABELS),
            ValueError,
            r"labels must lie in 0..1, .* y holds 2 at index \(2,\)",
        ),
        (_data_error(Categorical(), (N, 3), np.array(LABELS) - 1), ValueError, "y holds -1"),
        (_data_error(Categorical(), (N, 3), np.array(LABELS) * 1.0), TypeError, "be integers"),
        (
            _data_error(CrossEntropy(1.0), (N, 3), np.eye(3, dtype=int)[LABELS]),
            ValueError,
            r"labels must have shape \(n,\)",
        ),
    ],
)
def test_bad_input_gets_one_sentence(make, error, sentence):
    with pytest.raises(error, match=sentence) as caught:
        make()
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


@dataclasses.dataclass(frozen=True)
class Laplace(Likelihood):
    """A likelihood of a user's own: a leaf, a static field, two methods."""

    scale: float
    power: int = dataclasses.field(default=1, metadata={"static": True})

    def log_prob(self, outputs, y):
        return self.power * self.predictive(outputs, y.ndim).log_prob(y)

    def predictive(self, outputs, rank):
        return dist.Laplace(lay_out(outputs, rank), self.scale).to_event(rank - 1)


def test_a_likelihood_of_ones_own(x64, rng):
    outputs, y = rng.normal(size=(2, N))
    posterior, params = _posterior(Laplace(0.7, 2), jnp.asarray(outputs)[:, None], y)
    expected = 2 * scipy.stats.laplace.logpdf(y, outputs, 0.7)
    found = jax.jit(lambda target, p: target.log_likelihood(p))(posterior, params)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    # The scale is a leaf: one program for a grid of them, and a derivative.
    scales = jnp.array([0.3, 0.7])

    def total(scale):
        return jnp.sum(Laplace(scale, 2).log_prob(jnp.asarray(outputs), jnp.asarray(y)))

    np.testing.assert_allclose(jax.vmap(total)(scales)[1], expected.sum(), rtol=1e-12)
    leaves = jax.tree_util.tree_leaves_with_path(posterior.likelihood)
    assert [(jax.tree_util.keystr(path), leaf) for path, leaf in leaves] == [(".scale", 0.7)]
    slope = scipy.optimize.approx_fprime([0.7], lambda s: float(total(s[0])), 1e-7)
    np.testing.assert_allclose(jax.grad(total)(0.7), slope[0], rtol=1e-4)
    with pytest.raises(ValueError, match="Laplace needs a network of output width 1"):
        Posterior(lambda p, x: x @ p, normal_prior(jnp.ones((1, 2))), Laplace(0.7), y[:, None], y)


def test_attributes_that_are_no_fields_are_refused():
    class Scaled(Bernoulli):
        pass

    scaled = Scaled()
    object.__setattr__(scaled, "scale", 2.0)
    with pytest.raises(TypeError, match="Scaled has attributes but is no dataclass"):
        jax.tree.leaves(scaled)


@pytest.mark.parametrize(
    "likelihood", [Gaussian(0.5), SoftplusScaleGaussian(), Ordinal(3, jnp.array([-0.5, 0.5]))]
)
def test_outputs_of_whole_numbers_are_refused(likelihood, annotations_unchecked):
    """In their type targets, scales and cutpoints of .5 were 0, and terms NaN or wrong."""
    is_ordinal = isinstance(likelihood, Ordinal)
    y = np.arange(N) % 3 if is_ordinal else np.linspace(-1, 1, N)
    width = 2 if isinstance(likelihood, SoftplusScaleGaussian) else 1

    def above(params, x):
        return jnp.tile(jnp.where(x > params["threshold"], 1, 0), (1, width))

    prior = {"threshold": dist.Normal(0.0, 1.0)}
    posterior = Posterior(above, prior, likelihood, np.ones((N, 1)), y)
    params = {"threshold": jnp.zeros(())}
    for function in (posterior.log_likelihood, lambda p: posterior.predictive(p, posterior.x)):
        with pytest.raises(TypeError, match="outputs must be floating point, but has dtype int32"):
            function(params)
