"""The kinetic energy of many numbers keeps its digits; that of few is BlackJAX's own."""

import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.mcmc.metrics import default_metric

from jaxbnn.kernels.diagonal_metric import diagonal_metric


@pytest.mark.third_party(reason="BlackJAX promotes dtypes")
@pytest.mark.parametrize("size", [100, 200_000])
def test_kinetic_energy(size):
    rng = np.random.default_rng(size)
    inverse_mass, momentum = rng.gamma(2.0, size=size), 3 + rng.normal(size=size)
    arrays = [jnp.asarray(values, jnp.float32) for values in (inverse_mass, momentum)]
    exact = np.sum(np.asarray(arrays[0], float) * np.asarray(arrays[1], float) ** 2) / 2
    found = float(diagonal_metric(arrays[0]).kinetic_energy(arrays[1]))
    assert found == pytest.approx(exact, rel=1e-6)
    if size == 100:
        assert found == float(default_metric(arrays[0]).kinetic_energy(arrays[1]))
