"""Finds shared assets by words in their names, comments and columns."""

from __future__ import annotations

from typing import Any

from delta_sharing_client.client import SharingClient
from delta_sharing_client.descriptions import describe_table
from delta_sharing_client.errors import DeltaSharingError, UsageError
from delta_sharing_client.mcp.limits import shortened
from delta_sharing_client.protocol.asset_kinds import TABLE, AssetEntry
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.sources.contents import assets_in, shares_to_list
from delta_sharing_client.threads import mapped

# The maximum number of tables whose columns are searched; each needs a request.
MOST_TABLES = 1000
_MOST_COLUMNS = 20
_AT_ONCE = 16


def find(client: SharingClient, text: str, where: str | None) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the assets in ``where`` with every word of ``text``, without regard to case, and the reasons why tables
    were searched only by name. Raises ``UsageError`` if ``text`` has no word."""
    words = text.casefold().split()
    if not words:
        raise UsageError("'text' must have a word to search for.")
    entries = [
        (AssetName(share, entry.schema, entry.name), entry)
        for share, schema in shares_to_list(client._rest, where)
        for entry in assets_in(client._rest, share, schema)[1]
    ]
    tables = [name for name, entry in entries if entry.kind is TABLE]
    asked, left = tables[:MOST_TABLES], tables[MOST_TABLES:]
    facts = mapped(lambda name: _described(client, name), asked, most=_AT_ONCE, name="search")
    described = dict(zip(asked, facts, strict=True))
    unread = [reason for reason in described.values() if isinstance(reason, str)]
    unread += [f"more than {MOST_TABLES:,} tables are shared; give a schema as 'where'."] * len(left)
    found = (_matched(words, name, entry, described.get(name)) for name, entry in entries)
    return [asset for asset in found if asset is not None], unread


def _described(client: SharingClient, name: AssetName) -> tuple[str | None, list[tuple[str, str | None]]] | str:
    """Return the comment of a table and its columns with their comments, or the reason why they are not known."""
    try:
        facts, columns = describe_table(client.table(name))
    except DeltaSharingError as error:
        return error.message
    return _text(facts["description"]), [(str(one["column"]), _text(one["comment"])) for one in columns]


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _matched(
    words: list[str],
    name: AssetName,
    entry: AssetEntry,
    described: tuple[str | None, list[tuple[str, str | None]]] | str | None,
) -> dict[str, Any] | None:
    """Return the asset as a result of the search, with its columns that have one of the words; ``None`` if a word
    occurs nowhere."""
    comment, columns = described if isinstance(described, tuple) else (None, [])
    comment = comment or entry.comment
    texts = [str(name), comment or "", *(f"{column} {told or ''}" for column, told in columns)]
    searched = "\n".join(texts).casefold()
    if not all(word in searched for word in words):
        return None
    asset: dict[str, Any] = {"kind": entry.kind.noun, "name": str(name)}
    if comment:
        asset["comment"] = shortened(comment)
    matching = [
        {"column": column} if told is None else {"column": column, "comment": shortened(told)}
        for column, told in columns
        if any(word in f"{column} {told or ''}".casefold() for word in words)
    ]
    if matching:
        asset["columns"] = matching[:_MOST_COLUMNS]
    return asset
