"""Whether to believe a posterior's draws, in plain words."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import PyTree

from jaxbnn.diagnostics import evaluate, summary
from jaxbnn.tabular.fitted import Fitted
from jaxbnn.tabular.posteriors import OF_COUNTS, predicted
from jaxbnn.tabular.settings import LEARNING
from jaxbnn.tabular.wording import Spelling, as_argument
from jaxbnn.targets import NegativeBinomial, Posterior

_PROBES = 10
# Rows among which those are sought that the chains disagree most about.
_LOOKED_THROUGH = 200
_RHAT, _ESS = 1.05, 100
# The share of the largest draw in a sum over draws, beside that which it may have where there are
# few, from which on the sum rests on a few draws.
_MUCH_OF_ONE, _MUCH_OF_FEW = 0.05, 5
# The share of kept draws whose trajectory diverged up to which chains are believed. Of a linear
# model of iris 2 % diverge at the usual acceptance and none at .99, with the same predictions.
_MOST_DIVERGENT = 0.05
# From here on chains of an ensemble stay apart: on airfoil with four times the steps, too (median
# R-hat 1.48 and 1.45, docs/ensembles_comparison.md).
_APART = 1.2
# A probability whose draws have a smaller standard deviation is the same in all chains.
_SAME_PROBABILITY = 1e-3


class Verdict(NamedTuple):
    """Sentences for people, the numbers behind them, and whether nothing in them warns.

    `is_too_sure` is whether rows it is wrong on cost more than all the others gain, `is_stuck`
    whether a chain, or a part of it, never moved or met NaN, `is_apart` whether the chains are an
    ensemble's that longer ones would not bring together, `is_too_wide` whether nothing is wrong but
    intervals wider than need be.
    """

    sentences: list[str]
    numbers: dict[str, Any]
    is_good: bool = True
    is_too_sure: bool = False
    is_stuck: bool = False
    is_apart: bool = False
    is_too_wide: bool = False

    def __str__(self) -> str:
        """Return the sentences."""
        return " ".join(self.sentences)


def _probes(fitted: Fitted, posterior: Posterior, x: np.ndarray) -> np.ndarray:
    """Return rows of x, 20 at most: some from all over, and where the chains differ most.

    Chains that agree about all common rows may not do so about rare ones. Even of settled chains
    the largest difference grows with the number of rows looked through: at the worst of two hundred
    unrelated rows, four chains worth 400 draws have an R-hat of 1.02 and 250 effective draws, well
    within the verdict's limits, and four worth 200 draws have 1.05 and 90, about at them.
    """

    def spread(number: int) -> np.ndarray:
        return np.unique(np.linspace(0, len(x) - 1, number).astype(int))

    looked = spread(_LOOKED_THROUGH)
    values = np.asarray(evaluate(predicted(posterior, np.asarray(x[looked])), fitted.positions))
    of_rows = values.reshape(*values.shape[:2], len(looked), -1)
    means = np.stack([chain.mean(axis=0, dtype=float) for chain in of_rows])
    within = np.stack([chain.var(axis=0, dtype=float) for chain in of_rows]).mean(axis=0)
    between = means.var(axis=0)
    moving = np.sqrt(between + within) > _least_sd(posterior)
    ratio = np.zeros(moving.shape)
    with np.errstate(divide="ignore"):
        np.divide(between, within, out=ratio, where=moving)
    worst = np.argsort(ratio.max(axis=-1))[-_PROBES:]
    return np.asarray(x[np.union1d(spread(_PROBES), looked[worst])])


def _least_sd(posterior: Posterior) -> float:
    """Return the standard deviation up to which predictions are the same in all draws."""
    return _SAME_PROBABILITY if _is_of_classes(posterior) else 0.0


def _is_of_classes(posterior: Posterior) -> bool:
    return np.issubdtype(posterior.y.dtype, np.integer)


def _learns_noise(posterior: Posterior) -> bool:
    """Whether there is noise to be learnt beside the predictions; probabilities hold it all."""
    return not _is_of_classes(posterior) and bool(posterior.likelihood.learned)


def _judged(posterior: Posterior, x: np.ndarray) -> Callable[[PyTree], PyTree]:
    """Return what chains are to agree about: predictions at x, and the noise about them."""
    of_position = predicted(posterior, x)
    learned = posterior.likelihood.learned if _learns_noise(posterior) else ()

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

    Of rows from all over and of those that they disagree most about, among two hundred; with them,
    what the likelihood has learnt of the noise. A prediction that is the same in all draws, as the
    probability of a class far from all others is, counts as agreed on; if all are, there is no
    R-hat. Chains that agree are not believed where too many of their trajectories diverged: what
    all of them keep out of, none of them shows.
    """
    if fitted.draws is None and fitted.is_unfinished:
        return Verdict(
            [
                f"Do not believe it yet: what {sampler} maximises was still rising when its "
                f"updates ended, or they were too few to tell; raise {spelled('warmup')}."
            ],
            {"sampler": sampler},
            is_good=False,
        )
    if fitted.draws is None:
        return Verdict(
            [
                f"{sampler} fits one Gaussian to the posterior of the weights: an approximation, "
                "whose error no diagnostic of chains can show. Its uncertainty is more often too "
                "small than too large; believe it as far as its scores on held-out rows go."
            ],
            {"sampler": sampler},
        )
    probes = _probes(fitted, posterior, x)
    table = summary(fitted.positions, function=_judged(posterior, probes))
    moving = table.sd > _least_sd(posterior)
    numbers: dict[str, Any] = {"sampler": sampler, "chains": table.num_chains}
    rhat, ess, facts = 1.0, np.inf, "all draws predict the same"
    if moving.any():
        rhat, ess = float(np.max(table.rhat[moving])), float(np.min(table.ess_bulk[moving]))
        numbers |= {"ess_bulk": ess} if np.isnan(rhat) else {"rhat": rhat, "ess_bulk": ess}
        noise = " and of the noise" if _learns_noise(posterior) else ""
        judged = f"R-hat of the predictions{noise}"
        facts = f"{judged} is at most {rhat:.3f}, with {ess:.0f} effective draws"
    is_apart = sampler == "ensemble" and rhat > _APART
    # Beside weights that are stuck, what the prior and the noise have learnt may move.
    partly = {chain for chain, _ in table.frozen_parts}
    stuck = sorted({*table.nan_chains, *table.frozen_chains, *partly})
    is_stuck = bool(stuck)
    divergent = _divergent_share(fitted)
    if is_stuck:
        sentence = (
            f"Do not believe it: of the chains, {', '.join(map(str, stuck))} never moved, wholly "
            f"or in part, or met NaN; take another {spelled('seed')} or {spelled('sampler')}."
        )
    elif table.num_chains < 2:
        effective = f" ({ess:.0f} effective draws)" if moving.any() else ""
        sentence = (
            f"One chain cannot tell whether it has settled{effective}; take {spelled('chains', 4)}."
        )
    elif rhat <= _RHAT and ess >= _ESS and divergent > _MOST_DIVERGENT:
        numbers["divergent"] = divergent
        sentence = _of_divergence(sampler, fitted, divergent, facts, spelled)
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
    sentences = [sentence]
    if _rests_on_few_draws(fitted, posterior, probes):
        sentences.append(
            "The mean or the standard deviation of some predicted counts rests on a few draws, and "
            "may be infinite in the posterior: go by intervals and quantiles."
        )
    return Verdict(sentences, numbers, is_good, is_stuck=is_stuck, is_apart=is_apart)


def _rests_on_few_draws(fitted: Fitted, posterior: Posterior, x: np.ndarray) -> bool:
    """Return whether one draw makes up much of what the variance of a predicted count comes from.

    Logarithms of means have tails for which, of few rows with many zeros or far from all rows, the
    mean count of a negative binomial is infinite; ranks, and so R-hat, do not see that.
    """
    if not isinstance(posterior.likelihood, OF_COUNTS):
        return False
    means = np.asarray(evaluate(predicted(posterior, x), fitted.positions), float)
    means = means.reshape(*means.shape[:2], len(x))
    total = means**2
    if isinstance(posterior.likelihood, NegativeBinomial):
        log_concentration = np.asarray(fitted.positions["log_concentration"], float)
        total *= 1 + np.exp(-log_concentration)[..., None]
    total = (total + means).reshape(-1, len(x))
    with np.errstate(invalid="ignore"):
        share = total.max(axis=0) / total.sum(axis=0)
    return bool((share > _MUCH_OF_ONE + _MUCH_OF_FEW / len(total)).any())


def _divergent_share(fitted: Fitted) -> float:
    """Return the share of kept draws whose step diverged; 0 where the sampler does not tell."""
    told = getattr(getattr(fitted.draws, "infos", None), "is_divergent", None)
    return 0.0 if told is None or not np.size(told) else float(np.mean(told))


def _of_divergence(
    sampler: str, fitted: Fitted, share: float, facts: str, spelled: Spelling
) -> str:
    """Say that chains agree, but that too many of their steps diverged, and what to do."""
    steps = "trajectories" if sampler in LEARNING else "steps"
    # Where scales of the prior are learnt, as precisions, steps are too long where they are small.
    cures = [f"give {spelled('prior_scale')}, which is learnt"]
    cures = cures if "log_precision" in fitted.positions else []
    # Gibbs has no step size that a warm-up could tune.
    cures += [] if sampler == "gibbs" else [f"raise {spelled('warmup')} for smaller steps"]
    cures += [f"take another {spelled('sampler')}"]
    told = ", ".join(cures[:-1]) + (", or " if len(cures) > 1 else "") + cures[-1]
    return (
        f"Do not believe it yet: the chains agree about what they predict ({facts}), but of their "
        f"kept {steps} {share:.2%} diverged, where {_MOST_DIVERGENT:.0%} is borne, so that all of "
        f"them may keep out of the same part of the posterior; {told}."
    )
