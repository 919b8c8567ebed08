"""Where Optuna's tables are."""

from __future__ import annotations

from typing import Final

MIRROR_SCHEMA: Final = "optuna"
"""In the ledger's database. Tables of the same names elsewhere in it are another program's."""
