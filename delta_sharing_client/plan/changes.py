"""Plans which files to read for a range of the change data feed (Delta Transaction Log Protocol, "Add CDC File").

The changes of a version are its change files, if there are any; otherwise the rows of added files, as ``insert``, and
those of removed files, as ``delete``. A file that is both removed and added in one version has a new deletion vector.
Its changes are the difference of the two vectors, and the signatures of its two URLs may differ::

    removed with   added with     deleted rows   inserted rows
    nothing        D2             D2
    D1             nothing                       D1
    D1             D2             D2 - D1        D1 - D2
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Generator, Iterable, Iterator
from typing import NamedTuple

import msgspec

from delta_sharing_client.delta.actions import (
    AddCdcFile,
    AddFile,
    FileAction,
    Metadata,
    RemoveFile,
    SharedFile,
    TableAction,
    VersionedMetadata,
    VersionedProtocol,
)
from delta_sharing_client.delta.features import Operation, check_readable
from delta_sharing_client.delta.paths import without_query
from delta_sharing_client.delta.schema_changes import Difference, SchemaChangeKind, first_difference
from delta_sharing_client.errors import ProtocolError, SchemaChangeError, UnsupportedFeatureError
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.plan.read_columns import CHANGE_FIELDS
from delta_sharing_client.plan.read_request import ChangesRequest, TableState
from delta_sharing_client.plan.snapshot_files import FilePlanner, in_blocks, vector_ref
from delta_sharing_client.plan.tasks import Change, ChangeKind, DeletionVectorRef, FileTask, ScanPlan, ScanStream


class FeedPart(NamedTuple):
    """Some complete, consecutive versions of a feed: ``metadata`` describes the table at the ``first`` of them
    (``None``: the start of the feed), and ``actions`` are in any order."""

    first: int | None
    metadata: Metadata
    actions: Iterable[TableAction]


def plan_changes(
    table: TableState, actions: Iterable[TableAction], request: ChangesRequest, options: ReadOptions
) -> ScanPlan:
    """Return the files with the changes of a range of versions, oldest version first.

    Rows are read in the schema at the end of the range; columns that older files lack are null. All ``actions`` are
    needed before the first row: any of them may change the schema, rows are ordered by version regardless of the
    server's order, change files replace added and removed files, and the two actions of a file with a new deletion
    vector are one change.

    Parameters
    ----------
    table:
        The table at the start of the range, from the response's head.
    actions:
        The response's other actions, in any order; files have a version and a timestamp.

    Raises
    ------
    SchemaChangeError
        No schema fits all rows; the error has the version at which to split the range.
    UsageError
        A column or the filter does not fit the schema.
    ProtocolError
        A file action has no version or timestamp.
    """
    history = _Descriptions(table.metadata)
    files = _by_moment(actions, history, request, table.name)
    if not _is_about_changes_alone(request):
        history.check(table.name)
    last = None if request.of_view else max(files, default=None)
    planner = FilePlanner(dataclasses.replace(table, version=last, metadata=history.end), request, options)
    return planner.stream(in_blocks(_tasks(planner, files, request, table.name))).whole()


def stream_changes(
    table: TableState, parts: Iterable[FeedPart], request: ChangesRequest, options: ReadOptions
) -> ScanStream:
    """Return the files of ``plan_changes`` part by part, so that the first versions are read while later ones are
    listed.

    ``table`` is the table at the end of the range; ``parts`` are consecutive versions, oldest first, and must end with
    the schema of ``table``. Raises ``UsageError`` if a column or the filter does not fit the schema. The iterator of
    the files raises the errors of ``plan_changes``.
    """
    planner = FilePlanner(table, request, options)
    return planner.stream(_blocks_of_parts(planner, parts, request, table))


def _blocks_of_parts(
    planner: FilePlanner, parts: Iterable[FeedPart], request: ChangesRequest, table: TableState
) -> Generator[list[FileTask], None, None]:
    history: _Descriptions | None = None
    is_checked = not _is_about_changes_alone(request)
    for part in parts:
        if history is None:
            history = _Descriptions(part.metadata)
        else:
            history.add(VersionedMetadata(part.first, part.metadata))
        files = _by_moment(part.actions, history, request, table.name)
        # If one schema does not fit all rows, only the complete history shows at which version to split.
        if not is_checked or history.breaks_before(table.metadata, table.name) is None:
            yield from in_blocks(_tasks(planner, files, request, table.name))
        if planner.is_full:
            return
    if is_checked and history is not None:
        history.check(table.name)
        history.check_end(table)


def _by_moment(
    actions: Iterable[TableAction], history: _Descriptions, request: ChangesRequest, table: str
) -> dict[int, list[SharedFile]]:
    """Return the files of ``actions`` by version or time, and add the metadata to ``history``."""
    files: dict[int, list[SharedFile]] = {}
    for action in actions:
        if isinstance(action, VersionedMetadata):
            history.add(action)
        elif isinstance(action, VersionedProtocol):
            check_readable(action.protocol, operation=Operation.CHANGES, table=table)
        else:
            files.setdefault(_moment(action, request, table), []).append(action)
    return files


def _tasks(
    planner: FilePlanner, files: dict[int, list[SharedFile]], request: ChangesRequest, table: str
) -> Iterator[FileTask]:
    for version in sorted(files):
        # Planned actions are dropped: they are no longer needed, and take most of the memory of a long feed.
        listed = files.pop(version)
        if request.of_view:
            _check_view(listed, table)
        for candidate in _candidates(listed, table):
            assert candidate.file.timestamp is not None
            change = Change(candidate.kind, version, candidate.file.timestamp)
            task = planner.consider(candidate.file, candidate.described_by, change, candidate.without, candidate.only)
            if task is not None:
                yield task


# === Whether one schema fits all rows ===

# Columns may be added (null in older rows), made nullable, respelled in a different case, and widened.
_BREAKS_A_FEED = frozenset(
    set(SchemaChangeKind) - {SchemaChangeKind.ADDED, SchemaChangeKind.RESPELLED, SchemaChangeKind.WIDENED}
)


def _is_about_changes_alone(request: ChangesRequest) -> bool:
    """Return whether only the feed's own columns are read; their schema never changes."""
    if request.columns is None or request.skipping is not None:
        return False
    names = {name.lower() if isinstance(name, str) else ".".join(name).lower() for name in request.columns}
    return names <= {field.name for field in CHANGE_FIELDS}


class _Descriptions:
    """The table's metadata over the range of versions; rows are read with the last metadata."""

    def __init__(self, first: Metadata) -> None:
        self._dated = [VersionedMetadata(None, first)]

    @property
    def end(self) -> Metadata:
        return self._dated[-1].metadata

    def add(self, dated: VersionedMetadata) -> None:
        bisect.insort(self._dated, dated, key=lambda each: -1 if each.version is None else each.version)

    def breaks_before(self, end: Metadata, table: str) -> tuple[int | None, Difference] | None:
        """Return the first version from which on all rows fit ``end`` (``None`` if unknown), and how the metadata
        before it differs; ``None`` if all rows fit."""
        following: int | None = None
        for dated in reversed(self._dated):
            difference = first_difference(dated.metadata, end, _BREAKS_A_FEED, table=table)
            if difference is not None:
                return following, difference
            following = dated.version
        return None

    def check(self, table: str) -> None:
        """Raise ``SchemaChangeError`` if the rows of an earlier metadata cannot be read with the last one."""
        broken = self.breaks_before(self.end, table)
        if broken is None:
            return
        version, difference = broken
        where = "" if version is None else f" in version {version}"
        advice = ""
        if version:
            advice = f" Read the changes up to version {version - 1} and those from version {version} on separately."
        raise SchemaChangeError(
            f"The schema changed{where} in a way that one read of the change feed cannot span: {difference}.{advice}",
            table=table,
            version=version,
        )

    def check_end(self, table: TableState) -> None:
        """Raise ``ProtocolError`` if the feed does not end with the schema of ``table``."""
        end = dataclasses.replace(table, metadata=self.end)
        first, last = ((each.schema, each.partition_columns, each.mapping_mode) for each in (table, end))
        if first != last:
            raise ProtocolError(
                f"The change feed must end with the schema that the server states for version {table.version}, but it "
                "ends with a different one. Read again.",
                table=table.name,
                version=table.version,
            )


# === Which files, and which of their rows ===


class _Candidate(NamedTuple):
    """A file, the action whose statistics describe the selected rows, and the selection."""

    file: SharedFile
    described_by: FileAction
    kind: ChangeKind
    without: DeletionVectorRef | None
    only: DeletionVectorRef | None


def _candidates(files: list[SharedFile], table: str) -> Iterator[_Candidate]:
    """Yield the files with changes of one version, in the order of ``files``."""
    _check_once(files, table)
    cdcs = [file for file in files if isinstance(file.action, AddCdcFile)]
    if cdcs:
        for cdc in cdcs:
            yield _Candidate(cdc, cdc.action, ChangeKind.IN_FILE, None, None)
        return
    changing = [file for file in files if file.action.data_change]
    removes = {name: file for file in changing if isinstance(file.action, RemoveFile) for name in _identities(file)}
    pairs: dict[int, SharedFile] = {}
    for file in changing:
        if isinstance(file.action, AddFile):
            pairs.update((id(file), removes[name]) for name in _identities(file)[::-1] if name in removes)
    paired = set(map(id, pairs.values()))
    for file in changing:
        if id(file) in pairs:
            yield from _difference(file, pairs[id(file)])
        elif id(file) not in paired:
            kind = ChangeKind.INSERT if isinstance(file.action, AddFile) else ChangeKind.DELETE
            yield _Candidate(file, file.action, kind, vector_ref(file), None)


def _check_once(files: list[SharedFile], table: str) -> None:
    """Refuse a version that adds, removes or lists one file twice, or has two files with one id, because its rows would
    be returned twice."""
    seen: set[tuple[type, str]] = set()
    for file in files:
        name = (type(file.action), file.file_id or without_query(file.action.path))
        if name in seen:
            raise ProtocolError(
                f"The server must list each file of version {file.version} once, but it listed one twice, or "
                "two with one id. Tell the data provider.",
                table=table,
                file_id=file.file_id,
            )
        seen.add(name)


def _difference(add: SharedFile, remove: SharedFile) -> Iterator[_Candidate]:
    assert isinstance(add.action, AddFile)
    assert isinstance(remove.action, RemoveFile)
    if _same_vector(add.action, remove.action):
        return
    before, after = vector_ref(remove), vector_ref(add)
    # Deleted rows were visible before, so the removed file's statistics cover them; inserted rows are visible now, so
    # the added file's statistics do.
    if after is not None:
        yield _Candidate(add, remove.action, ChangeKind.DELETE, before, after)
    if before is not None:
        yield _Candidate(add, add.action, ChangeKind.INSERT, after, before)


def _same_vector(add: AddFile, remove: RemoveFile) -> bool:
    one, other = (
        vector and msgspec.structs.replace(vector, path_or_inline_dv=without_query(vector.path_or_inline_dv))
        for vector in (add.deletion_vector, remove.deletion_vector)
    )
    return one == other


def _identities(file: SharedFile) -> list[tuple[str | None, str | None]]:
    """Return the server's file id, and the path without the signature."""
    path = (None, without_query(file.action.path))
    return [path] if file.file_id is None else [(file.file_id, None), path]


def _check_view(files: list[SharedFile], table: str) -> None:
    """Refuse a view with both change files and other files at the same time, which the protocol does not define."""
    if len({isinstance(file.action, AddCdcFile) for file in files}) > 1:
        raise UnsupportedFeatureError(
            "The server sent change files and added or removed files with the same timestamp for this view, which the "
            "protocol does not define. Ask the provider to share the table itself.",
            feature="change data feed of a view",
            table=table,
        )


def _moment(file: SharedFile, request: ChangesRequest, table: str) -> int:
    """Return the sort key of changes: the version, or the time in milliseconds for a view, which has no versions."""
    if request.of_view and file.timestamp is not None:
        return file.timestamp
    if file.version is None or file.timestamp is None:
        raise ProtocolError(
            "Each file of the change feed must have a version and a timestamp, but the server sent a file without one.",
            table=table,
            file_id=file.file_id,
        )
    return file.version
