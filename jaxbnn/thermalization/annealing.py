"""Warm-up of Gibbs chains from large noise down to the model's: one adaptation, and one call.

At a large noise variance Delta the posterior is broad and chains cross it; cooled slowly, they
follow it to where a chain that starts at the small Delta itself stays behind. The schedule falls
geometrically and ends at the model's own Delta, where the step size is tuned, so that every kept
draw is one of the model's posterior.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.adaptation.step_size import dual_averaging_adaptation
from blackjax.base import SamplingAlgorithm
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, Shaped

from jaxbnn.gibbs import GibbsPosition, IntermediateNoise, interwoven_gibbs, turn_units
from jaxbnn.gibbs.validation import check_data, check_model
from jaxbnn.kernels import cycle, repeat
from jaxbnn.kernels.arguments import check_step_size
from jaxbnn.numerics import check_count, check_fraction, is_concrete
from jaxbnn.numerics.arguments import check_function, check_type, kept
from jaxbnn.numerics.arrays import float_dtype, widened
from jaxbnn.numerics.checks import check_one_number, check_positive_number
from jaxbnn.numerics.data import as_held
from jaxbnn.sampling import Adaptation, Draws, sample
from jaxbnn.sampling.adaptation import require_floats
from jaxbnn.thermalization.schedules import Schedule, check_schedule, geometric


class _AnnealingState(NamedTuple):
    averaging: Any
    parameters: dict


def annealing(
    model: IntermediateNoise,
    num_warmup: int,
    *,
    start: ArrayLike = 0.1,
    hold: float = 0.3,
    target_acceptance_rate: float = 0.8,
    schedule: Schedule | None = None,
) -> Adaptation:
    """Return a warm-up in which the noise variance falls to the model's and a step size adapts.

    It changes parameters["noise_variance"], one for each stage, and parameters["step_size"], each
    chain's own, by dual averaging. The averaging begins anew at the step where the noise variance
    reaches the model's; for a chain that is there from its first step it does not, since all its
    steps are of one law.

    Parameters
    ----------
    model
        The model at whose noise variances the schedule ends.
    num_warmup
        Steps of the warm-up, as given to `sample`.
    start
        Delta of the first step, in every stage whose own is smaller: Delta^(t) = Delta (start /
        Delta)^(1 - t / T), T the steps less those that are held. Each chain's own where there is
        parameters["anneal_from"]: 0 for one that begins at the model's noise variances.
    hold
        The last part of the warm-up, which runs at the model's noise variances; inside (0, 1).
    target_acceptance_rate
        Of the move with the noise held fixed.
    schedule
        In place of `start` and `hold`: a function of the step, an int32 that counts from 0, that
        returns one noise variance or one for each stage. Within `jit` its last value is not
        compared with the model's.

    Returns
    -------
    What `sample(..., adapt=...)` takes, for `make_annealed`.

    Raises
    ------
    ValueError
        A schedule that does not end at the model's noise variances, is not positive or returns
        another number of them, a start that is not positive, a part or a rate outside (0, 1), no
        warm-up.
    TypeError
        A schedule that returns no real numbers.

    Notes
    -----
    Annealing is not in Piccioli et al., whose chains start at the Delta that they sample.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> adapt = annealing(IntermediateNoise(mlp((2, 3, 1)), 1e-3), 100)
    >>> adapt.num_warmup
    100
    >>> annealing(IntermediateNoise(mlp((2, 3, 1)), 1e-3), 100, schedule=lambda step: 0.1)
    Traceback (most recent call last):
    ValueError: the schedule must end at the model's noise variance, 0.001, but is 0.1 at step 99.
    """
    check_model(model)
    check_count("num_warmup", num_warmup)
    check_positive_number("start", start)
    check_fraction("hold", hold)
    check_fraction("target_acceptance_rate", target_acceptance_rate)
    final_variance = stage_variances(model)
    if schedule is not None:
        check_function("schedule", schedule, "give step -> noise variances")
        check_schedule(schedule, final_variance, num_warmup)
    dtype = final_variance.dtype
    is_known = is_concrete(final_variance)
    # What a schedule reads may change between two calls.
    make = _annealing_to if schedule is None else inspect.unwrap(_annealing_to)
    return make(
        tuple(np.asarray(final_variance).tolist()) if is_known else final_variance,
        dtype.name,
        num_warmup,
        float(np.asarray(start, dtype)) if is_concrete(start) else start,
        hold,
        target_acceptance_rate,
        schedule,
    )


@kept
def _annealing_to(
    variances: Array | tuple[float, ...],
    dtype: str,
    num_warmup: int,
    start: ArrayLike,
    hold: float,
    target_acceptance_rate: float,
    schedule: Schedule | None,
) -> Adaptation:
    """Return the warm-up of `annealing` to these noise variances, one a stage."""
    with jax.ensure_compile_time_eval():  # kept, it must not hold what a trace has made
        final_variance = jnp.asarray(variances, dtype)
    # One step at least is held, but of a warm-up of one.
    num_cooling = max(1, min(round((1 - hold) * num_warmup), num_warmup - 1))
    if schedule is None:

        def variance_at(step, parameters):
            first = parameters.get("anneal_from", start)
            return geometric(final_variance, first, num_cooling)(step)

    else:

        def variance_at(step, parameters):
            given = jnp.asarray(schedule(step), final_variance.dtype)
            return jnp.broadcast_to(given, final_variance.shape)

    da_init, da_update, da_final = dual_averaging_adaptation(target_acceptance_rate)

    def averaging_from(step_size):
        # Where no step follows, the average is what it began with: this one, not BlackJAX's 1.
        begun = da_init(step_size)._replace(log_step_size_avg=jnp.log(step_size))
        return jax.tree.map(lambda leaf: jnp.asarray(leaf, step_size.dtype), begun)

    def is_at_end(step, parameters):
        difference = jnp.abs(variance_at(step, parameters) - final_variance)
        return jnp.all(difference <= 1e-5 * final_variance)

    def init(parameters):
        for name in ("noise_variance", "step_size"):
            if not (isinstance(parameters, dict) and name in parameters):
                raise ValueError(
                    f"this warm-up changes parameters[{name!r}], which is not there; give "
                    "parameters={'noise_variance': one for each stage, 'step_size': one number}, "
                    "or use sample_annealed."
                )
        require_floats(parameters, "noise_variance", "step_size")
        # Sixteen bits count no steps.
        return _AnnealingState(averaging_from(widened(parameters["step_size"])), parameters)

    def update(a, step, state, info):
        rate = jnp.where(jnp.isnan(info.acceptance_rate), 0, info.acceptance_rate)
        old, dtype = a.averaging, a.parameters["step_size"].dtype
        found = da_update(old, rate.astype(float_dtype(dtype)))
        found = jax.tree.map(lambda new, was: jnp.asarray(new).astype(was.dtype), found, old)
        step_size = jnp.exp(found.log_step_size)
        # The law that the step is tuned for is now the last one: forget what came before.
        before = jnp.maximum(step, 1) - 1
        is_end = is_at_end(step, a.parameters) & ~is_at_end(before, a.parameters)
        begun = averaging_from(step_size)
        averaging = jax.tree.map(lambda new, was: jnp.where(is_end, new, was), begun, found)
        variance = variance_at(step + 1, a.parameters).astype(a.parameters["noise_variance"].dtype)
        parameters = a.parameters | {
            "noise_variance": variance,
            "step_size": step_size.astype(dtype),
        }
        return _AnnealingState(averaging, parameters), parameters

    def final(a):
        dtype = a.parameters["step_size"].dtype
        return a.parameters | {
            "noise_variance": final_variance.astype(a.parameters["noise_variance"].dtype),
            "step_size": jnp.asarray(da_final(a.averaging)).astype(dtype),
        }

    return Adaptation(init, update, final, num_warmup=num_warmup)


def sample_annealed(
    key: PRNGKeyArray,
    model: IntermediateNoise,
    x: Shaped[Array | np.ndarray, "n ..."],
    y: Shaped[Array | np.ndarray, "n ..."],
    positions: GibbsPosition,
    num_samples: int,
    *,
    num_warmup: int = 2000,
    start: ArrayLike = 0.1,
    step_size: ArrayLike = 0.3,
    num_integration_steps: int = 5,
    turns_every: int = 0,
    **options: Any,
) -> Draws:
    """Sample an intermediate-noise posterior after a warm-up that is annealed to it.

    Parameters
    ----------
    key
        The run's key.
    model, x, y
        The model and the data, rows first.
    positions
        Starts, stacked: `jax.vmap(lambda key: model.random_position(key, x, y))(keys)`.
    num_samples
        Draws kept of each chain.
    num_warmup, start
        As for `annealing`.
    step_size
        The first; adapted in warm-up.
    num_integration_steps
        As for `interwoven_gibbs`.
    turns_every
        Of a model that `turn_units` takes: so many steps of `interwoven_gibbs` and one turn are one
        step, in which `num_warmup`, `num_samples` and thinning count; 50 is usual. 0: no turns.
    options
        Of `jaxbnn.sample`: thinning, collect, reduce, checkpoint, progress, and so on. By default
        the weights are collected.

    Returns
    -------
    Draws, with `positions` the parameters of the network.

    Raises
    ------
    ValueError
        As `annealing`, `interwoven_gibbs` and `jaxbnn.sample`; with turns as `turn_units`.

    Notes
    -----
    The posterior is that of Piccioli et al., (7). A second call with the same shapes, options and
    numbers of the model compiles nothing.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> model, x = IntermediateNoise(mlp((2, 3, 1)), 1e-3), jnp.ones((5, 2))
    >>> _, y = model.simulate(jax.random.key(0), model.sample_prior(jax.random.key(1)), x)
    >>> zero = jax.tree.map(lambda leaf: jnp.stack([leaf] * 2), model.zero_position(x, y))
    >>> draws = sample_annealed(
    ...     jax.random.key(2), model, x, y, zero, 10, num_warmup=20, progress=False
    ... )
    >>> draws.positions[0]["w"].shape
    (2, 10, 2, 3)
    """
    check_model(model)
    check_data(model, x, y)  # inside the program values cannot be seen
    check_count("turns_every", turns_every, least=0)
    check_type("positions", positions, GibbsPosition, "stack those of the model, a chain each")
    check_one_number("start", start)
    check_step_size(step_size)
    if turns_every:
        turn_units(model, x, y)  # which refuses models of another kind
    taken = sorted(options.keys() & {"parameters", "data", "adapt"})
    if taken:
        raise TypeError(
            f"sample_annealed sets {', '.join(taken)} itself; leave it out, or call "
            "jaxbnn.sample with adapt=annealing(model, num_warmup)."
        )
    options = {"collect": _collect_params} | options
    first_step = jnp.asarray(step_size, jnp.result_type(float))  # a whole number cannot be tuned
    return sample(
        key,
        make_annealed(_first_of(model), num_integration_steps, turns_every),
        positions,
        num_samples,
        parameters={"noise_variance": _one_row(model, positions, start), "step_size": first_step},
        data=(as_held(x), as_held(y)),  # of what that rounds check_data has warned
        num_warmup=num_warmup,
        adapt=annealing(model, num_warmup, start=start),
        **options,
    )


@kept
def make_annealed(
    model: IntermediateNoise, num_integration_steps: int = 5, turns_every: int = 0
) -> Callable:
    """Return make_kernel(parameters, data) with noise variance and step size as parameters.

    Parameters
    ----------
    model
        The model.
    num_integration_steps
        As for `interwoven_gibbs`.
    turns_every
        As for `sample_annealed`.
    """

    def make_kernel(parameters, data):
        at = dataclasses.replace(model, noise_variance=parameters["noise_variance"])
        x, y = data
        sweep = interwoven_gibbs(at, x, y, parameters["step_size"], num_integration_steps)
        return _with_a_turn(sweep, turn_units(at, x, y), turns_every) if turns_every else sweep

    return make_kernel


def _first_of(model: IntermediateNoise) -> IntermediateNoise:
    """Return a model whose kernel is the model's, the same object for the same numbers.

    Noise variances do not count: those of a kernel are parameters. A model of precisions that are
    arrays is returned itself.
    """
    leaves, structure = jax.tree.flatten(dataclasses.replace(model, noise_variance=1.0))
    try:
        return _model_of(structure, *leaves)
    except TypeError:  # arrays have no hash
        return model


@functools.lru_cache(maxsize=64, typed=True)
def _model_of(structure: Any, *leaves: Any) -> IntermediateNoise:
    return jax.tree.unflatten(structure, leaves)


def _with_a_turn(
    sweep: SamplingAlgorithm, turn: SamplingAlgorithm, every: int
) -> SamplingAlgorithm:
    """Return `every` sweeps and then a turn as one step; its rate, of the sweeps, tunes theirs."""
    both = cycle(repeat(sweep, every), turn)

    def step(rng_key: PRNGKeyArray, state: Any):
        state, info = both.step(rng_key, state)
        return state, info.infos[0]._replace(is_divergent=info.is_divergent)

    return SamplingAlgorithm(both.init, step)


def stage_variances(model: IntermediateNoise) -> Float[Array, " stages"]:
    """Return the noise variance of every stage.

    Parameters
    ----------
    model
        The model.
    """
    dtype = jnp.result_type(float)
    return jnp.stack([model.variance(j, dtype) for j in range(len(model.stages))])


def _one_row(model: IntermediateNoise, positions: GibbsPosition, start: ArrayLike) -> Array:
    """Return the first noise variances, one row a chain."""
    num_chains = jax.tree.leaves(positions)[0].shape[0]
    first = jnp.maximum(stage_variances(model), jnp.asarray(start))
    return jnp.broadcast_to(first, (num_chains, *first.shape))


def _collect_params(state: Any, info: Any) -> Any:
    return state.position.params
