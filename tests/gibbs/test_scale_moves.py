"""Tests of gibbs.scale_moves and gibbs.hidden_units: the scale of every unit, drawn exactly.

`test_the_law_is_that_of_the_density` and Geweke's joint test each catch, on "regression" with two
data: p off by one half (a count of N or M off by one), a without its factor of two (S in place of
2 S), a without the prior, b lost, latents that are not scaled, and outgoing weights that are not
divided. `test_a_stale_first_layer_is_found` catches a composition that does not refresh.
"""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbnn.gibbs import IntermediateNoise, PiecewiseLinear, gibbs_sampler, scale_moves
from jaxbnn.gibbs.hidden_units import by_unit, hidden_groups, scalings
from jaxbnn.kernels import cycle
from jaxbnn.networks import Activation, Dense, Network, mlp
from tests.gibbs.cases import MODELS, data, drawn, patched
from tests.gibbs.test_sweeps import geweke
from tests.kit import both_sizes, for_mutants

module = importlib.import_module("jaxbnn.gibbs.scale_moves")
WITH_SCALES = [name for name in MODELS if name != "linear"]
# A model of each kind now; the rest, which says the same, in the long tests.
NAMES = [
    name if name in ("regression", "wide", "conv") else pytest.param(name, marks=pytest.mark.long)
    for name in WITH_SCALES
]


def quiet(model, x):
    return scale_moves(model, x, warn=False)


def alone(model, x, y, order, bias):
    return quiet(model, x)


def after_gibbs(model, x, y, order, bias):
    return cycle(gibbs_sampler(model, x, y, order, bias), quiet(model, x))


@pytest.mark.short("regression")
@pytest.mark.parametrize("name", NAMES)
def test_the_law_is_that_of_the_density(name, x64):
    """log density + log Jacobian + log c along each unit's orbit, against p, a and b.

    The Jacobian is counted here by the automatic derivative of the map, one unit at a time.
    """
    model, x, position, y = drawn(name)
    before = jnp.moveaxis(x, 0, -1)
    factors = np.array([0.3, 0.8, 1.7, 2.6])
    for scaling in scalings(model)[0]:
        law = module.scale_law(model, before, position, scaling)
        for unit in range(scaling.group.size):
            found = []
            for c in factors:
                factor = jnp.ones(scaling.group.size).at[unit].set(c)
                moved = module.scaled(model, position, scaling, factor)
                found.append(float(model.log_density(moved, x, y)))
            p, a, b = (float(v[unit]) for v in law)
            powers = _log_jacobian(model, position, scaling, unit) / np.log(2.0)
            exact = -(a * factors**2 + b / factors**2) / 2
            np.testing.assert_allclose(np.diff(found), np.diff(exact), rtol=1e-9, atol=1e-9)
            # c^powers dc / c is (c^2)^(p - 1) d(c^2), up to a factor
            assert powers / 2 == pytest.approx(p, abs=1e-9)


def _log_jacobian(model, position, scaling, unit):
    """Of the map with c = 2: it is linear, and scales coordinates one by one."""
    factor = jnp.ones(scaling.group.size).at[unit].set(2.0)
    ones = jax.tree.map(jnp.ones_like, position)
    image = module.scaled(model, ones, scaling, factor)
    return sum(float(jnp.sum(jnp.log(leaf))) for leaf in jax.tree.leaves(image))


@pytest.mark.short("conv")
@pytest.mark.parametrize("name", NAMES)
def test_outputs_and_labels_see_nothing(name, x64):
    model, x, position, _ = drawn(name)
    kernel = quiet(model, x)
    state, info = jax.jit(kernel.step)(jax.random.key(2), kernel.init(position))
    after = state.position
    assert not info.is_divergent
    old, new = (model.network.apply(p.params, x) for p in (position, after))
    np.testing.assert_allclose(new, old, rtol=1e-9, atol=1e-12)
    if model.output != "regression":
        np.testing.assert_array_equal(after.pre[-1], position.pre[-1])
    changes = jax.tree.map(
        lambda a, b: float(jnp.max(jnp.abs(a - b))), after.params, position.params
    )
    assert max(jax.tree.leaves(changes)) > 1e-3


SHORT = [("regression", alone)]
MORE = [(name, alone) for name in WITH_SCALES] + [
    (name, after_gibbs)
    for name in ("regression", "deep", "wide", "probit", "binary", "conv", "deep conv")
]


@both_sizes(20_000)
@pytest.mark.parametrize(("name", "make"), SHORT)
def test_scale_moves_leave_the_joint_law_invariant(name, make, num_chains):
    result = geweke(name, "sequential", "joint", num_chains, make=make)
    assert result.passes, str(result)


@pytest.mark.long
@pytest.mark.parametrize(("name", "make"), MORE)
def test_more_scale_moves_leave_the_joint_law_invariant(name, make):
    result = geweke(name, "sequential", "joint", None, make=make)
    assert result.passes, str(result)


def off_by_one(law, model, position, scaling):
    """N, the number of what is scaled, counted with one too many."""
    return law._replace(p=law.p + 0.5)


def without_halves(law, model, position, scaling):
    """S, the sum of halved squares, where twice that belongs."""
    return law._replace(a=law.a / 2)


def without_prior(law, model, position, scaling):
    """The prior ratio of the incoming weights is lost."""
    stage = model.stages[scaling.group.first]
    weight, bias = model.precisions(stage.affine_index, law.a.dtype)
    entry = position.params[stage.index]
    lost = weight * jnp.sum(entry["w"] ** 2, axis=0) + bias * entry["b"] ** 2
    return law._replace(a=law.a - lost)


def without_outgoing(law, model, position, scaling):
    """The prior ratio of the outgoing weights is lost."""
    return law._replace(b=jnp.full_like(law.b, 1e-6))


def jacobian_of_the_incoming_alone(law, model, position, scaling):
    """M is not subtracted."""
    stage = model.stages[scaling.end]
    return law._replace(p=law.p + stage.output_shape[-1] / 2)


LAWS = [
    off_by_one,
    without_halves,
    without_prior,
    without_outgoing,
    jacobian_of_the_incoming_alone,
]


def latents_left(position, new):
    """Latents are not scaled with the weights."""
    return new._replace(pre=position.pre, post=position.post)


def outgoing_left(position, new):
    """Outgoing weights are not divided."""
    return new._replace(params=(*new.params[:-1], position.params[-1]))


def mutated(mutant):
    """A kernel whose law, or whose map, is the mutant's."""
    law_of, scaled = module.scale_law, module.scaled

    def wrong_law(model, x, position, scaling):
        return mutant(law_of(model, x, position, scaling), model, position, scaling)

    def wrong_map(model, position, scaling, factor):
        return mutant(position, scaled(model, position, scaling, factor))

    name, wrong = ("scale_law", wrong_law) if mutant in LAWS else ("scaled", wrong_map)

    def make(model, x, y, order, bias):
        return patched(quiet(model, x), module, name, wrong)

    return make


@for_mutants(20_000)
@pytest.mark.parametrize("mutant", [*LAWS, latents_left, outgoing_left])
def test_mutants_are_found(mutant, num_chains):
    result = geweke("regression", "sequential", "joint", num_chains, make=mutated(mutant))
    assert not result.passes, str(result)


def not_refreshed(gibbs, scales):
    """Mutant: Gibbs goes on with the first layer's sums of before the scaling."""

    def step(rng_key, state):
        key_gibbs, key_scales = jax.random.split(rng_key)
        new, info = gibbs.step(key_gibbs, state.states[0])
        moved, _ = scales.step(key_scales, scales.init(new.position))
        stale = new._replace(position=moved.position)
        return state._replace(position=moved.position, states=(stale, moved)), info

    return step


@pytest.mark.long
def test_a_stale_first_layer_is_found():
    """A step depends on the position alone; that of the mutant also on what it had cached."""
    model, x, position, y = drawn("regression", 6, np.float32)
    gibbs, scales = gibbs_sampler(model, x, y), scale_moves(model, x)
    kernel = cycle(gibbs, scales)
    init = jax.jit(kernel.init)
    for step, is_right in ((kernel.step, True), (not_refreshed(gibbs, scales), False)):
        state, _ = jax.jit(step)(jax.random.key(3), init(position))
        # What the sampler keeps for its next draw, against what it makes anew here.
        one, _ = jax.jit(step)(jax.random.key(4), state)
        fresh, _ = jax.jit(step)(jax.random.key(4), init(state.position))
        pairs = zip(jax.tree.leaves(one.position), jax.tree.leaves(fresh.position), strict=True)
        worst = max(float(jnp.max(jnp.abs(a - b))) for a, b in pairs)
        assert (worst < 1e-4) == is_right


def test_units_of_arrays_of_every_shape():
    """A channel keeps its number through a Flatten, where rows of weights repeat them."""
    pixels = jnp.arange(2 * 3 * 4 * 5.0).reshape(2, 3, 4, 5)
    flat = pixels.reshape(-1, 5)
    np.testing.assert_array_equal(by_unit(pixels, 4), by_unit(flat, 4))
    assert [tuple(group) for group in hidden_groups(MODELS["deep conv"])] == [(0, 3, 2), (3, 5, 1)]
    assert [s.end for s in scalings(MODELS["wide"])[0]] == [1]


def test_what_has_no_scale_is_named():
    model = MODELS["deep"]
    x = data("deep", 2, np.float32)
    with pytest.warns(UserWarning, match=r"layer 2 \(Dense\) has no scale symmetry: scaled, hard"):
        scale_moves(model, x)
    bounded = IntermediateNoise(mlp((2, 3, 1), "hard_tanh"), 0.1)
    with pytest.raises(ValueError, match="no hidden layer of this network has a scale symmetry"):
        scale_moves(bounded, x)
    with pytest.raises(ValueError, match="x holds nan"):
        scale_moves(MODELS["regression"], x.at[0, 0].set(jnp.nan))


def test_zeros_have_no_scale():
    model, x, _, y = drawn("regression", dtype=np.float32)
    kernel = scale_moves(model, x)
    zero = model.zero_position(x, y)
    state, info = jax.jit(kernel.step)(jax.random.key(0), kernel.init(zero))
    assert info.is_divergent
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(state.position))


@pytest.mark.parametrize(
    "pieces",
    [
        ((0.5, 0.0, -np.inf, 1.0), (2.0, 0.0, 1.0, np.inf)),
        ((0.0, -1.0, -np.inf, -1.0), (0.0, 0.0, -1.0, 1.0), (0.0, 1.0, 1.0, np.inf)),
    ],
    ids=["slopes", "steps"],
)
def test_pieces_that_meet_elsewhere_than_at_zero_have_no_scale(pieces):
    network = Network((Dense(3), Activation(PiecewiseLinear(pieces)), Dense(1)), (2,))
    assert not scalings(IntermediateNoise(network, 0.1))[0]
