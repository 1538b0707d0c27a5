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
import itertools
import operator
import threading
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from delta_sharing_client.delta.data_types import ArrayType, DataType, MapType, PrimitiveType, StructType
from delta_sharing_client.delta.variant.column import variant_to_python
from delta_sharing_client.errors import UsageError
from delta_sharing_client.frame_columns import TOUCHED_BYTES, DtypeBackend, FrameColumn, frame_column

_BACKENDS = ("numpy", "numpy_nullable", "pyarrow")

# Two: one converts while the other waits for the interpreter lock; conversion is memory-bound beyond that.
_CONVERSION_THREADS = 2
# Of the memory to be filled, taken while waiting for the first rows: a server's count of rows may be wrong.
_MOST_TOUCHED_BYTES = 256 * 1024 * 1024


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
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    dtype_backend: DtypeBackend = "numpy",
    rows: int | None = None,
) -> pd.DataFrame:
    """Return the rows of ``batches`` as one frame with a fresh ``RangeIndex``.

    Parameters
    ----------
    schema:
        Arrow schema of every batch; it alone decides names, order and dtypes, also when there is no batch.
    batches:
        The rows. Arrow memory is released as soon as its pandas form exists.
    dtype_backend:
        ``numpy``, ``numpy_nullable`` or ``pyarrow``, as in pandas' own readers.
    rows:
        How many rows will come, ``None`` where that is not known: with it, memory is taken once and filled as the
        batches arrive. A wrong number costs time, nothing else.
    """
    with concurrent.futures.ThreadPoolExecutor(_CONVERSION_THREADS, thread_name_prefix="to-pandas") as pool:
        arrived = threading.Event()
        making = pool.submit(_make_columns, schema, rows, dtype_backend, arrived.is_set)
        length = 0
        for batch in batches:
            arrived.set()
            length += batch.num_rows
            for column, array in zip(making.result(), batch.columns, strict=True):
                column.append(array)
            del batch
        arrived.set()
        arrays = list(pool.map(operator.methodcaller("finish"), making.result()))
        del making
    # Positions as keys first: a schema may hold names that differ only in a way that a dict would merge.
    frame = pd.DataFrame(dict(enumerate(arrays)), index=pd.RangeIndex(length), copy=False)
    frame.columns = pd.Index(schema.names, dtype=object) if not schema.names else pd.Index(schema.names)
    return frame


def _make_columns(
    schema: pa.Schema, rows: int | None, dtype_backend: DtypeBackend, arrived: Callable[[], bool]
) -> list[FrameColumn]:
    """Make the columns while the first rows are on their way, with as much of their memory as there is time for."""
    columns = [frame_column(field, rows, dtype_backend) for field in schema]
    left = itertools.count(_MOST_TOUCHED_BYTES // TOUCHED_BYTES, -1)
    for column in columns:
        column.touch(lambda: arrived() or next(left) <= 0)
    return columns


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
