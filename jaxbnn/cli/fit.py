"""From a prepared table to draws, a verdict and pictures in a folder."""

import json
from pathlib import Path

import numpy as np

from jaxbnn.cli import folder as folders
from jaxbnn.cli.pictures import draw_chains, draw_classes, draw_numbers
from jaxbnn.cli.place import WRITTEN, written
from jaxbnn.cli.prepare import Prepared
from jaxbnn.cli.progress import Progress
from jaxbnn.cli.samplers import Fitted, make_posterior, run
from jaxbnn.cli.settings import describe
from jaxbnn.cli.verdict import Verdict, judge_chains, judge_classes, judge_numbers
from jaxbnn.prediction import ClassPrediction, NumberScores, predict, scores
from jaxbnn.targets import Posterior


def fit(prepared: Prepared, level: float, out: Path, progress: Progress) -> str:
    """Sample, judge and draw; write it all to `out` and return the summary."""
    x, y = prepared.encoding.inputs(prepared.table), prepared.encoding.targets(prepared.table)
    train, held_out = prepared.training, prepared.held_out
    posterior, fitted = _sampled(prepared, x[train], y[train], progress)
    progress.begin("scoring", f"{len(held_out):,} held-out rows")
    chains = judge_chains(prepared.sampler, fitted, posterior, x[held_out])
    with written(out, WRITTEN) as part:
        held = _judge(part, prepared, level, fitted, posterior, x, y, progress)
        draw_chains(part, prepared.encoding, fitted, posterior, x[held_out], y[held_out])
        progress.begin("writing", str(out))
        more = folders.save(
            part, prepared.encoding, prepared.settings, prepared.sampler, fitted, posterior
        )
        text = _summary(prepared, chains, held, [*prepared.notes, *more, *fitted.notes])
        (part / "summary.md").write_text(text, encoding="utf-8")
        numbers = json.dumps(chains.numbers | held.numbers, indent=2)
        (part / "scores.json").write_text(numbers + "\n", encoding="utf-8")
    return text


def _sampled(
    prepared: Prepared, x: np.ndarray, y: np.ndarray, progress: Progress
) -> tuple[Posterior, Fitted]:
    posterior = make_posterior(prepared.sampler, prepared.settings, x, y, prepared.num_classes)
    progress.say(describe(prepared.sampler, prepared.settings, len(x)))
    return posterior, run(prepared.sampler, posterior, prepared.settings, progress)


def _judge(
    part: Path,
    prepared: Prepared,
    level: float,
    fitted: Fitted,
    posterior: Posterior,
    x: np.ndarray,
    y: np.ndarray,
    progress: Progress,
) -> Verdict:
    """Judge the predictions of the held-out rows, and draw them."""
    encoding, rows = prepared.encoding, prepared.held_out
    prediction = predict(fitted.positions, x[rows], posterior, level=level)
    found = scores(fitted.positions, x[rows], y[rows], posterior)
    progress.begin("drawing pictures")
    if isinstance(prediction, ClassPrediction):
        assert not isinstance(found, NumberScores)
        draw_classes(part, y[rows], prediction)
        return judge_classes(encoding, y[rows], prediction, found)
    assert isinstance(found, NumberScores)
    draw_numbers(part, encoding, y[rows], prediction, found)
    mean = float(y[prepared.training].mean())
    return judge_numbers(encoding, y[rows], prediction, found, mean=mean)


def _summary(prepared: Prepared, chains: Verdict, held: Verdict, notes: list[str]) -> str:
    target, sampler = prepared.encoding.target, prepared.sampler
    hidden = " and ".join(map(str, prepared.settings.hidden))
    lines = [
        f"# {target}",
        "",
        f"{target} from {len(prepared.encoding.features)} features, {len(prepared.training)} rows, "
        f"by a network of {hidden} hidden units, "
        f"{'fitted' if sampler == 'dvi' else 'sampled'} by {sampler}.",
        "",
        *chains.sentences,
        "",
        *held.sentences,
        "",
        *(f"- {note}" for note in notes),
    ]
    return "\n".join(lines).rstrip() + "\n"
