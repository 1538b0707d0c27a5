"""Violations of the sentences about listings."""

from __future__ import annotations

import uuid

from .violations import SHARE, Answer, Asked, misreads, spoils


@spoils("list-shares.form", "/shares")
def _number_as_display_name(answer: Answer) -> None:
    document = answer.document
    document["items"][0]["displayName"] = 5
    answer.document = document


@spoils("list-schemas.form", f"{SHARE}/schemas")
def _number_as_id_of_a_schema(answer: Answer) -> None:
    document = answer.document
    document["items"][0]["id"] = 5
    answer.document = document


@misreads("list.max-results", f"{SHARE}/schemas")
def _whole_listing_in_a_page(asked: Asked) -> None:
    asked.query.pop("maxResults", None)


@spoils("list.pages-are-complete", f"{SHARE}/schemas")
def _one_item_on_no_page(answer: Answer) -> None:
    document = answer.document
    if "maxResults" in answer.asked.query and "nextPageToken" not in document:
        answer.document = document | {"items": []}


@spoils("list-shares.ids-are-stable", "/shares")
def _other_id_each_time(answer: Answer) -> None:
    document = answer.document
    document["items"][0]["id"] = str(uuid.uuid4())
    answer.document = document
