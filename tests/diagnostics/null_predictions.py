"""Predictive intervals, scores, and the bars and sentences about them, of right predictions."""

import matplotlib
import numpy as np
from scipy import stats

import jaxbnn
from jaxbnn.cli import verdict
from jaxbnn.plots import calibration
from jaxbnn.prediction import coverage, expected_calibration_error, predict, scores
from tests.diagnostics.covariance_laws import Law
from tests.diagnostics.null_rows import covers, p_value, share, stated_over_true

NETWORK = jaxbnn.mlp((1, 1))
DATA, NEW, LEVEL = 8, 4, 0.9
FIT = "python -m jaxbnn fit"


def numbers(runs):
    """A line fitted to eight data: truth from the prior, exact posterior draws, new data."""
    for name, phi, (chains, length) in (
        ("4 x 250 draws, independent", 0.0, (4, 250)),
        ("4 x 1000 draws, AR(1), 0.9", 0.9, (4, 1000)),
    ):
        rng = np.random.default_rng(length)
        pit, inside, away, log_scores = [], [], [], []
        for _ in range(runs):
            posterior, draws, x, y = _line(rng, phi, chains, length)
            found = predict(draws, x, posterior, level=LEVEL)
            inside.append((found.lower <= y) & (y <= found.upper))
            away.append((y - found.mean) / found.sd)
            score = scores(draws, x, y, posterior)
            pit.append(score.pit)
            log_scores.append(score.log_score)
        # Rows of one data set share its posterior.
        yield covers("predict", "90 % interval, one new row", name, [one[0] for one in inside])
        yield covers("predict", "90 % interval, rows together", name, np.mean(inside, axis=1))
        yield stated_over_true("predict", "sd", name, np.ones_like(away), away)
        first = np.array([one[0] for one in pit])
        yield p_value("scores", f"{name}: pit of one row", first)
        held = [coverage(one, [LEVEL])[0] for one in pit]
        yield covers("coverage", "90 % interval, rows together", name, held)


def _line(rng, phi, chains, length):
    """A posterior, draws of it (chain, draw, ...), and new data."""
    rng_x = rng.uniform(-2, 2, size=(DATA + NEW, 1))
    design = np.concatenate([rng_x, np.ones_like(rng_x)], axis=1)
    truth = rng.normal(size=2)
    y = design @ truth + 0.5 * rng.normal(size=DATA + NEW)
    old = design[:DATA]
    root = np.linalg.cholesky(np.linalg.inv(np.eye(2) + old.T @ old / 0.25))
    mean = root @ root.T @ old.T @ y[:DATA] / 0.25
    noise = rng.normal(size=(chains, length, 2))
    if phi:
        noise = Law(phi).draw(rng, (chains, length, 2))
    w = (mean + noise @ root.T).astype(np.float32)
    draws = ({"w": w[..., :1, None], "b": w[..., 1:]},)
    x = rng_x.astype(np.float32)
    posterior = jaxbnn.Posterior(
        NETWORK,
        jaxbnn.normal_prior(NETWORK),
        jaxbnn.Gaussian(0.5),
        x[:DATA],
        y[:DATA].astype(np.float32),
    )
    return posterior, draws, x[DATA:], y[DATA:].astype(np.float32)


def classes(runs):
    """The interval of a class's probability, by draws of the exact posterior of its logit."""
    rng = np.random.default_rng(3)
    posterior = jaxbnn.Posterior(
        NETWORK,
        jaxbnn.normal_prior(NETWORK),
        jaxbnn.Bernoulli(),
        np.zeros((1, 1), np.float32),
        np.zeros(1, np.int32),
    )
    inside = []
    for _ in range(runs):
        truth = rng.normal()
        # The posterior of a normal logit seen with noise of variance 1.
        seen = (truth + rng.normal()) / 2
        b = (seen + np.sqrt(0.5) * rng.normal(size=(4, 250, 1))).astype(np.float32)
        draws = ({"w": np.zeros((4, 250, 1, 1), np.float32), "b": b},)
        found = predict(draws, np.zeros((1, 1), np.float32), posterior, level=LEVEL)
        chance = 1 / (1 + np.exp(-truth))
        inside.append(bool(found.lower[0, 1] <= chance <= found.upper[0, 1]))
    yield covers("predict, classes", "90 % interval of a probability", "independent", inside)


def score_errors(runs):
    """score.std() / n**0.5, and the log score's error on the command line."""
    rng = np.random.default_rng(4)
    for n in (10, 100):
        score = stats.norm.logpdf(rng.normal(size=(runs, n)))
        error = score.std(axis=1, ddof=1) / np.sqrt(n)
        away = score.mean(axis=1) - stats.norm.logpdf(0) + 0.5
        law = f"normal log scores, {n} rows"
        yield stated_over_true("scores", "score.std(ddof=1) / n**0.5", law, error, away)
        told = [
            verdict.judge_numbers(_Units(), np.zeros(n), _Predicted(), _scored(one)).numbers[
                "log_score_standard_error"
            ]
            for one in score
        ]
        yield stated_over_true(FIT, "log_score_standard_error", law, told, away)


def bars(runs):
    """The bars of `plots.calibration`, and the sentences of the command line."""
    matplotlib.use("Agg")
    rng = np.random.default_rng(5)
    for n in (10, 50, 500):
        for chance in (0.5, 0.9, 0.98):
            counts = rng.binomial(n, chance, size=runs)
            axes = calibration(np.full(runs, chance), counts / n, counts=np.full(runs, n))
            low, high = np.array([s[:, 1] for s in _segments(axes)]).T
            inside = (low <= chance + 1e-9) & (chance - 1e-9 <= high)
            law = f"{n} data, probability {chance}"
            nominal = 2 * stats.norm.cdf(2) - 1
            yield share("plots.calibration", "bars", law, inside, nominal, 0.91, 0.99)
    for n in (10, 30, 100, 1000):
        for chance in (0.5, 0.9, 0.98):
            counts = rng.binomial(n, chance, size=2 * runs)
            said = [verdict.coverage_sentence(count / n, chance, n) for count in counts]
            wrong = ["too narrow by" in one or "wider than" in one for one in said]
            law = f"{n} rows, level {chance}"
            yield share(FIT, "intervals too narrow or too wide", law, wrong, 0.05, 0, 0.07)
            sure = [
                verdict.judge_classes(
                    _Classes(), np.zeros(n, int), *_confident(chance, n, count), np.full(2, 0.5)
                )
                for count in counts
            ]
            wrong = ["of itself" in one.sentences[-1] for one in sure]
            law = f"{n} rows, confidence {chance}"
            yield share(FIT, "too sure or too unsure", law, wrong, 0.05, 0, 0.07)


def calibration_errors(runs):
    """Expected calibration error of calibrated predictions over (bins / n)^(1/2)."""
    rng = np.random.default_rng(6)
    for n in (100, 10_000):
        found = []
        for _ in range(runs // 10):
            chance = rng.uniform(0.5, 1, size=n)
            probabilities = np.stack([1 - chance, chance], axis=1)
            labels = (rng.uniform(size=n) < chance).astype(int)
            found.append(expected_calibration_error(probabilities, labels) / np.sqrt(15 / n))
        note = "of this order: 0.1 to 1"
        yield share(
            "expected_calibration_error", "its size by chance", f"{n} data", found, 0, 0, 0, note
        )


def _segments(axes):
    (container,) = axes.containers
    return container[2][0].get_segments()


class _Units:
    y_sd, classes = 1.0, None


class _Classes:
    classes = ("a", "b")


class _Predicted:
    level = LEVEL


def _scored(score):
    zero = np.zeros_like(score)
    return jaxbnn.prediction.NumberScores(score, zero, zero + 0.5, zero + 1)


def _confident(chance, n, count):
    """Predictions of class 0 with one confidence, of which `count` are right."""
    probabilities = np.repeat([[chance, 1 - chance]], n, axis=0)
    correct = np.arange(n) < count
    found = jaxbnn.prediction.ClassScores(np.zeros(n), np.zeros(n), correct, probabilities)
    nothing = np.zeros(n)
    label = np.zeros(n, int)
    prediction = jaxbnn.prediction.ClassPrediction(
        probabilities, label, probabilities, probabilities, nothing, nothing, LEVEL
    )
    return prediction, found


MEASURES = {
    "predict": numbers,
    "predict, classes": classes,
    "score errors": score_errors,
    "bars": bars,
    "calibration error": calibration_errors,
}
