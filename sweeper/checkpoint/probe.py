"""One dry run of the store at launch, so that an unusable one is found before any trial (CLEAR)."""

from __future__ import annotations

from sweeper.checkpoint.keys import probe_key
from sweeper.checkpoint.objects import ObjectStore
from sweeper.errors import ObjectExists, ObjectMissing, StoreDenied, StoreUnavailable, UserError
from sweeper.ids import RandomHex, system_random_hex

_DENIED = (
    "Check that the bucket or folder exists and that these credentials may write, read, list and delete there "
    "(AWS_ACCESS_KEY_ID, AWS_PROFILE, AWS_DEFAULT_REGION, AWS_ENDPOINT_URL)."
)
_UNAVAILABLE = "Check the network and the endpoint (AWS_ENDPOINT_URL), then run the same command again."


def probe(store: ObjectStore, *, random_hex: RandomHex = system_random_hex) -> None:
    """Write, read and delete one small object, and see that it cannot be written twice.

    Raises:
        UserError: names the step that failed, why, and the remedy.
    """
    key = probe_key(random_hex())
    step = "writing"
    try:
        store.create(key, b"sweeper")
        step = "reading"
        if store.read(key) != b"sweeper":
            raise UserError(f"The store {store.url} gives back other bytes than were written.")
        step = "writing twice"
        _require_create_only(store, key)
        step = "deleting"
        store.delete([key])
    except StoreDenied as error:
        raise UserError(f"The store {store.url} does not allow {step}: {error}.", remedy=_DENIED) from error
    except StoreUnavailable as error:
        raise UserError(f"The store {store.url} did not answer when {step}: {error}.", remedy=_UNAVAILABLE) from error
    except ObjectMissing as error:
        raise UserError(
            f"The store {store.url} lost an object between writing and {step} it: {error}.",
            remedy="sweeper needs a store that is consistent after a write, as S3, GCS and Azure are.",
        ) from error


def _require_create_only(store: ObjectStore, key: str) -> None:
    try:
        store.create(key, b"another")
    except ObjectExists:
        return
    store.delete([key])
    raise UserError(
        f"The store {store.url} overwrites an object that was to be created only if absent.",
        remedy="Use a server that honours If-None-Match on PUT (AWS S3, MinIO, SeaweedFS, … in a current version).",
    )
