"""Composing many jobs cheaply: one full composition per shape of job, value overrides applied to copies.

Hydra composes a job in about 50 ms, and the basic sweeper composes each job once more than its launcher does.
`TemplateLoader` stands in front of Hydra's own loader, for both. Jobs that differ only in plain values (`lr=0.1`)
share a *template*: the configuration composed without these values. The first job of each shape is composed in full,
and its template is trusted only if it gives exactly the same configuration. Whatever is more than a plain value
(groups, `+`, `++`, `~`, `@`, `hydra.…`) belongs to the shape; whatever goes wrong is left to the full composition,
so Hydra's rules and messages stay Hydra's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from hydra.core.config_loader import ConfigLoader
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import ConfigCompositionException, HydraException
from hydra.plugins.config_source import ConfigSource
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from sweeper.hydra.cloning import clone

_MAX_TEMPLATES: Final = 64
_MAX_PARSED: Final = 10_000
_SWEEP_DIR: Final = "hydra.sweep.dir"


class JobCompositionError(ConfigCompositionException):
    """A job's configuration cannot be composed; names the job, its overrides and the key (Hydra prints it, exit 1)."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """What must be composed in full: everything about a job but the values of its plain overrides."""

    config_name: str | None
    hydra_overrides: tuple[str, ...]
    structural: tuple[str, ...]
    value_keys: tuple[str, ...]


@dataclass(slots=True)
class _Template:
    """A shape's first job in full, and the template once it has proved itself on that job. None twice: not usable."""

    sample: tuple[tuple[str, ...], DictConfig] | None
    config: DictConfig | None = None


class TemplateLoader(ConfigLoader):
    """Hydra's loader, with `load_sweep_config` answered from templates; everything else is passed on."""

    def __init__(self, loader: ConfigLoader) -> None:
        self._loader = loader
        self._templates: dict[_Shape, _Template] = {}
        self._parsed: dict[str, Override] = {}
        self._groups: dict[tuple[tuple[str, ...], str], bool] = {}
        self._asked = 0

    def load_sweep_config(self, master_config: DictConfig, sweep_overrides: list[str]) -> DictConfig:
        """Compose the next job of a sweeper that checks its jobs in order before it launches them.

        Raises:
            JobCompositionError: it cannot be composed; the job's position is the number of calls so far.
        """
        self._asked += 1
        return self.compose(master_config, sweep_overrides, position=self._asked - 1)

    def compose(self, master: DictConfig, overrides: Sequence[str], *, position: int) -> DictConfig:
        """Compose the job at `position` of the command.

        Raises:
            JobCompositionError: it cannot be composed.
        """
        lines = tuple(overrides)
        shape = self._shape(master, lines)
        template = self._templates.get(shape) if shape else None
        if shape is None or (template is not None and template.sample is None and template.config is None):
            return self._in_full(master, lines, position)
        if template is None:
            config = self._in_full(master, lines, position)
            if len(self._templates) >= _MAX_TEMPLATES:
                self._templates.pop(next(iter(self._templates)))
            self._templates[shape] = _Template(sample=(lines, clone(config)))
            return config
        if template.config is None:
            self._prove(master, shape, template)
        if template.config is not None:
            try:
                return self._derive(master, shape, template.config, lines)
            except OmegaConfBaseException:
                pass  # a value that does not fit: the full composition says so in Hydra's words
        return self._in_full(master, lines, position)

    def prime(self, master: DictConfig, overrides: Sequence[str]) -> None:
        """Make the template for jobs like this one now, so that processes forked later inherit it."""
        lines = tuple(overrides)
        shape = self._shape(master, lines)
        if shape is None or shape in self._templates:
            return
        try:
            self._templates[shape] = _Template(sample=(lines, self._in_full(master, lines, 0)))
        except HydraException:
            return  # said, with its position, when the job is composed
        self._prove(master, shape, self._templates[shape])

    def parse(self, line: str) -> Override:
        """Parse one override line.

        Raises:
            hydra.errors.OverrideParseException: not an override.
        """
        if line not in self._parsed:
            if len(self._parsed) >= _MAX_PARSED:
                self._parsed.clear()
            self._parsed[line] = OverridesParser.create(config_loader=self).parse_override(line)
        return self._parsed[line]

    def is_value(self, master: DictConfig, override: Override) -> bool:
        """Whether an override sets a plain value of the task's config: not a group, an addition, a deletion."""
        return (
            override.type is OverrideType.CHANGE
            and override.package is None
            and not override.is_sweep_override()
            and not override.is_hydra_override()
            and not self.is_group(master, override.key_or_group)
        )

    def _shape(self, master: DictConfig, lines: tuple[str, ...]) -> _Shape | None:
        try:
            parsed = [self.parse(line) for line in lines]
        except HydraException:
            return None
        if any(override.is_hydra_override() for override in parsed):
            return None
        values = [override for override in parsed if self.is_value(master, override)]
        others = [override for override in parsed if not self.is_value(master, override)]
        if _overlap(values, others) or not values:
            return None
        return _Shape(
            config_name=master.hydra.job.config_name,
            hydra_overrides=tuple(line for line in _hydra_overrides(master) if not self._pins(line)),
            structural=tuple(str(override.input_line) for override in others),
            value_keys=tuple(override.key_or_group for override in values),
        )

    def is_group(self, master: DictConfig, key: str) -> bool:
        """Whether `key` is a config group."""
        known = (tuple(_hydra_overrides(master)), key)
        if known not in self._groups:
            options = self._loader.get_group_options(
                key, results_filter=None, config_name=master.hydra.job.config_name, overrides=_hydra_overrides(master)
            )
            self._groups[known] = bool(options)
        return self._groups[known]

    def config_names(self, group: str) -> list[str]:
        """Give the names of the configs in a group, as `glob` chooses from them."""
        return list(self._loader.get_group_options(group, results_filter=ObjectType.CONFIG))

    def _pins(self, line: str) -> bool:
        override = self.parse(line)
        return override.type is OverrideType.CHANGE and override.key_or_group == _SWEEP_DIR

    def _in_full(self, master: DictConfig, lines: tuple[str, ...], position: int) -> DictConfig:
        try:
            return self._loader.load_sweep_config(master, list(lines))
        except HydraException as error:
            raise JobCompositionError(self._explain(master, lines, position, error)) from error.__cause__

    def _prove(self, master: DictConfig, shape: _Shape, template: _Template) -> None:
        """Make the template and trust it only if it gives the sample, types, order and all."""
        if template.sample is None:
            return
        lines, expected = template.sample
        template.sample = None
        try:
            config = self._bare(shape)
            derived = self._derive(master, shape, config, lines)
        except (HydraException, OmegaConfBaseException):
            return
        if _plain(derived) == _plain(expected):
            template.config = config

    def _bare(self, shape: _Shape) -> DictConfig:
        return self._loader.load_configuration(
            config_name=shape.config_name,
            overrides=[*shape.hydra_overrides, *shape.structural],
            run_mode=RunMode.RUN,
        )

    def _derive(self, master: DictConfig, shape: _Shape, template: DictConfig, lines: tuple[str, ...]) -> DictConfig:
        config = clone(template)
        hydra_lines = _hydra_overrides(master)
        pins = [self.parse(line) for line in hydra_lines if self._pins(line)]
        parsed = [self.parse(line) for line in lines]
        for override in (*pins, *(each for each in parsed if each.key_or_group in shape.value_keys)):
            OmegaConf.update(config, override.key_or_group, override.value(), merge=True)
        node = config.hydra
        node.overrides.hydra = hydra_lines
        node.overrides.task = list(lines)
        rule = node.job.config.override_dirname
        counted = sorted(str(each.input_line) for each in parsed if each.key_or_group not in rule.exclude_keys)
        node.job.override_dirname = re.sub("[=]", rule.kv_sep, rule.item_sep.join(counted))
        OmegaConf.copy_cache(from_config=master, to_config=config)
        return config

    def _explain(self, master: DictConfig, lines: tuple[str, ...], position: int, error: HydraException) -> str:
        text = f"job #{position} ({' '.join(lines) or 'no overrides'}) cannot be composed:\n{error}"
        key = self._unknown_key(master, lines)
        if key is None:
            return text
        line = next(line for line in lines if line.startswith(f"{key}="))
        return (
            f"{text}\nKey '{key}' does not exist in this job's config. If only some of the swept groups define it, "
            f"write ++{line}, which sets it where it exists and adds it where it does not."
        )

    def _unknown_key(self, master: DictConfig, lines: tuple[str, ...]) -> str | None:
        """The first plain value whose key this job's groups do not define."""
        shape = self._shape(master, lines)
        if shape is None:
            return None
        try:
            config = self._bare(shape)
        except HydraException:
            return None
        for override in (self.parse(line) for line in lines):
            if override.key_or_group not in shape.value_keys:
                continue
            try:
                OmegaConf.update(config, override.key_or_group, override.value(), merge=True)
            except (ConfigKeyError, ConfigAttributeError):
                return override.key_or_group
            except OmegaConfBaseException:
                return None
        return None

    # Everything below is Hydra's own loader, unchanged.

    def load_configuration(
        self,
        config_name: str | None,
        overrides: list[str],
        run_mode: RunMode,
        from_shell: bool = True,
        validate_sweep_overrides: bool = True,
    ) -> DictConfig:
        """Compose in full."""
        return self._loader.load_configuration(config_name, overrides, run_mode, from_shell, validate_sweep_overrides)

    def get_search_path(self) -> ConfigSearchPath:
        """Where configs are looked for."""
        return self._loader.get_search_path()

    def get_sources(self) -> list[ConfigSource]:
        """Where configs come from."""
        return self._loader.get_sources()

    def list_groups(self, parent_name: str) -> list[str]:
        """Groups below a group."""
        return self._loader.list_groups(parent_name)

    def get_group_options(
        self,
        group_name: str,
        results_filter: ObjectType | None = ObjectType.CONFIG,
        config_name: str | None = None,
        overrides: list[str] | None = None,
    ) -> list[str]:
        """Options of a group."""
        return self._loader.get_group_options(group_name, results_filter, config_name, overrides)

    def compute_defaults_list(self, config_name: str | None, overrides: list[str], run_mode: RunMode) -> Any:
        """The defaults list, as Hydra computes it."""
        return self._loader.compute_defaults_list(config_name, overrides, run_mode)

    def __getattr__(self, name: str) -> Any:  # Any: what Hydra's loader has beyond its interface
        return getattr(self.__dict__["_loader"], name)


def quoted(text: str) -> str:
    """Quote a value so that Hydra's override grammar reads exactly `text`, interpolations and quotes included."""
    literal = re.sub(r"(\\*)\$\{", lambda match: match.group(1) * 2 + "\\${", text)
    escaped = re.sub(r"(\\*)'", lambda match: match.group(1) * 2 + "\\'", literal)
    trailing = len(escaped) - len(escaped.rstrip("\\"))
    return f"'{escaped}{chr(92) * trailing}'"


def override_lines(config: DictConfig, kind: str) -> list[str]:
    """Give `hydra.overrides.task` or `.hydra` as written; iterating over the node would resolve what they refer to."""
    lines = OmegaConf.to_container(config.hydra.overrides[kind], resolve=False)
    return [str(line) for line in lines] if isinstance(lines, list) else []


def _hydra_overrides(master: DictConfig) -> list[str]:
    return override_lines(master, "hydra")


def _overlap(values: Sequence[Override], others: Sequence[Override]) -> bool:
    """Whether the order between values and additions or deletions could matter."""
    for other in others:
        if other.type is OverrideType.CHANGE:
            continue  # a group choice: applied before any value by Hydra as well
        for value in values:
            long, short = sorted((value.key_or_group, other.key_or_group), key=len, reverse=True)
            if long == short or long.startswith(f"{short}."):
                return True
    return False


def _plain(config: DictConfig) -> str:
    return repr(OmegaConf.to_container(config, resolve=False))
