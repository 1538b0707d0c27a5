"""The tasks of a plan, their totals, and the text of ``explain``."""

from __future__ import annotations

import asyncio
import dataclasses
import html
import re
import types
from collections.abc import Generator
from typing import Any

import pyarrow as pa
import pytest

from delta_sharing_client.delta.actions import AddFile, DeletionVectorDescriptor, SharedFile
from delta_sharing_client.delta.statistics import ColumnBounds
from delta_sharing_client.fetch.source import Attempt, Fetcher
from delta_sharing_client.plan.explain import explain
from delta_sharing_client.plan.read_columns import Origin
from delta_sharing_client.plan.read_request import ScanRequest
from delta_sharing_client.plan.snapshot_files import plan_snapshot
from delta_sharing_client.plan.tasks import (
    Change,
    ChangeKind,
    DeletionVectorRef,
    FileTask,
    ScanPlan,
    ScanStream,
    SkippedFiles,
)
from delta_sharing_client.predicates.tree import col
from tests.unit.storages import fast_options, metadata, signed_urls, table_state

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.int32()), ("p", pa.string())])


def removed(rows: int) -> DeletionVectorRef:
    return DeletionVectorRef(DeletionVectorDescriptor("p", "https://host/dv?sig=secret", 34, rows, 1), "key")


def task(size: int = 10, rows: int | None = 4, **fields: Any) -> FileTask:
    return FileTask(**{"key": "k", "url": "https://host/f?sig=secret", "size": size, "num_records": rows, **fields})


def plan(*tasks: FileTask, schema: pa.Schema = SCHEMA, request: ScanRequest | None = None, **fields: Any) -> ScanPlan:
    table = table_state(metadata(schema, ["p"] if "p" in schema.names else []), version=7)
    empty_plan = plan_snapshot(table, [], request or ScanRequest(), fast_options())
    return dataclasses.replace(empty_plan, tasks=tasks, plan_seconds=0.0, **fields)


# === One file ===


@pytest.mark.parametrize(
    ("fields", "rows", "has_vector"),
    [
        ({}, 4, False),
        ({"rows": None}, None, False),
        ({"without": removed(3)}, 1, True),
        ({"without": removed(3), "rows": None}, None, True),
        ({"only": removed(3)}, 3, True),
        ({"only": removed(3), "rows": None}, 3, True),
        ({"only": removed(3), "without": removed(2)}, None, True),
    ],
)
def test_row_count_of_a_task_excludes_deleted_rows(fields: dict[str, Any], rows: int | None, has_vector: bool) -> None:
    counted = task(**fields)
    assert (counted.live_records, counted.has_vector) == (rows, has_vector)


@pytest.mark.parametrize(
    ("renew_at", "again", "path"),
    [(None, False, "f"), (2**50, False, "f"), (5, False, "new-k"), (None, True, "new-k"), (2**50, True, "new-k")],
)
def test_url_is_renewed_if_it_expires_or_fails(renew_at: int | None, again: bool, path: str) -> None:
    urls = types.SimpleNamespace(url_for=lambda key, rejected: f"https://host/new-{key}?sig=secret")
    fetcher = Fetcher(signed_urls(fast_options(), urls))
    file = task(file_id="id", renew_at=renew_at).remote_file(
        fetcher, attempt=Attempt.AGAIN if again else Attempt.FIRST, order=(3, 4)
    )
    assert asyncio.run(file.url()) == f"https://host/{path}?sig=secret"
    assert (file.file_id, file.size, file.order) == ("id", 10, (3, 4))


@pytest.mark.parametrize(
    ("kind", "origin", "value", "bound"),
    [
        (ChangeKind.INSERT, Origin.CHANGE_TYPE, "insert", "insert"),
        (ChangeKind.DELETE, Origin.CHANGE_TYPE, "delete", "delete"),
        (ChangeKind.IN_FILE, Origin.CHANGE_TYPE, None, None),
        (ChangeKind.IN_FILE, Origin.COMMIT_VERSION, 8, 8),
        (ChangeKind.INSERT, Origin.COMMIT_TIMESTAMP, 1_700_000_000_123, 1_700_000_000_123_000_000),
        (ChangeKind.INSERT, Origin.FILE, None, None),
    ],
)
def test_change_columns_have_constant_values_and_bounds(
    kind: ChangeKind, origin: Origin, value: Any, bound: Any
) -> None:
    change = Change(kind, 8, 1_700_000_000_123)
    assert change.value(origin) == value
    assert change.bounds(origin) == (None if bound is None else ColumnBounds(bound, bound, 0, 1))


# === Sums over files ===


def test_total_bytes_count_files_of_known_size() -> None:
    assert plan().bytes == 0
    assert plan(task(3), task(-1), task(0), task(4)).bytes == 7


@pytest.mark.parametrize(
    ("tasks", "limit", "rows"),
    [
        ([], None, 0),
        ([task(), task(rows=5)], None, 9),
        ([task(), task(rows=0)], None, 4),
        ([task(), task(rows=5)], 7, 7),
        ([task(), task(rows=5)], 10, 9),
        ([task(), task(rows=None)], None, None),
        ([task(), task(rows=None)], 2, None),
        ([task(row_groups=(0,))], None, None),
        # The file's row count and its deletion vector contradict each other.
        ([task(), task(rows=2, without=removed(3))], None, None),
    ],
)
def test_row_count_of_a_plan_needs_the_counts_of_all_files(
    tasks: list[FileTask], limit: int | None, rows: int | None
) -> None:
    assert plan(*tasks, limit=limit).known_rows == rows


def test_row_count_of_a_filtered_plan_is_unknown() -> None:
    assert plan(task(), request=ScanRequest(filter=col("a") > 1)).known_rows is None


# === Files that are still being listed ===


@pytest.mark.parametrize("breaks", [False, True])
def test_whole_listing_keeps_its_totals_and_is_released(breaks: bool) -> None:
    events: list[str] = []
    notes: list[str] = []

    def blocks() -> Generator[list[FileTask], None, None]:
        yield [task()]
        notes.append("Something is missing.")
        if breaks:
            raise OSError("cut")
        yield [task(rows=5), task(rows=6)]

    stream = ScanStream(
        context=plan().context, blocks=blocks(), skipped=lambda: SkippedFiles(by_limit=2), limit=3, access="by hand",
        table_files=6, notes=notes, release=lambda: events.append("released"),
    )  # fmt: skip
    if breaks:
        with pytest.raises(OSError, match="cut"):
            stream.whole()
    else:
        listed = stream.whole()
        assert [listed_task.num_records for listed_task in listed.tasks] == [4, 5, 6]
        assert (listed.limit, listed.access, listed.table_files) == (3, "by hand", 6)
        assert (listed.skipped.files, listed.notes) == (2, ("Something is missing.",))
        assert 0 < listed.plan_seconds < 600
    assert events == ["released"]


def test_closed_listing_ends_and_is_released() -> None:
    events: list[str] = []

    def blocks() -> Generator[list[FileTask], None, None]:
        try:
            yield [task()]
        finally:
            events.append("ended")

    stream = ScanStream(
        context=plan().context, blocks=blocks(), skipped=SkippedFiles, release=lambda: events.append("released")
    )
    assert next(stream.every_file()).num_records == 4
    stream.close()
    assert events == ["ended", "released"]


# === explain ===


def test_explain_of_a_small_plan_is_short() -> None:
    assert explain(plan(task(1234), task(0, 5))).splitlines() == [
        "Scan of share.schema.t, version 7",
        "  columns from the files: a, b",
        "  columns from partition values: p",
        "  access: by URL",
        "  files to read: 2 of 2, 1.2 kB; the columns take about 100% of that, 1.2 kB, estimated by their types",
        "  rows in these files: 9",
    ]


def test_explain_shows_no_version_if_there_is_none() -> None:
    scan_plan = plan(task())
    changed = dataclasses.replace(scan_plan, context=dataclasses.replace(scan_plan.context, version=None))
    assert explain(changed).splitlines()[0] == "Scan of share.schema.t"


def test_explain_of_a_large_plan_has_every_part() -> None:
    request = ScanRequest(columns=("b",), filter=col("a") > 1, limit=3)
    skipped = SkippedFiles(by_partition=1, by_statistics=2, by_limit=3, bytes=999, is_cut=True)
    scan_plan = plan(
        task(2_000_000_000), task(without=removed(1)), request=request, limit=3, skipped=skipped, table_files=50,
        notes=["One is missing.", "Two\x1b[2J"],
    )  # fmt: skip
    assert explain(scan_plan).splitlines() == [
        "Scan of share.schema.t, version 7",
        "  columns from the files: b, a",
        "  columns for the filter only: a",
        "  access: by URL",
        "  filter: a > 1",
        "  limit: 3 rows",
        "  files to read: 2 of 8 or more listed (50 in the table), 2.0 GB; the columns take about 100% of that, "
        "2.0 GB, estimated by their types",
        "  files skipped: 1, because partition values cannot match",
        "  files skipped: 2, because statistics rule out a match",
        "  files skipped: 3, because the files before them have enough rows for the limit",
        "  bytes skipped with them: 999 bytes",
        "  files with deletion vectors: 1",
        "  rows in these files: 7 before the filter",
        "  row groups: chosen by the statistics in each file's footer; every row is checked",
        "  pages: chosen by the files' page indexes, where they have one and it saves more than it costs",
        "  note: One is missing.",
        "  note: Two\\x1b[2J",
    ]


def test_explain_of_a_read_without_columns_lists_no_column() -> None:
    assert explain(plan(task(), request=ScanRequest(columns=()))).splitlines()[1] == "  columns from the files: none"


def test_explain_names_twelve_columns_and_counts_the_others() -> None:
    def named(count: int) -> str:
        wide = pa.schema([(f"c{number}", pa.int64()) for number in range(count)])
        return explain(plan(task(rows=None), schema=wide)).splitlines()[1]

    assert named(12).endswith("c10, c11")
    assert named(13).endswith("c10, c11 and 1 more")


@pytest.mark.parametrize(
    ("size", "shown"),
    [(999, "999 bytes"), (1000, "1.0 kB"), (999_900, "999.9 kB"), (10**6, "1.0 MB"), (1.5 * 10**9, "1.5 GB"),
     (10**12, "1.0 TB"), (10**16, "10000.0 TB")],
)  # fmt: skip
def test_explain_shows_sizes_in_a_readable_unit(size: float, shown: str) -> None:
    assert f" of 1, {shown};" in explain(plan(task(int(size))))


def test_explain_shows_rows_if_all_files_have_row_counts() -> None:
    assert "rows in these files" not in explain(plan(task(), task(rows=None)))


def test_explain_of_a_plan_without_files_shows_no_row_count() -> None:
    text = explain(plan(request=ScanRequest(columns=(), filter=col("a") > 1)))
    assert "columns from the files: a\n  columns for the filter only: a\n" in text
    assert "files to read: 0 of 0, 0 bytes" in text
    assert "rows in" not in text
    assert "row groups" not in text


def test_repr_and_html_show_no_url() -> None:
    shown = task(file_id="id", without=removed(1), only=removed(2), row_groups=(0,))
    assert repr(shown) == (
        "FileTask(file_id='id', size=10, num_records=4, "
        "without=DeletionVectorRef('p', offset=1, size=34, rows=1), "
        "only=DeletionVectorRef('p', offset=1, size=34, rows=2), row_groups=(0,))"
    )
    text = html.unescape(re.sub("<[^>]*>", " ", plan(shown)._repr_html_()))
    assert "Plan of share.schema.t" in text
    assert "secret" not in text


# === Tasks of actions ===


def test_size_and_row_count_of_a_task_may_be_unknown() -> None:
    table = table_state(metadata(SCHEMA))
    adds = [AddFile("https://h/a"), AddFile("https://h/b", size=5, stats='{"numRecords": 7}')]
    files = list(map(SharedFile, adds))
    tasks = plan_snapshot(table, files, ScanRequest(), fast_options()).tasks
    assert [(task.size, task.num_records) for task in tasks] == [(-1, None), (5, 7)]
