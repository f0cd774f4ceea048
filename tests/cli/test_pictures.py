"""Pictures of a fit show what was found, in the units of the target."""

from types import SimpleNamespace

import jax
import numpy as np

from jaxbnn.cli import pictures
from jaxbnn.cli.columns import Column
from jaxbnn.cli.encoding import Encoding
from jaxbnn.prediction import ClassPrediction, NumberScores
from jaxbnn.tabular.fitted import Fitted
from jaxbnn.tabular.posteriors import make_posterior
from jaxbnn.tabular.settings import Settings


def test_pictures_show_what_was_found(tmp_path, monkeypatch, annotations_unchecked):
    made = {}

    def spy(name):
        real = getattr(pictures, name)

        def drawn(*arguments, **more):
            made[name] = (arguments, more)
            return real(*arguments, **more)

        monkeypatch.setattr(pictures, name, drawn)

    for name in ("observed_against_predicted", "calibration", "confusion_matrix"):
        spy(name)
    encoding = Encoding("y", [], None, 50.0, 8.0)
    y = np.linspace(-1, 1, 10)
    number = SimpleNamespace(mean=y / 2, lower=y - 1, upper=y + 1, level=0.8)
    found = NumberScores(y, y, np.full(10, 0.62), y)  # inside the intervals of .24 and more
    pictures.draw_numbers(tmp_path, encoding, y, number, found)
    arrays, more = made["observed_against_predicted"]
    for one, other in zip(arrays, (y, y / 2, y - 1, y + 1), strict=True):
        np.testing.assert_allclose(one, 50 + 8 * other)
    assert more == {"level": 0.8, "name": "y"}
    (levels, happened), more = made["calibration"]
    np.testing.assert_allclose(levels, np.linspace(0.05, 0.95, 19))
    assert happened.tolist() == (levels > 0.24).tolist()
    assert set(more["counts"]) == {10}
    p = np.array([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6]])
    y, none = np.array([0, 1, 1]), np.zeros(3)
    classes = Encoding("y", [], ["no", "yes"], 0.0, 1.0)
    pictures.draw_classes(
        tmp_path, classes, y, ClassPrediction(p, p.argmax(1), p, p, none, none, 0.9)
    )
    (counts, names), _ = made["confusion_matrix"]
    assert counts.tolist() == [[1, 0], [1, 1]]
    assert names == ["no", "yes"]
    (confidence, accuracy), more = made["calibration"]
    np.testing.assert_allclose(confidence, [0.6, 0.9])
    np.testing.assert_allclose(accuracy, [1.0, 0.5])
    assert more["counts"].tolist() == [1, 2]


def test_chains_are_drawn_in_units_of_the_target(tmp_path, monkeypatch, annotations_unchecked):
    seen = {}
    monkeypatch.setattr(
        pictures, "trace", lambda series, axes, names: seen.update(series=series, names=names)
    )
    settings = Settings("nuts", (), 1, 4, 4, 0.3, 0, "gaussian", 1.0)
    x = np.arange(5, dtype=np.float32)[:, None]
    posterior = make_posterior("nuts", settings, x, x[:, 0], None)
    positions = jax.tree.map(np.asarray, posterior.sample_prior(jax.random.key(0), (1, 4)))
    encoding = Encoding("y", [Column("a")], None, 50.0, 8.0)
    fitted = Fitted(positions, SimpleNamespace(), [])
    pictures.draw_chains(tmp_path, encoding, fitted, posterior, x, x[:, 0])
    assert seen["names"] == [f"y, held-out row {row}" for row in (1, 3, 5)]
    of_draws = jax.vmap(lambda position: posterior.outputs(position, x))
    outputs = of_draws(jax.tree.map(lambda leaf: leaf[0], positions))[:, [0, 2, 4], 0]
    np.testing.assert_allclose(seen["series"][0], 50 + 8 * np.array(outputs), rtol=1e-4)
