"""Column names: how they are written, and how they are found in a schema.

A name is a path: ``a.b`` is the field ``b`` of the struct ``a``. Backticks quote a name with a dot or any other
character (a doubled backtick stands for one); they may be omitted if the name cannot be confused with a path. Names
match regardless of case, as in Spark; an exact match wins. Here, a schema is any object whose fields have a name and a
type: a Delta schema or an Arrow schema.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Union

import pyarrow as pa

from delta_sharing_client.errors import UsageError

ColumnPath = tuple[str, ...]
ColumnName = Union[str, Sequence[str]]

# The maximum number of names that a message lists.
_MOST_SHOWN = 8


def resolve_columns(
    columns: Iterable[ColumnName] | None, schema: Any, extra: Sequence[str] = ()
) -> tuple[ColumnPath, ...] | None:
    """Return the selection ``columns`` as paths in the schema's own spelling; ``None`` for ``None``.

    A string is a path (:func:`parse_path`) or the whole name of a column; a sequence of names is a path. ``extra``
    names columns that a read adds to the schema (change feed, row lineage).

    Raises ``UsageError`` for a name that does not exist (the message suggests the nearest one), a path into a column
    that is not a struct, a column that is selected twice, and a single string instead of a list.
    """
    listed = listed_columns(columns)
    if listed is None:
        return None
    names = Names(schema, extra)
    paths = tuple(_selected(column, names) for column in listed)
    whole: set[ColumnPath] = set()
    parents: set[ColumnPath] = set()
    for path in paths:
        above = {path[:length] for length in range(1, len(path))}
        if path in whole or path in parents or above & whole:
            raise UsageError(f"The column {_shown(path)} is selected twice. Name it once.")
        whole.add(path)
        parents |= above
    return paths


def listed_columns(columns: Iterable[ColumnName] | None) -> tuple[ColumnName, ...] | None:
    """Return a selection as a tuple; ``None`` for ``None``. Raises ``UsageError`` for a single string or a mapping."""
    if isinstance(columns, str):
        is_condition = _CONDITION.search(columns) is not None
        write = f"filter={columns!r}" if is_condition else f"columns={split_names(columns) or [columns]!r}"
        raise UsageError(f"'columns' must be a list of names, found the string {columns!r}; write {write}.")
    if isinstance(columns, Mapping):
        raise UsageError(
            "'columns' must be a list of names, found a mapping; to rename columns, rename those of the result."
        )
    return None if columns is None else tuple(columns)


def resolve_path(path: ColumnPath, schema: Any) -> tuple[Any, ...]:
    """Return the fields of ``schema`` along ``path``, like ``Names.resolve``; for many paths create ``Names`` once."""
    return Names(schema).resolve(path)


def _selected(column: ColumnName, all_names: Names) -> ColumnPath:
    if not isinstance(column, str):
        names = tuple(column) if isinstance(column, Sequence) else ()
        if not names or not all(isinstance(name, str) for name in names):
            raise UsageError(f"A column must be a name or a sequence of names, found {column!r}.")
        return _path(all_names.along(names, _shown(names)))
    try:
        return _named(column, all_names)
    except UsageError as error:
        if advice := _advice(column):
            raise UsageError(f"'{column}' is not the name of a column. {advice}") from None
        raise error


def _advice(column: str) -> str:
    """Return advice for a string that names no column; "" if it looks like a name."""
    if column == "*":
        return "Leave 'columns' out to read all columns."
    names = split_names(column) or []
    if len(names) > 1:
        return f"Write each name as a separate string: columns={names!r}."
    if _COMPUTED.search(column):
        return "Expressions cannot be selected: compute and rename in the result, or in a DuckDB query (ds.attach)."
    return ""


def _named(column: str, names: Names) -> ColumnPath:
    whole = names.match(column, names.schema)
    if _PATH.fullmatch(column) is None:
        # The string cannot be parsed as a path, so it can only be the whole name of a column.
        return (whole.name,) if whole is not None else _path(names.along((column,), f"'{column}'"))
    path = parse_path(column)
    if whole is None:
        return _path(names.along(path, _shown(path)))
    if len(path) > 1 and len(names.find(path) or ()) > 1:
        raise UsageError(
            f"The name '{column}' fits both the column '{quote_name(column)}' and the field {_shown(path)} of a "
            f"struct. Write ({column!r},) for the column, {path!r} for the field."
        )
    return (whole.name,)


def _path(fields: Iterable[Any]) -> ColumnPath:
    return tuple(field.name for field in fields)


class _Added(NamedTuple):
    """A column that a read adds to the table's columns."""

    name: str
    type: None = None


class Names:
    """Finds the fields of a schema and its structs by name. ``added`` are the names of additional columns."""

    def __init__(self, schema: Any, added: Sequence[str] = ()) -> None:
        self.schema = schema
        self._added = added
        # Each index is kept together with its struct: Arrow creates a new object on each access, and the id of a freed
        # object can be reused.
        self._fields: dict[int, tuple[Any, dict[str, list[Any]]]] = {}

    def resolve(self, path: ColumnPath) -> tuple[Any, ...]:
        """Return the fields along ``path``, outermost first.

        Raises ``UsageError`` if there is no such column (the message suggests the nearest one), or if several differ
        only in case.
        """
        return self.along(path, _shown(path))

    def find(self, path: ColumnPath) -> tuple[Any, ...] | None:
        """Like ``resolve``, but return ``None`` instead of raising an error."""
        try:
            return self.resolve(path)
        except UsageError:
            return None

    def may_mean(self, text: str) -> bool:
        """Return whether ``text`` is the name of a column, or the path of a field in a struct, in any case."""
        if self._has((text,)):
            return True
        return _PATH.fullmatch(text) is not None and self._has(parse_path(text))

    def _has(self, path: ColumnPath) -> bool:
        """Return whether ``resolve`` finds the path, or finds several."""
        nodes = [self.schema]
        for depth, name in enumerate(path):
            whole = ".".join(path[depth:])
            if any(self._all_of(node, whole) for node in nodes):
                return True
            nodes = [field.type for node in nodes for field in self._all_of(node, name)]
        return bool(nodes)

    def along(self, path: ColumnPath, shown: str) -> tuple[Any, ...]:
        """Return the fields along ``path``. The ``UsageError`` for a missing field calls the path ``shown``."""
        fields: list[Any] = []
        node = self.schema
        for depth, name in enumerate(path):
            field = self.match(name, node)
            if field is None and depth + 1 < len(path):
                field = self.match(".".join(path[depth:]), node)
                if field is not None:
                    return (*fields, field)
            if field is None:
                raise UsageError(_missing(shown, name, _path(fields), self._of(node)))
            fields.append(field)
            node = field.type
        return tuple(fields)

    def match(self, name: str, node: Any) -> Any | None:
        """Return the field called ``name`` in a schema or struct, or ``None``. An exact match wins over others."""
        matches = self._all_of(node, name)
        matches = [field for field in matches if field.name == name] or matches
        if len(matches) > 1:
            names = ", ".join(f"'{field.name}'" for field in matches)
            raise UsageError(f"The column '{name}' is ambiguous: it matches {names}. Write one of them exactly.")
        return matches[0] if matches else None

    def _all_of(self, node: Any, name: str) -> list[Any]:
        return (self._of(node) or {}).get(name.lower(), [])

    def _of(self, node: Any) -> dict[str, list[Any]] | None:
        """Return the fields of a schema or struct by case-folded name; ``None`` for other types."""
        if id(node) not in self._fields:
            if isinstance(node, (pa.Schema, pa.StructType)):
                fields: Iterable[Any] = node
            elif isinstance(node, pa.DataType) or not hasattr(node, "fields"):
                return None
            else:
                fields = node.fields
            by_name: dict[str, list[Any]] = {}
            for field in fields:
                by_name.setdefault(field.name.lower(), []).append(field)
            if node is self.schema:
                # If the table has a column of this name, it is a different column; reading both is refused elsewhere.
                for name in self._added:
                    by_name.setdefault(name.lower(), [_Added(name)])
            self._fields[id(node)] = node, by_name
        return self._fields[id(node)][1]


def _missing(shown: str, name: str, parent: ColumnPath, by_name: dict[str, list[Any]] | None) -> str:
    sentence = f"The column {shown} is not in the table"
    if by_name is None:
        return f"{sentence}: {_shown(parent)} is not a struct, so it has no field '{name}'."
    if parent:
        sentence += f": the struct {_shown(parent)} has no field '{name}'"
    near = difflib.get_close_matches(name.lower(), by_name, n=1, cutoff=0.6)
    if near:
        return f"{sentence}. Did you mean {_shown((*parent, by_name[near[0]][0].name))}?"
    if not by_name:
        return f"{sentence}, which has no columns." if not parent else f"{sentence}, nor any other."
    names = [field.name for fields in by_name.values() for field in fields]
    listed = ", ".join(_shown((*parent, each)) for each in names[:_MOST_SHOWN])
    more = ", ..." if len(names) > _MOST_SHOWN else ""
    return f"{sentence}. Its {'fields' if parent else 'columns'} are {listed}{more}."


def _shown(path: ColumnPath) -> str:
    return "'" + ".".join(name if _PLAIN_NAME.fullmatch(name) else _backticks(name) for name in path) + "'"


# === Names as text ===

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_PART = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|([^.`]*[^.`\s]))\s*(?:\.|$)")
_PATH = re.compile(r"\s*(?:`(?:[^`]|``)+`|[^.`]*[^.`\s])\s*(?:\.\s*(?:`(?:[^`]|``)+`|[^.`]*[^.`\s])\s*)*")
_CONDITION = re.compile(r"[=<>]|\b(?:like|in|is|between)\b", re.IGNORECASE)
_COMPUTED = re.compile(r"[(*/+]|\sas\s", re.IGNORECASE)
_LISTED = re.compile(r"((?:[^`,]|`(?:[^`]|``)*`)+)(?:,|\Z)")


def parse_path(name: str | Iterable[str]) -> ColumnPath:
    """Return the path that ``name`` stands for: ``"a.b"`` is the field ``b`` of ``a``, and backticks quote a dot. A
    tuple is already a path.

    Raises ``UsageError`` if the name is empty or its backticks do not match.
    """
    if isinstance(name, str):
        if not _PATH.fullmatch(name):
            raise UsageError(
                f"{name!r} is not a column name. Write a.b for a nested field, and backticks around a name with dots."
            )
        return tuple(
            quoted[1:-1].replace("``", "`") if quoted else plain.strip() for quoted, plain in _PART.findall(name)
        )
    path = tuple(name) if isinstance(name, Iterable) else ()
    if not path or not all(isinstance(part, str) and part for part in path):
        raise UsageError(f"A column must be a name or a non-empty tuple of names, found {name!r}.")
    return path


def split_names(text: str) -> list[str] | None:
    """Split a comma-separated list (``id, a.b, `c,d```) into its names as written; return ``None`` if one is empty."""
    names: list[str] = []
    position = 0
    while match := _LISTED.match(text, position):
        names.append(match[1].strip())
        position = match.end()
        if position == len(text) and not match[0].endswith(","):
            return names if all(names) else None
    return None


def quote_name(name: str) -> str:
    """Return ``name`` as a SQL identifier, in backticks unless it is plain."""
    return name if _PLAIN_NAME.fullmatch(name) and name.upper() not in _RESERVED else _backticks(name)


def _backticks(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


# Words that some SQL parsers do not accept as an unquoted column name.
_RESERVED = frozenset(  # sorted, in one string
    """
    ALL ALTER ANALYZE AND ANTI ANY ARRAY AS ASC BEGIN BETWEEN BINARY BY CACHE CALL CASE CAST CHECK COLUMN COMMENT COMMIT
    CONNECT_BY_ROOT CONVERT COPY CREATE CROSS CURDATE CURRENT_CATALOG CURRENT_DATE CURRENT_SCHEMA CURRENT_TIME
    CURRENT_TIMESTAMP CURRENT_USER DATE DECLARE DELETE DESC DESCRIBE DISTINCT DIV DROP ELSE END ESCAPE EXCEPT EXECUTE
    EXISTS EXPLAIN EXTRACT FALSE FETCH FOR FROM FULL FUNCTION GLOB GRANT GROUP GROUPING HAVING IF ILIKE IN INNER INSERT
    INTERSECT INTERVAL INTO IS ISNULL JOIN KILL LATERAL LEFT LIKE LIMIT LOAD LOCALTIME LOCALTIMESTAMP MAP
    MATCH_RECOGNIZE MERGE MINUS NATURAL NOT NOTNULL NULL OFFSET ON OPTIMIZE OR ORDER OUTER OVER OVERLAPS PARTITIONED_BY
    PIVOT POSITION PRAGMA PREPARE PRIOR QUALIFY REFRESH REGEXP RENAME RETURNING REVOKE RIGHT RLIKE ROLLBACK ROW ROWS
    SELECT SEMI SERDEPROPERTIES SESSION_USER SET SETTINGS SHOW SOME STRUCT SUBSTRING TABLE TABLESAMPLE THEN TIME
    TIMESTAMP TO TRIM TRUE TRUNCATE TRY_CAST UNCACHE UNION UNIQUE UNKNOWN UNPIVOT UPDATE USE USER USING VACUUM VALUES
    WHEN WHERE WINDOW WITH XOR
    """.split()  # noqa: SIM905
)


def narrowed(columns: Iterable[str | Iterable[str]] | None, names: Sequence[str]) -> list[ColumnPath]:
    """Return the selected paths that lie in the top-level columns ``names``, in the order of ``names``. ``columns`` is
    the selection; ``None`` selects all of ``names``."""
    if columns is None:
        return [(name,) for name in names]
    paths = [parse_path(column) for column in columns]
    return [path for name in names for path in paths if path[0].lower() == name.lower()]
