"""Tests of sampling.pace: how many steps the host waits for, with a clock that we turn."""

import functools
import time
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import jaxbnn
from jaxbnn.sampling import pace as pace_module
from jaxbnn.sampling.pace import Pace
from tests.sampling.tiny import ar

COMPILING = 30.0


class Machine:
    """A machine whose steps take as long as is said, and whose first chunk is compiled first."""

    def __init__(self, monkeypatch, seconds_a_step, *, is_stored=False):
        self.now, self.seconds_a_step, self.made = 100.0, seconds_a_step, []
        # Not the module's own `time`, which is everybody's.
        monkeypatch.setattr(pace_module, "time", SimpleNamespace(perf_counter=lambda: self.now))
        self.pace = Pace(is_stored=is_stored)

    def run(self, count):
        self.now += count * self.seconds_a_step + (0.0 if self.made else COMPILING)
        self.made.append(count)
        self.pace.tick(count)

    def warm_up(self, total):
        while (left := total - sum(self.made)) > 0:
            self.run(self.pace.next_steps(left))
        return self.made

    def sample(self, gaps):
        """Run all records of a schedule; returns how many were made in each chunk."""
        done, records = 0, []
        while done < len(gaps):
            records.append(self.pace.next_records(gaps[done:]))
            self.run(int(gaps[done : done + records[-1]].sum()))
            done += records[-1]
        return records


@pytest.mark.parametrize("seconds", [1.0, 60.0])
def test_slow_steps_go_one_by_one(monkeypatch, seconds):
    assert Machine(monkeypatch, seconds).warm_up(6) == [1] * 6


def test_fast_steps_grow_to_a_second(monkeypatch):
    made = Machine(monkeypatch, 1 / 1024).warm_up(5000)
    assert made[:6] == [1, 1, 8, 64, 512, 1024]
    assert sum(made) == 5000
    assert max(made) == 1024


def test_records_far_apart_are_few(monkeypatch):
    gaps = np.full(300, 100)
    machine = Machine(monkeypatch, 1 / 256)
    records = machine.sample(gaps)
    # A record is never cut; the second one has told what a step takes.
    assert records[:4] == [1, 1, 2, 2]
    assert sum(records) == 300
    assert max(machine.made) <= 256


def test_a_schedule_that_thins_out_never_waits_much_longer_than_a_second(monkeypatch):
    gaps = np.diff(np.unique(np.geomspace(1, 200_000, 400).astype(int)), prepend=0)
    machine = Machine(monkeypatch, 1 / 128)
    records = machine.sample(gaps)
    assert sum(records) == len(gaps)
    alone = np.repeat(records, records) == 1
    assert all(count <= 128 for count, n in zip(machine.made, records, strict=True) if n > 1)
    assert alone[gaps > 128].all()


def test_chunks_of_a_checkpoint_grow_with_the_run(monkeypatch):
    machine = Machine(monkeypatch, 1.0, is_stored=True)
    made = machine.warm_up(20_000)
    assert made[:20] == [1] * 20
    assert 100 < max(made) <= 201  # a hundredth of the time so far
    assert len(made) < 1000


@functools.cache
def slow(seconds):
    """The kernel of `ar`, whose step takes at least so many seconds."""
    kernel = ar(0.5)

    def wait(x):
        time.sleep(seconds)
        return x

    def step(key, state):
        waited = jax.pure_callback(
            wait, jax.ShapeDtypeStruct((), np.float32), np.float32(0), vmap_method="sequential"
        )
        new, info = kernel.step(key, state)
        return new._replace(position=new.position + waited), info

    return kernel._replace(step=step)


@pytest.mark.parametrize("phase", ["warm-up", "sampling"])
def test_ctrl_c_waits_for_a_step_and_not_for_many(phase):
    seen = []

    def report(progress):
        seen.append(progress)
        if progress.phase == phase:
            raise KeyboardInterrupt

    num_warmup = 50 if phase == "warm-up" else 0
    starts = np.zeros((1, 2), np.float32)
    draws = jaxbnn.sample(
        jax.random.key(0), slow(0.4), starts, 50, num_warmup=num_warmup, progress=report
    )
    assert draws.interrupted
    assert [p.done for p in seen] == [1]
    assert len(draws.steps) == (1 if phase == "sampling" else 0)
