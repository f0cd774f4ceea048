"""Broken config and data files, tried through the command and the readers of data.

A config that survives its mutation is not run: what is tried is everything before the run.
"""

import contextlib
import dataclasses
import gzip
import hashlib
import io
import os
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
from hypothesis import strategies as st

from tests.kit.hostile import ROOT, Call, Said

CONFIGS = sorted((ROOT / "configs").rglob("*.toml"))
HTML = b"<!DOCTYPE html>\n<html><body>404 Not Found</body></html>\n"

WRONG_VALUES = (
    "-1",
    "0",
    "1e400",
    "nan",
    "true",
    '"words"',
    "[]",
    "[1, [2]]",
    "{}",
    "1979-05-27",
    "99999999999999999999999999",
    '"../../../tmp/x"',
    "\"__import__('os').system('true')\"",
)


def _lines_with_values(lines: list[str]) -> list[int]:
    return [i for i, line in enumerate(lines) if "=" in line and not line.startswith("#")]


def _wrong_value(text: str, rng: np.random.Generator) -> str:
    lines = text.splitlines()
    at = rng.choice(_lines_with_values(lines))
    key = lines[at].partition("=")[0]
    lines[at] = f"{key}= {WRONG_VALUES[rng.integers(len(WRONG_VALUES))]}"
    return "\n".join(lines) + "\n"


def _unknown_key(text: str, rng: np.random.Generator) -> str:
    lines = text.splitlines()
    at = rng.choice(_lines_with_values(lines))
    lines[at] = f"not_a_{lines[at].lstrip()}"
    return "\n".join(lines) + "\n"


def _lost_line(text: str, rng: np.random.Generator) -> str:
    lines = text.splitlines()
    del lines[rng.integers(len(lines))]
    return "\n".join(lines) + "\n"


def _twice(text: str, rng: np.random.Generator) -> str:
    lines = text.splitlines()
    at = rng.choice(_lines_with_values(lines))
    return "\n".join([*lines[: at + 1], lines[at], *lines[at + 1 :]]) + "\n"


def _flipped(content: bytes, rng: np.random.Generator) -> bytes:
    changed = bytearray(content)
    for at in rng.integers(len(changed), size=3):
        changed[at] ^= 1 << rng.integers(8)
    return bytes(changed)


def _truncated(content: bytes, rng: np.random.Generator) -> bytes:
    return content[: rng.integers(len(content))]


ANY_FILE = {
    "truncated": _truncated,
    "bits flipped": _flipped,
    "empty file": lambda content, rng: b"",
    "HTML saved as data": lambda content, rng: HTML,
    "random bytes": lambda content, rng: rng.bytes(200),
    "null bytes": lambda content, rng: bytes(300),
    "UTF-16": lambda content, rng: content.decode("utf-8").encode("utf-16"),
}
CONFIG_TEXT = {
    "wrong value": _wrong_value,
    "unknown key": _unknown_key,
    "line lost": _lost_line,
    "key twice": _twice,
}
CONFIG_KINDS = ("config as it is", *CONFIG_TEXT, *ANY_FILE, "compressed", "--set", "a directory")


def config_call(kind: str, number: int) -> tuple[int, Call]:
    """Return the call of the command on a config broken in the way of `kind`."""
    rng = np.random.default_rng(number)
    path = CONFIGS[rng.integers(len(CONFIGS))]
    content, options = path.read_bytes(), []
    if kind in CONFIG_TEXT:
        content = CONFIG_TEXT[kind](content.decode("utf-8"), rng).encode("utf-8")
    elif kind in ANY_FILE:
        content = ANY_FILE[kind](content, rng)
    elif kind == "compressed":
        content = gzip.compress(content)
    elif kind == "--set":
        lines = content.decode("utf-8").splitlines()
        key = lines[rng.choice(_lines_with_values(lines))].partition("=")[0].strip()
        options = ["--set", f"{key}={WRONG_VALUES[rng.integers(len(WRONG_VALUES))]}"]
    return number, Call(path.name, kind, lambda: _command(content, options, kind == "a directory"))


def _command(content: bytes, options: list[str], is_directory: bool) -> object:
    from experiments import __main__, commands

    def not_run(*arguments):
        return dataclasses.replace(experiment(*arguments), run=lambda settings, context: [])

    experiment, said = commands.load_experiment, io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        config = Path(folder) / "config.toml"
        config.mkdir() if is_directory else config.write_bytes(content)
        out = Path(folder) / "out" / "results"
        stack.enter_context(mock.patch.dict(os.environ))
        stack.enter_context(mock.patch.object(commands, "load_experiment", not_run))
        stack.enter_context(contextlib.redirect_stderr(said))
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        code = __main__.main([str(config), "--scale", "smoke", "--out", str(out), *options])
        strays = [p for p in Path(folder).rglob("*") if p.is_file() and out not in p.parents]
        if strays not in ([], [config]):
            raise RuntimeError(f"files outside the output folder: {strays}")
    if code == 0:
        return ()
    if code != 2:
        raise RuntimeError(f"exit code {code}")
    return Said(said.getvalue())


DATA_FILES = (
    "data.txt",
    "index_features.txt",
    "index_target.txt",
    "n_splits.txt",
    "index_train_0.txt",
    "SHA256SUMS",
)
DATA_KINDS = (
    "data as they are",
    *ANY_FILE,
    "truncated gzip",
    "gzip of a web page",
    "no gzip at all",
    "file missing",
    "words for numbers",
    "huge numbers",
)


def data_call(kind: str, number: int) -> tuple[int, Call]:
    """Return the call of the reader of a data set with one file broken in the way of `kind`."""
    rng = np.random.default_rng(number)
    name = DATA_FILES[rng.integers(len(DATA_FILES))]
    is_listed = bool(rng.integers(2))
    return number, Call(name, kind, lambda: _read(kind, name, is_listed, rng))


def _read(kind: str, name: str, is_listed: bool, rng: np.random.Generator) -> object:
    from experiments import datasets
    from experiments.errors import InputError

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        sets = root / "uci" / "yacht"
        sets.mkdir(parents=True)
        table = rng.normal(size=(6, 3))
        _write(sets / "data.txt", table)
        _write(sets / "index_features.txt", np.arange(2))
        _write(sets / "index_target.txt", np.array([2]))
        _write(sets / "n_splits.txt", np.array([1]))
        _write(sets / "index_train_0.txt", np.arange(5))
        _write(sets / "index_test_0.txt", np.array([5]))
        if not is_listed:
            _list_sums(root)
        path = root / name if name == "SHA256SUMS" else sets / name
        if is_listed and name == "SHA256SUMS":
            _list_sums(root)
        _break(path, kind, rng)
        if is_listed and name != "SHA256SUMS":
            _list_sums(root)
        empty = str(root / "cache")
        with (
            mock.patch.dict(os.environ, JAXBNN_DATA=folder, XDG_CACHE_HOME=empty),
            mock.patch("experiments.fetch._retrieve", side_effect=_offline),
        ):
            try:
                split = datasets.uci("yacht", 0)
            except InputError as error:
                return Said(str(error))
    if not all(np.isfinite(part).all() and part.size for part in split):
        raise RuntimeError("data that are not finite, or none")
    return ()


def _offline(url: str, name: str) -> bytes:
    from experiments.fetch import MissingDataError

    raise MissingDataError(f"{name} is not here, and there is no network.")


def _write(path: Path, table: np.ndarray) -> None:
    np.savetxt(path, table)


def _list_sums(root: Path) -> None:
    files = [path for path in root.rglob("*") if path.is_file() and path.name != "SHA256SUMS"]
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(root)}\n"
        for path in files
    ]
    (root / "SHA256SUMS").write_text("".join(lines))


def _break(path: Path, kind: str, rng: np.random.Generator) -> None:
    content = path.read_bytes() if path.exists() else b"0  nothing\n"
    zipped = path.with_name(path.name + ".gz")
    if kind in ANY_FILE:
        path.write_bytes(ANY_FILE[kind](content, rng))
    elif kind == "file missing":
        path.unlink(missing_ok=True)
    elif kind == "words for numbers":
        path.write_bytes(content.replace(b"e", b"x", 1))
    elif kind == "huge numbers":
        path.write_bytes(content.replace(b"e+00", b"e+400", 2))
    elif kind != "data as they are" and path.name != "SHA256SUMS":
        path.unlink()
        whole = gzip.compress(HTML if kind == "gzip of a web page" else content)
        zipped.write_bytes(_truncated(whole, rng) if kind == "truncated gzip" else whole)
        if kind == "no gzip at all":
            zipped.write_bytes(content)


def _strategy(make, kinds) -> st.SearchStrategy:
    pairs = st.tuples(st.sampled_from(kinds), st.integers(0, 2**32 - 1))
    return pairs.map(lambda pair: make(*pair))


FAMILIES = {
    "config files": _strategy(config_call, CONFIG_KINDS),
    "data files": _strategy(data_call, DATA_KINDS),
}
