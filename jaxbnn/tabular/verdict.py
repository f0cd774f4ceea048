"""Whether to believe a posterior's draws, in plain words."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import PyTree

from jaxbnn.diagnostics import summary
from jaxbnn.tabular.fitted import Fitted
from jaxbnn.tabular.posteriors import predicted
from jaxbnn.tabular.wording import Spelling, as_argument
from jaxbnn.targets import Posterior

_PROBES = 10
_RHAT, _ESS = 1.05, 100
# From here on chains of an ensemble stay apart: on airfoil with four times the steps, too (median
# R-hat 1.48 and 1.45, docs/ensembles_comparison.md).
_APART = 1.2
# A probability whose draws have a smaller standard deviation is the same in all chains.
_SAME_PROBABILITY = 1e-3


class Verdict(NamedTuple):
    """Sentences for people, the numbers behind them, and whether nothing in them warns.

    `is_too_sure` is whether rows it is wrong on cost more than all the others gain, `is_stuck`
    whether a chain never moved or met NaN, `is_apart` whether the chains are an ensemble's that
    longer ones would not bring together.
    """

    sentences: list[str]
    numbers: dict[str, Any]
    is_good: bool = True
    is_too_sure: bool = False
    is_stuck: bool = False
    is_apart: bool = False

    def __str__(self) -> str:
        """Return the sentences."""
        return " ".join(self.sentences)


def _judged(posterior: Posterior, x: np.ndarray) -> Callable[[PyTree], PyTree]:
    """Return what chains are to agree about: predictions at x, and the noise about them."""
    of_position = predicted(posterior, x)
    # Probabilities of classes hold all there is.
    is_class = np.issubdtype(posterior.y.dtype, np.integer)
    learned = () if is_class else posterior.likelihood.learned

    def judged(position: PyTree) -> PyTree:
        return of_position(position), {name: position[name] for name in learned}

    return judged


def judge_chains(
    sampler: str,
    fitted: Fitted,
    posterior: Posterior,
    x: np.ndarray,
    spelled: Spelling = as_argument,
) -> Verdict:
    """Judge the chains by what they predict: weights have copies by symmetry, predictions none.

    With them, what the likelihood has learnt of the noise. A prediction that is the same in all
    draws, as the probability of a class far from all others is, counts as agreed on; if all are,
    there is no R-hat.
    """
    if fitted.draws is None:
        return Verdict(
            [
                f"{sampler} fits one Gaussian to the posterior of the weights: an approximation, "
                "whose error no diagnostic of chains can show. Its uncertainty is more often too "
                "small than too large; believe it as far as its scores on held-out rows go."
            ],
            {"sampler": sampler},
        )
    rows = np.unique(np.linspace(0, len(x) - 1, _PROBES).astype(int))
    probes = np.asarray(x[rows])
    table = summary(fitted.positions, function=_judged(posterior, probes))
    is_class = np.issubdtype(posterior.y.dtype, np.integer)
    moving = table.sd > (_SAME_PROBABILITY if is_class else 0)
    numbers: dict[str, Any] = {"sampler": sampler, "chains": table.num_chains}
    rhat, ess, facts = 1.0, np.inf, "all draws predict the same"
    if moving.any():
        rhat, ess = float(np.max(table.rhat[moving])), float(np.min(table.ess_bulk[moving]))
        numbers |= {"ess_bulk": ess} if np.isnan(rhat) else {"rhat": rhat, "ess_bulk": ess}
        facts = f"R-hat of the predictions is at most {rhat:.3f}, with {ess:.0f} effective draws"
    is_apart = sampler == "ensemble" and rhat > _APART
    is_stuck = bool(table.nan_chains or table.frozen_chains)
    if is_stuck:
        stuck = sorted({*table.nan_chains, *table.frozen_chains})
        sentence = (
            f"Do not believe it: of the chains, {', '.join(map(str, stuck))} never moved or "
            f"met NaN; take another {spelled('seed')} or {spelled('sampler')}."
        )
    elif table.num_chains < 2:
        effective = f" ({ess:.0f} effective draws)" if moving.any() else ""
        sentence = (
            f"One chain cannot tell whether it has settled{effective}; take {spelled('chains', 4)}."
        )
    elif rhat <= _RHAT and ess >= _ESS:
        sentence = f"Believe the chains: they agree about what they predict ({facts})."
    else:
        is_nuts = sampler == "nuts"
        other = f", or take {spelled('sampler', 'nuts')}"
        if is_nuts:
            network: Any = posterior.network
            is_linear = len(network.layers) == 1
            other = "" if is_linear else f", or take fewer {spelled('hidden')} units"
        longer = f"raise {spelled('warmup')} and {spelled('samples')}"
        if is_apart:
            longer = (
                "each stays near the network that it began from, which longer chains rarely cure, "
                "so go by how it predicts rows that it has not seen"
            )
            other = f", or take fewer {spelled('hidden')} units"
        sentence = (
            f"Do not believe it yet: the chains have not settled ({facts}, where {_RHAT} and "
            f"{_ESS} are wanted); {longer}{other}."
        )
    is_good = sentence.startswith("Believe")
    return Verdict([sentence], numbers, is_good, is_stuck=is_stuck, is_apart=is_apart)
