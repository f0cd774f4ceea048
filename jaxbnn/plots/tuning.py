"""Curves over a parameter of the sampler: acceptance rate and effective sample size."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import ArrayLike, Bool, Float

from jaxbnn.numerics.arguments import check_flag
from jaxbnn.numerics.checks import check_one_number
from jaxbnn.plots._canvas import (
    REFERENCE,
    Axes,
    add_to_title,
    given_axes,
    legend,
    new_axes,
    next_color,
)
from jaxbnn.plots._series import as_numbers, listed

Numbers = ArrayLike | Sequence[float | int]


def acceptance_against(
    parameter: Numbers,
    rates: Numbers,
    axes: Any = None,
    *,
    standard_error: Numbers | None = None,
    target: float | int | None = None,
    parameter_name: str = "parameter",
    label: str | None = None,
    color: str | None = None,
    log_x: bool = False,
) -> Any:
    """Draw the mean acceptance rate against a parameter, with bars of one standard error.

    The bar is the standard deviation between chains (n - 1) over the square root of their
    number: chains are independent, so it needs no autocorrelation time. Call it again on the
    same axes, with another label, to compare samplers. A setting with rates that are not finite
    leaves a gap and is named in the title.

    Parameters
    ----------
    parameter
        Shape (settings,), in any order.
    rates
        Shape (settings,), (settings, chains) or (settings, chains, draws).
    axes
        Matplotlib axes; None makes a figure.
    standard_error
        Shape (settings,): bars to draw in place of those from the chains.
    target
        Recommended rate, drawn as a dashed line.
    parameter_name
        Label of the horizontal axis.
    label
        Name of the sampler in the legend.
    color
        Colour of the curve.
    log_x
        Whether the horizontal axis is logarithmic.

    Returns
    -------
    The axes.

    Raises
    ------
    ValueError
        If the shapes do not fit, a rate is outside [0, 1], the target is not between 0 and 1, or
        a parameter is not finite (not positive, for a logarithmic axis).

    Examples
    --------
    >>> axes = acceptance_against([0.1, 1.0], np.array([[0.8, 1.0], [0.2, 0.2]]), target=0.57)
    >>> axes.get_lines()[0].get_ydata().round(3)
    array([0.9, 0.2])
    """
    check_flag("log_x", log_x)
    x, order = _check_parameter(parameter, log_x)
    values = _check_values("rates", rates, len(x), (1, 2, 3))[order]
    if (values < 0).any() or (values > 1).any():
        raise ValueError(
            f"rates must lie between 0 and 1, but reach from {np.nanmin(values):g} to "
            f"{np.nanmax(values):g}; pass acceptance probabilities."
        )
    if target is not None:
        check_one_number("target", target, "give a rate")
    if target is not None and not 0 < target < 1:
        raise ValueError(f"target must lie between 0 and 1, but is {target:g}; give a rate.")
    per_chain = values.mean(axis=2) if values.ndim == 3 else values
    mean, error = per_chain, None
    if per_chain.ndim == 2:
        mean = per_chain.mean(axis=1)
        chains = per_chain.shape[1]
        error = per_chain.std(axis=1, ddof=1) / np.sqrt(chains) if chains > 1 else None
    if standard_error is not None:
        error = _check_values("standard_error", standard_error, len(x), (1,))[order]
    where = new_axes()[0] if axes is None else given_axes(axes, 1)[0]
    _curve(where, x, mean, error, label, color)
    if target is not None:
        name = f"target {target:g}"
        known = [line.get_label() for line in where.get_lines()]
        if name not in known:  # once is enough when samplers share it
            where.axhline(target, color=REFERENCE, linestyle="--", linewidth=1.2, label=name)
    where.set(xlabel=parameter_name, ylabel="acceptance rate", ylim=(-0.03, 1.03))
    _finish(where, x, np.isfinite(mean), parameter_name, log_x, label, target is not None)
    return where


def ess_against(
    parameter: Numbers,
    ess: Numbers,
    axes: Any = None,
    *,
    parameter_name: str = "parameter",
    quantity: str = "effective sample size",
    label: str | None = None,
    color: str | None = None,
    log_x: bool = False,
    log_y: bool = False,
) -> Any:
    """Draw the effective sample size against a parameter: median, bars from least to largest.

    The least of all coordinates is the one that matters; the bars show it beside the median, as
    the tables of Papamarkou et al. do. Call it again on the same axes, with another label, to
    compare samplers. A setting with values that are not finite leaves a gap and is named in the
    title.

    Parameters
    ----------
    parameter
        Shape (settings,), in any order.
    ess
        Shape (settings,), or (settings, coordinates).
    axes, parameter_name, label, color, log_x
        As in `acceptance_against`.
    quantity
        Label of the vertical axis, for effective sample sizes by the second or gradient.
    log_y
        Whether the vertical axis is logarithmic.

    Returns
    -------
    The axes.

    Raises
    ------
    ValueError
        If the shapes do not fit, a size is not positive, or a parameter is not finite (not
        positive, for a logarithmic axis).

    Examples
    --------
    >>> axes = ess_against([0.1, 0.2], np.array([[90.0, 100.0, 300.0], [10.0, 20.0, 30.0]]))
    >>> axes.get_lines()[0].get_ydata()
    array([100.,  20.])
    """
    check_flag("log_x", log_x)
    check_flag("log_y", log_y)
    x, order = _check_parameter(parameter, log_x)
    values = _check_values("ess", ess, len(x), (1, 2))[order]
    if (values <= 0).any():
        raise ValueError(
            f"ess must be positive, but is {np.nanmin(values):g} somewhere; "
            "leave out chains that never moved."
        )
    middle, bars = values, None
    if values.ndim == 2:
        middle = np.median(values, axis=1)
        bars = np.stack([middle - values.min(axis=1), values.max(axis=1) - middle])
    where = new_axes()[0] if axes is None else given_axes(axes, 1)[0]
    if log_y:
        _plain_log_axis(where)
    _curve(where, x, middle, bars, label, color)
    where.set(xlabel=parameter_name, ylabel=quantity)
    if not log_y:
        where.set_ylim(bottom=0.0)
    _finish(where, x, np.isfinite(middle), parameter_name, log_x, label)
    return where


def _curve(
    axes: Axes,
    x: Float[np.ndarray, " settings"],
    y: Float[np.ndarray, " settings"],
    error: Float[np.ndarray, "..."] | None,
    label: str | None,
    color: str | None,
) -> None:
    axes.errorbar(
        x,
        y,
        yerr=error,
        color=color or next_color(axes),
        marker="o",
        markersize=4,
        linewidth=1.5,
        elinewidth=1.2,
        capsize=3,
        label=label or "_curve",
    )


def _plain_log_axis(axes: Axes) -> None:
    """Sizes within one decade read better as 200 than as 2 x 10^2."""
    from matplotlib.ticker import LogFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(LogFormatter())
    axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1.5, 0.5)))


def _finish(
    axes: Axes,
    x: Float[np.ndarray, " settings"],
    present: Bool[np.ndarray, " settings"],
    parameter_name: str,
    log_x: bool,
    label: str | None,
    named: bool = False,
) -> None:
    if log_x:
        axes.set_xscale("log")
    if label or named:
        legend(axes, "best")
    if not present.all():
        missing = listed([f"{value:.3g}" for value in x[~present]])
        add_to_title(axes, f"not finite at {parameter_name} {missing}", label)


def _check_parameter(parameter: Numbers, log_x: bool) -> tuple[Float[np.ndarray, " settings"], Any]:
    x = as_numbers("parameter", parameter)
    if x.ndim != 1 or x.size == 0:
        raise ValueError(
            f"parameter must have shape (settings,), but has shape {x.shape}; "
            "give one value for each setting."
        )
    if not np.isfinite(x).all() or (log_x and (x <= 0).any()):
        kind = "positive and finite" if log_x else "finite"
        raise ValueError(f"parameter must be {kind}, but is {x.tolist()}; leave such settings out.")
    order = np.argsort(x, kind="stable")
    return x[order], order


def _check_values(
    name: str, values: Numbers, num_settings: int, ndims: tuple[int, ...]
) -> Float[np.ndarray, "settings ..."]:
    array = as_numbers(name, values)
    if array.ndim not in ndims or array.size == 0 or len(array) != num_settings:
        raise ValueError(
            f"{name} must have {num_settings} settings along the first of {ndims[0]} to "
            f"{ndims[-1]} axes, but has shape {array.shape}; stack one entry for each setting."
        )
    return np.where(np.isfinite(array), array, np.nan)
