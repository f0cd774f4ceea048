"""Tests of sampling.outside: a program is traced anew where what its functions read changed."""

import functools
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbnn
from jaxbnn.sampling.outside import taken
from tests.sampling.tiny import walk

KEY = jax.random.key(1)
CENTRE = jnp.zeros(2)
WIDTH = 1.0
CENTRES = {"one": np.zeros(2, np.float32)}


def log_density(x):
    return -0.5 * jnp.sum(jnp.square((x - CENTRE) / WIDTH))


def of_a_dict(x):
    return -0.5 * jnp.sum(jnp.square(x - CENTRES["one"]))


def make_kernel(parameters, data):
    return walk(lambda x: log_density(x), 0.5)


def mean_of(kernel):
    draws = jaxbnn.sample(KEY, kernel, np.zeros((2, 2), np.float32), 2000, progress=False)
    return draws.positions.mean()


@pytest.mark.parametrize("is_pair", [False, True])
def test_a_global_that_is_bound_anew_is_read_anew(is_pair, monkeypatch):
    kernel = walk(log_density, 0.5) if is_pair else make_kernel
    before = mean_of(kernel)
    monkeypatch.setitem(globals(), "CENTRE", jnp.full(2, 30.0))
    after = mean_of(kernel)
    assert abs(before) < 5
    assert after > 15
    monkeypatch.setitem(globals(), "WIDTH", 100.0)
    assert mean_of(kernel) != after


def test_an_array_that_is_changed_in_place_is_read_anew():
    centre = np.zeros(2, np.float32)
    kernel = walk(lambda x: -0.5 * jnp.sum(jnp.square(x - centre)), 0.5)
    before = mean_of(kernel)
    centre[:] = 30
    assert abs(before) < 5
    assert mean_of(kernel) > 15


def test_numbers_in_dicts_and_lists_are_read_anew():
    centre = {"at": [0.0, 0.0]}
    kernel = walk(lambda x: -0.5 * jnp.sum(jnp.square(x - jnp.asarray(centre["at"]))), 0.5)
    before = mean_of(kernel)
    centre["at"][:] = 30.0, 30.0
    assert abs(before) < 5
    assert mean_of(kernel) > 15


def test_what_collect_reads_counts_too():
    factor = np.ones((), np.float32)
    kernel = walk(log_density, 0.5)

    def collect(state, info):
        return factor * state.position

    def run():
        options = {"collect": collect, "progress": False}
        return jaxbnn.sample(KEY, kernel, np.zeros((2, 2), np.float32), 10, **options).positions

    before = run()
    factor[...] = 2
    np.testing.assert_array_equal(run(), 2 * before)


class Model:
    """Holds nothing that is looked at."""

    def log_density(self, x):
        return -jnp.sum(x**2)


def test_what_is_followed(monkeypatch):
    """Closures, partials, methods, defaults, what JAX wraps; equal as long as nothing changes."""
    centre = np.zeros(2)

    def inner(x, shift=centre):
        return x - shift

    def by_name(x, *, shift=centre):
        return x - shift

    functions = [
        functools.partial(lambda x, y: x - y, y=centre),
        inner,
        by_name,
        jax.jit(lambda x: inner(x)),
        jax.grad(lambda x: jnp.sum(x - centre)),
        lambda x: x - [centre, 3][0],
    ]
    for function in functions:
        before = taken((function,))
        assert before == taken((function,))
        centre[0] += 1
        assert before != taken((function,))
    before = taken((of_a_dict, Model().log_density))
    monkeypatch.setitem(CENTRES, "one", np.ones(2, np.float32))
    assert before != taken((of_a_dict, Model().log_density))


def test_an_array_made_where_an_old_one_lay_is_another():
    """Arrays are held, so that no number of an object comes again."""
    cell = [None]

    def make():
        value = jnp.ones(3)

        def function(x):
            return x + value

        cell[0] = function

    make()
    before = taken(tuple(cell))
    for _ in range(50):
        make()
        assert taken(tuple(cell)) != before


def test_what_cannot_be_compared_is_passed_over():
    lock, mixed = threading.Lock(), {1: "a", "b": 2, None: object()}
    objects = np.array([object()], dtype=object)

    def function(x):
        later = x if lock.locked() else mixed, objects
        return later, unbound, function  # noqa: F821 - a name that is bound nowhere

    assert taken((function, None, print, np.sum)) == taken((function, None, print, np.sum))
