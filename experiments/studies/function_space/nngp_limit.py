"""Wide networks against their limit: the exact posterior of the Gaussian process they become.

The inner weights W are sampled with the read-out integrated out (section 3). Given W, outputs at
new inputs are normal with known mean and covariance, so that

    E[f | Y] = E_W[m_W],    Cov(f | Y) = E_W[C_W] + Cov_W(m_W)

is estimated from m_W and C_W, whose own fluctuations vanish as the width grows.
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from pydantic import Field, model_validator

from experiments.studies.function_space import pictures
from experiments.studies.function_space.nngp import EXPECTED_PRODUCTS, nngp_posterior
from experiments.studies.function_space.problem import (
    NOISE_SCALE,
    cifar_problem,
    wide_network,
)
from experiments.studies.function_space.samplers import observe
from experiments.studies.function_space.summaries import Estimate
from experiments.study import Context, Row, Settings
from jaxbnn import moments, pcn, repeat
from jaxbnn.networks import Dense, features, init, parameter_shapes
from jaxbnn.wide import marginal_conditional, reduce_inputs


class LimitSettings(Settings):
    """Settings: one network a width and activation, `num_chains` of pCN on its inner weights."""

    activations: tuple[str, ...] = Field(min_length=1)
    widths: tuple[int, ...] = Field(min_length=2)
    hidden_layers: int = Field(default=1, ge=1)
    num_train: int = Field(ge=1)
    num_test: int = Field(ge=1)
    num_chains: int = Field(ge=3)
    num_steps: int = Field(ge=1)
    num_burn_in: int = Field(ge=0)
    thinning: int = Field(ge=1)
    step_size: float = Field(gt=0, le=1)

    @model_validator(mode="after")
    def _has_a_limit(self):
        unknown = [name for name in self.activations if name not in EXPECTED_PRODUCTS]
        if unknown:
            raise ValueError(
                f"activations must be among {', '.join(EXPECTED_PRODUCTS)}, not {unknown[0]}"
            )
        if self.num_steps % self.thinning or self.num_burn_in % self.thinning:
            raise ValueError("num_steps and num_burn_in must be multiples of thinning")
        return self


def run_limit(settings: LimitSettings, context: Context) -> list[Row]:
    """Compare every width's predictions with the Gaussian process; rows and a figure each."""
    problem = cifar_problem(settings.num_train, settings.num_test)
    rows = []
    for activation in settings.activations:
        differences: dict[str, list[Estimate]] = {"mean": [], "covariance": []}
        for width in settings.widths:
            hidden = (width,) * settings.hidden_layers
            network = wide_network(hidden, problem.x.shape[1], activation=activation)
            exact = nngp_posterior(network, problem.x, problem.y, problem.x_test, NOISE_SCALE)
            stage = f"{activation}_width_{width}"
            compute = functools.partial(_sample, network, problem, settings, context, stage)
            found = context.stage(stage, compute)
            setting = f"{activation}, width {width}"
            rate = found["acceptance_rate"]
            error = rate.std(ddof=1) / math.sqrt(len(rate))
            rows.append(Row("acceptance_rate", setting, float(rate.mean()), float(error)))
            for name, values in compare(found, exact).items():
                differences[name].append(values)
                quantity = f"squared_difference_of_{name}_over_posterior_variance"
                rows.append(Row(quantity, setting, *values))
        figure = pictures.limit_figure(settings.widths, differences, activation)
        context.save_figure(f"limit_{activation}", figure)
    return rows


def compare(found, exact) -> dict[str, Estimate]:
    """Return squared differences from the process, with jackknife errors over chains.

    Products of the differences of two chains have no Monte Carlo bias, their squares would. (That
    of covariances keeps one of fourth order in the deviation of a chain's mean.) Means over test
    inputs and outputs; in units of the process's mean posterior variance (of its square for
    covariances). Three chains or more.
    """
    variance = float(np.mean(np.diag(exact.covariance)))
    means = np.asarray(found["mean"], np.float64)
    second = np.asarray(found["second"], np.float64)

    def of_means(chains):
        return (means[chains] - exact.mean) / math.sqrt(variance)

    def of_covariances(chains):
        return (_covariances(means[chains], second[chains]) - exact.covariance) / variance

    return {
        name: _with_error(differences, len(means))
        for name, differences in (("mean", of_means), ("covariance", of_covariances))
    }


def _covariances(
    means: Float[np.ndarray, "chain m k"], second: Float[np.ndarray, "chain m m"]
) -> Float[np.ndarray, "chain m m"]:
    """Return each chain's estimate of the covariance, less the outer product of the mean.

    That of the mean of all chains, taken from each, would have the chains' deviations in it, and
    products of two chains would be too small by their variance. So each loses its own, which is
    independent of the others', and all gain by how much these are too large: the mean of the
    chains' own less that of the products of two.
    """
    num_chains, _, num_outputs = means.shape
    own = means @ means.swapaxes(1, 2) / num_outputs
    total = means.sum(axis=0)
    of_pairs = (total @ total.T / num_outputs - own.sum(axis=0)) / (num_chains * (num_chains - 1))
    return second - own + (own.mean(axis=0) - of_pairs)


def _with_error(differences: Callable[[np.ndarray], np.ndarray], num_chains: int) -> Estimate:
    """Mean over pairs of chains of the mean product; jackknife error over chains.

    `differences` takes the numbers of the chains that are not left out.
    """

    def mean_product(chains):
        flat = differences(chains).reshape(len(chains), -1)
        others = (flat.sum(axis=0) ** 2 - (flat**2).sum(axis=0)).mean()
        return float(others) / (len(chains) * (len(chains) - 1))

    every = np.arange(num_chains)
    left = np.array([mean_product(np.delete(every, chain)) for chain in every])
    error = math.sqrt((num_chains - 1) / num_chains * float(np.sum((left - left.mean()) ** 2)))
    return Estimate(mean_product(every), error)


def _sample(network, problem, settings: LimitSettings, context: Context, stage: str) -> dict:
    """Return, a chain each, the mean of m_W and of C_W + m_W m_W^T / k, and the acceptance."""
    n, width = settings.num_train, network.layers[0].features
    # All inputs reduced together: the same function at all of them, exactly.
    inputs = np.concatenate([problem.x, problem.x_test])
    reduction = reduce_inputs(network, inputs)
    data = {"x": reduction.x, "y": jnp.asarray(problem.y)}
    key = jax.random.fold_in(context.key, width)
    key_start, key_run = jax.random.split(key)
    keys = jax.random.split(key_start, settings.num_chains)
    starts = jax.vmap(lambda key: init(key, reduction.network)[:-1])(keys)
    total = settings.num_chains * (settings.num_steps + settings.num_burn_in)
    draws = context.sample(
        stage,
        key_run,
        _kernel_maker(reduction.network, n, settings.step_size, settings.thinning),
        starts,
        settings.num_steps // settings.thinning,
        data=data,
        num_warmup=settings.num_burn_in // settings.thinning,
        collect=None,
        reduce={"outputs": _moments_of_outputs()},
        progress=False,
    )
    context.record_speed(f"{network.layers[1].function}_width_{width}", total, draws.seconds)
    return {
        **draws.reduced["outputs"].per_chain.mean,
        "acceptance_rate": np.asarray(draws.acceptance_rate),
    }


@functools.cache
def _moments_of_outputs():
    return moments()._replace(collect=lambda state, info: state.observed)


@functools.cache
def _kernel_maker(network, num_train: int, step_size: float, thinning: int):
    def make_kernel(parameters, data):
        x, y = data["x"], data["y"]
        marginal = marginal_conditional(network, x[:num_train], y, NOISE_SCALE)

        def see(rng_key, state):
            shapes = parameter_shapes(network)[-1]  # of weights that do not matter for features
            nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, x.dtype), shapes)
            g = features(network, (*state.position, nothing), x)
            mean, covariance = conditional_outputs(g, network.layers[-1], y)
            second = jnp.matmul(mean, mean.T, precision="highest") / y.shape[1]
            return {"mean": mean, "second": covariance + second}

        return observe(repeat(pcn(marginal.log_likelihood, step_size), thinning), see)

    return make_kernel


def conditional_outputs(g, read_out: Dense, y):
    """Return mean (m, k) and covariance (m, m) of outputs at new inputs, given features of all.

    The features are of the n data first, then of the m new inputs.
    """
    n = len(y)
    kernel = jnp.matmul(g, g.T, precision="highest") * (read_out.weight_scale**2 / g.shape[1])
    kernel = kernel + read_out.bias_scale**2
    noise = NOISE_SCALE**2 * jnp.eye(n, dtype=g.dtype)
    factor = jax.scipy.linalg.cho_factor(kernel[:n, :n] + noise)
    weights = jax.scipy.linalg.cho_solve(factor, kernel[:n, n:]).T
    mean = jnp.matmul(weights, y, precision="highest")
    return mean, kernel[n:, n:] - jnp.matmul(weights, kernel[:n, n:], precision="highest")
