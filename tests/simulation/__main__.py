"""Replay seeds: `python -m tests.simulation [search] SEED [LAST]` prints each one's history on failure, else a line."""

from __future__ import annotations

import logging
import sys
import tempfile
import traceback
from pathlib import Path

from sweeper.clock import SystemClock
from sweeper.ledger.database import open_database
from sweeper.ledger.embedded import ensure_server, stop_server

from .scenario import Scenario
from .searching import SearchScenario, search_shape_of, undisturbed

QUICK = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


def main() -> int:
    logging.disable(logging.CRITICAL)
    given = sys.argv[1:]
    searches = given[0] == "search"
    first, last = int(given[searches]), int(given[-1])
    clock, failed = SystemClock(), 0
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        url = ensure_server(home, idle_s=30.0, options=QUICK)
        open_database(url).close()
        began_s = clock.monotonic_s()
        try:
            for seed in range(first, last + 1):
                failed += not _one(url, seed, search=searches)
        finally:
            stop_server(home)
    took_s = clock.monotonic_s() - began_s
    print(
        f"{last - first + 1} seeds in {took_s:.1f} s, {60 * (last - first + 1) / took_s:.0f} a minute, {failed} failed"
    )
    return int(failed > 0)


def _one(url: str, seed: int, *, search: bool) -> bool:
    if search:
        shape = search_shape_of(seed)
        scenario: Scenario = SearchScenario(url, seed, shape, expected=undisturbed(url, seed, shape))
    else:
        scenario = Scenario(url, seed)
    try:
        report = scenario.run()
    except Exception:
        print("\n".join(scenario.world.trace[-200:]))
        traceback.print_exc()
        print(f"seed {seed} failed")
        return False
    print(
        f"seed {seed}: {','.join(report.states)} after {report.virtual_s:.0f} s, {report.statements} statements, "
        f"{report.faults} faults, {report.digest[:12]}"
    )
    return True


if __name__ == "__main__":
    sys.exit(main())
