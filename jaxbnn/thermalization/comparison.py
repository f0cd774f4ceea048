"""All criteria at once, from what was recorded of several chains."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import ArrayLike

from jaxbnn.diagnostics import (
    BlockwiseRhat,
    blockwise_rhat,
    merge_time,
    score_time,
    stationarity_time,
)
from jaxbnn.numerics import check_real
from jaxbnn.numerics.arguments import a_or_an, short
from jaxbnn.numerics.checks import check_outside

Pair = tuple[str, str]


class Estimate(NamedTuple):
    """One criterion's word on one chain or pair of chains, as `compare` lists them.

    Attributes
    ----------
    criterion
        "teacher-student", "stationarity", "score" or "R-hat".
    chains
        Names of the chains it looked at.
    lower_bound
        Of the thermalization time, in steps; the length of the run if it is not passed.
    is_passed
        Whether the criterion sees nothing wrong from `lower_bound` on.
    level, level_error
        Mean of the judged records: of the chain's log mean squared error or score, of R-hat; for
        "teacher-student" that of the informed chain.
    """

    criterion: str
    chains: tuple[str, ...]
    lower_bound: float
    is_passed: bool
    level: float
    level_error: float


@dataclass(frozen=True)
class Comparison:
    """What `compare` found; printed, a table.

    Attributes
    ----------
    estimates
        One for each criterion and chain, or pair of chains.
    rhat
        R-hat by blocks for each pair.
    """

    estimates: tuple[Estimate, ...]
    rhat: Mapping[Pair, BlockwiseRhat]

    def of(self, criterion: str, *chains: str) -> Estimate:
        """Return the estimate of a criterion for these chains.

        Raises KeyError if these were not compared by it.
        """
        for estimate in self.estimates:
            if estimate.criterion == criterion and estimate.chains == chains:
                return estimate
        raise KeyError((criterion, *chains))

    def __str__(self) -> str:
        lines = [f"{'criterion':<16}{'chains':<24}{'lower bound':>12}  verdict"]
        for one in self.estimates:
            verdict = "passed" if one.is_passed else "not passed"
            chains = ", ".join(one.chains)
            lines.append(f"{one.criterion:<16}{chains:<24}{one.lower_bound:>12,.0f}  {verdict}")
        return "\n".join(lines)


def compare(
    steps: ArrayLike,
    mse: Mapping[str, ArrayLike],
    *,
    informed: str = "informed",
    score: Mapping[str, ArrayLike] | None = None,
    output_steps: ArrayLike | None = None,
    outputs: Mapping[str, ArrayLike] | None = None,
    pairs: Sequence[Pair] = (),
    false_alarm_rate: float = 0.01,
    block_length: int = 50,
    threshold: float | int = 1.44,
    percentiles: Sequence[float | int] = (25.0, 50.0, 75.0, 95.0),
) -> Comparison:
    """Evaluate all thermalization criteria on recorded series (Piccioli et al., section V.1).

    For each uninformed chain the teacher-student criterion (`merge_time` with the informed one) and
    for every chain stationarity, both of the logarithm of the mean squared error; for every chain
    in `score` its score. For each of `pairs`: R-hat of the outputs, by blocks. Criteria give lower
    bounds: the largest is the one to believe.

    Parameters
    ----------
    steps
        (record,), increasing, for `mse` and `score`.
    mse
        Series (record,) of each chain's test error, positive, by the chain's name.
    informed
        Name of the chain that started at the teacher.
    score
        Series (record,) of `score_statistic` by chain.
    output_steps
        (record,), equally spaced, for `outputs`.
    outputs
        (record, point): outputs on test inputs by chain.
    pairs
        Names of the two chains of each R-hat.
    false_alarm_rate
        Of each criterion but R-hat.
    block_length, threshold, percentiles
        Of `blockwise_rhat`.

    Raises
    ------
    ValueError
        If the informed chain, a chain of a pair or `output_steps` is missing, shapes do not fit, or
        a criterion refuses its series.
    TypeError
        If `mse`, `score` or `outputs` is no dict by names, or `pairs` no sequence of tuples of two
        names.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> steps = np.arange(1, 1001)
    >>> noise = 0.1 * rng.normal(size=(2, 1000))
    >>> mse = {"informed": np.exp(noise[0]), "zero": np.exp(noise[1] + 10 * np.exp(-steps / 50))}
    >>> print(compare(steps, mse))
    criterion       chains                   lower bound  verdict
    teacher-student zero, informed                   ...  passed
    stationarity    zero                             ...  passed
    stationarity    informed                         ...  passed
    """
    if mse is None:
        raise TypeError("mse must be a dict of series by the chains' names, but is None.")
    for what, given in (("mse", mse), ("score", score), ("outputs", outputs)):
        if given is not None and not isinstance(given, Mapping):
            raise TypeError(
                f"{what} must be a dict of series by the chains' names, but is {a_or_an(given)}."
            )
        for name in given or ():
            if not isinstance(name, str):
                raise TypeError(
                    f"chains have names, but a key of {what} is {short(name)}; write {str(name)!r}."
                )
    why = "it judges numbers on the host; call it outside"
    check_outside("compare", why, steps, mse, outputs, output_steps, score)
    if not isinstance(pairs, Sequence) or not all(map(_is_pair, pairs)):
        raise TypeError(
            f"pairs must be pairs of the chains' names, but is {short(pairs)}; give for instance "
            '[("zero", "informed")].'
        )
    if informed not in mse:
        only = f"only {', '.join(mse)}; name one of them" if mse else "nor any other; record one"
        raise ValueError(f"mse has no chain {informed!r}, {only}.")
    for name in {name for pair in pairs for name in pair} - set(outputs or {}):
        raise ValueError(f"outputs has no chain {name!r}, which pairs names; record its outputs.")
    length = np.shape(steps)
    for what, given in (("mse", mse), ("score", score or {})):
        for name, series in given.items():
            check_real(f"{what}[{name!r}]", series)
            if np.shape(series) != length:
                raise ValueError(
                    f"{what}[{name!r}] must be one series of a number for each of the steps, of "
                    f"shape {length}, but has shape {np.shape(series)}; give each chain its own."
                )
    for name, series in mse.items():
        if (np.asarray(series, float) < 0).any():
            raise ValueError(f"mse[{name!r}] holds negative numbers, which no square is.")
    with np.errstate(divide="ignore"):
        logs = {name: np.log(np.asarray(series, float)) for name, series in mse.items()}
    rate = {"false_alarm_rate": false_alarm_rate}
    estimates = []
    for name, series in logs.items():
        if name == informed:
            continue
        merged = merge_time(series, logs[informed], steps, **rate)
        estimates.append(_estimate("teacher-student", (name, informed), *merged[:4]))
    for name in sorted(logs, key=lambda name: name == informed):
        found = stationarity_time(logs[name], steps, **rate)
        estimates.append(_estimate("stationarity", (name,), *found[:4]))
    for name, series in (score or {}).items():
        estimates.append(_estimate("score", (name,), *score_time(series, steps, **rate)[:4]))
    rhat = {}
    for pair in pairs:
        assert outputs is not None
        if output_steps is None:
            raise ValueError("outputs needs output_steps, the step of each record; give them.")
        both = [_real_array(f"outputs[{name!r}]", outputs[name]) for name in pair]
        if both[0].shape != both[1].shape:
            raise ValueError(
                f"the outputs of {pair[0]!r} and {pair[1]!r} must have one shape, but have "
                f"{both[0].shape} and {both[1].shape}; record both at the same steps."
            )
        rhat[pair] = one = blockwise_rhat(
            np.stack(both),
            output_steps,
            block_length=block_length,
            threshold=threshold,
            percentiles=percentiles,
            **rate,
        )
        numbers = (one.lower_bound, one.is_passed, one.level, one.level_error)
        estimates.append(_estimate("R-hat", pair, *numbers))
    return Comparison(tuple(estimates), rhat)


def _is_pair(pair: object) -> bool:
    return (
        isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(name, str) for name in pair)
    )


def _real_array(name: str, values: ArrayLike) -> np.ndarray:
    check_real(name, values)
    return np.asarray(values)


def _estimate(criterion, chains, lower_bound, is_passed, level, error) -> Estimate:
    numbers = (float(lower_bound), bool(is_passed), float(level), float(error))
    return Estimate(criterion, chains, *numbers)
