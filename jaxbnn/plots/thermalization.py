"""Pictures of thermalization: test error, R-hat and score along time, with the criteria's times."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import ArrayLike, Float

from jaxbnn.plots._canvas import (
    COLORS,
    REFERENCE,
    Axes,
    add_to_title,
    given_axes,
    legend,
    new_axes,
)
from jaxbnn.plots._series import as_numbers

Numbers = ArrayLike | Sequence[float | int]

_MARKERS = "osD^vP*X"
_LINES = ("-", "--", ":", "-.")


def thermalization_criteria(
    steps: Numbers,
    mse: Mapping[str, Numbers],
    axes: Any = None,
    *,
    rhat: Mapping[str, tuple[Numbers, Numbers]] | None = None,
    score: Mapping[str, Numbers] | None = None,
    lower_bounds: Mapping[str, tuple[float | int, bool]] | None = None,
    time_name: str = "sweeps",
) -> Any:
    """Draw test errors of several chains along time, R-hat and scores below, criteria as circles.

    Every panel has the same logarithmic time axis. A criterion's lower bound of the
    thermalization time is a filled marker on the time axis of the uppermost panel; a criterion
    that is not passed within the run is a hollow one at its end. Values that are not finite leave
    gaps, and the title counts them; where an R-hat or an error is infinite, a triangle stands at
    the upper edge. The panel of scores is scaled to the last three quarters of their records, and
    its title counts the scores that lie outside.

    Parameters
    ----------
    steps
        (record,), positive, of `mse` and `score`.
    mse
        Series (record,) by chain's name, positive.
    axes
        Matplotlib axes, one for each panel (one to three); None makes a figure.
    rhat
        (steps, values) of R-hat by the chains' names: the second panel.
    score
        Series (record,) by chain's name: the last panel.
    lower_bounds
        (time, whether passed) by criterion.
    time_name
        What a step is called.

    Returns
    -------
    Array of the axes, one a panel.

    Raises
    ------
    ValueError
        If a series has another length than its steps, or steps, errors or R-hats are not positive.

    Notes
    -----
    Piccioli et al., figure 1, with panels in place of a second vertical axis.

    Examples
    --------
    >>> axes = thermalization_criteria([1, 10], {"zero": [1.0, 0.1]},
    ...                                lower_bounds={"teacher-student (zero)": (10.0, True)})
    >>> [line.get_label() for line in axes[0].get_lines()]
    ['zero', 'teacher-student (zero)']
    """
    panels = 1 + bool(rhat) + bool(score)
    given = axes is not None
    where = given_axes(axes, panels) if given else new_axes(panels, (10.0, 2.6), max_columns=1)
    style = _styles([*mse, *(score or {})])
    all_steps = [as_numbers("steps", steps)]
    for name, series in mse.items():
        x, y = _curve(name, steps, series, is_log=True)
        _draw(where[0], x, y, label=name, is_log=True, **style[name])
    where[0].set(yscale="log", ylabel="test mean squared error")
    following = iter(where[1:])
    if rhat:
        panel = next(following)
        for i, (name, (block_steps, values)) in enumerate(rhat.items()):
            x, y = _curve(name, block_steps, values, is_log=True)
            all_steps.append(x)
            color = COLORS[(len(mse) + i) % len(COLORS)]
            _draw(panel, x, y, label=name, is_log=True, **_thin(color, i))
        panel.axhline(1.0, color=REFERENCE, linestyle="--", linewidth=0.8)
        panel.set(yscale="log", ylabel=r"$\hat R$, mean over inputs")
    if score:
        panel = next(following)
        for name, series in score.items():
            x, y = _curve(name, steps, series)
            _draw(panel, x, y, label=name, **{**style[name], "linewidth": 0.6})
        panel.axhline(0.0, color=REFERENCE, linestyle="--", linewidth=0.8)
        panel.set(ylabel="score $U$")
        _show_the_end(panel)
    start, end = (float(pick(np.concatenate(all_steps))) for pick in (np.min, np.max))
    for panel in where:
        panel.set(xscale="log")
        panel.set_xlim(start, end * 1.15)
    _circles(where[0], lower_bounds or {})
    where[-1].set_xlabel(time_name)
    for panel in where:
        legend(panel, "beside")
    return np.array(where, dtype=object)


def rhat_percentiles(
    steps: Numbers,
    values: Float[ArrayLike, "percentiles blocks"],
    percentiles: Sequence[float | int],
    axes: Any = None,
    *,
    time_name: str = "sweeps",
) -> Any:
    """Draw percentiles of R-hat over coordinates along time, with a dashed line at 1.

    Values that are not finite leave gaps, and the title counts them; where one is infinite, a
    triangle stands at the upper edge.

    Parameters
    ----------
    steps
        (block,).
    values
        (percentile, block), as `blockwise_rhat` returns them.
    percentiles
        Their numbers, for the legend.
    axes
        Matplotlib axes; None makes a figure.
    time_name
        What a step is called.

    Returns
    -------
    The axes.

    Raises
    ------
    ValueError
        If the shapes do not fit, or steps or R-hats are not positive.

    Notes
    -----
    Piccioli et al., figure 4.

    Examples
    --------
    >>> axes = rhat_percentiles([100, 200], np.array([[2.0, 1.0], [4.0, 1.5]]), [25, 75])
    >>> [line.get_label() for line in axes.get_lines()][:2]
    ['75', '25']
    """
    array = as_numbers("values", values)
    if array.ndim != 2 or len(array) != len(percentiles):
        raise ValueError(
            f"values must have one row a percentile, ({len(percentiles)}, blocks), but have shape "
            f"{array.shape}."
        )
    where = new_axes(1, (6.0, 3.2))[0] if axes is None else given_axes(axes, 1)[0]
    # The largest first, so that the legend has the order of the curves.
    for i in reversed(range(len(percentiles))):
        x, y = _curve(f"percentile {percentiles[i]}", steps, array[i], is_log=True)
        label, color = f"{percentiles[i]:g}", COLORS[i % len(COLORS)]
        _draw(where, x, y, label=label, is_log=True, **_thin(color, i))
    where.axhline(1.0, color=REFERENCE, linestyle="--", linewidth=0.8, label="_one")
    where.set(xscale="log", yscale="log", xlabel=time_name, ylabel=r"percentiles of $\hat R$")
    legend(where, "beside")
    return where


def _curve(
    name: str, steps: Numbers, series: Numbers, *, is_log: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    x, y = as_numbers("steps", steps), as_numbers(f"the series of {name!r}", series)
    if x.ndim != 1 or x.shape != y.shape:
        raise ValueError(
            f"the series of {name!r} has shape {y.shape}, but its steps have {x.shape}; give one "
            "number a step."
        )
    if not (x > 0).all():
        raise ValueError(f"the steps of {name!r} must be positive for a logarithmic axis.")
    if is_log and (y <= 0).any():
        raise ValueError(
            f"the series of {name!r} must be positive for a logarithmic axis, but holds "
            f"{np.nanmin(y):g}; leave such values out."
        )
    return x, y


def _draw(
    panel: Axes, x: np.ndarray, y: np.ndarray, *, label: str, is_log: bool = False, **style: Any
) -> None:
    """Draw a curve with gaps where it is not finite, and say how many there are."""
    is_finite = np.isfinite(y)
    panel.plot(x, np.where(is_finite, y, np.nan), label=label, **style)
    if is_finite.all():
        return
    add_to_title(panel, f"{label}: {(~is_finite).sum():,} of {y.size:,} values not finite")
    if is_log and (infinite := x[np.isposinf(y)]).size:
        panel.plot(
            infinite,
            np.ones(infinite.size),
            "^",
            color=style["color"],
            transform=panel.get_xaxis_transform(),
            clip_on=False,
            label="_infinite",
        )


def _thin(color: str, number: int) -> dict[str, Any]:
    line = _LINES[number // len(COLORS) % len(_LINES)]
    return {"color": color, "linestyle": line, "linewidth": 1.2}


def _styles(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    order = list(dict.fromkeys(names))
    # Each time round, a colour has another line.
    first = [0, 0, 0, 0, 1, 2]
    lines = [_LINES[(first[i % 6] + i // 6) % 4] for i in range(len(order))]
    return {
        name: {"color": COLORS[i % 6], "linestyle": lines[i], "linewidth": 1.2}
        for i, name in enumerate(order)
    }


def _show_the_end(panel: Axes) -> None:
    """Scale a panel to the last three quarters of its curves: the first values would hide them.

    The title says how many are outside.
    """
    curves = [np.asarray(line.get_ydata(), float) for line in panel.get_lines()[:-1]]
    values = np.concatenate([curve[len(curve) // 4 :] for curve in curves])
    values = values[np.isfinite(values)]
    if not values.size or (largest := np.abs(values).max()) == 0:
        return
    panel.set_ylim(-1.2 * largest, 1.2 * largest)
    whole = np.concatenate(curves)
    whole = whole[np.isfinite(whole)]
    if outside := int((np.abs(whole) > 1.2 * largest).sum()):
        add_to_title(panel, f"{outside:,} of {whole.size:,} scores lie outside what is shown")


def _circles(panel: Axes, lower_bounds: Mapping[str, tuple[float | int, bool]]) -> None:
    low, high = np.log(panel.get_xlim())
    placed: list[float] = []
    for i, (name, (time, is_passed)) in enumerate(lower_bounds.items()):
        place = (np.log(max(time, np.exp(low))) - low) / (high - low)
        # Markers that would cover each other are stacked.
        height = 0.08 * sum(abs(place - other) < 0.025 for other in placed)
        placed.append(place)
        color = COLORS[i % len(COLORS)]
        panel.plot(
            [np.exp(low + place * (high - low))],
            [height],
            marker=_MARKERS[i % len(_MARKERS)],
            markersize=8,
            linestyle="none",
            color=color,
            markerfacecolor=color if is_passed else "white",
            markeredgewidth=1.5,
            transform=panel.get_xaxis_transform(),
            clip_on=False,
            zorder=5,
            label=name if is_passed else f"{name}: not passed",
        )
