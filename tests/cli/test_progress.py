"""What the command tells while it works: at once, by phase, without silence, and never too late."""

import io
import os
import subprocess
import sys

import pytest

from jaxbnn.cli.progress import Progress, of_sampling, of_updates
from jaxbnn.dvi import FitProgress
from jaxbnn.sampling import Progress as Done


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(text):
    """What a terminal shows of a text: a carriage return goes to the start of the line."""
    lines = []
    for line in text.split("\n"):
        cells = ""
        for part in line.split("\r"):
            cells = part + cells[len(part) :]
        lines.append(cells.rstrip())
    return lines


def test_a_log_has_whole_lines_and_no_silence_beyond_three_seconds():
    clock, log = Clock(), io.StringIO()
    progress = Progress(log, clock=clock)
    progress.begin("compiling", "the sampler")
    last, lengths = 0.0, [len(log.getvalue())]
    while clock.now < 60:
        clock.now += 0.1
        progress.beat()
        if len(log.getvalue()) > lengths[-1]:
            lengths.append(len(log.getvalue()))
            assert clock.now - last <= 3.0
            assert log.getvalue()[-1] == "\n"
            last = clock.now
    assert clock.now - last <= 3.0
    assert len(lengths) < 35  # and a log is not flooded
    assert log.getvalue().startswith("compiling: the sampler ...\ncompiling, 2 s: the sampler\n")
    assert "\r" not in log.getvalue()


def test_what_was_told_puts_off_the_next_beat():
    clock, log = Clock(), io.StringIO()
    progress = Progress(log, clock=clock)
    progress.begin("reading")
    clock.now = 1.9
    progress.say("a sentence")
    clock.now = 3.0
    progress.beat()
    assert log.getvalue() == "reading ...\na sentence\n"


def test_a_terminal_has_one_line_that_changes():
    clock, screen = Clock(), Terminal()
    progress = Progress(screen, clock=clock)
    with progress:
        progress.begin("compiling")
        clock.now = 1.0
        progress.beat()
        assert shown(screen.getvalue()) == ["compiling, 1 s"]
        progress.say("a sentence")
        progress.begin("sampling")
        clock.now = 3.0
        progress.tell("sampling", "draws, 30 %")
        progress.beat()
        assert shown(screen.getvalue())[-1] == "sampling, 2 s: draws, 30 %"
    expected = ["a sentence", "compiling: 1.0 s", "sampling: 2.0 s", ""]
    assert shown(screen.getvalue()) == expected


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_nothing_is_told_after_a_failure(stream):
    clock, log = Clock(), stream()

    def fail():
        with progress:
            progress.begin("reading")
            raise ValueError("no")

    progress = Progress(log, clock=clock)
    with pytest.raises(ValueError, match="no"):
        fail()
    before = log.getvalue()
    clock.now = 100.0
    progress.beat()
    progress.say("late")
    progress.tell("sampling", "late")
    assert log.getvalue() == before
    assert shown(before)[-1] == ""  # what comes next has a line of its own
    assert not progress._thread.is_alive()


def test_a_reader_that_has_gone_ends_nothing():
    log = io.StringIO()
    progress = Progress(log)
    log.close()
    progress.begin("reading")


def test_the_thread_beats():
    class Beaten(Progress):
        beats = 0

        def beat(self):
            self.beats += 1
            if self.beats == 3:
                self._ended.set()

    with Beaten(io.StringIO()) as progress:
        progress._thread.join(60)
    assert progress.beats == 3
    with Beaten(io.StringIO(), is_quiet=True) as progress:
        assert progress._thread is None


def test_sampling_has_been_compiled_when_its_first_chunk_is_told():
    clock, log = Clock(), io.StringIO()
    progress = Progress(log, clock=clock)
    report = of_sampling(progress)
    progress.begin("compiling")
    for phase, done in (("warm-up", 10), ("warm-up", 20), ("sampling", 5), ("sampling", 20)):
        report(Done(phase, done, 20, 1.0, 3700.0, None))
        clock.now += 3.0
        progress.beat()
    assert log.getvalue().splitlines() == [
        "compiling ...",
        "sampling: warm-up, 50 % ...",
        "sampling, 3 s: warm-up, 50 %",
        "compiling: the draws after the warm-up ...",
        "compiling, 3 s: the draws after the warm-up",
        "sampling: draws, 25 % ...",
        "sampling, 3 s: draws, 25 %",
        "sampling, 6 s: draws, 100 %, 1:01:40 left",
    ]


def test_the_warm_up_of_a_later_part_compiles_nothing():
    log = io.StringIO()
    report = of_sampling(Progress(log, clock=Clock()))
    for phase, done in (("warm-up", 20), ("sampling", 20), ("warm-up", 20), ("sampling", 10)):
        report(Done(phase, done, 20, 1.0, 3700.0, None))
    assert log.getvalue().splitlines() == [
        "sampling: warm-up, 100 % ...",
        "compiling: the draws after the warm-up ...",
        "sampling: draws, 100 % ...",
    ]


def test_the_first_chunk_of_a_later_part_has_no_time_left_yet():
    clock, log = Clock(), io.StringIO()
    progress = Progress(log, clock=clock)
    report = of_sampling(progress)
    for done, left in ((10, 60.0), (1, float("nan")), (9, 60.0)):
        report(Done("sampling", done, 20, 1.0, left, None))
        clock.now += 3.0
        progress.beat()
    assert log.getvalue().splitlines() == [
        "sampling: draws, 50 % ...",
        "sampling, 3 s: draws, 50 %",
        "sampling, 6 s: draws, 5 %",
        "sampling, 9 s: draws, 45 %, 1:00 left",
    ]


def test_training_is_told_as_training_and_what_follows_is_compiled():
    log = io.StringIO()
    report = of_sampling(Progress(log, clock=Clock()))
    for phase, done in (("training", 10), ("training", 20), ("warm-up", 10)):
        report(Done(phase, done, 20, 1.0, 3700.0, None))
    assert log.getvalue().splitlines() == [
        "training networks: training, 50 % ...",
        "compiling: the sampler ...",
        "sampling: warm-up, 50 % ...",
    ]


def test_updates_tell_how_long_they_will_take():
    clock, log = Clock(), io.StringIO()
    progress = Progress(log, clock=clock)
    report = of_updates(progress)
    report(FitProgress(10, 100, 30.0, None, None))
    report(FitProgress(20, 100, 32.0, None, None))
    clock.now = 4.0
    progress.beat()
    assert log.getvalue() == "sampling: 10 % ...\nsampling, 4 s: 20 %, 0:16 left\n"


def test_a_process_that_fails_ends_with_its_sentence(tmp_path):
    data = tmp_path / "data.csv"
    data.write_text("x,y\n" + "".join(f"{i},7\n" for i in range(20)))
    command = [sys.executable, "-m", "jaxbnn", "fit", str(data), "--target", "y"]
    # Of programs that it takes from a cache XLA may tell on stderr.
    environment = {**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "false"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "reading: data.csv ...",
        "error: the target 'y' is 7 in every row; nothing to learn.",
    ]
    done = subprocess.run([*command, "--quiet"], capture_output=True, text=True, env=environment)
    assert done.stderr.startswith("error:")
