"""A plain `DataLoader`, iterated through a view so that a resumed loop continues exactly where it was left.

The obvious way (snapshot, skip in the index sampler, random state after the iterator exists) is wrong for persistent
workers, lazy samplers with workers, counting samplers, samplers that own a `Random`, and subclasses whose `__iter__` is
a generator. So each loader gets a *view*: a shallow copy made without running any constructor (subclasses and their
arguments stay), kept as long as the loader so that persistent workers persist. In the view an `Order` stands where the
index sampler was, the generator is a private one, and with workers the dataset is reseeded per batch.

Per loop: the private generator takes the state of the loader's (or the process's) generator and **one** base seed is
drawn from the real one, as stock torch does when it starts workers; `iter(sampler)` is called once; a resuming loop
draws and drops the index batches that were handed out before; then `iter(view)`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any, Final

from sweeper.errors import StateMismatch, UserError
from sweeper.trial.loader_workers import SeededDataset, WorkerStart
from sweeper.trial.order import Order, PrivateStream
from sweeper.trial.samplers import OwnState, draws_like_torch
from sweeper.trial.sources import Place, Source, length_of
from sweeper.trial.tensors import torch_if_loaded

_OURS: Final = frozenset({"generator", "batch_sampler", "sampler", "dataset", "worker_init_fn", "_iterator",
                          "_get_iterator"})  # fmt: skip
_IN_WORKERS: Final = ("dataset", "collate_fn", "worker_init_fn")


def is_loader(value: object) -> bool:
    """Whether this is a torch `DataLoader`."""
    torch = torch_if_loaded()
    return torch is not None and isinstance(value, torch.utils.data.DataLoader)


def refuse_unsupported(loader: Any) -> None:
    """Say at once what cannot be resumed exactly yet.

    Raises:
        UserError: an iterable dataset, or a loader with a state of its own.
    """
    if callable(getattr(loader, "state_dict", None)) and callable(getattr(loader, "load_state_dict", None)):
        raise UserError(
            f"run.batches(...) cannot resume a {type(loader).__qualname__} yet: it keeps a position of its own",
            remedy="give it a plain torch DataLoader, which resumes exactly",
        )
    if is_loader(loader) and isinstance(loader.dataset, torch_if_loaded().utils.data.IterableDataset):
        raise UserError(
            f"run.batches(...) cannot resume the iterable dataset {type(loader.dataset).__qualname__} yet",
            remedy="use a map-style dataset (with __getitem__ and __len__), or iterate the loader itself",
        )


def signature(loader: Any) -> str:
    """What tells loaders of one script apart, the same in every process."""
    batching = loader.batch_sampler if loader.batch_sampler is not None else loader.sampler
    inner = getattr(batching, "sampler", batching)
    return (
        f"{type(loader).__qualname__} of {type(loader.dataset).__qualname__}[{length_of(loader.dataset)}] by "
        f"{type(batching).__qualname__} of {type(inner).__qualname__}, batch size {loader.batch_size}"
    )


def _deciding(loader: Any) -> Any:
    """The sampler, or batch sampler, that the user wrote."""
    batching = loader.batch_sampler
    if batching is None:
        return loader.sampler
    return batching.sampler if type(batching) is torch_if_loaded().utils.data.BatchSampler else batching


class View:
    """The kept, changed shallow copy of one loader, for one loop at a time."""

    def __init__(self, loader: Any) -> None:
        self.order = Order()
        self.user: weakref.ref[LoaderSource] | None = None
        """The loop that is using the view, while it lives."""
        self.arrived: Callable[[], None] | None = None
        """To be called when torch's iterator has been made; None afterwards."""
        self._inner: weakref.ref[Any] | None = None
        self.copy: Any = object.__new__(type(loader))
        self.copy.__dict__.update(loader.__dict__)
        self.copy.__dict__["_iterator"] = None
        self.copy.__dict__["_get_iterator"] = _iterator_maker(weakref.ref(self))
        self.copy.__dict__["generator"] = torch_if_loaded().Generator()
        self.copy.__dict__["batch_sampler" if loader.batch_sampler is not None else "sampler"] = self.order
        self._wrapped: Any = None

    def follow(self, loader: Any) -> None:
        """Take over what the user has changed on the loader since the last loop."""
        own = self.copy.__dict__
        own.update({name: value for name, value in loader.__dict__.items() if name not in _OURS})
        if loader.num_workers > 0:
            if self._wrapped is not loader.dataset:
                self._wrapped = loader.dataset
                own["dataset"] = SeededDataset(loader.dataset)
            own["worker_init_fn"] = WorkerStart(loader.worker_init_fn)
        else:
            own["dataset"] = loader.dataset
            own["worker_init_fn"] = loader.worker_init_fn

    def batches_fetched(self) -> int | None:
        """Batches that torch's own iterator has given in this loop; None when it was not used."""
        inner = None if self._inner is None else self._inner()
        return None if inner is None else int(inner._num_yielded)

    def make_iterator(self) -> Any:
        """Start torch's own iterator, and remember it for as long as somebody uses it."""
        inner = type(self.copy)._get_iterator(self.copy)
        self._inner = weakref.ref(inner)
        if self.arrived is not None:
            arrived, self.arrived = self.arrived, None
            arrived()
        return inner


def _iterator_maker(view: weakref.ref[View]) -> Callable[[], Any]:
    """Not a bound method: an iterator with workers that dies in a reference cycle shuts them down badly, since its
    queues are finalised before it can say goodbye, and that takes torch ten seconds."""

    def make() -> Any:
        living = view()
        assert living is not None, "its copy is being iterated"
        return living.make_iterator()

    return make


class Views:
    """Views by loader, kept as long as their loaders live."""

    def __init__(self) -> None:
        self._views: dict[int, tuple[weakref.ref[Any], View]] = {}

    def of(self, loader: Any) -> View:
        """Give the loader's view, or another one while that is in use (a loader iterated inside its own loop)."""
        kept = self._views.get(id(loader))
        if kept is not None and kept[0]() is loader:
            view = kept[1]
            return view if view.user is None or view.user() is None else View(loader)
        key = id(loader)
        view = View(loader)
        self._views[key] = weakref.ref(loader, lambda _: self._views.pop(key, None)), view
        return view


class LoaderSource(Source):
    """One loop over a `DataLoader` of a map-style dataset."""

    def __init__(self, loader: Any, views: Views, *, known: Container[int], exact: bool) -> None:
        self.loader = loader
        self.signature = signature(loader)
        self._views = views
        self._exact = exact
        self._view: View | None = None
        self._items: Iterator[Any] = iter(())
        self._skipped = 0
        self._arriving: Callable[[], None] | None = None
        self.own = OwnState(loader, known=known)
        self.generators: Mapping[str, Any] = self.own.generators
        self.carries_state = bool(self.own)
        self.inexact: tuple[str, ...] = tuple(self._doubts())

    def length(self) -> int | None:
        """The loader's own, if it has one."""
        return length_of(self.loader)

    def start_state(self) -> dict[str, Any]:
        """What the loader looks like, and its samplers' state."""
        return {"signature": self.signature, "samplers": self.own.samplers()}

    def put_back(self, state: Mapping[str, Any]) -> None:
        """Put samplers back; a loader of another make is refused unless inexactness was asked for."""
        if state["signature"] != self.signature:
            self._differs(f"it was {state['signature']} and is {self.signature}")
        self.own.put_back_samplers(state["samplers"])

    def begin(self, *, skip: int, place: Place | None) -> None:
        """Start the view, as this module's docstring tells."""
        loader = self.loader
        view = self._view = self._views.of(loader)
        view.user = weakref.ref(self)
        view.follow(loader)
        seed = self._base_seed(view)
        sampler = loader.batch_sampler if loader.batch_sampler is not None else loader.sampler
        # A subclass whose `__iter__` is a generator runs its first lines at the first `next`, before torch's iterator
        # exists: they have to see the loop's start, so a place in the middle is reached only after them.
        overridden = type(loader).__iter__ is not torch_if_loaded().utils.data.DataLoader.__iter__
        stream = PrivateStream(seed) if overridden or not draws_like_torch(sampler) else None
        view.order.begin(sampler, stream=stream, seed=seed if loader.num_workers > 0 else None)
        view.order.skip(skip)
        self._skipped = skip
        if place is not None:
            self._compare(place.progress, view)
        if place is not None and overridden and skip:
            view.arrived = self._arriving = place.arrived
        self._items = iter(view.copy)
        if place is not None and self._arriving is None:
            place.arrived()

    def next(self) -> Any:
        """The next batch."""
        assert self._view is not None, "begin comes first"
        try:
            item = next(self._items)
        except StopIteration:
            self._view.user = None
            raise
        if self._arriving is not None and self._view.arrived is not None:
            raise StateMismatch(f"{type(self.loader).__qualname__} no longer iterates through DataLoader.__iter__")
        self._view.order.handed_out()
        return item

    def has_more(self, handed_out: int) -> bool:
        """By the loader's length, else by drawing one index batch ahead."""
        assert self._view is not None, "begin comes first"
        length = self.length()
        if length is None or not handed_out:  # at a loop's start the next batch is all that tells orders apart
            return self._view.order.has_more()
        return handed_out < length

    def progress(self) -> dict[str, Any]:
        """Digests of what was handed out and of what comes next, if that is known."""
        assert self._view is not None, "begin comes first"
        order = self._view.order
        return {"digest": order.digest(), "ahead": order.looked_ahead, "next": order.next_digest()}

    def obstacle(self, handed_out: int) -> str | None:
        """A subclass may hand out other items than one per index batch; then a place among them means nothing."""
        assert self._view is not None, "begin comes first"
        fetched = self._view.batches_fetched()
        if fetched is None:
            return f"{type(self.loader).__qualname__} does not iterate through DataLoader.__iter__"
        if fetched + self._skipped != handed_out:
            return f"{type(self.loader).__qualname__} gave {handed_out} items for {fetched + self._skipped} batches"
        return None

    def last_item(self) -> bytes:
        """The index batch."""
        assert self._view is not None, "begin comes first"
        return self._view.order.last_batch

    def _base_seed(self, view: View) -> int:
        torch = torch_if_loaded()
        real = self.loader.generator
        view.copy.generator.set_state((torch.default_generator if real is None else real).get_state())
        return int(torch.empty((), dtype=torch.int64).random_(generator=real).item())

    def _compare(self, progress: Mapping[str, Any], view: View) -> None:
        if progress["ahead"] or progress["next"] is not None:
            view.order.has_more()
        if (progress["digest"], progress["next"]) != (view.order.digest(), view.order.next_digest()):
            name = type(_deciding(self.loader)).__qualname__
            self._differs(f"sampler {name} keeps state; give it state_dict and load_state_dict")

    def _differs(self, why: str) -> None:
        if self._exact:
            raise StateMismatch(f"the batch order of the loop cannot be reproduced: {why}")
        self.inexact += (f"the batch order could not be reproduced: {why}",)

    def _doubts(self) -> Iterator[str]:
        loader = self.loader
        if loader.num_workers > 0:
            if not getattr(loader, "in_order", True):
                yield "in_order=False: batches come in whatever order workers finish them"
            owned = [path for path in self.generators if path.split(".")[0] in _IN_WORKERS]
            if owned:
                yield f"{owned[0]}: a random generator that draws in loader workers"
