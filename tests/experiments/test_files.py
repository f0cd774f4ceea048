"""Tests of experiments.results and experiments.paper_numbers: files whole or not there."""

import errno
import json
import math
import os

import jax.numpy as jnp
import numpy as np
import pytest

from experiments.errors import InputError
from experiments.paper_numbers import load_paper_values
from experiments.results import (
    Row,
    held,
    markdown_table,
    write_json,
    write_results,
    written_whole,
)

ENTRY = """
[[value]]
source = "004 Table 1"
quantity = "ess_min"
setting = "MALA"
value = 1.50
error = 0.2
kind = "result"
"""


def test_json_holds_numbers_of_every_kind_and_null_for_nan(tmp_path):
    content = {
        "python": [1, 2.5, math.nan, -math.inf, None, True, "words"],
        "numpy": np.array([1.0, np.nan], np.float32),
        "jax": jnp.float32(0.5),
        "scalars": (np.int64(3), np.bool_(True), np.float64(np.inf)),
    }
    write_json(tmp_path / "a.json", content)
    text = (tmp_path / "a.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == {
        "python": [1, 2.5, None, None, None, True, "words"],
        "numpy": [1.0, None],
        "jax": 0.5,
        "scalars": [3, True, None],
    }


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "deep" / "a.txt"
    with written_whole(path) as temporary:
        temporary.write_text("old")

    def break_off():
        with written_whole(path) as temporary:
            temporary.write_text("half of the n")
            assert path.read_text() == "old"
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(InputError, match=r"cannot be written \(No space left on device\)"):
        break_off()
    assert path.read_text() == "old"
    assert [entry.name for entry in path.parent.iterdir()] == ["a.txt"]


def test_a_folder_belongs_to_one_run(tmp_path):
    with held(tmp_path):
        with pytest.raises(InputError, match="Another run is writing to"), held(tmp_path):
            pass
        assert not list(tmp_path.iterdir())
    with held(tmp_path):
        pass


def test_rows_meet_the_paper_s_values_on_source_quantity_and_setting(tmp_path):
    (tmp_path / "004.toml").write_text(ENTRY)
    values = load_paper_values(tmp_path)
    rows = [
        Row("ess_min", "MALA", np.float32(1.4), 0.1, "004 Table 1"),
        Row("ess_min", "MALA", jnp.nan, jnp.nan, "004 Table 2"),
        Row("ess_min", "MALA", 1.4),
        Row("ess_min", "HMC", 1.4, None, "004 Table 1"),
    ]
    out = tmp_path / "out"
    table = write_results(
        out, experiment="a/b", scale="desk", seed=0, rows=rows, run={}, paper_values=values
    )
    metrics = json.loads((out / "metrics.json").read_text())
    assert list(metrics) == ["experiment", "scale", "seed", "rows"]
    assert [row["paper"] for row in metrics["rows"]] == [1.5, None, None, None]
    assert metrics["rows"][1]["value"] is None
    assert metrics["rows"][1]["standard_error"] is None
    assert (out / "table.md").read_text() == table


@pytest.mark.parametrize(
    ("printed", "value", "half_digit"),
    [("1.50", 1.5, 0.005), ("1500", 1500.0, 0.5), ("1e-4", 1e-4, 0.5e-4), ("-2.4", -2.4, 0.05)],
)
def test_the_precision_of_a_printed_number_is_kept(tmp_path, printed, value, half_digit):
    (tmp_path / "a.toml").write_text(ENTRY.replace("1.50", printed))
    (entry,) = load_paper_values(tmp_path).values()
    assert entry.value == value
    assert entry.half_digit == pytest.approx(half_digit)
    assert entry.error == 0.2


def test_a_limit_has_no_last_digit(tmp_path):
    (tmp_path / "a.toml").write_text(ENTRY.replace("1.50", "1\nrounding = 0"))
    (entry,) = load_paper_values(tmp_path).values()
    assert entry.half_digit == 0.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ENTRY + ENTRY, r"value 2: .* is there twice"),
        (ENTRY.replace("setting", "seting"), "unknown or missing key seting, setting"),
        (ENTRY.replace("1.50", '"1.50"'), "value must be a number"),
        (ENTRY.replace('"result"', '"results"'), "kind must be one of result, quoted, setting"),
        (ENTRY + 'bound = "upper"\n', "bound must be \"lower\" or left out, not 'upper'"),
        ("[[value]", r"a\.toml is not TOML"),
    ],
)
def test_a_broken_paper_file_is_one_sentence(tmp_path, text, message):
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(InputError, match=message):
        load_paper_values(tmp_path)


def test_the_transcribed_values_of_all_four_papers_load():
    values = load_paper_values().values()
    assert {value.source[:3] for value in values} == {"000", "001", "002", "004"}
    assert sum(value.kind in ("result", "quoted") for value in values) > 400


def test_the_noise_variances_of_a_table_go_down_by_equal_factors():
    """Erratum A16: two of the tables print 4.64e-3 and 2.15e-3 twice, which leaves gaps."""
    grids: dict[tuple, list] = {}
    for value in load_paper_values().values():
        if value.source.startswith("000 Table") and value.quantity == "delta":
            kind = value.setting.rpartition(",")[0]
            grids.setdefault((value.source, kind), []).append(value.value)
    assert len(grids) == 4
    for grid in grids.values():
        ratios = np.array(grid[1:]) / np.array(grid[:-1])
        np.testing.assert_allclose(ratios, 10 ** (-1 / 3), rtol=0.01)


def test_a_table_survives_bars_and_line_breaks_in_its_words():
    table = markdown_table(["a"], [["x|y\nz"], [math.inf], [3]])
    assert table.splitlines() == [
        "| a      |",
        "| ------ |",
        "| x\\|y z |",
        "| -      |",
        "| 3      |",
    ]
