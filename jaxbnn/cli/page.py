"""The report as one page that needs nothing beside it: pictures are inside."""

import base64
import html
import re
from pathlib import Path

from jaxbnn.cli.report import Report
from jaxbnn.cli.verdict import Verdict

_PICTURES = {
    "predictions.png": "What was observed against what was predicted, with intervals.",
    "calibration.png": "How often it happened against how often it was predicted to.",
    "confusion.png": "Held-out rows by their class and the class they were given.",
    "chains.png": "What each chain predicts of three held-out rows: they should look alike.",
}
_CODE = re.compile(r"`([^`]+)`|(?<![\w-])--[a-z][a-z-]*")
_STYLE = """
:root { color-scheme: light; }
body { margin: 0 auto; max-width: 46rem; padding: 1rem 1rem 3rem; background: #fff; color: #1a1a1a;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: .5rem 0; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
p { margin: .5rem 0; }
.about { color: #555; }
.verdict { border-left: .35rem solid #009e73; background: #eef8f4; padding: .6rem .9rem;
  margin: .8rem 0; border-radius: .2rem; }
.verdict.doubt { border-color: #d55e00; background: #fdf2ea; }
.verdict b { display: block; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { padding: .25rem .9rem .25rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid #e3e3e3; font-weight: normal; }
td { text-align: right; white-space: nowrap; }
td.right { background: #eef8f4; }
figure { margin: 1.2rem 0; }
img { display: block; max-width: 100%; height: auto; }
figcaption { color: #555; font-size: .9rem; }
li { margin: .25rem 0; overflow-wrap: anywhere; }
code { background: #f2f2f2; padding: .1rem .3rem; border-radius: .2rem; font-size: .9em;
  overflow-wrap: anywhere; white-space: nowrap; }
li code { white-space: normal; }
"""


def page(report: Report, folder: Path) -> str:
    """Return the report as HTML, with the pictures that `folder` has."""
    title = html.escape(report.target)
    parts = [
        f"<h1>{title}</h1>",
        f'<p class="about">{_text(report.about)}</p>',
        _verdict("The chains" if "chains" in report.chains.numbers else "The fit", report.chains),
        _verdict("The held-out rows", report.held),
        *(f"<p>{_text(sentence)}</p>" for sentence in report.refit),
        "<h2>What to do next</h2>",
        _list(report.steps),
        "<h2>Scores</h2>",
        _scores(report),
        _confusion(report),
        *(_picture(folder / name, about) for name, about in _PICTURES.items()),
        "<h2>What was made of the data</h2>",
        _list(report.notes),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}: summary of a fit</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body>\n</html>\n"
    )


def _verdict(title: str, verdict: Verdict) -> str:
    kind = "verdict" if verdict.is_good else "verdict doubt"
    sentences = "".join(f"<p>{_text(sentence)}</p>" for sentence in verdict.sentences)
    return f'<div class="{kind}"><b>{title}</b>{sentences}</div>'


def _scores(report: Report) -> str:
    rows = (f"<tr><th>{_text(n)}</th><td>{_text(v)}</td></tr>" for n, v in report.scores.items())
    return f'<div class="wide"><table>{"".join(rows)}</table></div>'


def _confusion(report: Report) -> str:
    if report.confusion is None:
        return ""
    classes, counts = report.confusion
    head = "".join(f"<th>said {_text(name)}</th>" for name in classes)
    rows = []
    for i, (name, row) in enumerate(zip(classes, counts, strict=True)):
        cells = (f"<td{' class=right' * (i == j)}>{count}</td>" for j, count in enumerate(row))
        rows.append(f"<tr><th>is {_text(name)}</th>{''.join(cells)}</tr>")
    table = f"<table><tr><th></th>{head}</tr>{''.join(rows)}</table>"
    return f'<h2>Which classes were taken for which</h2><div class="wide">{table}</div>'


def _picture(path: Path, about: str) -> str:
    if not path.is_file():
        return ""
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    image = f'<img alt="{html.escape(about)}" src="data:image/png;base64,{data}">'
    return f"<figure>{image}<figcaption>{html.escape(about)}</figcaption></figure>"


def _list(lines: list[str]) -> str:
    return "<ul>" + "".join(f"<li>{_text(line)}</li>" for line in lines) + "</ul>"


def _text(text: str) -> str:
    """Escape text; what stands in backticks, and options, become code, which no line breaks."""
    return re.sub(_CODE, lambda found: f"<code>{found[1] or found[0]}</code>", html.escape(text))
