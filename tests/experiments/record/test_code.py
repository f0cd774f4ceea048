"""Tests of experiments.record.code: what changes the digest of a study."""

import ast

import pytest

from experiments.record import code

MODULES = {
    "jaxbnn/__init__.py": "from jaxbnn.kernels import pcn\nfrom jaxbnn.other import unused\n",
    "jaxbnn/kernels/__init__.py": "from jaxbnn.kernels.pcn import pcn_kernel as pcn\n",
    "jaxbnn/kernels/pcn.py": '"""Says."""\n\n\ndef pcn_kernel(x):\n    """Says."""\n    return x\n',
    "jaxbnn/other.py": "unused = 1\n",
    "experiments/__init__.py": "",
    "experiments/study.py": "import math\nfrom jaxbnn import pcn\n",
}


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Write MODULES, changed as asked, and return the digest of the study among them."""
    monkeypatch.setattr(code, "ROOT", tmp_path)

    def digest(**changes):
        for name, text in (MODULES | changes).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        code.forget()
        return code.code_digest(["experiments.study"])

    yield digest
    code.forget()


def test_a_name_from_a_package_leads_to_the_module_that_defines_it(tree):
    tree()
    assert code.used_modules(["experiments.study"]) == {"experiments.study", "jaxbnn.kernels.pcn"}


@pytest.mark.parametrize(
    "text",
    [
        "# A comment.\ndef pcn_kernel(x):\n    return x  # another\n",
        '"""Other words."""\ndef pcn_kernel(\n    x,\n):\n    """Others."""\n    return (x)\n',
    ],
)
def test_words_and_layout_do_not_change_the_digest(tree, text):
    assert tree(**{"jaxbnn/kernels/pcn.py": text}) == tree()


@pytest.mark.parametrize(
    ("names", "check"),
    [
        ("unused", "if x < unused:\n        raise ValueError('no')"),
        ("unused, check_size", "check_size(x, unused)"),
    ],
)
def test_checks_and_what_they_alone_import_do_not_change_the_digest(tree, names, check):
    text = f"from jaxbnn.other import {names}\ndef pcn_kernel(x):\n    {check}\n    return x\n"
    assert tree(**{"jaxbnn/kernels/pcn.py": text}) == tree()


def test_where_refusals_are_caught_checks_change_the_digest(tree):
    caught = "from jaxbnn import pcn\ntry:\n    pcn(1)\nexcept {}:\n    {}\n"
    check = "def pcn_kernel(x):\n    if x < 0:\n        raise ValueError('no')\n    return x\n"
    for error, then, counts in (
        ("ValueError", "x = 0", True),
        ("(KeyError, ValueError)", "print()", True),
        ("ValueError", "raise OSError", False),
        ("KeyError", "x = 0", False),
    ):
        study = {"experiments/study.py": caught.format(error, then)}
        now = tree(**study, **{"jaxbnn/kernels/pcn.py": check})
        assert (now != tree(**study)) == counts


def test_a_check_whose_value_is_used_changes_the_digest(tree):
    def digest(checked):
        text = "from jaxbnn.other import check_size\ndef pcn_kernel(x):\n    return check_size(x)\n"
        other = f"def check_size(x):\n    return {checked}\n"
        return tree(**{"jaxbnn/kernels/pcn.py": text, "jaxbnn/other.py": other})

    assert len({tree(), digest("x"), digest("-x")}) == 3


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("jaxbnn/kernels/pcn.py", "def pcn_kernel(x):\n    return -x\n"),
        ("jaxbnn/kernels/pcn.py", "def pcn_kernel(x, y=1):\n    return x\n"),
        ("jaxbnn/kernels/pcn.py", 'def pcn_kernel(x):\n    x + "text"\n    return x\n'),
        ("experiments/study.py", "import math\nfrom jaxbnn import pcn\nSTEPS = 2\n"),
        ("jaxbnn/kernels/__init__.py", "from jaxbnn.other import unused as pcn\n"),
    ],
)
def test_code_changes_the_digest(tree, name, text):
    assert tree(**{name: text}) != tree()


def test_a_file_of_data_beside_a_module_is_a_part_of_it(tree):
    reads = {"jaxbnn/kernels/pcn.py": 'def pcn_kernel(x):\n    return open("steps.toml")\n'}
    before = tree(**reads)
    one = tree(**reads, **{"jaxbnn/kernels/steps.toml": "step = 1\n"})
    other = tree(**reads, **{"jaxbnn/kernels/steps.toml": "step = 2\n"})
    assert len({before, one, other}) == 3
    assert tree(**reads, **{"jaxbnn/kernels/others.toml": "step = 1\n"}) == other


def test_a_table_that_recording_writes_is_no_part_of_the_code_that_reads_it(tree, monkeypatch):
    monkeypatch.setattr(code, "BIAS_TABLE", "jaxbnn/kernels/steps.toml")
    reads = {"jaxbnn/kernels/pcn.py": 'def pcn_kernel(x):\n    return open("steps.toml")\n'}
    assert tree(**reads) == tree(**reads, **{"jaxbnn/kernels/steps.toml": "step = 1\n"})


def test_a_module_that_the_study_does_not_use_does_not_change_the_digest(tree):
    assert tree(**{"jaxbnn/other.py": "unused = 2\n"}) == tree()


def test_a_package_that_never_runs_is_no_part_of_the_digest(tree):
    def found(**changes):
        tree(**changes)
        return code.code_digest(["experiments.study"], ("jaxbnn.kernels",))

    before = found()
    assert found(**{"jaxbnn/kernels/pcn.py": "def pcn_kernel(x):\n    return -x\n"}) == before
    assert found(**{"experiments/study.py": "import jaxbnn.kernels\n"}) != before
    tree()
    assert code.used_modules(["experiments.study"], ("jaxbnn.kernels",)) == {"experiments.study"}
    assert "jaxbnn.kernels.pcn" in code.used_modules(["experiments.study"], ("jaxbnn.kern",))


def test_what_goes_by_the_clock_is_no_part_of_the_digest():
    found = code.used_modules(["jaxbnn.sampling.runner"])
    assert "jaxbnn.sampling.chunks" in found
    assert set(code.BY_THE_CLOCK) <= code._imports("jaxbnn.sampling.chunks")
    assert not found.intersection(code.BY_THE_CLOCK)


def test_every_kind_of_experiment_uses_the_kernels_it_runs():
    found = code.used_modules(["experiments.studies.thermalization.samplers"])
    assert {"jaxbnn.gibbs.sampler", "jaxbnn.sampling.runner"} <= found
    assert not any(name.startswith("jaxbnn.dvi") for name in found)


def test_names_that_a_package_loads_late_lead_to_their_modules_and_the_package_to_all():
    assert "jaxbnn.kernels.pcn" in code.used_modules(["experiments.studies.function_space"])
    everything = code._imports("jaxbnn._public")
    assert {"jaxbnn.dvi", "jaxbnn.sampling.runner"} <= everything
    assert code._loaded_late("jaxbnn") == {"jaxbnn._public"}


def test_what_later_pythons_add_to_a_nested_format_is_no_part_of_it():
    """Python 3.12 and later end the format `>{width}` with a string of nothing; 3.11 does not."""
    tree = ast.parse('f"{value:>{width}}"')
    (nested,) = [n for n in ast.walk(tree) if isinstance(n, ast.FormattedValue) and n.format_spec]
    nested.format_spec.values = [
        n for n in nested.format_spec.values if not code._is_empty_string(n)
    ]
    before = code._plain(tree)
    nested.format_spec.values += [ast.Constant("")]
    assert code._plain(tree) == before
    nested.format_spec.values[-1] = ast.Constant("g")
    assert code._plain(tree) != before
