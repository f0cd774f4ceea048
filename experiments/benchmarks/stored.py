"""Results of a benchmark that takes hours: a file each, and all of them in one of the repository.

A benchmark that was stopped goes on from its own folder; on another machine, from the repository's.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.results import held, written_whole

FOLDER = Path(__file__).parents[2] / "record" / "benchmarks"


def age_of(found: Mapping[str, Any], code: str) -> str:
    """Return what the row of a result says besides: that it is not of today's code, or nothing.

    Examples
    --------
    >>> age_of({"code": "a1"}, "a1"), age_of({"code": "b2"}, "a1")
    ('', ', by earlier code')
    """
    return "" if found.get("code") == code else ", by earlier code"


def say_how_many_are_earlier(
    results: Sequence[Mapping[str, Any]], code_of: Callable[[Mapping[str, Any]], str]
) -> None:
    """Print how many results are not of today's code, which is `code_of(result)`, if any are."""
    if old := sum(age_of(one, code_of(one)) != "" for one in results):
        print(f"{old} of {len(results)} results are of an earlier state of the code.")


class Stored:
    """The results in a folder, by name, and those of the repository's file that the folder lacks.

    Parameters
    ----------
    folder
        Made if need be; holds what is measured here, and nothing of the file.
    kept
        The repository's file, read once.
    """

    def __init__(self, folder: Path, kept: Path | None = None):
        self.folder, self.file = folder, kept
        folder.mkdir(parents=True, exist_ok=True)
        self._of_the_file = self._read()
        self._measured: set[str] = set()

    def __contains__(self, name: str) -> bool:
        """Whether there is a result of this name."""
        return self._path(name).exists() or name in self._of_the_file

    def __getitem__(self, name: str) -> dict[str, Any]:
        """Return the result of this name; of two the one measured here."""
        path = self._path(name)
        if not path.exists():
            return self._of_the_file[name]
        return json.loads(path.read_text(encoding="utf-8"))

    def __setitem__(self, name: str, found: Mapping[str, Any]) -> None:
        """Write one result as JSON, whole or not at all."""
        self._measured.add(name)
        with written_whole(self._path(name)) as temporary:
            temporary.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, in order."""
        return iter(sorted({*self._own(), *self._of_the_file}))

    def values(self) -> list[dict[str, Any]]:
        """Return all results, in order of their names."""
        return [self[name] for name in self]

    def keep(self, of: Callable[[dict[str, Any]], bool] = lambda found: True) -> None:
        """Write results to the repository's file, a line each; those that `of` says.

        These are what was measured since this object was made, and what the folder has and the
        file lacks. The rest stays as it is in the file by now: other processes may have written to
        it, a folder may hold what was measured long ago, or be lost while it is used.
        """
        assert self.file is not None
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with held(self.file.parent, wait=True):
            found = self._read()
            for name in self._own():
                if name in self._measured or name not in found:
                    found[name] = self[name]
            lines = [
                f"{json.dumps(n)}: {json.dumps(one)}" for n, one in sorted(found.items()) if of(one)
            ]
            with written_whole(self.file) as temporary:
                temporary.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")

    def _own(self) -> list[str]:
        return [path.stem for path in self.folder.glob("*.json")]

    def _read(self) -> dict[str, dict[str, Any]]:
        if self.file is None or not self.file.exists():
            return {}
        return json.loads(self.file.read_text(encoding="utf-8"))

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"
