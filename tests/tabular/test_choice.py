"""Tests of tabular.choice: the sampler that `auto` takes, from a table of measured cases."""

import pytest

from jaxbnn.tabular.choice import MOST_SECONDS, best_sampler, measured_cases
from jaxbnn.tabular.settings import Settings, choose_sampler

SETTINGS = Settings("auto", (50,), 4, 400, 400, 0.3, 0)


def case(rows, kind="numbers", name="any", **samplers):
    reached = {
        name: {"log_score": score, "seconds": time} for name, (score, time) in samplers.items()
    }
    return {"kind": kind, "set": name, "rows": rows, "parameters": 500, **reached}


SMALL = [case(100, name=n, nuts=(-1.0, 100), dvi=(-1.2, 5), ensemble=(-1.1, 40)) for n in "abc"]
LARGE = [case(2000, name=n, dvi=(-0.8, 50), ensemble=(-0.7, 400)) for n in "abc"]
CLASSES = [case(100, "classes", nuts=(-0.9, 100), dvi=(-0.5, 5))]


@pytest.mark.parametrize(
    ("candidates", "num_data", "expected"),
    [
        (("nuts", "dvi"), 100, "nuts"),
        (("nuts", "dvi"), 10, "nuts"),
        (("nuts", "dvi"), 2000, "dvi"),  # nuts did not end there
        (("ensemble", "dvi"), 2000, "ensemble"),
        (("ensemble", "dvi"), 4000, "dvi"),  # about 780 seconds
        (("nuts", "ensemble"), 100_000, "ensemble"),  # none in time: the quickest
        (("nuts",), 100_000, "nuts"),
    ],
)
def test_the_best_log_score_among_those_in_time(candidates, num_data, expected):
    found = best_sampler(
        candidates, num_data, 500, is_class=False, cases=[*CLASSES, *LARGE, *SMALL]
    )
    assert found == expected


def test_of_equal_scores_the_quicker():
    for gain, expected in ((0.005, "nuts"), (0.015, "ensemble")):
        cases = [case(rows, nuts=(-1.0, 50), ensemble=(gain - 1, 70)) for rows in (100, 400)]
        assert best_sampler(("ensemble", "nuts"), 200, 500, is_class=False, cases=cases) == expected


def test_every_data_set_has_its_say():
    """The one set on which a sampler is far better is not left out for being further away."""
    cases = [case(90, name=n, nuts=(-1.0, 50), ensemble=(-1.0, 70)) for n in "abc"]
    cases += [case(110, name=n, nuts=(-1.0, 50), ensemble=(-1.0, 70)) for n in "abc"]
    cases += [case(rows, name="d", nuts=(1.0, 50), ensemble=(3.0, 70)) for rows in (20, 400)]
    assert best_sampler(("nuts", "ensemble"), 100, 500, is_class=False, cases=cases) == "ensemble"


def test_networks_of_like_size_are_judged_by():
    small = case(100, nuts=(-1.0, 50), dvi=(-2.0, 5)) | {"parameters": 50}
    large = case(100, nuts=(-2.0, 50), dvi=(-1.0, 5)) | {"parameters": 5_000}
    for parameters, expected in ((50, "nuts"), (5_000, "dvi")):
        for cases in ([small, large], [large, small]):
            found = best_sampler(("nuts", "dvi"), 100, parameters, is_class=False, cases=cases)
            assert found == expected


def test_what_is_preferred_comes_first_if_it_ends_in_time():
    cases = [case(rows, nuts=(-1.0, rows), dvi=(-0.5, 5)) for rows in (100, 400)]
    for num_data, expected in ((100, "nuts"), (1000, "dvi")):
        found = best_sampler(
            ("nuts", "dvi"), num_data, 500, is_class=False, preferred=("nuts",), cases=cases
        )
        assert found == expected


def test_classes_are_judged_by_classes():
    kinds = {False: "nuts", True: "dvi"}
    for is_class, expected in kinds.items():
        assert (
            best_sampler(("nuts", "dvi"), 100, 500, is_class=is_class, cases=[*SMALL, *CLASSES])
            == expected
        )


def test_the_table_has_both_kinds_and_what_ended_in_time():
    cases = measured_cases()
    for kind in ("numbers", "classes"):
        assert len([one for one in cases if one["kind"] == kind]) >= 3
    for one in cases:
        for sampler in {"nuts", "ensemble", "dvi"} & set(one):
            assert 0 < one[sampler]["seconds"] <= MOST_SECONDS


@pytest.mark.parametrize("is_class", [False, True])
def test_auto_takes_what_fits_the_settings(is_class):
    """Millions of rows are dvi's, but it learns no scales of columns and knows no Laplace."""

    def chosen(found="gaussian", **asked):
        settings = SETTINGS._replace(**asked)
        return choose_sampler(settings, found, 10_000_000, 10, is_class=is_class)

    assert chosen() == chosen("laplace") == "dvi"
    assert chosen(relevance=True) != "dvi"
    assert chosen("laplace", likelihood="laplace") != "dvi"
    assert chosen(sampler="pcn") == "pcn"
