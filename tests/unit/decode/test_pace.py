"""Reads begin with small pieces, because the consumer may stop; pieces and read-ahead grow as rows are consumed."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from delta_sharing_client.decode import pace, page_choice, row_groups, whole_file
from delta_sharing_client.delta.deletion_vectors import DeletionVector
from delta_sharing_client.errors import DataError
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.predicates.parse import parse_filter
from delta_sharing_client.run.batches import Batches
from tests.time_limits import HANGS
from tests.unit.decode.eager import make_gentle
from tests.unit.storages import Storage, Table, fast_options, rows_of
from tests.vectors import encode_inline

MakeTable = Callable[..., Table]

FILES, ROWS = 3, 60_000


@functools.cache
def content() -> pa.Table:
    """Return the rows of the tables. Making them takes a second, so only workers that need them make them."""
    random = np.random.default_rng(3)
    return pa.table(
        {
            "n": pa.array(range(ROWS)),
            "real": pa.array(random.random(ROWS)),
            "text": pa.array([f"text {number}" for number in range(ROWS)]),
            "o": pa.array([{"x": number, "y": None if number % 3 else number} for number in range(ROWS)]),
            "list": pa.array([[number] * (number % 3) for number in range(ROWS)]),
        }
    )


INDEXED = {"write_page_index": True, "compression": "NONE", "use_dictionary": False, "data_page_size": 8 * 1024}
WRITTEN = {
    "pages": INDEXED,
    "pages of version 2": {**INDEXED, "data_page_version": "2.0", "row_group_size": 7_000},
    "dictionaries": {"write_page_index": True, "data_page_size": 4096},
    "no index": {"compression": "NONE", "row_group_size": 4_000},
    "small row groups": {"row_group_size": 500},
}


def settled(storage: Storage) -> int:
    """Wait until no more bytes are sent; return the number of bytes sent."""
    last, until = -1, time.monotonic() + HANGS
    while last != storage.sent or storage.in_flight:
        assert time.monotonic() < until
        last = storage.sent
        time.sleep(0.03)
    return last


def started(table: Table, **request: Any) -> Batches:
    return Batches(table.plan(options=fast_options(batch_rows=5_000), **request), eager=False)


@pytest.fixture
def table(make_table: MakeTable) -> Table:
    table = make_table(content().schema)
    for _ in range(FILES):
        table.add(content(), write=INDEXED)
    return table


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the sizes of pieces to values for tables of a few megabytes."""
    monkeypatch.setattr(pace, "_STEPS", tuple(step._replace(piece=step.piece >> 5) for step in pace._STEPS))
    monkeypatch.setattr(row_groups, "_LEAST_CUT", 1 << 15)
    monkeypatch.setattr(whole_file, "_SMALL", 1 << 15)


@pytest.mark.usefixtures("small_steps")
def test_read_ahead_grows_with_consumption(table: Table, storage: Storage) -> None:
    flat = ["n", "real", "text", "o"]
    whole = sum(len(data) for data in storage.files.values())
    with started(table, columns=flat) as batches:
        next(batches)
        first = settled(storage)
        totals = [first]
        for _ in batches:
            totals.append(settled(storage)) if len(totals) < 6 else None
    assert first < whole / 20
    assert totals == sorted(totals)
    assert settled(storage) <= 1.2 * whole


@pytest.mark.usefixtures("small_steps")
def test_limit_fetches_only_the_pages_of_its_rows(table: Table, storage: Storage) -> None:
    gone = encode_inline(DeletionVector.from_positions(range(1000)))
    table.adds = [table.add(content(), name="first", write=INDEXED, deletion_vector=gone), *table.adds[1:-1]]
    rows = table.read(limit=10, columns=["n", "text", "o"])
    assert rows["n"].to_pylist() == list(range(1000, 1010))
    assert settled(storage) < 100_000


@pytest.mark.parametrize("steps", [2, 200])
@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN)
@pytest.mark.parametrize("columns", [None, ["o.x", "text"]], ids=["all", "some"])
def test_rows_and_order_are_the_same_for_any_piece_size(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch, written: dict[str, Any], columns: Any, steps: int
) -> None:
    table = make_table(content().schema)
    part = content().slice(0, 9_000)
    table.add(part, write=written)
    removed = [*range(100), 2_100, *range(6_000, 6_600), 8_999]
    table.add(part, write=written, deletion_vector=encode_inline(DeletionVector.from_positions(removed)))
    requests = [
        {},
        {"limit": 8_950},
        {"limit": 9_001},
        {"filter": parse_filter("n % 1000 = 7")},
        {"filter": parse_filter("n >= 3600 AND n < 6450"), "limit": 2_900},
    ]
    expected = [table.read(columns=columns, **request) for request in requests]
    make_gentle(monkeypatch, steps)
    for request, rows in zip(requests, expected, strict=True):
        assert rows_of(table.plan(columns=columns, **request)).equals(rows), request


@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN)
def test_read_ends_when_its_consumer_stops(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch, written: dict[str, Any]
) -> None:
    make_gentle(monkeypatch, 12)
    table = make_table(content().schema)
    for _ in range(2):
        table.add(content().slice(0, 20_000), write=written)
    expected = table.read()
    for taken in (0, 1, 2, 5, 9):
        with started(table) as batches:
            taken_batches = [batch for batch, _ in zip(batches, range(taken), strict=False)]
        rows = pa.Table.from_batches(taken_batches, content().schema)
        assert rows.equals(expected.slice(0, rows.num_rows))


def test_wrong_page_index_loses_no_row(make_table: MakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    part = content().select(["n", "real"]).slice(0, 5_000)
    written = {**INDEXED, "data_page_size": 1024, "write_batch_size": 100}
    table = make_table(part.schema)
    table.add(part, write=written)
    make_gentle(monkeypatch, 200)
    read_pages = page_choice._read_pages

    def wrong_pages(*values: Any) -> Any:
        indexes = read_pages(*values)
        return {
            leaf: item._replace(rows=(0, *(row - 1 for row in item.rows[1:-1]), item.rows[-1]))
            for leaf, item in indexes.items()
        }

    monkeypatch.setattr(page_choice, "_read_pages", wrong_pages)
    assert table.read().equals(part)
    assert table.read(limit=150).equals(part.slice(0, 150))


def test_row_groups_of_one_row_are_read(make_table: MakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    part = content().slice(0, 50)
    table = make_table(part.schema)
    table.add(part, write={"row_group_size": 1, "write_page_index": True})
    with started(table) as batches:
        assert pa.Table.from_batches(batches).equals(part)
    make_gentle(monkeypatch)
    assert table.read().equals(part)


@pytest.mark.usefixtures("small_steps")
def test_damaged_later_page_is_an_error_when_reached(make_table: MakeTable, storage: Storage) -> None:
    table = make_table(content().schema)
    add = table.add(content().select(["text"]), write={**INDEXED, "compression": "snappy"})
    name = next(iter(storage.files))
    data = bytearray(storage.files[name])
    half = len(data) // 2
    data[half : half + 3000] = bytes(3000)
    storage.files[name] = bytes(data)
    assert add.action.size == len(data)
    report = ScanReport()
    with Batches(table.plan(columns=["text"]), report, eager=False) as batches:
        assert next(batches)["text"][0].as_py() == "text 0"
        with pytest.raises(DataError):
            list(batches)
