"""Tests of interop.numpyro_call, interop.numpyro_model and interop.numpyro_trace: what NumPyro
models may do besides sampling: right, by closed forms and NumPyro, or refused.
"""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.stats import norm as stats_norm
from numpyro import handlers
from numpyro.contrib.control_flow import cond, scan
from numpyro.contrib.module import flax_module, random_flax_module, random_nnx_module
from numpyro.infer.reparam import LocScaleReparam, TransformReparam
from numpyro.infer.util import potential_energy
from scipy import stats

import jaxbnn
from jaxbnn.interop.numpyro import kernel, posterior_from_numpyro

pytestmark = pytest.mark.third_party(reason="NumPyro promotes dtypes and ranks")
Y = np.array([0.5, 2.0, 1.1])
KEEP = np.array([True, False, True])


def observed(mean, y, scale=1.0):
    numpyro.sample("y", dist.Normal(mean, scale), obs=y)


def plain(y):
    observed(numpyro.sample("m", dist.Normal(0.0, 1.0)), y)


def chain(y):
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    observed(numpyro.sample("b", dist.Normal(a, 2.0)), y)


def factor(y):
    m = numpyro.sample("m", dist.Normal(0.0, 1.0))
    numpyro.factor("f", dist.Normal(m, 1.0).log_prob(y))


def masked(y):
    m = numpyro.sample("m", dist.Gamma(2.0, 1.0))
    with handlers.mask(mask=KEEP):
        observed(m, y)


def scaled_data(y):
    m = numpyro.sample("m", dist.Gamma(2.0, 1.0))
    with handlers.scale(scale=3.0):
        observed(m, y)


def improper(y):
    m = numpyro.sample("m", dist.ImproperUniform(dist.constraints.positive, (), ()))
    observed(numpyro.deterministic("twice", 2 * m), y)


def plates(y):
    with numpyro.plate("one", 1):
        m = numpyro.sample("m", dist.HalfNormal(1.0))
    with numpyro.plate("all", len(y), subsample_size=len(y)) as rows:
        observed(m, y[rows])


def simplex(y):
    observed(numpyro.sample("w", dist.Dirichlet(jnp.array([1.0, 2.0, 3.0]))), y)


def correlated(y):
    root = numpyro.sample("root", dist.LKJCholesky(3, 2.0))
    numpyro.sample("y", dist.MultivariateNormal(0.0, scale_tril=root), obs=y)


def moving_support(y):
    low = numpyro.sample("low", dist.Exponential(1.0))
    observed(numpyro.sample("high", dist.TruncatedNormal(0.0, 1.0, low=low)), y)


def walk(y):
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))

    def step(before, y_now):
        # A support that moves with the walk.
        now = numpyro.sample("x", dist.TruncatedNormal(0.0, scale, low=before))
        observed(now, y_now)
        return now, None

    scan(step, 0.0, y)


def branches(y):
    m = numpyro.sample("m", dist.Normal(0.0, 1.0))
    ends = [lambda _, e=e: numpyro.sample("x", dist.Normal(e, 1.0)) for e in (2.0, -2.0)]
    observed(cond(m > 0, *ends, None), y)


def transformed(y):
    base = dist.Normal(0.0, 1.0)
    log_normal = dist.TransformedDistribution(base, dist.transforms.ExpTransform())
    observed(numpyro.sample("m", log_normal), y)


RIGHT = {
    "factor": factor,
    "mask": masked,
    "scale of data": scaled_data,
    "improper prior": improper,
    "plates of size one, and whole": plates,
    "simplex": simplex,
    "Cholesky factor of a correlation": correlated,
    "support that moves": moving_support,
    "scan": walk,
    "cond": branches,
    "transformed": transformed,
    "condition": handlers.condition(chain, data={"a": jnp.array(0.3)}),
    "condition in a scan": handlers.condition(walk, data={"x": jnp.array([0.1, 0.4, 0.9])}),
    "do": handlers.do(chain, data={"a": jnp.array(0.3)}),
    "reparam": handlers.reparam(chain, config={"b": LocScaleReparam(0.0)}),
    "reparam of a transform": handlers.reparam(transformed, config={"m": TransformReparam()}),
}


# One of a kind: the others differ in what NumPyro itself does of it.
SHORT = {"factor", "mask", "scale of data", "improper prior", "support that moves", "scan", "do"}


@pytest.mark.short("factor")
@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=[] if one in SHORT else [pytest.mark.long]) for one in RIGHT],
)
def test_log_densities_are_numpyros(name, x64):
    """The Jacobian is there once, and gradients too."""
    posterior = posterior_from_numpyro(RIGHT[name], Y)
    rng = np.random.default_rng(1)
    u = {site: jnp.asarray(rng.normal(size=shape)) for site, shape in posterior.shapes}

    def theirs(position):
        return -potential_energy(RIGHT[name], (Y,), {}, position)

    expected, slope = jax.value_and_grad(theirs)(u)
    found, our_slope = jax.value_and_grad(posterior.log_density)(u)
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8), our_slope, slope)
    # Each part of it, and the way to the sites' values and back.
    parts = posterior.log_prior(u) + posterior.log_likelihood(u).sum()
    np.testing.assert_allclose(parts, expected, rtol=1e-10)
    back = posterior.unconstrain(posterior.constrain(u))
    assert set(back) == set(u)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8), back, u)


def test_scaled_latent_sites_have_a_power_of_their_density(x64):
    """Gamma(2, 1)^3 is Gamma(4, 3), whatever the coordinates; NumPyro scales the Jacobian too."""

    def model(y):
        with handlers.scale(scale=3.0):
            m = numpyro.sample("m", dist.Gamma(2.0, 1.0))
        with handlers.mask(mask=False):
            observed(m, y)

    posterior = posterior_from_numpyro(model, Y)
    u = jnp.linspace(-2.0, 2.0, 5)
    found = jax.vmap(lambda v: posterior.log_density({"m": v}))(u)
    expected = stats.gamma.logpdf(np.exp(u), 4, scale=1 / 3) + u
    np.testing.assert_allclose(found - found[0], expected - expected[0], rtol=1e-10)


def test_masked_nan_stays_out(x64):
    posterior = posterior_from_numpyro(masked, np.where(KEEP, Y, np.nan))
    value, slope = jax.value_and_grad(posterior.log_density)({"m": jnp.array(0.3)})
    whole = posterior_from_numpyro(masked, Y).log_density({"m": jnp.array(0.3)})
    np.testing.assert_allclose(value, whole, rtol=1e-12)
    assert np.isfinite(slope["m"])


def test_static_arguments_and_arguments_fixed_in_the_model(x64):
    def model(y, depth, activation="tanh", scale=1.0):
        m = numpyro.sample("m", dist.Normal(0.0, 1.0))
        for _ in range(depth):
            m = getattr(jnp, activation)(m)
        observed(m, y, scale)

    posterior = posterior_from_numpyro(model, Y, 2, activation="sin", scale=0.7)
    log_density = jax.jit(lambda target, u: target.log_density(u))
    found = log_density(posterior, {"m": jnp.array(0.4)})
    likelihood = stats.norm.logpdf(Y, np.sin(np.sin(0.4)), 0.7).sum()
    np.testing.assert_allclose(found, likelihood + stats.norm.logpdf(0.4), rtol=1e-12)
    assert posterior.args[1] == 2
    assert posterior.kwargs == {"activation": "sin", "scale": 0.7}
    # The same model with its data fixed; and as the shared data of a run.
    fixed = posterior_from_numpyro(lambda: model(Y, 2, "sin", 0.7))
    np.testing.assert_allclose(fixed.log_density({"m": jnp.array(0.4)}), found, rtol=1e-12)
    draws = jaxbnn.sample(
        jax.random.key(0),
        lambda _, target: jaxbnn.underdamped_langevin(target.log_density, 0.5, 1.0),
        {"m": jnp.zeros(2)},
        3,
        data=posterior,
        progress=False,
    )
    assert np.isfinite(draws.positions["m"]).all()


def network_of(make):
    def model(x, y):
        numpyro.sample("y", dist.Normal(make()(x)[:, 0], 1.0), obs=y)

    return model


X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2)


@pytest.mark.long
def test_random_modules_have_priors_on_all_their_parameters():
    nn = pytest.importorskip("flax.linen")
    nnx = pytest.importorskip("flax.nnx")
    normal = dist.Normal(0.0, 1.0)
    linear = nnx.Linear(2, 1, rngs=nnx.Rngs(0))
    makes = (
        lambda: random_flax_module("net", nn.Dense(1), normal, input_shape=(2,)),
        lambda: random_nnx_module("net", linear, normal),
    )
    for make in makes:
        posterior = posterior_from_numpyro(network_of(make), X, Y)
        u = {name: jnp.full(shape, 0.5) for name, shape in posterior.shapes}
        outputs = X @ np.full(2, 0.5) + 0.5
        expected = stats.norm.logpdf(Y, outputs).sum() + 3 * stats.norm.logpdf(0.5)
        np.testing.assert_allclose(posterior.log_density(u), expected, rtol=1e-6)


def test_modules_with_a_state_or_without_a_prior_are_refused():
    nn = pytest.importorskip("flax.linen")
    normal = dist.Normal(0.0, 1.0)
    normed = nn.Sequential([nn.Dense(1), nn.BatchNorm(use_running_average=False)])
    stateful = network_of(
        lambda: random_flax_module(
            "net", normed, normal, input_shape=(3, 2), mutable=["batch_stats"]
        )
    )
    partly = network_of(
        lambda: random_flax_module("net", nn.Dense(1), {"kernel": normal}, input_shape=(2,))
    )
    plain_module = network_of(lambda: flax_module("net", nn.Dense(1), input_shape=(2,)))
    with pytest.raises(ValueError, match=r"keeps the state 'net\$state' between calls"):
        posterior_from_numpyro(stateful, X, Y)
    for model in (partly, plain_module):
        with pytest.raises(ValueError, match=r"parameter 'net\$params' has no prior"):
            posterior_from_numpyro(model, X, Y)


def minibatch(y):
    m = numpyro.sample("m", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", len(y), subsample_size=2) as rows:
        observed(m, y[rows])


def minibatch_in_a_scan(y):
    m = numpyro.sample("m", dist.Normal(0.0, 1.0))

    def step(carry, row):
        with numpyro.plate("data", 3, subsample_size=2) as rows:
            observed(m, row[rows])
        return carry, None

    scan(step, 0.0, jnp.stack([y, y]))


def own_minibatch(y):
    m = numpyro.sample("m", dist.Normal(0.0, 1.0))
    observed(m, y[jax.random.choice(numpyro.prng_key(), 3, (2,), replace=False)])


def param(y):
    observed(numpyro.sample("m", dist.Normal(0.0, 1.0)), y, numpyro.param("scale", 2.0))


def drawn_mask(y):
    with numpyro.plate("data", 3), handlers.mask(mask=KEEP):
        observed(numpyro.sample("z", dist.Normal(0.0, 1.0)), y)


def missing(y):
    m = numpyro.sample("m", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(m, 1.0), obs=y, obs_mask=KEEP)


def enumerated(y):
    z = numpyro.sample("z", dist.Bernoulli(0.5), infer={"enumerate": "parallel"})
    observed(numpyro.sample("m", dist.Normal(0.0, 1.0)) + z, y)


def delta(y):
    observed(numpyro.sample("m", dist.Delta(1.0)), y)


def label(y):
    numpyro.sample(
        "y", dist.Bernoulli(logits=numpyro.sample("m", dist.Normal())), obs=jnp.array([0, 2])
    )


def sphere(y):
    observed(numpyro.sample("m", dist.ProjectedNormal(jnp.ones(3))), y)


REFUSED = {
    "plate 'data' takes 2 of its 3 rows": minibatch,
    "random numbers besides its sample sites": own_minibatch,
    "parameter 'scale' has no prior": param,
    "'z' is masked": drawn_mask,
    "'y_unobserved' is masked": missing,
    "'z' is discrete": enumerated,
    "'m' is a Delta": delta,
    "'y' holds data outside the support of its BernoulliLogits": label,
    "'m' has the support": sphere,
    "latent site 'a' is given a value by handlers.substitute": handlers.substitute(
        chain, data={"a": jnp.array(0.3)}
    ),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_no_density_of_the_latent_sites_is_refused(words):
    with pytest.raises(ValueError, match=words):
        posterior_from_numpyro(REFUSED[words], Y)


def test_a_minibatch_in_a_scan_is_refused():
    with pytest.raises(ValueError, match="random numbers besides its sample sites"):
        posterior_from_numpyro(minibatch_in_a_scan, Y)


@pytest.mark.parametrize("model", [minibatch, param, drawn_mask, enumerated])
def test_kernels_in_numpyros_loop_refuse_the_same(model):
    made = kernel(lambda target: jaxbnn.underdamped_langevin(target, 0.1, 1.0), model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ValueError, match=r"rows at random|no prior|is masked|is discrete"):
            made.init(jax.random.key(0), 0, None, (Y,), {})


def test_kernels_in_numpyros_loop_start_improper_priors():
    made = kernel(lambda target: jaxbnn.underdamped_langevin(target, 0.1, 1.0), improper)
    state = made.init(jax.random.key(0), 0, None, (Y,), {})
    expected = posterior_from_numpyro(improper, Y).log_density(state.z)
    np.testing.assert_allclose(state.kernel_state.log_density, expected, rtol=1e-5)


@pytest.mark.parametrize("space", ["unconstrained", "constrained"])
def test_stacked_draws_go_through_vmap(space):
    """What a model made of them was no draw of it."""
    posterior = posterior_from_numpyro(chain, Y, space=space)
    stacked = posterior.sample_prior(jax.random.key(0), (3,))
    calls = [
        posterior.unconstrain,
        lambda position: posterior.simulate(jax.random.key(1), position, Y),
    ]
    for call in [*calls, posterior.constrain] if space == "unconstrained" else calls:
        with pytest.raises(ValueError, match=r"'a' has shape \(3,\), but .* through jax.vmap"):
            call(stacked)
        with pytest.raises(ValueError, match="'c', which is no latent site"):
            call({"c": jnp.zeros(())})


def test_more_sentences():
    posterior = posterior_from_numpyro(improper, Y)
    with pytest.raises(ValueError, match="prior of the site 'm' is improper"):
        posterior.sample_prior(jax.random.key(0))
    posterior = posterior_from_numpyro(chain, Y)
    with pytest.raises(ValueError, match=r"'a' has shape \(4,\)"):
        posterior.log_density({"a": jnp.zeros(4), "b": jnp.zeros(4)})
    with pytest.raises(ValueError, match="'c', which is no latent site"):
        posterior.log_density(dict.fromkeys("abc", jnp.zeros(())))
    with pytest.raises(ValueError, match="'y' holds nan"):
        posterior_from_numpyro(chain, np.where(KEEP, Y, np.nan))
    with pytest.raises(ValueError, match="fewer degrees of freedom than numbers"):
        posterior_from_numpyro(simplex, Y, space="constrained")
    with pytest.raises(TypeError, match="arguments that it does not take"):
        posterior_from_numpyro(chain)
    with pytest.raises(TypeError, match="of type set, which is neither an array nor hashable"):
        posterior_from_numpyro(lambda y, names: chain(y), Y, {"a"})


@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16, np.float32])
def test_numpy_arrays_of_all_floats_are_arguments(dtype):
    def model(x):
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(a, 1.0), obs=jnp.sum(x).astype(a.dtype))

    posterior = posterior_from_numpyro(model, np.asarray(jnp.ones(3, dtype)))
    expected = dist.Normal(0.0, 1.0).log_prob(0.5) + dist.Normal(0.5, 1.0).log_prob(3.0)
    np.testing.assert_allclose(posterior.log_density({"a": jnp.float32(0.5)}), expected, rtol=1e-5)


def of_mean(x, y=None):
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(mean * x, 1.0), obs=y)


@pytest.mark.parametrize("beyond", [3_000_000_000, 1e39])
def test_arguments_that_jax_does_not_hold_are_refused(beyond):
    """As 32 bits the whole number is another, and the float an infinity."""
    with pytest.raises(ValueError, match=r"an argument of the model holds (3e.09|1e.39), which"):
        posterior_from_numpyro(of_mean, np.array([beyond, 1]), np.ones(2, np.float32))


def test_arguments_that_are_rounded_are_told():
    seconds = 1.7e9 + np.arange(50.0)
    with pytest.warns(UserWarning, match="an argument of the model, .* is rounded to float32"):
        posterior_from_numpyro(of_mean, seconds, np.ones(50))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        posterior_from_numpyro(of_mean, seconds - 1.7e9, np.ones(50))


@pytest.mark.parametrize("is_validated", [True, False])
@pytest.mark.parametrize(
    ("law", "outside"),
    [
        (dist.Uniform(0.0, 1.0), 2.0),
        (dist.HalfNormal(1.0), -1.0),
        (dist.Gamma(2.0, 1.0), -1.0),
        (dist.Beta(2.0, 2.0), 1.5),
        (dist.Uniform(0.0, 1.0).expand((2,)).to_event(1), [0.5, 2.0]),
    ],
    ids=["uniform", "half-normal", "gamma", "beta", "vector"],
)
def test_there_is_no_mass_outside_a_constrained_support(law, outside, is_validated):
    """Whatever NumPyro validates; and inside nothing changes."""

    def model(y):
        value = numpyro.sample("value", law)
        numpyro.sample("y", dist.Normal(jnp.sum(value), 1.0), obs=y)

    was = dist.Distribution._validate_args
    numpyro.enable_validation(is_validated)
    try:
        posterior = posterior_from_numpyro(model, np.zeros(2, np.float32), space="constrained")
        log_density = jax.jit(jax.value_and_grad(posterior.log_density))
        value, slope = log_density({"value": jnp.asarray(outside)})
        assert np.isneginf(value)
        assert np.isfinite(slope["value"]).all()
        inside = jnp.full(jnp.shape(outside), 0.25)
        value, _ = log_density({"value": inside})
        of_data = 2 * stats.norm.logpdf(0.25 * np.size(outside))
        assert value == pytest.approx(float(law.log_prob(inside)) + of_data, rel=1e-5)
    finally:
        numpyro.enable_validation(was)


class Summed(dist.Distribution):
    """Three standard normal numbers as one event, of a support that says so of each."""

    support = dist.constraints.real

    def __init__(self):
        super().__init__((), (3,))

    def sample(self, key, sample_shape=()):
        return jax.random.normal(key, (*sample_shape, 3))

    def log_prob(self, value):
        return jnp.sum(stats_norm.logpdf(value), axis=-1)


class Positive(dist.constraints.Constraint):
    """Which knows no value that is feasible."""

    def __call__(self, value):
        return value > 0

    def tree_flatten(self):
        return (), ((), {})


class OwnSupport(Summed):
    support = dist.constraints.independent(Positive(), 1)


@dist.biject_to.register(Positive)
def _bijection_of_positive(constraint):
    return dist.transforms.ExpTransform()


@pytest.mark.parametrize("space", ["constrained", "unconstrained"])
@pytest.mark.parametrize("law", [Summed(), OwnSupport()], ids=["fewer dimensions", "own"])
def test_supports_that_a_user_wrote(law, space):
    def model(y):
        numpyro.sample("w", law)
        numpyro.sample("y", dist.Normal(0.0, 1.0), obs=y)

    posterior = posterior_from_numpyro(model, np.zeros(2, np.float32), space=space)
    w = jnp.asarray([0.5, 1.0, 2.0])
    if space == "constrained" or law.support is dist.constraints.real:
        assert float(posterior.log_prior({"w": w})) == pytest.approx(stats.norm.logpdf(w).sum())
    else:
        found = float(posterior.log_prior({"w": jnp.log(w)}))
        assert found == pytest.approx(stats.norm.logpdf(w).sum() + np.log(w).sum())
    if space == "constrained" and law.support is not dist.constraints.real:
        assert np.isneginf(posterior.log_prior({"w": -w}))


def test_a_prior_of_sixteen_bits_is_summed_in_thirty_two():
    values = jnp.asarray(np.random.default_rng(0).normal(size=2700), jnp.bfloat16)

    def model(y):
        numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2700]).to_event(1))
        numpyro.sample("y", dist.Normal(0.0, 1.0), obs=y)

    found = posterior_from_numpyro(model, np.zeros(2, np.float32)).log_prior({"w": values})
    expected = stats.norm.logpdf(np.asarray(values, float)).sum()
    assert float(found) == pytest.approx(expected, abs=0.01)


@pytest.mark.usefixtures("annotations_unchecked")
def test_powers_that_are_none_are_refused():
    posterior = posterior_from_numpyro(of_mean, np.ones(2), np.ones(2))
    for power, error, sentence in (
        (np.array([0.5, 1.0]), ValueError, "t must be one power, but has shape"),
        (np.array([0.5]), ValueError, "t must be one power, but has shape"),
        ("a", TypeError, "t must hold real numbers"),
    ):
        with pytest.raises(error, match=sentence):
            posterior.tempered(power)
