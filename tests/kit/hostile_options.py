"""Arguments of the wrong type: flags, counts, words, functions, keys, and all others as an object.

What a signature says an argument is, is read from it, and each is given what it is not, so that one
that is added later is tried without a word here. None of the calls may give an answer.
"""

import inspect
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax

import jaxbnn
from jaxbnn import (
    diagnostics,
    dvi,
    ensembles,
    estimators,
    gibbs,
    kernels,
    networks,
    numerics,
    plots,
    prediction,
    sampling,
    targets,
    thermalization,
    wide,
)
from jaxbnn.interop import numpyro as of_numpyro
from jaxbnn.networks import mlp
from jaxbnn.numerics.arguments import short
from tests.kit.hostile import Call

KEY, WORDS = jax.random.key(0), np.array(["no", "such"])
X, Y = np.eye(4, 2, dtype=np.float32), np.ones((4, 1), np.float32)
LABELS = np.array([0, 1, 1, 0])
NETWORK, WIDE = mlp((2, 3, 1)), mlp((2, 3, 1), parametrisation="ntk")
PRIOR = targets.normal_prior(NETWORK)
NOISE = targets.Gaussian(0.5)
MODEL = gibbs.IntermediateNoise(NETWORK, 0.1)
DRAWS = np.random.default_rng(0).normal(size=(2, 50, 1))
SERIES, STEPS = DRAWS[..., 0] ** 2, np.arange(50)
UNIT = dvi.GaussianMoments(jnp.zeros((4, 1)), jnp.ones((4, 1)))


def _density(x):
    return -jnp.sum(jnp.square(x))


def _kernel(step_size=0.1, *_):
    return jaxbnn.pcn(_density, step_size)


def _model(y):
    numpyro.sample("y", dist.Normal(numpyro.sample("m", dist.Normal()), 1.0), obs=y)


def _sampled():
    return jaxbnn.sample(KEY, _kernel(), X, 4, progress=False)


def _posterior():
    return jaxbnn.Posterior(NETWORK, PRIOR, NOISE, X, Y)


def _starts():
    return jax.vmap(lambda key: networks.init(key, NETWORK))(jax.random.split(KEY, 2))


def _reduction():
    return wide.reduce_inputs(WIDE, X)


def _position():
    return MODEL.simulate(KEY, MODEL.sample_prior(KEY), X)[0]


def _q(**options):
    return dvi.initial_position(KEY, NETWORK, **options)


def _vi():
    return dvi.deterministic_vi(NETWORK, NOISE, dvi.empirical_bayes())


def _fitted(estimator, y):
    def fit(**options):
        return estimator(**({"hidden": (2,), "warmup": 20, "samples": 20} | options)).fit(X, y)

    fit.__signature__ = inspect.signature(estimator)
    return fit


# Functions by name, with what they are given first, made when they are called.
TRIED: dict[str, tuple[Callable, Callable[[], tuple]]] = {
    "Activation": (networks.Activation, tuple),
    "Conv": (networks.Conv, lambda: (2, (2, 2))),
    "Dense": (networks.Dense, lambda: (2,)),
    "Network": (networks.Network, lambda: ((networks.Dense(1),), (2,))),
    "canonicalize": (networks.canonicalize, lambda: (NETWORK, networks.init(KEY, NETWORK))),
    "mlp": (mlp, lambda: ((2, 3, 1),)),
    "LogGamma": (targets.LogGamma, lambda: (1.0, 1.0)),
    "Ordinal": (targets.Ordinal, tuple),
    "hierarchical_prior": (targets.hierarchical_prior, lambda: (NETWORK,)),
    "IntermediateNoise": (gibbs.IntermediateNoise, lambda: (NETWORK, 0.1)),
    "gibbs_sampler": (gibbs.gibbs_sampler, lambda: (MODEL, X, Y)),
    "gibbs_with_moves": (
        gibbs.gibbs_with_moves,
        lambda: (MODEL, X, Y, (gibbs.scale_moves(MODEL, X),)),
    ),
    "interweave": (gibbs.interweave, lambda: (MODEL, X, Y, 0.1)),
    "interwoven_gibbs": (gibbs.interwoven_gibbs, lambda: (MODEL, X, Y, 0.1)),
    "redraw_noisy_units": (gibbs.redraw_noisy_units, lambda: (MODEL, X, Y)),
    "scale_moves": (gibbs.scale_moves, lambda: (MODEL, X)),
    "covariance_operator": (kernels.covariance_operator, tuple),
    "explain_symmetries": (kernels.explain_symmetries, lambda: (NETWORK, PRIOR)),
    "jittered": (kernels.jittered, lambda: (_kernel, 0.1)),
    "on_block": (kernels.on_block, lambda: (lambda whole: _kernel(), "a")),
    "on_vector": (kernels.on_vector, tuple),
    "pcn": (kernels.pcn, lambda: (_density, 0.1)),
    "pcnl": (kernels.pcnl, lambda: (_density, 0.1)),
    "power_posterior": (
        kernels.power_posterior,
        lambda: (lambda t, p: _kernel(), _density, _density, [0.0, 1.0]),
    ),
    "redraw_units": (kernels.redraw_units, lambda: (NETWORK, PRIOR, _density)),
    "repeat": (kernels.repeat, lambda: (_kernel(),)),
    "smmala": (kernels.smmala, lambda: (_density, 0.1)),
    "symmetry_moves": (kernels.symmetry_moves, lambda: (NETWORK, PRIOR)),
    "truncated_mala": (kernels.truncated_mala, lambda: (_density, 0.1, -1.0, 1.0)),
    "underdamped_langevin": (kernels.underdamped_langevin, lambda: (_density, 0.1, 0.5)),
    "marginal_conditional": (wide.marginal_conditional, lambda: (WIDE, X, Y, 0.5)),
    "reparametrise": (wide.reparametrise, lambda: (WIDE, X, Y, 0.5)),
    "weight_projections": (wide.weight_projections, lambda: (_reduction(), KEY)),
    "reduced_langevin": (
        wide.reduced_langevin,
        lambda: (_density, 0.1, 0.5, _reduction(), wide.weight_projections(_reduction(), KEY, 2)),
    ),
    "activation_moments": (dvi.activation_moments, lambda: ("relu", UNIT)),
    "deterministic_vi": (
        dvi.deterministic_vi,
        lambda: (NETWORK, NOISE, dvi.empirical_bayes()),
    ),
    "empirical_bayes": (dvi.empirical_bayes, tuple),
    "expected_log_likelihood": (dvi.expected_log_likelihood, lambda: (NOISE, UNIT, Y)),
    "fit": (dvi.fit, lambda: (KEY, _vi(), _q(shape=(1,)), X, Y)),
    "initial_position": (dvi.initial_position, lambda: (KEY, NETWORK)),
    "predictive": (dvi.predictive, lambda: (NOISE, UNIT)),
    "propagate": (dvi.propagate, lambda: (NETWORK, _q(), X)),
    "weight_draws": (dvi.weight_draws, lambda: (KEY, NETWORK, _q(), X, 2)),
    "annealing": (thermalization.annealing, lambda: (MODEL,)),
    "compare": (
        thermalization.compare,
        lambda: (STEPS, {"informed": SERIES[0], "zero": SERIES[1]}),
    ),
    "near_zero_position": (thermalization.near_zero_position, lambda: (KEY, MODEL, X, Y)),
    "optimised_start": (thermalization.optimised_start, lambda: (KEY, MODEL, X, Y)),
    "sample_annealed": (
        thermalization.sample_annealed,
        lambda: (KEY, MODEL, X, Y, jax.tree.map(lambda leaf: leaf[None], _position())),
    ),
    "score_statistic": (thermalization.score_statistic, lambda: (MODEL, _position(), X, Y)),
    "teacher_student": (thermalization.teacher_student, lambda: (KEY, MODEL, 4, 4)),
    "autocorrelation": (diagnostics.autocorrelation, lambda: (DRAWS,)),
    "blockwise_rhat": (diagnostics.blockwise_rhat, lambda: (DRAWS, STEPS)),
    "covariance_agreement": (diagnostics.covariance_agreement, lambda: (DRAWS,)),
    "energy_error_in_words": (diagnostics.energy_error_in_words, lambda: (0.1 * SERIES,)),
    "ess_tail": (diagnostics.ess_tail, lambda: (DRAWS,)),
    "evaluate": (diagnostics.evaluate, lambda: (jnp.sum, DRAWS)),
    "kernel_stein_discrepancy": (
        diagnostics.kernel_stein_discrepancy,
        lambda: (DRAWS, -DRAWS),
    ),
    "maximum_mean_discrepancy": (
        diagnostics.maximum_mean_discrepancy,
        lambda: (DRAWS, DRAWS),
    ),
    "mcse": (diagnostics.mcse, lambda: (DRAWS,)),
    "merge_time": (diagnostics.merge_time, lambda: (SERIES, SERIES, STEPS)),
    "multivariate_ess": (diagnostics.multivariate_ess, lambda: (DRAWS,)),
    "score_time": (diagnostics.score_time, lambda: (SERIES, STEPS)),
    "stationarity_time": (diagnostics.stationarity_time, lambda: (SERIES, STEPS)),
    "summary": (diagnostics.summary, lambda: (DRAWS,)),
    "thermodynamic_integration": (
        diagnostics.thermodynamic_integration,
        lambda: (np.zeros((2, 50, 3)), [0.0, 0.5, 1.0]),
    ),
    "batch_means": (sampling.batch_means, tuple),
    "complete": (sampling.complete, lambda: (KEY, _sampled(), lambda key, position: position)),
    "covariance": (sampling.covariance, tuple),
    "dual_averaging": (sampling.dual_averaging, tuple),
    "moments": (sampling.moments, tuple),
    "predictive_mean": (sampling.predictive_mean, tuple),
    "sample": (sampling.sample, lambda: (KEY, _kernel(), X, 4)),
    "schedule": (sampling.schedule, lambda: (lambda step: {},)),
    "window_adaptation": (sampling.window_adaptation, lambda: (100,)),
    "microcanonical_adaptation": (ensembles.microcanonical_adaptation, lambda: (100,)),
    "microcanonical_parameters": (ensembles.microcanonical_parameters, lambda: (X,)),
    "optimised_starts": (ensembles.optimised_starts, lambda: (KEY, _posterior())),
    "sample_ensemble": (ensembles.sample_ensemble, lambda: (KEY, _posterior(), _starts())),
    "expected_calibration_error": (
        prediction.expected_calibration_error,
        lambda: (np.full((4, 2), 0.5), LABELS),
    ),
    "predict": (prediction.predict, lambda: (networks.init(KEY, NETWORK), X, _posterior())),
    "reliability": (prediction.reliability, lambda: (np.full((4, 2), 0.5), LABELS)),
    "acceptance_against": (plots.acceptance_against, lambda: ([0.1, 0.2], [0.5, 0.6])),
    "plots.autocorrelation": (plots.autocorrelation, lambda: (DRAWS,)),
    "covariance_heat_map": (plots.covariance_heat_map, lambda: (np.tile(DRAWS, 2),)),
    "density": (plots.density, lambda: (DRAWS,)),
    "ess_against": (plots.ess_against, lambda: ([0.1, 0.2], [5.0, 6.0])),
    "observed_against_predicted": (
        plots.observed_against_predicted,
        lambda: (LABELS, LABELS, LABELS - 1.0, LABELS + 1.0),
    ),
    "parallel_coordinates": (plots.parallel_coordinates, lambda: (np.tile(DRAWS, 2),)),
    "running_mean": (plots.running_mean, lambda: (DRAWS,)),
    "trace": (plots.trace, lambda: (DRAWS,)),
    "solve_triangular": (numerics.solve_triangular, lambda: (X[:2], X[:2])),
    "BayesianRegressor": (_fitted(estimators.BayesianRegressor, Y[:, 0] + X[:, 0]), tuple),
    "BayesianClassifier": (_fitted(estimators.BayesianClassifier, LABELS), tuple),
    "posterior_from_numpyro": (of_numpyro.posterior_from_numpyro, lambda: (_model,)),
    "sample_network": (of_numpyro.sample_network, lambda: ("net", NETWORK, PRIOR)),
}
# Called with what others have checked; records that are made by the runner, or looked at there.
NOT_TRIED = {
    "Adaptation", "Draws", "FitProgress", "Progress", "Reducer", "fill_in_langevin", "metropolis",
    "predictive_of",
}  # fmt: skip
# What is looked at only later: a PyTree may hold anything, and JAX fills our classes with objects.
LATER = {
    ("hierarchical_prior", "network_or_params"), ("IntermediateNoise", "noise_variance"),
    ("IntermediateNoise", "weight_precision"), ("IntermediateNoise", "bias_precision"),
    ("on_block", "block"), ("truncated_mala", "lower"), ("truncated_mala", "upper"),
    ("deterministic_vi", "prior"), ("empirical_bayes", "partition"), ("near_zero_position", "y"),
    ("BayesianRegressor", "random_state"), ("BayesianClassifier", "random_state"),
    ("initial_position", "dtype"),
}  # fmt: skip
VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
# Words that are free, and those of which some are known though the signature says str.
FREE = {
    "validate_args",
    "label",
    "color",
    "parameter_name",
    "quantity",
    "time_name",
    "name",
    "names",
    "informed",
}
# What else they need, by the name of the function and of the argument.
NEEDED: dict[str, dict[str, Any]] = {
    "Ordinal": {"num_classes": 3},
    "covariance_operator": {"sqrt": lambda z: z},
    "repeat": {"num_steps": 2},
    "weight_projections": {"num": 2},
    "fit": {"num_updates": 1},
    "annealing": {"num_warmup": 100},
    "compare": {
        "output_steps": STEPS,
        "outputs": {"informed": DRAWS[0], "zero": DRAWS[1]},
        "pairs": [("informed", "zero")],
    },
    "sample_annealed": {"num_samples": 2, "num_warmup": 10},
    "energy_error_in_words": {"num_dimensions": 3},
    "batch_means": {"batch_size": 2},
    "dual_averaging": {"target_acceptance_rate": 0.8},
    "optimised_start": {"optimizer": optax.sgd(0.1), "num_updates": 1},
    "optimised_starts": {"num_chains": 2, "max_epochs": 1},
    "posterior_from_numpyro": {"y": np.ones(3, np.float32)},
    "sample_ensemble": {"num_samples": 2, "num_tuning": 100, "most_steps": 200},
}

FAMILY = "arguments of another type"
WRONG: dict[Any, tuple] = {
    bool: ("no", WORDS, KEY),
    int: (1.5, [3], WORDS, KEY),
    float: ("much", [0.5, 0.5], WORDS, KEY),
    str: ("no such", [1], WORDS, KEY),
    Callable: (3,),
}


def kinds(annotation: Any) -> set:
    """Return the types of an option; a Literal is a word, and for all other types there is `...`.

    Examples
    --------
    >>> kinds(int | None) == {int, type(None)}, kinds(typing.Literal["a"]) == {str}
    (True, True)
    """
    if annotation in (bool, int, float, str, type(None)):
        return {annotation}
    origin = typing.get_origin(annotation)
    if origin is typing.Literal:
        return {str}
    if origin in (typing.Union, types.UnionType):
        return set().union(*map(kinds, typing.get_args(annotation)))
    return {Callable} if Callable in (origin, annotation) else {...}


def wrong_options(function: Callable) -> Iterator[tuple[str, Any]]:
    """Yield options of a function by name, each with a value of another type."""
    for parameter in inspect.signature(function).parameters.values():
        known = kinds(parameter.annotation)
        if parameter.name in FREE or parameter.kind in VARIABLE:
            continue
        if parameter.name in ("key", "rng_key"):
            yield from ((parameter.name, value) for value in (0, np.ones(2)))
        if ... in known:
            yield parameter.name, object()
            if type(None) not in known and parameter.default is not None:
                yield parameter.name, None
            continue
        own = known - {type(None)}
        for kind in own:
            for value in WRONG[kind]:
                if kind is str or type(value) not in own:
                    yield parameter.name, value


def _call(name: str, option: str, value: Any) -> Call:
    function, before = TRIED[name]

    def made():
        given = dict(zip(inspect.signature(function).parameters, before(), strict=False))
        return function(**{**given, **NEEDED.get(name, {}), option: value})

    return Call(
        f"{name}({option}={short(value)})", "argument of another type", made, None, "nothing"
    )


def calls() -> list[Call]:
    """Return a call for each option of each function."""
    return [
        _call(name, option, value)
        for name, (function, _) in TRIED.items()
        for option, value in wrong_options(function)
        if (name, option) not in LATER
    ]
