"""Tests of cli.columns, cli.encoding, cli.fields and cli.hints: CSV files as spreadsheets and
data frames write them.
"""

import numpy as np
import pytest

from jaxbnn.cli.encoding import learn_encoding, usable_rows
from jaxbnn.cli.fields import as_numbers, how_to_mend, is_missing
from jaxbnn.cli.kinds import Kind, choose_likelihood
from jaxbnn.cli.table import Table, read_table

JANUARY = [f"2020-01-{day:02d}" for day in range(1, 31)]


@pytest.fixture
def table_of(tmp_path):
    def read(content, **options):
        path = tmp_path / "data.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_table(path, **options)

    return read


@pytest.mark.parametrize(
    ("content", "separator", "decimal"),
    [
        ("x,y\n1.5,2\n-3.25,4\n", ",", "."),
        ("x;y\r\n1,5;2\r\n-3,25;4\r\n", ";", ","),
        ("\ufeffx\ty\n1,5\t2\n-3,25\t4\n", "\t", ","),
        ('x,y\n"1,5","2"\n"-3,25","4"\n', ",", ","),
        ('\n"x";"y"\n\n"1.5";"2"\n"-3.25";"4"\n\n', ";", "."),
    ],
)
def test_one_table_written_five_ways(table_of, content, separator, decimal):
    table = table_of(content)
    assert (table.separator, table.decimal) == (separator, decimal)
    assert list(table.columns) == ["x", "y"]
    assert as_numbers(table.columns["x"]).tolist() == [1.5, -3.25]
    assert as_numbers(table.columns["y"]).tolist() == [2, 4]


def test_that_commas_were_decimal_is_told(table_of):
    assert table_of("x;y\n1,5;2\n").notes == ("Decimal commas were read as such.",)


def test_thousands_or_decimals_is_asked_for(table_of):
    content = "x;town\n1,500;Bonn, Ulm\n12,250;Rom\n"
    with pytest.raises(ValueError, match="'1,500': give --decimal ,"):
        table_of(content)
    assert table_of(content, decimal=",").columns["x"] == ["1.500", "12.250"]
    assert table_of(content, decimal=".").columns["x"] == ["1,500", "12,250"]
    # One field that cannot be thousands settles it, and text keeps its commas.
    table = table_of(content + "0,125;1,5 km\n")
    assert table.columns["x"] == ["1.500", "12.250", "0.125"]
    assert table.columns["town"] == ["Bonn, Ulm", "Rom", "1,5 km"]


def test_points_are_no_decimals_where_commas_are_asked_for(table_of):
    content = "x;y\n1.234;1\n12.500;2\n"
    with pytest.raises(ValueError, match=r"'1\.234', but --decimal is a comma: take points"):
        table_of(content, decimal=",")
    assert table_of(content).columns["x"] == ["1.234", "12.500"]
    assert table_of("x;y\n1234;1\n12500;2\n", decimal=",").decimal == ","


def test_points_that_may_stand_between_thousands_are_told(table_of):
    content = "x;town;y\n1.234;Bonn, Ulm;1\n;Rom;2\n12.500;Rom;999\n"
    assert table_of(content).notes == (
        "x: numbers such as 1.234 are read with a decimal point; if points stand between "
        "thousands, take them out.",
    )
    assert table_of(content, decimal=".").notes == ()
    for plain in (content.replace("999", "0.5"), content.replace("1.234", "0.234")):
        assert table_of(plain).notes == ()  # one that cannot be thousands settles it
    assert table_of("x,y\n1.234,1\n12.500,2\n").notes == ()


def test_quotes_stand_where_people_put_them(table_of):
    table = table_of('x, y\n"1", "2"\n7, "a, b"\n8, "5"" pipe"\n9, 6" pipe\n')
    assert table.columns["x"] == ["1", "7", "8", "9"]
    assert table.columns["y"] == ["2", "a, b", '5" pipe', '6" pipe']


def test_a_blank_line_of_one_column_is_a_row(table_of):
    assert table_of("\nx\n1\n\n3\n\n\n").columns == {"x": ["1", "", "3"]}
    assert table_of("x,y\n1,2\n\n3,4\n").columns["x"] == ["1", "3"]
    assert table_of("x\n1\n   \n3\n  \n").columns == {"x": ["1", "", "3"]}


def test_quotes_alone_in_the_line_of_one_column_are_a_row(table_of):
    """So data frames write a gap, at the ends too."""
    assert table_of('x\n""\n1\n""\n\n').columns == {"x": ["", "1", ""]}
    headerless = table_of('\n""\n1\n""\n', is_headerless=True)
    assert headerless.columns == {"column 1": ["", "1", ""]}
    assert table_of('x\n""\n').num_rows == 1


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ("Height, cm;Weight, kg;y\n1,5;2;3\n1;2;3\n", ["Height, cm", "Weight, kg", "y"]),
        ("Height, cm;Weight, kg\n1,5;2,5\n3,1;4,1\n", ["Height, cm", "Weight, kg"]),
        ("Day;Open, EUR;High, EUR\n01.02.2020;1,5;2,5\n", ["Day", "Open, EUR", "High, EUR"]),
        ('y;"f,g"\n1;2\n"3";"4"\n', ["y", "f,g"]),
        ('y\t"d;e"\n1\t2\n', ["y", "d;e"]),
        ("a|b, c|d, e|f, g, h\n\n1|2|3|4\n", ["a", "b, c", "d, e", "f, g, h"]),
    ],
)
def test_marks_in_the_names_of_columns_do_not_separate(table_of, content, names):
    assert list(table_of(content).columns) == names


def test_a_title_above_the_table_is_named(table_of):
    with pytest.raises(ValueError, match=r"line 3 .* remove the first line if it is a title"):
        table_of("Trees of 1994\n\nx,y\n1,2\n")


def test_columns_without_a_name(table_of):
    for rows in ("0,1.5\n1,2.5\n", "7,1.5\n3,2.5\n"):  # of a data frame, and of a part of one
        table = table_of(f",x\n{rows}")
        assert list(table.columns) == ["x"]
        assert table.notes[0] == (
            "Column 1 has no name and holds a different whole number in each row, as row numbers "
            "do: left out; give it a name to keep it."
        )
    table = table_of("x,y,,\n1,2,,\n3,4,,\n")  # the commas that a spreadsheet leaves
    assert list(table.columns) == ["x", "y"]
    assert list(table_of("Unnamed: 0,x\n1,5\n2,6\n").columns) == ["x"]
    assert list(table_of("Unnamed: 0,x\na,5\nb,6\n").columns) == ["Unnamed: 0", "x"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("name;x\nM\u00fcller;3\n".encode("latin-1"), "line 2 .* not in UTF-8.*Latin-1.*iconv"),
        ("x,y\n1,2\n".encode("utf-16"), "UTF-16, not UTF-8.*CSV UTF-8"),
        (b"PK\x03\x04\x00\x00", "not a text file"),
        (",x\na,1\nb,2\n", "column 1 .* has no name; give it one"),
        ("x,y\n1,2\n\n\n1\n", r"line 5 .* has one field, but the header has 2; mend that line\."),
        (
            "My sales\nx,y\n1,2\n",
            r"has 1; mend that line .*, or remove the first line if it is a title\.",
        ),
        ("# of 2020; mine\nx;y;z\n1;2;3\n", "mend that line, or remove the first line if it is a"),
        ("x,y\n1,2\n1,2,3\n", r"line 3 .*; mend that line \(a decimal comma needs quotes\)\.$"),
        ('x,y\n"a\nb",2\n1,2,3\n', "line 4 .* has 3 fields"),
        ("x,y\n1,5,2,5\n", "a decimal comma needs quotes"),
        ("x;y\n1,5;2.5\n", "holds '1,5' in column 'x' and '2.5' in column 'y'"),
        ('x,y\n1,2\n3,"ok\n4,5\n', "from line 3 on .*look for an open quote"),
        ('x,y\n1,"5 inch\n2,b\n3,6" pipe\n', "from line 2 on .*look for an open quote"),
        ('x,y\n1,"5 inch\n2,b\n3,"6 inch\n', "from line 2 on .*look for an open quote"),
    ],
)
def test_refusals_say_where_and_what_to_do(table_of, content, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        table_of(content)
    assert "\n" not in str(caught.value)


def test_fields():
    assert is_missing(["", "NA", "n/a", "?", "0", "nano"]).tolist() == [1, 1, 1, 1, 0, 0]
    assert is_missing(["null", "NULL", "nan", "None"]).all()
    np.testing.assert_array_equal(as_numbers(["1e3", "NaN", "-2"]), [1000, np.nan, -2])
    for bad in ("inf", "1_000", "1,5", "12O"):
        assert as_numbers(["1", bad]) is None
    for value in ("1,234.50", "$12", "7 %", "1 000"):
        assert how_to_mend(value) == "write numbers plainly, as 1234.5"
    assert how_to_mend("12O") == "mend it"


def test_none_is_a_word_among_words():
    pain = ["none", "mild", "severe", ""] * 5
    words, notes = usable_rows(Table({"x": ["1"] * 20, "pain": pain}, "t"), "pain", [])
    assert words.columns["pain"] == ["none", "mild", "severe"] * 5
    assert any("none is one of its classes" in note for note in notes)
    numbers, notes = usable_rows(Table({"y": ["none", "1", "2.5"] * 10}, "t"), "y", [])
    assert numbers.columns["y"] == ["1", "2.5"] * 10
    assert not any("classes" in note for note in notes)


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


def test_a_header_may_begin_as_an_archive_does(table_of):
    assert list(table_of("PK,y\n1,2\n").columns) == ["PK", "y"]
    with pytest.raises(ValueError, match="is not a text file"):
        table_of(b"PK\x03\x04rest of a spreadsheet\n")


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


@pytest.mark.parametrize(
    ("content", "has_header"),
    [
        ("0.1,18.0,24.0\n0.2,0.0,21.6\n", False),
        ("5.1,0.2,setosa\n4.9,0.3,rose\n5.0,0.1,setosa\n", False),
        ("0,1,2\n0.2,0.0,21.6\n", True),
        ("2019,2020\n3,4\n", True),
        ("1990,country\n3,Chad\n", True),
        ("a,b\n1,2\n", True),
        ("0,1;18,0\n0,2;0,0\n", False),
    ],
)
def test_a_first_line_of_numbers_is_a_row(table_of, content, has_header):
    table = table_of(content)
    assert table.has_header == has_header
    assert table.num_rows == content.count("\n") - has_header
    if not has_header:
        assert next(iter(table.columns)) == "column 1"
        assert any("No header" in note for note in table.notes)


def test_columns_without_a_header_are_meant_by_number_or_first_field(table_of):
    table = table_of("0.1,18.0,24.0\n0.2,0.0,21.6\n")
    for said in ("3", "24.0", "column 3"):
        assert table.column(said) == "column 3"
    for said in ("4", "x", "21.6"):
        with pytest.raises(ValueError, match=f"no column is meant by '{said}': give its number, 1"):
            table.column(said)
    with pytest.raises(ValueError, match="2 may be any of column 2, column 1"):
        table_of("2,7.5\n3,4.5\n").column("2")
    assert table_of("0,1;18,0\n0,2;0,0\n").column("18,0") == "column 2"
    named = table_of("a,b\n1,2\n")
    assert named.column("a") == "a"
    with pytest.raises(ValueError, match="has no column '1'"):
        named.column("1")


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
    (remark,) = again.remarks(new)
    assert "2 of 4 dates, 2018-12-31 to 2021-01-01, lie outside" in remark
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


def test_rows_to_predict_are_known_by_the_names_of_the_fit(table_of):
    # Wavelengths: only the target's name told that the fit's first line was a header.
    assert table_of("1100,1102,fat\n0.5,0.7,9\n").has_header
    assert not table_of("1100,1102\n0.5,0.7\n").has_header
    table = table_of("1100,1102\n0.5,0.7\n", known=["1100", "1102"])
    assert table.columns == {"1100": ["0.5"], "1102": ["0.7"]}
    # An index that came twice was kept as a column; here it tells all rows apart.
    new = "Unnamed: 0,x\n0,0.1\n1,0.2\n"
    assert list(table_of(new).columns) == ["x"]
    assert list(table_of(new, known=["Unnamed: 0", "x"]).columns) == ["Unnamed: 0", "x"]
    assert table_of("gdp|real\n1\n2\n", known=["gdp|real"]).columns == {"gdp|real": ["1", "2"]}
    assert table_of("a,b;c,d\n1,5;2\n", known=["a,b", "c,d"]).separator == ";"


def test_a_first_line_of_numbers_that_is_a_header_is_told(table_of):
    assert table_of("1,2,3\n4,5,6\n").notes == ("The first line, 1, 2, 3, names the columns.",)
    assert table_of("1,2,3\n4,5,6\n", known=["1", "2"]).notes == ()


def test_a_name_may_go_on_in_the_next_line(table_of):
    assert table_of('\n"a\nb";y\n1,5;2\n').columns == {"a\nb": ["1.5"], "y": ["2"]}
    with pytest.raises(ValueError, match="look for an open quote"):
        table_of('"a;y\n1;2\n')


def test_columns_that_are_not_used_may_write_decimals_in_another_way(table_of):
    content = "length;version;y\n1,5;2.1;1\n2,5;2.2;2\n"
    with pytest.raises(ValueError, match="write all decimals alike"):
        table_of(content)
    for options in ({"dropped": ["version"]}, {"known": ["length", "y"]}):
        for decimal in (None, ","):
            table = table_of(content, decimal=decimal, **options)
            assert table.columns["length"] == ["1.5", "2.5"]
            assert table.columns["version"] == ["2.1", "2.2"]
            assert table.decimal == ","
    assert table_of(content, known=["version"]).decimal == "."
    assert table_of(content, known=["y"]).decimal == "."
    # Where the columns that are used have none, the others tell how answers are written.
    assert table_of("id;y\n0,1;1\n0,2;2\n", known=["y"]).decimal == ","
    headerless = table_of("1,5;2.1;1\n2,5;2.2;2\n", dropped=["2"])
    assert headerless.columns["column 1"] == ["1.5", "2.5"]


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


def test_labels_keep_their_decimal_commas(table_of):
    table = table_of("x;note\n" + "1,5;1,0\n2,5;1,3\n3,5;2,7\n" * 4)
    kind = choose_likelihood("note", table.columns["note"], "categorical", "auto", None)
    encoding, _ = learn_encoding(table, table, "note", "classification", kind)
    assert encoding.classes == ["1,0", "1,3", "2,7"]
    assert encoding.targets(table).tolist() == [0, 1, 2] * 4
    text = table_of("x;place\n" + "1,5;v1.2\n2,5;1,5\n3,5;St.Gallen\n" * 4, decimal=",")
    kind = choose_likelihood("place", text.columns["place"], "categorical", "auto", None)
    encoding, _ = learn_encoding(text, text, "place", "classification", kind)
    assert encoding.classes == ["1,5", "St.Gallen", "v1.2"]
    assert encoding.targets(text).tolist() == [2, 0, 1] * 4
