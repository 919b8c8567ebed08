"""Is it safe to fork this process and compute in the copy? Found out by doing so once, under a time limit.

A parallel runtime (OpenMP under torch, NumPy, scikit-learn) that has started its threads before a fork believes in the
child that they still exist, and waits for ever in the child's first parallel region. Nothing in the process tells so
reliably; a *canary* that enters such a region does.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
from pathlib import Path
from typing import Final

from sweeper.trial.kernel import die_with_parent, thread_count

CANARY_S: Final = 3.0
"""Seconds after which a copy that only waits is taken to hang; about 0.07 s is normal with torch."""
STARVED_S: Final = 10.0
"""Seconds more for a copy that would run if it got a processor: a busy machine does not make forking unsafe."""
_SLICE_S: Final = 0.1


def reason_not_to_fork(limit_s: float = CANARY_S) -> str | None:
    """Say why children must not be forked off this process, or None when the canary came back."""
    if (threads := thread_count()) > 1:
        return f"the process has {threads} threads"
    if _cuda_was_used():
        return "CUDA was initialised by the script before its task was called"
    return _fly(limit_s)


def _cuda_was_used() -> bool:
    """Whether CUDA is unusable in forks. torch calls this a bad fork, and then no longer counts as initialised."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None:
        return False
    return bool(cuda.is_initialized() or getattr(cuda, "_is_in_bad_fork", bool)())


def _fly(limit_s: float) -> str | None:
    mine, its = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _be_the_canary(its, parent)
    os.close(its)
    watch = select.poll()
    watch.register(mine, select.POLLIN)
    answered = watch.poll(limit_s * 1000)
    slices = round(STARVED_S / _SLICE_S)
    while not answered and slices > 0 and _wants_to_run(pid):
        answered = watch.poll(_SLICE_S * 1000)
        slices -= 1
    came_back = bool(answered) and os.read(mine, 1) == b"1"
    os.close(mine)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    if came_back:
        return None
    how = "crashed" if answered else f"hung for {limit_s:g} s"
    return f"a forked copy {how} in its first parallel computation (the script computes when it is imported)"


def _wants_to_run(pid: int) -> bool:
    """Whether a thread of the process is running, waiting for a processor, or reading memory in from a disk.

    One that hangs waits for a thread which the fork did not copy, and sleeps.
    """
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):
            if stat.read_text().rpartition(")")[2].split()[0] in ("R", "D"):
                return True
    return False


def _be_the_canary(its: int, parent: int) -> None:
    try:
        die_with_parent(parent)
        with contextlib.suppress(OSError):
            silence = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silence, 1)
            os.dup2(silence, 2)
        compute_in_parallel()
        os.write(its, b"1")
    finally:
        os._exit(0)


def compute_in_parallel() -> None:
    """Enter one small parallel region in each parallel runtime that is loaded."""
    for path in _loaded_libraries("libgomp"):
        region = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p)  # any function that ignores its argument
        parallel = getattr(ctypes.CDLL(path), "GOMP_parallel", None)
        if parallel is not None:
            parallel(region, None, 2, 0)
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "set_num_threads"):
        torch.set_num_threads(2)
        torch.ones(1 << 18).add_(1).sum().item()
        torch.ones(256, 256).mm(torch.ones(256, 256))
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(numpy, "ones"):
        numpy.dot(numpy.ones((256, 256)), numpy.ones((256, 256)))


def _loaded_libraries(prefix: str) -> list[str]:
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return []
    paths = {line.split(maxsplit=5)[5] for line in lines if line.count("/")}
    return sorted(path for path in paths if Path(path).name.startswith(prefix) and Path(path).is_file())
