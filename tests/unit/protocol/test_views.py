"""Change data feeds of shared views have no versions (delta-sharing #1005 to #1008)."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import delta_sharing_client as ds
from delta_sharing_client.protocol.query import ChangesQuery, QueryRequest, query_table
from tests.unit.protocol import wire

CHANGES = "/shares/s/schemas/d/tables/t/changes"
VIEW_CAPABILITIES = "responseformat=delta;cdfOnViews=true;includeendstreamaction=true"
END = {"endStreamAction": {}}


def data_file(server, name, **columns):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({key: pa.array(*values) for key, values in columns.items()}), sink)
    data = sink.getvalue().to_pybytes()

    def get(request):
        if "range" not in request.headers:
            return wire.Reply(200, data)
        start, stop = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers["range"]).groups()
        first = len(data) - int(stop) if not start else int(start)
        last = min(int(stop), len(data) - 1) if start and stop else len(data) - 1
        headers = {"Content-Range": f"bytes {max(first, 0)}-{last}/{len(data)}"}
        return wire.Reply(206, data[max(first, 0) : last + 1], headers)

    server.on("GET", f"/{name}", get)
    return {"url": f"{server.endpoint}/{name}", "size": len(data)}


@pytest.fixture
def view(server, profile):
    """Serve a view into which 1 and 2 were inserted and from which 1 was deleted, in the requested format."""
    one = data_file(server, "one", a=([1, 2], pa.int64()))
    two = data_file(server, "two", a=([1], pa.int64()), _change_type=(["delete"],))

    def changes(request):
        assert "cdfonviews=true" in request.headers["delta-sharing-capabilities"]
        if "responseformat=parquet" in request.headers["delta-sharing-capabilities"]:
            files = [
                wire.parquet_file("two", "cdf", **two, timestamp=2000),
                wire.parquet_file("one", "add", **one, timestamp=1000),
            ]
            return wire.ndjson(*wire.parquet_head(), *files, END, version=None, capabilities=VIEW_CAPABILITIES)
        files = [
            wire.delta_file("two", "cdc", {"timestamp": 2000}, path=two["url"], size=two["size"]),
            wire.delta_file("one", "add", {"timestamp": 1000}, path=one["url"], size=one["size"]),
        ]
        return wire.ndjson(*wire.delta_head(), *files, END, version=None, capabilities=VIEW_CAPABILITIES)

    server.on("GET", CHANGES, changes)
    return ds.SharingClient(profile, ds.ReadOptions(max_attempts=1)).table("s.d.t")


@pytest.mark.parametrize("response_format", ["auto", "delta", "parquet"])
def test_changes_of_a_view_have_no_version_column(view, response_format):
    feed = view.changes(starting_timestamp="2024-01-01", response_format=response_format)

    assert feed.schema.names == ["a", "_change_type", "_commit_timestamp"]
    rows = [
        (row["a"], row["_change_type"], row["_commit_timestamp"].timestamp()) for row in feed.to_arrow().to_pylist()
    ]
    assert rows == [(1, "insert", 1.0), (2, "insert", 1.0), (1, "delete", 2.0)]
    assert feed.where("_change_type = 'delete'").select("a").to_arrow().to_pylist() == [{"a": 1}]
    frame = feed.to_pandas()
    assert list(frame.columns) == ["a", "_change_type", "_commit_timestamp"]
    with pytest.raises(ds.UsageError, match="_commit_version"):
        feed.select("_commit_version").to_arrow()


def test_versions_of_a_view_cannot_be_requested(server, view):
    reply = wire.ndjson(*wire.delta_head(), END, version=None, capabilities=VIEW_CAPABILITIES)
    server.on("GET", CHANGES, reply)
    with pytest.raises(ds.UsageError, match="between two timestamps"):
        view.changes(1).to_arrow()
    assert "cdfonviews" not in server.requests[-1].headers["delta-sharing-capabilities"]


@pytest.mark.parametrize(
    ("wrapper", "reason"),
    [({"timestamp": 1, "version": 3}, "no version"), ({}, "must have a timestamp")],
)
def test_view_file_needs_a_timestamp_and_no_version(server, view, wrapper, reason):
    file = wire.delta_file("f", "cdc", wrapper)
    server.on("GET", CHANGES, wire.ndjson(*wire.delta_head(), file, END, version=None, capabilities=VIEW_CAPABILITIES))
    with pytest.raises(ds.ProtocolError, match=reason):
        view.changes(starting_timestamp="2024-01-01").to_arrow()


def test_change_files_with_added_files_in_a_view_are_refused(server, view):
    files = [wire.delta_file("f", kind, {"timestamp": 1}) for kind in ("cdc", "add")]
    server.on(
        "GET", CHANGES, wire.ndjson(*wire.delta_head(), *files, END, version=None, capabilities=VIEW_CAPABILITIES)
    )
    with pytest.raises(ds.UnsupportedFeatureError, match="does not define"):
        view.changes(starting_timestamp="2024-01-01").to_arrow()


def test_response_without_versions_is_refused_for_tables(server, rest, table):
    query = ChangesQuery(starting_timestamp="2024-01-01", of_view=True)
    server.on("GET", CHANGES, wire.ndjson(*wire.delta_head(), END, version=None))
    with pytest.raises(ds.ProtocolError, match="no Delta-Table-Version header"):
        query_table(rest, table, query)


@pytest.mark.parametrize("status", [400, 500])
@pytest.mark.parametrize("endpoint", ["changes", "query"])
def test_refused_historical_protocol_is_not_requested_again(server, rest, table, status, endpoint):
    def changes(request):
        if "includeHistoricalProtocol" in (request.query if endpoint == "changes" else request.body):
            return wire.error(status, "INVALID_PARAMETER_VALUE", "unknown field 'includeHistoricalProtocol'")
        return wire.ndjson(*wire.delta_head(), END)

    server.on("GET", CHANGES, changes)
    server.on("POST", CHANGES.replace("changes", "query"), changes)

    def read():
        if endpoint == "changes":
            return query_table(rest, table, ChangesQuery(starting_version=0))
        return query_table(rest, table, QueryRequest(starting_version=0))

    if status == 400:
        assert list(read().actions) == []
        assert len(server.requests) == 2
    else:
        with pytest.raises(ds.RequestError):
            read()
