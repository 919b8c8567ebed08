"""Frames between a worker and its child."""

from __future__ import annotations

import contextlib
from dataclasses import fields
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeper.model.messages import MAX_FRAME_BYTES, FrameDecoder, ToChild, ToWorker, encode

KINDS: tuple[type[Any], ...] = (*get_args(ToChild), *get_args(ToWorker))

json_leaf = st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False), st.text())
json_value = st.recursive(json_leaf, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner))
BY_FIELD = {
    "list[str]": st.lists(st.text(), max_size=3),
    "dict[str, float]": st.dictionaries(st.text(), st.floats(allow_nan=False), max_size=3),
    "dict[str, int] | None": st.none() | st.dictionaries(st.text(), st.integers(0, 2**40), max_size=3),
    "dict[str, Any]": st.dictionaries(st.text(), json_value, max_size=3),
    "str | None": st.none() | st.text(),
    "float | None": st.none() | st.floats(allow_nan=False),
    "str": st.text(),
    "int": st.integers(-(2**53), 2**53),
    "float": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "Json": json_value,
}


@st.composite
def messages(draw: st.DrawFn) -> Any:
    kind = draw(st.sampled_from(KINDS))
    return kind(**{field.name: draw(BY_FIELD[str(field.type)]) for field in fields(kind)})


@given(st.lists(messages(), max_size=5), st.data())
def test_messages_arrive_whole_whatever_the_pieces(sent: list[Any], data: st.DataObject) -> None:
    stream = b"".join(encode(message) for message in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    decoder = FrameDecoder()
    received = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received += decoder.feed(stream[start:end])
    assert received == sent


def test_a_field_that_a_newer_peer_added_is_left_out() -> None:
    body = b'["Saved",{"seq":3,"ok":true,"since":"tomorrow"}]'
    (message,) = FrameDecoder().feed(len(body).to_bytes(4, "big") + body)
    assert message == encode_and_decode("Saved", seq=3, ok=True)


def encode_and_decode(name: str, **values: Any) -> Any:
    kind = next(kind for kind in KINDS if kind.__name__ == name)
    (message,) = FrameDecoder().feed(encode(kind(**values)))
    return message


def test_an_absurd_length_is_refused_before_anything_is_read() -> None:
    with pytest.raises(ValueError, match="over the limit"):
        FrameDecoder().feed((MAX_FRAME_BYTES + 1).to_bytes(4, "big"))


def test_an_unknown_message_is_refused_by_name() -> None:
    body = b'["Launch",{"missiles":2}]'
    with pytest.raises(ValueError, match="unknown message 'Launch'"):
        FrameDecoder().feed(len(body).to_bytes(4, "big") + body)


@given(st.binary(max_size=200))
def test_bytes_that_are_not_ours_never_raise_anything_but_a_value_error(noise: bytes) -> None:
    with contextlib.suppress(ValueError):
        FrameDecoder().feed(len(noise).to_bytes(4, "big") + noise)


@given(json_value)
def test_json_of_another_shape_never_raises_anything_but_a_value_error(body: Any) -> None:
    import json

    noise = json.dumps(body).encode()
    with contextlib.suppress(ValueError):
        FrameDecoder().feed(len(noise).to_bytes(4, "big") + noise)
