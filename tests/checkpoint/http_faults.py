"""An HTTP proxy before an S3 server that writes down each request, and answers some of them in the server's place."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ERROR = (
    "<?xml version='1.0'?><Error><Code>{}</Code><Message>as told by the test, with key=SECRET-IN-TEXT</Message></Error>"
)


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]


LOSE_REPLY = (0, "")
"""Told for a request: let the server do it, then close the connection without an answer."""
Rule = Callable[[Request], tuple[int, str] | None]
"""A status and S3 error code to answer with; None lets the request through."""


class HttpFaults:
    """Listens on `endpoint`; a context manager. `rule` may be changed at any time."""

    def __init__(self, host: str, port: int) -> None:
        self.rule: Rule = lambda request: None
        self.seen: list[Request] = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                return

            def handle_any(self) -> None:
                proxy.handle(self, host, port)

            do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = handle_any  # noqa: N815 names that the library looks for

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="http-faults", daemon=True)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> HttpFaults:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def handle(self, handler: BaseHTTPRequestHandler, host: str, port: int) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        request = Request(handler.command, handler.path, {k.lower(): v for k, v in handler.headers.items()})
        self.seen.append(request)
        told = self.rule(request)
        if told is not None and told != LOSE_REPLY:
            status, code = told
            _answer(handler, status, {"Content-Type": "application/xml"}, ERROR.format(code).encode())
            return
        connection = http.client.HTTPConnection(host, port, timeout=30)
        try:
            headers = {k: v for k, v in handler.headers.items() if k.lower() not in ("expect", "connection")}
            connection.request(handler.command, handler.path, body=body, headers=headers)
            reply = connection.getresponse()
            if told == LOSE_REPLY:
                handler.close_connection = True
                return
            _answer(handler, reply.status, dict(reply.getheaders()), reply.read())
        finally:
            connection.close()


def _answer(handler: BaseHTTPRequestHandler, status: int, headers: dict[str, str], body: bytes) -> None:
    handler.send_response_only(status)
    for name, value in headers.items():
        if name.lower() not in ("content-length", "connection", "transfer-encoding"):
            handler.send_header(name, value)
    length = headers.get("Content-Length", str(len(body))) if handler.command == "HEAD" else str(len(body))
    handler.send_header("Content-Length", length)
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body)
