"""Unit tests of the server: parameters, tokens, ranges, preconditions, hints, faults, listings."""

from __future__ import annotations

import asyncio
import itertools
import json
import operator
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from delta_sharing_client.delta.schema import parse_schema
from delta_sharing_client.redact import Secret
from mock_server.auth import check_bearer
from mock_server.connection import EXTENSION
from mock_server.errors import ApiError, ConfigError
from mock_server.faults import FAULTS, Fault, FaultSet, Target, parse_fault
from mock_server.files import FileServer, _holds, _send_body, _span
from mock_server.hint_logic import (
    FALSE,
    NULL,
    TRUE,
    NotUnderstood,
    Span,
    all_of,
    any_of,
    combined,
    comparison,
    is_null,
    negated,
)
from mock_server.hints import _node
from mock_server.parameters import Paging, parse_changes, parse_location, parse_page_request, parse_point, parse_query
from mock_server.signing import SignatureProblem


def refused(call: Any, *what: Any) -> str:
    with pytest.raises(ApiError) as caught:
        call(*what)
    assert caught.value.status == 400
    return caught.value.message


# --- parameters ---


def query(**fields: Any) -> Any:
    return parse_query(json.dumps(fields).encode())


def test_query_is_parsed_with_all_fields_of_its_body() -> None:
    result = query(
        predicateHints=["a = 1"],
        jsonPredicateHints={"op": "x"},
        limitHint=5,
        startingVersion="2",
        endingVersion=3,
        includeHistoricalProtocol="TRUE",
        idempotencyKey="k",
        maxFiles=7,
        pageToken="t",
    )
    assert (result.predicate_hints, result.json_predicate_hints, result.limit_hint) == (("a = 1",), '{"op": "x"}', 5)
    assert (result.starting_version, result.ending_version, result.include_historical_protocol) == (2, 3, True)
    assert (result.idempotency_key, result.paging) == ("k", Paging(max_files=7, token="t"))
    assert query(jsonPredicateHints="text", version=0).json_predicate_hints == "text"
    assert query(timestamp="1970-01-01T00:00:01Z").timestamp_ms == 1000
    assert query(refreshToken="r", includeRefreshToken=True).refresh_token == "r"
    assert query(includeRefreshToken=True).include_refresh_token
    assert parse_query(b" ", {"includeHistoricalProtocol": "true"}).include_historical_protocol
    assert parse_page_request(b'{"maxFiles": 1}') == Paging(max_files=1)
    assert [parse_location(body) for body in (b"", b'{"location": "x"}')] == [None, "x"]
    assert [page.asked for page in (Paging(), Paging(max_files=1), Paging(token="t"))] == [False, True, True]
    # Parameters that do not change the rows do not change the digest, so the pages of one query have one digest.
    same = query(limitHint=5).checksum()
    for more in ({"maxFiles": 1}, {"pageToken": "t"}, {"idempotencyKey": "k"}, {"includeRefreshToken": True}):
        assert query(limitHint=5, **more).checksum() == same
    assert query(limitHint=5, refreshToken="r").checksum() == same
    assert len({same, query(limitHint=6).checksum(), query().checksum(), query(version=1).checksum()}) == 4
    assert query().with_paging(Paging(token="t")).paging.token == "t"


def test_mutually_exclusive_parameters_are_refused() -> None:
    at = {"version": 1, "timestamp": "1970-01-01T00:00:01Z", "startingVersion": 1}
    for one, other in itertools.combinations(at, 2):
        assert "Only one of" in refused(lambda one=one, other=other: query(**{one: at[one], other: at[other]}))
    assert "together with 'startingVersion'" in refused(lambda: query(endingVersion=1))
    assert "'endingVersion' 1 is before 'startingVersion' 2" in refused(
        lambda: query(startingVersion=2, endingVersion=1)
    )
    assert query(startingVersion=2, endingVersion=2).ending_version == 2
    for name, value in at.items():
        assert "'refreshToken' must not" in refused(lambda n=name, v=value: query(refreshToken="r", **{n: v}))
        assert "only when querying the latest" in refused(
            lambda n=name, v=value: query(includeRefreshToken=True, **{n: v})
        )
    assert "together with 'pageToken'" in refused(lambda: query(refreshToken="r", pageToken="t"))
    assert parse_point({}) == (None, None)
    assert parse_point({"version": "3"}) == (3, None)
    assert parse_point({"timestamp": "1970-01-01T00:00:01Z"}) == (None, 1000)
    assert "Only one of" in refused(parse_point, {"version": "3", "timestamp": "1970-01-01T00:00:01Z"})
    time = "1970-01-01T00:00:01Z"
    assert "No startingVersion" in refused(parse_changes, {})
    assert "Multiple starting" in refused(parse_changes, {"startingVersion": "1", "startingTimestamp": time})
    assert "Multiple ending" in refused(
        parse_changes, {"startingVersion": "1", "endingVersion": "1", "endingTimestamp": time}
    )
    feed = parse_changes({"startingVersion": "1", "endingVersion": "0", "includeHistoricalMetadata": "true"})
    assert (feed.starting_version, feed.ending_version) == (1, 0)
    assert (feed.include_historical_metadata, feed.include_historical_protocol) == (True, False)
    assert (
        feed.checksum()
        == parse_changes(
            {"startingVersion": "1", "endingVersion": "0", "includeHistoricalMetadata": "true", "maxFiles": "2"}
        ).checksum()
    )
    assert feed.checksum() != parse_changes({"startingVersion": "1", "endingVersion": "0"}).checksum()


def test_invalid_numbers_and_flags_of_a_query_are_refused() -> None:
    largest = {"version": 2**63 - 1, "limitHint": 2**31 - 1, "maxFiles": 2**31 - 1}
    for name, most in largest.items():
        least = 1 if name == "maxFiles" else 0
        for value in (least, most, str(most)):
            query(**{name: value})
        assert f"'{name}' must be at most {most}, not '{most + 1}'." == refused(
            lambda n=name, m=most: query(**{n: m + 1})
        )
        words = "must be at least 1" if least else "must be greater than or equal to 0"
        assert f"'{name}' {words}, not '{least - 1}'." == refused(lambda n=name, v=least: query(**{n: v - 1}))
        for wrong in ("x", "", "1.5"):
            assert "must be a whole number, not" in refused(lambda n=name, w=wrong: query(**{n: w}))
        for odd in (True, 1.5, []):
            assert f"'{name}' must be a whole number." == refused(lambda n=name, o=odd: query(**{n: o}))
    for value, expected in ((None, False), (True, True), ("False", False), ("true", True)):
        assert query(includeRefreshToken=value).include_refresh_token is expected
    assert "must be true or false" in refused(lambda: query(includeRefreshToken="1"))
    for body, words in ((b"{", "is not JSON"), (b"[]", "must be a JSON object"), (b'{"refreshToken": 1}', "a string")):
        assert words in refused(parse_query, body)
    assert "an array of strings" in refused(lambda: query(predicateHints=["a", 1]))


def test_bearer_token_must_be_present_and_correct() -> None:
    for header in ("Bearer t", "bearer  t ", "BEARER t"):
        check_bearer(header, Secret("t"))
    for header, words in (
        (None, "has no bearer token"),
        ("", "has no bearer token"),
        ("Bearer", "has no bearer token"),
        ("Bearer  ", "has no bearer token"),
        ("Basic t", "has no bearer token"),
        ("Bearer x", "is not the token"),
    ):
        with pytest.raises(ApiError, match=words) as caught:
            check_bearer(header, Secret("t"))
        assert (caught.value.status, caught.value.headers) == (
            401,
            {"WWW-Authenticate": 'Bearer realm="delta-sharing"'},
        )


# --- data files ---


def test_range_is_truncated_to_the_file() -> None:
    for header, expected in (
        (b"bytes=0-9", (0, 10)),
        (b" bytes=5-5 ", (5, 6)),
        (b"bytes=90-", (90, 100)),
        (b"bytes=90-999", (90, 100)),
        (b"bytes=-10", (90, 100)),
        (b"bytes=-999", (0, 100)),
        (b"bytes=-0", None),
        (b"bytes=100-", None),
        (b"bytes=99-", (99, 100)),
        (b"bytes=-", (-1, -1)),
        (b"bytes=5-4", (-1, -1)),
        (b"lines=1-2", (-1, -1)),
        (b"bytes=1-2,4-5", (-1, -1)),
        (b"bytes=000005-0000000000000000000000007", (5, 8)),
        (b"bytes=1-" + b"9" * 5000, (1, 100)),
        (b"bytes=" + b"9" * 5000 + b"-", None),
    ):
        assert _span(header, 100) == expected, header
    assert _span(b"bytes=-1", 0) is None


def test_preconditions_compare_strong_etags_and_modified_times() -> None:
    tag, time = b'"a"', b"Thu, 01 Jan 2026 00:00:00 GMT"
    strong, weak = {b"etag": tag, b"last-modified": time}, {b"etag": b"W/" + tag, b"last-modified": time}
    for given, expected in (
        ({}, (True, True)),
        ({b"if-match": tag}, (True, False)),
        ({b"if-match": b'"b", "a"'}, (True, False)),
        ({b"if-match": b"*"}, (True, True)),
        ({b"if-match": b'"b"'}, (False, False)),
        ({b"if-match": b'W/"a"'}, (False, False)),
        ({b"if-unmodified-since": time}, (True, True)),
        ({b"if-unmodified-since": b"Wed, 31 Dec 2025 23:59:59 GMT"}, (False, False)),
        ({b"if-unmodified-since": b"soon"}, (True, True)),
        ({b"if-match": tag, b"if-unmodified-since": b"Wed, 31 Dec 2025 23:59:59 GMT"}, (True, False)),
    ):
        assert (_holds(given, strong), _holds(given, weak)) == expected
    assert not _holds({b"if-match": tag}, {})
    assert _holds({b"if-unmodified-since": time}, {})


def served(path: Path | None, scope: dict[str, Any] | None = None, *faults: str) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body of a request for a file."""
    table = SimpleNamespace(id="id", location=path.parent if path else Path("/none"))
    signer = SimpleNamespace(check=lambda path, query: {b"": None, b"e": SignatureProblem.EXPIRED}[query])
    server = FileServer(lambda: cast("Any", catalog), cast("Any", signer), FaultSet(map(parse_fault, faults)))
    catalog = SimpleNamespace(tables=[table])
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(dict(message))

    raw = f"/data/id/{path.name if path else 'x'}".encode()
    whole = {"method": "GET", "raw_path": raw, "query_string": b"", "headers": [], **(scope or {})}
    asyncio.run(server(whole, cast("Any", None), send))
    start, *rest = sent
    headers = {name.decode(): value.decode() for name, value in start["headers"]}
    assert [message.get("more_body", False) for message in rest] == [True] * (len(rest) - 1) + [False]
    return start["status"], headers, b"".join(message.get("body", b"") for message in rest)


def test_files_are_served_like_an_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mock_server.files._COPY_BYTES", 4)
    path = tmp_path / "f"
    path.write_bytes(b"0123456789")
    info = os.stat(path)
    status, headers, body = served(path)
    assert (status, body) == (200, b"0123456789")
    assert headers == {
        "content-type": "application/octet-stream",
        "accept-ranges": "bytes",
        "content-length": "10",
        "etag": f'"{info.st_ino:x}-{info.st_mtime_ns:x}-a"',
        "last-modified": headers["last-modified"],
    }
    tag = headers["etag"].encode()

    def asked(header: bytes, *faults: str, **more: Any) -> tuple[int, str | None, str, bytes]:
        status, result, body = served(
            path, {"headers": [(b"range", header), *more.pop("headers", [])], **more}, *faults
        )
        return status, result.get("content-range"), result["content-length"], body

    assert asked(b"bytes=2-4") == (206, "bytes 2-4/10", "3", b"234")
    assert asked(b"bytes=2-4", method="HEAD") == (206, "bytes 2-4/10", "3", b"")
    assert asked(b"bytes=2-4", "ignore-range") == (200, None, "10", b"0123456789")
    assert asked(b"bytes=2-4,6-7") == (200, None, "10", b"0123456789")
    assert asked(b"bytes=10-")[:2] == (416, "bytes */10")
    assert b"<Code>InvalidRange</Code>" in asked(b"bytes=10-")[3]
    for condition, is_part in (
        (tag, True),
        (b'"x"', False),
        (b"W/" + tag, False),
        (headers["last-modified"].encode(), True),
    ):
        assert (asked(b"bytes=2-4", headers=[(b"if-range", condition)])[0] == 206) is is_part
    for faults, names in (
        (["no-etag"], {"last-modified"}),
        (["no-last-modified"], {"etag"}),
        (["no-etag", "no-last-modified"], set()),
    ):
        assert served(path, None, *faults)[1].keys() & {"etag", "last-modified"} == names
    assert served(path, None, "weak-etag")[1]["etag"].startswith('W/"')
    (tmp_path / "f.replaced").write_bytes(b"new")
    assert served(path, None, "replaced-after=0")[2] == b"new"
    assert served(path, None, "replaced-after=1")[2] == b"0123456789"
    for scope, code, name in (
        ({"method": "PUT"}, 405, "MethodNotAllowed"),
        ({"query_string": b"e"}, 403, "AccessDenied"),
        ({"raw_path": b"/data/other/f"}, 404, "NoSuchKey"),
        ({"raw_path": b"/data/id/none"}, 404, "NoSuchKey"),
        ({"raw_path": b"/data/id/%00"}, 404, "NoSuchKey"),
        ({"headers": [(b"if-match", b'"x"')]}, 412, "PreconditionFailed"),
    ):
        status, result, body = served(path, scope)
        assert (status, result["content-type"], result["content-length"]) == (code, "application/xml", str(len(body)))
        assert f"<Code>{name}</Code><Message>".encode() in body
        status, result, body = served(path, {**scope, "method": scope.get("method", "HEAD").replace("GET", "HEAD")})
        assert (status, body == b"") == (code, code != 405)
    absolute = {"raw_path": b"/absolute/id" + os.fsencode(path)}
    assert served(None, absolute)[2] == b"0123456789"
    (tmp_path / "a\udcff b").write_bytes(b"odd")
    assert served(path, {"raw_path": b"/data/id/a%FF%20b"})[2] == b"odd"


def test_file_that_shrinks_closes_the_connection(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"0123")
    handle = (tmp_path / "f").open("rb", buffering=0)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    try:
        with pytest.raises(ConnectionError):
            asyncio.run(_send_body({}, send, handle, 1, 9))
        assert [message["body"] for message in sent] == [b"123"]
        sent.clear()
        asyncio.run(_send_body({"extensions": {EXTENSION: 1}}, send, handle, 1, 3))
    finally:
        handle.close()
    assert sent == [{"type": "http.response.zerocopysend", "file": handle, "offset": 1, "count": 2, "more_body": True}]


# --- hints ---


def test_possible_outcomes_combine_like_sql_booleans() -> None:
    values = {TRUE: True, FALSE: False, NULL: None}

    def bits(outcome: int) -> list[bool | None]:
        return [value for bit, value in values.items() if outcome & bit]

    def both(one: bool | None, other: bool | None) -> bool | None:
        return False if one is False or other is False else None if one is None or other is None else True

    def either(one: bool | None, other: bool | None) -> bool | None:
        return True if one is True or other is True else None if one is None or other is None else False

    # At least one outcome is always possible, so 0 is left out.
    for left, right in itertools.product(range(1, 8), repeat=2):
        pairs = list(itertools.product(bits(left), bits(right)))
        assert set(bits(all_of(left, right))) == {both(*pair) for pair in pairs}
        assert set(bits(any_of(left, right))) == {either(*pair) for pair in pairs}
    for outcome in range(8):
        opposite = negated(lambda spans, outcome=outcome: outcome)(cast("Any", None))
        assert set(bits(opposite)) == {None if value is None else not value for value in bits(outcome)}
    tests: Any = [lambda spans: TRUE, lambda spans: TRUE | NULL, lambda spans: TRUE]
    assert combined(tests, all_of)(cast("Any", None)) == TRUE | NULL
    assert combined([*tests, lambda spans: FALSE], all_of)(cast("Any", None)) == FALSE
    assert combined(tests, any_of)(cast("Any", None)) == TRUE


OPERATIONS = {
    "equal": operator.eq, "lessThan": operator.lt, "lessThanOrEqual": operator.le, "greaterThan": operator.gt,
    "greaterThanOrEqual": operator.ge,
}  # fmt: skip


def test_comparison_has_every_result_that_its_bounds_allow() -> None:
    bounds = (None, 1, 2, 3)
    for name, lower, upper, literal, nulls in itertools.product(OPERATIONS, bounds, bounds, (1, 2, 3), (True, False)):
        if lower is not None and upper is not None and lower > upper:
            continue
        span = Span(lower, upper, True, nulls)
        possible = [
            value / 2 for value in range(-2, 11)
            if (lower is None or value / 2 >= lower) and (upper is None or value / 2 <= upper)
        ]  # fmt: skip
        results = {OPERATIONS[name](value, literal) for value in possible}
        expected = (TRUE if True in results else 0) | (FALSE if False in results else 0) | (NULL if nulls else 0)
        actual = comparison(name, "c", literal, literal)(lambda column, span=span: span)
        assert actual == expected, (name, span, literal)
    for nulls, values, result in ((True, True, TRUE | FALSE), (True, False, TRUE), (False, True, FALSE)):
        assert is_null("c")(lambda column, n=nulls, v=values: Span(None, None, v, n)) == result
    only_nulls = Span(None, None, False, True)
    assert comparison("equal", "c", 1, 1)(lambda column: only_nulls) == NULL
    # If only two bounds of a literal are known, the result for values between them is unknown.
    wide = Span(1, 4, True, False)
    assert comparison("equal", "c", 2, 3)(lambda column: wide) == TRUE | FALSE
    assert comparison("lessThan", "c", 5, 6)(lambda column: wide) == TRUE
    assert comparison("greaterThan", "c", 4, 6)(lambda column: wide) == FALSE


def test_boolean_column_is_a_predicate() -> None:
    schema = parse_schema('{"type":"struct","fields":[{"name":"b","type":"boolean","nullable":true,"metadata":{}}]}')
    flag = {"op": "column", "name": "b", "valueType": "boolean"}

    def result(tree: Any, low: bool, high: bool) -> int:
        return _node(tree, schema, 0)(lambda _: Span(low, high, True, False))

    for low, high, expected in ((True, True, TRUE), (False, False, FALSE), (False, True, TRUE | FALSE)):
        assert result(flag, low, high) == expected
        assert result({"op": "not", "children": [flag]}, low, high) == {1: 2, 2: 1, 3: 3}[expected]
    for wrong in ([], {"op": 1}, {"op": "and", "children": [flag]}, {"op": "not", "children": [flag, flag]},
                  {"op": "equal", "children": [flag]}, {"op": "and", "children": {}}):  # fmt: skip
        with pytest.raises(NotUnderstood):
            _node(wrong, schema, 0)


# --- faults ---


def test_faults_round_trip_through_strings() -> None:
    for text, fault in (
        ("503-first", Fault("503-first", 0.0, 1, Target.ALL)),
        ("503-first=3@api", Fault("503-first", 0.0, 3, Target.API)),
        ("503-first@api", Fault("503-first", 0.0, 1, Target.API)),
        ("truncate-body@data", Fault("truncate-body", 0.5, None, Target.DATA)),
        ("cut-connection-after=100:1", Fault("cut-connection-after", 100.0, 1, Target.ALL)),
        ("no-etag", Fault("no-etag", 0.0, None, Target.DATA)),
        ("page-size=3", Fault("page-size", 3.0, None, Target.API)),
        ("slow=0.25:2@all", Fault("slow", 0.25, 2, Target.ALL)),
    ):
        assert parse_fault(text) == fault
        assert parse_fault(str(fault)) == fault
    for kind, target in itertools.product(FAULTS, Target):
        for count in ("",) if kind.counts else ("", ":2"):
            value = "=3" if kind.default is not None or kind.required else ""
            fault = parse_fault(f"{kind.name}{value}{count}@{target.value}")
            assert fault.target is target
            assert parse_fault(str(fault)) == fault
        if not kind.required:
            assert parse_fault(kind.name).target is kind.target
    wrong = (
        "",
        "none",
        "slow@here",
        "no-etag=1",
        "page-size",
        "page-size=x",
        "slow=x",
        "slow:x",
        "slow=-1",
        "slow=nan",
    )
    for text in wrong:
        with pytest.raises(ConfigError, match=r"(?i)fault"):
            parse_fault(text)
    for target in Target:
        assert Target.ALL.covers(target)
        assert target.covers(target)
    assert not Target.API.covers(Target.DATA)
