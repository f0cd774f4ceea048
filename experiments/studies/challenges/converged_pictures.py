"""Pictures of the converged posterior beside what unconverged runs say."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from experiments.study import Context
from jaxbnn import plots


def draw(found: Mapping[str, Mapping[str, np.ndarray]], context: Context) -> None:
    """Traces of one weight and of the log density; covariances of the raw parameters."""
    columns = 2
    height = 1.7 * len(found)
    figure = Figure(figsize=(10, height), layout="constrained")
    grid = figure.subplots(len(found), columns, squeeze=False)
    for (setting, result), (left, right) in zip(found.items(), grid, strict=True):
        some = slice(0, 1000)
        plots.trace(result["raw parameters"][:, some, 3], left, names="a weight")
        plots.trace(result["log density"][:, some, 0], right, names="log density")
        left.set_title(f"{setting}: a weight", fontsize=9)
        right.set_title("log density", fontsize=9)
        for axis in (left, right):
            if axis.get_legend():
                axis.get_legend().remove()
    context.save_figure("traces", figure)

    settings = list(found)
    per_row = min(4, len(settings))
    rows = -(-len(settings) // per_row)
    figure = Figure(figsize=(4 * per_row, 3.4 * rows), layout="constrained")
    axes = figure.subplots(rows, per_row, squeeze=False).ravel()
    for axis in axes[len(settings) :]:
        axis.set_axis_off()
    covariances = []
    for setting in settings:
        raw = found[setting]["raw parameters"]
        covariances.append(np.cov(raw.reshape(-1, raw.shape[-1]).T))
    limit = float(np.quantile(np.abs(covariances[0]), 0.999))
    for axis, setting, covariance in zip(axes, settings, covariances, strict=False):
        image = axis.imshow(covariance, cmap="RdBu_r", vmin=-limit, vmax=limit)
        axis.set_title(setting, fontsize=9)
        axis.set_xticks([])
        axis.set_yticks([])
    figure.colorbar(image, ax=axes.tolist(), shrink=0.6, label="covariance")
    context.save_figure("covariances", figure)
