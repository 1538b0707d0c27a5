"""Saves the profile of an activation link."""

from __future__ import annotations

import os
import tempfile
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

from delta_sharing_client import durable
from delta_sharing_client.errors import AuthError, ProfileError, TransportError, UsageError
from delta_sharing_client.local_paths import LocalPath, check_target, expanded
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.protocol.activation_link import request_url
from delta_sharing_client.protocol.profile import parse_profile
from delta_sharing_client.redact import hidden

DEFAULT_FILE = "config.share"
# The responses for a link that was used, has expired, or never existed.
_REFUSED = frozenset(
    {HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.GONE}
)
# More than a profile needs; the room is reserved before the link is used.
_MOST_BYTES = 1 << 16


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
        ``link`` is not an https URL, or ``file`` exists or cannot be written: the link was not used. Or the complete
        file cannot be renamed to ``file``: the message says where it is.
    AuthError
        The link was used before, or it has expired.
    ProfileError
        The response is not a profile. A JSON object is kept in ``file`` all the same.
    TransportError, ProtocolError
        No complete response arrived.

    Examples
    --------
    >>> from delta_sharing_client import SharingClient
    >>> path = activate("https://provider.example.com/activation/8d2f", "shop.share")
    >>> list(SharingClient(path))
    ['demo']
    """
    url, host = request_url(link)
    target = Path(expanded(file))
    temporary = _reserved(target, overwrite)
    try:
        content = _requested(url, host, options or ReadOptions())
        with temporary.open("r+b") as stream:
            stream.write(content)
            stream.truncate()
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return _kept(temporary, target, content, f"in the response of the activation link of '{host}'")


def _reserved(target: Path, overwrite: bool) -> Path:
    """Return a new file beside ``target``, with room for a profile, so that problems show before the link is used."""
    check_target(target)
    try:
        if target.is_dir():
            raise UsageError(f"Cannot write the profile to '{target}', which is a directory; give the name of a file.")
        if not overwrite and target.exists():
            raise UsageError(
                f"The file '{target}' exists. The link was not used; choose another file, or replace this one with "
                "overwrite=True (--overwrite)."
            )
        # Raises ValueError for a name that no system call takes.
        os.access(target, os.W_OK)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Only its owner can read a file that mkstemp creates.
        handle, name = tempfile.mkstemp(prefix=".delta-sharing-", suffix=".share", dir=target.parent)
        temporary = Path(name)
        with os.fdopen(handle, "wb") as stream:
            # A full disk must be noticed before the link is used.
            stream.write(bytes(_MOST_BYTES))
    except UsageError:
        raise
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"Cannot write {str(target)!r}: {reason}. The link was not used.") from None
    return temporary


def _kept(temporary: Path, target: Path, content: bytes, where: str) -> Path:
    """Give the written response its name, and return it; a response without credentials is dropped."""
    is_object = content.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")
    if not is_object:
        temporary.unlink()
    else:
        # Before it is parsed, because nobody can request it again.
        try:
            durable.replace(temporary, target)
        except OSError as error:
            # Some files cannot be replaced, such as one that is mounted into a container.
            raise UsageError(
                f"The profile is in '{temporary}', because '{target}' cannot be written: {error.strerror}. Move it: "
                "the link works no more."
            ) from None
    try:
        parse_profile(content, where)
    except ProfileError as error:
        kept = f" The response is in '{target}'." if is_object else ""
        raise ProfileError(f"{error.message}{kept}") from None
    return target


def _requested(url: str, host: str, options: ReadOptions) -> bytes:
    # Imported here, because requests takes longer than the checks above.
    from delta_sharing_client.http.sessions import fetched

    doing = f"Activating the link of '{host}'"
    parts = urlsplit(url)
    with hidden(f"{parts.path}?{parts.query}" if parts.query else parts.path):
        status, body = fetched(url, options, doing, limit=_MOST_BYTES)
    if status in _REFUSED:
        raise AuthError(
            f"{doing} failed: the link is not valid (HTTP status {status}). A link works once, and only for some time; "
            "ask the data provider for a new one.",
            status=status,
        )
    if status != HTTPStatus.OK:
        raise TransportError(f"{doing} failed: the server responds with HTTP status {status}.")
    return body
