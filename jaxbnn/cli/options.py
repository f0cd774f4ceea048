"""The arguments of the command: what there is, with defaults and an example, and their checks."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from jaxbnn import __version__
from jaxbnn.tabular.kinds import LIKELIHOODS
from jaxbnn.tabular.settings import (
    NOISE,
    ONE_LAYER,
    SAMPLERS,
    Settings,
    asked_noise,
    check_settings,
)
from jaxbnn.tabular.wording import as_option

_EXAMPLE = """examples:
  jaxbnn fit houses.csv --target price
  jaxbnn predict houses-fit new.csv"""
_FIT_EXAMPLE = """example:
  jaxbnn fit houses.csv --target price --drop street --hidden 50
reads houses.csv, holds a fifth of its rows back to be tested on, and writes the folder houses-fit;
read summary.md, or summary.html, there."""
_PREDICT_EXAMPLE = """example:
  jaxbnn predict houses-fit new.csv --quantiles 0.1 0.9
writes new-predictions.csv."""

# Of larger ones JAX takes the last 32 bits, and other seeds would draw the same.
_MOST_SEED = 2**31 - 1


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options; SystemExit after one line where they cannot be understood."""
    return _parser().parse_args(_file_before_hidden(list(arguments)))


def _file_before_hidden(arguments: list[str]) -> list[str]:
    """Return the arguments with what follows the numbers of --hidden, a file, put before it."""
    if arguments[:1] != ["fit"] or "--hidden" not in arguments:
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


class _Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Defaults beside the options, where there are any, and examples line by line."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default is None or action.default is False or action.default == []:
            return action.help
        return super()._get_help_string(action)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="jaxbnn",
        description="Bayesian neural networks on CSV files.",
        epilog=_EXAMPLE,
        formatter_class=_Help,
    )
    parser.add_argument("--version", action="version", version=f"jaxbnn {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=_Parser)

    def command(name: str, about: str, example: str | None = None) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=about, epilog=example, formatter_class=_Help)

    _add_fit(command("fit", "sample the posterior of a network on a CSV file", _FIT_EXAMPLE))
    _add_predict(command("predict", "predict the rows of another CSV file", _PREDICT_EXAMPLE))
    hosts = command("hosts", "run a script in several processes as one")
    hosts.add_argument("--processes", type=int, required=True)
    hosts.add_argument("script", type=Path, help="Python file that gives sample a mesh")
    hosts.add_argument("arguments", nargs=argparse.REMAINDER, help="what the script is called with")
    return parser


def _add_fit(fit: argparse.ArgumentParser) -> None:
    fit.add_argument("data", type=Path, help="CSV file")
    fit.add_argument(
        "--target",
        required=True,
        help="the column to predict; in a file without a header its number, from 1 on",
    )
    fit.add_argument(
        "--sampler",
        choices=SAMPLERS,
        default="auto",
        help="auto: nuts, ensemble (trained networks, and chains from them) or dvi, as measured to "
        "be best for so many rows",
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
        help="fix the weights' standard deviations at so many times the usual; "
        "else nuts and ensemble learn them",
    )
    fit.add_argument(
        "--relevance",
        action="store_true",
        help="learn a prior scale for each column, too, and tell them: for many columns (without "
        "--hidden it is tried in any case of classes, and of numbers with few rows a column)",
    )
    fit.add_argument(
        "--hidden",
        type=int,
        nargs="+",
        help="hidden units by layer (default: 50, or none, or of numbers 16 16 16 16, where "
        "training rows that are left out are predicted better so; this also tells whether one "
        "noise serves all rows)",
    )
    fit.add_argument("--drop", nargs="+", default=[], help="columns to leave out")
    fit.add_argument("--test", type=float, default=0.2, help="fraction of the rows held out")
    fit.add_argument("--level", type=float, default=0.9, help="probability of the intervals")
    fit.add_argument(
        "--chains",
        type=int,
        help="each begins anew, from the prior or a trained network (default: 4, ensemble: 10)",
    )
    fit.add_argument(
        "--warmup",
        type=int,
        default=400,
        help="effort before the kept draws: nuts, so many draws; dvi, tens of updates; gibbs, five "
        "sweeps each; pcn, twenty steps each; ensemble, a measure of each of its parts",
    )
    fit.add_argument("--samples", type=int, default=400, help="kept draws of each chain")
    fit.add_argument(
        "--noise",
        type=float,
        help=f"gibbs alone: noise, in standard deviations of y (default: {NOISE})",
    )
    fit.add_argument("--seed", type=int, default=0, help="of the split and of the draws")
    fit.add_argument(
        "--refit", action="store_true", help="once scored, fit again on all rows, to predict by"
    )
    fit.add_argument("--out", type=Path, help="folder for the results; else DATA-fit")
    fit.add_argument("--force", action="store_true", help="write over the fit that is there")
    _add_common(fit)


def _add_predict(new: argparse.ArgumentParser) -> None:
    new.add_argument("folder", type=Path, help="what fit wrote")
    new.add_argument("data", type=Path, help="CSV file with the columns of the fit")
    new.add_argument("--level", type=float, default=0.9, help="probability of the intervals")
    new.add_argument(
        "--quantiles", type=float, nargs="+", default=[], help="of numbers: to write, too"
    )
    new.add_argument(
        "--id", nargs="+", default=[], help="columns to copy; else unused ones of distinct values"
    )
    new.add_argument("--out", type=Path, help="file for the predictions; else DATA-predictions.csv")
    _add_common(new)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--separator", help="between the fields: a character, or tab; else found out"
    )
    parser.add_argument(
        "--decimal", choices=(".", ","), metavar="MARK", help="decimal: . or , ; else found out"
    )
    parser.add_argument("--quiet", action="store_true", help="tell no progress")


def separator_of(options: argparse.Namespace) -> str | None:
    """Return the mark between fields that was asked for, or None.

    Raises
    ------
    ValueError
        If it is no single character, or the decimal mark.
    """
    separator = {"tab": "\t", "\\t": "\t"}.get(options.separator, options.separator)
    if separator is not None and (len(separator) != 1 or separator in '"\r\n'):
        raise ValueError(f"--separator must be one character or tab, but is {separator!r}.")
    if separator is not None and separator == options.decimal:
        raise ValueError(f"--separator and --decimal cannot both be {separator!r}.")
    return separator


def check_level(level: float) -> None:
    """Raise ValueError unless a level is a probability."""
    if not 0 < level < 1:
        raise ValueError(f"--level must be a probability between 0 and 1, but is {level}.")


def settings_of(options: argparse.Namespace) -> Settings:
    """Return what `fit` was asked for.

    Raises
    ------
    ValueError
        Of the first option whose value cannot be used.
    """
    settings = Settings(
        options.sampler,
        ONE_LAYER if options.hidden is None else tuple(options.hidden),
        options.chains,
        options.warmup,
        options.samples,
        asked_noise(options.sampler, options.noise, as_option),
        options.seed,
        # Classes in an order that is given are of no other.
        "ordinal" if options.order and options.likelihood == "auto" else options.likelihood,
        options.prior_scale,
        options.relevance,
        options.hidden is None,
    )
    check_settings(settings, as_option)
    check_level(options.level)
    if not 0 <= options.seed <= _MOST_SEED:
        raise ValueError(
            f"--seed must be a whole number from 0 to {_MOST_SEED}, but is {options.seed}."
        )
    if not 0 < options.test < 1:
        raise ValueError(f"--test must be a fraction between 0 and 1, but is {options.test}.")
    return settings
