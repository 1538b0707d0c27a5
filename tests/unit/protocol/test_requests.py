"""Fields and capabilities of requests, and the scheme of file ids."""

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
from tests.unit.protocol import wire

QUERY = "/shares/s/schemas/d/tables/t/query"
CHANGES = "/shares/s/schemas/d/tables/t/changes"


@pytest.mark.parametrize("value", [-1, True, "1", 1.0, 2**63])
@pytest.mark.parametrize("name", ["version", "starting_version", "ending_version"])
def test_version_must_be_a_non_negative_int64(name, value):
    message = f"'{name}' must be a whole number from 0 to {2**63 - 1}, found "
    for query in (QueryRequest, ChangesQuery) if name != "version" else (QueryRequest,):
        query(**{name: 0})
        query(**{name: 2**63 - 1})
        with pytest.raises(UsageError, match=message):
            query(**{name: value})


def test_refresh_token_is_not_shown():
    assert "planted" not in repr(QueryRequest(refresh_token="planted"))


def test_capabilities_list_reader_features_only_for_delta():
    delta, parquet = ResponseFormat.DELTA, ResponseFormat.PARQUET

    assert capabilities((parquet,), ["a"]) == {CAPABILITIES_HEADER: "responseformat=parquet"}
    assert capabilities((delta,), []) == {CAPABILITIES_HEADER: "responseformat=delta"}
    full = "responseformat=delta,parquet;readerfeatures=deletionvectors,b;asyncquery=true;includeendstreamaction=true"
    flags = {ASYNCHRONOUS: True, END_STREAM_ACTION: True, CHANGES_OF_VIEWS: False}
    assert capabilities((delta, parquet), ["deletionVectors", "b"], flags) == {CAPABILITIES_HEADER: full}


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, False),
        ("", False),
        ("responseFormat=Delta ; includeEndStreamAction = TRUE", True),
        ("includeendstreamaction=true;responseformat=delta", True),
        ("responseformat=delta;includeendstreamaction=false", False),
        ("nonsense;;=;includeendstreamaction", False),
    ],
)
def test_end_of_stream_capability_of_a_response_is_parsed(header, expected):
    headers = {} if header is None else {CAPABILITIES_HEADER: header}

    assert promises(headers, END_STREAM_ACTION) is expected


# === fileidhash ===


@pytest.mark.parametrize("scheme", list(FileIdHash))
def test_file_id_scheme_is_requested_and_must_be_confirmed(server, profile, table, scheme):
    rest = RestClient(profile, ReadOptions(file_id_hash=scheme))
    lines = [*wire.delta_head(), wire.delta_file("f", wrapper={"version": 7, "timestamp": 1})]
    server.on("POST", QUERY, wire.ndjson(*lines, headers={"FileIdHash": scheme.value.upper()}))
    server.on("GET", CHANGES, wire.ndjson(*lines, headers={"fileidhash": scheme.value}))

    assert len(list(query_table(rest, table).actions)) == 1
    assert len(list(query_table(rest, table, ChangesQuery(starting_version=7)).actions)) == 1
    assert [request.headers["fileidhash"] for request in server.requests] == [scheme.value] * 2

    for headers, shown in (({}, "missing"), ({"fileidhash": "crc"}, "'crc'"), ({"fileidhash": ""}, "''")):
        server.on("POST", QUERY, wire.ndjson(*lines, headers=headers))
        with pytest.raises(ProtocolError, match=f"file ids of the scheme '{scheme.value}'.* is {shown},"):
            query_table(rest, table)


def test_file_id_scheme_is_requested_only_if_configured(server, rest, table):
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), headers={"fileidhash": "parquet"}))

    assert list(query_table(rest, table).actions) == []
    assert "fileidhash" not in server.requests[0].headers


@pytest.mark.parametrize("asynchronous", [False, True])
def test_file_has_one_id_in_both_formats(tmp_path, asynchronous):
    writer = TableWriter(tmp_path / "t", pa.schema([("id", pa.int64()), ("text", pa.string())]))
    writer.insert(writer.file(rows_of([1])), writer.file(rows_of([2])))
    ids = {}
    with mock_server.running(tables={"s.d.t": writer.path}) as mock:
        for scheme in (None, *FileIdHash):
            for response_format in (ResponseFormat.DELTA, ResponseFormat.PARQUET):
                client = RestClient(Profile.load(mock.profile), ReadOptions(file_id_hash=scheme))
                query = QueryRequest(asynchronous=asynchronous)
                response = query_table(client, AssetName("s", "d", "t"), query, response_format=response_format)
                ids[scheme, response_format] = {action.file_id for action in response.actions}
    for scheme in FileIdHash:
        delta_ids, parquet_ids = (ids[scheme, form] for form in (ResponseFormat.DELTA, ResponseFormat.PARQUET))
        assert delta_ids == parquet_ids
        assert delta_ids == ids[None, ResponseFormat[scheme.name]]
    assert ids[None, ResponseFormat.DELTA].isdisjoint(ids[None, ResponseFormat.PARQUET])
