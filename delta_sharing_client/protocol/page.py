"""One answer, or one page of it: its head read, the rest as a checked stream of actions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import msgspec
import requests

from delta_sharing_client.delta.versioned import VersionedMetadata, VersionedProtocol
from delta_sharing_client.errors import ProtocolError, TransportError, UnsupportedFeatureError
from delta_sharing_client.options import ResponseFormat
from delta_sharing_client.protocol.answer import (
    AnswerKind,
    FileReader,
    TableAction,
    TableHead,
    format_of,
    read_metadata,
    read_protocol,
)
from delta_sharing_client.protocol.capabilities import HEADER, promises_end_stream_action
from delta_sharing_client.protocol.failures import error_for, request_error
from delta_sharing_client.protocol.messages import EndStreamAction, FileLine, Line, QueryStatus
from delta_sharing_client.protocol.names import TableName
from delta_sharing_client.protocol.ndjson import split_blocks
from delta_sharing_client.protocol.rest import VERSION_HEADER, version_header
from delta_sharing_client.protocol.retry import Transient
from delta_sharing_client.protocol.transport import Request, Transport
from delta_sharing_client.redact import scrub

FILE_ID_HASH_HEADER = "fileidhash"
_KEYS = {
    "protocol": "protocol",
    "metadata": "metaData",
    "file": "file",
    "add": "add",
    "cdf": "cdf",
    "remove": "remove",
    "end": "endStreamAction",
    "query": "queryStatus",
}

_decoder = msgspec.json.Decoder(Line)
_NOTHING = Line()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRules:
    """What an answer must keep to.

    ``formats`` are those the client understands for this request; ``version`` is the one asked for; files before
    ``starting_version`` are an error, files after ``ending_version`` are dropped (the server may send them).
    ``fallback_version`` stands in for a missing version header.
    """

    table: TableName
    kind: AnswerKind
    formats: frozenset[ResponseFormat]
    version: int | None = None
    starting_version: int | None = None
    ending_version: int | None = None
    fallback_version: int | None = None
    file_id_hash: str | None = None
    needs_url_access: bool = True
    poll_seconds: float = 600.0


class Page:
    """One answer with its head read; ``actions`` streams the rest. ``status`` is set for a query still running."""

    head: TableHead

    def __init__(self, transport: Transport, request: Request, response: requests.Response, rules: AnswerRules) -> None:
        self.end: EndStreamAction | None = None
        self.status: QueryStatus | None = None
        self.min_expiration: int | None = None
        self._transport = transport
        self._request = request
        self._response = response
        self._rules = rules
        self._table = str(rules.table)
        self._number = 0
        self._end_promised = promises_end_stream_action(response.headers.get(HEADER))
        self._lines = self._decoded()
        try:
            self._read_head()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give the connection up; needed only before ``actions`` is exhausted."""
        self._response.close()

    def actions(self) -> Iterator[TableAction]:
        """Yield what follows the head, in the order of the lines; then ``end`` is known.

        Raises ``Transient`` if the answer breaks off, ``ProtocolError`` if it is malformed, ``RequestError`` if the
        server reports an error in its end-of-stream action.
        """
        rules, head = self._rules, self.head
        reader = FileReader(head.response_format, rules.kind)
        read = reader.read
        changes = rules.kind is AnswerKind.CHANGES
        first, last = rules.starting_version, rules.ending_version
        for line in self._lines:
            file = line.file
            several = line.add or line.cdf or line.remove or line.protocol or line.metadata or line.end or line.query
            if file is None or several is not None:
                file = self._only_file(line)
                if file is None:
                    other = self._other(line)
                    if other is not None:
                        yield other
                    continue
            action = read(line)
            if isinstance(action, str):
                raise self._malformed(action)
            expires = file.expiration_timestamp
            if expires is not None and (self.min_expiration is None or expires < self.min_expiration):
                self.min_expiration = expires
            if changes:
                version = file.version
                if version is None:
                    raise self._malformed("each file of a range of versions needs its version")
                if last is not None and version > last:
                    continue
                if first is not None and version < first:
                    raise self._malformed(f"a file of version {version} is before the range that starts at {first}")
            yield action
        if self.end is None and self._end_promised:
            raise Transient(
                TransportError(
                    f"{self._request.doing} failed: the answer ended without the endStreamAction that its header "
                    "promises, so it is not complete.",
                    table=self._table,
                )
            )

    def _read_head(self) -> None:
        first = next(self._lines, None)
        if first is not None and first.query is not None:
            self._only_one(first)
            self.status = first.query
            if any(line.end is None for line in self._lines):
                raise self._malformed("queryStatus must be the only line")
            return
        if first is not None and first.end is not None:
            self._end_of_stream(first.end)  # an error report may be all there is
        if first is None or first.end is not None:
            raise Transient(self._incomplete("it has no protocol line"))
        self._only_one(first)
        if first.protocol is None:
            raise self._malformed("the first line must hold protocol")
        protocol_line = first.protocol
        found = format_of(protocol_line)
        if found is None:
            raise self._malformed("protocol needs minReaderVersion or deltaProtocol")
        if found not in self._rules.formats:
            raise ProtocolError(
                f"{self._request.doing}: asked for the {' or '.join(sorted(f.value for f in self._rules.formats))} "
                f"response format, found {found.value}.",
                table=self._table,
            )
        protocol = read_protocol(protocol_line, found, self._table)
        second = next(self._lines, None)
        if second is not None and second.end is not None:
            self._end_of_stream(second.end)
        if second is None or second.end is not None:
            raise Transient(self._incomplete("it has no metaData line"))
        self._only_one(second)
        line = second.metadata
        if line is None:
            raise self._malformed("the second line must hold metaData")
        self.head = TableHead(
            version=self._version(line.version),
            response_format=found,
            protocol=protocol,
            metadata=read_metadata(line, found, self._table),
            metadata_version=line.version,
            table_size=line.size,
            num_files=line.num_files,
            location=line.location,
            auxiliary_locations=tuple(line.auxiliary_locations or ()),
            access_modes=tuple(line.access_modes or ()),
        )
        self._check_head(self.head)

    def _version(self, metadata_version: int | None) -> int:
        version = version_header(self._response, self._request.doing, self._table, self._transport.secrets())
        for fallback in (metadata_version, self._rules.fallback_version):
            version = fallback if version is None else version
        if version is None:
            raise ProtocolError(f"{self._request.doing}: the answer has no {VERSION_HEADER} header.", table=self._table)
        return version

    def _check_head(self, head: TableHead) -> None:
        rules, doing = self._rules, self._request.doing
        if rules.version is not None and head.version != rules.version:
            raise ProtocolError(
                f"{doing}: asked for version {rules.version}, found version {head.version}.", table=self._table
            )
        modes = {mode.lower() for mode in head.access_modes}
        if rules.needs_url_access and modes and "url" not in modes:
            raise UnsupportedFeatureError(
                f"{doing}: the table is shared by directory access only (accessModes {', '.join(sorted(modes))}), not "
                "by file URLs; ask the provider for access by url, or read its directory.",
                feature="directory access",
                table=self._table,
            )
        if rules.file_id_hash is not None:
            found = (self._response.headers.get(FILE_ID_HASH_HEADER) or "").strip().lower()
            if found != rules.file_id_hash:
                raise ProtocolError(
                    f"{doing}: asked for fileidhash {rules.file_id_hash}, found {found or 'none'} in the answer.",
                    table=self._table,
                )

    def _decoded(self) -> Iterator[Line]:
        decode = _decoder.decode
        number = 0
        for block in split_blocks(self._transport.chunks(self._response, self._request)):
            for raw in block.lines:
                number += 1
                try:
                    line = decode(raw)
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                    if not raw.strip():
                        continue
                    if not block.complete and raw.lstrip().startswith(b"{"):
                        raise Transient(self._incomplete(f"it is cut off in line {number}")) from None
                    self._number = number
                    if number == 1 and not raw.lstrip().startswith(b"{"):
                        raise self._another_page(raw) from None
                    raise self._malformed(scrub(str(error))) from None
                self._number = number
                if number == 1 and line == _NOTHING:
                    self._check_error(raw)
                if self.end is not None:
                    raise self._malformed("endStreamAction must be the last line")
                yield line

    def _only_file(self, line: Line) -> FileLine | None:
        return line.add or line.cdf or line.remove if self._only_one(line) in {"add", "cdf", "remove"} else None

    def _only_one(self, line: Line) -> str:
        found = [name for name in _KEYS if getattr(line, name) is not None]
        if len(found) == 1:
            return found[0]
        keys = ", ".join(_KEYS[name] for name in found) or "none of them"
        raise self._malformed(f"expected exactly one of {', '.join(_KEYS.values())}; found {keys}")

    def _other(self, line: Line) -> TableAction | None:
        head = self.head
        if line.end is not None:
            self._end_of_stream(line.end)
            return None
        if line.metadata is not None:
            metadata = read_metadata(line.metadata, head.response_format, self._table)
            if self._rules.kind is AnswerKind.CHANGES:
                return self._in_range(VersionedMetadata(line.metadata.version, metadata))
            if metadata != head.metadata:
                raise self._malformed("a snapshot has one metaData")
            return None
        if line.protocol is not None:
            protocol = read_protocol(line.protocol, head.response_format, self._table)
            if self._rules.kind is AnswerKind.CHANGES:
                return self._in_range(VersionedProtocol(line.protocol.version, protocol))
            if protocol != head.protocol:
                raise self._malformed("a snapshot has one protocol")
            return None
        raise self._malformed("queryStatus must be the only line")

    def _in_range(self, action: VersionedMetadata | VersionedProtocol) -> TableAction | None:
        last = self._rules.ending_version
        return None if last is not None and action.version is not None and action.version > last else action

    def _end_of_stream(self, end: EndStreamAction) -> None:
        if end.error_message:
            raise error_for(
                end.http_status_error_code,
                None,
                scrub(end.error_message, self._transport.secrets()),
                self._request.doing,
                table=self._table,
            )
        self.end = end
        expires = end.min_url_expiration_timestamp
        if expires is not None and (self.min_expiration is None or expires < self.min_expiration):
            self.min_expiration = expires

    def _malformed(self, reason: str) -> ProtocolError:
        return ProtocolError(
            f"{self._request.doing}: line {self._number} of the answer is malformed: {reason}.", table=self._table
        )

    def _check_error(self, body: bytes) -> None:
        """Raise what the server reports; some send an error with a status that means success."""
        if b'"errorCode"' in body:
            raise request_error(
                self._response.status_code,
                body,
                self._request.doing,
                table=self._table,
                secrets=self._transport.secrets(),
            )

    def _another_page(self, start: bytes) -> ProtocolError:
        kind = self._response.headers.get("Content-Type", "no content type")
        text = scrub(start[:60].decode("utf-8", "replace"), self._transport.secrets())
        return ProtocolError(
            f"{self._request.doing}: expected lines of JSON, found {scrub(kind)[:60]} that begins with {text!r}; check "
            "the endpoint of the profile, and whether a proxy or a login page answers in its place.",
            table=self._table,
        )

    def _incomplete(self, reason: str) -> TransportError:
        return TransportError(f"{self._request.doing} failed: the answer is not complete, {reason}.", table=self._table)
