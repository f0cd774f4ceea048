"""Functions of likelihoods at values that are known."""

import jax.numpy as jnp
import numpy as np

from jaxbnn.targets import SoftplusScaleGaussian


def test_the_variance_is_the_square_of_the_softplus():
    raw = np.array([-1.0, 0.0, 2.0], np.float32)
    found = SoftplusScaleGaussian().variance(jnp.asarray(raw))
    np.testing.assert_allclose(found, np.log1p(np.exp(raw)) ** 2, rtol=1e-5)
