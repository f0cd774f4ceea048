"""The figures of the study, numbered as in the paper."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpyro.distributions as dist
from matplotlib.figure import Figure

from experiments.studies.challenges.common import Matrix
from experiments.study import Context
from jaxbnn import plots

# theta_4 and theta_8 of MLP(2, 2, 1): W(1)_22 and W(2)_12.
THETA_4, THETA_8 = 3, 7


def _panels(count: int, columns: int = 3, size=(4.6, 3.1)) -> tuple[Figure, list]:
    rows = -(-count // columns)
    figure = Figure(figsize=(size[0] * min(columns, count), size[1] * rows), layout="constrained")
    grid = figure.subplots(rows, min(columns, count), squeeze=False).ravel()
    for unused in grid[count:]:
        unused.set_axis_off()
    return figure, list(grid[:count])


def xor_figures(runs: Sequence[Any], kept: Mapping[str, Matrix], context: Context) -> None:
    """Figures 1c, 2, 3, 6 and 7: marginals with priors, covariances, traces."""
    mala = [run for run in runs if run.sampler != "MH"]
    if mala:
        context.save_figure("figure_2_theta_4", _marginals(mala, kept, THETA_4, "theta_4"))
        context.save_figure("figure_7_theta_8", _marginals(mala, kept, THETA_8, "theta_8"))
    context.save_figure("figure_3_covariance", _covariances(kept))
    context.save_figure("figure_6_theta_4", _traces(runs, kept))
    for run in runs:
        if run.prior_bound is not None:
            figure, (axis,) = _panels(1, size=(6.4, 3.2))
            plots.trace(kept[run.setting][:1, :, THETA_4], axis, names="theta_4")
            axis.set_title(run.setting)
            context.save_figure("figure_1c_theta_4", figure)


def gradient_descent_figures(
    solutions: Mapping[str, np.ndarray],
    num_plotted: int,
    context: Context,
) -> None:
    """Figure 1a, lines through the first prior's solutions; figure 1b, densities of theta_4."""
    first = next(iter(solutions))
    figure, (axis,) = _panels(1, size=(7.0, 3.8))
    names = [rf"$\theta_{{{i + 1}}}$" for i in range(9)]
    plots.parallel_coordinates(
        solutions[first][None, :num_plotted], axis, names=names, max_lines=num_plotted
    )
    axis.set_title(f"{min(num_plotted, len(solutions[first]))} solutions from {first}")
    context.save_figure("figure_1a_solutions", figure)
    figure, (axis,) = _panels(1, size=(5.6, 3.6))
    for prior, found in solutions.items():
        # Descent leaves the box that the starts come from: no bounds for these densities. The rule
        # of thumb would smooth the two sides into one.
        theta = found[None, :, THETA_4]
        plots.density(theta, axis, bandwidth=0.5, names="theta_4", label=prior, show_chains=False)
    axis.set_title("gradient-descent solutions")
    context.save_figure("figure_1b_theta_4", figure)


def _marginals(runs: Sequence[Any], kept: Mapping[str, Matrix], index: int, name: str) -> Figure:
    """One chain's density a prior with that prior, and all densities together."""
    figure, axes = _panels(len(runs) + 1)
    for axis, run in zip(axes, runs, strict=False):
        draws = kept[run.setting][:1, :, index]
        bounds = None if run.prior_bound is None else (-run.prior_bound, run.prior_bound)
        if bounds is None:
            prior = dist.Normal(run.prior_mean, run.prior_variance**0.5)
        else:
            prior = dist.Uniform(*bounds)
        plots.density(draws, axis, prior=prior, bounds=bounds, names=name, show_chains=False)
        axis.set_title(run.setting)
        plots.density(
            draws, axes[-1], bounds=bounds, names=name, label=run.prior, show_chains=False
        )
    axes[-1].set_title("the posteriors together")
    return figure


def _covariances(kept: Mapping[str, Matrix]) -> Figure:
    figure, axes = _panels(len(kept), size=(5.0, 4.2))
    names = [f"{i + 1}" for i in range(9)]
    plots.covariance_heat_map(
        dict(kept), np.array(axes, dtype=object), names=names, shared_scale=False
    )
    return figure


def _traces(runs: Sequence[Any], kept: Mapping[str, Matrix]) -> Figure:
    """Trace of one chain a run, and autocorrelations and running means of them all."""
    figure, axes = _panels(len(kept) + 3)
    legend_place = axes.pop()
    for axis, setting in zip(axes, kept, strict=False):
        draws = kept[setting][:1, :, THETA_4]
        plots.trace(draws, axis, names="theta_4")
        axis.set_title(setting)
        plots.autocorrelation(draws, axes[-2], names="theta_4", label=setting)
        plots.running_mean(draws, axes[-1], names="theta_4", label=setting)
    axes[-2].set_title("autocorrelation of theta_4")
    axes[-1].set_title("running mean of theta_4")
    for axis in axes[-2:]:  # the same lines: one legend, in a panel of its own
        axis.get_legend().remove()
    legend_place.set_axis_off()
    legend_place.legend(*axes[-1].get_legend_handles_labels(), loc="upper left", frameon=False)
    return figure


def iris_figures(
    kept: Mapping[str, Matrix], log_density: Mapping[str, np.ndarray], context: Context
) -> None:
    """Figures 4 and 5: traces of theta_23 and log density, autocorrelation, covariances."""
    theta_23 = 22
    figure, axes = _panels(2 * len(kept) + 1, columns=2, size=(5.6, 2.9))
    for i, (sampler, draws) in enumerate(kept.items()):
        plots.trace(draws[..., theta_23], axes[2 * i], names="theta_23")
        axes[2 * i].set_title(f"{sampler}: theta_23")
        plots.trace(log_density[sampler], axes[2 * i + 1], names="log density")
        axes[2 * i + 1].set_title(f"{sampler}: log density")
        plots.autocorrelation(draws[..., theta_23], axes[-1], names="theta_23", label=sampler)
    axes[-1].set_title("autocorrelation of theta_23")
    context.save_figure("figure_4_theta_23", figure)
    figure, axes = _panels(len(kept), size=(5.6, 4.8))
    plots.covariance_heat_map(
        dict(kept), np.array(axes, dtype=object), names=[f"{i + 1}" for i in range(27)]
    )
    context.save_figure("figure_5_covariance", figure)
