"""Text as Postgres can hold it: free text of people's errors may contain what a UTF-8 column cannot."""

from __future__ import annotations

from typing import overload

MAX_CHARACTERS = 100_000


@overload
def storable(text: str) -> str: ...
@overload
def storable(text: None) -> None: ...
def storable(text: str | None) -> str | None:
    r"""Give the text with NUL and lone surrogates written as escapes, and its middle left out when it is enormous.

    A traceback that cannot be stored must not keep a crash from being recorded. The end is kept: it names the error.
    """
    if text is None:
        return None
    if len(text) > MAX_CHARACTERS:
        half = MAX_CHARACTERS // 2
        text = f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()
