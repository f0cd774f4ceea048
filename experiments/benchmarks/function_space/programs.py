"""The three things that are timed: a step of a sampler, its floor, and the published form of it.

Each is a function `num_steps -> None` that has been compiled and blocks until it is done.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, PyTree

from experiments.studies.function_space.problem import NOISE_SCALE, wide_network
from experiments.studies.function_space.samplers import Data, Sampler, kernel_maker, starts
from experiments.study import all_draws
from jaxbnn import Dense, Network, pcn, pcnl, underdamped_langevin, wide
from jaxbnn.networks import apply, features, init
from jaxbnn.numerics import standard_normal
from jaxbnn.wide import reduce_inputs, reparametrise, weight_projections

SAMPLERS = ("pCN", "pCNL", "LMC")
STEP_SIZE, REFRESHMENT = 0.1, 0.01


class Size(NamedTuple):
    """Of a problem with one hidden layer."""

    width: int
    n: int = 256
    d_in: int = 3072
    outputs: int = 10


Program = Callable[[int], None]


def data_of(size: Size) -> tuple[np.ndarray, np.ndarray]:
    """Return normal inputs and targets: what a step costs does not depend on their values."""
    rng = np.random.default_rng(0)
    shapes = (size.n, size.d_in), (size.n, size.outputs)
    x, y = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    return x, y


def make_kernel(sampler: str, log_likelihood, log_density, langevin=underdamped_langevin) -> Any:
    """Return the kernel, with the step size of the paper's first figure."""
    if sampler == "pCN":
        return pcn(log_likelihood, STEP_SIZE)
    if sampler == "pCNL":
        return pcnl(log_likelihood, STEP_SIZE)
    return langevin(log_density, STEP_SIZE, REFRESHMENT)


def steps(sampler: str, size: Size) -> Program:
    """Return steps of the chain on reduced inputs."""
    x, y = data_of(size)
    network = wide_network((size.width,), size.d_in, size.outputs)
    reduction = reduce_inputs(network, x)
    posterior = reparametrise(reduction.network, reduction.x, y, NOISE_SCALE)

    def make(data):
        posterior, reduction = data
        density = posterior.log_density_terms
        langevin = functools.partial(wide.reduced_langevin, reduction=reduction)
        return make_kernel(sampler, posterior.log_likelihood, density, langevin)

    return _chain(make, (posterior, reduction), init(jax.random.key(1), reduction.network))


def watched_steps(sampler: Sampler, size: Size, num_steps: int) -> None:
    """Run the chain as the study does: with projections of weights and of outputs at 128 inputs."""
    x, y = data_of(size)
    also = data_of(size._replace(n=128))[0]
    reduction = reduce_inputs(wide_network((size.width,), size.d_in, size.outputs), x, also=also)
    projections = weight_projections(reduction, jax.random.key(5))
    directions = jax.random.normal(jax.random.key(6), (100, 128 * size.outputs))
    data = Data(reduction, projections, directions, jnp.asarray(y))
    all_draws(
        jax.random.key(7),
        kernel_maker(sampler, num_steps, None),
        starts(jax.random.key(8), sampler, reduction, 1),
        1,
        parameters={"step_size": np.float32(STEP_SIZE), "refreshment": np.float32(REFRESHMENT)},
        data=data,
        collect=lambda state, info: state.observed,
        progress=False,
    )


def published_steps(sampler: str, size: Size) -> Program:
    """Return steps of the published algorithm: all inputs, and matrices as wide as the network."""
    x, y = data_of(size)
    network = wide_network((size.width,), size.d_in, size.outputs)

    def make(data):
        def log_density(phi):
            return published_log_density(network, phi, *data)

        def relative_to_prior(phi):
            return log_density(phi) + sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(phi)) / 2

        return make_kernel(sampler, relative_to_prior, log_density)

    return _chain(make, (jnp.asarray(x), jnp.asarray(y)), init(jax.random.key(1), network))


def published_log_density(network: Network, phi: PyTree, x: Array, y: Array) -> Float[Array, ""]:
    """Return the log density of phi up to a constant, as the published code goes about it.

    The read-out is mapped by the Cholesky factor of I + Psi^T Psi / sigma^2, and the density of
    theta is evaluated at it: log p(Y | theta) + log p(theta) + log |d theta / d phi|. (The last
    term is not in the published code, which has another target for the lack of it.)
    """
    g = features(network, phi, x)
    width, num_outputs = g.shape[1], y.shape[1]
    read_out = network.layers[-1]
    assert isinstance(read_out, Dense)
    bias = jnp.full((len(x), 1), read_out.bias_scale, g.dtype)
    psi = jnp.concatenate([g / math.sqrt(width), bias], axis=1)
    precision = jnp.eye(width + 1, dtype=g.dtype) + psi.T @ psi / NOISE_SCALE**2
    cholesky = jnp.linalg.cholesky(precision)
    z = jnp.concatenate([phi[-1]["w"], phi[-1]["b"][None]])
    shift = solve_triangular(cholesky, psi.T @ y / NOISE_SCALE**2, lower=True)
    theta = solve_triangular(cholesky, z + shift, lower=True, trans="T")
    outputs = apply(network, (*phi[:-1], {"w": theta[:-1], "b": theta[-1]}), x)
    residual = (y - outputs) / NOISE_SCALE
    inner = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(phi[:-1]))
    log_determinant = -num_outputs * jnp.sum(jnp.log(jnp.diagonal(cholesky)))
    return log_determinant - (jnp.sum(residual**2) + jnp.sum(theta**2) + inner) / 2


def floor(sampler: str, size: Size) -> Program:
    """Return the matrix products, factorisations and normals of a step on reduced inputs, alone.

    Forward: X W, the smaller Gram matrix of the features (n x n or width x width), its Cholesky
    factor, the solve for the targets. With a gradient: the inverse of the Gram matrix by two
    triangular solves, its product with the features, and the product with X^T. No activation,
    no prior, no Metropolis step.
    """
    rank = min(size.n, size.d_in + 1)
    is_wide = size.n <= size.width + 1
    order = min(size.n, size.width)
    x = jax.random.normal(jax.random.key(0), (size.n, rank))
    y = jnp.asarray(data_of(size)[1])
    has_gradient = sampler != "pCN"

    @jax.jit
    def run(num_steps, x, y):
        def step(i, carry):
            key_inner, key_read_out = jax.random.split(jax.random.fold_in(jax.random.key(2), i))
            total, _ = carry
            w = standard_normal(key_inner, (rank, size.width))
            z = standard_normal(key_read_out, (size.width + 1, size.outputs))
            with jax.default_matmul_precision("highest"):
                hidden = x @ w
                gram = hidden @ hidden.T if is_wide else hidden.T @ hidden
                lower = jnp.linalg.cholesky(gram + order * jnp.eye(order))
                whitened = solve_triangular(lower, y if is_wide else hidden.T @ y, lower=True)
                if has_gradient:
                    half = solve_triangular(lower, jnp.eye(order), lower=True)
                    inverse = solve_triangular(lower, half, lower=True, trans="T")
                    w = x.T @ (inverse @ hidden if is_wide else hidden @ inverse)
            return total + jnp.sum(whitened) + jnp.sum(z), w

        start = jnp.zeros(()), jnp.zeros((rank, size.width))
        return jax.lax.fori_loop(0, num_steps, step, start)

    def program(num_steps: int) -> None:
        jax.block_until_ready(run(num_steps, x, y))

    program(1)
    return program


def _chain(make, data, position) -> Program:
    @jax.jit
    def run(num_steps, data, state):
        kernel = make(data)

        def step(i, carry):
            return kernel.step(jax.random.fold_in(jax.random.key(3), i), carry)[0]

        return jax.lax.fori_loop(0, num_steps, step, state)

    state = jax.jit(lambda data: make(data).init(position, jax.random.key(4)))(data)

    def program(num_steps: int) -> None:
        nonlocal state
        state = jax.block_until_ready(run(num_steps, data, state))

    program(1)
    return program
