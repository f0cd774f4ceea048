"""XOR by MLP(2, 2, 1): Metropolis and MALA under several priors (Papamarkou et al., section 6.1).

Table 1, Table 3, the numbers in the text of section 6.1, and figures 1c, 2, 3, 6 and 7.
"""

import dataclasses
import functools
import math
from typing import Literal

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from pydantic import Field, model_validator

from experiments.datasets import xor
from experiments.studies.challenges import pictures
from experiments.studies.challenges.common import (
    diagnostics_of,
    means_of,
    other_rhats,
    over_seeds,
    paper_order,
    parameter_names,
    table_rows,
)
from experiments.studies.challenges.covariances import covariance_rows
from experiments.studies.challenges.regions import chain_rows
from experiments.study import Context, Row, Settings, all_draws
from jaxbnn import (
    Bernoulli,
    Posterior,
    diagnostics,
    dual_averaging,
    mlp,
    normal_prior,
    truncated_mala,
    uniform_prior,
)

NETWORK = mlp((2, 2, 1), activation="sigmoid")


class XorRun(Settings):
    """One row of Table 1: a sampler under the prior N(mean, variance I), or U(-bound, bound).

    Either the step size is tuned to `target_acceptance_rate` during burn-in, or it is given:
    the standard deviation of the Metropolis step, or MALA's eps.
    """

    sampler: Literal["MH", "MALA", "truncated MALA"]
    prior_mean: float = 0.0
    prior_variance: float | None = Field(default=None, gt=0)
    prior_bound: float | None = Field(default=None, gt=0)
    target_acceptance_rate: float | None = Field(default=None, gt=0, lt=1)
    step_size: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _one_of_both(self):
        if (self.target_acceptance_rate is None) == (self.step_size is None):
            raise ValueError("give either target_acceptance_rate or step_size")
        return self

    @model_validator(mode="after")
    def _prior_fits_the_sampler(self):
        if (self.prior_variance is None) == (self.prior_bound is None):
            raise ValueError("give either prior_variance or prior_bound")
        if (self.sampler == "truncated MALA") != (self.prior_bound is not None):
            raise ValueError("prior_bound goes with the sampler 'truncated MALA', and only with it")
        return self

    @property
    def prior(self) -> str:
        """The paper's words for the prior."""
        if self.prior_bound is not None:
            return f"U(-{self.prior_bound:g}, {self.prior_bound:g})"
        return f"N({self.prior_mean:g}, {self.prior_variance:g}I)"

    @property
    def setting(self) -> str:
        """The paper's words for this run."""
        return f"{self.sampler}, prior {self.prior}"


class XorSettings(Settings):
    """Settings of the XOR experiment; the runs are the rows of the tables.

    Each is run `num_seeds` times, each time with chains of its own: this says by how much the
    numbers of one set of chains, which is what the paper prints, vary.
    """

    num_chains: int = Field(ge=3)  # the errors leave out one chain at a time
    num_seeds: int = Field(default=1, ge=1)
    num_iterations: int = Field(ge=100)
    num_burn_in: int = Field(ge=1)
    runs: tuple[XorRun, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _leaves_draws(self):
        if self.num_burn_in > self.num_iterations - 100:
            raise ValueError("num_burn_in must leave at least 100 of num_iterations")
        return self


def posterior(parameters, data) -> Posterior:
    """Return the XOR posterior; prior mean, variance and bound may be traced."""
    if "prior_bound" in parameters:
        bound = parameters["prior_bound"]
        prior = uniform_prior(NETWORK, -bound, bound)
        return Posterior(NETWORK, prior, Bernoulli(), data["x"], data["y"])
    precision = 1 / parameters["prior_variance"]
    prior = normal_prior(
        NETWORK,
        weight_precision=precision,
        bias_precision=precision,
        mean=parameters["prior_mean"],
    )
    return Posterior(NETWORK, prior, Bernoulli(), data["x"], data["y"])


def metropolis(parameters, data):
    """Random-walk Metropolis; `step_size` is the standard deviation of the step."""
    log_density = posterior(parameters, data).log_density
    scale = parameters["step_size"]
    return blackjax.additive_step_random_walk.normal_random_walk(
        log_density, jnp.full(9, scale, scale.dtype)
    )


def mala(parameters, data):
    """MALA; BlackJAX's step is eps^2 / 2."""
    return blackjax.mala(posterior(parameters, data).log_density, parameters["step_size"] ** 2 / 2)


def bounded_mala(parameters, data):
    """MALA with proposals truncated to the prior's box; `step_size` is eps."""
    bound = parameters["prior_bound"]
    log_density = posterior(parameters, data).log_density
    return truncated_mala(log_density, parameters["step_size"], -bound, bound)


KERNELS = {"MH": metropolis, "MALA": mala, "truncated MALA": bounded_mala}
SOURCES = {
    "MH": "004 Section 6.1.1",
    "MALA": "004 Table 1",
    "truncated MALA": "004 Table 1",
}
# Numbers of the tables that the text repeats: place, quantity and setting.
IN_THE_TEXT = [
    ("004 Section 6.1.1", "ess_min", "MALA, prior N(0, 3I)"),
    *[
        ("004 Section 6.1.2", "ess_min", f"MALA, prior {prior}")
        for prior in ("N(0, 3I)", "N(0, 10I)", "N(0, 100I)", "N(10, 3I)")
    ],
    *[
        ("004 Section 6.1.4", quantity, "truncated MALA, prior U(-20, 20)")
        for quantity in ("psrf_split", "psrf_folded_split", "ess_min")
    ],
    ("004 Section 6.1.5", "mean", "truncated MALA, prior U(-20, 20), theta_4"),
]
# Where dual averaging starts, in units of the prior's standard deviation.
START_STEP_SIZES = {"MH": 0.3, "MALA": 0.5, "truncated MALA": 0.1}


def run_xor(settings: XorSettings, context: Context) -> list[Row]:
    """Run every row of the tables, draw the figures, return the numbers."""
    rows, kept = [], {}
    for index, run in enumerate(settings.runs):
        seeds = []
        for seed in range(settings.num_seeds):
            key = jax.random.fold_in(jax.random.fold_in(context.key, index), seed)
            compute = functools.partial(_sample, run, settings, context, key, keeps_draws=not seed)
            name = f"run_{index}" + (f"_seed_{seed + 1}" if seed else "")
            seeds.append(context.stage(name, compute))
        # Pictures, regions and covariances are of the first seed.
        draws = kept[run.setting] = seeds[0].pop("draws")
        rows += over_seeds([_rows(run, found) for found in seeds])
        print(f"\n{run.setting}, step size {float(seeds[0]['step_size']):.4g}")
        print(diagnostics.summary(draws, names=parameter_names(9)))
        if run.prior_bound is not None:
            rows += chain_rows(draws[..., pictures.THETA_4], run.setting)
    rows += covariance_rows(kept, context)
    pictures.xor_figures(settings.runs, kept, context)
    computed = {(row.quantity, row.setting): row for row in rows}
    return rows + [
        dataclasses.replace(computed[quantity, setting], source=source)
        for source, quantity, setting in IN_THE_TEXT
        if (quantity, setting) in computed
    ]


def _sample(
    run: XorRun, settings: XorSettings, context: Context, key, *, keeps_draws: bool
) -> dict:
    key_start, key_run = jax.random.split(key)
    x, y = xor()
    data = {"x": jnp.asarray(x), "y": jnp.asarray(y)}
    num_chains = settings.num_chains
    if run.prior_variance is not None:
        scale = math.sqrt(run.prior_variance)
        prior = {"prior_mean": run.prior_mean, "prior_variance": run.prior_variance}
    else:
        assert run.prior_bound is not None  # checked with the settings
        scale = run.prior_bound / math.sqrt(3)
        prior = {"prior_bound": run.prior_bound}
    start = START_STEP_SIZES[run.sampler] * scale
    parameters = {"step_size": run.step_size or start, **prior}
    starts = posterior(parameters, data).sample_prior(key_start, (num_chains,))
    num_samples = settings.num_iterations - settings.num_burn_in
    with context.timed(run.setting, num_chains * settings.num_iterations):
        draws = all_draws(
            key_run,
            KERNELS[run.sampler],
            starts,
            num_samples,
            parameters=parameters,
            data=data,
            num_warmup=settings.num_burn_in,
            adapt=(
                None
                if run.target_acceptance_rate is None
                else dual_averaging(run.target_acceptance_rate)
            ),
        )
    matrix = paper_order(draws.positions)
    return {
        **({"draws": matrix} if keeps_draws else {}),
        "step_size": np.asarray(draws.parameters["step_size"][0]),
        **diagnostics_of(matrix, draws.acceptance_rate),
        **other_rhats(matrix),
        **(_mean_ess(matrix) if run.sampler == "MH" else {}),
        **means_of(matrix),
    }


def _mean_ess(matrix: np.ndarray) -> dict:
    """ESS averaged over parameters and chains, which the text prints for Metropolis."""
    means = np.asarray(diagnostics.ess_geyer(matrix)).mean(axis=1)
    return {"ess_mean": np.array([means.mean(), means.std(ddof=1) / math.sqrt(len(means))])}


def _rows(run: XorRun, found: dict) -> list[Row]:
    pairs = {name: value for name, value in found.items() if np.shape(value) == (2,)}
    rows = [
        # The text gives the mean instead of the median for Metropolis.
        dataclasses.replace(row, source=None)
        if (run.sampler, row.quantity) == ("MH", "ess_median")
        else row
        for row in table_rows(pairs, run.setting, SOURCES[run.sampler])
    ]
    table_3 = None if run.sampler == "MH" else "004 Table 3"
    means = zip(found["mean"], found["mean_error"], strict=True)
    rows += [
        Row("mean", f"{run.setting}, theta_{i + 1}", float(mean), float(error), table_3)
        for i, (mean, error) in enumerate(means)
    ]
    others = [name for name in found if name.startswith("psrf_") and name not in pairs]
    rows += [Row(name, run.setting, float(found[name])) for name in (*others, "step_size")]
    return rows
