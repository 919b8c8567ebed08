"""Optimizer state by parameter name, in the dtypes it was saved in.

torch numbers parameters by position and casts floating state to the parameter's dtype when loading: reordered layers
would get each other's moments, and half-precision parameters would lose their fp32 moments. So names come from the
registered modules by identity, and what loading cast is put back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sweeper.errors import StateMismatch, UserError
from sweeper.trial.inheriting import group_options
from sweeper.trial.modules import listed
from sweeper.trial.tensors import is_tensor, torch_if_loaded

ParameterNames = Mapping[int, str]
"""Names of parameters by `id`; the parameters are kept alive by their modules."""


def is_optimizer(value: object) -> bool:
    """Whether this is a torch optimizer."""
    torch = torch_if_loaded()
    return torch is not None and isinstance(value, torch.optim.Optimizer)


def is_scheduler(value: object) -> bool:
    """Whether this is a torch learning-rate scheduler."""
    torch = torch_if_loaded()
    return torch is not None and isinstance(value, torch.optim.lr_scheduler.LRScheduler)


def is_scaler(value: object) -> bool:
    """Whether this is a gradient scaler: torch's, or one made like it."""
    return callable(getattr(value, "is_enabled", None)) and callable(getattr(value, "get_scale", None))


def group_names(optimizer: Any, names: ParameterNames, name: str) -> list[list[str]]:
    """Give the names of each group's parameters.

    Raises:
        UserError: a parameter belongs to no registered module.
    """
    groups: list[list[str]] = []
    for number, group in enumerate(optimizer.param_groups):
        strangers = [parameter for parameter in group["params"] if id(parameter) not in names]
        if strangers:
            shape = list(strangers[0].shape)
            raise UserError(
                f"{name}: {len(strangers)} of the parameters in group {number} (the first of shape {shape}) "
                "belong to no registered module",
                remedy="pass the module that owns them to sweeper.resume(...) too; state is matched by name",
            )
        groups.append([names[id(parameter)] for parameter in group["params"]])
    return groups


def optimizer_state(optimizer: Any, names: ParameterNames, name: str) -> dict[str, Any]:
    """Give an optimizer's state keyed by parameter names."""
    state = optimizer.state_dict()
    groups = group_names(optimizer, names, name)
    by_index = [parameter for group in groups for parameter in group]
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    name_of = dict(zip(numbers, by_index, strict=True))
    options = [_options(group) for group in state["param_groups"]]
    return {
        "groups": [{"params": params, "options": option} for params, option in zip(groups, options, strict=True)],
        "state": {name_of[key]: value for key, value in state["state"].items() if key in name_of},
        "other": {key: value for key, value in state["state"].items() if key not in name_of},
    }


def live_options(optimizer: Any) -> list[dict[str, Any]]:
    """Give each group's options: its hyperparameters, and what schedulers keep there."""
    return [_options(group) for group in optimizer.param_groups]


def with_options(
    saved: Mapping[str, Any], *, source: Sequence[Mapping[str, Any]], live: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Give another trial's optimizer state with the options that an heir gets; see `sweeper.trial.inheriting`.

    Groups that the source's script added while it trained keep their options.
    """
    groups = list(saved["groups"])
    for number, (group, made, mine) in enumerate(zip(groups, source, live, strict=False)):
        groups[number] = {**group, "options": group_options(group["options"], source=made, live=mine)}
    return {**saved, "groups": groups}


def check_optimizer(optimizer: Any, names: ParameterNames, saved: Mapping[str, Any], name: str) -> None:
    """Compare groups and names; touch nothing.

    Raises:
        StateMismatch: the text lists the differences.
    """
    live = group_names(optimizer, names, name)
    was = [group["params"] for group in saved["groups"]]
    if len(live) != len(was):
        raise StateMismatch(
            f"the checkpoint does not fit {name}: it had {len(was)} parameter groups and has {len(live)}"
        )
    differences: list[str] = []
    for number, (before, now) in enumerate(zip(was, live, strict=True)):
        differences += [f"group {number} no longer has {key}" for key in sorted(set(before) - set(now))]
        differences += [f"group {number} newly has {key}" for key in sorted(set(now) - set(before))]
    if differences:
        raise StateMismatch(f"the checkpoint does not fit {name}: {listed(differences)}")


def load_optimizer(optimizer: Any, names: ParameterNames, saved: Mapping[str, Any], name: str) -> None:
    """Load by name, then put back the dtypes that loading cast. Call `check_optimizer` first."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    index_of = {names[id(parameter)]: index for index, parameter in enumerate(parameters)}
    groups: list[dict[str, Any]] = []
    for group, was in zip(group_names(optimizer, names, name), saved["groups"], strict=True):
        groups.append({**was["options"], "params": [index_of[key] for key in group]})
    state = {index_of[key]: value for key, value in saved["state"].items()} | dict(saved["other"])
    held = optimizer.state, optimizer.param_groups, list(optimizer.param_groups)
    try:
        optimizer.load_state_dict({"state": state, "param_groups": groups})
    except (ValueError, KeyError, RuntimeError) as error:
        raise StateMismatch(f"the checkpoint does not fit {name}: {error}") from error
    for key, value in saved["state"].items():
        parameter = parameters[index_of[key]]
        optimizer.state[parameter] = _with_saved_dtypes(value, optimizer.state[parameter])
    _keep_held(optimizer, *held)


def _options(group: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key != "params"}


def _keep_held(optimizer: Any, state: Any, groups: list[Any], each: list[dict[str, Any]]) -> None:
    """Loading makes new containers; the old ones are filled, since the script may hold them (`param_groups[0]`)."""
    for old, new in zip(each, optimizer.param_groups, strict=True):
        if old is not new:
            options = dict(new)
            old.clear()
            old.update(options)
    groups[:] = each
    optimizer.param_groups = groups
    if optimizer.state is not state:
        loaded = dict(optimizer.state)
        state.clear()
        state.update(loaded)
        optimizer.state = state


def _with_saved_dtypes(saved: Any, live: Any) -> Any:
    """The live value, except that a tensor whose dtype loading changed is the saved one, on the live one's device."""
    if is_tensor(saved) and is_tensor(live):
        return live if saved.dtype == live.dtype else saved.to(live.device)
    if isinstance(saved, dict) and isinstance(live, dict):
        return {key: _with_saved_dtypes(value, live[key]) for key, value in saved.items()}
    if type(saved) in (list, tuple) and len(saved) == len(live):
        return type(saved)(_with_saved_dtypes(was, now) for was, now in zip(saved, live, strict=True))
    return live
