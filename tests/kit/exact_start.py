"""The exact-start test: a right kernel keeps an exact draw an exact draw.

Chains start at independent exact draws of a tiny target and take k steps. Every test
function of the positions must still have its exact distribution, up to the DKW bound: one
tenth of a percentage point is visible, no burn-in or autocorrelation blurs the picture.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from blackjax.base import SamplingAlgorithm

from tests.kit.dkw import Comparison
from tests.kit.simulate import check_chains, has_moved


class Target(NamedTuple):
    """A target with an exact sampler.

    Attributes
    ----------
    sample
        sample(key) -> (position, data); data is None for a fixed target.
    log_density
        log_density(position, data=None) -> scalar.
    test_functions
        test_functions(position, data) -> dict of scalars.
    cdfs
        Exact distribution functions (NumPy, vectorised) of those test functions that have
        one; the others are compared with independent exact draws (twice the chains needed).
    """

    sample: Callable
    log_density: Callable
    test_functions: Callable
    cdfs: Mapping[str, Callable] = {}


def check_exact_start(
    kernel: SamplingAlgorithm | Callable,
    target: Target,
    *,
    steps: int,
    num_chains: int | None = None,
    seed: int = 0,
    batch_size: int = 50_000,
) -> Comparison:
    """Run `steps` steps from exact draws and compare the test functions with their exact laws.

    Parameters
    ----------
    kernel
        A SamplingAlgorithm, or make_kernel(data) -> SamplingAlgorithm, called inside the
        traced program with the data of its own chain.
    target
        The target with its exact sampler.
    steps
        Steps of each chain; two at least show stale caches.
    num_chains
        None takes the full size: 1.2 million or more, as many as find a sup-distance of 0.005
        with both error rates 1e-6.
    seed, batch_size
        Seed of all chains; chains run at once.

    Returns
    -------
    The comparison: assert `result.passes, str(result)` for the kernel and `not result.passes`
    for each of its mutants; `result.detectable` is the power.
    """

    def chain(key):
        key_start, key_init, key_steps = jax.random.split(key, 3)
        position, data = target.sample(key_start)
        algorithm = kernel if isinstance(kernel, SamplingAlgorithm) else kernel(data)

        def step(i, state):
            # A split, scanned over, would be called key reuse once it is vmapped.
            return algorithm.step(jax.random.fold_in(key_steps, i), state)[0]

        end = jax.lax.fori_loop(0, steps, step, algorithm.init(position, key_init))
        return (end.position, data), has_moved(position, end.position)

    return check_chains(
        chain, target.sample, target.test_functions, target.cdfs, num_chains, seed, batch_size
    )


def flat(tree):
    """Return all leaves of a tree as one vector, whole numbers as floats."""
    leaves = [jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)]
    dtype = jnp.zeros(()).dtype
    floats = [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]
    if floats:
        dtype = floats[0].dtype
    return jnp.concatenate([leaf.astype(dtype) for leaf in leaves])


def position_functions(position, log_density) -> dict:
    """Return every coordinate, the products of neighbours and the log density at a position."""
    x = flat(position)
    functions = {f"x{i}": x[i] for i in range(len(x))}
    functions |= {f"x{i} x{i + 1}": x[i] * x[i + 1] for i in range(len(x) - 1)}
    return functions | {"log density": log_density}


def joint_functions(position, data, log_prior, log_likelihood) -> dict:
    """Return test functions of parameters and data jointly.

    Every coordinate of the parameters, products of neighbours, each coordinate times one
    datum (taking turns), the log prior and the log likelihood.
    """
    x, y = flat(position), flat(data)
    functions = position_functions(position, log_prior)
    functions["log prior"] = functions.pop("log density")
    for i in range(max(len(x), len(y))):
        a, b = i % len(x), i % len(y)
        functions[f"x{a} y{b}"] = x[a] * y[b]
    return functions | {"log likelihood": log_likelihood}


def model_target(
    sample_prior: Callable, simulate: Callable, log_prior: Callable, log_likelihood: Callable
) -> Target:
    """Return exact draws for any model: parameters from the prior, data from the model.

    The parameters are then an exact draw of the posterior given their own data, which each
    chain must target: pass make_kernel(data) to `check_exact_start`.

    Parameters
    ----------
    sample_prior
        sample_prior(key) -> parameters.
    simulate
        simulate(key, parameters) -> data.
    log_prior
        log_prior(parameters) -> scalar.
    log_likelihood
        log_likelihood(parameters, data) -> scalar, or one term per datum.
    """

    def sample(key):
        key_prior, key_data = jax.random.split(key)
        parameters = sample_prior(key_prior)
        return parameters, simulate(key_data, parameters)

    def log_density(parameters, data):
        return log_prior(parameters) + jnp.sum(log_likelihood(parameters, data))

    def test_functions(parameters, data):
        return joint_functions(
            parameters, data, log_prior(parameters), jnp.sum(log_likelihood(parameters, data))
        )

    return Target(sample, log_density, test_functions)


def posterior_target(make_posterior: Callable, x, y) -> Target:
    """Return exact draws for a jaxbnn Posterior: `model_target` of its own prior and model.

    Parameters
    ----------
    make_posterior
        make_posterior(y) -> Posterior of the fixed inputs `x` given outputs `y`.
    x
        The inputs.
    y
        Any outputs of the right shape and type; their values are not used.
    """
    model = make_posterior(y)
    return model_target(
        model.sample_prior,
        lambda key, parameters: model.predictive(parameters, x).sample(key).astype(y.dtype),
        model.log_prior,
        lambda parameters, data: make_posterior(data).log_likelihood(parameters),
    )
