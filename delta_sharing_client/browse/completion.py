"""Names that may continue a query: shares, schemas, tables, and the columns of the tables that the query names."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from delta_sharing_client import queries
from delta_sharing_client.browse.asked import Asked
from delta_sharing_client.browse.cells import type_name
from delta_sharing_client.browse.session import Session
from delta_sharing_client.errors import DeltaSharingError
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.sources.contents import schemas_of_share, tables_of_schema

MOST_NAMES = 50
# The columns of this many tables of a query are looked up.
MOST_TABLES = 8
_FULL_NAME = 3
_PLAIN = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_TOKENS = re.compile(
    r"(?P<text>'(?:[^']|'')*(?:'|$)|--[^\n]*|/\*.*?(?:\*/|$))"
    r'|(?P<name>"(?:[^"]|"")*(?:"|$)|[^\W\d]\w*)|(?P<other>\d\w*|[^\s\w])',
    re.DOTALL,
)


class Name(NamedTuple):
    """A name, and what it is."""

    name: str
    kind: str
    # Whether the names inside it follow.
    is_above: bool = False


class _Token(NamedTuple):
    """A part of a query; ``name`` is a name without its quotes, ``None`` for other parts."""

    start: int
    end: int
    text: str
    name: str | None


class _Path(NamedTuple):
    """Names joined by dots; ``following`` is the index of the token after it."""

    names: Sequence[str]
    following: int


def names(session: Session, asked: Asked) -> dict[str, object]:
    """Return names that fit the position ``at`` of the query ``sql``, and the span of the text that one replaces. With
    ``all``, also where no letter is typed yet. At most a listing and the schemas of a few tables are requested, and
    kept for a minute."""
    sql, at = asked.text("sql"), asked.number("at") or 0
    tokens = list(_tokens(sql))
    here = next((token for token in tokens if token.start < at <= token.end), None)
    start, end, typed = at, at, ""
    if here is not None and here.name is not None:
        start, end, typed = here.start, here.end, sql[here.start : at].strip('"').replace('""', '"')
    above = _above(tokens, start)
    found: Iterable[Name] = ()
    is_text = here is not None and here.text.startswith(("'", "--", "/*"))
    if not is_text and (above or typed or asked.flag("all")):
        found = _fitting(_candidates(session, tokens, start, above), typed)
    return {
        "from": start,
        "to": end,
        "names": [
            {"text": quoted(one.name) + ("." if one.is_above else ""), "shown": one.name, "kind": one.kind}
            for one in found
        ],
    }


def quoted(name: str) -> str:
    """Return a name as SQL, in quotes if it needs them."""
    is_plain = _PLAIN.fullmatch(name) and name.lower() not in _reserved()
    return name if is_plain else '"' + name.replace('"', '""') + '"'


@functools.cache
def _reserved() -> frozenset[str]:
    words = queries.connect().execute(
        "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category <> 'unreserved'"
    )
    return frozenset(word for (word,) in words.fetchall())


def _tokens(sql: str) -> Iterator[_Token]:
    for match in _TOKENS.finditer(sql):
        text = match[0]
        name = None
        if match["name"] is not None:
            name = text[1:].removesuffix('"').replace('""', '"') if text.startswith('"') else text
        yield _Token(match.start(), match.end(), text, name)


def _above(tokens: Sequence[_Token], start: int) -> list[str]:
    """Return the names before the position ``start``, each followed by a dot."""
    above: list[str] = []
    before = [token for token in tokens if token.end <= start]
    while len(before) > 1 and before[-1].text == "." and before[-1].end == start and before[-2].name is not None:
        above.insert(0, before[-2].name)
        start = before[-2].start
        before = before[:-2]
    return above


def _paths(tokens: Sequence[_Token], start: int) -> Iterator[_Path]:
    """Yield the paths of names in a query, but for the one that is being typed at ``start``."""
    place = 0
    while place < len(tokens):
        parts: list[str] = []
        is_typed = False
        while place < len(tokens) and (name := tokens[place].name) is not None:
            parts.append(name)
            is_typed |= tokens[place].start == start
            place += 1
            if place < len(tokens) and tokens[place].text == "." and tokens[place].start == tokens[place - 1].end:
                is_typed |= tokens[place].end == start
                place += 1
            else:
                break
        if parts and not is_typed:
            yield _Path(parts, place)
        place += 0 if parts else 1


def _candidates(session: Session, tokens: Sequence[_Token], start: int, above: Sequence[str]) -> Iterator[Name]:
    if len(above) == _FULL_NAME:
        yield from _columns(session, AssetName(*above))
        return
    if len(above) == _FULL_NAME - 1:
        listed = session.remembered(("tables", *above), lambda: tables_of_schema(session.client._rest, *above))
        yield from (Name(table.name, "table") for table in listed)
        return
    tables: dict[AssetName, set[str]] = {}
    for path in _paths(tokens, start):
        if len(path.names) == _FULL_NAME:
            aliases = tables.setdefault(AssetName(*path.names), {path.names[-1].lower()})
            aliases.update(_alias(tokens[path.following : path.following + 2]))
    for table, aliases in list(tables.items())[:MOST_TABLES]:
        if not above or above[0].lower() in aliases:
            yield from _columns(session, table)
    if not above:
        shares = session.remembered(("shares",), session.client.list_shares)
        yield from (Name(share.name, "share", True) for share in shares)
        return
    if all(above[0].lower() not in aliases for aliases in tables.values()):
        schemas = session.remembered(("schemas", *above), lambda: schemas_of_share(session.client._rest, above[0]))
        yield from (Name(schema.name, "schema", True) for schema in schemas)


def _alias(following: Sequence[_Token]) -> Iterator[str]:
    """Yield the names that may be an alias of a table, if these tokens follow it."""
    words = [token.name.lower() for token in following if token.name is not None]
    yield from words[1:2] if words[:1] == ["as"] else words[:1]


def _columns(session: Session, table: AssetName) -> Sequence[Name]:
    def described() -> list[Name]:
        schema = session.client.table(table).metadata().schema
        return [Name(field.name, type_name(field.type)) for field in schema]

    try:
        return session.remembered(("columns", table), described)
    except DeltaSharingError:
        # The plan of the query tells what is wrong.
        return []


def _fitting(candidates: Iterable[Name], typed: str) -> list[Name]:
    """Return the names that begin with ``typed``, in any case, then those that contain it."""
    wanted = typed.lower()
    distinct = list(dict.fromkeys(candidates))
    first = [one for one in distinct if one.name.lower().startswith(wanted)]
    more = [one for one in distinct if wanted in one.name.lower() and not one.name.lower().startswith(wanted)]
    return [*first, *more][:MOST_NAMES]
