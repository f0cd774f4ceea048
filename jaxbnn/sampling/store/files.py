"""Files that are whole or not there, and a folder that one run at a time may write to.

The arrays of a file are NetCDF 4 (HDF5): xarray, netCDF4, R and Julia read it, and nothing in
it can be executed. Behind them stands a digest of the file, which those readers pass over.
"""

import contextlib
import functools
import hashlib
import io
import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxbnn.sampling.devices.hosts import Hosts

FORMAT = "jaxbnn checkpoint 1"
_ALONE = Hosts()
# NetCDF has no such types: what each is written as, under an attribute that names it.
_STANDS_FOR = {"bool": "int8", "float16": "uint16", "bfloat16": "uint16"}
_MARK = b"SHA-256:"
_DIGEST_BYTES = 32


class BadCheckpoint(ValueError):
    """A checkpoint that `open_draws` or `sample` cannot go on from: torn, or another run's."""


class CheckpointNotWritten(OSError):
    """A checkpoint folder of `sample` without room or permission, or held by another run."""


@contextlib.contextmanager
def locked(folder: Path, hosts: Hosts = _ALONE) -> Iterator[None]:
    """Hold the folder for this run, which it makes if need be; a killed run lets go of it.

    Of several processes the first takes the folder, and all hold it until the last one ends.
    """
    with contextlib.ExitStack() as stack:
        token = uuid.uuid4().hex
        with hosts.together():
            if hosts.is_first:
                lock = stack.enter_context(_held(folder, is_shared=False))
                if hosts.num_processes > 1:
                    os.pwrite(lock, token.encode(), 0)
                    _lock(folder, lock, is_shared=True)
        if hosts.num_processes > 1:
            token = hosts.exchange(token)[0]
            with hosts.together():
                if not hosts.is_first:
                    _check_token(folder, token)
                    stack.enter_context(_held(folder, is_shared=True))
            if hosts.is_first:
                os.ftruncate(lock, 0)
        yield


@contextlib.contextmanager
def _held(folder: Path, *, is_shared: bool) -> Iterator[int]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise CheckpointNotWritten(
            f"cannot write to the checkpoint folder {folder} ({error.strerror}); give one that "
            "can be written to."
        ) from None
    try:
        _lock(folder, lock, is_shared=is_shared)
        yield lock
    finally:
        os.close(lock)


def _lock(folder: Path, lock: int, *, is_shared: bool) -> None:
    import fcntl

    try:
        fcntl.flock(lock, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError:
        raise CheckpointNotWritten(
            f"another run is writing to the checkpoint folder {folder}; wait for its end or "
            "give this run a folder of its own."
        ) from None


def _check_token(folder: Path, token: str) -> None:
    try:
        is_seen = (folder / "lock").read_text() == token
    except OSError:
        is_seen = False
    if not is_seen:
        raise CheckpointNotWritten(
            f"the checkpoint folder {folder} is not the one that process 0 writes to; give one on "
            "a disk that all processes share, by its whole path."
        )


def write_whole(path: Path, content: bytes) -> None:
    """Write a file under a temporary name, bring it to the disk, and only then rename it."""
    temporary = path.with_name(path.name + ".part")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        try:
            for part in (content, _MARK + hashlib.sha256(content).digest()):
                view = memoryview(part)
                while view:
                    view = view[os.write(handle, view) :]
            os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(temporary, path)
        # The name itself must reach the disk before anything that refers to it does.
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise CheckpointNotWritten(
            f"cannot write {path} ({error.strerror}); what was written before is whole: make room "
            "for it and call again with the same arguments."
        ) from None


def encode(
    arrays: Mapping[str, np.ndarray], dims: Mapping[str, tuple[str, ...]], text: Mapping[str, str]
) -> bytes:
    """Return arrays as the bytes of a NetCDF 4 file; `text` becomes its attributes.

    `dims` names the leading axes of each array; further ones are named after the array.
    """
    h5netcdf = _h5netcdf()
    buffer = io.BytesIO()
    with h5netcdf.File(buffer, "w") as file:
        file.attrs.update(text)
        for name, array in arrays.items():
            written = _STANDS_FOR.get(array.dtype.name)
            if written is None and array.dtype.kind not in "iuf":
                raise ValueError(
                    f"a checkpoint cannot hold {name}, of dtype {array.dtype}; collect it as "
                    "floats, whole numbers or booleans."
                )
            if written == "int8":
                stored = array.astype(np.int8)
            else:
                stored = array if written is None else array.view(written)
            axes = dims.get(name, ())
            axes = axes + tuple(f"{name}_axis{axis}" for axis in range(len(axes), array.ndim))
            for axis, size in zip(axes, array.shape, strict=True):
                if axis not in file.dimensions:
                    file.dimensions[axis] = size
            variable = file.create_variable(name, axes, stored.dtype, data=stored)
            if written is not None:
                variable.attrs["dtype"] = array.dtype.name
    return buffer.getvalue()


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Open a file that `write_whole` wrote; one sentence if it is missing, torn or another's."""
    h5netcdf = _h5netcdf()
    try:
        about = path.stat()
        _check_whole(path, about.st_size, about.st_mtime_ns, about.st_ino)
        with h5netcdf.File(path, "r") as file:
            yield file
    except FileNotFoundError:
        raise BadCheckpoint(
            f"{path} is missing, without which the checkpoint is not whole; restore it from a "
            "copy or start anew in an empty folder."
        ) from None
    except BadCheckpoint:
        raise
    except (OSError, KeyError, RuntimeError, TypeError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].strip("'\"")
        raise BadCheckpoint(f"{path} cannot be read ({reason}); {_WAY_OUT}.") from None


_WAY_OUT = "restore it from a copy or start anew in an empty folder"


@functools.lru_cache(maxsize=2**16)  # a file is looked through once a process, or once changed
def _check_whole(path: Path, size: int, changed: int, inode: int) -> None:
    num_left = size - len(_MARK) - _DIGEST_BYTES
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while num_left > 0 and (part := file.read(min(num_left, 2**20))):
            digest.update(part)
            num_left -= len(part)
        end = file.read()
    if end != _MARK + digest.digest():
        reason = "torn or changed" if end.startswith(_MARK) else "torn, or no file of a checkpoint"
        raise BadCheckpoint(f"{path} is {reason}: its digest does not match; {_WAY_OUT}.")


def check_format(path: Path, file: Any) -> None:
    """Refuse a file of another form."""
    if file.attrs.get("format") != FORMAT:
        raise BadCheckpoint(f"{path} is not of the form {FORMAT!r}; start anew elsewhere.")


def read(file: Any, name: str, index: Any = ...) -> np.ndarray:
    """Return one array of an open file, or a part of it, as it was given to `encode`."""
    variable = file.variables[name]
    stored = np.asarray(variable[index])
    given = variable.attrs.get("dtype")
    if given is None:
        return stored
    if given not in _STANDS_FOR:
        raise ValueError(f"unknown dtype {given!r}")
    return stored.astype(bool) if given == "bool" else stored.view(jnp.dtype(given))


def _h5netcdf() -> Any:
    try:
        import h5netcdf
        import h5py  # noqa: F401 - what h5netcdf writes with
    except ImportError:
        raise ImportError(
            "checkpoints need h5netcdf and h5py, not installed here: "
            "pip install 'jaxbnn[checkpoint]'."
        ) from None
    return h5netcdf
