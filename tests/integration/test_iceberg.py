"""Shared Iceberg tables written by pyiceberg have the rows that pyiceberg reads."""

from __future__ import annotations

import datetime
import pickle
import random
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pytest
from pyiceberg import types as theirs
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)

import delta_sharing_client as ds
from delta_sharing_client.errors import (
    DataError,
    DeltaSharingError,
    NotFoundError,
    ProtocolError,
    UnsupportedFeatureError,
    UsageError,
)
from delta_sharing_client.iceberg.catalog import Catalog
from tests.effort import sample
from tests.iceberg.hand_made import HandMade
from tests.iceberg.server import SCHEMA, SHARE, IcebergServer, iceberg_server
from tests.iceberg.warehouse import Warehouse, rows_of

COLUMNS = [
    {"id": 1, "name": "a", "required": False, "type": "long"},
    {"id": 2, "name": "b", "required": False, "type": "string"},
]
ROWS = pa.table({"a": pa.array([1, 2, 3, 4], pa.int64()), "b": ["x", "y", None, "z"]})


@pytest.fixture(scope="module")
def shared_server() -> Iterator[IcebergServer]:
    with iceberg_server() as server:
        yield server


@pytest.fixture(scope="module")
def warehouse(shared_server: IcebergServer, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    return Warehouse(tmp_path_factory.mktemp("warehouse"), shared_server)


@pytest.fixture
def server() -> Iterator[IcebergServer]:
    with iceberg_server() as server:
        yield server


@pytest.fixture
def made(tmp_path: Path) -> HandMade:
    return HandMade(tmp_path / "t", COLUMNS)


def _committed(made: HandMade, *rows: pa.Table) -> list[dict[str, Any]]:
    files = [made.data_file(one) for one in rows]
    made.commit([made.manifest(files)])
    return files


# --- tables of pyiceberg ---

_START = datetime.datetime(2023, 12, 30, 22, 15)
TYPES = Schema(
    theirs.NestedField(1, "id", theirs.LongType(), required=True),
    theirs.NestedField(2, "flag", theirs.BooleanType()),
    theirs.NestedField(3, "i", theirs.IntegerType()),
    theirs.NestedField(4, "f", theirs.FloatType()),
    theirs.NestedField(5, "d", theirs.DoubleType()),
    theirs.NestedField(6, "price", theirs.DecimalType(20, 3)),
    theirs.NestedField(7, "day", theirs.DateType()),
    theirs.NestedField(8, "at", theirs.TimestampType()),
    theirs.NestedField(9, "point", theirs.TimestamptzType()),
    theirs.NestedField(10, "name", theirs.StringType()),
    theirs.NestedField(11, "data", theirs.BinaryType()),
    theirs.NestedField(12, "code", theirs.FixedType(4)),
    theirs.NestedField(13, "s", theirs.StructType(
        theirs.NestedField(14, "x", theirs.LongType()), theirs.NestedField(15, "y", theirs.StringType()),
    )),
    theirs.NestedField(16, "l", theirs.ListType(17, theirs.IntegerType(), False)),
    theirs.NestedField(18, "m", theirs.MapType(19, theirs.StringType(), 20, theirs.DoubleType(), False)),
    theirs.NestedField(21, "clock", theirs.TimeType()),
    theirs.NestedField(22, "key", theirs.UUIDType()),
)  # fmt: skip


CLOCKS = [datetime.time(), datetime.time(8), datetime.time(12, 30, 0, 5), datetime.time.max]
KEYS = [uuid.UUID(int=(number % 2) << 127 | 7 << 70 | number) for number in range(5)]


def _rows(schema: pa.Schema, count: int, seed: int) -> pa.Table:
    chance = random.Random(seed)

    def some(value: Any) -> Any:
        return None if chance.random() < 0.15 else value

    listed = []
    for number in range(count):
        moment = _START + datetime.timedelta(minutes=37 * number)
        listed.append(
            {
                "id": number,
                "flag": some(chance.random() < 0.5),
                "i": some(chance.randrange(-100, 100)),
                "f": some(chance.choice([0.5, -0.0, 0.0, float("nan"), float("inf"), 1e30])),
                "d": some(chance.uniform(-5, 5)),
                "price": some(Decimal(chance.randrange(-(10**9), 10**9)).scaleb(-3)),
                "day": some(moment.date()),
                "at": some(moment),
                "point": some(moment.replace(tzinfo=datetime.timezone.utc)),
                "name": some(
                    chance.choice(["", "a", "äöü", "A long text that writers of statistics cut somewhere", "z"])
                ),
                "data": some(bytes(chance.randrange(256) for _ in range(chance.randrange(20)))),
                "code": some(bytes(chance.randrange(256) for _ in range(4))),
                "s": some({"x": some(number), "y": some("t")}),
                "l": some([some(number), 5]),
                "m": some({"k": some(0.25)}),
                "clock": some(chance.choice(CLOCKS)),
                "key": some(chance.choice(KEYS).bytes),
            }
        )
    return pa.Table.from_pylist(listed, schema=schema)


ROWS_OF_A_COMMIT = 60
SPECS = {
    "plain": [],
    "identity": [("day", 7, IdentityTransform()), ("flag", 2, IdentityTransform())],
    "days": [("at_day", 8, DayTransform()), ("id_bucket", 1, BucketTransform(3))],
    "times": [("day_month", 7, MonthTransform()), ("point_hour", 9, HourTransform()), ("at_year", 8, YearTransform())],
    "truncated": [("name_start", 10, TruncateTransform(3)), ("price_start", 6, TruncateTransform(200_000_000))],
    # pyiceberg supports no identity partitions by UUIDs or times.
    "keys": [("key_bucket", 22, BucketTransform(4))],
    "named": [("name", 10, IdentityTransform()), ("d_void", 5, VoidTransform())],
}
FILTERS = [
    "id = 7", "id IN (1, 5, 250)", "id > 30 AND i < 0", "i IS NULL", "i IS NOT NULL AND flag", "NOT flag", "f > 1",
    "f = 0", "d BETWEEN -1 AND 1", "price > 1000", "price = 12.345", "day = '2023-12-31'", "day > '2023-12-31'",
    "at >= '2024-01-01' AND at < '2024-01-02'", "point < '2023-12-31T12:00:00Z'", "name = ''",
    "name = 'a' OR name = 'z'",
    "name LIKE 'A long%'", "name > 'b'", "data IS NULL", "data > X'80'", "code <= X'10000000'", "s.x > 45",
    "s.y = 't' AND s.x IS NULL", "year(day) = 2024", "month(at) = 12", "i + 1 = 3", "id = 3 AND i = 1000",
    "f IS NULL OR f < 0",
    "clock = '08:00'", "clock > TIME '08:00' AND clock < '23:59:59.999999'", "clock IN ('00:00', '1:00')",
    f"key = '{KEYS[1]}'", f"key > '{KEYS[2]}'", f"key IN ('{KEYS[4]}', 'x')", "key LIKE '8%' OR clock IS NULL",
    f"key < '{KEYS[1]}' AND clock <> '08:00:00'",
    "id % 10 = 3", "NOT (name = 'a')", "i <> 5", "flag AND id < 20", "price IS NULL AND day < '2024-01-01'",
]  # fmt: skip


@pytest.fixture(scope="module")
def typed(warehouse: Warehouse) -> Warehouse:
    for name, fields in SPECS.items():
        spec = PartitionSpec(
            *(PartitionField(source, 1000 + at, how, part) for at, (part, source, how) in enumerate(fields))
        )
        table = warehouse.create(name, TYPES, partition_spec=spec)
        for seed in range(3):
            table.append(_rows(table.schema().as_arrow(), ROWS_OF_A_COMMIT, seed))
        warehouse.share(name)
    return warehouse


@pytest.mark.parametrize("name", SPECS)
def test_rows_of_every_type_equal_those_of_pyiceberg(typed: Warehouse, name: str) -> None:
    rows = typed.server.table(name).scan().to_arrow()
    expected = typed.catalog.load_table(f"n.{name}").scan().to_arrow().to_pylist()

    assert rows.num_rows == 3 * ROWS_OF_A_COMMIT
    assert rows_of(rows) == sorted(repr(_with_texts(row)) for row in expected)


def _with_texts(value: Any) -> Any:
    """Return a row of pyiceberg with UUIDs as strings."""
    if isinstance(value, dict):
        return {name: _with_texts(item) for name, item in value.items()}
    if isinstance(value, list):
        return list(map(_with_texts, value))
    return str(value) if isinstance(value, uuid.UUID) else value


@pytest.mark.parametrize("name", SPECS)
def test_filters_skip_files_and_return_every_matching_row(typed: Warehouse, name: str) -> None:
    table = typed.server.table(name)
    whole = table.scan().to_arrow()
    rows = list(map(repr, whole.to_pylist()))
    skipped = 0

    # The table ``times`` has one file per row, so only a few filters are tried on it.
    for text in sample(FILTERS, 12 if name == "times" else 3, list(SPECS).index(name) % 3):
        scan = table.scan(filter=text)
        expected = [row for row, kept in zip(rows, _mask(whole, text), strict=True) if kept]
        skipped += scan.plan().skipped.files
        assert rows_of(scan.to_arrow()) == sorted(expected), text

    assert skipped > (0 if name == "plain" else 5)


def _mask(table: pa.Table, text: str) -> list[bool]:
    """Evaluate a filter on rows in memory."""
    from delta_sharing_client.predicates.arrow import mask
    from delta_sharing_client.predicates.binding import bind
    from delta_sharing_client.predicates.parse import parse_filter

    predicate = parse_filter(text)
    assert predicate is not None
    bound = bind(predicate, table.schema)
    return [value is True for batch in table.to_batches() for value in mask(bound, batch).to_pylist()]


def test_partition_columns_are_read_without_a_data_file(typed: Warehouse) -> None:
    scan = typed.server.table("identity").scan(columns=["day", "flag"])

    rows = scan.to_arrow()

    assert scan.report is not None
    assert scan.report.requests == 0
    assert rows_of(rows) == rows_of(typed.catalog.load_table("n.identity").scan().to_arrow().select(["day", "flag"]))


def test_iceberg_count_is_exact_with_and_without_a_filter(typed: Warehouse) -> None:
    assert typed.server.table("days").scan().count() == 3 * ROWS_OF_A_COMMIT
    assert typed.server.table("days").scan(filter="id = 3").count() == 3


def test_limit_on_an_iceberg_table_is_exact(typed: Warehouse) -> None:
    assert typed.server.table("days").scan(limit=5).to_arrow().num_rows == 5


def test_every_output_has_all_rows_of_an_iceberg_table(typed: Warehouse) -> None:
    table = typed.server.table("days")

    assert len(table.scan(columns=["id", "name"]).to_pandas()) == 3 * ROWS_OF_A_COMMIT
    assert table.scan(columns=["id"]).to_polars(lazy=True).collect().height == 3 * ROWS_OF_A_COMMIT
    assert pa.table(table.scan(columns=["id"])).num_rows == 3 * ROWS_OF_A_COMMIT
    parts = pickle.loads(pickle.dumps(table.scan(columns=["id"]).partitions(3)))
    assert sum(batch.num_rows for part in parts for batch in part.read()) == 3 * ROWS_OF_A_COMMIT
    assert list(table.head(3, columns=["id"]).columns) == ["id"]


def test_duckdb_reads_an_attached_table(typed: Warehouse) -> None:
    import duckdb

    connection = duckdb.connect()
    ds.attach(connection, typed.server.profile)

    (count,) = connection.execute("SELECT count(*) FROM ice.n.days WHERE id < 10").fetchone() or (None,)

    assert count == 30


def test_evolved_schema_is_read_by_field_ids(warehouse: Warehouse) -> None:
    schema = Schema(
        theirs.NestedField(1, "a", theirs.IntegerType()),
        theirs.NestedField(2, "b", theirs.StringType()),
        theirs.NestedField(3, "s", theirs.StructType(theirs.NestedField(4, "x", theirs.FloatType()))),
        theirs.NestedField(5, "gone", theirs.LongType()),
    )
    table = warehouse.create("evolved", schema)
    first = {"a": [1, None], "b": ["x", "y"], "s": [{"x": 0.5}, None], "gone": [7, 8]}
    table.append(pa.table(first, schema=table.schema().as_arrow()))
    with table.update_schema() as change:
        change.update_column("a", theirs.LongType())
        change.update_column(("s", "x"), theirs.DoubleType())
        change.rename_column("b", "title")
        change.rename_column(("s", "x"), "ratio")
        change.delete_column("gone")
        change.add_column("new", theirs.StringType())
        change.add_column(("s", "z"), theirs.LongType())
        change.move_first("b")
    table = warehouse.catalog.load_table("n.evolved")
    with table.update_schema() as change:
        change.add_column("gone", theirs.DateType())
    second = {
        "title": ["t"],
        "a": [2**40],
        "s": [{"ratio": 1.5, "z": 9}],
        "new": ["n"],
        "gone": [datetime.date(2024, 1, 1)],
    }
    table.append(pa.Table.from_pydict(second, schema=table.schema().as_arrow()))
    warehouse.share("evolved")
    shared_table = warehouse.server.table("evolved")

    assert shared_table.scan().to_arrow().column_names == ["title", "a", "s", "new", "gone"]
    expected = warehouse.catalog.load_table("n.evolved").scan().to_arrow()
    assert rows_of(shared_table.scan().to_arrow()) == rows_of(expected)
    assert shared_table.scan(filter="title = 'x' AND new IS NULL").to_arrow()["a"].to_pylist() == [1]
    old, new = shared_table.history()
    assert shared_table.scan(version=old.version).to_arrow().column_names == ["a", "b", "s", "gone"]
    assert shared_table.scan(version=new.version).to_arrow().num_rows == 3


def test_partition_evolution_reads_every_file(warehouse: Warehouse) -> None:
    schema = Schema(theirs.NestedField(1, "a", theirs.LongType()), theirs.NestedField(2, "b", theirs.StringType()))
    table = warehouse.create("respecced", schema)
    rows = pa.table({"a": pa.array(range(20), pa.int64()), "b": ["x", "y"] * 10})
    table.append(rows)
    with table.update_spec() as change:
        change.add_identity("b")
    table.append(rows)
    with table.update_spec() as change:
        change.remove_field("b")
        change.add_field("a", BucketTransform(4), "a_bucket")
    table.append(rows)
    warehouse.share("respecced")
    shared_table = warehouse.server.table("respecced")

    assert rows_of(shared_table.scan().to_arrow()) == rows_of(pa.concat_tables([rows] * 3))
    assert shared_table.scan(filter="b = 'x' AND a = 4").to_arrow().num_rows == 3
    assert shared_table.scan(filter="a = 4").plan().skipped.by_partition == 3


def test_time_travel_by_snapshot_id_tag_branch_and_time(warehouse: Warehouse) -> None:
    schema = Schema(theirs.NestedField(1, "a", theirs.LongType()))
    table = warehouse.create("traveled", schema)
    table.append(pa.table({"a": pa.array([1], pa.int64())}))
    first = table.current_snapshot().snapshot_id
    table.manage_snapshots().create_tag(first, "start").create_branch(first, "side").commit()
    table.append(pa.table({"a": pa.array([2], pa.int64())}))
    warehouse.share("traveled")
    shared_table = warehouse.server.table("traveled")

    history = shared_table.history()
    assert [one.operation for one in history] == ["append", "append"]
    assert shared_table.version() == history[1].version
    assert shared_table.scan().at_version("start").to_arrow()["a"].to_pylist() == [1]
    assert shared_table.scan(version="side").count() == 1
    assert shared_table.scan(version=first).count() == 1
    assert shared_table.scan(timestamp=history[0].timestamp).count() == 1
    assert shared_table.scan(timestamp=history[1].timestamp).count() == 2
    assert shared_table.metadata(version="start").version == first
    assert shared_table.version(starting_timestamp=history[0].timestamp) == first
    with pytest.raises(UsageError, match="must be the id of a snapshot"):
        shared_table.scan(version="nowhere").to_arrow()


def test_rows_deleted_by_pyiceberg_are_not_returned(warehouse: Warehouse) -> None:
    schema = Schema(theirs.NestedField(1, "a", theirs.LongType()))
    table = warehouse.create("deleted", schema)
    table.append(pa.table({"a": pa.array(range(100), pa.int64())}))
    table.delete("a >= 40 and a < 60")
    warehouse.share("deleted")

    assert sorted(warehouse.server.table("deleted").scan().to_arrow()["a"].to_pylist()) == [
        *range(40),
        *range(60, 100),
    ]


def test_table_without_a_snapshot_has_its_schema_and_no_rows(warehouse: Warehouse) -> None:
    warehouse.create("nothing", Schema(theirs.NestedField(1, "a", theirs.LongType())))
    warehouse.share("nothing")
    shared_table = warehouse.server.table("nothing")

    assert shared_table.scan().to_arrow().schema.names == ["a"]
    assert shared_table.scan().count() == 0
    assert (shared_table.version(), shared_table.history()) == (-1, [])
    assert shared_table.scan(version=shared_table.version()).to_arrow().schema.names == ["a"]
    assert shared_table.metadata(version=-1).version == -1
    warehouse.catalog.load_table("n.nothing").append(pa.table({"a": pa.array([1], pa.int64())}))
    warehouse.share("nothing")
    # Version -1 is the table before its first commit.
    assert (shared_table.scan(version=-1).count(), shared_table.scan().count()) == (0, 1)


def test_table_metadata_describes_an_iceberg_table(typed: Warehouse) -> None:
    details = typed.server.table("named").metadata()
    theirs_ = typed.catalog.load_table("n.named")

    assert details.id == str(theirs_.metadata.table_uuid)
    assert details.partition_columns == ("name",)
    assert details.configuration["format-version"] == "2"
    assert details.schema.names == [field.name for field in TYPES.fields]
    assert not details.schema.field("id").nullable
    assert details.num_files == len(list(theirs_.scan().plan_files()))
    assert details.size == sum(task.file.file_size_in_bytes for task in theirs_.scan().plan_files())
    assert details.location == theirs_.location()
    assert typed.server.table("named").schema.names == details.schema.names


# --- deletes ---


def test_position_deletes_and_deletion_vectors_remove_rows(made: HandMade, server: IcebergServer) -> None:
    one, two = made.data_file(ROWS), made.data_file(ROWS)
    data = made.manifest([one, two])
    made.commit([data])
    positions = made.position_deletes([(one["file_path"], 1), (one["file_path"], 3), ("file:///elsewhere", 0)])
    vectors = made.puffin({two["file_path"]: [0]})
    made.commit([data, made.manifest([positions, *vectors], content=1)])
    server.share("t", made.metadata)
    table = server.table()

    assert table.scan().to_arrow()["a"].to_pylist() == [1, 3, 2, 3, 4]
    assert table.scan(filter="a <= 2").to_arrow()["a"].to_pylist() == [1, 2]
    assert table.scan().count() == 5
    assert table.scan(limit=3).to_arrow()["a"].to_pylist() == [1, 3, 2]
    assert table.scan(version=1001).count() == 8


def test_vectors_of_one_puffin_file_are_fetched_together(made: HandMade, server: IcebergServer) -> None:
    files = [made.data_file(ROWS) for _ in range(5)]
    vectors = made.puffin({file["file_path"]: [at % 4] for at, file in enumerate(files)})
    made.commit([made.manifest(files), made.manifest(vectors, content=1)])
    server.share("t", made.metadata)
    scan = server.table().scan()

    # ``to_pandas()`` plans all files before it reads one.
    assert scan.to_pandas()["a"].tolist() == [2, 3, 4, 1, 3, 4, 1, 2, 4, 1, 2, 3, 2, 3, 4]
    assert scan.report is not None
    assert scan.report.requests == 6


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"record_count": 3}, "must hold 3 row positions"),
        ({"content_offset": 5}, "size prefix|CRC-32"),
        ({"content_size_in_bytes": 20}, "size prefix"),
    ],
)
def test_contradictory_deletion_vectors_are_refused(
    made: HandMade, server: IcebergServer, change: dict[str, int], reason: str
) -> None:
    (file,) = (made.data_file(ROWS),)
    (vector,) = made.puffin({file["file_path"]: [0]})
    made.commit([made.manifest([file]), made.manifest([{**vector, **change}], content=1)])
    server.share("t", made.metadata)

    with pytest.raises(DataError, match=reason):
        server.table().scan().to_arrow()


def test_deletion_vector_beyond_the_rows_is_refused(made: HandMade, server: IcebergServer) -> None:
    file = made.data_file(ROWS)
    (vector,) = made.puffin({file["file_path"]: [17]})
    made.commit([made.manifest([file]), made.manifest([vector], content=1)])
    server.share("t", made.metadata)

    with pytest.raises(DataError, match="contains row 17, counted from 0, but the file has only 4 rows"):
        server.table().scan().to_arrow()


# --- detection of the format, and refusals ---


@pytest.mark.parametrize(("formats", "status"), [("iceberg", 500), (None, 501), (None, 404), ("ICEBERG", 404)])
def test_iceberg_format_is_detected(made: HandMade, server: IcebergServer, formats: str | None, status: int) -> None:
    _committed(made, ROWS)
    server.share("t", made.metadata)
    server.formats, server.delta_status = formats, status
    client = ds.SharingClient(server.profile, ds.ReadOptions(max_attempts=1))

    assert client.table("ice.n.t").scan().count() == 4
    assert client.table("ice.n.t").version() == 1001
    assert client.table("ice.n.t").metadata().num_files is None
    assert ds.load_as_arrow(f"{_profile_file(server, made.root)}#ice.n.t").num_rows == 4


def _profile_file(server: IcebergServer, folder: Path) -> Path:
    import json

    path = folder / "p.share"
    path.write_text(json.dumps(server.profile))
    return path


def test_table_in_both_formats_is_read_as_delta(made: HandMade, server: IcebergServer) -> None:
    _committed(made, ROWS)
    server.share("t", made.metadata)
    server.formats, server.delta_status = "delta, iceberg", 404
    client = ds.SharingClient(server.profile)

    scan = client.table("ice.n.t").scan()
    for read in (scan.to_arrow, scan.plan, lambda: list(scan.to_batches()), lambda: scan.schema):
        with pytest.raises(NotFoundError):
            read()
    assert client.table("ice.n.t", "iceberg").scan().count() == 4
    of_branch = client.table("ice.n.t").scan(version="main")
    assert of_branch.count() == of_branch.to_arrow().num_rows == 4
    assert of_branch.schema.names == ["a", "b"]
    assert of_branch.plan().output_schema == of_branch.schema


def test_iceberg_table_cannot_be_read_as_delta(made: HandMade, server: IcebergServer) -> None:
    _committed(made, ROWS)
    server.share("t", made.metadata)
    client = ds.SharingClient(server.profile)

    with pytest.raises(DeltaSharingError, match="read it through the Iceberg catalog"):
        client.table("ice.n.t", format="delta").scan().to_arrow()
    with pytest.raises(UsageError, match="only Iceberg tables have branches and tags"):
        client.table("ice.n.t", format="delta").scan(version="main").to_arrow()


def test_table_in_neither_format_is_not_found(server: IcebergServer) -> None:
    server.delta_status = 404
    client = ds.SharingClient(server.profile)

    with pytest.raises(NotFoundError):
        client.table("ice.n.t").scan().to_arrow()
    with pytest.raises(NotFoundError, match="NoSuchTableException"):
        client.table("ice.n.t", format="iceberg").scan().to_arrow()


def test_failure_of_the_catalog_is_reported_with_a_missing_table(server: IcebergServer) -> None:
    server.faults = [(200, {"overrides": {}}), (403, {"error": {"type": "ForbiddenException", "message": "not yours"}})]
    table = ds.SharingClient(server.profile).table("ice.n.t")
    with pytest.raises(ds.RequestError, match=r"501.* Whether it is an Iceberg table is not known: .*403.*not yours"):
        table.to_arrow()


def test_missing_iceberg_endpoint_is_reported(server: IcebergServer) -> None:
    profile = {name: value for name, value in server.profile.items() if name != "icebergEndpoint"}

    with pytest.raises(UsageError, match="the profile has no 'icebergEndpoint'"):
        ds.SharingClient(profile).table("ice.n.t", format="iceberg").scan().to_arrow()


def test_options_of_a_scan_keep_the_format_of_its_table(made: HandMade, server: IcebergServer) -> None:
    _committed(made, ROWS)
    server.share("t", made.metadata)

    assert server.table().scan(options=ds.ReadOptions(batch_rows=1)).to_arrow().num_rows == 4
    with pytest.raises(UsageError, match="'table_format' must be one of 'auto', 'delta', 'iceberg', found 'hudi'"):
        ds.SharingClient(server.profile).table("ice.n.t", format="hudi")


def test_listings_include_tables_of_the_catalog(made: HandMade, server: IcebergServer) -> None:
    for name in ("both", "t1", "t2", "t3"):
        server.share(name, made.metadata)
    server.listed, server.page_size = ["delta", "both"], 2
    client = ds.SharingClient(server.profile)

    assert [str(table) for table in client.list_tables("ice.n")] == [
        "ice.n.delta", "ice.n.both", "ice.n.t1", "ice.n.t2", "ice.n.t3",
    ]  # fmt: skip
    assert len(client.list_all_tables()) == 5
    assert [schema.name for schema in client.list_schemas("ice")] == list(client["ice"]) == ["n", "deep.er"]
    server.schemas, server.delta_status = ["other"], 404
    assert [schema.name for schema in client.list_schemas("ice")] == ["other", "n", "deep.er"]
    with pytest.raises(NotFoundError):
        client.list_schemas("none")
    assert client.list_tables("ice.n")[2].formats == ("iceberg",)


def test_unsupported_operations_on_iceberg_tables_are_refused(
    made: HandMade, server: IcebergServer, tmp_path: Path
) -> None:
    _committed(made, ROWS)
    server.share("t", made.metadata)
    table = server.table()

    with pytest.raises(UnsupportedFeatureError, match="has no change data feed"):
        table.changes(0).to_arrow()
    with pytest.raises(UnsupportedFeatureError, match="has no change data feed"):
        table.changes(0).schema  # noqa: B018 - it asks the server
    with pytest.raises(UnsupportedFeatureError, match="has no local copy"):
        table.replicate(tmp_path / "copy")
    with pytest.raises(UnsupportedFeatureError, match="has no change data feed"):
        next(iter(table.follow(tmp_path / "cursor")))
    with pytest.raises(UnsupportedFeatureError, match="has no order of versions"):
        table.history(1)
    with pytest.raises(UnsupportedFeatureError, match=r"row lineage needs version 3\. Leave row_lineage out"):
        table.scan(row_lineage=True).to_arrow()
    with pytest.raises(UnsupportedFeatureError, match=r"row lineage needs version 3\. Leave row_lineage out"):
        table.scan(row_lineage=True).schema  # noqa: B018 - it asks the server


def test_catalog_requests_are_retried_and_errors_reported(made: HandMade, server: IcebergServer) -> None:
    _committed(made, ROWS)
    server.share("t", made.metadata)
    server.faults = [(503, {"error": {"message": "busy", "type": "ServiceUnavailableException", "code": 503}})]
    assert server.table().scan().count() == 4

    server.faults = [(400, {"error": {"message": "no good", "type": "BadRequestException", "code": 400}})]
    with pytest.raises(DeltaSharingError, match=r"\(400, BadRequestException\): no good"):
        server.table().scan().count()
    for prefix in ("../../sharing", "a/%2e%2e/b", "a%ff"):
        server.faults = [(200, {"overrides": {"prefix": prefix}})]
        with pytest.raises(ProtocolError, match=r"must be a path without"):
            server.table().scan().count()
    for broken in (b"<html>", b'{"overrides": 5}'):
        server.faults = [(200, broken)]
        with pytest.raises(ProtocolError, match="does not have the form of an Iceberg REST catalog"):
            server.table().scan().count()


@pytest.mark.parametrize(
    ("prefix", "path"),
    [
        ("main%7Cwarehouse", "main%7Cwarehouse"),
        ("main|warehouse", "main%7Cwarehouse"),
        ("a%2Fb", "a%2Fb"),
        ("a b/%C3%A4", "a%20b/%C3%A4"),
        ("/ä/100%/", "%C3%A4/100%25"),
        ("a%2520b", "a%2520b"),
        ("", ""),
    ],
)
def test_prefix_is_percent_encoded_once(server: IcebergServer, prefix: str, path: str) -> None:
    missing = {"error": {"message": "no", "type": "NoSuchTableException", "code": 404}}
    server.faults = [(200, {"defaults": {"prefix": prefix}}), (404, missing)]
    server.requests.clear()
    with pytest.raises(NotFoundError):
        server.table().scan().count()

    expected = "/".join(filter(None, ("/iceberg/v1", path, f"namespaces/{SCHEMA}/tables/t")))
    assert [one for one in server.requests if one.startswith("/iceberg") and "/tables/" in one] == [expected]


def _namespaced(server: IcebergServer, namespace: str, separator: str | None = None) -> None:
    """Let the server have its table in one namespace only, whose levels are separated by ``separator``."""
    answer = server.answer

    def answered(path: str, query: dict[str, list[str]]) -> tuple[int, Any]:
        steps = [unquote(step) for step in path.strip("/").split("/")]
        if "namespaces" not in steps or len(steps) <= steps.index("namespaces") + 1:
            status, body = answer(path, query)
            if "config" in steps and separator is not None:
                body["overrides"]["namespace-separator"] = quote(separator)
            return status, body
        place = steps.index("namespaces") + 1
        if steps[place] != namespace:
            return 404, {"error": {"message": "no", "type": "NoSuchTableException", "code": 404}}
        return answer("/".join([*steps[:place], SCHEMA, *steps[place + 1 :]]), query)

    server.answer = answered  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("namespace", "separator"), [("a\x1fb", None), ("a.b", None), ("a.b", "."), ("a/b", "/"), ("a\x1fb", "\x1f")]
)
def test_nested_namespace_is_a_schema_with_dots(made: HandMade, namespace: str, separator: str | None) -> None:
    with iceberg_server() as server:
        _committed(made, ROWS)
        server.share("t", made.metadata)
        _namespaced(server, namespace, separator)
        client = ds.SharingClient(server.profile)

        assert client.table(f"{SHARE}.`a.b`.t", format="iceberg").to_arrow().num_rows == len(ROWS)
        catalog = Catalog(client._rest)
        assert catalog.tables(SHARE, "a.b") == ["t"]
        with pytest.raises(NotFoundError):
            client.table(f"{SHARE}.`a.c`.t", format="iceberg").to_arrow()


def test_catalog_configuration_is_requested_once(made: HandMade, server: IcebergServer) -> None:
    _committed(made, ROWS)
    server.share("t", made.metadata)
    table = server.table()

    for _ in range(3):
        table.scan().count()

    assert sum("/v1/config" in request for request in server.requests) == 1
    loads = [
        headers for request, headers in zip(server.requests, server.headers, strict=True) if "/tables/t" in request
    ]
    assert len(loads) == 3
    assert all(one["X-Iceberg-Access-Delegation"] == "vended-credentials" for one in loads)


@pytest.mark.parametrize(
    "path",
    ["file:///etc/passwd", "file://{root}/../outside.parquet", "/etc/passwd", "s3://other/x.parquet", "{root}2/x"],
)
def test_files_outside_the_location_are_not_read(made: HandMade, server: IcebergServer, path: str) -> None:
    file = made.data_file(ROWS)
    path = path.replace("{root}", str(made.root))
    made.commit([made.manifest([{**file, "file_path": path}])])
    server.share("t", made.metadata)

    with pytest.raises(UnsupportedFeatureError, match="outside of the locations"):
        server.table().scan().to_arrow()


def test_metadata_outside_the_location_is_not_read(made: HandMade, server: IcebergServer) -> None:
    manifest = made.manifest([made.data_file(ROWS)])
    made.commit([{**manifest, "manifest_path": "file:///etc/passwd"}])
    server.share("t", made.metadata)
    with pytest.raises(UnsupportedFeatureError, match="outside of the locations"):
        server.table().scan().to_arrow()

    made.metadata["snapshots"][0]["manifest-list"] = "file:///etc/hostname"
    with pytest.raises(UnsupportedFeatureError, match="outside of the locations"):
        server.table().scan().to_arrow()


def test_local_files_of_another_machine_are_not_read(
    made: HandMade, server: IcebergServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from delta_sharing_client.protocol.transport import Transport

    _committed(made, ROWS)
    server.share("t", made.metadata)
    monkeypatch.setattr(Transport, "is_here", property(lambda self: False))

    with pytest.raises(ProtocolError, match="which only a server on this machine may share"):
        server.table().scan().to_arrow()


@pytest.mark.parametrize(
    ("change", "kind", "reason"),
    [
        ({"file_format": "AVRO"}, UnsupportedFeatureError, "data files in the format 'avro'"),
        ({"file_format": "ORC"}, UnsupportedFeatureError, "data files in the format 'orc'"),
        ({"record_count": 5}, DataError, "The table's metadata states 5 rows|5 rows"),
        ({"file_size_in_bytes": 10}, DataError, "expected a file of 10 bytes"),
        ({"file_path": "file://{root}/data/none.parquet"}, DataError, "none.parquet"),
    ],
)
def test_invalid_data_files_are_refused(
    made: HandMade, server: IcebergServer, change: dict[str, Any], kind: type[DeltaSharingError], reason: str
) -> None:
    file = {**made.data_file(ROWS), **change}
    file["file_path"] = file["file_path"].replace("{root}", str(made.root))
    made.commit([made.manifest([file])])
    server.share("t", made.metadata)

    with pytest.raises(kind, match=reason) as caught:
        server.table(max_attempts=1).scan().to_arrow()
    assert caught.value.table == "ice.n.t"
    assert caught.value.file_id == file["file_path"]


def test_empty_manifest_list_is_an_error(made: HandMade, server: IcebergServer) -> None:
    made.commit([], summary={"operation": "append", "total-data-files": "2"})
    server.share("t", made.metadata)

    with pytest.raises(DataError, match="may be truncated"):
        server.table().scan().to_arrow()
    made.metadata["snapshots"][0]["summary"] = {"operation": "delete", "total-data-files": "0"}
    assert server.table().scan().count() == 0


def test_table_that_only_its_server_can_plan_is_refused(made: HandMade, server: IcebergServer) -> None:
    _committed(made, ROWS)
    server.share("t", made.metadata, config={"scan-planning-mode": "server"})

    with pytest.raises(UnsupportedFeatureError, match="plans the reads of this table itself"):
        server.table().scan().to_arrow()
