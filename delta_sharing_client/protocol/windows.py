"""A long change feed in windows of versions: each window is requested separately, and is complete before the next one
starts.

The protocol does not define the order of lines in a response (the reference server once listed the change files of all
versions, then all added files, then all removed ones), so no version is known to be complete before the end of the
response. But a response contains only the requested versions, so a window is complete at the end of its response.
"""

from __future__ import annotations

import bisect
import copy
import dataclasses
import itertools
import threading
from collections.abc import Generator, Sequence
from typing import NamedTuple

from delta_sharing_client.delta.actions import SharedFile, TableAction
from delta_sharing_client.errors import ProtocolError, RequestError, UnsupportedFeatureError
from delta_sharing_client.http.request_limits import Interrupt
from delta_sharing_client.protocol.fresh_urls import RefreshingUrls
from delta_sharing_client.protocol.line_order import TableHead
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.protocol.query import ChangesQuery, TableResponse, query_table
from delta_sharing_client.protocol.rest import RestClient

FEW = 4_096
"""A feed of fewer actions is listed by one query, because waiting for its last line takes little time."""
# A window should have about ``_WANTED * FEW`` actions; a window with more than ``_MOST * FEW`` is split.
_WANTED, _MOST = 4, 8
# The number of windows whose renewed URLs are kept; the reader is in one or two windows at a time.
_FRESH = 3


class FeedWindow(NamedTuple):
    """The actions of a window, which starts at the version ``first`` (``None``: at the start of the feed)."""

    first: int | None
    head: TableHead
    actions: Sequence[TableAction]


class FeedWindows:
    """The windows of a feed, oldest first, for a single consumer thread.

    ``end`` describes the table at ``last``, the feed's last version, as the feed states it. ``urls`` renews the URLs of
    the files in the windows that were yielded.
    """

    def __init__(
        self, rest: RestClient, table: AssetName, query: ChangesQuery, end: TableHead, last: int, seen: Sequence[int]
    ) -> None:
        self.end, self.last, self.urls = end, last, WindowUrls()
        self._rest, self._table, self._query, self._seen = rest, table, query, seen
        self._interrupt = Interrupt()

    def break_off(self) -> None:
        """From another thread: make ``windows`` raise ``CancelledError`` or a connection error."""
        self._interrupt.set()

    def windows(self) -> Generator[FeedWindow, None, None]:
        """Yield the windows; each is listed on demand. Raises the errors of ``TableResponse.actions``."""
        # The first window ends at a version that was seen, so it has files. The last version seen may be incomplete.
        ends = self._seen[:-1] or self._seen
        first, width = None, 1
        while first is None or first <= self.last:
            end = ends[-1] if first is None else min(first + width - 1, self.last)
            is_least = len(ends) == 1 if first is None else end == first
            window = self._list(first, end, None if is_least else _MOST * FEW)
            if window is not None:
                yield window
                span = max(1, end + 1 - (window.head.version if first is None else first))
                width = max(1, min(_WANTED * span, span * _WANTED * FEW // max(1, len(window.actions))))
                first = end + 1
            elif first is None:
                ends = ends[: len(ends) // 2]
            else:
                width = (end + 1 - first) // 2

    def _list(self, first: int | None, end: int, most: int | None) -> FeedWindow | None:
        """Return a window, or ``None`` if it has more than ``most`` actions."""
        query = dataclasses.replace(self._query, ending_version=end)
        if first is not None:
            query = dataclasses.replace(query, starting_version=first, starting_timestamp=None)
        response_format = self.end.response_format
        with query_table(
            self._rest, self._table, query, response_format=response_format, interrupt=self._interrupt
        ) as response:
            if response.head.response_format is not response_format:
                raise ProtocolError(
                    f"Expected the changes up to version {end} in the {response_format.value} response format, like "
                    f"the earlier changes, found the {response.head.response_format.value} format.",
                    table=str(self._table),
                )
            actions = list(itertools.islice(response.actions, None if most is None else most + 1))
            if most is not None and len(actions) > most:
                return None
            self.urls.add(end, RefreshingUrls(self._rest, self._table, query, response))
            return FeedWindow(first, response.head, actions)


def feed_windows(
    rest: RestClient, table: AssetName, query: ChangesQuery, response: TableResponse, beginning: Sequence[TableAction]
) -> FeedWindows | None:
    """Return the windows of a feed whose ``response`` starts with ``beginning``; ``None`` if one query must list it.

    One query must list the changes of a view, which have no versions; a feed up to a timestamp, whose version the
    server does not state; a single version; and any feed of a server that cannot list the last version separately.
    """
    if query.ending_timestamp is not None:
        return None
    versions = {action.version for action in beginning if isinstance(action, SharedFile)}
    seen = sorted(version for version in versions if version is not None)
    if not seen:
        return None
    response_format = response.head.response_format
    try:
        last = max(rest.table_version(table), seen[-1])
        if query.ending_version is not None:
            last = min(last, query.ending_version)
        if last == seen[0]:
            return None
        # From the feed and not from the metadata endpoint, which always describes the current version on older servers.
        at_end = dataclasses.replace(query, starting_version=last, starting_timestamp=None, ending_version=last)
        with query_table(rest, table, at_end, response_format=response_format) as described:
            end = described.head
    except (RequestError, ProtocolError, UnsupportedFeatureError):
        return None
    return (
        FeedWindows(rest, table, query, end, last, seen)
        if end.response_format is response.head.response_format
        else None
    )


class WindowUrls:
    """A ``fetch.place.UrlSource`` that repeats the query of a file's window instead of the whole feed."""

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._sources: list[RefreshingUrls] = []
        self._fresh: dict[int, RefreshingUrls] = {}
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, object]:
        return {"_ends": self._ends, "_sources": self._sources}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, _fresh={}, _lock=threading.Lock())

    def add(self, end: int, source: RefreshingUrls) -> None:
        """Add the source of URLs for the versions after the previous ``end``, up to this ``end``."""
        # A copy does not keep the response.
        self._sources.append(copy.copy(source))
        self._ends.append(end)

    def url_for(self, key: str, rejected: str | None = None) -> str:
        """Like ``RefreshingUrls.url_for``, for keys with a version."""
        at = bisect.bisect_left(self._ends, int(key.split(":")[1]))
        with self._lock:
            source = self._fresh.pop(at, None) or copy.copy(self._sources[at])
            self._fresh[at] = source
            if len(self._fresh) > _FRESH:
                del self._fresh[next(iter(self._fresh))]
        return source.url_for(key, rejected)
