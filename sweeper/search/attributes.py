"""Attributes of samplers and pruners on their way to rows and back: state, as tagged JSON, never as a pickle (SAFE).

Of Optuna's own samplers and pruners only attributes of a known name and kind pass, so nothing in a row is ever
unpickled. A sampler from elsewhere may keep what it likes, save what looks like a pickle; one that
unpickles its attributes has to bring its own protection, as does any code that a command's config names.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from sweeper.errors import UserError
from sweeper.model.tagged import from_tagged, to_tagged
from sweeper.model.trial import Json
from sweeper.search.entries import FIXED_PARAMS

CONSTRAINTS: Final = "constraints"
"""Where Optuna keeps the values of constraints: a list, feasible where none is above 0."""
CMA_STATE: Final = re.compile(r"(cma|sepcma|cmawm):state")
"""Where our CMA-ES keeps its state, as JSON that stays JSON until it is read (`sweeper.search.cmaes`)."""

_NEEDLESS: Final = re.compile(r"(tpe|gp):relative_params:\d+")
"""What TPE and GP tell other processes while a trial is being suggested; its parameters say the same."""
_UNPICKLED: Final = re.compile(r"\w*:optimizer(:\d+)?")
"""Where Optuna's CMA-ES keeps a pickle that it loads at the next proposal."""
_PICKLES: Final = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
"""How every pickle of protocol 2 and later begins."""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_list_of(check: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list | tuple) and all(check(item) for item in value)


_TRIAL_ATTRIBUTES: Final[tuple[tuple[re.Pattern[str], Callable[[object], bool]], ...]] = (
    (re.compile(r"\w+:generation"), _is_whole),
    (re.compile(r"x_for_tell"), _is_list_of(_is_number)),
    (CMA_STATE, lambda value: isinstance(value, dict)),
    (re.compile(r"completed_rung_\d+"), _is_number),
    (re.compile(CONSTRAINTS), _is_list_of(_is_number)),
)
_STUDY_ATTRIBUTES: Final[tuple[tuple[re.Pattern[str], Callable[[object], bool]], ...]] = (
    (re.compile(r"qmc:[0-9a-f]{64}"), _is_whole),
    (re.compile(r"\w+:parent:\d+"), _is_list_of(_is_whole)),
    (re.compile(r"auto:last_step"), _is_whole),
)


class AttributeRules:
    """Which attributes are stored and fed back, and in which form."""

    def __init__(self, *, custom: bool) -> None:
        self._custom = custom
        """Whether the sampler or pruner (or one nested in it) comes from elsewhere than Optuna."""

    def stored(self, attrs: Mapping[str, object], *, of_study: bool = False) -> dict[str, Json]:
        """Give the attributes that a row keeps, as tagged JSON.

        Raises:
            UserError: one has no exact form without a pickle.
        """
        found: dict[str, Json] = {}
        for key, value in attrs.items():
            if key == FIXED_PARAMS or _NEEDLESS.fullmatch(key):
                continue
            plain = _plain(value)
            if not self._passes(key, plain, of_study=of_study):
                continue
            try:
                found[key] = to_tagged(plain)
            except TypeError as error:
                raise UserError(
                    f"the sampler or pruner keeps an attribute {key!r} that cannot be stored: {error}",
                    remedy="Keep numbers, text, lists and mappings; nothing is ever pickled.",
                ) from error
        return found

    def fed(self, attrs: Mapping[str, Json], *, of_study: bool = False) -> dict[str, Any]:  # Any: as in Optuna
        """Give what the study is fed of a row's attributes; what is not as it should be is left out."""
        found: dict[str, Any] = {}
        for key, tagged in attrs.items():
            try:
                value = tagged if CMA_STATE.fullmatch(key) else from_tagged(tagged)
            except ValueError:
                continue
            if self._passes(key, value, of_study=of_study):
                found[key] = value
        return found

    def _passes(self, key: str, value: object, *, of_study: bool) -> bool:
        if _UNPICKLED.fullmatch(key):
            return False
        known = _STUDY_ATTRIBUTES if of_study else _TRIAL_ATTRIBUTES
        for pattern, check in known:
            if pattern.fullmatch(key):
                return check(value)
        return self._custom and not any(_looks_pickled(leaf) for leaf in _leaves(value))


def _plain(value: object) -> object:
    """Turn numpy's numbers and arrays into Python's."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value


def _leaves(value: object) -> Iterator[object]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield key
            yield from _leaves(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _looks_pickled(value: object) -> bool:
    """Whether bytes, or text in hexadecimal or base 64, begin as pickles do."""
    if isinstance(value, bytes):
        return value.startswith(_PICKLES)
    if not isinstance(value, str):
        return False
    head = value[:8].strip()
    for decode in (binascii.unhexlify, binascii.a2b_base64):
        try:
            if decode(head[: len(head) // 4 * 4]).startswith(_PICKLES):
                return True
        except (binascii.Error, ValueError):
            continue
    return False
