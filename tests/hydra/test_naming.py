"""Which sweep a command means: names that repeat for the same command and differ for unlike ones."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sweeper.errors import UserError
from sweeper.hydra.naming import choose_name, default_name
from sweeper.ids import SweepId
from sweeper.launch.task import Task, check_same_task, describe_task
from sweeper.model.retry import RetryPolicy
from sweeper.model.states import SweepState
from sweeper.model.trial import Sweep

TASK = Task(name="train:main", file=Path("/a/train.py"), source_digest="d1")
NOW_DIR = "multirun/${now:%Y-%m-%d}/${now:%H-%M-%S}"


def sweep(name: str, state: SweepState, digest: str) -> Sweep:
    return Sweep(
        sweep_id=SweepId("0" * 32),
        name=name,
        state=state,
        task="train:main",
        source_digest=digest,
        sweep_dir="/s",
        store_url="memory://",
        seed=0,
        search=None,
        identity={},
        retry=RetryPolicy(),
        checkpoint_keep=3,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def test_the_default_name_is_job_and_six_digits_of_location_stable_directory_and_kind() -> None:
    def name(job: str = "train", task: Task = TASK, directory: str = NOW_DIR, *, is_search: bool = False) -> str:
        return default_name(job, task, directory, is_search=is_search)

    assert name().startswith("train-")
    assert len(name()) == len("train-") + 6
    assert name() == name(directory="out/${now:%H}"), "a moment does not count"
    assert name() != name(task=dataclasses.replace(TASK, file=Path("/b/train.py")))
    assert name() != name(directory="out")
    assert name(directory="out/${hydra.job.name}") != name(directory="out")
    assert name() != name(is_search=True), "a grid and a search of one script are two sweeps"
    assert len(name("x" * 500, directory="out")) <= 200


@pytest.mark.parametrize(
    ("sweeps", "expected"),
    [
        ([], ("train-1", None)),
        ([("train-1", SweepState.FINISHED, "d1")], ("train-1", None)),
        ([("train-1", SweepState.ACTIVE, "old")], ("train-1", None)),
        ([("train-1", SweepState.FINISHED, "old")], ("train-1-2", "train-1")),
        ([("train-1", SweepState.FINISHED, "old"), ("train-1-2", SweepState.ACTIVE, "older")], ("train-1-2", None)),
        ([("train-1", SweepState.FINISHED, "old"), ("train-1-2", SweepState.FINISHED, "d1")], ("train-1-2", None)),
        (
            [("train-1", SweepState.FINISHED, "old"), ("train-1-2", SweepState.FINISHED, "older")],
            ("train-1-3", "train-1-2"),
        ),
        ([("train-1", SweepState.CANCELLED, "old")], ("train-1", None)),
    ],
)
def test_a_finished_sweep_whose_script_changed_is_left_alone(
    sweeps: list[tuple[str, SweepState, str]], expected: tuple[str, str | None]
) -> None:
    known = {name: sweep(name, state, digest) for name, state, digest in sweeps}
    chosen = choose_name(None, "train-1", "d1", known.get)
    assert (chosen.name, chosen.superseded) == expected
    assert chosen.existing == known.get(chosen.name)


def test_an_explicit_name_always_continues() -> None:
    known = {"mine": sweep("mine", SweepState.FINISHED, "old")}
    chosen = choose_name("mine", "train-1", "d1", known.get)
    assert (chosen.name, chosen.existing, chosen.superseded) == ("mine", known["mine"], None)


def test_another_task_under_the_same_name_is_refused() -> None:
    check_same_task(sweep("s", SweepState.ACTIVE, "d"), TASK, name_setting="name")
    with pytest.raises(UserError, match=r"train:main.*train:other"):
        check_same_task(
            sweep("s", SweepState.ACTIVE, "d"), dataclasses.replace(TASK, name="train:other"), name_setting="name"
        )


def test_a_task_is_its_module_and_name_and_its_file() -> None:
    task = describe_task(test_a_task_is_its_module_and_name_and_its_file)
    assert task.name.endswith("test_naming:test_a_task_is_its_module_and_name_and_its_file")
    assert task.file == Path(__file__).resolve()
    assert len(task.source_digest) == 64


def test_a_task_without_a_file_is_refused_with_the_way_out() -> None:
    namespace: dict[str, object] = {"__name__": "__main__"}
    exec("def task(cfg): return 1", namespace)
    with pytest.raises(UserError, match=r"not defined in a file[^$]*python train\.py"):
        describe_task(namespace["task"])  # type: ignore[arg-type]
