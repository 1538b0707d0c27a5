"""Column chunks as footers describe them, and values that pyarrow does not check."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_sharing_client.errors import DataError
from delta_sharing_client.parquet.byte_ranges import ByteRange
from delta_sharing_client.parquet.chunks import Chunks, ColumnChunk
from delta_sharing_client.parquet.footer import parse_footer
from delta_sharing_client.predicates.parse import parse_filter
from tests.quota import meets, met
from tests.unit.parquet.compact import as_list, as_number, struct_of
from tests.unit.storages import Table, parquet_bytes
from tests.versions import PYARROW

MakeTable = Callable[..., Table]

ROWS = pa.table(
    {
        "i": pa.array([3, None, -1], pa.int32()),
        "l": [2**60, 1, None],
        "d": [0.5, -1.0, 2.0],
        "f": pa.array([0.5, -1.0, 2.0], pa.float32()),
        "b": [True, False, None],
        "t": ["ä", None, "z" * 40],
        "y": [b"\xff", b"", None],
        "at": pa.array([datetime.datetime(2020, 1, 1)] * 3, pa.timestamp("us")),
        "n": pa.array([Decimal("1.5"), None, Decimal("-2")], pa.decimal128(38, 3)),
        "s": [{"x": 1, "y": "a"}, None, {"x": None, "y": "b"}],
        "v": [[1, 2], [], None],
    }
)


def chunks_of(data: bytes) -> tuple[Chunks, pq.FileMetaData]:
    footer = parse_footer(pa.py_buffer(data), len(data))
    return Chunks(footer.data, range(footer.metadata.num_columns), footer.start), footer.metadata


@pytest.mark.parametrize(
    "write",
    [
        {},
        {"use_dictionary": False, "compression": "none", "row_group_size": 1},
        {"data_page_version": "2.0", "write_page_index": True, "row_group_size": 2},
        {"write_statistics": ["i", "t"], "store_schema": False},
    ],
    ids=str,
)
def test_chunks_of_a_footer_match_pyarrow(write: dict[str, Any]) -> None:
    chunks, metadata = chunks_of(parquet_bytes(ROWS, **write))

    assert chunks.created_by == metadata.created_by
    for group in range(metadata.num_row_groups):
        for leaf in range(metadata.num_columns):
            theirs = metadata.row_group(group).column(leaf)
            statistics = theirs.statistics
            bounded = statistics is not None and statistics.has_min_max
            start = theirs.dictionary_page_offset if theirs.has_dictionary_page else theirs.data_page_offset
            chunk = chunks.get(group, leaf)
            assert chunk[:6] == (
                start,
                theirs.total_compressed_size,
                theirs.total_uncompressed_size,
                statistics.null_count if statistics is not None else None,
                (statistics.min_raw, statistics.max_raw) if bounded else None,
                theirs.num_values,
            )
            assert (chunk.offset_index is not None) == theirs.has_offset_index
            assert (chunk.column_index is not None) == theirs.has_column_index


# === Chunks of a footer ===

END = 1000
# ColumnMetaData (Apache Parquet, parquet.thrift): physical type, codec, values, sizes, first data page, statistics.
META: dict[int, Any] = {1: 2, 4: 1, 5: 30, 6: 300, 7: 200, 9: 40}
LOW, HIGH = (-5).to_bytes(8, "little", signed=True), (9).to_bytes(8, "little")
# ColumnOrder: TypeDefinedOrder, and an unknown one.
ORDERED, OTHER = {1: {}}, {2: {}}


def parsed_chunk(meta: dict[int, Any] | None = None, *, orders: list[Any] | None = None, **chunk: Any) -> ColumnChunk:
    """Parse a footer with these changes to ``META`` (by field id) and to ColumnChunk (``_4`` is field 4); return its
    chunk."""
    fields = {int(name[1:]): value for name, value in chunk.items()}
    footer = {4: [{1: [{3: {**META, **(meta or {})}, **fields}]}], 7: [ORDERED] if orders is None else orders or None}
    return Chunks(pa.py_buffer(struct_of(footer)), [0], END).get(0, 0)


def test_chunk_matches_the_footer() -> None:
    chunk = parsed_chunk({11: 10, 12: {3: 7, 5: HIGH, 6: LOW}, 13: [{1: 0, 2: 8, 3: 4}]}, _4=500, _5=10, _6=510, _7=20)
    assert chunk == ColumnChunk(
        start=10,
        length=200,
        uncompressed=300,
        null_count=7,
        bounds=(-5, 9),
        values=30,
        physical=2,
        codec=1,
        ordered=True,
        offset_index=ByteRange(500, 510),
        column_index=ByteRange(510, 530),
        encoding_stats=as_list(12, [struct_of({1: 0, 2: 8, 3: 4})]),
        dictionary_length=30,
    )
    bare = parsed_chunk({4: None})
    assert bare == ColumnChunk(40, 200, 300, None, None, 30, 2, 0, True, None, None)


@pytest.mark.parametrize(("dictionary", "start"), [(10, 10), (39, 39), (40, 40), (41, 40), (1, 1), (0, 40), (-1, 40)])
def test_a_chunk_begins_with_its_dictionary(dictionary: int, start: int) -> None:
    assert parsed_chunk({11: dictionary}).start == start


@pytest.mark.parametrize(
    ("meta", "place"),
    [
        ({9: -1}, "-1 to 199"),
        ({7: -1}, "40 to 39"),
        ({7: 961}, "40 to 1001"),
        ({9: 801}, "801 to 1001"),
    ],
)
def test_a_chunk_outside_of_the_file_is_refused(meta: dict[int, Any], place: str) -> None:
    with pytest.raises(DataError, match=f"at bytes {place}, outside of the file"):
        parsed_chunk(meta)


def test_unusual_chunks_are_accepted_and_external_ones_refused() -> None:
    assert parsed_chunk({9: 0, 7: END}).length == END
    assert parsed_chunk({7: 0}).length == 0
    assert parsed_chunk({6: -1}).uncompressed == 0
    assert parsed_chunk(_1=b"").start == 40
    with pytest.raises(DataError, match="outside of the file"):
        parsed_chunk(_1=b"another.parquet")
    with pytest.raises(DataError, match="encrypted column"):
        parsed_chunk(_8={1: {}})


@pytest.mark.parametrize(
    ("statistics", "null_count", "bounds"),
    [
        ({3: 0}, 0, None),
        ({3: 1}, 1, None),
        ({3: -1}, None, None),
        ({3: b"7"}, None, None),
        ({5: HIGH}, None, None),
        ({6: LOW}, None, None),
        ({5: HIGH, 6: LOW[:7]}, None, None),
        ({5: HIGH[:7], 6: LOW}, None, None),
        ({5: HIGH, 6: LOW}, None, (-5, 9)),
        # Old writers stated bounds in an unknown order.
        ({1: HIGH, 2: LOW}, None, None),
    ],
    ids=str,
)
def test_invalid_statistics_are_not_used(statistics: dict[int, Any], null_count: Any, bounds: Any) -> None:
    chunk = parsed_chunk({12: statistics})
    assert (chunk.null_count, chunk.bounds) == (null_count, bounds)


@pytest.mark.parametrize(
    ("physical", "lower", "upper", "bounds"),
    [
        (0, b"\0", b"\1", (False, True)),
        (1, b"\xff\xff\xff\xff", b"\2\0\0\0", (-1, 2)),
        (3, bytes(12), bytes(12), None),  # INT96
        (4, b"\0\0\0\xbf", b"\0\0\0\x3f", (-0.5, 0.5)),
        (5, b"\0\0\0\0\0\0\xe0\xbf", b"\0\0\0\0\0\0\xe0\x3f", (-0.5, 0.5)),
        (6, b"a", b"bcd", (b"a", b"bcd")),
        (7, b"a", b"b", (b"a", b"b")),
        (8, b"a", b"b", None),
    ],
)
def test_bounds_are_values_of_the_physical_type(physical: int, lower: bytes, upper: bytes, bounds: Any) -> None:
    assert parsed_chunk({1: physical, 12: {5: upper, 6: lower}}).bounds == bounds


@pytest.mark.parametrize(("orders", "is_ordered"), [([ORDERED], True), ([OTHER], False), ([{}], False), ([], False)])
def test_bounds_need_a_known_column_order(orders: list[Any], is_ordered: bool) -> None:
    chunk = parsed_chunk({12: {3: 1, 5: HIGH, 6: LOW}}, orders=orders)
    assert chunk.ordered is is_ordered
    assert chunk.bounds == ((-5, 9) if is_ordered else None)
    assert chunk.null_count == 1


def test_each_column_has_its_own_column_order() -> None:
    columns = [{3: META} for _ in range(4)]
    for orders in ([ORDERED, OTHER, ORDERED, OTHER], [ORDERED] * 4, [OTHER, *[ORDERED] * 3], [ORDERED, OTHER]):
        footer = struct_of({4: [{1: columns}, {1: columns}], 6: b"a writer", 7: orders})
        chunks = Chunks(pa.py_buffer(footer), [0, 1, 3], END)
        for leaf in (0, 1, 3):
            for group in (0, 1):
                assert chunks.get(group, leaf).ordered is (leaf < len(orders) and orders[leaf] is ORDERED)
        assert chunks.created_by == "a writer"
        # Only requested columns are decoded.
        for place in ((0, 2), (2, 0), (0, 4)):
            with pytest.raises(DataError, match="no column chunk"):
                chunks.get(*place)


@pytest.mark.parametrize("orders", [[ORDERED] * 4, [ORDERED, OTHER, OTHER]])
def test_fields_after_the_column_orders_are_read(orders: list[Any]) -> None:
    fields = struct_of({4: [{1: [{3: META}]}], 7: orders})[:-1]
    footer = fields + b"\x08" + as_number(6) + b"\x08a writer" + b"\x00"  # Thrift fields may come in any order
    chunks = Chunks(pa.py_buffer(footer), [0], END)
    assert chunks.created_by == "a writer"
    assert chunks.get(0, 0).ordered


@pytest.mark.parametrize(
    ("start", "size", "place"),
    [
        (500, 10, ByteRange(500, 510)),
        (4, 1, ByteRange(4, 5)),
        (3, 1, None),
        (500, 500, ByteRange(500, 1000)),
        (500, 501, None),
        (500, 0, None),
        (500, -1, None),
        (None, 10, None),
        (500, None, None),
        (b"500", 10, None),
        (500, b"10", None),
    ],
)
def test_index_outside_the_file_is_not_used(start: Any, size: Any, place: ByteRange | None) -> None:
    assert parsed_chunk(_4=start, _5=size).offset_index == place
    assert parsed_chunk(_6=start, _7=size).column_index == place
    assert parsed_chunk(_4=start, _5=size).column_index is None


@pytest.mark.parametrize(
    ("stats", "pages"),
    [
        (None, None),
        ([], 0),
        ([(0, 8, 4)], 4),
        ([(0, 2, 4), (3, 8, 5), (0, 0, 6), (2, 8, 7), (2, 2, 7), (3, 0, 8), (1, 8, 9)], 9),
        ([(0, 8, None)], None),
        ([(None, 8, 1)], None),
        ([(0, None, 1)], None),
    ],
)
def test_dictionary_page_count_comes_from_encoding_stats(stats: Any, pages: int | None) -> None:
    entries = None if stats is None else [dict(enumerate(entry, 1)) for entry in stats]
    assert parsed_chunk({13: entries}).dictionary_pages() == pages


def test_invalid_encoding_stats_are_not_used() -> None:
    assert parsed_chunk({13: [7, 8]}).dictionary_pages() is None
    assert parsed_chunk({13: 7}).dictionary_pages() is None


def test_footer_may_lack_row_groups_and_writer() -> None:
    chunks = Chunks(pa.py_buffer(b"\0"), [0], END)
    assert chunks.created_by == ""
    assert Chunks(pa.py_buffer(struct_of({6: b"\xff"})), [0], END).created_by == "\ufffd"
    with pytest.raises(DataError, match="no column chunk 0 in row group 0"):
        chunks.get(0, 0)
    without_columns = Chunks(pa.py_buffer(struct_of({4: [{2: 5}]})), [0], END)
    with pytest.raises(DataError, match="no column chunk"):
        without_columns.get(0, 0)


@pytest.mark.parametrize("field", [1, 5, 6, 7, 9])
def test_chunk_without_required_fields_is_refused(field: int) -> None:
    with pytest.raises(DataError, match="The Parquet footer cannot be decoded: KeyError"):
        parsed_chunk({field: None})


def test_chunk_is_decoded_on_demand() -> None:
    """A read of a whole file decodes only the chunks of string columns."""
    bad = {field: value for field, value in META.items() if field != 5}
    chunks = Chunks(pa.py_buffer(struct_of({4: [{1: [{3: bad}, {3: META}, {3: META}]}]})), [0, 1], END)
    assert chunks.get(0, 1).values == META[5]
    assert chunks.get(0, 1) is chunks.get(0, 1)
    for _ in range(2):
        with pytest.raises(DataError, match="cannot be decoded: KeyError"):
            chunks.get(0, 0)
    with pytest.raises(DataError, match="no column chunk 2 in row group 0"):
        chunks.get(0, 2)


@meets(read=5, refused=10)
@given(data=st.data())
def test_damaged_footer_gives_chunks_or_a_data_error(data: st.DataObject) -> None:
    blob = parquet_bytes(ROWS, row_group_size=2)
    footer = bytearray(parse_footer(pa.py_buffer(blob), len(blob)).data.to_pybytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(footer) - 1))
        footer[at : at + 1] = data.draw(st.binary(min_size=1, max_size=1) | st.binary(max_size=3))
    cut = data.draw(st.just(len(footer)) | st.integers(0, len(footer)))
    chunks = Chunks(pa.py_buffer(bytes(footer[:cut])), range(14), 10_000)
    try:
        found = chunks.get(0, 0)
    except DataError:
        met("refused")
        return
    met("read")
    assert 0 <= found.start <= found.start + found.length <= 10_000


# === Footers that crash pyarrow ===


def shortened_statistics(column: pa.Array) -> bytes:
    """Return a file whose footer has a maximum of three bytes for a 64-bit column."""
    blob = parquet_bytes(pa.table({"c": column}), compression="none", use_dictionary=False)
    length = int.from_bytes(blob[-8:-4], "little")
    footer = blob[-8 - length : -8]
    at = footer.index(b"\x28\x08")  # field max_value, eight bytes
    footer = footer[: at + 1] + b"\x03" + footer[at + 2 : at + 5] + footer[at + 10 :]
    return blob[: -8 - length] + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def test_statistics_of_a_wrong_length_give_no_wrong_row(make_table: MakeTable) -> None:
    table = make_table(pa.schema([("c", pa.int64())]))
    table.add(shortened_statistics(pa.array([1, 2, 3], pa.int64())))
    for request, rows in ({"filter": parse_filter("c > 1")}, [2, 3]), ({}, [1, 2, 3]):
        if PYARROW < 15:
            # pyarrow ignores these statistics, and the rows are right.
            assert table.read(**request).to_pydict() == {"c": rows}
            continue
        with pytest.raises(DataError, match=r"share\.schema\.t.*id-part-0"):
            table.read(**request)


def test_row_group_without_a_chunk_of_a_column_is_refused(make_table: MakeTable) -> None:
    wide, narrow = (
        parquet_bytes(pa.table(dict.fromkeys(names, range(1000))), store_schema=False) for names in ("ab", "a")
    )
    footers = [parse_footer(pa.py_buffer(blob), len(blob)).data.to_pybytes() for blob in (wide, narrow)]
    # The schema has two columns and the row group one: field 4 of FileMetaData, the list of row groups, is replaced.
    groups = [footer.index(b"\x19\x1c\x19") for footer in footers]
    footer = footers[0][: groups[0]] + footers[1][groups[1] :]
    table = make_table(pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    table.add(wide[: -8 - len(footers[0])] + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    for request in ({"columns": ["b"]}, {"filter": parse_filter("b > 5")}, {}):
        with pytest.raises(DataError, match=r"share\.schema\.t.*id-part-0"):
            table.read(**request)


def test_chunk_ends_at_the_start_of_the_footer_at_most() -> None:
    blob = parquet_bytes(ROWS)
    footer = parse_footer(pa.py_buffer(blob), len(blob)).data
    leaves = range(len(ROWS.schema))

    def end(chunks: Chunks) -> int:
        return max(chunk.start + chunk.length for chunk in (chunks.get(0, leaf) for leaf in leaves))

    last = end(Chunks(footer, leaves, len(blob)))
    exact = Chunks(footer, leaves, last)
    assert end(exact) == last
    with pytest.raises(DataError, match=f"to {last}, outside of the file"):
        end(Chunks(footer, leaves, last - 1))


@pytest.mark.parametrize(
    ("pages", "is_encoded"),
    [
        ([(2, 0, 1), (0, 8, 4)], True),
        ([(2, 0, 1), (0, 2, 4)], True),
        ([(2, 0, 1), (3, 8, 1), (3, 2, 1)], True),
        ([(2, 0, 1), (0, 8, 4), (0, 0, 1)], False),
        ([(2, 0, 1), (0, 8, 4), (0, 0, 0)], True),
        ([(2, 0, 1), (0, 0, 1)], False),
        ([(2, 0, 1), (0, 6, 1)], False),
        ([(2, 0, 1)], False),
        ([], False),
        (None, False),
    ],
)
def test_only_chunks_without_plain_pages_are_dictionary_encoded(
    pages: list[tuple[int, int, int]] | None, is_encoded: bool
) -> None:
    stats = None if pages is None else {13: [dict(enumerate(page, 1)) for page in pages]}
    assert parsed_chunk({11: 10, **(stats or {})}).is_dictionary_encoded is is_encoded
    # A chunk without a dictionary page is not dictionary-encoded, whatever its encodings are.
    assert not parsed_chunk(stats).is_dictionary_encoded
