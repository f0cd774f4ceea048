"""Results of a benchmark that takes hours: a file each, and all of them in one of the repository.

A benchmark that was stopped goes on from its own folder; on another machine, from the repository's.
Each result carries the time when it was stored, and of two the newer one counts.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from experiments.record import code
from experiments.results import held, written_whole

FOLDER = Path(__file__).parents[2] / "record" / "benchmarks"
_TIME = "stored_at"


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


def digest_by_now(code_of: Callable[[], str]) -> str:
    """Return `code_of()`, a digest, of the files as they are by now and not as first read."""
    code.forget()
    return code_of()


def by_one_code(
    measure: Callable[[], dict[str, Any] | None], code_of: Callable[[], str]
) -> dict[str, Any] | None:
    """Return what `measure` found, and as its `code` the digest of before.

    None where nothing was found and, after a sentence, where the digest is another afterwards: then
    nobody knows which code a process ran that began meanwhile.
    """
    before = digest_by_now(code_of)
    found = measure()
    if found is None:
        return None
    if digest_by_now(code_of) != before:
        print("Not stored: the code was changed while this was measured.", flush=True)
        return None
    return found | {"code": before}


class Stored:
    """The results in a folder and in the repository's file, by name; of two the newer.

    Those without a time are the oldest; of two equally old ones the file's counts.

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

    def __contains__(self, name: str) -> bool:
        """Whether there is a result of this name."""
        return self._path(name).exists() or name in self._of_the_file

    def __getitem__(self, name: str) -> dict[str, Any]:
        """Return the result of this name, without its time."""
        found = self._of_the_file.get(name)
        if self._path(name).exists():
            found = _newer(self._here(name), found)
        if found is None:
            raise KeyError(name)
        return {key: value for key, value in found.items() if key != _TIME}

    def __setitem__(self, name: str, found: Mapping[str, Any]) -> None:
        """Write one result and the time as JSON, whole or not at all."""
        timed = {**found, _TIME: datetime.now(UTC).isoformat(timespec="microseconds")}
        with written_whole(self._path(name)) as temporary:
            temporary.write_text(json.dumps(timed, indent=1) + "\n", encoding="utf-8")

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, in order."""
        return iter(sorted({*self._own(), *self._of_the_file}))

    def values(self) -> list[dict[str, Any]]:
        """Return all results, in order of their names."""
        return [self[name] for name in self]

    def keep(self, of: Callable[[dict[str, Any]], bool] = lambda found: True) -> None:
        """Write results to the repository's file, a line each; those that `of` says.

        These are what the folder has and the file lacks, or has of an earlier time. The rest stays
        as it is in the file by now: other processes may have written to it, a folder may hold what
        was measured long ago, or be lost while it is used. Nothing is written where nothing is new.
        """
        assert self.file is not None
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with held(self.file.parent, wait=True):
            before = self._read()
            found = before | {n: _newer(self._here(n), before.get(n)) for n in self._own()}
            found = {name: one for name, one in sorted(found.items()) if of(one)}
            if found == before:
                return
            lines = [f"{json.dumps(name)}: {json.dumps(one)}" for name, one in found.items()]
            with written_whole(self.file) as temporary:
                temporary.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")

    def _own(self) -> list[str]:
        return [path.stem for path in self.folder.glob("*.json")]

    def _here(self, name: str) -> dict[str, Any]:
        return json.loads(self._path(name).read_text(encoding="utf-8"))

    def _read(self) -> dict[str, dict[str, Any]]:
        if self.file is None or not self.file.exists():
            return {}
        return json.loads(self.file.read_text(encoding="utf-8"))

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"


def _newer(here: dict[str, Any], kept: dict[str, Any] | None) -> dict[str, Any]:
    """Return the newer of two results, the second if they are of one time."""
    return here if kept is None or here.get(_TIME, "") > kept.get(_TIME, "") else kept
