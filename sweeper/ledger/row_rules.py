"""Constraints of rows, checked only by statements that write a column which they speak of.

A CHECK is read as text from the catalog and compiled anew by every statement that touches its table: with a trial's
seventeen a heartbeat, which writes none of their columns, took the server half as long again. A trigger names the
columns that it watches, and its function is compiled once in a session. It raises what a CHECK of that name would.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum

import sqlalchemy as sa


def one_of(column: str, values: Iterable[StrEnum]) -> str:
    """Give the condition that a column holds one of the values."""
    return f"{column} IN ({', '.join(repr(value.value) for value in values)})"


class RowRules:
    """The rules of one table; makes their trigger wherever the table is made from metadata."""

    def __init__(self, table: sa.Table, rules: Mapping[str, str]) -> None:
        """`rules`: conditions on the row `NEW`, by name; one that is null holds, as with a CHECK."""
        self.statements = _statements(table, rules)
        for text in self.statements:
            sa.event.listen(table, "after_create", sa.DDL(text.replace("%", "%%")))  # type: ignore[no-untyped-call]


def _statements(table: sa.Table, rules: Mapping[str, str]) -> tuple[str, str]:
    """Give the function and the trigger."""
    watched = [column.name for column in table.columns if re.search(rf"NEW\.{column.name}\b", " ".join(rules.values()))]
    all_hold = "\n       AND ".join(f"({rule}) IS NOT FALSE" for rule in rules.values())
    broken = "\n        ".join(f"WHEN ({rule}) IS FALSE THEN '{table.name}_{name}'" for name, rule in rules.items())
    function = f"{table.schema}.{table.name}_rules"
    return (
        f"""CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE broken text;
BEGIN
    IF {all_hold} THEN
        RETURN NULL;
    END IF;
    broken := CASE
        {broken}
    END;
    RAISE check_violation USING
        MESSAGE = 'new row for relation "{table.name}" violates constraint "' || broken || '"',
        SCHEMA = '{table.schema}', TABLE = '{table.name}', CONSTRAINT = broken;
END $$""",
        f"CREATE TRIGGER {table.name}_rules AFTER INSERT OR UPDATE OF {', '.join(watched)}\n"
        f"ON {table.schema}.{table.name} FOR EACH ROW EXECUTE FUNCTION {function}()",
    )
