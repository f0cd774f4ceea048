"""Adaptation of a kernel's parameters during warm-up; it ends before the first kept draw.

An adaptation is three pure functions. Those here return the same object for the same
arguments, so that a second run does not compile anew.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.adaptation.step_size import dual_averaging_adaptation
from jaxtyping import Array, PyTree

from jaxbnn.numerics import check_fraction, check_real
from jaxbnn.numerics.arguments import check_flag, check_function, kept, short
from jaxbnn.numerics.arrays import widened
from jaxbnn.numerics.checks import check_positive_number


class Adaptation(NamedTuple):
    """How parameters follow the chain during warm-up; `dual_averaging` returns one.

    Attributes
    ----------
    init
        `init(parameters) -> a`.
    update
        `update(a, step, state, info) -> (a, parameters)`; `step`, an int32, counts from 0.
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


def check_component(component: Any) -> None:
    """Raise TypeError unless it is None or a whole number, of either sign."""
    if component is not None and not isinstance(component, int | np.integer):
        raise TypeError(
            f"component must be the number of a kernel in a cycle, or None, but is "
            f"{short(component)}."
        )


def component_of(composed: Any, component: int | None, field: str) -> Any:
    """Return the state (field "states") or Info ("infos") of one kernel of a `cycle`."""
    if component is None:
        return composed
    parts = getattr(composed, field, None)
    if not isinstance(parts, tuple) or component not in range(-len(parts), len(parts)):
        raise ValueError(
            f"this adaptation follows component {component} of a cycle, but the kernel's "
            f"{type(composed).__name__} has "
            + (f"{len(parts)} of them." if isinstance(parts, tuple) else "none; leave it out.")
        )
    return parts[component]


def layers_of(state: Any) -> list:
    """Return a state and those within it, the innermost first.

    Kernels on a block keep the state of the kernel there, kernels on a vector likewise.
    """
    for name in ("block", "vector"):
        inner = getattr(state, name, None)
        if hasattr(inner, "position"):
            return [*layers_of(inner), state]
    return [state]


def size_mismatch(size: int, unit: str, position_size: int, advice: str = "") -> ValueError:
    """Return the error of an inverse mass matrix that is not of the position's size."""
    return ValueError(
        f"parameters['inverse_mass_matrix'] has {size} {unit} a chain, but the kernel's position "
        f"has {position_size}; make them equal{advice}."
    )


def acceptance_of(info: Any) -> Array:
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


def require_floats(parameters: PyTree, *names: str) -> None:
    """Raise one clear sentence unless these parameters are there and can be tuned."""
    _require(parameters, *names)
    for name in names:
        if not jnp.issubdtype(parameters[name].dtype, jnp.floating):
            raise ValueError(
                f"parameters[{name!r}] holds whole numbers, which cannot be tuned; give it as a "
                "float."
            )


def check_target(target_acceptance_rate: float) -> None:
    """Raise one clear sentence unless the target lies between 0 and 1."""
    usual = "; 0.234 (random walk), 0.574 (MALA) and 0.8 (HMC) are usual"
    check_fraction("target_acceptance_rate", target_acceptance_rate, usual)


def like(new: PyTree, old: PyTree) -> PyTree:
    """Keep dtypes fixed from step to step, as a compiled loop demands."""
    return jax.tree.map(lambda n, o: jnp.asarray(n).astype(jnp.asarray(o).dtype), new, old)


@kept
def dual_averaging(
    target_acceptance_rate: float,
    *,
    name: str = "step_size",
    is_pooled: bool = True,
    learning_rate: float = 0.05,
    component: int | None = None,
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
        True: one step size for all chains, from their mean acceptance. A chain among many that
        refuses everything hardly shows in that. False: each chain its own.
    learning_rate
        gamma of the paper; smaller follows the acceptance more eagerly.
    component
        In a `cycle`, the number of the kernel whose acceptance counts; None: the mean of all.

    Raises
    ------
    ValueError
        A target outside (0, 1); a learning rate that is not positive; parameters without the
        entry `name`, or with whole numbers in it; a kernel without acceptance rate, or without
        that component.

    Examples
    --------
    >>> adapt = dual_averaging(0.574)
    >>> a = adapt.init({"step_size": jnp.array(0.1)})
    >>> Info = NamedTuple("Info", [("acceptance_rate", Array)])
    >>> a, parameters = adapt.update(a, jnp.array(0), None, Info(jnp.array(1.0)))
    >>> bool(parameters["step_size"] > 0.1)  # all was accepted: take larger steps
    True
    """
    check_target(target_acceptance_rate)
    check_positive_number("learning_rate", learning_rate)
    check_flag("is_pooled", is_pooled)
    check_component(component)
    da_init, da_update, da_final = dual_averaging_adaptation(
        target_acceptance_rate, gamma=learning_rate
    )

    def with_step(parameters, step_size):
        old = parameters[name]
        return parameters | {name: jnp.broadcast_to(step_size, old.shape).astype(old.dtype)}

    def init(parameters):
        require_floats(parameters, name)
        # Pooled, the chains start from the geometric mean of their step sizes.
        start = jnp.exp(jnp.mean(jnp.log(widened(parameters[name]))))  # 16 bits count no steps
        averaging = jax.tree.map(lambda x: jnp.asarray(x, start.dtype), da_init(start))
        return _StepSizeState(averaging, with_step(parameters, start))

    def update(a, step, state, info):
        averaging = like(
            da_update(a.averaging, jnp.mean(acceptance_of(component_of(info, component, "infos")))),
            a.averaging,
        )
        parameters = with_step(a.parameters, jnp.exp(averaging.log_step_size))
        return _StepSizeState(averaging, parameters), parameters

    def final(a):
        return with_step(a.parameters, da_final(a.averaging))

    return Adaptation(init, update, final, is_pooled)


@kept
def schedule(
    function: Callable[[Array], PyTree], *, refresh: Callable[..., Any] | None = None
) -> Adaptation:
    """Set parameters by a fixed function of the warm-up step; annealing is one such.

    Parameters
    ----------
    function
        Maps the step (an int32 that counts from 0) to a dict of parameters that replace those of
        the same name, one chain's each, once that step is done: step t + 1 runs with
        function(t), and step 0 with the parameters given to `sample`. After warm-up the last
        values stay.
    refresh
        Pass `jaxbnn.refresh` where the parameters change the target density (an annealed
        noise variance), so that cached densities are recomputed.

    Raises
    ------
    ValueError
        In `sample`: a parameter that it does not have, or one of whole numbers for which the
        function returns a float.
    TypeError
        In `sample`: a function that returns something else than a dict.

    Examples
    --------
    >>> cooling = schedule(lambda step: {"temperature": 1 + 9 * jnp.exp(-0.1 * step)})
    >>> a = cooling.init({"temperature": jnp.array(10.0)})
    >>> a, parameters = cooling.update(a, jnp.array(100.0), None, None)
    >>> round(float(parameters["temperature"]), 2)
    1.0
    """
    check_function("function", function, "give step -> dict of parameters")
    if refresh is not None:
        check_function("refresh", refresh, "give jaxbnn.refresh", num_arguments=4)

    def init(parameters):
        first = function(jnp.zeros((), jnp.int32))
        if not isinstance(first, dict):
            raise TypeError(
                "function must return a dict of parameters, but returns "
                f"{type(first).__name__}; give step -> {{name: value}}."
            )
        _require(parameters, *first)
        _check_numbers(first)
        real = [name for name in first if jnp.issubdtype(jnp.result_type(first[name]), jnp.inexact)]
        require_floats(parameters, *real)
        return parameters

    def update(a, step, state, info):
        changed = function(step)
        parameters = a | like(changed, {name: a[name] for name in changed})
        return parameters, parameters

    return Adaptation(init, update, lambda a: a, refresh=refresh)


def _check_numbers(parameters: Mapping[str, Any]) -> None:
    for name, value in parameters.items():
        for leaf in jax.tree.leaves(value, is_leaf=lambda part: part is None):
            check_real(f"what function returns as {name}", leaf)
