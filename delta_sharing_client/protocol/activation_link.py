"""What an activation link looks like: a URL that responds once with a profile.

OpenSharing's reference server and Databricks send such links; no protocol describes them.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from delta_sharing_client.errors import ProfileError, UsageError
from delta_sharing_client.http.network import is_loopback

# Databricks' link opens a page, whose script then sends a request to this endpoint.
_PAGE = re.compile(r"(https?://[^/?#]+)/delta_sharing/retrieve_config\.html\?(?:token=)?([A-Za-z0-9_.~-]+)")
_ENDPOINT = "/api/2.1/unity-catalog/public/data_sharing_activation/"
_ENDPOINTS = re.compile(r"/api/2\.\d/unity-catalog/public/data_sharing_activation/")


def request_url(link: object) -> tuple[str, str]:
    """Return the URL to request for ``link``, and its host, which may be shown; the URL is a secret.

    Raises ``UsageError`` if ``link`` is not an https URL (or an http URL of this machine).
    """
    if not isinstance(link, str):
        raise UsageError(f"Expected an activation link as a string, found {type(link).__name__}.")
    link = link.strip()
    try:
        parts = urlsplit(link)
        host = parts.hostname or ""
    except ValueError:
        host = ""
    if not host or parts.scheme not in ("https", "http"):
        raise UsageError("Expected an activation link, which begins with https://, as the data provider sent it.")
    if parts.scheme == "http" and not is_loopback(host):
        raise UsageError(f"The activation link begins with http://{host}, but a profile may only be sent over https.")
    page = _PAGE.fullmatch(link)
    return (link if page is None else f"{page[1]}{_ENDPOINT}{page[2]}"), host


def refuse_one_time(url: str) -> None:
    """Raise ``ProfileError`` if ``url`` is known to respond only once, so that its only response is not lost."""
    parts = urlsplit(url)
    if _PAGE.match(url) or _ENDPOINTS.match(parts.path):
        raise ProfileError(
            f"The profile's URL, on '{parts.hostname}', is an activation link, which works only once. Save the profile "
            "to a file first: delta-sharing profile activate LINK FILE, or delta_sharing_client.activate(link, file)."
        )
