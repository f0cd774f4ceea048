"""A kernel on a part of the position: one block, a block inside a block, or several at once.

Blocks are found as JAX's PyTrees have them, so that keys of dicts, fields of NamedTuples and
dataclasses, and children of any registered class all have names.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import jax
from blackjax.base import SamplingAlgorithm
from jaxtyping import PyTree

from jaxbnn.kernels.arguments import check_kernel
from jaxbnn.kernels.refresh import auxiliary_fields, check_state
from jaxbnn.numerics.arguments import a_or_an, check_function, short

Path = tuple[Hashable, ...]


@auxiliary_fields()
class BlockState(NamedTuple):
    """State of `on_block`.

    Attributes
    ----------
    position
        All of it.
    block
        State of the kernel on the block.
    """

    position: PyTree
    block: Any


def on_block(
    make_kernel: Callable[[Callable[[PyTree], PyTree]], SamplingAlgorithm],
    block: Hashable | Sequence[Hashable],
) -> SamplingAlgorithm:
    """Move one block of the position by a kernel on its conditional, the rest held fixed.

    Parameters
    ----------
    make_kernel
        `make_kernel(whole) -> SamplingAlgorithm` on the block; `whole(block_position)` is the
        position with the block put in and the rest as it is now. Called while tracing.
    block
        A key of a dict position, a field of a NamedTuple or dataclass, an index of a tuple or
        list, or the name of a child of any registered PyTree. A tuple of these is a path, from
        the outside inwards: `("encoder", "w")`. A list of names and paths takes several blocks
        at once: the kernel's position is then the tuple of them, in that order.

    Returns
    -------
    The kernel, with `BlockState` and the Info of the kernel on the block.

    Raises
    ------
    TypeError
        `make_kernel` is not a function or does not return a kernel; a block is not a name or path.
    ValueError
        The position has no such block, no block is named, or one block lies in another.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, blackjax
    >>> from jaxbnn import cycle
    >>> log_density = lambda p: -jnp.sum((p["a"] - p["b"]) ** 2 + p["b"] ** 2)
    >>> def mala_on(name):
    ...     make_kernel = lambda whole: blackjax.mala(lambda block: log_density(whole(block)), 0.3)
    ...     return on_block(make_kernel, name)
    >>> kernel = cycle(mala_on("a"), mala_on("b"))
    >>> state = kernel.init({"a": jnp.zeros(2), "b": jnp.ones(2)})
    >>> state, info = kernel.step(jax.random.key(0), state)
    >>> sorted(state.position)
    ['a', 'b']
    """
    check_function(
        "make_kernel",
        make_kernel,
        "write on_block(lambda whole: pcn(lambda block: log_likelihood(whole(block)), 0.1), block)",
    )
    paths = _paths(block)

    def get(position):
        values = [_get(position, path, path) for path in paths]
        return tuple(values) if isinstance(block, list) else values[0]

    def put(position, value):
        values = value if isinstance(block, list) else (value,)
        for path, one in zip(paths, values, strict=True):
            position = _put(position, path, one)
        return position

    def bind(position):
        kernel = make_kernel(lambda value: put(position, value))
        check_kernel("what make_kernel returns", kernel)
        return kernel

    def init(position, rng_key=None):
        _check_apart(position, paths)
        state = bind(position).init(get(position), rng_key)
        check_state(state)
        return BlockState(position, state)

    def step(rng_key, state):
        own_state, info = bind(state.position).step(rng_key, state.block)
        return BlockState(put(state.position, own_state.position), own_state), info

    return SamplingAlgorithm(init, step)


def _paths(block: Hashable | Sequence[Hashable]) -> list[Path]:
    """Return the path of each block."""
    blocks = block if isinstance(block, list) else [block]
    for one in blocks:
        try:
            hash(one)
        except TypeError:
            raise TypeError(
                f"a block is named by a key, a field, an index or a tuple of them, but got "
                f"{a_or_an(one)}; a list takes several blocks."
            ) from None
    paths = [one if isinstance(one, tuple) else (one,) for one in blocks]
    if not paths or not all(paths):
        raise ValueError(f"on_block needs the name of a block, but got {block!r}.")
    return paths


def _check_apart(position: PyTree, paths: Sequence[Path]) -> None:
    """Raise if a block lies in another, or is the same: it would have two values at once."""
    places = [_place(position, path, path) for path in paths]
    for i, place in enumerate(places):
        for j, other in enumerate(places):
            if i != j and other[: len(place)] == place:
                raise ValueError(
                    f"on_block needs blocks that are apart, but {_name(paths[j])} is "
                    f"{_name(paths[i])} or lies in it; name each part once."
                )


def _place(position: PyTree, path: Path, whole: Path) -> tuple[int, ...]:
    """Return the numbers of the children along a path."""
    if not path:
        return ()
    here, rest, values, _ = _step_into(position, path, whole)
    return (here, *_place(values[here], rest, whole))


def _get(position: PyTree, path: Path, whole: Path) -> PyTree:
    if not path:
        return position
    here, rest, values, _ = _step_into(position, path, whole)
    return _get(values[here], rest, whole)


def _put(position: PyTree, path: Path, value: PyTree) -> PyTree:
    if not path:
        return value
    here, rest, values, structure = _step_into(position, path, path)
    values[here] = _put(values[here], rest, value)
    return structure.unflatten(values)


def _step_into(node: PyTree, path: Path, whole: Path) -> tuple[int, Path, list, Any]:
    """Return the number of the child that a path names, the rest of it, children and structure."""
    is_child = lambda value: value is not node  # noqa: E731
    with_names, structure = jax.tree_util.tree_flatten_with_path(node, is_leaf=is_child)
    done = whole[: len(whole) - len(path)]
    where = f"the position at {_name(done)}" if done else "the position"
    if any(not keys for keys, _ in with_names):
        advice = "" if done else "; put it into a dict"
        raise ValueError(
            f"on_block needs blocks (keys, fields or indices) to choose {_name(path)} from, but "
            f"{where} is a single array{advice}."
        )
    names = [_key(keys[0]) for keys, _ in with_names]
    values = [value for _, value in with_names]
    # A tuple that is itself a key of the dict is taken for that key, not for a path.
    if isinstance(node, dict) and path in names:
        return names.index(path), (), values, structure
    here = _index(node, path[0], names)
    if here is None:
        raise ValueError(f"{where} has no block {short(path[0])}; it has {short(names, 200)}.")
    return here, path[1:], values, structure


def _index(node: PyTree, name: Hashable, names: list) -> int | None:
    if name in names:
        return names.index(name)
    if isinstance(name, int) and isinstance(node, tuple | list):
        return name % len(names) if -len(names) <= name < len(names) else None
    return None


def _key(key: Any) -> Any:
    """Return what a user calls the child: of a dict, a field, an index."""
    for attribute in ("key", "name", "idx"):
        if hasattr(key, attribute):
            return getattr(key, attribute)
    return str(key)


def _name(path: Path) -> str:
    return repr(path[0] if len(path) == 1 else path)
