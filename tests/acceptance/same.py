"""The long form of `test_search_same.py`: 60 trials killed at 20 random moments, for every sampler.

python -m tests.acceptance.same [--sampler tpe] [--trials 60] [--kills 20] [--workers 1]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from sweeper.ledger.embedded import ensure_server, stop_server
from tests.acceptance.searching import SAMPLERS, arguments, run_with_kills, search_bench, story, unhurried


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sampler", choices=list(SAMPLERS), action="append")
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        ensure_server(home)
        try:
            for sampler in options.sampler or SAMPLERS:
                compare(sampler, options, Path(folder), home)
        finally:
            stop_server(home)


def compare(sampler: str, options: argparse.Namespace, folder: Path, home: Path) -> None:
    """Run one search undisturbed and once under kills, and compare their stories."""
    more = [*SAMPLERS[sampler], unhurried(options.workers)]
    calm, struck = search_bench(folder / sampler / "calm", home), search_bench(folder / sampler / "struck", home)
    sizes = {"n_trials": options.trials, "workers": options.workers}
    assert calm.finish(*arguments(f"calm {sampler}", *more, **sizes), timeout_s=600) == 0, calm.printed()
    command = arguments(f"struck {sampler}", *more, **sizes)
    kills = run_with_kills(struck, command, kills=options.kills, seed=options.seed)
    assert kills == options.kills, f"{sampler}: it ended after {kills} kills"
    expected, found = story(calm, f"calm {sampler}"), story(struck, f"struck {sampler}")
    for was, now in zip(expected, found, strict=True):
        assert was == now, f"{sampler}: number {was[0]} differs:\n  {was}\n  {now}"
    attempts = sum(len(trial["attempts"]) for trial in struck.trials(f"struck {sampler}"))
    print(
        f"{sampler}: {len(found)} trials, {kills} kills of everything, {attempts} attempts: the same sequence of "
        "configs, states and values",
        flush=True,
    )


if __name__ == "__main__":
    main()
