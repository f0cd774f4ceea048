"""The teacher-student experiment: data whose posterior gives one exact draw away, the teacher.

The teacher is drawn from the prior and the data from the teacher, so that the pair is a draw
of the joint law, and the teacher a draw of the posterior given the data: a chain that
starts there is in equilibrium at once (Piccioli et al., section II).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, Shaped

from jaxbnn.gibbs import GibbsPosition, IntermediateNoise
from jaxbnn.gibbs.validation import check_model, check_rows, inputs_last
from jaxbnn.numerics import check_count, check_finite, check_real, standard_normal
from jaxbnn.numerics.arguments import check_flag, check_function, check_key
from jaxbnn.numerics.checks import check_float, check_positive_number


class TeacherStudent(NamedTuple):
    """Data drawn from a teacher, and the chains' starts.

    Attributes
    ----------
    x, y
        Training data, rows first.
    x_test, f_test
        Test inputs, and the teacher's outputs there, without noise.
    positions
        The starts by name: "informed" (the teacher's weights and latents), "zero", and "random
        1", "random 2", ... For samplers of the classical posterior take their `params`.
    """

    x: Float[Array, "n ..."]
    y: Shaped[Array, "n ..."]
    x_test: Float[Array, "m ..."]
    f_test: Float[Array, "m ..."]
    positions: dict[str, GibbsPosition]


def teacher_student(
    key: PRNGKeyArray,
    model: IntermediateNoise,
    num_train: int,
    num_test: int,
    *,
    num_random: int = 2,
    is_noiseless: bool = False,
    sample_inputs: Callable[[PRNGKeyArray, tuple[int, ...]], Array] = jax.random.normal,
) -> TeacherStudent:
    """Draw a teacher, data, and starts that know it, and that do not.

    Piccioli et al., section V.1 and appendix B.2. Works under `vmap`, over keys and over noise
    variances, so that whole data sets are an axis of chains.

    Parameters
    ----------
    key
        A key.
    model
        Of the teacher, and of the starts' latents.
    num_train, num_test
        Rows of data.
    num_random
        How many independent random starts: weights from the prior, latents from the model.
    is_noiseless
        Whether labels are the network's outputs themselves, as in the paper's figure 2, where
        several posteriors share the data; the teacher's latents have no noise either. The
        teacher is then no exact draw of any of these posteriors.
    sample_inputs
        `sample_inputs(key, shape)`, the law of the inputs.

    Returns
    -------
    TeacherStudent

    Raises
    ------
    ValueError
        Fewer than one row of training or test data; inputs of another shape than is asked for, or
        that are not finite.
    TypeError
        Inputs that are not float32 or float64.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> model = IntermediateNoise(mlp((2, 3, 1)), 0.01, weight_precision=(2.0, 3.0))
    >>> experiment = teacher_student(jax.random.key(0), model, 5, 4)
    >>> experiment.y.shape, experiment.f_test.shape, list(experiment.positions)
    ((5, 1), (4, 1), ['informed', 'zero', 'random 1', 'random 2'])
    """
    check_model(model)
    check_key("key", key)
    check_count("num_train", num_train)
    check_count("num_test", num_test)
    check_count("num_random", num_random, 0)
    check_flag("is_noiseless", is_noiseless)
    check_function("sample_inputs", sample_inputs, "give (key, shape) -> inputs", num_arguments=2)
    shape = model.network.input_shape
    key_x, key_test, key_teacher, key_data, key_random = jax.random.split(key, 5)
    x = _inputs(sample_inputs, key_x, (num_train, *shape))
    x_test = _inputs(sample_inputs, key_test, (num_test, *shape))
    params = model.sample_prior(key_teacher, x.dtype)
    if is_noiseless:
        y = _labels(model, model.network.apply(params, x))
        teacher = model.position_from_weights(None, params, x, y)
    else:
        teacher, y = model.simulate(key_data, params, x)
    positions = {
        "informed": model.informed_position(teacher, x, y),
        "zero": model.zero_position(x, y),
    }
    for i in range(num_random):
        random_key = jax.random.fold_in(key_random, i)
        positions[f"random {i + 1}"] = model.random_position(random_key, x, y)
    return TeacherStudent(x, y, x_test, model.network.apply(params, x_test), positions)


def near_zero_position(
    key: PRNGKeyArray,
    model: IntermediateNoise,
    x: Shaped[Array, "n ..."],
    y: Shaped[Array, "n ..."],
    scale: ArrayLike = 1e-4,
) -> GibbsPosition:
    """Draw every weight and latent normal and small: the uninformed start of HMC and MALA.

    Weights have `scale` times the prior's standard deviation, latents `scale` (Piccioli et
    al., appendix I, where gradients at zero itself vanish: hidden units would stay equal).

    Parameters
    ----------
    key
        One key.
    model
        Of the posterior.
    x, y
        Data, rows first; only their shapes matter.
    scale
        How small, relative to the prior's deviations.

    Raises
    ------
    TypeError
        What is no key, or no model with noise at its stages.
    ValueError
        A scale that is not one positive number; data that do not fit the model.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> model = IntermediateNoise(mlp((2, 3, 1)), 0.01)
    >>> start = near_zero_position(jax.random.key(0), model, jnp.ones((5, 2)), jnp.ones((5, 1)))
    >>> bool(0 < jnp.abs(start.post[0]).max() < 1e-3)
    True
    """
    check_model(model)
    check_key("key", key)
    check_positive_number("scale", scale)
    key_prior, key_latents = jax.random.split(key)
    check_rows(model.network, model.output, inputs_last(model.network, x), y)
    zero = model.zero_position(x, y)
    dtype = jax.tree.leaves(zero)[0].dtype
    small = jnp.asarray(scale, dtype)
    params = jax.tree.map(lambda leaf: small * leaf, model.sample_prior(key_prior, dtype))
    leaves, structure = jax.tree.flatten((zero.pre, zero.post))
    latents = [
        small * standard_normal(jax.random.fold_in(key_latents, i), leaf.shape, leaf.dtype)
        for i, leaf in enumerate(leaves)
    ]
    return GibbsPosition(params, *jax.tree.unflatten(structure, latents))


def _inputs(sample_inputs: Callable, key: PRNGKeyArray, shape: tuple[int, ...]) -> Array:
    """Return what a user's function draws; refuse what is no such inputs."""
    name, x = "what sample_inputs returns", sample_inputs(key, shape)
    check_real(name, x)
    x = jnp.asarray(x)
    if x.shape != shape:
        raise ValueError(
            f"sample_inputs must return inputs of the shape that it is given, {shape}, but the "
            f"shape of these is {x.shape}."
        )
    check_float(name, x)
    check_finite(name, x)
    return x


def _labels(model, outputs):
    if model.output == "regression":
        return outputs
    if model.output == "probit":
        return jnp.argmax(outputs, axis=-1)
    return (outputs[:, 0] > 0).astype(jnp.int32)
