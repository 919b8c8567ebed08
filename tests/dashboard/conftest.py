"""A search on a database with Optuna's tables, as for the mirror's own tests."""

from __future__ import annotations

from tests.mirror.conftest import mirror_template as mirror_template
from tests.mirror.conftest import mirror_url as mirror_url
from tests.mirror.conftest import world as world
