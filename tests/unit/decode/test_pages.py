"""Pages that the page index rules out are skipped if that saves bytes, and no row changes."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from unittest import mock

import hypothesis
import hypothesis.strategies as st
import pyarrow as pa
import pytest

from delta_sharing_client.delta.deletion_vectors import DeletionVector
from delta_sharing_client.errors import DataError
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.parquet import footer, page_index
from delta_sharing_client.parquet.chunks import Chunks
from delta_sharing_client.predicates.tree import Expression, col
from tests.effort import examples
from tests.unit.decode.eager import make_eager, make_gentle
from tests.unit.parquet.compact import struct_of
from tests.unit.storages import (
    Storage,
    Table,
    fast_options,
    metadata,
    parquet_bytes,
    rows_of,
)
from tests.vectors import encode_inline, poisoned
from tests.versions import VERIFIES_PAGES, parquet_settings

MakeTable = Callable[..., Table]

SORTED = pa.schema([(f"c{i:02d}", pa.int64()) for i in range(8)])


def ascending(rows: int) -> pa.Table:
    """Return eight columns of numbers that do not compress; the first one ascends."""
    large = 1_181_783_497_276_652_981
    columns = {f"c{i:02d}": [(n * large + i * 40_503) % 2**61 for n in range(rows)] for i in range(1, 8)}
    return pa.table({"c00": list(range(rows)), **columns})


INDEXED = {"write_page_index": True, "compression": "NONE", "use_dictionary": False, "data_page_size": 8 * 1024}


@pytest.fixture(scope="module")
def large() -> pa.Table:
    return ascending(80_000)


@pytest.fixture(scope="module")
def large_file(large: pa.Table) -> bytes:
    return parquet_bytes(large, **INDEXED)


def test_read_of_one_row_fetches_only_its_pages(
    make_table: MakeTable, storage: Storage, large: pa.Table, large_file: bytes
) -> None:
    table = make_table(SORTED)
    table.add(large_file)
    report = ScanReport()
    assert table.read(report, filter=col("c00") == 54_321).equals(large.slice(54_321, 1))
    # It needs one page of each column, the footer and the page index.
    assert storage.sent < 0.05 * len(large_file)
    assert report.pages_skipped > 500
    assert report.page_bytes_skipped > 0.95 * len(large_file)
    assert (report.row_groups, report.row_groups_skipped) == (1, 0)
    assert f", {report.pages_skipped} pages skipped;" in str(report)


@pytest.mark.parametrize(
    ("writer", "is_old"),
    [
        ("parquet-cpp version 1.5.1", True),
        ("parquet-cpp-arrow version 2.0.0", True),
        ("parquet-cpp-arrow version 14.0.1", False),
        ("parquet-mr version 1.10.1 (build a89df8f9)", False),
        ("", False),
    ],
)
def test_pages_of_writers_that_arrow_misreads_are_not_skipped(
    make_table: MakeTable,
    large: pa.Table,
    large_file: bytes,
    writer: str,
    is_old: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Chunks, "created_by", writer)
    table = make_table(SORTED)
    table.add(large_file)
    report = ScanReport()
    with mock.patch.object(Chunks, "created_by", writer):
        assert table.read(report, filter=col("c00") == 54_321).equals(large.slice(54_321, 1))
    assert (report.pages_skipped == 0) is is_old


def test_later_files_take_no_more_requests_than_the_first(
    make_table: MakeTable, storage: Storage, large_file: bytes
) -> None:
    table = make_table(SORTED)
    for _ in range(3):
        table.add(large_file)
    options = fast_options(max_concurrent_requests=1)
    assert rows_of(table.plan(filter=col("c00") < 10, columns=["c00"], options=options)).num_rows == 30
    counts = [len(storage.requested(f"part-{part}.parquet")) for part in range(3)]
    assert counts[0] >= counts[2]
    assert counts[2] <= 3


def test_row_group_without_a_matching_page_is_not_read(
    make_table: MakeTable, storage: Storage, large_file: bytes
) -> None:
    table = make_table(SORTED)
    half = pa.table({"c00": [n * 2 for n in range(80_000)], **{f"c{i:02d}": list(range(80_000)) for i in range(1, 8)}})
    # The filter is within the bounds of the row group, and in the gap between two pages.
    gap = pa.concat_tables([half.slice(0, 40_960), half.slice(44_000)])
    table.add(gap, write=INDEXED)
    report = ScanReport()
    assert table.read(report, filter=(col("c00") > 81_940) & (col("c00") < 87_900)).num_rows == 0
    assert (report.row_groups, report.row_groups_skipped) == (0, 1)
    assert storage.sent < 0.1 * storage.bytes_of("part-0.parquet")


def test_page_index_that_saves_nothing_is_not_read_again(make_table: MakeTable, storage: Storage) -> None:
    table = make_table(pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    shuffled = pa.table({"a": [n * 7_919 % 400_000 for n in range(400_000)], "b": list(range(400_000))})
    blob = parquet_bytes(shuffled, **INDEXED)
    for _ in range(4):
        table.add(blob)
    report = ScanReport()
    options = fast_options(max_concurrent_requests=1)
    assert rows_of(table.plan(filter=col("a") == 200_000, options=options), report).num_rows == 4
    assert report.pages_skipped == 0
    # One request for the footer and one for the columns; none for the page index.
    assert len(storage.requested("part-3.parquet")) == 2


def test_pages_of_a_small_chunk_are_not_skipped(make_table: MakeTable, storage: Storage) -> None:
    table = make_table(SORTED)
    small = ascending(40_000)
    table.add(small, write={**INDEXED, "data_page_size": 1024, "write_batch_size": 128})
    report = ScanReport()
    assert table.read(report, columns=["c00"], filter=col("c00") == 7).num_rows == 1
    assert report.pages_skipped == 0
    assert len(storage.requests) == 2


# === Skipped pages change no row ===


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    make_eager(monkeypatch)


PAGED = {"write_page_index": True, "data_page_size": 1, "write_batch_size": 10}
LIST = pa.list_(pa.field("element", pa.int32()))
STRUCT = pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.string()), pa.field("l", LIST)])
UTC = datetime.timezone.utc
# Values in the order in which Spark compares them.
KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [False, True]),
    "byte": (pa.int8(), [-128, -1, 0, 127]),
    "short": (pa.int16(), [-300, 0, 5]),
    "integer": (pa.int32(), [-(2**31), -1, 0, 1, 2**31 - 1]),
    "long": (pa.int64(), [-(2**63), -5, 0, 1, 2**62]),
    "float": (pa.float32(), [-math.inf, -1.5, -0.0, 0.0, 2.5, math.nan]),
    "double": (pa.float64(), [-math.inf, -1.5, -0.0, 0.0, 2.5, math.inf, math.nan]),
    "string": (pa.string(), ["", "a", "a" * 100, "a" * 100 + "b", "b", "ä", "\U0001f600"]),
    "binary": (pa.binary(), [b"", b"\x7f", b"\x80", b"\xff", b"\xff\xff"]),
    "date": (pa.date32(), [datetime.date(1, 1, 1), datetime.date(1970, 1, 1), datetime.date(9999, 1, 1)]),
    "timestamp": (
        pa.timestamp("us", tz="UTC"),
        [datetime.datetime(1900, 1, 1, tzinfo=UTC), datetime.datetime(2024, 1, 1, 0, 0, 0, 1, UTC)],
    ),
    "ntz": (pa.timestamp("us"), [datetime.datetime(1900, 1, 1), datetime.datetime(2024, 1, 1, 0, 0, 0, 1)]),
    "decimal": (pa.decimal128(20, 3), [Decimal("-1.500"), Decimal("0.000"), Decimal("12345678901.250")]),
    "small": (pa.decimal128(5, 2), [Decimal("-1.50"), Decimal("0.00"), Decimal("1.25")]),
}


@st.composite
def runs(draw: st.DrawFn, values: list[Any], rows: int) -> list[Any]:
    """Draw a column's values with runs of equal values, as in sorted data."""
    found: list[Any] = []
    while len(found) < rows:
        found += [draw(st.sampled_from(values))] * draw(st.integers(1, 40))
    return found[:rows]


GROUP_SIZES = (37, 100, 1000)


@st.composite
def written(draw: st.DrawFn) -> dict[str, Any]:
    return {
        **PAGED,
        "write_batch_size": draw(st.sampled_from([1, 3, 10, 64])),
        "data_page_version": draw(st.sampled_from(["1.0", "2.0"])),
        "use_dictionary": draw(st.booleans()),
        "dictionary_pagesize_limit": draw(st.sampled_from([1, 60, 2**20])),
        "compression": draw(st.sampled_from(["none", "snappy", "gzip", "zstd", "brotli", "lz4"])),
        "row_group_size": draw(st.sampled_from(GROUP_SIZES)),
        **parquet_settings(write_page_checksum=draw(st.booleans()), store_decimal_as_integer=draw(st.booleans())),
    }


def order(value: Any) -> Any:
    """Return the key by which Spark compares: NaN is the largest value, and equals itself."""
    return (math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else value


def reference(operator: str, value: Any, operand: Any) -> bool:
    if operator == "null":
        return value is None
    if value is None:
        return False
    left, right = order(value), order(operand)
    return bool({
        "==": left == right, "!=": left != right, "<": left < right, "<=": left <= right,
        ">": left > right, ">=": left >= right, "not >": not left > right, "in": left == right,
    }[operator])  # fmt: skip


def predicate(operator: str, name: str, operand: Any) -> Expression:
    column = col(name)
    if operator == "null":
        return column.is_null()
    if operator == "in":
        return column.is_in([operand])
    result: Expression = {
        "==": column == operand, "!=": column != operand, "<": column < operand, "<=": column <= operand,
        ">": column > operand, ">=": column >= operand, "not >": ~(column > operand),
    }[operator]  # fmt: skip
    return result


OPERATORS = ["==", "!=", "<", "<=", ">", ">=", "not >", "in", "null"]
PROPERTIES = {
    "delta__enableRowTracking": "true",
    "delta__rowTracking__materializedRowIdColumnName": "_row-id-col",
    "delta__rowTracking__materializedRowCommitVersionColumnName": "_row-version-col",
}


def rows_as_text(table: pa.Table) -> list[str]:
    """Return rows as strings, because NaN is not equal to NaN."""
    return [repr(row) for row in table.to_pylist()]


@hypothesis.given(data=st.data())
@hypothesis.settings(max_examples=60, deadline=None)
def test_rows_equal_those_of_a_read_without_pages(shared_storage: Storage, data: st.DataObject) -> None:
    # With pages of one byte, pyarrow cannot read its own row groups of one row with a struct that contains a list.
    rows = data.draw(st.integers(1, 160).filter(lambda rows: all(rows % size != 1 for size in GROUP_SIZES)), "rows")
    columns: dict[str, pa.Array] = {}
    fields: list[pa.Field] = []
    kinds = data.draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=3), "kinds")
    values: list[list[Any]] = []
    for position, kind in enumerate(kinds):
        arrow, some = KINDS[kind]
        optional = data.draw(st.booleans())
        values.append(data.draw(runs([*some, None] if optional else some, rows)))
        fields.append(pa.field(f"k{position}", arrow, optional))
        columns[f"k{position}"] = pa.array(values[-1], arrow)
    fields += [
        pa.field("n", pa.int64()), pa.field("flag", pa.bool_(), False), pa.field("real", pa.float64(), False),
        pa.field("text", pa.string(), data.draw(st.booleans())), pa.field("list", LIST), pa.field("struct", STRUCT),
    ]  # fmt: skip
    columns["n"] = pa.array(range(rows), pa.int64())
    columns["flag"] = pa.array([i % 3 == 0 for i in range(rows)])
    columns["real"] = pa.array([i % 4 / 2 for i in range(rows)])
    columns["text"] = pa.array([f"text {i}" for i in range(rows)])
    columns["list"] = pa.array([[i] * (i % 3) if i % 5 else None for i in range(rows)], LIST)
    # pyarrow cannot read its own files with a row group of only null structs that contain lists.
    columns["struct"] = pa.array(
        [{"x": i, "y": None if i % 4 else f"y{i}", "l": [i, None]} if i % 7 != 5 else None for i in range(rows)], STRUCT
    )
    schema = pa.schema(fields)
    content = pa.Table.from_arrays(list(columns.values()), schema=schema)
    tests = []
    for position, kind in enumerate(kinds):
        operator = data.draw(st.sampled_from(OPERATORS))
        tests.append((operator, position, data.draw(st.sampled_from(KINDS[kind][1]))))
    parts = [predicate(operator, f"k{position}", operand) for operator, position, operand in tests]
    below = data.draw(st.none() | st.integers(0, rows))
    together, decide = data.draw(st.sampled_from([(lambda a, b: a & b, all), (lambda a, b: a | b, any)]))
    expression = parts[0]
    for part in parts[1:]:
        expression = together(expression, part)
    if below is not None:
        expression = expression & (col("struct.x") < below)
    deleted = data.draw(st.sets(st.integers(0, rows - 1), max_size=rows // 2))
    expected = [
        row
        for row in range(rows)
        if row not in deleted
        and decide([reference(operator, values[position][row], operand) for operator, position, operand in tests])
        and (below is None or (row % 7 != 5 and row < below))
    ]
    table = Table(shared_storage, metadata(schema, (), {k.replace("__", "."): v for k, v in PROPERTIES.items()}))
    vector = encode_inline(DeletionVector.from_positions(deleted)) if deleted else None
    table.add(
        parquet_bytes(poisoned(content, sorted(deleted)), **data.draw(written())),
        deletion_vector=vector,
        removed=sorted(deleted),
        base_row_id=1000,
        default_row_commit_version=5,
    )
    selected = data.draw(st.sampled_from([None, ("n",), ("struct", "n"), ("list", "real", "n"), ("flag", "text")]))
    limit = data.draw(st.none() | st.integers(0, 5))
    options = fast_options(batch_rows=data.draw(st.sampled_from([7, 65_536])))
    report = ScanReport()
    with pytest.MonkeyPatch.context() as patch:
        make_eager(patch, is_late=data.draw(st.booleans()))
        if data.draw(st.booleans()):
            make_gentle(patch, steps=data.draw(st.sampled_from([1, 3, 200])))
        plan = table.plan(filter=expression, columns=selected, limit=limit, row_lineage=True, options=options)
        found = rows_of(plan, report)
    names = schema.names if selected is None else list(selected)
    assert found.drop_columns(names)["_row_id"].to_pylist() == [1000 + row for row in expected[:limit]]
    want = content.select(names).take(pa.array(expected[:limit], pa.int64()))
    assert rows_as_text(found.select(names)) == rows_as_text(want)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_pages_of_every_type_are_skipped(make_table: MakeTable, storage: Storage, version: str) -> None:
    fields = [pa.field("n", pa.int64())]
    arrays = [pa.array(range(1000), pa.int64())]
    for kind, (arrow, values) in KINDS.items():
        column = [values[i % len(values)] for i in range(1000)]
        for optional in (True, False):
            fields.append(pa.field(f"{kind}-{optional}", arrow, optional))
            arrays.append(pa.array(column, arrow))
    content = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
    for dictionary in (True, False):
        table = make_table(content.schema)
        table.add(content, write={**PAGED, "data_page_version": version, "use_dictionary": dictionary})
        report = ScanReport()
        rows = table.read(report, filter=(col("n") >= 120) & (col("n") < 131))
        assert rows_as_text(rows) == rows_as_text(content.slice(120, 11))
        # Required floats, doubles and decimals have stubs only with a dictionary.
        whole = 0 if dictionary else 4
        assert report.pages_skipped == (len(fields) - whole) * 98


@pytest.mark.usefixtures("eager")
def test_dictionary_is_fetched_only_for_pages_that_use_it(make_table: MakeTable, storage: Storage) -> None:
    words = pa.table({"n": list(range(2000)), "t": [f"{n:0100d}" for n in range(2000)]})
    # After 500 words the dictionary is full, and later pages are plain.
    write = {**PAGED, "dictionary_pagesize_limit": 50_000, "use_dictionary": ["t"], "compression": "NONE"}
    table = make_table(words.schema)
    table.add(words, write=write)
    report = ScanReport()
    assert table.read(report, filter=col("n") == 1700)["t"].to_pylist() == [f"{1700:0100d}"]
    without = report.page_bytes_skipped
    report = ScanReport()
    assert table.read(report, filter=col("n") == 100)["t"].to_pylist() == [f"{100:0100d}"]
    assert without - report.page_bytes_skipped > 40_000


@pytest.mark.usefixtures("eager")
def test_rows_of_skipped_pages_are_not_nulls(make_table: MakeTable) -> None:
    table = make_table(pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    a = [None if 500 <= i < 520 else i for i in range(1000)]
    table.add(pa.table({"a": a, "b": list(range(1000))}), write=PAGED)
    report = ScanReport()
    assert table.read(report, filter=col("a").is_null())["b"].to_pylist() == list(range(500, 520))
    assert report.pages_skipped == 2 * 98


@pytest.mark.usefixtures("eager")
def test_pages_of_a_not_null_column_are_skipped(make_table: MakeTable) -> None:
    # The column is NOT NULL in the table, and optional in the file.
    table = make_table(pa.schema([pa.field("a", pa.int64(), False), pa.field("b", pa.string(), False)]))
    table.add(pa.table({"a": list(range(1000)), "b": [str(i) for i in range(1000)]}), write=PAGED)
    report = ScanReport()
    assert table.read(report, filter=col("a") == 77)["b"].to_pylist() == ["77"]
    assert report.pages_skipped == 2 * 99


@pytest.mark.usefixtures("eager")
def test_pages_of_filter_columns_may_have_different_rows(make_table: MakeTable) -> None:
    table = make_table(pa.schema([("a", pa.int64()), ("t", pa.string()), ("n", pa.int64())]))
    # The writer limits pages by bytes, so the text column has more pages.
    content = pa.table(
        {"a": [i // 7 for i in range(2000)], "t": [f"{i:0200d}" for i in range(2000)], "n": list(range(2000))}
    )
    table.add(content, write={**PAGED, "data_page_size": 900, "write_batch_size": 3, "use_dictionary": False})
    report = ScanReport()
    both = (col("a") == 100) & (col("t") >= f"{703:0200d}")
    assert table.read(report, filter=both)["n"].to_pylist() == [703, 704, 705, 706]
    either = (col("a") == 100) | (col("t") == f"{1500:0200d}")
    assert table.read(report, filter=either)["n"].to_pylist() == [*range(700, 707), 1500]
    assert report.pages_skipped > 400


@pytest.mark.usefixtures("eager")
def test_deleted_rows_of_skipped_pages_are_not_counted(make_table: MakeTable) -> None:
    table = make_table(pa.schema([("a", pa.int64())]))
    table.add(
        pa.table({"a": list(range(1000))}),
        removed=(),  # no values are poisoned, so that the bounds of pages are right
        deletion_vector=encode_inline(DeletionVector.from_positions([3, 502, 503, 999])),
        write=PAGED,
    )
    report = ScanReport()
    rows = table.read(report, filter=(col("a") >= 500) & (col("a") < 505))["a"].to_pylist()
    assert rows == [500, 501, 504]
    assert report.rows_deleted == 2


# === Filter columns first ===


def test_row_groups_without_a_match_fetch_no_other_column(make_table: MakeTable, storage: Storage) -> None:
    table = make_table(SORTED)
    rows = ascending(80_000)
    table.add(rows, write={"compression": "NONE", "use_dictionary": False, "row_group_size": 40_000})
    report = ScanReport()
    value = rows["c01"][70_000].as_py()
    # One row has the value, within the bounds of all row groups.
    assert table.read(report, filter=col("c01") == value).equals(rows.slice(70_000, 1))
    assert report.page_bytes_skipped == 0, "the file is too small for a further request"
    large = ascending(200_000)
    table.adds.clear()
    table.add(large, write={"compression": "NONE", "use_dictionary": False, "row_group_size": 200_000 // 2})
    storage.sent = 0
    report = ScanReport()
    assert table.read(report, filter=(col("c01") == value) & (col("c00") > 0)).equals(large.slice(70_000, 1))
    # Six of eight columns of the second row group are not read.
    assert storage.sent < 0.65 * storage.bytes_of("part-0.parquet")
    assert report.page_bytes_skipped > 0.35 * storage.bytes_of("part-0.parquet")


def test_rows_of_page_stubs_never_match_a_filter(make_table: MakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    make_eager(monkeypatch, is_late=True)
    schema = pa.schema([pa.field("a", pa.binary(), False), pa.field("n", pa.int64())])
    # The pages of rows 1 to 3 are not fetched; their stubs would match.
    content = pa.Table.from_arrays(
        [pa.array([b""] + 3 * [b"x"] + 12 * [b""]), pa.array(range(16), pa.int64())], schema=schema
    )
    table = make_table(schema)
    table.add(content, write={**PAGED, "write_batch_size": 1, "use_dictionary": False})
    assert table.read(filter=col("a") != b"x")["n"].to_pylist() == [0, *range(4, 16)]


def test_other_columns_read_only_pages_with_a_match(make_table: MakeTable, storage: Storage) -> None:
    table = make_table(SORTED)
    rows = ascending(200_000)
    table.add(rows, write=INDEXED)
    report = ScanReport()
    values = [rows["c01"][row].as_py() for row in (7, 100_000, 199_999)]
    assert table.read(report, filter=col("c01").is_in(values)).equals(rows.take([7, 100_000, 199_999]))
    assert storage.sent < 0.25 * storage.bytes_of("part-0.parquet")
    assert report.pages_skipped > 1000


def test_columns_are_fetched_together_if_every_page_matches(make_table: MakeTable, storage: Storage) -> None:
    table = make_table(SORTED)
    blob = parquet_bytes(ascending(200_000), compression="NONE", use_dictionary=False)
    for _ in range(3):
        table.add(blob)
    assert table.read(filter=col("c01") != 5, columns=["c00", "c05"]).num_rows == 600_000
    before = len(storage.requests)
    assert before <= 3 * 4


# === Damaged indexes ===

CONTENT = pa.table({"a": list(range(400)), "b": [f"value {i}" for i in range(400)]})


def index_spans(data: bytes) -> list[tuple[int, int]]:
    parsed = footer.parse_footer(pa.py_buffer(data), len(data))
    chunks = Chunks(parsed.data, range(2), parsed.start)
    spans = []
    for leaf in range(2):
        chunk = chunks.get(0, leaf)
        assert chunk.offset_index is not None
        assert chunk.column_index is not None
        spans += [tuple(chunk.offset_index), tuple(chunk.column_index)]
    return spans


@hypothesis.given(data=st.data())
@hypothesis.settings(max_examples=examples(50), deadline=None)
def test_damaged_offset_index_changes_no_row(shared_storage: Storage, data: st.DataObject) -> None:
    blob = bytearray(parquet_bytes(CONTENT, **PAGED))
    spans = index_spans(bytes(blob))
    for _ in range(data.draw(st.integers(1, 3))):
        start, stop = data.draw(st.sampled_from([spans[0], spans[2]]))
        blob[data.draw(st.integers(start, stop - 1))] = data.draw(st.integers(0, 255))
    table = Table(shared_storage, metadata(CONTENT.schema))
    table.add(bytes(blob))
    with pytest.MonkeyPatch.context() as patch:
        make_eager(patch, is_late=data.draw(st.booleans()))
        if data.draw(st.booleans()):
            make_gentle(patch, steps=data.draw(st.sampled_from([1, 3, 200])))
        assert table.read(filter=(col("a") >= 120) & (col("a") < 125)).equals(CONTENT.slice(120, 5))


@hypothesis.given(data=st.data())
@hypothesis.settings(max_examples=examples(50), deadline=None)
def test_damaged_indexes_give_only_rows_of_the_file(shared_storage: Storage, data: st.DataObject) -> None:
    """Wrong bounds may hide a row, but no returned row mixes the values of two rows."""
    blob = bytearray(parquet_bytes(CONTENT, **PAGED, data_page_version=data.draw(st.sampled_from(["1.0", "2.0"]))))
    spans = index_spans(bytes(blob))
    for _ in range(data.draw(st.integers(1, 5))):
        start, stop = data.draw(st.sampled_from(spans))
        at = data.draw(st.integers(start, stop - 1))
        noise = data.draw(st.binary(min_size=1, max_size=8))[: stop - at]
        blob[at : at + len(noise)] = noise
    table = Table(shared_storage, metadata(CONTENT.schema))
    table.add(bytes(blob))
    with pytest.MonkeyPatch.context() as patch:
        make_eager(patch, is_late=data.draw(st.booleans()))
        if data.draw(st.booleans()):
            make_gentle(patch, steps=data.draw(st.sampled_from([1, 3, 200])))
        found = table.read(filter=(col("a") >= 120) & (col("a") < 125)).to_pylist()
    assert [row for row in CONTENT.slice(120, 5).to_pylist() if row in found] == found


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("target", range(4))
@pytest.mark.parametrize("damage", ["cut", "zeros", "noise"])
def test_index_that_does_not_decode_is_not_used(make_table: MakeTable, target: int, damage: str) -> None:
    blob = bytearray(parquet_bytes(CONTENT, **PAGED))
    start, stop = index_spans(bytes(blob))[target]
    if damage == "cut":
        blob[start] = 0  # a Thrift struct without fields
    else:
        blob[start:stop] = (b"\0" if damage == "zeros" else b"\xa7") * (stop - start)
    table = make_table(CONTENT.schema)
    table.add(bytes(blob))
    report = ScanReport()
    assert table.read(report, filter=col("a") == 123).equals(CONTENT.slice(123, 1))
    # A column without an offset index is read whole; if the filter's column has none, both columns are.
    assert report.pages_skipped == {0: 0, 1: 0, 2: 39, 3: 78}[target]


@pytest.mark.usefixtures("eager")
def test_page_index_that_contradicts_the_pages_is_detected(make_table: MakeTable) -> None:
    blob = parquet_bytes(CONTENT, **PAGED)
    (start, stop), _, _, _ = index_spans(blob)
    parsed = footer.parse_footer(pa.py_buffer(blob), len(blob))
    chunk = Chunks(parsed.data, range(2), parsed.start).get(0, 0)
    pages = page_index.pages(blob[start:stop], chunk, 400)
    assert pages is not None
    # In the index, page 12 begins one row late and has nine rows; its header has ten.
    wrong = [{1: pages.starts[page], 2: pages.size(page), 3: pages.rows[page] + (page == 12)} for page in range(40)]
    index = struct_of({1: wrong})
    assert len(index) <= stop - start
    table = make_table(CONTENT.schema)
    table.add(blob[:start] + index.ljust(stop - start, b"\0") + blob[stop:])
    for row in (119, 120, 121, 125, 129, 130):
        assert table.read(filter=col("a") == row).equals(CONTENT.slice(row, 1))


@pytest.mark.skipif(not VERIFIES_PAGES, reason="this pyarrow does not verify the checksums of pages")
@pytest.mark.usefixtures("eager")
def test_error_of_a_damaged_page_names_the_file(make_table: MakeTable) -> None:
    blob = bytearray(parquet_bytes(CONTENT, **PAGED, write_page_checksum=True))
    (start, stop), _, _, _ = index_spans(bytes(blob))
    parsed = footer.parse_footer(pa.py_buffer(bytes(blob)), len(blob))
    pages = page_index.pages(bytes(blob[start:stop]), Chunks(parsed.data, range(2), parsed.start).get(0, 0), 400)
    assert pages is not None
    blob[pages.starts[13] - 1] ^= 0xFF  # the last byte of the page with the rows 120 to 130
    table = make_table(CONTENT.schema)
    table.add(bytes(blob))
    with pytest.raises(DataError, match="id-part-0"):
        table.read(filter=col("a") == 123)
    assert table.read(filter=col("a") == 323).num_rows == 1
