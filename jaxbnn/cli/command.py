"""`fit`, `predict` and `hosts`: arguments in, files and an exit code out.

What imports JAX is imported once the first line of progress stands: it takes seconds.
"""

import argparse
import contextlib
import csv
import importlib.util
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from jaxbnn.cli.options import check_level, parse, settings_of
from jaxbnn.cli.progress import Progress
from jaxbnn.tabular.settings import LEARNING


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after one sentence that says what was wrong.

    `hosts` returns 1 where one of its processes failed. A Ctrl-C while draws are kept ends the
    sampling and keeps them; before that it returns 130, or without arguments ends the process so.
    In both cases the same command goes on where it was.

    Examples
    --------
    >>> main(["fit", "nowhere.csv", "--target", "y"])
    2
    """
    options = parse(sys.argv[1:] if arguments is None else arguments)
    try:
        if options.command == "hosts":
            from jaxbnn.cli.hosts import run_hosts

            return run_hosts(options.processes, options.script, options.arguments)
        with Progress(is_quiet=options.quiet) as progress:
            if options.command == "fit":
                text = _fit(options, progress, has_cores=arguments is None)
            else:
                text = _predict(options, progress)
    except (ValueError, OSError, ImportError, csv.Error) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        print(
            "error: there is not enough memory; take fewer --chains or --samples, a smaller "
            "network by --hidden, or fewer rows.",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt as error:
        said = str(error) or "interrupted before there was anything to keep."
        print(said, file=sys.stderr)
        if arguments is None:
            _end_at_once(130)
        return 130
    _tell(text)
    return 0


def _tell(text: str) -> None:
    """Print what was done; it is done even if nobody reads it, or its letters cannot be shown."""
    try:
        try:
            print(text)
        except UnicodeEncodeError:
            shown = sys.stdout.encoding
            print(text.encode(shown, "backslashreplace").decode(shown))
        sys.stdout.flush()
    except OSError:
        # The interpreter would try again to write what is left, and say that it could not.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _end_at_once(status: int) -> NoReturn:
    """End the process without the interpreter's own end.

    A compilation that was interrupted goes on in a thread of JAX, which that end may crash.
    """
    with contextlib.suppress(OSError):  # nobody reads any more
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def _fit(options: argparse.Namespace, progress: Progress, *, has_cores: bool) -> str:
    progress.begin("reading", options.data.name)
    _check_installed("fit")
    from jaxbnn.cli import unfinished
    from jaxbnn.cli.cores import use_cores
    from jaxbnn.cli.place import WRITTEN, check_free, held
    from jaxbnn.cli.prepare import prepare

    settings = settings_of(options)
    if has_cores:
        use_cores(max(settings.chains_of(name) for name in LEARNING))
    out = options.out or options.data.parent / f"{options.data.stem}-fit"
    prepared = prepare(options, settings)
    identity = unfinished.identity_of(options)
    is_going_on = unfinished.goes_on(out, identity, options.force)
    check_free(out, options.force or is_going_on)
    with held(out):
        progress.begin("loading JAX")
        from jaxbnn.cli.fit import fit

        checkpoints = unfinished.begin(out, identity, is_going_on)
        try:
            text = fit(prepared, options.level, out, progress, checkpoints, options.refit)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(unfinished.what_is_left(out)) from None
    # What else is in the folder is not of this fit.
    names = sorted(name for name in WRITTEN if (out / name).exists())
    return f"{text}\nWritten to {out}: {', '.join(names)}"


def _predict(options: argparse.Namespace, progress: Progress) -> str:
    progress.begin("reading", options.data.name)
    _check_installed("predict")
    from jaxbnn.cli.place import check_fit, check_predictions, columns_of_fit
    from jaxbnn.cli.prepare import read

    check_fit(options.folder)
    check_level(options.level)
    out = options.out or options.data.parent / f"{options.data.stem}-predictions.csv"
    table = read(options, columns_of_fit(options.folder))
    check_predictions(out, options.data)
    progress.begin("loading JAX")
    from jaxbnn.cli.answers import write_predictions

    notes = write_predictions(
        options.folder, table, out, progress, options.level, options.quantiles, options.id
    )
    lines = [f"- {note}" for note in notes]
    return "\n".join([*lines, f"{table.num_rows} predictions written to {out}"])


def _check_installed(command: str) -> None:
    """Ask for what is needed at the end before the work begins."""
    for name in ("h5netcdf", "h5py", "matplotlib", "xarray"):
        if importlib.util.find_spec(name) is None:
            raise ImportError(f"{command} needs {name}; run `pip install 'jaxbnn[cli]'`.")
