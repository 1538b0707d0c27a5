"""The kinds of credentials with which this client signs in, and their secrets: given, in a file, or from a function."""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
import unicodedata
from collections.abc import Callable
from typing import Union

from delta_sharing_client.errors import ProfileError
from delta_sharing_client.http.workload_identity import WorkloadIdentity
from delta_sharing_client.local_paths import expanded
from delta_sharing_client.redact import Secret

# Characters that http.client cannot send in a header, or that end a header.
_UNSENDABLE = re.compile(r"[^\x20-\x7e\xa0-\xff]")
_LINE_ENDS = "\r\n"
_MAX_SECRET_BYTES = 1 << 20


def check_sendable(text: str, what: str) -> None:
    """Raise ``ProfileError`` if ``text`` cannot be sent in a header, because it has control characters, or characters
    outside Latin-1.

    The error states ``what`` it is and the position of the character, but never ``text``.
    """
    match = _UNSENDABLE.search(text)
    if match is not None:
        is_control = unicodedata.category(match.group()) == "Cc"
        what_kind = "a control character" if is_control else "a character outside Latin-1"
        raise ProfileError(
            f"{what} contains {'a line break' if match.group() in _LINE_ENDS else what_kind} at position "
            f"{match.start() + 1} of {len(text)}, which cannot be sent in a header; copy it again, completely and "
            "without anything around it."
        )


@dataclasses.dataclass(frozen=True, slots=True)
class SecretFile:
    """A secret in a file, read each time it is needed, so that it can be rotated by writing the file."""

    path: str

    def reveal(self) -> str:
        """Return the file's content without surrounding white space; ``ProfileError`` if it cannot be read."""
        try:
            with open(expanded(self.path), "rb") as file:
                content = file.read(_MAX_SECRET_BYTES + 1)
            text = content.decode().strip() if len(content) <= _MAX_SECRET_BYTES else ""
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not valid UTF-8"
        else:
            if text:
                return text
            reason = "it is empty" if not content.strip() else f"it is longer than {_MAX_SECRET_BYTES} bytes"
        raise ProfileError(f"The file {self.path!r}, from which the profile takes a secret, cannot be used: {reason}.")


@dataclasses.dataclass(frozen=True, slots=True)
class SecretCall:
    """A secret from a function that is called each time the secret is needed. Pickles if the function does."""

    function: Callable[[], str]

    def reveal(self) -> str:
        """Return the function's result; its exceptions propagate. ``ProfileError`` unless it is a non-blank string."""
        text = self.function()
        if not isinstance(text, str) or not text.strip():
            received = "a blank one" if isinstance(text, str) else type(text).__name__
            raise ProfileError(
                f"The function from which the profile takes a secret must return a string, found {received}."
            )
        return text.strip()


SecretSource = Union[Secret, SecretFile, SecretCall, WorkloadIdentity]


@dataclasses.dataclass(frozen=True, slots=True)
class BearerToken:
    """A token sent with each request; ``expires`` is ``None`` for a token that does not expire.

    A token from a file, a function or the identity of a machine (OIDC federation) is kept until shortly before it
    expires, if it is a JWT that states its expiration.
    """

    token: SecretSource
    expires: dt.datetime | None = None

    def __post_init__(self) -> None:
        if isinstance(self.token, Secret):
            check_sendable(self.token.reveal(), "The bearer token of the profile")


@dataclasses.dataclass(frozen=True, slots=True)
class BasicLogin:
    """A user name and password sent with each request (profile version 2, type ``basic``)."""

    username: str
    password: Secret

    def __post_init__(self) -> None:
        if ":" in self.username:
            raise ProfileError("'username' of the profile contains a colon, which is not allowed (RFC 7617).")


@dataclasses.dataclass(frozen=True, slots=True)
class ClientCredentials:
    """An OAuth 2.0 client that fetches its own tokens (profile version 2, type ``oauth_client_credentials``).

    It authenticates with a secret in the header or, with ``secret_in_body``, in the body (``None``: whichever the
    endpoint accepts); or, if there is an ``assertion``, with this token from another issuer (RFC 7523, section 2.2).
    ``resource`` has the URIs that the requested token is for (RFC 8707).
    """

    token_endpoint: str = dataclasses.field(repr=False)  # its query string may contain a secret
    client_id: str
    client_secret: Secret | None
    scope: str | None = None
    audience: str | None = None
    secret_in_body: bool | None = None
    assertion: SecretSource | None = None
    resource: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class PrivateKeyJwt:
    """An OAuth 2.0 client that signs its grants (profile version 2, type ``oauth_jwt_bearer_private_key_jwt``).

    ``issuer`` is the server that receives the grant and issues the token; ``audience`` is the resource that the token
    is for.
    """

    token_endpoint: str = dataclasses.field(repr=False)  # its query string may contain a secret
    client_id: str
    issuer: str
    private_key: SecretSource
    key_id: str | None = None
    algorithm: str = "RS256"
    audience: str | None = None
    scope: str | None = None


Credentials = Union[BearerToken, BasicLogin, ClientCredentials, PrivateKeyJwt]
