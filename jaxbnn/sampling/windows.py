"""Warm-up in windows for HMC and NUTS: a step size and a metric, from draws or from gradients.

Stan's schedule: the metric of the next window comes from what was seen in this one, and the step
size starts anew with it. Two estimates of the inverse mass matrix:

    draws      Cov(x)            the usual one; right for a target with one mode
    gradients  E[g g^T]^-1       g the gradient of the log density; E[g g^T] = E[-Hessian]

The first sees the distance between the modes that a chain visits, of which symmetry moves make
many, and is then far too wide for steps within one. The second is an average of the curvature
*inside* the modes, however many there are (Titsias 2023 derives it as the best preconditioner of
MALA).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.adaptation.mass_matrix import mass_matrix_adaptation
from blackjax.adaptation.step_size import dual_averaging_adaptation
from blackjax.adaptation.window_adaptation import build_schedule
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from jaxbnn.numerics import check_count
from jaxbnn.numerics.arguments import check_flag, check_word, kept
from jaxbnn.numerics.arrays import widened
from jaxbnn.sampling.adaptation import (
    Adaptation,
    acceptance_of,
    check_component,
    check_target,
    component_of,
    layers_of,
    like,
    require_floats,
    size_mismatch,
)

# Pooled, a chain is stuck whose recent acceptance is below the first share of the target while the
# mean of all is above the second: one that refuses everything is so after 14 / target steps.
_STUCK, _ABOUT, _FORGETTING = 0.25, 0.9, 0.1


class _WindowState(NamedTuple):
    averaging: Any
    metric: Any
    recent: Array
    parameters: dict


class _Estimate(NamedTuple):
    """How an inverse mass matrix is estimated: of vectors (chain, d), added one draw at a time."""

    init: Callable[[Array], Any]
    add: Callable[[Any, Array], Any]
    close: Callable[[Any], Any]


@kept
def window_adaptation(
    num_warmup: int,
    *,
    target_acceptance_rate: float = 0.8,
    metric: Literal["draws", "gradients"] = "draws",
    is_pooled: bool = False,
    component: int | None = None,
) -> Adaptation:
    """Stan's windowed warm-up for HMC and NUTS: step size and inverse mass matrix.

    Assembled from BlackJAX's dual averaging, Welford mass-matrix adaptation and window schedule.
    `parameters` needs the entries "step_size" (chains,) and "inverse_mass_matrix", (chains, d) for
    a diagonal one or (chains, d, d) for a dense. For a kernel `on_block`, d is the block's size. A
    matrix of the whole position's size, of which that kernel is given a part, is learnt whole.

    Parameters
    ----------
    num_warmup
        The `num_warmup` that `sample` is given; the windows are laid out over it. Below 20 steps
        there is none: the metric stays as given, and the step size alone is tuned.
    target_acceptance_rate
        Between 0 and 1.
    metric
        "draws": the covariance of the draws. "gradients": the inverse of the mean outer product
        of the log density's gradients, for targets with several modes; shrunk, as if d more draws
        had been seen, to its diagonal. It needs a kernel whose state keeps the gradient.
    is_pooled
        False: each chain has its own step size and metric. True: all share one of each, learnt
        from all of them: the step size from their mean acceptance, but from a single chain's while
        that one refuses nearly everything. Among many it hardly shows in the mean.
    component
        In a `cycle`, the number of the kernel whose acceptance, and gradients, are followed. None:
        the whole kernel; of a cycle the whole position, and the mean rate of its parts, so that one
        which is always accepted makes the steps of the others too long.

    Raises
    ------
    ValueError
        num_warmup < 1; a target outside (0, 1); parameters without the two entries; an inverse mass
        matrix of another size than the position; a kernel without acceptance rate, without that
        component or, where asked for, without gradient.

    Examples
    --------
    >>> import blackjax, jaxbnn
    >>> def make_kernel(parameters, data):
    ...     log_density = lambda x: -0.5 * jnp.sum((x / data) ** 2)
    ...     return blackjax.hmc(
    ...         log_density, parameters["step_size"], parameters["inverse_mass_matrix"], 5
    ...     )
    >>> draws = jaxbnn.sample(
    ...     jax.random.key(0), make_kernel, jnp.ones((4, 2)), 10, data=jnp.array([1.0, 10.0]),
    ...     parameters={"step_size": 0.1, "inverse_mass_matrix": jnp.ones((4, 2))},
    ...     num_warmup=300, progress=False,
    ...     adapt=window_adaptation(300, metric="gradients", is_pooled=True),
    ... )
    >>> variances = draws.parameters["inverse_mass_matrix"]
    >>> bool(30 < variances[0, 1] / variances[0, 0] < 300)
    True
    """
    check_count("num_warmup", num_warmup)
    check_target(target_acceptance_rate)
    check_flag("is_pooled", is_pooled)
    check_component(component)
    check_word("metric", metric, ("draws", "gradients"))
    da_init, da_update, da_final = dual_averaging_adaptation(target_acceptance_rate)
    windows = np.asarray(build_schedule(num_warmup), np.int32)  # (is slow, is the end of a window)

    def is_diagonal(parameters):
        return parameters["inverse_mass_matrix"].ndim - is_pooled == 1

    def estimate_of(parameters):
        estimate = _from_draws if metric == "draws" else _from_gradients
        return estimate(is_diagonal(parameters))

    def with_values(parameters, step_size, inverse_mass):
        """Return the parameters with these values, one copy a chain where chains share them."""
        new = {"step_size": step_size, "inverse_mass_matrix": inverse_mass}
        return parameters | {
            name: jnp.broadcast_to(value, parameters[name].shape).astype(parameters[name].dtype)
            for name, value in new.items()
        }

    def init(parameters):
        require_floats(parameters, "step_size", "inverse_mass_matrix")
        step_size = widened(parameters["step_size"])  # 16 bits count no steps
        inverse_mass = widened(parameters["inverse_mass_matrix"])
        if is_pooled:
            step_size = jnp.exp(jnp.mean(jnp.log(step_size)))
            inverse_mass = jnp.mean(inverse_mass, axis=0)
        as_array = lambda x: jnp.asarray(x, step_size.dtype)  # noqa: E731
        return _WindowState(
            jax.tree.map(as_array, da_init(step_size)),
            jax.tree.map(jnp.asarray, estimate_of(parameters).init(inverse_mass)),
            jnp.full(parameters["step_size"].shape, target_acceptance_rate, step_size.dtype),
            with_values(parameters, step_size, inverse_mass),
        )

    def followed(recent, rates):
        """Return the recent rates of the chains, and the rate that the step size is to follow."""
        if not is_pooled:
            return recent, jnp.mean(rates)
        of_chains = jnp.mean(rates.reshape(len(rates), -1), axis=1)
        forgetting = _FORGETTING * target_acceptance_rate
        recent = like(recent + forgetting * (of_chains - recent), recent)
        last = jnp.argmin(recent)
        is_stuck = recent[last] < _STUCK * target_acceptance_rate
        is_stuck &= jnp.mean(recent) > _ABOUT * target_acceptance_rate
        return recent, jnp.where(is_stuck, of_chains[last], jnp.mean(rates))

    def seen(state, parameters):
        layers = layers_of(component_of(state, component, "states"))
        trees = [s.position for s in layers] if metric == "draws" else _gradients(layers)
        sizes = [_size(tree, is_pooled) for tree in trees]
        size = parameters["inverse_mass_matrix"].shape[-1]
        if size not in sizes:
            unit = "numbers" if is_diagonal(parameters) else "rows"
            advice = "; of a cycle, say by component which kernel it is for"
            raise size_mismatch(size, unit, sizes[0], advice if component is None else "")
        tree = trees[sizes.index(size)]
        flatten = lambda x: ravel_pytree(x)[0]  # noqa: E731
        return jax.vmap(flatten)(tree) if is_pooled else flatten(tree)[None]

    def update(a, step, state, info):
        estimate = estimate_of(a.parameters)
        is_slow, is_end = jnp.asarray(windows)[step.astype(jnp.int32)] == 1
        select = lambda flag, new, old: jax.tree.map(  # noqa: E731
            lambda n, o: jnp.where(flag, n, o), like(new, old), old
        )
        rates = acceptance_of(component_of(info, component, "infos"))
        recent, rate = followed(a.recent, rates)
        averaging = like(da_update(a.averaging, rate), a.averaging)
        learnt = select(is_slow, estimate.add(a.metric, seen(state, a.parameters)), a.metric)
        # An end is rare, and what it computes grows with d^3.
        learnt = jax.lax.cond(is_end, lambda m: like(estimate.close(m), m), lambda m: m, learnt)
        averaging = select(is_end, da_init(da_final(averaging)), averaging)
        step_size = jnp.exp(averaging.log_step_size)
        parameters = with_values(a.parameters, step_size, learnt.inverse_mass_matrix)
        return _WindowState(averaging, learnt, recent, parameters), parameters

    def final(a):
        return with_values(a.parameters, da_final(a.averaging), a.metric.inverse_mass_matrix)

    return Adaptation(init, update, final, is_pooled, num_warmup=num_warmup)


def _from_draws(is_diagonal: bool) -> _Estimate:
    start, update, close = mass_matrix_adaptation(is_diagonal)

    def init(inverse_mass):
        return start(inverse_mass.shape[-1])._replace(inverse_mass_matrix=inverse_mass)

    def add(estimate, vectors):
        def add_one(estimate, vector):
            return like(update(estimate, vector), estimate), None

        return jax.lax.scan(add_one, estimate, vectors)[0]

    return _Estimate(init, add, close)


class _GradientMoments(NamedTuple):
    inverse_mass_matrix: Array
    total: Array
    num_seen: Float[Array, ""]


def _from_gradients(is_diagonal: bool) -> _Estimate:
    def init(inverse_mass):
        zero = jnp.zeros_like(inverse_mass)
        return _GradientMoments(inverse_mass, zero, jnp.zeros((), inverse_mass.dtype))

    def add(estimate, vectors):
        squares = (
            jnp.sum(vectors**2, axis=0)
            if is_diagonal
            else jnp.einsum("ci,cj->ij", vectors, vectors, precision="highest")
        )
        total, num_seen = estimate.total + squares, estimate.num_seen + len(vectors)
        return _GradientMoments(estimate.inverse_mass_matrix, total, num_seen)

    def close(estimate):
        _, total, num_seen = estimate
        if is_diagonal:
            inverse_mass = num_seen / total
        else:
            dim = len(total)
            diagonal = jnp.diag(total)
            # As if `dim` more gradients had been seen, with these variances and no correlation.
            shrunk = (total + jnp.diag(diagonal) * dim / num_seen) / (num_seen + dim)
            # Correlations before inverting: in float32, scales may span many powers of ten.
            scale = jax.lax.rsqrt(jnp.diag(shrunk))
            correlation = shrunk * scale[:, None] * scale[None, :]
            inverse = jnp.linalg.inv(correlation)
            inverse_mass = (inverse + inverse.T) / 2 * scale[:, None] * scale[None, :]
        # A window in which the chain met no finite, non-zero gradient has nothing to say.
        variances = inverse_mass if is_diagonal else jnp.diag(inverse_mass)
        is_sound = jnp.all(jnp.isfinite(inverse_mass)) & jnp.all(variances > 0)
        inverse_mass = jnp.where(is_sound, inverse_mass, estimate.inverse_mass_matrix)
        return init(inverse_mass)

    return _Estimate(init, add, close)


def _gradients(layers: Sequence[Any]) -> list[PyTree]:
    """Return the gradients of the log density that a kernel's state, or one within it, keeps."""
    names = ("logdensity_grad", "gradient")  # BlackJAX's name, and ours
    found = [getattr(state, name) for state in layers for name in names if hasattr(state, name)]
    if not found:
        raise ValueError(
            "metric='gradients' needs a kernel whose state keeps the gradient, but "
            f"{type(layers[0])} does not; of a cycle, say by component which kernel does, or learn "
            "from the draws."
        )
    return found


def _size(tree: PyTree, is_pooled: bool) -> int:
    """Return how many numbers a chain has; pooled, all leaves have the chain axis first."""
    return sum(math.prod(jnp.shape(leaf)[is_pooled:]) for leaf in jax.tree.leaves(tree))
