"""Tests of sampling.store.progressed: a finished or stopped run made longer is the longer run,
bit for bit; nothing else may change.
"""

import shutil

import blackjax
import jax
import numpy as np
import pytest

import jaxbnn
from jaxbnn.sampling import open_draws
from tests.sampling.small_run import STARTS, run, same, stop_after
from tests.sampling.tiny import ar

PLAIN = {"adapt": None, "parameters": None, "data": None, "kernel": ar(), "starts": STARTS["w"]}
THINNED = PLAIN | {"thinning": 3, "num_warmup": 10}
SCHEDULE = np.cumsum(np.arange(1, 101) % 7 + 1)
# Of 40 draws the last chunk of 6 has 4.
CASES = {
    "every step": {},
    "thinned": THINNED,
    "nothing collected": PLAIN | {"num_warmup": 0, "collect": None},
    "chunks longer than the run": PLAIN | {"chunk_size": 50},
}


SHORT = [("every step", 5), ("thinned", None)]
ALL = [(name, stop) for name in CASES for stop in (None, 3, 5)]


@pytest.mark.short("thinned-None")
@pytest.mark.parametrize(
    ("name", "stop"),
    SHORT + [pytest.param(*case, marks=pytest.mark.long) for case in ALL if case not in SHORT],
)
def test_a_longer_run_goes_on(tmp_path, name, stop):
    options = CASES[name] | ({"chunk_size": 6} if stop and "chunks" in name else {})
    first = run(tmp_path, stop_after(stop) if stop else False, num_samples=40, **options)
    assert first.interrupted == bool(stop)
    before = sorted(path.name for path in tmp_path.glob("draws-*.nc"))
    longer = run(tmp_path, num_samples=70, **options)
    # A run shorter than its chunk keeps chunks of its own length.
    whole = options | ({"chunk_size": 40} if options.get("chunk_size") == 50 else {})
    same(longer, run(None, num_samples=70, **whole))
    same(open_draws(tmp_path), longer)
    assert set(before) < {path.name for path in tmp_path.glob("draws-*.nc")}
    same(run(tmp_path, num_samples=70, **options), longer)


@pytest.mark.long
def test_a_schedule_is_continued(tmp_path):
    options = PLAIN | {"num_warmup": 0}
    whole = run(None, num_samples=100, thinning=SCHEDULE, **options)
    for number in (20, 57, 100):
        draws = run(tmp_path, num_samples=number, thinning=SCHEDULE[:number], **options)
    same(draws, whole)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    run(folder, num_samples=10)
    return folder


def other_kernel(parameters, data):
    return blackjax.mala(lambda x: -(x["w"] ** 2).sum(), 2 * parameters["step_size"])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"num_samples": 8}, "belongs to a run of 10 draws, but num_samples is 8; ask for as many"),
        ({"num_warmup": 129}, "another num_warmup; "),
        ({"thinning": 2}, "another thinning; "),
        ({"thinning": [*range(1, 11), 12, 14]}, "another thinning; "),
        ({"thinning": [*range(1, 10), 11, 12, 13]}, "another thinning; "),
        ({"chunk_size": 4}, "another chunk_size; "),
        ({"data": np.zeros(1, np.float32)}, "another data set; "),
        ({"key": jax.random.key(11, impl="rbg")}, "another key; "),
        ({"kernel": other_kernel}, r"another program \(kernel, adapt, collect or reduce\); "),
        ({"num_warmup": 64, "thinning": 2}, "another num_warmup and another thinning; "),
    ],
    # No address of a function: pytest's workers must find the same names.
    ids=lambda value: " and ".join(value) if isinstance(value, dict) else "",
)
def test_a_refusal_names_only_what_differs(finished, tmp_path, changed, message):
    folder = shutil.copytree(finished, tmp_path / "run")
    with pytest.raises(ValueError, match=message):
        run(folder, **{"num_samples": 12} | changed)
    assert len(open_draws(folder).steps) == 10


@pytest.mark.long
def test_acceptance_rates_do_not_depend_on_chunks_and_keep_their_precision():
    """A plain float32 sum of these rates is off by 1e-6; chunks of any size give the same bits."""
    key, starts = jax.random.key(0), np.zeros((2, 3), np.float32)
    rates = [
        jaxbnn.sample(
            key, KERNEL, starts, number, thinning=thinning, chunk_size=size, progress=False
        ).acceptance_rate
        for number, thinning, size in (
            (40, 500, 40), (40, 500, 7), (20_000, 1, 6_000), (20_000, 1, 20_000),
        )
    ]  # fmt: skip
    for thinned, every in (rates[:2], rates[2:]):
        assert thinned.tobytes() == every.tobytes()
    np.testing.assert_allclose(rates[0], rates[2], rtol=1e-11)


KERNEL = ar()
