"""What the recorded studies of `configs/ensembles` show, in sentences made from their numbers."""

import math
from collections.abc import Callable, Mapping
from typing import Any

# Value and standard error of a quantity in a setting, NaN for what is not known.
Number = tuple[float, float]
Numbers = Mapping[tuple[str, str], Number]

# A median R-hat within one set of chains above this: no slow mixing, but modes of their own.
_APART = 1.1


def conclusions(name: str, rows: list[dict[str, Any]]) -> str:
    """Return what a study shows by its rows as `metrics.json` has them, "" where nothing is said.

    Examples
    --------
    >>> rows = [
    ...     {"quantity": "lppd_at_the_budget", "setting": arm, "value": value, "standard_error": 0.01}
    ...     for arm, value in (("alone", 0.74), ("exchange", 0.73))
    ... ]
    >>> conclusions("between_modes", rows)
    'No move beats chains that go on (`alone`, 0.740 ± 0.010) by more than three standard errors; the best of the moves is `exchange`, 0.730 ± 0.010.'
    """  # noqa: E501
    if name not in _SAID:
        return ""
    numbers = {
        (row["quantity"], row["setting"]): (
            math.nan if row["value"] is None else row["value"],
            math.nan if row["standard_error"] is None else row["standard_error"],
        )
        for row in rows
    }
    return _SAID[name](numbers)


def _of_bias(numbers: Numbers) -> str:
    """Say where unadjusted draws are farther from exact ones than a second exact run is."""
    again = ", a second exact run"
    sentences = []
    for quantity, setting in numbers:
        if quantity != "total_variation" or not setting.endswith(again):
            continue
        posterior = setting.removesuffix(again)
        others = [
            other
            for kind, other in numbers
            if kind == quantity and other.startswith(f"{posterior}, energy error ")
        ]
        # As measured: what was aimed at is not reached everywhere.
        measured = {other: numbers["energy_error", other][0] for other in others}
        errors = sorted(others, key=lambda other: -measured[other])
        beyond = [
            f"{measured[other]:.2g}"
            for other in errors
            if _is_above(numbers[quantity, other], numbers[quantity, setting])
        ]
        where = f"at energy errors of {_listed(beyond)}" if beyond else "at no energy error"
        said = f"On {posterior} the total variation is above that of a second exact run by more "
        said += f"than three standard errors {where}"
        ratios = [
            numbers["variance_ratio", other][0]
            for other in errors
            if ("variance_ratio", other) in numbers
        ]
        if beyond and ratios:
            said += (
                f"; an output's variance is {ratios[0]:.2f} of the exact at the largest and "
                f"{ratios[-1]:.2f} at the least"
            )
        sentences.append(f"{said}.")
    return " ".join(sentences)


def _of_moves(numbers: Numbers) -> str:
    """Say whether any move between modes does better than chains that go on."""
    found = {arm: number for (kind, arm), number in numbers.items() if kind == "lppd_at_the_budget"}
    arms = {arm: number for arm, number in found.items() if not math.isnan(number[0])}
    unknown = [f"`{arm}`" for arm in found if arm not in arms]
    said = f" Of {_listed(unknown)} no number is known." if unknown else ""
    alone = arms.pop("alone", None)
    if alone is None or not arms:
        return said.strip()
    best = max(arms, key=lambda arm: arms[arm][0])
    going_on = f"chains that go on (`alone`, {_with_error(alone)})"
    if math.isnan(alone[1] + arms[best][1]):
        return (
            f"The best of the moves is `{best}`, {_with_error(arms[best])}, beside {going_on}; how "
            f"much of it is chance one seed does not tell.{said}"
        )
    if _is_above(arms[best], alone):
        return f"`{best}`, {_with_error(arms[best])}, beats {going_on}.{said}"
    return (
        f"No move beats {going_on} by more than three standard errors; the best of the moves is "
        f"`{best}`, {_with_error(arms[best])}.{said}"
    )


def _of_exactness(numbers: Numbers) -> str:
    """Say of each posterior whether the two sides agree, and what stops them."""

    def value(quantity: str, setting: str) -> float:
        return numbers[quantity, setting][0]

    sentences, apart = [], []
    for kind, posterior in numbers:
        if kind != "total_variation":
            continue
        share = value("share_rhat_below_1.01", f"{posterior}, both")
        medians = [value("median_rhat", f"{posterior}, {side}") for side in ("trained", "annealed")]
        p = value("p_value", posterior)
        found = "differ by more than chance" if p < 0.05 else "differ by no more than chance"
        sentences.append(
            f"{posterior.capitalize()}: the sides {found} (p {p:.2g}); R-hat of all chains is "
            f"below 1.01 for {share:.0%} of the predictions, and within each side its median is "
            f"{medians[0]:.2f} and {medians[1]:.2f}."
        )
        if min(medians) > _APART:
            apart.append((posterior, value("total_variation_by_chance", posterior)))
    if apart:
        names = _listed([name for name, _ in apart])
        sizes = _listed([f"{size:.2f}" for _, size in apart])
        sentences.append(
            f"What stops {names}: chains of one side stay in modes of their own, which alone makes "
            f"a total variation of {sizes} between chains dealt at random."
        )
    return " ".join(sentences)


def _is_above(number: Number, other: Number) -> bool:
    """By three standard errors, since some twenty such questions are asked; NaN is never."""
    return number[0] - other[0] > 3 * (number[1] ** 2 + other[1] ** 2) ** 0.5


def _listed(words: list[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def _with_error(number: Number) -> str:
    value, error = number
    return f"{value:.3f}" if math.isnan(error) else f"{value:.3f} ± {error:.3f}"


_SAID: Mapping[str, Callable[[Numbers], str]] = {
    "bias": _of_bias,
    "between_modes": _of_moves,
    "exactness": _of_exactness,
}
