"""The first values of dictionaries with their pages, and the longest text, as pyarrow and a plain walk read them."""

from __future__ import annotations

import dataclasses
import itertools
import random
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delta_sharing_client.parquet import dictionaries
from delta_sharing_client.parquet import partial_chunk as partial_chunks
from delta_sharing_client.parquet.byte_ranges import Block, ByteRange, SparseFile
from delta_sharing_client.parquet.chunks import Chunks
from delta_sharing_client.parquet.dictionaries import ShortDictionary, largest_index, longest_text
from delta_sharing_client.parquet.footer import parse_footer
from delta_sharing_client.parquet.pages import (
    DATA_PAGE_V2,
    DICTIONARY_PAGE,
    PageHeader,
    PageMismatch,
    page_header,
    pages,
    walk_pages,
)
from delta_sharing_client.parquet.partial_chunk import ColumnShape, PartialChunk, partial_chunk
from tests.effort import examples
from tests.quota import meets, met
from tests.unit.storages import parquet_bytes
from tests.versions import VERIFIES_PAGES, parquet_settings

CODECS = ("NONE", "SNAPPY", "GZIP", "ZSTD", "LZ4", "BROTLI")
IN_PART = ("NONE", "SNAPPY", "GZIP", "ZSTD")
TYPES: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "int": (pa.int32(), lambda value: value * 7),
    "long": (pa.int64(), lambda value: value * 2**33 + 5),
    "float": (pa.float32(), lambda value: value / 4),
    "double": (pa.float64(), lambda value: value / 3),
    "text": (pa.string(), lambda value: f"{'lüng ' * (value % 5)}{value:x}"),
    "binary": (pa.binary(), lambda value: random.Random(value).randbytes(value % 70)),
    "decimal": (pa.decimal128(25, 2), Decimal),
}


@pytest.fixture(autouse=True)
def any_saving(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dictionaries, "_LEAST", 1)
    monkeypatch.setattr(dictionaries, "_BLOCK", dict.fromkeys(dictionaries._BLOCK, 1024))


class Column:
    """One column in one row group, and its pages."""

    def __init__(self, array: pa.Array, **write: Any) -> None:
        field = pa.field("c", array.type, array.null_count > 0)
        layout = {"write_page_index": True, "data_page_size": 1, "write_batch_size": 100}
        self.data = parquet_bytes(pa.Table.from_arrays([array], schema=pa.schema([field])), **layout, **write)
        self.footer = parse_footer(pa.py_buffer(self.data), len(self.data))
        self.chunk = Chunks(self.footer.data, [0], self.footer.start).get(0, 0)
        assert self.chunk.offset_index is not None
        found = pages(self.data[slice(*self.chunk.offset_index)], self.chunk, len(array))
        assert found is not None
        self.pages = found
        column = self.footer.metadata.schema.column(0)
        self.shape = ColumnShape(column.max_definition_level, type_length=column.length)

    def part(self, rows: int) -> PartialChunk | None:
        return partial_chunk(self.chunk, self.pages, [(0, rows)], self.shape, short=True)

    def read(self, part: PartialChunk) -> pa.Array:
        """Return what pyarrow reads if nothing but the ranges of ``part`` is there."""
        blocks = [Block(item.start, pa.py_buffer(self.data[slice(*item)])) for item in part.ranges]
        replaced = {(self.chunk.start, self.chunk.length): part.rebuild(SparseFile(len(self.data), blocks).slice)}
        source = pa.PythonFile(SparseFile(len(self.data), [], replaced), mode="r")
        settings = parquet_settings(page_checksum_verification=True)
        return pq.ParquetFile(source, metadata=self.footer.metadata, **settings).read()["c"].combine_chunks()

    def page(self, number: int) -> pa.Buffer:
        return pa.py_buffer(self.data[self.pages.starts[number] : self.pages.starts[number + 1]])


@st.composite
def columns(draw: st.DrawFn) -> tuple[pa.Array, dict[str, Any]]:
    kind = draw(st.sampled_from(sorted(TYPES)))
    arrow, value = TYPES[kind]
    source = random.Random(draw(st.integers(0, 2**32)))
    rows, distinct = draw(st.sampled_from([400, 1000, 3000])), draw(st.sampled_from([1, 30, 700, 10**6]))
    order = draw(st.sampled_from(["new", "any", "backwards"]))
    keys = [row if order == "new" else source.randrange(distinct) for row in range(rows)]
    if order == "backwards":
        # The dictionary is given, and the first rows refer to its last values.
        keys = sorted(range(rows), reverse=True)
    nulls = draw(st.sampled_from([0.0, 0.0, 0.3, 0.99]))
    values = [None if source.random() < nulls else value(key) for key in keys]
    array = pa.array(values, arrow)
    if order == "backwards" and not nulls:
        array = pa.DictionaryArray.from_arrays(
            pa.array(keys, pa.int32()), pa.array([value(n) for n in range(rows)], arrow)
        )
    write = {
        "compression": draw(st.sampled_from(CODECS)),
        "data_page_version": draw(st.sampled_from(["1.0", "2.0"])),
        **parquet_settings(write_page_checksum=draw(st.sampled_from([False, False, False, True]))),
        "dictionary_pagesize_limit": draw(st.sampled_from([2000, 1 << 20])),
    }
    return array, write


@meets(short=10, refused=3, checked=2, backwards=1)
@given(case=columns(), wanted=st.integers(1, 390))
@settings(max_examples=examples(600), deadline=None)
def test_rows_of_the_first_pages_are_those_that_were_written(
    case: tuple[pa.Array, dict[str, Any]], wanted: int
) -> None:
    array, write = case
    column = Column(array, **write)
    part = column.part(wanted)
    if part is None or not part.has_short_dictionary:
        return
    assert part.dictionary is not None
    assert part.size < column.pages.starts[part.kept[-1] + 1] - column.chunk.start
    plain = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    try:
        found = column.read(part)
    except ShortDictionary:
        met("refused")
        met("checked", write.get("write_page_checksum", not VERIFIES_PAGES))
        met("backwards", pa.types.is_dictionary(array.type))
        return
    met("short")
    assert not write.get("write_page_checksum")
    assert write["compression"] in IN_PART
    found = found.dictionary_decode() if pa.types.is_dictionary(found.type) else found
    assert found.slice(0, wanted).equals(plain.slice(0, wanted))


@pytest.mark.parametrize("compression", IN_PART)
@pytest.mark.parametrize("kind", sorted(TYPES))
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_a_dictionary_of_new_values_is_read_in_part(kind: str, compression: str, version: str) -> None:
    arrow, value = TYPES[kind]
    array = pa.array([value(row) for row in range(5000)] + [None], arrow)
    column = Column(array, compression=compression, data_page_version=version)
    part = column.part(150)
    assert part is not None
    assert part.has_short_dictionary
    if compression in ("ZSTD", "GZIP"):
        # They are cut in blocks, of which the first may be larger than what is here.
        try:
            found = column.read(part)
        except ShortDictionary:
            return
    else:
        found = column.read(part)
    assert found.slice(0, 200).equals(array.slice(0, 200))


def test_a_dictionary_in_part_costs_its_share() -> None:
    column = Column(pa.array(range(10_000), pa.int64()), compression="NONE")
    part = column.part(100)
    assert part is not None
    assert part.dictionary is not None
    assert part.dictionary.length == int((column.pages.starts[0] - column.chunk.start) / 100 * 1.1) + 1024


@pytest.mark.parametrize("limit", [1000, 2000, 6000])
def test_texts_behind_the_dictionary_do_not_count(limit: int) -> None:
    """The dictionary has the values of the pages before the writer stopped using it: these decide on the share."""
    column = Column(pa.array([f"{row:09}" for row in range(1000)]), dictionary_pagesize_limit=limit)
    encoded = column.chunk.dictionary_pages()
    assert encoded
    share = dictionaries.beginning(column.chunk, column.pages, (0,))
    whole = column.pages.starts[0] - column.chunk.start
    expected = int(whole * 100 / column.pages.rows[encoded] * 1.1) + 1024
    assert share == (expected if expected < whole else None)
    assert (share is not None) is (limit == 6000)
    # A footer that does not state it: all pages may be of the dictionary.
    unsaid = dictionaries.beginning(column.chunk._replace(encoding_stats=None), column.pages, (0,))
    expected = int(whole * 100 / column.pages.rows[-1] * 1.1) + 1024
    assert unsaid == (expected if expected < whole else None)


def test_what_takes_more_room_than_the_writer_s_is_read_whole() -> None:
    """As if the writer had compressed better than a part of its dictionary is compressed again."""
    column = Column(pa.array(range(10_000), pa.int64()), compression="SNAPPY")
    part = column.part(100)
    assert part is not None
    assert part.has_short_dictionary
    whole = memoryview(column.data).cast("B")

    def rebuilt(length: int) -> pa.Buffer:
        shorter = dataclasses.replace(part, chunk=part.chunk._replace(length=length))
        return shorter.rebuild(lambda start, size: pa.py_buffer(whole[start : start + size]))

    needed = len(rebuilt(part.chunk.length).to_pybytes().rstrip(b"\0"))
    needed = next(length for length in range(needed, needed + 20) if _fits(rebuilt, length))
    assert rebuilt(needed).to_pybytes() == rebuilt(part.chunk.length).to_pybytes()[:needed]
    with pytest.raises(ShortDictionary):
        rebuilt(needed - 1)


def _fits(rebuilt: Callable[[int], pa.Buffer], length: int) -> bool:
    try:
        return bool(rebuilt(length).size)
    except ShortDictionary:
        return False


def test_the_first_values_include_the_largest_index_or_are_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    column = Column(pa.array(range(10_000), pa.int64()), compression="NONE")
    part = column.part(100)
    assert part is not None
    assert part.dictionary is not None
    first = pa.py_buffer(column.data[slice(*part.dictionary)])
    whole = column.pages.starts[0] - column.chunk.start
    _, count = dictionaries.first_values(first, whole, column.chunk, 0)
    monkeypatch.setattr(partial_chunks, "largest_index", lambda *_: count - 1)
    assert column.read(part)[:100].to_pylist() == list(range(100))
    monkeypatch.setattr(partial_chunks, "largest_index", lambda *_: count)
    with pytest.raises(ShortDictionary):
        column.read(part)


def test_what_saves_little_or_takes_long_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    column = Column(pa.array(range(10_000), pa.int64()), compression="NONE")
    whole = column.pages.starts[0] - column.chunk.start
    length = dictionaries.beginning(column.chunk, column.pages, (0,))
    assert length is not None
    for name, edge, beyond in (("_LEAST", whole - length, whole - length + 1), ("_MOST", length, length - 1)):
        with monkeypatch.context() as patch:
            patch.setattr(dictionaries, name, edge)
            assert dictionaries.beginning(column.chunk, column.pages, (0,)) == length
            patch.setattr(dictionaries, name, beyond)
            assert dictionaries.beginning(column.chunk, column.pages, (0,)) is None
    assert dictionaries.beginning(column.chunk, column.pages, ()) is None


@pytest.mark.parametrize("compression", ["LZ4", "BROTLI"])
def test_a_dictionary_that_cannot_be_unpacked_in_part_is_read_whole(compression: str) -> None:
    # An incompressible one, of which the first page needs little.
    source = random.Random(5)
    column = Column(pa.array([source.randrange(2**60) for _ in range(10_000)]), compression=compression)
    assert dictionaries.beginning(column.chunk, column.pages, (0,)) is None
    assert dictionaries.beginning(column.chunk._replace(codec=0), column.pages, (0,)) is not None


def test_the_first_values_end_with_the_last_complete_one() -> None:
    column = Column(pa.array(["a", "bcd", ""]), compression="NONE", data_page_version="1.0")
    start, end = column.chunk.start, column.pages.starts[0]
    whole = pa.py_buffer(column.data[start:end])
    for cut, count in ((0, 3), (1, 2), (3, 2), (4, 2), (5, 1)):
        _, found = dictionaries.first_values(whole.slice(0, whole.size - cut), end - start, column.chunk, 0)
        assert found == count


# === The largest index ===


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["NONE", "SNAPPY", "ZSTD"])
@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize("distinct", [1, 2, 3, 17, 300, 2000])
def test_the_largest_index_of_a_page_is_that_of_its_rows(
    distinct: int, optional: bool, compression: str, version: str
) -> None:
    source = random.Random(distinct)
    keys = [source.randrange(distinct) for _ in range(900)]
    values = [None if optional and row % 3 == 0 else key * 11 for row, key in enumerate(keys)]
    column = Column(pa.array(values, pa.int64()), compression=compression, data_page_version=version)
    seen: dict[int, int] = {}
    for number in range(column.pages.number):
        rows = values[column.pages.rows[number] : column.pages.rows[number + 1]]
        expected = max((seen.setdefault(value, len(seen)) for value in rows if value is not None), default=-1)
        found = largest_index(column.page(number), column.chunk.codec, column.shape.max_definition_level)
        assert found == expected


def test_pages_without_values_or_indices_refer_to_nothing() -> None:
    nulls = Column(pa.nulls(500, pa.int64()))
    assert largest_index(nulls.page(0), nulls.chunk.codec, 1) == -1
    plain = Column(pa.array(range(500), pa.int64()), use_dictionary=False)
    assert largest_index(plain.page(0), plain.chunk.codec, 0) == -1


def test_a_page_of_version_2_is_compressed_unless_it_says_otherwise() -> None:
    column = Column(pa.array([7, 8, 9] * 100, pa.int64()), compression="SNAPPY", data_page_version="2.0")
    indices = bytes([3, 8 << 1, 5])
    packed = pa.compress(indices, "snappy", asbytes=True)
    for body, is_packed in ((packed, True), (indices, False)):
        numbers = (8, 0, 8, 8, 0, 0)
        head = page_header(DATA_PAGE_V2, len(indices), len(body), *numbers, is_packed=is_packed)
        assert largest_index(pa.py_buffer(head + body), column.chunk.codec, 0) == 5


def test_a_page_may_have_no_bytes_and_as_many_as_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dictionaries, "_LARGEST", 3)
    for body in (b"", b"abc"):
        assert bytes(dictionaries._page_body(pa.py_buffer(body), 0, len(body))) == body
    for size in (-1, 4):
        with pytest.raises(ShortDictionary):
            dictionaries._page_body(pa.py_buffer(b"abcd"), 0, size)


@pytest.mark.parametrize(
    ("data", "largest"),
    [
        (b"", -1),
        (bytes([3, 8 << 1, 5]), 5),  # eight times the index 5
        (bytes([3, 8 << 1, 5, 4 << 1, 2]), 5),
        (bytes([9, 8 << 1, 0x34, 0x01]), 0x134),  # a width of two bytes
        (bytes([1, 1 << 1 | 1, 0]), 0),  # a group of eight bits
        (bytes([2, 1 << 1 | 1, 0b00_01_10_00, 0]), 2),
        (bytes([32, 8 << 1, 1, 0, 0, 2]), 0x02000001),
        (bytes([2, 1 << 1 | 1, 0b01_01_01_01, 0b10_11_10_10]), 3),
        (bytes([0, 1 << 1 | 1]), 0),  # of width 0, every index is 0
        (bytes([3, 1 << 1 | 1, 0b000_00101]), 5),  # a writer may leave the last bytes out
    ],
)
def test_runs_and_groups(data: bytes, largest: int) -> None:
    assert dictionaries._largest(data) == largest


def test_an_index_has_at_most_32_bits() -> None:
    with pytest.raises(ValueError, match="more than 32 bits"):
        dictionaries._largest(bytes([33, 8 << 1, 1, 0, 0, 0, 0]))


# === Damage ===


def test_damaged_pages_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    column = Column(pa.array(range(3000), pa.int64()))
    start, end = column.chunk.start, column.pages.starts[0]
    dictionary = pa.py_buffer(column.data[start : start + (end - start) // 2])
    length = end - start
    _, count = dictionaries.first_values(dictionary, length, column.chunk, 0)
    assert 0 < count < 3000
    for wrong in (length - 1, length + 1):
        with pytest.raises(PageMismatch, match="is not what the page index says"):
            dictionaries.first_values(dictionary, wrong, column.chunk, 0)
    with pytest.raises(PageMismatch, match="is not what the page index says"):
        dictionaries.first_values(column.page(0), column.pages.size(0), column.chunk, 0)
    for wrong_bytes in (b"", dictionary.to_pybytes()[:4]):
        with pytest.raises(PageMismatch, match="does not decode"):
            dictionaries.first_values(pa.py_buffer(wrong_bytes), length, column.chunk, 0)
    with pytest.raises(ShortDictionary):
        dictionaries.first_values(dictionary.slice(0, 24), length, column.chunk, 0)  # no complete value
    with pytest.raises(ShortDictionary):
        largest_index(column.page(0).slice(0, 30), column.chunk.codec, 0)
    monkeypatch.setattr(dictionaries, "_LARGEST", 8)
    with pytest.raises(ShortDictionary):
        largest_index(column.page(0), column.chunk.codec, 0)


def test_a_stream_is_unpacked_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dictionaries, "_STEP", 10)
    monkeypatch.setattr(dictionaries, "_LARGEST", 20)
    [gzip] = [number for number, name in dictionaries.CODECS.items() if name == "gzip"]
    assert dictionaries._unpacked(pa.compress(bytes(1000), "gzip", asbytes=True), gzip) == bytes(20)


# === Snappy ===


@pytest.mark.parametrize("length", [1, 100, 127, 128, 300])
def test_a_short_snappy_stream_is_complete_as_it_is(length: int) -> None:
    data = random.Random(length).randbytes(length)
    stream = pa.compress(data, "snappy", asbytes=True)
    assert dictionaries._complete_snappy(stream) == (stream, length)


@pytest.mark.parametrize("text", ["mixed", "random", "repeated", "one long literal"])
def test_every_beginning_of_a_snappy_stream_is_a_beginning_of_its_bytes(text: str) -> None:
    source = random.Random(3)
    data = {
        "mixed": b"".join(b"name %08d" % row + source.randbytes(row % 90) for row in range(60)),
        "random": source.randbytes(70_000),
        "repeated": b"abc" * 40_000,
        "one long literal": source.randbytes(300),
    }[text]
    stream = pa.compress(data, "snappy", asbytes=True)
    cuts = range(3, len(stream) + 1) if len(stream) < 6000 else source.sample(range(3, len(stream) + 1), 400)
    lengths = set()
    for cut in sorted(cuts):
        complete, size = dictionaries._complete_snappy(stream[:cut])
        lengths.add(size)
        assert size == 0 or pa.decompress(complete, size, "snappy", asbytes=True) == data[:size]
    assert dictionaries._complete_snappy(stream)[1] == len(data)
    assert isinstance(dictionaries._unpacked(stream, 1), bytes)
    assert all(left < right for left, right in itertools.pairwise(sorted(lengths)))
    if text in ("random", "one long literal"):
        # Bytes that do not repeat are there up to the last one.
        assert dictionaries._complete_snappy(stream[:200])[1] > 190


def test_ranges_join_the_dictionary_and_its_page_if_they_touch() -> None:
    column = Column(pa.array(range(3000), pa.int64()))
    part = column.part(100)
    assert part is not None
    assert part.dictionary is not None
    assert part.ranges == [part.dictionary, ByteRange(column.pages.starts[0], column.pages.starts[1])]


# === The longest text ===


def dictionary_of(texts: list[bytes]) -> memoryview:
    return memoryview(b"".join(struct.pack("<I", len(text)) + text for text in texts))


def longest(texts: list[bytes]) -> int | None:
    page = dictionary_of(texts)
    return longest_text(page, (PageHeader(DICTIONARY_PAGE, len(page), len(page), len(texts)), 0), 0)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", CODECS)
def test_the_longest_text_of_a_written_dictionary(codec: str, version: str) -> None:
    column = Column(pa.array(["a", "", "long text", None, "a"] * 50), compression=codec, data_page_version=version)
    chunk = memoryview(column.data)[column.chunk.start : column.chunk.start + column.chunk.length]
    dictionary = walk_pages(chunk, column.chunk.values).dictionary
    assert dictionary is not None
    assert longest_text(chunk, dictionary, column.chunk.codec) == 9


@meets(long=15, several=19)
@given(st.lists(st.binary(max_size=30) | st.binary(min_size=200, max_size=600), min_size=1, max_size=20))
def test_the_longest_text_is_right(texts: list[bytes]) -> None:
    met("long", max(map(len, texts)) > 255)
    met("several", len(set(map(len, texts))) > 1)
    assert longest(texts) == max(map(len, texts))


@meets(several=15, wide=23)
@given(st.lists(st.text(st.characters(min_codepoint=1), max_size=60), min_size=1, max_size=20, unique=True))
def test_the_longest_of_ordinary_texts_is_known(texts: list[str]) -> None:
    met("several", len(texts) > 2)
    met("wide", not "".join(texts).isascii())
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    assert longest(encoded) == max(map(len, encoded))


@meets(several=20, long=2)
@given(st.integers(0, 400).flatmap(lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1)))
def test_texts_of_one_length_are_known_whatever_they_hold(texts: list[bytes]) -> None:
    met("several", len(texts) > 1)
    met("long", len(texts[0]) > 255)
    assert longest(texts) == len(texts[0])


@meets(known=10, unknown=10)
@given(
    st.tuples(st.binary(max_size=60), st.integers(-1, 20))
    | st.lists(st.binary(max_size=30)).map(lambda texts: (bytes(dictionary_of(texts)), len(texts)))
)
def test_any_bytes_are_a_dictionary_or_not(given: tuple[bytes, int]) -> None:
    data, values = given
    page = PageHeader(DICTIONARY_PAGE, len(data), len(data), values)
    found = longest_text(memoryview(data), (page, 0), 0)
    met("unknown" if found is None else "known")
    assert found is None or 0 <= found <= len(data)


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        ([b"", b"", b""], 0),
        ([b"abc", b"", b"x"], 3),
        ([b"", b"abc", b""], 3),
        ([b"x" * 255, b"y"], 255),
        ([b"x" * 256, b"y"], 256),
        ([b"y", b"x" * 70_000, b""], 70_000),
        ([b"x" * 256, b"y" * 256], 256),
        ([b"x" * 300], 300),
        ([b"a"], 1),
        ([b""], 0),
        # Of one length together, and not each.
        ([b"abc", b"a"], 3),
        ([b"a", b"abc"], 3),
        ([b"ab", b"abc", b"a"], 3),
        # A zero inside of a text, or more of them than a length has.
        ([b"a\0b", b"c"], 3),
        ([b"a\0\0\0b", b"c"], 5),
        ([b"\0\0\0\0", b"cc"], 4),
    ],
)
def test_the_longest_text_of(texts: list[bytes], found: int | None) -> None:
    assert longest(texts) == found


@pytest.mark.parametrize(("values", "found"), [(-1, None), (0, None), (1, None), (2, 2), (3, None), (4, None)])
def test_a_dictionary_has_as_many_texts_as_its_page_says(values: int, found: int | None) -> None:
    page = dictionary_of([b"ab", b"c"])
    assert longest_text(page, (PageHeader(DICTIONARY_PAGE, len(page), len(page), values), 0), 0) == found


@pytest.mark.parametrize("data", [b"\1\0\0\0", b"\1\0\0\0a\1\0\0\0", b"\2\0\0\0a\1\0\0\0b", b"\0", b"\5\0\0\0abc"])
def test_lengths_that_do_not_lead_to_the_end_are_not_known(data: bytes) -> None:
    for count in (1, 2):
        page = PageHeader(DICTIONARY_PAGE, len(data), len(data), count)
        assert longest_text(memoryview(data), (page, 0), 0) is None


def test_a_dictionary_may_lie_anywhere_in_its_chunk() -> None:
    page = bytes(dictionary_of([b"abc", b"d"]))
    chunk = memoryview(b"header" + page + b"\7\0\0\0")
    assert longest_text(chunk, (PageHeader(DICTIONARY_PAGE, len(page), len(page), 2), 6), 0) == 3


def test_a_large_dictionary_of_few_texts_is_walked_through() -> None:
    texts = [b"x" * 700_000 + bytes([place]) * place for place in range(8)]
    assert sum(map(len, texts)) > 5_000_000
    assert longest(texts) == 700_007


def test_a_large_dictionary_of_many_texts_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [b"x" * 300, *[b"y"] * 9]
    monkeypatch.setattr(dictionaries, "_MOST_WALKED", 10)
    assert longest(texts) == 300
    monkeypatch.setattr(dictionaries, "_MOST_WALKED", 9)
    assert longest(texts) is None
    # Texts of less than 256 bytes need no walk, in a dictionary that is not large itself.
    assert longest([*texts[1:], b"zz"]) == 2
    monkeypatch.setattr(dictionaries, "_LARGEST", 9 * 5)
    assert longest([*texts[1:], b"zz"]) is None


def test_what_is_not_compressed_as_it_says_is_not_known() -> None:
    page = PageHeader(DICTIONARY_PAGE, 10, 100, 3)
    for codec in range(10):
        assert longest_text(memoryview(b"\xff" * 10), (page, 0), codec) is None


def test_the_first_text_begins_where_the_page_does() -> None:
    page = b"\1" + (1).to_bytes(4, "little") + b"a"
    assert longest_text(memoryview(page), (PageHeader(DICTIONARY_PAGE, 6, 6, 1), 0), 0) is None
    assert longest_text(memoryview(page), (PageHeader(DICTIONARY_PAGE, 5, 5, 1), 1), 0) == 1


def test_pages_behind_the_dictionary_s_do_not_need_its_first_values() -> None:
    column = Column(pa.array([f"{row:09}" for row in range(1000)]), dictionary_pagesize_limit=2000)
    part = partial_chunk(column.chunk, column.pages, [(990, 1000)], column.shape, short=True)
    assert part is not None
    assert part.dictionary is None
