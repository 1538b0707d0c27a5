"""The row positions, partition values, row groups and byte counts of a file."""

from __future__ import annotations

import dataclasses
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from msgspec.structs import replace

from delta_sharing_client.decode.align import FileColumn
from delta_sharing_client.decode.layout import Layout, Shape, lay_out
from delta_sharing_client.decode.page_choice import reading
from delta_sharing_client.delta.actions import AddCdcFile, AddFile, SharedFile
from delta_sharing_client.delta.data_types import PrimitiveType, StructField
from delta_sharing_client.delta.statistics import ColumnBounds
from delta_sharing_client.errors import DataError
from delta_sharing_client.parquet.byte_ranges import ByteRange
from delta_sharing_client.parquet.chunks import ColumnChunk
from delta_sharing_client.parquet.footer import open_file
from delta_sharing_client.parquet.page_index import DataPages
from delta_sharing_client.parquet.partial_chunk import ColumnShape, GroupPages, PartialChunk
from delta_sharing_client.plan.changes import plan_changes
from delta_sharing_client.plan.read_request import ChangesRequest
from delta_sharing_client.predicates.tree import col
from tests.unit.decode.opened import File
from tests.unit.storages import Storage, Table, fast_options, metadata, table_state

SCHEMA = pa.schema({"id": pa.int64(), "p": pa.int32(), "q": pa.string()})
# The contents of a file that also stores a partition column.
INSIDE = pa.table({"id": pa.array([7, 8], pa.int64()), "p": pa.array([5, None], pa.int32())})


@pytest.fixture
def table(storage: Storage) -> Table:
    return Table(storage, metadata(SCHEMA, ["p", "q"]))


@pytest.mark.parametrize(
    ("values", "p", "q"),
    [
        ({"p": "1", "q": "x"}, 1, "x"),
        ({"p": None, "q": ""}, None, None),
        ({"P": "1", "Q": "x"}, 1, "x"),
        # Delta Lake for Spark omits nulls in tombstones, other writers omit them in add actions.
        ({"q": "x"}, None, "x"),
        ({}, None, None),
    ],
)
def test_missing_partition_value_is_null(table: Table, values: dict[str, Any], p: int | None, q: str | None) -> None:
    table.add(pa.table({"id": pa.array([7], pa.int64())}), partition_values=values, stats={"numRecords": 1})
    assert table.read().to_pylist() == [{"id": 7, "p": p, "q": q}]
    assert table.read(columns=["p"]).to_pylist() == [{"p": p}]
    assert table.read(columns=["id"]).to_pylist() == [{"id": 7}]
    assert table.read(columns=[], filter=col("id") == 7).num_rows == 1
    assert table.read(filter=col("p").is_null()).num_rows == (p is None)
    assert table.read(filter=col("p") == 1).num_rows == (p == 1)
    assert table.read(columns=["id"], filter=(col("p") == 1) | (col("q") == "x")).num_rows == (1 in (p, q == "x"))


def test_missing_partition_value_is_read_from_the_file(table: Table) -> None:
    table.add(INSIDE, partition_values={"q": "x"}, stats={"numRecords": 2})
    table.add(INSIDE, partition_values={"p": "1", "q": "x"}, stats={"numRecords": 2})
    assert table.read(columns=["id", "p"]).to_pylist() == [
        {"id": 7, "p": 5},
        {"id": 8, "p": None},
        {"id": 7, "p": 1},
        {"id": 8, "p": 1},
    ]
    assert table.read(columns=["p"]).column("p").to_pylist() == [5, None, 1, 1]
    assert table.read(filter=col("p") == 5).to_pylist() == [{"id": 7, "p": 5, "q": "x"}]
    assert table.read(columns=["id"], filter=col("p").is_null()).to_pylist() == [{"id": 8}]
    assert table.read(columns=["p"], limit=1).to_pylist() == [{"p": 5}]


def test_only_columns_that_are_one_leaf_of_the_file_have_bounds() -> None:
    lists = pa.list_(pa.int64())
    table = Table(Storage(), metadata(pa.schema([*SCHEMA, ("more", pa.int64()), ("l", lists)]), ["p", "q"]))
    table.add(INSIDE.append_column("l", pa.array([[1], None], lists)), partition_values={"p": "1", "q": "x"})
    predicate = (col("p") == 5) | (col("id") == 7) | (col("more") == 3) | col("l").is_null()
    plan = table.plan(filter=predicate)
    footer, _ = open_file(pa.py_buffer(table.storage.files["part-0.parquet"]))
    bounds = lay_out(Shape(plan.context), next(iter(plan.tasks)), footer).bounds
    assert bounds is not None
    assert bounds.leaves.keys() == {("id",)}


def test_partition_column_with_two_values_is_refused(storage: Storage) -> None:
    table = Table(storage, metadata(pa.schema({"id": pa.int64(), "part": pa.int32()}), ["part"]))
    table.add(INSIDE.select(["id"]), partition_values={"PART": "1", "Part": "2"})
    with pytest.raises(DataError, match=r"one value for the partition column 'part', found 2.*file id-part-0.parquet"):
        table.read()


@pytest.mark.parametrize("partitions", [["p"], []])
@pytest.mark.parametrize("columns", [None, ["q"]])
def test_partition_value_of_a_missing_column_is_refused(
    storage: Storage, partitions: list[str], columns: list[str] | None
) -> None:
    table = Table(storage, metadata(SCHEMA, partitions))
    table.add(INSIDE, partition_values={"p": "1", "q": "x"} if partitions else {"q": "x"})
    with pytest.raises(DataError, match=r"no column 'q', but a partition value named 'q', .*file id-part-0.parquet"):
        table.read(columns=columns)
    assert table.read(columns=["id"]).column("id").to_pylist() == [7, 8]


TRACKED = {
    "delta.enableRowTracking": "true",
    "delta.rowTracking.materializedRowIdColumnName": "i",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "v",
}


@pytest.mark.parametrize(
    ("columns", "leaves"), [(["id"], (0, 1, 2)), (["_row_id"], (1,)), (["id", "_row_commit_version"], (0, 2))]
)
def test_only_selected_columns_are_read(columns: list[str], leaves: tuple[int, ...]) -> None:
    table = Table(Storage(), metadata(pa.schema({"id": pa.int64(), "p": pa.int64()}), ["p"], TRACKED))
    table.add(INSIDE, partition_values={"p": "1"}, base_row_id=1, default_row_commit_version=1)
    plan = table.plan(columns=columns, row_lineage=True)
    schema = pa.schema({"id": pa.int64(), "i": pa.int64(), "v": pa.int64()})
    assert Shape(plan.context).alignment(schema, next(iter(plan.tasks))).leaves == leaves


def test_files_of_one_schema_share_their_alignment() -> None:
    table = Table(Storage(), metadata(SCHEMA, ["p", "q"]))
    for values in ({"p": "1", "q": "x"}, {"p": "2", "q": "y"}, {"q": "x"}):
        table.add(INSIDE, partition_values=values)
    plan = table.plan()
    one, other, without_p = plan.tasks
    shape, schema = Shape(plan.context), INSIDE.schema
    alignment = shape.alignment(schema, one)
    assert shape.alignment(pa.schema(list(schema)), other) is alignment
    assert (alignment.leaves, shape.alignment(schema, without_p).leaves) == ((0,), (0, 1))
    # Schemas with different metadata differ, because field ids are metadata.
    assert shape.alignment(schema, one) is not shape.alignment(schema.with_metadata({"a": "b"}), one)


def test_columns_are_numbered_in_file_order() -> None:
    content = pa.table({f"c{number}": [number] for number in range(9)})
    file = File(content, predicate=(col("c8") > 3) & (col("c1") < 3))
    # Columns that are not in the file have no number.
    missing = FileColumn(StructField("x", PrimitiveType("long")), pa.int64(), -1, (), None)
    alignment = file.layout.alignment
    layout = dataclasses.replace(
        file.layout, alignment=dataclasses.replace(alignment, filter=(missing, *alignment.filter, None))
    )
    assert reading(layout, (8, 1)).alignment.tops == {1: 0, 8: 1}
    table = Table(Storage(), metadata(content.schema))
    table.add(content)
    plan = table.plan(columns=["c8", "c1"])
    assert Shape(plan.context).alignment(content.schema, next(iter(plan.tasks))).tops == {1: 0, 8: 1}


def test_change_columns_have_constant_bounds_in_their_file() -> None:
    filters = (col("_commit_version") == 7) | (col("id") > 5) | (col("_change_type") == "delete")
    filters |= col("_commit_timestamp").is_null()
    file = SharedFile(AddFile("https://h/f", size=9), "f", version=1, timestamp=5)
    request = ChangesRequest(starting_version=0, filter=filters)
    plan = plan_changes(table_state(metadata(pa.schema({"id": pa.int64()}))), [file], request, fast_options())
    [task] = plan.tasks
    assert Shape(plan.context).constant_bounds(task) == {
        ("_commit_version",): ColumnBounds(1, 1, 0, 1),
        ("_commit_timestamp",): ColumnBounds(5_000_000, 5_000_000, 0, 1),
        ("_change_type",): ColumnBounds("insert", "insert", 0, 1),
    }


@pytest.mark.parametrize(
    ("kind", "text", "bounds"),
    [
        (pa.int32(), "7", ColumnBounds(7, 7, 0, 1)),
        (pa.int32(), None, ColumnBounds(None, None, 1, 1)),
        # Floating-point values are not used, because of NaN and signed zeros.
        (pa.float64(), "1.5", ColumnBounds(None, None, 0, 1)),
        (pa.float64(), None, ColumnBounds(None, None, 1, 1)),
    ],
)
def test_partition_value_bounds_every_row_of_its_file(kind: Any, text: str | None, bounds: Any) -> None:
    table = Table(Storage(), metadata(pa.schema({"id": pa.int64(), "p": kind}), ["p"]))
    table.add(INSIDE.select(["id"]), partition_values={"p": text})
    plan = table.plan(filter=col("p").is_null() | (col("id") == 7))
    [task] = plan.tasks
    assert Shape(plan.context).constant_bounds(task) == {("p",): bounds}


@pytest.mark.parametrize(("values", "needs_file"), [({"p": "1", "q": "x"}, False), ({"q": "x"}, True)])
def test_partition_column_is_read_only_if_its_value_is_missing(values: dict[str, str], needs_file: bool) -> None:
    table = Table(Storage(), metadata(SCHEMA, ["p", "q"]))
    table.add(INSIDE, partition_values=values)
    plan = table.plan(columns=["p"])
    assert Shape(plan.context).needs_file(next(iter(plan.tasks))) is needs_file


@pytest.mark.parametrize(
    ("columns", "needs_file"), [(["_change_type"], False), (["_commit_version"], False), (["id"], True)]
)
def test_file_is_read_only_for_columns_stored_in_it(columns: list[str], needs_file: bool) -> None:
    files = [SharedFile(kind("https://h/f", size=9), "f", version=1, timestamp=5) for kind in (AddFile, AddCdcFile)]
    state = table_state(metadata(pa.schema({"id": pa.int64()})))
    plans = [
        plan_changes(state, [file], ChangesRequest(starting_version=0, columns=columns), fast_options())
        for file in files
    ]
    (added, changed), shape = (next(iter(plan.tasks)) for plan in plans), Shape(plans[0].context)
    assert shape.needs_file(added) is needs_file
    assert shape.needs_file(changed) is (needs_file or columns == ["_change_type"])
    # Each task has its own change type, even if the files have the same schema.
    schema = pa.schema({"id": pa.int64(), "_change_type": pa.string()})
    leaves = [shape.alignment(schema, task).leaves for task in (added, changed, added)]
    assert leaves == [(0,) if needs_file else (), *([(1,)] if columns == ["_change_type"] else leaves[:1]), leaves[0]]


@pytest.mark.parametrize(("kind", "has_lists"), [(pa.int64(), False), (pa.list_(pa.int64()), True)])
def test_has_lists_detects_a_list_column(kind: pa.DataType, has_lists: bool) -> None:
    assert File(pa.table({"a": [1], "b": pa.nulls(1, kind)})).layout.alignment.has_lists is has_lists


@pytest.mark.parametrize(("kind", "by_row"), [(AddFile, False), (AddCdcFile, True)])
def test_filter_on_change_type_needs_rows_of_cdc_files_only(kind: Any, by_row: bool) -> None:
    file = SharedFile(kind("https://h/f", size=9), "f", version=1, timestamp=5)
    request = ChangesRequest(starting_version=0, filter=col("_change_type") != "delete")
    plan = plan_changes(table_state(metadata(pa.schema({"id": pa.int64()}))), [file], request, fast_options())
    [task] = plan.tasks
    assert Shape(plan.context).filters_rows(task) is by_row


@pytest.mark.parametrize(
    ("kinds", "reason"),
    [
        ({}, r"The change file has no column '_change_type', which holds the change type of each row\."),
        ({"_change_type": pa.int64()}, "'_change_type' must have the table's type string, but the file has int64"),
    ],
)
def test_cdc_file_without_valid_change_types_is_refused(kinds: dict[str, pa.DataType], reason: str) -> None:
    file = SharedFile(AddCdcFile("https://h/f", size=9), "f", version=1, timestamp=5)
    state = table_state(metadata(pa.schema({"id": pa.int64()})))
    plan = plan_changes(state, [file], ChangesRequest(starting_version=0), fast_options())
    [task] = plan.tasks
    with pytest.raises(DataError, match=reason):
        Shape(plan.context).alignment(pa.schema({"id": pa.int64(), **kinds}), task)


@pytest.mark.parametrize(
    ("predicate", "values", "by_row"),
    [
        (None, {"p": "1"}, False),
        (col("p") == 1, {"p": "1"}, False),
        (col("p") == 1, {}, True),
        (col("id") == 7, {"p": "1"}, True),
        ((col("p") == 1) & (col("id") == 7), {"p": "1"}, True),
    ],
    ids=str,
)
def test_partition_filter_is_not_evaluated_for_each_row(predicate: Any, values: Any, by_row: bool) -> None:
    table = Table(Storage(), metadata(SCHEMA, ["p", "q"]))
    table.add(INSIDE, partition_values={"q": "x", **values})
    plan = table.plan(filter=predicate)
    [task] = plan.tasks
    assert Shape(plan.context).filters_rows(task) is by_row


def test_invalid_partition_value_is_refused_with_its_column() -> None:
    table = Table(Storage(), metadata(SCHEMA, ["p", "q"]))
    table.add(INSIDE, partition_values={"p": "many", "q": "x"})
    plan = table.plan(filter=col("p") == 5)
    shape, [task] = Shape(plan.context), plan.tasks
    for get in (shape.constants, shape.constant_bounds):
        with pytest.raises(DataError, match="Found 'many' in column 'p'"):
            get(task)


# === Rows and bytes ===

GROUPS = {"row_group_size": 1000, "compression": "NONE", "use_dictionary": False}


def part(**changes: Any) -> Layout:
    """Return the layout of three row groups with two columns of eight bytes; the second row group may be read in
    part."""
    content = pa.table({"a": range(2500), "b": range(2500)})
    layout = File(content, whole=changes.pop("whole", False), **GROUPS).layout
    return dataclasses.replace(layout, **changes)


def test_row_groups_have_consecutive_rows() -> None:
    layout = part()
    assert (layout.groups, layout.row_starts) == ((0, 1, 2), (0, 1000, 2000, 2500))
    assert [layout.rows(group) for group in layout.groups] == [1000, 1000, 500]
    assert [layout.end(group) for group in layout.groups] == [1000, 2000, 2500]
    assert layout.stretches(1, 1000, 2000) == [(1000, 2000)]
    assert layout.within(1, 10, 20) == [(10, 20)]


@pytest.mark.parametrize(
    ("start", "stop", "rows"),
    [
        (0, 1000, [(10, 20), (500, 600), (999, 1000)]),
        (0, 10, []),
        (0, 11, [(10, 11)]),
        (15, 505, [(15, 20), (500, 505)]),
        (20, 500, []),
        (19, 20, [(19, 20)]),
        (600, 1000, [(999, 1000)]),
        (10, 20, [(10, 20)]),
    ],
)
def test_selected_rows_are_clipped_to_a_range(start: int, stop: int, rows: list[tuple[int, int]]) -> None:
    layout = part(pages={1: GroupPages(((10, 20), (500, 600), (999, 1000)), {})})
    assert layout.within(1, start, stop) == rows
    assert layout.stretches(1, 1000 + start, 1000 + stop) == [(1000 + left, 1000 + right) for left, right in rows]
    assert layout.within(0, start, stop) == [(start, stop)]


@pytest.mark.parametrize(("rows", "end"), [(((10, 20), (500, 600)), 1600), (((0, 1000),), 2000), ((), 2000)])
def test_row_group_ends_with_the_last_selected_row(rows: Any, end: int) -> None:
    layout = part(pages={1: GroupPages(rows, {})})
    assert [layout.end(group) for group in layout.groups] == [1000, end, 2500]


def chunks_of(layout: Layout) -> list[ColumnChunk]:
    return [layout.chunks.get(group, leaf) for group in layout.groups for leaf in (0, 1)]


def test_size_of_row_groups_is_the_sum_of_their_chunks() -> None:
    layout = part()
    chunks = chunks_of(layout)
    assert layout.ranges((0, 1, 2)) == [ByteRange(item.start, item.start + item.length) for item in chunks]
    assert layout.compressed_size((1,)) == chunks[2].length + chunks[3].length
    assert layout.decoded_size((0, 2)) == sum(chunks[i].uncompressed for i in (0, 1, 4, 5))
    # The size of a file that is downloaded whole is divided by row count.
    whole = part(whole=True)
    assert whole.compressed_size((0,)) == whole.footer.start * 1000 // 2500
    assert whole.compressed_size((1, 2)) == whole.footer.start * 1500 // 2500
    assert whole.compressed_size(()) == 0
    single = File(pa.table({"a": [7]})).layout
    assert single.compressed_size((0,)) == single.footer.start
    assert File(pa.table({"a": pa.array([], pa.int64())})).layout.compressed_size(()) == 0
    assert whole.decoded_size((0, 2)) == sum(chunks[i].uncompressed for i in (0, 1, 4, 5))


def test_size_of_a_partial_chunk_is_the_sum_of_its_pages() -> None:
    layout = part()
    chunks = chunks_of(layout)
    length = chunks[2].length
    pages = DataPages((chunks[2].start, chunks[2].start + length // 4, chunks[2].start + length), (0, 250, 1000))
    partial = PartialChunk(chunks[2], pages, ColumnShape(1), (0,), {1: b"stub"}, dictionary=None)
    layout = dataclasses.replace(layout, pages={1: GroupPages(((0, 10),), {0: partial})})
    assert layout.ranges((1,)) == [
        ByteRange(chunks[2].start, chunks[2].start + length // 4),
        ByteRange(chunks[3].start, chunks[3].start + chunks[3].length),
    ]
    assert layout.compressed_size((1,)) == length // 4 + chunks[3].length
    quarter = chunks[2].uncompressed * (length // 4) // length
    assert layout.decoded_size((1,)) == quarter + chunks[3].uncompressed


@pytest.mark.parametrize("whole", [False, True])
def test_decoded_size_of_runs_is_half_a_byte_per_value(whole: bool) -> None:
    """A run of a few bytes may hold many values."""
    content = pa.table({"a": pa.array([7] * 1_000_000), "b": pa.array([7] * 1_000_000)})
    layout = File(content, whole=whole, row_group_size=1_000_000).layout
    assert layout.footer.metadata.row_group(0).total_byte_size < 10_000
    assert layout.decoded_size((0,)) == 1_000_000
    one = dataclasses.replace(layout, alignment=dataclasses.replace(layout.alignment, leaves=(1,)))
    assert one.decoded_size((0,)) == 500_000


@pytest.mark.parametrize(
    ("writer", "is_old"),
    [
        ("parquet-mr version 1.2.8", True),
        ("parquet-mr version 1.2.8-SNAPSHOT", True),
        ("parquet-mr version 1.2.9", False),
        ("parquet-mr version 1.2.80", False),
        ("parquet-mr version 1.0.0", True),
        ("parquet-mr version 1.1.1", True),
        ("parquet-mr 1.1.1", True),
        ("parquet-mr version 1.10.1", False),
        ("parquet-mr version 1.12.3", False),
        ("x", False),
    ],
)
def test_chunks_of_old_parquet_mr_are_read_with_100_more_bytes(writer: str, is_old: bool) -> None:
    layout = part()
    first, last = chunks_of(layout)[0], chunks_of(layout)[-1]
    layout.chunks.__dict__["_parsed"] = layout.chunks._parsed._replace(writer=writer)
    assert layout.chunk_range(0, 0).stop == first.start + first.length + (100 if is_old else 0)
    # The range never extends into the footer.
    edge = dataclasses.replace(layout, footer=layout.footer._replace(start=last.start + last.length + 7))
    assert edge.chunk_range(2, 1).stop == last.start + last.length + (7 if is_old else 0)


# === Contradictory footers ===


@pytest.mark.parametrize(
    ("rows", "total", "stated", "message"),
    [
        ((1000, 1000, 500), 2500, 2500, None),
        ((1000, 1000, 500), 2500, None, None),
        (
            (1000, 1000, 499),
            2500,
            None,
            "The footer states 2500 rows for the file, but 2499 rows for all of its row groups",
        ),
        (
            (1000, 1000, 500),
            2500,
            2499,
            "The table's metadata states 2499 rows for the file, but the file's footer states 2500",
        ),
        ((1000, -1, 500), 1499, None, "The number of rows of row group 1 must be 0 or more, but the footer states -1"),
        ((1000, 0, 500), 1500, None, None),
    ],
)
def test_contradictory_row_counts_are_refused(
    rows: tuple[int, ...], total: int, stated: int | None, message: str | None
) -> None:
    file = File(pa.table({"a": range(2500)}), **GROUPS)
    file_metadata = mock.Mock(
        num_columns=1, num_rows=total, num_row_groups=3, row_group=lambda group: mock.Mock(num_rows=rows[group])
    )
    footer = file.layout.footer._replace(metadata=file_metadata)
    task = replace(file.decoder.task, num_records=stated)
    if message is None:
        layout = lay_out(file.decoder.shape, task, footer)
        # Row groups without rows are neither read nor counted as skipped by a filter.
        assert layout.groups == tuple(group for group in range(3) if rows[group])
        assert layout.groups_skipped == rows.count(0)
        return
    with pytest.raises(DataError, match=message):
        lay_out(file.decoder.shape, task, footer)


def test_footer_with_a_wrong_column_count_is_refused() -> None:
    file = File(pa.table({"a": range(2500)}), **GROUPS)
    footer = file.layout.footer._replace(metadata=mock.Mock(num_columns=2))
    with pytest.raises(DataError, match="Parquet columns, but its footer states 2"):
        lay_out(file.decoder.shape, file.decoder.task, footer)


def test_negative_size_of_a_row_group_counts_as_zero() -> None:
    layout = File(pa.table({"a": [7]})).layout
    file_metadata = mock.Mock(row_group=lambda group: mock.Mock(total_byte_size=-5))
    assert dataclasses.replace(layout, footer=layout.footer._replace(metadata=file_metadata)).decoded_size((0,)) == 0


@pytest.mark.parametrize(
    ("groups", "fits"), [((0, 2), True), ((), True), ((3,), False), ((-1,), False), ((0, 3), False)]
)
def test_task_with_row_groups_that_do_not_exist_is_refused(groups: tuple[int, ...], fits: bool) -> None:
    file = File(pa.table({"a": range(2500)}), **GROUPS)
    task = replace(file.decoder.task, row_groups=groups)
    footer = file.layout.footer
    if fits:
        assert lay_out(file.decoder.shape, task, footer).groups == groups
        return
    with pytest.raises(DataError, match="The row groups to read must be below 3"):
        lay_out(file.decoder.shape, task, footer)


def test_row_groups_are_skipped_by_their_bounds() -> None:
    file = File(pa.table({"a": range(2500)}), predicate=(col("a") > 1500) & (col("a") < 1600), **GROUPS)
    assert (file.layout.groups, file.layout.groups_skipped) == ((1,), 2)


@pytest.mark.parametrize(
    ("partition", "predicate", "groups"),
    [
        ({"p": "x"}, col("p") == "x", (0, 1, 2)),
        ({"p": "x"}, (col("p") == "y") | (col("a") < 5), (0,)),
        ({"p": None}, col("p").is_null(), (0, 1, 2)),
        ({"p": None}, (col("p") == "x") | (col("a") > 2400), (2,)),
    ],
)
def test_partition_value_bounds_every_row_group(partition: Any, predicate: Any, groups: Any) -> None:
    layout = File(pa.table({"a": range(2500)}), partition=partition, predicate=predicate, **GROUPS).layout
    assert layout.groups == groups
    assert layout.bounds is not None
    for group, rows in enumerate((1000, 1000, 500)):
        bounds = layout.bounds.bounds_in(group, ("p",))
        assert bounds is not None
        assert (bounds.null_count, bounds.row_count) == (rows if partition["p"] is None else 0, rows)
