"""Row groups that cannot hold a matching row, by the statistics in the file's footer (Apache Parquet, "Statistics").

Only bounds whose order is beyond doubt are believed: signed integers, dates, timestamps, booleans, UTF-8 text, binary
and signed decimals. Floating-point bounds never cover NaN, so they bound the other values only.
"""

from __future__ import annotations

import decimal
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from delta_sharing_client.columns import ColumnPath, find_path
from delta_sharing_client.delta.data_types import (
    DecimalType,
    PrimitiveType,
    StructField,
    StructType,
)
from delta_sharing_client.delta.statistics import ColumnBounds
from delta_sharing_client.instants import MICROS_PER_DAY
from delta_sharing_client.parquet.chunks import Chunks, Plain
from delta_sharing_client.predicates.skipping import compile_skipping
from delta_sharing_client.predicates.tree import Expression
from delta_sharing_client.read.align import Aligner

_INTEGERS = ("byte", "short", "integer", "long")


class RowGroupBounds:
    """``predicates.skipping.Statistics`` of one row group at a time; ``constants`` bound what no file holds."""

    def __init__(
        self,
        chunks: Chunks,
        rows: Sequence[int],
        aligner: Aligner,
        schema: StructType,
        paths: Iterable[ColumnPath],
        constants: dict[ColumnPath, ColumnBounds],
    ) -> None:
        self._chunks = chunks
        self._rows = rows
        self._constants = constants
        self._leaves: dict[ColumnPath, tuple[StructField, tuple[int, pa.DataType] | None]] = {}
        for path in paths:
            if path not in constants and (fields := find_path(path, schema)) is not None:
                self._leaves[path] = (fields[-1], aligner.leaf(fields))
        self._group = 0

    def matching(self, predicate: Expression, ordinals: Iterable[int]) -> list[int]:
        """Return those of the row groups ``ordinals`` that may hold a row for which ``predicate`` is true."""
        may_match = compile_skipping(predicate)
        kept = []
        for ordinal in ordinals:
            self._group = ordinal
            if may_match(self):
                kept.append(ordinal)
        return kept

    @property
    def leaves(self) -> dict[ColumnPath, tuple[StructField, int, pa.DataType]]:
        """The predicate's columns that are each one Parquet column of the file: its number and Arrow type."""
        return {path: (field, *leaf) for path, (field, leaf) in self._leaves.items() if leaf and leaf[0] >= 0}

    def bounds(self, path: ColumnPath) -> ColumnBounds | None:
        return self.bounds_in(self._group, path)

    def bounds_in(self, group: int, path: ColumnPath) -> ColumnBounds | None:
        """Return what is known of a column in one row group."""
        constant = self._constants.get(path)
        rows = self._rows[group]
        if constant is not None:
            return constant._replace(null_count=rows if constant.null_count else 0, row_count=rows)
        if path not in self._leaves:
            return None
        field, leaf = self._leaves[path]
        if leaf is None:
            return ColumnBounds(None, None, rows, rows)
        if leaf[0] < 0:
            return None
        chunk = self._chunks.get(group, leaf[0])
        lower, upper, without_nan = typed_bounds(chunk.bounds, field, leaf[1])
        return ColumnBounds(lower, upper, chunk.null_count, rows, without_nan)


def typed_bounds(
    bounds: tuple[Plain, Plain] | None, field: StructField, found: pa.DataType
) -> tuple[Any, Any, float | None]:
    """Return lower and upper bound, and the upper bound apart from NaN, as ``ColumnBounds`` has them.

    ``found`` is the Arrow type of the Parquet column that holds ``field``. What is not to be trusted is ``None``.
    """
    if bounds is None or field.collation is not None:
        return None, None, None
    try:
        lower, upper = bounds
        kind = field.type
        if isinstance(kind, DecimalType):
            return _decimal(lower, found), _decimal(upper, found), None
        if not isinstance(kind, PrimitiveType):
            return None, None, None
        if kind.base in ("float", "double"):
            return _float(lower, upper, found)
        if (pair := _ordered(lower, upper, kind.base, found)) is not None and pair[0] <= pair[1]:
            return pair[0], pair[1], None
    except (ValueError, TypeError, ArithmeticError, NotImplementedError, pa.ArrowException):
        pass
    return None, None, None


def _ordered(lower: Any, upper: Any, base: str, found: pa.DataType) -> tuple[Any, Any] | None:
    types = pa.types
    if base in _INTEGERS and types.is_signed_integer(found):
        return int(lower), int(upper)
    if base == "boolean" and types.is_boolean(found):
        return bool(lower), bool(upper)
    if base == "date" and types.is_date32(found):
        return int(lower), int(upper)
    if base == "timestamp_ntz" and types.is_date32(found):
        return int(lower) * MICROS_PER_DAY, int(upper) * MICROS_PER_DAY
    if base in ("timestamp", "timestamp_ntz") and types.is_timestamp(found) and isinstance(lower, int):
        return _micros(lower, found.unit, up=False), _micros(upper, found.unit, up=True)
    if base == "string" and types.is_string(found) and isinstance(lower, bytes):
        return lower.decode(), upper.decode()
    if base == "binary" and types.is_binary(found) and isinstance(lower, bytes):
        return lower, upper
    return None


def _micros(value: int, unit: str, *, up: bool) -> int:
    if unit == "ns":
        return -(-value // 1000) if up else value // 1000
    return value * {"s": 1_000_000, "ms": 1000, "us": 1}[unit]


def _float(lower: Any, upper: Any, found: pa.DataType) -> tuple[float | None, None, float | None]:
    exact_integer = pa.types.is_signed_integer(found) and found.bit_width <= 32
    if not (exact_integer or pa.types.is_float32(found) or pa.types.is_float64(found)):
        return None, None, None
    low, high = float(lower), float(upper)
    if low != low or high != high or low > high:  # a NaN among them says nothing
        return None, None, None
    return low, None, high


def _decimal(value: Any, found: pa.DataType) -> decimal.Decimal | None:
    if pa.types.is_signed_integer(found):
        return decimal.Decimal(int(value))
    if not pa.types.is_decimal(found):
        return None
    unscaled = value if isinstance(value, int) else int.from_bytes(value, "big", signed=True)
    return decimal.Decimal(unscaled).scaleb(-found.scale, decimal.Context(prec=78))
