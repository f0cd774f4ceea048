"""What is recorded of a chain: numbers that do not see the network's symmetries, and the score."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree, Shaped

from jaxbnn.gibbs import GibbsPosition, IntermediateNoise
from jaxbnn.gibbs.validation import check_model
from jaxbnn.networks import Network
from jaxbnn.numerics import check_count, check_real
from jaxbnn.numerics.arguments import check_type


def mean_squared_error(
    network: Network,
    params: PyTree,
    x_test: Shaped[Array, "m ..."],
    f_test: Float[Array, "m ..."],
) -> Float[Array, ""]:
    """Mean squared error of one state's noiseless outputs against the teacher's.

    Piccioli et al., section V.1.

    Parameters
    ----------
    network
        The student.
    params
        Its parameters in one state.
    x_test
        (m, ...) inputs.
    f_test
        (m, k) outputs of the teacher there, without noise.

    Raises
    ------
    ValueError
        f_test of another shape than the outputs.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> params = ({"w": jnp.ones((1, 1)), "b": jnp.zeros(1)},)
    >>> float(mean_squared_error(mlp((1, 1)), params, jnp.ones((2, 1)), jnp.zeros((2, 1))))
    1.0
    """
    check_real("f_test", f_test)
    outputs = network.apply(params, x_test)
    if jnp.shape(f_test) != outputs.shape:
        raise ValueError(
            f"f_test must have the shape of the outputs, {outputs.shape}, but has "
            f"{jnp.shape(f_test)}; otherwise each row would meet every other."
        )
    return jnp.mean(jnp.square(outputs - jnp.asarray(f_test)))


def score_statistic(
    model: IntermediateNoise,
    position: GibbsPosition,
    x: Shaped[Array, "n ..."],
    y: Shaped[Array, "n ..."],
    layer: int = 0,
) -> Float[Array, ""]:
    """Score of one layer's weights, averaged over them and in units of the noise: U.

    U = Delta mean_ij d log p(weights, latents | x, y) / d w_ij, whose posterior mean is zero
    (Piccioli et al., section V.1, with the first layer). Delta is the noise variance of that
    layer's pre-activations. Give its series to `jaxbnn.diagnostics.score_time`.

    Parameters
    ----------
    model, x, y
        The model and the data.
    position
        Weights and latents.
    layer
        Which Dense or Conv, counted from 0.

    Raises
    ------
    ValueError
        If there is no such layer.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> model = IntermediateNoise(mlp((1, 1)), 2.0, weight_precision=3.0)
    >>> start = GibbsPosition(({"w": jnp.ones((1, 1)), "b": jnp.zeros(1)},), (), ())
    >>> x, y = jnp.array([[2.0]]), jnp.array([[5.0]])
    >>> abs(float(score_statistic(model, start, x, y))) < 1e-5  # 2 ((5 - 2) 2 / 2 - 3)
    True
    """
    check_model(model)
    check_type("position", position, GibbsPosition, "write model.zero_position(x, y)")
    affine = [i for i, entry in enumerate(position.params) if isinstance(entry, dict)]
    check_count("layer", layer, 0)
    if not 0 <= layer < len(affine):
        raise ValueError(
            f"layer must be from 0 to {len(affine) - 1}, the network's layers with weights, but "
            f"is {layer}."
        )
    index = affine[layer]

    def log_density(weights):
        params = list(position.params)
        params[index] = {**params[index], "w": weights}
        return model.log_density(position._replace(params=tuple(params)), x, y)

    weights = position.params[index]["w"]
    stages = [i for i, stage in enumerate(model.stages) if stage.index == index]
    variance = model.variance(stages[0], weights.dtype)
    return variance * jnp.mean(jax.grad(log_density)(weights))
