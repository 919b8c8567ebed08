"""Database URLs as people have them, brought to one form that libpq, psycopg and SQLAlchemy read alike (PG-04)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from urllib.parse import quote, unquote

from sweeper.errors import UserError

SETTING = "SWEEPER_DATABASE_URL"
EXAMPLE = "postgresql://user:password@host:5432/database"
ENCODE = (
    "Percent-encode special characters in user and password: @ is %40, : is %3A, / is %2F, ? is %3F, # is %23, "
    "% is %25, + is %2B."
)

_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_WITH_PASSWORD = re.compile(r"(://[^:@/?#\s]*):\S*@")
_WITHOUT_HOST = re.compile(r"(://[^:@/?#\s\[]*):(?!\d+(?:[,/?\s]|$))[^@/?\s\[]+")
_PASSWORD_SETTING = re.compile(r"((?:^|[?&\s])(?:ssl)?password=)[^&\s]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    user: str | None
    password: str | None
    hosts: tuple[tuple[str, str], ...]
    """(host, port), each possibly empty."""
    database: str
    query: tuple[tuple[str, str], ...]


def normalise_url(text: str) -> str:
    """One form for every Postgres URL: scheme `postgresql://`, white space stripped, special characters encoded.

    `postgres://`, `postgresql://` and `postgresql+<driver>://` all mean the same driver, psycopg 3. Several hosts end
    up in the query (`?host=a,b&port=1,2`, the form that all readers share) and ask for the writable one unless the URL
    says otherwise. Nothing is contacted.

    Raises:
        UserError: not a Postgres URL, or characters that must be percent-encoded; no part of the password is shown.
    """
    url = text.strip()
    scheme, separator, rest = url.partition("://")
    if not url or not separator or scheme.lower().split("+")[0] not in ("postgres", "postgresql"):
        shown = f"{scheme}://" if separator and re.fullmatch(r"[A-Za-z][\w+.-]*", scheme) else "no postgresql:// URL"
        raise UserError(f"the database URL is not one of Postgres ({shown})", remedy=f"Write {EXAMPLE}.")
    return _written(_read_by_writable_host(_parsed(rest)))


def sqlalchemy_url(url: str) -> str:
    """A normalised URL with the driver spelt out (`postgresql+psycopg://`), right for any SQLAlchemy."""
    return "postgresql+psycopg://" + url.partition("://")[2]


def with_setting(url: str, name: str, value: str) -> str:
    """A normalised URL with this setting in its query, in place of any other of the name."""
    parts = _parsed(url.partition("://")[2])
    kept = tuple((known, given) for known, given in parts.query if known != name)
    return _written(replace(parts, query=(*kept, (name, value))))


def redact(text: str) -> str:
    """The text with every password in a database URL replaced by `***`, also in URLs that are malformed."""
    text = _WITH_PASSWORD.sub(r"\1:***@", text)
    text = _WITHOUT_HOST.sub(r"\1:***", text)
    return _PASSWORD_SETTING.sub(r"\1***", text)


def describe(url: str) -> str:
    """`host:port/database as user` of a normalised URL, for messages."""
    parts = _read_by_writable_host(_parsed(url.partition("://")[2]))
    settings = dict(parts.query)
    hosts = settings.get("host") or ",".join(":".join(filter(None, pair)) for pair in parts.hosts) or "(default host)"
    user = f" as {parts.user}" if parts.user else ""
    return f"{hosts}/{parts.database or settings.get('dbname', '')}{user}"


def _parsed(rest: str) -> _Parts:
    if "#" in rest or re.search(r"[\s\x00-\x1f\x7f]", rest):
        raise _encode_error("contains a raw # or white space")
    if _BAD_PERCENT.search(rest):
        raise _encode_error("contains a % that does not start a percent-encoded character")
    authority, path, query = _split(rest)
    userinfo, at, hosts = authority.rpartition("@")
    if "@" in userinfo:
        raise _encode_error("contains a raw @ in user or password")
    user, colon, password = userinfo.partition(":")
    return _Parts(
        user=unquote(user) if at and user else None,
        password=unquote(password) if colon else None,
        hosts=tuple(_host(part) for part in hosts.split(",")) if hosts else (),
        database=unquote(path),
        query=tuple(_setting(pair) for pair in query.split("&")) if query else (),
    )


def _split(rest: str) -> tuple[str, str, str]:
    """Authority, path and query; UserError if a raw / or ? in the password has split them at the wrong place."""
    before, _, query = rest.partition("?")
    authority, _, path = before.partition("/")
    misplaced = "@" in path or any("@" in pair.partition("=")[0] for pair in query.split("&"))
    if "@" not in authority and (misplaced or ("@" in query and _has_odd_port(authority))):
        raise _encode_error("contains a raw / or ? in user or password")
    return authority, path, query


def _has_odd_port(authority: str) -> bool:
    return any(port and not port.isdigit() for _, _, port in (part.rpartition(":") for part in authority.split(",")))


def _host(part: str) -> tuple[str, str]:
    bracketed = re.fullmatch(r"\[([0-9A-Fa-f:.%\w]+)\](?::(.*))?", part)
    host, port = (bracketed[1], bracketed[2] or "") if bracketed else part.partition(":")[::2]
    if port and not port.isdigit():
        raise UserError("the port in the database URL is not a number", remedy=f"Write {EXAMPLE}. {ENCODE}")
    return unquote(host), port


def _setting(pair: str) -> tuple[str, str]:
    name, equals, value = pair.partition("=")
    if not equals or not re.fullmatch(r"\w+", name):
        raise UserError("the part of the database URL after ? is not name=value", remedy=f"{ENCODE}")
    return name, unquote(value)


def _read_by_writable_host(parts: _Parts) -> _Parts:
    """Move several hosts into the query, where all readers look for them."""
    listed = [value for name, value in parts.query if name == "host"]
    ports = [value for name, value in parts.query if name == "port"]
    hosts = list(parts.hosts)
    if listed:
        pairs = [_host_and_port(host) for value in listed for host in value.split(",")]
        given = ports[0].split(",") if ports else []
        given = given * len(pairs) if len(given) == 1 else given
        hosts = [
            (host, port or (given[index] if index < len(given) else "")) for index, (host, port) in enumerate(pairs)
        ]
    if len(hosts) < 2:
        return parts
    kept = [(name, value) for name, value in parts.query if name not in ("host", "port")]
    query = [("host", ",".join(host for host, _ in hosts)), ("port", ",".join(port or "5432" for _, port in hosts))]
    if not any(name == "target_session_attrs" for name, _ in kept):
        kept.append(("target_session_attrs", "read-write"))
    return replace(parts, hosts=(), query=(*query, *kept))


def _host_and_port(text: str) -> tuple[str, str]:
    """SQLAlchemy's `?host=name:port`; a socket folder or an IPv6 address has no port here."""
    host, colon, port = text.rpartition(":")
    return (host, port) if colon and port.isdigit() and ":" not in host else (text, "")


def _written(parts: _Parts) -> str:
    user = quote(parts.user or "", safe="")
    password = "" if parts.password is None else ":" + quote(parts.password, safe="")
    at = "@" if user or password else ""
    hosts = ",".join(
        (f"[{host}]" if ":" in host else quote(host)) + (f":{port}" if port else "") for host, port in parts.hosts
    )
    query = "&".join(f"{name}={quote(value, safe='/,:.~-_')}" for name, value in parts.query)
    return f"postgresql://{user}{password}{at}{hosts}/{quote(parts.database, safe='')}{'?' if query else ''}{query}"


def _encode_error(what: str) -> UserError:
    return UserError(f"the database URL {what}", remedy=f"{ENCODE} ({SETTING} has the form {EXAMPLE})")
