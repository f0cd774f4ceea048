"""Tests of numerics.warn: warnings are raised at the user's line, and so shown once."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np

import jaxbnn
from jaxbnn.gibbs import IntermediateNoise, interwoven_gibbs
from jaxbnn.networks import mlp
from jaxbnn.thermalization import sample_annealed

MODEL = IntermediateNoise(mlp((1, 3, 1)), 0.1)
X, Y = 1e5 + np.arange(20.0)[:, None] / 10, np.zeros((20, 1))


def shown(call):
    """Return the warnings that a user sees by Python's own filter."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        call()
    return [one for one in seen if "is rounded to float32" in str(one.message)]


def test_the_parts_of_a_kernel_warn_at_one_line_and_here():
    """Python shows what was said at one line once, unless filters were changed in between."""
    found = shown(lambda: interwoven_gibbs(MODEL, X, Y, 0.1))
    places = {(one.filename, one.lineno, str(one.message)) for one in found}
    ((file, _, sentence),) = places
    assert file == __file__
    assert sentence.startswith("x[:, 0], of numbers up to 1e+05")


def test_what_was_warned_of_is_not_warned_of_again_within():
    zero = MODEL.zero_position(jnp.float32(X), Y)
    starts = jax.tree.map(lambda leaf: jnp.stack([leaf] * 2), zero)
    found = shown(
        lambda: sample_annealed(
            jax.random.key(0), MODEL, X, Y, starts, 4, num_warmup=4, progress=False
        )
    )
    assert [str(one.message)[:7] for one in found] == ["x[:, 0]"]
    assert found[0].filename == __file__


def test_data_of_a_run_are_warned_of_here():
    def kernel(parameters, data):
        return jaxbnn.kernels.pcn(lambda w: -jnp.sum((w - data) ** 2), 0.1)

    (one,) = shown(
        lambda: jaxbnn.sample(
            jax.random.key(0), kernel, jnp.zeros((2, 20, 1)), 2, data=X, progress=False
        )
    )
    assert one.filename == __file__
    assert str(one.message).startswith("data[:, 0], of numbers up to 1e+05")
