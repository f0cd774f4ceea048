"""Tests of cli.page, cli.report: what a fit says, as Markdown and as a page of its own."""

from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from jaxbnn.cli.page import page
from jaxbnn.cli.pictures import _literal
from jaxbnn.cli.report import Report, markdown, next_steps, worse_of
from jaxbnn.cli.verdict import confusion
from jaxbnn.plots.predictions import confusion_matrix
from jaxbnn.tabular.settings import Settings
from jaxbnn.tabular.verdict import Verdict

GOOD = Verdict(["Believe <it>."], {"rhat": 1.01, "ess_bulk": 312.4})
CLASSES = Verdict(
    ["Right on 90.0% of 10 rows."],
    {"accuracy": 0.9, "held_out": 10, "classes": ["a|b", "<c>"], "confusion": [[5, 1], [0, 4]]},
    False,
)
NUMBERS = Verdict(["RMSE 3."], {"rmse": 63336.2, "coverage": 0.9})
SETTINGS = Settings("auto", (5,), 4, 400, 300, 0.3, 0)


def report(held=CLASSES, refit=()):
    steps = ["Predict new rows: `jaxbnn predict out new.csv`.", "Raise --warmup."]
    return Report("kind & sort", "from 2 features", GOOD, held, list(refit), steps, ["a: note"])


class Strict(HTMLParser):
    """Every tag that is opened is closed, in turn; sources are inside."""

    def __init__(self, text):
        super().__init__()
        self.open, self.sources, self.text = [], [], ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        if tag not in ("meta", "img"):
            self.open.append(tag)
        self.sources += [v for k, v in attributes if k in ("src", "href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_the_page_is_whole_and_needs_nothing_beside_it(tmp_path):
    for name in ("calibration.png", "confusion.png"):
        (tmp_path / name).write_bytes(b"\x89PNG" + name.encode())
    text = page(report(refit=["Fitted again on all rows."]), tmp_path)
    found = Strict(text)
    assert len(found.sources) == 2
    assert all(source.startswith("data:image/png;base64,iVBOR") for source in found.sources)
    assert "http" not in text
    assert 'name="viewport"' in text
    for words in (
        "kind & sort",
        "Believe <it>.",
        "said <c>",
        "Fitted again",
        "90.0%",
        "312",
        "a: n",
    ):
        assert words in found.text, words
    assert "<code>jaxbnn predict out new.csv</code>" in text
    assert "<code>--warmup</code>" in text
    assert text.count('class="verdict doubt"') == 1
    assert "<h2>Which classes" not in page(report(NUMBERS), tmp_path)
    assert "63,336" in page(report(NUMBERS), tmp_path)


def test_the_page_has_the_table_of_classes_as_it_is(tmp_path):
    text = page(report(), tmp_path)
    assert "<th>is a|b</th><td class=right>5</td><td>1</td>" in text
    assert "<th>is &lt;c&gt;</th><td>0</td><td class=right>4</td>" in text


def test_a_doubt_is_seen_at_its_verdict(tmp_path):
    good, bad = Verdict(["Good."], {"chains": 2}), Verdict(["Bad."], {"chains": 2}, False)
    for chains, held in ((good, bad), (bad, good)):
        text = page(report(held)._replace(chains=chains), tmp_path)
        for title, verdict in (("The chains", chains), ("The held-out rows", held)):
            kind = "verdict" if verdict.is_good else "verdict doubt"
            assert f'<div class="{kind}"><b>{title}</b><p>{verdict}</p></div>' in text


def test_scores_stand_beside_their_names():
    numbers = {"rmse": 1.0, "rmse_of_the_mean": 2.0, "coverage": 0.8, "level": 0.9}
    found = report(Verdict(["."], numbers | {"held_out": 12345}), refit=["Fitted again."])
    assert found.scores["typical error (RMSE)"] == "1"
    assert found.scores["RMSE of always guessing the mean"] == "2"
    assert found.scores["share of rows inside their intervals"] == "80.0%"
    assert found.scores["share that should be inside"] == "90.0%"
    assert found.scores["held-out rows"] == "12,345"
    assert found.scores["effective draws"] == "312"
    assert "\nFitted again.\n" in markdown(found)


def test_markdown_has_a_table_of_classes():
    text = markdown(report())
    assert "| held-out rows | said a\\|b | said <c> |\n| --- | --- | --- |\n" in text
    assert "| is a\\|b | 5 | 1 |\n| is <c> | 0 | 4 |\n" in text
    assert text.endswith("- Raise --warmup.\n")
    assert "| is" not in markdown(report(NUMBERS))
    many = CLASSES._replace(numbers={"classes": list("abcdefghijklm"), "confusion": []})
    assert report(many).confusion is None


def test_confusion_counts_rows_by_what_was_said():
    rng = np.random.default_rng(0)
    y, said = rng.integers(3, size=(2, 200))
    counts = confusion(y, said, 3)
    for i in range(3):
        for j in range(3):
            assert counts[i][j] == sum(a == i and b == j for a, b in zip(y, said, strict=True))


@pytest.mark.parametrize(
    ("chains", "held", "sampler", "is_refitted", "wanted"),
    [
        (True, True, "nuts", True, ["Predict new rows"]),
        (True, True, "nuts", False, ["--refit", "Predict"]),
        (False, True, "nuts", True, ["--warmup 800 --samples 600 --force", "Predict"]),
        (True, False, "nuts", True, ["Look at the pictures", "Predict"]),
        (True, True, "dvi", True, ["--sampler nuts`, gives draws of it", "Predict"]),
    ],
)
def test_what_to_do_next(chains, held, sampler, is_refitted, wanted):
    verdicts = (Verdict([], {}, chains), Verdict([], {}, held))
    steps = next_steps(SETTINGS, sampler, *verdicts, Path("out"), is_refitted)
    assert len(steps) == len(wanted)
    for step, words in zip(steps, wanted, strict=True):
        assert words in step


def test_a_folder_whose_name_has_a_blank_is_quoted():
    *_, last = next_steps(SETTINGS, "nuts", Verdict([], {}), Verdict([], {}), Path("my fit"), True)
    assert "`jaxbnn predict 'my fit' new.csv`" in last


@pytest.mark.parametrize(
    ("likelihood", "wanted"),
    [("heteroscedastic", "--likelihood student-t --force"), ("student-t", None)],
)
def test_where_it_is_far_too_sure_a_likelihood_with_heavier_tails_is_named(likelihood, wanted):
    held = Verdict([], {}, is_good=False, is_too_sure=True)
    asked = SETTINGS._replace(likelihood=likelihood)
    first, *rest = next_steps(asked, "nuts", Verdict([], {}), held, Path("out"), True)
    assert (wanted or "Look at the pictures") in first
    assert ("Look at the pictures" in str(rest)) == (wanted is not None)


def test_what_no_longer_chain_would_mend_is_not_asked_to_be_longer():
    good = Verdict([], {})
    one = next_steps(
        SETTINGS._replace(chains=1), "nuts", Verdict([], {}, False), good, Path("o"), True
    )
    assert "--chains 4 --force" in one[0]
    stuck = Verdict([], {}, False, is_stuck=True)
    still = next_steps(SETTINGS, "nuts", stuck, good, Path("o"), True)
    assert "--seed 1 --force" in still[0]
    apart = Verdict([], {}, False, is_apart=True)
    by_itself = next_steps(SETTINGS, "ensemble", apart, good, Path("o"), True)
    assert "Go by the scores above" in by_itself[0]
    assert not any("--warmup" in step for step in one + still + by_itself)


@pytest.mark.parametrize(
    ("sampler", "said"),
    [("nuts", "`--warmup 800 --force`, whose steps are smaller"), ("gibbs", "another `--sampler`")],
)
def test_after_divergences_smaller_steps_are_asked_for_and_no_longer_chains(sampler, said):
    diverged = Verdict([], {"rhat": 1.0, "divergent": 0.1}, False)
    first, *rest = next_steps(SETTINGS, sampler, diverged, Verdict([], {}), Path("o"), True)
    assert said in first
    assert not any("longer" in step or "--samples" in step for step in [first, *rest])


def test_a_likelihood_is_named_with_a_sampler_that_knows_it():
    held = Verdict([], {}, is_good=False, is_too_sure=True)
    for sampler in ("dvi", "gibbs"):
        asked = SETTINGS._replace(likelihood="gaussian", sampler=sampler)
        first, *_ = next_steps(asked, sampler, Verdict([], {}), held, Path("out"), True)
        assert "--likelihood student-t --sampler auto --force" in first


def test_the_verdict_of_two_fits_is_the_worse_one_and_stands_there_once():
    good, bad = Verdict(["Good."], {}), Verdict(["Bad."], {}, False)
    for first, second, top, said in (
        (good, bad, bad, "above"),
        (good, good, good, "Good"),
        (bad, good, bad, "Good"),
        (bad, bad, bad, "Bad"),
    ):
        found, sentence = worse_of(first, second)
        assert found is top
        assert said in sentence


def test_names_with_dollars_are_drawn_letter_by_letter(tmp_path):
    """To Matplotlib two dollars hold a formula, which `$50_$100` is none."""
    axes = confusion_matrix([[1, 0], [0, 1]], [_literal("$50_$100"), _literal("50_$")])
    axes.set_title(_literal("price in $ and $_"))
    axes.figure.savefig(tmp_path / "classes.png")
    assert (tmp_path / "classes.png").stat().st_size > 0
    with pytest.raises(ValueError, match=r"ParseException|Double subscript|Expected"):
        confusion_matrix([[1]], ["$50_$100"]).figure.savefig(tmp_path / "raw.png")


def test_intervals_that_are_too_wide_ask_for_no_more_columns():
    held = Verdict(["..."], {}, is_good=False, is_too_wide=True)
    steps = next_steps(SETTINGS, "nuts", GOOD, held, Path("out"), True)
    assert any("wider than need be are safe" in step for step in steps)
    assert not any("columns that tell more" in step for step in steps)
