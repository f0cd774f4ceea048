"""From a prepared table to draws, a verdict and pictures in a folder."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxbnn.cli import folder as folders
from jaxbnn.cli import unfinished
from jaxbnn.cli.estimate import warning
from jaxbnn.cli.page import page
from jaxbnn.cli.pictures import draw_chains, draw_classes, draw_numbers
from jaxbnn.cli.place import WRITTEN, written
from jaxbnn.cli.prepare import Prepared, on_all_rows, settled
from jaxbnn.cli.progress import Progress, of_sampling, of_updates
from jaxbnn.cli.report import Report, about, markdown, next_steps, worse_of
from jaxbnn.cli.verdict import copies_sentences, judge_classes, judge_numbers
from jaxbnn.numerics.spread import mean_and_sd
from jaxbnn.prediction import ClassPrediction, NumberScores, predict, scores
from jaxbnn.sampling import BadCheckpoint
from jaxbnn.tabular.fitted import Fitted, relevance_note
from jaxbnn.tabular.kinds import COUNTS
from jaxbnn.tabular.posteriors import make_posterior
from jaxbnn.tabular.samplers import run
from jaxbnn.tabular.settings import describe
from jaxbnn.tabular.trial import best_of
from jaxbnn.tabular.verdict import Verdict, judge_chains
from jaxbnn.tabular.wording import as_option
from jaxbnn.targets import Posterior


class _Sampled(NamedTuple):
    prepared: Prepared
    posterior: Posterior
    fitted: Fitted
    x: np.ndarray
    y: np.ndarray

    @property
    def is_whole(self) -> bool:
        return self.fitted.draws is None or not self.fitted.draws.interrupted


def fit(
    prepared: Prepared,
    level: float,
    out: Path,
    progress: Progress,
    checkpoints: Path,
    is_refitted: bool = False,
) -> str:
    """Sample, judge and draw; write it all to `out` and return the summary.

    What was interrupted goes on from `checkpoints`, which is removed when all has been drawn. With
    `is_refitted` a second fit, on all rows, is what `predict` will use.
    """
    prepared = _tried(prepared, progress, checkpoints)
    first = _sampled(prepared, progress, checkpoints / "first")
    held_out = prepared.held_out
    progress.begin("scoring", f"{len(held_out):,} held-out rows")
    chains = judge_chains(
        prepared.sampler, first.fitted, first.posterior, first.x[held_out], as_option
    )
    # Before anything is written, so that what fails in it is not taken for a full disk.
    last, second, sentences = (
        _refitted(first, progress, checkpoints / "refit") if is_refitted else (first, None, [])
    )
    numbers = chains.numbers
    if second is not None:
        numbers = numbers | {f"refit_{name}": value for name, value in second.numbers.items()}
        chains, sentence = worse_of(chains, second)
        sentences.append(sentence)
    held, draw = _judge(first, level)
    whole = np.column_stack([first.x, first.y])
    copies = copies_sentences(whole[prepared.training], whole[held_out])
    held = held._replace(sentences=[*held.sentences, *copies])
    with written(out, WRITTEN) as part:
        progress.begin("drawing pictures")
        draw(part)
        progress.begin("writing", str(out))
        more = folders.save(
            part,
            last.prepared.encoding,
            prepared.settings,
            prepared.sampler,
            last.fitted,
            last.posterior,
        )
        report = Report(
            prepared.encoding.target,
            about(prepared),
            chains,
            held,
            sentences,
            next_steps(prepared.settings, prepared.sampler, chains, held, out, is_refitted),
            [*prepared.notes, *more, *first.fitted.notes],
        )
        text = markdown(report)
        (part / "summary.md").write_text(text, encoding="utf-8")
        (part / "summary.html").write_text(page(report, part), encoding="utf-8")
        of_json = {name: _in_json(value) for name, value in (numbers | held.numbers).items()}
        text_of_numbers = json.dumps(of_json, indent=2, allow_nan=False)
        (part / "scores.json").write_text(text_of_numbers + "\n", encoding="utf-8")
    if first.is_whole and last.is_whole:
        unfinished.end(checkpoints)
    return text


def _in_json(value: Any) -> Any:
    """Return a number as JSON can hold it: what is infinite or NaN as null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _tried(prepared: Prepared, progress: Progress, checkpoints: Path) -> Prepared:
    """Take one network where several may be; what was taken is kept, since it takes minutes."""
    if len(prepared.candidates) == 1:
        return prepared
    names = [str(one) for one in prepared.candidates]
    kept = unfinished.kept_choice(checkpoints, names)
    if kept is not None:
        return settled(prepared, prepared.candidates[kept[0]], kept[1])
    progress.begin("trying networks", f"{len(prepared.candidates)} of them, on parts of the rows")
    x, y = prepared.encoding.inputs(prepared.table), prepared.encoding.targets(prepared.table)
    rows = prepared.training
    settings, num_classes = prepared.settings, prepared.num_classes
    taken, why = best_of(prepared.candidates, settings, x[rows], y[rows], num_classes)
    unfinished.keep_choice(checkpoints, names, list(prepared.candidates).index(taken), why)
    return settled(prepared, taken, why)


def _sampled(prepared: Prepared, progress: Progress, checkpoint: Path) -> _Sampled:
    """Sample the posterior of the training rows."""
    x, y = prepared.encoding.inputs(prepared.table), prepared.encoding.targets(prepared.table)
    rows, sampler, settings = prepared.training, prepared.sampler, prepared.settings
    posterior = make_posterior(sampler, settings, x[rows], y[rows], prepared.num_classes)
    progress.say(describe(sampler, settings, len(rows)))
    is_begun = unfinished.has_begun(checkpoint)
    if is_begun:
        progress.say("going on where the fit that was interrupted stood.")
    long = None if is_begun else warning(sampler, settings, posterior)
    if long is not None:
        progress.say(long)
    progress.begin("compiling", "the sampler")
    report = of_updates(progress) if sampler == "dvi" else of_sampling(progress)
    try:
        fitted = run(sampler, posterior, settings, report, checkpoint)
    except BadCheckpoint:
        if not is_begun:
            raise
        # Another version of a package, for instance, whose draws would be other ones.
        progress.say("what was interrupted cannot be gone on with here: beginning anew.")
        shutil.rmtree(checkpoint)
        fitted = run(sampler, posterior, settings, report, checkpoint)
    if settings.relevance:
        note = relevance_note(fitted, prepared.encoding.features)
        fitted = fitted._replace(notes=[*fitted.notes, note])
    return _Sampled(prepared, posterior, fitted, x, y)


def _refitted(
    first: _Sampled, progress: Progress, checkpoint: Path
) -> tuple[_Sampled, Verdict | None, list[str]]:
    """Fit again on all rows, unless the first fit was interrupted; return what to say of it."""
    number = first.prepared.table.num_rows
    if not first.is_whole:
        return first, None, ["Not fitted again on all rows, for it was interrupted before."]
    last = _sampled(on_all_rows(first.prepared), progress, checkpoint)
    progress.begin("scoring", "the fit to all rows")
    rows = first.prepared.held_out  # any will do: the chains are to agree about them
    verdict = judge_chains(
        last.prepared.sampler, last.fitted, last.posterior, last.x[rows], as_option
    )
    sentences = [
        f"Fitted again on all {number} rows, and `predict` uses that fit; the scores above are of "
        "the one that had not seen the held-out rows.",
        *last.fitted.notes,
    ]
    # Of an approximation there is nothing more to say unless it was stopped too early.
    says_nothing = last.fitted.draws is None and verdict.is_good
    return last, None if says_nothing else verdict, sentences


def _judge(first: _Sampled, level: float) -> tuple[Verdict, Callable[[Path], None]]:
    """Judge the predictions of the held-out rows; also return what draws them in a folder."""
    prepared, posterior, fitted, x, y = first
    encoding, rows = prepared.encoding, prepared.held_out
    prediction = predict(fitted.positions, x[rows], posterior, level=level)
    found = scores(fitted.positions, x[rows], y[rows], posterior)

    def draw(folder: Path) -> None:
        draw_chains(folder, encoding, fitted, posterior, x[rows], y[rows])
        if isinstance(prediction, ClassPrediction):
            draw_classes(folder, encoding, y[rows], prediction)
        else:
            assert isinstance(found, NumberScores)
            draw_numbers(folder, encoding, y[rows], prediction, found)

    learnt_from = y[prepared.training]
    if isinstance(prediction, ClassPrediction):
        assert not isinstance(found, NumberScores)
        counts = np.bincount(learnt_from, minlength=prediction.probabilities.shape[-1]) + 1
        return judge_classes(encoding, y[rows], prediction, found, counts / counts.sum()), draw
    assert isinstance(found, NumberScores)
    mean, spread = map(float, mean_and_sd(learnt_from))
    are_counts = prepared.settings.likelihood in COUNTS
    return judge_numbers(
        encoding, y[rows], prediction, found, mean, spread or 1.0, are_counts=are_counts
    ), draw
