"""Tests of experiments.benchmarks: each loads, and its options can be set from a command line."""

import importlib
import inspect
import pkgutil

import pytest

from experiments import benchmarks

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
