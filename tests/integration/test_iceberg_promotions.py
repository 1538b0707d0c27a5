"""Columns whose type was promoted after files, deletes and bounds were written (Iceberg, "Schema Evolution").

The tables are written by hand in both types; the expected rows follow from the specification: a promotion changes no
value, so partitions, keys and bounds with equal values are equal.
"""

from __future__ import annotations

import dataclasses
import datetime
import struct
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import mmh3
import pyarrow as pa
import pytest

import delta_sharing_client as ds
from tests.iceberg.hand_made import HandMade
from tests.iceberg.server import IcebergServer, iceberg_server

DAY_MICROS = 86_400_000_000
DATE = {"type": "int", "logicalType": "date"}
FLOAT32_TENTH = struct.unpack("<f", struct.pack("<f", 0.1))[0]


def _decimal_type(precision: int, size: int) -> dict[str, Any]:
    return {
        "type": "fixed",
        "name": f"decimal_{precision}_2",
        "size": size,
        "logicalType": "decimal",
        "precision": precision,
        "scale": 2,
    }


def _time_type(logical: str) -> dict[str, Any]:
    return {"type": "long", "logicalType": logical, "adjust-to-utc": False}


@dataclasses.dataclass(frozen=True)
class Promotion:
    """A promotion and two values: the types in the schema, in Avro and in Arrow, and the values and bounds in each."""

    old: str
    new: str
    avro: tuple[Any, Any]
    arrow: tuple[pa.DataType, pa.DataType]
    values: tuple[Any, Any]
    """Two different values, as the column returns them after the promotion."""
    arrow_value: Callable[[Any, int], Any]
    """Returns a value for Arrow in the old (0) or the new (1) type."""
    avro_value: Callable[[Any, int], Any]
    bound: Callable[[Any, int], bytes]
    literal: Callable[[Any], str]


def _same(value: Any, place: int) -> Any:
    return value


def _unscaled(sizes: tuple[int, int]) -> Callable[[Any, int], bytes]:
    return lambda value, place: int(value * 100).to_bytes(sizes[place], "big", signed=True)


def _days(value: datetime.datetime) -> int:
    return (value - datetime.datetime(1970, 1, 1)).days


def _moment_bound(units: int) -> Callable[[Any, int], bytes]:
    return lambda value, place: struct.pack("<q", _days(value) * units) if place else struct.pack("<i", _days(value))


def _of_dates(new: str, logical: str, arrow: pa.DataType, units: int) -> Promotion:
    return Promotion(
        "date", new, (DATE, _time_type(logical)), (pa.date32(), arrow),
        (datetime.datetime(2024, 2, 29), datetime.datetime(1969, 12, 31)),
        lambda value, place: value if place else value.date(),
        lambda value, place: _days(value) * (units if place else 1),
        _moment_bound(units), lambda value: f"TIMESTAMP '{value}'",
    )  # fmt: skip


def _of_decimals(precision: int, sizes: tuple[int, int]) -> Promotion:
    return Promotion(
        "decimal(9,2)", f"decimal({precision},2)", (_decimal_type(9, sizes[0]), _decimal_type(precision, sizes[1])),
        (pa.decimal128(9, 2), pa.decimal128(precision, 2)), (Decimal("1.50"), Decimal("-300.25")),
        _same, _unscaled(sizes), _unscaled(sizes), str,
    )  # fmt: skip


PROMOTIONS = {
    "int to long": Promotion(
        "int", "long", ("int", "long"), (pa.int32(), pa.int64()), (7, -3), _same, _same,
        lambda value, place: struct.pack(("<i", "<q")[place], value), str,
    ),
    "float to double": Promotion(
        "float", "double", ("float", "double"), (pa.float32(), pa.float64()), (FLOAT32_TENTH, -2.5), _same, _same,
        lambda value, place: struct.pack(("<f", "<d")[place], value), lambda value: f"CAST('{value!r}' AS DOUBLE)",
    ),
    "decimal(9,2) to decimal(18,2)": _of_decimals(18, (4, 8)),
    "decimal(9,2) to decimal(38,2)": _of_decimals(38, (4, 16)),
    "date to timestamp": _of_dates("timestamp", "timestamp-micros", pa.timestamp("us"), DAY_MICROS),
    "date to timestamp_ns": _of_dates("timestamp_ns", "timestamp-nanos", pa.timestamp("ns"), DAY_MICROS * 1000),
}  # fmt: skip
DELETES = ["equality", "positions", "named positions", "vector"]
by_promotion = pytest.mark.parametrize("name", PROMOTIONS)


@pytest.fixture(scope="module")
def server() -> Iterator[IcebergServer]:
    with iceberg_server() as server:
        yield server


class Promoted:
    """A table with the columns ``id`` and ``c``, whose type was promoted, partitioned by ``transform`` of ``c``."""

    def __init__(self, root: Path, promotion: Promotion, transform: str | None) -> None:
        self.promotion, self.transform = promotion, transform
        made = self.made = HandMade(root, _columns(promotion.old), version=3, **{"next-row-id": 0})
        made.metadata["schemas"].append({"type": "struct", "schema-id": 1, "fields": _columns(promotion.new)})
        made.metadata["current-schema-id"] = 1
        if transform is not None:
            field = {"name": "p", "transform": transform, "source-id": 2, "field-id": 1000}
            made.metadata["partition-specs"] = [{"spec-id": 0, "fields": [field]}]

    def rows(self, ids: list[int], value: Any, place: int, **fields: Any) -> dict[str, Any]:
        """Write a data file in the old (0) or the new (1) type; all of its rows have ``value``."""
        kept = None if value is None else self.promotion.arrow_value(value, place)
        column = pa.array([kept] * len(ids), self.promotion.arrow[place])
        file = self.made.data_file(pa.table({"id": pa.array(ids, pa.int32()), "c": column}), **fields)
        return {**file, "partition": self.partition(value, place)}

    def partition(self, value: Any, place: int) -> dict[str, Any]:
        return {} if self.transform is None else {"p": _transformed(self.transform, self.promotion, value, place)}

    def manifest(self, files: list[dict[str, Any]], place: int, **more: Any) -> dict[str, Any]:
        kind = self.promotion.avro[place]
        if self.transform not in (None, "identity") and not self.transform.startswith("truncate"):
            kind = DATE if self.transform == "day" else "int"
        partition = [] if self.transform is None else [("p", 1000, kind)]
        return self.made.manifest(files, partition=partition, **more)

    def deletes(self, kind: str, data: dict[str, Any], place: int) -> dict[str, Any]:
        """Write a delete of the row with the id 1, the first row of ``data``."""
        fields = {"partition": self.partition(self.promotion.values[0], place)}
        if kind == "equality":
            return self.made.equality_deletes(pa.table({"id": pa.array([1], pa.int32())}), ["id"], **fields)
        if kind == "vector":
            (vector,) = self.made.puffin({data["file_path"]: [0]}, **fields)
            return vector
        if kind == "named positions":
            fields["referenced_data_file"] = data["file_path"]
        return self.made.position_deletes([(data["file_path"], 0)], **fields)

    def table(self, server: IcebergServer, **options: Any) -> ds.SharedTable:
        server.share("t", self.made.metadata)
        return server.table(**options)


def _columns(kind: str) -> list[dict[str, Any]]:
    return [
        {"id": 1, "name": "id", "required": False, "type": "int"},
        {"id": 2, "name": "c", "required": False, "type": kind},
    ]


def _transformed(transform: str, promotion: Promotion, value: Any, place: int) -> Any:
    """Return a partition value by the text of the specification ("Partition Transforms")."""
    if value is None:
        return None
    if transform == "identity":
        return promotion.avro_value(value, place)
    if transform == "day":
        return _days(value)
    if transform == "month":
        return (value.year - 1970) * 12 + value.month - 1
    if transform == "year":
        return value.year - 1970
    if transform == "bucket[16]":
        return (mmh3.hash(struct.pack("<q", promotion.avro_value(value, place))) & 0x7FFFFFFF) % 16
    assert transform == "truncate[10]"
    if isinstance(value, Decimal):
        unscaled = int(value * 100)
        return promotion.avro_value(Decimal(unscaled - unscaled % 10) / 100, place)
    return value - value % 10


def _ids(table: ds.SharedTable, condition: str | None = None) -> list[int]:
    rows = table.scan(filter=condition, columns=["id"]).to_arrow()
    return sorted(rows["id"].to_pylist())


OLDER_DATA, OLDER_DELETES = ORDERS = (0, 1), (1, 0)
CASES = [
    *((name, "identity", kind, places) for name in PROMOTIONS for kind in DELETES for places in ORDERS),
    *((f"date to {kind}", unit, "equality", OLDER_DATA)
      for kind in ("timestamp", "timestamp_ns") for unit in ("day", "month", "year")),
    *((name, "truncate[10]", "positions", OLDER_DATA) for name in PROMOTIONS if "int" in name or "decimal" in name),
    ("int to long", "bucket[16]", "vector", OLDER_DATA),
]  # fmt: skip


@pytest.mark.parametrize(("name", "transform", "kind", "places"), CASES)
def test_deletes_apply_to_equal_partition_values(
    tmp_path: Path, server: IcebergServer, name: str, transform: str, kind: str, places: tuple[int, int]
) -> None:
    promotion = PROMOTIONS[name]
    (first, second), (of_data, of_deletes) = promotion.values, places
    made = Promoted(tmp_path / "t", promotion, transform)
    data, other = made.rows([1, 2, 3], first, of_data), made.rows([11, 12], second, of_data)
    # A manifest may be written again later, in the type of that time.
    data, other = ({**file, "sequence_number": 1} for file in (data, other))
    gone = made.deletes(kind, data, of_deletes)
    later = made.manifest([{**made.rows([1, 21], first, 1), "status": 1}], 1)
    manifests = [made.manifest([{**data, "status": 0}, {**other, "status": 0}], of_data, sequence_number=1),
                 made.manifest([gone], of_deletes, content=1, sequence_number=2)]  # fmt: skip
    made.made.commit([*manifests, {**later, "sequence_number": 3}], first_row_id=0)
    table = made.table(server)

    assert _ids(table) == [1, 2, 3, 11, 12, 21]
    rows = table.to_arrow()
    assert rows.schema.field("c").type == promotion.arrow[1]
    values = dict(zip(rows["id"].to_pylist(), rows["c"].to_pylist(), strict=True))
    assert values[2] == values[21] == first
    assert values[12] == second
    if kind in ("named positions", "vector") and transform == "identity":
        return
    assert _ids(table, f"c = {promotion.literal(first)}") == [1, 2, 3, 21]
    assert _ids(table, f"c = {promotion.literal(second)}") == [11, 12]
    assert _ids(table, f"c <> {promotion.literal(second)} AND c IS NOT NULL") == [1, 2, 3, 21]
    skipped = table.scan(filter=f"c = {promotion.literal(second)}").plan().skipped
    assert skipped.by_partition == 2, skipped


@by_promotion
def test_equality_keys_are_compared_as_values(tmp_path: Path, server: IcebergServer, name: str) -> None:
    promotion = PROMOTIONS[name]
    first, second = promotion.values
    made = Promoted(tmp_path / "t", promotion, None)
    data = [made.rows([1, 2], first, 0), made.rows([3], second, 0), made.rows([4], first, 1), made.rows([5], second, 1)]
    data.append(made.rows([6], None, 0))
    for place, value in ((1, first), (0, second)):
        key = pa.table({"c": pa.array([promotion.arrow_value(value, place)], promotion.arrow[place])})
        bound = promotion.bound(value, place)
        gone = made.made.equality_deletes(key, ["c"], lower_bounds={2: bound}, upper_bounds={2: bound})
        bounds = [
            (file, promotion.bound(first if number in (0, 2) else second, number // 2))
            for number, file in enumerate(data[:4])
        ]
        files = [
            {**file, "lower_bounds": {2: one}, "upper_bounds": {2: one}, "null_value_counts": {2: 0}}
            for file, one in bounds
        ]
        manifests = [made.manifest([*files, data[4]], 1), made.manifest([gone], place, content=1, sequence_number=9)]
        made.made.commit(manifests, first_row_id=0)
        assert _ids(made.table(server)) == ([3, 5, 6] if value == first else [1, 2, 4, 6])
        # A delete whose bounds exclude the file is not compared with it.
        plan = made.table(server).scan().plan()
        assert sum(bool(task.equality) for task in plan.tasks) == (3 if name != "float to double" else 5)


@by_promotion
def test_bounds_in_the_older_type_skip_files(tmp_path: Path, server: IcebergServer, name: str) -> None:
    promotion = PROMOTIONS[name]
    made = Promoted(tmp_path / "t", promotion, None)
    files = []
    for number, (value, place) in enumerate((value, place) for place in (0, 1) for value in promotion.values):
        bound = promotion.bound(value, place)
        file = made.rows([number], value, place)
        files.append({**file, "lower_bounds": {2: bound}, "upper_bounds": {2: bound}, "null_value_counts": {2: 0}})
    made.made.commit([made.manifest(files, 1)], first_row_id=0)
    table = made.table(server)

    for number, value in enumerate(promotion.values):
        condition = f"c = {promotion.literal(value)}"
        assert _ids(table, condition) == [number, number + 2]
        assert table.scan(filter=condition).plan().skipped.by_statistics == 2


@by_promotion
def test_summaries_in_the_older_type_skip_manifests(tmp_path: Path, server: IcebergServer, name: str) -> None:
    promotion = PROMOTIONS[name]
    first, second = promotion.values
    made = Promoted(tmp_path / "t", promotion, "identity")
    manifests = []
    for number, (value, place) in enumerate((value, place) for place in (0, 1) for value in promotion.values):
        bound = promotion.bound(value, place)
        summary = {"contains_null": False, "contains_nan": False, "lower_bound": bound, "upper_bound": bound}
        manifests.append(made.manifest([made.rows([number], value, place)], place, partitions=[summary]))
    made.made.commit(manifests, first_row_id=0)
    table = made.table(server)

    assert _ids(table, f"c = {promotion.literal(first)}") == [0, 2]
    assert _ids(table, f"c = {promotion.literal(second)}") == [1, 3]
    for one in manifests[::2]:
        Path(one["manifest_path"].removeprefix("file://")).unlink()
    assert _ids(table, f"c = {promotion.literal(second)}") == [1, 3]


@by_promotion
def test_initial_default_in_the_older_form_is_promoted(tmp_path: Path, server: IcebergServer, name: str) -> None:
    promotion = PROMOTIONS[name]
    value = promotion.values[0]
    default = promotion.arrow_value(value, 0)
    default = default if isinstance(default, (int, float)) else str(default)
    made = Promoted(tmp_path / "t", promotion, None)
    made.made.metadata["schemas"][1]["fields"][1]["initial-default"] = default
    older = made.made.data_file(pa.table({"id": pa.array([1, 2], pa.int32())}))
    made.made.commit([made.manifest([older], 0)], first_row_id=0)
    table = made.table(server)

    assert table.to_arrow()["c"].to_pylist() == [value, value]
    assert _ids(table, f"c = {promotion.literal(value)}") == [1, 2]


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ns"])
def test_buckets_of_dates_are_searched_for_timestamps(tmp_path: Path, server: IcebergServer, kind: str) -> None:
    # Engines must not promote the type, because the hash changes. If one did, older files have the buckets of dates.
    promotion = PROMOTIONS[f"date to {kind}"]
    made = Promoted(tmp_path / "t", promotion, "bucket[16]")
    files = []
    for place in (0, 1):
        for number, value in enumerate(promotion.values):
            file = made.rows([number + 10 * place], value, place)
            hashed = struct.pack("<q", _days(value) * (DAY_MICROS if place else 1))
            files.append({**file, "partition": {"p": (mmh3.hash(hashed) & 0x7FFFFFFF) % 16}})
    made.made.commit([made.manifest(files, 1)], first_row_id=0)
    table = made.table(server)

    for number, value in enumerate(promotion.values):
        assert _ids(table, f"c = {promotion.literal(value)}") == [number, number + 10]


# A type, its Avro type, its Arrow type, a value, and the partition value of it.
KNOWN: list[tuple[str, Any, pa.DataType, Any, Any]] = [
    ("int", "int", pa.int32(), 7, 7),
    ("string", "string", pa.string(), "x", "x"),
    ("decimal(9,2)", _decimal_type(9, 4), pa.decimal128(9, 2), Decimal("1.50"), (150).to_bytes(4, "big")),
    ("date", DATE, pa.date32(), datetime.date(2024, 2, 29), 19_782),
    ("double", "double", pa.float64(), 1.5, 1.5),
    (
        "timestamp",
        _time_type("timestamp-micros"),
        pa.timestamp("us"),
        datetime.datetime(2024, 2, 29, 1),
        19_782 * DAY_MICROS + 3_600_000_000,
    ),
]


@pytest.mark.parametrize(("kind", "stored", "arrow", "value", "raw"), KNOWN)
def test_unknown_column_may_become_any_type(
    tmp_path: Path, server: IcebergServer, kind: str, stored: Any, arrow: pa.DataType, value: Any, raw: Any
) -> None:
    made = HandMade(tmp_path / "t", _columns("unknown"), version=3, **{"next-row-id": 0})
    field = {"name": "p", "transform": "identity", "source-id": 2, "field-id": 1000}
    made.metadata["partition-specs"] = [{"spec-id": 0, "fields": [field]}]
    # Files of the time when the type was unknown do not have the column.
    older = {**made.data_file(pa.table({"id": pa.array([1, 2], pa.int32())})), "partition": {"p": None}}
    gone = made.equality_deletes(pa.table({"id": pa.array([1], pa.int32())}), ["id"], partition={"p": None})
    gone["equality_ids"] = [1, 2]
    newer = made.data_file(pa.table({"id": pa.array([3], pa.int32()), "c": pa.array([value], arrow)}))
    made.metadata["schemas"].append({"type": "struct", "schema-id": 1, "fields": _columns(kind)})
    made.metadata["current-schema-id"] = 1
    null = [("p", 1000, "null")]
    manifests = [
        made.manifest([older], partition=null, sequence_number=1),
        made.manifest([gone], content=1, partition=null, sequence_number=2),
        made.manifest([{**newer, "partition": {"p": raw}}], partition=[("p", 1000, stored)], sequence_number=3),
    ]
    made.commit(manifests, first_row_id=0)
    server.share("t", made.metadata)
    table = server.table()

    rows = sorted(table.to_arrow().to_pylist(), key=lambda row: int(row["id"]))
    assert rows == [{"id": 2, "c": None}, {"id": 3, "c": value}]
    assert _ids(table, "c IS NULL") == [2]
    assert _ids(table, "c IS NOT NULL") == [3]


@pytest.mark.parametrize("days", [106_752, -106_752, 2_932_896])
def test_date_outside_the_range_of_nanoseconds_is_an_error(tmp_path: Path, server: IcebergServer, days: int) -> None:
    promotion = PROMOTIONS["date to timestamp_ns"]
    made = Promoted(tmp_path / "t", promotion, None)
    column = pa.array([0, days], pa.int32()).view(pa.date32())
    rows = pa.table({"id": pa.array([1, 2], pa.int32()), "c": column})
    made.made.commit([made.manifest([made.made.data_file(rows)], 0)], first_row_id=0)

    with pytest.raises(ds.DataError):
        made.table(server).to_arrow()
    assert _ids(made.table(server)) == [1, 2]


@pytest.mark.parametrize("kind", ["float", "double"])
def test_zeros_and_nan_of_both_types_are_partitions_of_their_own(
    tmp_path: Path, server: IcebergServer, kind: str
) -> None:
    promotion = PROMOTIONS["float to double"]
    made = Promoted(tmp_path / "t", promotion, "identity")
    nan = struct.unpack("<f", b"\x01\x00\xc0\x7f")[0]
    values = [0.0, -0.0, nan, float("inf")]
    data = [made.rows([number, number + 10], value, 0) for number, value in enumerate(values)]
    gone = []
    for number, value in enumerate([0.0, -0.0, float("nan"), float("inf")]):
        if number != 1:
            key = pa.table({"id": pa.array(range(4), pa.int32())})
            gone.append(made.made.equality_deletes(key, ["id"], partition={"p": value}))
    place = int(kind == "double")
    made.made.commit(
        [made.manifest(data, 0, sequence_number=1), made.manifest(gone, place, content=1, sequence_number=2)],
        first_row_id=0,
    )

    # No delete is in the partition of -0.0.
    assert _ids(made.table(server)) == [1, 10, 11, 12, 13]


def test_deletes_of_a_dropped_partition_column_apply(tmp_path: Path, server: IcebergServer) -> None:
    promotion = PROMOTIONS["decimal(9,2) to decimal(18,2)"]
    made = Promoted(tmp_path / "t", promotion, "identity")
    schemas = made.made.metadata["schemas"]
    data, other = (
        made.rows([number, number + 1], value, 0) for number, value in zip((1, 3), promotion.values, strict=True)
    )
    gone = made.deletes("equality", data, 1)
    manifests = [
        made.manifest([data, other], 0, sequence_number=1),
        made.manifest([gone], 1, content=1, sequence_number=2),
    ]
    made.made.commit(manifests, first_row_id=0)
    # The column is in no schema any more, as after the removal of unused schemas.
    schemas[:] = [{"type": "struct", "schema-id": 1, "fields": _columns("int")[:1]}]

    assert _ids(made.table(server)) == [2, 3, 4]
