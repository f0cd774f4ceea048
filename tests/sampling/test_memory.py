"""What a run needs of memory, on the host and on the device, whatever the number of draws."""

import gc

import jax
import numpy as np
import psutil
import pytest

import jaxbnn
from jaxbnn.sampling import collect_position
from jaxbnn.sampling.loops import Chains, Options, RateSum, Span
from jaxbnn.sampling.programs import programs_for
from tests.sampling.tiny import ar

KERNEL = ar()
WIDTH, CHAINS = 200, 10


REDUCE = {"m": jaxbnn.moments(), "b": jaxbnn.batch_means(100)}


def growth(num_samples):
    """Resident bytes that a run adds at its highest, as seen between its chunks."""
    gc.collect()
    process = psutil.Process()
    before, seen = process.memory_info().rss, [0]
    draws = jaxbnn.sample(
        jax.random.key(0), KERNEL, np.zeros((CHAINS, WIDTH), np.float32), num_samples,
        collect=None, reduce=REDUCE, chunk_size=1000,
        progress=lambda p: seen.append(process.memory_info().rss - before),
    )  # fmt: skip
    assert draws.reduced["m"].pooled.num_draws == CHAINS * num_samples
    assert draws.positions is None
    return max(seen)


@pytest.mark.long
@pytest.mark.parametrize("num_samples", [8_000, pytest.param(400_000, marks=pytest.mark.long)])
def test_memory_stays_flat(num_samples):
    growth(1000)  # compiles
    grown = growth(num_samples)
    kept = num_samples * CHAINS * WIDTH * 4
    assert kept > 60 * 2**20  # storing would show
    assert grown < 40 * 2**20


@pytest.mark.long
def test_draws_that_go_to_files_leave_the_host(tmp_path):
    def grown_by(num_samples, folder):
        gc.collect()
        process = psutil.Process()
        before, seen = process.memory_info().rss, [0]
        draws = jaxbnn.sample(
            jax.random.key(0), KERNEL, np.zeros((CHAINS, WIDTH), np.float32), num_samples,
            chunk_size=500, checkpoint=folder, lazy=True,
            progress=lambda p: seen.append(process.memory_info().rss - before),
        )  # fmt: skip
        seen.append(process.memory_info().rss - before)
        assert draws.positions.shape == (CHAINS, num_samples, WIDTH)
        part = draws.positions[:, num_samples - 700 : num_samples - 300]
        assert np.isfinite(part).all()
        assert part.std() > 0.5
        return max(seen)

    grown_by(1000, tmp_path / "first")  # compiles
    num_samples = 8_000
    grown = grown_by(num_samples, tmp_path / "second")
    assert num_samples * CHAINS * WIDTH * 4 > 60 * 2**20  # keeping them would show
    assert grown < 40 * 2**20


@pytest.mark.long
@pytest.mark.parametrize("budget", [50_000, 400_000])
def test_chunks_keep_to_their_bytes(budget):
    """Device bytes: states and reducers before and after, and one chunk, never the draws."""
    seen, on_device = [], []

    def report(progress):
        seen.append(progress.done)
        on_device.append(sum(array.nbytes for array in jax.live_arrays()))

    before = sum(array.nbytes for array in jax.live_arrays())
    jaxbnn.sample(
        jax.random.key(0), KERNEL, np.zeros((CHAINS, WIDTH), np.float32), 1_000,
        chunk_bytes=budget, progress=report, reduce=REDUCE,
    )  # fmt: skip
    record = CHAINS * (WIDTH * 4 + 4 + 1)  # position, two numbers of the Info
    assert max(np.diff(seen, prepend=0)) <= max(1, budget // record)
    state = CHAINS * (WIDTH * 4 + 4) + CHAINS * 12 * WIDTH * 4  # and what reducers hold
    assert max(on_device) - before < 2 * (state + budget) + 10_000


def test_the_program_holds_one_chunk():
    """Bytes that the compiled loop returns and works with, by the compiler's own account."""

    def bytes_of(capacity, chains):
        options = Options(collect_position, (), None, capacity, None, False)
        shape = jax.ShapeDtypeStruct
        keys = shape((chains,), jax.random.key(0).dtype)
        positions = shape((chains, WIDTH), np.float32)
        counters = (shape((), np.uint32), shape((), np.int32))
        span = Span(*counters, shape((capacity,), np.int32), shape((capacity,), bool))
        programs = programs_for(KERNEL, options)
        states = programs.init.eval_shape(keys, positions, None, None)
        rates = RateSum(*[shape((chains,), np.float32)] * 2)
        program = programs.sampling.lower(keys, Chains(states, (), rates, None), None, span)
        memory = program.compile().memory_analysis()
        return memory.output_size_in_bytes, memory.temp_size_in_bytes

    record, state = WIDTH * 4 + 4 + 1, WIDTH * 4 + 4
    for capacity, chains in ((100, 2), (1000, 2), (100, 20)):
        output, temporary = bytes_of(capacity, chains)
        model = chains * (state + capacity * record)
        assert model <= output < 1.02 * model + 1000
        assert temporary < 2.5 * model + 50_000
