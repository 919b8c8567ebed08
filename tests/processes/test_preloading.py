"""What a child finds imported, and that getting it ready leaves the process as safe to fork as it was."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

CHILD = """
import os, sys
from sweeper.trial.spawning import Role
from sweeper.trial.warm_parent import WarmParent

def main(payload, descriptors):
    had = set(sys.modules)
    train()
    os.write(1, repr(sorted(set(sys.modules) - had)).encode())
    return 0

def spawn():
    warm = WarmParent.fork({"child": Role(main=main)})
    spawned = warm.spawn("child", None)
    while spawned.exit_status() is None:
        os.sched_yield()
    warm.close()
"""
CUDA_BUILD = """
import torch
asked = []
torch._C._cuda_getDeviceCount = lambda: asked.append("devices") or 0
torch._C._cuda_init = lambda: asked.append("init")
torch._C._cuda_isInBadFork = lambda: False
torch._C._cuda_getCurrentRawStream = lambda device: 0
assert torch.cuda._is_compiled()
"""


def output(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_a_child_that_trains_with_torch_imports_nothing_more() -> None:
    """An optimizer's first import took a second and a half in each; one that a step makes takes a millisecond."""
    train = """
import torch
def train():
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3).step()
spawn()
"""
    assert output(CHILD + train) in ("[]", "['torch.profiler._cupti_monitor']")


def test_a_script_without_torch_does_not_get_it() -> None:
    assert output(f"{CHILD}def train(): assert 'torch' not in sys.modules\nspawn()") == "[]"


def test_a_child_that_loops_imports_nothing_more() -> None:
    train = """
import sweeper
def train():
    run = sweeper.resume()
    for epoch in run.epochs(1):
        for item in run.batches([1]): run.report(1.0)
spawn()
"""
    assert output(CHILD + train) == "[]"


def test_forking_stays_safe_and_random_numbers_stay_the_same() -> None:
    code = """
import os, torch
if os.fork(): os.wait(); os._exit(0)
torch.set_num_threads(1)
from sweeper.trial.canary import reason_not_to_fork
from sweeper.trial.kernel import thread_count
from sweeper.trial.preloading import preload
threads, state = thread_count(), torch.get_rng_state()
preload()
print(thread_count() == threads == 1, bool((torch.get_rng_state() == state).all()), reason_not_to_fork())
"""
    assert output(code) == "True True None"


def test_on_a_build_for_gpus_the_driver_is_asked_nothing() -> None:
    """Asking how many devices there are makes CUDA unusable in every fork."""
    code = f"{CUDA_BUILD}\nfrom sweeper.trial.preloading import preload\npreload()\nprint('torch._dynamo' in"
    assert output(f"{code} __import__('sys').modules, asked)") == "True []"


def test_what_cannot_be_imported_is_left_to_the_script_that_needs_it() -> None:
    code = """
import sys, torch
sys.modules["torch._dynamo"] = None
from sweeper.trial.preloading import preload
preload()
print("alive")
"""
    assert output(code) == "alive"
