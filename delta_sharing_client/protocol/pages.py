"""A query's answer from the network, as one stream of actions: its pages in turn, asynchronous queries awaited, broken
streams resumed.

``protocol.lines`` decodes what arrives, ``protocol.answers`` checks it. Nothing is handed out that a later check could
call wrong without that check failing the read: the end of each page, its end-of-stream action, the identity of all
pages, and the range of versions.
"""

from __future__ import annotations

import array
import collections
import itertools
import re
from collections.abc import Callable, Generator, Hashable, Iterator
from typing import TYPE_CHECKING

from delta_sharing_client.delta.actions import AddFile, RemoveFile, VersionedMetadata, VersionedProtocol
from delta_sharing_client.delta.listed import ListedFiles
from delta_sharing_client.delta.paths import without_query
from delta_sharing_client.errors import ProtocolError, TransportError
from delta_sharing_client.fingerprints import Fingerprints, fingerprint, fingerprints, pairs
from delta_sharing_client.protocol.answers import Answer, AnswerRules, TableHead
from delta_sharing_client.protocol.body import Refusal, split_blocks
from delta_sharing_client.protocol.lines import (
    AnswerKind,
    EndStreamAction,
    Line,
    Lines,
    QueryStatus,
    Subject,
    TableAction,
)
from delta_sharing_client.protocol.loose import Loosened
from delta_sharing_client.protocol.messages import check_file_id_hash
from delta_sharing_client.protocol.rest import PageTokens
from delta_sharing_client.protocol.transport import Request, Transport
from delta_sharing_client.protocol.watch import Interrupt
from delta_sharing_client.redact import scrub
from delta_sharing_client.retry import Transient

if TYPE_CHECKING:
    import requests

MAX_ACTIONS = 10_000_000
_FIRST_POLL, _LONGEST_POLL = 0.5, 10.0
# After so many more actions, an answer that breaks off has all its tries again.
_PROGRESS = 1000
_NAMES_AT_ONCE = 1 << 16
# Words of servers for a query that is not done yet, and for one that never will be; the protocol has "failed" alone.
_RUNNING = re.compile(r"pending|running|queued|in.?progress|submitted|accepted|created|scheduled|start(ed|ing)|waiting")
_FAILED = re.compile(r"fail(ed|ure)|error|abort(ed)?|cancell?ed|closed|expired|timed?.?out|rejected")


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
        self._loosened = Loosened(f"Querying {rules.table}")
        self._count = 0
        self._make_request = make_request
        self._make_status_request = make_status_request
        self._query_id: str | None = None
        self._page = self._open(None)
        self.head = self._page.answer.head

    def close(self) -> None:
        """Give up what has not been read."""
        self._page.close()
        self._loosened.tell()

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
                end = self._page.answer.end or EndStreamAction()
                self._note(end, self._page.answer.min_expiration)
                token = tokens.next(end.next_page_token, is_empty=self._count == before)
                if token is None:
                    return
                number += 1
                self._page = self._open(token)
                self._check_same(self._page.answer.head, f"Page {number}")
        finally:
            self.close()

    def _resumed(self, token: str | None) -> Iterator[list[TableAction]]:
        """Yield the actions of the current page; where it breaks off, ask again and leave out what was handed out.

        That is right because both answers are of the same version, protocol and metadata, so each holds every file
        that the request needs, and a logical file is the same in both: handing out the first part of one answer and
        then whatever of the other is not among it gives each file once. Had a hint left other files out, more files
        come than needed, never fewer.
        """
        of_snapshot = self._rules.kind is AnswerKind.SNAPSHOT
        handed_out = _Files(str(self._rules.table), self.head.version) if of_snapshot else _Changes()
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
                self._check_same(self._page.answer.head, "The answer asked for again")
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
        while (status := page.answer.status) is not None:
            self._query_id = self._running(status)
            # What is left of 'total_timeout' ends the wait: the next poll raises.
            self._interrupt.sleep(self._transport.within(wait))
            wait = min(wait * 1.5, _LONGEST_POLL)
            page = self._attempts(self._make_status_request(self._query_id, token))
        return page

    def _attempts(self, request: Request) -> Page:
        transport = self._transport
        return transport.repeat(
            lambda: Page(transport, request, transport.attempt(request), self._rules, self._loosened)
        )

    def _running(self, status: QueryStatus) -> str:
        table = str(self._rules.table)
        state = status.status or "pending"
        if _FAILED.fullmatch(state.lower()):
            said = status.error_message or status.message or "the server gives no reason"
            refusal = Refusal(status=None, code=state[:40], message=scrub(said, self._transport.secrets()))
            raise refusal.error(f"Querying {table}", table=table)
        if not _RUNNING.fullmatch(state.lower()):
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
    """One answer from the network: its head is read, ``actions`` streams the rest, ``answer`` knows what came."""

    def __init__(
        self,
        transport: Transport,
        request: Request,
        response: requests.Response,
        rules: AnswerRules,
        loosened: Loosened,
    ) -> None:
        subject = Subject(
            doing=request.doing,
            table=str(rules.table),
            secrets=transport.secrets,
            status=response.status_code,
            content_type=response.headers.get("Content-Type", "no content type"),
        )
        self.answer = Answer(subject, rules, response.headers, loosened)
        self._decoder = Lines(subject, loosened)
        self._give_up: Callable[[], None] = response.close
        self._blocks = split_blocks(transport.chunks(response, request))
        # What is left of the block that is being read.
        self._lines: Iterator[Line] = iter(())
        try:
            self.answer.begin(iter(self._line, None))
            if self.answer.status is None:
                check_file_id_hash(request.headers, response.headers, request.doing, subject.table)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give the connection up; needed only before ``actions`` is exhausted."""
        self._give_up()
        # Here goes the answer, and whatever still reads from it. Elsewhere, whenever somebody lets go of the last thing
        # that refers to it, Ctrl-C could be lost: Python forgets a signal that is heard in the finalizer of an answer.
        self._give_up, self._blocks, self._lines = lambda: None, iter(()), iter(())

    def actions(self) -> Iterator[list[TableAction]]:
        """Yield what follows the head, in the order of the lines and as many at a time as arrive together.

        Raises ``Transient`` if the answer breaks off, and the errors of ``Lines.of`` and ``Answer.take``; each after
        the actions of the lines before.
        """
        while True:
            actions: list[TableAction] = []
            try:
                self.answer.take(self._lines, actions.append)
            except Exception:
                if actions:
                    yield actions
                raise
            if actions:
                yield actions
            if not self._go_on():
                break
        self.answer.finish()

    def _line(self) -> Line | None:
        while True:
            line = next(self._lines, None)
            if line is not None or not self._go_on():
                return line

    def _go_on(self) -> bool:
        """Go to the next block; return whether there is one."""
        block = next(self._blocks, None)
        if block is None:
            return False
        self._lines = self._decoder.of(block)
        return True


class _Files:
    """What was handed out of a page, to be left out where it is asked for again: of a snapshot, which lists each file
    once, so that ten million of them need not be kept for that."""

    def __init__(self, table: str, version: int) -> None:
        self._table, self._version = table, version
        self._names: list[str] = []
        self._words = array.array("q")
        self._before: Fingerprints | None = None
        self._again = ListedFiles(table, version, most=0)

    def begin_again(self) -> None:
        self._pack()
        self._before = Fingerprints()
        # Two files of one id would both be taken for the one that was handed out.
        self._again = ListedFiles(self._table, self._version, most=0)
        for item in pairs(self._words):
            self._before.add(item)

    def take(self, actions: list[TableAction]) -> list[TableAction]:
        """Return those of ``actions`` that are to be handed out now."""
        names = [action.file_id or without_query(action.path) for action in actions]  # type: ignore[union-attr]
        if self._before is not None:
            self._again.new(actions)
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
