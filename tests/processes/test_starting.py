"""What happens when forking is unsafe, hangs, or when nothing can be started."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweeper.clock import SystemClock
from sweeper.errors import UserError
from sweeper.model.messages import Failed, Finished, Refused, Started, Stop, Stopped
from sweeper.model.waits import ExitStatus
from sweeper.trial.child_starter import ChildStarter
from sweeper.trial.fresh import ROLE_VARIABLE, FreshParent, run_role_from_environment, this_command
from sweeper.trial.spawning import ForkUnsafe, Role, SpawnFailed
from sweeper.trial.warm_parent import WarmParent

from .conftest import alive, run_to_end, wait_until
from .script import ROLES, make_start

SCRIPT = Path(__file__).parent / "script.py"


@pytest.fixture
def fresh() -> FreshParent:
    return FreshParent([sys.executable, str(SCRIPT)], ROLES)


@pytest.fixture
def warm() -> Iterator[WarmParent]:
    parent = WarmParent.fork(ROLES)
    yield parent
    parent.close()


def starter(spawner: object, fallback: object, *, forked_start_s: float = 30.0, fresh_s: float = 60.0) -> ChildStarter:
    return ChildStarter(
        spawner,  # type: ignore[arg-type]
        fallback=fallback,  # type: ignore[arg-type]
        clock=SystemClock(),
        forked_start_s=forked_start_s,
        fresh_start_s=fresh_s,
    )


def test_a_fresh_interpreter_gives_the_same(fresh: FreshParent, tmp_path: Path) -> None:
    child = starter(fresh, None).start(make_start(tmp_path, "echo"))
    pid = child.pid
    ended = run_to_end(child)
    assert ended.messages[0] == Started(pid=pid)
    assert isinstance(ended.last, Finished)
    assert ended.status == ExitStatus(code=0)


def test_a_fresh_child_has_neither_our_urls_nor_a_role_to_pass_on(
    fresh: FreshParent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWEEPER_DATABASE_URL", "postgres://u:hunter2@db/x")
    message = run_to_end(starter(fresh, None).start(make_start(tmp_path, "environment"))).last
    assert isinstance(message, Finished)
    seen = message.value
    assert isinstance(seen, dict)
    assert "hunter2" not in str(seen)
    assert ROLE_VARIABLE + "=" not in str(seen["program"])


def test_killing_a_fresh_child_ends_its_group(fresh: FreshParent, tmp_path: Path) -> None:
    child = starter(fresh, None).start(make_start(tmp_path, "start_group"))
    wait_until(lambda: list(tmp_path.glob("loader-*")) != [])
    [program] = [int(path.name.partition("-")[2]) for path in tmp_path.glob("loader-*")]
    child.kill()
    assert run_to_end(child, 5).status.signal == 9
    wait_until(lambda: not alive(program), 1)


def test_a_script_that_cannot_be_imported_says_so(tmp_path: Path) -> None:
    broken = FreshParent([sys.executable, str(SCRIPT), "--broken"], ROLES)
    ended = run_to_end(starter(broken, None).start(make_start(tmp_path, "echo")))
    assert isinstance(ended.last, Refused)
    assert ended.last.reason == "start"
    assert "no_such_module_at_all" in ended.last.detail
    assert ended.status.code == 1


def test_a_missing_interpreter_is_a_refusal_not_an_error(tmp_path: Path) -> None:
    nowhere = FreshParent([str(tmp_path / "no-python")], ROLES)
    child = starter(nowhere, None).start(make_start(tmp_path, "echo"))
    assert child.exited is None
    ended = run_to_end(child)
    assert isinstance(ended.last, Refused)
    assert "no-python" in ended.last.detail


def test_an_output_folder_that_cannot_be_made_is_a_refusal(warm: WarmParent, tmp_path: Path) -> None:
    (tmp_path / "7").write_text("a file is in the way")
    message = run_to_end(starter(warm, None).start(make_start(tmp_path, "echo"))).last
    assert isinstance(message, Refused)


def test_a_forked_child_that_hangs_before_its_task_is_replaced_by_a_fresh_one(
    warm: WarmParent, fresh: FreshParent, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also what was sent to the first is repeated to the second, and it is said once."""
    start_children = starter(warm, fresh, forked_start_s=0.3)
    child = start_children.start(make_start(tmp_path, "hang_if_forked", str(os.getpid())))
    first = child.pid
    child.send(Stop(kind="cancelled", reason="test", save=False, seconds_left=None))
    ended = run_to_end(child)
    assert isinstance(ended.last, Finished)
    assert isinstance(ended.messages[0], Started)
    assert ended.messages[0].pid != first
    assert not alive(first)
    again = run_to_end(start_children.start(make_start(tmp_path, "echo", fence=2)))
    assert isinstance(again.last, Finished)
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1


def test_messages_sent_before_the_replacement_reach_it(warm: WarmParent, fresh: FreshParent, tmp_path: Path) -> None:
    child = starter(warm, fresh, forked_start_s=0.2).start(
        make_start(tmp_path, "hang_if_forked_then_wait", str(os.getpid()))
    )
    child.send(Stop(kind="pruned", reason="test", save=False, seconds_left=None))
    assert run_to_end(child).last == Stopped(kind="pruned", step=0)


def test_a_forked_child_that_dies_before_its_task_is_tried_fresh_and_then_refused(
    warm: WarmParent, fresh: FreshParent, tmp_path: Path
) -> None:
    ended = run_to_end(starter(warm, fresh).start(make_start(tmp_path, "die_early")))
    assert isinstance(ended.last, Refused)
    assert "status 3" in ended.last.detail
    assert ended.status.code == 3


def test_a_dead_warm_parent_is_replaced_by_fresh_interpreters(fresh: FreshParent, tmp_path: Path) -> None:
    warm = WarmParent.fork(ROLES)
    warm.close()
    message = run_to_end(starter(warm, fresh).start(make_start(tmp_path, "echo"))).last
    assert isinstance(message, Finished)


def test_a_process_with_threads_is_not_forked() -> None:
    """The thread is started in the warm parent itself, as a library's fork hook may do."""
    stop = threading.Event()
    own = os.getpid()
    armed = [True]

    def start_thread() -> None:
        if armed[0] and os.getppid() == own:
            threading.Thread(target=stop.wait, daemon=True).start()

    os.register_at_fork(after_in_child=start_thread)
    warm = WarmParent.fork(ROLES)
    armed[0] = False
    with pytest.raises(ForkUnsafe, match="2 threads"):
        warm.spawn("child", {})
    assert warm.fork_safety() == "the process has 2 threads"
    warm.close()


def test_an_unknown_role_is_refused(warm: WarmParent) -> None:
    with pytest.raises(SpawnFailed, match="no role"):
        warm.spawn("conductor", {})


def test_a_role_that_survives_leads_its_own_session_and_outlives_its_warm_parent(
    tmp_path: Path, kill_later: list[int]
) -> None:
    def main(payload: object, descriptors: tuple[int, ...]) -> int:
        (tmp_path / "session").write_text(f"{os.getpid()} {os.getsid(0)}")
        os.read(descriptors[0], 1)
        return 5

    pipe_end, our_end = os.pipe()
    warm = WarmParent.fork({"worker": Role(main=main, survives=True)}, close=[our_end])
    spawned = warm.spawn("worker", None, [pipe_end])
    kill_later.append(spawned.pid)
    wait_until(lambda: (tmp_path / "session").exists() and (tmp_path / "session").read_text().count(" ") == 1)
    assert (tmp_path / "session").read_text() == f"{spawned.pid} {spawned.pid}"
    warm.close()
    assert alive(spawned.pid)
    assert spawned.exit_status() is None
    os.close(our_end)
    wait_until(lambda: spawned.exit_status() is not None, 5)
    assert spawned.exit_status() == ExitStatus(code=None, signal=None)
    spawned.close()
    os.close(pipe_end)


def test_the_status_of_a_worker_is_reported() -> None:
    warm = WarmParent.fork({"worker": Role(main=lambda payload, descriptors: 75, survives=True)})
    spawned = warm.spawn("worker", None)
    wait_until(lambda: spawned.exit_status() is not None, 5)
    assert spawned.exit_status() == ExitStatus(code=75)
    spawned.close()
    warm.close()


def test_no_exit_handler_of_the_script_runs_in_its_copies(tmp_path: Path) -> None:
    import subprocess

    marks = tmp_path / "marks"
    code = f"""
import atexit, os, sys
atexit.register(lambda: open({str(marks)!r}, "a").write("x"))
sys.path.insert(0, {str(Path(__file__).parent.parent)!r})
from pathlib import Path
from processes.conftest import run_to_end
from processes.script import *
print("printed once", end="")
warm = WarmParent.fork(ROLES)
starter = ChildStarter(warm, fallback=None, clock=SystemClock())
for _ in range(3):
    run_to_end(starter.start(make_start(Path({str(tmp_path)!r}), "fail"), None))
warm.close()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert marks.read_text() == "x"
    assert done.stdout == "printed once"


def test_this_command_starts_scripts_and_modules_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "__spec__", None)
    monkeypatch.setattr(main, "__file__", str(SCRIPT), raising=False)
    assert this_command(["-m", "a=1"])[-3:] == [str(SCRIPT), "-m", "a=1"]
    monkeypatch.setattr(main, "__file__", str(tmp_path / "<stdin>"))
    with pytest.raises(UserError, match="no file"):
        this_command()
    with pytest.raises(SpawnFailed, match="put the function"):
        FreshParent(None, ROLES).spawn("child", {})


def test_a_stray_role_variable_is_an_error_and_its_absence_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ROLE_VARIABLE, raising=False)
    assert run_role_from_environment(ROLES) is None
    monkeypatch.setenv(ROLE_VARIABLE, '["child", 987654, [], null]')
    with pytest.raises(UserError, match="not by the process"):
        run_role_from_environment(ROLES)


def test_an_error_in_a_fresh_child_is_the_users(fresh: FreshParent, tmp_path: Path) -> None:
    message = run_to_end(starter(fresh, None).start(make_start(tmp_path, "fail"))).last
    assert isinstance(message, Failed)
    assert message.summary == "RuntimeError: training failed"
