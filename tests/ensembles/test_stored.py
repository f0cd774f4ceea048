"""Tests of ensembles.fingerprint and sampling.store.training: training that goes on is the training
never stopped.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import numpyro.distributions as dist
import optax
import pytest

import jaxbnn
from jaxbnn.ensembles import optimised_starts
from jaxbnn.ensembles import training as module
from jaxbnn.sampling import BadCheckpoint, CheckpointNotWritten
from jaxbnn.sampling.store.files import locked
from jaxbnn.sampling.store.state import read_state
from jaxbnn.targets import Gaussian, Posterior
from tests.kit.bits import assert_same
from tests.sampling.small_run import stop_after

pytestmark = pytest.mark.third_party(reason="Optax adds whole numbers to floats")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 2)).astype(np.float32)
Y = (np.sin(2 * X[:, 0]) + 0.3 * RNG.normal(size=30)).astype(np.float32)
NETWORK = jaxbnn.mlp((2, 6, 1), "tanh")
ADAM = optax.adam(0.05)
GAUSSIAN = Gaussian(0.5)


def run(folder, progress=False, *, y=Y, likelihood=GAUSSIAN, prior=1.0, **options):
    posterior = Posterior(NETWORK, dist.Normal(0.0, prior), likelihood, X, y)
    options = {"optimizer": ADAM, "batch_size": 8, "patience": 12, "max_epochs": 60} | options
    key = options.pop("key", jax.random.key(2))
    return optimised_starts(
        key,
        posterior,
        options.pop("num_chains", 3),
        checkpoint=folder,
        progress=progress,
        **options,
    )


@pytest.fixture(scope="module")
def whole():
    return run(None)


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    """A training that was stopped after some epochs; to be copied."""
    folder = tmp_path_factory.mktemp("half")
    with pytest.raises(KeyboardInterrupt):
        run(folder, stop_after(3))
    return folder


@pytest.fixture
def folder(half, tmp_path):
    return shutil.copytree(half, tmp_path / "run")


def test_it_goes_on_where_it_was_bit_for_bit(folder, whole, monkeypatch):
    assert whole.num_epochs.max() > 20
    assert len(set(whole.num_epochs.tolist())) > 1
    epochs = read_state(folder, "training.nc")[0]["done"]
    assert 3 <= epochs < whole.num_epochs.max()
    seen = []
    # Chunks of another length: one epoch each.
    monkeypatch.setattr(module, "_SECONDS_OF_A_CHUNK", 0.0)
    assert_same(run(folder, seen.append), whole)
    assert [p.done for p in seen[:2]] == [3 * (epochs + 1), 3 * (epochs + 2)]  # of three batches
    assert seen[-1].done == seen[-1].total == 3 * whole.num_epochs.max()


def test_a_finished_training_is_read_back(folder, whole):
    run(folder)
    before = (folder / "training.nc").read_bytes()
    seen = []
    assert_same(run(folder, seen.append), whole)
    assert seen == []
    assert (folder / "training.nc").read_bytes() == before
    assert {path.name for path in folder.iterdir()} == {"lock", "training.nc"}


def test_more_epochs_go_on_from_fewer(tmp_path, whole):
    run(tmp_path, max_epochs=9)
    assert_same(run(tmp_path), whole)
    with pytest.raises(BadCheckpoint, match="but max_epochs is 9; ask for as many or more"):
        run(tmp_path, max_epochs=9)


def test_a_kill_while_writing_loses_that_chunk_only(folder, whole):
    (folder / "training.nc.part").write_bytes(b"half a fi")
    assert_same(run(folder), whole)


@pytest.mark.long
def test_another_process_goes_on_after_a_kill(tmp_path, whole):
    """Killed while it trains, by a process with another order of Python's sets."""
    program = f"""
import os, signal
from tests.ensembles.test_stored import run
def report(progress):
    if progress.done >= 21:
        os.kill(os.getpid(), signal.SIGKILL)
run({str(tmp_path)!r}, report)
"""
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, env=environment)
    assert done.returncode == -signal.SIGKILL
    assert read_state(tmp_path, "training.nc")[0]["done"] >= 7
    assert_same(run(tmp_path), whole)


@pytest.mark.short("data", "patience", "optimiser")
@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"y": Y + 1}, "posterior or data set"),
        ({"prior": 2.0}, "posterior or data set"),
        ({"key": jax.random.key(3)}, "key and another set of positions"),
        ({"batch_size": 9}, "batch_size"),
        ({"patience": 13}, "patience"),
        ({"validation": 0.2}, "validation"),
        ({"num_chains": 2}, "num_chains"),
        ({"optimizer": optax.adam(0.04)}, "program"),
        ({"likelihood": jaxbnn.targets.Laplace(0.5)}, "program"),
    ],
    ids=[
        *("data", "prior", "key", "batch", "patience", "validation", "chains"),
        *("optimiser", "likelihood"),
    ],
)
def test_another_training_is_refused(half, options, part):
    before = (half / "training.nc").read_bytes()
    with pytest.raises(BadCheckpoint, match=f"belongs to a training with another .*{part}") as e:
        run(half, **options)
    assert "\n" not in str(e.value)
    assert (half / "training.nc").read_bytes() == before


def injected(rate):
    return optax.inject_hyperparams(optax.adam)(learning_rate=rate)


def adagrad(start):
    return optax.adagrad(0.1, initial_accumulator_value=start)


@pytest.mark.short("adagrad")
@pytest.mark.parametrize(
    ("optimizer", "first", "other", "part"),
    [
        (injected, 1e-3, 1.0, "first state of the optimiser; call"),
        (adagrad, 1e-3, 1.0, "first state of the optimiser; call"),
        (adagrad, 1e-3, 0.0, "program (network, likelihood or optimiser); call"),
        (adagrad, 0.0, 1e-3, "first state of the optimiser"),
    ],
    ids=["injected", "adagrad", "to zeros", "from zeros"],
)
def test_another_first_state_of_the_optimiser_is_refused(tmp_path, optimizer, first, other, part):
    """Which the program's text does not show."""
    begun = run(tmp_path, optimizer=optimizer(first), max_epochs=2)
    with pytest.raises(BadCheckpoint, match=f"with another .*{re.escape(part)}"):
        run(tmp_path, optimizer=optimizer(other), max_epochs=4)
    assert_same(run(tmp_path, optimizer=optimizer(first), max_epochs=2), begun)


def test_a_first_state_of_zeros_is_no_part(half):
    """So that files from before it was one go on, Adam's among them."""
    stored = read_state(half, "training.nc")[0]["fingerprint"]
    assert "first state of the optimiser" not in stored


def test_torn_and_foreign_files_are_refused(folder):
    content = (folder / "training.nc").read_bytes()
    (folder / "training.nc").write_bytes(content[:-40])
    with pytest.raises(BadCheckpoint, match=r"training.nc is torn"):
        run(folder)


def test_a_folder_in_use_is_refused(folder):
    with (
        locked(folder),
        pytest.raises(CheckpointNotWritten, match="another run is writing to the checkpoint"),
    ):
        run(folder)
