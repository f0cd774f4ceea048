"""The runner: any kernel, many chains, in chunks, with draws that leave the device.

Inside, one chunk is a compiled loop over steps of all chains. Keys are counter based (the
key of chain c at step t is folded from key, c and t, warm-up steps first), so that no draw
depends on how the run was cut into chunks.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from blackjax.base import SamplingAlgorithm
from jax.sharding import Mesh
from jaxtyping import PRNGKeyArray, PyTree

from jaxbnn.numerics import check_finite
from jaxbnn.numerics.arguments import check_progress
from jaxbnn.numerics.arrays import check_held
from jaxbnn.numerics.checks import check_outside
from jaxbnn.numerics.data import warn_of_rounded_data
from jaxbnn.sampling.adaptation import Adaptation
from jaxbnn.sampling.chunks import Sampling
from jaxbnn.sampling.contract import position_of
from jaxbnn.sampling.devices.hosts import hosts_of
from jaxbnn.sampling.devices.placement import placement
from jaxbnn.sampling.draws import Draws
from jaxbnn.sampling.loops import Options
from jaxbnn.sampling.order import ordered
from jaxbnn.sampling.progress import Reporter
from jaxbnn.sampling.reducer import Reducer
from jaxbnn.sampling.run import MOST_RECORDS, Run, Schedule, chunk_bytes_a_chain
from jaxbnn.sampling.session import session
from jaxbnn.sampling.validation import (
    check_counts,
    check_functions,
    check_kernel,
    check_key,
    check_mesh_type,
    check_modes,
    check_positions,
    check_reduced,
    check_steps,
    check_whole,
    record_steps,
    stack_parameters,
)


def collect_position(state: Any, info: Any) -> PyTree:
    """Keep the position; the default of `sample`.

    Parameters
    ----------
    state, info
        What the kernel's step returns.

    Raises
    ------
    ValueError
        A state without a position.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> collect_position(SimpleNamespace(position=1.5), None)
    1.5
    """
    return position_of(state)


def sample(
    key: PRNGKeyArray,
    kernel: SamplingAlgorithm | Callable[[PyTree, PyTree], SamplingAlgorithm],
    positions: PyTree,
    num_samples: int,
    *,
    parameters: PyTree = None,
    data: PyTree = None,
    num_warmup: int = 0,
    thinning: int | np.integer | Sequence[int] | np.ndarray = 1,
    collect: Callable[[Any, Any], PyTree] | None = collect_position,
    reduce: Mapping[str, Reducer] | None = None,
    adapt: Adaptation | None = None,
    chunk_size: int | None = None,
    chunk_bytes: int | None = None,
    checkpoint: str | os.PathLike | None = None,
    lazy: bool = False,
    mesh: Mesh | None = None,
    progress: bool | Reporter = True,
    debug: bool = False,
) -> Draws:
    """Run a kernel on several chains and return what was drawn.

    Parameters
    ----------
    key
        The run's key. The key of chain c at step t is folded from (key, c, t). With keys of "rbg"
        JAX draws the numbers of chains that step side by side from the first one's key, so that
        they depend on the number of chains and the mesh; "unsafe_rbg" is refused.
    kernel
        A `SamplingAlgorithm` (ours or BlackJAX's), or a function `make_kernel(parameters,
        data)` that returns one; it is called inside the traced program. Numbers, arrays, networks
        and functions that it finds by name in its closure or in globals, lists and dicts of them
        too, are looked at anew in each call of `sample`; attributes of objects are not: give those
        as `parameters` or `data`. An array of NumPy's that is changed in place while another
        kernel, too, was traced with it keeps its old value: JAX takes it for a constant.
    positions
        The chains' starts stacked: every leaf has the chain as its leading axis.
    num_samples
        Draws kept of each chain.
    parameters
        PyTree for `make_kernel`; its leaves have the chain axis first (a single number
        serves all chains): step sizes, noise variances, a data set a chain. What is called
        "step_size" (or as what `jaxbnn.ensembles` tunes) must be positive.
    data
        PyTree for `make_kernel` that all chains share; an argument of the compiled program.
    num_warmup
        Steps before the first kept draw, during which `adapt` may change `parameters`.
    thinning
        Steps from one kept draw to the next; or an increasing schedule, the numbers of
        sampling steps after which a draw is kept (its length is `num_samples`).
    collect
        `collect(state, info)`, deterministic: what is kept of a draw, and what reducers see.
        None keeps nothing, no Info either; reducers then see the position.
    reduce
        Streaming reducers by name (`jaxbnn.sampling.moments()`, ...), updated with each kept
        draw (`acceptance` with every step).
    adapt
        How `parameters` follow the chain in warm-up, e.g. `jaxbnn.dual_averaging(0.574)`.
    chunk_size
        Records computed between two visits to the host; chosen by memory and time if None.
        Another one is another compiled program: each step agrees to rounding, and whole chains
        then part, as under `mesh`.
    chunk_bytes
        The most bytes of kept draws, of all chains together, that a chunk may hold; a chunk
        has at least one record. None: 16 MiB, or what `chunk_size` asks for.
    checkpoint
        A folder of this run alone: each chunk is written there when it is done, and a call with
        the same arguments, on any mesh, goes on from there, or returns a finished run. What was
        killed, at any moment, loses the chunk in progress and nothing else, and draws the same
        numbers bit for bit on the same machine and mesh. `open_draws` reads it, also where the
        folder cannot be written to, which `sample` asks of every run.
    lazy
        Whether to leave the draws in the checkpoint's files: leaves of the result are read where
        they are indexed, as of `open_draws`.
    mesh
        Devices to run on, e.g. `jax.make_mesh((4, 2), ("chain", "data"))`: chains are spread over
        the axis "chain", and over the axis "data" every leaf of `data` with as many rows as the
        longest, with the leaves of positions and states whose last axis is as long. NumPy arrays
        go to their devices directly, so that no device need hold all rows. Keys are the same on
        any mesh, and each step agrees to rounding; whole chains then part, as they do after any
        change of the last bit, and agree in law alone. On the same mesh of the same machine the
        numbers are equal bit for bit. (A device that has fewer chains may add up a matrix product
        in another order: numbers can differ also where nothing is summed over devices.)
        Devices of several processes may be in it, see Notes.
    progress
        True writes to standard error; a function receives `Progress`; False is silent. Of several
        processes the first one tells.
    debug
        Whether to look at every step, and to stop at the first NaN in a state (or infinity in a
        position) with its chain, step and term; also in a proposal of our kernels and of BlackJAX's
        HMC, and at a step that its microcanonical kernel undoes. Its NUTS, MALA and random walk do
        not tell of proposals. Takes a few times as long, and is not stored: no `checkpoint` then.

    Returns
    -------
    Draws
        Leaves (chain, draw, ...). After Ctrl-C: what was drawn so far.

    Raises
    ------
    ValueError
        Positions without a chain axis or with unequal ones, not finite, or where the log
        density is not; zero chains or samples; thinning < 1; step sizes that are not
        positive; data that are not finite; numbers beyond those that JAX holds; adaptation
        without warm-up; reducers that would see 2^31 draws of all chains, or more; a checkpoint
        that is torn or another run's (`BadCheckpoint`); a mesh that chains or rows cannot be
        spread over evenly; several processes that were called with different arguments, or without
        a mesh.
    FloatingPointError
        In debug mode, at the first NaN.
    OSError
        `CheckpointNotWritten`: a checkpoint folder that cannot be written to, has no room left,
        or which another run is writing to, or which other processes of the run do not see; what
        was written before is whole.
    RuntimeError
        `LostProcess`: another process of the run ended or was killed.

    Notes
    -----
    `with jax.enable_x64(True): sample(...)` is one run in float64, whatever runs beside it are in:
    positions and data that are float64 then stay so.

    Several processes: `jaxbnn hosts --processes 4 script.py` starts a script in four on
    this machine; on a cluster each process calls `jax.distributed.initialize()` before it imports
    jaxbnn. All call `sample` with the same arguments and a mesh of all `jax.devices()`. With a
    checkpoint, which lies on a disk that all see, each writes its chains, and the first one the
    state; any number of processes can go on from there. `Draws` is the same on each of them: it
    has the draws of all chains in NumPy arrays, unless `lazy` leaves them in the files. Ctrl-C on
    one ends the run on all after the chunk.

    Memory of the device: `data`, and twice (before and after) the states and reducers of all
    chains with one chunk of draws, besides what one step of the kernel needs; never more with
    more draws. Memory of the host: all kept draws; with a checkpoint and `lazy`, a few times
    `chunk_bytes` instead, whatever the number of draws.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, blackjax, jaxbnn
    >>> def make_kernel(parameters, data):
    ...     log_density = lambda x: -0.5 * jnp.sum((x - data) ** 2)
    ...     return blackjax.mala(log_density, parameters["step_size"])
    >>> draws = jaxbnn.sample(jax.random.key(0), make_kernel, jnp.zeros((4, 2)), 500,
    ...                       parameters={"step_size": 0.1}, data=jnp.array([1.0, 2.0]),
    ...                       num_warmup=500, adapt=jaxbnn.dual_averaging(0.574), progress=False)
    >>> draws.positions.shape
    (4, 500, 2)
    """
    why = "it visits the host between chunks; call it outside: it compiles the kernel itself"
    check_outside("sample", why, key, positions, parameters, data)
    check_mesh_type(mesh)
    hosts = hosts_of(mesh)
    positions, parameters, data = ordered((positions, parameters, data))
    with hosts.together():
        check_counts(num_samples, num_warmup, chunk_size, chunk_bytes)
        check_modes(lazy, checkpoint, debug, hosts.num_processes)
        check_progress(progress)
        check_key(key)
        check_functions(collect, reduce)
        check_kernel(kernel, parameters, data, adapt, num_warmup)
        check_whole(positions, parameters, data)
        for name, given in (("positions", positions), ("parameters", parameters), ("data", data)):
            check_held(name, given)
        num_chains = check_positions(positions)
        check_finite("data", data)
        warn_of_rounded_data(data)
        schedule = Schedule.of(record_steps(thinning, num_samples))
        check_steps(num_warmup, schedule.steps)
        check_reduced(reduce, num_chains, schedule.steps)
        asked = MOST_RECORDS if chunk_size is None else int(chunk_size)
        run = Run(
            key=key,
            kernel=kernel,
            positions=positions,
            parameters=stack_parameters(parameters, num_chains),
            data=data,
            num_chains=num_chains,
            num_warmup=num_warmup,
            schedule=schedule,
            options=Options(
                collect,
                tuple((reduce or {}).values()),
                adapt,
                min(asked, schedule.num_records),
                chunk_bytes_a_chain(chunk_bytes, chunk_size, num_chains),
                schedule.is_thinned,
            ),
            reducers=tuple(reduce or {}),
            asked=asked,
            is_paced=chunk_size is None,
            is_debug=debug,
            is_lazy=lazy,
            place=placement(mesh, num_chains, data),
            hosts=hosts,
        )
    with session(run, checkpoint, progress) as work:
        sampling = Sampling(work)
        sampling.begin()
        sampling.go_on()
        return sampling.draws()
