"""AWS Signature Version 4 for a GET request to S3 or a compatible store, in its headers.

Specification: "Authenticating Requests (AWS Signature Version 4)" in the API reference of S3.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
from collections.abc import Mapping
from urllib.parse import urlsplit

from delta_sharing_client.storage.credentials import StorageCredentials

_ALGORITHM = "AWS4-HMAC-SHA256"
_NO_BODY = hashlib.sha256(b"").hexdigest()
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


def sign_s3(
    url: str,
    credentials: StorageCredentials,
    region: str,
    now: datetime.datetime,
    headers: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the headers that sign a GET of ``url`` without a body.

    Parameters
    ----------
    url:
        An absolute URL, encoded as it is sent. S3 computes the signature for the path as it arrives: it neither removes
        the segments ``.`` and ``..`` nor merges slashes, and only unreserved characters may be sent unencoded.
    headers:
        Other headers that the signature must cover, which S3 demands for all that begin with ``x-amz-``. They are in
        the result, too. ``Range`` and ``If-Match`` may be added to the request without a signature.
    """
    parts = urlsplit(url)
    moment = now.astimezone(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    sent = {**(headers or {}), "x-amz-content-sha256": _NO_BODY, "x-amz-date": moment}
    token = credentials.reveal("session_token")
    if token:
        sent["x-amz-security-token"] = token
    # HTTP libraries omit the port from the header 'Host' if it is the default one.
    host = parts.netloc.removesuffix(_DEFAULT_PORTS.get(parts.scheme, ""))
    signed = sorted((name.lower(), " ".join(value.split())) for name, value in {**sent, "host": host}.items())
    names = ";".join(name for name, _ in signed)
    lines = ["GET", parts.path or "/", _canonical_query(parts.query), *(f"{name}:{value}" for name, value in signed)]
    request = "\n".join([*lines, "", names, _NO_BODY])
    scope = f"{moment[:8]}/{region}/s3/aws4_request"
    text = f"{_ALGORITHM}\n{moment}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = f"AWS4{credentials.reveal('secret_access_key') or ''}".encode()
    for part in (*scope.split("/"), text):
        key = hmac.digest(key, part.encode(), "sha256")
    owner = f"{credentials.reveal('access_key_id') or ''}/{scope}"
    sent["Authorization"] = f"{_ALGORITHM} Credential={owner}, SignedHeaders={names}, Signature={key.hex()}"
    return sent


def _canonical_query(query: str) -> str:
    """Return an encoded query in the order of names and values; each parameter gets a ``=``."""
    pairs = [part.partition("=") for part in query.split("&") if part]
    return "&".join(f"{name}={value}" for name, _, value in sorted(pairs))
