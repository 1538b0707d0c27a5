"""Converts rows and values to JSON values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from decimal import Decimal

import pyarrow as pa

from delta_sharing_client.delta.value_texts import non_finite

_UTC = frozenset(("UTC", "Etc/UTC", "GMT", "+00:00", "Z"))


def json_rows(batch: pa.RecordBatch) -> Iterator[dict[str, object]]:
    """Yield every row of ``batch`` as a mapping of column names to JSON values, in column order."""
    names = batch.schema.names
    for row in zip(*(json_values(column) for column in batch.columns), strict=True):
        yield dict(zip(names, row, strict=True))
    if not names:
        yield from ({} for _ in range(batch.num_rows))


def first_rows(batches: Iterable[pa.RecordBatch], most: int) -> tuple[list[tuple[object, ...]], bool]:
    """Return at most ``most`` rows as tuples of JSON values, and whether there are more. Takes no more batches than
    needed."""
    rows: list[tuple[object, ...]] = []
    for batch in batches:
        columns = [json_values(column) for column in batch.slice(0, most + 1 - len(rows)).columns]
        rows.extend(zip(*columns, strict=True))
        if len(rows) > most:
            break
    return rows[:most], len(rows) > most


def json_values(array: pa.Array) -> list[object]:
    """Return the values of ``array`` as JSON values; a null is None."""
    kind = array.type
    if pa.types.is_struct(kind):
        return _objects(array)
    if pa.types.is_map(kind):
        keys, items = json_values(_child(array, array.keys)), json_values(_child(array, array.items))
        return _lists(array, [list(pair) for pair in zip(keys, items, strict=True)])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _lists(array, json_values(_child(array, array.values)))
    if pa.types.is_timestamp(kind):
        return _moments(array)
    if pa.types.is_date(kind):
        # Converted through text, because dates and timestamps may be outside the years 1 to 9999 of datetime.
        return list(array.cast(pa.string()).to_pylist())
    if pa.types.is_time(kind):
        return list(array.cast(pa.string()).to_pylist())
    if pa.types.is_floating(kind) and not pa.types.is_float64(kind):
        # Through their shortest text, so that a 32-bit 0.1 is 0.1, not 0.10000000149011612.
        return [_scalar(value) for value in array.cast(pa.string()).cast(pa.float64()).to_pylist()]
    if pa.types.is_duration(kind):
        return list(array.cast(pa.duration("us")).cast(pa.int64()).to_pylist())
    return [_scalar(value) for value in array.to_pylist()]


def _moments(array: pa.TimestampArray) -> list[object]:
    """Return timestamps as text."""
    # Arrow would look UTC up in a database of time zones, which some machines do not have.
    is_utc = array.type.tz in _UTC
    end = "Z" if is_utc else ""
    texts = (array.view(pa.timestamp(array.type.unit)) if is_utc else array).cast(pa.string()).to_pylist()
    return [None if text is None else text.replace(" ", "T", 1) + end for text in texts]


def _scalar(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return non_finite(value)
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


def _child(array: pa.ListArray | pa.MapArray, values: pa.Array) -> pa.Array:
    """Return the part of ``values`` that a sliced ``array`` uses."""
    offsets = array.offsets
    if len(offsets) == 0:
        return values.slice(0, 0)
    start, stop = offsets[0].as_py(), offsets[len(offsets) - 1].as_py()
    return values.slice(start, stop - start)
