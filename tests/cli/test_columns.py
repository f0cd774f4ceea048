"""Tests of cli.encoding and cli.hints: what columns are taken for, and what is said of it."""

import numpy as np
import pytest

from jaxbnn.cli import prepare as prepare_module
from jaxbnn.cli.encoding import learn_encoding, usable_rows
from jaxbnn.cli.kinds import Kind, choose_likelihood
from jaxbnn.cli.options import parse, settings_of
from jaxbnn.cli.prepare import prepare
from jaxbnn.cli.table import Table, read_table

JANUARY = [f"2020-01-{day:02d}" for day in range(1, 31)]


def test_equal_numbers_are_one_class():
    ways = ["1", "1.0", "0", "0.00"] * 5
    table, _ = usable_rows(Table({"x": ["1"] * 20, "y": ways}, "t"), "y", [])
    assert table.columns["y"] == ["1", "1", "0", "0"] * 5


def test_large_labels_stay_different():
    labels = [str(2**53 + i) for i in range(4)] * 5
    table, _ = usable_rows(Table({"x": ["1"] * 20, "y": labels}, "t"), "y", [])
    assert table.columns["y"] == labels


def learnt(**columns):
    """Return the columns but y as learnt from all rows, and the notes, in one text."""
    table = Table(columns, "t")
    encoding, notes = learn_encoding(table, table, "y", "auto", Kind("gaussian", None, ""))
    return encoding, " ".join(notes)


def test_what_is_left_out_or_taken_otherwise_is_said():
    few = ["1", "2", "4"] * 6 + ["1", "2"]
    _, said = learnt(gone=["", "NA"] * 10, x=list("0123456789") * 2, y=few)
    assert "gone: empty; left out." in said
    assert "y: 3 different numbers, taken as numbers; if they stand for classes" in said


def test_few_numbers_that_repeat_may_be_classes():
    table = Table({"x": NUMBERS, "y": ["0", "1", "2", "3"] * 10}, "t")
    kind = choose_likelihood("y", table.columns["y"], "auto", "auto", None)
    assert kind.likelihood == "negative-binomial"
    _, notes = learn_encoding(table, table, "y", "auto", kind)
    hint = "if they stand for classes, give --task classification"
    assert f"y: 4 different numbers, taken as counts; {hint}." in notes
    assert "stand for classes" not in learnt(x=NUMBERS[:10], y=NUMBERS[10:20])[1]


def test_classes_have_the_order_of_their_kind():
    columns = {"x": list("012345678"), "y": ["low", "medium", "high"] * 3}
    table = Table(columns, "t")
    kind = choose_likelihood("y", columns["y"], "auto", "auto", None)
    encoding, _ = learn_encoding(table, table, "y", "auto", kind)
    assert encoding.classes == ["low", "medium", "high"]
    assert encoding.targets(table).tolist() == [0, 1, 2] * 3


def test_counts_stay_counts():
    table = Table({"x": list("012345"), "y": list("021530")}, "t")
    encoding, _ = learn_encoding(table, table, "y", "auto", Kind("poisson", None, ""))
    assert encoding.targets(table).tolist() == [0, 2, 1, 5, 3, 0]


def test_missing_numbers_are_counted_in_the_training_rows():
    table = Table(
        {"x": ["1", "", "3", "", "5"], "b": ["1", "2", "", "4", "5"], "y": NUMBERS[:5]}, "t"
    )
    training = Table({name: values[:4] for name, values in table.columns.items()}, "t")
    _, notes = learn_encoding(table, training, "y", "auto", Kind("gaussian", None, ""))
    assert "Missing numbers, taken as the mean: x (2 of 4 training rows), b (1 of 4)." in notes


def test_what_is_learnt_is_learnt_from_the_training_rows():
    table = Table({"x": ["1", "2", "3", "90"], "y": list("1234")}, "t")
    training = Table({name: values[:3] for name, values in table.columns.items()}, "t")
    encoding, _ = learn_encoding(table, training, "y", "auto", Kind("gaussian", None, ""))
    (column,) = encoding.columns
    assert (column.low, column.mean, column.high) == (1.0, 2.0, 3.0)


NUMBERS = [f"{i / 40:.3f}" for i in range(40)]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([*NUMBERS[:38], "-999", "-999"], "x: -999, in 2 of 40 training rows, lies far from all"),
        (["0", "1"] * 19 + ["99", ""], "x: 99, in 1 of 40 training rows, lies far from all others"),
        ([*[f"2020-01-{i % 28 + 1:02d}" for i in range(39)], "9999-12-31"], "9999-12-31, in 1 of"),
        ([str(20200101 + i % 28) for i in range(40)], "numbers such as 20200101 look like dates"),
        ([str(i % 14) for i in range(39)] + ["1O"], "x: '1O' is no number, so that all are words;"),
        ([f"{i % 12} %" for i in range(40)], "write numbers plainly, as 1234.5 if numbers are"),
        ([f"{i % 12} kg" for i in range(40)], "'0 kg' is no number, so that all are words"),
        (["Yes", "yes", "no", ""] * 10, "x: 'Yes' and 'yes' are taken as different"),
        (["none", "None", "drug", ""] * 10, "x: none is a category, apart from what is missing."),
    ],
)
def test_what_may_be_meant_otherwise_is_said(values, said):
    assert said in learnt(x=values, y=NUMBERS)[1]


@pytest.mark.parametrize("likelihood", ["gaussian", "poisson"])
def test_a_target_far_from_all_others_is_said(likelihood):
    counts = [str(i % 12) for i in range(39)]
    table = Table({"x": NUMBERS, "y": [*counts, "9999"]}, "t")
    kind = Kind(likelihood, None, "")
    said = " ".join(learn_encoding(table, table, "y", "auto", kind)[1])
    assert "y: 9999, in 1 of 40 training rows, lies far from all others; if it means that" in said
    words = table._replace(columns=table.columns | {"y": ["0", "1"] * 19 + ["9999"] * 2})
    _, notes = learn_encoding(words, words, "y", "auto", Kind("categorical", None, ""))
    assert not any("far from" in note for note in notes)


@pytest.mark.parametrize(
    "values",
    [
        NUMBERS,
        ["0", "1"] * 20,
        ["1", "2", "10", ""] * 10,
        ["red", "", "blue", "none"][:3] * 13 + ["red"],
        [f"2020-01-{i % 28 + 1:02d}" for i in range(40)],
        [str(20200101 + i) for i in range(40)],  # there is no 32nd of January
        ["red", "none"] * 20,
    ],
)
def test_ordinary_columns_are_not_remarked_on(values):
    said = learnt(x=values, y=NUMBERS)[1]
    assert not any(word in said for word in ("far from", "look like", "no number", "apart"))
    assert "taken as different" not in said


def test_the_word_none_is_a_category_beside_blanks_alone():
    both, _ = learnt(x=["none", "NONE", "drug", ""] * 10, y=NUMBERS)
    assert both.features == ["x=(missing)", "x=drug", "x=none"]
    assert both.inputs(Table({"x": ["None", "", "NA", "drug"]}, "n")).tolist() == [
        [0, 0, 1],
        [1, 0, 0],
        [1, 0, 0],
        [0, 1, 0],
    ]
    assert both.remarks(Table({"x": ["None", ""]}, "n")) == []
    alone, _ = learnt(x=["none", "drug"] * 20, y=NUMBERS)
    assert alone.features == ["x=(missing)", "x=drug"]
    assert alone.inputs(Table({"x": ["None", ""]}, "n")).tolist() == [[1, 0], [1, 0]]


def test_stamps_of_microseconds_are_no_constant():
    encoding, said = learnt(x=[str(1_600_000_000_000_000 + 7 * i) for i in range(40)], y=NUMBERS)
    assert "always" not in said
    x = encoding.inputs(Table({"x": ["1600000000000000", "1600000000000273"]}, "n"))
    np.testing.assert_allclose(x[:, 0], [-1.689, 1.689], atol=0.01)


def test_classes_that_differ_little_or_that_no_training_row_has_are_named():
    table = Table({"x": NUMBERS, "y": ["Yes", "yes", "no", "no"] * 9 + ["maybe"] * 4}, "t")
    training = Table({name: values[:36] for name, values in table.columns.items()}, "t")
    _, notes = learn_encoding(table, training, "y", "auto", Kind("categorical", None, ""))
    assert "y: 'Yes' and 'yes' are taken as different; write them alike" in " ".join(notes)
    assert "y: no training row is of maybe." in notes


@pytest.mark.parametrize("start", [0, 1, 1000])
def test_a_column_that_counts_rows_is_pointed_out(start):
    columns = {
        "id": [str(i) for i in range(start, start + 12)],
        "y": [str(i % 5) for i in range(12)],
    }
    _, notes = learn_encoding(
        Table(columns, "t"), Table(columns, "t"), "y", "auto", Kind("gaussian", None, "")
    )
    assert any(f"id: counts the rows from {start} on;" in note for note in notes)
    columns["id"][3] = "40"
    _, notes = learn_encoding(
        Table(columns, "t"), Table(columns, "t"), "y", "auto", Kind("gaussian", None, "")
    )
    assert not any("counts the rows" in note for note in notes)


def test_columns_of_dates_become_days_and_what_else_is_known():
    dates = [
        f"{day}.{month}.{year}" for year in (2019, 2020) for month in (1, 7) for day in (2, 20)
    ]
    columns = {"when": [*dates, "", "9.9.2020"], "y": [str(i) for i in range(10)]}
    table = Table(columns, "t")
    encoding, notes = learn_encoding(table, table, "y", "auto", Kind("gaussian", None, ""))
    (note,) = [n for n in notes if n.startswith("when")]
    assert "written day-month-year, 2019-01-02 to 2020-09-09" in note
    assert "days since the first, season, weekday." in note
    assert encoding.features[:3] == ["when", "when is missing", "when: season (cos)"]
    x = encoding.inputs(table)
    assert x.shape == (10, 4 + 7)
    assert x[8].tolist() == [0, 1, *[0] * 9]
    assert (x[:8, 4:].sum(axis=1) == 1).all()
    days = np.array(
        [0, 18, 181, 199, 365, 383, 547, 565, 616]
    )  # since 2.1.2019; 2020 is a leap year
    seen = np.delete(x[:, 0], 8)
    np.testing.assert_allclose(seen, (days - days.mean()) / days.std(), atol=1e-5)
    again = type(encoding).from_dict(encoding.to_dict())
    new = Table({"when": ["2020-07-20", "2021-01-01", "", "2018-12-31"]}, "n")
    assert again.inputs(new)[0, 0] == pytest.approx(float(x[7, 0]))
    assert again.columns[0].is_outside(new.columns["when"]).tolist() == [False, True, False, True]
    remark, other = again.remarks(new)
    assert "2 of 4 dates, 2018-12-31 to 2021-01-01, lie outside" in remark
    assert "dates are of a weekday that the fit lacked" in other
    with pytest.raises(ValueError, match="holds 'soon', but was all dates"):
        again.inputs(Table({"when": ["soon"]}, "n"))


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ([f"{i % 12 + 1}/{i % 11 + 1}/2020" for i in range(30)], "day or the month may come first"),
        ([*JANUARY[:29], "soon"], "holds 'soon' among its dates"),
        (
            [*(f"2020-01-{i:02d}" for i in range(1, 30)), "2020-02-30"],
            "'2020-02-30' among its dates",
        ),
    ],
)
def test_dates_that_cannot_be_read_are_refused(values, sentence):
    table = Table({"when": values, "y": [str(i) for i in range(30)]}, "t")
    with pytest.raises(ValueError, match=sentence):
        learn_encoding(table, table, "y", "auto", Kind("gaussian", None, ""))


def test_a_target_of_dates_is_refused():
    table = Table({"when": JANUARY, "y": [str(i) for i in range(30)]}, "t")
    kind = Kind("categorical", None, "")
    with pytest.raises(ValueError, match="holds dates such as '2020-01-30'; give a column of num"):
        learn_encoding(table, table, "when", "auto", kind)
    learn_encoding(table, table, "when", "classification", kind)


def test_years_are_names_and_rows_to_predict_may_have_no_header(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("1990,2000,2010\n1.5,2.5,3.5\n4.5,5.5,6.5\n")
    assert list(read_table(path).columns) == ["1990", "2000", "2010"]
    path.write_text("1990,2000,2010\n1991,2000,2012\n")
    assert not read_table(path).has_header
    path.write_text("5.1,red\n4.9,blue\n")
    assert read_table(path).has_header
    table = read_table(path, is_headerless=True)
    assert not table.has_header
    assert table.columns == {"column 1": ["5.1", "4.9"], "column 2": ["red", "blue"]}
    path.write_text("5.1,red\n")
    assert read_table(path, is_headerless=True).num_rows == 1
    path.write_text("column 1,column 2\n5.1,red\n")
    assert read_table(path, is_headerless=True).num_rows == 1


@pytest.mark.parametrize("values", [["7", "", "7", "7"], ["0.30000000000000004", "", "0.3", "0.3"]])
def test_another_value_where_there_was_one_is_but_given(values):
    encoding, notes = learnt(z=values, x=["1", "2", "3", "4"], y=["1", "2", "3", "5"])
    assert "taken as given or missing" in notes
    new = Table({"z": [values[0], "7000", ""], "x": ["1", "1", "1"]}, "new.csv")
    given, missing = encoding.inputs(new)[:, :2].T
    assert given.tolist() == [0, 0, 0]
    assert missing.tolist() == [0, 0, 1]


def test_another_date_where_there_was_one_is_but_given():
    dates = ["2020-01-01", "", "2020-01-01", ""]
    encoding, _ = learnt(z=dates, x=["1", "2", "3", "4"], y=["1", "2", "3", "5"])
    new = Table({"z": ["2020-06-01", ""], "x": ["1", "1"]}, "new.csv")
    assert encoding.inputs(new)[:, :2].tolist() == [[0, 0], [0, 1]]


def test_classes_that_are_one_number_are_told(tmp_path):
    def prepared(versions):
        path = tmp_path / "releases.csv"
        path.write_text("x,version\n" + "".join(f"{i},{v}\n" for i, v in enumerate(versions)))
        arguments = ["fit", str(path), "--target", "version", "--task", "classification"]
        options = parse(arguments)
        return prepare(options, settings_of(options))

    found = prepared(["1.1", "1.10", "1.2"] * 8)
    assert found.encoding.classes == ["1.1", "1.2"]
    assert any(note.startswith("version: 1.10 and 1.1 are one class") for note in found.notes)
    assert not any("are one class" in note for note in prepared(["1", "2", "3"] * 8).notes)
    with pytest.raises(ValueError, match=r"one number in every row, written 1.1 and 1.10; if"):
        prepared(["1.1", "1.10"] * 12)


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (["0", "3", "1", "0", "9", "0", "1", "3"], "negative-binomial"),
        (["low", "high", "medium", "low"], "ordinal"),
        (["0.5", "1.5", "2.25", "3.125"], None),
    ],
)
@pytest.mark.parametrize("asked", ["dvi", "auto"])
def test_a_likelihood_that_the_sampler_does_not_know_is_told(
    values, wanted, asked, tmp_path, monkeypatch
):
    """As `auto` takes dvi for very many rows."""
    if asked == "auto":
        monkeypatch.setattr(prepare_module, "choose_sampler", lambda *given, **more: "dvi")
    path = tmp_path / "table.csv"
    path.write_text("x,y\n" + "".join(f"{i},{v}\n" for i, v in enumerate(values * 5)))
    options = parse(["fit", str(path), "--target", "y", "--sampler", asked])
    found = prepare(options, settings_of(options))
    told = [note for note in found.notes if "which dvi does not know" in note]
    assert len(told) == (wanted is not None)
    assert all(f"ask for {wanted}" in note for note in told)


def test_what_new_rows_hold_that_the_fit_lacked_is_named():
    table = Table({"x": ["a", "b"] * 20, "y": NUMBERS}, "t")
    encoding, _ = learn_encoding(table, table, "y", "auto", Kind("gaussian", None, ""))
    new = Table({"x": ["", "a", *"hgfedc", ""]}, "n")
    words, blanks = encoding.remarks(new)
    assert words.startswith("x: 'c', 'd', 'e', 'f', 'g' and 1 more did not occur in the fit; such")
    assert blanks == "x: 2 missing, of no category; none was in the fit."
    assert encoding.remarks(Table({"x": ["a", "b"]}, "n")) == []


def test_what_held_out_rows_alone_have_is_told():
    columns = {"x": ["a", "b"] * 19 + ["c", ""], "z": [*NUMBERS[:39], ""], "y": NUMBERS}
    table = Table(columns, "t")
    training = Table({name: values[:38] for name, values in columns.items()}, "t")
    notes = learn_encoding(table, training, "y", "auto", Kind("gaussian", None, ""))[1]
    assert any("x: no training row is (missing), c." in note for note in notes)
    assert any("z: 1 missing, all held out, taken as the mean." in note for note in notes)


def test_the_field_that_is_no_number_is_named_and_no_other():
    """80,25 is read with a point; 1.234,5 in no way."""
    table = Table({"x": NUMBERS, "y": NUMBERS}, "t")
    encoding, _ = learn_encoding(table, table, "y", "auto", Kind("gaussian", None, ""))
    with pytest.raises(ValueError, match=r"holds '1\.234,5', but was all numbers"):
        encoding.inputs(Table({"x": ["80,25", "1.234,5", "7"]}, "n"))


@pytest.mark.parametrize("count", [12, 30])
def test_dates_with_two_digits_of_the_year_are_no_numbers(count):
    values = [f"{i % count + 1}.3.21" for i in range(60)]
    table = Table({"x": values, "y": [str(i * i) for i in range(60)]}, "t")
    if count == 12:
        notes = learn_encoding(table, table, "y", "auto", Kind("gaussian", None, ""))[1]
        assert any("'1.3.21' looks like a date or a time, but all are words" in n for n in notes)
        return
    with pytest.raises(ValueError, match=r"holds '1\.3\.21'; write dates as 2020-12-31"):
        learn_encoding(table, table, "y", "auto", Kind("gaussian", None, ""))


def test_leading_zeros_are_told():
    said = learnt(x=["01005", *NUMBERS[1:]], y=NUMBERS)[1]
    assert "x: fields such as 01005 begin with 0, but are taken as numbers" in said
    assert "begin with 0" not in learnt(x=["0", "0.5", *NUMBERS[2:]], y=NUMBERS)[1]
