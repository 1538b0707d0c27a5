"""The data source for batch reads and for requests of a catalog, without Spark."""

from __future__ import annotations

import gc
import json
import pathlib
import pickle
from typing import Any

import pyarrow as pa
import pytest

from delta_sharing_client.errors import (
    NotFoundError,
    RequestError,
    SchemaChangeError,
    UsageError,
)
from delta_sharing_client.protocol.profile import Profile
from delta_sharing_client.spark import datasource
from delta_sharing_client.spark.datasource import (
    LARGE_READ,
    DeltaSharingAlias,
    DeltaSharingSource,
    warn_of_large_read,
)
from delta_sharing_client.spark.served_table import ServedTable
from delta_sharing_client.spark.session_credentials import fields_of
from delta_sharing_client.spark.source_options import SparkOptions
from delta_sharing_client.spark.types import target_schema
from tests.spark.streams import FEED, ID, feed_table
from tests.tables import TableWriter, rows_of

VALUES = pa.schema([("id", pa.int64()), ("v", pa.string())])


@pytest.fixture
def writer(lake: Any) -> TableWriter:
    """A table whose versions 1 to 4 each add a file of two rows."""
    table = TableWriter(lake.root / "t", VALUES, timestamp_ms=1_600_000_000_000)
    for number in range(4):
        file = table.file(rows_of([number * 10, number * 10 + 1], v=f"v{number}"))
        table.commit(add=[file], timestamp_ms=1_600_000_060_000 + number * 60_000)
    return table


def source(lake: Any, **options: str) -> DeltaSharingSource:
    return DeltaSharingSource({"path": lake.url("t"), **options})


def parts_of(source: DeltaSharingSource, schema: Any = None) -> list[list[dict[str, Any]]]:
    """Return the rows of each partition, pickled and unpickled as Spark does."""
    schema = schema or source.schema()
    reader = pickle.loads(pickle.dumps(source)).reader(schema)
    parts = pickle.loads(pickle.dumps(reader.partitions()))
    return [[row for batch in reader.read(part) for row in batch.to_pylist()] for part in parts]


def ids(source: DeltaSharingSource) -> list[int]:
    return sorted(row["id"] for part in parts_of(source) for row in part)


def pushed(*predicates: object, **limit: int) -> str:
    return json.dumps({"predicates": predicates, **limit})


OVER_15 = {"name": ">", "children": [{"column": ["id"]}, {"type": "bigint", "value": "15"}]}

# --- batch reads ---


def test_limit_option_is_exact_and_pushed_limit_per_partition(lake: Any, writer: TableWriter) -> None:
    small = {"maxPartitionBytes": "1", "parallelism": "4"}
    assert [len(part) for part in parts_of(source(lake, **small))] == [2, 2, 2, 2]
    assert [len(part) for part in parts_of(source(lake, **small, pushed=pushed(limit=1)))] == [1]
    assert [len(part) for part in parts_of(source(lake, **small, pushed=pushed(limit=3)))] == [2, 2]
    assert [len(part) for part in parts_of(source(lake, **small, limit="3"))] == [3]
    assert [len(part) for part in parts_of(source(lake, **small, limit="3", pushed=pushed(limit=7)))] == [3]
    assert sum(map(len, parts_of(source(lake, **small, limit="5", pushed=pushed(limit=1))))) == 1
    assert sum(map(len, parts_of(source(lake, **small, limit="0")))) == 0


def test_filter_option_and_pushed_predicates_are_combined(lake: Any, writer: TableWriter) -> None:
    assert ids(source(lake)) == [0, 1, 10, 11, 20, 21, 30, 31]
    assert ids(source(lake, pushed=pushed(OVER_15))) == [20, 21, 30, 31]
    assert ids(source(lake, pushed=pushed(OVER_15), filter="id < 30")) == [20, 21]
    found = parts_of(source(lake, columns="v", filter="id = 20"))
    assert [row for part in found for row in part] == [{"v": "v2"}]


def test_version_and_timestamp_options_select_a_version(lake: Any, writer: TableWriter) -> None:
    assert ids(source(lake, versionAsOf="1")) == [0, 1]
    assert ids(source(lake, versionAsOf="0")) == []
    assert ids(source(lake, timestampAsOf="2020-09-13 12:28:45")) == [0, 1, 10, 11]


def test_reader_reads_the_version_at_its_creation(lake: Any, writer: TableWriter) -> None:
    loaded = source(lake)
    schema = loaded.schema()
    assert loaded.described_version == 4
    writer.insert(rows_of([99], v="new"))
    assert sorted(row["id"] for part in parts_of(loaded, schema) for row in part) == [0, 1, 10, 11, 20, 21, 30, 31]
    again = source(lake, loadedVersion="4")
    assert sorted(row["id"] for part in parts_of(again, schema) for row in part) == [0, 1, 10, 11, 20, 21, 30, 31]
    assert ids(source(lake)) == [0, 1, 10, 11, 20, 21, 30, 31, 99]


def test_deleted_version_error_names_both_versions(
    lake: Any, writer: TableWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = source(lake)
    schema = loaded.schema()
    writer.insert(rows_of([99], v="new"))
    plan = ServedTable._planned

    statuses: list[int | None] = [400]

    def no_history(self: Any, request: Any, *purpose: Any) -> Any:
        if request.version is not None:
            raise RequestError("no history here", status=statuses[-1])
        return plan(self, request, *purpose)

    monkeypatch.setattr(ServedTable, "_planned", no_history)
    with pytest.raises(
        SchemaChangeError, match=r"from version 4, .* to 5, .*history: no history here\. Load the table again"
    ):
        parts_of(loaded, schema)
    # Columns that have a different order for a while are not a change of the table.
    for status in (None, 500, 503):
        statuses.append(status)
        with pytest.raises(RequestError, match="no history here") as caught:
            parts_of(loaded, schema)
        assert not isinstance(caught.value, SchemaChangeError)


def test_schema_of_an_older_version_takes_one_more_request(lake: Any, writer: TableWriter) -> None:
    def asked(**options: str) -> int:
        before = sum(lake.server.stats()["requests"].values())
        source(lake, **options).schema()
        return int(sum(lake.server.stats()["requests"].values()) - before)

    assert asked() == asked(loadedVersion="4")
    assert asked(loadedVersion="3") == asked() + 1


def test_change_feed_ends_at_the_version_of_the_frame(lake: Any) -> None:
    table = feed_table(lake.root / "t")
    feed = {"readChangeFeed": "true", "startingVersion": "0"}
    loaded = source(lake, **feed)
    schema = loaded.schema()
    assert schema.names == ["id", "_change_type", "_commit_version", "_commit_timestamp"]
    table.insert(rows_of([500]))
    found = [row for part in parts_of(loaded, schema) for row in part]
    assert max(row["_commit_version"] for row in found) == 4
    assert len(found) == 17
    assert len([row for part in parts_of(source(lake, **feed)) for row in part]) == 18
    some = parts_of(source(lake, **feed, endingVersion="2", columns="id", filter="id > 1", limit="2"))
    assert len([row for part in some for row in part]) == 2
    parquet = source(lake, **feed, changeFeedColumns="parquet").schema()
    assert [field.simpleString() for field in parquet.fields] == [
        *("id:bigint", "_commit_version:bigint", "_commit_timestamp:bigint", "_change_type:string")
    ]
    only_type = source(lake, **feed, changeFeedColumns="parquet", columns="_change_type, id").schema()
    assert only_type.names == ["_change_type", "id"]


# --- refusals ---


@pytest.mark.parametrize("kind", [DeltaSharingSource, DeltaSharingAlias])
def test_writes_are_refused(kind: type[DeltaSharingSource]) -> None:
    assert kind.name() == {"DeltaSharingSource": "deltaSharing", "DeltaSharingAlias": "delta_sharing"}[kind.__name__]
    for method in ("writer", "streamWriter"):
        with pytest.raises(UsageError, match=f"The format '{kind.name()}' is read-only"):
            getattr(kind({"path": "a.b.c"}), method)(None, True)


def test_schema_error_lists_the_existing_columns(lake: Any) -> None:
    from pyspark.sql.types import LongType, StructField, StructType

    wide = pa.schema([(f"c{number:02}", pa.int64()) for number in range(20)])
    TableWriter(lake.root / "t", wide).insert([{field.name: 1 for field in wide}])
    given = StructType([StructField("none", LongType())])
    with pytest.raises(UsageError, match="has a column 'none', which the table does not have") as caught:
        source(lake).reader(given)
    assert "c11" in caught.value.message
    assert "c12" not in caught.value.message


# --- warnings and sizes ---


def test_large_read_without_filter_or_limit_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    options = SparkOptions.parse({"path": "a.b.c", "endpoint": "https://e.example", "bearerToken": "t"})
    warn_of_large_read(3, LARGE_READ, options, narrowed=False)
    warn_of_large_read(3, LARGE_READ + 1, options, narrowed=True)
    assert caplog.records == []
    warn_of_large_read(3, LARGE_READ + 1, options, narrowed=False)
    (record,) = caplog.records
    assert "The read of a.b.c downloads all columns and rows of 3 files, 4.3 GB" in record.getMessage()


def test_serialized_partition_contains_its_bytes_and_rows(lake: Any, writer: TableWriter) -> None:
    loaded = source(lake, parallelism="1")
    (part,) = loaded.reader(loaded.schema()).partitions()
    content = pickle.dumps(part)
    label = content[content.index(b"delta-sharing-size:") :][:52].decode()
    size, rows = label.removeprefix("delta-sharing-size:").split(" ")
    assert (len(size), len(rows), int(rows)) == (16, 16, 8)
    assert int(size) == sum(path.stat().st_size for path in pathlib.Path(lake.root / "t").glob("*.parquet"))
    assert lake.server.profile["bearerToken"] not in repr(part)
    narrow = source(lake, pushed=pushed(OVER_15), parallelism="1")
    (part,) = narrow.reader(narrow.schema()).partitions()
    assert b"-" * 16 in pickle.dumps(part)  # the number of remaining rows is unknown


def test_empty_partition_has_no_rows_and_others_the_schema(lake: Any, writer: TableWriter) -> None:
    loaded = source(lake)
    schema = loaded.schema()
    reader = loaded.reader(schema)
    assert list(reader.read(datasource.InputPartition(None))) == []
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert {batch.schema for batch in batches} == {target_schema(schema)}


# --- requests of a catalog ---


def told(lake: Any, **options: str) -> Any:
    return DeltaSharingSource({"profile": str(lake.server.profile_path), **options}).schema()


def test_catalog_receives_the_schema_and_version_of_a_table(lake: Any, writer: TableWriter) -> None:
    found = told(lake, tell="table", table=json.dumps(["share", "schema", "t"]))
    assert [field.simpleString() for field in found.fields] == ["id:bigint", "v:string", "note:void"]
    note = found.fields[-1].metadata
    assert note["delta-sharing-version"] == 4
    loaded = json.loads(note["delta-sharing-loaded"])
    assert json.loads(loaded.pop("schema_string"))["fields"][0]["name"] == "id"
    assert loaded == {"partition_columns": [], "table_format": "delta"}
    old = told(lake, tell="table", table=json.dumps(["share", "schema", "t"]), versionAsOf="1")
    assert old.fields[-1].metadata["delta-sharing-version"] == 1


def test_catalog_receives_the_names_in_a_namespace(lake: Any, writer: TableWriter) -> None:
    for namespace, expected in (([], ["share"]), (["share"], ["schema"]), (["share", "schema"], ["t"])):
        names = told(lake, tell="names", namespace=json.dumps(namespace)).fieldNames()
        assert names == expected or "t" in names
    settings = json.dumps({"spark.delta.sharing.profile": str(lake.server.profile_path)})
    by_setting = DeltaSharingSource({"tell": "names", "namespace": "[]", "settings": settings})
    assert by_setting.schema().fieldNames() == ["share"]


@pytest.mark.parametrize(
    ("options", "status", "sentence"),
    [
        ({"tell": "table", "table": '["share", "schema", "none"]'}, 404, "Reading the metadata of share.schema.none"),
        ({"tell": "names", "namespace": '["none"]'}, 404, "none"),
        ({"tell": "table", "table": '["share", "schema", "t"]', "limit": "x"}, 0, "Invalid value 'x'"),
        ({"tell": "table", "table": '["share", "a/b", "t"]'}, 0, "'a/b'"),
    ],
)
def test_catalog_receives_errors_with_their_status(
    lake: Any, options: dict[str, str], status: int, sentence: str
) -> None:
    (note,) = told(lake, **options).fields
    assert note.metadata["delta-sharing-status"] == status
    assert sentence in note.metadata["delta-sharing-error"]


# --- streams on older PySpark ---


@pytest.mark.parametrize(
    ("options", "number"),
    [({}, 8), ({"maxFilesPerTrigger": "1"}, 2), ({"maxBytesPerTrigger": "1b"}, 2), ({"maxFilesPerTrigger": "3"}, 6)],
)
def test_stream_options_limit_batches_on_older_pyspark(
    lake: Any, writer: TableWriter, options: dict[str, str], number: int
) -> None:
    """PySpark 4.0 and 4.1 pass neither the start of a batch nor the trigger."""
    loaded = source(lake, startingVersion="0", **options)
    reader: Any = loaded.streamReader(loaded.schema())
    start = reader.initialOffset()
    end = reader.latestOffset()
    found = [row for part in reader.partitions(start, end) for batch in reader.read(part) for row in batch.to_pylist()]
    assert len(found) == number


# --- credentials ---


def test_credentials_round_trip_through_options() -> None:
    endpoint = {"endpoint": "https://e.example"}
    for profile in (
        {"shareCredentialsVersion": 1, "bearerToken": "t", **endpoint},
        {"shareCredentialsVersion": 1, "bearerToken": "t", "expirationTime": "2099-01-02T03:04:05.006Z", **endpoint},
        {"shareCredentialsVersion": 2, "type": "basic", "username": "u", "password": "p", **endpoint},
        {
            "shareCredentialsVersion": 2,
            "type": "oauth_client_credentials",
            "clientId": "c",
            "clientSecret": "s",
            "tokenEndpoint": "https://t.example",
            "scope": "a b",
            **endpoint,
        },
    ):
        loaded = Profile.load(profile)
        fields = fields_of(loaded)
        assert fields is not None
        assert SparkOptions.parse({"path": "a.b.c", **fields}).profile == loaded


def test_error_of_a_missing_table_suggests_a_similar_name(lake: Any) -> None:
    with pytest.raises(NotFoundError, match=r"Did you mean 'share\.schema\.t'\?"):
        DeltaSharingSource({"path": lake.url("tt")}).schema()


def test_change_feed_may_start_at_a_time_before_the_table(lake: Any) -> None:
    TableWriter(lake.root / "t", ID, properties=FEED).insert(rows_of([1, 2]))
    found = parts_of(source(lake, readChangeFeed="true", startingTimestamp="1970-01-01"))
    assert sorted(row["id"] for part in found for row in part) == [1, 2]


def test_table_is_described_once_for_all_readers(
    lake: Any, writer: TableWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    described: list[object] = []
    describe = DeltaSharingSource._describe

    def counted(found: DeltaSharingSource, operation: Any) -> Any:
        described.append(operation)
        return describe(found, operation)

    monkeypatch.setattr(DeltaSharingSource, "_describe", counted)
    known, new = source(lake), source(lake)
    schema = known.schema()
    for reader in (known.batch_reader, known.streamReader):
        assert not isinstance(reader(schema), datasource.RefusedStream)
    assert len(described) == 1
    # Spark does not request the schema if the user gives one.
    for number, reader in enumerate((new.batch_reader, source(lake).streamReader), 2):
        assert not isinstance(reader(schema), datasource.RefusedStream)
        assert len(described) == number


def test_imports_of_a_python_worker_are_no_garbage() -> None:
    """PySpark's workers collect garbage after each call."""
    datasource._freeze_imports.cache_clear()
    gc.unfreeze()
    DeltaSharingSource({"path": "profile.share#s.d.t"})
    assert gc.get_freeze_count() > 10_000
    gc.unfreeze()
