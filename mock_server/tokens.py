"""Page and refresh tokens, signed so that a client can neither forge one nor use one for a different purpose."""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
import time
from typing import Any

import msgspec

from .errors import invalid


class Tokens:
    """Creates and verifies the tokens of one server."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def make(self, kind: str, content: dict[str, Any], ttl: float) -> str:
        """Return a token of ``kind`` with ``content``, valid for ``ttl`` seconds."""
        payload = msgspec.json.encode({**content, "kind": kind, "expires": time.time() + ttl})
        return base64.urlsafe_b64encode(self._sign(payload) + payload).decode().rstrip("=")

    def read(self, kind: str, token: str) -> dict[str, Any]:
        """Return the content of a token; 400 if it is from a different server, changed, of the wrong kind or
        expired."""
        try:
            raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        except (ValueError, binascii.Error):
            raw = b""
        signature, payload = raw[:16], raw[16:]
        if not hmac.compare_digest(signature, self._sign(payload)):
            raise invalid(f"Error decoding the {kind}: this server did not issue it.")
        content: dict[str, Any] = msgspec.json.decode(payload)
        if content["kind"] != kind:
            raise invalid(f"Error decoding the {kind}: it is a {content['kind']}.")
        if time.time() > content["expires"]:
            raise invalid(f"The {kind} has expired. Please restart the query.")
        return content

    def _sign(self, payload: bytes) -> bytes:
        return hmac.digest(self._key, payload, "sha256")[:16]
