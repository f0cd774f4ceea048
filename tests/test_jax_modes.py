"""Tests of what is called in the modes in which JAX helps to find faults."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbnn
from jaxbnn import ensembles, mlp

pytestmark = pytest.mark.third_party(reason="BlackJAX's kernels and Optax promote dtypes")

X = np.linspace(-1, 1, 12, dtype=np.float32)[:, None]
NETWORK = mlp((1, 2, 1))


def _posterior():
    return jaxbnn.Posterior(NETWORK, jaxbnn.normal_prior(NETWORK), jaxbnn.Gaussian(0.5), X, X)


def _sampled():
    return jaxbnn.sample(
        jax.random.key(0),
        lambda parameters, data: jaxbnn.pcn(lambda z: -jnp.sum(data * z**2), parameters["step"]),
        jnp.zeros((2, 3)),
        2,
        parameters={"step": 0.3},
        data=jnp.ones(3),
        num_warmup=2,
        adapt=jaxbnn.dual_averaging(0.5, name="step"),
        progress=False,
    )


def _trained():
    # One of them stops before the other.
    return ensembles.optimised_starts(
        jax.random.key(1),
        _posterior(),
        2,
        validation=0.3,
        patience=3,
        max_epochs=60,
        progress=False,
    )


def _ensemble():
    starts = _posterior().sample_prior(jax.random.key(2), (2,))
    return ensembles.sample_ensemble(
        jax.random.key(3), _posterior(), starts, 3, num_tuning=100, most_steps=200, num_warmup=10,
        trajectory_steps=3, progress=False,
    ).draws.positions  # fmt: skip


def test_a_run_with_warm_up_is_the_same_operation_by_operation():
    compiled = _sampled()
    with jax.disable_jit():
        one_by_one = _sampled()
    np.testing.assert_allclose(one_by_one.positions, compiled.positions, rtol=1e-5)
    np.testing.assert_allclose(
        one_by_one.parameters["step"], compiled.parameters["step"], rtol=1e-5
    )


@pytest.mark.parametrize("call", [_sampled, _trained, _ensemble])
def test_nothing_that_is_well_is_not_a_number(call):
    """What stands for "none yet" is no NaN where JAX looks for them."""
    with jax.debug_nans(True):
        call()


def test_one_chain_stops_before_the_other():
    found = _trained()
    assert found.num_epochs[0] != found.num_epochs[1]
    assert np.isnan(found.training[np.argmin(found.num_epochs), -1])
