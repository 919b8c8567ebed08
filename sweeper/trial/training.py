"""The state of one run: where training stands, what a save contains, and how a resumed run gets back to its place.

Random state is captured at three places and put back at the same three: the epoch's start (E), the loop's start (L) and
the save point (S). Registered state is loaded at `resume` and again together with S, because code above the loop runs
again in a resumed run: it rebuilds local variables, and what it did to registered objects and random state is undone.

An epoch's end is saved there and then, unless its loader has a generator or sampler that goes on from epoch to epoch:
the script may set those at the top of the next epoch, so the save is taken when the next epoch's loop opens, with
nothing handed out yet.
"""

from __future__ import annotations

import hashlib
import logging
import weakref
from typing import TYPE_CHECKING, Any, Final

from sweeper.errors import StateMismatch, UserError
from sweeper.model.staging import SaveFacts
from sweeper.trial import rng
from sweeper.trial.known_loaders import KnownLoaders
from sweeper.trial.loader import LoaderSource, Views
from sweeper.trial.progress import Progress
from sweeper.trial.provenance import differences, provenance
from sweeper.trial.registered import Registered
from sweeper.trial.rng import Snapshot
from sweeper.trial.samplers import OwnState
from sweeper.trial.saved_run import FORMAT, SavedRun
from sweeper.trial.seeding import reseed_numpy
from sweeper.trial.session import Capture, Session
from sweeper.trial.sources import Place
from sweeper.trial.values import encode

if TYPE_CHECKING:
    from sweeper.trial.loops import Epochs, Loop

log = logging.getLogger("sweeper.trial")

MAX_WAITS_FOR_GRADIENTS: Final = 8
"""Save points in a row at which a save waits for accumulated gradients to be used; after that they are saved too."""
_FINISHED: Final = 1 << 62


class Training:
    """Everything behind a `Run`. Without a session nothing is stored, seeded or resumed: loops only loop."""

    def __init__(self, session: Session | None, registered: Registered) -> None:
        self.session = session
        self.registered = registered
        self.progress = Progress()
        self.views = Views()
        self.serial = 0
        """Rises with each primary body and each epoch; a side loop must end under the number it began."""
        self.in_epoch = False
        self.resumed = False
        self._known = KnownLoaders()
        self._phase = 0
        self._epochs: weakref.ref[Epochs] | None = None
        self._epochs_seen = False
        self._primary: weakref.ref[Loop] | None = None
        self._primary_used = False
        self._carries_state = False
        self._implicit = False
        self._save_within = True
        self._deferred = False
        self._saved: SavedRun | None = None
        self._epoch_random: Snapshot | None = None
        self._loop_random: Snapshot | None = None
        self._loop_start: Any = None
        self._waits = 0
        if session is not None:
            self._begin(session)

    def _begin(self, session: Session) -> None:
        self.registered.gradients.watch_steps()
        encode(self.registered.save(), name="registered")  # what could never be saved is refused before training
        self.registered.note_made()
        session.begin()
        session.on_finish = self._finish
        if session.restored is None:
            return
        saved = self._saved = SavedRun(session.restored, inherited=session.start.inherited)
        self.resumed = True
        saved.load(self.registered, self.progress)
        here = saved.random("here")
        for name, generator in self.registered.generators.items():
            rng.set_generator_state(generator, here.generators[name])
        self._known.restore(saved.loaders)
        self.progress.doubt(*differences(saved.provenance, provenance()))
        session.step = self.progress.step

    # -- stops and safe points ----------------------------------------------------------------------------------------

    def raise_if_stopped(self) -> None:
        """Stops latch: raise the one that was raised before."""
        if self.session is not None and self.session.stopped is not None:
            raise self.session.stopped

    @property
    def in_loop_of_ours(self) -> bool:
        """Whether a safe point is still to come by itself."""
        return self.in_epoch or self.in_batch

    @property
    def primary(self) -> Loop | None:
        """The current epoch's primary loop, while anybody holds it: one that was left by `break` is gone, as its
        loader's workers are."""
        return None if self._primary is None else self._primary()

    @property
    def in_batch(self) -> bool:
        """Whether the body of a primary loop is running."""
        primary = self.primary
        return primary is not None and primary.in_body

    @property
    def step_reached(self) -> int:
        """Training steps, the body that is running included; an epoch without a primary loop is a step of its own."""
        return self.progress.step + int(self.in_epoch and not self._primary_used)

    # -- epochs -------------------------------------------------------------------------------------------------------

    def first_epoch_if_next(self) -> int:
        """The epoch that an `epochs()` loop opened now would begin with."""
        saved = self._saved
        if saved is None or saved.phase < self._phase + 1:
            return 0
        return saved.epoch if saved.phase == self._phase + 1 else _FINISHED

    def epochs_open(self, epochs: Epochs, count: int, *, save_within: bool) -> int:
        """An `epochs()` loop starts; give its first epoch.

        Raises:
            UserError: it is nested in another, or follows batches outside epochs.
            StateMismatch: the checkpoint's epoch is not in it.
        """
        if self.session is not None:
            self._refuse_epochs()
        first = self.first_epoch_if_next()
        self._phase += 1
        self._epochs, self._epochs_seen, self._save_within = weakref.ref(epochs), True, save_within
        saved = self._saved
        if saved is not None and saved.phase == self._phase:
            if saved.implicit:
                raise StateMismatch(f"the checkpoint was taken in {saved.where}; this is run.epochs(...)")
            if saved.epoch >= count:
                raise StateMismatch(f"the checkpoint was taken in epoch {saved.epoch}; run.epochs({count}) ends before")
        return min(first, count)

    def epochs_close(self, epochs: Epochs) -> None:
        """An `epochs()` loop is exhausted."""
        if self._epochs is not None and self._epochs() is epochs:
            self._epochs = None

    def epoch_begins(self, epoch: int) -> None:
        """A new epoch's body is about to run: E is taken, or put back."""
        self.progress.epoch, self.progress.batch = epoch, 0
        self.serial += 1
        self.in_epoch = True
        self._primary, self._primary_used, self._carries_state = None, False, False
        if self.session is None:
            self.progress.means.clear()
            return
        saved = self._saved
        if saved is not None and saved.handed_out is None:
            self._return_to(saved, self.registered.generators)
            self.progress.epoch = epoch
        self.progress.means.clear()
        if self._saved is None:
            self._epoch_random = rng.take(self.registered.generators)
        else:
            self._epoch_random = self._saved.random("epoch")
            self._put_back(self._epoch_random, self.registered.generators)

    def epoch_ends(self, *, last: bool) -> None:
        """An epoch's body has ended."""
        self.progress.step, self.in_epoch = self.step_reached, False
        self._expect_no_place()
        self.progress.epochs_done += 1
        self._deferred = self._carries_state and not last
        self._safe_point(self.progress.epoch + 1, save_point=not last and not self._deferred, in_loop=False)

    def _refuse_epochs(self) -> None:
        if self._epochs is not None and self._epochs() is not None and self.in_epoch:
            raise UserError(
                "run.epochs(...) is called inside the body of another run.epochs(...)",
                remedy="make the inner loop run.batches(...), run.steps(...) or a plain range",
            )
        if self._implicit:
            raise UserError(
                "run.epochs(...) is called after a run.batches(...) or run.steps(...) outside any epoch",
                remedy="use run.eval(loader) for what comes before training",
            )

    def _expect_no_place(self) -> None:
        if self._saved is not None:
            raise StateMismatch(f"the checkpoint was taken in {self._saved.where}, but this epoch had no such loop")

    # -- batches and steps --------------------------------------------------------------------------------------------

    def takes_as_primary(self, loop: Loop) -> bool:
        """Whether this loop, which is being opened, is the primary one of its epoch.

        Raises:
            UserError: it would run side by side with the primary one, or is a second one outside epochs.
        """
        if loop.always_side:
            return False
        primary = self.primary
        if self.session is not None and primary is not None and not primary.in_body and not primary.closed:
            raise UserError(
                "two run.batches(...) or run.steps(...) loops are open side by side",
                remedy="companion loops cannot be resumed yet; iterate the second loader itself",
            )
        if self._epochs is None or self._epochs() is None:
            if self._epochs_seen or self.in_batch:
                return False
            self._begin_implicit_epoch(loop)
        elif self._primary_used or not self.in_epoch:
            return False
        self._primary, self._primary_used = weakref.ref(loop), True
        self._carries_state = loop.source.carries_state
        return True

    def _begin_implicit_epoch(self, loop: Loop) -> None:
        if self._implicit and self.session is not None:
            raise UserError(
                f"a second run.{loop.source.kind}(...) outside run.epochs(...)",
                remedy="put training into run.epochs(n), and use run.eval(loader) for evaluation",
            )
        self._implicit = True
        self._phase += 1

    def handed_out_if_next(self, loop: Loop) -> int:
        """How many items a loop that is not open yet would pass over."""
        first = loop.primary or not (self._primary_used or loop.always_side)
        saved = self._saved
        return saved.handed_out or 0 if saved is not None and first else 0

    def loop_opens(self, loop: Loop) -> int:
        """A loop begins: L is taken, or put back and the place found again. Gives the items handed out before."""
        source = loop.source
        if self.session is None:
            source.begin(skip=0, place=None)
            return 0
        saved = self._saved if loop.primary else None
        if isinstance(source, LoaderSource) and source.carries_state:
            self.progress.doubt(*self._known.opens(source, placed=saved is not None))
        handed_out = 0
        if saved is not None:
            handed_out = self._continue_loop(loop, saved)
        elif loop.primary:
            self._loop_random = rng.take(self._generators(loop))
            self._loop_start = source.start_state()
            source.begin(skip=0, place=None)
            self._take_deferred(loop)
        else:
            source.begin(skip=0, place=None)
        self.progress.doubt(*source.inexact)
        return handed_out

    def loop_closes(self, loop: Loop) -> None:
        """A loop is exhausted."""
        loop.closed = True
        if isinstance(loop.source, LoaderSource) and loop.source.carries_state:
            self._known.closes(loop.source)
        if loop.primary and self._implicit:
            self.progress.epochs_done += 1

    def body_begins(self, loop: Loop) -> None:
        """The primary loop hands out an item."""
        progress = self.progress
        progress.step += 1
        progress.batch = loop.handed_out - 1
        self.serial += 1
        if self.session is None:
            return
        self.registered.gradients.body_begins()
        if self.session.start.trace:
            digest = hashlib.blake2b(loop.source.last_item(), digest_size=8).hexdigest()
            progress.trace.append([progress.epoch, progress.batch, digest])

    def body_ends(self, loop: Loop) -> None:
        """The primary loop is asked for another item: this is the safe point of the body that has ended."""
        self._safe_point(self.progress.epoch, save_point=True, in_loop=True)

    def _continue_loop(self, loop: Loop, saved: SavedRun) -> int:
        source = loop.source
        if saved.kind != source.kind or saved.handed_out is None or saved.implicit != self._implicit:
            here = "outside any epoch" if self._implicit else f"in epoch {self.progress.epoch}"
            raise StateMismatch(f"the checkpoint was taken in {saved.where}; this is a run.{source.kind}(...) {here}")
        generators = self._generators(loop)
        self._loop_random = saved.random("loop")
        self._put_back(self._loop_random, generators)
        self._loop_start = saved.loop["start"]
        source.put_back(self._loop_start)
        if self._implicit:
            self._epoch_random = self._loop_random
        place = Place(progress=saved.loop["progress"], arrived=lambda: self._return_to(saved, generators))
        source.begin(skip=saved.handed_out, place=place)
        return saved.handed_out

    def _take_deferred(self, loop: Loop) -> None:
        if self._implicit:
            self._epoch_random = self._loop_random
        if self._deferred:
            self._deferred = False
            self._safe_point(self.progress.epoch, save_point=True, in_loop=True)

    def _safe_point(self, epoch: int, *, save_point: bool, in_loop: bool) -> None:
        if self.session is not None:
            point = _Point(self, in_loop=in_loop) if save_point else None
            self.session.safe_point(step=self.progress.step, epoch=epoch, point=point)

    # -- places -------------------------------------------------------------------------------------------------------

    def _return_to(self, saved: SavedRun, generators: dict[str, Any]) -> None:
        """The second load: everything is as it was at the save point, whatever code above the loop has done."""
        doubts = self.progress.inexact
        saved.load(self.registered, self.progress)
        self.progress.doubt(*doubts)
        self._put_back(saved.random("here"), generators)
        self._saved = None

    def _put_back(self, snapshot: Snapshot, generators: dict[str, Any]) -> None:
        assert self.session is not None, "only in a sweep"
        rng.put_back(snapshot, generators)
        if snapshot.numpy is None:  # the save knew no NumPy, so training had not imported it yet
            reseed_numpy(self.session.start.seed, self.session.start.config_hash)

    def _generators(self, loop: Loop) -> dict[str, Any]:
        found = {f"loader: {path}": generator for path, generator in loop.source.generators.items()}
        return self.registered.generators | found

    # -- saves --------------------------------------------------------------------------------------------------------

    def obstacle(self, *, in_loop: bool, forced: bool) -> str | None:
        """Why the place training is at cannot be saved, or is better not saved unless `forced`; None when it can."""
        if in_loop:
            primary = self.primary
            assert primary is not None, "there is a loop"
            if primary.handed_out and not self._save_within:
                return "run.epochs(..., save_within=False)"
            if not primary.source.has_more(primary.handed_out):
                return "no batch is left in this loop"
            obstacle = primary.source.obstacle(primary.handed_out)
            if obstacle is not None:
                log.warning("batches cannot be saved within an epoch: %s", obstacle)
                return obstacle
        if not forced and self._waits < MAX_WAITS_FOR_GRADIENTS and self.registered.gradients.awaited():
            self._waits += 1
            return "gradients are being accumulated"
        return None

    def capture(self, *, in_loop: bool) -> Capture:
        """Take the snapshot: random state first, then everything else."""
        self._waits = 0
        loop = self.primary if in_loop else None
        here = rng.take(self.registered.generators if loop is None else self._generators(loop))
        progress = self.progress
        epoch = progress.epoch if in_loop else progress.epoch + 1
        doubts = progress.inexact + self._known.doubts(_own_state(loop))
        handed_out = None if loop is None else loop.handed_out
        value = {
            "format": FORMAT,
            "place": {"phase": self._phase, "implicit": self._implicit, "epoch": epoch, "handed_out": handed_out,
                      "kind": None if loop is None else loop.source.kind},
            "progress": progress.to_value(),
            "random": self._random(here, in_loop=in_loop),
            "loop": None if loop is None else {"start": self._loop_start, "progress": loop.source.progress()},
            "loaders": self._known.to_value(),
            "registered": self.registered.save(),
            "provenance": provenance(),
        }  # fmt: skip
        return Capture(value=value, facts=self._facts(epoch, handed_out, doubts))

    def _random(self, here: Snapshot, *, in_loop: bool) -> dict[str, Any]:
        values: dict[str, Any] = {"here": here.to_value()}
        if in_loop:
            assert self._epoch_random is not None, "E was taken when the epoch began"
            assert self._loop_random is not None, "L was taken when the loop opened"
            values |= {"epoch": self._epoch_random.to_value(), "loop": self._loop_random.to_value()}
        return values

    def _facts(self, epoch: int, handed_out: int | None, doubts: list[str]) -> SaveFacts:
        return SaveFacts(
            seq=0, step=self.progress.step, epoch=epoch, position={"epoch": epoch, "batch": handed_out},
            exact=not doubts, inexact_reasons=tuple(doubts), provenance=provenance(), finite=self.progress.finite,
        )  # fmt: skip

    def _finish(self) -> None:
        """The function has returned. For `sweeper check`, stage the end state: a save that nobody resumes from."""
        assert self.session is not None, "only in a sweep"
        if self._saved is not None:
            raise StateMismatch(
                f"the function returned without coming back to {self._saved.where}, where its checkpoint was taken"
            )
        if not self.session.start.trace:
            return
        self.session.wait_saved(60.0)
        here = rng.take(self.registered.generators)
        value = {"registered": self.registered.save(), "random": here.to_value(), "progress": self.progress.to_value()}
        facts = SaveFacts(seq=0, step=self.progress.step, epoch=self.progress.epoch + 1, position={"final": True})
        self.session.stage(Capture(value=value, facts=facts))


def _own_state(loop: Loop | None) -> OwnState | None:
    return loop.source.own if loop is not None and isinstance(loop.source, LoaderSource) else None


class _Point:
    """The end of a body, as the session sees it."""

    __slots__ = ("_in_loop", "_training")

    def __init__(self, training: Training, *, in_loop: bool) -> None:
        self._training = training
        self._in_loop = in_loop

    def obstacle(self, *, forced: bool) -> str | None:
        return self._training.obstacle(in_loop=self._in_loop, forced=forced)

    def capture(self) -> Capture:
        return self._training.capture(in_loop=self._in_loop)
