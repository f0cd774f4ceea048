"""Tests of tests.long.earlier: outcomes of an earlier commit are kept if nothing can touch them."""

import json
import shutil
import subprocess

import pytest

from tests.long.earlier import differs_by_checks, families_of, keep, take_over, touched_by

FILES = {
    "tests/kit/dkw.py": "",
    "tests/conftest.py": "",
    "tests/room/helpful.py": "",
    "tests/room/program.py": "from tests.room.helpful import x",
    "tests/room/test_one.py": "runs `python -m tests.room.program`",
    "tests/room/test_two.py": "",
    "tests/room/test_three.py": "more in test_two.py; runs `python helpful.py`; "
    "def test_one(): ...; def test_two_more(): ...",
    "tests/room/test_four.py": "from tests.room.test_two import check",
}


@pytest.fixture
def root(tmp_path):
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def test_what_names_a_changed_file_is_touched_through_others(root):
    helper, program, one, two, three, four = list(FILES)[2:]
    assert touched_by(root, [two, "tests/long/__main__.py"]) == {two, four}
    assert touched_by(root, [program]) == {program, one}
    assert touched_by(root, [helper]) == {helper, program, one, three}
    assert touched_by(root, ["tests/room/gone.py"]) == {"tests/room/gone.py"}


def test_bad_input_is_imported_by_names_made_at_run_time(root):
    (root / "tests/kit/hostile.py").write_text('import_module(f"tests.kit.hostile_{name}")')
    (root / "tests/kit/hostile_files.py").write_text("")
    (root / "tests/test_hostile_input.py").write_text("from tests.kit.hostile import Call")
    assert touched_by(root, ["tests/kit/hostile_files.py"]) == {
        "tests/kit/hostile.py",
        "tests/kit/hostile_files.py",
        "tests/test_hostile_input.py",
    }


def test_families_that_no_other_file_takes_from_are_all_that_is_touched(root):
    path = "tests/kit/hostile_files.py"
    (root / path).write_text('FAMILIES = {"config files": 1, "data": 2}\nNAMES = {"more": 3}\n')
    assert families_of(root, path) == ["config files", "data"]
    assert families_of(root, "tests/kit/hostile_gone.py") == []
    assert families_of(root, "tests/room/test_two.py") == []
    (root / "tests/kit/hostile_command.py").write_text("from tests.kit.hostile_files import ANY")
    assert families_of(root, path) == []


def test_the_record_and_the_pages_touch_what_names_their_folder(root):
    one, two, _, four = list(FILES)[4:]
    (root / two).write_text('ROOT / "record" / "unfinished"')
    (root / one).write_text("recorded by record(docs); the README's command")
    changed = ["record/toy/run.json", "docs/toy.md", "tests/long/kept/0123456789.jsonl"]
    assert touched_by(root, changed) == {two, four}
    assert touched_by(root, ["docs/toy.md"]) == set()
    assert touched_by(root, ["README.md"]) == {one}
    assert touched_by(root, ["experiments/recorded.md"]) == set()
    (root / four).write_text("energy_errors.toml")
    assert touched_by(root, ["jaxbnn/diagnostics/energy_errors.toml"]) == {four}
    (root / four).write_text('build(ROOT / "mkdocs.yml")')
    assert touched_by(root, ["mkdocs.yml"]) == {four}


def test_what_writes_the_record_touches_what_names_it(root):
    one, two, three, _ = list(FILES)[4:]
    (root / one).write_text("from experiments.record.ledger import Ledger")
    (root / two).write_text("runs `python -m experiments configs/toy.toml`")
    (root / three).write_text("from experiments.benchmarks import gibbs")
    assert touched_by(root, ["experiments/record/code.py"]) == {one, three}


def test_fixtures_of_a_folder_touch_all_of_its_tests(root):
    (root / "tests/other").mkdir()
    (root / "tests/other/test_five.py").write_text("def test_it(fixture): ...")
    found = touched_by(root, ["tests/other/conftest.py"])
    assert found == {"tests/other/conftest.py", "tests/other/test_five.py"}


@pytest.mark.parametrize("changed", ["experiments/study.py", "configs/toy.toml"])
def test_experiments_touch_what_mentions_them_or_names_what_does(changed, root):
    helper, program, one, two, three, _ = list(FILES)[2:]
    (root / two).write_text("runs `python -m experiments configs/other.toml`")
    (root / program).write_text("from experiments.study import Row")
    found = touched_by(root, [changed])
    assert found == {program, one, two, "tests/room/test_four.py"}
    assert not {helper, three} & found


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ("def f(x):\n    if x < 0:\n        raise ValueError('no')\n    return x\n", True),
        ("def f(x):\n    'Says it.'\n    check_positive('x', x)\n    return x\n", True),
        ("import a\ndef f(x):\n    if a.b(x):\n        raise ValueError(x)\n    return x\n", True),
        ("def f(x):\n    if x < 0:\n        raise KeyboardInterrupt\n    return x\n", False),
        ("import a\ndef f(x):\n    return x\n", False),
        ("def f(x):\n    if x > 0:\n        check_a(x)\n    return x\n", True),
        ("def f(x):\n    if x > 0:\n        check_a(x)\n        x = 0\n    return x\n", False),
        ("from a import check_b\ndef f(x):\n    check_b(x)\n    return x\n", True),
        ("from a import check_b\ndef f(x):\n    check_b(x)\n    return 'check_b'\n", False),
        ("def _check_a(x):\n    assert x\ndef f(x):\n    _check_a(x)\n    return x\n", True),
        ("def check_a(x):\n    return x\ndef f(x):\n    check_a(x)\n    return x\n", False),
        ("def f(x):\n    if x < 0:\n        x = 0\n    return x\n", False),
        ("def f(x):\n    if x:\n        raise X(1)\n    else:\n        x = 1\n    return x", 0),
        ("def f(x):\n    if (x := 2) < 0:\n        raise ValueError(x)\n    return x\n", False),
        ("def f(x):\n    x = check_positive('x', x)\n    return x\n", False),
        ("def f(x):\n    return -x\n", False),
        ("", False),
    ],
)  # fmt: skip
def test_what_differs_by_checks(now, expected):
    assert differs_by_checks("def f(x):\n    return x\n", now) == expected


@pytest.mark.parametrize(
    "path", ["tests/kit/dkw.py", "tests/conftest.py", "pyproject.toml", "tests/data.csv"]
)
def test_what_may_touch_every_test_is_told(root, path):
    with pytest.raises(SystemExit, match=f"{path} changed since then, which may touch every test"):
        touched_by(root, ["tests/room/test_two.py", path])


@pytest.mark.parametrize("machine", ["the same", "another", "another, on which tests were listed"])
def test_outcomes_and_comparisons_are_taken_over(root, machine):
    def git(*arguments):
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *who, *arguments], cwd=root, check=True, capture_output=True)

    (root / ".gitignore").write_text(".long")
    git("init")
    git("add", ".")
    git("commit", "-m", "one")
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True)
    commit = head.stdout[:10]
    before, now = root / ".long" / commit, root / ".long" / "now"
    before.mkdir(parents=True)
    now.mkdir()
    tests = ["tests/room/test_one.py::a", "tests/room/test_two.py::b", "tests/room/test_two.py::c"]
    lines = [{"test": test, "outcome": "passed", "shard": 7} for test in tests]
    (before / "1.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (before / "1.comparisons").write_text("".join(json.dumps({"test": t}) + "\n" for t in tests))
    assert keep(root, before) == root / f"tests/long/kept/{commit}.jsonl"
    (root / "tests/room/program.py").write_text("changed")
    git("add", ".")
    git("commit", "-m", "two")
    if machine == "another":
        shutil.rmtree(before)
    if machine == "another, on which tests were listed":
        shutil.rmtree(before)
        before.mkdir()
        (before / "tests.json").write_text(json.dumps(tests))
    take_over(root, now, commit, tests[:2])  # the third test is no more
    found = [json.loads(line) for line in (now / f"from-{commit}.jsonl").read_text().splitlines()]
    assert found == [{"commit": commit, **lines[1]}]
    assert (now / f"from-{commit}.comparisons").read_text() == json.dumps({"test": tests[1]}) + "\n"
    with pytest.raises(SystemExit, match="nor tests/long/kept/0123456789"):
        take_over(root, now, "0123456789", tests)
    (root / "jaxbnn").mkdir()
    (root / "jaxbnn/table.toml").write_text("a = 1")
    git("add", ".")
    git("commit", "-m", "three")
    with pytest.raises(SystemExit, match=r"jaxbnn/table\.toml changed since then, which may touch"):
        take_over(root, now, commit, tests)


def test_outcomes_of_the_commit_itself_come_from_what_was_kept_alone(root):
    subprocess.run(["git", "init"], cwd=root, check=True, capture_output=True)
    subprocess.run(["git", "add", "."], cwd=root, check=True)
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *who, "commit", "-m", "one"], cwd=root, check=True, capture_output=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True)
    commit = head.stdout[:10]
    folder = root / ".long" / commit
    folder.mkdir(parents=True)
    line = {"test": "tests/room/test_two.py::b", "outcome": "passed"}
    (folder / "1.jsonl").write_text(json.dumps(line) + "\n")
    with pytest.raises(SystemExit, match="give a commit other than this one"):
        take_over(root, folder, commit, [line["test"]])
    keep(root, folder)
    take_over(root, folder, commit, [line["test"]])
    assert json.loads((folder / f"from-{commit}.jsonl").read_text()) == {"commit": commit} | line


def test_a_check_does_not_touch_what_the_quick_suite_makes_with_fewer_chains(root):
    def commit(message):
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "add", "."], cwd=root, check=True)
        made = ["git", *who, "commit", "-m", message]
        subprocess.run(made, cwd=root, check=True, capture_output=True)

    body = "def f(x):\n    {}return x\n"
    for path in ("jaxbnn/__init__.py", "jaxbnn/numerics/__init__.py"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("")
    module = root / "jaxbnn/numerics/sums.py"
    module.write_text(body.format(""))
    (root / "tests/room/test_two.py").write_text('"""Tests of numerics.sums."""')
    (root / ".gitignore").write_text(".long")
    subprocess.run(["git", "init"], cwd=root, check=True, capture_output=True)
    commit("one")
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True)
    before = root / ".long" / head.stdout[:10]
    before.mkdir(parents=True)
    names = ("test_law[full]", "test_law[mutants]", "test_run", "test_b[x-short]", "test_b[x-full]")
    tests = [f"tests/room/test_two.py::{name}" for name in names]
    lines = [{"test": test, "outcome": "passed"} for test in tests]
    (before / "1.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def kept(text):
        module.write_text(body.format(text))
        commit(text)
        now = root / ".long" / "now"
        now.mkdir(exist_ok=True)
        take_over(root, now, before.name, tests)
        found = (now / f"from-{before.name}.jsonl").read_text().splitlines()
        return [json.loads(line)["test"] for line in found]

    assert kept("if x < 0:\n        raise ValueError(x)\n    ") == tests[:2]
    assert kept("x = -x\n    ") == []
