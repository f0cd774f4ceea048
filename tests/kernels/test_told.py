"""What an Info says is what happened."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from jaxbnn.kernels import metropolis, mix, pcn, redraw_units
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


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float32])
def test_what_is_told_in_half_precision_happens_at_that_rate(dtype):
    """Six standard errors of a million coins; uniforms of bfloat16 gave 0.008 for 0.003."""
    log_ratio = jnp.log(jnp.asarray(0.003, dtype))
    keys = jax.random.split(jax.random.key(0), 1_000_000)
    _, infos = jax.jit(
        jax.vmap(lambda key: metropolis(key, log_ratio, jnp.zeros(()), jnp.ones(())))
    )(keys)
    rate = float(jnp.exp(log_ratio.astype(jnp.float32)))
    np.testing.assert_allclose(infos.acceptance_rate[0], rate, rtol=0.01)
    error = (rate / len(keys)) ** 0.5
    assert abs(np.mean(infos.is_accepted) - rate) < 6 * error + 0.01 * rate
