"""Finds shared assets by words in their names, comments and columns."""

from __future__ import annotations

import dataclasses
from typing import Any

from delta_sharing_client.client import SharingClient
from delta_sharing_client.descriptions import describe_table
from delta_sharing_client.errors import DeltaSharingError, UsageError
from delta_sharing_client.protocol.asset_kinds import TABLE, AssetEntry, AssetKind
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.sources.contents import assets_in, shares_to_list
from delta_sharing_client.threads import mapped

# The maximum number of tables whose columns are searched; each needs a request.
MOST_TABLES = 1000
_MOST_COLUMNS = 20
_AT_ONCE = 16
Columns = list[tuple[str, str | None]]
"""Columns with their comments."""
Described = tuple[str | None, Columns]
"""The comment of a table, and its columns."""


@dataclasses.dataclass(frozen=True)
class Found:
    """An asset that a search has found, and the columns that have one of the words (at most 20)."""

    kind: AssetKind[Any]
    name: AssetName
    comment: str | None
    columns: Columns


def find(
    client: SharingClient, text: str, where: str | None, known: dict[AssetName, Described] | None = None
) -> tuple[list[Found], list[str | None]]:
    """Return the assets in ``where`` with every word of ``text``, without regard to case, and the reasons why tables
    were searched only by name: an error, or ``None`` for those beyond ``MOST_TABLES``. Tables in ``known`` are not
    described again; the others are added to it. Raises ``UsageError`` if ``text`` has no word."""
    words = text.casefold().split()
    if not words:
        raise UsageError("'text' must have a word to search for.")
    entries = [
        (AssetName(share, entry.schema, entry.name), entry)
        for share, schema in shares_to_list(client._rest, where)
        for entry in assets_in(client._rest, share, schema)[1]
    ]
    known = {} if known is None else known
    tables = [name for name, entry in entries if entry.kind is TABLE and name not in known]
    asked, left = tables[:MOST_TABLES], tables[MOST_TABLES:]
    facts = mapped(lambda name: _described(client, name), asked, most=_AT_ONCE, name="search")
    known |= {name: one for name, one in zip(asked, facts, strict=True) if not isinstance(one, str)}
    unread = [reason for reason in facts if isinstance(reason, str)] + [None] * len(left)
    found = (_matched(words, name, entry, known.get(name, (None, []))) for name, entry in entries)
    return [asset for asset in found if asset is not None], unread


def _described(client: SharingClient, name: AssetName) -> Described | str:
    """Return the facts about a table that are searched, or the reason why they are not known."""
    try:
        facts, columns = describe_table(client.table(name))
    except DeltaSharingError as error:
        return error.message
    return _text(facts["description"]), [(str(one["column"]), _text(one["comment"])) for one in columns]


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _matched(words: list[str], name: AssetName, entry: AssetEntry, described: Described) -> Found | None:
    """Return the asset as a result of the search; ``None`` if a word occurs nowhere."""
    comment, columns = described[0] or entry.comment or None, described[1]
    texts = [f"{column} {told or ''}".casefold() for column, told in columns]
    searched = "\n".join([str(name).casefold(), (comment or "").casefold(), *texts])
    if not all(word in searched for word in words):
        return None
    matching = [one for one, text in zip(columns, texts, strict=True) if any(word in text for word in words)]
    return Found(entry.kind, name, comment, matching[:_MOST_COLUMNS])
