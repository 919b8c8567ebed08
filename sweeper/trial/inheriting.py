"""What an heir keeps of its own: hyperparameters that its config changed, inside state that another trial trained.

An heir goes on from another trial's checkpoint with other hyperparameters (population-based training: Jaderberg et al.
2017, arXiv:1711.09846, section 3). Optimizers and schedulers keep hyperparameters in the very state that is restored,
so restoring alone would bring the other trial's learning rate back. Each save therefore says how its script had *made*
those objects, as they were when `resume` was called. Compared with how the heir's script made its own, that tells what
the config changed:

- a value that both made alike is the saved one: training may have moved it, and that goes on;
- a value made differently is the heir's own if training had not moved it since it was made;
- a number made differently that training had moved (a decayed learning rate) keeps the proportion to what it was
  made as: saved · (the heir's / the source's). So schedules that multiply, torch's and hand-made, stand where they
  would stand had they begun with the heir's value;
- anything else made differently is the heir's own.

What is no hyperparameter (moments, step counts, a schedule's position) both make alike, so it is always the saved one.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from sweeper.trial.arrays import is_array
from sweeper.trial.tensors import is_tensor, torch_if_loaded

_SEQUENCES: Final = (list, tuple, deque)


def taken_over(saved: Any, *, source: Any, live: Any) -> Any:
    """Give what an heir's object is to be loaded from, as this module's docstring tells.

    Args:
        saved: the state in the checkpoint.
        source: the state that the script which saved it had made.
        live: the state that the heir's script has made.
    """
    if same(source, live):
        return saved
    if same(saved, source):
        return live
    if isinstance(saved, dict) and isinstance(source, Mapping) and isinstance(live, Mapping):
        return _mapping(saved, source, live)
    if type(saved) in (list, tuple) and len(saved) == len(source) == len(live):
        items = zip(saved, source, live, strict=True)
        return type(saved)(taken_over(was, source=made, live=mine) for was, made, mine in items)
    return in_proportion(saved, source=source, live=live)


def group_options(saved: Mapping[str, Any], *, source: Mapping[str, Any], live: Mapping[str, Any]) -> dict[str, Any]:
    """The same for one parameter group's options.

    A scheduler keeps the rate that it starts from as `initial_lr` and may set `lr` to anything at once (a warm-up, even
    from zero); so where there is one, a rate that has moved keeps its proportion to that.
    """
    options: dict[str, Any] = taken_over(dict(saved), source=source, live=live)
    if "initial_lr" in source and "initial_lr" in live and not same(saved.get("lr"), source.get("lr")):
        options["lr"] = in_proportion(saved["lr"], source=source["initial_lr"], live=live["initial_lr"])
    return options


def in_proportion(saved: Any, *, source: Any, live: Any) -> Any:
    """Give `saved` · `live` / `source` if all three are numbers for which that makes sense, else `live`."""
    if same(source, live):
        return saved
    if not (_is_number(saved) and _is_number(source) and _is_number(live)) or not float(source):
        return live
    number = float(saved) * float(live) / float(source)
    if not math.isfinite(number):
        return live
    if is_tensor(saved):
        return torch_if_loaded().full_like(saved, number)
    return round(number) if isinstance(saved, int) else number


def same(left: Any, right: Any) -> bool:
    """Whether two values are equal, to the bit for numbers; NaN equals NaN."""
    if left is right:
        return True
    if is_tensor(left) or is_tensor(right):
        alike = is_tensor(left) and is_tensor(right) and left.dtype == right.dtype and left.shape == right.shape
        return alike and bool(torch_if_loaded().equal(left, right))
    if is_array(left) or is_array(right):
        alike = is_array(left) and is_array(right) and left.dtype == right.dtype and left.shape == right.shape
        return alike and left.tobytes() == right.tobytes()
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    if isinstance(left, _SEQUENCES) and isinstance(right, _SEQUENCES):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left):
        return math.isnan(right)
    return bool(left == right)


def _mapping(saved: dict[Any, Any], source: Mapping[Any, Any], live: Mapping[Any, Any]) -> dict[Any, Any]:
    """Key by key; a key that one of the scripts did not make is taken from where it is, the heir's own first."""
    merged = type(saved)(saved)
    for key, mine in live.items():
        known = key in saved and key in source
        merged[key] = taken_over(saved[key], source=source[key], live=mine) if known else mine
    return merged


def _is_number(value: Any) -> bool:
    if is_tensor(value):
        return bool(value.dim() == 0 and not value.dtype.is_complex)
    return isinstance(value, int | float) and not isinstance(value, bool)
