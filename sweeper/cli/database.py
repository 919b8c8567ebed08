"""`sweeper db`: the ledger's server and schema."""

from __future__ import annotations

from typing import Annotated

import typer

from sweeper.cli.opening import ledger_url
from sweeper.cli.output import console, say_json
from sweeper.cli.sheets import facts_table
from sweeper.errors import UserError
from sweeper.ledger.database import Database
from sweeper.ledger.embedded import server_status, stop_server
from sweeper.ledger.schema import schema_version, upgrade
from sweeper.ledger.urls import redact
from sweeper.settings import resolve_places

app = typer.Typer(help="The ledger's server and schema.", no_args_is_help=True, rich_markup_mode=None)


@app.command(name="upgrade")
def upgrade_command() -> None:
    """Bring an older ledger's tables up to date; workers of the old version finish what they hold."""
    url = ledger_url(resolve_places())
    upgrade(url)
    typer.echo(f"the ledger at {redact(url)} is up to date")


@app.command()
def stop() -> None:
    """Stop the embedded Postgres server; it starts again when it is needed."""
    places = resolve_places()
    if places.database_url is not None:
        raise UserError(
            "SWEEPER_DATABASE_URL names a server that sweeper did not start",
            remedy="unset it to stop the embedded server",
        )
    if stop_server(places.home):
        typer.echo(f"stopped the server under {places.home}")
    else:
        typer.echo(f"no server is running under {places.home}")


@app.command()
def status(as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False) -> None:
    """Show where the ledger is, and what its server and schema are; starts nothing."""
    places = resolve_places()
    record: dict[str, object] = {"embedded": places.database_url is None, "home": str(places.home)}
    url = places.database_url
    if url is None:
        server = server_status(places.home)
        record |= {
            "running": server.running,
            "in_use": server.in_use,
            "folder": str(server.folder),
            "log": str(server.log),
            "host": server.host,
            "port": server.port,
        }
        url = ledger_url(places) if server.running else None
    if url is not None:
        database = Database(url)
        try:
            record |= {"url": redact(url), "schema_version": schema_version(database)}
        finally:
            database.close()
    if as_json:
        say_json(record)
    else:
        console().print(facts_table({name.replace("_", " "): str(value) for name, value in record.items()}))
