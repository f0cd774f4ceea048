"""A finished run made longer, and what a refusal names."""

import importlib.metadata
import tempfile

import blackjax
import jax
import jax.numpy as jnp
import numpy as np

import jaxbnn

# The trees compared need not be installed.
_version = importlib.metadata.version
importlib.metadata.version = lambda name: "0" if name == "jaxbnn" else _version(name)

TITLE = "a stored run made longer"
STARTS = np.zeros((2, 3), np.float32)
KERNEL = blackjax.mala(lambda x: -jnp.sum(x**2) / 2, 0.5)


def measure():
    with tempfile.TemporaryDirectory() as folder:
        _run(folder, 60)
        rows = [("60 draws made 70, against 70 at once", _said(lambda: _longer(folder)))]
        for name, value in (("num_warmup", 1), ("thinning", 2)):
            said = _said(lambda change={name: value}: _run(folder, 70, **change))
            rows.append((f"refused with another {name}", said))
    return rows


def _run(folder, number, **options):
    return jaxbnn.sample(
        jax.random.key(0), KERNEL, STARTS, number, chunk_size=16, checkpoint=folder,
        progress=False, reduce={"m": jaxbnn.moments()}, **options,
    )  # fmt: skip


def _longer(folder):
    pairs = [
        jax.tree.leaves(run._replace(seconds=0.0)) for run in (_run(folder, 70), _run(None, 70))
    ]
    same = all(
        np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in zip(*pairs, strict=True)
    )
    return "equal to the last bit" if same else "other numbers"


def _said(call):
    try:
        return str(call())
    except ValueError as error:
        return f"refused: {str(error).rpartition('state.nc ')[2]}"
    except Exception as error:
        return f"failed: {type(error).__name__}"
