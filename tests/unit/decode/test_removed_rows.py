"""Values of deleted rows are not evaluated, checked or counted."""

from __future__ import annotations

import datetime
import decimal
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import delta_sharing_client as ds
from delta_sharing_client.delta.deletion_vectors import DeletionVector
from delta_sharing_client.fetch.report import ScanReport
from delta_sharing_client.predicates.parse import parse_filter
from tests.effort import examples
from tests.quota import meets, met
from tests.unit.decode.eager import make_eager, make_gentle
from tests.unit.storages import (
    Storage,
    Table,
    fast_options,
    metadata,
    parquet_bytes,
    rows_of,
)
from tests.vectors import encode_inline, poisoned

MakeTable = Callable[..., Table]

SCHEMA = pa.schema(
    [
        pa.field("i", pa.int32()),
        pa.field("l", pa.int64()),
        pa.field("z", pa.int32()),
        pa.field("d", pa.float64()),
        pa.field("s", pa.string()),
        pa.field("m", pa.decimal128(9, 2)),
        pa.field("day", pa.date32()),
        pa.field("t", pa.timestamp("us", "UTC")),
        pa.field("st", pa.struct([("x", pa.int32()), ("in", pa.struct([("z", pa.int64()), ("s", pa.string())]))])),
        pa.field("texts", pa.list_(pa.string())),
        pa.field("named", pa.map_(pa.string(), pa.struct([("m", pa.decimal128(9, 2))]))),
    ]
)
# Each filter fails for values of the deleted rows, or would have a different result.
FILTERS = [
    "i + 1 > 0",
    "1 / z > 0",
    "l * 2 >= 0 AND i + i >= 0",
    "l - i < 5 OR l + 1 > 0",
    "s LIKE 'r%'",
    "d >= 0.0",
    "d <> 0.5",
    "m + m > 1",
    "NOT (z = 0)",
    "day >= DATE '2020-01-01'",
    "t >= TIMESTAMP '2020-01-01 00:00:00'",
    "s = 'row 3' OR i / z = 0",
    "st.x + 1 > 0",
    "1 / st.in.z > 0",
    "st.in.s LIKE '名%' AND st.x * 2 > 0",
]


def visible_rows(count: int) -> pa.Table:
    numbers = list(range(count))
    return pa.table(
        {
            "i": [number * 3 for number in numbers],
            "l": [number - 1 for number in numbers],
            "z": [1 + number % 5 for number in numbers],
            "d": [number / 2 for number in numbers],
            "s": [f"row {number}" for number in numbers],
            "m": [decimal.Decimal(number) / 4 for number in numbers],
            "day": [datetime.date(2019, 12, 1) + datetime.timedelta(days=number) for number in numbers],
            "t": [
                datetime.datetime(2019, 12, 1, tzinfo=datetime.timezone.utc) + datetime.timedelta(days=number)
                for number in numbers
            ],
            "st": [{"x": number, "in": {"z": number + 1, "s": f"名 {number}"}} for number in numbers],
            "texts": [[f"é {number}", None][: number % 3] for number in numbers],
            "named": [[(f"ключ {number}", {"m": decimal.Decimal(number)})] for number in numbers],
        },
        schema=SCHEMA,
    )


TRACKED = {"delta.enableRowTracking": "true"}


@meets(filtered=7, kept=7, all_removed=5)
@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_values_of_deleted_rows_do_not_affect_reads(shared_storage: Storage, data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 90))
    content = visible_rows(rows)
    removed = sorted(data.draw(st.sets(st.integers(0, rows - 1), min_size=1)))
    if data.draw(st.integers(0, 9)) == 0:
        removed = list(range(rows))
    kept = [row for row in range(rows) if row not in set(removed)]
    written = {"row_group_size": data.draw(st.sampled_from([7, 40, 1000])), "write_page_index": True}
    if data.draw(st.booleans()):
        written |= {"data_page_size": 64, "use_dictionary": False}
    table = Table(shared_storage, metadata(SCHEMA, (), TRACKED))
    vector = encode_inline(DeletionVector.from_positions(removed))
    tracking = {"base_row_id": 1000, "default_row_commit_version": 5}
    blob = parquet_bytes(poisoned(content, removed), **written)
    table.add(
        blob,
        deletion_vector=vector,
        removed=removed,
        stats=data.draw(st.sampled_from([None, {"numRecords": rows}])),
        **tracking,
    )
    plain = Table(shared_storage, metadata(SCHEMA))
    plain.add(content.take(pa.array(kept, pa.int64())), name="plain.parquet")
    request: dict[str, Any] = {"limit": data.draw(st.none() | st.integers(0, 5))}
    texts = data.draw(st.lists(st.sampled_from(FILTERS), max_size=2))
    condition = f" {data.draw(st.sampled_from(['AND', 'OR']))} ".join(f"({text})" for text in texts)
    met("filtered", texts)
    met("kept" if kept else "all_removed")
    request["filter"] = parse_filter(condition) if texts else None
    request["columns"] = data.draw(st.sampled_from([None, ["s"], ["d", "i"], [], ["st.in.s", "texts"]]))
    options = fast_options(batch_rows=data.draw(st.sampled_from([3, 11, 65_536])))

    with pytest.MonkeyPatch.context() as patch:
        if data.draw(st.booleans()):
            make_eager(patch, is_late=data.draw(st.booleans()))
        if data.draw(st.booleans()):
            make_gentle(patch, steps=data.draw(st.sampled_from([1, 3, 200])))
        report = ScanReport()
        found = rows_of(table.plan(options=options, **request), report)
        expected = plain.read(**request)
        lineage = rows_of(table.plan(options=options, row_lineage=True, **{**request, "columns": ["i"]}))
    assert found.equals(expected)
    assert report.rows == expected.num_rows
    numbers = [value // 3 for value in lineage["i"].to_pylist()]
    assert lineage["_row_id"].to_pylist() == [1000 + number for number in numbers]
    if request["limit"] is None and not texts and request["columns"] != []:
        assert (len(found), report.rows_deleted) == (len(kept), len(removed))


@pytest.mark.parametrize("condition", FILTERS)
@pytest.mark.parametrize("row_group_size", [4, 1000])
def test_filter_is_not_evaluated_on_deleted_rows(make_table: MakeTable, condition: str, row_group_size: int) -> None:
    table = make_table(SCHEMA)
    removed = [0, 1, 5, 11]
    gone = encode_inline(DeletionVector.from_positions(removed))
    table.add(visible_rows(12), write={"row_group_size": row_group_size}, deletion_vector=gone)
    plain = make_table(SCHEMA)
    plain.add(visible_rows(12).take(pa.array([row for row in range(12) if row not in removed])), name="plain.parquet")
    expected = plain.read(filter=parse_filter(condition))

    assert table.read(filter=parse_filter(condition)).equals(expected)


@pytest.mark.parametrize("condition", ["1 / p > 0", "q + 1 > 0"])
def test_filter_is_not_evaluated_if_all_rows_are_deleted(make_table: MakeTable, condition: str) -> None:
    schema = pa.schema([("a", pa.int64()), ("p", pa.int32()), ("q", pa.int32())])
    table = make_table(schema, ("p", "q"))
    rows = pa.table({"a": [1, 2, 3]})
    gone = encode_inline(DeletionVector.from_positions([0, 1, 2]))
    for stats in (None, {"numRecords": 3}):
        name = f"gone-{stats is None}.parquet"
        values = {"p": "0", "q": str(2**31 - 1)}
        table.add(rows, name=name, partition_values=values, deletion_vector=gone, stats=stats)
    table.add(rows, partition_values={"p": "1", "q": "1"})
    for columns in (None, [], ["p"]):
        assert table.read(filter=parse_filter(condition), columns=columns).num_rows == 3

    table.add(rows, name="here.parquet", partition_values={"p": "0", "q": str(2**31 - 1)})
    with pytest.raises(ds.DeltaSharingError):
        table.read(filter=parse_filter(condition))


def test_filters_fail_on_the_values_of_deleted_rows(make_table: MakeTable) -> None:
    """These filters do fail on the values of the deleted rows, so the tests above are able to fail."""
    failed: Counter[str] = Counter()
    for condition in FILTERS:
        table = make_table(SCHEMA)
        table.add(parquet_bytes(poisoned(visible_rows(12), [0, 1, 5, 11])))
        try:
            table.read(filter=parse_filter(condition))
        except ds.DeltaSharingError:
            failed[condition] += 1
    assert len(failed) >= 6, failed
