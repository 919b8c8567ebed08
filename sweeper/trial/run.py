"""`run = sweeper.resume(...)`: the only thing a training script needs. What each helper means: docs/training.md."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable
from typing import Any

from sweeper.errors import UserError
from sweeper.trial.loader import LoaderSource, is_loader, refuse_unsupported
from sweeper.trial.loops import Epochs, Loop
from sweeper.trial.progress import report_numbers, report_step
from sweeper.trial.registered import Registered
from sweeper.trial.session import current_session
from sweeper.trial.sources import IterableSource, PlainSource, Source, StepSource
from sweeper.trial.training import Training


def resume(*unnamed: object, **registered: object) -> Run:
    """Begin, or continue from this trial's newest checkpoint (RESUME).

    Args:
        registered: what has to travel with the checkpoint, by any names: modules, optimizers, schedulers, a gradient
            scaler, an EMA, anything with `state_dict` and `load_state_dict`, and torch, NumPy or Python random
            generators. None is left out.

    Raises:
        UserError: something cannot be registered, or several ranks are in use.
        StateMismatch: the checkpoint does not fit the objects; nothing was loaded.
        UnsavableValue: the state of something has no exact, safe form.

    Outside a sweep nothing is stored, seeded or resumed, and the helpers only loop.
    """
    if unnamed:
        raise UserError(
            f"sweeper.resume(...) was given a {type(unnamed[0]).__qualname__} without a name",
            remedy="name what you register: sweeper.resume(model=model, optimizer=optimizer)",
        )
    session = current_session()
    if session is None:
        return Run(Training(None, Registered(registered)))
    session.raise_if_stopped()
    if session.begun:
        raise UserError("sweeper.resume(...) is called twice", remedy="call it once and pass the run around")
    _refuse_ranks()
    return Run(Training(session, Registered(registered)))


class Run:
    """A trial as its script sees it. Local variables are not state: keep what must survive in `state` or `mean`."""

    def __init__(self, training: Training) -> None:
        self._training = training

    # -- loops --------------------------------------------------------------------------------------------------------

    def epochs(self, count: int, *, save_within: bool = True) -> Epochs:
        """Loop over the epoch indices that remain of `count`.

        With `save_within=False` no state is saved inside an epoch, so its local variables are always whole.
        """
        self._training.raise_if_stopped()
        return Epochs(self._training, count, save_within=save_within)

    def batches(self, loader: Iterable[Any], *, exact: bool = True) -> Loop:
        """Loop over the batches that remain in this epoch; the first such loop of an epoch has save points.

        With `exact=False` a batch order that cannot be reproduced is noted instead of refused.

        Raises:
            UserError: a loader that cannot be resumed yet.
        """
        self._training.raise_if_stopped()
        return Loop(self._training, self._source(loader, exact=exact), always_side=False)

    def steps(self, count: int) -> Loop:
        """Loop over the step indices that remain of `count`, as `batches` without a loader."""
        self._training.raise_if_stopped()
        source: Source = StepSource(count) if self._training.session is not None else PlainSource(range(count), "steps")
        return Loop(self._training, source, always_side=False)

    def eval(self, loader: Iterable[Any]) -> Loop:
        """Loop over a whole loader without save points, as for evaluation."""
        self._training.raise_if_stopped()
        return Loop(self._training, self._source(loader, exact=True), always_side=True)

    # -- what travels -------------------------------------------------------------------------------------------------

    @property
    def state(self) -> dict[str, Any]:
        """Your own values that travel with the checkpoint: JSON values, arrays and tensors."""
        return self._training.progress.state

    def mean(self, name: str, value: Any = None, *, weight: float = 1.0) -> float:
        """Add a number to this epoch's mean of that name, if given, and give the mean so far (NaN before any)."""
        self._training.raise_if_stopped()
        if value is not None:
            self._training.progress.add_to_mean(name, value, weight)
        mean = self._training.progress.means.get(name)
        return math.nan if mean is None else mean.value

    def report(self, value: Any, step: int | None = None, **metrics: Any) -> None:
        """Report an intermediate value of the objective, for pruning and plots.

        `step` defaults to the completed epochs (from 1) outside batches and to `run.step` inside them, whichever the
        first report was. A later report of the same step replaces the earlier one.

        In a search this may be where training is told to leave (`sweeper.Pruned`). In a deterministic one it waits
        until the search has decided on this report; outside a sweep it never waits.

        Raises:
            UserError: not a number.
        """
        training = self._training
        training.raise_if_stopped()
        number, extra = report_numbers(value, metrics)
        if step is None:
            step = training.progress.report_step(in_batch=training.in_batch, in_epoch=training.in_epoch)
        else:
            step = report_step(step)
        training.progress.finite = math.isfinite(number)
        if training.session is not None:
            at_step, save_ahead = training.step_reached, training.in_loop_of_ours
            training.session.report(step=step, at_step=at_step, value=number, metrics=extra, save_ahead=save_ahead)

    # -- control ------------------------------------------------------------------------------------------------------

    def checkpoint(self, *, files: object = None) -> None:
        """Want a save at the next save point. Nothing is ever saved inside a body."""
        self._training.raise_if_stopped()
        if files is not None:
            raise _no_files()
        if self._training.session is not None:
            self._training.session.request_save()

    def poll(self) -> None:
        """A place where training may be stopped, without a save: for long code outside the loops."""
        self._training.raise_if_stopped()
        if self._training.session is not None:
            self._training.session.poll()

    @property
    def files(self) -> object:
        """The folder restored from `checkpoint(files=...)`; not available yet."""
        raise _no_files()

    # -- facts --------------------------------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """Bodies of the primary loop begun since the trial began, and epochs ended that had none."""
        return self._training.progress.step

    @property
    def epoch(self) -> int:
        """Index of the current epoch."""
        return self._training.progress.epoch

    @property
    def batch(self) -> int:
        """Index of the current batch in its epoch."""
        return self._training.progress.batch

    @property
    def attempt(self) -> int:
        """1 for the trial's first attempt, counting up; 1 outside a sweep."""
        session = self._training.session
        return 1 if session is None else session.start.attempt

    @property
    def resumed(self) -> bool:
        """Whether this attempt continues from a checkpoint."""
        return self._training.resumed

    @property
    def seconds_left(self) -> float | None:
        """Seconds until this machine is taken away; None while nothing is known about it."""
        session = self._training.session
        return None if session is None else session.seconds_left

    def _source(self, loader: Any, *, exact: bool) -> Source:
        if self._training.session is None:
            return PlainSource(loader, "batches")
        refuse_unsupported(loader)
        if not is_loader(loader):
            return IterableSource(loader)
        known = {id(generator) for generator in self._training.registered.generators.values()}
        return LoaderSource(loader, self._training.views, known=known, exact=exact)


def _no_files() -> UserError:
    return UserError(
        "checkpoints of whole folders (run.checkpoint(files=...), run.files) are not available yet",
        remedy="register objects with state_dict in sweeper.resume(...), or keep values in run.state",
    )


def _refuse_ranks() -> None:
    distributed = sys.modules.get("torch.distributed")
    ranks = int(os.environ.get("WORLD_SIZE", "1") or "1")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        ranks = max(ranks, distributed.get_world_size())
    if ranks > 1:
        raise UserError(
            f"sweeper.resume(...) is called in one of {ranks} ranks",
            remedy="trials of several ranks are not supported yet",
        )
