"""Every test of our own code runs with shapes checked, strict dtypes, and no key used twice."""

import collections
import contextlib
import os

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

from tests.kit.lowering import share_contexts  # noqa: E402
from tests.kit.memory import Memory  # noqa: E402

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


# Examples that compile for ten seconds; what they show is tested now by smaller programs.
LONG_EXAMPLES = {
    "jaxbnn.thermalization.annealing.sample_annealed",
    "jaxbnn.ensembles.recipe.sample_ensemble",
    "jaxbnn.estimators.classifier.BayesianClassifier",
    "jaxbnn.estimators.regressor.BayesianRegressor",
    "jaxbnn.gibbs.interwoven.interwoven_gibbs",
    "jaxbnn.gibbs.interwoven.gibbs_with_moves",
    "jaxbnn.ensembles.microcanonical_adaptation.microcanonical_adaptation",
}


def pytest_itemcollected(item):
    """Of a test marked `short("a", ...)` these parameters run now, the others as long tests."""
    for marker in item.iter_markers("short"):
        if item.callspec.id not in marker.args:
            item.add_marker(pytest.mark.long)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Mark long examples; refuse names that `short` gives and no parameters have.

    With such a name all of the test would be long.
    """
    for item in items:
        if item.name in LONG_EXAMPLES:  # not of this folder, so that its hook above sees none
            item.add_marker(pytest.mark.long)
    if any("::" in argument for argument in config.args):
        return  # some cases were asked for by their names
    found = collections.defaultdict(set)
    for item in items:
        for marker in item.iter_markers("short"):
            found[item.nodeid.partition("[")[0], marker.args].add(item.callspec.id)
    for (test, names), ids in found.items():
        if not ids.issuperset(names):
            raise pytest.UsageError(f"{test} is marked short{names}, but has only {sorted(ids)}.")


def pytest_configure(config):
    """Share compiled programs between the workers of this run, and with no other run."""
    config.pluginmanager.register(Memory())
    share_contexts()
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ and not hasattr(config, "workerinput"):
        cache = config.rootpath / ".jax_cache" / str(os.getpid())
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(cache)
        config.add_cleanup(lambda: __import__("shutil").rmtree(cache, ignore_errors=True))
    cache_dir = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    if cache_dir:
        jax.config.update("jax_compilation_cache_dir", cache_dir)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
