"""Tests of numerics.jaxlib_faults: sums as XLA compiles them by default, and the warning."""

import operator
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbnn.numerics.jaxlib_faults import WRONG_SUMS, warn_of_wrong_sums
from jaxbnn.tabular.posteriors import make_posterior
from jaxbnn.tabular.settings import Settings


def products_and_sums():
    for num_rows in (16_385, 32_769, 40_000):
        x = np.zeros((num_rows, 3), np.float32)
        x[:, 0] = np.arange(num_rows)
        squares = jax.jit(jax.vmap(lambda row: jnp.sum(jnp.square(jnp.eye(3) @ row))))
        np.testing.assert_allclose(squares(x), np.square(x[:, 0]), rtol=1e-6)


def densities_of_classes():
    """What `fit` samples, of 3,200 rows in three classes: now and then NaN in jaxlib 0.10.2."""
    rng = np.random.default_rng(0)
    x, y = np.float32(rng.normal(size=(3200, 9))), np.int32(rng.integers(3, size=3200))
    settings = Settings("nuts", (50,), 4, 10, 10, 0.3, 0, "categorical")
    posterior = make_posterior("nuts", settings, x, y, 3)
    chains = posterior.sample_prior(jax.random.key(0), (4,))
    start = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape[1:], leaf.dtype), chains)
    density = jax.jit(lambda p, chains: jax.vmap(p.log_density_from(start))(chains))
    one_by_one = [
        posterior.log_density(jax.tree.map(operator.itemgetter(chain), chains))
        - posterior.log_density(start)
        for chain in range(4)
    ]
    for _ in range(20):
        np.testing.assert_allclose(density(posterior, chains), one_by_one, rtol=1e-3)


@pytest.mark.short("products_and_sums")
@pytest.mark.parametrize("check", [products_and_sums, densities_of_classes])
def test_what_is_compiled_as_users_do_is_right(check):
    """Not so in jaxlib 0.10.2; in a process of its own, since tests compile with other flags."""
    environment = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    environment |= {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "false"}
    program = f"from tests.numerics.test_jaxlib_faults import {check.__name__} as f; f()"
    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[2],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert not result.returncode, result.stderr


def test_a_release_with_wrong_sums_is_told_unless_its_flag_is_set(monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    with pytest.warns(UserWarning, match=r"jaxlib 0\.10\.2 computes some sums wrongly"):
        warn_of_wrong_sums("0.10.2")
    monkeypatch.setenv("XLA_FLAGS", "--a=1 --xla_cpu_experimental_ynn_fusion_type=")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_wrong_sums("0.10.2")
        monkeypatch.delenv("XLA_FLAGS")
        warn_of_wrong_sums()  # the one that the tests run with


def test_the_requirements_refuse_the_same_releases():
    """Also of the packages that benchmarks compare with, which run on JAX too."""
    root = Path(__file__).parents[2]
    for path in ("pyproject.toml", "experiments/benchmarks/peers.py"):
        refused = ",".join(f"!={version}" for version in WRONG_SUMS)
        assert re.search(rf'"jaxlib[^"]*{re.escape(refused)}"', (root / path).read_text("utf-8"))
