"""The step size is drawn anew each step, from the stated interval, and the target stays."""

from typing import NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.base import SamplingAlgorithm
from blackjax.mcmc.metrics import default_metric

from jaxbnn.kernels.jittered import jittered
from tests.kit import both_sizes, check_exact_start
from tests.kit.dkw import distance_to_cdf, threshold
from tests.kit.targets import skew_banana


class Shown(NamedTuple):
    position: jax.Array


def shows(step_size):
    """Move to the step size it is given."""
    return SamplingAlgorithm(
        lambda position, rng_key=None: Shown(position),
        lambda rng_key, state: (Shown(step_size), None),
    )


def test_step_sizes_are_uniform_on_the_interval():
    @jax.jit
    def run(step_size, jitter):
        kernel = jittered(shows, step_size, jitter=jitter)
        keys = jax.random.split(jax.random.key(0), 20_000)
        return jax.vmap(kernel.step, (0, None))(keys, kernel.init(jnp.zeros(())))[0].position

    drawn = np.asarray(run(2.0, 0.25), np.float64)
    assert drawn.min() >= 1.5
    assert drawn.max() <= 2.5
    cdf = lambda x: np.clip(x - 1.5, 0, 1)  # noqa: E731
    assert distance_to_cdf(drawn, cdf) < threshold(len(drawn))
    assert (run(2.0, 0.0) == 2).all()


@both_sizes(50_000)
def test_target_is_invariant(num_chains):
    target = skew_banana()
    metric = default_metric(jnp.ones(2))
    kernel = jittered(
        lambda eps: blackjax.hmc(target.log_density, eps, metric, 3), jnp.array(0.5), jitter=0.9
    )
    result = check_exact_start(kernel, target, steps=2, num_chains=num_chains)
    assert result.passes, str(result)


@pytest.mark.parametrize(
    ("step_size", "jitter", "message"),
    [
        (-1.0, 0.5, "step_size must be positive"),
        (1.0, 1.0, "jitter must be"),
        (1.0, -0.1, "jitter"),
    ],
)
def test_bad_input_gets_one_sentence(step_size, jitter, message):
    with pytest.raises(ValueError, match=message):
        jittered(shows, step_size, jitter=jitter)
