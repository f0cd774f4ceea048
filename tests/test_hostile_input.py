"""Tests of numerics.arguments and numerics.checks: bad and extreme input ends in a finite answer of
the right shape or in one sentence.

The calls are made in a process of their own, as a user makes them: here the import hook would
refuse most of them before our own checks see them.
"""

import ast
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbnn
from jaxbnn import diagnostics, numerics, pcn, uniform_prior
from jaxbnn.gibbs import sample_inputs, sample_pooled
from jaxbnn.kernels import PCNState
from jaxbnn.networks import AvgPool, Dense, mlp
from tests.kit import hostile_options
from tests.kit.hostile import Call, families, outcome

KEY = jax.random.key(0)
PCN = PCNState(jnp.zeros(2, jnp.int32), jnp.zeros(1))


def _inputs_given(next_noise_variance):
    params = {"w": jnp.ones((3, 2)), "b": jnp.ones(2)}
    mean, outputs = jnp.ones((3, 4)), jnp.ones((2, 4))
    return sample_inputs(KEY, Dense(2), params, mean, outputs, 0.5, next_noise_variance)


def _pooled_given(dtype):
    mean, outputs = jnp.ones((4, 4, 1, 1), dtype), jnp.ones((2, 2, 1, 1))
    return sample_pooled(KEY, AvgPool((2, 2)), mean, outputs, 0.5, 0.5)


@pytest.mark.parametrize(
    "options",
    [
        # What was found before, and the families that need no compiler.
        pytest.param(["--examples", "1", "--only", "file", "--jobs", "0"], id="short"),
        # A test a family, so that none takes long.
        *(
            pytest.param(["--examples", "400", "--only", name], id=name, marks=pytest.mark.long)
            for name in (*families(), hostile_options.FAMILY)
        ),
    ],
)
def test_every_call_ends_in_an_answer_or_one_sentence(options, tmp_path):
    command = [sys.executable, "-m", "tests.kit.hostile", *options]
    table = os.environ.get("JAXBNN_HOSTILE_TABLE", str(tmp_path / "table.md"))
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    root = Path(__file__).parents[1]
    result = subprocess.run(
        [*command, "--table", table], cwd=root, env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "| all |" in Path(table).read_text()


# Callables that no bad array can meet, or that other tests give their own bad input.
NOT_TRIED = {
    "format_progress",  # of a report that the runner made
    "open_draws",  # torn and foreign files: tests/sampling/test_checkpoint.py
}


def test_every_public_function_is_tried():
    kit = Path(__file__).parent / "kit"
    words = set()
    for path in kit.glob("hostile_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            # Names, attributes, and the strings that `getattr` is given.
            words |= {getattr(node, field, None) for field in ("id", "attr")}
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                words.add(node.value)
    missing = {
        f"{package}.{name}"
        for package in jaxbnn.__all__
        if hasattr(getattr(jaxbnn, package), "__all__") and package != "interop"
        for name in getattr(jaxbnn, package).__all__
        if inspect.isfunction(inspect.unwrap(getattr(getattr(jaxbnn, package), name)))
        and name not in words | NOT_TRIED
    }
    assert not missing


def test_options_of_every_public_function_are_tried():
    known = {name.rpartition(".")[2] for name in hostile_options.TRIED} | hostile_options.NOT_TRIED
    for package in jaxbnn.__all__:
        room = getattr(jaxbnn, package)
        for name in () if package == "interop" else getattr(room, "__all__", ()):
            found = inspect.unwrap(getattr(room, name))
            is_error = inspect.isclass(found) and issubclass(found, Exception)
            if callable(found) and not is_error and name not in known:
                # But for data and keys, of which other calls are made.
                options = hostile_options.wrong_options(found)
                own = {
                    option for option, value in options if type(value) not in (object, type(None))
                }
                assert not own - {"key", "rng_key"}, name


def raises(error):
    def function():
        raise error

    return function


@pytest.mark.parametrize(
    ("function", "seen"),
    [
        (lambda: jnp.array([1.0, jnp.nan]), "a silent NaN"),
        (lambda: jnp.array([1.0, jnp.inf]), "a silent infinity"),
        (lambda: jnp.array([1.0, jnp.nan], jnp.bfloat16), "a silent NaN"),
        (lambda: jnp.ones(3), "shapes [(3,)], not [(2,)]"),
        (lambda: jnp.ones((2, 3)) @ jnp.ones((2, 3)), "not our sentence: TypeError"),
        (raises(KeyError("x")), "KeyError"),
        (raises(ValueError("from here")), "not our sentence"),
        (lambda: json.loads("{"), "not our sentence"),
    ],
)
def test_what_is_neither_is_found(function, seen):
    what, message = outcome(Call("f", "kind", function, [(2,)]))
    assert what == "FAILURE"
    assert message.startswith(seen)


def test_our_own_sentences_are_known():
    what, message = outcome(Call("f", "kind", lambda: numerics.check_count("n", 1.5)))
    assert (what, message) == ("sentence", "n must be a whole number, but is 1.5; give an int.")


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda: numerics.check_positive("s", 1j), TypeError, "s must hold real numbers"),
        (lambda: numerics.check_finite("x", {"a": np.array(["1"])}), TypeError, r"x\['a'\] must"),
        (lambda: numerics.check_count("n", np.float32(2)), TypeError, "n must be a whole number"),
        (lambda: numerics.check_count("n", jnp.array(0)), ValueError, "n must be at least 1"),
        (lambda: pcn(jnp.sum, 0.1).step(KEY, PCN), TypeError, "a leaf of it has dtype int32"),
        (lambda: uniform_prior(mlp((2, 1)), jnp.zeros(2), 1), ValueError, "low must be one number"),
        (lambda: _inputs_given(1e-30), ValueError, "noise_variance is 5.0e"),
        (lambda: _pooled_given(jnp.float16), TypeError, "mean must be float32 or float64"),
    ],
)
def test_the_refusal_says_what_was_wrong(function, error, message):
    with pytest.raises(error, match=message):
        function()


@pytest.mark.parametrize("unit", [1e-25, 1e25])
def test_covariance_agreement_does_not_depend_on_the_unit(rng, unit):
    draws = rng.normal(size=(3, 40, 2)).astype(np.float32)
    expected = diagnostics.covariance_agreement(draws)
    found = diagnostics.covariance_agreement(draws * np.float32(unit))
    np.testing.assert_allclose(found.p_value, expected.p_value, rtol=1e-3)


def test_neighbours_that_do_not_overlap_have_no_finite_error():
    apart = jnp.array([-1e15, 1e15])[None, None] * jnp.arange(1.0, 5.0)[None, :, None]
    found = diagnostics.bennett_acceptance_ratio(apart, [0.0, 1.0])
    assert np.isposinf(found.standard_error)


def test_numbers_of_every_kind_are_taken():
    for value in (1, 0.5, np.float32(2), np.ones(3, np.int8), jnp.ones((), jnp.bfloat16), True):
        numerics.check_positive("s", value)
    numerics.check_count("n", np.int64(3))


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_multivariate_ess_does_not_depend_on_the_unit(rng, scale):
    draws = rng.normal(size=(2, 100, 2)).astype(np.float32)
    expected = float(diagnostics.multivariate_ess(draws))
    found = float(diagnostics.multivariate_ess(draws * np.float32(scale)))
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_halves_are_judged_in_float32():
    half = jnp.asarray([-3.0, 0.0, 3.0], jnp.float16)
    found = numerics.log_ndtr(half)
    assert found.dtype == jnp.float32
    np.testing.assert_array_equal(found, numerics.log_ndtr(half.astype(jnp.float32)))
