"""Validation of a ladder of temperatures and of the options of its swaps."""

from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import ArrayLike, PyTree

from jaxbnn.kernels.arguments import check_positive_number
from jaxbnn.numerics import check_count, check_real, is_concrete
from jaxbnn.numerics.arguments import check_word


def check_ladder(temperatures: ArrayLike | Sequence[float], tempered: str) -> int:
    """Return the number of rungs, or raise one clear sentence; traced values pass unseen.

    Parameters
    ----------
    temperatures
        (rungs,) not decreasing, the last one 1.
    tempered
        "likelihood" or "posterior".
    """
    check_word("tempered", tempered, ("likelihood", "posterior"))
    check_real("temperatures", temperatures)
    shape = np.shape(temperatures)
    if len(shape) != 1 or shape[0] < 2:
        raise ValueError(
            "temperatures must be one row of at least two, the last of them 1, but have shape "
            f"{shape}; a single temperature is the kernel make_kernel(1.0, parameters) itself."
        )
    if not is_concrete(temperatures):
        return shape[0]
    ladder = np.asarray(temperatures)
    if not np.isfinite(ladder).all() or (np.diff(ladder) < 0).any() or (ladder < 0).any():
        raise ValueError(
            "temperatures must be finite, not negative and never decrease from one rung to the "
            f"next, but are {ladder.tolist()}; sort them, the hottest (smallest) first."
        )
    if ladder[-1] != 1:
        raise ValueError(
            f"temperatures must end at 1, the posterior itself, but end at {ladder[-1]}; append 1."
        )
    if tempered == "posterior" and ladder[0] == 0:
        raise ValueError(
            "temperatures start at 0, where the whole posterior to that power is flat and cannot "
            "be sampled; start above 0, or temper the likelihood only."
        )
    return shape[0]


def check_rungs(name: str, tree: PyTree, rungs: int) -> None:
    """Raise unless every leaf of `tree`, called `name`, has the rungs as leading axis."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if np.ndim(leaf) == 0 or np.shape(leaf)[0] != rungs:
            raise ValueError(
                f"{name} must have the {rungs} rungs as leading axis of every array, but "
                f"{jax.tree_util.keystr(path) or 'it'} has shape {np.shape(leaf)}; give one entry "
                "a temperature."
            )


def check_options(swap: str, swap_every: int, beta: ArrayLike) -> None:
    """Raise unless the scheme of swaps is known, its interval a count and beta positive."""
    check_word("swap", swap, ("categorical", "even_odd"))
    check_count("swap_every", swap_every)
    check_positive_number("beta", beta, "the paper's is 0.5")
