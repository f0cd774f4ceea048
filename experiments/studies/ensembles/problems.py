"""The posteriors whose unadjusted draws are compared with exact ones."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree
from pydantic import Field

from experiments.datasets import Split, a_fifth_held_out, standardised, tabular, uci
from experiments.study import Settings
from jaxbnn import Gaussian, LearnedGaussian, Posterior, mlp, normal_prior
from jaxbnn.ensembles import sample_ensemble
from jaxbnn.targets import SoftplusScaleGaussian

_PARAMETER = "parameter_"

Name = Literal["gaussian", "yacht", "boston", "airfoil"]


class Problem(NamedTuple):
    """A posterior, test rows, and exact draws where they can be had.

    `draw(key, num)` returns independent draws, leaves (draw, ...); None where nobody can.
    """

    posterior: Posterior
    x_test: Float[np.ndarray, "m d"]
    y_test: Float[np.ndarray, " m"]
    draw: Callable[[PRNGKeyArray, int], PyTree] | None


class ProblemSettings(Settings):
    """Which posteriors a study has, and how many chains on each; the rest as `problem` takes it."""

    problems: tuple[Name, ...]
    num_chains: int = Field(8, ge=2)
    num_test: int = Field(100, ge=2)
    num_inputs: int = Field(20, ge=2)
    hidden: int = Field(50, ge=1)
    condition: float = Field(100.0, gt=1)

    def posed(self, name: Name) -> Problem:
        """Return the problem of this name at these sizes."""
        return problem(name, self.num_test, self.num_inputs, self.hidden, self.condition)


def problem(name: Name, num_test: int, num_inputs: int, hidden: int, condition: float) -> Problem:
    """Return a problem with its first test rows.

    "gaussian" is a linear regression with `num_inputs` inputs, whose posterior's covariance has
    about this condition number; "yacht" and "boston" (split 0) have one layer of `hidden` units and
    a noise scale to learn; "airfoil" (seed 0) two of 16, and noise from the network. All have
    N(0, 1) priors on standardised data.
    """
    if name == "gaussian":
        return _linear(num_test, num_inputs, condition)
    split = tabular("airfoil") if name == "airfoil" else uci(_UCI[name], 0)
    x, y = (np.asarray(part, np.float64) for part in (split.x_train, split.y_train))
    middle, spread = x.mean(0), x.std(0)
    spread = np.where(spread > 0, spread, 1)

    def scaled(x_some, y_some):
        parts = (x_some - middle) / spread, (y_some - y.mean()) / y.std()
        return [part.astype(np.float32) for part in parts]

    x_train, y_train = scaled(x, y)
    x_test, y_test = scaled(split.x_test[:num_test], split.y_test[:num_test])
    if name == "airfoil":
        network = mlp((x.shape[1], 16, 16, 2), activation="relu")
        likelihood = SoftplusScaleGaussian()
        posterior = Posterior(network, normal_prior(network), likelihood, x_train, y_train)
    else:
        network = mlp((x.shape[1], hidden, 1), activation="relu")
        prior = {"network": normal_prior(network), "log_noise_scale": dist.Normal(-1.0, 1.0)}
        posterior = Posterior(network, prior, LearnedGaussian(), x_train, y_train)
    return Problem(posterior, x_test, y_test, None)


def tabular_problem(
    data: Literal["airfoil", "bikesharing"],
    split: int,
    hidden: tuple[int, ...],
    most_rows: int | None = None,
    *,
    is_development: bool = False,
) -> Problem:
    """Return a data set standardised, with a network whose second output is the noise's scale.

    `most_rows` keeps the first rows only, of both parts. For development the test rows are a fifth
    of the training rows, and the split's own are left alone.
    """
    whole = tabular(data, split)
    if is_development:
        whole = a_fifth_held_out(whole.x_train, whole.y_train, split)
    parts = Split(*(part[:most_rows] for part in standardised(whole)))
    x, y, x_test, y_test = (np.asarray(part, np.float32) for part in parts)
    network = mlp((x.shape[1], *hidden, 2), activation="relu")
    posterior = Posterior(network, normal_prior(network), SoftplusScaleGaussian(), x, y)
    return Problem(posterior, x_test, y_test, None)


_UCI = {"yacht": "yacht", "boston": "bostonHousing"}
_NOISE = 0.5


def _linear(num_test: int, num_inputs: int, condition: float) -> Problem:
    """Return the linear regression; precisions 1 + n s_i^2 / noise^2 range from 1 to condition."""
    rng = np.random.default_rng(0)
    num_train = 4 * num_inputs
    basis = np.linalg.qr(rng.standard_normal((num_train, num_inputs)))[0]
    precisions = np.geomspace(1.0, condition, num_inputs)
    turned = np.linalg.qr(rng.standard_normal((num_inputs, num_inputs)))[0]
    mixed = 0.2 * turned + 0.8 * np.eye(num_inputs)  # correlated, so that no diagonal cures it
    x = basis * np.sqrt(precisions) * _NOISE @ mixed.T
    weights = rng.standard_normal(num_inputs)
    y = x @ weights + _NOISE * rng.standard_normal(num_train)
    x_test = x[rng.permutation(num_train)[:num_test]] + 0.1 * rng.standard_normal(
        (min(num_test, num_train), num_inputs)
    )
    y_test = x_test @ weights + _NOISE * rng.standard_normal(len(x_test))
    network = mlp((num_inputs, 1))
    arrays = [array.astype(np.float32) for array in (x, y)]
    posterior = Posterior(network, normal_prior(network), Gaussian(_NOISE), *arrays)
    design = np.concatenate([x, np.ones((num_train, 1))], axis=1)
    precision = np.eye(num_inputs + 1) + design.T @ design / _NOISE**2
    mean = np.linalg.solve(precision, design.T @ y) / _NOISE**2
    root = np.linalg.cholesky(np.linalg.inv(precision))

    def draw(key, num):
        noise = np.asarray(jax.random.normal(key, (num, num_inputs + 1)), np.float64)
        values = (mean + noise @ root.T).astype(np.float32)
        return ({"w": values[:, :-1, None], "b": values[:, -1:]},)

    return Problem(posterior, x_test.astype(np.float32), y_test.astype(np.float32), draw)


def as_arrays(positions: PyTree) -> dict[str, Array]:
    """Return the leaves of positions as a stage stores them."""
    return {f"position_{i}": leaf for i, leaf in enumerate(jax.tree.leaves(positions))}


def positions_of(posed: Problem, arrays: Mapping[str, Any]) -> PyTree:
    """Return the positions that a stage has stored by `as_arrays`."""
    shapes = jax.eval_shape(lambda: posed.posterior.sample_prior(jax.random.key(0)))
    count = len(jax.tree.leaves(shapes))
    leaves = [jnp.asarray(arrays[f"position_{i}"]) for i in range(count)]
    return jax.tree.unflatten(jax.tree.structure(shapes), leaves)


def parameters_as_arrays(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return a kernel's parameters as a stage stores them, beside what else it does."""
    return {_PARAMETER + name: value for name, value in parameters.items()}


def parameters_of(arrays: Mapping[str, Any]) -> dict[str, Array]:
    """Return the parameters that a stage has stored by `parameters_as_arrays`."""
    return {
        name.removeprefix(_PARAMETER): jnp.asarray(value)
        for name, value in arrays.items()
        if name.startswith(_PARAMETER)
    }


def ensemble_draws(
    key: PRNGKeyArray, posterior: Posterior, places: PyTree, num_samples: int, **options: Any
) -> Any:
    """Return `sample_ensemble(...)` without progress; a Ctrl-C among its draws stops the study."""
    run = sample_ensemble(key, posterior, places, num_samples, progress=False, **options)
    if run.draws.interrupted:
        raise KeyboardInterrupt
    return run


def trained(key: PRNGKeyArray, posterior: Posterior, num_chains: int, num_updates: int) -> PyTree:
    """Maximise the log density by Adam on all rows, from small draws of the prior."""
    optimizer = optax.adam(optax.cosine_decay_schedule(0.01, num_updates))
    starts = jax.tree.map(lambda leaf: 0.3 * leaf, posterior.sample_prior(key, (num_chains,)))

    @jax.jit
    @jax.vmap
    def train(position):
        def update(_, carry):
            position, state = carry
            slope = jax.grad(lambda p: -posterior.log_density(p) / len(posterior.y))(position)
            change, state = optimizer.update(slope, state, position)
            return optax.apply_updates(position, change), state

        return jax.lax.fori_loop(0, num_updates, update, (position, optimizer.init(position)))[0]

    return jax.tree.map(jnp.asarray, train(starts))
