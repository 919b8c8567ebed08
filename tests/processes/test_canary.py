"""The canary's verdict on processes that differ in what they did before. Real parallel runtimes, in real programs."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from sweeper.trial import canary


def verdict_after(code: str, *, limit_s: float = 1.0) -> str:
    program = f"{code}\nfrom sweeper.trial.canary import reason_not_to_fork\nprint(reason_not_to_fork({limit_s}))"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def test_a_process_without_parallel_runtimes_is_safe() -> None:
    assert verdict_after("") == "None"


@pytest.mark.slow
def test_importing_torch_is_safe_and_computing_with_it_is_not() -> None:
    fork = "import os\nif os.fork(): os.wait(); os._exit(0)"  # threads do not survive it; the belief in them does
    assert verdict_after(f"import torch; torch.nn.Linear(3, 3)\n{fork}") == "None"
    assert "hung for 1 s" in verdict_after(f"import torch; torch.ones(1 << 20).add_(1)\n{fork}")


def test_a_copy_that_gets_no_processor_does_not_hang() -> None:
    """On a busy machine a healthy copy needs longer than the limit; one that hangs sleeps."""
    slow = "from sweeper.trial import canary; import time\ncanary.compute_in_parallel = "
    busy = "lambda: [time.process_time() for _ in iter(lambda: time.process_time() < 0.4, False)]"
    assert verdict_after(slow + busy, limit_s=0.05) == "None"
    assert "hung for 0.05 s" in verdict_after(f"{slow}lambda: time.sleep(60)", limit_s=0.05)


def test_threads_make_it_unsafe() -> None:
    starts = "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()"
    assert verdict_after(starts) == "the process has 2 threads"


def test_a_crash_in_the_copy_makes_it_unsafe() -> None:
    assert "crashed" in verdict_after(
        "import sys, types\nsys.modules['numpy'] = types.SimpleNamespace(ones=0, dot=0)\nimport os"
    )


@pytest.mark.parametrize(("initialised", "bad_fork"), [(True, False), (False, True)])
def test_cuda_makes_it_unsafe_also_where_torch_no_longer_says_so(
    initialised: bool, bad_fork: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a fork of a process that used CUDA, torch says it is not initialised, and refuses to work."""
    cuda = SimpleNamespace(is_initialized=lambda: initialised, _is_in_bad_fork=lambda: bad_fork)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(canary, "thread_count", lambda: 1)
    assert "CUDA" in str(canary.reason_not_to_fork())
