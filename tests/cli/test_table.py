"""Tests of cli.encoding and cli.fields: CSV files as spreadsheets and data frames write them."""

import numpy as np
import pytest

from jaxbnn.cli.encoding import learn_encoding
from jaxbnn.cli.fields import as_numbers, how_to_mend, is_missing
from jaxbnn.cli.kinds import Kind
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


def test_columns_without_a_name(table_of):
    for rows in ("0,1.5\n1,2.5\n", "7,1.5\n3,2.5\n"):  # of a data frame, and of a part of one
        table = table_of(f",x\n{rows}")
        assert list(table.columns) == ["x"]
        assert "Column 1 has no name and numbers the rows" in table.notes[0]
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
        ('x,y\n"a\nb",2\n1,2,3\n', "line 4 .* has 3 fields"),
        ("x,y\n1,5,2,5\n", "a decimal comma needs quotes"),
        ("x;y\n1,5;2.5\n", "holds '1,5' in column 'x' and '2.5' in column 'y'"),
    ],
)
def test_refusals_say_where_and_what_to_do(table_of, content, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        table_of(content)
    assert "\n" not in str(caught.value)


def test_fields():
    assert is_missing(["", "NA", "n/a", "?", "0", "nano"]).tolist() == [1, 1, 1, 1, 0, 0]
    np.testing.assert_array_equal(as_numbers(["1e3", "NaN", "-2"]), [1000, np.nan, -2])
    for bad in ("inf", "1_000", "1,5", "12O"):
        assert as_numbers(["1", bad]) is None
    for value in ("1,234.50", "$12", "7 %", "1 000"):
        assert how_to_mend(value) == "write numbers plainly, as 1234.5"
    assert how_to_mend("12O") == "mend it"


def test_a_column_that_counts_rows_is_pointed_out():
    columns = {"id": [str(i) for i in range(1, 13)], "y": [str(i % 5) for i in range(12)]}
    _, notes = learn_encoding(
        Table(columns, "t"), Table(columns, "t"), "y", "auto", Kind("gaussian", None, "")
    )
    assert any("id: counts the rows from 1 on" in note for note in notes)
    columns["id"][3] = "40"
    _, notes = learn_encoding(
        Table(columns, "t"), Table(columns, "t"), "y", "auto", Kind("gaussian", None, "")
    )
    assert not any("counts the rows" in note for note in notes)
