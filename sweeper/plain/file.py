"""`sweeper run FILE.yaml`: the keywords of `sweeper.sweep` as a file, with bounds written as mappings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sweeper.errors import UserError
from sweeper.launch.unknown_names import refuse_unknown
from sweeper.plain.objective import Reference, find, look_in, read_reference
from sweeper.plain.request import KEYS, SweepRequest, read_request
from sweeper.plain.space import Choice, Float, Int
from sweeper.plain.yaml_text import read_yaml_mapping

OBJECTIVE: Final = "objective"
NEEDED: Final = (OBJECTIVE, "name", "space")
_BOUNDS: Final = ("low", "high", "log", "step")
_PLACES: Final = ("directory", "store")
_FORMS: Final = "write {low: 0.1, high: 1.0}, with log: true or a step, or a list of choices"


def request_from_file(path: Path, *, elsewhere: bool = False) -> SweepRequest:
    """Read a file, import its objective and check everything.

    Modules are looked for in the file's folder, then in the current one, then where Python looks anyway.

    Args:
        path: the file.
        elsewhere: as for `read_request`.

    Raises:
        UserError: names the file and what is wrong, with the line where the file itself is.
    """
    reference, given = read_file(path)
    look_in([str(path.absolute().parent), str(Path.cwd())])
    try:
        return read_request(find(reference), given, elsewhere=elsewhere)
    except UserError as error:
        raise UserError(f"{path}: {error.message}", remedy=error.remedy) from error


def read_file(path: Path) -> tuple[Reference, dict[str, Any]]:  # Any: checked by `read_request`
    """Read a file: where its objective is, and the rest in the form that `sweeper.sweep` takes.

    Relative paths in it count from its own folder, so that the same file means the same from everywhere.

    Raises:
        UserError: it cannot be read, or a key is unknown or missing; names file and line.
    """
    given, lines = read_yaml_mapping(path)
    for key, line in lines.items():
        refuse_unknown(key, (OBJECTIVE, *KEYS), where=f"in a sweep's file ({path}:{line})")
    for key in NEEDED:
        if given.get(key) is None:
            raise UserError(f"{path} has no {key}", remedy=f"a sweep's file needs {', '.join(NEEDED)}")
    try:
        reference = read_reference(given.pop(OBJECTIVE))
        given["space"] = _space(given["space"])
    except UserError as error:
        raise UserError(f"{path}: {error.message}", remedy=error.remedy) from None
    for key in _PLACES:
        if isinstance(place := given.get(key), str) and "://" not in place:
            given[key] = str(path.absolute().parent / Path(place).expanduser())
    return reference, given


def _space(space: object) -> object:
    """Bounds become `Float` or `Int`; what is no space at all is refused later, with everything else."""
    if not isinstance(space, Mapping):
        return space
    return {name: _dimension(name, found) for name, found in space.items()}


def _dimension(name: object, found: Any) -> Float | Int | Choice:  # Any: YAML
    match found:
        case list():
            return Choice(found)
        case {"low": _, "high": _}:
            for key in found:
                refuse_unknown(str(key), _BOUNDS, where=f"among the bounds of the parameter {name!r}")
            whole = all(type(found.get(key, 1)) is int for key in ("low", "high", "step"))
            return Int(**found) if whole else Float(**found)
        case _:
            raise UserError(
                f"the parameter {name!r} is {found!r:.80}",
                remedy=f"{_FORMS}; a value that is the same in every trial belongs into base",
            )
