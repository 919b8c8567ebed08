"""Samplers and pruners may be anybody's code; what they raise when they are asked is answered for once, by name."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from sweeper.errors import UserError
from sweeper.search.quiet import quiet

log = logging.getLogger("sweeper.search")


@contextmanager
def asked(what: str) -> Iterator[None]:
    """Ask a sampler or pruner quietly; its traceback goes to the log.

    Args:
        what: the setting that names it, `sampler` or `pruner`.

    Raises:
        UserError: it raised something.
    """
    try:
        with quiet():
            yield
    except UserError:
        raise
    except Exception as error:
        log.exception("the %s raised", what)
        first_line = str(error).partition("\n")[0]
        raise UserError(
            f"the {what} raised {type(error).__name__}: {first_line}",
            remedy=f"Mend it, or search under another name with another {what}; finished trials keep their results, "
            "and the same command goes on from there.",
        ) from error
