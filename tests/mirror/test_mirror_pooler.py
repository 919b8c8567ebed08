"""The mirror behind a transaction pooler, where start-up options are refused and nothing outlives a transaction."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from database.test_pooler import pooled_url as pooled_url  # the fixture
from faults.postgres_servers import server_port

from sweeper.errors import UserError
from sweeper.ledger.database import Database, open_database
from sweeper.ledger.mirror_access import refuse_pooler
from tests.mirror.world import SearchWorld


@pytest.fixture
def pooled(pooled_url: str) -> Iterator[SearchWorld]:
    """A search whose ledger and mirror are reached through pgbouncer."""
    open_database(pooled_url).close()
    with Database(pooled_url, "test") as database:
        yield SearchWorld.build(database, pooled_url)


@pytest.mark.slow
def test_the_mirror_is_made_written_and_written_anew_through_a_pooler(pooled: SearchWorld, fresh_database: str) -> None:
    pooled.sql("CREATE TABLE public.alembic_version (version_num text)")
    mirroring = pooled.mirroring()
    grant = pooled.start(lr=0.1, layers=3, act=None)
    pooled.report(grant, 0.9)
    pooled.turn(mirroring, 6)
    pooled.complete(grant, 0.5)
    pooled.turn(mirroring, 3)
    assert pooled.notes == []
    pooled.rebuild()
    pooled.turn(mirroring, 4)
    many = [pooled.start(lr=0.2 + number / 100, layers=1, act=None) for number in range(30)]
    pooled.sql("UPDATE sweeper.attempts SET started_at = started_at - interval '2 seconds'")
    pooled.turn(mirroring, 4)
    for number, grant in enumerate(many):
        pooled.report(grant, 0.7, 0.6)
        pooled.complete(grant, 1.0 + number)
    pooled.turn(mirroring, 10)
    mirroring.close()
    assert (pooled.lag, pooled.notes) == (0, [])

    direct = SearchWorld(
        pooled.db,
        fresh_database,
        pooled.sweep,
        pooled.fence,
        pooled.asker_id,
        pooled.coordinator_id,
        pooled.worker_id,
    )
    first, *others = direct.study().get_trials()
    assert (first.values, first.intermediate_values) == ([0.5], {0: 0.9})
    assert [one.values for one in others] == [[1.0 + number] for number in range(30)]
    assert all(one.intermediate_values == {0: 0.7, 1: 0.6} for one in others)
    direct.close()
    tables = pooled.sql("SELECT count(*) AS found FROM information_schema.tables WHERE table_schema = 'public'")
    assert tables[0].found == 1, "only the table that was there"


@pytest.mark.slow
def test_plain_optuna_is_told_to_go_round_the_pooler(pooled_url: str, fresh_database: str) -> None:
    with pytest.raises(UserError, match="SWEEPER_DATABASE_URL") as refused:
        refuse_pooler(pooled_url)
    assert "password" not in refused.value.message
    assert server_port(fresh_database)
