"""Saves the profile of an activation link."""

from __future__ import annotations

import os
import tempfile
from http import HTTPStatus
from pathlib import Path

from delta_sharing_client import durable
from delta_sharing_client.errors import AuthError, ProfileError, TransportError, UsageError
from delta_sharing_client.local_paths import LocalPath, check_target, expanded
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.protocol.activation_link import request_url
from delta_sharing_client.protocol.profile import MAX_PROFILE_BYTES, parse_profile

DEFAULT_FILE = "config.share"
# The responses for a link that was used, has expired, or never existed.
_REFUSED = frozenset(
    {HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.GONE}
)
# More than a profile needs.
_RESERVED_BYTES = 1 << 16


def activate(
    link: str, file: LocalPath = DEFAULT_FILE, *, overwrite: bool = False, options: ReadOptions | None = None
) -> Path:
    """Request an activation link, which responds only once, and write the profile in its response to ``file``.

    Parameters
    ----------
    link:
        The https URL that the data provider sent. It is a secret, and no message shows it.
    file:
        Where to write the profile, so that only you can read it. Missing directories are created.
    overwrite:
        Whether to replace an existing file, for example because its token has expired.
    options:
        Proxy, certificates and time limits.

    Returns
    -------
    pathlib.Path
        The written file, which can be used as a profile.

    Raises
    ------
    UsageError
        ``link`` is not an https URL, or ``file`` exists or cannot be written. The link was not used.
    AuthError
        The link was used before, or it has expired.
    ProfileError
        The response is not a profile. A JSON object is kept in ``file`` all the same.
    TransportError, ProtocolError
        No complete response arrived.

    Examples
    --------
    >>> path = ds.activate("https://provider.example.com/activation/8d2f", "shop.share")  # doctest: +SKIP
    >>> client = ds.SharingClient(path)  # doctest: +SKIP
    """
    url, host = request_url(link)
    target = Path(expanded(file))
    temporary = _reserved(target, overwrite)
    try:
        content = _requested(url, host, options or ReadOptions())
        with temporary.open("r+b") as stream:
            stream.write(content)
            stream.truncate()
        return _kept(temporary, target, content, f"in the response of the activation link of '{host}'")
    finally:
        temporary.unlink(missing_ok=True)


def _reserved(target: Path, overwrite: bool) -> Path:
    """Return a new file beside ``target``, with room for a profile, so that problems show before the link is used."""
    check_target(target)
    if target.is_dir():
        raise UsageError(f"Cannot write the profile to '{target}', which is a directory; give the name of a file.")
    if not overwrite and target.exists():
        raise UsageError(
            f"The file '{target}' exists. The link was not used; choose another file, or replace this one with "
            "overwrite=True (--overwrite)."
        )
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Only its owner can read a file that mkstemp creates.
        handle, name = tempfile.mkstemp(prefix=".delta-sharing-", dir=target.parent)
        temporary = Path(name)
        with os.fdopen(handle, "wb") as stream:
            # A full disk must be noticed before the link is used.
            stream.write(bytes(_RESERVED_BYTES))
    except OSError as error:
        raise UsageError(f"Cannot write '{target}': {error.strerror}. The link was not used.") from None
    return temporary


def _requested(url: str, host: str, options: ReadOptions) -> bytes:
    # Imported here, because requests takes longer than the checks above.
    from delta_sharing_client.http.sessions import fetched

    doing = f"Activating the link of '{host}'"
    status, body = fetched(url, options, doing, limit=MAX_PROFILE_BYTES)
    if status in _REFUSED:
        raise AuthError(
            f"{doing} failed: the link is not valid (HTTP status {status}). A link works once, and only for some time; "
            "ask the data provider for a new one.",
            status=status,
        )
    if status != HTTPStatus.OK:
        raise TransportError(f"{doing} failed: the server responds with HTTP status {status}.")
    return body


def _kept(temporary: Path, target: Path, content: bytes, where: str) -> Path:
    """Rename the written response, and return its path; a response without credentials is dropped."""
    is_object = content.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")
    if is_object:
        # Before it is parsed, because nobody can request it again.
        durable.replace(temporary, target)
    try:
        parse_profile(content, where)
    except ProfileError as error:
        kept = f" The response is in '{target}'." if is_object else ""
        raise ProfileError(f"{error.message}{kept}") from None
    return target
