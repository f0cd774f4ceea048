"""Log evidence of MLP(4, h, 3) on Iris, h = 1..6, from ladders of power posteriors.

Beyond the paper, whose ladders are all at temperature 1. Each rung is sampled by HMC in a cycle
with the moves of `iris_converged`, without which no rung near temperature 1 mixes; two estimates
from the same draws, and for one h also from rungs that other kernels sample.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from pydantic import Field

from experiments.datasets import iris
from experiments.studies.challenges.ladders import Ladder, run_ladder
from experiments.studies.challenges.moves import Sampler
from experiments.study import Context, Row, Settings
from jaxbnn import diagnostics

METHODS = {
    "thermodynamic integration": diagnostics.thermodynamic_integration,
    "BAR": diagnostics.bennett_acceptance_ratio,
}


class EvidenceRun(Settings):
    """The evidence of one width by one sampler's ladder."""

    hidden: int = Field(ge=1)
    sampler: Sampler
    num_burn_in: int = Field(ge=1)
    num_samples: int = Field(ge=100)

    @property
    def setting(self) -> str:
        """What the rows call it."""
        return f"MLP(4, {self.hidden}, 3), {self.sampler}"


class EvidenceSettings(Settings):
    """Settings of the evidence experiment."""

    num_chains: int = Field(ge=2)
    prior_variance: float = Field(gt=0)
    ladder: Ladder
    runs: tuple[EvidenceRun, ...] = Field(min_length=1)


def run_evidence(settings: EvidenceSettings, context: Context) -> list[Row]:
    """Run every ladder, return both estimates of each log evidence, draw the figure."""
    x, y = iris()
    data = {"x": jnp.asarray(x), "y": jnp.asarray(y)}
    rows: list[Row] = []
    found = {}
    for index, run in enumerate(settings.runs):
        key = jax.random.fold_in(context.key, index)
        compute = functools.partial(_run, run, settings, data, key)
        result = context.stage(f"h{run.hidden}_{run.sampler}", compute)
        found[run] = result
        own = _rows(run, result)
        rows += own
        print(
            f"{run.setting}: log evidence "
            + ", ".join(
                f"{value:.3f} +- {error:.3f} ({name})"
                for name, (value, error) in zip(METHODS, result["estimates"], strict=True)
            )
            + f"; R-hat of the log likelihoods at most {float(result['rhat']):.4f}, "
            f"swaps accepted {result['swap_acceptance'].min():.2f} or more"
        )
    context.save_figure("log_evidence", _figure(found))
    return rows


def _run(run: EvidenceRun, settings: EvidenceSettings, data, key) -> dict:
    drawn = run_ladder(
        key,
        run.sampler,
        run.hidden,
        settings.prior_variance,
        settings.ladder,
        data,
        num_chains=settings.num_chains,
        num_burn_in=run.num_burn_in,
        num_samples=run.num_samples,
    )
    found = [method(drawn.log_likelihoods, drawn.temperatures) for method in METHODS.values()]
    estimates = [(one.log_evidence, one.standard_error) for one in found]
    per_chain = [
        [
            float(method(drawn.log_likelihoods[c : c + 1], drawn.temperatures).log_evidence)
            for c in range(settings.num_chains)
        ]
        for method in METHODS.values()
    ]
    return {
        "estimates": np.array(estimates),
        "per_chain": np.array(per_chain),
        "temperatures": drawn.temperatures,
        "mean_log_likelihoods": drawn.log_likelihoods.mean(axis=(0, 1)),
        "rhat": np.max(diagnostics.rank_rhat(drawn.log_likelihoods)),
        "ess": np.min(diagnostics.ess_bulk(drawn.log_likelihoods)),
        "swap_acceptance": drawn.swap_acceptance,
        "round_trips": drawn.round_trips,
    }


def _rows(run: EvidenceRun, result: dict) -> list[Row]:
    rows = [
        Row("log_evidence", f"{run.setting}, {name}", float(value), float(error))
        for name, (value, error) in zip(METHODS, result["estimates"], strict=True)
    ]
    first, second = result["estimates"][:, 0].tolist()
    # From the same draws, so that the errors are not independent: the difference's own, from
    # the chains.
    differences = result["per_chain"][0] - result["per_chain"][1]
    error = float(differences.std(ddof=1) / np.sqrt(len(differences)))
    return [
        *rows,
        Row("difference_of_methods", run.setting, first - second, error),
        Row("rhat_log_likelihoods", run.setting, float(result["rhat"])),
        Row("ess_bulk_log_likelihoods", run.setting, float(result["ess"])),
        Row("least_swap_acceptance", run.setting, float(result["swap_acceptance"].min())),
        Row("round_trips", run.setting, float(result["round_trips"].sum())),
    ]


def _figure(found: dict) -> Figure:
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    samplers = list(dict.fromkeys(run.sampler for run in found))
    offset = 0.0
    for sampler in samplers:
        for row, name in enumerate(METHODS):
            points = [
                (run.hidden, *result["estimates"][row])
                for run, result in found.items()
                if run.sampler == sampler
            ]
            hidden, value, error = np.array(points).T
            left.errorbar(
                hidden + offset,
                value,
                2 * error,
                fmt="o-" if len(points) > 1 else "s",
                markersize=3,
                capsize=2,
                linewidth=1,
                label=f"{name}, {sampler}",
            )
            offset += 0.06
    left.set_xlabel("hidden units h")
    left.set_ylabel("log evidence, two standard errors")
    left.xaxis.get_major_locator().set_params(integer=True)
    left.legend(fontsize=7)
    for run, result in found.items():
        if run.sampler == samplers[0]:
            right.plot(
                result["temperatures"],
                result["mean_log_likelihoods"],
                "o-",
                markersize=3,
                linewidth=1,
                label=f"h = {run.hidden}",
            )
    right.set_xscale("symlog", linthresh=1e-3)
    right.set_yscale("symlog", linthresh=10)
    right.set_xlabel("temperature t")
    right.set_ylabel("mean log likelihood at t")
    right.legend(fontsize=7)
    return figure
