"""Every test of our own code runs with shapes checked, strict dtypes, and no key used twice."""

import contextlib
import ctypes
import gc
import os
import re
from pathlib import Path
from typing import ClassVar

# Before NumPy: several processes run at once, and LAPACK's further threads would wait busily.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Before JAX: most of a short test's time goes into compiling what runs once, and these flags take
# two fifths of it away. Last digits differ; `python -m tests.long` compiles as users do.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=0"
    " --xla_cpu_parallel_codegen_split_count=1"
    " --xla_cpu_enable_concurrency_optimized_scheduler=false",
)

from jaxtyping import install_import_hook

# Before the first import of jaxbnn: annotations become checks (DESIGN: in the tests only).
install_import_hook("jaxbnn", "beartype.beartype")

import jax  # noqa: E402
import jaxtyping  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402

MAPS = Path("/proc/self/maps")
MOST_NEW_MEGABYTES = 900
# Scripts for processes of their own: some change what a package says of itself.
collect_ignore = ["before_after"]


@pytest.fixture(autouse=True)
def strict_jax(request):
    """Strict dtype and rank promotion and key-reuse checks, except around third-party code."""
    if request.node.get_closest_marker("third_party"):
        yield
        return
    with contextlib.ExitStack() as stack:
        stack.enter_context(jax.numpy_dtype_promotion("strict"))
        stack.enter_context(jax.numpy_rank_promotion("raise"))
        stack.enter_context(jax.debug_key_reuse(True))
        yield


@pytest.fixture
def x64():
    """Run the test in float64."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def rng():
    """A NumPy generator with a fixed seed, for reference computations."""
    return np.random.default_rng(20240)


@pytest.fixture
def annotations_unchecked():
    """As outside the tests: the annotations check nothing, our own sentences must."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


def pytest_configure(config):
    """Share compiled programs between the workers of this run, and with no other run."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ and not hasattr(config, "workerinput"):
        cache = config.rootpath / ".jax_cache" / str(os.getpid())
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(cache)
        config.add_cleanup(lambda: __import__("shutil").rmtree(cache, ignore_errors=True))
    cache_dir = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    if cache_dir:
        jax.config.update("jax_compilation_cache_dir", cache_dir)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def pytest_runtest_teardown(item):
    """Drop compiled programs before they fill the memory, or Linux's 65,530 maps a process.

    XLA does not check for the maps: the process ends with a segmentation fault. The long tests
    come to that many after some forty tests.
    """
    if not MAPS.exists():
        return
    is_long = item.get_closest_marker("long") is not None
    has_many_maps = is_long and MAPS.read_bytes().count(b"\n") > 40_000
    if has_many_maps or _megabytes() > _Kept.megabytes + MOST_NEW_MEGABYTES:
        jax.clear_caches()
        gc.collect()
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:  # glibc keeps what is freed
            trim(0)
        _Kept.megabytes = _megabytes()


def pytest_runtest_logfinish(nodeid):
    """Note which test raised the process's peak of memory."""
    status = MAPS.with_name("status")
    if not status.exists():
        return
    peak = int(re.search(r"VmHWM:\s+(\d+)", status.read_text()).group(1)) / 1024
    if peak > _Kept.peaks[-1][0] + 50:
        _Kept.peaks.append((peak, nodeid))


def pytest_sessionfinish(session):
    """Hand a worker's peaks to the process that prints."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["peaks"] = _Kept.peaks
        # JAX's own, which would print a traceback when the worker is interrupted at its end.
        gc.callbacks.clear()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Take a worker's peaks, in the process that prints."""
    _Kept.of_workers[node.gateway.id] = getattr(node, "workeroutput", {}).get("peaks", [])


def pytest_terminal_summary(terminalreporter):
    """Print the most memory that each worker held, and the test that raised it last."""
    for worker, peaks in sorted(_Kept.of_workers.items()):
        for peak, nodeid in peaks[-1:]:
            terminalreporter.write_line(f"worker {worker} held up to {peak:,.0f} MB, in {nodeid}")


class _Kept:
    """Memory, in megabytes.

    `megabytes` is what a process held when its programs were dropped last; pytest itself and JAX
    take 500. `peaks` are a process's highest values, each with the test that reached it, and
    `of_workers` those of all workers, in the process that prints.
    """

    megabytes = 500.0
    peaks: ClassVar[list[tuple[float, str]]] = [(500.0, "the start")]
    of_workers: ClassVar[dict[str, list[tuple[float, str]]]] = {}


def _megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
