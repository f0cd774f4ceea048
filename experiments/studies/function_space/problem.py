"""The data and the network of the study, with the settings that the paper leaves unsaid."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from experiments.datasets import cifar10
from jaxbnn import Activation, Dense, Network

NOISE_SCALE = 0.1
NUM_CLASSES = 10


class Problem(NamedTuple):
    """Training inputs and targets, and test inputs; float32."""

    x: Float[np.ndarray, "n d"]
    y: Float[np.ndarray, "n 10"]
    x_test: Float[np.ndarray, "m d"]


def cifar_problem(num_train: int, num_test: int) -> Problem:
    """Return the first images of CIFAR-10's training and test files, as the study uses them.

    One scalar mean and standard deviation, over the training images, are removed from the raw
    values of both; labels are one-hot less 0.1. (The authors' loader orders the images
    otherwise, so these are not the same images.)
    """
    data = cifar10(num_train, num_test)
    train, test = (
        images.reshape(len(images), -1).astype(np.float64) for images in (data.x_train, data.x_test)
    )
    mean, spread = train.mean(), train.std()
    y = np.eye(NUM_CLASSES)[data.y_train] - 0.1
    x, x_test = ((images - mean) / spread for images in (train, test))
    return Problem(x.astype(np.float32), y.astype(np.float32), x_test.astype(np.float32))


def wide_network(
    hidden: Sequence[int], num_inputs: int, num_outputs: int = NUM_CLASSES, activation: str = "gelu"
) -> Network:
    """Return the fully connected network of the study, in the ntk parametrisation.

    sigma_W^2 = 2 for all layers but the output's, where it is 1; sigma_b^2 = 0.01.

    Examples
    --------
    >>> wide_network((128,), 3072).layers[-1]
    Dense(features=10, bias=True, weight_scale=1.0, bias_scale=0.1)
    """
    layers: list = []
    for width in hidden:
        layers += [
            Dense(width, weight_scale=math.sqrt(2), bias_scale=0.1),
            Activation(activation),
        ]
    return Network((*layers, Dense(num_outputs, bias_scale=0.1)), (num_inputs,), "ntk")
