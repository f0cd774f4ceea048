"""Tests of sampling.records: positions are PyTrees of any make and dtype, and come back as they
went in.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.base import SamplingAlgorithm

import jaxbnn
from jaxbnn.sampling import records

KEY = jax.random.key(31)


class State(NamedTuple):
    position: object
    auxiliary = ()


class Layer(NamedTuple):
    w: object
    b: object


def shift() -> SamplingAlgorithm:
    """Add one to every number and turn every truth value around."""

    def step(rng_key, state):
        turn = lambda x: ~x if x.dtype == bool else x + jnp.ones((), x.dtype)  # noqa: E731
        return State(jax.tree.map(turn, state.position)), ()

    return SamplingAlgorithm(lambda position, rng_key=None: State(position), step)


KERNEL = shift()
POSITIONS = {
    "array": np.arange(2.0, dtype=np.float32),
    "matrix": np.arange(12.0, dtype=np.float32).reshape(2, 2, 3),
    "dict": {"b": np.zeros(2, np.float32), "a": np.ones((2, 3), np.float32)},
    "named tuple": Layer(np.zeros((2, 2, 3), np.float32), np.ones((2, 3), np.float32)),
    "layers": ({"w": np.ones((2, 2, 2), np.float32)}, (), {"b": np.zeros((2, 1), np.float32)}, ()),
    "list": [np.zeros(2, np.float32), [np.ones((2, 1), np.float32)]],
    "dtypes": {
        "int": np.arange(2, dtype=np.int32),
        "uint8": np.arange(2, dtype=np.uint8),
        "bool": np.array([[True], [False]]),
        "half": np.arange(2, dtype=np.float16),
        "bfloat16": jnp.arange(2, dtype=jnp.bfloat16),
        "complex": np.array([1j, 2], np.complex64),
    },
    "empty": {"x": np.zeros((2, 3), np.float32), "none": np.zeros((2, 0), np.float32)},
    "large": {"x": np.zeros((2, 40, 40), np.float32), "y": np.zeros(2, np.float32)},
}


@pytest.mark.parametrize("name", POSITIONS)
def test_positions_come_back_as_they_went_in(name):
    positions = POSITIONS[name]
    draws = jaxbnn.sample(KEY, KERNEL, positions, 3, progress=False)
    assert jax.tree.structure(draws.positions) == jax.tree.structure(positions)
    assert np.isnan(draws.acceptance_rate).all()

    def check(start, drawn):
        start = np.asarray(start)
        assert isinstance(drawn, np.ndarray)
        assert drawn.dtype == start.dtype
        assert drawn.shape == (2, 3, *start.shape[1:])
        for t in range(3):
            expected = (
                start ^ (t % 2 == 0) if start.dtype == bool else start + start.dtype.type(t + 1)
            )
            np.testing.assert_array_equal(drawn[:, t], expected)

    jax.tree.map(check, positions, draws.positions)


def test_float64_stays(x64):
    positions = {"x": np.zeros((2, 3)), "y": np.zeros(2, np.float32), "n": np.arange(2)}
    draws = jaxbnn.sample(KEY, KERNEL, positions, 3, thinning=2, progress=False)
    assert draws.positions["x"].dtype == np.float64
    assert draws.positions["y"].dtype == np.float32
    assert draws.positions["n"].dtype == np.int64
    assert (draws.positions["x"] == np.array([2, 4, 6])[:, None]).all()


def test_float64_is_a_switch_of_one_run():
    kernel = jaxbnn.pcn(lambda x: -jnp.sum(x**2), 0.5)
    runs = []
    for is_double in (False, True, False):
        with jax.enable_x64(is_double):
            runs.append(jaxbnn.sample(KEY, kernel, np.ones((2, 3)), 4, progress=False))
    types = [(run.positions.dtype, run.final_state.log_likelihood.dtype) for run in runs]
    assert types == [(np.float32,) * 2, (np.float64,) * 2, (np.float32,) * 2]
    np.testing.assert_array_equal(runs[0].positions, runs[2].positions)


def test_records_keep_every_bit(rng):
    # NaN with a payload, -0, denormals and the largest integers survive the packing.
    words = rng.integers(0, 2**32, (5, 7), dtype=np.uint32)
    record = {
        "f": words.view(np.float32),
        "i": words.view(np.int32),
        "u": words,
        "b": words > 2**31,
        "h": words.astype(np.uint16),
        "s": words[:, 0].view(np.float32),
    }
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), record)
    buffers = records.make_buffers(shapes, 5)
    for i in range(5):
        one = jax.tree.map(lambda x, i=i: jnp.asarray(x[i]), record)
        buffers = records.write(buffers, one, jnp.int32(i))
    back = records.read(buffers, shapes)

    def check(expected, actual):
        assert np.asarray(actual).dtype == expected.dtype
        assert np.asarray(actual).tobytes() == np.ascontiguousarray(expected).tobytes()

    jax.tree.map(check, record, back)
    assert records.bytes_of(shapes) == 7 * (4 + 4 + 4 + 1 + 2) + 4
    assert records.bytes_of({}) == 1


class NoInfo(NamedTuple):
    acceptance_rate: object


@pytest.mark.parametrize(
    ("rate", "expected"),
    [(True, 1.0), (1, 1.0), (0.25, 0.25), (None, np.nan), (np.full(3, 0.5, np.float32), np.nan)],
    ids=["bool", "int", "float", "None", "one a temperature"],
)
@pytest.mark.parametrize("thinning", [1, 2])
def test_any_kind_of_acceptance_rate(rate, expected, thinning):
    rate = rate if rate is None or isinstance(rate, float) else jnp.asarray(rate)

    def step(rng_key, state):
        return State(state.position + 1), NoInfo(rate)

    kernel = SamplingAlgorithm(KERNEL.init, step)
    reduce = {} if np.isnan(expected) else {"a": jaxbnn.acceptance()}
    draws = jaxbnn.sample(
        KEY, kernel, np.zeros(2, np.float32), 3, thinning=thinning, num_warmup=2, reduce=reduce,
        progress=False,
    )  # fmt: skip
    np.testing.assert_array_equal(draws.acceptance_rate, [expected] * 2)
    if reduce:
        assert draws.reduced["a"].pooled.acceptance_rate == expected
