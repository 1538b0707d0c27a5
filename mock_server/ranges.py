"""Ranges of versions: the changed files of a streaming query, and the change data feed.

Both are read from the commits; ``delta_sharing_client.delta`` interprets the actions of a commit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Union

from delta_sharing_client.delta.actions import FileAction, Metadata, Protocol, RemoveFile
from delta_sharing_client.delta.log.commit import Commit, change_actions

from .errors import invalid, unsupported
from .parameters import ChangesRequest
from .tables import SharedTable
from .wire import Change

_FEED_PROPERTY = "delta.enableChangeDataFeed"


@dataclasses.dataclass(frozen=True, slots=True)
class VersionRange:
    """The changes from ``start`` to ``end``, both included.

    ``protocol`` and ``metadata`` are for the head of the response; ``metadata_version`` is the version sent with them.
    ``items`` are, in the order of the log, the changed files, and each protocol and metadata with the version that set
    it. ``states`` are all pairs of protocol and metadata that the table had in the range.
    """

    start: int
    end: int
    protocol: Protocol
    metadata: Metadata
    metadata_version: int
    items: list[Union[Change, tuple[Union[Protocol, Metadata], int]]]
    states: list[tuple[Protocol, Metadata]]


def changed_files(table: SharedTable, start: int, end: int | None) -> VersionRange:
    """Return the added and removed files that change data, and all historical metadata, for a streaming query.

    ``end`` may be after the latest version, because it is only an upper bound.
    """
    table.require_history()
    latest = table.latest_version()
    if start < table.entry.start_version:
        raise invalid(f"You can only query table data since version {table.entry.start_version}, not version {start}.")
    if start > latest:
        raise invalid(_start_after_latest(start, latest))
    end = latest if end is None else min(end, latest)
    return _range(table, start, end, files_of=_data_changes)


def change_feed(table: SharedTable, request: ChangesRequest, pinned_end: int | None) -> VersionRange:
    """Return the change data feed for ``request``; ``pinned_end`` is the end of the range of its first page.

    If historical metadata is not requested, the response has only the latest metadata; likewise for protocols.
    """
    table.require_history()
    latest = table.latest_version()
    start = _start(table, request, latest)
    end = pinned_end if pinned_end is not None else _end(table, request, latest)
    if start < table.entry.start_version:
        raise invalid(
            f"You can only query table changes since version {table.entry.start_version}, found version {start}."
        )
    if start > end:
        raise invalid(f"CDF range from start {start} to end {end} was invalid. End cannot be before start.")
    if table.snapshot(latest).metadata.properties.get(_FEED_PROPERTY, "").lower() != "true":
        raise unsupported(f"The change data feed cannot be read: cdf is not enabled on table {table.entry.full_name}.")
    history = request.include_historical_metadata
    feed = _range(table, start, end, files_of=change_actions)
    _check_recorded(feed, table.snapshot(start).metadata)
    if history:
        return feed
    newest = table.snapshot(latest)
    items = [item for item in feed.items if isinstance(item, Change) or isinstance(item[0], Protocol)]
    return dataclasses.replace(
        feed,
        protocol=feed.protocol if request.include_historical_protocol else newest.protocol,
        metadata=newest.metadata,
        metadata_version=latest,
        items=items,
        states=[*feed.states, (newest.protocol, newest.metadata)],
    )


def _start(table: SharedTable, request: ChangesRequest, latest: int) -> int:
    if request.starting_ms is not None:
        return table.version_from(request.starting_ms)
    assert request.starting_version is not None
    if request.starting_version > latest:
        raise invalid(_start_after_latest(request.starting_version, latest))
    return request.starting_version


def _end(table: SharedTable, request: ChangesRequest, latest: int) -> int:
    if request.ending_ms is not None:
        return table.version_until(request.ending_ms)
    return latest if request.ending_version is None else min(request.ending_version, latest)


def _range(
    table: SharedTable,
    start: int,
    end: int,
    *,
    files_of: Callable[[Commit], Iterable[FileAction]],
) -> VersionRange:
    first = table.snapshot(start)
    protocol, metadata = first.protocol, first.metadata
    states = [(protocol, metadata)]
    items: list[Union[Change, tuple[Union[Protocol, Metadata], int]]] = []
    for commit in table.commits(start, end):
        if commit.version > start:
            if commit.protocol is not None:
                protocol = commit.protocol
                items.append((protocol, commit.version))
            if commit.metadata is not None:
                metadata = commit.metadata
                items.append((metadata, commit.version))
            if commit.protocol is not None or commit.metadata is not None:
                states.append((protocol, metadata))
        for action in files_of(commit):
            whole = table.complete(action, commit.version) if isinstance(action, RemoveFile) else action
            items.append(Change(whole, commit.version, commit.timestamp_ms))
    return VersionRange(start, end, first.protocol, first.metadata, start, items, states)


def _data_changes(commit: Commit) -> list[FileAction]:
    adds: list[FileAction] = [add for add in commit.adds if add.data_change]
    return [*adds, *(remove for remove in commit.removes if remove.data_change)]


def _check_recorded(feed: VersionRange, metadata: Metadata) -> None:
    """Raise `ApiError` if the feed was off in a version of the range, because its changes were not recorded."""
    switches = [(metadata, feed.start), *(item for item in feed.items if isinstance(item, tuple))]
    for action, version in switches:
        if isinstance(action, Metadata) and action.properties.get(_FEED_PROPERTY, "").lower() != "true":
            raise unsupported(
                f"Error getting change data for range [{feed.start}, {feed.end}] as change data was not recorded for "
                f"version [{version}]. If you've enabled change data feed on this table, use `DESCRIBE HISTORY` to see "
                "when it was first enabled."
            )


def _start_after_latest(start: int, latest: int) -> str:
    return (
        f"Provided Start version({start}) for reading change data is invalid. Start version cannot be greater than the "
        f"latest version of the table({latest})."
    )
