"""A run that is taken up again is the run that was never stopped, bit for bit."""

import blackjax
import jax
import numpy as np
import pytest

import jaxbnn
from tests.sampling.tiny import normal_log_density

KEY = jax.random.key(11)
STARTS = {"w": np.array([[0.0, 1.0], [-4.0, 2.0], [3.0, 0.5]], np.float32)}
DATA = np.array([1.0, -1.0], np.float32)
ADAPT = jaxbnn.dual_averaging(0.574)
REDUCE = {"m": jaxbnn.moments(), "a": jaxbnn.acceptance()}
SETTINGS = {
    "num_samples": 40,
    "num_warmup": 200,
    "adapt": ADAPT,
    "reduce": REDUCE,
    "chunk_size": 6,
    "parameters": {"step_size": np.full(3, 0.1, np.float32)},
    "data": DATA,
}


def make_kernel(parameters, data):
    return blackjax.mala(lambda x: normal_log_density(x["w"] - data), parameters["step_size"])


def run(folder, progress=False, kernel=make_kernel, key=KEY, starts=STARTS, **options):
    return jaxbnn.sample(
        key, kernel, starts, checkpoint=folder, progress=progress, **SETTINGS | options
    )


def same(a, b):
    """Equal to the last bit, the time it took apart."""
    a, b = a._replace(seconds=0.0), b._replace(seconds=0.0)
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for (path, x), y in zip(
        jax.tree_util.tree_leaves_with_path(a), jax.tree.leaves(b), strict=True
    ):
        x, y = np.asarray(x), np.asarray(y)
        assert x.dtype == y.dtype, path
        assert x.tobytes() == y.tobytes(), path


def stop_after(num_chunks):
    """A reporter that is a Ctrl-C after so many chunks."""
    seen = []

    def report(progress):
        seen.append(progress)
        if len(seen) == num_chunks:
            raise KeyboardInterrupt

    return report


@pytest.fixture(scope="module")
def whole():
    return run(None)


@pytest.mark.parametrize("stops", [[1], [3], [5], [1, 1, 2, 3]])
def test_taken_up_is_not_interrupted(tmp_path, whole, stops):
    for num_chunks in stops:
        assert run(tmp_path, stop_after(num_chunks)).interrupted
    seen = []
    draws = run(tmp_path, seen.append)
    assert not draws.interrupted
    same(draws, whole)
    assert draws.seconds > 0
