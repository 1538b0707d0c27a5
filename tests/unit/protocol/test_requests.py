"""What can be asked, and what is refused before it is sent."""

from __future__ import annotations

import pytest

from delta_sharing_client.errors import UsageError
from delta_sharing_client.options import ResponseFormat
from delta_sharing_client.protocol.messages import CAPABILITIES_HEADER, END_STREAM_ACTION, capabilities, promises
from delta_sharing_client.protocol.query import ChangesQuery, QueryRequest


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"version": 1, "timestamp": "2022-01-01"}, "'version' and 'timestamp'"),
        ({"version": 1, "starting_version": 1}, "'version' and 'starting_version'"),
        ({"version": -1}, "version"),
        ({"version": True}, "version"),
        ({"version": "1"}, "version"),
        ({"version": 2**63}, "version"),
        ({"limit_hint": True}, "limit_hint"),
        ({"limit_hint": 1.0}, "limit_hint"),
        ({"starting_version": -1}, "starting_version"),
        ({"ending_version": 1}, "'ending_version' needs 'starting_version'"),
        ({"starting_version": 2, "ending_version": 1}, "starts at 2 and ends at 1"),
        ({"max_files": 0}, "max_files"),
        ({"max_files": 2**31}, "max_files"),
        ({"refresh_token": "r", "version": 1}, "'refresh_token' and 'version'"),
        ({"timestamp": "yesterday"}, "timestamp"),
        ({"json_predicate_hints": "{"}, "json_predicate_hints"),
        ({"json_predicate_hints": "[]"}, "json_predicate_hints"),
        ({"json_predicate_hints": "{}"}, "json_predicate_hints"),
        ({"json_predicate_hints": {"op": "and"}}, "json_predicate_hints"),
    ],
)
def test_query_that_contradicts_itself_is_refused(fields, named):
    with pytest.raises(UsageError, match=named):
        QueryRequest(**fields)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({}, "needs a start"),
        ({"ending_version": 1}, "needs a start"),
        ({"starting_version": 1, "starting_timestamp": "2022-01-01"}, "'starting_version' and 'starting_timestamp'"),
        (
            {"starting_version": 1, "ending_version": 1, "ending_timestamp": "2022-01-01"},
            "'ending_version' and 'ending_",
        ),
        ({"starting_version": 2, "ending_version": 1}, "starts at 2 and ends at 1"),
        ({"starting_version": -1}, "starting_version"),
        ({"starting_timestamp": "soon"}, "starting_timestamp"),
        ({"starting_version": 1, "max_files": True}, "max_files"),
    ],
)
def test_change_query_that_contradicts_itself_is_refused(fields, named):
    with pytest.raises(UsageError, match=named):
        ChangesQuery(**fields)


def test_refresh_token_is_not_shown():
    assert "planted" not in repr(QueryRequest(refresh_token="planted"))


def test_capabilities_name_features_only_with_delta():
    delta, parquet = ResponseFormat.DELTA, ResponseFormat.PARQUET

    assert capabilities((parquet,), ["a"]) == {CAPABILITIES_HEADER: "responseformat=parquet"}
    assert capabilities((delta,)) == {CAPABILITIES_HEADER: "responseformat=delta"}
    full = "responseformat=delta,parquet;readerfeatures=deletionvectors,b;asyncquery=true;includeendstreamaction=true"
    assert capabilities((delta, parquet), ["deletionVectors", "b"], end_stream_action=True, asynchronous=True) == {
        CAPABILITIES_HEADER: full
    }


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
