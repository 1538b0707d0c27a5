"""pyarrow reads chunks in which stubs replace some pages; the rows of the other pages are unchanged."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Sequence
from decimal import Decimal
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delta_sharing_client.parquet.byte_ranges import ByteBlock, ByteRange, SparseFile
from delta_sharing_client.parquet.chunks import Chunks, ColumnChunk
from delta_sharing_client.parquet.footer import Footer, parse_footer
from delta_sharing_client.parquet.page_index import DataPages, PageMismatch, pages, read_page_header
from delta_sharing_client.parquet.partial_chunk import (
    ColumnShape,
    PartialChunk,
    check_page,
    partial_chunk,
)
from delta_sharing_client.shortcuts import SHORTCUTS
from delta_sharing_client.thrift import read_struct
from tests.unit.storages import parquet_bytes
from tests.versions import parquet_settings

ROWS = 1000
STEP = 50
EVERY_PAGE = {"write_page_index": True, "data_page_size": 1, "write_batch_size": STEP, "compression": "NONE"}
DAY = datetime.date(2020, 1, 1)
# A column for each physical type. Stubs of FROM_DICTIONARY types use the dictionary, because no other encoding of
# many equal values is short.
COLUMNS = {
    "boolean": pa.array([row % 3 == 0 for row in range(ROWS)]),
    "int32": pa.array([row * 7 - 900 for row in range(ROWS)], pa.int32()),
    "int64": pa.array([row * 2**40 for row in range(ROWS)], pa.int64()),
    "float": pa.array([row / 8 for row in range(ROWS)], pa.float32()),
    "double": pa.array([row / 16 for row in range(ROWS)], pa.float64()),
    "string": pa.array([f"text {row}" for row in range(ROWS)]),
    "decimal": pa.array([Decimal(row) for row in range(ROWS)], pa.decimal128(20, 2)),
    "date": pa.array([DAY + datetime.timedelta(row) for row in range(ROWS)]),
}
FROM_DICTIONARY = ("float", "double", "decimal")


class File:
    """A file with one column in one row group, and the pages of its index."""

    def __init__(self, column: pa.Array, *, optional: bool, **write: Any) -> None:
        self.rows = len(column)
        schema = pa.schema([pa.field("c", column.type, optional)])
        self.data = parquet_bytes(pa.Table.from_arrays([column], schema=schema), **{**EVERY_PAGE, **write})
        self.footer: Footer = parse_footer(pa.py_buffer(self.data), len(self.data))
        self.chunk: ColumnChunk = Chunks(self.footer.data, [0], self.footer.start).get(0, 0)
        assert self.chunk.offset_index is not None
        indexed = pages(self.data[slice(*self.chunk.offset_index)], self.chunk, self.rows)
        assert indexed is not None
        self.pages: DataPages = indexed
        self.shape = ColumnShape(self.footer.metadata.schema.column(0).max_definition_level)

    def part(self, *rows: tuple[int, int]) -> PartialChunk | None:
        return partial_chunk(self.chunk, self.pages, rows, self.shape)

    def read(self, part: PartialChunk) -> pa.Array:
        """Return the column as pyarrow reads it from only the byte ranges of the part."""
        blocks = [ByteBlock(item.start, pa.py_buffer(self.data[slice(*item)])) for item in part.ranges]
        rebuilt = part.rebuild(SparseFile(len(self.data), blocks).slice)
        assert rebuilt.size == self.chunk.length
        replaced = {(self.chunk.start, self.chunk.length): rebuilt}
        source = pa.PythonFile(SparseFile(len(self.data), [], replaced), mode="r")
        file = pq.ParquetFile(
            source, metadata=self.footer.metadata, **parquet_settings(page_checksum_verification=True)
        )
        return file.read()["c"].combine_chunks()


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("has_dictionary", [False, True])
@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize("kind", COLUMNS)
def test_rows_of_kept_pages_equal_the_written_ones(
    kind: str, optional: bool, has_dictionary: bool, version: str
) -> None:
    column = COLUMNS[kind]
    if optional:
        column = pa.array(
            [None if row % 7 == 3 else value for row, value in enumerate(column.to_pylist())], column.type
        )
    file = File(column, optional=optional, use_dictionary=has_dictionary, data_page_version=version)
    for rows in ([(120, 130)], [(0, 1)], [(999, 1000)], [(0, 1), (500, 601), (640, 650), (999, 1000)], [(50, 100)]):
        part = file.part(*rows)
        if not optional and not has_dictionary and kind in FROM_DICTIONARY:
            assert part is None
            continue
        assert part is not None
        read = file.read(part)
        assert len(read) == ROWS
        inside = {row // STEP for start, stop in rows for row in range(start, stop)}
        assert part.kept == tuple(sorted(inside))
        assert part.size < file.chunk.length
        for page in range(ROWS // STEP):
            values = read.slice(page * STEP, STEP)
            if page in inside:
                assert values.equals(column.slice(page * STEP, STEP))
            elif optional:
                assert values.null_count == STEP
            else:
                # The dictionary has one arbitrary value, which is not read.
                assert values.null_count == 0
                assert len(values.unique()) == 1


@pytest.mark.parametrize("gap", [1, 2, 63, 64, 127, 128, 129, 130, 255, 256, 257, 384, 8191, 8192, 16_384, 70_000])
@pytest.mark.parametrize("kind", ["int32", "int64", "string", "boolean", "double"])
@pytest.mark.parametrize("optional", [False, True])
def test_gap_of_any_length_keeps_the_rows_after_it(gap: int, kind: str, optional: bool) -> None:
    """Pages with ``gap`` rows in total are left out before the last page."""
    values = (COLUMNS[kind].to_pylist() * (1 + (gap + 3) // ROWS))[: gap + 3]
    file = File(pa.array(values, COLUMNS[kind].type), optional=optional, write_batch_size=min(gap, 10_000))
    first, last = file.pages.rows[-2:]
    part = file.part((first, last))
    if part is None:
        assert gap < 3 or kind == "boolean", "only a small page may be shorter than its stub"
        return
    assert [*part.stubs] == [0]
    assert file.read(part).slice(first).to_pylist() == values[first:]


def test_dictionary_is_read_only_for_pages_that_use_it() -> None:
    """The first pages use the dictionary; the later ones are plain."""
    texts = [f"{row:09}" for row in range(ROWS)]
    file = File(pa.array(texts), optional=True, dictionary_pagesize_limit=2000, use_dictionary=True)
    encoded = file.chunk.dictionary_pages()
    assert encoded is not None
    assert 1 < encoded < file.pages.number
    first = file.part((0, 1))
    assert first is not None
    assert first.dictionary is not None
    last = file.part((990, 1000))
    assert last is not None
    assert last.dictionary is None
    assert last.ranges == [ByteRange(file.pages.starts[-2], file.pages.starts[-1])]
    edge = file.part((file.pages.rows[encoded] - 1, file.pages.rows[encoded]))
    assert edge is not None
    assert edge.dictionary is not None
    behind = file.part((file.pages.rows[encoded], file.pages.rows[encoded] + 1))
    assert behind is not None
    assert behind.dictionary is None
    for part, rows in ((first, slice(0, 50)), (last, slice(950, 1000))):
        assert file.read(part).to_pylist()[rows] == texts[rows]


def test_stubs_of_a_required_double_need_the_dictionary() -> None:
    """The stubs use the dictionary even if the kept pages are plain."""
    values = [row / 16 for row in range(ROWS)]
    file = File(pa.array(values), optional=False, dictionary_pagesize_limit=2000, use_dictionary=True)
    part = file.part((990, 1000))
    assert part is not None
    assert part.dictionary is not None
    assert file.read(part).to_pylist()[950:] == values[950:]


def test_chunk_is_read_whole_if_every_page_is_needed() -> None:
    file = File(COLUMNS["int64"], optional=False)
    assert file.part((0, ROWS)) is None
    assert file.part(*((row, row + 1) for row in range(0, ROWS, STEP))) is None


def test_chunk_without_needed_pages_is_only_stubs() -> None:
    file = File(COLUMNS["int64"], optional=False)
    part = file.part()
    assert part is not None
    assert (part.kept, part.dictionary, part.size) == ((), None, 0)
    assert file.read(part).unique().to_pylist() == [0]


@pytest.mark.parametrize("kind", sorted(COLUMNS))
def test_a_stub_of_a_required_column_has_no_nulls(kind: str) -> None:
    part = File(COLUMNS[kind], optional=False).part((0, 1))
    assert part is not None
    [stub] = part.stubs.values()
    own = read_struct(memoryview(stub), 0)[0][8]
    assert (own[1], own[2], own[3]) == (ROWS - STEP, 0, ROWS - STEP)  # values, nulls, rows


def test_a_stub_of_an_optional_column_is_one_run_of_nulls() -> None:
    part = File(COLUMNS["int64"], optional=True).part((0, STEP))
    assert part is not None
    [stub] = part.stubs.values()
    own = read_struct(memoryview(stub), 0)[0][8]
    assert (own[1], own[2], own[3]) == (ROWS - STEP,) * 3  # values, nulls, rows
    # An RLE run: the number of rows times two, then the level 0 in one byte.
    assert stub.endswith(bytes([0, 0, (ROWS - STEP) * 2 & 127 | 128, (ROWS - STEP) * 2 >> 7, 0]))


def test_delta_stub_of_one_number_has_no_block() -> None:
    indexed = pages_of((0, 1, 6), (1000, 40))
    part = partial_chunk(chunk_of(indexed), indexed, [(1, 2)], ColumnShape(0))
    assert part is not None
    # DELTA_BINARY_PACKED: block size (128), miniblocks (1), number of values (1), first value.
    assert part.stubs[0].endswith(bytes([0, 0, 0x80, 1, 1, 1, 0]))


def test_part_of_a_plain_chunk_has_no_dictionary() -> None:
    part = File(COLUMNS["int64"], optional=False, use_dictionary=False).part((0, 1))
    assert part is not None
    assert part.dictionary is None


def test_index_page_without_its_dictionary_is_refused() -> None:
    file = File(COLUMNS["int64"], optional=False, use_dictionary=True)
    part = file.part((0, 1))
    assert part is not None
    assert part.dictionary is not None
    with pytest.raises(PageMismatch):
        file.read(dataclasses.replace(part, dictionary=None))


def test_page_stubs_can_be_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SHORTCUTS, "page_stubs", False)
    assert File(COLUMNS["int64"], optional=False).part((0, 1)) is None


def pages_of(rows: Sequence[int], sizes: Sequence[int], start: int = 4) -> DataPages:
    starts = [start]
    for size in sizes:
        starts.append(starts[-1] + size)
    return DataPages(tuple(starts), tuple(rows))


def chunk_of(indexed: DataPages, physical: int = 2, start: int = 4) -> ColumnChunk:
    length = indexed.starts[-1] - start
    return ColumnChunk(start, length, length, 0, None, indexed.rows[-1], physical, 0, True, None, None)


@pytest.mark.parametrize(
    ("rows", "depth", "physical", "is_dictionary", "fits"),
    [
        (1 << 30, 1, 2, False, True),
        ((1 << 30) + 1, 1, 2, False, False),
        (100, 255, 2, False, True),
        (100, 256, 2, False, False),
        (100, 0, 1, False, True),
        (100, 0, 1, True, False),
        (100, 1, 1, True, True),
        (100, 0, 3, False, False),
    ],
)
def test_columns_without_a_stub_are_read_whole(
    rows: int, depth: int, physical: int, is_dictionary: bool, fits: bool
) -> None:
    indexed = pages_of((0, rows, rows + 5), (1000, 40))
    part = partial_chunk(chunk_of(indexed, physical), indexed, [(rows, rows + 1)], ColumnShape(depth, is_dictionary))
    assert (part is not None) is fits


def test_stubs_keep_the_dictionary_encoding() -> None:
    """In a struct, Arrow does not read a chunk as dictionary indices if they follow plain values."""
    texts = [f"{row % 9}" if row < 500 else f"{row:09}" for row in range(ROWS)]
    file = File(pa.array(texts), optional=True, dictionary_pagesize_limit=200, use_dictionary=True)
    encoded = file.chunk.dictionary_pages()
    assert encoded == 11

    def encodings(*rows: tuple[int, int]) -> dict[int, int]:
        part = file.part(*rows)
        assert part is not None
        return {page: read_page_header(stub, 0)[0].encoding for page, stub in part.stubs.items()}

    assert encodings((60, 61)) == {0: 8, 2: 8}
    assert encodings((60, 61), (560, 561), (950, 951)) == {0: 8, 2: 8, 12: 0}
    # The dictionary is not read if no page refers to it.
    assert encodings((560, 561)) == {0: 0, 12: 0}
    with mock.patch.object(ColumnChunk, "dictionary_pages", return_value=None):
        assert encodings((60, 61), (950, 951)) == {0: 8, 2: 8}


def test_a_part_is_never_longer_than_the_chunk() -> None:
    indexed = pages_of((0, 100, 105), (200, 40))
    part = partial_chunk(chunk_of(indexed), indexed, [(100, 101)], ColumnShape(1))
    assert part is not None
    stub = len(part.stubs[0])
    assert part.stubs.keys() == {0}
    for size, fits in ((stub, True), (stub - 1, False)):
        indexed = pages_of((0, 100, 105), (size, 40))
        assert (partial_chunk(chunk_of(indexed), indexed, [(100, 101)], ColumnShape(1)) is not None) is fits


# === Pages that contradict the index ===


def a_page(version: str = "1.0", *, has_dictionary: bool = False) -> tuple[File, pa.Buffer]:
    file = File(COLUMNS["int64"], optional=False, data_page_version=version, use_dictionary=has_dictionary)
    return file, pa.py_buffer(file.data[file.pages.starts[1] : file.pages.starts[2]])


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_page_that_contradicts_the_offset_index_is_refused(version: str) -> None:
    _, page = a_page(version)
    check_page(page, STEP, has_dictionary=False)
    check_page(page, STEP, has_dictionary=True)
    for rows in (STEP - 1, STEP + 1, None):
        with pytest.raises(PageMismatch, match="contradicts the page index"):
            check_page(page, rows, has_dictionary=True)
    for wrong in (page.slice(0, page.size - 1), pa.py_buffer(page.to_pybytes() + b"\0")):
        with pytest.raises(PageMismatch, match="contradicts the page index"):
            check_page(wrong, STEP, has_dictionary=True)
    for wrong in (pa.py_buffer(b""), page.slice(0, 5), page.slice(1)):
        with pytest.raises(PageMismatch, match="cannot be decoded"):
            check_page(wrong, STEP, has_dictionary=True)


def test_page_of_dictionary_indices_needs_a_dictionary() -> None:
    file, page = a_page(has_dictionary=True)
    check_page(page, STEP, has_dictionary=True)
    with pytest.raises(PageMismatch):
        check_page(page, STEP, has_dictionary=False)
    dictionary = pa.py_buffer(file.data[file.chunk.start : file.pages.starts[0]])
    check_page(dictionary, None, has_dictionary=True)
    with pytest.raises(PageMismatch):
        check_page(dictionary, ROWS, has_dictionary=True)
    with pytest.raises(PageMismatch):
        check_page(dictionary.slice(0, dictionary.size - 1), None, has_dictionary=True)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_pages_of_a_rebuilt_chunk_are_checked(version: str) -> None:
    file = File(COLUMNS["int64"], optional=False, data_page_version=version, use_dictionary=True)
    part = file.part((0, 50), (700, 720))
    assert part is not None

    def shifted(place: int) -> Any:
        def read(start: int, length: int) -> pa.Buffer:
            shift = 1 if start == place else 0
            return pa.py_buffer(file.data[start + shift : start + length + shift])

        return read

    part.rebuild(shifted(-1))
    for place in (file.chunk.start, file.pages.starts[0], file.pages.starts[14]):
        with pytest.raises(PageMismatch):
            part.rebuild(shifted(place))
    # The index states a different number of rows.
    less = DataPages(file.pages.starts, tuple(row - (row == 700) for row in file.pages.rows))
    with pytest.raises(PageMismatch):
        dataclasses.replace(part, pages=less).rebuild(shifted(-1))
