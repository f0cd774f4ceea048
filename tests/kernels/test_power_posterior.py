"""Tests of kernels.ladder and kernels.swaps: power posteriors keep the joint law of all rungs;
wrong swaps and stale caches do not.

The false-alarm rate of each statistical test is 1e-6.
"""

from typing import NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.base import SamplingAlgorithm

from jaxbnn import diagnostics
from jaxbnn.kernels import (
    cycle,
    mix,
    on_block,
    pcn,
    refresh,
    repeat,
    smmala,
    swaps,
    underdamped_langevin,
)
from jaxbnn.kernels.power_posterior import Replicas, power_posterior
from jaxbnn.kernels.refresh import auxiliary_fields
from jaxbnn.sampling import sample, schedule
from tests.kernels.reference_measure import module_of
from tests.kernels.tempered_line import (
    LADDER,
    all_rungs,
    ladder_target,
    log_likelihood,
    log_prior,
    log_target,
)
from tests.kit import both_sizes, check_exact_start, check_flux_identity, for_mutants, random_pairs
from tests.kit.mutants import random_walk

MODULE = module_of(power_posterior)
STEP_SIZES = jnp.array([0.9, 0.6, 0.4], jnp.float32)
SCHEMES = {
    "categorical": {"swap": "categorical", "tempered": "likelihood", "beta": 2.0},
    "even_odd": {"swap": "even_odd", "tempered": "posterior", "swap_every": 2},
}


def ladder_kernel(scheme):
    tempered = SCHEMES[scheme]["tempered"]

    def make_kernel(temperature, step_size):
        return random_walk(lambda x: log_target(temperature, tempered, x), step_size)

    return power_posterior(
        make_kernel, log_prior, log_likelihood, LADDER, parameters=STEP_SIZES, **SCHEMES[scheme]
    )


def check(scheme, num_chains):
    target = ladder_target(SCHEMES[scheme]["tempered"])
    kernel = all_rungs(ladder_kernel(scheme))
    return check_exact_start(kernel, target, steps=6, num_chains=num_chains)


right_ratio = swaps.swap_log_ratio


def sign_flipped(temperature_i, temperature_j, terms_i, terms_j):
    return -right_ratio(temperature_i, temperature_j, terms_i, terms_j)


def with_the_printed_factor(temperature_i, temperature_j, terms_i, terms_j):
    """Defect of algorithm 1: p_j(i) / p_i(j) in a scan over i (erratum D3)."""
    ladder = jnp.asarray(LADDER, temperature_i.dtype)
    i, j = (jnp.argmin(jnp.abs(ladder - t)) for t in (temperature_i, temperature_j))
    beta = SCHEMES["categorical"]["beta"]
    log_p = jax.nn.log_softmax(swaps.partner_logits(len(LADDER), beta, ladder.dtype))
    return right_ratio(temperature_i, temperature_j, terms_i, terms_j) + log_p[j, i] - log_p[i, j]


def stale_refresh(kernel, state, position, rng_key=None):
    """Defect: what the inner kernel has cached stays behind."""
    return state._replace(position=position)


MUTANTS = {
    "categorical, printed factor": (
        "categorical",
        swaps,
        "swap_log_ratio",
        with_the_printed_factor,
    ),
    "even_odd, sign flipped": ("even_odd", swaps, "swap_log_ratio", sign_flipped),
    "even_odd, stale caches": ("even_odd", MODULE, "refresh", stale_refresh),
}


@pytest.mark.short("even_odd-short")
@both_sizes()
@pytest.mark.parametrize("scheme", SCHEMES)
def test_exact_draws_of_all_rungs_stay_exact(scheme, num_chains):
    result = check(scheme, num_chains)
    assert result.passes, str(result)
    if num_chains is None:
        assert result.detectable <= 0.005


@for_mutants()
@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_found(mutant, num_chains, monkeypatch):
    scheme, module, name, defect = MUTANTS[mutant]
    monkeypatch.setattr(module, name, defect)
    result = check(scheme, num_chains)
    assert not result.passes, str(result)
    assert any(result.distances[f] > result.thresholds[f] for f in result.distances)


def flux(log_ratio, rng, terms):
    t_i, t_j = 0.3, 1.0

    def log_pi(x):
        return sum(
            t * np.sum(log_likelihood(z, np)) + log_prior(z, np)
            for t, z in zip((t_i, t_j), x, strict=True)
        )

    def of_swap(x, y):
        return log_ratio(
            jnp.asarray(t_i, x.dtype), jnp.asarray(t_j, x.dtype), terms(x[0]), terms(x[1])
        )

    x, _ = random_pairs(rng, 200, 2)
    # The swap is the only move: proposed from both ends with the same probability.
    return check_flux_identity(log_pi, lambda x, y: 0.0, of_swap, (x, x[:, ::-1]))


def test_flux_identity_of_a_swap(rng):
    assert flux(right_ratio, rng, log_likelihood).passes
    assert flux(sign_flipped, rng, log_likelihood).largest > 0.1
    # The prior cancels where it is not tempered.
    assert (
        flux(right_ratio, rng, lambda x: jnp.append(log_likelihood(x), log_prior(x))).largest > 0.1
    )


def test_a_swap_between_equal_temperatures_is_always_accepted():
    one, terms = jnp.array(1.0), jnp.array([1.0, -jnp.inf])
    assert right_ratio(one, one, terms, -terms) == 0
    assert jnp.isnan(right_ratio(0.5 * one, one, terms, terms))


def test_partners_are_drawn_as_the_paper_says():
    beta, m = 0.5, 4
    inverted = np.zeros((m + 1, m + 1))
    found = np.exp(jax.nn.log_softmax(swaps.partner_logits(m + 1, beta, jnp.dtype(jnp.float32))))
    for i in range(m + 1):
        gamma = np.exp(-beta) * (2 - np.exp(-beta * i) - np.exp(-beta * (m - i)))
        gamma /= 1 - np.exp(-beta)  # equation (4.4)
        paper = [np.exp(-beta * abs(j - i)) / gamma if j != i else 0.0 for j in range(m + 1)]
        np.testing.assert_allclose(found[i], paper, rtol=1e-5)
        inverted[i] = paper
    uniforms = (jnp.arange(5000, dtype=jnp.float32) + 0.5) / 5000
    partners = jax.vmap(swaps._partners, (0, None))(jnp.tile(uniforms[:, None], m + 1), beta)
    shares = [np.bincount(column, minlength=m + 1) / 5000 for column in np.asarray(partners).T]
    np.testing.assert_allclose(shares, inverted, atol=3e-4)
    # Next to 1, rounding must not lead past the last partner, nor to the rung itself.
    last = swaps._partners(jnp.full(m + 1, np.nextafter(np.float32(1), 0)), beta)
    np.testing.assert_array_equal(last, [m, m, m, m, m - 1])


def other_state_probability(has_factor):
    """Return how often swaps of ten equal replicas, beta = .5, leave another state in the last."""
    distance = np.abs(np.subtract.outer(np.arange(10), np.arange(10)))
    partner = np.where(distance == 0, 0, np.exp(-0.5 * distance))
    partner /= partner.sum(axis=1, keepdims=True)
    is_accepted = np.minimum(1, partner.T / np.where(distance == 0, 1, partner))
    moves = partner * (is_accepted if has_factor else 1)
    place = np.eye(10)[-1]  # of the state that was the last one's
    for i in range(10):
        leaves, comes = place[i] * moves[i], place * moves[i]
        place = place + leaves - comes
        place[i] += comes.sum() - leaves.sum()
    return 1 - place[-1]


def test_how_often_swaps_of_equal_replicas_hand_another_state_to_the_last():
    """With the printed factor, erratum D3, it is less often."""
    keys, equal = jax.random.split(jax.random.key(3), 20_000), jnp.ones(10)
    orders = jax.jit(
        jax.vmap(lambda key: swaps.categorical_swaps(key, equal, jnp.zeros((10, 1)), 0.5).order)
    )(keys)
    expected, with_factor = other_state_probability(False), other_state_probability(True)
    assert round(expected, 2) == 0.86
    assert round(with_factor, 2) == 0.73
    error = np.sqrt(expected * (1 - expected) / len(keys))
    assert abs(np.mean(orders[:, -1] != 9) - expected) < 4.9 * error  # two-sided, 1e-6


def test_a_cold_replica_without_likelihood_is_handed_on():
    """Where its terms are -inf, a hotter rung takes it: the others' differences stay numbers."""
    terms = jnp.array([[-1.0, -2.0], [-3.0, -0.5], [-1.0, -jnp.inf]])
    ladder = jnp.asarray(LADDER, jnp.float32)
    swap = jax.jit(jax.vmap(lambda key: swaps.categorical_swaps(key, ladder, terms, 2.0)))
    found = swap(jax.random.split(jax.random.key(0), 50))
    assert np.all(np.asarray(found.order)[:, -1] != 2)
    assert np.all(np.isfinite(found.acceptance))


@pytest.mark.long
def test_round_trips_are_counted(rng):
    rungs, steps = 4, 300
    orders = np.stack([rng.permutation(rungs) for _ in range(steps)]).astype(np.int32)
    orders[::3] = np.arange(rungs)  # steps without swaps

    def follow(trips, order):
        trips = swaps.follow_trips(trips, order)
        return trips, trips

    _, history = jax.lax.scan(follow, swaps.start_trips(rungs), jnp.asarray(orders))
    where = list(range(rungs))
    visits = {replica: [] for replica in range(rungs)}
    visits[rungs - 1].append("cold")
    for step, order in enumerate(orders):
        where = [where[old] for old in order]
        for rung, name in ((rungs - 1, "cold"), (0, "hot")):
            if visits[where[rung]][-1:] != [name]:
                visits[where[rung]].append(name)
        completed = sum(
            max(0, v[v.index("cold") :].count("cold") - 1) for v in visits.values() if "cold" in v
        )
        assert history.replica[step].tolist() == where
        assert history.completed[step] == completed
    assert completed > 20


def at(temperature, step_size):
    return blackjax.mala(lambda x: log_target(temperature, "likelihood", x), step_size)


@pytest.mark.long
def test_in_the_runner_with_traced_step_sizes():
    def make_kernel(parameters, data):
        return power_posterior(
            at, log_prior, log_likelihood, data, parameters=parameters["step_size"], swap_every=3
        )

    draws = sample(
        jax.random.key(0),
        make_kernel,
        Replicas(jnp.zeros((2, 3))),
        40,
        parameters={"step_size": jnp.broadcast_to(STEP_SIZES**2 / 2, (2, 3))},
        data=jnp.asarray(LADDER),
        collect=lambda state, info: (state.position, state.replicas, info),
        progress=False,
    )
    position, replicas, info = draws.positions
    assert position.shape == (2, 40)
    assert replicas.shape == (2, 40, 3)
    assert draws.final_state.replicas.shape == (2, 3)
    np.testing.assert_array_equal(replicas[..., -1], position)
    expected = np.sum(log_likelihood(replicas, np), axis=0)
    np.testing.assert_allclose(info.log_likelihood, expected, rtol=1e-5, atol=1e-5)
    # The cold chain has moved where its state after moves and swaps is another one.
    has_moved = np.diff(np.append(np.zeros((2, 1)), position, axis=1), axis=1) != 0
    np.testing.assert_array_equal(info.is_accepted, has_moved)
    np.testing.assert_allclose(draws.acceptance_rate, has_moved.mean(axis=1), rtol=1e-6)
    # Swaps in every third step only; in each of them, a partner for each rung.
    proposed = info.swaps.proposals.sum(axis=(2, 3))
    np.testing.assert_array_equal(
        proposed, np.where(np.arange(1, 41) % 3 == 0, 6, 0)[None] * [[1], [1]]
    )
    assert (info.swaps.acceptance <= info.swaps.proposals).all()
    # The inner kernels' caches are those of the replicas they hold.
    cold = draws.final_state.cold
    np.testing.assert_allclose(
        cold.logdensity, log_target(1.0, "likelihood", np.asarray(cold.position), np), rtol=1e-5
    )


def hmc(temperature, step_size):
    density = lambda x: log_target(temperature, "likelihood", x[0])  # noqa: E731
    return blackjax.hmc(density, step_size, jnp.ones(1), num_integration_steps=3)


def nuts(temperature, step_size):
    return blackjax.nuts(
        lambda x: log_target(temperature, "likelihood", x[0]), step_size, jnp.ones(1)
    )


def smmala_at(temperature, step_size):
    return smmala(lambda x: log_target(temperature, "likelihood", x[0]), step_size)


def pcn_at(temperature, step_size):
    likelihood = lambda x: temperature * log_likelihood(x[0])  # noqa: E731
    return pcn(likelihood, step_size, PRIOR_VARIANCE, mean=0.5)


PRIOR_VARIANCE = 4.0


@pytest.mark.third_party(reason="BlackJAX's NUTS")
@pytest.mark.parametrize("make_kernel", [hmc, nuts, smmala_at, pcn_at])
def test_any_inner_kernel_is_traced_and_its_state_keeps_its_type(make_kernel):
    kernel = power_posterior(
        make_kernel,
        lambda x: log_prior(x[0]),
        lambda x: log_likelihood(x[0]),
        LADDER,
        parameters=STEP_SIZES,
    )
    before = jax.eval_shape(kernel.init, jnp.zeros(1))
    after, info = jax.eval_shape(kernel.step, jax.random.key(0), before)
    assert jax.tree.structure(before) == jax.tree.structure(after)
    assert jax.tree.leaves(before) == jax.tree.leaves(after)
    assert info.inner.acceptance_rate.shape == (3,)


@pytest.mark.parametrize("temperatures", [(1.0, 1.0, 1.0), (0.5, 1.0, 1.0)])
def test_equal_temperatures_swap_whole_states(temperatures):
    def make_kernel(temperature, parameters):
        return pcn(lambda x: temperature * log_likelihood(x), 0.3, PRIOR_VARIANCE, mean=0.5)

    kernel = power_posterior(make_kernel, log_prior, log_likelihood, temperatures, swap="even_odd")
    state = jax.jit(kernel.init)(Replicas(jnp.array([-1.0, 0.5, 2.0])))
    step = jax.jit(kernel.step)
    for i in range(2):
        state, info = step(jax.random.key(i), state)
        for temperature, x, cached in zip(
            temperatures, state.replicas, state.inner.log_likelihood, strict=True
        ):
            np.testing.assert_allclose(cached, temperature * log_likelihood(x), rtol=1e-5)
    # Of the odd round: rungs 1 and 2, both at temperature 1.
    assert info.swaps.acceptance[1, 2] == info.swaps.proposals[1, 2] == 1
    assert bool(info.is_accepted)


def test_another_kernel_moves_the_cold_replica_only():
    kernel = power_posterior(at, log_prior, log_likelihood, LADDER, parameters=STEP_SIZES)

    @jax.jit
    def move(replicas, position):
        return refresh(kernel, kernel.init(Replicas(replicas)), position)

    moved = move(jnp.array([-1.0, 0.5, 2.0]), jnp.array(7.0))
    np.testing.assert_array_equal(moved.replicas, [-1.0, 0.5, 7.0])
    np.testing.assert_allclose(moved.cold.logdensity, log_target(1.0, "likelihood", 7.0))

    def flip(rng_key, state):
        return state._replace(position=-state.position), None

    def start(position, rng_key=None):
        return at(1.0, 0.1).init(position)

    both = cycle(kernel, SamplingAlgorithm(start, flip))
    state = jax.eval_shape(both.init, jnp.zeros(()))
    after, _ = jax.eval_shape(both.step, jax.random.key(0), state)
    assert after.states[0].hot.position.shape == (2,)


@pytest.mark.long
def test_evidence_of_a_linear_model_is_found():
    """Bayesian linear regression, whose evidence is a normal density."""
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(6, 2)), rng.normal(size=6)
    precision = 4.0

    def terms(w):
        residual = jnp.asarray(y, w.dtype) - jnp.asarray(x, w.dtype) @ w
        return -0.5 * precision * residual**2 + 0.5 * np.log(precision / (2 * np.pi))

    def make_kernel(temperature, beta):
        return pcn(lambda w: temperature * terms(w), beta)

    ladder = np.linspace(0, 1, 6) ** 3
    kernel = power_posterior(
        make_kernel,
        lambda w: -0.5 * jnp.sum(w**2),
        terms,
        ladder,
        parameters=jnp.asarray([1.0, 0.9, 0.8, 0.7, 0.6, 0.5]),
        swap="even_odd",
    )
    draws = sample(
        jax.random.key(1),
        kernel,
        jnp.zeros((4, 2)),
        1200,
        collect=lambda state, info: (info.log_likelihood, info.swaps),
        progress=False,
    )
    log_likelihoods, counted = jax.tree.map(lambda leaf: leaf[:, 200:], draws.positions)
    covariance = x @ x.T + np.eye(6) / precision
    exact = -0.5 * (
        y @ np.linalg.solve(covariance, y) + np.linalg.slogdet(2 * np.pi * covariance)[1]
    )
    found = diagnostics.bennett_acceptance_ratio(log_likelihoods, ladder)
    assert 0 < found.standard_error < 0.1
    assert abs(found.log_evidence - exact) < 4.9 * found.standard_error
    # Swap acceptance as counted in the run, and as computed from what the rungs drew.
    neighbours = np.arange(5), np.arange(1, 6)
    accepted, proposed = (
        np.sum(matrix, axis=(0, 1))[neighbours]
        for matrix in (counted.acceptance, counted.proposals)
    )
    np.testing.assert_array_equal(proposed, 4 * 500)
    found = diagnostics.swap_acceptance(log_likelihoods, ladder)
    np.testing.assert_allclose(accepted / proposed, found, atol=0.06)
    assert (draws.final_state.trips.completed > 20).all()


BAD = [
    ({"temperatures": [0.0, 0.5, 0.2, 1.0]}, "never decrease"),
    ({"temperatures": [0.0, 0.5]}, "must end at 1"),
    ({"temperatures": [1.0]}, "at least two"),
    ({"temperatures": [-0.1, 1.0]}, "not negative"),
    ({"temperatures": [0.0, 1.0], "tempered": "posterior"}, "cannot be sampled"),
    ({"swap_every": 0}, "swap_every must be at least 1"),
    ({"beta": 0.0}, "beta must be positive"),
    ({"parameters": {"step_size": jnp.ones(2)}}, r"\['step_size'\] has shape \(2,\)"),
]


@pytest.mark.parametrize(("change", "sentence"), BAD)
def test_bad_input_is_met_at_the_door(change, sentence):
    arguments = {"temperatures": LADDER, "parameters": STEP_SIZES} | change
    with pytest.raises(ValueError, match=sentence):
        power_posterior(at, log_prior, log_likelihood, **arguments)


@pytest.mark.parametrize("option", [{"swap": "random"}, {"tempered": "prior"}])
def test_options_are_one_of_two(option, annotations_unchecked):
    ((name, given),) = option.items()
    with pytest.raises(ValueError, match=f"{name} must be '.*' or '.*', but is '{given}'"):
        power_posterior(at, log_prior, log_likelihood, LADDER, parameters=STEP_SIZES, **option)


def test_replicas_must_fit_the_ladder():
    kernel = power_posterior(at, log_prior, log_likelihood, LADDER, parameters=STEP_SIZES)
    with pytest.raises(ValueError, match="the positions of Replicas must have the 3 rungs"):
        kernel.init(Replicas(jnp.zeros(4)))


@pytest.mark.usefixtures("annotations_unchecked")
def test_a_count_for_a_likelihood_leaves_the_prior_its_fraction():
    """Of the whole posterior, tempered: cut off to whole numbers, -0.4 would be 0."""

    def count(x):
        return -jnp.sum(x > 1).astype(jnp.int32)

    kernel = power_posterior(
        lambda temperature, _: stands_still(),
        lambda x: -0.4 * jnp.sum(x),
        count,
        [0.5, 1.0],
        tempered="posterior",
        swap="even_odd",
    )
    state = kernel.init(Replicas(jnp.array([0.9, 0.1])))
    _, info = kernel.step(jax.random.key(0), state)
    # (t_0 - t_1) (log p(x_1) - log p(x_0)) = -0.5 * 0.32
    np.testing.assert_allclose(info.swaps.acceptance[0, 1], np.exp(-0.16), rtol=1e-5)


def stands_still():
    kernel = pcn(lambda x: jnp.zeros(()), 0.5)
    return kernel._replace(step=lambda rng_key, state: (state, ()))


@pytest.mark.parametrize("compose", [cycle, lambda *kernels: mix(kernels)], ids=["cycle", "mix"])
def test_one_block_is_not_tempered_where_another_moves(compose):
    """The hot replicas would stay as the rest was: a correlation of 0.95 came out as 0.84."""

    def tempered(whole):
        def terms(block):
            return log_likelihood(whole(block)["a"])

        return power_posterior(lambda t, _: pcn(terms, 0.5), log_prior, terms, [0.5, 1.0])

    position = {"a": jnp.zeros(()), "b": jnp.zeros(())}
    other = on_block(lambda whole: pcn(lambda b: whole(b)["a"], 0.5), "b")
    block = on_block(tempered, "a")
    block.init(position)  # the conditional of one block, given the rest for good
    inside = on_block(
        lambda whole: on_block(lambda inner: tempered(lambda a: whole(inner(a))), 0), ["a"]
    )
    for kernel in (block, repeat(block, 2), inside):
        with pytest.raises(TypeError, match="temper the whole position"):
            compose(kernel, other).init(position)
    compose(on_block(tempered, ["a", "b"]), other).init(position)


@auxiliary_fields()
class Plain(NamedTuple):
    position: jax.Array


class PlainInfo(NamedTuple):
    acceptance_rate: jax.Array


def test_every_rung_is_moved_and_told_of_after_its_move():
    def by_one(temperature, step_size):
        def step(rng_key, state):
            return Plain(state.position + 1), PlainInfo(jnp.ones(()))

        return SamplingAlgorithm(lambda position, rng_key=None: Plain(position), step)

    kernel = power_posterior(
        by_one,
        log_prior,
        log_likelihood,
        LADDER,
        parameters=STEP_SIZES,
        swap="even_odd",
        swap_every=9,
    )
    starts = jnp.array([-1.0, 0.5, 2.0])
    state, info = kernel.step(jax.random.key(0), kernel.init(Replicas(starts)))
    np.testing.assert_allclose(state.replicas, starts + 1)
    expected = jax.vmap(log_likelihood)(starts + 1).sum(axis=1)  # of two terms
    np.testing.assert_allclose(info.log_likelihood, expected, rtol=1e-5)


def annealed(parameters, data):
    """Return replicas of x ~ N(0, I) given data of a variance that is a parameter."""

    def log_likelihood(x):
        return -0.5 * jnp.sum((x - data) ** 2) / parameters["variance"]

    def at(temperature, _):
        return pcn(lambda x: temperature * log_likelihood(x), 0.2)

    return power_posterior(
        at, lambda x: -0.5 * jnp.sum(x**2), log_likelihood, [0.5, 1.0, 1.0], swap_every=1000
    )


def test_an_adaptation_that_changes_the_target_leaves_no_replica_behind():
    adapt = schedule(lambda t: {"variance": 100 * jnp.exp(-0.1 * t.astype(float))}, refresh=refresh)
    data = jnp.ones(20)
    drawn = sample(
        *(jax.random.key(0), annealed, jnp.zeros((3, 20)), 1),
        parameters={"variance": 100.0}, num_warmup=30, adapt=adapt, data=data, progress=False,
    )  # fmt: skip
    state = drawn.final_state
    assert (drawn.parameters["variance"] < 10).all()
    for chain in range(3):
        own = jax.tree.map(lambda leaf: leaf[chain], (state, drawn.parameters))  # noqa: B023
        kernel = annealed(own[1], data)
        anew = kernel.init(Replicas(own[0].replicas)).inner
        np.testing.assert_allclose(own[0].inner.log_likelihood, anew.log_likelihood, rtol=1e-5)
        assert own[0].step > 0


def test_replicas_that_are_refreshed_stay_where_they_are():
    kernel = power_posterior(
        lambda t, _: underdamped_langevin(lambda x: -t * jnp.sum(x**2), 0.1, 0.3),
        log_prior, lambda x: -jnp.sum(x**2), [0.5, 1.0],
    )  # fmt: skip
    state = kernel.init(Replicas(jnp.array([1.0, 2.0])), jax.random.key(0))
    moved = refresh(kernel, state, jnp.array(5.0), jax.random.key(1))
    assert moved.replicas.tolist() == [1, 5]
    assert moved.position == 5
    np.testing.assert_array_equal(moved.inner.momentum, state.inner.momentum)
    assert moved.cold.log_density == -25


def test_replicas_of_a_block_are_refused_within_replicas_of_the_whole():
    position = {"a": jnp.zeros(2), "b": jnp.zeros(2)}

    def log_likelihood(x):
        return -jnp.sum((x["a"] - x["b"]) ** 2)

    def on_a(temperature, _):
        def make(whole):
            density = lambda a: temperature * log_likelihood(whole(a))  # noqa: E731
            kernel_at = lambda t, _: pcn(lambda a: t * density(a), 0.5)  # noqa: E731
            return power_posterior(kernel_at, log_prior, density, [0.1, 1.0])

        return on_block(make, "a")

    outer = power_posterior(on_a, log_prior, log_likelihood, [0.3, 1.0])
    with pytest.raises(TypeError, match="temper the whole position"):
        outer.init(position)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_swaps_of_halves_are_judged_by_the_numbers_that_they_have(dtype):
    ladder = jnp.array([0.25, 0.5, 1.0], dtype)
    for terms in ([[-1005.9], [-1002.1], [0.0]], [[-1e5], [-1e5 - 0.1], [0.0]]):
        terms = jnp.array(terms, jnp.float32)
        exact = np.exp(min(0.0, 0.25 * (terms[0] - terms[1]).item()))
        for seed, propose in enumerate(
            (
                lambda key: swaps.categorical_swaps(key, ladder, terms, 5.0),  # noqa: B023
                lambda key: swaps.even_odd_swaps(key, ladder, terms, jnp.int32(0)),  # noqa: B023
            )
        ):
            found = jax.jit(jax.vmap(propose))(jax.random.split(jax.random.key(seed), 60))
            assert found.acceptance.dtype == found.proposals.dtype == dtype
            # The first pair that is proposed in a round is of replicas where they are.
            told = found.acceptance[:, 0, 1].astype(float) / found.proposals[:, 0, 1].astype(float)
            once = told[found.proposals[:, 0, 1] == 1]
            assert np.abs(np.asarray(once) - exact).min() < 0.005
