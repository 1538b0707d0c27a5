"""Objects that are replaced during a read: old and new bytes are never mixed."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from delta_sharing_client.decode import row_groups
from delta_sharing_client.errors import DataError
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.replica import Copies
from delta_sharing_client.run import engine
from delta_sharing_client.run.batches import Batches
from delta_sharing_client.run.partitions import partition
from tests.http_server import Exchange
from tests.unit.storages import Fault, Storage, Table, fast_options, parquet_bytes, rows_of

MakeTable = Callable[..., Table]

PLAIN = {"compression": "none", "use_dictionary": False, "write_statistics": False}
MONDAY, TUESDAY = "Mon, 01 Jan 2024 00:00:00 GMT", "Tue, 02 Jan 2024 00:00:00 GMT"
# Headers of the old and the new object, and whether the storage supports If-Match.
HEADERS = {
    "a strong ETag": ({"ETag": '"old"'}, {"ETag": '"new"'}, True),
    "a strong ETag, If-Match ignored": ({"ETag": '"old"'}, {"ETag": '"new"'}, False),
    "a weak ETag and a date": ({"ETag": 'W/"x"', "Last-Modified": MONDAY}, {"Last-Modified": TUESDAY}, True),
    "a date": ({"Last-Modified": MONDAY}, {"Last-Modified": TUESDAY}, True),
}
Swap = Callable[[], None]


def content(value: int, rows: int, row_group_size: int | None = None) -> bytes:
    columns = {name: np.full(rows, value, np.int64) for name in ("a", "b", "c", "d")}
    return parquet_bytes(pa.table(columns), row_group_size=row_group_size or rows, **PLAIN)


@pytest.fixture(params=HEADERS)
def make_swapped(request: pytest.FixtureRequest, make_table: MakeTable) -> Callable[..., tuple[Table, Swap]]:
    """Return a function that makes a table of one file and returns a function that replaces this file."""
    old_headers, new_headers, honours = HEADERS[request.param]

    def make(rows: int, row_group_size: int | None = None) -> tuple[Table, Swap]:
        old, new = (content(value, rows, row_group_size) for value in (1, 2))
        assert len(old) == len(new)
        table = make_table(pa.schema([(name, pa.int64()) for name in ("a", "b", "c", "d")]))
        table.add(old, name="f")
        table.storage.headers["f"] = old_headers
        table.storage.honours_match = honours

        def swap() -> None:
            table.storage.files["f"] = new
            table.storage.headers["f"] = new_headers

        return table, swap

    return make


def after(swap: Swap) -> Fault:
    """Respond to this request from the old object, and to the next one from the new object."""

    def fault(handler: Exchange, data: bytes) -> bool:
        swap()
        return False

    return fault


def values(rows: pa.Table) -> set[int]:
    return {value for column in rows.columns for value in column.unique().to_pylist()}


MakeSwapped = Callable[..., tuple[Table, Swap]]


def test_replaced_file_in_several_parts_is_read_again(make_swapped: MakeSwapped) -> None:
    table, swap = make_swapped(300_000)
    table.storage.faults["f"] = [after(swap)]

    rows = table.read(options=fast_options(max_concurrent_requests=1))

    assert (rows.num_rows, values(rows)) == (300_000, {2})


def test_footer_of_a_replaced_object_is_not_used_for_columns(make_swapped: MakeSwapped) -> None:
    table, swap = make_swapped(300_000)
    table.storage.faults["f"] = [after(swap)]

    rows = table.read(columns=["b"])

    assert (rows.num_rows, values(rows)) == (300_000, {2})


def test_replacement_after_the_first_rows_is_an_error(
    make_swapped: MakeSwapped, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_groups, "_UNIT", 1)
    table, swap = make_swapped(400_000, row_group_size=100_000)
    options = fast_options(max_concurrent_requests=1, max_bytes_in_flight=1_000_000)
    batches = Batches(table.plan(columns=["b"], options=options))
    first = next(batches)
    swap()

    with pytest.raises(DataError, match=r"was replaced while it was read.*share\.schema\.t.*id-f"):
        list(batches)
    assert first["b"].unique().to_pylist() == [1]


@pytest.mark.parametrize("is_large", [False, True])
def test_file_that_changes_twice_is_read_in_one_response(
    make_swapped: MakeSwapped, monkeypatch: pytest.MonkeyPatch, is_large: bool
) -> None:
    table, swap = make_swapped(300_000)
    storage = table.storage
    old, old_headers = storage.files["f"], storage.headers["f"]

    def back() -> None:
        storage.files["f"], storage.headers["f"] = old, old_headers

    # A storage that refuses the condition is asked without it, once.
    is_asked_again = storage.honours_match and old_headers.get("ETag") == '"old"'
    storage.faults["f"] = [after(swap), *[after(lambda: None)] * (1 + is_asked_again), after(back)]

    if is_large:
        # One response is held in memory.
        monkeypatch.setattr(engine, "MOST_IN_ONE_RESPONSE", len(old) - 1)
        with pytest.raises(DataError, match="was replaced while it was read") as caught:
            table.read(columns=["b"])
        assert type(caught.value) is DataError
        return
    rows = table.read(columns=["b"])
    assert (rows.num_rows, values(rows)) == (300_000, {1})
    assert storage.requests[-1].range is None


def test_local_copy_of_a_replaced_file_restarts(make_swapped: MakeSwapped, tmp_path: Path) -> None:
    table, swap = make_swapped(400_000)
    table.storage.faults["f"] = [after(swap)]
    plan = table.plan(options=fast_options(max_concurrent_requests=1))

    Copies(plan.context, ScanReport()).files([(plan.tasks[0], tmp_path / "f")])

    assert (tmp_path / "f").read_bytes() == content(2, 400_000)
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_fresh_url_is_requested_for_a_replaced_file(make_swapped: MakeSwapped) -> None:
    table, swap = make_swapped(300_000)
    table.storage.faults["f"] = [after(swap)]
    urls = Fresh(table.storage)

    assert values(rows_of(table.plan(urls=urls))) == {2}
    assert urls.requests == 1
    assert table.storage.requests[-1].target.endswith("=fresh")


class Fresh:
    def __init__(self, storage: Storage) -> None:
        self.storage, self.requests = storage, 0

    def url_for(self, key: str, rejected: str | None = None) -> str:
        self.requests += 1
        return self.storage.url("f", "fresh")


def test_parts_of_a_file_are_read_from_one_object(make_swapped: MakeSwapped) -> None:
    table, swap = make_swapped(400_000, row_group_size=50_000)
    parts = [pickle.loads(pickle.dumps(part)) for part in partition(table.plan(), 4)]
    assert len(parts) == 4
    read = [pa.Table.from_batches(part.read()) for part in parts[:2]]
    # The row groups of a part depend on their sizes, which differ a little between versions of pyarrow.
    assert [set(part["a"].to_pylist()) for part in read] == [{1}, {1}]
    assert 100_000 <= sum(map(len, read)) <= 300_000
    swap()

    for part in parts[2:]:
        with pytest.raises(DataError, match=r"was replaced while it was read.*id-f"):
            list(part.read())
