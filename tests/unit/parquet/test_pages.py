"""What page headers say, beside what pyarrow wrote; and the longest text of a dictionary, beside a plain walk."""

from __future__ import annotations

import io
import struct

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_sharing_client.parquet.chunks import Chunk, Chunks
from delta_sharing_client.parquet.footer import parse_footer
from delta_sharing_client.parquet.pages import (
    DICTIONARY_PAGE,
    PageHeader,
    longest_short_text,
    read_page_header,
    walk_pages,
)
from tests.quota import meets, met

PLAIN, DELTA_LENGTH, DELTA, RLE_DICTIONARY = 0, 6, 7, 8
CODECS = ["none", "snappy", "gzip", "brotli", "zstd", "lz4"]


def written(texts: list[str | None], **options: object) -> tuple[memoryview, Chunk]:
    sink = io.BytesIO()
    pq.write_table(pa.table({"t": pa.array(texts, pa.string())}), sink, **options)
    data = sink.getvalue()
    footer = parse_footer(pa.py_buffer(data), len(data))
    chunk = Chunks(footer.data, [0], footer.start).get(0, 0)
    return memoryview(data)[chunk.start : chunk.start + chunk.length], chunk


def dictionary_of(texts: list[bytes]) -> memoryview:
    return memoryview(b"".join(struct.pack("<I", len(text)) + text for text in texts))


def longest(texts: list[bytes]) -> int | None:
    page = dictionary_of(texts)
    return longest_short_text(page, (PageHeader(DICTIONARY_PAGE, len(page), len(page), len(texts)), 0), 0)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", CODECS)
def test_the_dictionary_of_a_written_chunk_is_found_and_measured(codec: str, version: str) -> None:
    data, chunk = written(["a", "", "long text", None, "a"] * 50, compression=codec, data_page_version=version)
    pages = walk_pages(data, chunk.values)
    assert pages.encodings == {RLE_DICTIONARY}
    assert pages.dictionary is not None
    assert pages.dictionary[0].values == 3
    assert pages.largest >= 3 * 4 + 10
    assert longest_short_text(data, pages.dictionary, chunk.codec) == 9


@pytest.mark.parametrize(
    ("encoding", "number"), [("PLAIN", PLAIN), ("DELTA_LENGTH_BYTE_ARRAY", DELTA_LENGTH), ("DELTA_BYTE_ARRAY", DELTA)]
)
def test_encodings_are_those_of_the_pages(encoding: str, number: int) -> None:
    data, chunk = written(["x" * 100, "y"] * 50, use_dictionary=False, column_encoding=encoding, compression="none")
    pages = walk_pages(data, chunk.values)
    assert pages.encodings == {number}
    assert pages.dictionary is None


def test_a_dictionary_that_was_given_up_leaves_both_encodings() -> None:
    data, chunk = written([f"{n:09}" for n in range(5000)], dictionary_pagesize_limit=2000, data_page_size=2000)
    assert walk_pages(data, chunk.values).encodings == {PLAIN, RLE_DICTIONARY}


def test_damage_ends_the_walk() -> None:
    data, chunk = written(["a", "b"] * 500, data_page_size=64)
    for stop in range(len(data)):
        found = walk_pages(data[:stop], chunk.values)
        assert found.largest <= walk_pages(data, chunk.values).largest


def test_a_page_of_negative_size_is_no_page() -> None:
    header = b"\x15\x00\x15\x01\x15\x01\x00"
    with pytest.raises(ValueError, match="negative"):
        read_page_header(header, 0)


@meets(known=21, several=19)
@given(st.lists(st.binary(max_size=300), min_size=1, max_size=20))
def test_the_longest_text_is_right_or_not_known(texts: list[bytes]) -> None:
    met("known", longest(texts) is not None)
    met("several", len(set(map(len, texts))) > 1)
    assert longest(texts) in (max(map(len, texts)), None)


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
    found = longest_short_text(memoryview(data), (page, 0), 0)
    met("unknown" if found is None else "known")
    assert found is None or 0 <= found <= len(data)


def test_what_is_not_compressed_as_it_says_is_not_known() -> None:
    page = PageHeader(DICTIONARY_PAGE, 10, 100, 3)
    for codec in range(10):
        assert longest_short_text(memoryview(b"\xff" * 10), (page, 0), codec) is None
