"""What is found between the phases of a run, kept beside their checkpoints.

The next phase has it among its parameters, and goes on only with the very same ones; the last
digits of a decomposition depend on how many threads compute it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from jaxbnn.sampling.store.files import BadCheckpoint
from jaxbnn.sampling.store.fingerprint import digest
from jaxbnn.sampling.store.state import pack, read_state, write_state


def found_again(
    path: Path | None, given: PyTree, find: Callable[[], dict[str, Array]]
) -> dict[str, Array]:
    """Return what `find()` returns, or what it returned when it was given the same before.

    Parameters
    ----------
    path
        The file, written where it is not there or is of something else; None: nothing is kept.
    given
        The arrays that the result is found from.
    find
        Called where the file does not tell.

    Raises
    ------
    CheckpointNotWritten
        The file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first = found_again(Path(folder) / "a", 1.0, lambda: {"x": jnp.ones(2)})
    ...     again = found_again(Path(folder) / "a", 1.0, lambda: {"x": jnp.zeros(2)})
    ...     other = found_again(Path(folder) / "a", 2.0, lambda: {"x": jnp.zeros(2)})
    >>> [found["x"].tolist() for found in (first, again, other)]
    [[1.0, 1.0], [1.0, 1.0], [0.0, 0.0]]
    """
    if path is None:
        return find()
    origin = digest(given)
    header, found = _read(path)
    if header.get("given") != origin:
        found = find()
        packed, leaves = pack(found)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_state(path.parent, {"given": origin, "leaves": leaves}, packed, path.name)
    return jax.tree.map(jnp.asarray, found)


def _read(path: Path) -> tuple[dict, dict[str, Any]]:
    """Return the file's header and arrays; none where there is no such file, or no whole one."""
    try:
        return read_state(path.parent, path.name)
    except (BadCheckpoint, KeyError):  # a file of draws has no header
        return {}, {}
