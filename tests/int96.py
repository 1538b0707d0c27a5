"""Write INT96 timestamps with any bytes: Arrow writes only some of those that other programs have written."""

from __future__ import annotations

import datetime
import functools
import io
import pathlib
import struct
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from delta_sharing_client.thrift import Change, encode_number, list_of, read_struct, rewritten, rewritten_list

JULIAN_EPOCH = 2_440_588  # the Julian day of 1 January 1970
NANOS_PER_DAY = 86_400 * 10**9
RAW = pa.binary(12)
_EPOCH = datetime.datetime(1970, 1, 1)
_MICRO = datetime.timedelta(microseconds=1)
_TRAILER = 8


def packed(days: int, nanos: int) -> bytes:
    """Return the bytes of ``nanos`` nanoseconds after the beginning of a day, counted from 1 January 1970."""
    return struct.pack("<qi", nanos, days + JULIAN_EPOCH)


def negative(value: datetime.datetime) -> bytes:
    """Return a time as negative nanoseconds after the beginning of the next day.

    pyarrow before 23 and Spark before 1.5.1 wrote times before 1970 in this way.
    """
    days, micros = divmod((value.replace(tzinfo=None) - _EPOCH) // _MICRO, NANOS_PER_DAY // 1000)
    return packed(days + 1, micros * 1000 - NANOS_PER_DAY)


def int96_bytes(rows: pa.Table, **options: Any) -> bytes:
    """Return a Parquet file in which the columns of 12 fixed bytes are INT96; ``options`` are those of pyarrow."""
    sink = io.BytesIO()
    pq.write_table(rows, sink, **{"write_statistics": False, **options})
    data = sink.getvalue()
    start = len(data) - _TRAILER - int.from_bytes(data[-_TRAILER:-4], "little")
    schema = pq.read_metadata(pa.BufferReader(data)).schema
    leaves = [leaf for leaf in range(len(schema)) if schema.column(leaf).length == RAW.byte_width]
    # parquet.thrift: FileMetaData has 2 schema, 4 row_groups; RowGroup has 1 columns; ColumnChunk has 3 meta_data;
    # SchemaElement and ColumnMetaData have 1 type.
    of_type: Change = functools.partial(rewritten, changes={1: lambda data, at: encode_number(3)})
    chunk: Change = functools.partial(rewritten, changes={3: of_type})
    columns: Change = functools.partial(rewritten_list, changes=dict.fromkeys(leaves, chunk))
    group: Change = functools.partial(rewritten, changes={1: columns})
    groups: Change = functools.partial(rewritten_list, changes=group)
    footer = rewritten(data[start:-_TRAILER], 0, {2: _elements, 4: groups})
    return data[:start] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def _elements(data: bytes, at: int) -> bytes:
    elements = list_of(read_struct)(data, at)[0]
    fixed = [place for place, element in enumerate(elements) if element.get(1) == 7 and element.get(2) == 12]
    # INT96 has no length.
    return rewritten_list(data, at, dict.fromkeys(fixed, _as_int96))


def _as_int96(data: bytes, at: int) -> bytes:
    element = rewritten(data, at, {1: lambda data, at: encode_number(3)})
    length = b"\x15" + encode_number(RAW.byte_width)
    assert element.startswith(b"\x15\x06" + length), "the element begins with its type and length"
    after = element[2 + len(length)]
    # The header of the next field states how far its id is from that of the field before.
    return element[:2] + bytes([after + 0x10]) + element[3 + len(length) :]


def write_int96(rows: pa.Table, path: pathlib.Path, **options: Any) -> None:
    """Write the file that ``int96_bytes`` returns."""
    path.write_bytes(int96_bytes(rows, **options))
