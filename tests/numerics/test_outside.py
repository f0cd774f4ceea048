"""Tests of numerics.outside: a program is traced anew where what its functions read changed."""

import dataclasses
import functools
import threading

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
import pytest

import jaxbnn
from jaxbnn import dvi
from jaxbnn.diagnostics import evaluate
from jaxbnn.ensembles import optimised_starts
from jaxbnn.numerics.outside import taken
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


def test_a_function_that_is_written_anew_is_read_anew(monkeypatch):
    """As where a notebook's cell runs again; and another function of as many numbers."""
    before = mean_of(make_kernel)
    monkeypatch.setitem(globals(), "log_density", lambda x: -0.5 * jnp.sum(jnp.square(x - 30.0)))
    after = mean_of(make_kernel)
    assert abs(before) < 5
    assert after > 15
    monkeypatch.setitem(globals(), "log_density", lambda x: -0.5 * jnp.sum(jnp.square(x + 30.0)))
    assert mean_of(make_kernel) < -15


X = jnp.linspace(-1, 1, 20)[:, None]


def posterior_of(network, likelihood=None):
    likelihood = jaxbnn.Gaussian(0.1) if likelihood is None else likelihood
    return jaxbnn.Posterior(network, PRIOR, likelihood, X, X)


PRIOR = jaxbnn.normal_prior(jaxbnn.mlp((1, 1)))
POSTERIOR = posterior_of(jaxbnn.mlp((1, 1)))


def kernel_of_the_global(parameters, data):
    return blackjax.mala(lambda p: POSTERIOR.log_density(p), 0.001)


def draws_of(kernel, data=None):
    starts = ({"w": jnp.zeros((2, 1, 1)), "b": jnp.zeros((2, 1))},)
    run = jaxbnn.sample(KEY, kernel, starts, 500, data=data, progress=False)
    return run.positions[0]["w"].mean()


@pytest.mark.parametrize(
    "other",
    [
        lambda: posterior_of(lambda p, x: -x @ p[0]["w"]),
        lambda: posterior_of(jaxbnn.mlp((1, 1)), jaxbnn.targets.Laplace(0.1)),
    ],
    ids=["network", "likelihood"],
)
def test_what_is_static_in_a_global_is_read_anew(other, monkeypatch):
    before = draws_of(kernel_of_the_global)
    monkeypatch.setitem(globals(), "POSTERIOR", other())
    assert draws_of(kernel_of_the_global) != before


NETWORK = jaxbnn.mlp((1, 1))


def test_a_network_among_the_globals_is_read_anew(monkeypatch):
    def log_density(params):
        return -jnp.sum(jnp.square(NETWORK.apply(params, X) - X))

    def kernel(parameters, data):
        return blackjax.mala(log_density, 0.001)

    before, seen = draws_of(kernel), taken((kernel,))
    monkeypatch.setitem(globals(), "NETWORK", jaxbnn.mlp((1, 1)))  # an equal one
    assert taken((kernel,)) == seen
    ntk = jaxbnn.mlp((1, 1), parametrisation="ntk", weight_scale=0.5)
    monkeypatch.setitem(globals(), "NETWORK", ntk)
    assert draws_of(kernel) != before


SIGN = 1.0


def signed(params, x):
    return SIGN * (x @ params[0]["w"])


@dataclasses.dataclass(frozen=True)
class Signed(jaxbnn.targets.Likelihood):
    def log_prob(self, outputs, y):
        return -50 * jnp.sum(jnp.square(SIGN * outputs - y), axis=1)

    def predictive(self, outputs, rank):
        return dist.Normal(SIGN * outputs, 0.1).to_event(1)


def kernel_of_the_data(parameters, data):
    return blackjax.mala(data.log_density, 0.001)


@pytest.mark.parametrize(
    "posterior",
    [
        posterior_of(signed),
        posterior_of(functools.partial(signed)),
        posterior_of(jaxbnn.mlp((1, 1)), Signed()),
    ],
    ids=["network", "partial", "likelihood"],
)
def test_what_functions_in_the_data_read_is_read_anew(posterior, monkeypatch):
    assert draws_of(kernel_of_the_data, posterior) > 0.5
    monkeypatch.setitem(globals(), "SIGN", -1.0)
    assert draws_of(kernel_of_the_data, posterior) < -0.5


def activated(z):
    return SIGN * z


def with_an_activation():
    layers = (jaxbnn.networks.Dense(1), jaxbnn.networks.Activation(activated))
    network = jaxbnn.networks.Network(layers, (1,))
    return jaxbnn.Posterior(network, (*PRIOR, ()), jaxbnn.Gaussian(0.1), X, X)


@pytest.mark.parametrize(
    "posterior",
    [posterior_of(signed), posterior_of(jaxbnn.mlp((1, 1)), Signed()), with_an_activation()],
    ids=["network", "likelihood", "activation"],
)
def test_what_functions_of_a_posterior_in_a_closure_read_is_read_anew(posterior, monkeypatch):
    has_two_layers = len(posterior.prior) == 2
    draws = {"w": jnp.ones((2, 3, 1, 1)), "b": jnp.zeros((2, 3, 1))}
    start = jax.tree.map(lambda leaf: leaf[:, 0], draws)

    def of(leaves):
        return (leaves, ()) if has_two_layers else (leaves,)

    kernel = blackjax.mala(posterior.log_density, 1e-6)

    def first_log_density():
        run = jaxbnn.sample(
            KEY, kernel, of(start), 1, progress=False, collect=lambda state, info: state
        )
        position = jax.tree.map(lambda leaf: jnp.asarray(leaf[0, 0]), run.positions.position)
        held = run.positions.logdensity[0, 0]
        return float(held) - float(posterior.log_density(position))

    def log_densities():
        return evaluate(posterior.log_density, of(draws)).mean()

    assert first_log_density() == pytest.approx(0, abs=1e-2)
    before = log_densities()
    monkeypatch.setitem(globals(), "SIGN", -1.0)
    assert first_log_density() == pytest.approx(0, abs=1e-2)
    assert log_densities() < before - 100


def test_functions_that_tracing_keeps_in_a_dict_or_a_list_make_nothing_anew():
    """Memoised helpers, say."""
    helpers, seen = {}, []

    def log_density(x):
        if "square" not in helpers:
            helpers["square"] = jax.jit(lambda x: jnp.sum(jnp.square(x)))
        seen.append(lambda: x)
        return -helpers["square"](x)

    kernel = walk(log_density, 0.5)
    for _ in range(2):
        traces = len(seen)
        jaxbnn.sample(KEY, kernel, np.zeros((2, 2), np.float32), 3, progress=False)
    assert len(seen) == traces


@dataclasses.dataclass
class Pair:
    one: object
    other: object


class WithoutHash:
    __hash__ = None

    def __call__(self):
        return 0.0


def test_parts_that_are_shared_are_looked_at_once():
    shared = [signed, WithoutHash()]
    for _ in range(40):
        shared = Pair(shared, shared)
    taken((lambda: shared,))


def test_an_array_changed_in_place_is_read_anew_by_runs_of_other_lengths():
    """JAX keeps its value as a constant as long as one program that was traced with it lives."""
    centre = np.zeros(2, np.float32)
    kernel = walk(lambda x: -0.5 * jnp.sum(jnp.square(x - centre)), 0.5)

    def run(length):
        starts = np.zeros((2, 2), np.float32)
        options = {"chunk_size": length, "progress": False}
        return jaxbnn.sample(KEY, kernel, starts, length, **options).positions.mean()

    assert abs(run(2000)) < 5
    centre[:] = 30
    assert run(2001) > 15
    centre[:] = -30
    assert run(2000) < -15


def test_evaluate_reads_globals_anew(monkeypatch):
    def function(x):
        return WIDTH * x

    draws = np.ones((2, 10), np.float32)
    assert evaluate(function, draws).mean() == 1
    monkeypatch.setitem(globals(), "WIDTH", 3.0)
    assert evaluate(function, draws).mean() == 3
    width = np.ones((), np.float32)
    of_array = lambda x: width * x  # noqa: E731
    assert evaluate(of_array, draws).mean() == 1
    width[...] = 4
    assert evaluate(of_array, draws).mean() == 4


@pytest.mark.parametrize("wrap", [lambda f: f, functools.partial])
def test_predict_reads_globals_anew(wrap, monkeypatch):
    posterior = posterior_of(wrap(signed))
    draws = ({"w": jnp.ones((2, 3, 1, 1)), "b": jnp.zeros((2, 3, 1))},)
    before = jaxbnn.predict(draws, X, posterior).mean
    monkeypatch.setitem(globals(), "SIGN", -1.0)
    np.testing.assert_array_equal(jaxbnn.predict(draws, X, posterior).mean, -before)


@pytest.mark.third_party(reason="Optax promotes dtypes and ranks")
def test_training_reads_globals_anew(monkeypatch):
    posterior = posterior_of(signed)

    def trained():
        options = {"max_epochs": 3, "progress": False}
        return optimised_starts(jax.random.key(0), posterior, 2, **options).positions[0]["w"]

    before = trained()
    np.testing.assert_array_equal(trained(), before)
    monkeypatch.setitem(globals(), "SIGN", -1.0)
    assert (trained() != before).all()


RATE = 0.0


@pytest.mark.third_party(reason="Optax promotes dtypes and ranks")
def test_training_reads_what_its_optimiser_reads_anew(monkeypatch):
    optimizer = optax.scale_by_schedule(lambda count: -RATE * jnp.ones(()))
    starts = ({"w": jnp.ones((2, 1, 1)), "b": jnp.zeros((2, 1))},)

    def moved():
        options = {"max_epochs": 2, "progress": False, "optimizer": optimizer, "positions": starts}
        found = optimised_starts(jax.random.key(0), POSTERIOR, 2, **options)
        return found.training

    before = moved()
    monkeypatch.setitem(globals(), "RATE", 1e-4)
    assert (moved() != before).any()


@pytest.mark.third_party(reason="Optax promotes dtypes and ranks")
def test_a_fit_reads_its_weight_of_the_divergence_anew(monkeypatch):
    """With a weight of 1,000 the data count for nothing beside the prior."""
    likelihood = jaxbnn.Gaussian(0.3)
    algorithm = dvi.deterministic_vi(
        jaxbnn.mlp((1, 1)),
        likelihood,
        PRIOR,
        kl_weight=lambda step: RATE,
        optimizer=optax.adam(0.05),
    )
    start = dvi.initial_position(jax.random.key(0), jaxbnn.mlp((1, 1)), shape=(1,))

    def fitted():
        found = dvi.fit(KEY, algorithm, start, X, X, 300, progress=False, chunk_size=300)
        return float(found.positions.mean[0]["w"][0, 0, 0])

    monkeypatch.setitem(globals(), "RATE", 1.0)
    assert fitted() > 0.9
    monkeypatch.setitem(globals(), "RATE", 1000.0)
    assert abs(fitted()) < 0.3


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
