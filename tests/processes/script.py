"""A user's script, with the plugin's and the worker's part played by hand.

Run as a program it is a worker: it forks a warm parent, starts one child on the task named last, says who is who in one
line of JSON, and waits for ever. With `--compute` it first does what users do at module level: compute in parallel.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import sweeper
from sweeper.clock import SystemClock
from sweeper.ids import WorkerId, system_random_hex
from sweeper.model.messages import Start
from sweeper.model.trial import Json
from sweeper.trial.child import ConfigDiffers, child_role
from sweeper.trial.child_starter import CHILD_ROLE, ChildStarter
from sweeper.trial.fresh import FreshParent, run_role_from_environment
from sweeper.trial.host import LifeLock
from sweeper.trial.session import current_session
from sweeper.trial.spawning import HIDDEN_VARIABLES, ForkUnsafe, Role
from sweeper.trial.stops import Evicted
from sweeper.trial.warm_parent import WarmParent


def echo(start: Start) -> object:
    return {"number": start.number, "overrides": start.overrides, "step": 1.5}


def descriptors(start: Start) -> object:
    """Every open descriptor of the child, as the kernel names it."""
    links = {}
    for entry in Path("/proc/self/fd").iterdir():
        try:
            links[entry.name] = str(entry.readlink())
        except OSError:
            continue
    return links


def environment(start: Start) -> object:
    return {
        "python": {name: os.environ.get(name) for name in (*HIDDEN_VARIABLES, "SWEEPER_ROLE", "CUDA_VISIBLE_DEVICES")},
        "kernel": Path("/proc/self/environ").read_bytes().decode("utf-8", "replace"),
        "program": subprocess.run(["env"], capture_output=True, text=True, check=True).stdout,
    }


def chatter(start: Start) -> object:
    print("from print")
    logging.getLogger("user").addHandler(logging.StreamHandler())
    logging.getLogger("user").error("from logging")
    os.write(1, b"from a descriptor\n")
    libc = ctypes.CDLL(None)
    libc.printf(b"from C\n")
    libc.fflush(None)
    subprocess.run(["echo", "from a program"], check=True)
    sys.stderr.write("from stderr")
    return None


def many_lines(start: Start) -> object:
    for line in range(20_000):
        print(f"line {line}")
    return None


def fail(start: Start) -> object:
    def inner() -> None:
        raise ValueError("learning rate too high")

    try:
        inner()
    except ValueError as error:
        raise RuntimeError("training failed") from error


def fork_and_come_back(start: Start) -> object:
    """A fork that user code forgets to end runs on as if it were the trial; it also uses the run that it was given."""
    run = sweeper.resume()
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        try:
            run.report(1.0)
        except sweeper.errors.UserError as error:
            os.write(write_end, str(error).encode())
        os.close(write_end)
        return "the fork's value"
    os.close(write_end)
    told = os.read(read_end, 1000).decode()
    os.wait()
    return ["the trial's value", told]


def leave(start: Start) -> object:
    sys.exit(0)


def lack_module(start: Start) -> object:
    import no_such_module_at_all  # noqa: F401


def run_out_of_memory(start: Start) -> object:
    raise MemoryError


def crash(start: Start) -> object:
    os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(10)  # noqa: TID251
    return None


def be_evicted(start: Start) -> object:
    raise Evicted("test")


def swallow_eviction(start: Start) -> object:
    """Train until the worker's stop, swallow it, and return something that looks like a result."""
    session = current_session()
    assert session is not None
    print("waiting", flush=True)
    try:
        while True:
            session.poll()
            time.sleep(0.005)  # noqa: TID251
    except BaseException:
        return 1.0


def give_tensor(start: Start) -> object:
    import numpy
    import torch

    return [torch.tensor(2.5), numpy.float32(0.5), numpy.int64(3)]


def give_object(start: Start) -> object:
    return object()


def give_nothing(start: Start) -> object:
    return None


def give_nan(start: Start) -> object:
    return float("nan")


def count_threads(start: Start) -> object:
    import torch

    torch.ones(1 << 20).add_(1)
    return torch.get_num_threads()


def load_with_workers(start: Start) -> object:
    """Read from a DataLoader with two forked workers until killed; each worker's process number goes to a file."""
    import torch

    here = Path(start.sweep_dir)

    class Pids(torch.utils.data.IterableDataset[int]):
        def __iter__(self):  # type: ignore[no-untyped-def]
            (here / f"loader-{os.getpid()}").touch()
            while True:
                time.sleep(0.01)  # noqa: TID251
                yield os.getpid()

    loader = torch.utils.data.DataLoader(Pids(), num_workers=2, batch_size=None)
    for count, _ in enumerate(loader):
        (here / "count").write_text(str(count))
        if start.objectives and count > 100:
            return count
    return None


def use_pool(start: Start) -> object:
    import multiprocessing

    with multiprocessing.get_context("fork").Pool(2) as pool:
        return pool.map(abs, [-1, -2])


def start_group(start: Start) -> object:
    """Have a program in the child's process group that knows nothing of us, and wait with it."""
    program = subprocess.Popen(["sleep", "1000"])
    (Path(start.sweep_dir) / f"loader-{program.pid}").touch()
    time.sleep(1000)  # noqa: TID251
    return None


def terminate_program(start: Start) -> object:
    program = subprocess.Popen(["sleep", "1000"])
    program.terminate()
    return program.wait(10)


def hold(start: Start) -> object:
    print("holding", flush=True)
    time.sleep(1000)  # noqa: TID251
    return None


def outlast(start: Start) -> object:
    """Be busy for a second, whatever signals come."""
    print("busy", flush=True)
    end = time.monotonic() + 1.0  # noqa: TID251
    while time.monotonic() < end:  # noqa: TID251
        time.sleep(0.05)  # noqa: TID251
    return "undisturbed"


class Task:
    """The face's part: `overrides` is the name of a function here."""

    def prepare(self, start: Start) -> Callable[[], object]:
        name = start.overrides[0]
        if name == "differs":
            raise ConfigDiffers("lr: 0.1 here, 0.2 there")
        if name.startswith("hang_if_forked"):
            if os.getppid() != int(start.overrides[1]):
                time.sleep(1000)  # noqa: TID251
            name = "swallow_eviction" if name.endswith("then_wait") else "echo"
        if name == "die_early":
            os._exit(3)
        function: Callable[[Start], object] = globals()[name]
        return lambda: function(start)


ROLES: dict[str, Role] = {CHILD_ROLE: child_role(Task())}


def make_start(sweep_dir: Path, *overrides: str, objectives: int = 0, gpu: str | None = None, fence: int = 1) -> Start:
    return Start(
        number=7,
        config_hash="ab" * 32,
        overrides=list(overrides),
        sweep_dir=str(sweep_dir),
        output_subdir="7",
        attempt=1,
        fence=fence,
        seed=0,
        threads=1,
        gpu=gpu,
        every_s=300.0,
        restore=None,
        first_seq=1,
        objectives=objectives,
    )


def be_worker(home: Path, task: str, parent_fd: int | None = None) -> None:
    warm = WarmParent.fork(ROLES, close=[] if parent_fd is None else [parent_fd])
    fresh = FreshParent(None, ROLES)
    lock = LifeLock.acquire(home, WorkerId(system_random_hex()))
    starter = ChildStarter(warm, fallback=fresh, clock=SystemClock(), lock_fd=lock.fileno())
    try:
        reason = warm.fork_safety()
    except ForkUnsafe as error:
        reason = str(error)
    child = starter.start(make_start(home, task), None)
    facts = {"warm": warm.pid, "child": child.pid, "lock": str(lock.path), "inode": lock.inode, "reason": reason}
    messages: list[object] = []
    print(json.dumps(facts), flush=True)
    while True:
        messages += child.receive()
        if child.exited is not None:
            print(json.dumps([type(message).__name__ for message in messages]), flush=True)
            break
        if parent_fd is not None and select.select([parent_fd], [], [], 0)[0]:
            (home / "orphaned").touch()
            parent_fd = None
        time.sleep(0.01)  # noqa: TID251
    time.sleep(1000)  # noqa: TID251


def worker_main(payload: Json, descriptors: tuple[int, ...]) -> int:
    assert isinstance(payload, list)
    home, task = payload
    be_worker(Path(str(home)), str(task), descriptors[0])
    return 0


def be_command(home: Path, task: str) -> None:
    """The multirun's part: fork the root warm parent, have it fork a worker, and wait for ever."""
    root = WarmParent.fork({**ROLES, "worker": Role(main=worker_main, survives=True)})
    theirs, ours = os.pipe()
    worker = root.spawn("worker", [str(home), task], [theirs])
    (home / "root").write_text(f"{root.pid} {worker.pid} {ours}")
    time.sleep(1000)  # noqa: TID251


if __name__ == "__main__":
    if "--compute" in sys.argv:
        import torch

        torch.ones(1 << 20).add_(1)
    if "--broken" in sys.argv:
        import no_such_module_at_all  # noqa: F401
    run_role_from_environment(ROLES)
    begin = be_command if "--command" in sys.argv else be_worker
    begin(Path(sys.argv[1]), sys.argv[2])
