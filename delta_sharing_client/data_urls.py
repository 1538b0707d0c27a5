"""Which URLs of a server's answer may be fetched at all."""

from __future__ import annotations

import functools
import ipaddress
import re
from urllib.parse import urlsplit

from delta_sharing_client.errors import ProtocolError

# What a URL may begin with so that its host is beyond doubt: nothing after the slash is part of it.
_PLAIN_ORIGIN = re.compile(r"https?://[a-z0-9]+(?:[.-][a-z0-9]+)*(?::[0-9]{1,5})?/", re.ASCII)


def check_data_url(url: str, *, allow_http: bool, table: str | None = None, file_id: str | None = None) -> None:
    """Raise ``ProtocolError`` unless ``url`` is ``https:``, or ``http:`` to this machine or where ``allow_http``.

    A server must not make its recipients read local files or send requests in clear text. ``allow_http`` is for
    profiles whose own endpoint is ``http:`` (``is_http``). Call it before each fetch, and on each redirect.
    """
    found = _PLAIN_ORIGIN.match(url)
    if found is not None and _may_be_fetched(found[0], allow_http):
        return
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        raise ProtocolError("The server gave a malformed file URL.", table=table, file_id=file_id) from None
    if parts.scheme == "https" and host:
        return
    if parts.scheme == "http" and host and (allow_http or is_loopback(host)):
        return
    if parts.scheme == "http":
        raise ProtocolError(
            f"Expected an https URL of a data file, found http to host {host!r}; the profile's endpoint is https, so "
            "its data must be as well.",
            table=table,
            file_id=file_id,
        )
    raise ProtocolError(
        f"Expected an https URL of a data file, found scheme {parts.scheme!r}; only https is fetched.",
        table=table,
        file_id=file_id,
    )


@functools.lru_cache(maxsize=64)
def _may_be_fetched(origin: str, allow_http: bool) -> bool:
    parts = urlsplit(origin)
    return parts.scheme == "https" or allow_http or is_loopback(parts.hostname or "")


def is_http(endpoint: str) -> bool:
    """Whether the profile's ``endpoint`` is clear-text ``http:``, so that its data may be as well."""
    return urlsplit(endpoint).scheme == "http"


def is_loopback(host: str) -> bool:
    """Whether ``host`` is this machine: ``localhost``, a name below it, or a loopback address."""
    name = host.lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
