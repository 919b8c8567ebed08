"""Where a sweep cannot be begun, it is said at once and nothing is written (CLEAR)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plain.desk import FILE, Desk

pytestmark = pytest.mark.slow
PARALLEL = """
import ctypes
import importlib.util
import pathlib

library = next(pathlib.Path(importlib.util.find_spec("sklearn").origin).parents[1].glob("scikit_learn.libs/libgomp*"))
ctypes.CDLL(str(library)).GOMP_parallel(ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p), None, 2, 0)
"""
"""After this, a forked child would hang in its first parallel region; as a script that computes when it is imported."""


def test_a_function_that_cannot_be_imported_is_refused_where_forking_is_impossible(desk: Desk) -> None:
    desk.script(prolog=PARALLEL, objective="lambda config: config['x']")
    ended = desk.sweep()
    assert ended.status == 1
    assert "UserError" in ended.stderr
    assert "at the top of a module" in ended.stderr


def test_an_importable_function_trains_in_fresh_interpreters_where_forking_is_impossible(desk: Desk) -> None:
    desk.script(prolog=f"{PARALLEL}def own(config):\n    return training_code.train(config)\n", objective="own")
    ended = desk.sweep(n_trials=2)
    assert ended.status == 0, ended.printed
    assert "fresh interpreters" in ended.stderr
    assert len(desk.counted()) == 2


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (('if __name__ == "__main__":', "if True:"), "put the call below"),
        (("def own", 'if __name__ != "__main__":\n    import no_such_package\ndef own'), "no_such_package"),
    ],
    ids=["a call without a guard", "a module that cannot be imported"],
)
def test_what_keeps_trials_from_being_started_afresh_is_told_before_any_exists(
    desk: Desk, change: tuple[str, str], told: str
) -> None:
    """CLEAR."""
    desk.script(prolog=f"{PARALLEL}def own(config):\n    return 1.0\n", objective="own")
    path = desk.root / "search.py"
    path.write_text(path.read_text().replace(*change))
    ended = desk.sweep(n_trials=1)
    assert ended.status == 1
    assert "trials need fresh interpreters" in ended.stderr
    assert told in ended.stderr
    assert desk.counted() == {}
    assert "attempt" not in ended.stderr


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("training_code.inside", "inside a trial"),
        ("training_code.beside", "beside the main thread"),
    ],
)
def test_a_sweep_begins_on_the_main_thread_of_a_command(desk: Desk, how: str, told: str) -> None:
    desk.write(
        "training_code.py",
        (desk.root / "training_code.py").read_text() + "\nimport threading\n"
        "def again():\n    sweeper.sweep(train, {'x': [1]}, name='inner')\n"
        "def inside(config):\n    again()\n"
        "def beside(config):\n    return 1.0\n",
    )
    if how.endswith("beside"):
        desk.write(
            "search.py",
            "import threading, training_code\n"
            "if __name__ == '__main__':\n"
            "    threading.excepthook = lambda given: print(given.exc_value)\n"
            "    one = threading.Thread(target=training_code.again)\n"
            "    one.start()\n    one.join()\n",
        )
        assert told in desk.run("python", "search.py").printed
    else:
        desk.script(objective=how)
        assert told in desk.sweep(n_trials=1, retry={"max_crashes": 1}).stderr


def test_two_sweeps_do_not_share_a_directory(desk: Desk) -> None:
    desk.script()
    assert desk.sweep(n_trials=1, directory=str(desk.root / "out")).status == 0
    ended = desk.sweep(name="other", n_trials=1, directory=str(desk.root / "out"))
    assert ended.status == 1
    assert "belongs to the sweep 'mine'" in ended.stderr


@pytest.mark.parametrize(
    ("text", "arguments", "told"),
    [
        (None, [], "cannot be read"),
        (FILE + "n_trial: 3\n", [], "did you mean n_trials?"),
        (FILE.replace("training_code:train", "training_code:trains"), [], "has no trains"),
        (FILE + "store: 'nowhere://x'\n", [], "nowhere"),
        (FILE, ["--sweep", "other"], "'other' was asked for"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_message_and_status_2(
    desk: Desk, text: str | None, arguments: list[str], told: str
) -> None:
    if text is not None:
        desk.write("sweep.yaml", text)
    command: list[Any] = ["sweeper", "worker", *arguments, "--"] if arguments else []
    ended = desk.run(*command, "sweeper", "run", "sweep.yaml")
    assert ended.status == 2, ended.printed
    assert ended.stderr.startswith("sweeper: ")
    assert told in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (desk.root / "counter.txt").exists()
