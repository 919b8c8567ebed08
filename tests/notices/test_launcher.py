"""The process that started this one is gone, and nobody passed the signal on (PR-04); with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

WATCH = """
import select, sys
from sweeper.notices.launcher import LauncherGone
source = LauncherGone.watch()
early = source.poll(0.0) if source else []
print("watching" if source and early == [] else "not watching", flush=True)
if source:
    select.select([source], [], [], 30)
    print(*[f"{n.source}: {n.reason}" for n in source.poll(0.0)], source.poll(0.0), source.spent, flush=True)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "watch.py"
    path.write_text(WATCH)
    return path


def _shell(line: str, script: Path) -> subprocess.Popen[str]:
    environ = os.environ | {"PYTHON": sys.executable, "SCRIPT": str(script)}
    return subprocess.Popen(
        ["/bin/sh", "-c", line], env=environ, stdout=subprocess.PIPE, text=True, start_new_session=True
    )


def test_a_script_that_dies_of_a_signal_is_noticed_by_what_it_runs(script: Path) -> None:
    shell = _shell('"$PYTHON" "$SCRIPT"; true', script)
    assert shell.stdout is not None
    with shell.stdout:
        assert shell.stdout.readline() == "watching\n"
        shell.send_signal(signal.SIGTERM)
        assert shell.wait(10) == -signal.SIGTERM
        assert shell.stdout.readline() == "launcher: the process that started this one is gone [] True\n"


@pytest.mark.parametrize(
    "line",
    [
        'nohup "$PYTHON" "$SCRIPT" 2>/dev/null; true',
        '"$PYTHON" "$SCRIPT" & wait',
        '"$PYTHON" -c "import os; os.setpgid(0, 0); exec(open(os.environ[\'SCRIPT\']).read())"; true',
        'setsid "$PYTHON" "$SCRIPT"; true',
    ],
    ids=["nohup", "background of a script", "job of an interactive shell", "session of its own"],
)
def test_what_is_meant_to_outlive_its_parent_does(line: str, script: Path) -> None:
    """Logging out ends nobody's sweep."""
    shell = _shell(line, script)
    printed, _ = shell.communicate(timeout=30)
    assert printed == "not watching\n"
