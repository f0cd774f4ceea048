"""MCMC and variational inference for Bayesian neural networks, as pure functions in JAX.

A kernel is a pair `init(position, rng_key=None) -> state`, `step(rng_key, state) ->
(state, info)`: ours, BlackJAX's, or your own. `sample` runs any of them on many chains;
`diagnostics` and `plots` judge the draws.
"""

import importlib
import typing

from jaxbnn import _threads

if typing.TYPE_CHECKING:
    from jaxbnn._public import *  # noqa: F403
    from jaxbnn._public import __all__

__version__ = "0.1.0"

_threads.spare_threads()


def _load(name: str) -> typing.Any:
    """Load the public names with the first one: JAX takes seconds, and the command tells at once.

    Raises
    ------
    AttributeError
        No such name.
    """
    if name == "__all__" or not name.startswith("_"):
        public = importlib.import_module("jaxbnn._public")
        if hasattr(public, name):
            names = getattr(public, "__all__", [])
            globals().update({known: getattr(public, known) for known in names})
            return getattr(public, name)
    raise AttributeError(f"module 'jaxbnn' has no attribute {name!r}")


def _names() -> list[str]:
    return sorted({*globals(), *_load("__all__")})


if not typing.TYPE_CHECKING:  # to which every name would be one that there is
    __getattr__, __dir__ = _load, _names
