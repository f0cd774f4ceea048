"""Standard errors and effective sample sizes of series whose errors are known."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats
from scipy.signal import lfilter

from jaxbnn import batch_means
from jaxbnn.diagnostics import (
    bennett_acceptance_ratio,
    ess_bulk,
    ess_geyer,
    ess_tail,
    ess_tfp,
    mcse,
    multivariate_ess,
    summary,
    thermodynamic_integration,
)
from tests.diagnostics.covariance_laws import Law, _skewed
from tests.diagnostics.null_rows import covers, stated_over_true

CHAINS = 4
FEW = "nothing: ESS below 100 a chain, of which `summary` warns"
# Draws a chain, and whether these are enough for `summary` not to warn.
LAWS = {
    "normal, independent": (Law(0.0), 1000, ""),
    "normal, AR(1), -0.5": (Law(-0.5), 1000, ""),
    "normal, AR(1), 0.5": (Law(0.5), 1000, ""),
    "normal, AR(1), 0.9": (Law(0.9), 1000, FEW),
    "normal, AR(1), 0.9, 4 x 4000": (Law(0.9), 4000, ""),
    "exponential, AR(1), 0.5": (Law(0.5, _skewed), 1000, ""),
}


def chains(law, length, runs):
    """Draws (chain, draw, data set), of a seed of their own."""
    rng = np.random.default_rng([length, runs, round(100 * law.autoregression) + 100])
    return law.draw(rng, (CHAINS, length, runs)).astype(np.float32)


def monte_carlo_errors(runs):
    """`mcse` of the mean, the standard deviation and two quantiles; `summary` has the first two."""
    for name, (law, length, note) in LAWS.items():
        draws = chains(law, length, runs)
        pooled = draws.reshape(-1, runs).astype(float)
        wrong = {"mean": pooled.mean(axis=0), "sd": pooled.std(axis=0, ddof=1) - 1}
        for of, error in wrong.items():
            stated = np.asarray(mcse(draws, of))
            yield from _both(f"mcse of the {of}", name, stated, error, note)
        for probability in (0.05, 0.5):
            truth = float(law.transform(stats.norm.ppf(probability)))
            error = np.quantile(pooled, probability, axis=0) - truth
            stated = np.asarray(mcse(draws, "quantile", probability))
            yield from _both(f"mcse of the {probability:.0%} quantile", name, stated, error, note)
    draws = chains(Law(0.5), 1000, runs)
    table = summary(draws)
    yield stated_over_true(
        "summary", "mcse_mean", "normal, AR(1), 0.5", table.mcse_mean, table.mean
    )
    yield stated_over_true("summary", "mcse_sd", "normal, AR(1), 0.5", table.mcse_sd, table.sd - 1)


def _both(function, law, stated, error, note):
    yield stated_over_true(function, "error", law, stated, error, note)
    inside = np.abs(error) < stats.norm.ppf(0.95) * stated
    yield covers(function, "1.645 errors", law, inside, note)


def effective_sample_sizes(runs):
    """1 / sqrt(ESS), the error that it stands for, over that of the mean of 0/1 or of the draws."""
    for name, (law, length, note) in LAWS.items():
        draws = chains(law, length, runs)
        mean = draws.mean(axis=(0, 1), dtype=float)
        sizes = {
            "ess_bulk": ess_bulk(draws),
            "ess_geyer": jnp.sum(ess_geyer(draws), axis=0),
            "ess_tfp": jnp.sum(ess_tfp(draws), axis=0),
        }
        for function, size in sizes.items():
            why = note
            if function == "ess_bulk" and law.transform is _skewed:
                # Of the ranks, to which the normal chain gives these numbers.
                mean = stats.norm.isf(np.exp(-draws.astype(float) - 1)).mean(axis=(0, 1))
            if function == "ess_tfp" and law.autoregression < 0:
                why = "nothing: it says that it cannot exceed the draws"
            yield stated_over_true(function, "1 / sqrt(ESS)", name, size**-0.5, mean, why)
            mean = draws.mean(axis=(0, 1), dtype=float)
        size = np.asarray(ess_tail(draws))
        for probability in (0.05, 0.95):
            at = float(law.transform(stats.norm.ppf(probability)))
            error = (draws <= at).mean(axis=(0, 1)) - probability
            sd = np.sqrt(probability * (1 - probability))
            yield stated_over_true(
                f"ess_tail, {probability:.0%}", "1 / sqrt(ESS)", name, size**-0.5, error / sd, note
            )
        yield from _multivariate(name, law, length, max(50, runs // 5), note)


def _multivariate(name, law, length, runs, note):
    dim = 5
    draws = chains(law, length, dim * runs).reshape(CHAINS, length, runs, dim)
    size = jax.lax.map(multivariate_ess, jnp.moveaxis(jnp.asarray(draws), 2, 0))
    errors = np.repeat(np.asarray(size)[:, None] ** -0.5, dim, axis=1)
    truth = draws.mean(axis=(0, 1), dtype=float)
    yield stated_over_true("multivariate_ess", "1 / sqrt(ESS)", name, errors, truth, note)


def batches(runs):
    """The reducer's standard error, at a batch five autocorrelation times long or more."""
    size = 100
    reducer = batch_means(size)

    @jax.jit
    def run(draws):
        def one_chain(chain):
            start = reducer.init(chain[0])
            return jax.lax.scan(lambda r, x: (reducer.update(r, x), None), start, chain)[0]

        merged = one_chain(draws[0])
        for chain in draws[1:]:
            merged = reducer.merge(merged, one_chain(chain))
        return reducer.finalise(merged)

    for name, (law, length, _) in LAWS.items():
        found = run(chains(law, length, runs))
        error, mean = np.asarray(found.standard_error), np.asarray(found.mean)
        yield stated_over_true("batch_means(100)", "standard_error", name, error, mean)
        bound = stats.t.ppf(0.95, int(found.num_batches) - 1)
        yield covers("batch_means(100)", "Student's t", name, np.abs(mean) < bound * error)


def evidence(runs):
    """Thermodynamic integration and Bennett's ratio on a conjugate model, exact draws."""
    runs = max(50, runs // 2)
    for rungs in (5, 16):
        for phi in (0.0, 0.5, 0.9):
            draws, ladder, exact = _tempered(rungs, phi, runs)
            for estimate in (thermodynamic_integration, bennett_acceptance_ratio):
                found = jax.lax.map(lambda one, e=estimate, t=ladder: e(one, t), draws)
                error = np.asarray(found.log_evidence) - exact
                stated = np.asarray(found.standard_error)
                name = estimate.__name__
                law = f"{rungs} rungs, " + (f"AR(1), {phi:g}" if phi else "independent")
                yield stated_over_true(name, "standard_error", law, stated, error)
                inside = np.abs(error) < stats.norm.ppf(0.95) * stated
                if name.startswith("bennett") or rungs == 16:
                    yield covers(name, "1.645 errors", law, inside)


def _tempered(rungs, phi, runs):
    """Log likelihoods (data set, chain, draw, rung), of weights AR(1) about the posterior."""
    rng = np.random.default_rng([rungs, round(10 * phi)])
    length = 4000 if phi > 0.8 else 250
    runs = runs // 4 if phi > 0.8 else runs
    precision = 3.0
    x, y = rng.normal(size=(7, 2)), rng.normal(size=7)
    exact = stats.multivariate_normal.logpdf(y, np.zeros(7), x @ x.T + np.eye(7) / precision)
    ladder, columns = np.linspace(0, 1, rungs) ** 3, []
    for t in ladder:
        root = np.linalg.cholesky(np.linalg.inv(np.eye(2) + t * precision * x.T @ x))
        noise = rng.standard_normal((runs, CHAINS, length, 2), dtype=np.float32)
        noise[:, :, 0] /= np.sqrt(1 - phi**2)
        z = lfilter([1.0], [1.0, -phi], np.sqrt(1 - phi**2) * noise, axis=2)
        w = root @ root.T @ (t * precision * x.T @ y) + z @ root.T
        squares = ((y - w @ x.T) ** 2).sum(axis=-1)
        columns.append((7 * np.log(precision / 2 / np.pi) - precision * squares) / 2)
    return np.stack(columns, axis=-1).astype(np.float32), ladder, exact


MEASURES = {
    "mcse": monte_carlo_errors,
    "ess": effective_sample_sizes,
    "batch_means": batches,
    "evidence": evidence,
}
