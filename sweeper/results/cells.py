"""A parameter's value as text in one cell, so that its type is still there (TRUTH)."""

from __future__ import annotations

import json
from typing import Any

from sweeper.model.tagged import to_tagged
from sweeper.results.columns import ABSENT


def cell_text(value: Any) -> str:  # Any: any plain value
    """Write a value: null, true, 1, 1.0, inf; text as it is, in JSON's quotes where it would be read as another type.

    What does not apply is empty, and an empty text is `""`. Lists and mappings are JSON, exact values as tagged JSON.
    """
    match value:
        case _ if value is ABSENT:
            return ""
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str() if not _ambiguous(value):
            return value
        case str():
            return json.dumps(value, ensure_ascii=False)
        case _:
            return json.dumps(to_tagged(value), ensure_ascii=False)


def _ambiguous(text: str) -> bool:
    """Whether a reader could not tell that this is text, or where it ends."""
    if not text or text != text.strip() or text.startswith('"'):
        return True
    return _read_by(float, text) or _read_by(json.loads, text)


def _read_by(reader: Any, text: str) -> bool:  # Any: of text to any value
    try:
        reader(text)
    except (ValueError, RecursionError):
        return False
    return True
