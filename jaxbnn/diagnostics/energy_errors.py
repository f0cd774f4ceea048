"""What the energy error of unadjusted draws implies, in words.

How much too small variances of predictions come out is in `energy_errors.toml`, a share for each of
some energy errors: medians over chains and test rows of a Gaussian posterior in 21 dimensions, of
condition 10^4, whose moments are known, by 8 chains of 80,000 steps. It is measured by `python -m
experiments configs/ensembles/bias.toml`, and `python -m experiments record` writes the file.
"""

import functools
import tomllib
from importlib import resources

import numpy as np
from jaxtyping import ArrayLike, Float

from jaxbnn.numerics import check_count, check_real
from jaxbnn.numerics.checks import check_outside


@functools.cache
def measured_bias() -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Return the energy errors a dimension, rising, and by which share variances are too small."""
    text = resources.files("jaxbnn.diagnostics").joinpath("energy_errors.toml").read_text("utf-8")
    measured = tomllib.loads(text)["measured"]
    errors, shares = (
        np.array([one[name] for one in measured], float) for name in ("energy_error", "share")
    )
    return errors, shares


def energy_error_in_words(
    energy_change: ArrayLike, num_dimensions: int, *, is_whole: ArrayLike | None = None
) -> tuple[str, ...]:
    """Say what the energy errors of unadjusted microcanonical draws imply for what is made of them.

    The energy error is E[Delta E^2] / d, Delta E the energy change of a step and d the number of
    dimensions. An exact kernel has none; the larger it is, the further the law that is drawn from
    is from the posterior, however long the chains are.

    Parameters
    ----------
    energy_change
        (chain, draw): `draws.infos.energy_change` of `blackjax.mclmc`, at kept steps; no units.
    num_dimensions
        Numbers in a position.
    is_whole
        (chain, draw): `draws.infos.nonans`, false where a step blew up and was undone.

    Returns
    -------
    One sentence on the bias, unless every step blew up, and one on blow-ups where there were any.

    Raises
    ------
    ValueError
        Energy changes that are not (chain, draw), or flags of another shape; no dimensions.

    Notes
    -----
    The energy error is that of Robnik et al. (2023), section 5. What it implies was measured here,
    on a Gaussian of known moments, and is a guide for other posteriors, not a bound.

    Examples
    --------
    >>> change = np.random.default_rng(0).normal(size=(4, 1000)) * (0.1 * 50) ** 0.5
    >>> print(energy_error_in_words(change, 50)[0])
    These are draws of an unadjusted kernel, with an energy error of 0.1 a dimension: ...
    """
    why = "it writes a sentence on the host; call it outside"
    check_outside("energy_error_in_words", why, energy_change, is_whole)
    check_count("num_dimensions", num_dimensions)
    check_real("energy_change", energy_change)
    change = np.asarray(energy_change, float)
    if change.ndim != 2 or change.size == 0:
        raise ValueError(
            f"energy_change needs the shape (chain, draw), but has {change.shape}; give "
            "draws.infos.energy_change."
        )
    if is_whole is not None:
        check_real("is_whole", is_whole)
    whole = np.ones(change.shape, bool) if is_whole is None else np.asarray(is_whole, bool)
    if whole.shape != change.shape:
        raise ValueError(
            f"is_whole needs the shape of energy_change, {change.shape}, but has {whole.shape}."
        )
    whole = whole & np.isfinite(change)
    blown = np.count_nonzero(~whole, axis=1)
    found = (
        [_bias(float(np.mean(np.square(change[whole])) / num_dimensions))] if whole.any() else []
    )
    if (chains := np.flatnonzero(blown)).size:
        listed = ", ".join(map(str, chains)), ", ".join(str(blown[c]) for c in chains)
        found.append(
            f"The energy of chain{'s' * (len(chains) > 1)} {listed[0]} blew up in {listed[1]} of "
            f"{change.shape[1]} kept steps, which were undone: the region where it does may be "
            "missed; tune for a smaller energy error."
        )
    return tuple(found)


def _bias(energy_error: float) -> str:
    return (
        "These are draws of an unadjusted kernel, with an energy error of "
        f"{energy_error:.2g} a dimension: {_size(energy_error)}, however many draws there are. Go "
        "on with an adjusted kernel, or tune for a smaller energy error."
    )


def _size(energy_error: float) -> str:
    errors, shares = measured_bias()
    if energy_error < errors[0]:
        return f"variances of predictions are too small by less than {shares[0]:.1%}, if at all"
    if energy_error > errors[-1]:
        return f"variances of predictions are too small by {shares[-1]:.0%} or more"
    share = np.interp(np.log(energy_error), np.log(errors), shares)
    return f"variances of predictions are too small by about {share:.0%}"
