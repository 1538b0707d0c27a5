"""Hand-made tables like those in the public tests of other engines are read correctly, or refused with the reason."""

from __future__ import annotations

import datetime
import decimal
import json
import pathlib
import re
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import delta_sharing_client as ds
import mock_server
from delta_sharing_client.descriptions import describe_table
from tests.regressions.hand_made import Action, HandMadeTable
from tests.versions import PYARROW

FORMATS = ("parquet", "delta")
LONGS = pa.schema([("a", pa.int64())])


@pytest.fixture
def table(tmp_path: pathlib.Path) -> HandMadeTable:
    return HandMadeTable(tmp_path / "s" / "d" / "t")


@contextmanager
def shared(table: HandMadeTable) -> Iterator[ds.SharedTable]:
    with (
        mock_server.running(tables=table.root.parent.parent.parent) as server,
        ds.SharingClient(server.profile, ds.ReadOptions(max_attempts=1)) as client,
    ):
        yield client.table("s.d.t")


def rows(table: HandMadeTable, wire: str = "delta", **scan: Any) -> list[dict[str, Any]]:
    with shared(table) as shared_table:
        result: list[dict[str, Any]] = shared_table.scan(response_format=wire, **scan).to_arrow().to_pylist()
        return result


def refusal(table: HandMadeTable, wire: str = "delta", **scan: Any) -> str:
    with shared(table) as shared_table, pytest.raises(ds.DeltaSharingError) as error:
        shared_table.scan(response_format=wire, **scan).to_arrow()
    return str(error.value)


def field(name: str, data_type: object, **metadata: object) -> dict[str, object]:
    return {"name": name, "type": data_type, "nullable": True, "metadata": metadata}


def schema(*fields: dict[str, object]) -> str:
    return json.dumps({"type": "struct", "fields": fields})


def mapped(name: str, data_type: object, physical: str | None, number: int | None) -> dict[str, object]:
    keys = {"delta.columnMapping.physicalName": physical, "delta.columnMapping.id": number}
    return field(name, data_type, **{key: value for key, value in keys.items() if value is not None})


def one_file(table: HandMadeTable, rows: pa.Table, path: str = "x.parquet", **add: object) -> Action:
    """Write ``rows`` to ``path`` in the table and return an ``add`` action with that path."""
    local = table.root / path
    local.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, local)
    facts = {"size": local.stat().st_size, "modificationTime": 0, "dataChange": True, "partitionValues": {}}
    return {"add": {"path": path, **facts, **add}}


# --- the log ---


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000000.00000000000000000003.compacted.json",
        "00000000000000000003.checkpoint.parquet",
        "00000000000000000003.checkpoint.0000000001.0000000001.parquet",
        "00000000000000000003.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json",
        "00000000000000000003.crc",
        "_last_checkpoint",
    ],
)
@pytest.mark.filterwarnings("ignore::delta_sharing_client.delta.log.log_files.LastCheckpointWarning")
def test_empty_log_file_of_a_killed_writer_is_not_a_commit(table: HandMadeTable, name: str) -> None:
    table.create(LONGS)
    for number in range(3):
        table.commit(table.file(pa.table({"a": [number]})))
    (table.root / "_delta_log" / name).touch()
    assert rows(table) == [{"a": 0}, {"a": 1}, {"a": 2}]


def test_log_line_with_two_actions_is_refused(table: HandMadeTable) -> None:
    table.create(LONGS)
    first, second = table.file(pa.table({"a": [1]})), table.file(pa.table({"a": [2]}))
    table.commit(first)
    table.commit(second | table.removal(first))
    assert "must be one Delta action, found several" in refusal(table)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("add", "add"), "two for 'part-00001.parquet'"),
        (("add", "remove"), "two for 'part-00001.parquet'"),
        (("remove", "remove"), "two for 'part-00001.parquet'"),
        (("protocol", "protocol"), "at most one 'protocol' action"),
        (("metaData", "metaData"), "at most one 'metaData' action"),
    ],
)
def test_commit_with_contradicting_actions_is_refused(
    table: HandMadeTable, names: tuple[str, str], message: str
) -> None:
    table.create(LONGS, properties={"delta.enableChangeDataFeed": "true"})
    added = table.file(pa.table({"a": [1]}))
    version = table.commit(added)
    protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}}
    known = {**added, **table.removal(added), **protocol, **table.metadata(LONGS)}
    # The order of actions in a commit has no meaning, so it cannot decide which action applies.
    table.commit(*({name: known[name]} for name in names))
    assert message in refusal(table)
    with shared(table) as shared_table, pytest.raises(ds.DeltaSharingError, match=message):
        shared_table.changes(starting_version=version + 1).to_arrow()


@pytest.mark.parametrize("spelling", ["./x.parquet", "x.parquet", "d/../x.parquet", "%78.parquet"])
def test_remove_matches_other_spellings_of_the_path(table: HandMadeTable, spelling: str) -> None:
    table.create(LONGS)
    table.commit(one_file(table, pa.table({"a": [1]})))
    table.commit({"remove": {"path": spelling, "dataChange": True, "deletionTimestamp": 1}})
    assert rows(table) == []


@pytest.mark.parametrize("path", ["/some/unqualified/absolute/path", "/some/unqualified/with%20space/p@%23h"])
@pytest.mark.parametrize("scheme", ["file:", "file://"])
def test_remove_by_file_uri_removes_an_absolute_path(table: HandMadeTable, scheme: str, path: str) -> None:
    table.create(LONGS)
    facts = {"partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    table.commit({"add": {"path": path, **facts}})
    table.commit({"remove": {"path": scheme + path, "dataChange": True, "deletionTimestamp": 1}})
    assert rows(table) == []


def test_deletion_vector_without_its_feature_is_applied(table: HandMadeTable) -> None:
    table.create(LONGS, properties={"delta.enableChangeDataFeed": "true"})
    version = table.commit(table.file(pa.table({"a": [1, 2, 3]}), removed=[1]))
    assert rows(table) == [{"a": 1}, {"a": 3}]
    assert "deletionVectors" in refusal(table, "parquet")
    with shared(table) as shared_table:
        read = shared_table.changes(starting_version=version, columns=["a"], response_format="delta").to_arrow()
        assert read.to_pydict() == {"a": [1, 3]}
        with pytest.raises(ds.DeltaSharingError, match="deletionVectors"):
            shared_table.changes(starting_version=version, response_format="parquet").to_arrow()


TRACKING = {
    "delta.enableRowTracking": "true",
    "delta.rowTracking.materializedRowIdColumnName": "_row-id",
    "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-version",
}


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("_row_id = 9", [(6, 9, 2)]),
        ("_row_id >= 104 AND a < 6", [(5, 105, 1)]),
        ("_row_id = 101 OR a = 6", [(1, 101, 1), (6, 9, 2)]),
        ("_row_commit_version <> 1 AND _row_id IS NOT NULL", [(6, 9, 2), (7, 111, 5)]),
        ("_row_id IS NULL", []),
    ],
)
def test_filter_on_row_lineage_selects_rows(
    table: HandMadeTable, condition: str, expected: list[tuple[int, int, int]]
) -> None:
    features = ["deletionVectors", "rowTracking", "domainMetadata"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features[:1]}
    table.commit({"protocol": {**protocol, "writerFeatures": features}}, table.metadata(LONGS, (), TRACKING))
    fresh = table.file(pa.table({"a": range(6)}), removed=[0, 4], row_group_size=2)
    fresh["add"] |= {"baseRowId": 100, "defaultRowCommitVersion": 1}
    longs = pa.int64()
    moved = table.file(
        pa.table({"a": [6, 7], "_row-id": pa.array([9, None], longs), "_row-version": pa.array([None, 5], longs)})
    )
    moved["add"] |= {"baseRowId": 110, "defaultRowCommitVersion": 2}
    table.commit(fresh, moved)
    assert [tuple(row.values()) for row in rows(table, filter=condition, row_lineage=True)] == expected


# --- column mapping ---


@pytest.mark.parametrize(
    ("mode", "fields", "message"),
    [
        ("name", [mapped("a", "long", None, 1)], "Column 'a' must have a 'delta.columnMapping.physicalName'"),
        ("id", [mapped("a", "long", "x", None)], "Column 'a' must have a 'delta.columnMapping.id'"),
        (
            "name",
            [mapped("a", "long", "x", 1), mapped("b", "long", "x", 2)],
            "Columns 'a' and 'b' must not have the same 'delta.columnMapping.physicalName'",
        ),
        (
            "id",
            [
                mapped("a", "long", "x", 1),
                mapped("s", {"type": "struct", "fields": [mapped("b", "long", "y", 1)]}, "s", 2),
            ],
            "Columns 'a' and 's.b' must not have the same 'delta.columnMapping.id'",
        ),
        (
            "name",
            [mapped("l", {"type": "array", "elementType": {"type": "struct", "fields": [field("b", "long")]}}, "x", 1)],
            "Column 'l.element.b' must have a 'delta.columnMapping.physicalName'",
        ),
    ],
)
def test_incomplete_column_mapping_is_refused(
    table: HandMadeTable, mode: str, fields: list[dict[str, object]], message: str
) -> None:
    table.create(schema(*fields), properties={"delta.columnMapping.mode": mode}, features=["columnMapping"])
    table.commit(table.file(pa.table({"x": [1]})))
    assert message in refusal(table)


# --- data files ---

UTC = datetime.timezone.utc
ARRAY = {"type": "array", "elementType": "long", "containsNull": False}
MAP = {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": False}


@pytest.mark.parametrize("wire", FORMATS)
@pytest.mark.parametrize(
    ("data_type", "values"),
    [
        (ARRAY, pa.array([[1, 2], None, []], pa.list_(pa.int64()))),
        (MAP, pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64()))),
    ],
)
def test_nulls_in_non_nullable_arrays_and_maps_are_refused(
    table: HandMadeTable, data_type: object, values: pa.Array, wire: str
) -> None:
    table.create(schema(field("c", data_type)))
    table.commit(one_file(table, pa.table({"c": values}), "good.parquet"))
    expected = pa.table({"c": values}).to_pylist()
    assert rows(table, wire) == expected
    broken = [[1, None]] if data_type is ARRAY else [[("a", None)]]
    table.commit(one_file(table, pa.table({"c": pa.array(broken, values.type)}), "bad.parquet"))
    assert "of column 'c' must not be null" in refusal(table, wire)


def test_16_bytes_in_a_string_column_are_refused(table: HandMadeTable) -> None:
    table.create(schema(field("c", "string")))
    table.commit(one_file(table, pa.table({"c": pa.array([bytes(16)], pa.binary(16))})))
    assert "must have the table's type string, but the file has fixed_size_binary[16]" in refusal(table)


# The numbers that Spark 4.3 writes for these dates with datetimeRebaseModeInWrite=LEGACY.
HYBRID_DAYS = {
    "0001-01-01": -719_164,
    "0300-12-31": -609_590,
    "1000-02-28": -354_222,
    "1100-02-28": -317_697,
    "1500-03-01": -171_595,
    "1582-10-04": -141_428,
    "1582-10-15": -141_427,
    "2020-01-01": 18_262,
}
SPARK = b"org.apache.spark.version"
LEGACY = {SPARK: b"3.5.0", b"org.apache.spark.legacyDateTime": b"", b"org.apache.spark.legacyINT96": b""}
MICROS_PER_DAY = 86_400_000_000


def spark_file(table: HandMadeTable, keys: dict[bytes, bytes], *, int96: bool = False, nested: bool = False) -> Action:
    days = pa.array([*HYBRID_DAYS.values(), None], pa.int32())
    # pyarrow before 23 writes wrong INT96 times of day for dates before 1970, except for midnight.
    extra = 0 if int96 else 1
    micros = pa.array([None if day is None else day * MICROS_PER_DAY + extra for day in days.to_pylist()], pa.int64())
    moments = micros.cast(pa.timestamp("us", None if int96 else "UTC"))
    dates: pa.Array = days.cast(pa.date32())
    if nested:
        dates = pa.ListArray.from_arrays(list(range(len(dates) + 1)), dates)
    data = pa.table({"d": dates, "at": moments})
    how = {"use_deprecated_int96_timestamps": int96, "store_schema": False}
    if not hasattr(pq.ParquetWriter, "add_key_value_metadata"):
        pytest.skip("This pyarrow cannot write the keys of a file that Spark writes.")
    with pq.ParquetWriter(table.root / "x.parquet", data.schema, **how) as writer:
        writer.write_table(data)
        writer.add_key_value_metadata(keys)
    size = (table.root / "x.parquet").stat().st_size
    facts = {"partitionValues": {}, "size": size, "modificationTime": 0, "dataChange": True}
    return {"add": {"path": "x.parquet", **facts}}


@pytest.mark.parametrize("int96", [False, True])
@pytest.mark.parametrize(
    "keys",
    [
        {**LEGACY, b"org.apache.spark.timeZone": b"UTC"},
        {SPARK: b"2.4.8", b"org.apache.spark.timeZone": b"Etc/UTC"},
        {b"org.apache.spark.sql.parquet.row.metadata": b"{}", b"org.apache.spark.timeZone": b"Z"},
    ],
)
def test_dates_in_the_hybrid_calendar_are_rebased(table: HandMadeTable, keys: dict[bytes, bytes], int96: bool) -> None:
    table.create(schema(field("d", "date"), field("at", "timestamp")))
    table.commit(spark_file(table, keys, int96=int96))
    result = rows(table)
    assert [row["d"] for row in result] == [*map(datetime.date.fromisoformat, HYBRID_DAYS), None]
    micros = 0 if int96 else 1
    moments = [datetime.datetime.fromisoformat(f"{day} 00:00:00.00000{micros}+00:00") for day in HYBRID_DAYS]
    assert [row["at"] for row in result] == [*moments, None]
    assert [row["d"].isoformat() for row in rows(table, filter="d = DATE '0001-01-01'")] == ["0001-01-01"]
    assert len(rows(table, filter="at < TIMESTAMP '1582-10-05 00:00:00'")) == 6


@pytest.mark.parametrize("keys", [{}, {SPARK: b"3.5.0"}, {SPARK: b"4.0.0", b"org.apache.spark.timeZone": b"UTC"}])
def test_dates_of_other_writers_are_not_rebased(table: HandMadeTable, keys: dict[bytes, bytes]) -> None:
    table.create(schema(field("d", "date"), field("at", "timestamp")))
    table.commit(spark_file(table, keys))
    assert [row["d"] for row in rows(table, columns=["d"], filter="d > DATE '0001-01-01'")][:2] == [
        datetime.date(301, 1, 1),
        datetime.date(1000, 3, 5),
    ]


def test_nested_dates_in_the_hybrid_calendar_are_rebased(table: HandMadeTable) -> None:
    table.create(schema(field("d", {"type": "array", "elementType": "date", "containsNull": True})))
    table.commit(spark_file(table, {SPARK: b"2.4.8"}, nested=True))
    assert [row["d"] for row in rows(table)] == [*([datetime.date.fromisoformat(day)] for day in HYBRID_DAYS), [None]]


@pytest.mark.parametrize("zone", [{}, {b"org.apache.spark.timeZone": b"America/Los_Angeles"}])
def test_hybrid_calendar_timestamps_in_other_zones_are_refused(table: HandMadeTable, zone: dict[bytes, bytes]) -> None:
    table.create(schema(field("d", "date"), field("at", "timestamp")))
    table.commit(spark_file(table, LEGACY | zone))
    assert "hybrid calendar" in refusal(table)
    assert len(rows(table, columns=["d"])) == 9


@pytest.mark.parametrize("wire", FORMATS)
def test_lists_and_maps_of_old_parquet_writers_are_read(table: HandMadeTable, wire: str) -> None:
    # Spark 4.3 wrote the file with spark.sql.parquet.writeLegacyFormat: lists have two levels, or three with other
    # names.
    source = pathlib.Path(__file__).with_name("spark_legacy_lists.parquet")
    footer = pq.read_metadata(source).metadata
    table.create(footer[b"org.apache.spark.sql.parquet.row.metadata"].decode())
    shutil.copy(source, table.root / "x.parquet")
    facts = {"partitionValues": {}, "size": source.stat().st_size, "modificationTime": 0, "dataChange": True}
    table.commit({"add": {"path": "x.parquet", **facts}})
    first = {
        "l": [1, None],
        "ln": [1, 2],
        "ls": [{"array": 1}, None],
        "lsn": [{"array": 1}, {"array": None}],
        "ll": [[1, 2], []],
        "m": [(1, [None, 2]), (2, None)],
        "d": decimal.Decimal("-1.23"),
    }
    last: dict[str, object] = {key: [] for key in first} | {"d": decimal.Decimal("9.99")}
    # pyarrow before 18 reads a two-level list of lists as a list of structs, which is refused; the other columns are
    # read
    if PYARROW < 18:
        with pytest.raises(ds.DataError, match=r"'ll\.element' must have the table's type"):
            rows(table, wire)
        first, last = ({key: row[key] for key in row if key != "ll"} for row in (first, last))
        assert rows(table, wire, columns=list(first)) == [first, dict.fromkeys(first), last]
        return
    assert rows(table, wire) == [first, dict.fromkeys(first), last]
    assert rows(table, wire, columns=["m", "lsn"], filter="d < 0") == [{"m": first["m"], "lsn": first["lsn"]}]


# A truncated maximum ends in a character that is greater than the removed ones; older writers compare in UTF-16 order.
@pytest.mark.parametrize(
    ("value", "maximum"),
    [
        ("a" * 32 + "\U0001f600", "a" * 32 + "\ufffd"),
        ("a" * 31 + "\U0001f600", "a" * 31 + "?\ufffd"),
        ("\U0001f600" * 17, "\U0001f600" * 16 + "\ufffd"),
        ("a" * 32 + "\U0001f600", "a" * 32 + "\U0010ffff"),
        ("a" * 40, "a" * 32 + "\x7f"),
    ],
)
def test_truncated_maximum_skips_no_matching_file(table: HandMadeTable, value: str, maximum: str) -> None:
    table.create(schema(field("s", "string")))
    bounds = {"minValues": {"s": value[:16]}, "maxValues": {"s": maximum}, "nullCount": {"s": 0}}
    stats = json.dumps({"numRecords": 1, **bounds})
    table.commit(one_file(table, pa.table({"s": [value]}), stats=stats))
    assert rows(table, filter=f"s = '{value}'") == [{"s": value}]
    assert rows(table, filter="s > 'b' AND s < 'c'") == []


# --- refusals ---


def reader(version: int, features: list[str] | None, writer: int = 7) -> Action:
    listed = {} if features is None else {"readerFeatures": features}
    return {"protocol": {"minReaderVersion": version, "minWriterVersion": writer, "writerFeatures": [], **listed}}


@pytest.mark.parametrize(
    ("protocol", "message"),
    [
        (reader(2, ["deletionVectors"]), "'readerFeatures' may only be listed with 'minReaderVersion' 3"),
        (reader(3, None), "must list 'readerFeatures'"),
        (reader(3, ["redirectReaderWriter-preview", "timestampNtz"]), "redirectReaderWriter-preview"),
        (reader(3, ["variantType-dev", "deletionVectors"]), "variantType-dev"),
        (reader(3, ["catalogManaged"]), "catalogManaged"),
        (reader(4, ["deletionVectors"]), "minReaderVersion 4"),
        (reader(99, None), "minReaderVersion 99"),
        (reader(-1, None), "'minReaderVersion' must not be negative"),
    ],
)
def test_unknown_or_contradictory_protocol_is_refused(table: HandMadeTable, protocol: Action, message: str) -> None:
    table.commit(protocol, table.metadata(LONGS))
    table.commit(table.file(pa.table({"a": [1]})))
    for wire in FORMATS:
        assert message in refusal(table, wire)


@pytest.mark.parametrize(
    "protocol",
    [
        {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly", "somethingNew"]},
        {"minReaderVersion": 2, "minWriterVersion": 5},
        {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": ["domainMetadata"]},
    ],
)
def test_writer_features_do_not_prevent_reading(table: HandMadeTable, protocol: Action) -> None:
    table.commit({"protocol": protocol}, table.metadata(LONGS))
    table.commit(table.file(pa.table({"a": [1]})))
    for wire in FORMATS:
        assert rows(table, wire) == [{"a": 1}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "'schemaString' must be the JSON of a struct type"),
        ("", "'schemaString' must be the JSON of a struct type"),
        ('"long"', "'schemaString' must be the JSON of a struct type"),
        (schema(field("a", "long"), field("A", "long")), "must have unique column names"),
        (
            schema(field("s", json.loads(schema(field("x", "long"), field("X", "long"))))),
            "must have unique column names",
        ),
        (schema(field("a", "decimal(39,2)")), "must have a precision from 1 to 38"),
        (schema(field("b", "long")), "The partition column 'a' must be a column of the schema"),
    ],
)
def test_invalid_schema_is_refused(table: HandMadeTable, text: str, message: str) -> None:
    table.create(text, partition_by=["a"] if '"b"' in text else [])
    table.commit(table.file(pa.table({"a": [1]}), {"a": "1"}))
    for wire in FORMATS:
        assert message in refusal(table, wire)


@pytest.mark.parametrize(
    ("old", "new", "nested"),
    [("string", "integer", False), ("long", "integer", False), ("double", "float", True), ("quaternion", "long", True)],
)
@pytest.mark.parametrize("feature", ["typeWidening", "typeWidening-preview"])
def test_type_change_that_does_not_widen_is_refused(
    table: HandMadeTable, feature: str, old: str, new: str, nested: bool
) -> None:
    change = {"delta.typeChanges": [{"fromType": "byte", "toType": "short"}, {"fromType": old, "toType": new}]}
    changed = field("a", new) | {"metadata": change}
    columns = [field("s", {"type": "array", "elementType": json.loads(schema(changed))})] if nested else [changed]
    table.create(schema(field("x", "long"), *columns), features=[feature])
    table.commit(table.file(pa.table({"x": [1]})))
    assert f"{old} to {new}" in refusal(table, "delta") or "quaternion" in refusal(table, "delta")


def test_recorded_type_change_without_the_feature_is_ignored(table: HandMadeTable) -> None:
    left = field("a", "long") | {"metadata": {"delta.typeChanges": [{"fromType": "string", "toType": "long"}]}}
    table.create(schema(left))
    table.commit(table.file(pa.table({"a": [1]})))
    for wire in FORMATS:
        assert rows(table, wire) == [{"a": 1}]


def test_error_for_an_add_without_a_size_names_its_line(table: HandMadeTable) -> None:
    table.create(LONGS)
    added = table.file(pa.table({"a": [1]}))
    del added["add"]["size"]
    table.commit(added)
    for wire in FORMATS:
        assert "Line 2 of '00000000000000000001.json' must have a 'size' of 0 or more" in refusal(table, wire)


@pytest.mark.parametrize("path", ["s3://bucket/part.parquet", "s3a://bucket/part.parquet", "abfss://a@b/part.parquet"])
def test_local_table_with_a_remote_file_is_refused(table: HandMadeTable, path: str) -> None:
    table.create(LONGS)
    added = table.file(pa.table({"a": [1]}))
    added["add"]["path"] = path
    table.commit(added)
    for wire in FORMATS:
        assert "A local table may only refer to local files" in refusal(table, wire)


# --- columns of unknown types ---


@pytest.mark.parametrize("kind", ["time(6)", "geometry(a, b)", "quaternion"])
@pytest.mark.parametrize("features", [[], ["geospatial", "timestampNanos", "catalogManaged"]])
@pytest.mark.filterwarnings("ignore::delta_sharing_client.IncompleteReadWarning")
def test_tables_are_read_without_columns_of_unknown_types(table: HandMadeTable, features: list[str], kind: str) -> None:
    protocol = reader(3, [name for name in features if name != "catalogManaged"]) if features else reader(1, None)
    struct = json.loads(schema(field("x", "long"), field("odd", kind)))
    table.commit(protocol, table.metadata(schema(field("a", "long"), field("odd", kind), field("s", struct))))
    content = pa.table({"a": [1, 2], "odd": [b"", b"x"], "s": [{"x": 1, "odd": b"z"}, None]})
    table.commit(table.file(content))
    expected = [{"a": 1, "s": {"x": 1}}, {"a": 2, "s": None}]
    omitted = {"odd": kind, "s.odd": kind}
    with shared(table) as shared_table:
        for wire in FORMATS if not features else ("delta",):
            scan = shared_table.scan(response_format=wire)
            assert scan.to_arrow().to_pylist() == expected
            assert json.loads(scan.schema.metadata[b"delta_sharing.left_out"]) == omitted
            without = (
                f"The read of 's.d.t' leaves out columns of the table whose types are not supported: 'odd' ({kind})"
            )
            assert f"  note: {without}, 's.odd' ({kind})" in scan.explain()
            assert without in str(scan.report)
            with pytest.warns(ds.IncompleteReadWarning, match=re.escape(without)):
                scan.to_arrow()
            assert shared_table.scan(["a"], "a > 1", response_format=wire).to_arrow().to_pylist() == [{"a": 2}]
            assert shared_table.scan(["a"], response_format=wire).schema.metadata is None
            for needs in (
                {"columns": ["odd"]},
                {"columns": ["a", "S.ODD"]},
                {"columns": [("s", "odd")]},
                {"filter": "odd IS NULL"},
                {"filter": "a > 0 AND s.odd IS NOT NULL"},
            ):
                with pytest.raises(ds.UnsupportedFeatureError, match=f"odd' has the type '{re.escape(kind)}'"):
                    shared_table.scan(**needs, response_format=wire).to_arrow()
        assert json.loads(shared_table.schema.metadata[b"delta_sharing.left_out"]) == omitted
        _, columns = describe_table(shared_table, None, None)
        assert [item["column"] for item in columns] == ["a", "s", "odd", "s.odd"]
        assert columns[2]["type"] == f"{kind} (not supported, left out)"


KNOWN_ALONE = ["a", "s.x"]


@pytest.fixture
def partly_unknown(table: HandMadeTable) -> HandMadeTable:
    struct = json.loads(schema(field("x", "long"), field("odd", "quaternion")))
    table.commit(
        reader(1, None), table.metadata(schema(field("a", "long"), field("odd", "quaternion"), field("s", struct)))
    )
    table.commit(table.file(pa.table({"a": [1], "odd": [b"q"], "s": [{"x": 1, "odd": b"z"}]})))
    return table


def test_every_read_warns_of_omitted_columns(partly_unknown: HandMadeTable) -> None:
    with shared(partly_unknown) as shared_table:
        scan = shared_table.scan()
        for read in (
            scan.to_arrow,
            scan.to_pandas,
            scan.to_polars,
            lambda: list(scan.to_batches()),
            lambda: scan.schema,
            lambda: scan.to_dataset().to_table(),
            lambda: scan.to_polars(lazy=True).collect(),
            lambda: shared_table.head(),
            lambda: scan.partitions(2),
        ):
            with pytest.warns(ds.IncompleteReadWarning, match=r"'odd' \(quaternion\), 's.odd' \(quaternion\)"):
                read()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for columns in (KNOWN_ALONE, ["a"], []):
                assert shared_table.scan(columns).to_arrow().num_rows == 1
            # Python shows each text of a warning once, and so one warning per table.
            warnings.simplefilter("default")
            with warnings.catch_warnings(record=True) as caught:
                for _ in range(3):
                    scan.to_arrow()
            assert len({str(item.message) for item in caught}) == 1


@pytest.mark.parametrize("ending", ["parquet", "csv", "ipc", "jsonl"])
@pytest.mark.filterwarnings("ignore::delta_sharing_client.IncompleteReadWarning")
def test_no_file_is_written_with_omitted_columns(
    partly_unknown: HandMadeTable, tmp_path: pathlib.Path, ending: str
) -> None:
    with shared(partly_unknown) as shared_table:
        target = tmp_path / f"rows.{ending}"
        with pytest.raises(ds.UnsupportedFeatureError, match=r"rows.* leaves out .* 'odd' \(quaternion\), 's.odd'"):
            getattr(shared_table.scan(), f"to_{ending}")(target)
        assert list(tmp_path.glob("rows*")) == []
        assert getattr(shared_table.scan(["a"]), f"to_{ending}")(target) == 1


def test_no_copy_is_made_with_omitted_columns(partly_unknown: HandMadeTable, tmp_path: pathlib.Path) -> None:
    copy = tmp_path / "copy"
    with shared(partly_unknown) as shared_table:
        with pytest.raises(ds.UnsupportedFeatureError, match=r"copy' leaves out .* 'odd' \(quaternion\), 's.odd'"):
            shared_table.replicate(copy)
        assert [path.name for path in copy.iterdir()] == [".replica.lock"]
        with pytest.raises(ds.UnsupportedFeatureError, match=r"'s.odd' has the type 'quaternion'"):
            shared_table.replicate(copy, columns=["a", "s.odd"])
        # The second update has nothing to change or download.
        for fetched in (1, 0):
            assert shared_table.replicate(copy, columns=["A", "s"]).downloaded_files == fetched
        assert shared_table.replicate(copy, columns=["s.x"]).local_version == 1
    rows = [deltalake.DeltaTable(copy, version).to_pyarrow_table().to_pylist() for version in (0, 1)]
    assert rows == [[{"a": 1, "s": {"x": 1}}], [{"s": {"x": 1}}]]
