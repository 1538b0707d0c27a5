"""Computes the end of the next micro-batch of a stream, and the files between two offsets.

This module does not depend on Spark. Its results depend only on the given offsets and the server, because Spark replays
batches in new processes; all state is a cache.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus

from delta_sharing_client.delta.actions import SharedFile
from delta_sharing_client.errors import (
    AuthError,
    DataError,
    DeltaSharingError,
    ProfileError,
    RequestError,
    SchemaChangeError,
    TransportError,
    UnsupportedFeatureError,
    UsageError,
)
from delta_sharing_client.follow.admission import BASE, BatchLimits, Position, VersionFiles, admit, file_id
from delta_sharing_client.follow.follow_request import DEFAULT_MAX_FILES, Words
from delta_sharing_client.follow.offsets import AnyOffset, Beginning, Offset, check_order, check_restart
from delta_sharing_client.follow.versions import FollowedTable, VersionWindow, difference, fingerprint
from delta_sharing_client.http.retry import RETRIED_STATUSES
from delta_sharing_client.options import ResponseFormat
from delta_sharing_client.protocol.line_order import TableHead

_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Selected:
    """The files of one window that belong to a batch."""

    window: VersionWindow
    files: tuple[SharedFile, ...]


@dataclasses.dataclass(eq=False)
class VersionClock:
    """The table's latest version, requested at most once per interval, or frozen for a query that ends by itself.

    If the server does not respond, the version stays the same for up to ``max_outage`` seconds.
    """

    ask: Callable[[], int]
    interval: float
    now: Callable[[], float] = time.monotonic
    max_outage: float = 0
    known: int | None = None
    went_back: bool = False
    _silent_since: float | None = None
    _asked_at: float | None = None
    _frozen: bool = False

    def freeze(self) -> None:
        """Request the version once more and keep it."""
        self.known = self.ask()
        self._frozen = True

    @property
    def seconds_left(self) -> float:
        """Seconds until the next request."""
        asked_at = self.now() if self._asked_at is None else self._asked_at
        return max(0.01, asked_at + self.interval - self.now())

    def latest(self) -> int:
        """Return the latest known version, requested if the interval has passed. It never decreases."""
        due = self._asked_at is None or self.now() - self._asked_at >= self.interval
        if self.known is None or (due and not self._frozen):
            try:
                version = self.ask()
            except (RequestError, TransportError) as error:
                self._wait_for(error)
                return self.known or 0
            self._silent_since = None
            self._asked_at = self.now()
            self.went_back = self.known is not None and version < self.known
            if self.went_back:
                # The newer version exists: this server lags behind, or is one of several.
                _LOG.warning(
                    "The server reports version %d after it reported version %d; the stream stays at the newer one.",
                    version,
                    self.known,
                )
            self.known = version if self.known is None else max(version, self.known)
        return self.known

    def _wait_for(self, error: RequestError | TransportError) -> None:
        """Handle a failed request; raise ``error`` if the server has not responded for ``max_outage`` seconds."""
        self._asked_at = self.now()
        if self._silent_since is None:
            self._silent_since = self._asked_at
        silent = self._asked_at - self._silent_since
        if self.known is None or silent >= self.max_outage or not may_pass(error):
            raise error
        _LOG.warning("The server does not respond; the stream waits for %d s more: %s", self.max_outage - silent, error)


def may_pass(error: DeltaSharingError) -> bool:
    """Return whether ``error`` means that the server is down or busy, and not that the request is wrong."""
    if isinstance(error, RequestError):
        return error.status in RETRIED_STATUSES
    return isinstance(error, TransportError)


def with_way_out(error: DeltaSharingError, words: Words) -> DeltaSharingError:
    """Return ``error``, which stops a stream, with advice at the end of its message."""
    message = error.message.lower()
    if isinstance(error, UsageError) or words.place.lower() in message or words.again.lower() in message:
        return error
    if isinstance(error, DataError) and error.status == HTTPStatus.NOT_FOUND:
        error.message = (
            "A data file that is still to be read does not exist any more (HTTP status 404): the provider has vacuumed "
            f"it, and its rows are lost here. To go on without them, {words.anew}, with {words.starting_version} or "
            "without it (the whole table, then its changes)."
        )
        return error
    again = words.again.capitalize()
    if may_pass(error):
        advice = f"{again} when the server responds again: it continues where it stopped. {words.max_outage}"
    elif isinstance(error, (AuthError, ProfileError)):
        advice = f"Renew the credentials and {words.again}: it continues where it stopped."
    elif isinstance(error, UnsupportedFeatureError):
        advice = f"Then {words.again}: it continues where it stopped."
    else:
        advice = f"{again}: it reads the {words.batch} again. If it stops here each time, {words.anew}."
    error.message = f"{error.message.rstrip('. ')}. {advice}"
    return error


class Follower:
    """Follows one table for one streaming query."""

    def __init__(self, table: FollowedTable, stream: TableHead, clock: VersionClock | None = None) -> None:
        self._table = table
        self._stream = stream
        self._options = table.request
        self._words = table.request.words
        self._schema_hash = fingerprint(stream.metadata)
        self.clock = clock or VersionClock(
            table.current_version, self._options.version_interval, max_outage=self._options.max_outage
        )
        self._window: VersionWindow | None = None
        self._checked: set[tuple[str, str]] = set()

    def reported(self) -> Offset | None:
        """Return the offset after the latest known version, ``None`` if none is known; sends no request."""
        if self.clock.known is None:
            return None
        return self._offset(self.clock.known + 1, self.clock.known, is_snapshot=False)

    def budget(self) -> BatchLimits:
        """Return the limits of one batch."""
        files, size = self._options.max_files, self._options.max_bytes
        return BatchLimits(DEFAULT_MAX_FILES if files is None and size is None else files, size)

    def next_offset(self, start: AnyOffset, budget: BatchLimits | None) -> AnyOffset:
        """Return the end of the batch after ``start``; an equal offset if there is nothing to read.

        A ``budget`` of ``None`` means no limit. The first result of a new stream always differs from ``start``, because
        it records where the stream begins, so that a restart begins there, too.
        """
        resolved = self._resolve() if isinstance(start, Beginning) else start
        self.check(resolved)
        if resolved.in_snapshot:
            window = self._snapshot_at(resolved.version, resolved.response_format)
            return self._advance(resolved, window, budget)
        latest = self.clock.latest()
        if self.clock.went_back:
            self._check_same_table(resolved)
        # A stream may start at a future version; after it has read rows, it cannot be ahead of the table.
        if resolved.version > max(latest + 1, resolved.first_version):
            raise DataError(
                f"The {self._words.place} is at version {resolved.version} of the table, whose latest "
                f"version is {latest}: the table was restored from an older copy, or the server lags behind. Try again "
                f"later; otherwise {self._words.anew}.",
                table=self._table.name,
                version=latest,
            )
        current, response_format = resolved, None
        while current.version <= latest:
            window = self._tail_at(current, latest)
            if response_format not in (None, window.response_format):
                break  # a batch is planned in one format, because its start and end count files in that format
            response_format = window.response_format
            reached = self._advance(current, window, budget)
            found_files = any(True for selected in self._between(current, reached) if selected.files)
            if reached == current:
                break
            current = reached
            if budget is not None and found_files:
                break
        return current

    def files(self, start: AnyOffset, end: Offset) -> list[Selected]:
        """Return the files between two offsets, in order. No earlier call is needed."""
        return [selected for selected in self.selected(start, end) if selected.files]

    def selected(self, start: AnyOffset, end: Offset) -> list[Selected]:
        """Like ``files``, including windows without files."""
        begin = self._beginning_of(end) if isinstance(start, Beginning) else start
        check_order(begin, end, self._words)
        self.check(end)
        if begin.position == end.position and begin.in_snapshot == end.in_snapshot:
            return []
        return list(self._between(begin, end))

    def forget_before(self, end: Offset) -> None:
        """Drop cached versions before ``end``."""
        if self._window is not None and self._window.last < end.version:
            self._window = None

    # === Steps ===

    def _resolve(self) -> Offset:
        options = self._options
        if options.starting_version == "latest":
            first = self.clock.latest() + 1
        elif options.starting_version is not None:
            first = options.starting_version
        elif options.starting_timestamp is not None:
            first = self._table.version_from(options.starting_timestamp)
        else:
            version = self.clock.latest()
            return self._offset(version, version, is_snapshot=True)
        return self._offset(first, first, is_snapshot=False)

    def _offset(self, version: int, first: int, *, is_snapshot: bool) -> Offset:
        return Offset(
            table_id=self._stream.metadata.id,
            version=version,
            place=BASE,
            in_snapshot=is_snapshot,
            first_version=first,
            from_snapshot=is_snapshot,
            change_feed=self._options.read_change_feed,
            response_format=self._options.read.response_format,
            schema_hash=self._schema_hash,
        )

    def _advance(self, start: Offset, window: VersionWindow, budget: BatchLimits | None) -> Offset:
        waiting = [version for version in window.versions if version.version >= start.version]
        offered = itertools.takewhile(lambda version: version.problem is None, waiting)
        reached = admit(start.position, offered, budget or BatchLimits())
        if reached == start.position:
            if waiting and waiting[0].problem is not None:
                raise waiting[0].problem
            return start
        return start.at(
            reached,
            in_snapshot=window.is_snapshot and reached.place != BASE,
            response_format=window.response_format,
            last_file=None if reached.place == BASE else file_id(window.files_of(reached.version)[reached.place]),
            schema_hash=self._schema_hash,
        )

    def _between(self, start: Offset, end: Offset) -> Iterator[Selected]:
        """Yield the files between two offsets by window. An end at the base of a version excludes that version."""
        current = start
        if start.in_snapshot:
            window = self._snapshot_at(start.version, end.response_format)
            self._check_place(window, start)
            self._check_place(window, end)
            yield Selected(window, tuple(self._selected(window.versions[0], start.position, end.position)))
            current = start.at(Position(start.version + 1), in_snapshot=False)
        last = end.version if end.place != BASE else end.version - 1
        while not end.in_snapshot and current.version <= last:
            window = self._tail_at(current, last, end.response_format)
            self._check_place(window, current)
            self._check_place(window, end)
            files: list[SharedFile] = []
            for version in window.versions:
                if current.version <= version.version <= last:
                    if version.problem is not None:
                        raise version.problem
                    files += self._selected(version, current.position, end.position)
            yield Selected(window, tuple(files))
            current = current.at(Position(min(window.last, last) + 1), last_file=None)

    @staticmethod
    def _selected(version: VersionFiles, start: Position, end: Position) -> Sequence[SharedFile]:
        return [file for index, file in enumerate(version.files) if start < Position(version.version, index) <= end]

    # === Windows ===

    def _snapshot_at(self, version: int, response_format: ResponseFormat) -> VersionWindow:
        held = self._window
        if held is None or not held.is_snapshot or held.first != version or not _fits(held, response_format):
            held = self._table.snapshot_window(version, self._stream, response_format)
            self._require_format(held, response_format)
            self._window = held
        return held

    def _tail_at(self, start: Offset, latest: int, end_format: ResponseFormat | None = None) -> VersionWindow:
        first = start.version
        # The order of files in a version depends on the format; between versions, any format works.
        response_format = self._options.read.response_format
        if start.place != BASE:
            response_format = start.response_format
        if end_format is not None:
            response_format = end_format
        last = min(latest, first + self._options.max_versions_per_rpc - 1)
        needed = first
        if end_format is not None and self._options.whole_versions:
            # All files of a step are from one response.
            last = needed = latest
        held = self._window
        is_tail = held is not None and not held.is_snapshot
        if (
            held is not None
            and is_tail
            and held.first <= first
            and needed <= held.last
            and _fits(held, response_format)
        ):
            return held
        held = self._table.tail_window(first, last, self._stream, response_format)
        if response_format is not self._options.read.response_format:
            self._require_format(held, response_format)
        self._window = held
        return held

    def _require_format(self, window: VersionWindow, expected: ResponseFormat) -> None:
        if not _fits(window, expected):
            raise DataError(
                f"The {self._words.place} counts files in {expected.value} format, but the server responds in "
                f"{window.response_format.value} format, whose files have different ids; {self._words.anew}.",
                table=self._table.name,
                version=window.first,
            )

    def _check_place(self, window: VersionWindow, offset: Offset) -> None:
        position = offset.position
        if position.place == BASE or not window.first <= position.version <= window.last:
            return
        files = window.files_of(position.version)
        there = file_id(files[position.place]) if position.place < len(files) else None
        if there != offset.last_file:
            raise DataError(
                f"The {self._words.place} has the file '{offset.last_file}' at index {position.place} of version "
                f"{position.version}, but the server now has {repr(there) if there else 'fewer files'} there, so the "
                f"stream cannot find its position; {self._words.anew}.",
                table=self._table.name,
                version=position.version,
            )

    # === Checks ===

    def _beginning_of(self, end: Offset) -> Offset:
        return end.at(Position(end.first_version), in_snapshot=end.from_snapshot, last_file=None)

    def check(self, offset: Offset) -> None:
        """Check an offset against the current table, once for each table and schema.

        Raises ``UsageError`` if it belongs to a different table or kind of stream, ``SchemaChangeError`` if the schema
        changed incompatibly after it was written, or if this cannot be checked.
        """
        key = (offset.table_id, offset.schema_hash)
        check_restart(
            offset, self._words, table_id=self._stream.metadata.id, change_feed=self._options.read_change_feed
        )
        if key in self._checked:
            return
        if offset.schema_hash != self._schema_hash:
            self._check_schema(offset)
        self._checked.add(key)

    def _check_same_table(self, offset: Offset) -> None:
        """Raise ``UsageError`` if the table was created again, which may be the reason that its version decreased."""
        table_id = self._table.describe().metadata.id
        check_restart(offset, self._words, table_id=table_id, change_feed=self._options.read_change_feed)

    def _check_schema(self, offset: Offset) -> None:
        """Check that the stream can continue although the schema changed after the offset was written."""
        position = offset.position
        version = position.version if offset.in_snapshot or position.place != BASE else position.version - 1
        if version < 0:
            return
        then = self._table.metadata_at(version)
        if then is None:
            raise SchemaChangeError(
                f"The table's schema changed since the {self._words.place} was written, and the server does not return "
                f"the schema of version {version}, so it is unknown whether the stream can go on; {self._words.anew}, "
                f"with {self._words.starting_version} {position.version} to go on from there.",
                table=self._table.name,
                version=version,
            )
        if then.id != self._stream.metadata.id:
            raise UsageError(
                f"The {self._words.place} belongs to the table with id '{then.id}', but the table now has the id "
                f"'{self._stream.metadata.id}': it was deleted and recreated. To read it from its beginning, "
                f"{self._words.anew}."
            )
        if difference(then, self._stream.metadata) is not None:
            raise self._table.schema_change(version, then, self._stream, unread_from=position.version)


def _fits(window: VersionWindow, expected: ResponseFormat) -> bool:
    return expected is ResponseFormat.AUTO or window.response_format is expected
