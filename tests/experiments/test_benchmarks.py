"""Tests of experiments.benchmarks: each loads, and its options can be set from a command line."""

import importlib
import inspect
import pkgutil
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from matplotlib.figure import Figure

from experiments import benchmarks
from experiments.benchmarks import columns, dvi, random_numbers, row_blocks
from experiments.studies.deterministic_vi.course import Course
from jaxbnn.dvi import FitProgress
from jaxbnn.networks import apply, init, mlp

WAYS = ("jaxbnn", "jax.random")
NAMES = [module.name for module in pkgutil.iter_modules(benchmarks.__path__)]


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_has_options_with_plain_defaults(name):
    module = importlib.import_module(f"experiments.benchmarks.{name}")
    if not hasattr(module, "run"):
        pytest.skip("a helper of benchmarks")
    assert inspect.getdoc(module), "the command prints its docstring"
    first, *options = inspect.signature(module.run).parameters.values()
    assert first.name == "out_dir"
    for option in options:
        assert option.kind is inspect.Parameter.KEYWORD_ONLY
        kinds = (int, float, str, bool, tuple, list, type(None))
        assert isinstance(option.default, kinds), option


def test_every_folder_of_a_benchmark_loads():
    for module in pkgutil.walk_packages(benchmarks.__path__, "experiments.benchmarks."):
        if not module.name.endswith(".programs"):
            importlib.import_module(module.name)


def test_columns_are_measured_against_a_network_of_the_same_outputs(tmp_path, monkeypatch):
    monkeypatch.setattr(columns, "SHAPES", ((2, 5, (3, 4, 2)),))
    network = mlp((3, 4, 2), "tanh")
    params = init(jax.random.key(0), network)
    x = jax.random.normal(jax.random.key(1), (5, 3))
    np.testing.assert_allclose(
        columns.in_rows(params, x), apply(network, params, x), rtol=1e-5, atol=1e-6
    )
    by_columns, by_rows, ratio = columns.run(tmp_path, num_pairs=1, work=1.0)
    assert ratio.value == pytest.approx(by_rows.value / by_columns.value)


def test_blocks_of_rows_are_measured_beside_all_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(row_blocks, "SIZES", ((600, (3,), 2), (30_000, (60,), 1)))
    found = row_blocks.run(tmp_path, num_steps=2, num_pairs=1)
    values = {(row.quantity, row.setting): row.value for row in found}
    small, large = "600 rows, 3, 2 chains", "30000 rows, 60, 1 chain"
    each = [values["milliseconds", f"{small}, {way}"] for way in ("all rows", "blocks")]
    assert values["ratio", small] == pytest.approx(each[1] / each[0])
    assert (values["is_taken", small], values["is_taken", large]) == (0, 1)


def test_splits_are_trained_to_the_end(tmp_path, monkeypatch):
    """What looks at a fit returns what is to be kept of it, as `train` asks."""

    def trained(key, method, recipe, splits, *, watch):
        course = Course(None, {})
        for done in (1, 2):
            course.saw(watch(None, FitProgress(done, 2, 3.0 * done, np.zeros(1), {})))
        return SimpleNamespace(seconds=6.0, elbo_change=np.zeros(1))

    monkeypatch.setattr(dvi, "train", trained)
    splits = SimpleNamespace(x=np.zeros((1, 4, 2)))
    monkeypatch.setattr(dvi, "whole_splits", lambda name, number: splits)
    monkeypatch.setattr(dvi.pictures, "runtime_figure", lambda curves: Figure())
    rows = dvi.run(tmp_path, sizes=(), num_splits=1, num_updates=20)
    paces = [row.value for row in rows if row.quantity == "milliseconds_an_update"]
    assert paces == [3000.0] * 3


def test_random_numbers_are_measured_beside_those_of_jax(tmp_path, monkeypatch):
    monkeypatch.setattr(random_numbers, "SIZES", (2048,))
    rows = {
        (row.quantity, row.setting): row.value
        for row in random_numbers.run(tmp_path, num_pairs=1, work=20_480)
    }
    each = [rows["nanoseconds_a_number", f"2,048 numbers at once, {way}"] for way in WAYS]
    assert rows["ratio", "2,048 numbers at once"] == pytest.approx(each[1] / each[0])
