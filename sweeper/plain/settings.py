"""The launcher's settings as Python code and files give them: names, defaults and checks of `hydra.launcher`."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sweeper.errors import UserError
from sweeper.launch.settings import LauncherSettings, resolve_settings
from sweeper.launch.unknown_names import refuse_unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of value: how it is told, and how it is recognised."""

    words: str
    fits: Callable[[object], bool]


def _is_count(value: object) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _is_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)


COUNT: Final = Kind(words="an integer", fits=_is_count)
NUMBER: Final = Kind(words="a number", fits=_is_number)
FLAG: Final = Kind(words="true or false", fits=lambda value: isinstance(value, bool))
TEXT: Final = Kind(words="text", fits=lambda value: isinstance(value, str))
TEXTS: Final = Kind(words="a list of texts", fits=_is_texts)
MAPPING: Final = Kind(words="a mapping", fits=lambda value: isinstance(value, Mapping))


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting: its kind, and what it is when nobody says; None stands for a value that is made or found."""

    kind: Kind
    default: Any  # Any: of its kind


SETTINGS: Final[Mapping[str, Setting]] = {
    "name": Setting(kind=TEXT, default=None),
    "workers": Setting(kind=COUNT, default=None),
    "engine": Setting(kind=TEXT, default="local"),
    "database": Setting(kind=TEXT, default=None),
    "store": Setting(kind=TEXT, default=None),
    "seed": Setting(kind=COUNT, default=0),
    "fail_fast": Setting(kind=FLAG, default=False),
    "threads": Setting(kind=COUNT, default=None),
    "lease_s": Setting(kind=NUMBER, default=60.0),
    "heartbeat_s": Setting(kind=NUMBER, default=15.0),
    "blind_s": Setting(kind=NUMBER, default=1800.0),
    "grace_s": Setting(kind=NUMBER, default=30.0),
    "signals": Setting(kind=TEXTS, default=("TERM", "INT")),
    "hang_s": Setting(kind=NUMBER, default=None),
    "retry.max_crashes": Setting(kind=COUNT, default=3),
    "retry.max_no_progress": Setting(kind=COUNT, default=10),
    "checkpoint.every_s": Setting(kind=NUMBER, default=300.0),
    "checkpoint.keep": Setting(kind=COUNT, default=3),
    "identity.ignore": Setting(kind=TEXTS, default=()),
    "identity.version": Setting(kind=TEXT, default=None),
}
"""By name, those of a group with a dot; what only an interpolating config needs (`identity.unstable_resolvers`) is not
among them."""
GROUPS: Final = tuple(dict.fromkeys(name.partition(".")[0] for name in SETTINGS if "." in name))


def read_values(given: Mapping[str, object]) -> dict[str, Any]:  # Any: settings, each of its own type
    """Fill in defaults and check each setting's kind.

    Args:
        given: settings by name; a group as a mapping. None means: as if it were not given.

    Raises:
        UserError: an unknown setting of a group, or a value of another kind; names the setting.
    """
    flat: dict[str, object] = {}
    for name, value in given.items():
        if name not in GROUPS:
            flat[name] = value
        elif value is not None:
            group = checked(MAPPING, name, value)
            known = [setting.partition(".")[2] for setting in SETTINGS if setting.startswith(f"{name}.")]
            for key in group:
                refuse_unknown(str(key), known, where=f"in {name}")
            flat |= {f"{name}.{key}": value for key, value in group.items()}
    values: dict[str, Any] = {name: {} for name in GROUPS}  # Any: settings, each of its own type
    for name, setting in SETTINGS.items():
        value = flat.get(name)
        settled = setting.default if value is None else checked(setting.kind, name, value)
        settled = list(settled) if isinstance(settled, tuple) else settled
        group, _, key = name.rpartition(".")
        (values[group] if group else values)[key] = settled
    values["identity"] |= {"unstable_resolvers": [], "allow_missing": False}
    return values


def read_settings(values: Mapping[str, Any]) -> LauncherSettings:  # Any: as `read_values` gives them
    """Resolve them with the environment.

    Raises:
        UserError: a value that cannot be; the message names the setting.
    """
    return resolve_settings(values, written=str)


def checked(kind: Kind, name: str, value: Any) -> Any:  # Any: returned as it is
    """Give a value back if it is of a kind.

    Raises:
        UserError: it is not; names it.
    """
    if not kind.fits(value):
        raise UserError(f"{name} is {value!r:.80}", remedy=f"it has to be {kind.words}")
    return value
