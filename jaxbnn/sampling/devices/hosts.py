"""Several processes that share one run, each with devices of its own (`jax.distributed`).

Every process runs the same program with the same arguments, and its devices compute their part of
each array. What the processes have to agree upon between two chunks is here: how long the next one
is, whether to stop, whether all went well. A process alone agrees with itself at no cost.
"""

import contextlib
import json
import math
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh
from jaxtyping import PyTree

from jaxbnn.sampling.progress import Progress, Reporter

# Bytes that are exchanged at once.
_SMALLEST, _PIECE = 2**10, 2**26
_KINDS = {kind.__name__: kind for kind in (TypeError, OSError, ValueError)}
# What collectives say where another process does not answer.
_SIGNS_OF_LOSS = ("Gloo ", "NCCL", "oordination service", "DEADLINE_EXCEEDED", "UNAVAILABLE")


Block = tuple[tuple[int, int], ...]  # where it begins and ends along each axis


class LostProcess(RuntimeError):
    """Another process of the run ended or was killed.

    Examples
    --------
    >>> issubclass(LostProcess, RuntimeError)
    True
    """


class Hosts(NamedTuple):
    """The processes that share a run: the number of this one, and how many there are."""

    process: int = 0
    num_processes: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that decides, tells and publishes."""
        return self.process == 0

    def exchange(self, text: str) -> list[str]:
        """Return the text of each process, in their order; all of them must call."""
        if self.num_processes == 1:
            return [text]
        content = np.frombuffer(text.encode(), np.uint8)
        lengths = _of_all(np.array([len(content)], np.int32))[:, 0]
        return [text.tobytes().decode() for text in _exchange(content, lengths.tolist())]

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Let what is done here, without collectives, go well on all processes or fail on all."""
        if self.num_processes == 1:
            yield
            return
        error = None
        try:
            yield
        except Exception as caught:
            error = caught
        kind = next((name for name, kind in _KINDS.items() if isinstance(error, kind)), "")
        told = self.exchange("" if error is None else json.dumps([kind, str(error)]))
        if error is not None:
            raise error
        for index, text in enumerate(told):
            if text:
                kind, message = json.loads(text)
                raise _KINDS.get(kind, RuntimeError)(f"process {index} stopped the run: {message}")

    def check_same(
        self, parts: dict[str, str], named: Callable[[list[str]], list[str]] = list
    ) -> None:
        """Raise unless all processes have the same text for each part; `named` ones are named."""
        texts = self.exchange(json.dumps(parts))
        first, *others = (json.loads(text) for text in texts)
        for index, other in enumerate(others, 1):
            different = named(
                [part for part in first | other if first.get(part) != other.get(part)]
            )
            if different:
                raise ValueError(
                    f"process {index} was called with another {' and another '.join(different)} "
                    "than process 0; start all processes with the same program and arguments."
                )


def hosts_of(mesh: Mesh | None) -> Hosts:
    """Return the processes whose devices are in the mesh: all that there are, or this one alone."""
    if jax.process_count() == 1:
        return Hosts()
    if mesh is None:
        raise ValueError(
            f"each of {jax.process_count()} processes would make the whole run; give sample "
            "mesh=jax.make_mesh((jax.device_count(),), ('chain',)) for one run on all of them, or "
            "a mesh of jax.local_devices() for a run of this process alone."
        )
    owners = {device.process_index for device in mesh.devices.flat}
    if owners == {jax.process_index()}:
        return Hosts()
    if len(owners) < jax.process_count():
        raise ValueError(
            f"mesh has devices of {len(owners)} of the {jax.process_count()} processes; make it of "
            "all jax.devices(), or of jax.local_devices() for a run of this process alone."
        )
    return Hosts(jax.process_index(), jax.process_count())


def gather(tree: PyTree) -> PyTree:
    """Return arrays that are spread over processes as NumPy arrays, whole, on each of them."""
    leaves, structure = jax.tree.flatten(tree)
    spread = {
        place: jax.random.key_data(leaf) if _is_key(leaf) else leaf
        for place, leaf in enumerate(leaves)
        if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable
    }
    whole: dict[int, Any] = {
        place: x.addressable_data(0) for place, x in spread.items() if x.is_fully_replicated
    }
    parts = {place: x for place, x in spread.items() if place not in whole}
    if parts:
        whole |= dict(zip(parts, _gather(list(parts.values())), strict=True))
    for place, found in whole.items():
        leaf, array = leaves[place], np.asarray(found)
        leaves[place] = (
            jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(leaf))
            if _is_key(leaf)
            else array
        )
    return jax.tree.unflatten(structure, leaves)


def owners(sharding: Any, shape: tuple[int, ...]) -> dict[Block, int]:
    """Return the blocks of a spread array in order, each with the first process that holds it."""
    found: dict[Block, int] = {}
    for device, block in sharding.devices_indices_map(shape).items():
        found.setdefault(_block(block, shape), device.process_index)
    return dict(sorted(found.items()))


def own_blocks(leaf: jax.Array) -> list[np.ndarray]:
    """Return the blocks of a spread array that this process has to give to others, in order."""
    held = {_block(shard.index, leaf.shape): shard.data for shard in leaf.addressable_shards}
    process = jax.process_index()
    layout = owners(leaf.sharding, leaf.shape)
    return [np.asarray(held[block]) for block, owner in layout.items() if owner == process]


def slices(block: Block) -> tuple[slice, ...]:
    """Return a block as an index."""
    return tuple(slice(*span) for span in block)


def _block(index: tuple[slice, ...], shape: tuple[int, ...]) -> Block:
    return tuple(part.indices(size)[:2] for part, size in zip(index, shape, strict=True))


def _gather(leaves: list[jax.Array]) -> list[np.ndarray]:
    """Let each process send its blocks of all arrays, one after the other, as bytes.

    All know where which block is, so that nothing but numbers is sent, and nothing compiled anew.
    """
    layouts = [owners(leaf.sharding, leaf.shape) for leaf in leaves]
    own = [block.tobytes() for leaf in leaves for block in own_blocks(leaf)]
    wholes = [np.empty(leaf.shape, leaf.dtype) for leaf in leaves]
    lengths = [0] * jax.process_count()
    for whole, layout in zip(wholes, layouts, strict=True):
        for block, process in layout.items():
            lengths[process] += whole[slices(block)].nbytes
    texts = _exchange(np.frombuffer(b"".join(own), np.uint8), lengths)
    begins = [0] * len(texts)
    for whole, layout in zip(wholes, layouts, strict=True):
        for block, process in layout.items():
            part = whole[slices(block)]
            begin, end = begins[process], begins[process] + part.nbytes
            content = texts[process][begin:end].tobytes()
            whole[slices(block)] = np.frombuffer(content, whole.dtype).reshape(part.shape)
            begins[process] = end
    return wholes


def _exchange(own: np.ndarray, lengths: list[int]) -> list[np.ndarray]:
    """Return the bytes of each process, of which there are so many."""
    longest = max(lengths)
    # Each size is a program to be compiled: there are few, and none larger than a piece.
    size = min(_SMALLEST * 2 ** max(0, math.ceil(math.log2(max(longest, 1) / _SMALLEST))), _PIECE)
    pieces = []
    for begin in range(0, longest, size):
        piece = np.zeros(size, np.uint8)
        sent = own[begin : begin + size]
        piece[: len(sent)] = sent
        pieces.append(_of_all(piece))
    if not pieces:
        return [np.zeros(0, np.uint8) for _ in lengths]
    whole = np.concatenate(pieces, axis=1)
    return [whole[process, :length] for process, length in enumerate(lengths)]


def _is_key(leaf: jax.Array) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _of_all(array: np.ndarray) -> np.ndarray:
    """Return the arrays of all processes stacked; without x64 they have at most 32 bits."""
    with translated():
        return np.asarray(multihost_utils.process_allgather(array))


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Say in one sentence that another process was lost, which collectives say in many words."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        if jax.process_count() == 1 or not any(sign in str(error) for sign in _SIGNS_OF_LOSS):
            raise
        raise LostProcess(
            f"process {jax.process_index()} of {jax.process_count()} stops, because another one "
            "ended or was killed; start all of them again: with the same checkpoint the run goes "
            "on, also with another number of processes."
        ) from None


class Interrupt:
    """Ctrl-C on any process ends the run on all of them, after the same chunk.

    A second Ctrl-C does not wait for the others.
    """

    def __init__(self, hosts: Hosts):
        self._hosts, self._is_asked = hosts, False
        self._before: Any = None

    def __enter__(self) -> "Interrupt":
        is_main = threading.current_thread() is threading.main_thread()
        if self._hosts.num_processes > 1 and is_main:
            self._before = signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(self, *_: Any) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _ask(self, *_: Any) -> None:
        if self._is_asked:
            raise KeyboardInterrupt
        self._is_asked = True

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Let Ctrl-C wait for the end of what must be done whole; a second one does not wait."""
        is_main = threading.current_thread() is threading.main_thread()
        before = signal.getsignal(signal.SIGINT)
        asked: list[bool] = []
        # Of several processes Ctrl-C waits for the end of the chunk anyway.
        if self._hosts.num_processes > 1 or not is_main or before is None:
            yield
            return

        def ask(*_: Any) -> None:
            if asked:
                raise KeyboardInterrupt
            asked.append(True)

        signal.signal(signal.SIGINT, ask)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
        if asked:
            signal.raise_signal(signal.SIGINT)

    def reporter(self, report: Reporter | None) -> Reporter | None:
        """Let the first process tell, and its reporter ask for the end."""
        if self._hosts.num_processes == 1:
            return report
        if report is None or not self._hosts.is_first:
            return None

        def tell(progress: Progress) -> None:
            try:
                report(progress)
            except KeyboardInterrupt:
                self._is_asked = True

        return tell

    def next_chunk(self, count: int) -> int:
        """Return what the first process counted for the next chunk; KeyboardInterrupt if asked."""
        if self._hosts.num_processes == 1:
            return count
        counts, asked = _of_all(np.array([count, self._is_asked], np.int32)).T
        if asked.any():
            raise KeyboardInterrupt
        return int(counts[0])
