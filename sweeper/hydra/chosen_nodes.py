"""The sampler, pruner and scheduler that a config chose: by short name, by group, or written out in full."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from omegaconf import DictConfig

from sweeper.errors import UserError
from sweeper.hydra.search_nodes import GROUPS, Node
from sweeper.model.trial import Json

PREFIX: Final = "hydra.sweeper."


def chosen_node(config: DictConfig, group: str, node: object) -> dict[str, Json] | None:
    """Give one of the three nodes with all that was set on it; None for an empty one.

    Args:
        config: the multirun config, which knows what the group chose.
        group: sampler, pruner or scheduler.
        node: `hydra.sweeper.<group>` as plain containers.

    Raises:
        UserError: nothing of that name, or a value that is still missing.
    """
    setting, known = f"{PREFIX}{group}", GROUPS[group]
    chosen = known.get(str(config.hydra.runtime.choices.get(f"hydra/sweeper/{group}")), {})
    if isinstance(node, str) and node in known:
        node = chosen = known[node]
    elif isinstance(node, str) and "." in node and group != "scheduler":
        node = {"_target_": node}
    if node is None or node == {}:
        return None
    if not isinstance(node, Mapping):
        raise UserError(f"{setting}={node!r:.80} is not known", remedy=f"choose one of: {', '.join(known)}")
    _check_sort(setting, group, node)
    for key, value in node.items():
        if value == "???":
            raise UserError(f"{setting}.{key} has no value (???)", remedy=f"set it: {setting}.{key}=…")
    kept = _without_leftovers(node, chosen)
    return {str(key): value for key, value in kept.items() if value is not None and key != "_partial_"}


def without_seeds(node: Any) -> Any:  # Any: a node, or what lies in it
    """Leave every seed out of a node: each is derived from the sweep's own."""
    match node:
        case dict():
            return {key: without_seeds(value) for key, value in node.items() if key != "seed"}
        case list():
            return [without_seeds(value) for value in node]
        case _:
            return node


def _without_leftovers(node: Mapping[Any, Any], chosen: Node) -> Mapping[Any, Any]:  # Any: YAML
    """Where only the class was replaced, the rest of the group's arguments was not written for it."""
    if node.get("_target_") == chosen.get("_target_"):
        return node
    return {key: value for key, value in node.items() if key not in chosen or chosen[key] != value}


def _check_sort(setting: str, group: str, node: Mapping[Any, Any]) -> None:  # Any: YAML
    key = "kind" if group == "scheduler" else "_target_"
    if "motpe" in str(node.get("_target_")):
        raise UserError(
            f"{setting}: Optuna has no MOTPE sampler any more",
            remedy="hydra/sweeper/sampler=tpe handles several objectives",
        )
    if not isinstance(node.get(key), str):
        raise UserError(f"{setting} has no {key}", remedy=f"choose one of: {', '.join(GROUPS[group])}")
