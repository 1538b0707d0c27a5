"""A query's response as one stream of actions: joins pages, waits for asynchronous queries, resumes broken streams.

``protocol.lines`` decodes the bytes, and ``protocol.line_order`` checks the lines. Some checks run only after actions
were returned: the end of a page, its end-of-stream action, the range of versions, and whether all pages are about the
same version. If one of them fails, the read fails.
"""

from __future__ import annotations

import array
import collections
import itertools
import operator
import re
from collections.abc import Callable, Generator, Hashable, Iterator
from typing import cast

from delta_sharing_client.delta.actions import (
    SharedFile,
    TableAction,
    VersionedMetadata,
    VersionedProtocol,
)
from delta_sharing_client.delta.features import Operation
from delta_sharing_client.delta.listed_files import ListedFiles
from delta_sharing_client.delta.paths import without_query
from delta_sharing_client.errors import ProtocolError, TransportError
from delta_sharing_client.fingerprints import Fingerprints, hashes, second_hashes
from delta_sharing_client.http.body import in_bulk
from delta_sharing_client.http.error_responses import Refusal, error_in
from delta_sharing_client.http.request_limits import Interrupt
from delta_sharing_client.http.retry import Transient
from delta_sharing_client.protocol.deviations import Deviations
from delta_sharing_client.protocol.line_blocks import split_blocks
from delta_sharing_client.protocol.line_order import CheckedResponse, ResponseRules, TableHead, sooner
from delta_sharing_client.protocol.lines import (
    EndStreamAction,
    QueryStatus,
    Subject,
)
from delta_sharing_client.protocol.listings import PageTokens
from delta_sharing_client.protocol.messages import check_file_id_hash
from delta_sharing_client.protocol.transport import Request, Transport
from delta_sharing_client.redact import scrub

MAX_ACTIONS = 10_000_000
_FIRST_POLL, _LONGEST_POLL = 0.5, 10.0
# After this many more actions, the attempts to resume an interrupted response are counted from zero again.
_PROGRESS = 1000
_id_of = operator.attrgetter("file_id")
# Words that servers use for a running query and for a failed one; the protocol defines only "failed".
_RUNNING = re.compile(
    r"(pending|running|(en)?queue[ds]?|in.?(progress|queue)|submitted|accepted|created|scheduled|(not.?)?start(ed|ing)"
    r"|waiting|(process|execut|plann|compil|initiali[sz]|prepar|resum|retry|work)ing|active|ongoing"
    # The query is complete, and the next poll returns its result.
    r"|succe(ss|eded)|finished|completed?|done|ready)([ _-].*)?"
)
_FAILED = re.compile(r"fail(ed|ure)|error|abort(ed)?|cancell?ed|closed|expired|timed?.?out|rejected")


class ResponseStream:
    """All pages of a response. ``head`` is the same for every page; the other attributes are final once ``actions`` is
    exhausted.

    ``make_request`` creates the request for a page from its token (``None`` for the first page) and the id of the
    running asynchronous query, if any. ``break_off`` sets ``interrupt``, which several responses may share.
    """

    def __init__(
        self,
        transport: Transport,
        rules: ResponseRules,
        make_request: Callable[[str | None, str | None], Request],
        interrupt: Interrupt | None = None,
    ) -> None:
        self.refresh_token: str | None = None
        self.first_renewal: int | None = None
        self._interrupt = Interrupt() if interrupt is None else interrupt
        self._transport = transport.operation(self._interrupt)
        self._rules = rules
        self._loosened = Deviations(f"Querying {rules.table}")
        self._count = 0
        self._make_request = make_request
        self._query_id: str | None = None
        self._page = self._open(None)
        self.head = self._page.head

    def close(self) -> None:
        """Close the response without reading the rest."""
        self._page.close()
        self._loosened.tell()

    def break_off(self) -> None:
        """From another thread: make ``actions`` raise ``CancelledError`` or a connection error, and send no more
        requests.
        """
        self._interrupt.set()

    def actions(self) -> Generator[list[TableAction], None, None]:
        """Yield the actions of all pages, in batches as they arrive.

        Raises the errors of ``CheckedResponse.actions``, and ``TransportError`` for an interrupted stream that cannot
        be resumed.
        """
        token: str | None = None
        number = 1
        tokens = PageTokens(f"Querying {self._rules.table}", str(self._rules.table))
        try:
            while True:
                before = self._count
                yield from self._resumed(token)
                end = self._page.end or EndStreamAction()
                self.refresh_token = end.refresh_token or self.refresh_token
                self.first_renewal = sooner(self.first_renewal, self._page.first_renewal)
                token = tokens.next(end.next_page_token, is_empty=self._count == before)
                if token is None:
                    return
                number += 1
                self._page = self._open(token)
                self._check_same(self._page.head, f"Page {number}")
        finally:
            self.close()

    def _resumed(self, token: str | None) -> Iterator[list[TableAction]]:
        """Yield the actions of the current page; if it is interrupted, request it again and skip what was returned.

        This is correct because both responses have the same version, protocol and metadata, so each lists every file
        that the request needs, and a logical file is the same in both. Every file is returned once. If a hint made the
        server omit different files in the two responses, more files than necessary are returned, never fewer.
        """
        of_snapshot = self._rules.operation is Operation.SNAPSHOT
        handed_out = _Files(str(self._rules.table), self.head.version) if of_snapshot else _Changes()
        tries, failed_at = self._transport.tries(), self._count
        while True:
            try:
                for actions in self._page.actions():
                    new = handed_out.take(actions)
                    self._count += len(new)
                    if self._count > MAX_ACTIONS:
                        raise ProtocolError(
                            f"The server's response lists more than {MAX_ACTIONS:,} files; read only part of the "
                            "table, with a filter on a partition column or a range of versions.",
                            table=str(self._rules.table),
                        )
                    if new:
                        yield new
                return
            except Transient as broken:
                self._page.close()
                self._interrupt.check()
                if self._count >= failed_at + _PROGRESS:
                    # Received actions are kept. The consumer may take hours, which must not count towards the retries.
                    tries = self._transport.tries()
                failed_at = self._count
                tries.failed(broken)
            handed_out.begin_again()
            self._page = self._open(token)
            try:
                self._check_same(self._page.head, "The repeated response")
            except ProtocolError as changed:
                raise TransportError(
                    f"The response broke off, and the table has changed since then: {changed.message} Read the table "
                    "again.",
                    table=str(self._rules.table),
                ) from None

    def _open(self, token: str | None) -> CheckedResponse:
        page = self._asked(token)
        wait = _FIRST_POLL
        while (status := page.status) is not None:
            self._query_id = self._running(status)
            # The wait ends at the latest with ``total_timeout``; then the next poll raises.
            self._interrupt.sleep(self._transport.deadline.within(wait))
            wait = min(wait * 1.5, _LONGEST_POLL)
            page = self._asked(token)
        return page

    def _asked(self, token: str | None) -> CheckedResponse:
        request = self._make_request(token, self._query_id)
        return self._transport.repeat(lambda: ask_once(self._transport, request, self._rules, self._loosened))

    def _running(self, status: QueryStatus) -> str:
        table = str(self._rules.table)
        state = status.status or "pending"
        if _FAILED.fullmatch(state.lower()):
            said = status.error_message or status.message or error_in(status.error)[1] or "the server gives no reason"
            refusal = Refusal(status=None, code=state[:40], message=scrub(said, self._transport.secrets()))
            raise refusal.error(f"Querying {table}", table=table)
        if not _RUNNING.fullmatch(state.lower()):
            raise ProtocolError(f"Expected the query status pending or failed, found {state[:40]!r}.", table=table)
        query_id = status.query_id or self._query_id
        if query_id is None:
            raise ProtocolError("The server runs the query asynchronously, but sent no queryId.", table=table)
        if self._query_id is not None and query_id != self._query_id:
            raise ProtocolError("The server changed the queryId while the query was running.", table=table)
        return query_id

    def _check_same(self, head: TableHead, what: str) -> None:
        for name in ("version", "response_format", "protocol", "metadata"):
            if getattr(head, name) != getattr(self.head, name):
                raise ProtocolError(
                    f"{what} has a different {name.replace('_', ' ')} from the first one.",
                    table=str(self._rules.table),
                    version=self.head.version,
                )


def ask_once(transport: Transport, request: Request, rules: ResponseRules, deviations: Deviations) -> CheckedResponse:
    """Send ``request`` once, and return the response after reading its head. Raises the errors of ``Transport.attempt``
    and ``CheckedResponse``."""
    response = transport.attempt(request)
    subject = Subject(
        doing=request.doing,
        table=str(rules.table),
        secrets=transport.secrets,
        status=response.status,
        content_type=response.headers.get("Content-Type", "no content type"),
    )
    blocks = split_blocks(in_bulk(transport.chunks(response, request)))
    checked = CheckedResponse(subject, rules, response.headers, deviations, blocks, response.close)
    try:
        checked.begin()
        if checked.status is None:
            check_file_id_hash(request.headers, response.headers, request.doing, subject.table)
    except BaseException:
        checked.close()
        raise
    return checked


class _Files:
    """Remembers the files of a page that were returned, to skip them if the page is requested again.

    It is for snapshots, which list each file once. It keeps only hashes, because there may be millions of files.
    """

    def __init__(self, table: str, version: int) -> None:
        self._table, self._version = table, version
        self._hashes, self._second_hashes = array.array("q"), array.array("q")
        # The files that the repeated page lists, and those that were returned before.
        self._again: tuple[ListedFiles, Fingerprints] | None = None

    def begin_again(self) -> None:
        before = Fingerprints()
        before.add(self._hashes, self._second_hashes)
        self._again = ListedFiles(self._table, self._version), before

    def take(self, actions: list[TableAction]) -> list[TableAction]:
        """Return the ``actions`` that have not been returned yet."""
        files = cast("list[SharedFile]", actions)
        names = list(map(_id_of, files))
        if not all(names):
            names = [file.file_id or without_query(file.action.path) for file in files]
        if self._again is not None:
            listed, before = self._again
            # Raises if two files have the same id, because both would be skipped.
            listed.new(actions)
            # A file that is skipped by mistake would be missing, so both hashes are compared.
            new = before.get(hashes(names)) != second_hashes(names)
            actions, names = [*itertools.compress(actions, new)], [*itertools.compress(names, new)]
        self._hashes.extend(hashes(names))
        self._second_hashes.extend(second_hashes(names))
        return actions


class _Changes:
    """Like ``_Files``, for a change feed, which may list a file in several versions, and may lack file ids."""

    def __init__(self) -> None:
        self._names: list[Hashable] = []
        self._before: collections.Counter[Hashable] = collections.Counter()

    def begin_again(self) -> None:
        self._before = collections.Counter(self._names)

    def take(self, actions: list[TableAction]) -> list[TableAction]:
        return [action for action in actions if self._is_new(action)]

    def _is_new(self, action: TableAction) -> bool:
        name = _change_key(action)
        if self._before[name] > 0:
            self._before[name] -= 1
            return False
        self._names.append(name)
        return True


def _change_key(action: TableAction) -> Hashable:
    if isinstance(action, (VersionedMetadata, VersionedProtocol)):
        return type(action), action.version
    vector = action.action.deletion_vector
    # Two removals or two additions of one file in one version can only differ in their deletion vectors.
    rows = None if vector is None else (vector.offset, vector.cardinality)
    name = action.file_id or without_query(action.action.path)
    return type(action.action), action.version, action.timestamp, name, rows
