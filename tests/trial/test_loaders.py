"""RESUME: every kind of map-style loader gives a resumed run the batches and random numbers that it would have had."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, Sampler

import sweeper
from sweeper.errors import StateMismatch
from tests.trial.lone_worker import START, LoneWorker, Save, assert_resumes_exactly

pytestmark = pytest.mark.slow

COUNT = 13


class Noisy(Dataset[Any]):
    """Draws from all three global generators per item."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([float(index), random.random(), np.random.rand(), torch.rand(()).item()])


class OwnsGenerators(Noisy):
    """Draws from generators of its own."""

    def __init__(self) -> None:
        self.python = random.Random(3)
        self.numpy = np.random.default_rng(4)
        self.torch = torch.Generator().manual_seed(5)

    def __getitem__(self, index: int) -> torch.Tensor:
        draws = [self.python.random(), self.numpy.random(), torch.rand((), generator=self.torch).item()]
        return torch.tensor([float(index), *draws])


class Lazy(Sampler[int]):
    """Draws as it goes, from the global generators."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        for _ in range(self.count):
            yield (random.randrange(self.count) + int(torch.randint(self.count, ()))) % self.count

    def __len__(self) -> int:
        return self.count


class Counting(Sampler[int]):
    """Another order each time it is iterated."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.rounds = 0

    def __iter__(self) -> Iterator[int]:
        self.rounds += 1
        return iter([(index * self.rounds) % self.count for index in range(self.count)])

    def __len__(self) -> int:
        return self.count


class OwnsRandom(Sampler[int]):
    def __init__(self, count: int) -> None:
        self.count = count
        self.random = random.Random(9)

    def __iter__(self) -> Iterator[int]:
        for _ in range(self.count):
            yield self.random.randrange(self.count)

    def __len__(self) -> int:
        return self.count


class Unsized(Sampler[int]):
    """Nobody knows how many there will be."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count))


class Hidden(Sampler[int]):
    """Keeps its state where nobody looks for it."""

    def __init__(self, count: int) -> None:
        self.count = count
        rounds: list[int] = []
        self.rounds = lambda: rounds

    def __iter__(self) -> Iterator[int]:
        self.rounds().append(1)
        return iter([(index * (1 + len(self.rounds()))) % self.count for index in range(self.count)])

    def __len__(self) -> int:
        return self.count


class Honest(Hidden):
    """The same, but says so."""

    def state_dict(self) -> dict[str, int]:
        return {"rounds": len(self.rounds())}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.rounds()[:] = [1] * state["rounds"]


class Reshuffling(Sampler[list[int]]):
    """Shuffles its own batches in place, again and again."""

    def __init__(self) -> None:
        self.batches = [[0, 1, 2], [3, 4], [5, 6, 7], [8], [9, 10, 11, 12]]
        self.weights: dict[int, Any] = {0: np.arange(5.0), 1: torch.zeros(2), 2: [0.5, (1, "a"), 2**70]}
        self.seen: set[int] = set()
        self.other = [object()]

    def __iter__(self) -> Iterator[list[int]]:
        random.shuffle(self.batches)
        self.weights[0] += 1
        self.seen.add(self.batches[0][0])
        self.weights[1] += torch.rand(2)
        return iter(self.batches[(int(self.weights[0][0]) + len(self.seen)) % 2 :])

    def __len__(self) -> int:
        return len(self.batches) - (int(self.weights[0][0]) + len(self.seen)) % 2


class TooLong(Reshuffling):
    """The same, with more than can travel."""

    def __init__(self) -> None:
        super().__init__()
        self.batches = [[index % COUNT] for index in range(200_000)]

    def __iter__(self) -> Iterator[list[int]]:
        random.shuffle(self.batches)
        return iter(self.batches[:5])

    def __len__(self) -> int:
        return 5


class Transforming(DataLoader[Any]):
    """A subclass whose `__iter__` is a generator, with a draw before and around each batch."""

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        first = torch.rand(())
        for batch in super().__iter__():
            yield batch + first + random.random()


class Filtering(DataLoader[Any]):
    """Leaves out some batches."""

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        for number, batch in enumerate(super().__iter__()):
            if number % 2:
                yield batch


def keyed(generator: torch.Generator | None = None) -> dict[str, Any]:
    return {"batch_size": 3, "generator": generator}


Loaders: dict[str, Callable[[], DataLoader[Any]]] = {
    "shuffle": lambda: DataLoader(Noisy(), batch_size=3, shuffle=True),
    "generator": lambda: DataLoader(Noisy(), shuffle=True, **keyed(torch.Generator().manual_seed(1))),
    "in order": lambda: DataLoader(Noisy(), batch_size=3),
    "drop last": lambda: DataLoader(Noisy(), batch_size=3, shuffle=True, drop_last=True),
    "replacement": lambda: DataLoader(Noisy(), batch_size=3, sampler=RandomSampler(range(COUNT), replacement=True)),
    "no batches": lambda: DataLoader(Noisy(), batch_size=None, shuffle=True),
    "lazy": lambda: DataLoader(Noisy(), batch_size=3, sampler=Lazy(COUNT)),
    "counting": lambda: DataLoader(Noisy(), batch_size=3, sampler=Counting(COUNT)),
    "owns a Random": lambda: DataLoader(Noisy(), batch_size=3, sampler=OwnsRandom(COUNT)),
    "state_dict": lambda: DataLoader(Noisy(), batch_size=3, sampler=Honest(COUNT)),
    "batch sampler": lambda: DataLoader(Noisy(), batch_sampler=BatchSampler(Lazy(COUNT), 3, drop_last=False)),
    "reshuffling": lambda: DataLoader(Noisy(), batch_sampler=Reshuffling()),
    "list of batches": lambda: DataLoader(Noisy(), batch_sampler=[[0, 1], [2], [5, 4, 3]]),
    "subclass": lambda: Transforming(Noisy(), batch_size=3, shuffle=True),
    "subclass, lazy": lambda: Transforming(Noisy(), batch_size=3, sampler=Lazy(COUNT)),
    "unsized": lambda: DataLoader(Noisy(), batch_size=3, sampler=Unsized(COUNT)),
    "own generators": lambda: DataLoader(OwnsGenerators(), batch_size=3, shuffle=True),
}
WithWorkers: dict[str, Callable[..., DataLoader[Any]]] = {
    "shuffle": lambda **more: DataLoader(Noisy(), batch_size=3, shuffle=True, **more),
    "generator": lambda **more: DataLoader(Noisy(), shuffle=True, **keyed(torch.Generator().manual_seed(1)), **more),
    "lazy": lambda **more: DataLoader(Noisy(), batch_size=3, sampler=Lazy(COUNT), **more),
    "counting": lambda **more: DataLoader(Noisy(), batch_size=3, sampler=Counting(COUNT), **more),
    "owns a Random": lambda **more: DataLoader(Noisy(), batch_size=3, sampler=OwnsRandom(COUNT), **more),
    "reshuffling": lambda **more: DataLoader(Noisy(), batch_sampler=Reshuffling(), **more),
    "no batches": lambda **more: DataLoader(Noisy(), batch_size=None, shuffle=True, **more),
    "subclass": lambda **more: Transforming(Noisy(), batch_size=3, shuffle=True, **more),
    "unsized": lambda **more: DataLoader(Noisy(), batch_size=3, sampler=Unsized(COUNT), **more),
}


def over(make_loader: Callable[[], DataLoader[Any]], *, evaluate: bool = False, epochs: int = 3) -> Callable[[], Any]:
    """Train over a loader: every number it gives ends up in what is reported."""

    def train() -> float:
        loader = make_loader()
        other = make_loader()
        run = sweeper.resume()
        for _ in run.epochs(epochs):
            for batch in run.batches(loader):
                seen = float(batch.double().sum()) + random.random() + float(np.random.rand()) + float(torch.rand(()))
                run.state["seen"] = run.state.get("seen", 0.0) * 0.9 + seen
                run.report(run.state["seen"])
                if evaluate and run.batch == 1:
                    for item in run.batches(other):
                        run.state["seen"] += float(item.double().mean())
            if evaluate:
                for item in run.eval(other):
                    run.state["seen"] += float(item.double().mean())
        return run.state["seen"]

    return train


@pytest.mark.parametrize("kind", Loaders)
def test_every_loader_resumes_exactly_in_the_main_process(kind: str) -> None:
    saving = assert_resumes_exactly(lambda: over(Loaders[kind]))
    assert all(save.facts.exact for save in saving.saves)


@pytest.mark.parametrize("kind", ["shuffle", "generator", "lazy", "subclass"])
def test_evaluation_in_the_body_and_after_it_changes_nothing(kind: str) -> None:
    """Side loops yield everything, wherever the resume was."""
    assert_resumes_exactly(lambda: over(Loaders[kind], evaluate=True))


@pytest.mark.parametrize("persistent", [False, True], ids=["new workers", "persistent"])
@pytest.mark.parametrize("kind", WithWorkers)
@pytest.mark.slow
def test_every_loader_resumes_exactly_with_workers(kind: str, persistent: bool) -> None:
    make = lambda: WithWorkers[kind](num_workers=2, persistent_workers=persistent)  # noqa: E731
    assert_resumes_exactly(lambda: over(make, epochs=2), every=2)


def test_a_loader_with_workers_resumes_exactly() -> None:
    make = lambda: WithWorkers["shuffle"](num_workers=2, persistent_workers=True)  # noqa: E731
    assert_resumes_exactly(lambda: over(make, epochs=2), every=3)


@pytest.mark.slow
def test_the_number_of_workers_does_not_change_what_a_batch_holds() -> None:
    values = {
        LoneWorker().run(over(lambda n=n: WithWorkers["lazy"](num_workers=n), epochs=1)).value  # type: ignore[misc]
        for n in (1, 2)
    }
    assert len(values) == 1


def test_there_is_no_save_point_after_the_last_batch_of_a_loader_of_unknown_length() -> None:
    saving = LoneWorker(start=_eager()).run(over(Loaders["unsized"], epochs=2))
    assert [save.batch for save in saving.saves] == [1, 2, 3, 4, 0, 1, 2, 3, 4]


def test_an_epoch_end_is_saved_at_the_next_opening_when_the_loader_goes_on_from_epoch_to_epoch() -> None:
    plain = LoneWorker(start=_eager()).run(over(Loaders["shuffle"], epochs=2))
    keyed_ = LoneWorker(start=_eager()).run(over(Loaders["generator"], epochs=2))
    assert [save.batch for save in plain.saves] == [1, 2, 3, 4, None, 1, 2, 3, 4]
    assert [save.batch for save in keyed_.saves] == [1, 2, 3, 4, 0, 1, 2, 3, 4]


@pytest.mark.parametrize("kind", ["manual_seed", "set_epoch"])
def test_what_the_script_sets_at_the_top_of_an_epoch_is_not_undone(kind: str) -> None:
    """A generator seeded, or a sampler told the epoch, before each loop."""

    def make() -> Callable[[], Any]:
        def train() -> float:
            generator = torch.Generator()
            sampler = torch.utils.data.DistributedSampler(Noisy(), num_replicas=1, rank=0)
            loader = (
                DataLoader(Noisy(), batch_size=3, shuffle=True, generator=generator) if kind == "manual_seed"
                else DataLoader(Noisy(), batch_size=3, sampler=sampler)
            )  # fmt: skip
            run = sweeper.resume()
            for epoch in run.epochs(3):
                generator.manual_seed(epoch)
                sampler.set_epoch(epoch)
                for batch in run.batches(loader):
                    run.state["seen"] = run.state.get("seen", 0.0) * 0.9 + float(batch.double().sum())
                    run.report(run.state["seen"])
            return run.state["seen"]

        return train

    assert_resumes_exactly(make)


def test_a_sampler_that_hides_its_state_is_refused_by_name_and_may_be_taken_as_it_is() -> None:
    def train(exact: bool = True) -> float:
        loader = DataLoader(Noisy(), batch_size=3, sampler=Hidden(COUNT))
        run = sweeper.resume()
        for _ in run.epochs(3):
            for batch in run.batches(loader, exact=exact):
                run.report(float(batch.sum()))
        return 0.0

    saving = LoneWorker(start=_eager()).run(train)
    later = next(save for save in saving.saves if save.facts.epoch == 1 and save.batch == 2)
    with pytest.raises(StateMismatch, match="sampler Hidden keeps state; give it state_dict"):
        LoneWorker(restore=later).run(train)
    going_on = LoneWorker(start=_eager(), restore=later).run(lambda: train(exact=False))
    assert not going_on.saves[-1].facts.exact
    assert "keeps state" in going_on.saves[-1].facts.inexact_reasons[0]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("at", [0, 2])
def test_an_order_that_cannot_be_reproduced_is_refused_wherever_in_the_epoch(at: int, workers: int) -> None:
    """At the start of an epoch nothing has been handed out that could differ; the next batch does."""

    def train() -> float:
        loader = DataLoader(Noisy(), batch_sampler=TooLong(), num_workers=workers)
        run = sweeper.resume()
        for _ in run.epochs(3):
            for _ in run.batches(loader):
                pass
        return 0.0

    saving = LoneWorker(start=_eager()).run(train)
    later = next(save for save in saving.saves if save.facts.epoch == 1 and save.batch == at)
    with pytest.raises(StateMismatch, match="sampler TooLong keeps state; give it state_dict"):
        LoneWorker(restore=later).run(train)


def test_a_loader_that_drops_batches_has_no_save_points_among_them() -> None:
    saving = LoneWorker(start=_eager()).run(over(lambda: Filtering(Noisy(), batch_size=3, shuffle=True), epochs=2))
    assert [save.batch for save in saving.saves] == [None]
    assert_resumes_exactly(lambda: over(lambda: Filtering(Noisy(), batch_size=3, shuffle=True)))


def test_a_loader_whose_workers_finish_in_any_order_is_marked_not_exact() -> None:
    make = lambda: DataLoader(Noisy(), batch_size=3, num_workers=1, in_order=False)  # noqa: E731
    saving = LoneWorker(start=_eager()).run(over(make, epochs=1))
    assert [save.facts.exact for save in saving.saves] == [False] * 4
    assert "in_order=False" in saving.saves[0].facts.inexact_reasons[0]


def test_a_dataset_that_owns_generators_in_workers_is_marked_not_exact() -> None:
    make = lambda: DataLoader(OwnsGenerators(), batch_size=3, num_workers=1)  # noqa: E731
    saving = LoneWorker(start=_eager()).run(over(make, epochs=1))
    assert "a random generator that draws in loader workers" in saving.saves[0].facts.inexact_reasons[0]


def test_a_loop_knows_how_many_batches_remain() -> None:
    lengths: list[int] = []

    def train() -> None:
        loader = DataLoader(Noisy(), batch_size=3)
        run = sweeper.resume()
        for _ in run.epochs(2):
            loop = run.batches(loader)
            lengths.append(len(loop))
            lengths.extend(len(loop) for _ in loop)

    saving = LoneWorker(start=_eager()).run(train)
    assert lengths == [5, 4, 3, 2, 1, 0, 5, 4, 3, 2, 1, 0]
    lengths.clear()
    LoneWorker(restore=saving.saves[1]).run(train)
    assert lengths == [3, 2, 1, 0, 5, 4, 3, 2, 1, 0]


def test_the_view_leaves_the_users_loader_alone() -> None:
    loader = DataLoader(Noisy(), batch_size=3, shuffle=True, num_workers=1, persistent_workers=True)
    before = dict(loader.__dict__)
    LoneWorker().run(over(lambda: loader, epochs=2))
    assert loader.__dict__ == before


def test_a_plain_iterable_is_read_again_up_to_its_place() -> None:
    def train() -> float:
        run = sweeper.resume()
        for _ in run.epochs(2):
            for item in run.batches([1.0, 2.0, 4.0, 8.0]):
                run.state["sum"] = run.state.get("sum", 0.0) * 3 + item
                run.report(run.state["sum"])
        return run.state["sum"]

    assert_resumes_exactly(lambda: train)


def _eager() -> Any:
    from dataclasses import replace

    return replace(START, every_s=0.0)


def test_saves_before_the_first_batch_hold_the_loops_start() -> None:
    """The save taken at an opening resumes to the very first batch."""

    def opened(save: Save) -> bool:
        return save.batch == 0

    assert_resumes_exactly(lambda: over(Loaders["generator"]), at=opened)
