"""The function to be swept: what it is called in the ledger, and how a process that was not forked from ours finds it.

A forked child *is* the caller's process, so any function works there, also a lambda or one defined in the script.
A fresh interpreter has to import it: by module and name, and a script's functions by running the script as a module,
as `multiprocessing` does. Where it is found never comes from the ledger (SAFE).
"""

from __future__ import annotations

import functools
import importlib
import inspect
import runpy
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sweeper.errors import UserError
from sweeper.launch.task import Task, describe_task
from sweeper.plain.config import Config

Function = Callable[[Config], object]
IMPORTED_MAIN: Final = "__mp_main__"
"""The name under which a script is run as a module; `multiprocessing` has taught scripts to expect it."""
_REMEDY: Final = "define it with `def` at the top of a module, and hand what it needs over through base"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Where a fresh interpreter finds a function."""

    module: str
    qualified_name: str
    script: str | None = None
    """The file of the main program, when the function lives there."""


def describe_objective(function: Function) -> Task:
    """Say which function this is; a `functools.partial` is the function that it calls.

    Raises:
        UserError: it is none, takes no config, or was defined where nothing can find it again.
    """
    if not callable(function):
        raise UserError(
            f"the objective {function!r:.80} cannot be called",
            remedy="give a function that takes a config, a dict, and returns the objective's value",
        )
    _check_signature(function)
    while isinstance(function, functools.partial):
        function = function.func
    return describe_task(function)


def reference_to(function: Function) -> Reference:
    """Give the place from which a fresh interpreter can import a function.

    Raises:
        UserError: there is none (a lambda, a closure, a bound method, a partial); the text says why.
    """
    name = getattr(function, "__qualname__", None)
    module = getattr(function, "__module__", None)
    if not isinstance(name, str) or not isinstance(module, str) or "<" in name:
        raise UserError(f"the objective {_shown(function)} has no name by which it could be imported", remedy=_REMEDY)
    found: Any = sys.modules.get(module)  # Any: walks down what the module holds
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not function:
        raise UserError(f"{module}.{name} is not the objective {_shown(function)} itself", remedy=_REMEDY)
    if module != "__main__":
        return Reference(module=module, qualified_name=name)
    main = sys.modules["__main__"]
    if (spec := getattr(main, "__spec__", None)) is not None and spec.name != "__main__":
        return Reference(module=str(spec.name), qualified_name=name)
    script = getattr(main, "__file__", None)
    if script is None or not Path(script).is_file():
        raise UserError(f"the objective {name} is not defined in a file", remedy=_REMEDY)
    return Reference(module="__main__", qualified_name=name, script=str(Path(script).absolute()))


def find(reference: Reference) -> Function:
    """Import the function that is meant.

    Raises:
        UserError: the module or the name in it does not exist; whatever the module's own code raises passes through.
    """
    module = _module(reference)
    found: Any = module  # Any: walks down what the module holds
    for part in reference.qualified_name.split("."):
        found = getattr(found, part, None)
        if found is None:
            raise UserError(
                f"the module {reference.module} has no {reference.qualified_name}", remedy="check the spelling"
            )
    if not callable(found):
        raise UserError(f"{reference.module}:{reference.qualified_name} is {found!r:.80}, which cannot be called")
    function: Function = found
    return function


def read_reference(text: object) -> Reference:
    """Read `package.module:function`.

    Raises:
        UserError: it is not of that form.
    """
    parts = text.split(":") if isinstance(text, str) else []
    dotted = [name for part in parts for name in part.split(".")]
    if len(parts) != 2 or not all(name.isidentifier() for name in dotted):
        raise UserError(f"the objective is {text!r:.80}", remedy="write it as package.module:function")
    return Reference(module=parts[0], qualified_name=parts[1])


def look_in(folders: Sequence[str]) -> None:
    """Let modules be imported from these folders first, in this order."""
    sys.path[:] = [*folders, *(known for known in sys.path if known not in folders)]


def _module(reference: Reference) -> types.ModuleType:
    if reference.script is None:
        try:
            return importlib.import_module(reference.module)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{reference.module}.".startswith(f"{error.name}."):
                raise  # something that the module itself imports
            raise UserError(
                f"there is no module {reference.module}",
                remedy="modules are looked for in the file's folder, the current one, and where Python looks anyway",
            ) from None
    module = types.ModuleType(IMPORTED_MAIN)
    module.__dict__.update(runpy.run_path(reference.script, run_name=IMPORTED_MAIN))
    sys.modules["__main__"] = sys.modules[IMPORTED_MAIN] = module
    return module


def _check_signature(function: Function) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # built in, and says nothing about itself
        return
    try:
        signature.bind({})
    except TypeError as error:
        raise UserError(
            f"the objective {_shown(function)}{signature} cannot be called with one config: {error}",
            remedy="it takes one argument, the trial's config, a dict",
        ) from None


def _shown(function: object) -> str:
    return str(getattr(function, "__qualname__", None) or f"{function!r:.80}")
