"""The surface costs no import of torch or NumPy, and seeds reach them when the user imports them later."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


def fresh(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_the_surface_imports_neither_torch_nor_numpy() -> None:
    code = (
        "import sys, sweeper; run = sweeper.resume()\n"
        "for epoch in run.epochs(1):\n"
        "    for item in run.batches([1]): run.report(1.0)\n"
        "print([name for name in ('torch', 'numpy') if name in sys.modules])"
    )
    assert fresh(code) == "[]"


def test_seeds_reach_what_is_imported_before_and_after() -> None:
    draws = "print(random.random(), np.random.rand(), torch.rand(()).item(), torch.get_num_threads())"
    seed = "from sweeper.trial.seeding import seed_everything, set_threads; seed_everything(3, 'ab'); set_threads(1)\n"
    imports = "import random, numpy as np, torch\n"
    before = fresh(imports + seed + draws)
    assert before == fresh(seed + imports + draws)
    assert before.endswith(" 1")
    assert before != fresh(imports + seed.replace("'ab'", "'cd'") + draws)
