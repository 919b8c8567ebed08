"""The promises, checked on the ledger's rows and the store's objects after every step of the simulation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.rows import dict_row

from sweeper.checkpoint.outcomes import read_outcome
from sweeper.checkpoint.sealed import object_hash
from sweeper.ids import SweepId
from sweeper.model.messages import Start
from sweeper.model.retry import RetryPolicy

from .child import expected_value
from .faults import MemoryStore
from .world import Process, World

FINAL = ("completed", "pruned", "failed", "cancelled")

_ROWS = """
SELECT t.number, t.state, t.config_hash, t.lineage, t.fence, t.lease_id, t.worker_id, t.crashes, t.no_progress,
       t.result, t.outcome_key, t.outcome_hash, t.outcome_stored, t.head_id, t.trial_id,
       (SELECT json_agg(json_build_object('lease_id', a.lease_id, 'fence', a.fence, 'lineage', a.lineage,
            'outcome', a.outcome, 'worker_id', a.worker_id, 'led_to', a.led_to) ORDER BY a.fence, a.started_at)
        FROM sweeper.attempts a WHERE a.trial_id = t.trial_id) AS attempts,
       (SELECT json_agg(json_build_object('id', c.checkpoint_id, 'lease_id', c.lease_id, 'fence', c.fence,
            'seq', c.seq, 'step', c.step, 'key', c.manifest_key, 'hash', c.manifest_hash, 'state', c.state)
            ORDER BY c.checkpoint_id)
        FROM sweeper.checkpoints c WHERE c.trial_id = t.trial_id) AS checkpoints,
       (SELECT json_agg(json_build_array(r.step, r.fence, r.value) ORDER BY r.step)
        FROM sweeper.reports r WHERE r.trial_id = t.trial_id) AS reports
FROM sweeper.trials t WHERE t.sweep_id = %s ORDER BY t.number
"""


class Broken(AssertionError):
    """A promise does not hold."""


@dataclass
class Truth:
    """What the simulator itself did, against which the ledger's account is held."""

    crashes: dict[int, int] = field(default_factory=dict)
    """Children that really crashed, by trial number; an upper bound of what may count as a crash."""
    damaged: set[str] = field(default_factory=set)
    """Manifest keys whose objects were damaged."""
    undone: set[str] = field(default_factory=set)
    """Lease ids whose grant was lost by a failover."""
    clock_jumped: bool = False
    """Whether the database's clock was ever set."""
    workers: dict[str, Process] = field(default_factory=dict)
    """By worker id."""


class Promises:
    """Remembers the last snapshot and compares."""

    def __init__(
        self, world: World, session: psycopg.Connection[Any], sweep_id: SweepId, store: MemoryStore, truth: Truth,
        *, steps: int, retry: RetryPolicy, lease_s: float,
    ) -> None:  # fmt: skip
        self._world = world
        self._session = session
        self._sweep_id = sweep_id
        self._store = store
        self._truth = truth
        self._steps = steps
        self._retry = retry
        self._lease_s = lease_s
        self.last: dict[int, dict[str, Any]] = {}

    def check(self) -> None:
        """Look at everything now.

        Raises:
            Broken: which promise, where, and what was seen.
        """
        with self._session.cursor(row_factory=dict_row) as cursor:
            rows = cursor.execute(_ROWS, (self._sweep_id,)).fetchall()
        now = {row["number"]: row for row in rows}
        require(sorted(now) == list(range(len(now))), "numbers are 0, 1, 2, …", sorted(now))
        for number, before in self.last.items():
            require(number in now, "a number is for life", number)
            require(now[number]["config_hash"] == before["config_hash"], "a number keeps its config", number)
        for row in rows:
            before = self.last.get(row["number"])
            self._once(row, before)
            self._fenced(row, before)
            self._fair(row)
            self._head(row, before)
            if before is not None:
                self._blind(row, before)
        self.last = now

    def all_final(self) -> bool:
        """Whether every trial seen last was final."""
        return bool(self.last) and all(row["state"] in FINAL for row in self.last.values())

    def heads(self) -> list[str]:
        """Manifest keys of the heads seen last."""
        found = [self._head_of(row) for row in self.last.values()]
        return [head["key"] for head in found if head is not None]

    def child_starts(self, process: Process, start: Start) -> None:
        """ONCE, RESUME: what a child is about to do fits the ledger, if its worker still holds the trial."""
        self.check()
        row = self.last[start.number]
        lease = next((a for a in row["attempts"] or [] if a["fence"] == start.fence and a["outcome"] is None), None)
        if row["state"] != "running" or lease is None or self._truth.workers.get(lease["worker_id"]) is not process:
            return  # its worker has lost the lease and does not know it yet; whatever it does is void
        head = self._head_of(row)
        step = 0 if start.restore is None else start.restore["step"]
        expected = 0 if head is None else head["step"]
        require(step == expected, "RESUME: a child starts from the head", (start.number, step, expected))

    def _once(self, row: dict[str, Any], before: dict[str, Any] | None) -> None:
        completed = [a for a in row["attempts"] or [] if a["outcome"] == "completed"]
        require(len(completed) <= 1, "ONCE: one completed attempt", row)
        if completed:
            later = [a for a in row["attempts"] if a["fence"] > completed[0]["fence"]]
            require(not later, "ONCE: nothing is granted after completion", row)
        if row["state"] == "completed":
            require(len(completed) == 1, "ONCE: a completed trial has a completed attempt", row)
            value = expected_value(row["config_hash"], self._steps)
            require(row["result"] == value, f"RESUME: the undisturbed run's value {value}", row)
            if row["outcome_stored"]:
                outcome = read_outcome(self._store, row["outcome_key"])  # type: ignore[arg-type]
                require(outcome.value == value and outcome.lineage == row["lineage"], "ONCE: its outcome object", row)
                stored = object_hash(self._store.objects[row["outcome_key"]])
                require(stored == row["outcome_hash"], "ONCE: the outcome's hash", row)
        if before is not None and before["state"] in FINAL:
            for column in ("state", "result", "fence"):
                require(row[column] == before[column], f"ONCE: {column} of a final trial stands", (before, row))

    def _fenced(self, row: dict[str, Any], before: dict[str, Any] | None) -> None:
        open_ = [a["lease_id"] for a in row["attempts"] or [] if a["outcome"] is None]
        holder = [row["lease_id"]] if row["state"] == "running" else []
        require(open_ == holder, "FENCE: the open attempt is the holder's", row)
        leases = {a["lease_id"] for a in row["attempts"] or []}
        known = {c["id"] for c in (before or {}).get("checkpoints") or []}
        holders = {row["lease_id"], (before or {}).get("lease_id")}
        for checkpoint in row["checkpoints"] or []:
            require(checkpoint["lease_id"] in leases, "FENCE: a checkpoint belongs to a granted lease", checkpoint)
            if checkpoint["id"] not in known and before is not None:
                allowed = holders | self._closed_since(row, before)
                require(checkpoint["lease_id"] in allowed, "FENCE: only holders save", (checkpoint, row))
        fences = {a["fence"] for a in row["attempts"] or []}
        reports = {r[0]: r for r in (before or {}).get("reports") or []}
        for report in row["reports"] or []:
            require(report[1] in fences, "FENCE: a report belongs to a granted fence", report)
            if before is not None and report != reports.get(report[0]):
                require(report[1] >= before["fence"], "FENCE: only holders report", (report, before["fence"]))
        require(row["fence"] >= (before or row)["fence"] or bool(self._truth.undone), "FENCE: fences rise", row)

    @staticmethod
    def _closed_since(row: dict[str, Any], before: dict[str, Any]) -> set[str]:
        """Leases granted and ended between two looks (nested steps)."""
        known = {a["lease_id"] for a in before["attempts"] or []}
        return {a["lease_id"] for a in row["attempts"] or [] if a["lease_id"] not in known}

    def _fair(self, row: dict[str, Any]) -> None:
        crashed = sum(a["outcome"] == "crashed" for a in row["attempts"] or [])
        really = self._truth.crashes.get(row["number"], 0)
        require(row["crashes"] <= really, f"FAIR: only {really} children crashed", row)
        require(row["crashes"] == crashed, "FAIR: crashes are those of the attempts", row)
        if row["state"] == "failed":
            spent = row["crashes"] >= self._retry.max_crashes or row["no_progress"] >= self._retry.max_no_progress
            require(spent, "FAIR: failed only when a limit is used up", row)

    def _head(self, row: dict[str, Any], before: dict[str, Any] | None) -> None:
        head = self._head_of(row)
        if head is None:
            return
        require(head["state"] == "live", "FALLBACK: the head is a live row", (row["number"], head))
        damaged = head["key"] in self._truth.damaged
        if not damaged:
            data = self._store.objects.get(head["key"])
            require(data is not None, "FALLBACK: the head's manifest is in the store", (row["number"], head))
            require(object_hash(data) == head["hash"], "FALLBACK: and has the row's hash", (row["number"], head))
        if before is not None and (old := self._head_of(before)) is not None and head["step"] < old["step"]:
            suspect = any(c["key"] == old["key"] and c["state"] == "suspect" for c in row["checkpoints"])
            require(suspect and old["key"] in self._truth.damaged, "FALLBACK: only a bad head is left", (old, head))

    def _blind(self, row: dict[str, Any], before: dict[str, Any]) -> None:
        """An attempt is declared lost only if its worker was dead, or could not renew for one lease time."""
        ended = {a["lease_id"]: a for a in before["attempts"] or [] if a["outcome"] is not None}
        for attempt in row["attempts"] or []:
            if attempt["outcome"] != "lost" or attempt["lease_id"] in ended:
                continue
            worker = self._truth.workers.get(attempt["worker_id"])
            if worker is None or not worker.alive or self._truth.clock_jumped:
                continue
            since_s = self._world.now_s - 3 * self._lease_s
            excused = any(to_s >= since_s for _, to_s in worker.excuses)
            require(excused, f"BLIND: {worker.name} was well", (row["number"], attempt))

    @staticmethod
    def _head_of(row: dict[str, Any]) -> dict[str, Any] | None:
        return next((c for c in row["checkpoints"] or [] if c["id"] == row["head_id"]), None)


def require(holds: bool, promise: str, seen: object) -> None:
    """A promise that does not hold ends the scenario."""
    if not holds:
        raise Broken(f"{promise}; seen: {seen}")
