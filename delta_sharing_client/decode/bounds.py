"""Skips row groups by the statistics in the file's footer (Apache Parquet, "Statistics").

Only bounds of types with a well-defined order are used: signed integers, dates, timestamps, booleans, UTF-8 text,
binary and signed decimals. Floating-point bounds never cover NaN, so they bound only the other values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa

from delta_sharing_client.columns import ColumnPath, Names
from delta_sharing_client.decode.align import Aligner
from delta_sharing_client.decode.missing_columns import has_default
from delta_sharing_client.delta.data_types import StructField, StructType
from delta_sharing_client.delta.statistics import ColumnBounds
from delta_sharing_client.delta.type_rows import row_of
from delta_sharing_client.delta.value_bounds import UNKNOWN, Footer
from delta_sharing_client.errors import check_memory
from delta_sharing_client.parquet.chunks import Chunks, Plain
from delta_sharing_client.predicates.skipping import Statistics, compile_skipping
from delta_sharing_client.predicates.tree import Expression


class RowGroupBounds:
    """The bounds of columns in a file's row groups; ``constants`` has the bounds of columns that are constant in it."""

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
        names = Names(schema)
        for path in paths:
            if path not in constants and (fields := names.find(path)) is not None:
                leaf = aligner.leaf(fields)
                # In a file without the column, every row has the default of the column or of an enclosing struct. Such
                # a column has no bounds here, because the code below would count it as null.
                if leaf is not None or not any(map(has_default, fields)):
                    self._leaves[path] = (fields[-1], leaf)

    def matching(self, predicate: Expression, ordinals: Iterable[int]) -> list[int]:
        """Return the row groups among ``ordinals`` that may have a row for which ``predicate`` is true."""
        may_match = compile_skipping(predicate)
        return [ordinal for ordinal in ordinals if may_match(self.of_group(ordinal))]

    def of_group(self, group: int) -> Statistics:
        """Return the statistics of a row group, for ``predicates.skipping``."""
        return _GroupStatistics(self, group)

    @property
    def leaves(self) -> dict[ColumnPath, tuple[StructField, int, pa.DataType]]:
        """The predicate's columns that are single Parquet columns of the file: field, column number and Arrow type."""
        return {path: (field, *leaf) for path, (field, leaf) in self._leaves.items() if leaf and leaf[0] >= 0}

    def bounds_in(self, group: int, path: ColumnPath) -> ColumnBounds | None:
        """Return the bounds of a column in one row group, ``None`` if unknown."""
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


class _GroupStatistics(NamedTuple):
    whole: RowGroupBounds
    group: int

    def bounds(self, path: ColumnPath) -> ColumnBounds | None:
        return self.whole.bounds_in(self.group, path)


def typed_bounds(bounds: tuple[Plain, Plain] | None, field: StructField, stored: pa.DataType) -> Footer:
    """Return the lower bound, the upper bound, and the upper bound that ignores NaN, as in ``ColumnBounds``.

    ``stored`` is the Arrow type of the Parquet column of ``field``. Unreliable bounds are ``None``.
    """
    row = row_of(field.type)
    if bounds is None or row is None or field.collation is not None:
        return UNKNOWN
    try:
        return row.footer(*bounds, stored)
    except (ValueError, TypeError, ArithmeticError, NotImplementedError, pa.ArrowException) as error:
        check_memory(error)
        return UNKNOWN
