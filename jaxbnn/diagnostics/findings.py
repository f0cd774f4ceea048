"""What is wrong with a set of chains, in plain words."""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int, PyTree

# Vehtari et al. (2021): R-hat below 1.01, and an ESS of 100 per chain for R-hat and ESS
# themselves to be estimated well.
_RHAT_THRESHOLD = 1.01
_ESS_PER_CHAIN = 100
_ACCEPTANCE_RANGE = (0.02, 0.995)
_NAMED = 8


def chain_findings(
    positions: PyTree, values: PyTree
) -> tuple[Int[np.ndarray, " chain"], Bool[np.ndarray, " chain"]]:
    """First draw of each chain that is not finite, and whether its position ever changes.

    Parameters
    ----------
    positions
        Leaves (chain, draw, ...); looked at for movement and for NaN and infinities.
    values
        Leaves (chain, draw, ...); looked at for NaN and infinities.

    Returns
    -------
    The draw's number (the number of draws where all are finite), and whether the chain moves.
    """
    first_bad, moved = _chain_findings(positions, values)
    return np.asarray(first_bad), np.asarray(moved)


@jax.jit
def _chain_findings(positions, values):
    chains, length = jax.tree.leaves(positions)[0].shape[:2]
    finite = jnp.ones((chains, length), bool)
    for leaf in jax.tree.leaves((positions, values)):
        if jnp.issubdtype(leaf.dtype, jnp.inexact):
            finite &= jnp.isfinite(leaf).reshape(chains, length, -1).all(axis=2)
    moved = jnp.zeros(chains, bool)
    for leaf in jax.tree.leaves(positions):
        moved |= (leaf != leaf[:, :1]).reshape(chains, -1).any(axis=1)
    return jnp.where(finite.all(axis=1), length, jnp.argmin(finite, axis=1)), moved


def warnings_in_words(
    names: Sequence[str],
    columns: Mapping[str, np.ndarray],
    chains: int,
    length: int,
    first_bad: Int[np.ndarray, " chain"],
    frozen: Sequence[int],
    acceptance_rate: Float[np.ndarray, " chain"] | None,
) -> tuple[str, ...]:
    """One sentence for each kind of trouble; none if there is none."""
    found = _not_finite(first_bad, length)
    if len(frozen) > 0:
        found.append(
            f"{_chains(frozen)} never moved: every proposal was rejected, or nothing proposes; "
            "try a smaller step size."
        )
    elif (still := columns["sd"] == 0).any():
        found.append(
            f"{_coordinates(names, still)} never changed in any chain; no kernel moves "
            f"{'it' if still.sum() == 1 else 'them'}, or every chain is stuck."
        )
    if chains == 1:
        found.append("There is one chain, so R-hat cannot be computed; run at least four.")
    # Written so that infinite R-hats count and NaNs, reported above, do not.
    if (high := columns["rhat"] > _RHAT_THRESHOLD).any():
        worst = int(np.nanargmax(columns["rhat"]))
        found.append(
            f"R-hat is above {_RHAT_THRESHOLD} for {_share(high)} "
            f"(largest: {columns['rhat'][worst]:.3f}, {names[worst]}): the chains have not mixed; "
            "run them longer, and do not pool them before they agree."
        )
    smallest = np.fmin(columns["ess_bulk"], columns["ess_tail"])
    needed = _ESS_PER_CHAIN * chains
    if (low := smallest < needed).any():
        worst = int(np.nanargmin(smallest))
        found.append(
            f"The effective sample size is below {needed} ({_ESS_PER_CHAIN} per chain) for "
            f"{_share(low)} (smallest: {smallest[worst]:.0f}, {names[worst]}): the estimates and "
            "their errors are unreliable; run the chains longer."
        )
    if acceptance_rate is not None:
        found += _acceptance(acceptance_rate)
    return tuple(found)


def _not_finite(first_bad: np.ndarray, length: int) -> list[str]:
    chains = np.flatnonzero(first_bad < length)
    if not chains.size:
        return []
    at = _listed([str(int(first_bad[c])) for c in chains])
    return [
        f"{_chains(chains)} turned NaN or infinite, first at draw {at}: the coordinates "
        "touched are NaN here; find out why, and leave such a chain out only if you know."
    ]


def _acceptance(rate: np.ndarray) -> list[str]:
    low, high = _ACCEPTANCE_RANGE
    found = []
    if (rejecting := np.flatnonzero(rate < low)).size:
        found.append(
            f"{_chains(rejecting)} accepted less than {low:.0%} of the proposals; the step size "
            "is too large."
        )
    if (accepting := np.flatnonzero(rate > high)).size:
        found.append(
            f"{_chains(accepting)} accepted more than {high:.1%} of the proposals; the step size "
            "is probably too small, unless the kernel always accepts."
        )
    return found


def _chains(numbers) -> str:
    listed = _listed([str(int(c)) for c in numbers])
    return f"Chain {listed}" if len(numbers) == 1 else f"Chains {listed}"


def _coordinates(names, mask) -> str:
    return _listed([names[i] for i in np.flatnonzero(mask)])


def _listed(words: list[str]) -> str:
    more = f" and {len(words) - _NAMED} more" if len(words) > _NAMED else ""
    return ", ".join(words[:_NAMED]) + more


def _share(mask) -> str:
    noun = "coordinate" if mask.size == 1 else "coordinates"
    return f"{int(mask.sum())} of {mask.size} {noun}"
