"""The models of the benchmark, with their data."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.datasets import mnist
from jaxbnn import Activation, AvgPool, Conv, Dense, Flatten, Network, mlp
from jaxbnn.gibbs import IntermediateNoise, collapse_pooling


class Case(NamedTuple):
    """A model with its data, and how many sweeps a measurement takes.

    The state is copied once a measurement, which with few sweeps would count.
    """

    setting: str
    model: IntermediateNoise
    x: jax.Array
    y: jax.Array
    num_steps: int


def synthetic(
    n: int = 2084, d: int = 50, width: int = 10, depth: int = 1, num_steps: int = 300
) -> Case:
    """Teacher and student of the synthetic study: Gaussian inputs, Delta = 1e-4."""
    widths = (d, *[width] * depth, 1)
    model = IntermediateNoise(mlp(widths), 1e-4, widths[:-1], widths[:-1])
    keys = jax.random.split(jax.random.key(0), 3)
    x = jax.random.normal(keys[0], (n, d))
    _, y = model.simulate(keys[1], model.sample_prior(keys[2]), x)
    setting = f"synthetic, n = {n}, {'-'.join(map(str, widths))}"
    return Case(setting, model, x, y, num_steps)


def mnist_mlp() -> Case:
    """784-12-10 on all training images, standardised, Delta = 2."""
    train = mnist()
    x = _standardised(train.x_train.reshape(-1, 784))
    precision = (784.0, 12.0)
    model = IntermediateNoise(mlp((784, 12, 10)), 2.0, precision, precision, "probit")
    return Case(
        "MNIST MLP, n = 60000",
        model,
        jnp.asarray(x),
        jnp.asarray(train.y_train.astype(np.int32)),
        12,
    )


def mnist_cnn() -> Case:
    """Convolution, pooling, ReLU and 72-10 on all training images, standardised, Delta = 100."""
    train = mnist()
    x = _standardised(train.x_train[..., None])
    layers = (
        Conv(2, (4, 4), stride=(2, 2)),
        AvgPool((2, 2)),
        Activation("relu"),
        Flatten(),
        Dense(10),
    )
    precision = (16.0, 72.0)
    network = Network(layers, (28, 28, 1))
    model = IntermediateNoise(network, 100.0, precision, precision, "probit")
    labels = jnp.asarray(train.y_train.astype(np.int32))
    return Case("MNIST CNN, n = 60000", model, jnp.asarray(x), labels, 6)


def mnist_cnn_collapsed() -> Case:
    """Return the same posterior with the outputs of the convolution integrated out."""
    case = mnist_cnn()
    model, averaged, *_ = collapse_pooling(case.model, case.x)
    return case._replace(setting="MNIST CNN collapsed, n = 60000", model=model, x=averaged)


def _standardised(images: np.ndarray) -> np.ndarray:
    """Remove one mean and one standard deviation of all pixels."""
    x = images.astype(np.float32)
    return (x - x.mean(dtype=np.float64).astype(np.float32)) / x.std(dtype=np.float64).astype(
        np.float32
    )


MODELS: dict[str, Callable[[], Case]] = {
    "synthetic": synthetic,
    "mnist_mlp": mnist_mlp,
    "mnist_cnn": mnist_cnn,
    "mnist_cnn_collapsed": mnist_cnn_collapsed,
}
