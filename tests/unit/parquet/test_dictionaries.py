"""The length of the longest string in a dictionary page."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_sharing_client.parquet import dictionaries
from delta_sharing_client.parquet.chunks import Chunks
from delta_sharing_client.parquet.dictionaries import longest_text
from delta_sharing_client.parquet.footer import parse_footer
from delta_sharing_client.parquet.page_index import DICTIONARY_PAGE, PageHeader, walk_pages
from tests.quota import meets, met
from tests.unit.storages import parquet_bytes

CODECS = ("NONE", "SNAPPY", "GZIP", "ZSTD", "LZ4", "BROTLI")


def dictionary_of(texts: list[bytes]) -> memoryview:
    return memoryview(b"".join(struct.pack("<I", len(text)) + text for text in texts))


def longest(texts: list[bytes]) -> int | None:
    page = dictionary_of(texts)
    return longest_text(page, (PageHeader(DICTIONARY_PAGE, len(page), len(page), len(texts)), 0), 0)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", CODECS)
def test_longest_string_is_measured_for_each_codec(codec: str, version: str) -> None:
    content = pa.table({"c": ["a", "", "long text", None, "a"] * 50})
    data = parquet_bytes(content, compression=codec, data_page_version=version)
    footer = parse_footer(pa.py_buffer(data), len(data))
    written = Chunks(footer.data, [0], footer.start).get(0, 0)
    chunk = memoryview(data)[written.start : written.start + written.length]
    dictionary = walk_pages(chunk, written.values).dictionary
    assert dictionary is not None
    assert longest_text(chunk, dictionary, written.codec) == 9


@meets(long=15, several=19)
@given(st.lists(st.binary(max_size=30) | st.binary(min_size=200, max_size=600), min_size=1, max_size=20))
def test_longest_of_arbitrary_byte_strings_is_found(texts: list[bytes]) -> None:
    met("long", max(map(len, texts)) > 255)
    met("several", len(set(map(len, texts))) > 1)
    assert longest(texts) == max(map(len, texts))


@meets(several=15, wide=23)
@given(st.lists(st.text(st.characters(min_codepoint=1), max_size=60), min_size=1, max_size=20, unique=True))
def test_longest_of_unicode_strings_is_found(texts: list[str]) -> None:
    met("several", len(texts) > 2)
    met("wide", not "".join(texts).isascii())
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    assert longest(encoded) == max(map(len, encoded))


@meets(several=20, long=2)
@given(st.integers(0, 400).flatmap(lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1)))
def test_strings_of_equal_length_are_measured(texts: list[bytes]) -> None:
    met("several", len(texts) > 1)
    met("long", len(texts[0]) > 255)
    assert longest(texts) == len(texts[0])


@meets(known=10, unknown=10)
@given(
    st.tuples(st.binary(max_size=60), st.integers(-1, 20))
    | st.lists(st.binary(max_size=30)).map(lambda texts: (bytes(dictionary_of(texts)), len(texts)))
)
def test_arbitrary_dictionary_bytes_give_a_length_or_none(given: tuple[bytes, int]) -> None:
    data, values = given
    page = PageHeader(DICTIONARY_PAGE, len(data), len(data), values)
    found = longest_text(memoryview(data), (page, 0), 0)
    met("unknown" if found is None else "known")
    assert found is None or 0 <= found <= len(data)


@pytest.mark.parametrize(
    ("texts", "length"),
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
        # Strings of equal length are measured together.
        ([b"abc", b"a"], 3),
        ([b"a", b"abc"], 3),
        ([b"ab", b"abc", b"a"], 3),
        # The strings contain zero bytes, as lengths do.
        ([b"a\0b", b"c"], 3),
        ([b"a\0\0\0b", b"c"], 5),
        ([b"\0\0\0\0", b"cc"], 4),
    ],
)
def test_longest_string_is_measured(texts: list[bytes], length: int | None) -> None:
    assert longest(texts) == length


@pytest.mark.parametrize(("values", "length"), [(-1, None), (0, None), (1, None), (2, 2), (3, None), (4, None)])
def test_dictionary_of_a_different_length_is_not_measured(values: int, length: int | None) -> None:
    page = dictionary_of([b"ab", b"c"])
    assert longest_text(page, (PageHeader(DICTIONARY_PAGE, len(page), len(page), values), 0), 0) == length


@pytest.mark.parametrize("data", [b"\1\0\0\0", b"\1\0\0\0a\1\0\0\0", b"\2\0\0\0a\1\0\0\0b", b"\0", b"\5\0\0\0abc"])
def test_strings_that_do_not_fill_the_page_are_not_measured(data: bytes) -> None:
    for count in (1, 2):
        page = PageHeader(DICTIONARY_PAGE, len(data), len(data), count)
        assert longest_text(memoryview(data), (page, 0), 0) is None


def test_dictionary_may_be_anywhere_in_its_chunk() -> None:
    page = bytes(dictionary_of([b"abc", b"d"]))
    chunk = memoryview(b"header" + page + b"\7\0\0\0")
    assert longest_text(chunk, (PageHeader(DICTIONARY_PAGE, len(page), len(page), 2), 6), 0) == 3
    chunk = memoryview(b"\1" + dictionary_of([b"a"]))
    assert longest_text(chunk, (PageHeader(DICTIONARY_PAGE, 6, 6, 1), 0), 0) is None
    assert longest_text(chunk, (PageHeader(DICTIONARY_PAGE, 5, 5, 1), 1), 0) == 1


def test_large_dictionary_of_few_strings_is_measured() -> None:
    texts = [b"x" * 700_000 + bytes([place]) * place for place in range(8)]
    assert sum(map(len, texts)) > 5_000_000
    assert longest(texts) == 700_007


def test_longest_string_of_a_large_dictionary_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [b"x" * 300, *[b"y"] * 9]
    monkeypatch.setattr(dictionaries, "_MOST_WALKED", 10)
    assert longest(texts) == 300
    monkeypatch.setattr(dictionaries, "_MOST_WALKED", 9)
    assert longest(texts) is None
    # In a small dictionary, strings shorter than 256 bytes are measured without a walk.
    assert longest([*texts[1:], b"zz"]) == 2
    monkeypatch.setattr(dictionaries, "_LARGEST", 9 * 5)
    assert longest([*texts[1:], b"zz"]) is None


def test_longest_string_of_an_invalid_page_is_unknown() -> None:
    page = PageHeader(DICTIONARY_PAGE, 10, 100, 3)
    for codec in range(10):
        assert longest_text(memoryview(b"\xff" * 10), (page, 0), codec) is None
