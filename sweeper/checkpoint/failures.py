"""What a store's error means for us, by its type and code and never by its text.

Codes: "List of error codes" in the Amazon S3 API reference. The text we raise holds our own words, the code and the
key: what a client library puts into its messages may hold a URL or an account.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

from sweeper.errors import ObjectExists, ObjectMissing, StoreDenied, StoreUnavailable, SweeperError

_MISSING = frozenset({"NoSuchKey", "404"})
_EXISTS = frozenset({"PreconditionFailed", "412", "ConditionalRequestConflict"})
_TRANSIENT = frozenset(
    {
        "BadDigest",
        "IncompleteBody",
        "InternalError",
        "OperationAborted",
        "RequestTimeout",
        "ServiceUnavailable",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequests",
        "XAmzContentChecksumMismatch",
        "XAmzContentSHA256Mismatch",
    }
)
_CREDENTIAL_ERRORS = frozenset(
    {
        "CredentialRetrievalError",
        "NoAuthTokenError",
        "NoCredentialsError",
        "PartialCredentialsError",
        "ProfileNotFound",
        "SSOTokenLoadError",
        "TokenRetrievalError",
        "UnauthorizedSSOTokenError",
    }
)
"""Classes of botocore.exceptions, by name so that a store without S3 needs no botocore."""
_DENIED_ERRNOS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


def translate(error: BaseException, doing: str) -> SweeperError | None:
    """Give our error for one from a client library or the operating system; None when it is a bug of ours.

    Args:
        error: what was raised.
        doing: what was tried, such as ``creating sweeps/…``; becomes part of the message.
    """
    for link in _chain(error):
        response = getattr(link, "response", None)
        if isinstance(response, dict) and isinstance(response.get("Error"), dict):
            return _from_response(response, doing)
    return _from_type(error, doing)


def _chain(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    for _ in range(10):
        if link is None:
            return
        yield link
        link = link.__cause__ or link.__context__


def _from_response(response: dict[str, Any], doing: str) -> SweeperError:
    code = str(response["Error"].get("Code", ""))
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    text = f"{doing}: the store answered {code or 'an error'} (HTTP {status})"
    if code in _MISSING:
        return ObjectMissing(text)
    if code in _EXISTS:
        return ObjectExists(text)
    if code in _TRANSIENT or status >= 500 or status in (0, 408, 429):
        return StoreUnavailable(text)
    return StoreDenied(text)


def _from_type(error: BaseException, doing: str) -> SweeperError | None:
    kind = type(error).__name__
    match error:
        case FileNotFoundError() | IsADirectoryError() | NotADirectoryError():
            return ObjectMissing(f"{doing}: no such object")
        case FileExistsError():
            return ObjectExists(f"{doing}: it exists")
        case OSError() if error.errno in _DENIED_ERRNOS:
            return StoreDenied(f"{doing}: {errno.errorcode[error.errno]}")
        case PermissionError():
            return StoreDenied(f"{doing}: permission denied")
        case OSError():
            name = errno.errorcode.get(error.errno or 0, kind)
            return StoreUnavailable(f"{doing}: {name}")
    if kind in _CREDENTIAL_ERRORS:
        return StoreDenied(f"{doing}: {kind}")
    if type(error).__module__ == "builtins" or kind == "ParamValidationError" or not isinstance(error, Exception):
        return None
    return StoreUnavailable(f"{doing}: {kind}")
