"""The local engine: how many workers, when again, and when no more."""

from __future__ import annotations

from sweeper.engines.local import MAX_DEATHS, LocalWorkers
from sweeper.model.waits import ExitStatus


class Worker:
    """A handle whose end the test decides."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.pid = 100 + index
        self.status: ExitStatus | None = None
        self.drained = self.killed = self.closed = False

    def filenos(self) -> tuple[int, ...]:
        return ()

    def exit_status(self) -> ExitStatus | None:
        return self.status

    def drain(self) -> None:
        self.drained = True

    def kill(self) -> None:
        self.killed = True

    def close(self) -> None:
        self.closed = True


class Yard:
    """Everything that was started, in order."""

    def __init__(self, places: int) -> None:
        self.started: list[Worker] = []
        self.workers = LocalWorkers(self._start, places=places)

    def _start(self, index: int) -> Worker:
        self.started.append(Worker(index))
        return self.started[-1]


def test_it_starts_what_is_wanted_and_no_more() -> None:
    yard = Yard(3)
    yard.workers.keep(2, 0.0)
    yard.workers.keep(2, 1.0)
    assert [worker.index for worker in yard.started] == [0, 1]


def test_a_worker_that_died_is_started_again_in_its_place_with_backoff() -> None:
    yard = Yard(2)
    yard.workers.keep(2, 0.0)
    yard.started[0].status = ExitStatus(code=None, signal=9)
    yard.workers.keep(2, 10.0)
    assert len(yard.started) == 2, "not at once"
    assert yard.workers.wake_at_s(10.0) == 10.1
    yard.workers.keep(2, 10.1)
    assert [worker.index for worker in yard.started] == [0, 1, 0]
    assert yard.started[0].closed


def test_delays_grow_and_starting_ends_at_a_bound() -> None:
    yard = Yard(1)
    now_s = 0.0
    for death in range(MAX_DEATHS):
        yard.workers.keep(1, now_s)
        assert len(yard.started) == death + 1
        yard.started[-1].status = ExitStatus(code=70)
        yard.workers.reap(now_s)
        now_s += 10.0
    assert yard.workers.failed is not None
    assert "status 70" in yard.workers.failed
    yard.workers.keep(1, now_s + 1000)
    assert len(yard.started) == MAX_DEATHS


def test_progress_of_the_sweep_forgives_deaths() -> None:
    yard = Yard(1)
    for death in range(3 * MAX_DEATHS):
        yard.workers.keep(1, death * 20.0)
        yard.started[-1].status = ExitStatus(code=None, signal=9)
        yard.workers.reap(death * 20.0)
        yard.workers.progressed()
    assert yard.workers.failed is None


def test_workers_that_lived_long_do_not_add_up_to_a_bad_place() -> None:
    """Evicted once an hour while a function trains that reports nothing: no reason to give up."""
    yard = Yard(1)
    for death in range(3 * MAX_DEATHS):
        yard.workers.keep(1, death * 3600.0)
        yard.started[-1].status = ExitStatus(code=75)
        yard.workers.reap(death * 3600.0 + 1800.0)
    assert yard.workers.failed is None


def test_fewer_wanted_leaves_those_that_work_alone() -> None:
    """An idle worker looks like a busy one from here, and a stopped one like both."""
    yard = Yard(2)
    yard.workers.keep(2, 0.0)
    yard.workers.keep(1, 1.0)
    assert [worker.drained for worker in yard.started] == [False, False]
    yard.started[1].status = ExitStatus(code=None, signal=9)
    yard.workers.keep(1, 2.0)
    assert len(yard.started) == 2, "one is enough"


def test_a_drained_workers_end_is_no_death() -> None:
    yard = Yard(1)
    yard.workers.keep(1, 0.0)
    yard.workers.drain()
    yard.started[0].status = ExitStatus(code=75)
    yard.workers.keep(1, 2.0)
    assert len(yard.started) == 2, "at once"


def test_draining_all_asks_each_once_and_closing_lets_go() -> None:
    yard = Yard(2)
    yard.workers.keep(2, 0.0)
    yard.workers.drain()
    assert all(worker.drained for worker in yard.started)
    yard.workers.kill()
    assert all(worker.killed for worker in yard.started)
    yard.workers.close()
    assert yard.workers.alive == 0
