"""Tests of numerics.sums and targets.rounding: accept ratios on 60,000 data in float32, judged in
float64, and warnings of data that float32 rounds.
"""

import warnings

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

from jaxbnn.networks import mlp
from jaxbnn.numerics import sum_of_differences
from jaxbnn.targets import (
    Gaussian,
    HeteroscedasticGaussian,
    Laplace,
    LearnedGaussian,
    Posterior,
    StudentT,
    normal_prior,
)
from jaxbnn.targets.rounding import warn_of_rounded_targets

N, STEPS, NOISE_SCALE = 60_000, 24, 0.1


def _exact_log_density(position, x, y):
    """Log density in float64, written out: the judge."""
    ((layer),) = position
    prior = sum(scipy.stats.norm.logpdf(values).sum() for values in layer.values())
    outputs = x.astype(np.float64) @ layer["w"] + layer["b"]
    return scipy.stats.norm.logpdf(y.astype(np.float64), outputs, NOISE_SCALE).sum() + prior


def _exact_acceptance(info, start, x, y):
    """Return min(1, exp(H(start) - H(proposal))) in float64 at the very points HMC went to."""

    def energy(position, momentum):
        kinetic = sum(np.sum(m**2) for m in jax.tree.leaves(momentum)) / 2
        return kinetic - _exact_log_density(position, x, y)

    start, info = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), (start, info))
    ratios = []
    for i in range(STEPS):
        before, proposal = jax.tree.map(lambda leaf: leaf[i], (info.momentum, info.proposal))  # noqa: B023
        ratios.append(energy(start, before) - energy(proposal.position, proposal.momentum))
    return np.exp(np.minimum(0, ratios))


@pytest.mark.long
@pytest.mark.third_party(reason="BlackJAX's HMC mixes dtypes and ranks")
def test_hmc_accepts_rightly_in_float32_where_plain_totals_do_not(rng):
    network = mlp((4, 1))
    x = rng.normal(size=(N, 4)).astype(np.float32)
    # Noise taken for a fifth of what it is: the total is near -7e5, where float32 steps by 0.06.
    y = (x.sum(axis=1, keepdims=True) + 5 * NOISE_SCALE * rng.normal(size=(N, 1))).astype("f4")
    posterior = Posterior(network, normal_prior(network), Gaussian(NOISE_SCALE), x, y)
    # A typical point: the mode, up to the posterior's own spread.
    mode = np.linalg.lstsq(np.c_[x, np.ones(N)], y, rcond=None)[0]
    point = (mode + NOISE_SCALE / np.sqrt(N) * rng.normal(size=(5, 1))).astype("f4")
    start = ({"w": jnp.asarray(point[:4]), "b": jnp.asarray(point[4])},)

    @jax.jit
    def steps(keys):
        def with_density(log_density):
            kernel = blackjax.hmc(log_density, 5e-4, jnp.ones(5), num_integration_steps=3)
            state = kernel.init(start)
            return jax.lax.map(lambda key: kernel.step(key, state)[1], keys)

        return with_density(posterior.log_density_from(start)), with_density(posterior.log_density)

    from_reference, plain = steps(jax.random.split(jax.random.key(6), STEPS))
    exact = _exact_acceptance(from_reference, start, x, y)
    assert 0.3 < exact.mean() < 0.95  # ratios that could be wrong either way
    np.testing.assert_allclose(from_reference.acceptance_rate, exact, atol=1e-2, rtol=0)
    exact = _exact_acceptance(plain, start, x, y)
    assert np.max(np.abs(plain.acceptance_rate - exact)) > 2e-2


def _posed(offset, noise_scale, dtype):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1000, 1)).astype(dtype)
    y = (offset + x + noise_scale * rng.normal(size=x.shape)).astype(dtype)
    network = mlp((1, 1))
    return Posterior(network, normal_prior(network), Gaussian(noise_scale), x, y)


@pytest.mark.parametrize("shapes", [((3, 1), (3,)), ((2, 3), (3, 2)), ((1, 1), (1,))])
def test_terms_of_other_shapes_are_not_broadcast(shapes):
    with pytest.raises(ValueError, match="in one shape, but their shapes are"):
        sum_of_differences(*map(jnp.ones, shapes))
    assert float(sum_of_differences(jnp.ones(1), jnp.ones(()))) == 0


def test_whole_terms_do_not_wrap(annotations_unchecked):
    assert float(sum_of_differences(np.array([3], np.uint8), np.array([4], np.uint8))) == -1


def test_targets_in_bfloat16_are_warned_of():
    """As floats of 8 bits, and not as float32."""
    with pytest.warns(UserWarning, match="too much for bfloat16"):
        warn_of_rounded_targets(jnp.array([100.0, 101.0], jnp.bfloat16), 0.1)


def test_targets_that_their_floats_cannot_hold_are_warned_of():
    with pytest.warns(UserWarning, match=r"about 0\.47 nats; subtract the targets' mean"):
        _posed(1000.0, 1e-3, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _posed(0.0, 1e-3, np.float32)
        _posed(1000.0, 1e-1, np.float32)
        with jax.enable_x64(True):
            _posed(1000.0, 1e-3, np.float64)


def test_the_warning_of_large_targets_gives_the_error_of_rounding():
    """Differences between likely neighbours in float32, against float64."""
    with pytest.warns(UserWarning, match=r"about 0\.47 nats"):
        posterior = _posed(1000.0, 1e-3, np.float32)
    rng = np.random.default_rng(1)
    first = np.array([1.0, 1000.0])
    points = [first, *(first + 1e-3 / np.sqrt(1000) * rng.normal(size=(40, 2)))]
    points = [np.float32(point) for point in points]
    x, y = np.asarray(posterior.x, float)[:, 0], np.asarray(posterior.y, float)[:, 0]

    def exact(point):
        w, b = point.astype(float)
        return -0.5 * (np.sum(((y - w * x - b) / 1e-3) ** 2) + w**2 + b**2)

    def position(point):
        return ({"w": point[:1, None], "b": point[1:]},)

    difference = posterior.log_density_from(position(points[0]))
    errors = [
        float(difference(position(point))) - (exact(point) - exact(points[0]))
        for point in points[1:]
    ]
    assert 0.47 / 4 < np.std(errors) < 0.47 * 2


UNKNOWN = [
    (LearnedGaussian(), 1),
    (HeteroscedasticGaussian(), 2),
    (StudentT(), 1),
    (Laplace(), 1),
]


def _of_noise(likelihood, width, x, y):
    own = {name: dist.Normal(0.0, 1.0) for name in likelihood.learned}
    prior = {"network": dist.Normal(0.0, 1.0), **own} if own else dist.Normal(0.0, 1.0)
    return Posterior(mlp((1, width)), prior, likelihood, x, y)


@pytest.mark.parametrize(("likelihood", "width"), UNKNOWN, ids=lambda case: type(case).__name__)
def test_targets_whose_rounding_hides_their_noise_are_warned_of(likelihood, width):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 1)).astype(np.float32)
    y = rng.normal(size=100)
    for large in (1e8 + y, np.asarray(1e8 + 100 * y, np.int64)):
        with pytest.warns(UserWarning, match=r"1e\+08 that vary by .* steps by 8 there"):
            _of_noise(likelihood, width, x, large)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _of_noise(likelihood, width, x, 7e3 + y)
        _of_noise(likelihood, width, x, np.full(100, 1e8))
        _of_noise(likelihood, width, x, np.full(100, 0.3))
        with jax.enable_x64(True):
            _of_noise(likelihood, width, x.astype(float), 1e8 + y)


@pytest.mark.parametrize("likelihood", [StudentT(4.0, 1.0), Laplace(1.0)])
def test_large_targets_with_heavy_tails_of_known_scale_are_warned_of(likelihood):
    x = np.linspace(0, 1, 100, dtype=np.float32)[:, None]
    with pytest.warns(UserWarning, match="with noise of scale 1 are too much for float32"):
        Posterior(mlp((1, 1)), dist.Normal(0.0, 1.0), likelihood, x, 1e8 + x[:, 0])


def test_inputs_that_were_given_in_more_precision_are_warned_of():
    y = np.zeros(100, np.float32)
    seconds = 1.6e9 + np.arange(100.0)
    x = np.stack([np.arange(100.0), seconds], axis=1)
    network = mlp((2, 1))
    with pytest.warns(UserWarning, match=r"x\[:, 1\], of .* so that 2 of 100 inputs"):
        Posterior(network, normal_prior(network), Gaussian(1.0), x, y)
    params = {"w": np.ones(1, np.float32)}
    with pytest.warns(UserWarning, match=r"x, of .* so that 2 of 100 inputs"):
        Posterior(
            lambda p, x: x.astype(jnp.float32) * p["w"],
            normal_prior(params),
            Gaussian(1.0),
            seconds.astype(int),
            y,
        )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # As they came, of little range, constant, or in double precision.
        for known in (x.astype(np.float32), x - [0, 1.6e9], 0 * x + 1.6e9):
            Posterior(network, normal_prior(network), Gaussian(1.0), known, y)
        with jax.enable_x64(True):
            Posterior(network, normal_prior(network), Gaussian(1.0), x, y)


@pytest.mark.usefixtures("annotations_unchecked")
@pytest.mark.parametrize("dtype", [jnp.uint8, jnp.int8, jnp.float16, jnp.bfloat16])
def test_differences_of_terms_of_few_bits_hold(dtype):
    """Unsigned, 0 - 100 was 156; 30,000 is beyond 8 bits, and has more digits than bfloat16."""
    proposed, current = jnp.full(300, 0, dtype), jnp.full(300, 100, dtype)
    found = sum_of_differences(proposed, current)
    assert found.dtype == jnp.float32
    assert float(found) == -30_000
