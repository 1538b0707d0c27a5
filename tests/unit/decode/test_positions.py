"""Deletion vectors and row ids use physical positions, for any row groups, filters and batches."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from delta_sharing_client.decode.vectors import Vectors
from delta_sharing_client.delta.actions import DeletionVectorDescriptor
from delta_sharing_client.delta.deletion_vectors import DeletionVector, encode_file
from delta_sharing_client.errors import DataError, ProtocolError, UnsupportedFeatureError
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.predicates.tree import col
from delta_sharing_client.run.batches import Batches
from tests.unit.storages import Storage, Table, fast_options, rows_of
from tests.vectors import encode_inline

MakeTable = Callable[..., Table]
SCHEMA = pa.schema([("id", pa.int64())])


def ids(start: int, stop: int) -> pa.Table:
    return pa.table({"id": pa.array(range(start, stop), pa.int64())})


def stored(storage: Storage, *vectors: DeletionVector, name: str = "dv.bin") -> list[DeletionVectorDescriptor]:
    blob, descriptors = encode_file(vectors, "placeholder")
    storage.put(name, blob)
    return [
        DeletionVectorDescriptor("p", storage.url(name, f"dv-{i}"), d.size_in_bytes, d.cardinality, d.offset)
        for i, d in enumerate(descriptors)
    ]


@pytest.mark.parametrize("batch_rows", [7, 100, 65_536])
@pytest.mark.parametrize("row_group_size", [10, 1000])
def test_deleted_rows_are_found_by_their_physical_position(
    make_table: MakeTable, batch_rows: int, row_group_size: int
) -> None:
    table = make_table(SCHEMA)
    deleted = {0, 9, 10, 11, 55, 199, *range(120, 140)}
    table.add(
        ids(0, 200),
        deletion_vector=encode_inline(DeletionVector.from_positions(deleted)),
        write={"row_group_size": row_group_size},
    )
    report = ScanReport()
    rows = rows_of(table.plan(options=fast_options(batch_rows=batch_rows)), report)
    assert rows["id"].to_pylist() == [i for i in range(200) if i not in deleted]
    assert report.rows_deleted == len(deleted)


def test_positions_do_not_shift_with_skipped_row_groups(make_table: MakeTable) -> None:
    table = make_table(SCHEMA)
    table.add(
        ids(0, 200),
        deletion_vector=encode_inline(DeletionVector.from_positions([5, 155, 161])),
        write={"row_group_size": 10},
        removed=(),  # so that row groups are skipped by their bounds
    )
    report = ScanReport()
    rows = table.read(report, filter=(col("id") >= 153) & (col("id") < 163))
    assert rows["id"].to_pylist() == [153, 154, 156, 157, 158, 159, 160, 162]
    assert report.row_groups == 2


def test_vectors_of_one_file_take_one_request(make_table: MakeTable, storage: Storage) -> None:
    table = make_table(SCHEMA)
    vectors = [DeletionVector.from_positions([part]) for part in range(20)]
    for part, descriptor in enumerate(stored(storage, *vectors)):
        table.add(ids(part * 100, part * 100 + 100), deletion_vector=descriptor, removed=[part])
    row_ids = table.read()["id"].to_pylist()
    assert row_ids == [part * 100 + i for part in range(20) for i in range(100) if i != part]
    assert len(storage.requested("dv.bin")) == 1
    assert len(storage.requests) == 21


def test_bytes_of_vectors_are_dropped_after_the_last_use(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(SCHEMA)
    blob, descriptors = encode_file([DeletionVector.from_positions([part]) for part in range(4)], "placeholder")
    for part, descriptor in enumerate(descriptors):
        offset = (descriptor.offset or 0) + (8 << 20 if part == 3 else 0)
        place = replace(descriptor, storage_type="p", path_or_inline_dv="http://h/dv", offset=offset)
        table.add(ids(0, 9), deletion_vector=place, removed=[part])
    tasks = list(table.plan().tasks)
    # The last vector follows a gap that is too large to be read with the others.
    whole = pa.py_buffer(blob + bytes(8 << 20))
    fetched: list[tuple[int, int]] = []

    async def fetch(self: Vectors, ref: Any, task: Any, span: Any, number: int) -> pa.Buffer:
        fetched.append(tuple(span))
        shift = 8 << 20 if number == 3 else 0
        return whole.slice(span.start - shift, span.length)

    monkeypatch.setattr(Vectors, "_fetch", fetch)
    vectors = Vectors("t", None)  # type: ignore[arg-type]
    for task in tasks:
        vectors.note(task)
    held_spans = []

    async def read() -> None:
        for number in (0, 1, 0, 3, 2, 3, 3):
            if number == 0 and held_spans:
                vectors.note(tasks[0])  # requests the file again while its bytes are in memory
            vector = await vectors.get(tasks[number].without, tasks[number], number)
            assert vector.positions().tolist() == [number]
            held_spans.append(sum(len(spans) for spans in vectors._spans.values()))

    asyncio.run(read())
    assert held_spans == [2, 2, 2, 1, 0, 0, 0]
    assert len(fetched) == 4
    assert fetched[1:] == [fetched[1]] * 3
    assert vectors._spans == {}


def test_only_needed_vectors_are_fetched(make_table: MakeTable, storage: Storage) -> None:
    table = make_table(SCHEMA)
    big = DeletionVector.from_positions(range(0, 1_000_000, 17))
    first, second = stored(storage, big, DeletionVector.from_positions([3]))
    assert second.offset is not None
    table.add(ids(0, 10), deletion_vector=second, removed=[3])
    assert table.read()["id"].to_pylist() == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert storage.requested("dv.bin") == [f"bytes={second.offset}-{second.offset + second.size_in_bytes + 7}"]
    assert first.size_in_bytes > 50_000


def test_row_count_needs_the_vector_but_not_the_file(make_table: MakeTable, storage: Storage) -> None:
    table = make_table(SCHEMA)
    (descriptor,) = stored(storage, DeletionVector.from_positions([1, 2, 3]))
    table.add(ids(0, 10), deletion_vector=descriptor, removed=[1, 2, 3], stats={"numRecords": 10})
    assert sum(batch.num_rows for batch in Batches(table.plan(columns=[]))) == 7
    assert len(storage.requests) == len(storage.requested("dv.bin")) == 1


KINDS_OF_READ: dict[str, dict[str, Any]] = {
    "all": {},
    "no columns": {"columns": []},
    "limit": {"limit": 1},
    "filter": {"filter": col("id") >= 0},
    "filter that needs no file": {"columns": [], "filter": col("id").is_null() | (col("id") > -1)},
    "row ids": {"row_lineage": True},
    "no columns, limit": {"columns": [], "limit": 1},
}


@pytest.mark.parametrize("past", [10, 2**32 + 1, 2**40])
@pytest.mark.parametrize("stats", [None, {"numRecords": 10}])
@pytest.mark.parametrize("storage_type", ["inline", "stored"])
@pytest.mark.parametrize("kind", KINDS_OF_READ)
def test_vector_past_the_end_of_a_file_is_always_refused(
    make_table: MakeTable, storage: Storage, kind: str, storage_type: str, stats: Any, past: int
) -> None:
    table = make_table(SCHEMA, delta__enableRowTracking="true")
    vector = DeletionVector.from_positions([1, past])
    descriptor = encode_inline(vector) if storage_type == "inline" else stored(storage, vector)[0]
    table.add(
        ids(0, 10),
        deletion_vector=descriptor,
        removed=[1],
        stats=stats,
        base_row_id=0,
        default_row_commit_version=1,
        name="bad",
    )
    with pytest.raises(DataError, match=rf"contains row {past}, counted from 0, but the file has only 10 rows.*id-bad"):
        table.read(**KINDS_OF_READ[kind])


# A vector whose descriptor states rows or bytes is read, and must match the descriptor.
@pytest.mark.parametrize(
    ("stated", "reason"),
    [
        ({"cardinality": 0}, "hold 0 row positions .* found 2"),
        ({"size_in_bytes": 0}, "decode to 0 bytes"),
        ({"cardinality": 0, "size_in_bytes": 0}, None),
    ],
)
def test_vector_with_wrong_counts_is_refused_unless_both_are_0(
    make_table: MakeTable, stated: dict[str, int], reason: str | None
) -> None:
    table = make_table(SCHEMA)
    vector = replace(encode_inline(DeletionVector.from_positions([1, 3])), **stated)
    table.add(ids(0, 10), deletion_vector=vector, removed=())
    if reason is None:
        assert table.read().num_rows == 10
        return
    with pytest.raises(DataError, match=reason):
        table.read()


def test_empty_vector_with_bytes_deletes_nothing(make_table: MakeTable) -> None:
    table = make_table(SCHEMA)
    table.add(ids(0, 10), deletion_vector=encode_inline(DeletionVector.from_positions([])))
    assert table.read().num_rows == 10


def test_a_limit_counts_visible_rows(make_table: MakeTable) -> None:
    table = make_table(SCHEMA)
    for part in range(3):
        vector = encode_inline(DeletionVector.from_positions(range(8)))
        table.add(ids(part * 10, part * 10 + 10), deletion_vector=vector, stats={"numRecords": 10})
    assert table.read(limit=3)["id"].to_pylist() == [8, 9, 18]
    assert len(table.storage.requests) == 2


def test_error_of_a_damaged_vector_has_the_file_id(make_table: MakeTable, storage: Storage) -> None:
    table = make_table(SCHEMA)
    (descriptor,) = stored(storage, DeletionVector.from_positions([1]))
    blob = bytearray(storage.files["dv.bin"])
    blob[-6] ^= 1
    storage.files["dv.bin"] = bytes(blob)
    table.add(ids(0, 10), deletion_vector=descriptor, removed=[1])
    with pytest.raises(DataError, match=r"id-part-0") as caught:
        table.read()
    assert "dv-0" not in str(caught.value)
    assert caught.value.table == "share.schema.t"


def test_a_missing_vector_file_is_an_error(make_table: MakeTable, storage: Storage) -> None:
    table = make_table(SCHEMA)
    (descriptor,) = stored(storage, DeletionVector.from_positions([1]))
    del storage.files["dv.bin"]
    table.add(ids(0, 10), deletion_vector=descriptor, removed=[1])
    with pytest.raises(DataError, match="vacuumed"):
        table.read()


def test_vector_with_a_relative_path_is_refused(make_table: MakeTable) -> None:
    table = make_table(SCHEMA)
    _, (descriptor,) = encode_file([DeletionVector.from_positions([1])], uuid.UUID(int=1))
    table.add(ids(0, 10), deletion_vector=descriptor, removed=[1])
    with pytest.raises(ProtocolError, match="relative") as caught:
        table.read()
    assert (caught.value.table, caught.value.file_id) == ("share.schema.t", "id-part-0.parquet")


# === Row lineage ===


def tracked(make_table: MakeTable, schema: pa.Schema = SCHEMA, partitions: tuple[str, ...] = ()) -> Table:
    return make_table(
        schema,
        partitions,
        delta__enableRowTracking="true",
        delta__rowTracking__materializedRowIdColumnName="_row-id-col-x",
        delta__rowTracking__materializedRowCommitVersionColumnName="_row-commit-version-col-x",
    )


def test_row_ids_are_base_plus_position_if_not_materialized(make_table: MakeTable) -> None:
    table = tracked(make_table)
    table.add(ids(0, 3), base_row_id=100, default_row_commit_version=7)
    rows = table.read(row_lineage=True)
    assert rows.to_pydict() == {"id": [0, 1, 2], "_row_id": [100, 101, 102], "_row_commit_version": [7, 7, 7]}
    assert rows.schema.field("_row_id").type == pa.int64()


def test_materialized_row_ids_are_used_if_not_null(make_table: MakeTable) -> None:
    table = tracked(make_table)
    data = ids(0, 3).append_column("_row-id-col-x", pa.array([5, None, 9], pa.int64()))
    data = data.append_column("_row-commit-version-col-x", pa.array([None, 2, None], pa.int64()))
    table.add(data, base_row_id=100, default_row_commit_version=7)
    assert table.read(row_lineage=True).to_pydict() == {
        "id": [0, 1, 2],
        "_row_id": [5, 101, 9],
        "_row_commit_version": [7, 2, 7],
    }


@pytest.mark.parametrize("batch_rows", [3, 65_536])
def test_row_ids_do_not_shift_with_vectors_or_filters(make_table: MakeTable, batch_rows: int) -> None:
    table = tracked(make_table)
    table.add(
        ids(0, 100),
        base_row_id=1000,
        default_row_commit_version=7,
        deletion_vector=encode_inline(DeletionVector.from_positions([1, 51, 55])),
        write={"row_group_size": 10},
    )
    plan = table.plan(
        filter=(col("id") >= 49) & (col("id") < 58), row_lineage=True, options=fast_options(batch_rows=batch_rows)
    )
    rows = rows_of(plan)
    assert rows["id"].to_pylist() == [49, 50, 52, 53, 54, 56, 57]
    assert rows["_row_id"].to_pylist() == [1049, 1050, 1052, 1053, 1054, 1056, 1057]


def test_row_lineage_can_be_filtered_and_selected(make_table: MakeTable) -> None:
    table = tracked(make_table)
    table.add(ids(0, 10), base_row_id=100, default_row_commit_version=7)
    rows = table.read(columns=["_row_id", "id"], filter=col("_row_id") == 104, row_lineage=True)
    assert rows.to_pydict() == {"_row_id": [104], "id": [4]}


def test_row_lineage_columns_come_after_the_selected_columns(make_table: MakeTable) -> None:
    table = tracked(make_table)
    table.add(ids(0, 1), base_row_id=100, default_row_commit_version=7)
    assert table.read(columns=["id"], row_lineage=True).column_names == ["id", "_row_id", "_row_commit_version"]


def test_table_without_row_tracking_is_refused_with_a_remedy(make_table: MakeTable) -> None:
    table = make_table(SCHEMA)
    table.add(ids(0, 1))
    with pytest.raises(UnsupportedFeatureError, match=r"provider to enable.*enableRowTracking"):
        table.plan(row_lineage=True)


@pytest.mark.parametrize("batch_rows", [1, 2, 5])
def test_row_ids_are_read_without_other_columns(make_table: MakeTable, batch_rows: int) -> None:
    table = tracked(make_table)
    table.add(
        ids(0, 5),
        base_row_id=100,
        default_row_commit_version=7,
        deletion_vector=encode_inline(DeletionVector.from_positions([0])),
        stats={"numRecords": 5},
    )
    plan = table.plan(columns=["_row_id"], row_lineage=True, options=fast_options(batch_rows=batch_rows))
    assert rows_of(plan).to_pydict() == {"_row_id": [101, 102, 103, 104]}
