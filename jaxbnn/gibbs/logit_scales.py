"""The scale of a probit's logits, drawn together with that of the weights that they come from.

A label says which logit is largest, or whether one is above zero: it does not see the scale of the
logits U. Along the orbit (W, b, U) -> c (W, b, U), with W and b the weights and the bias of the
last layer and X what comes into it, the labels stay possible. With m the number of what is scaled,

    a = |U - W' X - b|^2 / Delta + lambda_w |W|^2 + lambda_b |b|^2,

the posterior density is exp(-a c^2 / 2), the Jacobian c^m and the invariant measure of the group
dc / c: c^2 is a draw of the Gamma law with shape m / 2 and rate a / 2. It leaves the
posterior invariant (Liu, Wu (1999), JASA 94, 1264-1274, who call it parameter expansion; Liu,
Sabatti (2000), theorem 1).

Sweeps move the scale of the logits slowly where there are many rows: on MNIST the norm of the last
layer still grows after 5,000. With this move it has its level after 500, from every start
(configs/thermalization/starts_mlp.toml and starts_mlp_logits.toml).
"""

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.base import SamplingAlgorithm
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from jaxbnn.gibbs.chain import GibbsPosition
from jaxbnn.gibbs.model import IntermediateNoise
from jaxbnn.gibbs.scale_moves import ScaleLaw, ScaleMovesInfo, ScaleMovesState
from jaxbnn.gibbs.stages import merge
from jaxbnn.gibbs.starts import check_position
from jaxbnn.gibbs.validation import check_model, checked_inputs
from jaxbnn.numerics.generalised_inverse_gaussian import draw_unchecked


def logit_scale_moves(
    model: IntermediateNoise, x: Shaped[Array | np.ndarray, "n ..."]
) -> SamplingAlgorithm:
    """Return a kernel that draws the scale of a probit's logits and of their weights.

    To be put after `gibbs_sampler` in a `cycle`, or to `gibbs_with_moves`: alone it leaves all
    directions as they are. `interwoven_gibbs` has it where the output is a probit. It has no step
    size, rejects nothing and needs no labels.

    Parameters
    ----------
    model
        The model, with a probit output; its variances and precisions may be traced.
    x
        Data, rows first; may be traced.

    Returns
    -------
    The pair, with `ScaleMovesState` and `ScaleMovesInfo`. Positions are `GibbsPosition`.

    Raises
    ------
    ValueError
        If the data do not fit the model, its output is a regression, or the network ends in an
        activation.
    TypeError, ValueError
        Of `init`: a position that is not of this model and these data.

    Notes
    -----
    Parameter expansion is not in Piccioli et al., whose section IV and appendix B have the probit.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> model, x = IntermediateNoise(mlp((2, 3, 2)), 0.01, output="probit"), jnp.ones((5, 2))
    >>> position, _ = model.simulate(jax.random.key(0), model.sample_prior(jax.random.key(1)), x)
    >>> kernel = logit_scale_moves(model, x)
    >>> state, info = kernel.step(jax.random.key(2), kernel.init(position))
    >>> ratio = state.position.pre[-1] / position.pre[-1]
    >>> bool(jnp.allclose(ratio, ratio[0, 0], rtol=1e-4))
    True
    """
    check_model(model)
    inputs = checked_inputs(model.network, x)
    if model.output == "regression":
        raise ValueError(
            "the outputs of a regression are data, whose scale cannot be drawn; leave "
            "logit_scale_moves out."
        )
    if not model.stages[-1].is_affine:
        raise ValueError(
            "logit_scale_moves scales the weights that the logits come from, but this network ends "
            "in an activation; end it in a Dense, or leave the move out."
        )

    def init(position: GibbsPosition, rng_key: PRNGKeyArray | None = None) -> ScaleMovesState:
        check_position(model, position, inputs)
        return ScaleMovesState(position)

    def step(rng_key: PRNGKeyArray, state: ScaleMovesState):
        square = draw_unchecked(rng_key, *logit_scale_law(model, inputs, state.position))
        is_scale = jnp.isfinite(square) & (square > 0)
        factor = jnp.where(is_scale, jnp.sqrt(jnp.where(is_scale, square, 1)), 1)
        position = scaled_logits(model, state.position, factor)
        info = ScaleMovesInfo(jnp.ones((), inputs.dtype), jnp.ones((), bool), ~is_scale)
        return ScaleMovesState(position), info

    return SamplingAlgorithm(init, step)


def logit_scale_law(
    model: IntermediateNoise, x: Float[Array, "..."], position: GibbsPosition
) -> ScaleLaw:
    """Return the law of c^2: generalised inverse Gaussian with b = 0, which is the Gamma law.

    Parameters
    ----------
    model
        The model.
    x
        Data with rows last.
    position
        Weights and latents.
    """
    last, dtype = len(model.stages) - 1, x.dtype
    stage = model.stages[last]
    entry = position.params[stage.index]
    values = merge(model.latent_stages, position.pre, position.post)
    errors = values[last] - stage.mean(position.params, values[last - 1] if last else x)
    a = jnp.sum(jnp.square(errors)) / model.variance(last, dtype)
    count = errors.size
    precisions = dict(zip("wb", model.precisions(stage.affine_index, dtype), strict=True))
    for name, leaf in entry.items():
        a = a + precisions[name] * jnp.sum(jnp.square(leaf))
        count += leaf.size
    return ScaleLaw(jnp.full((), count / 2, dtype), a, jnp.zeros((), dtype))


def scaled_logits(
    model: IntermediateNoise, position: GibbsPosition, factor: Float[Array, ""]
) -> GibbsPosition:
    """Return the position with the logits and the last layer's weights and bias times a factor."""
    index = model.stages[-1].index
    params = list(position.params)
    params[index] = jax.tree.map(lambda leaf: factor * leaf, params[index])
    return GibbsPosition(
        tuple(params), (*position.pre[:-1], factor * position.pre[-1]), position.post
    )
