"""The struct forms of a checkpoint, as the texts that commits hold: ``stats_parsed`` as ``stats`` JSON, and
``partitionValues_parsed`` as serialized partition values (Delta log protocol, "Checkpoints").

Bounds lose nothing on the way: timestamps keep their microseconds and decimals their digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from delta_sharing_client.delta.data_types import PrimitiveType
from delta_sharing_client.delta.partition_values import serialize_partition_value

_ENCODER = msgspec.json.Encoder(decimal_format="number")
_NAMES = {"nullCounts": "nullCount"}


def int96_leaves(parquet: pq.ParquetFile) -> frozenset[str]:
    """Return the dotted paths of the columns stored as INT96: instants, although Arrow gives them no time zone."""
    schema = parquet.schema
    return frozenset(schema.column(i).path for i in range(len(schema)) if schema.column(i).physical_type == "INT96")


def statistics_texts(parsed: pa.StructArray, path: str, instants: frozenset[str]) -> list[str | None]:
    """Return the ``stats`` JSON of each row of a ``stats_parsed`` column, ``None`` where it is null.

    Values that are null are left out: an absent bound is an unknown one. ``path`` is the column's dotted path and
    ``instants`` are those of :func:`int96_leaves`.
    """
    return [
        None if row is None else _ENCODER.encode({_NAMES.get(key, key): value for key, value in row.items()}).decode()
        for row in _json_values(parsed, path, instants)
    ]


def partition_texts(parsed: pa.StructArray, path: str, instants: frozenset[str]) -> list[dict[str, str | None]]:
    """Return ``partitionValues`` for each row of a ``partitionValues_parsed`` column; see :func:`statistics_texts`."""
    names = [parsed.type.field(i).name for i in range(parsed.type.num_fields)]
    columns = [
        _partition_column(array, f"{path}.{name}" in instants)
        for name, array in zip(names, parsed.flatten(), strict=True)
    ]
    if not columns:
        return [{} for _ in range(len(parsed))]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _json_values(array: pa.Array, path: str, instants: frozenset[str]) -> list[Any]:
    kind = array.type
    if pa.types.is_struct(kind):
        return _json_objects(array, path, instants)
    if pa.types.is_timestamp(kind):
        zone = "Z" if kind.tz is not None or path in instants else ""
        return _mapped(_local_text(array), lambda text: text.replace(" ", "T") + zone)
    if pa.types.is_date(kind):
        return _texts(array)
    if pa.types.is_floating(kind):
        return _mapped(array.to_pylist(), _json_float)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_nested(kind):
        # Binary columns, lists and maps have no bounds in the JSON form.
        return [None] * len(array)
    return array.to_pylist()


def _json_objects(array: pa.StructArray, path: str, instants: frozenset[str]) -> list[Any]:
    names = [array.type.field(i).name for i in range(array.type.num_fields)]
    columns = [
        _json_values(child, f"{path}.{name}", instants) for name, child in zip(names, array.flatten(), strict=True)
    ]
    valid = array.is_valid().to_pylist()
    rows: list[Any] = []
    for index, present in enumerate(valid):
        if present:
            rows.append({n: c[index] for n, c in zip(names, columns, strict=True) if c[index] is not None})
        else:
            rows.append(None)
    return rows


def _partition_column(array: pa.Array, is_instant: bool) -> list[str | None]:
    kind = array.type
    if pa.types.is_timestamp(kind):
        if kind.tz is None and not is_instant:
            return _local_text(array)
        return _mapped(_local_text(array), lambda text: text.replace(" ", "T") + "Z")
    if pa.types.is_boolean(kind):
        return _mapped(array.to_pylist(), lambda value: "true" if value else "false")
    if pa.types.is_floating(kind):
        return _mapped(array.to_pylist(), lambda value: str(_json_float(value)))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return [serialize_partition_value(value, PrimitiveType("binary")) for value in array.to_pylist()]
    if pa.types.is_decimal(kind):
        # Arrow's own text of a small number has an exponent.
        return _mapped(array.to_pylist(), lambda value: format(value, "f"))
    return _texts(array)


def _local_text(array: pa.Array) -> list[Any]:
    # Through the zone-less type: the text is the UTC wall clock, with microseconds, and years beyond 9999 work.
    micros = array.cast(pa.timestamp("us", tz=array.type.tz), safe=False)
    return _texts(micros.cast(pa.int64()).cast(pa.timestamp("us")))


def _texts(array: pa.Array) -> list[Any]:
    return pc.cast(array, pa.string()).to_pylist()


def _json_float(value: float) -> object:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def _mapped(values: list[Any], function: Callable[[Any], Any]) -> list[Any]:
    return [None if value is None else function(value) for value in values]
