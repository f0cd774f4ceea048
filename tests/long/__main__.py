"""Run the long tests in shards, go on where they were stopped, and write `tests/LONG.md`.

    python -m tests.long [--jobs 2] [--only WORD] [--seconds 1080] [--megabytes 2600]
    python -m tests.long --report
    python -m tests.long --keep
    python -m tests.long --earlier COMMIT

A shard is a process that runs tests until its time is over, after which no further test starts.
Outcomes are kept in `.long/<commit>/`; the same command goes on with the tests that have none. The
report is written when every long test has an outcome at the one commit that it names, which is why
the working tree must be as committed. `--earlier` takes over the outcomes of an earlier commit for
all tests that what changed since then cannot touch; from `tests/long/kept/` too, where `--keep`
puts what this commit has, to be committed: so the tests can be run by several machines in turn.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from experiments.record.ledger import current_commit
from tests.long import comparisons
from tests.long.earlier import keep, take_over
from tests.long.shard import LIST, MEGABYTES, RESULTS, SECONDS

ROOT = Path(__file__).parents[2]
FILE = ROOT / "tests" / "LONG.md"
PYTEST = [sys.executable, "-m", "pytest", "-o", "addopts=", "--import-mode=importlib"]
PYTEST += ["--doctest-modules", "-q", "-m", "long"]


def main() -> int:
    """Run what is left, or write the report; 1 if any test failed or has no outcome."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=2, help="shards side by side (2)")
    parser.add_argument("--only", default="", help="tests whose name holds this word")
    parser.add_argument("--seconds", type=float, default=1080, help="of a shard (1080)")
    parser.add_argument("--megabytes", type=float, default=2600, help="of a shard (2600)")
    parser.add_argument("--report", action="store_true", help="write tests/LONG.md and run nothing")
    parser.add_argument("--keep", action="store_true", help="keep this commit's outcomes, run none")
    parser.add_argument("--earlier", default="", help="a commit whose outcomes are taken over")
    options = parser.parse_args()
    folder = ROOT / ".long" / _clean_commit()
    folder.mkdir(parents=True, exist_ok=True)
    tests = _collect(folder)
    if options.keep:
        print(keep(ROOT, folder).relative_to(ROOT))
    elif options.earlier:
        take_over(ROOT, folder, options.earlier, tests)
    elif not options.report:
        _run([test for test in tests if options.only in test], folder, options)
    outcomes = _outcomes(folder)
    left = [test for test in tests if test not in outcomes]
    failed = [test for test, line in outcomes.items() if line["outcome"] == "failed"]
    print(f"{len(outcomes)} of {len(tests)} tests have an outcome, {len(failed)} failed")
    print("".join(f"FAILED {test}\n" for test in failed), end="")
    if left and options.report:
        sys.exit(f"tests/LONG.md needs every outcome; the first without is {left[0]}.")
    if not left:
        FILE.write_text(_report(tests, outcomes, folder), encoding="utf-8")
        print(FILE.relative_to(ROOT))
    return 1 if failed or left else 0


def _run(tests: list[str], folder: Path, options: argparse.Namespace) -> None:
    """Run shards, `jobs` at a time, until every test has an outcome or was tried twice."""
    tried: dict[str, int] = {}
    running: list[tuple[subprocess.Popen, list[str]]] = []
    while True:
        if any(process.poll() == pytest.ExitCode.USAGE_ERROR for process, _ in running):
            sys.exit(f"pytest refused the tests of a shard; the last log in {folder} says why.")
        running = [(process, own) for process, own in running if process.poll() is None]
        busy = {test for _, own in running for test in own}
        outcomes = _outcomes(folder)
        left = [
            test
            for test in tests
            if test not in outcomes and test not in busy and tried.get(test, 0) < 2
        ]
        if not left and not running:
            return
        while left and len(running) < options.jobs:
            # Every other test, so that shards side by side get like shares of each file.
            share = left[:: options.jobs - len(running)]
            tried[share[0]] = tried.get(share[0], 0) + 1
            running.append((_start(share, folder, options), share))
            left = [test for test in left if test not in set(share)]
        time.sleep(2)


def _start(tests: list[str], folder: Path, options: argparse.Namespace) -> subprocess.Popen:
    _drop_unfinished(folder)
    name = f"{time.time_ns()}"
    (folder / f"{name}.list").write_text(json.dumps(tests), encoding="utf-8")
    environment = os.environ | {
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", ""),  # compiled as users do, not as soon as can be
        LIST: str(folder / f"{name}.list"),
        RESULTS: str(folder / f"{name}.jsonl"),
        SECONDS: str(options.seconds),
        MEGABYTES: str(options.megabytes),
        comparisons.VARIABLE: str(folder / f"{name}.comparisons"),
    }
    # With the folder's conftest, which says of the library's examples too which are long.
    files = files_of(["tests/conftest.py", *tests])
    log = (folder / f"{name}.log").open("w")
    command = [*PYTEST, "-p", "tests.long.shard", *files]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)


def files_of(tests: list[str]) -> list[str]:
    """Return the files of some tests, the library's last.

    A module of the library that pytest meets before anything has imported its package is run twice,
    and its second copy takes the place of a function of the same name, such as
    `jaxbnn.ensembles.microcanonical_adaptation`: tests that call it fail then.

    Examples
    --------
    >>> files_of(["jaxbnn/a.py::jaxbnn.a.f", "tests/test_b.py::test_c[1]", "tests/test_b.py"])
    ['tests/test_b.py', 'jaxbnn/a.py']
    """
    files = {test.split("::")[0] for test in tests}
    return sorted(files, key=lambda file: (file.startswith("jaxbnn/"), file))


def _collect(folder: Path) -> list[str]:
    """Return the names of the long tests, collected once a commit."""
    kept = folder / "tests.json"
    if not kept.exists():
        command = [*PYTEST, "--collect-only"]
        found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        # Warnings, which may name a test, come after an empty line.
        listed = found.stdout.partition("\n\n")[0]
        tests = [line for line in listed.splitlines() if "::" in line]
        if not tests:
            sys.exit(f"No long test was collected:\n{found.stdout[-2000:]}{found.stderr[-2000:]}")
        kept.write_text(json.dumps(tests), encoding="utf-8")
    return json.loads(kept.read_text(encoding="utf-8"))


def _outcomes(folder: Path) -> dict[str, dict]:
    """Return the last outcome of each test; this commit's own stand above an earlier one's."""
    paths = sorted(folder.glob("*.jsonl"), key=lambda p: (not p.name.startswith("from-"), p.name))
    lines = [json.loads(line) for path in paths for line in path.open()]
    return {line["test"]: line for line in lines}


def _drop_unfinished(folder: Path) -> None:
    """Remove the comparisons of tests that were killed before their outcome, from ended shards."""
    outcomes = _outcomes(folder)
    for path in folder.glob("*.comparisons"):
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [line for line in lines if json.loads(line)["test"] in outcomes]
        running = time.time() - path.stat().st_mtime < 60
        if len(kept) < len(lines) and not running:
            path.write_text("".join(kept), encoding="utf-8")


def _report(tests: list[str], outcomes: dict[str, dict], folder: Path) -> str:
    lines = [json.loads(line) for path in folder.glob("*.comparisons") for line in path.open()]
    shards: dict[int, list[dict]] = {}
    for test in tests:
        shards.setdefault(outcomes[test]["shard"], []).append(outcomes[test])
    counts: dict[str, int] = {}
    for test in tests:
        counts[outcomes[test]["outcome"]] = counts.get(outcomes[test]["outcome"], 0) + 1
    said = ", ".join(
        f"{count} {outcome}{'s' * (outcome == 'expected failure' and count > 1)}"
        for outcome, count in sorted(counts.items())
    )
    minutes = [sum(line["seconds"] for line in shard) / 60 for shard in shards.values()]
    most = max(line["megabytes"] for line in outcomes.values())
    text = [
        "# The long tests",
        "",
        f"`python -m tests.long`, {datetime.now(UTC).date()}, commit {folder.name}: {said}.",
        *_taken_over(outcomes),
        f"{len(shards)} shards, the longest of {max(minutes):.0f} minutes, {sum(minutes):.0f} in",
        f"all; at most {most} MB a process.",
        "",
        "| file | tests | minutes | failed |",
        "| --- | --- | --- | --- |",
    ]
    for file in sorted({test.split("::")[0] for test in tests}):
        own = [outcomes[test] for test in tests if test.split("::")[0] == file]
        failed = sum(line["outcome"] == "failed" for line in own)
        spent = sum(line["seconds"] for line in own) / 60
        text.append(f"| {file} | {len(own)} | {spent:.1f} | {failed or ''} |")
    return "\n".join(text) + "\n\n" + comparisons.table(lines)


def _taken_over(outcomes: dict[str, dict]) -> list[str]:
    """Say which outcomes are of an earlier commit, since nothing that they rest on has changed."""
    earlier: dict[str, int] = {}
    for line in outcomes.values():
        if "commit" in line:
            earlier[line["commit"]] = earlier.get(line["commit"], 0) + 1
    return [
        f"Of these {count} ran at {commit}: since then only files that they do not name changed, "
        "and\nchecks of what is given."
        for commit, count in earlier.items()
    ]


def _clean_commit() -> str:
    commit = current_commit(10)
    if commit is None or commit.endswith("+"):
        sys.exit("The report names one commit: commit your changes first.")
    return commit


if __name__ == "__main__":
    sys.exit(main())
