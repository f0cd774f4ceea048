"""The speed of the runner and of Gibbs sweeps, before and now, in turn: `tests/SPEED.md`.

    python -m tests.speed [--rounds 7] [--before COMMIT] [--core 0]

In every round each of two checkouts runs the same cases in a process of its own, on one core; a
round counts by its ratio, so that what else the machine does falls on both.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from experiments.record.ledger import current_commit
from tests.before_after.__main__ import BEFORE, ROOT, checkout

FILE = ROOT / "tests" / "SPEED.md"
_MARK = "\x1emeasured "
# Run over a checkout, whose names are those of its own commit.
_PROGRAM = f"""
import json, os, sys, time
os.sched_setaffinity(0, {{int(sys.argv[1])}})
import blackjax, jax, jax.numpy as jnp, numpy as np
from jaxbnn import IntermediateNoise, gibbs_sampler, mlp, sample

def microseconds(run, steps, repeats=5):
    run(0)  # compiles
    found = []
    for seed in range(repeats):
        start = time.perf_counter()
        run(seed)
        found.append((time.perf_counter() - start) / steps * 1e6)
    return min(found)

def sweeps(network, n, d, order, steps):
    x = jnp.asarray(np.random.default_rng(0).normal(size=(n, d)), jnp.float32)
    model = IntermediateNoise(network, 1e-2)
    position, y = model.simulate(jax.random.key(2), model.sample_prior(jax.random.key(1)), x)
    kernel = gibbs_sampler(model, x, y, order)
    state = kernel.init(position)

    @jax.jit
    def run(key, state):
        step = lambda state, key: (kernel.step(key, state)[0], None)
        return jax.lax.scan(step, state, jax.random.split(key, steps))[0]

    return microseconds(lambda s: jax.block_until_ready(run(jax.random.key(s), state)), steps)

def steps_of_sample(chains, steps):
    starts = np.random.default_rng(0).normal(size=(chains, 9)).astype(np.float32)
    kernel = blackjax.mala(lambda x: -jnp.sum(x**4) / 4 + jnp.prod(jnp.cos(x)), 0.1)
    run = lambda seed: sample(jax.random.key(seed), kernel, starts, steps, progress=False)
    return microseconds(run, steps)

found = {{
    "sample, MALA in 9 dimensions, 1 chain": steps_of_sample(1, 30_000),
    "sample, MALA in 9 dimensions, 10 chains": steps_of_sample(10, 10_000),
    "Gibbs, 50-10-1, 2,084 data, sequential": sweeps(mlp((50, 10, 1)), 2084, 50, "sequential", 200),
    "Gibbs, 50-10-1, 2,084 data, parallel": sweeps(mlp((50, 10, 1)), 2084, 50, "parallel", 200),
    "Gibbs, 20-40-40-1, 2,000 data, sequential":
        sweeps(mlp((20, 40, 40, 1)), 2000, 20, "sequential", 20),
}}
print({_MARK!r} + json.dumps(found))
"""
_INTRODUCTION = """# Speed, before and after

Measured by

    python -m tests.speed --rounds {rounds}

over commit {before} and over {after}: microseconds a step (of all chains) or a sweep on one core,
the least of five runs. In each round both checkouts run, in turn; the ratio is now over before, its
median over the rounds, and in brackets its least and largest. Other users of the machine change a
time by up to a half: the last column, of the least times of all rounds, is the one to trust.

The sweep of the deep network does more than before, and is meant to: each factor of a precision is
checked for the digits it lost, and made again where it lost them, which in float32 mends a wrong
law ("float32 Gibbs with collinear features" in `BEFORE_AFTER.md`).

| case | before | now | ratio | ratio of the least |
| --- | --- | --- | --- | --- |
"""


def main() -> None:
    """Measure in turn; write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--before", default=BEFORE, help="the commit to compare with")
    parser.add_argument("--core", type=int, default=0, help="the core that runs all of it")
    options = parser.parse_args()
    after = current_commit(10) or "the working tree"
    rounds = []
    with checkout(options.before) as old:
        for number in range(options.rounds):
            # The order changes from round to round: what warms up is no one's advantage.
            trees = {"before": old, "now": ROOT}
            order = list(trees) if number % 2 else list(trees)[::-1]
            rounds.append({name: _measured(trees[name], options.core) for name in order})
            print(f"round {number + 1} of {options.rounds}: {rounds[-1]}", flush=True)
    text = _INTRODUCTION.format(rounds=options.rounds, before=options.before, after=after)
    FILE.write_text(text + "\n".join(_rows(rounds)) + "\n", encoding="utf-8")
    print(FILE.relative_to(ROOT))


def _measured(tree: Path, core: int) -> dict[str, float]:
    environment = os.environ | {"PYTHONPATH": str(tree), "OPENBLAS_NUM_THREADS": "1"}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    command = [sys.executable, "-c", _PROGRAM, str(core)]
    ended = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    if ended.returncode:
        sys.exit(f"{tree} cannot be measured: {ended.stderr.strip().splitlines()[-1]}")
    return json.loads(ended.stdout.rpartition(_MARK)[2])


def _rows(rounds: list[dict[str, dict[str, float]]]) -> list[str]:
    rows = []
    for case in rounds[0]["now"]:
        before, now = ([one[when][case] for one in rounds] for when in ("before", "now"))
        ratios = [b / a for a, b in zip(before, now, strict=True)]
        spread = f"({min(ratios):.3f} to {max(ratios):.3f})"
        rows.append(
            f"| {case} | {statistics.median(before):,.1f} | {statistics.median(now):,.1f} "
            f"| {statistics.median(ratios):.3f} {spread} | {min(now) / min(before):.3f} |"
        )
    return rows


if __name__ == "__main__":
    main()
