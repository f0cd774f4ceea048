"""The networks, and the noise, that may be tried where none is asked for."""

from collections.abc import Sequence
from typing import NamedTuple

from jaxbnn.tabular.choice import MEASURED_STEPS, ends_in_time
from jaxbnn.tabular.settings import DEEP, LEARNING, LINEAR, Settings, choose_sampler

# With fewer rows those held out are too few to tell networks apart.
FEWEST_ROWS = 100
FOLDS = 4
# With fewer rows a column, numbers are tried by short chains, and with a scale for each column.
_ROWS_A_COLUMN = 4
_NOISES = ("gaussian", "heteroscedastic")


class ShortChains(NamedTuple):
    """Chains that are enough to try a network of classes, or of numbers with many columns."""

    chains: int = 2
    warmup: int = 150
    samples: int = 100


SHORT = ShortChains()


class Candidate(NamedTuple):
    """A network's hidden units by layer, the likelihood, and the sampler that it is for.

    With `relevance` the prior's scale is learnt for each column.
    """

    hidden: tuple[int, ...]
    likelihood: str
    sampler: str
    relevance: bool = False
    activation: str = "tanh"

    def __str__(self) -> str:
        """Return it as it is spoken of."""
        more = " with a scale for each column" if self.relevance else ""
        return f"{spoken(self.hidden, self.activation)}{more}, {self.likelihood}"

    def of(self, settings: Settings) -> Settings:
        """Return the settings with this network, which is final."""
        return settings._replace(
            hidden=self.hidden,
            likelihood=self.likelihood,
            relevance=self.relevance,
            activation=self.activation,
            tries_networks=False,
        )


def spoken(hidden: tuple[int, ...], activation: str = "tanh") -> str:
    """Return the words for a network with these hidden units.

    Examples
    --------
    >>> spoken((20, 10)), spoken(()), spoken((50,), "relu")
    ('a network of 20 and 10 hidden units', 'a linear model', 'a network of 50 ReLU units')
    >>> spoken((16, 16, 16))
    'a network of 3 layers of 16 hidden units'
    """
    units = " and ".join(map(str, hidden))
    if len(hidden) > 1 and len(set(hidden)) == 1:
        units = f"{len(hidden)} layers of {hidden[0]}"
    kind = "ReLU" if activation == "relu" else "hidden"
    return f"a network of {units} {kind} units" if hidden else "a linear model"


def candidates(
    settings: Settings,
    likelihood: str,
    sampler: str,
    num_data: int,
    num_features: int,
    *,
    is_class: bool,
) -> list[Candidate]:
    """Return what may be taken, simplest first: one, unless there is something to try.

    A model without hidden units, and one layer of them, of classes with a scale of the prior for
    each column, smooth ones and rectified ones; of numbers also four narrow layers, which bend more
    and are sampled from trained networks on. The noise of numbers may be the same for all rows, or
    the network's own output, or heavy-tailed where some values are far from the rest. Of numbers
    with few rows a column, one noise, and one layer with a scale for each column and without.

    Parameters
    ----------
    settings
        As asked for; `settings.likelihood` may be "auto".
    likelihood, sampler
        Those that are taken if nothing is tried.
    num_data, num_features
        Of the training rows.
    is_class
        Whether the targets are classes.
    """
    first = Candidate(settings.hidden, likelihood, sampler, settings.relevance, settings.activation)
    is_tried = settings.tries_networks and (is_class or likelihood in (*_NOISES, "student-t"))
    if not is_tried or num_data < FEWEST_ROWS or sampler not in LEARNING:
        return [first]
    if not is_class and (wide := _of_few_rows(settings, likelihood, num_data, num_features)):
        return wide
    noises: tuple[str, ...] = (likelihood,)
    if settings.likelihood == "auto" and not is_class:
        # Values far from the rest may be the function's, and not the noise's.
        noises = _NOISES if likelihood in _NOISES else (*_NOISES, likelihood)

    def candidate(hidden: tuple[int, ...], noise: str) -> Candidate:
        # What tells classes apart is often in a few of the columns.
        learns = is_class and hidden != LINEAR and settings.prior_scale is None
        relevance = settings.relevance or learns
        asked = settings._replace(hidden=hidden, relevance=relevance)
        found = choose_sampler(asked, noise, num_data, num_features, is_class=is_class)
        return Candidate(hidden, noise, found, relevance)

    found = [candidate(LINEAR, noises[0])] + [candidate(settings.hidden, n) for n in noises]
    if is_class:
        found.append(found[-1]._replace(activation="relu"))
    size = settings._replace(hidden=DEEP).size(num_features)
    is_sampled = settings.sampler == "ensemble" or (
        settings.sampler == "auto" and ends_in_time("ensemble", num_data, size)
    )
    if is_sampled and not is_class and not settings.relevance:
        noise = "heteroscedastic" if "heteroscedastic" in noises else likelihood
        found.append(Candidate(DEEP, noise, "ensemble"))
    return found


def are_of_few_rows(
    tried: Sequence[Candidate],
    settings: Settings,
    likelihood: str,
    num_data: int,
    num_features: int,
) -> bool:
    """Whether `candidates` gave these of numbers because there are few rows a column.

    All are by nuts then, whatever is best by the table of measured cases.
    """
    of_few_rows = _of_few_rows(settings, likelihood, num_data, num_features)
    return len(tried) > 1 and list(tried) == of_few_rows


def _of_few_rows(
    settings: Settings, likelihood: str, num_data: int, num_features: int
) -> list[Candidate]:
    """Return what is tried of numbers with few rows a column; nothing where that is not done."""
    if settings.sampler not in ("auto", "nuts") or settings.prior_scale is not None:
        return []
    line = Candidate(LINEAR, likelihood, "nuts", settings.relevance)
    layer = line._replace(hidden=settings.hidden)
    found = list(dict.fromkeys([line, layer, layer._replace(relevance=True)]))
    in_time = by_chains(found, settings, num_data, num_features, is_class=False)
    return found if in_time else []


def _is_wide(num_data: int, num_features: int) -> bool:
    """Whether there are few rows a column."""
    return num_data < _ROWS_A_COLUMN * num_features


def by_chains(
    tried: Sequence[Candidate],
    settings: Settings,
    num_data: int,
    num_features: int,
    *,
    is_class: bool,
) -> bool:
    """Whether candidates are tried by short chains: all by nuts, and in time.

    Those of classes, and of numbers with few rows a column. In time where these chains and those of
    the fit are expected to end within `jaxbnn.tabular.choice.MOST_SECONDS`.
    """
    if not (is_class or _is_wide(num_data, num_features)) or any(
        one.sampler != "nuts" for one in tried
    ):
        return False
    steps = (settings.warmup + settings.samples) * settings.chains_of("nuts")
    short = FOLDS * SHORT.chains * (SHORT.warmup + SHORT.samples)
    size = max(one.of(settings).size(num_features) for one in tried)
    times = (steps + len(tried) * short) / MEASURED_STEPS
    return ends_in_time("nuts", num_data, size, is_class=is_class, times=times)
