"""Workers, warm parents and children as separate programs, killed at each place of the tree."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sweeper.trial.host import boot_id, holder_is_dead

from .conftest import alive, wait_until

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parent / "script.py"


@dataclass
class Tree:
    """A worker in its own session, its warm parent, its child and the loaders that the child forked."""

    program: subprocess.Popen[str]
    facts: dict[str, object]
    folder: Path

    @property
    def worker(self) -> int:
        return self.program.pid

    @property
    def warm(self) -> int:
        return int(str(self.facts["warm"]))

    @property
    def child(self) -> int:
        return int(str(self.facts["child"]))

    @property
    def loaders(self) -> list[int]:
        return [int(path.name.partition("-")[2]) for path in self.folder.glob("loader-*")]

    def lock_is_free(self) -> bool:
        return holder_is_dead(Path(str(self.facts["lock"])), str(self.facts["inode"]), boot_id())

    def everyone(self) -> list[int]:
        return [self.worker, self.warm, self.child, *self.loaders]


def grow(folder: Path, task: str, *flags: str) -> Tree:
    command = [sys.executable, str(SCRIPT), str(folder), task, *flags]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert program.stdout is not None
    return Tree(program=program, facts=json.loads(program.stdout.readline()), folder=folder)


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    """A child with two loader workers, all running."""
    grown = grow(tmp_path, "load_with_workers")
    wait_until(lambda: len(grown.loaders) == 2)
    yield grown
    end(grown)


def end(grown: Tree) -> None:
    grown.program.kill()
    grown.program.communicate()
    wait_until(lambda: not any(alive(pid) for pid in grown.everyone()), 5)


def test_a_killed_worker_takes_all_along_and_only_then_the_lock_is_free(tree: Tree) -> None:
    assert not tree.lock_is_free()
    os.kill(tree.worker, signal.SIGKILL)
    freed = wait_until(tree.lock_is_free, 5)
    assert not any(alive(pid) for pid in (tree.child, *tree.loaders))
    wait_until(lambda: not alive(tree.warm), 1)
    assert freed < 1


def test_a_killed_warm_parent_takes_child_and_loaders_along(tree: Tree) -> None:
    os.kill(tree.warm, signal.SIGKILL)
    assert wait_until(lambda: not any(alive(pid) for pid in (tree.child, *tree.loaders)), 5) < 1
    assert alive(tree.worker)
    assert tree.program.stdout is not None
    assert json.loads(tree.program.stdout.readline()) == ["Started"]
    assert not tree.lock_is_free()


def test_a_killed_child_takes_its_loaders_along(tree: Tree) -> None:
    os.kill(tree.child, signal.SIGKILL)
    assert wait_until(lambda: not any(alive(pid) for pid in tree.loaders), 5) < 1
    assert alive(tree.worker)
    assert alive(tree.warm)
    assert not tree.lock_is_free()


def test_signals_to_the_whole_tree_end_only_the_worker_if_at_all(tree: Tree) -> None:
    """PR-05: a scheduler signals every process it finds; the child and its loaders go on."""
    count = tree.folder / "count"
    wait_until(count.exists)
    before = int(count.read_text() or 0)
    for pid in (tree.warm, tree.child, *tree.loaders):
        os.kill(pid, signal.SIGTERM)
    wait_until(lambda: int(count.read_text() or 0) > before + 50)
    assert all(alive(pid) for pid in tree.everyone())


def test_what_a_child_started_dies_with_the_worker_even_if_it_knows_nothing_of_us(tmp_path: Path) -> None:
    """Programs in the child's process group have no death signal: the warm parent ends the group."""
    grown = grow(tmp_path, "start_group")
    wait_until(lambda: len(grown.loaders) == 1)
    os.kill(grown.worker, signal.SIGKILL)
    assert wait_until(lambda: not any(alive(pid) for pid in (grown.child, *grown.loaders)), 5) < 1
    end(grown)


def test_what_a_child_started_dies_when_the_warm_parent_was_killed(tmp_path: Path) -> None:
    grown = grow(tmp_path, "start_group")
    wait_until(lambda: len(grown.loaders) == 1)
    os.kill(grown.warm, signal.SIGKILL)
    assert wait_until(lambda: not any(alive(pid) for pid in (grown.child, *grown.loaders)), 5) < 1
    end(grown)


def test_a_worker_outlives_its_killed_command_and_learns_of_it(tmp_path: Path, kill_later: list[int]) -> None:
    """The root warm parent goes with the command; worker and child stay, so that the worker can drain."""
    grown = grow(tmp_path, "load_with_workers", "--command")
    root, worker = [int(text) for text in (tmp_path / "root").read_text().split()[:2]]
    kill_later.append(worker)
    wait_until(lambda: len(grown.loaders) == 2)
    grown.program.kill()
    assert wait_until(lambda: not alive(root), 5) < 1
    wait_until((tmp_path / "orphaned").exists, 5)
    assert all(alive(pid) for pid in (worker, grown.warm, grown.child, *grown.loaders))
    assert not grown.lock_is_free()
    os.kill(worker, signal.SIGKILL)
    assert wait_until(grown.lock_is_free, 5) < 1
    end(grown)


@pytest.mark.slow
def test_a_script_that_computes_when_imported_trains_in_fresh_interpreters(tmp_path: Path) -> None:
    """A forked child would hang in its first parallel region; the canary does so in its place."""
    grown = grow(tmp_path, "count_threads", "--compute")
    assert "hung" in str(grown.facts["reason"])
    assert grown.program.stdout is not None
    assert json.loads(grown.program.stdout.readline()) == ["Started", "Finished"]
    end(grown)


def test_a_warm_parent_with_torch_forks_children_that_compute(tmp_path: Path) -> None:
    grown = grow(tmp_path, "count_threads")
    assert grown.facts["reason"] is None
    assert grown.program.stdout is not None
    assert json.loads(grown.program.stdout.readline()) == ["Started", "Finished"]
    end(grown)
