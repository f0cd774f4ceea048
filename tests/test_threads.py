"""Tests of jaxbnn._threads: programs of two cores that factorise two batches of matrices end."""

import os
import subprocess
import sys

import pytest

from jaxbnn import _threads

# With two threads this waits for ever in jaxlib 0.10.0 and 0.10.1, each call in one of two tries.
_PROGRAM = """
import os
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
import jaxbnn, jax, jax.numpy as jnp
def root(a):
    return jnp.linalg.cholesky(a @ a.T + jnp.eye(200))
def chain(a):
    return jax.lax.fori_loop(0, 3, lambda i, a: jnp.tanh(root(a) + root(a + 1) + i), a)
chains = jax.jit(jax.vmap(chain))
starts = jax.random.normal(jax.random.key(0), (4, 200, 200))
for shift in range(30):
    assert jnp.isfinite(chains(starts + shift)).all()
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores are chosen on Linux only")
def test_two_batches_of_matrices_are_factorised_on_two_cores():
    environment = {
        k: v
        for k, v in os.environ.items()
        if k not in ("XLA_FLAGS", "PJRT_NPROC", "JAXBNN_SET_PJRT_NPROC")
    }
    environment |= {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "false"}
    command = [sys.executable, "-c", _PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("cores", "given", "expected"),
    [
        (1, {}, None),
        (2, {}, "4"),
        (3, {}, "4"),
        (4, {}, None),
        (2, {"PJRT_NPROC": "2"}, "2"),
        (2, {"NPROC": "2"}, None),
        # Of a process with two or three cores that started this one.
        (1, {"PJRT_NPROC": "4", "JAXBNN_SET_PJRT_NPROC": "yes"}, None),
        (2, {"PJRT_NPROC": "4", "JAXBNN_SET_PJRT_NPROC": "yes"}, "4"),
    ],
)
def test_few_cores_get_four_threads_unless_the_user_says_how_many(
    monkeypatch, cores, given, expected
):
    for name in ("PJRT_NPROC", "NPROC", "JAXBNN_SET_PJRT_NPROC"):
        monkeypatch.setenv(name, "")  # put back as it was afterwards
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(_threads, "_cores", lambda: cores)
    _threads.spare_threads()
    assert os.environ.get("PJRT_NPROC") == expected
