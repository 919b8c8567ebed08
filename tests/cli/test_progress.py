"""Progress on a terminal and in a log file."""

from __future__ import annotations

import io
import logging
import re
from dataclasses import replace

import pytest
from rich.console import Console

from sweeper.cli.progress import ABOVE_DISPLAY, LineProgress, LiveProgress, open_progress, transition_text
from sweeper.ids import TrialNumber
from sweeper.model.progress import RunningTrial, SearchProgress, SweepProgress, Transition
from sweeper.model.states import AttemptOutcome, TrialState

SNAPSHOT = SweepProgress(
    name="digits",
    counts={TrialState.COMPLETED: 4, TrialState.RUNNING: 2, TrialState.PENDING: 6},
    running=(
        RunningTrial(
            number=TrialNumber(4),
            worker="host/1a2b",
            step=120,
            last_value=0.1634,
            checkpoint_age_s=3.2,
            attempt=2,
        ),
        RunningTrial(
            number=TrialNumber(5), worker="host/3c4d", step=0, last_value=None, checkpoint_age_s=None, attempt=1
        ),
    ),
    evictions=1,
    not_requested=2,
)
STARTED = Transition(number=TrialNumber(4), state=TrialState.RUNNING, attempt=2, step=60, overrides=("lr=0.1",))
EVICTED = Transition(
    number=TrialNumber(4),
    state=TrialState.PENDING,
    outcome=AttemptOutcome.EVICTED,
    reason="SIGTERM",
    attempt=2,
    step=120,
)
COMPLETED = Transition(
    number=TrialNumber(4), state=TrialState.COMPLETED, outcome=AttemptOutcome.COMPLETED, step=184, value=0.125
)


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_each_transition_is_one_line() -> None:
    assert transition_text(STARTED) == "trial 4 (lr=0.1) running, attempt 2, resumed from step 60"
    assert transition_text(EVICTED) == "trial 4 pending: attempt 2 evicted at step 120, SIGTERM"
    assert transition_text(COMPLETED) == "trial 4 completed at step 184: 0.125"


def test_without_a_terminal_there_is_one_plain_line_per_transition_however_long() -> None:
    console = Console(file=io.StringIO(), width=40)
    sink = LineProgress(console)
    long = Transition(number=TrialNumber(1), state=TrialState.RUNNING, attempt=1, overrides=("x" * 300,))
    for event in (STARTED, long, COMPLETED):
        sink.transition(event)
    sink.turn(SNAPSHOT)
    sink.note("nothing to train: all 12 trials are complete")
    sink.close()
    lines = written(console).splitlines()
    assert len(lines) == 4
    assert all(line.startswith("sweeper: ") for line in lines)
    assert "\x1b" not in written(console)


def test_the_display_shows_states_workers_steps_values_checkpoints_and_evictions() -> None:
    console = terminal()
    sink = LiveProgress(console)
    sink.turn(SNAPSHOT)
    sink.close()
    text = written(console)
    for expected in ("digits", "4/12", "4 completed", "2 running", "6 pending", "1 eviction,", "2 not requested"):
        assert expected in text
    for expected in ("host/1a2b", "120", "0.1634", "3 s ago", "none yet"):
        assert expected in text


def test_the_display_tells_of_interruptions_above_it_and_keeps_quiet_about_the_rest() -> None:
    console = terminal()
    sink = LiveProgress(console)
    sink.turn(SNAPSHOT)
    for event in (STARTED, EVICTED, COMPLETED):
        sink.transition(event)
    sink.close()
    assert "evicted at step 120" in written(console)
    assert "completed at step" not in written(console)


def screen(text: str, rows: int = 40, columns: int = 100) -> list[str]:
    """Give what a terminal shows after `text`: line feeds return, and the few control sequences of ours are obeyed."""
    lines, row, column = [" " * columns] * rows, 0, 0
    for part in re.findall(r"\x1b\[\d*[A-Z]|.", text, flags=re.DOTALL):
        match part:
            case "\n":
                row, column = row + 1, 0
            case "\r":
                column = 0
            case "\x1b[J":
                lines[row:] = [lines[row][:column].ljust(columns), *[" " * columns] * (rows - row - 1)]
            case _ if part.startswith("\x1b["):
                assert part.endswith("A"), part
                row -= int(part[2:-1])
                assert row >= 0
            case _:
                lines[row] = lines[row][:column] + part + lines[row][column + 1 :]
                column += 1
    return [line.rstrip() for line in lines if line.strip()]


def test_what_other_processes_write_stays_above_the_display_and_whole() -> None:
    console = terminal()
    sink = LiveProgress(console)
    sink.turn(SNAPSHOT)
    record = logging.LogRecord("sweeper", logging.ERROR, "", 0, "trial 1 failed\nTraceback\nValueError", None, None)
    console.file.write(ABOVE_DISPLAY + logging.Formatter().format(record) + "\n")
    sink.turn(SNAPSHOT)
    sink.transition(EVICTED)
    sink.note("leaving")
    sink.turn(SNAPSHOT)
    shown = screen(written(console))
    assert shown[:3] == ["trial 1 failed", "Traceback", "ValueError"]
    assert shown[3].startswith("trial 4 pending")
    assert shown[4] == "leaving"
    assert [line.split()[0] for line in shown[5:]] == ["digits", "6", "worker", "host/1a2b", "host/3c4d"], shown
    sink.close()
    assert screen(written(console) + "$ prompt") == [*shown, "$ prompt"], "the last picture stays"


def test_a_display_that_is_higher_or_wider_than_the_terminal_is_cut() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=30, height=4, color_system=None)
    sink = LiveProgress(console)
    sink.turn(SNAPSHOT)
    sink.turn(SNAPSHOT)
    shown = screen(written(console), rows=4, columns=30)
    assert len(shown) == 3
    assert all(len(line) <= 30 for line in shown)


def test_a_long_list_of_workers_is_cut() -> None:
    console = terminal()
    running = tuple(
        RunningTrial(number=TrialNumber(n), worker=f"w{n}", step=0, last_value=None, checkpoint_age_s=None, attempt=1)
        for n in range(40)
    )
    sink = LiveProgress(console)
    sink.turn(SweepProgress(name="big", counts={TrialState.RUNNING: 40}, running=running, evictions=0))
    sink.close()
    assert "28 more" in written(console)


def test_the_stream_decides_which_display_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(open_progress(Console(file=io.StringIO())), LineProgress)
    assert isinstance(open_progress(terminal()), LiveProgress)


def test_a_search_shows_its_best_trial_and_how_much_it_may_still_propose() -> None:
    """Numbers count, trained or not: 3 of 12 proposals here have no trial of their own."""
    search = SearchProgress(
        proposed=15, n_trials=40, repeats=2, best=(TrialNumber(3), 0.0625), mirror_lag=7
    )  # fmt: skip
    console = terminal()
    LiveProgress(console).turn(replace(SNAPSHOT, search=search))
    shown = written(console)
    assert "7/40" in shown
    assert "best 0.0625 (trial 3), proposed 15 of 40, 2 repeats, Optuna study 7 behind" in shown
