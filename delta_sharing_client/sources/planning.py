"""Turns a request into a plan: asks the source of the table for files, and makes tasks of them.

Every output starts here, including Spark's. Only the table's source knows its format and how its files are reached.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Generator, Sequence

import pyarrow as pa

from delta_sharing_client.delta.actions import AddFile, SharedFile
from delta_sharing_client.delta.listed_files import kept
from delta_sharing_client.delta.snapshot import Snapshot
from delta_sharing_client.errors import DeltaSharingError
from delta_sharing_client.options import ReadOptions
from delta_sharing_client.plan.changes import plan_changes, stream_changes
from delta_sharing_client.plan.read_request import ChangesRequest, ScanRequest
from delta_sharing_client.plan.snapshot_files import plan_snapshot, scan_context, stream_snapshot
from delta_sharing_client.plan.tasks import FileTask, Plan, ScanPlan, ScanStream
from delta_sharing_client.sources.server_source import closed_by_errors
from delta_sharing_client.sources.table_source import Feed, Files, Purpose, TableSource

Blocks = Generator[Sequence[FileTask], None, None]


def plan(source: TableSource, request: ScanRequest | ChangesRequest, purpose: Purpose = Purpose.READ) -> Plan:
    """Ask ``source`` for the files that ``request`` needs, and return their plan once the listing has begun, so that
    files can be read while others are listed; its ``whole`` waits for all.

    For ``Purpose.PLAN``, for a caller that waits for all files, they are listed by one query. A log and a short change
    feed are read completely first. Changes are read in the schema at the end of their range. A plan that is still being
    listed raises the errors of the rest of the listing.

    Raises
    ------
    UsageError
        A column or filter does not fit the schema.
    UnsupportedFeatureError
        The table needs a reader feature that is not supported; checked before any data is requested.
    SchemaChangeError
        One schema cannot span the range of changes.
    RequestError, ProtocolError, TransportError, AuthError
        The server or the network; see ``errors``.
    """
    with source.about():
        if isinstance(request, ChangesRequest):
            return _plan_feed(source, source.changes(request, purpose), request)
        stream = plan_files(source.files(request, purpose), request, source.options)
    return dataclasses.replace(stream, blocks=_named(source, stream.blocks))


def plan_files(files: Files, request: ScanRequest, options: ReadOptions) -> ScanStream:
    """Return the plan of those of ``files`` that may have rows of ``request``; errors as ``plan``."""
    with closed_by_errors(files.close):
        stream = stream_snapshot(files.state, files.blocks, request, options)
    files.notes.extend(stream.notes)
    return dataclasses.replace(
        stream,
        access=files.access,
        table_files=files.table_files,
        notes=files.notes,
        skipped=lambda: files.skipped() + stream.skipped(),
        release=files.close,
        break_off=files.break_off,
    )


def _plan_feed(source: TableSource, feed: Feed, request: ChangesRequest) -> Plan:
    if feed.windows is not None:
        windows = feed.windows
        # The request may not fit the end of the range because the schema changes within the range. The plan of the
        # whole feed then reports the change.
        with contextlib.suppress(DeltaSharingError):
            stream = stream_changes(windows.state, windows.parts, request, source.options)
            feed.close()
            blocks = _named(source, stream.blocks)
            return dataclasses.replace(stream, blocks=blocks, access=feed.access, break_off=windows.break_off)
    with contextlib.closing(feed):
        request = dataclasses.replace(request, of_view=feed.is_view)
        return dataclasses.replace(plan_changes(feed.state, feed.actions, request, source.options), access=feed.access)


def _named(source: TableSource, blocks: Blocks) -> Blocks:
    """Yield ``blocks``, and add the table to their errors, which can occur long after the query."""
    try:
        with contextlib.closing(blocks):
            yield from blocks
    except DeltaSharingError:
        # This does not enclose the whole generator, because the garbage collector may close it in a different context.
        with source.about():
            raise


def table_schema(source: TableSource, request: ScanRequest | ChangesRequest) -> pa.Schema:
    """Return the schema of the rows of ``request``. This lists no files, or only the beginning of a change feed.

    Raises the errors of ``plan``, except those of the files.
    """
    if isinstance(request, ChangesRequest):
        with contextlib.closing(plan(source, request)) as changes:
            return changes.output_schema
    with source.about():
        state = source.state(request)
        return scan_context(state, state.bound(request), source.options).output_schema


def plan_copy(source: TableSource, request: ScanRequest) -> tuple[Snapshot, list[SharedFile], ScanPlan]:
    """Return the whole snapshot, its files, and the plan that reads all of it.

    The plan has one task per file, in order; ``request`` must ask for all rows and columns. Raises the errors of
    ``plan``.
    """
    with source.about():
        files = source.files(request, Purpose.COPY)
        with contextlib.closing(files):
            shared = kept(files.blocks)
        state = files.state
        # There is nothing left to reconcile, because each logical file is listed once.
        snapshot = Snapshot(
            version=state.version or 0,
            timestamp_ms=None,
            protocol=state.protocol,
            metadata=state.metadata,
            files=[file.action for file in shared if isinstance(file.action, AddFile)],
            table=state.name,
        )
        whole = plan_snapshot(state, shared, request, source.options)
    return snapshot, shared, dataclasses.replace(whole, access=files.access)
