"""One child from start to its last message, forked off a warm parent."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import os
import signal
import socket
from pathlib import Path

import pytest

from sweeper.clock import SystemClock
from sweeper.model.messages import Failed, Finished, Invalid, Refused, Started, Stop, Stopped
from sweeper.model.tagged import from_tagged
from sweeper.model.waits import ExitStatus
from sweeper.trial.child_starter import ChildStarter
from sweeper.trial.warm_parent import WarmParent

from .conftest import Lab, alive, run_to_end, wait_until
from .script import ROLES, make_start


def value(message: object) -> object:
    assert isinstance(message, Finished), message
    return from_tagged(message.value)


def open_here() -> set[str]:
    links = set()
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            links.add(str(Path(f"/proc/self/fd/{number}").readlink()))
    return links


def test_a_child_starts_runs_and_gives_its_value(lab: Lab) -> None:
    child = lab.start("echo", "lr=1")
    pid = child.pid
    ended = run_to_end(child)
    assert ended.messages[0] == Started(pid=pid)
    assert value(ended.last) == {"number": 7, "overrides": ["echo", "lr=1"], "step": 1.5}
    assert ended.status == ExitStatus(code=0)


def test_numbers_of_numpy_and_torch_are_numbers(lab: Lab) -> None:
    assert value(lab.run("give_tensor").last) == [2.5, 0.5, 3]
    assert value(lab.run("give_tensor", objectives=3).last) == [2.5, 0.5, 3]


def test_what_a_grid_cannot_carry_is_dropped_with_a_line(lab: Lab) -> None:
    ended = lab.run("give_object")
    assert value(ended.last) is None
    assert "return value is dropped" in ended.tail


@pytest.mark.parametrize(
    ("task", "fault"),
    [
        ("give_nothing", "none"),
        ("give_nan", "nan"),
        ("give_object", "kind"),
        ("echo", "kind"),
        ("give_tensor", "arity"),
    ],
)
def test_a_search_wants_as_many_numbers_as_it_has_objectives(lab: Lab, task: str, fault: str) -> None:
    """CLEAR: what is wrong with the value is told, to people in words and to the ledger by its kind."""
    ended = lab.run(task, objectives=1)
    assert isinstance(ended.last, Invalid)
    assert "return the objective" in ended.last.detail
    assert ended.last.fault == fault
    assert ended.status.code == 1


@pytest.mark.parametrize("threads", [1, 2])
def test_a_forked_child_computes_with_as_many_threads_as_it_is_told(lab: Lab, threads: int) -> None:
    start = dataclasses.replace(lab.message("count_threads"), threads=threads)
    assert value(run_to_end(lab.starter.start(start)).last) == threads


def test_another_config_is_refused_before_user_code(lab: Lab) -> None:
    ended = lab.run("differs")
    assert ended.messages == [Refused(reason="config", detail="lr: 0.1 here, 0.2 there")]


def test_a_task_that_cannot_be_prepared_is_refused_with_the_cause(lab: Lab) -> None:
    ended = lab.run("no_such_task")
    assert isinstance(ended.last, Refused)
    assert ended.last.reason == "prepare"
    assert "no_such_task" in ended.last.detail


def test_a_failure_ends_in_the_users_own_frames(lab: Lab) -> None:
    ended = lab.run("fail")
    failed = ended.last
    assert isinstance(failed, Failed)
    assert (failed.category, failed.summary) == ("error", "RuntimeError: training failed")
    assert failed.traceback.rstrip().endswith("RuntimeError: training failed")
    assert "ValueError: learning rate too high" in failed.traceback
    assert "sweeper/trial" not in failed.traceback
    assert failed.traceback in ended.tail + "\n"
    assert ended.status.code == 1


@pytest.mark.parametrize(
    ("task", "category"), [("leave", "exit"), ("lack_module", "import"), ("run_out_of_memory", "memory")]
)
def test_failures_are_told_apart(lab: Lab, task: str, category: str) -> None:
    failed = lab.run(task).last
    assert isinstance(failed, Failed)
    assert failed.category == category


def test_a_crash_leaves_no_last_message_and_its_signal(lab: Lab) -> None:
    ended = lab.run("crash")
    assert [type(message) for message in ended.messages] == [Started]
    assert ended.status == ExitStatus(code=None, signal=signal.SIGSEGV)
    text = (lab.folder / "7" / "attempt-1.log").read_text()
    assert "Segmentation fault" in text
    assert "in crash" in text


def test_a_fork_made_by_user_code_cannot_speak_for_the_trial(lab: Lab) -> None:
    ended = lab.run("fork_and_come_back")
    given = value(ended.last)
    assert isinstance(given, list)
    assert given[0] == "the trial's value"
    assert "forked from the trial's" in str(given[1])
    assert [type(message) for message in ended.messages] == [Started, Finished]


def test_an_eviction_exits_75(lab: Lab) -> None:
    ended = lab.run("be_evicted")
    assert ended.last == Stopped(kind="evicted", step=0)
    assert ended.status.code == 75


def test_a_swallowed_stop_is_still_the_outcome(lab: Lab) -> None:
    child = lab.start("swallow_eviction")
    wait_until(lambda: "waiting" in child.output_tail())
    child.send(Stop(kind="pruned", reason="median", save=False, seconds_left=None))
    ended = run_to_end(child)
    assert ended.last == Stopped(kind="pruned", step=0)
    assert ended.status.code == 0


def test_all_output_is_in_the_attempts_file(lab: Lab) -> None:
    ended = lab.run("chatter", fence=3)
    text = (lab.folder / "7" / "attempt-3.log").read_text()
    for source in ("print", "logging", "a descriptor", "C", "a program", "stderr"):
        assert f"from {source}" in text
    assert ended.tail == text.rstrip("\n")


def test_the_tail_is_bounded(lab: Lab) -> None:
    assert lab.run("many_lines").tail.splitlines() == [f"line {line}" for line in range(19_960, 20_000)]


def test_children_hold_no_connection_that_was_opened_after_the_fork(lab: Lab) -> None:
    """PG-10: a socket, file or server of the worker is in no child."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        mine = {str(Path(f"/proc/self/fd/{one.fileno()}").readlink()) for one in (server, client)}
        links = value(lab.run("descriptors").last)
    assert isinstance(links, dict)
    assert mine.isdisjoint(links.values())


def test_a_child_holds_its_own_descriptors_and_no_siblings(tmp_path: Path) -> None:
    """Only socket, control page and staging memory, besides what the user's process had open before the fork."""
    before = open_here()
    warm = WarmParent.fork(ROLES)
    starter = ChildStarter(warm, fallback=None, clock=SystemClock())
    siblings = [starter.start(make_start(tmp_path, "hold"), None) for _ in range(2)]
    links = value(run_to_end(starter.start(make_start(tmp_path, "descriptors"), None)).last)
    assert isinstance(links, dict)
    new = [link.split(":")[0] for link in links.values() if link not in before]
    shared = sorted(link for link in new if link != "/dev/null" and not link.startswith("/proc/"))
    output = str(tmp_path / "7" / "attempt-1.log")
    assert shared == sorted(["/memfd", "/memfd", "socket", output, output]), (links, before)
    for sibling in siblings:
        sibling.close()
    warm.close()


def test_the_childs_environment_has_none_of_our_urls(
    module_warm: WarmParent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SAFE: neither Python, nor the kernel's view of the process, nor a program it starts sees them."""
    monkeypatch.setenv("SWEEPER_DATABASE_URL", "postgres://u:hunter2@db/x")
    monkeypatch.setenv("SWEEPER_STORE_URL", "s3://bucket/hunter2")
    warm = WarmParent.fork(ROLES)
    starter = ChildStarter(warm, fallback=None, clock=SystemClock())
    ended = run_to_end(starter.start(make_start(tmp_path, "environment", gpu="3"), None))
    warm.close()
    seen = value(ended.last)
    assert isinstance(seen, dict)
    assert seen["python"] == {
        "SWEEPER_DATABASE_URL": None,
        "SWEEPER_STORE_URL": None,
        "SWEEPER_ROLE": None,
        "CUDA_VISIBLE_DEVICES": "3",
    }
    assert "hunter2" not in json.dumps(seen)


def test_signals_to_everyone_change_nothing_for_the_child(lab: Lab) -> None:
    """PR-05: the worker is told by the signal, the child by the worker."""
    child = lab.start("outlast")
    wait_until(lambda: "busy" in child.output_tail())
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        os.killpg(child.pid, number)
        os.kill(lab.warm.pid, number)
    assert value(run_to_end(child).last) == "undisturbed"


def test_loader_workers_survive_signals_to_the_group(lab: Lab) -> None:
    """PR-05: torch's own handler in a loader worker would exit."""
    child = lab.start("load_with_workers", objectives=1)
    wait_until(lambda: len(list(lab.folder.glob("loader-*"))) == 2 and (lab.folder / "count").exists())
    for _ in range(3):
        os.killpg(child.pid, signal.SIGTERM)
    assert value(run_to_end(child).last) == 101


@pytest.mark.parametrize("task", ["load_with_workers", "start_group"])
def test_killing_a_child_ends_its_whole_group(lab: Lab, task: str) -> None:
    child = lab.start(task)
    wanted = 2 if task == "load_with_workers" else 1
    wait_until(lambda: len(list(lab.folder.glob("loader-*"))) == wanted)
    pids = [int(path.name.partition("-")[2]) for path in lab.folder.glob("loader-*")]
    assert all(alive(pid) for pid in pids)
    child.kill()
    ended = run_to_end(child, limit_s=5)
    assert ended.status == ExitStatus(code=None, signal=signal.SIGKILL)
    assert not any(alive(pid) for pid in pids)


def test_pools_and_programs_of_user_code_can_be_terminated(lab: Lab) -> None:
    assert value(lab.run("use_pool").last) == [1, 2]
    assert value(lab.run("terminate_program").last) == -signal.SIGTERM


@pytest.mark.slow
def test_fifty_children_in_a_row_leave_nothing_behind(lab: Lab) -> None:
    def held() -> tuple[int, int]:
        ours = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        return ours, len(os.listdir(f"/proc/{lab.warm.pid}/fd"))  # noqa: PTH208

    lab.run("echo")
    gc.collect()  # what earlier tests left to the collector may go at any time, and is not ours to count
    before = held()
    for number in range(50):
        assert value(lab.run("echo", str(number)).last)
    wait_until(lambda: all(now <= then for now, then in zip(held(), before, strict=True)), 5)
    children = Path(f"/proc/{lab.warm.pid}/task/{lab.warm.pid}/children").read_text().split()
    assert children == []


def test_restored_state_and_staging_pass_between_the_two(lab: Lab, tmp_path: Path) -> None:
    restore_fd = os.memfd_create("restored")
    os.write(restore_fd, b"x" * 100)
    links = value(run_to_end(lab.start("descriptors", restore_fd=restore_fd)).last)
    os.close(restore_fd)
    assert isinstance(links, dict)
    assert "/memfd:restored (deleted)" in links.values()
