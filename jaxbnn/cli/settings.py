"""What the command was asked for, and what follows from that before anything is computed."""

from itertools import pairwise
from typing import NamedTuple

from jaxbnn.cli.kinds import NEWER

SAMPLERS = ("auto", "nuts", "gibbs", "pcn", "dvi")
FEWEST_DRAWS = 4
# Beyond this many data times parameters, NUTS takes longer than one waits for it.
_MOST_FOR_NUTS = 2_000_000


class Settings(NamedTuple):
    """What the command was asked for."""

    sampler: str
    hidden: tuple[int, ...]
    chains: int
    warmup: int
    samples: int
    noise: float
    seed: int
    likelihood: str = "auto"
    prior_scale: float | None = None
    relevance: bool = False

    def learns_precisions(self, sampler: str) -> bool:
        """Whether the precisions of the weights are learnt, or fixed."""
        return sampler == "nuts" and self.prior_scale is None

    def size(self, num_features: int) -> int:
        """Return the number of the network's parameters, for a target of one output."""
        widths = (num_features, *self.hidden, 1)
        return sum((before + 1) * after for before, after in pairwise(widths))


def choose_sampler(settings: Settings, num_data: int, num_features: int) -> str:
    """Return the sampler's name; "auto" is NUTS where it ends in minutes, else DVI."""
    if settings.sampler != "auto":
        return settings.sampler
    return "nuts" if settings.size(num_features) * num_data <= _MOST_FOR_NUTS else "dvi"


def describe(sampler: str, settings: Settings, num_data: int) -> str:
    """Return a line that says what is about to take long."""
    if sampler == "dvi":
        return f"fitting {num_data:,} rows by dvi, {10 * settings.warmup:,} updates ..."
    return (
        f"sampling {num_data:,} rows by {sampler}: {settings.chains} chains, "
        f"{settings.warmup} + {settings.samples} draws each ..."
    )


def check_sampler(sampler: str, likelihood: str, *, relevance: bool = False) -> None:
    """Raise ValueError where a sampler does not take a likelihood, or scales to learn."""
    if relevance and sampler != "nuts":
        raise ValueError(
            f"--relevance learns a scale for each column by nuts, but the sampler is {sampler}; "
            "take --sampler nuts, or leave --relevance out."
        )
    if sampler == "gibbs" and likelihood != "gaussian":
        raise ValueError(
            "gibbs predicts numbers only, with Gaussian noise, but the likelihood is "
            f"{likelihood}; take --sampler nuts or dvi."
        )
    if sampler == "dvi" and likelihood in NEWER:
        raise ValueError(
            f"dvi does not know the likelihood {likelihood}; take --sampler nuts, or --likelihood "
            f"{'categorical' if likelihood == 'ordinal' else 'gaussian'}."
        )


def prior_note(settings: Settings, sampler: str) -> str:
    """Return a sentence about the prior of the weights."""
    if settings.learns_precisions(sampler):
        more = ", and in the first layer one for each column" if settings.relevance else ""
        return (
            "The weights' prior scales were learnt, one for each layer's weights and one for its "
            f"biases{more} (--prior-scale fixes them)."
        )
    scale = 1.0 if settings.prior_scale is None else settings.prior_scale
    more = "" if settings.prior_scale is not None else f", which {sampler} does not learn"
    return f"The weights' prior scales were fixed at {scale:g} times the usual ones{more}."
