"""Serving optuna-dashboard on the mirror."""

from __future__ import annotations

import importlib.util
import socket
from collections.abc import Callable
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from optuna.storages import BaseStorage

from sweeper.errors import UserError


class _Server(ThreadingMixIn, WSGIServer):
    """One thread a request: a browser asks for several things at a time."""

    daemon_threads = True


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Quiet(WSGIRequestHandler):
    """Does not print a line for every request, which a page left open makes each few seconds."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  as the base class has it
        return


def require_dashboard() -> None:
    """See that optuna-dashboard is installed.

    Raises:
        UserError: it is not; says what to install.
    """
    if importlib.util.find_spec("optuna_dashboard") is None:
        raise UserError("optuna-dashboard is not installed here", remedy="pip install 'sweeper[dashboard]'")


def serve_dashboard(storage: BaseStorage, *, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve the dashboard until the process is told to end.

    Args:
        storage: the mirror's.
        host: address to listen on.
        port: 0 takes a free one.
        ready: told the address, once requests are taken.

    Raises:
        UserError: the address cannot be had.
    """
    from optuna_dashboard import wsgi  # an extra

    try:
        server = make_server(
            host, port, wsgi(storage), server_class=_Server6 if ":" in host else _Server, handler_class=_Quiet
        )
    except OSError as error:
        raise UserError(
            f"cannot listen on {host}:{port}: {error.strerror or error}", remedy="--port 0 takes a free one"
        ) from error
    with server:
        shown = f"[{host}]" if ":" in host else host
        ready(f"http://{shown}:{server.server_port}/dashboard")
        server.serve_forever()
