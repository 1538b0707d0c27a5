"""Converts rows for the page to strings, with every digit."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from delta_sharing_client.outputs.file_formats import compact_json
from delta_sharing_client.outputs.json_values import first_rows

MOST_ROWS = 100
MOST_COLUMNS = 200
_MOST_CHARACTERS = 2000
_MOST_IN_ALL = 4_000_000
_NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)


def cells_of(batches: Iterable[pa.RecordBatch], schema: pa.Schema, *, most: int = MOST_ROWS) -> dict[str, object]:
    """Return at most ``most`` rows: the columns with their types, and for each row a list of strings, ``None`` for
    null.

    Long strings are cut; ``cut`` is the number of these.
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
            {"name": field.name, "type": str(field.type), "isNumber": any(is_it(field.type) for is_it in _NUMBERS)}
            for field in schema
        ],
        "rows": rows,
        "cut": cut,
        "isMore": is_more,
    }


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    try:
        return compact_json(value)
    except (TypeError, ValueError):
        # The value has an extension type of Arrow.
        return str(value)
