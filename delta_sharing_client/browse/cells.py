"""Converts rows for the page to strings, with every digit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from delta_sharing_client.delta.type_rows import TYPES
from delta_sharing_client.outputs.file_formats import compact_json
from delta_sharing_client.outputs.json_values import first_rows, json_values

MOST_ROWS = 100
MOST_COLUMNS = 200
_MOST_CHARACTERS = 2000
_MOST_IN_ALL = 4_000_000
_NAMES = {TYPES[name].arrow: name for name in ("string", "long", "integer", "short", "byte", "float", "double")}
_NAMES |= {TYPES[name].arrow: name for name in ("boolean", "binary", "date", "void")}
_NAMES |= {pa.large_string(): "string", pa.large_binary(): "binary"}
_NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)


def cells_of(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, *, types: Sequence[str] = (), most: int = MOST_ROWS
) -> dict[str, Any]:
    """Return at most ``most`` rows: the columns with their types, and for each row a list of strings, ``None`` for
    null.

    ``types`` are the types of the columns in Delta's words; by default, those of ``schema``. Long strings are cut;
    ``cut`` is the number of these.
    """
    values, is_more = first_rows(batches, most)
    rows = [list(map(_text, row)) for row in values]
    longest = max(50, min(_MOST_CHARACTERS, _MOST_IN_ALL // max(1, len(rows) * len(schema))))
    cut = 0
    for row in rows:
        for place, text in enumerate(row):
            if text is not None and len(text) > longest:
                row[place] = f"{text[:longest]} … ({len(text):,} characters)"
                cut += 1
    return {
        "columns": [
            {"name": field.name, "type": text, "isNumber": any(is_it(field.type) for is_it in _NUMBERS)}
            for field, text in zip(schema, types or [type_name(field.type) for field in schema], strict=True)
        ],
        "rows": rows,
        "cut": cut,
        "isMore": is_more,
    }


def texts_of(array: pa.Array) -> list[str | None]:
    """Return the values of ``array`` as the page shows them; ``None`` for null."""
    return [_text(value) for value in json_values(array)]


def type_name(kind: pa.DataType) -> str:
    """Return a type of Arrow in the words of Delta (``long``), in which the page names all types; a type that Delta
    lacks in those of Arrow."""
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{field.name}: {type_name(field.type)}' for field in kind)}>"
    if pa.types.is_map(kind):
        return f"map<{type_name(kind.key_type)}, {type_name(kind.item_type)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{type_name(kind.value_type)}>"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    return _NAMES.get(kind, str(kind))


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    try:
        return compact_json(value)
    except (TypeError, ValueError):
        # The value has an extension type of Arrow.
        return str(value)
