"""Column selections as callers write them, resolved to paths of the table's schema."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Union

from delta_sharing_client.delta.schema import ArrayType, ColumnPath, DataType, MapType, StructType
from delta_sharing_client.errors import UsageError

ColumnName = Union[str, Sequence[str]]


def resolve_columns(
    columns: Iterable[ColumnName] | None, schema: StructType, extra: Sequence[str] = ()
) -> tuple[ColumnPath, ...] | None:
    """Return ``columns`` as paths in the schema's own spelling, ``None`` for ``None``.

    A text is first a column of exactly that name (in any case), then a path of names separated by dots; a sequence of
    names is a path as it stands. ``extra`` names columns that a read adds to the schema (change feed, row lineage).

    Raises
    ------
    UsageError
        For a name that does not exist (the nearest one is named), a path into something that is not a struct, a
        column asked for twice, or a single text where a list is needed.
    """
    if columns is None:
        return None
    if isinstance(columns, str):
        raise UsageError(f"columns must be a list of names, found the text {columns!r}; write columns=[{columns!r}]")
    paths = tuple(_resolve(column, schema, extra) for column in columns)
    for position, path in enumerate(paths):
        for other in paths[:position]:
            if path[: len(other)] == other or other[: len(path)] == path:
                raise UsageError(f"columns selects {'.'.join(path)!r} twice; name it once")
    return paths


def _resolve(column: ColumnName, schema: StructType, extra: Sequence[str]) -> ColumnPath:
    if isinstance(column, str):
        for name in extra:
            if name.lower() == column.lower():
                return (name,)
        field = schema.find(column)
        return (field.name,) if field is not None else _walk(column.split("."), column, schema)
    names = list(column) if isinstance(column, Sequence) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise UsageError(f"a column is a name or a sequence of names, found {column!r}")
    return _walk(names, ".".join(names), schema)


def _walk(names: Sequence[str], shown: str, schema: StructType) -> ColumnPath:
    current: DataType = schema
    path: list[str] = []
    for name in names:
        if not isinstance(current, StructType):
            kind = {ArrayType: "an array", MapType: "a map"}.get(type(current), "not a struct")
            raise UsageError(f"column {shown!r}: {'.'.join(path)!r} is {kind}, so it has no field {name!r} to select")
        field = current.find(name)
        if field is None:
            raise UsageError(f"column {shown!r} does not exist{_hint(name, path, current)}")
        path.append(field.name)
        current = field.type
    return tuple(path)


def _hint(name: str, path: Sequence[str], struct: StructType) -> str:
    candidates = [field.name for field in struct.fields]
    near = difflib.get_close_matches(name, candidates, n=1) or [c for c in candidates if c.lower() == name.lower()]
    prefix = "".join(f"{part}." for part in path)
    if near:
        return f"; did you mean {prefix + near[0]!r}?"
    shown = ", ".join(repr(prefix + candidate) for candidate in candidates[:8])
    return f"; the columns are {shown}{', ...' if len(candidates) > 8 else ''}"
