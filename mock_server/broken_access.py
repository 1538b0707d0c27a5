"""Violations of the sentences about tokens and errors."""

from __future__ import annotations

from collections.abc import Callable

from .violations import SCHEMA, SHARE, TABLE, Answer, Asked, misreads, spoils


@spoils("access.token-is-required", f"{TABLE}/metadata", statuses=(401,))
def _metadata_for_everyone(answer: Answer) -> None:
    if "authorization" not in answer.asked.headers:
        answer.status = 200


@spoils("access.wrong-token-is-refused", f"{TABLE}/query", "POST", statuses=(401,))
def _files_for_every_token(answer: Answer) -> None:
    if "authorization" in answer.asked.headers:
        answer.status = 200


def _server_error(answer: Answer) -> None:
    answer.status = 500


for _check, _method, _path in (
    ("get-share-of-unknown-share", "GET", SHARE),
    ("list-schemas-of-unknown-share", "GET", f"{SHARE}/schemas"),
    ("list-tables-of-unknown-schema", "GET", f"{SCHEMA}/tables"),
    ("list-all-tables-of-unknown-share", "GET", f"{SHARE}/all-tables"),
    ("query-version-of-unknown-table", "GET", f"{TABLE}/version"),
    ("metadata-of-unknown-table", "GET", f"{TABLE}/metadata"),
    ("query-of-unknown-table", "POST", f"{TABLE}/query"),
):
    spoils(f"errors.{_check}", _path, _method, statuses=(404,))(_server_error)


def _without(name: str, value: str) -> Callable[[Asked], None]:
    """Return a violation that ignores a parameter of the URL with this value."""

    def misread(asked: Asked) -> None:
        if asked.query.get(name) == value:
            del asked.query[name]

    return misread


for _check, _path, _name, _value in (
    ("invalid-starting-timestamp", f"{TABLE}/version", "startingTimestamp", "yesterday"),
    ("negative-max-results", "/shares", "maxResults", "-1"),
    ("max-results-is-no-number", "/shares", "maxResults", "many"),
    ("made-up-page-token", "/shares", "pageToken", "conformance-made-up"),
):
    misreads(f"errors.{_check}", _path)(_without(_name, _value))


def _as_empty_object(body: bytes) -> Callable[[Asked], None]:
    """Return a violation that reads this body as an empty object."""

    def misread(asked: Asked) -> None:
        if asked.body == body:
            asked.body = b"{}"

    return misread


for _check, _body in (
    ("body-is-not-json", b"{"),
    ("body-is-no-object", b"[1]"),
    ("version-is-no-number", b'{"version":"first"}'),
    ("invalid-timestamp", b'{"timestamp":"yesterday"}'),
):
    misreads(f"errors.{_check}", f"{TABLE}/query", "POST")(_as_empty_object(_body))


def _without_message(answer: Answer) -> None:
    answer.document = {"errorCode": answer.document["errorCode"]}


spoils("errors.body-of-401", "/shares", statuses=(401,))(_without_message)
spoils("errors.body-of-404", SHARE, statuses=(404,))(_without_message)
spoils("errors.body-of-400", "/shares", statuses=(400,))(_without_message)


@spoils("errors.content-type", f"{TABLE}/version", statuses=(400, 404))
def _error_as_text(answer: Answer) -> None:
    answer.headers["content-type"] = "text/plain"
