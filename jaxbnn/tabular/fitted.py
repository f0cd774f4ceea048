"""What a fit returns, and what its draws say of the columns."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, PyTree

from jaxbnn.sampling import Draws

_MOST_SCALES_TOLD = 12


class Fitted(NamedTuple):
    """Draws with leaves (chain, draw, ...), the runner's own where it drew them, and remarks.

    `is_unfinished` is whether an optimiser was stopped while it still gained.
    """

    positions: PyTree
    draws: Draws | None
    notes: list[str]
    is_unfinished: bool = False


def relevance_note(fitted: Fitted, names: Sequence[str]) -> str:
    """Return a sentence with the learnt scale of each column's weights, the largest first.

    Examples
    --------
    >>> draws = {"log_precision": ({"w": np.log([[[4.0, 0.01]]])},)}
    >>> relevance_note(Fitted(draws, None, []), ["sun", "moon"])
    "Learnt scales of the columns' weights, in units of the usual: moon 10, sun 0.5."
    """
    scales = relevance_scales(fitted.positions)
    order = np.argsort(-scales, kind="stable")
    shown = [f"{names[i]} {scales[i]:.2g}" for i in order[:_MOST_SCALES_TOLD]]
    rest = len(order) - len(shown)
    told = ", ".join(shown) + (f", and {rest} columns below" if rest else "")
    return f"Learnt scales of the columns' weights, in units of the usual: {told}."


def relevance_scales(positions: PyTree) -> Float[np.ndarray, " columns"]:
    """Return the posterior mean of each column's prior scale, in units of the usual one."""
    log_precision = np.asarray(positions["log_precision"][0]["w"], float)
    return np.exp(-0.5 * log_precision).reshape(-1, log_precision.shape[-1]).mean(axis=0)
