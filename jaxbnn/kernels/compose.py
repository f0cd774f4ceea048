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
from blackjax.mcmc.dynamic_hmc import DynamicHMCState
from blackjax.mcmc.ghmc import GHMCState
from blackjax.mcmc.integrators import IntegratorState
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray, PyTree

from jaxbnn.numerics import check_count, check_real, is_concrete

# Folded into a step's key for the key of a refresh; small counters give keys of a split.
_REFRESH_COUNTER = 2**32 - 1


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
    """

    acceptance_rate: Float[Array, ""] | None
    infos: PyTree


class MixInfo(NamedTuple):
    """Which component was run, and its acceptance rate.

    Attributes
    ----------
    acceptance_rate
        Of that component; NaN where it reports none.
    component
        Its number.
    """

    acceptance_rate: Float[Array, ""]
    component: Int[Array, ""]


class BlockState(NamedTuple):
    """State of `on_block`.

    Attributes
    ----------
    position
        All of it.
    block
        State of the kernel on the block.
    """

    position: PyTree
    block: Any


def refresh(
    kernel: SamplingAlgorithm, state: Any, position: PyTree, rng_key: PRNGKeyArray | None = None
) -> Any:
    """Return `state` moved to `position`, with everything cached about it computed anew.

    It is `kernel.init(position, rng_key)` with the fields carried over from `state` that are
    not functions of the position: those named in the State class's `auxiliary` tuple
    (momentum, slice, counters), in nested states too. For BlackJAX's states that have such
    fields, the names are kept here.

    Parameters
    ----------
    kernel
        The kernel that `state` belongs to.
    state
        Its state at another position.
    position
        Where it should be.
    rng_key
        For kernels whose `init` draws something.

    Examples
    --------
    >>> import jax.numpy as jnp, blackjax
    >>> kernel = blackjax.mala(lambda x: -jnp.sum(x**2) / 2, 0.5)
    >>> state = refresh(kernel, kernel.init(jnp.zeros(1)), jnp.ones(1))
    >>> float(state.logdensity), state.logdensity_grad.tolist()
    (-0.5, [-1.0])
    """
    return _carry_over(state, kernel.init(position, rng_key))


def _auxiliary(state_type: type) -> tuple[str, ...]:
    blackjax_states = {
        GHMCState: ("momentum", "slice"),
        IntegratorState: ("momentum",),  # the microcanonical samplers
        DynamicHMCState: ("random_generator_arg",),
    }
    return blackjax_states.get(state_type, getattr(state_type, "auxiliary", ()))


def _carry_over(old: Any, new: Any) -> Any:
    if not isinstance(new, tuple):
        return new
    if not hasattr(new, "_fields"):
        return tuple(_carry_over(o, n) for o, n in zip(old, new, strict=True))
    auxiliary = _auxiliary(type(new))
    fields = {}
    for name in new._fields:
        value = getattr(new, name)
        if name in auxiliary:
            fields[name] = getattr(old, name)
        elif name != "position":
            fields[name] = _carry_over(getattr(old, name), value)
    return type(new)(**{**dict(zip(new._fields, new, strict=True)), **fields})


def _mean_acceptance(infos: Sequence[Any]) -> Array | None:
    rates = [getattr(info, "acceptance_rate", None) for info in infos]
    present = [rate for rate in rates if rate is not None]
    return jnp.mean(jnp.stack(present)) if present else None


def _init_all(kernels: Sequence[SamplingAlgorithm]) -> Callable:
    def init(position, rng_key=None):
        keys = [None] * len(kernels) if rng_key is None else jax.random.split(rng_key, len(kernels))
        states = tuple(k.init(position, key) for k, key in zip(kernels, keys, strict=True))
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
        Each must leave the same target invariant.

    Returns
    -------
    The kernel, with `CycleState` and `ComposedInfo`.

    Raises
    ------
    ValueError
        No kernel given.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, blackjax
    >>> log_density = lambda x: -jnp.sum(x**2) / 2
    >>> kernel = cycle(blackjax.mala(log_density, 0.5), blackjax.mala(log_density, 0.05))
    >>> state, info = kernel.step(jax.random.key(0), kernel.init(jnp.zeros(3)))
    >>> len(info.infos)
    2
    """
    _check_some(kernels, "cycle")

    def step(rng_key, state):
        position, states, infos = state.position, [], []
        keys = jax.random.split(rng_key, len(kernels))
        for kernel, key, own_state in zip(kernels, keys, state.states, strict=True):
            own_state, info = _move(kernel, own_state, position, key)
            position = own_state.position
            states.append(own_state)
            infos.append(info)
        return CycleState(position, tuple(states)), ComposedInfo(
            _mean_acceptance(infos), tuple(infos)
        )

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
        num_steps is not a whole number.

    Examples
    --------
    >>> from jaxbnn import pcn
    >>> kernel = repeat(pcn(lambda u: -u[0], 0.5), 10)
    >>> state, info = kernel.step(jax.random.key(0), kernel.init(jnp.zeros(2)))
    >>> info.infos.is_accepted.shape
    (10,)
    """
    check_count("num_steps", num_steps)

    def step(rng_key, state):
        def one(state, i):
            # A split scanned over would count as a reuse of keys once mapped over chains.
            return kernel.step(jax.random.fold_in(rng_key, i), state)

        state, infos = jax.lax.scan(one, state, jnp.arange(num_steps, dtype=jnp.uint32))
        rates = getattr(infos, "acceptance_rate", None)
        return state, ComposedInfo(None if rates is None else jnp.mean(rates), infos)

    return SamplingAlgorithm(kernel.init, step)


def mix(
    kernels: Sequence[SamplingAlgorithm], weights: ArrayLike | Sequence[float | int] | None = None
) -> SamplingAlgorithm:
    """Apply one kernel drawn at random in each step (random scan).

    Parameters
    ----------
    kernels
        Each must leave the same target invariant.
    weights
        (kernels,) probabilities up to a factor; equal if None. Must not depend on the state.

    Returns
    -------
    The kernel, with `CycleState` and `MixInfo`.

    Raises
    ------
    ValueError
        No kernel; weights of another length, negative, not finite, or all zero.

    Examples
    --------
    >>> from jaxbnn import pcn
    >>> kernel = mix([pcn(lambda u: -u[0], 0.5), pcn(lambda u: -u[0], 1.0)], weights=[0.9, 0.1])
    >>> state, info = kernel.step(jax.random.key(0), kernel.init(jnp.zeros(2)))
    >>> int(info.component)
    0
    """
    kernels = tuple(kernels)
    _check_some(kernels, "mix")
    thresholds = _thresholds(np.ones(len(kernels)) if weights is None else weights, len(kernels))

    def step(rng_key, state):
        key_choice, key_step = jax.random.split(rng_key)
        uniform = jax.random.uniform(key_choice)
        index = jnp.sum(uniform >= jnp.asarray(thresholds, uniform.dtype), dtype=jnp.int32)
        # The branches get the key's words: mapped over chains, all of them run, and only one
        # may use the key itself.
        is_typed = jnp.issubdtype(rng_key.dtype, jax.dtypes.prng_key)
        words = jax.random.key_data(key_step) if is_typed else key_step

        def branch(i):
            def run(operand):
                words, state = operand
                impl = jax.random.key_impl(rng_key) if is_typed else None
                key = jax.random.wrap_key_data(words, impl=impl) if is_typed else words
                own_state, info = _move(kernels[i], state.states[i], state.position, key)
                states = (*state.states[:i], own_state, *state.states[i + 1 :])
                rate = getattr(info, "acceptance_rate", None)
                rate = jnp.asarray(jnp.nan if rate is None else rate, jnp.result_type(float))
                return CycleState(own_state.position, states), rate

            return run

        branches = [branch(i) for i in range(len(kernels))]
        state, rate = jax.lax.switch(index, branches, (words, state))
        return state, MixInfo(rate, index)

    return SamplingAlgorithm(_init_all(kernels), step)


def _thresholds(weights: ArrayLike | Sequence[float | int], num_kernels: int) -> Any:
    """Where in [0, 1) one kernel ends and the next begins; in float64 unless traced."""
    check_real("the weights of mix", weights)
    xp: Any = np if is_concrete(weights) else jnp
    array = xp.asarray(weights)
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


def on_block(
    kernel_of: Callable[[Callable[[PyTree], PyTree]], SamplingAlgorithm], block: str | int
) -> SamplingAlgorithm:
    """Move one block of the position by a kernel on its conditional, the rest held fixed.

    Parameters
    ----------
    kernel_of
        `kernel_of(whole) -> SamplingAlgorithm` on the block; `whole(block_position)` is the
        position with the block put in and the rest as it is now. Called while tracing.
    block
        A key of a dict position, a field of a NamedTuple, or an index of a tuple or list.

    Returns
    -------
    The kernel, with `BlockState` and the Info of the kernel on the block.

    Raises
    ------
    ValueError
        The position has no such block.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, blackjax
    >>> log_density = lambda p: -jnp.sum((p["a"] - p["b"]) ** 2 + p["b"] ** 2)
    >>> def mala_on(name):
    ...     kernel_of = lambda whole: blackjax.mala(lambda block: log_density(whole(block)), 0.3)
    ...     return on_block(kernel_of, name)
    >>> kernel = cycle(mala_on("a"), mala_on("b"))
    >>> state = kernel.init({"a": jnp.zeros(2), "b": jnp.ones(2)})
    >>> state, info = kernel.step(jax.random.key(0), state)
    >>> sorted(state.position)
    ['a', 'b']
    """

    def bind(position):
        return kernel_of(lambda value: _put(position, block, value))

    def init(position, rng_key=None):
        return BlockState(position, bind(position).init(_get(position, block), rng_key))

    def step(rng_key, state):
        own_state, info = bind(state.position).step(rng_key, state.block)
        return BlockState(_put(state.position, block, own_state.position), own_state), info

    return SamplingAlgorithm(init, step)


def _check_some(kernels: Sequence[SamplingAlgorithm], name: str) -> None:
    if not kernels:
        raise ValueError(f"{name} needs at least one kernel.")


def _get(position: Any, block: Any) -> PyTree:
    if not isinstance(position, dict | tuple | list):
        raise ValueError(
            "on_block needs a position made of blocks (a dict, NamedTuple, tuple or list), but "
            "it is a single array; put it into a dict."
        )
    try:
        if isinstance(position, tuple) and isinstance(block, str):
            return getattr(position, block)
        return position[block]
    except (KeyError, IndexError, TypeError, AttributeError):
        if isinstance(position, dict):
            known = list(position)
        else:
            known = list(getattr(position, "_fields", range(len(position))))
        raise ValueError(f"the position has no block {block!r}; it has {known}.") from None


def _put(position: Any, block: Any, value: PyTree) -> PyTree:
    if isinstance(position, dict):
        return {**position, block: value}
    if isinstance(block, str):
        return position._replace(**{block: value})
    items = [value if i == block % len(position) else item for i, item in enumerate(position)]
    if hasattr(position, "_fields"):
        return type(position)(*items)
    return type(position)(items)
