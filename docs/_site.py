"""Hooks of the site: pages of guides, recorded runs and the reference; links from names and errata.

MkDocs calls these functions. Nothing of the library is imported or run: public names are read from
the packages' `__init__.py`, and a guide's page holds its prose and code, and what its last run
printed and drew, which are kept beside the pages as text and picture. A study's page holds the
tables and pictures of its runs in `record/`.
"""

import ast
import functools
import json
import re
import tomllib
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
GUIDES = ROOT / "experiments" / "guides"
RECORD = ROOT / "record"
ROOMS = (
    *("networks", "targets", "kernels", "gibbs", "wide", "dvi", "ensembles", "sampling"),
    *("diagnostics", "prediction", "thermalization", "estimators", "interop", "plots", "numerics"),
)
COMPARISONS = {
    "known_truth.md": "Where the truth is known",
    "command_comparison.md": "The command beside others",
    "ensembles_comparison.md": "Ensembles beside bde",
    "network_choice.md": "The network that auto takes",
}
NOT_SEARCHED = "---\nsearch:\n  exclude: true\n---\n"
BOOST = "---\nsearch:\n  boost: 2\n---\n"  # names are what most look for
_CELL = re.compile(r"^# %%(?P<kind> \[markdown\])?.*\n", re.MULTILINE)
_NAME = re.compile(r"(?<![\[`])`(jaxbnn(?:\.\w+)+)`(?!\])")
_ERRATA = re.compile(r"(?<=rrat)(?:um|a)\s+[A-D]\d+(?:(?:,| and| to|, and)\s+[A-D]\d+)*")


def on_config(config):
    """Put studies with recorded runs, and comparisons that were made, into the contents."""
    studies = [{study.replace("_", " "): f"recorded/{study}.md"} for study in recorded_studies()]
    (papers,) = [part["The papers"] for part in config["nav"] if "The papers" in part]
    if studies:
        papers.append({"Recorded runs": studies})
    made = [{title: page} for page, title in COMPARISONS.items() if (ROOT / "docs" / page).exists()]
    if made:
        config["nav"].append({"Comparisons": made})
    return config


def on_files(files, config):
    """Add a page for each guide, for each study with recorded runs and for each room."""
    for path in sorted(GUIDES.glob("*.py")):
        printed = (ROOT / "docs" / "guides" / f"{path.stem}.txt").read_text(encoding="utf-8")
        content = guide_page(path.read_text(encoding="utf-8"), path.stem, printed)
        files.append(File.generated(config, f"guides/{path.stem}.md", content=content))
    for study in recorded_studies():
        content = recorded_page(study)
        files.append(File.generated(config, f"recorded/{study}.md", content=content))
        for path in sorted(RECORD.glob(f"{study}/*/*/*.png")):
            where = f"recorded/{path.relative_to(RECORD)}"
            files.append(File.generated(config, where, abs_src_path=str(path)))
    for room in ROOMS:
        files.append(File.generated(config, f"api/{room}.md", content=room_page(room)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Make each public name in the prose a link to its entry in the reference."""
    if page.file.src_uri.startswith(("api/", "changelog")):
        return markdown
    known = {name for room in ROOMS for names in public_names(room).values() for name in names}
    known |= {f"jaxbnn.{room}" for room in ROOMS}

    def link(match):
        return f"[{match[0]}][{match[1]}]" if match[1] in known else match[0]

    outside = re.split(r"(^```.*?^```)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else _NAME.sub(link, part) for part in outside)


def on_page_content(html, page, config, files):
    """Make each citation of an erratum a link to it."""
    if page.file.src_uri == "errata.md":
        return html
    up = "../" * page.url.count("/")

    def linked(match):
        return re.sub(
            r"[A-D]\d+",
            lambda name: f'<a href="{up}errata/#{name[0].lower()}">{name[0]}</a>',
            match[0],
        )

    return _ERRATA.sub(linked, html)


def guide_page(text: str, name: str, printed: str) -> str:
    """Turn a script in cells into a page."""
    kinds = [match["kind"] for match in _CELL.finditer(text)]
    parts = []
    for kind, body in zip(kinds, _CELL.split(text)[2::2], strict=True):
        if kind:
            prose = re.sub(r"^# ?", "", body, flags=re.MULTILINE)
            parts.append(prose.strip())
        elif body.strip():
            parts.append(f"```python\n{body.strip()}\n```")
    title, *rest = parts
    heading, _, opening = title.partition("\n")
    picture = f"![The picture that this guide ends with]({name}.png)"
    run = f"Run it by `python -m experiments.guides.{name}` in a clone."
    end = f"## What it printed and drew\n\n```text\n{printed.rstrip()}\n```\n\n{picture}"
    return "\n\n".join([heading, opening.strip(), run, *rest, end]) + "\n"


def recorded_studies() -> list[str]:
    """Return the studies that have recorded runs."""
    return sorted({path.parents[2].name for path in RECORD.glob("*/*/*/run.json")})


def recorded_page(study: str) -> str:
    """Show every recorded run of a study: what it is, its pictures and its tables."""
    parts = [NOT_SEARCHED, f"# Recorded runs: {study.replace('_', ' ')}"]
    for path in sorted(RECORD.glob(f"{study}/*/*/run.json")):
        run = json.loads(path.read_text(encoding="utf-8"))
        name, scale, folder = run["experiment"], run["scale"], path.parent
        config = ROOT / "configs" / f"{name}.toml"
        described = tomllib.loads(config.read_text(encoding="utf-8"))["description"]
        command = f"python -m experiments configs/{name}.toml --scale {scale}"
        hours = run["cpu_seconds"] / 3600
        parts += [f"## {name.partition('/')[2]}, {scale}", f"{described}."]
        parts += [f"Made by `{command}`, seed {run['seed']}, in {hours:.2f} CPU hours."]
        for picture in sorted(folder.glob("*.png")):
            parts.append(f"![{picture.stem}]({picture.relative_to(RECORD)})")
        for table in sorted(folder.glob("*.md"), key=lambda p: (p.stem == "table", p.stem)):
            title = "All numbers" if table.stem == "table" else table.stem.replace("_", " ")
            parts += [f"### {title}", table.read_text(encoding="utf-8").strip()]
    return "\n\n".join(parts) + "\n"


def room_page(room: str) -> str:
    """List a package's public names, and document each under the shortest name it has."""
    if room == "interop":
        tools = "\n\n".join(
            f"::: jaxbnn.interop.{tool}" for tool in ("blackjax", "numpyro", "arviz")
        )
        return f"{BOOST}\n# jaxbnn.interop\n\n[](){{#jaxbnn.interop}}\n\n{tools}\n"
    lines = [BOOST, f"# jaxbnn.{room}", "", f"[](){{#jaxbnn.{room}}}", ""]
    lines += [_docstring(ROOT / "jaxbnn" / room / "__init__.py"), ""]
    for where, names in sorted(public_names(room).items(), key=_functions_first):
        shown = min(names, key=len)
        # Every name under which it can be imported leads here.
        lines += ["", *(f"[](){{#{name}}}" for name in names if name != where), ""]
        lines += [f"::: {where}", "    options:", f"      heading: {shown}"]
        lines += [f"      toc_label: {shown.rpartition('.')[2]}"]
    return "\n".join(lines) + "\n"


def _functions_first(item: tuple) -> tuple[int, str]:
    """Order what is called before the classes of what it returns, each by name."""
    module, _, name = item[0].rpartition(".")
    nodes = _tree(_file(module)).body
    is_function = any(isinstance(n, ast.FunctionDef) and n.name == name for n in nodes)
    return (0 if is_function else 1, name.lower())


@functools.cache
def public_names(room: str) -> dict[str, list[str]]:
    """Return for each public object of a package where it is defined, and its public names."""
    exported = _exports("jaxbnn._public")
    found = {}
    for name, where in sorted(_exports(f"jaxbnn.{room}").items()):
        names = [f"jaxbnn.{room}.{name}"]
        if exported.get(name) == where:
            names.append(f"jaxbnn.{name}")
        found[where] = names
    return found


@functools.cache
def _exports(package: str) -> dict[str, str]:
    """Return the names in a package's `__all__`, and where each is defined."""
    tree = _tree(_file(package))
    (listed,) = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
    ]
    imported = _imports(_file(package))
    return {name: _defined(imported[name], name) for name in listed if name in imported}


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def _imports(path: Path) -> dict[str, str]:
    body = _tree(path).body
    # What is loaded when it is asked for is imported for type checkers alone.
    lazy = [node for one in body if isinstance(one, ast.If) for node in one.body]
    return {
        one.asname or one.name: f"{node.module}.{one.name}"
        for node in [*body, *lazy]
        if isinstance(node, ast.ImportFrom)
        for one in node.names
    }


def _defined(path: str, name: str) -> str:
    """Follow imports from package to package to the module that defines a name."""
    module, _, own = path.rpartition(".")
    file = _file(module)
    if not file.exists():
        return path
    further = _imports(file).get(own)
    return path if further is None or further == path else _defined(further, own)


def _file(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _docstring(path: Path) -> str:
    return ast.get_docstring(_tree(path)) or ""
