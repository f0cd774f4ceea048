"""The mode that stops a run at the first NaN and says in which chain, at which step, in what.

Each step of the kernel is looked at inside the compiled program. A chain that meets a NaN stands
still from there, so that the host, after the chunk, finds the state as it was and takes the one
step again, operation by operation, to name the line that made the NaN.
"""

import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.base import SamplingAlgorithm
from jaxtyping import Array, Bool, Int, PyTree, UInt

from jaxbnn.sampling.adaptation import Adaptation
from jaxbnn.sampling.keys import step_key
from jaxbnn.sampling.loops import Options
from jaxbnn.sampling.order import restored
from jaxbnn.sampling.programs import Programs

_PROPOSAL = "the log ratio of its proposal"
_UNDONE = "its step"


class Watched(NamedTuple):
    """A kernel's state under watch.

    Attributes
    ----------
    inner
        The kernel's own state; it stands still after the first NaN.
    before
        The state before the last step that was taken.
    step
        Steps taken, the warm-up's too.
    trouble
        0 while all is well, else the number of what was NaN first, counted from 1.
    """

    inner: Any
    before: Any
    step: UInt[Array, "*chains"]
    trouble: Int[Array, "*chains"]

    @property
    def position(self) -> PyTree:
        """The kernel's position."""
        return self.inner.position


class _Looked:
    """A program, and what looks at its result."""

    def __init__(self, program: Callable, look: Callable):
        self._program, self._look = program, look

    def __call__(self, *arguments: PyTree) -> Any:
        result = self._program(*arguments)
        self._look(result, *arguments)
        return result

    def eval_shape(self, *arguments: PyTree) -> Any:
        """Return the shapes of the program's result."""
        return self._program.eval_shape(*arguments)  # type: ignore[attr-defined]


class Watch:
    """What a run in debug mode is given in place of its kernel, options and programs."""

    def __init__(self, kernel: Any, num_warmup: int):
        self._given, self._num_warmup = kernel, num_warmup
        self._names: list[str] = []

    def kernel(self, *arguments: PyTree) -> SamplingAlgorithm:
        """Make the kernel whose every step is looked at."""
        kernel = self._inner(*arguments)

        def init(position, rng_key=None):
            state = kernel.init(position, rng_key)
            return Watched(state, state, jnp.zeros((), jnp.uint32), jnp.zeros((), jnp.int32))

        def step(rng_key, state):
            new, info = kernel.step(rng_key, state.inner)
            found = {**_in_state(new), **_in_info(info)}
            self._names = list(found)
            flags = jnp.stack([jnp.zeros((), bool), *found.values()])
            is_well = state.trouble == 0
            keep = lambda a, b: jax.tree.map(lambda x, y: jnp.where(is_well, x, y), a, b)  # noqa: E731
            first = jnp.argmax(flags).astype(jnp.int32)
            watched = Watched(new, state.inner, state.step + jnp.uint32(1), first)
            return keep(watched, state), info

        return SamplingAlgorithm(init, step)

    def options(self, options: Options) -> Options:
        """Let collect, reducers and adaptation see the kernel's own states."""
        collect, adapt = options.collect, options.adapt
        reduce = tuple(
            r if r.collect is None else r._replace(collect=_of_inner(r.collect))
            for r in options.reduce
        )
        return options._replace(
            collect=None if collect is None else _of_inner(collect),
            reduce=reduce,
            adapt=None if adapt is None else self._adaptation(adapt),
        )

    def programs(self, programs: Programs) -> Programs:
        """Let every chunk be followed by a look at its states, which may raise."""

        def after_warm_up(warmed, keys, warming, data, span):
            # Adapted parameters change from step to step: a step cannot be taken again.
            again = () if warming.adaptation is not None else (warming.parameters, data)
            self._check(warmed.warming.states, keys, *again)

        def after_sampling(chunk, keys, chains, data, span):
            self._check(chunk.states, keys, chains.parameters, data)

        return programs._replace(
            warm_up=_Looked(programs.warm_up, after_warm_up),
            sampling=_Looked(programs.sampling, after_sampling),
        )

    def _inner(self, *arguments: PyTree) -> SamplingAlgorithm:
        return self._given if hasattr(self._given, "step") else self._given(*arguments)

    def _adaptation(self, adapt: Adaptation) -> Adaptation:
        refresh_inner = adapt.refresh

        def update(a, step, state, info):
            return adapt.update(a, step, state.inner, info)

        def refresh(kernel, state, position, rng_key):
            unwatched = SamplingAlgorithm(lambda x, k=None: kernel.init(x, k).inner, kernel.step)
            assert refresh_inner is not None
            fresh = refresh_inner(unwatched, state.inner, position, rng_key)
            is_well = state.trouble == 0
            inner = jax.tree.map(lambda x, y: jnp.where(is_well, x, y), fresh, state.inner)
            return state._replace(inner=inner)

        return adapt._replace(update=update, refresh=refresh_inner and refresh)

    def _check(self, states: Watched, keys: Array, *arguments: PyTree) -> None:
        trouble = np.asarray(states.trouble)
        if not trouble.any():
            return
        steps = np.asarray(states.step).astype(np.int64)
        chain = int(min(np.flatnonzero(trouble), key=lambda c: steps[c]))
        name, step = self._names[int(trouble[chain]) - 1], int(steps[chain]) - 1
        in_warmup = step < self._num_warmup
        when = f"warm-up step {step}" if in_warmup else f"sampling step {step - self._num_warmup}"
        state = restored(jax.tree.map(lambda leaf: leaf[chain], states))
        raise FloatingPointError(
            f"chain {chain} met a NaN or an infinity at {when}: {_value(name, state.inner)}"
            f"{self._line(state, keys[chain], step, chain, arguments) if arguments else ''}."
        )

    def _line(self, state: Watched, key: Array, step: int, chain: int, arguments: tuple) -> str:
        """Take the step again, operation by operation, and name the line that made the NaN."""
        parameters, data = arguments
        parameters = jax.tree.map(lambda leaf: leaf[chain], parameters)
        kernel = self._inner(*restored((parameters, data)))
        try:
            with jax.debug_nans(True):
                kernel.step(step_key(key, jnp.uint32(step)), state.before)
        except FloatingPointError as error:
            frames = traceback.extract_tb(error.__traceback__)
            ours = [f for f in frames if not any(p in f.filename for p in ("/jax/", "/blackjax/"))]
            frame = ours[-1] if ours else frames[-1]
            return f"; the first was made at {frame.filename}:{frame.lineno}, {frame.line!r}"
        return ""


def _of_inner(collect: Callable[[Any, Any], PyTree]) -> Callable[[Any, Any], PyTree]:
    return lambda state, info: collect(state.inner, info)


def _in_state(state: Any) -> dict[str, Bool[Array, ""]]:
    """Flag the state's leaves: NaN anywhere, or an infinity in the position."""
    found = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        if jnp.issubdtype(leaf.dtype, jnp.inexact):
            name = jax.tree_util.keystr(path).lstrip(".")
            is_bad = ~jnp.isfinite(leaf) if name.startswith("position") else jnp.isnan(leaf)
            found[name] = jnp.any(is_bad)
    return found


def _in_info(info: Any, name: str = "") -> dict[str, Bool[Array, ""]]:
    """Flag proposals: our kernels say it, BlackJAX's HMC by a NaN energy, its MCLMC by undoing."""
    if (parts := getattr(info, "infos", None)) is not None:  # a composition: its parts tell
        return _in_info(parts, name)
    what = _PROPOSAL + name
    if hasattr(info, "energy"):
        return {what: jnp.any(jnp.isnan(info.energy))}
    if hasattr(info, "nonans"):
        return {_UNDONE + name: jnp.any(~info.nonans)}
    if getattr(info, "is_divergent", None) is not None:
        return {what: jnp.any(info.is_divergent)}
    parts = enumerate(info) if isinstance(info, tuple | list) else ()
    found = {}
    for number, part in parts:
        label = name if hasattr(info, "_fields") else f"{name} (kernel {number})"
        found.update(_in_info(part, label))
    return found


def _value(name: str, state: Any) -> str:
    if name.startswith(_PROPOSAL):
        return f"{name} is NaN"
    if name.startswith(_UNDONE):
        return f"{name} met one and was undone"
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        if jax.tree_util.keystr(path).lstrip(".") == name:
            values = np.asarray(leaf)
            # As `_in_state` looks: elsewhere than in a position an infinity may be meant.
            is_bad = ~np.isfinite(values) if name.startswith("position") else np.isnan(values)
            index = tuple(int(i) for i in np.argwhere(is_bad)[0])
            return f"{name}{list(index) if index else ''} is {values[index]}"
    return name
