"""Diagnostics of draws and ladders that once gave a wrong number, or no word, where one was due."""

import numpy as np
from hypothesis import strategies as st

import jaxbnn
from jaxbnn import diagnostics
from tests.diagnostics.covariance_laws import Law
from tests.kit.hostile import Call

CHAINS, DRAWS = 4, 400
# A correct p-value lies below this once in 1.7 million sets.
SMALLEST_P_VALUE = 6e-7


def _normal(seed, shape, phi=0.0):
    """Return stationary AR(1) draws (chain, draw, coordinate) of variance one."""
    return Law(phi).draw(np.random.default_rng(seed), shape).astype(np.float32)


# --- Draws that are copies of others: the summary says so.


def _copied(what, lag, sign, seed):
    draws = _normal(seed, (CHAINS, DRAWS, 2))
    half = DRAWS // 2
    if what == "one chain of another":
        draws[1, : DRAWS - lag] = sign * draws[0, lag:]
    elif what == "all chains of one":
        draws[1:] = sign * draws[:1]
    elif what == "coordinates in another order":
        draws[2] = sign * draws[3][:, ::-1]
    elif what == "second halves of the first":
        draws[:, half:] = draws[:, :half]
    else:  # one chain, a later part of an earlier
        draws[3, half + lag :] = sign * draws[3, : half - lag]
    said = " ".join(jaxbnn.summary(draws).warnings)
    assert "copies of" in said or "repeat" in said, said
    return draws.mean()


def _frozen(what, seed):
    draws = _normal(seed, (CHAINS, DRAWS, 2))
    rate = np.full((CHAINS, DRAWS), 0.5)
    if what == "an acceptance that is NaN":
        rate[0, seed % DRAWS] = np.nan
        words = "NaN", "not a number", "acceptance"
    else:  # a coordinate that no chain changes, beside a frozen chain
        draws[..., 1] = 1.0
        draws[0] = draws[0, :1]
        words = ("never changed",)
    said = " ".join(jaxbnn.summary(draws, acceptance_rate=rate).warnings)
    assert any(word in said for word in words), said
    return draws.mean()


# --- A p-value that is one, or a sentence.


def _agreement(dim, length, phi, mode, seed):
    draws = _normal(seed, (CHAINS, length, dim), phi)
    references = {
        "between chains": None,
        "against a matrix": np.eye(dim, dtype=np.float32),
        "against draws": _normal(seed + 1, (CHAINS, length, dim)),
    }
    found = diagnostics.covariance_agreement(draws, references[mode])
    assert found.p_value > SMALLEST_P_VALUE, found.p_value
    return found.p_value


# --- A stated error that holds the true one.


def _ladder(rungs, dim, variance, seed):
    """Thermodynamic integration of y = x + N(0, variance) with x ~ N(0, 1), from exact draws."""
    rng = np.random.default_rng(seed)
    y = rng.normal(size=dim) * np.sqrt(1 + variance)
    t = np.linspace(0, 1, rungs) ** 3
    precision = 1 + t / variance
    mean = t / variance / precision * y[:, None]
    x = mean + rng.normal(size=(CHAINS, DRAWS, dim, rungs)) / np.sqrt(precision)
    errors = (y[:, None] - x) ** 2 / variance + np.log(2 * np.pi * variance)
    found = diagnostics.thermodynamic_integration(-errors.sum(axis=2) / 2, t)
    exact = -np.sum(y**2 / (1 + variance) + np.log(2 * np.pi * (1 + variance))) / 2
    off = abs(float(found.log_evidence) - exact)
    assert off < 6 * float(found.standard_error) + 1e-4 * abs(exact), (off, found.standard_error)
    return found.log_evidence


def _make(function, words):
    def make(choice):
        options, seed = choice
        name, kind = words(*options)
        return seed, Call(name, kind, lambda: function(*options, seed), None, "infinite")

    return make


def _family(function, words, *choices):
    return st.tuples(st.tuples(*map(st.sampled_from, choices)), st.integers(0, 2**31 - 2)).map(
        _make(function, words)
    )


COPIES = (
    "one chain of another",
    "all chains of one",
    "coordinates in another order",
    "second halves of the first",
    "a later part of an earlier",
)
STUCK = ("an acceptance that is NaN", "a coordinate that never moves")
FAMILIES = {
    "copies among draws": _family(
        _copied,
        lambda what, lag, sign: ("summary", f"{what}, times {sign}"),
        COPIES,
        (0, 1, 7, 50),
        (1, -1),
    ),
    "draws that do not move": _family(_frozen, lambda what: ("summary", what), STUCK),
    "p-values of covariances": _family(
        _agreement,
        lambda dim, length, phi, mode: (
            f"covariance_agreement, {dim} coordinates, {length} draws",
            f"{mode}, phi = {phi}",
        ),
        (2, 10, 27),
        (40, 200, 1000),
        (0.0, 0.5, 0.9),
        ("between chains", "against a matrix", "against draws"),
    ),
    "errors of evidence": _family(
        _ladder,
        lambda rungs, dim, variance: (
            f"thermodynamic_integration, {rungs} rungs",
            f"{dim} data of variance {variance}",
        ),
        (3, 5, 8, 16),
        (1, 10, 50),
        (0.01, 0.1, 1.0),
    ),
}
