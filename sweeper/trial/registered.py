"""What the script registered with `resume`: modules, optimizers, schedulers, generators, anything with state_dict.

Loading first compares everything with the live objects and touches nothing until all of it fits; then it goes in the
order model, schedulers, optimizers, the rest. It happens twice in a resume (once at `resume`, once when the
loop is back at its place), each time from private, writable copies.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from sweeper.errors import StateMismatch, UserError
from sweeper.trial.gradients import Gradients
from sweeper.trial.inheriting import taken_over
from sweeper.trial.modules import check_module, is_module, load_module, module_state, named_parameters
from sweeper.trial.optimizers import (
    check_optimizer,
    group_names,
    is_optimizer,
    is_scaler,
    is_scheduler,
    live_options,
    load_optimizer,
    optimizer_state,
    with_options,
)
from sweeper.trial.rng import is_generator
from sweeper.trial.values import Decoder

_ORDER: Final = ("module", "scheduler", "optimizer", "object")


class Registered:
    """The registered objects of one trial, by the names they were registered under."""

    def __init__(self, objects: Mapping[str, object]) -> None:
        """Raises UserError for what cannot be registered, and for an optimizer of unregistered parameters."""
        given = {name: value for name, value in objects.items() if value is not None}
        self.generators: dict[str, Any] = {name: value for name, value in given.items() if is_generator(value)}
        """Registered random generators; part of every random-state snapshot."""
        self._objects: dict[str, Any] = {name: value for name, value in given.items() if name not in self.generators}
        self._kinds = {name: _kind(name, value) for name, value in self._objects.items()}
        for name in self._of_kind("optimizer"):
            group_names(self._objects[name], self._parameter_names(), name)
        self.gradients = Gradients(self._objects[name] for name in self._of_kind("optimizer"))
        self._made: dict[str, Any] = {}

    def note_made(self) -> None:
        """Remember how the script made its optimizers and schedulers; each save says it, for an heir to compare."""
        self._made = {name: copy.deepcopy(self._hyperparameters(name)) for name in self._with_hyperparameters()}

    def save(self) -> dict[str, Any]:
        """Give everything's state, tensors still shared with the live objects.

        Raises:
            UserError: an optimizer has a parameter that no registered module owns.
        """
        names = self._parameter_names()
        return {
            "objects": {
                name: {"kind": kind, "class": _class_name(self._objects[name]), "state": self._state(name, names)}
                for name, kind in self._kinds.items()
            },
            "made": self._made,
            "generators": sorted(self.generators),
            "gradients": self.gradients.save(self._named_parameters()),
        }

    def load(self, decoder: Decoder, *path: str, inherited: bool = False) -> None:
        """Load everything from the copies of a decoder.

        With `inherited` it is another trial's state: hyperparameters that this trial's config changed stay its own (see
        `sweeper.trial.inheriting`). Call `note_made` first.

        Raises:
            StateMismatch: saved and live state do not fit together; nothing was touched.
        """
        saved = decoder.value(*path)
        self._check_names(saved)
        names = self._parameter_names()
        for name in self._in_order():
            self._check(name, saved["objects"][name], names)
        for name in self._in_order():
            state = saved["objects"][name]["state"]
            self._load(name, self._taken_over(name, state, saved["made"]) if inherited else state, names)
        if inherited:
            self._align_schedulers()
        self.gradients.put_back(self._named_parameters(), saved["gradients"])

    def _state(self, name: str, names: Mapping[int, str]) -> Any:
        value = self._objects[name]
        match self._kinds[name]:
            case "module":
                return module_state(value, name)
            case "optimizer":
                return optimizer_state(value, names, name)
            case _:
                return value.state_dict()

    def _hyperparameters(self, name: str) -> Any:
        """The state of an optimizer or scheduler in which hyperparameters are."""
        value = self._objects[name]
        return value.state_dict() if self._kinds[name] == "scheduler" else live_options(value)

    def _taken_over(self, name: str, state: Any, made: Mapping[str, Any]) -> Any:
        match self._kinds[name]:
            case "scheduler":
                return taken_over(state, source=made[name], live=copy.deepcopy(self._made[name]))
            case "optimizer":
                return with_options(state, source=made[name], live=copy.deepcopy(self._made[name]))
            case _:
                return state

    def _align_schedulers(self) -> None:
        """A scheduler also notes the rates that its optimizer has by now, for those who ask it."""
        for name in self._of_kind("scheduler"):
            scheduler = self._objects[name]
            if hasattr(scheduler, "_last_lr"):
                scheduler._last_lr = [group["lr"] for group in scheduler.optimizer.param_groups]

    def _check_names(self, saved: Mapping[str, Any]) -> None:
        before = {*saved["objects"], *saved["generators"]}
        now = {*self._objects, *self.generators}
        if before != now:
            raise StateMismatch(
                f"the checkpoint holds {_sorted(before)}, but sweeper.resume(...) was given {_sorted(now)}"
            )

    def _check(self, name: str, saved: Mapping[str, Any], names: Mapping[int, str]) -> None:
        value, kind = self._objects[name], self._kinds[name]
        if saved["kind"] != kind or (kind != "module" and saved["class"] != _class_name(value)):
            raise StateMismatch(f"the checkpoint does not fit {name}: it was {saved['class']}, is {_class_name(value)}")
        match kind:
            case "module":
                check_module(value, saved["state"], name)
            case "optimizer":
                check_optimizer(value, names, saved["state"], name)
            case _:
                _check_object(saved["state"], value, name)

    def _load(self, name: str, state: Any, names: Mapping[int, str]) -> None:
        value = self._objects[name]
        match self._kinds[name]:
            case "module":
                load_module(value, state, name)
            case "optimizer":
                load_optimizer(value, names, state, name)
            case _:
                value.load_state_dict(state)

    def _named_parameters(self) -> Iterable[tuple[str, Any]]:
        for name in self._of_kind("module"):
            for key, parameter in named_parameters(self._objects[name]):
                yield f"{name}.{key}", parameter

    def _parameter_names(self) -> dict[int, str]:
        names: dict[int, str] = {}
        for key, parameter in self._named_parameters():
            names.setdefault(id(parameter), key)
        return names

    def _of_kind(self, kind: str) -> list[str]:
        return [name for name, its in self._kinds.items() if its == kind]

    def _in_order(self) -> list[str]:
        return [name for kind in _ORDER for name in self._of_kind(kind)]

    def _with_hyperparameters(self) -> list[str]:
        return [*self._of_kind("optimizer"), *self._of_kind("scheduler")]


def _kind(name: str, value: object) -> str:
    if isinstance(value, type):
        raise UserError(
            f"sweeper.resume({name}=...) was given the class {value.__qualname__}",
            remedy="give it an object, made of it",
        )
    recognised: tuple[tuple[str, Callable[[object], bool]], ...] = (
        ("module", is_module), ("optimizer", is_optimizer), ("scheduler", is_scheduler),
    )  # fmt: skip
    for kind, fits in recognised:
        if fits(value):
            return kind
    if callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None)):
        return "object"
    raise UserError(
        f"sweeper.resume({name}=...) was given a {_class_name(value)}, which has no state_dict and load_state_dict",
        remedy="register objects that have both, or random generators; keep plain values in run.state",
    )


def _check_object(saved: Any, value: Any, name: str) -> None:
    """What other objects' states look like is their own affair; of a gradient scaler's it is known that an empty one
    means that it is disabled."""
    if not (is_scaler(value) and isinstance(saved, Mapping) and isinstance(live := value.state_dict(), Mapping)):
        return
    if bool(saved) != bool(live):
        was, now = ("enabled", "disabled") if saved else ("disabled", "enabled")
        raise StateMismatch(f"the checkpoint does not fit {name}: its state was {was} when saved and is {now} now")


def _sorted(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def _class_name(value: object) -> str:
    """Without the module: a script is `__main__` to one interpreter and has a name to another."""
    return type(value).__qualname__
