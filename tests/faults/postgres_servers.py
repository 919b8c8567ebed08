"""How tests start and address real Postgres servers."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from psycopg.conninfo import conninfo_to_dict

QUICK_NOT_DURABLE = {"fsync": "off", "full_page_writes": "off"}
"""Server settings for tests: nothing waits for a disk. A killed server still loses nothing, only a power cut would."""


def with_database(url: str, name: str) -> str:
    """The same server's URL for another database."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def server_port(url: str) -> int:
    """The loopback port of an embedded server's URL."""
    return int(str(conninfo_to_dict(url)["port"]).split(",")[0])


def by_loopback(url: str, port: int, **settings: object) -> str:
    """The same user, password and database at another loopback port (a proxy's), with further settings."""
    known = conninfo_to_dict(url)
    query = "&".join(f"{name}={value}" for name, value in settings.items())
    where = f"{known['user']}:{known['password']}@127.0.0.1:{port}/{known['dbname']}"
    return f"postgresql://{where}{'?' if query else ''}{query}"
