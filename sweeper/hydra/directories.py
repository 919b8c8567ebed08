"""Output directories: where each trial writes, checked before any trial exists.

The sweep directory is resolved once and pinned; below it a trial's own directory is `hydra.sweep.subdir` for the
trial's number. It is the same in every attempt, inside the sweep directory, short enough to exist, and no other's.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Final

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from sweeper.errors import UserError
from sweeper.hydra.compose import override_lines, quoted

_MAX_COMPONENT_BYTES: Final = 200
"""File systems stop at 255; attempts and log files get their suffixes beside it."""
_MAX_PATH_BYTES: Final = 3800
_BY_NUMBER: Final = "${hydra.job.num}"
"""Hydra's default; resolving it costs more than everything else here."""
_OWNER_FILE: Final = ".sweep"
_MAX_CLAIMS: Final = 1000
_MOMENT: Final = re.compile(r"\$\{\s*now\s*:")
_SWEEP_DIR: Final = "hydra.sweep.dir="


def set_job(config: DictConfig, number: int) -> None:
    """Give a composed job its number, and an `override_dirname` whose values cannot make further directories."""
    job = config.hydra.job
    with read_write(config.hydra), open_dict(config.hydra):
        job.num = number
        job.id = str(number)
        job.override_dirname = str(job.override_dirname).replace("/", "_")


def trial_subdir(config: DictConfig, number: int) -> str:
    """Resolve `hydra.sweep.subdir` of a composed job for a trial number; components too long to exist are shortened.

    The job's number in `config` is set on the way.

    Raises:
        UserError: the directory would lie outside the sweep directory, or differ from attempt to attempt.
    """
    expression = str(config.hydra.sweep._get_node("subdir")._value())
    if _MOMENT.search(expression):
        raise UserError(
            f"hydra.sweep.subdir={expression!r} depends on the moment, so a resumed trial would not find its directory",
            remedy="put ${now:…} into hydra.sweep.dir, which is resolved once for the whole sweep",
        )
    set_job(config, number)
    text = str(number) if expression == _BY_NUMBER else _resolved(config)
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise UserError(
            f"the output directory {text!r} lies outside the sweep directory",
            remedy="choose another hydra.sweep.subdir, for example '${hydra.job.num}'",
        )
    return str(PurePosixPath(*(_shortened(part) for part in path.parts)))


def _resolved(config: DictConfig) -> str:
    before = HydraConfig.instance().cfg
    try:
        HydraConfig.instance().set_config(config)
        return str(OmegaConf.select(config, "hydra.sweep.subdir", throw_on_missing=True))
    finally:
        HydraConfig.instance().cfg = before


def check_lengths(sweep_dir: Path, subdirs: Iterable[str]) -> None:
    """Refuse directories that no file system can hold.

    Raises:
        UserError: a path is too long.
    """
    for subdir in subdirs:
        size_bytes = len(os.fsencode(sweep_dir / subdir))
        if size_bytes > _MAX_PATH_BYTES:
            raise UserError(
                f"the output directory {str(subdir)[:80]!r}… is too long: {size_bytes} bytes with the sweep directory",
                remedy="choose a shorter hydra.sweep.subdir, for example '${hydra.job.num}'",
            )


def check_unshared(directories: Iterable[tuple[str, str, str]]) -> None:
    """Refuse directories that two trials would share, or that lie one inside another.

    Args:
        directories: for each trial: its identity, how to name it in a message, its directory.

    Raises:
        UserError: names both trials.
    """
    owners: dict[str, tuple[str, str]] = {}
    for identity, label, subdir in directories:
        other = owners.setdefault(subdir, (identity, label))
        if other[0] != identity:
            _refuse_shared(other[1], label, subdir)
    for subdir, (_, label) in owners.items():
        for above in list(PurePosixPath(subdir).parents)[:-1]:
            if str(above) in owners:
                _refuse_shared(owners[str(above)][1], label, str(above))


def claim_sweep_dir(wanted: Path, sweep_name: str, *, fresh: bool) -> Path:
    """Give the directory in which a new sweep begins.

    Two sweeps begun in the same second would get one `multirun/<date>/<time>`; the second is given `…-2`. A directory
    that the user named is never changed.

    Args:
        wanted: `hydra.sweep.dir`, resolved, absolute.
        sweep_name: claims of the same sweep do not exclude one another.
        fresh: whether the directory's name comes from the moment.

    Raises:
        UserError: it cannot be written.
    """
    for successor in range(1, _MAX_CLAIMS):
        directory = wanted if successor == 1 or not fresh else wanted.with_name(f"{wanted.name}-{successor}")
        try:
            directory.mkdir(parents=True, exist_ok=True)
            if not fresh or _claim(directory / _OWNER_FILE, sweep_name):
                return directory
        except OSError as error:
            raise UserError(
                f"the sweep directory {directory} cannot be written: {error.strerror}",
                remedy="choose another hydra.sweep.dir",
            ) from error
    raise UserError(f"no free directory beside {wanted}")


def resolve_sweep_dir(config: DictConfig) -> tuple[Path, bool]:
    """Give `hydra.sweep.dir`, absolute, and whether its name comes from the moment."""
    expression = str(config.hydra.sweep._get_node("dir")._value())
    return Path(os.path.abspath(str(config.hydra.sweep.dir))), bool(_MOMENT.search(expression))  # noqa: PTH100 no symlinks


def pin_sweep_dir(config: DictConfig, directory: Path) -> None:
    """Make `directory` the sweep directory of a multirun config, for itself and for every job composed from it."""
    line = f"{_SWEEP_DIR}{quoted(str(directory))}"
    with read_write(config.hydra), open_dict(config.hydra):
        config.hydra.sweep.dir = literal(str(directory))
        kept = [each for each in override_lines(config, "hydra") if not each.startswith(_SWEEP_DIR)]
        config.hydra.overrides.hydra = [*kept, line]


def literal(text: str) -> str:
    """Escape a text so that OmegaConf reads it as it is, interpolation signs included."""
    return re.sub(r"(\\*)\$\{", lambda match: match.group(1) * 2 + "\\${", text)


def _claim(owner: Path, sweep_name: str) -> bool:
    try:
        with owner.open("x", encoding="utf-8") as file:
            file.write(sweep_name)
    except FileExistsError:
        return owner.read_text(encoding="utf-8") in ("", sweep_name)
    return True


def _shortened(component: str) -> str:
    raw = component.encode(errors="surrogateescape")
    if len(raw) <= _MAX_COMPONENT_BYTES:
        return component
    digest = hashlib.sha256(raw).hexdigest()[:12]
    return f"{raw[: _MAX_COMPONENT_BYTES - 13].decode(errors='ignore')}-{digest}"


def _refuse_shared(first: str, second: str, directory: str) -> None:
    raise UserError(
        f"{first} and {second} would write into one directory: {directory!r}",
        remedy="make hydra.sweep.subdir different for each trial, for example with '${hydra.job.num}'",
    )
