"""Makes an excerpt of a Parquet file: some columns of one row group as a small file of their own.

Other libraries only read whole files. The excerpt's footer is the file's, with new positions of the included chunks
(Apache Parquet, "File Format" and parquet.thrift). The metadata of the other chunks is unchanged, but their bytes are
missing.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from delta_sharing_client.parquet.chunks import ColumnChunk
from delta_sharing_client.parquet.page_index import DATA_PAGE, DATA_PAGE_V2, UNREADABLE, read_page_header
from delta_sharing_client.parquet.thrift import encode_varint, list_header, number, skip, varint

_MAGIC = b"PAR1"
# Field ids (Apache Parquet, parquet.thrift): FileMetaData; RowGroup; ColumnChunk; ColumnMetaData.
_NUM_ROWS, _ROW_GROUPS, _KEY_VALUES = 3, 4, 5
_COLUMNS = 1
_FILE_OFFSET, _META_DATA = 2, 3
_DATA_PAGE, _DICTIONARY_PAGE = 9, 11
_NO_STRUCTS, _ONE_STRUCT = b"\x0c", b"\x1c"

_Change = Callable[[bytes, int], bytes]
"""Returns the bytes that replace the value at a position."""


def excerpt(footer: bytes, group: int, rows: int, chunks: Mapping[int, tuple[ColumnChunk, Any]]) -> bytes:
    """Return a Parquet file with only the row group ``group``, which has ``rows`` rows.

    It contains ``chunks``, the column chunks of some leaves with their bytes. ``footer`` is the footer of the original
    file without its trailer. Raises one of ``UNREADABLE`` if it cannot be decoded.
    """
    parts: list[Any] = [_MAGIC]
    position = len(_MAGIC)
    moved = {}
    for leaf, (chunk, data) in chunks.items():
        move = functools.partial(_moved, by=position - chunk.start)
        metadata = functools.partial(_rewritten, changes={_DATA_PAGE: move, _DICTIONARY_PAGE: move})
        moved[leaf] = functools.partial(_rewritten, changes={_FILE_OFFSET: move, _META_DATA: metadata})
        parts.append(data)
        position += len(data)
    columns = functools.partial(_rewritten_list, changes=moved)
    row_group = functools.partial(_rewritten, changes={_COLUMNS: columns})
    changes: dict[int, _Change] = {
        _NUM_ROWS: lambda data, at: _number(rows),
        _ROW_GROUPS: lambda data, at: _ONE_STRUCT + row_group(data, _element(data, at, group)),
        # These are left out, because the writer's Arrow schema may have types that Parquet does not have.
        _KEY_VALUES: lambda data, at: _NO_STRUCTS,
    }
    changed = _rewritten(footer, 0, changes)
    return b"".join([*parts, changed, len(changed).to_bytes(4, "little"), _MAGIC])


def _rewritten(data: bytes, at: int, changes: Mapping[int, _Change]) -> bytes:
    """Return the struct at ``at``, in which ``changes`` replace the values of some fields."""
    parts = []
    field, last = 0, at
    while header := data[at]:
        at += 1
        if header >> 4:
            field += header >> 4
        else:
            step, at = varint(data, at)
            field = step >> 1 ^ -(step & 1)
        after = skip(data, at, header & 15)
        if field in changes:
            parts += [data[last:at], changes[field](data, at)]
            last = after
        at = after
    return b"".join([*parts, data[last : at + 1]])


def _rewritten_list(data: bytes, at: int, changes: Mapping[int, _Change]) -> bytes:
    """Return the list of structs at ``at``, in which ``changes`` replace some elements."""
    parts, last = [], at
    count, kind, at = list_header(data, at)
    for element in range(count):
        after = skip(data, at, kind)
        if element in changes:
            parts += [data[last:at], changes[element](data, at)]
            last = after
        at = after
    return b"".join([*parts, data[last:at]])


def _element(data: bytes, at: int, place: int) -> int:
    count, kind, at = list_header(data, at)
    if place >= count:
        raise ValueError("there is no such row group")
    for _ in range(place):
        at = skip(data, at, kind)
    return at


def _moved(data: bytes, at: int, by: int) -> bytes:
    # Some writers state 0 as the file offset of a chunk.
    return _number(max(0, number(data, at)[0] + by))


def _number(value: int) -> bytes:
    return encode_varint(value << 1)


def unpacked_size(chunk: ColumnChunk, data: Any) -> int | None:
    """Return the total unpacked size of a chunk's pages.

    ``None`` if a page has no checksum or a wrong one, a header cannot be decoded, or the number of values or bytes
    contradicts the footer.
    """
    at = size = values = 0
    try:
        while values < chunk.values:
            page, at = read_page_header(data, at)
            body = data[at : at + page.compressed]
            at += page.compressed
            if page.checksum is None or zlib.crc32(body) != page.checksum & 0xFFFFFFFF:
                return None
            size += page.uncompressed
            values += page.values if page.kind in (DATA_PAGE, DATA_PAGE_V2) else 0
    except UNREADABLE:
        return None
    return size if values == chunk.values and at == len(data) else None
