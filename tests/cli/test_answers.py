"""What is written of a new row: ids, quantiles of a known law, and what the fit has not seen."""

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

from jaxbnn.cli import main
from jaxbnn.cli.answers import (
    _digits,
    _numbered,
    check_quantiles,
    id_columns,
    outside,
    predictions_of,
    write_predictions,
)
from jaxbnn.cli.encoding import Column, Encoding, learn_encoding
from jaxbnn.cli.kinds import choose_likelihood
from jaxbnn.cli.options import _file_before_hidden
from jaxbnn.cli.place import OUTSIDE, check_free, check_predictions
from jaxbnn.cli.progress import Progress
from jaxbnn.cli.table import Table, read_table, take
from jaxbnn.networks import mlp
from jaxbnn.prediction import ClassPrediction
from jaxbnn.targets import Gaussian, Posterior, StudentT, normal_prior

ENCODING = Encoding(
    "strength",
    [Column("cement", 300.0, 100.0, low=100.0, high=500.0), Column("kind", categories=["a", "b"])],
    None,
    10.0,
    2.0,
)
TABLE = Table(
    {
        "sample": ["s1", "s2", "s3", "s4"],
        "cement": ["999999", "300", "", "535"],
        "kind": ["a", "b", "a", "c"],
        "batch": ["x", "x", "y", "y"],
    },
    "new.csv",
)


def constant(*values):
    """Return draws that are these constants, two rows, and a posterior with a noise of 0.5."""
    network = mlp((1, 1))
    x, y = np.zeros((2, 1), np.float32), np.zeros(2, np.float32)
    posterior = Posterior(network, normal_prior(network), Gaussian(0.5), x, y)
    b = np.array(values, np.float32)[None, :, None]
    return ({"w": np.zeros((1, len(values), 1, 1), np.float32), "b": b},), x, posterior


def test_rows_outside_the_training_range_are_told_apart():
    found, (note,) = outside(ENCODING, TABLE)
    assert found.tolist() == ["cement", "", "", "kind"]
    assert "2 of 4 rows" in note
    inside = TABLE._replace(columns=TABLE.columns | {"cement": ["100"] * 4, "kind": ["a"] * 4})
    assert outside(ENCODING, inside)[1] == []


def test_outside_is_beyond_a_tenth_of_the_range():
    column = Column("a", 0.0, 1.0, low=100.0, high=500.0)
    assert column.is_outside(["59", "61", "539", "541"]).tolist() == [True, False, False, True]


def test_a_gap_where_the_fit_had_none_is_told():
    encoding = Encoding("y", [Column("a")], None, 0.0, 1.0)
    (said,) = encoding.remarks(Table({"a": ["1", "", "NA"]}, "new.csv"))
    assert said == "a: 2 missing, taken as the mean; none was in the fit."


def test_a_fit_without_ranges_tells_nothing_apart():
    assert not Column("cement", 300.0, 100.0).is_outside(["999999"]).any()


def test_ids_keep_their_decimal_commas(tmp_path):
    path = tmp_path / "new.csv"
    path.write_text("nr;cement\n0,1;300,5\n0,2;301,25\n", encoding="utf-8")
    table = read_table(path)
    assert table.columns["cement"] == ["300.5", "301.25"]
    for one in (table, take(table, np.array([0, 1]))):
        assert id_columns(one, ENCODING, ["nr"])["nr"].tolist() == ["0,1", "0,2"]


def test_ids_are_copied():
    assert list(id_columns(TABLE, ENCODING, [])) == ["sample"]
    assert id_columns(TABLE, ENCODING, ["batch"])["batch"].tolist() == ["x", "x", "y", "y"]
    with pytest.raises(ValueError, match="has no column 'name'"):
        id_columns(TABLE, ENCODING, ["name"])


def test_the_column_of_rows_outside_keeps_its_name(monkeypatch, tmp_path):
    table = Table({OUTSIDE: ["p", "q"], "a": ["1", "99"]}, "new.csv")
    encoding = Encoding(OUTSIDE, [Column("a", 0.0, 1.0, low=0.0, high=9.0)], None, 10.0, 2.0)
    positions, _, posterior = constant(1.0)
    loaded = positions, encoding, posterior
    monkeypatch.setattr("jaxbnn.cli.answers.folders.load", lambda _: loaded)
    out = tmp_path / "out.csv"
    write_predictions(tmp_path, table, out, Progress(is_quiet=True), 0.9, [], [])
    columns = read_table(out).columns
    assert columns[OUTSIDE] == ["", "a"]
    assert columns[f"predicted {OUTSIDE}"] == ["12", "12"]
    other = Encoding("y", encoding.columns, None, 10.0, 2.0)
    assert id_columns(table, other, []) == {}
    with pytest.raises(ValueError, match=f"{OUTSIDE}' of new.csv has the name"):
        id_columns(table, other, [OUTSIDE])


def test_ids_tell_all_rows_apart():
    columns = {"a": ["1", "2", "3"], "nr": ["x", "", ""], "one": ["x", "", "y"]}
    table = Table(columns, "new.csv")
    assert id_columns(table, Encoding("y", [], None, 0.0, 1.0), []).keys() == {"a", "one"}


def test_a_row_is_predicted_alike_alone_and_beside_others():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(150, 9)).astype(np.float32)
    posterior = Posterior(mlp((9, 20, 1)), dist.Normal(0, 1), Gaussian(0.3), x, x[:, :1])
    positions = jax.vmap(posterior.sample_prior)(jax.random.split(jax.random.key(0), 60))
    positions = jax.tree.map(lambda leaf: leaf[None], positions)
    together = predictions_of(positions, x, posterior, ENCODING, 0.9, [0.2])
    for row in (0, 140):
        alone = predictions_of(positions, x[row : row + 1], posterior, ENCODING, 0.9, [0.2])
        assert {k: v[0] for k, v in alone.items()} == {k: v[row] for k, v in together.items()}


def test_how_new_rows_were_read_is_told(monkeypatch, tmp_path):
    p, _, posterior = constant(1.0)
    encoding = Encoding("y", [Column("cement", 0.0, 1.0, low=0.0, high=9.0)], None, 10.0, 2.0)
    monkeypatch.setattr("jaxbnn.cli.answers.folders.load", lambda _: (p, encoding, posterior))
    path = tmp_path / "new.csv"
    path.write_text("cement\tkind\n1,234\ta\n2,5\tb\n", encoding="utf-8")
    quiet = Progress(is_quiet=True)
    said = write_predictions(tmp_path, read_table(path), tmp_path / "out", quiet, 0.9, [], [])
    assert said == ["Decimal commas were read as such."]


def test_quantiles_are_those_of_the_mixture():
    asked = [0.05, 0.5, 0.9, 0.9999991, 0.9999999]  # the last two round to one name of six digits
    found = predictions_of(*constant(1.0, 1.0, 1.0), ENCODING, 0.9, asked)
    for q in asked:
        expected = 10 + 2 * stats.norm.ppf(q, 1.0, 0.5)
        np.testing.assert_allclose(found[f"quantile {q}"], expected, rtol=1e-4)
    np.testing.assert_allclose(found["lower"], found["quantile 0.05"], rtol=1e-4)
    with pytest.raises(ValueError, match="must be probabilities"):
        check_quantiles([1.5], ENCODING)
    with pytest.raises(ValueError, match="holds 1e-17, which is too near to 0"):
        check_quantiles([1e-17], ENCODING)
    classes = Encoding("kind", ENCODING.columns, ["a", "b"], 0.0, 1.0)
    with pytest.raises(ValueError, match="are of numbers"):
        check_quantiles([0.5], classes)


def test_noise_without_a_variance_is_told(monkeypatch, tmp_path):
    positions, x, given = constant(1.0, 1.0)
    encoding = Encoding("y", [Column("a", 0.0, 1.0, low=0.0, high=9.0)], None, 10.0, 2.0)

    def remarks(likelihood):
        posterior = Posterior(given.network, given.prior, likelihood, x, given.y)
        loaded = positions, encoding, posterior
        monkeypatch.setattr("jaxbnn.cli.answers.folders.load", lambda _: loaded)
        table = Table({"a": ["1", "2"]}, "new.csv")
        out, quiet = tmp_path / "out.csv", Progress(is_quiet=True)
        return write_predictions(tmp_path, table, out, quiet, 0.9, [], [])

    (said,) = remarks(StudentT(1.5, 0.5))
    assert said == (
        "sd is infinite in 2 of 2 rows, for in some draw the noise has no finite variance: go by "
        "lower and upper."
    )
    assert remarks(StudentT(3.0, 0.5)) == []


def test_the_level_is_the_one_that_was_asked_for():
    found = predictions_of(*constant(1.0, 1.0), ENCODING, 0.5)
    for name, q in (("lower", 0.25), ("upper", 0.75)):
        np.testing.assert_allclose(found[name], 12 + stats.norm.ppf(q), rtol=1e-4)


def test_the_parts_of_an_uncertainty_are_told_apart():
    found = predictions_of(*constant(0.25, 1.75), ENCODING, 0.9)
    np.testing.assert_allclose(found["sd of the noise"], 1.0, rtol=1e-5)
    np.testing.assert_allclose(found["sd unknown"], 1.5, rtol=1e-5)
    np.testing.assert_allclose(found["sd"], np.hypot(1.0, 1.5), rtol=1e-5)


@pytest.mark.parametrize("target", ["kind", "probability of a", "entropy unknown"])
def test_columns_of_classes_are_those_of_the_prediction(target, monkeypatch, annotations_unchecked):
    p = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
    told = ClassPrediction(p, p.argmax(1), p, p, np.array([0.5, 0.6]), np.array([0.1, 0.2]), 0.9)
    monkeypatch.setattr("jaxbnn.cli.answers.predict", lambda *_, **__: told)
    encoding = Encoding(target, [], ["b", "c", "a"], 0.0, 1.0)
    found = predictions_of(None, np.zeros((2, 1)), None, encoding, 0.9)
    assert found[target].tolist() == ["b", "a"]

    def of(name):
        return found[f"{name} of the prediction" if name == target else name]

    for i, name in enumerate("bca"):
        np.testing.assert_array_equal(of(f"probability of {name}"), p[:, i])
    assert of("entropy of the noise").tolist() == [0.5, 0.6]
    assert of("entropy unknown").tolist() == [0.1, 0.2]


def test_large_numbers_keep_their_digits():
    far = Encoding("day", ENCODING.columns, None, 2_459_123.5, 1.5)
    np.testing.assert_allclose(far.in_units(np.float32([0, 1])), [2_459_123.5, 2_459_125.0])
    (near,) = far.in_units(np.float32([0.001]))
    assert f"{near:.{_digits(far)}g}" == "2459123.5015"
    assert _digits(ENCODING) == 7  # 10 +- 2
    assert _digits(Encoding("y", [], None, 0.0, 1.0)) == 8  # counts


def test_a_target_called_as_a_column_of_the_predictions_keeps_its_own():
    encoding = Encoding("lower", ENCODING.columns, None, 10.0, 2.0)
    found = predictions_of(*constant(1.0, 1.0), encoding, 0.9)
    np.testing.assert_allclose(found["lower"], 12)
    assert (found["lower of the prediction"] < 12).all()
    assert (found["upper"] > 12).all()


def test_predictions_are_written_over_and_nothing_else(tmp_path):
    data, out = tmp_path / "new.csv", tmp_path / "out.csv"
    check_predictions(out, data)
    out.write_text(f"y,sd,{OUTSIDE}\n1,2,\n")
    check_predictions(out, data)
    out.write_text("x,y\n1,2\n")
    with pytest.raises(ValueError, match="is a file that `predict` has not written"):
        check_predictions(out, data)


def test_a_fit_is_not_written_over_unasked(tmp_path):
    check_free(tmp_path, False)
    (tmp_path / "model.json").write_text("{}")
    check_free(tmp_path, True)
    with pytest.raises(ValueError, match="holds a fit already; give --force"):
        check_free(tmp_path, False)


def test_a_user_s_file_of_the_same_name_is_not_written_over_unasked(tmp_path):
    (tmp_path / "summary.md").write_text("my own notes")
    with pytest.raises(ValueError, match=r"holds summary.md, which no fit has written"):
        check_free(tmp_path, False)
    check_free(tmp_path, True)


def test_what_was_the_same_in_all_training_rows_is_told_where_it_is_another():
    rows = Table({"y": list("123"), "land": ["DE"] * 3, "sites": ["7", "7", "7"]}, "old.csv")
    rows = rows._replace(columns=rows.columns | {"x": list("246"), "promo": ["1", "", "1"]})
    kind = choose_likelihood("y", rows.columns["y"], "gaussian", "auto", None)
    encoding, _ = learn_encoding(rows, rows, "y", "auto", kind)
    encoding = Encoding.from_dict(encoding.to_dict())
    assert encoding.constant == {"land": "DE", "sites": "7"}
    assert [column.name for column in encoding.columns] == ["x", "promo"]
    new = {
        "x": list("2222"),
        "promo": ["1", "", "2", "1"],
        "land": ["DE", "FR", "", "DE"],
        "sites": ["7.0", "7", "8", "x"],
    }
    found, _ = outside(encoding, Table(new, "new.csv"))
    # A word among numbers makes all of them words.
    assert found.tolist() == ["sites", "land", "promo; sites", "sites"]
    new["sites"] = ["7.0", "7", "8", ""]
    assert outside(encoding, Table(new, "new.csv"))[0].tolist() == ["", "land", "promo; sites", ""]
    assert outside(encoding, Table({"x": ["2"], "promo": ["1"]}, "new.csv"))[0].tolist() == [""]


def test_small_units_are_units_like_others():
    farads = ["2e-13", "4e-13", "6e-13"]
    rows = Table({"y": farads, "x": farads[::-1], "least": ["1e-15"] * 3}, "old.csv")
    kind = choose_likelihood("y", rows.columns["y"], "gaussian", "auto", None)
    encoding, _ = learn_encoding(rows, rows, "y", "auto", kind)
    assert [column.name for column in encoding.columns] == ["x"]
    np.testing.assert_allclose(encoding.inputs(rows).std(), 1.0, rtol=1e-5)
    np.testing.assert_allclose(encoding.targets(rows).std(), 1.0, rtol=1e-5)
    new = {"x": ["4e-13"] * 2, "least": ["1e-15", "9e-15"]}
    assert outside(encoding, Table(new, "new.csv"))[0].tolist() == ["", "least"]


def test_a_value_beyond_single_precision_is_a_row_outside_and_stops_no_other():
    columns = {"cement": ["1e45", "-1e45", "300"], "kind": ["a"] * 3}
    table = Table(columns, "new.csv")
    x = ENCODING.inputs(table)
    assert np.isfinite(x).all()
    assert np.isfinite(np.square(x)).all()
    assert x[0, 0] > 1e8 > -1e8 > x[1, 0]
    assert outside(ENCODING, table)[0].tolist() == ["cement", "cement", ""]


def test_counts_keep_all_their_digits():
    digits = _digits(Encoding("visits", [], None, 0.0, 1.0))
    assert float(f"{2.0**24 - 1:.{digits}g}") == 2**24 - 1


def test_hidden_does_not_swallow_the_file():
    arguments = ["fit", "--hidden", "50", "20", "data.csv", "--target", "y"]
    wanted = ["fit", "data.csv", "--hidden", "50", "20", "--target", "y"]
    assert _file_before_hidden(arguments) == wanted
    for same in (wanted, ["fit", "data.csv"], ["fit", "--hidden", "x", "data.csv"]):
        assert _file_before_hidden(same) == same
    script = ["hosts", "--processes", "2", "s.py", "--hidden", "50", "out"]
    assert _file_before_hidden(script) == script


def test_version(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("jaxbnn ")


def test_a_file_without_a_header_may_leave_the_target_out():
    columns = [Column("column 2"), Column("column 3")]
    encoding = Encoding("column 1", columns, None, 0.0, 1.0, width=4)

    def found(count):
        names = [f"column {n}" for n in range(1, count + 1)]
        table = Table({name: [f"field {name[-1]}"] for name in names}, "new.csv", has_header=False)
        (told,) = _numbered(table, encoding).notes or ("",)
        assert ("taken as the fit's without its target, column 1." in told) == (count == 3)
        return _numbered(table, encoding).columns

    assert list(found(4)) == ["column 1", "column 2", "column 3", "column 4"]
    assert found(3) == {"column 2": ["field 1"], "column 3": ["field 2"], "column 4": ["field 3"]}
    with pytest.raises(ValueError, match="has no header and 2 columns, but the fit's file had 4"):
        found(2)
    headed = Table({"a": ["1"]}, "new.csv")
    assert _numbered(headed, encoding) is headed


def test_names_that_new_rows_have_already_are_changed(monkeypatch, tmp_path):
    columns = {"sd": ["s1", "s2"], "predicted sd": ["t1", "t2"], "a": ["1", "2"]}
    encoding = Encoding("y", [Column("a", 0.0, 1.0)], None, 10.0, 2.0)
    loaded = constant(1.0)[0], encoding, constant(1.0)[2]
    monkeypatch.setattr("jaxbnn.cli.answers.folders.load", lambda _: loaded)
    out, link = tmp_path / "out.csv", tmp_path / "link.csv"
    out.touch()
    link.symlink_to(out)
    table, quiet = Table(columns, "new.csv"), Progress(is_quiet=True)
    write_predictions(tmp_path, table, link, quiet, 0.9, [], ["sd", "predicted sd"])
    assert link.is_symlink()
    found = read_table(out).columns
    assert found["sd"] == ["s1", "s2"]
    assert found["predicted sd"] == ["t1", "t2"]
    assert found["predicted predicted sd"] == ["1", "1"]


def test_a_constant_date_is_the_same_in_another_spelling():
    encoding = Encoding("y", [Column("a")], None, 0.0, 1.0, constant={"day": "2020-01-01"})
    days = ["2020-01-01", "2020-01-01 00:00", "", "2020-01-02"]
    found, _ = outside(encoding, Table({"a": ["1"] * 4, "day": days}, "new.csv"))
    assert found.tolist() == ["", "", "", "day"]


def test_a_file_of_predictions_is_known_whatever_its_names_hold(tmp_path):
    data, out = tmp_path / "new.csv", tmp_path / "out.csv"
    for mark in ",;\t|":
        out.write_text(f'y{mark}"my{mark}\nprice"{mark}{OUTSIDE}\n1{mark}2{mark}\n')
        check_predictions(out, data)
    out.write_text(f"y,price\n1,{OUTSIDE}\n")
    with pytest.raises(ValueError, match="is a file that `predict` has not written"):
        check_predictions(out, data)
