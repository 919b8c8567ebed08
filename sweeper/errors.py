"""One error tree, grouped by what the caller should do about it.

`UserError` names a thing, its value and the remedy (the command line exits 2). `TransientError` is retried with
backoff. `LeaseLost` means stop and write nothing more. `CheckpointCorrupt` means use the previous checkpoint.
Anything else that is raised is a bug and crashes.
"""

from __future__ import annotations


class SweeperError(Exception):
    """Base of every error that sweeper raises on purpose."""


class UserError(SweeperError):
    """Bad input: one message that names the thing, its value and the remedy (CLEAR); exit status 2."""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        self.message = message
        self.remedy = remedy
        super().__init__(f"{message}\n  {remedy}" if remedy else message)


class TransientError(SweeperError):
    """The outside did not answer this time; the same call may be repeated with backoff."""


class LedgerUnavailable(TransientError):
    """The database refused, dropped or timed out a statement whose effect is unknown; replaying it is safe."""


class StoreUnavailable(TransientError):
    """The object store refused or timed out; nothing can be concluded about what it holds."""


class StoreDenied(SweeperError):
    """The store answers but does not let us in (credentials, bucket, permissions); never means "no checkpoint"."""


class ObjectExists(SweeperError):
    """A create-only write found another object under its key."""


class ObjectMissing(SweeperError):
    """The store says with certainty that there is no object under this key."""


class LeaseLost(SweeperError):
    """The lease is no longer ours: stop, write nothing more, delete nothing (FENCE)."""

    def __init__(self, message: str, *, cancelled: bool = False, unknown: bool = False) -> None:
        self.cancelled = cancelled
        self.unknown = unknown
        """The ledger has never granted it: it lost that grant, in a failover or by a restored copy."""
        super().__init__(message)


class CheckpointCorrupt(SweeperError):
    """A checkpoint failed verification; mark it suspect and use the previous one (FALLBACK)."""


class StateMismatch(SweeperError):
    """A valid checkpoint does not fit the live objects (renamed layer, changed shape); the attempt fails."""


class UnsavableValue(SweeperError):
    """A value in registered state has no exact, pickle-free form; the message names its path."""


class TrialFailed(SweeperError):
    """A trial ended as failed; the text ends in the user's own traceback."""


class CoordinatorLost(SweeperError):
    """Another coordinator leads this sweep, or none does: choose nothing more, and read anew before leading again."""


class NumberTaken(SweeperError):
    """The number went to another config, or is not the next one: what the proposal rests on is out of date."""

    def __init__(self, message: str, *, next_number: int) -> None:
        self.next_number = next_number
        super().__init__(message)
