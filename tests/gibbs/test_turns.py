"""Hidden units are turned, and all others drawn anew with them.

Geweke's joint test catches a density of the way back or of the way there that is lost, latents
whose density is taken for exact, a prior that is lost, and X2 that is not drawn anew.
`test_the_ratio_is_that_of_the_densities` compares the log ratio with SciPy's densities.
"""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jaxbnn.gibbs import IntermediateNoise, turn_units
from jaxbnn.networks import Activation, Dense, Flatten, Network, mlp
from tests.gibbs.cases import MODELS
from tests.gibbs.test_sweeps import geweke_of
from tests.kit import both_sizes, for_mutants

module = importlib.import_module("jaxbnn.gibbs.turns")


def model_of(activation="relu"):
    """Nothing is symmetric: unequal variances and precisions."""
    return IntermediateNoise(
        mlp((2, 3, 1), activation), (0.3, 0.5, 0.2), (0.7, 1.3), bias_precision=(0.5, 2.0)
    )


def inputs(n, dtype=np.float32):
    rng = np.random.default_rng(3)
    return jnp.asarray(0.4 + rng.normal(size=(n, 2)), dtype)


def geweke(make, num_chains, activation="relu", steps=1):
    model, x = model_of(activation), inputs(2)
    return geweke_of(model, x, lambda y: make(model, x, y), num_chains, steps)


def a_turn(activation, n=6, seed=0):
    model, x = model_of(activation), inputs(n, np.float64)
    params = model.sample_prior(jax.random.key(seed), np.float64)
    position, y = model.simulate(jax.random.key(1), params, x)
    move = module._Turn(model, x.T, y[:, 0])
    first, _, last = params
    u = jnp.concatenate([first["w"], first["b"][None]])
    old, v = module.Collapsed(u, last["b"][0], position.pre[0]), last["w"][:, 0]
    return model, x, y, move, old, v, first


def joint(model, x, y, at, v):
    """log p(U, c, Z, y), X2 integrated out, by SciPy."""
    norm = scipy.stats.norm
    variances, v = model.noise_variance, np.asarray(v)
    total = norm(0, 0.7**-0.5).logpdf(at.u[:-1]).sum() + norm(0, 0.5**-0.5).logpdf(at.u[-1]).sum()
    total += norm(0, 2.0**-0.5).logpdf(at.bias)
    mean = np.asarray(at.u).T @ np.concatenate([np.asarray(x).T, np.ones((1, len(x)))])
    total += norm(mean, variances[0] ** 0.5).logpdf(at.z).sum()
    active = np.asarray(model.stages[1].layer(at.z))
    spread = (variances[2] + variances[1] * np.sum(v**2)) ** 0.5
    return total + norm(v @ active + float(at.bias), spread).logpdf(y[:, 0]).sum()


def proposal(model, x, y, turned, new, v):
    """log q(U', c' | T(U)) + log q(Z' | U', c'), from their definitions, by SciPy."""
    normal = scipy.stats.multivariate_normal
    layer, variances, v = model.stages[1].layer, model.noise_variance, np.asarray(v)
    rows = np.concatenate([np.asarray(x), np.ones((len(x), 1))], axis=1)
    rest = variances[2] + variances[1] * np.sum(v**2)

    def slopes(u):
        mean = rows @ np.asarray(u)
        return np.asarray(layer(jnp.asarray(mean))) / mean

    s = slopes(turned)
    design = np.concatenate([v[k] * s[:, [k]] * rows for k in range(3)], axis=1)
    design = np.concatenate([design, np.ones((len(x), 1))], axis=1)
    noise = rest + variances[0] * np.sum((v * s) ** 2, axis=1)
    prior = np.array([0.7, 0.7, 0.5] * 3 + [2.0])
    covariance = np.linalg.inv(design.T @ (design / noise[:, None]) + np.diag(prior))
    mean = covariance @ design.T @ (np.asarray(y)[:, 0] / noise)
    value = np.append(np.asarray(new.u).T.ravel(), new.bias)
    total = normal(mean, covariance).logpdf(value)
    h, means = v * slopes(new.u), rows @ np.asarray(new.u)
    for i in range(len(x)):
        inverse = np.eye(3) / variances[0] + np.outer(h[i], h[i]) / rest
        right = means[i] / variances[0] + h[i] * (float(y[i, 0]) - float(new.bias)) / rest
        of_z = normal(np.linalg.solve(inverse, right), np.linalg.inv(inverse))
        total += of_z.logpdf(np.asarray(new.z)[:, i])
    return total


def worst_difference(activation):
    """How far log ratios are from SciPy's, at most."""
    model, x, y, move, old, v, _ = a_turn(activation)
    worst = 0.0
    for seed in range(4):
        keys = jax.random.split(jax.random.key(seed), 4)
        turn = module.random_turn(keys[0], keys[1], v)
        new, log_ratio = jax.jit(move.propose)(keys[2], keys[3], old, v, turn)
        exact = joint(model, x, y, new, v) - joint(model, x, y, old, v)
        exact += proposal(model, x, y, new.u @ jnp.linalg.inv(turn), old, v)
        exact -= proposal(model, x, y, old.u @ turn, new, v)
        worst = max(worst, abs(float(log_ratio) - exact))
    return worst


@pytest.mark.short("leaky_relu")
@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "abs"])
def test_the_ratio_is_that_of_the_densities(activation, x64):
    assert worst_difference(activation) < 1e-8


def test_a_lost_determinant_is_found(x64, monkeypatch):
    """Mutant: log |variance of y given the weights|, which Geweke's test sees at larger sizes."""
    right = module._Turn.log_terms

    def terms(self, at, v):
        h = v[:, None] * self.slopes(at.u)
        whole = self.output_variance(v) + self.variances[0] * jnp.sum(jnp.square(h), axis=0)
        return right(self, at, v) + jnp.log(whole) / 2

    monkeypatch.setattr(module._Turn, "log_terms", terms)
    assert worst_difference("relu") > 1e-3


def test_a_turn_and_its_inverse_are_as_probable(x64):
    """By counts of all turns of three units, of which two have outgoing weights of one sign."""
    v = jnp.array([0.5, -0.2, 1.5])
    keys = jax.random.split(jax.random.key(0), (2, 40_000))
    turns = np.asarray(jax.jit(jax.vmap(module.random_turn, (0, 0, None)))(*keys, v))
    np.testing.assert_allclose(np.abs(np.linalg.det(turns)), 1, rtol=1e-9)
    count = {}
    for turn in np.round(turns, 6).reshape(len(turns), -1) + 0.0:
        count[tuple(turn)] = count.get(tuple(turn), 0) + 1
    for turn, number in count.items():
        inverse = np.round(np.linalg.inv(np.reshape(turn, (3, 3))), 5) + 0.0
        found = [k for k in count if np.allclose(np.reshape(k, (3, 3)), inverse, atol=1e-4)]
        other = sum(count[k] for k in found)
        assert abs(number - other) < 6 * (number + other) ** 0.5
    # Units of one sign keep v_1 u_1 u_1^T + v_3 u_3 u_3^T of directions times |v|.
    u = np.random.default_rng(0).normal(size=(4, 3))
    weighted = [u * np.abs(v), *(u @ turns[:50] * np.abs(np.asarray(v)))]
    for one in weighted:
        np.testing.assert_allclose(one @ one.T, weighted[0] @ weighted[0].T, rtol=1e-8, atol=1e-8)


@both_sizes(20_000)
def test_turns_leave_the_joint_law_invariant(num_chains):
    result = geweke(turn_units, num_chains)
    assert result.passes, str(result)


@pytest.mark.long
@pytest.mark.parametrize("activation", ["leaky_relu", "abs"])
def test_more_turns_leave_the_joint_law_invariant(activation):
    result = geweke(turn_units, None, activation)
    assert result.passes, str(result)


def mutated(name, wrong):
    def make(model, x, y):
        kernel = turn_units(model, x, y)

        def step(rng_key, state):
            with pytest.MonkeyPatch.context() as patch:
                owner = module._Turn if hasattr(module._Turn, name) else module
                patch.setattr(owner, name, wrong(getattr(owner, name)))
                return kernel.step(rng_key, state)

        return kernel._replace(step=step)

    return make


def nothing(right):
    return lambda *arguments: jnp.zeros((), jnp.float32)


def latents_as_if_exact(right):
    return lambda self, at, v: jnp.zeros_like(self.y)


MUTANTS = {
    "densities of the proposal lost": mutated("gaussian_log_density", nothing),
    "prior lost": mutated("log_prior", nothing),
    "latents taken for exact": mutated("log_terms", latents_as_if_exact),
    "X2 is that of the mean": mutated(
        "draw_outputs", lambda right: lambda self, key, z, v, bias: self.activation(z)
    ),
}


@for_mutants(20_000)
@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_found(name, num_chains):
    result = geweke(MUTANTS[name], num_chains, steps=3)
    assert not result.passes, str(result)


def test_a_unit_of_the_wrong_sign_is_turned():
    """In one step of many chains; by sweeps its latents hold it where it is."""
    model = IntermediateNoise(mlp((5, 2, 1)), 1e-4, (5.0, 2.0), (5.0, 2.0))
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(200, 5)), jnp.float32)
    w = jnp.asarray([[0.6, 0.0], [0, 0.5], [0.2, 0], [0, 0.3], [0, 0]], jnp.float32)
    params = ({"w": w, "b": jnp.zeros(2)}, (), {"w": jnp.ones((2, 1)), "b": jnp.zeros(1)})
    _, y = model.simulate(jax.random.key(0), params, x)
    wrong = ({"w": w * jnp.array([[1.0, -1.0]]), "b": jnp.zeros(2)}, (), params[2])
    start = model.position_from_weights(jax.random.key(1), wrong, x, y)
    kernel = turn_units(model, x, y)
    states, infos = jax.jit(jax.vmap(kernel.step, (0, None)))(
        jax.random.split(jax.random.key(2), 64), kernel.init(start)
    )
    outputs = jax.vmap(model.network.apply, (0, None))(states.position.params, x)
    errors = jnp.mean((outputs - model.network.apply(params, x)[None]) ** 2, axis=(1, 2))
    assert np.mean(np.asarray(infos.is_accepted)) > 0.1
    assert np.mean(np.asarray(errors) < 1e-3) > 0.1


@pytest.mark.short("bias2")
@pytest.mark.parametrize("bias", [(True, False), (False, True), (False, False)])
def test_networks_without_biases_keep_their_shapes(bias):
    layers = (Dense(2, bias=bias[0]), Activation("relu"), Dense(1, bias=bias[1]))
    model, x = IntermediateNoise(Network(layers, (2,)), 0.1), inputs(5)
    position, y = model.simulate(jax.random.key(0), model.sample_prior(jax.random.key(1)), x)
    kernel = turn_units(model, x, y)
    states, infos = jax.jit(jax.vmap(kernel.step, (0, None)))(
        jax.random.split(jax.random.key(2), 200), kernel.init(position)
    )
    assert jax.tree.structure(states.position) == jax.tree.structure(position)
    assert 0 < np.mean(np.asarray(infos.is_accepted)) < 1
    assert not np.any(np.asarray(infos.is_divergent))


def test_models_of_another_kind_get_one_sentence():
    for name in ("wide", "conv"):
        model = MODELS[name]
        x = jnp.ones((3, *model.network.input_shape))
        _, y = jax.jit(model.simulate)(jax.random.key(1), model.sample_prior(jax.random.key(0)), x)
        with pytest.raises(ValueError, match="turn_units needs regression with one output"):
            turn_units(model, x, y)
    several, classes = mlp((2, 3, 2)), mlp((2, 3, 1))
    for model in (
        IntermediateNoise(several, 0.1),
        IntermediateNoise(classes, 0.1, output="binary_probit"),
    ):
        _, y = model.simulate(
            jax.random.key(1), model.sample_prior(jax.random.key(0)), jnp.ones((4, 2))
        )
        with pytest.raises(ValueError, match="turn_units needs regression with one output"):
            turn_units(model, jnp.ones((4, 2)), y)
    flat = Network((Flatten(), Dense(2), Activation("relu"), Dense(1)), (2, 2))
    with pytest.raises(ValueError, match="turn_units needs regression with one output"):
        turn_units(IntermediateNoise(flat, 0.1), jnp.ones((3, 2, 2)), jnp.ones((3, 1)))


def test_labels_may_have_one_axis():
    model, x = model_of("relu"), inputs(6)
    position, y = model.simulate(jax.random.key(0), model.sample_prior(jax.random.key(1)), x)
    steps = [jax.jit(turn_units(model, x, labels).step) for labels in (y, jnp.asarray(y)[:, 0])]
    state = turn_units(model, x, y).init(position)
    one, other = (step(jax.random.key(2), state)[0].position for step in steps)
    jax.tree.map(np.testing.assert_array_equal, one, other)
