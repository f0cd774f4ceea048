"""Power posteriors: replicas at several temperatures that swap places (parallel tempering).

Rung i = 0, ..., m of a ladder t_0 <= ... <= t_m = 1 holds a replica x_i of the tempered target

    p_i(x) = p(y | x)^{t_i} p(x)            (tempered = "likelihood"; Friel and Pettitt 2008)
    p_i(x) = (p(y | x) p(x))^{t_i}          (tempered = "posterior")

Each step moves every replica by a kernel of its own rung, then proposes swaps (see `swaps`). The
product of all p_i stays invariant, so that the replica at temperature 1 samples the posterior,
and the others, under the first, its evidence: d log Z / dt = E_t log p(y | x).
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.base import SamplingAlgorithm
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray, PyTree

from jaxbnn.kernels.arguments import check_kernel, check_log_likelihood_fn, check_step
from jaxbnn.kernels.blocks import BlockState
from jaxbnn.kernels.ladder import check_ladder, check_options, check_rungs
from jaxbnn.kernels.refresh import auxiliary_fields, check_state, refresh
from jaxbnn.kernels.swaps import (
    RoundTrips,
    Swaps,
    categorical_swaps,
    even_odd_swaps,
    follow_trips,
    no_swaps,
    start_trips,
)
from jaxbnn.kernels.trees import as_scalar, as_terms
from jaxbnn.numerics import check_real, is_concrete
from jaxbnn.numerics.arguments import check_function
from jaxbnn.numerics.arrays import float_dtype, widened, widest_float


class Replicas(NamedTuple):
    """A start of `power_posterior` with a position of its own for each rung.

    Attributes
    ----------
    positions
        Leaves (rungs, ...).
    """

    positions: PyTree


# What another kernel does to the replica at temperature 1 leaves the others where they are.
@auxiliary_fields("hot", "step", "trips")
class PowerPosteriorState(NamedTuple):
    """State of `power_posterior`: the replicas, hottest rung first.

    Attributes
    ----------
    position
        The replica at temperature 1.
    cold
        State of the kernel at temperature 1.
    hot
        States of the kernels at the other rungs, leaves (rungs - 1, ...).
    step
        Steps taken.
    trips
        Which replica is where, and the round trips completed so far.
    """

    position: PyTree
    cold: Any
    hot: Any
    step: Int[Array, "*batch"]
    trips: RoundTrips

    @property
    def inner(self) -> Any:
        """States of all kernels, leaves (rungs, ...) after the axes of chains, if any."""
        axis = jnp.ndim(self.step)
        return jax.tree.map(
            lambda hot, cold: jnp.concatenate([hot, jnp.expand_dims(cold, axis)], axis),
            self.hot,
            self.cold,
        )

    @property
    def replicas(self) -> PyTree:
        """Positions of all replicas, leaves (rungs, ...) after the axes of chains, if any."""
        return self.inner.position

    def start_with(self, position: PyTree) -> Replicas:
        """Return a start of all replicas where they are, but the one at temperature 1 there."""

        def beside(hot, cold):
            return jnp.concatenate([hot, jnp.asarray(cold, hot.dtype)[None]])

        return Replicas(jax.tree.map(beside, self.hot.position, position))


class PowerPosteriorInfo(NamedTuple):
    """What happened in one step of `power_posterior`.

    Attributes
    ----------
    acceptance_rate
        1 or 0 as `is_accepted`: its mean is the acceptance rate of Papamarkou et al., section 6.
    is_accepted
        Whether the position at temperature 1 is another one after the moves and the swaps.
    log_likelihood
        (rungs,) log likelihood of the replica at each rung, for the evidence. It costs nothing
        where it is not collected.
    swaps
        `Swaps`: sums of acceptance probabilities and numbers of proposals for each pair of
        rungs; the ratio of their sums over the steps is the swap acceptance rate.
    inner
        The Infos of the rungs' kernels, leaves (rungs, ...).
    """

    acceptance_rate: Float[Array, ""]
    is_accepted: Bool[Array, ""]
    log_likelihood: Float[Array, " rungs"]
    swaps: Swaps
    inner: Any


def power_posterior(
    make_kernel: Callable[[Array, PyTree], SamplingAlgorithm],
    log_prior_fn: Callable[[PyTree], Array],
    log_likelihood_fn: Callable[[PyTree], Array],
    temperatures: ArrayLike | Sequence[float],
    *,
    parameters: PyTree = None,
    swap: Literal["categorical", "even_odd"] = "categorical",
    tempered: Literal["likelihood", "posterior"] = "likelihood",
    swap_every: int = 1,
    beta: ArrayLike = 0.5,
) -> SamplingAlgorithm:
    """Replicas of tempered posteriors, each moved by its own kernel, that swap places.

    Parameters
    ----------
    make_kernel
        `make_kernel(temperature, parameters) -> SamplingAlgorithm` that leaves the target at that
        temperature invariant: `posterior.tempered(temperature, what=tempered)` has its density.
        Any kernel; called with traced values, the rungs run under one `vmap`.
    log_prior_fn
        position -> the log prior density that the temperature is a power of: a Jacobian that stays
        as it is at all temperatures has no part in it. Read only where the whole posterior is
        tempered.
    log_likelihood_fn
        position -> log-likelihood terms, one per datum, or a scalar.
    temperatures
        (rungs,) at least two, not decreasing, the last one 1; the first may be 0, the prior,
        where the likelihood is tempered. Equal ones are fine. May be traced.
    parameters
        PyTree whose leaves have the rungs as leading axis; rung i's part is given to
        `make_kernel`: a step size or a metric for each rung. May be traced.
    swap
        "categorical": for each rung in turn, a partner from p_i(j) proportional to
        exp(-beta |i - j|). "even_odd": all neighbours with even, then with odd first rung, in
        alternation, which makes replicas travel further.
    tempered
        What `make_kernel` raises to the power: "likelihood", or the whole "posterior" (as
        Papamarkou et al. write; it gives no evidence).
    swap_every
        Steps from one round of swap proposals to the next.
    beta
        Of the categorical scheme. May be traced.

    Returns
    -------
    The kernel. Its position is the replica at temperature 1. `init(position)` starts all replicas
    there, `init(Replicas(positions))` each at its own. After a round of swaps, what the inner
    kernels cache is computed again, except where all temperatures are known to be equal and
    `parameters` is None: then states are swapped whole, and always.

    Raises
    ------
    ValueError
        Temperatures that decrease, do not end at 1, are negative, or fewer than two; the whole
        posterior to the power 0; parameters or replicas without an entry for each rung; an
        unknown `swap` or `tempered`; swap_every < 1; beta that is not positive.

    Notes
    -----
    On one block of a position (`on_block`) it tempers the conditional of that block, and is refused
    in a `cycle` or `mix`, and within another `power_posterior`: to move blocks in turn, give their
    composition as `make_kernel`'s kernel.

    In a composition, and where an adaptation changes the target, `refresh` computes anew what the
    replicas at all rungs cache; inside a further composition only that of the one at temperature 1.

    Papamarkou et al., section 3.1.5, algorithm 1 and section 4.2; errata D3 (the acceptance of a
    swap as printed is wrong) and D4 (what is tempered).

    Each rung's step size is best tuned before, a chain for each rung with its temperature among the
    parameters: `sample(..., parameters={"temperature": temperatures, "step_size": ...},
    adapt=dual_averaging(0.574, is_pooled=False))` with a `make_kernel` that calls `make_kernel`.
    Where the likelihood may be zero, the density at temperature 0 has to be the prior's, as that of
    `posterior.tempered` is: 0 * -inf is NaN, and the rung would keep out of where it is.
    For the ladder see `diagnostics.equalise_rejections`; for the evidence,
    `diagnostics.thermodynamic_integration` and `diagnostics.bennett_acceptance_ratio`.

    Examples
    --------
    >>> import blackjax
    >>> log_prior = lambda x: -(x**2) / 18
    >>> log_likelihood = lambda x: jnp.logaddexp(-20 * (x - 1) ** 2, -20 * (x + 2) ** 2)
    >>> def make_kernel(temperature, step_size):
    ...     log_density = lambda x: log_prior(x) + temperature * log_likelihood(x)
    ...     return blackjax.mala(log_density, step_size)
    >>> kernel = power_posterior(make_kernel, log_prior, log_likelihood, [0.0, 0.1, 1.0],
    ...                          parameters=jnp.array([1.0, 0.3, 0.02]), swap="even_odd")
    >>> state = jax.jit(kernel.init)(jnp.array(1.0))
    >>> state, info = jax.jit(kernel.step)(jax.random.key(0), state)
    >>> state.position.shape, state.replicas.shape, info.log_likelihood.shape
    ((), (3,), (3,))
    """
    check_function("make_kernel", make_kernel, "give (temperature, parameters) -> kernel", 2)
    check_function("log_prior_fn", log_prior_fn, "give position -> log prior density")
    check_log_likelihood_fn(log_likelihood_fn)
    rungs = check_ladder(temperatures, tempered)
    check_options(swap, swap_every, beta)
    check_rungs("parameters", parameters, rungs)
    has_one_target = (
        parameters is None
        and is_concrete(temperatures)
        and bool(np.all(np.asarray(temperatures) == 1))
    )

    def at_each_rung(function: Callable, dtype: jnp.dtype, *operands: PyTree) -> Any:
        def at_rung(temperature, parameters, *operands):
            kernel = make_kernel(temperature, parameters)
            check_kernel("what make_kernel returns", kernel)
            return function(kernel, *operands)

        return jax.vmap(at_rung)(jnp.asarray(temperatures, dtype), parameters, *operands)

    def init(
        position: PyTree | Replicas, rng_key: PRNGKeyArray | None = None
    ) -> PowerPosteriorState:
        if isinstance(position, Replicas):
            replicas = position.positions
            check_rungs("the positions of Replicas", replicas, rungs)
        else:
            for path, leaf in jax.tree_util.tree_leaves_with_path(position):
                check_real(f"position{jax.tree_util.keystr(path)}", leaf)
            replicas = jax.tree.map(
                lambda leaf: jnp.broadcast_to(leaf, (rungs, *jnp.shape(leaf))), position
            )
        keys = None if rng_key is None else jax.random.split(rng_key, rungs)
        inner = at_each_rung(
            lambda kernel, x, key: kernel.init(x, key), _dtype(replicas), replicas, keys
        )
        check_state(inner)
        check_not_tempered_in_part(inner)
        return _state(inner, jnp.zeros((), jnp.int32), start_trips(rungs))

    def tempered_terms(position: PyTree) -> Float[Array, " terms"]:
        terms = jnp.ravel(as_terms("log_likelihood_fn", log_likelihood_fn(position)))
        if tempered == "likelihood":
            return terms
        log_prior = as_scalar("log_prior_fn", log_prior_fn(position))
        # The type of likelihood terms that are whole numbers would cut off the prior's fraction.
        dtype = float_dtype(terms.dtype)
        return jnp.append(terms.astype(dtype), log_prior.astype(dtype))

    def exchange(rng_key: PRNGKeyArray, inner: Any, round_number: Array) -> tuple[Any, Swaps]:
        key_swap, key_refresh = jax.random.split(rng_key)
        dtype = _dtype(inner.position)
        ladder = jnp.asarray(temperatures, dtype)
        if has_one_target:
            terms = jnp.zeros((rungs, 1), dtype)
        else:
            terms = jax.vmap(tempered_terms)(inner.position)
        if swap == "categorical":
            swaps = categorical_swaps(key_swap, ladder, terms, beta)
        else:
            swaps = even_odd_swaps(key_swap, ladder, terms, round_number % 2)
        if has_one_target:
            return jax.tree.map(lambda leaf: leaf[swaps.order], inner), swaps
        positions = jax.tree.map(lambda leaf: leaf[swaps.order], inner.position)
        keys = jax.random.split(key_refresh, rungs)
        return at_each_rung(refresh, dtype, inner, positions, keys), swaps

    def step(
        rng_key: PRNGKeyArray, state: PowerPosteriorState
    ) -> tuple[PowerPosteriorState, PowerPosteriorInfo]:
        check_step(rng_key, state)
        key_moves, key_swaps = jax.random.split(rng_key)
        dtype = _dtype(state.position)
        keys = jax.random.split(key_moves, rungs)
        inner, infos = at_each_rung(
            lambda kernel, key, s: kernel.step(key, s), dtype, keys, state.inner
        )
        count = state.step + 1
        round_number = state.step // swap_every
        if swap_every == 1:
            inner, swaps = exchange(key_swaps, inner, round_number)
        else:
            # Not a `cond`: over chains it would compute both branches in every step, where a loop
            # that runs once or not at all stops as soon as no chain needs it.
            def swap_once(loop):
                key = jax.random.fold_in(key_swaps, round_number)
                return (~loop[0], *exchange(key, loop[1], round_number))

            is_due = count % swap_every == 0
            _, inner, swaps = jax.lax.while_loop(
                lambda loop: loop[0], swap_once, (is_due, inner, no_swaps(rungs, dtype))
            )
        new_state = _state(inner, count, follow_trips(state.trips, swaps.order))
        has_moved = _differ(new_state.position, state.position)
        log_likelihood = jax.vmap(lambda x: jnp.sum(widened(log_likelihood_fn(x))))(inner.position)
        return new_state, PowerPosteriorInfo(
            has_moved.astype(dtype), has_moved, log_likelihood, swaps, infos
        )

    return SamplingAlgorithm(init, step)


def check_not_tempered_in_part(state: Any) -> None:
    """Refuse replicas of one block: the others are of a law that ends when the rest moves.

    Raises
    ------
    TypeError
        A state of `power_posterior` on a part of the position, which others move, too.
    """
    for block in _states_of(BlockState, state):
        replicas = _states_of(PowerPosteriorState, block.block)
        if replicas and _num_leaves(block.block.position) < _num_leaves(block.position):
            raise TypeError(
                "power_posterior on a block cannot be composed with what moves the rest of the "
                "position, since its hot replicas would stay as the rest was; temper the whole "
                "position, with the composition as what its make_kernel returns."
            )
        check_not_tempered_in_part(block.block)


def _num_leaves(tree: Any) -> int:
    return len(jax.tree.leaves(tree))


def _states_of(kind: type, tree: Any) -> list[Any]:
    """Return the outermost states of a kind in a state."""
    is_one = lambda node: isinstance(node, kind)  # noqa: E731
    return [node for node in jax.tree.leaves(tree, is_leaf=is_one) if is_one(node)]


def _state(inner: Any, step: Array, trips: RoundTrips) -> PowerPosteriorState:
    cold = jax.tree.map(lambda leaf: leaf[-1], inner)
    hot = jax.tree.map(lambda leaf: leaf[:-1], inner)
    return PowerPosteriorState(cold.position, cold, hot, step, trips)


def _dtype(position: PyTree) -> jnp.dtype:
    """Temperatures have the precision of the position, which is at least single."""
    return float_dtype(widest_float(position))


def _differ(a: PyTree, b: PyTree) -> Bool[Array, ""]:
    differences = jax.tree.map(lambda x, y: jnp.any(x != y), a, b)
    return jnp.any(jnp.stack(jax.tree.leaves(differences)))
