"""Parses request bodies and query strings (protocol, "Request Body", "Query Parameters").

A parameter of the wrong type or out of range is refused with a 400 whose message says what was expected.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from delta_sharing_client import instants
from delta_sharing_client.errors import UsageError

from .errors import invalid, malformed, shown

_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
_INTEGER = re.compile(r"-?[0-9]{1,30}").fullmatch
MAX_BODY_BYTES = 4 * 1024 * 1024
"""Maximum size of a request body: twice the size of the longest supported predicate, plus room for other fields."""
MAX_RESULTS = 500
# This is stricter than the forms that clients accept from users, because a client must send a form that every server
# can parse.
_TIMESTAMP = re.compile(
    r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|[+-]\d{2}(?::?\d{2}|:\d{2}:\d{2}|\d{4}))"
).fullmatch


@dataclasses.dataclass(frozen=True, kw_only=True)
class Paging:
    """The page of a response: at most ``max_files`` files from the position of ``token``."""

    max_files: int | None = None
    token: str | None = None

    @property
    def asked(self) -> bool:
        """Whether the client requested pages."""
        return self.max_files is not None or self.token is not None


@dataclasses.dataclass(frozen=True, kw_only=True)
class QueryRequest:
    """The body of ``POST .../query``; times in milliseconds since the epoch."""

    predicate_hints: tuple[str, ...] = ()
    json_predicate_hints: str | None = None
    limit_hint: int | None = None
    version: int | None = None
    timestamp_ms: int | None = None
    starting_version: int | None = None
    ending_version: int | None = None
    include_historical_protocol: bool = False
    include_refresh_token: bool = False
    refresh_token: str | None = None
    idempotency_key: str | None = None
    paging: Paging = Paging()

    def checksum(self) -> str:
        """Return a digest of the parameters that must be equal for all pages."""
        changing = {"paging": Paging(), "include_refresh_token": False, "refresh_token": None, "idempotency_key": None}
        return _digest(dataclasses.replace(self, **changing))  # type: ignore[arg-type]

    def with_paging(self, paging: Paging) -> QueryRequest:
        """Return the same query for a different page."""
        return dataclasses.replace(self, paging=paging)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChangesRequest:
    """The query string of ``GET .../changes``; times in milliseconds since the epoch."""

    starting_version: int | None = None
    starting_ms: int | None = None
    ending_version: int | None = None
    ending_ms: int | None = None
    include_historical_metadata: bool = False
    include_historical_protocol: bool = False
    paging: Paging = Paging()

    def checksum(self) -> str:
        """Return a digest of the parameters that must be equal for all pages."""
        return _digest(dataclasses.replace(self, paging=Paging()))


def parse_query(body: bytes, query: Mapping[str, str] = MappingProxyType({})) -> QueryRequest:
    """Parse a query: its body, which may be empty, and ``includeHistoricalProtocol``, which may be in its URL."""
    fields = _Fields(_json_object(body))
    request = QueryRequest(
        predicate_hints=fields.texts("predicateHints"),
        json_predicate_hints=fields.json_text("jsonPredicateHints"),
        limit_hint=fields.integer("limitHint", _INT32_MAX),
        version=fields.integer("version"),
        timestamp_ms=fields.timestamp("timestamp"),
        starting_version=fields.integer("startingVersion"),
        ending_version=fields.integer("endingVersion"),
        include_historical_protocol=fields.flag("includeHistoricalProtocol")
        or _Fields(query).flag("includeHistoricalProtocol"),
        include_refresh_token=fields.flag("includeRefreshToken"),
        refresh_token=fields.text("refreshToken"),
        # The protocol's text and its reference implementation spell this name differently.
        idempotency_key=fields.text("idempotencyKey") or fields.text("idempotency_key"),
        paging=fields.paging(),
    )
    points = [request.version, request.timestamp_ms, request.starting_version]
    if sum(point is not None for point in points) > 1:
        raise invalid("Only one of 'version', 'timestamp' and 'startingVersion' can be provided.")
    if request.ending_version is not None:
        if request.starting_version is None:
            raise invalid("'endingVersion' can only be provided together with 'startingVersion'.")
        if request.ending_version < request.starting_version:
            raise invalid(
                f"'endingVersion' {request.ending_version} is before 'startingVersion' {request.starting_version}."
            )
    if request.refresh_token is not None:
        if any(point is not None for point in points):
            raise invalid("'refreshToken' must not be used together with 'version', 'timestamp' or 'startingVersion'.")
        if request.paging.token is not None:
            raise invalid("'refreshToken' must not be used together with 'pageToken'.")
    if request.include_refresh_token and any(point is not None for point in points):
        raise invalid("'includeRefreshToken' must be used only when querying the latest version.")
    return request


def parse_page_request(body: bytes) -> Paging:
    """Parse the body of a poll of an asynchronous query."""
    return _Fields(_json_object(body)).paging()


def parse_location(body: bytes) -> str | None:
    """Parse the body of a request for temporary credentials; return its location, if any."""
    return _Fields(_json_object(body)).text("location")


def parse_changes(query: Mapping[str, str]) -> ChangesRequest:
    """Parse the query string of a request for the change data feed."""
    fields = _Fields(query)
    request = ChangesRequest(
        starting_version=fields.integer("startingVersion"),
        starting_ms=fields.timestamp("startingTimestamp", up=True),
        ending_version=fields.integer("endingVersion"),
        ending_ms=fields.timestamp("endingTimestamp"),
        include_historical_metadata=fields.flag("includeHistoricalMetadata"),
        include_historical_protocol=fields.flag("includeHistoricalProtocol"),
        paging=fields.paging(),
    )
    if request.starting_version is None and request.starting_ms is None:
        raise invalid("No startingVersion or startingTimestamp provided for CDF read.")
    if request.starting_version is not None and request.starting_ms is not None:
        raise invalid(
            "Multiple starting arguments provided for CDF read. "
            "Please provide one of either startingVersion or startingTimestamp."
        )
    if request.ending_version is not None and request.ending_ms is not None:
        raise invalid(
            "Multiple ending arguments provided for CDF read. "
            "Please provide one of either endingVersion or endingTimestamp."
        )
    return request


def parse_point(query: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Return ``version`` and ``timestamp`` (in milliseconds) of a metadata request; at most one of them is set."""
    fields = _Fields(query)
    version, timestamp = fields.integer("version"), fields.timestamp("timestamp")
    if version is not None and timestamp is not None:
        raise invalid("Only one of 'version' and 'timestamp' can be provided.")
    return version, timestamp


def parse_starting_timestamp(query: Mapping[str, str]) -> int | None:
    """Return ``startingTimestamp`` (in milliseconds) of a version request."""
    return _Fields(query).timestamp("startingTimestamp", up=True)


def parse_listing(query: Mapping[str, str]) -> tuple[int, str | None]:
    """Return ``maxResults`` and ``pageToken`` of a listing."""
    fields = _Fields(query)
    size = fields.integer("maxResults", _INT32_MAX)
    if size is not None and size > MAX_RESULTS:
        raise invalid(f"Acceptable values of maxResults are 0 to {MAX_RESULTS}, inclusive. (Default: {MAX_RESULTS})")
    return MAX_RESULTS if size is None else size, fields.text("pageToken") or None


def parse_timestamp(text: str, *, up: bool = False) -> int:
    """Return an ISO 8601 timestamp with an offset as milliseconds since the epoch ("Timestamp Format").

    A finer timestamp is rounded down, or up with ``up``. This does not change the result of a comparison with a commit
    time, because commit times are whole milliseconds.
    """
    if _TIMESTAMP(text.strip().upper()):
        try:
            nanoseconds = instants.parse_timestamp(text).nanoseconds
        except UsageError:
            pass
        else:
            return -(-nanoseconds // 1_000_000) if up else nanoseconds // 1_000_000
    raise invalid(f"A timestamp must be in ISO 8601 with an offset, such as 2022-01-01T00:00:00Z, not {shown(text)}.")


def _json_object(body: bytes) -> dict[str, Any]:
    if not body.strip():
        return {}
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise malformed(f"The request body is not JSON: {str(error)[:100]}.") from error
    if not isinstance(content, dict):
        raise malformed("The request body must be a JSON object.")
    return content


def _digest(request: object) -> str:
    return hashlib.sha256(repr(request).encode()).hexdigest()[:16]


class _Fields:
    """Typed access to parameters, which are JSON values or strings; null means absent."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self._content = content

    def text(self, name: str) -> str | None:
        value = self._content.get(name)
        if value is not None and not isinstance(value, str):
            raise malformed(f"'{name}' must be a string.")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        value = self._content.get(name)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise malformed(f"'{name}' must be an array of strings.")
        return tuple(value)

    def json_text(self, name: str) -> str | None:
        """Return JSON text, which a client may send as a string, as in the protocol's examples, or as an object."""
        value = self._content.get(name)
        return json.dumps(value) if isinstance(value, dict) else self.text(name)

    def integer(self, name: str, largest: int = _INT64_MAX, *, smallest: int = 0) -> int | None:
        value = self._content.get(name)
        if isinstance(value, str):
            if not _INTEGER(value):
                raise invalid(f"'{name}' must be a whole number, not {shown(value)}.")
            value = int(value)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise malformed(f"'{name}' must be a whole number.")
        if value < smallest:
            bound = "must be greater than or equal to 0" if smallest == 0 else f"must be at least {smallest}"
            raise invalid(f"'{name}' {bound}, not {shown(value)}.")
        if value > largest:
            raise invalid(f"'{name}' must be at most {largest}, not {shown(value)}.")
        return value

    def flag(self, name: str) -> bool:
        value = self._content.get(name)
        if value is None or isinstance(value, bool):
            return bool(value)
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        raise invalid(f"'{name}' must be true or false, not {shown(value)}.")

    def timestamp(self, name: str, *, up: bool = False) -> int | None:
        value = self.text(name)
        return None if value is None else parse_timestamp(value, up=up)

    def paging(self) -> Paging:
        return Paging(
            max_files=self.integer("maxFiles", _INT32_MAX, smallest=1),
            token=self.text("pageToken") or None,
        )
