"""Tests of sampling.progress and sampling.session: progress as it is told, and what Ctrl-C
leaves.
"""

import functools
import signal

import jax
import numpy as np
import pytest

import jaxbnn
from jaxbnn.sampling import Progress, format_progress
from jaxbnn.sampling import progress as progress_module
from jaxbnn.sampling.store.folder import Folder
from jaxbnn.sampling.store.memory import Memory
from jaxbnn.sampling.store.progressed import SAMPLING
from tests.sampling.tiny import ar

KEY = jax.random.key(5)
STARTS = np.array([[0.0, 1.0], [-4.0, 2.0]], np.float32)


def make_kernel(parameters, data):
    return ar(parameters["shrink"])


@pytest.fixture(autouse=True)
def interruptible():
    """As at a terminal: what a shell script starts in the background ignores Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


ADAPT = jaxbnn.schedule(lambda t: {"shrink": 0.5})
REDUCE = {"m": jaxbnn.moments()}


def run(progress, **options):
    options = {"num_warmup": 20, "chunk_size": 10, "adapt": ADAPT, "reduce": REDUCE} | options
    return jaxbnn.sample(
        KEY, make_kernel, STARTS, 35, parameters={"shrink": 0.5}, progress=progress, **options
    )


@functools.cache
def whole():
    return run(False)


def stop_at(phase, done):
    def report(progress):
        if progress.phase == phase and progress.done >= done:
            raise KeyboardInterrupt

    return report


def test_progress_rises_to_the_total():
    seen = []
    draws = run(seen.append)
    assert all(isinstance(progress, Progress) for progress in seen)
    assert [p.phase for p in seen] == sorted((p.phase for p in seen), reverse=True)
    for phase, total in (("warm-up", 20), ("sampling", 35)):
        of_phase = [p for p in seen if p.phase == phase]
        done = [p.done for p in of_phase]
        assert done == sorted(set(done))
        assert done[-1] == total
        assert {p.total for p in of_phase} == {total}
        assert all(p.steps_per_second > 0 for p in of_phase)
        assert np.isnan(of_phase[0].seconds_left)
        assert all(p.seconds_left >= 0 for p in of_phase[1:])
        assert of_phase[-1].seconds_left == 0
        assert all(0 < p.acceptance_rate < 1 for p in of_phase)
    assert [p.done for p in seen if p.phase == "sampling"] == [10, 20, 30, 35]
    assert seen[-1].acceptance_rate == pytest.approx(draws.acceptance_rate.mean(), rel=1e-6)


@pytest.mark.parametrize("begun", [0, 400])
def test_rates_leave_out_what_another_process_did(monkeypatch, begun):
    now, seen = [5.0], []
    monkeypatch.setattr(progress_module.time, "perf_counter", lambda: now[0])
    clock = progress_module.Clock("sampling", 1000, 2, seen.append, begun)
    for done in (10, 30, 70):
        now[0] += 20.0
        clock.tick(begun + done, None)
    # 10 steps in 20 seconds; from then on without the first chunk.
    assert [p.steps_per_second for p in seen] == pytest.approx([1.0, 2.0, 3.0])
    assert np.isnan(seen[0].seconds_left)  # it compiled
    assert seen[1].seconds_left == pytest.approx((970 - begun) / 1.0)


def test_a_phase_of_one_chunk_has_nothing_left():
    seen = []
    progress_module.Clock("sampling", 10, 2, seen.append).tick(10, None)
    assert seen[0].seconds_left == 0.0
    assert "0:00 left" in format_progress(seen[0])


def test_no_time_is_told_before_it_is_known():
    first = Progress("sampling", 1, 2000, 0.05, float("nan"), 0.5)
    assert format_progress(first) == "sampling   0% | 1/2,000 steps | acceptance 0.500"


@pytest.mark.parametrize("done", [1, 20, 30])
def test_ctrl_c_keeps_what_was_drawn(done):
    draws = run(stop_at("sampling", done))
    num = -(-done // 10) * 10
    assert draws.interrupted
    assert draws.steps.tolist() == list(range(1, num + 1))
    np.testing.assert_array_equal(draws.positions, whole().positions[:, :num])
    rates = whole().infos.acceptance_rate[:, :num]
    np.testing.assert_array_equal(draws.infos.acceptance_rate, rates)
    np.testing.assert_allclose(draws.acceptance_rate, np.nan_to_num(rates).mean(1), rtol=1e-5)
    np.testing.assert_array_equal(draws.final_state.position, draws.positions[:, -1])
    moments = draws.reduced["m"].per_chain
    assert moments.num_draws.tolist() == [num] * 2
    np.testing.assert_allclose(moments.mean, draws.positions.mean(1), rtol=1e-4)


def test_ctrl_c_of_a_thinned_run_names_the_right_steps():
    draws = run(stop_at("sampling", 25), thinning=3, chunk_size=5)
    assert draws.interrupted
    assert draws.steps.tolist() == list(range(3, 31, 3))
    assert draws.positions.shape == (2, 10, 2)


def test_ctrl_c_inside_a_long_gap_keeps_the_draws_before_it():
    schedule = [2, 4, 25_004, *range(25_005, 25_037)]
    draws = run(stop_at("sampling", 10_000), thinning=schedule, chunk_size=3)
    assert draws.interrupted
    assert draws.steps.tolist() == [2, 4]
    assert draws.positions.shape == (2, 2, 2)
    assert draws.reduced["m"].pooled.num_draws == 4
    np.testing.assert_allclose(draws.positions, whole().positions[:, [1, 3]], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("adapt", [ADAPT, None], ids=["adapting", "burning in"])
def test_ctrl_c_in_warm_up_leaves_a_state_to_go_on_from(adapt):
    draws = run(stop_at("warm-up", 1), adapt=adapt)
    assert draws.interrupted
    assert draws.positions is None
    assert draws.steps.shape == (0,)
    assert draws.reduced == {}
    assert np.isnan(draws.acceptance_rate).all()
    assert draws.final_state.position.shape == (2, 2)
    assert draws.parameters["shrink"].tolist() == [0.5, 0.5]
    with pytest.raises(ValueError, match="no kept draws"):
        jaxbnn.complete(KEY, draws, lambda key, x: x)


def test_other_exceptions_of_the_reporter_are_not_swallowed():
    def report(progress):
        raise RuntimeError("the reporter's own")

    with pytest.raises(RuntimeError, match="the reporter's own"):
        run(report)


def test_one_line_of_text():
    progress = Progress("warm-up", 12_000, 48_000, 1234.5, 125.4, 0.2345)
    assert format_progress(progress) == (
        " warm-up  25% | 12,000/48,000 steps | 1,234 steps/s | 2:05 left | acceptance 0.234"
    )
    line = format_progress(progress._replace(phase="sampling", acceptance_rate=None))
    assert line.startswith("sampling  25% |")
    assert line.endswith("2:05 left")


def test_without_a_terminal_a_phase_is_one_line(capsys):
    run(True)
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert captured.out == ""
    assert len(lines) == 2
    assert lines[0].startswith(" warm-up 100% | 20/20 steps")
    assert lines[1].startswith("sampling 100% | 35/35 steps")
    run(False)
    assert capsys.readouterr().err == ""


def interrupting(monkeypatch, store, where, times=1):
    """Let Ctrl-C be pressed while the draws of the second chunk are kept."""
    method, seen = getattr(store, where), []

    def press(self, *arguments):
        if where == "add_draws" or arguments[0].phase == SAMPLING:
            seen.append(where)
            if len(seen) == 2:
                for _ in range(times):
                    signal.raise_signal(signal.SIGINT)
        return method(self, *arguments)

    monkeypatch.setattr(store, where, press)


@pytest.mark.parametrize("where", ["add_draws", "publish"])
@pytest.mark.parametrize("kind", ["memory", "folder", "lazy"])
def test_ctrl_c_while_draws_are_kept_waits_until_they_are(where, kind, tmp_path, monkeypatch):
    options = {} if kind == "memory" else {"checkpoint": tmp_path / "run", "lazy": kind == "lazy"}
    interrupting(monkeypatch, Memory if kind == "memory" else Folder, where)
    found, rates = run(False, **options), whole().infos.acceptance_rate[:, :20]
    assert found.interrupted
    np.testing.assert_array_equal(np.asarray(found.positions), whole().positions[:, :20])
    np.testing.assert_array_equal(found.steps, np.arange(1, 21))
    np.testing.assert_allclose(found.acceptance_rate, np.nan_to_num(rates).mean(1), rtol=1e-6)
    assert found.reduced["m"].pooled.num_draws == 40
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_ctrl_c_does_not_wait(monkeypatch):
    interrupting(monkeypatch, Memory, "add_draws", times=2)
    found = run(False)
    assert found.interrupted
    assert len(found.steps) == 10
