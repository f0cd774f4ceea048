"""A new user's first hour: from `pip install` to a verdict and pictures, on four awkward CSV files.

    python -m tests.first_fit [--constraints constraints.txt] [--only text]

The wheel is installed with its extra `cli` into an environment of its own; then `jaxbnn fit` and
`jaxbnn predict` run as they would be typed, on tables whose law is known. Writes
`tests/FIRST_FIT.md` unless `--only` is given. Some ten minutes of two cores.
"""

import argparse
import csv
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.benchmarks.command.tables import rows_of
from experiments.record.ledger import current_commit
from tests.kit.wheel import ROOT, build_wheel

FILE = ROOT / "tests" / "FIRST_FIT.md"
_PICTURES = "*.png"


class Table(NamedTuple):
    """Header, rows as they are written, and each target's distance from its true mean.

    `drop` is the column that the command asks to leave out.
    """

    target: str
    header: list[str]
    rows: list[list[str]]
    errors: np.ndarray
    delimiter: str = ","
    drop: str | None = None


def text(rng: np.random.Generator) -> Table:
    """Return 600 flats: a name for each, words, words with gaps, a word that never changes."""
    num, noise = 600, 20.0
    districts = {"harbour": 90.0, "old town": 140.0, "station": 20.0, "hill": 180.0}
    area = rng.uniform(25, 160, num)
    district = rng.choice(list(districts), num)
    rooms = np.clip(np.round(area / 28 + rng.normal(0, 0.6, num)), 1, None)
    heating = rng.choice(["gas", "district heating", ""], num, p=[0.5, 0.4, 0.1])
    mean = 2.4 * area + np.array([districts[name] for name in district])
    mean += 25 * (heating == "district heating")
    price = mean + rng.normal(0, noise, num)
    rows = [
        [f"flat {i}", f"{a:.1f}", name, f"{r:.0f}", h, "rent", f"{p:.1f}"]
        for i, (a, name, r, h, p) in enumerate(
            zip(area, district, rooms, heating, price, strict=True)
        )
    ]
    header = ["flat", "area", "district", "rooms", "heating", "kind", "price"]
    return Table("price", header, rows, price - mean, drop="flat")


def dates(rng: np.random.Generator) -> Table:
    """Return two years of daily counts, with a weekly and a yearly rhythm."""
    days = [datetime.date(2023, 1, 1) + datetime.timedelta(i) for i in range(730)]
    warmth = np.array([np.sin(2 * np.pi * (d.timetuple().tm_yday - 105) / 365) for d in days])
    warmth = 12 + 9 * warmth + rng.normal(0, 3, len(days))
    weekend = np.array([d.weekday() >= 5 for d in days])
    mean = np.exp(3.2 + 0.06 * warmth - 0.5 * weekend)
    count = rng.poisson(mean)
    rows = [
        [d.isoformat(), f"{w:.1f}", str(c)] for d, w, c in zip(days, warmth, count, strict=True)
    ]
    return Table("rentals", ["day", "temperature", "rentals"], rows, count - mean)


def european(rng: np.random.Generator) -> Table:
    """Return 800 machines: semicolons, decimal commas, umlauts, dates as 31.12.2024."""
    num, noise = 800, 0.4
    start = datetime.date(2022, 1, 1)
    age = rng.integers(0, 1000, num)
    speed, load = rng.uniform(900, 4200, num), rng.uniform(0, 1, num)
    mean = 3 + 2 * np.tanh((speed - 2500) / 600) * load + 0.002 * age
    wear = mean + rng.normal(0, noise, num)
    rows = [
        [
            (start + datetime.timedelta(int(a))).strftime("%d.%m.%Y"),
            f"{s:.1f}".replace(".", ","),
            f"{v:.3f}".replace(".", ","),
            f"{w:.2f}".replace(".", ","),
        ]
        for a, s, v, w in zip(age, speed, load, wear, strict=True)
    ]
    header = ["geprüft am", "Drehzahl", "Last", "Verschleiß"]
    return Table("Verschleiß", header, rows, wear - mean, ";")


def large(rng: np.random.Generator) -> Table:
    """Return 300,000 rows of six numbers."""
    x = rng.normal(size=(300_000, 6))
    mean = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] / 2 + 0.3 * x[:, 3]
    y = mean + rng.normal(0, 0.3, len(x))
    rows = [[f"{v:.4f}" for v in (*row, target)] for row, target in zip(x, y, strict=True)]
    return Table("y", [*(f"x{i}" for i in range(6)), "y"], rows, y - mean)


def least_rmse(table: Table) -> float:
    """Return the RMSE of the true mean on the rows that `jaxbnn fit` holds out: the least there is.

    Examples
    --------
    >>> least_rmse(Table("y", ["y"], [["0"]] * 5, np.array([0.0, 0.0, 3.0, 0.0, 0.0])))
    3.0
    """
    _, held_out = rows_of(len(table.rows), 0)
    return _rmse(table.errors[held_out])


TABLES: dict[str, Callable[[np.random.Generator], Table]] = {
    "text": text,
    "dates": dates,
    "european": european,
    "large": large,
}


class Heard(NamedTuple):
    """Seconds of a command: to its first line, the longest without one, and in all."""

    first_line: float
    longest_silence: float
    seconds: float
    lines: list[str]


def listen(command: list[str], folder: Path, status: int = 0) -> Heard:
    """Run a command as typed, and take the time of each line that it says."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "XLA_FLAGS")}
    begun = time.monotonic()
    times, lines = [begun], []
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            times.append(time.monotonic())
            lines.append(line.rstrip("\n"))
    ended = time.monotonic()
    if process.returncode != status:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}: {lines[-3:]}")
    gaps = np.diff([*times[1:], ended]) if len(times) > 1 else np.zeros(1)
    first = times[1] - begun if len(times) > 1 else ended - begun
    return Heard(first, float(gaps.max(initial=0.0)), ended - begun, lines)


def tried(jaxbnn: Path, name: str, folder: Path) -> dict[str, Any]:
    """Fit one table and predict its first rows; return what the page says."""
    table = TABLES[name](np.random.default_rng(0))
    _write(folder / f"{name}.csv", table, table.rows)
    _write(folder / f"{name}-new.csv", table, table.rows[:100])
    command = [str(jaxbnn), "fit", f"{name}.csv", "--target", table.target]
    refusal = []
    if table.drop is not None:
        refusal = [listen(command, folder, status=2).lines[-1]]
        assert f"--drop {table.drop!r}" in refusal[0]
        command += ["--drop", table.drop]
    fit = listen(command, folder)
    out = folder / f"{name}-fit"
    new = listen([str(jaxbnn), "predict", f"{name}-fit", f"{name}-new.csv"], folder)
    (predictions,) = folder.glob(f"{name}-new-predictions.csv")
    assert len(predictions.read_text(encoding="utf-8").splitlines()) == 101
    scores = json.loads((out / "scores.json").read_text(encoding="utf-8"))
    sentences = (out / "summary.md").read_text(encoding="utf-8").splitlines()
    said = [line for line in sentences[1:] if line]
    return {
        "about": said[0],
        "said": [*refusal, *said[1:3]],
        "rmse": scores["rmse"] / least_rmse(table),
        "coverage": scores["coverage"],
        "pictures": len(list(out.glob(_PICTURES))),
        "fit": fit,
        "predict": new,
    }


def main() -> None:
    """Install, try every table, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--constraints", type=Path, default=ROOT / "constraints.txt")
    parser.add_argument("--only", choices=TABLES, help="one of the tables; writes no page")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        wheel = build_wheel(ROOT, folder)
        begun = time.monotonic()
        venv.create(folder / "venv", with_pip=True)
        python = folder / "venv" / "bin" / "python"
        command = [python, "-m", "pip", "install", "--quiet", "-c", options.constraints.resolve()]
        subprocess.run([*command, f"{wheel}[cli]"], check=True)
        installing = time.monotonic() - begun
        print(f"installed in {installing:.0f} s", flush=True)
        found = {}
        for name in [options.only] if options.only else TABLES:
            found[name] = tried(folder / "venv" / "bin" / "jaxbnn", name, folder)
            print(f"{name}: {found[name]}", flush=True)
    if not options.only:
        where = (
            f"at commit {current_commit()}, on {os.cpu_count()} cores, "
            f"Python {platform.python_version()}"
        )
        FILE.write_text(page_of(where, installing, found), encoding="utf-8")
        print(FILE)


def page_of(where: str, installing: float, found: dict[str, dict[str, Any]]) -> str:
    """Return the page; `where` says at which commit and on what it was measured."""
    lines = [
        "# From `pip install` to a verdict",
        "",
        f"Made by `python -m tests.first_fit` {where}.",
        "",
        f"The wheel with its extra `cli` is installed into an environment of its own in "
        f"{installing:.0f} s. Then each file is fitted by `jaxbnn fit FILE --target NAME`, and 100 "
        "rows are predicted; no other option is given, but for `--drop NAME` where the command "
        "asks for it in a sentence. The least RMSE is that of the true mean, on the same held-out "
        "rows.",
        "",
        "| file | first line, s | longest silence, s | fit, s | from pip to pictures, s | RMSE / "
        "least | inside 90 % intervals | pictures | predict, s |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, one in found.items():
        fit, new = one["fit"], one["predict"]
        cells = [
            name,
            f"{fit.first_line:.1f}",
            f"{max(fit.longest_silence, new.longest_silence):.1f}",
            f"{fit.seconds:.0f}",
            f"{installing + fit.seconds:.0f}",
            f"{one['rmse']:.2f}",
            f"{one['coverage']:.1%}",
            str(one["pictures"]),
            f"{new.seconds:.0f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    lines.append("")
    for name, one in found.items():
        what = TABLES[name].__doc__ or ""
        lines.append(f"* {name}: {what.removeprefix('Return ')} {one['about']}")
        lines += [f"  {sentence}" for sentence in one["said"]]
    return "\n".join(lines) + "\n"


def _write(path: Path, table: Table, rows: list[list[str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=table.delimiter)
        writer.writerow(table.header)
        writer.writerows(rows)


def _rmse(errors: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(errors))))


if __name__ == "__main__":
    sys.exit(main())
