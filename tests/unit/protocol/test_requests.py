"""Valid requests, and requests that are refused before they are sent."""

from __future__ import annotations

import pyarrow as pa
import pytest

import mock_server
from delta_sharing_client.errors import ProtocolError, UsageError
from delta_sharing_client.options import FileIdHash, ReadOptions, ResponseFormat
from delta_sharing_client.protocol.messages import (
    ASYNCHRONOUS,
    CAPABILITIES_HEADER,
    CHANGES_OF_VIEWS,
    END_STREAM_ACTION,
    capabilities,
    promises,
)
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.protocol.profile import Profile
from delta_sharing_client.protocol.query import ChangesQuery, QueryRequest, query_table
from delta_sharing_client.protocol.rest import RestClient
from tests.tables import TableWriter, rows_of

QUERY = "/shares/s/schemas/d/tables/t/query"
CHANGES = "/shares/s/schemas/d/tables/t/changes"


@pytest.mark.parametrize("value", [-1, True, "1", 1.0, 2**63])
@pytest.mark.parametrize("name", ["version", "starting_version", "ending_version"])
def test_a_version_is_a_long(name, value):
    message = f"'{name}' must be a whole number from 0 to {2**63 - 1}, found "
    for query in (QueryRequest, ChangesQuery) if name != "version" else (QueryRequest,):
        query(**{name: 0})
        query(**{name: 2**63 - 1})
        with pytest.raises(UsageError, match=message):
            query(**{name: value})


def test_refresh_token_is_not_shown():
    assert "planted" not in repr(QueryRequest(refresh_token="planted"))


def test_capabilities_name_features_only_with_delta():
    delta, parquet = ResponseFormat.DELTA, ResponseFormat.PARQUET

    assert capabilities((parquet,), ["a"]) == {CAPABILITIES_HEADER: "responseformat=parquet"}
    assert capabilities((delta,), []) == {CAPABILITIES_HEADER: "responseformat=delta"}
    full = "responseformat=delta,parquet;readerfeatures=deletionvectors,b;asyncquery=true;includeendstreamaction=true"
    flags = {ASYNCHRONOUS: True, END_STREAM_ACTION: True, CHANGES_OF_VIEWS: False}
    assert capabilities((delta, parquet), ["deletionVectors", "b"], flags) == {CAPABILITIES_HEADER: full}


@pytest.mark.parametrize(
    ("header", "promised"),
    [
        (None, False),
        ("", False),
        ("responseFormat=Delta ; includeEndStreamAction = TRUE", True),
        ("includeendstreamaction=true;responseformat=delta", True),
        ("responseformat=delta;includeendstreamaction=false", False),
        ("nonsense;;=;includeendstreamaction", False),
    ],
)
def test_promise_of_an_end_is_read_in_any_spelling(header, promised):
    headers = {} if header is None else {CAPABILITIES_HEADER: header}

    assert promises(headers, END_STREAM_ACTION) is promised


# === fileidhash ===


@pytest.mark.parametrize("wanted", list(FileIdHash))
def test_file_id_scheme_is_requested_and_must_be_confirmed(server, profile, table, wire, wanted):
    rest = RestClient(profile, ReadOptions(file_id_hash=wanted))
    lines = [*wire.delta_head(), wire.delta_file("f", wrapper={"version": 7, "timestamp": 1})]
    server.on("POST", QUERY, wire.ndjson(*lines, headers={"FileIdHash": wanted.value.upper()}))
    server.on("GET", CHANGES, wire.ndjson(*lines, headers={"fileidhash": wanted.value}))

    assert len(list(query_table(rest, table).actions)) == 1
    assert len(list(query_table(rest, table, ChangesQuery(starting_version=7)).actions)) == 1
    assert [seen.headers["fileidhash"] for seen in server.seen] == [wanted.value] * 2

    for headers, shown in (({}, "none"), ({"fileidhash": "crc"}, "'crc'"), ({"fileidhash": ""}, "''")):
        server.on("POST", QUERY, wire.ndjson(*lines, headers=headers))
        with pytest.raises(ProtocolError, match=f"file ids by the scheme '{wanted.value}'.* is {shown},"):
            query_table(rest, table)


def test_file_id_scheme_is_requested_only_if_configured(server, rest, table, wire):
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), headers={"fileidhash": "parquet"}))

    assert list(query_table(rest, table).actions) == []
    assert "fileidhash" not in server.seen[0].headers


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_file_has_one_id_in_both_formats(tmp_path, asynchronous):
    writer = TableWriter(tmp_path / "t", pa.schema([("id", pa.int64()), ("text", pa.string())]))
    writer.insert(writer.file(rows_of([1])), writer.file(rows_of([2])))
    found = {}
    with mock_server.running(tables={"s.d.t": writer.path}) as mock:
        for scheme in (None, *FileIdHash):
            for response_format in (ResponseFormat.DELTA, ResponseFormat.PARQUET):
                client = RestClient(Profile.load(mock.profile), ReadOptions(file_id_hash=scheme))
                query = QueryRequest(asynchronous=asynchronous)
                answer = query_table(client, AssetName("s", "d", "t"), query, response_format=response_format)
                found[scheme, response_format] = {action.file_id for action in answer.actions}
    for scheme in FileIdHash:
        one, other = (found[scheme, form] for form in (ResponseFormat.DELTA, ResponseFormat.PARQUET))
        assert one == other
        assert one == found[None, ResponseFormat[scheme.name]]
    assert found[None, ResponseFormat.DELTA].isdisjoint(found[None, ResponseFormat.PARQUET])
