"""`hydra/sweeper=sweeper`: the settings nodes and the door to `sweeper.hydra.searching`, which is imported at use.

No `from __future__ import annotations` here: see `launcher.py` beside this file.
"""

from dataclasses import dataclass, field
from typing import Any, Optional

from hydra.core.config_store import ConfigStore
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import MISSING, DictConfig, OmegaConf

from sweeper.hydra.search_nodes import GROUPS


def _defaults() -> list[Any]:  # Any: Hydra's own forms
    return [
        "_self_",
        {"sampler": "tpe"},
        {"pruner": "none"},
        {"scheduler": "none"},
        # What searches also makes trials durable: Hydra's own launcher is replaced, another one is refused by name.
        {"override /hydra/launcher@_global_.hydra.launcher": "sweeper"},
    ]


@dataclass
class StopConf:
    """When a search ends before its numbers are used up."""

    value: Optional[float] = None  # noqa: UP045 OmegaConf reads the annotation
    timeout_s: Optional[float] = None  # noqa: UP045


@dataclass
class SweeperSweeperConf:
    """`hydra.sweeper` as it is for this sweeper; docs/reference-search.md explains each. Any: it has several forms."""

    defaults: list[Any] = field(default_factory=_defaults)
    _target_: str = "hydra_plugins.sweeper_plugin.sweeper.SweeperSweeper"
    _recursive_: bool = False  # samplers are made for each proposal, and not by Hydra
    sampler: Any = MISSING
    pruner: Any = MISSING
    scheduler: Any = MISSING
    direction: Any = "minimize"
    n_trials: int = 20
    n_jobs: Optional[int] = None  # noqa: UP045
    study_name: Optional[str] = None  # noqa: UP045
    storage: Any = None
    max_failure_rate: float = 1.0
    params: Any = field(default_factory=dict)
    search_space: Any = None
    custom_search_space: Optional[str] = None  # noqa: UP045
    deterministic: Optional[bool] = None  # noqa: UP045
    max_batch_size: Optional[int] = None  # noqa: UP045
    enqueue: Any = field(default_factory=list)
    constraints: Any = field(default_factory=list)
    stop: StopConf = field(default_factory=StopConf)


def _store_nodes() -> None:
    """Store the nodes, but none that the Optuna plugin has stored already: its own sweeper reads only those."""
    store = ConfigStore.instance()
    node = OmegaConf.structured(SweeperSweeperConf)
    # Hydra closes every mapping; this one is there to be added to, with or without a `+`.
    OmegaConf.set_struct(node.params, False)
    store.store(group="hydra/sweeper", name="sweeper", node=node, provider="sweeper")
    known = store.repo.get("hydra", {}).get("sweeper", {})
    for group, nodes in GROUPS.items():
        for name, found in nodes.items():
            if f"{name}.yaml" not in known.get(group, {}):
                store.store(group=f"hydra/sweeper/{group}", name=name, node=dict(found), provider="sweeper")


_store_nodes()


class SweeperSweeper(Sweeper):
    """Hydra's side of the search; the work is done in `sweeper.hydra.searching`."""

    def __init__(self, **_: Any) -> None:  # Any: the node's values, read again from the config in `setup`
        self._search: Any = None  # Any: imported at use

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Take over if this process is a worker or child, else prepare the search; bad input leaves with 2."""
        from sweeper.hydra.searching import prepare_search

        self._search = prepare_search(hydra_context, task_function, config)

    def sweep(self, arguments: list[str]) -> Any:  # Any: as in Hydra; batches of JobReturn
        """Search; one result for each number, in batches."""
        return self._search(arguments)
