"""Tests of jaxbnn.numerics.random_numbers: the bits of `jax.random`, whatever the shape and key."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbnn.numerics import random_numbers
from jaxbnn.numerics.random_numbers import random_bits, standard_normal

SHAPES = [(), (5,), (2047,), (2048,), (2049,), (3, 1, 1001), (1, 4096), (0, 4000)]
KEYS = {
    "typed": lambda: jax.random.key(7),
    "raw": lambda: jax.random.PRNGKey(7),
    "large words": lambda: jax.random.wrap_key_data(jnp.uint32([2**32 - 1, 2**31])),
    "rbg": lambda: jax.random.key(7, impl="rbg"),
}


def is_in_one_pass(key, shape) -> bool:
    """Whether a normal draw is traced with the rounds written out."""
    draw = jax.make_jaxpr(lambda key: standard_normal(key, shape))
    return str(draw(key)) != str(jax.make_jaxpr(lambda key: jax.random.normal(key, shape))(key))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", KEYS)
def test_draws_are_those_of_jax(name, shape):
    make_key = KEYS[name]
    np.testing.assert_array_equal(
        standard_normal(make_key(), shape), jax.random.normal(make_key(), shape)
    )
    for dtype in ("uint8", "uint16", "uint32"):
        ours = random_bits(make_key(), shape, dtype)
        assert ours.dtype == dtype
        np.testing.assert_array_equal(ours, jax.random.bits(make_key(), shape, dtype))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_draws_are_those_of_jax_in_every_dtype(dtype):
    with jax.enable_x64(True):
        ours = jax.jit(lambda key: standard_normal(key, (60, 70), dtype))(jax.random.key(1))
        assert ours.dtype == dtype
        # Compiled with the rounds, the transform to normals may be contracted to fused products.
        tolerance = {"float16": 1e-3, "bfloat16": 1e-2, "float32": 1e-6, "float64": 1e-14}[dtype]
        wide = "float32" if dtype in ("float16", "bfloat16") else dtype
        theirs = jax.random.normal(jax.random.key(1), (60, 70), wide)
        np.testing.assert_allclose(
            ours.astype(float), theirs.astype(float), rtol=tolerance, atol=tolerance
        )
        np.testing.assert_array_equal(
            random_bits(jax.random.key(2), (60, 70), "uint64"),
            jax.random.bits(jax.random.key(2), (60, 70), "uint64"),
        )


def test_rounds_are_written_out_where_it_pays():
    assert is_in_one_pass(jax.random.key(0), (50, 50))
    assert is_in_one_pass(jax.random.PRNGKey(0), (2048,))
    assert not is_in_one_pass(jax.random.key(0), (2047,))
    assert not is_in_one_pass(jax.random.key(0, impl="rbg"), (50, 50))


def test_draws_are_those_of_jax_for_many_keys():
    ours, theirs = (
        jax.vmap(jax.vmap(lambda key, draw=draw: draw(key, (41, 50))))(
            jax.random.split(jax.random.key(3), (2, 3))
        )
        for draw in (standard_normal, jax.random.normal)
    )
    np.testing.assert_array_equal(ours, theirs)


def test_draws_are_those_of_jax_without_partitionable_bits():
    with jax.threefry_partitionable(False):
        assert not is_in_one_pass(jax.random.key(4), (50, 50))
        np.testing.assert_array_equal(
            standard_normal(jax.random.key(4), (50, 51)),
            jax.random.normal(jax.random.key(4), (50, 51)),
        )


def test_each_device_of_a_mesh_makes_its_part():
    program = """
import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jaxbnn.numerics.random_numbers import random_bits

rows = NamedSharding(jax.make_mesh((2,), ("data",)), PartitionSpec(None, "data"))
draw = jax.jit(lambda key: random_bits(key, (30, 4096)), out_shardings=rows)
key = jax.random.key(5)
np.testing.assert_array_equal(draw(key), jax.random.bits(key, (30, 4096)))
text = draw.lower(key).compile().as_text()
assert "u32[30,2048]" in text and "all-gather" not in text, text
"""
    flags = "--xla_force_host_platform_device_count=2"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_changed_round_is_found(monkeypatch):
    monkeypatch.setattr(random_numbers, "_ROTATIONS", ((13, 15, 26, 6), (17, 29, 16, 25)))
    ours = random_bits(jax.random.key(6), (50, 50))
    assert (ours != jax.random.bits(jax.random.key(6), (50, 50))).mean() > 0.99


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_normals_of_halves_are_standard(dtype):
    """By five standard errors of 400,000; those of JAX in bfloat16 have the mean -0.0116."""
    draws = standard_normal(jax.random.key(0), (400_000,), dtype).astype(jnp.float32)
    assert abs(float(draws.mean())) < 5 / 400_000**0.5
    assert abs(float(draws.var()) - 1) < 5 * (2 / 400_000) ** 0.5
    assert float(jnp.abs(draws).max()) > 4
