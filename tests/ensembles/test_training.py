"""Tests of ensembles.training and ensembles.epochs: what is minimised is the posterior given the
rows trained on, what is kept is the best on the rows held out, and chains leave each other alone.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
import pytest
import scipy.stats
from blackjax.base import SamplingAlgorithm

import jaxbnn
from jaxbnn.ensembles import TrainingDiverged, optimised_starts
from jaxbnn.ensembles.epochs import (
    Plan,
    batches_of,
    begin,
    members_of,
    minibatch_loss,
    train,
)
from jaxbnn.ensembles.initial import initial_positions
from jaxbnn.sampling.keys import chain_keys
from jaxbnn.sampling.order import ordered
from jaxbnn.targets import (
    Categorical,
    Gaussian,
    LogGamma,
    Posterior,
    StudentT,
    hierarchical_prior,
    normal_prior,
)
from tests.kit import counting
from tests.kit.bits import assert_same

pytestmark = pytest.mark.third_party(reason="Optax adds whole numbers to floats")

KEY = 5
N, D, NOISE = 40, 3, 0.3


def line(rng, n=N):
    """Data of a linear model."""
    x = rng.normal(size=(n, D))
    return x, x @ np.array([1.0, -2.0, 0.5]) + 0.7 + NOISE * rng.normal(size=n)


def linear(rng, **powers):
    x, y = line(rng)
    prior = normal_prior(jaxbnn.mlp((D, 1)), weight_precision=4.0, bias_precision=0.5)
    return Posterior(jaxbnn.mlp((D, 1)), prior, Gaussian(NOISE), x, y)


def noisy(seed=0, network=None):
    """Few rows of noise and many weights: after some epochs validation can only get worse."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(24, 2)).astype(np.float32)
    y = (x[:, 0] + rng.normal(size=24)).astype(np.float32)
    network = network or jaxbnn.mlp((2, 16, 1), "tanh")
    prior = normal_prior(jaxbnn.mlp((2, 16, 1), "tanh"), weight_precision=0.01)
    return Posterior(network, prior, Gaussian(0.5), x, y)


def starts_of(posterior, num_chains=3, **options):
    options = {"batch_size": 8, "validation": 0.3, "progress": False} | options
    return optimised_starts(jax.random.key(KEY), posterior, num_chains, **options)


ADAM = optax.adam(0.03)


def test_training_ends_at_the_mode_given_the_training_rows(x64, rng):
    """In closed form: weights of precision X'X / s^2 + P, of the rows that each chain trains on."""
    posterior = linear(rng)
    num_held_out = 10
    members = members_of(chain_keys(jax.random.key(KEY), 2), N, num_held_out)
    plan = Plan(optax.sgd(0.02), N - num_held_out, N - num_held_out, 16)
    first = {"w": jnp.zeros((2, D, 1)), "b": jnp.zeros((2, 1))}
    chains = begin(members, ordered(posterior), (first,), plan=plan)
    numbers = [jnp.asarray(k, jnp.int32) for k in (0, 16, 10**6)]
    for _ in range(100):  # each call counts its epochs anew: nothing stops a chain
        chains, _, _ = train(members, ordered(posterior), chains, *numbers, plan=plan)
    x, y = np.asarray(posterior.x), np.asarray(posterior.y)
    for c in range(2):
        rows = np.setdiff1d(np.arange(N), members.held_out[c])
        assert sorted(members.trained[c].tolist()) == rows.tolist()
        design = np.column_stack([x[rows], np.ones(len(rows))])
        precision = design.T @ design / NOISE**2 + np.diag([4.0] * D + [0.5])
        mode = np.linalg.solve(precision, design.T @ y[rows] / NOISE**2)
        (layer,) = jax.tree.map(lambda leaf, c=c: leaf[c], chains.position)
        found = np.append(layer["w"][:, 0], layer["b"])
        np.testing.assert_allclose(found, mode, atol=1e-9)
    assert members.held_out[0].tolist() != members.held_out[1].tolist()


def outputs_of(params, x):
    return jnp.tanh(x @ params["v"]) @ params["u"]


def hierarchical(rng):
    x, y = line(rng)
    like = {"v": jnp.zeros((D, 4)), "u": jnp.zeros((4, 1))}
    own = {"log_degrees": LogGamma(2.0, 0.1), "log_noise_scale": dist.Normal(0.0, 1.0)}
    prior = hierarchical_prior(like, is_centred=False, likelihood=own)
    return Posterior(outputs_of, prior, StudentT(), x, y)


@pytest.mark.short("hierarchical")
@pytest.mark.parametrize("make", [linear, hierarchical])
def test_the_gradient_of_a_minibatch_is_unbiased(x64, rng, make):
    """Over the batches of one epoch its mean is that of all training rows, prior and all."""
    posterior = make(rng).tempered(0.7)
    plan = Plan(ADAM, 30, 6, 4)
    members = members_of(chain_keys(jax.random.key(KEY), 1), N, N - 30)
    rows = members.trained[0]
    part = posterior.with_data(posterior.x[rows], posterior.y[rows])
    position = posterior.sample_prior(jax.random.key(0))
    exact = jax.grad(lambda p: -part.log_density(p) / 30)(position)

    @jax.jit
    def of_batch(batch):
        seen = rows[batch]
        x, y = posterior.x[seen], posterior.y[seen]
        return jax.grad(minibatch_loss, argnums=1)(posterior, position, x, y, 30)

    orders = []
    for epoch in (1, 2):
        batches = batches_of(members.order_key[0], jnp.asarray(epoch, jnp.int32), plan)
        assert sorted(batches.ravel().tolist()) == list(range(30))
        orders.append(batches.ravel().tolist())
        slopes = [of_batch(batch) for batch in batches]
        mean = jax.tree.map(lambda *leaves: sum(leaves) / len(leaves), *slopes)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-10), mean, exact)
    assert orders[0] != orders[1]


def test_batches_leave_out_other_rows_each_epoch():
    """29 rows in batches of 4: one is left out, each as often as any other."""
    plan = Plan(ADAM, 29, 4, 4)
    key = jax.random.key(3)
    seen = jax.vmap(lambda e: batches_of(key, e, plan))(jnp.arange(2000, dtype=jnp.int32))
    assert seen.shape == (2000, 7, 4)
    flat = np.sort(seen.reshape(2000, -1), axis=1)
    assert (np.diff(flat, axis=1) > 0).all()
    counts = 2000 - np.bincount(flat.ravel(), minlength=29)
    # Multinomial: 2000 draws of 29. False alarm 1e-6 for the sum of squares.
    statistic = np.sum((counts - 2000 / 29) ** 2) / (2000 / 29)
    assert statistic < scipy.stats.chi2.isf(1e-6, 28)


def validation_by_hand(posterior, starts, c):
    params = jax.tree.map(lambda leaf: np.asarray(leaf[c], float), starts.positions)
    x, y = (np.asarray(a, float)[starts.held_out[c]] for a in (posterior.x, posterior.y))
    hidden = np.tanh(x @ params[0]["w"] + params[0]["b"])
    mean = (hidden @ params[2]["w"] + params[2]["b"])[:, 0]
    return -scipy.stats.norm.logpdf(y, mean, 0.5).mean()


def test_each_chain_keeps_its_best_epoch_and_stops_after_its_patience():
    posterior = noisy()
    starts = starts_of(posterior, optimizer=ADAM, patience=15, max_epochs=400)
    assert not starts.diverged.any()
    assert (starts.num_epochs < 400).all()
    assert len(set(starts.num_epochs.tolist())) > 1
    assert starts.validation.shape == (3, starts.num_epochs.max())
    for c in range(3):
        made, curve = starts.num_epochs[c], starts.validation[c]
        assert np.isnan(curve[made:]).all()
        assert np.isnan(starts.training[c, made:]).all()
        assert np.isfinite(curve[:made]).all()
        best = np.argmin(curve[:made])
        assert starts.best_epoch[c] == best + 1
        assert made == best + 1 + 15
        assert curve[made - 1] > curve[best] + 0.01  # the last epoch is another
        # Evaluated from the definition, at what is returned.
        np.testing.assert_allclose(validation_by_hand(posterior, starts, c), curve[best], 1e-4)
        assert starts.training[c, made - 1] < starts.training[c, 0]


def test_a_chain_that_stopped_stays_as_it_is():
    posterior = noisy()
    short = starts_of(posterior, optimizer=ADAM, patience=15, max_epochs=20)
    longer = starts_of(posterior, optimizer=ADAM, patience=15, max_epochs=60)
    stopped = short.num_epochs < 20
    assert stopped.any()
    assert not stopped.all()  # others go on beside it
    for a, b in ((short.positions, longer.positions), (short.num_epochs, longer.num_epochs)):
        of_stopped = (jax.tree.map(lambda leaf: np.asarray(leaf)[stopped], tree) for tree in (a, b))
        assert_same(*of_stopped)
    np.testing.assert_array_equal(short.validation, longer.validation[:, :20])


def test_a_chain_does_not_depend_on_how_many_others_there_are():
    """To rounding: products of several matrices may be summed in another order."""
    posterior = noisy()
    few, many = (starts_of(posterior, k, optimizer=ADAM, max_epochs=6) for k in (1, 3))
    first = jax.tree.map(lambda leaf: leaf[:1], (many.positions, many.held_out, many.validation))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5),
        (few.positions, few.held_out, few.validation),
        first,
    )
    ends = [jax.tree.leaves(many.positions)[1][c].ravel().tolist() for c in range(3)]
    assert len({tuple(end) for end in ends}) == 3


def test_a_chain_that_diverges_is_told_of_and_spoils_no_other():
    posterior = noisy()
    first = starts_of(posterior, optimizer=ADAM, max_epochs=1).positions
    good = starts_of(posterior, positions=first, optimizer=ADAM, max_epochs=30)
    bad = jax.tree.map(lambda leaf: leaf.at[1].multiply(1e30), first)
    with pytest.warns(UserWarning, match=r"^training diverged: chain 1 in epoch 1; each keeps"):
        starts = starts_of(posterior, positions=bad, optimizer=ADAM, max_epochs=30)
    assert starts.diverged.tolist() == [False, True, False]
    assert starts.num_epochs[1] == 1
    assert starts.best_epoch[1] == 0
    others = lambda tree: jax.tree.map(lambda leaf: np.asarray(leaf)[[0, 2]], tree)  # noqa: E731
    assert_same(others(starts.positions), others(good.positions))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(starts.positions))


@pytest.mark.short("starts")
@pytest.mark.parametrize("what", ["starts", "steps"])
def test_where_every_chain_diverges_it_is_an_error(what):
    posterior = noisy()
    options = {"optimizer": optax.sgd(1e4)}
    if what == "starts":
        far = posterior.sample_prior(jax.random.key(0), (3,))
        options = {"optimizer": ADAM, "positions": jax.tree.map(lambda leaf: leaf * 1e30, far)}
    said = r"^training diverged: chain 0 in epoch \d+, chain 1"
    with pytest.raises(TrainingDiverged, match=said) as e:
        starts_of(posterior, **options)
    assert "smaller step" in str(e.value)
    assert "\n" not in str(e.value)


def classes(rng):
    x, y = line(rng)
    return Posterior(
        jaxbnn.mlp((D, 4, 2)), dist.Normal(0, 1), Categorical(), x, (y > 0).astype(int)
    )


@pytest.mark.short("classes")
@pytest.mark.parametrize("make", [classes, hierarchical])
def test_all_that_a_position_holds_is_trained(rng, make):
    posterior = make(rng)
    starts = starts_of(posterior, 2, optimizer=ADAM, max_epochs=40, patience=40)
    assert (starts.best_epoch > 0).all()
    assert (starts.validation.min(axis=1) < starts.validation[:, 0]).all()
    members = members_of(chain_keys(jax.random.key(KEY), 2), N, 12)
    assert members.held_out.tolist() == starts.held_out.tolist()
    before = initial_positions(members.start_key, posterior)
    moved = [
        np.abs(np.asarray(a) - np.asarray(b)).max()
        for a, b in zip(*map(jax.tree.leaves, (starts.positions, before)), strict=True)
    ]
    assert min(moved) > 1e-3


def test_the_result_is_a_deep_ensemble_for_predict_and_scores():
    posterior = noisy()
    starts = starts_of(posterior, optimizer=ADAM, max_epochs=5)
    members = [
        posterior.predictive(jax.tree.map(lambda leaf, c=c: leaf[c], starts.positions), posterior.x)
        for c in range(3)
    ]
    prediction = jaxbnn.predict(starts, posterior.x, posterior)
    means = np.stack([member.mean for member in members])
    np.testing.assert_allclose(prediction.mean, means.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(prediction.epistemic, means.var(axis=0), rtol=1e-3, atol=1e-6)
    assert_same(prediction, jaxbnn.predict(starts.as_draws(), posterior.x, posterior))
    densities = np.stack([member.log_prob(posterior.y) for member in members])
    expected = np.log(np.exp(densities).mean(axis=0))
    found = jaxbnn.scores(starts, posterior.x, posterior.y, posterior)
    np.testing.assert_allclose(found.log_score, expected, rtol=1e-4, atol=1e-5)


def test_chains_of_sample_start_there():
    posterior = noisy()
    starts = starts_of(posterior, optimizer=ADAM, max_epochs=5)

    class State(NamedTuple):
        position: Any

    stay = SamplingAlgorithm(lambda p, rng_key=None: State(p), lambda rng_key, state: (state, ()))
    draws = jaxbnn.sample(jax.random.key(1), stay, starts.positions, 2, progress=False)
    assert_same(jax.tree.map(lambda leaf: leaf[:, 1], draws.positions), starts.positions)


def test_one_program_for_all_chunks_and_for_a_second_call():
    inner = jaxbnn.mlp((2, 16, 1), "tanh")
    network = counting(lambda params, x: jaxbnn.networks.apply(inner, params, x))
    posterior = noisy(network=network)
    seen = []
    starts_of(posterior, optimizer=ADAM, max_epochs=30, patience=30, progress=seen.append)
    assert len(seen) > 1
    assert [seen[-1].done, seen[-1].total, seen[-1].phase] == [60, 60, "training"]
    calls = network.calls
    other = noisy(1, network)
    starts_of(other, optimizer=ADAM, max_epochs=50, patience=10)
    assert network.calls <= calls + 1  # `Posterior` itself looks at the outputs' shape
