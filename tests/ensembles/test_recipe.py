"""Tests of ensembles.recipe, ensembles.way_in and ensembles.found_again: the recipe ends where the
posterior is, goes on where it stopped, and says what went wrong.
"""

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import NamedTuple

import jax
import numpy as np
import pytest

import jaxbnn
from jaxbnn.ensembles import recipe, sample_ensemble, way_in
from jaxbnn.ensembles.energy_error import EnergyError
from jaxbnn.ensembles.found_again import found_again
from jaxbnn.ensembles.likelihood_metric import first_metric
from jaxbnn.ensembles.microcanonical import microcanonical, microcanonical_parameters
from jaxbnn.sampling import Draws
from jaxbnn.sampling.draws import Reduced
from jaxbnn.sampling.store import files
from tests.kernels.reference_measure import module_of

pytestmark = pytest.mark.third_party(reason="BlackJAX's kernels promote dtypes")

microcanonical_kernel = module_of(microcanonical)

# Bayesian linear regression: the posterior is Gaussian, its moments are known.
NOISE = 0.4
X = np.random.default_rng(0).standard_normal((30, 4)).astype(np.float32) * [1, 1, 0.3, 2]
Y = (X @ [1.0, -1.0, 2.0, 0.5] + 0.2).astype(np.float32)[:, None]


@functools.cache
def regression():
    network = jaxbnn.mlp((4, 1))
    prior = jaxbnn.normal_prior(network)
    return jaxbnn.Posterior(network, prior, jaxbnn.Gaussian(NOISE), X.astype(np.float32), Y)


def moments():
    """Of (w, b), with N(0, 1) priors."""
    design = np.concatenate([X, np.ones((30, 1))], axis=1).astype(float)
    covariance = np.linalg.inv(np.eye(5) + design.T @ design / NOISE**2)
    return covariance @ design.T @ Y[:, 0] / NOISE**2, covariance


def run(num_samples=200, **options):
    starts = regression().sample_prior(jax.random.key(3), (4,))
    default = {"num_tuning": 200, "num_warmup": 100, "trajectory_steps": 6, "progress": False}
    return sample_ensemble(
        jax.random.key(4), regression(), starts, num_samples, **default | options
    )


def check_moments(found):
    draws = found.draws.positions[0]
    values = np.concatenate([draws["w"][..., 0], draws["b"]], axis=2).reshape(-1, 5)
    mean, covariance = moments()
    scale = np.sqrt(np.diag(covariance))
    # 800 draws, of which a third at least are worth one each.
    np.testing.assert_allclose((values.mean(0) - mean) / scale, 0, atol=0.3)
    np.testing.assert_allclose(values.std(0) / scale, 1, atol=0.25)


@pytest.mark.parametrize(
    "kernel", ["adjusted_microcanonical", pytest.param("hmc", marks=pytest.mark.long)]
)
def test_the_kept_draws_have_the_posterior_s_moments(kernel):
    found = run(kernel=kernel)
    check_moments(found)
    told = found.way_in
    assert told.log_density.shape == (4, len(told.steps))
    assert (np.diff(told.steps) > 0).all()
    assert told.num_steps == told.steps[-1]
    assert told.steps[0] > 200  # of tuning
    assert told.energy_error.shape[1] == 4
    assert told.is_settled.all() == ("settled" not in " ".join(found.warnings))


def test_the_way_in_tells_of_each_part_and_counts_the_blow_ups_of_all(monkeypatch):
    """Three parts, of 100, 200 and 600 steps, each of them after 100 of tuning."""
    of_tuning = np.array([[20, 1], [3, 0], [0, 5]])
    undone = np.array([[1, 0], [0, 40], [300, 0]])
    errors = np.array([[0.01, 0.02], [0.03, 0.05], [0.07, 0.11]])
    parts = iter(zip(of_tuning, undone, errors, strict=True))

    def drawn(key, phase, kernel, positions, num_samples, *, parameters, thinning, **options):
        first, later, error = next(parts)
        return Draws(
            {"log_density": np.zeros((2, num_samples))}, None,
            {"energy": Reduced(EnergyError(error, thinning[-1], later), None)},
            SimpleNamespace(position=positions), parameters | {"num_blow_ups": first}, thinning,
            np.full(2, np.nan), interrupted=False,
        )  # fmt: skip

    monkeypatch.setattr(way_in, "settled", lambda *arguments: np.zeros(2, bool))
    tuning = way_in.Tuning(100, 0.02, 0.5, False, 0)
    starts = np.ones((2, 3), np.float32)
    _, told = way_in.go_in(jax.random.key(0), drawn, dict, None, starts, tuning, 1200)
    records = [np.arange(101, 201), np.arange(301, 501), np.arange(603, 1201, 3)]
    np.testing.assert_array_equal(told.steps, np.concatenate(records))
    assert told.num_steps == 1200
    np.testing.assert_array_equal(told.energy_error, errors)
    np.testing.assert_array_equal(told.num_blow_ups, (of_tuning + undone).sum(axis=0))


@pytest.mark.short("10000-microcanonical")
@pytest.mark.parametrize("kernel", ["microcanonical", "adjusted_microcanonical"])
@pytest.mark.parametrize("most_scores", [10, 10_000])
def test_there_are_directions_where_scores_were_kept(most_scores, kernel, monkeypatch):
    monkeypatch.setattr(way_in, "_MOST_SCORES", most_scores)
    found = run(10, most_steps=700, kernel=kernel)
    given = found.draws.parameters
    np.testing.assert_allclose(given["inverse_mass_matrix"], 1, rtol=1e-6)  # the prior's
    if most_scores == 10:
        assert "directions" not in given
    else:
        assert given["directions"].shape == (4, 2, 5)
        assert given["factors"].shape == (4, 2)
        assert (np.asarray(given["factors"]) < 0.5).all()


def test_the_metric_is_that_of_the_posterior():
    """Its narrowest direction and the precision there, from 200 scores of each chain."""
    metric = run(10, most_steps=4000).way_in.metric
    order = [4, 0, 1, 2, 3]  # in a position's vector the bias comes first
    precisions, directions = np.linalg.eigh(np.linalg.inv(moments()[1][np.ix_(order, order)]))
    assert (np.abs(metric["directions"][:, 0] @ directions[:, -1]) > 0.9).all()
    found = np.mean(np.asarray(metric["factors"][:, 0]) ** -2)
    assert found == pytest.approx(precisions[-1], rel=0.4)


@pytest.mark.long
@pytest.mark.parametrize("options", [{"num_directions": 0}, {"is_preconditioned": False}])
def test_no_scores_are_kept_for_nothing(options):
    found = run(10, most_steps=400, **options)
    assert "directions" not in found.draws.parameters


@pytest.mark.short("250-1")
@pytest.mark.parametrize(("most_steps", "num_parts"), [(250, 1), (390, 2)])
def test_the_way_in_takes_no_more_steps_than_it_may(most_steps, num_parts):
    """A second part is tuned for 100 steps and has 80 at least; else the first takes all."""
    found = run(10, num_tuning=100, most_steps=most_steps).way_in
    assert found.num_steps == most_steps
    assert len(found.energy_error) == num_parts


@pytest.mark.parametrize("num_tuning", [100, 150, 1000])
@pytest.mark.parametrize("most_steps", [1, 250, 379, 380, 480, 3079, 3080, 9000, 50_000])
def test_parts_take_all_steps_and_each_is_long_enough_to_be_judged(num_tuning, most_steps):
    lengths = way_in._part_lengths(num_tuning, most_steps)
    assert min(lengths) >= 80
    assert sum(lengths) + num_tuning * len(lengths) == max(most_steps, num_tuning + 80)


@pytest.mark.long
def test_without_directions_the_metric_is_still_the_prior_s_of_today(monkeypatch):
    network = jaxbnn.mlp((1, 2, 1))
    x = np.ones((2, 1), np.float32)
    prior = jaxbnn.hierarchical_prior(network)
    posterior = jaxbnn.Posterior(network, prior, jaxbnn.Gaussian(1.0), x, x)
    starts = posterior.sample_prior(jax.random.key(0), (4,))
    seen = []
    monkeypatch.setattr(
        recipe, "go_in", lambda *arguments: seen.append(way_in.go_in(*arguments)) or seen[0]
    )
    sample_ensemble(
        jax.random.key(1), posterior, starts, 4, num_tuning=100, most_steps=400, progress=False,
        kernel="microcanonical", trajectory_steps=2, num_directions=0,
    )  # fmt: skip
    end, way = seen[0]
    expected = first_metric(posterior, end, 0)["inverse_mass_matrix"]
    np.testing.assert_allclose(way.metric["inverse_mass_matrix"], expected, rtol=1e-6)
    first = first_metric(posterior, starts, 0)["inverse_mass_matrix"]
    assert not np.isclose(expected, first).all(axis=1).any()


@pytest.mark.long
def test_a_second_call_reads_what_the_first_has_made(tmp_path):
    found = run(50, checkpoint=tmp_path / "run")
    again = run(50, checkpoint=tmp_path / "run")
    for name in ("w", "b"):
        ours, theirs = (one.draws.positions[0][name] for one in (again, found))
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(again.way_in.log_density, found.way_in.log_density)
    assert {path.name for path in (tmp_path / "run").iterdir()} >= {"way_in_0", "law"}


@pytest.mark.long
@pytest.mark.parametrize("kernel", ["adjusted_microcanonical", "hmc"])
def test_precisions_of_a_hierarchical_prior_are_drawn_with_the_weights(kernel):
    """Data that say nothing: log(tau) of Gamma(1, 1) has mean -0.577 and variance pi^2 / 6."""
    network = jaxbnn.mlp((1, 2, 1))
    prior = jaxbnn.hierarchical_prior(network)
    x = np.ones((2, 1), np.float32)
    posterior = jaxbnn.Posterior(network, prior, jaxbnn.Gaussian(1e3), x, x)
    starts = posterior.sample_prior(jax.random.key(0), (8,))
    found = sample_ensemble(
        jax.random.key(1), posterior, starts, 400, kernel=kernel, num_tuning=200, most_steps=600,
        num_warmup=100, trajectory_steps=6, progress=False,
    )  # fmt: skip
    assert len(found.draws.infos.infos) == 2
    log_precision = np.stack(
        [layer[name] for layer in found.draws.positions["log_precision"] if layer for name in "wb"]
    )
    # 3,200 draws of each of four, of which a sixth at least are worth one each.
    np.testing.assert_allclose(log_precision.mean((1, 2)), -0.5772, atol=0.3)
    np.testing.assert_allclose(log_precision.var((1, 2)), np.pi**2 / 6, rtol=0.35)


@pytest.fixture
def own_programs():
    """No program that was compiled before, or is after, has to do with what a test replaces."""
    jax.clear_caches()
    yield
    jax.clear_caches()


@pytest.mark.long
def test_undone_steps_between_draws_are_told_of(own_programs, monkeypatch):
    """Of steps that blow up, a fifth at random, one in thirty is one that is kept."""
    true = microcanonical_kernel._guarded

    def failing(of_length, largest, is_shortened):
        guarded = true(of_length, largest, is_shortened)

        def step(key, state):
            new, info = guarded.step(key, state)
            return new, info._replace(nonans=jax.random.uniform(key) < 0.8)

        return guarded._replace(step=step)

    monkeypatch.setattr(microcanonical_kernel, "_guarded", failing)
    found = run(20, kernel="microcanonical", trajectory_steps=30, most_steps=400)
    undone = found.draws.reduced["energy"].per_chain.num_blow_ups
    np.testing.assert_allclose(undone, 0.2 * 600, atol=60)
    assert found.way_in.is_undone.all()
    assert found.warnings[0].startswith("Of the last unadjusted steps of chains 0, 1, 2, 3 more")
    assert not any("log density" in sentence for sentence in found.warnings)
    listed = ", ".join(map(str, undone))
    assert f"chains 0, 1, 2, 3 blew up in {listed} of 600 steps" in found.warnings[-1]


def test_the_first_part_alone_settles_nothing():
    found = run(10, most_steps=300)
    assert len(found.way_in.energy_error) == 1
    assert not found.way_in.is_settled.any()
    assert "had not settled after" in found.warnings[0]


def test_unadjusted_draws_come_with_a_warning_of_their_bias():
    found = run(kernel="microcanonical", trajectory_steps=2)
    assert found.draws.steps.tolist() == list(range(2, 402, 2))
    bias = "draws of an unadjusted kernel, with an energy error of"
    assert any(bias in warning for warning in found.warnings)
    np.testing.assert_array_equal(
        found.draws.parameters["step_size"], found.way_in.parameters["step_size"]
    )
    values = np.concatenate(
        [found.draws.positions[0]["w"][..., 0], found.draws.positions[0]["b"]], 2
    )
    mean, covariance = moments()
    scale = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose((values.reshape(-1, 5).mean(0) - mean) / scale, 0, atol=0.4)


class Call(NamedTuple):
    key: jax.Array
    kernel: Callable
    num_samples: int
    options: dict


def record_calls(monkeypatch):
    """Return a list in which each call of `sample` is noted from now on; the last is the law's."""
    calls, sample = [], recipe.sample

    def recorded(key, kernel, positions, num_samples, **options):
        calls.append(Call(key, kernel, num_samples, options))
        return sample(key, kernel, positions, num_samples, **options)

    monkeypatch.setattr(recipe, "sample", recorded)
    return calls


def test_all_parts_of_the_way_in_run_the_same_programs(monkeypatch):
    """Compiling a tuning takes longer than many a part: parts differ in numbers alone."""
    calls, entries = record_calls(monkeypatch), ("start_energy_error", "energy_error")
    monkeypatch.setattr(
        way_in, "settled", lambda steps, series, before: np.full(4, before is not None)
    )
    found = run(10, kernel="microcanonical", num_tuning=400, most_steps=2600)
    asked = [(call.kernel, call.num_samples, call.options.get("adapt")) for call in calls]
    given = [call.options["parameters"] for call in calls]
    wanted = [[float(one.get(name, [0])[0]) for name in entries] for one in given]
    assert len(asked) == 3
    assert asked[0] == asked[1]
    np.testing.assert_allclose(wanted, [[0.5, 0.02], [0.02, 0.02], [0, 0]])
    # What goes on from there is tuned to what it asks for itself.
    assert not {*entries} & found.way_in.parameters.keys()
    assert found.way_in.num_steps == 2600


def test_the_exact_kernel_has_its_thinning_its_reference_and_a_key_of_its_own(monkeypatch):
    calls = record_calls(monkeypatch)
    run(3, thinning=3, num_warmup=5, most_steps=300)
    *way, law = calls
    assert law.kernel is recipe.adjusted_microcanonical
    assert law.options["thinning"] == 3
    assert law.options["num_warmup"] == 5
    # Without it, energies are sums over all data and lose their last digits.
    assert "reference" in law.options["parameters"]

    def words(key):
        return tuple(jax.random.key_data(key).tolist())

    of_parts = [words(call.key) for call in way]
    assert len({*of_parts}) == len(way)
    # A key's folds are its chains' keys, too.
    of_chains = [words(jax.random.fold_in(call.key, i)) for call in way for i in range(8)]
    key_in = words(jax.random.split(jax.random.key(4))[0])
    assert words(law.key) not in {key_in, *of_parts, *of_chains}


def test_the_exact_kernel_draws_the_precisions_of_a_prior_that_has_them(monkeypatch):
    network, calls = jaxbnn.mlp((4, 1)), record_calls(monkeypatch)
    prior = jaxbnn.targets.hierarchical_prior(network)
    posterior = jaxbnn.Posterior(network, prior, jaxbnn.Gaussian(NOISE), X.astype(np.float32), Y)
    starts = posterior.sample_prior(jax.random.key(3), (2,))
    sample_ensemble(
        jax.random.key(4), posterior, starts, 3, num_tuning=100, most_steps=300, num_warmup=5,
        trajectory_steps=2, progress=False,
    )  # fmt: skip
    assert calls[-1].kernel is recipe._WITH_PRECISIONS["adjusted_microcanonical"]


def test_a_chain_on_its_way_has_not_settled(rng):
    steps = np.arange(1, 401)
    noise = rng.standard_normal((3, 400))
    noise[1] += np.linspace(0, 20, 400)
    noise[2] -= 30 * np.exp(-steps / 30)
    assert way_in.settled(steps, noise).tolist() == [True, False, True]


def test_a_drift_that_each_chain_hides_in_its_noise_is_seen_in_all(rng):
    steps, noise = np.arange(1, 401), rng.standard_normal((10, 400))
    assert way_in.settled(steps, noise).all()
    drifting = noise + 0.3 * np.linspace(0, 1, 400)
    alone = [way_in.settled(steps, drifting[c : c + 1])[0] for c in range(10)]
    assert sum(alone) >= 8
    drifting = noise + 0.8 * np.linspace(0, 1, 400)
    assert not way_in.settled(steps, drifting).any()


def test_a_drift_that_slows_down_is_seen_from_one_part_to_the_next(rng):
    """By as much in every doubling of the steps: hardly at all within the second half of a part."""
    steps, drift = np.arange(1, 401), 0.2 * np.log2(400 + np.arange(1, 401))
    found = []
    for _ in range(20):
        before, noise = rng.standard_normal((2, 10, 400))
        earlier = 0.2 * np.log2(200 + steps / 2) + before
        found.append(
            [
                way_in.settled(steps, noise + drift).all(),
                way_in.settled(steps, noise + drift, earlier).any(),
                way_in.settled(steps, noise, before).all(),
            ]
        )
    # Measured: .83, 0 and .87 of 150; each bound fails by chance in less than one of 10^6.
    alone, together, still = np.sum(found, axis=0)
    assert alone >= 6
    assert together == 0
    assert still >= 7


@pytest.mark.long
def test_chains_that_had_not_settled_are_told_of(monkeypatch):
    monkeypatch.setattr(
        way_in, "settled", lambda steps, series, before: np.array([True, False, True, False])
    )
    found = run(10, most_steps=900)
    assert found.way_in.num_steps == 900
    assert (
        "log density of chains 1, 3 had not settled after 900 unadjusted steps"
        in (found.warnings[0])
    )


@pytest.mark.long
def test_chains_that_reject_nearly_everything_are_told_of(monkeypatch):
    """A warm-up too short for dual averaging leaves a step size ten times too long, or more."""
    usual = recipe._exact_parameters

    def too_long(*arguments):
        found = usual(*arguments)
        longer = np.array([1.0, 1.0, 60.0, 60.0], np.float32)
        return found | {"step_size": found["step_size"] * longer}

    assert not run(20, most_steps=900).rejecting.size
    monkeypatch.setattr(recipe, "_exact_parameters", too_long)
    monkeypatch.setattr(recipe, "dual_averaging", lambda *_, **__: None)
    found = run(20, most_steps=900)
    assert found.rejecting.tolist() == [2, 3]
    (told,) = [text for text in found.warnings if "accepted" in text]
    assert told.startswith("Of the trajectories of chains 2, 3 a share of ")
    assert "where 0.9 is wanted" in told
    assert "(num_warmup)" in told


def test_unadjusted_chains_that_hardly_move_are_told_of(monkeypatch):
    """Of chain 2 every step is undone: its energy may not change at all."""

    def never(key, phase, kernel, *arguments, parameters, **options):
        if phase == "law":
            largest = parameters["largest_energy_change"]
            parameters = parameters | {
                "largest_energy_change": largest * np.array([1, 1, -1, 1], np.float32),
                "is_shortened": np.zeros(4, np.float32),
            }
        return jaxbnn.sample(key, kernel, *arguments, parameters=parameters, **options)

    def sample_law(key, kernel, positions, num_samples, **options):
        phase = "way in" if "adapt" in options else "law"
        return never(key, phase, kernel, positions, num_samples, **options)

    monkeypatch.setattr(recipe, "sample", sample_law)
    found = run(20, kernel="microcanonical", trajectory_steps=30, most_steps=900)
    assert found.rejecting.tolist() == [2]
    (told,) = [text for text in found.warnings if "of 600 steps" in text]
    blow_ups = found.draws.reduced["energy"].per_chain.num_blow_ups
    blown = np.flatnonzero(blow_ups)  # others may have a few by chance
    numbers = ", ".join(str(blow_ups[chain]) for chain in blown)
    chains = way_in.chains_in_words(blown)
    said = f"The energy of {chains} blew up in {numbers} of 600 steps, which were undone"
    assert told.startswith(said)
    assert blow_ups[2] == 600
    assert np.all(blow_ups[[0, 1, 3]] < 30)


@pytest.mark.long
def test_a_run_goes_on_though_another_number_of_threads_rounds_its_metric_otherwise(
    tmp_path, monkeypatch
):
    found = run(10, most_steps=900, checkpoint=tmp_path)
    of_other_threads = []

    def rounded_otherwise(*arguments):
        of_other_threads.append(arguments)
        return jax.tree.map(lambda leaf: leaf * np.float32(1 + 1e-6), way_in_metrics(*arguments))

    way_in_metrics = way_in.metrics
    monkeypatch.setattr(way_in, "metrics", rounded_otherwise)
    again = run(10, most_steps=900, checkpoint=tmp_path)
    assert not of_other_threads
    np.testing.assert_array_equal(again.draws.positions[0]["w"], found.draws.positions[0]["w"])
    # Without what was kept, the parts that follow would be given another metric.
    for kept in tmp_path.glob("metric_*.nc"):
        kept.write_bytes(kept.read_bytes()[:-100])
    with pytest.raises(jaxbnn.sampling.BadCheckpoint, match="parameters"):
        run(10, most_steps=900, checkpoint=tmp_path)
    assert of_other_threads


def test_a_file_of_something_else_is_written_anew(tmp_path):
    draws = files.encode({"draws": np.ones(3)}, {}, {"format": files.FORMAT})
    files.write_whole(tmp_path / "draws.nc", draws)
    (tmp_path / "text.nc").write_text("of something else")
    for path in tuple(tmp_path.iterdir()):
        first = found_again(path, 1.0, lambda: {"x": np.zeros(2)})
        again = found_again(path, 1.0, lambda: {"x": np.ones(2)})
        assert first["x"].tolist() == again["x"].tolist() == [0, 0]


@pytest.mark.long
def test_starts_are_taken_as_they_were_returned():
    starts = jaxbnn.optimised_starts(
        jax.random.key(0), regression(), 2, max_epochs=3, progress=False
    )
    options = {"num_tuning": 100, "num_warmup": 20, "trajectory_steps": 3, "progress": False}
    draws = [
        sample_ensemble(
            jax.random.key(1), regression(), given, 5, most_steps=200, **options
        ).draws.positions[0]["w"]
        for given in (starts, starts.positions)
    ]
    np.testing.assert_array_equal(*draws)


def test_ctrl_c_before_the_first_kept_draw_ends_the_call():
    def stop(progress):
        if progress.phase == "warm-up" and progress.total == 100:  # the exact kernel's
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(40, most_steps=900, progress=stop)


def test_an_energy_that_blows_up_throughout_gets_one_sentence():
    parameters = microcanonical_parameters(np.zeros((3, 2)), step_size=1e-9)
    parameters["num_blow_ups"] = np.array([0.0, 80.0, 3.0])
    with pytest.raises(ValueError, match="energy of chain 1 blew up in 80 of 100 steps, down to a"):
        way_in.check_tuned(parameters, 100)
    parameters["num_blow_ups"] = np.array([0.0, 50.0, 3.0])
    way_in.check_tuned(parameters, 100)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": "nuts"}, "kernel must be 'adjusted_microcanonical', 'hmc' or"),
        ({"num_tuning": 50}, "num_tuning must be"),
        ({"trajectory_steps": 0}, "trajectory_steps must be"),
        ({"num_samples": 0}, "num_samples must be"),
        ({"thinning": 0}, "thinning must be"),
        ({"energy_error": 0.0}, "energy_error must be"),
        ({"start_energy_error": -1.0}, "start_energy_error must be"),
        ({"mesh": 3}, "mesh must be a jax.sharding.Mesh"),
    ],
)
def test_bad_arguments_get_one_sentence(options, message, annotations_unchecked, monkeypatch):
    # Before anything is sampled: the way in may take an hour.
    monkeypatch.setattr(recipe, "sample", lambda *_, **__: pytest.fail("sampled"))
    with pytest.raises(ValueError, match=message):
        run(**{"num_samples": 10} | options)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda p: p[0], ValueError, "positions must be arranged as draws of posterior"),
        (lambda p: jax.tree.map(lambda w: w[:, :1], p), ValueError, "chains of this posterior"),
        (lambda p: jax.tree.map(lambda w: w / 0, p), ValueError, "start every chain from finite"),
        (
            lambda p: jax.tree.map(lambda w: w.astype(np.float16), p),
            TypeError,
            "must be float32 or float64, but is float16",
        ),
    ],
)
def test_positions_that_are_not_the_posterior_s_get_one_sentence(change, error, message):
    starts = regression().sample_prior(jax.random.key(3), (4,))
    with pytest.raises(error, match=message):
        sample_ensemble(jax.random.key(4), regression(), change(starts), 10, progress=False)
