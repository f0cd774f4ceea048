"""The likelihood of a target: by its kind, or as asked for, and refused where it does not fit."""

import numpy as np
import pytest

from jaxbnn.cli.encoding import learn_encoding
from jaxbnn.cli.kinds import choose_likelihood
from jaxbnn.cli.options import parse, settings_of
from jaxbnn.cli.table import Table
from jaxbnn.tabular.settings import choose_sampler

RNG = np.random.default_rng(0)
COUNTS = [str(k) for k in RNG.negative_binomial(2, 0.3, 200)]
NORMAL = [f"{v:.4f}" for v in RNG.standard_normal(200)]
HEAVY = [f"{v:.4f}" for v in RNG.standard_t(1.5, 200)]


def choose(values, asked="auto", task="auto", order=None, **more):
    return choose_likelihood("y", values, asked, task, order, **more)


@pytest.mark.parametrize(
    ("values", "likelihood"),
    [
        (NORMAL, "gaussian"),
        (HEAVY, "student-t"),
        (COUNTS, "negative-binomial"),
        ([str(i) for i in range(200)], "gaussian"),  # they number the rows
        ([str(10_000 + 500 * int(k)) for k in COUNTS], "gaussian"),  # whole prices
        (["5", "6", "7", "6", "5"] * 20, "gaussian"),  # marks: they vary less than counts
        (["0", "1"] * 20, "categorical"),
        (["red", "blue", "green"] * 20, "categorical"),
        (["low", "high"] * 20, "categorical"),  # of two, an order says nothing
        (["Low", "High", "Medium"] * 20, "ordinal"),
        (["strongly agree", "neutral", "disagree"] * 20, "ordinal"),
        (["low", "high", "blue"] * 20, "categorical"),
    ],
)
def test_the_kind_decides_and_is_said(values, likelihood):
    found = choose(values)
    assert found.likelihood == likelihood
    assert f"Likelihood of y: {likelihood}" in found.note


def test_orders():
    assert choose(["Low", "High", "Medium"] * 9).order == ["Low", "Medium", "High"]
    assert choose(["b", "a", "c"], "ordinal", order=["c", "a", "b"]).order == ["c", "a", "b"]
    assert choose(["b", "a", "c"], order=["c", "a", "b"]).likelihood == "ordinal"
    assert choose(["10", "9", "2"], "ordinal").order == ["2", "9", "10"]


def test_held_out_rows_do_not_choose_among_likelihoods_of_numbers():
    far = ["1000.5", "-1000.5"] * 10
    assert choose(NORMAL + far).likelihood == "student-t"
    assert choose(NORMAL + far, learnt_from=NORMAL).likelihood == "gaussian"
    for other in ("0.5", "16777217"):  # single precision does not tell 2^24 + 1 from 2^24
        assert choose([*COUNTS, other], learnt_from=COUNTS).likelihood == "gaussian"
    assert choose(COUNTS, learnt_from=COUNTS[:50]).likelihood == "negative-binomial"


def test_what_a_sampler_does_not_know_is_not_chosen():
    for values, likelihood in ((COUNTS, "gaussian"), (["low", "high", "medium"], "categorical")):
        assert choose(values, newer=False).likelihood == likelihood


@pytest.mark.parametrize(
    ("values", "arguments", "sentence"),
    [
        (NORMAL, {"asked": "poisson"}, "takes counts, whole numbers from 0 to 16,777,216"),
        ([*COUNTS, "16777217"], {"asked": "poisson"}, "takes counts"),
        (NORMAL, {"asked": "poisson", "task": "classification"}, "does not fit --task"),
        (["a", "b", "c"], {"asked": "ordinal"}, "give the values of 'y' from low to high"),
        (["a", "b", "c"], {"order": ["a", "b"]}, "--order must name each value of 'y' once"),
        (NORMAL, {"asked": "laplace", "order": ["a"]}, "--order gives ordered classes"),
        (["a", "b"], {"order": ["a", "b"], "task": "regression"}, "but --task is regression"),
    ],
)
def test_refusals_are_one_sentence(values, arguments, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        choose(values, **arguments)
    assert str(caught.value).endswith(".")


def test_an_order_asks_for_ordered_classes_of_any_size():
    """As if --likelihood ordinal stood there: `auto` takes no sampler that does not know it."""
    call = ["fit", "data.csv", "--target", "y", "--order", "low", "high"]
    assert settings_of(parse(call)).likelihood == "ordinal"
    assert settings_of(parse(call[:4])).likelihood == "auto"
    for likelihood in ("auto", "ordinal"):
        asked = settings_of(parse([*call, "--likelihood", likelihood]))
        assert choose_sampler(asked, "ordinal", 60_000, 5, is_class=True) != "dvi"


def test_the_option_that_was_given_is_the_one_to_leave_out():
    table = Table({"y": ["a", "b", "c"], "x": ["1", "2", "3"]}, "data.csv")
    for asked, task, named in (
        ("student-t", "auto", "leave out --likelihood student-t"),
        ("auto", "regression", "leave out --task regression"),
    ):
        kind = choose_likelihood("y", table.columns["y"], asked, task, None)
        with pytest.raises(ValueError, match=named):
            learn_encoding(table, table, "y", task, kind)


FORTY = [f"{100 + i / 2}" for i in range(39)]


@pytest.mark.parametrize(
    "values",
    [
        *([*FORTY, slip] for slip in ("101.2.3", "$101.2", "1e400", "-", "inf", "unknown")),
        [f"${i % 30},100" for i in range(200)],
        [f"{i % 30} kg" for i in range(200)],
        [f"\u2212{i % 30}" for i in range(200)],
    ],
)
def test_a_slip_among_numbers_does_not_make_classes_of_them(values):
    with pytest.raises(ValueError, match=r"among its numbers; .* or give --task classification"):
        choose(values)
    assert choose(values, task="classification").likelihood == "categorical"
    assert choose(values, asked="categorical").likelihood == "categorical"


def test_few_numbers_among_words_are_classes_and_it_is_said():
    kind = choose(["0", "1", "2", "3+"] * 20)
    assert kind.likelihood == "categorical"
    assert "'3+' is no number, so that all are words" in kind.note
    assert choose([f"class {i % 30}" for i in range(200)]).likelihood == "categorical"
