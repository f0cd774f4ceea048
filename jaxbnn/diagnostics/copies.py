"""Draws that are copies of other draws, of the same chain or another: they count for nothing.

Independent chains in a continuous space never hold the same position, at whatever lag, nor the same
numbers with other signs or in another order. Discrete positions do recur, so what is looked for is
the same succession of positions and of times spent there.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int, UInt32, UInt64

# Successive positions that must agree; more where positions recur by themselves.
_WINDOW = 4
_LONG_WINDOW = 32
_SHARE = 0.05


class Copy(NamedTuple):
    """Part of a chain that was drawn before.

    Attributes
    ----------
    chain
        The chain that holds copies.
    of
        The chain that has them first; `chain` itself where it repeats its own draws.
    share
        Part of the chain's draws that are copies of that chain's.
    """

    chain: int
    of: int
    share: float


def copies(contents: UInt32[np.ndarray, "chain draw 2"]) -> list[Copy]:
    """Find the chains of which a twentieth or more was drawn before.

    Parameters
    ----------
    contents
        Equal for positions that hold the same numbers, up to order and signs (`Movement`).
    """
    codes = contents[..., 0].astype(np.uint64) << np.uint64(32) | contents[..., 1]
    visits = [_visits(code) for code in codes]
    held = np.concatenate([code[begins] for code, (begins, _) in zip(codes, visits, strict=True)])
    # As many different positions are left where all chains are one, and each repeats its half.
    is_continuous = 4 * len(codes) * len(np.unique(held)) >= len(held)
    width = _WINDOW if is_continuous else _LONG_WINDOW
    marks = [
        _windows(code[begins], lengths, width)
        for code, (begins, lengths) in zip(codes, visits, strict=True)
    ]
    owner = np.repeat(np.arange(len(codes)), [len(mark) for mark in marks])
    if not owner.size:
        return []
    _, first, which = np.unique(np.concatenate(marks), return_index=True, return_inverse=True)
    source = first[which]
    is_repeat = source != np.arange(len(owner))
    found = []
    offset = 0
    for chain, mark in enumerate(marks):
        part = slice(offset, offset + len(mark))
        offset += len(mark)
        for of in np.unique(owner[source[part]][is_repeat[part]]):
            at = np.flatnonzero(is_repeat[part] & (owner[source[part]] == of))
            share = _covered(at, *visits[chain], width).mean()
            if share >= _SHARE:
                found.append(Copy(chain, int(of), float(share)))
    return found


def _visits(
    code: UInt64[np.ndarray, " draw"],
) -> tuple[Int[np.ndarray, " v"], Int[np.ndarray, " v"]]:
    """Return where each stretch of equal positions begins, and its length."""
    begins = np.flatnonzero(np.append(True, code[1:] != code[:-1]))
    return begins, np.diff(np.append(begins, len(code)))


def _windows(code, lengths, width: int) -> UInt64[np.ndarray, " window"]:
    """Hash each succession of `width` positions and of the times spent there."""
    count = len(code) - width + 1
    if count < 1:
        return np.zeros(0, np.uint64)
    # The first and last stretch of a chain are cut off where it begins and ends; those between
    # positions are whole.
    step = code * np.uint64(0x9E3779B97F4A7C15)
    times = lengths.astype(np.uint64) * np.uint64(0xD1B54A32D192ED03)
    total = np.zeros(count, np.uint64)
    for k in range(width):
        total = total * np.uint64(0x2545F4914F6CDD1D) + (
            step[k : k + count] ^ (step[k : k + count] >> np.uint64(29))
        )
        if 0 < k < width - 1:
            total += times[k : k + count]
    return total


def _covered(at, begins, lengths, width: int) -> Bool[np.ndarray, " draw"]:
    """Mark the draws of the windows that start at the stretches `at`."""
    ends = begins + lengths
    steps = np.zeros(ends[-1] + 1, int)
    np.add.at(steps, begins[at], 1)
    np.add.at(steps, ends[at + width - 1], -1)
    return np.cumsum(steps)[:-1] > 0
