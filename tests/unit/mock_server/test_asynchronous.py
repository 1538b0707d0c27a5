"""Asynchronous queries: how they are submitted, polled and read page by page."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import requests

from tests.unit.mock_server.helpers import Api, Lines, error_of

TABLE = "shares/default/schemas/default/tables"
ASYNC = "responseformat=parquet;asyncquery=true"


def submit(api: Api, table: str = "plain", **body: object) -> requests.Response:
    return api.post(f"{TABLE}/{table}/query", body, ASYNC)


def status_of(response: requests.Response) -> dict[str, Any]:
    assert response.status_code == 200
    (line,) = response.text.splitlines()
    content: dict[str, Any] = json.loads(line)["queryStatus"]
    return content


@pytest.mark.parametrize("spelling", ["idempotencyKey", "idempotency_key"])
def test_query_is_pending_and_then_complete(start: Callable[..., Api], spelling: str) -> None:
    own = start(async_polls=2)
    response = submit(own, **{spelling: "k"})
    assert response.headers["delta-sharing-capabilities"] == "asyncquery=true"
    query = status_of(response)
    assert query["status"] == "pending"
    path = f"{TABLE}/plain/queries/{query['queryId']}"
    assert [status_of(own.post(path))["status"] for _ in range(2)] == ["pending", "pending"]
    assert len(Lines(own.post(path)).files) == 2
    assert len(Lines(own.post(path)).files) == 2  # a client may repeat the request after a lost response


def test_repeated_idempotency_key_returns_the_same_query(api: Api) -> None:
    first = status_of(submit(api, idempotencyKey="same"))["queryId"]
    assert status_of(submit(api, idempotencyKey="same"))["queryId"] == first
    assert status_of(submit(api, idempotencyKey="different"))["queryId"] != first
    assert error_of(submit(api, idempotencyKey="same", version=1)) == (400, "INVALID_PARAMETER_VALUE")


def test_missing_idempotency_key_and_unknown_query_are_refused(api: Api) -> None:
    assert error_of(submit(api)) == (400, "INVALID_PARAMETER_VALUE")
    assert error_of(api.post(f"{TABLE}/plain/queries/nope"))[0] == 404
    query = status_of(submit(api, idempotencyKey="other table"))["queryId"]
    assert error_of(api.post(f"{TABLE}/feed/queries/{query}"))[0] == 404


def test_unsupported_table_is_refused_when_a_query_is_submitted(api: Api) -> None:
    assert error_of(submit(api, "vectors", idempotencyKey="k")) == (400, "UNSUPPORTED_OPERATION")


def test_range_can_be_requested_asynchronously(start: Callable[..., Api]) -> None:
    own = start(async_polls=0)
    query = status_of(submit(own, idempotencyKey="k", startingVersion=1))["queryId"]
    lines = Lines(own.post(f"{TABLE}/plain/queries/{query}"))
    assert lines.version == 1
    assert len(lines.files) == 2
