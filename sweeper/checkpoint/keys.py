"""Every key in the store, made and taken apart in this one place.

Keys hold only hashes, random ids and small integers, never text from a user and nothing from a database sequence, so
two ledgers on one store cannot meet by accident. Prefixes end in `/`.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from sweeper.ids import ConfigHash, LeaseId, SweepId

_SWEEP = r"sweeps/(?P<sweep>[0-9a-f]{32})/"
_TRIAL = _SWEEP + r"trials/(?P<config>[0-9a-f]{64})/"
_NUMBER = r"(?:0|[1-9][0-9]{0,17})"
_ATTEMPT = _TRIAL + rf"(?P<fence>{_NUMBER})-(?P<lease>[0-9a-f]{{8}})/"
_MANIFEST = re.compile(_ATTEMPT + rf"(?P<seq>{_NUMBER})/manifest\.json")
_PRIVATE_PACK = re.compile(_ATTEMPT + rf"(?P<seq>{_NUMBER})/p{_NUMBER}")
_SHARED_PACK = re.compile(_SWEEP + r"packs/(?P<start>[0-9a-f]{2})/(?P=start)[0-9a-f]{62}")
_OUTCOME = re.compile(_ATTEMPT + r"outcome\.json")
_NAME_ENTRY = re.compile(rf"sweeps/by-name/[0-9a-f]{{64}}/({_NUMBER})\.json")
_SAFE = re.compile(r"[a-z0-9][a-z0-9.-]*(?:/[a-z0-9][a-z0-9.-]*)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptKey:
    """What a key below an attempt's prefix says about itself. `lease` is the first 8 digits of the lease id."""

    sweep_id: str
    config_hash: str
    fence: int
    lease: str
    seq: int | None = None
    """None for the attempt's outcome."""


def sweep_prefix(sweep_id: SweepId) -> str:
    """Everything of one sweep but the ownership log of its name."""
    return f"sweeps/{_hex(sweep_id, 32)}/"


def trial_prefix(sweep_id: SweepId, config_hash: ConfigHash) -> str:
    """All attempts of one trial."""
    return f"{sweep_prefix(sweep_id)}trials/{_hex(config_hash, 64)}/"


def attempt_prefix(sweep_id: SweepId, config_hash: ConfigHash, fence: int, lease_id: LeaseId) -> str:
    """Where one holder of a lease writes, and nobody else (FENCE)."""
    return f"{trial_prefix(sweep_id, config_hash)}{_number(fence)}-{_hex(lease_id, 32)[:8]}/"


def pack_key(prefix: str, seq: int, index: int) -> str:
    """Private pack `index` of save `seq` under an attempt's prefix."""
    return f"{prefix}{_number(seq)}/p{_number(index)}"


def manifest_key(prefix: str, seq: int) -> str:
    """The manifest of save `seq` under an attempt's prefix."""
    return f"{prefix}{_number(seq)}/manifest.json"


def outcome_key(prefix: str) -> str:
    """The outcome object of an attempt."""
    return f"{prefix}outcome.json"


def config_key(sweep_id: SweepId, config_hash: ConfigHash, lineage: int) -> str:
    """The canonical config text of one lineage of a trial."""
    return f"{trial_prefix(sweep_id, config_hash)}config-{_number(lineage)}.json"


def sweep_key(sweep_id: SweepId) -> str:
    """The copy of the sweep's row from which a lost ledger is rebuilt."""
    return f"{sweep_prefix(sweep_id)}sweep.json"


def highwater_key(sweep_id: SweepId) -> str:
    """How far the sweep's ledger had come, rewritten by its coordinator."""
    return f"{sweep_prefix(sweep_id)}highwater.json"


def name_prefix(name: str) -> str:
    """The ownership log of a sweep's name."""
    return f"sweeps/by-name/{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()}/"


def name_entry_key(name: str, n: int) -> str:
    """Entry `n` of the ownership log of a name; the highest `n` owns."""
    return f"{name_prefix(name)}{_number(n)}.json"


def probe_key(random_hex: str) -> str:
    """A short-lived object by which `probe` tries the store."""
    return f"probe/{_hex(random_hex, 32)}"


def parse_manifest_key(key: str) -> AttemptKey | None:
    """Take a manifest's key apart; None for any other key."""
    return _attempt_key(_MANIFEST.fullmatch(key))


def parse_outcome_key(key: str) -> AttemptKey | None:
    """Take an outcome's key apart; None for any other key."""
    return _attempt_key(_OUTCOME.fullmatch(key))


def parse_name_entry(key: str) -> int | None:
    """Give `n` of an ownership entry; None for any other key."""
    match = _NAME_ENTRY.fullmatch(key)
    return int(match[1]) if match else None


def is_pack_key(key: str, sweep_id: SweepId) -> bool:
    """Whether a manifest of this sweep may name `key` as a pack: a private or shared pack inside the sweep's prefix."""
    match = _PRIVATE_PACK.fullmatch(key) or _SHARED_PACK.fullmatch(key)
    return match is not None and match["sweep"] == sweep_id


def require_safe(key: str) -> str:
    """Give the key back when every store takes it literally.

    Raises:
        ValueError: it was not made in this module (a bug, or text that was not checked).
    """
    if not _SAFE.fullmatch(key) or len(key) > 300:
        raise ValueError(f"not a store key: {key!r:.120}")
    return key


def _attempt_key(match: re.Match[str] | None) -> AttemptKey | None:
    if match is None:
        return None
    seq = match.groupdict().get("seq")
    return AttemptKey(
        sweep_id=match["sweep"],
        config_hash=match["config"],
        fence=int(match["fence"]),
        lease=match["lease"],
        seq=None if seq is None else int(seq),
    )


def _hex(text: str, digits: int) -> str:
    if not re.fullmatch(rf"[0-9a-f]{{{digits}}}", text):
        raise ValueError(f"expected {digits} hexadecimal digits, got {text!r:.80}")
    return text


def _number(value: int) -> str:
    if not 0 <= value < 10**18:
        raise ValueError(f"not a number for a key: {value}")
    return str(int(value))
