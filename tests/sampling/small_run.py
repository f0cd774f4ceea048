"""One small adaptive run with everything a checkpoint has to keep."""

import blackjax
import jax
import numpy as np

import jaxbnn
from tests.sampling.tiny import normal_log_density

STARTS = {"w": np.array([[0.0, 1.0], [-4.0, 2.0], [3.0, 0.5]], np.float32)}
SETTINGS = {
    "num_samples": 40,
    "num_warmup": 128,  # two chunks
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
    return jaxbnn.sample(key, kernel, starts, checkpoint=folder, progress=progress, **options)


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
    found = jax.tree_util.tree_leaves_with_path(draws._replace(seconds=0.0))
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in found}


def same(a, b):
    """Equal to the last bit."""
    a, b = leaves(a), leaves(b)
    assert list(a) == list(b)
    for place, x in a.items():
        assert (x.dtype, x.shape) == (b[place].dtype, b[place].shape), place
        assert x.tobytes() == b[place].tobytes(), place
