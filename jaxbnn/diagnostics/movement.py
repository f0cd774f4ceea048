"""Whether chains move: frozen ones, long stands, and positions that come back exactly.

A position that was left never returns, unless its law has an atom there, or a replica that is stuck
there is passed round by swaps. That is the one trace it leaves in the chain at temperature 1, whose
acceptance rate and R-hat look healthy.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree, UInt32, UInt64

# A chance of 1e-6 that a chain with independent departures stands so long somewhere.
_LOG_RARE = math.log(1e-6)
_SHORTEST_STAND = 20
_VISITS = 5
_SHORTEST_SPAN = 200
# More positions than there are replicas to be stuck.
_STUCK = 32


class Movement(NamedTuple):
    """What the positions of each chain do, by chain.

    Attributes
    ----------
    first_bad
        First draw that is not finite; the number of draws where all are.
    moves
        How often the position differs from the one before.
    fingerprints
        (chain, draw, 2): equal positions have equal ones.
    contents
        (chain, draw, 2): positions of the same numbers, up to order and signs, have equal ones.
    moves_of_leaves
        How often each leaf of the position differs from the one before.
    """

    first_bad: Int[np.ndarray, " chain"]
    moves: Int[np.ndarray, " chain"]
    fingerprints: UInt32[np.ndarray, "chain draw 2"]
    contents: UInt32[np.ndarray, "chain draw 2"]
    moves_of_leaves: Int[np.ndarray, "leaf chain"]


class Stand(NamedTuple):
    """The longest stay of a chain, longer than chance allows.

    Attributes
    ----------
    chain, start, draws
        Its number, the first draw of the stay, and how many there are.
    may_be_atom
        Whether the law may have an atom there, which is left more rarely than other positions: the
        chain came there too seldom to tell, and other chains hold it as well, or there are none.
    """

    chain: int
    start: int
    draws: int
    may_be_atom: bool


class Return(NamedTuple):
    """Positions to which a chain comes back.

    Attributes
    ----------
    chain, draws
        Its number, and the draws spent there.
    first, last
        The first draw there, and the last.
    may_be_atoms
        Whether the law may have atoms there: all these positions are held by other chains as well,
        or there is no other chain.
    """

    chain: int
    draws: int
    first: int
    last: int
    may_be_atoms: bool


class _Stays(NamedTuple):
    """A chain's stays: where each begins, its length, the number of its place, visits by place."""

    begins: Int[np.ndarray, " stay"]
    lengths: Int[np.ndarray, " stay"]
    which: Int[np.ndarray, " stay"]
    places: UInt64[np.ndarray, " place"]
    visits: Int[np.ndarray, " place"]


def movement(positions: PyTree, values: PyTree) -> Movement:
    """Look at every draw once.

    Parameters
    ----------
    positions
        Leaves (chain, draw, ...); looked at for movement and for NaN and infinities.
    values
        Leaves (chain, draw, ...); looked at for NaN and infinities.
    """
    return Movement(*map(np.asarray, _movement(positions, values)))


def long_stands(found: Movement, length: int) -> list[Stand]:
    """Chains that stand still for longer than their own departures elsewhere explain.

    A stand is reported if it lasts a hundredth of the chain and is a one in a million event: if
    every draw of a chain is left with one probability, whatever it is, every way to cut n draws
    into m stays is equally likely, and a given one of them lasts s draws or more with the chance
    C(n - s, m - 1) / C(n - 1, m - 1). Reported is a stay for which this, times the number of all
    stays of the chain, is so rare: together they raise a false alarm with at most that chance.

    Compared are all stays of the chain. Of a position that comes back they are those at that
    position alone, which may be left more rarely than others: one of five visits, or any in a chain
    half of whose stays are at positions with more than one, as in discrete laws and at atoms.
    Draws from the first bad one on are not looked at.
    """
    stands = []
    codes = _codes(found)
    held, in_chains = _held(codes)
    for chain, code in enumerate(codes):
        stays = _stays(code)
        longest = int(np.argmax(stays.lengths))
        draws = int(stays.lengths[longest])
        if draws < max(_SHORTEST_STAND, length / 100):
            continue
        place = stays.which[longest]
        again = np.count_nonzero(stays.visits[stays.which] > 1)
        comes_back = stays.visits[place] >= _VISITS or 2 * again >= len(stays.which)
        compared = stays.lengths[stays.which == place] if comes_back else stays.lengths
        if math.log(len(stays.which)) + _log_chance(compared) < _LOG_RARE:
            is_shared = in_chains[np.searchsorted(held, stays.places[place])] > 1
            may_be_atom = not comes_back and bool(is_shared or len(codes) == 1)
            stands.append(Stand(chain, int(stays.begins[longest]), draws, may_be_atom))
    return stands


def returns(found: Movement) -> list[Return]:
    """Chains that come back to exactly the same positions over a tenth of their length.

    Five separate visits at least. A healthy replica also comes back if all its proposals are
    rejected while it is elsewhere, but soon. Discrete positions, and those of few bits, come back
    by themselves, and all chains hold the same ones: such chains are left out. A few positions
    among many that all chains hold may be atoms of the law, or a start that chains share and a
    stuck replica holds: stays and returns look alike, and `may_be_atoms` says so. Draws from the
    first bad one on are not looked at.
    """
    hits = []
    codes = _codes(found)
    held, in_chains = _held(codes)
    for chain, code in enumerate(codes):
        begins, lengths, which, places, visits = _stays(code)
        first = np.full(len(visits), len(code))
        last = np.zeros(len(visits), int)
        np.minimum.at(first, which, begins)
        np.maximum.at(last, which, begins + lengths - 1)
        span = max(_SHORTEST_SPAN, len(code) // 10)
        is_far = last - first >= span
        again = (visits >= _VISITS) & is_far
        of_others = in_chains[np.searchsorted(held, places)] > 1
        late = np.count_nonzero(is_far & (visits > 1))
        is_discrete = (
            of_others.mean() > 0.5
            or late > max(_STUCK, 0.2 * len(places))
            or (len(codes) == 1 and 4 * len(places) < len(begins))
        )
        if again.any() and not is_discrete:
            draws = int(lengths[again[which]].sum())
            may_be_atoms = len(codes) == 1 or bool(of_others[again].all())
            ends = int(first[again].min()), int(last[again].max())
            hits.append(Return(chain, draws, *ends, may_be_atoms))
    return hits


def _codes(found: Movement) -> list[UInt64[np.ndarray, " _"]]:
    """Return each chain's fingerprints before its first bad draw, the first draw always."""
    marked = found.fingerprints.astype(np.uint64)
    codes = marked[..., 0] << np.uint64(32) | marked[..., 1]
    return [code[: max(bad, 1)] for code, bad in zip(codes, found.first_bad, strict=True)]


def _held(
    codes: list[UInt64[np.ndarray, " _"]],
) -> tuple[UInt64[np.ndarray, " place"], Int[np.ndarray, " place"]]:
    """Return all places, and how many chains hold each."""
    held = np.concatenate([np.unique(code) for code in codes])
    return np.unique(held, return_counts=True)


def _stays(code: UInt64[np.ndarray, " draw"]) -> _Stays:
    begins = np.flatnonzero(np.append(True, code[1:] != code[:-1]))
    places, which, visits = np.unique(code[begins], return_inverse=True, return_counts=True)
    return _Stays(begins, np.diff(begins, append=len(code)), which, places, visits)


def _log_chance(lengths: Int[np.ndarray, " stay"]) -> float:
    """Log probability that a given one of stays of one law is as long as the longest.

    C(n - s, m - 1) / C(n - 1, m - 1) for m stays of n draws in all, the longest of s.
    """
    number, total, longest = len(lengths), int(lengths.sum()), int(lengths.max())
    rest = total - longest
    ways = math.lgamma(rest + 1) - math.lgamma(rest - number + 2)
    return ways - math.lgamma(total) + math.lgamma(total - number + 1)


@jax.jit
def _movement(positions, values):
    chains, length = jax.tree.leaves(positions)[0].shape[:2]
    finite = jnp.ones((chains, length), bool)
    for leaf in jax.tree.leaves((positions, values)):
        if jnp.issubdtype(leaf.dtype, jnp.inexact):
            finite &= jnp.isfinite(leaf).reshape(chains, length, -1).all(axis=2)
    changed = []
    for leaf in jax.tree.leaves(positions):
        differs = leaf[:, 1:] != leaf[:, :-1]
        changed.append(differs.reshape(chains, length - 1, -1).any(axis=2))
    first_bad = jnp.where(finite.all(axis=1), length, jnp.argmin(finite, axis=1))
    moves = jnp.sum(jnp.stack(changed).any(axis=0), axis=1)
    marks = _fingerprints(positions, chains, length), _contents(positions, chains, length)
    return first_bad, moves, *marks, jnp.sum(jnp.stack(changed), axis=2)


def _contents(positions: PyTree, chains: int, length: int) -> UInt32[Array, "chain draw 2"]:
    """Add up scrambled bits without their signs, all coordinates alike, modulo 2^32."""
    total = jnp.zeros((chains, length, 2), jnp.uint32)
    for leaf in jax.tree.leaves(positions):
        mixed = _mixed(_bits(jnp.abs(leaf)).reshape(chains, length, -1))
        # Two sums of the same numbers say no more than one, unless scrambled twice.
        again = _mixed(mixed + np.uint32(0x9E3779B1))
        both = jnp.stack(
            [jnp.sum(mixed, axis=2, dtype=jnp.uint32), jnp.sum(again, axis=2, dtype=jnp.uint32)],
            axis=2,
        )
        total += both
    return total


def _mixed(bits: UInt32[Array, "..."]) -> UInt32[Array, "..."]:
    mixed = (bits ^ (bits >> 16)) * np.uint32(0x7FEB352D)
    return mixed ^ (mixed >> 15)


def _fingerprints(positions: PyTree, chains: int, length: int) -> UInt32[Array, "chain draw 2"]:
    """Add up scrambled bits, each coordinate with odd factors of its own, modulo 2^32."""
    total = jnp.zeros((chains, length, 2), jnp.uint32)
    offset = 0
    for leaf in jax.tree.leaves(positions):
        bits = _bits(leaf).reshape(chains, length, -1)
        mixed = _mixed(bits)
        number = np.arange(offset + 1, offset + bits.shape[2] + 1, dtype=np.uint64)
        # Odd factors lose no bit; multiples of two odd constants modulo 2^32 look random.
        steps = np.array([0x9E3779B1, 0x85EBCA6B], np.uint64)
        factors = jnp.asarray((number[:, None] * steps | np.uint64(1)).astype(np.uint32))
        total += jnp.sum(mixed[..., None] * factors[None, None], axis=2, dtype=jnp.uint32)
        offset += bits.shape[2]
    return total


def _bits(leaf: Array) -> UInt32[Array, "..."]:
    if jnp.issubdtype(leaf.dtype, jnp.floating):
        if leaf.dtype.itemsize < 4:
            leaf = leaf.astype(jnp.float32)
        leaf = jnp.where(leaf == 0, 0, leaf)  # -0.0 is 0.0; XLA would drop an addition of 0.0
        return jax.lax.bitcast_convert_type(leaf, jnp.uint32)  # float64: two of them
    return leaf.astype(jnp.uint32)
