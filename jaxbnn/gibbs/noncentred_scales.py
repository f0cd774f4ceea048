"""Moves of the scale of every hidden unit with the noise of its stages held fixed.

`scale_moves` draws a unit's scale given all else that it leaves alone; but its latents, scaled with
it, carry their noise along, and n data hold the scale within about 1 / sqrt(n). Seen from the noise
eps_j = v_j - f_j(v_(j-1)) of the unit's own stages, weights are scaled and the noise stays:

    (W_k, b_k, eps, V_k) -> (c W_k, c b_k, eps, V_k / c),   c > 0,

with V_k its outgoing weights; the latents v_j follow from the weights and the noise. The values v
of the next layer with weights stay too. With the residual r = v - f(v_(j-1)), Delta its variance,
N the number of incoming weights and bias, M that of the outgoing ones, the density changes by

    exp(-(|r'|^2 - |r|^2) / (2 Delta) - (c^2 - 1) (lambda_w |W_k|^2 + lambda_b b_k^2) / 2
        - (c^-2 - 1) lambda_V |V_k|^2 / 2),

and the Jacobian is c^(N - M), whatever the activation: a Metropolis move of log c. Where the stages
are homogeneous r' differs from r by the noise alone, so that long steps are accepted.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.base import SamplingAlgorithm
from jax.typing import DTypeLike
from jaxtyping import Array, ArrayLike, Bool, Float, PRNGKeyArray, PyTree, Shaped

from jaxbnn.gibbs.chain import GibbsPosition, chain_values
from jaxbnn.gibbs.hidden_units import (
    Group,
    by_unit,
    hidden_groups,
    incoming_squares,
    scaled_weights,
    unit_squares,
)
from jaxbnn.gibbs.linear_maps import average, linear
from jaxbnn.gibbs.model import IntermediateNoise
from jaxbnn.gibbs.pieces import PiecewiseLinear
from jaxbnn.gibbs.stages import Stage, split
from jaxbnn.gibbs.starts import check_position, satisfying
from jaxbnn.gibbs.validation import check_data, check_model, inputs_last
from jaxbnn.kernels.arguments import check_step_size
from jaxbnn.kernels.refresh import auxiliary_fields
from jaxbnn.networks import AvgPool, Conv, Dense


@auxiliary_fields()
class NoncentredScaleState(NamedTuple):
    """State of `noncentred_scale_moves`: there is nothing to cache.

    Attributes
    ----------
    position
        Weights and latents.
    """

    position: GibbsPosition


class NoncentredScaleInfo(NamedTuple):
    """What happened in one step, in which each unit had its turn.

    Attributes
    ----------
    acceptance_rate
        Mean over the units of min(1, exp(log_ratio)), 0 where the log ratio is NaN.
    is_accepted
        Whether the scale of any unit changed.
    is_divergent
        Whether a log ratio is NaN.
    """

    acceptance_rate: Float[Array, ""]
    is_accepted: Bool[Array, ""]
    is_divergent: Bool[Array, ""]


class Unit(NamedTuple):
    """What belongs to one unit; of several units, each in the first axis.

    Attributes
    ----------
    means
        The values of its first stage without noise, (rest, n).
    values
        Those of all its stages.
    errors
        The noise of all but the first.
    outgoing
        V, as the next layer takes the weights of one unit.
    incoming_energy, outgoing_energy
        lambda_w |W|^2 + lambda_b b^2, and lambda_V |V|^2.
    """

    means: Float[Array, "..."]
    values: list[Array]
    errors: list[Array]
    outgoing: Float[Array, "..."]
    incoming_energy: Float[Array, "..."]
    outgoing_energy: Float[Array, "..."]


def noncentred_scale_moves(
    model: IntermediateNoise,
    x: Shaped[Array | np.ndarray, "n ..."],
    y: Shaped[Array | np.ndarray, "n ..."],
    step_size: ArrayLike = 0.4,
) -> SamplingAlgorithm:
    """Return a kernel that scales every hidden unit's weights, one after the other, at fixed noise.

    To be put after `gibbs_sampler`, with `scale_moves`, in `gibbs_with_moves` or a `cycle`. An
    iteration costs about what drawing the last layer does.

    Parameters
    ----------
    model
        The model; its variances and precisions may be traced.
    x, y
        Data with rows first; may be traced.
    step_size
        Standard deviation of the longest steps of log c; each is shorter by a factor between 1 and
        10, drawn anew. May be traced.

    Returns
    -------
    The pair, with `NoncentredScaleState` and `NoncentredScaleInfo`. Positions are `GibbsPosition`.

    Raises
    ------
    ValueError
        If the data do not fit the model, the step size is not positive, or the network has no
        hidden layer.
    TypeError, ValueError
        Of `init`: a position that is not of this model and these data.

    Notes
    -----
    The model is that of Piccioli et al., (7); these moves are not in the paper. What is held fixed
    is as in an ancillarity-sufficiency interweaving (Yu, Meng (2011), Journal of Computational and
    Graphical Statistics 20, 531-570).

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> model, x = IntermediateNoise(mlp((2, 3, 1)), 0.01), jnp.ones((5, 2))
    >>> position, y = model.simulate(jax.random.key(0), model.sample_prior(jax.random.key(1)), x)
    >>> kernel = noncentred_scale_moves(model, x, y)
    >>> state, info = jax.jit(kernel.step)(jax.random.key(2), kernel.init(position))
    >>> state.position.post[0].shape, bool(info.is_accepted)
    ((3, 5), True)
    """
    check_model(model)
    check_data(model, x, y)
    check_step_size(step_size)
    groups = hidden_groups(model)
    if not groups:
        raise ValueError("the network has no hidden layer; leave noncentred_scale_moves out.")
    inputs = inputs_last(model.network, x)

    def init(position: GibbsPosition, rng_key: PRNGKeyArray | None = None) -> NoncentredScaleState:
        check_position(model, position, inputs)
        return NoncentredScaleState(satisfying(model, position, y))

    def step(rng_key: PRNGKeyArray, state: NoncentredScaleState):
        position, ratios, moved = state.position, [], []
        for number, group in enumerate(groups):
            values = chain_values(model, position, y, inputs.dtype)
            key = jax.random.fold_in(rng_key, number)
            position, ratio, is_moved = _scaled(
                model, inputs, position, values, group, step_size, key
            )
            ratios.append(ratio)
            moved.append(is_moved)
        ratio = jnp.concatenate(ratios)
        rates = jnp.where(jnp.isnan(ratio), 0, jnp.exp(jnp.minimum(ratio, 0)))
        info = NoncentredScaleInfo(
            jnp.mean(rates), jnp.any(jnp.concatenate(moved)), jnp.any(jnp.isnan(ratio))
        )
        return NoncentredScaleState(position), info

    return SamplingAlgorithm(init, step)


def _scaled(
    model: IntermediateNoise,
    x: Float[Array, "..."],
    position: GibbsPosition,
    values: list[Array],
    group: Group,
    step_size: ArrayLike,
    rng_key: PRNGKeyArray,
) -> tuple[GibbsPosition, Float[Array, " units"], Bool[Array, " units"]]:
    """Give each unit of a layer its turn; also return the log ratios, and which units moved."""
    following = model.stages[group.following]
    residual = values[group.following] - following.mean(
        position.params, values[group.following - 1]
    )
    units = units_of(model, x, position.params, values, group)

    def turn(residual, number_and_unit):
        number, unit = number_and_unit
        key_step, key_accept = jax.random.split(jax.random.fold_in(rng_key, number))
        log_c = draw_log_scale(key_step, step_size, residual.dtype)
        new, change = proposed(model, group, unit, log_c)
        ratio = log_ratio(model, group, unit, log_c, residual, change)
        uniform = jax.random.uniform(key_accept, (), ratio.dtype)
        # Zero stands for all below the smallest other: its logarithm would accept any move.
        uniform = jnp.maximum(uniform, float(jnp.finfo(ratio.dtype).epsneg))
        is_moved = jnp.log(uniform) < ratio
        kept = [jnp.where(is_moved, a, b) for a, b in zip(new, unit.values, strict=True)]
        residual = jnp.where(is_moved, residual + change, residual)
        return residual, (jnp.where(is_moved, log_c, 0), kept, ratio, is_moved)

    numbered = jnp.arange(group.size), units
    _, (log_c, own, ratio, is_moved) = jax.lax.scan(turn, residual, numbered)
    params = scaled_weights(model, position.params, group, jnp.exp(log_c))
    for j, new in zip(group.own, own, strict=True):
        values[j] = jnp.moveaxis(new, 0, 1).reshape(values[j].shape)
    latents = values[: len(model.latent_stages)]
    return GibbsPosition(params, *split(model.latent_stages, latents)), ratio, is_moved


def draw_log_scale(key: PRNGKeyArray, step_size: ArrayLike, dtype: DTypeLike) -> Float[Array, ""]:
    """Draw log c: normal, with a deviation between a tenth of `step_size` and all of it."""
    key_width, key_normal = jax.random.split(key)
    shorter = jax.random.uniform(key_width, (), dtype, maxval=math.log(10.0))
    width = jnp.asarray(step_size, dtype) * jnp.exp(-shorter)
    return width * jax.random.normal(key_normal, (), dtype)


def units_of(
    model: IntermediateNoise,
    x: Float[Array, "..."],
    params: PyTree,
    values: list[Array],
    group: Group,
) -> Unit:
    """Return what belongs to each unit of a layer, units in the first axis.

    Parameters
    ----------
    model
        The model.
    x
        Data with rows last.
    params
        All weights.
    values
        Of all stages.
    group
        The layer.
    """
    befores = [x, *values]
    means = [model.stages[j].mean(params, befores[j]) for j in group.own]
    own = [values[j] for j in group.own]
    errors = [value - mean for value, mean in zip(own[1:], means[1:], strict=True)]
    first, following = model.stages[group.first], model.stages[group.following]
    weight, bias = model.precisions(first.affine_index, x.dtype)
    entry, outgoing = params[first.index], params[following.index]["w"]
    incoming = weight * incoming_squares(entry["w"])
    if "b" in entry:
        incoming = incoming + bias * jnp.square(entry["b"])
    weight, _ = model.precisions(following.affine_index, x.dtype)
    rest = following.input_shape[-1] // group.size
    of_one = (*outgoing.shape[:-2], rest, outgoing.shape[-1])

    def units_first(array):
        return jnp.moveaxis(by_unit(array, group.size), 1, 0)

    return Unit(
        units_first(means[0]),
        [units_first(value) for value in own],
        [units_first(error) for error in errors],
        units_first(outgoing).reshape(group.size, *of_one),
        incoming,
        weight * unit_squares(outgoing, group.size),
    )


def proposed(
    model: IntermediateNoise, group: Group, unit: Unit, log_c: Float[Array, ""]
) -> tuple[list[Array], Float[Array, "..."]]:
    """Return a unit's values for weights scaled by c, and the change of the next layer's residual.

    Parameters
    ----------
    model, group
        The model and the layer of the unit.
    unit
        What belongs to the unit.
    log_c
        The step.
    """
    new = [unit.values[0] + jnp.expm1(log_c) * unit.means]
    for j, error in zip(group.own[1:], unit.errors, strict=True):
        new.append(_mean_of_unit(model.stages[j], new[-1]) + error)
    following = model.stages[group.following]
    assert isinstance(following.layer, Dense | Conv)
    # Linear: one pass for what the unit's values with 1 / c are less than they were.
    less = unit.values[-1] - jnp.exp(-log_c) * new[-1]
    return new, linear(following.layer, unit.outgoing, _as_inputs(following, unit.outgoing, less))


def log_ratio(
    model: IntermediateNoise,
    group: Group,
    unit: Unit,
    log_c: Float[Array, ""],
    residual: Float[Array, "..."],
    change: Float[Array, "..."],
) -> Float[Array, ""]:
    """Return the log of density and Jacobian, of what is proposed over what is.

    Parameters
    ----------
    model, group
        The model and the layer of the unit.
    unit
        What belongs to the unit.
    log_c
        The step.
    residual, change
        Of the next layer with weights, before the step, and by it.
    """
    variance = model.variance(group.following, residual.dtype)
    # The difference of squares, as a product: the squares themselves would cancel in float32.
    fit = jnp.sum(change * (2 * residual + change)) / (2 * variance)
    prior = jnp.expm1(2 * log_c) * unit.incoming_energy
    prior = (prior + jnp.expm1(-2 * log_c) * unit.outgoing_energy) / 2
    power = _num_incoming(model.stages[group.first]) - unit.outgoing.size
    return power * log_c - fit - prior


def _num_incoming(stage: Stage) -> int:
    layer = stage.layer
    assert isinstance(layer, Dense | Conv)
    positions = math.prod(layer.window) if isinstance(layer, Conv) else 1
    return positions * stage.input_shape[-1] + layer.bias


def _mean_of_unit(stage: Stage, before: Float[Array, "rest n"]) -> Float[Array, "new_rest n"]:
    """Return what a stage without weights makes of one unit's values."""
    if isinstance(stage.layer, AvgPool):
        image = before.reshape(*stage.input_shape[:-1], 1, before.shape[-1])
        return average(stage.layer, image).reshape(-1, before.shape[-1])
    assert isinstance(stage.layer, PiecewiseLinear)
    return stage.layer(before)


def _as_inputs(following: Stage, outgoing: Array, values: Float[Array, "rest n"]) -> Array:
    """Return one unit's values as the next layer would take them of a network of that unit."""
    return values.reshape(*following.input_shape[:-1], outgoing.shape[-2], values.shape[-1])
