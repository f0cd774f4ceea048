"""Tests of wide.complement_pair and wide.langevin_fill_in: Langevin on reduced inputs, filled in,
has the joint law of the unreduced chain.

Chains start at prior draws. Compared are draws 0, 1 and 10 of each, one or several steps apart;
false-alarm rate 1e-6 a test.
"""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbnn
from jaxbnn import wide
from jaxbnn.networks import Activation, Dense, Network, init
from jaxbnn.wide import complement_pair, langevin_fill_in
from tests.kit import both_sizes, sizes_with_mutants
from tests.kit.dkw import compare
from tests.kit.sizes import QUICK

X = np.array([[1.0, -0.5, 0.3, 0.8, -1.2], [0.2, 1.2, -1.0, 0.1, 0.4]], "f4")
Y = np.array([[1.0], [-1.5]], "f4")
NOISE_SCALE, STEP_SIZE, LAG = 0.3, 1.1, 10
BATCH = 8_000
MODULE = importlib.import_module("jaxbnn.wide.reduced_langevin")


def network(d, h, bias=True):
    layers = (Dense(h, bias, 1.5, 0.5), Activation("tanh"), Dense(1, True, 2.0, 0.5))
    return Network(layers, (d,), "ntk")


def statistics(full, reduction, params):
    """Test functions of draws 0, 1 and 10 of phi of the full network."""
    seen, unseen = _bases(reduction)
    first = params[0]
    v = first["w"]
    if "b" in first:
        v = jnp.concatenate([v, first["b"][:, None]], axis=1)
    u = jnp.einsum("pr,tph->trh", seen, v)[:, 0, 0]
    z = jnp.einsum("pr,tph->trh", unseen, v)
    a, b = z[:, 0, 0], z[:, -1, -1]
    norm = jnp.sum(z**2, axis=(1, 2))
    x_new = jnp.linspace(-1.0, 1.0, full.input_shape[0], dtype=v.dtype)[None]
    f = jax.vmap(lambda w: full.apply(w, x_new)[0, 0])(params)
    inner = jnp.sum(z[:1] * z, axis=(1, 2))
    functions = {
        "unseen": a[-1],
        "lag 1": a[0] * a[1],
        "lag 10": a[0] * a[-1],
        "increment": a[1] - a[0],
        "increment of 10": b[-1] - b[0],
        "across units": a[0] * b[-1],
        "norm": norm[-1],
        "change of the norm": norm[1] - norm[0],
        "inner product": inner[1],
        "inner product, lag 10": inner[-1],
        "two increments": (a[1] - a[0]) * (a[2] - a[1]),
        "with the seen": (a[1] - a[0]) * (u[1] - u[0]),
        "moves": jnp.sum(jnp.abs(jnp.diff(u)) > 1e-5).astype(u.dtype),
        "output, lag 1": f[1] - f[0],
        "output, lag 10": f[-1] - f[0],
    }
    # What a rejection leaves is filled in anew, with another rounding.
    return jax.tree.map(lambda value: jnp.round(value, 4), functions)


def _bases(reduction):
    seen = np.asarray(reduction.basis)
    return seen, np.linalg.svd(seen, full_matrices=True)[0][:, seen.shape[1] :]


def states_of(kernel, key, start, thinning):
    """Return 11 states, `thinning` steps apart."""
    key_start, key_steps = jax.random.split(key)

    def stride(state, i):
        def step(j, state):
            count = i * thinning + j.astype(i.dtype)
            return kernel.step(jax.random.fold_in(key_steps, count), state)[0]

        state = jax.lax.fori_loop(0, thinning, step, state)
        return state, state

    indices = jnp.arange(LAG + 1, dtype=jnp.uint32)
    return jax.lax.scan(stride, kernel.init(start, key_start), indices)[1]


def unreduced(full, reduction, refreshment, thinning):
    posterior = wide.reparametrise(full, X[:, : full.input_shape[0]], Y, NOISE_SCALE)
    kernel = jaxbnn.underdamped_langevin(posterior.log_density_terms, STEP_SIZE, refreshment)

    def chain(key):
        key_start, key_steps = jax.random.split(key)
        states = states_of(kernel, key_steps, init(key_start, full), thinning)
        return statistics(full, reduction, states.position)

    return chain


def filled_in(full, reduction, refreshment, thinning):
    posterior = wide.reparametrise(reduction.network, reduction.x, Y, NOISE_SCALE)
    kernel = wide.reduced_langevin(
        posterior.log_density_terms, STEP_SIZE, refreshment, reduction, thinning=thinning
    )

    def chain(key):
        key_start, key_steps, key_fill = jax.random.split(key, 3)
        start = init(key_start, reduction.network)
        states = states_of(kernel, key_steps, start, thinning)
        phi = wide.fill_in_langevin(
            reduction, key_fill, states.position, states.complement, states.steps,
            thinning=thinning,
        )  # fmt: skip
        return statistics(full, reduction, phi)

    return chain


def run(function, seed, num_chains, *axes):
    """Run independent chains, a batch at a time; for each of the leading `axes` of variants."""
    keys = jax.random.split(jax.random.key(seed), (num_chains // BATCH, BATCH))

    def batches(keys, *axes):
        one = jax.vmap(function, (0,) + (None,) * len(axes))
        return jax.lax.map(lambda keys: one(keys, *axes), keys)

    for _ in axes:
        batches = jax.vmap(batches, (None, 0))
    values = jax.jit(batches, compiler_options=QUICK)(keys, *axes)
    return jax.tree.map(lambda leaf: np.asarray(leaf).reshape(*leaf.shape[:-2], -1), values)


# What a variant does: (factor of the log ratio's gain, sign of the turned momentum, degrees of
# freedom too many, whether a fill-in remembers the one before it).
VARIANTS = {
    "right": (1.0, 1.0, 0.0, 1.0),
    "the acceptance ignores the complement": (0.0, 1.0, 0.0, 1.0),
    "the acceptance has eps^2 / 4": (2.0, 1.0, 0.0, 1.0),
    "the noise has a dimension too many": (1.0, 1.0, 1.0, 1.0),
    "each fill-in has the right norm in a fresh direction": (1.0, 1.0, 0.0, 0.0),
    "the complement's momentum is not turned": (1.0, -1.0, 0.0, 1.0),
}


@pytest.fixture
def defects(monkeypatch):
    """Return a function that gives the kernel's parts the defects of a traced variant."""
    leapfrog, chi = complement_pair.leapfrog_pair, complement_pair._chi
    coordinates = MODULE.coordinates

    def set_defects(variant):
        gain_factor, turned_sign, more_degrees, memory = variant

        def leapfrog_pair(pair, step_size):
            pair, gain = leapfrog(pair, step_size)
            return pair, gain_factor * gain

        def turn_back(pair):
            return pair._replace(
                momentum_along=-turned_sign * pair.momentum_along,
                momentum_rest=-turned_sign * pair.momentum_rest,
            )

        def degrees_too_many(key, degrees, dtype):
            return chi(key, degrees + more_degrees, dtype)

        def turned_coordinates(pair):
            return tuple(jnp.where(memory > 0, c, jnp.roll(c, 2)) for c in coordinates(pair))

        monkeypatch.setattr(MODULE, "leapfrog_pair", leapfrog_pair)
        monkeypatch.setattr(MODULE, "turn_back", turn_back)
        monkeypatch.setattr(complement_pair, "_chi", degrees_too_many)
        monkeypatch.setattr(langevin_fill_in, "coordinates", turned_coordinates)

    return set_defects


@sizes_with_mutants(short=BATCH)
@pytest.mark.parametrize(
    ("refreshment", "thinning"),
    [
        pytest.param(1.0, 2, id="mala", marks=pytest.mark.long),
        pytest.param(0.1, 1, id="underdamped"),
    ],
)
def test_joint_law(refreshment, thinning, num_chains, with_mutants, defects):
    num_chains = num_chains or 1_200_000
    full = network(5, 2)
    reduction = wide.reduce_inputs(full, X)
    assert reduction.dimension == 8

    def variant(key, variant):
        defects(variant)
        return filled_in(full, reduction, refreshment, thinning)(key)

    # MALA's momentum is drawn anew.
    names = list(VARIANTS)[: (5 if refreshment == 1.0 else 6) if with_mutants else 1]
    found = run(variant, 0, num_chains, jnp.array([VARIANTS[name] for name in names]))
    reference = run(unreduced(full, reduction, refreshment, thinning), 1, num_chains)
    for i, name in enumerate(names):
        values = {function: value[i] for function, value in found.items()}
        result = compare(values, reference, {}, moved=1.0)
        assert result.passes == (name == "right"), f"{name}: {result}"


@pytest.mark.long
@both_sizes(short=BATCH)
@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_joint_law_in_few_dimensions(dimension, num_chains):
    num_chains = num_chains or 1_200_000
    full = network(dimension + 1, 1)
    reduction = wide.reduce_inputs(full, X[:, : dimension + 1])
    assert reduction.dimension == dimension
    found = run(filled_in(full, reduction, 0.4, 1), 0, num_chains)
    reference = run(unreduced(full, reduction, 0.4, 1), 1, num_chains)
    result = compare(found, reference, {}, moved=1.0)
    assert result.passes, str(result)


@pytest.mark.long
def test_thousands_of_weights_keep_their_law_in_float32():
    """Norms and the step's gain with ten million left-out weights, against their moments."""
    num, m, eps = 4_000, 10_000_000, 0.1

    def step(key):
        key_start, key_step = jax.random.split(key)
        like = jax.ShapeDtypeStruct((0,), jnp.float32)
        pair = complement_pair.draw_pair(key_start, like, m, jnp.float32)
        pair = complement_pair.refresh_pair(key_step, pair, 0.3, m)
        _, gain = complement_pair.leapfrog_pair(pair, eps)
        norms = [jnp.sum(jnp.square(pair.rest)) - m, jnp.sum(jnp.square(pair.momentum_rest)) - m]
        inner = jnp.sum(pair.rest * pair.momentum_rest)
        # Its mean: the leapfrog step makes positions longer.
        return jnp.stack([*norms, inner, gain + eps**6 * m / 32])

    keys = jax.random.split(jax.random.key(0), num)
    values = np.asarray(jax.jit(jax.vmap(step), compiler_options=QUICK)(keys), np.float64)
    root = np.sqrt(m)
    # gain = -eps^3 / 4 <q, z> to first order.
    scales = np.array([np.sqrt(2) * root, np.sqrt(2) * root, root, eps**3 / 4 * root])
    mean, deviation = values.mean(0) / scales, values.std(0) / scales
    assert np.abs(mean).max() < 5.5 / np.sqrt(num) + 0.01
    np.testing.assert_allclose(deviation, 1, atol=5.5 / np.sqrt(2 * num) + 0.01)


def test_bad_input():
    full = network(5, 2)
    reduction = wide.reduce_inputs(full, X)
    posterior = wide.reparametrise(reduction.network, reduction.x, Y, NOISE_SCALE)
    projections = wide.weight_projections(reduction, jax.random.key(0), 2)

    def make(*args, **kwargs):
        return wide.reduced_langevin(
            posterior.log_density_terms, 0.1, 1.0, reduction, *args, **kwargs
        )

    with pytest.raises(ValueError, match="thinning must be a whole number"):
        make(thinning=0)
    with pytest.raises(ValueError, match="projections are carried where nothing is filled in"):
        make(projections, thinning=5)
    with pytest.raises(ValueError, match="which needs a key"):
        make().init(init(jax.random.key(0), reduction.network))
    state = make(thinning=5).init(init(jax.random.key(0), reduction.network), jax.random.key(1))
    stack = jax.tree.map(lambda leaf: jnp.stack([leaf] * 2), state)
    with pytest.raises(ValueError, match=r"kept at steps \[5, 15\]"):
        wide.fill_in_langevin(
            reduction, jax.random.key(2), stack.position, stack.complement,
            np.array([5, 15], np.int32), thinning=5,
        )  # fmt: skip
    with pytest.raises(ValueError, match=r"kept at steps \[3, 8\]"):
        wide.fill_in_langevin(
            reduction, jax.random.key(2), stack.position, stack.complement,
            np.array([3, 8], np.int32), thinning=5,
        )  # fmt: skip
