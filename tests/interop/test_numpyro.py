"""Tests of interop.numpyro_kernel and interop.numpyro_networks: NumPyro runs our kernels, and its
models are our targets.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, CustomGibbs, Gibbs
from numpyro.infer.util import potential_energy
from scipy import stats

import jaxbnn
from jaxbnn.interop.numpyro import kernel, posterior_from_numpyro, sample_network, site_names

NUMPYRO = pytest.mark.third_party(reason="NumPyro's inference promotes dtypes and ranks")
Y = jnp.array([0.3, 1.1, 0.4, 0.9])


def means(y):
    """Two means whose sum is observed: N(0, 1) and N(1, 4) a priori."""
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    b = numpyro.sample("b", dist.Normal(1.0, 2.0))
    numpyro.deterministic("sum", a + b)
    numpyro.sample("y", dist.Normal(a + b, 0.5), obs=y)


def exact_means():
    """Mean and covariance of (a, b) given y, from the precision matrix."""
    precision = np.diag([1.0, 0.25]) + 4 * len(Y) * np.ones((2, 2))
    covariance = np.linalg.inv(precision)
    shift = np.array([0.0, 0.25]) + 4 * float(Y.sum())
    return covariance @ shift, covariance


def pcn_of_means(log_density):
    def relative(u):
        return log_density(u) + 0.5 * u["a"] ** 2 + 0.5 * ((u["b"] - 1) / 2) ** 2

    return jaxbnn.pcn(
        relative, 0.6, {"a": 1.0, "b": 4.0}, mean={"a": jnp.zeros(()), "b": jnp.ones(())}
    )


def check_means(samples):
    """400 chains a long way from their starts: errors of a mean are 1/20 of the deviation."""
    mean, covariance = exact_means()
    draws = np.stack([samples["a"], samples["b"]], -1).astype(float)
    ends = draws[:, -1]  # independent, one a chain
    chains = len(ends)
    deviation = np.sqrt(np.diag(covariance))
    z = (ends.mean(0) - mean) / deviation * np.sqrt(chains)
    assert np.abs(z).max() < 5.2  # false alarms 1e-6
    total = ends.sum(1)
    ratio = total.var() / covariance.sum() * chains
    assert stats.chi2.ppf(5e-7, chains) < ratio < stats.chi2.isf(5e-7, chains)


@pytest.mark.long
@NUMPYRO
def test_pcn_in_mcmc():
    mcmc = MCMC(
        kernel(pcn_of_means, means),
        num_warmup=150,
        num_samples=10,
        num_chains=400,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(1), Y, extra_fields=("acceptance_rate",))
    samples = mcmc.get_samples(group_by_chain=True)
    check_means(samples)
    np.testing.assert_allclose(samples["sum"], samples["a"] + samples["b"], rtol=1e-5, atol=1e-6)
    assert 0.05 < mcmc.get_extra_fields()["acceptance_rate"].mean() < 0.9


@pytest.mark.long
@NUMPYRO
def test_a_block_of_gibbs_sees_what_the_other_block_did():
    def exact_b(rng_key, gibbs_sites, hmc_sites):
        precision = 0.25 + 4 * len(Y)
        mean = (0.25 + 4 * jnp.sum(Y - hmc_sites["a"])) / precision
        return {"b": mean + jax.random.normal(rng_key) / jnp.sqrt(precision)}

    def pcn_of_a(log_density):
        return jaxbnn.pcn(lambda u: log_density(u) + 0.5 * u["a"] ** 2, 0.6)

    blocks = Gibbs([(kernel(pcn_of_a, means), ["a"]), (CustomGibbs(exact_b), ["b"])])
    mcmc = MCMC(
        blocks,
        num_warmup=400,
        num_samples=1,
        num_chains=400,
        chain_method=jax.vmap,
        progress_bar=False,
    )
    mcmc.run(jax.random.key(2), Y)
    check_means(mcmc.get_samples(group_by_chain=True))


def test_refresh_computes_the_density_anew():
    made = kernel(pcn_of_means, means)
    start = {"a": jnp.array(0.2), "b": jnp.array(-0.1)}
    state = made.init(jax.random.key(0), 0, start, (Y,), {})
    moved = made.refresh(state, (Y + 1,), {})
    fresh = made.init(jax.random.key(0), 0, start, (Y + 1,), {})
    assert moved.kernel_state.log_likelihood == fresh.kernel_state.log_likelihood
    assert moved.kernel_state.log_likelihood != state.kernel_state.log_likelihood
    np.testing.assert_array_equal(
        jax.random.key_data(moved.rng_key), jax.random.key_data(state.rng_key)
    )


@NUMPYRO
def test_random_numbers_of_the_model_are_refused():
    """One draw of them, by the key that models are run with, would be the target of all steps."""

    def model(y):
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        b = numpyro.sample("b", dist.Normal(1.0, 2.0))
        rows = jax.random.choice(numpyro.prng_key(), len(y), (2,), replace=False)
        numpyro.sample("y", dist.Normal(a + b, 0.5), obs=y[rows])

    made = kernel(lambda target: jaxbnn.underdamped_langevin(target, 0.1, 1.0), model)
    rest = CustomGibbs(lambda rng_key, gibbs_sites, hmc_sites: gibbs_sites)
    block = Gibbs([(made, ["a"]), (rest, ["b"])])
    one, two = jax.random.key(0), jax.random.split(jax.random.key(0))
    words = "random numbers besides its sample sites"
    for params in (None, {"a": jnp.zeros(()), "b": jnp.zeros(())}):
        with pytest.raises(ValueError, match=words):
            made.init(one, 0, params, (Y,), {})
    with pytest.raises(ValueError, match=words):
        made.init(two, 0, None, (Y,), {})
    for each in (made, block):  # as parallel chains start, and blocks of several chains

        def start(key, each=each):
            return each.init(key, 0, None, (Y,), {})

        for begin, keys in ((start, one), (jax.jit(start), one), (jax.vmap(start), two)):
            with pytest.raises(ValueError, match=words):
                begin(keys)


@NUMPYRO
def test_chains_start_while_traced():
    """As parallel ones do: what is looked at is known all the same."""
    made = kernel(pcn_of_means, means)

    def start(key):
        return made.init(key, 0, None, (Y,), {}).z

    plain, traced = start(jax.random.key(0)), jax.jit(start)(jax.random.key(0))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), plain, traced)


NETWORK = jaxbnn.mlp((1, 2, 1), "tanh")
X = jnp.array([[-1.0], [0.5], [1.0]])
TARGETS = jnp.array([[-0.7], [0.4], [0.6]])


def network_model(x, y=None):
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    params = sample_network("net", NETWORK, dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.Normal(NETWORK.apply(params, x), scale).to_event(1), obs=y)


def moves_of_a_network(log_density):
    """Random walk on everything, symmetry moves on the network."""

    def walk(target):
        return jaxbnn.pcn(target, 0.25)

    def relative(position):
        squares = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(position))
        return log_density(position) + 0.5 * squares

    symmetries = jaxbnn.on_block(
        lambda whole: jaxbnn.symmetry_moves(NETWORK, dist.Normal(0.0, 1.0)), "net"
    )
    return jaxbnn.cycle(walk(relative), symmetries)


@NUMPYRO
@pytest.mark.long
def test_symmetry_moves_in_mcmc_visit_all_copies_of_a_mode():
    layout = {"net": site_names("net", NETWORK), "scale": "scale"}
    mcmc = MCMC(
        kernel(moves_of_a_network, network_model, layout=layout),
        num_warmup=0,
        num_samples=100,
        num_chains=50,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(3), X, TARGETS)
    samples = mcmc.get_samples(group_by_chain=True)
    assert set(samples) == {"scale", "net.0.w", "net.0.b", "net.2.w", "net.2.b"}
    assert samples["net.0.w"].shape == (50, 100, 1, 2)
    assert (samples["scale"] > 0).all()  # constrained
    signs = np.asarray(samples["net.0.w"][:, :, 0, 0] > 0)
    # Signs are drawn anew in each step: fair and independent coins, whatever the likelihood is.
    assert abs(signs.mean() - 0.5) < 4.9 * 0.5 / np.sqrt(signs.size)
    agree = (signs[:, 1:] == signs[:, :-1]).mean()
    assert abs(agree - 0.5) < 4.9 * 0.5 / np.sqrt(signs.size)


@NUMPYRO
@pytest.mark.long
def test_a_potential_function():
    made = kernel(
        lambda log_density: jaxbnn.underdamped_langevin(log_density, 0.8, 1.0),
        potential_fn=lambda x: 0.5 * jnp.sum((x - 2) ** 2),
    )
    mcmc = MCMC(
        made,
        num_warmup=50,
        num_samples=1,
        num_chains=400,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(4), init_params=jnp.zeros((400, 3)))
    ends = np.asarray(mcmc.get_samples(group_by_chain=True))[:, -1]
    assert np.abs(ends.mean(0) - 2).max() * 20 < 5.2


def hierarchy(y, scale=1.0):
    low = numpyro.sample("low", dist.Exponential(1.0))
    high = numpyro.sample("high", dist.Uniform(low, low + 2.0))  # a support that moves
    with numpyro.plate("data", len(y)):
        numpyro.sample("y", dist.Normal(high, scale), obs=y)


def test_both_spaces_agree_with_numpyro_and_scipy(x64):
    y = jnp.array([0.5, 2.0])
    free = posterior_from_numpyro(hierarchy, y, scale=0.7)
    values = {"low": jnp.array(0.8), "high": jnp.array(1.4)}
    u = free.unconstrain(values)
    for name, value in free.constrain(u).items():
        np.testing.assert_allclose(value, values[name], rtol=1e-12)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        expected = -potential_energy(hierarchy, (y,), {"scale": 0.7}, u)
    np.testing.assert_allclose(free.log_density(u), expected, rtol=1e-12)
    np.testing.assert_allclose(
        free.log_likelihood(u), stats.norm.logpdf(np.asarray(y), 1.4, 0.7), rtol=1e-12
    )
    constrained = posterior_from_numpyro(hierarchy, y, scale=0.7, space="constrained")
    prior = stats.expon.logpdf(0.8) + stats.uniform.logpdf(1.4, 0.8, 2.0)
    np.testing.assert_allclose(constrained.log_prior(values), prior, rtol=1e-12)
    # The Jacobian is that of automatic differentiation.
    flat = lambda v: jnp.stack([v["low"], v["high"]])  # noqa: E731
    jacobian = jax.jacobian(lambda v: flat(free.constrain({"low": v[0], "high": v[1]})))(flat(u))
    volume = np.linalg.slogdet(jacobian)[1]
    np.testing.assert_allclose(free.log_prior(u) - prior, volume, rtol=1e-10)
    cold = free.tempered(0.3)
    np.testing.assert_allclose(
        cold.log_density(u), free.log_prior(u) + 0.3 * free.log_likelihood(u).sum(), rtol=1e-12
    )
    colder = free.tempered(0.3, what="posterior").tempered(0.5, what="posterior")
    np.testing.assert_allclose(colder.log_prior(u), 0.15 * prior + volume, rtol=1e-10)
    powered = 0.15 * (prior + free.log_likelihood(u).sum())  # no power of the volume
    np.testing.assert_allclose(colder.log_density(u), powered + volume, rtol=1e-10)
    reference = free.unconstrain({"low": jnp.array(0.1), "high": jnp.array(2.0)})
    for target in (free, cold, colder):
        np.testing.assert_allclose(
            target.log_density_from(reference)(u),
            target.log_density(u) - target.log_density(reference),
            rtol=1e-10,
        )


@pytest.mark.parametrize("t", [0.25, 2.0])
def test_a_power_of_the_posterior_is_one_law_in_both_spaces(t, x64):
    """Gamma(2, 1)^t is Gamma(1 + t, t), and here nothing else is in the posterior."""

    def model():
        numpyro.sample("r", dist.Gamma(2.0, 1.0))
        numpyro.factor("constant", 0.7)

    u = jnp.linspace(-30.0, 6.0, 4001)  # the trapezoidal rule is exact for such integrands
    r = jnp.exp(u)
    for space, at, volume in (("unconstrained", u, 1.0), ("constrained", r, r)):
        tempered = posterior_from_numpyro(model, space=space).tempered(t, what="posterior")
        apart = tempered.log_density_from({"r": at[2000]})
        for log_density in (tempered.log_density, apart):
            density = np.exp(jax.vmap(lambda v, f=log_density: f({"r": v}))(at)) * volume
            mean = (density * r).sum() / density.sum()
            np.testing.assert_allclose(mean, (1 + t) / t, rtol=1e-8)


def test_swaps_of_power_posterior_exchange_what_is_powered(x64):
    """Two replicas' log density changes by (t - s)(f(b) - f(a)), f what `tempered` docs name."""
    y = jnp.array([0.5, 2.0])
    free = posterior_from_numpyro(hierarchy, y)
    constrained = posterior_from_numpyro(hierarchy, y, space="constrained")
    a, b = ({"low": jnp.array(v), "high": jnp.array(w)} for v, w in ((-0.7, 1.1), (0.4, -2.0)))
    hot, cold = (free.tempered(t, what="posterior").log_density for t in (0.25, 1.0))

    def powered(u):
        return constrained.log_prior(free.constrain(u)) + free.log_likelihood(u).sum()

    change = hot(b) + cold(a) - hot(a) - cold(b)
    np.testing.assert_allclose(change, (0.25 - 1.0) * (powered(b) - powered(a)), rtol=1e-10)


def test_log_density_from_keeps_its_digits_in_float32():
    y = np.random.default_rng(0).normal(30.0, 1.0, 20_000).astype(np.float32)
    free = posterior_from_numpyro(means, jnp.asarray(y))
    origin = {"a": jnp.array(0.0), "b": jnp.array(0.0)}
    a = 2.0**-10
    near = {"a": jnp.array(a), "b": jnp.array(0.0)}
    exact = 4 * (y.astype(float) * a - a**2 / 2).sum() - a**2 / 2
    assert free.log_density_from(origin)(near) == pytest.approx(exact, rel=1e-4)


def test_draws_from_the_prior_are_from_the_prior():
    free = posterior_from_numpyro(hierarchy, Y)
    draws = jax.jit(lambda key: free.sample_prior(key, (2, 500)))(jax.random.key(0))
    assert draws["low"].shape == (2, 500)
    low = np.exp(np.asarray(draws["low"], float)).ravel()
    assert stats.kstest(low, "expon").pvalue > 1e-6
    fraction = 1 / (1 + np.exp(-np.asarray(draws["high"], float))).ravel()
    assert stats.kstest(fraction, "uniform").pvalue > 1e-6


def positive(y):
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    numpyro.sample("y", dist.Poisson(rate), obs=y)


@pytest.mark.long
def test_our_runner_samples_a_numpyro_model():
    posterior = posterior_from_numpyro(positive, jnp.array([3, 1, 4]))
    walk = jaxbnn.underdamped_langevin(posterior.log_density, 0.6, 1.0)
    starts = {"rate": 0.7 + 0.7 * jax.random.normal(jax.random.key(0), (500,))}
    draws = jaxbnn.sample(jax.random.key(1), walk, starts, 1, num_warmup=60, progress=False)
    constrain = jax.jit(jax.vmap(posterior.constrain))
    rate = np.asarray(constrain({"rate": jnp.asarray(draws.positions["rate"][:, -1])})["rate"])
    assert stats.kstest(rate, stats.gamma(10, scale=1 / 4).cdf).pvalue > 1e-6


@pytest.mark.long
@NUMPYRO
def test_simulate_draws_new_data():
    posterior = posterior_from_numpyro(means, Y)
    position = {"a": jnp.array(3.0), "b": jnp.array(-50.0)}
    drawn = posterior.simulate(jax.random.key(1), position, None)
    assert abs(drawn["y"] + 47) < 0.5 * 5.2


@NUMPYRO
def test_errors_are_sentences():
    def coin(y):
        numpyro.sample("heads", dist.Bernoulli(0.5))
        numpyro.sample("y", dist.Normal(0.0, 1.0), obs=y)

    with pytest.raises(ValueError, match="'heads' is discrete"):
        posterior_from_numpyro(coin, Y)
    with pytest.raises(ValueError, match="observes nothing"):
        posterior_from_numpyro(network_model, X)
    with pytest.raises(ValueError, match="space must be"):
        posterior_from_numpyro(means, Y, space="flat")
    with pytest.raises(ValueError, match="no value for the model's site 'b'"):
        posterior_from_numpyro(means, Y).log_density({"a": jnp.zeros(())})
    with pytest.raises(ValueError, match="finite power"):
        posterior_from_numpyro(means, Y).tempered(-1.0)
    with pytest.raises(ValueError, match="either a NumPyro model or a potential_fn"):
        kernel(pcn_of_means)
    made = kernel(pcn_of_means, means, layout={"a": "a"})
    start = {"a": jnp.zeros(()), "b": jnp.zeros(())}
    with pytest.raises(ValueError, match="layout has the sites"):
        made.init(jax.random.key(0), 0, start, (Y,), {})
    with pytest.raises(ValueError, match="has a site 'c'"):
        made.init(jax.random.key(0), 0, start | {"c": 1.0}, (Y,), {})
    with pytest.raises(ValueError, match="starts from init_params"):
        kernel(pcn_of_means, potential_fn=jnp.sum).init(jax.random.key(0), 0, None, (), {})


def test_to_a_traced_power_0_derivatives_are_the_priors_where_the_likelihood_overflows():
    def model(y):
        log_rate = numpyro.sample("log_rate", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Poisson(jnp.exp(log_rate)), obs=y)

    posterior = posterior_from_numpyro(model, np.arange(3))
    place = {"log_rate": jnp.array(1000.0)}
    reference = {"log_rate": jnp.array(0.0)}
    for density in (
        lambda t, u: posterior.tempered(t).log_likelihood(u).sum(),
        lambda t, u: posterior.tempered(t).log_density(u),
        lambda t, u: posterior.tempered(t).log_density_from(reference)(u),
    ):
        slope = jax.jit(jax.grad(density, 1))(0.0, place)["log_rate"]
        assert slope in (0, -1000)
