"""Violations of the sentences about listings."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable

from .violations import SCHEMA, SHARE, TABLE, Answer, Asked, misreads, spoils

_NOTHING = "conformance-nothing"


def _first(field: str, value: object) -> Callable[[Answer], None]:
    """Return a violation that gives a field of the first item a value."""

    def spoil(answer: Answer) -> None:
        document = answer.document
        if document.get("items"):
            document["items"][0][field] = value
        answer.document = document

    return spoil


for _check, _path, _field, _value in (
    ("list-shares.form", "/shares", "displayName", 5),
    ("list-schemas.form", f"{SHARE}/schemas", "id", 5),
    ("list-tables.form", f"{SCHEMA}/tables", "displayName", 5),
    ("list-all-tables.form", f"{SHARE}/all-tables", "displayName", 5),
    ("list-tables.share-id", f"{SCHEMA}/tables", "shareId", "another"),
    ("list.items-name-their-parents", f"{SHARE}/schemas", "share", "another"),
    ("list-shares.size-of-display-name", "/shares", "displayName", "d" * 256),
    ("list-shares.size-of-comment", "/shares", "comment", "c" * 65_537),
    ("list-shares.size-of-properties", "/shares", "properties", {str(number): "v" for number in range(51)}),
):
    spoils(_check, _path)(_first(_field, _value))


@spoils("list.content-type", f"{SHARE}/all-tables")
def _listing_as_text(answer: Answer) -> None:
    answer.headers["content-type"] = "text/plain"


@spoils("get-share.form", SHARE)
def _share_with_number_as_comment(answer: Answer) -> None:
    answer.document = {"share": {**answer.document["share"], "comment": 5}}


@spoils("get-share.is-the-listed-one", SHARE)
def _share_with_another_name(answer: Answer) -> None:
    answer.document = {"share": {**answer.document["share"], "name": "another"}}


@misreads("list.max-results", f"{SHARE}/schemas")
def _two_items_for_one(asked: Asked) -> None:
    if asked.query.get("maxResults") == "1":
        asked.query["maxResults"] = "2"


@misreads("list.max-results-zero", f"{SHARE}/schemas")
def _zero_as_default(asked: Asked) -> None:
    if asked.query.get("maxResults") == "0":
        del asked.query["maxResults"]


@spoils("list.pages-are-complete", f"{SHARE}/schemas")
def _one_item_on_no_page(answer: Answer) -> None:
    document = answer.document
    if "maxResults" in answer.asked.query and "nextPageToken" not in document:
        answer.document = document | {"items": []}


@spoils("list.last-page-has-no-token", f"{SHARE}/schemas")
def _token_on_the_last_page(answer: Answer) -> None:
    if int(answer.asked.query.get("maxResults", 0)) > 3:  # the demo has three schemas
        answer.document = answer.document | {"nextPageToken": "more"}


def _another_id_the_second_time() -> Callable[[Answer], None]:
    """Return a violation of the second of the two requests of a run."""
    is_second = itertools.cycle((False, True))

    def spoil(answer: Answer) -> None:
        if not answer.asked.query and next(is_second):
            _first("id", str(uuid.uuid4()))(answer)

    return spoil


spoils("list-shares.ids-are-stable", "/shares")(_another_id_the_second_time())
spoils("list-tables.ids-are-stable", "/schemas/lake/tables")(_another_id_the_second_time())


@spoils("list-all-tables.has-the-tables-of-each-schema", f"{SHARE}/all-tables")
def _one_table_missing(answer: Answer) -> None:
    answer.document = {"items": answer.document["items"][:-1]}


def _empty_share(name: str) -> Callable[[Answer], None]:
    """Return a violation that lists another share, which is empty."""
    share = {"name": name, "id": str(uuid.uuid5(uuid.NAMESPACE_URL, name))}

    def spoil(answer: Answer) -> None:
        if answer.status == 200:
            answer.document = {"items": [*answer.document["items"], share]}
        elif answer.asked.path.endswith(f"/shares/{name}"):
            answer.status, answer.document = 200, {"share": share}
        else:
            answer.status, answer.document = 200, {"items": []}

    return spoil


for _check, _name in (("names.length", "n" * 256), ("names.characters", "two words")):
    spoils(_check, "/shares")(_empty_share(_name))
    spoils(_check, f"/shares/{_name}(/.*)?", statuses=(404,))(_empty_share(_name))


def _case_sensitive(segment: int) -> Callable[[Asked], None]:
    """Return a violation that does not find a name with upper-case letters, by its place from the end of the path."""

    def misread(asked: Asked) -> None:
        segments = asked.path.split("/")
        if segments[segment] != segments[segment].lower():
            segments[segment] = _NOTHING
            asked.path = "/".join(segments)

    return misread


misreads("names.case-of-share", f"{SHARE}/schemas")(_case_sensitive(-2))
misreads("names.case-of-schema", f"{SCHEMA}/tables")(_case_sensitive(-2))
misreads("names.case-of-table", f"{TABLE}/version")(_case_sensitive(-2))
