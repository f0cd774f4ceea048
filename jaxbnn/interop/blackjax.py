"""Our kernels inside BlackJAX's population samplers and adaptation.

Every kernel here is a `blackjax.SamplingAlgorithm`, so `blackjax.util.run_inference_algorithm` and
`thin_algorithm` take it as it is. SMC makes a kernel anew for each temperature, and window
adaptation for each step size and mass matrix, from parts.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from blackjax.base import SamplingAlgorithm
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray, PyTree

from jaxbnn.kernels import pcn, pcnl, smmala, truncated_mala, underdamped_langevin
from jaxbnn.kernels.refresh import auxiliary_fields
from jaxbnn.numerics.arguments import check_function


def inner_kernel(
    make_kernel: Callable[..., SamplingAlgorithm], **parameters: ArrayLike
) -> dict[str, Any]:
    """Return a kernel in the parts that BlackJAX's SMC samplers ask for.

    Parameters
    ----------
    make_kernel
        `make_kernel(log_density_fn, **parameters)` is the kernel at one temperature. pCN wants the
        density relative to its Gaussian: `pcn(lambda u: log_density_fn(u) - log_prior(u), ...)`.
    parameters
        Numbers, shared by all particles, or arrays with the particle as their leading axis.

    Returns
    -------
    `mcmc_step_fn`, `mcmc_init_fn` and `mcmc_parameters`, to be passed on by `**`. The state is an
    `InnerState`.

    Raises
    ------
    TypeError
        `make_kernel` is no function.
    ValueError
        Parameters of several numbers of particles.

    Notes
    -----
    BlackJAX starts the kernel anew at each temperature and gives it no key. What a start draws, a
    momentum say, is therefore drawn in the first step, which has one: started at rest again and
    again, a momentum that persists would never have its law, and the particles would not either.

    Examples
    --------
    >>> import blackjax, jax, jaxbnn
    >>> parts = inner_kernel(
    ...     lambda log_density, step_size: jaxbnn.underdamped_langevin(log_density, step_size, 1.0),
    ...     step_size=0.5,
    ... )
    >>> smc = blackjax.tempered_smc(
    ...     lambda u: -0.5 * u**2, lambda u: -2.0 * (u - 1) ** 2, num_mcmc_steps=3,
    ...     resampling_fn=blackjax.smc.resampling.systematic, **parts,
    ... )
    >>> state = smc.init(jax.random.normal(jax.random.key(0), (100,)))
    >>> state.particles.shape
    (100,)

    The next is `smc.step(rng_key, state, 0.5)`, at half the likelihood. Its particles have weights,
    `state.weights`, by which means are to be taken.
    """
    # BlackJAX shares those of length one among all particles.
    known = partial(make_kernel, **parameters) if callable(make_kernel) else make_kernel
    check_function("make_kernel", known, "give (log_density_fn, **parameters) -> kernel")
    arrays = {name: jnp.atleast_1d(jnp.asarray(value)) for name, value in parameters.items()}
    lengths = {name: len(value) for name, value in arrays.items() if len(value) > 1}
    if len(set(lengths.values())) > 1:
        raise ValueError(
            f"parameters must be numbers or have the particle as their leading axis, but have "
            f"{', '.join(f'{name} {length}' for name, length in lengths.items())} particles."
        )

    def mcmc_init_fn(position, log_density_fn):
        # What a kernel caches at a position does not depend on its parameters.
        first = {name: value[0] for name, value in arrays.items()}
        state = make_kernel(log_density_fn, **first).init(position)
        return InnerState(position, state, jnp.ones((), bool))

    def mcmc_step_fn(rng_key, state, log_density_fn, **own):
        kernel = make_kernel(log_density_fn, **own)
        inner = state.state
        if _reads_its_key(kernel.init, state.position, rng_key):
            key_start, rng_key = jax.random.split(rng_key)
            inner = jax.lax.cond(
                state.is_fresh, lambda: kernel.init(state.position, key_start), lambda: inner
            )
        new, info = kernel.step(rng_key, inner)
        return InnerState(new.position, new, jnp.zeros((), bool)), info

    return {
        "mcmc_step_fn": mcmc_step_fn,
        "mcmc_init_fn": mcmc_init_fn,
        "mcmc_parameters": arrays,
    }


@auxiliary_fields("is_fresh")
class InnerState(NamedTuple):
    """A state of an `inner_kernel`.

    Attributes
    ----------
    position
        The state's.
    state
        The kernel's own.
    is_fresh
        Whether no step was made since the kernel was started without a key.
    """

    position: PyTree
    state: PyTree
    is_fresh: Bool[Array, ""]


def _reads_its_key(init: Callable, position: PyTree, rng_key: PRNGKeyArray) -> bool:
    """Whether a start draws anything. Where it does not, there is nothing to start again."""
    traced = jax.make_jaxpr(init)(position, rng_key).jaxpr
    key = traced.invars[-1]
    read = [*traced.outvars, *(v for equation in traced.eqns for v in equation.invars)]
    return any(variable is key for variable in read)


@auxiliary_fields()
class AdaptableState(NamedTuple):
    """A state of an `adaptable` kernel, with the names that BlackJAX's adaptation reads.

    Attributes
    ----------
    position
        The state's.
    logdensity_grad
        The state's gradient; zeros where it caches no gradient.
    state
        The kernel's own.
    """

    position: PyTree
    logdensity_grad: PyTree
    state: PyTree


class Adaptable(NamedTuple):
    """What `adaptable` returns: an algorithm in the parts that window adaptation asks for.

    Attributes
    ----------
    init
        (position, log_density_fn) -> state, an `AdaptableState`.
    build_kernel
        () -> step, which takes a step size and an inverse mass matrix.
    """

    init: Callable
    build_kernel: Callable


def adaptable(make_kernel: Callable[..., SamplingAlgorithm]) -> Adaptable:
    """Return a kernel as `blackjax.window_adaptation` takes it.

    Parameters
    ----------
    make_kernel
        `make_kernel(log_density_fn, step_size, inverse_mass_matrix)` is the kernel; its Info has an
        `acceptance_rate`. One that has no mass matrix leaves the last argument aside.

    Returns
    -------
    The first argument of `blackjax.window_adaptation`. The state it returns holds the kernel's own
    as `state`; the parameters go into `make_kernel`.

    Raises
    ------
    TypeError
        `make_kernel` is no function of these three.

    Examples
    --------
    >>> import blackjax, jaxbnn
    >>> def log_density(u):
    ...     return -jnp.sum(u**2) / 2
    >>> def mala(log_density, step_size, inverse_mass_matrix):
    ...     return jaxbnn.underdamped_langevin(log_density, step_size, 1.0)
    >>> warmup = blackjax.window_adaptation(adaptable(mala), log_density)
    >>> (state, found), _ = warmup.run(jax.random.key(0), jnp.ones(3), num_steps=50)
    >>> sorted(found), state.position.shape
    (['inverse_mass_matrix', 'step_size'], (3,))
    """
    advice = "give (log_density_fn, step_size, inverse_mass_matrix) -> kernel"
    check_function("make_kernel", make_kernel, advice, 3)

    def wrap(state: PyTree) -> AdaptableState:
        zeros = jax.tree.map(jnp.zeros_like, state.position)
        return AdaptableState(state.position, getattr(state, "gradient", zeros), state)

    def init(position: PyTree, log_density_fn: Callable) -> AdaptableState:
        # What a kernel caches at a position does not depend on its parameters.
        size = sum(jnp.size(leaf) for leaf in jax.tree.leaves(position))
        return wrap(make_kernel(log_density_fn, 1.0, jnp.ones(size)).init(position))

    def build_kernel() -> Callable:
        def step(
            rng_key: PRNGKeyArray,
            state: AdaptableState,
            log_density_fn: Callable,
            step_size: ArrayLike,
            inverse_mass_matrix: Float[Array, "..."],
        ) -> tuple[AdaptableState, Any]:
            kernel = make_kernel(log_density_fn, step_size, inverse_mass_matrix)
            new, info = kernel.step(rng_key, state.state)
            return wrap(new), info

        return step

    return Adaptable(init, build_kernel)


def _refuse_to_build(*arguments: Any) -> None:
    raise TypeError(
        "blackjax.window_adaptation takes BlackJAX's hmc and nuts; for a jaxbnn kernel give it "
        "jaxbnn.interop.blackjax.adaptable(make_kernel), or use jaxbnn.sample(..., "
        "adapt=jaxbnn.dual_averaging(...))."
    )


# BlackJAX looks this attribute up; without it the error would not say what to do.
_FACTORIES: tuple[Any, ...] = (pcn, pcnl, smmala, truncated_mala, underdamped_langevin)
for _factory in _FACTORIES:
    _factory.build_kernel = _refuse_to_build
