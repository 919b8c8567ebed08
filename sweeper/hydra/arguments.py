"""Arguments that Hydra's own parser will refuse without saying what to do."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException


def explain_unquoted(arguments: Sequence[str]) -> None:
    """Say on standard error how to quote text outside ASCII, before Hydra stops at it with a lexer's message.

    Nothing is said of Hydra's own settings, which may hold a password.
    """
    for argument in arguments:
        key, sign, value = argument.partition("=")
        if argument.isascii() or argument.startswith(("-", "hydra.")) or not sign or not _valid(argument):
            continue
        try:
            OverridesParser.create().parse_override(argument)
        except HydraException:
            quoted = value.replace("'", "\\'")
            sys.stderr.write(
                f"sweeper: {argument!r}: Hydra reads text outside ASCII only in quotes; in a shell, write "
                f"\"{key}='{quoted}'\"\n"
            )


def _valid(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
