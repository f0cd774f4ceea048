"""What a study offers the command, and what the command hands to a study.

How to add a study: write `experiments/studies/<study>.py` (or a package) with a dictionary
`EXPERIMENTS` of what a config may ask for, and a config in `configs/<study>/`::

    class XorSettings(Settings):                    # unknown keys and wrong types are refused
        num_chains: int = Field(gt=0)               # bounds belong here (pydantic's Field)
        prior_scales: tuple[float, ...] = (3.0,)

    def run_xor(settings: XorSettings, context: Context) -> list[Row]:
        data = context.stage("mala", lambda: {"ess": compute(context.key, settings)})
        context.record_speed("mala", steps=settings.num_chains * 1000, seconds=2.0)
        context.save_figure("figure_2", figure)     # PNG; also save_table, save_draws
        return [Row("ess_min", "MALA, prior N(0, 3I)", 9870.0, 55.0, "004 Table 1")]

    EXPERIMENTS = {"xor": Experiment(XorSettings, run_xor)}

The config names `study`, `name`, `description`, `seed` and, if it is not the name, the
`experiment` (a key of EXPERIMENTS; several configs may share one); its other keys are the
settings, and the tables [smoke], [desk], [paper] override them. `run` returns one row a
number; the paper's value is joined in afterwards, on (source, quantity, setting).
"""

import hashlib
import importlib
import json
import pkgutil
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np
from pydantic import BaseModel, ConfigDict

import experiments.studies
from experiments.errors import InputError, did_you_mean
from experiments.results import (
    Row,
    markdown_table,
    other_versions,
    versions,
    write_json,
    written_whole,
)
from jaxbnn import Draws, sample

__all__ = [
    "Context",
    "Experiment",
    "Row",
    "Settings",
    "all_draws",
    "load_experiment",
    "study_names",
]


class Settings(BaseModel):
    """Base of every experiment's settings, nested tables included.

    Unknown keys, wrong types, NaN and infinities are refused. An array of the TOML file
    fills a `tuple[...]` field.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


# In a stage's file: what it cost and which code made it, and versions besides its fingerprint's,
# which stages from before they were noted lack.
_ORIGIN, _OTHERS = "__origin__", "__other_versions__"


class StageLedger(Protocol):
    """What counts the cost of stages; `experiments.record.ledger` has it."""

    def begun(self, name: str, before: Mapping[str, Any] | None) -> None:
        """Count for a stage from now on; `before` is what `stopped` returned, if it was stopped."""

    def stopped(self, name: str) -> dict[str, Any]:
        """Count for a stage no more; return what is to be kept until it goes on."""

    def finished(self, name: str) -> dict[str, Any]:
        """Count a stage that is finished; return what is to be stored with it."""

    def reused(self, name: str, origin: Mapping[str, Any]) -> None:
        """Count a stage that was read back, by what was stored with it."""


@dataclass(frozen=True)
class Experiment:
    """A kind of experiment: the model of its settings, and the function that runs it.

    `run(settings, context)` returns the rows of metrics.json, one a number, or None.
    """

    settings: type[Settings]
    run: Callable[[Any, "Context"], Sequence[Row] | None]


def all_draws(*arguments: Any, **options: Any) -> Draws:
    """Return `jaxbnn.sample(...)`; a Ctrl-C among its draws stops the study.

    `sample` itself returns what was drawn until then, of which a stage would be made.
    """
    draws = sample(*arguments, **options)
    if draws.interrupted:
        raise KeyboardInterrupt
    return draws


@dataclass
class Context:
    """One run: its scale, seed and directory, with helpers that write files whole.

    Parameters
    ----------
    scale
        "smoke", "desk" or "paper".
    seed
        The run's seed; `key` is the JAX key made from it. Fold or split it, once a use.
    out_dir
        The run's own directory, which exists.
    resume
        Whether finished stages of an earlier, interrupted run may be read back.
    kept
        A folder of finished stages that the repository keeps of such runs; or None.
    identity
        What the run computes (settings and all), as JSON data: a stage of a run with another
        identity, seed or version is never reused.
    after_stage
        Called when a stage has been computed and written.
    ledger
        Counts what each stage cost and which code made it, its own run's or another's; or None.
    """

    scale: str
    seed: int
    out_dir: Path
    resume: bool = False
    kept: Path | None = None
    identity: Mapping[str, Any] = field(default_factory=dict)
    figures: list[Path] = field(default_factory=list)
    conclusions: list[str] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    speeds: dict[str, float] = field(default_factory=dict)
    reused: list[str] = field(default_factory=list)
    after_stage: Callable[[], None] = lambda: None
    ledger: StageLedger | None = None
    _stages_of: dict[str, Mapping[str, Any] | None] = field(default_factory=dict)
    _checkpoints: set[Path] = field(default_factory=set)

    @cached_property
    def key(self) -> jax.Array:
        """The run's typed PRNG key, made from the seed."""
        return jax.random.key(self.seed)

    def stage(
        self,
        name: str,
        compute: Callable[[], Mapping[str, Any]],
        *,
        of: Mapping[str, Any] | None = None,
    ) -> dict[str, np.ndarray]:
        """Return `compute()`'s arrays, kept in `stages/<name>.npz`, computed once under --resume.

        The unit of resuming: give each setting of a table its own stage. A file of another
        seed, other settings or other versions is not reused. A long stage that samples by
        `context.sample(name, ...)` goes on inside.

        With `of`, JSON data of all that this stage's arrays depend on besides scale, seed and
        versions, the run's other settings do not count: a run of more reuses what it shares.
        """
        path = self._path(Path("stages"), name, ".npz")
        fingerprint = self._fingerprint(of)
        if self.resume and (known := self._read_back(path, fingerprint)) is not None:
            return known
        self._stages_of[name] = of
        cost = path.with_suffix(".cost.json")
        if self.ledger is not None:
            self.ledger.begun(name, self._spent_before(cost, fingerprint))
        try:
            arrays = {key: np.asarray(value) for key, value in compute().items()}
        except BaseException:
            if self.ledger is not None:
                stopped = {"fingerprint": fingerprint, "origin": self.ledger.stopped(name)}
                write_json(cost, stopped)
            raise
        others = np.asarray(json.dumps(other_versions()))
        about = {"__fingerprint__": np.asarray(fingerprint), _OTHERS: others}
        if self.ledger is not None:
            about[_ORIGIN] = np.asarray(json.dumps(self.ledger.finished(name)))
        _write_npz(path, {**arrays, **about})
        cost.unlink(missing_ok=True)
        self.after_stage()
        self._remove_checkpoints(name)
        return arrays

    def _read_back(self, path: Path, fingerprint: str) -> dict[str, np.ndarray] | None:
        """Return a finished stage's arrays, of this run's folder or else of those kept, or None."""
        for candidate in (path, *([self.kept / path.name] if self.kept else [])):
            if not candidate.exists():
                continue
            with np.load(candidate, allow_pickle=False) as stored:
                if stored["__fingerprint__"].item() != fingerprint:
                    continue
                if _OTHERS in stored and json.loads(stored[_OTHERS].item()) != other_versions():
                    continue
                arrays = dict(stored)
            if candidate != path:
                _write_npz(path, arrays)
                print(f"Stage {path.stem} is kept in the repository.", flush=True)
            self.reused.append(path.stem)
            if self.ledger is not None and _ORIGIN in arrays:
                self.ledger.reused(path.stem, json.loads(arrays[_ORIGIN].item()))
            about = {"__fingerprint__", _ORIGIN, _OTHERS}
            return {key: value for key, value in arrays.items() if key not in about}
        return None

    def _spent_before(self, cost: Path, fingerprint: str) -> dict[str, Any] | None:
        """Return what was spent on a stage that was stopped and goes on, or None."""
        if not (self.resume and cost.exists()):
            return None
        stopped = json.loads(cost.read_text(encoding="utf-8"))
        return stopped["origin"] if stopped["fingerprint"] == fingerprint else None

    def sample(self, stage: str, *arguments: Any, **options: Any) -> Draws:
        """Return `jaxbnn.sample(*arguments, **options)`, so that `stage` can go on inside.

        The draws are kept until the stage is finished: under --resume a stage that was stopped
        goes on where it was. A run interrupted by Ctrl-C stops the study.
        """
        return all_draws(*arguments, checkpoint=self.checkpoint(stage), **options)

    def checkpoint(self, name: str) -> Path | None:
        """Return the folder where stage `name` keeps its draws until it is finished.

        What the stage depends on, if `stage` was told it, is what its draws are of. None at scale
        smoke, whose runs take less time than their files.
        """
        if self.scale == "smoke":
            return None
        fingerprint = self._fingerprint(self._stages_of.get(name))
        folder = self._path(Path("stages"), name, f".{fingerprint[:16]}")
        is_own = self.resume or folder in self._checkpoints  # what this run put there stays
        self._checkpoints.add(folder)
        self._remove_checkpoints(name, but=folder if is_own else None)
        return folder

    def say(self, sentence: str) -> None:
        """Have the command print a sentence at its end, after the table."""
        self.conclusions.append(sentence)

    def save_figure(self, name: str, figure: Any, dpi: int = 150) -> Path:
        """Write a matplotlib figure to `<name>.png` and close it."""
        import matplotlib.pyplot as plt

        path = self._path(Path(), name, ".png")
        with written_whole(path) as temporary:
            figure.savefig(temporary, format="png", dpi=dpi, bbox_inches="tight")
        plt.close(figure)
        self.figures.append(path)
        return path

    def save_table(self, name: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> Path:
        """Write a Markdown table to `<name>.md` (table.md, of all rows, is the command's own)."""
        path = self._path(Path(), name, ".md")
        with written_whole(path) as temporary:
            temporary.write_text(markdown_table(header, rows), encoding="utf-8")
        self.files.append(path)
        return path

    def save_draws(self, name: str, draws: Any) -> Path:
        """Write draws to `<name>.nc` (ArviZ's InferenceData) or `<name>.npz` (a PyTree of arrays).

        The leaves of a PyTree are named by their path, as in `[0]['w']`.
        """
        if hasattr(draws, "to_netcdf"):
            path = self._path(Path(), name, ".nc")
            with written_whole(path) as temporary:
                draws.to_netcdf(str(temporary))
        else:
            path = self._path(Path(), name, ".npz")
            leaves = jax.tree_util.tree_leaves_with_path(draws)
            arrays = {
                jax.tree_util.keystr(where) or "draws": np.asarray(leaf) for where, leaf in leaves
            }
            _write_npz(path, arrays)
        self.files.append(path)
        return path

    def record_speed(self, name: str, steps: float, seconds: float) -> None:
        """Put `steps / seconds` into run.json under `steps_per_second`."""
        self.speeds[name] = steps / seconds

    @contextmanager
    def timed(self, name: str, steps: float):
        """Time the block and record its speed; block on the arrays inside it."""
        start = time.perf_counter()
        yield
        self.record_speed(name, steps, time.perf_counter() - start)

    def _path(self, folder: Path, name: str, suffix: str) -> Path:
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name):
            raise InputError(
                f"{name!r} cannot be a file name: use letters, digits, '_', '-' and '.' only."
            )
        path = self.out_dir / folder / (name + suffix)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _remove_checkpoints(self, name: str, but: Path | None = None) -> None:
        for folder in (self.out_dir / "stages").glob(f"{name}.*"):
            is_one = re.fullmatch(r"\.[0-9a-f]{16}", folder.name.removeprefix(name))
            if is_one and folder.is_dir() and folder != but:
                shutil.rmtree(folder)

    def _fingerprint(self, of: Mapping[str, Any] | None = None) -> str:
        what = {"scale": self.scale, "seed": self.seed, "versions": versions()}
        identity = dict(self.identity if of is None else of)
        text = json.dumps({**what, "identity": identity}, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()


def _write_npz(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    if any(array.dtype == object for array in arrays.values()):
        raise TypeError(f"{path.name} can hold arrays of numbers, booleans and strings only.")
    with written_whole(path) as temporary:
        np.savez(temporary, **arrays)  # type: ignore[arg-type]


def study_names() -> list[str]:
    """Return the names of the studies: the modules in `experiments/studies/`."""
    return sorted(module.name for module in pkgutil.iter_modules(experiments.studies.__path__))


def load_experiment(study: str, experiment: str, where: str) -> Experiment:
    """Import a study and return one of its experiments.

    Raises InputError, naming `where` it was asked for, if there is no such study or
    experiment.
    """
    if study not in study_names():
        raise InputError(
            f"{where}: there is no study {study!r} in experiments/studies"
            + did_you_mean(study, study_names())
        )
    offered = importlib.import_module(f"experiments.studies.{study}").EXPERIMENTS
    if experiment not in offered:
        raise InputError(
            f"{where}: the study {study!r} has no experiment {experiment!r}, only "
            + ", ".join(sorted(offered))
            + did_you_mean(experiment, offered)
        )
    return offered[experiment]
