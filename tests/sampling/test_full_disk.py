"""Tests of sampling.store.files and sampling.store.state: disks that are full or cannot be
written to, and two runs in one folder: nothing is damaged.
"""

import contextlib
import errno
import os
import tempfile
from pathlib import Path

import jax
import pytest

from jaxbnn.sampling import open_draws
from tests.sampling.small_run import run, same, stop_after


@pytest.fixture(scope="module")
def whole():
    return run(None)


@pytest.mark.short("9000")
@pytest.mark.parametrize("room", [0, 9_000, 90_000])
def test_a_full_disk_is_told_and_the_run_goes_on_later(tmp_path, whole, monkeypatch, room):
    """Writes that stop after so many bytes, the last of them cut short."""
    left, write = [room], os.write

    def write_what_fits(handle, content):
        if left[0] == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        number = write(handle, memoryview(content)[: left[0]])
        left[0] -= number
        return number

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", write_what_fits)
        with pytest.raises(OSError, match=r"cannot write .*\.nc \(No space left on device\)"):
            run(tmp_path)
    assert not list(tmp_path.glob("*.part"))
    if room > 9_000:
        stored = open_draws(tmp_path)
        assert stored.positions is None or (
            stored.positions["w"][...].tobytes()
            == whole.positions["w"][:, : len(stored.steps)].tobytes()
        )
    same(run(tmp_path), whole)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_disk_that_fails_is_told(tmp_path, whole, monkeypatch, call):
    calls, real = [], getattr(os, call)

    def fail(*args):
        calls.append(args)
        if len(calls) == 9:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(*args)

    with monkeypatch.context() as patched:
        patched.setattr(os, call, fail)
        with pytest.raises(OSError, match=r"cannot write .*\.nc \(Input/output error\)"):
            run(tmp_path)
    same(run(tmp_path), whole)


def test_two_runs_do_not_share_a_folder(tmp_path, whole):
    refused = []

    def start_another(progress):
        with pytest.raises(OSError, match="another run is writing to the checkpoint folder"):
            run(tmp_path, key=jax.random.key(1))
        refused.append(progress)

    same(run(tmp_path, start_another), whole)
    assert len(refused) == 9
    same(open_draws(tmp_path), whole)


def test_a_folder_that_is_a_file(tmp_path):
    (tmp_path / "mine").write_text("text")
    for folder in (tmp_path / "mine", tmp_path / "mine" / "run"):
        with pytest.raises(OSError, match="cannot write to the checkpoint folder"):
            run(folder)
    assert (tmp_path / "mine").read_text() == "text"


@contextlib.contextmanager
def not_root():
    """Permissions bind everyone but root."""
    user = os.geteuid()
    try:
        if user == 0:
            os.seteuid(65_534)
        yield
    finally:
        os.seteuid(user)


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_folder_that_cannot_be_written_to(whole, has_begun):
    # Not in tmp_path, which nobody but its owner can enter.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if has_begun:
            run(folder, stop_after(5))
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        folder.chmod(0o555)
        with not_root(), pytest.raises(OSError, match=r"cannot write .* \(Permission denied\)"):
            run(folder)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
        if has_begun:
            with not_root():
                assert len(open_draws(folder).steps) == 18  # reading needs no lock
        folder.chmod(0o755)
        same(run(folder), whole)
