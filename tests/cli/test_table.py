"""Tests of cli.fields: CSV files as spreadsheets and data frames write them."""

import numpy as np
import pytest

from jaxbnn.cli.encoding import learn_encoding, usable_rows
from jaxbnn.cli.fields import as_numbers, how_to_mend, is_missing
from jaxbnn.cli.kinds import choose_likelihood
from jaxbnn.cli.table import Table, read_table


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


def test_a_header_may_begin_as_an_archive_does(table_of):
    assert list(table_of("PK,y\n1,2\n").columns) == ["PK", "y"]
    with pytest.raises(ValueError, match="is not a text file"):
        table_of(b"PK\x03\x04rest of a spreadsheet\n")


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
