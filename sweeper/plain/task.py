"""What a child runs: the trial's config built anew, checked against its hash, then given to the function."""

from __future__ import annotations

import functools
from collections.abc import Callable

from sweeper.model.messages import Start
from sweeper.plain.config import Configs, read_overrides
from sweeper.plain.objective import Function
from sweeper.trial.child import ConfigDiffers


class PlainTask:
    """The user's function over a mapping; implements `sweeper.trial.child.TrialTask`."""

    def __init__(self, function: Callable[[], Function], configs: Configs) -> None:
        """Remember what to run.

        Args:
            function: gives the function; called in the child, since it may have to be imported first.
            configs: builds its configs.
        """
        self._function = function
        self._configs = configs

    def prepare(self, start: Start) -> Callable[[], object]:
        """Build the trial's config and check its hash; see `TrialTask.prepare`.

        Raises:
            ConfigDiffers: this process has other fixed values than the one that made the trial.
        """
        config = self._configs.build(read_overrides(start.overrides))
        found = self._configs.hash_of(config)
        if found != start.config_hash:
            raise ConfigDiffers(
                f"trial {start.number} ({' '.join(start.overrides)}) has config {start.config_hash[:12]}, but it is "
                f"{found[:12]} as built here: base or identity are not what they were when the trial was made. Values "
                "that differ between machines belong into identity.ignore."
            )
        return functools.partial(self._function(), config)
