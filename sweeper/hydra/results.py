"""What a launch returns: Hydra's own `JobReturn` objects, rebuilt from the ledger.

Nothing is unpickled: a result is tagged JSON, a failure is `TrialFailed` with the user's traceback as text.
"""

from __future__ import annotations

from pathlib import Path

from hydra.core.utils import JobReturn, JobRuntime, JobStatus
from hydra.errors import CompactHydraException
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from sweeper.errors import TrialFailed
from sweeper.hydra.cloning import clone
from sweeper.hydra.directories import literal, trial_subdir
from sweeper.hydra.jobs import Job
from sweeper.model.states import TrialState
from sweeper.model.tagged import from_tagged
from sweeper.model.trial import Trial


class _TrialFailed(TrialFailed, CompactHydraException):
    """Hydra prints its text alone: it ends in the user's traceback, and Hydra's own frames would bury that."""


def job_return(job: Job, trial: Trial, sweep_dir: Path) -> JobReturn:
    """Give the result of one requested job from the trial that stands for it.

    Args:
        job: the job as it was asked for; its config becomes part of the result.
        trial: the trial; one that is not final was left out by `fail_fast`.
        sweep_dir: the sweep's pinned directory.
    """
    config = job.config
    output_dir = sweep_dir / trial_subdir(config, trial.number)
    with read_write(config.hydra), open_dict(config.hydra):
        config.hydra.sweep.dir = literal(str(sweep_dir))
        config.hydra.runtime.output_dir = literal(str(output_dir))
    result = JobReturn(
        overrides=list(job.overrides),
        cfg=clone(config, keep=lambda key: key != "hydra"),
        hydra_cfg=_hydra_config(config),
        working_dir=str(output_dir),
        task_name=JobRuntime.instance().get("name"),
    )
    if not output_dir.is_dir():
        _recreate(output_dir, result, trial)
    match trial.state:
        case TrialState.COMPLETED:
            result.status, result.return_value = JobStatus.COMPLETED, from_tagged(trial.result)
        case TrialState.PRUNED:
            value = from_tagged(trial.result) if trial.result is not None else trial.last_value
            result.status, result.return_value = JobStatus.COMPLETED, value
        case TrialState.FAILED | TrialState.CANCELLED:
            text = f":\n{trial.error}" if trial.error else ""
            message = f"trial {trial.number} {trial.state.value} ({trial.config_hash[:12]}, {job.label}){text}"
            result.status, result.return_value = JobStatus.FAILED, _TrialFailed(message)
        case _:
            message = f"trial {trial.number} ({job.label}) was not finished: the command stopped before"
            result.status, result.return_value = JobStatus.FAILED, _TrialFailed(message)
    return result


def _hydra_config(config: DictConfig) -> DictConfig:
    """Make a composed config what `HydraConfig` holds for a job: its `hydra` node alone, read-only."""
    content = config.__dict__["_content"]
    config.__dict__["_content"] = {"hydra": content["hydra"]}
    OmegaConf.set_readonly(config.hydra, True)
    return config


def _recreate(output_dir: Path, result: JobReturn, trial: Trial) -> None:
    """Bring back what people look for in a finished trial's directory, after somebody removed it."""
    hydra_cfg = result.hydra_cfg
    if hydra_cfg is None or result.cfg is None:
        return
    output_dir.mkdir(parents=True, exist_ok=True)
    if hydra_cfg.hydra.output_subdir is not None:
        folder = output_dir / hydra_cfg.hydra.output_subdir
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.yaml").write_text(OmegaConf.to_yaml(result.cfg), encoding="utf-8")
        (folder / "hydra.yaml").write_text(OmegaConf.to_yaml(hydra_cfg), encoding="utf-8")
        overrides = OmegaConf.to_yaml(OmegaConf.create(list(result.overrides or ())))
        (folder / "overrides.yaml").write_text(overrides, encoding="utf-8")
    log = output_dir / f"{hydra_cfg.hydra.job.name}.log"
    log.write_text(f"trial {trial.number} {trial.state.value}; its directory was gone and was made again\n")
