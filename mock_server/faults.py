"""What can be made to go wrong on purpose: a table of named faults, each limited to a count if wished.

A fault is written ``NAME[=VALUE][:COUNT][@TARGET]``::

    503-first=2                 the first two answers are 503
    truncate-body@data          every data file's body stops half way
    cut-connection-after=100:1  one answer is cut by a reset after 100 bytes

``COUNT`` says how many answers are spoilt (all, if it is left out); ``TARGET`` is ``api``, ``data`` or ``all``.
"""

from __future__ import annotations

import dataclasses
import enum
import threading
from collections.abc import Iterable

from .errors import ConfigError


class Target(enum.Enum):
    """Which answers a fault spoils: those of the REST API, those of data files, or both."""

    API = "api"
    DATA = "data"
    ALL = "all"

    def covers(self, other: Target) -> bool:
        """Whether an answer of kind ``other`` is meant."""
        return self is Target.ALL or self is other


@dataclasses.dataclass(frozen=True, slots=True)
class FaultKind:
    """A row of the table of faults.

    ``default`` is the value if none is written; ``None`` means that the fault has no value, and ``required`` that one
    must be written. ``counts`` says that the value *is* the number of answers to spoil.
    """

    name: str
    doc: str
    target: Target = Target.API
    default: float | None = None
    required: bool = False
    counts: bool = False


FAULTS: tuple[FaultKind, ...] = (
    # --- before an answer is made ---
    FaultKind("503-first", "the first VALUE requests are answered 503", Target.ALL, 1, counts=True),
    FaultKind("500-first", "the first VALUE requests are answered 500", Target.ALL, 1, counts=True),
    FaultKind("429-retry-after", "requests are answered 429 with Retry-After: VALUE seconds", Target.ALL, 1),
    FaultKind("throttle", "requests beyond VALUE at a time are answered 429 with Retry-After: 1", Target.ALL,
              required=True),
    FaultKind("401-first", "the first VALUE API requests are answered 401", Target.API, 1, counts=True),
    FaultKind("slow", "VALUE seconds pass between the headers and the body of an answer", Target.ALL, 1),
    FaultKind("redirect", "answers are a 307 to the same address, with a body of VALUE bytes", Target.ALL, 1000),
    FaultKind("bad-redirect", "answers are a 307 to an address that is none, http://[::1", Target.ALL),
    FaultKind("error-body", "answers are a 503 with a body of VALUE bytes", Target.ALL, 1_000_000_000),
    FaultKind("endless-headers", "the header lines of an answer never end", Target.ALL),
    FaultKind("endless-continue", "100 Continue is repeated without end, and no answer follows", Target.ALL),
    FaultKind("slow-headers", "a byte of the header lines arrives every VALUE seconds, without end", Target.ALL, 0.5),
    FaultKind("endless-lines", "the lines of files in an answer never end"),
    FaultKind("blank-lines", "an answer consists of blank lines without end"),
    FaultKind("bad-chunk", "a chunk of the body says its length in 100,000 digits", Target.ALL),
    # --- the body on its way ---
    FaultKind("truncate-body", "the body stops after VALUE (a fraction) of it, then the connection closes",
              Target.ALL, 0.5),
    FaultKind("cut-connection-after", "the connection is reset after VALUE bytes of the body", Target.ALL,
              required=True),
    FaultKind("wrong-content-length", "Content-Length promises VALUE bytes more than there are", Target.ALL, 1),
    FaultKind("close-delimited", "neither Content-Length nor chunks: the end of the connection ends the body",
              Target.ALL),
    FaultKind("lose-lines", "the last VALUE lines of an NDJSON answer are lost, which nothing on the wire shows",
              Target.API, 1),
    FaultKind("trickle", "a byte of the body arrives every VALUE seconds", Target.ALL, 0.5),
    FaultKind("cut-chunked", "the body comes in chunks, and the connection closes in the middle of one", Target.ALL),
    FaultKind("gzip", "answers are compressed with gzip, asked or not"),
    FaultKind("cut-gzip", "a gzip answer ends after VALUE (a fraction) of its lines, between two of them, without the "
              "trailer; its Content-Length fits", Target.API, 0.5),
    FaultKind("corrupt-body", "one byte in the middle of the body is flipped", Target.DATA),
    FaultKind("ignore-range", "a Range request is answered 200 with the whole file", Target.DATA),
    FaultKind("replaced-after", "after VALUE answers about a file, the one beside it called NAME.replaced is sent",
              Target.DATA, 1),
    FaultKind("no-etag", "data files come without an ETag", Target.DATA),
    FaultKind("weak-etag", "data files come with a weak ETag", Target.DATA),
    FaultKind("no-last-modified", "data files come without Last-Modified", Target.DATA),
    # --- URLs and files ---
    FaultKind("expire-urls-now", "the URLs of an answer have already expired when it arrives"),
    FaultKind("expired-credentials", "temporary credentials have already expired when they arrive"),
    FaultKind("no-expiration", "answers do not say when their URLs expire"),
    FaultKind("missing-stats", "files come without statistics"),
    FaultKind("wrong-size", "the sizes of the files are VALUE bytes too large", Target.API, 1),
    FaultKind("empty-partition-nulls", 'null partition values are sent as ""'),
    # --- the protocol ---
    FaultKind("wrong-format", "the answer comes in the response format that would not have been chosen"),
    FaultKind("drop-end-stream", "the EndStreamAction is left out although it was asked for"),
    FaultKind("error-in-stream", "after VALUE files an EndStreamAction with an errorMessage ends the answer",
              Target.API, 1),
    FaultKind("extra-metadata", "the metadata line comes once more at the end of the answer, unasked"),
    FaultKind("u2028-names", "names and descriptions hold U+2028, U+2029 and U+0085, raw in the JSON"),
    FaultKind("page-size", "queries and listings come in pages of VALUE, asked or not", Target.API, required=True),
    FaultKind("repeat-page-token", "every page carries the same nextPageToken: the pages never end"),
    FaultKind("endless-pages", "every page carries another nextPageToken: the pages never end"),
    FaultKind("ignore-hints", "predicates and limits do not reduce the files"),
    FaultKind("no-version-endpoint", "GET .../version is 404; only the deprecated HEAD is there"),
    FaultKind("no-all-tables", "GET .../all-tables is 404"),
    FaultKind("empty-items", 'listings begin with a page without items, and end with nextPageToken ""'),
    FaultKind("async-pending", "asynchronous queries stay pending for VALUE polls", Target.API, required=True),
    FaultKind("async-failed", "asynchronous queries fail"),
)  # fmt: skip

KINDS = {kind.name: kind for kind in FAULTS}


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """A fault in force: its kind, value, how many answers it spoils at most, and which."""

    name: str
    value: float = 0.0
    count: int | None = None
    target: Target = Target.API


def parse_fault(text: str) -> Fault:
    """Read ``NAME[=VALUE][:COUNT][@TARGET]``; `ConfigError` says what is wrong with it."""
    rest, _, target_text = text.partition("@")
    rest, _, count_text = rest.partition(":")
    name, equals, value_text = rest.partition("=")
    kind = KINDS.get(name)
    if kind is None:
        raise ConfigError(f"There is no fault '{name}'. There are: {', '.join(sorted(KINDS))}.")
    if target_text and target_text not in {target.value for target in Target}:
        raise ConfigError(f"Fault '{name}': the part after @ is api, data or all, not '{target_text}'.")
    if equals and kind.default is None and not kind.required:
        raise ConfigError(f"Fault '{name}' takes no value.")
    if kind.required and not equals:
        raise ConfigError(f"Fault '{name}' needs a value: {name}=VALUE ({kind.doc}).")
    value = _number(name, "value", value_text) if equals else (kind.default or 0.0)
    count = int(_number(name, "count", count_text)) if count_text else None
    if kind.counts:
        value, count = 0.0, int(value)
    return Fault(name, value, count, Target(target_text) if target_text else kind.target)


class FaultSet:
    """The faults in force now; counts down the limited ones. Safe to use from several threads."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self._lock = threading.Lock()
        self._left: dict[str, tuple[Fault, int | None]] = {}
        for fault in faults:
            self.set(fault)

    def set(self, fault: Fault) -> None:
        """Put ``fault`` in force, in place of one of the same name."""
        with self._lock:
            self._left[fault.name] = (fault, fault.count)

    def clear(self, name: str | None = None) -> None:
        """End the fault called ``name``, or all faults."""
        with self._lock:
            if name is None:
                self._left.clear()
            else:
                self._left.pop(name, None)

    def take(self, name: str, target: Target = Target.API) -> Fault | None:
        """Return the fault if it is to spoil this answer, counting it."""
        if not self._left:
            return None
        with self._lock:
            fault, left = self._left.get(name, (None, None))
            if fault is None or not fault.target.covers(target) or left == 0:
                return None
            if left is not None:
                self._left[name] = (fault, left - 1)
            return fault


def _number(name: str, what: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise ConfigError(f"Fault '{name}': the {what} must be a number of 0 or more, not '{text}'.")
    return number
