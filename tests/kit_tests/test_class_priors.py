"""The comparison of prior scales of classes: its classes, one fit, and what its table says."""

from types import SimpleNamespace

import numpy as np
import pytest

from experiments.errors import InputError
from tests import class_priors

pytest.importorskip("sklearn")


@pytest.mark.parametrize(("name", "classes"), [("wines", 3), ("cancer", 2), ("digits", 2)])
def test_classes_are_whole_numbers_from_0(name, classes):
    x, y = class_priors.table(name)
    assert len(x) == len(y)
    assert sorted(set(y.tolist())) == list(range(classes))


def test_results_are_stored_and_told(tmp_path, monkeypatch):
    ran = []

    def log_score(name, network, split):
        ran.append((name, network, split))
        return -1.0 - split - 0.1 * len(network.hidden)

    monkeypatch.setattr(class_priors, "log_score", log_score)
    monkeypatch.setattr(class_priors, "KEPT", tmp_path / "kept.json")
    monkeypatch.setattr(class_priors, "PAGE", tmp_path / "page.md")
    few = np.zeros((167, 1)), np.zeros(167, int)
    load = class_priors.table
    monkeypatch.setattr(class_priors, "table", lambda n: few if n == "protein" else load(n))
    options = {"sets": ["wines", "protein"], "splits": [0, 1], "write_table": True}
    rows = class_priors.run(tmp_path, **options)
    class_priors.run(tmp_path, **options)
    assert len(ran) == len(rows) == 4 * len(class_priors.NETWORKS)
    text = (tmp_path / "page.md").read_text()
    assert "over 2 splits" in text
    assert "Held-out rows of a split: 18 of wines, 7 of protein." in text
    assert "earlier state" not in text
    lines = {line.split("|")[1].strip(): line for line in text.splitlines() if "|" in line}
    assert lines["none, 6"].count("-1.500") == 2
    assert lines["50 relu, 1 and 3"].count("-1.600") == 2
    # Of other code, a result is measured again.
    monkeypatch.setattr(class_priors, "_code", lambda: "other")
    rows = class_priors.run(tmp_path, **options | {"sets": []})
    assert all(row.setting.endswith(", by earlier code") for row in rows)
    said = f"{len(rows)} of {len(rows)} results are by an earlier state of the code."
    assert said in (tmp_path / "page.md").read_text()
    one = {"sets": ["wines"], "networks": ["none, 6"], "splits": [0]}
    class_priors.run(tmp_path, **one)
    class_priors.run(tmp_path, **one)
    assert ran[len(rows) :] == [("wines", class_priors.NETWORKS["none, 6"], 0)]
    with pytest.raises(InputError, match="There is no 'wine' here; did you mean 'wines'"):
        class_priors.run(tmp_path, sets=["wine"])


def test_code_that_changes_meanwhile_stops_the_run(tmp_path, monkeypatch):
    """All that follows would be by what this process has loaded, and not by what is there."""
    code = ["before"]
    monkeypatch.setattr(class_priors, "log_score", lambda *_: code.insert(0, "after") or -1.0)
    monkeypatch.setattr(class_priors, "_code", lambda: code[0])
    monkeypatch.setattr(class_priors, "KEPT", tmp_path / "kept.json")
    with pytest.raises(InputError, match="The code was changed since it was loaded"):
        class_priors.run(tmp_path, sets=["wines"], networks=["none, 6"], splits=[0])
    assert not class_priors.KEPT.exists()


def test_a_fit_that_was_stopped_has_no_score(monkeypatch):
    stopped = SimpleNamespace(draws=SimpleNamespace(interrupted=True), positions={})
    monkeypatch.setattr(class_priors, "sampled", lambda *_: stopped)
    monkeypatch.setattr(class_priors, "make_posterior", lambda *_: None)
    monkeypatch.setattr(class_priors, "scores", lambda *_: SimpleNamespace(log_score=np.zeros(1)))
    with pytest.raises(KeyboardInterrupt):
        class_priors.log_score("wines", class_priors.NETWORKS["none, 6"], 0)


@pytest.mark.long
@pytest.mark.third_party(reason="BlackJAX's NUTS promotes dtypes")
def test_a_fit_predicts_rows_it_has_not_seen():
    network = class_priors.NETWORKS["none, 6"]
    score = class_priors.log_score("wines", network, 0, warmup=60, samples=40)
    assert np.log(1 / 3) < score < 0
