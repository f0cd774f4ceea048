"""Gibbs sampling of the intermediate-noise posterior.

Every sweep draws all weights, biases and latents from their conditionals; nothing is rejected
and nothing is tuned (Piccioli et al., algorithms 1 and 2, with erratum A2: the last layer's
weights are drawn too).
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from blackjax.base import SamplingAlgorithm
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Shaped

from jaxbnn.gibbs.chain import GibbsPosition, chain_values
from jaxbnn.gibbs.first_layer import FirstLayer, can_be_kept, first_layer
from jaxbnn.gibbs.model import IntermediateNoise
from jaxbnn.gibbs.starts import check_position, satisfying
from jaxbnn.gibbs.sweep import Sweep
from jaxbnn.gibbs.validation import check_data, check_model, inputs_last
from jaxbnn.kernels.refresh import auxiliary_fields
from jaxbnn.numerics.arguments import check_word


@auxiliary_fields()
class GibbsState(NamedTuple):
    """State of `gibbs_sampler`.

    Attributes
    ----------
    position
        Weights and latents.
    first_layer
        What is kept of a first layer with weights, whose inputs never change; otherwise None.
        None, too, where some of what the inputs tell is lost in it, beside an input some
        eps^-1 / p times as large, of p, or beside a distance from zero so many times the spread:
        every sweep then passes over the data once more. It is kept all the same where the data
        are traced: the layer's weights are then not drawn, and infos say `is_divergent`.
    """

    position: GibbsPosition
    first_layer: FirstLayer | None


class GibbsInfo(NamedTuple):
    """What summaries of kernels ask for: every draw of `gibbs_sampler` is accepted.

    Attributes
    ----------
    acceptance_rate
        1.
    is_accepted
        True.
    is_divergent
        Whether a conditional could not be drawn from, its precision matrix being singular to the
        last digit or a number infinite. What it would have drawn keeps its value: a matrix
        depends on the rest of the state alone, so that a sweep without this draw still leaves
        the posterior invariant. Where every sweep says so, the block never moves: raise the
        noise variances, standardise the inputs, or use float64.
    """

    acceptance_rate: Float[Array, ""]
    is_accepted: Bool[Array, ""]
    is_divergent: Bool[Array, ""]


def gibbs_sampler(
    model: IntermediateNoise,
    x: Shaped[Array | np.ndarray, "..."],
    y: Shaped[Array | np.ndarray, "..."],
    order: str = "sequential",
    bias: str = "joint",
) -> SamplingAlgorithm:
    """Return the Gibbs sampler of an intermediate-noise posterior.

    Parameters
    ----------
    model
        The model. Its variances and precisions may be traced, and may change from sweep to
        sweep (all but the ratio of the first layer's two precisions, which `init` uses).
    x, y
        Data with rows first; may be traced.
    order
        "sequential": algorithm 1, layer by layer from the data: X^(l), W^(l), Z^(l+1). "parallel":
        algorithm 2, every second latent, all weights, the other latents; within each group the
        draws are independent of each other, so that a device may run them at once. "backward":
        from the labels to the data, each layer's values, then its weights, as the authors' code
        does. All three have the same stationary law. From a zero start the backward order is
        some fifty sweeps ahead: its first weights are drawn given labels, those of the others
        given latents that are zero.
    bias
        "joint": weights and biases of a layer in one draw. "separate": one after the other.

    Returns
    -------
    The pair. Positions are `GibbsPosition`: start from `model.zero_position(x, y)`,
    `model.random_position(key, x, y)` or `model.informed_position(...)`. Logits that contradict
    their label are moved at `init`.

    Raises
    ------
    ValueError
        If the data do not fit the model, or `order` or `bias` is unknown.
    TypeError, ValueError
        Of `init`: a position that is not of this model and these data.

    Examples
    --------
    >>> import jax
    >>> from jaxbnn.networks import mlp
    >>> model = IntermediateNoise(mlp((2, 3, 1)), 0.01)
    >>> x = jnp.ones((5, 2))
    >>> _, y = model.simulate(jax.random.key(0), model.sample_prior(jax.random.key(1)), x)
    >>> kernel = gibbs_sampler(model, x, y)
    >>> step, start = jax.jit(kernel.step), kernel.init(model.zero_position(x, y))
    >>> state, info = step(jax.random.key(2), start)
    >>> state.position.post[0].shape
    (3, 5)
    """
    check_model(model)
    check_data(model, x, y)
    check_word("bias", bias, ("joint", "separate"))
    check_word("order", order, ("sequential", "parallel", "backward"))
    # A kernel made outside of its loop has the data turned over once, not once a sweep.
    data = (inputs_last(model.network, x), y)
    is_kept = can_be_kept(model, data[0], bias)
    num_stages, num_latent = len(model.stages), len(model.latent_stages)
    affine = [j for j, stage in enumerate(model.stages) if stage.is_affine]

    def init(position: GibbsPosition, rng_key: PRNGKeyArray | None = None) -> GibbsState:
        check_position(model, position, data[0])
        position = satisfying(model, position, y)
        kept = first_layer(model, data[0], bias) if is_kept else None
        if kept is not None and order != "backward":
            values = chain_values(model, position, y, data[0].dtype)
            index = model.stages[0].index
            kept = kept.after_params(model, data[0], position.params[index], values[0])
        return GibbsState(position, kept)

    def step(rng_key: PRNGKeyArray, state: GibbsState) -> tuple[GibbsState, GibbsInfo]:
        sweep = Sweep(rng_key, model, data, state.position, state.first_layer, bias)
        if order == "sequential":
            for j, previous in zip(affine, [0, *affine], strict=False):
                if j > previous:
                    sweep.draw_values(j - 1)  # X^(l), the layer's input
                sweep.draw_params(j)  # W^(l), b^(l)
                sweep.draw_values(*range(j - 2, previous - 1, -1))  # Z^(l), back to its layer
            sweep.draw_values(*range(num_latent - 1, affine[-1] - 1, -1))
        elif order == "parallel":
            # Neighbours in the chain are never drawn at once.
            sweep.draw_values(*range(1, num_latent, 2))
            sweep.draw_params(*affine)
            sweep.draw_values(*range(0, num_latent, 2))
        else:
            for j in reversed(range(num_stages)):
                if j < num_latent:
                    sweep.draw_values(j)
                if j in affine:
                    sweep.draw_params(j)
        # Backwards, the next sweep draws the first outputs before it needs their sums.
        kept = state.first_layer if order == "backward" else sweep.first_layer()
        one = jnp.ones((), data[0].dtype)
        info = GibbsInfo(one, jnp.ones((), bool), sweep.is_divergent())
        return GibbsState(sweep.position(), kept), info

    return SamplingAlgorithm(init, step)
