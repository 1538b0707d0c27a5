"""Parquet footers: how long they probably are, and what is in them (Apache Parquet, "File Format")."""

from __future__ import annotations

import functools
import inspect
import struct
import threading
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from delta_sharing_client.errors import DataError

_TRAILER = 8
_MAGIC = b"PAR1"
_ENCRYPTED_MAGIC = b"PARE"
_LEAST = 4 * 1024
_MOST = 64 * 1024


class Footer(NamedTuple):
    """The file's metadata, its schema as Arrow reads it, where its bytes begin, and those bytes without the trailer."""

    metadata: pq.FileMetaData
    arrow: pa.Schema
    start: int
    data: pa.Buffer


class FooterGuess:
    """Guesses the length of the next footer from those already seen; safe for many threads.

    Before any was seen: half a percent of the file, within bounds, and 160 bytes a column as writers spend on one
    column chunk with statistics.
    """

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._lock = threading.Lock()
        self._seen = 0

    def length(self, file_size: int) -> int:
        """Return how many bytes to read from the end of a file of ``file_size`` bytes (-1: unknown)."""
        with self._lock:
            seen = self._seen
        if seen:
            guess = seen + seen // 8 + 256
        elif file_size < 0:
            guess = _MOST
        else:
            guess = min(_MOST, max(_LEAST, file_size // 200, 160 * self._columns))
        return guess if file_size < 0 else min(guess, file_size)

    def learn(self, length: int) -> None:
        """Take note of a footer's real length, trailer included."""
        with self._lock:
            self._seen = max(self._seen, length)

    def learn_index(self, length: int) -> None:
        """Take note of the length of page index and footer, where both were needed; long ones are asked for apart."""
        if length <= _MOST:
            self.learn(length)


def footer_length(tail: pa.Buffer, file_size: int) -> int:
    """Return the length of the footer, trailer included, from the last bytes of a file.

    Raises
    ------
    DataError
        The file is too short, does not end as Parquet does, or is encrypted.
    """
    if tail.size < _TRAILER or file_size < _TRAILER + len(_MAGIC):
        raise DataError(f"A data file must be a Parquet file; this one of {file_size} bytes is too short.")
    length, magic = struct.unpack("<I4s", tail.slice(tail.size - _TRAILER, _TRAILER).to_pybytes())
    if magic == _ENCRYPTED_MAGIC:
        raise DataError("The Parquet file has an encrypted footer, which this client does not read.")
    if magic != _MAGIC:
        raise DataError("A data file must be a Parquet file, which ends with 'PAR1'; this one does not.")
    if length + _TRAILER + len(_MAGIC) > file_size:
        raise DataError(f"The Parquet footer says it has {length} bytes, more than the file's {file_size}.")
    return int(length) + _TRAILER


def parse_footer(tail: pa.Buffer, file_size: int) -> Footer:
    """Return the footer from ``tail``, the last bytes of the file, at least ``footer_length`` of them.

    Raises
    ------
    DataError
        The footer does not decode.
    """
    length = footer_length(tail, file_size)
    footer = tail.slice(tail.size - length, length)
    try:
        # A reader wants a whole file; a footer behind the magic number is one for this purpose.
        file = pq.ParquetFile(_as_file(footer), pre_buffer=False, **reader_settings())
        metadata = file.metadata
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"The Parquet footer does not decode: {error}.") from None
    try:
        arrow = file.schema_arrow
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"The schema in the Parquet footer does not decode: {error}.") from None
    return Footer(metadata, arrow, file_size - length, footer.slice(0, length - _TRAILER))


@functools.cache
def reader_settings() -> dict[str, object]:
    """Return the settings of the Parquet reader that make its types exact.

    INT96 becomes microseconds, as Spark reads it, so that years beyond the range of nanoseconds stay right.
    """
    settings: dict[str, object] = {"coerce_int96_timestamp_unit": "us", "page_checksum_verification": True}
    # Absent before the release of pyarrow that turned UUID and JSON columns into extension types.
    if "arrow_extensions_enabled" in inspect.signature(pq.ParquetFile.__init__).parameters:
        settings["arrow_extensions_enabled"] = False
    return settings


def _as_file(footer: pa.Buffer) -> pa.BufferReader:
    return pa.BufferReader(pa.py_buffer(_MAGIC + footer.to_pybytes()))
