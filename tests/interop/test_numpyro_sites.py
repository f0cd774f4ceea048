"""Tests of interop.numpyro_blocks: values of NumPyro's sites stand where they belong, in data, in
positions and in their supports, and a block of Gibbs moves its own.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import CustomGibbs, Gibbs
from numpyro.infer.gibbs import conditioned

import jaxbnn
from jaxbnn.interop.numpyro import kernel, posterior_from_numpyro

pytestmark = pytest.mark.third_party(reason="NumPyro promotes dtypes and ranks")


def test_data_are_simulated_at_the_values_of_the_sites():
    def model(y):
        rate = numpyro.sample("rate", dist.Exponential(1.0))
        numpyro.sample("y", dist.Normal(rate, 0.1), obs=y)

    u = {"rate": jnp.log(100.0)}
    drawn = posterior_from_numpyro(model, jnp.zeros(())).simulate(jax.random.key(0), u, None)
    assert abs(drawn["y"] - 100) < 1


def test_a_layout_says_which_site_is_where():
    def model(y):
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        b = numpyro.sample("b", dist.Normal(5.0, 1.0))
        numpyro.sample("y", dist.Normal(a + b, 1.0), obs=y)

    layout = {"first": "b", "second": "a"}
    made = kernel(lambda f: jaxbnn.underdamped_langevin(f, 0.1, 1.0), model, layout=layout)
    start = {"a": jnp.array(1.0), "b": jnp.array(2.0)}
    state = made.init(jax.random.key(0), 0, start, (jnp.zeros(2),), {})
    assert (state.z["a"], state.z["b"]) == (1.0, 2.0)
    assert state.kernel_state.position["first"] == 2.0
    expected = posterior_from_numpyro(model, jnp.zeros(2)).log_density(start)
    np.testing.assert_allclose(state.kernel_state.log_density, expected, rtol=1e-6)


def test_a_wrapped_model_is_the_kernel_s():
    def one():
        """The model."""

    def wrapped():
        """What it becomes."""

    made = kernel(lambda f: jaxbnn.pcn(f, 0.5), one)
    assert made.wrap_model({one: wrapped}.get).model is wrapped
    assert made.model is one


def ends(y):
    low = numpyro.sample("low", dist.Uniform(0.0, 1.0))
    high = numpyro.sample("high", dist.Uniform(low, low + 2.0))
    shift = numpyro.sample("shift", dist.Normal(high, 1.0))
    numpyro.sample("y", dist.Normal(shift, 1.0), obs=y)


def switched(y):
    switch = numpyro.sample("switch", dist.Bernoulli(0.01))
    edge = numpyro.sample("edge", dist.Uniform(0.0, jnp.where(switch == 1, 2.0, 1.0)))
    numpyro.sample("y", dist.Normal(edge, 1.0), obs=y)


def walk(log_density):
    return jaxbnn.underdamped_langevin(log_density, 0.7, 1.0)


def blocks_of(model, own, rest):
    stays = CustomGibbs(lambda rng_key, gibbs_sites, hmc_sites: gibbs_sites)
    return Gibbs([(kernel(walk, model), own), (stays, rest)])


@pytest.mark.parametrize(
    ("model", "own", "rest"),
    [(ends, ["high"], ["low", "shift"]), (ends, ["shift", "high"], ["low"]),
     (switched, ["edge"], ["switch"])],
)  # fmt: skip
def test_a_block_whose_support_another_block_moves_is_refused(model, own, rest):
    with pytest.raises(ValueError, match=f"support of the site '{own[-1]}' depends on sites of"):
        blocks_of(model, own, rest).init(jax.random.key(0), 0, None, (jnp.ones(2),), {})


@pytest.mark.parametrize("own", [["low", "high"], ["low"], ["low", "high", "shift"]])
def test_a_block_that_moves_a_support_is_taken(own):
    rest = [name for name in ("low", "high", "shift") if name not in own] or None
    made = blocks_of(ends, own, rest) if rest else kernel(walk, ends)
    state = made.init(jax.random.key(0), 0, None, (jnp.ones(2),), {})
    assert jnp.isfinite(made.sample(state, (jnp.ones(2),), {}).z["low"])


@pytest.mark.filterwarnings("ignore:Out-of-support")
def test_a_block_does_not_leave_the_support_of_another_block_s_site():
    made = kernel(walk, ends).wrap_model(conditioned)
    others = {"_gibbs_sites": {"high": jnp.array(0.5), "shift": jnp.array(0.0)}}
    start = {"low": jnp.array(0.3)}
    state = made.init(jax.random.key(0), 0, start, (jnp.ones(2),), others)
    assert jnp.isfinite(state.kernel_state.log_density)
    start = {"low": jnp.array(0.6)}  # above high
    state = made.init(jax.random.key(0), 0, start, (jnp.ones(2),), others)
    assert state.kernel_state.log_density == -jnp.inf


def test_a_block_looks_at_its_own_sites():
    def model(y):
        fixed = numpyro.sample("fixed", dist.Delta(1.0))
        number = numpyro.sample("number", dist.Poisson(3.0))
        mean = numpyro.sample("mean", dist.Normal(fixed, 1.0))
        numpyro.sample("y", dist.Normal(mean + number, 1.0), obs=y)

    y, key = jnp.ones(2), jax.random.key(0)
    for own, words in ((["fixed"], "'fixed' is a Delta"), (["number"], "'number' is discrete")):
        rest = [name for name in ("fixed", "number", "mean") if name not in own]
        with pytest.raises(ValueError, match=words):
            blocks_of(model, own, rest).init(key, 0, None, (y,), {})
    blocks_of(model, ["mean"], ["fixed", "number"]).init(key, 0, None, (y,), {})
    with pytest.raises(ValueError, match="'y' holds nan"):
        blocks_of(model, ["mean"], ["fixed", "number"]).init(key, 0, None, (y * jnp.nan,), {})
    others = {"_gibbs_sites": {"fixed": jnp.array(1.0), "number": jnp.array(2)}}
    made = kernel(walk, model).wrap_model(conditioned)
    for given in ({"maen": jnp.array(0.0)}, {"mean": jnp.array(0.0), "number": jnp.array(1)}):
        with pytest.raises(ValueError, match="those that it moves are"):
            made.init(key, 0, given, (y,), others)


def test_positions_are_looked_at_wherever_they_are_taken():
    def model(y):
        rate = numpyro.sample("rate", dist.Exponential(1.0))
        size = numpyro.sample("size", dist.HalfNormal(1.0))
        numpyro.sample("y", dist.Normal(rate, size), obs=y)

    y, key = jnp.ones(3), jax.random.key(0)
    whole = {"rate": jnp.array(2.0), "size": jnp.array(1.0)}
    for space in ("constrained", "unconstrained"):
        posterior = posterior_from_numpyro(model, y, space=space)
        ways = (
            posterior.constrain, posterior.unconstrain,
            lambda at, posterior=posterior: posterior.simulate(key, at, None),
        )  # fmt: skip
        for way in ways:
            with pytest.raises(ValueError, match="no value for the model's site 'size'"):
                way({"rate": whole["rate"]})
            with pytest.raises(ValueError, match="'rat', which is no latent site"):
                way(whole | {"rat": whole["rate"]})
        with pytest.raises(ValueError, match="'rate' is outside of its support"):
            posterior.unconstrain(whole | {"rate": jnp.array(-2.0)})
    made = kernel(walk, model)
    with pytest.raises(ValueError, match=r"'rate' has shape \(3,\), but the site has shape \(\)"):
        made.init(key, 0, whole | {"rate": jnp.ones(3)}, (y,), {})
