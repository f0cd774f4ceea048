"""Bad draws, labels and series for predictions, scores, the runner's helpers and thermalization."""

import jax
import jax.numpy as jnp
import numpy as np

import jaxbnn
from jaxbnn import prediction, sampling, thermalization
from jaxbnn.networks import init, mlp
from tests.kit.bad_arrays import EXTREME
from tests.kit.hostile_slots import (
    Tried,
    array,
    count,
    family,
    fixed,
    fraction,
    labels,
    number,
    tree,
)

KEY = jax.random.key(0)
N = 4
X = array(N, 2)


def _draws_of(network):
    return lambda: jax.vmap(jax.vmap(lambda key: init(key, network)))(jax.random.split(KEY, (2, 3)))


def _posterior(network, likelihood, y):
    x = np.ones((N, 2), np.float32)
    return jaxbnn.Posterior(network, jaxbnn.normal_prior(network), likelihood, x, y)


LINE, CLASSES = mlp((2, 3, 1), "tanh"), mlp((2, 3, 3), "tanh")
NUMBERS = _posterior(LINE, jaxbnn.Gaussian(0.5), np.zeros((N, 1), np.float32))
KINDS_OF = _posterior(CLASSES, jaxbnn.Categorical(), np.arange(N) % 3)
PROBABILITIES = fixed(np.full((N, 3), 1 / 3))
STEPS = np.arange(1, 101)
SERIES = fixed(np.exp(0.1 * np.sin(np.arange(100))))


def _compare(steps, informed, other, rate):
    found = thermalization.compare(
        steps,
        {"informed": informed, "zero": other},
        score={"zero": other},
        false_alarm_rate=rate,
    )
    return [estimate.lower_bound for estimate in found.estimates]


MODEL = jaxbnn.IntermediateNoise(mlp((2, 3, 1), "relu"), 0.1)


def _student(x, y, scale):
    start = thermalization.near_zero_position(KEY, MODEL, x, y, scale)
    posterior = thermalization.classical_posterior(MODEL, x, y)
    score = thermalization.score_statistic(MODEL, start, x, y)
    return score, posterior.log_density(start.params)


def _reduced(reducer):
    def call(x):
        r = reducer.init(jnp.asarray(x[0]))
        for row in x:
            r = reducer.update(r, jnp.asarray(row))
        return reducer.finalise(r)

    return call


WALK = jaxbnn.pcn(lambda x: -jnp.sum(x**2), 0.5)
TUNED = {"step_size": jnp.full(2, 0.5)}


def _tuned(x, **adaptation):
    def make(parameters, data):
        return jaxbnn.pcn(lambda u: -jnp.sum(u**2), parameters["step_size"])

    return sampling.sample(
        KEY, make, x, 2, parameters=TUNED, num_warmup=3, progress=False, **adaptation
    ).positions


KEPT = sampling.sample(KEY, WALK, jnp.zeros((2, 2)), 3, progress=False)

TRIED = {
    "predict": Tried(
        lambda draws, x, level: prediction.predict(draws, x, NUMBERS, level=level),
        (tree(_draws_of(LINE)), X, fraction(0.9)),
        is_checked=False,
    ),
    "predict classes": Tried(
        lambda draws, x: prediction.predict(draws, x, KINDS_OF),
        (tree(_draws_of(CLASSES)), X),
        is_checked=False,
    ),
    "scores": Tried(
        lambda draws, x, y: prediction.scores(draws, x, y, NUMBERS),
        (tree(_draws_of(LINE)), X, array(N, 1)),
        is_checked=False,
    ),
    "scores of classes": Tried(
        lambda x, y: prediction.scores(_draws_of(CLASSES)(), x, y, KINDS_OF), (X, labels(N, 3))
    ),
    "coverage": Tried(prediction.coverage, (fixed(np.full(N, 0.5)), fixed(np.array([0.5, 0.9])))),
    "reliability": Tried(
        lambda p, y, bins: prediction.reliability(p, y, bins).num_data,
        (PROBABILITIES, labels(N, 3), count(5)),
    ),
    "expected_calibration_error": Tried(
        prediction.expected_calibration_error, (PROBABILITIES, labels(N, 3), count(5))
    ),
    "compare": Tried(_compare, (fixed(STEPS), SERIES, SERIES, fraction(0.01)), is_checked=False),
    "thermalization's data": Tried(_student, (X, array(N, 1), number(1e-4)), undefined=EXTREME),
    "teacher_student": Tried(
        lambda n, m, k: thermalization.teacher_student(KEY, MODEL, n, m, num_random=k).y,
        (count(3), count(3), count(1)),
    ),
    "mean_squared_error": Tried(
        lambda p, x, f: thermalization.mean_squared_error(LINE, p, x, f),
        (tree(lambda: init(KEY, LINE)), X, array(N, 1)),
        is_checked=False,
    ),
    "moments": Tried(_reduced(sampling.moments()), (array(6, 2, kinds=EXTREME),)),
    # Documented: NaN where products of both signs overflow.
    "covariance": Tried(
        _reduced(sampling.covariance()),
        (array(6, 2, kinds=EXTREME),),
        undefined=("huge (1e30)", "mixed scales"),
    ),
    "predictive_mean": Tried(
        _reduced(sampling.predictive_mean(lambda x: x)), (array(6, 2, kinds=EXTREME),)
    ),
    "batch_means": Tried(
        lambda size, x: _reduced(sampling.batch_means(size))(x),
        (count(2), array(6, 2, kinds=EXTREME)),
    ),
    "dual_averaging": Tried(
        lambda rate, x: _tuned(x, adapt=sampling.dual_averaging(rate)),
        (fraction(0.5), array(2, 2)),
    ),
    "window_adaptation": Tried(
        lambda n, rate: sampling.window_adaptation(n, target_acceptance_rate=rate) and (),
        (count(10), fraction(0.5)),
    ),
    "schedule": Tried(
        lambda v: _tuned(
            jnp.zeros((2, 2)), adapt=sampling.schedule(lambda t: {"step_size": jnp.asarray(v)})
        ),
        (fixed(np.float32(0.5), kinds=("zeros", "rank too large", "no rows")),),
        undefined=("zeros",),
    ),
    "acceptance and collect_position": Tried(
        lambda x: sampling.sample(
            KEY,
            WALK,
            x,
            2,
            reduce={"rate": sampling.acceptance()},
            collect=sampling.collect_position,
            progress=False,
        ).reduced["rate"],
        (array(2, 2, kinds=("zeros", "one row", "no rows", "NaN", "strings")),),
    ),
    "complete": Tried(
        lambda size: sampling.complete(KEY, KEPT, lambda k, x: x, batch_size=size), (count(2),)
    ),
}

FAMILIES = {"predictions, scores, reducers and thermalization": family(TRIED)}
