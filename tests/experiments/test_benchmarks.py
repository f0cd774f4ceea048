"""Tests of experiments.benchmarks: each loads, and its options can be set from a command line."""

import importlib
import inspect
import pkgutil
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Literal
from matplotlib.figure import Figure

from experiments import benchmarks
from experiments.benchmarks import columns, dvi, random_numbers, row_blocks
from experiments.benchmarks.gibbs.models import MODELS
from experiments.benchmarks.gibbs.parts import parts_of
from experiments.studies.deterministic_vi.course import Course
from jaxbnn.dvi import FitProgress
from jaxbnn.networks import apply, init, mlp

WAYS = ("jaxbnn", "jax.random")
COSTLY = {"dot_general", "conv_general_dilated", "exp", "log", "erf", "erfc", "erf_inv"}
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


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if "cnn" in name else ()) for name in MODELS]
)
def test_no_part_of_a_sweep_is_computed_once_for_all_steps(name):
    """A compiler takes out of the loop what does not depend on the step's number."""
    for part, (function, _, arguments) in parts_of(_small(MODELS[name]())).items():
        jaxpr = jax.make_jaxpr(function)(jnp.array(0), *arguments)
        changes = [True] + [False] * (len(jaxpr.jaxpr.invars) - 1)
        assert not list(_unchanged(jaxpr.jaxpr, changes)), part


def test_a_product_that_is_the_same_in_all_steps_is_seen():
    jaxpr = jax.make_jaxpr(lambda i, v: jnp.exp(i + v) + jax.jit(jnp.dot)(v, v))(0.0, jnp.ones(3))
    assert list(_unchanged(jaxpr.jaxpr, [True, False])) == ["dot_general"]


def _small(case):
    return case._replace(x=case.x[:8], y=case.y[:8])


def _unchanged(jaxpr, changes):
    """Yield the costly operations of which no operand changes from step to step."""
    changing = {var for var, is_changing in zip(jaxpr.invars, changes, strict=True) if is_changing}
    for eqn in jaxpr.eqns:
        inputs = [not isinstance(var, Literal) and var in changing for var in eqn.invars]
        inner = next((eqn.params[k] for k in ("jaxpr", "call_jaxpr") if k in eqn.params), None)
        inner = getattr(inner, "jaxpr", inner)
        if inner is not None and len(inner.invars) == len(inputs):
            yield from _unchanged(inner, inputs)
        elif eqn.primitive.name in COSTLY and not any(inputs):
            yield eqn.primitive.name
        if any(inputs):
            changing.update(eqn.outvars)


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
