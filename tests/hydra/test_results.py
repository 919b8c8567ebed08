"""What a launch returns: Hydra's own objects, rebuilt from the ledger, one a job, in order."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra.core.utils import JobReturn, JobStatus
from hydra.errors import CompactHydraException
from omegaconf import OmegaConf

from sweeper.errors import TrialFailed

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("hydra_restore_singletons")]
Sweep = Callable[..., list[JobReturn]]


def task(cfg: Any) -> Any:
    if cfg.bar < 0:
        raise ValueError(f"below zero: {cfg.bar}")
    return {"doubled": cfg.bar * 2, "pid": os.getpid()}


@pytest.fixture
def sweep(
    hydra_sweep_runner: Callable[..., Any], fresh_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Sweep:
    monkeypatch.setenv("SWEEPER_DATABASE_URL", fresh_database)
    monkeypatch.setenv("SWEEPER_HOME", str(tmp_path / "home"))

    def run(*overrides: str) -> list[JobReturn]:
        runner = hydra_sweep_runner(
            calling_file=None,
            calling_module="hydra.test_utils.a_module",
            task_function=task,
            config_path="configs",
            config_name="compose.yaml",
            overrides=["hydra/launcher=sweeper", "hydra.job.chdir=false", *overrides],
            temp_dir=tmp_path / "out",
        )
        runner.__enter__()
        returns: list[JobReturn] = [job for batch in runner.returns for job in batch]
        return returns

    return run


def test_one_result_a_job_in_order_duplicates_sharing_their_trials(sweep: Sweep, tmp_path: Path) -> None:
    """CH-03."""
    jobs = sweep("bar=1,2,1")
    assert [job.overrides for job in jobs] == [["bar=1"], ["bar=2"], ["bar=1"]]
    assert [job.return_value["doubled"] for job in jobs] == [2, 4, 2]
    assert jobs[0].return_value == jobs[2].return_value
    assert jobs[0].return_value["pid"] not in (os.getpid(), jobs[1].return_value["pid"]), "a process each"
    assert [job.working_dir for job in jobs] == [str(tmp_path / "out" / number) for number in "010"]
    assert [job.hydra_cfg.hydra.job.num for job in jobs] == [0, 1, 0]
    assert [job.hydra_cfg.hydra.runtime.output_dir for job in jobs] == [job.working_dir for job in jobs]
    assert jobs[1].cfg == OmegaConf.create({"foo": 10, "bar": 2})
    assert jobs[0].task_name == "a_module"

    again = sweep("bar=2,1")
    assert [job.return_value for job in again] == [jobs[1].return_value, jobs[0].return_value], "nothing was trained"


def test_a_directory_that_is_gone_is_made_again(sweep: Sweep) -> None:
    (job,) = sweep("bar=1")
    directory = Path(str(job.working_dir))
    shutil.rmtree(directory)
    sweep("bar=1")
    assert OmegaConf.load(directory / ".hydra" / "config.yaml") == {"foo": 10, "bar": 1}
    assert OmegaConf.load(directory / ".hydra" / "overrides.yaml") == ["bar=1"]
    assert (directory / "a_module.log").is_file()


def test_a_failed_job_carries_the_users_traceback_as_text(sweep: Sweep) -> None:
    with pytest.raises(TrialFailed) as caught:
        sweep("bar=-1,5", "hydra.launcher.retry.max_crashes=1")
    text = str(caught.value)
    assert text.rstrip().endswith("ValueError: below zero: -1")
    assert 'raise ValueError(f"below zero: {cfg.bar}")' in text
    assert "sweeper/hydra" not in text, "no frames of ours"
    assert isinstance(caught.value, CompactHydraException), "Hydra prints it without its own frames"
    assert JobStatus.FAILED.value == 2


def test_batches_of_one_command_are_one_sweep(sweep: Sweep) -> None:
    jobs = sweep("bar=1,2,3,1", "hydra.sweeper.max_batch_size=2")
    assert [job.return_value["doubled"] for job in jobs] == [2, 4, 6, 2]
    assert [job.hydra_cfg.hydra.job.num for job in jobs] == [0, 1, 2, 0]
