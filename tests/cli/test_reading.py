"""Commands that look, on a real ledger."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sweeper.ledger.commands import cancel_sweep
from tests.cli.conftest import Command, Sweeping

pytestmark = pytest.mark.usefixtures("sweeping")

ATTEMPT_FIELDS = {
    "fence",
    "outcome",
    "reason",
    "first_step",
    "last_step",
    "worker",
    "exit_code",
    "started_at",
    "ended_at",
}


def listing(command: Command) -> list[dict[str, Any]]:
    status, out, _ = command("trials", "digits", "--json")
    assert status == 0
    trials: list[dict[str, Any]] = json.loads(out)
    return trials


def test_trials_as_json_have_the_promised_fields_and_exact_values(command: Command) -> None:
    first, failed, running, pending = listing(command)
    assert [trial["number"] for trial in (first, failed, running, pending)] == [0, 1, 2, 3]
    assert [trial["state"] for trial in (first, failed, running, pending)] == [
        "completed",
        "failed",
        "running",
        "pending",
    ]
    assert first["values"] == [0.125]
    assert failed["values"] is running["values"] is pending["values"] is None
    assert failed["error"].startswith("ValueError: loss is nan")
    assert first["error"] is None
    assert (running["checkpoint"]["step"], running["checkpoint"]["bytes"]) == (20, 2048)
    assert running["checkpoint"]["key"].endswith("/1-abc/1/manifest.json")
    assert pending["checkpoint"] is None
    assert running["step"] == 33


def test_trials_as_json_keep_the_types_of_parameters(command: Command) -> None:
    """TRUTH: "on" and true, 1 and 1.0 stay apart."""
    params = [trial["params"] for trial in listing(command)]
    assert params == [
        {"lr": 0.1, "amp": "on"},
        {"lr": 0.1, "amp": True},
        {"lr": 1, "amp": False},
        {"lr": 1.0, "amp": None},
    ]
    assert [type(each["lr"]) for each in params] == [float, float, int, float]


def test_attempts_tell_what_each_worker_did(command: Command) -> None:
    evicted, completed = listing(command)[0]["attempts"]
    assert set(evicted) >= ATTEMPT_FIELDS
    assert (evicted["outcome"], evicted["reason"], evicted["exit_code"]) == ("evicted", "SIGTERM", 75)
    assert (evicted["last_step"], completed["first_step"], completed["last_step"]) == (60, 50, 100)
    assert completed["fence"] == evicted["fence"] + 1
    (unfinished,) = listing(command)[2]["attempts"]
    assert unfinished["outcome"] is unfinished["ended_at"] is None


def test_the_table_of_trials_shows_types_and_is_not_cut_without_a_terminal(command: Command) -> None:
    status, out, _ = command("trials", "digits")
    assert status == 0
    rows = out.splitlines()
    assert 'lr=0.1 amp="on"' in rows[1]
    assert "lr=0.1 amp=true" in rows[2]
    assert "lr=1 amp=false" in rows[3]
    assert "lr=1.0 amp=null" in rows[4]
    assert "0.125" in rows[1]
    assert "…" not in out


def test_what_nobody_asks_for_any_more_is_shown_as_not_requested(command: Command, without_asker: Sweeping) -> None:
    assert "pending, not requested" in command("trials", "digits")[1]
    assert "not requested" in command("status", "digits")[1]
    assert [trial["requested"] for trial in listing(command)][3] is False


def test_status_lists_sweeps_and_counts_every_state(command: Command) -> None:
    status, out, _ = command("status", "--json")
    (sweep,) = json.loads(out)
    assert status == 0
    assert (sweep["name"], sweep["state"]) == ("digits", "active")
    assert sweep["counts"] == {
        "pending": 1,
        "running": 1,
        "paused": 0,
        "completed": 1,
        "pruned": 0,
        "failed": 1,
        "cancelled": 0,
    }
    assert sweep["last_activity_at"]
    table = command("status")[1]
    assert "digits" in table
    assert "1 failed" in table


def test_status_of_one_sweep_shows_what_its_workers_do(command: Command) -> None:
    sweep = json.loads(command("status", "digits", "--json")[1])
    (running,) = sweep["running"]
    assert (running["number"], running["step"], running["attempt"]) == (2, 33, 1)
    assert running["checkpoint_age_s"] >= 0
    assert sweep["evictions"] == 1
    assert "evictions" in command("status", "digits")[1]


@pytest.mark.parametrize("name", ["0", "ab00", "AB00eeee"])
def test_show_takes_a_number_or_the_start_of_a_hash(command: Command, name: str) -> None:
    shown = json.loads(command("show", "digits", name, "--json")[1])
    assert shown["number"] == 0
    assert [checkpoint["step"] for checkpoint in shown["checkpoints"]] == [50]
    assert shown["reports"] == [{"step": 1, "at_step": 70, "value": 0.25, "metrics": {"accuracy": 0.5}}]


def test_show_names_the_folder_of_the_checkpoints_once(command: Command) -> None:
    (checkpoint,) = json.loads(command("show", "digits", "0", "--json")[1])["checkpoints"]
    folder = checkpoint["key"].removesuffix("1-abc/1/manifest.json")
    out = command("show", "digits", "0")[1]
    assert out.replace("\n", "").count(folder) == 1
    assert any(line.split()[-1] == "1-abc/1/manifest.json" for line in out.splitlines() if line)


def test_show_ends_with_the_error_and_the_last_lines_of_output(command: Command, sweeping: Sweeping) -> None:
    folder = sweeping.folder / "lr=0.1"  # as `hydra.sweep.subdir` may have it
    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra/hydra.yaml").write_text("hydra:\n  job:\n    num: 1\n")
    (folder / "attempt-1.log").write_text("\n".join(f"line {n}" for n in range(100)))
    status, out, _ = command("show", "digits", "1")
    assert status == 0
    assert "return the objective" in out
    assert out.rstrip().endswith("line 99")
    assert "line 10\n" not in out
    assert json.loads(command("show", "digits", "1", "--json")[1])["output"][-1] == "line 99"


def test_markup_in_names_and_output_is_shown_as_it_is(command: Command, sweeping: Sweeping) -> None:
    folder = sweeping.folder / "0"
    (folder / ".hydra").mkdir(parents=True)
    (folder / "attempt-2.log").write_text("[bold]not markup[/nonsense]")
    assert "[bold]not markup[/nonsense]" in command("show", "digits", "0")[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("trials", "digit"), ["there is no sweep named 'digit'", "digits"]),
        (("show", "digits", "9"), ["has no trial '9'", "sweeper trials digits"]),
        (("show", "digits", "ab"), ["has no trial 'ab'", "4 digits"]),
        (("show", "digits", "zzzz"), ["has no trial 'zzzz'"]),
        (("watch", "nothing"), ["there is no sweep named 'nothing'"]),
    ],
)
def test_bad_input_is_one_message_on_the_error_stream_and_status_2(
    command: Command, arguments: tuple[str, ...], words: list[str]
) -> None:
    """CLEAR."""
    status, out, err = command(*arguments)
    assert (status, out) == (2, "")
    assert all(word in err for word in words)
    assert "Traceback" not in err


def test_watching_a_sweep_that_is_over_shows_it_and_ends(command: Command, sweeping: Sweeping) -> None:
    cancel_sweep(sweeping.database, sweeping.sweep.sweep_id)
    status, out, _ = command("watch", "digits", "--json")
    assert status == 0
    (line,) = out.splitlines()
    assert json.loads(line)["counts"]["cancelled"] == 2


def test_without_any_ledger_nothing_is_started(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SWEEPER_DATABASE_URL")
    status, _, err = command("status")
    assert status == 2
    assert "there is no ledger yet" in err
    assert not (tmp_path / "home").exists()


@pytest.mark.slow
def test_a_database_that_is_not_there_is_one_message_without_the_password(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SAFE, CLEAR."""
    monkeypatch.setenv("SWEEPER_DATABASE_URL", "postgresql://me:hunter2@127.0.0.1:1/nowhere")
    for arguments in (("status",), ("doctor",), ("db", "status"), ("trials", "digits")):
        status, out, err = command(*arguments)
        assert status != 0
        assert "hunter2" not in out + err
        assert "Traceback" not in err
