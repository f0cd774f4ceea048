"""Tests of numerics.data: numbers as they are given, and as JAX holds them."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbnn.numerics import check_finite, check_positive
from jaxbnn.numerics.arrays import as_array
from jaxbnn.numerics.data import coarse_columns, finite_array

LARGE = 3_000_000_000


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (np.array([LARGE, 1]), "float32"),
        (np.array([-LARGE, 1]), "float32"),
        (np.array([2 * LARGE, 1], np.uint64), "float32"),
        (np.array([LARGE, 1], np.uint32), "uint32"),
        (np.array([2**31 - 1, -(2**31)]), "int32"),
        (np.array([], np.int64), "int32"),
        (np.array([True]), "bool"),
    ],
)
def test_whole_numbers_do_not_wrap(values, dtype):
    found = as_array(values)
    assert found.dtype == dtype
    np.testing.assert_allclose(np.asarray(found, float), np.asarray(values, float), rtol=1e-7)


def test_what_jax_holds_is_left_alone(x64):
    assert as_array(np.array([LARGE])).dtype == np.int64
    assert as_array(np.array([2**40])).tolist() == [2**40]
    traced = jax.eval_shape(as_array, jnp.zeros(3, jnp.int32))
    assert traced.dtype == np.int32


def test_numbers_beyond_floats_are_refused():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=r"x, as float32, holds -inf at index \(1,\); give it"):
            finite_array("x", np.array([0.0, -1e39]))
        assert finite_array("x", np.array([0.0, 1e38])).dtype == np.float32
        with jax.enable_x64(True):
            assert finite_array("x", np.array([1e39])).tolist() == [1e39]


def test_columns_that_floats_round():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(1000, 1))
    sizes = np.array([0.0, 1e3, 7e3, 1e4, 1e8])
    values = np.concatenate([noise + sizes, np.full((1000, 2), [5.0, 0.3])], axis=1)
    assert coarse_columns(values, np.float32).tolist() == [False] * 3 + [True] * 2 + [False] * 2
    assert not coarse_columns(values, np.float64).any()
    assert coarse_columns(values[:, 4], np.float32).shape == ()
    # What is far from the rest counts for the deviation too, and rounding for no variation.
    few = np.where(np.arange(1000) == 3, 1e8, noise[:, 0])
    assert not coarse_columns(few, np.float32)
    assert not coarse_columns(0.3 + 1e-17 * np.arange(100), np.float64)
    assert coarse_columns(np.zeros((0, 2)), np.float32).tolist() == [False, False]
    assert not coarse_columns(np.array([1e308, -1e308]), np.float64)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize("as_given", [np.asarray, jnp.asarray])
def test_nan_of_few_bits_is_seen(dtype, as_given):
    """NumPy does not count bfloat16 as a float."""
    values = as_given(jnp.array([1.0, jnp.nan], dtype))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=r"x holds nan at index \(1,\)"):
            check_finite("x", values)
        with pytest.raises(ValueError, match="x must be positive and finite, but is nan"):
            check_positive("x", values)
