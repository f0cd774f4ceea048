"""Bad calls that once ended in a traceback or in a wrong answer, with the words they end in now.

They are made in every run of the kit, whatever chance draws: the regression tests of the doors. In
the kit's process no import hook refuses them before the doors do.
"""

import jax
import jax.numpy as jnp
import numpy as np

import jaxbnn
from jaxbnn import (
    diagnostics,
    dvi,
    ensembles,
    gibbs,
    kernels,
    networks,
    numerics,
    plots,
    prediction,
    targets,
    thermalization,
    wide,
)
from jaxbnn.networks import Dense, mlp
from tests.kit import hostile_models, hostile_values_found
from tests.kit.hostile import Call

KEY = jax.random.key(0)
EYE, STEPS = np.eye(2, dtype=np.float32), np.arange(100)
DRAWS = np.sin(np.arange(200.0)).reshape(2, 100, 1).astype(np.float32)

FOUND = [
    ("must hold real numbers", lambda: numerics.check_fraction("level", "0.9")),
    ("low must not lie above high", lambda: numerics.truncated_normal(KEY, 1.0, -1.0)),
    ("must hold real numbers", lambda: numerics.log_ndtr(np.array(["1"]))),
    ("do not broadcast", lambda: numerics.log_normal_interval(STEPS[:2], STEPS[:3])),
    ("the same leading axes", lambda: numerics.solve_triangular(EYE, EYE[:1])),
    ("must be float32 or float64", lambda: numerics.solve_triangular(EYE > 0, EYE)),
    ("needs a matrix (d, d)", lambda: numerics.sample_from_precision(KEY, EYE, EYE[0, :1])),
    ("must have 2 entries", lambda: numerics.metric_solve(_metric(), EYE[0, :1])),
    ("params do not fit", lambda: networks.canonicalize(mlp((2, 1)), ())),
    ("must hold real numbers", lambda: networks.apply(mlp((2, 1)), _params(1j), EYE)),
    ("the series of score_time", lambda: diagnostics.score_time(1j * STEPS, STEPS)),
    ("got no records", lambda: diagnostics.score_time(STEPS[:0], STEPS[:0])),
    ("no whole numbers", lambda: diagnostics.by_replica(EYE, EYE)),
    ("needs replica of the shape", lambda: diagnostics.by_replica(STEPS, STEPS[:3])),
    ("needs square matrices", lambda: diagnostics.covariance_distance(EYE, EYE[0])),
    ("temperatures must hold real", lambda: diagnostics.equalise_rejections({}, 0.5)),
    ("threshold must be positive", lambda: diagnostics.blockwise_rhat(DRAWS, STEPS, threshold=0)),
    ("where squares overflow", lambda: diagnostics.kernel_stein_discrepancy(DRAWS, 1e20 * DRAWS)),
    ("must hold real numbers", lambda: diagnostics.evaluate(jnp.sum, np.array([["1"]]))),
    ("log_density must hold real", lambda: diagnostics.summary(DRAWS, log_density=_words())),
    ("position must hold real", lambda: jaxbnn.pcn(jnp.sum, 0.1).init(_words())),
    ("temperatures must hold real", lambda: _ladder(["0", "1"])),
    ("the weights of mix must hold", lambda: kernels.mix([WALK, WALK], [0.5j, 0.5])),
    ("as many proposed as current", lambda: numerics.sum_of_differences(STEPS[:2], STEPS[:3])),
    ("was given booleans; give floats", lambda: numerics.sum_of_differences(STEPS > 0, STEPS > 0)),
    ("params do not fit", lambda: _metric_at(())),
    ("must fit Dense", lambda: _weights(np.ones((3, 4), np.float32))),
    ("must be positive and finite", lambda: _weights(EYE, noise_variance=-1.0)),
    ("labels must be whole numbers", lambda: gibbs.satisfying_logits(EYE, EYE[0])),
    ("labels must lie in 0..1", lambda: gibbs.satisfying_logits(EYE, np.array([0, 2]))),
    ("mean and post must have one", lambda: _pre_activations(EYE, EYE[0])),
    ("no matrix can be factored", lambda: wide.reduce_inputs(WIDE, EYE.astype(np.float16))),
    ("num must be a whole number", lambda: wide.weight_directions(WIDE, KEY, 1.5)),
    ("too coarse for these targets", lambda: wide.reparametrise(WIDE, EYE, 1e6 + EYE[:, :1], 0.01)),
    ("q must be a FactorisedNormal", lambda: _propagated(())),
    (
        "zero or positive",
        lambda: dvi.predictive(NOISE, dvi.GaussianMoments(EYE[:, :1], -EYE[:, :1])),
    ),
    ("q must be a FactorisedNormal", lambda: dvi.as_distributions((1.0,))),
    ("density must be 'closed_form'", lambda: dvi.predictive(NOISE, UNIT, density="normal")),
    (
        "expectation must be 'closed_form'",
        lambda: dvi.expected_log_likelihood(NOISE, UNIT, EYE[0], expectation="draws"),
    ),
    ("rule must be 'exact'", lambda: dvi.activation_moments("relu", UNIT, rule="hermite")),
    ("covariance must be 'full'", lambda: _propagated(_start(), covariance="diag")),
    ("moments must be 'exact'", lambda: _vi(moments="hermite")),
    ("method must be 'dvi'", lambda: _vi(method="DVI")),
    ("optimizer must be one of Optax", lambda: _vi(optimizer="adam")),
    ("rng_key must be a key", lambda: _fitted(0)),
    ("as many rows", lambda: _vi(method="mcvi").elbo(_start(), EYE, EYE[0, :1], KEY)),
    ("f_test must have the shape", lambda: _mean_squared_error(EYE[0])),
    ("holds negative numbers", lambda: thermalization.compare(STEPS, {"informed": -1 - STEPS})),
    ("x must be float32 or float64", lambda: _swept(np.float16)),
    ("x has no rows", lambda: gibbs.scale_moves(_hidden(), EYE[:0])),
    ("num_warmup must be a whole number", lambda: thermalization.annealing(_noisy(), 1e3)),
    ("start must be positive", lambda: thermalization.annealing(_noisy(), 10, start=-1.0)),
    ("pit must hold real numbers", lambda: prediction.coverage([0.5j], [0.5])),
    ("must hold real numbers", lambda: plots.ess_against({}, [1.0])),
    ("must have one shape", lambda: plots.calibration([0.5, 0.9], [0.5])),
    ("position must hold real", lambda: _ladder([0.0, 1.0]).init(object())),
    ("must be a whole number", lambda: jaxbnn.window_adaptation((1, 2))),
    ("must be a whole number", lambda: jaxbnn.sampling.batch_means(1j)),
    ("must be a whole number", lambda: jaxbnn.sampling.batch_means([2])),
    ("function must be a function", lambda: jaxbnn.sampling.moments([1])),
    ("function must be a function", lambda: jaxbnn.schedule(0.8)),
    ("learning_rate must be one number", lambda: jaxbnn.dual_averaging(0.8, learning_rate=EYE)),
    ("energy_error must be one number", lambda: _microcanonical(energy_error=EYE)),
    ("is_pooled must be True or False", lambda: _microcanonical(is_pooled="no")),
    ("is_pooled must be True or False", lambda: jaxbnn.window_adaptation(100, is_pooled=[1])),
    ("metric must be 'draws' or", lambda: jaxbnn.window_adaptation(100, metric=["draws"])),
    ("start must be one number", lambda: thermalization.annealing(_noisy(), 10, start=EYE[0])),
    ("must be True or False", lambda: numerics.solve_triangular(EYE, EYE, transposed="no")),
    ("must be True or False", lambda: diagnostics.thermodynamic_integration(0, 0, corrected=1)),
    ("must be True or False", lambda: dvi.initial_position(KEY, mlp((2, 1)), correlated="no")),
    ("must be True or False", lambda: dvi.empirical_bayes(include_hyperprior=None)),
    ("must be True or False", lambda: plots.ess_against([1.0], [1.0], log_y="no")),
    ("temperature must be one number", lambda: targets.CrossEntropy([0.5, 1.0])),
    ("cutpoints must hold real", lambda: targets.Ordinal(3, 1j * np.arange(2))),
    ("cutpoints must hold real", lambda: targets.Ordinal(3, ["a", "b"])),
    ("mean must hold real", lambda: targets.normal_prior(mlp((2, 1)), mean=1j)),
    ("mean must hold real", lambda: targets.normal_prior(mlp((2, 1)), mean="a")),
    ("must be a whole number", lambda: thermalization.teacher_student(KEY, _noisy(), 1.5, 2)),
    ("x has no rows", lambda: jaxbnn.gibbs_sampler(_noisy(), EYE[:0], EYE[:0, :1])),
    ("must hold real numbers", lambda: jaxbnn.IntermediateNoise(mlp((2, 1)), 1j)),
    ("must be floating point", lambda: _moved_integers()),
    ("must hold real numbers", lambda: dvi.standardisation({}, EYE[0])),
    ("must be positive and finite", lambda: dvi.as_distributions(_wide_q())),
    (
        "must be positive and finite",
        lambda: dvi.fitted_prior(dvi.empirical_bayes(1.0, 10.0), _wide_q()),
    ),
    (
        "are traced; make this call outside",
        lambda: jax.jit(ensembles.microcanonical_parameters)(EYE),
    ),
    ("y must hold real numbers", lambda: _latents_of(None)),
    ("['b'] must hold real numbers", lambda: _complex_precisions()),
]
WALK = jaxbnn.pcn(jnp.sum, 0.1)
WIDE = mlp((2, 3, 1), "tanh", parametrisation="ntk")
NOISE = jaxbnn.Gaussian(1.0)
UNIT = dvi.GaussianMoments(np.zeros((2, 1), np.float32), np.ones((2, 1), np.float32))


def _noisy():
    return jaxbnn.IntermediateNoise(mlp((2, 1)), 0.1)


def _hidden():
    return jaxbnn.IntermediateNoise(mlp((2, 3, 1)), 0.1)


def _swept(dtype):
    return jaxbnn.gibbs_sampler(_hidden(), EYE.astype(dtype), EYE[:, :1].astype(dtype))


def _moved_integers():
    network = mlp((2, 3, 1), "tanh")
    params = jax.tree.map(lambda leaf: leaf.astype(int), networks.init(KEY, network))
    return jaxbnn.symmetry_moves(network, jaxbnn.normal_prior(network)).init(params)


def _wide_q():
    return dvi.FactorisedNormal({"w": jnp.zeros(2)}, {"w": jnp.array([0.0, 1e15])})


def _ladder(temperatures):
    return kernels.power_posterior(lambda t, p: WALK, jnp.sum, jnp.sum, temperatures)


def _metric_at(params):
    network = mlp((2, 1))
    prior = jaxbnn.normal_prior(network)
    return jaxbnn.gauss_newton_metric(jaxbnn.Posterior(network, prior, NOISE, EYE, EYE[:, :1]))(
        params
    )


def _weights(inputs, noise_variance=1.0):
    params = {"w": EYE, "b": EYE[0]}
    return gibbs.sample_weights(KEY, Dense(2), params, inputs, EYE, noise_variance, 1.0)


def _pre_activations(mean, post):
    relu = gibbs.activation_pieces("relu")
    return gibbs.sample_pre_activations(KEY, relu, mean, post, 1.0, 1.0)


def _propagated(q, **options):
    return dvi.propagate(mlp((2, 1)), q, EYE, **options)


def _microcanonical(**options):
    return ensembles.microcanonical_adaptation(1000, **options)


def _start():
    return dvi.initial_position(KEY, mlp((2, 1)))


def _fitted(key):
    starts = dvi.initial_position(KEY, mlp((2, 1)), shape=(1,))
    return dvi.fit(key, _vi(), starts, EYE, EYE[0], 1, progress=False).elbo


def _vi(**options):
    return dvi.deterministic_vi(mlp((2, 1)), NOISE, dvi.empirical_bayes(), **options)


def _mean_squared_error(f_test):
    network = mlp((2, 1))
    params = networks.init(KEY, network)
    return thermalization.mean_squared_error(network, params, EYE, f_test)


def _latents_of(y):
    model = gibbs.IntermediateNoise(mlp((2, 2)), 0.1, output="probit")
    return model.position_from_weights(KEY, model.sample_prior(KEY), EYE, y)


def _complex_precisions():
    network = mlp((2, 1))
    prior = targets.hierarchical_prior(network)
    kernel = kernels.prior_precisions(jaxbnn.Posterior(network, prior, NOISE, EYE, EYE[:, :1]))
    return kernel.init(jax.tree.map(lambda w: w + 0j, prior.sample(KEY)))


def _metric():
    return numerics.softabs_metric(jnp.asarray(EYE), 1.0)


def _params(value):
    return ({"w": np.full((2, 1), value), "b": np.zeros(1)},)


def _words():
    return np.full((2, 100), "1")


def calls() -> list[Call]:
    """Return a call for each; an answer, or other words, are failures."""
    found = [*FOUND, *hostile_models.FOUND, *hostile_values_found.FOUND]
    return [Call(words, "found before", function, None, "nothing") for words, function in found]
