"""Every citation leads to its entry in `docs/`, and every entry to a function and a test."""

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

import jaxbnn

ROOT = Path(__file__).parents[2]
ERRATA = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
EQUATIONS = (ROOT / "docs" / "equations.md").read_text(encoding="utf-8")
ENTRIES = dict(re.findall(r"^### ([A-D]\d+)\n(.*?)(?=^##|\Z)", ERRATA, re.MULTILINE | re.DOTALL))
CITED = re.compile(r"\b[Ee]rrat(?:um|a)((?:,? ?(?:and|to)? ?[A-D]\d+)+)")
PAPERS = re.compile(r"\b(?:Piccioli|Pezzetti|Wu|Papamarkou) et\s+al\.")
# What would be a second form of a citation.
OTHER_FORMS = (
    r"[Pp]aper 00[0-4]",
    r"[Ee]ntry \d+",
    r"[Ee]rrat(?:um|a) \d",
    r"(?:Piccioli, Troiani|Pezzetti, Favaro|Papamarkou, Hinkle|Wu, Nowozin)",
    r"(?:Piccioli|Pezzetti|Wu|Papamarkou) et\s+al\. \(\d{4}\)",
    r"(?:Piccioli|Pezzetti|Wu|Papamarkou) et\s+al\.,\s+equations?\b",
)


def flat(text):
    """Return text as one line: citations break across lines of docstrings and comments."""
    return re.sub(r"\s*\n\s*#?\s*", " ", text)


def cited(text):
    """Return the errata that a text names; "C1 to C3" names three."""
    found = []
    for group in CITED.findall(flat(text)):
        names = re.findall(r"(to )?([A-D])(\d+)", group)
        for until, letter, number in names:
            first = int(found[-1][1:]) + 1 if until else int(number)
            found += [f"{letter}{n}" for n in range(first, int(number) + 1)]
    return found


def sources():
    for folder in ("jaxbnn", "experiments", "configs", "tests"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".toml") and path != Path(__file__):
                yield path, path.read_text(encoding="utf-8")


def resolve(name):
    """Return what a dotted name stands for; a function comes before a module of its name."""
    first, *parts = name.split(".")
    found, path = importlib.import_module(first), first
    for part in parts:
        path += f".{part}"
        found = getattr(found, part) if hasattr(found, part) else importlib.import_module(path)
    return found


def names_in(text):
    return re.findall(r"`(jaxbnn[\w.]*)`", text)


def check_test(reference):
    """Fail if a path, or a test in it, is not there."""
    path, _, name = reference.partition("::")
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    functions = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    assert name in functions, f"{path} has no test {name}"


def test_citations_are_read_as_written():
    assert cited("errata C1\n    to C3, and erratum B6; errata A3, A4 and A9") == [
        *("C1", "C2", "C3", "B6", "A3", "A4", "A9")
    ]
    assert cited("# with errata D5\n# and D6") == ["D5", "D6"]


def test_every_cited_erratum_has_an_entry():
    missing = {}
    for path, text in sources():
        for name in cited(text):
            if name not in ENTRIES:
                missing.setdefault(name, str(path.relative_to(ROOT)))
    assert not missing
    assert len(ENTRIES) > 30


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_says_what_is_printed_what_is_right_why_and_what_shows_it(name):
    text = flat(ENTRIES[name])
    assert re.search(r"\*\*\S.*\.\*\*", text), "a title"
    for part in ("Printed", "Right", "Why", "Test", "Code"):
        assert f"* {part}: " in text, part
    tests = re.findall(r"`(tests/[\w/]+\.py::\w+)`", text)
    assert tests
    for reference in tests:
        check_test(reference)
    for dotted in names_in(text):
        resolve(dotted)
    for path in re.findall(r"`(configs/[\w/.]+)`", text):
        assert (ROOT / path).exists(), path
    assert names_in(text) or "`configs/" in text


def test_equations_name_functions_and_errata_that_are_there():
    for dotted in names_in(EQUATIONS):
        resolve(dotted)
    assert set(re.findall(r"errata\.md#([a-d]\d+)", EQUATIONS)) <= {n.lower() for n in ENTRIES}
    rows = re.findall(r"^\| (.*) \| (.*) \| (.*) \|$", EQUATIONS, re.MULTILINE)
    silent = [
        row
        for row in rows
        if row[2] not in ("function", "paper", "---") and "*" not in row[2]
        if not names_in(row[2])
    ]
    assert not silent


def test_public_functions_that_cite_a_paper_are_in_its_table():
    listed = {id(inspect.unwrap(resolve(name))) for name in names_in(EQUATIONS)}
    missing = set()
    for package in ["jaxbnn", *(f"jaxbnn.{name}" for name in jaxbnn.__all__)]:
        try:
            module = importlib.import_module(package)
        except ModuleNotFoundError:
            continue
        for name in getattr(module, "__all__", ()):
            value = inspect.unwrap(getattr(module, name))
            text = flat(inspect.getdoc(value) or "") if inspect.isfunction(value) else ""
            if PAPERS.search(text) and id(value) not in listed:
                missing.add(f"{value.__module__}.{name}")
    assert not missing


def test_there_is_one_form_of_citation():
    found = []
    for path, text in sources():
        titles = path.parts[-2:] == ("record", "pages.py")
        if titles or path.suffix != ".py" or path.is_relative_to(ROOT / "tests"):
            continue
        one_line = flat(text)
        found += [
            f"{path.relative_to(ROOT)}: {match.group()}"
            for form in OTHER_FORMS
            for match in re.finditer(form, one_line)
        ]
    assert not found
