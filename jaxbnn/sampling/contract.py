"""What a kernel, an adaptation and a reducer must keep to, looked at while they are traced.

One sentence a mistake: JAX would tell of a carry of a loop, or of an attribute of a tracer.
"""

import inspect
from typing import Any

import jax
import jax.numpy as jnp
from blackjax.base import SamplingAlgorithm
from jaxtyping import PyTree

from jaxbnn.numerics.arguments import a_or_an


def check_callable(name: str, function: Any, arguments: str) -> None:
    """Refuse what cannot be called with these arguments, `"parameters, data"` for instance."""
    words = f"{name}({arguments})"
    if not callable(function):
        raise ValueError(f"{name} must be a function {words}, but is {_kind(function)}.")
    try:
        inspect.signature(function).bind(*arguments.split(", "))
    except TypeError as error:
        raise ValueError(f"{name} cannot be called as {words} ({error}); write it so.") from None
    except ValueError:
        return  # a function of C, which says nothing of its arguments


def check_pair(kernel: Any, name: str = "kernel") -> None:
    """Refuse what is no pair of init and step."""
    if hasattr(kernel, "build_kernel"):
        raise ValueError(
            f"{name} is a factory of BlackJAX's, which has no log density yet; call it, as in "
            "blackjax.mala(log_density, 0.1)."
        )
    if isinstance(kernel, tuple | list) and not hasattr(kernel, "step") and len(kernel) == 2:
        raise ValueError(
            f"{name} is a plain {type(kernel).__name__} of two functions; write "
            "blackjax.SamplingAlgorithm(init, step)."
        )
    if not (hasattr(kernel, "init") and hasattr(kernel, "step")):
        raise ValueError(f"{name} must be a SamplingAlgorithm(init, step), but is {_kind(kernel)}.")
    check_callable(f"{name}.init", kernel.init, "position, rng_key")
    check_callable(f"{name}.step", kernel.step, "rng_key, state")


def check_made(kernel: Any) -> SamplingAlgorithm:
    """Return what `make_kernel` made, or refuse it."""
    check_pair(kernel, "what make_kernel returns")
    return kernel


def check_step(state: Any, result: Any) -> None:
    """Refuse a step that returns no pair, or a state of other shapes or dtypes than before."""
    if not (isinstance(result, tuple) and len(result) == 2):
        raise ValueError(
            f"kernel.step must return a pair (state, info), but returns {_kind(result)}."
        )
    check_kept("kernel.step", "state", state, result[0])


def check_kept(function: str, name: str, before: PyTree, after: PyTree) -> None:
    """Refuse a function that changes the structure, a shape or a dtype of what it updates."""
    old_tree, new_tree = map(_structure, (before, after))
    if old_tree != new_tree:
        raise ValueError(
            f"{function} changes the structure of {name} from {_short(old_tree)} to "
            f"{_short(new_tree)}; return it with the one that it is given."
        )
    pairs = zip(jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(after), strict=True)
    for (path, old), new in pairs:
        if _type(old) != _type(new):
            where = f"{name}{jax.tree_util.keystr(path)}"
            raise ValueError(
                f"{function} changes {where} from {_type(old)} to {_type(new)}; return it with the "
                "shape and dtype that it is given, by astype for instance."
            )


def position_of(state: Any) -> PyTree:
    """Return the position of a kernel's state, or say what is missing."""
    if not hasattr(state, "position"):
        raise ValueError(
            f"the kernel's state ({type(state).__name__}) has no field position; give it one, or "
            "collect(state, info) to sample that needs none."
        )
    return state.position


def _type(leaf: Any) -> str:
    return f"{jnp.result_type(leaf)}[{','.join(map(str, jnp.shape(leaf)))}]"


def _structure(tree: PyTree) -> Any:
    return jax.tree.structure(tree)


def _short(structure: Any) -> str:
    text = str(structure).removeprefix("PyTreeDef(").removesuffix(")")
    return text if len(text) <= 100 else f"{text[:100]}..."


def _kind(value: Any) -> str:
    return "None" if value is None else a_or_an(value)
