"""A TCP proxy in a thread whose network can be broken from the test: cut, black hole, delay, reset, lost reply."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from enum import StrEnum


class Network(StrEnum):
    """How the proxy treats what passes from now on."""

    PASSING = "passing"
    CUT = "cut"
    """New connections are closed at once."""
    BLACK_HOLE = "black_hole"
    """Connections stay open, new ones are accepted, and nothing arrives any more in either direction."""
    REPLY_LOST = "reply_lost"
    """What clients say arrives; the first answer of the server is thrown away and the connection reset."""


class TcpProxy:
    """Forwards `127.0.0.1:port` to `target`, an address or the path of a Unix socket; a context manager.

    Each method takes effect before it returns. One-way state changes are for new data: what was already forwarded is
    not called back.
    """

    def __init__(self, target: tuple[str, int] | str) -> None:
        self.target = target
        self.port = 0
        self.accepted = 0
        """Connections accepted so far."""
        self._network = Network.PASSING
        self._delay_s = 0.0
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._changed = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tcp-proxy", daemon=True)

    def __enter__(self) -> TcpProxy:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def pass_on(self) -> None:
        """Heal: forward at once, whatever was done before."""
        self._do(lambda: self._set(Network.PASSING, 0.0))

    def delay(self, seconds: float) -> None:
        """Forward every chunk this much later, in both directions."""
        self._do(lambda: self._set(Network.PASSING, seconds))

    def black_hole(self) -> None:
        """Stay connected and deliver nothing."""
        self._do(lambda: self._set(Network.BLACK_HOLE, 0.0))

    def lose_reply(self) -> None:
        """Deliver what clients say, throw the answer away and reset: done, but nobody knows."""
        self._do(lambda: self._set(Network.REPLY_LOST, 0.0))

    def cut(self) -> None:
        """Close every connection and refuse new ones."""
        self._do(lambda: (self._set(Network.CUT, 0.0), self._drop_all(reset=False)))

    def reset(self) -> None:
        """Reset (RST) every open connection; new ones pass."""
        self._do(lambda: self._drop_all(reset=True))

    def retarget(self, target: tuple[str, int] | str) -> None:
        """Send new connections elsewhere."""
        self._do(lambda: setattr(self, "target", target))

    def _do(self, action: Callable[[], object]) -> None:
        async def act() -> None:
            action()

        asyncio.run_coroutine_threadsafe(act(), self._loop).result(10)

    def _set(self, network: Network, delay_s: float) -> None:
        self._network, self._delay_s = network, delay_s
        self._changed.set()
        self._changed = asyncio.Event()

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def _shut(self) -> None:
        self._server.close()
        self._set(Network.CUT, 0.0)
        self._drop_all(reset=True)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.accepted += 1
        self._open.add(writer)
        try:
            if self._network is not Network.CUT:
                await self._join(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._drop(writer, reset=False)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if isinstance(self.target, str):
            up_reader, up_writer = await asyncio.open_unix_connection(self.target)
        else:
            up_reader, up_writer = await asyncio.open_connection(*self.target)
        self._open.add(up_writer)
        pumps = [
            asyncio.ensure_future(self._pump(reader, up_writer, answers=False)),
            asyncio.ensure_future(self._pump(up_reader, writer, answers=True)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            self._drop(up_writer, reset=False)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool) -> None:
        while data := await reader.read(65536):
            if self._delay_s:
                await asyncio.sleep(self._delay_s)
            while self._network is Network.BLACK_HOLE:
                await self._changed.wait()
            if answers and self._network is Network.REPLY_LOST:
                self._drop_all(reset=True)
                return
            writer.write(data)
            await writer.drain()

    def _drop_all(self, *, reset: bool) -> None:
        for writer in list(self._open):
            self._drop(writer, reset=reset)

    def _drop(self, writer: asyncio.StreamWriter, *, reset: bool) -> None:
        if writer not in self._open:
            return
        self._open.discard(writer)
        raw = writer.get_extra_info("socket")
        if reset and raw is not None and raw.family != socket.AF_UNIX:
            with contextlib.suppress(OSError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
