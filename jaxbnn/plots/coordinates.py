"""Pictures of all coordinates at once: parallel coordinates and covariance heat maps."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import ArrayLike, Float

from jaxbnn.numerics import check_count
from jaxbnn.numerics.arguments import check_flag
from jaxbnn.numerics.checks import check_positive_number
from jaxbnn.plots._canvas import COLORS, Axes, given_axes, legend, new_axes
from jaxbnn.plots._series import as_draws, check_names, report_missing


def parallel_coordinates(
    draws: ArrayLike,
    axes: Any = None,
    *,
    names: Sequence[str] | None = None,
    max_lines: int = 500,
) -> Any:
    """Draw each draw as a line through its coordinates, one colour a chain.

    Symmetries of the posterior show as mirror images or swapped bundles. At most `max_lines`
    draws are shown, the same number of each chain, evenly spaced in time. Draws that are not
    finite are left out and counted in the title.

    Parameters
    ----------
    draws
        Shape (chains, draws, dim).
    axes
        Matplotlib axes; None makes a figure.
    names
        One name for each coordinate; by default their index.
    max_lines
        Largest number of lines drawn; never less than one for each chain.

    Returns
    -------
    The axes.

    Raises
    ------
    ValueError
        If the draws have another shape, or names do not match the coordinates.

    Notes
    -----
    Papamarkou et al., figure 1a; Inselberg and Dimsdale (1990).

    Examples
    --------
    >>> axes = parallel_coordinates(np.zeros((1, 4, 3)))
    >>> len(axes.collections[0].get_segments())
    4
    """
    values = as_draws(draws, ndims=(3,))
    num_chains, num_draws, dim = values.shape
    check_count("max_lines", max_lines)
    target = new_axes(panel_size=(6.4, 3.6))[0] if axes is None else given_axes(axes, 1)[0]
    per_chain = min(num_draws, max(int(max_lines) // num_chains, 1))
    shown = values[:, np.linspace(0, num_draws - 1, per_chain).round().astype(int)]
    alpha = float(np.clip(30 / (per_chain * num_chains), 0.15, 0.9))
    target.axhline(0.0, color="0.6", linewidth=0.8, zorder=0)
    _add_lines(target, shown, alpha)
    positions = np.arange(dim)
    target.set_xlim(-0.2, dim - 0.8)
    _coordinate_ticks(target, positions, names, "x")
    target.set(ylabel="value", **({"xlabel": "coordinate"} if names is None else {}))
    target.grid(axis="x", color="0.9", linewidth=0.8)
    if 1 < num_chains <= len(COLORS) and axes is None:
        legend(target, "beside")
    report_missing(target, np.isfinite(values).all(axis=2))
    return target


def covariance_heat_map(
    draws: ArrayLike | Mapping[str, ArrayLike],
    axes: Any = None,
    *,
    correlation: bool = False,
    names: Sequence[str] | None = None,
    shared_scale: bool = True,
    limit: float | int | None = None,
    annotate: bool | None = None,
) -> Any:
    """Draw the covariance matrix of the pooled draws as colours; several of them side by side.

    The chains are put one after the other, and the covariance is about their common mean, with
    n - 1 in the denominator. Blue is negative, red positive, white zero. Draws that are not
    finite are left out and counted in the title.

    Parameters
    ----------
    draws
        Shape (chains, draws, dim); or a mapping from titles to such arrays.
    axes
        Matplotlib axes, as many as there are matrices; None makes a figure.
    correlation
        Draw correlations, which compare where variances differ by orders of magnitude.
    names
        One name for each coordinate; by default their index.
    shared_scale
        Whether all matrices have one colour scale, to compare sizes; without it each has its own,
        to compare patterns.
    limit
        Value of the darkest red; by default the largest absolute entry. A smaller one brings out
        weak covariances beside large variances.
    annotate
        Whether to write the entries into the cells, to two decimals; by default where they fit.

    Returns
    -------
    The axes; an array of axes for a mapping.

    Raises
    ------
    ValueError
        If the draws have another shape or fewer than two are finite, if a coordinate is constant
        and correlations are wanted, if covariances overflow or all underflow, or if axes or names
        do not match.

    Notes
    -----
    Papamarkou et al., figures 3 and 5.

    Examples
    --------
    >>> axes = covariance_heat_map(np.array([[[1.0, 0.0], [3.0, 4.0]]]))
    >>> axes.images[0].get_array().data.tolist()
    [[2.0, 4.0], [4.0, 8.0]]
    """
    check_flag("correlation", correlation)
    check_flag("shared_scale", shared_scale)
    settings = dict(draws) if isinstance(draws, Mapping) else {"": draws}
    if not settings:
        raise ValueError("draws is an empty mapping; give at least one array of draws.")
    arrays = {title: as_draws(value, ndims=(3,)) for title, value in settings.items()}
    matrices = [_covariance(title, value, correlation) for title, value in arrays.items()]
    if annotate is not None:
        check_flag("annotate", annotate)
    if limit is not None:
        check_positive_number("limit", limit)
    targets = (
        new_axes(len(arrays), (4.2, 3.6), 2 if len(arrays) == 4 else 3, framed=True)
        if axes is None
        else given_axes(axes, len(arrays))
    )
    largest = [float(np.abs(matrix).max()) for matrix in matrices]
    if shared_scale:
        largest = [max(largest)] * len(largest)
    for target, matrix, top, (title, value) in zip(
        targets, matrices, largest, arrays.items(), strict=True
    ):
        scale = limit or (1.0 if correlation else top) or 1.0
        image = target.imshow(matrix, cmap="RdBu_r", vmin=-scale, vmax=scale)
        _coordinate_ticks(target, np.arange(len(matrix)), names, "x")
        _coordinate_ticks(target, np.arange(len(matrix)), names, "y")
        _write_entries(target, matrix, scale, annotate)
        if title:
            target.set_title(title)
        report_missing(target, np.isfinite(value).all(axis=2))
        if not shared_scale or target is targets[-1]:
            bar = target.figure.colorbar(
                image,
                ax=targets if shared_scale else target,
                label="correlation" if correlation else "covariance",
                extend="both" if limit is not None and top > limit else "neither",
            )
            bar.outline.set_visible(False)
    return np.array(targets, dtype=object) if isinstance(draws, Mapping) else targets[0]


def _add_lines(axes: Axes, shown: Float[np.ndarray, "chains lines dim"], alpha: float) -> None:
    from matplotlib.collections import LineCollection

    positions = np.arange(shown.shape[2])
    for chain, rows in enumerate(shown):
        complete = rows[np.isfinite(rows).all(axis=1)]
        segments = [np.column_stack([positions, row]) for row in complete]
        color = COLORS[chain % len(COLORS)]
        axes.add_collection(LineCollection(segments, colors=color, linewidths=0.7, alpha=alpha))
        axes.plot([], [], color=color, label=f"chain {chain}")  # opaque, for legends
    axes.autoscale_view()


def _coordinate_ticks(
    axes: Axes, positions: Any, names: Sequence[str] | None, which: Literal["x", "y"]
) -> None:
    labels = [str(i) for i in positions]
    if names is not None:
        labels = check_names(names, len(positions))
    # Only what TeX markup prints takes room: one letter for $\theta_{4}$'s command, no braces.
    longest = max(len(re.sub(r"[${}_^]", "", re.sub(r"\\[A-Za-z]+", "x", s))) for s in labels)
    box = axes.get_window_extent()
    points = 0.85 * 72 / axes.figure.dpi * (box.width if which == "x" else box.height)
    slanted = which == "x" and longest > 4
    room = 13.0 if which == "y" or slanted else 7.0 * (longest + 1)
    step = -(-len(positions) // max(int(points / room), 1))
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_ticks(list(positions[::step]), labels[::step])
    if slanted:
        axes.tick_params(axis="x", rotation=45)


def _covariance(
    title: str, values: Float[np.ndarray, "chains draws dim"], correlation: bool
) -> Float[np.ndarray, "dim dim"]:
    pooled = values.reshape(-1, values.shape[2])
    pooled = pooled[np.isfinite(pooled).all(axis=1)]
    where = f" of {title!r}" if title else ""
    if len(pooled) < 2:
        raise ValueError(
            f"A covariance needs two finite draws, but the draws{where} hold {len(pooled)}; "
            "look at their trace first."
        )
    # Powers of two do not round: products of coordinates this large or small may not be floats.
    powers = np.frexp(np.abs(pooled).max(axis=0))[1]
    scaled = np.ldexp(pooled, -powers)
    matrix = np.atleast_2d(np.cov(scaled, rowvar=False))
    is_constant = np.ptp(scaled, axis=0) == 0
    if not correlation:
        with np.errstate(over="ignore", under="ignore"):
            matrix = np.ldexp(matrix, powers[:, None] + powers)
        if not np.isfinite(matrix).all() or not (matrix.any() or is_constant.all()):
            raise ValueError(
                f"The covariances of the draws{where} are too large or too small for floats of 64 "
                "bits; scale the draws, or draw correlations."
            )
        return matrix
    constant = np.flatnonzero(is_constant)
    if len(constant):
        raise ValueError(
            f"Coordinate {constant[0]} of the draws{where} never changes, so it has no "
            "correlation; leave it out or draw covariances."
        )
    deviation = np.sqrt(np.diag(matrix))
    return matrix / deviation[:, None] / deviation


def _write_entries(
    axes: Axes, matrix: Float[np.ndarray, "dim dim"], scale: float | int, annotate: bool | None
) -> None:
    if len(matrix) > 30 and not annotate:
        return
    texts = [[f"{entry:.2f}".replace("-0.00", "0.00") for entry in row] for row in matrix]
    longest = max(len(text) for row in texts for text in row)
    # A digit is about 0.6 of the font size wide; the axes will lose a tenth to labels.
    width = 0.9 * axes.get_window_extent().width / axes.figure.dpi * 72 / len(matrix)
    size = min(9.0, width / (0.7 * longest))
    if not annotate and (annotate is False or size < 4.5):
        return
    for i, row in enumerate(texts):
        for j, text in enumerate(row):
            dark = abs(matrix[i, j]) > 0.6 * scale
            axes.text(
                j,
                i,
                text,
                ha="center",
                va="center",
                fontsize=size,
                color="white" if dark else "black",
            )
