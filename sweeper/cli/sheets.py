"""Tables of trials, attempts, checkpoints and reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from sweeper.cli.texts import STATE_STYLES, bytes_text, duration_text, params_text, result_text, state_text
from sweeper.ids import TrialId
from sweeper.model.states import CheckpointState
from sweeper.model.trial import Attempt, CheckpointRef, Report, Trial

HASH_DIGITS = 8


def facts_table(facts: Mapping[str, str]) -> Table:
    """Draw names and values in two columns."""
    table = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        table.add_row(Text(name, style="bold"), Text(value))
    return table


def trials_table(trials: Sequence[Trial], attempts: Mapping[TrialId, int]) -> Table:
    """Draw a sweep's trials, one a row; `attempts` says how many each had."""
    table = _table("trial", "hash", "state", "step", "attempts", "result", "last report", "parameters")
    for trial in trials:
        table.add_row(
            str(trial.number),
            trial.config_hash[:HASH_DIGITS],
            Text(state_text(trial), style=STATE_STYLES[trial.state]),
            str(trial.step),
            str(attempts.get(trial.trial_id, 0)),
            Text(result_text(trial)),
            "" if trial.last_value is None else f"{trial.last_value:.6g}",
            Text(params_text(trial)),
        )
    return table


def attempts_table(attempts: Sequence[Attempt]) -> Table:
    """Draw a trial's attempts in order."""
    table = _table("attempt", "outcome", "steps", "took", "started", "worker", "exit", "reason")
    for attempt in attempts:
        took = (attempt.ended_at - attempt.started_at).total_seconds() if attempt.ended_at else None
        first, last = (attempt.first_step or 0), attempt.last_step
        table.add_row(
            str(attempt.fence),
            attempt.outcome.value if attempt.outcome else "running",
            f"{first} to {'…' if last is None else last}",
            duration_text(took),
            f"{attempt.started_at:%Y-%m-%d %H:%M:%S}",
            Text(f"{attempt.host}/{attempt.worker_id[:HASH_DIGITS]}"),
            "" if attempt.exit_code is None else str(attempt.exit_code),
            Text(_reason(attempt)),
        )
    return table


def _reason(attempt: Attempt) -> str:
    adopted = f"adopted from {attempt.adopted_from}" if attempt.adopted_from else ""
    return ", ".join(part for part in (attempt.reason, adopted) if part)


def checkpoints_table(checkpoints: Sequence[CheckpointRef], head: CheckpointRef | None, folder: str) -> Table:
    """Draw a trial's checkpoints, with keys as below `folder`; the one it would resume from is marked."""
    table = _table("checkpoint", "step", "size", "state", "key")
    for ref in checkpoints:
        is_head = head is not None and ref.manifest_key == head.manifest_key
        state = "head" if is_head and ref.state is CheckpointState.LIVE else ref.state.value
        key = ref.manifest_key.removeprefix(folder)
        table.add_row(f"{ref.fence}/{ref.seq}", str(ref.step), bytes_text(ref.size_bytes), state, key)
    return table


def reports_table(reports: Sequence[Report], limit: int = 20) -> Table:
    """Draw a trial's newest reports."""
    table = _table("report at", "value", "training step", "metrics")
    for report in reports[-limit:]:
        metrics = " ".join(f"{name}={value:.6g}" for name, value in report.metrics.items())
        table.add_row(str(report.step), f"{report.value!r}", str(report.at_step), Text(metrics))
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
