"""Pictures of chains along time: trace, running mean, autocorrelation."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import ArrayLike, Bool, Float

from jaxbnn.diagnostics import autocorrelation as autocorrelation_of
from jaxbnn.numerics import check_count
from jaxbnn.plots._canvas import COLORS, REFERENCE, Axes, add_to_title, legend, next_color
from jaxbnn.plots._series import Panel, envelope, listed, panels, report_missing, returned


def trace(
    draws: ArrayLike,
    axes: Any = None,
    *,
    names: str | Sequence[str] | None = None,
    label: str | None = None,
    color: str | None = None,
    max_points: int = 4000,
) -> Any:
    """Draw every chain against its step, with the mean of all draws as a black line.

    A chain of more than `max_points` draws is drawn as the smallest and largest value of each
    of `max_points` / 2 stretches, so that excursions stay visible. Draws that are not finite
    leave gaps and are counted in the title.

    Parameters
    ----------
    draws
        Shape (chains, draws), or (chains, draws, dim) for one panel a coordinate.
    axes
        Matplotlib axes (an array of dim of them for three axes of draws); None makes a figure,
        which is `axes.figure` of what is returned.
    names
        What the coordinates are called on the vertical axis.
    label
        Name of the sampler in the legend: all chains then share one colour. Without it each
        chain has its own colour, and up to six are named.
    color
        One colour for all chains.
    max_points
        Largest number of points drawn for a chain, but for gaps.

    Returns
    -------
    The axes, chain c in `COLORS[c]` unless another colour is asked for; an array of dim axes for
    draws of shape (chains, draws, dim).

    Raises
    ------
    ValueError
        If the draws have another shape, or axes or names do not match the coordinates.

    Notes
    -----
    Papamarkou et al., "Challenges in Markov chain Monte Carlo for Bayesian neural networks",
    figures 1c, 4a-d and 6a-f.

    Examples
    --------
    >>> axes = trace(np.zeros((2, 5)), names="w")
    >>> [line.get_label() for line in axes.get_lines()]
    ['chain 0', 'chain 1', 'mean']
    """
    drawn = panels(draws, axes, names)
    for panel in drawn:
        finite = np.isfinite(panel.values)
        shared = color or (next_color(panel.axes) if label else None)
        for chain, series in enumerate(panel.values):
            x, y = envelope(series, max_points)
            panel.axes.plot(
                x,
                y,
                color=shared or COLORS[chain % len(COLORS)],
                linewidth=0.6,
                alpha=0.8,
                label=_hidden_unless(chain == 0, label) if label else f"chain {chain}",
            )
        if finite.any():
            mean = panel.values[finite].mean()
            name = "_mean" if label else "mean"
            panel.axes.axhline(mean, color=REFERENCE, linewidth=1.2, label=name)
        panel.axes.set(xlabel="draw", ylabel=panel.name or "value")
        panel.axes.margins(x=0.01)
        report_missing(panel.axes, finite, label)
    if label:
        _make_room_above(drawn[-1].axes)
        legend(drawn[-1].axes, "upper right")
    elif axes is None and not color and len(drawn[0].values) <= len(COLORS):
        legend(drawn[-1].axes, "beside")
    return returned(drawn, draws)


def running_mean(
    draws: ArrayLike,
    axes: Any = None,
    *,
    names: str | Sequence[str] | None = None,
    label: str | None = None,
    color: str | None = None,
    max_points: int = 2000,
) -> Any:
    """Draw the mean of the first t draws against t: thin for each chain, bold for their mean.

    Call it again on the same axes, with another label, to compare samplers. From a draw that is
    not finite on, a chain has no mean: its line ends there, the bold line is the mean of the
    other chains, and the title says so.

    Parameters
    ----------
    draws
        Shape (chains, draws), or (chains, draws, dim) for one panel a coordinate.
    axes, names, color, max_points
        As in `trace`.
    label
        Name of the sampler in the legend.

    Returns
    -------
    The axes; an array of dim axes for draws of shape (chains, draws, dim).

    Raises
    ------
    ValueError
        If the draws have another shape, or axes or names do not match the coordinates.

    Notes
    -----
    Papamarkou et al., figures 4f and 6h.

    Examples
    --------
    >>> axes = running_mean(np.array([[1.0, 3.0, 5.0]]))
    >>> axes.get_lines()[0].get_ydata()
    array([1., 2., 3.])
    """
    drawn = panels(draws, axes, names)
    for panel in drawn:
        num_draws = panel.values.shape[1]
        means = np.cumsum(panel.values, axis=1) / np.arange(1, num_draws + 1)
        lines = [envelope(series, max_points) for series in means]
        bold = envelope(_mean_of_present(means), max_points)
        _thin_and_bold(
            panel.axes, [(x + 1, y) for x, y in lines], (bold[0] + 1, bold[1]), label, color
        )
        panel.axes.set(xlabel="draws averaged", ylabel=_of("running mean", panel))
        panel.axes.margins(x=0.01)
        report_missing(panel.axes, np.isfinite(panel.values), label)
    if label:
        legend(drawn[-1].axes, "best")
    return returned(drawn, draws)


def autocorrelation(
    draws: ArrayLike,
    axes: Any = None,
    *,
    max_lag: int = 100,
    names: str | Sequence[str] | None = None,
    label: str | None = None,
    color: str | None = None,
) -> Any:
    """Draw the autocorrelation against the lag: thin for each chain, bold for their mean.

    Call it again on the same axes, with another label, to compare samplers. Chains with draws
    that are not finite, and chains that never move, have no autocorrelation; the title names
    them.

    Parameters
    ----------
    draws
        Shape (chains, draws), or (chains, draws, dim) for one panel a coordinate.
    axes, names, color
        As in `trace`.
    max_lag
        Largest lag drawn; at most the number of draws less one.
    label
        Name of the sampler in the legend.

    Returns
    -------
    The axes; an array of dim axes for draws of shape (chains, draws, dim).

    Raises
    ------
    ValueError
        If the draws have another shape or are fewer than two, if max_lag < 1, or axes or names
        do not match the coordinates.

    Notes
    -----
    Papamarkou et al., figures 4e and 6g.

    Examples
    --------
    >>> axes = autocorrelation(np.array([[1.0, -1.0, 1.0, -1.0]]), max_lag=2)
    >>> [round(float(rho), 2) for rho in axes.get_lines()[-1].get_ydata()]
    [1.0, -0.75, 0.5]
    """
    check_count("max_lag", max_lag)
    drawn = panels(draws, axes, names)
    for panel in drawn:
        if panel.values.shape[1] < 2:
            raise ValueError(
                "An autocorrelation needs at least two draws of each chain, but there is one; "
                "pass longer chains."
            )
        rho = _autocorrelation(panel.values, max_lag)
        lags = np.arange(rho.shape[1])
        panel.axes.axhline(0.0, color="0.6", linewidth=0.8, zorder=0)
        _thin_and_bold(
            panel.axes, [(lags, row) for row in rho], (lags, _mean_of_present(rho)), label, color
        )
        panel.axes.set(xlabel="lag", ylabel=_of("autocorrelation", panel))
        panel.axes.margins(x=0.01)
        finite = np.isfinite(panel.values)
        report_missing(panel.axes, finite, label)
        _report_stuck(panel, finite, label)
    if label:
        legend(drawn[-1].axes, "upper right")
    return returned(drawn, draws)


def _autocorrelation(
    values: Float[np.ndarray, "chains draws"], max_lag: int
) -> Float[np.ndarray, "chains lags"]:
    # A chain with one missing draw is left out here, lest it take the others with it.
    lag = min(max_lag, values.shape[1] - 1)
    rho = np.full((len(values), lag + 1), np.nan)
    complete = np.isfinite(values).all(axis=1)
    if complete.any():
        rho[complete] = autocorrelation_of(values[complete], lag)
    return rho


def _mean_of_present(series: Float[np.ndarray, "chains points"]) -> Float[np.ndarray, " points"]:
    present = np.isfinite(series)
    count = present.sum(axis=0)
    total = np.where(present, series, 0.0).sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _thin_and_bold(
    axes: Axes, thin: list[Any], bold: tuple[Any, Any], label: str | None, color: str | None
) -> None:
    color = color or next_color(axes)
    if len(thin) > 1:
        for x, y in thin:
            axes.plot(x, y, color=color, linewidth=0.7, alpha=0.4, label="_chain")
    axes.plot(*bold, color=color, linewidth=2.0, label=label or "_mean")


def _report_stuck(
    panel: Panel, finite: Bool[np.ndarray, "chains draws"], label: str | None
) -> None:
    stuck = np.flatnonzero(finite.all(axis=1) & (np.ptp(panel.values, axis=1) == 0))
    if len(stuck):
        plural = "s" if len(stuck) > 1 else ""
        add_to_title(panel.axes, f"never moved: chain{plural} {listed(stuck)}", label)


def _make_room_above(axes: Axes) -> None:
    # A trace fills its axes, so a legend inside needs a strip of its own.
    low, high = axes.dataLim.intervaly
    if low <= high:  # not so when no draw is finite
        axes.set_ylim(low - 0.05 * (high - low), high + 0.4 * (high - low) + 1e-12)


def _of(quantity: str, panel: Panel) -> str:
    return f"{quantity} of {panel.name}" if panel.name else quantity


def _hidden_unless(shown: bool, label: str) -> str:
    # Matplotlib leaves labels with a leading underscore out of legends.
    return label if shown else f"_{label}"
