import jax.numpy as jnp
import numpy as np
import pytest

from jaxbnn.diagnostics import by_replica, evaluate
from jaxbnn.diagnostics.functions import _evaluate

POSITIONS = {
    "w": jnp.arange(2 * 7 * 3, dtype=jnp.float32).reshape(2, 7, 3),
    "b": jnp.arange(14, dtype=jnp.float32).reshape(2, 7),
}


def line(position):
    return {"y": position["w"] * position["b"], "total": jnp.sum(position["w"])}


@pytest.mark.parametrize("batch_size", [None, 1, 4, 100])
def test_every_draw_of_every_chain(batch_size):
    values = evaluate(line, POSITIONS, batch_size=batch_size)
    w, b = np.asarray(POSITIONS["w"]), np.asarray(POSITIONS["b"])
    np.testing.assert_array_equal(values["y"], w * b[..., None])
    np.testing.assert_array_equal(values["total"], w.sum(axis=2))


def test_same_function_is_not_traced_again():
    traces = []

    def function(position):
        traces.append(1)
        return position["b"] + 1

    evaluate(function, POSITIONS)
    count = len(traces)
    evaluate(function, POSITIONS)
    assert len(traces) == count


def test_large_draws_are_mapped_in_batches():
    positions = jnp.zeros((2, 8, 2**18))
    text = _evaluate.lower(jnp.tanh, None, positions).as_text()
    assert "while" in text


@pytest.mark.parametrize(
    ("positions", "message"),
    [
        ({}, "without any array"),
        ({"b": np.zeros(5)}, r"positions\['b'\] has shape \(5,\)"),
        ({"a": np.zeros((2, 5)), "b": np.zeros((2, 6))}, r"\['a'\] has \(2, 5\) and .* \(2, 6\)"),
        (np.zeros((0, 5)), r"no draws: \(chain, draw\) is \(0, 5\)"),
    ],
)
def test_the_door(positions, message):
    with pytest.raises(ValueError, match=message):
        evaluate(lambda p: p, positions)


def test_batch_size_is_checked():
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        evaluate(line, POSITIONS, batch_size=0)


def test_numbers_that_jax_does_not_hold_are_refused():
    """As 32 bits the whole number is another, and the float an infinity."""
    for beyond in (3_000_000_000, 1e39):
        with pytest.raises(ValueError, match=r"which (int|float)32 does not"):
            evaluate(lambda p: p * 1, np.full((2, 4), beyond))
        with pytest.raises(ValueError, match="values holds"):
            by_replica(np.array([beyond, 1]), np.array([1, 0]))
