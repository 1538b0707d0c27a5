"""Queries: responses in both formats and their checks, pages, broken streams, and asynchronous queries."""

from __future__ import annotations

import gc
import json
from concurrent.futures import CancelledError
from unittest import mock
from urllib.parse import quote

import pytest
import urllib3

from delta_sharing_client.client import SharingClient
from delta_sharing_client.delta.actions import (
    AddFile,
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
from delta_sharing_client.protocol import line_order, lines, query
from delta_sharing_client.protocol.query import (
    ChangesQuery,
    QueryRequest,
    query_table,
    table_metadata,
)
from delta_sharing_client.protocol.rest import RestClient
from tests.unit.protocol import wire

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


def test_delta_response_is_read_as_log_actions(server, rest, table, fixed_clock):
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


def test_parquet_response_without_capabilities_is_accepted(server, rest, table, fixed_clock):
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


def test_delta_response_to_a_parquet_request_is_refused(server, rest, table):
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), capabilities="responseformat=delta"))

    with pytest.raises(ProtocolError, match="requested the parquet response format, found delta"):
        query_table(rest, table, response_format=ResponseFormat.PARQUET)


@pytest.mark.parametrize("header", ["responseFormat=Delta", "RESPONSEFORMAT=delta;x=y", "responseformat=parquet", None])
def test_format_is_detected_from_the_lines(server, rest, table, header):
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), wire.delta_file("f1"), capabilities=header))

    assert ids(query_table(rest, table)) == ["f1"]


@pytest.mark.parametrize("request_", [QueryRequest(), ChangesQuery(starting_version=0)])
def test_capabilities_of_a_query_are_sent_in_lower_case(server, rest, table, request_):
    for method, path in (("POST", QUERY), ("GET", CHANGES)):
        server.on(method, path, wire.ndjson(*wire.delta_head()))

    list(query_table(rest, table, request_).actions)

    header = server.requests[0].headers["delta-sharing-capabilities"]
    parts = dict(part.split("=") for part in header.split(";"))
    assert parts["responseformat"] == "delta"
    assert {"deletionvectors", "columnmapping"} <= set(parts["readerfeatures"].split(","))
    assert parts["includeendstreamaction"] == "true"
    assert header == header.lower()
    assert " " not in header


def test_query_falls_back_to_parquet_after_a_501(server, rest, table, sleeps):
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
def test_501_for_both_formats_is_not_retried(server, rest, table, sleeps, in_stream, second_status):
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


def test_501_of_a_later_page_or_poll_is_not_retried(server, rest, table, sleeps):
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


def test_missing_table_is_not_found_after_the_parquet_fallback(server, rest, table):
    server.on("POST", QUERY, wire.error(501, "NOT_IMPLEMENTED"), wire.error(404, "RESOURCE_DOES_NOT_EXIST", "no t"))

    with pytest.raises(NotFoundError, match="no t"):
        query_table(rest, table)
    assert len(server.requests) == 2


def test_listing_after_a_query_sends_no_capabilities(server, rest, table):
    server.on("POST", QUERY, wire.error(400, "X"))
    server.on("GET", "/shares", wire.as_json({}))

    with pytest.raises(RequestError):
        query_table(rest, table)
    rest.list_shares()

    assert "delta-sharing-capabilities" not in server.requests[-1].headers


def test_query_body_has_only_the_fields_of_its_request(server, rest, table):
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


@pytest.mark.parametrize("is_delta", [True, False])
def test_key_of_the_metadata_line_may_be_in_lower_case(server, rest, table, is_delta):
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
def test_table_and_files_may_have_no_id(server, rest, table, is_delta, id_field):
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


def test_copies_and_cursors_need_the_table_id(server, rest, table, tmp_path):
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
        (["r\xe9sum\xe9"], "begins with 'r\ufffdsum\ufffd"),
        (
            ['{"protocol": {"minReaderVersion": 1}}', '{"metaData": {"deltaMetadata": {"id":"x","schemaString":""}}}'],
            "Expected schemaString in the metaData line of a response in parquet format",
        ),
    ],
)
def test_malformed_first_lines_are_refused(server, rest, table, lines, reason):
    reply = wire.ndjson(*lines)
    reply.body = reply.body.decode().encode("latin-1")  # one line is not UTF-8
    server.on("POST", QUERY, reply)

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
def test_error_names_a_malformed_line(server, rest, table, line, reason):
    reply = wire.ndjson(*wire.delta_head())
    reply.body += (line if isinstance(line, bytes) else line.encode()) + b"\n"
    server.on("POST", QUERY, reply)

    response = query_table(rest, table)
    with pytest.raises(ProtocolError, match=reason):
        list(response.actions)
    assert next(response.blocks, None) is None


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("malformed", ["{bad", "{} {}", "5", '{"file": {"id": "x"}}', '{"queryStatus": {}}'])
def test_files_before_a_malformed_line_are_returned(server, rest, table, monkeypatch, malformed, at_once):
    monkeypatch.setattr(lines.SHORTCUTS, "lines_at_once", at_once)
    server.on(
        "POST", QUERY, wire.ndjson(*wire.delta_head(), *map(wire.delta_file, "abc"), malformed, wire.delta_file("d"))
    )
    actions = query_table(rest, table).actions
    assert [next(actions).file_id for _ in range(3)] == ["a", "b", "c"]
    with pytest.raises(ProtocolError, match="line 6"):
        next(actions)


def test_unknown_lines_are_skipped(server, rest, table):
    head, file = wire.delta_head(), wire.delta_file("f")
    reply = wire.ndjson({"hello": 1}, head[0], {"later": {"a": 1}}, head[1], "{}", file, {"x": []}, END, {"bye": 1})
    server.on("POST", QUERY, reply)

    response = query_table(rest, table)

    assert ids(response) == ["f"]
    assert response.refresh_token == "fresh"

    server.on("POST", QUERY, wire.ndjson({"hello": 1}))
    with pytest.raises(TransportError, match="no protocol line"):
        query_table(rest, table)


def test_unknown_null_and_missing_fields_are_accepted(server, rest, table):
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


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
def test_only_line_feeds_separate_lines(server, rest, table, framing):
    reply = wire.ndjson(*wire.delta_head(), framing=framing)
    name = "a\u2028b\u2029c\x85d"
    file = json.dumps(wire.delta_file(name), ensure_ascii=False).encode()
    reply.body = reply.body.replace(b"\n", b"\r\n") + b"\r\n\n  \n" + file  # the last line has no line feed
    server.on("POST", QUERY, reply)

    assert ids(query_table(rest, table)) == [name]


def test_error_for_a_newer_parquet_version_suggests_an_upgrade(server, rest, table):
    server.on("POST", QUERY, wire.ndjson({"protocol": {"minReaderVersion": 2}}, wire.parquet_head()[1]))

    with pytest.raises(UnsupportedFeatureError, match="upgrade delta-sharing-client"):
        query_table(rest, table)


def test_metadata_of_a_table_without_url_access_is_read(server, rest, table):
    head = wire.delta_head({"accessModes": ["dir"], "location": "s3://b/t", "auxiliaryLocations": ["s3://c/t"]})
    server.on("POST", QUERY, wire.ndjson(*head))
    server.on("GET", METADATA, wire.ndjson(*head))

    with pytest.raises(UnsupportedFeatureError, match="directory access") as caught:
        query_table(rest, table)
    assert caught.value.feature == "directory access"
    metadata = table_metadata(rest, table)
    assert (metadata.access_modes, metadata.location) == (("dir",), "s3://b/t")
    assert metadata.auxiliary_locations == ("s3://c/t",)


def test_equal_partition_values_share_memory(server, rest, table):
    files = [wire.delta_file(f"f{i}", partitionValues={"p": "x"}) for i in range(3)]
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), *files))

    first, second, third = query_table(rest, table).actions

    assert first.action.partition_values is second.action.partition_values is third.action.partition_values


# --- end of stream ---


@pytest.mark.parametrize("capabilities", [None, ENDS])
def test_error_in_the_stream_is_raised_with_its_status(server, rest, table, capabilities):
    error_line = {"endStreamAction": {"errorMessage": f"broke with {wire.TOKEN}", "httpStatusErrorCode": 400}}
    server.on(
        "POST", QUERY, wire.ndjson(*wire.delta_head(), wire.delta_file("f"), error_line, capabilities=capabilities)
    )

    with pytest.raises(RequestError, match="broke with") as caught:
        list(query_table(rest, table).actions)
    assert caught.value.status == 400
    assert wire.TOKEN not in str(caught.value)
    assert len(server.requests) == 1


@pytest.mark.parametrize("before", [0, 30, 55, 95])
@pytest.mark.parametrize("page", ["<html><title>{}</title></html>", "{}", "{}\n{}"])
def test_error_shows_no_prefix_of_a_cut_secret(server, rest, table, before, page):
    response = wire.Reply(200, page.format("." * before + wire.TOKEN, "").encode())
    response.headers["Content-Type"] = "text/" + "." * before + wire.TOKEN
    server.on("POST", QUERY, response)

    with pytest.raises(ProtocolError, match="check the endpoint") as caught:
        list(query_table(rest, table).actions)
    assert wire.TOKEN[:4] not in str(caught.value)


def test_login_page_is_not_retried(server, rest, table):
    page = wire.ndjson(f"<html>\n<title>Sign in {wire.TOKEN}</title>\n</html>")
    page.body = page.body.strip()  # without a line end, it must not count as a truncated response
    page.headers["Content-Type"] = "text/html"
    server.on("POST", QUERY, page)

    with pytest.raises(ProtocolError, match=r"found an HTML page with the title 'Sign in .*endpoint") as caught:
        query_table(rest, table)
    assert wire.TOKEN not in str(caught.value)
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
def test_error_as_the_only_line_is_raised(server, rest, table, line, kind, code, message):
    server.on("POST", QUERY, wire.ndjson(json.dumps(line).replace("for {}", f"for {wire.TOKEN}")))

    with pytest.raises(kind, match=message) as caught:
        query_table(rest, table)
    assert caught.value.error_code == code
    assert wire.TOKEN not in str(caught.value)


@pytest.mark.parametrize("code", ["UNSUPPORTED_OPERATION", "NOT_IMPLEMENTED"])
def test_databricks_delta_refusal_falls_back_to_parquet(server, rest, table, code):
    refusal = wire.as_json({"error_code": code, "message": "no delta"}, status=400)
    server.on("POST", QUERY, refusal, wire.ndjson(*wire.parquet_head(), wire.parquet_file("f")))

    assert ids(query_table(rest, table)) == ["f"]


@pytest.mark.parametrize("status", [400, 409])
def test_delta_refusal_is_reported_if_parquet_is_refused_too(server, rest, table, status):
    refusals = (wire.error(status, "UNSUPPORTED_OPERATION", "no delta"), wire.error(400, "X", "no parquet"))
    server.on("POST", QUERY, *refusals)
    server.on("GET", METADATA, *refusals)

    for read in (query_table, table_metadata):
        with pytest.raises(RequestError, match="no delta"):
            read(rest, table)
    assert len(server.requests) == 4


@pytest.mark.parametrize("status", [502, 503])
def test_transient_error_in_the_stream_is_retried(server, rest, table, status):
    error_line = {"endStreamAction": {"errorMessage": "busy", "httpStatusErrorCode": status}}
    whole = wire.ndjson(*wire.delta_head(), wire.delta_file("f"), wire.delta_file("g"), END)
    broken = wire.ndjson(*wire.delta_head(), wire.delta_file("f"), error_line)
    server.on("POST", QUERY, broken, wire.ndjson(error_line), whole)

    assert ids(query_table(rest, table)) == ["f", "g"]

    server.on("POST", QUERY, broken)
    with pytest.raises(RequestError, match=r"busy\. Tried 4 times\.") as caught:
        list(query_table(rest, table).actions)
    assert caught.value.status == status


def test_missing_end_of_stream_is_an_error_after_retries(server, rest, table, sleeps):
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), wire.delta_file("f"), capabilities=ENDS))

    with pytest.raises(TransportError, match="endStreamAction"):
        list(query_table(rest, table).actions)
    assert len(server.requests) == 4


@pytest.mark.parametrize("framing", ["cut-length", "cut-chunked", "cut-close"])
@pytest.mark.parametrize("promise", [None, ENDS])
@pytest.mark.usefixtures("small_chunks")
def test_broken_stream_resumes_with_each_file_once(server, rest, table, framing, promise):
    whole = wire.ndjson(*wire.delta_head(), *(wire.delta_file(f"f{i}") for i in range(50)), END, capabilities=promise)
    reordered = wire.ndjson(
        *wire.delta_head(), *(wire.delta_file(f"f{i}") for i in reversed(range(50))), END, capabilities=promise
    )
    for cut in (10, 400, 3000, len(whole.body) - 100):
        broken = wire.Reply(200, whole.body, whole.headers, framing, cut)
        server.on("POST", QUERY, broken, broken, reordered)

        response = query_table(rest, table)

        assert sorted(ids(response)) == sorted(f"f{i}" for i in range(50))


def signed(path, file_id=None, rows=None, offset=1):
    """Return an added file whose deletion vector, if it has one, deletes ``rows`` rows."""
    vector = {"storageType": "p", "pathOrInlineDv": "https://x/dv", "sizeInBytes": 4, "cardinality": rows}
    fields = {} if rows is None else {"deletionVector": {**vector, "offset": offset}}
    return wire.delta_file("", "add", {"id": file_id, "version": 1}, path=f"https://x/{path}", **fields)


CHANGED = [signed("f", "f"), signed("f", "f", 1), signed("f", "f", 2), signed("f", "f", 1, 9)]


@pytest.mark.parametrize(
    ("request_", "responses", "new"),
    [
        # Files without an id are identified by their paths.
        (QueryRequest(), [[signed("a?a"), signed("b?b")], [signed("a?a"), signed("b?b"), signed("c?c")]], [2, 1]),
        # Each response may sign the path of a file with an id differently.
        (QueryRequest(), [[signed(f"{n}/{name}", name) for name in "abc"[: n + 1]] for n in range(3)], [1, 1, 1]),
        (
            QueryRequest(),
            [[signed("0/a", "a"), signed("b?1")], [signed("1/a", "a"), signed("b?1"), signed("c?1")]],
            [2, 1],
        ),
        # Changes of one file differ by their deletion vectors, and a feed may list a change several times.
        (ChangesQuery(starting_version=1), [CHANGED[:1], CHANGED[:0:-1]], [1, 3]),
        (ChangesQuery(starting_version=1), [CHANGED[:1], [CHANGED[0], *CHANGED[:0:-1]]], [1, 3]),
        (ChangesQuery(starting_version=1), [CHANGED[:1] * 2, CHANGED[:1] * 3], [2, 1]),
    ],
)
@pytest.mark.usefixtures("small_chunks")
def test_repeated_response_gives_only_new_files(server, rest, table, request_, responses, new):
    """All responses but the last are cut off after their files. The new ones are at the end of each response."""
    place = ("GET", CHANGES) if isinstance(request_, ChangesQuery) else ("POST", QUERY)
    whole = [wire.ndjson(*wire.delta_head(), *files, version=1) for files in responses]
    broken = [wire.Reply(200, each.body + b"{", each.headers, "cut-length", len(each.body)) for each in whole[:-1]]
    server.on(*place, *broken, whole[-1])

    returned = [file.action.path for file in query_table(rest, table, request_).actions]

    paths = [[line["file"]["deltaSingleAction"]["add"]["path"] for line in files] for files in responses]
    assert returned == [path for listed, count in zip(paths, new, strict=True) for path in listed[-count:]]
    assert len(server.requests) == len(responses)


@pytest.mark.parametrize("other", [{"path": "https://storage.test/other.parquet"}, {"size": 6}])
@pytest.mark.usefixtures("small_chunks")
def test_duplicate_file_id_is_refused_after_a_broken_stream(server, rest, table, other):
    files = [wire.delta_file(f"f{i}") for i in range(50)]
    whole = wire.ndjson(*wire.delta_head(), *files, wire.delta_file("f3", **other), END)
    server.on("POST", QUERY, wire.Reply(200, whole.body, whole.headers, "cut-length", len(whole.body) - 400), whole)

    with pytest.raises(ProtocolError, match="two files with this id"):
        list(query_table(rest, table).actions)


@pytest.mark.parametrize("framing", ["cut-length", "cut-chunked", "cut-close"])
def test_response_truncated_anywhere_is_an_error(server, profile, table, framing):
    rest = RestClient(profile, ReadOptions(max_attempts=1, read_timeout=2))
    whole = wire.ndjson(*wire.delta_head(), *(wire.delta_file(f"f{i}") for i in range(5)), END, capabilities=ENDS)
    for cut in range(0, len(whole.body) - 1, 41):
        server.on("POST", QUERY, wire.Reply(200, whole.body, whole.headers, framing, cut))
        with pytest.raises(TransportError):
            list(query_table(rest, table).actions)


@pytest.mark.usefixtures("small_chunks")
def test_broken_stream_does_not_resume_in_a_changed_table(server, rest, table):
    whole = wire.ndjson(*wire.delta_head(), *(wire.delta_file(f"f{i}") for i in range(50)))
    broken = wire.Reply(200, whole.body, whole.headers, "cut-length", 3000)
    server.on("POST", QUERY, broken, wire.ndjson(*wire.delta_head(), wire.delta_file("f0"), version=8))

    with pytest.raises(TransportError, match="table has changed since"):
        list(query_table(rest, table).actions)


def test_abandoned_response_leaves_the_client_usable(server, rest, table):
    files = [wire.delta_file(f"f{i}") for i in range(2000)]
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), *files))

    with query_table(rest, table) as response:
        assert next(response.actions).file_id == "f0"
    assert next(response.blocks, None) is None
    assert len(ids(query_table(rest, table))) == 2000


# --- pages ---


def page(token, *names, version=7, head=None):
    end = {"endStreamAction": {"nextPageToken": token, "refreshToken": f"r-{token}"}}
    return wire.ndjson(*(head or wire.delta_head()), *(wire.delta_file(n) for n in names), end, version=version)


def test_request_for_a_page_repeats_the_other_parameters(server, rest, table):
    server.on("POST", QUERY, page("p2", "a", "b"), page("p3"), page("", "c"))

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
def test_first_renewal_covers_the_end_lines_of_all_pages(server, rest, table, fixed_clock, expirations, renewal):
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
def test_query_sends_the_reader_features_of_its_operation(server, rest, table, operation, monkeypatch):
    monkeypatch.setattr(query, "reader_features", lambda operation: [f"of-{operation.value}"])
    request = QueryRequest() if operation is Operation.SNAPSHOT else QueryRequest(starting_version=7)
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head()))
    query_table(rest, table, request).close()
    [request] = server.requests
    parts = dict(part.split("=") for part in request.headers["delta-sharing-capabilities"].split(";"))
    assert parts["readerfeatures"] == f"of-{operation.value}".lower()


def test_metadata_of_version_0_is_read(server, rest, table):
    server.on("GET", METADATA, wire.ndjson(*wire.delta_head(), version=0))
    assert table_metadata(rest, table, version=0).version == 0
    server.on("GET", METADATA, wire.ndjson({"queryStatus": {"queryId": "q"}}))
    with pytest.raises(ProtocolError, match="expected only a protocol and a metaData line, found another"):
        table_metadata(rest, table)


def test_reading_an_interrupted_response_is_an_error(server, rest, table):
    server.on("POST", QUERY, page("p2", "a"), page(None, "b"))
    response = query_table(rest, table)
    response.break_off()
    with pytest.raises((CancelledError, TransportError)):
        list(response.actions)
    assert len(server.requests) == 1


def test_metadata_of_an_invalid_version_is_refused():
    for version in (-1, True, 1 << 63):
        with pytest.raises(UsageError, match="'version' must be a whole number from 0 to"):
            table_metadata(None, None, version=version)


def test_repeated_page_token_is_an_error(server, rest, table):
    server.on("POST", QUERY, page("again", "a"))

    with pytest.raises(ProtocolError, match="same nextPageToken twice"):
        list(query_table(rest, table).actions)


OTHER_PROTOCOL = {"protocol": {"deltaProtocol": {"minReaderVersion": 1, "minWriterVersion": 4}}}


def test_page_that_contradicts_the_first_page_is_an_error(server, rest, table):
    for other, difference in (
        (page(None, "b", version=8), "version"),
        (page(None, "b", head=wire.delta_head(id="u")), "metadata"),
        (page(None, "b", head=[OTHER_PROTOCOL, wire.delta_head()[1]]), "protocol"),
        (wire.ndjson(*wire.parquet_head(), wire.parquet_file("b")), "response format"),
    ):
        server.on("POST", QUERY, page("p2", "a"), other)
        with pytest.raises(ProtocolError, match=f"Page 2 has a different {difference}"):
            list(query_table(rest, table).actions)


@pytest.mark.usefixtures("small_chunks")
def test_broken_page_is_requested_again_by_its_token(server, rest, table):
    second = page(None, *(f"b{i}" for i in range(20)))
    broken = wire.Reply(200, second.body, second.headers, "cut-length", 2500)
    server.on("POST", QUERY, page("p2", "a"), broken, second)

    assert ids(query_table(rest, table)) == ["a", *(f"b{i}" for i in range(20))]
    assert [request.body.get("pageToken") for request in server.requests] == [None, "p2", "p2"]


# --- ranges of versions ---


def test_secret_in_a_response_header_is_not_shown(server, rest, table):
    response = wire.ndjson(*wire.delta_head())
    response.headers["Delta-Table-Version"] = wire.TOKEN
    server.on("POST", QUERY, response)
    with pytest.raises(ProtocolError, match="Delta-Table-Version") as caught:
        query_table(rest, table)
    assert wire.TOKEN not in str(caught.value)


def test_pages_of_a_change_feed_are_requested_by_token(server, rest, table):
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


def test_parquet_request_omits_the_historical_protocol_field(server, rest, table):
    server.on("GET", CHANGES, wire.ndjson(*wire.parquet_head()))
    server.on("POST", QUERY, wire.ndjson(*wire.parquet_head()))

    request = ChangesQuery(starting_timestamp="2022-01-01T00:00:00Z", ending_version=4)
    query_table(rest, table, request, response_format=ResponseFormat.PARQUET)
    query_table(rest, table, QueryRequest(starting_version=1), response_format=ResponseFormat.PARQUET)
    query_table(rest, table, ChangesQuery(starting_version=1))

    assert server.requests[0].query == {
        "startingTimestamp": "2022-01-01T00:00:00Z",
        "endingVersion": "4",
        "includeHistoricalMetadata": "true",
    }
    assert server.requests[1].body == {"startingVersion": 1}
    assert server.requests[2].query == {
        "startingVersion": "1",
        "includeHistoricalMetadata": "true",
        "includeHistoricalProtocol": "true",
    }


def test_files_outside_a_version_range_are_not_returned(server, rest, table):
    lines = [wire.parquet_file(f"f{v}", "add", version=v, timestamp=v) for v in (4, 5, 6)]
    server.on("POST", QUERY, wire.ndjson(*wire.parquet_head(), *lines, wire.parquet_head(version=6)[1], version=4))

    assert ids(query_table(rest, table, QueryRequest(starting_version=4, ending_version=5))) == ["f4", "f5"]
    with pytest.raises(ProtocolError, match="version 4, before the first requested one, 5"):
        list(query_table(rest, table, QueryRequest(starting_version=5)).actions)


@pytest.mark.usefixtures("small_chunks")
def test_broken_change_feed_resumes_after_the_last_action(server, rest, table):
    lines = []
    for version in range(20):  # the same file id is added and removed alternately
        lines.append(wire.delta_file("f", "add" if version % 2 == 0 else "remove", {"version": version}))
    whole = wire.ndjson(*wire.delta_head(), *lines, version=0)
    broken = wire.Reply(200, whole.body, whole.headers, "cut-length", 2500)
    server.on("GET", CHANGES, broken, wire.ndjson(*wire.delta_head(), *reversed(lines), version=0))

    response = query_table(rest, table, ChangesQuery(starting_version=0))

    assert sorted(file.version for file in response.actions) == list(range(20))


# --- metadata ---


def test_metadata_request_accepts_both_formats_and_a_version(server, rest, table):
    server.on("GET", METADATA, wire.ndjson(*wire.parquet_head(), version=3))

    head = table_metadata(rest, table, version=3)
    table_metadata(rest, table, timestamp="2022-01-01T00:00:00Z")

    assert head.response_format is ResponseFormat.PARQUET
    assert head.version == 3
    assert "responseformat=delta,parquet;" in server.requests[0].headers["delta-sharing-capabilities"]
    assert server.requests[0].query == {"version": "3"}
    assert server.requests[1].query == {"timestamp": "2022-01-01T00:00:00Z"}


@pytest.mark.parametrize("end", [[], [END]])
def test_metadata_may_have_an_end_of_stream(server, rest, table, end):
    server.on("GET", METADATA, wire.ndjson(*wire.delta_head(), *end, capabilities=ENDS))

    assert table_metadata(rest, table).version == 7
    assert len(server.requests) == 1
    assert "endstream" not in server.requests[0].headers["delta-sharing-capabilities"]


def test_metadata_with_extra_lines_is_refused(server, rest, table):
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


def test_asynchronous_query_is_polled_until_it_completes(server, rest, table, sleeps):
    pending = wire.ndjson({"queryStatus": {"queryId": "q/1", "status": "pending"}}, version=0)
    without_status = wire.ndjson({"queryStatus": {"queryId": "q/1"}}, version=None)
    server.on("POST", QUERY, pending)
    server.on("POST", STATUS, without_status, page("p2", "a"), page(None, "b"))

    response = query_table(rest, table, QueryRequest(asynchronous=True))

    assert ids(response) == ["a", "b"]
    assert "asyncquery=true" in server.requests[0].headers["delta-sharing-capabilities"]
    assert server.requests[0].body["idempotencyKey"]
    assert [request.body for request in server.requests[1:]] == [{}, {}, {"pageToken": "p2"}]
    assert len(sleeps) == 2


def test_status_of_a_running_query_needs_no_id(server, rest, table):
    server.on("POST", QUERY, wire.ndjson({"queryStatus": {"queryId": "q/1", "status": "pending"}}, version=0))
    server.on("POST", STATUS, wire.ndjson({"queryStatus": {"status": "running"}}, version=0), page(None, "a"))
    assert ids(query_table(rest, table, QueryRequest(asynchronous=True))) == ["a"]


@pytest.mark.parametrize("query_id", ["7", "not a uuid", "../../x?y#z", "ü😀", "x" * 300, '{"a": 1}'])
def test_query_id_is_sent_back_unchanged(server, rest, table, query_id):
    server.on("POST", QUERY, wire.ndjson({"queryStatus": {"queryId": query_id, "status": "pending"}}))
    path = f"/shares/s/schemas/d/tables/t/queries/{quote(query_id, safe='')}"
    server.on("POST", path, wire.ndjson(*wire.delta_head(), wire.delta_file("f")))

    assert ids(query_table(rest, table, QueryRequest(asynchronous=True))) == ["f"]
    assert server.requests[-1].path == path


def test_asynchronous_query_may_complete_immediately(server, rest, table):
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), wire.delta_file("f")))

    assert ids(query_table(rest, table, QueryRequest(asynchronous=True))) == ["f"]
    assert len(server.requests) == 1


def test_query_status_with_another_id_is_an_error(server, rest, table):
    server.on("POST", QUERY, wire.ndjson({"queryStatus": {"queryId": "q/1", "status": "pending"}}))
    server.on("POST", STATUS, wire.ndjson({"queryStatus": {"queryId": "other", "status": "pending"}}))

    with pytest.raises(ProtocolError, match="changed the queryId"):
        query_table(rest, table, QueryRequest(asynchronous=True))


def test_total_timeout_limits_an_asynchronous_query(server, rest, table):
    server.on("POST", QUERY, wire.ndjson({"queryStatus": {"queryId": "q/1"}}))
    server.on("POST", STATUS, wire.ndjson({"queryStatus": {"queryId": "q/1"}}))

    with pytest.raises(TransportError, match=r"took longer than the 0\.1 seconds of 'total_timeout'"):
        query_table(rest.for_read(ReadOptions(total_timeout=0.1)), table, QueryRequest(asynchronous=True))


def test_idempotency_key_is_sent_as_the_server_spells_it(server, rest, table):
    def respond(request):
        if "idempotency_key" not in request.body:
            return wire.error(400, "INVALID_PARAMETER_VALUE", "idempotency_key is missing")
        return wire.ndjson(*wire.delta_head(), wire.delta_file("f"))

    server.on("POST", QUERY, respond)

    assert ids(query_table(rest, table, QueryRequest(asynchronous=True))) == ["f"]


# --- errors of the server ---


def test_error_of_refused_credentials_names_the_table(server, rest, table):
    server.on("POST", QUERY, wire.error(401, "UNAUTHENTICATED", f"bad token {wire.TOKEN}"))

    with pytest.raises(AuthError, match="may have expired") as caught:
        query_table(rest, table)
    assert "s.d.t" in str(caught.value)
    assert wire.TOKEN not in str(caught.value)
    assert caught.value.status == 401


# === Limits ===


def test_number_of_empty_pages_is_limited(server, rest, table, monkeypatch):
    monkeypatch.setattr("delta_sharing_client.protocol.listings._MAX_EMPTY_PAGES", 20)

    def empty_page(request):
        end = {"endStreamAction": {"nextPageToken": str(len(server.requests))}}
        return wire.ndjson(*wire.delta_head(), end)

    server.on("POST", QUERY, empty_page)
    with pytest.raises(ProtocolError, match="21 empty pages"):
        list(query_table(rest, table).actions)


def test_total_timeout_limits_all_pages_of_a_query(server, profile, table):
    def next_page(request):
        name = str(len(server.requests))
        return wire.ndjson(*wire.delta_head(), wire.delta_file(name), {"endStreamAction": {"nextPageToken": name}})

    server.on("POST", QUERY, next_page)
    with pytest.raises(TransportError, match="'total_timeout'"):
        list(query_table(RestClient(profile, ReadOptions(total_timeout=0.4)), table).actions)


def test_closed_response_is_freed_without_garbage_collection(server, rest, table, small_chunks):
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
def test_query_is_repeated_without_a_refused_field(server, rest, table, text):
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
def test_second_spelling_of_the_idempotency_key_is_tried_once(server, rest, table, message, count):
    server.on("POST", QUERY, wire.error(400, "X", message))
    with pytest.raises(RequestError):
        query_table(rest, table, QueryRequest(asynchronous=True), response_format=ResponseFormat.DELTA)
    keys = [name for request in server.requests for name in request.body if name.startswith("idem")]
    assert keys == ["idempotencyKey", "idempotency_key"][:count]
    assert len({request.body[key] for request, key in zip(server.requests, keys, strict=True)}) == 1


@pytest.mark.parametrize("status", [400, 500])
def test_query_whose_hints_fail_is_repeated_without_them(server, rest, table, status):
    """Such a 500 was seen from the reference server (1.1.0, 2026), for a partition with an ISO 8601 timestamp."""

    def respond(request):
        if "jsonPredicateHints" in request.body:
            return wire.error(status, "INTERNAL_ERROR", "")
        return wire.ndjson(*wire.delta_head(), wire.delta_file("f"))

    server.on("POST", QUERY, respond)
    request = QueryRequest(json_predicate_hints='{"op": "x"}', version=7)
    assert ids(query_table(rest, table, request)) == ["f"]
    assert [request.body for request in server.requests] == [
        {"jsonPredicateHints": '{"op": "x"}', "version": 7},
        {"version": 7},
    ]


def test_failed_query_with_hints_is_retried_without_them(server, rest, table, sleeps):
    server.on("POST", QUERY, wire.error(500, "INTERNAL_ERROR", ""))
    with pytest.raises(RequestError, match="Tried 4 times"):
        query_table(rest, table, QueryRequest(json_predicate_hints="{}"))
    assert ["jsonPredicateHints" in request.body for request in server.requests] == [True, False, False, False, False]


def test_later_pages_of_a_query_with_hints_are_retried(server, rest, table, sleeps):
    failure, head = wire.error(500, "INTERNAL_ERROR", ""), wire.delta_head()
    first = wire.ndjson(*head, wire.delta_file("a"), {"endStreamAction": {"nextPageToken": "p2"}})
    server.on("POST", QUERY, first, failure, wire.ndjson(*head, wire.delta_file("b")))
    assert ids(query_table(rest, table, QueryRequest(json_predicate_hints="{}"))) == ["a", "b"]
    assert all("jsonPredicateHints" in request.body for request in server.requests)


def test_unknown_format_is_refused_whatever_the_hints(server, rest, table):
    server.on("POST", QUERY, wire.error(400, "UNSUPPORTED_OPERATION", ""))
    with pytest.raises(RequestError):
        query_table(rest, table, QueryRequest(json_predicate_hints="{}"), response_format=ResponseFormat.DELTA)
    assert len(server.requests) == 1
