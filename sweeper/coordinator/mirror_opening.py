"""Making a search's mirroring of its parts; nothing is contacted before its first turn."""

from __future__ import annotations

from collections.abc import Callable

from sweeper.clock import Clock
from sweeper.coordinator.mirror_rebuild import rebuild_mirror
from sweeper.coordinator.mirroring import StudyMirroring
from sweeper.ids import RandomHex
from sweeper.ledger.database import Statements
from sweeper.ledger.mirror_access import MirrorAccess
from sweeper.model.search import SearchSpec
from sweeper.model.trial import Sweep
from sweeper.model.waits import Background
from sweeper.search.mirror import Mirror


def study_mirroring(
    url: str,
    sweep: Sweep,
    *,
    database: Statements,
    background: Background,
    clock: Clock,
    random_hex: RandomHex,
    note: Callable[[str], None],
) -> StudyMirroring:
    """Make the mirroring of a sweep that has a search.

    Args:
        url: the ledger's database, where the study is too; reached by connections of the mirror's own.
        sweep: its row.
        database: the ledger, for statements in the coordinator's loop.
        background: where the study is written.
        clock: for pauses.
        random_hex: draws the marks by which studies are told apart.
        note: tells people something once.
    """
    assert sweep.search is not None, "only a search has a mirror"
    access = MirrorAccess(url)
    mirror = Mirror(
        access,
        sweep_id=sweep.sweep_id,
        name=sweep.name,
        spec=SearchSpec.from_json(sweep.search),
        clock=clock,
        random_hex=random_hex,
    )
    return StudyMirroring(
        mirror,
        lambda: rebuild_mirror(url, sweep, random_hex),
        database=database,
        background=background,
        clock=clock,
        sweep=sweep,
        explain=access.explain,
        note=note,
    )
