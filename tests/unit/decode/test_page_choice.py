"""Which pages of a row group are read, and their sizes; ``test_pages`` compares the rows."""

from __future__ import annotations

import dataclasses
import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from delta_sharing_client.decode import page_choice as page_plan
from delta_sharing_client.parquet import page_index
from delta_sharing_client.parquet.byte_ranges import ByteBlock, ByteRange
from delta_sharing_client.parquet.page_index import PageMismatch
from delta_sharing_client.parquet.partial_chunk import GroupPages
from delta_sharing_client.plan.read_columns import Origin
from delta_sharing_client.predicates.tree import Expression, col
from tests.unit.decode.opened import File

PAGED = {"write_page_index": True, "data_page_size": 1, "write_batch_size": 10}


def test_ratio_is_learned_from_observations() -> None:
    ratio = page_plan.Ratio(0, 0)
    ratio.learn(1000, 250)
    assert ratio.expected(4000) == 1000
    # A larger observation outweighs the first one.
    ratio.learn(100_000, 50_000)
    assert ratio.expected(4000) == 2000
    ratio.learn(100_000, 0)
    assert ratio.expected(4000) == 1000
    few = page_plan.Ratio(0, 0)
    few.learn(0, 0)
    assert few.expected(4000) == 0
    few.learn(1, 1)
    assert few.expected(4000) == 4000
    edge = page_plan.Ratio(64 * 1024 - 1, 0)
    edge.learn(100, 100)
    assert edge.expected(4000) == 4000
    edge = page_plan.Ratio(64 * 1024, 0)
    edge.learn(64 * 1024, 64 * 1024)
    assert edge.expected(4000) == 2000


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], ()),
        ([0], ((0, 1),)),
        ([7, 8, 9], ((7, 10),)),
        ([0, 1024], ((0, 1025),)),
        ([0, 1025], ((0, 1), (1025, 1026))),
        ([5, 1029, 3000, 3001, 9999], ((5, 1030), (3000, 3002), (9999, 10_000))),
    ],
)
@pytest.mark.parametrize("cut", [1, 999, 10_000])
def test_rows_close_together_are_read_as_one_stretch(rows: list[int], expected: Any, cut: int) -> None:
    mask = np.zeros(10_000, bool)
    mask[rows] = True
    stretches = page_plan.stretches([(start, mask[start : start + cut]) for start in range(0, 10_000, cut)])
    assert stretches == expected
    assert {type(edge) for edges in stretches for edge in edges} <= {int}
    assert page_plan.stretches([]) == ()


def in_pieces(size: int, **write: Any) -> list[tuple[int, int]]:
    """Return the rows of each piece, of about ``size`` bytes, of a file's only row group."""
    content = pa.table({"a": pa.array(range(1000), pa.int64()), "b": pa.array(range(1000), pa.int32())})
    file = File(content, whole=False, **{**PAGED, "use_dictionary": False, "compression": "NONE", **write})
    data = file.data.blocks[0].data
    layout = page_plan.with_index(file.layout, 0, data.slice)
    start, pieces = 0, []
    while start < 1000:
        stop = page_plan.end_of_piece(layout, 0, start, size)
        pieces.append((start, stop))
        piece = page_plan.cut(layout, 0, start, stop)
        assert piece.cuts == {0: (start, stop)}
        page_plan.check_pages(piece, (0,), data.slice)
        start = stop
    return pieces


def test_pieces_have_about_the_requested_size() -> None:
    # A page of ten rows has 112 bytes in one column, and about 70 in the other.
    one = in_pieces(1)
    assert one == [(row, row + 10) for row in range(0, 1000, 10)]
    assert in_pieces(10**9) == [(0, 1000)]
    several = in_pieces(1000)
    assert all(stop - start == several[0][1] for start, stop in several[:-1])
    assert 30 < several[0][1] < 80
    assert in_pieces(2000)[0][1] == pytest.approx(2 * several[0][1], abs=10)


def test_first_piece_includes_the_dictionaries() -> None:
    # The dictionaries exceed the size of a piece, so the first piece has one page; other pieces have many pages.
    assert in_pieces(2000, use_dictionary=True)[0] == (0, 10)
    assert in_pieces(2000, use_dictionary=True)[1][1] > 150
    assert 500 < in_pieces(20_000, use_dictionary=True)[0][1] < 1000


def test_last_piece_includes_a_small_rest() -> None:
    assert in_pieces(1, write_batch_size=500) == [(0, 500), (500, 1000)]
    # The first 900 rows are most of the row group, so all of it is one piece.
    assert in_pieces(1, write_batch_size=900) == [(0, 1000)]


def test_row_group_of_one_page_is_one_piece() -> None:
    assert in_pieces(1, data_page_size=1 << 20, write_batch_size=1000) == [(0, 1000)]
    assert in_pieces(1, write_page_index=False) == [(0, 1000)]


@pytest.mark.parametrize("place", [0, 15, 99])
def test_page_that_contradicts_the_index_is_detected_when_read(place: int) -> None:
    content = pa.table({"a": pa.array(range(1000), pa.int64())})
    file = File(content, whole=False, **{**PAGED, "use_dictionary": False, "compression": "NONE"})
    data = file.data.blocks[0].data
    layout = page_plan.with_index(file.layout, 0, data.slice)
    pages = layout.index[0]()[0]

    def read(start: int, length: int) -> pa.Buffer:
        shift = int(start == pages.starts[place])
        return data.slice(start + shift, length)

    for start in range(0, 1000, 100):
        # The piece consists of the pages of these rows.
        piece = dataclasses.replace(layout, cuts={0: (start, start + 100)})
        if start <= place * 10 < start + 100:
            with pytest.raises(PageMismatch):
                page_plan.check_pages(piece, (0,), read)
        else:
            page_plan.check_pages(piece, (0,), read)
    page_plan.check_pages(layout, (0,), read)


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        (col("a") == 123, ((120, 130),)),
        ((col("a") == 123) | (col("a") == 135), ((120, 140),)),
        ((col("a") == 5) | (col("a") == 995), ((0, 10), (990, 1000))),
        (col("a") >= 0, ((0, 1000),)),
        (col("a") > 1000, ()),
        ((col("a") < 20) & (col("b") >= 15), ((10, 20),)),
        (col("b").is_null(), ()),
        ((col("a") < 35) & (col("other") == 7), ((0, 40),)),
        ((col("a") < 35) & (col("other") == 8), ()),
        ((col("a") < 35) & col("some").is_null(), ((0, 40),)),
        ((col("a") < 35) & col("some").is_not_null(), ((0, 40),)),
        ((col("a") < 35) & col("nulls").is_null(), ((0, 40),)),
    ],
    ids=str,
)
def test_filter_selects_rows_by_the_bounds_of_their_pages(condition: Expression, rows: Any) -> None:
    content = pa.table({"a": range(1000), "b": pa.array(range(1000), pa.int32()), "other": [7] * 1000})
    content = content.append_column("some", pa.array([None, 1] * 500)).append_column("nulls", pa.nulls(1000, pa.int8()))
    file = File(content, whole=False, predicate=condition, **{**PAGED, "use_dictionary": False})
    layout, data = file.layout, file.data.blocks[0].data
    if not layout.groups:
        assert rows == ()
        return
    assert layout.bounds is not None
    index = {}
    for leaf in (0, 1):
        chunk = layout.chunks.get(0, leaf)
        assert chunk.offset_index is not None
        assert chunk.column_index is not None
        pages = page_index.pages(data.slice(*_span(chunk.offset_index)).to_pybytes(), chunk, 1000)
        assert pages is not None
        values = page_index.values(data.slice(*_span(chunk.column_index)).to_pybytes(), chunk, pages)
        assert values is not None
        index[leaf] = page_plan.IndexedColumn(pages, values)
    predicate = file.decoder.shape.context.predicate
    assert predicate is not None
    assert page_plan.matching_rows(predicate, layout.bounds, 0, index) == rows


@pytest.mark.parametrize(
    ("lower", "upper", "condition", "rows"),
    [
        (5, 5, col("a") == 6, ()),
        (5, 5, col("a") == 5, ((0, 10),)),
        (5, 6, col("a") == 6, ((0, 10),)),
        # Bounds in the wrong order are not used.
        (6, 5, col("a") == 900, ((0, 10),)),
    ],
)
def test_page_may_match_within_its_bounds(lower: int, upper: int, condition: Expression, rows: Any) -> None:
    file = File(pa.table({"a": range(1000)}), whole=False, predicate=condition, **{**PAGED, "use_dictionary": False})
    bounds, predicate = file.layout.bounds, file.decoder.shape.context.predicate
    assert bounds is not None
    assert predicate is not None
    first = page_index.PageValues((lower, upper), 0)
    index = {0: page_plan.IndexedColumn(page_index.DataPages((0, 1), (0, 10)), [first])}
    assert page_plan.matching_rows(predicate, bounds, 0, index) == rows


def _span(item: ByteRange) -> tuple[int, int]:
    return item.start, item.length


# === Reads of the page index ===


def indexed(condition: Expression | None, **write: Any) -> File:
    content = pa.table({"a": pa.array(range(1000), pa.int64()), "b": pa.array(range(1000), pa.int32())})
    options = {**PAGED, "use_dictionary": False, "compression": "NONE", "row_group_size": 500, **write}
    return File(content, whole=False, predicate=condition, **options)


def test_column_index_is_read_for_filter_columns_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_plan, "_WORK", 0)
    file = indexed(col("b") > 3)
    layout = file.layout
    ranges = page_plan.index_ranges(layout, file.data.blocks[0]._replace(start=1), page_plan.Ratio(1, 1))
    chunks = {(group, leaf): layout.chunks.get(group, leaf) for group in (0, 1) for leaf in (0, 1)}
    assert ranges == {
        group: [
            chunks[group, 0].offset_index,
            chunks[group, 1].offset_index,
            chunks[group, 1].column_index,
        ]
        for group in layout.groups
    }
    assert [*page_plan.offset_indexes(layout, 0).values()] == [chunks[0, 0].offset_index, chunks[0, 1].offset_index]


def test_pages_of_columns_with_lists_are_not_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_plan, "_WORK", 0)
    content = pa.table({"l": [[1, 2]] * 1000, "a": range(1000)})
    file = File(content, whole=False, predicate=(col("a") > 3) & col("l").is_not_null(), **PAGED)
    block, chunk = file.data.blocks[0], file.layout.chunks.get(0, 1)
    assert file.layout.chunks.get(0, 0).offset_index is not None
    assert [*page_plan.offset_indexes(file.layout, 0).values()] == [chunk.offset_index]
    ranges = page_plan.index_ranges(file.layout, block._replace(start=1), page_plan.Ratio(1, 1))
    assert ranges == {0: [chunk.offset_index, chunk.column_index]}
    layout = page_plan.with_index(file.layout, 0, block.data.slice)
    assert layout.index[0]().keys() == {1}
    # Arrow misreads skipped pages of this writer, so none are skipped.
    layout.chunks.__dict__["_parsed"] = layout.chunks._parsed._replace(writer="parquet-cpp-arrow version 2.0.0")
    assert [*page_plan.offset_indexes(layout, 0).values()] == []
    assert page_plan.index_ranges(layout, block._replace(start=1), page_plan.Ratio(1, 1)) == {}


def test_page_index_is_not_read_without_a_column_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_plan, "_WORK", 0)
    file = indexed(col("b") > 3)
    numbers, get = file.layout.chunks, file.layout.chunks.get
    monkeypatch.setattr(type(numbers), "get", lambda self, *place: get(*place)._replace(column_index=None))
    block = file.data.blocks[0]._replace(start=1)
    assert page_plan.index_ranges(file.layout, block, page_plan.Ratio(1, 1)) == {}


@pytest.mark.parametrize("read_from", ["before the chunks' end", "before the index", "at the end"])
def test_page_index_is_read_if_it_may_save_more_than_it_costs(monkeypatch: pytest.MonkeyPatch, read_from: str) -> None:
    file = indexed(col("b") > 3)
    chunks = [file.layout.chunks.get(group, leaf) for group in file.layout.groups for leaf in (0, 1)]
    parts = [part for chunk in chunks for part in (chunk.offset_index, chunk.column_index) if part is not None]
    parts = [part for part in parts if part not in (chunks[0].column_index, chunks[2].column_index)]
    first_byte = {
        "before the chunks' end": chunks[1].start + 5,
        "before the index": min(part.start for part in parts),
        "at the end": file.data.size,
    }[read_from]
    possible = chunks[0].length + 5 if "chunks" in read_from else sum(chunk.length for chunk in chunks)
    cost = sum(part.length for part in parts) if read_from == "at the end" else 0
    for most, is_read in ((possible - cost, True), (possible - cost + 1, False)):
        monkeypatch.setattr(page_plan, "_ROUND_TRIP" if cost else "_WORK", most)
        ranges = page_plan.index_ranges(
            file.layout, file.data.blocks[0]._replace(start=first_byte), page_plan.Ratio(1, 1)
        )
        assert bool(ranges) is is_read


@pytest.mark.parametrize("write", [{"write_page_index": False}, {}])
def test_page_index_is_not_read_if_missing_or_without_filter(
    monkeypatch: pytest.MonkeyPatch, write: dict[str, Any]
) -> None:
    monkeypatch.setattr(page_plan, "_WORK", 0)
    file = indexed(col("b") > 3 if write else None, **write)
    block = file.data.blocks[0]._replace(start=1)
    assert page_plan.index_ranges(file.layout, block, page_plan.Ratio(1, 1)) == {}


@pytest.mark.parametrize(
    ("condition", "rows", "pages"),
    [(col("b") == 7, ((0, 10),), 98), ((col("b") == 7) & (col("a") == 300), None, 100), (col("b") >= 0, (), 0)],
    ids=str,
)
def test_pages_without_a_match_are_skipped_and_counted(condition: Expression, rows: Any, pages: int) -> None:
    file = indexed(condition, row_group_size=500)
    layout = dataclasses.replace(file.layout, groups=(0,))
    whole = layout.compressed_size((0,))
    gains = page_plan.Ratio(1 << 20, 0)
    predicate = file.decoder.shape.context.predicate
    assert predicate is not None
    read = file.data.blocks[0].data.slice
    narrowed, skipped = page_plan.with_pages(layout, {0: []}, predicate, read, gains)
    saved = whole
    if rows is None:
        assert (narrowed.groups, narrowed.groups_skipped) == ((), layout.groups_skipped + 1)
    else:
        assert (narrowed.groups, narrowed.groups_skipped) == ((0,), layout.groups_skipped)
        assert {group: item.rows for group, item in narrowed.pages.items()} == ({0: rows} if rows else {})
        saved -= narrowed.compressed_size((0,))
    assert skipped == (pages, saved)
    assert gains.expected((1 << 20) + whole) == saved
    assert narrowed.index[0]().keys() == {0, 1}


@pytest.mark.parametrize(("condition", "leaves"), [(col("b") >= 0, [1]), (col("b") == 7, [1, 0, 1])], ids=str)
def test_other_indexes_are_read_only_if_pages_are_skipped(condition: Expression, leaves: list[int]) -> None:
    file = indexed(condition)
    layout, data, predicate = file.layout, file.data.blocks[0].data, file.decoder.shape.context.predicate
    assert predicate is not None
    listed = {layout.chunks.get(0, leaf).offset_index: leaf for leaf in (0, 1)}
    read_leaves: list[int] = []

    def read(start: int, length: int) -> pa.Buffer:
        place = ByteRange(start, start + length)
        if place in listed:
            read_leaves.append(listed[place])
        return data.slice(start, length)

    page_plan.with_pages(layout, {0: []}, predicate, read, page_plan.Ratio())
    assert read_leaves == leaves


def test_rebuilt_chunks_replace_their_blocks() -> None:
    file = indexed(None)
    data = file.data.blocks[0].data
    layout = page_plan.cut(page_plan.with_index(file.layout, 0, data.slice), 0, 0, 10)
    first, second = (layout.chunks.get(0, leaf) for leaf in (0, 1))
    layout = dataclasses.replace(layout, pages={0: GroupPages(((0, 10),), {0: layout.pages[0].chunks[0]})})
    edges = [first.start, second.start, second.start + second.length, file.data.size]
    blocks = [ByteBlock(start, data.slice(start, stop - start)) for start, stop in itertools.pairwise(edges)]
    needed, replaced = page_plan.rebuild(layout, (0,), blocks, data.slice)
    assert needed == [blocks[1]]
    assert replaced.keys() == {(first.start, first.length)}
    assert page_plan.rebuild(layout, (1,), blocks, data.slice) == (blocks, {})


def test_row_groups_are_read_whole_if_pages_contradict_the_index() -> None:
    file = indexed(None)
    layout = file.layout
    for group in (0, 1):
        layout = page_plan.with_index(layout, group, file.data.blocks[0].data.slice)
    piece = page_plan.cut(page_plan.cut(layout, 0, 0, 10), 1, 20, 30)
    whole = page_plan.without_pages(piece, (0,))
    assert (whole.index, whole.pages) == ({}, {0: GroupPages(((0, 10),), {}), 1: piece.pages[1]})
    assert page_plan.without_pages(layout, (0, 1)).pages == {}


def test_chunks_that_share_bytes_are_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    spans = [ByteRange(20, 30), ByteRange(0, 10), ByteRange(10, 20)]
    assert page_plan._disjoint(spans)
    assert page_plan._disjoint([])
    assert not page_plan._disjoint([*spans, ByteRange(29, 31)])
    file = indexed(None)
    layout = page_plan.with_index(file.layout, 0, file.data.blocks[0].data.slice)
    monkeypatch.setattr(page_plan, "_disjoint", lambda ranges: False)
    assert page_plan.cut(layout, 0, 0, 10).pages == {0: GroupPages(((0, 10),), {})}


@pytest.mark.parametrize("origin", [Origin.ROW_ID, Origin.ROW_COMMIT_VERSION, Origin.FILE])
def test_filter_columns_are_read_first_if_others_are_large(monkeypatch: pytest.MonkeyPatch, origin: Origin) -> None:
    file = indexed(col("b") > 3)
    layout, shape = file.layout, file.decoder.shape
    others = [layout.chunks.get(group, 0) for group in (0, 1)]
    lengths, second = [chunk.length for chunk in others], others[1].start
    for groups, stop, size in (
        ((0, 1), file.data.size, sum(lengths)),
        ((1,), file.data.size, lengths[1]),
        ((0, 1), second + 1, sum(lengths)),
        ((0, 1), second, lengths[0]),
    ):
        for least, leaves in ((size, (1,)), (size + 1, ())):
            monkeypatch.setattr(page_plan, "_LEAST", least)
            assert page_plan.filter_leaves(shape, layout, groups, page_plan.Ratio(1, 1), stop) == leaves
    # Row ids and row commit versions need all rows of the file.
    monkeypatch.setattr(page_plan, "_LEAST", 0)
    requested = SimpleNamespace(
        context=SimpleNamespace(filters=[*shape.context.filters, SimpleNamespace(origin=origin)])
    )
    leaves = page_plan.filter_leaves(requested, layout, (0, 1), page_plan.Ratio(1, 1), file.data.size)  # type: ignore[arg-type]
    assert leaves == ((1,) if origin is Origin.FILE else ())
    monkeypatch.setattr(page_plan, "SHORTCUTS", SimpleNamespace(late_columns=False))
    assert page_plan.filter_leaves(shape, layout, (0, 1), page_plan.Ratio(1, 1), file.data.size) == ()


def test_filter_columns_are_in_the_order_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_plan, "_LEAST", 0)
    file = File(
        pa.table({f"c{n}": range(9) for n in range(9)}), whole=False, predicate=(col("c8") > 3) & (col("c1") < 7)
    )
    leaves = page_plan.filter_leaves(file.decoder.shape, file.layout, (0,), page_plan.Ratio(1, 1), file.data.size)
    assert leaves == (1, 8)


@pytest.mark.parametrize("is_indexed", [True, False])
def test_skipped_pages_of_other_columns_are_counted(is_indexed: bool) -> None:
    file = indexed(col("b") > 3)
    layout = file.layout
    for group in (0, 1) if is_indexed else ():
        layout = page_plan.with_index(layout, group, file.data.blocks[0].data.slice)
    gains, index_gains = page_plan.Ratio(1 << 20, 0), page_plan.Ratio(1 << 20, 0)
    narrowed, kept, skipped = page_plan.narrow(layout, (0, 1), {0: ((0, 15),), 1: ()}, (1,), gains, index_gains)
    lengths = [layout.chunks.get(group, 0).length for group in (0, 1)]
    assert kept == (0,)
    if is_indexed:
        assert (narrowed.pages[0].rows, narrowed.pages[0].chunks.keys()) == (((0, 15),), {0})
        saved = sum(lengths) - narrowed.pages[0].chunks[0].size
        # Two of 50 pages have these rows.
        assert skipped == (48, saved)
    else:
        saved = lengths[1]
        assert (narrowed.pages, skipped) == ({}, (0, saved))
    seen = (1 << 20) + sum(lengths)
    assert gains.expected(seen) == saved
    assert index_gains.expected(1 << 20) == (saved if is_indexed else 0)


def test_page_index_is_not_read_if_the_file_has_none() -> None:
    layout = indexed(None, write_page_index=False).layout

    def read(start: int, length: int) -> pa.Buffer:
        raise AssertionError("there is no index")

    assert page_plan.with_index(layout, 0, read).index[0]() == {}
