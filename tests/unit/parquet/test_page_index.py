"""Page headers, hand-made or written by pyarrow, and the page index."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delta_sharing_client.parquet.chunks import Chunks, ColumnChunk
from delta_sharing_client.parquet.footer import parse_footer
from delta_sharing_client.parquet.page_index import (
    DataPages,
    PageHeader,
    PageValues,
    pages,
    read_page_header,
    values,
    walk_pages,
)
from tests.unit.parquet.compact import as_list, as_number, struct_of

PLAIN, DELTA_LENGTH, DELTA, RLE_DICTIONARY = 0, 6, 7, 8
CODECS = ["none", "snappy", "gzip", "brotli", "zstd", "lz4"]


def written(texts: list[str | None], **options: object) -> tuple[memoryview, ColumnChunk]:
    sink = io.BytesIO()
    pq.write_table(pa.table({"t": pa.array(texts, pa.string())}), sink, **options)
    data = sink.getvalue()
    footer = parse_footer(pa.py_buffer(data), len(data))
    chunk = Chunks(footer.data, [0], footer.start).get(0, 0)
    return memoryview(data)[chunk.start : chunk.start + chunk.length], chunk


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", CODECS)
def test_dictionary_page_of_a_written_chunk_is_found(codec: str, version: str) -> None:
    data, chunk = written(["a", "", "long text", None, "a"] * 50, compression=codec, data_page_version=version)
    pages = walk_pages(data, chunk.values)
    assert pages.encodings == {RLE_DICTIONARY}
    assert pages.dictionary is not None
    assert pages.dictionary[0].values == 3
    assert pages.largest >= 3 * 4 + 10


@pytest.mark.parametrize(
    ("encoding", "number"), [("PLAIN", PLAIN), ("DELTA_LENGTH_BYTE_ARRAY", DELTA_LENGTH), ("DELTA_BYTE_ARRAY", DELTA)]
)
def test_encoding_of_each_page_is_collected(encoding: str, number: int) -> None:
    data, chunk = written(["x" * 100, "y"] * 50, use_dictionary=False, column_encoding=encoding, compression="none")
    pages = walk_pages(data, chunk.values)
    assert pages.encodings == {number}
    assert pages.dictionary is None


def test_abandoned_dictionary_gives_two_encodings() -> None:
    data, chunk = written([f"{n:09}" for n in range(5000)], dictionary_pagesize_limit=2000, data_page_size=2000)
    assert walk_pages(data, chunk.values).encodings == {PLAIN, RLE_DICTIONARY}


def test_dictionary_pages_before_all_plain_pages_are_recognized() -> None:
    plain, indices, dictionary = header(0, 10, 0), header(0, 10, 0, {2: 8}), header(2, 10, 0)

    def walked(*pages: bytes) -> bool:
        return walk_pages(memoryview(b"".join(pages)), 7 * len(pages)).indices_first

    assert walked(dictionary, indices, indices, plain, plain)
    assert walked(dictionary, indices, header(3, 10, 0))
    assert walked(plain, plain)
    assert walked()
    assert not walked(dictionary, plain, indices)
    assert not walked(dictionary, indices, plain, indices)
    assert not walked(dictionary, header(3, 10, 0, {4: 0}), header(3, 10, 0))


def test_pages_of_a_truncated_chunk_are_walked_without_error() -> None:
    data, chunk = written(["a", "b"] * 500, data_page_size=64)
    for stop in range(len(data)):
        part = walk_pages(data[:stop], chunk.values)
        assert part.largest <= walk_pages(data, chunk.values).largest


# === Page headers ===

# For each page type: the id of its header field, and the required fields in it.
BODIES = {0: (5, {1: 7, 2: 0, 3: 3, 4: 3}), 2: (7, {1: 7, 2: 0}), 3: (8, {1: 7, 2: 1, 3: 7, 4: 8, 5: 0, 6: 0})}


def header(kind: int, uncompressed: int = 20, compressed: int = 10, body: dict[int, int] | None = None) -> bytes:
    field, default = BODIES.get(kind, (6, {}))
    return struct_of({1: kind, 2: uncompressed, 3: compressed, field: {**default, **(body or {})}})


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (0, PageHeader(0, 10, 20, 7, 0, None)),
        (1, PageHeader(1, 10, 20)),
        (2, PageHeader(2, 10, 20, 7, 0, None)),
        (3, PageHeader(3, 10, 20, 7, 8, 7)),
        (4, PageHeader(4, 10, 20)),
    ],
)
def test_page_header_of_each_type_is_decoded(kind: int, expected: PageHeader) -> None:
    data = header(kind)
    assert read_page_header(b"!!" + data + b"!", 2) == (expected, 2 + len(data))
    # A page may be empty.
    assert read_page_header(header(kind, 0, 0), 0)[0] == expected._replace(compressed=0, uncompressed=0)
    for negative in (header(kind, -1, 10), header(kind, 10, -1)):
        with pytest.raises(ValueError, match="negative"):
            read_page_header(negative, 0)
    if kind in BODIES:
        with pytest.raises(KeyError):
            read_page_header(struct_of({1: kind, 2: 20, 3: 10}), 0)


def test_walk_ends_after_all_values_or_at_an_invalid_page() -> None:
    index, unknown = header(1, 5, 3) + b"123", header(9, 4, 2) + b"12"
    dictionary, first = header(2, 50, 4) + b"abcd", header(0, 30, 5, {2: 2}) + b"12345"
    second, third = header(3, 90, 2) + b"12", header(0, 200, 0, {2: 6})
    chunk = memoryview(index + dictionary + unknown + first + second + third)

    def walked(values: int, data: memoryview = chunk) -> tuple[int, set[int], bool]:
        pages = walk_pages(data, values)
        return pages.largest, set(pages.encodings), pages.dictionary is not None

    assert walked(0) == walked(-1) == (0, set(), False)
    assert walked(1) == walked(7) == (50, {2}, True)
    assert walked(8) == walked(14) == (90, {2, 8}, True)
    assert walked(15) == walked(100) == (200, {2, 6, 8}, True)
    assert walk_pages(chunk, 100).dictionary == (PageHeader(2, 4, 50, 7, 0), len(index + dictionary) - 4)
    assert walked(100, chunk[:-1]) == (90, {2, 8}, True)
    # A page that extends past the data ends the walk.
    assert walked(100, memoryview(header(0, 30, 500) + second)) == (30, {0}, False)
    assert walked(100, memoryview(b"")) == (0, set(), False)
    # A header that does not decode ends the walk.
    assert walked(100, memoryview(first + b"\0")) == (30, {2}, False)


# === The page index ===

CHUNK_START = 4


def indexed_pages(*locations: tuple[int, int, int], rows: int = 30, length: int = 100) -> DataPages | None:
    chunk = ColumnChunk(CHUNK_START, length, 200, 0, None, rows, 2, 0, True, None, None)
    return pages(struct_of({1: [dict(enumerate(item, 1)) for item in locations]}), chunk, 30)


def test_pages_extend_from_their_offset_to_the_next() -> None:
    assert indexed_pages((14, 40, 0), (54, 50, 20)) == DataPages((14, 54, 104), (0, 20, 30))


@pytest.mark.parametrize(
    "locations",
    [
        (),
        ((14, 40, 0), (54, 50, 0)),  # first rows that do not ascend
        ((14, 40, 20), (54, 50, 0)),
        ((14, 40, 1), (54, 50, 20)),  # the first page does not begin with row 0
        ((14, 40, 0), (54, 50, 30)),  # a page without rows
        ((14, 40, 0), (54, 50, 31)),
        ((14, 40, 0), (54, 51, 20)),  # the last page ends after the chunk
        ((14, 40, 0), (54, 49, 20)),  # the last page ends before the chunk ends
        ((3, 51, 0), (54, 50, 20)),  # a page starts before the chunk
        ((14, 41, 0), (54, 50, 20)),  # overlapping pages
        ((14, 39, 0), (54, 50, 20)),  # a gap between pages
        ((14, -40, 0), (54, 50, 20)),
        ((54, 50, 0), (14, 40, 20)),
    ],
)
def test_contradictory_offset_index_is_not_used(locations: tuple[tuple[int, int, int], ...]) -> None:
    assert indexed_pages(*locations) is None


def test_offset_index_with_a_wrong_row_count_is_not_used() -> None:
    chunk = ColumnChunk(CHUNK_START, 100, 200, 0, None, 0, 2, 0, True, None, None)
    assert pages(struct_of({1: []}), chunk, 0) is None
    assert indexed_pages((14, 40, 0), (54, 50, 20), rows=31) is None


def column_index(
    null_pages: list[bool], lowers: list[int], uppers: list[int], null_counts: list[int] | None = None
) -> bytes:
    flags = [b"\1" if item else b"\2" for item in null_pages]
    lists = [as_list(8, [b"\x08" + value.to_bytes(8, "little", signed=True) for value in values])
             for values in (lowers, uppers)]  # fmt: skip
    counts = b"" if null_counts is None else b"\x19" + as_list(6, [as_number(value) for value in null_counts])
    return b"\x19" + as_list(1, flags) + b"".join(b"\x19" + item for item in lists) + b"\x15\0" + counts + b"\0"


def described(data: bytes, null_count: int | None = 10, **changes: Any) -> list[PageValues] | None:
    chunk = ColumnChunk(CHUNK_START, 100, 200, null_count, (-5, 9), 30, 2, 0, True, None, None)
    return values(data, chunk._replace(**changes), DataPages((14, 54, 80, 104), (0, 10, 20, 30)))


def test_page_has_bounds_and_a_null_count_if_known() -> None:
    assert described(column_index([False, True, False], [-5, 0, 1], [0, 0, 9], [0, 10, 0])) == [
        ((-5, 0), 0),
        (None, 10),
        ((1, 9), 0),
    ]
    assert described(column_index([False, True, False], [-5, 0, 1], [0, 0, 9], [3, 10, 0]), 13) == [
        ((-5, 0), None),
        (None, 10),
        ((1, 9), 0),
    ]
    assert described(column_index([False, False, False], [-5, 0, 1], [0, 0, 9])) == [
        ((-5, 0), None),
        ((0, 0), None),
        ((1, 9), None),
    ]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        column_index([False, True], [-5, 0], [0, 0], [0, 10]),  # too few entries for the pages
        column_index([False, True, False], [-5, 0, 1], [0, 0, 9], [0, 9, 1]),  # a page of nulls that has bounds
        column_index([False, True, False], [-5, 0, 1], [0, 0, 9], [0, 10, 1]),  # a null count other than the footer's
        column_index([False, False, False], [-5, 0, 1], [0, 0, 9], [0, 10, 0]),  # a page of nulls that is not marked
        column_index([False, True, False], [-6, 0, 1], [0, 0, 9], [0, 10, 0]),  # a bound below the footer's bounds
        column_index([False, True, False], [-5, 0, 1], [0, 0, 10], [0, 10, 0]),  # a bound above the footer's bounds
        column_index([False, True, False], [-5, 0, 1], [0, 0, 9], [0, 10, 0])[:-8],
    ],
)
def test_contradictory_column_index_is_not_used(data: bytes) -> None:
    assert described(data) is None


def test_page_null_counts_are_read_if_the_chunk_has_none() -> None:
    index = column_index([False, True, False], [-5, 0, 1], [0, 0, 9], [2, 10, 0])
    assert described(index, None) == described(index, 12) == [((-5, 0), None), (None, 10), ((1, 9), 0)]
    assert described(index, 13) is None
    # A page may be null in all rows but one.
    assert described(column_index([False, True, False], [-5, 0, 1], [0, 0, 9], [9, 10, 0]), 19) is not None
    assert described(column_index([False, True, False], [-5, 0, 1], [0, 0, 9], [-1, 10, 0]), 9) is None
    # Without null counts, only a page of nulls has a known null count.
    without = column_index([False, True, False], [-5, 0, 1], [0, 0, 9])
    assert described(without, 3) == [((-5, 0), None), (None, 10), ((1, 9), None)]


def test_page_bounds_need_an_ordered_type() -> None:
    index = column_index([False, True, False], [-5, 0, 1], [0, 0, 9], [0, 10, 0])
    unknown = [(None, 0), (None, 10), (None, 0)]
    assert described(index, ordered=False) == unknown
    # INT32 has bounds of four bytes, and INT96 has none.
    assert described(index, physical=1) == described(index, physical=3) == unknown
    assert described(index, bounds=None) == [((-5, 0), 0), (None, 10), ((1, 9), 0)]


@pytest.mark.parametrize(("bounds", "fits"), [((-5, 9), True), ((-4, 9), False), ((-5, 8), False), ((-6, 10), True)])
def test_page_bounds_outside_the_chunk_bounds_are_not_used(bounds: tuple[int, int], fits: bool) -> None:
    index = column_index([False, True, False], [-5, 0, 1], [0, 0, 9], [0, 10, 0])
    assert (described(index, bounds=bounds) is not None) is fits
    # Bounds of BYTE_ARRAY may be truncated, in the page index or in the footer.
    assert described(index, physical=6, bounds=(b"a", b"b")) is not None


@pytest.mark.parametrize(("place", "short"), [(2, 0), (3, 2)])
def test_bound_of_a_wrong_length_is_not_used(place: int, short: int) -> None:
    bounds = [as_list(8, [b"\x08" + bytes(8)] * 3) for _ in range(2)]
    bounds[place - 2] = as_list(8, [b"\x07" + bytes(7) if page == short else b"\x08" + bytes(8) for page in range(3)])
    index = b"\x19" + as_list(1, [b"\2"] * 3) + b"".join(b"\x19" + item for item in bounds) + b"\0"
    described_pages = described(index)
    assert described_pages is not None
    assert [item.bounds for item in described_pages] == [None if page == short else (0, 0) for page in range(3)]


def test_a_chunk_may_begin_with_its_first_data_page() -> None:
    assert indexed_pages((4, 50, 0), (54, 50, 20)) == DataPages((4, 54, 104), (0, 20, 30))
    one = indexed_pages((4, 100, 0))
    assert one == DataPages((4, 104), (0, 30))
    assert one is not None
    assert (one.number, one.size(0)) == (1, 100)


@pytest.mark.parametrize(
    "index", [b"", b"\0", struct_of({1: []}), struct_of({1: 5}), struct_of({1: [{1: 4, 2: 100}]}), struct_of({2: b""}),
              struct_of({1: [{1: 4, 2: b"100", 3: 0}]}), struct_of({1: [b"1"]})],
)  # fmt: skip
def test_offset_index_without_required_fields_is_not_used(index: bytes) -> None:
    chunk = ColumnChunk(CHUNK_START, 100, 200, 0, None, 30, 2, 0, True, None, None)
    assert pages(index, chunk, 30) is None
