"""A query answer, from the bytes of its lines to one checked stream of actions.

``Pages`` is the whole answer: its pages in turn, asynchronous queries awaited, broken streams resumed. ``Page`` is one
of them, ``split_blocks`` cuts its body into lines. Nothing is handed out that a later check could call wrong without
that check failing the read: the end of each page, its end-of-stream action, the identity of all pages, and the range
of versions.
"""

from __future__ import annotations

import array
import collections
import dataclasses
import itertools
import secrets
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from typing import Union, cast

import msgspec
import requests

from delta_sharing_client.connections import Interrupt
from delta_sharing_client.delta.actions import AddFile, FileAction, RemoveFile, VersionedMetadata, VersionedProtocol
from delta_sharing_client.delta.paths import without_query
from delta_sharing_client.errors import ProtocolError, TransportError, UnsupportedFeatureError, UsageError
from delta_sharing_client.fingerprints import Fingerprints, fingerprint, fingerprints, pairs
from delta_sharing_client.options import ResponseFormat
from delta_sharing_client.protocol.body import Block, Refusal, split_blocks
from delta_sharing_client.protocol.messages import (
    CHANGES_OF_VIEWS,
    END_STREAM_ACTION,
    AnswerKind,
    EndStreamAction,
    FileLine,
    FileReader,
    Line,
    QueryStatus,
    TableAction,
    TableHead,
    format_of,
    promises,
    read_metadata,
    read_protocol,
)
from delta_sharing_client.protocol.names import TableName
from delta_sharing_client.protocol.rest import VERSION_HEADER, PageTokens, version_header
from delta_sharing_client.protocol.transport import Request, Transport
from delta_sharing_client.redact import scrub
from delta_sharing_client.retry import RETRIED_STATUSES, Transient
from delta_sharing_client.shortcuts import SHORTCUTS

MAX_ACTIONS = 10_000_000
_MAX_BLANK_LINES = 10_000
_FIRST_POLL, _LONGEST_POLL = 0.5, 10.0
# After so many more actions, an answer that breaks off has all its tries again.
_PROGRESS = 1000
_NAMES_AT_ONCE = 1 << 16
# What a line may hold: the attribute of ``Line``, and the key on the wire.
_KEYS = {field.name: field.encode_name for field in msgspec.structs.fields(Line)}

_decode = msgspec.json.Decoder(Line).decode
_decode_list = msgspec.json.Decoder(list[Union[Line, int]]).decode
_BETWEEN = secrets.randbits(62)
_SEPARATOR = b",%d," % _BETWEEN
_MOST_AT_ONCE = 4 * 1024 * 1024
_MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_NOTHING = Line()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRules:
    """What an answer must keep to.

    ``formats`` are those that were asked for; ``version`` is the one asked for; files before
    ``starting_version`` are an error, files after ``ending_version`` are dropped (the server may send them).
    A missing version header means the version asked for; the change data feed of a view has none (``may_be_view``).
    """

    table: TableName
    kind: AnswerKind
    formats: tuple[ResponseFormat, ...]
    version: int | None = None
    starting_version: int | None = None
    ending_version: int | None = None
    needs_url_access: bool = True
    may_be_view: bool = False


class Pages:
    """All pages of an answer. ``head`` is that of every page; the rest is known once ``actions`` is exhausted.

    Parameters
    ----------
    transport, rules:
        Where to ask, and what the answer must keep to.
    make_request:
        The request for a page, from its token; ``None`` is the first page.
    make_status_request:
        The request for a page of an asynchronous query, from query id and page token.
    interrupt:
        What ``break_off`` sets, if it is that of several answers.
    """

    def __init__(
        self,
        transport: Transport,
        rules: AnswerRules,
        make_request: Callable[[str | None], Request],
        make_status_request: Callable[[str, str | None], Request],
        interrupt: Interrupt | None = None,
    ) -> None:
        self.refresh_token: str | None = None
        self.min_url_expiration: int | None = None
        self._interrupt = Interrupt() if interrupt is None else interrupt
        self._transport = transport.operation(self._interrupt)
        self._rules = rules
        self._count = 0
        self._make_request = make_request
        self._make_status_request = make_status_request
        self._query_id: str | None = None
        self._page = self._open(None)
        self.head = self._page.head

    def close(self) -> None:
        """Give up what has not been read."""
        self._page.close()

    def break_off(self) -> None:
        """Have ``actions``, which another thread is taking, raise ``CancelledError`` or an error of the connection; it
        asks for nothing more."""
        self._interrupt.set()

    def actions(self) -> Generator[list[TableAction], None, None]:
        """Yield the actions of all pages, as many at a time as arrive together. Raises as ``Page.actions``, and
        ``TransportError`` for a stream that breaks off and cannot be resumed."""
        token: str | None = None
        number = 1
        tokens = PageTokens(f"Querying {self._rules.table}", str(self._rules.table))
        try:
            while True:
                before = self._count
                yield from self._resumed(token)
                end = self._page.end or EndStreamAction()
                self._note(end, self._page.min_expiration)
                token = tokens.next(end.next_page_token, is_empty=self._count == before)
                if token is None:
                    return
                number += 1
                self._page = self._open(token)
                self._check_same(self._page.head, f"Page {number}")
        finally:
            self.close()

    def _resumed(self, token: str | None) -> Iterator[list[TableAction]]:
        """Yield the actions of the current page; where it breaks off, ask again and leave out what was handed out.

        That is right because both answers are of the same version, protocol and metadata, so each holds every file
        that the request needs, and a logical file is the same in both: handing out the first part of one answer and
        then whatever of the other is not among it gives each file once. Had a hint left other files out, more files
        come than needed, never fewer.
        """
        handed_out: _Files | _Changes = _Files() if self._rules.kind is AnswerKind.SNAPSHOT else _Changes()
        tries, failed_at = self._transport.tries(), self._count
        while True:
            try:
                for actions in self._page.actions():
                    new = handed_out.take(actions)
                    self._count += len(new)
                    if self._count > MAX_ACTIONS:
                        raise ProtocolError(
                            f"The server's answer lists more than {MAX_ACTIONS:,} files; ask for a part of the table, "
                            "by a filter on a partition column or by a range of versions.",
                            table=str(self._rules.table),
                        )
                    if new:
                        yield new
                return
            except Transient as broken:
                self._page.close()
                self._interrupt.check()
                if self._count >= failed_at + _PROGRESS:
                    # What came keeps. Who takes the actions may take hours, which are no time of trying.
                    tries = self._transport.tries()
                failed_at = self._count
                tries.failed(broken)
            handed_out.begin_again()
            self._page = self._open(token)
            try:
                self._check_same(self._page.head, "The answer asked for again")
            except ProtocolError as changed:
                raise TransportError(
                    f"The answer broke off, and the table has changed since: {changed.message} Read again.",
                    table=str(self._rules.table),
                ) from None

    def _open(self, token: str | None) -> Page:
        request = (
            self._make_request(token) if self._query_id is None else self._make_status_request(self._query_id, token)
        )
        page = self._attempts(request)
        wait = _FIRST_POLL
        while page.status is not None:
            self._query_id = self._running(page.status)
            # What is left of 'total_timeout' ends the wait: the next poll raises.
            self._interrupt.sleep(self._transport.within(wait))
            wait = min(wait * 1.5, _LONGEST_POLL)
            page = self._attempts(self._make_status_request(self._query_id, token))
        return page

    def _attempts(self, request: Request) -> Page:
        transport = self._transport
        return transport.repeat(lambda: Page(transport, request, transport.attempt(request), self._rules))

    def _running(self, status: QueryStatus) -> str:
        table = str(self._rules.table)
        state = (status.status or "pending").lower()
        if state == "failed":
            message = scrub(status.message or "the server gives no reason", self._transport.secrets())
            raise Refusal(status=None, code="failed", message=message).error(f"Querying {table}", table=table)
        if state not in {"pending", "running"}:
            raise ProtocolError(f"Expected queryStatus pending or failed, found {state[:40]!r}.", table=table)
        query_id = status.query_id or self._query_id
        if query_id is None:
            raise ProtocolError("The server runs the query but gave no queryId.", table=table)
        if self._query_id is not None and query_id != self._query_id:
            raise ProtocolError("The server changed the queryId while the query ran.", table=table)
        return query_id

    def _check_same(self, head: TableHead, what: str) -> None:
        for name in ("version", "response_format", "protocol", "metadata"):
            if getattr(head, name) != getattr(self.head, name):
                raise ProtocolError(
                    f"{what} has another {name.replace('_', ' ')} than the first one.",
                    table=str(self._rules.table),
                    version=self.head.version,
                )

    def _note(self, end: EndStreamAction, expires: int | None) -> None:
        if end.refresh_token:
            self.refresh_token = end.refresh_token
        if expires is not None and (self.min_url_expiration is None or expires < self.min_url_expiration):
            self.min_url_expiration = expires


class Page:
    """One answer with its head read; ``actions`` streams the rest. ``status`` is set for a query still running."""

    head: TableHead

    def __init__(self, transport: Transport, request: Request, response: requests.Response, rules: AnswerRules) -> None:
        self.end: EndStreamAction | None = None
        self.status: QueryStatus | None = None
        self.min_expiration: int | None = None
        self._transport = transport
        self._request = request
        self._status_code, self._headers = response.status_code, response.headers
        self._give_up: Callable[[], None] = response.close
        self._rules = rules
        self._table = str(rules.table)
        self._number = 0
        self._end_promised = promises(response.headers, END_STREAM_ACTION)
        self._is_view = promises(response.headers, CHANGES_OF_VIEWS)
        self._blocks = split_blocks(transport.chunks(response, request))
        # The block that is being read, and up to where.
        self._block, self._at = Block(b"", complete=True), 1
        self._blank = 0
        try:
            self._read_head()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give the connection up; needed only before ``actions`` is exhausted."""
        self._give_up()
        # Here goes the answer, and whatever still reads from it. Elsewhere, whenever somebody lets go of the last thing
        # that refers to it, Ctrl-C could be lost: Python forgets a signal that is heard in the finalizer of an answer.
        self._give_up, self._blocks = lambda: None, iter(())

    def actions(self) -> Iterator[list[TableAction]]:
        """Yield what follows the head, in the order of the lines and as many at a time as arrive together; then ``end``
        is known.

        Raises ``Transient`` if the answer breaks off, ``ProtocolError`` if it is malformed, ``RequestError`` if the
        server reports an error in its end-of-stream action; each after the actions of the lines before.
        """
        reader = FileReader(self.head.response_format, self._rules.kind)
        while self._has_lines():
            actions: list[TableAction] = []
            try:
                self._read_lines(self._decoded(), reader.read, actions.append)
            except Exception:
                if actions:
                    yield actions
                raise
            if actions:
                yield actions
        if self.end is None and self._end_promised:
            raise Transient(
                TransportError(
                    f"{self._request.doing} failed: the answer ended without the endStreamAction that its header "
                    "promises, so it is not complete.",
                    table=self._table,
                )
            )

    def _read_lines(
        self,
        lines: Iterable[Line],
        read: Callable[[Line], FileAction | str],
        give: Callable[[TableAction], None],
    ) -> None:
        rules, head = self._rules, self.head
        changes = rules.kind is AnswerKind.CHANGES
        first, last = rules.starting_version, rules.ending_version
        for line in lines:
            self._number += 1
            file = line.file
            if file is None and line == _NOTHING:
                # Fields that a client does not know are never needed to read an answer (protocol, "Protocol").
                continue
            if self.end is not None:
                raise self._malformed("endStreamAction must be the last line")
            several = line.add or line.cdf or line.remove or line.protocol or line.metadata or line.end or line.query
            if file is None or several is not None:
                file = self._only_file(line)
                if file is None:
                    other = self._other(line)
                    if other is not None:
                        give(other)
                    continue
            action = read(line)
            if isinstance(action, str):
                raise self._malformed(action)
            expires = file.expiration_timestamp
            if expires is not None and (self.min_expiration is None or expires < self.min_expiration):
                self.min_expiration = expires
            if changes:
                version = file.version
                if head.is_view:
                    if version is not None or file.timestamp is None:
                        raise self._malformed("each file of a view's changes has a timestamp and no version")
                elif version is None:
                    raise self._malformed("each file of a range of versions needs its version")
                elif last is not None and version > last:
                    continue
                elif first is not None and version < first:
                    raise self._malformed(f"a file of version {version} is before the range that starts at {first}")
            give(action)

    def _read_head(self) -> None:
        first = self._next_line()
        if first is not None and first.query is not None:
            self._only_one(first)
            self.status = first.query
            while (line := self._next_line()) is not None:
                if line.end is None:
                    raise self._malformed("queryStatus must be the only line")
            return
        first = self._not_the_end(first, "protocol")
        if first.protocol is None:
            raise self._malformed("the first line must hold protocol")
        protocol_line = first.protocol
        found = format_of(protocol_line)
        if found is None:
            raise self._malformed("protocol needs minReaderVersion or deltaProtocol")
        # Servers that do not know the header answer in parquet, and the protocol wants clients to take that.
        if found not in (*self._rules.formats, ResponseFormat.PARQUET):
            raise ProtocolError(
                f"{self._request.doing}: asked for the {' or '.join(sorted(f.value for f in self._rules.formats))} "
                f"response format, found {found.value}.",
                table=self._table,
            )
        protocol = read_protocol(protocol_line, found, self._table)
        described = self._not_the_end(self._next_line(), "metaData").metadata
        if described is None:
            raise self._malformed("the second line must hold metaData")
        self.head = TableHead(
            version=self._version(described.version),
            response_format=found,
            protocol=protocol,
            metadata=read_metadata(described, found, self._table),
            metadata_version=described.version,
            table_size=described.size,
            num_files=described.num_files,
            location=described.location,
            auxiliary_locations=tuple(described.auxiliary_locations or ()),
            access_modes=tuple(described.access_modes or ()),
            is_view=self._is_view,
        )
        self._check_head(self.head)

    def _not_the_end(self, line: Line | None, expected: str) -> Line:
        if line is not None and line.end is not None:
            self._end_of_stream(line.end)  # an error report may be all there is
        if line is None or line.end is not None:
            raise Transient(self._incomplete(f"it has no {expected} line"))
        self._only_one(line)
        return line

    def _version(self, metadata_version: int | None) -> int:
        if self._is_view:
            rules = self._rules
            if not rules.may_be_view or rules.starting_version is not None or rules.ending_version is not None:
                raise UsageError(
                    f"{self._request.doing}: this is a view, whose changes have no versions; ask for them between two "
                    "timestamps, and not as a stream."
                )
            return 0
        version = version_header(self._headers, self._request.doing, self._table, self._transport.secrets())
        for fallback in (metadata_version, self._rules.version, self._rules.starting_version):
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

    def _has_lines(self) -> bool:
        """Go on to the next block where the last one is done; return whether there was one."""
        while self._at > len(self._block.text):
            block = next(self._blocks, None)
            if block is None:
                return False
            self._block, self._at = block, 0
        return True

    def _next_line(self) -> Line | None:
        """Return the next line that says something we know, ``None`` at the end."""
        while self._has_lines():
            text, start = self._block.text, self._at
            end = text.find(b"\n", start)
            raw = text[start:end] if end >= 0 else text[start:]
            line = self._line(raw)
            self._at += len(raw) + 1
            self._number += 1
            if line != _NOTHING:
                return line
            if self._number == 1:
                self._check_error(raw)
        return None

    def _decoded(self) -> Iterable[Line]:
        """Return the lines that are left of the block: at once, or where one is refused, each in its turn."""
        left = self._block._replace(text=self._block.text[self._at :])
        self._block, self._at = left._replace(text=b""), 1
        decoded = _decoded_at_once(left.text) if SHORTCUTS.lines_at_once else None
        return map(self._line, left.lines) if decoded is None else decoded

    def _line(self, raw: bytes) -> Line:
        try:
            return _decode(raw)
        except _MALFORMED as error:
            if not raw.strip():
                self._blank += 1
                if self._blank > _MAX_BLANK_LINES:
                    raise self._malformed(f"more than {_MAX_BLANK_LINES} lines are blank") from None
                return _NOTHING
            self._number += 1
            if not self._block.complete and raw.lstrip().startswith(b"{"):
                raise Transient(self._incomplete(f"it is cut off in line {self._number}")) from None
            if self._number == 1 and not raw.lstrip().startswith(b"{"):
                raise self._another_page(raw) from None
            raise self._malformed(scrub(str(error))) from None

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
        action: VersionedMetadata | VersionedProtocol
        if line.metadata is not None:
            metadata = read_metadata(line.metadata, head.response_format, self._table)
            action, is_same = VersionedMetadata(line.metadata.version, metadata), metadata == head.metadata
        elif line.protocol is not None:
            protocol = read_protocol(line.protocol, head.response_format, self._table)
            action, is_same = VersionedProtocol(line.protocol.version, protocol), protocol == head.protocol
        else:
            raise self._malformed("queryStatus must be the only line")
        if self._rules.kind is AnswerKind.CHANGES:
            last = self._rules.ending_version
            return None if last is not None and action.version is not None and action.version > last else action
        if not is_same:
            raise self._malformed(f"a snapshot has one {'protocol' if line.metadata is None else 'metaData'}")
        return None

    def _end_of_stream(self, end: EndStreamAction) -> None:
        if end.error_message:
            said = scrub(end.error_message, self._transport.secrets())
            status = end.http_status_error_code
            error = Refusal(status=status, message=said).error(self._request.doing, table=self._table)
            raise Transient(error) if status in RETRIED_STATUSES else error
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
        if b'"errorCode"' in body or b'"error_code"' in body:
            refusal = Refusal.read(self._status_code, body, self._transport.secrets())
            raise refusal.error(self._request.doing, table=self._table)

    def _another_page(self, start: bytes) -> ProtocolError:
        kind = self._headers.get("Content-Type", "no content type")
        text = scrub(start[:60].decode("utf-8", "replace"), self._transport.secrets())
        return ProtocolError(
            f"{self._request.doing}: expected lines of JSON, found {scrub(kind)[:60]} that begins with {text!r}; check "
            "the endpoint of the profile, and whether a proxy or a login page answers in its place.",
            table=self._table,
        )

    def _incomplete(self, reason: str) -> TransportError:
        return TransportError(f"{self._request.doing} failed: the answer is not complete, {reason}.", table=self._table)


def _decoded_at_once(text: bytes) -> list[Line] | None:
    """Return the lines of ``text``; ``None`` where each must be looked at by itself, to name the one that is wrong."""
    if len(text) > _MOST_AT_ONCE:
        return None
    # One list, with a number between any two lines that no line can hold: nobody knows it. So no line is two lines, and
    # no two lines are one.
    joined = text.replace(b"\n", _SEPARATOR)
    breaks = (len(joined) - len(text)) // (len(_SEPARATOR) - 1)
    try:
        found = _decode_list(b"[%b]" % joined)
    except _MALFORMED:
        return None
    lines, between = found[::2], found[1::2]
    plain = between == [_BETWEEN] * breaks and set(map(type, lines)) == {Line}
    return cast("list[Line]", lines) if plain else None


class _Files:
    """What was handed out of a page, to be left out where it is asked for again: of a snapshot, which lists each file
    once, so that ten million of them need not be kept for that."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._words = array.array("q")
        self._before: Fingerprints | None = None

    def begin_again(self) -> None:
        self._pack()
        self._before = Fingerprints()
        for item in pairs(self._words):
            self._before.add(item)

    def take(self, actions: list[TableAction]) -> list[TableAction]:
        """Return those of ``actions`` that are to be handed out now."""
        names = [action.file_id or without_query(action.path) for action in actions]  # type: ignore[union-attr]
        if self._before is not None:
            new = [fingerprint(name) not in self._before for name in names]
            actions, names = [*itertools.compress(actions, new)], [*itertools.compress(names, new)]
        self._names += names
        if len(self._names) >= _NAMES_AT_ONCE:
            self._pack()
        return actions

    def _pack(self) -> None:
        self._words.extend(fingerprints(self._names))
        self._names.clear()


class _Changes:
    """The same of a feed, which names one file in several versions, and may not number its files."""

    def __init__(self) -> None:
        self._names: list[Hashable] = []
        self._before: collections.Counter[Hashable] = collections.Counter()

    def begin_again(self) -> None:
        self._before = collections.Counter(self._names)

    def take(self, actions: list[TableAction]) -> list[TableAction]:
        return [action for action in actions if self._is_new(action)]

    def _is_new(self, action: TableAction) -> bool:
        name = _change_key(action)
        if self._before and self._before[name] > 0:
            self._before[name] -= 1
            return False
        self._names.append(name)
        return True


def _change_key(action: TableAction) -> Hashable:
    if isinstance(action, (VersionedMetadata, VersionedProtocol)):
        return type(action), action.version
    vector = action.deletion_vector if isinstance(action, (AddFile, RemoveFile)) else None
    # Two removals or additions of one file in one version could only differ in their deletion vector.
    rows = None if vector is None else (vector.offset, vector.cardinality)
    return type(action), action.shared_version, action.shared_timestamp, action.file_id, rows
