"""Tests of experiments.report: the report sets our numbers beside the papers'."""

import json

import pytest

from experiments.errors import InputError
from experiments.paper_numbers import PaperValue
from experiments.report import full_report, judge
from experiments.spreads import spread_name


def paper(value, error=None, half_digit=0.0, setting="a", kind="result", bound=""):
    return PaperValue("004 Table 1", "ess", setting, value, kind, error, half_digit, bound=bound)


def row(value, standard_error=None, setting="a", source="004 Table 1"):
    return {
        "quantity": "ess",
        "setting": setting,
        "value": value,
        "standard_error": standard_error,
        "paper": None,
        "source": source,
    }


@pytest.mark.parametrize(
    ("ours", "papers", "states"),
    [
        (row(1.29, 0.1), paper(1.0), ["WITHIN"]),
        (row(1.31, 0.1), paper(1.0), ["OUTSIDE"]),
        (row(0.69, 0.1), paper(1.0), ["OUTSIDE"]),
        # sqrt(0.3^2 + 0.4^2) = 0.5
        (row(2.49, 0.3), paper(1.0, 0.4), ["WITHIN"]),
        (row(2.51, 0.3), paper(1.0, 0.4), ["OUTSIDE"]),
        # A lower bound that is printed.
        (row(1.5, 0.0), paper(1.0, bound="lower"), ["WITHIN"]),
        (row(0.98, 0.01), paper(1.0, bound="lower"), ["WITHIN"]),
        (row(0.96, 0.01), paper(1.0, bound="lower"), ["OUTSIDE"]),
        # The paper's rounding alone.
        (row(1.005, 0.0), paper(1.0, half_digit=0.005), ["WITHIN"]),
        (row(1.006, 0.0), paper(1.0, half_digit=0.005), ["OUTSIDE"]),
        (row(1.0), paper(1.0), ["NO ERROR"]),
        (row(None, 0.1), paper(1.0), ["NO VALUE"]),
        (row(1.0, 0.1), None, ["NOT PRINTED"]),
        (row(1.0), None, ["NO ERROR", "NOT PRINTED"]),
        (row(1.0, 0.1, source=None), None, []),
        (row(1.0, source=None), None, ["NO ERROR"]),
    ],
)
def test_a_row_is_judged_by_both_errors_and_the_rounding(ours, papers, states):
    assert judge(ours, papers) == states


def write_metrics(directory, name, scale, rows):
    folder = directory / "challenges" / name / scale
    folder.mkdir(parents=True)
    metrics = {"experiment": f"challenges/{name}", "scale": scale, "seed": 0, "rows": rows}
    (folder / "metrics.json").write_text(json.dumps(metrics))


def test_the_report_counts_compares_and_lists_what_is_missing(tmp_path):
    values = [
        paper(2.0, 0.1),
        paper(5.0, setting="b"),
        paper(7.0, setting="c"),
        paper(9.0, setting="d", kind="setting"),
    ]
    table = {(value.source, value.quantity, value.setting): value for value in values}
    write_metrics(tmp_path, "xor", "desk", [row(1.0, 0.5), row(5.0, None, "b")])
    write_metrics(tmp_path, "xor", "paper", [row(4.0, 0.1)])
    report = full_report(tmp_path, table)
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in report.splitlines()]
    assert "2 runs. Of 3 results that the papers print, 1 are MISSING." in report
    assert ["scale", "rows", "WITHIN", "OUTSIDE", "NO ERROR", "NO VALUE", "NOT PRINTED"] in lines
    assert ["desk", "2", "1", "0", "1", "0", "0"] in lines
    assert ["paper", "1", "0", "1", "0", "0", "0"] in lines
    assert ["ess", "a", "1", "0.5", "2", "0.1", "0.500", "WITHIN", "004 Table 1"] in lines
    assert ["ess", "b", "5", "-", "5", "-", "1.000", "NO ERROR", "004 Table 1"] in lines
    assert ["004 Table 1", "ess", "c", "7", "-", "MISSING"] in lines
    assert report.index("2 runs.") < report.index("## challenges/xor") < report.index("## MISSING")
    assert not [line for line in lines if "d" in line]


def test_the_report_judges_by_the_spread_of_runs(tmp_path):
    value = paper(1.0)
    spread = row(0.08, source=None) | {"quantity": spread_name("ess")}
    write_metrics(tmp_path, "xor", "desk", [row(1.24, 0.02), spread])
    report = full_report(tmp_path, {(value.source, value.quantity, value.setting): value})
    (line,) = [line for line in report.splitlines() if line.startswith("| ess ")]
    assert "WITHIN" in line


def test_a_directory_without_runs_reports_everything_missing(tmp_path):
    value = paper(2.0)
    report = full_report(tmp_path, {(value.source, value.quantity, value.setting): value})
    assert "0 runs. Of 1 results that the papers print, 1 are MISSING." in report


@pytest.mark.parametrize("text", ["{", "[]", '{"rows": [{}]}'])
def test_a_foreign_metrics_file_is_named(tmp_path, text):
    write_metrics(tmp_path, "xor", "desk", [])
    (tmp_path / "challenges/xor/desk/metrics.json").write_text(text)
    with pytest.raises(InputError, match=r"metrics\.json is no metrics file"):
        full_report(tmp_path, {})
