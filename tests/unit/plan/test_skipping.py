"""Skipped files, row groups and bytes, counted by the storage."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pyarrow as pa
import pytest

from delta_sharing_client.delta.deletion_vectors import DeletionVector
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.plan.explain import explain
from delta_sharing_client.predicates.arrow import mask
from delta_sharing_client.predicates.binding import bind
from delta_sharing_client.predicates.tree import Expression, col
from tests.unit.storages import Storage, Table, metadata, parquet_bytes
from tests.vectors import encode_inline
from tests.versions import parquet_settings

MakeTable = Callable[..., Table]
WIDE = pa.schema([(f"c{i:02d}", pa.int64()) for i in range(16)])


def wide(rows: int, start: int = 0) -> pa.Table:
    # Values that do not compress, so that all columns have the same size.
    return pa.table(
        {
            f"c{i:02d}": [(n * 2_654_435_761 + i * 40_503) % 2**61 for n in range(start, start + rows)]
            for i in range(1, 16)
        }
        | {"c00": list(range(start, start + rows))}
    ).select(WIDE.names)


WRITE = {"compression": "NONE", "use_dictionary": False}


def test_read_of_two_columns_sends_their_bytes_and_the_footer(make_table: MakeTable, storage: Storage) -> None:
    table = make_table(WIDE)
    table.add(wide(40_000), write=WRITE)
    rows = table.read(columns=["c03", "c11"])
    assert rows.equals(wide(40_000).select(["c03", "c11"]))
    needed = storage.bytes_of("part-0.parquet") * 2 / 16
    assert storage.sent < 1.1 * needed
    assert len(storage.requests) == 3


def test_neighbouring_columns_take_one_request(make_table: MakeTable, storage: Storage) -> None:
    table = make_table(WIDE)
    table.add(wide(40_000), write=WRITE)
    table.read(columns=["c03", "c04", "c05"])
    assert len(storage.requests) == 2


def test_read_of_one_row_sends_few_bytes(make_table: MakeTable, storage: Storage) -> None:
    table = make_table(WIDE)
    for part in range(4):
        table.add(wide(40_000, part * 40_000), write={**WRITE, "row_group_size": 1000})
    report = ScanReport()
    rows = table.read(report, filter=col("c00") == 91_234)
    assert rows.equals(wide(1, 91_234))
    total = sum(len(data) for data in storage.files.values())
    assert storage.sent < 0.05 * total
    assert (report.row_groups, report.row_groups_skipped) == (1, 159)


def test_file_statistics_skip_files(make_table: MakeTable, storage: Storage) -> None:
    table = make_table(WIDE)
    for part in range(4):
        low = part * 100
        stats = {"numRecords": 100, "minValues": {"c00": low}, "maxValues": {"c00": low + 99}, "nullCount": {"c00": 0}}
        table.add(wide(100, low), stats=stats)
    report = ScanReport()
    assert table.read(report, filter=col("c00") == 250)["c00"].to_pylist() == [250]
    assert {request.name for request in storage.requests} == {"part-2.parquet"}
    assert report.files_skipped == 3


def test_partition_values_skip_files(make_table: MakeTable, storage: Storage) -> None:
    table = make_table(pa.schema([("p", pa.string()), ("a", pa.int64())]), ["p"])
    for value in ("x", "y", None, "z"):
        table.add(pa.table({"a": [1, 2]}), partition_values={"p": value})
    plan = table.plan(filter=col("p").is_in(["y", "z"]))
    assert (plan.skipped.by_partition, len(plan.tasks)) == (2, 2)
    assert table.read(filter=col("p") == "y").to_pydict() == {"p": ["y", "y"], "a": [1, 2]}
    assert {request.name for request in storage.requests} == {"part-1.parquet"}


@pytest.mark.parametrize(
    ("data_type", "texts", "constants"),
    [
        (pa.float64(), ["1.5", "-Infinity", "NaN", "0.0", "-0.0", "", None], [0.0, 1.5, math.inf, -math.inf, math.nan]),
        (pa.float32(), ["1.5", "Infinity", "NaN", None], [0.0, 1.5]),
        (pa.int64(), ["9007199254740993", "-1", "0", None], [0, 9007199254740993]),
        (pa.int8(), ["-128", "127", None], [-128, 0]),
        (pa.decimal128(20, 3), ["123.4", "-0.001", None], [Decimal("123.4"), 0]),
        (pa.string(), ["a", "", "null", "ü", None], ["a", "null"]),
        (pa.bool_(), ["true", "false", None], [True, False]),
        (pa.date32(), ["2024-02-29", "1582-10-15", None], [datetime.date(2024, 2, 29)]),
        (
            pa.timestamp("us", "UTC"),
            ["2024-01-31 12:00:00", "2024-01-31T12:00:00.5Z", None],
            [datetime.datetime(2024, 1, 31, 12, tzinfo=datetime.timezone.utc)],
        ),
        (pa.binary(), ["AB", "\x01", None], [b"AB"]),
    ],
    ids=str,
)
def test_filter_on_a_partition_column_hides_no_row(
    make_table: MakeTable, data_type: pa.DataType, texts: list[str | None], constants: list[Any]
) -> None:
    table = make_table(pa.schema([("a", pa.int64()), ("p", data_type)]), ["p"])
    for place, text in enumerate(texts):
        table.add(pa.table({"a": [place, -1]}), partition_values={"p": text})
    everything = table.read()
    p = col("p")
    compared = [test(constant) for constant in constants for test in (p.__lt__, p.__ge__, p.__eq__, p.__ne__)]
    tests = [p.is_null(), p.is_not_null(), *compared, *(~test for test in compared), p.is_in(constants)]
    for place, test in enumerate(tests):
        predicate = test & (col("a") >= 0) if place % 2 else test
        expected = everything.filter(pa.array(_matches(predicate, everything), pa.bool_()))
        # Rows are compared as strings, because NaN is not equal to NaN.
        assert repr(table.read(filter=predicate).to_pylist()) == repr(expected.to_pylist()), str(predicate)


def _matches(predicate: Expression, rows: pa.Table) -> list[bool]:
    batch = rows.combine_chunks().to_batches()[0]
    return [bool(value) for value in mask(bind(predicate, rows.schema), batch).to_pylist()]


def test_limit_with_a_partition_filter_reads_no_unneeded_file(make_table: MakeTable, storage: Storage) -> None:
    table = make_table(pa.schema([("p", pa.string()), *WIDE]), ["p"])
    for value in ("x", "y", "y"):
        table.add(wide(40_000), partition_values={"p": value}, write={**WRITE, "row_group_size": 1000})
    assert table.read(filter=col("p") == "y", limit=1500).num_rows == 1500
    assert {request.name for request in storage.requests} == {"part-1.parquet"}
    # Only two of forty row groups are read.
    assert storage.sent < 0.08 * storage.bytes_of("part-1.parquet")


def test_partition_filter_takes_one_request_per_file(make_table: MakeTable, storage: Storage) -> None:
    table = make_table(pa.schema([("p", pa.string()), *WIDE]), ["p"])
    for value in ("x", "y"):
        table.add(wide(40_000), partition_values={"p": value}, write=WRITE)
    assert table.read(filter=col("p") == "y", columns=WIDE.names).equals(wide(40_000))
    assert [request.name for request in storage.requests] == ["part-1.parquet"]


@pytest.mark.parametrize("columns", [["p"], []])
def test_partition_columns_alone_need_no_file(make_table: MakeTable, storage: Storage, columns: list[str]) -> None:
    table = make_table(pa.schema([("p", pa.string()), ("a", pa.int64())]), ["p"])
    vector = encode_inline(DeletionVector.from_positions([1]))
    for value in ("x", "y"):
        table.add(
            pa.table({"a": [1, 2, 3]}),
            partition_values={"p": value},
            stats={"numRecords": 3, "tightBounds": False},
            deletion_vector=vector,
        )
    rows = table.read(filter=col("p") == "y", columns=columns)
    assert (rows.num_rows, rows.column_names) == (2, columns)
    assert table.read(filter=col("p") == "y", columns=columns, limit=1).num_rows == 1
    assert storage.requests == []


def test_row_group_without_a_match_is_not_fetched(make_table: MakeTable, storage: Storage) -> None:
    table = make_table(pa.schema([("p", pa.string()), ("a", pa.int64())]), ["p"])
    table.add(pa.table({"a": list(range(100))}), partition_values={"p": "x"}, write={"row_group_size": 10})
    report = ScanReport()
    predicate = (col("p") == "y") | (col("a") >= 95)
    assert table.read(report, filter=predicate)["a"].to_pylist() == [95, 96, 97, 98, 99]
    assert report.row_groups == 1


def test_only_the_footer_is_read_if_the_filter_column_is_missing(make_table: MakeTable, storage: Storage) -> None:
    table = make_table(pa.schema([*WIDE, pa.field("new", pa.int64())]))
    table.add(wide(40_000), write=WRITE)
    assert table.read(filter=col("new") > 1).num_rows == 0
    assert storage.sent < 0.05 * storage.bytes_of("part-0.parquet")


VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "long": (pa.int64(), [None, -5, 0, 1, 2**62]),
    "double": (pa.float64(), [None, float("nan"), float("-inf"), -0.0, 0.0, 1.5]),
    "string": (pa.string(), [None, "", "a", "b", "ä", "\U0001f600"]),
    "binary": (pa.binary(), [None, b"", b"\x7f", b"\x80", b"\xff"]),
    "boolean": (pa.bool_(), [None, True, False]),
    "date": (pa.date32(), [None, datetime.date(1, 1, 1), datetime.date(1970, 1, 1), datetime.date(9999, 1, 1)]),
    "decimal": (pa.decimal128(20, 3), [None, Decimal("-1.5"), Decimal("0"), Decimal("12345678901.25")]),
    "small": (pa.decimal128(5, 2), [None, Decimal("-1.5"), Decimal("0"), Decimal("1.25")]),
    "timestamp": (
        pa.timestamp("us", tz="UTC"),
        [
            None,
            datetime.datetime(1900, 1, 1, tzinfo=datetime.timezone.utc),
            datetime.datetime(2024, 1, 1, 0, 0, 0, 1, datetime.timezone.utc),
        ],
    ),
}


@pytest.mark.parametrize("kind", VALUES)
@hypothesis.given(data=st.data())
@hypothesis.settings(max_examples=8)
def test_skipping_never_loses_a_row(shared_storage: Storage, kind: str, data: st.DataObject) -> None:
    data_type, values = VALUES[kind]
    rows = data.draw(st.lists(st.sampled_from(values), min_size=1, max_size=40))
    operand = data.draw(st.sampled_from([value for value in values if value is not None]))
    operator = data.draw(st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "null", "in"]))
    group = data.draw(st.integers(1, 5))
    options = parquet_settings(store_decimal_as_integer=data.draw(st.booleans()))
    predicate = _predicate(operator, operand)
    table = Table(shared_storage, metadata(pa.schema([("c", data_type), ("n", pa.int64())])))
    content = pa.table({"c": pa.array(rows, data_type), "n": list(range(len(rows)))})
    table.add(parquet_bytes(content, row_group_size=group, **options))
    found = table.read(columns=["n"], filter=predicate)["n"].to_pylist()
    table.adds.clear()
    # The file's footer has no statistics, so no row group is skipped.
    table.add(parquet_bytes(content, write_statistics=False, **options))
    assert found == table.read(columns=["n"], filter=predicate)["n"].to_pylist()


def _predicate(operator: str, operand: Any) -> Expression:
    column = col("c")
    if operator == "null":
        return column.is_null()
    if operator == "in":
        return column.is_in([operand])
    result: Expression = {
        "==": column == operand, "!=": column != operand, "<": column < operand,
        "<=": column <= operand, ">": column > operand, ">=": column >= operand,
    }[operator]  # fmt: skip
    return result


def test_nan_matches_although_parquet_statistics_omit_it(make_table: MakeTable) -> None:
    table = make_table(pa.schema([("c", pa.float64())]))
    table.add(pa.table({"c": [1.0, float("nan")]}))
    assert table.read(filter=col("c") > 1e300).num_rows == 1


# === Limits ===


def test_limit_with_a_filter_does_not_use_numrecords(make_table: MakeTable) -> None:
    table = make_table(pa.schema([("a", pa.int64())]))
    for first in (0, 10, 20):
        table.add(pa.table({"a": range(first, first + 10)}), stats={"numRecords": 10})
    for limit in (1, 3):
        assert table.read(filter=col("a") > 15, limit=limit)["a"].to_pylist() == [16, 17, 18][:limit]


# === explain ===


def test_explain_shows_read_and_skipped_files_without_urls(make_table: MakeTable) -> None:
    table = make_table(pa.schema([("p", pa.string()), ("a", pa.int64()), ("b", pa.int64())]), ["p"])
    for value in ("x", "y"):
        table.add(pa.table({"a": [1, 2], "b": [3, 4]}), partition_values={"p": value}, stats={"numRecords": 2})
    text = explain(table.plan(columns=["b", "p"], filter=(col("p") == "x") & (col("a") > 1), limit=5))
    assert "share.schema.t, version 3" in text
    assert "files to read: 1 of 2" in text
    assert "files skipped: 1, because partition values cannot match" in text
    assert "columns for the filter only: a" in text
    assert "columns from partition values: p" in text
    assert "limit: 5 rows" in text
    assert "rows in these files: 2" in text
    assert "pages: chosen by the files' page indexes" in text
    assert "http" not in text
    assert "signature" not in text


@pytest.mark.parametrize(
    ("rows", "kind", "is_suggested"), [(10**6, 9, True), (10**6, None, False), (10**6 - 1, 9, False)]
)
def test_explain_suggests_a_faster_type_for_many_decimals(
    make_table: MakeTable, rows: int, kind: int | None, is_suggested: bool
) -> None:
    data_type = pa.int64() if kind is None else pa.decimal128(kind, 2)
    table = make_table(pa.schema([("d", data_type)]))
    table.add(pa.table({"d": pa.array([1], data_type)}), stats={"numRecords": rows})
    assert ("dtype_backend='pyarrow'" in explain(table.plan())) is is_suggested


def test_explain_names_the_limit_as_reason_for_skipping(make_table: MakeTable) -> None:
    table = make_table(pa.schema([("a", pa.int64())]))
    for _ in range(3):
        table.add(pa.table({"a": [1, 2]}), stats={"numRecords": 2})
    assert "files skipped: 2, because the files before them have enough rows" in explain(table.plan(limit=2))
