"""The first rows of a read in the order of one of its columns, in the memory of these rows and one batch."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from delta_sharing_client.errors import UsageError

# Batches are sorted together with the rows found so far; many small ones would sort these too often.
_SORTED_AT_ONCE = 65_536
_BY_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_binary)
_ORDERED = (
    *(pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean, pa.types.is_temporal),
    *_BY_TEXT,
)


def check_order(field: pa.Field) -> None:
    """Raise ``UsageError`` if values of ``field`` have no order."""
    if not any(has_order(field.type) for has_order in _ORDERED):
        raise UsageError(f"Rows cannot be sorted by the column '{field.name}', whose values have no order.")


def first_sorted(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, column: int, *, is_descending: bool, rows: int
) -> pa.Table:
    """Return the first ``rows`` rows in the order of the column with the index ``column``. Null values come last, and
    NaN before them; rows with equal values keep their order."""
    best = schema.empty_table()
    keys = [("key", "descending" if is_descending else "ascending")]
    for table in _tables(batches, schema):
        both = pa.concat_tables([best, table])
        key = pa.table({"key": both.column(column)})
        # The order is stable, and the rows found so far come first.
        best = both.take(pc.sort_indices(key, sort_keys=keys)[:rows]).combine_chunks()
    return best


def _tables(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterable[pa.Table]:
    iterator = iter(batches)
    for first in iterator:
        group, size = [first], first.num_rows
        while size < _SORTED_AT_ONCE and (more := next(iterator, None)) is not None:
            group.append(more)
            size += more.num_rows
        yield pa.Table.from_batches(group, schema)
