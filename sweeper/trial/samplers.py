"""What a loader's samplers and generators carry from loop to loop, found by looking through its attributes."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final

from sweeper.trial import carried
from sweeper.trial.modules import is_module
from sweeper.trial.rng import generator_state, is_generator, set_generator_state
from sweeper.trial.tensors import is_tensor, torch_if_loaded

_MAX_DEPTH: Final = 6
_MAX_OBJECTS: Final = 4000
_MAX_ITEMS: Final = 64
_LEAVES: Final = (str, bytes, int, float, complex, bool, type(None), type, ModuleType)


class OwnState:
    """What goes on from loop to loop under one loader: random generators, and samplers with state. Keeps no loader."""

    def __init__(self, loader: Any, *, known: Container[int]) -> None:
        self.generators = reachable_generators(loader, known=known)
        self._chain = sampler_chain(loader)

    def __bool__(self) -> bool:
        return bool(self.generators or self._chain)

    def samplers(self) -> dict[str, Any]:
        """State of the samplers alone."""
        return sampler_states(self._chain)

    def put_back_samplers(self, states: Mapping[str, Any]) -> None:
        """Put back what `samplers` gave."""
        put_back_samplers(self._chain, states)

    def capture(self) -> dict[str, Any]:
        """State of everything."""
        generators = {path: generator_state(generator) for path, generator in self.generators.items()}
        return {"generators": generators, "samplers": self.samplers()}

    def put_back(self, state: Mapping[str, Any]) -> None:
        """Put back what `capture` gave."""
        for path, generator in self.generators.items():
            if path in state["generators"]:
                set_generator_state(generator, state["generators"][path])
        self.put_back_samplers(state["samplers"])


def torch_sampler_types() -> tuple[type, ...]:
    """Samplers of torch that draw at their start only, or from a generator of their own."""
    data = torch_if_loaded().utils.data
    return (
        data.SequentialSampler, data.RandomSampler, data.SubsetRandomSampler, data.WeightedRandomSampler,
        data.DistributedSampler,
    )  # fmt: skip


def draws_like_torch(sampler: Any) -> bool:
    """Whether a sampler's draws do not depend on when it is asked for its next index."""
    if type(sampler) is torch_if_loaded().utils.data.BatchSampler:
        return draws_like_torch(sampler.sampler)
    return type(sampler) in (*torch_sampler_types(), list, tuple, range)


def sampler_chain(loader: Any) -> dict[str, Any]:
    """Give the samplers under a loader that keep state of their own, by path."""
    data = torch_if_loaded().utils.data
    chain: dict[str, Any] = {}
    todo = [("batch_sampler", loader.batch_sampler), ("sampler", loader.sampler)]
    seen: set[int] = set()
    while todo and len(seen) < _MAX_ITEMS:
        path, sampler = todo.pop(0)
        if sampler is None or id(sampler) in seen:
            continue
        seen.add(id(sampler))
        stateless = type(sampler) in (data.BatchSampler, list, tuple, range, *torch_sampler_types()[:4])
        if not stateless:
            chain[path] = sampler
        todo += [
            (f"{path}.{name}", value)
            for name, value in getattr(sampler, "__dict__", {}).items()
            if isinstance(value, data.Sampler) or name in ("sampler", "batch_sampler")
        ]
    return chain


def sampler_states(chain: Mapping[str, Any]) -> dict[str, Any]:
    """Capture samplers: their `state_dict` where they have one, else what can travel of their attributes."""
    states: dict[str, Any] = {}
    for path, sampler in chain.items():
        if _has_state_dict(sampler):
            states[path] = {"state_dict": sampler.state_dict()}
        else:
            states[path] = {"attributes": carried.attributes(sampler)}
    return states


def put_back_samplers(chain: Mapping[str, Any], states: Mapping[str, Any]) -> None:
    """Put back what `sampler_states` captured."""
    for path, sampler in chain.items():
        state = states.get(path, {})
        if "state_dict" in state and _has_state_dict(sampler):
            sampler.load_state_dict(state["state_dict"])
        carried.put_back(sampler, state.get("attributes", {}))


def reachable_generators(loader: Any, *, known: Container[int]) -> dict[str, Any]:
    """Give the random generators that a loader's attributes lead to, by path; those whose `id` is known are left out.

    Bounded in depth and number: datasets can be large graphs of objects.
    """
    found: dict[str, Any] = {}
    seen: set[int] = set()
    todo: list[tuple[str, Any, int]] = [(name, value, 0) for name, value in _parts(loader)]
    while todo and len(seen) < _MAX_OBJECTS:
        path, value, depth = todo.pop(0)
        if id(value) in seen or isinstance(value, _LEAVES) or is_tensor(value) or is_module(value):
            continue
        seen.add(id(value))
        if is_generator(value):
            if id(value) not in known:
                found[path] = value
        elif depth < _MAX_DEPTH:
            todo += [(f"{path}.{name}", part, depth + 1) for name, part in _parts(value)]
    return found


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from ((str(key), item) for key, item in list(value.items())[:_MAX_ITEMS])
    elif isinstance(value, (list, tuple)):
        yield from ((str(number), item) for number, item in enumerate(value[:_MAX_ITEMS]))
    elif isinstance(value, MethodType):
        yield "self", value.__self__
    elif isinstance(value, FunctionType):
        for number, cell in enumerate(value.__closure__ or ()):
            try:
                yield f"closure{number}", cell.cell_contents
            except ValueError:  # not filled yet
                continue
    else:
        yield from getattr(value, "__dict__", {}).items()


def _has_state_dict(sampler: Any) -> bool:
    return callable(getattr(sampler, "state_dict", None)) and callable(getattr(sampler, "load_state_dict", None))
