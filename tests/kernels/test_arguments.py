"""Tests of kernels.arguments and kernels.trees: what a factory is given, checked where it enters.

`tests/kit/hostile_kernels_found.py` tries every factory with every kind of argument.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import jaxbnn
from jaxbnn.kernels.trees import as_scalar, as_terms, inner_product, terms_and_gradient

KEY = jax.random.key(0)
NETWORK, PRIOR = jaxbnn.mlp((2, 3, 1)), dist.Normal(0.0, 1.0)

pytestmark = pytest.mark.usefixtures("annotations_unchecked")


def density(x):
    return -jnp.sum(x**2)


def counted(x):
    return -jnp.sum(jnp.abs(x) > 1, dtype=jnp.int32)


def walk():
    return jaxbnn.pcn(density, 0.5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: jaxbnn.cycle([walk(), walk()]), r"a list; write cycle\(first, second\)"),
        (lambda: jaxbnn.cycle((walk().init, walk().step)), r"SamplingAlgorithm\(init, step\)"),
        (lambda: jaxbnn.cycle(walk().step), "cycle takes kernels, but was given a function"),
        (lambda: jaxbnn.mix(walk(), walk()), r"write mix\(\[first, second\], weights\)"),
        (lambda: jaxbnn.repeat(walk, 2), "call it, and give the kernel that it returns"),
        (lambda: jaxbnn.repeat(2, walk()), "kernel must be a kernel, .* but is an int"),
        (lambda: jaxbnn.pcn(0.5, density), "log_likelihood_fn must be a function, but is a float"),
        (lambda: jaxbnn.pcn(lambda p, x: x, 0.5), "is called with 1 argument, but missing"),
        (lambda: jaxbnn.pcnl(PRIOR, 0.5), "must be a function, but is a Normal"),
        (lambda: walk().step(0, None), r"a key, but is an int; write step\(rng_key, state\)"),
        (lambda: walk().step(KEY, jnp.zeros(2)), r"an array; start with kernel.init\(position\)"),
        (lambda: jaxbnn.symmetry_moves(density, PRIOR), "leave it out for other networks"),
        (lambda: jaxbnn.redraw_units(PRIOR, NETWORK, density), r"write redraw_units\(network"),
        (lambda: jaxbnn.symmetry_moves(NETWORK, PRIOR, softmax="yes"), "True or False, .* 'yes'"),
        (
            lambda: jaxbnn.jittered(lambda eps: eps, 0.1).init(jnp.zeros(2)),
            "what make_kernel returns",
        ),
        (lambda: as_terms("f", (1.0, 2.0)), "f must return a number, .* but returned a tuple"),
        (lambda: as_terms("f", None), "but returned a NoneType; return the array alone"),
        *(
            (
                lambda kernel=kernel: kernel.init(jnp.ones(2)),
                "returns must be floating point, .*int",
            )
            for kernel in (
                jaxbnn.pcnl(counted, 0.1),
                jaxbnn.underdamped_langevin(counted, 0.1, 1.0),
                jaxbnn.smmala(counted, 0.1),
                jaxbnn.truncated_mala(counted, 0.1, 0.0, 2.0),
            )
        ),
        (
            lambda: jaxbnn.smmala(density, 0.1, softabs=None).init(jnp.ones(2, jnp.float16)),
            "the metric must be float32 or float64, but is float16",
        ),
    ],
)
def test_what_is_of_no_use_is_a_type_error(call, words):
    with pytest.raises(TypeError, match=words):
        call()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: jaxbnn.pcn(density, np.ones(2) / 2),
            "step_size must be one number, but has shape",
        ),
        (lambda: jaxbnn.smmala(density, [0.1, 0.2]), "through the parameters of jaxbnn.sample"),
        (lambda: jaxbnn.smmala(lambda x: -(x**2), 0.1).init(jnp.zeros(2)), "return the sum"),
        (lambda: as_scalar("f", np.ones(3)), r"must return one number, but returned shape \(3,\)"),
        (lambda: jaxbnn.cycle(), "cycle needs at least one kernel"),
    ],
)
def test_what_is_out_of_range_is_a_value_error(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_a_whole_number_may_be_a_step_size():
    kernel = jaxbnn.jittered(lambda eps: jaxbnn.pcn(density, eps / 2), 1)
    state, _ = kernel.step(jax.random.key(1), kernel.init(jnp.zeros(2)))
    assert state.position.dtype == jnp.float32


def test_terms_and_their_gradient_come_from_one_evaluation():
    calls = []

    def terms(tree):
        calls.append(1)
        return -(tree["a"] ** 2) * tree["b"]

    tree = {"a": jnp.array([1.0, 2.0]), "b": jnp.array([3.0, 4.0])}
    values, gradient = terms_and_gradient("terms", terms, tree)
    assert len(calls) == 1
    np.testing.assert_allclose(values, [-3, -16])
    np.testing.assert_allclose(gradient["a"], [-6, -16])
    np.testing.assert_allclose(gradient["b"], [-1, -4])
    np.testing.assert_allclose(inner_product(tree, gradient, jnp.float32), -6 - 32 - 3 - 16)
