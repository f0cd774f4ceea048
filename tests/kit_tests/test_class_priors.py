"""The comparison of prior scales of classes: its classes, one fit, and what its table says."""

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
    options = {"sets": ["wines", "protein"], "splits": [0, 1], "write_table": True}
    rows = class_priors.run(tmp_path, **options)
    class_priors.run(tmp_path, **options)
    assert len(ran) == len(rows) == 4 * len(class_priors.NETWORKS)
    text = (tmp_path / "page.md").read_text()
    assert "over 2 splits" in text
    lines = {line.split("|")[1].strip(): line for line in text.splitlines() if "|" in line}
    assert lines["none, 6"].count("-1.500") == 2
    assert lines["50 relu, 1 and 3"].count("-1.600") == 2
    with pytest.raises(InputError, match="There is no 'wine' here; did you mean 'wines'"):
        class_priors.run(tmp_path, sets=["wine"])


@pytest.mark.long
@pytest.mark.third_party(reason="BlackJAX's NUTS promotes dtypes")
def test_a_fit_predicts_rows_it_has_not_seen():
    network = class_priors.NETWORKS["none, 6"]
    score = class_priors.log_score("wines", network, 0, warmup=60, samples=40)
    assert np.log(1 / 3) < score < 0
