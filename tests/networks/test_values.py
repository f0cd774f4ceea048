"""Canonical forms have the norms and means they promise, and a residual block passes x on."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxbnn.networks import Dense, Network, Residual, apply, canonicalize, init, mlp


def test_canonical_units_that_can_be_scaled_have_norm_one():
    network = mlp((3, 4, 2), "relu")
    found = canonicalize(network, init(jax.random.key(0), network))
    np.testing.assert_allclose(np.linalg.norm(found[0]["w"], axis=0), 1, rtol=1e-5)


def test_canonical_logits_are_centred_over_classes():
    network = mlp((3, 4, 3), "tanh")
    found = canonicalize(network, init(jax.random.key(0), network), softmax=True)[-1]
    for leaf in found.values():
        np.testing.assert_allclose(np.mean(leaf, axis=-1), 0, atol=1e-6)


def test_a_skip_connection_is_added():
    """With zero weights it is all there is."""
    network, x = Network((Residual((Dense(2),)),), (2,)), jnp.array([[1.0, -2.0]])
    zeros = jax.tree.map(jnp.zeros_like, init(jax.random.key(0), network))
    np.testing.assert_array_equal(apply(network, zeros, x), x)
