"""The docs are current: commands, settings, links and examples."""

from __future__ import annotations

import ast
import dataclasses
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from hydra_plugins.sweeper_plugin.launcher import SweeperLauncherConf
from hydra_plugins.sweeper_plugin.sweeper import SweeperSweeperConf
from sweeper.cli.app import app
from sweeper.hydra.search_nodes import GROUPS

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def command_paths(command: Any = None, prefix: tuple[str, ...] = ("sweeper",)) -> Iterator[tuple[tuple[str, ...], Any]]:
    command = command or typer.main.get_command(app)
    if hasattr(command, "commands"):
        for name, below in command.commands.items():
            yield from command_paths(below, (*prefix, name))
    else:
        yield prefix, command


def settings(node: type[Any] = SweeperLauncherConf, prefix: str = "") -> Iterator[str]:
    for field in dataclasses.fields(node):
        if field.name.startswith("_") or field.name == "defaults":
            continue
        kind = field.default_factory if field.default_factory is not dataclasses.MISSING else None
        if dataclasses.is_dataclass(kind):
            yield from settings(kind, f"{prefix}{field.name}.")  # type: ignore[arg-type]
        else:
            yield f"{prefix}{field.name}"


def blocks(language: str) -> list[Any]:
    return [
        pytest.param(re.sub(rf"^{indent}", "", body, flags=re.MULTILINE), id=f"{page.name}-{count}")
        for page in PAGES
        for count, (indent, kind, body) in enumerate(BLOCK.findall(page.read_text()))
        if kind == language
    ]


@pytest.mark.parametrize(("path", "command"), [pytest.param(p, c, id=" ".join(p)) for p, c in command_paths()])
def test_every_command_and_option_is_in_the_reference(path: tuple[str, ...], command: Any) -> None:
    rows = [line for line in (ROOT / "docs/reference-cli.md").read_text().splitlines() if line.startswith("|")]
    mine = [row for row in rows if re.match(rf"\| `{re.escape(' '.join(path))}[ `]", row)]
    assert len(mine) == 1, f"{' '.join(path)} needs one row"
    for parameter in command.params:
        for option in parameter.opts:
            if option.startswith("--") and option != "--help":
                assert option in mine[0], f"{option} is not in the row of {' '.join(path)}"


@pytest.mark.parametrize("setting", sorted(settings()))
def test_every_launcher_setting_is_in_the_reference(setting: str) -> None:
    text = (ROOT / "docs/reference-launcher.md").read_text()
    assert re.search(rf"^\| `{re.escape(setting)}`", text, re.MULTILINE), f"hydra.launcher.{setting}"


@pytest.mark.parametrize("setting", sorted(settings(SweeperSweeperConf)))
def test_every_search_setting_is_in_the_reference(setting: str) -> None:
    text = (ROOT / "docs/reference-search.md").read_text()
    assert re.search(rf"^\| `{re.escape(setting)}`", text, re.MULTILINE), f"hydra.sweeper.{setting}"


@pytest.mark.parametrize("group", GROUPS)
def test_every_sampler_pruner_and_scheduler_is_in_the_reference(group: str) -> None:
    text = (ROOT / "docs/reference-search.md").read_text()
    assert [name for name in GROUPS[group] if f"`{name}`" not in text] == []


def test_every_setting_that_the_docs_name_exists() -> None:
    known = set(settings())
    known |= {name.rpartition(".")[0] for name in known}
    for page in PAGES:
        for name in re.findall(r"hydra\.launcher\.([a-z_.]*[a-z_])", page.read_text()):
            assert name in known, f"{page.name} names hydra.launcher.{name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_of_this_repository(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        assert not re.match(r"[a-z]+:", target), f"{target} leads outside"
        assert (page.parent / target.partition("#")[0]).resolve().exists(), f"{page.name} links to {target}"


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, todo = set(), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        todo += [(page.parent / target.partition("#")[0]).resolve() for target in LINK.findall(page.read_text())]
    assert [str(page.relative_to(ROOT)) for page in PAGES if page not in reached] == []


@pytest.mark.parametrize("code", blocks("python"))
def test_python_examples_compile(code: str) -> None:
    ast.parse(code)


@pytest.mark.parametrize("code", blocks("console"))
def test_commands_in_examples_exist(code: str) -> None:
    known = {path for path, _ in command_paths()}
    for line in code.splitlines():
        if not line.startswith("$ "):
            continue
        words = shlex.split(line[2:])
        if words[0] == "sweeper":
            assert tuple(words[:2]) in known or tuple(words[:3]) in known, line
        elif words[0] == "make":
            assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), line
        else:
            assert words[0] in ("python", "export", "pip"), line


@pytest.mark.parametrize("code", blocks("python"))
def test_examples_use_only_what_the_package_offers(code: str) -> None:
    import sweeper

    names = {
        node.attr
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "sweeper"
    }
    assert names <= set(sweeper.__all__)
    uses = {
        node.attr
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "run"
    }
    assert all(hasattr(sweeper.Run, name) for name in uses)


def test_the_states_page_is_current() -> None:
    """The diagram comes from the transition table."""
    script = ROOT / "scripts/states_diagram.py"
    done = subprocess.run([sys.executable, str(script), "--check"], check=False, cwd=ROOT)
    assert done.returncode == 0, "run python scripts/states_diagram.py"
    page = (ROOT / "docs/design/states.md").read_text()
    assert "stateDiagram-v2" in page


def test_make_targets_have_their_help() -> None:
    done = subprocess.run(["make", "help"], capture_output=True, text=True, check=True, cwd=ROOT)
    for target in ("setup", "check", "test", "demo", "bench", "chaos"):
        assert f"make {target}" in done.stdout


@pytest.mark.slow
def test_the_examples_of_the_quickstart_run(tmp_path: Path, fresh_database: str) -> None:
    """The plain script, and the one that resumes: as a single run, proven by the check, and as a sweep."""
    plain, resuming = [block.values[0] for block in blocks("python") if str(block.id).startswith("quickstart")]
    (config,) = [block.values[0] for block in blocks("yaml") if str(block.id).startswith("quickstart")]
    environ = os.environ | {"SWEEPER_HOME": str(tmp_path / "home"), "SWEEPER_DATABASE_URL": fresh_database}

    def run(*command: str) -> str:
        done = subprocess.run(command, check=False, cwd=tmp_path, env=environ, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    (tmp_path / "train.py").write_text(plain)
    run(sys.executable, "train.py", "+x=2")
    (tmp_path / "config.yaml").write_text(config)
    (tmp_path / "train.py").write_text(resuming)
    run(sys.executable, "train.py", "epochs=2")
    assert "exact:" in run(str(Path(sys.executable).with_name("sweeper")), "check", "train.py", "lr=0.3", "epochs=2")
    assert "trial 1" in run(sys.executable, "train.py", "-m", "lr=0.1,0.3", "epochs=2")
