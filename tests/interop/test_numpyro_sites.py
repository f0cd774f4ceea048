"""Values of NumPyro's sites stand where they belong: in data, and in a kernel's positions."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

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
