"""The order of lines in a response: first the protocol and the metadata, then files, last the end-of-stream action.

No I/O: blocks of lines go in, checked actions come out (protocol, "JSON Wrapper Object In Each Line", "Query Table
Metadata", "Read Data from a Table", "Read Change Data Feed from a Table").
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Collection, Iterator, Mapping

import msgspec

from delta_sharing_client.delta.actions import (
    Metadata,
    Protocol,
    TableAction,
    VersionedMetadata,
    VersionedProtocol,
)
from delta_sharing_client.delta.features import Operation
from delta_sharing_client.delta.listed_files import SharedValues
from delta_sharing_client.errors import ProtocolError, UnsupportedFeatureError, UsageError
from delta_sharing_client.http.retry import RETRIED_STATUSES, Transient
from delta_sharing_client.options import ResponseFormat, TableFormat
from delta_sharing_client.protocol.deviations import Deviations
from delta_sharing_client.protocol.line_blocks import LineBlock
from delta_sharing_client.protocol.lines import (
    NOTHING,
    EndStreamAction,
    Line,
    Lines,
    QueryStatus,
    Subject,
    UrlLives,
    format_of,
    read_delta,
    read_metadata,
    read_parquet,
    read_protocol,
)
from delta_sharing_client.protocol.messages import (
    CHANGES_OF_VIEWS,
    END_STREAM_ACTION,
    VERSION_HEADER,
    promises,
    version_header,
)
from delta_sharing_client.protocol.names import AssetName


def unreadable(doing: str, table: str, modes: Collection[str]) -> UnsupportedFeatureError:
    """Return the error for a table that is shared only with access modes other than ``url`` and ``dir``."""
    return UnsupportedFeatureError(
        f"{doing}: expected the access mode 'url' or 'dir', found {_quoted(modes)}, which this client cannot read; use "
        "the provider's own tools.",
        feature=f"accessModes {', '.join(sorted(modes))}",
        table=table,
    )


def _quoted(modes: Collection[str]) -> str:
    return ", ".join(f"'{mode}'" for mode in sorted(modes))


_renewal_of = operator.attrgetter("renew_at")


def sooner(one: int | None, other: int | None) -> int | None:
    """Return the earlier of two times; ``None`` means not stated."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


# The attributes of ``Line``, with their keys in JSON.
_KEYS = {field.name: field.encode_name for field in msgspec.structs.fields(Line)}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TableHead:
    """A table as described by the first two lines of a response and its headers.

    ``version`` is the version of the snapshot, or the first version of a range of changes; for a view, which has no
    versions, it is 0 (``is_view``). ``protocol`` and ``metadata`` are as in the Delta log; for a response in parquet
    format, the protocol is reader version 1 without features. ``table_size`` is the size of the files in bytes. Values
    that the server does not state are ``None``. No ``access_modes`` means ``url``.
    """

    version: int
    response_format: ResponseFormat
    protocol: Protocol
    metadata: Metadata
    metadata_version: int | None = None
    table_size: int | None = None
    num_files: int | None = None
    location: str | None = None
    auxiliary_locations: tuple[str, ...] = ()
    access_modes: tuple[str, ...] = ()
    is_view: bool = False
    table_format: TableFormat = TableFormat.DELTA


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ResponseRules:
    """The requirements for a response.

    ``formats`` and ``version`` were requested. Files before ``starting_version`` are an error; files after
    ``ending_version``, which the server may send, are dropped. A missing version header means the requested version.
    With ``may_be_view``, the change data feed of a view, which has no versions, is accepted. A response that
    ``lists_files`` needs access by URL, and an end-of-stream action if its header promises one.
    """

    table: AssetName
    operation: Operation
    formats: tuple[ResponseFormat, ...]
    version: int | None = None
    starting_version: int | None = None
    ending_version: int | None = None
    lists_files: bool = True
    may_be_view: bool = False


class CheckedResponse:
    """Checks the lines of one response and converts them to actions: call ``begin`` once, then ``actions``.

    ``blocks`` are the blocks of its body, and ``close`` closes its connection. ``begin`` sets the ``head``, or a
    ``status`` while the query is running. ``end`` is the end-of-stream action, once it has arrived, and
    ``first_renewal`` is when the first URL so far should be replaced (``SharedFile.renew_at``).
    """

    head: TableHead

    def __init__(
        self,
        subject: Subject,
        rules: ResponseRules,
        headers: Mapping[str, str],
        deviations: Deviations,
        blocks: Iterator[LineBlock],
        close: Callable[[], None],
    ) -> None:
        self.status: QueryStatus | None = None
        self.end: EndStreamAction | None = None
        self.first_renewal: int | None = None
        self._subject = subject
        self._rules = rules
        self._headers = headers
        self._loosened = deviations
        self._is_view = promises(headers, CHANGES_OF_VIEWS)
        self._lives = UrlLives(headers.get("Date"))
        self._decoder = Lines(subject, deviations, self._lives)
        self._number = 0  # the number of the last line
        self._share = SharedValues()
        self._close = close
        self._blocks = blocks
        self._lines: Iterator[Line] = iter(())  # the remaining lines of a block

    def close(self) -> None:
        """Close the connection; this is needed only if ``actions`` is not exhausted."""
        self._close()
        # Release the response here and not in a finalizer, because Python loses a Ctrl-C that arrives in a finalizer.
        self._close, self._blocks, self._lines = lambda: None, iter(()), iter(())

    # --- the head ---

    def begin(self) -> None:
        """Read the first two lines and set ``head``; if the query is still running, read all lines and set
        ``status``."""
        first = self._next()
        if first is not None and first.query is not None:
            self._check_one(first)
            self.status = first.query
            while (line := self._next()) is not None:
                if line.end is None:
                    raise self._malformed("queryStatus must be the only line")
            return
        first = self._not_the_end(first, "protocol")
        if first.protocol is None:
            raise self._malformed("the first line must contain protocol")
        response_format = format_of(first.protocol)
        if response_format is None:
            raise self._malformed("protocol must contain minReaderVersion or deltaProtocol")
        # Servers that do not know the capabilities header respond in parquet; the protocol asks clients to accept that.
        if response_format not in (*self._rules.formats, ResponseFormat.PARQUET):
            raise ProtocolError(
                f"{self._subject.doing}: requested the {' or '.join(sorted(f.value for f in self._rules.formats))} "
                f"response format, found {response_format.value}.",
                table=self._subject.table,
            )
        protocol = read_protocol(first.protocol, response_format, self._subject.table, self._loosened)
        line = self._not_the_end(self._next(), "metaData")
        described = line.metadata or line.misspelt
        if described is None:
            raise self._malformed("the second line must contain metaData")
        self.head = TableHead(
            version=self._version(described.version),
            response_format=response_format,
            protocol=protocol,
            metadata=read_metadata(described, response_format, self._subject.table),
            metadata_version=described.version,
            table_size=described.size,
            num_files=described.num_files,
            location=described.location,
            auxiliary_locations=tuple(described.auxiliary_locations or ()),
            access_modes=tuple(described.access_modes or ()),
            is_view=self._is_view,
        )
        self._check_head(self.head)

    def _next(self) -> Line | None:
        """Return the next line with known content, ``None`` at the end."""
        while True:
            for line in self._lines:
                self._number += 1
                if line != NOTHING:
                    return line
            block = next(self._blocks, None)
            if block is None:
                return None
            self._lines = self._decoder.of(block, self._number)

    def _not_the_end(self, line: Line | None, expected: str) -> Line:
        if line is not None and line.end is not None:
            self._end_of_stream(line.end)  # an error report may be the only line
        if line is None or line.end is not None:
            raise self._subject.incomplete(f"it has no {expected} line")
        self._check_one(line)
        return line

    def _version(self, metadata_version: int | None) -> int:
        rules, subject = self._rules, self._subject
        if self._is_view:
            if not rules.may_be_view or rules.starting_version is not None or rules.ending_version is not None:
                raise UsageError(
                    f"{subject.doing}: this is a view, whose changes have no versions; request the changes between two "
                    "timestamps, and not as a stream."
                )
            return 0
        version = version_header(self._headers, subject.doing, subject.table, subject.secrets())
        for fallback in (metadata_version, rules.version, rules.starting_version):
            version = fallback if version is None else version
        if version is None:
            raise ProtocolError(f"{subject.doing}: the response has no {VERSION_HEADER} header.", table=subject.table)
        return version

    def _check_head(self, head: TableHead) -> None:
        rules, doing = self._rules, self._subject.doing
        if rules.version is not None and head.version != rules.version:
            raise ProtocolError(
                f"{doing}: requested version {rules.version}, found version {head.version}.", table=self._subject.table
            )
        modes = {mode.lower() for mode in head.access_modes}
        if not rules.lists_files or not modes or "url" in modes:
            return
        if "dir" in modes:
            raise UnsupportedFeatureError(
                f"{doing}: the table is shared for directory access only (accessModes {_quoted(modes)}), not by file "
                "URLs; read its directory, or ask the provider for access by URL.",
                feature="directory access",
                table=self._subject.table,
            )
        raise unreadable(doing, self._subject.table, modes)

    # --- the other lines ---

    def actions(self) -> Iterator[list[TableAction]]:
        """Yield the actions after the head, in order, in batches as they arrive.

        Raises ``Transient`` if the response ends early, ``Transient`` or ``RequestError`` if the server reports an
        error in its end-of-stream action, ``ProtocolError`` for a misplaced line, and the errors of ``Lines.of``. The
        actions of the lines before the error are yielded first.
        """
        is_listing = self.head.response_format is ResponseFormat.DELTA and self._rules.operation is Operation.SNAPSHOT
        yield from self._taken(self._lines)
        while (block := next(self._blocks, None)) is not None:
            files = self._decoder.added(block) if is_listing and self.end is None else []
            if files:
                self._number += len(files)
                for renewal in set(map(_renewal_of, files)):
                    self.first_renewal = sooner(self.first_renewal, renewal)
                yield [*files]
            else:
                yield from self._taken(self._decoder.of(block, self._number))
        if self.end is None and self._rules.lists_files and promises(self._headers, END_STREAM_ACTION):
            raise self._subject.incomplete("it ended without the endStreamAction that its header promises")

    def _taken(self, lines: Iterator[Line]) -> Iterator[list[TableAction]]:
        """Yield the actions of ``lines`` as one batch, even if an error ends the lines."""
        actions: list[TableAction] = []
        try:
            self._take(lines, actions)
        except Exception:
            if actions:
                yield actions
            raise
        if actions:
            yield actions

    def _take(self, lines: Iterator[Line], actions: list[TableAction]) -> None:
        rules, head, share = self._rules, self.head, self._share
        first, last = rules.starting_version, rules.ending_version
        is_snapshot = rules.operation is Operation.SNAPSHOT
        read = read_delta if head.response_format is ResponseFormat.DELTA else read_parquet
        for line in lines:
            self._number += 1
            file = line.file
            if self.end is not None and line != NOTHING:
                raise self._malformed("endStreamAction must be the last line")
            other = (
                (line.add or line.cdf or line.remove)
                or (line.protocol or line.metadata or line.misspelt)
                or (line.end or line.query)
            )
            if file is None or other is not None:
                if line == NOTHING:
                    # A client never needs unknown fields to read a response (protocol, "Protocol").
                    continue
                self._check_one(line)
                file = line.add or line.cdf or line.remove
                if file is None:
                    actions += self._other(line)
                    continue
            action = read(line, is_snapshot)
            if isinstance(action, str):
                raise self._malformed(action)
            share(action.action)
            if file.expiration_timestamp is not None:
                renewal = self._lives.renewal(file.expiration_timestamp)
                action = msgspec.structs.replace(action, renew_at=renewal)
                self.first_renewal = sooner(self.first_renewal, renewal)
            if not is_snapshot:
                version = file.version
                if head.is_view:
                    if version is not None or file.timestamp is None:
                        raise self._malformed("each file of a view's changes must have a timestamp and no version")
                elif version is None:
                    raise self._malformed("each file of a range of versions must have a version")
                elif last is not None and version > last:
                    continue
                elif first is not None and version < first:
                    raise self._malformed(f"the file is of version {version}, before the first requested one, {first}")
            actions.append(action)

    def _check_one(self, line: Line) -> None:
        names = [name for name in _KEYS if getattr(line, name) is not None]
        if len(names) != 1:
            keys = ", ".join(_KEYS[name] for name in names)
            raise self._malformed(f"expected exactly one of {', '.join(_KEYS.values())}; found {keys}")

    def _other(self, line: Line) -> list[TableAction]:
        """Return the action of a line without a file, if any: metadata or a protocol in a range of versions."""
        head, table = self.head, self._subject.table
        if line.end is not None:
            self._end_of_stream(line.end)
            return []
        action: VersionedMetadata | VersionedProtocol
        described = line.metadata or line.misspelt
        if described is not None:
            metadata = read_metadata(described, head.response_format, table)
            action, is_same = VersionedMetadata(described.version, metadata), metadata == head.metadata
        elif line.protocol is not None:
            protocol = read_protocol(line.protocol, head.response_format, table, self._loosened)
            action, is_same = VersionedProtocol(line.protocol.version, protocol), protocol == head.protocol
        else:
            raise self._malformed("queryStatus must be the only line")
        if self._rules.operation is not Operation.SNAPSHOT:
            last = self._rules.ending_version
            return [] if last is not None and action.version is not None and action.version > last else [action]
        if not is_same:
            kind = "protocol" if described is None else "metaData"
            raise self._malformed(f"a second {kind} line of a snapshot must be equal to the first")
        return []

    def _end_of_stream(self, end: EndStreamAction) -> None:
        if end.error_message:
            status = end.http_status_error_code
            error = self._subject.refused(end.error_message, status)
            raise Transient(error) if status in RETRIED_STATUSES else error
        self.end = end
        if end.min_url_expiration_timestamp is not None:
            renewal = self._lives.renewal(end.min_url_expiration_timestamp)
            self.first_renewal = sooner(self.first_renewal, renewal)

    def _malformed(self, reason: str) -> ProtocolError:
        return self._subject.malformed(self._number, reason)
