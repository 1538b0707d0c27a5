"""Checks of tokens, and of the statuses and bodies of errors."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator

from delta_sharing_client.checks import forms
from delta_sharing_client.checks.check import Failed, Level, NotOffered, NotTestable, check
from delta_sharing_client.checks.checked_server import Answer, Server
from delta_sharing_client.checks.shared_tables import DELTA, readable

_SPEC = "Delta Sharing Protocol"
_UNKNOWN = "conformance-no-such-name"
_WRONG = {"Authorization": "Bearer conformance-wrong-token"}
_QUERY = "Read Data from a Table"
Ask = Callable[[Server], Answer]


# --- tokens ---


def _refused(server: Server, headers: dict[str, str]) -> Iterator[Answer]:
    """Yield the responses of several APIs to requests without the profile's credentials."""
    yield server.get("shares", headers=headers, anonymous=True)
    table = readable(server)
    for path in ((*table.path[:4], "tables"), (*table.path, "version"), (*table.path, "metadata")):
        yield server.get(*path, headers=headers, anonymous=True)
    yield server.post(*table.path, "query", headers=headers, anonymous=True)


def _require_refusal(headers: dict[str, str], told: str, server: Server) -> None:
    for answer in _refused(server, headers):
        if answer.status not in (401, 403):
            raise Failed(f"Expected status 401 for a request with {told}, found {answer.status}.", answer)


check(
    "access.token-is-required", Level.ACCESS, "Requests without a token are refused with status 401 (or 403).",
    f"{_SPEC}, REST APIs",
)(functools.partial(_require_refusal, {}, "no token"))  # fmt: skip
check(
    "access.wrong-token-is-refused", Level.ACCESS, "Requests with an incorrect token are refused with status 401 "
    "(or 403).", f"{_SPEC}, REST APIs",
)(functools.partial(_require_refusal, _WRONG, "an incorrect token"))  # fmt: skip


# --- statuses ---


def _of_table(*more: str) -> Ask:
    """Return a request for a table that does not exist, in a schema that does."""
    method = "POST" if more == ("query",) else "GET"

    def ask(server: Server) -> Answer:
        path = (*readable(server).path[:-1], _UNKNOWN, *more)
        return server.ask(method, path, body=b"{}" if method == "POST" else None)

    return ask


# The id of the check, the section, what does not exist, and the request.
_MISSING: tuple[tuple[str, str, str, Ask], ...] = (
    ("get-share", "Get Share", "share", lambda server: server.get("shares", _UNKNOWN)),
    ("list-schemas", "List Schemas in a Share", "share", lambda server: server.get("shares", _UNKNOWN, "schemas")),
    ("list-tables", "List Tables in a Schema", "schema",
     lambda server: server.get("shares", server.shares()[0], "schemas", _UNKNOWN, "tables")),
    ("list-all-tables", "List all Tables in a Share", "share",
     lambda server: server.get("shares", _UNKNOWN, "all-tables")),
    ("query-version", "Query Table Version", "table", _of_table("version")),
    ("metadata", "Query Table Metadata", "table", _of_table("metadata")),
    ("query", _QUERY, "table", _of_table("query")),
)  # fmt: skip


def _require_missing(ask: Ask, noun: str, server: Server) -> None:
    # A server may refuse what a recipient cannot see, without saying whether it exists.
    allowed = (403, 404) if noun == "share" else (404,)
    if (answer := ask(server)).status not in allowed:
        raise Failed(f"Expected status 404 for a {noun} that does not exist, found {answer.status}.", answer)


for _api, _section, _noun, _ask in _MISSING:
    check(
        f"errors.{_api}-of-unknown-{_noun}", Level.ACCESS, f"{_section}: the status for a {_noun} that does not exist "
        f"is 404{' (or 403)' if _noun == 'share' else ''}.", f"{_SPEC}, {_section}",
    )(functools.partial(_require_missing, _ask, _noun))  # fmt: skip


def _of_query(body: bytes) -> Ask:
    return lambda server: server.ask("POST", (*readable(server).path, "query"), headers=DELTA, body=body)


def _version_since(server: Server, time: str) -> Answer:
    path = (*readable(server).path, "version")
    if (answer := server.get(*path)).status != 200:
        raise NotOffered(f"{answer.asked} has status {answer.status}.")
    return server.get(*path, params={"startingTimestamp": time})


# The id of the check, the section, what is wrong, and the request.
_MALFORMED: tuple[tuple[str, str, str, Ask], ...] = (
    ("body-is-not-json", _QUERY, "a body that is not JSON", _of_query(b"{")),
    ("body-is-no-object", "Request Body", "a body that is no JSON object", _of_query(b"[1]")),
    ("version-is-no-number", "Request Body", "a version that is no number", _of_query(b'{"version":"first"}')),
    ("invalid-timestamp", "Timestamp Format", "an invalid timestamp", _of_query(b'{"timestamp":"yesterday"}')),
    ("invalid-starting-timestamp", "Query Table Version", "an invalid startingTimestamp",
     lambda server: _version_since(server, "yesterday")),
    ("negative-max-results", "List Shares", "a negative maxResults",
     lambda server: server.get("shares", params={"maxResults": -1})),
    ("max-results-is-no-number", "List Shares", "a maxResults that is no number",
     lambda server: server.get("shares", params={"maxResults": "many"})),
    ("made-up-page-token", "List Shares", "a pageToken that the server did not return",
     lambda server: server.get("shares", params={"pageToken": "conformance-made-up"})),
)  # fmt: skip


def _require_malformed(ask: Ask, wrong: str, server: Server) -> None:
    if (answer := ask(server)).status != 400:
        raise Failed(f"Expected status 400 for {wrong}, found {answer.status}.", answer)


for _name, _section, _wrong, _ask in _MALFORMED:
    check(
        f"errors.{_name}", Level.ACCESS, f"The status for {_wrong} is 400.", f"{_SPEC}, {_section}"
    )(functools.partial(_require_malformed, _ask, _wrong))  # fmt: skip


# --- bodies ---


def _unauthorized(server: Server) -> Iterator[Answer]:
    yield from _refused(server, {})
    yield from _refused(server, _WRONG)


def _failing(rows: tuple[tuple[str, str, str, Ask], ...], server: Server) -> Iterator[Answer]:
    for _, _, _, ask in rows:
        with contextlib.suppress(NotOffered, NotTestable):
            yield ask(server)


_BODIES: dict[int, Callable[[Server], Iterator[Answer]]] = {
    401: _unauthorized,
    404: functools.partial(_failing, _MISSING),
    400: functools.partial(_failing, _MALFORMED),
}


def _errors(answers: Iterator[Answer]) -> list[Answer]:
    errors = [answer for answer in answers if 400 <= answer.status < 500]
    if not errors:
        raise NotTestable("The server would need to refuse a request.")
    return errors


def _require_body(ask: Callable[[Server], Iterator[Answer]], server: Server) -> None:
    for answer in _errors(ask(server)):
        if (problem := forms.problem(answer.document(), "Error")) is not None:
            raise Failed(f"The body of an error: {problem}", answer)


for _status, _answers in _BODIES.items():
    check(
        f"errors.body-of-{_status}", Level.ACCESS, f"The body of a response with status {_status} is a JSON object "
        "with errorCode and message.", f"{_SPEC}, List Shares",
    )(functools.partial(_require_body, _answers))  # fmt: skip


@check(
    "errors.content-type", Level.ACCESS, "The content type of an error is application/json.", f"{_SPEC}, List Shares"
)
def _content_type(server: Server) -> None:
    for answer in _errors(answer for ask in _BODIES.values() for answer in ask(server)):
        found = answer.headers.get("Content-Type", "")
        if found.partition(";")[0].strip().lower() != "application/json":
            raise Failed(f"Expected the content type application/json for an error, found '{found}'.", answer)
