"""Tests of ensembles.initial and ensembles.arguments: where training begins; what is refused."""

import jax
import numpy as np
import numpyro.distributions as dist
import optax
import pytest
import scipy.stats
from numpyro.distributions.transforms import AffineTransform

import jaxbnn
from jaxbnn.ensembles import optimised_starts
from jaxbnn.ensembles.arguments import checked_arguments
from jaxbnn.ensembles.initial import initial_positions
from jaxbnn.targets import Categorical, Gaussian, LearnedGaussian, Posterior, hierarchical_prior

X, Y = np.ones((20, 5), np.float32), np.ones(20, np.float32)
NETWORK = jaxbnn.mlp((5, 8, 1))


def keys(count=400):
    return jax.random.split(jax.random.key(1), count)


def prior_draw(*shape):
    return POSTERIOR.sample_prior(jax.random.key(1), shape)


def sizes(array, sd):
    """p-value of the hypothesis that the entries are N(0, sd^2)."""
    return scipy.stats.kstest(np.asarray(array).ravel() / sd, "norm").pvalue


def test_networks_begin_as_init_draws_them():
    starts = initial_positions(keys(), Posterior(NETWORK, dist.Normal(0, 1), Gaussian(1.0), X, Y))
    assert starts[0]["w"].shape == (400, 5, 8)
    assert sizes(starts[0]["w"], 5**-0.5) > 1e-6
    assert sizes(starts[2]["w"], 8**-0.5) > 1e-6
    assert not np.asarray(starts[0]["b"]).any()
    wide = jaxbnn.mlp((5, 8, 1), parametrisation="ntk")
    starts = initial_positions(keys(), Posterior(wide, dist.Normal(0, 1), Gaussian(1.0), X, Y))
    assert sizes(starts[0]["w"], 1.0) > 1e-6
    assert sizes(starts[0]["b"], 1.0) > 1e-6


def test_what_the_likelihood_learns_begins_at_its_priors_mean():
    prior = {"network": dist.Normal(0, 1), "log_noise_scale": dist.Normal(-3.0, 2.0)}
    starts = initial_positions(keys(), Posterior(NETWORK, prior, LearnedGaussian(), X, Y))
    np.testing.assert_array_equal(starts["log_noise_scale"], -3.0)
    assert sizes(starts["network"][0]["w"], 5**-0.5) > 1e-6
    scales = {"log_noise_scale": dist.Normal(-2.0, 0.5)}
    prior = hierarchical_prior(NETWORK, likelihood=scales)
    starts = initial_positions(keys(), Posterior(NETWORK, prior, LearnedGaussian(), X, Y))
    np.testing.assert_array_equal(starts["log_noise_scale"], -2.0)
    assert len(np.unique(starts["log_precision"][0]["w"])) > 1
    # Where there is no mean, or NumPyro does not know it, draws.
    moved = dist.TransformedDistribution(dist.Normal(0.0, 1.0), AffineTransform(0.0, 2.0))
    for law in (dist.Cauchy(0.0, 1.0), moved):
        prior = {"network": dist.Normal(0, 1), "log_noise_scale": law}
        starts = initial_positions(keys(), Posterior(NETWORK, prior, LearnedGaussian(), X, Y))
        assert len(np.unique(starts["log_noise_scale"])) == len(starts["log_noise_scale"])


@pytest.mark.short("standardised")
@pytest.mark.parametrize("is_centred", [True, False], ids=["centred", "standardised"])
def test_weights_of_a_hierarchical_prior_begin_at_the_same_size(is_centred):
    network = jaxbnn.mlp((5, 1))
    prior = hierarchical_prior(network, is_centred=is_centred, concentration=4.0, rate=0.1)
    posterior = Posterior(network, prior, Gaussian(1.0), X, Y)
    starts = initial_positions(keys(), posterior)
    params = jax.vmap(prior.network_parameters)(starts)
    assert sizes(params[0]["w"], 5**-0.5) > 1e-6
    precision = np.exp(starts["log_precision"][0]["w"])
    assert scipy.stats.kstest(precision, scipy.stats.gamma(4.0, scale=10.0).cdf).pvalue > 1e-6


def test_weights_of_other_functions_are_shrunk_and_never_grown():
    def apply(params, x):
        return jax.nn.relu(x @ params["v"]) @ params["u"] + params["b"][None]

    like = {"v": np.zeros((5, 400)), "u": np.zeros((400, 1)), "b": np.zeros(1)}
    prior = {"v": dist.Normal(0, 7.0), "u": dist.Normal(0, 1e-3), "b": dist.Normal(0, 3.0)}
    posterior = Posterior(apply, jaxbnn.targets.expand_prior(prior, like), Gaussian(1.0), X, Y)
    starts = initial_positions(keys(), posterior)
    size = np.sqrt(np.mean(np.square(starts["v"]), axis=(1, 2)))
    np.testing.assert_allclose(size, 5**-0.5, rtol=1e-5)
    assert sizes(starts["u"], 1e-3) > 1e-6
    assert sizes(starts["b"], 3.0) > 1e-6


def test_where_the_prior_has_no_density_its_own_draw_is_kept():
    network = jaxbnn.mlp((1, 1))
    prior = ({"w": dist.Normal(0, 1), "b": dist.Uniform(1.0, 2.0)},)
    posterior = Posterior(network, prior, Gaussian(1.0), X[:, :1], Y)
    starts = initial_positions(keys(50), posterior)
    assert np.isfinite(jax.vmap(posterior.log_prior)(starts)).all()
    assert len(np.unique(starts[0]["b"])) == 50


POSTERIOR = Posterior(NETWORK, dist.Normal(0, 1), Gaussian(1.0), X, Y)
CLASSES = jaxbnn.mlp((5, 3))
STARTS = jax.tree.map(lambda leaf: np.ones((2, *leaf.shape), np.float32), {"w": X, "b": Y})


def call(**options):
    options = {"posterior": POSTERIOR, "num_chains": 2, "progress": False} | options
    return optimised_starts(options.pop("key", jax.random.key(0)), **options)


BAD = [
    (lambda: call(batch_size=19), "batch_size is 19, but a chain trains on 18 rows only; give a"),
    (lambda: call(batch_size=0), "batch_size must be at least 1"),
    (lambda: call(patience=0), "patience must be at least 1"),
    (lambda: call(patience=1.5), "patience must be a whole number"),
    (lambda: call(max_epochs=0), "max_epochs must be at least 1"),
    (lambda: call(num_chains=0), "num_chains must be at least 1"),
    (lambda: call(validation=0.01), "validation=0.01 of 20 rows leaves none to stop by; give"),
    (lambda: call(validation=0.99), "validation=0.99 of 20 rows leaves none to train on; give"),
    (lambda: call(validation=1.0), "validation must lie between 0 and 1"),
    (lambda: call(validation=0), "0.1 holds out a tenth of the rows"),
    (lambda: call(optimizer="adam"), "optimizer must be one of Optax"),
    (
        lambda: call(optimizer=optax.lbfgs()),
        r"optimizer must do with .* update\(gradients, state, position\), but this one",
    ),
    (lambda: call(mesh=3), "mesh must be a jax.sharding.Mesh"),
    (
        lambda: call(
            posterior=Posterior(NETWORK, dist.Normal(0, 1), Gaussian(1.0), X.astype(np.float16), Y)
        ),
        r"positions\[0\]\['b'\] must be float32 or float64, but is float16; convert it",
    ),
    (lambda: call(posterior=NETWORK), "posterior must be a Posterior"),
    (lambda: call(key=7), "key must be one key"),
    (lambda: call(checkpoint=3), "checkpoint must be the path of a folder"),
    (lambda: call(positions=STARTS), "positions must be arranged as draws of posterior"),
    (lambda: call(positions=prior_draw()), "but 2 chains of this posterior"),
    (
        lambda: call(positions=prior_draw(3)),
        r"positions\[0\]\['b'\] has shape \(3, 8\), but 2 chains of this posterior have \(2, 8\)",
    ),
    (
        lambda: call(positions=jax.tree.map(lambda w: w / 0, prior_draw(2))),
        "start every chain from finite numbers",
    ),
    (
        lambda: call(
            posterior=Posterior(CLASSES, dist.Normal(0, 1), Categorical(), X, np.full(20, 3))
        ),
        r"labels must lie in 0..2, .* y holds 3 at index \(0,\)",
    ),
    (
        lambda: jax.jit(lambda key: call(key=key))(jax.random.key(0)),
        "cannot be called inside jax.jit",
    ),
]


@pytest.mark.third_party(reason="what is refused is never run")
@pytest.mark.parametrize(("make", "sentence"), BAD, ids=range(len(BAD)))
def test_bad_input_gets_one_sentence(annotations_unchecked, make, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence) as caught:
        make()
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("rows", "trained", "batch_size"), [(20, 18, 18), (1000, 900, 32), (50_000, 45_000, 512)]
)
def test_batches_are_chosen_by_the_number_of_rows(rows, trained, batch_size):
    posterior = POSTERIOR.with_data(np.ones((rows, 5)), np.ones(rows))
    asked = checked_arguments(jax.random.key(0), posterior, 2, None, None, 0.1, 9, 9, None, None)
    assert (asked.plan.num_trained, asked.num_held_out) == (trained, rows - trained)
    assert asked.plan.batch_size == batch_size
    again = checked_arguments(jax.random.key(0), posterior, 2, None, None, 0.1, 9, 9, None, None)
    assert asked.plan == again.plan  # one optimiser by default: its program is found again
