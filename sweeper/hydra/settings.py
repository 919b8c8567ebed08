"""The `hydra.launcher` node, and what Hydra would write into its files: checked before anything else happens."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

from omegaconf import DictConfig, OmegaConf

from sweeper.errors import UserError
from sweeper.hydra.compose import override_lines
from sweeper.launch.settings import LauncherSettings, carries_secret, resolve_settings
from sweeper.launch.unknown_names import refuse_unknown

PREFIX: Final = "hydra.launcher."


def read_settings(
    config: DictConfig, environ: Mapping[str, str] | None = None, *, given: Mapping[str, object] | None = None
) -> LauncherSettings:
    """Check `hydra.launcher` of a composed multirun config and resolve it.

    Args:
        config: the multirun config.
        environ: this process's environment by default.
        given: settings whose values come from elsewhere, by name.

    Raises:
        UserError: a value that cannot be; the message names the setting.
    """
    node = config.hydra.launcher
    refuse_literal_secrets(config)
    refuse_unknown_settings(node, PREFIX.rstrip("."))
    values = {**{str(key): node[key] for key in node}, **(given or {})}
    return resolve_settings(values, written=lambda setting: f"{PREFIX}{setting}", environ=environ)


def refuse_unknown_settings(node: DictConfig, name: str) -> None:
    """Refuse what `+` has added to a node of declared settings: Hydra, which closes the node, advises to write that.

    Raises:
        UserError: names the setting, and the nearest one that there is.
    """
    declared = OmegaConf.get_type(node)
    if declared is None or not dataclasses.is_dataclass(declared):
        return  # a mapping of the user's, or one of another's arguments
    known = [field.name for field in dataclasses.fields(declared)]
    for key in map(str, node):
        refuse_unknown(key, known, where=f"in {name}")
        if not OmegaConf.is_interpolation(node, key) and not OmegaConf.is_missing(node, key):
            below = node[key]
            if isinstance(below, DictConfig):
                refuse_unknown_settings(below, f"{name}.{key}")


def refuse_literal_secrets(config: DictConfig) -> None:
    """Refuse a database or store URL that carries a password in plain sight.

    Hydra writes overrides and configs verbatim into its files, so a password in them would be on disk (SAFE). An
    interpolation is written as an interpolation, and the environment is not written at all.

    Raises:
        UserError: names the setting, never the password.
    """
    for setting, variable in (("database", "SWEEPER_DATABASE_URL"), ("store", "SWEEPER_STORE_URL")):
        node = config.hydra.launcher
        if OmegaConf.is_interpolation(node, setting) or node[setting] is None:
            continue
        if carries_secret(str(node[setting])):
            raise UserError(
                f"hydra.launcher.{setting} holds a URL with a password, which Hydra would write into its files",
                remedy=f"set {variable} in the environment instead, or write hydra.launcher.{setting}="
                f"'${{oc.env:{variable}}}'",
            )


def check_overrides(config: DictConfig) -> None:
    """Refuse arguments that no file, database or child could be given, before Hydra writes them anywhere.

    Raises:
        UserError: names the parameter.
    """
    check_lines([*override_lines(config, "task"), *override_lines(config, "hydra")])


def check_lines(lines: Sequence[str]) -> None:
    """Refuse override lines as `check_overrides` does."""
    for text in lines:
        key = text.partition("=")[0]
        shown = "" if key.startswith("hydra.") else f": {text!r}"
        if "\x00" in text:
            raise UserError(f"the parameter {key!r} holds a NUL character")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UserError(
                f"the parameter {key!r} is not valid UTF-8{shown}",
                remedy="check the terminal's or script's encoding",
            ) from None
