"""Headers and parameters as real clients send them."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mock_server.capabilities import Capabilities, Format, parse_capabilities
from mock_server.errors import ApiError
from mock_server.listings import _token, next_page
from mock_server.parameters import parse_changes, parse_listing, parse_query, parse_timestamp
from mock_server.tokens import Tokens
from tests.quota import meets, met


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, Capabilities()),
        ("", Capabilities()),
        ("nonsense", Capabilities()),
        ("readerfeatures=deletionvectors", Capabilities(reader_features=frozenset({"deletionvectors"}))),
        ("responseformat=parquet", Capabilities()),
        ("RESPONSEFORMAT=Delta,PARQUET", Capabilities((Format.DELTA, Format.PARQUET))),
        ("responseformat=avro,delta", Capabilities((Format.DELTA,))),
        (
            "responseformat=delta,parquet;readerfeatures=deletionVectors,columnMapping;"
            "asyncquery=true;includeendstreamaction=true",
            Capabilities((Format.DELTA, Format.PARQUET), frozenset({"deletionvectors", "columnmapping"}), True, True),
        ),
        (
            " responseformat = delta ; includeEndStreamAction=TRUE",
            Capabilities((Format.DELTA,), end_stream_action=True),
        ),
        ("includeendstreamaction=false;asyncquery=1", Capabilities()),
    ],
)
def test_capabilities_header_is_parsed(header: str | None, expected: Capabilities) -> None:
    assert parse_capabilities(header) == expected


@meets(utc=1, past=17, fraction=23)
@given(st.datetimes(datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 30)), st.integers(-18 * 60, 18 * 60))
def test_a_timestamp_with_any_offset_is_its_instant(moment: datetime.datetime, minutes: int) -> None:
    met("utc", minutes == 0)
    met("past", moment.year < 1970)
    met("fraction", moment.microsecond % 1000)
    zone = datetime.timezone(datetime.timedelta(minutes=minutes))
    text = moment.replace(tzinfo=zone).isoformat()
    expected = (moment - datetime.datetime(1970, 1, 1) - zone.utcoffset(None)) // datetime.timedelta(milliseconds=1)
    assert parse_timestamp(text) == expected
    if minutes == 0:
        assert parse_timestamp(text.replace("+00:00", "Z")) == expected


def test_timestamps_of_a_range_are_rounded_into_the_range() -> None:
    finer = {"startingTimestamp": "2022-01-01T00:00:00.0005Z", "endingTimestamp": "2022-01-01T00:00:00.0005Z"}
    changes = parse_changes(finer)
    assert (changes.ending_ms, changes.starting_ms) == (1_640_995_200_000, 1_640_995_200_001)


@pytest.mark.parametrize(
    "text", ["", "2022-01-01", "2022-01-01T00:00:00", "2022-01-01 00:00:00Z", "2022-02-30T00:00:00Z", "1640995200000"]
)
def test_other_timestamp_formats_are_refused(text: str) -> None:
    with pytest.raises(ApiError, match="ISO 8601"):
        parse_timestamp(text)


def test_null_and_unknown_fields_are_ignored() -> None:
    assert parse_query(b'{"version": null, "limitHint": null, "queryDeltaLog": false}') == parse_query(b"")


@pytest.mark.parametrize("body", [b'{"predicateHints": "a"}', b'{"jsonPredicateHints": []}', b'{"limitHint": [1]}'])
def test_field_of_the_wrong_type_is_malformed(body: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        parse_query(body)
    assert (caught.value.status, caught.value.code) == (400, "MALFORMED_REQUEST")


@meets(ascii=4, other=20)
@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode()))
def test_page_token_that_this_server_did_not_issue_is_400(raw: bytes) -> None:
    met("ascii" if raw and raw.isascii() else "other")
    tokens = Tokens()
    for text in (raw.decode("latin-1"), raw.hex(), tokens.make("other", {}, 60), Tokens().make("kind", {}, 60)):
        with pytest.raises(ApiError):
            tokens.read("kind", text)
    assert tokens.read("kind", tokens.make("kind", {"a": 1}, 60))["a"] == 1


def test_listing_page_has_at_most_500_items() -> None:
    assert parse_listing({}) == (500, None)
    assert parse_listing({"maxResults": "0", "pageToken": ""}) == (0, None)
    assert parse_listing({"maxResults": "500", "pageToken": "x"}) == (500, "x")
    with pytest.raises(ApiError, match="0 to 500, inclusive") as caught:
        parse_listing({"maxResults": "501"})
    assert caught.value.status == 400


@pytest.mark.parametrize("offset", ["-1", "4", "x", ""])
def test_page_token_beyond_the_listing_is_refused(offset: str) -> None:
    items = ["a", "b", "c"]
    assert next_page("shares", items, 2, _token("shares", 3)) == ([], None)
    assert next_page("shares", items, 2, _token("shares", 0))[0] == ["a", "b"]
    for token in (_token("shares", offset), _token("schemas", 0), "no token"):  # type: ignore[arg-type]
        with pytest.raises(ApiError, match="Invalid 'nextPageToken'"):
            next_page("shares", items, 2, token)


@pytest.mark.parametrize(("token", "expected"), [("", None), ("x", "x")])
def test_empty_page_token_means_the_first_page(token: str, expected: str | None) -> None:
    assert parse_changes({"startingVersion": "0", "pageToken": token, "maxFiles": "1"}).paging.token == expected
