"""One of our methods on one data set: `... .ours METHOD data.npz predictions.npz SEED`.

Settings were chosen on splits of training rows (`--set is_development=true`), of airfoil only.
"""

import sys
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.base import SamplingAlgorithm

from jaxbnn import Draws, Posterior, mlp, normal_prior, sample, targets, window_adaptation
from jaxbnn.ensembles import OptimisedStarts, optimised_starts, sample_ensemble

HIDDEN = (16, 16, 16, 16)
NUM_CHAINS = 10
NUM_DRAWS = 100
# Of `sample_ensemble`. "quick" keeps unadjusted draws, "exact" those of an exact kernel.
SETTINGS: dict[str, dict[str, Any]] = {
    "quick": {
        "kernel": "microcanonical",
        "start_energy_error": 0.3,
        "energy_error": 0.02,
        "most_steps": 9000,
        "trajectory_steps": 30,
    },
    "exact": {
        "kernel": "adjusted_microcanonical",
        "start_energy_error": 0.3,
        "energy_error": 0.02,
        "most_steps": 20_000,
        "trajectory_steps": 100,
        "num_warmup": 50,
    },
    # From the same starts; window adaptation of a step size and a diagonal metric a chain.
    "nuts": {"num_warmup": 200, "max_num_doublings": 8},
}
METHODS = ("ensemble", *SETTINGS)
# "quick" with so many times its steps, for the curve of scores against processor time.
CURVE = {f"quick-x{factor:g}": factor for factor in (0.5, 2, 4, 8)}
SETTINGS |= {
    name: {
        **SETTINGS["quick"],
        "most_steps": int(factor * SETTINGS["quick"]["most_steps"]),
        "trajectory_steps": int(factor * SETTINGS["quick"]["trajectory_steps"]),
    }
    for name, factor in CURVE.items()
}


def predictions(
    method: str, data: dict[str, np.ndarray], seed: int, settings: dict[str, Any]
) -> dict[str, Any]:
    """Return mean and deviation at the test rows, (chain, draw, row), and what tells of the run.

    Of chains of `sample_ensemble`: "warnings", the share that had "settled", the share of the steps
    between kept draws that were "undone", and how many chains were "stuck": hardly moved.
    """
    key_start, key_run = jax.random.split(jax.random.key(seed))
    x, y = (np.asarray(data[name], np.float32) for name in ("x_train", "y_train"))
    network = mlp((x.shape[1], *HIDDEN, 2), activation="relu")
    likelihood = targets.SoftplusScaleGaussian()
    posterior = Posterior(network, normal_prior(network), likelihood, x, y)
    found: OptimisedStarts = optimised_starts(key_start, posterior, NUM_CHAINS, progress=False)
    told: dict[str, Any] = {}
    positions = found.as_draws()
    if method == "nuts":
        positions = _by_nuts(key_run, posterior, found.positions, **settings)
    elif method != "ensemble":
        run = sample_ensemble(
            key_run, posterior, found.positions, NUM_DRAWS, progress=False, **settings
        )
        _check_whole(run.draws)
        positions, told = run.draws.positions, _told(run)
    mean, sd = _at(posterior, positions, np.asarray(data["x_test"], np.float32))
    return {"mean": mean, "sd": sd} | told


def _told(run: Any) -> dict[str, Any]:
    found = {
        "warnings": np.array(run.warnings, str),
        "settled": np.mean(run.way_in.is_settled),
        "stuck": np.array(float(run.rejecting.size)),
    }
    if "energy" in run.draws.reduced:
        energy = run.draws.reduced["energy"].per_chain
        found["undone"] = np.sum(energy.num_blow_ups) / np.sum(energy.num_steps)
    return found


def _by_nuts(
    key: jax.Array, posterior: Posterior, starts: Any, num_warmup: int, max_num_doublings: int
) -> Any:
    def make_kernel(parameters: dict[str, jax.Array], data: Posterior) -> SamplingAlgorithm:
        return blackjax.nuts(
            data.log_density_from(parameters["reference"]),
            parameters["step_size"],
            parameters["inverse_mass_matrix"],
            max_num_doublings=max_num_doublings,
        )

    size = sum(leaf[0].size for leaf in jax.tree.leaves(starts))
    parameters = {
        "step_size": jnp.full(NUM_CHAINS, 0.001),
        "inverse_mass_matrix": jnp.ones((NUM_CHAINS, size)),
        "reference": starts,
    }
    draws = sample(
        key, make_kernel, starts, NUM_DRAWS, num_warmup=num_warmup, data=posterior,
        parameters=parameters, adapt=window_adaptation(num_warmup, is_pooled=False),
        progress=False,
    )  # fmt: skip
    _check_whole(draws)
    return draws.positions


def _check_whole(draws: Draws) -> None:
    """Stop where a Ctrl-C ended the draws: the part would be stored as a result."""
    if draws.interrupted:
        raise KeyboardInterrupt


def _at(posterior: Posterior, positions: Any, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    @jax.jit
    def run(positions):
        def one(position):
            law = posterior.predictive(position, x)
            return law.mean, law.variance**0.5

        return jax.lax.map(lambda chain: jax.lax.map(one, chain), positions)

    mean, sd = run(positions)
    return np.asarray(mean), np.asarray(sd)


def main() -> None:
    """Sample and write the predictions."""
    method, data, result, seed = sys.argv[1:]
    with np.load(data) as given:
        found = predictions(method, dict(given), int(seed), SETTINGS.get(method, {}))
    np.savez(result, **found)


if __name__ == "__main__":
    main()
