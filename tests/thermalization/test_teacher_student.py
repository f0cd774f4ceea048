"""Tests of thermalization.observables and thermalization.teachers: teachers and students: what is
drawn, and the observables of both.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbnn.gibbs import GibbsPosition, IntermediateNoise
from jaxbnn.networks import mlp
from jaxbnn.thermalization import (
    mean_squared_error,
    near_zero_position,
    score_statistic,
    teacher_student,
)

NETWORK = mlp((3, 4, 1))
PRECISIONS = (3.0, 4.0)


def model_at(delta):
    return IntermediateNoise(NETWORK, delta, PRECISIONS, PRECISIONS)


@jax.jit
def experiments(keys, deltas):
    def one(key, delta):
        model = model_at(delta)
        return teacher_student(key, model, 12, 30)

    return jax.vmap(one)(keys, deltas)


@pytest.mark.long
def test_data_sets_and_noise_variances_are_an_axis():
    num = 200
    deltas = jnp.array([1e-4, 1e-2]).repeat(num // 2)
    found = experiments(jax.random.split(jax.random.key(0), num), deltas)
    informed = found.positions["informed"]
    f = jax.vmap(NETWORK.apply)(informed.params, found.x)
    residual = np.asarray(jnp.mean((found.y - f) ** 2, axis=(1, 2)))
    # Noise of three stages: between Delta and a few Delta.
    for delta, part in ((1e-4, residual[:100]), (1e-2, residual[100:])):
        assert delta < part.mean() < 4 * delta
    np.testing.assert_allclose(
        found.f_test, jax.vmap(NETWORK.apply)(informed.params, found.x_test), atol=1e-5
    )
    random = found.positions["random 1"].params[0]["w"]
    assert not np.allclose(random, found.positions["random 2"].params[0]["w"])
    np.testing.assert_allclose(np.var(random) * 3.0, 1.0, rtol=0.15)
    zero = found.positions["zero"]
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(zero))


def test_labels_are_the_teachers_but_for_noise_and_random_starts_differ():
    found = teacher_student(jax.random.key(2), model_at(1e-4), 200, 5)
    teacher = found.positions["informed"]
    residual = np.mean((found.y - NETWORK.apply(teacher.params, found.x)) ** 2)
    # Noise of three stages, of which two pass weights of variance 1/3 and 1/4.
    assert 0.5e-4 < residual < 1e-3
    one, other = (found.positions[f"random {i}"].params[0]["w"] for i in (1, 2))
    assert not np.allclose(one, other)


def test_noiseless_labels_are_the_networks_outputs():
    model = model_at(1e-4)
    found = teacher_student(jax.random.key(1), model, 12, 5, num_random=0, is_noiseless=True)
    teacher = found.positions["informed"]
    np.testing.assert_allclose(found.y, NETWORK.apply(teacher.params, found.x), atol=1e-6)
    np.testing.assert_allclose(teacher.post[0], np.maximum(teacher.pre[0], 0), rtol=1e-6)
    assert list(found.positions) == ["informed", "zero"]
    assert float(mean_squared_error(NETWORK, teacher.params, found.x_test, found.f_test)) == 0
    apart = mean_squared_error(NETWORK, teacher.params, found.x_test, found.f_test + 2)
    np.testing.assert_allclose(apart, 4, rtol=1e-5)


@pytest.mark.parametrize("output", ["probit", "binary_probit"])
def test_labels_of_a_teacher_of_classes(output):
    network = mlp((3, 4, 3 if output == "probit" else 1))
    model = IntermediateNoise(network, 0.1, output=output)
    draw = jax.jit(lambda key: teacher_student(key, model, 40, 5, num_random=0, is_noiseless=True))
    found = draw(jax.random.key(1))
    outputs = np.asarray(network.apply(found.positions["informed"].params, found.x))
    expected = outputs.argmax(axis=1) if output == "probit" else outputs[:, 0] > 0
    np.testing.assert_array_equal(found.y, expected)


def test_a_student_of_no_data_is_refused():
    with pytest.raises(ValueError, match="num_train"):
        teacher_student(jax.random.key(0), model_at(0.1), 0, 3)


def test_the_near_zero_start_has_the_stated_scales():
    model = IntermediateNoise(mlp((50, 40, 1)), 0.1, (4.0, 4.0), (4.0, 4.0))
    x, y = jnp.ones((30, 50)), jnp.ones((30, 1))
    start = near_zero_position(jax.random.key(0), model, x, y, 1e-3)
    assert np.std(start.params[0]["w"]) == pytest.approx(0.5e-3, rel=0.1)
    assert np.std(start.post[0]) == pytest.approx(1e-3, rel=0.1)
    assert not np.allclose(start.pre[0], start.post[0])


def test_the_score_is_the_formula(x64, rng):
    """U = Delta mean_ij [ sum_mu (Z - W x - b) x / Delta - lambda W ], with the layer's Delta."""
    first, last = ({"w": rng.normal(size=s), "b": rng.normal(size=s[1])} for s in ((3, 4), (4, 1)))
    z, x, y = rng.normal(size=(4, 7)), rng.normal(size=(7, 3)), rng.normal(size=(7, 1))
    position = jax.tree.map(jnp.asarray, GibbsPosition((first, (), last), (z,), (z**2,)))
    model, of_first = model_at((0.3, 0.5, 0.7)), z.T - x @ first["w"] - first["b"]
    of_last = y - (z**2).T @ last["w"] - last["b"]
    expected = [
        0.3 * np.mean(x.T @ of_first / 0.3 - 3.0 * first["w"]),
        0.7 * np.mean(z**2 @ of_last / 0.7 - 4.0 * last["w"]),
    ]
    data = jnp.asarray(x), jnp.asarray(y)

    @jax.jit
    def scores(position):
        return [score_statistic(model, position, *data, **of) for of in ({}, {"layer": 1})]

    np.testing.assert_allclose(scores(position), expected, rtol=1e-10)
    with pytest.raises(ValueError, match="layer must be"):
        score_statistic(model, position, *data, layer=2)


@pytest.mark.long
def test_the_scores_posterior_mean_is_zero():
    """The teacher is an exact posterior draw, so U has mean zero there, for each layer (Stein)."""
    num, delta = 20_000, 0.05

    @jax.jit
    def run(key):
        def one(key):
            model = model_at(delta)
            found = teacher_student(key, model, 6, 1, num_random=0)
            teacher = found.positions["informed"]
            scores = [score_statistic(model, teacher, found.x, found.y, i) for i in (0, 1)]
            return jnp.stack(scores)

        return jax.vmap(one)(jax.random.split(key, num))

    u = np.asarray(run(jax.random.key(5)), float)
    z = u.mean(axis=0) / (u.std(axis=0) / np.sqrt(num))
    assert np.abs(z).max() < 5.1  # two-sided 1e-6 for the two


@pytest.mark.usefixtures("annotations_unchecked")
@pytest.mark.parametrize(
    ("sample_inputs", "error", "words"),
    [
        (lambda key, shape: jnp.ones((4, 5)), ValueError, r"that it is given, \(4, 2\), but"),
        (lambda key, shape: jnp.ones((2, 2)), ValueError, r"that it is given, \(4, 2\), but"),
        (
            lambda key, shape: jnp.full(shape, jnp.nan),
            ValueError,
            "sample_inputs returns holds nan",
        ),
        (lambda key, shape: jnp.ones(shape, int), TypeError, "must be float32 or float64"),
        (lambda key, shape: jnp.ones(shape, jnp.bfloat16), TypeError, "must be float32 or float64"),
        (lambda key, shape: None, TypeError, "sample_inputs returns"),
    ],
)
def test_inputs_of_ones_own_are_checked(sample_inputs, error, words):
    model = IntermediateNoise(mlp((2, 3, 1)), 0.1)
    with pytest.raises(error, match=words):
        teacher_student(jax.random.key(0), model, 4, 3, sample_inputs=sample_inputs)


@pytest.mark.usefixtures("annotations_unchecked")
def test_the_near_zero_start_is_of_as_many_targets_as_inputs():
    model = IntermediateNoise(mlp((2, 3, 1)), 0.1)
    with pytest.raises(ValueError, match="x has 5 rows, but y has shape"):
        near_zero_position(jax.random.key(0), model, jnp.ones((5, 2)), jnp.ones((3, 1)))


def test_the_score_is_of_one_position():
    model, x, y = IntermediateNoise(mlp((2, 3, 1), bias=False), 0.1), jnp.ones((5, 2)), jnp.ones(5)
    keys = jax.random.split(jax.random.key(0))
    stacked = jax.vmap(lambda key: model.random_position(key, x, y))(keys)
    with pytest.raises(ValueError, match=r"chains go through jax\.vmap"):
        score_statistic(model, stacked, x, y)
