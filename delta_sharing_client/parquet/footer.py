"""Guesses the length of Parquet footers, and parses them (Apache Parquet, "File Format")."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from delta_sharing_client.arrow_forms import is_view
from delta_sharing_client.errors import DataError, UnsupportedFeatureError, check_memory
from delta_sharing_client.int96 import int96_leaves, raw_footer, with_trailer
from delta_sharing_client.parquet.reader import ARROW_ERRORS, open_reader
from delta_sharing_client.shortcuts import SHORTCUTS
from delta_sharing_client.thrift import list_of, read_struct, skip

MAX_FOOTER = 256 * 1024 * 1024
"""Longer footers are refused; the footer for ten thousand columns in a hundred row groups has half this length."""

_TRAILER = 8
_MAGIC = b"PAR1"
_ENCRYPTED_MAGIC = b"PARE"
# Field ids (Apache Parquet, parquet.thrift): FileMetaData.key_value_metadata, and the key of an entry.
_KEY_VALUES, _KEY = 5, 1
_UNKNOWN_TYPE = "LogicalType that is not recognized"
_ARROW_SCHEMA = b"ARROW:schema"
_LEAST = 4 * 1024
_MOST = 64 * 1024
_ANY_SIZE = 1 << 62


class Footer(NamedTuple):
    """The file's metadata, its Arrow schema, the position of the footer, and its bytes without the trailer.

    ``int96`` are the numbers of the INT96 columns. In ``metadata``, and so in batches that are read with it, they are
    fixed bytes (``delta_sharing_client.int96``); in ``arrow`` they are microseconds without a time zone.
    """

    metadata: pq.FileMetaData
    arrow: pa.Schema
    start: int
    data: pa.Buffer
    int96: frozenset[int] = frozenset()


class FooterGuess:
    """Guesses the length of the next footer from previous ones; thread-safe.

    The first guess is half a percent of the file, or 160 bytes per column (typical of a column chunk with statistics)
    if that is more, within bounds.
    """

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._lock = threading.Lock()
        self._seen = 0

    def length(self, file_size: int) -> int:
        """Return how many bytes to read from the end of a file of ``file_size`` bytes, -1 if that is unknown."""
        with self._lock:
            seen = self._seen
        size = file_size if file_size >= 0 else _ANY_SIZE
        guess = seen + seen // 8 + 256 if seen else min(_MOST, max(_LEAST, size // 200, 160 * self._columns))
        return min(guess, size)

    def learn(self, length: int) -> None:
        """Record the real length of a footer, including the trailer."""
        with self._lock:
            self._seen = max(self._seen, length)

    def learn_index(self, length: int) -> None:
        """Record the length of page index and footer together, unless they are long enough for separate requests."""
        if length <= _MOST:
            self.learn(length)


def footer_length(tail: pa.Buffer, file_size: int) -> int:
    """Return the length of the footer, including the trailer, from the last bytes of a file.

    Raises ``DataError`` if the file is too short, does not end like Parquet, or is encrypted.
    """
    if tail.size < _TRAILER or file_size < _TRAILER + len(_MAGIC):
        raise DataError(f"A data file must be a Parquet file, but this file of {file_size} bytes is too short.")
    trailer = tail.slice(tail.size - _TRAILER).to_pybytes()
    length, magic = int.from_bytes(trailer[: -len(_MAGIC)], "little"), trailer[-len(_MAGIC) :]
    if magic == _ENCRYPTED_MAGIC:
        raise DataError("The Parquet file has an encrypted footer, which is not supported.")
    if magic != _MAGIC:
        raise DataError("A data file must be a Parquet file, which ends with 'PAR1', but this file does not.")
    if length + _TRAILER + len(_MAGIC) > file_size:
        raise DataError(
            f"The Parquet footer must fit in the file of {file_size} bytes, but its stated length is {length}."
        )
    if length > MAX_FOOTER:
        raise DataError(f"The Parquet footer must have at most {MAX_FOOTER} bytes, found {length}.")
    return length + _TRAILER


def parse_footer(tail: pa.Buffer, file_size: int) -> Footer:
    """Return the footer from ``tail``, the last bytes of the file, at least ``footer_length`` of them.

    Raises ``DataError`` if the footer cannot be decoded, ``UnsupportedFeatureError`` if the file has a type that the
    installed pyarrow does not know.
    """
    length = footer_length(tail, file_size)
    footer = tail.slice(tail.size - length, length)
    data = footer.to_pybytes()
    parsed, problem = None, None
    try:
        parsed = _read(data)
    except DataError as error:
        # Perhaps only the Arrow schema that the writer stored is invalid.
        problem = error
    if parsed is None or (
        not _is_plain(parsed[1]) and _any(parsed[1], _is_another_form) and not _any(parsed[1], _needs_arrow_schema)
    ):
        plain = _without_arrow_schema(data)
        if plain is not None:
            data, parsed = plain, _read(plain)
    if parsed is None:
        assert problem is not None
        raise problem
    metadata, arrow = parsed
    int96 = _int96(metadata, arrow)
    if int96:
        metadata = _without_int96(data, int96)
    return Footer(metadata, arrow, file_size - length, footer.slice(0, length - _TRAILER), int96)


def open_file(data: pa.Buffer) -> tuple[Footer, pq.ParquetReader | None]:
    """Return the footer of a complete file, and a reader of it if its types need no change.

    Opening a small file twice would increase the time of decoding it by a tenth. Errors as in ``parse_footer``.
    """
    start = data.size - footer_length(data, data.size)
    footer = data.slice(start, data.size - start - _TRAILER)
    try:
        file = open_reader(pa.BufferReader(data))
        plain = _plain_schema(file, footer)
    except ARROW_ERRORS as error:
        check_memory(error)
        plain = None
    if plain is None:
        return parse_footer(data, data.size), None  # raises the error, or works without the stored Arrow schema
    return Footer(file.metadata, plain, start, footer), file


def _read(footer: bytes) -> tuple[pq.FileMetaData, pa.Schema]:
    try:
        # The reader expects a whole file; a footer after the magic number is enough.
        file = open_reader(pa.BufferReader(_MAGIC + footer))
        metadata = file.metadata
    except ARROW_ERRORS as error:
        check_memory(error)
        if _UNKNOWN_TYPE in str(error):
            raise UnsupportedFeatureError(
                f"The file has a column of a Parquet type that pyarrow {pa.__version__} does not know. Update pyarrow: "
                "version 21 knows GEOMETRY, and version 22 VARIANT.",
                feature="Parquet types",
            ) from None
        raise DataError(f"The Parquet footer cannot be decoded: {error}.") from None
    try:
        _check_names(file.schema_arrow)
        return metadata, file.schema_arrow
    except ARROW_ERRORS as error:
        check_memory(error)
        raise DataError(f"The schema in the Parquet footer cannot be decoded: {error}.") from None


def _int96(metadata: pq.FileMetaData, arrow: pa.Schema) -> frozenset[int]:
    """Return the numbers of the INT96 columns. Most schemas have no type that such a column may have, or contain."""
    is_possible = any(pa.types.is_timestamp(kind) or kind.id not in _PLAIN for kind in arrow.types)
    return int96_leaves(metadata.schema) if is_possible else frozenset()


def _without_int96(footer: bytes, leaves: frozenset[int]) -> pq.FileMetaData:
    try:
        raw = with_trailer(raw_footer(footer[:-_TRAILER], leaves))
    except pa.ArrowInvalid as error:
        raise DataError(f"The Parquet footer cannot be decoded: {error}.") from None
    return _read(raw)[0]


def _without_arrow_schema(footer: bytes) -> bytes | None:
    """Return the footer with the key ``ARROW:schema`` renamed, ``None`` if it has none or cannot be decoded.

    With this key, writers store the Arrow types of the columns: views, dictionaries, run-end encoding, extension types.
    Arrow's reader would return these types, but it has no kernels for some of them. The Parquet types are enough.
    """

    def spans(data: bytes, at: int) -> tuple[tuple[bool, int, int], int]:
        item, after = read_struct(data, at)
        return (item.get(_KEY) == _ARROW_SCHEMA, at, after), after

    try:
        fields, _ = read_struct(footer, 0, lists={_KEY_VALUES: list_of(spans)})
        start, after = next((start, after) for is_it, start, after in fields[_KEY_VALUES] if is_it)
    except (IndexError, ValueError, TypeError, KeyError, StopIteration):
        return None
    place = footer.index(_ARROW_SCHEMA, start, after)
    return footer[:place] + _ARROW_SCHEMA.lower() + footer[place + len(_ARROW_SCHEMA) :]


# Types that need no further check; nearly all columns have them.
_PLAIN = frozenset(
    kind.id
    for kind in (
        *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
        *(pa.string(), pa.binary(), pa.date32(), pa.timestamp("us"), pa.decimal128(1)),
    )
)


def _is_plain(schema: pa.Schema) -> bool:
    if not SHORTCUTS.plain_schemas or not all(data_type.id in _PLAIN for data_type in schema.types):
        return False
    _check_names(schema)
    return True


class _KnownFooter(NamedTuple):
    """A plain schema, the bytes of a footer up to the end of its schema, and the footer's keys and values."""

    schema: pa.Schema
    beginning: bytes
    texts: dict[bytes, bytes] | None


# Files of a table usually have the same schema. With one thread per processor, asking pyarrow for the schema of every
# small file would make a read a tenth slower.
_last: list[_KnownFooter] = [_KnownFooter(pa.schema([]), b"", None)]


def _plain_schema(file: pq.ParquetReader, footer: pa.Buffer) -> pa.Schema | None:
    """Return the file's Arrow schema if it has only plain types and no INT96 column, ``None`` if not.

    Consecutive files with the same schema get the same object.
    """
    if not SHORTCUTS.plain_schemas:
        return None
    last, texts = _last[0], file.metadata.metadata
    size = len(last.beginning)
    if size and texts == last.texts and footer.slice(0, size).to_pybytes() == last.beginning:
        return last.schema
    schema = file.schema_arrow
    if not _is_plain(schema) or _int96(file.metadata, schema):
        return None
    _last[0] = _KnownFooter(schema, _beginning(footer.to_pybytes()), texts)
    return schema


def _beginning(footer: bytes) -> bytes:
    """Return the bytes of the footer's first two fields, version and schema; nothing if it begins with other fields."""
    at = 0
    for _ in range(2):
        header = footer[at]
        if header >> 4 != 1:
            return b""
        at = skip(footer, at + 1, header & 15)
    return footer[:at]


def _check_names(fields: Iterable[pa.Field]) -> None:
    """Raise ``UnicodeDecodeError`` for a name that is not UTF-8; Arrow checks the bytes only on access."""
    for field in fields:
        str(field.name)
        data_type = field.type
        if isinstance(data_type, pa.BaseExtensionType):
            data_type = data_type.storage_type
        _check_names(data_type.field(index) for index in range(data_type.num_fields))


def _any(schema: pa.Schema, is_one: Callable[[pa.DataType], bool]) -> bool:
    return any(_holds(item.type, is_one) for item in schema)


def _holds(data_type: pa.DataType, is_one: Callable[[pa.DataType], bool]) -> bool:
    """Return whether ``is_one`` is true for a type or one nested in it."""
    if isinstance(data_type, pa.BaseExtensionType):
        return is_one(data_type) or _holds(data_type.storage_type, is_one)
    below = (data_type.field(index).type for index in range(data_type.num_fields))
    return is_one(data_type) or any(_holds(item, is_one) for item in below)


def _is_another_form(data_type: pa.DataType) -> bool:
    """Return whether a type can only come from the writer's Arrow schema."""
    types = pa.types
    if types.is_nested(data_type):
        return not (types.is_list(data_type) or types.is_map(data_type) or types.is_struct(data_type))
    return (
        types.is_dictionary(data_type)
        or types.is_large_string(data_type)
        or types.is_large_binary(data_type)
        or is_view(data_type)
        or isinstance(data_type, pa.BaseExtensionType)
    )


def _needs_arrow_schema(data_type: pa.DataType) -> bool:
    """Return whether the values need the writer's Arrow schema: in Parquet, durations are plain numbers.

    Without that schema, durations are read as microseconds, as in Spark.
    """
    return bool(pa.types.is_duration(data_type)) and data_type.unit != "us"
