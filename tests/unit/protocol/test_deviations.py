"""Responses that deviate from the protocol, and error bodies in other formats."""

from __future__ import annotations

import json
import logging
import re

import msgspec
import pytest

from delta_sharing_client.cli import main
from delta_sharing_client.errors import AuthError, ProtocolError, RequestError
from delta_sharing_client.protocol import deviations
from delta_sharing_client.protocol.deviations import MALFORMED, Deviations, decode, problem_of
from delta_sharing_client.protocol.lines import Line, SingleAction
from delta_sharing_client.protocol.query import QueryRequest, query_table, table_metadata
from tests.unit.protocol import wire

QUERY = "/shares/s/schemas/d/tables/t/query"


@pytest.fixture(autouse=True)
def no_logged_deviations(monkeypatch):
    monkeypatch.setattr(deviations, "_said", set())


VECTOR = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 4, "cardinality": 2}
ADD = {
    "path": "https://x/f",
    "partitionValues": {"p": "5", "q": "1.50", "r": "true", "s": None},
    "size": 573,
    "modificationTime": 1700000000000,
    "dataChange": True,
    "stats": '{"numRecords":1.50,"minValues":{"a":12345678901234567890}}',
    "deletionVector": VECTOR,
    "baseRowId": 0,
}
PLAIN = {"file": {"id": "12", "version": 3, "expirationTimestamp": 9, "deltaSingleAction": {"add": ADD}}}


def loosened(value, key=""):
    """Return the value with booleans and numbers as strings, and with some of its strings in angle brackets."""
    if isinstance(value, dict):
        return {name: loosened(inner, name) for name, inner in value.items()}
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, int):
        return str(value)
    if key in ("stats", "id", "p", "q", "r"):
        return f"<{value}>"  # so that the test finds it and makes it a number or boolean
    return value


def test_scalars_of_the_wrong_type_become_the_declared_type():
    text = json.dumps(loosened(PLAIN))
    for quoted, bare in (
        (json.dumps(f"<{ADD['stats']}>"), ADD["stats"]),
        ('"<12>"', "12"),
        ('"<5>"', "5"),
        ('"<1.50>"', "1.50"),
        ('"<true>"', "true"),
    ):
        assert quoted in text
        text = text.replace(quoted, bare)
    loosened_line = Deviations("Reading")

    line = loosened_line.decode(text.encode(), Line)

    assert line == decode(json.dumps(PLAIN).encode(), Line, Deviations("Reading"))
    assert sum(loosened_line.counts.values()) == 13


@pytest.mark.parametrize(
    ("text", "size"),
    [('"573"', 573), ("573.0", 573), ("5.73e2", 573), ('"0"', 0), ("9223372036854775807", 2**63 - 1), ("1e18", 10**18)],
)
def test_integer_may_be_a_string_or_a_float(text, size):
    raw = b'{"file":{"id":"f","size":%s}}' % text.encode()
    assert decode(raw, Line, Deviations("Reading")).file.size == size


@pytest.mark.parametrize(
    "text",
    [
        *('"5 7"', '" 5"', '"5.0"', "5.5", '"big"', '""', "[5]", "true", '"-1"', "1e400", "1e19", "1.5e19", "-1.5e19"),
        *('"9223372036854775808"', '"٣"'),
    ],
)
def test_invalid_integer_is_refused(text):
    raw = b'{"file":{"id":"f","size":%s}}' % text.encode()
    with pytest.raises(deviations.MALFORMED):
        decode(raw, Line, Deviations("Reading"))


def test_valid_number_is_not_counted_as_a_deviation():
    counted = Deviations("Reading")
    for number, text in enumerate((b'{"file":{"id":5,"size":7}}', b'\n{ "file" : { "id" : 5 , "size" : 7 } } '), 1):
        assert decode(text, Line, counted).file.size == 7
        assert dict(counted.counts) == {"'id' is not a string": number}


@pytest.mark.parametrize("raw", [b'{"file":{"id":{"a":1}}}', b'{"file":{"id":[1]}}', b'{"file":[]}', b'{"file":"x"}'])
def test_value_with_the_wrong_structure_is_malformed(raw):
    with pytest.raises(deviations.MALFORMED):
        decode(raw, Line, Deviations("Reading"))


def test_deviations_of_a_response_are_logged_once(server, rest, table, caplog):
    files = [{"file": {"id": n, "size": "5", "deltaSingleAction": {"add": {"path": f"https://x/{n}"}}}} for n in (1, 2)]
    head = wire.delta_head(wrapper={"numFiles": "2"}, partitionColumns=None)
    head[1]["metaData"]["deltaMetadata"]["schemaString"] = json.loads(
        head[1]["metaData"]["deltaMetadata"]["schemaString"]
    )
    server.on("POST", QUERY, wire.ndjson(*head, *files))

    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            response = query_table(rest, table)
            files_read = [(file.file_id, file.action.size) for file in response.actions]
            assert files_read == [("1", 5), ("2", 5)]
            assert (response.head.num_files, response.head.metadata.partition_columns) == (2, [])
            assert json.loads(response.head.metadata.schema_string)["type"] == "struct"
    (message,) = caplog.messages
    assert "'size' is not an integer (2 times)" in message
    assert "'id' is not a string (2 times)" in message
    assert re.search(r"'partitionColumns' is null[,.]", message)


def test_error_names_an_unexpected_null():
    assert problem_of(msgspec.ValidationError("Expected `str | null`, got `null` - at `$.a`")) == (
        "expected a string, found null in 'a'"
    )


def test_deviations_of_share_responses_are_logged(server, rest, caplog):
    server.on("GET", "/shares/b", wire.as_json({"share": {"name": "b", "id": 5}}))
    assert rest.get_share("b").id == "5"
    assert "'id' is not a string" in caplog.text
    server.on("GET", "/shares", wire.as_json({"items": [{"name": "b", "id": 5}]}))
    assert rest.list_shares()[0].id == "5"
    assert "Listing the shares: the response deviates" in caplog.text


def test_deviations_of_a_metadata_response_are_logged(server, rest, table, caplog):
    server.on("GET", "/shares/s/schemas/d/tables/t/metadata", wire.ndjson(*wire.delta_head(wrapper={"numFiles": "2"})))
    assert table_metadata(rest, table).num_files == 2
    assert "'numFiles' is not an integer" in caplog.text


def test_missing_reader_features_are_an_empty_list(server, rest, table, caplog):
    head = wire.delta_head()
    head[0]["protocol"]["deltaProtocol"] = {"minReaderVersion": 3, "minWriterVersion": 7}
    server.on("POST", QUERY, wire.ndjson(*head, wire.delta_file("f")))

    response = query_table(rest, table)
    assert [action.file_id for action in response.actions] == ["f"]
    assert response.head.protocol.reader_features == []
    assert "'readerFeatures' is missing" in caplog.text


@pytest.mark.parametrize(
    ("body", "description"),
    [
        ('{"metaData": 5}', "expected an object, found an integer in 'metaData'"),
        ('{"file": {"id": "x", "size": "big"}}', "expected an integer, found a string in 'file.size'"),
        ('{"file": {"id": "x", "size": 1e400}}', "number out of range in 'file.size'"),
        (
            '{"metaData": {"deltaMetadata": {"id": "t"}}}',
            "the field 'schemaString' is missing in 'metaData.deltaMetadata'",
        ),
        ("[]", "expected an object, found a list"),
        ("{", "the JSON is cut off"),
        ('{"x": 1} y', "the JSON is malformed at byte 10"),
        (b'{"file": {"id": "\xff"}}', "it is not valid UTF-8"),
        ('{"x": ' + "[" * 9999 + "]" * 9999 + "}", "it is nested too deeply"),
    ],
)
def test_error_describes_an_invalid_response(body, description):
    with pytest.raises(MALFORMED) as caught:
        decode(body if isinstance(body, bytes) else body.encode(), Line, Deviations("asking"))
    assert problem_of(caught.value) == description


# Terms of the libraries that parse responses and command lines. Users do not know them.
_LIBRARY_TERMS = re.compile(r"pydantic|msgspec|typer|click|Input|input_value|type=|`|Traceback|Error\(|\bstr\b|\bint\b")


@pytest.mark.parametrize(
    "body",
    ["5", "{}", "[]", "nope", "{", '{"items": 7}', '{"items": [{"id": 1}]}', '{"items": [7]}', '"x"', "null", "<html>"],
)
@pytest.mark.parametrize(
    "command", [["ls"], ["tables", "s"], ["describe", "s.d.t"], ["read", "s.d.t"], ["version", "s.d.t"]]
)
def test_response_errors_contain_no_library_terms(server, capsys, tmp_path, command, body):
    for method in ("GET", "POST"):
        for path in ("", "/s/schemas", *(f"/s/schemas/d/tables/t/{name}" for name in ("metadata", "query", "version"))):
            reply = wire.Reply(200, body.encode(), {"Content-Type": "application/json", "Delta-Table-Version": "x1"})
            server.on(method, f"/shares{path}", reply)
    saved = tmp_path / "p.share"
    saved.write_text(json.dumps({"shareCredentialsVersion": 1, "endpoint": server.endpoint, "bearerToken": "t"}))
    code = main([*command, "--json", "-p", str(saved)])
    printed = capsys.readouterr()
    assert code in (0, 3, 5, 6)
    assert printed.err.count("\n") <= 2
    assert (code == 0) is (printed.err == "")
    assert _LIBRARY_TERMS.search(printed.err) is None, printed.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["head", "a.b.c", "-n", "many"], ["head", "a.b.c", "-n", "-1"], ["read", "a.b.c", "--limit", "1.5"], ["read"],
        ["read", "a.b.c", "--format", "xlsx"], ["tables", "--what"], ["nonsense"],
        ["read", "a.b.c", "--version", "one"],
        ["read", "a.b.c", "--limit"], ["read", "a.b.c", "d"], ["follow", "a.b.c", "--every", "x"],
    ],
)  # fmt: skip
def test_usage_errors_contain_no_library_terms(capsys, arguments):
    assert main([*arguments, "--json"]) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert _LIBRARY_TERMS.search(printed) is None, printed


def test_invalid_items_are_skipped_and_logged(server, rest, caplog):
    items = [
        {"name": "a", "id": 7, "properties": {"n": 1, "list": [1, {"x": 2.50}], "text": "t", "none": None}},
        {"id": "nameless"},
        "b",
        {"name": 5},
    ]
    server.on("GET", "/shares", wire.as_json({"items": items, "nextPageToken": None}))

    shares = rest.list_shares()

    assert [(share.name, share.id) for share in shares] == [("a", "7"), ("5", None)]
    assert shares[0].properties == {"n": "1", "list": '[1, {"x": 2.5}]', "text": "t", "none": None}
    assert "item 2 of the response cannot be read: the field 'name' is missing" in caplog.text
    assert "item 3 of the response cannot be read: expected an object, found a string" in caplog.text

    server.on("GET", "/shares", wire.as_json({"items": [{"id": "nameless"}]}))
    with pytest.raises(ProtocolError, match="item 1 of the response cannot be read"):
        rest.list_shares()


def test_table_without_a_schema_is_skipped_and_logged(server, rest, caplog):
    items = [{"name": "a", "schema": "d"}, {"name": "b"}]
    server.on("GET", "/shares/s/all-tables", wire.as_json({"items": items}))

    assert [table.name for table in rest.list_all_tables("s")] == ["a"]
    assert "table 'b' is left out" in caplog.text


def test_byte_order_mark_is_skipped(server, rest, table):
    reply = wire.as_json({"items": [{"name": "a"}]})
    reply.body = b"\xef\xbb\xbf" + reply.body
    server.on("GET", "/shares", reply)
    lines = wire.ndjson(*wire.delta_head(), wire.delta_file("f"), framing="chunked")
    lines.body = b"\xef\xbb\xbf" + lines.body
    server.on("POST", QUERY, lines)

    assert [share.name for share in rest.list_shares()] == ["a"]
    assert [action.file_id for action in query_table(rest, table).actions] == ["f"]


@pytest.mark.parametrize("encoding", ["utf-8", "UTF-8", "none", "application/json", "aws-chunked", "binary, identity"])
def test_encodings_that_change_no_bytes_are_accepted(server, rest, encoding):
    reply = wire.as_json({"items": [{"name": "a"}]})
    reply.headers["Content-Encoding"] = encoding
    server.on("GET", "/shares", reply)

    assert [share.name for share in rest.list_shares()] == ["a"]


RUNNING = ["PENDING", "Running", "queued", "IN_PROGRESS", "in-progress", "inProgress", "pending_execution", None]
RUNNING += ["NOT_STARTED", "initializing", "SUCCEEDED", "done"]


@pytest.mark.parametrize("state", RUNNING)
def test_query_is_polled_in_every_state_except_failed(server, rest, table, state):
    server.on("POST", QUERY, wire.ndjson({"queryStatus": {"queryId": "q", "status": state}}))
    whole = wire.ndjson(*wire.delta_head(), wire.delta_file("f"))
    server.on("POST", "/shares/s/schemas/d/tables/t/queries/q", whole)

    assert [action.file_id for action in query_table(rest, table, QueryRequest(asynchronous=True)).actions] == ["f"]


def test_error_line_after_files_raises_an_error(server, rest, table):
    error_line = {"errorCode": "INTERNAL_ERROR", "message": "the disk is gone"}
    files = [wire.delta_file(str(number)) for number in range(2000)]
    server.on("POST", QUERY, wire.ndjson(*wire.delta_head(), *files, error_line))

    with pytest.raises(RequestError, match=r"INTERNAL_ERROR\): the disk is gone"):
        list(query_table(rest, table).actions)


# === Refusals ===


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"errorCode": "A", "message": "because"}, r"\(400, A\): because\."),
        ({"error_code": 7, "message": "because"}, r"\(400, 7\): because\."),
        ({"error": {"code": "A", "message": "because"}}, r"\(400, A\): because\."),
        ({"error": {"code": 400, "message": "because", "status": "A"}}, r"\(400, A\): because\."),
        ({"error": "A", "error_description": "because"}, r"\(400, A\): because\."),
        ({"errors": [{"code": "A", "detail": "because"}, {}]}, r"\(400, A\): because\."),
        ({"errorCode": "A", "errorSummary": "because", "errorCauses": []}, r"\(400, A\): because\."),
        ({"type": "about:blank", "title": "Bad", "status": 400, "detail": "because"}, r"\(400\): because\."),
        ({"Message": "because"}, r"\(400\): because\."),
        ({"fault": {"faultstring": "because", "detail": {"errorcode": "x"}}}, r"\(400\): because\."),
        ({"timestamp": 1, "status": 400, "error": "Bad Request", "message": "because"}, "Bad Request.*: because"),
        ({"unknown": "because"}, "because"),
        ({"error": {"code": "A", "message": {"lang": "en", "value": "because"}}}, r"\(400, A\): because\."),
        ({"detail": [{"loc": ["body"], "msg": "because"}]}, r"\(400\): because\."),
    ],
)
def test_reason_is_found_in_each_format_of_error_bodies(server, rest, body, expected):
    server.on("GET", "/shares", wire.as_json(body, status=400))

    with pytest.raises(RequestError, match=expected):
        rest.list_shares()


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (
            "<!DOCTYPE html>\n<html><head><title>502 Bad\n Gateway &amp; more</title></head></html>",
            "502 Bad Gateway & more",
        ),
        ("<html><body><h1>Access <b>denied</b></h1></body></html>", "Access denied"),
        ("<HTML></HTML>", "without a title"),
    ],
)
def test_error_shows_the_title_or_heading_of_an_html_page(server, rest, page, expected):
    server.on("GET", "/shares", wire.Reply(403, page.encode(), {"Content-Type": "text/html"}))

    with pytest.raises(AuthError, match="an HTML page") as caught:
        rest.list_shares()
    assert expected in str(caught.value)
    assert "<" not in str(caught.value)


def test_html_page_with_status_200_is_an_error(server, rest):
    page = f"<!DOCTYPE html><html><title>Sign in {wire.TOKEN}</title></html>"
    server.on("GET", "/shares", wire.Reply(200, page.encode(), {"Content-Type": "text/html"}))

    with pytest.raises(
        ProtocolError, match=r"found an HTML page with the title 'Sign in .* check the endpoint"
    ) as caught:
        rest.list_shares()
    assert wire.TOKEN not in str(caught.value)


@pytest.mark.parametrize("body", [b"", b"{}", b"null", b"[]", b'""'])
def test_challenge_replaces_a_missing_error_message(server, rest, body):
    challenge = 'Bearer error="invalid_token", error_description="The token expired"'
    server.on("GET", "/shares", wire.Reply(401, body, {"WWW-Authenticate": challenge}))

    with pytest.raises(AuthError, match="The token expired"):
        rest.list_shares()


@pytest.mark.parametrize(
    ("text", "expected", "is_deviation"),
    [
        ("true", True, False),
        ("false", False, False),
        ('"true"', True, True),
        ('"FALSE"', False, True),
        ("1", True, True),
        ("0", False, True),
        ('"1"', True, True),
    ],
)
def test_boolean_may_be_a_string_or_a_number(text, expected, is_deviation):
    deviations = Deviations("x")
    action = deviations.decode(f'{{"add":{{"path":"p","size":"5","dataChange":{text}}}}}'.encode(), SingleAction).add
    assert (action.data_change, action.size) == (expected, 5)
    deviation = {"'dataChange' is neither true nor false": 1} if is_deviation else {}
    assert dict(deviations.counts) == {"'size' is not an integer": 1, **deviation}


@pytest.mark.parametrize("text", ['"yes"', "2", "[]", '""', "0.0"])
def test_other_booleans_are_refused(text):
    with pytest.raises(MALFORMED):
        Deviations("x").decode(f'{{"add":{{"path":"p","dataChange":{text}}}}}'.encode(), SingleAction)


def test_string_that_looks_like_a_boolean_stays_a_string():
    counted = Deviations("Reading")
    action = counted.decode(
        b'{"add":{"path":"true","size":1,"partitionValues":{"p":"false","q":"1"}}}', SingleAction
    ).add
    assert (action.path, action.partition_values) == ("true", {"p": "false", "q": "1"})
    assert not counted.counts


def test_deviations_are_logged_in_order_of_their_names(caplog):
    counted = Deviations("Reading")
    for deviation in "bca":
        counted.note(deviation)
    counted.tell()
    assert "accepted: a, b, c." in caplog.text


def test_null_of_an_optional_field_is_not_a_deviation():
    counted = Deviations("Reading")
    decode(b'{"file": {"id": "a", "size": "5", "version": null, "deltaSingleAction": null}}', Line, counted)
    assert dict(counted.counts) == {"'size' is not an integer": 1}
    decode(b'{"add": {"path": "p", "size": 5, "tags": null, "partitionValues": null}}', SingleAction, counted)
    counted.note("odd")
    assert dict(counted.counts) == {"'size' is not an integer": 1, "'partitionValues' is null": 1, "odd": 1}
