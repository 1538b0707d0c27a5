"""Equality deletes and initial defaults of Iceberg tables, and tables that are refused because of them.

Expected rows are computed row by row in Python from the text of the specification.
"""

from __future__ import annotations

import datetime
import random
import struct
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg import types as theirs
from pyiceberg.conversions import to_bytes

import delta_sharing_client as ds
from tests.iceberg.hand_made import HandMade
from tests.iceberg.server import IcebergServer, iceberg_server

COLUMNS = [
    {"id": 1, "name": "k", "required": False, "type": "long"},
    {"id": 2, "name": "d", "required": False, "type": "double"},
    {"id": 3, "name": "t", "required": False, "type": "string"},
    {
        "id": 4,
        "name": "s",
        "required": False,
        "type": {"type": "struct", "fields": [{"id": 5, "name": "x", "required": False, "type": "int"}]},
    },
]
ARROW = pa.schema({"k": pa.int64(), "d": pa.float64(), "t": pa.string(), "s": pa.struct([pa.field("x", pa.int32())])})
NAN, ZERO, MINUS_ZERO = float("nan"), 0.0, -0.0
CHOICES: dict[str, list[Any]] = {
    "k": [None, 0, 1, 2, 2**53 + 1, 2**53],
    "d": [None, NAN, ZERO, MINUS_ZERO, 1.5],
    "t": [None, "", "a", "ä"],
    "s": [None, {"x": None}, *({"x": at} for at in range(1, 6))],
}


@pytest.fixture
def server() -> Iterator[IcebergServer]:
    with iceberg_server() as server:
        yield server


@pytest.fixture
def made(tmp_path: Path) -> HandMade:
    return HandMade(tmp_path / "t", COLUMNS)


def _some(chance: random.Random, count: int) -> pa.Table:
    rows = [{name: chance.choice(values) for name, values in CHOICES.items()} for _ in range(count)]
    return pa.Table.from_pylist(rows, schema=ARROW)


def _key(row: dict[str, Any], names: tuple[str, ...]) -> tuple[Any, ...]:
    """Return the values that equality deletes compare: null equals null, NaN equals NaN, and 0.0 differs from -0.0."""
    results: list[Any] = []
    for name in names:
        value: Any = row
        for step in name.split("."):
            value = None if value is None else value[step]
        if isinstance(value, float):
            value = "nan" if value != value else struct.pack("<d", value)
        results.append(value)
    return tuple(results)


def _shown(rows: list[dict[str, Any]]) -> list[str]:
    return [repr(row) for row in rows]


@pytest.mark.parametrize("names", [("k",), ("d",), ("t",), ("s.x",), ("k", "d"), ("t", "k", "s.x", "d")])
def test_equality_deletes_remove_rows_with_equal_values(
    made: HandMade, server: IcebergServer, names: tuple[str, ...]
) -> None:
    chance = random.Random(7)
    data, deletes = [_some(chance, 200) for _ in range(3)], [_some(chance, 4 ** (len(names) - 1)) for _ in range(2)]
    files = made.manifest([made.data_file(one) for one in data])
    made.commit([files])
    made.commit([files, made.manifest([made.equality_deletes(one, names) for one in deletes], content=1)])
    server.share("t", made.metadata)
    gone = {_key(row, names) for one in deletes for row in one.to_pylist()}
    rows = [row for one in data for row in one.to_pylist()]
    left = [row for row in rows if _key(row, names) not in gone]
    assert 0 < len(left) < len(rows)
    table = server.table()

    assert _shown(table.scan().to_arrow().to_pylist()) == _shown(left)
    assert table.scan().count() == len(left)
    assert table.scan(limit=len(left) + 1).count() == len(left)
    assert table.scan(limit=3).to_arrow()["k"].to_pylist() == [row["k"] for row in left[:3]]
    # The selected columns do not include the equality columns.
    assert table.scan(columns=["t"]).to_arrow()["t"].to_pylist() == [row["t"] for row in left]
    returned = table.scan(columns=["t"], filter="k = 1 OR k IS NULL").to_arrow()["t"].to_pylist()
    assert returned == [row["t"] for row in left if row["k"] in (1, None)]
    assert table.scan(filter="k = 2").count() == sum(row["k"] == 2 for row in left)
    assert table.scan(version=1001).count() == len(rows)


def _statistics(rows: pa.Table, ids: dict[str, int]) -> dict[str, Any]:
    """Return the statistics that a writer stores for the columns ``k`` and ``t``."""
    results: dict[str, Any] = {"lower_bounds": {}, "upper_bounds": {}, "null_value_counts": {}}
    for name, kind in (("k", theirs.LongType()), ("t", theirs.StringType())):
        results["null_value_counts"][ids[name]] = rows[name].null_count
        if rows[name].null_count < len(rows):
            least, greatest = pc.min_max(rows[name]).as_py().values()
            results["lower_bounds"][ids[name]] = to_bytes(kind, least)
            results["upper_bounds"][ids[name]] = to_bytes(kind, greatest)
    return results


def _equality_of_each_file(table: ds.SharedTable) -> list[int]:
    """Return how many equality delete files apply to each data file, in the order of the data files."""
    return [len(task.equality) for task in table.scan().plan().tasks]


@pytest.mark.parametrize("names", [("k",), ("t",), ("t", "k"), ("k", "d")])
def test_skipping_equality_deletes_keeps_no_deleted_row(
    made: HandMade, server: IcebergServer, names: tuple[str, ...]
) -> None:
    chance = random.Random(3)
    data, deletes = [_some(chance, 2) for _ in range(40)], [_some(chance, 1) for _ in range(2 * len(names))]
    files = made.manifest([made.data_file(one, **_statistics(one, made.ids)) for one in data])
    made.commit([files])
    gone = [made.equality_deletes(one, names, **_statistics(one, made.ids)) for one in deletes]
    made.commit([files, made.manifest(gone, content=1)])
    server.share("t", made.metadata)
    keys = {_key(row, names) for one in deletes for row in one.to_pylist()}
    left = [row for one in data for row in one.to_pylist() if _key(row, names) not in keys]

    table = server.table()
    assert 0 < len(left) < 80
    assert _shown(table.scan().to_arrow().to_pylist()) == _shown(left)
    assert len(deletes) < sum(_equality_of_each_file(table)) < 40 * len(deletes)


SURE: dict[str, Any] = {"lower_bounds": {1: 5}, "upper_bounds": {1: 6}, "null_value_counts": {1: 0}}
OTHER: dict[str, Any] = {"lower_bounds": {1: 7}, "upper_bounds": {1: 9}, "null_value_counts": {1: 0}}


@pytest.mark.parametrize(
    ("deletes", "data", "applies"),
    [
        (SURE, OTHER, 0),
        (OTHER, SURE, 0),
        (SURE, SURE, 1),
        (SURE, OTHER | {"lower_bounds": {1: 6}}, 1),
        # Nulls match only if both the data file and the deletes have some.
        (SURE | {"null_value_counts": {1: 1}}, OTHER, 0),
        (SURE, OTHER | {"null_value_counts": {}}, 0),
        (SURE | {"null_value_counts": {}}, OTHER | {"null_value_counts": {1: 1}}, 1),
        # Missing or contradictory statistics exclude nothing.
        (SURE | {"upper_bounds": {}}, OTHER, 1),
        (SURE, OTHER | {"lower_bounds": {}}, 1),
        (SURE, OTHER | {"lower_bounds": {1: 10}}, 1),
        ({}, {}, 1),
    ],
)
def test_equality_deletes_apply_unless_bounds_exclude_them(
    made: HandMade, server: IcebergServer, deletes: dict[str, Any], data: dict[str, Any], applies: int
) -> None:
    def as_written(statistics: dict[str, Any]) -> dict[str, Any]:
        bounds = {
            name: {1: to_bytes(theirs.LongType(), at[1])} for name, at in statistics.items() if at and "bound" in name
        }
        return {**statistics, **bounds}

    rows = pa.Table.from_pylist([{"k": 5}, {"k": 6}], schema=ARROW)
    files = made.manifest([made.data_file(rows, **as_written(data))])
    made.commit([files])
    gone = made.equality_deletes(rows, ["k"], **as_written(deletes))
    made.commit([files, made.manifest([gone], content=1)])
    server.share("t", made.metadata)

    assert _equality_of_each_file(server.table()) == [applies]
    # Bounds of nested and of floating-point columns are not used.
    for names in (["s.x"], ["d"]):
        made.commit([files, made.manifest([made.equality_deletes(rows, names, **as_written(deletes))], content=1)])
        server.share("t", made.metadata)
        assert _equality_of_each_file(server.table()) == [1]


def test_bounds_of_a_partition_column_exclude_no_delete(made: HandMade, server: IcebergServer) -> None:
    made.metadata["partition-specs"].append(
        {"spec-id": 1, "fields": [{"name": "k", "transform": "identity", "source-id": 1, "field-id": 1000}]}
    )
    rows = pa.Table.from_pylist([{"k": 100, "t": "a"}], schema=ARROW)
    # The rows get the value of the partition, 7, although the file and its statistics have 100.
    file = made.data_file(rows, partition={"k": 7}, **_statistics(rows, made.ids))
    place: dict[str, Any] = {"spec_id": 1, "partition": [("k", 1000, "long")]}
    files = made.manifest([file], **place)
    made.commit([files])
    one = pa.Table.from_pylist([{"k": 7}], schema=ARROW)
    gone = made.equality_deletes(one, ["k"], partition={"k": 7}, **_statistics(one, made.ids))
    made.commit([files, made.manifest([gone], content=1, **place)])
    server.share("t", made.metadata)

    assert server.table().scan().count() == 0
    assert server.table().scan().to_arrow().num_rows == 0


@pytest.mark.parametrize(
    ("kind", "stored", "values"),
    [
        ("time", pa.time64("us"), [datetime.time(8), datetime.time(8, 0, 0, 1), None, datetime.time.max]),
        ("uuid", pa.binary(16), [bytes(16), b"\x80" + bytes(15), None, b"\xff" * 16]),
    ],
)
def test_equality_deletes_compare_times_and_uuids(
    made: HandMade, server: IcebergServer, kind: str, stored: pa.DataType, values: list[Any]
) -> None:
    made.metadata["schemas"][0]["fields"].append({"id": 9, "name": "u", "required": False, "type": kind})
    ids = made.ids | {"u": 9}
    rows = pa.table({"k": pa.array(range(4), pa.int64()), "u": pa.array(values, stored)})
    files = made.manifest([made.data_file(rows, ids=ids)])
    made.commit([files])
    deletes = made.equality_deletes(rows.select(["u"]).slice(1, 2), ["u"], ids=ids)
    made.commit([files, made.manifest([deletes], content=1)])
    server.share("t", made.metadata)

    assert server.table().scan(columns=["k"]).to_arrow()["k"].to_pylist() == [0, 3]
    assert server.table().scan(filter="u IS NULL").count() == 0


def test_equality_deletes_apply_to_older_files_only(made: HandMade, server: IcebergServer) -> None:
    rows = pa.Table.from_pylist([{"k": 1}, {"k": 2}], schema=ARROW)
    first = made.manifest([made.data_file(rows)])
    made.commit([first])
    second = made.manifest([made.data_file(rows)])
    deletes = made.manifest([made.equality_deletes(rows.slice(0, 1), ["k"])], content=1)
    made.commit([first, second, deletes])
    server.share("t", made.metadata)

    # The second file has the sequence number of the deletes.
    assert server.table().scan().to_arrow()["k"].to_pylist() == [2, 1, 2]


def test_equality_deletes_and_deletion_vectors_are_combined(made: HandMade, server: IcebergServer) -> None:
    rows = pa.Table.from_pylist([{"k": at, "t": "ab"[at % 2]} for at in range(8)], schema=ARROW)
    file = made.data_file(rows)
    data = made.manifest([file])
    made.commit([data])
    deletes = [
        made.equality_deletes(pa.Table.from_pylist([{"k": 1}, {"k": 99}], schema=ARROW), ["k"]),
        made.equality_deletes(pa.Table.from_pylist([{"k": 6, "t": "a"}, {"k": 4, "t": "b"}], schema=ARROW), ["k", "t"]),
        *made.puffin({file["file_path"]: [0, 1]}),
    ]
    made.commit([data, made.manifest(deletes, content=1)])
    server.share("t", made.metadata)
    table = server.table()

    assert table.scan().to_arrow()["k"].to_pylist() == [2, 3, 4, 5, 7]
    assert table.scan(columns=["t"], filter="k > 3").to_arrow()["t"].to_pylist() == ["a", "b", "b"]
    assert "files with equality deletes: 1" in table.scan().explain()


def _partitioned(root: Path) -> HandMade:
    made = HandMade(root, COLUMNS)
    made.metadata["partition-specs"] = [
        {"spec-id": 0, "fields": []},
        {"spec-id": 1, "fields": [{"source-id": 3, "field-id": 1000, "name": "t", "transform": "identity"}]},
    ]
    made.metadata["default-spec-id"] = 1
    return made


PARTITION = [("t", 1000, "string")]


def _in(made: HandMade, files: list[dict[str, Any]], content: int = 0) -> dict[str, Any]:
    return made.manifest(files, content=content, spec_id=1, partition=PARTITION)


def test_equality_deletes_apply_to_their_partition_or_all(tmp_path: Path, server: IcebergServer) -> None:
    made = _partitioned(tmp_path / "t")
    rows = {text: pa.Table.from_pylist([{"k": at, "t": text} for at in range(4)], schema=ARROW) for text in "ab"}
    data = _in(made, [made.data_file(one, partition={"t": text}) for text, one in rows.items()])
    made.commit([data])
    keys = [pa.Table.from_pylist([{"k": at}], schema=ARROW) for at in range(2)]
    in_a = _in(made, [made.equality_deletes(keys[0], ["k"], partition={"t": "a"})], content=1)
    # Deletes with the unpartitioned spec apply to all partitions.
    everywhere = made.manifest([made.equality_deletes(keys[1], ["k"])], content=1)
    made.commit([data, in_a, everywhere])
    server.share("t", made.metadata)

    returned = server.table().scan().to_arrow()
    assert list(zip(returned["t"].to_pylist(), returned["k"].to_pylist(), strict=True)) == [
        *[("a", 2), ("a", 3)],
        *[("b", 0), ("b", 2), ("b", 3)],
    ]


def test_deletes_match_the_partition_value_of_missing_columns(tmp_path: Path, server: IcebergServer) -> None:
    made = _partitioned(tmp_path / "t")
    rows = pa.table({"k": pa.array([1, 2], pa.int64())})
    data = _in(made, [made.data_file(rows, partition={"t": text}) for text in ("a", "b", None)])
    made.commit([data])
    gone = pa.Table.from_pylist([{"k": 1, "t": "a"}, {"k": 2, "t": None}], schema=ARROW)
    made.commit([data, made.manifest([made.equality_deletes(gone, ["k", "t"])], content=1)])
    server.share("t", made.metadata)

    assert server.table().scan(columns=["k"]).to_arrow()["k"].to_pylist() == [2, 1, 2, 1]


def test_equality_delete_by_a_dropped_column_applies(made: HandMade, server: IcebergServer) -> None:
    rows = pa.Table.from_pylist([{"k": at, "t": "ab"[at % 2]} for at in range(4)], schema=ARROW)
    data = made.manifest([made.data_file(rows)])
    deletes = made.equality_deletes(pa.Table.from_pylist([{"t": "b"}], schema=ARROW), ["t"])
    made.metadata["schemas"].append({"type": "struct", "schema-id": 1, "fields": COLUMNS[:2]})
    made.metadata["current-schema-id"] = 1
    made.commit([data])
    made.commit([data, made.manifest([deletes], content=1)])
    server.share("t", made.metadata)

    assert server.table().scan().to_arrow().to_pylist() == [{"k": 0, "d": None}, {"k": 2, "d": None}]


def test_equality_deletes_apply_in_small_batches(made: HandMade, server: IcebergServer) -> None:
    rows = pa.Table.from_pylist([{"k": at, "t": str(at % 10)} for at in range(5000)], schema=ARROW)
    file = made.data_file(rows)
    path = file["file_path"].removeprefix("file://")
    pq.write_table(pq.read_table(path), path, row_group_size=700)
    file["file_size_in_bytes"] = Path(path).stat().st_size
    data = made.manifest([file])
    made.commit([data])
    gone = pa.Table.from_pylist([{"t": "3"}, {"t": "7"}], schema=ARROW)
    made.commit([data, made.manifest([made.equality_deletes(gone, ["t"])], content=1)])
    server.share("t", made.metadata)
    left = [at for at in range(5000) if at % 10 not in (3, 7)]
    scan = server.table(batch_rows=64).scan

    assert scan(columns=["k"]).to_arrow()["k"].to_pylist() == left
    assert scan(columns=["k"], filter="k >= 1390 AND k < 1420").to_arrow()["k"].to_pylist() == [
        at for at in left if 1390 <= at < 1420
    ]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"record_count": 2}, "footer states 1"),
        ({"equality_ids": [2]}, "no column with the field id 2"),
        ({"equality_ids": [77]}, "the column with the field id 77"),
        ({"equality_ids": []}, "equality"),
        ({"file_size_in_bytes": 40}, "t/data"),
    ],
)
def test_invalid_delete_files_are_refused(
    made: HandMade, server: IcebergServer, change: dict[str, Any], reason: str
) -> None:
    data = made.manifest([made.data_file(pa.Table.from_pylist([{"k": 1}], schema=ARROW))])
    made.commit([data])
    deletes = made.equality_deletes(pa.table({"k": pa.array([1], pa.int64())}), ["k"])
    made.commit([data, made.manifest([{**deletes, **change}], content=1)])
    server.share("t", made.metadata)

    with pytest.raises((ds.DataError, ds.UnsupportedFeatureError), match=reason):
        server.table().scan().to_arrow()


def test_error_names_the_damaged_delete_file(made: HandMade, server: IcebergServer) -> None:
    data = made.manifest([made.data_file(pa.Table.from_pylist([{"k": 1}], schema=ARROW))])
    made.commit([data])
    deletes = made.equality_deletes(pa.table({"k": pa.array([1], pa.int64())}), ["k"])
    path = Path(deletes["file_path"].removeprefix("file://"))
    path.write_bytes(path.read_bytes()[:-8] + b"\xff\xff\xff\x7fPAR1")
    made.commit([data, made.manifest([deletes], content=1)])
    server.share("t", made.metadata)

    with pytest.raises(ds.DataError) as caught:
        server.table().scan().to_arrow()
    assert path.name in str(caught.value.file_id)


# --- initial defaults ---

UTC = datetime.timezone.utc
DEFAULTS: list[tuple[str, Any, Any]] = [
    ("boolean", True, True),
    ("int", 34, 34),
    ("long", 2**60, 2**60),
    ("double", -1.5, -1.5),
    ("float", 2, 2.0),
    ("decimal(9,2)", "14.20", Decimal("14.20")),
    ("date", "2017-11-16", datetime.date(2017, 11, 16)),
    ("timestamp", "2017-11-16T22:31:08.123456", datetime.datetime(2017, 11, 16, 22, 31, 8, 123456)),
    ("timestamptz", "2017-11-16T22:31:08.123456+00:00", datetime.datetime(2017, 11, 16, 22, 31, 8, 123456, UTC)),
    ("time", "22:31:08.123456", datetime.time(22, 31, 8, 123456)),
    ("uuid", "F79c3e09-677c-4bbd-a479-3f349cb785e7", "f79c3e09-677c-4bbd-a479-3f349cb785e7"),
    ("string", "iceberg", "iceberg"),
    ("string", "", ""),
    ("binary", "000102ff", bytes([0, 1, 2, 255])),
    ("fixed[2]", "00FF", b"\x00\xff"),
]


def _with_default(root: Path, kind: Any, default: object, **more: Any) -> HandMade:
    """Return a table with two files: one is older than the second column, and one has nulls in that column."""
    columns = [
        COLUMNS[0],
        {"id": 9, "name": "new", "required": False, "type": kind, "initial-default": default, **more},
    ]
    made = HandMade(root, columns, version=3, **{"next-row-id": 0})
    rows = pa.table({"k": pa.array([1, 2], pa.int64())})
    made.commit([made.manifest([made.data_file(rows)])], first_row_id=0)
    return made


@pytest.mark.parametrize(("kind", "default", "value"), DEFAULTS)
def test_file_without_a_column_has_its_initial_default(
    tmp_path: Path, server: IcebergServer, kind: str, default: object, value: object
) -> None:
    made = _with_default(tmp_path / "t", kind, default)
    server.share("t", made.metadata)
    table = server.table()

    assert table.scan().to_arrow()["new"].to_pylist() == [value, value]
    # The file is not skipped, although it lacks the column.
    assert table.scan(filter="new IS NOT NULL AND k = 2").count() == 1
    assert table.scan(filter="new IS NULL").count() == 0


def test_initial_default_of_a_not_null_column_can_be_deleted(tmp_path: Path, server: IcebergServer) -> None:
    made = _with_default(tmp_path / "t", "string", "x", required=True)
    server.share("t", made.metadata)
    assert server.table().scan(filter="new = 'x'").to_arrow()["new"].to_pylist() == ["x", "x"]

    old = made.manifest([made.data_file(pa.table({"k": pa.array([3], pa.int64())}))], sequence_number=1)
    gone = made.equality_deletes(pa.table({"new": ["x"]}), ["new"])
    new = made.manifest([made.data_file(pa.table({"k": pa.array([4], pa.int64()), "new": ["y"]}))], sequence_number=1)
    made.commit([old, new, made.manifest([gone], content=1)], first_row_id=2)
    server.share("t", made.metadata)
    assert server.table().scan().to_arrow()["k"].to_pylist() == [4]


def test_fields_of_structs_have_initial_defaults(tmp_path: Path, server: IcebergServer) -> None:
    inner = [
        {"id": 5, "name": "x", "required": False, "type": "int"},
        {"id": 6, "name": "y", "required": False, "type": "string", "initial-default": "there"},
    ]
    made = _with_default(tmp_path / "t", {"type": "struct", "fields": inner}, {})
    older = pa.table({"k": [3, 4], "new": pa.array([{"x": 7}, None], pa.struct([pa.field("x", pa.int32())]))})
    made.commit([*_manifests(made), made.manifest([made.data_file(older)])], first_row_id=2)
    server.share("t", made.metadata)
    table = server.table()

    default = {"x": None, "y": "there"}
    assert table.scan().to_arrow()["new"].to_pylist() == [default, default, {"x": 7, "y": "there"}, None]
    assert table.scan(filter="new.y = 'there'").to_arrow()["k"].to_pylist() == [1, 2, 3]
    assert table.scan(columns=["k"], filter="new.y IS NULL").to_arrow()["k"].to_pylist() == [4]


def _manifests(made: HandMade) -> list[dict[str, Any]]:
    return [made.manifest([made.data_file(pa.table({"k": pa.array([1, 2], pa.int64())}))])]


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("int", "7"),
        ("int", True),
        ("int", 2**40),
        ("boolean", 1),
        ("date", "yesterday"),
        ("time", "24:00:00"),
        ("time", "08:00:00.0000001"),
        ("uuid", "f79c3e09677c4bbda4793f349cb785e7"),
        ("binary", "0g"),
        ("decimal(4,2)", "123.45"),
        ("string", 5),
        ("timestamp", 5),
    ],
)
def test_initial_defaults_of_the_wrong_type_are_refused(
    tmp_path: Path, server: IcebergServer, kind: str, default: object
) -> None:
    made = _with_default(tmp_path / "t", kind, default)
    server.share("t", made.metadata)

    with pytest.raises(ds.DataError, match="The initial default of column"):
        server.table().scan().to_arrow()
    assert server.table().scan(columns=["k"]).to_arrow()["k"].to_pylist() == [1, 2]
