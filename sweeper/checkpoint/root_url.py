"""Store URLs: what may be a root, the same on every backend, and never with a credential in it.

Keys below the root are ours and hold only hashes, numbers and a few fixed words. What could go wrong is the root that a
person types, because fsspec's layers understand patterns, versions and chains in paths. So a root may hold letters,
digits, space, any printable character beyond ASCII and ``- _ . ~ = + , @ : ! $ & ' ( ) ;``; all else is refused when
the store is opened, on all backends alike.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote_to_bytes

from sweeper.errors import UserError

_ASCII_ALLOWED = re.compile(r"[A-Za-z0-9 \-_.~=+,@:!$&'();]")
_MAX_ROOT_BYTES = 700
"""Object keys end at 1,024 bytes on S3; ours below the root need fewer than 250."""
_MAX_SEGMENT_BYTES = 200
_REMEDY = "Set SWEEPER_STORE_URL (or hydra.launcher.store) to a URL such as s3://bucket/folder or file:///data/sweeps."


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """A checked store URL."""

    scheme: str
    """`file` for local paths, else fsspec's protocol name."""
    path: str
    """Without the scheme and a trailing slash, taken literally; absolute for `file`."""

    @property
    def url(self) -> str:
        """The URL in its usual form; a local path is percent-encoded as RFC 8089 says."""
        return f"file://{quote(self.path)}" if self.scheme == "file" else f"{self.scheme}://{self.path}"


def parse_root(url: str) -> Root:
    """Check a store URL and take it apart; nothing is contacted.

    A `file://` URL is percent-decoded, because `Path.as_uri()` encodes spaces and the like; elsewhere `%` is refused.

    Raises:
        UserError: the URL could not be used safely; the message never repeats a credential.
    """
    scheme, separator, rest = url.partition("://")
    _refuse_credentials(scheme if separator else "file", rest if separator else url)
    if not separator:
        scheme, rest = "file", url
        if not url.startswith("/"):
            raise UserError(f"The store {_shown(url)!r} is neither a URL nor an absolute path.", remedy=_REMEDY)
    if not re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme):
        raise UserError(f"The store URL's scheme {_shown(scheme)!r} is not a name in small letters.", remedy=_REMEDY)
    if scheme in ("file", "local"):
        return Root(scheme="file", path=_local_path(rest, encoded=bool(separator)))
    path = rest.removesuffix("/")
    if not path.split("/")[0]:
        raise UserError(f"The store URL {scheme}://{_shown(rest)} names no bucket.", remedy=_REMEDY)
    _check_path(path)
    return Root(scheme=scheme, path=path)


def _refuse_credentials(scheme: str, rest: str) -> None:
    """A secret may itself hold a slash, so everything before the last `@` is looked at, not only a host's part."""
    before, at, _ = rest.rpartition("@")
    if (at and ":" in before) or (scheme == "s3" and "@" in rest.split("/")[0]):
        raise UserError(
            "The store URL holds credentials (…:…@…), which would end up in tables and logs.",
            remedy="Take them out of the URL; give AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or a role.",
        )


def _local_path(rest: str, *, encoded: bool) -> str:
    authority, slash, path = rest.partition("/")
    if not slash or authority not in ("", "localhost"):
        raise UserError("A file:// store URL needs an absolute path: file:///folder.", remedy=_REMEDY)
    if encoded and "%" in path:
        if re.search(r"%(?![0-9A-Fa-f]{2})", path) or re.search(r"%2[Ff]", path):
            raise UserError(
                f"The store path {_shown('/' + path)!r} has a '%' that escapes no character.", remedy=_REMEDY
            )
        try:
            path = unquote_to_bytes(path).decode()
        except UnicodeDecodeError:
            raise UserError(
                f"The store path {_shown('/' + path)!r} is not UTF-8 once decoded.", remedy=_REMEDY
            ) from None
    path = path.removesuffix("/")
    if not path:
        raise UserError("The store cannot be the root of the file system.", remedy=_REMEDY)
    _check_path(path)
    return "/" + path


def _check_path(path: str) -> None:
    bad = sorted({c for c in path if c != "/" and not _allowed(c)})
    if bad:
        raise UserError(f"The store path {_shown(path)!r} holds {', '.join(map(repr, bad))}.", remedy=_REMEDY)
    if "::" in path:
        raise UserError(f"The store path {_shown(path)!r} chains file systems with '::'.", remedy=_REMEDY)
    segments = path.split("/")
    if any(segment in ("", ".", "..") for segment in segments):
        raise UserError(f"The store path {_shown(path)!r} holds '//', './' or '../'.", remedy=_REMEDY)
    if any(segment != segment.strip() for segment in segments):
        raise UserError(f"The store path {_shown(path)!r} has a folder that begins or ends in a space.", remedy=_REMEDY)
    if len(path.encode()) > _MAX_ROOT_BYTES or any(len(segment.encode()) > _MAX_SEGMENT_BYTES for segment in segments):
        raise UserError(
            f"The store path of {len(path.encode())} bytes is too long; at most {_MAX_ROOT_BYTES}, "
            f"and {_MAX_SEGMENT_BYTES} in one folder's name.",
            remedy=_REMEDY,
        )


def _allowed(character: str) -> bool:
    if character.isascii():
        return _ASCII_ALLOWED.fullmatch(character) is not None
    return character.isprintable()


def _shown(text: str) -> str:
    return text if len(text) <= 120 else text[:117] + "…"
