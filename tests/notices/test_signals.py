"""Signals and a parent's end as notices (PR-04, PR-06, PR-07)."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from types import FrameType

import pytest

from sweeper.notices.signals import ParentGone, SignalNotices


def test_each_signal_is_one_notice_and_earlier_handlers_run_too() -> None:
    """Handlers that were there before are chained, and put back at the end."""
    heard: list[int] = []

    def earlier(number: int, frame: FrameType | None) -> None:
        heard.append(number)

    before = signal.signal(signal.SIGUSR1, earlier)
    try:
        notices = SignalNotices([signal.SIGUSR1, signal.SIGUSR2])
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGUSR2)
        told = notices.poll(0.0)
        assert [notice.reason for notice in told] == ["SIGUSR1", "SIGUSR1", "SIGUSR2"]
        assert heard == [signal.SIGUSR1, signal.SIGUSR1]
        assert notices.poll(0.0) == []
        notices.close()
        assert signal.getsignal(signal.SIGUSR1) is earlier
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_an_interrupt_from_the_keyboard_is_a_notice_and_no_exception() -> None:
    """Python's own handler would raise at a random instruction."""
    notices = SignalNotices([signal.SIGINT])
    os.kill(os.getpid(), signal.SIGINT)
    assert [notice.reason for notice in notices.poll(0.0)] == ["SIGINT"]
    notices.close()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_continue_signal_cancels_nothing() -> None:
    """PR-07: Slurm sends CONT with TERM."""
    notices = SignalNotices([signal.SIGTERM])
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGCONT)
    assert [notice.reason for notice in notices.poll(0.0)] == ["SIGTERM"]
    notices.close()


def test_another_thread_is_refused_with_a_clear_error() -> None:
    errors: list[RuntimeError] = []

    def install() -> None:
        try:
            SignalNotices([signal.SIGUSR1])
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=install)
    thread.start()
    thread.join()
    assert "main thread" in str(errors[0])


@pytest.mark.parametrize("word", [b"L", b""])
def test_a_parent_can_ask_to_leave_and_its_end_is_noticed(word: bytes) -> None:
    """A byte asks; the pipe's end, however it came about, is told once."""
    read_end, write_end = os.pipe()
    notices = ParentGone(read_end)
    assert notices.poll(0.0) == []
    if word:
        os.write(write_end, word)
        assert [notice.reason for notice in notices.poll(0.0)] == ["asked to leave"]
        assert not notices.spent
    os.close(write_end)
    assert [notice.reason for notice in notices.poll(0.0)] == ["the process that started this worker is gone"]
    assert notices.spent
    os.close(read_end)


def test_a_parent_killed_outright_is_noticed() -> None:
    """PR-04: nobody passes a signal on; the kernel closes the pipe."""
    read_end, write_end = os.pipe()
    parent = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[write_end])
    os.close(write_end)
    notices = ParentGone(read_end)
    assert notices.poll(0.0) == []
    parent.kill()
    parent.communicate()
    assert len(notices.poll(0.0)) == 1
    os.close(read_end)


def test_a_signal_that_another_thread_took_wakes_who_waits_at_once() -> None:
    """Python runs the handler on the main thread alone, which sleeps: the same as for one that came just before."""
    notices = SignalNotices([signal.SIGUSR1])
    let_go = threading.Event()

    def take() -> None:
        threading.Event().wait(0.1)
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        let_go.wait(10)

    thread = threading.Thread(target=take)
    thread.start()
    try:
        assert select.select([notices], [], [], 3.0)[0], "nobody was woken"
        assert [notice.reason for notice in notices.poll(0.0)] == ["SIGUSR1"]
    finally:
        let_go.set()
        thread.join()
        notices.close()
