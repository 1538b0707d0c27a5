"""Answers of queries: both formats, their checks, pages, broken streams and asynchronous queries."""

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
from delta_sharing_client.options import ReadOptions, ResponseFormat
from delta_sharing_client.protocol import body, line_order, lines, query, response_stream
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
def stopped(monkeypatch):
    """It is ``NOW`` here and on the server."""
    monkeypatch.setattr(lines, "steady_ms", lambda: NOW)
    monkeypatch.setattr(lines, "http_date", lambda text: NOW / 1000)


@pytest.fixture
def small_chunks(monkeypatch):
    """Read answers in pieces so small that some of a short one is handed out before it breaks off."""
    monkeypatch.setattr(body, "_CHUNK_BYTES", 200)


def ids(answer):
    return [action.file_id for action in answer.actions]


def test_delta_response_becomes_log_actions_with_sharing_facts(server, rest, table, wire, stopped):
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

    answer = query_table(rest, table)

    assert answer.head.response_format is ResponseFormat.DELTA
    assert (answer.head.version, answer.head.table_size, answer.head.num_files) == (7, 10, 1)
    assert answer.head.location == "s3://b/t"
    assert answer.head.protocol.min_reader_version == 1
    assert answer.refresh_token is None
    (file,) = answer.actions
    add = file.action
    assert isinstance(add, AddFile)
    assert add.path == "https://storage.test/f1.parquet?sig=planted-f1"
    assert add.partition_values == {"p": None}
    assert (file.file_id, file.vector_id) == ("f1", "dv1")
    assert (file.version, file.timestamp, file.renew_at) == (7, 8, NOW + HOUR - MINUTE)
    assert add.deletion_vector.cardinality == 2
    assert (answer.refresh_token, answer.first_renewal) == ("fresh", NOW + MINUTE)


def test_parquet_response_without_header_is_accepted(server, rest, table, wire, stopped):
    file = wire.parquet_file("f1", stats='{"numRecords":1}', expirationTimestamp=NOW + HOUR)
    server.on("POST", QUERY, wire.ndjson(*wire.parquet_head(configuration=None), file))

    answer = query_table(rest, table)

    assert answer.head.response_format is ResponseFormat.PARQUET
    assert answer.head.protocol.min_reader_version == 1
    assert answer.head.metadata.properties == {}
    (file,) = answer.actions
    assert isinstance(file.action, AddFile)
    assert (file.file_id, file.action.size, file.action.stats) == ("f1", 5, '{"numRecords":1}')
    assert file.renew_at == NOW + HOUR - MINUTE


def test_delta_response_to_a_parquet_request_is_refused(server, rest, table, wire):
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), capabilities="responseformat=delta"))

    with pytest.raises(ProtocolError, match="asked for the parquet response format, found delta"):
        query_table(rest, table, response_format=ResponseFormat.PARQUET)


@pytest.mark.parametrize("header", ["responseFormat=Delta", "RESPONSEFORMAT=delta;x=y", "responseformat=parquet", None])
def test_format_follows_the_lines_and_not_the_header(server, rest, table, wire, header):
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), wire.delta_file("f1"), capabilities=header))

    assert ids(query_table(rest, table)) == ["f1"]


def test_query_requests_one_format_features_and_end_of_stream(server, rest, table, wire):
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head()))

    list(query_table(rest, table).actions)

    header = server.seen[0].headers["delta-sharing-capabilities"]
    parts = dict(part.split("=") for part in header.split(";"))
    assert parts["responseformat"] == "delta"
    assert {"deletionvectors", "columnmapping"} <= set(parts["readerfeatures"].split(","))
    assert parts["includeendstreamaction"] == "true"
    assert header == header.lower()
    assert " " not in header


def test_parquet_only_server_is_asked_again_for_parquet(server, rest, table, wire, sleeps):
    def answer(seen):
        if "responseformat=delta" in seen.headers["delta-sharing-capabilities"]:
            return wire.error(501, "NOT_IMPLEMENTED")
        return wire.ndjson(*wire.parquet_head(), *([] if seen.method == "GET" else [wire.parquet_file("f1")]))

    server.on("POST", QUERY, answer)
    server.on("GET", METADATA, answer)
    server.on("GET", CHANGES, answer)

    assert ids(query_table(rest, table)) == ["f1"]
    assert ids(query_table(rest, table, ChangesQuery(starting_version=0))) == []
    assert table_metadata(rest, table).response_format is ResponseFormat.PARQUET
    with pytest.raises(RequestError) as caught:
        query_table(rest, table, response_format=ResponseFormat.DELTA)
    assert caught.value.status == 501
    assert sleeps == []


@pytest.mark.parametrize("in_stream", [False, True])
@pytest.mark.parametrize("parquet", [400, 501, 505])
def test_unimplemented_request_fails_at_once(server, rest, table, wire, sleeps, in_stream, parquet):
    said = wire.error(501, "NOT_IMPLEMENTED", "read this table through the Iceberg catalog")
    if in_stream:
        message = "read this table through the Iceberg catalog"
        said = wire.ndjson({"endStreamAction": {"errorMessage": message, "httpStatusErrorCode": 501}})
    for method, path in (("POST", QUERY), ("GET", METADATA), ("GET", CHANGES)):
        server.on(method, path, said, wire.error(parquet, "X", "second"))

    for ask in (
        lambda: query_table(rest, table),
        lambda: table_metadata(rest, table),
        lambda: query_table(rest, table, ChangesQuery(starting_version=0)),
    ):
        server.seen.clear()
        with pytest.raises(RequestError, match="through the Iceberg catalog") as caught:
            ask()
        assert caught.value.status == 501
        assert len(server.seen) == 2  # the formats
    assert sleeps == []


def test_501_of_a_later_page_or_poll_fails_at_once(server, rest, table, wire, sleeps):
    pending = wire.ndjson({"queryStatus": {"queryId": "q", "status": "pending"}})
    first = wire.ndjson(*wire.delta_head(), wire.delta_file("f1"), {"endStreamAction": {"nextPageToken": "n"}})
    server.on("POST", QUERY, first, wire.error(501, "X", "no pages"))
    with pytest.raises(RequestError, match="no pages"):
        ids(query_table(rest, table))
    server.on("POST", QUERY, pending)
    server.on("POST", "/shares/s/schemas/d/tables/t/queries/q", wire.error(501, "X", "no polls"))
    with pytest.raises(RequestError, match="no polls"):
        query_table(rest, table, QueryRequest(asynchronous=True))
    assert sleeps == [0.5, 0.5]  # before a poll, for each format


def test_the_first_url_to_expire_counts_over_all_pages(server, rest, table, wire, stopped):
    late, soon = {"expirationTimestamp": NOW + HOUR}, {"expirationTimestamp": NOW + 5 * MINUTE}
    pages = (("1", late), ("2", {}), ("3", soon), ("", {}))
    replies = []
    for token, fields in pages:
        page = (*wire.parquet_head(), wire.parquet_file(f"f{token}", **fields))
        replies.append(wire.ndjson(*page, {"endStreamAction": {"nextPageToken": token}}))
    server.on("POST", QUERY, *replies)

    answer = query_table(rest, table)
    assert len(list(answer.actions)) == 4
    assert answer.first_renewal == NOW + 4 * MINUTE


def test_a_table_that_an_old_server_does_not_have_is_not_found(server, rest, table, wire):
    server.on("POST", QUERY, wire.error(501, "NOT_IMPLEMENTED"), wire.error(404, "RESOURCE_DOES_NOT_EXIST", "no t"))

    with pytest.raises(NotFoundError, match="no t"):
        query_table(rest, table)
    assert len(server.seen) == 2


def test_capabilities_of_one_request_do_not_leak_into_the_next(server, rest, table, wire):
    server.on("POST", QUERY, wire.error(400, "X"))
    server.on("GET", "/shares", wire.as_json({}))

    with pytest.raises(RequestError):
        query_table(rest, table)
    rest.list_shares()

    assert "delta-sharing-capabilities" not in server.seen[-1].headers


def test_body_holds_only_the_requested_fields(server, rest, table, wire):
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

    assert [seen.body for seen in server.seen] == [
        {"includeRefreshToken": True},
        {"jsonPredicateHints": hints, "limitHint": 3, "includeRefreshToken": True},
        {"version": 7},
        {"timestamp": "2022-01-01T00:00:00Z"},
        {"includeRefreshToken": True, "refreshToken": "r"},
        {"startingVersion": 7, "endingVersion": 9, "includeHistoricalProtocol": True},
    ]


def test_snapshot_of_another_version_than_asked_is_refused(server, rest, table, wire):
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), version=8))

    with pytest.raises(ProtocolError, match="asked for version 7, found version 8"):
        query_table(rest, table, QueryRequest(version=7))


def test_version_header_may_be_missing_if_metadata_has_it(server, rest, table, wire):
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head({"version": 5}), version=None))
    assert query_table(rest, table).head.version == 5

    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), version=None))
    with pytest.raises(ProtocolError, match="Delta-Table-Version"):
        query_table(rest, table)


@pytest.mark.parametrize("is_delta", [True, False])
def test_a_metadata_line_may_have_another_spelling(server, rest, table, wire, is_delta):
    protocol, described = (wire.delta_head if is_delta else wire.parquet_head)()
    file = (wire.delta_file if is_delta else wire.parquet_file)("f1")
    misspelt = {"metadata": described["metaData"]}
    server.on("POST", QUERY, wire.ndjson(protocol, described, file))
    expected = query_table(rest, table).head
    server.on("POST", QUERY, wire.ndjson(protocol, misspelt, file, misspelt))
    server.on("GET", METADATA, wire.ndjson(protocol, misspelt))

    with query_table(rest, table) as answer:
        assert answer.head == expected
        assert ids(answer) == ["f1"]
    assert table_metadata(rest, table).metadata == expected.metadata
    server.on("POST", QUERY, wire.ndjson(protocol, {**described, **misspelt}, file))
    with pytest.raises(ProtocolError, match="found metaData, metadata"):
        query_table(rest, table)


@pytest.mark.parametrize("is_delta", [True, False])
@pytest.mark.parametrize("given", [{"id": None}, {"id": ""}, {}])
def test_ids_may_be_missing(server, rest, table, wire, is_delta, given):
    """A file is then known by its path, and the table has none: caches and copies need one, and say so."""
    head = (wire.delta_head if is_delta else wire.parquet_head)()
    described = head[1]["metaData"].get("deltaMetadata", head[1]["metaData"])
    described |= given
    files = [(wire.delta_file if is_delta else wire.parquet_file)(name) for name in ("f1", "f2")]
    for file in files:
        file["file"] |= given
    if not given:
        for fields in (described, *(file["file"] for file in files)):
            del fields["id"]
    server.on("POST", QUERY, wire.ndjson(*head, *files))

    with query_table(rest, table) as answer:
        assert answer.head.metadata.id == ""
        listed = list(answer.actions)
    assert [file.file_id for file in listed] == [None, None]
    keys = [url_key(file) for file in listed]
    assert keys == [url_key(file) for file in query_table(rest, table).actions]
    assert len(set(keys)) == 2


def test_durable_output_needs_the_table_id(server, rest, table, wire, tmp_path):
    """Without one, a copy or a cursor could go on with another table."""
    reply = wire.ndjson(*wire.delta_head(id=None))
    for method, path in (("POST", QUERY), ("GET", METADATA)):
        server.on(method, path, reply)
    shared = SharingClient(rest.profile).table(table)

    with pytest.raises(
        ProtocolError, match=r"Expected an id of 's\.d\.t' .* which identifies the table of a local copy"
    ):
        shared.replicate(tmp_path / "copy")
    with pytest.raises(ProtocolError, match=r"Expected an id of 's\.d\.t' .*, by which the cursor '.*' knows"):
        next(iter(shared.follow(tmp_path / "t.cursor")))
    assert shared.scan(options=ReadOptions(cache_directory=str(tmp_path / "cache"))).to_arrow().num_rows == 0


P1 = '{"protocol": {"minReaderVersion": 1}}'


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (['{"protocol": {"minReaderVersion": 1}, "metaData": {"id": "x"}}'], "found protocol, metaData"),
        (["not json"], "begins with 'not json'"),
        (["[1]"], r"begins with '\[1\]'"),
        (["{bad"], "line 1"),
        (['{"protocol": {}}'], "minReaderVersion or deltaProtocol"),
        (['{"metaData": {"id": "x"}}'], "first line must hold protocol"),
        (
            ['{"protocol": {"minReaderVersion": 1}}', '{"file": {"id": "x", "url": "u"}}'],
            "second line must hold metaData",
        ),
        ([P1, '{"metaData": {}}'], "Expected schemaString"),
        (
            ['{"protocol": {"minReaderVersion": 1}}', '{"metaData": {"deltaMetadata": {"id":"x","schemaString":""}}}'],
            "Expected schemaString in a metaData line of a parquet response",
        ),
    ],
)
def test_malformed_head_is_refused_naming_the_line(server, rest, table, wire, lines, reason):
    server.on("POST", QUERY, wire.ndjson(*lines))

    with pytest.raises(ProtocolError, match=reason):
        query_table(rest, table)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"file": {"id": "x", "url": "u"}, "add": {"id": "x", "url": "u"}}', "line 3 .*found file, add"),
        ('{"file": {"url": "u"}}', "deltaSingleAction"),
        ('{"file": {"id": "x"}}', "deltaSingleAction"),
        ('{"file": {"id": "x", "deltaSingleAction": {}}}', "add actions only"),
        ('{"file": {"id": "x", "deltaSingleAction": {"remove": {"path": "u"}}}}', "add actions only"),
        ('{"file": {"id": "x", "deltaSingleAction": {"add": {"path": "u", "size": "big"}}}}', "line 3 .*size"),
        ('{"queryStatus": {"queryId": "q"}}', "only line"),
        ('{"protocol": {"deltaProtocol": {"minReaderVersion": 3}}}', "one protocol"),
        ('{"metaData": {"deltaMetadata": {"id": "other", "schemaString": "{}"}}}', "one metaData"),
        ('{"endStreamAction": {}}\n{"endStreamAction": {}}', "line 4 .*must be the last line"),
        ("{bad", "line 3"),
        ('{"file": {"id": "\xff"}}'.encode("latin-1"), "line 3"),
    ],
)
def test_malformed_line_is_refused_naming_it(server, rest, table, wire, line, reason):
    reply = wire.ndjson(*wire.delta_head())
    reply.body += (line if isinstance(line, bytes) else line.encode()) + b"\n"
    server.on("POST", QUERY, reply)

    answer = query_table(rest, table)
    with pytest.raises(ProtocolError, match=reason):
        list(answer.actions)
    assert next(answer.blocks, None) is None


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("wrong", ["{bad", "{} {}", "5", '{"file": {"id": "x"}}', '{"queryStatus": {}}'])
def test_files_before_a_malformed_line_come_before_its_error(server, rest, table, wire, monkeypatch, wrong, at_once):
    monkeypatch.setattr(lines.SHORTCUTS, "lines_at_once", at_once)
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), *map(wire.delta_file, "abc"), wrong, wire.delta_file("d")))
    actions = query_table(rest, table).actions
    assert [next(actions).file_id for _ in range(3)] == ["a", "b", "c"]
    with pytest.raises(ProtocolError, match="line 6"):
        next(actions)


def test_lines_with_only_unknown_actions_are_skipped(server, rest, table, wire):
    head, file = wire.delta_head(), wire.delta_file("f")
    reply = wire.ndjson({"hello": 1}, head[0], {"later": {"a": 1}}, head[1], "{}", file, {"x": []}, END, {"bye": 1})
    server.on("POST", QUERY, reply)

    answer = query_table(rest, table)

    assert ids(answer) == ["f"]
    assert answer.refresh_token == "fresh"

    server.on("POST", QUERY, wire.ndjson({"hello": 1}))
    with pytest.raises(TransportError, match="no protocol line"):
        query_table(rest, table)


def test_unknown_null_and_missing_fields_are_harmless(server, rest, table, wire):
    lines = [
        '{"protocol": {"minReaderVersion": 1, "new": {}}, "file": null}',
        json.dumps({"metaData": {"id": "t", "schemaString": "{}", "configuration": {"a": "b"}, "new": 1}}),
        '{"file": {"id": "f", "url": "https://x/f", "extra": [1]}}',
    ]
    server.on("POST", QUERY, wire.ndjson(*lines))

    answer = query_table(rest, table)

    assert answer.head.metadata.partition_columns == []
    assert answer.head.metadata.properties == {"a": "b"}
    (file,) = answer.actions
    assert (file.action.partition_values, file.action.size) == ({}, -1)


def test_wrapper_size_replaces_a_missing_one(server, rest, table, wire):
    file = {"file": {"id": "f", "size": 573, "deltaSingleAction": {"add": {"path": "https://x/f"}}}}
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), file))

    (found,) = query_table(rest, table).actions

    assert (found.action.size, found.action.partition_values) == (573, {})


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
def test_unusual_line_ends_and_unicode_separators_are_understood(server, rest, table, wire, framing):
    reply = wire.ndjson(*wire.delta_head(), framing=framing)
    name = "a\u2028b\u2029c\x85d"
    file = json.dumps(wire.delta_file(name), ensure_ascii=False).encode()
    reply.body = reply.body.replace(b"\n", b"\r\n") + b"\r\n\n  \n" + file  # and no end of the last line
    server.on("POST", QUERY, reply)

    assert ids(query_table(rest, table)) == [name]


def test_error_for_a_newer_parquet_version_suggests_an_upgrade(server, rest, table, wire):
    server.on("POST", QUERY, wire.ndjson({"protocol": {"minReaderVersion": 2}}, wire.parquet_head()[1]))

    with pytest.raises(UnsupportedFeatureError, match="upgrade delta-sharing-client"):
        query_table(rest, table)


def test_table_without_url_access_is_described_but_not_read(server, rest, table, wire):
    head = wire.delta_head({"accessModes": ["dir"], "location": "s3://b/t", "auxiliaryLocations": ["s3://c/t"]})
    server.on("POST", QUERY, wire.ndjson(*head))
    server.on("GET", METADATA, wire.ndjson(*head))

    with pytest.raises(UnsupportedFeatureError, match="directory access") as caught:
        query_table(rest, table)
    assert caught.value.feature == "directory access"
    described = table_metadata(rest, table)
    assert (described.access_modes, described.location) == (("dir",), "s3://b/t")
    assert described.auxiliary_locations == ("s3://c/t",)


def test_closed_response_has_nothing_left_to_close(server, rest, table, wire, monkeypatch):
    """It may live on, and be let go of where a finalizer would lose a Ctrl-C."""
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), wire.delta_file("f1"), wire.delta_file("f2")))
    opened = []
    send = requests.Session.send

    def noted(session, *args, **kwargs):
        response = send(session, *args, **kwargs)
        opened.append(weakref.ref(response.raw))
        return response

    monkeypatch.setattr(requests.Session, "send", noted)
    answer = query_table(rest, table)
    assert next(answer.actions).file_id == "f1"
    answer.close()
    assert [raw() for raw in opened] == [None]
    assert answer.blocks.gi_frame is None


def test_equal_partition_values_share_memory(server, rest, table, wire):
    files = [wire.delta_file(f"f{i}", partitionValues={"p": "x"}) for i in range(3)]
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), *files))

    first, second, third = query_table(rest, table).actions

    assert first.action.partition_values is second.action.partition_values is third.action.partition_values


# --- end of stream ---


def test_unsolicited_end_of_stream_is_fine(server, rest, table, wire):
    server.on("POST", QUERY, wire.ndjson(*wire.parquet_head(), wire.parquet_file("f"), END))

    assert ids(query_table(rest, table)) == ["f"]


@pytest.mark.parametrize("capabilities", [None, ENDS])
def test_error_in_the_stream_fails_the_read_with_its_status(server, rest, table, wire, capabilities):
    report = {"endStreamAction": {"errorMessage": f"broke with {wire.token}", "httpStatusErrorCode": 400}}
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), wire.delta_file("f"), report, capabilities=capabilities))

    with pytest.raises(RequestError, match="broke with") as caught:
        list(query_table(rest, table).actions)
    assert caught.value.status == 400
    assert wire.token not in str(caught.value)
    assert len(server.seen) == 1


@pytest.mark.parametrize("before", [0, 30, 55, 95])
@pytest.mark.parametrize("page", ["<html><title>{}</title></html>", "{}", "{}\n{}"])
def test_cut_response_shows_no_prefix_of_a_secret(server, rest, table, wire, before, page):
    answer = wire.Reply(200, page.format("." * before + wire.token, "").encode())
    answer.headers["Content-Type"] = "text/" + "." * before + wire.token
    server.on("POST", QUERY, answer)

    with pytest.raises(ProtocolError, match="check the endpoint") as caught:
        list(query_table(rest, table).actions)
    assert wire.token[:4] not in str(caught.value)


def test_login_page_is_named_at_once_and_not_retried(server, rest, table, wire):
    page = wire.ndjson(f"<html>\n<title>Sign in {wire.token}</title>\n</html>")
    page.body = page.body.strip()  # nor taken for an answer that was cut off
    page.headers["Content-Type"] = "text/html"
    server.on("POST", QUERY, page)

    with pytest.raises(ProtocolError, match=r"found a page of HTML with the title 'Sign in .*endpoint") as caught:
        query_table(rest, table)
    assert wire.token not in str(caught.value)
    assert len(server.seen) == 1


def test_error_in_a_200_response_is_raised(server, rest, table, wire):
    server.on("POST", QUERY, wire.ndjson({"errorCode": "QUOTA", "message": f"no more for {wire.token}"}))

    with pytest.raises(RequestError, match=r"QUOTA.*no more for") as caught:
        query_table(rest, table)
    assert caught.value.error_code == "QUOTA"
    assert wire.token not in str(caught.value)


def test_databricks_error_code_in_a_200_response_is_raised(server, rest, table, wire):
    server.on("POST", QUERY, wire.as_json({"error_code": "QUOTA", "message": "too much"}))

    with pytest.raises(RequestError, match="QUOTA"):
        query_table(rest, table)


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

    for ask in (query_table, table_metadata):
        with pytest.raises(RequestError, match="no delta"):
            ask(rest, table)
    assert len(server.seen) == 4


def test_error_report_without_a_status_reads_well(server, rest, table, wire):
    server.on("POST", QUERY, wire.ndjson({"endStreamAction": {"errorMessage": "broke"}}))

    with pytest.raises(RequestError, match=r"^Querying s\.d\.t failed: broke\.$"):
        query_table(rest, table)


@pytest.mark.parametrize("status", [502, 503])
def test_error_in_the_stream_that_may_pass_is_asked_again(server, rest, table, wire, status):
    report = {"endStreamAction": {"errorMessage": "busy", "httpStatusErrorCode": status}}
    whole = wire.ndjson(*wire.delta_head(), wire.delta_file("f"), wire.delta_file("g"), END)
    broken = wire.ndjson(*wire.delta_head(), wire.delta_file("f"), report)
    server.on("POST", QUERY, broken, wire.ndjson(report), whole)

    assert ids(query_table(rest, table)) == ["f", "g"]

    server.on("POST", QUERY, broken)
    with pytest.raises(RequestError, match=r"busy\. Tried 4 times\.") as caught:
        list(query_table(rest, table).actions)
    assert caught.value.status == status


def test_error_report_may_be_the_whole_response(server, rest, table, wire):
    server.on("POST", QUERY, wire.ndjson({"endStreamAction": {"errorMessage": "gone", "httpStatusErrorCode": 404}}))

    with pytest.raises(NotFoundError, match="gone"):
        query_table(rest, table)


def test_missing_promised_end_of_stream_fails_after_retries(server, rest, table, wire, sleeps):
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), wire.delta_file("f"), capabilities=ENDS))

    with pytest.raises(TransportError, match="endStreamAction"):
        list(query_table(rest, table).actions)
    assert len(server.seen) == 4


@pytest.mark.parametrize("framing", ["cut-length", "cut-chunked", "cut-close"])
@pytest.mark.parametrize("promise", [None, ENDS])
@pytest.mark.usefixtures("small_chunks")
def test_broken_stream_resumes_without_loss_or_duplicates(server, rest, table, wire, framing, promise):
    whole = wire.ndjson(*wire.delta_head(), *(wire.delta_file(f"f{i}") for i in range(50)), END, capabilities=promise)
    reordered = wire.ndjson(
        *wire.delta_head(), *(wire.delta_file(f"f{i}") for i in reversed(range(50))), END, capabilities=promise
    )
    for cut in (10, 400, 3000, len(whole.body) - 100):
        broken = wire.Reply(200, whole.body, whole.headers, framing, cut)
        server.on("POST", QUERY, broken, broken, reordered)

        answer = query_table(rest, table)

        assert sorted(ids(answer)) == sorted(f"f{i}" for i in range(50))


def test_files_without_an_id_are_identified_by_path():
    files = [SharedFile(AddFile(path=f"https://x/{name}?{name}", size=1), "") for name in "abc"]
    seen = response_stream._Files("s.d.t", 7)
    assert seen.take(files[:2]) == files[:2]
    seen.begin_again()
    assert len(seen._hashes) == 2
    assert seen.take(files) == files[2:]


def test_path_may_be_signed_differently_in_each_response():
    files, *others = (
        [SharedFile(AddFile(path=f"https://x/{way}/{name}", size=1), name) for name in "abc"] for way in range(3)
    )
    seen = response_stream._Files("s.d.t", 7)
    assert seen.take(files[:1]) == files[:1]
    for other, new in zip(others, (1, 2), strict=True):
        seen.begin_again()
        assert seen.take(other[: new + 1]) == other[new : new + 1]


def test_file_with_an_id_is_matched_by_it():
    bare, new = (SharedFile(AddFile(path=f"https://x/{name}?1", size=1), "") for name in "bc")
    signed = [SharedFile(AddFile(path=f"https://x/{way}/a", size=1), "a") for way in range(2)]
    seen = response_stream._Files("s.d.t", 7)
    assert seen.take([signed[0], bare]) == [signed[0], bare]
    seen.begin_again()
    assert seen.take([signed[1], bare, new]) == [new]


def test_changes_of_one_file_and_version_differ_by_their_vectors():
    vectors = [
        None,
        *(DeletionVectorDescriptor("p", "https://x/dv", 4, rows, offset) for rows, offset in ((1, 1), (2, 1), (1, 9))),
    ]
    changes = [SharedFile(AddFile(path="https://x/f", deletion_vector=item), "f", version=1) for item in vectors]
    seen = response_stream._Changes()
    assert seen.take(changes[:1]) == changes[:1]
    seen.begin_again()
    assert seen.take(changes[::-1]) == changes[:0:-1]


def test_change_listed_three_times_is_returned_three_times():
    change = SharedFile(AddFile(path="https://x/f"), "f", version=1)
    seen = response_stream._Changes()
    assert len(seen.take([change] * 2)) == 2
    seen.begin_again()
    assert len(seen.take([change] * 3)) == 1


@pytest.mark.parametrize("other", [{"path": "https://storage.test/other.parquet"}, {"size": 6}])
@pytest.mark.usefixtures("small_chunks")
def test_duplicate_file_id_is_refused_after_a_broken_stream(server, rest, table, wire, other):
    files = [wire.delta_file(f"f{i}") for i in range(50)]
    whole = wire.ndjson(*wire.delta_head(), *files, wire.delta_file("f3", **other), END)
    server.on("POST", QUERY, wire.Reply(200, whole.body, whole.headers, "cut-length", len(whole.body) - 400), whole)

    with pytest.raises(ProtocolError, match="two with this id"):
        list(query_table(rest, table).actions)


@pytest.mark.parametrize("framing", ["cut-length", "cut-chunked", "cut-close"])
def test_truncated_response_is_never_taken_as_whole(server, profile, table, wire, framing):
    rest = RestClient(profile, ReadOptions(max_attempts=1, read_timeout=2))
    whole = wire.ndjson(*wire.delta_head(), *(wire.delta_file(f"f{i}") for i in range(5)), END, capabilities=ENDS)
    for cut in range(0, len(whole.body) - 1, 41):
        server.on("POST", QUERY, wire.Reply(200, whole.body, whole.headers, framing, cut))
        with pytest.raises(TransportError):
            list(query_table(rest, table).actions)


@pytest.mark.usefixtures("small_chunks")
def test_stream_that_always_breaks_is_an_error(server, rest, table, wire):
    whole = wire.ndjson(*wire.delta_head(), *(wire.delta_file(f"f{i}") for i in range(50)))
    server.on("POST", QUERY, wire.Reply(200, whole.body, whole.headers, "cut-length", 3000))

    with pytest.raises(TransportError, match=r"cut off.*Tried 4 times"):
        list(query_table(rest, table).actions)


@pytest.mark.usefixtures("small_chunks")
def test_broken_stream_of_a_table_that_changed_is_an_error(server, rest, table, wire):
    whole = wire.ndjson(*wire.delta_head(), *(wire.delta_file(f"f{i}") for i in range(50)))
    broken = wire.Reply(200, whole.body, whole.headers, "cut-length", 3000)
    server.on("POST", QUERY, broken, wire.ndjson(*wire.delta_head(), wire.delta_file("f0"), version=8))

    with pytest.raises(TransportError, match="table has changed since"):
        list(query_table(rest, table).actions)


def test_abandoned_response_leaves_the_client_usable(server, rest, table, wire):
    files = [wire.delta_file(f"f{i}") for i in range(2000)]
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), *files))

    with query_table(rest, table) as answer:
        assert next(answer.actions).file_id == "f0"
    assert next(answer.blocks, None) is None
    assert len(ids(query_table(rest, table))) == 2000


# --- pages ---


def page(wire, token, *names, version=7, head=None):
    end = {"endStreamAction": {"nextPageToken": token, "refreshToken": f"r-{token}"}}
    return wire.ndjson(*(head or wire.delta_head()), *(wire.delta_file(n) for n in names), end, version=version)


def test_all_pages_are_read_with_every_other_parameter_repeated(server, rest, table, wire):
    server.on("POST", QUERY, page(wire, "p2", "a", "b"), page(wire, "p3"), page(wire, "", "c"))

    hints = '{"op":"isNull","children":[{"op":"column","name":"a","valueType":"long"}]}'
    asked = QueryRequest(json_predicate_hints=hints, limit_hint=9, refresh_token="old")
    answer = query_table(rest, table, asked)

    assert ids(answer) == ["a", "b", "c"]
    assert answer.refresh_token == "r-"
    rest_of_body = {"jsonPredicateHints": hints, "limitHint": 9}
    assert [seen.body for seen in server.seen] == [
        {**rest_of_body, "includeRefreshToken": True, "refreshToken": "old"},
        {**rest_of_body, "pageToken": "p2"},
        {**rest_of_body, "pageToken": "p3"},
    ]


@pytest.mark.parametrize(
    ("stated", "least"), [((None, None), None), ((9, None), 8), ((None, 9), 8), ((5, 9), 4), ((9, 5), 4)]
)
def test_earliest_expiration_of_all_pages_counts(server, rest, table, wire, stopped, stated, least):
    answers = [
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
        for name, token, expires in zip("ab", ("p2", None), stated, strict=True)
    ]
    server.on("POST", QUERY, *answers)
    with query_table(rest, table) as answer:
        assert ids(answer) == ["a", "b"]
        assert answer.first_renewal == (least and NOW + least * MINUTE)


def test_a_change_that_is_listed_twice_is_given_twice():
    change = SharedFile(AddFile(path="https://x/a", size=1), "a", version=1, timestamp=5)
    seen = response_stream._Changes()
    assert seen.take([change]) == [change]
    seen.begin_again()
    assert seen.take([change, change]) == [change]


@pytest.mark.parametrize("operation", [Operation.SNAPSHOT, Operation.STREAMING])
def test_query_requests_the_features_it_reads(server, rest, table, wire, operation, monkeypatch):
    monkeypatch.setattr(query, "reader_features", lambda operation: [f"of-{operation.value}"])
    request = QueryRequest() if operation is Operation.SNAPSHOT else QueryRequest(starting_version=7)
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head()))
    query_table(rest, table, request).close()
    [seen] = server.seen
    parts = dict(part.split("=") for part in seen.headers["delta-sharing-capabilities"].split(";"))
    assert parts["readerfeatures"] == f"of-{operation.value}".lower()


def test_the_first_version_has_metadata_and_a_status_is_none(server, rest, table, wire):
    server.on("GET", METADATA, wire.ndjson(*wire.delta_head(), version=0))
    assert table_metadata(rest, table, version=0).version == 0
    server.on("GET", METADATA, wire.ndjson({"queryStatus": {"queryId": "q"}}))
    with pytest.raises(ProtocolError, match="expected a protocol and a metaData line, found more"):
        table_metadata(rest, table)


def test_interrupted_response_has_no_more_actions(server, rest, table, wire):
    server.on("POST", QUERY, page(wire, "p2", "a"), page(wire, None, "b"))
    answer = query_table(rest, table)
    answer.break_off()
    with pytest.raises((CancelledError, TransportError)):
        list(answer.actions)
    assert len(server.seen) == 1


def test_the_version_of_metadata_is_one():
    for version in (-1, True, 1 << 63):
        with pytest.raises(UsageError, match="'version' must be a whole number from 0 to"):
            table_metadata(None, None, version=version)


def test_repeated_page_token_is_an_error(server, rest, table, wire):
    server.on("POST", QUERY, page(wire, "again", "a"))

    with pytest.raises(ProtocolError, match="same nextPageToken twice"):
        list(query_table(rest, table).actions)


OTHER_PROTOCOL = {"protocol": {"deltaProtocol": {"minReaderVersion": 1, "minWriterVersion": 4}}}


def test_pages_that_differ_are_an_error(server, rest, table, wire):
    for other, what in (
        (page(wire, None, "b", version=8), "version"),
        (page(wire, None, "b", head=wire.delta_head(id="u")), "metadata"),
        (page(wire, None, "b", head=[OTHER_PROTOCOL, wire.delta_head()[1]]), "protocol"),
        (wire.ndjson(*wire.parquet_head(), wire.parquet_file("b")), "response format"),
    ):
        server.on("POST", QUERY, page(wire, "p2", "a"), other)
        with pytest.raises(ProtocolError, match=f"Page 2 has a different {what}"):
            list(query_table(rest, table).actions)


@pytest.mark.usefixtures("small_chunks")
def test_broken_page_is_asked_again_by_its_own_token(server, rest, table, wire):
    second = page(wire, None, *(f"b{i}" for i in range(20)))
    broken = wire.Reply(200, second.body, second.headers, "cut-length", 2500)
    server.on("POST", QUERY, page(wire, "p2", "a"), broken, second)

    assert ids(query_table(rest, table)) == ["a", *(f"b{i}" for i in range(20))]
    assert [seen.body.get("pageToken") for seen in server.seen] == [None, "p2", "p2"]


# --- ranges of versions ---


def test_parquet_changes_hold_every_kind_and_historical_metadata(server, rest, table, wire):
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

    answer = query_table(rest, table, ChangesQuery(starting_version=1))
    add, metadata, remove, cdc = answer.actions

    assert answer.head.metadata_version == 3
    assert isinstance(add.action, AddFile)
    assert (add.version, add.timestamp, add.action.stats) == (1, 10, "{}")
    assert isinstance(metadata, VersionedMetadata)
    assert metadata.version == 2
    assert isinstance(remove.action, RemoveFile)
    assert (remove.version, remove.timestamp) == (2, None)
    assert isinstance(cdc.action, AddCdcFile)
    assert cdc.file_id == "c"
    assert server.seen[0].query == {
        "startingVersion": "1",
        "includeHistoricalMetadata": "true",
        "includeHistoricalProtocol": "true",
    }


def test_a_token_in_the_header_of_the_version_is_not_shown(server, rest, table, wire):
    answer = wire.ndjson(*wire.delta_head())
    answer.headers["Delta-Table-Version"] = wire.token
    server.on("POST", QUERY, answer)
    with pytest.raises(ProtocolError, match="Delta-Table-Version") as caught:
        query_table(rest, table)
    assert wire.token not in str(caught.value)


def test_response_in_another_encoding_is_shown_where_possible(server, rest, table, wire):
    server.on("POST", QUERY, wire.Reply(200, b"r\xe9sum\xe9\n"))
    with pytest.raises(ProtocolError, match="begins with 'r\ufffdsum\ufffd"):
        query_table(rest, table)


@pytest.mark.parametrize("version", [0, 4])
def test_changes_outside_of_the_range_are_left_out_or_refused(server, rest, table, wire, version):
    files = [wire.parquet_file(f"f{each}", "add", version=each, timestamp=10) for each in (1, 3, version)]
    server.on("GET", CHANGES, wire.ndjson(*wire.parquet_head(version=3), *files, version=1))
    found = query_table(rest, table, ChangesQuery(starting_version=1, ending_version=3))
    if version:
        assert ids(found) == ["f1", "f3"]
    else:
        with pytest.raises(ProtocolError, match="version 0 is before the range that starts at 1"):
            ids(found)


def test_pages_of_a_feed_are_requested_by_their_tokens(server, rest, table, wire):
    pages_ = [
        wire.ndjson(
            *wire.parquet_head(version=3), wire.parquet_file(name, "add", version=1, timestamp=10),
            {"endStreamAction": {"nextPageToken": token}}, version=1, capabilities="includeendstreamaction=true",
        )
        for name, token in (("f1", "p2"), ("f2", None))
    ]  # fmt: skip
    server.on("GET", CHANGES, *pages_)
    assert ids(query_table(rest, table, ChangesQuery(starting_version=1))) == ["f1", "f2"]
    assert [seen.query.get("pageToken") for seen in server.seen] == [None, "p2"]


@pytest.mark.parametrize(("limit", "sent"), [(0, 0), (2**31 - 1, 2**31 - 1), (2**31, None), (None, None)])
def test_limit_too_large_for_servers_is_not_sent(limit, sent):
    assert QueryRequest(limit_hint=limit).body(None, (ResponseFormat.DELTA,)).get("limitHint") == sent


def test_a_description_is_of_one_version(profile, server):
    table = SharingClient(profile).table("s.d.t")
    with pytest.raises(UsageError, match="Only one of 'version' and 'timestamp'"):
        table.metadata(version=1, timestamp="2024-01-01T00:00:00Z")
    with pytest.raises(UsageError, match="'timestamp'"):
        table.metadata(timestamp="soon")
    assert server.seen == []


def test_delta_changes_hold_every_kind_and_historical_protocol(server, rest, table, wire):
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


@pytest.mark.parametrize("inner", [None, 0, 7])
@pytest.mark.parametrize("outer", [None, 0, 9])
def test_the_size_of_an_action_is_its_own_or_that_of_its_file(server, rest, table, wire, inner, outer):
    files = [
        {"id": kind, "version": 1, "deltaSingleAction": {kind: {"path": f"https://storage.test/{kind}", "size": inner}}}
        for kind in ("add", "remove", "cdc")
    ]
    for file in files:
        (action,) = file["deltaSingleAction"].values()
        if inner is None:
            del action["size"]
        if outer is not None:
            file["size"] = outer
    server.on("GET", CHANGES, wire.ndjson(*wire.delta_head(), *({"file": file} for file in files), version=1))

    add, remove, cdc = query_table(rest, table, ChangesQuery(starting_version=1)).actions
    known = outer if inner is None else inner
    assert [file.action.size for file in (add, remove, cdc)] == [
        -1 if known is None else known,
        known,
        -1 if known is None else known,
    ]


@pytest.mark.parametrize("size", [None, 0, 5])
def test_a_file_of_a_parquet_response_may_have_no_size(server, rest, table, wire, size):
    files = [wire.parquet_file(kind, kind, version=1, size=size) for kind in ("add", "remove", "cdf")]
    server.on("GET", CHANGES, wire.ndjson(*wire.parquet_head(), *files, version=1))

    add, remove, cdc = query_table(rest, table, ChangesQuery(starting_version=1)).actions
    unknown = -1 if size is None else size
    assert [file.action.size for file in (add, remove, cdc)] == [unknown, size, unknown]


def test_parquet_request_has_no_historical_protocol(server, rest, table, wire):
    server.on("GET", CHANGES, wire.ndjson(*wire.parquet_head()))
    server.on("POST", QUERY, wire.ndjson(*wire.parquet_head()))

    request = ChangesQuery(starting_timestamp="2022-01-01T00:00:00Z", ending_version=4)
    query_table(rest, table, request, response_format=ResponseFormat.PARQUET)
    query_table(rest, table, QueryRequest(starting_version=1), response_format=ResponseFormat.PARQUET)

    assert server.seen[0].query == {
        "startingTimestamp": "2022-01-01T00:00:00Z",
        "endingVersion": "4",
        "includeHistoricalMetadata": "true",
    }
    assert server.seen[1].body == {"startingVersion": 1}


def test_files_outside_the_version_range_are_dropped_or_refused(server, rest, table, wire):
    lines = [wire.parquet_file(f"f{v}", "add", version=v, timestamp=v) for v in (4, 5, 6)]
    server.on("POST", QUERY, wire.ndjson(*wire.parquet_head(), *lines, wire.parquet_head(version=6)[1], version=4))

    assert ids(query_table(rest, table, QueryRequest(starting_version=4, ending_version=5))) == ["f4", "f5"]
    with pytest.raises(ProtocolError, match="version 4 is before the range that starts at 5"):
        list(query_table(rest, table, QueryRequest(starting_version=5)).actions)


def test_change_without_a_version_is_refused(server, rest, table, wire):
    server.on("GET", CHANGES, wire.ndjson(*wire.parquet_head(), wire.parquet_file("f", "add")))

    with pytest.raises(ProtocolError, match="needs its version"):
        list(query_table(rest, table, ChangesQuery(starting_version=1)).actions)


@pytest.mark.usefixtures("small_chunks")
def test_broken_change_feed_is_resumed_by_action_not_by_file(server, rest, table, wire):
    lines = []
    for version in range(20):  # one file is added and removed in turn, under one id
        lines.append(wire.delta_file("f", "add" if version % 2 == 0 else "remove", {"version": version}))
    whole = wire.ndjson(*wire.delta_head(), *lines, version=0)
    broken = wire.Reply(200, whole.body, whole.headers, "cut-length", 2500)
    server.on("GET", CHANGES, broken, wire.ndjson(*wire.delta_head(), *reversed(lines), version=0))

    answer = query_table(rest, table, ChangesQuery(starting_version=0))

    assert sorted(file.version for file in answer.actions) == list(range(20))


# --- metadata ---


def test_metadata_request_accepts_both_formats_and_a_version(server, rest, table, wire):
    server.on("GET", METADATA, wire.ndjson(*wire.parquet_head(), version=3))

    head = table_metadata(rest, table, version=3)
    table_metadata(rest, table, timestamp="2022-01-01T00:00:00Z")

    assert head.response_format is ResponseFormat.PARQUET
    assert head.version == 3
    assert "responseformat=delta,parquet;" in server.seen[0].headers["delta-sharing-capabilities"]
    assert server.seen[0].query == {"version": "3"}
    assert server.seen[1].query == {"timestamp": "2022-01-01T00:00:00Z"}


@pytest.mark.parametrize("end", [[], [END]])
def test_metadata_needs_no_unrequested_end_of_stream(server, rest, table, wire, end):
    server.on("GET", METADATA, wire.ndjson(*wire.delta_head(), *end, capabilities=ENDS))

    assert table_metadata(rest, table).version == 7
    assert len(server.seen) == 1
    assert "endstream" not in server.seen[0].headers["delta-sharing-capabilities"]


def test_metadata_with_extra_lines_is_refused_and_cut_is_retried(server, rest, table, wire):
    server.on("GET", METADATA, wire.ndjson(*wire.delta_head(), wire.delta_file("f")))
    with (
        mock.patch.object(line_order.CheckedResponse, "close", autospec=True) as closed,
        pytest.raises(ProtocolError, match="found more"),
    ):
        table_metadata(rest, table)
    assert closed.call_count == 1

    whole = wire.ndjson(*wire.delta_head())
    server.on("GET", METADATA, wire.Reply(200, whole.body, whole.headers, "cut-close", 60), whole)
    assert table_metadata(rest, table).version == 7


# --- asynchronous queries ---


STATUS = "/shares/s/schemas/d/tables/t/queries/q%2F1"


def test_asynchronous_query_is_polled_until_its_response(server, rest, table, wire, sleeps):
    pending = wire.ndjson({"queryStatus": {"queryId": "q/1", "status": "pending"}}, version=0)
    bare = wire.ndjson({"queryStatus": {"queryId": "q/1"}}, version=None)
    server.on("POST", QUERY, pending)
    server.on("POST", STATUS, bare, page(wire, "p2", "a"), page(wire, None, "b"))

    answer = query_table(rest, table, QueryRequest(asynchronous=True))

    assert ids(answer) == ["a", "b"]
    assert "asyncquery=true" in server.seen[0].headers["delta-sharing-capabilities"]
    assert server.seen[0].body["idempotencyKey"]
    assert [seen.body for seen in server.seen[1:]] == [{}, {}, {"pageToken": "p2"}]
    assert len(sleeps) == 2


def test_a_query_that_runs_on_needs_no_id_again(server, rest, table, wire):
    server.on("POST", QUERY, wire.ndjson({"queryStatus": {"queryId": "q/1", "status": "pending"}}, version=0))
    server.on("POST", STATUS, wire.ndjson({"queryStatus": {"status": "running"}}, version=0), page(wire, None, "a"))
    assert ids(query_table(rest, table, QueryRequest(asynchronous=True))) == ["a"]


@pytest.mark.parametrize("query_id", ["7", "not a uuid", "../../x?y#z", "ü😀", "x" * 300, '{"a": 1}'])
def test_query_id_is_sent_back_unchanged(server, rest, table, wire, query_id):
    server.on("POST", QUERY, wire.ndjson({"queryStatus": {"queryId": query_id, "status": "pending"}}))
    path = f"/shares/s/schemas/d/tables/t/queries/{quote(query_id, safe='')}"
    server.on("POST", path, wire.ndjson(*wire.delta_head(), wire.delta_file("f")))

    assert ids(query_table(rest, table, QueryRequest(asynchronous=True))) == ["f"]
    assert server.seen[-1].path == path


def test_response_that_promises_no_end_needs_none(server, rest, table, wire):
    for capabilities in (None, "responseformat=delta", "responseformat=delta;includeendstreamaction=false"):
        server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), wire.delta_file("f"), capabilities=capabilities))
        answer = query_table(rest, table)
        assert ids(answer) == ["f"]
        assert answer.refresh_token is None


def test_asynchronous_query_may_complete_immediately(server, rest, table, wire):
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), wire.delta_file("f")))

    assert ids(query_table(rest, table, QueryRequest(asynchronous=True))) == ["f"]
    assert len(server.seen) == 1


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


def test_asynchronous_query_has_a_deadline(server, rest, table, wire):
    server.on("POST", QUERY, wire.ndjson({"queryStatus": {"queryId": "q/1"}}))
    server.on("POST", STATUS, wire.ndjson({"queryStatus": {"queryId": "q/1"}}))

    with pytest.raises(TransportError, match=r"took longer than the 0\.1 seconds of 'total_timeout'"):
        query_table(rest.for_read(ReadOptions(total_timeout=0.1)), table, QueryRequest(asynchronous=True))


def test_asynchronous_query_uses_the_servers_spelling_of_the_key(server, rest, table, wire):
    def answer(seen):
        if "idempotency_key" not in seen.body:
            return wire.error(400, "INVALID_PARAMETER_VALUE", "idempotency_key is missing")
        return wire.ndjson(*wire.delta_head(), wire.delta_file("f"))

    server.on("POST", QUERY, answer)

    assert ids(query_table(rest, table, QueryRequest(asynchronous=True))) == ["f"]


# --- errors of the server ---


def test_refused_credentials_say_so_with_the_table(server, rest, table, wire):
    server.on("POST", QUERY, wire.error(401, "UNAUTHENTICATED", f"bad token {wire.token}"))

    with pytest.raises(AuthError, match="may have expired") as caught:
        query_table(rest, table)
    assert "s.d.t" in str(caught.value)
    assert wire.token not in str(caught.value)
    assert caught.value.status == 401


# === Bounds ===


def test_endless_blank_lines_are_an_error(server, rest, table, wire):
    reply = wire.ndjson(*wire.delta_head())
    reply.body += b"\n" * 50_000
    server.on("POST", QUERY, reply)

    with pytest.raises(ProtocolError, match="10000 lines are blank"):
        list(query_table(rest, table).actions)


def test_more_files_than_a_limit_are_an_error(server, rest, table, wire, monkeypatch):
    monkeypatch.setattr(response_stream, "MAX_ACTIONS", 3)
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), *(wire.delta_file(str(n)) for n in range(4))))

    with pytest.raises(ProtocolError, match="more than 3 files"):
        list(query_table(rest, table).actions)


def test_pages_without_files_end(server, rest, table, wire, monkeypatch):
    monkeypatch.setattr("delta_sharing_client.protocol.listings._MAX_EMPTY_PAGES", 20)

    def page(seen):
        end = {"endStreamAction": {"nextPageToken": str(len(server.seen))}}
        return wire.ndjson(*wire.delta_head(), end)

    server.on("POST", QUERY, page)
    with pytest.raises(ProtocolError, match="21 empty pages"):
        list(query_table(rest, table).actions)


def test_schema_of_too_many_columns_is_refused_before_parsing(server, rest, table, wire):
    field = {"name": "c", "type": "long", "nullable": True, "metadata": {}}
    schema = json.dumps({"type": "struct", "fields": [field] * 200_000})
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(schemaString=schema)))

    with pytest.raises(ProtocolError, match="at most 100,000 columns and fields, found 200,000"):
        query_table(rest, table)


def test_files_of_another_format_are_refused_by_name(server, rest, table, wire):
    for head in (wire.delta_head(format={"provider": "orc"}), wire.parquet_head(format={"provider": "orc"})):
        server.on("POST", QUERY, wire.ndjson(*head))
        with pytest.raises(UnsupportedFeatureError, match="found the format 'orc'") as caught:
            query_table(rest, table)
        assert caught.value.feature == "format.provider orc"


def test_total_timeout_applies_to_a_query_with_all_its_pages(server, profile, table, wire):
    def page(seen):
        name = str(len(server.seen))
        return wire.ndjson(*wire.delta_head(), wire.delta_file(name), {"endStreamAction": {"nextPageToken": name}})

    server.on("POST", QUERY, page)
    with pytest.raises(TransportError, match="'total_timeout'"):
        list(query_table(RestClient(profile, ReadOptions(total_timeout=0.4)), table).actions)


@pytest.mark.parametrize(
    "ask", [query_table, lambda rest, table: query_table(rest, table, ChangesQuery(starting_version=0))]
)
def test_end_of_stream_is_requested_wherever_the_protocol_has_it(server, rest, table, wire, ask):
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), END))
    server.on("GET", CHANGES, wire.ndjson(*wire.delta_head(), END))

    list(ask(rest, table).actions)

    assert "includeendstreamaction=true" in server.seen[0].headers["delta-sharing-capabilities"]


def test_abandoned_response_leaves_nothing_to_garbage_collection(server, rest, table, wire, small_chunks):
    """Its response is a file: Python forgets a signal, Ctrl-C too, that is heard while it finalizes one of those."""
    files = [wire.parquet_file(f"f{number}") for number in range(200)]
    server.on("POST", QUERY, wire.ndjson(*wire.parquet_head(), *files))
    gc.collect()
    before = set(map(id, responses()))
    gc.disable()
    try:
        answer = query_table(rest, table)
        actions = answer.actions
        assert next(actions).file_id == "f0"
        answer.close()
        del answer, actions
        assert [item for item in responses() if id(item) not in before] == []
    finally:
        gc.enable()


def responses():
    return [item for item in gc.get_objects() if isinstance(item, urllib3.BaseHTTPResponse)]


@pytest.mark.parametrize("text", ["Unknown field includeHistoricalProtocol", "INCLUDEHISTORICALPROTOCOL?"])
def test_field_that_a_server_refuses_is_omitted_once(server, rest, table, wire, text):
    request = QueryRequest(starting_version=7)
    server.on("POST", QUERY, wire.error(400, "X", text), wire.ndjson(*wire.delta_head()))
    query_table(rest, table, request, response_format=ResponseFormat.DELTA).close()
    whole = {"startingVersion": 7, "includeHistoricalProtocol": True}
    assert [seen.body for seen in server.seen] == [whole, {"startingVersion": 7}]
    others = ((400, text, 2), (400, "other", 1), (400, "", 1), (400, "idempotency_key", 1), (409, text, 1))
    for status, message, count in others:
        server.seen.clear()
        server.on("POST", QUERY, wire.error(status, "X", message))
        with pytest.raises(RequestError):
            query_table(rest, table, request, response_format=ResponseFormat.DELTA)
        assert len(server.seen) == count


@pytest.mark.parametrize(("message", "count"), [("idempotency_key", 2), ("another field", 1)])
def test_a_key_of_another_spelling_is_sent_once(server, rest, table, wire, message, count):
    server.on("POST", QUERY, wire.error(400, "X", message))
    with pytest.raises(RequestError):
        query_table(rest, table, QueryRequest(asynchronous=True), response_format=ResponseFormat.DELTA)
    keys = [name for seen in server.seen for name in seen.body if name.startswith("idem")]
    assert keys == ["idempotencyKey", "idempotency_key"][:count]
    assert len({seen.body[key] for seen, key in zip(server.seen, keys, strict=True)}) == 1
