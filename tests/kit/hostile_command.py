"""Broken tables for `jaxbnn fit`, and broken folders for `predict`.

A table that survives is not fitted: what is tried is everything before the sampling.
"""

import contextlib
import csv
import functools
import io
import json
import shutil
import tempfile
from pathlib import Path
from unittest import mock

import jax
import numpy as np
from hypothesis import strategies as st

from jaxbnn.networks import init, mlp
from tests.kit.hostile import Call, Said
from tests.kit.hostile_files import ANY_FILE

WRONG = (None, -1, 0, 1e400, "words", [], [1, [2]], {}, True, "../../x")
TABLE_KINDS = (
    *("table as it is", "a cell of words", "a target of words", "an open quote"),
    *("a row too short", "a directory", *ANY_FILE),
)
FOLDER_KINDS = ("folder as it is", "wrong value", "entry lost", "file missing", *ANY_FILE)


class NotFitted(Exception):
    """Raised in place of the sampling."""


def _table(rng: np.random.Generator) -> bytes:
    rows = [f"{a:.2f},{b:.2f},{a - b:.2f}" for a, b in rng.normal(size=(12, 2))]
    return ("a,b,y\n" + "\n".join(rows) + "\n").encode()


def _broken(content: bytes, kind: str, rng: np.random.Generator) -> bytes:
    if kind in ANY_FILE:
        # Words in UTF-16 are made of text only.
        is_text = kind != "UTF-16" or b"\x00" not in content
        return ANY_FILE[kind](content, rng) if is_text else b""
    lines = content.split(b"\n")
    at = int(rng.integers(1, max(2, len(lines) - 1)))
    if kind == "a cell of words":
        lines[at] = b"1,words," + lines[at].rpartition(b",")[2]
    elif kind == "a target of words":
        lines[at] = lines[at].rpartition(b",")[0] + b",words"
    elif kind == "an open quote":
        lines[at] = lines[at].rpartition(b",")[0] + b',"1.5'
    elif kind == "a row too short":
        lines[at] = lines[at].rpartition(b",")[0]
    return b"\n".join(lines)


def table_call(kind: str, number: int) -> tuple[int, Call]:
    """Return the call of `fit` on a table broken in the way of `kind`."""
    rng = np.random.default_rng(number)
    return number, Call("fit", kind, lambda: _fit(_broken(_table(rng), kind, rng), kind))


def _fit(content: bytes, kind: str) -> object:
    def not_fitted(*arguments):
        raise NotFitted

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.csv"
        path.mkdir() if kind == "a directory" else path.write_bytes(content)
        with mock.patch("jaxbnn.cli.fit.fit", not_fitted):
            try:
                return _said(["fit", str(path), "--target", "y"])
            except NotFitted:
                return ()


def folder_call(kind: str, number: int) -> tuple[int, Call]:
    """Return the call of `predict` on a folder with one file broken in the way of `kind`."""
    rng = np.random.default_rng(number)
    name = ("model.json", "posterior.nc")[rng.integers(2)]
    return number, Call(f"predict, {name}", kind, lambda: _predict(kind, name, rng))


def _predict(kind: str, name: str, rng: np.random.Generator) -> object:
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "fit"
        shutil.copytree(_fitted(), folder)
        path = folder / name
        if kind == "file missing":
            path.unlink()
        elif kind in ("wrong value", "entry lost"):
            model = json.loads((folder / "model.json").read_text())
            _spoil(model, kind, rng)
            (folder / "model.json").write_text(json.dumps(model))
        elif kind != "folder as it is":
            path.write_bytes(_broken(path.read_bytes(), kind, rng))
        data = Path(parent) / "new.csv"
        data.write_bytes(_table(rng))
        said = _said(["predict", str(folder), str(data)])
        if said == ():
            with Path(parent, "new-predictions.csv").open(newline="") as file:
                _, *rows = csv.reader(file)
            # The last column names those in which a row lies outside the training rows.
            return np.array([row[:-1] for row in rows], float)
        return said


def _spoil(model: dict, kind: str, rng: np.random.Generator) -> None:
    """Change or lose one entry, at any depth."""
    inner = model
    while True:
        key = list(inner)[rng.integers(len(inner))]
        if isinstance(inner[key], dict) and inner[key] and rng.integers(3):
            inner = inner[key]
            continue
        if kind == "entry lost":
            del inner[key]
        else:
            inner[key] = WRONG[rng.integers(len(WRONG))]
        return


@functools.cache
def _fitted() -> Path:
    """A folder as a fit writes it, without the fit."""
    from jaxbnn.cli import folder as folders
    from jaxbnn.cli.encoding import Column, Encoding
    from jaxbnn.tabular.fitted import Fitted
    from jaxbnn.tabular.posteriors import make_posterior
    from jaxbnn.tabular.settings import Settings

    folder = Path(tempfile.mkdtemp())
    encoding = Encoding("y", [Column("a"), Column("b")], None, 0.0, 1.0)
    settings = Settings("gibbs", (3,), 2, 1, 4, 0.3, 0)
    x, y = np.zeros((4, 2), np.float32), np.zeros(4, np.float32)
    network = mlp((2, 3, 1), "relu")
    keys = jax.random.split(jax.random.key(0), (2, 4))
    draws = jax.vmap(jax.vmap(lambda key: init(key, network)))(keys)
    posterior = make_posterior("gibbs", settings, x, y, None)
    folders.save(folder, encoding, settings, "gibbs", Fitted(draws, None, []), posterior)
    return folder


def _said(arguments: list[str]) -> object:
    from jaxbnn.cli import main

    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        code = main([*arguments, "--quiet"])
    if code == 0:
        return ()
    if code != 2:
        raise RuntimeError(f"exit code {code}")
    return Said(said.getvalue())


def _strategy(make, kinds) -> st.SearchStrategy:
    pairs = st.tuples(st.sampled_from(kinds), st.integers(0, 2**32 - 1))
    return pairs.map(lambda pair: make(*pair))


FAMILIES = {
    "tables of `fit`": _strategy(table_call, TABLE_KINDS),
    "folders of `predict`": _strategy(folder_call, FOLDER_KINDS),
}
