"""Swaps of replicas between tempered targets, and who has travelled the ladder.

Rung i targets p_i(x), a product whose factor exp(sum of terms) is raised to the power t_i. Two
rungs swap their replicas with probability min(1, r),

    log r = log p_i(x_j) + log p_j(x_i) - log p_i(x_i) - log p_j(x_j)
          = (t_i - t_j) (terms(x_j) - terms(x_i)),

which leaves the product of all p_i invariant for every pair (i, j) that is chosen without looking
at the replicas. In a scan over i with partner j ~ p_i, the reverse swap is proposed at the same i
with the same probability: the factor p_j(i) / p_i(j) that algorithm 1 of Papamarkou et al. prints
does not belong there (erratum D3).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from jaxbnn.kernels.arguments import check_one_number
from jaxbnn.kernels.metropolis import acceptance_probability, happens, metropolis, uniforms
from jaxbnn.numerics import sum_of_differences
from jaxbnn.numerics.arrays import float_dtype


class Swaps(NamedTuple):
    """What came of the swaps that `power_posterior` proposed in one step.

    Attributes
    ----------
    order
        Rung i gets the replica that was at rung order[i].
    acceptance
        Symmetric: sum of the acceptance probabilities of the swaps proposed for each pair.
    proposals
        Symmetric: how many were proposed.
    """

    order: Int[Array, " rungs"]
    acceptance: Float[Array, "rungs rungs"]
    proposals: Float[Array, "rungs rungs"]


class RoundTrips(NamedTuple):
    """Which replica of `power_posterior` is where, and how often one went round.

    A round trip goes from temperature 1 to the hottest rung and back.

    Attributes
    ----------
    replica
        The replica at each rung, numbered by the rung at which it started.
    phase
        Of the replica at each rung: 0 it has not been at temperature 1 yet; 1 it has, and
        not at rung 0 since; 2 it has been at rung 0 since.
    completed
        Round trips of all replicas together.
    """

    replica: Int[Array, "*batch rungs"]
    phase: Int[Array, "*batch rungs"]
    completed: Int[Array, "*batch"]


def swap_log_ratio(
    temperature_i: Float[Array, ""],
    temperature_j: Float[Array, ""],
    terms_i: Float[Array, " terms"],
    terms_j: Float[Array, " terms"],
) -> Float[Array, ""]:
    """Return (t_i - t_j) sum(terms(x_j) - terms(x_i)), the log ratio of a swap.

    Exactly 0 between equal temperatures, for any terms; else NaN, which rejects, where a
    term is NaN or infinite on both sides.

    Parameters
    ----------
    temperature_i, temperature_j
        t_i and t_j.
    terms_i, terms_j
        The logarithm of what is tempered, one term per datum, of the replicas now at i and j.

    Raises
    ------
    TypeError
        Terms that are not real numbers.

    Examples
    --------
    >>> one, half = jnp.array(1.0), jnp.array(0.5)
    >>> float(swap_log_ratio(half, one, jnp.array([-3.0]), jnp.array([-7.0])))
    2.0
    """
    check_one_number("temperature_i", temperature_i)
    check_one_number("temperature_j", temperature_j)
    difference = temperature_i - temperature_j
    log_ratio = difference * sum_of_differences(terms_j, terms_i)
    return jnp.where(difference == 0, jnp.zeros_like(log_ratio), log_ratio)


def partner_logits(rungs: int, beta: ArrayLike, dtype: jnp.dtype) -> Float[Array, "rungs rungs"]:
    """Return -beta |i - j|, -inf on the diagonal: row i holds the logits of the partner of i.

    Papamarkou et al., (4.2)-(4.4), up to the constant gamma_i (erratum D2).
    """
    rung = jnp.arange(rungs, dtype=dtype)
    distance = jnp.abs(rung[:, None] - rung[None, :])
    return jnp.where(distance == 0, -jnp.inf, -jnp.asarray(beta, dtype) * distance)


def categorical_swaps(
    rng_key: PRNGKeyArray,
    temperatures: Float[Array, " rungs"],
    terms: Float[Array, "rungs terms"],
    beta: ArrayLike,
) -> Swaps:
    """Propose, for i = 0, 1, ... in turn, a swap of i with a partner j drawn from p_i.

    Papamarkou et al., algorithm 1 with (4.2), without the factor p_j(i) / p_i(j) (erratum D3).
    """
    rungs, dtype = len(temperatures), temperatures.dtype
    # The levels of halves would be rounded to whole nats, or overflow.
    temperatures = temperatures.astype(float_dtype(dtype))
    for_partner, for_acceptance = uniforms(rng_key, (2, rungs), dtype)
    partners = _partners(for_partner, beta)
    rung = jnp.arange(rungs, dtype=jnp.int32)

    def propose(carry, pair):
        order, levels = carry
        i, j, t_j, uniform = pair
        is_i, is_j = rung == i, rung == j
        # Cheaper than a gather.
        pick = lambda values: jnp.sum(jnp.where(is_j, values, 0), dtype=values.dtype)  # noqa: E731
        level_j = pick(levels)
        log_ratio = swap_log_ratio(temperatures[i], t_j, levels[i][None], level_j[None])
        rate = acceptance_probability(log_ratio).astype(temperatures.dtype)
        is_accepted = happens(uniform, rate)

        def swapped(values, at_j):
            both = jnp.where(is_i, at_j, jnp.where(is_j, values[i], values))
            return jnp.where(is_accepted, both, values)

        return (swapped(order, pick(order)), swapped(levels, level_j)), rate

    start = (rung, _levels(terms).astype(temperatures.dtype))
    pairs = (rung, partners, temperatures[partners], for_acceptance)
    # Each turn is a handful of numbers: unrolled, it costs less than the loop around it.
    (order, _), rates = jax.lax.scan(propose, start, pairs, unroll=min(rungs, 16))
    is_proposed = jax.nn.one_hot(partners, rungs, dtype=dtype)
    acceptance = rates.astype(dtype)[:, None] * is_proposed
    return Swaps(order, _symmetric(acceptance), _symmetric(is_proposed))


def _partners(uniforms: Float[Array, " rungs"], beta: ArrayLike) -> Int[Array, " rungs"]:
    """Turn a uniform number for each rung into its partner, by inversion of p_i."""
    rungs = len(uniforms)
    rung = jnp.arange(rungs, dtype=jnp.int32)
    cumulative = jnp.cumsum(jax.nn.softmax(partner_logits(rungs, beta, uniforms.dtype)), axis=-1)
    # p_i(i) = 0 makes a flat piece, never stopped at; rounding must not lead past the last partner.
    partners = jnp.sum(uniforms[:, None] >= cumulative, axis=-1, dtype=jnp.int32)
    return jnp.minimum(partners, jnp.where(rung == rungs - 1, rungs - 2, rungs - 1))


def _levels(terms: Float[Array, "rungs terms"]) -> Float[Array, " rungs"]:
    """Return the sum of each replica's terms less those of the last: totals might cancel."""
    reference = jnp.where(jnp.isfinite(terms[-1]), terms[-1], 0)
    return jax.vmap(sum_of_differences, (0, None))(terms, reference)


def even_odd_swaps(
    rng_key: PRNGKeyArray,
    temperatures: Float[Array, " rungs"],
    terms: Float[Array, "rungs terms"],
    parity: Int[Array, ""],
) -> Swaps:
    """Propose swaps of all neighbours (i, i + 1) with i even (parity 0) or odd (parity 1)."""
    rungs, dtype = len(temperatures), temperatures.dtype
    temperatures = temperatures.astype(float_dtype(dtype))
    log_ratio = jax.vmap(swap_log_ratio)(temperatures[:-1], temperatures[1:], terms[:-1], terms[1:])
    is_proposed = jnp.arange(rungs - 1, dtype=jnp.int32) % 2 == parity
    log_ratio = jnp.where(is_proposed, log_ratio, -jnp.inf)
    keys = jax.random.split(rng_key, rungs - 1)
    _, info = jax.vmap(metropolis)(keys, log_ratio, ~is_proposed, is_proposed)
    swapped = info.is_accepted.astype(jnp.int32)
    order = jnp.arange(rungs, dtype=jnp.int32)
    order = order + jnp.pad(swapped, (0, 1)) - jnp.pad(swapped, (1, 0))

    def beside(values):
        return _symmetric(jnp.diag(values.astype(dtype), k=1))

    return Swaps(order, beside(info.acceptance_rate), beside(is_proposed))


def no_swaps(rungs: int, dtype: jnp.dtype) -> Swaps:
    """Return what a step without proposals reports."""
    nothing = jnp.zeros((rungs, rungs), dtype)
    return Swaps(jnp.arange(rungs, dtype=jnp.int32), nothing, nothing)


def start_trips(rungs: int) -> RoundTrips:
    """Every replica at its own rung; only the last one has been at temperature 1."""
    rung = jnp.arange(rungs, dtype=jnp.int32)
    return RoundTrips(rung, (rung == rungs - 1).astype(jnp.int32), jnp.zeros((), jnp.int32))


def follow_trips(trips: RoundTrips, order: Int[Array, " rungs"]) -> RoundTrips:
    """Move the replicas as `order` says, and count those that came back to temperature 1.

    Examples
    --------
    >>> trips = start_trips(2)
    >>> for _ in range(4):  # from the second swap on, one replica returns each time
    ...     trips = follow_trips(trips, jnp.array([1, 0]))
    >>> int(trips.completed)
    3
    """
    phase = trips.phase[order]
    completed = trips.completed + (phase[-1] == 2).astype(jnp.int32)
    phase = phase.at[-1].set(1)
    phase = phase.at[0].set(jnp.where(phase[0] == 1, 2, phase[0]))
    return RoundTrips(trips.replica[order], phase, completed)


def _symmetric(matrix: Array) -> Array:
    return matrix + matrix.T
