"""Converts record batches to pandas, with dtypes that depend only on the table's schema.

NumPy-backed dtypes (the default):

- integers and booleans: NumPy dtypes for NOT NULL columns, pandas' nullable ``Int8`` ... ``Int64`` and ``boolean`` for
  nullable ones, so that a null never turns an integer into a float;
- floats: ``float32``/``float64``, null as NaN;
- timestamps: ``datetime64[us, UTC]``; ``timestamp_ntz``: ``datetime64[us]``; years 1 to 9999 fit;
- strings: pandas' default string dtype (``object`` in pandas 2, ``str`` in pandas 3);
- dates, decimals, binary, nested and void: ``object``. A list is a NumPy array (of objects if integers or booleans
  contain nulls), a struct a dict, a map a list of pairs.

``docs/types.md`` has the whole table.
"""

from __future__ import annotations

import abc
import datetime
import functools
import operator
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, Optional, cast, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from delta_sharing_client.delta.data_types import ArrayType, DataType, MapType, StructType, is_variant
from delta_sharing_client.delta.variant.column import variant_to_python
from delta_sharing_client.errors import UnsupportedFeatureError, UsageError
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.plan.explain import FASTER_DECIMALS
from delta_sharing_client.shortcuts import SHORTCUTS
from delta_sharing_client.threads import mapped

DtypeBackend = Literal["numpy", "numpy_nullable", "pyarrow"]
_BACKENDS = get_args(DtypeBackend)
# Two threads: one converts while the other waits for the GIL; more would be limited by memory bandwidth.
_CONVERSION_THREADS = 2
# Batches with fewer rows than the first number are collected up to about the second, because writing a column has a
# fixed cost.
_FEW_ROWS = 8192
_TOGETHER = 65_536
# A column with more bytes than this is allocated by NumPy, not by Arrow.
_LARGE = 16 * 1024 * 1024


def to_pandas(
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    dtype_backend: DtypeBackend = "numpy",
    rows: int | None = None,
    report: ScanReport | None = None,
) -> pd.DataFrame:
    """Return the rows of ``batches`` as one frame with a new ``RangeIndex``.

    ``schema`` is the schema of every batch, and alone decides names, order and dtypes, even without batches. ``rows``
    is the number of rows, ``None`` if unknown: with it, memory is allocated once and filled as the batches arrive; a
    wrong number only costs time. Arrow memory is released as soon as its pandas form exists. If decimals take most of
    the time, ``report`` gets a note that suggests a faster way.
    """
    began = time.perf_counter()
    columns = [frame_column(field, rows, dtype_backend) for field in schema]
    length = 0
    for some in _together(batches):
        length += sum(batch.num_rows for batch in some)
        _append(columns, some)
        some.clear()
    arrays = mapped(operator.methodcaller("finish"), columns, most=_CONVERSION_THREADS, name="to-pandas")
    on_decimals = sum(column.seconds for column in columns if isinstance(column, _Decimals))
    del columns
    # The columns are first named by position, because a dict would merge equal names.
    frame = pd.DataFrame(dict(enumerate(arrays)), index=pd.RangeIndex(length), copy=False)
    frame.columns = pd.Index(schema.names)
    if report is not None and on_decimals > max(_LONG, (time.perf_counter() - began) / 2):
        report.notes = (*report.notes, f"{on_decimals:.1f} s were spent on creating decimals. {FASTER_DECIMALS}")
    return frame


def check_dtype_backend(dtype_backend: str | None) -> DtypeBackend:
    """Return ``dtype_backend``, which must be ``numpy`` (the default for ``None``), ``numpy_nullable`` or ``pyarrow``;
    otherwise raise ``UsageError``."""
    if dtype_backend is None:
        return "numpy"
    if dtype_backend in _BACKENDS:
        return cast("DtypeBackend", dtype_backend)
    raise UsageError(f"'dtype_backend' must be one of {', '.join(map(repr, _BACKENDS))}, found {dtype_backend!r}.")


def _together(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Yield the batches in order, small ones in groups; the consumer empties each list."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if batch.num_rows >= _FEW_ROWS or rows >= _TOGETHER or not SHORTCUTS.batches_together:
            del batch
            yield waiting
            waiting, rows = [], 0
    if waiting:
        yield waiting


def _append(columns: list[FrameColumn], batches: list[pa.RecordBatch]) -> None:
    if len(batches) == 1:
        for column, array in zip(columns, batches[0].columns, strict=True):
            column.append(array)
        return
    table = pa.Table.from_batches(batches)
    # Copied columns are combined first, because writing them has a fixed cost. Held columns are not, because their
    # values may not fit into one array.
    copied = [place for place, column in enumerate(columns) if column.is_copied]
    together = table.select(copied).combine_chunks()
    for place, array in zip(copied, together.columns, strict=True):
        columns[place].extend(array)
    for place, column in enumerate(columns):
        if not column.is_copied:
            column.extend(table.column(place))


def decode_variants(frame: pd.DataFrame, schema: StructType) -> pd.DataFrame:
    """Return ``frame`` with the raw structs of its ``variant`` columns, also nested ones, as Python objects."""
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
    return is_variant(data_type)


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


# === Columns ===


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
# ``PandasArray`` was the name before pandas 2.1.
_NUMPY_ARRAY: Any = getattr(pd.arrays, "NumpyExtensionArray", None) or getattr(pd.arrays, "PandasArray", None)
# Before pandas 2 there are only nanoseconds, so only the years 1677 to 2262.
HAS_UNITS = int(pd.__version__.partition(".")[0]) >= 2
_EPOCH = datetime.date(1970, 1, 1)
_FIRST_DAY = (datetime.date.min - _EPOCH).days
_LAST_DAY = (datetime.date.max - _EPOCH).days
# Date objects are created once and shared for at most this many days, about two and a half centuries.
_LONGEST_CALENDAR = 92_000
# The number of decimals of a batch that are sampled; values count as repeated if each occurs this often on average.
_LOOKED_AT = 4096
_REPEATED = 4
# A note is added if decimals took at least this many seconds.
_LONG = 1.0


class FrameColumn(abc.ABC):
    """Collects the arrays of one column in order; ``finish`` returns the pandas form.

    With ``is_copied``, each array is copied to its place immediately.
    """

    is_copied = True

    @abc.abstractmethod
    def append(self, array: pa.Array) -> None: ...

    def extend(self, array: pa.ChunkedArray) -> None:
        """Like ``append`` for each of its chunks."""
        for chunk in array.chunks:
            self.append(chunk)

    @abc.abstractmethod
    def finish(self) -> object: ...


def frame_column(field: pa.Field, rows: int | None, backend: DtypeBackend) -> FrameColumn:
    """Return the builder of one column; ``rows`` is the expected number of rows, ``None`` if unknown."""
    if pa.types.is_decimal128(field.type) and backend != "pyarrow":
        return _Decimals()
    if rows is not None and backend != "pyarrow":
        try:
            if pa.types.is_date32(field.type):
                return _Dates(field, rows)
            target = _target(field, backend)
            if target is not None:
                return _Placed(field, rows, *target)
        except (MemoryError, ValueError):
            # A server's count of rows may be wrong; the actual rows may fit.
            pass
    return _Held(field, backend)


def _target(
    field: pa.Field, backend: DtypeBackend
) -> tuple[npt.DTypeLike, Optional[pd.api.extensions.ExtensionDtype]] | None:
    """Return the NumPy dtype for building the column, and its pandas dtype if different; ``None`` if the column cannot
    be built this way."""
    arrow = field.type
    if arrow in _NULLABLE:
        wants_mask = field.nullable or backend == "numpy_nullable"
        return arrow.to_pandas_dtype(), _NULLABLE[arrow] if wants_mask else None
    if arrow in _NULLABLE_FLOATS:
        return arrow.to_pandas_dtype(), _NULLABLE_FLOATS[arrow] if backend == "numpy_nullable" else None
    if pa.types.is_timestamp(arrow) and HAS_UNITS:
        dtype = pa.array([], arrow).to_pandas().dtype
        if getattr(dtype, "unit", arrow.unit) == arrow.unit:
            return np.dtype(f"datetime64[{arrow.unit}]"), None if arrow.tz is None else dtype
    return None


class _Held(FrameColumn):
    """Keeps the Arrow arrays and converts them together at the end."""

    is_copied = False

    def __init__(self, field: pa.Field, backend: DtypeBackend) -> None:
        self._field = field
        self._backend = backend
        self._schema = pa.schema([("", field.type)])
        # Arrays are kept as one-column tables, because converting thousands of arrays one by one is slow.
        self._kept: list[pa.Table] = []

    def extend(self, array: pa.Array | pa.ChunkedArray) -> None:
        self._kept.append(pa.Table.from_arrays([array], schema=self._schema))

    append = extend

    def finish(self) -> object:
        # No reference is kept here, so that Arrow's memory is freed as soon as the pandas form exists.
        kept, self._kept = self._kept, []
        column = pa.concat_tables(kept).column(0) if kept else pa.chunked_array([], self._field.type)
        kept.clear()
        if self._backend == "pyarrow":
            return pd.array(column, dtype=pd.ArrowDtype(column.type))
        return _convert(self._field, column, self._backend)


class _Filled(FrameColumn):
    """Writes rows into memory for the expected number of rows, and extends it if there are more."""

    def __init__(self, rows: int, dtype: npt.DTypeLike) -> None:
        self._values: npt.NDArray[Any] = _empty(rows, dtype)
        self._length = 0

    def _resize(self, rows: int) -> None:
        kept = min(rows, self._length)
        values = _empty(rows, self._values.dtype)
        values[:kept] = self._values[:kept]
        self._values = values

    def _next(self, rows: int) -> npt.NDArray[Any]:
        """Return the part of the array for the next ``rows`` rows."""
        start, stop = self._length, self._length + rows
        if stop > len(self._values):
            self._resize(max(stop, len(self._values) * 2))
        self._length = stop
        return self._values[start:stop]

    def _filled(self) -> npt.NDArray[Any]:
        if self._length < len(self._values):
            self._resize(self._length)
        return self._values


def _empty(rows: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an uninitialized array. Arrow reuses the memory of earlier reads, which the system need not clear
    again; NumPy uses huge pages for large arrays, which the system clears faster."""
    numpy_dtype = np.dtype(dtype)
    size = rows * numpy_dtype.itemsize
    if numpy_dtype.hasobject or not 0 < size <= _LARGE:
        return np.empty(rows, numpy_dtype)
    return np.frombuffer(pa.allocate_buffer(size), numpy_dtype)


class _Placed(_Filled):
    """Copies numbers, booleans and timestamps into memory that pandas takes over."""

    def __init__(
        self, field: pa.Field, rows: int, dtype: npt.DTypeLike, pandas_dtype: pd.api.extensions.ExtensionDtype | None
    ) -> None:
        super().__init__(rows, dtype)
        self._field = field
        self._wanted = pandas_dtype
        self._mask: npt.NDArray[np.bool_] | None = None
        # NumPy's floats and timestamps have a null value; other types need a mask.
        beside = field.type in _NULLABLE or pandas_dtype in _NULLABLE_FLOATS.values()
        zero = False if pa.types.is_boolean(field.type) else 0
        self._filler = pa.scalar(zero, field.type) if beside else None

    def append(self, array: pa.Array) -> None:
        start, values = self._length, self._next(len(array))
        if self._filler is not None and array.null_count:
            self._nulls()[start : self._length] = array.is_null().to_numpy(zero_copy_only=False)
            array = pc.fill_null(array, self._filler)
        values[:] = array.to_numpy(zero_copy_only=False)

    def finish(self) -> object:
        values, pandas_dtype = self._filled(), self._wanted
        if isinstance(pandas_dtype, pd.DatetimeTZDtype):
            return pd.array(values.view(np.int64), dtype=pandas_dtype, copy=False)
        if pandas_dtype is not None:
            build: Any = pandas_dtype.construct_array_type()
            return build(values, self._nulls(), copy=False)
        if self._mask is not None:
            # A NOT NULL column that has nulls gets the dtype that pandas would choose.
            return pa.array(values, self._field.type, mask=self._mask).to_numpy(zero_copy_only=False)
        return values

    def _nulls(self) -> npt.NDArray[np.bool_]:
        if self._mask is None:
            self._mask = np.zeros(len(self._values), np.bool_)
        return self._mask

    def _resize(self, rows: int) -> None:
        super()._resize(rows)
        if self._mask is not None:
            kept = min(rows, self._length)
            mask = np.zeros(rows, np.bool_)
            mask[:kept] = self._mask[:kept]
            self._mask = mask


class _Dates(_Filled):
    """Python dates; rows of the same day share one object from a growing calendar."""

    def __init__(self, field: pa.Field, rows: int) -> None:
        super().__init__(rows, object)
        self._field = field
        self._first = 0
        self._calendar: npt.NDArray[np.object_] = np.empty(0, object)

    def append(self, array: pa.Array) -> None:
        self._place(array, self._next(len(array)))

    def finish(self) -> object:
        # With this wrapper, pandas does not infer a different dtype.
        return _NUMPY_ARRAY(self._filled())

    def _place(self, array: pa.Array, values: npt.NDArray[np.object_]) -> None:
        nulls = array.null_count
        if nulls < len(array):
            days = array.view(pa.int32())
            ends = pc.min_max(days)
            first, last = ends["min"].as_py(), ends["max"].as_py()
            if self._covers(first, last, len(array)):
                numbers = (pc.fill_null(days, first) if nulls else days).to_numpy()
                # All days are in the calendar; 'clip' only avoids a copy in numpy.
                np.take(self._calendar, numbers - self._first, out=values, mode="clip")
                if nulls:
                    values[array.is_null().to_numpy(zero_copy_only=False)] = None
                return
        made = _as_objects(self._field, lambda: array.to_pandas())
        values[:] = made.to_numpy(dtype=object)

    def _covers(self, first: int, last: int, rows: int) -> bool:
        """Return whether the calendar has the days ``first`` to ``last``, after extending it if that saves time for
        ``rows`` rows."""
        length = len(self._calendar)
        if self._first <= first and last < self._first + length:
            return True
        if length:
            first, last = min(first, self._first), max(last, self._first + length - 1)
        days = last - first + 1
        if first < _FIRST_DAY or last > _LAST_DAY or days > _LONGEST_CALENDAR:
            return False
        if days - length > max(8 * rows, len(self._values)):
            return False
        self._calendar = np.arange(first, last + 1).astype("datetime64[D]").astype(object)
        self._first = first
        return True


class _Decimals(FrameColumn):
    """Decimals, created as the batches arrive, which took ``seconds``; rows with equal values share objects."""

    def __init__(self) -> None:
        self._made: list[npt.NDArray[np.object_]] = []
        self.seconds = 0.0

    def append(self, array: pa.Array) -> None:
        began = time.perf_counter()
        self._made.append(_decimals(array))
        self.seconds += time.perf_counter() - began

    def finish(self) -> object:
        made, self._made = self._made, []
        return _NUMPY_ARRAY(np.concatenate(made) if made else np.empty(0, object))


def _decimals(array: pa.Array) -> npt.NDArray[np.object_]:
    """Return the values as ``decimal.Decimal``, null as ``None``.

    Creating an object takes ten times as long as looking up an existing one, but finding equal values takes longer
    than creating objects if few are equal. So some of the values are sampled first.
    """
    some = array.slice(0, _LOOKED_AT)
    if len(some.unique()) * _REPEATED > len(some):
        return array.to_pandas().to_numpy(dtype=object)
    encoded = array.dictionary_encode()
    values = np.empty(len(encoded.dictionary) + 1, object)
    values[:-1] = encoded.dictionary.to_pandas().to_numpy(dtype=object)
    # The last position stands for null.
    return values[encoded.indices.fill_null(len(values) - 1).to_numpy()]


def _convert(field: pa.Field, column: pa.ChunkedArray, backend: DtypeBackend) -> object:
    nullable = backend == "numpy_nullable" or field.nullable
    dtype = _NULLABLE.get(column.type)
    if dtype is None and backend == "numpy_nullable":
        dtype = _NULLABLE_FLOATS.get(column.type)
        if dtype is None and pa.types.is_string(column.type):
            strings: Any = pd.StringDtype()
            return strings.__from_arrow__(column)
    if dtype is not None and nullable:
        return _masked(column, dtype)
    if pa.types.is_null(column.type):
        return np.full(len(column), None, dtype=object)
    if dtype is not None or pa.types.is_floating(column.type):
        return _writable(column)
    if not HAS_UNITS:
        column = _in_nanoseconds(field, column)
    if _nanoseconds_within(column.type):
        # Inside structs and maps, pyarrow would return integers for timestamps in nanoseconds.
        values = np.empty(len(column), dtype=object)
        for row, value in enumerate(_as_objects(field, column.to_pylist)):
            values[row] = value
        return values
    # Inside lists, maps and structs too, an integer next to a null must not become a float.
    return _as_objects(field, lambda: column.to_pandas(integer_object_nulls=True)).array


def _as_objects(field: pa.Field, make: Callable[[], Any]) -> Any:
    """Return ``make()``; raise ``UnsupportedFeatureError`` for a value that Python cannot represent."""
    try:
        return make()
    except (ValueError, OverflowError) as error:
        raise UnsupportedFeatureError(
            f"The column '{field.name}' of type {field.type} has a value that Python cannot represent ({error}): "
            "dates and times in Python have the years 1 to 9999. Read it with to_arrow(), or with "
            "to_pandas(dtype_backend='pyarrow').",
            feature="dates beyond the years 1 to 9999",
        ) from None


def _nanoseconds_within(kind: pa.DataType, *, below: bool = False) -> bool:
    """Return whether a struct or a map in ``kind`` (or above it, if ``below``) contains timestamps in nanoseconds."""
    if pa.types.is_timestamp(kind):
        return below and kind.unit == "ns"
    below = below or pa.types.is_struct(kind) or pa.types.is_map(kind)
    return any(_nanoseconds_within(kind.field(index).type, below=below) for index in range(kind.num_fields))


def _in_nanoseconds(field: pa.Field, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert times to nanoseconds, which pandas 1 needs. Raises ``UnsupportedFeatureError`` for values outside their
    range."""
    unit: Callable[[str], pa.DataType]
    if pa.types.is_timestamp(column.type):
        unit = functools.partial(pa.timestamp, tz=column.type.tz)
    elif pa.types.is_duration(column.type):
        unit = pa.duration
    else:
        return column
    try:
        return column.cast(unit("ns"))
    except pa.ArrowInvalid:
        raise UnsupportedFeatureError(
            f"The column '{field.name}' has times outside the range of pandas {pd.__version__}, which stores "
            "nanoseconds: the years 1677 to 2262. Update to pandas 2, or read with to_arrow().",
            feature="timestamps in microseconds",
        ) from None


def _writable(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    values: npt.NDArray[Any] = column.to_numpy()
    # For a single chunk without nulls, the array is Arrow's own memory, which is read-only.
    return values if values.flags.writeable else values.copy()


def _masked(column: pa.ChunkedArray, dtype: pd.api.extensions.ExtensionDtype) -> object:
    """Build a pandas masked array from Arrow memory without converting to floats or Python objects."""
    if column.null_count:
        mask = column.is_null().to_numpy()
        filler = pa.scalar(False if pa.types.is_boolean(column.type) else 0, type=column.type)
        column = pc.fill_null(column, filler)
    else:
        mask = np.zeros(len(column), dtype=bool)
    values = _writable(column)
    build: Any = dtype.construct_array_type()
    return build(values, mask, copy=False)
