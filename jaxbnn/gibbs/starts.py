"""Where a chain of the Gibbs sampler starts."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree, Shaped

from jaxbnn.gibbs.chain import GibbsPosition, NoisyChain
from jaxbnn.gibbs.probit import satisfying_logits
from jaxbnn.gibbs.stages import split
from jaxbnn.gibbs.validation import check_rows, inputs_last
from jaxbnn.networks import parameter_shapes
from jaxbnn.networks.validation import check_params
from jaxbnn.numerics.arguments import a_or_an, check_key
from jaxbnn.numerics.checks import check_float, check_real
from jaxbnn.numerics.data import finite_array

Data = Shaped[Array | np.ndarray, "n ..."]


def zero_position(model: NoisyChain, x: Data, y: Data) -> GibbsPosition:
    """Return zeros for every weight, bias and latent.

    Examples
    --------
    >>> from jaxbnn.gibbs import IntermediateNoise
    >>> from jaxbnn.networks import mlp
    >>> model = IntermediateNoise(mlp((2, 3, 1)), 0.01)
    >>> zero_position(model, jnp.ones((5, 2)), jnp.ones((5, 1))).post[0].shape
    (3, 5)
    """
    before = inputs_last(model.network, x)
    shapes = _latent_shapes(model, before.shape[-1], before.dtype)
    params = parameter_shapes(model.network, before.dtype)
    # Equal logits contradict no label.
    return jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), GibbsPosition(params, *shapes)
    )


def random_position(model: NoisyChain, key: PRNGKeyArray, x: Data, y: Data) -> GibbsPosition:
    """Draw weights from the prior, and latents from the model with noise of their own.

    Raises
    ------
    ValueError
        Data that do not fit the model.
    """
    check_key("key", key)
    key_weights, key_latents = jax.random.split(key)
    params = model.sample_prior(key_weights, inputs_last(model.network, x).dtype)
    return position_from_weights(model, key_latents, params, x, y)


def informed_position(
    model: NoisyChain, position: GibbsPosition, x: Data, y: Data
) -> GibbsPosition:
    """Return a teacher's weights and latents as a start.

    Parameters
    ----------
    model
        That of the chain.
    position
        What `model.simulate` returned with the data.
    x, y
        The data.

    Raises
    ------
    ValueError
        If the teacher is of another architecture or has other data.
    """
    before = inputs_last(model.network, x)
    n = before.shape[-1]
    params = parameter_shapes(model.network, before.dtype)
    wanted = GibbsPosition(params, *_latent_shapes(model, n, before.dtype))
    shapes = [jax.tree.map(jnp.shape, tree) for tree in (wanted, position)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            "the teacher's weights and latents must have the shapes of this model on these data, "
            f"{shapes[0]}, but have {shapes[1]}; give one of the same architecture and data, or "
            "use position_from_weights."
        )
    return satisfying(model, position, y)


def position_from_weights(
    model: NoisyChain, key: PRNGKeyArray | None, params: PyTree, x: Data, y: Data
) -> GibbsPosition:
    """Draw latents from the model given weights; without noise if the key is None.

    Logits that contradict their label are moved as `satisfying_logits` says.

    Raises
    ------
    ValueError
        Parameters of another network; data that do not fit the model.
    """
    check_params(model.network, params)
    finite_array("x", x)
    before = inputs_last(model.network, x)
    check_rows(model.network, model.output, before, y)
    values = model.forward(key, params, before)
    latent = model.latent_stages
    position = GibbsPosition(params, *split(latent, values[: len(latent)]))
    return satisfying(model, position, y)


def check_position(model: NoisyChain, position: GibbsPosition, inputs: Array) -> None:
    """Raise unless the position has the network's weights and the latents of so many data.

    A latent of one datum would be broadcast against all. Shapes only: it costs nothing once traced.

    Parameters
    ----------
    model
        That of the chain.
    position
        Where a kernel is to start.
    inputs
        Data with rows last.

    Raises
    ------
    TypeError
        What is no `GibbsPosition`, or holds numbers that are not float32 or float64.
    ValueError
        Weights of another network, or latents of another model or of other data.
    """
    if not isinstance(position, GibbsPosition):
        raise TypeError(
            f"a position must be a GibbsPosition(params, pre, post), but is {a_or_an(position)}; "
            "start from model.zero_position(x, y)."
        )
    check_params(model.network, position.params)
    n = inputs.shape[-1]
    wanted = _latent_shapes(model, n, inputs.dtype)
    for name, latents, values in zip(position._fields[1:], wanted, position[1:], strict=True):
        expected, found = [leaf.shape for leaf in latents], [jnp.shape(leaf) for leaf in values]
        if expected != found:
            raise ValueError(
                f"{name} of the position must have the shapes {expected} in this model on {n} "
                f"rows, but has {found}; start from model.zero_position(x, y)."
            )
    for path, leaf in jax.tree_util.tree_leaves_with_path(position):
        check_float(f"position{jax.tree_util.keystr(path)}", leaf)


def satisfying(model: NoisyChain, position: GibbsPosition, y: Data) -> GibbsPosition:
    """Move the logits of a probit that contradict their label; otherwise the same position."""
    if model.output == "regression":
        return position
    check_real("y", y)
    stages = model.latent_stages
    if stages[-1].is_post:
        logits = satisfying_logits(position.post[-1], jnp.asarray(y))
        return position._replace(post=(*position.post[:-1], logits))
    logits = satisfying_logits(position.pre[-1], jnp.asarray(y))
    return position._replace(pre=(*position.pre[:-1], logits))


def _latent_shapes(model: NoisyChain, n: int, dtype) -> tuple[tuple, tuple]:
    stages = model.latent_stages
    return split(stages, [jax.ShapeDtypeStruct((*s.output_shape, n), dtype) for s in stages])
