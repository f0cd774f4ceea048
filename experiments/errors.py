"""The one exception that the command turns into a sentence on stderr and exit code 2."""

from collections.abc import Iterable
from difflib import get_close_matches


class InputError(ValueError):
    """What the user gave cannot be used; the message is one sentence that says why."""


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """Return `"; did you mean 'x'?"` for the candidate nearest to `word`, else a full stop.

    Examples
    --------
    >>> did_you_mean("iriss", ["iris", "xor"])
    "; did you mean 'iris'?"
    >>> did_you_mean("mnist", ["iris", "xor"])
    '.'
    """
    nearest = get_close_matches(word, sorted(candidates), n=1)
    return f"; did you mean {nearest[0]!r}?" if nearest else "."
