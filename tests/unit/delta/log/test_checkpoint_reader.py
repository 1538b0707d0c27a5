from __future__ import annotations

import datetime
import decimal
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delta_sharing_client.delta.actions import AddFile, DomainMetadata, RemoveFile, Transaction
from delta_sharing_client.delta.column_mapping import ColumnMappingMode
from delta_sharing_client.delta.data_types import PrimitiveType, StructField, StructType
from delta_sharing_client.delta.log import checkpoint_reader as checkpoints
from delta_sharing_client.delta.log.delta_table import DeltaLog
from delta_sharing_client.delta.log.log_files import LocalDirectory, LogListing
from delta_sharing_client.delta.snapshot import Want
from delta_sharing_client.delta.statistics import StatisticsReader
from delta_sharing_client.errors import DataError, DeltaSharingError, ProtocolError
from delta_sharing_client.int96 import Int96File
from tests.int96 import RAW, negative, packed, write_int96
from tests.unit.delta.log_builder import PROTOCOL, LogBuilder, add, earliest_version, metadata, remove, vector

TEXTS = pa.map_(pa.string(), pa.string())
UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"
VECTOR_TYPE = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
ADD_FIELDS = [
    ("path", pa.string()),
    ("partitionValues", TEXTS),
    ("size", pa.int64()),
    ("modificationTime", pa.int64()),
    ("dataChange", pa.bool_()),
    ("stats", pa.string()),
    ("tags", TEXTS),
    ("deletionVector", VECTOR_TYPE),
    ("baseRowId", pa.int64()),
]
COLUMNS = {
    "protocol": pa.struct(
        [("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32()), ("readerFeatures", pa.list_(pa.string()))]
    ),
    "metaData": pa.struct(
        [
            ("id", pa.string()),
            ("format", pa.struct([("provider", pa.string()), ("options", TEXTS)])),
            ("schemaString", pa.string()),
            ("partitionColumns", pa.list_(pa.string())),
            ("configuration", TEXTS),
        ]
    ),
    "txn": pa.struct([("appId", pa.string()), ("version", pa.int64())]),
    "domainMetadata": pa.struct([("domain", pa.string()), ("configuration", TEXTS), ("removed", pa.bool_())]),
    "checkpointMetadata": pa.struct([("version", pa.int64())]),
    "sidecar": pa.struct([("path", pa.string()), ("sizeInBytes", pa.int64()), ("modificationTime", pa.int64())]),
    "remove": pa.struct([("path", pa.string()), ("deletionTimestamp", pa.int64()), ("dataChange", pa.bool_())]),
}
HEAD = [PROTOCOL, metadata()]


def _write(path: Path, rows: list[dict[str, Any]], add_fields: Any = ADD_FIELDS, **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    schema = pa.schema([*COLUMNS.items(), ("add", pa.struct(add_fields))])

    def pairs(value: Any) -> Any:
        maps = ("partitionValues", "tags", "configuration", "options")
        if not isinstance(value, dict):
            return value
        return {k: list(v.items()) if k in maps and v is not None else pairs(v) for k, v in value.items()}

    pq.write_table(pa.Table.from_pylist([pairs(row) for row in rows], schema=schema), path, **options)


@pytest.fixture
def builder(tmp_path: Path) -> LogBuilder:
    return LogBuilder(tmp_path / "table")


def _classic(builder: LogBuilder, version: int) -> Path:
    return builder.directory / f"{version:020}.checkpoint.parquet"


def _snapshot_files(builder: LogBuilder, want: Want = Want.STATS) -> list[AddFile]:
    return list(DeltaLog.open(builder.root).snapshot(want=want).files)


def test_classic_checkpoint_is_read_with_every_field(builder: LogBuilder) -> None:
    full = add(
        "a%20b",
        partitionValues={"p": "x", "q": None},
        stats='{"numRecords":3}',
        tags={"k": "v"},
        deletionVector=vector("x", 7),
        baseRowId=0,
        dataChange=False,
    )
    txn, domain = {"txn": {"appId": "x", "version": 3}}, {"domain": "d", "configuration": {"k": "v"}, "removed": False}
    rows = [*HEAD, full, add("b"), remove("gone"), txn, {"domainMetadata": domain}]
    _write(_classic(builder, 5), rows)
    builder.commit(6, add("c"), remove("b"))
    log = DeltaLog.open(builder.root)
    snapshot = log.snapshot()
    first, last = snapshot.files
    assert first == AddFile(
        "a%20b",
        {"p": "x", "q": None},
        10,
        1,
        False,
        '{"numRecords":3}',
        {"k": "v"},
        first.deletion_vector,
        base_row_id=0,
    )
    assert first.deletion_vector is not None
    assert first.deletion_vector.unique_id == "ux@7"
    assert last.path == "c"
    assert snapshot.transactions == {"x": Transaction("x", 3)}
    assert snapshot.domain_metadata == {"d": DomainMetadata("d", '{"k":"v"}')}
    assert snapshot.metadata.partition_columns == []
    assert (earliest_version(log), log.latest_version()) == (5, 6)
    assert snapshot.tombstones == ()
    with_tombstones = log.snapshot(want=Want.TOMBSTONES)
    assert [item.path for item in with_tombstones.tombstones] == ["gone", "b"]
    assert isinstance(with_tombstones.tombstones[0], RemoveFile)
    assert [item.stats for item in with_tombstones.files] == [None, None]


def test_checkpoint_may_lack_the_remove_column(builder: LogBuilder) -> None:
    checkpoint = _classic(builder, 1)
    _write(checkpoint, [*HEAD, add("a")])
    pq.write_table(pq.read_table(checkpoint).drop_columns(["remove"]), checkpoint)
    snapshot = DeltaLog.open(builder.root).snapshot(want=Want.TOMBSTONES)
    assert ([item.path for item in snapshot.files], snapshot.tombstones) == (["a"], ())


def test_error_of_a_deleted_version_names_the_nearest_one(builder: LogBuilder) -> None:
    _write(_classic(builder, 5), HEAD)
    builder.commit(4).commit(5).commit(6)
    log = DeltaLog.open(builder.root)
    with pytest.raises(DataError, match=r"Version 4 cannot be rebuilt .* nearest version that can be rebuilt is 5"):
        log.snapshot(4)
    assert [log.snapshot(version).version for version in (5, 6)] == [5, 6]


def test_checkpoint_alone_is_a_table(builder: LogBuilder) -> None:
    _write(_classic(builder, 3), [*HEAD, add("a")])
    snapshot = DeltaLog.open(builder.root).snapshot()
    assert (snapshot.version, len(snapshot.files)) == (3, 1)
    assert snapshot.timestamp_ms is not None


def test_incomplete_multi_part_checkpoint_is_not_used(builder: LogBuilder) -> None:
    def part(version: int, number: int, of: int) -> Path:
        return builder.directory / f"{version:020}.checkpoint.{number:010}.{of:010}.parquet"

    _write(_classic(builder, 1), [*HEAD, add("old")])
    _write(part(2, 1, 2), [*HEAD, add("a")])
    _write(part(2, 2, 2), [add("b")])
    _write(part(3, 2, 2), [add("half")])
    builder.commit(2).commit(3, add("c"))
    assert [file.path for file in _snapshot_files(builder)] == ["a", "b", "c"]


def _sidecar(name: str) -> dict[str, Any]:
    return {"sidecar": {"path": name, "sizeInBytes": 1, "modificationTime": 1}}


@pytest.mark.parametrize("name", [f"{2:020}.checkpoint.{UUID}.json", f"{2:020}.checkpoint.{UUID}.parquet", "classic"])
@pytest.mark.parametrize("where", ["relative", "absolute"])
def test_v2_checkpoint_includes_the_files_of_its_sidecars(builder: LogBuilder, name: str, where: str) -> None:
    folder = builder.directory / "_sidecars"
    _write(folder / "one.parquet", [add("a"), add("b", partitionValues={"p": "1"})])
    _write(folder / "two two.parquet", [add("c"), remove("r")])
    second = "two%20two.parquet" if where == "relative" else f"file://{folder}/two%20two.parquet"
    rows = [*HEAD, {"checkpointMetadata": {"version": 2}}, _sidecar("one.parquet"), _sidecar(second), add("inline")]
    if name.endswith(".json"):
        builder.write(name, *rows)
    else:
        _write(_classic(builder, 2) if name == "classic" else builder.directory / name, rows)
    builder.commit(3, remove("c"))
    assert [file.path for file in _snapshot_files(builder)] == ["inline", "a", "b"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"checkpointMetadata": {"version": 9}}], "version 2"),
        ([{"checkpointMetadata": {"version": 2}}, _sidecar("nope.parquet")], "does not exist"),
        ([_sidecar("../../secret.parquet")], "inside"),
        ([_sidecar("self.parquet")], "names sidecars"),
        ([_sidecar("s3://bucket/x.parquet")], "local"),
        ([{"sidecar": {"path": "x", "sizeInBytes": -1, "modificationTime": 1}}], "sizeInBytes"),
    ],
)
def test_broken_v2_checkpoint_is_refused(builder: LogBuilder, rows: list[dict[str, Any]], message: str) -> None:
    _write(builder.directory / "_sidecars" / "self.parquet", [_sidecar("self.parquet")])
    builder.write(f"{2:020}.checkpoint.{UUID}.json", *HEAD, *rows)
    with pytest.raises(DeltaSharingError, match=message):
        _snapshot_files(builder)


def test_error_names_a_checkpoint_that_is_not_parquet(builder: LogBuilder) -> None:
    builder.commit(1)
    _classic(builder, 1).write_bytes(b"PAR1 not at all")
    with pytest.raises(DataError, match=r"00001\.checkpoint\.parquet' cannot be read: .*[Pp]arquet"):
        _snapshot_files(builder)


def test_damaged_checkpoint_is_refused(builder: LogBuilder) -> None:
    _write(_classic(builder, 1), [*HEAD, *(add(f"f{i}") for i in range(1000))])
    whole = _classic(builder, 1).read_bytes()
    # The footer is intact, but the pages are not.
    _classic(builder, 1).write_bytes(whole[:4] + bytes(len(whole) // 2) + whole[4 + len(whole) // 2 :])
    with pytest.raises(DeltaSharingError):
        _snapshot_files(builder)


@pytest.mark.parametrize("missing", ["path", "size", "partitionValues"])
def test_add_without_a_required_field_is_refused(builder: LogBuilder, missing: str) -> None:
    row = add("a")
    row["add"][missing] = None
    _write(_classic(builder, 1), [*HEAD, row])
    with pytest.raises(ProtocolError, match=missing):
        _snapshot_files(builder)
    _write(_classic(builder, 1), [*HEAD, add("a")], [field for field in ADD_FIELDS if field[0] != missing])
    with pytest.raises(ProtocolError, match=missing):
        _snapshot_files(builder)


@pytest.mark.parametrize(
    "fields",
    [
        [("path", pa.string()), ("partitionValues", TEXTS), ("size", pa.string())],
        [("path", pa.string()), ("partitionValues", pa.string()), ("size", pa.int64())],
        [("path", pa.list_(pa.string())), ("partitionValues", TEXTS), ("size", pa.int64())],
    ],
)
def test_add_field_of_the_wrong_type_is_refused(builder: LogBuilder, fields: list[tuple[str, pa.DataType]]) -> None:
    values = {"path": "p", "partitionValues": None, "size": None}
    for name, arrow in fields:
        if name != "path" and not pa.types.is_map(arrow):
            values[name] = "many" if pa.types.is_string(arrow) else 5  # type: ignore[assignment]
        elif pa.types.is_map(arrow):
            values[name] = {}  # type: ignore[assignment]
        elif pa.types.is_list(arrow):
            values[name] = ["p"]  # type: ignore[assignment]
    path = _classic(builder, 1)
    schema = pa.schema([*COLUMNS.items(), ("add", pa.struct(fields))])
    rows: list[dict[str, Any]] = [{"add": values}]
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    with pytest.raises(ProtocolError, match=r"add\.\w+' of .* has the wrong type"):
        _snapshot_files(builder)


def test_negative_size_in_a_checkpoint_is_refused(builder: LogBuilder) -> None:
    _write(_classic(builder, 1), [*HEAD, add("a"), add("b", size=-5)])
    with pytest.raises(ProtocolError, match="size"):
        _snapshot_files(builder)


STATS_TYPE = pa.struct(
    [
        ("numRecords", pa.int64()),
        ("minValues", pa.struct([("i", pa.int32()), ("t", pa.timestamp("us", tz="UTC")), ("f", pa.float64())])),
        (
            "maxValues",
            pa.struct(
                [
                    ("n", pa.timestamp("us")),
                    ("d", pa.date32()),
                    ("m", pa.decimal128(38, 2)),
                    ("s", pa.struct([("x", pa.string())])),
                    ("b", pa.binary()),
                ]
            ),
        ),
        ("nullCount", pa.struct([("i", pa.int64()), ("s", pa.struct([("x", pa.int64())]))])),
        ("tightBounds", pa.bool_()),
    ]
)
INSTANT = datetime.datetime(2024, 1, 2, 3, 4, 5, 678901)
STATS = {
    "numRecords": 3,
    "minValues": {"i": -5, "t": INSTANT.replace(tzinfo=datetime.timezone.utc), "f": float("nan")},
    "maxValues": {
        "n": INSTANT,
        "d": datetime.date(2024, 2, 29),
        "m": decimal.Decimal("123456789012345678901234567890123456.78"),
        "s": {"x": 'é"'},
        "b": b"\xff",
    },
    "nullCount": {"i": 0, "s": {"x": 1}},
    "tightBounds": False,
}
STATS_JSON = (
    '{"numRecords":3,"minValues":{"i":-5,"t":"2024-01-02T03:04:05.678901Z","f":"NaN"},'
    '"maxValues":{"n":"2024-01-02T03:04:05.678901","d":"2024-02-29",'
    '"m":123456789012345678901234567890123456.78,"s":{"x":"é\\""}},'
    '"nullCount":{"i":0,"s":{"x":1}},"tightBounds":false}'
)


def _without(*names: str) -> list[tuple[str, pa.DataType]]:
    return [field for field in ADD_FIELDS if field[0] not in names]


def test_struct_statistics_become_json_without_loss(builder: LogBuilder) -> None:
    fields = [*_without("stats"), ("stats_parsed", STATS_TYPE)]
    _write(_classic(builder, 1), [*HEAD, add("a", stats_parsed=STATS), add("b", stats_parsed=None)], fields)
    assert [file.stats for file in _snapshot_files(builder)] == [STATS_JSON, None]
    assert [file.stats for file in _snapshot_files(builder, Want.NOTHING)] == [None, None]


def test_json_statistics_take_precedence_over_struct_statistics(builder: LogBuilder) -> None:
    fields = [*ADD_FIELDS, ("stats_parsed", STATS_TYPE)]
    rows = [*HEAD, add("a", stats='{"numRecords":1}', stats_parsed=STATS), add("b", stats_parsed=STATS)]
    _write(_classic(builder, 1), rows, fields)
    assert [file.stats for file in _snapshot_files(builder)] == ['{"numRecords":1}', STATS_JSON]
    assert [file.stats for file in _snapshot_files(builder, Want.NOTHING)] == [None, None]
    _write(_classic(builder, 1), rows[:-1], fields)
    assert [file.stats for file in _snapshot_files(builder)] == ['{"numRecords":1}']


def test_every_row_of_several_row_groups_is_read_once(builder: LogBuilder) -> None:
    files = [add(f"f{i}") for i in range(7)]
    _write(_classic(builder, 1), [*HEAD, *files, remove("r")], row_group_size=3)
    (checkpoint,) = LogListing.read(LocalDirectory(builder.directory), "t").checkpoints[1]
    actions = list(checkpoints.read_checkpoint(LocalDirectory(builder.directory), checkpoint, Want.TOMBSTONES))
    assert [action.path for action in actions if isinstance(action, AddFile)] == [f"f{i}" for i in range(7)]
    assert [action.path for action in actions if isinstance(action, RemoveFile)] == ["r"]
    assert len(actions) == 10


@pytest.mark.parametrize(
    ("omitted", "want", "structs", "expected"),
    [
        ([], Want.STATS, False, ["partitionValues", "stats"]),
        ([], Want.STATS, True, ["partitionValues", "stats", "stats_parsed"]),
        ([], Want.NOTHING, True, ["partitionValues"]),
        (["stats"], Want.STATS, False, ["partitionValues", "stats_parsed"]),
        (["stats_parsed"], Want.STATS, True, ["partitionValues", "stats"]),
        (["partitionValues"], Want.NOTHING, False, ["partitionValues_parsed"]),
    ],
)
def test_only_the_needed_checkpoint_columns_are_read(
    tmp_path: Path, omitted: list[str], want: Want, structs: bool, expected: list[str]
) -> None:
    fields = [*ADD_FIELDS, ("stats_parsed", STATS_TYPE), ("partitionValues_parsed", pa.struct([("p", pa.int32())]))]
    _write(tmp_path / "x.parquet", [add("a")], [field for field in fields if field[0] not in omitted])
    with (tmp_path / "x.parquet").open("rb") as stream:
        rows = checkpoints.FileActions(Int96File(stream), "add", want, "x.parquet")
    alternatives = {"partitionValues", "partitionValues_parsed", "stats", "stats_parsed"}
    leaves = [leaf.removeprefix("add.") for leaf in rows.leaves(structs=structs)]
    assert [name for name in leaves if name in alternatives] == expected
    others = [name for name, _ in ADD_FIELDS if name not in alternatives]
    assert sorted(set(leaves) - alternatives) == sorted(others)


def test_missing_json_statistics_are_read_from_the_struct(builder: LogBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "BATCH_ROWS", 16)
    parsed = pa.struct([("numRecords", pa.int64())])
    files = [add(f"f{i:03}", stats='{"numRecords":1}', stats_parsed={"numRecords": 2}) for i in range(100)]
    files[70]["add"]["stats"] = None
    _write(_classic(builder, 1), [*HEAD, *files], [*ADD_FIELDS, ("stats_parsed", parsed)], row_group_size=60)
    read = _snapshot_files(builder)
    assert [file.path for file in read] == [f"f{i:03}" for i in range(100)]
    assert [file.stats for file in read].count('{"numRecords":1}') == 99
    assert read[70].stats == '{"numRecords":2}'


def test_int96_bounds_are_in_utc(builder: LogBuilder) -> None:
    stats = pa.struct([("numRecords", pa.int64()), ("maxValues", pa.struct([("t", pa.timestamp("us"))]))])
    row = add("a", stats_parsed={"numRecords": 1, "maxValues": {"t": datetime.datetime(2900, 1, 1, 0, 0, 0, 5)}})
    fields = [*_without("stats"), ("stats_parsed", stats)]
    _write(_classic(builder, 1), [*HEAD, row], fields, use_deprecated_int96_timestamps=True)
    (file,) = _snapshot_files(builder)
    assert json.loads(file.stats or "")["maxValues"] == {"t": "2900-01-01T00:00:00.000005Z"}


def test_int96_with_negative_nanoseconds_is_exact(builder: LogBuilder) -> None:
    moment = datetime.datetime(1950, 6, 1, 12)
    ends = pa.struct([("t", RAW)])
    stats = pa.struct([("numRecords", pa.int64()), ("minValues", ends), ("maxValues", ends)])
    bounds = {"numRecords": 1, "minValues": {"t": negative(moment)}, "maxValues": {"t": negative(moment)}}
    row = add("a", stats_parsed=bounds, partitionValues_parsed={"p": negative(moment)})
    fields = [
        *_without("stats", "partitionValues"),
        ("stats_parsed", stats),
        ("partitionValues_parsed", pa.struct([("p", RAW)])),
    ]
    _write(_classic(builder, 1), [*HEAD, row], fields)
    path = _classic(builder, 1)
    write_int96(pq.read_table(path), path)
    (file,) = _snapshot_files(builder)
    assert json.loads(file.stats or "")["minValues"] == {"t": "1950-06-01T12:00:00.000000+00:00"}
    assert json.loads(file.stats or "")["maxValues"] == {"t": "1950-06-01T12:00:00.000000+00:00"}
    assert file.partition_values == {"p": "1950-06-01T12:00:00.000000Z"}


def test_int96_outside_of_64_bits_names_the_checkpoint(builder: LogBuilder) -> None:
    fields = [*_without("partitionValues"), ("partitionValues_parsed", pa.struct([("p", RAW)]))]
    path = _classic(builder, 1)
    _write(path, [*HEAD, add("a", partitionValues_parsed={"p": packed(2**30, 0)})], fields)
    write_int96(pq.read_table(path), path)
    with pytest.raises(
        DataError, match=r"checkpoint file '0.*parquet' cannot be read: the INT96 timestamp 1073741824 days"
    ):
        _snapshot_files(builder)


@pytest.mark.parametrize("int96", [False, True])
@pytest.mark.parametrize(
    ("moment", "parsed"),
    [
        # Spark parsed 1850-01-01T01:01:01.000+00:53, which lacks the seconds of Stockholm's offset (+00:53:28).
        (datetime.datetime(1850, 1, 1, 0, 7, 33), datetime.datetime(1850, 1, 1, 0, 8, 1)),
        # The last day on which Africa/Monrovia had the offset -00:44:30.
        (datetime.datetime(1972, 1, 7, 0, 44, 29), datetime.datetime(1972, 1, 7, 0, 43, 59)),
    ],
)
def test_bounds_allow_for_seconds_missing_in_an_offset(
    builder: LogBuilder, moment: datetime.datetime, parsed: datetime.datetime, int96: bool
) -> None:
    ends = pa.struct([("t", pa.timestamp("us", None if int96 else "UTC"))])
    stats = pa.struct([("numRecords", pa.int64()), ("minValues", ends), ("maxValues", ends)])
    row = add("a", stats_parsed={"numRecords": 1, "minValues": {"t": parsed}, "maxValues": {"t": parsed}})
    fields = [*_without("stats"), ("stats_parsed", stats)]
    _write(_classic(builder, 1), [*HEAD, row], fields, use_deprecated_int96_timestamps=int96)
    (file,) = _snapshot_files(builder)
    schema = StructType((StructField("t", PrimitiveType("timestamp")),))
    bounds = StatisticsReader(schema, ColumnMappingMode.NONE, [], [("t",)]).read(file).bounds(("t",))
    assert bounds is not None
    assert bounds.lower <= (moment - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1) * 1000
    assert bounds.upper >= (moment - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1) * 1000


def test_struct_partition_values_become_strings(builder: LogBuilder) -> None:
    parsed = pa.struct(
        [
            ("i", pa.int32()),
            ("s", pa.string()),
            ("d", pa.date32()),
            ("t", pa.timestamp("us", tz="UTC")),
            ("n", pa.timestamp("us")),
            ("b", pa.bool_()),
            ("m", pa.decimal128(10, 2)),
            ("z", pa.decimal128(38, 18)),
            ("f", pa.float64()),
            ("x", pa.binary()),
            ("y", pa.binary()),
        ]
    )
    values = {
        "i": -1,
        "s": "é/=",
        "d": datetime.date(1, 2, 3),
        "t": INSTANT.replace(tzinfo=datetime.timezone.utc),
        "n": INSTANT,
        "b": True,
        "m": decimal.Decimal("-0.50"),
        "z": decimal.Decimal("0.000000000000000001"),
        "f": 1e300,
        "x": b"abc",
        "y": b"\xff",
    }
    nulls = dict.fromkeys(values)
    fields = [*_without("partitionValues"), ("partitionValues_parsed", parsed)]
    rows = [*HEAD, add("a", partitionValues_parsed=values), add("b", partitionValues_parsed=nulls)]
    _write(_classic(builder, 1), rows, fields)
    first, second = _snapshot_files(builder)
    assert first.partition_values == {
        "i": "-1",
        "s": "é/=",
        "d": "0001-02-03",
        "t": "2024-01-02T03:04:05.678901Z",
        "n": "2024-01-02 03:04:05.678901",
        "b": "true",
        "m": "-0.50",
        "z": "0.000000000000000001",
        "f": "1e+300",
        "x": "abc",
        "y": "\\u00FF",
    }
    assert second.partition_values == nulls


def test_equal_partition_values_share_one_dictionary(builder: LogBuilder) -> None:
    rows = [*HEAD, *(add(f"f{i:05}", partitionValues={"p": str(i % 3)}) for i in range(5_000))]
    _write(_classic(builder, 1), rows, row_group_size=700)
    files = _snapshot_files(builder)
    assert [file.path for file in files] == [f"f{i:05}" for i in range(5_000)]
    assert [file.partition_values["p"] for file in files[:4]] == ["0", "1", "2", "0"]
    assert files[0].partition_values is files[3].partition_values


# === Timestamps of every unit, and invalid checkpoints ===

NANOS = [-1_500, 1_700, 86_400_000_000_001]


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_bounds_in_nanoseconds_lose_no_digit(builder: LogBuilder, zone: str | None) -> None:
    kind = pa.timestamp("ns", zone)
    bounds = pa.struct([("t", kind)])
    stats = pa.struct([("numRecords", pa.int64()), ("minValues", bounds), ("maxValues", bounds)])
    parsed = pa.struct([("p", kind)])
    fields = [*_without("stats", "partitionValues"), ("stats_parsed", stats), ("partitionValues_parsed", parsed)]
    end = "Z" if zone else ""
    texts = ["1969-12-31 23:59:59.999998500", "1970-01-01 00:00:00.000001700", "1970-01-02 00:00:00.000000001"]
    files = []
    for nanos in NANOS:
        value = pa.scalar(nanos, pa.int64()).cast(pa.timestamp("ns")).cast(kind)
        row = add("a", stats_parsed={"numRecords": 1, "minValues": {"t": value}, "maxValues": {"t": value}})
        row["add"]["partitionValues_parsed"] = {"p": value}
        _write(_classic(builder, 1), [*HEAD, row], fields)
        files += _snapshot_files(builder)
    for file, text in zip(files, texts, strict=True):
        statistics = json.loads(file.stats or "")
        zoned = "+00:00" if zone else ""  # no seconds in the offset: the bound may be off by up to 59 s
        assert statistics["minValues"] == statistics["maxValues"] == {"t": text.replace(" ", "T") + zoned}
        assert file.partition_values == {"p": text.replace(" ", "T") + end if zone else text}


@pytest.mark.parametrize(("unit", "size"), [("s", 10**9), ("ms", 10**6), ("us", 10**3), ("ns", 1)])
def test_bounds_in_whole_microseconds_have_six_decimals(builder: LogBuilder, unit: str, size: int) -> None:
    stats = pa.struct([("maxValues", pa.struct([("t", pa.timestamp(unit))]))])
    value = pa.scalar(3_000_000_000 // size, pa.int64()).cast(pa.timestamp(unit))
    _write(
        _classic(builder, 1), [*HEAD, add("a", stats_parsed={"maxValues": {"t": value}})],
        [*_without("stats"), ("stats_parsed", stats)],
    )  # fmt: skip
    (file,) = _snapshot_files(builder)
    assert json.loads(file.stats or "")["maxValues"] == {"t": "1970-01-01T00:00:03.000000"}


def test_infinity_and_nan_become_strings(builder: LogBuilder) -> None:
    values = {"a": float("inf"), "b": float("-inf"), "c": float("nan"), "d": -0.5}
    bounds = pa.struct([(name, pa.float64()) for name in values])
    stats, parsed = pa.struct([("minValues", bounds)]), bounds
    fields = [*_without("stats", "partitionValues"), ("stats_parsed", stats), ("partitionValues_parsed", parsed)]
    row = add("a", stats_parsed={"minValues": values})
    row["add"]["partitionValues_parsed"] = values
    _write(_classic(builder, 1), [*HEAD, row], fields)
    (file,) = _snapshot_files(builder)
    assert json.loads(file.stats or "")["minValues"] == {"a": "Infinity", "b": "-Infinity", "c": "NaN", "d": -0.5}
    assert file.partition_values == {"a": "Infinity", "b": "-Infinity", "c": "NaN", "d": "-0.5"}


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()], ids=str)
def test_binary_bounds_are_omitted_but_partition_values_kept(builder: LogBuilder, kind: pa.DataType) -> None:
    stats = pa.struct(
        [("numRecords", pa.int64()), ("minValues", pa.struct([("b", kind), ("l", pa.list_(pa.int32()))]))]
    )
    fields = [*_without("stats", "partitionValues"), ("stats_parsed", stats)]
    fields.append(("partitionValues_parsed", pa.struct([("b", kind)])))
    row = add("a", stats_parsed={"numRecords": 1, "minValues": {"b": b"x", "l": [1]}})
    row["add"]["partitionValues_parsed"] = {"b": b"x\x01"}
    _write(_classic(builder, 1), [*HEAD, row], fields)
    (file,) = _snapshot_files(builder)
    assert json.loads(file.stats or "") == {"numRecords": 1, "minValues": {}}
    assert file.partition_values == {"b": "x\x01"}


def test_missing_fields_have_defaults(builder: LogBuilder) -> None:
    rows = [add("a", modificationTime=None, dataChange=None), add("b", modificationTime=7, dataChange=False)]
    _write(_classic(builder, 1), [*HEAD, *rows])
    assert [(one.modification_time, one.data_change) for one in _snapshot_files(builder)] == [(0, True), (7, False)]
    _write(_classic(builder, 1), [*HEAD, *rows], _without("modificationTime", "dataChange"))
    assert [(one.modification_time, one.data_change) for one in _snapshot_files(builder)] == [(0, True), (0, True)]


def test_struct_statistics_in_another_calendar_are_omitted(builder: LogBuilder) -> None:
    path = _classic(builder, 1)
    _write(path, [*HEAD, add("a", stats_parsed=STATS)], [*_without("stats"), ("stats_parsed", STATS_TYPE)])
    keys = {"org.apache.spark.version": "3.5.0", "org.apache.spark.legacyDateTime": ""}
    pq.write_table(pq.read_table(path).replace_schema_metadata(keys), path)
    assert [file.stats for file in _snapshot_files(builder)] == [None]


def test_unrepresentable_values_are_omitted_or_refused(builder: LogBuilder) -> None:
    beyond, moment = {"t": 2**62}, pa.struct([("t", pa.timestamp("ms"))])  # exceeds 64 bits as microseconds
    row = add("a", stats_parsed={"maxValues": beyond})
    _write(
        _classic(builder, 1), [*HEAD, row], [*_without("stats"), ("stats_parsed", pa.struct([("maxValues", moment)]))]
    )
    assert [file.stats for file in _snapshot_files(builder)] == [None]
    row["add"]["partitionValues_parsed"] = beyond
    fields = [*_without("partitionValues"), ("partitionValues_parsed", moment)]
    _write(_classic(builder, 1), [*HEAD, row], fields)
    with pytest.raises(ProtocolError, match=r"The field 'add.partitionValues_parsed' of '.*' cannot be read"):
        _snapshot_files(builder)


def test_checkpoint_with_duplicate_or_mistyped_column_is_refused(builder: LogBuilder) -> None:
    _write(_classic(builder, 1), [*HEAD, add("a")])
    table = pq.read_table(_classic(builder, 1))
    pq.write_table(table.append_column("add", table["add"]), _classic(builder, 1))
    with pytest.raises(ProtocolError, match=r"must have each column once"):
        _snapshot_files(builder)
    numbers = pa.array([None] * (len(table) - 1) + [5], pa.int64())
    pq.write_table(table.drop_columns(["add"]).append_column("add", numbers), _classic(builder, 1))
    with pytest.raises(ProtocolError, match=r"The column 'add' of '.*' must be a struct, found int64"):
        _snapshot_files(builder)


def test_error_names_an_unreadable_json_checkpoint(builder: LogBuilder) -> None:
    (builder.directory / f"{2:020}.checkpoint.{UUID}.json").mkdir()
    with pytest.raises(DataError, match=r"The checkpoint '.*json' cannot be read: Is a directory"):
        _snapshot_files(builder)
