"""Gradient descent on XOR from draws of a prior (Papamarkou et al., section 6.1.3 and figure 1).

Each start is followed for a fixed number of epochs; the end is a solution if all four points
are classified right, that is if P(y = 1) is above the threshold for the ones only.
"""

import functools
import math
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PyTree
from pydantic import Field, model_validator

from experiments.datasets import xor
from experiments.errors import InputError
from experiments.studies.challenges import pictures
from experiments.studies.challenges.common import paper_order
from experiments.studies.challenges.regions import gradient_descent_rows
from experiments.study import Context, Row, Settings
from jaxbnn import Bernoulli, Posterior, mlp, normal_prior, uniform_prior

NETWORK = mlp((2, 2, 1), activation="sigmoid")
THETA_4 = 3
# A batch of starts that gives no solution at all is no reason to go on for ever.
MAX_BATCHES = 1000


class Start(Settings):
    """The prior of the starts, N(0, variance I) or U(-bound, bound)."""

    prior_variance: float | None = Field(default=None, gt=0)
    prior_bound: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _one_of_both(self):
        if (self.prior_variance is None) == (self.prior_bound is None):
            raise ValueError("give either prior_variance or prior_bound")
        return self

    @property
    def prior(self) -> str:
        """The paper's words for the prior."""
        if self.prior_bound is not None:
            return f"U(-{self.prior_bound:g}, {self.prior_bound:g})"
        return f"N(0, {self.prior_variance:g}I)"


class GradientDescentSettings(Settings):
    """Settings of figure 1.

    The loss is the mean of the four points' cross-entropies (the default of PyTorch's BCELoss,
    which the authors minimise). `batch_size` starts are followed at once.
    """

    num_solutions: int = Field(ge=50)
    num_epochs: int = Field(ge=1)
    learning_rate: float = Field(gt=0)
    threshold: float = Field(ge=0.5, lt=1)
    batch_size: int = Field(ge=1)
    num_plotted: int = Field(ge=1)
    starts: tuple[Start, ...] = Field(min_length=1)


def run_gradient_descent(settings: GradientDescentSettings, context: Context) -> list[Row]:
    """Collect the solutions of each prior, draw figure 1 a and b, return the numbers."""
    rows, solutions = [], {}
    for index, start in enumerate(settings.starts):
        key = jax.random.fold_in(context.key, index)
        found = context.stage(
            f"start_{index}", functools.partial(_collect, start, settings, context, key)
        )
        solutions[start.prior] = found["solutions"]
        rows += _rows(start, found)
        rate = found["num_solutions"] / found["num_starts"]
        print(f"{start.prior}: {rate:.1%} of {int(found['num_starts'])} descents are solutions")
    normal = next((start.prior for start in settings.starts if start.prior_variance), None)
    if normal is not None and len(settings.starts) > 1:
        thetas = {prior: found[:, THETA_4] for prior, found in solutions.items()}
        rows += gradient_descent_rows(thetas, normal)
    pictures.gradient_descent_figures(solutions, settings.num_plotted, context)
    return rows


def descend(
    starts: PyTree, data: PyTree, learning_rate: float, num_epochs: int
) -> tuple[PyTree, Float[jax.Array, "starts points"]]:
    """Follow every start by gradient descent; return the ends and their P(y = 1).

    Leaves are (starts, ...); inside, the starts are the last axis, along which the processor
    computes several at once.
    """
    prior = normal_prior(NETWORK)  # the loss is the likelihood alone
    target = Posterior(NETWORK, prior, Bernoulli(), data["x"], data["y"])

    def loss(params):
        return -jnp.mean(target.log_likelihood(params))

    gradient = jax.vmap(jax.grad(loss), in_axes=-1, out_axes=-1)

    def epoch(_, params):
        return jax.tree.map(lambda p, g: p - learning_rate * g, params, gradient(params))

    last = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -1), starts)
    last = jax.lax.fori_loop(0, num_epochs, epoch, last)
    ends = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, -1, 0), last)
    logits = jax.vmap(lambda params: NETWORK.apply(params, data["x"])[:, 0])(ends)
    return ends, jax.nn.sigmoid(logits)


def search(
    start: Start, settings: GradientDescentSettings
) -> Callable[[jax.Array], tuple[np.ndarray, int]]:
    """Return `find(key) -> (solutions (num_solutions, 9), number of starts)`, compiled once."""
    x, y = xor()
    data = {"x": jnp.asarray(x), "y": jnp.asarray(y)}
    if start.prior_bound is not None:
        prior = uniform_prior(NETWORK, -start.prior_bound, start.prior_bound)
    else:
        assert start.prior_variance is not None  # checked with the settings
        precision = 1 / start.prior_variance
        prior = normal_prior(NETWORK, weight_precision=precision, bias_precision=precision)
    target = Posterior(NETWORK, prior, Bernoulli(), data["x"], data["y"])

    @jax.jit
    def batch(key):
        starts = target.sample_prior(key, (settings.batch_size,))
        ends, chance = descend(starts, data, settings.learning_rate, settings.num_epochs)
        is_right = (chance > settings.threshold) == (data["y"] == 1)[None]
        return ends, is_right.all(axis=1)

    def find(key):
        kept, num_kept = [], 0
        for index in range(MAX_BATCHES):
            ends, is_solution = batch(jax.random.fold_in(key, index))
            flat = paper_order(jax.tree.map(lambda leaf: leaf[None], ends))[0]
            kept.append(flat[np.asarray(is_solution)])
            num_kept += len(kept[-1])
            if num_kept >= settings.num_solutions:
                return np.concatenate(kept), (index + 1) * settings.batch_size
        raise InputError(
            f"Only {num_kept} of {MAX_BATCHES * settings.batch_size} descents from {start.prior} "
            "ended in a solution; take more epochs or a lower threshold."
        )

    return find


def _collect(start: Start, settings: GradientDescentSettings, context: Context, key) -> dict:
    """Return the solutions and what they were found among; a step of the speed is an epoch."""
    find = search(start, settings)
    begin = time.perf_counter()
    solutions, num_starts = find(key)
    seconds = time.perf_counter() - begin
    context.record_speed(start.prior, num_starts * settings.num_epochs, seconds)
    return {
        "solutions": solutions[: settings.num_solutions],
        "num_starts": num_starts,
        "num_solutions": len(solutions),
    }


def _rows(start: Start, found: dict) -> list[Row]:
    rate = float(found["num_solutions"] / found["num_starts"])
    error = math.sqrt(rate * (1 - rate) / found["num_starts"])
    setting = f"gradient descent, prior {start.prior}"
    theta = found["solutions"][:, THETA_4]
    near = float(np.mean(np.abs(theta) < 5))
    near_error = math.sqrt(near * (1 - near) / len(theta))
    return [
        Row("solutions_per_cent", setting, 100 * rate, 100 * error),
        Row("per_cent_within_5_of_zero", f"{setting}, theta_4", 100 * near, 100 * near_error),
    ]
