"""What a search returns to Hydra: a result for each number, in order, in batches; and what it says at its end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra.core.utils import JobReturn, JobStatus

from sweeper.errors import TrialFailed

pytestmark = [
    pytest.mark.slow,
    # Hydra warns of its own default in each of its own test applications.
    pytest.mark.filterwarnings("default:Future Hydra versions"),
    pytest.mark.usefixtures("hydra_restore_singletons"),
]
Sweep = Callable[..., list[list[JobReturn]]]


def task(cfg: Any) -> Any:
    if cfg.bar < 0:
        raise ValueError(f"below zero: {cfg.bar}")
    return float(cfg.bar)


def choose(cfg: Any, trial: Any) -> None:
    """Fails for one number, and gives configs that repeat."""
    if trial.number == 2:
        raise KeyError("not this one")
    trial.suggest_int("bar", 1, 1 + trial.number % 2)


@pytest.fixture
def sweep(
    hydra_sweep_runner: Callable[..., Any], fresh_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Sweep:
    monkeypatch.setenv("SWEEPER_DATABASE_URL", fresh_database)
    monkeypatch.setenv("SWEEPER_HOME", str(tmp_path / "home"))

    def run(*overrides: str) -> list[list[JobReturn]]:
        runner = hydra_sweep_runner(
            calling_file=None,
            calling_module="hydra.test_utils.a_module",
            task_function=task,
            config_path="configs",
            config_name="compose.yaml",
            overrides=["hydra/sweeper=sweeper", *overrides],
            temp_dir=tmp_path / "out",
        )
        runner.__enter__()
        batches: list[list[JobReturn]] = runner.returns
        return batches

    return run


def test_one_result_a_number_with_aliases_and_refusals(sweep: Sweep, tmp_path: Path) -> None:
    """A repeated config has its trial's result; a number without a config has failed, with the reason."""
    batches = sweep(
        "hydra.sweeper.n_trials=6", "hydra.sweeper.max_batch_size=4", "hydra/sweeper/sampler=random",
        f"hydra.sweeper.custom_search_space={__name__}.choose",
    )  # fmt: skip
    assert [len(batch) for batch in batches] == [4, 2]
    jobs = [job for batch in batches for job in batch]
    for number, job in enumerate(jobs):
        if number == 2:
            continue
        assert job.status is JobStatus.COMPLETED
        bar = int(job.return_value)
        assert job.overrides == [f"bar={bar}"]
        assert job.cfg == {"foo": 10, "bar": bar}
        assert Path(str(job.working_dir)).parent == tmp_path / "out"
        assert Path(str(job.working_dir)).is_dir()
    assert jobs[0].return_value == jobs[4].return_value == 1.0
    assert jobs[0].working_dir == jobs[4].working_dir, "trained once"
    assert jobs[2].status is JobStatus.FAILED
    with pytest.raises(TrialFailed, match=r"(?s)number 2 was refused.*not this one"):
        _ = jobs[2].return_value
    assert batches[0][0] is batches[0][0], "made once"
    assert [job.overrides for job in batches[0][-2:]] == [jobs[2].overrides, jobs[3].overrides]


def test_a_failure_is_not_raised_out_of_the_sweep_but_sets_the_exit_status(sweep: Sweep, tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as left:
        sweep("bar=-1,5", "hydra/sweeper/sampler=grid", "hydra.launcher.retry.max_crashes=1")
    assert left.value.code == 1
    assert (tmp_path / "out" / "optimization_results.yaml").read_text() == (
        "name: optuna\nbest_params:\n  bar: 5\nbest_value: 5.0\n"
    )
