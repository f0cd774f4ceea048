"""The two sizes of a statistical test: quick in `pytest`, full in `pytest -m long`."""

import pytest

SHORT = 100_000

# Short tests spend most of their time in the compiler: with these options it works a third as long.
QUICK = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}


def both_sizes(short: int = SHORT):
    """Parametrise `num_chains`: `short` now, `None` (the full size) marked `long`.

    A check called with `num_chains=None` takes at least 1.2 million chains, and as many as it
    needs to find a sup-distance of 0.005 with both error rates 1e-6. `short` must be large
    enough that every mutant of the test is still found: assert it at both sizes.
    """
    return pytest.mark.parametrize(
        "num_chains",
        [
            pytest.param(short, id="short"),
            pytest.param(None, id="full", marks=pytest.mark.long),
        ],
    )
