"""What each form of the command does; `__main__` parses, these act and print."""

import importlib
import inspect
import pkgutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import experiments.benchmarks
from experiments.config import SCALES, check_seed, parse_assignment, read_config, settings_for
from experiments.errors import InputError, did_you_mean
from experiments.paper_numbers import load_paper_values
from experiments.record import kept_stages, record_runs, settings_digest
from experiments.record.anew import make_anew
from experiments.record.code import code_digest
from experiments.record.energy_errors import write_bias_table
from experiments.record.ledger import WRITTEN, Ledger, current_commit
from experiments.record.pages import write_pages
from experiments.record.unfinished import keep_stages
from experiments.report import full_report
from experiments.results import (
    file_digest,
    held,
    markdown_table,
    write_results,
    written_whole,
)
from experiments.study import Context, load_experiment
from jaxbnn.sampling import BadCheckpoint, CheckpointNotWritten

CONFIGS = Path(__file__).parents[1] / "configs"


def run_config(
    path: Path,
    scale: str,
    seed: int | None,
    assignments: Sequence[str],
    out: Path,
    resume: bool,
    use_kept: bool = True,
) -> int:
    """Run one config at a scale; write its results, and print the table and the pictures."""
    if scale not in SCALES:
        raise InputError(
            f"There is no scale {scale!r}, only {', '.join(SCALES)}{did_you_mean(scale, SCALES)}"
        )
    config = read_config(path)
    experiment = load_experiment(config.study, config.experiment, f"In {path}")
    changes = [parse_assignment(text) for text in assignments]
    settings = settings_for(config, scale, experiment.settings, changes)
    seed = config.seed if seed is None else seed
    check_seed(seed, "--seed")
    # Read before the run, which may take hours, so that a broken file is met now; rows are
    # joined to them after it.
    paper_values = load_paper_values()

    name = f"{config.study}/{config.name}"
    recorded = settings.model_dump(mode="json")
    context = Context(
        scale=scale,
        seed=seed,
        out_dir=_directory(out, config.study, config.name, scale),
        resume=resume,
        kept=kept_stages(name, scale) if use_kept else None,
        identity={"experiment": name, "kind": config.experiment, "settings": recorded},
    )
    code = code_digest({experiment.run.__module__, experiment.settings.__module__})
    print(f"{name} at scale {scale}, seed {seed}: {config.description}", flush=True)
    with held(context.out_dir):
        start = time.perf_counter()
        of = {"scale": scale, "seed": seed, **context.identity}
        ledger = Ledger.open(context.out_dir, of, code, resume=resume)
        context.after_stage, context.ledger = ledger.write, ledger
        try:
            rows = experiment.run(settings, context) or []
        except (BadCheckpoint, CheckpointNotWritten) as error:
            raise InputError(str(error)) from None
        finally:
            ledger.write()
        table = write_results(
            context.out_dir,
            experiment=name,
            scale=scale,
            seed=seed,
            rows=rows,
            run={
                "kind": config.experiment,
                "settings": recorded,
                "settings_digest": settings_digest(recorded),
                "wall_seconds": time.perf_counter() - start,
                **ledger.entries,
                "files": {f.name: file_digest(f) for f in (*context.files, *context.figures)},
                "steps_per_second": context.speeds,
                "stages_reused": context.reused,
            },
            paper_values=paper_values,
        )
    if rows:
        print(f"\n{table}")
    for file in [context.out_dir / "table.md", *context.files, *context.figures]:
        print(file)
    for sentence in context.conclusions:
        print(f"\n{sentence}")
    return 0


def list_configs(directory: Path = CONFIGS) -> int:
    """Print every config below `directory`: path, study, name, scales, description."""
    lines, complaints = [], []
    for path in sorted(directory.rglob("*.toml")):
        try:
            config = read_config(path)
        except InputError as error:
            complaints.append(error)
            continue
        shown = path.relative_to(directory.parent)
        lines.append(
            [str(shown), config.study, config.name, " ".join(config.scales), config.description]
        )
    if not lines and not complaints:
        raise InputError(f"There are no configs in {directory}; run from a clone of the project.")
    print(markdown_table(["config", "study", "name", "scales", "description"], lines), end="")
    if complaints:
        raise InputError("\n".join(str(complaint) for complaint in complaints))
    return 0


def report(directory: Path) -> int:
    """Print the report on all results below `directory` and write it to `report.md` there."""
    if not directory.is_dir():
        raise InputError(f"There is no directory {directory} with results; run a config first.")
    text = full_report(directory, load_paper_values())
    with written_whole(directory / "report.md") as temporary:
        temporary.write_text(text, encoding="utf-8")
    print(text, end="")
    return 0


def benchmark(name: str, assignments: Sequence[str], out: Path) -> int:
    """Run `experiments/benchmarks/<name>.py` with the options given; write and print its rows."""
    names = sorted(found.name for found in pkgutil.iter_modules(experiments.benchmarks.__path__))
    if name not in names:
        raise InputError(
            f"There is no benchmark {name!r}, only {', '.join(names) or 'none yet'}"
            + did_you_mean(name, names)
        )
    run = importlib.import_module(f"experiments.benchmarks.{name}").run
    options = _benchmark_options(run, assignments)
    directory = _directory(out, "benchmarks", name)
    start = time.perf_counter()
    rows = run(directory, **options) or []
    table = write_results(
        directory,
        experiment=f"benchmarks/{name}",
        scale=None,
        seed=options.get("seed"),
        rows=rows,
        run={
            "settings": options,
            "wall_seconds": time.perf_counter() - start,
            "commit": current_commit(but=WRITTEN),
        },
        paper_values={},
    )
    print(f"{table}\n{directory / 'table.md'}")
    return 0


def record(results: Path | None) -> int:
    """Put the finished runs below `results` into the record, and write what is made of it."""
    written = record_runs(results) if results else []
    for path in [*written, *write_pages(), *write_bias_table()]:
        print(path)
    return 0


def keep(results: Path) -> int:
    """Keep the finished stages of runs that are not finished in the repository."""
    for path in keep_stages(results):
        print(path)
    return 0


def anew(out: Path, resume: bool) -> int:
    """Run every recorded run again, record it, and write what is made of the record."""
    try:
        make_anew(out.absolute(), resume=resume)
    finally:  # what ended before a failure is recorded
        for path in [*write_pages(), *write_bias_table()]:
            print(path)
    return 0


def _benchmark_options(run: Any, assignments: Sequence[str]) -> dict[str, Any]:
    offered = dict(list(inspect.signature(run).parameters.items())[1:])
    options = {}
    for keys, value in map(parse_assignment, assignments):
        key = ".".join(keys)
        if key not in offered:
            raise InputError(f"The benchmark has no option {key!r}" + did_you_mean(key, offered))
        _check_kind(key, value, offered[key])
        options[key] = value
    return options


def _check_kind(key: str, value: Any, parameter: inspect.Parameter) -> None:
    """Refuse a value of another kind than the option's default."""
    kind = float if parameter.annotation is float else type(parameter.default)
    words, taken = _KINDS.get(kind, ("", object))
    # True is a whole number to Python, and none that anybody means.
    if not isinstance(value, taken) or (isinstance(value, bool) and kind in (int, float)):
        raise InputError(f"--set {key} must be {words}, but is {value!r}.")


_KINDS: dict[type, tuple[str, Any]] = {
    bool: ("true or false", bool),
    int: ("a whole number", int),
    float: ("a number", (int, float)),
    str: ("a word", str),
    tuple: ('a list, as in ["a", "b"] or [1, 2]', list),
}


def _directory(out: Path, *parts: str) -> Path:
    directory = out.joinpath(*parts)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"The output directory {directory} cannot be made ({error.strerror}); "
            "choose another with --out."
        ) from None
    return directory
