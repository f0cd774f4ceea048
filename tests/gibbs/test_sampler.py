"""Tests of gibbs.arguments, gibbs.chain, gibbs.validation and gibbs.starts: the kernel as
users meet it: traced parameters, chains, starts, bad input, other samplers.
"""

import blackjax
import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbnn
from jaxbnn.gibbs import (
    GibbsPosition,
    IntermediateNoise,
    PiecewiseLinear,
    activation_pieces,
    gibbs_sampler,
    interweave,
    logit_scale_moves,
    noncentred_scale_moves,
    redraw_noisy_units,
    sample_binary_logit,
    sample_inputs,
    sample_logits,
    sample_pooled,
    sample_pre_activations,
    sample_weights,
    sample_weights_and_bias,
    scale_moves,
    turn_units,
)
from jaxbnn.gibbs.weights import sample_bias
from jaxbnn.networks import Activation, AvgPool, Conv, Dense, Network, Residual, mlp
from tests.gibbs.cases import MODELS, data
from tests.kit.sizes import QUICK

N = 6
NETWORK = mlp((2, 3, 1))


def model_at(noise_variance, precision=2.0):
    return IntermediateNoise(NETWORK, noise_variance, precision, 1.5)


def dataset(seed, noise_variance=0.1):
    model = model_at(noise_variance)
    keys = jax.random.split(jax.random.key(seed), 3)
    x = jax.random.normal(keys[0], (N, 2))
    return x, *model.simulate(keys[1], model.sample_prior(keys[2]), x)


def sweeps(key, kernel, state, number=3):
    for i in range(number):
        state, _ = kernel.step(jax.random.fold_in(key, i), state)
    return state


@pytest.mark.long
def test_traced_variances_and_whole_datasets_are_a_chain_axis():
    """vmap over variances, precisions and data equals one concrete run each."""
    variances = np.asarray([1e-3, 0.1, 2.0], np.float32)
    precisions = np.asarray([1.0, 2.0, 3.0], np.float32)
    xs, positions, ys = jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(dataset, range(3)))

    def run(key, variance, precision, x, position, y):
        kernel = gibbs_sampler(model_at(variance, precision), x, y)
        return sweeps(key, kernel, kernel.init(position)).position

    together = jax.jit(jax.vmap(run, in_axes=(None, 0, 0, 0, 0, 0)), compiler_options=QUICK)
    found = together(jax.random.key(0), variances, precisions, xs, positions, ys)
    for i in range(3):
        x, position, y = (jax.tree.map(lambda leaf: leaf[i], t) for t in (xs, positions, ys))  # noqa: B023
        kernel = gibbs_sampler(model_at(float(variances[i]), float(precisions[i])), x, y)
        alone = jax.jit(
            lambda key, position: sweeps(key, kernel, kernel.init(position)).position,  # noqa: B023
            compiler_options=QUICK,
        )(jax.random.key(0), position)
        ours = jax.tree.map(lambda leaf: leaf[i], found)  # noqa: B023
        chex.assert_trees_all_close(alone, ours, rtol=2e-3, atol=2e-4)


@pytest.mark.long
def test_in_the_runner_with_a_grid_of_variances():
    x, position, y = dataset(0)
    starts = jax.tree.map(lambda leaf: jnp.stack([leaf] * 2), position)

    def make_kernel(variance, data):
        return gibbs_sampler(model_at(variance), *data)

    draws = jaxbnn.sample(
        jax.random.key(0),
        make_kernel,
        starts,
        5,
        parameters=jnp.asarray([0.01, 0.1]),
        data=(x, y),
        collect=lambda state, info: state.position.params,
        progress=False,
    )
    assert draws.positions[0]["w"].shape == (2, 5, 2, 3)
    assert np.all(draws.acceptance_rate == 1)


def test_starts():
    model, x = MODELS["conv"], data("conv", N, np.float32)
    key = jax.random.key(0)
    teacher, y = model.simulate(jax.random.key(1), model.sample_prior(jax.random.key(2)), x)
    log_density = jax.jit(lambda position: model.log_density(position, x, y))
    zero = model.zero_position(x, y)
    chex.assert_trees_all_equal(zero, jax.tree.map(jnp.zeros_like, zero))
    assert np.isfinite(log_density(zero))
    random = jax.jit(lambda key: model.random_position(key, x, y))(key)
    assert np.isfinite(log_density(random))
    chex.assert_trees_all_equal(model.informed_position(teacher, x, y), teacher)
    from_weights = model.position_from_weights(key, teacher.params, x, y)
    chex.assert_trees_all_equal(from_weights.params, teacher.params)
    chex.assert_trees_all_equal_shapes(zero, random, from_weights, teacher)
    # Without a key there is no noise: the logits are the network's outputs, where they may be.
    still = model.position_from_weights(None, teacher.params, x, y)
    outputs = model.network.apply(teacher.params, x)
    right = np.argmax(outputs, axis=1) == np.asarray(y)
    assert 0 < right.sum() < N
    np.testing.assert_allclose(still.pre[-1].T[right], outputs[right], rtol=1e-5)
    # Labels that a start contradicts are met by init.
    wrong = random._replace(pre=(*random.pre[:-1], -random.pre[-1]))
    assert np.isneginf(log_density(wrong))
    kernel = gibbs_sampler(model, x, y)
    repaired = jax.jit(kernel.init)(wrong).position
    assert np.isfinite(log_density(repaired))
    with pytest.raises(ValueError, match="teacher's weights and latents must have the shapes"):
        model_at(0.1).informed_position(teacher, *dataset(0)[::2])


def test_binary_labels_are_met():
    model, x = MODELS["binary"], data("binary", N, np.float32)
    y = jnp.asarray([0, 1, 1, 0, 1, 0])
    position = model.random_position(jax.random.key(0), x, y)
    assert np.all((np.asarray(position.pre[-1][0]) >= 0) | (np.asarray(y) == 0))
    assert np.isfinite(model.log_density(position, x, y))


@pytest.mark.long
def test_log_density_is_what_hmc_needs():
    """Finite, with finite gradients; differences from a reference keep float32 digits."""
    x, position, y = dataset(0)
    model = model_at(1e-4)
    bound = jax.jit(lambda p: model.log_density(p, x, y))
    kernel = blackjax.hmc(bound, 1e-4, jnp.ones(3 * 3 + 4 + 2 * 3 * N), 3)
    state, info = jax.jit(kernel.step)(jax.random.key(0), kernel.init(position))
    chex.assert_tree_all_finite(state)
    assert float(info.acceptance_rate) > 0.5
    moved = jax.tree.map(lambda leaf: leaf + 1e-4, position)
    difference = model.log_density_from(position, x, y)(moved)
    with jax.enable_x64(True):
        args = jax.tree.map(lambda v: jnp.asarray(v, jnp.float64), (moved, position, x, y))
        exact = model.log_density(args[0], *args[2:]) - model.log_density(*args[1:])
    np.testing.assert_allclose(difference, exact, rtol=1e-3, atol=1e-3)


def test_log_density_is_that_of_its_definition():
    """With SciPy's normals, layer by layer."""
    from scipy.stats import norm

    x, position, y = dataset(3)
    d, params = 0.1, jax.tree.map(np.asarray, position.params)
    z, post = np.asarray(position.pre[0]), np.asarray(position.post[0])
    total = norm.logpdf(z, (np.asarray(x) @ params[0]["w"] + params[0]["b"]).T, d**0.5).sum()
    total += norm.logpdf(post, np.maximum(z, 0), d**0.5).sum()
    total += norm.logpdf(y, post.T @ params[2]["w"] + params[2]["b"], d**0.5).sum()
    for layer in (params[0], params[2]):
        total += norm.logpdf(layer["w"], 0, 2.0**-0.5).sum()
        total += norm.logpdf(layer["b"], 0, 1.5**-0.5).sum()
    np.testing.assert_allclose(model_at(d).log_density(position, x, y), total, rtol=1e-5)


def test_an_own_activation_is_a_layer():
    inf = float("inf")
    ramp = PiecewiseLinear(((0.0, 0.0, -inf, 0.0), (1.0, 0.0, 0.0, 1.0), (0.5, 0.5, 1.0, inf)))
    network = Network((Dense(2), Activation(ramp), Dense(1)), (2,))
    model = IntermediateNoise(network, 0.1)
    x = jnp.ones((3, 2))
    position, y = model.simulate(jax.random.key(0), model.sample_prior(jax.random.key(1)), x)
    assert isinstance(position, GibbsPosition)
    assert network.apply(position.params, x).shape == y.shape


INF = float("inf")
BAD_MODELS = {
    "no noise": (lambda: model_at(0.0), "noise_variance must be positive.*classical.*HMC"),
    "negative noise": (lambda: model_at((0.1, -1.0, 0.1)), "noise_variance must be positive"),
    "two of three noises": (lambda: model_at((0.1, 0.1)), "one number or 3, one per layer with"),
    "precisions": (lambda: model_at(0.1, (1.0, 1.0, 1.0)), "one number or 2, one per Dense"),
    "a noise per unit": (
        lambda: model_at((0.1, jnp.array([[0.1], [0.2], [0.3]]), 0.1)),
        r"noise_variance must be one number per layer with noise, but one of them has .*\(3, 1\)",
    ),
    "a precision per unit": (
        lambda: model_at(0.1, (1.0, jnp.array([1.0]))),
        r"weight_precision must be one number per Dense or Conv, but one of them has shape \(1,\)",
    ),
    "tanh": (
        lambda: IntermediateNoise(mlp((2, 3, 1), "tanh"), 0.1),
        "piecewise-linear activations, but one is 'tanh'; use one of .*relu.*PiecewiseLinear",
    ),
    "gaps": (lambda: PiecewiseLinear(((1.0, 0.0, -INF, 0.0),)), "cover the line from -inf to inf"),
    "filter": (lambda: Network((Conv(1, (5, 5)),), (4, 4, 1)), "larger than its input"),
    "ntk": (
        lambda: IntermediateNoise(mlp((2, 1), parametrisation="ntk"), 0.1),
        "standard parametrisation",
    ),
    "probit of one": (lambda: IntermediateNoise(NETWORK, 0.1, output="probit"), "two at least"),
}


@pytest.mark.parametrize("name", BAD_MODELS)
def test_bad_models_are_refused(name):
    make, sentence = BAD_MODELS[name]
    with pytest.raises(ValueError, match=sentence) as error:
        make()
    assert "\n" not in str(error.value)


def test_residual_layers_have_no_conditionals():
    with pytest.raises(TypeError, match="Residual, for which there are no Gibbs conditionals"):
        IntermediateNoise(Network((Residual((Dense(2),)),), (2,)), 0.1)


def test_bad_data_are_refused():
    x, _, y = dataset(0)
    model = model_at(0.1)
    for arguments, sentence in (
        ((x[:, :1], y), r"x must have shape \(n, 2\)"),
        ((x, y[:-1]), "x has 6 rows, but y"),
        ((x, jnp.ones((N, 2))), r"y must have shape \(n, 1\)"),
        ((x.at[0, 0].set(jnp.nan), y), r"x holds nan at index \(0, 0\)"),
        ((x, y, "diagonal"), "order must be"),
        ((x, y, "parallel", "none"), "bias must be"),
    ):
        with pytest.raises(ValueError, match=sentence):
            gibbs_sampler(model, *arguments)
    labels = MODELS["probit"]
    with pytest.raises(ValueError, match="labels from 0 to 2, but runs from 0 to 3"):
        gibbs_sampler(labels, x, jnp.asarray([0, 1, 2, 3, 0, 1]))
    with pytest.raises(ValueError, match="whole numbers"):
        gibbs_sampler(labels, x, jnp.ones(N))


def kernels_of(model, x, y):
    """Return every kernel of positions of this model, one output or two."""
    own = turn_units(model, x, y) if model.output == "regression" else logit_scale_moves(model, x)
    return {
        "sweep": gibbs_sampler(model, x, y),
        "scales": scale_moves(model, x),
        "interweave": interweave(model, x, y, 0.1),
        "noncentred": noncentred_scale_moves(model, x, y),
        "redraws": redraw_noisy_units(model, x, y),
        "own": own,
    }


@pytest.mark.usefixtures("annotations_unchecked")
@pytest.mark.parametrize("output", ["regression", "probit"])
def test_a_position_of_another_model_or_other_data_is_refused(output):
    """Latents of one datum were broadcast against all, and scales drawn from another law."""
    model = IntermediateNoise(mlp((2, 3, 1 + (output == "probit"))), 0.1, output=output)
    x = jax.random.normal(jax.random.key(0), (5, 2))
    params = model.sample_prior(jax.random.key(1))
    position, y = model.simulate(jax.random.key(2), params, x)
    one, _ = model.simulate(jax.random.key(2), params, x[:1])
    narrow = IntermediateNoise(mlp((2, 1, 1 + (output == "probit"))), 0.1, output=output)
    bad = [
        (ValueError, r"pre of the position must have the shapes \[\(3, 5\)", one),
        (ValueError, "must have shape .* in this network", narrow.random_position(one_key(), x, y)),
        (TypeError, "a position must be a GibbsPosition", position.params),
        (TypeError, "must be float32 or float64, but is float16", cast(position, jnp.float16)),
        (TypeError, "must be float32 or float64, but is int32", cast(position, jnp.int32)),
    ]
    for kernel in kernels_of(model, x, y).values():
        kernel.init(position)
        for error, words, start in bad:
            with pytest.raises(error, match=words):
                kernel.init(start)


def one_key():
    return jax.random.key(3)


def cast(position, dtype):
    return jax.tree.map(lambda leaf: leaf.astype(dtype), position)


HALF, SINGLE = jnp.ones((2, 3), jnp.float16), jnp.ones((2, 3))
LAYER, GIVEN = Dense(2), {"w": jnp.ones((2, 2)), "b": jnp.zeros(2)}
EACH = jnp.array([1.0, 2.0])


def conditionals(values, params=GIVEN, noise=0.5, other=0.5):
    """Return calls of all conditionals with such arrays, weights, variances and precisions."""
    key, labels = jax.random.key(0), jnp.array([0, 1, 1])
    given = (key, LAYER, params, values, values)
    relu, pool = activation_pieces("relu"), AvgPool((1, 1))
    images = values[:, :, None, None]
    return {
        "weights": lambda: sample_weights(*given, noise, other),
        "bias": lambda: sample_bias(*given, noise, other),
        "weights and bias": lambda: sample_weights_and_bias(*given, noise, other, 1.0),
        "inputs": lambda: sample_inputs(*given, noise, other),
        "pooled": lambda: sample_pooled(key, pool, images, images, noise, other),
        "pre-activations": lambda: sample_pre_activations(key, relu, values, values, noise, other),
        "logits": lambda: sample_logits(key, values, values, labels, noise),
        "a logit": lambda: sample_binary_logit(key, values[0], labels, noise),
    }


@pytest.mark.usefixtures("annotations_unchecked")
@pytest.mark.parametrize("name", conditionals(SINGLE))
def test_conditionals_say_what_they_cannot_take(name):
    """Variances of units were taken for those of data, if as many, and 16 bits gave NaN."""
    for shape in ((2,), (1,)):
        with pytest.raises(ValueError, match="noise_variance must be one number, but has shape"):
            conditionals(SINGLE, noise=jnp.ones(shape))[name]()
    if "logit" not in name:
        with pytest.raises(ValueError, match=r"must be one number, but has shape \(2,\)"):
            conditionals(SINGLE, other=EACH)[name]()
    with pytest.raises(TypeError, match="must be float32 or float64, but is float16"):
        conditionals(HALF)[name]()


def test_biases_that_are_not_there_are_not_drawn():
    call = conditionals(SINGLE, params={"w": GIVEN["w"]})["bias"]
    with pytest.raises(ValueError, match="params hold no biases to draw"):
        call()


@pytest.mark.usefixtures("annotations_unchecked")
def test_parameters_of_another_network_draw_no_data():
    """Classes that are not the model's became labels, and one bias was that of all units."""
    key, x = one_key(), jnp.ones((4, 2))
    model = IntermediateNoise(mlp((2, 3, 3)), 0.1, output="probit")
    params = model.sample_prior(key)
    others = (
        IntermediateNoise(mlp((2, 3, 5)), 0.1, output="probit").sample_prior(key),
        IntermediateNoise(mlp((2, 4, 3)), 0.1, output="probit").sample_prior(key),
        (*params[:2], {"w": params[2]["w"], "b": jnp.zeros(1)}),
        (*params[:2], {"w": params[2]["w"]}),
        params[:2],
    )
    for other in others:
        with pytest.raises(ValueError, match=r"in this network|do not fit the network"):
            model.simulate(key, other, x)
        with pytest.raises(ValueError, match=r"in this network|do not fit the network"):
            model.position_from_weights(key, other, x, jnp.zeros(4, int))
    keys = jax.random.split(key, 2)
    many = jax.vmap(model.sample_prior)(keys)
    _, labels = jax.jit(jax.vmap(model.simulate, in_axes=(0, 0, None)))(keys, many, x)
    assert labels.shape == (2, 4)


@pytest.mark.usefixtures("annotations_unchecked")
def test_labels_may_be_a_list():
    x, labels = jnp.ones((4, 2)), [0, 2, 1, 0]
    model = IntermediateNoise(mlp((2, 3, 3)), 0.1, output="probit")
    starts = [
        gibbs_sampler(model, x, y).init(model.zero_position(x, y))
        for y in (labels, jnp.asarray(labels))
    ]
    chex.assert_trees_all_equal(*starts)
    logits = jnp.zeros((3, 4))
    found, wanted = (
        sample_logits(one_key(), logits, logits, y, 1.0) for y in (labels, jnp.asarray(labels))
    )
    np.testing.assert_array_equal(found, wanted)
    assert sample_binary_logit(one_key(), jnp.zeros(4), [0, 1, 1, 0], 1.0).shape == (4,)
    with pytest.raises(ValueError, match="whole numbers"):
        gibbs_sampler(model, x, [0.0, 1.0, 2.0, 0.0])


@pytest.mark.usefixtures("annotations_unchecked")
def test_what_no_conditional_takes_gets_one_sentence():
    key, ones = one_key(), jnp.ones((2, 3))
    image = ones[:, :, None, None]
    relu = activation_pieces("relu")
    for call, words in (
        (lambda: sample_weights(key, LAYER, GIVEN, [[1.0]], ones, 1.0, 1.0), "write jnp.asarray"),
        (lambda: sample_pre_activations(key, relu, [0.0], [0.0], 1.0, 1.0), "write jnp.asarray"),
        (lambda: sample_pre_activations(key, "relu", ones, ones, 1.0, 1.0), "activation_pieces"),
        (lambda: sample_pooled(key, LAYER, image, image, 1.0, 1.0), "layer must be an AvgPool"),
        (lambda: sample_inputs(key, AvgPool((1, 1)), GIVEN, ones, ones, 1.0, 1.0), "a Dense or a"),
    ):
        with pytest.raises(TypeError, match=words):
            call()


@pytest.mark.usefixtures("annotations_unchecked")
@pytest.mark.parametrize("values", ["a", ("a", 1.0, 2.0)])
@pytest.mark.parametrize("name", ["noise_variance", "weight_precision", "bias_precision"])
def test_variances_and_precisions_are_numbers(name, values):
    with pytest.raises(TypeError, match=f"{name} must hold real numbers"):
        IntermediateNoise(mlp((2, 3, 1)), **({"noise_variance": 0.1} | {name: values}))


@pytest.mark.usefixtures("annotations_unchecked")
@pytest.mark.parametrize("bias", [True, False])
def test_the_log_density_is_of_one_position(bias):
    model, x, y = IntermediateNoise(mlp((2, 3, 1), bias=bias), 0.1), jnp.ones((5, 2)), jnp.ones(5)
    stacked = jax.vmap(lambda key: model.random_position(key, x, y))(jax.random.split(one_key()))
    with pytest.raises(ValueError, match=r"chains go through jax\.vmap"):
        model.log_density(stacked, x, y)
    assert jax.vmap(lambda position: model.log_density(position, x, y))(stacked).shape == (2,)
    with pytest.raises(TypeError, match="position must be a GibbsPosition, but is a tuple"):
        model.log_density(stacked.params, x, y)


@pytest.mark.usefixtures("annotations_unchecked")
def test_random_starts_are_of_as_many_targets_as_inputs():
    model = model_at(0.1)
    for y in (jnp.ones((3, 1)), jnp.ones((5, 2))):
        with pytest.raises(ValueError, match=r"x has 5 rows, but y|y must have shape"):
            model.random_position(one_key(), jnp.ones((5, 2)), y)
