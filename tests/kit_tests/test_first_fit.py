"""The new user's first hour: the least RMSE is of the rows that a fit is scored on."""

import numpy as np

from jaxbnn.cli.prepare import _split
from tests import first_fit


def test_the_least_error_is_of_the_rows_that_are_held_out():
    _, held_out = _split(50, 0.2, 0)
    errors = np.full(50, 5.0)
    errors[held_out] = 2.0
    table = first_fit.Table("y", ["y"], [["0"]] * 50, errors)
    assert first_fit.least_rmse(table) == 2.0


def test_a_table_keeps_the_errors_of_its_rows():
    for name in ("text", "dates", "european"):
        table = first_fit.TABLES[name](np.random.default_rng(0))
        assert len(table.errors) == len(table.rows)
        # Nothing that is written is far from the mean that the law gives it.
        assert 0 < first_fit.least_rmse(table) < 25
