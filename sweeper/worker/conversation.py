"""One child's life as its worker sees it: listen, store, tell the ledger, and see to its end.

Each turn does, in this order: read what the child said, move the save along, speak to the ledger if it answers, and
look at what may end the child (a notice, blindness, a hang, a last message that is not followed by an exit).
"""

from __future__ import annotations

import logging

from sweeper.errors import LedgerUnavailable
from sweeper.model.messages import (
    LAST_MESSAGES,
    Finished,
    Invalid,
    Refused,
    Reported,
    SaveFailed,
    Sealed,
    Started,
    Stop,
    Stopped,
    ToWorker,
)
from sweeper.model.states import SearchStopKind
from sweeper.model.trial import Grant, SearchStop
from sweeper.model.waits import Child, Program, Wait
from sweeper.worker.ending import Ending, LastMessage
from sweeper.worker.keeping import LeaseKeeper
from sweeper.worker.reporting import Reporting
from sweeper.worker.saving import Saving
from sweeper.worker.state import WorkerState

log = logging.getLogger("sweeper.worker")

LEAVING_S = 2.0
"""Kept free before a deadline for giving the lease back."""
TOLD = {SearchStopKind.PRUNE: "pruned", SearchStopKind.PAUSE: "paused"}
"""How a child is told what the search decided."""


class Conversation:
    """Serves one child from its start to its exit."""

    def __init__(self, worker: WorkerState, keeper: LeaseKeeper, grant: Grant, child: Child, saving: Saving) -> None:
        self._worker = worker
        self._keeper = keeper
        self._grant = grant
        self._child = child
        self._saving = saving
        self._reporting = Reporting(
            worker, keeper, grant, child, trained_to=-1 if saving.head is None else saving.head.step
        )
        self._last: LastMessage | None = None
        self._last_at_s = 0.0
        self._started = False
        self._told: SearchStop | None = None
        self._stop_sent = False
        self._killed_for: str | None = None
        self._safe_points = 0
        self._alive_at_s = worker.now_s()

    def run(self) -> Program[Ending]:
        """Serve until the child is gone and what it left is in the ledger (or a deadline forbids to wait).

        Raises:
            LeaseLost: stop at once, write nothing more.
        """
        while True:
            self._listen()
            self._saving.advance(hopeless=self._is_the_end)
            self._speak()
            self._see_to_the_end()
            gone = self._child.exited is not None
            if self._over(gone=gone):
                return self._ending()
            if self._listen():  # what came while we looked whether the child is gone
                continue
            # Nothing looks at the child from here on: what it does next wakes us, unless it was seen already.
            yield from self._worker.pause(self._wait(gone=gone))

    def _wait(self, *, gone: bool) -> Wait:
        drain_s, patient_s = self._worker.drain.deadline_s, self._reporting.patient_to_s
        times = [self._keeper.due_s, self._saving.wake_at_s, drain_s, patient_s]
        now_s, retry_at_s = self._worker.now_s(), self._worker.line.retry_at_s
        at_once = self._saving.ready or (gone and self._reporting.untold)
        speak_at_s = float("-inf") if at_once else self._reporting.wake_at_s
        times.append(speak_at_s if retry_at_s is None else max(speak_at_s, retry_at_s))
        if now_s < self._give_up_at_s():
            times.append(self._give_up_at_s())
        if retry_at_s is not None and not self._stop_sent and (left_s := self._blind_left_s()) > 0:
            times.append(now_s + left_s)
        futures = self._saving.futures
        if gone:  # it stays readable for ever; waiting on it would spin
            return Wait(until_s=min(times), futures=futures)
        times += [self._kill_at_s(), self._child.look_again_s]
        return Wait(until_s=min(times), children=(self._child,), futures=futures)

    def _listen(self) -> bool:
        messages = self._child.receive()
        for message in messages:
            self._hear(message)
        if self._child.safe_points != self._safe_points:
            self._safe_points = self._child.safe_points
            self._alive_at_s = self._worker.now_s()
        return bool(messages)

    def _hear(self, message: ToWorker) -> None:
        match message:
            case Started():
                self._started = True
                self._keeper.hurry()
                self._alive_at_s = self._worker.now_s()
            case Reported():
                self._reporting.hear(message)
            case Sealed():
                self._saving.begin(message)
            case SaveFailed():
                log.warning("save not taken trial=%d seq=%d: %s", self._grant.number, message.seq, message.detail)
            case _ if isinstance(message, LAST_MESSAGES) and self._last is None:
                self._last = message
                self._last_at_s = self._worker.now_s()
                self._reporting.let_go()
                if self._has_returned:
                    self._reporting.conclude()
            case _:
                log.warning("unexpected message trial=%d: %s", self._grant.number, type(message).__name__)

    def _speak(self) -> None:
        waiting = self._reporting.waiting
        if self._worker.line.open(self._worker.now_s()):
            self._speak_to_the_ledger()
        self._reporting.lose_patience()
        if waiting:  # however long that took, a child that stands still can pass no safe point
            self._alive_at_s = self._worker.now_s()

    def _speak_to_the_ledger(self) -> None:
        try:
            silent = self._last is not None or self._child.exited is not None
            self._reporting.speak(hurry=silent)
            if self._saving.ready:
                self._reporting.secure()
                self._saving.commit()
                self._worker.line.answered(self._worker.now_s())
            self._keeper.beat(step=self._child.step)
            self._reporting.weigh()
        except LedgerUnavailable as error:
            self._worker.line.refused(self._worker.now_s(), error)

    def _see_to_the_end(self) -> None:
        now_s = self._worker.now_s()
        if self._last is None and not self._stop_sent:
            self._tell_stop()
            if self._told is not None and self._told.kind is SearchStopKind.PRUNE:
                pass  # it leaves at its next report or safe point, without a save: nobody can ask for more
            elif self._worker.drain.active:
                self._ask_to_stop(self._worker.drain.reason, self._worker.drain.deadline_s - now_s)
            elif self._blind_left_s() <= 0:
                self._ask_to_stop("the ledger has not answered for too long", None)
        if now_s >= self._kill_at_s() and self._killed_for is None and self._child.exited is None:
            self._killed_for = self._why_kill()
            log.warning("child is killed trial=%d: %s", self._grant.number, self._killed_for)
            self._child.kill()

    def _tell_stop(self) -> None:
        """Pass on what the search decided; a pause wants the state of now, if the child can save at all."""
        stop = self._reporting.stop
        if stop is None or self._told is not None:
            return
        save = stop.kind is SearchStopKind.PAUSE and self._child.stateful
        self._child.send(Stop(kind=TOLD[stop.kind], reason=stop.reason, save=save, seconds_left=None))
        self._told = stop
        self._reporting.let_go()

    def _ask_to_stop(self, reason: str, left_s: float | None) -> None:
        save = left_s is None or self._saving.slowest_s * 1.5 + LEAVING_S < left_s
        self._child.send(Stop(kind="evicted", reason=reason, save=save, seconds_left=left_s))
        self._stop_sent = True
        self._reporting.let_go()

    def _kill_at_s(self) -> float:
        """When patience with this child ends; infinity in normal life, and once it was killed."""
        if self._killed_for is not None:
            return float("inf")
        settings, drain = self._worker.parts.settings, self._worker.drain
        times = [float("inf")]
        if self._last is not None:
            times.append(self._last_at_s + settings.exit_grace_s)
        if drain.active:
            times.append(drain.deadline_s - LEAVING_S)
            if not self._child.stateful:
                times.append(drain.began_s + settings.idle_grace_s)
        if settings.hang_s is not None and self._last is None and (self._child.stateful or self._safe_points):
            times.append(self._alive_at_s + settings.hang_s)
        return min(times)

    def _why_kill(self) -> str:
        if self._last is not None:
            return "it did not leave after its last message"
        if self._worker.drain.active:
            return self._worker.drain.reason
        return f"hang: no safe point for {self._worker.parts.settings.hang_s:g} s"

    def _blind_left_s(self) -> float:
        worker = self._worker
        return worker.parts.settings.lease.blind_s - worker.line.blind_for_s(worker.now_s())

    @property
    def _has_returned(self) -> bool:
        return isinstance(self._last, Finished | Invalid)

    @property
    def _is_the_end(self) -> bool:
        """Whether nobody will need a further checkpoint of this trial."""
        return self._has_returned or (isinstance(self._last, Stopped) and self._last.kind == "pruned")

    def _give_up_at_s(self) -> float:
        """Until when a returned function's last report waits for its decision; infinity unless there is a notice."""
        drain = self._worker.drain
        if not drain.active or not self._has_returned:
            return float("inf")
        idle_s = max(drain.began_s, self._last_at_s) + self._worker.parts.settings.idle_grace_s
        return min(idle_s, drain.deadline_s - LEAVING_S)

    def _over(self, *, gone: bool) -> bool:
        now_s = self._worker.now_s()
        if now_s >= self._worker.drain.deadline_s:
            return True
        if not gone or self._saving.busy or self._reporting.untold:
            return False
        return not self._has_returned or self._reporting.settled or now_s >= self._give_up_at_s()

    def _ending(self) -> Ending:
        child = self._child
        return Ending(
            last=self._last,
            status=child.exited,
            killed_for=self._killed_for,
            step=max(child.step, self._last_step()),
            safe_points=child.safe_points,
            started=self._started,
            reported=self._reporting.reported,
            unsafe=self._reporting.unsafe,
            output_tail=child.output_tail(),
            stop=self._reporting.stop,
            undecided=self._has_returned and self._worker.parts.sweep.reports_wait and not self._reporting.settled,
            unsaved=self._is_unsaved(),
        )

    def _is_unsaved(self) -> bool:
        """Whether the state at a pause got lost, by a notice or in the store; one that cannot be saved is no loss."""
        saving, saved_to = self._saving, -1 if self._saving.head is None else self._saving.head.step
        counts = (
            self._worker.parts.sweep.reports_wait and self._child.stateful and saved_to < self._reporting.stopped_at
        )
        return counts and (saving.busy or saving.given_up or self._worker.drain.active)

    def _last_step(self) -> int:
        return 0 if self._last is None or isinstance(self._last, Refused) else self._last.step
