"""What the built wheel carries, and what the command says without what it needs."""

import contextlib
import io
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path
from unittest import mock

import jaxbnn
from jaxbnn.cli import main

TITLE = "The wheel, its command, and extras by name"
TREE = Path(jaxbnn.__file__).parents[1]


def measure():
    """Build the wheel of this tree, look into it, and call `fit` and `predict` half installed."""
    with tempfile.TemporaryDirectory() as folder:
        names, scripts = _wheel(Path(folder))
    project = tomllib.loads((TREE / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    return [
        ("top-level packages in the wheel", ", ".join(sorted(names))),
        ("console scripts", ", ".join(scripts) or "none"),
        ("requirements that the extra `experiments` has for `fit`", _needless(extras)),
        ("`fit` without matplotlib", _said("matplotlib", "fit", "data.csv", "--target", "y")),
        ("`predict` without h5netcdf", _said("h5netcdf", "predict", "folder", "data.csv")),
    ]


def _wheel(folder):
    copy = folder / "tree"
    for part in ("jaxbnn", "experiments"):
        shutil.copytree(TREE / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(TREE / name, copy)
    program = "from setuptools import build_meta; import sys; build_meta.build_wheel(sys.argv[1])"
    command = [sys.executable, "-c", program, str(folder)]
    subprocess.run(command, cwd=copy, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        files = archive.namelist()
        points = [archive.read(f).decode() for f in files if f.endswith("entry_points.txt")]
    names = {name.split("/")[0] for name in files if ".dist-info/" not in name}
    return names, [line for text in points for line in text.splitlines() if "=" in line]


def _needless(extras):
    if "cli" in extras:
        return "not asked for: `cli` = " + ", ".join(extras["cli"])
    return ", ".join(word.split(">")[0] for word in extras["experiments"])


def _said(package, *words):
    """Call the command in an empty folder while a package cannot be imported."""
    said = io.StringIO()
    hidden = {name: None for name in sys.modules if name.split(".")[0] == package}
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        mock.patch.dict(sys.modules, hidden | {package: None}),
        contextlib.redirect_stderr(said),
    ):
        Path("data.csv").write_text("a,y\n1,2\n3,4\n5,6\n")
        _fit_folder(Path("folder"))
        try:
            main(list(words))
        except Exception as error:
            return f"failed: {type(error).__name__}"
    return f"refused: {said.getvalue().strip()}"


def _fit_folder(folder):
    """Write the two files that `predict` reads; the file of draws need not be opened."""
    folder.mkdir()
    import json

    from jaxbnn.cli.encoding import Column, Encoding
    from jaxbnn.cli.folder import Settings

    settings = Settings("gibbs", (3,), 2, 1, 4, 0.3, 0)
    encoding = Encoding("y", [Column("a")], None, 0.0, 1.0)
    model = {"sampler": "gibbs", "settings": settings._asdict(), "encoding": encoding.to_dict()}
    (folder / "model.json").write_text(json.dumps(model))
    (folder / "posterior.nc").write_bytes(b"")
