"""Checks of the listings of shares, schemas and tables, and of their names."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from delta_sharing_client.checks.check import Failed, Level, NotOffered, NotTestable, check
from delta_sharing_client.checks.checked_server import Answer, Server
from delta_sharing_client.checks.shared_tables import SharedTable, tables

_SPEC = "Delta Sharing Protocol"
_MOST_SCHEMAS = 20
_MOST_RESULTS = 100
_LONGEST = 255
_Item = dict[str, Any]


def some_schemas(server: Server) -> list[tuple[str, str]]:
    """Return the names of share and schema of the first schemas, in which tables are looked at."""
    return server.schemas()[:_MOST_SCHEMAS]


def listings(server: Server) -> Iterator[tuple[str, ...]]:
    """Yield the path of one listing of each kind; the shares come last, because there are often few."""
    share, schema = server.schemas()[0]
    yield ("shares", share, "schemas")
    yield ("shares", share, "schemas", schema, "tables")
    if not server.is_absent(server.get("shares", share, "all-tables")):
        yield ("shares", share, "all-tables")
    yield ("shares",)


def long_listing(server: Server) -> tuple[str, ...]:
    """Return the path of a listing with two items or more."""
    for path in listings(server):
        if len(server.items(*path)) > 1:
            return path
    raise NotTestable("The profile would need two shares, or a share with two schemas or tables.")


def items_of(answer: Answer) -> list[_Item]:
    """Return the items of a page."""
    items: list[_Item] = answer.require().document().get("items") or []
    return items


# --- forms ---


def _all_of_shares(server: Server) -> Iterator[tuple[str, ...]]:
    yield ("shares",)


def _all_of_schemas(server: Server) -> Iterator[tuple[str, ...]]:
    for share in server.shares():
        yield "shares", share, "schemas"


def _all_of_tables(server: Server) -> Iterator[tuple[str, ...]]:
    for share, schema in some_schemas(server):
        yield "shares", share, "schemas", schema, "tables"


def _all_tables(server: Server) -> Iterator[tuple[str, ...]]:
    for share in server.shares():
        if server.is_absent(server.get("shares", share, "all-tables")):
            raise NotOffered("The server has no listing of all tables in a share.")
        yield "shares", share, "all-tables"


Paths = Callable[[Server], Iterator[tuple[str, ...]]]


def _require_form(paths: Paths, form: str, server: Server) -> None:
    for path in paths(server):
        for page in server.pages(*path):
            page.conforms(form)


for _name, _section, _form, _paths in (
    ("list-shares", "List Shares", "Shares", _all_of_shares),
    ("list-schemas", "List Schemas in a Share", "Schemas", _all_of_schemas),
    ("list-tables", "List Tables in a Schema", "Tables", _all_of_tables),
    ("list-all-tables", "List all Tables in a Share", "Tables", _all_tables),
):
    check(
        f"{_name}.form", Level.LISTINGS, f"{_section}: the pages have the form of the specification.",
        f"{_SPEC}, {_section}",
    )(functools.partial(_require_form, _paths, _form))  # fmt: skip


@check(
    "list.content-type", Level.LISTINGS, "The content type of a listing is application/json.", f"{_SPEC}, List Shares"
)
def _content_type(server: Server) -> None:
    for path in listings(server):
        answer = server.get(*path).require()
        found = answer.headers.get("Content-Type", "")
        if found.partition(";")[0].strip().lower() != "application/json":
            raise Failed(f"Expected the content type application/json, found '{found}'.", answer)


# --- one share ---


def _get_share(server: Server, share: str) -> Answer:
    answer = server.get("shares", share)
    if server.is_absent(answer):
        raise NotOffered(f"{answer.asked} has status {answer.status}.")
    return answer


@check("get-share.form", Level.LISTINGS, "A share has the form of the specification.", f"{_SPEC}, Get Share")
def _share_form(server: Server) -> None:
    for share in server.shares():
        _get_share(server, share).conforms("OneShare")


@check("get-share.is-the-listed-one", Level.LISTINGS, "A share has the name and the id of the listing.",
       f"{_SPEC}, Get Share")  # fmt: skip
def _same_share(server: Server) -> None:
    listed = {str(item.get("name")): item for item in server.items("shares")}
    for name in server.shares():
        answer = _get_share(server, name)
        for field in ("name", "id"):
            found, expected = answer.require().document()["share"].get(field), listed[name].get(field)
            if found != expected:
                raise Failed(f"Expected the {field} {expected!r}, as in the listing; found {found!r}.", answer)


# --- pages ---


@check("list.max-results", Level.LISTINGS, "A page has at most maxResults items.", f"{_SPEC}, List Shares")
def _max_results(server: Server) -> None:
    answer = server.get(*long_listing(server), params={"maxResults": 1})
    if len(items_of(answer)) > 1:
        raise Failed(f"Expected at most 1 item with maxResults=1, found {len(items_of(answer))}.", answer)


@check("list.max-results-zero", Level.LISTINGS, "With maxResults=0, a page has no items.", f"{_SPEC}, List Shares")
def _no_results(server: Server) -> None:
    answer = server.get(*long_listing(server), params={"maxResults": 0})
    if items_of(answer):
        raise Failed(f"Expected no items with maxResults=0, found {len(items_of(answer))}.", answer)


@check(
    "list.pages-are-complete", Level.LISTINGS, "The pages of a listing together have each item once.",
    f"{_SPEC}, List Shares",
)  # fmt: skip
def _complete_pages(server: Server) -> None:
    path = long_listing(server)
    whole = sorted(str(item.get("name")) for item in server.items(*path))
    size = min(_MOST_RESULTS, (len(whole) + 1) // 2)
    paged = sorted(str(item.get("name")) for item in server.items(*path, params={"maxResults": size}))
    if whole != paged:
        raise Failed(
            f"Expected the {len(whole)} items of the listing in its pages with maxResults={size}, found {len(paged)} "
            f"items: {difference(whole, paged)}."
        )


def difference(expected: list[str], found: list[str]) -> str:
    """Return which names or ids are missing, and which are unexpected."""
    lost, more = [name for name in expected if name not in found], [name for name in found if name not in expected]
    told = (f"{', '.join(names[:3])} {verb}" for names, verb in ((lost, "missing"), (more, "unexpected")) if names)
    return "; ".join(told) or "some occur twice"


@check(
    "list.last-page-has-no-token", Level.LISTINGS, "Once all items were returned, there is no nextPageToken.",
    f"{_SPEC}, List Shares",
)  # fmt: skip
def _last_page(server: Server) -> None:
    path = next((path for path in listings(server) if len(server.items(*path)) < _MOST_RESULTS), None)
    if path is None:
        raise NotTestable(f"The share would need a listing with fewer than {_MOST_RESULTS} items.")
    count = len(server.items(*path))
    answer = server.get(*path, params={"maxResults": count + 1})
    if len(items_of(answer)) == count and answer.document().get("nextPageToken"):
        raise Failed(f"Expected no nextPageToken after all {count} items, found one.", answer)


# --- ids ---


def _require_ids(noun: str, paths: Iterable[tuple[str, ...]], server: Server) -> None:
    """Require different ids for the items of all ``paths``, and the same ids in a second response."""
    ids = [item.get("id") for path in paths for item in server.items(*path)]
    given = [one for one in ids if one is not None]
    if not given:
        raise NotTestable(f"The {noun}s would need ids, which are optional.")
    if len(set(given)) != len(given):
        raise Failed(f"Expected a different id for each {noun}, found one twice.", server.latest)
    for path in paths:
        again = server.get(*path, fresh=True)
        other = next((item.get("id") for item in items_of(again) if item.get("id") not in ids), None)
        if other is not None:
            raise Failed(f"Expected the ids of the first response in the second one, found the id '{other}'.", again)


@check(
    "list-shares.ids-are-stable", Level.LISTINGS, "The id of a share is unique, and the same in each response.",
    f"{_SPEC}, List Shares",
)  # fmt: skip
def _share_ids(server: Server) -> None:
    _require_ids("share", [("shares",)], server)


@check(
    "list-tables.ids-are-stable", Level.LISTINGS, "The id of a table is unique in its share, and the same in each "
    "response.", f"{_SPEC}, List Tables in a Schema",
)  # fmt: skip
def _table_ids(server: Server) -> None:
    share = tables(server)[0].names[0]
    _require_ids("table", [path for path in _all_of_tables(server) if path[1] == share], server)


@check(
    "list-tables.share-id", Level.LISTINGS, "The shareId of a table is the id of its share.",
    f"{_SPEC}, List Tables in a Schema",
)  # fmt: skip
def _share_id(server: Server) -> None:
    ids = {str(item.get("name")): item.get("id") for item in server.items("shares")}
    compared = False
    for path in _all_of_tables(server):
        for item in server.items(*path):
            if (found := item.get("shareId")) is None or (expected := ids[path[1]]) is None:
                continue
            compared = True
            if found != expected:
                raise Failed(
                    f"Expected the shareId '{expected}' of the table '{item.get('name')}', found '{found}'.",
                    server.latest,
                )
    if not compared:
        raise NotTestable("The tables would need a shareId and their share an id, which are optional.")


# --- contents ---


@check(
    "list.items-name-their-parents", Level.LISTINGS, "Schemas name their share, and tables their share and schema.",
    f"{_SPEC}, List Tables in a Schema",
)  # fmt: skip
def _parents(server: Server) -> None:
    for paths in (_all_of_schemas, _all_of_tables):
        for path in paths(server):
            for item in server.items(*path):
                parents = dict(zip(("share", "schema"), path[1::2], strict=False))
                for field, expected in parents.items():
                    if str(item.get(field)).lower() != expected.lower():
                        raise Failed(
                            f"Expected '{expected}' as the {field} of '{item.get('name')}', found {item.get(field)!r}.",
                            server.get(*path),
                        )


@check(
    "list-all-tables.has-the-tables-of-each-schema", Level.LISTINGS, "All tables in a share are those of its schemas.",
    f"{_SPEC}, List all Tables in a Share",
)  # fmt: skip
def _all_tables_of_schemas(server: Server) -> None:
    listed = {(share.lower(), schema.lower()): schema for share, schema in some_schemas(server)}
    for path in _all_tables(server):
        found = sorted(
            f"{item.get('schema')}.{item.get('name')}".lower()
            for item in server.items(*path)
            if (path[1].lower(), str(item.get("schema")).lower()) in listed
        )
        expected = sorted(
            f"{schema}.{item.get('name')}".lower()
            for (share, _), schema in listed.items()
            if share == path[1].lower()
            for item in server.items("shares", path[1], "schemas", schema, "tables")
        )
        if found != expected:
            raise Failed(
                f"Expected the {len(expected)} tables of the schemas, found {len(found)}: "
                f"{difference(expected, found)}.",
                server.get(*path),
            )


# --- names ---


def _names(server: Server) -> Iterator[tuple[str, str, Answer]]:
    """Yield the noun and the name of each share, schema and table, with the response that has it."""
    for noun, paths in (("share", _all_of_shares), ("schema", _all_of_schemas), ("table", _all_of_tables)):
        for path in paths(server):
            for page in server.pages(*path):
                for item in items_of(page):
                    yield noun, str(item.get("name")), page


@check("names.length", Level.LISTINGS, f"A name has at most {_LONGEST} characters.", f"{_SPEC}, Names")
def _length(server: Server) -> None:
    for noun, name, answer in _names(server):
        if len(name) > _LONGEST:
            raise Failed(
                f"Expected at most {_LONGEST} characters in the name of a {noun}, found {len(name)}: '{name[:40]}...'.",
                answer,
            )


@check(
    "names.characters", Level.LISTINGS, "A name has no space, slash or control character; the name of a schema or a "
    "table has no period.", f"{_SPEC}, Names",
)  # fmt: skip
def _characters(server: Server) -> None:
    for noun, name, answer in _names(server):
        wrong = next((one for one in name if one in " /\x7f" or one < " " or (one == "." and noun != "share")), None)
        if wrong is not None:
            raise Failed(f"Expected no {wrong!r} in the name of a {noun}, found '{name}'.", answer)


def _swapped(name: str) -> str:
    if name.swapcase() == name or not name.isascii():
        raise NotTestable("The profile would need a name with letters.")
    return name.swapcase()


def _case_of_share(server: Server) -> tuple[str, Answer]:
    name = server.shares()[0]
    return name, server.get("shares", _swapped(name), "schemas")


def _case_of_schema(server: Server) -> tuple[str, Answer]:
    share, schema = server.schemas()[0]
    return schema, server.get("shares", share, "schemas", _swapped(schema), "tables")


def _case_of_table(server: Server) -> tuple[str, Answer]:
    def has_version(table: SharedTable) -> bool:
        return server.get(*table.path, "version").status == 200

    table = next(filter(has_version, tables(server)), None)
    if table is None:
        raise NotTestable("The share would need a table with a version.")
    return table.names[-1], server.get(*table.path[:-1], _swapped(table.names[-1]), "version")


def _require_any_case(ask: Callable[[Server], tuple[str, Answer]], noun: str, server: Server) -> None:
    name, answer = ask(server)
    if answer.status != 200:
        raise Failed(
            f"Expected status 200 for the {noun} '{name}' as '{name.swapcase()}', found {answer.status}.", answer
        )


for _noun, _section, _ask in (
    ("share", "List Schemas in a Share", _case_of_share),
    ("schema", "List Tables in a Schema", _case_of_schema),
    ("table", "Query Table Version", _case_of_table),
):
    check(
        f"names.case-of-{_noun}", Level.LISTINGS, f"The name of a {_noun} in a URL is case-insensitive.",
        f"{_SPEC}, {_section}",
    )(functools.partial(_require_any_case, _ask, _noun))  # fmt: skip


# --- limits of shares ---


def _require_limit(limit: Callable[[_Item], str | None], server: Server) -> None:
    for page in server.pages("shares"):
        for item in items_of(page):
            if (problem := limit(item)) is not None:
                raise Failed(f"{problem} of the share '{item.get('name')}'.", page)


def _long_text(field: str, most: int) -> Callable[[_Item], str | None]:
    def problem(item: _Item) -> str | None:
        length = len(str(item.get(field) or ""))
        return f"Expected at most {most} characters, found {length} in the {field}" if length > most else None

    return problem


def _large_properties(item: _Item) -> str | None:
    properties = item.get("properties") or {}
    sizes = (
        ("properties", len(properties), 50),
        ("characters in a key", max(map(len, properties), default=0), 255),
        ("characters in a value", max((len(str(value)) for value in properties.values()), default=0), 1000),
    )
    for what, size, most in sizes:
        if size > most:
            return f"Expected at most {most} {what}, found {size} in the properties"
    return None


for _field, _limit, _statement in (
    ("display-name", _long_text("displayName", _LONGEST), "The displayName of a share has at most 255 characters."),
    ("comment", _long_text("comment", 65_536), "The comment of a share has at most 65,536 characters."),
    ("properties", _large_properties,
     "A share has at most 50 properties, with at most 255 characters in a key and 1,000 in a value."),
):  # fmt: skip
    check(f"list-shares.size-of-{_field}", Level.LISTINGS, _statement, f"{_SPEC}, List Shares")(
        functools.partial(_require_limit, _limit)
    )
