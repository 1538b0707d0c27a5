"""Polars' reader, which is off by default, returns the same rows and errors as Arrow's reader."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import io
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis.strategies as st
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from delta_sharing_client.delta.deletion_vectors import DeletionVector
from delta_sharing_client.errors import DeltaSharingError
from delta_sharing_client.outputs.polars import frame
from delta_sharing_client.parquet.chunks import Chunks
from delta_sharing_client.parquet.excerpt import excerpt, unpacked_size
from delta_sharing_client.parquet.page_index import read_page_header
from delta_sharing_client.plan.tasks import ScanPlan
from delta_sharing_client.predicates.parse import parse_filter
from delta_sharing_client.predicates.tree import Expression, Not, col, has_calls
from delta_sharing_client.read import polars_reader
from delta_sharing_client.run.batches import Batches
from delta_sharing_client.shortcuts import SHORTCUTS, Shortcuts
from tests.effort import examples
from tests.quota import meets, met
from tests.unit.read.eager import make_eager
from tests.unit.storages import Storage, Table, fast_options, metadata, running_storage
from tests.vectors import encode_inline

pytestmark = pytest.mark.skipif(
    not polars_reader.is_usable(), reason="the Polars reader needs Polars 2 and Arrow's views"
)

UTC = datetime.timezone.utc
MOMENTS = st.datetimes(datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31))
VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "flag": (pa.bool_(), st.booleans()),
    "tiny": (pa.int8(), st.integers(-128, 127)),
    "small": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "whole": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "single": (pa.float32(), st.floats(width=32)),
    "double": (pa.float64(), st.floats()),
    "text": (pa.string(), st.text(st.characters(exclude_categories=["Cs"]), max_size=30)),
    "few": (pa.string(), st.sampled_from(["", "a", "a longer text of twenty", "\u6771\u4eac"])),
    "bytes": (pa.binary(), st.binary(max_size=20)),
    "day": (pa.date32(), st.dates()),
    "at": (pa.timestamp("us", "UTC"), MOMENTS.map(lambda at: at.replace(tzinfo=UTC))),
    "local": (pa.timestamp("us"), MOMENTS),
    "price": (pa.decimal128(9, 2), st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: decimal.Decimal(n).scaleb(-2))),
    "amount": (
        pa.decimal128(18, 4), st.integers(-(10**18) + 1, 10**18 - 1).map(lambda n: decimal.Decimal(n).scaleb(-4))
    ),
    "huge": (pa.decimal128(24, 3), st.integers(-(10**23), 10**23).map(lambda n: decimal.Decimal(f"{n}E-3"))),
    "list": (pa.list_(pa.field("element", pa.int32())), st.lists(st.none() | st.integers(-5, 5), max_size=3)),
}  # fmt: skip


@pytest.fixture(autouse=True)
def every_row_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SHORTCUTS, "polars_reader", True)
    monkeypatch.setattr(polars_reader, "_LEAST_ROWS", 1)


class Used:
    """Count the row groups that Polars' reader returns; the reader can be disabled."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.groups = 0
        self.is_on = True
        read_group, usable = polars_reader.read_group, polars_reader.is_usable

        def counted(*values: Any) -> Any:
            batch = read_group(*values)
            self.groups += batch is not None
            return batch

        patch.setattr(polars_reader, "read_group", counted)
        patch.setattr(polars_reader, "is_usable", lambda: self.is_on and usable())

    def both(self, read: Callable[[], pl.DataFrame]) -> tuple[Any, Any]:
        """Return the results of ``read`` with and without Polars' reader: rows or an error."""
        self.is_on = True
        by_polars = outcome(read)
        self.is_on = False
        return by_polars, outcome(read)


def outcome(read: Callable[[], pl.DataFrame]) -> pl.DataFrame | str:
    try:
        return read()
    except DeltaSharingError as error:
        return str(error)


def for_polars(plan: ScanPlan) -> ScanPlan:
    return dataclasses.replace(plan, context=dataclasses.replace(plan.context, for_polars=True))


def rows_of(table: Table, **request: Any) -> pl.DataFrame:
    plan = for_polars(table.plan(options=fast_options(), **request))
    with Batches(plan) as batches:
        return frame(plan.output_schema, batches)


@st.composite
def contents(draw: st.DrawFn) -> pa.Table:
    rows = draw(st.integers(1, 40))
    names = draw(st.lists(st.sampled_from([*VALUES]), min_size=1, max_size=3, unique=True))
    columns = {}
    for name in names:
        data_type, values = VALUES[name]
        some = draw(st.sampled_from([values, st.none() | values, st.none()]))
        columns[name] = pa.array(draw(st.lists(some, min_size=rows, max_size=rows)), data_type)
    return pa.table({"n": pa.array(range(rows), pa.int64()), **columns})


WRITES = st.fixed_dictionaries(
    {
        "row_group_size": st.integers(5, 60),
        "data_page_size": st.sampled_from([1, 50, 1 << 20]),
        "write_batch_size": st.sampled_from([1, 7, 1024]),
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "compression": st.sampled_from(["none", "snappy", "zstd", "gzip", "lz4", "brotli"]),
        "use_dictionary": st.booleans(),
        "dictionary_pagesize_limit": st.sampled_from([1, 1 << 20]),
        "write_page_checksum": st.sampled_from([True] * 7 + [False]),
        "write_page_index": st.booleans(),
        "store_decimal_as_integer": st.booleans(),
        "store_schema": st.booleans(),
    }
)


def conditions(content: pa.Table) -> st.SearchStrategy[Expression | None]:
    name = content.column_names[-1]
    possible: list[Expression | None] = [None, col("n") >= 3, Not(col(name).is_null())]
    if name in ("text", "few"):
        possible += [col(name) > "a", col(name) == "", col(name).starts_with("a")]
        # A function is evaluated only on the rows that the condition before it leaves open.
        possible += [(col("n") >= 2) & (col(name).length() > 1), (col("n") < 2) | (col(name).lower() == "a")]
    return st.sampled_from(possible)


@meets(decoded=20, deleted=5, filtered=5, function=1)
@settings(max_examples=examples(300), deadline=None)
@given(data=st.data(), content=contents(), write=WRITES)
def test_rows_read_by_polars_equal_those_read_by_arrow(
    data: st.DataObject, content: pa.Table, write: dict[str, Any]
) -> None:
    gone = data.draw(st.sets(st.integers(0, content.num_rows - 1), max_size=4))
    request = {
        "columns": data.draw(st.none() | st.lists(st.sampled_from(content.column_names), min_size=1, unique=True)),
        "filter": data.draw(conditions(content)),
        "limit": data.draw(st.sampled_from([None, None, 3])),
    }
    with running_storage() as storage, pytest.MonkeyPatch.context() as patch:
        used = Used(patch)
        if data.draw(st.booleans()):
            make_eager(patch)
        table = Table(storage, metadata(content.schema))
        vector = encode_inline(DeletionVector.from_positions(sorted(gone))) if gone else None
        table.add(content, deletion_vector=vector, write=write)
        ours, arrows = used.both(lambda: rows_of(table, **request))
    met("decoded", used.groups)
    met("deleted", used.groups and gone)
    met("filtered", used.groups and request["filter"] is not None)
    met("function", used.groups and request["filter"] is not None and has_calls(request["filter"]))
    if isinstance(arrows, str):
        # pyarrow cannot read some empty lists that it wrote in small pages.
        assert ours == arrows
        assert "list" in content.column_names
        return
    assert isinstance(ours, pl.DataFrame)
    assert ours.schema == arrows.schema
    assert ours.equals(arrows, null_equal=True)


SIMPLE = pa.table(
    {
        "n": pa.array(range(200), pa.int64()),
        "text": ["a", None, "bc", "a text of more than twelve bytes"] * 50,
        "price": pa.array([decimal.Decimal(number).scaleb(-2) for number in range(200)], pa.decimal128(9, 2)),
    }
)


def written(content: pa.Table = SIMPLE, **write: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(content, sink, **{"store_decimal_as_integer": True, "write_page_checksum": True, **write})
    return sink.getvalue()


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Used:
    return Used(monkeypatch)


@pytest.fixture
def storage() -> Iterator[Storage]:
    with running_storage() as running:
        yield running


def table_of(storage: Storage, blob: bytes, schema: pa.Schema = SIMPLE.schema) -> Table:
    table = Table(storage, metadata(schema))
    table.add(blob)
    return table


@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("compression", ["none", "snappy"])
def test_damaged_bytes_give_the_same_result_as_arrows_reader(
    storage: Storage, used: Used, checksum: bool, compression: str
) -> None:
    """Polars' reader is used only for pages with checksums, because it may read damaged bytes differently."""
    whole = written(compression=compression, write_page_checksum=checksum, data_page_size=300, write_batch_size=50)
    outcomes = {"error": 0, "rows": 0}
    for at in range(4, len(whole) - 8, 41):
        damaged = bytearray(whole)
        damaged[at] ^= 0x55
        ours, arrows = used.both(lambda damaged=damaged: rows_of(table_of(storage, bytes(damaged))))
        outcomes["error" if isinstance(arrows, str) else "rows"] += 1
        # One change may cause several errors, and each reader reports one of them.
        assert isinstance(ours, str) if isinstance(arrows, str) else ours.equals(arrows)
    assert min(outcomes.values()) > 10, outcomes
    assert bool(used.groups) is checksum


@pytest.mark.parametrize("values", [[b"a", b"\xff"], [b"a" * 20, b"b" * 13 + b"\xc3"]])
def test_invalid_text_has_the_error_of_arrows_reader(storage: Storage, used: Used, values: list[bytes]) -> None:
    content = pa.table({"text": pa.array(values * 20, pa.binary()).view(pa.string())})
    ours, arrows = used.both(lambda: rows_of(table_of(storage, written(content), content.schema)))
    assert ours == arrows
    assert "row 1 of the file" in ours


@pytest.mark.parametrize(
    ("content", "is_read"),
    [
        (SIMPLE, True),
        (SIMPLE.select(["text"]), True),
        (pa.table({"at": pa.array([1, 2], pa.timestamp("us", "UTC"))}), True),
        (pa.table({"at": pa.array([1, 2], pa.timestamp("us"))}), True),
        (pa.table({"a": pa.array([b"x"])}), False),
        (pa.table({"a": [[1]]}), False),
        (pa.table({"a": [{"b": 1}]}), False),
        (pa.table({"d": pa.array([decimal.Decimal(1)], pa.decimal128(38, 0))}), False),
    ],
)
def test_types_that_both_readers_support_are_read_by_polars(
    storage: Storage, used: Used, content: pa.Table, is_read: bool
) -> None:
    rows = rows_of(table_of(storage, written(content), content.schema))
    assert rows.equals(pl.DataFrame(pl.from_arrow(content)))
    assert bool(used.groups) is is_read


def test_int96_and_milliseconds_are_read_by_arrow(storage: Storage, used: Used) -> None:
    content = pa.table({"at": pa.array([1_000, 2_000], pa.timestamp("us", "UTC"))})
    for write in ({"use_deprecated_int96_timestamps": True}, {"coerce_timestamps": "ms"}):
        assert rows_of(table_of(storage, written(content, **write), content.schema)).equals(pl.from_arrow(content))
    assert used.groups == 0


def test_long_repeated_values_are_read_by_arrow(storage: Storage, used: Used) -> None:
    """A page of 30 bytes may hold any number of repeated values."""
    content = pa.table({"text": ["x" * 100] * 100_000})
    options = fast_options(max_bytes_in_flight=1 << 20)
    table = table_of(storage, written(content), content.schema)
    plan = for_polars(table.plan(options=options))
    with Batches(plan) as batches:
        assert sum(batch.num_rows for batch in batches) == 100_000
    assert used.groups == 1  # views of one string take 1.6 MB, less than the smallest budget
    plan = for_polars(
        table_of(storage, written(pa.table({"n": range(1_000_000)})), pa.schema([("n", pa.int64())])).plan(
            options=options
        )
    )
    with Batches(plan) as batches:
        assert max(batch.num_rows for batch in batches) < 1_000_000
    assert used.groups == 1


# === Excerpts ===


@pytest.mark.parametrize("group", [0, 1, 2])
@pytest.mark.parametrize("names", [["n"], ["text"], ["price", "n"], ["n", "text", "price"]])
def test_excerpt_is_a_file_with_only_the_selected_columns(names: list[str], group: int) -> None:
    whole = written(row_group_size=80, write_page_index=True)
    footer_size = int.from_bytes(whole[-8:-4], "little")
    footer = whole[-8 - footer_size : -8]
    leaves = sorted(SIMPLE.column_names.index(name) for name in names)
    chunks = Chunks(pa.py_buffer(footer), leaves, len(whole) - 8 - footer_size)
    parts = {}
    for leaf in leaves:
        chunk = chunks.get(group, leaf)
        parts[leaf] = (chunk, memoryview(whole)[chunk.start : chunk.start + chunk.length])
    rows = SIMPLE.slice(80 * group, 80)
    small = excerpt(footer, group, rows.num_rows, parts)
    assert pq.read_table(io.BytesIO(small), columns=names).equals(rows.select(names))
    assert pl.read_parquet(small, columns=names).equals(pl.from_arrow(rows.select(names)))
    assert len(small) < len(whole)


def test_unpacked_size_is_unknown_for_damaged_pages() -> None:
    whole = written(write_page_checksum=True, compression="none")
    footer_size = int.from_bytes(whole[-8:-4], "little")
    chunk = Chunks(pa.py_buffer(whole[-8 - footer_size : -8]), [0], len(whole) - 8 - footer_size).get(0, 0)
    data = whole[chunk.start : chunk.start + chunk.length]
    assert unpacked_size(chunk, data) == pytest.approx(200 * 8, abs=400)
    assert unpacked_size(chunk, data[:-1] + bytes([data[-1] ^ 1])) is None
    assert unpacked_size(chunk, data[:-1]) is None
    assert unpacked_size(chunk, data + b"\0") is None
    assert unpacked_size(chunk._replace(values=199), data) is None
    assert unpacked_size(chunk._replace(values=201), data) is None


# === By default ===

PEOPLE = pa.table({"id": range(20_000), "name": [f"Bob{number % 50}" for number in range(20_000)]})


@pytest.mark.parametrize("is_on", [False, True])
@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("id > 5 AND lower(name) = 'bob7'", [at for at in range(6, 20_000) if at % 50 == 7]),
        ("id < 100 OR length(name) < 5", [at for at in range(20_000) if at < 100 or at % 50 < 10]),
        (
            "id % 2 = 0 AND coalesce(name, 'x') LIKE 'Bob1%'",
            [at for at in range(0, 20_000, 2) if f"{at % 50}"[0] == "1"],
        ),
    ],
)
def test_functions_of_text_after_another_condition(
    storage: Storage, used: Used, monkeypatch: pytest.MonkeyPatch, is_on: bool, condition: str, expected: list[int]
) -> None:
    monkeypatch.setattr(SHORTCUTS, "polars_reader", is_on)
    rows = rows_of(table_of(storage, written(PEOPLE), PEOPLE.schema), filter=parse_filter(condition))
    assert rows["id"].to_list() == expected
    assert bool(used.groups) is is_on


def test_damaged_page_header_by_default(
    storage: Storage, used: Used, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A checksum covers the body of a page, not its header. By default no frame has other rows than the Arrow output,
    and no panic of Polars is printed."""
    monkeypatch.setattr(SHORTCUTS, "polars_reader", Shortcuts().polars_reader)
    content = pa.table({"paid": [None if at % 5 == 0 else at % 2 == 0 for at in range(400)]})
    whole = written(content, data_page_version="2.0", compression="none", use_dictionary=False)
    at = pq.ParquetFile(io.BytesIO(whole)).metadata.row_group(0).column(0).data_page_offset
    _, length = read_page_header(memoryview(whole)[at:], 0)
    refused = 0
    for bit in range(0, 8 * length, 3):
        damaged = bytearray(whole)
        damaged[at + bit // 8] ^= 1 << bit % 8
        table = table_of(storage, bytes(damaged), content.schema)
        plan = table.plan(options=fast_options())
        frames = outcome(lambda table=table: rows_of(table))
        arrow = outcome(
            lambda plan=plan: pl.DataFrame(pl.from_arrow(pa.Table.from_batches(Batches(plan), plan.output_schema)))
        )
        refused += isinstance(arrow, str)
        assert frames == arrow if isinstance(arrow, str) else frames.equals(arrow)
    assert refused > 10
    assert used.groups == 0
    assert "panicked" not in capfd.readouterr().err
