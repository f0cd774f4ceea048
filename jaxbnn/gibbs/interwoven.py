"""Gibbs sweeps in turn with the moves that free them: one kernel, whose caches stay right.

A `cycle` of `gibbs_sampler` and the moves is the same kernel, but there each refresh decomposes the
inputs anew. Here what is kept of the data is kept, and what depends on the weights is brought up to
date after the moves.
"""

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from blackjax.base import SamplingAlgorithm
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray, Shaped

from jaxbnn.gibbs.chain import GibbsPosition, chain_values
from jaxbnn.gibbs.hidden_units import hidden_groups, scalings
from jaxbnn.gibbs.interweave import interweave
from jaxbnn.gibbs.logit_scales import logit_scale_moves
from jaxbnn.gibbs.model import IntermediateNoise
from jaxbnn.gibbs.noncentred_scales import noncentred_scale_moves
from jaxbnn.gibbs.redraws import redraw_noisy_units
from jaxbnn.gibbs.sampler import GibbsState, gibbs_sampler
from jaxbnn.gibbs.scale_moves import scale_moves
from jaxbnn.gibbs.validation import inputs_last
from jaxbnn.kernels.arguments import check_kernels, check_listed
from jaxbnn.kernels.refresh import auxiliary_fields, check_state
from jaxbnn.numerics import check_count


@auxiliary_fields()
class InterwovenState(NamedTuple):
    """State of `interwoven_gibbs`.

    Attributes
    ----------
    position
        Weights and latents.
    gibbs
        The state of the Gibbs sampler there.
    """

    position: GibbsPosition
    gibbs: GibbsState


class InterwovenInfo(NamedTuple):
    """What happened in one step.

    Attributes
    ----------
    acceptance_rate
        Of the first move: of `interwoven_gibbs` that with the noise held fixed, which has a step
        size. None where that move reports none.
    is_accepted
        Whether that move was made; None where it does not report it, as no composition does.
    is_divergent
        Whether a conditional of the sweep could not be drawn, or a move was divergent.
    """

    acceptance_rate: Float[Array, ""] | None
    is_accepted: Bool[Array, ""] | None
    is_divergent: Bool[Array, ""]


def interwoven_gibbs(
    model: IntermediateNoise,
    x: Shaped[Array | np.ndarray, "n ..."],
    y: Shaped[Array | np.ndarray, "n ..."],
    step_size: ArrayLike,
    num_integration_steps: int = 5,
    proposal: str = "auto",
    *,
    num_candidates: int = 8,
    order: str = "backward",
    more_moves: Sequence[SamplingAlgorithm] = (),
) -> SamplingAlgorithm:
    """Return a Gibbs sweep, moves at fixed noise, of scales and of whole units, as one step.

    It samples the posterior of `gibbs_sampler`, and thermalizes where that is trapped or drifts:
    small noise, many data.

    Parameters
    ----------
    model, x, y
        As for `gibbs_sampler`.
    step_size, num_integration_steps, proposal
        As for `interweave`. `jaxbnn.dual_averaging(0.8)` finds the step size in warm-up.
    num_candidates
        As for `redraw_noisy_units`; 0 leaves that move out.
    order
        As for `gibbs_sampler`.
    more_moves
        Kernels of `GibbsPosition` that leave the same posterior invariant, run after the others.

    Returns
    -------
    The pair, with `InterwovenState` and `InterwovenInfo`. Scales are drawn given the latents in the
    layers that have the symmetry; a warning names each that has none. They are moved at fixed
    noise, and units redrawn, where there are hidden ones; under a probit of a network that ends in
    a Dense the scale of the logits is drawn, too.

    Raises
    ------
    ValueError
        As `gibbs_sampler` and `interweave`.

    Notes
    -----
    The posterior is that of Piccioli et al., (7); the sweep is their algorithm 1 or 2.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jaxbnn.networks import mlp
    >>> model, x = IntermediateNoise(mlp((2, 3, 1)), 0.01), jnp.ones((5, 2))
    >>> _, y = model.simulate(jax.random.key(0), model.sample_prior(jax.random.key(1)), x)
    >>> kernel = interwoven_gibbs(model, x, y, 0.5)
    >>> state = jax.jit(kernel.init)(model.zero_position(x, y))
    >>> state, info = jax.jit(kernel.step)(jax.random.key(2), state)
    >>> state.position.post[0].shape
    (3, 5)
    """
    check_listed("more_moves", more_moves, "write more_moves=[first, second]")
    if more_moves:
        check_kernels("more_moves", tuple(more_moves), "write more_moves=[first, second]")
    moves = [interweave(model, x, y, step_size, num_integration_steps, proposal)]
    symmetries, lost = scalings(model)
    for sentence in lost:
        warnings.warn(sentence, stacklevel=2)
    if symmetries:
        moves.append(scale_moves(model, x, warn=False))
    if model.output != "regression" and model.stages[-1].is_affine:
        moves.append(logit_scale_moves(model, x))
    has_units = bool(hidden_groups(model))
    if has_units:
        moves.append(noncentred_scale_moves(model, x, y))
    check_count("num_candidates", num_candidates, least=0)
    if num_candidates and has_units:
        moves.append(redraw_noisy_units(model, x, y, num_candidates))
    return gibbs_with_moves(model, x, y, [*moves, *more_moves], order)


def gibbs_with_moves(
    model: IntermediateNoise,
    x: Shaped[Array | np.ndarray, "n ..."],
    y: Shaped[Array | np.ndarray, "n ..."],
    moves: Sequence[SamplingAlgorithm],
    order: str = "backward",
) -> SamplingAlgorithm:
    """Return a Gibbs sweep and then the moves given, as one step.

    What `interwoven_gibbs` does with moves of its own choice; for one of them alone, or in another
    order.

    Parameters
    ----------
    model, x, y, order
        As for `gibbs_sampler`.
    moves
        Kernels of `GibbsPosition` that leave the same posterior invariant: at least one. The Info
        is that of the first: its step size is what an adaptation finds.

    Returns
    -------
    The pair, with `InterwovenState` and `InterwovenInfo`.

    Raises
    ------
    TypeError
        A move that is no kernel, whose State does not say in `auxiliary` what it keeps from step to
        step (see `refresh`), or keeps what is no function of the position, such as a momentum:
        `cycle` takes the latter.
    ValueError
        No move, or as `gibbs_sampler`.

    Notes
    -----
    The posterior is that of Piccioli et al., (7); the sweep is their algorithm 1 or 2.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jaxbnn.networks import mlp
    >>> model, x = IntermediateNoise(mlp((2, 3, 1)), 0.01), jnp.ones((5, 2))
    >>> _, y = model.simulate(jax.random.key(0), model.sample_prior(jax.random.key(1)), x)
    >>> kernel = gibbs_with_moves(model, x, y, [scale_moves(model, x)])
    >>> state = jax.jit(kernel.init)(model.zero_position(x, y))
    >>> state, info = jax.jit(kernel.step)(jax.random.key(2), state)
    >>> state.position.post[0].shape
    (3, 5)
    """
    check_listed("moves", moves, "write moves=[first, second]")
    moves = tuple(moves)
    check_kernels("moves", moves, "write moves=[first, second]")
    gibbs = gibbs_sampler(model, x, y, order)
    inputs = inputs_last(model.network, x)

    def init(position: GibbsPosition, rng_key: PRNGKeyArray | None = None) -> InterwovenState:
        for move in moves:
            _check_forgets(move, position)
        state = gibbs.init(position)
        return InterwovenState(state.position, state)

    def step(rng_key: PRNGKeyArray, state: InterwovenState):
        key_sweep, *keys = jax.random.split(rng_key, 1 + 2 * len(moves))
        swept, sweep_info = gibbs.step(key_sweep, state.gibbs)
        position, infos = swept.position, []
        both = zip(moves, keys[: len(moves)], keys[len(moves) :], strict=True)
        for move, key, key_init in both:
            moved, info = move.step(key, move.init(position, key_init))
            position = moved.position
            infos.append(info)
        is_divergent = sweep_info.is_divergent
        for info in infos:
            if (told := getattr(info, "is_divergent", None)) is not None:
                is_divergent |= told
        # What the first move does not report is not the sweep's: step sizes would be adapted to it.
        rate = getattr(infos[0], "acceptance_rate", None)
        is_accepted = getattr(infos[0], "is_accepted", None)
        info = InterwovenInfo(rate, is_accepted, is_divergent)
        return InterwovenState(position, moved_to(model, inputs, y, swept, position)), info

    return SamplingAlgorithm(init, step)


def _check_forgets(move: SamplingAlgorithm, position: GibbsPosition) -> None:
    """Refuse a move whose state is more than functions of the position: here it begins anew."""
    state = jax.eval_shape(lambda p: move.init(p, jax.random.key(0)), position)
    if kept := check_state(state):
        raise TypeError(
            f"{type(state).__name__}, the state of a move, keeps {', '.join(kept)} from one step "
            "to the next, and moves begin anew here; put it into a cycle with this kernel."
        )


def moved_to(
    model: IntermediateNoise, x: Float[Array, "..."], y, state: GibbsState, position: GibbsPosition
) -> GibbsState:
    """Return a state of the Gibbs sampler at another position; the data are not decomposed anew.

    Parameters
    ----------
    model
        The model.
    x
        Data with rows last.
    y
        The labels.
    state
        At any position.
    position
        Where it should be.
    """
    kept = state.first_layer
    if kept is not None and kept.residuals is not None:
        values = chain_values(model, position, y, x.dtype)
        params = position.params[model.stages[0].index]
        kept = kept.after_params(model, x, params, values[0])
    return GibbsState(position, kept)
