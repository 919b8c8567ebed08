"""A real Hydra application for tests that compose: configs on disk, groups, a structured schema."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_automatic_config_search_path
from hydra.types import RunMode
from omegaconf import DictConfig

FILES = {
    "config.yaml": """
defaults:
  - _self_
  - server: apache
  - optional extra: null
lr: 0.1
name: x
nested: {a: 1, b: [1, 2]}
ref: ${lr}
stamp: ${now:%f}
""",
    "server/apache.yaml": "kind: apache\nport: 80\n",
    "server/nginx.yaml": "kind: nginx\nport: 81\n",
    "server/plain.yaml": "kind: plain\n",
    "extra/more.yaml": "# @package _global_\nnested: {a: 5, c: 6}\n",
}


class Application:
    """An application whose configs lie in `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name, text in FILES.items():
            path = root / "conf" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        script = root / "app.py"
        script.write_text("")
        self.hydra = Hydra.create_main_hydra2("app", create_automatic_config_search_path(str(script), None, "conf"))

    def master(self, *overrides: str) -> DictConfig:
        """Compose the multirun config."""
        return self.hydra.compose_config(
            config_name="config", overrides=list(overrides), run_mode=RunMode.MULTIRUN, with_log_configuration=False
        )

    def in_full(self, master: DictConfig, overrides: Sequence[str]) -> DictConfig:
        """Compose a job as Hydra does."""
        return self.hydra.config_loader.load_sweep_config(master, list(overrides))
