"""The lines of a query's response: their types, decoding by blocks, and conversion of files to actions.

No I/O: blocks of bytes go in, typed lines and files come out (protocol, "API Response Actions", both formats).
``protocol.line_order`` checks their order; the bytes come from ``protocol.response_stream``. Unknown fields are
ignored, because the protocol lets servers add them; ``null`` means absent.
"""

from __future__ import annotations

import dataclasses
import operator
import secrets
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, Union

import msgspec

from delta_sharing_client.delta.actions import (
    AddCdcFile,
    AddFile,
    Count,
    FileAction,
    Format,
    Long,
    Metadata,
    Protocol,
    RemoveFile,
    SharedFile,
)
from delta_sharing_client.errors import DeltaSharingError, ProtocolError, TransportError, UnsupportedFeatureError
from delta_sharing_client.http.error_responses import Refusal, html_page
from delta_sharing_client.http.retry import Transient, http_date
from delta_sharing_client.instants import steady_ms
from delta_sharing_client.options import ResponseFormat
from delta_sharing_client.protocol.deviations import MALFORMED, Deviations, problem_of
from delta_sharing_client.protocol.line_blocks import LineBlock
from delta_sharing_client.redact import scrub
from delta_sharing_client.shortcuts import SHORTCUTS

PARQUET_FORMAT_VERSION = 1
MAX_COLUMNS = 100_000
_FEATURES_VERSION = 3
_MAX_BLANK_LINES = 10_000
_MOST_AT_ONCE = 4 * 1024 * 1024
# A URL with a long lifetime is replaced this many milliseconds before its expiration.
_RENEWED_BEFORE = 60_000
_LONGEST_LIFE = 10**12
# A smaller expiration is in seconds, which some servers send; in milliseconds it would be before 1974.
_IN_SECONDS = 10**11
_ERROR_CODES = (b'"errorCode"', b'"error_code"')

LineT = TypeVar("LineT")
_size_of = operator.attrgetter("action.size")

PartitionValues = dict[str, Union[str, None]]


# === The types of lines ===


class ProtocolLine(msgspec.Struct, rename="camel"):
    """``protocol``: ``minReaderVersion`` in parquet format, ``deltaProtocol`` in delta format."""

    min_reader_version: Union[Long, None] = None
    delta_protocol: Union[Protocol, None] = None
    version: Union[Count, None] = None


class MetadataLine(msgspec.Struct, rename="camel"):
    """``metaData``: the fields themselves in the parquet format, ``deltaMetadata`` in the delta format."""

    delta_metadata: Union[Metadata, None] = None
    id: Union[str, None] = None
    schema_string: Union[str, None] = None
    format: Format = Format()
    partition_columns: Union[list[str], None] = None
    configuration: Union[dict[str, Union[str, None]], None] = None
    name: Union[str, None] = None
    description: Union[str, None] = None
    version: Union[Count, None] = None
    size: Union[Count, None] = None
    num_files: Union[Count, None] = None
    location: Union[str, None] = None
    auxiliary_locations: Union[list[str], None] = None
    access_modes: Union[list[str], None] = None


class SingleAction(msgspec.Struct, gc=False):
    """``deltaSingleAction``: one file action as in the Delta log, with a URL as its path."""

    add: Union[AddFile, None] = None
    remove: Union[RemoveFile, None] = None
    cdc: Union[AddCdcFile, None] = None


class FileLine(msgspec.Struct, rename="camel", gc=False):
    """``file`` of both formats, and ``add``, ``cdf`` and ``remove`` of the parquet format.

    Without an ``id`` the file is identified by its URL's path.
    """

    id: Union[str, None] = None
    url: Union[str, None] = None
    partition_values: Union[PartitionValues, None] = None
    size: Union[Count, None] = None
    stats: Union[str, None] = None
    version: Union[Count, None] = None
    timestamp: Union[Long, None] = None
    expiration_timestamp: Union[Long, None] = None
    deletion_vector_file_id: Union[str, None] = None
    delta_single_action: Union[SingleAction, None] = None


class EndStreamAction(msgspec.Struct, rename="camel"):
    """``endStreamAction``: the last line of a response."""

    refresh_token: Union[str, None] = None
    next_page_token: Union[str, None] = None
    min_url_expiration_timestamp: Union[Long, None] = None
    error_message: Union[str, None] = None
    http_status_error_code: Union[Long, None] = None


class QueryStatus(msgspec.Struct, rename="camel"):
    """``queryStatus``: the state of an asynchronous query; without ``status`` it is pending."""

    query_id: Union[str, None] = None
    status: Union[str, None] = None
    message: Union[str, None] = None
    error_message: Union[str, None] = None
    error: Any = None


_KEYS = {"misspelt": "metadata", "metadata": "metaData", "end": "endStreamAction", "query": "queryStatus"}


class Line(msgspec.Struct, rename=_KEYS, gc=False):
    """One line of a response: exactly one of the fields is set ("JSON Wrapper Object In Each Line").

    ``misspelt`` is the metadata from servers that spell the key ``metadata`` instead of ``metaData``.
    """

    protocol: Union[ProtocolLine, None] = None
    metadata: Union[MetadataLine, None] = None
    misspelt: Union[MetadataLine, None] = None
    file: Union[FileLine, None] = None
    add: Union[FileLine, None] = None
    cdf: Union[FileLine, None] = None
    remove: Union[FileLine, None] = None
    end: Union[EndStreamAction, None] = None
    query: Union[QueryStatus, None] = None


class _Add(SingleAction, gc=False, kw_only=True):
    add: AddFile
    remove: None = None
    cdc: None = None


class _AddedFile(FileLine, rename="camel", gc=False, kw_only=True):
    delta_single_action: _Add


class _AddedLine(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """A line that only adds a file to a snapshot in delta format, as almost all lines do; decoding fails for any other
    line."""

    file: _AddedFile


# === Decoding ===

NOTHING = Line()
"""A line without known content, such as a blank one."""
_decode = msgspec.json.Decoder(Line).decode
_decode_lines: dict[type, Callable[[bytes], list[Any]]] = {
    kind: msgspec.json.Decoder(list[Union[kind, int]]).decode  # type: ignore[valid-type]
    for kind in (Line, _AddedLine)
}
_BETWEEN = secrets.randbits(62)
_SEPARATOR = b",%d," % _BETWEEN


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The facts about a response that errors state: the request ("Querying s.d.t"), the table, the secrets to mask, and
    the response's status and content type."""

    doing: str
    table: str
    secrets: Callable[[], list[str]]
    status: int
    content_type: str

    def malformed(self, number: int, reason: str) -> ProtocolError:
        """Return the error for line ``number``, starting at 1."""
        return ProtocolError(f"{self.doing}: line {number} of the response is malformed: {reason}.", table=self.table)

    def incomplete(self, reason: str) -> Transient:
        """Return the error for an incomplete response."""
        text = f"{self.doing} failed: the response is not complete: {reason}."
        return Transient(TransportError(text, table=self.table))

    def refused(self, message: str, status: int | None) -> DeltaSharingError:
        """Return the exception for an error that the server reports within a response."""
        said = scrub(message, self.secrets())
        return Refusal(status=status, message=said).error(self.doing, table=self.table)


class UrlLives:
    """The lifetimes of a response's URLs. The clocks of the server (header ``Date``) and of this machine may differ,
    so only the time from the response to the stated expiration is used."""

    def __init__(self, date: str | None) -> None:
        server = http_date(date)
        self._behind = 0 if server is None else steady_ms() - int(server * 1000)

    def renewal(self, expires: int) -> int | None:
        """Return when a URL that has just arrived, and expires at ``expires`` by the server's clock, should be
        replaced (``SharedFile.renew_at``); ``None`` if it has already expired, because then a clock is wrong."""
        if expires < _IN_SECONDS:
            expires *= 1000
        now = steady_ms()
        life = min(expires + self._behind - now, _LONGEST_LIFE)
        # The last request must still reach the storage in time. A short-lived URL is used for half of its life.
        return now + life - min(_RENEWED_BEFORE, life // 2) if life > 0 else None


class Lines:
    """Decodes the blocks of one response, and counts its deviations from the protocol in ``deviations``. ``lives`` has
    the lifetimes of its URLs."""

    def __init__(self, subject: Subject, deviations: Deviations, lives: UrlLives) -> None:
        self._subject = subject
        self._loosened = deviations
        self._lives = lives
        self._blank = 0
        self._has_content = False

    def of(self, block: LineBlock, before: int) -> Iterator[Line]:
        """Return the lines of the next block, ``NOTHING`` for each without known content; ``before`` is the number
        of earlier lines.

        After the lines before it, raises ``ProtocolError`` for a malformed line, ``Transient`` for one that is cut off,
        and the error that a server reports in a line.
        """
        decoded = _decoded_at_once(block.text, Line) if SHORTCUTS.lines_at_once else None
        # A line without known content may be an error report, which is visible only in its bytes.
        if decoded is None or (NOTHING in decoded and any(code in block.text for code in _ERROR_CODES)):
            return self._one_by_one(block, before)
        self._has_content = self._has_content or any(line != NOTHING for line in decoded)
        return iter(decoded)

    def added(self, block: LineBlock) -> list[SharedFile]:
        """Return the files of a block whose lines all add a file to a snapshot in delta format; an empty list for any
        other block, which ``of`` can decode."""
        decoded = _decoded_at_once(block.text, _AddedLine) if SHORTCUTS.lines_at_once else None
        # Most files of a response have the same expiration.
        stated = {line.file.expiration_timestamp for line in decoded or ()}
        renewals = {expires: None if expires is None else self._lives.renewal(expires) for expires in stated}
        files = [
            SharedFile(
                (file := line.file).delta_single_action.add,
                file.id or None,
                file.deletion_vector_file_id,
                file.version,
                file.timestamp,
                renewals[file.expiration_timestamp],
            )
            for line in decoded or ()
        ]
        if any(size < 0 for size in map(_size_of, files)):
            return []  # the size may be in another field, which ``read_delta`` knows
        return files

    def _one_by_one(self, block: LineBlock, before: int) -> Iterator[Line]:
        for number, raw in enumerate(block.lines, before + 1):
            try:
                line = _decode(raw)
            except MALFORMED as error:
                line = self._second_look(raw, number, block, error)
            if line == NOTHING:
                self._check_error(raw)
            else:
                self._has_content = True
            yield line

    def _second_look(self, raw: bytes, number: int, block: LineBlock, problem: Exception) -> Line:
        text = raw.strip()
        if not text:
            self._blank += 1
            if self._blank > _MAX_BLANK_LINES:
                raise self._subject.malformed(number, f"more than {_MAX_BLANK_LINES} lines are blank") from None
            return NOTHING
        try:
            return self._loosened.decode(text, Line)
        except MALFORMED:
            pass
        if not block.complete and text.startswith(b"{"):
            raise self._subject.incomplete(f"it is cut off in line {number}") from None
        if not self._has_content and not text.startswith(b"{"):
            raise self._another_page(block.text.strip()) from None
        raise self._subject.malformed(number, scrub(problem_of(problem))) from None

    def _check_error(self, raw: bytes) -> None:
        """Raise the error that a line reports; some servers send an error as a line, with a success status."""
        if any(code in raw for code in _ERROR_CODES):
            refusal = Refusal.read(self._subject.status, raw, self._subject.secrets())
            raise refusal.error(self._subject.doing, table=self._subject.table)

    def _another_page(self, start: bytes) -> ProtocolError:
        subject, secrets = self._subject, self._subject.secrets()
        described = html_page(start, secrets)
        if described is None:
            parts = (subject.content_type, start.decode("utf-8", "replace"))
            kind, text = (scrub(item, secrets)[:60] for item in parts)
            described = f"text ({kind}) that begins with {text!r}"
        return ProtocolError(
            f"{subject.doing}: expected lines of JSON, found {described}; check the endpoint of "
            "the profile, and whether a proxy or a login page responds instead.",
            table=subject.table,
        )


def _decoded_at_once(text: bytes, kind: type[LineT]) -> list[LineT] | None:
    """Decode the lines of ``text`` in one call; return ``None`` if one of them is not of ``kind``."""
    if len(text) > _MOST_AT_ONCE:
        return None
    # The lines become one JSON list, separated by a random number that no line contains. So one line cannot pass for
    # two lines, nor two lines for one.
    joined = text.replace(b"\n", _SEPARATOR)
    try:
        decoded = _decode_lines[kind](b"[%b]" % joined)
    except MALFORMED:
        return None
    items, between = decoded[::2], decoded[1::2]
    breaks = (len(joined) - len(text)) // (len(_SEPARATOR) - 1)
    if between != [_BETWEEN] * breaks or set(map(type, items)) != {kind}:
        return None
    return items


# === Conversion to actions ===


def format_of(line: ProtocolLine) -> ResponseFormat | None:
    """Return the format of a protocol line, or ``None``."""
    if line.delta_protocol is not None:
        return ResponseFormat.DELTA
    return ResponseFormat.PARQUET if line.min_reader_version is not None else None


def read_protocol(line: ProtocolLine, expected: ResponseFormat, table: str, deviations: Deviations) -> Protocol:
    """Return the protocol action of a line; raise ``UnsupportedFeatureError`` for a newer version of the parquet
    format."""
    if expected is ResponseFormat.DELTA:
        if line.delta_protocol is None:
            raise _missing("deltaProtocol", "protocol", expected, table)
        protocol = line.delta_protocol
        if protocol.min_reader_version == _FEATURES_VERSION and protocol.reader_features is None:
            # The reference server omits an empty list.
            deviations.note("'readerFeatures' is missing for 'minReaderVersion' 3 and is read as an empty list")
            return msgspec.structs.replace(protocol, reader_features=[])
        return protocol
    if line.min_reader_version is None:
        raise _missing("minReaderVersion", "protocol", expected, table)
    if line.min_reader_version > PARQUET_FORMAT_VERSION:
        raise UnsupportedFeatureError(
            f"The response needs a client for protocol version {line.min_reader_version}, but this client implements "
            f"version {PARQUET_FORMAT_VERSION}; upgrade delta-sharing-client.",
            feature=f"minReaderVersion {line.min_reader_version}",
            table=table,
        )
    return Protocol(min_reader_version=PARQUET_FORMAT_VERSION)


def read_metadata(line: MetadataLine, expected: ResponseFormat, table: str) -> Metadata:
    """Return the metadata action of a line. Raises ``UnsupportedFeatureError`` if the files are not Parquet, and
    ``ProtocolError`` for too many columns."""
    is_delta = expected is ResponseFormat.DELTA
    metadata = line.delta_metadata if is_delta else _parquet_metadata(line)
    if metadata is None:
        raise _missing("deltaMetadata" if is_delta else "schemaString", "metaData", expected, table)
    provider = metadata.format.provider
    if provider.lower() != "parquet":
        raise UnsupportedFeatureError(
            f"Expected a table of Parquet files, found the format '{provider[:40]}'; ask the provider for a copy in "
            "Parquet format.",
            feature=f"format.provider {provider[:40]}",
            table=table,
        )
    # Counted in the JSON before it is parsed; quotation marks inside comments are escaped there, so they do not match.
    fields = metadata.schema_string.count('"name"')
    if fields > MAX_COLUMNS:
        raise ProtocolError(
            f"Expected a schema of at most {MAX_COLUMNS:,} columns and fields, found {fields:,}; ask the provider for "
            "a view with fewer columns.",
            table=table,
        )
    return metadata


def _missing(key: str, line: str, expected: ResponseFormat, table: str) -> ProtocolError:
    return ProtocolError(
        f"Expected {key} in the {line} line of a response in {expected.value} format, found none.", table=table
    )


def _parquet_metadata(line: MetadataLine) -> Metadata | None:
    if line.schema_string is None:
        return None
    configuration = line.configuration
    return Metadata(
        id=line.id or "",
        schema_string=line.schema_string,
        format=line.format,
        partition_columns=line.partition_columns or [],
        configuration=None if configuration is None else {k: v for k, v in configuration.items() if v is not None},
        name=line.name,
        description=line.description,
    )


def read_delta(line: Line, is_snapshot: bool) -> SharedFile | str:
    """Return the file of a line in delta format, or a clause that describes the error in it."""
    file = line.file
    if file is None or (single := file.delta_single_action) is None:
        return "expected file.deltaSingleAction, as for all files of a delta response"
    add, remove, cdc = single.add, single.remove, single.cdc
    action: FileAction | None = add or remove or cdc
    another = (add and (remove or cdc)) or (remove and cdc)
    if is_snapshot and (add is None or another):
        return "a snapshot may contain only add actions"
    if action is None or another:
        return "deltaSingleAction must contain exactly one of add, remove and cdc"
    if (action.size is None or action.size < 0) and file.size is not None:
        action = msgspec.structs.replace(action, size=file.size)
    return SharedFile(action, file.id or None, file.deletion_vector_file_id, file.version, file.timestamp)


def read_parquet(line: Line, is_snapshot: bool) -> SharedFile | str:
    """Like ``read_delta``, in parquet format."""
    added = line.file or line.add
    if added is None and is_snapshot:
        return "a snapshot may contain only files"
    file = added or line.remove or line.cdf
    if file is None or file.url is None:
        return "each file of a parquet response must have a url"
    values = file.partition_values or {}
    size = -1 if file.size is None else file.size
    action: FileAction
    if added is not None:
        action = AddFile(path=file.url, partition_values=values, size=size, stats=file.stats)
    elif line.remove is not None:
        action = RemoveFile(path=file.url, partition_values=values, size=file.size, stats=file.stats)
    else:
        action = AddCdcFile(path=file.url, partition_values=values, size=size)
    return SharedFile(action, file.id or None, version=file.version, timestamp=file.timestamp)
