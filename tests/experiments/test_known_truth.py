"""Tests of experiments.benchmarks.known_truth: the laws it draws from, and what its page says."""

from pathlib import Path

import numpy as np
import pytest

from experiments.benchmarks import known_truth, peers
from experiments.benchmarks.known_truth import laws
from experiments.errors import InputError


@pytest.mark.parametrize(
    ("draw", "variance"),
    [
        (laws.heavy_tails, lambda mean: 0.09 * 3),  # 3 / (3 - 2)
        (laws.counts, lambda mean: mean),
        (laws.scattered_counts, lambda mean: mean + mean**2 / 2),
        (laws.many_columns, lambda mean: 0.25),
    ],
)
def test_the_laws_are_what_the_page_says(draw, variance, rng):
    x, y, _ = draw(rng, 40_000)
    if draw is laws.many_columns:
        mean = x[:, :5] @ [1, 1, -1, 0.5, 0] + np.sin(2 * x[:, 4])
    else:
        mean = np.sin(2 * x[:, 0]) + 0.5 * x[:, 1]
        mean = mean if draw is laws.heavy_tails else np.exp(1 + mean)
    # Five and more standard errors; a variance of t_3 itself has none, its middle has.
    z = (y - mean) / np.sqrt(variance(mean))
    assert abs(z.mean()) < 0.03
    if draw is laws.heavy_tails:
        np.testing.assert_allclose(np.quantile(np.abs(y - mean) / 0.3, 0.5), 0.7649, atol=0.03)
    else:
        np.testing.assert_allclose(z.var(), 1, atol=0.08)


def test_results_are_stored_and_the_page_counts_what_was_recovered(tmp_path, monkeypatch, capsys):
    ran = []

    def measured(work, name, seed):
        ran.append((name, seed))
        return {
            "rmse": 1.0 + seed, "coverage": 0.9, "degrees": 3.0, "degrees_lower": 2.0 + 2 * seed,
            "degrees_upper": 5.0, "likelihood": "student-t", "cpu_seconds": 2.0,
            "wall_seconds": 3.0, "log_score_below_the_truth": 0.01,
        }  # fmt: skip

    monkeypatch.setattr(known_truth, "_measured", measured)
    monkeypatch.setattr(known_truth, "KEPT", tmp_path / "kept.json")
    monkeypatch.setattr(known_truth, "PAGE", tmp_path / "page.md")
    options = {"fits": ["heavy tails, student-t"], "seeds": [0, 1], "write_page": True}
    rows = known_truth.run(tmp_path, **options)
    known_truth.run(tmp_path, **options)
    assert len(ran) == 2
    assert {row.quantity for row in rows} >= {"rmse", "coverage", "degrees"}
    text = (tmp_path / "page.md").read_text()
    assert "1.5 ± 0.5" in text
    assert "90% interval holds 3 in 1 of 2" in text
    learnt = {"concentration": 60.0, "concentration_lower": 1.0, "concentration_upper": 99.0}
    assert known_truth._recovered([{"fit": "counts", **learnt}]) == "-"
    assert "holds 2 in 1 of 1" in known_truth._recovered([{"fit": "scattered counts", **learnt}])
    assert "earlier state" not in text
    monkeypatch.setattr(known_truth, "_code", lambda: "other")
    capsys.readouterr()
    rows = known_truth.run(tmp_path, **options | {"seeds": []})
    assert all(row.setting.endswith(", by earlier code") for row in rows)
    assert "2 of 2 results are of an earlier state" in capsys.readouterr().out
    text = (tmp_path / "page.md").read_text()
    assert "2 of 2 results are by an earlier state of the code." in text
    known_truth.run(tmp_path, **options)
    assert len(ran) == 4
    with pytest.raises(InputError, match="There is no 'count' here"):
        known_truth.run(tmp_path, fits=["count"])


def test_a_fit_runs_in_a_process_of_its_own_whose_seconds_it_has(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(known_truth, "KEPT", tmp_path / "kept.json")
    monkeypatch.setattr(known_truth, "_code", lambda: "now")

    statuses = [1, 0]

    def timed(command, environment, limit, log):
        assert command[1:-1] == ["-m", laws.__name__, "200 columns, ridge", "1"]
        log.write_text("MemoryError\n")
        Path(command[-1]).write_text('{"rmse": 1.5}')
        return 7.0, 8.0, statuses.pop(0)

    monkeypatch.setattr(peers, "timed", timed)
    options = {"fits": ["200 columns, ridge"], "seeds": [1]}
    assert known_truth.run(tmp_path, **options) == []
    rows = known_truth.run(tmp_path, **options)
    assert "200 columns, ridge, seed 1: failed: MemoryError" in capsys.readouterr().out
    found = {row.quantity: row.value for row in rows}
    assert found == {"rmse": 1.5, "cpu_seconds": 7.0, "wall_seconds": 8.0}


def test_the_page_says_of_which_seconds_programs_were_shared():
    shared = {"fit": "200 columns, ridge", "code": "now", "rmse": 1.5, "cpu_seconds": 7.0}
    alone = shared | {"wall_seconds": 8.0}
    text = known_truth.page_of([shared, alone], "now")
    assert "1 of 2 results are of fits that shared processes: whichever of equal shapes" in text
    assert "CPU seconds are of a process for each fit" in text
    assert "shared processes" not in known_truth.page_of([alone], "now")
    assert known_truth._seconds([{"cpu_seconds": s} for s in (1000.0, 1066.0)]) == "1033 ± 33"
    assert known_truth._seconds([{"cpu_seconds": s} for s in (0.25, 0.27)]) == "0.26 ± 0.01"


@pytest.mark.long
@pytest.mark.third_party(reason="BlackJAX's NUTS promotes dtypes")
@pytest.mark.parametrize(
    "name",
    ["heavy tails, student-t", "scattered counts, negative-binomial", "200 columns, relevance"],
)
def test_a_short_fit_is_judged(name):
    pytest.importorskip("sklearn")
    short = {"hidden": (4,), "warmup": 60, "samples": 60, "chains": 2}
    with pytest.warns(match="believe"):
        found = laws.judged(name, 0, 500, **short)
    assert 0.5 < found["coverage"] <= 1
    assert np.isfinite(found["log_score_below_the_truth"])
    assert ("degrees" in found) == ("tails" in name)
    assert ("concentration" in found) == ("counts" in name)
    assert ("columns_found" in found) == ("columns" in name)
