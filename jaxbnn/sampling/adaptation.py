"""Adaptation of a kernel's parameters during warm-up; it ends before the first kept draw.

An adaptation is three pure functions. Those here return the same object for the same
arguments, so that a second run does not compile anew.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.adaptation.mass_matrix import mass_matrix_adaptation
from blackjax.adaptation.step_size import dual_averaging_adaptation
from blackjax.adaptation.window_adaptation import build_schedule
from jaxtyping import Array, PyTree


class Adaptation(NamedTuple):
    """How parameters follow the chain during warm-up.

    Attributes
    ----------
    init
        `init(parameters) -> a`.
    update
        `update(a, step, state, info) -> (a, parameters)`; `step` counts from 0.
    final
        `final(a) -> parameters`, those used for every kept draw.
    is_pooled
        False: the functions see one chain. True: they see all chains at once, every leaf
        with the chain axis first.
    refresh
        `refresh(kernel, state, position, rng_key) -> state`, called after each change of the
        parameters where they change the *target* (an annealed noise variance), so that no
        cached density is stale; `jaxbnn.refresh` is one. None where they do not.
    num_warmup
        The length of the warm-up that it is laid out for; None: any.
    """

    init: Callable[[PyTree], PyTree]
    update: Callable[[PyTree, Array, Any, Any], tuple[PyTree, PyTree]]
    final: Callable[[PyTree], PyTree]
    is_pooled: bool = False
    refresh: Callable[..., Any] | None = None
    num_warmup: int | None = None


class _StepSizeState(NamedTuple):
    averaging: Any
    parameters: dict


def _acceptance(info: Any) -> Array:
    """Read a NaN acceptance rate as a rejection: the step size must shrink, not vanish."""
    rate = getattr(info, "acceptance_rate", None)
    if rate is None:
        raise ValueError(
            "this adaptation follows the acceptance rate, but the kernel's Info "
            f"({type(info).__name__}) has none; set its parameters by hand or by schedule."
        )
    rate = jnp.asarray(rate)
    if not jnp.issubdtype(rate.dtype, jnp.inexact):
        rate = rate.astype(jnp.result_type(float))
    return jnp.where(jnp.isnan(rate), jnp.zeros_like(rate), rate)


def _require(parameters: PyTree, *names: str) -> None:
    missing = [name for name in names if not (isinstance(parameters, dict) and name in parameters)]
    if missing:
        raise ValueError(
            f"this adaptation changes parameters[{missing[0]!r}], which is not there; pass "
            f"parameters={{{missing[0]!r}: one value a chain, ...}} and a kernel "
            "make_kernel(parameters, data)."
        )


def _require_floats(parameters: PyTree, *names: str) -> None:
    _require(parameters, *names)
    for name in names:
        if not jnp.issubdtype(parameters[name].dtype, jnp.floating):
            raise ValueError(
                f"parameters[{name!r}] holds whole numbers, which cannot be tuned; give it as a "
                "float."
            )


def _check_target(target_acceptance_rate: float) -> None:
    if not 0 < target_acceptance_rate < 1:
        raise ValueError(
            f"target_acceptance_rate must lie between 0 and 1, but is {target_acceptance_rate}; "
            "0.234 (random walk), 0.574 (MALA) and 0.8 (HMC) are usual."
        )


def _like(new: PyTree, old: PyTree) -> PyTree:
    """Keep dtypes fixed from step to step, as a compiled loop demands."""
    return jax.tree.map(lambda n, o: jnp.asarray(n).astype(jnp.asarray(o).dtype), new, old)


@functools.lru_cache(maxsize=64)
def dual_averaging(
    target_acceptance_rate: float,
    *,
    name: str = "step_size",
    is_pooled: bool = True,
    learning_rate: float = 0.05,
) -> Adaptation:
    """Tune one step size to a target acceptance rate, for any kernel that reports one.

    Nesterov's dual averaging as in Hoffman and Gelman (2014), section 3.2, by BlackJAX. The
    target is 0.234 for random-walk Metropolis, 0.574 for MALA, 0.8 for HMC.

    Parameters
    ----------
    target_acceptance_rate
        Between 0 and 1.
    name
        The entry of the `parameters` dict that is tuned.
    is_pooled
        True: one step size for all chains, from their mean acceptance. False: each chain its
        own.
    learning_rate
        gamma of the paper; smaller follows the acceptance more eagerly.

    Raises
    ------
    ValueError
        A target outside (0, 1); parameters without the entry `name`, or with whole numbers in
        it; a kernel without acceptance rate.
    """
    _check_target(target_acceptance_rate)
    da_init, da_update, da_final = dual_averaging_adaptation(
        target_acceptance_rate, gamma=learning_rate
    )

    def with_step(parameters, step_size):
        old = parameters[name]
        return parameters | {name: jnp.broadcast_to(step_size, old.shape).astype(old.dtype)}

    def init(parameters):
        _require_floats(parameters, name)
        # Pooled, the chains start from the geometric mean of their step sizes.
        start = jnp.exp(jnp.mean(jnp.log(parameters[name])))
        averaging = jax.tree.map(lambda x: jnp.asarray(x, start.dtype), da_init(start))
        return _StepSizeState(averaging, with_step(parameters, start))

    def update(a, step, state, info):
        averaging = _like(da_update(a.averaging, jnp.mean(_acceptance(info))), a.averaging)
        parameters = with_step(a.parameters, jnp.exp(averaging.log_step_size))
        return _StepSizeState(averaging, parameters), parameters

    def final(a):
        return with_step(a.parameters, da_final(a.averaging))

    return Adaptation(init, update, final, is_pooled)


class _WindowState(NamedTuple):
    averaging: Any
    metric: Any
    parameters: dict


@functools.lru_cache(maxsize=64)
def window_adaptation(num_warmup: int, *, target_acceptance_rate: float = 0.8) -> Adaptation:
    """Stan's windowed warm-up for HMC and NUTS: step size and inverse mass matrix.

    Assembled from BlackJAX's dual averaging, Welford mass-matrix adaptation and window
    schedule, one adaptation a chain. `parameters` needs the entries "step_size" (chains,)
    and "inverse_mass_matrix", (chains, d) for a diagonal one or (chains, d, d) for a dense.

    Parameters
    ----------
    num_warmup
        The `num_warmup` that `sample` is given; the windows are laid out over it.
    target_acceptance_rate
        Between 0 and 1.

    Raises
    ------
    ValueError
        num_warmup < 1; a target outside (0, 1); parameters without the two entries.
    """
    if num_warmup < 1:
        raise ValueError(f"num_warmup must be at least 1, but is {num_warmup}.")
    _check_target(target_acceptance_rate)
    da_init, da_update, da_final = dual_averaging_adaptation(target_acceptance_rate)
    windows = np.asarray(build_schedule(num_warmup), np.int32)  # (is slow, is the end of a window)

    def metric_functions(parameters):
        return mass_matrix_adaptation(parameters["inverse_mass_matrix"].ndim == 1)

    def init(parameters):
        _require_floats(parameters, "step_size", "inverse_mass_matrix")
        step_size, inverse_mass = parameters["step_size"], parameters["inverse_mass_matrix"]
        metric = metric_functions(parameters)[0](inverse_mass.shape[-1])
        metric = metric._replace(inverse_mass_matrix=inverse_mass)
        as_array = lambda x: jnp.asarray(x, step_size.dtype)  # noqa: E731
        return _WindowState(
            jax.tree.map(as_array, da_init(step_size)),
            jax.tree.map(jnp.asarray, metric),
            parameters,
        )

    def update(a, step, state, info):
        _, metric_update, metric_final = metric_functions(a.parameters)
        is_slow, is_end = jnp.asarray(windows)[step.astype(jnp.int32)] == 1
        select = lambda flag, new, old: jax.tree.map(  # noqa: E731
            lambda n, o: jnp.where(flag, n, o), _like(new, old), old
        )
        averaging = _like(da_update(a.averaging, _acceptance(info)), a.averaging)
        metric = select(is_slow, metric_update(a.metric, state.position), a.metric)
        metric = select(is_end, metric_final(metric), metric)
        averaging = select(is_end, da_init(da_final(averaging)), averaging)
        parameters = a.parameters | {
            "step_size": jnp.exp(averaging.log_step_size),
            "inverse_mass_matrix": metric.inverse_mass_matrix,
        }
        return _WindowState(averaging, metric, parameters), parameters

    def final(a):
        return a.parameters | {
            "step_size": da_final(a.averaging),
            "inverse_mass_matrix": a.metric.inverse_mass_matrix,
        }

    return Adaptation(init, update, final, num_warmup=num_warmup)


@functools.lru_cache(maxsize=64)
def schedule(
    function: Callable[[Array], PyTree], *, refresh: Callable[..., Any] | None = None
) -> Adaptation:
    """Set parameters by a fixed function of the warm-up step; annealing is one such.

    Parameters
    ----------
    function
        Maps the step (counted from 0) to a dict of parameters that replace those of the same
        name, one chain's each, once that step is done: step t + 1 runs with function(t), and
        step 0 with the parameters given to `sample`. After warm-up the last values stay.
    refresh
        Pass `jaxbnn.refresh` where the parameters change the target density (an annealed
        noise variance), so that cached densities are recomputed.
    """

    def init(parameters):
        _require(parameters, *function(jnp.zeros((), jnp.uint32)))
        return parameters

    def update(a, step, state, info):
        changed = function(step)
        parameters = a | _like(changed, {name: a[name] for name in changed})
        return parameters, parameters

    return Adaptation(init, update, lambda a: a, refresh=refresh)
