"""HTTP requests to the sharing server: sign-in, retries, redirects, and errors as our exceptions."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import logging
import os
import platform
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from delta_sharing_client import __version__, forks
from delta_sharing_client.errors import (
    DeltaSharingError,
    ProfileError,
    ProtocolError,
    RequestError,
    TransportError,
    UsageError,
    within_limits,
)
from delta_sharing_client.http.body import ACCEPTED_ENCODINGS, Response, body_chunks, start_of_body
from delta_sharing_client.http.error_responses import Refusal
from delta_sharing_client.http.network import (
    MAX_REDIRECTS,
    REDIRECTS,
    Allowed,
    Reach,
    is_loopback,
    leads_here,
    redirected,
    unfetchable,
)
from delta_sharing_client.http.request_limits import Interrupt, RequestLimits
from delta_sharing_client.http.retry import RETRIED_STATUSES, Deadline, Transient, Tries, retry_after
from delta_sharing_client.http.sign_in import make_auth
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.protocol.profile import Profile
from delta_sharing_client.redact import printable, safe_url

if TYPE_CHECKING:
    from delta_sharing_client.http.sessions import Sessions

# Headers that a request sets itself, and hop-by-hop headers (RFC 9110).
_OWN_HEADERS = frozenset(
    (
        *("accept-encoding", "authorization", "connection", "content-encoding", "content-length", "content-type"),
        *("delta-sharing-capabilities", "expect", "host", "te", "trailer", "transfer-encoding", "upgrade"),
        "user-agent",
    )
)
_HEADERS_VARIABLE = "DELTA_SHARING_HEADERS"
_AGENT_VARIABLE = "DELTA_SHARING_USER_AGENT"
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]+")
_MAX_ERROR_BYTES = 64 * 1024
_MAX_JSON_BYTES = 256 * 1024 * 1024
# The statuses of a server that is busy, not wrong.
_PATIENCE = (429, 503)

_log = logging.getLogger(__name__)

T = TypeVar("T")
TransportT = TypeVar("TransportT", bound="Transport")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request to the sharing server.

    ``path`` has the unencoded segments below the endpoint; ``doing`` describes the request in messages; ``table``
    is named in errors. ``body`` is encoded JSON. ``query_id`` is used if the read has none. ``to_catalog`` sends the
    request to the profile's Iceberg endpoint. If the caller ``has_alternative``, a 500 is not retried.
    """

    method: str
    path: tuple[str, ...]
    doing: str
    table: str | None = None
    params: Mapping[str, str] = dataclasses.field(default_factory=dict)
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    body: bytes | None = None
    to_catalog: bool = False
    has_alternative: bool = False
    query_id: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex)


class Transport:
    """Sends requests to one profile's endpoint. Safe in threads and after a fork; pickles without connections.

    The file of ``profile`` is read again when it changes. ``options`` has timeouts, retry limits and headers.
    ``user_agent`` is the start of the ``User-Agent`` header (for streams
    ``Delta-Sharing-SparkStructuredStreaming/...``, which servers look for). A provider can find the requests of a
    read by its ``query_id``; if it is ``None``, each request has its own id. ``deadline`` is the end of the operation,
    if the transport belongs to one.

    Two transports compare equal if they were made for equal profiles. So equal reads of different clients are equal,
    and reads of two recipients at one server are not, because they may get different rows.
    """

    def __init__(self, profile: Profile, options: ReadOptions | None = None, *, user_agent: str | None = None) -> None:
        self.options = options = options or ReadOptions()
        self.query_id: str | None = None
        self._server = _Server(profile)
        self._auth, self._signed_in = make_auth(profile.credentials, profile.endpoint, options), profile
        self._first_agents = user_agent
        self._last_agent, self._headers = _additions(options)
        self.deadline = Deadline(None)
        # Values that are requested only once; copies share them.
        self.server_facts: dict[tuple[str, object], Any] = {}
        self._interrupt: Interrupt | None = None

    def __getstate__(self) -> dict[str, object]:
        return vars(self) | {"_interrupt": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, deadline=Deadline(None))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Transport) and type(other) is type(self) and other._server.given == self._server.given

    def __hash__(self) -> int:
        return hash((type(self), self._server.given))

    @property
    def profile(self) -> Profile:
        """The profile, as last read."""
        return self._server.profile

    @property
    def is_here(self) -> bool:
        """Whether the server is on this machine: by its name until it has responded, and then by its address."""
        return self._server.is_here

    def tries(self) -> Tries:
        """Return a counter for the attempts of one request, within the deadline of the operation."""
        sleep = None if self._interrupt is None else self._interrupt.sleep
        return Tries(self.options, self.deadline, sleep=sleep)

    def repeat(self, attempt: Callable[[], T]) -> T:
        """Return ``attempt()``, repeated while it raises ``Transient``, within the deadline of the operation."""
        return self.tries().call(attempt)

    def for_read(self: TransportT, options: ReadOptions, query_id: str | None = None) -> TransportT:
        """Return a copy with ``options``, and one query id (by default a new one) for all requests of a read.

        The copy shares connections and the current profile with this transport.
        """
        other = copy.copy(self)
        other.options = options
        other.query_id = query_id or uuid.uuid4().hex
        other._auth, other._signed_in = (
            make_auth(self.profile.credentials, self.profile.endpoint, options),
            self.profile,
        )
        other._last_agent, other._headers = _additions(options)
        return other

    def operation(self: TransportT, interrupt: Interrupt | None = None) -> TransportT:
        """Return a copy with a deadline that starts now, for the requests of one operation; ``interrupt`` cancels
        them."""
        other = copy.copy(self)
        other.deadline = Deadline(self.options.total_timeout)
        other._interrupt = interrupt
        return other

    def close(self) -> None:
        """Close idle connections. A later request opens new ones."""
        self._server.close()

    def fetch(self, request: Request) -> tuple[Response, bytes]:
        """Send ``request``, with retries, and return a 2xx response with its complete body.

        Raises ``RequestError``, ``AuthError``, ``TransportError`` or ``ProfileError`` (expired token).
        """

        def attempt() -> tuple[Response, bytes]:
            response = within.attempt(request)
            try:
                return response, b"".join(within.chunks(response, request, limit=_MAX_JSON_BYTES))
            finally:
                response.close()

        within = self if self.deadline.seconds is not None else self.operation()
        return within.repeat(attempt)

    def ask(self, request: Request, *, anonymous: bool = False) -> tuple[Response, bytes]:
        """Send ``request``, with retries, and return its response, whatever its status, with its complete body.

        ``anonymous`` requests have no credentials. Raises as ``fetch`` does, but of the statuses only for 429 and 503,
        which ask for patience.
        """

        def attempt() -> tuple[Response, bytes]:
            forks.check()
            with within_limits(), within._follow(request, trusted=not anonymous) as response:
                if response.status in _PATIENCE:
                    raise within._failure(response, request)
                return response, b"".join(within.chunks(response, request, limit=_MAX_JSON_BYTES))

        within = self if self.deadline.seconds is not None else self.operation()
        return within.repeat(attempt)

    def attempt(self, request: Request) -> Response:
        """Send ``request`` once and return its 2xx response, with the body unread.

        Raises ``Transient`` if a retry may help. After a 401, the request is sent once more if it would have other
        credentials: a new OAuth token, or those of a changed profile file.
        """
        forks.check()
        try:
            with within_limits():
                response = self._follow(request)
            if response.status == 401 and self._renewed(response.authorization):
                response.close()
                response = self._follow(request)
            if 200 <= response.status < 300:
                return response
            try:
                raise self._failure(response, request)
            finally:
                response.close()
        except (Transient, DeltaSharingError) as failure:
            self._complete(failure, request)
            raise

    def chunks(self, response: Response, request: Request, limit: int | None = None) -> Iterator[bytes]:
        """Yield the body as it arrives; raise ``Transient`` if it ends early or is too slow."""
        # Without a generator-based context manager, which the garbage collector could close late.
        try:
            yield from body_chunks(response, request.doing, request.table, limit=limit)
        except (Transient, DeltaSharingError) as failure:
            self._complete(failure, request)
            raise

    def secrets(self) -> list[str]:
        """Return the strings that must never appear in a message."""
        return self._auth.secrets()

    def _complete(self, failure: Transient | DeltaSharingError, request: Request) -> None:
        """Add the query id to an error. If the deadline ended the wait, raise an error that says so instead."""
        error = failure.error if isinstance(failure, Transient) else failure
        if not isinstance(error, (ProfileError, UsageError)):  # those are raised before a request is sent
            error.query_id = self.query_id or request.query_id
        if isinstance(error, TransportError):
            self.deadline.check(request.doing, request.table)

    def _renewed(self, refused: str | None) -> bool:
        """After a 401 for the header ``refused``, return whether a different header will be sent."""
        if self._auth.renew(refused):
            return True
        before = self.profile.credentials
        return self._sign_in(refused=True).credentials != before

    def _sign_in(self, *, refused: bool = False) -> Profile:
        profile = self._server.current(refused=refused)
        if profile is not self._signed_in:
            self._auth, self._signed_in = make_auth(profile.credentials, profile.endpoint, self.options), profile
        return profile

    def _follow(self, request: Request, *, trusted: bool = True) -> Response:
        """Send ``request``, and follow redirects; a redirect's body is not read. No credentials are sent if the request
        is not ``trusted``."""
        profile = self._sign_in()
        endpoint = profile.iceberg_endpoint if request.to_catalog else profile.endpoint
        if endpoint is None:
            raise UsageError(
                f"{request.doing} failed: the profile has no 'icebergEndpoint', which Iceberg tables need; ask the "
                "provider for a profile with it."
            )
        url = "/".join((endpoint, *(quote(segment, safe="") for segment in request.path)))
        url += f"?{urlencode(request.params)}" if request.params else ""
        response = self._send(request, url, _reach(request, profile), trusted=trusted)
        for _ in range(MAX_REDIRECTS):
            location = response.headers.get("Location")
            if response.status not in REDIRECTS or location is None:
                return response
            response.close()
            url, is_same = self._target(response, location, request)
            trusted = trusted and is_same
            response = self._send(request, url, self._redirects.reach(url), trusted=trusted, is_redirect=True)
        response.close()
        raise RequestError(
            f"{request.doing} failed: the server redirects more than {MAX_REDIRECTS} times; ask the data provider.",
            status=response.status,
            table=request.table,
        )

    @property
    def _redirects(self) -> Allowed:
        """The URLs to which the server may redirect; ``_target`` also compares the schemes."""
        return Allowed(http=True, loopback=self.is_here)

    def _send(
        self, request: Request, url: str, reach: Reach, *, trusted: bool = True, is_redirect: bool = False
    ) -> Response:
        """Send ``request`` to ``url``; with credentials and the caller's headers only if the URL is ``trusted``.

        ``reach`` has the addresses to which the request may connect.
        """
        query_id = self.query_id or request.query_id
        agents = (self._first_agents, _own_user_agent(), f"QueryId-{query_id}", self._last_agent)
        headers = {**(self._headers if trusted else {}), **request.headers, "Accept-Encoding": ACCEPTED_ENCODINGS}
        headers["User-Agent"] = " ".join(filter(None, agents))
        if request.body is not None:
            headers["Content-Type"] = "application/json; charset=utf-8"
        limits = RequestLimits(self.options, self.deadline, request.doing, request.table, self._interrupt, reach=reach)
        doing = printable(request.doing)
        try:
            if trusted:
                headers["Authorization"] = self._auth.header()
            response = self._server.sessions().ask(request.method, url, limits, headers, request.body)
        except (DeltaSharingError, Transient) as failure:
            _log.debug("%s: %s (query id %s)", doing, failure, query_id)
            raise
        if not is_redirect and limits.is_here is not None:
            self._server.reached_here.add(limits.is_here)
        _log.debug("%s: %s %s (query id %s)", doing, request.method, response.status, query_id)
        return response

    def _failure(self, response: Response, request: Request) -> DeltaSharingError | Transient:
        challenge = response.headers.get("WWW-Authenticate")
        body = start_of_body(response, _MAX_ERROR_BYTES, self.secrets())
        refusal = Refusal.read(response.status, body, self.secrets(), challenge)
        error = refusal.error(request.doing, table=request.table, auth_hint=self._auth.hint())
        if response.status in RETRIED_STATUSES and not (response.status == 500 and request.has_alternative):
            return Transient(error, retry_after(response.headers.get("Retry-After")))
        return error

    def _target(self, response: Response, location: str, request: Request) -> tuple[str, bool]:
        """Return the target of a redirect, and whether it gets the credentials, as only the same server does."""
        # Clients turn a POST into a GET after 301, 302 and 303, which would be a different request.
        if request.method == "POST" and response.status in (301, 302, 303):
            raise RequestError(
                f"{request.doing} failed: the server redirects ({response.status}) a {request.method} request; "
                "the profile's endpoint may be outdated, ask the data provider.",
                status=response.status,
                table=request.table,
            )
        here = response.url
        url = redirected(here, location)
        problem = unfetchable(url, self._redirects)
        if problem is not None:
            raise ProtocolError(
                f"{request.doing} failed: the server redirects ({response.status}) to a URL that is not allowed: "
                f"found {problem}.",
                table=request.table,
            )
        # Imported here, because requests is slow to import.
        from delta_sharing_client.http.sessions import is_same_server

        trusted = response.authorization is not None and is_same_server(here, url)
        if urlsplit(url).scheme == "http" and urlsplit(here).scheme == "https":
            raise ProtocolError(
                f"{request.doing} failed: the server redirects ({response.status}) from https to http, where "
                "others could read and change the response; ask the data provider.",
                table=request.table,
            )
        return url, trusted


def _reach(request: Request, profile: Profile) -> Reach:
    """Return the addresses to which a request to an endpoint of the profile may connect.

    A profile for a remote server must not name a service of this machine as its catalog.
    """
    if not request.to_catalog or leads_here(urlsplit(profile.endpoint).hostname or ""):
        return Reach.ANY
    return Reach.REMOTE


class _Server:
    """The state that all requests to one server share: connections, and the current profile."""

    def __init__(self, profile: Profile) -> None:
        # ``profile`` changes when a new token is written to the profile's file; ``given`` never changes.
        self.given = self.profile = profile
        # True if the server responded from this machine, false if from another one; both if its name leads to both.
        self.reached_here: set[bool] = set()
        self._sessions: Sessions | None = None

    def __getstate__(self) -> tuple[Profile, Profile]:
        return self.given, self.profile

    def __setstate__(self, profiles: tuple[Profile, Profile]) -> None:
        self.__init__(profiles[1])  # type: ignore[misc]
        self.given = profiles[0]

    def current(self, *, refused: bool) -> Profile:
        """Return the profile, read again if its file changed, or if a server ``refused`` it."""
        fresh = self.profile.reread(unless_changed=not refused)
        if fresh.credentials != self.profile.credentials:
            _log.info("The profile of %s changed and was read again.", safe_url(fresh.endpoint))
        self.profile = fresh
        return fresh

    @property
    def is_here(self) -> bool:
        if self.reached_here:
            return self.reached_here == {True}
        # No response has shown it yet; through a proxy, none ever does. A name below localhost may be another machine.
        host = urlsplit(self.profile.endpoint).hostname or ""
        return is_loopback(host) and not host.endswith(".localhost")

    def sessions(self) -> Sessions:
        if self._sessions is None:
            # Imported here, because requests is slow to import.
            from delta_sharing_client.http.sessions import Sessions

            self._sessions = Sessions()
        return self._sessions

    def close(self) -> None:
        if self._sessions is not None:
            self._sessions.close()


def _additions(options: ReadOptions) -> tuple[str | None, dict[str, str]]:
    """Return the end of ``User-Agent`` and the headers that the caller and the environment add; ``UsageError`` if
    invalid."""
    agent = options.user_agent if options.user_agent is not None else os.environ.get(_AGENT_VARIABLE) or None
    if agent is not None:
        _check_header(agent, "'user_agent'")
    text = os.environ.get(_HEADERS_VARIABLE) or "{}"
    try:
        headers_of_file = json.loads(text)
    except ValueError:
        headers_of_file = None
    if not isinstance(headers_of_file, dict):
        raise UsageError(
            f"The environment variable '{_HEADERS_VARIABLE}' must contain a JSON object; found something else."
        )
    headers = {**headers_of_file, **dict(options.headers)}
    for name, value in headers.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name) or name.lower() in _OWN_HEADERS:
            raise UsageError(
                f"The header {name!r} of 'headers' cannot be set; expected a valid name of a header that this client "
                "does not set itself."
            )
        _check_header(value, f"The header {name!r} of 'headers'")
    return agent, headers


def _check_header(value: object, what: str) -> None:
    if not isinstance(value, str) or not _HEADER_VALUE.fullmatch(value):
        raise UsageError(f"{what} must be a string of printable ASCII characters; found something else.")


@functools.lru_cache(maxsize=1)
def _own_user_agent() -> str:
    from delta_sharing_client.http.sessions import library

    python, system = platform.python_version(), platform.system().lower()
    return f"delta-sharing-client/{__version__} python/{python} {library()} {system}"
