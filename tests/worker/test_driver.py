"""The production driver on real descriptors, threads and signals."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from sweeper.clock import SystemClock
from sweeper.model.waits import Program, Wait, Woken
from sweeper.notices.signals import SignalNotices
from sweeper.worker.background import ThreadBackground
from sweeper.worker.driver import SelectorDriver

CLOCK = SystemClock()
FAR_S = 30.0


@pytest.fixture
def signals() -> Iterator[SignalNotices]:
    notices = SignalNotices([signal.SIGUSR1])
    yield notices
    notices.close()


@pytest.fixture
def driver(signals: SignalNotices) -> Iterator[SelectorDriver]:
    driver = SelectorDriver(CLOCK, [signals])
    yield driver
    driver.close()


class Pipe:
    """Something with a descriptor, as a child is for the driver."""

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()

    def filenos(self) -> tuple[int, ...]:
        return (self.read_end,)


def _wait_once(wait: Wait) -> Program[Woken]:
    woken = yield wait
    return woken


def test_it_wakes_at_the_time_asked_for(driver: SelectorDriver) -> None:
    until_s = CLOCK.monotonic_s() + 0.05
    assert until_s <= driver.run(_wait_once(Wait(until_s=until_s))).now_s < until_s + 5


def test_it_wakes_when_work_is_done_on_another_thread(driver: SelectorDriver) -> None:
    background = ThreadBackground(driver.wake)
    gate = threading.Event()
    future = background.submit(lambda: gate.wait(FAR_S) and 7)
    threading.Timer(0.05, gate.set).start()
    began_s = CLOCK.monotonic_s()
    driver.run(_wait_once(Wait(until_s=began_s + FAR_S, futures=(future,))))
    while not future.done():
        driver.run(_wait_once(Wait(until_s=began_s + FAR_S, futures=(future,))))
    assert future.result() == 7
    assert CLOCK.monotonic_s() - began_s < FAR_S / 2


def test_it_wakes_when_a_child_has_something_to_say(driver: SelectorDriver) -> None:
    pipe = Pipe()
    os.write(pipe.write_end, b"x")
    began_s = CLOCK.monotonic_s()
    assert driver.run(_wait_once(Wait(until_s=began_s + FAR_S, children=(pipe,)))).now_s < began_s + FAR_S / 2
    os.close(pipe.read_end)
    os.close(pipe.write_end)


def test_a_signal_is_a_notice_once(driver: SelectorDriver) -> None:
    os.kill(os.getpid(), signal.SIGUSR1)
    began_s = CLOCK.monotonic_s()
    woken = driver.run(_wait_once(Wait(until_s=began_s + FAR_S)))
    assert [(n.source, n.reason) for n in woken.notices] == [("signal", "SIGUSR1")]
    assert driver.run(_wait_once(Wait(until_s=CLOCK.monotonic_s()))).notices == ()


def test_a_notice_is_kept_for_a_wait_that_takes_notices(driver: SelectorDriver) -> None:
    os.kill(os.getpid(), signal.SIGUSR1)
    assert driver.run(_wait_once(Wait(until_s=CLOCK.monotonic_s(), notices=False))).notices == ()
    assert len(driver.run(_wait_once(Wait(until_s=CLOCK.monotonic_s()))).notices) == 1


def test_what_the_program_raises_comes_out(driver: SelectorDriver) -> None:
    def fails() -> Program[None]:
        yield Wait(until_s=CLOCK.monotonic_s())
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        driver.run(fails())
