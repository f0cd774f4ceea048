"""The warm-up of microcanonical kernels: step size, decoherence length and preconditioning.

Laid out over the warm-up, of which each part needs what the part before it found:

    0 .. 50 %    the step size follows its target, which falls from loose to what is wanted;
                 from 5 % on, the variances of windows that end at 12, 25 and 50 % become the
                 diagonal inverse mass matrix, if they are asked for
    50 .. 90 %   the draws' integrated autocorrelation time tau gives the decoherence length
                 L = 0.4 eps tau (Robnik et al. 2023, section 5)
    90 .. 100 %  the step size settles at that length

tau is the mean over (at most 100) coordinates of window length over effective sample size. A window
that is worth fewer than ten draws cannot tell tau, but for a lower bound: L is then not shortened.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.diagnostics import effective_sample_size
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int

from jaxbnn.ensembles.step_size_rules import Followed, StepSizeRule, acceptance_rule, energy_rule
from jaxbnn.numerics import check_count, check_positive
from jaxbnn.numerics.arguments import check_flag, kept
from jaxbnn.numerics.checks import check_positive_number
from jaxbnn.sampling import Adaptation
from jaxbnn.sampling.adaptation import (
    check_component,
    check_target,
    component_of,
    layers_of,
    like,
    require_floats,
    size_mismatch,
)

SHORTEST_WARMUP = 100
_NAMES = ("step_size", "decoherence_length", "inverse_mass_matrix")
# Of `microcanonical`: whether it shortens steps itself, after those that were undone.
SHORTENED = "is_shortened"
_WANTED = ("start_energy_error", "energy_error")
_LENGTH_FACTOR = 0.4
# With fewer effective draws than this, an autocorrelation time may lengthen L but not shorten it.
_FEWEST_EFFECTIVE = 10
_MOST_RECORDS, _MOST_COORDINATES = 200, 100
# As if so many draws more had been seen, with the coordinates' typical variance.
_PRIOR_DRAWS = 5


class _Moments(NamedTuple):
    num_draws: Int[Array, ""]
    mean: Float[Array, "chain d"]
    squares: Float[Array, "chain d"]


class _State(NamedTuple):
    rule: Any
    step_size: Float[Array, ""]
    length: Float[Array, ""]
    metric: Float[Array, " d"]
    moments: _Moments
    records: Float[Array, "chain record coordinate"]
    last: Float[Array, "chain d"]
    num_blow_ups: Float[Array, " chain"]
    parameters: dict


class _Plan(NamedTuple):
    """Which warm-up steps do what, in order; `window_ends` close the windows of variances."""

    window_start: int
    window_ends: tuple[int, ...]
    length_start: int
    length_end: int
    stride: int


def _plan(num_warmup: int) -> _Plan:
    start, *ends, length_end = (num_warmup * percent // 100 for percent in (5, 12, 25, 50, 90))
    stride = -(-(length_end - ends[-1]) // _MOST_RECORDS)
    return _Plan(start, tuple(ends), ends[-1], length_end, stride)


@kept
def microcanonical_adaptation(
    num_warmup: int,
    *,
    energy_error: float = 0.1,
    start_energy_error: float = 0.5,
    target_acceptance_rate: float | None = None,
    is_preconditioned: bool = True,
    is_length_tuned: bool = True,
    is_pooled: bool = False,
    component: int | None = None,
) -> Adaptation:
    """Tune a microcanonical kernel in warm-up: step size, decoherence length, inverse mass matrix.

    For BlackJAX's `mclmc`, `adjusted_mclmc` and `adjusted_mclmc_dynamic`, by functions
    make_kernel(parameters, data) such as `microcanonical` and `adjusted_microcanonical`. Its
    parameters need the entries "step_size" and "decoherence_length" (chains,) and
    "inverse_mass_matrix" (chains, d), a diagonal; `microcanonical_parameters` makes them. Where
    there is an entry "num_blow_ups" (chains,), blow-ups of the warm-up are counted in it. An entry
    "is_shortened" (chains,) of `microcanonical` is 0 in the warm-up and 1 after it.

    Parameters
    ----------
    num_warmup
        The `num_warmup` that `sample` is given, at least 100.
    energy_error
        Of an unadjusted kernel: what E[Delta E^2] / d shall be in the end, Delta E the energy
        change of a step and d the number of dimensions; no units. The smaller, the smaller the
        draws' bias, and the step size, which goes with its sixth root. Changes whose squares are
        over twenty times their mean count as twenty times: where few steps have most of it, as on
        skewed posteriors of few parameters, it comes out several times larger. `energy_errors`
        measures it.
    start_energy_error
        What it shall be at the beginning, from where it falls geometrically over half the warm-up.
        Parameters that have entries "energy_error" and "start_energy_error" (chains,) are tuned to
        those instead, pooled chains to their geometric means: runs that differ in them alone share
        one compiled program.
    target_acceptance_rate
        Of an adjusted kernel, between 0 and 1: followed by dual averaging in place of the energy
        error. None: the kernel is unadjusted.
    is_preconditioned
        Whether to learn the inverse mass matrix from the draws' variances.
    is_length_tuned
        Whether to learn the decoherence length.
    is_pooled
        False: each chain its own step size, length and matrix. True: all share one of each, learnt
        from all of them; variances are those within the chains.
    component
        In a `cycle`, the number of the microcanonical kernel. None: the kernel is no cycle; of one,
        the mean acceptance rate of its parts would be followed.

    Returns
    -------
    The adaptation. A blow-up always shrinks the step size: an energy change that is not finite, or
    larger than 100 times the root of what is wanted, or a step that BlackJAX undid.

    Raises
    ------
    ValueError
        A warm-up below 100 steps; an energy error that is not positive; a target outside (0, 1). In
        `sample`: parameters without the three entries; a target of one dimension; an inverse mass
        matrix that is not diagonal or has another size than the position; a kernel without energy
        change, or acceptance rate, to follow.

    Notes
    -----
    Robnik, De Luca, Silverstein and Seljak (2023), section 5; the falling target is that of Sommer
    et al. (2025).

    Examples
    --------
    >>> import blackjax, jaxbnn
    >>> from jaxbnn.ensembles import microcanonical_parameters
    >>> def make_kernel(parameters, data):
    ...     log_density = lambda x: -0.5 * jnp.sum((x / data) ** 2)
    ...     return blackjax.mclmc(
    ...         log_density, parameters["decoherence_length"], parameters["step_size"],
    ...         inverse_mass_matrix=parameters["inverse_mass_matrix"],
    ...     )
    >>> starts = jnp.ones((4, 5))
    >>> draws = jaxbnn.sample(
    ...     jax.random.key(0), make_kernel, starts, 500, data=jnp.array([1.0, 1, 1, 1, 10]),
    ...     parameters=microcanonical_parameters(starts), num_warmup=1000, progress=False,
    ...     adapt=microcanonical_adaptation(1000, energy_error=0.01, is_pooled=True),
    ... )
    >>> bool(0.003 < jnp.mean(jnp.square(draws.infos.energy_change)) / 5 < 0.03)
    True
    """
    check_count("num_warmup", num_warmup)
    if num_warmup < SHORTEST_WARMUP:
        raise ValueError(
            f"num_warmup is {num_warmup}, too short for the windows of this adaptation; give it at "
            f"least {SHORTEST_WARMUP} steps, or set the parameters by hand."
        )
    check_flag("is_preconditioned", is_preconditioned)
    check_flag("is_length_tuned", is_length_tuned)
    check_flag("is_pooled", is_pooled)
    check_component(component)
    check_positive_number("energy_error", energy_error)
    check_positive_number("start_energy_error", start_energy_error)
    if target_acceptance_rate is not None:
        check_target(target_acceptance_rate)
        rule = acceptance_rule(target_acceptance_rate)
    else:
        rule = energy_rule()
    plan = _plan(num_warmup)

    def as_chains(tree):
        return tree if is_pooled else jax.tree.map(lambda x: jnp.asarray(x)[None], tree)

    def with_values(a):
        new = dict(zip(_NAMES, (a.step_size, a.length, a.metric), strict=True))
        if "num_blow_ups" in a.parameters:
            new["num_blow_ups"] = a.num_blow_ups if is_pooled else a.num_blow_ups[0]
        return a.parameters | {
            name: jnp.broadcast_to(value, a.parameters[name].shape).astype(a.parameters[name].dtype)
            for name, value in new.items()
        }

    def init(parameters):
        require_floats(parameters, *_NAMES)
        for name in _WANTED:
            check_positive(f"parameters[{name!r}]", parameters.get(name, 1.0))
        chains = as_chains(parameters)
        matrix = chains["inverse_mass_matrix"]
        _check_matrix(matrix)
        num_chains, size = matrix.shape
        step_size = jnp.exp(jnp.mean(jnp.log(chains["step_size"])))
        dtype = step_size.dtype
        zeros = jnp.zeros((num_chains, size), dtype)
        parameters = _with_shortened(parameters, 0)
        a = _State(
            rule=rule.init(step_size),
            step_size=step_size,
            length=jnp.exp(jnp.mean(jnp.log(chains["decoherence_length"]))).astype(dtype),
            metric=jnp.mean(matrix, axis=0).astype(dtype),
            moments=_Moments(jnp.zeros((), jnp.int32), zeros, zeros),
            records=jnp.zeros(
                (num_chains, _num_records(plan), min(size, _MOST_COORDINATES)), dtype
            ),
            last=jnp.full_like(zeros, jnp.inf),
            num_blow_ups=jnp.zeros(num_chains, dtype),
            parameters=parameters,
        )
        return a._replace(parameters=with_values(a))

    def update(a, step, state, info):
        step = step.astype(jnp.int32)
        vectors = _vectors(as_chains(component_of(state, component, "states")), a.last)
        has_moved = jnp.any(vectors != a.last, axis=1)
        followed = Followed(as_chains(component_of(info, component, "infos")), has_moved)
        size = vectors.shape[1]
        target = _falling(step, num_warmup // 2, a.parameters, start_energy_error, energy_error)
        new, step_size, is_blow_up = rule.update(a.rule, a.step_size, target, followed, size)
        a = a._replace(
            rule=like(new, a.rule),
            step_size=step_size.astype(a.step_size.dtype),
            last=vectors,
            num_blow_ups=a.num_blow_ups + is_blow_up.astype(a.num_blow_ups.dtype),
        )
        if is_preconditioned:
            a = _follow_variances(a, plan, step, rule)
        if is_length_tuned:
            a = _follow_length(a, plan, step, is_adjusted=target_acceptance_rate is not None)
        a = a._replace(parameters=with_values(a))
        return a, a.parameters

    def final(a):
        found = with_values(a._replace(step_size=rule.final(a.rule, a.step_size)))
        return _with_shortened(found, 1)

    return Adaptation(init, update, final, is_pooled, num_warmup=num_warmup)


def _with_shortened(parameters: dict, value: int) -> dict:
    """Return the parameters with SHORTENED, where it is among them, at this value."""
    if SHORTENED not in parameters:
        return parameters
    return parameters | {SHORTENED: jnp.full_like(parameters[SHORTENED], value)}


def _falling(
    step: Array, num_steps: int, parameters: dict, start: float, end: float
) -> Float[Array, ""]:
    """Return the energy error wanted: over so many steps geometrically from start to end."""
    log_start, log_end = (
        jnp.mean(jnp.log(jnp.asarray(parameters.get(name, value), jnp.result_type(float))))
        for name, value in zip(_WANTED, (start, end), strict=True)
    )
    done = jnp.minimum(step.astype(log_start.dtype) / num_steps, 1)
    return jnp.exp(log_start + (log_end - log_start) * done)


def _check_matrix(matrix: Array) -> None:
    if matrix.ndim != 2:
        raise ValueError(
            "this adaptation learns a diagonal inverse mass matrix, one vector a chain, but "
            f"parameters['inverse_mass_matrix'] has shape {matrix.shape[1:]} a chain; give the "
            "diagonal."
        )
    if matrix.shape[1] < 2:
        raise ValueError(
            "a microcanonical kernel needs a target of at least two dimensions, but "
            "parameters['inverse_mass_matrix'] has one; use HMC."
        )


def _vectors(state: Any, last: Float[Array, "chain d"]) -> Float[Array, "chain d"]:
    """Return the chains' positions as vectors; of a kernel on a block, those of the block."""
    position = layers_of(state)[0].position
    vectors = jax.vmap(lambda x: ravel_pytree(x)[0])(position)
    if vectors.shape != last.shape:
        raise size_mismatch(last.shape[1], "numbers", vectors.shape[1])
    return vectors.astype(last.dtype)


# Which steps do what depends on the step alone, so that branches stay branches under vmap; they
# return little, since what a branch returns is copied in each step.


def _follow_variances(a: _State, plan: _Plan, step: Array, rule: StepSizeRule) -> _State:
    starts = (plan.window_start, *plan.window_ends[:-1])
    is_start = functools.reduce(jnp.logical_or, [step == start for start in starts])
    num_draws = jnp.where(is_start, 1, a.moments.num_draws + 1)
    old_mean = jnp.where(is_start, a.last, a.moments.mean)
    deviation = a.last - old_mean
    mean = old_mean + deviation / num_draws.astype(deviation.dtype)
    squares = jnp.where(is_start, 0, a.moments.squares) + deviation * (a.last - mean)
    a = a._replace(moments=_Moments(num_draws, mean, squares))

    def close(learnt):
        old, old_rule, step_size, length = learnt
        metric = _regularised(a.moments)
        # The step size stands for the same distance in the new units.
        factor = jnp.exp(0.5 * jnp.mean(jnp.log(old) - jnp.log(metric)))
        is_sound = jnp.all(jnp.isfinite(metric) & (metric > 0)) & jnp.isfinite(factor)
        size = jnp.asarray(metric.shape[0], length.dtype)
        step_size = jnp.where(is_sound, step_size * factor, step_size)
        return (
            jnp.where(is_sound, metric, old),
            like(rule.init(step_size), old_rule),
            step_size,
            jnp.where(is_sound, jnp.sqrt(size), length),  # how large a target of its own units is
        )

    is_end = functools.reduce(jnp.logical_or, [step == end - 1 for end in plan.window_ends])
    learnt = (a.metric, a.rule, a.step_size, a.length)
    metric, rule_state, step_size, length = jax.lax.cond(is_end, close, lambda x: x, learnt)
    return a._replace(metric=metric, rule=rule_state, step_size=step_size, length=length)


def _regularised(moments: _Moments) -> Float[Array, " d"]:
    """Return variances within the chains, drawn a little to their geometric mean."""
    num_draws = moments.num_draws.astype(moments.squares.dtype)
    variances = jnp.mean(moments.squares, axis=0) / jnp.maximum(num_draws - 1, 1)
    typical = jnp.exp(jnp.mean(jnp.log(variances)))
    return (num_draws * variances + _PRIOR_DRAWS * typical) / (num_draws + _PRIOR_DRAWS)


def _num_records(plan: _Plan) -> int:
    return (plan.length_end - plan.length_start) // plan.stride


def _follow_length(a: _State, plan: _Plan, step: Array, *, is_adjusted: bool) -> _State:
    coordinates = np.linspace(0, a.last.shape[1] - 1, a.records.shape[2]).astype(int)
    # Before and after its time, the first and the last record are written over.
    at = jnp.clip((step - plan.length_start) // plan.stride, 0, a.records.shape[1] - 1)
    records = jax.lax.dynamic_update_index_in_dim(a.records, a.last[:, coordinates], at, axis=1)

    def close(length):
        times = jax.vmap(_autocorrelation_time)(records) * plan.stride
        # A step of an adjusted kernel is a trajectory, as long as the length that it has.
        a_step = length if is_adjusted else a.step_size
        time = jnp.nanmean(times)
        learnt = _LENGTH_FACTOR * a_step * time
        # Of a window of a few autocorrelation times, the time found is too short.
        is_known = time <= (plan.length_end - plan.length_start) / _FEWEST_EFFECTIVE
        learnt = jnp.where(is_known, learnt, jnp.maximum(learnt, length))
        is_sound = jnp.isfinite(learnt) & (learnt > 0)
        return jnp.where(is_sound, learnt, length).astype(length.dtype)

    is_end = step == plan.length_end - 1
    length = jax.lax.cond(is_end, close, lambda length: length, a.length)
    return a._replace(records=records, length=length)


def _autocorrelation_time(records: Float[Array, "record coordinate"]) -> Float[Array, ""]:
    """Return the mean integrated autocorrelation time of one chain's records; NaN: unknown."""
    sizes = effective_sample_size(records[None])
    times = len(records) / sizes
    return jnp.nanmean(jnp.where(jnp.isfinite(times), times, jnp.nan))
