"""A table as `fit` takes it: what is learnt from, what is held out, and how it is encoded."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from jaxbnn.cli.encoding import Encoding, learn_encoding, usable_rows
from jaxbnn.cli.fields import one_number_twice, with_points
from jaxbnn.cli.kinds import Kind, choose_likelihood
from jaxbnn.cli.options import separator_of
from jaxbnn.cli.table import Table, read_table, take
from jaxbnn.tabular.candidates import Candidate, are_of_few_rows, candidates
from jaxbnn.tabular.kinds import notes_of_another
from jaxbnn.tabular.noise import noise_notes, rounding_noise
from jaxbnn.tabular.settings import (
    DEEP,
    Settings,
    check_sampler,
    choose_sampler,
    prior_note,
)
from jaxbnn.tabular.wording import as_option


class Prepared(NamedTuple):
    """Rows of a table by number, its encoding, and what is to be said of them.

    Where there are several candidates, the sampler and the settings are those of the first until
    `settled`.
    """

    table: Table
    training: np.ndarray
    held_out: np.ndarray
    sampler: str
    settings: Settings
    encoding: Encoding
    notes: list[str]
    kind: Kind
    candidates: list[Candidate]

    @property
    def num_classes(self) -> int | None:
        """The number of the target's classes; None of numbers."""
        return None if self.encoding.classes is None else len(self.encoding.classes)


def read(options: argparse.Namespace, known: Sequence[str] | None = ()) -> Table:
    """Read the CSV file that the options name.

    Of rows to predict `known` are the columns that the fit used, None where they have no names.
    """
    return read_table(
        options.data,
        separator_of(options),
        options.decimal,
        is_headerless=known is None,
        known=known or (),
        dropped=options.drop if options.command == "fit" else (),
    )


def prepare(options: argparse.Namespace, settings: Settings) -> Prepared:
    """Read a table and split it; choose the sampler and the likelihood, and learn the encoding.

    Raises
    ------
    ValueError
        If the file, its columns or the options cannot be used; one sentence says why.
    """
    whole = read(options)
    target = whole.column(options.target)
    table, notes = usable_rows(whole, target, [whole.column(name) for name in options.drop])
    training, held_out = _split(table.num_rows, options.test, settings.seed)
    rows = take(table, training)
    width = 0 if whole.has_header else len(whole.columns)

    order = options.order
    if order and target in table.as_written:  # 1,5 was read as 1.5
        order = with_points(order)

    def kind_of(newer: bool) -> Kind:
        asked = options.likelihood, options.task, order
        values, learnt_from = table.columns[target], rows.columns[target]
        return choose_likelihood(target, values, *asked, newer=newer, learnt_from=learnt_from)

    def encoded(newer: bool) -> tuple[Kind, Encoding, list[str]]:
        kind = kind_of(newer)
        encoding, notes = learn_encoding(table, rows, target, options.task, kind)
        return kind, replace(encoding, width=width), notes

    kind, encoding, more = encoded(settings.sampler not in ("dvi", "gibbs"))
    is_class = encoding.classes is not None
    twice = one_number_twice(whole.columns[target]) if is_class else None
    if twice is not None:
        notes.append(
            f"{target}: {twice[0]} and {twice[1]} are one class, being one number; write them as "
            f"words, v{twice[0]}, if they are two."
        )
    shape = len(training), len(encoding.features)
    sampler = choose_sampler(settings, kind.likelihood, *shape, is_class=is_class)
    if settings.sampler == "auto" and sampler == "dvi":
        kind, encoding, more = encoded(False)
    if sampler in ("dvi", "gibbs"):
        wanted = kind_of(True).likelihood
        notes += notes_of_another(wanted, kind.likelihood, sampler, as_option)
    check_sampler(sampler, kind.likelihood, relevance=settings.relevance, spelled=as_option)
    tried = candidates(settings, kind.likelihood, sampler, *shape, is_class=is_class)
    settings = settings._replace(least_noise=rounding_noise(encoding.targets(rows)))
    notes = [*notes, kind.note, *more]
    prepared = Prepared(table, training, held_out, sampler, settings, encoding, notes, kind, tried)
    if options.refit:
        on_all_rows(prepared)  # what a second fit would refuse is refused before the first
    return settled(prepared, tried[0]) if len(tried) == 1 else prepared


def settled(prepared: Prepared, taken: Candidate, why: str | None = None) -> Prepared:
    """Return what is fitted where this candidate was taken, with a note on why."""
    kind = prepared.kind
    is_as_known = taken.likelihood == kind.likelihood
    notes = [note for note in prepared.notes if note != kind.note or is_as_known]
    if why is not None:
        notes.append(why)
    shape = len(prepared.training), len(prepared.encoding.features)
    is_forced = prepared.num_classes is None and are_of_few_rows(
        prepared.candidates, prepared.settings, kind.likelihood, *shape
    )
    # Four layers are for the ensemble alone.
    if prepared.settings.sampler == "auto" and is_forced:
        notes.append("auto took nuts, for there are few rows a column.")
    elif prepared.settings.sampler == "auto" and taken.hidden != DEEP:
        notes.append(
            f"auto took {taken.sampler}, by a benchmark at about so many rows and weights."
        )
    settings = taken.of(prepared.settings)
    y = prepared.encoding.targets(take(prepared.table, prepared.training))
    notes += [
        prior_note(settings, taken.sampler, as_option),
        *noise_notes(settings.likelihood, settings.least_noise, y),
    ]
    return prepared._replace(
        sampler=taken.sampler, settings=settings, notes=notes, candidates=[taken]
    )


def on_all_rows(prepared: Prepared) -> Prepared:
    """Return what a second fit takes: every row to learn from, none held out."""
    table = prepared.table
    # The task was settled with the first fit.
    task = "auto" if prepared.encoding.classes is None else "classification"
    encoding, notes = learn_encoding(table, table, prepared.encoding.target, task, prepared.kind)
    encoding = replace(encoding, width=prepared.encoding.width)
    rows = np.arange(table.num_rows)
    return prepared._replace(training=rows, held_out=rows[:0], encoding=encoding, notes=notes)


def _split(num_rows: int, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    order = np.random.default_rng(seed).permutation(num_rows)
    held = min(max(1, round(fraction * num_rows)), num_rows - 2)
    return np.sort(order[held:]), np.sort(order[:held])
