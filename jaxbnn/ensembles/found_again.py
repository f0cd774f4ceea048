"""What is found between the phases of a run, kept beside their checkpoints.

The next phase has it among its parameters, and goes on only with the very same ones; the last
digits of a decomposition depend on how many threads compute it.
"""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
from jaxtyping import Array, PyTree

from jaxbnn.sampling.store.files import write_whole
from jaxbnn.sampling.store.fingerprint import digest

# The entry of the file that says what its arrays were found from.
_GIVEN = "given"


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
    ...     first = found_again(Path(folder) / "a", 1.0, lambda: {"x": np.ones(2)})
    ...     again = found_again(Path(folder) / "a", 1.0, lambda: {"x": np.zeros(2)})
    ...     other = found_again(Path(folder) / "a", 2.0, lambda: {"x": np.zeros(2)})
    >>> [found["x"].tolist() for found in (first, again, other)]
    [[1.0, 1.0], [1.0, 1.0], [0.0, 0.0]]
    """
    if path is None:
        return find()
    origin = digest(given)
    found = _read(path)
    if found is None or found.pop(_GIVEN, None) != origin:
        found = {name: np.asarray(value) for name, value in find().items()}
        content, named = io.BytesIO(), {_GIVEN: np.array(origin)}
        np.savez(content, allow_pickle=False, **found, **named)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content.getvalue())
    return jax.tree.map(jax.numpy.asarray, found)


def _read(path: Path) -> dict | None:
    """Return the file's arrays; None where there is no such file, or none that can be read."""
    try:
        with np.load(path) as stored:
            found = {name: stored[name] for name in stored}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        return None
    return found | {_GIVEN: str(found.get(_GIVEN, ""))}
