"""Gradients between bodies: which parameters have one, and the values of those that still have a use.

An optimizer has usually used a gradient when a body ends, and the next body clears it; then its value need not travel.
It does travel if no registered optimizer has used it (accumulation, or a backward pass after the step), and if it is
not seen to be let go between steps (as `zero_grad()` does): then the next backward pass may add to it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sweeper.trial.tensors import torch_if_loaded


@dataclass(frozen=True, slots=True)
class _Used:
    """A gradient as an optimizer's step left it."""

    gradient: Callable[[], Any]
    """Gives the gradient, or None once it was let go."""
    version: int
    """torch's count of its changes in place."""
    lasting: bool
    """Whether it may outlive the next body: it did so before, or there was no step before."""


class Gradients:
    """Watches registered optimizers use gradients."""

    def __init__(self, optimizers: Iterable[Any]) -> None:
        self._optimizers = list(optimizers)
        self._used: dict[int, _Used] = {}
        self._stepped: set[int] = set()

    def watch_steps(self) -> None:
        """Notice from now on when an optimizer takes a step."""
        for optimizer in self._optimizers:
            optimizer.register_step_post_hook(self._after_step)

    def body_begins(self) -> None:
        """A new body starts: no optimizer has stepped in it."""
        self._stepped.clear()

    def awaited(self) -> bool:
        """Whether accumulation is under way: a gradient waits for an optimizer that did not step in the last body."""
        return any(
            self._is_unused(parameter) and _is_not_zero(parameter.grad)
            for optimizer in self._optimizers
            if id(optimizer) not in self._stepped
            for group in optimizer.param_groups
            for parameter in group["params"]
        )

    def save(self, parameters: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        """Give what is known of each parameter's gradient, and the values that have a use."""
        named = list(parameters)
        about: dict[str, list[str]] = {}
        for name, parameter in named:
            about.setdefault(self._about(parameter), []).append(name)
        needed = {name: _value(parameter.grad) for name, parameter in named if self._is_needed(parameter)}
        return {"about": about, "values": needed}

    def put_back(self, parameters: Iterable[tuple[str, Any]], saved: Mapping[str, Any]) -> None:
        """Give parameters the gradients that they had, and know of them what was known.

        Whether there is one is state itself: an optimizer skips None but not zero. Values that did not travel are zero.
        """
        about = {name: words.split() for words, names in saved["about"].items() for name in names}
        values = saved["values"]
        self._used.clear()
        for name, parameter in parameters:
            known = about.get(name, [])
            parameter.grad = None
            if "present" in known:
                parameter.grad = _gradient(values[name], parameter) if name in values else _zero(parameter)
            if "used" in known or "lasting" in known:
                self._used[id(parameter)] = self._known(parameter, known)

    def _about(self, parameter: Any) -> str:
        """Words that say everything there is to know but values."""
        gradient, used = parameter.grad, self._used.get(id(parameter))
        words = ["present"] if gradient is not None else []
        if used is not None:
            words.append("lasting" if used.lasting else "used")
            if gradient is not None and used.gradient() is gradient:
                words += ["same", "changed"] if used.version != gradient._version else ["same"]
        return " ".join(words)

    def _known(self, parameter: Any, words: list[str]) -> _Used:
        gradient = parameter.grad if "same" in words else None
        version = -1 if gradient is None or "changed" in words else gradient._version
        return _Used(_nothing if gradient is None else weakref.ref(gradient), version, "lasting" in words)

    def _after_step(self, optimizer: Any, *_: object) -> None:
        self._stepped.add(id(optimizer))
        used = self._used
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                gradient = parameter.grad
                if gradient is None:
                    continue
                before = used.get(id(parameter))
                lasting = before is None or before.gradient() is gradient
                used[id(parameter)] = _Used(weakref.ref(gradient), gradient._version, lasting)

    def _is_unused(self, parameter: Any) -> bool:
        gradient = parameter.grad
        if gradient is None:
            return False
        used = self._used.get(id(parameter))
        return used is None or used.gradient() is not gradient or used.version != gradient._version

    def _is_needed(self, parameter: Any) -> bool:
        return parameter.grad is not None and (self._is_unused(parameter) or self._used[id(parameter)].lasting)


def _nothing() -> None:
    """A gradient that was let go."""


def _is_sparse(gradient: Any) -> bool:
    return gradient.layout is torch_if_loaded().sparse_coo


def _is_not_zero(gradient: Any) -> bool:
    return bool((gradient._values() if _is_sparse(gradient) else gradient).any())


def _value(gradient: Any) -> Any:
    if not _is_sparse(gradient):
        return gradient
    parts = {"indices": gradient._indices(), "values": gradient._values(), "shape": list(gradient.shape)}
    return parts | {"coalesced": gradient.is_coalesced()}


def _gradient(value: Any, parameter: Any) -> Any:
    if isinstance(value, dict):
        sparse = torch_if_loaded().sparse_coo_tensor
        value = sparse(value["indices"], value["values"], value["shape"], is_coalesced=value["coalesced"])
    return value.to(parameter.device)


def _zero(parameter: Any) -> Any:
    return parameter.detach().new_zeros(parameter.shape)
