"""Signed URLs of data files. Each is valid for one file and one use, until it expires.

The query string looks like the one of an S3 pre-signed URL (``X-Amz-Date``, ``X-Amz-Expires``, ``X-Amz-Signature``
...), because existing clients recognise pre-signed URLs by these parameters. The signature is different: HMAC-SHA256
over the decoded path and the parameters. So a client may percent-encode the path differently, but cannot change it to
the path of a different file.
"""

from __future__ import annotations

import enum
import hmac
import math
import re
import secrets
import time
from collections.abc import Callable
from urllib.parse import parse_qsl, quote, unquote_to_bytes

_PLAIN_PATH = re.compile(r"[A-Za-z0-9/_.=~-]+").fullmatch
_ALGORITHM = "AWS4-HMAC-SHA256"

# The first segment of a data URL's path. The table's id follows, and then a path, which is relative to the table's
# directory, or absolute.
RELATIVE = "data"
ABSOLUTE = "absolute"


class Use(enum.Enum):
    """The purpose of a URL; a file has a different signature for each."""

    ADD = "add"
    REMOVE = "remove"
    CDC = "cdc"
    DELETION_VECTOR = "dv"


class SignatureProblem(enum.Enum):
    """Why a data URL is refused."""

    MISSING = "missing"
    EXPIRED = "expired"
    WRONG = "wrong"


class Signer:
    """Signs and checks data URLs.

    Parameters
    ----------
    ttl:
        Minimum seconds for which a URL is valid; it expires less than one second later.
    """

    def __init__(self, ttl: float) -> None:
        self.ttl = ttl
        self._key = secrets.token_bytes(32)
        self._generation = 0

    def expire_all(self) -> None:
        """Expire all URLs that exist now."""
        self._generation += 1

    def grant(self, origin: str, table_id: str, *, expired: bool = False) -> Grant:
        """Return a grant for the URLs of one response; ``origin`` is their scheme and host, ``https://host:port``.

        With ``expired``, the URLs have already expired.
        """
        now = time.time()
        if expired:
            now -= self.ttl + 60
        issued = int(now)
        lifetime = math.ceil(self.ttl + (now - issued))
        return Grant(self._key, origin, table_id, issued, lifetime, self._generation)

    def check(self, path: bytes, query: bytes) -> SignatureProblem | None:
        """Return why ``path`` (percent-encoded) with ``query`` is refused; ``None`` if it is valid."""
        given = dict(parse_qsl(query.decode("latin-1")))
        try:
            issued = int(given["X-Amz-Security-Token"].partition(".")[0])
            lifetime = int(given["X-Amz-Expires"])
            generation = int(given["X-Amz-Security-Token"].partition(".")[2])
            use, signature = given["x-id"], given["X-Amz-Signature"]
        except (KeyError, ValueError):
            return SignatureProblem.MISSING
        expected = _sign(self._key, _claims(issued, lifetime, generation, use), unquote_to_bytes(path))
        # The signatures are compared as bytes, because ``compare_digest`` raises an error for strings that are not
        # ASCII.
        if not hmac.compare_digest(expected.encode(), signature.lower().encode("utf-8", "replace")):
            return SignatureProblem.WRONG
        if time.time() >= issued + lifetime or generation < self._generation:
            return SignatureProblem.EXPIRED
        return None


class Grant:
    """Signs the URLs of one response; all expire at ``expires_ms``, in milliseconds since the epoch."""

    def __init__(self, key: bytes, origin: str, table_id: str, issued: int, lifetime: int, generation: int) -> None:
        self.expires_ms = (issued + lifetime) * 1000
        self._key = key
        self._relative = f"{origin}/{RELATIVE}/{table_id}/"
        self._absolute = f"{origin}/{ABSOLUTE}/{table_id}"
        date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(issued))
        constant = (
            f"?X-Amz-Algorithm={_ALGORITHM}&X-Amz-Credential=mock%2F{date[:8]}%2Flocal%2Fs3%2Faws4_request"
            f"&X-Amz-Date={date}&X-Amz-Expires={lifetime}&X-Amz-Security-Token={issued}.{generation}"
            "&X-Amz-SignedHeaders=host&x-id="
        )
        self._tails = {use: f"{constant}{use.value}&X-Amz-Signature=" for use in Use}
        self._claims = {use: _claims(issued, lifetime, generation, use.value) for use in Use}
        self._table_id = table_id

    def url(self, path: str, use: Use) -> str:
        """Return the signed URL of a file; ``path`` is relative to the table or absolute, and not percent-encoded."""
        return self.signer(use)(path)

    def signer(self, use: Use) -> Callable[[str], str]:
        """Return a function like `url` for one use. Everything but the path is prepared, because it is called for a
        million files."""
        key, tail, digest = self._key, self._tails[use], hmac.digest
        relative, absolute = self._relative, self._absolute
        relative_claims = self._claims[use] + f"/{RELATIVE}/{self._table_id}/".encode()
        absolute_claims = self._claims[use] + f"/{ABSOLUTE}/{self._table_id}".encode()

        def url(path: str) -> str:
            raw = path.encode("utf-8", "surrogateescape")
            encoded = path if _PLAIN_PATH(path) else quote(raw)
            if path.startswith("/"):
                return f"{absolute}{encoded}{tail}{digest(key, absolute_claims + raw, 'sha256').hex()}"
            return f"{relative}{encoded}{tail}{digest(key, relative_claims + raw, 'sha256').hex()}"

        return url


def _claims(issued: int, lifetime: int, generation: int, use: str) -> bytes:
    return f"{issued}\n{lifetime}\n{generation}\n{use}\n".encode()


def _sign(key: bytes, claims: bytes, path: bytes) -> str:
    return hmac.digest(key, claims + path, "sha256").hex()
