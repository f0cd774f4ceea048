"""Predictions at new rows, a block of fixed size at a time.

The programs are those of the first call, however many rows there are, and what is said of a row
does not depend on the rows beside it: not even in the last digit.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Shaped

ROWS = 128


def by_blocks(
    function: Callable[..., Sequence[np.ndarray]], *arrays: Shaped[np.ndarray, "n ..."]
) -> list[np.ndarray]:
    """Return the arrays of `function(*blocks)`, one row for each row of `arrays`."""
    found = []
    for start in range(0, len(arrays[0]), ROWS):
        blocks = [array[start : start + ROWS] for array in arrays]
        missing = ROWS - len(blocks[0])
        padded = [np.concatenate([b, np.repeat(b[-1:], missing, axis=0)]) for b in blocks]
        found.append([np.asarray(part)[: len(blocks[0])] for part in function(*padded)])
    return [np.concatenate(parts) for parts in zip(*found, strict=True)]
