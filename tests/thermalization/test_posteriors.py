"""The samplers of BlackJAX on both posteriors, against quadrature."""

import functools

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from jaxbnn.gibbs import IntermediateNoise
from jaxbnn.networks import Activation, Dense, Network, mlp
from jaxbnn.thermalization import classical_posterior

# z = w1 x + b1, y = w2 relu(z): small enough for a grid.
NETWORK = Network((Dense(1), Activation("relu"), Dense(1, bias=False)), (1,))
X = np.array([[-1.0], [0.5], [1.5]])
Y = np.array([[0.3], [0.2], [1.4]])
DELTA, PRECISION = 0.2, 1.0
SIZE = 81


def grid_moments(log_likelihood):
    """E[w1, b1, w2, w1^2, b1^2, w2^2] on a uniform grid."""
    line = np.linspace(-5, 5, SIZE)
    w1, b1, w2 = np.meshgrid(line, line, line, indexing="ij")
    log_density = log_likelihood(w1, b1, w2) - PRECISION * (w1**2 + b1**2 + w2**2) / 2
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    return np.array([(weight * f).sum() for f in (w1, b1, w2, w1**2, b1**2, w2**2)])


def classical_log_likelihood(w1, b1, w2):
    """exp(-(y - f)^2 / (2 Delta)), summed over data."""
    return sum(
        -((y - w2 * np.maximum(w1 * x + b1, 0)) ** 2) / (2 * DELTA)
        for x, y in zip(X[:, 0], Y[:, 0], strict=True)
    )


def intermediate_log_likelihood(w1, b1, w2):
    """Integrate N(z; w1 x + b1, D) N(a; relu z, D) N(y; w2 a, D) over a, then z, by halves."""
    total = 0.0
    variance = DELTA * (1 + w2**2)  # of y given z
    for x, y in zip(X[:, 0], Y[:, 0], strict=True):
        m, s = w1 * x + b1, np.sqrt(DELTA)
        below = special.log_ndtr(-m / s) - y**2 / (2 * variance)
        # z > 0: the product of N(z; m, D) and N(y; w2 z, variance) is Gaussian in z.
        precision = 1 / DELTA + w2**2 / variance
        centre = (m / DELTA + w2 * y / variance) / precision
        spread = DELTA * w2**2 + variance
        above = (
            -((y - w2 * m) ** 2) / (2 * spread)
            + 0.5 * np.log(variance / spread)
            + special.log_ndtr(centre * np.sqrt(precision))
        )
        total = total + np.logaddexp(below, above) - 0.5 * np.log(variance)
    return total


def moments_by(make_kernel, start, num_chains, num_steps, key):
    """Average the six moments over the last half of the steps, and their error between chains."""

    @jax.jit
    def run(key):
        def one(key):
            key_start, key_run = jax.random.split(key)
            kernel = make_kernel()
            state = kernel.init(start(key_start))

            def step(state, key):
                state, _ = kernel.step(key, state)
                params = getattr(state.position, "params", state.position)
                first, last = params[0], params[2]
                theta = jnp.stack([first["w"][0, 0], first["b"][0], last["w"][0, 0]])
                return state, jnp.concatenate([theta, theta**2])

            _, kept = jax.lax.scan(step, state, jax.random.split(key_run, num_steps))
            return kept[num_steps // 2 :].mean(axis=0)

        return jax.vmap(one)(jax.random.split(key, num_chains))

    means = np.asarray(run(key), float)
    return means.mean(axis=0), means.std(axis=0, ddof=1) / np.sqrt(num_chains)


@pytest.mark.long
@pytest.mark.third_party(reason="BlackJAX's HMC, NUTS and MALA")
@pytest.mark.parametrize(
    ("posterior", "sampler"),
    [
        pytest.param("classical", "HMC", marks=pytest.mark.long),
        pytest.param("classical", "MALA", marks=pytest.mark.long),
        pytest.param("classical", "NUTS", marks=pytest.mark.long),
        ("intermediate", "HMC"),
        pytest.param("intermediate", "NUTS", marks=pytest.mark.long),
    ],
)
def test_blackjax_samples_both_posteriors(posterior, sampler):
    model = IntermediateNoise(NETWORK, DELTA, PRECISION, PRECISION)
    x, y = jnp.asarray(X, jnp.float32), jnp.asarray(Y, jnp.float32)
    if posterior == "classical":
        log_density, expected = (
            classical_posterior(model, x, y).log_density,
            classical_log_likelihood,
        )
    else:
        log_density, expected = (
            functools.partial(model.log_density, x=x, y=y),
            intermediate_log_likelihood,
        )

    def start(key):
        position = model.random_position(key, x, y)
        return position.params if posterior == "classical" else position

    size = 3 if posterior == "classical" else 9

    def make_kernel():
        if sampler == "HMC":
            return blackjax.hmc(log_density, 0.2, jnp.ones(size), 8)
        if sampler == "NUTS":
            return blackjax.nuts(log_density, 0.25, jnp.ones(size), max_num_doublings=4)
        return blackjax.mala(log_density, 0.03)

    num_steps = 2000 if sampler == "MALA" else 200
    mean, error = moments_by(make_kernel, start, 300, num_steps, jax.random.key(1))
    assert error.max() < 0.06
    np.testing.assert_array_less(np.abs(mean - grid_moments(expected)) / error, 5.3)


@pytest.mark.parametrize("output", ["regression", "probit", "binary_probit"])
def test_the_temperature_is_that_of_the_paper(output, rng, x64):
    """exp(-loss / (2 Delta)) of the last Delta, written with NumPy (errata A10 and A11)."""
    width = 4 if output == "probit" else 1
    x = rng.normal(size=(9, 2))
    y = {
        "regression": rng.normal(size=(9, 1)),
        "probit": rng.integers(0, 4, 9),
        "binary_probit": rng.integers(0, 2, 9),
    }[output]
    model = IntermediateNoise(mlp((2, 3, width)), (0.3, 0.7, 2.0), 3.0, 5.0, output=output)
    posterior = classical_posterior(model, jnp.asarray(x), jnp.asarray(y))

    def layer(before, after):
        return {"w": rng.normal(size=(before, after)), "b": rng.normal(size=after)}

    pair = [(layer(2, 3), (), layer(3, width)) for _ in range(2)]

    def log_density(params):
        first, _, last = params
        f = np.maximum(x @ first["w"] + first["b"], 0) @ last["w"] + last["b"]
        if output == "regression":
            loss = ((y - f) ** 2).sum()
        elif output == "probit":
            loss = (special.logsumexp(f, axis=1) - f[np.arange(9), y]).sum()
        else:
            loss = np.log1p(np.exp(-(2 * y - 1) * f[:, 0])).sum()
        layers = (first, last)
        prior = sum(3.0 * (one["w"] ** 2).sum() + 5.0 * (one["b"] ** 2).sum() for one in layers)
        return -loss / (2 * 2.0) - prior / 2

    for density in (posterior.log_density, jax.jit(posterior.log_density)):
        ours = density(pair[0]) - density(pair[1])
        np.testing.assert_allclose(ours, log_density(pair[0]) - log_density(pair[1]), rtol=1e-9)


def test_inputs_may_be_numpys_or_halves():
    model = IntermediateNoise(mlp((1, 1), bias=False), 2.7)
    y = jnp.array([[1.0], [0.0]])
    for x in (np.array([[1.0], [2.0]]), jnp.array([[1.0], [2.0]], jnp.bfloat16)):
        posterior = classical_posterior(model, x, y)
        assert float(posterior.likelihood.noise_scale) ** 2 == pytest.approx(2.7, rel=1e-6)
    with pytest.raises(TypeError, match="x must hold real numbers"):
        classical_posterior(model, np.array([["a"], ["b"]]), y)


@pytest.mark.usefixtures("annotations_unchecked")
def test_a_bare_network_has_no_classical_posterior():
    with pytest.raises(TypeError, match="write IntermediateNoise"):
        classical_posterior(mlp((2, 1)), jnp.ones((3, 2)), jnp.ones((3, 1)))


def test_inputs_that_are_rounded_are_told():
    model = IntermediateNoise(mlp((1, 1)), 0.1)
    with pytest.warns(UserWarning, match="^x.* is rounded to float32"):
        classical_posterior(model, 1.7e9 + np.arange(50.0)[:, None], np.zeros(50))
