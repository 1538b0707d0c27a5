"""Checks of asynchronous queries, of queries in pages, and of refresh tokens."""

from __future__ import annotations

import itertools
import time
import uuid
from typing import Any

from delta_sharing_client.checks import forms
from delta_sharing_client.checks.check import Failed, Level, NotOffered, NotTestable, check
from delta_sharing_client.checks.checked_server import Answer, Server
from delta_sharing_client.checks.shared_tables import (
    CAPABILITIES,
    PARQUET,
    SharedTable,
    next_page,
    pages_of,
    require_lines,
    table_with,
)

_SPEC = "Delta Sharing Protocol"
_INFO = f"{_SPEC}, Get Query Info"
_ASYNC = f"{_SPEC}, asyncQuery"
_HEADERS = {CAPABILITIES: "responseformat=parquet;asyncquery=true"}
# Seconds for all polls, and between two of them.
_LONGEST = 30.0
_LONGEST_WAIT = 1.0
_VERSION = "Delta-Table-Version"


def _table(server: Server) -> SharedTable:
    return table_with(
        server, "a table with two files that parquet format can represent",
        lambda table: len(table.files(PARQUET)) > 1,
    )  # fmt: skip


def _status(answer: Answer) -> dict[str, Any] | None:
    """Return the queryStatus of a response; ``None`` if it has none."""
    for line in answer.require().lines():
        if isinstance(line.get("queryStatus"), dict):
            status: dict[str, Any] = line["queryStatus"]
            return status
    return None


def _submitted(server: Server, key: str, *, fresh: bool = False) -> Answer:
    answer = _table(server).query(_HEADERS, fresh=fresh, idempotencyKey=key)
    if answer.status == 200 and _status(answer) is None:
        raise NotOffered("The server completes a query with asyncquery=true at once.")
    return answer.require()


def _key(server: Server) -> str:
    """Return the idempotency key of the query that all checks look at."""
    return server.found("idempotency key", lambda: f"conformance-{uuid.uuid4()}")


def _poll(server: Server, query: object, *, anonymous: bool = False, **body: object) -> Answer:
    path = (*_table(server).path, "queries", str(query))
    return server.post(*path, headers=PARQUET, body=body, fresh=True, anonymous=anonymous)


def _polls(server: Server) -> list[Answer]:
    """Return the responses to polls, up to the last one: that of a query that is complete or failed, or of one that
    took too long."""

    def find() -> list[Answer]:
        query, results = _id(server), []
        end = time.monotonic() + _LONGEST
        for number in itertools.count():
            results.append(_poll(server, query).require())
            if (_status(results[-1]) or {}).get("status") != "pending" or time.monotonic() > end:
                break
            time.sleep(min(_LONGEST_WAIT, 0.005 * 2**number))
        return results

    return server.found("polls", find)


def _result(server: Server) -> Answer:
    """Return the response to a poll that has the files."""
    last = _polls(server)[-1]
    if _status(last) is not None:
        raise NotTestable("The query would need to succeed.")
    return last


def _id(server: Server) -> str:
    status = _status(_submitted(server, _key(server)))
    assert status is not None
    return str(status["queryId"])


def _files(answer: Answer) -> list[str]:
    return [line["file"]["id"] for line in answer.require().lines() if "file" in line]


def _require_whole(server: Server, pages: list[Answer]) -> None:
    whole = sorted(_files(_table(server).query(PARQUET)))
    ids = [name for page in pages for name in _files(page)]
    if sorted(ids) != whole:
        raise Failed(f"Expected the {len(whole)} files of a plain query, each once; found {len(ids)}.", pages[-1])


# === Asynchronous queries ===


@check(
    "async.submitted-form", Level.ASYNCHRONOUS,
    "A query with asyncquery=true is answered with one line, a queryStatus with the queryId.", _ASYNC,
)  # fmt: skip
def _submitted_form(server: Server) -> None:
    _require_status(_submitted(server, _key(server)))


def _require_status(answer: Answer) -> None:
    lines = answer.lines()
    if len(lines) != 1:
        raise Failed(f"Expected one line with a queryStatus, found {len(lines)} lines.", answer)
    if (problem := forms.problem(lines[0], "QueryStatus")) is not None:
        raise Failed(problem, answer)


@check(
    "async.header", Level.ASYNCHRONOUS, "The response that starts an asynchronous query has asyncquery=true in its "
    "header delta-sharing-capabilities.", _ASYNC,
)  # fmt: skip
def _header(server: Server) -> None:
    answer = _submitted(server, _key(server))
    if "asyncquery=true" not in answer.headers.get(CAPABILITIES, "").replace(" ", "").lower():
        raise Failed(f"Expected asyncquery=true in {CAPABILITIES}, found '{answer.headers.get(CAPABILITIES)}'.", answer)


@check(
    "async.same-key", Level.ASYNCHRONOUS, "The same query with the same idempotencyKey has the same queryId.", _ASYNC
)
def _same_key(server: Server) -> None:
    first, again = (_status(_submitted(server, _key(server), fresh=fresh)) for fresh in (False, True))
    if (first or {}).get("queryId") != (again or {}).get("queryId"):
        raise Failed("Expected the queryId of the first request with this idempotencyKey, found another one.")


@check(
    "async.synchronous", Level.ASYNCHRONOUS, "A query without asyncquery=true is served synchronously.", _ASYNC
)  # fmt: skip
def _synchronous(server: Server) -> None:
    _submitted(server, _key(server))
    answer = _table(server).query(PARQUET, idempotencyKey=f"{_key(server)}-synchronous").require()
    if _status(answer) is not None:
        raise Failed("Expected the files of the table, found a queryStatus.", answer)


@check(
    "async.pending-form", Level.ASYNCHRONOUS,
    "While a query is pending, the response is one line, a queryStatus with its queryId.", _INFO,
)  # fmt: skip
def _pending_form(server: Server) -> None:
    for answer in _pending(server):
        _require_status(answer)
        if (_status(answer) or {}).get("queryId") != _id(server):
            raise Failed("Expected the queryId of the request, found another one.", answer)


def _pending(server: Server) -> list[Answer]:
    pending = [answer for answer in _polls(server) if _status(answer) is not None]
    if not pending:
        raise NotTestable("The query would need to be pending when it is polled; it was complete at once.")
    return pending


@check(
    "async.result-form", Level.ASYNCHRONOUS,
    "The response to a complete query has the form of a synchronous one, without a queryStatus.", _INFO,
)  # fmt: skip
def _result_form(server: Server) -> None:
    last = _polls(server)[-1]
    if (status := _status(last)) is not None:
        raise Failed(f"Expected the query to succeed, found the status {status.get('status')!r}.", last)
    require_lines(last, False, "file")


@check("async.version", Level.ASYNCHRONOUS, "A complete query states the version of the table in the header.", _INFO)
def _version(server: Server) -> None:
    answer = _result(server)
    expected = _table(server).query(PARQUET).headers.get(_VERSION)
    if answer.headers.get(_VERSION) != expected:
        raise Failed(
            f"Expected {_VERSION} {expected}, as in a synchronous response, found '{answer.headers.get(_VERSION)}'.",
            answer,
        )


@check("async.no-version", Level.ASYNCHRONOUS, "A pending query states no version in the header.", _INFO)
def _no_version(server: Server) -> None:
    for answer in _pending(server):
        if _VERSION in answer.headers:
            raise Failed(f"Expected no {_VERSION} while the query is pending, found one.", answer)


@check("async.same-files", Level.ASYNCHRONOUS, "A complete query has the files of a synchronous one.", _INFO)
def _same_files(server: Server) -> None:
    answer = _result(server)
    _require_whole(server, pages_of(answer, lambda token: _poll(server, _id(server), pageToken=token)))


@check(
    "async.pages", Level.ASYNCHRONOUS, "The pages of a complete query together have each file once.", _INFO
)  # fmt: skip
def _pages(server: Server) -> None:
    _result(server)
    most = max(1, len(_table(server).files(PARQUET)) // 2)
    first = _poll(server, _id(server), maxFiles=most)
    _require_whole(server, pages_of(first, lambda token: _poll(server, _id(server), maxFiles=most, pageToken=token)))


@check("async.unknown", Level.ASYNCHRONOUS, "An unknown queryId is a 404, with errorCode and message.", _INFO)
def _unknown(server: Server) -> None:
    _submitted(server, _key(server))
    _poll(server, f"no-such-query-{uuid.uuid4()}").conforms("Error", status=404)


@check("async.token", Level.ASYNCHRONOUS, "A poll without a token is a 401, with errorCode and message.", _INFO)
def _token(server: Server) -> None:
    _poll(server, _id(server), anonymous=True).conforms("Error", status=401)


# === Pages and refresh tokens ===


@check("query.pages", Level.PARQUET, "The pages of a query together have each file once.", f"{_SPEC}, EndStreamAction")
def _query_pages(server: Server) -> None:
    table = _table(server)
    most = max(1, len(table.files(PARQUET)) // 2)
    answer = table.query(PARQUET, maxFiles=most).require()
    if not next_page(answer):
        raise NotOffered(f"The server returns all files to a query with maxFiles={most}.")
    _require_whole(server, pages_of(answer, lambda token: table.query(PARQUET, maxFiles=most, pageToken=token)))


@check(
    "query.refresh-token", Level.URLS, "With a refresh token, a query returns the same files, with new URLs that work.",
    f"{_SPEC}, EndStreamAction",
)  # fmt: skip
def _refresh_token(server: Server) -> None:
    table = _table(server)
    answer = table.query(PARQUET, includeRefreshToken=True)
    token = answer.lines()[-1].get("endStreamAction", {}).get("refreshToken") if answer.status == 200 else None
    if not token:
        raise NotOffered("The server returns no refreshToken.")
    refreshed = table.query(PARQUET, includeRefreshToken=True, refreshToken=token).require()
    _require_whole(server, [refreshed])
    file = next(line["file"] for line in refreshed.lines() if "file" in line)
    server.fetch(file["url"], Range="bytes=0-3").require(200, 206)
