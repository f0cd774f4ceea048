"""Tests of experiments.studies.ensembles.clock: compiling is not counted, work is,
and what an earlier process began has no cost."""

import time

import jax
import jax.numpy as jnp
import numpy as np

from experiments.studies.ensembles.clock import Clock


def test_compiling_is_not_counted_and_work_is():
    def slow_to_compile(x):
        for _ in range(30):
            x = jnp.linalg.solve(jnp.eye(3) + jnp.outer(x, x), jnp.sin(x))
        return x

    jnp.arange(3.0)  # small programs of its own
    known, begun = Clock._compiling, time.process_time()
    clock = Clock()
    jax.block_until_ready(jax.jit(slow_to_compile)(jnp.arange(3.0)))
    counted, whole = clock.seconds(), time.process_time() - begun
    compiled = Clock._compiling - known
    assert compiled > 0.05
    assert counted <= max(whole - compiled, 0) + 0.01
    while clock.seconds() < counted + 0.1:
        assert time.process_time() - begun < whole + 10
    known = Clock._compiling
    Clock.heard("/jax/another_event", 100.0)
    assert Clock._compiling == known


def test_what_an_earlier_process_began_has_no_cost(tmp_path):
    folder = tmp_path / "stage"
    clock = Clock(folder)
    folder.mkdir()  # as the stage itself does
    assert clock.seconds() >= 0
    assert np.isnan(Clock(folder).seconds())
