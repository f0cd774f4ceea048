"""Exact moves along the scale of every hidden unit of the intermediate-noise model.

Where the stages of a unit k are homogeneous (ReLU, pooling), the network keeps its output under

    (W_k, b_k, Z_k, X_k) -> c (W_k, b_k, Z_k, X_k),   V_k -> V_k / c,   c > 0,

with V_k its outgoing weights. With N the number of what is multiplied (incoming weights, a bias,
and all latents of the unit), M that of its outgoing weights, and the squares of noise and prior

    a = sum_j |v_j - f_j(v_(j-1))|^2 / Delta_j + lambda_w |W_k|^2 + lambda_b b_k^2,
    b = lambda_V |V_k|^2,

the density along the orbit is exp(-(a c^2 + b / c^2) / 2), the Jacobian c^(N - M), and the
invariant measure of the group dc / c. A draw from the product of the three leaves the posterior
invariant (Liu, Sabatti (2000), Biometrika 87, 353-369, theorem 1): c^2 is generalised inverse
Gaussian with p = (N - M) / 2, a and b. Units of one layer have orbits that do not touch each
other and are drawn at once. Where a step (sign) ends the orbit, nothing is divided: M = b = 0.

Plain Gibbs moves the scale by single latents, each held by its noise, and takes of the order of
n^2 sweeps for it; this move takes log c about 1 / sqrt(2 (N - M)) far, and costs less than a sweep.
"""

import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.base import SamplingAlgorithm
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Shaped

from jaxbnn.gibbs.chain import GibbsPosition
from jaxbnn.gibbs.hidden_units import (
    Scaling,
    incoming_squares,
    scaled_weights,
    scalings,
    times_unit,
    unit_squares,
)
from jaxbnn.gibbs.model import IntermediateNoise
from jaxbnn.gibbs.stages import merge, split
from jaxbnn.gibbs.starts import check_position
from jaxbnn.gibbs.validation import check_model, checked_inputs
from jaxbnn.kernels.refresh import auxiliary_fields
from jaxbnn.numerics.arguments import check_flag
from jaxbnn.numerics.generalised_inverse_gaussian import draw_unchecked


@auxiliary_fields()
class ScaleMovesState(NamedTuple):
    """State of `scale_moves`: there is nothing to cache.

    Attributes
    ----------
    position
        Weights and latents.
    """

    position: GibbsPosition


class ScaleMovesInfo(NamedTuple):
    """What happened in one step, in which the scale of every unit was drawn.

    Attributes
    ----------
    acceptance_rate
        1: the draws are exact.
    is_accepted
        True.
    is_divergent
        Whether a unit has no scale to draw, all its incoming or outgoing numbers being zero, as at
        a zero start, or one not finite. It is left as it is.
    """

    acceptance_rate: Float[Array, ""]
    is_accepted: Bool[Array, ""]
    is_divergent: Bool[Array, ""]


class ScaleLaw(NamedTuple):
    """The generalised inverse Gaussian law of c^2, for each unit.

    Attributes
    ----------
    p, a, b
        Its parameters.
    """

    p: Float[Array, " units"]
    a: Float[Array, " units"]
    b: Float[Array, " units"]


def scale_moves(
    model: IntermediateNoise, x: Shaped[Array | np.ndarray, "n ..."], *, warn: bool = True
) -> SamplingAlgorithm:
    """Return a kernel that draws the scale of every hidden unit given all that it does not change.

    To be put after `gibbs_sampler` in a `cycle`: alone it leaves all directions as they are. It has
    no step size, rejects nothing and never evaluates the labels.

    Parameters
    ----------
    model
        The model; its variances and precisions may be traced.
    x
        Data, rows first; may be traced.
    warn
        Whether to name the layers that have no scale symmetry.

    Returns
    -------
    The pair, with `ScaleMovesState` and `ScaleMovesInfo`. Positions are `GibbsPosition`.

    Raises
    ------
    ValueError
        If the data do not fit the model, or no layer of it has a scale symmetry. A layer without
        one beside others that have it is left out, with a warning that names it.
    TypeError, ValueError
        Of `init`: a position that is not of this model and these data.

    Notes
    -----
    Moves along symmetries are not in Piccioli et al., whose (7) is the model.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> model, x = IntermediateNoise(mlp((2, 3, 1)), 0.01), jnp.ones((5, 2))
    >>> position, _ = model.simulate(jax.random.key(0), model.sample_prior(jax.random.key(1)), x)
    >>> kernel = scale_moves(model, x)
    >>> state, info = kernel.step(jax.random.key(2), kernel.init(position))
    >>> bool(jnp.allclose(model.network.apply(state.position.params, x),
    ...                   model.network.apply(position.params, x), rtol=1e-4))
    True
    """
    check_model(model)
    inputs = checked_inputs(model.network, x)
    check_flag("warn", warn)
    symmetries, lost = scalings(model)
    if not symmetries:
        raise ValueError(
            "no hidden layer of this network has a scale symmetry; leave scale_moves out."
        )
    for sentence in lost if warn else ():
        warnings.warn(sentence, stacklevel=2)

    def init(position: GibbsPosition, rng_key: PRNGKeyArray | None = None) -> ScaleMovesState:
        check_position(model, position, inputs)
        return ScaleMovesState(position)

    def step(rng_key: PRNGKeyArray, state: ScaleMovesState):
        position, is_drawn = state.position, jnp.ones((), bool)
        for number, scaling in enumerate(symmetries):
            law = scale_law(model, inputs, position, scaling)
            square = draw_unchecked(jax.random.fold_in(rng_key, number), *law)
            is_scale = jnp.isfinite(square) & (square > 0)
            factor = jnp.where(is_scale, jnp.sqrt(jnp.where(is_scale, square, 1)), 1)
            position = scaled(model, position, scaling, factor)
            is_drawn = is_drawn & jnp.all(is_scale)
        info = ScaleMovesInfo(jnp.ones((), inputs.dtype), jnp.ones((), bool), ~is_drawn)
        return ScaleMovesState(position), info

    return SamplingAlgorithm(init, step)


def scale_law(
    model: IntermediateNoise,
    x: Float[Array, "..."],
    position: GibbsPosition,
    scaling: Scaling,
) -> ScaleLaw:
    """Return the law of c^2 of each unit of a layer.

    Parameters
    ----------
    model
        The model.
    x
        Data with rows last.
    position
        Weights and latents.
    scaling
        The layer's symmetry, from `hidden_units.scalings`.
    """
    group, params = scaling.group, position.params
    first = model.stages[group.first]
    entry, size, dtype = params[first.index], group.size, x.dtype
    weight, bias = model.precisions(first.affine_index, dtype)
    a = weight * incoming_squares(entry["w"])
    count = entry["w"].size // size
    if "b" in entry:
        a = a + bias * jnp.square(entry["b"])
        count += 1
    values = merge(model.latent_stages, position.pre, position.post)
    for j in range(group.first, scaling.end):
        before = x if j == 0 else values[j - 1]
        errors = values[j] - model.stages[j].mean(params, before)
        a = a + unit_squares(errors, size) / model.variance(j, dtype)
        count += errors.size // size
    b = jnp.zeros_like(a)
    if scaling.has_outgoing:
        last = model.stages[scaling.end]
        outgoing = params[last.index]["w"]
        weight, _ = model.precisions(last.affine_index, dtype)
        b = weight * unit_squares(outgoing, size)
        count -= outgoing.size // size
    return ScaleLaw(jnp.full(size, count / 2, dtype), a, b)


def scaled(
    model: IntermediateNoise,
    position: GibbsPosition,
    scaling: Scaling,
    factor: Float[Array, " units"],
) -> GibbsPosition:
    """Return the position with the scale of each unit times its factor, which is positive."""
    params = scaled_weights(
        model, position.params, scaling.group, factor, has_outgoing=scaling.has_outgoing
    )
    values = merge(model.latent_stages, position.pre, position.post)
    for j in range(scaling.group.first, scaling.end):
        values[j] = times_unit(values[j], factor)
    return GibbsPosition(params, *split(model.latent_stages, values))
