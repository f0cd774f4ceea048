"""From stacked draws to panels: one axes and one (chains, draws) array for each coordinate."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import ArrayLike, Bool, Float, Int

from jaxbnn.numerics import check_count, check_real
from jaxbnn.numerics.arguments import as_names, check_no_key
from jaxbnn.plots._canvas import MAX_PANELS, Axes, add_to_title, given_axes, new_axes


class Panel(NamedTuple):
    """What one axes shows."""

    axes: Axes
    values: Float[np.ndarray, "chains draws"]  # not finite: NaN
    name: str | None


def panels(draws: ArrayLike, axes: Any, names: str | Sequence[str] | None) -> list[Panel]:
    """Lay out (chains, draws) on one axes, (chains, draws, dim) on dim axes."""
    values = as_draws(draws)
    single = values.ndim == 2
    if single:
        values = values[..., None]
    dim = values.shape[2]
    if axes is None and dim > MAX_PANELS:
        raise ValueError(
            f"draws have {dim} coordinates, which is more than {MAX_PANELS} panels can show; "
            "choose some, as in draws[..., [0, 3]], or pass your own axes."
        )
    labels: Sequence[str | None]
    if names is None:
        labels = [None] if single else [f"coordinate {i}" for i in range(dim)]
    else:
        labels = check_names(names, dim)
    where = new_axes(dim) if axes is None else given_axes(axes, dim)
    return [Panel(where[i], values[..., i], labels[i]) for i in range(dim)]


def returned(drawn: list[Panel], draws: ArrayLike) -> Any:
    """Give back one axes for (chains, draws), an array of axes for (chains, draws, dim)."""
    if np.ndim(draws) == 2:
        return drawn[0].axes
    return np.array([panel.axes for panel in drawn], dtype=object)


def as_numbers(name: str, values: Any) -> Float[np.ndarray, "..."]:
    """Return real numbers as float64; words and complex numbers are no points to draw."""
    check_real(name, values)
    return np.asarray(values, float)


def as_draws(draws: ArrayLike, ndims: tuple[int, ...] = (2, 3)) -> Float[np.ndarray, "..."]:
    """Check the shape, and turn into float64 with NaN for what is masked or not finite."""
    expected = " or ".join({2: "(chains, draws)", 3: "(chains, draws, dim)"}[n] for n in ndims)
    check_no_key(f"draws must be one array of real numbers {expected}", draws)
    array = np.asarray(draws)
    is_masked = np.ma.getmask(draws)
    try:
        if np.iscomplexobj(array) or array.dtype.kind in "OSU":
            raise TypeError
        array = array.astype(float)  # JAX's small floats too, which are no numbers to NumPy
    except (TypeError, ValueError):
        raise TypeError(
            f"draws must be one array of real numbers {expected}, but hold {array.dtype}; "
            "pass one leaf of the positions."
        ) from None
    if array.ndim not in ndims or array.size == 0:
        raise ValueError(
            f"draws must have shape {expected} and not be empty, but have shape {array.shape}; "
            "add the chain axis with draws[None], or flatten or pick the trailing axes."
        )
    return np.where(np.isfinite(array) & ~np.asarray(is_masked), array, np.nan)


def check_names(names: str | Sequence[str], dim: int) -> list[str]:
    """Names as a list, one for each coordinate."""
    labels = as_names(names)
    if len(labels) != dim:
        raise ValueError(
            f"names has {len(labels)} entries, but the draws have {dim} coordinates; "
            "give one name for each."
        )
    return labels


def listed(items: Collection[Any]) -> str:
    """Name the first five, and say how many more there are.

    Examples
    --------
    >>> listed([0, 3]), listed(range(7))
    ('0, 3', '0, 1, 2, 3, 4 and 2 more')
    """
    more = f" and {len(items) - 5} more" if len(items) > 5 else ""
    return ", ".join(map(str, list(items)[:5])) + more


def report_missing(
    axes: Axes, finite: Bool[np.ndarray, "chains draws"], label: str | None = None
) -> None:
    """Say in the title how many draws are not finite, and in which chains."""
    if finite.all():
        return
    chains = np.flatnonzero(~finite.all(axis=1))
    plural = "s" if len(chains) > 1 else ""
    where = f"chain{plural} {listed(chains)}"
    notice = f"{(~finite).sum():,} of {finite.size:,} draws not finite ({where})"
    add_to_title(axes, notice, label)


def envelope(
    series: Float[np.ndarray, " draws"], max_points: int
) -> tuple[Int[np.ndarray, " points"], Float[np.ndarray, " points"]]:
    """Smallest and largest value of each of max_points / 2 stretches, in the order of time.

    A line through them looks like the line through all draws, excursions included, which
    taking every k-th draw would lose. Short series are returned whole. A stretch with NaNs among
    its values gets one of them too, which leaves a gap.

    Examples
    --------
    >>> envelope(np.array([0.0, 5.0, 1.0, 2.0, -3.0, 4.0]), 4)
    (array([0, 1, 4, 5]), array([ 0.,  5., -3.,  4.]))
    """
    check_count("max_points", max_points)
    n = len(series)
    if n <= max_points:
        return np.arange(n), series
    stretches = max(max_points // 2, 1)
    width = -(-n // stretches)
    padded = np.full(width * -(-n // width), np.nan)
    padded[:n] = series
    blocks = padded.reshape(-1, width)
    missing = np.isnan(blocks)
    lowest = np.argmin(np.where(missing, np.inf, blocks), axis=1)
    highest = np.argmax(np.where(missing, -np.inf, blocks), axis=1)
    pair = np.sort(np.stack([lowest, highest], axis=1), axis=1)
    index = (pair + width * np.arange(len(blocks))[:, None]).ravel()
    missing &= (np.arange(blocks.size) < n).reshape(blocks.shape)  # not what was padded
    partly = np.flatnonzero(missing.any(axis=1) & ~missing.all(axis=1))
    gaps = partly * width + np.argmax(missing[partly], axis=1)
    index = np.sort(np.append(index, gaps), kind="stable")
    return index, padded[index]
