"""Modules by plain names: wrappers are looked through, so a compiled or data-parallel model loads into a bare one.

A save never holds a wrapper's prefix (`_orig_mod.`, `module.`); loading is strict in all directions (CK-06).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sweeper.errors import StateMismatch, UserError
from sweeper.trial.tensors import is_tensor, torch_if_loaded

_COMPILED: Final = "_orig_mod"
_SHOWN: Final = 5


def is_module(value: object) -> bool:
    """Whether this is a torch module."""
    torch = torch_if_loaded()
    return torch is not None and isinstance(value, torch.nn.Module)


def unwrapped(module: Any) -> Any:
    """Give the module inside any compiled, data-parallel or distributed wrapper around it."""
    return list(_peeled(module))[-1]


def _peeled(module: Any) -> Iterator[Any]:
    """The module as it was given, then what each wrapper holds, the bare one last."""
    torch = torch_if_loaded()
    parallel = (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)
    while True:
        yield module
        if isinstance(module, parallel):
            module = module.module
        elif isinstance(getattr(module, _COMPILED, None), torch.nn.Module):
            module = getattr(module, _COMPILED)
        else:
            return


def plain_name(name: str) -> str:
    """Give a parameter's or submodule's name without the parts that compiling a submodule adds."""
    return ".".join(part for part in name.split(".") if part != _COMPILED)


def named_parameters(module: Any) -> Iterator[tuple[str, Any]]:
    """Every name of every parameter, tied ones under each of their names."""
    for name, parameter in unwrapped(module).named_parameters(remove_duplicate=False):
        yield plain_name(name), parameter


def module_state(module: Any, name: str) -> dict[str, Any]:
    """Give a module's state under plain names, with the versions that loading reads and what `state_dict` leaves out:
    which parts are in evaluation mode and which parameters are frozen.

    Raises:
        UserError: two entries have one plain name.
    """
    state = unwrapped(module).state_dict()
    tensors = {plain_name(key): value for key, value in state.items()}
    if len(tensors) != len(state):
        raise UserError(f"{name}: a layer named {_COMPILED!r} hides another", remedy="rename it")
    versions = {plain_name(key): value for key, value in getattr(state, "_metadata", {}).items()}
    return {"tensors": tensors, "versions": versions, "modes": _modes(module)}


def check_module(module: Any, saved: Mapping[str, Any], name: str) -> None:
    """Compare names, shapes and dtypes; touch nothing.

    Raises:
        StateMismatch: the text lists the differences.
    """
    live = module_state(module, name)["tensors"]
    differences = _name_differences(saved["tensors"], live)
    for key in saved["tensors"].keys() & live.keys():
        was, now = saved["tensors"][key], live[key]
        if is_tensor(was) != is_tensor(now):
            differences.append(f"{key} was {type(was).__name__} and is {type(now).__name__}")
        elif is_tensor(was) and (was.shape != now.shape or was.dtype != now.dtype):
            differences.append(f"{key} was {describe(was)} and is {describe(now)}")
    if differences:
        raise StateMismatch(f"the checkpoint does not fit {name}: {listed(sorted(differences))}")


def load_module(module: Any, saved: Mapping[str, Any], name: str) -> None:
    """Load strictly. Call `check_module` first."""
    inner = unwrapped(module)
    live = inner.state_dict()
    state: OrderedDict[str, Any] = OrderedDict((key, saved["tensors"][plain_name(key)]) for key in live)
    versions = {key: saved["versions"].get(plain_name(key), {}) for key in getattr(live, "_metadata", {})}
    state._metadata = versions  # type: ignore[attr-defined]  # as torch does
    try:
        inner.load_state_dict(state, strict=True)
    except RuntimeError as error:
        raise StateMismatch(f"the checkpoint does not fit {name}: {error}") from error
    _put_back_modes(module, saved["modes"])


def _modes(module: Any) -> dict[str, list[str]]:
    inner = unwrapped(module)
    return {
        "evaluating": [plain_name(key) for key, part in inner.named_modules() if not part.training],
        "frozen": [key for key, parameter in named_parameters(module) if not parameter.requires_grad],
    }


def _put_back_modes(module: Any, modes: Mapping[str, Any]) -> None:
    """`if epoch == 3: unfreeze()` is not run again after epoch 3, nor is a `model.train()` above the loops."""
    evaluating, frozen = set(modes["evaluating"]), set(modes["frozen"])
    for key, part in unwrapped(module).named_modules():
        part.training = plain_name(key) not in evaluating
    for wrapper in _peeled(module):
        wrapper.training = "" not in evaluating
    for key, parameter in named_parameters(module):
        if parameter.requires_grad == (key in frozen):
            parameter.requires_grad_(key not in frozen)


def describe(tensor: Any) -> str:
    """Shape and dtype, for messages."""
    return f"{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


def listed(differences: list[str]) -> str:
    """The first few differences, and how many more there are."""
    more = len(differences) - _SHOWN
    return "; ".join(differences[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")


def _name_differences(saved: Mapping[str, Any], live: Mapping[str, Any]) -> list[str]:
    gone = [f"{key} is saved but not in the model" for key in saved.keys() - live.keys()]
    return gone + [f"{key} is in the model but not saved" for key in live.keys() - saved.keys()]
