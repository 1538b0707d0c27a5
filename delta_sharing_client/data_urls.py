"""Which URLs of a server's answer may be fetched at all."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from delta_sharing_client.errors import ProtocolError


def check_data_url(url: str, *, allow_http: bool, table: str | None = None, file_id: str | None = None) -> None:
    """Raise ``ProtocolError`` unless ``url`` is ``https:``, or ``http:`` to this machine or where ``allow_http``.

    A server must not make its recipients read local files or send requests in clear text. ``allow_http`` is for
    profiles whose own endpoint is ``http:`` (``is_http``). Call it before each fetch, and on each redirect.
    """
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
