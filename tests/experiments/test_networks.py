"""Tests of experiments.benchmarks.networks: its rows, what is stored, and what its page says."""

import numpy as np
import pytest

from experiments.benchmarks import networks, peers
from experiments.datasets import tabular
from experiments.errors import InputError


def test_no_test_row_of_another_benchmark_is_seen(original):
    split = original(networks.split_of, "bikesharing", 200)
    assert (len(split.x_train), len(split.x_test)) == (200, 2000)
    whole = tabular("bikesharing", 0)
    seen = {tuple(row) for row in np.concatenate([split.x_train, split.x_test])}
    assert seen <= {tuple(row) for row in whole.x_train}
    assert split.y_train.max() < 10  # logarithms
    assert len(original(networks.split_of, "kin8nm", 800).x_train) == 800


def one(name, fit, score, taken=None, code="today"):
    taken = [*(taken or [[50], "gaussian"]), "ensemble", False][:4]
    found = {"log_score": score, "cpu_seconds": 70.0, "rhat": 1.2, "taken": taken}
    return {"set": name, "rows": 200, "fit": fit, "code": code, **found}


def test_the_page_says_what_was_taken_and_what_it_lost():
    results = [
        one("kin8nm", "linear, gaussian", -1.5),
        one("kin8nm", "50, gaussian", -1.0),
        one("kin8nm", "50, heteroscedastic", -0.8),
        one("kin8nm", "16 x 4, heteroscedastic", -0.5),
        one("kin8nm", "auto", -0.79, [[50], "heteroscedastic"]),
        one("power-plant", "50, gaussian", -2.0),
    ]
    text = networks.page_of(results)
    assert "| kin8nm | 200 | -1.500 | -1.000 | **-0.800** | -0.500 | 0.290 | 70 |" in " ".join(
        text.split()
    )
    assert "| power-plant | 200 | - | -2.000 | - | - | - | - |" in " ".join(text.split())
    assert "the best in 0 of 1 cases, and at most 0.290 nats behind it." in text
    results[4] = one("kin8nm", "auto", -0.5, [[16] * 4, "heteroscedastic"])
    assert "the best in 1 of 1 cases, and at most 0.000 nats" in networks.page_of(results)


def test_a_choice_that_is_none_of_the_fits_is_counted_apart():
    """Another likelihood, sampler or scales: nobody compared that with what it is bold beside."""
    results = [
        one("kin8nm", fit, score)
        for fit, score in zip(networks.FITS, (-1.5, -1.0, -0.8, -0.5), strict=False)
    ]
    for taken, said in (
        ([[50], "student-t", "ensemble", False], "50, student-t, by ensemble"),
        ([[50], "gaussian", "nuts", False], "50, gaussian, by nuts"),
        ([[50], "gaussian", "ensemble", True], "50, gaussian, by ensemble with relevance"),
        ([[], "gaussian", "nuts", True], "linear, gaussian, by nuts with relevance"),
    ):
        text = networks.page_of([*results, one("kin8nm", "auto", -0.6, taken)])
        assert "**-" not in text
        assert "the best in" not in text
        assert f"In 1 of 1 cases auto took none of these, but {said} (kin8nm, 200 rows).\n" in text
        assert "| 0.100 " in text
    text = networks.page_of(
        [*results, one("kin8nm", "auto", -1.5, [[], "gaussian", "nuts", False])]
    )
    assert "**-1.500**" in text
    assert "none of these" not in text


def test_a_fit_beyond_the_limit_is_told_as_that(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(networks, "KEPT", tmp_path / "kept.json")
    monkeypatch.setattr(networks, "_code", lambda: "now")

    def timed(command, environment, limit, log):
        log.touch()
        return networks._MOST_SECONDS, 9.0, -24

    monkeypatch.setattr(peers, "timed", timed)
    monkeypatch.setattr(networks, "PAGE", tmp_path / "page.md")
    options = {"sets": ["kin8nm"], "rows": [200], "fits": ["50, gaussian"]}
    assert networks.run(tmp_path, **options, write_page=True) == []
    assert "failed" not in capsys.readouterr().out
    assert "| > 1200 CPU s |" in (tmp_path / "page.md").read_text()


def test_what_is_stored_is_not_run_again_unless_the_code_has_changed(monkeypatch, tmp_path, capsys):
    ran = []

    def measured(work, name, size, fit):
        ran.append((name, size, fit))
        return {"cpu_seconds": 70.0, "log_score": -1.0, "rhat": 1.1, "taken": [[50], "gaussian"]}

    monkeypatch.setattr(networks, "_measured", measured)
    monkeypatch.setattr(networks, "_code", lambda: "first")
    monkeypatch.setattr(networks, "KEPT", tmp_path / "kept.json")
    monkeypatch.setattr(networks, "PAGE", tmp_path / "page.md")
    options = {"sets": ["kin8nm"], "rows": [200], "fits": ["50, gaussian", "auto"]}
    assert len(networks.run(tmp_path, **options, write_page=True)) == 2 * 2
    assert "kin8nm" in (tmp_path / "page.md").read_text()
    networks.run(tmp_path, **options)
    networks.run(tmp_path / "another machine", **options)
    assert len(ran) == 2
    monkeypatch.setattr(networks, "_code", lambda: "other")
    others = networks.run(tmp_path, **options | {"rows": []})
    assert all(row.setting.endswith(", by earlier code") for row in others)
    assert "2 of 2 results are of an earlier state" in capsys.readouterr().out
    rows = networks.run(tmp_path, **options, write_page=True)
    assert not any("earlier" in row.setting for row in rows)
    assert len(ran) == 4
    with pytest.raises(InputError, match="There is no 'kin8n' here"):
        networks.run(tmp_path, sets=["kin8n"])


@pytest.mark.long
@pytest.mark.third_party(reason="BlackJAX's NUTS promotes dtypes")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_short_fit_says_what_it_took():
    pytest.importorskip("sklearn")
    short = {"hidden": (4,), "warmup": 60, "samples": 60, "chains": 2}
    found = networks.fitted("kin8nm", 200, "50, heteroscedastic", **short)
    assert found["taken"] == [[4], "heteroscedastic", "ensemble", False]
    assert np.isfinite(found["log_score"])
