"""Batches of one file: how many rows each may have, and what is kept or computed for all of them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delta_sharing_client.delta.data_types import PrimitiveType, StructField, StructType
from delta_sharing_client.delta.deletion_vectors import DeletionVector
from delta_sharing_client.errors import DataError
from delta_sharing_client.parquet.byte_ranges import ByteBlock
from delta_sharing_client.parquet.chunks import Chunks
from delta_sharing_client.parquet.partial_chunk import GroupPages
from delta_sharing_client.predicates import lists
from delta_sharing_client.predicates.tree import col
from delta_sharing_client.read import decode
from delta_sharing_client.read.bounds import typed_bounds
from delta_sharing_client.read.decode import FileDecoder, ParquetBytes, Selection
from delta_sharing_client.read.layout import Shape
from tests.unit.read.opened import File
from tests.unit.storages import Storage, Table, fast_options, metadata

ROWS = 10_000
LONG = PrimitiveType("long")
PLAIN = {"use_dictionary": False, "compression": "NONE"}


# === Rows of a batch ===


def numbers(count: int = ROWS) -> pa.Table:
    return pa.table({"n": pa.array(range(count), pa.int64())})


@pytest.mark.parametrize(
    ("most", "wanted", "rows"),
    [
        (10**9, ROWS, ROWS),
        (10**9, 10 * ROWS, ROWS),
        (10**9, 100, 100),
        # A quarter of what may be in flight, at eight bytes a row and a few for the page.
        (100_000, ROWS, 3125),
        (100_000, 3125, 3125),
        (100_000, 3000, 3000),
        (100_000, 0, 1),
        (321_000, ROWS, ROWS),
        (319_900, ROWS, 9996),
    ],
)
def test_numbers_have_rows_for_a_share_of_the_memory_limit(most: int, wanted: int, rows: int) -> None:
    assert File(numbers(), **PLAIN).rows(most, wanted) == pytest.approx(rows, rel=0.002)


def test_every_column_counts_by_its_width() -> None:
    content = pa.table(
        {
            "a": pa.array(range(ROWS), pa.int32()),
            "b": [True] * ROWS,
            "c": pa.array([1.5] * ROWS),
            "d": pa.array([1] * ROWS),
        }
    )
    # 4, 1, 8 and 8 bytes in Arrow, however few they are in the file.
    assert File(content, use_dictionary=False).rows(400_000) == pytest.approx(100_000 / 21, rel=0.002)
    assert File(content).rows(10**9) == ROWS


def test_repeated_texts_count_as_often_as_they_are_used() -> None:
    content = pa.table({"t": ["x" * 1000] * ROWS})
    # 4 bytes of its offset and 1,000 of the text a row.
    assert File(content).rows(8_000_000) == 2_000_000 * ROWS // (1004 * ROWS)
    # Each is stored: the chunk has all of their bytes.
    stored = File(content, use_dictionary=False, data_page_size=100_000, compression="zstd")
    assert stored.rows(12_000_000) == pytest.approx(3_000_000 / 1004, rel=0.01)


@pytest.mark.parametrize("place", [0, 5000, ROWS - 1])
@pytest.mark.parametrize(
    "write", [{}, {"use_dictionary": False, "column_encoding": {"t": "DELTA_BYTE_ARRAY"}}], ids=str
)
def test_one_long_text_does_not_make_all_batches_small(place: int, write: dict[str, Any]) -> None:
    texts = [f"{row % 10}" for row in range(ROWS)]
    texts[place] = "x" * 1_000_000
    # The stored bytes count, and the expanded bytes of each row.
    assert File(pa.table({"t": texts}), **write).rows(8_400_000) == ROWS
    texts[place] = "0"
    # Four of them are too many for one batch.
    for row in range(4):
        texts[2500 * row + 7] = "y" * 900_000 + str(row)
    assert File(pa.table({"t": texts}), **write).rows(8_400_000) == 2500


def test_a_measured_batch_may_have_all_of_its_share() -> None:
    texts = ["0"] * 8192
    texts[5] = "x" * 1_000_000
    file = File(pa.table({"t": texts}))
    size = file.layout.chunks.get(0, 0).uncompressed + sum(map(len, texts))
    assert file.rows(4 * size) == 8192
    assert file.rows(4 * size - 1) == 2048


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "RLE_DICTIONARY"])
def test_texts_are_measured_few_at_a_time_and_in_one_thread(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    """What measures them must not itself take the memory that it is there to save."""
    asked: list[tuple[int, Any, dict[str, Any]]] = []

    class Reader:
        def __init__(self, reader: Any) -> None:
            self._reader = reader

        def iter_batches(self, rows: int, **how: Any) -> Any:
            asked.append((rows, how["column_indices"], {"threads": how.get("use_threads", True)}))
            return self._reader.iter_batches(rows, **how)

    texts = [f"{row % 10}" for row in range(ROWS)]
    for row in range(0, ROWS, 100):
        texts[row] = f"{row:05}" * 2000
    is_delta = encoding == "DELTA_BYTE_ARRAY"
    write = {"use_dictionary": False, "column_encoding": {"t": encoding}} if is_delta else {}
    file = File(pa.table({"n": range(ROWS), "t": texts}), **write)
    opened = ParquetBytes.open
    monkeypatch.setattr(ParquetBytes, "open", lambda *arguments: Reader(opened(*arguments)))
    most = 8_000_000
    file.rows(most)
    size = file.layout.chunks.get(0, 1).uncompressed
    assert asked
    assert {tuple(leaves) for _, leaves, _ in asked} == {(1,)}
    assert all(how == {"threads": False} for _, _, how in asked)
    assert {rows for rows, _, _ in asked} == {max(1, most // 4 // size) if is_delta else 4096}


def test_large_batches_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "_text_lengths", None)
    file = File(pa.table({"t": [str(row % 5) * 100 for row in range(ROWS)]}))
    assert file.rows(4 * 104 * 5000) == 5000


def test_nulls_have_no_text() -> None:
    # 4 bytes a row are too many for one batch, and all right for a fourth.
    assert File(pa.table({"t": pa.nulls(ROWS, pa.string())})).rows(100_000) == ROWS // 4


def test_only_chunks_of_more_than_may_be_in_flight_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[int] = []
    walk = decode.walk_pages
    monkeypatch.setattr(decode, "walk_pages", lambda data, values: walked.append(values) or walk(data, values))
    file = File(pa.table({"n": [row % 5000 for row in range(ROWS)]}))
    size = file.layout.chunks.get(0, 0).uncompressed
    assert size < 8 * ROWS
    for most, count in ((size, 0), (size - 1, 1)):
        assert file.rows(most) == most // 4 // 8
        assert walked == [ROWS] * count


def test_short_texts_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[int] = []
    walk = decode.walk_pages
    monkeypatch.setattr(decode, "walk_pages", lambda data, values: walked.append(values) or walk(data, values))
    file = File(pa.table({"n": range(ROWS), "t": ["x"] * ROWS}), use_dictionary=["t"])
    bound = ROWS * file.layout.chunks.get(0, 1).uncompressed
    for share, count in ((bound, 0), (bound - 1, 1)):
        file.rows(4 * share)
        assert walked == [ROWS] * count


def test_texts_are_measured_where_useful_without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["x" * 1_000_000, *(str(row % 10) for row in range(1, ROWS))]
    monkeypatch.setattr(decode, "_MOST_MEASURED_ROWS", ROWS)
    assert File(pa.table({"t": texts})).rows(8_400_000) == ROWS
    monkeypatch.setattr(decode, "_MOST_MEASURED_ROWS", ROWS - 1)
    assert File(pa.table({"t": texts})).rows(8_400_000) == 2
    monkeypatch.setattr(decode, "_text_lengths", None)
    many = pa.table({"t": [f"{row % 50:02}" * 50_000 for row in range(1000)]})
    assert File(many, compression="NONE", dictionary_pagesize_limit=10_000_000).rows(16_000_000, 10) == 10
    # Beside a list of texts, whose rows have any number of them, no text is measured.
    monkeypatch.setattr(decode, "_MOST_MEASURED_ROWS", ROWS)
    both = pa.table({"t": texts, "l": [["y" * 1000] * 10] * ROWS})
    assert File(both).rows(8_400_000) == 2


@pytest.mark.parametrize("encoding", [None, "DELTA_BYTE_ARRAY"])
def test_the_length_of_each_text_is_measured(encoding: str | None) -> None:
    write = {} if encoding is None else {"use_dictionary": False, "column_encoding": {"t": encoding}}
    file = File(pa.table({"t": ["a", None, "abc", "é"]}), **write)
    chunk = file.layout.chunks.get(0, 0)
    pages = decode.walk_pages(file.data.chunk(chunk), chunk.values)
    assert decode._text_lengths(file.data, 0, 0, pages, 1).tolist() == [1, 0, 3, 2]


def test_texts_are_found_below_structs_and_lists() -> None:
    batch = pa.record_batch([pa.array([{"l": [{"t": "x"}, {"t": "y"}]}, None])], ["c"])
    assert decode._leaf_of(batch).to_pylist() == ["x", "y"]


def test_the_longest_text_may_be_outside_of_the_dictionary() -> None:
    file = File(pa.table({"t": ["x" * 1000] * ROWS}))
    chunk = file.layout.chunks.get(0, 0)
    pages = decode.walk_pages(file.data.chunk(chunk), chunk.values)
    assert decode._longest_text(file.data, chunk, pages) == 1000
    # The bytes stored for a row are no longer than the chunk; only DELTA_BYTE_ARRAY repeats parts of it.
    for encoding, longest in ((0, 1000), (6, 1000), (7, chunk.uncompressed)):
        others = pages._replace(encodings=pages.encodings | {encoding})
        assert decode._longest_text(file.data, chunk, others) == longest
    assert decode._longest_text(file.data, chunk, pages._replace(dictionary=None)) == chunk.uncompressed


def test_text_larger_than_a_batch_is_alone() -> None:
    file = File(pa.table({"t": ["x" * 1_000_000, *"y" * 99]}), compression="zstd")
    assert file.rows(2_000_000) == 1


def test_elements_of_lists_count_and_are_not_measured_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "_text_lengths", None)
    numbers = File(pa.table({"l": [[7] * 1000] * 1000}))
    assert 100 * numbers.layout.footer.metadata.row_group(0).total_byte_size < 3_000_000
    assert numbers.rows(1_000_000, 100) == 250_000 // 8000
    texts = File(pa.table({"l": [["x" * 1000] * 10] * 1000}))
    assert texts.rows(1_000_000) == 250_000 // 10_040


def test_values_of_a_fixed_length_count_by_it() -> None:
    content = pa.table({"b": pa.array([b"x" * 16] * ROWS, pa.binary(16))})
    assert File(content).rows(100_000) == 25_000 // 16


def test_longest_text_of_a_dictionary_counts() -> None:
    content = pa.table({"t": [str(row % 5) * 100_000 for row in range(1000)]})
    file = File(content, compression="NONE")
    assert file.layout.chunks.get(0, 0).uncompressed > 500_000
    assert file.rows(16_000_000, 100) == 4_000_000 // 100_000 - 1


@pytest.mark.parametrize("told", [None, 0, -7])
def test_small_columns_are_not_measured(monkeypatch: pytest.MonkeyPatch, told: int | None) -> None:
    def get(*arguments: object) -> None:
        raise AssertionError("decoding chunks takes longer than reading them")

    monkeypatch.setattr(Chunks, "get", get)
    file = File(pa.table({"t": ["x"] * ROWS}))
    least = ROWS * file.layout.footer.metadata.row_group(0).total_byte_size
    if told is not None:
        group, least = SimpleNamespace(total_byte_size=told), ROWS
        metadata = SimpleNamespace(row_group=lambda number: group, schema=file.layout.footer.metadata.schema)
        file.layout = dataclasses.replace(file.layout, footer=file.layout.footer._replace(metadata=metadata))
    assert file.rows(-(-least // 3)) == ROWS
    with pytest.raises(AssertionError):
        file.rows(-(-least // 3) - 1)


def test_positions_are_computed_only_for_row_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    def positions(*arguments: object) -> None:
        raise AssertionError("nothing asks for them")

    monkeypatch.setattr(decode._Part, "positions", positions)
    file = File(numbers(2500), wanted=col("n") > 2400)
    assert sum(batch.num_rows for batch in file.batches()) == 99


def test_texts_in_structs_are_measured_too() -> None:
    texts = [f"{row % 10}" for row in range(ROWS)]
    texts[3] = "x" * 1_000_000
    content = pa.table({"s": [{"n": row, "deep": {"t": text}} for row, text in enumerate(texts)]})
    assert File(content).rows(8_800_000) == ROWS


def test_page_larger_than_the_memory_limit_is_refused() -> None:
    file = File(pa.table({"t": ["x" * 1000] * ROWS}), use_dictionary=False, compression="zstd")
    with pytest.raises(
        DataError, match=r"A page of the column 't' unpacks to \d+ bytes, more than 'max_bytes_in_flight'"
    ) as caught:
        file.rows(500_000)
    size = int(re.findall(r"\d+", caught.value.message)[0])
    assert file.rows(size) > 1
    with pytest.raises(DataError, match="unpacks"):
        file.rows(size - 1)


def test_number_page_larger_than_the_memory_limit_is_refused() -> None:
    """Also where batches of it would be small: the page is unpacked whole."""
    file = File(pa.table({"n": range(ROWS)}), use_dictionary=False, data_page_size=1 << 30)
    assert file.rows(ROWS * 8 + 100, 10) == 10
    with pytest.raises(DataError, match=r"A page of the column 'n' unpacks to 80"):
        file.rows(ROWS * 8 - 1, 10)


def test_compressed_total_does_not_enlarge_batches() -> None:
    file = File(pa.table({"t": ["x" * 100] * ROWS}), use_dictionary=False, compression="zstd")
    found = file.rows(2_000_000)
    assert found < 2_000_000 // 4 // 100
    group = SimpleNamespace(total_byte_size=1000)
    metadata = SimpleNamespace(row_group=lambda number: group, schema=file.layout.footer.metadata.schema)
    file.layout = dataclasses.replace(file.layout, footer=file.layout.footer._replace(metadata=metadata))
    assert file.rows(2_000_000, 1000) == 1000
    assert file.rows(2_000_000) == found


def test_rows_without_columns_have_the_wanted_number() -> None:
    file = File(numbers(), partition={"p": "a"}, columns=["p"])
    assert file.rows(10**9, 10) == 10
    # They have no bytes.
    assert file.rows(4) == ROWS


# === Batches ===


@pytest.mark.parametrize("rows", [999, 1001])
def test_row_group_whose_rows_differ_from_its_footer_is_refused(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    batch = pa.RecordBatch.from_pydict({"n": pa.array(range(rows), pa.int64())})
    monkeypatch.setattr(FileDecoder, "_raw", lambda *_: iter([(batch, rows)]))
    with pytest.raises(DataError, match=f"should hold 1000 rows up to its end, but {rows} were found"):
        File(numbers(1000)).batches()


@pytest.mark.parametrize(("most", "decoded"), [(2_000_000, {1}), (1_000_000, {0, 1, 2})])
def test_only_text_chunks_are_decoded_if_the_rest_is_small(
    monkeypatch: pytest.MonkeyPatch, most: int, decoded: set[int]
) -> None:
    """Decoding all of them took a fifth of the time of a file of 16 columns and 10,000 rows."""
    texts = [f"text {row % 50}" for row in range(ROWS)]
    file = File(pa.table({"n": range(ROWS), "t": texts, "m": range(ROWS)}))
    asked: set[int] = set()
    get = Chunks.get
    monkeypatch.setattr(Chunks, "get", lambda self, group, leaf: asked.add(leaf) or get(self, group, leaf))
    file.rows(most)
    assert asked == decoded


@pytest.mark.parametrize("batch_rows", [1, 7, 1000, ROWS])
def test_batches_have_the_rows_in_order(batch_rows: int) -> None:
    file = File(numbers(2500), batch_rows=batch_rows, row_group_size=1000)
    batches = file.batches()
    assert pa.Table.from_batches(batches)["n"].to_pylist() == list(range(2500))
    assert {batch.num_rows for batch in batches} <= {batch_rows, 1000 % batch_rows, 500 % batch_rows, 1000, 500}


def test_a_constant_is_made_once() -> None:
    file = File(numbers(2500), partition={"p": "a long value"})
    batches = file.batches()
    assert [batch["p"].to_pylist() for batch in batches] == [["a long value"] * count for count in (1000, 1000, 500)]
    assert len({batch["p"].buffers()[2].address for batch in batches}) == 1


def test_the_constants_of_a_first_small_batch_are_few() -> None:
    file = File(numbers(10), partition={"p": "a long value"}, batch_rows=1000)
    [column] = [item for item in file.decoder.shape.columns if item.name == "p"]
    small, larger, largest = (file.decoder.constant(column, rows) for rows in (10, 20, 30))
    assert [len(found) for found in (small, larger, largest)] == [10, 20, 30]
    assert small.buffers()[2].size < 1000 < larger.buffers()[2].size
    assert larger.buffers()[2].address == largest.buffers()[2].address


def test_rows_that_all_match_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode._Columns, "filtered", None)
    assert [batch.num_rows for batch in File(numbers(100), wanted=col("n") >= 0).batches()] == [100]


def test_a_filter_of_constants_is_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated: list[object] = []
    mask = decode.predicate_mask

    def counted(predicate: Any, batch: pa.RecordBatch) -> Any:
        evaluated.append(batch.num_rows)
        return mask(predicate, batch)

    monkeypatch.setattr(decode, "predicate_mask", counted)
    file = File(numbers(2500), partition={"p": "a"}, wanted=col("p") == "a")
    assert sum(batch.num_rows for batch in file.batches()) == 2500
    assert evaluated == [1]


def test_wanted_rows_are_those_of_any_batch() -> None:
    file = File(numbers(2500), batch_rows=1000)
    wanted = GroupPages(((3, 5), (1200, 1203), (2400, 2401)), {})
    layout = dataclasses.replace(file.layout, pages={0: wanted})
    decoder = FileDecoder(file.decoder.shape, file.decoder.task, layout, Selection(None, None), file.report)
    batches = decoder.batches(file.data, (0,), threads=False)
    assert [row for batch in batches for row in batch["n"].to_pylist()] == [3, 4, 1200, 1201, 1202, 2400]


def stubbed(file: File, batches: Any) -> File:
    """Let the open file of ``file`` yield other batches: those that ``batches`` makes of its own."""
    [reader] = file.data.opened

    def iter_batches(*arguments: Any, **how: Any) -> Iterator[pa.RecordBatch]:
        yield from batches(pq.ParquetReader.iter_batches(reader, *arguments, **how))

    file.data.opened[:] = [SimpleNamespace(iter_batches=iter_batches)]
    return file


@pytest.mark.parametrize("rows", [999, 1001])
def test_a_row_group_has_the_rows_that_the_footer_counts(rows: int) -> None:
    file = stubbed(File(numbers(1000)), lambda batches: [numbers(rows).combine_chunks().to_batches()[0]])
    with pytest.raises(DataError, match=f"Row group 0 should hold 1000 rows up to its end, but {rows} were found"):
        file.batches()


@pytest.mark.parametrize(("in_flight", "most"), [(1, 8 << 20), (100 << 20, 100 << 20)])
def test_batch_has_a_share_of_the_memory_limit(monkeypatch: pytest.MonkeyPatch, in_flight: int, most: int) -> None:
    asked: list[int] = []
    monkeypatch.setattr(decode, "rows_in_batch", lambda *arguments: asked.append(arguments[-1]) or 10)
    File(numbers(10), in_flight=in_flight).batches()
    assert asked == [most]


def test_only_a_file_of_which_columns_are_read_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    file = File(numbers(25), partition={"p": "a"}, columns=["p"], batch_rows=10)
    monkeypatch.setattr(ParquetBytes, "open", None)
    assert [batch.to_pydict() for batch in file.batches()] == [{"p": ["a"] * rows} for rows in (10, 10, 5)]


@pytest.mark.parametrize("threads", [False, True])
def test_file_is_decoded_by_the_configured_number_of_threads(threads: bool) -> None:
    file = File(numbers(10))
    [reader], told = file.data.opened, []

    def iter_batches(*arguments: Any, **how: Any) -> Iterator[pa.RecordBatch]:
        told.append(how["use_threads"])
        return pq.ParquetReader.iter_batches(reader, *arguments, **how)

    file.data.opened[:] = [SimpleNamespace(iter_batches=iter_batches)]
    assert [batch.num_rows for batch in file.decoder.batches(file.data, (0,), threads=threads)] == [10]
    assert told == [threads]


@pytest.mark.parametrize(("last", "decoded"), [(5, [1000]), (1000, [1000]), (1001, [1000, 1000])])
def test_nothing_is_decoded_after_the_last_needed_row(last: int, decoded: list[int]) -> None:
    file = File(numbers(2500), batch_rows=1000)
    layout = dataclasses.replace(file.layout, pages={0: GroupPages(((3, last),), {})})
    decoder = FileDecoder(file.decoder.shape, file.decoder.task, layout, Selection(None, None), file.report)
    found: list[int] = []
    stubbed(file, lambda batches: (batch for batch in batches if not found.append(batch.num_rows)))  # type: ignore[func-returns-value]
    assert sum(batch.num_rows for batch in decoder.batches(file.data, (0,), threads=False)) == last - 3
    assert found == decoded


def test_removed_rows_are_counted_and_not_returned() -> None:
    file = File(numbers(2500), deleted=DeletionVector.from_positions([0, 999, 1000, *range(2000, 2500)]))
    # A batch of which all rows are removed is none.
    rows = [batch["n"].to_pylist() for batch in file.batches()]
    assert rows == [list(range(1, 999)), list(range(1001, 2000))]
    assert file.report.rows_deleted == 503


def test_matching_excludes_deleted_and_other_rows() -> None:
    file = File(numbers(2500), wanted=col("n") >= 990, deleted=DeletionVector.from_positions([0, 991, 1500]))
    found = file.decoder.matching(file.data, (0,), threads=False)
    rows = [start + row for start, mask in found[0] for row, matches in enumerate(mask) if matches]
    assert rows == [row for row in range(990, 2500) if row not in (991, 1500)]
    none = File(numbers(2500), wanted=col("n") >= 0, deleted=DeletionVector.from_positions(range(1000)))
    assert not none.decoder.matching(none.data, (0,), threads=False)[0][0][1].any()


def test_an_open_file_is_used_once_and_not_for_dictionaries(monkeypatch: pytest.MonkeyPatch) -> None:
    file = File(numbers(), **PLAIN)
    [opened] = file.data.opened
    assert file.data.open(["n"]) is not opened
    assert file.data.open() is opened
    with monkeypatch.context() as patch:
        # Reads through Python are for files that are here in parts.
        patch.setattr(decode, "SparseFile", None)
        again = file.data.open()
    assert again is not opened
    # The magic bytes at the beginning are not needed.
    parts = [ByteBlock(4, file.data.blocks[0].data.slice(4))]
    assert ParquetBytes(file.data.size, parts, file.data.metadata).open().read_all().num_rows == ROWS
    assert again.read_all()["n"].to_pylist() == list(range(ROWS))
    # For a rebuilt chunk, the rebuilt bytes are read.
    chunk, other = file.layout.chunks.get(0, 0), File(pa.table({"n": range(1, ROWS + 1)}), **PLAIN)
    same = other.layout.chunks.get(0, 0)
    assert (same.start, same.length) == (chunk.start, chunk.length)
    whole = dataclasses.replace(
        file.data, replaced={(chunk.start, chunk.length): pa.py_buffer(other.data.chunk(same))}, opened=[]
    )
    assert whole.open().read_all()["n"].to_pylist() == list(range(1, ROWS + 1))


@pytest.mark.parametrize(
    ("start", "rows", "is_slice"), [(0, 100, True), (10, 51, True), (10, 50, False), (99, 1, False)]
)
@pytest.mark.parametrize("is_nested", [False, True])
def test_a_small_part_of_a_batch_does_not_keep_all_of_it(
    start: int, rows: int, is_slice: bool, is_nested: bool
) -> None:
    table = numbers(100)
    [batch] = (table.append_column("l", pa.array([[row] for row in range(100)])) if is_nested else table).to_batches()
    part = decode._part(batch, start, rows)
    assert part is not None
    assert part["n"].to_pylist() == list(range(start, start + rows))
    is_same = part["n"].buffers()[1].address == batch["n"].buffers()[1].address
    assert is_same is (rows == 100 if is_nested else is_slice)
    assert decode._part(None, start, rows) is None


# === Rows of files that have only constants ===


def constants(rows: list[tuple[str, int]], *, kind: pa.DataType | None = None, **plan: Any) -> Any:
    """Return what all files share, and files of these partition values and rows."""
    kind = pa.string() if kind is None else kind
    table = Table(Storage(), metadata(pa.schema({"id": pa.int64(), "p": kind}), ["p"]))
    for value, _ in rows:
        table.add(numbers(1).rename_columns(["id"]), partition_values={"p": value})
    batch_rows = plan.pop("batch_rows", 1000)
    found = table.plan(**{"columns": ["p"], **plan}, options=fast_options(batch_rows=batch_rows))
    # A plan leaves files out by their partition values.
    return Shape(found.context), list(zip(table.plan().tasks, [count for _, count in rows], strict=True))


@pytest.mark.parametrize(
    ("files", "batches"),
    [
        ([("1", 4), ("2", 4), ("3", 4)], [10, 2]),
        ([("1", 25)], [10, 10, 5]),
        ([("1", 5), ("2", 5)], [10]),
        ([("1", 5), ("2", 0), ("3", 15)], [10, 10]),
        ([("1", 0)], []),
        ([], []),
    ],
)
def test_rows_of_files_are_combined_into_batches(files: list[tuple[str, int]], batches: list[int]) -> None:
    shape, counted = constants(files, kind=pa.int32(), batch_rows=10)
    found = list(decode.constant_batches(shape, counted))
    assert [batch.num_rows for batch in found] == batches
    rows = [row["p"] for batch in found for row in batch.to_pylist()]
    assert rows == [int(value) for value, count in files for _ in range(count)]
    shape, counted = constants(files, kind=pa.int32(), batch_rows=10, columns=[])
    assert [batch.num_rows for batch in decode.constant_batches(shape, counted)] == batches


@pytest.mark.parametrize(
    ("files", "batches"),
    [
        # A text of five characters may take 20 of 100 bytes.
        ([("x" * 5, 12)], [5, 5, 2]),
        ([("x" * 5, 3), ("x" * 10, 5)], [4, 2, 2]),
        ([("x" * 5, 3), ("x" * 11, 2)], [3, 2]),
        # A row larger than a batch is alone in its batch.
        ([("x" * 100, 3)], [1, 1, 1]),
        ([("x" * 5, 1), ("x" * 100, 2), ("x" * 5, 1)], [1, 1, 1, 1]),
        ([("", 100)], [100]),
    ],
)
def test_batches_of_constants_stay_within_the_text_limit(
    monkeypatch: pytest.MonkeyPatch, files: list[tuple[str, int]], batches: list[int]
) -> None:
    monkeypatch.setattr(decode, "_most_bytes", lambda shape: 100)
    shape, counted = constants(files)
    assert [batch.num_rows for batch in decode.constant_batches(shape, counted)] == batches


@pytest.mark.parametrize(("wanted", "rows"), [(None, [1, 1, 2, 3]), (2, [2]), (3, [3]), (4, [])])
def test_constants_that_do_not_match_are_left_out(wanted: int | None, rows: list[int]) -> None:
    how = {} if wanted is None else {"filter": col("p") == wanted}
    shape, counted = constants([("1", 2), ("2", 1), ("3", 1)], kind=pa.int32(), **how)
    assert [row["p"] for batch in decode.constant_batches(shape, counted) for row in batch.to_pylist()] == rows


def test_files_without_rows_cause_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "predicate_mask", None)
    shape, counted = constants([("1", 0), ("2", 0)], kind=pa.int32(), filter=col("p") == 2)
    assert [*decode.constant_batches(shape, counted)] == []


def test_invalid_constant_is_an_error_after_the_rows_before_it() -> None:
    shape, counted = constants([("1", 2), ("2", 3), ("many", 1), ("4", 1)], kind=pa.int32(), batch_rows=2)
    batches = decode.constant_batches(shape, counted)
    assert [next(batches)["p"].to_pylist() for _ in range(2)] == [[1, 1], [2, 2]]
    with pytest.raises(DataError, match="many") as caught:
        next(batches)
    assert caught.value.file_id == counted[2][0].file_id


def test_row_text_is_counted_by_its_maximum_bytes() -> None:
    assert decode._text_bytes({"a": "xy", "b": b"xyz", "c": 5, "d": None}) == 20
    assert decode._text_bytes({}) == 0


@pytest.mark.parametrize(("in_flight", "most"), [(1, 2 << 20), (8 << 20, 2 << 20), (100 << 20, 25 << 20)])
def test_a_batch_has_a_fourth_of_the_bytes_in_flight(in_flight: int, most: int) -> None:
    assert decode._most_bytes(File(numbers(1), in_flight=in_flight).decoder.shape) == most


@pytest.mark.parametrize(("text", "rows"), [("x", 1000), ("x" * 500, 1000), ("x" * 1000, 524), ("x" * 600_000, 1)])
def test_batches_with_a_long_constant_have_fewer_rows(text: str, rows: int) -> None:
    file = File(numbers(1000), partition={"p": text}, in_flight=1)
    assert file.batches()[0].num_rows == rows


# === Selections ===


def vector(*rows: int) -> DeletionVector:
    return DeletionVector.from_positions(rows)


@pytest.mark.parametrize(
    ("without", "only", "visible"),
    [
        (None, None, range(10)),
        (vector(1, 3), None, [0, 2, 4, 5, 6, 7, 8, 9]),
        (None, vector(1, 3, 9), [1, 3, 9]),
        (vector(3), vector(1, 3, 9), [1, 9]),
        (vector(1, 3, 9), vector(3), []),
        (vector(), None, range(10)),
        (None, vector(), []),
    ],
)
def test_visible_rows_are_those_of_one_vector_without_the_other(without: Any, only: Any, visible: Any) -> None:
    selection = Selection(without, only)
    for start in range(10):
        for stop in range(start, 11):
            mask = selection.mask(start, stop - start)
            found = (
                range(start, stop) if mask is None else [start + i for i, kept in enumerate(mask.to_pylist()) if kept]
            )
            assert list(found) == [row for row in visible if start <= row < stop]
        assert selection.count(start) == len([row for row in visible if row < start])
    last = max((row for item in (without, only) if item is not None for row in item.positions()), default=-1)
    selection.check(last + 1)
    if last >= 0:
        with pytest.raises(DataError, match=f"names the row {last}, but the file has {last} rows"):
            selection.check(last)


def test_a_nested_column_has_no_bounds() -> None:
    nested = StructField("s", StructType((StructField("x", LONG),)))
    assert typed_bounds((1, 2), nested, pa.int64()) == typed_bounds(None, StructField("x", LONG), pa.int64())
    assert typed_bounds((1, 2), StructField("x", LONG), pa.int64())[:2] == (1, 2)


@pytest.mark.parametrize(("collation", "bounds"), [("UTF8_LCASE", (None, None)), ("UTF8_BINARY", ("a", "b"))])
def test_bounds_are_in_the_order_of_bytes(collation: str, bounds: Any) -> None:
    field = StructField("x", PrimitiveType("string"), metadata={"__COLLATIONS": {"x": f"spark.{collation}"}})
    assert typed_bounds((b"a", b"b"), field, pa.string())[:2] == bounds


@pytest.mark.parametrize("rows", [[b"\xff"], [{"x": b"\xff"}], [(b"\xff", b"")], {"x": [b"\xff"]}], ids=str)
def test_part_of_a_batch_keeps_no_other_rows(rows: Any) -> None:
    """A removed row's broken text, before and after two others, is nothing that a conversion sees."""
    text = {"list": pa.list_(pa.binary()), "struct": pa.struct([("x", pa.list_(pa.binary()))])}
    kind = text["struct"] if isinstance(rows, dict) else text["list"]
    if isinstance(rows, list) and isinstance(rows[0], dict):
        kind = pa.list_(pa.struct([("x", pa.binary())]))
    if isinstance(rows, list) and isinstance(rows[0], tuple):
        kind = pa.map_(pa.binary(), pa.binary())
    good = _replaced(rows)
    batch = pa.record_batch([pa.array([rows, good, good, good, rows], kind)], ["c"])
    part = decode._part(batch, 1, 3)
    assert part is not None
    assert part.column(0).to_pylist() == pa.array([good] * 3, kind).to_pylist()
    # A cast of a nested column sees the whole arrays below it; of a map it ends the process in pyarrow 14.
    assert {value for leaf in _leaves(part.column(0)) for value in leaf.to_pylist()} <= {b"ok", b""}


def _replaced(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.replace(b"\xff", b"ok")
    if isinstance(value, dict):
        return {name: _replaced(item) for name, item in value.items()}
    return type(value)(map(_replaced, value))


def _leaves(array: pa.Array) -> Iterator[pa.Array]:
    if pa.types.is_map(array.type):
        children = [array.keys, array.items]
    elif pa.types.is_list(array.type):
        children = [array.values]
    elif pa.types.is_struct(array.type):
        children = [array.field(place) for place in range(array.type.num_fields)]
    else:
        yield array
        return
    for child in children:
        yield from _leaves(child)


# === Batches that are as the file stores them ===


TEXTS = pa.table({"a": pa.array([1, 2, None], pa.int64()), "b": ["x", None, "\u00e9"], "c": [0.5, None, 1.5]})


def rebuilt(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the numbers of rows of batches that are made of single columns, as they come."""
    found: list[int] = []
    arrays_of = decode._Columns._arrays

    def counted(self: Any, *values: Any) -> list[pa.Array]:
        arrays = arrays_of(self, *values)
        found.append(len(arrays[0]))
        return arrays

    monkeypatch.setattr(decode._Columns, "_arrays", counted)
    return found


@pytest.mark.parametrize(
    ("content", "given", "is_rebuilt"),
    [
        (TEXTS, {}, False),
        (TEXTS.replace_schema_metadata({"a": "b"}), {}, False),
        (TEXTS, {"columns": ["a", "c"]}, False),
        (TEXTS, {"columns": ["c", "a"]}, True),
        (TEXTS, {"partition": {"p": "one"}}, True),
        (TEXTS, {"partition": {"p": "one"}, "columns": ["a", "b", "c"]}, False),
        (TEXTS, {"columns": ["a"], "wanted": col("c") > 0}, True),
        (TEXTS, {"deleted": vector(1)}, False),
        (pa.table({"a": pa.array([1, 2], pa.int64()), "s": [{"x": 1, "y": 2}, None]}), {}, False),
    ],
)
def test_batch_is_rebuilt_if_its_columns_differ_from_the_file(
    monkeypatch: pytest.MonkeyPatch, content: pa.Table, given: dict[str, Any], is_rebuilt: bool
) -> None:
    found = rebuilt(monkeypatch)
    file = File(content, **given)
    [batch] = file.batches()
    # A filter is evaluated on columns of its own.
    assert (len(found) > ("wanted" in given)) is is_rebuilt
    assert batch.schema.equals(file.decoder.shape.context.output_schema, check_metadata=True)
    expected = content.to_pylist()
    if "deleted" in given:
        del expected[1]
    if "wanted" in given:
        expected = [row for row in expected if (row["c"] or 0) > 0]
    assert batch.to_pylist() == [{name: row.get(name, "one") for name in batch.schema.names} for row in expected]


@pytest.mark.parametrize("rows", [3, 5000])
@pytest.mark.parametrize("other", ["", "\u00e9"])
@pytest.mark.parametrize("bad", [b"\xff", b"\xc3", b"\xed\xa0\x80"])
def test_invalid_text_is_refused_in_unconverted_batches(rows: int, other: str, bad: bytes) -> None:
    texts = pa.array([other.encode()] * (rows - 1) + [bad], pa.binary())
    broken = pa.StringArray.from_buffers(rows, *texts.buffers()[1:])
    file = File(pa.table({"a": pa.array(range(rows), pa.int64()), "b": broken}), batch_rows=rows)
    with pytest.raises(DataError, match=f"Column 'b' must have UTF-8 text, but the row {rows - 1} of the file"):
        file.batches()


def test_forbidden_null_is_refused_in_unconverted_batches() -> None:
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    file = File(pa.table({"a": pa.array([1], pa.int64())}, schema))
    assert file.layout.alignment.is_as_stored
    assert [batch.to_pylist() for batch in file.batches()] == [[{"a": 1}]]


def test_long_list_becomes_one_array_that_row_groups_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[int] = []
    looked_for: list[int] = []
    to_arrow, array = lists.to_arrow, lists.InSortedList.array
    monkeypatch.setattr(lists, "to_arrow", lambda keys, kind: made.append(len(keys)) or to_arrow(keys, kind))
    monkeypatch.setattr(
        lists.InSortedList, "array", lambda self, kind: looked_for.append(len(self.places)) or array(self, kind)
    )
    wanted = range(0, ROWS, 5)
    file = File(numbers(ROWS), wanted=col("n").is_in(wanted), batch_rows=50, row_group_size=100)
    assert [value for batch in file.batches() for value in batch["n"].to_pylist()] == [*wanted]
    assert made == [len(wanted)]
    assert looked_for == [20] * (ROWS // 50)
