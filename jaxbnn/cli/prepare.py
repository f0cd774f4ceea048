"""A table as `fit` takes it: what is learnt from, what is held out, and how it is encoded."""

import argparse
from typing import NamedTuple

import numpy as np

from jaxbnn.cli.encoding import Encoding, learn_encoding, usable_rows
from jaxbnn.cli.kinds import choose_likelihood
from jaxbnn.cli.options import separator_of
from jaxbnn.cli.settings import Settings, check_sampler, choose_sampler, prior_note
from jaxbnn.cli.table import Table, read_table, take


class Prepared(NamedTuple):
    """Rows of a table by number, its encoding, and what is to be said of them."""

    table: Table
    training: np.ndarray
    held_out: np.ndarray
    sampler: str
    settings: Settings
    encoding: Encoding
    notes: list[str]

    @property
    def num_classes(self) -> int | None:
        """The number of the target's classes; None of numbers."""
        return None if self.encoding.classes is None else len(self.encoding.classes)


def read(options: argparse.Namespace) -> Table:
    """Read the CSV file that the options name."""
    separator = separator_of(options)
    return read_table(options.data, separator, options.decimal)


def prepare(options: argparse.Namespace, settings: Settings) -> Prepared:
    """Read a table and split it; choose the sampler and the likelihood, and learn the encoding.

    Raises
    ------
    ValueError
        If the file, its columns or the options cannot be used; one sentence says why.
    """
    table, notes = usable_rows(read(options), options.target, options.drop)
    training, held_out = _split(table.num_rows, options.test, settings.seed)
    return _encode(options, settings, table, training, held_out, notes)


def _encode(
    options: argparse.Namespace,
    settings: Settings,
    table: Table,
    training: np.ndarray,
    held_out: np.ndarray,
    notes: list[str],
) -> Prepared:
    values = table.columns[options.target]
    rows = take(table, training)

    def encoded(newer: bool) -> tuple[str, str, Encoding, list[str]]:
        asked = options.likelihood, options.task, options.order
        kind = choose_likelihood(options.target, values, *asked, newer=newer)
        learnt = learn_encoding(table, rows, options.target, options.task, kind)
        return kind.likelihood, kind.note, *learnt

    likelihood, why, encoding, more = encoded(settings.sampler not in ("dvi", "gibbs"))
    sampler = choose_sampler(settings, len(training), len(encoding.features))
    if settings.sampler == "auto" and sampler == "dvi":
        likelihood, why, encoding, more = encoded(False)
        more.append("auto took dvi: so many rows and weights are too many for nuts.")
    check_sampler(sampler, likelihood)
    settings = settings._replace(likelihood=likelihood)
    notes = [*notes, why, *more, prior_note(settings, sampler)]
    return Prepared(table, training, held_out, sampler, settings, encoding, notes)


def _split(num_rows: int, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    order = np.random.default_rng(seed).permutation(num_rows)
    held = min(max(1, round(fraction * num_rows)), num_rows - 2)
    return np.sort(order[held:]), np.sort(order[:held])
