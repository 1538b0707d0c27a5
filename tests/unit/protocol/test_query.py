"""Queries: responses in both formats and their checks, pages, broken streams, and asynchronous queries."""

from __future__ import annotations

import gc
import json
import weakref
from concurrent.futures import CancelledError
from unittest import mock
from urllib.parse import quote

import pytest
import requests
import urllib3

from delta_sharing_client.client import SharingClient
from delta_sharing_client.delta.actions import (
    AddCdcFile,
    AddFile,
    DeletionVectorDescriptor,
    RemoveFile,
    SharedFile,
    VersionedMetadata,
    VersionedProtocol,
)
from delta_sharing_client.delta.features import Operation
from delta_sharing_client.delta.paths import url_key
from delta_sharing_client.errors import (
    AuthError,
    NotFoundError,
    ProtocolError,
    RequestError,
    TransportError,
    UnsupportedFeatureError,
    UsageError,
)
from delta_sharing_client.http import body
from delta_sharing_client.options import ReadOptions, ResponseFormat
from delta_sharing_client.protocol import line_order, lines, query, response_stream
from delta_sharing_client.protocol.query import (
    ChangesQuery,
    QueryRequest,
    query_table,
    table_metadata,
)
from delta_sharing_client.protocol.rest import RestClient

QUERY = "/shares/s/schemas/d/tables/t/query"
CHANGES = "/shares/s/schemas/d/tables/t/changes"
METADATA = "/shares/s/schemas/d/tables/t/metadata"
ENDS = "responseformat=delta;includeendstreamaction=true"
NOW, MINUTE, HOUR = 1_700_000_000_000, 60_000, 3_600_000
END = {"endStreamAction": {"refreshToken": "fresh", "minUrlExpirationTimestamp": NOW + 2 * MINUTE}}


@pytest.fixture
def fixed_clock(monkeypatch):
    """Set the clocks of client and server to ``NOW``."""
    monkeypatch.setattr(lines, "steady_ms", lambda: NOW)
    monkeypatch.setattr(lines, "http_date", lambda text: NOW / 1000)


@pytest.fixture
def small_chunks(monkeypatch):
    """Read responses in small chunks, so that a short response yields files before it is cut off."""
    monkeypatch.setattr(body, "_CHUNK_BYTES", 200)


def ids(response):
    return [action.file_id for action in response.actions]


def test_delta_response_is_read_as_log_actions(server, rest, table, wire, fixed_clock):
    vector = {
        "storageType": "p",
        "pathOrInlineDv": "https://x/dv?sig=1",
        "sizeInBytes": 4,
        "cardinality": 2,
        "offset": 1,
    }
    file = wire.delta_file(
        "f1",
        wrapper={"deletionVectorFileId": "dv1", "version": 7, "timestamp": 8, "expirationTimestamp": NOW + HOUR},
        partitionValues={"p": None},
        deletionVector=vector,
        stats="{}",
    )
    head = wire.delta_head({"size": 10, "numFiles": 1, "accessModes": ["url", "dir"], "location": "s3://b/t"})
    server.on("POST", QUERY, wire.ndjson(*head, file, END, capabilities=ENDS))

    response = query_table(rest, table)

    assert response.head.response_format is ResponseFormat.DELTA
    assert (response.head.version, response.head.table_size, response.head.num_files) == (7, 10, 1)
    assert response.head.location == "s3://b/t"
    assert response.head.protocol.min_reader_version == 1
    assert response.refresh_token is None
    (file,) = response.actions
    add = file.action
    assert isinstance(add, AddFile)
    assert add.path == "https://storage.test/f1.parquet?sig=planted-f1"
    assert add.partition_values == {"p": None}
    assert (file.file_id, file.vector_id) == ("f1", "dv1")
    assert (file.version, file.timestamp, file.renew_at) == (7, 8, NOW + HOUR - MINUTE)
    assert add.deletion_vector.cardinality == 2
    assert (response.refresh_token, response.first_renewal) == ("fresh", NOW + MINUTE)


def test_parquet_response_without_capabilities_is_accepted(server, rest, table, wire, fixed_clock):
    file = wire.parquet_file("f1", stats='{"numRecords":1}', expirationTimestamp=NOW + HOUR)
    server.on("POST", QUERY, wire.ndjson(*wire.parquet_head(configuration=None), file))

    response = query_table(rest, table)

    assert response.head.response_format is ResponseFormat.PARQUET
    assert response.head.protocol.min_reader_version == 1
    assert response.head.metadata.properties == {}
    (file,) = response.actions
    assert isinstance(file.action, AddFile)
    assert (file.file_id, file.action.size, file.action.stats) == ("f1", 5, '{"numRecords":1}')
    assert file.renew_at == NOW + HOUR - MINUTE


def test_delta_response_to_a_parquet_request_is_refused(server, rest, table, wire):
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), capabilities="responseformat=delta"))

    with pytest.raises(ProtocolError, match="requested the parquet response format, found delta"):
        query_table(rest, table, response_format=ResponseFormat.PARQUET)


@pytest.mark.parametrize("header", ["responseFormat=Delta", "RESPONSEFORMAT=delta;x=y", "responseformat=parquet", None])
def test_format_is_detected_from_the_lines(server, rest, table, wire, header):
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), wire.delta_file("f1"), capabilities=header))

    assert ids(query_table(rest, table)) == ["f1"]


def test_capabilities_of_a_query_are_sent_in_lower_case(server, rest, table, wire):
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head()))

    list(query_table(rest, table).actions)

    header = server.requests[0].headers["delta-sharing-capabilities"]
    parts = dict(part.split("=") for part in header.split(";"))
    assert parts["responseformat"] == "delta"
    assert {"deletionvectors", "columnmapping"} <= set(parts["readerfeatures"].split(","))
    assert parts["includeendstreamaction"] == "true"
    assert header == header.lower()
    assert " " not in header


def test_query_falls_back_to_parquet_after_a_501(server, rest, table, wire, sleeps):
    def respond(request):
        if "responseformat=delta" in request.headers["delta-sharing-capabilities"]:
            return wire.error(501, "NOT_IMPLEMENTED")
        return wire.ndjson(*wire.parquet_head(), *([] if request.method == "GET" else [wire.parquet_file("f1")]))

    server.on("POST", QUERY, respond)
    server.on("GET", METADATA, respond)
    server.on("GET", CHANGES, respond)

    assert ids(query_table(rest, table)) == ["f1"]
    assert ids(query_table(rest, table, ChangesQuery(starting_version=0))) == []
    assert table_metadata(rest, table).response_format is ResponseFormat.PARQUET
    with pytest.raises(RequestError) as caught:
        query_table(rest, table, response_format=ResponseFormat.DELTA)
    assert caught.value.status == 501
    assert sleeps == []


@pytest.mark.parametrize("in_stream", [False, True])
@pytest.mark.parametrize("second_status", [400, 501, 505])
def test_501_for_both_formats_is_not_retried(server, rest, table, wire, sleeps, in_stream, second_status):
    refusal = wire.error(501, "NOT_IMPLEMENTED", "read this table through the Iceberg catalog")
    if in_stream:
        message = "read this table through the Iceberg catalog"
        refusal = wire.ndjson({"endStreamAction": {"errorMessage": message, "httpStatusErrorCode": 501}})
    for method, path in (("POST", QUERY), ("GET", METADATA), ("GET", CHANGES)):
        server.on(method, path, refusal, wire.error(second_status, "X", "second"))

    for read in (
        lambda: query_table(rest, table),
        lambda: table_metadata(rest, table),
        lambda: query_table(rest, table, ChangesQuery(starting_version=0)),
    ):
        server.requests.clear()
        with pytest.raises(RequestError, match="through the Iceberg catalog") as caught:
            read()
        assert caught.value.status == 501
        assert len(server.requests) == 2  # one for each format
    assert sleeps == []


def test_501_of_a_later_page_or_poll_is_not_retried(server, rest, table, wire, sleeps):
    pending = wire.ndjson({"queryStatus": {"queryId": "q", "status": "pending"}})
    first = wire.ndjson(*wire.delta_head(), wire.delta_file("f1"), {"endStreamAction": {"nextPageToken": "n"}})
    server.on("POST", QUERY, first, wire.error(501, "X", "no pages"))
    with pytest.raises(RequestError, match="no pages"):
        ids(query_table(rest, table))
    server.on("POST", QUERY, pending)
    server.on("POST", "/shares/s/schemas/d/tables/t/queries/q", wire.error(501, "X", "no polls"))
    with pytest.raises(RequestError, match="no polls"):
        query_table(rest, table, QueryRequest(asynchronous=True))
    assert sleeps == [0.5, 0.5]  # one wait before polling, for each format


def test_first_renewal_covers_the_files_of_all_pages(server, rest, table, wire, fixed_clock):
    in_an_hour, in_five_minutes = {"expirationTimestamp": NOW + HOUR}, {"expirationTimestamp": NOW + 5 * MINUTE}
    pages = (("1", in_an_hour), ("2", {}), ("3", in_five_minutes), ("", {}))
    replies = []
    for token, fields in pages:
        page = (*wire.parquet_head(), wire.parquet_file(f"f{token}", **fields))
        replies.append(wire.ndjson(*page, {"endStreamAction": {"nextPageToken": token}}))
    server.on("POST", QUERY, *replies)

    response = query_table(rest, table)
    assert len(list(response.actions)) == 4
    assert response.first_renewal == NOW + 4 * MINUTE


def test_missing_table_is_not_found_after_the_parquet_fallback(server, rest, table, wire):
    server.on("POST", QUERY, wire.error(501, "NOT_IMPLEMENTED"), wire.error(404, "RESOURCE_DOES_NOT_EXIST", "no t"))

    with pytest.raises(NotFoundError, match="no t"):
        query_table(rest, table)
    assert len(server.requests) == 2


def test_listing_after_a_query_sends_no_capabilities(server, rest, table, wire):
    server.on("POST", QUERY, wire.error(400, "X"))
    server.on("GET", "/shares", wire.as_json({}))

    with pytest.raises(RequestError):
        query_table(rest, table)
    rest.list_shares()

    assert "delta-sharing-capabilities" not in server.requests[-1].headers


def test_query_body_has_only_the_fields_of_its_request(server, rest, table, wire):
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head()))
    hints = '{"op":"isNull","children":[{"op":"column","name":"a","valueType":"long"}]}'

    for request in (
        QueryRequest(),
        QueryRequest(json_predicate_hints=hints, limit_hint=3),
        QueryRequest(version=7, limit_hint=2**40),
        QueryRequest(timestamp="2022-01-01T00:00:00Z"),
        QueryRequest(refresh_token="r"),
        QueryRequest(starting_version=7, ending_version=9),
    ):
        list(query_table(rest, table, request).actions)

    assert [request.body for request in server.requests] == [
        {"includeRefreshToken": True},
        {"jsonPredicateHints": hints, "limitHint": 3, "includeRefreshToken": True},
        {"version": 7},
        {"timestamp": "2022-01-01T00:00:00Z"},
        {"includeRefreshToken": True, "refreshToken": "r"},
        {"startingVersion": 7, "endingVersion": 9, "includeHistoricalProtocol": True},
    ]


def test_snapshot_of_a_different_version_is_refused(server, rest, table, wire):
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), version=8))

    with pytest.raises(ProtocolError, match="requested version 7, found version 8"):
        query_table(rest, table, QueryRequest(version=7))


@pytest.mark.parametrize("is_delta", [True, False])
def test_key_of_the_metadata_line_may_be_in_lower_case(server, rest, table, wire, is_delta):
    protocol, metadata = (wire.delta_head if is_delta else wire.parquet_head)()
    file = (wire.delta_file if is_delta else wire.parquet_file)("f1")
    lower_case = {"metadata": metadata["metaData"]}
    server.on("POST", QUERY, wire.ndjson(protocol, metadata, file))
    expected = query_table(rest, table).head
    server.on("POST", QUERY, wire.ndjson(protocol, lower_case, file, lower_case))
    server.on("GET", METADATA, wire.ndjson(protocol, lower_case))

    with query_table(rest, table) as response:
        assert response.head == expected
        assert ids(response) == ["f1"]
    assert table_metadata(rest, table).metadata == expected.metadata
    server.on("POST", QUERY, wire.ndjson(protocol, {**metadata, **lower_case}, file))
    with pytest.raises(ProtocolError, match="found metaData, metadata"):
        query_table(rest, table)


@pytest.mark.parametrize("is_delta", [True, False])
@pytest.mark.parametrize("id_field", [{"id": None}, {"id": ""}, {}])
def test_table_and_files_may_have_no_id(server, rest, table, wire, is_delta, id_field):
    """A file without an id is identified by its path."""
    head = (wire.delta_head if is_delta else wire.parquet_head)()
    metadata = head[1]["metaData"].get("deltaMetadata", head[1]["metaData"])
    metadata |= id_field
    files = [(wire.delta_file if is_delta else wire.parquet_file)(name) for name in ("f1", "f2")]
    for file in files:
        file["file"] |= id_field
    if not id_field:
        for fields in (metadata, *(file["file"] for file in files)):
            del fields["id"]
    server.on("POST", QUERY, wire.ndjson(*head, *files))

    with query_table(rest, table) as response:
        assert response.head.metadata.id == ""
        listed = list(response.actions)
    assert [file.file_id for file in listed] == [None, None]
    keys = [url_key(file) for file in listed]
    assert keys == [url_key(file) for file in query_table(rest, table).actions]
    assert len(set(keys)) == 2


def test_copies_and_cursors_need_the_table_id(server, rest, table, wire, tmp_path):
    """Without an id, a copy or a cursor could continue with another table."""
    reply = wire.ndjson(*wire.delta_head(id=None))
    for method, path in (("POST", QUERY), ("GET", METADATA)):
        server.on(method, path, reply)
    shared = SharingClient(rest.profile).table(table)

    with pytest.raises(ProtocolError, match=r"A local copy needs the id of 's\.d\.t'"):
        shared.replicate(tmp_path / "copy")
    with pytest.raises(
        ProtocolError, match=r"The metadata of 's\.d\.t' must have an id .*, by which the cursor '.*' recognizes"
    ):
        next(iter(shared.follow(tmp_path / "t.cursor")))
    assert shared.scan().to_arrow().num_rows == 0


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["not json"], "begins with 'not json'"),
        (["[1]"], r"begins with '\[1\]'"),
        (["{bad"], "line 1"),
        (
            ['{"protocol": {"minReaderVersion": 1}}', '{"metaData": {"deltaMetadata": {"id":"x","schemaString":""}}}'],
            "Expected schemaString in the metaData line of a response in parquet format",
        ),
    ],
)
def test_malformed_first_lines_are_refused(server, rest, table, wire, lines, reason):
    server.on("POST", QUERY, wire.ndjson(*lines))

    with pytest.raises(ProtocolError, match=reason):
        query_table(rest, table)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"file": {"id": "x"}}', "line 3 .*deltaSingleAction"),
        ('{"file": {"id": "x", "deltaSingleAction": {"add": {"path": "u", "size": "big"}}}}', "line 3 .*size"),
        ('{"endStreamAction": {}}\n{"endStreamAction": {}}', "line 4 .*must be the last line"),
        ("{bad", "line 3"),
        ('{"file": {"id": "\xff"}}'.encode("latin-1"), "line 3"),
    ],
)
def test_error_names_a_malformed_line(server, rest, table, wire, line, reason):
    reply = wire.ndjson(*wire.delta_head())
    reply.body += (line if isinstance(line, bytes) else line.encode()) + b"\n"
    server.on("POST", QUERY, reply)

    response = query_table(rest, table)
    with pytest.raises(ProtocolError, match=reason):
        list(response.actions)
    assert next(response.blocks, None) is None


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("malformed", ["{bad", "{} {}", "5", '{"file": {"id": "x"}}', '{"queryStatus": {}}'])
def test_files_before_a_malformed_line_are_returned(server, rest, table, wire, monkeypatch, malformed, at_once):
    monkeypatch.setattr(lines.SHORTCUTS, "lines_at_once", at_once)
    server.on(
        "POST", QUERY, wire.ndjson(*wire.delta_head(), *map(wire.delta_file, "abc"), malformed, wire.delta_file("d"))
    )
    actions = query_table(rest, table).actions
    assert [next(actions).file_id for _ in range(3)] == ["a", "b", "c"]
    with pytest.raises(ProtocolError, match="line 6"):
        next(actions)


def test_unknown_lines_are_skipped(server, rest, table, wire):
    head, file = wire.delta_head(), wire.delta_file("f")
    reply = wire.ndjson({"hello": 1}, head[0], {"later": {"a": 1}}, head[1], "{}", file, {"x": []}, END, {"bye": 1})
    server.on("POST", QUERY, reply)

    response = query_table(rest, table)

    assert ids(response) == ["f"]
    assert response.refresh_token == "fresh"

    server.on("POST", QUERY, wire.ndjson({"hello": 1}))
    with pytest.raises(TransportError, match="no protocol line"):
        query_table(rest, table)


def test_unknown_null_and_missing_fields_are_accepted(server, rest, table, wire):
    lines = [
        '{"protocol": {"minReaderVersion": 1, "new": {}}, "file": null}',
        json.dumps({"metaData": {"id": "t", "schemaString": "{}", "configuration": {"a": "b"}, "new": 1}}),
        '{"file": {"id": "f", "url": "https://x/f", "extra": [1]}}',
    ]
    server.on("POST", QUERY, wire.ndjson(*lines))

    response = query_table(rest, table)

    assert response.head.metadata.partition_columns == []
    assert response.head.metadata.properties == {"a": "b"}
    (file,) = response.actions
    assert (file.action.partition_values, file.action.size) == ({}, -1)


def test_size_in_the_wrapper_replaces_a_missing_one(server, rest, table, wire):
    file = {"file": {"id": "f", "size": 573, "deltaSingleAction": {"add": {"path": "https://x/f"}}}}
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), file))

    (shared,) = query_table(rest, table).actions

    assert (shared.action.size, shared.action.partition_values) == (573, {})


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
def test_only_line_feeds_separate_lines(server, rest, table, wire, framing):
    reply = wire.ndjson(*wire.delta_head(), framing=framing)
    name = "a\u2028b\u2029c\x85d"
    file = json.dumps(wire.delta_file(name), ensure_ascii=False).encode()
    reply.body = reply.body.replace(b"\n", b"\r\n") + b"\r\n\n  \n" + file  # the last line has no line feed
    server.on("POST", QUERY, reply)

    assert ids(query_table(rest, table)) == [name]


def test_error_for_a_newer_parquet_version_suggests_an_upgrade(server, rest, table, wire):
    server.on("POST", QUERY, wire.ndjson({"protocol": {"minReaderVersion": 2}}, wire.parquet_head()[1]))

    with pytest.raises(UnsupportedFeatureError, match="upgrade delta-sharing-client"):
        query_table(rest, table)


def test_metadata_of_a_table_without_url_access_is_read(server, rest, table, wire):
    head = wire.delta_head({"accessModes": ["dir"], "location": "s3://b/t", "auxiliaryLocations": ["s3://c/t"]})
    server.on("POST", QUERY, wire.ndjson(*head))
    server.on("GET", METADATA, wire.ndjson(*head))

    with pytest.raises(UnsupportedFeatureError, match="directory access") as caught:
        query_table(rest, table)
    assert caught.value.feature == "directory access"
    metadata = table_metadata(rest, table)
    assert (metadata.access_modes, metadata.location) == (("dir",), "s3://b/t")
    assert metadata.auxiliary_locations == ("s3://c/t",)


def test_closed_response_releases_its_connection(server, rest, table, wire, monkeypatch):
    """A finalizer that closed the response later could lose a Ctrl-C."""
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), wire.delta_file("f1"), wire.delta_file("f2")))
    opened = []
    send = requests.adapters.HTTPAdapter.send

    def recording_send(adapter, *args, **kwargs):
        response = send(adapter, *args, **kwargs)
        opened.append(weakref.ref(response.raw))
        return response

    monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", recording_send)
    response = query_table(rest, table)
    assert next(response.actions).file_id == "f1"
    response.close()
    assert [raw() for raw in opened] == [None]
    assert response.blocks.gi_frame is None


def test_equal_partition_values_share_memory(server, rest, table, wire):
    files = [wire.delta_file(f"f{i}", partitionValues={"p": "x"}) for i in range(3)]
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), *files))

    first, second, third = query_table(rest, table).actions

    assert first.action.partition_values is second.action.partition_values is third.action.partition_values


# --- end of stream ---


@pytest.mark.parametrize("capabilities", [None, ENDS])
def test_error_in_the_stream_is_raised_with_its_status(server, rest, table, wire, capabilities):
    error_line = {"endStreamAction": {"errorMessage": f"broke with {wire.token}", "httpStatusErrorCode": 400}}
    server.on(
        "POST", QUERY, wire.ndjson(*wire.delta_head(), wire.delta_file("f"), error_line, capabilities=capabilities)
    )

    with pytest.raises(RequestError, match="broke with") as caught:
        list(query_table(rest, table).actions)
    assert caught.value.status == 400
    assert wire.token not in str(caught.value)
    assert len(server.requests) == 1


@pytest.mark.parametrize("before", [0, 30, 55, 95])
@pytest.mark.parametrize("page", ["<html><title>{}</title></html>", "{}", "{}\n{}"])
def test_error_shows_no_prefix_of_a_cut_secret(server, rest, table, wire, before, page):
    response = wire.Reply(200, page.format("." * before + wire.token, "").encode())
    response.headers["Content-Type"] = "text/" + "." * before + wire.token
    server.on("POST", QUERY, response)

    with pytest.raises(ProtocolError, match="check the endpoint") as caught:
        list(query_table(rest, table).actions)
    assert wire.token[:4] not in str(caught.value)


def test_login_page_is_not_retried(server, rest, table, wire):
    page = wire.ndjson(f"<html>\n<title>Sign in {wire.token}</title>\n</html>")
    page.body = page.body.strip()  # without a line end, it must not count as a truncated response
    page.headers["Content-Type"] = "text/html"
    server.on("POST", QUERY, page)

    with pytest.raises(ProtocolError, match=r"found an HTML page with the title 'Sign in .*endpoint") as caught:
        query_table(rest, table)
    assert wire.token not in str(caught.value)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("line", "kind", "code", "message"),
    [
        ({"errorCode": "QUOTA", "message": "no more for {}"}, RequestError, "QUOTA", "QUOTA.*no more for"),
        ({"error_code": "QUOTA", "message": "no more for {}"}, RequestError, "QUOTA", "QUOTA.*no more for"),
        ({"endStreamAction": {"errorMessage": "broke"}}, RequestError, None, r"^Querying s\.d\.t failed: broke\.$"),
        ({"endStreamAction": {"errorMessage": "gone", "httpStatusErrorCode": 404}}, NotFoundError, None, "gone"),
    ],
)
def test_error_as_the_only_line_is_raised(server, rest, table, wire, line, kind, code, message):
    server.on("POST", QUERY, wire.ndjson(json.dumps(line).replace("for {}", f"for {wire.token}")))

    with pytest.raises(kind, match=message) as caught:
        query_table(rest, table)
    assert caught.value.error_code == code
    assert wire.token not in str(caught.value)


@pytest.mark.parametrize("code", ["UNSUPPORTED_OPERATION", "NOT_IMPLEMENTED"])
def test_databricks_delta_refusal_falls_back_to_parquet(server, rest, table, wire, code):
    refusal = wire.as_json({"error_code": code, "message": "no delta"}, status=400)
    server.on("POST", QUERY, refusal, wire.ndjson(*wire.parquet_head(), wire.parquet_file("f")))

    assert ids(query_table(rest, table)) == ["f"]


@pytest.mark.parametrize("status", [400, 409])
def test_delta_refusal_is_reported_if_parquet_is_refused_too(server, rest, table, wire, status):
    refusals = (wire.error(status, "UNSUPPORTED_OPERATION", "no delta"), wire.error(400, "X", "no parquet"))
    server.on("POST", QUERY, *refusals)
    server.on("GET", METADATA, *refusals)

    for read in (query_table, table_metadata):
        with pytest.raises(RequestError, match="no delta"):
            read(rest, table)
    assert len(server.requests) == 4


@pytest.mark.parametrize("status", [502, 503])
def test_transient_error_in_the_stream_is_retried(server, rest, table, wire, status):
    error_line = {"endStreamAction": {"errorMessage": "busy", "httpStatusErrorCode": status}}
    whole = wire.ndjson(*wire.delta_head(), wire.delta_file("f"), wire.delta_file("g"), END)
    broken = wire.ndjson(*wire.delta_head(), wire.delta_file("f"), error_line)
    server.on("POST", QUERY, broken, wire.ndjson(error_line), whole)

    assert ids(query_table(rest, table)) == ["f", "g"]

    server.on("POST", QUERY, broken)
    with pytest.raises(RequestError, match=r"busy\. Tried 4 times\.") as caught:
        list(query_table(rest, table).actions)
    assert caught.value.status == status


def test_missing_end_of_stream_is_an_error_after_retries(server, rest, table, wire, sleeps):
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), wire.delta_file("f"), capabilities=ENDS))

    with pytest.raises(TransportError, match="endStreamAction"):
        list(query_table(rest, table).actions)
    assert len(server.requests) == 4


@pytest.mark.parametrize("framing", ["cut-length", "cut-chunked", "cut-close"])
@pytest.mark.parametrize("promise", [None, ENDS])
@pytest.mark.usefixtures("small_chunks")
def test_broken_stream_resumes_with_each_file_once(server, rest, table, wire, framing, promise):
    whole = wire.ndjson(*wire.delta_head(), *(wire.delta_file(f"f{i}") for i in range(50)), END, capabilities=promise)
    reordered = wire.ndjson(
        *wire.delta_head(), *(wire.delta_file(f"f{i}") for i in reversed(range(50))), END, capabilities=promise
    )
    for cut in (10, 400, 3000, len(whole.body) - 100):
        broken = wire.Reply(200, whole.body, whole.headers, framing, cut)
        server.on("POST", QUERY, broken, broken, reordered)

        response = query_table(rest, table)

        assert sorted(ids(response)) == sorted(f"f{i}" for i in range(50))


def test_files_without_an_id_are_identified_by_path():
    files = [SharedFile(AddFile(path=f"https://x/{name}?{name}", size=1), "") for name in "abc"]
    file_filter = response_stream._Files("s.d.t", 7)
    assert file_filter.take(files[:2]) == files[:2]
    file_filter.begin_again()
    assert len(file_filter._hashes) == 2
    assert file_filter.take(files) == files[2:]


def test_path_may_be_signed_differently_in_each_response():
    files, *others = (
        [SharedFile(AddFile(path=f"https://x/{signature}/{name}", size=1), name) for name in "abc"]
        for signature in range(3)
    )
    file_filter = response_stream._Files("s.d.t", 7)
    assert file_filter.take(files[:1]) == files[:1]
    for other, new in zip(others, (1, 2), strict=True):
        file_filter.begin_again()
        assert file_filter.take(other[: new + 1]) == other[new : new + 1]


def test_file_with_an_id_is_identified_by_it():
    bare, new = (SharedFile(AddFile(path=f"https://x/{name}?1", size=1), "") for name in "bc")
    signed = [SharedFile(AddFile(path=f"https://x/{signature}/a", size=1), "a") for signature in range(2)]
    file_filter = response_stream._Files("s.d.t", 7)
    assert file_filter.take([signed[0], bare]) == [signed[0], bare]
    file_filter.begin_again()
    assert file_filter.take([signed[1], bare, new]) == [new]


def test_changes_of_one_file_differ_by_deletion_vector():
    vectors = [
        None,
        *(DeletionVectorDescriptor("p", "https://x/dv", 4, rows, offset) for rows, offset in ((1, 1), (2, 1), (1, 9))),
    ]
    changes = [SharedFile(AddFile(path="https://x/f", deletion_vector=vector), "f", version=1) for vector in vectors]
    change_filter = response_stream._Changes()
    assert change_filter.take(changes[:1]) == changes[:1]
    change_filter.begin_again()
    assert change_filter.take(changes[::-1]) == changes[:0:-1]


def test_repeated_change_is_returned_as_often_as_listed():
    change = SharedFile(AddFile(path="https://x/f"), "f", version=1)
    change_filter = response_stream._Changes()
    assert len(change_filter.take([change] * 2)) == 2
    change_filter.begin_again()
    assert len(change_filter.take([change] * 3)) == 1


@pytest.mark.parametrize("other", [{"path": "https://storage.test/other.parquet"}, {"size": 6}])
@pytest.mark.usefixtures("small_chunks")
def test_duplicate_file_id_is_refused_after_a_broken_stream(server, rest, table, wire, other):
    files = [wire.delta_file(f"f{i}") for i in range(50)]
    whole = wire.ndjson(*wire.delta_head(), *files, wire.delta_file("f3", **other), END)
    server.on("POST", QUERY, wire.Reply(200, whole.body, whole.headers, "cut-length", len(whole.body) - 400), whole)

    with pytest.raises(ProtocolError, match="two files with this id"):
        list(query_table(rest, table).actions)


@pytest.mark.parametrize("framing", ["cut-length", "cut-chunked", "cut-close"])
def test_response_truncated_anywhere_is_an_error(server, profile, table, wire, framing):
    rest = RestClient(profile, ReadOptions(max_attempts=1, read_timeout=2))
    whole = wire.ndjson(*wire.delta_head(), *(wire.delta_file(f"f{i}") for i in range(5)), END, capabilities=ENDS)
    for cut in range(0, len(whole.body) - 1, 41):
        server.on("POST", QUERY, wire.Reply(200, whole.body, whole.headers, framing, cut))
        with pytest.raises(TransportError):
            list(query_table(rest, table).actions)


@pytest.mark.usefixtures("small_chunks")
def test_stream_that_breaks_at_each_attempt_is_an_error(server, rest, table, wire):
    whole = wire.ndjson(*wire.delta_head(), *(wire.delta_file(f"f{i}") for i in range(50)))
    server.on("POST", QUERY, wire.Reply(200, whole.body, whole.headers, "cut-length", 3000))

    with pytest.raises(TransportError, match=r"cut off.*Tried 4 times"):
        list(query_table(rest, table).actions)


@pytest.mark.usefixtures("small_chunks")
def test_broken_stream_does_not_resume_in_a_changed_table(server, rest, table, wire):
    whole = wire.ndjson(*wire.delta_head(), *(wire.delta_file(f"f{i}") for i in range(50)))
    broken = wire.Reply(200, whole.body, whole.headers, "cut-length", 3000)
    server.on("POST", QUERY, broken, wire.ndjson(*wire.delta_head(), wire.delta_file("f0"), version=8))

    with pytest.raises(TransportError, match="table has changed since"):
        list(query_table(rest, table).actions)


def test_abandoned_response_leaves_the_client_usable(server, rest, table, wire):
    files = [wire.delta_file(f"f{i}") for i in range(2000)]
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), *files))

    with query_table(rest, table) as response:
        assert next(response.actions).file_id == "f0"
    assert next(response.blocks, None) is None
    assert len(ids(query_table(rest, table))) == 2000


# --- pages ---


def page(wire, token, *names, version=7, head=None):
    end = {"endStreamAction": {"nextPageToken": token, "refreshToken": f"r-{token}"}}
    return wire.ndjson(*(head or wire.delta_head()), *(wire.delta_file(n) for n in names), end, version=version)


def test_request_for_a_page_repeats_the_other_parameters(server, rest, table, wire):
    server.on("POST", QUERY, page(wire, "p2", "a", "b"), page(wire, "p3"), page(wire, "", "c"))

    hints = '{"op":"isNull","children":[{"op":"column","name":"a","valueType":"long"}]}'
    request = QueryRequest(json_predicate_hints=hints, limit_hint=9, refresh_token="old")
    response = query_table(rest, table, request)

    assert ids(response) == ["a", "b", "c"]
    assert response.refresh_token == "r-"
    common = {"jsonPredicateHints": hints, "limitHint": 9}
    assert [request.body for request in server.requests] == [
        {**common, "includeRefreshToken": True, "refreshToken": "old"},
        {**common, "pageToken": "p2"},
        {**common, "pageToken": "p3"},
    ]


@pytest.mark.parametrize(
    ("expirations", "renewal"), [((None, None), None), ((9, None), 8), ((None, 9), 8), ((5, 9), 4), ((9, 5), 4)]
)
def test_first_renewal_covers_the_end_lines_of_all_pages(server, rest, table, wire, fixed_clock, expirations, renewal):
    pages = [
        wire.ndjson(
            *wire.delta_head(),
            wire.delta_file(name),
            {
                "endStreamAction": {
                    "nextPageToken": token,
                    "minUrlExpirationTimestamp": expires and NOW + expires * MINUTE,
                }
            },
        )
        for name, token, expires in zip("ab", ("p2", None), expirations, strict=True)
    ]
    server.on("POST", QUERY, *pages)
    with query_table(rest, table) as response:
        assert ids(response) == ["a", "b"]
        assert response.first_renewal == (renewal and NOW + renewal * MINUTE)


@pytest.mark.parametrize("operation", [Operation.SNAPSHOT, Operation.STREAMING])
def test_query_sends_the_reader_features_of_its_operation(server, rest, table, wire, operation, monkeypatch):
    monkeypatch.setattr(query, "reader_features", lambda operation: [f"of-{operation.value}"])
    request = QueryRequest() if operation is Operation.SNAPSHOT else QueryRequest(starting_version=7)
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head()))
    query_table(rest, table, request).close()
    [request] = server.requests
    parts = dict(part.split("=") for part in request.headers["delta-sharing-capabilities"].split(";"))
    assert parts["readerfeatures"] == f"of-{operation.value}".lower()


def test_metadata_of_version_0_is_read(server, rest, table, wire):
    server.on("GET", METADATA, wire.ndjson(*wire.delta_head(), version=0))
    assert table_metadata(rest, table, version=0).version == 0
    server.on("GET", METADATA, wire.ndjson({"queryStatus": {"queryId": "q"}}))
    with pytest.raises(ProtocolError, match="expected only a protocol and a metaData line, found another"):
        table_metadata(rest, table)


def test_reading_an_interrupted_response_is_an_error(server, rest, table, wire):
    server.on("POST", QUERY, page(wire, "p2", "a"), page(wire, None, "b"))
    response = query_table(rest, table)
    response.break_off()
    with pytest.raises((CancelledError, TransportError)):
        list(response.actions)
    assert len(server.requests) == 1


def test_metadata_of_an_invalid_version_is_refused():
    for version in (-1, True, 1 << 63):
        with pytest.raises(UsageError, match="'version' must be a whole number from 0 to"):
            table_metadata(None, None, version=version)


def test_repeated_page_token_is_an_error(server, rest, table, wire):
    server.on("POST", QUERY, page(wire, "again", "a"))

    with pytest.raises(ProtocolError, match="same nextPageToken twice"):
        list(query_table(rest, table).actions)


OTHER_PROTOCOL = {"protocol": {"deltaProtocol": {"minReaderVersion": 1, "minWriterVersion": 4}}}


def test_page_that_contradicts_the_first_page_is_an_error(server, rest, table, wire):
    for other, difference in (
        (page(wire, None, "b", version=8), "version"),
        (page(wire, None, "b", head=wire.delta_head(id="u")), "metadata"),
        (page(wire, None, "b", head=[OTHER_PROTOCOL, wire.delta_head()[1]]), "protocol"),
        (wire.ndjson(*wire.parquet_head(), wire.parquet_file("b")), "response format"),
    ):
        server.on("POST", QUERY, page(wire, "p2", "a"), other)
        with pytest.raises(ProtocolError, match=f"Page 2 has a different {difference}"):
            list(query_table(rest, table).actions)


@pytest.mark.usefixtures("small_chunks")
def test_broken_page_is_requested_again_by_its_token(server, rest, table, wire):
    second = page(wire, None, *(f"b{i}" for i in range(20)))
    broken = wire.Reply(200, second.body, second.headers, "cut-length", 2500)
    server.on("POST", QUERY, page(wire, "p2", "a"), broken, second)

    assert ids(query_table(rest, table)) == ["a", *(f"b{i}" for i in range(20))]
    assert [request.body.get("pageToken") for request in server.requests] == [None, "p2", "p2"]


# --- ranges of versions ---


def test_parquet_feed_has_all_file_kinds_and_earlier_metadata(server, rest, table, wire):
    historical = wire.parquet_head(version=2)[1]
    server.on(
        "GET",
        CHANGES,
        wire.ndjson(
            *wire.parquet_head(version=3),
            wire.parquet_file("a", "add", version=1, timestamp=10, stats="{}"),
            historical,
            wire.parquet_file("r", "remove", version=2, timestamp=None),
            wire.parquet_file("c", "cdf", version=2, timestamp=20),
            version=1,
        ),
    )

    response = query_table(rest, table, ChangesQuery(starting_version=1))
    add, metadata, remove, cdc = response.actions

    assert response.head.metadata_version == 3
    assert isinstance(add.action, AddFile)
    assert (add.version, add.timestamp, add.action.stats) == (1, 10, "{}")
    assert isinstance(metadata, VersionedMetadata)
    assert metadata.version == 2
    assert isinstance(remove.action, RemoveFile)
    assert (remove.version, remove.timestamp) == (2, None)
    assert isinstance(cdc.action, AddCdcFile)
    assert cdc.file_id == "c"
    assert server.requests[0].query == {
        "startingVersion": "1",
        "includeHistoricalMetadata": "true",
        "includeHistoricalProtocol": "true",
    }


def test_secret_in_a_response_header_is_not_shown(server, rest, table, wire):
    response = wire.ndjson(*wire.delta_head())
    response.headers["Delta-Table-Version"] = wire.token
    server.on("POST", QUERY, response)
    with pytest.raises(ProtocolError, match="Delta-Table-Version") as caught:
        query_table(rest, table)
    assert wire.token not in str(caught.value)


def test_error_shows_text_that_is_not_utf_8(server, rest, table, wire):
    server.on("POST", QUERY, wire.Reply(200, b"r\xe9sum\xe9\n"))
    with pytest.raises(ProtocolError, match="begins with 'r\ufffdsum\ufffd"):
        query_table(rest, table)


def test_pages_of_a_change_feed_are_requested_by_token(server, rest, table, wire):
    pages = [
        wire.ndjson(
            *wire.parquet_head(version=3), wire.parquet_file(name, "add", version=1, timestamp=10),
            {"endStreamAction": {"nextPageToken": token}}, version=1, capabilities="includeendstreamaction=true",
        )
        for name, token in (("f1", "p2"), ("f2", None))
    ]  # fmt: skip
    server.on("GET", CHANGES, *pages)
    assert ids(query_table(rest, table, ChangesQuery(starting_version=1))) == ["f1", "f2"]
    assert [request.query.get("pageToken") for request in server.requests] == [None, "p2"]


@pytest.mark.parametrize(("limit", "sent"), [(0, 0), (2**31 - 1, 2**31 - 1), (2**31, None), (None, None)])
def test_limit_hint_beyond_int32_is_not_sent(limit, sent):
    assert QueryRequest(limit_hint=limit).body(None, (ResponseFormat.DELTA,)).get("limitHint") == sent


def test_metadata_takes_either_version_or_timestamp(profile, server):
    table = SharingClient(profile).table("s.d.t")
    with pytest.raises(UsageError, match="Only one of 'version' and 'timestamp'"):
        table.metadata(version=1, timestamp="2024-01-01T00:00:00Z")
    with pytest.raises(UsageError, match="'timestamp'"):
        table.metadata(timestamp="soon")
    assert server.requests == []


def test_delta_feed_has_all_file_kinds_and_earlier_protocols(server, rest, table, wire):
    vector = {"storageType": "i", "pathOrInlineDv": "^Bg", "sizeInBytes": 4, "cardinality": 1}
    server.on(
        "GET",
        CHANGES,
        wire.ndjson(
            *wire.delta_head(),
            wire.delta_file("a", "add", {"version": 1, "deletionVectorFileId": "d"}, deletionVector=vector),
            {"protocol": {"deltaProtocol": {"minReaderVersion": 3, "readerFeatures": ["x"]}, "version": 2}},
            wire.delta_file("r", "remove", {"version": 2}),
            wire.delta_file("c", "cdc", {"version": 2}),
            version=1,
        ),
    )

    add, protocol, remove, cdc = query_table(rest, table, ChangesQuery(starting_version=1)).actions

    assert add.vector_id == "d"
    assert isinstance(protocol, VersionedProtocol)
    assert (protocol.version, protocol.protocol.reader_features) == (2, ["x"])
    assert isinstance(remove.action, RemoveFile)
    assert isinstance(cdc.action, AddCdcFile)


@pytest.mark.parametrize("action_size", [None, 0, 7])
@pytest.mark.parametrize("wrapper_size", [None, 0, 9])
def test_size_in_an_action_overrides_the_one_in_its_wrapper(server, rest, table, wire, action_size, wrapper_size):
    files = [
        {
            "id": kind,
            "version": 1,
            "deltaSingleAction": {kind: {"path": f"https://storage.test/{kind}", "size": action_size}},
        }
        for kind in ("add", "remove", "cdc")
    ]
    for file in files:
        (action,) = file["deltaSingleAction"].values()
        if action_size is None:
            del action["size"]
        if wrapper_size is not None:
            file["size"] = wrapper_size
    server.on("GET", CHANGES, wire.ndjson(*wire.delta_head(), *({"file": file} for file in files), version=1))

    add, remove, cdc = query_table(rest, table, ChangesQuery(starting_version=1)).actions
    expected = wrapper_size if action_size is None else action_size
    assert [file.action.size for file in (add, remove, cdc)] == [
        -1 if expected is None else expected,
        expected,
        -1 if expected is None else expected,
    ]


@pytest.mark.parametrize("size", [None, 0, 5])
def test_size_of_a_parquet_file_may_be_missing(server, rest, table, wire, size):
    files = [wire.parquet_file(kind, kind, version=1, size=size) for kind in ("add", "remove", "cdf")]
    server.on("GET", CHANGES, wire.ndjson(*wire.parquet_head(), *files, version=1))

    add, remove, cdc = query_table(rest, table, ChangesQuery(starting_version=1)).actions
    file_size = -1 if size is None else size
    assert [file.action.size for file in (add, remove, cdc)] == [file_size, size, file_size]


def test_parquet_request_omits_the_historical_protocol_field(server, rest, table, wire):
    server.on("GET", CHANGES, wire.ndjson(*wire.parquet_head()))
    server.on("POST", QUERY, wire.ndjson(*wire.parquet_head()))

    request = ChangesQuery(starting_timestamp="2022-01-01T00:00:00Z", ending_version=4)
    query_table(rest, table, request, response_format=ResponseFormat.PARQUET)
    query_table(rest, table, QueryRequest(starting_version=1), response_format=ResponseFormat.PARQUET)

    assert server.requests[0].query == {
        "startingTimestamp": "2022-01-01T00:00:00Z",
        "endingVersion": "4",
        "includeHistoricalMetadata": "true",
    }
    assert server.requests[1].body == {"startingVersion": 1}


def test_files_outside_a_version_range_are_not_returned(server, rest, table, wire):
    lines = [wire.parquet_file(f"f{v}", "add", version=v, timestamp=v) for v in (4, 5, 6)]
    server.on("POST", QUERY, wire.ndjson(*wire.parquet_head(), *lines, wire.parquet_head(version=6)[1], version=4))

    assert ids(query_table(rest, table, QueryRequest(starting_version=4, ending_version=5))) == ["f4", "f5"]
    with pytest.raises(ProtocolError, match="version 4, before the first requested one, 5"):
        list(query_table(rest, table, QueryRequest(starting_version=5)).actions)


@pytest.mark.usefixtures("small_chunks")
def test_broken_change_feed_resumes_after_the_last_action(server, rest, table, wire):
    lines = []
    for version in range(20):  # the same file id is added and removed alternately
        lines.append(wire.delta_file("f", "add" if version % 2 == 0 else "remove", {"version": version}))
    whole = wire.ndjson(*wire.delta_head(), *lines, version=0)
    broken = wire.Reply(200, whole.body, whole.headers, "cut-length", 2500)
    server.on("GET", CHANGES, broken, wire.ndjson(*wire.delta_head(), *reversed(lines), version=0))

    response = query_table(rest, table, ChangesQuery(starting_version=0))

    assert sorted(file.version for file in response.actions) == list(range(20))


# --- metadata ---


def test_metadata_request_accepts_both_formats_and_a_version(server, rest, table, wire):
    server.on("GET", METADATA, wire.ndjson(*wire.parquet_head(), version=3))

    head = table_metadata(rest, table, version=3)
    table_metadata(rest, table, timestamp="2022-01-01T00:00:00Z")

    assert head.response_format is ResponseFormat.PARQUET
    assert head.version == 3
    assert "responseformat=delta,parquet;" in server.requests[0].headers["delta-sharing-capabilities"]
    assert server.requests[0].query == {"version": "3"}
    assert server.requests[1].query == {"timestamp": "2022-01-01T00:00:00Z"}


@pytest.mark.parametrize("end", [[], [END]])
def test_metadata_may_have_an_end_of_stream(server, rest, table, wire, end):
    server.on("GET", METADATA, wire.ndjson(*wire.delta_head(), *end, capabilities=ENDS))

    assert table_metadata(rest, table).version == 7
    assert len(server.requests) == 1
    assert "endstream" not in server.requests[0].headers["delta-sharing-capabilities"]


def test_metadata_with_extra_lines_is_refused(server, rest, table, wire):
    server.on("GET", METADATA, wire.ndjson(*wire.delta_head(), wire.delta_file("f")))
    with (
        mock.patch.object(line_order.CheckedResponse, "close", autospec=True) as closed,
        pytest.raises(ProtocolError, match="found another line"),
    ):
        table_metadata(rest, table)
    assert closed.call_count == 1

    whole = wire.ndjson(*wire.delta_head())
    server.on("GET", METADATA, wire.Reply(200, whole.body, whole.headers, "cut-close", 60), whole)
    assert table_metadata(rest, table).version == 7


# --- asynchronous queries ---


STATUS = "/shares/s/schemas/d/tables/t/queries/q%2F1"


def test_asynchronous_query_is_polled_until_it_completes(server, rest, table, wire, sleeps):
    pending = wire.ndjson({"queryStatus": {"queryId": "q/1", "status": "pending"}}, version=0)
    without_status = wire.ndjson({"queryStatus": {"queryId": "q/1"}}, version=None)
    server.on("POST", QUERY, pending)
    server.on("POST", STATUS, without_status, page(wire, "p2", "a"), page(wire, None, "b"))

    response = query_table(rest, table, QueryRequest(asynchronous=True))

    assert ids(response) == ["a", "b"]
    assert "asyncquery=true" in server.requests[0].headers["delta-sharing-capabilities"]
    assert server.requests[0].body["idempotencyKey"]
    assert [request.body for request in server.requests[1:]] == [{}, {}, {"pageToken": "p2"}]
    assert len(sleeps) == 2


def test_status_of_a_running_query_needs_no_id(server, rest, table, wire):
    server.on("POST", QUERY, wire.ndjson({"queryStatus": {"queryId": "q/1", "status": "pending"}}, version=0))
    server.on("POST", STATUS, wire.ndjson({"queryStatus": {"status": "running"}}, version=0), page(wire, None, "a"))
    assert ids(query_table(rest, table, QueryRequest(asynchronous=True))) == ["a"]


@pytest.mark.parametrize("query_id", ["7", "not a uuid", "../../x?y#z", "ü😀", "x" * 300, '{"a": 1}'])
def test_query_id_is_sent_back_unchanged(server, rest, table, wire, query_id):
    server.on("POST", QUERY, wire.ndjson({"queryStatus": {"queryId": query_id, "status": "pending"}}))
    path = f"/shares/s/schemas/d/tables/t/queries/{quote(query_id, safe='')}"
    server.on("POST", path, wire.ndjson(*wire.delta_head(), wire.delta_file("f")))

    assert ids(query_table(rest, table, QueryRequest(asynchronous=True))) == ["f"]
    assert server.requests[-1].path == path


def test_asynchronous_query_may_complete_immediately(server, rest, table, wire):
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), wire.delta_file("f")))

    assert ids(query_table(rest, table, QueryRequest(asynchronous=True))) == ["f"]
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "kind", "reason"),
    [
        ({"queryId": "q/1", "status": "failed", "message": "out of memory"}, RequestError, "out of memory"),
        ({"queryId": "other", "status": "pending"}, ProtocolError, "changed the queryId"),
        ({"queryId": "q/1", "status": "odd"}, ProtocolError, "odd"),
    ],
)
def test_asynchronous_query_that_fails_is_an_error(server, rest, table, wire, status, kind, reason):
    server.on("POST", QUERY, wire.ndjson({"queryStatus": {"queryId": "q/1", "status": "pending"}}))
    server.on("POST", STATUS, wire.ndjson({"queryStatus": status}))

    with pytest.raises(kind, match=reason):
        query_table(rest, table, QueryRequest(asynchronous=True))


def test_total_timeout_limits_an_asynchronous_query(server, rest, table, wire):
    server.on("POST", QUERY, wire.ndjson({"queryStatus": {"queryId": "q/1"}}))
    server.on("POST", STATUS, wire.ndjson({"queryStatus": {"queryId": "q/1"}}))

    with pytest.raises(TransportError, match=r"took longer than the 0\.1 seconds of 'total_timeout'"):
        query_table(rest.for_read(ReadOptions(total_timeout=0.1)), table, QueryRequest(asynchronous=True))


def test_idempotency_key_is_sent_as_the_server_spells_it(server, rest, table, wire):
    def respond(request):
        if "idempotency_key" not in request.body:
            return wire.error(400, "INVALID_PARAMETER_VALUE", "idempotency_key is missing")
        return wire.ndjson(*wire.delta_head(), wire.delta_file("f"))

    server.on("POST", QUERY, respond)

    assert ids(query_table(rest, table, QueryRequest(asynchronous=True))) == ["f"]


# --- errors of the server ---


def test_error_of_refused_credentials_names_the_table(server, rest, table, wire):
    server.on("POST", QUERY, wire.error(401, "UNAUTHENTICATED", f"bad token {wire.token}"))

    with pytest.raises(AuthError, match="may have expired") as caught:
        query_table(rest, table)
    assert "s.d.t" in str(caught.value)
    assert wire.token not in str(caught.value)
    assert caught.value.status == 401


# === Limits ===


def test_too_many_blank_lines_are_an_error(server, rest, table, wire):
    reply = wire.ndjson(*wire.delta_head())
    reply.body += b"\n" * 50_000
    server.on("POST", QUERY, reply)

    with pytest.raises(ProtocolError, match="10000 lines are blank"):
        list(query_table(rest, table).actions)


def test_number_of_empty_pages_is_limited(server, rest, table, wire, monkeypatch):
    monkeypatch.setattr("delta_sharing_client.protocol.listings._MAX_EMPTY_PAGES", 20)

    def empty_page(request):
        end = {"endStreamAction": {"nextPageToken": str(len(server.requests))}}
        return wire.ndjson(*wire.delta_head(), end)

    server.on("POST", QUERY, empty_page)
    with pytest.raises(ProtocolError, match="21 empty pages"):
        list(query_table(rest, table).actions)


def test_schema_of_200000_columns_is_refused(server, rest, table, wire):
    field = {"name": "c", "type": "long", "nullable": True, "metadata": {}}
    schema = json.dumps({"type": "struct", "fields": [field] * 200_000})
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(schemaString=schema)))

    with pytest.raises(ProtocolError, match="at most 100,000 columns and fields, found 200,000"):
        query_table(rest, table)


def test_error_names_an_unsupported_file_format(server, rest, table, wire):
    for head in (wire.delta_head(format={"provider": "orc"}), wire.parquet_head(format={"provider": "orc"})):
        server.on("POST", QUERY, wire.ndjson(*head))
        with pytest.raises(UnsupportedFeatureError, match="found the format 'orc'") as caught:
            query_table(rest, table)
        assert caught.value.feature == "format.provider orc"


def test_total_timeout_limits_all_pages_of_a_query(server, profile, table, wire):
    def next_page(request):
        name = str(len(server.requests))
        return wire.ndjson(*wire.delta_head(), wire.delta_file(name), {"endStreamAction": {"nextPageToken": name}})

    server.on("POST", QUERY, next_page)
    with pytest.raises(TransportError, match="'total_timeout'"):
        list(query_table(RestClient(profile, ReadOptions(total_timeout=0.4)), table).actions)


@pytest.mark.parametrize(
    "read", [query_table, lambda rest, table: query_table(rest, table, ChangesQuery(starting_version=0))]
)
def test_end_of_stream_is_requested_for_queries_and_changes(server, rest, table, wire, read):
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), END))
    server.on("GET", CHANGES, wire.ndjson(*wire.delta_head(), END))

    list(read(rest, table).actions)

    assert "includeendstreamaction=true" in server.requests[0].headers["delta-sharing-capabilities"]


def test_closed_response_is_freed_without_garbage_collection(server, rest, table, wire, small_chunks):
    """Python loses a signal such as Ctrl-C that arrives while the finalizer of a response runs."""
    files = [wire.parquet_file(f"f{number}") for number in range(200)]
    server.on("POST", QUERY, wire.ndjson(*wire.parquet_head(), *files))
    gc.collect()
    earlier = set(map(id, responses()))
    gc.disable()
    try:
        response = query_table(rest, table)
        actions = response.actions
        assert next(actions).file_id == "f0"
        response.close()
        del response, actions
        assert [response_left for response_left in responses() if id(response_left) not in earlier] == []
    finally:
        gc.enable()


def responses():
    return [item for item in gc.get_objects() if isinstance(item, urllib3.BaseHTTPResponse)]


@pytest.mark.parametrize("text", ["Unknown field includeHistoricalProtocol", "INCLUDEHISTORICALPROTOCOL?"])
def test_query_is_repeated_without_a_refused_field(server, rest, table, wire, text):
    request = QueryRequest(starting_version=7)
    server.on("POST", QUERY, wire.error(400, "X", text), wire.ndjson(*wire.delta_head()))
    query_table(rest, table, request, response_format=ResponseFormat.DELTA).close()
    full_body = {"startingVersion": 7, "includeHistoricalProtocol": True}
    assert [request.body for request in server.requests] == [full_body, {"startingVersion": 7}]
    others = ((400, text, 2), (400, "other", 1), (400, "", 1), (400, "idempotency_key", 1), (409, text, 1))
    for status, message, count in others:
        server.requests.clear()
        server.on("POST", QUERY, wire.error(status, "X", message))
        with pytest.raises(RequestError):
            query_table(rest, table, request, response_format=ResponseFormat.DELTA)
        assert len(server.requests) == count


@pytest.mark.parametrize(("message", "count"), [("idempotency_key", 2), ("another field", 1)])
def test_second_spelling_of_the_idempotency_key_is_tried_once(server, rest, table, wire, message, count):
    server.on("POST", QUERY, wire.error(400, "X", message))
    with pytest.raises(RequestError):
        query_table(rest, table, QueryRequest(asynchronous=True), response_format=ResponseFormat.DELTA)
    keys = [name for request in server.requests for name in request.body if name.startswith("idem")]
    assert keys == ["idempotencyKey", "idempotency_key"][:count]
    assert len({request.body[key] for request, key in zip(server.requests, keys, strict=True)}) == 1
