"""Small models of every kind, and their posteriors' pieces; nothing about them is symmetric."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.base import SamplingAlgorithm

from jaxbnn.gibbs import IntermediateNoise, PiecewiseLinear
from jaxbnn.networks import Activation, AvgPool, Conv, Dense, Flatten, Network, mlp

INF = math.inf
# Four pieces, two jumps, unequal slopes.
STAIRS = PiecewiseLinear(
    ((0.5, 1.0, -INF, -0.8), (0.0, 0.3, -0.8, 0.2), (-1.0, 0.5, 0.2, 1.1), (2.0, -1.0, 1.1, INF))
)
ACTIVATIONS = ("identity", "relu", "leaky_relu", "abs", "sign", "heaviside", "hard_tanh", STAIRS)

CONV = Network(
    (
        Conv(2, (2, 2), stride=(2, 1)),
        AvgPool((1, 2)),
        Activation("leaky_relu"),
        Flatten(),
        Dense(3),
    ),
    (5, 6, 1),
)
DEEP_CONV = Network(
    (
        Conv(2, (2, 2)),
        Activation("abs"),
        AvgPool((2, 2), stride=(1, 1)),
        Conv(1, (1, 2), bias=False),
        Activation("relu"),
        Flatten(),
        Dense(1),
    ),
    (4, 4, 1),
)
MODELS = {
    "regression": IntermediateNoise(
        mlp((2, 3, 2)), (0.3, 0.5, 0.2), weight_precision=(0.7, 1.3), bias_precision=(0.5, 2.0)
    ),
    "deep": IntermediateNoise(
        Network(
            (
                Dense(3),
                Activation(STAIRS),
                Dense(2, bias=False),
                Activation("hard_tanh"),
                Dense(5),
                Dense(1),
            ),
            (2,),
        ),
        0.4,
        weight_precision=0.8,
        bias_precision=(0.5, 1.0, 0.6, 2.0),
    ),
    "wide": IntermediateNoise(mlp((2, 12, 1), "sign"), (0.3, 0.5, 0.2), 0.9, 1.4),
    "probit": IntermediateNoise(mlp((2, 3, 3), "abs"), (0.3, 0.5, 0.8), 1.0, 0.7, "probit"),
    "binary": IntermediateNoise(
        mlp((2, 2, 1), "heaviside"), (0.3, 0.5, 0.8), 1.0, 0.7, "binary_probit"
    ),
    "conv": IntermediateNoise(CONV, (0.3, 0.5, 0.4, 0.7), (1.1, 0.6), (0.4, 0.9), "probit"),
    "deep conv": IntermediateNoise(DEEP_CONV, (0.3, 0.2, 0.5, 0.6, 0.4, 0.25), 1.3, 0.8),
    "pool first": IntermediateNoise(
        Network((AvgPool((2, 1), stride=(3, 2)), Dense(2), Flatten(), Dense(1)), (5, 4, 1)),
        (0.3, 0.5, 0.2),
        0.8,
        1.2,
    ),
    "linear": IntermediateNoise(Network((Dense(2),), (2,)), 0.3, 0.7, 1.6),
}


def data(name: str, n: int, dtype=np.float64) -> jax.Array:
    """Return inputs with a mean far from zero and unequal spreads."""
    rng = np.random.default_rng(sum(map(ord, name)))
    shape = (n, *MODELS[name].network.input_shape)
    scale = 0.5 + rng.uniform(size=shape[1:])
    return jnp.asarray(0.4 + scale * rng.normal(size=shape), dtype)


def drawn(name: str, n: int = 3, dtype=np.float64) -> tuple:
    """Return a model, inputs, and weights with latents and labels that the model draws."""
    model, x = MODELS[name], data(name, n, dtype)
    params = model.sample_prior(jax.random.key(1), dtype)
    return model, x, *jax.jit(model.simulate)(jax.random.key(0), params, x)


def patched(kernel: SamplingAlgorithm, owner: object, name: str, wrong: object):
    """Return a mutant: the kernel, in whose steps `owner` has something else by this name."""

    def step(rng_key, state):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owner, name, wrong)
            return kernel.step(rng_key, state)

    return kernel._replace(step=step)
