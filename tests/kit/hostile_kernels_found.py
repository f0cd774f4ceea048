"""Arguments of another type, exchanged arguments, states that say nothing, blocks that are not.

As a new user makes them: every factory of kernels and networks is given what it cannot use, in
each place, and is run for one step.
"""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from blackjax.base import SamplingAlgorithm
from hypothesis import strategies as st

import jaxbnn
from jaxbnn import kernels, networks, wide
from jaxbnn.networks import Activation, AvgPool, Conv, Dense, Flatten, Network, Residual, mlp
from tests.kit.hostile import Call

KEY = jax.random.key(0)
NETWORK, PRIOR = mlp((2, 3, 1), "relu"), dist.Normal(0.0, 1.0)
X, Y = np.ones((4, 2), np.float32), np.zeros((4, 1), np.float32)
POSTERIOR = jaxbnn.Posterior(NETWORK, PRIOR, jaxbnn.Gaussian(1.0), X, Y)
PARAMS = networks.init(KEY, NETWORK)
ZEROS = jnp.zeros(2)


def _log_density(x):
    return -0.5 * jnp.sum(jnp.asarray(x) ** 2)


def _two(a, b):
    return WALK


WALK = jaxbnn.pcn(_log_density, 0.5)
WRONG = {
    "nothing": None,
    "a number": 1.5,
    "a whole number": 3,
    "a word": "x",
    "a function": lambda x: x,
    "a function of two": _two,
    "a matrix": np.ones((2, 2)),
    "an array": jnp.ones(3),
    "a kernel": WALK,
    "a pair": (WALK.init, WALK.step),
    "a network": NETWORK,
    "a posterior": POSTERIOR,
    "a prior": PRIOR,
    "parameters": PARAMS,
    "a key": KEY,
    "a dict": {"a": 1.0},
    "a list": [1.0, 2.0],
    "an empty tuple": (),
    "a flag": True,
}


def _run(factory: Callable, position: Any = ZEROS) -> Callable:
    def call(*arguments):
        kernel = factory(*arguments)
        kernel.step(KEY, kernel.init(position, KEY))

    return call


def _network_of(layer: Callable, shape: tuple) -> Callable:
    return lambda *arguments: networks.output_shape(Network((layer(*arguments),), shape, "ntk"))


def _kernel_at(temperature, _):
    return jaxbnn.pcn(lambda x: temperature * _log_density(x), 0.5)


def _ladder(parameters, swap, tempered, swap_every, beta):
    options = {"swap": swap, "tempered": tempered, "swap_every": swap_every, "beta": beta}
    return jaxbnn.power_posterior(
        _kernel_at, _log_density, _log_density, [0.1, 1.0], parameters=parameters, **options
    )


KERNELS: dict[str, tuple[Callable, list]] = {
    "pcn": (_run(jaxbnn.pcn), [_log_density, 0.5, None]),
    "pcnl": (_run(jaxbnn.pcnl), [_log_density, 0.5]),
    "pcnl options": (
        _run(lambda a, b: jaxbnn.pcnl(_log_density, 0.5, covariance=a, mean=b)),
        [1.0, 0.0],
    ),
    "smmala": (_run(jaxbnn.smmala), [_log_density, 0.5]),
    "smmala options": (
        _run(lambda a, b: jaxbnn.smmala(_log_density, 0.5, softabs=a, metric=b)),
        [10.0, lambda x: jnp.eye(2)],
    ),
    "truncated_mala": (_run(jaxbnn.truncated_mala), [_log_density, 0.5, -1.0, 1.0]),
    "underdamped_langevin": (_run(jaxbnn.underdamped_langevin), [_log_density, 0.5, 0.5]),
    "symmetry_moves": (_run(jaxbnn.symmetry_moves, PARAMS), [NETWORK, PRIOR]),
    "symmetry_moves options": (
        _run(lambda a, b: jaxbnn.symmetry_moves(NETWORK, PRIOR, softmax=a, scaling_step=b), PARAMS),
        [False, 0.5],
    ),
    "explain_symmetries": (jaxbnn.explain_symmetries, [NETWORK, PRIOR]),
    "redraw_units": (
        _run(jaxbnn.redraw_units, PARAMS),
        [NETWORK, PRIOR, POSTERIOR.log_likelihood],
    ),
    "cycle": (_run(jaxbnn.cycle), [WALK, WALK]),
    "mix": (_run(jaxbnn.mix), [[WALK, WALK], [0.5, 0.5]]),
    "repeat": (_run(jaxbnn.repeat), [WALK, 2]),
    "in_turn": (_run(jaxbnn.in_turn), [WALK]),
    "jittered": (
        _run(lambda a, b, c: jaxbnn.jittered(a, b, jitter=c)),
        [lambda eps: jaxbnn.pcn(_log_density, eps), 0.5, 0.3],
    ),
    "on_block": (
        _run(jaxbnn.on_block, {"a": ZEROS, "b": ZEROS}),
        [lambda whole: jaxbnn.pcn(lambda v: _log_density(whole(v)["a"]), 0.5), "a"],
    ),
    "on_vector": (
        _run(jaxbnn.on_vector, {"a": ZEROS, "b": ZEROS}),
        [lambda whole: jaxbnn.pcn(lambda v: _log_density(whole(v)["a"]), 0.5)],
    ),
    "power_posterior": (
        _run(jaxbnn.power_posterior),
        [_kernel_at, _log_density, _log_density, [0.0, 1.0]],
    ),
    "power_posterior options": (_run(_ladder), [None, "even_odd", "posterior", 2, 0.5]),
    "refresh": (lambda k, s: jaxbnn.refresh(k, s, ZEROS), [WALK, WALK.init(ZEROS)]),
    "step": (WALK.step, [KEY, WALK.init(ZEROS)]),
    "covariance_operator": (
        _run(lambda *a: jaxbnn.pcn(_log_density, 0.5, kernels.covariance_operator(*a))),
        [lambda x: x],
    ),
    "dense_covariance": (
        _run(lambda a: jaxbnn.pcn(_log_density, 0.5, kernels.dense_covariance(a))),
        [np.eye(2)],
    ),
    "metropolis": (lambda k, r: kernels.metropolis(k, r, ZEROS, ZEROS), [KEY, jnp.array(0.1)]),
    "swap_log_ratio": (kernels.swap_log_ratio, [jnp.array(0.5), jnp.array(1.0), ZEROS, ZEROS]),
    "beta_from_delta": (kernels.beta_from_delta, [0.1]),
    "delta_from_beta": (kernels.delta_from_beta, [0.1]),
}
NETWORKS: dict[str, tuple[Callable, list]] = {
    "init": (networks.init, [KEY, NETWORK, float]),
    "apply": (networks.apply, [NETWORK, PARAMS, X]),
    "Network.apply": (NETWORK.apply, [PARAMS, X]),
    "features": (networks.features, [NETWORK, PARAMS, X]),
    "canonicalize": (networks.canonicalize, [NETWORK, PARAMS]),
    "canonicalize options": (
        lambda a, b: networks.canonicalize(NETWORK, PARAMS, scalings=a, softmax=b),
        [True, False],
    ),
    "layer_shapes": (networks.layer_shapes, [NETWORK]),
    "num_parameters": (networks.num_parameters, [NETWORK]),
    "output_shape": (networks.output_shape, [NETWORK]),
    "parameter_shapes": (lambda *a: networks.parameter_shapes(*a) and (), [NETWORK]),
    "network_summary": (lambda *a: networks.network_summary(*a) and (), [NETWORK]),
    "weight_symmetries": (lambda *a: networks.weight_symmetries(*a) and (), [NETWORK]),
    "mlp": (lambda *a: networks.output_shape(mlp(*a)), [(2, 3, 1), "relu"]),
    "mlp options": (
        lambda a, b, c, d: networks.output_shape(
            mlp((2, 1), bias=a, parametrisation=b, weight_scale=c, bias_scale=d)
        ),
        [True, "ntk", 1.0, 1.0],
    ),
    "Network": (
        lambda *a: networks.output_shape(Network(*a)),
        [(Dense(3), Activation("relu")), (2,), "standard"],
    ),
    "Dense": (_network_of(Dense, (2,)), [3, True, 1.0, 1.0]),
    "Conv": (_network_of(Conv, (4, 4, 1)), [3, (2, 2), (1, 1), True]),
    "AvgPool": (_network_of(AvgPool, (4, 4, 1)), [(2, 2), (1, 1)]),
    "Activation": (_network_of(Activation, (2,)), ["relu"]),
    "Flatten": (_network_of(Flatten, (4, 4, 1)), []),
    "Residual": (_network_of(Residual, (2,)), [(Dense(2),)]),
    "activation_function": (
        lambda name: networks.activation_function(name) and (),
        ["relu"],
    ),
}


def _calls(table: dict[str, tuple[Callable, list]]) -> list[Call]:
    """Return every call with one argument of another kind, or two exchanged."""
    made = []

    def add(name, kind, function, arguments):
        made.append(Call(name, kind, lambda: function(*arguments), None, "nan"))

    for name, (function, good) in table.items():
        for place, (kind, value) in itertools.product(range(len(good)), WRONG.items()):
            add(name, f"{kind} for another", function, [*good[:place], value, *good[place + 1 :]])
        for i, j in itertools.combinations(range(len(good)), 2):
            swapped = list(good)
            swapped[i], swapped[j] = good[j], good[i]
            add(name, "two exchanged", function, swapped)
    return made


class _Silent(NamedTuple):
    position: Any
    cached: Any


def _state_class(auxiliary: Any) -> type:
    class Made(NamedTuple):
        position: Any
        cached: Any

    Made.auxiliary = auxiliary
    return Made


def _kernel(make_state: Callable) -> SamplingAlgorithm:
    return SamplingAlgorithm(
        lambda x, rng_key=None: make_state(x, jnp.zeros(())), lambda key, state: (state, ())
    )


COMPOSITIONS = {
    "cycle": lambda k: jaxbnn.cycle(k, WALK),
    "mix": lambda k: jaxbnn.mix([WALK, k]),
    "cycle of repeat": lambda k: jaxbnn.cycle(WALK, jaxbnn.repeat(k, 2)),
    "cycle of count_accepted": lambda k: jaxbnn.cycle(wide.count_accepted(k)),
    "cycle of on_block": lambda k: jaxbnn.cycle(jaxbnn.on_block(lambda whole: k, 0)),
    "on_vector": lambda k: jaxbnn.on_vector(lambda whole: k),
    "power_posterior": lambda k: jaxbnn.power_posterior(
        lambda t, _: k, _log_density, _log_density, [0.0, 1.0]
    ),
}
STATES = {
    "says nothing": _Silent,
    "names no field": _state_class(("nonsense",)),
    "names the position": _state_class(("position",)),
    "is a string": _state_class("cached"),
    "a dict": lambda x, y: {"position": x},
    "an array": lambda x, y: x,
    "nothing": lambda x, y: None,
    "a tuple": lambda x, y: (x, y),
}


def _states() -> list[Call]:
    return [
        Call(name, f"a state: {kind}", _started(compose(_kernel(make)), name), None, "nothing")
        for (name, compose), (kind, make) in itertools.product(COMPOSITIONS.items(), STATES.items())
    ]


def _started(kernel: SamplingAlgorithm, name: str) -> Callable:
    position = (ZEROS, ZEROS) if "on_block" in name else ZEROS
    return lambda: kernel.init(position)


TREE = {"encoder": {"w": ZEROS}, "pair": (ZEROS, {"b": ZEROS})}
BLOCKS = ("decoder", 0, ("encoder", "b"), ("encoder", "w", 0), ("pair", 2), ("pair", 1, 1), (), [])
BLOCKS += (["encoder", ("encoder", "w")], ["pair", "pair"], [("pair", 0), ("pair", -2)], None, 1.5)
BLOCKS += ({"encoder"}, [["encoder"]], ("encoder", None), ZEROS, NETWORK)


def _blocks() -> list[Call]:
    def call(block):
        made = jaxbnn.on_block(lambda whole: jaxbnn.pcn(lambda v: 0.0, 0.5), block)
        return made.init(TREE).position

    return [
        Call("on_block", "a block", lambda b=block: call(b), None, "nothing") for block in BLOCKS
    ]


def _family(calls: list[Call]) -> st.SearchStrategy:
    return st.integers(0, len(calls) - 1).map(lambda number: (number, calls[number]))


FAMILIES = {
    "arguments of kernels": _family(_calls(KERNELS)),
    "arguments of networks": _family(_calls(NETWORKS)),
    "states in compositions": _family(_states()),
    "blocks of positions": _family(_blocks()),
}
