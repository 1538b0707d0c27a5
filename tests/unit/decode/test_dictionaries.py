"""Strings read as dictionary indices equal strings read plainly."""

from __future__ import annotations

import io
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from delta_sharing_client.decode import layout
from delta_sharing_client.decode.text import expanded
from delta_sharing_client.delta.deletion_vectors import DeletionVector
from delta_sharing_client.errors import DataError
from delta_sharing_client.predicates.meaning import evaluate
from delta_sharing_client.predicates.tree import Not, col
from delta_sharing_client.shortcuts import SHORTCUTS
from tests.effort import examples
from tests.quota import meets, met
from tests.unit.decode.eager import make_eager, make_gentle
from tests.unit.decode.opened import File
from tests.unit.storages import Table, fast_options, metadata, rows_of, running_storage
from tests.vectors import encode_inline

WORDS = ["", "a", "b", "ab", "Z\u00fcrich", "\u6771\u4eac", "\U0001f600", "a" * 40, "\x00", "ba"]
CONDITIONS = [
    col("few") == "ab",
    col("few") != "a",
    col("few") > "a",
    col("few").is_in(["b", "\u6771\u4eac", None]),
    col("few").is_null(),
    Not(col("few").is_null()),
    col("few").starts_with("a"),
    col("few") == col("other"),
    (col("few") == "a") | (col("other") < "b"),
    (col("few") >= "a") & (col("n") > 20),
    col("few").equals_null_safe("b"),
    col("other").equals_null_safe(col("few")),
    col("few").like("%b"),
    col("few").upper() == "AB",
    col("few").length() > 1,
]

# Arrow does not keep the pool of a buffer alive.
_pools: list[pa.MemoryPool] = []


@pytest.fixture(autouse=True)
def every_row_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "_LEAST_DICTIONARY_ROWS", 1)
    monkeypatch.setattr(layout, "_LONGEST_SHARE", 100)


def dictionaries(file: File) -> list[str]:
    return file.layout.dictionaries(file.layout.groups)


@st.composite
def contents(draw: st.DrawFn) -> pa.Table:
    rows = draw(st.integers(1, 60))
    few = draw(st.lists(st.sampled_from([*WORDS[: draw(st.integers(1, 10))], None]), min_size=rows, max_size=rows))
    other = draw(st.lists(st.sampled_from([*WORDS, None]), min_size=rows, max_size=rows))
    return pa.table({"n": pa.array(range(rows), pa.int64()), "few": pa.array(few, pa.string()), "other": other})


@meets(filtered=20, deleted=20, limited=10, dictionaries=40)
@settings(max_examples=examples(300), deadline=None)
@given(data=st.data(), content=contents(), condition=st.sampled_from([None, *CONDITIONS]))
def test_rows_are_those_of_plain_text(data: st.DataObject, content: pa.Table, condition: Any) -> None:
    rows = content.num_rows
    gone = set(data.draw(st.lists(st.integers(0, rows - 1), max_size=5)))
    limit = data.draw(st.none() | st.integers(1, 20))
    write = {
        "row_group_size": data.draw(st.integers(5, 60)),
        "data_page_size": data.draw(st.sampled_from([1, 30, 1000])),
        "write_page_index": data.draw(st.booleans()),
        "data_page_version": data.draw(st.sampled_from(["1.0", "2.0"])),
        "dictionary_pagesize_limit": data.draw(st.sampled_from([1, 1 << 20])),
        "write_batch_size": 3,
    }
    columns = data.draw(st.sampled_from([None, ["few"], ["n", "other"], ["other", "few"]]))
    names = columns or content.column_names
    with running_storage() as storage, pytest.MonkeyPatch.context() as patch:
        if data.draw(st.booleans()):
            make_eager(patch, is_late=data.draw(st.booleans()))
        if data.draw(st.booleans()):
            make_gentle(patch)
        table = Table(storage, metadata(content.schema))
        vector = encode_inline(DeletionVector.from_positions(sorted(gone))) if gone else None
        table.add(content, deletion_vector=vector, write=write)
        plan = table.plan(
            columns=columns,
            filter=condition,
            limit=limit,
            options=fast_options(batch_rows=data.draw(st.integers(1, 70))),
        )
        found = rows_of(plan)
    bound = plan.context.predicate
    expected = [
        {name: row[name] for name in names}
        for place, row in enumerate(content.to_pylist())
        if place not in gone and (bound is None or evaluate(bound, row) is True)
    ]
    met("filtered", condition is not None)
    met("deleted", gone)
    met("limited", limit is not None)
    met("dictionaries", dictionaries(File(content, predicate=condition, columns=columns, **write)))
    assert found.schema == plan.output_schema
    assert found.to_pylist() == expected[:limit]


def test_dictionary_is_read_only_if_it_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    content = pa.table({"few": WORDS * 10, "many": [f"text {number}" for number in range(100)], "n": range(100)})
    assert dictionaries(File(content)) == ["few", "many"]
    assert dictionaries(File(content, dictionary_pagesize_limit=1, write_batch_size=5)) == []
    assert dictionaries(File(content, use_dictionary=["many"])) == ["many"]
    with monkeypatch.context() as patch:
        patch.setattr(layout, "_LONGEST_SHARE", 1)
        assert dictionaries(File(content)) == ["few"]
    monkeypatch.setattr(layout, "_LONGEST_DICTIONARY", 300)
    assert dictionaries(File(content)) == ["few"]
    monkeypatch.setattr(layout, "_LEAST_DICTIONARY_ROWS", 101)
    assert dictionaries(File(content)) == []


def test_row_group_with_other_pages_is_not_read_as_dictionary() -> None:
    few, many = ["a", "b"] * 500, [f"text {number:04}" for number in range(1000)]
    content = pa.table({"text": few + many})
    file = File(content, row_group_size=1000, dictionary_pagesize_limit=2000, data_page_size=100, write_batch_size=10)
    assert file.layout.dictionaries((0,)) == ["text"]
    assert file.layout.dictionaries((1,)) == file.layout.dictionaries((0, 1)) == []
    assert [value for batch in file.batches() for value in batch["text"].to_pylist()] == few + many


def test_names_with_dots_and_fields_of_structs_are_read_as_text() -> None:
    content = pa.table({"a.b": ["x"] * 10, "a": [{"b": "y"}] * 10})
    file = File(content)
    assert dictionaries(file) == []
    assert [batch.to_pylist() for batch in file.batches()] == [[{"a.b": "x", "a": {"b": "y"}}] * 10]


def invalid(values: list[bytes]) -> pa.Table:
    return pa.table({"text": pa.array(values, pa.binary()).view(pa.string())})


def test_error_of_an_invalid_string_in_a_dictionary_has_the_row() -> None:
    file = File(invalid([b"good"] * 7 + [b"\xff"] + [b"good"] * 3))
    assert dictionaries(file) == ["text"]
    with pytest.raises(DataError, match=r"Text in column 'text' must be UTF-8, but row 7 of the file"):
        file.batches()


def test_invalid_text_of_deleted_rows_is_not_an_error() -> None:
    file = File(invalid([b"good"] * 7 + [b"\xff"] + [b"good"] * 3), deleted=DeletionVector.from_positions([7]))
    assert dictionaries(file) == ["text"]
    assert [value for batch in file.batches() for value in batch["text"].to_pylist()] == ["good"] * 10


def test_damaged_bytes_give_an_error_or_the_rows_of_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every byte of the column chunk is changed in turn, so indices and lengths may be out of range."""
    content = pa.table({"text": ["a", "bb", None, "ccc"] * 8})
    sink = io.BytesIO()
    pq.write_table(content, sink, compression="none", store_schema=False)
    whole = sink.getvalue()
    chunk = pq.read_metadata(io.BytesIO(whole)).row_group(0).column(0)
    outcomes = {"error": 0, "rows": 0}
    for at in range(chunk.dictionary_page_offset, chunk.dictionary_page_offset + chunk.total_compressed_size):
        for change in (0x01, 0x10, 0xFF):
            damaged = bytearray(whole)
            damaged[at] ^= change
            results = []
            for is_dictionary in (True, False):
                monkeypatch.setattr(SHORTCUTS, "text_dictionaries", is_dictionary)
                results.append(outcome(content.schema, bytes(damaged)))
            assert results[0] == results[1], (at, change)
            outcomes["error" if results[0] is None else "rows"] += 1
    assert min(outcomes.values()) > 20, outcomes


def outcome(schema: pa.Schema, blob: bytes) -> list[Any] | None:
    try:
        file = File(blob, schema=schema)
        return [value for batch in file.batches() for value in batch["text"].to_pylist()]
    except DataError:
        return None


@pytest.mark.parametrize("length", [0, 1, 1000, 1_000_000])
def test_long_string_in_a_dictionary_reserves_no_memory_per_row(length: int) -> None:
    values = pa.array(["x" * length, *"abcdefg"])
    indices = pa.array([None if row % 5 == 4 else row % 7 + 1 for row in range(2000)], pa.int32())
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    _pools.append(pool)
    pa.set_memory_pool(pool)
    try:
        texts = expanded(pa.DictionaryArray.from_arrays(indices, values))
    finally:
        pa.set_memory_pool(before)
    assert pool.max_memory() < 10_000_000
    assert texts.to_pylist() == [None if row % 5 == 4 else "abcdefg"[row % 7] for row in range(2000)]
    assert expanded(pa.DictionaryArray.from_arrays(indices[:0], values)).equals(pa.array([], pa.string()))


def test_an_index_beyond_the_dictionary_is_an_error() -> None:
    array = pa.DictionaryArray.from_arrays(pa.array([0, 5], pa.int32()), pa.array(["a"]), safe=False)
    with pytest.raises(pa.ArrowIndexError):
        expanded(array)
