"""The site has a page for every guide and package, small pictures, and builds without network."""

import html.parser
import json
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import jaxbnn

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CONFIG = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
GUIDES = sorted(path.stem for path in (ROOT / "experiments" / "guides").glob("*.py"))
LARGEST_PICTURE = 150_000
NOT_IMPORTED = ("cli", "tabular")  # a command, and what it shares with the estimators


@pytest.mark.long
def test_the_examples_of_choosing_a_sampler_run():
    """In a process of their own, since a reader's JAX has the usual promotion of dtypes."""
    pytest.importorskip("sklearn")
    ensemble, nuts, jumps, estimator = _blocks("choose.md")
    for block in (ensemble, estimator):
        printed = _printed(block)
        assert "R-hat" in printed or "believe" in printed.lower()
    # NUTS and HMC with jumps go on from the first block's posterior; a few draws do.
    posed, _, _ = ensemble.partition("starts = ")
    assert "posterior = " in posed
    short = [re.sub(r"\b500\b", "20", block) for block in (nuts, jumps)]
    assert "4 chains of 20 draws" in _printed(posed + "".join(short))


def _printed(program):
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def _blocks(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def test_every_page_of_the_contents_is_there():
    """Pages of guides and packages are made while the site is built."""
    made = {f"guides/{name}.md" for name in GUIDES}
    made |= {f"api/{name}.md" for name in _rooms()}
    pages = set(re.findall(r"([\w/]+\.md)$", CONFIG, re.MULTILINE))
    assert made <= pages
    assert not [page for page in pages - made if not (DOCS / page).is_file()]
    # Comparisons are in the contents once they were made.
    site = (DOCS / "_site.py").read_text(encoding="utf-8")
    pages |= set(re.findall(r'^    "(\w+\.md)": ', site, re.MULTILINE))
    written = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert written <= pages


def _rooms():
    names = {path.parent.name for path in (ROOT / "jaxbnn").glob("*/__init__.py")}
    return names - set(NOT_IMPORTED)


def test_every_guide_has_what_its_last_run_printed_and_drew():
    for name in GUIDES:
        assert (DOCS / "guides" / f"{name}.txt").read_text().strip()
        assert (DOCS / "guides" / f"{name}.png").read_bytes()[:4] == b"\x89PNG"


def test_pictures_are_small():
    for path in DOCS.rglob("*.png"):
        assert path.stat().st_size <= LARGEST_PICTURE, path


def test_the_version_is_one():
    """In the project, the citation and the changelog, as releasing.md says."""
    project = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    cited = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert project[1] == cited[1] == jaxbnn.__version__
    assert "## Unreleased\n" in (ROOT / "CHANGELOG.md").read_text()


# Ends the build at the first look-up of a name or address that is not this machine's.
PROGRAM = """
import socket, sys

def refuse(*arguments, **options):
    raise OSError("the site must build without network")

socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
sys.modules["jax"] = sys.modules["jaxbnn"] = None  # nothing of the library is run
from mkdocs.__main__ import cli
cli(["build", "--strict", "--quiet", "--site-dir", sys.argv[1]])
"""


class _Links(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.links, self.loaded, self.ids = [], [], set()

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.ids |= {values.get("id"), values.get("name")}
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        elif values.get("src") or (tag == "link" and values.get("rel") != "canonical"):
            self.loaded.append(values.get("src") or values.get("href"))


@pytest.mark.long
def test_the_site_builds_strictly_without_network_and_every_link_leads_somewhere(tmp_path):
    pytest.importorskip("mkdocs", reason="pip install -e '.[docs]'")
    site = tmp_path / "site"
    program = [sys.executable, "-c", PROGRAM, str(site)]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {}
    for path in site.rglob("*.html"):
        pages[path] = _Links()
        pages[path].feed(path.read_text(encoding="utf-8"))
    assert len(pages) > 30
    # A study's page shows every picture and every number of its recorded runs.
    for run in ROOT.glob("record/*/*/*/run.json"):
        study, name, scale, _ = run.relative_to(ROOT / "record").parts
        shown = site / "recorded" / study / "index.html"
        for picture in run.parent.glob("*.png"):
            assert f"{name}/{scale}/{picture.name}" in pages[shown].loaded
        rows = json.loads((run.parent / "metrics.json").read_text(encoding="utf-8"))["rows"]
        assert shown.read_text(encoding="utf-8").count("<tr>") > len(rows)
    for path, page in pages.items():
        for target in page.loaded:
            assert not urlsplit(target).netloc, f"{path} loads {target} from elsewhere"
        for target in [*page.links, *page.loaded]:
            where = urlsplit(target)
            if where.scheme or path.name == "404.html":
                continue
            found = (path.parent / unquote(where.path)).resolve() if where.path else path
            found = found / "index.html" if found.is_dir() else found
            assert found.exists(), f"{path} leads to {target}"
            if where.fragment and found in pages and where.fragment != "__comments":
                assert unquote(where.fragment) in pages[found].ids, f"{path}: no {target}"


def _block(page):
    """Return the names that the first Python block of a page defines."""
    names: dict = {}
    exec(compile(_blocks(page)[0], page, "exec"), names)
    return names


def test_the_kernel_that_is_shown_is_a_kernel():
    import jax
    import jax.numpy as jnp

    names = _block("extend/kernel.md")
    kernel = names["prior_proposal"](lambda key: jax.random.normal(key), lambda u: -(u**2) / 2)
    state = kernel.init(jnp.float32(0.0))
    new, info = jax.jit(kernel.step)(jax.random.key(0), state)
    assert bool(info.is_accepted) == bool(new.position != state.position)


@pytest.mark.long
@pytest.mark.third_party(reason="BlackJAX's MALA promotes ranks; users run without strict checks")
def test_the_first_program_runs(capsys):
    assert _block("index.md")["draws"].positions[0]["w"].shape == (4, 2000, 2, 5)
    assert "R-hat" in capsys.readouterr().out
