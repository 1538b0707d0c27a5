"""The readers without Spark around them: servers that know less, tables that change at awkward moments."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pyarrow as pa
import pytest

from delta_sharing_client.delta.features import Operation
from delta_sharing_client.delta.schema import parse_schema
from delta_sharing_client.errors import ProtocolError, SchemaChangeError, UsageError
from delta_sharing_client.spark import served_table
from delta_sharing_client.spark.columns import narrowed_columns, relation_columns
from delta_sharing_client.spark.datasource import DeltaSharingSource
from delta_sharing_client.spark.options import SparkOptions
from delta_sharing_client.spark.served_table import ServedTable
from delta_sharing_client.spark.stream import StreamReader
from delta_sharing_client.spark.types import to_spark_schema
from tests.spark.streams import ID
from tests.tables import TableWriter, rows_of

WIDER = pa.schema([("id", pa.int64()), ("extra", pa.string())])


def stream_reader(lake: Any, **options: str) -> StreamReader:
    """A reader as Spark makes it: of a source whose ``schema()`` was asked before it was pickled."""
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
def test_table_that_changes_between_load_and_start_is_not_read_under_the_old_schema(lake: Any, change: str) -> None:
    table = TableWriter(lake.root / "t", ID)
    table.insert(rows_of([1]))
    reader = stream_reader(lake)
    table.schema = WIDER if change == "added" else pa.schema([("renamed", pa.int64())])
    table.commit(metadata=True)
    table.insert([{"id": 2, "extra": "x"} if change == "added" else {"renamed": 2}])
    wanted = "restart the query" if change == "added" else "'renamed' is dropped or renamed|'id' is dropped or renamed"
    with pytest.raises(SchemaChangeError, match=wanted):
        reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    if change == "added":
        again = stream_reader(lake)
        end = again.latestOffset(again.initialOffset(), again.getDefaultReadLimit())
        assert sorted(row["id"] for row in rows(again, again.initialOffset(), end)) == [1, 2]


@pytest.mark.parametrize("wire", ["delta", "parquet"])
def test_server_that_tells_no_metadata_of_a_version_does_not_stop_a_restart(
    lake: Any, monkeypatch: pytest.MonkeyPatch, wire: str
) -> None:
    """Older servers answer ``GET .../metadata?version=`` with the latest."""
    table = TableWriter(lake.root / "t", ID)
    table.insert(rows_of([1]))
    first = stream_reader(lake, startingVersion="0", responseFormat=wire)
    begin = first.initialOffset()
    offset = first.latestOffset(begin, first.getDefaultReadLimit())
    table.schema = WIDER
    table.commit(metadata=True)
    table.insert([{"id": 2, "extra": "x"}])
    known = served_table.table_metadata

    def latest_only(*arguments: Any, version: int | None = None, **named: Any) -> Any:
        head = known(*arguments, **named)
        if version not in (None, head.version):
            raise ProtocolError(f"asked for version {version}, found version {head.version}")
        return head

    monkeypatch.setattr(served_table, "table_metadata", latest_only)
    again = stream_reader(lake, startingVersion="0", responseFormat=wire)
    end = again.latestOffset(json.loads(json.dumps(offset)), again.getDefaultReadLimit())
    assert rows(again, offset, end) == [{"id": 2, "extra": "x"}]
    assert DeltaSharingSource({"path": lake.url("t"), "versionAsOf": "1"}).schema().names == ["id"]
    with pytest.raises(ProtocolError, match="asked for version 9"):
        DeltaSharingSource({"path": lake.url("t"), "versionAsOf": "9"}).schema()


def test_breaking_change_is_seen_at_a_restart_whoever_tells_the_metadata(lake: Any) -> None:
    table = TableWriter(lake.root / "t", ID)
    table.insert(rows_of([1]))
    first = stream_reader(lake)
    offset = first.latestOffset(first.initialOffset(), first.getDefaultReadLimit())
    table.schema = pa.schema([("id", pa.string())])
    table.commit(metadata=True)
    again = stream_reader(lake)
    with pytest.raises(SchemaChangeError, match=r"changes its type from long to string.*'startingVersion' 2"):
        again.latestOffset(offset, again.getDefaultReadLimit())


def test_schema_given_and_option_columns_must_agree(lake: Any) -> None:
    schema = pa.schema([("id", pa.int64()), ("s", pa.struct([("x", pa.int64()), ("y", pa.string())]))])
    TableWriter(lake.root / "t", schema)
    options = SparkOptions.parse({"path": lake.url("t"), "columns": "s.x"})
    described = ServedTable(options, Operation.SNAPSHOT).describe()
    text = described.metadata.schema_string
    chosen = relation_columns(text, options).schema
    assert narrowed_columns(text, options, chosen).paths == (("s", "x"),)
    whole = to_spark_schema(parse_schema(text))
    for wanted in (whole, type(whole)([whole["id"]]), type(whole)([whole["s"]])):
        with pytest.raises(UsageError, match="use one of the two"):
            narrowed_columns(text, options, wanted)
