"""The table of faults that the server can simulate. Each can be limited to a number of responses.

A fault is written ``NAME[=VALUE][:COUNT][@TARGET]``::

    503-first=2                 the first two responses are 503
    truncate-body@data          the body of every data file stops half way
    cut-connection-after=100:1  one response is cut by a reset after 100 bytes

``COUNT`` is the number of responses with the fault (without it, all); ``TARGET`` is ``api``, ``data`` or ``all``.
"""

from __future__ import annotations

import dataclasses
import enum
import threading
from collections.abc import Iterable

from . import (
    broken_access,
    broken_assets,
    broken_delta,
    broken_directories,
    broken_feeds,
    broken_hints,
    broken_iceberg,
    broken_listings,
    broken_parquet,
    broken_queries,
    broken_time_travel,
    broken_urls,
)
from .errors import ConfigError
from .violations import VIOLATIONS


class Target(enum.Enum):
    """The responses that have the fault: of the REST API, of data files, or both."""

    API = "api"
    DATA = "data"
    ALL = "all"

    def covers(self, other: Target) -> bool:
        """Return whether the target includes ``other``."""
        return self is Target.ALL or self is other


@dataclasses.dataclass(frozen=True, slots=True)
class FaultKind:
    """A row of the table of faults.

    ``default`` is the value if none is given; ``None`` means that the fault has no value. With ``required``, a value
    must be given; with ``counts``, the value is the number of responses with the fault.
    """

    name: str
    doc: str
    target: Target = Target.API
    default: float | None = None
    required: bool = False
    counts: bool = False


FAULTS: tuple[FaultKind, ...] = (
    # --- before a response is made ---
    FaultKind("503-first", "the first VALUE requests get a 503", Target.ALL, 1, counts=True),
    FaultKind("500-first", "the first VALUE requests get a 500", Target.ALL, 1, counts=True),
    FaultKind("429-retry-after", "requests get a 429 with Retry-After: VALUE seconds", Target.ALL, 1),
    FaultKind("throttle", "requests beyond VALUE at a time get a 429 with Retry-After: 1", Target.ALL,
              required=True),
    FaultKind("401-first", "the first VALUE API requests get a 401", Target.API, 1, counts=True),
    FaultKind("slow", "VALUE seconds pass between the headers and the body of a response", Target.ALL, 1),
    FaultKind("redirect", "responses are a 307 to the same address, with a body of VALUE bytes", Target.ALL, 1000),
    FaultKind("bad-redirect", "responses are a 307 to an invalid address, http://[::1", Target.ALL),
    FaultKind("error-body", "responses are a 503 with a body of VALUE bytes", Target.ALL, 1_000_000_000),
    FaultKind("endless-headers", "the headers of a response never end", Target.ALL),
    FaultKind("endless-continue", "100 Continue is repeated forever without a response", Target.ALL),
    FaultKind("slow-headers", "headers never end, with one byte every VALUE seconds", Target.ALL, 0.5),
    FaultKind("endless-lines", "the file lines of a response never end"),
    FaultKind("blank-lines", "a response has endless blank lines"),
    FaultKind("bad-chunk", "the length of a chunk has 100,000 digits", Target.ALL),
    # --- the body ---
    FaultKind("truncate-body", "the connection closes after a fraction VALUE of the body", Target.ALL, 0.5),
    FaultKind("cut-connection-after", "the connection is reset after VALUE bytes of the body", Target.ALL,
              required=True),
    FaultKind("wrong-content-length", "Content-Length is VALUE bytes too large", Target.ALL, 1),
    FaultKind("close-delimited", "the body has neither Content-Length nor chunks; it ends when the connection closes",
              Target.ALL),
    FaultKind("lose-lines", "the last VALUE lines of an NDJSON response are missing, and nothing indicates it",
              Target.API, 1),
    FaultKind("trickle", "a byte of the body arrives every VALUE seconds", Target.ALL, 0.5),
    FaultKind("cut-chunked", "the connection closes in the middle of a chunk", Target.ALL),
    FaultKind("gzip", "responses are compressed with gzip, even if not requested"),
    FaultKind("cut-gzip", "a gzip response ends after a fraction VALUE of its lines, without the trailer, but "
              "with a right Content-Length", Target.API, 0.5),
    FaultKind("corrupt-body", "one byte in the middle of the body is flipped", Target.DATA),
    FaultKind("ignore-range", "a Range request gets a 200 with the whole file", Target.DATA),
    FaultKind("replaced-after", "after VALUE responses with a file, the file NAME.replaced next to it is sent",
              Target.DATA, 1),
    FaultKind("no-etag", "data files have no ETag", Target.DATA),
    FaultKind("weak-etag", "data files have a weak ETag", Target.DATA),
    FaultKind("no-last-modified", "data files have no Last-Modified", Target.DATA),
    # --- URLs and files ---
    FaultKind("expire-urls-now", "the URLs in a response have already expired"),
    FaultKind("expired-credentials", "temporary credentials have already expired"),
    FaultKind("no-credentials", "temporary credentials of volumes, skills and models contain none of the four kinds"),
    FaultKind("two-credentials", "temporary credentials of volumes, skills and models contain two additional kinds"),
    FaultKind("nested-credentials", 'temporary credentials of volumes, skills and models are inside "credentials", as '
              "those of tables"),
    FaultKind("other-credentials-path", "credentials of model versions come only from the endpoint "
              "temporary-model-credentials"),
    FaultKind("no-expiration", "responses do not say when their URLs expire"),
    FaultKind("missing-stats", "files have no statistics"),
    FaultKind("wrong-size", "the sizes of the files are VALUE bytes too large", Target.API, 1),
    FaultKind("empty-partition-nulls", 'null partition values are sent as ""'),
    # --- the protocol ---
    FaultKind("wrong-format", "the response has a different format than requested"),
    FaultKind("drop-end-stream", "the EndStreamAction is missing although it was requested"),
    FaultKind("error-in-stream", "after VALUE files, an EndStreamAction with an errorMessage ends the response",
              Target.API, 1),
    FaultKind("extra-metadata", "the metadata line is repeated at the end of the response"),
    FaultKind("u2028-names", "names and descriptions contain U+2028, U+2029 and U+0085, unescaped in the JSON"),
    FaultKind("page-size", "queries and listings have pages of VALUE items, even if not requested", Target.API,
              required=True),
    FaultKind("repeat-page-token", "every page has the same nextPageToken, so the pages never end"),
    FaultKind("endless-pages", "every page has a new nextPageToken, and the pages never end"),
    FaultKind("ignore-hints", "predicates and limits have no effect"),
    FaultKind("no-version-endpoint", "GET .../version gets a 404; only the deprecated HEAD works"),
    FaultKind("no-all-tables", "GET .../all-tables gets a 404"),
    FaultKind("no-get-table", "GET .../tables/{table} gets a VALUE: 404, 405 or 501", Target.API, 404),
    FaultKind("no-assets", "requests for volumes, skills and models get a VALUE: 404, 405 or 501", Target.API, 404),
    FaultKind("no-all-assets", "GET .../all-volumes, all-skills and all-models get a 404"),
    FaultKind("empty-items", 'listings start with an empty page and end with nextPageToken ""'),
    FaultKind("async-pending", "asynchronous queries stay pending for VALUE polls", Target.API, required=True),
    FaultKind("async-failed", "asynchronous queries fail"),
)  # fmt: skip

# Importing these modules registers their violations.
BROKEN = (
    broken_access,
    broken_listings,
    broken_parquet,
    broken_hints,
    broken_time_travel,
    broken_assets,
    broken_iceberg,
    broken_delta,
    broken_feeds,
    broken_queries,
    broken_directories,
    broken_urls,
)
_BREAK = "break-"
KINDS = {kind.name: kind for kind in FAULTS} | {
    f"{_BREAK}{check}": FaultKind(
        f"{_BREAK}{check}", f"responses break the sentence that the check {check} tests", Target.ALL
    )
    for check in VIOLATIONS
}


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """An active fault: its kind and value, the maximum number of responses that have it, and their target."""

    name: str
    value: float = 0.0
    count: int | None = None
    target: Target = Target.API

    def __str__(self) -> str:
        """Return the text that `parse_fault` reads."""
        kind = KINDS[self.name]
        value = self.count if kind.counts else self.value
        text = self.name if value is None or (kind.default is None and not kind.required) else f"{self.name}={value:g}"
        if self.count is not None and not kind.counts:
            text += f":{self.count}"
        return f"{text}@{self.target.value}"


def parse_fault(text: str) -> Fault:
    """Parse ``NAME[=VALUE][:COUNT][@TARGET]``. Raises `ConfigError` if it is not valid."""
    rest, _, target_text = text.partition("@")
    rest, _, count_text = rest.partition(":")
    name, equals, value_text = rest.partition("=")
    kind = KINDS.get(name)
    if kind is None:
        raise ConfigError(f"There is no fault '{name}'. The faults are: {_names()}.")
    if target_text and target_text not in {target.value for target in Target}:
        raise ConfigError(f"Fault '{name}': the part after @ must be api, data or all, not '{target_text}'.")
    if equals and kind.default is None and not kind.required:
        raise ConfigError(f"Fault '{name}' takes no value.")
    if kind.required and not equals:
        raise ConfigError(f"Fault '{name}' needs a value: {name}=VALUE ({kind.doc}).")
    value = _number(name, "value", value_text) if equals else (kind.default or 0.0)
    count = int(_number(name, "count", count_text)) if count_text else None
    if kind.counts:
        value, count = 0.0, int(value)
    return Fault(name, value, count, Target(target_text) if target_text else kind.target)


def _names() -> str:
    return f"{', '.join(sorted(kind.name for kind in FAULTS))}, and {_BREAK}ID for each check of the conformance kit"


class FaultSet:
    """The active faults, with the remaining responses of those that have a limit. Thread-safe."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self._lock = threading.Lock()
        self._left: dict[str, tuple[Fault, int | None]] = {}
        for fault in faults:
            self.set(fault)

    def set(self, fault: Fault) -> None:
        """Activate ``fault``, which replaces a fault of the same name."""
        with self._lock:
            self._left[fault.name] = (fault, fault.count)

    def clear(self, name: str | None = None) -> None:
        """End the fault called ``name``, or all faults."""
        with self._lock:
            if name is None:
                self._left.clear()
            else:
                self._left.pop(name, None)

    def left(self, name: str) -> int | None:
        """Return how many more responses will have the fault called ``name``; ``None`` if it has no limit."""
        with self._lock:
            return self._left[name][1]

    def take(self, name: str, target: Target = Target.API, *, active: int | None = None) -> Fault | None:
        """Return the fault if this response must have it, and count the response.

        For a fault that applies only beyond a number of concurrent requests, ``active`` is their current number.
        """
        if not self._left:
            return None
        with self._lock:
            fault, left = self._left.get(name, (None, None))
            if fault is None or not fault.target.covers(target) or left == 0:
                return None
            if active is not None and active <= fault.value:
                return None
            if left is not None:
                self._left[name] = (fault, left - 1)
            return fault

    def broken(self) -> list[str]:
        """Return the ids of the checks whose sentence this response must break, and count the response."""
        names = [name for name in list(self._left) if name.startswith(_BREAK)]
        return [name.removeprefix(_BREAK) for name in names if self.take(name, Target.API) is not None]


def _number(name: str, what: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise ConfigError(f"Fault '{name}': the {what} must be a number of 0 or more, not '{text}'.")
    return number
