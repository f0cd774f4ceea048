"""What `sample` is given, checked before anything runs: one sentence a mistake."""

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import PyTree

from jaxbnn.numerics import check_count, check_finite, check_positive, check_real, is_concrete
from jaxbnn.numerics.arguments import check_flag, check_words, short
from jaxbnn.sampling.adaptation import Adaptation
from jaxbnn.sampling.contract import check_callable, check_pair
from jaxbnn.sampling.keys import MOST_STEPS
from jaxbnn.sampling.loops import as_arrays
from jaxbnn.sampling.reducer import Reducer

# Fields of a state that hold log densities, in our kernels and in BlackJAX's: a chain cannot start
# where one is infinite. Any other field may be infinite, and none may be NaN.
_LOG_DENSITIES = frozenset(
    {"log_density", "log_likelihood", "log_prior", "log_prob"}
    | {"logdensity", "loglikelihood", "logprior"}
)
# Parameters that are positive under any kernel: what the library's adaptations tune or aim at.
_POSITIVE = frozenset({"step_size", "decoherence_length", "energy_error", "start_energy_error"})
# Reducers count in 32 bits.
_MOST_COUNTED = 2**31 - 1


def _names(path: tuple) -> list[str]:
    """Return the names of fields and keys on the way to a leaf."""
    return [str(getattr(part, "name", getattr(part, "key", ""))) for part in path]


def check_counts(
    num_samples: int, num_warmup: int, chunk_size: int | None, chunk_bytes: int | None = None
) -> None:
    """Refuse numbers of draws that make no run."""
    check_count("num_samples", num_samples)
    check_count("num_warmup", num_warmup, 0)
    if chunk_size is not None and not (isinstance(chunk_size, int | np.integer) and chunk_size > 0):
        raise ValueError(
            f"chunk_size must be at least 1, but is {short(chunk_size)}; leave it out to have it "
            "chosen."
        )
    if chunk_bytes is not None and not (
        isinstance(chunk_bytes, int | np.integer) and chunk_bytes > 0
    ):
        raise ValueError(
            f"chunk_bytes must be at least 1, but is {short(chunk_bytes)}; leave it out for 16 MiB."
        )


def check_checkpoint(checkpoint: Any) -> None:
    """Refuse what is neither a path nor None."""
    if checkpoint is not None and not isinstance(checkpoint, str | os.PathLike):
        raise ValueError(
            f"checkpoint must be the path of a folder, but is {short(checkpoint, 80)}."
        )
    if checkpoint == "":
        raise ValueError("checkpoint is empty; give the path of a folder, or '.' for this one.")


def check_modes(is_lazy: bool, checkpoint: Any, is_debug: bool, num_processes: int) -> None:
    """Refuse what cannot be asked for together, and a checkpoint that is no path."""
    check_checkpoint(checkpoint)
    is_stored = checkpoint is not None
    check_flag("lazy", is_lazy)
    check_flag("debug", is_debug)
    if is_lazy and not is_stored:
        raise ValueError("lazy draws lie in the files of a checkpoint; give a folder for one.")
    if is_debug and is_stored:
        raise ValueError("a run in debug mode is not stored; leave out debug or checkpoint.")
    if is_debug and num_processes > 1:
        raise ValueError("debug mode runs in one process; leave out debug, or run one process.")


def check_kernel(
    kernel: Any, parameters: PyTree, data: PyTree, adapt: Any, num_warmup: int
) -> None:
    """Refuse arguments that the kernel or the adaptation has no use for."""
    is_function = callable(kernel) and not hasattr(kernel, "init")
    if hasattr(kernel, "step") or not is_function:
        check_pair(kernel)
    else:
        check_callable("make_kernel", kernel, "parameters, data")
    if adapt is not None and not isinstance(adapt, Adaptation):
        raise ValueError(
            "adapt must be an Adaptation such as jaxbnn.dual_averaging(0.8), but is "
            f"{short(adapt, 80)}."
        )
    if adapt is not None and num_warmup == 0:
        raise ValueError("adapt changes parameters in warm-up only; give num_warmup steps to it.")
    if hasattr(kernel, "step") and not (parameters is None and data is None and adapt is None):
        raise ValueError(
            "parameters, data and adapt need a function make_kernel(parameters, data), but kernel "
            "is a SamplingAlgorithm already, which takes none; pass the function that makes it."
        )
    if adapt is not None and adapt.num_warmup not in (None, num_warmup):
        raise ValueError(
            f"adapt was laid out over {adapt.num_warmup} warm-up steps, but num_warmup is "
            f"{num_warmup}; make them equal."
        )


def check_mesh_type(mesh: Any) -> None:
    """Refuse what is no mesh."""
    if mesh is not None and not isinstance(mesh, Mesh):
        raise ValueError(
            "mesh must be a jax.sharding.Mesh such as jax.make_mesh((2,), ('chain',)), but is "
            f"{short(mesh, 80)}."
        )


def check_key(key: Any) -> None:
    """Refuse what is not one key."""
    is_typed = isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    is_raw = hasattr(key, "dtype") and key.dtype == np.uint32 and np.shape(key) in ((2,), (4,))
    if not is_raw and not (is_typed and key.shape == ()):
        found = f"keys of the shape {key.shape}" if is_typed else short(key, 80)
        raise ValueError(f"key must be one key such as jax.random.key(0), but is {found}.")
    if not is_typed:
        check_words("key", key)
    if str(jax.random.key_impl(key)) == "unsafe_rbg":
        raise ValueError(
            'key is of the implementation "unsafe_rbg", by which a step\'s numbers depend on the '
            'steps and chains that are computed beside it; give jax.random.key(0, impl="rbg").'
        )


def check_functions(collect: Any, reduce: Any) -> None:
    """Refuse what cannot be called with a state and an Info, and what is no reducer."""
    if collect is not None:
        check_callable("collect", collect, "state, info")
    if reduce is not None and not isinstance(reduce, Mapping):
        raise ValueError(
            "reduce must be a dict of reducers by name, such as "
            f"{{'moments': jaxbnn.moments()}}, but is {short(reduce, 80)}."
        )
    for name, reducer in (reduce or {}).items():
        if not isinstance(reducer, Reducer):
            raise ValueError(
                f"reduce[{name!r}] must be a Reducer such as jaxbnn.moments(), but is "
                f"{short(reducer, 80)}."
            )


@contextlib.contextmanager
def one_number_explained(positions: PyTree) -> Iterator[None]:
    """Let a kernel that cannot start from one number say so: the chain axis may be forgotten."""
    try:
        yield
    except Exception as error:
        if not is_one_number(positions):
            raise
        (start,) = jax.tree.leaves(positions)
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise ValueError(
            f"positions has the shape {start.shape}, {len(start)} chains of one number each, from "
            f"which the kernel cannot start ({reason[:200]}); one chain of {len(start)} numbers is "
            "positions[None]."
        ) from error


def is_one_number(positions: PyTree) -> bool:
    """Whether the position of a chain, leaves (chain, ...), is one number."""
    leaves = jax.tree.leaves(positions)
    return len(leaves) == 1 and np.ndim(leaves[0]) == 1


def check_whole(*trees: PyTree) -> None:
    """Refuse arrays of which this process holds a part only."""
    if not all(getattr(leaf, "is_fully_addressable", True) for leaf in jax.tree.leaves(trees)):
        raise ValueError(
            "an array is spread over several processes already; give each process the whole of it "
            "as a NumPy array, of which only its part goes to its devices."
        )


def record_steps(
    thinning: int | np.integer | Sequence[int] | np.ndarray, num_samples: int
) -> np.ndarray:
    """Return after how many sampling steps each draw is kept, (num_samples,) integers."""
    if isinstance(thinning, int | np.integer):
        if thinning < 1:
            raise ValueError(f"thinning must be at least 1, but is {thinning}; 1 keeps every draw.")
        return int(thinning) * np.arange(1, num_samples + 1, dtype=np.int64)
    check_real("thinning", thinning)
    steps = np.asarray(thinning)
    if steps.ndim != 1 or not np.issubdtype(steps.dtype, np.integer):
        raise ValueError(
            "thinning must be a whole number or a one-dimensional schedule of whole numbers, but "
            f"has shape {steps.shape} and dtype {steps.dtype}."
        )
    steps = steps.astype(np.int64)  # unsigned ones have no negative differences
    if len(steps) != num_samples:
        raise ValueError(
            f"the thinning schedule keeps {len(steps)} draws, but num_samples is {num_samples}; "
            "make them equal."
        )
    if steps[0] < 1 or (np.diff(steps) < 1).any():
        raise ValueError(
            "a thinning schedule must increase strictly from 1 or more; np.unique removes repeats."
        )
    return steps


def check_steps(num_warmup: int, steps: np.ndarray) -> None:
    """Refuse more steps than keys can be counted for."""
    if num_warmup + int(steps[-1]) > MOST_STEPS:
        raise ValueError(
            f"a run has at most {MOST_STEPS:,} steps, the counter of its keys; split it in two."
        )


def check_reduced(
    reducers: Mapping[str, Reducer] | None, num_chains: int, steps: np.ndarray
) -> None:
    """Refuse more draws, of all chains together, than reducers can count."""
    for name, reducer in (reducers or {}).items():
        number = int(steps[-1]) if reducer.every_step else len(steps)
        if num_chains * number > _MOST_COUNTED:
            what = "steps" if reducer.every_step else "kept draws"
            raise ValueError(
                f"reduce[{name!r}] would see {num_chains * number:,} {what} of all chains, but "
                f"counts {_MOST_COUNTED:,} at most; leave it out, or run fewer chains at once."
            )


def check_positions(positions: PyTree) -> int:
    """Return the number of chains, the common leading axis of all leaves."""
    leaves = jax.tree_util.tree_leaves_with_path(positions)
    if not leaves:
        raise ValueError("positions holds no arrays; give the chains' starts stacked.")
    if not is_concrete(positions):
        raise ValueError(
            "the numbers in positions are looked at, but they are traced; make this call outside "
            "jax.jit, jax.vmap and jax.grad."
        )
    lengths = {}
    for path, leaf in leaves:
        if not np.iscomplexobj(leaf):  # a kernel of the user's own may move complex numbers
            check_real(f"positions{jax.tree_util.keystr(path)}", leaf)
        if np.ndim(leaf) == 0:
            raise ValueError(
                f"positions{jax.tree_util.keystr(path)} is a single number without a chain axis; "
                "stack the chains' starts along a leading axis, one chain too."
            )
        lengths[jax.tree_util.keystr(path)] = np.shape(leaf)[0]
    if len(set(lengths.values())) > 1:
        (first, length), *others = lengths.items()
        other = next(item for item in others if item[1] != length)
        raise ValueError(
            f"positions{first} has {length} chains along its leading axis, but "
            f"positions{other[0]} has {other[1]}; every leaf must be stacked over the same chains."
        )
    num_chains = next(iter(lengths.values()))
    if num_chains == 0:
        raise ValueError("positions holds zero chains; give at least one start.")
    for path, leaf in leaves:
        values = np.asarray(leaf)
        # By JAX's notion of a float: NumPy does not count bfloat16.
        if jnp.issubdtype(values.dtype, jnp.inexact) and not np.isfinite(values).all():
            chain = int(np.argwhere(~np.isfinite(values))[0][0])
            raise ValueError(
                f"positions{jax.tree_util.keystr(path)} of chain {chain} is not finite; start "
                "every chain from finite numbers."
            )
    return num_chains


def stack_parameters(parameters: PyTree, num_chains: int) -> PyTree:
    """Give every leaf of `parameters` the chain axis; a single number serves all chains."""

    def stack(path, leaf):
        name = f"parameters{jax.tree_util.keystr(path)}"
        if not np.iscomplexobj(leaf):
            check_real(name, leaf)
        leaf = as_arrays(leaf)
        if leaf.ndim == 0:
            leaf = jnp.broadcast_to(leaf, (num_chains,))
        if leaf.shape[0] != num_chains:
            raise ValueError(
                f"{name} has a leading axis of length {leaf.shape[0]}, but there are {num_chains} "
                "chains; give one value a chain (what all chains share goes into data)."
            )
        if not _POSITIVE.isdisjoint(_names(path)[-1:]):
            check_positive(name, leaf, "give every chain a positive number")
        check_finite(name, leaf, "give every chain finite parameters")
        return leaf

    return jax.tree_util.tree_map_with_path(stack, parameters)


def warn_of_lost(parameters: PyTree) -> None:
    """Warn of what no kernel can go on with and yet a warm-up has come to: all draws have it."""

    def is_bad(names, values):
        is_positive = not _POSITIVE.isdisjoint(names[-1:])
        return ~np.isfinite(values) | (is_positive & (values <= 0))

    for where, chain, value in _found(parameters, is_bad):
        warnings.warn(
            f"after the warm-up parameters{where} of chain {chain} is {value}, and the kept draws "
            "are made with it; start what is tuned from positive numbers, and let a schedule end "
            "at finite ones.",
            stacklevel=2,
        )


def check_start(states: Any) -> None:
    """Refuse chains that start where a log density is not finite or anything is NaN."""

    def is_bad(names, values):
        return np.isnan(values) if _LOG_DENSITIES.isdisjoint(names) else ~np.isfinite(values)

    for where, chain, value in _found(states, is_bad):
        raise ValueError(
            f"chain {chain} cannot start: {where.lstrip('.')} is {value} at its initial position; "
            "start it where the log density is finite."
        )


def _found(tree: PyTree, is_bad: Callable) -> Iterator[tuple[str, int, Any]]:
    """Yield where the first bad number of each array is, its chain, and the number.

    `is_bad(names, values)` flags values (chain, ...) below names. Of several processes, each looks
    at its own chains.
    """
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if not jnp.issubdtype(leaf.dtype, jnp.inexact):
            continue
        for shard in leaf.addressable_shards:
            values = np.asarray(shard.data)
            bad = is_bad(_names(path), values)
            if bad.any():
                index = tuple(int(i) for i in np.argwhere(bad)[0])
                chain = index[0] + (shard.index[0].start or 0)
                yield jax.tree_util.keystr(path), chain, values[index]
