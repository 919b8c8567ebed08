"""A child's reports on their way to the ledger, and what the search makes of them on its way back.

Reports are written together twice a second, most times without waiting for the server's disk; every few seconds, and
before an attempt gives its trial back, they are written once more and waited for. A result that nothing but the
function decides takes along those that are left. Where reports wait, each is written at once, and then
the ledger is asked for its decision with short, bounded pauses until there is one. Where only timing would be lost, a
report that comes to a rung waits too, but not for long: a trial that pauses there must not train on meanwhile, and an
absent coordinator must not hold it. A decision that says more than *go on* has set the trial's stop in the same
statement, so the stop is what is obeyed: one that is gone again (a trial promoted since) answers *go on*.
"""

from __future__ import annotations

import logging

from sweeper.ledger.decisions import decided, undecided_reports
from sweeper.ledger.reads import reports_of
from sweeper.model.messages import Decided, Reported
from sweeper.model.trial import Grant, Report, SearchStop
from sweeper.model.waits import Child
from sweeper.worker.keeping import LeaseKeeper
from sweeper.worker.patience import Backoff
from sweeper.worker.state import WorkerState
from sweeper.worker.stopping import holds

log = logging.getLogger("sweeper.worker")

REPORT_EVERY_S = 0.5
"""Reports are written together this often; the first of a child at once."""
DURABLE_WITHIN_S = 5.0
"""For so long reports may be in the ledger without being safe from a failure of its server, or half a heartbeat."""
REPORT_BATCH = 500
ASK_FIRST_S, ASK_MOST_S = 0.01, 0.25
"""Pauses between two looks for a decision. A coordinator decides within its turn, which is about as long."""
LINGER_S = 2.0
"""How long a report at a rung waits where it need not: some turns of a coordinator that has nothing else to do."""
LONG_WAIT_S = 60.0
"""After this long without a decision there is probably no coordinator, and nobody else would ever say so."""


class Reporting:
    """The reports of one child."""

    def __init__(
        self, worker: WorkerState, keeper: LeaseKeeper, grant: Grant, child: Child, *, trained_to: int
    ) -> None:
        """`trained_to`: the training step of the state that the child continues from; -1 from zero."""
        self._worker = worker
        self._keeper = keeper
        self._grant = grant
        self._child = child
        self._trained_to = trained_to
        self._reports: list[Report] = []
        self._written: list[Report] = []
        self._due_s, self._durable_due_s = float("-inf"), float("inf")
        self._durable_within_s = min(DURABLE_WITHIN_S, worker.parts.settings.lease.heartbeat_s / 2)
        self._furthest = -1
        self._at_steps: dict[int, int] = {}
        self._waiting: int | None = None
        self._strict = worker.parts.sweep.reports_wait
        self._rungs = worker.parts.sweep.rungs
        self._free = not self._strict and self._rungs is None
        self._last_step: int | None = None
        self._patient_to_s = float("inf")
        self._ask_at_s = float("-inf")
        self._backoff = Backoff(worker.parts.jitter, first_s=ASK_FIRST_S, most_s=ASK_MOST_S)
        self._weighed: SearchStop | None = None
        self._holds = False
        self._concluding = self._taken_along = False
        self.reported = False
        """Whether the child has made any report."""

    @property
    def unsafe(self) -> tuple[Report, ...]:
        """Those that are not in the ledger yet, or that its server could still forget."""
        return (*self._written, *self._reports)

    @property
    def waiting(self) -> bool:
        """Whether the child stands still until the search has decided."""
        return self._waiting is not None

    @property
    def untold(self) -> bool:
        """Whether there are unsafe reports that the child's result will not take along."""
        count = len(self._written) + len(self._reports)
        return count > (REPORT_BATCH if self._taken_along else 0)

    @property
    def settled(self) -> bool:
        """Whether nothing is left to tell, or to be told before a result may count."""
        return not self.untold and not self._concluding

    @property
    def stop(self) -> SearchStop | None:
        """What the search decided, once it is to be obeyed."""
        stop = self._keeper.stop
        if stop is None:
            return None
        return stop if self._furthest >= stop.step or (self._holds and self._weighed == stop) else None

    @property
    def stopped_at(self) -> int:
        """The training step of the report on which the stop was decided, if it was made in this attempt; else -1."""
        stop = self._keeper.stop
        return -1 if stop is None else self._at_steps.get(stop.step, -1)

    @property
    def wake_at_s(self) -> float:
        """When there is something to tell or to ask, if the ledger answers."""
        if self._keeper.stop not in (None, self._weighed):
            return float("-inf")
        times = [float("inf")]
        if self.untold:
            times.append(self._durable_due_s)
            if self._reports:
                times.append(float("-inf") if self.waiting else self._due_s)
        if self.waiting or self._concluding:
            times.append(self._ask_at_s)
        return min(times)

    def hear(self, message: Reported) -> None:
        """Take a report; an attempt's first of a step is the one that stays."""
        self.reported = True
        if message.step not in self._at_steps:
            self._at_steps[message.step] = message.at_step
            self._reports.append(
                Report(step=message.step, at_step=message.at_step, value=message.value, metrics=message.metrics)
            )
        if self._free:
            return
        if self._strict or self._comes_to_a_rung(message.step):
            self._waiting = message.step
            self._patient_to_s = self._worker.now_s() + (LONG_WAIT_S if self._strict else LINGER_S)
            self._ask_soon()
        else:
            self._child.send(Decided(step=message.step))

    @property
    def patient_to_s(self) -> float:
        """Until when the waiting report waits in silence, whether or not the ledger answers."""
        return self._patient_to_s if self.waiting else float("inf")

    def lose_patience(self) -> None:
        """Nobody has decided for long: where that matters say so; elsewhere the trial goes on, and waits no more."""
        if self._waiting is None or self._worker.now_s() < self._patient_to_s:
            return
        self._patient_to_s = float("inf")
        if not self._strict:
            self._child.send(Decided(step=self._waiting))
            self._waiting, self._rungs = None, None
            return
        log.warning(
            "trial %d stands still: nobody has decided on its report of step %d for %.0f s. Is the sweep's command "
            "running? Give it again, or let this worker go",
            self._grant.number,
            self._waiting,
            LONG_WAIT_S,
        )

    def let_go(self) -> None:
        """The child was told to leave, so it waits no more."""
        self._free = True
        self._waiting = None

    def conclude(self) -> None:
        """The function has returned: before its value counts, see what the search has decided."""
        self._concluding = self._worker.parts.sweep.decides is not None
        self._taken_along = not self._concluding
        self._ask_soon()

    def speak(self, *, hurry: bool) -> None:
        """Write what is due, and ask for a decision that is awaited.

        `hurry`: the child says no more, so all that it has said is due, for good.

        Raises:
            LeaseLost: the trial is someone else's.
            LedgerUnavailable: unknown; call again.
        """
        now_s = self._worker.now_s()
        if hurry or self.waiting or now_s >= self._durable_due_s:
            if self.untold:
                self.secure()
        elif self._reports and now_s >= self._due_s:
            self._write(now_s, durable=False)
        if now_s < self._ask_at_s:
            return
        if self._waiting is not None:
            self._ask(self._waiting, now_s)
        elif self._concluding:
            self._conclude(now_s)

    def secure(self) -> None:
        """Write for good all that the child has said. From beyond a checkpoint no attempt would report it again, so
        this comes before one. Errors as in `speak`."""
        if self.unsafe:
            self._write(self._worker.now_s(), durable=True)

    def weigh(self) -> None:
        """Find out whether a stop that the keeper has heard of is to be obeyed. Errors as in `speak`."""
        stop = self._keeper.stop
        if stop is None or stop == self._weighed:
            return
        reports = reports_of(self._worker.parts.database, self._grant.lease.trial_id)
        self._weighed, self._holds = stop, holds(stop, reports, trained_to=self._trained_to)

    def _ask_soon(self) -> None:
        self._ask_at_s = float("-inf")
        self._backoff.reset()

    def _write(self, now_s: float, *, durable: bool) -> None:
        reports = self.unsafe if durable else self._reports
        for start in range(0, len(reports), REPORT_BATCH):
            self._keeper.report(reports[start : start + REPORT_BATCH], durable=durable)
        self._furthest = max(self._furthest, *(report.step for report in reports))
        if durable:
            self._written, self._durable_due_s = [], float("inf")
        else:
            self._written = [*self._written, *self._reports]
            self._durable_due_s = min(self._durable_due_s, now_s + self._durable_within_s)
        self._reports = []
        self._due_s = now_s + REPORT_EVERY_S

    def _ask(self, step: int, now_s: float) -> None:
        """Nothing more is decided on a trial that has a stop, so then there is nothing to wait for."""
        if self._keeper.stop is None:
            lease, database = self._grant.lease, self._worker.parts.database
            decision = decided(database, lease.trial_id, self._grant.lineage, step)
            if decision is None:
                self._ask_at_s = now_s + self._backoff.next_s()
                return
            if decision.action != "go_on":
                self._keeper.renew(step=self._child.step)
        self.weigh()
        if self.stop is None:
            self._child.send(Decided(step=step))
        self._waiting = None

    def _comes_to_a_rung(self, step: int) -> bool:
        """Whether this report is the attempt's first at a rung, whichever way the trial counts its steps."""
        before, self._last_step = self._last_step, step
        rungs, number = self._rungs, self._grant.number
        if rungs is None:
            return False
        return any(
            (rung := rungs.rung_at(number, step + offset)) is not None
            and (before is None or rung != rungs.rung_at(number, before + offset))
            for offset in (0, 1)
        )

    def _conclude(self, now_s: float) -> None:
        """A stop that is in the ledger before the result counts; where reports wait, so does one that is coming.

        Also on reports of an earlier attempt that was evicted while they waited.
        """
        keeper, sweep = self._keeper, self._worker.parts.sweep
        undecided = False
        if sweep.reports_wait and sweep.decides is not None and keeper.stop is None:
            trial_id = self._grant.lease.trial_id
            undecided = bool(
                undecided_reports(
                    self._worker.parts.database, sweep.sweep_id, kind=sweep.decides, limit=1, of=[trial_id]
                )
            )
        if keeper.stop is None:
            keeper.renew(step=self._child.step)
        if undecided and keeper.stop is None:
            self._ask_at_s = now_s + self._backoff.next_s()
        else:
            self._concluding = False
