"""A query answer as one checked stream: its pages in turn, asynchronous queries awaited, broken streams resumed.

Nothing is handed out that a later check could call wrong without that check failing the read: the end of each page,
its end-of-stream action, the identity of all pages, and the range of versions.
"""

from __future__ import annotations

import collections
import logging
import time
from collections.abc import Callable, Hashable, Iterator

from delta_sharing_client.delta.actions import AddFile, RemoveFile
from delta_sharing_client.delta.versioned import VersionedMetadata, VersionedProtocol
from delta_sharing_client.errors import ProtocolError, TransportError
from delta_sharing_client.protocol.answer import AnswerKind, TableAction, TableHead
from delta_sharing_client.protocol.failures import error_for
from delta_sharing_client.protocol.messages import EndStreamAction, QueryStatus
from delta_sharing_client.protocol.page import AnswerRules, Page
from delta_sharing_client.protocol.retry import Transient
from delta_sharing_client.protocol.transport import Request, Transport
from delta_sharing_client.redact import scrub

_FIRST_POLL, _LONGEST_POLL = 0.5, 10.0

_log = logging.getLogger(__name__)


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
    """

    def __init__(
        self,
        transport: Transport,
        rules: AnswerRules,
        make_request: Callable[[str | None], Request],
        make_status_request: Callable[[str, str | None], Request],
    ) -> None:
        self.refresh_token: str | None = None
        self.min_url_expiration: int | None = None
        self.complete = False
        self._transport = transport
        self._rules = rules
        self._make_request = make_request
        self._make_status_request = make_status_request
        self._query_id: str | None = None
        self._page = self._open(None)
        self.head = self._page.head

    def close(self) -> None:
        """Give up what has not been read."""
        self._page.close()

    def actions(self) -> Iterator[TableAction]:
        """Yield the actions of all pages. Raises as ``Page.actions``, and ``TransportError`` for a stream that breaks
        off and cannot be resumed."""
        token: str | None = None
        seen: set[str] = set()
        try:
            while True:
                yield from self._resumed(token)
                end = self._page.end or EndStreamAction()
                self._note(end, self._page.min_expiration)
                token = end.next_page_token or None
                if token is None:
                    self.complete = True
                    return
                if token in seen:
                    raise ProtocolError(
                        "The server gave the same nextPageToken twice; its pages would never end.",
                        table=str(self._rules.table),
                    )
                seen.add(token)
                self._page = self._open(token)
                self._check_same(self._page.head, f"page {len(seen) + 1}")
        finally:
            self.close()

    def _resumed(self, token: str | None) -> Iterator[TableAction]:
        """Yield the actions of the current page; where it breaks off, ask again and leave out what was handed out.

        That is right because both answers are of the same version, protocol and metadata, so each holds every file
        that the request needs, and a logical file is the same in both: handing out the first part of one answer and
        then whatever of the other is not among it gives each file once. Had a hint left other files out, more files
        come than needed, never fewer.
        """
        handed_out: list[Hashable] = []
        key = _snapshot_key if self._rules.kind is AnswerKind.SNAPSHOT else _change_key
        tries = 1
        started = time.monotonic()
        policy = self._transport.policy
        while True:
            skip = collections.Counter(handed_out)
            try:
                for action in self._page.actions():
                    name = key(action)
                    if skip and skip[name] > 0:
                        skip[name] -= 1
                        continue
                    handed_out.append(name)
                    yield action
                return
            except Transient as broken:
                self._page.close()
                tries += 1
                wait = policy.wait_before(tries)
                if tries > policy.max_attempts or time.monotonic() - started + wait > policy.max_seconds:
                    raise policy.gave_up(broken, tries - 1) from None
                _log.debug("%s; asking again", broken.error.message)
                time.sleep(wait)
            self._page = self._open(token)
            try:
                self._check_same(self._page.head, "the answer asked for again")
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
        deadline = time.monotonic() + self._rules.poll_seconds
        wait = _FIRST_POLL
        while page.status is not None:
            self._query_id = self._running(page.status)
            if time.monotonic() + wait > deadline:
                raise TransportError(
                    f"The query did not finish within {self._rules.poll_seconds:.0f} s; the server still works on it.",
                    table=str(self._rules.table),
                )
            time.sleep(wait)
            wait = min(wait * 1.5, _LONGEST_POLL)
            page = self._attempts(self._make_status_request(self._query_id, token))
        return page

    def _attempts(self, request: Request) -> Page:
        def attempt() -> Page:
            return Page(self._transport, request, self._transport.attempt(request), self._rules)

        return self._transport.policy.call(attempt)

    def _running(self, status: QueryStatus) -> str:
        table = str(self._rules.table)
        state = (status.status or "pending").lower()
        if state == "failed":
            message = scrub(status.message or "the server gives no reason", self._transport.secrets())
            raise error_for(None, "failed", message, f"Querying {table}", table=table)
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


def _snapshot_key(action: TableAction) -> Hashable:
    return action.file_id  # type: ignore[union-attr]


def _change_key(action: TableAction) -> Hashable:
    if isinstance(action, (VersionedMetadata, VersionedProtocol)):
        return type(action), action.version
    vector = action.deletion_vector if isinstance(action, (AddFile, RemoveFile)) else None
    # Two removals or additions of one file in one version could only differ in their deletion vector.
    rows = None if vector is None else (vector.offset, vector.cardinality)
    return type(action), action.shared_version, action.file_id, rows
