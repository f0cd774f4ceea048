"""Functions of the position: predictions, projections, energies, evaluated on every draw."""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from jaxbnn.numerics import check_count, check_real
from jaxbnn.numerics.arguments import check_function
from jaxbnn.numerics.arrays import check_held, in_memory
from jaxbnn.numerics.outside import reading_anew

# Inputs and outputs of one batch hold at most this many numbers, unless one draw has more.
_BATCH_NUMBERS = 2**20


def evaluate(
    function: Callable[[PyTree], PyTree], positions: PyTree, *, batch_size: int | None = None
) -> PyTree:
    """Apply a function of one position to every draw of every chain.

    Diagnostics take arrays; this makes the array of whatever the diagnostics are wanted for:
    `split_rhat(evaluate(lambda p: network.apply(p, x_test), draws.positions))`.

    Parameters
    ----------
    function
        Maps one position to a PyTree of arrays. Passed again (the same object), it is not
        compiled again, unless what it reads from outside itself has changed.
    positions
        PyTree with leaves (chain, draw, ...); draws that lie in files are read.
    batch_size
        How many draws are evaluated at once; by default as many as keep inputs and outputs of
        a batch around a million numbers. Give a smaller one when the function's own work
        arrays are large.

    Returns
    -------
    The function's values, leaves (chain, draw, ...).

    Raises
    ------
    ValueError
        Leaves without chain and draw axes, or with different ones.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> positions = {"w": jnp.ones((2, 5, 3)), "b": jnp.zeros((2, 5))}
    >>> evaluate(lambda p: p["w"].sum() + p["b"], positions).shape
    (2, 5)
    """
    check_function("function", function, "give position -> value")
    check_positions("evaluate", positions)
    check_held("positions", positions)
    if batch_size is not None:
        check_count("batch_size", batch_size)
    with reading_anew([_evaluate], function):
        return _evaluate(function, batch_size, in_memory(positions))


def check_positions(name: str, positions: PyTree) -> tuple[int, int]:
    """Return (chains, draws) of a PyTree of draws, or raise one clear sentence."""
    leaves = jax.tree_util.tree_leaves_with_path(positions)
    if not leaves:
        raise ValueError(f"{name} got positions without any array; collect something in sample.")
    axes: tuple[int, int] | None = None
    for path, leaf in leaves:
        where = f"positions{jax.tree_util.keystr(path)}"
        if not jnp.issubdtype(getattr(leaf, "dtype", float), jax.dtypes.prng_key):
            check_real(where, leaf)
        shape = tuple(getattr(leaf, "shape", ()))
        if len(shape) < 2:
            raise ValueError(
                f"{name} needs leaves (chain, draw, ...), but {where} has shape {shape}; "
                "put a chain axis first, with leaf[None] for a single chain."
            )
        if axes is None:
            axes, first = (shape[0], shape[1]), where
        elif shape[:2] != axes:
            raise ValueError(
                f"{name} needs the same (chain, draw) axes in all leaves, but {first} has {axes} "
                f"and {where} has {shape[:2]}."
            )
    assert axes is not None
    if 0 in axes:
        raise ValueError(f"{name} got no draws: (chain, draw) is {axes}.")
    return axes


@functools.partial(jax.jit, static_argnums=(0, 1))
def _evaluate(function, batch_size, positions):
    chains, draws = jax.tree.leaves(positions)[0].shape[:2]
    total = chains * draws
    flat = jax.tree.map(lambda v: v.reshape(total, *v.shape[2:]), positions)
    if batch_size is None:
        one = jax.tree.map(lambda v: jax.ShapeDtypeStruct(v.shape[1:], v.dtype), flat)
        leaves = jax.tree.leaves((one, jax.eval_shape(function, one)))
        batch_size = max(1, _BATCH_NUMBERS // max(1, sum(math.prod(v.shape) for v in leaves)))
    if batch_size >= total:
        values = jax.vmap(function)(flat)
    else:
        values = jax.lax.map(function, flat, batch_size=batch_size)
    return jax.tree.map(lambda v: v.reshape(chains, draws, *v.shape[1:]), values)
