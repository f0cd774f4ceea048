"""Predictive densities of stacked draws at test rows, and how far two of them lie apart."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PyTree
from scipy.special import logsumexp

from experiments.studies.ensembles.problems import Problem
from experiments.study import Row
from jaxbnn.diagnostics import rank_rhat

GRID = 201
WIDTH = 7.0  # predictive standard deviations on both sides of the grid's middle


def grid_around(
    middle: Float[np.ndarray, " row"], spread: Float[np.ndarray, " row"]
) -> Float[np.ndarray, "point row"]:
    """Return targets on both sides of a middle, in units of the predictive spread."""
    return middle + spread * np.linspace(-WIDTH, WIDTH, GRID)[:, None]


def steps_of(spread: Float[np.ndarray, " row"]) -> Float[np.ndarray, " row"]:
    """Return the distance between the grid's points."""
    return spread * 2 * WIDTH / (GRID - 1)


def middle_and_spread(
    posed: Problem, means: Float[np.ndarray, "chain draw row"], places: PyTree
) -> tuple[Float[np.ndarray, " row"], Float[np.ndarray, " row"]]:
    """Return mean and deviation of the predictive density, about: for a grid around it.

    `means` are of all draws; `places`, leaves (place, ...), say how large the noise is.
    """
    variances = jax.vmap(lambda p: posed.posterior.predictive(p, posed.x_test).variance)(places)
    noise = np.asarray(variances, np.float64).mean(axis=0)
    return means.mean(axis=(0, 1)), np.sqrt(means.var(axis=(0, 1)) + noise)


def predictive_means(posed: Problem, positions: PyTree) -> Float[np.ndarray, "chain draw row"]:
    """Return the predictive means at the test rows."""

    @jax.jit
    def run(positions):
        one = lambda p: posed.posterior.predictive(p, posed.x_test).mean  # noqa: E731
        return jax.lax.map(lambda chain: jax.lax.map(one, chain, batch_size=64), positions)

    return np.asarray(run(jax.tree.map(jnp.asarray, positions)), np.float64)


def predictive_densities(
    posed: Problem, positions: PyTree, grid: Float[np.ndarray, "point row"]
) -> dict[str, np.ndarray]:
    """Return each chain's densities on the grid (chain, point, row) and at the targets."""
    points = jnp.asarray(np.concatenate([grid, posed.y_test[None]]), jnp.float32)

    @jax.jit
    def densities(chain):
        def add(total, position):
            predictive = posed.posterior.predictive(position, posed.x_test)
            return jnp.logaddexp(total, predictive.log_prob(points)), None

        total, _ = jax.lax.scan(add, jnp.full(points.shape, -jnp.inf), chain)
        return total - jnp.log(float(len(jax.tree.leaves(chain)[0])))

    positions = jax.tree.map(jnp.asarray, positions)
    # Far from a density float32 holds its logarithm, where it holds 0 for the density itself.
    found = np.exp(np.asarray(jax.lax.map(densities, positions), np.float64))
    return {"densities": found[:, :-1], "at_targets": found[:, -1]}


def total_variation(
    a: Float[np.ndarray, "chain point row"],
    b: Float[np.ndarray, "other point row"],
    steps: Float[np.ndarray, " row"],
) -> float:
    """Return the mean over rows, of the densities of all chains together; half of |a - b|.

    What lies beyond the grid's ends counts by how much more of one there is than of the other.
    """
    a, b = a.mean(axis=0), b.mean(axis=0)
    inside = np.abs(a - b).sum(axis=0) * steps
    outside = np.abs((a - b).sum(axis=0) * steps)
    return float(0.5 * (inside + outside).mean())


def lppd(found: Mapping[str, np.ndarray]) -> float:
    """Return the mean log predictive density of the targets, of all chains together."""
    return float(np.log(np.maximum(found["at_targets"].mean(axis=0), 1e-300)).mean())


def at_targets(posed: Problem, positions: PyTree) -> dict[str, np.ndarray]:
    """Return each chain's "log_density", "mean" and "second_moment" at the test rows (chain, row).

    And "rhat" of the predictive means (row,): NaN where there are fewer than four draws.
    """
    targets = jnp.asarray(posed.y_test, jnp.float32)

    @jax.jit
    def predicted(positions):
        def one(position):
            law = posed.posterior.predictive(position, posed.x_test)
            return law.log_prob(targets), law.mean, law.variance

        return jax.lax.map(lambda chain: jax.lax.map(one, chain), positions)

    log_density, mean, variance = (np.asarray(a, float) for a in predicted(positions))
    num_draws = log_density.shape[1]
    rhat = np.asarray(rank_rhat(mean)) if num_draws >= 4 else np.full(mean.shape[-1], np.nan)
    return {
        "log_density": logsumexp(log_density, axis=1) - np.log(num_draws),
        "mean": mean.mean(axis=1),
        "second_moment": (variance + mean**2).mean(axis=1),
        "rhat": rhat,
    }


def lppd_of_mixture(log_density: Float[np.ndarray, "part row"]) -> float:
    """Return the mean over rows of the log density of the parts' mixture, in nats."""
    return float(np.mean(logsumexp(log_density, axis=0) - np.log(len(log_density))))


def gaussian_scores(where: str, found: Mapping[str, np.ndarray], posed: Problem) -> list[Row]:
    """Return rows "nll", of the Gaussian of the mixture's mean and variance, and "rmse"."""
    mean = found["mean"].mean(axis=0)
    variance = found["second_moment"].mean(axis=0) - mean**2
    errors = np.square(posed.y_test - mean)
    nll = 0.5 * np.log(2 * np.pi * variance) + errors / variance / 2
    return [
        Row("nll", where, float(nll.mean())),
        Row("rmse", where, float(np.sqrt(errors.mean()))),
    ]
