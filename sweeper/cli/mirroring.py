"""Commands about the mirror, the sweep's trials as an Optuna study: `dashboard`, `url`, `rebuild`."""

from __future__ import annotations

import ipaddress
from typing import Annotated

import typer

from sweeper.cli.opening import ledger_url, open_ledger
from sweeper.errors import UserError
from sweeper.ids import system_random_hex
from sweeper.ledger.mirror_access import MirrorAccess, refuse_pooler, storage_url
from sweeper.ledger.sweeps import require_sweep
from sweeper.ledger.urls import normalise_url, redact
from sweeper.settings import resolve_places

SLOW_S = 60.0
"""Longest wait of the dashboard for one answer of the database."""
THREADS = 4


def dashboard(
    port: Annotated[int, typer.Option("--port", help="Port to listen on; 0 takes a free one.")] = 8080,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; by default only this machine reaches it.")
    ] = "127.0.0.1",
) -> None:
    """Serve the Optuna dashboard on this ledger's searches, until Ctrl-C."""
    from sweeper.search.dashboard import require_dashboard, serve_dashboard  # Optuna takes a second to import
    from sweeper.search.mirror_study import open_storage

    require_dashboard()
    access = MirrorAccess(ledger_url(resolve_places()), bound_s=SLOW_S, threads=THREADS)
    storage = open_storage(access)
    if not _only_from_here(host):
        typer.echo(f"whoever reaches {host} can see all studies and change them; the ledger is not theirs", err=True)
    try:
        serve_dashboard(storage, host=host, port=port, ready=lambda address: typer.echo(f"{address}  (Ctrl-C ends it)"))
    except KeyboardInterrupt:
        typer.echo("")
    finally:
        access.close()


def url(
    optuna: Annotated[
        bool, typer.Option("--optuna", help="The storage URL for `optuna.load_study` and `optuna-dashboard`.")
    ] = False,
    show_password: Annotated[
        bool, typer.Option("--show-password", help="Print the password of a database that you named, too.")
    ] = False,
) -> None:
    """Print the ledger's database URL, for use in other commands."""
    places = resolve_places()
    plain = ledger_url(places)
    found = normalise_url(plain)
    if optuna:
        access = MirrorAccess(plain)
        if not access.prepare():
            from sweeper.search.mirror_study import open_storage  # Optuna takes a second to import

            open_storage(access)
            access.close()
        refuse_pooler(plain)
        found = storage_url(plain)
    # The embedded server's password is made for this machine's user alone, and useless without its files.
    shown = found if places.database_url is None or show_password else redact(found)
    typer.echo(shown)
    if shown != found:
        typer.echo("the password is hidden; --show-password prints it", err=True)


def rebuild(
    sweep: Annotated[str, typer.Argument(metavar="SWEEP", help="The sweep's name.")],
    mirror: Annotated[bool, typer.Option("--mirror", help="Write its Optuna study anew from the ledger.")] = False,
) -> None:
    """Write the Optuna study of a search anew, from the ledger.

    Works beside a running sweep.
    """
    if not mirror:
        raise UserError("there is nothing to rebuild", remedy=f"sweeper rebuild {sweep} --mirror")
    with open_ledger() as database:
        row = require_sweep(database, sweep)
    if row.search is None:
        raise UserError(
            f"sweep {sweep!r} is a plain grid, which has no Optuna study", remedy=f"`sweeper trials {sweep}` lists it"
        )
    from sweeper.coordinator.mirror_rebuild import rebuild_mirror  # Optuna takes a second to import

    rebuilt = rebuild_mirror(ledger_url(resolve_places()), row, system_random_hex)
    typer.echo(f"study {rebuilt.study!r} shows {rebuilt.trials} trials")


def _only_from_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
