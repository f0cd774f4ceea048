"""Tests of experiments.record.pages and experiments.record.energy_errors: what is said."""

import json
import shutil
import tomllib

import pytest

from experiments.errors import InputError
from experiments.paper_numbers import PaperValue, load_paper_values
from experiments.record import (
    RECORD,
    record_runs,
)
from experiments.record.energy_errors import STUDY, TABLE, bias_table, write_bias_table
from experiments.record.pages import (
    PAGES,
    Entry,
    _entries,
    _is_of,
    _reasons_of,
    current_code,
    is_stale,
    pages,
    state_of,
)
from experiments.results import Row
from experiments.spreads import spread_name

NAME = "challenges/figure1"


def printed(value=1.0, error=None, half_digit=0.0, quantity="ess", half_digit_of_error=0.0):
    digits = {"half_digit": half_digit, "half_digit_of_error": half_digit_of_error}
    return PaperValue("004 Table 1", quantity, "a", value, "result", error, **digits)


def row(value, standard_error):
    return {"value": value, "standard_error": standard_error, "source": "004 Table 1"}


@pytest.mark.parametrize(
    ("ours", "paper", "state"),
    [
        (None, printed(), "NOT RUN"),
        (row(1.02, 0.05), printed(), "WITHIN"),
        (row(1.02, 0.051), printed(), "IMPRECISE"),
        (row(1.02, 0.1), printed(error=0.1), "WITHIN"),
        (row(1.02, 0.11), printed(error=0.1), "IMPRECISE"),
        (row(2.0, 0.1), printed(error=0.1), "OUTSIDE"),
        (row(1.0, None), printed(), "NO ERROR"),
        (row(None, 0.1), printed(), "NO VALUE"),
        (row(0.0, 0.0), printed(0.0), "WITHIN"),
        (row(0.0, 0.05), printed(0.0, half_digit=0.05), "WITHIN"),
        (row(0.0, 0.06), printed(0.0, half_digit=0.05), "IMPRECISE"),
        # Half a unit of a last digit is no licence for an error of our own.
        (row(9.0, 0.5), printed(9.0, half_digit=0.5), "IMPRECISE"),
        (row(9.0, 0.5), printed(9.0, error=0.1, half_digit=0.5), "IMPRECISE"),
        # An error of 0.00 is less than 0.005.
        (row(9.0, 0.004), printed(9.0, error=0.0, half_digit_of_error=0.005), "WITHIN"),
        (row(9.0, 0.006), printed(9.0, error=0.0, half_digit_of_error=0.005), "IMPRECISE"),
        # An R-hat of 1.2 says 0.2.
        (row(1.2, 0.009), printed(1.2, quantity="psrf_split"), "WITHIN"),
        (row(1.2, 0.011), printed(1.2, quantity="psrf_split"), "IMPRECISE"),
        (row(1.2, 0.011), printed(1.2, quantity="rhat"), "IMPRECISE"),
    ],
)
def test_near_is_not_enough_where_our_own_error_is_large(ours, paper, state):
    assert state_of(ours, paper) == state


@pytest.mark.parametrize(
    ("ours", "paper", "spread", "state"),
    [
        (row(1.24, 0.02), printed(), None, "OUTSIDE"),
        (row(1.24, 0.02), printed(), 0.08, "WITHIN"),
        (row(1.24, 0.06), printed(), 0.08, "IMPRECISE"),
        (row(1.30, 0.02), printed(), 0.08, "OUTSIDE"),
        (row(1.24, 0.02), printed(error=0.01), 0.08, "OUTSIDE"),  # what is printed comes first
    ],
)
def test_the_spread_of_our_runs_stands_for_an_error_that_is_not_printed(ours, paper, spread, state):
    assert state_of(ours, paper, spread) == state


def test_pages_show_the_spread_and_judge_by_it(finished, tmp_path):
    first = next(v for v in load_paper_values().values() if v.kind == "result" and v.value > 0)
    assert first.error is None
    off = 0.2 * first.value
    rows = [
        Row(first.quantity, first.setting, first.value + off, 0.01 * first.value, first.source),
        Row(spread_name(first.quantity), first.setting, off / 2),
    ]
    record = tmp_path / "record"
    record_runs(finished(rows=rows, code=[current_code(NAME)]), record)
    made = pages(record, tmp_path / "reproduction.md")
    assert "1 WITHIN" in made[tmp_path / "reproduction.md"]
    page = made[tmp_path / "reproduction" / f"{first.source[:3]}.md"]
    assert f"| ({off / 2:.2g}) " in page


def test_pages_count_say_reasons_and_name_what_is_stale(finished, tmp_path):
    first, second, *_ = (v for v in load_paper_values().values() if v.kind == "result")
    rows = [Row(v.quantity, v.setting, v.value + 9.0, 0.0, v.source) for v in (first, second)]
    results = finished(rows=rows, code=["of another version"])
    record = tmp_path / "record"
    record_runs(results, record)
    pattern = f'source = "{first.source}"\nquantity = "{first.quantity}"\n'
    entries = [
        f'[[reason]]\nstate = "{state}"\n{pattern}reason = "{why}"\n'
        for state, why in (("NOT RUN", "Too dear."), ("OUTSIDE", "Because."))
    ]
    (record / "reasons.toml").write_text("".join(entries))
    made = pages(record, tmp_path / "reproduction.md")
    index = made[tmp_path / "reproduction.md"]
    assert index.splitlines()[2].startswith("2 of 467 results")
    assert "144 are quoted" in index.splitlines()[2]
    table_3 = made[tmp_path / "reproduction" / "002.md"].split("## 002 Table 3")[1]
    assert "144 more numbers are printed there" in table_3
    assert "| DGP-1 50, bost" not in table_3
    assert "2 OUTSIDE" in index
    assert "2 of them are of a STALE run" in index
    assert "2.0 CPU hours" in index
    page = made[tmp_path / "reproduction" / f"{first.source[:3]}.md"]
    assert "OUTSIDE, STALE" in page
    assert "Because." in page
    assert "Too dear." not in page  # a reason of another state
    (record / "reasons.toml").write_text(f'[[reason]]\n{pattern}reason = "Because."\n')
    with pytest.raises(InputError, match="it must say which it explains"):
        pages(record, tmp_path / "reproduction.md")
    assert f"{NAME} desk" in page


def test_a_run_that_older_code_began_is_stale():
    now = current_code(NAME)
    for codes, stale in (([now], False), (["old", now], True), ([now, "old"], True), ([], True)):
        assert is_stale({"experiment": NAME, "code": codes}) == stale


@pytest.mark.parametrize("state", ["NO ERROR", "NO VALUE"])
def test_a_number_that_does_not_bear_its_state_is_withheld(state, finished, tmp_path):
    """Equal to the printed one and exact, or far from it: the entry decides, and says why."""
    first, second, *_ = (v for v in load_paper_values().values() if v.kind == "result")
    rows = [
        Row(v.quantity, v.setting, v.value + gap, 1e-9, v.source)
        for v, gap in ((first, 0.0), (second, 9.0))
    ]
    record = tmp_path / "record"
    record_runs(finished(rows=rows), record)

    def index_and_page(withheld):
        entry = f'[[reason]]\nstate = "{state}"\nreason = "Not so."\nwithheld = {withheld}\n'
        (record / "reasons.toml").write_text(entry)
        made = pages(record, tmp_path / "reproduction.md")
        return (
            made[tmp_path / "reproduction.md"].splitlines()[2],
            made[tmp_path / "reproduction" / f"{first.source[:3]}.md"],
        )

    index, page = index_and_page("true")
    assert f"2 {state}" in index
    assert "0 WITHIN" in index
    assert "Not so." in page
    index, page = index_and_page("false")
    assert "1 WITHIN" in index
    assert "1 OUTSIDE" in index
    assert "Not so." not in page


def test_in_a_section_of_several_quantities_a_reason_names_those_it_is_given_for(
    finished, tmp_path
):
    source = "000 Section V.1"
    own = [v for v in load_paper_values().values() if (v.kind, v.source) == ("result", source)]
    first, second = (next(v for v in own if v.quantity == q) for q in ("test_mse", "rhat"))
    record = tmp_path / "record"
    rows = [Row(v.quantity, v.setting, v.value + 9.0, 0.0, source) for v in (first, second)]
    record_runs(finished(rows=rows), record)
    reason = f'[[reason]]\nstate = "OUTSIDE"\nsource = "{source}"\nreason = "Because."\n'
    (record / "reasons.toml").write_text(reason)
    page = pages(record, tmp_path / "reproduction.md")[tmp_path / "reproduction" / "000.md"]
    told = {f"{v.quantity}: {v.setting}" for v in (first, second)}
    (line,) = (line for line in page.splitlines() if line.endswith("): Because."))
    assert set(line[len("* OUTSIDE (") : -len("): Because.")].split("; ")) == told


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_the_runs_say_which_had_a_gpu(finished, tmp_path, backend):
    record = tmp_path / "record"
    record_runs(finished(), record)
    path = record / NAME / "desk" / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"backend": backend}))
    index = pages(record, tmp_path / "reproduction.md")[tmp_path / "reproduction.md"]
    (line,) = (line for line in index.splitlines() if line.startswith(f"| {NAME} "))
    assert ("| GPU " in line) == (backend == "gpu")


@pytest.mark.parametrize(
    ("errors", "shown"), [((0.5, 0.25), 2.0), ((0.25, 0.5), 1.0), ((0.5, None), 1.0)]
)
def test_of_several_runs_of_a_number_the_surest_is_shown(finished, tmp_path, errors, shown):
    first = next(v for v in load_paper_values().values() if v.kind == "result")
    record = tmp_path / "record"
    record_runs(finished(rows=[Row(first.quantity, first.setting, 1.0, 0.0, first.source)]), record)
    for name, value, error in zip((NAME, "challenges/xor"), (1.0, 2.0), errors, strict=True):
        folder = record / name / "desk"
        if name != NAME:
            shutil.copytree(record / NAME / "desk", folder)
        metrics = json.loads((folder / "metrics.json").read_text())
        metrics["rows"][0] |= {"value": value, "standard_error": error}
        (folder / "metrics.json").write_text(json.dumps(metrics))
        run = json.loads((folder / "run.json").read_text()) | {"experiment": name}
        (folder / "run.json").write_text(json.dumps(run))
    page = pages(record, tmp_path / "reproduction.md")
    page = page[tmp_path / "reproduction" / f"{first.source[:3]}.md"]
    (line,) = (
        line for line in page.splitlines() if f"| {first.setting} " in line and "desk" in line
    )
    assert f"| {shown:g} " in line


def test_a_run_without_an_assumed_setting_reproduces_nothing(finished, tmp_path):
    first = next(v for v in load_paper_values().values() if v.kind == "result")
    rows = [Row(first.quantity, first.setting, first.value, 0.0, first.source)]
    record = tmp_path / "record"
    record_runs(finished(rows=rows), record)
    index = tmp_path / "reproduction.md"
    assert pages(record, index)[index].splitlines()[2].startswith("1 of 467 results")
    keys = ("paper", "setting", "value", "from", "effect")
    entry = "".join(f'{key} = "x"\n' for key in keys)
    (record / "assumed_settings.toml").write_text(f'[[setting]]\n{entry}without = "{NAME}"\n')
    assert pages(record, index)[index].splitlines()[2].startswith("0 of 467 results")


def test_the_pages_are_what_the_command_makes():
    for path, text in pages(RECORD, PAGES).items():
        assert path.read_text(encoding="utf-8") == text, "run: python -m experiments record"


def test_the_table_of_the_bias_is_what_the_command_makes():
    assert TABLE.read_text(encoding="utf-8") == bias_table(), "run: python -m experiments record"


def test_the_table_of_the_bias_is_of_the_largest_scale(tmp_path):
    for scale in ("desk", "paper"):
        folder = tmp_path / STUDY / scale
        shutil.copytree(RECORD / STUDY / "desk", folder)
        run = json.loads((folder / "run.json").read_text()) | {"scale": scale}
        (folder / "run.json").write_text(json.dumps(run))
    before = bias_table(tmp_path)
    metrics = json.loads((folder / "metrics.json").read_text())
    for row in metrics["rows"]:
        if row["quantity"] == "variance_ratio":
            row["value"] = 0.5
    (folder / "metrics.json").write_text(json.dumps(metrics))
    after = bias_table(tmp_path)
    assert after != before
    assert {line for line in after.splitlines() if line.startswith("share")} == {"share = 0.5"}


def test_the_table_of_the_bias_is_left_where_the_study_is_not_recorded(tmp_path):
    assert write_bias_table(tmp_path, tmp_path / "table.toml") == []
    assert not list(tmp_path.iterdir())


def test_each_reason_stands_on_a_page_and_each_number_that_asks_for_one_has_it():
    made = "".join(pages(RECORD).values())
    entries = tomllib.loads((RECORD / "reasons.toml").read_text(encoding="utf-8"))["reason"]
    assert [one["reason"] for one in entries if one["reason"] not in made] == []
    assert "No reason is known yet." not in made


def of_crossing_reasons(entries: list[Entry], reasons: list[dict]) -> list[str]:
    """Return the settings of two reasons of which the first is not the narrower.

    It is given for numbers that the other is not of: which of the two it is, chance decides.
    """

    def given_for(reason):
        same = (e for e in entries if e.state == reason["state"])
        return {
            (p.source, p.quantity, p.setting) for p in (e.paper for e in same) if _is_of(reason, p)
        }

    crossing = []
    for entry in entries:
        own = [r for r in reasons if r["state"] == entry.state and _is_of(r, entry.paper)]
        if any(not given_for(own[0]) <= given_for(other) for other in own[1:]):
            crossing.append(entry.paper.setting)
    return crossing


def test_of_two_reasons_for_a_number_the_narrower_comes_first():
    entries = _entries(RECORD, load_paper_values().values())
    reasons = _reasons_of(RECORD)
    assert of_crossing_reasons(entries, reasons) == []
    # "pCN*" is a pattern of pCNL, too, whose own reason then stood behind pCN's.
    pattern = "pCN,*limit of infinite width"
    assert sum(reason.get("setting") == pattern for reason in reasons) == 1
    wrong = [
        reason | {"setting": "pCN*limit of infinite width"}
        if reason.get("setting") == pattern
        else reason
        for reason in reasons
    ]
    assert of_crossing_reasons(entries, wrong) == [
        "pCNL, reparametrised posterior, limit of infinite width"
    ]


def test_what_stands_in_several_places_and_what_steps_were_tuned_to_is_counted_apart(
    finished, tmp_path
):
    values = [
        v
        for v in load_paper_values().values()
        if (v.kind, v.quantity, v.setting) == ("result", "ess_min", "MALA, prior N(0, 3I)")
    ]
    assert len(values) == 3
    rows = [Row(v.quantity, v.setting, v.value, 0.0, v.source) for v in values]
    record = tmp_path / "record"
    record_runs(finished(rows=rows), record)
    tuned = '[[tuned]]\nsource = "004 Table 1"\nsetting = "MALA*"\n'
    (record / "names.toml").write_text(tuned)
    line = pages(record, tmp_path / "reproduction.md")[tmp_path / "reproduction.md"].splitlines()[2]
    assert line.startswith("3 of 467 results")
    assert "3 WITHIN (1 of them rates that steps were tuned to)" in line
    assert line.endswith("ours stand beside 1 different numbers.")


def test_a_run_without_a_number_stands_beside_nothing(finished, tmp_path):
    first, second, *_ = (v for v in load_paper_values().values() if v.kind == "result")
    rows = [
        Row(first.quantity, first.setting, first.value, 0.0, first.source),
        Row(second.quantity, second.setting, float("nan"), None, second.source),
    ]
    record = tmp_path / "record"
    record_runs(finished(rows=rows), record)
    line = pages(record, tmp_path / "reproduction.md")[tmp_path / "reproduction.md"].splitlines()[2]
    assert line.startswith("1 of 467 results")
    assert "Of 1 the run found no number (NO VALUE, too), 321 are NOT RUN" in line
