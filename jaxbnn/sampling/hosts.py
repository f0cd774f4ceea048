"""Several processes that share one run, each with devices of its own (`jax.distributed`).

Every process runs the same program with the same arguments, and its devices compute their part of
each array. What the processes have to agree upon between two chunks is here: how long the next one
is, whether to stop, whether all went well. A process alone agrees with itself at no cost.
"""

import contextlib
import json
import signal
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh
from jaxtyping import PyTree

from jaxbnn.sampling.progress import Progress, Reporter

# Texts are exchanged in blocks of so many bytes: each length is a program to be compiled.
_BLOCK = 1024
_KINDS = {kind.__name__: kind for kind in (TypeError, OSError, ValueError)}
# What collectives say where another process does not answer.
_SIGNS_OF_LOSS = ("Gloo ", "NCCL", "oordination service", "DEADLINE_EXCEEDED", "UNAVAILABLE")


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
        # Without x64 the collectives would round what is wider than 32 bits: bytes are safe.
        lengths = _of_all(np.array([len(content)], np.int32))[:, 0]
        padded = np.zeros(-(-int(lengths.max()) // _BLOCK) * _BLOCK, np.uint8)
        padded[: len(content)] = content
        texts = _of_all(padded) if padded.size else np.zeros((self.num_processes, 0), np.uint8)
        return [t[:length].tobytes().decode() for t, length in zip(texts, lengths, strict=True)]

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

    def check_same(self, parts: dict[str, str]) -> None:
        """Raise unless all processes have the same text for each part of the run."""
        texts = self.exchange(json.dumps(parts))
        first, *others = (json.loads(text) for text in texts)
        for index, other in enumerate(others, 1):
            different = [part for part in first | other if first.get(part) != other.get(part)]
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
    return jax.tree.map(_gather, tree)


def _gather(leaf: Any) -> Any:
    if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable:
        return leaf
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        words = jnp.asarray(_gather(jax.random.key_data(leaf)))
        return jax.random.wrap_key_data(words, impl=jax.random.key_impl(leaf))
    if leaf.is_fully_replicated:
        return np.asarray(leaf.addressable_data(0))
    return _of_all(leaf)


def _of_all(array: Any) -> np.ndarray:
    """Return a spread array whole, or the arrays of all processes stacked."""
    with translated():
        is_spread = isinstance(array, jax.Array)
        return np.asarray(multihost_utils.process_allgather(array, tiled=is_spread))


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
