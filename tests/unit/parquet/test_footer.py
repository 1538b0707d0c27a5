"""Footers and sparse files."""

from __future__ import annotations

import contextlib
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from delta_sharing_client.errors import DataError
from delta_sharing_client.parquet.byte_ranges import Block, SparseFile
from delta_sharing_client.parquet.footer import FooterGuess, footer_length, parse_footer
from tests.quota import meets, met
from tests.unit.storages import parquet_bytes


def test_a_footer_is_read_from_a_tail_of_any_length() -> None:
    data = parquet_bytes(pa.table({"a": [1, 2, 3]}))
    needed = footer_length(pa.py_buffer(data[-8:]), len(data))
    for length in (needed, needed + 7, len(data)):
        footer = parse_footer(pa.py_buffer(data[-length:]), len(data))
        assert footer.metadata.num_rows == 3
        assert footer.start == len(data) - needed


@pytest.mark.parametrize(
    ("tail", "size"),
    [
        (b"", 0),
        (b"PAR1", 4),
        (b"\x00\x00\x00\x00PARX", 100),
        (b"\x10\x00\x00\x00PARE", 100),
        (b"\xff\xff\xff\xffPAR1", 100),
        (b"\x00\x00\x00\x7fPAR1", 100),
        (b"garbage!\x08\x00\x00\x00PAR1", 100),
    ],
)
def test_what_is_no_footer_is_a_data_error(tail: bytes, size: int) -> None:
    with pytest.raises(DataError):
        parse_footer(pa.py_buffer(tail), size)


@meets(noise=5)
@given(st.binary(max_size=200))
def test_random_tails_are_a_data_error_or_a_footer(noise: bytes) -> None:
    met("noise", len(noise) > 8)
    tail = noise + len(noise).to_bytes(4, "little") + b"PAR1"
    with contextlib.suppress(DataError):
        assert isinstance(parse_footer(pa.py_buffer(tail), 10_000).metadata, pq.FileMetaData)


def test_guesses_learn_from_footers_and_never_exceed_the_file() -> None:
    guess = FooterGuess(16)
    assert guess.length(100) == 100
    assert 4096 <= guess.length(1_000_000) <= 8192
    assert guess.length(10**9) == 64 * 1024
    guess.learn(20_000)
    assert 20_000 < guess.length(10**9) < 24_000
    assert guess.length(-1) > 20_000


# === Sparse files ===


def test_a_sparse_file_reads_its_blocks_and_nothing_else() -> None:
    file = SparseFile(100, [Block(50, pa.py_buffer(bytes(range(50, 60)))), Block(10, pa.py_buffer(b"abc"))])
    file.seek(11)
    assert file.read(2) == b"bc"
    assert file.tell() == 13
    file.seek(-50, 2)
    assert file.read_buffer(10).to_pybytes() == bytes(range(50, 60))
    for place, length in ((9, 1), (12, 2), (49, 2), (60, 1)):
        file.seek(place)
        with pytest.raises(DataError, match="not planned"):
            file.read(length)
    file.seek(100)
    assert file.read(5) == b""


def test_reading_a_column_that_was_not_fetched_fails() -> None:
    data = parquet_bytes(pa.table({"a": list(range(1000)), "b": list(range(1000))}), compression="NONE")
    footer = parse_footer(pa.py_buffer(data), len(data))
    chunk: Any = footer.metadata.row_group(0).column(0)
    start = chunk.dictionary_page_offset
    stop = start + chunk.total_compressed_size
    source = pa.PythonFile(SparseFile(len(data), [Block(start, pa.py_buffer(data[start:stop]))]), mode="r")
    file = pq.ParquetFile(source, metadata=footer.metadata, pre_buffer=False)
    assert file.read(columns=["a"]).num_rows == 1000
    with pytest.raises(DataError):
        file.read(columns=["b"])
