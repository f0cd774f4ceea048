"""What holds a chain that has not joined the informed one: unit by unit, how its units differ.

Units may be exchanged and, with ReLU, scaled; so each is matched to one of the informed chain by
the angle between the weights into them, and |w| |v|, v the weight out of it, is its size. Where
chains end is compared, one draw each.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float
from scipy.optimize import linear_sum_assignment

from experiments.studies.thermalization.common import late_levels

# A cosine below this is another unit; one below zero, the unit turned round.
_LIKE, _TURNED = 0.8, -0.5
# Two with a larger one are one unit, standing there twice.
_DOUBLE = 0.95

HEADER = ["data set", "test MSE over informed", "turned round", "missing", "twice", "largest |v|"]


def traps(
    widths: Sequence[int],
    series: Mapping[str, np.ndarray],
    informed: Mapping[str, np.ndarray],
    is_joined: Bool[np.ndarray, " chain"],
    num_copies: int = 1,
) -> list[list]:
    """Return a row as HEADER says for each chain that has not joined; of one hidden layer only.

    "Turned round" are units whose weights point the other way, "missing" those that no unit of the
    chain is like, each by its size in the informed chain; "twice" is the number of pairs of the
    chain's units that are one. The last is the chain's largest weight out of a unit, and the
    informed chain's: large ones also let the noise of the units through, so that more is explained
    as noise.
    """
    if len(widths) != 3:
        return []
    levels = late_levels(series) / late_levels(informed)
    found = []
    for chain in np.flatnonzero(~np.asarray(is_joined)):
        w, v = _units(widths, series["final_weights"][chain])
        w0, v0 = _units(widths, informed["final_weights"][chain])
        cosines = _cosines(w, w0)
        mine, theirs = linear_sum_assignment(-np.abs(cosines))
        matched = cosines[mine, theirs]
        sizes = (np.linalg.norm(w0, axis=1) * np.linalg.norm(v0, axis=1))[theirs]
        among = _cosines(w, w)[np.triu_indices(len(w), 1)]
        found.append(
            [
                int(chain) // num_copies,
                f"{levels[chain]:.3f}",
                _listed(sizes[matched < _TURNED]),
                _listed(sizes[np.abs(matched) < _LIKE]),
                int(np.sum(among > _DOUBLE)),
                f"{np.abs(v).max():.2f} ({np.abs(v0).max():.2f})",
            ]
        )
    return found


def _units(widths: Sequence[int], flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights into each unit, and out of it, from leaves in JAX's order (b, w, b, w)."""
    features, units, outputs = widths
    ends = np.cumsum([units, features * units, outputs])
    _, into, _, out = np.split(flat, ends)
    return into.reshape(features, units).T, out.reshape(units, outputs)


def _cosines(one: Float[np.ndarray, "i d"], other: Float[np.ndarray, "j d"]) -> np.ndarray:
    lengths = np.linalg.norm(one, axis=1)[:, None] * np.linalg.norm(other, axis=1)
    return one @ other.T / np.maximum(lengths, np.finfo(np.float32).tiny)


def _listed(sizes: np.ndarray) -> str:
    return ", ".join(f"{size:.2f}" for size in np.sort(sizes)) or "-"
