"""What the runner and training are given by mistake: kernels, functions, keys of the wrong kind.

Each call ends in one sentence; none of the mistakes depends on numbers drawn by chance.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
from blackjax.base import SamplingAlgorithm
from hypothesis import strategies as st

import jaxbnn
from jaxbnn.networks import mlp
from jaxbnn.sampling import Adaptation, Reducer
from tests.kit.hostile import Call

KEY = jax.random.key(0)
STARTS = np.zeros((3, 2), np.float32)
KERNEL = blackjax.mala(lambda x: -jnp.sum(x**2) / 2, 0.5)
STEP = {"parameters": {"step_size": 0.1}, "num_warmup": 2}


class State(NamedTuple):
    """A state with something beside its position."""

    position: Any
    count: Any


class Nameless(NamedTuple):
    """A state without a position."""

    value: Any


def _kernel(step: Callable, init: Callable | None = None) -> SamplingAlgorithm:
    start = lambda x, rng_key=None: State(x, jnp.zeros((), jnp.int32))  # noqa: E731
    return SamplingAlgorithm(init or start, step)


def _sample(kernel: Any = KERNEL, positions: Any = STARTS, *, key: Any = KEY, **options: Any):
    return jaxbnn.sample(key, kernel, positions, 3, progress=False, **options)


def _make(parameters, data):
    return KERNEL


def _posterior() -> Any:
    x = np.ones((4, 2), np.float32)
    return jaxbnn.Posterior(mlp((2, 1)), dist.Normal(0.0, 1.0), jaxbnn.Gaussian(1.0), x, x[:, :1])


def _adapt_drifts() -> Adaptation:
    update = lambda a, step, state, info: ({"a": a["a"].astype(jnp.int32)}, a)  # noqa: E731
    return Adaptation(lambda p: p, update, lambda a: a)


def _growing() -> Reducer:
    return Reducer(lambda x: jnp.zeros(()), lambda r, x: r + x, lambda a, b: a, lambda r: r)


KERNELS = {
    "a tuple": lambda: _sample((KERNEL.init, KERNEL.step)),
    "a list": lambda: _sample([KERNEL.init, KERNEL.step]),
    "nothing": lambda: _sample(None),
    "a name": lambda: _sample("mala"),
    "a factory": lambda: _sample(blackjax.mala),
    "init of one argument": lambda: _sample(SamplingAlgorithm(lambda x: x, KERNEL.step)),
    "step of one argument": lambda: _sample(_kernel(lambda state: (state, None))),
    "no position": lambda: _sample(
        _kernel(lambda key, s: (s, None), lambda x, key=None: Nameless(x))
    ),
    "no pair": lambda: _sample(_kernel(lambda key, s: s.position)),
    "a dtype that drifts": lambda: _sample(
        _kernel(lambda key, s: (State(s.position, s.count + 0.5), None))
    ),
    "a dtype that drifts in warm-up": lambda: _sample(
        _kernel(lambda key, s: (State(s.position, s.count + 0.5), None)), num_warmup=2
    ),
    "a shape that drifts": lambda: _sample(
        _kernel(lambda key, s: (State(s.position[None], s.count), None))
    ),
    "a structure that drifts": lambda: _sample(_kernel(lambda key, s: ((s.position,), None))),
    "make_kernel of one argument": lambda: _sample(lambda data: KERNEL, data=1.0),
    "make_kernel of a tuple": lambda: _sample(lambda p, d: (KERNEL.init, KERNEL.step)),
    "make_kernel of nothing": lambda: _sample(lambda p, d: None),
}
FUNCTIONS = {
    "collect of one argument": lambda: _sample(collect=lambda state: state.position),
    "collect by name": lambda: _sample(collect="position"),
    "collect of words": lambda: _sample(collect=lambda state, info: "position"),
    "a list of reducers": lambda: _sample(reduce=[jaxbnn.moments()]),
    "a reducer not called": lambda: _sample(reduce={"m": jaxbnn.moments}),
    "a reducer that grows": lambda: _sample(reduce={"m": _growing()}),
    "an adaptation not called": lambda: _sample(_make, adapt=jaxbnn.dual_averaging, **STEP),
    "an adaptation that drifts": lambda: _sample(
        _make, adapt=_adapt_drifts(), num_warmup=2, parameters={"a": 0.5}
    ),
    "a list of devices": lambda: _sample(mesh=jax.devices()),
    "a number for a folder": lambda: _sample(checkpoint=3),
    "parameters in words": lambda: _sample(_make, parameters={"a": "b"}),
}
KEYS = {
    "an int": lambda: _sample(key=0),
    "a float": lambda: _sample(key=0.5),
    "several keys": lambda: _sample(key=jax.random.split(KEY, 3)),
    "an array": lambda: _sample(key=np.zeros(3)),
    "within jit": lambda: jax.jit(lambda key: _sample(key=key).positions)(KEY),
    "closed over by jit": lambda: jax.jit(lambda x: _sample().positions + x)(1.0),
    "within vmap": lambda: jax.vmap(lambda x: _sample(positions=x).positions)(STARTS[None]),
    "within grad": lambda: jax.grad(lambda x: _sample(_make, data=x).positions.sum())(1.0),
}
STARTS_OF_ONE_NUMBER = {
    "an index": lambda: _sample(blackjax.mala(lambda x: -(x[0] ** 2), 0.5), np.zeros(5)),
    "a Posterior's pCN": lambda: _sample(
        lambda p, d: jaxbnn.pcn(d.log_likelihood, 0.5), np.zeros(5, np.float32), data=_posterior()
    ),
    "a Posterior's MALA": lambda: _sample(
        lambda p, d: blackjax.mala(d.log_density, 0.5), np.zeros(5, np.float32), data=_posterior()
    ),
}


def _train(posterior: Any = None, *, key: Any = KEY, num_chains: Any = 2, **options: Any):
    target = _posterior() if posterior is None else posterior
    options = {"validation": 0.25, "progress": False} | options
    return jaxbnn.optimised_starts(key, target, num_chains, **options)


TRAINING = {
    "a network": lambda: _train(mlp((2, 1))),
    "an int": lambda: _train(key=0),
    "within jit": lambda: jax.jit(lambda key: _train(key=key).positions)(KEY),
    "a posterior within jit": lambda: jax.jit(lambda p: _train(p).positions)(_posterior()),
    "no chains": lambda: _train(num_chains=0),
    "chains and a half": lambda: _train(num_chains=1.5),
    "an optimiser by name": lambda: _train(optimizer="adam"),
    "an optimiser not called": lambda: _train(optimizer=optax.adam),
    "fewer rows than a batch": lambda: _train(batch_size=5),
    "half a row": lambda: _train(batch_size=0.5),
    "no row held out": lambda: _train(validation=1e-6),
    "no row left": lambda: _train(validation=1 - 1e-6),
    "all rows": lambda: _train(validation=1.0),
    "NaN of the rows": lambda: _train(validation=np.nan),
    "rows by number": lambda: _train(validation=np.array([0, 1])),
    "no patience": lambda: _train(patience=0),
    "endless patience": lambda: _train(patience=np.inf),
    "no epochs": lambda: _train(max_epochs=0),
    "a number for a folder": lambda: _train(checkpoint=3),
    "positions of one chain": lambda: _train(positions=_posterior().sample_prior(KEY)),
    "positions of another network": lambda: _train(positions=STARTS),
    "positions in words": lambda: _train(positions=({"w": "a", "b": "c"},)),
    "positions of NaN": lambda: _train(
        positions=jax.tree.map(lambda w: w * np.nan, _posterior().sample_prior(KEY, (2,)))
    ),
}


def _family(kind: str, calls: dict[str, Callable]) -> st.SearchStrategy:
    def make(name):
        return 0, Call(f"sample: {name}", kind, calls[name], None, "nothing")

    return st.sampled_from(sorted(calls)).map(make)


FAMILIES = {
    "runner, kernels": _family("a kernel that is none", KERNELS),
    "runner, functions": _family("a function that is none", FUNCTIONS),
    "runner, keys": _family("a key that is none, or traced", KEYS),
    "runner, training": _family("training with what is none", TRAINING),
    "runner, chain axis": _family("a forgotten chain axis", STARTS_OF_ONE_NUMBER),
}
