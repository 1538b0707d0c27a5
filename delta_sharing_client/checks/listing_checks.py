"""Checks of the listings of shares, schemas and tables."""

from __future__ import annotations

from collections.abc import Iterator

from delta_sharing_client.checks.check import Failed, Level, NotTestable, check
from delta_sharing_client.checks.checked_server import Answer, Server

_SPEC = "Delta Sharing Protocol"


def listings(server: Server) -> Iterator[tuple[str, ...]]:
    """Yield the path of one listing of each kind, longest listing first among schemas."""
    yield ("shares",)
    share, schema = server.schemas()[0]
    yield ("shares", share, "schemas")
    yield ("shares", share, "schemas", schema, "tables")
    yield ("shares", share, "all-tables")


def long_listing(server: Server) -> tuple[str, ...]:
    """Return the path of a listing with two items or more."""
    for path in listings(server):
        if len(server.items(*path)) > 1:
            return path
    raise NotTestable("The profile would need two shares, or a share with two schemas or tables.")


def items_of(answer: Answer) -> list[object]:
    """Return the items of a page."""
    items: list[object] = answer.require().document().get("items") or []
    return items


@check("list-shares.form", Level.LISTINGS, "The shares are listed as the specification says.", f"{_SPEC}, List Shares")
def _shares_form(server: Server) -> None:
    for page in server.pages("shares"):
        page.conforms("Shares")


@check(
    "list-schemas.form", Level.LISTINGS, "The schemas of a share are listed as the specification says.",
    f"{_SPEC}, List Schemas in a Share",
)  # fmt: skip
def _schemas_form(server: Server) -> None:
    for share in server.shares():
        for page in server.pages("shares", share, "schemas"):
            page.conforms("Schemas")


@check("list.max-results", Level.LISTINGS, "A page has at most maxResults items.", f"{_SPEC}, List Shares")
def _max_results(server: Server) -> None:
    answer = server.get(*long_listing(server), params={"maxResults": 1})
    if len(items_of(answer)) > 1:
        raise Failed(f"Expected at most 1 item with maxResults=1, found {len(items_of(answer))}.", answer)


@check(
    "list.pages-are-complete", Level.LISTINGS, "The pages of a listing together have each item once.",
    f"{_SPEC}, List Shares",
)  # fmt: skip
def _complete_pages(server: Server) -> None:
    path = long_listing(server)
    whole = [item.get("name") for item in server.items(*path)]
    paged = [item.get("name") for item in server.items(*path, params={"maxResults": 1})]
    if sorted(map(str, whole)) != sorted(map(str, paged)):
        raise Failed(f"Expected {len(whole)} items in pages of 1, as in one page; found {len(paged)} others.")


@check(
    "list-shares.ids-are-stable", Level.LISTINGS, "The id of a share is unique, and the same in each response.",
    f"{_SPEC}, List Shares",
)  # fmt: skip
def _share_ids(server: Server) -> None:
    ids = [item.get("id") for item in server.items("shares")]
    if not any(ids):
        raise NotTestable("The shares would need ids, which are optional.")
    if len(set(ids)) != len(ids):
        raise Failed("Expected a different id for each share, found one twice.", server.latest)
    again = server.get("shares", fresh=True)
    if [item.get("id") for item in again.document()["items"]] != ids[: len(again.document()["items"])]:
        raise Failed("Expected the same ids in a second response, found others.", again)
