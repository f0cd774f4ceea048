"""Tests of experiments.studies.thermalization.traps: what holds a chain is named."""

import jax
import numpy as np
import pytest

from experiments.studies.thermalization.traps import HEADER, traps
from jaxbnn.networks import mlp, parameter_shapes

WIDTHS = (20, 4, 1)


def chains(rng, *changes):
    """Return an informed chain and one a change, each with its units in another order."""
    w, v = rng.normal(size=(20, 4)), np.array([[0.5], [1.0], [-2.0], [4.0]])
    found = []
    for change in (None, *changes):
        into, out = w.copy(), v.copy()
        if change is not None:
            change(into, out)
        order = rng.permutation(4)
        scale = rng.uniform(0.5, 2, 4)  # ReLU's own, which changes nothing
        into, out = (into * scale)[:, order], (out / scale[:, None])[order]
        params = ({"w": into, "b": np.zeros(4)}, None, {"w": out, "b": np.zeros(1)})
        found.append(np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(params)]))
    return w, found


def series(weights, levels):
    return {
        "steps": np.arange(10),
        "mse": np.repeat(np.array(levels)[:, None], 10, axis=1),
        "final_weights": np.stack(weights),
    }


def turned(into, out):
    into[:, 0] *= -1


def missing(into, out):
    into[:, 3] = np.random.default_rng(7).normal(size=20)


def twice(into, out):
    into[:, 3] = 1.01 * into[:, 1]


def test_units_that_are_turned_missing_or_double_are_told(rng):
    w, (informed, *weights) = chains(rng, lambda into, out: None, turned, missing, twice)
    sizes = np.linalg.norm(w, axis=0) * [0.5, 1, 2, 4]
    found = traps(
        WIDTHS,
        series(weights, [1.0, 3.0, 3.0, 3.0]),
        series([informed] * 4, [1.0] * 4),
        np.array([True, False, False, False]),
    )
    assert [line[0] for line in found] == [1, 2, 3]
    assert {line[1] for line in found} == {"3.000"}
    names = HEADER[2:5]
    told = [dict(zip(names, line[2:5], strict=True)) for line in found]
    assert told[0] == {"turned round": f"{sizes[0]:.2f}", "missing": "-", "twice": 0}
    assert told[1] == {"turned round": "-", "missing": f"{sizes[3]:.2f}", "twice": 0}
    assert told[2] == {"turned round": "-", "missing": f"{sizes[3]:.2f}", "twice": 1}


@pytest.mark.parametrize("widths", [(20, 4, 4, 1), (20, 1)])
def test_of_other_depths_nothing_is_told(widths, rng):
    assert traps(widths, {}, {}, np.array([False])) == []


def test_copies_are_of_one_data_set(rng):
    _, (informed, *weights) = chains(rng, *[turned] * 4)
    away = np.zeros(4, bool)
    found = traps(WIDTHS, series(weights, [2.0] * 4), series([informed] * 4, [1.0] * 4), away, 2)
    assert [line[0] for line in found] == [0, 0, 1, 1]


def test_leaves_are_in_the_order_that_networks_have():
    shapes = jax.tree.leaves(parameter_shapes(mlp(WIDTHS, "relu")))
    assert [leaf.shape for leaf in shapes] == [(4,), (20, 4), (1,), (4, 1)]
