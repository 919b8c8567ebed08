"""Outcome objects: canonical bytes, read back strictly."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeper.ids import ConfigHash, LeaseId, SweepId
from sweeper.model.outcome import Outcome
from sweeper.model.states import FINAL_STATES, TrialState
from sweeper.model.tagged import to_tagged

floats = st.floats().map(to_tagged)


@st.composite
def outcomes(draw: st.DrawFn) -> Outcome:
    rows = st.tuples(st.integers(0, 99), st.integers(0, 9999), floats, st.dictionaries(st.text(), floats, max_size=2))
    return Outcome(
        sweep_id=SweepId(draw(st.text())),
        config_hash=ConfigHash("a" * 64),
        number=draw(st.integers(0, 10**6)),
        lineage=draw(st.integers(0, 5)),
        fence=draw(st.integers(1, 99)),
        lease_id=LeaseId("b" * 32),
        state=draw(st.sampled_from(sorted(FINAL_STATES))),
        reason=draw(st.text()),
        value=draw(floats),
        step=draw(st.integers(0, 10**9)),
        params=draw(st.dictionaries(st.text(), floats, max_size=3)),
        reports=tuple(draw(st.lists(rows, max_size=3))),
    )


@given(outcomes())
def test_an_outcome_is_read_back_as_it_was_written_and_written_again_as_the_same_bytes(outcome: Outcome) -> None:
    data = outcome.to_bytes()
    again = Outcome.from_bytes(data)
    assert again == outcome
    assert again.to_bytes() == data


def written(**changes: Any) -> bytes:
    outcome = Outcome(
        sweep_id=SweepId("s"),
        config_hash=ConfigHash("a" * 64),
        number=0,
        lineage=0,
        fence=1,
        lease_id=LeaseId("b" * 32),
        state=TrialState.COMPLETED,
        reason="",
        value=0.5,
        step=10,
    )
    raw = json.loads(outcome.to_bytes()) | changes
    return json.dumps({key: value for key, value in raw.items() if value is not ...}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"\xff\xfe",
        b"{",
        b"{}",
        b'{"schema": 1}',
        written(schema=2),
        written(state="running"),
        written(state="paused"),
        written(state="finished"),
        written(number=None, surprise=1),
        written(reports=5),
        written(reports=[5]),
    ],
)
def test_anything_else_is_refused_as_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Outcome.from_bytes(data)


@given(st.binary(max_size=100))
def test_arbitrary_bytes_are_never_an_outcome(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Outcome.from_bytes(data)


@given(st.integers(0, 10_000), st.integers(0, 255))
def test_a_flipped_byte_is_read_or_refused_but_never_anything_else(position: int, value: int) -> None:
    data = bytearray(written())
    data[position % len(data)] = value
    with contextlib.suppress(ValueError):
        assert Outcome.from_bytes(bytes(data)).state.final
