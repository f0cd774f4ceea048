"""Results of a benchmark that takes hours: a file each, and all of them in one of the repository.

A benchmark that was stopped goes on from its own folder; on another machine, from the repository's.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from experiments.results import written_whole

FOLDER = Path(__file__).parents[2] / "record" / "benchmarks"


class Stored:
    """The results in a folder, by name.

    Parameters
    ----------
    folder
        Made if need be.
    kept
        The repository's file, whose results are put into the folder; those there stay.
    """

    def __init__(self, folder: Path, kept: Path | None = None):
        self.folder, self.file = folder, kept
        folder.mkdir(parents=True, exist_ok=True)
        if kept is not None and kept.exists():
            for name, found in json.loads(kept.read_text(encoding="utf-8")).items():
                if name not in self:
                    self[name] = found

    def __contains__(self, name: str) -> bool:
        """Whether there is a result of this name."""
        return self._path(name).exists()

    def __getitem__(self, name: str) -> dict[str, Any]:
        """Return the result of this name."""
        return json.loads(self._path(name).read_text(encoding="utf-8"))

    def __setitem__(self, name: str, found: Mapping[str, Any]) -> None:
        """Write one result as JSON, whole or not at all."""
        with written_whole(self._path(name)) as temporary:
            temporary.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, in order."""
        return iter(sorted(path.stem for path in self.folder.glob("*.json")))

    def values(self) -> list[dict[str, Any]]:
        """Return all results, in order of their names."""
        return [self[name] for name in self]

    def keep(self, of: Callable[[dict[str, Any]], bool] = lambda found: True) -> None:
        """Write results to the repository's file, a line each; those that `of` says.

        What the file has and the folder lacks stays there: a folder may be lost while it is used.
        """
        assert self.file is not None
        before = json.loads(self.file.read_text("utf-8")) if self.file.exists() else {}
        found = dict(sorted((before | {name: self[name] for name in self}).items()))
        lines = [f"{json.dumps(n)}: {json.dumps(one)}" for n, one in found.items() if of(one)]
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(self.file) as temporary:
            temporary.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"
