"""Searches on a database with Optuna's tables, `sweeper dashboard` serving it, and a headless Chromium that looks."""

from __future__ import annotations

import math
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweeper.ledger.database import Database
from sweeper.ledger.mirror_access import MirrorAccess
from sweeper.model.search import Constraint, Direction
from sweeper.model.space import Choices, FloatRange, IntRange
from sweeper.search.mirror_study import open_storage
from tests.conftest import _database
from tests.dashboard.api import Api
from tests.dashboard.browser import CHROMEDRIVER, CHROMIUM, Browser
from tests.mirror.conftest import mirror_url as mirror_url
from tests.mirror.conftest import world as world
from tests.mirror.world import SPACE, SearchWorld


@pytest.fixture(scope="module")
def searches(postgres_server: str, mirror_template: str) -> Iterator[str]:
    """URL of a ledger with five mirrored searches: finished, running, one of two objectives, nets, none yet."""
    for url in _database(postgres_server, template=mirror_template):
        with Database(url, "test") as database:
            for build in (_finished, _running, _two_objectives, _nets, _empty):
                world = build(database, url)
                world.rebuild()
                world.close()
        yield url


def _finished(database: Database, url: str) -> SearchWorld:
    world = SearchWorld.build(database, url, name="finished", constraints=(Constraint(metric="ms", at_most=20.0),))
    dice = random.Random(1)
    for number in range(24):
        lr = 10 ** dice.uniform(-5, 0)
        grant = world.start(lr=lr, layers=1 + number % 8, act=("relu", "tanh", None)[number % 3])
        world.report(grant, *(abs(math.log10(lr) + 3) + 1 / (1 + at) for at in range(5)), ms=10.0 + number % 3 * 6)
        if number % 5 == 4:
            world.prune(grant)
        elif number == 7:
            world.fail(grant, "Traceback\nValueError: </script><b>no</b>")
        else:
            world.complete(grant, math.inf if number == 3 else abs(math.log10(lr) + 3) + number % 8)
    return world


def _running(database: Database, url: str) -> SearchWorld:
    world = SearchWorld.build(database, url, name="running")
    for number in range(4):
        world.complete(world.start(lr=0.1 + number / 10, layers=1, act=None), float(number))
    for number in range(2):
        world.report(world.start(lr=0.01 + number / 100, layers=2, act="relu"), 0.5, 0.4, math.nan)
    return world


def _two_objectives(database: Database, url: str) -> SearchWorld:
    directions = (Direction.MINIMIZE, Direction.MAXIMIZE)
    world = SearchWorld.build(database, url, name="two objectives", directions=directions)
    for number in range(8):
        world.complete(world.start(lr=0.1 + number / 10, layers=1 + number, act="tanh"), [number / 8, number % 3])
    return world


def _nets(database: Database, url: str) -> SearchWorld:
    space = {
        "net": Choices(values=([8, 8], [16], {"wide": [64, None]})),
        "ones": Choices(values=(1, 1.0, "1")),
        "flag": Choices(values=(True, False)),
        "maybe": Choices(values=(None, "x")),
        "single": Choices(values=("only",)),
        "width": IntRange(low=8, high=64, step=8),
        "x": FloatRange(low=0.0, high=1.0),
    }
    world = SearchWorld.build(database, url, name="nets", space=space)
    for number in range(9):
        chosen = {
            name: dimension.values[number % len(dimension.values)]
            for name, dimension in space.items()
            if isinstance(dimension, Choices)
        }
        world.complete(world.start(**chosen, width=8 * (1 + number % 8), x=number / 9), (number * 7 % 5) / 5)
    return world


def _empty(database: Database, url: str) -> SearchWorld:
    return SearchWorld.build(database, url, name="empty", space=SPACE)


@pytest.fixture(scope="module")
def dashboard(searches: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a real `sweeper dashboard` on them."""
    yield from _served(searches, tmp_path_factory.mktemp("home"))


@pytest.fixture
def api(world: SearchWorld) -> Iterator[Api]:
    """The dashboard's application on the test's own database, without a socket."""
    access = MirrorAccess(world.url, bound_s=120.0)
    storage = open_storage(access)
    yield Api(storage)
    storage.remove_session()
    access.close()


@pytest.fixture
def served(mirror_url: str, tmp_path: Path) -> Iterator[str]:
    """Address of a real `sweeper dashboard` on the test's own database."""
    yield from _served(mirror_url, tmp_path)


def _served(url: str, home: Path) -> Iterator[str]:
    environment = os.environ | {"SWEEPER_DATABASE_URL": url, "SWEEPER_HOME": str(home)}
    command = [str(Path(sys.executable).with_name("sweeper")), "dashboard", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        yield process.stdout.readline().split()[0]
        process.terminate()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A headless Chromium."""
    for program in (CHROMIUM, CHROMEDRIVER):
        if shutil.which(program) is None:
            pytest.fail(f"{program} is not installed (`make test` installs it)")
    with Browser.open(tmp_path_factory.mktemp("chromium")) as found:
        yield found
