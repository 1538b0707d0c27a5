"""The batches of one file: their row counts and their values."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delta_sharing_client.decode import decoder
from delta_sharing_client.decode.bounds import typed_bounds
from delta_sharing_client.decode.decoder import FileDecoder, ParquetBytes, Selection
from delta_sharing_client.decode.layout import Shape
from delta_sharing_client.delta.data_types import PrimitiveType, StructField, StructType
from delta_sharing_client.delta.deletion_vectors import DeletionVector
from delta_sharing_client.errors import DataError
from delta_sharing_client.parquet.byte_ranges import ByteBlock
from delta_sharing_client.parquet.chunks import Chunks
from delta_sharing_client.parquet.partial_chunk import GroupPages
from delta_sharing_client.predicates import lists
from delta_sharing_client.predicates.tree import col
from tests.unit.decode.opened import File
from tests.unit.storages import Storage, Table, fast_options, metadata

ROWS = 10_000
LONG = PrimitiveType("long")
PLAIN = {"use_dictionary": False, "compression": "NONE"}


# === Rows of a batch ===


def numbers(count: int = ROWS) -> pa.Table:
    return pa.table({"n": pa.array(range(count), pa.int64())})


@pytest.mark.parametrize(
    ("in_flight", "batch_rows", "rows"),
    [
        (10**9, ROWS, ROWS),
        (10**9, 10 * ROWS, ROWS),
        (10**9, 100, 100),
        # A quarter of the limit holds eight bytes per row and the page header.
        (100_000, ROWS, 3125),
        (100_000, 3125, 3125),
        (100_000, 3000, 3000),
        (100_000, 0, 1),
        (321_000, ROWS, ROWS),
        (319_900, ROWS, 9996),
    ],
)
def test_batch_has_rows_for_a_fourth_of_the_memory_limit(in_flight: int, batch_rows: int, rows: int) -> None:
    assert File(numbers(), **PLAIN).rows(in_flight, batch_rows) == pytest.approx(rows, rel=0.002)


def test_batch_size_depends_on_the_width_of_each_column() -> None:
    content = pa.table(
        {
            "a": pa.array(range(ROWS), pa.int32()),
            "b": [True] * ROWS,
            "c": pa.array([1.5] * ROWS),
            "d": pa.array([1] * ROWS),
        }
    )
    # The columns have 4, 1, 8 and 8 bytes per row in Arrow, but fewer in the file.
    assert File(content, use_dictionary=False).rows(400_000) == pytest.approx(100_000 / 21, rel=0.002)
    assert File(content).rows(10**9) == ROWS


def test_repeated_string_is_counted_for_each_row() -> None:
    content = pa.table({"t": ["x" * 1000] * ROWS})
    # A row has an offset of 4 bytes and a string of 1,000 bytes.
    assert File(content).rows(8_000_000) == 2_000_000 * ROWS // (1004 * ROWS)
    # Without a dictionary, the chunk contains the bytes of all strings.
    stored = File(content, use_dictionary=False, data_page_size=100_000, compression="zstd")
    assert stored.rows(12_000_000) == pytest.approx(3_000_000 / 1004, rel=0.01)


@pytest.mark.parametrize("place", [0, 5000, ROWS - 1])
@pytest.mark.parametrize(
    "write", [{}, {"use_dictionary": False, "column_encoding": {"t": "DELTA_BYTE_ARRAY"}}], ids=str
)
def test_one_long_string_does_not_make_all_batches_small(place: int, write: dict[str, Any]) -> None:
    texts = [f"{row % 10}" for row in range(ROWS)]
    texts[place] = "x" * 1_000_000
    # The bytes in the file count as well as the bytes of each row in Arrow.
    assert File(pa.table({"t": texts}), **write).rows(8_400_000) == ROWS
    texts[place] = "0"
    # Four long strings are too many for one batch.
    for row in range(4):
        texts[2500 * row + 7] = "y" * 900_000 + str(row)
    assert File(pa.table({"t": texts}), **write).rows(8_400_000) == 2500


def test_measured_batch_may_use_its_whole_memory() -> None:
    texts = ["0"] * 8192
    texts[5] = "x" * 1_000_000
    file = File(pa.table({"t": texts}))
    size = file.layout.chunks.get(0, 0).uncompressed + sum(map(len, texts))
    assert file.rows(4 * size) == 8192
    assert file.rows(4 * size - 1) == 2048


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "RLE_DICTIONARY"])
def test_strings_are_measured_in_small_single_threaded_batches(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    """Measuring must not need much memory itself."""
    reads: list[tuple[int, Any, dict[str, Any]]] = []

    class Reader:
        def __init__(self, reader: Any) -> None:
            self._reader = reader

        def iter_batches(self, rows: int, **how: Any) -> Any:
            reads.append((rows, how["column_indices"], {"threads": how.get("use_threads", True)}))
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
    assert reads
    assert {tuple(leaves) for _, leaves, _ in reads} == {(1,)}
    assert all(how == {"threads": False} for _, _, how in reads)
    assert {rows for rows, _, _ in reads} == {max(1, most // 4 // size) if is_delta else 4096}


def test_large_batches_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "_text_lengths", None)
    file = File(pa.table({"t": [str(row % 5) * 100 for row in range(ROWS)]}))
    assert file.rows(4 * 104 * 5000) == 5000


def test_null_strings_are_measured_as_empty() -> None:
    # At 4 bytes per row, all rows are too many for one batch, but a fourth of them fits.
    assert File(pa.table({"t": pa.nulls(ROWS, pa.string())})).rows(100_000) == ROWS // 4


@pytest.fixture
def walked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which the number of values of each walked chunk is appended."""
    walk, counts = decoder.walk_pages, []
    monkeypatch.setattr(decoder, "walk_pages", lambda data, values: counts.append(values) or walk(data, values))
    return counts


def test_only_chunks_above_the_memory_limit_are_walked(walked: list[int]) -> None:
    file = File(pa.table({"n": [row % 5000 for row in range(ROWS)]}))
    size = file.layout.chunks.get(0, 0).uncompressed
    assert size < 8 * ROWS
    for most, count in ((size, 0), (size - 1, 1)):
        assert file.rows(most) == most // 4 // 8
        assert walked == [ROWS] * count


def test_short_strings_are_not_measured(walked: list[int]) -> None:
    file = File(pa.table({"n": range(ROWS), "t": ["x"] * ROWS}), use_dictionary=["t"])
    bound = ROWS * file.layout.chunks.get(0, 1).uncompressed
    for share, count in ((bound, 0), (bound - 1, 1)):
        file.rows(4 * share)
        assert walked == [ROWS] * count


def test_strings_are_measured_up_to_a_number_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["x" * 1_000_000, *(str(row % 10) for row in range(1, ROWS))]
    monkeypatch.setattr(decoder, "_MOST_MEASURED_ROWS", ROWS)
    assert File(pa.table({"t": texts})).rows(8_400_000) == ROWS
    monkeypatch.setattr(decoder, "_MOST_MEASURED_ROWS", ROWS - 1)
    assert File(pa.table({"t": texts})).rows(8_400_000) == 2
    monkeypatch.setattr(decoder, "_text_lengths", None)
    many = pa.table({"t": [f"{row % 50:02}" * 50_000 for row in range(1000)]})
    assert File(many, compression="NONE", dictionary_pagesize_limit=10_000_000).rows(16_000_000, 10) == 10
    # A row may have any number of strings in a list, so strings are not measured.
    monkeypatch.setattr(decoder, "_MOST_MEASURED_ROWS", ROWS)
    both = pa.table({"t": texts, "l": [["y" * 1000] * 10] * ROWS})
    assert File(both).rows(8_400_000) == 2


@pytest.mark.parametrize("encoding", [None, "DELTA_BYTE_ARRAY"])
def test_the_length_of_each_string_is_measured(encoding: str | None) -> None:
    write = {} if encoding is None else {"use_dictionary": False, "column_encoding": {"t": encoding}}
    file = File(pa.table({"t": ["a", None, "abc", "é"]}), **write)
    chunk = file.layout.chunks.get(0, 0)
    pages = decoder.walk_pages(file.data.chunk(chunk), chunk.values)
    assert decoder._text_lengths(file.data, 0, 0, pages, 1).tolist() == [1, 0, 3, 2]


def test_string_columns_in_structs_and_lists_are_found() -> None:
    batch = pa.record_batch([pa.array([{"l": [{"t": "x"}, {"t": "y"}]}, None])], ["c"])
    assert decoder._leaf_of(batch).to_pylist() == ["x", "y"]


def test_longest_string_may_be_outside_the_dictionary() -> None:
    file = File(pa.table({"t": ["x" * 1000] * ROWS}))
    chunk = file.layout.chunks.get(0, 0)
    pages = decoder.walk_pages(file.data.chunk(chunk), chunk.values)
    assert decoder._longest_text(file.data, chunk, pages) == 1000
    # Only DELTA_BYTE_ARRAY repeats parts of strings; in other encodings no string is longer than its stored bytes.
    for encoding, longest in ((0, 1000), (6, 1000), (7, chunk.uncompressed)):
        others = pages._replace(encodings=pages.encodings | {encoding})
        assert decoder._longest_text(file.data, chunk, others) == longest
    assert decoder._longest_text(file.data, chunk, pages._replace(dictionary=None)) == chunk.uncompressed


def test_string_larger_than_a_batch_is_alone_in_it() -> None:
    file = File(pa.table({"t": ["x" * 1_000_000, *"y" * 99]}), compression="zstd")
    assert file.rows(2_000_000) == 1


def test_list_elements_are_counted_but_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "_text_lengths", None)
    numbers = File(pa.table({"l": [[7] * 1000] * 1000}))
    assert 100 * numbers.layout.footer.metadata.row_group(0).total_byte_size < 3_000_000
    assert numbers.rows(1_000_000, 100) == 250_000 // 8000
    texts = File(pa.table({"l": [["x" * 1000] * 10] * 1000}))
    assert texts.rows(1_000_000) == 250_000 // 10_040


def test_fixed_size_values_are_counted_by_their_size() -> None:
    content = pa.table({"b": pa.array([b"x" * 16] * ROWS, pa.binary(16))})
    assert File(content).rows(100_000) == 25_000 // 16


def test_longest_string_of_a_dictionary_determines_the_batch() -> None:
    content = pa.table({"t": [str(row % 5) * 100_000 for row in range(1000)]})
    file = File(content, compression="NONE")
    assert file.layout.chunks.get(0, 0).uncompressed > 500_000
    assert file.rows(16_000_000, 100) == 4_000_000 // 100_000 - 1


@pytest.mark.parametrize("total", [None, 0, -7])
def test_small_columns_are_not_measured(monkeypatch: pytest.MonkeyPatch, total: int | None) -> None:
    def get(*arguments: object) -> None:
        raise AssertionError("decoding chunks takes longer than reading them")

    monkeypatch.setattr(Chunks, "get", get)
    file = File(pa.table({"t": ["x"] * ROWS}))
    least = ROWS * file.layout.footer.metadata.row_group(0).total_byte_size
    if total is not None:
        group, least = SimpleNamespace(total_byte_size=total), ROWS
        metadata = SimpleNamespace(row_group=lambda number: group, schema=file.layout.footer.metadata.schema)
        file.layout = dataclasses.replace(file.layout, footer=file.layout.footer._replace(metadata=metadata))
    assert file.rows(-(-least // 3)) == ROWS
    with pytest.raises(AssertionError):
        file.rows(-(-least // 3) - 1)


def test_positions_are_computed_only_for_row_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    def positions(*arguments: object) -> None:
        raise AssertionError("nothing needs positions")

    monkeypatch.setattr(decoder._Part, "positions", positions)
    file = File(numbers(2500), predicate=col("n") > 2400)
    assert sum(batch.num_rows for batch in file.batches()) == 99


def test_strings_in_structs_are_measured() -> None:
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
    """The page is unpacked as a whole, so small batches do not help."""
    file = File(pa.table({"n": range(ROWS)}), use_dictionary=False, data_page_size=1 << 30)
    assert file.rows(ROWS * 8 + 100, 10) == 10
    with pytest.raises(DataError, match=r"A page of the column 'n' unpacks to 80"):
        file.rows(ROWS * 8 - 1, 10)


def test_too_small_total_byte_size_does_not_enlarge_batches() -> None:
    file = File(pa.table({"t": ["x" * 100] * ROWS}), use_dictionary=False, compression="zstd")
    rows = file.rows(2_000_000)
    assert rows < 2_000_000 // 4 // 100
    group = SimpleNamespace(total_byte_size=1000)
    metadata = SimpleNamespace(row_group=lambda number: group, schema=file.layout.footer.metadata.schema)
    file.layout = dataclasses.replace(file.layout, footer=file.layout.footer._replace(metadata=metadata))
    assert file.rows(2_000_000, 1000) == 1000
    assert file.rows(2_000_000) == rows


def test_batch_without_columns_has_the_requested_rows() -> None:
    file = File(numbers(), partition={"p": "a"}, columns=["p"])
    assert file.rows(10**9, 10) == 10
    # Rows without columns take no memory.
    assert file.rows(4) == ROWS


# === Batches ===


@pytest.mark.parametrize(("in_flight", "decoded"), [(2_000_000, {1}), (1_000_000, {0, 1, 2})])
def test_only_text_chunks_are_decoded_if_the_rest_is_small(
    monkeypatch: pytest.MonkeyPatch, in_flight: int, decoded: set[int]
) -> None:
    """Decoding all chunks took a fifth of the time to read a file of 16 columns and 10,000 rows."""
    texts = [f"text {row % 50}" for row in range(ROWS)]
    file = File(pa.table({"n": range(ROWS), "t": texts, "m": range(ROWS)}))
    requested: set[int] = set()
    get = Chunks.get
    monkeypatch.setattr(Chunks, "get", lambda self, group, leaf: requested.add(leaf) or get(self, group, leaf))
    file.rows(in_flight)
    assert requested == decoded


@pytest.mark.parametrize("batch_rows", [1, 7, 1000, ROWS])
def test_batches_have_the_requested_size_and_order(batch_rows: int) -> None:
    file = File(numbers(2500), batch_rows=batch_rows, row_group_size=1000)
    batches = file.batches()
    assert pa.Table.from_batches(batches)["n"].to_pylist() == list(range(2500))
    assert {batch.num_rows for batch in batches} <= {
        batch_rows,
        1000 % batch_rows,
        500 % batch_rows,
        1000,
        500,
        2500 % batch_rows,
    }


def test_constant_column_is_made_once() -> None:
    file = File(numbers(2500), partition={"p": "a long value"})
    batches = file.batches()
    assert [batch["p"].to_pylist() for batch in batches] == [["a long value"] * count for count in (1000, 1000, 500)]
    assert len({batch["p"].buffers()[2].address for batch in batches}) == 1


def test_constant_column_is_extended_to_a_whole_batch() -> None:
    file = File(numbers(10), partition={"p": "a long value"}, batch_rows=1000)
    [column] = [item for item in file.decoder.shape.columns if item.name == "p"]
    small, larger, largest = (file.decoder.constant(column, rows) for rows in (10, 20, 30))
    assert [len(constant) for constant in (small, larger, largest)] == [10, 20, 30]
    assert small.buffers()[2].size < 1000 < larger.buffers()[2].size
    assert larger.buffers()[2].address == largest.buffers()[2].address


def test_rows_that_all_match_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder._Columns, "filtered", None)
    assert [batch.num_rows for batch in File(numbers(100), predicate=col("n") >= 0).batches()] == [100]


def test_filter_of_constants_is_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated: list[object] = []
    mask = decoder.predicate_mask

    def counted(predicate: Any, batch: pa.RecordBatch) -> Any:
        evaluated.append(batch.num_rows)
        return mask(predicate, batch)

    monkeypatch.setattr(decoder, "predicate_mask", counted)
    file = File(numbers(2500), partition={"p": "a"}, predicate=col("p") == "a")
    assert sum(batch.num_rows for batch in file.batches()) == 2500
    assert evaluated == [1]


def test_selected_rows_may_be_in_any_batch() -> None:
    file = File(numbers(2500), batch_rows=1000)
    selected = GroupPages(((3, 5), (1200, 1203), (2400, 2401)), {})
    layout = dataclasses.replace(file.layout, pages={0: selected})
    decoder = FileDecoder(file.decoder.shape, file.decoder.task, layout, Selection(None, None), file.report)
    batches = decoder.batches(file.data, (0,), threads=False)
    assert [row for batch in batches for row in batch["n"].to_pylist()] == [3, 4, 1200, 1201, 1202, 2400]


def stubbed(file: File, batches: Any) -> File:
    """Let the reader of ``file`` yield what ``batches`` makes from the reader's own batches."""
    [reader] = file.data.opened

    def iter_batches(*arguments: Any, **how: Any) -> Iterator[pa.RecordBatch]:
        yield from batches(pq.ParquetReader.iter_batches(reader, *arguments, **how))

    file.data.opened[:] = [SimpleNamespace(iter_batches=iter_batches)]
    return file


@pytest.mark.parametrize("rows", [999, 1001])
def test_row_count_that_differs_from_the_footer_is_refused(rows: int) -> None:
    file = stubbed(File(numbers(1000)), lambda batches: [numbers(rows).combine_chunks().to_batches()[0]])
    with pytest.raises(
        DataError, match=f"Row group 0 must end at row 1000 of the file, but its decoded rows end at row {rows}"
    ):
        file.batches()


@pytest.mark.parametrize(("in_flight", "most"), [(1, 8 << 20), (100 << 20, 100 << 20)])
def test_memory_limit_of_a_batch_is_at_least_8_mib(monkeypatch: pytest.MonkeyPatch, in_flight: int, most: int) -> None:
    limits: list[int] = []
    monkeypatch.setattr(decoder, "rows_in_batch", lambda *arguments: limits.append(arguments[-1]) or 10)
    File(numbers(10), in_flight=in_flight).batches()
    assert limits == [most]


def test_file_is_not_opened_for_constants_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    file = File(numbers(25), partition={"p": "a"}, columns=["p"], batch_rows=10)
    monkeypatch.setattr(ParquetBytes, "open", None)
    assert [batch.to_pydict() for batch in file.batches()] == [{"p": ["a"] * rows} for rows in (10, 10, 5)]


@pytest.mark.parametrize("threads", [False, True])
def test_arrow_uses_threads_only_if_requested(threads: bool) -> None:
    file = File(numbers(10))
    [reader], used = file.data.opened, []

    def iter_batches(*arguments: Any, **how: Any) -> Iterator[pa.RecordBatch]:
        used.append(how["use_threads"])
        return pq.ParquetReader.iter_batches(reader, *arguments, **how)

    file.data.opened[:] = [SimpleNamespace(iter_batches=iter_batches)]
    assert [batch.num_rows for batch in file.decoder.batches(file.data, (0,), threads=threads)] == [10]
    assert used == [threads]


@pytest.mark.parametrize(("last", "decoded"), [(5, [1000]), (1000, [1000]), (1001, [1000, 1000])])
def test_batches_after_the_last_selected_row_are_not_decoded(last: int, decoded: list[int]) -> None:
    file = File(numbers(2500), batch_rows=1000)
    layout = dataclasses.replace(file.layout, pages={0: GroupPages(((3, last),), {})})
    decoder = FileDecoder(file.decoder.shape, file.decoder.task, layout, Selection(None, None), file.report)
    sizes: list[int] = []
    stubbed(file, lambda batches: (batch for batch in batches if not sizes.append(batch.num_rows)))  # type: ignore[func-returns-value]
    assert sum(batch.num_rows for batch in decoder.batches(file.data, (0,), threads=False)) == last - 3
    assert sizes == decoded


def test_mask_of_matching_rows_excludes_deleted_rows() -> None:
    file = File(numbers(2500), predicate=col("n") >= 990, deleted=DeletionVector.from_positions([0, 991, 1500]))
    masks = file.decoder.matching(file.data, (0,), threads=False)
    rows = [start + row for start, mask in masks[0] for row, matches in enumerate(mask) if matches]
    assert rows == [row for row in range(990, 2500) if row not in (991, 1500)]
    none = File(numbers(2500), predicate=col("n") >= 0, deleted=DeletionVector.from_positions(range(1000)))
    assert not none.decoder.matching(none.data, (0,), threads=False)[0][0][1].any()


def test_an_opened_reader_is_used_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    file = File(numbers(), **PLAIN)
    [opened] = file.data.opened
    assert file.data.open(["n"]) is not opened
    assert file.data.open() is opened
    with monkeypatch.context() as patch:
        # Only files that are partly in memory are read through Python.
        patch.setattr(decoder, "SparseFile", None)
        again = file.data.open()
    assert again is not opened
    # The file can be opened without the magic bytes at its start.
    parts = [ByteBlock(4, file.data.blocks[0].data.slice(4))]
    assert ParquetBytes(file.data.size, parts, file.data.metadata).open().read_all().num_rows == ROWS
    assert again.read_all()["n"].to_pylist() == list(range(ROWS))
    # The bytes of a rebuilt chunk replace those of the file.
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
def test_small_part_of_a_batch_is_copied(start: int, rows: int, is_slice: bool, is_nested: bool) -> None:
    table = numbers(100)
    [batch] = (table.append_column("l", pa.array([[row] for row in range(100)])) if is_nested else table).to_batches()
    part = decoder._part(batch, start, rows)
    assert part is not None
    assert part["n"].to_pylist() == list(range(start, start + rows))
    is_same = part["n"].buffers()[1].address == batch["n"].buffers()[1].address
    assert is_same is (rows == 100 if is_nested else is_slice)
    assert decoder._part(None, start, rows) is None


# === Rows with constants only ===


def constants(rows: list[tuple[str, int]], *, kind: pa.DataType | None = None, **plan: Any) -> Any:
    """Return a plan's shape, and its files with these partition values and row counts."""
    kind = pa.string() if kind is None else kind
    table = Table(Storage(), metadata(pa.schema({"id": pa.int64(), "p": kind}), ["p"]))
    for value, _ in rows:
        table.add(numbers(1).rename_columns(["id"]), partition_values={"p": value})
    batch_rows = plan.pop("batch_rows", 1000)
    made = table.plan(**{"columns": ["p"], **plan}, options=fast_options(batch_rows=batch_rows))
    # The plan above skips files by their partition values; the next one keeps all files.
    return Shape(made.context), list(zip(table.plan().tasks, [count for _, count in rows], strict=True))


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
def test_rows_of_files_are_combined_into_batches(
    monkeypatch: pytest.MonkeyPatch, files: list[tuple[str, int]], batches: list[int]
) -> None:
    shape, counted = constants(files, kind=pa.int32(), batch_rows=10)
    combined = list(decoder.constant_batches(shape, counted))
    assert [batch.num_rows for batch in combined] == batches
    rows = [row["p"] for batch in combined for row in batch.to_pylist()]
    assert rows == [int(value) for value, count in files for _ in range(count)]
    # Rows without columns take no memory, so only the type of Arrow's counts limits their number.
    whole = [rows] if (rows := sum(count for _, count in files)) else []
    for condition in ({}, {"filter": col("p") > 0}):
        shape, counted = constants(files, kind=pa.int32(), batch_rows=7, columns=[], **condition)
        assert [batch.num_rows for batch in decoder.constant_batches(shape, counted)] == whole
        with monkeypatch.context() as patch:
            patch.setattr(decoder, "MOST_WITHOUT_COLUMNS", 10)
            assert [batch.num_rows for batch in decoder.constant_batches(shape, counted)] == batches


@pytest.mark.parametrize(
    ("files", "batches"),
    [
        # A string of five characters may take 20 of the 100 bytes.
        ([("x" * 5, 12)], [5, 5, 2]),
        ([("x" * 5, 3), ("x" * 10, 5)], [4, 2, 2]),
        ([("x" * 5, 3), ("x" * 11, 2)], [3, 2]),
        # A row that is larger than a batch is alone in its batch.
        ([("x" * 100, 3)], [1, 1, 1]),
        ([("x" * 5, 1), ("x" * 100, 2), ("x" * 5, 1)], [1, 1, 1, 1]),
        ([("", 100)], [100]),
    ],
)
def test_batches_of_constants_stay_within_the_byte_limit(
    monkeypatch: pytest.MonkeyPatch, files: list[tuple[str, int]], batches: list[int]
) -> None:
    monkeypatch.setattr(decoder, "_most_bytes", lambda shape: 100)
    shape, counted = constants(files)
    assert [batch.num_rows for batch in decoder.constant_batches(shape, counted)] == batches


@pytest.mark.parametrize(("value", "rows"), [(None, [1, 1, 2, 3]), (2, [2]), (3, [3]), (4, [])])
def test_rows_of_constants_are_filtered(value: int | None, rows: list[int]) -> None:
    arguments = {} if value is None else {"filter": col("p") == value}
    shape, counted = constants([("1", 2), ("2", 1), ("3", 1)], kind=pa.int32(), **arguments)
    assert [row["p"] for batch in decoder.constant_batches(shape, counted) for row in batch.to_pylist()] == rows


def test_filter_is_not_evaluated_for_files_without_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "predicate_mask", None)
    shape, counted = constants([("1", 0), ("2", 0)], kind=pa.int32(), filter=col("p") == 2)
    assert [*decoder.constant_batches(shape, counted)] == []


def test_invalid_constant_is_an_error_after_the_rows_before_it() -> None:
    shape, counted = constants([("1", 2), ("2", 3), ("many", 1), ("4", 1)], kind=pa.int32(), batch_rows=2)
    batches = decoder.constant_batches(shape, counted)
    assert [next(batches)["p"].to_pylist() for _ in range(2)] == [[1, 1], [2, 2]]
    with pytest.raises(DataError, match="many") as caught:
        next(batches)
    assert caught.value.file_id == counted[2][0].file_id


@pytest.mark.parametrize(("in_flight", "most"), [(1, 2 << 20), (8 << 20, 2 << 20), (100 << 20, 25 << 20)])
def test_batch_of_constants_has_a_fourth_of_the_limit(in_flight: int, most: int) -> None:
    assert decoder._most_bytes(File(numbers(1), in_flight=in_flight).decoder.shape) == most


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
def test_deleted_rows_are_excluded_from_selected_rows(without: Any, only: Any, visible: Any) -> None:
    selection = Selection(without, only)
    for start in range(10):
        for stop in range(start, 11):
            mask = selection.mask(start, stop - start)
            rows = (
                range(start, stop) if mask is None else [start + i for i, kept in enumerate(mask.to_pylist()) if kept]
            )
            assert list(rows) == [row for row in visible if start <= row < stop]
        assert selection.count(start) == len([row for row in visible if row < start])
    last = max((row for item in (without, only) if item is not None for row in item.positions()), default=-1)
    selection.check(last + 1)
    if last >= 0:
        with pytest.raises(DataError, match=f"contains row {last}, counted from 0, but the file has only {last} rows"):
            selection.check(last)


def test_nested_column_has_no_bounds() -> None:
    nested = StructField("s", StructType((StructField("x", LONG),)))
    assert typed_bounds((1, 2), nested, pa.int64()) == typed_bounds(None, StructField("x", LONG), pa.int64())
    assert typed_bounds((1, 2), StructField("x", LONG), pa.int64())[:2] == (1, 2)


@pytest.mark.parametrize(("collation", "bounds"), [("UTF8_LCASE", (None, None)), ("UTF8_BINARY", ("a", "b"))])
def test_bounds_of_other_collations_are_not_used(collation: str, bounds: Any) -> None:
    field = StructField("x", PrimitiveType("string"), metadata={"__COLLATIONS": {"x": f"spark.{collation}"}})
    assert typed_bounds((b"a", b"b"), field, pa.string())[:2] == bounds


@pytest.mark.parametrize("rows", [[b"\xff"], [{"x": b"\xff"}], [(b"\xff", b"")], {"x": [b"\xff"]}], ids=str)
def test_part_of_a_nested_batch_has_no_other_values(rows: Any) -> None:
    """Deleted rows before and after the part may have invalid text, which must not reach a conversion."""
    text = {"list": pa.list_(pa.binary()), "struct": pa.struct([("x", pa.list_(pa.binary()))])}
    kind = text["struct"] if isinstance(rows, dict) else text["list"]
    if isinstance(rows, list) and isinstance(rows[0], dict):
        kind = pa.list_(pa.struct([("x", pa.binary())]))
    if isinstance(rows, list) and isinstance(rows[0], tuple):
        kind = pa.map_(pa.binary(), pa.binary())
    good = _replaced(rows)
    batch = pa.record_batch([pa.array([rows, good, good, good, rows], kind)], ["c"])
    part = decoder._part(batch, 1, 3)
    assert part is not None
    assert part.column(0).to_pylist() == pa.array([good] * 3, kind).to_pylist()
    # A cast of a nested column sees the whole child arrays; pyarrow 14 crashes for maps.
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


# === Batches with the columns of the file ===


TEXTS = pa.table({"a": pa.array([1, 2, None], pa.int64()), "b": ["x", None, "\u00e9"], "c": [0.5, None, 1.5]})


def rebuilt(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which the row count of each batch built from single columns is appended."""
    counts: list[int] = []
    arrays_of = decoder._Columns._arrays

    def counted(self: Any, *values: Any) -> list[pa.Array]:
        arrays = arrays_of(self, *values)
        counts.append(len(arrays[0]))
        return arrays

    monkeypatch.setattr(decoder._Columns, "_arrays", counted)
    return counts


@pytest.mark.parametrize(
    ("content", "arguments", "is_rebuilt"),
    [
        (TEXTS, {}, False),
        (TEXTS.replace_schema_metadata({"a": "b"}), {}, False),
        (TEXTS, {"columns": ["a", "c"]}, False),
        (TEXTS, {"columns": ["c", "a"]}, True),
        (TEXTS, {"partition": {"p": "one"}}, True),
        (TEXTS, {"partition": {"p": "one"}, "columns": ["a", "b", "c"]}, False),
        (TEXTS, {"columns": ["a"], "predicate": col("c") > 0}, True),
        (TEXTS, {"deleted": vector(1)}, False),
        (pa.table({"a": pa.array([1, 2], pa.int64()), "s": [{"x": 1, "y": 2}, None]}), {}, False),
    ],
)
def test_batch_is_rebuilt_if_its_columns_differ_from_the_file(
    monkeypatch: pytest.MonkeyPatch, content: pa.Table, arguments: dict[str, Any], is_rebuilt: bool
) -> None:
    rebuilt_rows = rebuilt(monkeypatch)
    file = File(content, **arguments)
    [batch] = file.batches()
    # The batch for the filter is always built from single columns.
    assert (len(rebuilt_rows) > ("predicate" in arguments)) is is_rebuilt
    assert batch.schema.equals(file.decoder.shape.context.output_schema, check_metadata=True)
    expected = content.to_pylist()
    if "deleted" in arguments:
        del expected[1]
    if "predicate" in arguments:
        expected = [row for row in expected if (row["c"] or 0) > 0]
    assert batch.to_pylist() == [{name: row.get(name, "one") for name in batch.schema.names} for row in expected]


@pytest.mark.parametrize("rows", [3, 5000])
@pytest.mark.parametrize("valid", ["", "\u00e9"])
@pytest.mark.parametrize("bad", [b"\xff", b"\xc3", b"\xed\xa0\x80"])
def test_invalid_text_is_refused_in_unconverted_batches(rows: int, valid: str, bad: bytes) -> None:
    texts = pa.array([valid.encode()] * (rows - 1) + [bad], pa.binary())
    broken = pa.StringArray.from_buffers(rows, *texts.buffers()[1:])
    file = File(pa.table({"a": pa.array(range(rows), pa.int64()), "b": broken}), batch_rows=rows)
    with pytest.raises(DataError, match=f"Text in column 'b' must be UTF-8, but row {rows - 1} of the file"):
        file.batches()


def test_forbidden_null_is_refused_in_unconverted_batches() -> None:
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    file = File(pa.table({"a": pa.array([1], pa.int64())}, schema))
    assert file.layout.alignment.is_as_stored
    assert [batch.to_pylist() for batch in file.batches()] == [[{"a": 1}]]


def test_long_in_list_is_converted_once_for_all_row_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    array_sizes: list[int] = []
    searched: list[int] = []
    to_arrow, array = lists.to_arrow, lists.InSortedList.array
    monkeypatch.setattr(lists, "to_arrow", lambda keys, kind: array_sizes.append(len(keys)) or to_arrow(keys, kind))
    monkeypatch.setattr(
        lists.InSortedList, "array", lambda self, kind: searched.append(len(self.positions)) or array(self, kind)
    )
    values = range(0, ROWS, 5)
    file = File(numbers(ROWS), predicate=col("n").is_in(values), batch_rows=50, row_group_size=100)
    assert [value for batch in file.batches() for value in batch["n"].to_pylist()] == [*values]
    assert array_sizes == [len(values)]
    assert searched == [20] * (ROWS // 50)
