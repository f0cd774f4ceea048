"""What an Info says is what happened."""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from jaxbnn.kernels import mix, pcn, redraw_units
from jaxbnn.networks import init, mlp


def test_a_mix_tells_the_acceptance_rate_of_the_kernel_that_ran():
    kernel = mix([pcn(lambda u: jnp.zeros(2), 0.5)])
    _, info = kernel.step(jax.random.key(0), kernel.init(jnp.zeros(2)))
    assert info.acceptance_rate == 1


def test_a_redrawn_unit_whose_density_is_no_number_is_divergent():
    network = mlp((2, 3, 1), "tanh")
    params = init(jax.random.key(0), network)

    def only_there(candidate):
        is_there = jnp.all(candidate[0]["w"] == params[0]["w"])
        return jnp.where(is_there, 0.0, jnp.nan)

    kernel = redraw_units(network, dist.Normal(0.0, 1.0), only_there)
    _, info = kernel.step(jax.random.key(1), kernel.init(params))
    assert bool(info.is_divergent)
