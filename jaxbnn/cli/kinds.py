"""What kind of thing a target is, and which likelihood that asks for."""

from typing import NamedTuple

import numpy as np

from jaxbnn.cli.fields import as_numbers, how_to_mend
from jaxbnn.cli.hints import odd_number, slip_among_numbers
from jaxbnn.tabular.kinds import CLASSES, COUNTS, MOST_COUNT, are_counts, likelihood_of_numbers
from jaxbnn.tabular.scales import known_scale
from jaxbnn.tabular.wording import as_option


class Kind(NamedTuple):
    """The likelihood, the order of the classes if they have one, and why."""

    likelihood: str
    order: list[str] | None
    note: str


def choose_likelihood(
    name: str,
    values: list[str],
    asked: str,
    task: str,
    order: list[str] | None,
    *,
    newer: bool = True,
    learnt_from: list[str] | None = None,
) -> Kind:
    """Return the likelihood of a target's values: the one asked for, or that of their kind.

    Without `newer` only Gaussian and categorical ones are chosen, which every sampler knows. Among
    likelihoods of numbers the choice is made by the values `learnt_from`, the training rows', where
    they are given: held-out rows have no part in it.

    Raises
    ------
    ValueError
        If values, the likelihood and the task asked for do not fit each other; if a few fields
        among numbers hold something else.

    Examples
    --------
    >>> choose_likelihood("size", ["small", "large", "medium"], "auto", "auto", None).order
    ['small', 'medium', 'large']
    >>> visits = ["0", "3", "1", "0", "9", "0", "1", "3"]
    >>> choose_likelihood("visits", visits, "auto", "auto", None).likelihood
    'negative-binomial'
    """
    is_class = asked in CLASSES
    if asked != "auto" and task != "auto" and is_class != (task == "classification"):
        raise ValueError(f"--likelihood {asked} does not fit --task {task}; leave one of them out.")
    if order is not None and asked not in ("auto", "ordinal"):
        raise ValueError(f"--order gives ordered classes, but --likelihood is {asked}.")
    if order is not None and task == "regression":
        raise ValueError("--order gives ordered classes, but --task is regression; leave one out.")
    numbers = as_numbers(values)
    distinct = sorted(set(values))
    if asked == "ordinal" or order is not None:
        return Kind("ordinal", _ordered(name, distinct, order), f"{name}: classes in order.")
    if asked in COUNTS:
        _check_counts(name, numbers, asked)
    if asked != "auto":
        return Kind(asked, None, f"Likelihood of {name}: {asked}, as asked for.")
    if task == "classification" or (task == "auto" and (numbers is None or len(distinct) == 2)):
        slip = slip_among_numbers(values) if task == "auto" else None
        if slip is not None:
            raise ValueError(
                f"the target {name!r} holds {slip!r} among its numbers; {how_to_mend(slip)}, leave "
                "the field empty if its value is not known, or give --task classification if all "
                "of them name classes."
            )
        known = known_scale(distinct) if newer else None
        if known is not None:
            words = " < ".join(known)
            return Kind(
                "ordinal",
                known,
                f"Likelihood of {name}: ordinal, for its words have an order, {words} "
                "(--likelihood categorical does without).",
            )
        odd = odd_number(values)
        note = f"Likelihood of {name}: categorical, for it has classes"
        return Kind("categorical", None, f"{note}: {odd}." if odd else f"{note}.")
    if numbers is None or not newer:  # the first is refused where the target is encoded
        return Kind("gaussian", None, f"Likelihood of {name}: gaussian.")
    learnt = numbers if learnt_from is None else as_numbers(learnt_from)
    assert learnt is not None  # some of those that are numbers
    likelihood, why = likelihood_of_numbers(learnt, as_option)
    if likelihood in COUNTS and not are_counts(numbers):
        likelihood, why = "gaussian", "gaussian, for not all of its values are counts"
    return Kind(likelihood, None, f"Likelihood of {name}: {why}.")


def _check_counts(name: str, numbers: np.ndarray | None, asked: str) -> None:
    if numbers is None or not are_counts(numbers):
        raise ValueError(
            f"--likelihood {asked} takes counts, whole numbers from 0 to {MOST_COUNT:,}, but "
            f"{name!r} holds others; leave it out."
        )


def _ordered(name: str, distinct: list[str], order: list[str] | None) -> list[str]:
    if order is not None:
        if set(order) != set(distinct) or len(order) != len(distinct):
            raise ValueError(
                f"--order must name each value of {name!r} once, {', '.join(distinct[:20])}, from "
                f"low to high, but names {', '.join(order)}."
            )
        return list(order)
    numbers = as_numbers(distinct)
    if numbers is not None:
        return [distinct[i] for i in np.argsort(numbers, kind="stable")]
    known = known_scale(distinct)
    if known is None:
        raise ValueError(
            f"the order of {', '.join(distinct[:20])} is not known; give the values of {name!r} "
            "from low to high by --order."
        )
    return known
