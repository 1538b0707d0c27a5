"""Authorization: the bearer token of the profile (protocol, "REST APIs")."""

from __future__ import annotations

import hmac

from delta_sharing_client.redact import Secret

from .errors import UNAUTHENTICATED, ApiError


def check_bearer(header: str | None, token: Secret) -> None:
    """Raise `ApiError` (401) for a request without ``token`` in its ``Authorization`` header."""
    scheme, _, given = (header or "").partition(" ")
    if scheme.lower() != "bearer" or not given.strip():
        raise _refused("The request has no bearer token: expected the header 'Authorization: Bearer <token>'.")
    if not hmac.compare_digest(given.strip().encode(), token.reveal().encode()):
        raise _refused("The bearer token is not the token in this server's profile.")


def _refused(message: str) -> ApiError:
    return ApiError(401, UNAUTHENTICATED, message, {"WWW-Authenticate": 'Bearer realm="delta-sharing"'})
