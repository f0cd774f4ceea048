"""One module a benchmark: `run(out_dir, **options)` returns rows, as a study's run does.

`python -m experiments benchmark NAME` runs `experiments/benchmarks/NAME.py`; keyword-only
or defaulted parameters of its `run` are what `--set key=value` may give.
"""

from collections.abc import Iterable

from experiments.errors import InputError, did_you_mean


def check_known(names: Iterable[str], known: Iterable[str]) -> None:
    """Raise InputError for the first name that is not among the known ones.

    Examples
    --------
    >>> check_known(["iris"], ["iris", "xor"])
    """
    known = tuple(known)
    for name in names:
        if name not in known:
            raise InputError(f"There is no {name!r} here{did_you_mean(name, known)}")
