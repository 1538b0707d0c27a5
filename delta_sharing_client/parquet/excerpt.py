"""Makes an excerpt of a Parquet file: some columns of one row group as a small file of their own.

Other libraries only read whole files. The excerpt's footer is the file's, with new positions of the included chunks
(Apache Parquet, "File Format" and parquet.thrift). The metadata of the other chunks is unchanged, but their bytes are
missing.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Mapping
from typing import Any

from delta_sharing_client.int96 import with_trailer
from delta_sharing_client.parquet.chunks import ColumnChunk
from delta_sharing_client.parquet.page_index import DATA_PAGE, DATA_PAGE_V2, UNREADABLE, read_page_header
from delta_sharing_client.thrift import Change, encode_number, list_header, number, rewritten, rewritten_list, skip

_MAGIC = b"PAR1"
# Field ids (Apache Parquet, parquet.thrift): FileMetaData; RowGroup; ColumnChunk; ColumnMetaData.
_NUM_ROWS, _ROW_GROUPS, _KEY_VALUES = 3, 4, 5
_COLUMNS = 1
_FILE_OFFSET, _META_DATA = 2, 3
_DATA_PAGE, _DICTIONARY_PAGE = 9, 11
_NO_STRUCTS, _ONE_STRUCT = b"\x0c", b"\x1c"


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
        metadata = functools.partial(rewritten, changes={_DATA_PAGE: move, _DICTIONARY_PAGE: move})
        moved[leaf] = functools.partial(rewritten, changes={_FILE_OFFSET: move, _META_DATA: metadata})
        parts.append(data)
        position += len(data)
    columns = functools.partial(rewritten_list, changes=moved)
    row_group = functools.partial(rewritten, changes={_COLUMNS: columns})
    changes: dict[int, Change] = {
        _NUM_ROWS: lambda data, at: encode_number(rows),
        _ROW_GROUPS: lambda data, at: _ONE_STRUCT + row_group(data, _element(data, at, group)),
        # These are left out, because the writer's Arrow schema may have types that Parquet does not have.
        _KEY_VALUES: lambda data, at: _NO_STRUCTS,
    }
    changed = rewritten(footer, 0, changes)
    return b"".join([*parts, with_trailer(changed)])


def _element(data: bytes, at: int, place: int) -> int:
    count, kind, at = list_header(data, at)
    if place >= count:
        raise ValueError("there is no such row group")
    for _ in range(place):
        at = skip(data, at, kind)
    return at


def _moved(data: bytes, at: int, by: int) -> bytes:
    # Some writers state 0 as the file offset of a chunk.
    return encode_number(max(0, number(data, at)[0] + by))


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
