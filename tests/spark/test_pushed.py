"""Predicates of Spark are converted to ours: exactly, weakened or omitted. ``test_push_down`` compares results with
Spark's."""

from __future__ import annotations

import base64
import datetime
import json
import pickle
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from delta_sharing_client.errors import UsageError
from delta_sharing_client.predicates.arrow import mask
from delta_sharing_client.predicates.binding import bind
from delta_sharing_client.spark.datasource import HAS_DATA_SOURCES, DeltaSharingSource
from delta_sharing_client.spark.pushed import Pushed
from tests.spark.conditions import SCHEMA, rows
from tests.tables import TableWriter

COLUMNS = from_arrow_schema(SCHEMA)


def column(*path: str) -> dict[str, object]:
    return {"column": list(path)}


def constant(kind: str, value: object) -> dict[str, object]:
    return {"type": kind, "value": None if value is None else str(value)}


def test(name: str, *children: object) -> dict[str, object]:
    return {"name": name, "children": list(children)}


test.__test__ = False  # type: ignore[attr-defined]

INT, TEXT = column("i32"), column("text")
A = constant("string", "a")
ONE, TWO = constant("int", 1), constant("int", 2)
OVER_1, IS_2 = test(">", INT, ONE), test("=", INT, TWO)
LATE = constant("timestamp_ntz", 1_710_037_800_999_999)
UNKNOWN = test("UPPER", TEXT)
"""A Spark function that is not ours."""


def found(*predicates: dict[str, object]) -> str | None:
    text = json.dumps({"predicates": predicates})
    condition = Pushed.parse("pushed", text).filter(COLUMNS, SCHEMA)
    return None if condition is None else str(condition)


def test_malformed_pushed_option_is_refused() -> None:
    parsed = Pushed.parse("pushed", json.dumps({"predicates": [OVER_1], "limit": 7}))
    assert (parsed.predicates, parsed.limit) == ((OVER_1,), 7)
    assert Pushed.parse("pushed", '{"predicates": []}') == Pushed((), None)
    for text in ("", "[]", "{}", "null", '{"predicates": 3}'):
        with pytest.raises(UsageError, match="Option 'pushed' is set by this data source itself; leave it out"):
            Pushed.parse("pushed", text)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (OVER_1, "i32 > 1"),
        (test(">", ONE, INT), "i32 < 1"),
        (test("<=", TWO, INT), "i32 >= 2"),
        (test("<>", INT, ONE), "i32 <> 1"),
        (test("=", INT, column("i32")), "i32 = i32"),
        (test("=", column("dec"), column("dec")), "dec = dec"),
        (test("<=>", INT, constant("int", None)), "i32 <=> NULL"),
        (test("<=>", ONE, INT), "i32 <=> 1"),
        (test("IS_NULL", INT), "i32 IS NULL"),
        (test("IS_NOT_NULL", column("s", "x")), "s.x IS NOT NULL"),
        (test("IS_NOT_NULL", column("s")), "s IS NOT NULL"),
        (test("IN", INT, ONE, TWO, constant("int", None)), "i32 IN (1, 2, NULL)"),
        (test("NOT", test("IN", INT, ONE, TWO)), "i32 NOT IN (1, 2)"),
        (test("NOT", OVER_1), "NOT (i32 > 1)"),
        (test("STARTS_WITH", TEXT, A), "startswith(text, 'a')"),
        (test("ENDS_WITH", TEXT, constant("string", "a%_\\")), r"text LIKE r'%a\%\_\\'"),
        (test("CONTAINS", column("s", "y.z"), A), "s.`y.z` LIKE '%a%'"),
        (test("ALWAYS_TRUE"), "TRUE"),
        (test("ALWAYS_FALSE"), "FALSE"),
        (test("AND", OVER_1, IS_2), "i32 > 1 AND i32 = 2"),
        (test("OR", OVER_1, IS_2), "i32 > 1 OR i32 = 2"),
        (test("NOT", test("AND", OVER_1, IS_2)), "NOT (i32 > 1 AND i32 = 2)"),
        (test("NOT", test("OR", OVER_1, IS_2)), "NOT (i32 > 1 OR i32 = 2)"),
        (test("=", column("flag"), constant("boolean", "true")), "flag = TRUE"),
        (test("=", column("flag"), constant("boolean", "false")), "flag = FALSE"),
        (test("=", column("dec"), constant("decimal(10,2)", "1.20")), "dec = 1.20"),
        (test("=", column("bin"), constant("binary", base64.b64encode(b"\xff\x00").decode())), "bin = X'FF00'"),
        (test("=", column("day"), constant("date", "19782")), "day = DATE '2024-02-29'"),
        (test("=", column("ts"), constant("timestamp", "1500000")), "ts = TIMESTAMP '1970-01-01 00:00:01.500000Z'"),
        (
            test("=", column("ntz"), constant("timestamp_ntz", "1500001")),
            "ntz = TIMESTAMP '1970-01-01 00:00:01.500001'",
        ),
        (test("=", column("f32"), constant("float", "0.10000000149011612")), "f32 = 0.10000000149011612E0"),
        (test("=", column("odd.na`me"), A), "`odd.na``me` = 'a'"),
    ],
)
def test_spark_predicates_are_converted(told: dict[str, object], expected: str) -> None:
    assert found(told) == expected


@pytest.mark.parametrize(
    "told",
    [
        UNKNOWN,
        test("NOT", UNKNOWN),
        test("=", UNKNOWN, A),
        test("OR", OVER_1, UNKNOWN),
        test("NOT", test("AND", OVER_1, UNKNOWN)),
        test("NOT", test("OR", OVER_1, UNKNOWN)),
        test("=", INT, constant("bigint", 1)),
        test("=", INT, constant("string", "1")),
        test("=", INT, column("i64")),
        test("=", column("s"), column("s")),
        test("=", ONE, TWO),
        test("IN", INT, ONE, constant("bigint", 2)),
        test("=", column("dec"), constant("decimal(11,2)", "1.20")),
        test("=", column("dec"), constant("decimal(10,2)", "NaN")),
        test("STARTS_WITH", TEXT, constant("string", None)),
        test("ENDS_WITH", TEXT, constant("string", None)),
        test("STARTS_WITH", column("bin"), A),
        test("CONTAINS", column("bin"), A),
        test("STARTS_WITH", TEXT, constant("binary", "YQ==")),
        test("=", column("none"), A),
        test("=", column("text", "x"), A),
        test("=", column("s", "none"), ONE),
        test("=", column("flag"), constant("boolean", "maybe")),
        test("=", INT, constant("int", "x")),
        test("~", INT, ONE),
    ],
)
def test_filters_with_a_different_meaning_are_omitted(told: dict[str, object]) -> None:
    assert found(told) is None
    # The other conditions of a conjunction are kept.
    assert found(told, OVER_1) == "i32 > 1"
    assert found(test("AND", told, OVER_1)) == "i32 > 1"
    assert found(test("AND", OVER_1, told)) == "i32 > 1"
    assert found(test("OR", test("AND", told, OVER_1), IS_2)) == "i32 > 1 OR i32 = 2"
    assert found(test("OR", told, OVER_1)) is None


@pytest.mark.skipif(not HAS_DATA_SOURCES, reason="PySpark 3.5 has no collations")
def test_collated_text_is_not_pushed_down() -> None:
    columns = StructType([StructField("text", StringType("UTF8_LCASE"))])
    schema = pa.schema([("text", pa.string())])
    for told in (test("STARTS_WITH", TEXT, A), test("CONTAINS", TEXT, A), test("=", TEXT, A), test("IN", TEXT, A)):
        assert Pushed((told,)).filter(columns, schema) is None
    assert str(Pushed((test("IS_NULL", TEXT),)).filter(columns, schema)) == "text IS NULL"


def test_pushed_predicates_are_joined_with_and() -> None:
    assert found() is None
    assert found(OVER_1, IS_2) == "i32 > 1 AND i32 = 2"


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        (test("=", column("ts"), constant("timestamp", 1_710_037_800_000_000)), {"ts": "2024-03-10T02:30:00+00:00"}),
        (
            test("=", column("ntz"), constant("timestamp_ntz", 1_710_037_800_999_999)),
            {"ntz": "2024-03-10T02:30:00.999999"},
        ),
        (test("=", column("day"), constant("date", -1)), {"day": "1969-12-31"}),
        (test("=", column("dec"), constant("decimal(10,2)", "1.25")), {"dec": "1.25"}),
        (test("=", column("bin"), constant("binary", "YQ==")), {"bin": "b'a'"}),
        (test("ENDS_WITH", TEXT, constant("string", "%_\\")), {"text": "Ünï%_\\"}),
        (test("CONTAINS", TEXT, constant("string", "%_")), {"text": "Ünï%_\\"}),
        (test("STARTS_WITH", TEXT, constant("string", "Ün")), {"text": "Ünï%_\\"}),
    ],
)
def test_pushed_constant_keeps_exactly_the_rows_with_its_value(told: dict[str, object], kept: dict[str, str]) -> None:
    """Each kept row has the value, and all rows with the value are kept."""
    batch = pa.RecordBatch.from_pylist(rows(), schema=SCHEMA)
    condition = Pushed((told,)).filter(COLUMNS, SCHEMA)
    assert condition is not None
    ((name, expected),) = kept.items()

    def shown(value: Any) -> str:
        return value.isoformat() if isinstance(value, datetime.date) else str(value)

    values = [shown(row[name]) for row in batch.filter(mask(bind(condition, SCHEMA), batch)).to_pylist()]
    assert {*values} == {expected}
    everything = [shown(value) for value in batch.column(SCHEMA.names.index(name)).to_pylist()]
    assert everything.count(expected) == len(values)


# === The filter and limit of the options, and what Spark pushes ===

IDS = [{"id": number, "v": "ab"[number % 2]} for number in range(40)]
OVER_9 = test(">", column("id"), constant("bigint", 9))


@pytest.mark.parametrize("feed", [False, True])
@pytest.mark.parametrize(
    ("options", "predicates", "limit", "expected"),
    [
        ({"filter": "v = 'a'"}, [OVER_9], None, list(range(10, 40, 2))),
        # The limit in the options counts the rows of the read; Spark then drops some of them.
        ({"filter": "v = 'a'", "limit": "9"}, [OVER_9], None, [10, 12, 14, 16]),
        ({"limit": "15"}, [OVER_9], None, [10, 11, 12, 13, 14]),
        ({"filter": "v = 'a'"}, [], 3, [0, 2, 4]),
        ({"filter": "v = 'a'", "limit": "2"}, [], 3, [0, 2]),
        # Spark pushes no limit above a filter; it would count the rows that Spark keeps.
        ({}, [OVER_9], 3, [10, 11, 12]),
    ],
)
def test_options_define_rows_and_spark_only_skips(
    lake: Any, options: dict[str, str], predicates: list[Any], limit: int | None, expected: list[int], feed: bool
) -> None:
    table = TableWriter(
        lake.root / "t",
        pa.schema([("id", pa.int64()), ("v", pa.string())]),
        properties={"delta.enableChangeDataFeed": "true"},
    )
    for first in range(0, 40, 10):
        table.insert(IDS[first : first + 10])
    asked = {"readChangeFeed": "true", "startingVersion": "0"} if feed else {}
    pushed = json.dumps({"predicates": predicates} | ({} if limit is None else {"limit": limit}))
    source = DeltaSharingSource({"path": lake.url("t"), "pushed": pushed, **asked, **options})
    reader = source.reader(source.schema())
    parts = [pickle.loads(pickle.dumps(part)) for part in reader.partitions()]
    ids = [row["id"] for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    # Spark applies the filter and the limit again.
    kept = [one for one in ids if one > 9 or not predicates]
    assert (kept if limit is None else kept[:limit]) == expected
