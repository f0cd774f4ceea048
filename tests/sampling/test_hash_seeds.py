"""Tests of sampling.store.fingerprint and sampling.order: a stored run is resumed by another
process, whose hash seed orders NumPyro's fields otherwise.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

from jaxbnn.sampling.order import ordered, restored
from tests.sampling import hash_seed_program as program

ROOT = Path(__file__).parents[2]


def in_process(hash_seed, *arguments):
    command = [sys.executable, "-m", "tests.sampling.hash_seed_program", *map(str, arguments)]
    environment = os.environ | {"PYTHONHASHSEED": str(hash_seed)}
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


# NumPyro's own code runs under standard promotion.
@pytest.mark.long
@pytest.mark.third_party
@pytest.mark.parametrize("size", ["short", pytest.param("long", marks=pytest.mark.long)])
def test_another_hash_seed_resumes_bit_for_bit(tmp_path, size):
    stopped = in_process(1, tmp_path, "stop", size)
    finished = in_process(2, tmp_path, "finish", size)
    assert finished == program.digests(str(tmp_path), "whole", size)
    assert len(finished) == (1 if size == "short" else 9)
    assert all(stopped[name] != finished[name] for name in finished)  # there was something left
    assert all(len(one) == 64 for one in finished.values()), finished


@pytest.mark.third_party
@pytest.mark.parametrize(
    "distribution",
    [
        dist.StudentT(4.0, 0.0, np.arange(1.0, 4.0)),
        dist.Independent(dist.Normal(np.zeros(3), 1.0).expand((3,)), 1),
        dist.LogNormal(np.zeros(2), 1.0),
        dist.MaskedDistribution(dist.Cauchy(np.zeros(2), 1.0), np.array([True, False])),
        dist.MultivariateNormal(np.zeros(2), np.eye(2)),
    ],
)
def test_ordered_fields_make_the_same_distribution(distribution):
    tree = {"x": [distribution, np.ones(2)], "y": None}
    fields = ordered(tree)
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(fields)]
    assert paths == sorted(paths)
    again = restored(fields)
    assert jax.tree.structure(again) == jax.tree.structure(tree)
    for leaf, other in zip(jax.tree.leaves(again), jax.tree.leaves(tree), strict=True):
        np.testing.assert_array_equal(leaf, other)
    key = jax.random.key(0)
    np.testing.assert_array_equal(again["x"][0].sample(key), distribution.sample(key))
    again = jax.jit(lambda fields: ordered(restored(fields)))(fields)
    assert jax.tree.structure(again) == jax.tree.structure(fields)
