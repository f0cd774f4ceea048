"""What was asked for, and what follows from that before anything is computed."""

import math
from itertools import pairwise
from typing import NamedTuple

from jaxbnn.tabular.choice import best_sampler
from jaxbnn.tabular.kinds import NEWER
from jaxbnn.tabular.noise import LEAST_NOISE
from jaxbnn.tabular.wording import Spelling, as_argument

SAMPLERS = ("auto", "nuts", "ensemble", "gibbs", "pcn", "dvi")
# Samplers by gradients of all that is learnt, scales of the prior among it.
LEARNING = ("nuts", "ensemble")
FEWEST_DRAWS = 4
# Hidden units by layer where none are asked for: the second, unless a trial says otherwise.
LINEAR, ONE_LAYER, DEEP = (), (50,), (16, 16, 16, 16)
# Chains where none are asked for.
_CHAINS, _ENSEMBLE = 4, 10
# Of gibbs, in standard deviations of the target, where none is asked for.
NOISE = 0.3
# Times the usual prior; beyond, weights leave single precision.
_LEAST_SCALE, _LARGEST_SCALE = 1e-6, 1e6
# What "auto" chooses from.
_CANDIDATES = ("nuts", "ensemble", "dvi")


class Settings(NamedTuple):
    """What a fit was asked for.

    With `tries_networks` another network than `hidden`, or another noise, may be taken. Without
    `chains` there are as many as `chains_of` says. Noise that the network gives is at least
    `least_noise` standard deviations of the target. `weight_scales` are those of the prior in the
    first layer and after the last hidden one, those of `usual_scales` if None. Where these are
    learnt, `is_centred` is whether a position holds the weights themselves; if None, see `centred`.
    """

    sampler: str
    hidden: tuple[int, ...]
    chains: int | None
    warmup: int
    samples: int
    noise: float
    seed: int
    likelihood: str = "auto"
    prior_scale: float | None = None
    relevance: bool = False
    tries_networks: bool = False
    least_noise: float = LEAST_NOISE
    activation: str = "tanh"
    weight_scales: tuple[float, float] | None = None
    is_centred: bool | None = None

    def learns_precisions(self, sampler: str) -> bool:
        """Whether the precisions of the weights are learnt, or fixed."""
        return sampler in LEARNING and self.prior_scale is None

    def chains_of(self, sampler: str) -> int:
        """Return the number of chains: more where each stays near the network it began from."""
        if self.chains is not None:
            return self.chains
        return _ENSEMBLE if sampler == "ensemble" else _CHAINS

    def activation_of(self, sampler: str) -> str:
        """Return the activation: ReLU by gibbs and dvi, whose conditionals and moments it has."""
        return "relu" if sampler in ("gibbs", "dvi") else self.activation

    def scales(self, *, is_class: bool) -> tuple[float, float]:
        """Return the prior's scales: `weight_scales`, or those of `usual_scales`."""
        return self.weight_scales or usual_scales(self.hidden, is_class=is_class)

    def centred(self, *, is_class: bool) -> bool:
        """Whether a position holds the weights themselves: those of a linear model of numbers.

        The rows tell well of these, so that standardised ones, their quotients by learnt scales,
        would lie on a narrow ridge. Those of networks, and of classes, are often told little.
        """
        usual = not is_class and not self.hidden
        return usual if self.is_centred is None else self.is_centred

    def size(self, num_features: int) -> int:
        """Return the number of the network's parameters, for a target of one output."""
        widths = (num_features, *self.hidden, 1)
        return sum((before + 1) * after for before, after in pairwise(widths))


def usual_scales(hidden: tuple[int, ...], *, is_class: bool) -> tuple[float, float]:
    """Return the prior's scale of the first layer's weights, and of the last one's.

    Numbers that are standardised need little of the last layer, and a first one whose units bend
    within the range of the data; of classes, whose outputs are log odds, the last layer has to be
    larger, and a smoother function tells more. Without hidden layers there is one layer: only
    large weights tell well separated classes apart with confidence. Those of classes are compared
    by `python -m tests.class_priors`.
    """
    if is_class:
        return (1.0, 3.0) if hidden else (6.0, 6.0)
    return 2.0, 1.0


def choose_sampler(
    settings: Settings, likelihood: str, num_data: int, num_features: int, *, is_class: bool
) -> str:
    """Return the sampler's name; "auto" is the best of those that take what is asked for.

    `likelihood` is the one asked for, or the one that suits the target: rather than that it is
    replaced, a sampler is taken that knows it, if one ends in time.
    """
    if settings.sampler != "auto":
        return settings.sampler
    # A linear model has one mode, which NUTS finds from anywhere.
    candidates = [s for s in _CANDIDATES if s != "ensemble" or settings.hidden]
    candidates = [s for s in candidates if s in LEARNING or not settings.relevance]
    candidates = [s for s in candidates if s != "dvi" or settings.likelihood not in NEWER]
    return best_sampler(
        candidates,
        num_data,
        settings.size(num_features),
        is_class=is_class,
        preferred=LEARNING if likelihood in NEWER else (),
    )


def describe(sampler: str, settings: Settings, num_data: int) -> str:
    """Return a line that says what is about to take long."""
    if sampler == "dvi":
        return f"fitting {num_data:,} rows by dvi, {10 * settings.warmup:,} updates ..."
    if sampler == "ensemble":
        return (
            f"sampling {num_data:,} rows by ensemble: {settings.chains_of(sampler)} networks are "
            f"trained, and chains go on from each, {settings.samples} draws each ..."
        )
    return (
        f"sampling {num_data:,} rows by {sampler}: {settings.chains_of(sampler)} chains, "
        f"{settings.warmup} + {settings.samples} draws each ..."
    )


def check_settings(settings: Settings, spelled: Spelling = as_argument) -> None:
    """Raise ValueError of the first number that is out of range."""
    for name in ("chains", "samples", "warmup"):
        least, value = FEWEST_DRAWS if name == "samples" else 1, getattr(settings, name)
        if value is not None and value < least:
            raise ValueError(f"{spelled(name)} must be at least {least}, but is {value}.")
    if min(settings.hidden, default=1) < 1:
        raise ValueError(
            f"{spelled('hidden')} must be numbers of units, but holds {min(settings.hidden)}."
        )
    scale = settings.prior_scale
    for name, value in (("noise", settings.noise), ("prior_scale", scale)):
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"{spelled(name)} must be positive and finite, but is {value}.")
    if scale is not None and not _LEAST_SCALE <= scale <= _LARGEST_SCALE:
        raise ValueError(
            f"{spelled('prior_scale')} is so many times the usual, from {_LEAST_SCALE:g} to "
            f"{_LARGEST_SCALE:g}, but is {scale:g}; give one in between."
        )
    if scale is not None and settings.relevance:
        raise ValueError(
            f"{spelled('relevance')} learns what {spelled('prior_scale')} fixes; leave one of "
            "them out."
        )


def asked_noise(sampler: str, noise: float | None, spelled: Spelling = as_argument) -> float:
    """Return the noise that was asked for, or the usual one; other samplers than gibbs learn it.

    Raises
    ------
    ValueError
        If it was asked for with another sampler.
    """
    if noise is None:
        return NOISE
    if sampler != "gibbs":
        raise ValueError(
            f"{spelled('noise')} is of gibbs alone, but the sampler is {sampler}; take "
            f"{spelled('sampler', 'gibbs')}, or leave {spelled('noise')} out."
        )
    return float(noise)


def check_sampler(
    sampler: str, likelihood: str, *, relevance: bool = False, spelled: Spelling = as_argument
) -> None:
    """Raise ValueError where a sampler does not take a likelihood, or scales to learn."""
    if relevance and sampler not in LEARNING:
        raise ValueError(
            f"{spelled('relevance')} learns a scale for each column by nuts or ensemble, but the "
            f"sampler is {sampler}; take {spelled('sampler', 'nuts')}, or leave "
            f"{spelled('relevance')} out."
        )
    if sampler == "gibbs" and likelihood != "gaussian":
        or_dvi = "" if likelihood in NEWER else " or dvi"
        raise ValueError(
            "gibbs predicts numbers only, with Gaussian noise, but the likelihood is "
            f"{likelihood}; take {spelled('sampler', 'nuts')}{or_dvi}."
        )
    if sampler == "dvi" and likelihood in NEWER:
        known = "categorical" if likelihood == "ordinal" else "gaussian"
        raise ValueError(
            f"dvi does not know the likelihood {likelihood}; take {spelled('sampler', 'nuts')}, or "
            f"{spelled('likelihood', known)}."
        )


def prior_note(settings: Settings, sampler: str, spelled: Spelling = as_argument) -> str:
    """Return a sentence about the prior of the weights."""
    if settings.learns_precisions(sampler):
        more = ", and in the first layer one for each column" if settings.relevance else ""
        return (
            "The weights' prior scales were learnt, one for each layer's weights and one for its "
            f"biases{more} ({spelled('prior_scale')} fixes them)."
        )
    scale = 1.0 if settings.prior_scale is None else settings.prior_scale
    more = "" if settings.prior_scale is not None else f", which {sampler} does not learn"
    return f"The weights' prior scales were fixed at {scale:g} times the usual ones{more}."
