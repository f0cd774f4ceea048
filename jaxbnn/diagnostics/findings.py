"""What is wrong with a set of chains, in plain words."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxbnn.diagnostics.copies import Copy, copies
from jaxbnn.diagnostics.levels import Levels, on_both_sides, separate_levels
from jaxbnn.diagnostics.movement import Movement, Return, Stand, long_stands, returns

# Vehtari et al. (2021): R-hat below 1.01, and an ESS of 100 per chain for R-hat and ESS
# themselves to be estimated well.
_RHAT_THRESHOLD = 1.01
_ESS_PER_CHAIN = 100
_ACCEPTANCE_RANGE = (0.02, 0.995)
_NAMED = 8


def warnings_in_words(
    names: Sequence[str],
    columns: Mapping[str, np.ndarray],
    chains: int,
    length: int,
    found_movement: Movement,
    frozen: Sequence[int],
    frozen_parts: Sequence[tuple[int, str]],
    acceptance_rate: Float[np.ndarray, "chain *replica"] | None,
    log_density: Float[np.ndarray, "chain draw"] | None,
    divergences: Int[np.ndarray, " chain"] | None = None,
) -> tuple[str, ...]:
    """Return one sentence for each kind of trouble that was found."""
    found = _not_finite(found_movement.first_bad, length)
    if len(frozen) > 0:
        found.append(
            f"{_chains(frozen)} never moved: every proposal was rejected, or nothing proposes; "
            "try a smaller step size."
        )
    if frozen_parts:
        found.append(_frozen_parts(frozen_parts))
    if len(frozen) < chains:
        found += _still(names, columns["moves"] == 0, columns["varies"] > 0)
    found += _stuck(found_movement, length)
    found += _copied(copies(found_movement.contents))
    if log_density is not None and (levels := separate_levels(log_density)) is not None:
        found.append(_levels(levels))
    if chains == 1:
        found.append("There is one chain, so R-hat cannot be computed; run at least four.")
    elif (unknown := np.isnan(columns["rhat"]) & (columns["varies"] > 0)).any():
        found.append(
            f"R-hat is not known (NaN) for {_share(unknown)} ({_coordinates(names, unknown)}), "
            "although the draws differ: look at them, since nothing says that the chains agree."
        )
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
        found += _replicas(acceptance_rate, length) if acceptance_rate.ndim == 2 else []
        found += _not_a_rate(acceptance_rate.reshape(chains, -1))
        found += _acceptance(acceptance_rate.reshape(chains, -1).mean(axis=1))
    if divergences is not None and divergences.any():
        found.append(_divergences(divergences, length))
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


def _frozen_parts(parts: Sequence[tuple[int, str]]) -> str:
    chains = sorted({chain for chain, _ in parts})
    names = list(dict.fromkeys(name for _, name in parts))
    return (
        f"{_chains(chains)} never moved {_listed(names)}, which other chains move: the kernel "
        f"that moves {'it' if len(names) == 1 else 'them'} is stuck there; try a smaller step size "
        "or another start."
    )


def _still(
    names: Sequence[str],
    still: Bool[np.ndarray, " coordinate"],
    varies: Bool[np.ndarray, " coordinate"],
) -> list[str]:
    found = []
    if (nowhere := still & ~varies).any():
        found.append(
            f"{_coordinates(names, nowhere)} never changed in any chain; no kernel moves "
            f"{'it' if nowhere.sum() == 1 else 'them'}, or every chain is stuck."
        )
    if (apart := still & varies).any():
        found.append(
            f"{_coordinates(names, apart)} never changed within a chain, but the chains hold "
            "different values: each stays where it started, and the mean and its error depend on "
            "the starts alone."
        )
    return found


def _stuck(movement: Movement, length: int) -> list[str]:
    found = []
    stands = long_stands(movement, length)
    if stuck := [stand for stand in stands if not stand.may_be_atom]:
        found.append(f"{_stood(stuck)}; try a smaller step size or another start.")
    if unclear := [stand for stand in stands if stand.may_be_atom]:
        found.append(
            f"{_stood(unclear)}: either the law has an atom there (a spike, or what a ReLU sets to "
            "zero), or they are stuck; try a smaller step size or another start then."
        )
    hits = returns(movement)
    if sure := [hit for hit in hits if not hit.may_be_atoms]:
        found.append(
            f"{_returned(sure, length)}: a replica that never moves is passed round by swaps, "
            "which R-hat does not see; start it elsewhere."
        )
    if either := [hit for hit in hits if hit.may_be_atoms]:
        found.append(
            f"{_returned(either, length)}: either the law has an atom there (a spike, or what a "
            "ReLU sets to zero), or a replica that never moves is passed round by swaps, which "
            "R-hat does not see; start it elsewhere then."
        )
    return found


def _stood(stands: Sequence[Stand]) -> str:
    listed = _listed([f"{stand.start} to {stand.start + stand.draws - 1}" for stand in stands])
    return (
        f"{_chains([stand.chain for stand in stands])} stood still from draw {listed}, more than "
        "chance allows at the rate they move elsewhere"
    )


def _returned(hits: Sequence[Return], length: int) -> str:
    shares = [hit.draws / length for hit in hits]
    return (
        f"{_chains([hit.chain for hit in hits])} returned again and again to exactly the same "
        f"positions ({min(shares):.1%} to {max(shares):.1%} of the draws)"
    )


def _copied(found: Sequence[Copy]) -> list[str]:
    sentences = []
    if others := [copy for copy in found if copy.of != copy.chain]:
        listed = _listed(
            [f"{c.chain} ({c.share:.0%} of its draws, of chain {c.of})" for c in others]
        )
        sentences.append(
            f"Chain{'s' * (len(others) > 1)} {listed} hold{'s' * (len(others) == 1)} copies of "
            "another chain's draws, up to signs and order: count them once; effective sample sizes "
            "and errors are wrong, and R-hat is too small. Give each chain a key of its own."
        )
    if itself := [copy for copy in found if copy.of == copy.chain]:
        listed = _listed([f"{c.chain} ({c.share:.0%})" for c in itself])
        sentences.append(
            f"Chain{'s' * (len(itself) > 1)} {listed} repeat{'s' * (len(itself) == 1)} draws of "
            "their own, in the same order: effective sample sizes and errors are wrong; look for a "
            "key that is used again, or draws that were stored twice."
        )
    return sentences


def _levels(levels: Levels) -> str:
    shares = levels.shares
    if both := np.flatnonzero(on_both_sides(levels)).tolist():
        where = "the lower holds " + _listed([f"{shares[c]:.1%} of chain {c}" for c in both])
    else:
        low, high = np.flatnonzero(shares == 1), np.flatnonzero(shares == 0)
        where = f"on the lower {_chains(low).lower()}, on the upper {_chains(high).lower()}"
    of_one = "" if levels.chain is None else f" of chain {levels.chain}"
    return (
        f"The log density{of_one} has two levels with nothing between {levels.below:.5g} and "
        f"{levels.above:.5g}, {levels.width:.0f} standard deviations of a level apart: {where}. "
        "A replica or chain is stuck, or there are modes that the chains hardly join: means "
        "depend on where the chains started, however good R-hat looks."
    )


def _replicas(rate: Float[np.ndarray, "chain replica"], length: int) -> list[str]:
    # Rates are mean acceptance probabilities, which are never quite 0.
    pairs = np.argwhere(rate < min(_ACCEPTANCE_RANGE[0], 0.5 / length))
    if not len(pairs):
        return []
    listed = _listed([f"{replica} of chain {chain}" for chain, replica in pairs])
    largest = max(float(rate[chain, replica]) for chain, replica in pairs)
    what, most, it = (
        ("Replica", "", "It is") if len(pairs) == 1 else ("Replicas", "at most ", "They are")
    )
    return [
        f"{what} {listed} accepted next to nothing ({most}{largest:.2g} on average). {it} all but "
        "frozen, and swaps pass the frozen position to every rung; give another start or a smaller "
        "step size."
    ]


def _not_a_rate(rate: Float[np.ndarray, "chain rate"]) -> list[str]:
    bad = np.flatnonzero(np.isnan(rate).any(axis=1))
    if not bad.size:
        return []
    return [
        f"The acceptance rate of {_chains(bad).lower()} is NaN or not between 0 and 1 somewhere: "
        "its log ratios were NaN, or it is no acceptance rate; sample(..., debug=True) says where."
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


def _divergences(divergences: Int[np.ndarray, " chain"], length: int) -> str:
    where = np.flatnonzero(divergences)
    counts = _listed([f"{int(divergences[c])}" for c in where])
    # NUTS keeps the draw of the trajectory up to its last doubling.
    rejected = (
        "That proposal was rejected (by NUTS, the last part of its trajectory)"
        if divergences.sum() == 1
        else "Such proposals were rejected (by NUTS, the last parts of their trajectories)"
    )
    return (
        f"{_chains(where)} diverged in {counts} of {length} steps: the proposal's log density or "
        f"gradient was NaN, or its energy error too large. {rejected}, and the region may be "
        "missed: try a smaller step size; sample(..., debug=True) says where a NaN is."
    )


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
