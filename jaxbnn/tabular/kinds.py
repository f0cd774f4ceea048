"""The likelihoods by name, and which one a target of numbers asks for."""

import numpy as np

from jaxbnn.tabular.wording import Spelling, as_argument

LIKELIHOODS = (
    "auto",
    "gaussian",
    "heteroscedastic",
    "student-t",
    "laplace",
    "poisson",
    "negative-binomial",
    "categorical",
    "ordinal",
)
COUNTS = ("poisson", "negative-binomial")
CLASSES = ("categorical", "ordinal")
DENSITIES = ("gaussian", "heteroscedastic", "student-t", "laplace")
# What only a sampler of log densities knows: not dvi, gibbs.
NEWER = ("heteroscedastic", "student-t", "laplace", "poisson", "negative-binomial", "ordinal")
# Single precision tells whole numbers apart up to this one.
MOST_COUNT = 2**24
# Of values so many robust deviations from the median; more than a fifth may have a centre of their
# own, about which they spread by less than a sixth of the way to it.
_FAR, _LEAST_FAR, _MOST_FAR = 6.0, 0.005, 0.2


def likelihood_of_numbers(numbers: np.ndarray, spelled: Spelling = as_argument) -> tuple[str, str]:
    """Return the likelihood of numbers, and why.

    Examples
    --------
    >>> likelihood_of_numbers(np.array([0.5, 1.5, 2.0]))
    ('gaussian', 'gaussian, for it holds numbers')
    >>> likelihood_of_numbers(np.array([0.0, 3, 1, 0, 9, 0, 1, 3]))[0]
    'negative-binomial'
    """
    if _look_like_counts(numbers):
        return (
            "negative-binomial",
            f"negative-binomial, for it counts things, whole numbers from {numbers.min():.0f} on "
            f"({spelled('likelihood', 'gaussian')} takes them for measurements)",
        )
    far = _fraction_far(numbers)
    if far > _LEAST_FAR:
        return (
            "student-t",
            f"student-t, for {far:.1%} of its values are far from the rest; its degrees of freedom "
            "are learnt",
        )
    return "gaussian", "gaussian, for it holds numbers"


def notes_of_another(
    wanted: str, taken: str, sampler: str, spelled: Spelling = as_argument
) -> list[str]:
    """Return a sentence where the likelihood of a target's kind gave way to one a sampler knows.

    Examples
    --------
    >>> notes_of_another("gaussian", "gaussian", "dvi")
    []
    >>> notes_of_another("ordinal", "categorical", "dvi")[0][:37]
    'The likelihood is categorical, though'
    """
    if wanted == taken:
        return []
    return [
        f"The likelihood is {taken}, though the target's values ask for {wanted}, which {sampler} "
        f"does not know; {spelled('sampler', 'nuts')} does, and takes its time."
    ]


def are_counts(numbers: np.ndarray) -> bool:
    """Whether all are whole numbers from 0 to MOST_COUNT.

    Examples
    --------
    >>> are_counts(np.array([0.0, 3.0])), are_counts(np.array([0.5])), are_counts(np.array([1e9]))
    (True, False, False)
    """
    is_whole = (numbers >= 0) & (numbers == np.round(numbers))
    return bool((is_whole & (numbers <= MOST_COUNT)).all())


def _look_like_counts(numbers: np.ndarray) -> bool:
    """Whole numbers from 0 or 1 on that repeat, and vary at least about as Poisson's do."""
    if not are_counts(numbers) or numbers.min() > 1:
        return False
    repeats = len(np.unique(numbers)) <= max(len(numbers) / 2, 3)
    return bool(repeats and len(np.unique(numbers)) > 2 and numbers.var() >= 0.7 * numbers.mean())


def _fraction_far(numbers: np.ndarray) -> float:
    """Return the part that is far from the rest; 0 of two centres."""
    centre, spread = _centre_and_spread(numbers)
    is_far = np.abs(numbers - centre) > _FAR * spread
    if spread == 0 or not is_far.any():
        return 0.0
    other, around = _centre_and_spread(numbers[is_far])
    if np.mean(is_far) > _MOST_FAR and _FAR * around < abs(other - centre):
        return 0.0
    return float(np.mean(is_far))


def _centre_and_spread(numbers: np.ndarray) -> tuple[float, float]:
    centre = np.median(numbers)
    return float(centre), float(1.4826 * np.median(np.abs(numbers - centre)))
