"""The way in and then the law: unadjusted chains until they have settled, then an exact kernel.

Unadjusted microcanonical chains come from an optimised start to where the posterior's mass is with
fewer gradients than HMC, and then draw from a law that is not quite the posterior's. An exact
kernel that starts there needs a short warm-up only: its metric is found on the way in.
"""

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.base import SamplingAlgorithm
from jax.sharding import Mesh
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from jaxbnn.ensembles.energy_error import energy_errors
from jaxbnn.ensembles.found_again import found_again
from jaxbnn.ensembles.initial import check_precision, check_starts
from jaxbnn.ensembles.metric import DIAGONAL, euclidean_metric
from jaxbnn.ensembles.microcanonical import (
    adjusted_microcanonical,
    microcanonical,
    num_integration_steps,
)
from jaxbnn.ensembles.microcanonical_adaptation import SHORTEST_WARMUP
from jaxbnn.ensembles.row_blocks import in_row_blocks
from jaxbnn.ensembles.training import OptimisedStarts
from jaxbnn.ensembles.way_in import Tuning, WayIn, bias_in_words, chains_in_words, go_in
from jaxbnn.kernels import cycle, jittered, on_vector, prior_precisions
from jaxbnn.numerics import check_count
from jaxbnn.numerics.arguments import check_flag, check_progress, check_type, check_word
from jaxbnn.numerics.checks import check_positive_number
from jaxbnn.sampling import Draws, dual_averaging, sample
from jaxbnn.sampling.validation import (
    check_checkpoint,
    check_key,
    check_mesh_type,
    check_positions,
)
from jaxbnn.targets import Posterior
from jaxbnn.targets.hierarchical import HierarchicalPrior

# The exact step size is found from this part of the unadjusted one.
_EXACT_SHARE = 0.3
# HMC takes its step sizes from this part of the mean to either side.
_JITTER = 0.3
_TARGETS = {"adjusted_microcanonical": 0.9, "hmc": 0.8}
# A chain that accepts a smaller part of what was wanted had not found its step size.
_LEAST_OF_TARGET = 0.5
# An unadjusted chain of which a larger part of the steps was undone hardly moves.
_MOST_UNDONE_OF_MOVING = 0.5


class EnsembleDraws(NamedTuple):
    """What `sample_ensemble` returns.

    Attributes
    ----------
    draws
        The kept ones, as `sample` returns them.
    way_in
        What happened before.
    warnings
        Sentences: what did not go as it should.
    rejecting
        The chains whose kept draws hardly move: those whose acceptance rate is below half of what
        the warm-up tunes to; with kernel="microcanonical", those of which more than half of the
        steps were undone. Their step size had not been found.
    """

    draws: Draws
    way_in: WayIn
    warnings: tuple[str, ...]
    rejecting: Int[np.ndarray, " some"]


def sample_ensemble(
    key: PRNGKeyArray,
    posterior: Posterior,
    positions: PyTree | OptimisedStarts,
    num_samples: int,
    *,
    kernel: Literal["adjusted_microcanonical", "hmc", "microcanonical"] = "adjusted_microcanonical",
    num_tuning: int = 1000,
    most_steps: int = 50_000,
    energy_error: float = 0.02,
    start_energy_error: float = 0.5,
    is_preconditioned: bool = True,
    num_warmup: int = 200,
    num_directions: int = 100,
    trajectory_steps: int = 50,
    thinning: int = 1,
    checkpoint: str | os.PathLike | None = None,
    mesh: Mesh | None = None,
    progress: bool | Callable = True,
) -> EnsembleDraws:
    """Sample a network's posterior from several starts: unadjusted chains in, then an exact kernel.

    The way in, in parts: `num_tuning` steps in which `microcanonical` is tuned, to an energy error
    that falls to `energy_error` in the first part and stays there in the others; then as many steps
    with frozen parameters, and in later parts as many as in all before. It ends after two parts at
    the least, when every chain's log density is stationary over the last (`stationarity_time`), at
    most a hundredth of its steps were undone and the chains have not moved together since the one
    before, or when `most_steps` are done. (With fewer than some thirty parameters log densities are
    skewed, settled chains are often taken for drifting ones, and a warning of it may be false; NUTS
    serves there.) Each part has the metric of the prior, and from the
    second on of the scores of the part before. The law: `num_warmup` steps in which dual averaging
    tunes the exact kernel's step size, in the metric of the last part's scores; then kept draws.

    Parameters
    ----------
    key
        The run's key.
    posterior
        The posterior. Where its prior is hierarchical, precisions are moved with the weights, and
        after each trajectory of an exact kernel drawn from their conditionals
        (`prior_precisions`).
    positions
        The starts, leaves (chain, ...): trained networks; or what `optimised_starts` returns.
    num_samples
        Draws kept of each chain.
    kernel
        The exact kernel: "adjusted_microcanonical", or "hmc" with a random step size. Or
        "microcanonical": the draws are those of the unadjusted chains, which cost less and are
        biased; a warning says by how much.
    num_tuning
        Steps of each tuning, at least 100. The decoherence length is not tuned: it is half of
        sqrt(d), in units of the metric, since on the way in nothing is stationary yet.
    most_steps
        Steps of the way in, at most. One part, of `num_tuning` + 80 steps, is made even if that is
        more. Chains that have not settled are named in a warning; after a single part that is all
        of them.
    energy_error, start_energy_error
        As in `microcanonical_adaptation`.
    is_preconditioned
        Whether there is a metric: the prior's second derivatives, and what the likelihood's scores
        add to them in `num_directions` directions, for each chain. It takes the place of the
        chain's variances, which on the way in are those of the path.
    num_warmup
        Steps of the exact kernel before the first kept draw; unadjusted chains need none.
    num_directions
        Narrow directions that the metric has beside the diagonal, at most: half of a part's records
        of the scores, and of the dimensions. 0: none, as where chains times dimensions are more
        than 167,772.
    trajectory_steps
        Integration steps of a trajectory; each is two gradients of a microcanonical kernel, and one
        of HMC. Of unadjusted chains: steps from one draw to the next.
    thinning
        Trajectories from one kept draw to the next.
    checkpoint
        A folder, in which each phase has one of its own: a call with the same arguments goes on
        where the run was stopped.
    mesh, progress
        As in `sample`.

    Returns
    -------
    The draws, and what happened on the way in.

    Raises
    ------
    ValueError
        As `sample`; positions that are not the posterior's; a position of one number; a chain whose
        energy blows up throughout.
    TypeError
        No key, or no `Posterior`; positions of half precision.
    KeyboardInterrupt
        Ctrl-C before the first kept draw; later it ends the run with the draws made so far.

    Notes
    -----
    The exact kernels leave the posterior invariant; that chains settled says nothing of modes that
    none of them saw. Optimised starts with unadjusted microcanonical chains: Sommer et al. (2025).

    Examples
    --------
    >>> import jaxbnn
    >>> network = jaxbnn.mlp((1, 3, 1))
    >>> x = jnp.linspace(-1, 1, 20)[:, None]
    >>> prior = jaxbnn.normal_prior(network)
    >>> posterior = jaxbnn.Posterior(network, prior, jaxbnn.Gaussian(0.3), x, x**2)
    >>> starts = posterior.sample_prior(jax.random.key(0), (4,))
    >>> found = sample_ensemble(
    ...     jax.random.key(1), posterior, starts, 50, num_tuning=100, most_steps=300,
    ...     num_warmup=50, trajectory_steps=10, progress=False,
    ... )
    >>> found.draws.positions[0]["w"].shape
    (4, 50, 1, 3)
    """
    _check_what(key, posterior, kernel)
    check_count("num_samples", num_samples)
    check_count("thinning", thinning)
    check_count("num_tuning", num_tuning, SHORTEST_WARMUP)
    check_count("most_steps", most_steps)
    check_positive_number("energy_error", energy_error)
    check_positive_number("start_energy_error", start_energy_error)
    check_count("num_warmup", num_warmup)
    check_flag("is_preconditioned", is_preconditioned)
    check_count("num_directions", num_directions, 0)
    check_count("trajectory_steps", trajectory_steps)
    check_checkpoint(checkpoint)
    check_progress(progress)
    check_mesh_type(mesh)
    folder = None if checkpoint is None else Path(checkpoint)
    if isinstance(positions, OptimisedStarts):
        positions = positions.positions
    num_chains = check_positions(positions)
    check_starts(positions, posterior, num_chains)
    check_precision(positions)
    posterior = in_row_blocks(posterior, num_chains, mesh)
    key_in, key_exact = jax.random.split(key)

    def run(key, phase, *arguments, **options):
        path = None if folder is None else folder / phase
        return sample(
            key,
            *arguments,
            data=posterior,
            checkpoint=path,
            mesh=mesh,
            progress=progress,
            **options,
        )

    def keep(name, given, find):
        return found_again(None if folder is None else folder / f"{name}.nc", given, find)

    tuning = Tuning(num_tuning, energy_error, start_energy_error, is_preconditioned, num_directions)
    positions, way_in = go_in(key_in, run, keep, posterior, positions, tuning, most_steps)
    if kernel == "microcanonical":
        law = {
            "parameters": way_in.parameters,
            "thinning": thinning * trajectory_steps,
            "reduce": {"energy": energy_errors()},
        }
    else:
        law = {
            "parameters": _exact_parameters(way_in, positions, trajectory_steps),
            "thinning": thinning,
            "num_warmup": num_warmup,
            "adapt": dual_averaging(_TARGETS[kernel], is_pooled=False),
        }
    make_kernel = _KERNELS[kernel]
    if kernel != "microcanonical" and isinstance(posterior.prior, HierarchicalPrior):
        make_kernel = _WITH_PRECISIONS[kernel]
    draws = run(key_exact, "law", make_kernel, positions, num_samples, **law)
    if draws.interrupted and not len(draws.steps):
        raise KeyboardInterrupt
    found = _warnings(way_in, draws)
    if kernel == "microcanonical":
        found += bias_in_words(draws)
        undone = draws.reduced["energy"].per_chain.num_blow_ups
        rejecting = np.flatnonzero(undone > _MOST_UNDONE_OF_MOVING * draws.steps[-1])
    else:
        least = _LEAST_OF_TARGET * _TARGETS[kernel]
        rejecting = np.flatnonzero(~(draws.acceptance_rate >= least))
        if rejecting.size:
            rates = ", ".join(f"{draws.acceptance_rate[chain]:.2g}" for chain in rejecting)
            found += (
                f"Of the trajectories of {chains_in_words(rejecting)} a share of {rates} was "
                f"accepted, where {_TARGETS[kernel]} is wanted: the step size had not been found, "
                "and the kept draws hardly move; give the exact kernel a longer warm-up "
                "(num_warmup).",
            )
    return EnsembleDraws(draws, way_in, found, rejecting)


def _check_what(key: Any, posterior: Any, kernel: Any) -> None:
    check_key(key)
    check_type(
        "posterior", posterior, Posterior, "write Posterior(network, prior, likelihood, x, y)"
    )
    check_word("kernel", kernel, _KERNELS)


def _warnings(way_in: WayIn, draws: Draws) -> tuple[str, ...]:
    found = []
    if (slow := np.flatnonzero(~way_in.is_settled & ~way_in.is_undone)).size:
        found.append(
            f"The log density of {chains_in_words(slow)} had not settled after "
            f"{way_in.num_steps} unadjusted steps: kept draws may begin on the way in; give more "
            "steps (most_steps)."
        )
    if (undone := np.flatnonzero(way_in.is_undone)).size:
        found.append(
            f"Of the last unadjusted steps of {chains_in_words(undone)} more than a hundredth was "
            "undone, so that they count as not settled: their steps are too long where the "
            "posterior is narrow; tune for a smaller energy error (energy_error), or for longer "
            "(num_tuning)."
        )
    if (blown := way_in.blown_up).size:
        found.append(
            f"The energy of {chains_in_words(blown)} blew up in "
            f"{', '.join(str(way_in.num_blow_ups[c]) for c in blown)} of {way_in.num_steps} steps "
            "on the way in, which were undone, with shorter ones after them: these chains moved "
            "slowly where the posterior is narrow; tune for longer (num_tuning), or for a smaller "
            "energy error (energy_error)."
        )
    if draws.interrupted:
        found.append("The run was stopped by Ctrl-C before all draws were made.")
    return tuple(found)


def _exact_parameters(way_in: WayIn, positions: PyTree, trajectory_steps: int) -> dict:
    """Return the exact kernel's parameters: the metric of the way in, and a smaller step."""
    step_size = _EXACT_SHARE * way_in.parameters["step_size"]
    return way_in.metric | {
        "step_size": step_size,
        "decoherence_length": trajectory_steps * step_size,
        # Each chain's own length / step size would have all wait for the longest trajectory.
        "num_integration_steps": jnp.full(step_size.shape, trajectory_steps, jnp.int32),
        "reference": positions,
    }


def _hmc(parameters: dict[str, Array], posterior: Any) -> SamplingAlgorithm:
    """HMC with a random step size; a microcanonical step in d dimensions is sqrt(d) of its own."""
    log_density = posterior.log_density_from(parameters["reference"])
    num_steps = num_integration_steps(parameters)
    size = parameters[DIAGONAL].shape[0]

    def of_step_size(eps):
        metric = euclidean_metric(parameters)
        return on_vector(
            lambda whole: blackjax.hmc(
                lambda v: log_density(whole(v)), eps / math.sqrt(size), metric, num_steps
            )
        )

    return jittered(of_step_size, parameters["step_size"], jitter=_JITTER)


# One function a kernel, so that the runner finds the program that it compiled for it.
def _adjusted_with_precisions(parameters: dict[str, Array], posterior: Any) -> SamplingAlgorithm:
    return cycle(adjusted_microcanonical(parameters, posterior), prior_precisions(posterior))


def _hmc_with_precisions(parameters: dict[str, Array], posterior: Any) -> SamplingAlgorithm:
    return cycle(_hmc(parameters, posterior), prior_precisions(posterior))


_WITH_PRECISIONS = {
    "adjusted_microcanonical": _adjusted_with_precisions,
    "hmc": _hmc_with_precisions,
}
_KERNELS = {
    "adjusted_microcanonical": adjusted_microcanonical,
    "hmc": _hmc,
    "microcanonical": microcanonical,
}
