"""The one guard of every write under a lease (FENCE), the one reading of time, and the receipt of how a lease ended.

`HELD` never looks at the clock: a worker back from an outage that nobody took over goes on; only expiry reads time.
A transition that finds no row to lock asks the attempt by lease id: ended there with the same outcome means that this
is the replay of a statement whose reply was lost; anything else is `LeaseLost`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sweeper.errors import LeaseLost
from sweeper.ledger.sql import statement
from sweeper.ledger.statements import Statements
from sweeper.model.states import AttemptOutcome, TrialState
from sweeper.model.trial import Lease

NOW: Final = "coalesce(:now, statement_timestamp())"
"""The database's clock; the simulator binds `:now`, production binds NULL."""

HELD: Final = "t.trial_id = :trial_id AND t.fence = :fence AND t.lease_id = :lease_id AND t.state = 'running'"
"""Guard of the row `sweeper.trials t`. The lease id matters: after a failover or restore a fence is granted twice."""

EXTENDED: Final = f"lease_expires_at = {NOW} + make_interval(secs => :lease_s)"
"""No `greatest(old, new)`: after a clock was set back, the lease must follow it."""

_RECEIPT = statement("""
SELECT a.outcome, a.led_to, a.reason
FROM sweeper.attempts a
WHERE a.lease_id = :lease_id AND a.trial_id = :trial_id AND a.fence = :fence
""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """How a lease ended, and the trial's state right after."""

    outcome: AttemptOutcome
    led_to: TrialState
    reason: str | None


def held(lease: Lease) -> dict[str, Any]:
    """The parameters of `HELD`."""
    return {"trial_id": lease.trial_id, "fence": lease.fence, "lease_id": lease.lease_id}


def receipt(db: Statements, lease: Lease) -> Receipt | None:
    """How the lease ended; None while it has not, or when this ledger never granted it."""
    rows = db.run(_RECEIPT, held(lease))
    if not rows or rows[0].outcome is None:
        return None
    row = rows[0]
    return Receipt(outcome=AttemptOutcome(row.outcome), led_to=TrialState(row.led_to), reason=row.reason)


def refusal(lease: Lease, ended: Receipt | None) -> LeaseLost:
    """The error for a write whose guard found no row."""
    how = "is not known to the ledger" if ended is None else f"ended as {ended.outcome}"
    detail = f" ({ended.reason})" if ended is not None and ended.reason else ""
    cancelled = ended is not None and ended.outcome is AttemptOutcome.CANCELLED
    return LeaseLost(
        f"lease {lease.lease_id} (trial {lease.trial_id}, fence {lease.fence}) {how}{detail}",
        cancelled=cancelled,
        unknown=ended is None,
    )


def replayed(db: Statements, lease: Lease, outcome: AttemptOutcome) -> TrialState:
    """Where an ending that found no row has already led, when it was this very ending.

    Raises:
        LeaseLost: the lease ended otherwise.
    """
    ended = receipt(db, lease)
    if ended is not None and ended.outcome is outcome:
        return ended.led_to
    raise refusal(lease, ended)
