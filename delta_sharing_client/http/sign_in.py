"""Sign-in: credentials as a header.

A process requests only one token for the same credentials: one thread fetches it, and all requests
with these credentials use it.
"""

from __future__ import annotations

import abc
import base64
import copy
import dataclasses
import datetime as dt
import json
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Union
from urllib.parse import quote_plus, urlsplit

import msgspec

from delta_sharing_client import optional
from delta_sharing_client.errors import AuthError, DeltaSharingError, ProfileError
from delta_sharing_client.http.error_responses import Refusal, error_of, html_page
from delta_sharing_client.http.logins import (
    BasicLogin,
    BearerToken,
    ClientCredentials,
    Credentials,
    PrivateKeyJwt,
    check_sendable,
)
from delta_sharing_client.http.network import Reach, beside, leads_here
from delta_sharing_client.http.request_limits import RequestLimits
from delta_sharing_client.http.retry import (
    RETRIED_STATUSES,
    Deadline,
    Transient,
    Tries,
    retry_after,
)
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.redact import Secret

_RENEWAL_SHARE = 0.1  # a token is renewed when a tenth of its life remains,
_RENEWAL_SECONDS = 60.0  # but never earlier than this before its end
_LIFE_IF_UNKNOWN = 300.0
_ASSERTION_SECONDS = 120
_MAX_TOKEN_BYTES = 1 << 20
_MAX_TOKENS = 64
_MAX_MESSAGE = 500
_ASK_FOR_NEW = "ask the data provider for a new profile file"

# The fields of a form; a name may have several values.
_Form = dict[str, Union[str, tuple[str, ...]]]

_log = logging.getLogger(__name__)


def make_auth(credentials: Credentials, endpoint: str, options: ReadOptions) -> SharingAuth:
    """Return the authentication with ``credentials`` at the server's ``endpoint``; ``options`` has the limits for token
    requests."""
    if isinstance(credentials, BasicLogin):
        return BasicAuth(credentials)
    if isinstance(credentials, BearerToken) and isinstance(credentials.token, Secret):
        return BearerAuth(credentials, credentials.token)
    return TokenAuth(credentials, endpoint, options)


class SharingAuth(abc.ABC):
    """The ``Authorization`` header of each request. Thread-safe; pickles with its credentials."""

    @abc.abstractmethod
    def header(self) -> str:
        """Return the header's value. Raises ``AuthError`` if the token has expired, or none can be had."""

    def renew(self, refused: str | None) -> bool:
        """Return whether, after a 401 for the header ``refused``, a repeated request would send a different one."""
        return False

    @abc.abstractmethod
    def secrets(self) -> list[str]:
        """Return the strings that must never be shown, in every form in which they are sent."""

    @abc.abstractmethod
    def hint(self) -> str:
        """Return advice for the user after a 401."""


class BearerAuth(SharingAuth):
    """A fixed bearer token; after its stated expiration, requests fail before they are sent."""

    def __init__(self, credentials: BearerToken, token: Secret) -> None:
        self._expires = credentials.expires
        self._token = token

    def header(self) -> str:
        _check_expiration(self._expires)
        return f"Bearer {self._token.reveal()}"

    def secrets(self) -> list[str]:
        return [self._token.reveal()]

    def hint(self) -> str:
        expires = self._expires
        stated = "The token may have expired"
        if expires:
            stated = f"According to the profile, the token expires at {expires.isoformat()}"
        return f"{stated}; {_ASK_FOR_NEW}."


class BasicAuth(SharingAuth):
    """A user name and password, sent with each request (RFC 7617, in UTF-8)."""

    def __init__(self, credentials: BasicLogin) -> None:
        self._credentials = credentials

    def header(self) -> str:
        return _basic(self._credentials.username, self._credentials.password)

    def secrets(self) -> list[str]:
        return [self.header().removeprefix("Basic "), self._credentials.password.reveal()]

    def hint(self) -> str:
        return "Check the user name and password of the profile."


# === Tokens from an endpoint ===


@dataclasses.dataclass(frozen=True, slots=True)
class _Token:
    """A bearer token with its times of renewal and expiration, in seconds of ``time.time()``."""

    value: Secret
    renew_at: float
    ends_at: float

    @classmethod
    def living(cls, text: str, asked_at: float, life: float) -> _Token:
        margin = min(_RENEWAL_SECONDS, life * _RENEWAL_SHARE)
        return cls(Secret(text), asked_at + life - margin, asked_at + life)


class _SharedToken:
    """The token for some credentials, which all threads of a process share."""

    def __init__(self, token: _Token | None = None) -> None:
        self.token = token
        self.way: int | None = None  # if there are several ways to authenticate, the accepted one
        self._fetching = threading.Lock()
        self._failure: DeltaSharingError | None = None

    def get(self, fetch: Callable[[], _Token]) -> Secret:
        """Return a valid token; call ``fetch`` if necessary.

        One thread fetches. The others keep using a token that is about to expire; without one, they wait for the result
        of that thread, which may be an error, so only one thread sends requests to an endpoint that is down.
        """
        token, before = self.token, self._failure
        if token is not None and time.time() < token.renew_at:
            return token.value
        usable = token is not None and time.time() < token.ends_at
        if not self._fetching.acquire(blocking=not usable):
            return token.value  # type: ignore[union-attr]
        try:
            if self.token is not token and self.token is not None:
                return self.token.value
            if self._failure is not None and self._failure is not before:
                raise copy.copy(self._failure)
            return self._fetched(fetch, token if usable else None).value
        finally:
            self._fetching.release()

    def drop(self, refused: str | None) -> None:
        """Discard the token if it is the one that the header ``refused`` contains."""
        token = self.token
        if token is not None and refused == f"Bearer {token.value.reveal()}":
            self.token = None

    def _fetched(self, fetch: Callable[[], _Token], usable: _Token | None) -> _Token:
        try:
            self.token = token = fetch()
        except DeltaSharingError as error:
            if usable is None:
                self._failure = error
                raise
            _log.warning("A token that is about to expire could not be renewed; it is used until it expires: %s", error)
            now = time.time()
            self.token = token = dataclasses.replace(usable, renew_at=now + (usable.ends_at - now) / 2)
        return token


_tokens: dict[Credentials, _SharedToken] = {}
_tokens_lock = threading.Lock()


def _shared_token(credentials: Credentials) -> _SharedToken:
    with _tokens_lock:
        shared = _tokens.get(credentials)
        if shared is None:
            if len(_tokens) >= _MAX_TOKENS:
                del _tokens[next(iter(_tokens))]
            shared = _tokens[credentials] = _SharedToken()
        return shared


def _after_fork() -> None:
    # In the child, a lock held by another thread would never be released.
    global _tokens_lock
    _tokens_lock = threading.Lock()
    for credentials, shared in list(_tokens.items()):
        _tokens[credentials] = _SharedToken(shared.token)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class TokenAuth(SharingAuth):
    """A token from a token endpoint, a file or a function, fetched once per process and renewed shortly before it
    expires."""

    def __init__(self, credentials: Credentials, endpoint: str, options: ReadOptions) -> None:
        self._credentials = credentials
        self._endpoint = endpoint
        self._options = options

    def header(self) -> str:
        return f"Bearer {_shared_token(self._credentials).get(self._fetch).reveal()}"

    def renew(self, refused: str | None) -> bool:
        _shared_token(self._credentials).drop(refused)
        return True

    def secrets(self) -> list[str]:
        credentials, token = self._credentials, _shared_token(self._credentials).token
        texts = [] if token is None else [token.value.reveal()]
        if isinstance(credentials, ClientCredentials) and credentials.client_secret is not None:
            texts += [header.removeprefix("Basic ") for header in _basic_headers(credentials)]
            texts.append(credentials.client_secret.reveal())
        return texts

    def hint(self) -> str:
        if isinstance(self._credentials, BearerToken):
            return "Check the file, function or identity that provides the token of the profile."
        return "The token endpoint returned a token that the server does not accept; ask the data provider."

    def _fetch(self) -> _Token:
        credentials = self._credentials
        if isinstance(credentials, BearerToken):
            _check_expiration(credentials.expires)
            text = credentials.token.reveal()
            check_sendable(text, "The bearer token of the profile")
            now = time.time()
            return _Token.living(text, now, _life_of_jwt(text, now))
        deadline = Deadline(self._options.total_timeout)
        return Tries(self._options, deadline).call(lambda: self._attempt(deadline))

    def _attempt(self, deadline: Deadline) -> _Token:
        shared = _shared_token(self._credentials)
        ways = _grants(self._credentials)
        refused: AuthError | None = None
        for way in range(len(ways)) if shared.way is None else (shared.way,):
            try:
                token = self._ask(*ways[way], deadline)
            except AuthError as error:
                refused = refused or error
                if error.status not in (400, 401, 403):
                    break
            else:
                shared.way = way
                return token
        assert refused is not None
        raise refused

    def _ask(self, header: dict[str, str], form: _Form, deadline: Deadline) -> _Token:
        # Imported here, because requests is slow to import.
        from delta_sharing_client.http.sessions import exchange

        asked_at = time.time()
        url: str = self._credentials.token_endpoint  # type: ignore[union-attr]
        reach = _reach(url, self._endpoint)
        limits = RequestLimits(self._options, deadline, "Fetching an OAuth token", None, reach=reach)
        headers = {"Accept": "application/json", **header}
        response, body = exchange("POST", url, limits, limit=_MAX_TOKEN_BYTES, headers=headers, data=form)
        token = _decode_token(body)
        status = response.status
        if not 200 <= status < 300 or token is None or not token.access_token:
            # Assertions are credentials, too, until they expire.
            secrets = [*self.secrets(), str(form.get("assertion", "")), str(form.get("client_assertion", ""))]
            is_ours = status >= 300 or error_of(body) != (None, None) or html_page(body) is not None
            refusal = Refusal.read(status, body if is_ours else b"", secrets, response.headers.get("WWW-Authenticate"))
            error = AuthError(_failure(refusal), status=status, error_code=refusal.code)
            if status in RETRIED_STATUSES:
                raise Transient(error, retry_after(response.headers.get("Retry-After")))
            raise error
        try:
            check_sendable(token.access_token, "The token from the token endpoint of the profile")
        except ProfileError as unusable:
            raise AuthError(unusable.message, status=status) from None
        return _Token.living(token.access_token, asked_at, _seconds(token.expires_in))


def _reach(url: str, endpoint: str) -> Reach:
    """Return the addresses to which the token request to ``url`` may connect."""
    allowed = beside(endpoint)
    if not allowed.loopback:
        # Over TLS, a service of this machine cannot impersonate another host. If the server is on this machine, its
        # token endpoint may be as well.
        is_safe = url.startswith("https:") or leads_here(urlsplit(endpoint).hostname or "")
        return Reach.ANY if is_safe else Reach.REMOTE
    return allowed.reach(url)


class _TokenResponse(msgspec.Struct):
    access_token: str | None = None
    expires_in: Any = None


def _failure(refusal: Refusal) -> str:
    message = " ".join(refusal.message.split())
    said = [refusal.code, message[:_MAX_MESSAGE].rstrip(".")]
    reason = ": ".join(part for part in said if part) or "the response has no 'access_token'"
    return (
        f"The token endpoint of the profile returned no token ({refusal.status}): {reason}. Check the fields of "
        "the profile: client id, secret or key, scope, audience and resource."
    )


def _grants(credentials: Credentials) -> list[tuple[dict[str, str], _Form]]:
    """Return the token requests to try in turn, each as its ``Authorization`` header, if any, and its form.

    There are several if the profile does not state how the client sends its secret.
    """
    if isinstance(credentials, PrivateKeyJwt):
        assertion = _signed(credentials)
        return [({}, {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": assertion})]
    assert isinstance(credentials, ClientCredentials), (
        f"credentials of the kind {type(credentials).__name__} fetch no token"
    )
    named = (("scope", credentials.scope), ("audience", credentials.audience), ("resource", credentials.resource))
    form: _Form = {"grant_type": "client_credentials"}
    form.update((name, value) for name, value in named if value)
    client: _Form = {"client_id": credentials.client_id}
    if credentials.assertion is not None:
        kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
        return [
            ({}, form | client | {"client_assertion_type": kind, "client_assertion": credentials.assertion.reveal()})
        ]
    assert credentials.client_secret is not None, "a profile has a secret or an assertion"
    ways = (
        []
        if credentials.secret_in_body
        else [({"Authorization": header}, form) for header in _basic_headers(credentials)]
    )
    # RFC 6749, 2.3.1: every server must accept the header, and may accept the body. Some accept only the body.
    if credentials.secret_in_body is not False:
        ways.append(({}, form | client | {"client_secret": credentials.client_secret.reveal()}))
    return ways


def _basic_headers(credentials: ClientCredentials) -> list[str]:
    """Return the two forms of the header with a client secret: not encoded, as connectors send it, and encoded as in
    RFC 6749, 2.3.1."""
    assert credentials.client_secret is not None
    encoded = Secret(quote_plus(credentials.client_secret.reveal()))
    return list(
        dict.fromkeys(
            (
                _basic(credentials.client_id, credentials.client_secret),
                _basic(quote_plus(credentials.client_id), encoded),
            )
        )
    )


def _signed(credentials: PrivateKeyJwt) -> str:
    """Return the signed grant (RFC 7523, section 2.1), in the form that connectors use."""
    jwt = optional.load("jwt", "jwt")
    now = int(time.time())
    claims: dict[str, object] = {
        "aud": credentials.issuer,
        "iss": credentials.client_id,
        "iat": now,
        "exp": now + _ASSERTION_SECONDS,
        "jti": str(uuid.uuid4()),
    }
    claims |= {
        name: value for name, value in (("scope", credentials.scope), ("resource", credentials.audience)) if value
    }
    headers = {"kid": credentials.key_id} if credentials.key_id else None
    key = credentials.private_key.reveal()
    try:
        return str(jwt.encode(claims, key, algorithm=credentials.algorithm, headers=headers))
    except (ValueError, TypeError, NotImplementedError, jwt.PyJWTError) as error:
        kind = type(error).__name__
    raise ProfileError(
        f"The private key of the profile cannot sign with {credentials.algorithm} ({kind}); expected an unencrypted "
        f"{'RSA' if credentials.algorithm.startswith('R') else 'P-256'} key in PEM format."
    )


def _check_expiration(expires: dt.datetime | None) -> None:
    if expires is not None and expires.timestamp() <= time.time():
        raise AuthError(f"The bearer token of the profile expired at {expires.isoformat()}; {_ASK_FOR_NEW}.")


def _basic(user: str, password: Secret) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password.reveal()}".encode()).decode("ascii")


def _decode_token(body: bytes) -> _TokenResponse | None:
    try:
        return msgspec.json.decode(body, type=_TokenResponse)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _seconds(expires_in: object) -> float:
    try:
        life = float(expires_in)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return _LIFE_IF_UNKNOWN
    return life if 0 < life < 10**9 else _LIFE_IF_UNKNOWN


def _life_of_jwt(text: str, now: float) -> float:
    """Return how many seconds a token remains valid by its claim ``exp``; only the server checks its signature."""
    try:
        # Superfluous padding is ignored.
        claims = json.loads(base64.urlsafe_b64decode(text.split(".")[1] + "==="))
    except (IndexError, ValueError, RecursionError):
        return _LIFE_IF_UNKNOWN
    ends = claims.get("exp") if isinstance(claims, Mapping) else None
    return _seconds(ends - now) if isinstance(ends, (int, float)) else _LIFE_IF_UNKNOWN
