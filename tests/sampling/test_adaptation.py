"""Tests of sampling.warm_up_loops: adaptation reaches its target, follows a changing one, and ends
before the first draw.
"""

import functools
from typing import NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.base import SamplingAlgorithm
from scipy.special import erf

import jaxbnn
from tests.kit.dkw import distance_to_cdf, threshold
from tests.sampling.tiny import normal_log_density, walk

KEY = jax.random.key(21)
SCALES = np.array([0.1, 1.0, 1.0, 10.0], np.float32)
THIRD_PARTY = pytest.mark.third_party(reason="BlackJAX's adaptation promotes dtypes")


def random_walk(parameters, data):
    scale = parameters["scale"]
    return walk(lambda x: -0.5 * jnp.sum((x / scale) ** 2), parameters["step_size"])


def mala(parameters, data):
    scale = parameters["scale"]
    return blackjax.mala(lambda x: -0.5 * jnp.sum((x / scale) ** 2), parameters["step_size"])


class ShownInfo(NamedTuple):
    acceptance_rate: jax.Array
    step_size: jax.Array


def shown(make_kernel):
    """Let the Info say with which step size the kernel ran."""

    def make(parameters, data):
        kernel = make_kernel(parameters, data)

        def step(rng_key, state):
            state, info = kernel.step(rng_key, state)
            return state, ShownInfo(info.acceptance_rate, parameters["step_size"])

        return SamplingAlgorithm(kernel.init, step)

    return make


KERNELS = {"random walk": (shown(random_walk), 0.234, 1), "mala": (shown(mala), 0.574, 2)}


@functools.cache
def adapted(name, is_pooled):
    make_kernel, target, _ = KERNELS[name]
    scales = np.ones(4, np.float32) if is_pooled else SCALES
    starts = np.full((4, 5), 0.3, np.float32) * scales[:, None]
    return jaxbnn.sample(
        KEY,
        make_kernel,
        starts,
        1500,
        parameters={"step_size": np.float32(0.01), "scale": scales},
        num_warmup=1500,
        adapt=jaxbnn.dual_averaging(target, is_pooled=is_pooled),
        progress=False,
    )


BOTH = pytest.mark.parametrize("is_pooled", [True, False], ids=["pooled", "per chain"])
EACH = pytest.mark.parametrize("name", KERNELS)


@THIRD_PARTY
@pytest.mark.parametrize(
    ("name", "is_pooled"),
    [
        ("mala", True),
        ("random walk", False),
        pytest.param("mala", False, marks=pytest.mark.long),
        pytest.param("random walk", True, marks=pytest.mark.long),
    ],
)
def test_dual_averaging_reaches_the_target(name, is_pooled):
    draws = adapted(name, is_pooled)
    _, target, power = KERNELS[name]
    rates, step_sizes = draws.acceptance_rate, draws.parameters["step_size"]
    if is_pooled:
        assert rates.mean() == pytest.approx(target, abs=0.04)
        assert len(set(step_sizes.tolist())) == 1
    else:
        np.testing.assert_allclose(rates, target, atol=0.08)
        # The step size (MALA's is a variance) goes with the chain's own scale.
        np.testing.assert_allclose(step_sizes / step_sizes[1], SCALES**power, rtol=0.5)
    assert draws.parameters["scale"].tolist() == (np.ones(4) if is_pooled else SCALES).tolist()


@THIRD_PARTY
@EACH
@BOTH
def test_parameters_are_frozen_while_sampling(name, is_pooled):
    draws = adapted(name, is_pooled)
    used = draws.infos.step_size
    np.testing.assert_array_equal(used, np.broadcast_to(used[:, :1], used.shape))
    np.testing.assert_array_equal(used[:, 0], draws.parameters["step_size"])
    assert draws.parameters["step_size"].dtype == np.float32


@THIRD_PARTY
@pytest.mark.parametrize(
    ("adapt", "gamma"),
    [
        (jaxbnn.dual_averaging(0.6), 0.05),
        (jaxbnn.dual_averaging(0.6, learning_rate=0.2), 0.2),
        (jaxbnn.window_adaptation(60, target_acceptance_rate=0.6, is_pooled=True), 0.05),
    ],
    ids=["dual averaging", "slower", "windows"],
)
def test_the_first_step_is_dual_averaging_s_from_the_geometric_mean(adapt, gamma):
    """log(10 eps) - (target - rate) / (gamma (1 + t0)) with t0 = 10; eps is 0.1."""
    parameters = {"step_size": jnp.array([0.01, 1.0]), "inverse_mass_matrix": jnp.ones((2, 3))}
    state, info = Still(jnp.ones((2, 3)), jnp.zeros(2)), ShownInfo(jnp.array([0.6, 0.8]), None)
    _, learnt = adapt.update(adapt.init(parameters), jnp.uint32(0), state, info)
    np.testing.assert_allclose(learnt["step_size"], np.exp(0.1 / (11 * gamma)), rtol=1e-5)


@THIRD_PARTY
def test_a_rate_that_is_nan_shrinks_the_step_size():
    # All proposals but tiny ones leave the domain: their rate must count as 0.
    def make_kernel(parameters, data):
        kernel = walk(lambda x: jnp.sum(0 * x), parameters["step_size"])

        def step(rng_key, state):
            state, info = kernel.step(rng_key, state)
            rate = jnp.where(parameters["step_size"] > 0.1, jnp.nan, info.acceptance_rate)
            return state, ShownInfo(rate, parameters["step_size"])

        return SamplingAlgorithm(kernel.init, step)

    draws = jaxbnn.sample(
        KEY, make_kernel, np.zeros((2, 1), np.float32), 5, parameters={"step_size": 10.0},
        num_warmup=1000, adapt=jaxbnn.dual_averaging(0.5), progress=False,
    )  # fmt: skip
    assert (draws.parameters["step_size"] > 0.01).all()
    assert (draws.parameters["step_size"] < 1).all()


@THIRD_PARTY
@pytest.mark.parametrize("kernel", ["hmc", pytest.param("nuts", marks=pytest.mark.long)])
def test_window_adaptation_learns_scales(kernel):
    scales = np.array([0.1, 1.0, 10.0], np.float32)

    def make_kernel(parameters, data):
        log_density = lambda x: -0.5 * jnp.sum((x / data) ** 2)  # noqa: E731
        arguments = (log_density, parameters["step_size"], parameters["inverse_mass_matrix"])
        if kernel == "hmc":
            return blackjax.hmc(*arguments, num_integration_steps=6)
        return blackjax.nuts(*arguments, max_num_doublings=5)

    parameters = {"step_size": 0.1, "inverse_mass_matrix": np.ones((2, 3), np.float32)}
    draws = jaxbnn.sample(
        KEY, make_kernel, np.ones((2, 3), np.float32), 300, parameters=parameters, data=scales,
        num_warmup=600, adapt=jaxbnn.window_adaptation(600), progress=False,
    )  # fmt: skip
    learned = np.asarray(draws.parameters["inverse_mass_matrix"])
    assert learned.shape == (2, 3)
    # A variance from 300 draws or more of a good sampler; 2.5 is far beyond its error.
    ratio = learned / scales**2
    assert (ratio > 1 / 2.5).all(), learned
    assert (ratio < 2.5).all(), learned
    np.testing.assert_allclose(draws.acceptance_rate, 0.8, atol=0.15)
    np.testing.assert_allclose(draws.positions.std((0, 1)), scales, rtol=0.35)
    assert draws.parameters["step_size"].shape == (2,)
    if kernel == "nuts":
        assert draws.infos.num_integration_steps.shape == (2, 300)
        assert draws.infos.is_divergent.dtype == bool
        assert draws.infos.momentum is None  # a vector
    assert jaxbnn.window_adaptation(50) is jaxbnn.window_adaptation(50)


class Still(NamedTuple):
    position: jax.Array
    log_density: jax.Array
    auxiliary = ()


def still(parameters, data):
    """Never moves, keeps its cache, and says which variance it ran with."""

    def init(position, rng_key=None):
        return Still(position, -0.5 * jnp.sum(position**2) / parameters["variance"])

    def step(rng_key, state):
        return state, ShownInfo(jnp.ones(()), parameters["variance"])

    return SamplingAlgorithm(init, step)


def test_a_schedule_is_followed_and_its_last_values_stay():
    values = lambda t: {"variance": 1.0 / (1.0 + t.astype(jnp.float32))}  # noqa: E731
    options = {"parameters": {"variance": 7.0}, "adapt": jaxbnn.schedule(values)}
    draws = jaxbnn.sample(
        KEY, still, np.ones((2, 1), np.float32), 4, num_warmup=10, progress=False, **options
    )
    np.testing.assert_allclose(draws.infos.step_size, 0.1, rtol=1e-6)
    np.testing.assert_allclose(draws.parameters["variance"], 0.1, rtol=1e-6)

    def summing(parameters, data):
        def step(rng_key, state):
            return state._replace(log_density=state.log_density + parameters["variance"]), None

        return SamplingAlgorithm(lambda x, rng_key=None: Still(x, jnp.zeros(())), step)

    draws = jaxbnn.sample(
        KEY, summing, np.ones((2, 1), np.float32), 1, num_warmup=10, progress=False, **options
    )
    # Step 0 runs with what was given, step t + 1 with function(t).
    expected = 7 + sum(1 / (1 + t) for t in range(10))
    np.testing.assert_allclose(draws.final_state.log_density, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("value", "last"),
    [
        (lambda t: jnp.exp((-t).astype(jnp.float32) / 4), np.exp(-9 / 4)),
        (lambda t: (5 - t).astype(jnp.float32), -4),
    ],
)
def test_steps_may_be_negated_and_counted_down_from(value, last):
    """Unsigned ones would wrap: exp(4e9) and 4,294,967,292."""
    draws = jaxbnn.sample(
        KEY, still, np.ones((2, 1), np.float32), 1, num_warmup=10, progress=False,
        parameters={"variance": 7.0}, adapt=jaxbnn.schedule(lambda t: {"variance": value(t)}),
    )  # fmt: skip
    np.testing.assert_allclose(draws.parameters["variance"], last, rtol=1e-6)


def test_what_a_warm_up_loses_is_told():
    values = {
        "variance": lambda t: jnp.where(t < 3, 1.0, jnp.nan),
        "step_size": lambda t: jnp.where(t < 3, 1.0, 0.0),
    }
    for name, value in values.items():
        adapt = jaxbnn.schedule(lambda t, name=name, value=value: {name: value(t)})
        lost = "nan" if name == "variance" else "0.0"
        with pytest.warns(UserWarning, match=rf"parameters\['{name}'\] of chain 0 is {lost}, and"):
            jaxbnn.sample(
                KEY, still, np.ones((2, 1), np.float32), 1, num_warmup=5, progress=False,
                parameters={"variance": 7.0, "step_size": 1.0}, adapt=adapt,
            )  # fmt: skip


@pytest.mark.parametrize("refresh", [jaxbnn.refresh, None])
def test_refresh_makes_caches_current(refresh):
    starts = np.array([[1.0], [3.0]], np.float32)
    draws = jaxbnn.sample(
        KEY, still, starts, 1, parameters={"variance": 100.0}, num_warmup=70, progress=False,
        adapt=jaxbnn.schedule(
            lambda t: {"variance": jnp.where(t < 60, 10.0, 4.0)}, refresh=refresh
        ),
    )  # fmt: skip
    variance = 100 if refresh is None else 4
    np.testing.assert_allclose(
        draws.final_state.log_density, -0.5 * starts[:, 0] ** 2 / variance, rtol=1e-6
    )


def test_an_annealed_target_is_biased_without_refresh_and_right_with_it():
    # Exact draws of N(0, 1) stand still while the variance is annealed from 1/4 to 1; the one
    # step that follows keeps their distribution unless it trusts the old log densities.
    n = 50_000
    starts = np.random.default_rng(2).standard_normal((n, 1)).astype(np.float32)

    def make_kernel(parameters, data):
        variance = parameters["variance"]
        return walk(lambda x: -0.5 * jnp.sum(x**2) / variance, parameters["stride"])

    def distance(refresh):
        values = lambda t: {"variance": 1.0, "stride": 1.0}  # noqa: E731
        draws = jaxbnn.sample(
            KEY, make_kernel, starts, 1, num_warmup=1, progress=False,
            parameters={"variance": 0.25, "stride": 0.0},
            adapt=jaxbnn.schedule(values, refresh=refresh),
        )  # fmt: skip
        x = np.abs(draws.positions[:, 0, 0].astype(np.float64))
        return distance_to_cdf(x, lambda v: erf(v / np.sqrt(2)))

    assert distance(jaxbnn.refresh) < threshold(n)  # false alarm 1e-6
    assert distance(None) > 3 * threshold(n)


def test_a_custom_adaptation_of_one_chain_or_of_all():
    def count(is_pooled):
        def update(a, step, state, info):
            assert info.acceptance_rate.ndim == is_pooled
            assert state.position.ndim == 1 + is_pooled
            return a + 1, {"variance": a + 1}

        return jaxbnn.Adaptation(
            lambda parameters: jnp.zeros_like(parameters["variance"]),
            update,
            lambda a: {"variance": 100 * a},
            is_pooled,
        )

    for is_pooled in (False, True):
        draws = jaxbnn.sample(
            KEY, still, np.ones((2, 1), np.float32), 3, parameters={"variance": 1.0},
            num_warmup=5, adapt=count(is_pooled), progress=False,
        )  # fmt: skip
        assert draws.parameters["variance"].tolist() == [500, 500]
        assert (draws.infos.step_size == 500).all()


def test_a_data_set_a_chain():
    data = np.arange(6, dtype=np.float32).reshape(3, 2)

    def make_kernel(parameters, data):
        return walk(lambda x: -0.5 * jnp.sum((x - parameters["y"]) ** 2) - data * 0, 0.7)

    def run(y):
        starts = np.zeros((3, 2), np.float32)
        options = {"parameters": {"y": y}, "data": np.float32(1), "progress": False}
        return jaxbnn.sample(KEY, make_kernel, starts, 40, **options).positions

    together = run(data)
    for c in range(3):
        alone = run(np.broadcast_to(data[c], (3, 2)))
        np.testing.assert_allclose(together[c], alone[c], rtol=1e-5, atol=1e-6)
    assert np.abs(together[0] - together[2]).max() > 1


def test_a_schedule_refuses_whole_numbers_that_it_would_cut_off():
    def make_kernel(parameters, data):
        return walk(lambda x: -0.5 * jnp.sum(x**2) / parameters["t"].astype(x.dtype), 0.5)

    adapt = jaxbnn.schedule(lambda step: {"t": jnp.where(step < 5, 9.5, 0.5)})
    options = {"num_warmup": 20, "adapt": adapt, "progress": False}
    with pytest.raises(ValueError, match="holds whole numbers, which cannot be tuned"):
        jaxbnn.sample(KEY, make_kernel, jnp.zeros((2, 1)), 5, parameters={"t": 10}, **options)
    # Whole numbers may follow a schedule of whole numbers.
    options["adapt"] = jaxbnn.schedule(lambda step: {"t": jnp.where(step < 5, 9, 1)})
    found = jaxbnn.sample(KEY, make_kernel, jnp.zeros((2, 1)), 5, parameters={"t": 10}, **options)
    assert found.parameters["t"].tolist() == [1, 1]


@pytest.mark.parametrize("value", [0.5, (("t", 0.5),)])
def test_a_schedule_that_returns_no_dict_is_refused(value, annotations_unchecked):
    with pytest.raises(TypeError, match="function must return a dict of parameters, but returns"):
        jaxbnn.schedule(lambda step: value).init({"t": jnp.array(1.0)})


def test_final_parameters_of_another_dtype_are_refused():
    adapt = jaxbnn.Adaptation(
        lambda p: p, lambda a, *_: (a, a), lambda a: {"t": a["t"].astype(jnp.int32)}
    )

    def make_kernel(parameters, data):
        return walk(lambda x: -0.5 * jnp.sum(x**2), parameters["t"].astype(jnp.float32))

    options = {"parameters": {"t": 0.5}, "num_warmup": 5, "adapt": adapt, "progress": False}
    with pytest.raises(ValueError, match=r"adapt\.final changes parameters"):
        jaxbnn.sample(KEY, make_kernel, jnp.zeros((2, 1)), 5, **options)


@THIRD_PARTY
@pytest.mark.parametrize(
    "adapt",
    [jaxbnn.dual_averaging(0.574), jaxbnn.window_adaptation(600, is_pooled=True)],
    ids=["dual averaging", "windows"],
)
def test_steps_of_sixteen_bits_are_averaged_in_thirty_two(adapt):
    """Else BlackJAX's count of steps stays at 256, and the last steps change nothing."""

    def make_kernel(parameters, data):
        return blackjax.hmc(
            normal_log_density,
            parameters["step_size"].astype(jnp.float32),
            parameters["inverse_mass_matrix"].astype(jnp.float32),
            3,
        )

    def adapted(dtype):
        parameters = {
            "step_size": jnp.full(3, 0.1, dtype),
            "inverse_mass_matrix": jnp.ones((3, 2), dtype),
        }
        kinds = {leaf.dtype for leaf in jax.tree.leaves(adapt.init(parameters)[:-1])}
        assert jnp.dtype(jnp.bfloat16) not in kinds
        run = jaxbnn.sample(
            KEY, make_kernel, np.zeros((3, 2), np.float32), 1, parameters=parameters,
            num_warmup=600, adapt=adapt, progress=False,
        )  # fmt: skip
        found = run.parameters["step_size"]
        assert found.dtype == dtype
        return float(found[0])

    assert adapted(jnp.bfloat16) == pytest.approx(adapted(jnp.float32), rel=0.1)
