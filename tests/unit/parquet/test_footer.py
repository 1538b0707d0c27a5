"""Footers and sparse files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from delta_sharing_client.errors import DataError
from delta_sharing_client.parquet import footer
from delta_sharing_client.parquet.byte_ranges import ByteBlock, SparseFile
from delta_sharing_client.parquet.footer import FooterGuess, footer_length, open_file, parse_footer
from tests.quota import meets, met
from tests.unit.storages import parquet_bytes
from tests.versions import TAKES_VIEWS


def test_a_footer_is_read_from_a_tail_of_any_length() -> None:
    data = parquet_bytes(pa.table({"a": [1, 2, 3]}))
    needed = footer_length(pa.py_buffer(data[-8:]), len(data))
    for length in (needed, needed + 7, len(data)):
        parsed = parse_footer(pa.py_buffer(data[-length:]), len(data))
        assert parsed.metadata.num_rows == 3
        assert parsed.start == len(data) - needed
        assert parsed.data.to_pybytes() == data[len(data) - needed : -8]


@pytest.mark.parametrize(
    ("tail", "size", "message"),
    [
        (b"", 0, "this file of 0 bytes is too short"),
        (b"", 100, "too short"),
        (b"PAR1", 4, "too short"),
        (b"\0\0\0PAR1", 100, "too short"),
        (b"\0\0\0\0PAR1", 11, "this file of 11 bytes is too short"),
        (b"\0\0\0\0PARX", 100, "ends with 'PAR1', but this file does not"),
        (b"\x10\0\0\0PARE", 100, "encrypted footer, which is not supported"),
        (b"\xff\xff\xff\xffPAR1", 100, "fit in the file of 100 bytes, but its stated length is 4294967295"),
        (b"\x59\0\0\0PAR1", 100, "fit in the file of 100 bytes, but its stated length is 89"),
        (b"\1\0\0\x10PAR1", 1 << 32, "must have at most 268435456 bytes, found 268435457"),
    ],
)
def test_invalid_footer_is_a_data_error(tail: bytes, size: int, message: str) -> None:
    for read in (footer_length, parse_footer):
        with pytest.raises(DataError, match=message):
            read(pa.py_buffer(tail), size)


@pytest.mark.parametrize(
    ("tail", "size", "length"),
    [
        (b"\0\0\0\0PAR1", 12, 8),
        (b"\x58\0\0\0PAR1", 100, 96),
        (b"PARE\x01\2\0\0PAR1", 1000, 521),
        (b"\0\0\0\x10PAR1", 1 << 32, (1 << 28) + 8),
    ],
)
def test_footer_length_is_read_and_limited_to_the_file_size(tail: bytes, size: int, length: int) -> None:
    assert footer_length(pa.py_buffer(tail), size) == length


def test_a_footer_that_does_not_decode_is_a_data_error() -> None:
    with pytest.raises(DataError, match="The Parquet footer cannot be decoded"):
        parse_footer(pa.py_buffer(b"garbage!\x08\0\0\0PAR1"), 100)


@pytest.mark.parametrize("name", [["zzzzzzzz"], ["outer", "zzzzzzzz"]])
def test_names_with_invalid_utf8_are_a_data_error(name: list[str]) -> None:
    """Arrow returns a schema with such names and fails when a name is read."""
    column = pa.array([1])
    for below in name[:0:-1]:
        column = pa.StructArray.from_arrays([column], [below])
    blob = parquet_bytes(pa.table({name[0]: column}), store_schema=False).replace(b"zzzzzzzz", b"zzz\xff\xffzzz")
    for read in (lambda data: parse_footer(data, data.size), open_file):
        with pytest.raises(DataError, match="The schema in the Parquet footer cannot be decoded"):
            read(pa.py_buffer(blob))


# === Files that are opened whole ===


def test_file_of_plain_types_is_opened_with_footer_and_reader() -> None:
    data = pa.py_buffer(parquet_bytes(pa.table({"a": [1, 2, 3]})))
    for _ in range(2):
        opened, reader = open_file(data)
        parsed = parse_footer(data, data.size)
        assert reader is not None
        assert reader.read_all()["a"].to_pylist() == [1, 2, 3]
        assert opened.metadata.equals(parsed.metadata)
        assert (opened.arrow, opened.start, opened.data) == (parsed.arrow, parsed.start, parsed.data)


def test_each_file_is_opened_with_its_own_schema() -> None:
    """The schemas differ in a name, a type, the order, a field id, nullability, metadata, a struct around the same
    columns, or further columns."""
    one = pa.field("a", pa.int64())
    schemas = [
        pa.schema([one, ("b", pa.int64())]),
        pa.schema([one, ("c", pa.int64())]),
        pa.schema([one, ("b", pa.int32())]),
        pa.schema([one, ("b", pa.timestamp("us"))]),
        pa.schema([one, ("b", pa.timestamp("us", "UTC"))]),
        pa.schema([("b", pa.int64()), one]),
        pa.schema([one, pa.field("b", pa.int64(), metadata={"PARQUET:field_id": "7"})]),
        pa.schema([one, pa.field("b", pa.int64(), metadata={"PARQUET:field_id": "8"})]),
        pa.schema([one, pa.field("b", pa.int64(), nullable=False)]),
        pa.schema([one, ("b", pa.int64())], {"key": "one"}),
        pa.schema([one, ("b", pa.int64())], {"key": "two"}),
        pa.schema([pa.field("s", pa.struct([one, ("b", pa.int64())]), nullable=False)]),
        pa.schema([one, ("b", pa.int64()), ("c", pa.int64())]),
        pa.schema([one]),
    ]
    written = {parquet_bytes(schema.empty_table(), store_schema=store) for schema in schemas for store in (True, False)}
    # The writer stores metadata only in its Arrow schema.
    assert len(written) == 2 * len(schemas) - 2
    files = [pa.py_buffer(data) for data in written]
    for first in files:
        for data in files:
            open_file(first)
            assert open_file(data)[0].arrow.equals(parse_footer(data, data.size).arrow, check_metadata=True)


def test_schema_is_converted_once_for_equal_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """pyarrow converts the schema of the first file only."""
    converted: list[object] = []
    is_plain = footer._is_plain
    monkeypatch.setattr(footer, "_is_plain", lambda schema: converted.append(schema) or is_plain(schema))
    files = [open_file(pa.py_buffer(parquet_bytes(pa.table({"shared": [rows]})))) for rows in range(3)]
    assert len(converted) == 1
    assert files[0][0].arrow is files[1][0].arrow is files[2][0].arrow
    assert [reader.read_all()["shared"].to_pylist() for _, reader in files if reader is not None] == [[0], [1], [2]]


@pytest.mark.parametrize("footer_bytes", [b"\x15\x04\x19\x00\x16\x00\x00", b"\x25\x04\x19\x00"])
def test_footer_prefix_is_its_first_two_fields_or_unknown(footer_bytes: bytes) -> None:
    assert footer._beginning(footer_bytes) == (b"\x15\x04\x19\x00" if footer_bytes[0] == 0x15 else b"")


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int64()), pa.duration("us"), pa.duration("ns"), pa.large_string(), pa.time64("us")], ids=str
)
def test_file_with_other_types_is_opened_without_a_reader(kind: pa.DataType) -> None:
    """A file of plain types, whose schema is cached, is opened before and after."""
    plain = pa.py_buffer(parquet_bytes(pa.table({"a": [1, 2, 3]})))
    mixed = pa.py_buffer(parquet_bytes(pa.table({"a": [1], "c": pa.nulls(1, kind)})))
    for _ in range(2):
        assert open_file(plain)[1] is not None
        opened, reader = open_file(mixed)
        assert reader is None
        assert opened.arrow == parse_footer(mixed, mixed.size).arrow


def test_file_that_does_not_open_is_a_data_error() -> None:
    data = parquet_bytes(pa.table({"a": [1]}))
    for wrong in (b"", data[:-1], b"PAR1garbage!\x08\0\0\0PAR1"):
        with pytest.raises(DataError):
            open_file(pa.py_buffer(wrong))


# === The writer's Arrow schema ===


class Tagged(pa.ExtensionType):
    """An extension type, which only the Arrow schema in the file records."""

    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, "tests.tagged")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Tagged:
        return cls(storage)


@pytest.fixture
def tagged() -> Iterator[None]:
    pa.register_extension_type(Tagged(pa.string()))
    yield
    pa.unregister_extension_type("tests.tagged")


DICTIONARY = pa.dictionary(pa.int32(), pa.string())
NANOSECONDS = pa.duration("ns")
FORMS = [
    DICTIONARY,
    pa.large_string(),
    pa.large_binary(),
    pa.large_list(pa.int64()),
    Tagged(pa.string()),
    Tagged(DICTIONARY),
    pa.list_(pa.large_string()),
    pa.struct([("a", pa.int64()), ("b", DICTIONARY)]),
    pa.list_(pa.struct([("x", pa.list_(DICTIONARY)), ("y", pa.int64())])),
]
if TAKES_VIEWS:
    # Old versions of pyarrow read maps and fixed-size lists with the writer's types.
    FORMS += [pa.list_(pa.int64(), 2), pa.map_(pa.string(), pa.large_binary())]
    FORMS += [pa.string_view(), pa.binary_view(), pa.list_(pa.string_view())]


@pytest.mark.usefixtures("tagged")
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_types_of_the_writer_become_parquet_types(form: pa.DataType) -> None:
    schema = pa.schema([("i", pa.int64()), ("c", form), ("us", pa.duration("us"))])
    data = parquet_bytes(schema.empty_table())
    bare = parquet_bytes(pa.schema([("i", pa.int64()), ("c", form)]).empty_table(), store_schema=False)
    schema_read = parse_footer(pa.py_buffer(data), len(data)).arrow
    assert schema_read.field("c") == pq.read_schema(pa.BufferReader(bare)).field("c")
    assert schema_read.field("us").type == pa.int64()


@pytest.mark.usefixtures("tagged")
@pytest.mark.parametrize(
    "needed",
    [
        NANOSECONDS,
        pa.duration("ms"),
        pa.duration("s"),
        pa.list_(NANOSECONDS),
        pa.struct([("a", pa.int64()), ("b", NANOSECONDS)]),
        *([pa.map_(pa.string(), NANOSECONDS)] if TAKES_VIEWS else []),
        Tagged(NANOSECONDS),
        pa.large_list(NANOSECONDS),
    ],
    ids=str,
)
@pytest.mark.parametrize("other", [pa.int64(), DICTIONARY], ids=str)
def test_durations_keep_the_unit_of_the_writer(needed: pa.DataType, other: pa.DataType) -> None:
    """Read as integers with the wrong unit, they would be different durations."""
    schema = pa.schema([("c", needed), ("o", other)])
    data = parquet_bytes(schema.empty_table())
    assert parse_footer(pa.py_buffer(data), len(data)).arrow.types == pq.read_schema(pa.BufferReader(data)).types


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int64()), pa.map_(pa.string(), pa.int64()), pa.struct([("a", pa.int64())])], ids=str
)
def test_arrow_schema_is_used_with_lists_maps_and_structs(kind: pa.DataType) -> None:
    schema = pa.schema([("c", kind), ("us", pa.duration("us"))])
    data = parquet_bytes(schema.empty_table())
    assert parse_footer(pa.py_buffer(data), len(data)).arrow.field("us").type == pa.duration("us")


def test_types_of_a_plain_file_are_not_checked_recursively(monkeypatch: pytest.MonkeyPatch) -> None:
    def walk(*values: object) -> bool:
        raise AssertionError("the types are walked")

    monkeypatch.setattr(footer, "_any", walk)
    data = parquet_bytes(pa.table({"a": [1]}))
    assert parse_footer(pa.py_buffer(data), len(data)).arrow.names == ["a"]


@meets(noise=5)
@given(st.binary(max_size=200))
def test_random_tails_are_a_data_error_or_a_footer(noise: bytes) -> None:
    met("noise", len(noise) > 8)
    tail = noise + len(noise).to_bytes(4, "little") + b"PAR1"
    with contextlib.suppress(DataError):
        assert isinstance(parse_footer(pa.py_buffer(tail), 10_000).metadata, pq.FileMetaData)


@pytest.mark.parametrize(
    ("columns", "file_size", "length"),
    [
        (16, 100, 100),
        (16, 0, 0),
        (16, 100_000, 4096),
        (16, 1_000_000, 5000),
        (100, 1_000_000, 16_000),
        (1000, 1_000_000, 65_536),
        (16, 10**9, 65_536),
        (16, -1, 65_536),
    ],
)
def test_footer_guess_depends_on_the_columns_and_file_size(columns: int, file_size: int, length: int) -> None:
    assert FooterGuess(columns).length(file_size) == length


def test_footer_guess_is_learned_and_limited_to_the_file_size() -> None:
    guess = FooterGuess(16)
    guess.learn(20_000)
    assert guess.length(10**9) == guess.length(-1) == 22_756
    assert guess.length(22_755) == 22_755
    guess.learn(8000)
    assert guess.length(-1) == 22_756
    guess.learn_index(65_537)
    assert guess.length(-1) == 22_756
    guess.learn_index(65_536)
    assert guess.length(-1) == 65_536 + 8192 + 256


def test_reading_a_column_without_its_bytes_fails() -> None:
    data = parquet_bytes(pa.table({"a": list(range(1000)), "b": list(range(1000))}), compression="NONE")
    metadata = parse_footer(pa.py_buffer(data), len(data)).metadata
    chunk: Any = metadata.row_group(0).column(0)
    start = chunk.dictionary_page_offset
    stop = start + chunk.total_compressed_size
    source = pa.PythonFile(SparseFile(len(data), [ByteBlock(start, pa.py_buffer(data[start:stop]))]), mode="r")
    file = pq.ParquetFile(source, metadata=metadata, pre_buffer=False)
    assert file.read(columns=["a"]).num_rows == 1000
    with pytest.raises(DataError):
        file.read(columns=["b"])
