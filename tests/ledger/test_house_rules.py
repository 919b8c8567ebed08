"""Rules that every statement of the ledger keeps, read from the statements themselves."""

from __future__ import annotations

import importlib
import pkgutil
import re

import pytest
import sqlalchemy as sa

import sweeper.ledger
from sweeper.ledger.choices import LEADS
from sweeper.ledger.guards import HELD
from sweeper.ledger.leases import renew_lease
from sweeper.ledger.results import record_reports
from sweeper.ledger.sql import statement
from sweeper.model.trial import Report
from tests.ledger.world import LEASE_S, World


def statements() -> dict[str, str]:
    found = {}
    for module in pkgutil.iter_modules(sweeper.ledger.__path__):
        if module.name != "migrations":
            names = vars(importlib.import_module(f"sweeper.ledger.{module.name}"))
            found |= {
                f"{module.name}.{key}": value.text for key, value in names.items() if isinstance(value, sa.TextClause)
            }
    return found


STATEMENTS = statements()
UNDER_LEASE = {
    name: text for name, text in STATEMENTS.items() if ":lease_id" in text and "UPDATE sweeper.trials" in text
}


CHOICES = {
    name: text
    for name, text in STATEMENTS.items()
    if ":coordinator_id" in text and not name.startswith("sweeps.")  # which are about the coordinator's own lease
}


def test_there_are_statements_to_look_at() -> None:
    assert len(CHOICES) >= 7
    assert len(STATEMENTS) > 40
    assert len(UNDER_LEASE) >= 10


@pytest.mark.parametrize("name", STATEMENTS)
def test_no_statement_selects_every_column(name: str) -> None:
    """A column that a newer migration adds must not reach older code."""
    assert not re.search(r"select\s+(\w+\.)?\*|returning\s+(\w+\.)?\*", STATEMENTS[name], re.IGNORECASE)


@pytest.mark.parametrize("name", STATEMENTS)
def test_time_is_read_in_one_way(name: str) -> None:
    text = STATEMENTS[name].replace("coalesce(:now, statement_timestamp())", "")
    assert not re.search(r"\bnow\(\)|current_timestamp|clock_timestamp|statement_timestamp|:now", text, re.IGNORECASE)


@pytest.mark.parametrize("name", UNDER_LEASE)
def test_a_write_under_a_lease_locks_the_trial_first(name: str) -> None:
    """A guard that only reads lets a zombie's insert land after the takeover."""
    first = UNDER_LEASE[name].split("\n), ")[0]
    assert re.search(r"UPDATE sweeper\.trials t\s+SET|FOR NO KEY UPDATE", first)
    if "LEASE_" not in name:
        assert HELD in first, "and by the one guard"


@pytest.mark.parametrize("name", CHOICES)
def test_a_choice_locks_the_coordinators_row_first_by_id_and_fence(name: str) -> None:
    """A coordinator that was replaced changes nothing, and choices come one after the other (FENCE)."""
    first = CHOICES[name].split("\n), ")[0]
    assert re.search(r"UPDATE sweeper\.coordinators c\s+SET|FOR NO KEY UPDATE", first)
    assert LEADS in first


@pytest.mark.parametrize("name", STATEMENTS)
def test_nothing_rests_on_session_state(name: str) -> None:
    """Behind a transaction pooler the next statement is on another connection."""
    text = STATEMENTS[name].lower()
    assert "listen" not in text.split()
    assert not re.search(r"pg_(try_)?advisory_lock|create temp|\bset session\b", text)
    assert text.count("set_config(") == text.count(", true)"), "settings are local to their transaction"


def test_what_does_not_wait_for_the_disk_leaves_no_setting_behind(world: World) -> None:
    world.add(1)
    lease = world.lease().lease
    before = world.sql("SELECT current_setting('synchronous_commit') AS mode")[0].mode
    world.sql("SET synchronous_commit = 'on'")
    report = Report(step=1, at_step=1, value=1.0)
    for write in (
        lambda: renew_lease(world.db, lease, lease_s=LEASE_S),
        lambda: record_reports(world.db, lease, [report], lease_s=LEASE_S, durable=False),
    ):
        write()
        assert world.sql("SELECT current_setting('synchronous_commit') AS mode")[0].mode == "on"
    world.sql(f"SET synchronous_commit = '{before}'")


def test_only_what_is_made_again_does_not_wait_for_the_disk() -> None:
    """A heartbeat is repeated, a report is written once more and waited for, a proposal is made anew from rows (SAME),
    and the mirror is a projection (TRUTH)."""
    assert [name for name, text in STATEMENTS.items() if "synchronous_commit" in text] == [
        "leases._RENEW",
        "mirror_at_once._ASYNCHRONOUS",
        "proposals._ADD",
        "results._RECORD_IN_PASSING",
    ]


def test_a_misspelt_parameter_is_found_at_import() -> None:
    with pytest.raises(KeyError):
        statement("SELECT :lease_idd")
    with pytest.raises(ValueError, match="parentheses"):
        statement("SELECT :fence::text")
