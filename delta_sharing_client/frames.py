"""Record batches to pandas, with dtypes that the table's schema decides and the data never changes.

NumPy-backed dtypes (the default):

- integers and booleans: NumPy dtypes for NOT NULL columns, pandas' nullable ``Int8`` ... ``Int64`` and ``boolean`` for
  nullable ones, so that a null never turns an integer into a float;
- floats: ``float32``/``float64``, null as NaN;
- timestamps: ``datetime64[us, UTC]``; ``timestamp_ntz``: ``datetime64[us]``; years 1 to 9999 fit;
- strings: pandas' own default string dtype (``object`` in pandas 2, ``str`` in pandas 3);
- dates, decimals, binary, nested and void: ``object``. A list is a NumPy array (of objects where whole numbers or
  booleans have nulls among them), a struct a dict, a map a list of pairs.

``docs/types.md`` has the whole table.
"""

from __future__ import annotations

import concurrent.futures
import functools
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from delta_sharing_client.delta.data_types import ArrayType, DataType, MapType, PrimitiveType, StructType
from delta_sharing_client.delta.variant import variant_to_python
from delta_sharing_client.errors import UsageError

DtypeBackend = Literal["numpy", "numpy_nullable", "pyarrow"]

_NULLABLE: dict[pa.DataType, pd.api.extensions.ExtensionDtype] = {
    pa.int8(): pd.Int8Dtype(),
    pa.int16(): pd.Int16Dtype(),
    pa.int32(): pd.Int32Dtype(),
    pa.int64(): pd.Int64Dtype(),
    pa.bool_(): pd.BooleanDtype(),
}
_NULLABLE_FLOATS: dict[pa.DataType, pd.api.extensions.ExtensionDtype] = {
    pa.float32(): pd.Float32Dtype(),
    pa.float64(): pd.Float64Dtype(),
}
_BACKENDS = ("numpy", "numpy_nullable", "pyarrow")

# Two: one converts while the other waits for the interpreter lock; conversion is memory-bound beyond that.
_CONVERSION_THREADS = 2


def check_dtype_backend(dtype_backend: str | None) -> DtypeBackend:
    """Return ``dtype_backend`` as one of ``numpy`` (also for ``None``), ``numpy_nullable`` and ``pyarrow``.

    Raises
    ------
    UsageError
        For anything else.
    """
    if dtype_backend is None:
        return "numpy"
    for known in _BACKENDS:
        if dtype_backend == known:
            return known  # type: ignore[return-value]
    raise UsageError(f"dtype_backend must be one of {', '.join(map(repr, _BACKENDS))}, found {dtype_backend!r}")


def to_pandas(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], dtype_backend: DtypeBackend = "numpy"
) -> pd.DataFrame:
    """Return the rows of ``batches`` as one frame with a fresh ``RangeIndex``.

    Parameters
    ----------
    schema:
        Arrow schema of every batch; it alone decides names, order and dtypes, also when there is no batch.
    batches:
        The rows. Each column's Arrow memory is released as soon as its pandas form exists.
    dtype_backend:
        ``numpy``, ``numpy_nullable`` or ``pyarrow``, as in pandas' own readers.
    """
    columns = _columns(schema, batches)
    rows = columns.rows
    if dtype_backend == "pyarrow":
        arrays: list[object] = [pd.array(chunk, dtype=pd.ArrowDtype(chunk.type)) for chunk in columns.drain()]
    else:
        with concurrent.futures.ThreadPoolExecutor(_CONVERSION_THREADS, thread_name_prefix="to-pandas") as pool:
            arrays = list(pool.map(functools.partial(_convert, backend=dtype_backend), schema, columns.drain()))
    index = pd.RangeIndex(rows)
    # Positions as keys first: a schema may hold names that differ only in a way that a dict would merge.
    frame = pd.DataFrame(dict(enumerate(arrays)), index=index, copy=False)
    frame.columns = pd.Index(schema.names, dtype=object) if not schema.names else pd.Index(schema.names)
    return frame


class _columns:
    """The chunks of each column; ``drain`` hands a column over and forgets it."""

    def __init__(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        chunks: list[list[pa.Array]] = [[] for _ in schema]
        self.rows = 0
        for batch in batches:
            self.rows += batch.num_rows
            for held, column in zip(chunks, batch.columns, strict=True):
                held.append(column)
        self._chunks = chunks
        self._types = list(schema.types)

    def drain(self) -> Iterator[pa.ChunkedArray]:
        for position, data_type in enumerate(self._types):
            held, self._chunks[position] = self._chunks[position], []
            yield pa.chunked_array(held, type=data_type)


def _convert(field: pa.Field, column: pa.ChunkedArray, backend: DtypeBackend) -> object:
    nullable = backend == "numpy_nullable" or field.nullable
    dtype = _NULLABLE.get(column.type)
    if dtype is None and backend == "numpy_nullable":
        dtype = _NULLABLE_FLOATS.get(column.type)
        if dtype is None and pa.types.is_string(column.type):
            return pd.array(column.to_pandas().to_numpy(dtype=object), dtype=pd.StringDtype())
    if dtype is not None and nullable:
        return _masked(column, dtype)
    if pa.types.is_null(column.type):
        return np.full(len(column), None, dtype=object)
    if dtype is not None or pa.types.is_floating(column.type):
        return column.to_numpy()
    # Inside lists, maps and structs too, a whole number next to a null must not become a float.
    return column.to_pandas(date_as_object=True, integer_object_nulls=True).array


def _masked(column: pa.ChunkedArray, dtype: pd.api.extensions.ExtensionDtype) -> object:
    """Build a pandas masked array from Arrow memory without a pass through floats or Python objects."""
    if column.null_count:
        mask = column.is_null().to_numpy()
        filler = pa.scalar(False if pa.types.is_boolean(column.type) else 0, type=column.type)
        column = pc.fill_null(column, filler)
    else:
        mask = np.zeros(len(column), dtype=bool)
    values = column.to_numpy()
    if not values.flags.writeable:
        values = values.copy()
    build: Any = dtype.construct_array_type()
    return build(values, mask, copy=False)


def decode_variants(frame: pd.DataFrame, schema: StructType) -> pd.DataFrame:
    """Return ``frame`` with the raw structs of its ``variant`` columns, nested ones too, as Python objects."""
    for position, name in enumerate(frame.columns):
        field = schema.find(name)
        if field is not None and _holds_variant(field.type):
            decoded = np.empty(len(frame), dtype=object)
            decoded[:] = [_decode_variant(value, field.type) for value in frame.iloc[:, position]]
            frame.isetitem(position, decoded)
    return frame


def _holds_variant(data_type: DataType) -> bool:
    if isinstance(data_type, StructType):
        return any(_holds_variant(field.type) for field in data_type)
    if isinstance(data_type, ArrayType):
        return _holds_variant(data_type.element)
    if isinstance(data_type, MapType):
        return _holds_variant(data_type.key) or _holds_variant(data_type.value)
    return isinstance(data_type, PrimitiveType) and data_type.name == "variant"


def _decode_variant(value: Any, data_type: DataType) -> object:
    if value is None or value is pd.NA or not _holds_variant(data_type):
        return value
    if isinstance(data_type, StructType):
        return {field.name: _decode_variant(value[field.name], field.type) for field in data_type}
    if isinstance(data_type, ArrayType):
        return [_decode_variant(item, data_type.element) for item in value]
    if isinstance(data_type, MapType):
        return [(_decode_variant(k, data_type.key), _decode_variant(v, data_type.value)) for k, v in value]
    return variant_to_python(value["value"], value["metadata"])
