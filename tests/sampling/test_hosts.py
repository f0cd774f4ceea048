"""The same run in one process and in several: keys, draws and steps, and what goes wrong."""

import json
import time
from pathlib import Path

import numpy as np
import pytest

from jaxbnn.cli import main
from jaxbnn.sampling import open_draws
from tests.sampling import hosts_program as program
from tests.sampling.rounding_limits import limit_of
from tests.sampling.small_run import same

ROOT = Path(__file__).parents[2]
REFUSALS = {
    "none": "each of {count} processes would make the whole run; give sample mesh=",
    "part": "mesh has devices of",
    "uneven": "3 chains cannot be spread evenly over {count} devices",
    "start": "process 1 was called with another set of positions than process 0; start all",
    "number": "process 1 was called with another chunk_size than process 0",
    "validation": "process 1 stopped the run: positions of chain 0 is not finite",
    "folder": "process 1 stopped the run: the checkpoint folder",
    "debug": "debug mode runs in one process",
}


WHEN = ["before", "midway", "after"]


@pytest.fixture
def in_processes(monkeypatch, capfd):
    """Run the program in several processes; returns the exit status, what it told, and errors."""

    def start(count, *arguments):
        path = ROOT / "tests/sampling/hosts_program.py"
        status = main(["hosts", "--processes", str(count), str(path), *map(str, arguments)])
        out, err = capfd.readouterr()
        told = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        return status, told, err

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    return start


def check(told, count):
    for case, value in told["steps"].items():
        name, *rest = case.split()
        assert value <= (0 if name in ("elementwise", "keys") else limit_of(name, rest[0])), case
    for case, message in REFUSALS.items():
        assert message.format(count=count) in told["refusals"][case], told["refusals"]


def test_two_processes_and_a_kill(in_processes, tmp_path):
    """One step to rounding, chains and data spread; what is wrong is told; a kill loses nothing."""
    folder = tmp_path / "run"
    status, (told,), err = in_processes(2, "short", folder, "1 9 midway")
    assert status == 1
    assert "error: process 1 of 2 was killed by SIGKILL, and the other one was ended" in err
    assert "Traceback" not in err
    check(told, 2)
    assert len(told["steps"]) == 2
    whole = program.stored(None, None)
    part = open_draws(folder)
    assert part.interrupted
    assert 0 < len(part.steps) < 12
    np.testing.assert_array_equal(part.positions, whole.positions[:, : len(part.steps)])
    assert len(list(folder.glob("draws-*.shard-*-of-2.nc"))) >= 2
    same(program.stored(folder, None), whole)
    same(open_draws(folder), whole)


def test_a_script_that_fails_in_one_process_ends_the_others(tmp_path, capfd):
    script = tmp_path / "script.py"
    script.write_text("import sys, jax\nif jax.process_index() == 1: sys.exit(f'no {sys.argv[1]}')")
    begun = time.monotonic()
    assert main(["hosts", "--processes", "2", str(script), "data"]) == 1
    err = capfd.readouterr().err
    assert "[1] no data\n" in err
    assert err.endswith(
        "error: process 1 of 2 failed with exit status 1, and the other one was ended.\n"
    )
    assert time.monotonic() - begun < 90  # JAX alone would wait for 100 seconds


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--processes", "0", "x.py"], "error: --processes must be at least 1, but is 0."),
        (["--processes", "2", "x.py"], "error: x.py is no file; give a Python script to run."),
    ],
)
def test_what_cannot_be_started_is_one_sentence(capsys, arguments, message):
    assert main(["hosts", *arguments]) == 2
    assert capsys.readouterr().err == message + "\n"


@pytest.mark.long
@pytest.mark.parametrize("count", [2, 4])
def test_processes_agree_with_one(in_processes, monkeypatch, tmp_path, count):
    """Whole runs of elementwise targets exactly, one step of real ones to rounding."""
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=0")
    status, told, err = in_processes(count, "long", tmp_path / "run")
    assert status == 0, err
    (told,) = told
    check(told, count)
    assert len(told["steps"]) == 20
    assert told["interrupted"] == [4, True, 8, True, 24, False]


@pytest.mark.long
@pytest.mark.parametrize("counts", [(2, 4, 1), (4, 2, 4), (4, 1, 2), (2, 2, 2)])
def test_killed_runs_go_on_in_any_number_of_processes(in_processes, tmp_path, counts):
    """Killed in warm-up or a write of any process, twice; the third goes to the end."""
    rng = np.random.default_rng(sum(n * 5**i for i, n in enumerate(counts)))
    whole = program.stored(None, None, **program.WHOLE)
    for count, most in zip(counts, ({0: 39, 1: 14}, {0: 5, 1: 5}), strict=False):
        is_other = int(rng.integers(min(count, 2)))
        index = is_other * count // 2  # one of those that write
        kill = f"{index} {rng.integers(1, most[is_other] + 1)} {rng.choice(WHEN)}"
        status, _, err = in_processes(count, "stored", tmp_path, kill)
        assert status == 1, kill
        assert f"process {index} of {count} was killed by SIGKILL" in err
    if counts[-1] == 1:
        same(program.stored(tmp_path, None, **program.WHOLE), whole)
    else:
        status, _, err = in_processes(counts[-1], "stored", tmp_path)
        assert status == 0, err
    same(open_draws(tmp_path), whole)
