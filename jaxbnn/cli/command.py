"""`fit`, `predict` and `hosts`: arguments in, files and an exit code out."""

import argparse
import csv
import importlib.util
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np

from jaxbnn import __version__
from jaxbnn.cli import folder as folders
from jaxbnn.cli.answers import (
    OUTSIDE,
    check_quantiles,
    id_columns,
    outside,
    predictions_of,
)
from jaxbnn.cli.encoding import Encoding, learn_encoding, usable_rows
from jaxbnn.cli.hosts import run_hosts
from jaxbnn.cli.kinds import LIKELIHOODS, Kind, choose_likelihood
from jaxbnn.cli.pictures import draw_chains, draw_classes, draw_numbers
from jaxbnn.cli.samplers import (
    FEWEST_DRAWS,
    SAMPLERS,
    Settings,
    check_sampler,
    choose_sampler,
    describe,
    make_posterior,
    prior_note,
    run,
)
from jaxbnn.cli.table import Table, read_table, take
from jaxbnn.cli.verdict import judge_chains, judge_classes, judge_numbers
from jaxbnn.prediction import ClassPrediction, NumberScores, predict, scores


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after one sentence that says what was wrong.

    A Ctrl-C while draws are kept ends the sampling and keeps them; before that it returns 130.

    Examples
    --------
    >>> main(["fit", "nowhere.csv", "--target", "y"])
    2
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser().parse_args(_file_before_hidden(given))
    try:
        if options.command == "hosts":
            return run_hosts(options.processes, options.script, options.arguments)
        _fit(options) if options.command == "fit" else _predict(options)
    except (ValueError, OSError, ImportError, csv.Error) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted before there was anything to keep.", file=sys.stderr)
        return 130
    return 0


def _file_before_hidden(arguments: list[str]) -> list[str]:
    """Return the arguments with what follows the numbers of --hidden, a file, put before it."""
    if "--hidden" not in arguments:
        return arguments
    start = end = arguments.index("--hidden")
    while end + 1 < len(arguments) and arguments[end + 1].isdigit():
        end += 1
    after = end + 1
    while after < len(arguments) and not arguments[after].startswith("-"):
        after += 1
    if end == start:  # no number at all: argparse says so
        return arguments
    files, hidden = arguments[end + 1 : after], arguments[start : end + 1]
    return [*arguments[:start], *files, *hidden, *arguments[after:]]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Say what was wrong in one line; argparse would print the usage before it."""
        self.exit(2, f"error: {message} (jaxbnn {{fit,predict,hosts}} --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="jaxbnn", description="Bayesian neural networks on CSV files.")
    parser.add_argument("--version", action="version", version=f"jaxbnn {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=_Parser)
    fit = commands.add_parser("fit", help="sample the posterior of a network on a CSV file")
    fit.add_argument("data", type=Path, help="CSV file with a header")
    fit.add_argument("--target", required=True, help="the column to predict")
    fit.add_argument(
        "--sampler", choices=SAMPLERS, default="auto", help="auto: nuts, or dvi for many rows"
    )
    fit.add_argument(
        "--task",
        choices=("auto", "regression", "classification"),
        default="auto",
        help="auto: classification of text and of two values",
    )
    fit.add_argument(
        "--likelihood",
        choices=LIKELIHOODS,
        default="auto",
        help="auto: by the target's kind, and the summary says which",
    )
    fit.add_argument(
        "--order", nargs="+", metavar="CLASS", help="ordinal: the target's classes, low to high"
    )
    fit.add_argument(
        "--prior-scale",
        type=float,
        help="fix the weights' standard deviations at so many times the usual [nuts: learnt]",
    )
    fit.add_argument("--hidden", type=int, nargs="+", default=[50], help="hidden units by layer")
    fit.add_argument("--drop", nargs="+", default=[], help="columns to leave out")
    fit.add_argument("--test", type=float, default=0.2, help="fraction of the rows held out")
    fit.add_argument("--level", type=float, default=0.9, help="probability of the intervals")
    fit.add_argument("--chains", type=int, default=4, help="each begins anew, from the prior")
    fit.add_argument(
        "--warmup", type=int, default=400, help="draws before the kept ones; dvi: tens of updates"
    )
    fit.add_argument("--samples", type=int, default=400, help="kept draws of each chain")
    fit.add_argument(
        "--noise", type=float, default=0.3, help="gibbs: noise, in standard deviations of y"
    )
    fit.add_argument("--seed", type=int, default=0, help="of the split and of the draws")
    fit.add_argument("--out", type=Path, help="folder for the results [DATA-fit]")
    fit.add_argument("--force", action="store_true", help="write over the fit that is there")
    _add_format(fit)
    new = commands.add_parser("predict", help="predict the rows of another CSV file")
    new.add_argument("folder", type=Path, help="what fit wrote")
    new.add_argument("data", type=Path, help="CSV file with the columns of the fit")
    new.add_argument("--level", type=float, default=0.9, help="probability of the intervals")
    new.add_argument(
        "--quantiles", type=float, nargs="+", default=[], help="of numbers: to write, too"
    )
    new.add_argument(
        "--id", nargs="+", default=[], help="columns to copy [unused ones with distinct values]"
    )
    new.add_argument("--out", type=Path, help="file for the predictions [DATA-predictions.csv]")
    _add_format(new)
    hosts = commands.add_parser("hosts", help="run a script in several processes as one")
    hosts.add_argument("--processes", type=int, required=True)
    hosts.add_argument("script", type=Path, help="Python file that gives sample a mesh")
    hosts.add_argument("arguments", nargs=argparse.REMAINDER, help="what the script is called with")
    return parser


def _add_format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--separator", help="between the fields: a character, or tab [found out]")
    parser.add_argument(
        "--decimal", choices=(".", ","), metavar="MARK", help="decimal: . or , [found out]"
    )


def _fit(options: argparse.Namespace) -> None:
    _check_installed("fit")
    settings = _settings(options)
    out = options.out or options.data.with_name(f"{options.data.stem}-fit")
    folders.check_free(out, options.force)
    table, notes = usable_rows(_read(options), options.target, options.drop)
    training, held_out = _split(table.num_rows, options.test, settings.seed)
    sampler, kind, encoding, more = _prepare(options, settings, table, training)
    settings = settings._replace(likelihood=kind.likelihood)
    x, y = encoding.inputs(table), encoding.targets(table)
    x_new, y_new = x[held_out], y[held_out]
    classes = None if encoding.classes is None else len(encoding.classes)
    posterior = make_posterior(sampler, settings, x[training], y[training], classes)
    with folders.held(out):
        print(describe(sampler, settings, len(training)), file=sys.stderr)
        fitted = run(sampler, posterior, settings)
        prediction = predict(fitted.positions, x_new, posterior, level=options.level)
        found = scores(fitted.positions, x_new, y_new, posterior)
        chains = judge_chains(sampler, fitted, posterior, x_new)
        with folders.written(out, folders.WRITTEN) as part:
            more += folders.save(part, encoding, settings, sampler, fitted, posterior)
            if isinstance(prediction, ClassPrediction):
                assert not isinstance(found, NumberScores)
                held = judge_classes(encoding, y_new, prediction, found)
                draw_classes(part, y_new, prediction)
            else:
                assert isinstance(found, NumberScores)
                held = judge_numbers(
                    encoding, y_new, prediction, found, mean=float(y[training].mean())
                )
                draw_numbers(part, encoding, y_new, prediction, found)
            draw_chains(part, encoding, fitted, posterior, x_new, y_new)

            hidden = " and ".join(map(str, settings.hidden))
            lines = [
                f"# {options.target}",
                "",
                f"{options.target} from {len(encoding.features)} features, {len(training)} rows, "
                f"by a network of {hidden} hidden units, "
                f"{'fitted' if sampler == 'dvi' else 'sampled'} by {sampler}.",
                "",
                *chains.sentences,
                "",
                *held.sentences,
                "",
                *(f"- {note}" for note in [*notes, *more, *fitted.notes]),
            ]
            text = "\n".join(lines).rstrip() + "\n"
            (part / "summary.md").write_text(text, encoding="utf-8")
            numbers = json.dumps(chains.numbers | held.numbers, indent=2)
            (part / "scores.json").write_text(numbers + "\n", encoding="utf-8")
    print(f"{text}\nWritten to {out}: {', '.join(sorted(p.name for p in out.iterdir()))}")


def _prepare(
    options: argparse.Namespace, settings: Settings, table: Table, training: np.ndarray
) -> tuple[str, Kind, Encoding, list[str]]:
    """Return the sampler, the kind of target, the encoding, and what is to be said of them."""
    values = table.columns[options.target]
    rows = take(table, training)

    def encoded(newer: bool) -> tuple[Kind, Encoding, list[str]]:
        asked = options.likelihood, options.task, options.order
        kind = choose_likelihood(options.target, values, *asked, newer=newer)
        return kind, *learn_encoding(table, rows, options.target, options.task, kind)

    kind, encoding, notes = encoded(settings.sampler not in ("dvi", "gibbs"))
    sampler = choose_sampler(settings, len(training), len(encoding.features))
    if settings.sampler == "auto" and sampler == "dvi":
        kind, encoding, notes = encoded(False)
        notes.append("auto took dvi: so many rows and weights are too many for nuts.")
    check_sampler(sampler, kind.likelihood)
    return sampler, kind, encoding, [kind.note, *notes, prior_note(settings, sampler)]


def _predict(options: argparse.Namespace) -> None:
    _check_installed("predict")
    _check_level(options.level)
    positions, encoding, posterior = folders.load(options.folder)
    check_quantiles(options.quantiles, encoding)
    table = _read(options)
    out = options.out or options.data.with_name(f"{options.data.stem}-predictions.csv")
    _check_out(out, options.data)
    x = encoding.inputs(table)
    strange, remarks = outside(encoding, table)
    columns = id_columns(table, encoding, options.id)
    columns |= predictions_of(positions, x, posterior, encoding, options.level, options.quantiles)
    columns[OUTSIDE] = strange
    with (
        folders.written(out.parent) as part,
        (part / out.name).open("w", newline="", encoding="utf-8") as file,
    ):
        # As the new rows were written, so that the same program opens both.
        writer = csv.writer(file, delimiter=table.separator)
        writer.writerow(columns)
        for row in zip(*columns.values(), strict=True):
            writer.writerow(
                [v if isinstance(v, str) else f"{v:.6g}".replace(".", table.decimal) for v in row]
            )
    for note in [*encoding.remarks(table), *remarks]:
        print(f"- {note}")
    print(f"{len(x)} predictions written to {out}")


def _read(options: argparse.Namespace) -> Table:
    separator = {"tab": "\t", "\\t": "\t"}.get(options.separator, options.separator)
    if separator is not None and (len(separator) != 1 or separator in '"\r\n'):
        raise ValueError(f"--separator must be one character or tab, but is {separator!r}.")
    if separator is not None and separator == options.decimal:
        raise ValueError(f"--separator and --decimal cannot both be {separator!r}.")
    return read_table(options.data, separator, options.decimal)


def _check_out(out: Path, data: Path) -> None:
    if out.is_dir():
        raise ValueError(f"--out {out} is a folder; name a file for the predictions.")
    if not out.parent.is_dir():
        raise ValueError(f"there is no folder {out.parent} for --out; make it first.")
    if out.resolve() == data.resolve():
        raise ValueError(f"--out {out} would overwrite the new rows; name another file.")


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"--level must be a probability between 0 and 1, but is {level}.")


def _check_installed(command: str) -> None:
    """Ask for what is needed at the end before the work begins."""
    for name in ("h5netcdf", "h5py", "matplotlib", "xarray"):
        if importlib.util.find_spec(name) is None:
            raise ImportError(f"{command} needs {name}; run `pip install 'jaxbnn[cli]'`.")


def _settings(options: argparse.Namespace) -> Settings:
    for name in ("chains", "samples", "warmup"):
        least = FEWEST_DRAWS if name == "samples" else 1
        if getattr(options, name) < least:
            raise ValueError(f"--{name} must be at least {least}, but is {getattr(options, name)}.")
    if min(options.hidden) < 1:
        raise ValueError(f"--hidden must be numbers of units, but holds {min(options.hidden)}.")
    _check_level(options.level)
    if not 0 < options.test < 1:
        raise ValueError(f"--test must be a fraction between 0 and 1, but is {options.test}.")
    if not options.noise > 0:
        raise ValueError(f"--noise must be positive, but is {options.noise}.")
    scale = options.prior_scale
    if scale is not None and not 0 < scale < float("inf"):
        raise ValueError(f"--prior-scale must be positive and finite, but is {scale}.")
    return Settings(
        options.sampler,
        tuple(options.hidden),
        options.chains,
        options.warmup,
        options.samples,
        options.noise,
        options.seed,
        options.likelihood,
        scale,
    )


def _split(num_rows: int, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    order = np.random.default_rng(seed).permutation(num_rows)
    held = min(max(1, round(fraction * num_rows)), num_rows - 2)
    return np.sort(order[held:]), np.sort(order[:held])
