"""Bad sizes for layers, and bad data and parameters for networks."""

import jax
import numpy as np

from jaxbnn import networks
from jaxbnn.networks import Activation, AvgPool, Conv, Dense, Flatten, Network, Residual, mlp
from tests.kit.hostile_slots import Tried, array, count, family, number, tree, word

KEY = jax.random.key(0)
PLAIN = mlp((2, 3, 3), "relu")
IMAGES = Network(
    (Conv(2, (2, 2)), Activation("relu"), AvgPool((2, 2)), Flatten(), Dense(2)), (4, 4, 1)
)
DEEP = Network(
    (Dense(3), Residual((Dense(3), Activation("tanh"))), Dense(1)), (2,), parametrisation="ntk"
)


def _sizes(make_layers, *slots):
    """A network of what was given, described by all that reads descriptions."""

    def call(*values):
        network = make_layers(*values)
        networks.weight_symmetries(network)
        networks.network_summary(network)
        networks.layer_shapes(network)
        networks.output_shape(network)
        if networks.num_parameters(network) > 1000:
            return networks.parameter_shapes(network) and ()
        return networks.init(KEY, network)

    return Tried(call, slots)


def _of(network, function, *slots):
    return Tried(function, (tree(lambda: networks.init(KEY, network)), *slots), is_checked=False)


TRIED = {
    "Dense": _sizes(
        lambda n, w, b: Network((Dense(n, True, w, b),), (2,), "ntk"),
        count(3),
        number(1),
        number(1),
    ),
    "Conv": _sizes(
        lambda n, h, w, s: Network((Conv(n, (h, w), (s, s)),), (4, 4, 1)),
        count(2),
        count(2),
        count(2),
        count(1),
    ),
    "AvgPool": _sizes(
        lambda h, s: Network((AvgPool((h, 2), (s, 1)),), (4, 4, 1)), count(2), count(1)
    ),
    "Activation": Tried(
        lambda name: networks.activation_function(Activation(name).function)(np.ones(2)),
        (word("tanh"),),
    ),
    "Residual": _sizes(lambda n: Network((Residual((Dense(n),)),), (2,)), count(2)),
    "Network": _sizes(lambda n, form: Network((Dense(1),), (n,), form), count(2), word("standard")),
    "mlp": _sizes(
        lambda n, f, form, scale: mlp((2, n, 1), f, parametrisation=form, weight_scale=scale),
        count(3),
        word("relu"),
        word("ntk"),
        number(1.0),
    ),
    "apply": _of(PLAIN, lambda p, x: networks.apply(PLAIN, p, x), array(4, 2)),
    "apply to images": _of(IMAGES, lambda p, x: networks.apply(IMAGES, p, x), array(3, 4, 4, 1)),
    "features": _of(DEEP, lambda p, x: networks.features(DEEP, p, x), array(4, 2)),
    "canonicalize": _of(PLAIN, lambda p: networks.canonicalize(PLAIN, p, softmax=True)),
}

FAMILIES = {"layers, networks and their parameters": family(TRIED)}
