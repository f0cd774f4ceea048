"""The networks, and the noise, that may be tried where none is asked for."""

from typing import NamedTuple

from jaxbnn.tabular.choice import ends_in_time
from jaxbnn.tabular.settings import DEEP, LEARNING, Settings, choose_sampler

# With fewer rows those held out are too few to tell networks apart.
FEWEST_ROWS = 100


class Candidate(NamedTuple):
    """A network's hidden units by layer, the likelihood, and the sampler that it is for."""

    hidden: tuple[int, ...]
    likelihood: str
    sampler: str

    def __str__(self) -> str:
        """Return it as it is spoken of."""
        hidden = " and ".join(map(str, self.hidden))
        return f"{hidden} hidden units, {self.likelihood}"

    def of(self, settings: Settings) -> Settings:
        """Return the settings with this network, which is final."""
        return settings._replace(
            hidden=self.hidden, likelihood=self.likelihood, tries_networks=False
        )


def candidates(
    settings: Settings, likelihood: str, sampler: str, num_data: int, num_features: int
) -> list[Candidate]:
    """Return what may be taken, simplest first: one, unless there is something to try.

    Numbers alone are tried for: their noise may be the same for all rows or the network's own
    output, and the network one layer or four narrow ones, which bend more and are sampled from
    trained networks on.

    Parameters
    ----------
    settings
        As asked for; `settings.likelihood` may be "auto".
    likelihood, sampler
        Those that are taken if nothing is tried.
    num_data, num_features
        Of the training rows.
    """
    first = Candidate(settings.hidden, likelihood, sampler)
    is_tried = settings.tries_networks and likelihood in ("gaussian", "heteroscedastic")
    if not is_tried or num_data < FEWEST_ROWS or sampler not in LEARNING:
        return [first]
    noises = [likelihood] if settings.likelihood != "auto" else ["gaussian", "heteroscedastic"]
    found = [
        Candidate(
            settings.hidden,
            noise,
            choose_sampler(settings, noise, num_data, num_features, is_class=False),
        )
        for noise in noises
    ]
    size = settings._replace(hidden=DEEP).size(num_features)
    is_sampled = settings.sampler == "ensemble" or (
        settings.sampler == "auto" and ends_in_time("ensemble", num_data, size)
    )
    if is_sampled and not settings.relevance:
        found.append(Candidate(DEEP, noises[-1], "ensemble"))
    return found
