"""Reads row groups with Polars' own Parquet reader, in a third of the time of Arrow's, if the rows become Polars
frames. ``SHORTCUTS.polars_reader`` turns it on; it is off by default.

It is used for flat columns of types that both libraries read alike, with bytes that this package downloaded and
checked. Text becomes Arrow's string views, which Polars takes without a copy. Row groups that it cannot read are read
by Arrow, which also reports the errors.
"""

from __future__ import annotations

import functools
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from delta_sharing_client import optional
from delta_sharing_client.arrow_forms import is_view
from delta_sharing_client.errors import check_memory
from delta_sharing_client.parquet.excerpt import excerpt, unpacked_size
from delta_sharing_client.parquet.page_index import UNREADABLE
from delta_sharing_client.read.layout import Layout

# Before Polars 2, a query that waits for this reader may occupy the threads that the reader needs.
_LEAST_VERSION = 2
# The minimum number of rows of a row group for which calling another library pays off.
_LEAST_ROWS = 16_384
# Bytes per value in a column of views.
_VIEW = 16
_VIEWS = {pa.string(): pa.string_view()} if hasattr(pa, "string_view") else {}
_TYPES: dict[str, tuple[Any, ...]] = {
    "BOOLEAN": (pa.bool_(),),
    "INT32": (pa.int8(), pa.int16(), pa.int32(), pa.date32()),
    "INT64": (pa.int64(), pa.timestamp("us"), pa.timestamp("us", "UTC")),
    "FLOAT": (pa.float32(),),
    "DOUBLE": (pa.float64(),),
    "BYTE_ARRAY": (pa.string(),),
}
"""The types that are read, by physical type. Decimals that are stored as INT32 or INT64 are read too."""


@functools.cache
def is_usable() -> bool:
    """Return whether the installed versions of Polars and pyarrow can be used together here."""
    polars = optional.load("polars", "polars")
    return bool(_VIEWS) and int(polars.__version__.split(".")[0]) >= _LEAST_VERSION


def names_of(layout: Layout, group: int) -> list[str] | None:
    """Return the names of the columns to read from a row group, or ``None`` if Arrow must read it."""
    if not layout.leaves or group in layout.pages or layout.rows(group) < _LEAST_ROWS:
        return None
    schema, arrow = layout.footer.metadata.schema, layout.footer.arrow
    columns = [schema.column(leaf) for leaf in layout.leaves]
    if len(set(arrow.names)) < len(arrow.names) or not all(map(_is_flat, columns)):
        return None
    fields = [arrow.field(column.name) for column in columns]
    for leaf, column, field in zip(layout.leaves, columns, fields, strict=True):
        if field.type not in _TYPES.get(column.physical_type, ()) and not _is_integer_decimal(column, field.type):
            return None
        # Text that is converted, or compared with equality deletes, must not become views: those steps do not support
        # them.
        if field.type in _VIEWS and leaf not in layout.alignment.texts:
            return None
    return [column.name for column in columns]


def _is_flat(column: pq.ColumnSchema) -> bool:
    return column.path == column.name and not column.max_repetition_level and column.max_definition_level <= 1


def _is_integer_decimal(column: pq.ColumnSchema, arrow: pa.DataType) -> bool:
    return column.physical_type in ("INT32", "INT64") and bool(pa.types.is_decimal(arrow))


def read_group(layout: Layout, group: int, names: list[str], chunks: dict[int, memoryview], most: int) -> Any:
    """Return the columns ``names`` of a row group as one record batch, or ``None`` if Arrow must read them.

    ``chunks`` has the bytes of each Parquet column. Arrow must also read them if the checksum of a page is wrong, or if
    the rows would take more than ``most`` bytes.
    """
    rows = layout.rows(group)
    size = 0
    parts = {}
    for leaf, data in chunks.items():
        chunk = layout.chunks.get(group, leaf)
        unpacked = unpacked_size(chunk, data)
        if unpacked is None or chunk.values != rows:
            return None
        size += unpacked + rows * _VIEW
        parts[leaf] = (chunk, data)
    if size > most:
        return None
    polars = optional.load("polars", "polars")
    try:
        file = excerpt(layout.footer.data.to_pybytes(), group, rows, parts)
        frame = polars.read_parquet(file, columns=names)
        batches = frame.select(names).to_arrow(compat_level=polars.CompatLevel.newest()).to_batches()
    except (*UNREADABLE, *_errors_of(polars), pa.ArrowException, OSError) as error:
        check_memory(error)
        return None
    fields = [layout.footer.arrow.field(name).type for name in names]
    expected = [_VIEWS.get(data_type, data_type) for data_type in fields]
    if len(batches) != 1 or batches[0].num_rows != rows or batches[0].schema.types != expected:
        return None
    return batches[0]


def _errors_of(polars: Any) -> tuple[type[BaseException], ...]:
    return (polars.exceptions.PolarsError, polars.exceptions.PanicException)


def filtered(batch: pa.RecordBatch, mask: pa.BooleanArray) -> pa.RecordBatch:
    """Return the rows of ``batch`` for which ``mask`` is true; Arrow's filter does not support views."""
    if not any(map(is_view, batch.schema.types)):
        return batch.filter(mask)
    polars = optional.load("polars", "polars")
    kept = polars.from_arrow(pa.Table.from_batches([batch])).filter(polars.Series(mask))
    columns = kept.to_arrow(compat_level=polars.CompatLevel.newest()).combine_chunks()
    return pa.RecordBatch.from_arrays([column.chunk(0) for column in columns.columns], schema=batch.schema)
