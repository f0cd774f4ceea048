"""The wheel carries the package and its command alone, and each extra brings what asks for it."""

import ast
import csv
import os
import re
import subprocess
import sys
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from tests.kit.wheel import ROOT, brought, build_wheel, extras, importable

TINY = ["--hidden", "3", "--chains", "2", "--warmup", "30", "--samples", "20"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build_wheel(ROOT, tmp_path_factory.mktemp("wheel"))


def test_the_wheel_carries_the_package_and_its_command_alone(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (points,) = [name for name in names if name.endswith("entry_points.txt")]
        assert archive.read(points).decode().split() == [
            "[console_scripts]",
            "jaxbnn",
            "=",
            "jaxbnn.cli:main",
        ]
    assert {name.split("/")[0] for name in names} == {"jaxbnn", Path(points).parent.name}
    written = {path.relative_to(ROOT).as_posix() for path in (ROOT / "jaxbnn").rglob("*.py")}
    data = {path.relative_to(ROOT).as_posix() for path in (ROOT / "jaxbnn").rglob("*.toml")}
    assert written | data | {"jaxbnn/py.typed"} <= names


def _sentences():
    """(file, extra, modules whose import is tried beside the sentence) of each hint in the code."""
    for path in sorted((ROOT / "jaxbnn").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef):
                continue
            text = ast.unparse(node)
            for extra in re.findall(r"jaxbnn\[(\w+)\]", text):
                tried = [
                    one.name if isinstance(inner, ast.Import) else inner.module
                    for inner in ast.walk(node)
                    if isinstance(inner, ast.Import | ast.ImportFrom)
                    for one in inner.names
                ]
                tried += re.findall(r"'(h5netcdf|h5py|matplotlib|xarray|arviz|sklearn)'", text)
                yield path.name, extra, {name.split(".")[0] for name in tried}


@pytest.mark.long
def test_a_sentence_names_the_extra_that_brings_what_is_missing(wheel):
    found = list(_sentences())
    assert {extra for _, extra, _ in found} == {"arviz", "checkpoint", "cli", "plots", "sklearn"}
    for where, extra, modules in found:
        assert modules, where
        missing = modules - importable(brought(wheel, extra))
        assert not missing, f"{where}: jaxbnn[{extra}] does not bring {missing}"


def test_every_optional_import_is_of_an_extra(wheel):
    known = importable(brought(wheel, "cli") | brought(wheel, "arviz") | brought(wheel, "sklearn"))
    known |= set(sys.stdlib_module_names) | {"jaxbnn"}
    for path in (ROOT / "jaxbnn").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module]
            assert {name.split(".")[0] for name in names} <= known, path


def test_pages_name_extras_that_there_are(wheel):
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "experiments").rglob("*")]
    for page in pages:
        if page.suffix not in (".md", ".py"):
            continue
        text = page.read_text(encoding="utf-8")
        for words in re.findall(r"(?:jaxbnn|[\"']?\.)\[([a-z,]+)\]", text):
            assert set(words.split(",")) <= extras(wheel), page


# Refuses what the extra does not bring, as an empty environment does.
PROGRAM = """
import importlib.abc, sys

class Refused(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {refused!r}:
            raise ModuleNotFoundError(f"no module named {{name}}", name=name)

sys.meta_path.insert(0, Refused())
sys.path.insert(0, {tree!r})
import numpy as np
import jaxbnn
from jaxbnn.cli import command, folder, pictures
assert jaxbnn.__file__.startswith({tree!r})
"""
# All but the sampling and the scores, which compile for long and import nothing more.
WITHOUT_SAMPLING = """
import pathlib
from jaxbnn.cli.encoding import Column, Encoding
from jaxbnn.tabular.posteriors import make_posterior
from jaxbnn.tabular.fitted import Fitted
from jaxbnn.tabular.settings import Settings

jaxbnn.plots.trace(np.zeros((2, 9, 1)))[0].figure.savefig("chains.png")
here, x = pathlib.Path(), np.zeros((4, 2), np.float32)
encoding = Encoding("y", [Column("a"), Column("b")], None, 0.0, 1.0)
settings = Settings("gibbs", (3,), 2, 1, 4, 0.3, 0)
posterior = make_posterior("gibbs", settings, x, x[:, 0], None)
shapes = ((2, 3), (3,)), ((3, 1), (1,))
dense = [{"w": np.zeros((2, 4, *w), np.float32), "b": np.zeros((2, 4, *b), np.float32)}
         for w, b in shapes]
layers = (dense[0], (), dense[1])
folder.save(here, encoding, settings, "gibbs", Fitted(layers, None, []), posterior)
folder.load(here)
"""


def _write_tables(folder, rows=40):
    rng = np.random.default_rng(0)
    size = rng.uniform(50, 150, rows)
    with (folder / "houses.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["area", "price"])
        table.writerows([f"{s:.1f}", f"{2000 * s + rng.normal(0, 5000):.0f}"] for s in size)
    (folder / "new.csv").write_text("area\n100\n60\n")


def _calls(sampler):
    fit = ["fit", "houses.csv", "--target", "price", "--sampler", sampler, *TINY]
    return [fit, ["predict", "houses-fit", "new.csv"]]


def _run(program, folder):
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def refusing(wheel, tmp_path_factory):
    """A program's beginning: the wheel's files, and of other packages what `cli` brings."""
    tree = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tree)
    refused = set(metadata.packages_distributions()) - importable(brought(wheel, "cli"))
    refused -= {"jaxbnn"}  # the environment may know it too: as what is installed from the clone
    assert {"pytest", "pydantic", "arviz"} <= refused
    return PROGRAM.format(refused=refused, tree=str(tree))


def test_the_command_imports_nothing_that_its_extra_lacks(refusing, tmp_path):
    _run(refusing + WITHOUT_SAMPLING, tmp_path)
    assert (tmp_path / "chains.png").exists()


@pytest.mark.long
@pytest.mark.parametrize("sampler", ["nuts", "ensemble", "dvi", "gibbs", "pcn"])
def test_the_whole_command_imports_nothing_that_its_extra_lacks(refusing, tmp_path, sampler):
    _write_tables(tmp_path)
    calls = f"for words in {_calls(sampler)!r}:\n    assert command.main(words) == 0\n"
    _run(refusing + calls, tmp_path)
    assert (tmp_path / "houses-fit" / "chains.png").exists() == (sampler != "dvi")
    assert len((tmp_path / "new-predictions.csv").read_text().splitlines()) == 3


@pytest.mark.long
def test_the_command_runs_in_an_environment_of_its_own(wheel, tmp_path):
    """Needs a package index; takes some minutes, most of them pip's."""
    venv.create(tmp_path / "venv", with_pip=True)
    pip = [tmp_path / "venv" / "bin" / "python", "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, f"{wheel}[cli]"], check=True)
    _write_tables(tmp_path)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    for arguments in _calls("nuts"):
        command = [tmp_path / "venv" / "bin" / "jaxbnn", *arguments]
        subprocess.run(command, cwd=tmp_path, env=environment, check=True)
    assert len((tmp_path / "new-predictions.csv").read_text().splitlines()) == 3
