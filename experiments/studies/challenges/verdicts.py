"""Which diagnostic warns of a run, and which lets it pass."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from experiments.studies.challenges.agreement import GROUPS, Found
from jaxbnn import diagnostics

RHAT_THRESHOLD, ESS_PER_CHAIN, LEAST_P_VALUE = 1.01, 100, 1e-3
PAPER_THRESHOLD = 1.05  # of section 6


def verdicts_of(
    found: Found,
    positions: PyTree,
    acceptance: np.ndarray | None,
    log_density_fn: Callable[[PyTree], Any],
) -> dict[str, tuple[float, bool]]:
    """Return for each diagnostic its number and whether it warns.

    R-hat of the paper at its threshold, 1.05; the others at 1.01; ESS at 100 a chain;
    p-values at 0.001.
    """
    raw, log_density = found["raw parameters"], found["log density"]
    chains = raw.shape[0]
    invariants = [found[group] for group in GROUPS if group != "raw parameters"]
    verdicts: dict[str, tuple[float, bool]] = {}

    def judge(name: str, value: float, warns: bool) -> None:
        verdicts[name] = (float(value), bool(warns) or bool(np.isnan(value)))

    for name, rhat, values in (
        ("split R-hat, raw", diagnostics.split_rhat, raw),
        ("folded-split R-hat, raw", diagnostics.folded_split_rhat, raw),
        ("split R-hat, log density", diagnostics.split_rhat, log_density),
    ):
        value = np.max(np.asarray(rhat(values)))
        judge(name, value, value > PAPER_THRESHOLD)
    value = np.max(np.asarray(diagnostics.rank_rhat(raw)))
    judge("rank R-hat, raw", value, value > RHAT_THRESHOLD)
    value = np.max(np.asarray(diagnostics.rank_rhat(log_density)))
    judge("rank R-hat, log density", value, value > RHAT_THRESHOLD)
    value = max(float(np.max(diagnostics.rank_rhat(group))) for group in invariants)
    judge("rank R-hat, invariants", value, value > RHAT_THRESHOLD)
    geyer = np.asarray(diagnostics.ess_geyer(raw)).mean(axis=0).min()
    judge("ESS of the paper, raw, a chain", geyer, geyer < ESS_PER_CHAIN)
    value = np.min(np.asarray(diagnostics.ess_bulk(raw)))
    judge("bulk ESS, raw", value, value < ESS_PER_CHAIN * chains)
    value = min(float(np.min(diagnostics.ess_bulk(group))) for group in invariants)
    judge("bulk ESS, invariants", value, value < ESS_PER_CHAIN * chains)
    try:
        value = float(diagnostics.covariance_agreement(raw).p_value)
    except ValueError:  # too few effective draws to judge: a warning as well
        value = np.nan
    judge("covariance between chains, p-value", value, value < LEAST_P_VALUE)
    try:
        value = _stein_p_value(positions, raw.shape[1], log_density_fn)
    except ValueError:  # blocks as short as the memory
        value = np.nan
    judge("kernel Stein discrepancy, p-value", value, value < LEAST_P_VALUE)
    sentences = diagnostics.summary(
        raw, log_density=log_density[..., 0], acceptance_rate=acceptance
    ).warnings
    # R-hat and ESS have rows of their own.
    others = [s for s in sentences if not s.startswith(("R-hat", "The effective"))]
    judge("further sentences of summary", len(others), bool(others))
    return verdicts


def _stein_p_value(positions: PyTree, length: int, log_density_fn: Callable) -> float:
    every = max(1, length // 2000)
    some = jax.tree.map(lambda leaf: leaf[:, ::every], positions)
    scores = diagnostics.evaluate(jax.grad(log_density_fn), some)

    def flat(tree):
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
        return np.concatenate([leaf.reshape(*leaf.shape[:2], -1) for leaf in leaves], axis=-1)

    found = diagnostics.kernel_stein_discrepancy(flat(some), flat(scores), max_draws=2048)
    return float(found.p_value)
