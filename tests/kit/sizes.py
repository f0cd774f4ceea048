"""The sizes of a statistical test: quick in `pytest`, full in `pytest -m long`."""

import pytest

SHORT = 100_000

# Short tests spend most of their time in the compiler: with these options it works a third as long.
QUICK = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}


def both_sizes(short: int = SHORT):
    """Parametrise `num_chains`: `short` now, `None` (the full size) marked `long`.

    A check called with `num_chains=None` takes at least 1.2 million chains, and as many as it
    needs to find a sup-distance of 0.005 with both error rates 1e-6. `short` must be large
    enough that every mutant of the test is found: those tests are `for_mutants(short)`.
    """
    return pytest.mark.parametrize(
        "num_chains",
        [
            pytest.param(short, id="short"),
            pytest.param(None, id="full", marks=pytest.mark.long),
        ],
    )


def for_mutants(short: int = SHORT):
    """Parametrise `num_chains` of a long test of mutants: the short size, where each is found.

    What so many chains find, more find too; and to compile a mutant takes as long as to compile
    what it is a mutant of, which is why none is tried in the quick tests.
    """
    sizes = pytest.mark.parametrize("num_chains", [pytest.param(short, id="short")])
    return lambda test: pytest.mark.long(sizes(test))


def sizes_with_mutants(short: int = SHORT):
    """Parametrise `num_chains` as `both_sizes` does; `with_mutants` is long, at the short size."""
    return pytest.mark.parametrize(
        ("num_chains", "with_mutants"),
        [
            pytest.param(short, False, id="short"),
            pytest.param(short, True, id="mutants", marks=pytest.mark.long),
            pytest.param(None, False, id="full", marks=pytest.mark.long),
        ],
    )
