"""The batch and stream readers without Spark: old servers, and tables that change between the reader's calls."""

from __future__ import annotations

import dataclasses
import itertools
import json
import pathlib
import pickle
import time
from collections.abc import Iterator
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

import mock_server
from delta_sharing_client import __version__
from delta_sharing_client.delta.features import Operation
from delta_sharing_client.delta.schema import parse_schema
from delta_sharing_client.errors import (
    AuthError,
    DataError,
    DeltaSharingError,
    ProfileError,
    ProtocolError,
    RequestError,
    SchemaChangeError,
    TransportError,
    UnsupportedFeatureError,
    UsageError,
)
from delta_sharing_client.follow.admission import BatchLimits
from delta_sharing_client.follow.follow_request import CHECKPOINT
from delta_sharing_client.follow.follower import with_way_out
from delta_sharing_client.protocol.rest import RestClient
from delta_sharing_client.sources import server_source
from delta_sharing_client.spark import datasource
from delta_sharing_client.spark.datasource import (
    HAS_DATA_SOURCES,
    HAS_LIMITS,
    DeltaSharingSource,
    StreamReader,
    default_limit,
)
from delta_sharing_client.spark.served_table import ServedTable, user_agent
from delta_sharing_client.spark.source_options import SparkOptions
from delta_sharing_client.spark.types import narrowed_columns, relation_columns, target_schema, to_spark_field
from tests.golden import corpus
from tests.regressions.hand_made import HandMadeTable
from tests.spark.streams import FEED, ID, VECTORS, changed_table, feed_table, limited
from tests.tables import TableWriter, rows_of
from tests.time_limits import Stopwatch

OWN = pathlib.Path(__file__).parent.parent / "tables_spark"
ID_SCHEMA = StructType([StructField("id", LongType())])
WIDER = pa.schema([("id", pa.int64()), ("extra", pa.string())])


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    base, tables = tmp_path_factory.mktemp("own"), {}
    for path in OWN.glob("*/expected.json"):
        name = path.parent.name
        corpus.GoldenTable(name, path.parent, json.loads(path.read_text("utf-8"))).stage(base / name)
        tables[f"golden.own.{name}"] = base / name
    with mock_server.running(tables=tables) as server:
        yield server


def stream_reader(lake: Any, **options: str) -> StreamReader:
    """A reader as Spark creates it: its source is pickled after the call of ``schema()``."""
    source = DeltaSharingSource({"path": lake.url("t"), **options})
    schema = source.schema()
    return pickle.loads(pickle.dumps(source)).streamReader(schema)  # type: ignore[no-any-return]


def rows(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        row
        for partition in reader.partitions(start, end)
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


@pytest.mark.parametrize("change", ["added", "renamed"])
def test_table_changed_between_load_and_start_is_not_misread(lake: Any, change: str) -> None:
    table = TableWriter(lake.root / "t", ID)
    table.insert(rows_of([1]))
    reader = stream_reader(lake)
    table.schema = WIDER if change == "added" else pa.schema([("renamed", pa.int64())])
    table.commit(metadata=True)
    table.insert([{"id": 2, "extra": "x"} if change == "added" else {"renamed": 2}])
    wanted = (
        "restart the query" if change == "added" else "'renamed' was dropped or renamed|'id' was dropped or renamed"
    )
    with pytest.raises(SchemaChangeError, match=wanted):
        reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    if change == "added":
        again = stream_reader(lake)
        end = again.latestOffset(again.initialOffset(), again.getDefaultReadLimit())
        assert sorted(row["id"] for row in rows(again, again.initialOffset(), end)) == [1, 2]


@pytest.mark.parametrize("wire", ["delta", "parquet"])
def test_restart_works_if_the_server_has_only_latest_metadata(
    lake: Any, monkeypatch: pytest.MonkeyPatch, wire: str
) -> None:
    """Older servers return the latest metadata for ``GET .../metadata?version=``."""
    table = TableWriter(lake.root / "t", ID)
    table.insert(rows_of([1]))
    first = stream_reader(lake, startingVersion="0", responseFormat=wire)
    begin = first.initialOffset()
    offset = first.latestOffset(begin, first.getDefaultReadLimit())
    table.schema = WIDER
    table.commit(metadata=True)
    table.insert([{"id": 2, "extra": "x"}])
    known = server_source.table_metadata

    def latest_only(*arguments: Any, version: int | None = None, **named: Any) -> Any:
        head = known(*arguments, **named)
        if version not in (None, head.version):
            raise ProtocolError(f"asked for version {version}, found version {head.version}")
        return head

    monkeypatch.setattr(server_source, "table_metadata", latest_only)
    again = stream_reader(lake, startingVersion="0", responseFormat=wire)
    end = again.latestOffset(json.loads(json.dumps(offset)), again.getDefaultReadLimit())
    assert rows(again, offset, end) == [{"id": 2, "extra": "x"}]
    assert DeltaSharingSource({"path": lake.url("t"), "versionAsOf": "1"}).schema().names == ["id"]
    with pytest.raises(ProtocolError, match="asked for version 9"):
        DeltaSharingSource({"path": lake.url("t"), "versionAsOf": "9"}).schema()


@limited
def test_restart_in_another_format_reads_the_remaining_rows(lake: Any) -> None:
    table = TableWriter(lake.root / "t", ID)
    table.insert(*(rows_of([number]) for number in range(3)))
    table.insert(rows_of([3]))
    first = stream_reader(lake, responseFormat="parquet", maxFilesPerTrigger="2", startingVersion="1")
    offset = first.latestOffset(first.initialOffset(), first.getDefaultReadLimit())
    assert (offset["tableVersion"], offset["index"], offset["responseFormat"]) == (1, 1, "parquet")

    again = stream_reader(lake, responseFormat="delta", maxVersionsPerRpc="1")
    found = []
    while (end := again.latestOffset(offset, datasource.ReadAllAvailable())) != offset:
        found.append([row["id"] for row in rows(again, offset, end)])
        offset = end
    assert [len(batch) for batch in found] == [1, 1]
    assert found[1] == [3]


def test_schema_that_contradicts_the_columns_option_is_refused(lake: Any) -> None:
    schema = pa.schema([("id", pa.int64()), ("s", pa.struct([("x", pa.int64()), ("y", pa.string())]))])
    TableWriter(lake.root / "t", schema)
    options = SparkOptions.parse({"path": lake.url("t"), "columns": "s.x"})
    described = ServedTable(options, Operation.SNAPSHOT).describe()
    text = described.metadata.schema_string
    chosen = relation_columns(text, options).schema
    assert narrowed_columns(text, options, chosen).paths == (("s", "x"),)
    whole = StructType([to_spark_field(field, field.name) for field in parse_schema(text)])
    for wanted in (whole, type(whole)([whole["id"]]), type(whole)([whole["s"]])):
        with pytest.raises(UsageError, match="use only one of the two"):
            narrowed_columns(text, options, wanted)


def test_default_limit_is_1000_files_or_the_given_bytes(lake: Any) -> None:
    TableWriter(lake.root / "t", ID)
    assert stream_reader(lake)._follower.budget() == BatchLimits(1000, None)
    assert stream_reader(lake, maxBytesPerTrigger="2k")._follower.budget() == BatchLimits(None, 2048)
    assert stream_reader(lake, maxBytesPerTrigger="2k", maxFilesPerTrigger="3")._follower.budget() == BatchLimits(
        3, 2048
    )


@limited
def test_default_limit_becomes_sparks_read_limit_object() -> None:
    from pyspark.sql.streaming.datasource import ReadMaxBytes, ReadMaxFiles

    assert default_limit(BatchLimits(1000, None)) == ReadMaxFiles(1000)
    assert default_limit(BatchLimits(None, 2048)) == ReadMaxBytes(2048)


@pytest.mark.parametrize("options", [{"startingVersion": "0", "skipChangeCommits": "true"}, {}])
def test_offset_at_the_end_is_the_start_of_the_next_version(lake: Any, options: dict[str, str]) -> None:
    table = changed_table(lake.root / "t")
    reader = stream_reader(lake, **options)
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    expected = {
        "sourceVersion": 1,
        "tableId": table.table_id,
        "tableVersion": 6,
        "index": -1,
        "isStartingVersion": False,
    }
    assert list(end.items())[:5] == list(expected.items())
    assert reader.reportLatestOffset()["tableVersion"] == 6


@pytest.mark.skipif(not HAS_DATA_SOURCES, reason="PySpark 3.5 has no streams of Python, and no variants")
@pytest.mark.parametrize("name", sorted(path.parent.name for path in OWN.glob("*/expected.json")))
def test_streamed_snapshot_equals_the_batch_read(name: str, own_server: Any) -> None:
    """All features alone and in pairs: deletion vectors, column mapping, widening, variant, char, void, both
    timestamp types."""
    for wire in ("delta", "parquet"):
        options = {"path": f"{own_server.profile_path}#golden.own.{name}", "responseFormat": wire}
        source = DeltaSharingSource(options)
        try:
            schema = source.schema()
        except DeltaSharingError:
            assert wire == "parquet"
            continue
        sent = pickle.dumps(source)
        batch = source.reader(schema)
        expected = [row for part in batch.partitions() for found in batch.read(part) for row in found.to_pylist()]
        stream = pickle.loads(sent).streamReader(schema)
        end = stream.latestOffset(stream.initialOffset(), None)
        assert sorted(map(repr, rows(stream, stream.initialOffset(), end))) == sorted(map(repr, expected))
        assert {found.schema for part in batch.partitions() for found in batch.read(part)} <= {target_schema(schema)}


def test_start_by_timestamp_skips_versions_without_data(lake: Any) -> None:
    start = 1_600_000_000_000
    table = TableWriter(lake.root / "t", ID, timestamp_ms=start)
    files = [table.file(rows_of([i])) for i in (1, 2)]
    table.commit(add=files, timestamp_ms=start + 60_000)
    table.commit(add=[table.file(rows_of([1, 2]))], remove=files, data_change=False, timestamp_ms=start + 120_000)
    reader = stream_reader(lake, startingTimestamp="2020-09-13T12:28:00Z")
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert (end["firstVersion"], end["tableVersion"], rows(reader, reader.initialOffset(), end)) == (2, 3, [])
    table.insert(rows_of([3]))
    again = stream_reader(lake)
    assert rows(again, end, again.latestOffset(end, again.getDefaultReadLimit())) == [{"id": 3}]


@pytest.mark.parametrize("window", ["1", "2", "3", "100"])
def test_schema_change_at_a_window_edge_is_detected(lake: Any, window: str) -> None:
    table = TableWriter(lake.root / "t", ID)
    for i in range(1, 4):
        table.insert(rows_of([i]))
    reader = stream_reader(lake, startingVersion="0", maxVersionsPerRpc=window)
    table.schema = WIDER
    table.commit(metadata=True, add=[table.file([{"id": 4, "extra": "x"}])])
    positions, delivered = [reader.initialOffset()], []

    def follow() -> None:
        while True:
            positions.append(reader.latestOffset(positions[-1], reader.getDefaultReadLimit()))
            delivered.extend(rows(reader, *positions[-2:]))

    with pytest.raises(SchemaChangeError, match=r"in version 4: columns were added; restart"):
        follow()
    assert [row["id"] for row in delivered] == [1, 2, 3]
    position = positions[-1]
    again = stream_reader(lake, startingVersion="0", maxVersionsPerRpc=window)
    end = again.latestOffset(position, again.getDefaultReadLimit())
    assert rows(again, position, end) == [{"id": 4, "extra": "x"}]


def test_file_removed_and_added_again_counts_in_each_version(lake: Any) -> None:
    table = TableWriter(lake.root / "t", ID)
    file = table.file(rows_of([1, 2]))
    table.insert(file)
    table.commit(remove=[file])
    table.insert(file)
    reader = stream_reader(lake, startingVersion="0", ignoreDeletes="true")
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    partitions = reader.partitions(reader.initialOffset(), end)
    lake.server.expire_urls()
    found = [row["id"] for part in partitions for batch in reader.read(part) for row in batch.to_pylist()]
    assert found == [1, 2, 1, 2]


def test_negative_version_is_refused(lake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    TableWriter(lake.root / "t", ID)
    reader = stream_reader(lake)
    monkeypatch.setattr(RestClient, "table_version", lambda *_: -1)
    for ask in (reader.prepareForTriggerAvailableNow, lambda: reader.latestOffset(reader.initialOffset(), None)):
        with pytest.raises(ProtocolError, match="0 or more, found -1"):
            ask()


def test_column_added_before_the_stream_is_null_in_older_files(lake: Any) -> None:
    table = TableWriter(lake.root / "t", ID, properties=FEED)
    table.insert(rows_of([1]))
    table.schema = WIDER
    table.commit(metadata=True)
    table.insert([{"id": 2, "extra": "x"}])
    reader = stream_reader(lake, readChangeFeed="true", startingVersion="0")
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    found = rows(reader, reader.initialOffset(), end)
    assert [(row["id"], row["extra"], row["_change_type"], row["_commit_version"]) for row in found] == [
        (1, None, "insert", 1),
        (2, "x", "insert", 3),
    ]


def test_special_characters_in_values_and_names_are_kept(lake: Any) -> None:
    value = "a b/%20=ü'\"{}😀"
    schema = pa.schema([("id", pa.int64()), ("odd `name`, ü.%", pa.string()), ("part=%/ü", pa.string())])
    table = TableWriter(lake.root / "t", schema, partition_by=["part=%/ü"])
    table.insert([{"id": 1, "odd `name`, ü.%": value, "part=%/ü": value}])
    reader = stream_reader(lake)
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert rows(reader, reader.initialOffset(), end) == [{"id": 1, "odd `name`, ü.%": value, "part=%/ü": value}]


def feed_of(lake: Any, **options: str) -> list[dict[str, Any]]:
    source = DeltaSharingSource({"path": lake.url("t"), "readChangeFeed": "true", **options})
    reader = source.reader(source.schema())
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def test_change_feed_has_its_requested_versions(lake: Any) -> None:
    table = feed_table(lake.root / "t")
    table.commit(metadata=True)
    assert [len(feed_of(lake, startingVersion=str(start))) for start in range(6)] == [17, 17, 15, 12, 4, 0]
    assert len(feed_of(lake, startingVersion="2", endingVersion="3")) == 11
    assert len(feed_of(lake, startingVersion="3", filter="_change_type LIKE 'update%' AND id > 100")) == 4
    for options in ({"startingVersion": "9"}, {"startingTimestamp": "9999-01-01"}):
        with pytest.raises(DeltaSharingError, match=r"share\.schema\.t"):
            feed_of(lake, **options)


def test_change_feed_fails_only_for_vacuumed_versions(lake: Any) -> None:
    table = TableWriter(lake.root / "t", ID, properties=FEED)
    files = [table.file(rows_of([i])) for i in range(3)]
    for file in files:
        table.insert(file)
    (table.path / files[0].path).unlink()
    assert [row["id"] for row in feed_of(lake, startingVersion="2")] == [1, 2]
    with pytest.raises(DataError, match=r"it is missing.*share\.schema\.t"):
        feed_of(lake, startingVersion="1")
    deltalake.DeltaTable(str(table.path)).create_checkpoint()
    for version in range(3):
        (table.path / "_delta_log" / f"{version:020d}.json").unlink()
    assert [row["id"] for row in feed_of(lake, startingVersion="3")] == [2]
    with pytest.raises(DeltaSharingError, match=r"share\.schema\.t"):
        feed_of(lake, startingVersion="1")


@pytest.mark.skipif(not HAS_DATA_SOURCES, reason="PySpark 3.5 has no streams of Python, and no variants")
def test_change_feeds_as_streams_equal_batch_reads(own_server: Any) -> None:
    checked = 0
    for path in OWN.glob("*/expected.json"):
        queries = corpus.GoldenTable(path.parent.name, path.parent, {}).change_queries
        if queries:
            options = {
                "path": f"{own_server.profile_path}#golden.own.{path.parent.name}",
                "readChangeFeed": "true",
                "startingVersion": str(min(int(str(query["start_version"])) for query in queries)),
            }
            source = DeltaSharingSource(options)
            schema = source.schema()
            batch, stream = source.reader(schema), source.streamReader(schema)
            end = stream.latestOffset(stream.initialOffset(), None)
            expected = [row for part in batch.partitions() for found in batch.read(part) for row in found.to_pylist()]
            assert sorted(map(repr, rows(stream, stream.initialOffset(), end))) == sorted(map(repr, expected))
            checked += 1
    assert checked >= 10


def test_table_without_columns_is_a_provider_error(lake: Any) -> None:
    TableWriter(lake.root / "t", pa.schema([]))
    source = DeltaSharingSource({"path": lake.url("t")})
    with pytest.raises(DataError, match=r"has no columns.*share\.schema\.t"):
        source.schema()


def restarted(reader_of: Any, offset: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows that a query reads up to the end of the table when it is restarted at ``offset``."""
    reader, found = reader_of(), []
    while (end := reader.latestOffset(offset, reader.getDefaultReadLimit())) != offset:
        found += rows(reader, offset, end)
        offset = json.loads(json.dumps(end))
    return found


@limited
@pytest.mark.parametrize("wire", ["delta", "parquet"])
@pytest.mark.parametrize(
    ("before", "after", "dropped_in", "left_out"),
    [
        # Each letter is a commit: r rows, d drop, a add, m metadata only. The stream stops after ``before``.
        ("r", "d", 2, None),
        ("r", "dr", 2, None),
        ("r", "rrdr", 4, "the versions 2 to 3"),
        ("rr", "rrrrmrdmrr", 9, "the versions 3 to 8"),
        ("r", "rddr", 3, "version 2, which is not read yet, is then left"),
        ("d", "arrdr", 5, "the versions 2 to 4"),
    ],
)
def test_error_of_a_dropped_column_has_its_version_and_remedy(
    lake: Any, wire: str, before: str, after: str, dropped_in: int, left_out: str | None
) -> None:
    table = TableWriter(lake.root / "t", WIDER)
    steps = itertools.count()

    def play(events: str) -> None:
        for event in events:
            if event == "r":
                number = next(steps)
                table.insert([{"id": number, **({"extra": "x"} if "extra" in table.schema.names else {})}])
            else:
                table.schema = ID if event == "d" else WIDER if event == "a" else table.schema
                table.commit(metadata=True)

    play(before)
    first = stream_reader(lake, startingVersion="1", responseFormat=wire)
    offset = json.loads(json.dumps(first.latestOffset(first.initialOffset(), first.getDefaultReadLimit())))
    read = {row["id"] for row in rows(first, first.initialOffset(), offset)}
    play(after)
    for _ in range(2):  # a second restart has the same error
        with pytest.raises(SchemaChangeError) as caught:
            restarted(lambda: stream_reader(lake, startingVersion="1", responseFormat=wire), offset)
        message = caught.value.message
        assert f"in version {dropped_in}: column 'extra' was dropped or renamed" in message
        assert "columns were added" not in message
        assert f"'startingVersion' {dropped_in} to go on" in message
        assert ("left out" in message) == (left_out is not None)
        assert left_out is None or left_out in message
    anew = stream_reader(lake, startingVersion=str(dropped_in), responseFormat=wire)
    assert not read & {row["id"] for row in restarted(lambda: anew, anew.initialOffset())}


def test_column_dropped_during_a_stream_becomes_null(lake: Any) -> None:
    table = TableWriter(lake.root / "t", WIDER)
    table.insert([{"id": 1, "extra": "x"}])
    running = stream_reader(lake, startingVersion="0", queryTableVersionIntervalSeconds="10")
    offset = running.latestOffset(running.initialOffset(), running.getDefaultReadLimit())
    table.schema = ID
    table.commit(metadata=True)
    table.insert(rows_of([2]))
    running.prepareForTriggerAvailableNow()
    end = running.latestOffset(offset, running.getDefaultReadLimit())
    assert rows(running, offset, end) == [{"id": 2, "extra": None}]
    table.insert(rows_of([3]))
    assert restarted(lambda: stream_reader(lake, startingVersion="0"), end) == [{"id": 3}]


@limited
@pytest.mark.parametrize("wire", ["delta", "parquet"])
@pytest.mark.parametrize("kind", [{}, {"readChangeFeed": "true"}])
@pytest.mark.parametrize(("before", "after"), [(pa.int32(), pa.int64()), (pa.int8(), pa.float64())])
def test_widened_column_stops_a_stream_once(
    lake: Any, wire: str, kind: dict[str, str], before: pa.DataType, after: pa.DataType
) -> None:
    table = TableWriter(lake.root / "t", pa.schema([("id", pa.int64()), ("number", before)]), properties=FEED)
    table.insert([{"id": 1, "number": 1}])
    options = {"startingVersion": "0", "responseFormat": wire, **kind}
    running = stream_reader(lake, **options)
    table.insert([{"id": 2, "number": 2}])
    table.schema = pa.schema([("id", pa.int64()), ("number", after)])
    assert table.commit(metadata=True) == 3
    table.insert([{"id": 4, "number": 2**40}])
    end = running.latestOffset(running.initialOffset(), running.getDefaultReadLimit())
    found = rows(running, running.initialOffset(), end)
    assert [(row["id"], row["number"]) for row in found] == [(1, 1), (2, 2)]
    with pytest.raises(SchemaChangeError, match=r"in version 3: column 'number' was widened .*; restart the query"):
        running.latestOffset(end, running.getDefaultReadLimit())
    again = restarted(lambda: stream_reader(lake, **options), end)
    assert [(row["id"], row["number"]) for row in again] == [(4, 2**40)]
    anew = restarted(lambda: stream_reader(lake, **options), running.initialOffset())
    assert [(row["id"], row["number"]) for row in anew] == [(1, 1), (2, 2), (4, 2**40)]


def test_drop_and_add_in_one_commit_stop_a_running_stream(lake: Any) -> None:
    table = TableWriter(lake.root / "t", WIDER)
    table.insert([{"id": 1, "extra": "x"}])
    reader = stream_reader(lake, startingVersion="0")
    table.schema = pa.schema([("id", pa.int64()), ("other", pa.string())])
    table.commit(metadata=True)
    table.insert([{"id": 2, "other": "y"}])
    with pytest.raises(SchemaChangeError, match=r"version 2: column 'extra' was dropped.*'startingVersion' 2 to go on"):
        restarted(lambda: reader, reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit()))


# --- errors that stop a stream suggest a remedy ---


def gone(lake: Any) -> TableWriter:
    table = TableWriter(lake.root / "t", ID)
    file = table.file(rows_of([1]))
    table.insert(file)
    (table.path / file.path).unlink()
    return table


def test_vacuumed_file_error_suggests_a_new_checkpoint(lake: Any, caplog: pytest.LogCaptureFixture) -> None:
    gone(lake)
    reader = stream_reader(lake, startingVersion="0")
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, reader.getDefaultReadLimit())
    with pytest.raises(DataError, match=r"vacuumed.*choose a new one.*'startingVersion'") as caught:
        rows(reader, begin, end)
    assert "query the table again" not in str(caught.value)
    assert "share.schema.t" in str(caught.value)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        f"The stream of share.schema.t stops. {caught.value}"
    ]


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (TransportError("No answer."), "'maxOutage'"),
        (RequestError("Busy.", status=503), "'maxOutage'"),
        (RequestError("What?", status=400), "If it stops here each time, delete the checkpoint"),
        (AuthError("Refused."), "Renew the credentials"),
        (ProfileError("Expired."), "Renew the credentials"),
        (UnsupportedFeatureError("Upgrade.", feature="x"), "Then restart the query: it continues"),
        (DataError("Broken; ask the provider."), "delete the checkpoint or choose a new one, and restart the query."),
    ],
)
def test_every_stream_error_ends_with_its_remedy_once(error: DeltaSharingError, advice: str) -> None:
    before = error.message
    told = with_way_out(with_way_out(error, CHECKPOINT), CHECKPOINT)
    assert told.message.startswith(before.rstrip("."))
    assert told.message.count(advice) == 1
    assert "estart the query" in told.message
    assert told.message.endswith(".")


@pytest.mark.parametrize("options", [{}, {"readChangeFeed": "true"}])
def test_filter_on_unknown_column_fails_at_load(lake: Any, options: dict[str, str]) -> None:
    TableWriter(lake.root / "t", ID, properties=FEED)
    for condition in ("idd = 1", "id = 1 AND no_such IS NULL", "id = 'x'"):
        with pytest.raises(UsageError, match=r"[Cc]olumn 'id'|idd|no_such"):
            DeltaSharingSource({"path": lake.url("t"), "filter": condition, **options}).schema()
    fits = {"filter": "_commit_version > 1" if options else "id > 1"}
    assert "id" in DeltaSharingSource({"path": lake.url("t"), **fits, **options}).schema().names


def test_batch_without_a_start_follows_the_last_one(lake: Any) -> None:
    # PySpark 4.0 and 4.1 ask for the end of a batch without its start.
    table = TableWriter(lake.root / "t", ID)
    for number in range(3):
        table.insert(rows_of([number]))
    reader = stream_reader(lake, maxFilesPerTrigger="1")
    begin, found = reader.initialOffset(), []
    while (end := reader.latestOffset()) != begin:
        found.append([row["id"] for row in rows(reader, begin, end)])
        begin = end
    assert sorted(found) == [[0], [1], [2]]


def test_commit_drops_the_lists_of_finished_batches(lake: Any) -> None:
    TableWriter(lake.root / "t", ID).insert(rows_of([1]))
    reader = stream_reader(lake, startingVersion="0")
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, reader.getDefaultReadLimit())
    assert rows(reader, begin, end) == [{"id": 1}]
    assert reader._follower._window is not None
    reader.commit(end)
    assert reader._follower._window is None


def test_stream_reads_only_the_requested_columns(lake: Any) -> None:
    TableWriter(lake.root / "t", WIDER).insert([{"id": 1, "extra": "x"}])
    reader = stream_reader(lake, columns="id")
    begin = reader.initialOffset()
    [partition] = reader.partitions(begin, reader.latestOffset(begin, reader.getDefaultReadLimit()))
    assert partition.part._context.output_schema.names == ["id"]  # type: ignore[attr-defined]
    assert [row for batch in reader.read(partition) for row in batch.to_pylist()] == [{"id": 1}]


# --- retries, deadlines, outages ---


def test_retry_and_timeout_options_reach_the_read_and_tasks(lake: Any) -> None:
    TableWriter(lake.root / "t", ID).insert(rows_of([1]))
    given = {
        "maxAttempts": "3",
        "maxRetrySeconds": "5m",
        "connectTimeout": "2",
        "readTimeout": "7s",
        "totalTimeout": "1h",
    }
    reader = DeltaSharingSource({"path": lake.url("t"), **given}).reader(ID_SCHEMA)
    [partition] = reader.partitions()
    for options in (reader._table.read_options, partition.part._context.options):  # type: ignore[attr-defined]
        assert (options.max_attempts, options.max_retry_seconds) == (3, 300)
        assert (options.connect_timeout, options.read_timeout, options.total_timeout) == (2, 7, 3600)


def test_user_agent_tells_streams_from_batches() -> None:
    for operation, product in ((Operation.STREAMING, "SparkStructuredStreaming"), (Operation.SNAPSHOT, "Spark")):
        client, spark, python = user_agent(operation, None).split(" ")
        assert client == f"delta-sharing-client-{product}/{__version__}"
        assert (spark.partition("/")[0], python.partition("/")[0]) == ("PySpark", "Python")
        assert user_agent(operation, "acme") == f"{client} {spark} {python} callerOrg-acme"


def test_files_with_deletion_vectors_stay_within_the_limit(lake: Any) -> None:
    table = TableWriter(lake.root / "t", ID, **VECTORS)
    files = [table.file(rows_of([2 * i, 2 * i + 1])) for i in range(7)]
    table.insert(*files)
    table.commit(remove=files, add=[file.deleting(0) for file in files])
    reader = stream_reader(lake, startingVersion="2", ignoreChanges="true", maxFilesPerTrigger="2")
    offset, found = reader.initialOffset(), []
    while (end := reader.latestOffset(offset, reader.getDefaultReadLimit())) != offset:
        found.append([row["id"] for row in rows(reader, offset, end)])
        offset = json.loads(json.dumps(end))
    assert [len(ids) for ids in found] == [2, 2, 2, 1] if HAS_LIMITS else True
    assert sorted(itertools.chain(*found)) == [1, 3, 5, 7, 9, 11, 13]


def test_large_read_without_options_warns_once(lake: Any, caplog: pytest.LogCaptureFixture) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
    table = TableWriter(lake.root / "t", schema)
    table.insert(table.file([{"id": 1, "v": "a"}]))

    def warnings(**options: str) -> list[str]:
        caplog.clear()
        source = DeltaSharingSource({"path": lake.url("t"), **options})
        source.reader(source.schema()).partitions()
        return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]

    assert warnings() == []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasource, "LARGE_READ", 10)
        [message] = warnings()
        assert all(word in message for word in ("share.schema.t", "'where'", "'select'", "'columns'", "'filter'"))
        assert warnings(columns="id") == warnings(filter="id > 0") == warnings(limit="1") == []
        source = DeltaSharingSource({"path": lake.url("t")})
        narrowed = StructType([source.schema()["id"]])
        source.reader(narrowed).partitions()
        assert not [record for record in caplog.records if record.levelname == "WARNING"]


# --- the cost of planning ---


def test_snapshots_and_micro_batches_take_two_requests_each(tmp_path: pathlib.Path) -> None:
    table = TableWriter(tmp_path / "share" / "schema" / "t", ID)
    file = table.file(rows_of([1]))
    table.commit(add=[dataclasses.replace(file, path=f"part-{number}.parquet") for number in range(10_000)])
    # The server runs in its own process, so that its processor time does not count.
    with mock_server.running(tmp_path, process=True) as server:
        source = DeltaSharingSource({"path": f"{server.profile_path}#share.schema.t", "maxFilesPerTrigger": "20000"})
        schema = source.schema()
        reader = pickle.loads(pickle.dumps(source)).streamReader(schema)
        server.reset_stats()
        clock = Stopwatch(time.process_time)
        begin = reader.initialOffset()
        end = reader.latestOffset(begin, reader.getDefaultReadLimit())
        parts = reader.partitions(begin, end)
        pickle.dumps(list(parts))
        assert clock.within(2)
        assert sum(part.part.files for part in parts) == 10_000
        assert server.stats()["requests"] == {"version": 1, "query": 1}
        for number in range(3):
            table.insert(rows_of([number]))
            reader._follower.clock._asked_at = None  # simulates that the polling interval has passed
            server.reset_stats()
            clock = Stopwatch(time.process_time)
            following = reader.latestOffset(end, reader.getDefaultReadLimit())
            assert len(reader.partitions(end, following)) == 1
            reader.commit(end)
            for _ in range(1000):  # polling without new versions
                assert reader.latestOffset(following, reader.getDefaultReadLimit()) == following
            assert clock.within(0.3)
            assert server.stats()["requests"] == {"version": 1, "query": 1}
            end = following


# --- columns of unknown types ---


def test_read_that_would_silently_drop_columns_is_refused(lake: Any) -> None:
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("id", "long"), ("odd", "quaternion"), ("b", "string"))
    ]
    table = HandMadeTable(lake.root / "t").create(json.dumps({"type": "struct", "fields": fields}))
    table.commit(table.file(pa.table({"id": [1], "odd": [b"q"], "b": ["x"]})))
    source = DeltaSharingSource({"path": lake.url("t")})
    with pytest.raises(UnsupportedFeatureError, match=r"The DataFrame of '.*' leaves out .* 'odd' \(quaternion\)"):
        source.schema()

    named = DeltaSharingSource({"path": lake.url("t"), "columns": "id, b"})
    schema = named.schema()
    assert schema.names == ["id", "b"]
    # A schema given by the user may also contain these columns.
    for chosen in (schema, StructType([schema["id"]])):
        for one in (named, pickle.loads(pickle.dumps(source))):
            assert one.reader(chosen).partitions()
            assert one.streamReader(chosen).initialOffset()
