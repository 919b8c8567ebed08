"""`sweeper.sweep`: search the best config of a function, durably, from a script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sweeper.launch.worker_role import asked_role
from sweeper.plain.objective import Function
from sweeper.plain.request import read_request
from sweeper.plain.running import check_process, run_request
from sweeper.results.records import SweepResult
from sweeper.trial.fresh import COORDINATOR


def sweep(
    objective: Function,
    space: Mapping[str, object],
    *,
    name: str,
    n_trials: int = 20,
    direction: str | Sequence[str] = "minimize",
    sampler: str | Mapping[str, object] = "tpe",
    pruner: str | Mapping[str, object] | None = None,
    scheduler: str | Mapping[str, object] | None = None,
    base: Mapping[str, Any] | None = None,  # Any: plain values
    enqueue: Sequence[Mapping[str, object]] = (),
    constraints: Sequence[str] = (),
    stop: Mapping[str, float] | None = None,
    max_failure_rate: float = 1.0,
    deterministic: bool | None = None,
    workers: int | None = None,
    seed: int = 0,
    directory: str | Path | None = None,
    database: str | None = None,
    store: str | None = None,
    engine: str = "local",
    fail_fast: bool = False,
    threads: int | None = None,
    retry: Mapping[str, int] | None = None,
    checkpoint: Mapping[str, float] | None = None,
    identity: Mapping[str, object] | None = None,
    lease_s: float = 60.0,
    heartbeat_s: float = 15.0,
    blind_s: float = 1800.0,
    grace_s: float = 30.0,
    signals: Sequence[str] = ("TERM", "INT"),
    hang_s: float | None = None,
) -> SweepResult:
    """Run a search to its end, or go on with the one of this name, and give what it found.

    Each trial runs `objective(config)` in a process of its own. Calling again with the same name *is* resuming: what is
    finished is returned and not trained again, what was interrupted continues from its newest checkpoint
    (`sweeper.resume`), and a larger `n_trials` adds to what there is. Call it on the main thread, and in a script below
    `if __name__ == "__main__":`.

    Args:
        objective: takes the trial's config, a dict, and returns the objective's value (one per direction).
        space: what is searched, by the dotted key in the config: `sweeper.Float`, `sweeper.Int`, `sweeper.Choice` or a
            list of choices. Parameters are put into the config in this order.
        name: the sweep's, 1 to 200 characters. The same name is the same sweep.
        n_trials: a total over all calls, repeats counted.
        direction: `minimize` or `maximize`; a list for several objectives.
        sampler: `tpe`, `random`, `cmaes`, `nsgaii`, `nsgaiii`, `gp`, `qmc`, `grid`, `brute_force`, or a mapping with
            that name (or a class's dotted path) under `kind` and the sampler's own arguments beside it.
        pruner: in the same way `median`, `percentile`, `successive_halving`, `hyperband`, `threshold`, `patient`,
            `wilcoxon`, `nop`.
        scheduler: in the same way `asha`, `hyperband`, `pbt`.
        base: the values that every trial has.
        enqueue: points to try first, once each: values by parameter; what is left out is chosen.
        constraints: bounds on metrics of `run.report`, as in `latency_ms <= 20`.
        stop: `value` that is good enough, `timeout_s` that this call may take.
        max_failure_rate: share of `n_trials` that may fail before the search gives up.
        deterministic: whether proposals wait so that they do not depend on timing; by default with one worker.
        workers: local workers; one per GPU by default, else 1.
        seed: of the search, and with the config of everything random in a trial.
        directory: where a new sweep's trials write; `sweeps/<name>` below the working directory by default.
        database: URL; `SWEEPER_DATABASE_URL` by default, else an embedded server.
        store: URL; `SWEEPER_STORE_URL` by default, else a local folder.
        engine: what starts the workers.
        fail_fast: whether the first failed trial stops the run.
        threads: compute threads of a trial.
        retry: `max_crashes`, `max_no_progress`.
        checkpoint: `every_s`, `keep`.
        identity: what makes two configs the same: `ignore`, a list of keys that do not count, and `version`, a text
            that does.
        lease_s: how long a silent worker keeps its trial, in seconds.
        heartbeat_s: how often a worker renews its lease.
        blind_s: how long a worker trains on without the database.
        grace_s: time a warning without a deadline is taken to leave.
        signals: what announces an eviction.
        hang_s: a trial without a safe point for this long is ended as crashed.

    Raises:
        UserError: something cannot be; nothing was written.
        Interrupted: a `SystemExit` with status 75: the process is to leave. The same call goes on later.
        SweepFailed: the search cannot go on: too many trials failed, or no worker stays alive.
    """
    given = dict(locals())
    function = given.pop("objective")
    check_process()
    asked = asked_role()
    request = read_request(function, given, elsewhere=asked is not None and asked.kind == COORDINATOR)
    return run_request(request, asked)
