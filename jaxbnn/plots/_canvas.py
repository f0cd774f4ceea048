"""Axes to draw on, colours to draw with, and the one place that imports Matplotlib.

A figure made here is a plain `matplotlib.figure.Figure`: pyplot does not know it, so nothing
has to be closed, no window opens, and no setting of the caller changes.
"""

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from jaxbnn.numerics.arguments import check_no_key

if TYPE_CHECKING:
    from matplotlib.axes import Axes
else:
    Axes = Any  # Matplotlib is optional, and imported only when something is drawn

# Okabe and Ito (2008), told apart under every common colour blindness. Black is kept for
# reference lines (means, priors, targets); yellow is left out, too pale for lines on white.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
REFERENCE = "black"
MAX_PANELS = 16


def new_axes(
    num_panels: int = 1,
    panel_size: tuple[float, float] = (5.0, 2.8),
    max_columns: int = 3,
    framed: bool = False,
) -> list[Axes]:
    """Make a figure with `num_panels` axes, row by row; `panel_size` is in inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "Plots need matplotlib, which is not installed; run `pip install 'jaxbnn[plots]'`."
        ) from error
    columns = min(num_panels, max_columns)
    rows = -(-num_panels // columns)
    width, height = panel_size
    figure = Figure(figsize=(width * columns, height * rows), dpi=120, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for spare in grid[num_panels:]:
        spare.remove()
    if not framed:
        for axes in grid[:num_panels]:
            axes.spines[["top", "right"]].set_visible(False)
    return list(grid[:num_panels])


def given_axes(axes: Any, num_panels: int) -> list[Axes]:
    """List the caller's axes (one, or an array or list of them), which must be `num_panels`."""
    check_no_key("axes must be Matplotlib axes", axes)
    flat = list(np.asarray(axes, dtype=object).ravel())
    wrong = [type(item).__name__ for item in flat if not hasattr(item, "plot")]
    if wrong:
        raise TypeError(
            f"axes must be Matplotlib axes, but hold a {wrong[0]}; "
            "pass axes from `plt.subplots` or None."
        )
    if len(flat) != num_panels:
        raise ValueError(
            f"axes has {len(flat)} axes, but there are {num_panels} panels to draw; "
            "pass one for each, or None for a new figure."
        )
    return flat


def next_color(axes: Axes) -> str:
    """First colour of the palette that the axes show least, so that repeated calls differ."""
    used = [str(line.get_color()) for line in axes.get_lines()]
    return min(COLORS, key=used.count)


def add_to_title(axes: Axes, notice: str, label: str | None = None) -> None:
    """Put a notice, about the sampler of that label, under whatever title the axes have."""
    if label:
        notice = f"{label}: {notice}"
    axes.set_title("\n".join(filter(None, [axes.get_title(), notice])), fontsize="medium")


def legend(axes: Axes, where: Literal["beside", "best", "upper right"]) -> None:
    """Name the labelled artists, "beside" the axes or at one of Matplotlib's places inside."""
    if where == "beside":
        box = axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    else:
        box = axes.legend(loc=where, framealpha=0.9)
    for handle in box.get_lines():
        handle.set_linewidth(2.0)  # the hair lines of a trace would be no more than a hint
