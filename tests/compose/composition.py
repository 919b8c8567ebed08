"""`docker-compose.yml` as Compose reads it: merged, and its variables replaced by the compose specification's rules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docker-compose.yml"
EXAMPLE = ROOT / ".env.example"
VARIABLE = re.compile(r"\$(?:(?P<escaped>\$)|\{(?P<name>\w+)(?:(?P<sign>:?[-?+])(?P<word>[^}]*))?\}|(?P<bare>\w+))")


def composition(environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The whole file with variables from `environ`; an unset one without a default fails, as it should never be."""
    found: dict[str, Any] = _interpolated(yaml.safe_load(FILE.read_text()), environ or {})
    return found


def variables() -> dict[str, bool]:
    """Each variable of the file, and whether it has a default wherever it stands."""
    found: dict[str, bool] = {}
    for text in _texts(yaml.safe_load(FILE.read_text())):
        for match in VARIABLE.finditer(text):
            name = match["name"] or match["bare"]
            if name:
                found[name] = found.get(name, True) and (match["sign"] or "").endswith("-")
    return found


def explained() -> dict[str, str]:
    """What `.env.example` sets."""
    lines = [line for line in EXAMPLE.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def command_of(service: Mapping[str, Any]) -> list[str]:
    """What a service runs, entry point and all."""
    command = [*service.get("entrypoint", []), *service["command"]]
    assert all(isinstance(word, str) for word in command)
    return command


def _interpolated(value: Any, environ: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _interpolated(item, environ) for key, item in value.items()}
    if isinstance(value, list):
        return [_interpolated(item, environ) for item in value]
    return VARIABLE.sub(lambda match: _replaced(match, environ), value) if isinstance(value, str) else value


def _replaced(match: re.Match[str], environ: Mapping[str, str]) -> str:
    if match["escaped"]:
        return "$"
    value = environ.get(match["name"] or match["bare"])
    sign = match["sign"] or ""
    missing = value is None or (sign.startswith(":") and value == "")
    if missing and sign.endswith("-"):
        return str(match["word"])
    if missing or value is None:
        raise KeyError(f"{match[0]} is not set")
    return value


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value
