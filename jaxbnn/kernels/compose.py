"""Combinators: kernels out of kernels, each leaving the common target invariant.

When one kernel moves what another has cached something about, the cache is refreshed; a
stale cache is the classic silent bias of composed samplers.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.base import SamplingAlgorithm
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree

from jaxbnn.kernels.arguments import check_kernel, check_kernels, check_step
from jaxbnn.kernels.power_posterior import check_not_tempered_in_part
from jaxbnn.kernels.refresh import auxiliary_fields, check_state, refresh
from jaxbnn.numerics import check_count, check_real, is_concrete
from jaxbnn.numerics.arguments import a_or_an
from jaxbnn.numerics.arrays import float_dtype

# Folded into a step's key for the key of a refresh; small counters give keys of a split.
_REFRESH_COUNTER = 2**32 - 1


@auxiliary_fields()
class CycleState(NamedTuple):
    """Position and the components' own states; `states[i]` is current for component i only.

    Attributes
    ----------
    position
        Where all components are now.
    states
        One a component.
    """

    position: PyTree
    states: tuple


class ComposedInfo(NamedTuple):
    """What the components said.

    Attributes
    ----------
    acceptance_rate
        Mean over the components that report one; None if none does.
    infos
        `cycle`: a tuple, one Info a component. `repeat`: the Info stacked, leaves (n, ...).
    is_divergent
        Whether any component, or any of the repetitions, diverged; None if none reports it.
    """

    acceptance_rate: Float[Array, ""] | None
    infos: PyTree
    is_divergent: Bool[Array, ""] | None


class MixInfo(NamedTuple):
    """Which component was run, and its acceptance rate.

    Attributes
    ----------
    acceptance_rate
        Of that component; None unless all components report one, since neither a mean over steps
        nor an adaptation could tell a step that reports none from a rejection.
    component
        Its number.
    is_divergent
        Whether it diverged; False where it does not report it.
    component_rate
        Acceptance rate of that component; NaN where it reports none.
    """

    acceptance_rate: Float[Array, ""] | None
    component: Int[Array, ""]
    is_divergent: Bool[Array, ""]
    component_rate: Float[Array, ""]


def _composed(infos: Sequence[Any]) -> ComposedInfo:
    rates = _reported(infos, "acceptance_rate")
    divergent = _reported(infos, "is_divergent")
    return ComposedInfo(
        jnp.mean(jnp.stack(rates)) if rates else None,
        tuple(infos),
        jnp.any(jnp.stack(divergent)) if divergent else None,
    )


def _reported(infos: Sequence[Any], name: str) -> list[Array]:
    found = [getattr(info, name, None) for info in infos]
    return [value for value in found if value is not None]


def _init_all(kernels: Sequence[SamplingAlgorithm]) -> Callable:
    def init(position, rng_key=None):
        keys = [None] * len(kernels) if rng_key is None else jax.random.split(rng_key, len(kernels))
        states = tuple(k.init(position, key) for k, key in zip(kernels, keys, strict=True))
        for state in states:
            check_state(state)
            check_not_tempered_in_part(state)
        return CycleState(position, states)

    return init


def _move(kernel, state, position, rng_key):
    """One step of a component from where the composition is now."""
    refresh_key = jax.random.fold_in(rng_key, jnp.uint32(_REFRESH_COUNTER))
    return kernel.step(rng_key, refresh(kernel, state, position, refresh_key))


def cycle(*kernels: SamplingAlgorithm) -> SamplingAlgorithm:
    """Apply kernels one after the other, in the order given; each step applies all.

    The step's key is split into one a component.

    Parameters
    ----------
    kernels
        Each must leave the same target invariant. Its State class must name in `auxiliary` the
        fields that are not functions of the position; see `refresh`.

    Returns
    -------
    The kernel, with `CycleState` and `ComposedInfo`.

    Raises
    ------
    ValueError
        No kernel given.
    TypeError
        An argument that is not a kernel; in `init`, a State class without `auxiliary`, or a
        `power_posterior` on a block: its hot replicas are of a law that the others change.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, blackjax
    >>> log_density = lambda x: -jnp.sum(x**2) / 2
    >>> kernel = cycle(blackjax.mala(log_density, 0.5), blackjax.mala(log_density, 0.05))
    >>> state, info = kernel.step(jax.random.key(0), kernel.init(jnp.zeros(3)))
    >>> len(info.infos)
    2
    """
    check_kernels("cycle", kernels, "write cycle(first, second)")

    def step(rng_key, state):
        check_step(rng_key, state)
        position, states, infos = state.position, [], []
        keys = jax.random.split(rng_key, len(kernels))
        for kernel, key, own_state in zip(kernels, keys, state.states, strict=True):
            own_state, info = _move(kernel, own_state, position, key)
            position = own_state.position
            states.append(own_state)
            infos.append(info)
        return CycleState(position, tuple(states)), _composed(infos)

    return SamplingAlgorithm(_init_all(kernels), step)


def repeat(kernel: SamplingAlgorithm, num_steps: int) -> SamplingAlgorithm:
    """Apply a kernel `num_steps` times as one step.

    Parameters
    ----------
    kernel
        Any.
    num_steps
        At least 1.

    Returns
    -------
    The kernel, with the state of the one given, and `ComposedInfo` with its Info stacked.

    Raises
    ------
    ValueError
        num_steps < 1.
    TypeError
        num_steps is not a whole number, or kernel is not a kernel.

    Examples
    --------
    >>> from jaxbnn import pcn
    >>> kernel = repeat(pcn(lambda u: -u[0], 0.5), 10)
    >>> state, info = kernel.step(jax.random.key(0), kernel.init(jnp.zeros(2)))
    >>> info.infos.is_accepted.shape
    (10,)
    """
    check_kernel("kernel", kernel)
    check_count("num_steps", num_steps)

    def step(rng_key, state):
        check_step(rng_key, state)

        def one(state, i):
            # A split scanned over would count as a reuse of keys once mapped over chains.
            return kernel.step(jax.random.fold_in(rng_key, i), state)

        state, infos = jax.lax.scan(one, state, jnp.arange(num_steps, dtype=jnp.uint32))
        return state, _composed([infos])._replace(infos=infos)

    return SamplingAlgorithm(kernel.init, step)


def mix(
    kernels: Sequence[SamplingAlgorithm], weights: ArrayLike | Sequence[float | int] | None = None
) -> SamplingAlgorithm:
    """Apply one kernel drawn at random in each step (random scan).

    Parameters
    ----------
    kernels
        Each must leave the same target invariant, and name its own fields as for `cycle`.
    weights
        (kernels,) probabilities up to a factor; equal if None. Must not depend on the state.

    Returns
    -------
    The kernel, with `CycleState` and `MixInfo`.

    Raises
    ------
    ValueError
        No kernel; weights of another length, negative, not finite, or all zero.
    TypeError
        As for `cycle`.

    Examples
    --------
    >>> from jaxbnn import pcn
    >>> kernel = mix([pcn(lambda u: -u[0], 0.5), pcn(lambda u: -u[0], 1.0)], weights=[0.9, 0.1])
    >>> state, info = kernel.step(jax.random.key(0), kernel.init(jnp.zeros(2)))
    >>> int(info.component)
    0
    """
    if isinstance(kernels, SamplingAlgorithm) or not isinstance(kernels, Sequence):
        raise TypeError(
            f"mix takes a list of kernels, but was given {a_or_an(kernels)}; write "
            "mix([first, second], weights)."
        )
    kernels = tuple(kernels)
    check_kernels("mix", kernels, "write mix([first, second], weights)")
    thresholds = _thresholds(np.ones(len(kernels)) if weights is None else weights, len(kernels))

    def step(rng_key, state):
        check_step(rng_key, state)
        key_choice, key_step = jax.random.split(rng_key)
        uniform = jax.random.uniform(key_choice)
        index = jnp.sum(uniform >= jnp.asarray(thresholds, uniform.dtype), dtype=jnp.int32)
        # The branches get the key's words: mapped over chains, all of them run, and only one
        # may use the key itself.
        is_typed = jnp.issubdtype(rng_key.dtype, jax.dtypes.prng_key)
        words = jax.random.key_data(key_step) if is_typed else key_step
        reports: dict[int, bool] = {}

        def branch(i):
            def run(operand):
                words, state = operand
                impl = jax.random.key_impl(rng_key) if is_typed else None
                key = jax.random.wrap_key_data(words, impl=impl) if is_typed else words
                own_state, info = _move(kernels[i], state.states[i], state.position, key)
                states = (*state.states[:i], own_state, *state.states[i + 1 :])
                rate, divergent = (
                    getattr(info, name, None) for name in ("acceptance_rate", "is_divergent")
                )
                reports[i] = rate is not None
                rate = jnp.asarray(jnp.nan if rate is None else rate, jnp.result_type(float))
                divergent = jnp.asarray(False if divergent is None else divergent)
                return CycleState(own_state.position, states), rate, divergent

            return run

        branches = [branch(i) for i in range(len(kernels))]
        operand = words, state
        state, rate, divergent = jax.lax.switch(index, branches, operand)
        for i, run in enumerate(branches):
            if i not in reports:  # where nothing is compiled, only the chosen one was run
                jax.eval_shape(run, operand)
        return state, MixInfo(rate if all(reports.values()) else None, index, divergent, rate)

    return SamplingAlgorithm(_init_all(kernels), step)


def _thresholds(weights: ArrayLike | Sequence[float | int], num_kernels: int) -> Any:
    """Where in [0, 1) one kernel ends and the next begins, in 32 bits at least."""
    check_real("the weights of mix", weights)
    xp: Any = np if is_concrete(weights) else jnp
    array = xp.asarray(weights)
    if jnp.issubdtype(array.dtype, jnp.floating):
        array = array.astype(float_dtype(array.dtype))
    is_wrong = array.shape != (num_kernels,)
    if xp is np:
        is_wrong |= bool((array < 0).any()) or not 0 < array.sum() < np.inf
    if is_wrong:
        got = array.tolist() if xp is np else f"shape {array.shape}"
        raise ValueError(
            f"mix needs {num_kernels} finite weights that are not negative nor all zero, one a "
            f"kernel, but got {got}."
        )
    return xp.cumsum(array / array.sum())[:-1]
