"""Casts of strings equal the recorded results of Spark 4.3, which ``tests/spark/test_cast_meaning.py`` can record
again."""

from __future__ import annotations

import json
import pathlib

import pyarrow as pa
import pytest

from delta_sharing_client.errors import DataError
from delta_sharing_client.predicates import functions
from delta_sharing_client.predicates.binding import bind
from delta_sharing_client.predicates.parse import parse_filter
from delta_sharing_client.predicates.values import Day, Moment, Value

# Results by string: numbers and booleans as in Python, dates in days and timestamps in microseconds since 1970.
# Strings whose cast fails are missing.
RECORDED = json.loads(pathlib.Path(__file__).with_name("casts_of_spark.json").read_text())


def plain(value: Value) -> str:
    if isinstance(value, Day):
        return str(value.days)
    return str(value.nanoseconds // 1000) if isinstance(value, Moment) else str(value)


@pytest.mark.parametrize("name", RECORDED["casts"])
def test_strings_are_cast_as_in_spark(name: str) -> None:
    call = bind(
        parse_filter(f"{'timestamp(c)' if name == 'timestamp' else f'CAST(c AS {name})'} IS NULL"),
        pa.schema({"c": pa.string()}),
    ).child
    constants = [item.value for item in call.arguments[1:]]
    expected = RECORDED["casts"][name]
    results = {}
    for text in RECORDED["texts"]:
        try:
            results[text] = plain(functions.apply(call.name, [text, *constants], call.type, name))
        except DataError:
            with pytest.raises(DataError, match="applied to"):
                functions.compute(call.name, pa.array([text]), constants, call.type, name)
    assert results == expected
    assert 3 < len(expected) < len(RECORDED["texts"])
    array = pa.array([*expected, None])
    computed = functions.compute(call.name, array, constants, call.type, name)
    assert [plain(value) for value in functions.from_arrow(computed)] == [*expected.values(), "None"]


def test_array_of_strings_is_cast_to_timestamps() -> None:
    texts = ["2024-02-29 10:00:00", "1969-12-31T23:59:59.5", "0001-01-01 00:00:00.000001", None]
    moments = [1_709_200_800_000_000, -500_000, -62_135_596_799_999_999, None]
    converted = functions.compute("timestamp", pa.array(texts), [], pa.timestamp("us", "UTC"), "c")
    assert converted.cast(pa.int64()).to_pylist() == moments
    with pytest.raises(DataError, match="applied to '2024-02-30 10:00:00', which is not a valid timestamp"):
        functions.compute("timestamp", pa.array(["2024-02-30 10:00:00"]), [], pa.timestamp("us", "UTC"), "c")
