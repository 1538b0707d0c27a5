"""A profile's credentials as ``requests`` authentication.

Always set as an auth object, never as a session header: only then does requests leave ``~/.netrc`` alone.
"""

from __future__ import annotations

import base64
import datetime as dt
import threading
import time
from typing import Any

import msgspec
import requests
import requests.auth

from delta_sharing_client.connections import Session
from delta_sharing_client.errors import AuthError, ProfileError
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.protocol.profile import BasicLogin, BearerToken, ClientCredentials, Profile
from delta_sharing_client.redact import Secret, scrub
from delta_sharing_client.retry import (
    LIBRARY_ERRORS,
    RETRIED_STATUSES,
    RetryPolicy,
    Transient,
    network_failure,
    retry_after,
)

_RENEWAL_SHARE = 0.1  # a token is renewed when a tenth of its life is left,
_RENEWAL_SECONDS = 60.0  # but never earlier than this before its end
_LIFE_IF_UNKNOWN = 300.0


class SharingAuth(requests.auth.AuthBase):
    """Puts the ``Authorization`` header on each request. Thread-safe; pickles with its credentials."""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = self.header()
        return request

    def header(self) -> str:
        """Return the header's value. Raises ``ProfileError`` (expired) or ``AuthError`` (no token was given out)."""
        raise NotImplementedError

    def renew(self, refused: str | None) -> bool:
        """After a 401 for the header ``refused``: whether another header will be sent if the request is repeated."""
        return False

    def secrets(self) -> list[str]:
        """Return what must never be shown, in every spelling that goes on the wire."""
        return []

    def hint(self) -> str:
        """Return what a person should do about a 401."""
        return "Ask the data provider for a new profile file."


class BearerAuth(SharingAuth):
    """A fixed bearer token; using it after its stated expiration is an error before any request is made."""

    def __init__(self, credentials: BearerToken) -> None:
        self._credentials = credentials

    def header(self) -> str:
        expires = self._credentials.expires
        if expires is not None and expires <= dt.datetime.now(dt.timezone.utc):
            raise ProfileError(
                f"The bearer token of the profile expired at {expires.isoformat()}; "
                "ask the data provider for a new profile file."
            )
        return f"Bearer {self._credentials.token.reveal()}"

    def secrets(self) -> list[str]:
        return [self._credentials.token.reveal()]

    def hint(self) -> str:
        expires = self._credentials.expires
        stated = f"The profile states {expires.isoformat()} as expiration" if expires else "The token may have expired"
        return f"{stated}; ask the data provider for a new profile file."


class BasicAuth(SharingAuth):
    """User name and password with each request (RFC 7617, UTF-8)."""

    def __init__(self, credentials: BasicLogin) -> None:
        self._credentials = credentials

    def header(self) -> str:
        return _basic(self._credentials.username, self._credentials.password)

    def secrets(self) -> list[str]:
        return [self.header().removeprefix("Basic "), self._credentials.password.reveal()]

    def hint(self) -> str:
        return "Check the user name and password of the profile."


class _TokenAnswer(msgspec.Struct):
    access_token: str | None = None
    expires_in: Any = None
    error: str | None = None
    error_description: str | None = None


class _Token:
    __slots__ = ("renew_at", "value")

    def __init__(self, value: Secret, renew_at: float) -> None:
        self.value = value
        self.renew_at = renew_at


class ClientCredentialsAuth(SharingAuth):
    """OAuth 2.0 client credentials (RFC 6749, 4.4): one token for all threads, renewed shortly before it ends."""

    def __init__(self, credentials: ClientCredentials, options: ReadOptions) -> None:
        self._credentials = credentials
        self._options = options
        self._lock = threading.Lock()
        self._token: _Token | None = None

    def __getstate__(self) -> tuple[ClientCredentials, ReadOptions]:
        return self._credentials, self._options

    def __setstate__(self, state: tuple[ClientCredentials, ReadOptions]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def header(self) -> str:
        # The lock is held during the request, so that many threads ask for one token.
        with self._lock:
            if self._token is None or time.time() >= self._token.renew_at:
                self._token = self._fetch()
            return f"Bearer {self._token.value.reveal()}"

    def renew(self, refused: str | None) -> bool:
        with self._lock:
            if self._token is not None and refused == f"Bearer {self._token.value.reveal()}":
                self._token = None
        return True

    def secrets(self) -> list[str]:
        token = self._token
        given = self._credentials
        basic = _basic(given.client_id, given.client_secret).removeprefix("Basic ")
        return [basic, given.client_secret.reveal()] + ([token.value.reveal()] if token else [])

    def hint(self) -> str:
        return "The token endpoint gave out a token that the server does not accept; ask the data provider."

    def _fetch(self) -> _Token:
        return RetryPolicy.of(self._options).call(self._attempt)

    def _attempt(self) -> _Token:
        given = self._credentials
        form = {"grant_type": "client_credentials"} | ({"scope": given.scope} if given.scope else {})
        asked_at = time.time()
        try:
            with Session() as session:
                response = session.post(
                    given.token_endpoint,
                    data=form,
                    headers={"Accept": "application/json"},
                    auth=_FixedHeader(_basic(given.client_id, given.client_secret)),
                    timeout=(self._options.connect_timeout, self._options.read_timeout),
                    # A redirect could carry the secret elsewhere, and would turn the POST into a GET.
                    allow_redirects=False,
                )
        except LIBRARY_ERRORS as error:
            raise network_failure(error, "Fetching an OAuth token", None) from None
        if response.status_code in RETRIED_STATUSES:
            problem = AuthError(self._failure(response), status=response.status_code)
            raise Transient(problem, retry_after(response.headers.get("Retry-After")))
        answer = _decode_token(response.content)
        if response.status_code != 200 or answer is None or not answer.access_token:
            raise AuthError(
                self._failure(response), status=response.status_code, error_code=answer.error if answer else None
            )
        life = _seconds(answer.expires_in)
        return _Token(Secret(answer.access_token), asked_at + life - min(_RENEWAL_SECONDS, life * _RENEWAL_SHARE))

    def _failure(self, response: requests.Response) -> str:
        answer = _decode_token(response.content)
        said = [answer.error, answer.error_description] if answer else []
        reason = ": ".join(part for part in said if part) or "the answer holds no access_token"
        return (
            f"The token endpoint of the profile gave no token ({response.status_code}): "
            f"{scrub(reason, self.secrets())[:300]}. Check clientId, clientSecret and scope of the profile."
        )


class _FixedHeader(requests.auth.AuthBase):
    def __init__(self, header: str) -> None:
        self._header = header

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = self._header
        return request


def make_auth(profile: Profile, options: ReadOptions) -> SharingAuth:
    """Return the authentication that ``profile`` asks for; ``options`` hold the limits of fetching tokens."""
    credentials = profile.credentials
    if isinstance(credentials, BearerToken):
        return BearerAuth(credentials)
    if isinstance(credentials, BasicLogin):
        return BasicAuth(credentials)
    return ClientCredentialsAuth(credentials, options)


def _basic(user: str, password: Secret) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password.reveal()}".encode()).decode("ascii")


def _decode_token(body: bytes) -> _TokenAnswer | None:
    try:
        return msgspec.json.decode(body, type=_TokenAnswer)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _seconds(expires_in: object) -> float:
    try:
        life = float(expires_in)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return _LIFE_IF_UNKNOWN
    return life if 0 < life < 10**9 else _LIFE_IF_UNKNOWN
