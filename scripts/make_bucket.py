"""Make the bucket that SWEEPER_STORE_URL names; one that is there already is fine.

Endpoint, region and credentials come from the usual AWS variables.
"""

from __future__ import annotations

import os
import sys
from urllib.parse import urlsplit

import botocore.session
from botocore.exceptions import BotoCoreError, ClientError

OURS_ALREADY = ("BucketAlreadyOwnedByYou", "BucketAlreadyExists")


def main() -> int:
    url = os.environ.get("SWEEPER_STORE_URL", "")
    parts = urlsplit(url)
    if parts.scheme != "s3" or not parts.netloc:
        print(f"make_bucket: SWEEPER_STORE_URL={url!r} is no s3://bucket/… URL", file=sys.stderr)
        return 2
    client = botocore.session.get_session().create_client("s3")
    try:
        client.create_bucket(Bucket=parts.netloc)
    except ClientError as error:
        if error.response["Error"]["Code"] not in OURS_ALREADY:
            print(f"make_bucket: {error}", file=sys.stderr)
            return 1
    except BotoCoreError as error:
        print(f"make_bucket: {error}", file=sys.stderr)
        return 1
    finally:
        client.close()
    print(f"make_bucket: {parts.netloc} is there", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
