"""What a run returns, and what can be made of kept draws afterwards."""

import functools
import math
import types
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from jaxbnn.numerics import check_count
from jaxbnn.numerics.arguments import check_function, check_key, check_type
from jaxbnn.numerics.arrays import in_memory
from jaxbnn.numerics.outside import reading_anew
from jaxbnn.sampling.keys import chain_keys, step_key


class Reduced(NamedTuple):
    """The results of one streaming reducer of `sample`.

    Attributes
    ----------
    per_chain
        Its result for each chain, leaves (chain, ...).
    pooled
        Its result for all chains merged.
    """

    per_chain: PyTree
    pooled: PyTree


class Draws(NamedTuple):
    """The draws of a run; leaves are NumPy arrays with axes (chain, draw, ...).

    Attributes
    ----------
    positions
        What `collect` chose to keep of each draw; None, as `infos`, where nothing is kept.
    infos
        The kernel's Info at each draw; fields that are not one number a step are None.
    reduced
        One `Reduced` a reducer, under the reducer's name.
    final_state
        The kernel's states after the last step, leaves (chain, ...); positions to go on
        from are `final_state.position`. After a run on several processes NumPy arrays, whole.
    parameters
        The kernel's parameters as used for the kept draws, after adaptation.
    steps
        (draw,): the number of sampling steps after which each draw was taken.
    acceptance_rate
        (chain,): mean over all sampling steps, kept or not, in which a NaN counts as 0; NaN for a
        kernel that has none.
    interrupted
        Whether the run was stopped by Ctrl-C; what was drawn before it is kept.
    seconds
        How long the run took, all parts of one with a checkpoint together.
    """

    positions: PyTree
    infos: PyTree
    reduced: dict[str, Reduced]
    final_state: Any
    parameters: PyTree
    steps: np.ndarray
    acceptance_rate: np.ndarray
    interrupted: bool
    seconds: float = math.nan

    def __repr__(self) -> str:
        """Say in a line what there is; the arrays themselves may be large, or lie in files."""
        chains = len(self.acceptance_rate)
        starts = jax.tree.leaves(getattr(self.final_state, "position", None))
        number = sum(math.prod(np.shape(leaf)[1:]) for leaf in starts)
        of_numbers = (
            " of one number" if number == 1 else f" of {number:,} numbers" if starts else ""
        )
        kept = jax.tree_util.tree_leaves_with_path(self.positions)
        arrays = [
            f"positions{jax.tree_util.keystr(path)}: {leaf.dtype} {tuple(leaf.shape)}"
            for path, leaf in kept[:4]
        ] + (["..."] if len(kept) > 4 else [])
        rate = self.acceptance_rate[~np.isnan(self.acceptance_rate)]
        parts = [
            f"{chains} chain{'s' * (chains != 1)}{of_numbers}",
            f"{len(self.steps):,} draws each",
            *([f"acceptance rate {rate.mean():.3f}"] if rate.size else []),
            *(["interrupted"] if self.interrupted else []),
        ]
        return f"Draws({', '.join(parts)}; {'; '.join(arrays) or 'no positions kept'})"


def complete(
    key: PRNGKeyArray,
    draws: Draws,
    function: Callable[[PRNGKeyArray, PyTree], PyTree],
    *,
    batch_size: int = 256,
) -> PyTree:
    """Draw what was left out of kept draws: `function(rng_key, position)` for each of them.

    The key of a draw is folded from (key, chain, step), so that the completion of a draw
    does not depend on which other draws were kept. Keys of the implementations "rbg" and
    "unsafe_rbg" are an exception: JAX draws the numbers of a whole batch from its first key.

    Parameters
    ----------
    key
        A key that the run itself did not use.
    draws
        The result of `sample`.
    function
        Maps a key and one collected position to a PyTree of arrays. A function that is passed again
        (the same object) is not compiled again, unless what it reads from outside itself has
        changed; methods and other objects that can be called are compiled in each call.
    batch_size
        Draws completed at once; bounds the memory.

    Returns
    -------
    The completions, leaves (chain, draw, ...).

    Raises
    ------
    ValueError
        Draws of which nothing was kept; batch_size < 1.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, blackjax, jaxbnn
    >>> kernel = blackjax.mala(lambda x: -jnp.sum(x**2) / 2, 0.5)
    >>> draws = jaxbnn.sample(jax.random.key(0), kernel, jnp.zeros((2, 3)), 4, progress=False)
    >>> noisy = complete(jax.random.key(1), draws, lambda k, x: x + jax.random.normal(k, (3,)))
    >>> noisy.shape
    (2, 4, 3)
    """
    check_key("key", key)
    check_function("function", function, "give (key, position) -> completion", num_arguments=2)
    check_count("batch_size", batch_size)
    check_type("draws", draws, Draws, "give what sample returns")
    leaves = jax.tree.leaves(draws.positions)
    if not leaves or leaves[0].shape[1] == 0:
        raise ValueError("there are no kept draws to complete; collect something in sample.")
    num_chains, num_draws = leaves[0].shape[:2]
    batch_size = min(int(batch_size), num_draws)
    steps = jnp.asarray(draws.steps, jnp.uint32)
    arguments = (chain_keys(key, num_chains), steps, in_memory(draws.positions))
    if not isinstance(function, types.FunctionType):  # what such objects hold may have changed
        return jax.jit(functools.partial(_completions, function, batch_size))(*arguments)
    program = _programs.get(function)
    if program is None:
        program = _programs[function] = _program_of(weakref.ref(function))
    with reading_anew([program], function):
        return program(batch_size, *arguments)


def _completions(function, batch_size, keys, steps, positions) -> PyTree:
    """Return the completions of all chains, leaves (chain, draw, ...)."""

    def one_chain(chain_key, chain_positions):
        def one_draw(argument):
            step, position = argument
            return function(step_key(chain_key, step), position)

        return jax.lax.map(one_draw, (steps, chain_positions), batch_size=batch_size)

    return jax.lax.map(lambda argument: one_chain(*argument), (keys, positions))


def _program_of(reference: weakref.ref) -> Any:
    """Return the program of a function, which dies with it."""

    def completions(batch_size, keys, steps, positions):
        return _completions(reference(), batch_size, keys, steps, positions)

    return jax.jit(completions, static_argnums=0)


_programs: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
