"""Arrow values as JSON values, without loss.

Integers of 64 bits and booleans stay what they are; finite floats stay numbers, the others become ``"NaN"``,
``"Infinity"`` and ``"-Infinity"``. Decimals, dates (``2024-01-31``) and timestamps (``2024-01-31T10:00:00.000001Z``,
without ``Z`` where there is no time zone) become text, binary lower-case hex, a duration its microseconds, a struct an
object, a list an array, and a map an array of ``[key, value]`` pairs, because its keys need not be strings.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from decimal import Decimal

import pyarrow as pa


def json_rows(batch: pa.RecordBatch) -> Iterator[dict[str, object]]:
    """Yield every row of ``batch`` as column name -> JSON value, in the order of the columns."""
    names = batch.schema.names
    for row in zip(*(json_values(column) for column in batch.columns), strict=True):
        yield dict(zip(names, row, strict=True))
    if not names:
        yield from ({} for _ in range(batch.num_rows))


def json_values(array: pa.Array) -> list[object]:
    """Return the values of ``array`` as JSON values; a null is None."""
    kind = array.type
    if pa.types.is_struct(kind):
        return _objects(array)
    if pa.types.is_map(kind):
        return _lists(array, [list(pair) for pair in zip(*_entries(array), strict=True)])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _lists(array, json_values(_child(array, array.values)))
    if pa.types.is_timestamp(kind):
        return [None if text is None else text.replace(" ", "T", 1) for text in array.cast(pa.string()).to_pylist()]
    if pa.types.is_date(kind):
        # Through text, as dates and timestamps may lie outside the years 1 to 9999 that datetime can hold.
        return list(array.cast(pa.string()).to_pylist())
    if pa.types.is_duration(kind):
        return list(array.cast(pa.duration("us")).cast(pa.int64()).to_pylist())
    return [_scalar(value) for value in array.to_pylist()]


def compact_json(value: object) -> str:
    """Return ``value`` as JSON text on one line, with characters outside ASCII as they are."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _scalar(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return value.hex()
    return value


def _objects(array: pa.StructArray) -> list[object]:
    names = [array.type.field(position).name for position in range(array.type.num_fields)]
    columns = [json_values(child) for child in array.flatten()]
    valid = array.is_valid().to_pylist()
    return [
        {name: column[row] for name, column in zip(names, columns, strict=True)} if valid[row] else None
        for row in range(len(array))
    ]


def _lists(array: pa.ListArray | pa.MapArray, values: list[object]) -> list[object]:
    offsets = array.offsets.to_pylist()
    first = offsets[0] if offsets else 0
    valid = array.is_valid().to_pylist()
    return [
        values[offsets[row] - first : offsets[row + 1] - first] if valid[row] else None for row in range(len(array))
    ]


def _entries(array: pa.MapArray) -> tuple[list[object], list[object]]:
    return json_values(_child(array, array.keys)), json_values(_child(array, array.items))


def _child(array: pa.ListArray | pa.MapArray, values: pa.Array) -> pa.Array:
    """Return the part of ``values`` that a sliced ``array`` refers to."""
    offsets = array.offsets
    if len(offsets) == 0:
        return values.slice(0, 0)
    start, stop = offsets[0].as_py(), offsets[len(offsets) - 1].as_py()
    return values.slice(start, stop - start)
