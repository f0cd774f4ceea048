"""The command: run a config, list the configs, report on results, run a benchmark.

    python -m experiments CONFIG.toml [--scale smoke|desk|paper] [--seed N]
                          [--set key=value ...] [--out DIR] [--resume] [--without-kept]
    python -m experiments list
    python -m experiments report [DIR]
    python -m experiments record [RESULTS]
    python -m experiments keep [RESULTS]
    python -m experiments anew [--out DIR] [--resume]
    python -m experiments benchmark NAME [--set key=value ...] [--out DIR]

Whatever the user gets wrong is one sentence on stderr and exit code 2.
"""

import argparse
import importlib.util
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from experiments.errors import InputError
from experiments.threads import settle_threads

EXTRAS = ("pydantic", "matplotlib", "tqdm", "h5netcdf")
# The options that each form of the command takes; a config takes all of them.
TAKEN: dict[str, tuple[str, ...]] = {
    "list": (),
    "report": ("--out",),
    "benchmark": ("--set", "--out"),
    "record": (),
    "keep": ("--out",),
    "anew": ("--out", "--resume"),
}
WORDS = tuple(TAKEN)
DEFAULTS: dict[str, Any] = {
    "scale": "desk",
    "out": Path("results"),
    "assignments": [],
    "resume": False,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0, 2 for bad input, 130 when interrupted."""
    try:
        options = _parse(arguments)
        _check_extras()
        # No window, whatever machine this runs on.
        os.environ["MPLBACKEND"] = "Agg"
        return _run(options)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            "Interrupted; --resume keeps the finished stages, and goes on inside long ones.",
            file=sys.stderr,
        )
        return 130


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message[:1].upper()}{message[1:]} (see --help).")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _Parser(
        prog="python -m experiments",
        description="Run the papers' experiments and compare with the numbers they print.",
        allow_abbrev=False,
    )
    parser.add_argument("what", help=f"a config file, or one of: {', '.join(WORDS)}")
    parser.add_argument(
        "argument", nargs="?", help="report, record, keep: a directory; benchmark: its name"
    )
    offered = [
        parser.add_argument("--scale", help="smoke, desk (default) or paper"),
        parser.add_argument("--seed", type=int, help="instead of the config's seed"),
        parser.add_argument(
            "--set",
            dest="assignments",
            action="append",
            metavar="KEY=VALUE",
            help="change one setting; dotted keys reach into tables (may be repeated)",
        ),
        parser.add_argument("--out", type=Path, help="default: results"),
        parser.add_argument(
            "--resume",
            action="store_true",
            default=None,
            help="go on with an earlier run: its stages are reused",
        ),
        parser.add_argument(
            "--without-kept",
            action="store_true",
            default=None,
            help="under --resume, compute the stages that record/unfinished keeps, too",
        ),
    ]
    options = parser.parse_args(arguments)
    if options.what == "benchmark" and options.argument is None:
        parser.error("benchmark needs a name")
    if (
        options.what not in ("report", "record", "keep", "benchmark")
        and options.argument is not None
    ):
        parser.error(f"{options.what} takes no second argument, but got {options.argument!r}")
    _check_options(options, offered, parser)
    for name, value in DEFAULTS.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


def _check_options(
    options: argparse.Namespace, offered: Sequence[argparse.Action], parser: _Parser
) -> None:
    """Refuse options that this form of the command would not look at."""
    given = [a.option_strings[0] for a in offered if getattr(options, a.dest) is not None]
    what = options.what
    refused = [name for name in given if name not in TAKEN.get(what, given)]
    if refused:
        takes = f"it takes {' and '.join(TAKEN[what])}" if TAKEN[what] else "it takes no options"
        if what == "record":
            takes = "give the folder of the results after it, as in record results"
        elif what == "anew":
            takes = f"it runs configs as they stand, and {takes.removeprefix('it ')}"
        parser.error(f"{what} takes no {' and no '.join(refused)}: {takes}")
    if options.argument is not None and what in ("report", "keep") and options.out is not None:
        parser.error(f"{what} reads one folder: give {options.argument!r} or --out, not both")
    if options.without_kept and not options.resume:
        parser.error("--without-kept is about the stages that --resume reuses: give both")


def _check_extras() -> None:
    missing = [name for name in EXTRAS if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(
            f"The experiments need {', '.join(missing)}, not installed here: "
            "run `pip install -e '.[experiments]'` in the clone."
        )


def _run(options: argparse.Namespace) -> int:
    path = Path(options.what)
    if options.what not in WORDS:
        settle_threads(path)
    # Imported late: these need the extras, and JAX.
    from experiments import commands

    if options.what == "list":
        return commands.list_configs()
    if options.what == "report":
        return commands.report(Path(options.argument) if options.argument else options.out)
    if options.what == "record":
        return commands.record(Path(options.argument) if options.argument else None)
    if options.what == "keep":
        return commands.keep(Path(options.argument) if options.argument else options.out)
    if options.what == "anew":
        return commands.anew(options.out, options.resume)
    if options.what == "benchmark":
        return commands.benchmark(options.argument, options.assignments, options.out)
    if path.suffix != ".toml" and not path.exists():
        raise InputError(
            f"There is no config file {path}, and the other commands are {', '.join(WORDS)}."
        )
    return commands.run_config(
        path,
        options.scale,
        options.seed,
        options.assignments,
        options.out,
        options.resume,
        use_kept=not options.without_kept,
    )


if __name__ == "__main__":
    # What a batch system ends a job with: as Ctrl-C, so that costs and finished chunks are written.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
