"""Violations of the sentences about asynchronous queries, queries in pages, and refresh tokens."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from .violations import TABLE, Answer, Asked, misreads, spoils

_QUERY = f"{TABLE}/query"
_POLL = f"{TABLE}/queries/[^/]+"
_CAPABILITIES = "delta-sharing-capabilities"


def _started(change: Callable[[Answer], object]) -> Callable[[Answer], None]:
    """Return a change of the response that starts an asynchronous query."""

    def spoil(answer: Answer) -> None:
        if "asyncquery=true" in answer.headers.get(_CAPABILITIES, ""):
            change(answer)

    return spoil


def _polled(change: Callable[[Answer], object], *, pending: bool = False) -> Callable[[Answer], None]:
    """Return a change of the response to a poll, of a query that is complete or pending."""

    def spoil(answer: Answer) -> None:
        if (b"queryStatus" in answer.body) is pending:
            change(answer)

    return spoil


def _of_status(**fields: object) -> Callable[[Answer], None]:
    def change(answer: Answer) -> None:
        (line,) = answer.lines
        answer.lines = [{"queryStatus": line["queryStatus"] | fields}]

    return change


def _spoil_expiration(answer: Answer) -> None:
    lines = answer.lines
    _file_lines(lines)[0]["file"]["expirationTimestamp"] = "soon"
    answer.lines = lines


def _file_lines(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if "file" in line]


def _without_a_file(*parameters: str) -> Callable[[Answer], None]:
    """Return a change that drops a file of the last page of a request with these parameters."""

    def change(answer: Answer) -> None:
        if answer.asked.document.keys() - {"pageToken"} == set(parameters) and b"nextPageToken" not in answer.body:
            lines = answer.lines
            lines.remove(_file_lines(lines)[0])
            answer.lines = lines

    return change


def _with_status(status: int) -> Callable[[Answer], None]:
    def spoil(answer: Answer) -> None:
        answer.status = status

    return spoil


spoils("async.submitted-form", _QUERY, "POST")(_started(_of_status(status="waiting")))
spoils("async.header", _QUERY, "POST")(_started(lambda answer: answer.headers.pop(_CAPABILITIES)))
spoils("async.pending-form", _POLL, "POST")(_polled(_of_status(queryId="other"), pending=True))
spoils("async.result-form", _POLL, "POST")(_polled(_spoil_expiration))
spoils("async.version", _POLL, "POST")(_polled(lambda answer: answer.headers.pop("delta-table-version")))
spoils("async.no-version", _POLL, "POST")(
    _polled(lambda answer: answer.headers.update({"delta-table-version": "0"}), pending=True)
)
spoils("async.same-files", _POLL, "POST")(_polled(_without_a_file()))
spoils("async.pages", _POLL, "POST")(_polled(_without_a_file("maxFiles")))
spoils("async.unknown", _POLL, "POST", statuses=(404,))(_with_status(400))
spoils("async.token", _POLL, "POST", statuses=(401,))(_with_status(200))
spoils("query.pages", _QUERY, "POST")(_without_a_file("maxFiles"))
spoils("query.refresh-token", _QUERY, "POST")(_without_a_file("includeRefreshToken", "refreshToken"))


@misreads("async.same-key", _QUERY, "POST")
def _another_key(asked: Asked) -> None:
    if b"idempotencyKey" in asked.body:
        asked.document = asked.document | {"idempotencyKey": str(uuid.uuid4())}


@misreads("async.synchronous", _QUERY, "POST")
def _always_asynchronous(asked: Asked) -> None:
    if b"idempotencyKey" in asked.body:
        asked.headers[_CAPABILITIES] = "responseformat=parquet;asyncquery=true"
