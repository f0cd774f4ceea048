"""Every test of our own code runs with shapes checked, strict dtypes, and no key used twice."""

import contextlib
import gc
import os
from pathlib import Path

# Before NumPy: several processes run at once, and LAPACK's further threads would wait busily.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from jaxtyping import install_import_hook

# Before the first import of jaxbnn: annotations become checks (DESIGN: in the tests only).
install_import_hook("jaxbnn", "beartype.beartype")

import jax  # noqa: E402
import jaxtyping  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402

MAPS = Path("/proc/self/maps")
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
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


def pytest_runtest_teardown(item):
    """Drop compiled programs before their memory maps reach Linux's limit of 65,530 a process.

    XLA does not check what happens there: the process ends with a segmentation fault. The long
    tests come to that many after some forty tests.
    """
    is_long = item.get_closest_marker("long") is not None
    if is_long and MAPS.exists() and MAPS.read_bytes().count(b"\n") > 40_000:
        jax.clear_caches()
        gc.collect()
