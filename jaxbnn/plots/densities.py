"""Marginal densities of draws beside their prior."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import ArrayLike, Float

from jaxbnn.numerics import check_real
from jaxbnn.numerics.arguments import check_flag
from jaxbnn.numerics.checks import check_positive_number
from jaxbnn.plots._canvas import REFERENCE, add_to_title, legend, next_color
from jaxbnn.plots._kernel_density import beta_estimate, gaussian_estimate, silverman_bandwidth
from jaxbnn.plots._series import Panel, panels, report_missing, returned

NUM_POINTS = 401
# Tails that are left out where so few points would not show what lies between them.
_TAILS = (0.001, 0.005, 0.01, 0.025, 0.05)
Interval = tuple[float | int, float | int]


def density(
    draws: ArrayLike,
    axes: Any = None,
    *,
    prior: Any = None,
    bounds: Interval | None = None,
    limits: Interval | None = None,
    bandwidth: float | int | None = None,
    names: str | Sequence[str] | None = None,
    label: str | None = None,
    color: str | None = None,
    show_chains: bool = True,
) -> Any:
    """Draw a kernel density estimate of all draws (bold) and of each chain (thin), and the prior.

    Without bounds the kernel is Gaussian with Silverman's bandwidth. With bounds it is Chen's
    Beta kernel, which leaks no mass over them. Call it again on the same axes, with another
    label, to compare samplers or priors. Draws that are not finite are left out and counted in
    the title.

    Parameters
    ----------
    draws
        Shape (chains, draws), or (chains, draws, dim) for one panel a coordinate.
    axes, names, color
        As in `trace`.
    prior
        A scalar NumPyro distribution; or a function from points (n,) to normalised log densities
        (n,); or a pair (x, density); or a list with one of these for each coordinate. It is drawn
        dashed and black.
    bounds
        (low, high) of a bounded support.
    limits
        Range of the horizontal axis; by default that of the draws, or the bounds. Where a few
        draws lie so far out that the rest would be a spike, by default that of the inner 99.8 % or
        less, at least 90 %; the title says how many are outside.
    bandwidth
        Standard deviation of the Gaussian kernel, at least half the distance of the 401 points at
        which it is drawn; with bounds, the b of Chen on the unit interval. By default a rule
        of thumb.
    label
        Name of the sampler in the legend.
    show_chains
        Whether each chain gets its own thin line: chains that disagree are seen at once.

    Returns
    -------
    The axes; an array of dim axes for draws of shape (chains, draws, dim).

    Raises
    ------
    ValueError
        If the draws have another shape, none is finite, or some lie outside the bounds; if the
        prior returns no number for each point or is not scalar.
    TypeError
        If the prior is of another type.

    Notes
    -----
    Papamarkou et al., figures 1b, 2 and 7; Chen (1999), "Beta kernel estimators for density
    functions".

    Examples
    --------
    >>> axes = density(np.array([[0.1, 0.5, 0.6]]), bounds=(0.0, 1.0), prior=np.zeros_like)
    >>> [line.get_label() for line in axes.get_lines()]
    ['draws', 'prior']
    """
    _check_options(bounds, limits, bandwidth)
    check_flag("show_chains", show_chains)
    drawn = panels(draws, axes, names)
    priors = _one_for_each(prior, len(drawn))
    for panel, own_prior in zip(drawn, priors, strict=True):
        finite = np.isfinite(panel.values)
        _check_draws(panel, bounds)
        pooled = panel.values[finite]
        grid = _grid(pooled, bounds, limits, bandwidth)
        chosen = color or next_color(panel.axes)
        if show_chains and len(panel.values) > 1:
            for series, present in zip(panel.values, finite, strict=True):
                if present.any():
                    estimate = _estimate(series[present], grid, bounds, bandwidth)
                    panel.axes.plot(
                        grid, estimate, color=chosen, linewidth=0.7, alpha=0.4, label="_chain"
                    )
        estimate = _estimate(pooled, grid, bounds, bandwidth)
        panel.axes.plot(grid, estimate, color=chosen, linewidth=2.0, label=label or "draws")
        if own_prior is not None:
            x, y = _prior_curve(own_prior, grid)
            name = f"prior of {label}" if label else "prior"
            panel.axes.plot(x, y, color=REFERENCE, linestyle="--", linewidth=1.5, label=name)
        panel.axes.set(xlabel=panel.name or "value", ylabel="density")
        panel.axes.set_ylim(bottom=0.0)
        report_missing(panel.axes, finite, label)
        if limits is None and (outside := int(((pooled < grid[0]) | (pooled > grid[-1])).sum())):
            notice = f"{outside:,} of {pooled.size:,} draws lie outside what is shown"
            add_to_title(panel.axes, notice, label)
    if label or prior is not None:
        legend(drawn[-1].axes, "best")
    return returned(drawn, draws)


def _estimate(
    values: Float[np.ndarray, " draws"],
    grid: Float[np.ndarray, " points"],
    bounds: Interval | None,
    bandwidth: float | int | None,
) -> Float[np.ndarray, " points"]:
    if bounds is None:
        return gaussian_estimate(values, grid, bandwidth)
    inside = (grid >= bounds[0]) & (grid <= bounds[1])
    estimate = np.zeros_like(grid)
    estimate[inside] = beta_estimate(values, grid[inside], bounds, bandwidth)
    return estimate


def _grid(
    pooled: Float[np.ndarray, " draws"],
    bounds: Interval | None,
    limits: Interval | None,
    bandwidth: float | int | None,
) -> Float[np.ndarray, " points"]:
    if limits is None and bounds is None:
        h = bandwidth or silverman_bandwidth(pooled) or 1e-3 * max(abs(float(pooled[0])), 1e-3)
        limits = _around(float(pooled.min()), float(pooled.max()), h)
        for tail in _TAILS:
            if limits[1] - limits[0] <= 2 * h * (NUM_POINTS - 1):
                break
            low, high = np.quantile(pooled, [tail, 1 - tail])
            limits = _around(float(low), float(high), h)
    low, high = limits or bounds or (0.0, 1.0)
    return np.linspace(low, high, NUM_POINTS)


def _around(low: float, high: float, bandwidth: float | int) -> Interval:
    # Three bandwidths let the estimate reach the ground; the tenth shows what lies beside it.
    reach = 3 * bandwidth + 0.1 * (high - low)
    return low - reach, high + reach


def _prior_curve(
    prior: Any, grid: Float[np.ndarray, " points"]
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    if isinstance(prior, tuple) and len(prior) == 2:
        x, y = (np.asarray(part, dtype=float) for part in prior)
        if x.shape != y.shape or x.ndim != 1:
            raise ValueError(
                f"prior holds x of shape {x.shape} and density of shape {y.shape}; "
                "give two vectors of one length."
            )
        return x, y
    if hasattr(prior, "log_prob"):
        if prior.batch_shape or prior.event_shape:
            raise ValueError(
                f"prior must be a distribution of one number, but has shape "
                f"{prior.batch_shape + prior.event_shape}; give a list of scalar distributions."
            )
        # Outside the support NumPyro's log densities are any number.
        inside = np.asarray(prior.support(grid))
        values = np.zeros_like(grid)
        values[inside] = np.exp(_log_values(prior.log_prob, grid[inside]))
        return grid, values
    if callable(prior):
        return grid, np.exp(_log_values(prior, grid))
    raise TypeError(
        f"prior must be a NumPyro distribution, a log density function or a pair (x, density), "
        f"but is a {type(prior).__name__}; give one of these."
    )


def _log_values(log_density: Any, grid: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    values = np.asarray(log_density(grid), dtype=float)
    if values.shape != grid.shape:
        raise ValueError(
            f"prior returned shape {values.shape} for {len(grid)} points; "
            "it must give one log density for each, so wrap it in jax.vmap."
        )
    return values


def _one_for_each(prior: Any, num: int) -> list[Any]:
    if not isinstance(prior, list):
        return [prior] * num
    if len(prior) != num:
        raise ValueError(
            f"prior is a list of {len(prior)}, but the draws have {num} coordinates; "
            "give one for each, or a single one for all."
        )
    return prior


def _check_options(
    bounds: Interval | None, limits: Interval | None, bandwidth: float | int | None
) -> None:
    for name, interval in (("bounds", bounds), ("limits", limits)):
        if interval is None:
            continue
        check_real(name, interval)
        if np.shape(interval) != (2,) or not (
            np.isfinite(interval).all() and interval[0] < interval[1]
        ):
            raise ValueError(
                f"{name} must be finite and increasing, but are {tuple(interval)}; "
                "give (low, high) with low < high."
            )
    if bandwidth is not None:
        check_positive_number("bandwidth", bandwidth)


def _check_draws(panel: Panel, bounds: Interval | None) -> None:
    name = panel.name or "the value"
    if not np.isfinite(panel.values).any():
        raise ValueError(
            f"No draw of {name} is finite, so it has no density; look at its trace first."
        )
    if bounds is None:
        return
    outside = int(((panel.values < bounds[0]) | (panel.values > bounds[1])).sum())
    if outside:
        raise ValueError(
            f"{outside:,} draws of {name} lie outside the bounds {tuple(bounds)}; "
            "widen the bounds or leave them out."
        )
