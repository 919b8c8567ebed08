"""Starting the plain face's workers and children in fresh interpreters, where forking proved impossible.

The new interpreter runs this module. It learns from its starter (never from the ledger, SAFE) where the function is,
and what else the sweep's own command knew.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from sweeper.errors import UserError
from sweeper.launch.settings import resolve_settings
from sweeper.launch.worker_role import Work, worker_role
from sweeper.model.tagged import from_tagged, to_tagged
from sweeper.model.trial import Json
from sweeper.plain.config import Configs
from sweeper.plain.objective import Reference, find, look_in
from sweeper.plain.task import PlainTask
from sweeper.settings import IdentitySettings
from sweeper.trial.child import child_role
from sweeper.trial.fresh import FreshParent, FreshProcess, run_role_from_environment
from sweeper.trial.spawning import CHILD_ROLE, Role, SpawnFailed
from sweeper.wiring import EXIT_BAD_INPUT, WORKER_ROLE

MODULE: Final = "sweeper.plain.fresh"
_NOTE: Final = "imports"
"""The key in a role's payload."""
_PROBE: Final = "probe"
_PROBE_S: Final = 300.0
"""How long importing the function may take before that is given up."""
_LOOK_S: Final = 0.02


class ImportingParent:
    """A spawner whose processes import the function; implements `Spawner`."""

    def __init__(
        self,
        refer: Callable[[], Reference],
        configs: Configs,
        identity: IdentitySettings,
        values: Mapping[str, Any],  # Any: settings, each of its own type
    ) -> None:
        """Remember what a new interpreter has to know.

        Args:
            refer: says where the objective is, or raises the `UserError` that it cannot be imported.
            configs: its fixed values.
            identity: what counts as the same config.
            values: all settings, for workers.
        """
        self._refer = refer
        self._configs = configs
        self._identity = identity
        self._values = dict(values)
        flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined] # as multiprocessing does
        self._parent = FreshParent([sys.executable, *flags, "-m", MODULE], _ROLES)

    def spawn(
        self, role: str, payload: Json, descriptors: Sequence[int] = (), *, output: int | None = None
    ) -> FreshProcess:
        """Start a process in a role; see `Spawner.spawn`.

        Raises:
            SpawnFailed: the function or the fixed values cannot be handed to another interpreter.
        """
        note = self._note(for_worker=role == WORKER_ROLE)
        parts = payload if isinstance(payload, dict) else {}
        return self._parent.spawn(role, {**parts, _NOTE: note}, descriptors, output=output)

    def close(self) -> None:
        """Nothing is held."""

    def check(self, reason: str) -> None:
        """See whether a fresh interpreter gets to the function, by starting one; it trains nothing.

        Args:
            reason: why trials will need fresh interpreters, for the message.

        Raises:
            UserError: it does not, so no trial would; says why.
        """
        with tempfile.TemporaryFile() as output:
            try:
                process = self.spawn(_PROBE, {}, output=output.fileno())
            except SpawnFailed as error:
                raise UserError(f"trials need fresh interpreters, as {reason}; and {error}") from error
            try:
                status = _wait(process)
            finally:
                process.close()
            if status != 0:
                output.seek(0)
                printed = output.read().decode(errors="replace").strip()
                raise UserError(
                    f"trials need fresh interpreters, as {reason}; and one that imports the objective "
                    f"ended with {'status ' + str(status) if status is not None else 'no word'}:\n{printed}"
                )

    def _note(self, *, for_worker: bool) -> Json:
        try:
            reference = self._refer()
            base = to_tagged(self._configs.base)
        except UserError as error:
            raise SpawnFailed(str(error)) from error
        except TypeError as error:
            raise SpawnFailed(f"base cannot be handed to a fresh interpreter: {error}") from error
        note: dict[str, Any] = {  # Any: JSON of many shapes
            "reference": dataclasses.asdict(reference),
            "base": base,
            "identity": {"ignore": list(self._identity.ignore), "version": self._identity.version},
            "path": list(sys.path),
            "arguments": list(sys.argv),
        }
        return note | {"settings": self._values} if for_worker else note


def _wait(process: FreshProcess) -> int | None:
    for _ in range(round(_PROBE_S / _LOOK_S)):
        if (ended := process.exit_status()) is not None:
            return ended.code
        threading.Event().wait(_LOOK_S)
    return None


def is_fresh_process() -> bool:
    """Whether this interpreter was started by an `ImportingParent`, and is importing the caller's module or script."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name == MODULE


def _task(note: Mapping[str, Any]) -> tuple[PlainTask, Reference, Configs, IdentitySettings]:  # Any: as `_note` made it
    look_in(note["path"])
    sys.argv = list(note["arguments"])
    reference = Reference(**note["reference"])
    identity = IdentitySettings(ignore=tuple(note["identity"]["ignore"]), version=note["identity"]["version"])
    configs = Configs(from_tagged(note["base"]), identity)
    return PlainTask(lambda: find(reference), configs), reference, configs, identity


def _child(payload: Json, descriptors: tuple[int, ...]) -> int:
    parts: Any = payload  # Any: as `spawn` made it
    task, _, _, _ = _task(parts[_NOTE])
    return child_role(task).main(payload, descriptors)


def _worker(payload: Json, descriptors: tuple[int, ...]) -> int:
    parts: Any = payload  # Any: as `spawn` made it
    note = parts[_NOTE]
    _, reference, configs, identity = _task(note)
    function = find(reference)  # now, so that children forked from here have it
    settings = resolve_settings(note["settings"], written=str)
    work = Work(
        children={CHILD_ROLE: child_role(PlainTask(lambda: function, configs))},
        fallback=ImportingParent(lambda: reference, configs, identity, note["settings"]),
        places=settings.places,
        settings=settings.worker,
    )
    return worker_role(work).main(payload, descriptors)


def _probe(payload: Json, descriptors: tuple[int, ...]) -> int:
    parts: Any = payload  # Any: as `spawn` made it
    _, reference, _, _ = _task(parts[_NOTE])
    try:
        find(reference)
    except UserError as error:
        print(error, file=sys.stderr)
        return EXIT_BAD_INPUT
    return 0


_ROLES: Final = {
    _PROBE: Role(main=_probe),
    CHILD_ROLE: Role(main=_child),
    WORKER_ROLE: Role(main=_worker, survives=True),
}


def main() -> None:
    """Live in the role for which this interpreter was started."""
    logging.basicConfig(level=logging.WARNING)
    here = os.fspath(Path.cwd())
    look_in([here])
    run_role_from_environment(_ROLES)
    raise UserError(f"{MODULE} is started by sweeper itself", remedy="call sweeper.sweep, or `sweeper run`")


if __name__ == "__main__":
    main()
