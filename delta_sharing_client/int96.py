"""Reads INT96 timestamps: a signed 64-bit number of nanoseconds and a signed 32-bit Julian day.

Arrow and Spark write them. Arrow reads the nanoseconds as unsigned: negative ones, which pyarrow before 23 and Spark
before 1.5.1 wrote for times before 1970, become a time 584.5 years later, and days far from 1970 wrap around, both
without an error. The result cannot be told from a valid one. So Arrow is given a footer in which the columns are
FIXED_LEN_BYTE_ARRAY of 12 bytes, which are stored in the same way, and the arithmetic is done here.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Collection, Iterator
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from delta_sharing_client.instants import MICROS_PER_DAY, NANOS_PER_DAY
from delta_sharing_client.thrift import Change, encode_number, list_of, read_struct, rewritten, rewritten_list

SIZE = 12
_MAGIC = b"PAR1"
_TRAILER = 8
_EPOCH = 2_440_588  # the Julian day of 1 January 1970
_NANOS_PER_MICRO = 1000
# Days nearer to 1970 fit in 64 bits of microseconds with any time of day.
_NEAR = 106_000_000
# Rounding errors of doubles are far below this, and a number that wrapped around is off by 2 ** 64.
_WRAPPED = 2.0**60
# Field ids (Apache Parquet, parquet.thrift): FileMetaData; RowGroup; ColumnChunk; SchemaElement and ColumnMetaData.
_SCHEMA, _ROW_GROUPS = 2, 4
_COLUMNS = 1
_META_DATA = 3
_TYPE = 1
_INT96, _FIXED_LEN_BYTE_ARRAY = 3, 7
# The field type_length with the value 12, and the end of the struct. A field may be anywhere in a struct if its header
# states its id.
_LENGTH_AND_END = b"\x05\x04" + encode_number(SIZE) + b"\x00"


def int96_leaves(schema: pq.ParquetSchema) -> frozenset[int]:
    """Return the numbers of the INT96 columns of a file."""
    return frozenset(leaf for leaf in range(len(schema)) if schema.column(leaf).physical_type == "INT96")


def raw_footer(footer: bytes, leaves: Collection[int]) -> bytes:
    """Return ``footer``, the bytes of a footer without the trailer, with the INT96 columns ``leaves`` as fixed bytes.

    Raises ``pyarrow.ArrowInvalid`` if the footer cannot be decoded.
    """

    def schema(data: bytes, at: int) -> bytes:
        elements = list_of(read_struct)(data, at)[0]
        positions = [position for position, element in enumerate(elements) if element.get(_TYPE) == _INT96]
        if len(positions) != len(leaves):
            raise ValueError(f"the schema has {len(positions)} INT96 columns, not {len(leaves)}")
        return rewritten_list(data, at, dict.fromkeys(positions, _as_fixed))

    metadata: Change = functools.partial(rewritten, changes={_TYPE: _fixed_type})
    chunk: Change = functools.partial(rewritten, changes={_META_DATA: metadata})
    columns: Change = functools.partial(rewritten_list, changes=dict.fromkeys(leaves, chunk))
    group: Change = functools.partial(rewritten, changes={_COLUMNS: columns})
    groups: Change = functools.partial(rewritten_list, changes=group)
    try:
        return rewritten(footer, 0, {_SCHEMA: schema, _ROW_GROUPS: groups})
    except (IndexError, ValueError, TypeError, AttributeError) as error:
        raise pa.ArrowInvalid(f"the footer cannot be decoded, {type(error).__name__}: {error}") from None


def with_trailer(footer: bytes) -> bytes:
    """Return ``footer`` with its length and the magic number, as at the end of a file."""
    return b"".join([footer, len(footer).to_bytes(4, "little"), _MAGIC])


def _fixed_type(data: bytes, at: int) -> bytes:
    return encode_number(_FIXED_LEN_BYTE_ARRAY)


def _as_fixed(data: bytes, at: int) -> bytes:
    return rewritten(data, at, {_TYPE: _fixed_type})[:-1] + _LENGTH_AND_END


def instants(array: pa.FixedSizeBinaryArray) -> pa.TimestampArray:
    """Return INT96 values, read as fixed bytes, as microseconds without a time zone; parts of one are cut off.

    Raises ``pyarrow.ArrowInvalid`` if a value is outside of the range of 64 bits.
    """
    count, buffers = len(array), array.buffers()
    if not count:
        return pa.array([], pa.timestamp("us"))
    start = array.offset * SIZE
    nanos: Any = np.ndarray(count, "<i8", buffers[1], start, (SIZE,))
    days: Any = np.ndarray(count, "<i4", buffers[1], start + 8, (SIZE,)).astype(np.int64) - _EPOCH
    nulls = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    if nulls is not None:
        # The bytes behind nulls are meaningless.
        nanos, days = np.where(nulls, 0, nanos), np.where(nulls, 0, days)
    if nanos.min() < 0 or nanos.max() >= NANOS_PER_DAY:
        more, nanos = np.divmod(nanos, NANOS_PER_DAY)
        days = days + more
    of_day = nanos // _NANOS_PER_MICRO
    micros = days * MICROS_PER_DAY + of_day
    if days.min() < -_NEAR or days.max() > _NEAR:
        wrapped = np.abs(days.astype(np.float64) * MICROS_PER_DAY + of_day - micros) > _WRAPPED
        if wrapped.any():
            raise pa.ArrowInvalid(
                f"the INT96 timestamp {days[wrapped][0]} days after 1 January 1970 does not fit in 64 bits of "
                "microseconds"
            )
    return pa.array(micros, mask=nulls).view(pa.timestamp("us"))


class Int96File:
    """A Parquet file whose INT96 columns, also nested ones, are read as microseconds without a time zone.

    ``schema_arrow`` is the schema of the batches, ``int96`` has the dotted paths of the INT96 columns. Raises Arrow's
    errors if the file is damaged or a timestamp does not fit.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._file = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us")
        self.metadata: pq.FileMetaData = self._file.metadata
        self.schema_arrow: pa.Schema = self._file.schema_arrow
        leaves = int96_leaves(self.metadata.schema)
        self.int96 = frozenset(self.metadata.schema.column(leaf).path for leaf in leaves)
        if leaves:
            self._file = pq.ParquetFile(stream, metadata=_raw_metadata(stream, leaves))

    def iter_batches(self, *args: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        """Yield batches; parameters as in ``pyarrow.parquet.ParquetFile.iter_batches``."""
        for batch in self._file.iter_batches(*args, **options):
            if not self.int96:
                yield batch
                continue
            types = [self.schema_arrow.field(name).type for name in batch.schema.names]
            columns = [_with_instants(column, kind) for column, kind in zip(batch.columns, types, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _with_instants(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return ``array``, in which INT96 values are fixed bytes, as an array of ``kind``, or of some of its fields."""
    if array.type == kind:
        return array
    if pa.types.is_struct(kind):
        names = [field.name for field in array.type]
        children = [_with_instants(array.field(name), kind.field(name).type) for name in names]
        return pa.StructArray.from_arrays(children, names, mask=array.is_null())
    if pa.types.is_map(kind):
        entries = pa.StructArray.from_arrays(
            [_with_instants(array.keys, kind.key_type), _with_instants(array.items, kind.item_type)],
            fields=[kind.key_field, kind.item_field],
        )
        return _around(array, kind, entries)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _around(array, kind, _with_instants(array.values, kind.value_type))
    return instants(array) if pa.types.is_timestamp(kind) else array


def _around(array: pa.Array, kind: pa.DataType, values: pa.Array) -> pa.Array:
    """Return lists or maps of the type ``kind`` with the offsets of ``array`` and these values."""
    is_map = pa.types.is_map(kind)
    shown = kind if is_map else (pa.large_list if pa.types.is_large_list(kind) else pa.list_)(values.type)
    return pa.Array.from_buffers(
        shown, len(array), array.buffers()[:2], array.null_count, array.offset, children=[values]
    )


def _raw_metadata(stream: BinaryIO, leaves: Collection[int]) -> pq.FileMetaData:
    stream.seek(-_TRAILER, io.SEEK_END)
    length = int.from_bytes(stream.read(_TRAILER)[: -len(_MAGIC)], "little")
    stream.seek(-_TRAILER - length, io.SEEK_END)
    return pq.read_metadata(pa.BufferReader(_MAGIC + with_trailer(raw_footer(stream.read(length), leaves))))
