"""Which files of a snapshot are read, and how many are skipped for which reason."""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from delta_sharing_client.delta import listed_files
from delta_sharing_client.delta.actions import AddFile, DeletionVectorDescriptor, SharedFile
from delta_sharing_client.delta.data_types import PrimitiveType, StructField
from delta_sharing_client.delta.deletion_vectors import DeletionVector
from delta_sharing_client.delta.statistics import FileStatistics, StatisticsReader
from delta_sharing_client.errors import DataError, IncompleteReadWarning, UnsupportedFeatureError
from delta_sharing_client.plan import snapshot_files
from delta_sharing_client.plan.read_request import ScanRequest
from delta_sharing_client.plan.snapshot_files import plan_snapshot, stream_snapshot, vector_ref
from delta_sharing_client.plan.tasks import RowLineage, ScanPlan, SkippedFiles
from delta_sharing_client.predicates.tree import Expression, col
from tests.unit.storages import fast_options, metadata, table_state
from tests.vectors import encode_inline

SCHEMA = pa.schema([("a", pa.int64()), ("p", pa.string())])
TABLE = table_state(metadata(SCHEMA, ["p"]))


def file(
    name: str,
    rows: int | None = 2,
    *,
    p: str | None = "x",
    size: int = 10,
    renew_at: int | None = None,
    **fields: Any,
) -> SharedFile:
    """Return a file whose statistics bound ``a`` by 1 and 9."""
    stats = {"numRecords": rows, "minValues": {"a": 1}, "maxValues": {"a": 9}, "nullCount": {"a": 0}}
    text = None if rows is None else json.dumps(stats)
    add = AddFile(f"https://h/{name}?sig=1", {"p": p}, size, stats=text, **fields)
    return SharedFile(add, name, renew_at=renew_at)


def changed(file: SharedFile, **fields: Any) -> SharedFile:
    return replace(file, action=replace(file.action, **fields))


def plan(*files: SharedFile, **request: Any) -> ScanPlan:
    return plan_snapshot(TABLE, files, ScanRequest(**request), fast_options())


def names(scan_plan: ScanPlan) -> list[str | None]:
    return [task.file_id for task in scan_plan.tasks]


# === Skipping ===


def test_skipped_file_is_counted_once() -> None:
    files = [
        file("a", size=3),
        file("b", p="y", size=5),
        file("c", size=-1),
        file("d", p=None, size=7),
        file("e", size=0),
    ]
    scan_plan = plan(*files, filter=(col("p") == "x") & (col("a") > 9))
    assert names(scan_plan) == []
    assert scan_plan.skipped == SkippedFiles(by_partition=2, by_statistics=3, bytes=15)
    scan_plan = plan(*files, filter=(col("p") == "x") & (col("a") >= 9))
    assert names(scan_plan) == ["a", "c", "e"]
    assert scan_plan.skipped == SkippedFiles(by_partition=2, bytes=12)
    assert scan_plan.skipped.files == 2
    assert [task.num_records for task in scan_plan.tasks] == [2, 2, 2]


def test_statistics_are_combined_with_partition_values() -> None:
    scan_plan = plan(file("a"), file("b", p="y"), filter=(col("p") == "x") | (col("a") > 9))
    assert names(scan_plan) == ["a"]
    assert scan_plan.skipped == SkippedFiles(by_statistics=1, bytes=10)


def test_files_are_chosen_correctly_for_any_cache_size(monkeypatch: pytest.MonkeyPatch) -> None:
    for remembered in (1, 2, 100):
        monkeypatch.setattr(snapshot_files, "_REMEMBERED", remembered)
        files = [file(f"{p}{number}", p=p) for number in range(3) for p in ("x", "y", "z", "w")]
        scan_plan = plan(*files, filter=col("p").is_in(["x", "z"]))
        assert names(scan_plan) == ["x0", "z0", "x1", "z1", "x2", "z2"]
        assert [task.partition_values for task in scan_plan.tasks] == [{"p": "x"}, {"p": "z"}] * 3


@pytest.mark.parametrize(("remembered", "decided"), [(2, 12), (3, 12), (4, 4)])
def test_number_of_cached_partitions_is_limited(monkeypatch: pytest.MonkeyPatch, remembered: int, decided: int) -> None:
    read, evaluated = StatisticsReader.read, []

    def noted(reader: StatisticsReader, add: AddFile) -> FileStatistics:
        evaluated.append(add.partition_values)
        return read(reader, add)

    monkeypatch.setattr(snapshot_files, "_REMEMBERED", remembered)
    monkeypatch.setattr(StatisticsReader, "read", noted)
    files = [file(f"{p}{number}", p=p) for number in range(3) for p in ("x", "y", "z", "w")]
    assert names(plan(*files, filter=col("p") == "none")) == []
    assert len(evaluated) == decided


def test_files_of_a_partition_share_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = plan(*(file(str(number), p="xy"[number % 2]) for number in range(6))).tasks
    assert len({id(task.partition_values) for task in tasks}) == 2
    monkeypatch.setattr(listed_files, "_REMEMBERED", 1)
    forgotten = plan(*(file(str(number), p="xy"[number % 2]) for number in range(6))).tasks
    assert [task.partition_values for task in forgotten] == [{"p": "x"}, {"p": "y"}] * 3
    assert len({id(task.partition_values) for task in forgotten}) == 6
    monkeypatch.undo()
    vector = encode_inline(DeletionVector.from_positions([1]))
    with_vectors = plan(*(file(str(number), deletion_vector=vector) for number in range(3))).tasks
    assert len({id(task.partition_values) for task in with_vectors}) == 1


# === The limit ===


@pytest.mark.parametrize(
    ("rows", "limit", "read"),
    [
        ([2, 2, 2], 1, "0"),
        ([2, 2, 2], 2, "0"),
        ([2, 2, 2], 3, "01"),
        ([2, 2, 2], 6, "012"),
        ([2, 2, 2], 0, ""),
        ([0, 2, 2], 2, "01"),
        ([None, 2, 2], 2, "01"),
    ],
)
def test_files_are_read_until_they_hold_enough_rows(rows: list[int | None], limit: int, read: str) -> None:
    files = [file(str(number), count) for number, count in enumerate(rows)]
    scan_plan = plan(*files, limit=limit)
    assert "".join(map(str, names(scan_plan))) == read
    left = len(rows) - len(read)
    assert scan_plan.skipped == SkippedFiles(by_limit=left, bytes=10 * left)
    assert scan_plan.limit == limit


def test_deleted_rows_are_not_counted_for_the_limit() -> None:
    vector = encode_inline(DeletionVector.from_positions([0]))
    assert names(plan(*(file(name, deletion_vector=vector) for name in "abc"), limit=2)) == ["a", "b"]


def test_limit_with_a_filter_skips_no_file() -> None:
    scan_plan = plan(file("a"), file("b"), file("c"), limit=1, filter=col("a") > 3)
    assert (names(scan_plan), scan_plan.limit) == (["a", "b", "c"], 1)


@pytest.mark.parametrize("more", [999, 1000, 1001, 5000])
def test_listing_ends_after_a_thousand_unneeded_files(more: int) -> None:
    listed: list[str] = []

    def arriving() -> Iterator[list[SharedFile]]:
        for number in range(1 + more):
            listed.append(str(number))
            yield [file(str(number))]

    scan_plan = stream_snapshot(TABLE, arriving(), ScanRequest(limit=2), fast_options()).whole()
    assert len(listed) == 1 + min(more, 1000)
    assert scan_plan.skipped == SkippedFiles(
        by_limit=min(more, 1000), bytes=10 * min(more, 1000), is_cut=more >= 1000
    )  # fmt: skip


@pytest.mark.parametrize("condition", [None, col("a") > 3])
def test_files_before_an_error_are_in_a_block_of_their_own(condition: Expression | None) -> None:
    files = [file(str(number)) for number in range(300)]
    broken = changed(file("broken"), partition_values={"p": "x"}, base_row_id=None)
    table = dataclasses.replace(TABLE, row_lineage=RowLineage(row_id=None, row_update=None))
    known = [changed(each, base_row_id=1, default_row_commit_version=1) for each in files]
    request = ScanRequest(filter=condition, row_lineage=True)
    stream = stream_snapshot(table, [[*known, broken, file("after")]], request, fast_options())
    sizes = []
    with pytest.raises(DataError, match="without one"):
        sizes.extend(len(block) for block in stream.blocks)
    assert (sizes, next(stream.blocks, None)) == ([256, 44], None)


@pytest.mark.parametrize("request_", [{}, {"filter": col("a") > 3}])
def test_closed_stream_of_blocks_lists_no_more(request_: dict[str, Any]) -> None:
    listed = [[file(str(number)) for number in range(start, start + 600)] for start in (0, 600)]
    blocks = iter(listed)
    stream = stream_snapshot(TABLE, blocks, ScanRequest(**request_), fast_options())
    assert len(next(stream.blocks)) == (256 if request_ else 600)
    stream.close()
    assert next(blocks) is listed[1]


def test_filtered_out_files_do_not_end_the_listing() -> None:
    files = [file(str(number), p="y") for number in range(1500)]
    assert names(plan(*files, file("last"), limit=1, filter=col("p") == "x")) == ["last"]


def test_context_has_the_place_query_id_and_version() -> None:
    table = dataclasses.replace(TABLE, query_id="query-7", version=3)
    context = plan_snapshot(table, [], ScanRequest(), fast_options()).context
    assert (context.place, context.query_id, context.version) == (TABLE.place, "query-7", 3)


# === Tasks ===


def test_task_has_the_values_of_its_add_action() -> None:
    plain = file("a", renew_at=77)
    with_vector = changed(plain, deletion_vector=encode_inline(DeletionVector.from_positions([1])))
    for add in (plain, with_vector):
        (task,) = plan(add).tasks
        assert (task.url, task.file_id, task.renew_at, task.size) == (plain.action.path, "a", 77, 10)
        assert (task.partition_values, task.num_records, task.change, task.only) == ({"p": "x"}, 2, None, None)
        assert (task.base_row_id, task.default_row_commit_version) == (None, None)
        assert task.without == vector_ref(add)
    (task,) = plan(changed(with_vector, partition_values={}, size=-1, stats=None)).tasks
    assert (task.partition_values, task.size, task.num_records, task.live_records) == ({}, -1, None, None)


@pytest.mark.parametrize(
    ("cardinality", "size", "is_vector"), [(0, 0, False), (0, 5, True), (3, 0, True), (3, 5, True)]
)
def test_empty_vector_of_no_bytes_is_ignored(cardinality: int, size: int, is_vector: bool) -> None:
    add = file("a", deletion_vector=DeletionVectorDescriptor("p", "https://h/dv", size, cardinality, 1))
    vector = vector_ref(add)
    assert (vector is not None) == is_vector
    if vector is not None:
        (task,) = plan(add).tasks
        assert vector.descriptor is add.action.deletion_vector
        assert vector.key.startswith(task.key)
        assert vector.key != task.key
    assert vector_ref(file("a")) is None


# === Row lineage ===

TRACKED = {
    "delta.enableRowTracking": "TRUE",
    "delta.rowTracking.materializedRowIdColumnName": "_id",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_version",
}


def lineage(*files: SharedFile, **properties: str) -> ScanPlan:
    table = table_state(metadata(SCHEMA, ["p"], properties))
    return plan_snapshot(table, files, ScanRequest(row_lineage=True), fast_options())


def test_row_lineage_needs_the_table_property_and_file_numbers() -> None:
    scan_plan = lineage(file("a", base_row_id=0, default_row_commit_version=0), **TRACKED)
    assert scan_plan.context.row_lineage == RowLineage(
        row_id=StructField("_id", PrimitiveType("long")), row_update=StructField("_version", PrimitiveType("long"))
    )
    assert (scan_plan.tasks[0].base_row_id, scan_plan.tasks[0].default_row_commit_version) == (0, 0)
    assert lineage(**{"delta.enableRowTracking": "true"}).context.row_lineage == RowLineage(
        row_id=None, row_update=None
    )
    for numbers in ({}, {"base_row_id": 3}, {"default_row_commit_version": 3}):
        with pytest.raises(DataError, match="baseRowId and a defaultRowCommitVersion") as refused:
            lineage(file("a", **numbers), **TRACKED)
        assert refused.value.file_id == "a"
    for properties in ({}, {**TRACKED, "delta.enableRowTracking": "false"}):
        with pytest.raises(UnsupportedFeatureError, match="does not track rows") as caught:
            lineage(**properties)
        assert caught.value.feature == "rowTracking"


def test_row_lineage_is_omitted_unless_requested() -> None:
    table = table_state(metadata(SCHEMA, ["p"], TRACKED))
    add = file("a", base_row_id=3, default_row_commit_version=4)
    scan_plan = plan_snapshot(table, [add], ScanRequest(), fast_options())
    assert scan_plan.context.row_lineage is None
    assert scan_plan.tasks[0].base_row_id is None
    assert not scan_plan.context.is_change_feed


# === Columns of unknown types ===


def test_read_of_all_columns_warns_of_unreadable_columns() -> None:
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in (("a", "long"), ("n", "new"))
    ]
    table = table_state(metadata(json.dumps({"type": "struct", "fields": fields})))
    with pytest.warns(IncompleteReadWarning, match=r"'share.schema.t' leaves out columns .*'n' \(new\)"):
        scan_plan = plan_snapshot(table, [], ScanRequest(), fast_options())
    assert scan_plan.output_schema.metadata == {b"delta_sharing.left_out": b'{"n": "new"}'}
    assert len(scan_plan.notes) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scan_plan = plan_snapshot(table, [], ScanRequest(columns=["a"]), fast_options())
    assert (scan_plan.output_schema.metadata, scan_plan.notes) == (None, ())
    alone = table_state(metadata(json.dumps({"type": "struct", "fields": fields[1:]})))
    with pytest.raises(UnsupportedFeatureError, match="None of the table's columns can be read: their types are new"):
        plan_snapshot(alone, [], ScanRequest(), fast_options())
    assert plan_snapshot(alone, [], ScanRequest(columns=()), fast_options()).output_schema.names == []
