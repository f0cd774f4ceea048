"""What a fit has to say: the verdict, scores, what to do next, and what was made of the data."""

import shlex
from pathlib import Path
from typing import NamedTuple

from jaxbnn.cli.prepare import Prepared
from jaxbnn.cli.verdict import plain
from jaxbnn.tabular.candidates import spoken
from jaxbnn.tabular.settings import Settings
from jaxbnn.tabular.verdict import Verdict

_MOST_CLASSES = 12
_LABELS = {
    "rmse": "typical error (RMSE)",
    "rmse_of_the_mean": "RMSE of always guessing the mean",
    "accuracy": "share of rows that were right",
    "accuracy_of_the_commonest": "the same of always naming the commonest class",
    "mean_confidence": "mean confidence",
    "coverage": "share of rows inside their intervals",
    "level": "share that should be inside",
    "log_score": "mean log score",
    "log_score_of_the_shares": "log score of the classes' shares",
    "crps": "CRPS",
    "brier": "Brier score",
    "calibration_error": "calibration error",
    "rhat": "R-hat of the predictions",
    "ess_bulk": "effective draws",
    "held_out": "held-out rows",
}
_SHARES = ("accuracy", "accuracy_of_the_commonest", "mean_confidence", "coverage", "level")
_WHOLE = ("ess_bulk", "held_out")
# Likelihoods that take rows far from the rest better than another.
_SAFER = {
    "gaussian": "student-t",
    "heteroscedastic": "student-t",
    "laplace": "student-t",
    "poisson": "negative-binomial",
}


class Report(NamedTuple):
    """All that `summary.md` and `summary.html` hold."""

    target: str
    about: str
    chains: Verdict
    held: Verdict
    refit: list[str]
    steps: list[str]
    notes: list[str]

    @property
    def scores(self) -> dict[str, str]:
        """Scores as people read them, by what they are."""
        numbers = self.held.numbers | self.chains.numbers
        return {
            label: _said(name, float(numbers[name]))
            for name, label in _LABELS.items()
            if name in numbers
        }

    @property
    def confusion(self) -> tuple[list[str], list[list[int]]] | None:
        """Classes, and for each the held-out rows by what was said of them; None of numbers."""
        classes = self.held.numbers.get("classes")
        if classes is None or len(classes) > _MOST_CLASSES:
            return None
        return classes, self.held.numbers["confusion"]


def about(prepared: Prepared) -> str:
    """Return what was fitted, and how."""
    encoding, sampler = prepared.encoding, prepared.sampler
    count = len(encoding.features)
    return (
        f"{encoding.target} from {count} feature{'s' * (count != 1)}, "
        f"{len(prepared.training)} rows, "
        f"by {spoken(prepared.settings.hidden, prepared.settings.activation_of(sampler))}, "
        f"{'fitted' if sampler == 'dvi' else 'sampled'} by {sampler}."
    )


def next_steps(
    settings: Settings,
    sampler: str,
    chains: Verdict,
    held: Verdict,
    out: Path,
    is_refitted: bool,
) -> list[str]:
    """Return what to do with a fit, or about it; `sampler` is the one that was taken."""
    steps = []
    if not chains.is_good and settings.chains == 1:
        steps.append("Fit again with `--chains 4 --force`: one chain cannot tell.")
    elif not chains.is_good and chains.is_stuck:
        more = f"--seed {settings.seed + 1} --force"
        steps.append(f"Fit again with `{more}`, or by another `--sampler`: chains stood still.")
    elif not chains.is_good and chains.is_apart:
        steps.append(
            "Go by the scores above, or fit again with `--hidden 10 --force`, whose chains agree "
            "sooner: longer chains of an ensemble rarely come together."
        )
    elif not chains.is_good and sampler == "dvi":
        more = f"--warmup {2 * settings.warmup} --force"
        steps.append(f"Fit again with `{more}`: it needs more updates.")
    elif not chains.is_good and "divergent" in chains.numbers:
        steps.append(_after_divergence(settings, sampler))
    elif not chains.is_good:
        more = f"--warmup {2 * settings.warmup} --samples {2 * settings.samples} --force"
        steps.append(f"Fit again with `{more}`: the chains need longer.")
    safer = _SAFER.get(settings.likelihood)
    if held.is_too_sure and safer is not None:
        # Neither dvi nor gibbs knows it.
        by = " --sampler auto" if settings.sampler in ("dvi", "gibbs") else ""
        steps.append(f"Fit again with `--likelihood {safer}{by} --force`, which has heavier tails.")
    if held.is_too_wide:
        steps.append(
            "Look at the pictures: intervals that are wider than need be are safe, but say less "
            "than they could. Another `--likelihood` may fit the noise better."
        )
    elif not held.is_good:
        steps.append(
            "Look at the pictures, and for columns that tell more of the target: what a network "
            "is not given it cannot learn."
        )
    if sampler == "dvi" and settings.sampler == "auto":
        steps.append(
            "dvi only approximates the posterior; a file of a few thousand rows, or "
            "`--sampler nuts`, gives draws of it."
        )
    if not is_refitted:
        steps.append("`--refit --force` makes this fit again, and then one on all rows.")
    steps.append(f"Predict new rows: `jaxbnn predict {shlex.quote(str(out))} new.csv`.")
    return steps


def _after_divergence(settings: Settings, sampler: str) -> str:
    """Return what to do where chains agree, but diverged too often."""
    # As in the verdict: Gibbs has no step size that a warm-up could tune.
    if sampler == "gibbs":
        return "Fit again by another `--sampler`, with `--force`: too many steps diverged."
    more = f"--warmup {2 * settings.warmup} --force"
    return f"Fit again with `{more}`, whose steps are smaller: too many of these diverged."


def worse_of(first: Verdict, second: Verdict) -> tuple[Verdict, str]:
    """Return the verdict to begin with, and what to say of the fit to all rows, the second.

    `predict` uses the second fit, and the scores are the first one's.
    """
    if first.is_good and not second.is_good:
        return second, "The verdict on the chains, above, is that of this second fit."
    return first, f"Of this second fit: {second.sentences[0]}"


def markdown(report: Report) -> str:
    """Return the report for `summary.md`."""
    lines = [f"# {report.target}", "", report.about, ""]
    lines += [*report.chains.sentences, "", *report.held.sentences, ""]
    if report.refit:
        lines += [*report.refit, ""]
    if report.confusion is not None:
        classes, counts = report.confusion
        lines += ["| held-out rows | " + " | ".join(f"said {_cell(c)}" for c in classes) + " |"]
        lines += ["| --- " * (len(classes) + 1) + "|"]
        for name, row in zip(classes, counts, strict=True):
            lines.append(f"| is {_cell(name)} | " + " | ".join(map(str, row)) + " |")
        lines.append("")
    lines += [*(f"- {note}" for note in report.notes), "", "What to do next:", ""]
    lines += [f"- {step}" for step in report.steps]
    return "\n".join(lines).rstrip() + "\n"


def _said(name: str, value: float) -> str:
    if name in _SHARES:
        return f"{value:.1%}"
    return f"{value:,.0f}" if name in _WHOLE else plain(value)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
