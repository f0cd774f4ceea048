"""Every sampler on phi has the posterior's moments, found by quadrature; wrong densities do not.

The network is y = theta gelu(w x + b / 2) + noise with two outputs: two inner weights, and a
read-out of one row. False-alarm rate 1e-6 for the file.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import jaxbnn
from jaxbnn import wide
from jaxbnn.networks import Activation, Dense, Network, init
from jaxbnn.wide.design import design_matrix
from tests.kit.sizes import QUICK

NETWORK = Network(
    (
        Dense(1, weight_scale=1.5, bias_scale=0.5),
        Activation("gelu"),
        Dense(2, bias=False, weight_scale=1.2),
    ),
    (1,),
    "ntk",
)
X = np.array([[-1.0], [0.5], [1.5]], "f4")
Y = np.array([[0.2, -0.1], [0.1, 0.3], [0.9, -0.6]], "f4")
NOISE_SCALE = 0.4
CHAINS, BURN_IN, STEPS = 2000, 40, 60
NAMES = ("w", "b", "w^2", "b^2", "theta1", "theta1^2", "theta1 theta2", "w theta1")
NUM_COMPARISONS = 11 * len(NAMES)
THRESHOLD = stats.norm.isf(1e-6 / 2 / NUM_COMPARISONS)


def weighted_moments(noise_scale):
    """Quadrature over w, b and each column of theta by itself; nothing of l(W) is used.

    Returns the integrals of the moments against prior times likelihood, and the evidence.
    """
    grid = np.linspace(-5.5, 5.5, 71)
    w, b = np.meshgrid(grid, grid, indexing="ij")
    prior = stats.norm.pdf(grid)
    z = 1.5 * w[..., None] * X[:, 0] + 0.5 * b[..., None]
    g = 1.2 * z * special.ndtr(z)
    evidence, first, second = [], [], []
    for column in Y.T:
        squares = np.square((column - g[..., None, :] * grid[:, None]) / noise_scale).sum(-1)
        likelihood = prior * np.exp(-squares / 2) / noise_scale ** len(X)
        evidence.append(likelihood.sum(-1))
        first.append(likelihood @ grid / evidence[-1])
        second.append(likelihood @ grid**2 / evidence[-1])
    weight = prior[:, None] * prior * evidence[0] * evidence[1]
    values = [w, b, w**2, b**2, first[0], second[0], first[0] * first[1], w * first[0]]
    return np.array([np.sum(weight * value) for value in values]), weight.sum()


def exact_moments(noise_scales, weights):
    """Return the moments where the noise scale is one of several with given prior weights."""
    totals = [weighted_moments(noise_scale) for noise_scale in noise_scales]
    evidence = sum(p * total[1] for p, total in zip(weights, totals, strict=True))
    return sum(p * total[0] for p, total in zip(weights, totals, strict=True)) / evidence


EXACT = exact_moments([NOISE_SCALE], [1.0])


def moments(theta):
    (inner, _, read_out) = theta
    w, b, out = inner["w"][0, 0], inner["b"][0], read_out["w"][0]
    return jnp.stack([w, b, w**2, b**2, out[0], out[0] ** 2, out[0] * out[1], w * out[0]])


def z_scores(
    make_kernel, to_weights, variants=((),), start=lambda phi: phi, exact=EXACT, chains=CHAINS
):
    """Run chains from the prior with make_kernel(*variant) for each; (variant, moment) z-scores."""

    def chain(key, variant):
        key_start, key_init, key_steps = jax.random.split(key, 3)
        kernel = make_kernel(*variant)
        state = kernel.init(start(init(key_start, NETWORK)), key_init)

        def step(i, carry):
            state, total = carry
            state = kernel.step(jax.random.fold_in(key_steps, i), state)[0]
            counts = (i >= BURN_IN).astype(total.dtype)
            return state, total + counts * moments(to_weights(state.position))

        total = jnp.zeros(len(NAMES))
        return jax.lax.fori_loop(0, BURN_IN + STEPS, step, (state, total))[1] / STEPS

    def run(keys, variants):
        return jax.vmap(lambda v: jax.vmap(lambda key: chain(key, v))(keys))(variants)

    keys = jax.random.split(jax.random.key(7), chains)
    means = jax.jit(run, compiler_options=QUICK)(keys, jnp.asarray(variants, jnp.float32))
    means = np.asarray(means, np.float64)
    return (means.mean(1) - exact) / (means.std(1) / np.sqrt(chains))


SAMPLERS = {
    "pcn": lambda p: jaxbnn.pcn(p.log_likelihood, 0.8),
    "pcnl": lambda p: jaxbnn.pcnl(p.log_likelihood, 0.7),
    "mala": lambda p: jaxbnn.underdamped_langevin(p.log_density_terms, 0.8, 1.0),
    "underdamped": lambda p: jaxbnn.underdamped_langevin(p.log_density_terms, 0.7, 0.3),
}


SHORT = {("pcnl", "features"), ("underdamped", "data")}


@pytest.mark.short("pcnl-features")
@pytest.mark.parametrize(
    ("name", "form"),
    [
        pytest.param(name, form, marks=() if (name, form) in SHORT else pytest.mark.long)
        for name in SAMPLERS
        for form in ("data", "features")
    ],
)
def test_moments(name, form):
    posterior = wide.reparametrise(NETWORK, X, Y, NOISE_SCALE, form=form)
    scores = z_scores(lambda: SAMPLERS[name](posterior), posterior.to_weights)
    assert np.abs(scores).max() < THRESHOLD, scores


@pytest.mark.long
def test_moments_of_the_marginal_conditional_split():
    marginal = wide.marginal_conditional(NETWORK, X, Y, NOISE_SCALE)
    kernel = wide.with_read_out(jaxbnn.pcn(marginal.log_likelihood, 0.8), marginal)
    scores = z_scores(lambda: kernel, lambda theta: theta)
    assert np.abs(scores).max() < THRESHOLD, scores


# What is added to l(W), in units of sum_k y_k^T K^-1 y_k and log det K (erratum B3).
VARIANTS = {
    "right": (0.0, 0.0),
    "printed sign of the exponent": (1.0, 0.0),
    "K^(1/2) for K^(-1/2)": (0.0, 2.0),
    "both": (1.0, 2.0),
    "the determinant of one output for two": (0.0, 0.5),
}


@pytest.mark.long
def test_printed_densities_have_other_moments():
    posterior = wide.reparametrise(NETWORK, X, Y, NOISE_SCALE)

    def make_kernel(of_exponent, of_determinant):
        def log_likelihood(phi):
            psi = design_matrix(NETWORK, phi, X)
            gram = psi @ psi.T + NOISE_SCALE**2 * jnp.eye(3)
            quadratic = jnp.sum(Y * jnp.linalg.solve(gram, jnp.asarray(Y)))
            log_det = jnp.linalg.slogdet(gram)[1]
            likelihood = jnp.sum(posterior.log_likelihood(phi))
            return likelihood + of_exponent * quadratic + of_determinant * log_det

        return jaxbnn.pcn(log_likelihood, 0.8)

    variants = list(VARIANTS.values())
    scores = z_scores(make_kernel, posterior.to_weights, variants, chains=800)
    right, *wrong = np.abs(scores).max(axis=1)
    assert right < THRESHOLD
    assert min(wrong) > 2 * THRESHOLD, scores


@pytest.mark.long
def test_matheron_without_its_noise_has_other_moments():
    posterior = wide.reparametrise(NETWORK, X, Y, NOISE_SCALE)

    def to_weights(phi):
        """Defect: erratum B4 with eps = 0, whose covariance is Sigma^2."""
        psi = design_matrix(NETWORK, phi, X)
        gram = psi @ psi.T + NOISE_SCALE**2 * jnp.eye(3)
        out = phi[-1]["w"]
        moved = out + psi.T @ jnp.linalg.solve(gram, jnp.asarray(Y) - psi @ out)
        return (*phi[:-1], {"w": moved})

    scores = z_scores(lambda: SAMPLERS["pcn"](posterior), to_weights)
    assert np.abs(scores).max() > 2 * THRESHOLD, scores


@pytest.mark.long
def test_the_noise_scale_may_be_sampled():
    """PCN on (phi, u) with l(W; sigma), log sigma = log 0.4 + u / 2."""
    grid = np.linspace(-4, 5, 19)
    exact = exact_moments(NOISE_SCALE * np.exp(grid / 2), stats.norm.pdf(grid))
    assert np.abs(exact - EXACT).max() > 0.05

    def posterior(position):
        return wide.reparametrise(NETWORK, X, Y, NOISE_SCALE * jnp.exp(position["u"] / 2))

    kernel = jaxbnn.pcn(lambda p: posterior(p).log_likelihood(p["phi"]), 0.8)
    scores = z_scores(
        lambda: kernel,
        lambda p: posterior(p).to_weights(p["phi"]),
        start=lambda phi: {"phi": phi, "u": jnp.zeros(())},
        exact=exact,
    )
    assert np.abs(scores).max() < THRESHOLD, scores
