"""A package that is not installed: one sentence that names the extra which brings it."""

import contextlib
import io
import sys
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
from hypothesis import strategies as st

import jaxbnn
from jaxbnn import plots
from jaxbnn.interop.arviz import to_arviz
from jaxbnn.sampling.store.files import encode
from tests.kit.hostile import Call, Said

DRAWS = {"w": np.zeros((2, 5))}


def _command(*words: str) -> None:
    from jaxbnn.cli import main

    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        code = main(words)
    if code == 2:
        # The command says what it reads before it can tell what it lacks.
        told = [line for line in said.getvalue().splitlines() if not line.startswith("reading: ")]
        raise ImportError("\n".join(told))


def _checkpoint() -> None:
    encode({"a": np.zeros(2)}, {}, {})


def _fit() -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "data.csv"
        table.write_text("a,y\n1,2\n3,4\n5,6\n")
        _command("fit", str(table), "--target", "y")


def _predict() -> None:
    from tests.kit.hostile_command import _fitted

    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "new.csv"
        table.write_text("a,b\n1,2\n")
        _command("predict", str(_fitted()), str(table))


# What is called, the packages that it needs beyond the library's own, and the extra to install.
NEEDS = {
    "fit": (_fit, ("h5netcdf", "h5py", "matplotlib", "xarray"), "cli"),
    "predict": (_predict, ("h5netcdf", "h5py", "matplotlib", "xarray"), "cli"),
    "a checkpoint": (_checkpoint, ("h5netcdf", "h5py"), "checkpoint"),
    "to_arviz": (lambda: to_arviz(DRAWS), ("xarray",), "arviz"),
    "an estimator": (lambda: jaxbnn.estimators.BayesianRegressor, ("sklearn",), "sklearn"),
    "a plot": (lambda: plots.trace(np.zeros((1, 3))), ("matplotlib",), "plots"),
}
CASES = [(name, package) for name, (_, packages, _) in NEEDS.items() for package in packages]


def call(name: str, package: str, number: int) -> tuple[int, Call]:
    """Return the call of a function while one package cannot be imported."""
    function, _, extra = NEEDS[name]
    if name == "predict":
        from tests.kit.hostile_command import _fitted

        _fitted()  # while everything can be imported
    return number, Call(name, f"{package} missing", lambda: _said(function, package, extra), None)


def _said(function, package: str, extra: str) -> object:
    hidden = {name: None for name in sys.modules if name.split(".")[0] == package}
    with mock.patch.dict(sys.modules, hidden | {package: None}):
        try:
            function()
        except ImportError as error:
            said = str(error)
            if package in said and f"pip install 'jaxbnn[{extra}]'" in said:
                return Said(said)
            raise
    raise RuntimeError("went on without the package")


FAMILIES = {
    "packages that are missing": st.tuples(st.sampled_from(CASES), st.integers(0, 9)).map(
        lambda pair: call(*pair[0], pair[1])
    ),
}
