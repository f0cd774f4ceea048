"""One small adaptive run with everything a checkpoint has to keep."""

import contextlib
from unittest import mock

import blackjax
import jax
import numpy as np

import jaxbnn
from jaxbnn.sampling.pace import Pace
from tests.kit import bits
from tests.sampling.tiny import normal_log_density

WARMUP_CHUNK = 64
STARTS = {"w": np.array([[0.0, 1.0], [-4.0, 2.0], [3.0, 0.5]], np.float32)}
SETTINGS = {
    "num_samples": 40,
    "num_warmup": 2 * WARMUP_CHUNK,
    "adapt": jaxbnn.dual_averaging(0.574),
    "reduce": {"m": jaxbnn.moments(), "a": jaxbnn.acceptance()},
    "chunk_size": 6,
    "parameters": {"step_size": np.full(3, 0.1, np.float32)},
    "data": np.array([1.0, -1.0], np.float32),
}


def make_kernel(parameters, data):
    return blackjax.mala(lambda x: normal_log_density(x["w"] - data), parameters["step_size"])


def run(folder, progress=False, *, key=None, kernel=make_kernel, starts=STARTS, **options):
    key = jax.random.key(11) if key is None else key  # not at import: it would start the device
    options = SETTINGS | options
    with even_warm_up():
        return jaxbnn.sample(key, kernel, starts, checkpoint=folder, progress=progress, **options)


@contextlib.contextmanager
def even_warm_up():
    """Warm up in chunks of 64 steps, not by the clock."""
    with mock.patch.object(Pace, "next_steps", lambda self, left: min(left, WARMUP_CHUNK)):
        yield


def stop_after(num_chunks):
    """A reporter that is a Ctrl-C after so many chunks."""
    seen = []

    def report(progress):
        seen.append(progress)
        if len(seen) == num_chunks:
            raise KeyboardInterrupt

    return report


def leaves(draws):
    """All numbers of a result, the time it took apart, by their place."""
    return bits.leaves(draws._replace(seconds=0.0))


def same(a, b):
    """Equal to the last bit, the time it took apart."""
    bits.assert_same(a._replace(seconds=0.0), b._replace(seconds=0.0))
