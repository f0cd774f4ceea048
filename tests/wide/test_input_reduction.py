"""Tests of wide.accepted_moves and wide.input_reduction: a chain on reduced inputs, filled in, has
the joint law of the unreduced chain.
"""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbnn
from jaxbnn import wide
from jaxbnn.networks import Activation, Dense, Network, init, mlp
from jaxbnn.wide import count_accepted, reduce_inputs
from jaxbnn.wide.accepted_moves import autoregress
from tests.kit import sizes_with_mutants
from tests.kit.dkw import compare
from tests.kit.sizes import QUICK

NETWORK = Network(
    (
        Dense(2, weight_scale=1.5, bias_scale=0.5),
        Activation("tanh"),
        Dense(1, weight_scale=2.0, bias_scale=0.5),
    ),
    (3,),
    "ntk",
)
X = np.array([[1.0, -0.5, 0.3], [0.2, 1.2, -1.0]], "f4")
Y = np.array([[1.0], [-1.5]], "f4")
NOISE_SCALE, BETA, LAG = 0.3, 0.5, 10
BATCH = 20_000
REDUCTION = reduce_inputs(NETWORK, X)
# What the likelihood sees of the first layer, and what it does not.
SEEN = np.asarray(REDUCTION.basis)
UNSEEN = np.linalg.svd(SEEN, full_matrices=True)[0][:, SEEN.shape[1] :]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("n", [2, 7])
def test_the_reduced_network_is_the_same_function(n, rng):
    x = rng.standard_normal((n, 3))
    reduction = reduce_inputs(NETWORK, x)
    params = init(jax.random.key(0), NETWORK)
    r = min(n, 4)
    assert reduction.network.input_shape == (r,)
    np.testing.assert_allclose(reduction.basis.T @ reduction.basis, np.eye(r), atol=1e-12)
    reduced = reduction.reduce(params)
    outputs = NETWORK.apply(params, x)
    np.testing.assert_allclose(reduction.network.apply(reduced, reduction.x), outputs, atol=1e-12)
    restored = reduction.restore(reduced, jnp.asarray(rng.standard_normal((4, 2))))
    np.testing.assert_allclose(NETWORK.apply(restored, x), outputs, atol=1e-12)
    # Its own noise brings all of it back.
    own = jnp.concatenate([params[0]["w"], params[0]["b"][None]])
    back = reduction.restore(reduced, own)
    np.testing.assert_allclose(back[0]["w"], params[0]["w"], atol=1e-12)
    np.testing.assert_allclose(back[0]["b"], params[0]["b"], atol=1e-12)


def statistics(weights, accepted):
    """Test functions of draws 0, 1 and 10 of one chain: joint in time, seen and unseen."""
    v = jnp.concatenate([weights[0]["w"], weights[0]["b"][:, None]], axis=1)
    seen = jnp.einsum("pr,tph->trh", SEEN, v)[:, 0, 0]
    unseen = jnp.einsum("pr,tph->trh", UNSEEN, v)
    a, b = unseen[:, 0, 0], unseen[:, 1, 1]
    new = jnp.array([[0.5, 0.5, -1.0]], v.dtype)
    prediction = jax.vmap(lambda w: NETWORK.apply(w, new)[0, 0])(weights)
    return {
        "unseen": a[-1],
        "lag 1": a[0] * a[1],
        "lag 10": a[0] * a[-1],
        "increment": a[1] - a[0],
        "increment of 10": b[-1] - b[0],
        "across units": a[0] * b[-1],
        "with the seen": (a[1] - a[0]) * (seen[1] - seen[0]),
        "moved, seen or not": jnp.abs(a[1] - a[0]) + jnp.abs(seen[1] - seen[0]),
        "prediction": prediction[-1],
        "prediction, lag 1": gained(prediction[0], prediction[1]),
        "prediction, lag 10": gained(prediction[0], prediction[-1]),
    }


def gained(before, now):
    """Return a difference, zero where no step moved: a rounding is left that differs by program."""
    difference = now - before
    return jnp.where(jnp.abs(difference) < 1e-5, 0, difference)


def trajectory(make_kernel, key, network, x, start):
    """Run pCN or pCNL on phi; positions and counts after each of 11 steps."""
    posterior = wide.reparametrise(network, x, Y, NOISE_SCALE)
    kernel = count_accepted(make_kernel(posterior.log_likelihood, BETA))

    def step(state, i):
        state = kernel.step(jax.random.fold_in(key, i), state)[0]
        return state, (posterior.to_weights(state.position), state.accepted)

    steps = jnp.arange(LAG + 1, dtype=jnp.uint32)
    return jax.lax.scan(step, kernel.init(start), steps)[1]


def unreduced(make_kernel, key):
    key_start, key_steps = jax.random.split(key)
    return statistics(*trajectory(make_kernel, key_steps, NETWORK, X, init(key_start, NETWORK)))


def filled_in(make_kernel, key, counts=lambda accepted: accepted):
    key_start, key_steps, key_fill = jax.random.split(key, 3)
    start = init(key_start, REDUCTION.network)
    positions, accepted = trajectory(make_kernel, key_steps, REDUCTION.network, REDUCTION.x, start)
    weights = REDUCTION.fill_in(key_fill, positions, counts(accepted), BETA)
    return statistics(weights, accepted)


def every_step(accepted):
    """Defect: the unseen part moves when the proposal is rejected as well."""
    return jnp.arange(len(accepted), dtype=accepted.dtype)


def independent(accepted):
    """Defect: a fresh unseen part for each draw, right in its marginals."""
    return 1000 * every_step(accepted)


def frozen(accepted):
    """Defect: the unseen part never moves."""
    return jnp.zeros_like(accepted)


def run(function, seed, num_chains):
    """Run independent chains, a batch at a time."""
    keys = jax.random.split(jax.random.key(seed), (num_chains // BATCH, BATCH))
    values = jax.jit(lambda keys: jax.lax.map(jax.vmap(function), keys), compiler_options=QUICK)(
        keys
    )
    return jax.tree.map(lambda leaf: np.asarray(leaf).ravel(), values)


@sizes_with_mutants(short=BATCH)
@pytest.mark.parametrize(
    "make_kernel", [pytest.param(jaxbnn.pcn, marks=pytest.mark.long), jaxbnn.pcnl]
)
def test_joint_law(make_kernel, num_chains, with_mutants):
    num_chains = num_chains or 1_200_000

    def ours(key):
        return {"right": filled_in(make_kernel, key)} | {
            defect.__name__: filled_in(make_kernel, key, defect)
            for defect in ((every_step, independent, frozen) if with_mutants else ())
        }

    with jax.debug_key_reuse(False):  # the same chain is filled in rightly and wrongly
        found = run(ours, 0, num_chains)
    reference = run(partial(unreduced, make_kernel), 1, num_chains)
    results = {name: compare(values, reference, {}, moved=1.0) for name, values in found.items()}
    right = results.pop("right")
    assert right.passes, str(right)
    for name, result in results.items():
        assert not result.passes, f"{name} was not found: {result}"


def test_chains_that_never_move_or_always_draw_anew():
    start = REDUCTION.reduce(init(jax.random.key(0), NETWORK))
    positions = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), start)
    for beta, accepted, same in ((1.0, [5, 5, 6], False), (0.5, [2, 2, 2], True)):
        weights = REDUCTION.fill_in(
            jax.random.key(1), positions, np.array(accepted, np.int32), beta
        )
        w = np.asarray(weights[0]["w"])
        np.testing.assert_array_equal(w[0], w[1])
        assert np.isfinite(w).all()
        assert np.array_equal(w[1], w[2]) == same


@pytest.mark.parametrize(
    ("network", "x", "message"),
    [
        (mlp((3, 2, 1)), X, "give it parametrisation='ntk'"),
        (mlp((3, 1), parametrisation="ntk"), X, "not the read-out"),
        (NETWORK, X[:, :2], r"shape \(n, 3\), n > 0, but has \(2, 2\)"),
        (NETWORK, np.nan * X, r"x holds nan at index \(0, 0\)"),
    ],
)
def test_bad_input(network, x, message):
    with pytest.raises(ValueError, match=message):
        reduce_inputs(network, x)


@pytest.mark.parametrize("name", ["x", "also"])
def test_whole_numbers_are_refused_which_would_lose_the_bias(name):
    """A column of biases of their dtype would hold .1 as 0."""
    first, *others = NETWORK.layers
    network = Network((replace(first, bias_scale=0.1), *others), (3,), "ntk")
    images = {name: np.array([[0, 128, 255], [3, 2, 1]], np.uint8)}
    with pytest.raises(TypeError, match=f"{name} must be floating point, but has dtype uint8"):
        reduce_inputs(network, **({"x": X} | images))


@pytest.mark.parametrize("beta", [30.0, 0.0, np.nan])
def test_a_beta_that_no_chain_has_is_refused(beta):
    start = REDUCTION.reduce(init(jax.random.key(0), NETWORK))
    positions = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), start)
    with pytest.raises(ValueError, match=r"step_size must lie in \(0, 1\]"):
        REDUCTION.fill_in(jax.random.key(1), positions, np.arange(3), beta)


def test_a_beta_for_each_of_several_is_refused(annotations_unchecked):
    """One for each hidden unit would be taken in silence, where there are as many."""
    start = REDUCTION.reduce(init(jax.random.key(0), NETWORK))
    positions = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), start)
    several = jnp.full(REDUCTION.width, 0.5)
    with pytest.raises(ValueError, match="step_size must be one number"):
        REDUCTION.fill_in(jax.random.key(1), positions, np.arange(3), several)
    with pytest.raises(ValueError, match="step_size must be one number"):
        wide.carry_complement(None, several, REDUCTION)


@pytest.mark.parametrize("accepted", [[5, 4, 6], [True, False, True], [1.0, 2.0, 3.0], [[1, 2, 3]]])
def test_what_is_no_count_of_moves_is_refused(accepted, annotations_unchecked):
    start = REDUCTION.reduce(init(jax.random.key(0), NETWORK))
    positions = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), start)
    with pytest.raises(ValueError, match=r"accepted must be whole numbers \(draw,\) that never"):
        REDUCTION.fill_in(jax.random.key(1), positions, np.array(accepted), 0.5)


def _kept(number, params=None):
    start = REDUCTION.reduce(init(jax.random.key(0), NETWORK)) if params is None else params
    return jax.tree.map(lambda leaf: jnp.zeros((number, *leaf.shape)), start)


@pytest.mark.parametrize(
    ("positions", "accepted", "words"),
    [
        (_kept(3), np.arange(4), r"one entry a draw, 4 as accepted has, but positions\[0\]"),
        (_kept(0), np.arange(0), "there is no draw to fill in: accepted is empty"),
        (_kept(3, init(jax.random.key(0), NETWORK)), np.arange(3), "params do not fit the network"),
    ],
)
def test_positions_that_are_not_the_kept_draws_are_refused(
    positions, accepted, words, annotations_unchecked
):
    with pytest.raises(ValueError, match=words):
        REDUCTION.fill_in(jax.random.key(1), positions, accepted, 0.5)
    with pytest.raises(ValueError, match=words.replace("accepted", "steps")):
        wide.fill_in_langevin(REDUCTION, jax.random.key(1), positions, None, accepted, thinning=1)


def test_a_traced_beta_above_one_leaves_what_is_carried_finite():
    """An adaptation may try one; pCN takes it as 1."""
    noise, fresh = jax.random.normal(jax.random.key(0), (2, 5))

    @jax.jit
    def moved(beta, moves):
        return autoregress(noise, fresh, moves, beta)

    for beta in (1.05, jnp.inf):
        np.testing.assert_array_equal(moved(beta, jnp.ones(())), moved(1.0, jnp.ones(())))
        np.testing.assert_array_equal(moved(beta, jnp.zeros(())), noise)


def test_inputs_that_floats_lose_are_refused_or_told():
    network = mlp((2, 3, 1), "tanh", parametrisation="ntk")
    x = np.stack([1.7e9 + np.arange(20.0), np.arange(20.0)], axis=1)
    for also in (None, X[:, :2].astype(float)):
        with pytest.warns(UserWarning, match=r"^x\[:, 0\], of numbers up to 1.7e.09"):
            reduce_inputs(network, x, also=also)
        with pytest.raises(ValueError, match="x, as float32, holds inf"):
            reduce_inputs(network, x * 1e30, also=also)
    with pytest.raises(ValueError, match="also, as float32, holds inf"):
        reduce_inputs(network, X[:, :2], also=x * 1e30)
    with pytest.warns(UserWarning, match=r"^x\[:, 0\], of numbers up to 1.7e.09"):
        wide.reparametrise(network, x, np.zeros(20), 1.0)
    with pytest.raises(ValueError, match="x, as float32, holds inf"):
        wide.reparametrise(network, x * 1e30, np.zeros(20), 1.0)
    with pytest.raises(ValueError, match="y, as float32, holds inf"):
        wide.reparametrise(network, x[:, 1:].repeat(2, axis=1), np.full(20, 1e39), 1.0)
