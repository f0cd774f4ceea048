"""What the library is for, in a minute: two samplers that fail on Iris, and one that does not.

The posterior is that of section 6.2 of Papamarkou et al., a network of 27 parameters. Hidden units
can change places without a change of the output, so that each mode has copies; chains of MALA and
NUTS stay near the copy that they find first. HMC in a cycle with exact jumps between the copies
visits them all.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from matplotlib.figure import Figure
from pydantic import Field

from experiments.datasets import iris
from experiments.studies.challenges.converged import (
    Chains,
    ConvergedRun,
    chains_of,
    flatten,
)
from experiments.study import Context, Row
from jaxbnn import diagnostics, plots

NAMES = {"HMC with moves": "HMC with symmetry moves"}
# R-hat below which chains are commonly pooled (Vehtari et al., 2021).
POOLED = 1.01
SHOWN = 300


class FirstLookSettings(Chains):
    """Settings: the chains, and the runs in the order in which they are shown."""

    runs: tuple[ConvergedRun, ...] = Field(min_length=2)


def run_first_look(settings: FirstLookSettings, context: Context) -> list[Row]:
    """Run the samplers, draw their chains, and say which of them to believe."""
    x, y = iris()
    data = {"x": jnp.asarray(x), "y": jnp.asarray(y)}
    found, rows = {}, []
    for index, run in enumerate(settings.runs):
        name = NAMES.get(run.setting, run.setting)
        print(
            f"{name}: {settings.num_chains} chains, {run.num_samples:,} steps each ...", flush=True
        )
        key = jax.random.fold_in(context.key, index)
        compute = functools.partial(_run, run, settings, data, key)
        result = context.stage(name.replace(" ", "_"), compute)
        raw = result["raw parameters"]
        rhat = float(np.max(diagnostics.rank_rhat(raw)))
        ess = float(np.min(diagnostics.ess_bulk(raw)))
        found[name] = (raw, rhat)
        rows += [
            Row("largest_rhat", name, rhat),
            Row("least_effective_draws", name, ess),
            Row("seconds", name, float(result["seconds"])),
        ]
    context.save_figure("chains", _picture(found), dpi=100)
    context.say(_verdict(found, rows))
    return rows


def _run(run: ConvergedRun, settings: FirstLookSettings, data: dict, key: Array) -> dict:
    draws, seconds = chains_of(run, settings, data, key, warm=False)
    return {"raw parameters": flatten(draws.positions), "seconds": seconds}


def _verdict(found: dict, rows: list[Row]) -> str:
    """Say in a sentence which samplers to believe."""
    value = {(row.quantity, row.setting): row.value for row in rows}
    said: dict[bool, list[str]] = {True: [], False: []}
    for name, (_, rhat) in found.items():
        seconds = value["seconds", name]
        said[rhat < POOLED].append(f"{name} (R-hat {rhat:.3f}, {seconds:.0f} s)")
    parts = []
    if said[False]:
        parts.append(
            f"Do not believe {_listed(said[False])}: the chains disagree about the weights"
        )
    if said[True]:
        parts.append(f"believe {_listed(said[True])}: the chains agree on all of them")
    return f"{'; '.join(parts)[:1].upper()}{'; '.join(parts)[1:]}."


def _listed(names: list[str]) -> str:
    return " and ".join(names)


def _picture(found: dict) -> Figure:
    """Draw one weight of all chains against the draw, and its histogram, a row a sampler."""
    figure = Figure(figsize=(9, 2.1 * len(found)), layout="constrained")
    grid = figure.subplots(len(found), 2, sharey=True, width_ratios=(3, 1), squeeze=False)
    weight = _most_telling(found)
    for (name, (raw, rhat)), (left, right) in zip(found.items(), grid, strict=True):
        every = max(1, raw.shape[1] // SHOWN)
        values = raw[..., weight]
        for chain, color in zip(values, plots.COLORS, strict=False):
            left.plot(chain[::every][:SHOWN], color=color, linewidth=0.7)
            right.hist(chain, bins=40, density=True, orientation="horizontal", histtype="step",
                       color=color)  # fmt: skip
        agree = "the chains agree" if rhat < POOLED else "the chains disagree"
        left.set_title(f"{name}: {agree} (R-hat {rhat:.3f})", fontsize=10, loc="left")
        left.set_ylabel("a weight")
        for axes in (left, right):
            axes.spines[["top", "right"]].set_visible(False)
        right.set_xticks([])
    grid[-1, 0].set_xlabel("draw (every so many of the run)")
    grid[-1, 1].set_xlabel("how often")
    grid[0, 1].set_title("a colour a chain", fontsize=10, loc="left")
    return figure


def _most_telling(found: dict) -> int:
    """Return the weight on which the chains of the first sampler disagree most."""
    raw, _ = next(iter(found.values()))
    return int(np.argmax(diagnostics.rank_rhat(raw)))
