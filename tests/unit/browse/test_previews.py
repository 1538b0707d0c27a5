"""Pages of rows: by the order of the table or of a column, and conditions written from a shown cell."""

from __future__ import annotations

import datetime
import math
import pathlib
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import deltalake
import hypothesis.strategies as st
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given

import delta_sharing_client as ds
from delta_sharing_client import testing
from delta_sharing_client.browse import previews, tables
from delta_sharing_client.browse.asked import Asked, Mistake
from delta_sharing_client.browse.session import Session
from delta_sharing_client.browse.sorted_rows import first_sorted
from tests.quota import meets, met

NAN = float("nan")
MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, 600000, tzinfo=datetime.timezone.utc)
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "long": (pa.int64(), [2**63 - 1, -(2**63), 0, None]),
    "double": (pa.float64(), [0.1, -1e300, NAN, math.inf, -0.0, None]),
    "float": (pa.float32(), [0.1, NAN, 1.5, None]),
    "decimal": (pa.decimal128(20, 3), [Decimal("12345678901234567.891"), Decimal("-0.001"), None]),
    "string": (pa.string(), ["a", "", "it's", 'say "x"', "back\\slash", "x' OR 'a' = 'a", "null", None]),
    "boolean": (pa.bool_(), [True, False, None]),
    "date": (pa.date32(), [datetime.date(1, 1, 1), datetime.date(9999, 12, 31), None]),
    "timestamp": (pa.timestamp("us", "UTC"), [MOMENT, MOMENT.replace(year=1500, microsecond=0), None]),
    "timestamp_ntz": (pa.timestamp("us"), [MOMENT.replace(tzinfo=None), None]),
}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    root = tmp_path_factory.mktemp("tables")
    for start in range(0, 1000, 100):
        numbers = pa.table({"n": range(start, start + 100), "m": [number % 7 for number in range(100)]})
        deltalake.write_deltalake(root / "many", numbers, mode="append")
    typed = {f"s.d.{name}": pa.table({"odd name": pa.array(*reversed(of))}) for name, of in VALUES.items()}
    nested = pa.table({"s": [{"a.b": {"c": 1}, "x": "y"}, {"a.b": {"c": 2}, "x": "z"}], "l": [[1], [2]]})
    with testing.running({"s.d.many": root / "many", "s.d.nested": nested, **typed}) as server:
        session_ = Session(server.profile, tmp_path_factory.mktemp("run"))
        yield session_
        session_.close()


def page(session: Session, name: str = "many", **values: Any) -> Any:
    planned: Any = previews.plan_preview(session, Asked({"name": ["s", "d", name], **values}))
    return {**planned, **previews.preview(session, Asked({"plan": planned["plan"]}))}


# --- pages ---


@pytest.mark.parametrize("condition", ["", "m <> 3"])
def test_pages_have_all_rows_in_order(session: Session, condition: str) -> None:
    found: list[list[str]] = []
    while True:
        shown = page(session, filter=condition, **{"from": len(found)})
        found += shown["rows"]
        if not shown["isMore"]:
            break
        assert len(shown["rows"]) == 100
    rows = session.client.table("s.d.many").scan(filter=condition or None).to_arrow()
    assert found == [[str(n), str(m)] for n, m in zip(rows["n"].to_pylist(), rows["m"].to_pylist(), strict=True)]


def test_a_later_page_reads_only_its_files(session: Session) -> None:
    assert page(session)["files"] == page(session, **{"from": 900})["files"] == 1
    last = page(session, **{"from": 950})
    assert (len(last["rows"]), last["isMore"], last["rows"][0]) == (50, False, ["950", "1"])
    assert last["bytes"] < page(session, filter="n >= 0")["bytes"]
    assert page(session, **{"from": 5000})["rows"] == []


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"from": 100_001}, "rows up to row 100,000; use a filter"),
        ({"from": 10_001, "sort": 0}, "rows up to row 10,000"),
        ({"from": -1}, "integer of 0 or more"),
        ({"sort": 2}, "index of one of 2 columns, found 2"),
        ({"columns": [["n"], []]}, "to be a list of columns"),
        ({"columns": "n"}, "to be a list of columns"),
        ({"columns": [["n", 1]]}, "to be a list of columns"),
    ],
)
def test_pages_that_are_refused(session: Session, values: Any, message: str) -> None:
    with pytest.raises(ds.UsageError, match=message):
        page(session, **values)


def test_rows_are_not_sorted_by_lists(session: Session) -> None:
    with pytest.raises(ds.UsageError, match="sorted by the column 'l'"):
        page(session, "nested", sort=1)


@pytest.mark.parametrize("is_descending", [False, True])
def test_sorted_pages_have_the_order_of_pandas(session: Session, is_descending: bool) -> None:
    frame = session.client.table("s.d.many").scan(filter="n < 450").to_pandas()
    expected = frame.sort_values("m", kind="stable", ascending=not is_descending)
    asked = {"filter": "n < 450", "sort": 1, "descending": is_descending}
    found = [row for start in range(0, 450, 100) for row in page(session, **asked, **{"from": start})["rows"]]
    assert found == expected.astype(str).to_numpy().tolist()


@meets(ties=10, nan=5, null=5, cut=10)
@given(
    st.lists(st.lists(st.none() | st.sampled_from([NAN, 0.5, 1.0]) | st.floats(), max_size=9), max_size=6),
    st.booleans(),
    st.integers(0, 12),
)
def test_first_sorted_is_the_head_of_a_stable_sort(parts: list[list[Any]], is_descending: bool, rows: int) -> None:
    schema = pa.schema({"x": pa.float64(), "at": pa.int64()})
    places = iter(range(100))
    batches = [pa.record_batch([part, [next(places) for _ in part]], schema=schema) for part in parts]
    found = first_sorted(batches, schema, 0, is_descending=is_descending, rows=rows)
    frame = pd.DataFrame({"x": [x for part in parts for x in part]}, dtype=object)
    numbers = [at for at, x in enumerate(frame["x"]) if x is not None and not math.isnan(x)]
    numbers.sort(key=lambda at: -frame["x"][at] if is_descending else frame["x"][at])
    nans = [at for at, x in enumerate(frame["x"]) if x is not None and math.isnan(x)]
    nulls = [at for at, x in enumerate(frame["x"]) if x is None]
    met("ties", len({frame["x"][at] for at in numbers}) < len(numbers))
    met("nan", nans[:rows])
    met("null", nulls and len(nulls) < len(frame))
    met("cut", 0 < rows < len(frame))
    assert found["at"].to_pylist() == [*numbers, *nans, *nulls][:rows]


def test_columns_may_be_fields_of_structs(session: Session) -> None:
    found: Any = tables.described(session, Asked({"name": ["s", "d", "nested"]}))
    assert [*map(tuple, found["fields"])] == [("s", "a.b"), ("s", "a.b", "c"), ("s", "x")]
    shown = page(session, "nested", columns=[["s", "a.b", "c"], "l"])
    assert [one["type"] for one in shown["columns"]] == ["struct<a.b: struct<c: long>>", "array<long>"]
    assert shown["rows"][0] == ['{"a.b":{"c":1}}', "[1]"]


# --- conditions ---


@pytest.mark.parametrize("name", VALUES)
def test_conditions_from_cells_find_their_rows(session: Session, name: str) -> None:
    cells = [row[0] for row in page(session, name)["rows"]]
    assert len(set(cells)) == len(cells) == len(VALUES[name][1])
    for text in cells:
        values = {"name": ["s", "d", name], "column": ["odd name"], "text": text, "isNull": text is None}
        kept: Any = tables.condition(session, Asked(values))
        left: Any = tables.condition(session, Asked({**values, "negate": True}))
        assert page(session, name, filter=kept["filter"])["rows"] == [[text]]
        assert page(session, name, filter=left["filter"])["rows"] == [[one] for one in cells if one != text]


def test_conditions_are_added_to_the_filter(session: Session) -> None:
    values = {"name": ["s", "d", "many"], "column": ["m"], "text": "3"}
    found: Any = tables.condition(session, Asked({**values, "filter": " n < 5 OR n > 990 "}))
    assert found == {"filter": "(n < 5 OR n > 990) AND m = 3"}
    with pytest.raises(Mistake) as mistake:
        tables.condition(session, Asked({**values, "filter": "n <"}))
    assert mistake.value.field == "filter"
    nested: Any = tables.condition(
        session, Asked({"name": ["s", "d", "nested"], "column": [["s", "a.b", "c"]], "text": "2"})
    )
    assert page(session, "nested", filter=nested["filter"])["rows"] == [['{"a.b":{"c":2},"x":"z"}', "[2]"]]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"column": ["l"], "text": "[1]"}, "cannot write a condition for the column l"),
        ({"column": ["z"], "text": "1"}, "no column z"),
        ({"column": [["s", "x", "y"]], "text": "1"}, "no column s.x.y"),
        ({"column": []}, "list of one column, found 0"),
        ({"column": [["s", "a.b", "c"]], "text": "1 OR 1 = 1"}, "cannot write a condition"),
    ],
)
def test_conditions_that_are_refused(session: Session, values: Any, message: str) -> None:
    with pytest.raises(ds.UsageError, match=message):
        tables.condition(session, Asked({"name": ["s", "d", "nested"], **values}))


def test_deleted_rows_have_no_page(tmp_path: pathlib.Path) -> None:
    table = pa.table({"n": range(250)})
    deltalake.write_deltalake(tmp_path / "t", table.slice(0, 150))
    deltalake.write_deltalake(tmp_path / "t", table.slice(150), mode="append")
    deltalake.DeltaTable(tmp_path / "t").delete("n % 2 = 1")
    with testing.running({"s.d.t": tmp_path / "t"}) as server:
        session = Session(server.profile, tmp_path)
        found = [int(row[0]) for start in (0, 100) for row in page(session, "t", **{"from": start})["rows"]]
        session.close()
    assert sorted(found) == [*range(0, 250, 2)]
