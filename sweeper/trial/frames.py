"""Small JSON frames with descriptors beside them, between a warm parent and the process that owns it."""

from __future__ import annotations

import array
import json
import os
import socket
from collections.abc import Sequence
from typing import Any, Final

MAX_DESCRIPTORS: Final = 64
_HEADER_BYTES: Final = 4
_CLOSE_ON_EXEC: Final = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


def send_frame(channel: socket.socket, body: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
    """Send one frame, the descriptors attached to its first byte (`unix(7)`, SCM_RIGHTS). Blocks until it is sent."""
    data = json.dumps(body).encode()
    header = len(data).to_bytes(_HEADER_BYTES, "big")
    if descriptors:
        socket.send_fds(channel, [header], list(descriptors))
    else:
        channel.sendall(header)
    channel.sendall(data)


def receive_frame(channel: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Receive one frame and the descriptors beside it, which are not inherited by programs started later.

    Returns None when the other side is gone.

    Raises:
        TimeoutError: the channel has a time limit and it has passed.
    """
    head, descriptors = _receive_with_descriptors(channel, _HEADER_BYTES)
    data = _receive_exactly(channel, int.from_bytes(head, "big")) if len(head) == _HEADER_BYTES else None
    if data is None:
        close_all(descriptors)
        return None
    return json.loads(data), descriptors


def close_all(descriptors: Sequence[int]) -> None:
    """Close descriptors, ignoring those already closed."""
    for descriptor in descriptors:
        try:
            os.close(descriptor)
        except OSError:
            continue


def _receive_with_descriptors(channel: socket.socket, size: int) -> tuple[bytes, list[int]]:
    received = array.array("i")
    room = socket.CMSG_LEN(MAX_DESCRIPTORS * received.itemsize)
    try:
        data, ancillary, _, _ = channel.recvmsg(size, room, _CLOSE_ON_EXEC)
    except ConnectionError:
        return b"", []
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            received.frombytes(content[: len(content) - len(content) % received.itemsize])
    for descriptor in received:
        os.set_inheritable(descriptor, False)
    rest = b"" if not data or len(data) == size else _receive_exactly(channel, size - len(data)) or b""
    return data + rest, list(received)


def _receive_exactly(channel: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        try:
            piece = channel.recv(size - len(data))
        except ConnectionError:
            return None
        if not piece:
            return None
        data += piece
    return bytes(data)
