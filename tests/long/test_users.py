"""Tests of tests.long.users: who uses a module of the library, by the names that lead to it."""

import pytest

from experiments.record import code
from tests.long.earlier import touched_by
from tests.long.users import users_of

FILES = {
    "jaxbnn/__init__.py": "def _load(name): ...",
    "jaxbnn/_public.py": "from jaxbnn import kernels\nfrom jaxbnn.kernels import pcn\n",
    "jaxbnn/kernels/__init__.py": "from jaxbnn.kernels.pcn import pcn\nfrom jaxbnn.kernels.hmc "
    "import hmc\n__all__ = ['pcn', 'hmc']\n",
    "jaxbnn/kernels/pcn.py": "from jaxbnn.kernels.accept import metropolis\ndef pcn(): ...",
    "jaxbnn/kernels/accept.py": "def metropolis(): ...",
    "jaxbnn/kernels/hmc.py": "def hmc(): ...",
    "jaxbnn/dvi/__init__.py": "from jaxbnn.dvi.fit import fit\n__all__ = ['fit']\n",
    "jaxbnn/dvi/fit.py": "import jaxbnn\n\ndef fit():\n    return jaxbnn.pcn()\n",
    "experiments/study.py": "from jaxbnn.dvi import fit\n",
    "tests/kit/__init__.py": "__all__ = ['x']",
    "tests/test_accept.py": "from jaxbnn.kernels.accept import metropolis",
    "tests/test_pcn.py": "import jaxbnn\njaxbnn.pcn()",
    "tests/test_fit.py": "from jaxbnn import dvi\ndvi.fit()",
    "tests/test_hmc.py": "from jaxbnn.kernels import hmc",
    "tests/test_study.py": "runs `python -m experiments configs/study.toml`",
    "tests/test_names.py": "for name in jaxbnn.__all__: ...",
    "tests/program.py": "from jaxbnn.kernels import (\n    accept,\n)",
    "tests/test_program.py": "runs tests/program.py",
}


@pytest.fixture
def root(tmp_path, monkeypatch):
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.setattr(code, "ROOT", tmp_path)
    code.forget()
    yield tmp_path
    code.forget()


def touched(root, path, names=None):
    found = touched_by(root, [], {path: names})
    return {path for path in found if path.startswith("tests/test_")}


ALWAYS = {"tests/test_names.py"}


def test_what_leads_to_a_module_is_touched_by_it(root):
    own = {"tests/test_accept.py", "tests/test_program.py", "tests/test_pcn.py"}
    through_others = {"tests/test_fit.py", "tests/test_study.py"}
    assert touched(root, "jaxbnn/kernels/accept.py") == own | through_others | ALWAYS
    assert touched(root, "jaxbnn/kernels/pcn.py") == {"tests/test_pcn.py"} | through_others | ALWAYS
    assert touched(root, "jaxbnn/kernels/hmc.py") == {"tests/test_hmc.py"} | ALWAYS
    assert touched(root, "jaxbnn/dvi/fit.py") == through_others | ALWAYS


def test_examples_of_what_uses_a_module_are_touched(root):
    found = touched_by(root, [], {"jaxbnn/kernels/pcn.py": None})
    assert {"jaxbnn/dvi/fit.py", "jaxbnn/kernels/pcn.py"} <= found
    assert "jaxbnn/kernels/hmc.py" not in found


def test_of_a_module_that_changed_in_parts_only_what_takes_these_is_touched(root):
    (root / "jaxbnn/kernels/accept.py").write_text("def metropolis(): ...\ndef always(): ...")
    (root / "tests/test_accept.py").write_text("import jaxbnn")
    (root / "tests/program.py").write_text("from jaxbnn.kernels import pcn")
    path = "jaxbnn/kernels/accept.py"
    assert touched(root, path, ["always"]) == ALWAYS
    through = {f"tests/test_{name}.py" for name in ("pcn", "fit", "study", "program")}
    assert touched(root, path, ["metropolis"]) == through | ALWAYS
    assert touched(root, path, []) == ALWAYS
    text = "from jaxbnn.kernels.accept import always, metropolis\nfrom jaxbnn.kernels import hmc\n"
    (root / "jaxbnn/kernels/hmc.py").write_text(f"{text}def hmc():\n    return always()\n")
    code.forget()
    assert touched(root, path, ["always"]) == {"tests/test_hmc.py"} | ALWAYS


@pytest.mark.parametrize(("first", "is_touched"), [("'a.b'", False), ("name", True)])
def test_what_is_taken_from_a_module_may_be_anybody_s_unless_it_is_named(root, first, is_touched):
    text = f"import importlib\nmodule = importlib.import_module({first})\nf = getattr(module, name)"
    (root / "tests/test_taken.py").write_text(text)
    assert ("tests/test_taken.py" in touched(root, "jaxbnn/kernels/hmc.py")) == is_touched


@pytest.mark.parametrize("path", ["jaxbnn/kernels/__init__.py", "jaxbnn/kernels/gone.py"])
def test_packages_and_what_is_gone_touch_everything(root, path):
    assert users_of(root, {path: None}).search("")
    assert len(touched(root, path)) == 7
