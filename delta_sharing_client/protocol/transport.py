"""HTTP to the sharing server: one request at a time, tried again where that may help, errors as our exceptions."""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import logging
import os
import platform
import threading
from collections.abc import Iterator, Mapping
from urllib.parse import quote

import requests

from delta_sharing_client.connections import Session
from delta_sharing_client.errors import DeltaSharingError, ProtocolError, RequestError
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.protocol.auth import make_auth
from delta_sharing_client.protocol.failures import Refusal
from delta_sharing_client.protocol.profile import Profile
from delta_sharing_client.retry import (
    LIBRARY_ERRORS,
    RETRIED_STATUSES,
    RetryPolicy,
    Transient,
    network_failure,
    retry_after,
)

_CHUNK_BYTES = 256 * 1024
_MAX_ERROR_BYTES = 64 * 1024
_MAX_JSON_BYTES = 256 * 1024 * 1024

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request.

    ``path`` are the segments below the endpoint, not encoded; ``doing`` says in words what it is for, for messages;
    ``table`` is named in errors. ``body`` is JSON already.
    """

    method: str
    path: tuple[str, ...]
    doing: str
    table: str | None = None
    params: Mapping[str, str] = dataclasses.field(default_factory=dict)
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    body: bytes | None = None


class Transport:
    """Sends requests to one profile's endpoint. Safe in threads and after a fork; pickles without connections.

    Parameters
    ----------
    profile:
        Endpoint and credentials.
    options:
        Timeouts and limits of trying again.
    user_agent:
        Put first in the ``User-Agent`` header, for servers that tell clients apart by its beginning.
    """

    def __init__(self, profile: Profile, options: ReadOptions, user_agent: str | None = None) -> None:
        self.profile = profile
        self.options = options
        self.policy = RetryPolicy.of(options)
        self._user_agent = " ".join(filter(None, (user_agent, _own_user_agent())))
        self._auth = make_auth(profile, options)
        self._session: requests.Session | None = None
        self._session_pid = 0
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_session": None, "_lock": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close idle connections. A later request opens new ones."""
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
            session.close()

    def fetch(self, request: Request) -> tuple[requests.Response, bytes]:
        """Send ``request`` and read its whole answer, again and again within the limits; an answer is always 2xx.

        Raises ``RequestError``, ``AuthError``, ``TransportError`` or ``ProfileError`` (expired token).
        """

        def attempt() -> tuple[requests.Response, bytes]:
            response = self.attempt(request)
            try:
                return response, b"".join(self.chunks(response, request, limit=_MAX_JSON_BYTES))
            finally:
                response.close()

        return self.policy.call(attempt)

    def attempt(self, request: Request) -> requests.Response:
        """Send ``request`` once and return its 2xx answer, the body not read yet.

        Raises ``Transient`` where another try may help. A 401 is answered with one more try if the credentials
        can be renewed (OAuth).
        """
        response = self._send(request)
        if response.status_code == 401 and self._auth.renew(response.request.headers.get("Authorization")):
            response.close()
            response = self._send(request)
        if 200 <= response.status_code < 300:
            return self._checked_redirects(response, request)
        try:
            raise self._failure(response, request)
        finally:
            response.close()

    def chunks(self, response: requests.Response, request: Request, limit: int | None = None) -> Iterator[bytes]:
        """Yield the body as it arrives; raise ``Transient`` if it breaks off before its stated end."""
        total = 0
        try:
            for chunk in response.iter_content(_CHUNK_BYTES):
                total += len(chunk)
                if limit is not None and total > limit:
                    raise ProtocolError(
                        f"{request.doing}: the answer is longer than {limit} bytes.", table=request.table
                    )
                yield chunk
        except DeltaSharingError:
            raise
        except LIBRARY_ERRORS as error:
            raise network_failure(error, request.doing, request.table) from None

    def secrets(self) -> list[str]:
        """Return what must never appear in a message."""
        return self._auth.secrets()

    def _send(self, request: Request) -> requests.Response:
        url = "/".join((self.profile.endpoint, *(quote(segment, safe="") for segment in request.path)))
        headers = {"User-Agent": self._user_agent, **request.headers}
        if request.body is not None:
            headers["Content-Type"] = "application/json; charset=utf-8"
        try:
            response = self._open_session().request(
                request.method,
                url,
                params=request.params,
                data=request.body,
                headers=headers,
                auth=self._auth,
                timeout=(self.options.connect_timeout, self.options.read_timeout),
                stream=True,
            )
        except DeltaSharingError:
            raise
        except LIBRARY_ERRORS as error:
            _log.debug("%s: %s", request.doing, type(error).__name__)
            raise network_failure(error, request.doing, request.table) from None
        _log.debug("%s: %s %s", request.doing, request.method, response.status_code)
        return response

    def _failure(self, response: requests.Response, request: Request) -> DeltaSharingError | Transient:
        refusal = Refusal.read(response.status_code, _start_of_body(response), self.secrets())
        error = refusal.error(request.doing, table=request.table, auth_hint=self._auth.hint())
        if response.status_code in RETRIED_STATUSES:
            return Transient(error, retry_after(response.headers.get("Retry-After")))
        return error

    def _checked_redirects(self, response: requests.Response, request: Request) -> requests.Response:
        # requests turns a POST into a GET on 301, 302 and 303: the answer would be to another question.
        if response.history and response.request.method != request.method:
            response.close()
            raise RequestError(
                f"{request.doing} failed: the server redirects ({response.history[0].status_code}) a "
                f"{request.method}; the profile's endpoint is outdated.",
                status=response.history[0].status_code,
                table=request.table,
            )
        return response

    def _open_session(self) -> requests.Session:
        with self._lock:
            if self._session is None or self._session_pid != os.getpid():
                # A forked child must not share sockets with its parent.
                self._session = Session()
                self._session_pid = os.getpid()
            return self._session


def _start_of_body(response: requests.Response) -> bytes:
    body = b""
    try:
        for chunk in response.iter_content(_MAX_ERROR_BYTES):
            body += chunk
            if len(body) >= _MAX_ERROR_BYTES:
                break
    except LIBRARY_ERRORS:
        pass  # the status is what matters; the text is a courtesy
    return body


@functools.lru_cache(maxsize=1)
def _own_user_agent() -> str:
    try:
        version = importlib.metadata.version("delta-sharing-client")
    except importlib.metadata.PackageNotFoundError:
        version = "0"  # run from a source tree that is not installed
    return (
        f"delta-sharing-client/{version} python/{platform.python_version()} "
        f"requests/{requests.__version__} {platform.system().lower()}"
    )
