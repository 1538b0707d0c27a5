from __future__ import annotations

import datetime
import json
import uuid
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delta_sharing_client.delta.variant.column import unshred, variant_to_json
from delta_sharing_client.errors import DataError
from tests.unit.delta.variant_encoder import EMPTY, container, dictionary, encode, primitive, text, variants_to_python

UTC = datetime.timezone.utc
GROUP = pa.struct({"value": pa.binary(), "typed_value": pa.string()})
EVENT = pa.struct(
    {
        "metadata": pa.binary(),
        "value": pa.binary(),
        "typed_value": pa.struct(
            {
                "event_type": pa.struct({"value": pa.binary(), "typed_value": pa.string()}),
                "event_ts": pa.struct({"typed_value": pa.timestamp("us", tz="UTC"), "value": pa.binary()}),
            }
        ),
    }
)
NAMES = ["event_type", "event_ts", "email", "error_msg", "click"]
METADATA = dictionary(NAMES)


def column(typed: pa.DataType, rows: list[tuple[bytes | None, object] | None], metadata: bytes = EMPTY) -> pa.Array:
    """A shredded column of (value, typed_value)."""
    return pa.array(
        [None if row is None else {"metadata": metadata, "value": row[0], "typed_value": row[1]} for row in rows],
        pa.struct({"metadata": pa.binary(), "value": pa.binary(), "typed_value": typed}),
    )


def event(value: object, kind: object, ts: object) -> dict[str, object]:
    """A row of ``EVENT``: ``kind`` and ``ts`` are (value, typed_value)."""
    fields = {
        "event_type": {"value": kind[0], "typed_value": kind[1]},
        "event_ts": {"value": ts[0], "typed_value": ts[1]},
    }
    return {"metadata": METADATA, "value": None if value is None else encode(value, NAMES), "typed_value": fields}


MISSING = (None, None)
NULL = (primitive(0), None)


def test_measurements_of_the_specification_are_put_back():
    array = column(pa.int64(), [(None, 34), (primitive(0), None), (text("n/a"), None), (None, 100), None, MISSING])
    assert variant_to_json(array).to_pylist() == ["34", "null", '"n/a"', "100", None, "null"]


def test_tags_of_the_specification_are_put_back():
    def tags(*items: str | None) -> list[dict[str, object]]:
        return [{"value": primitive(0) if item is None else None, "typed_value": item} for item in items]

    rows = [
        (None, tags("comedy", "drama")),
        (None, tags("horror", None)),
        (None, tags("comedy", "drama", "romance")),
        NULL,
        (None, []),
        (None, [{"value": None, "typed_value": None}]),
    ]
    expected = [["comedy", "drama"], ["horror", None], ["comedy", "drama", "romance"], None, [], [None]]
    for typed in (pa.list_(GROUP), pa.large_list(GROUP)):
        array = column(typed, rows)
        assert variants_to_python(array) == expected
        for start in range(len(rows)):
            assert variants_to_python(array.slice(start, 2)) == expected[start : start + 2]


def test_events_of_the_specification_are_put_back():
    moment = datetime.datetime(2024, 10, 24, 18, 21, 54, tzinfo=UTC)
    rows = [
        event(None, (None, "noop"), (None, moment)),
        event({"email": "user@example.com"}, (None, "login"), (None, moment)),
        event({"error_msg": "malformed: ..."}, MISSING, MISSING),
        {"metadata": METADATA, "value": text("malformed: not an object"), "typed_value": None},
        event({"click": "_button"}, MISSING, (None, moment)),
        event(None, NULL, (None, moment)),
        event(None, (None, "noop"), (text("2024-10-24"), None)),
        event(None, MISSING, MISSING),
        {"metadata": METADATA, "value": primitive(0), "typed_value": None},
        {"metadata": METADATA, "value": None, "typed_value": None},
        None,
    ]
    expected = [
        {"event_type": "noop", "event_ts": moment},
        {"event_type": "login", "event_ts": moment, "email": "user@example.com"},
        {"error_msg": "malformed: ..."},
        "malformed: not an object",
        {"event_ts": moment, "click": "_button"},
        {"event_type": None, "event_ts": moment},
        {"event_type": "noop", "event_ts": "2024-10-24"},
        {},
        None,
        None,
        None,
    ]
    array = pa.array(rows, EVENT)
    assert variants_to_python(array) == expected
    assert variants_to_python(array.slice(3, 4)) == expected[3:7]
    assert variant_to_json(array).to_pylist()[-2:] == ["null", None]
    assert list(variants_to_python(array)[1]) == ["email", "event_ts", "event_type"]


def test_nested_objects_and_arrays_are_put_back():
    location = pa.struct(
        {
            name: pa.struct({"value": pa.binary(), "typed_value": pa.float64()}) for name in ("latitude", "longitude")
        }
    )  # fmt: skip
    tags = pa.list_(pa.struct({"value": pa.binary()}))
    typed = pa.struct(
        {
            "location": pa.struct({"value": pa.binary(), "typed_value": location}),
            "tags": pa.struct({"value": pa.binary(), "typed_value": tags}),
            "raw": pa.struct({"value": pa.binary()}),
        }
    )
    names = ["tags", "longitude", "raw", "latitude", "location", "é", "z"]
    row = {
        "location": {
            "value": encode({"é": 1}, names),
            "typed_value": {
                "latitude": {"value": None, "typed_value": 1.5},
                "longitude": {"value": None, "typed_value": None},
            },
        },
        "tags": {"value": None, "typed_value": [{"value": text("x")}, {"value": None}]},
        "raw": {"value": encode([1, {"z": None}], names)},
    }
    array = column(typed, [(encode({"z": True}, names), row)], dictionary(names))
    assert variant_to_json(array).to_pylist() == [
        '{"location":{"latitude":1.5,"é":1},"raw":[1,{"z":null}],"tags":["x",null],"z":true}'
    ]


@pytest.mark.parametrize(
    ("typed", "value", "kind", "shown"),
    [
        (pa.bool_(), True, 1, "true"),
        (pa.bool_(), False, 2, "false"),
        (pa.int8(), -1, 3, "-1"),
        (pa.int16(), -1, 4, "-1"),
        (pa.int32(), -1, 5, "-1"),
        (pa.int64(), -1, 6, "-1"),
        (pa.float64(), 0.5, 7, "0.5"),
        (pa.decimal128(9, 2), Decimal("-1.50"), 8, "-1.5"),
        (pa.decimal128(18, 18), Decimal("1E-18"), 9, "0.000000000000000001"),
        (pa.decimal128(38, 0), Decimal("9" * 38), 10, "9" * 38),
        (pa.date32(), datetime.date(2024, 1, 1), 11, '"2024-01-01"'),
        (pa.timestamp("us", "UTC"), 1, 12, '"1970-01-01 00:00:00.000001+00:00"'),
        (pa.timestamp("us", "America/New_York"), 1, 12, '"1970-01-01 00:00:00.000001+00:00"'),
        (pa.timestamp("us"), 1, 13, '"1970-01-01 00:00:00.000001"'),
        (pa.float32(), 0.5, 14, "0.5"),
        (pa.binary(), b"\xff", 15, '"/w=="'),
        (pa.large_string(), "x" * 70, 16, '"' + "x" * 70 + '"'),
        (pa.time64("us"), datetime.time(1, 2, 3), 17, '"01:02:03"'),
        (pa.timestamp("ns", "UTC"), 1, 18, '"1970-01-01 00:00:00.000000001+00:00"'),
        (pa.timestamp("ns"), 1, 19, '"1970-01-01 00:00:00.000000001"'),
        (pa.binary(16), bytes(16), 20, '"00000000-0000-0000-0000-000000000000"'),
    ],
    ids=str,
)
def test_every_typed_column_becomes_its_variant_type(typed, value, kind, shown):
    array = column(typed, [(None, value), (primitive(0), None), (None, value)]).slice(1)
    values = unshred(array).field("value").to_pylist()
    assert values[0] == primitive(0)
    assert values[1][0] == kind << 2
    assert variant_to_json(array).to_pylist() == ["null", shown]


def test_short_text_and_uuid_extension_become_their_types():
    assert unshred(column(pa.string(), [(None, "é")])).field("value").to_pylist() == [text("é")]
    identifier = uuid.uuid4()
    array = column(pa.null(), [(primitive(1), None)])
    assert variants_to_python(array) == [True]
    typed = pa.array([identifier.bytes], pa.binary(16))
    if hasattr(pa, "uuid"):
        typed = pa.ExtensionArray.from_storage(pa.uuid(), typed)
    array = pa.StructArray.from_arrays([pa.array([EMPTY]), typed], names=["metadata", "typed_value"])
    assert variants_to_python(array) == [identifier]


# === What the specification calls invalid ===


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (
            event({"event_type": "login"}, (None, "login"), MISSING),
            "'event_type' of a variant must not be in its value",
        ),
        (event({"event_type": "login"}, MISSING, MISSING), "'event_type' of a variant must not be in its value"),
        (
            {"metadata": METADATA, "value": encode({"event_type": "login"}, NAMES), "typed_value": None},
            "must have a typed_value",
        ),
        ({"metadata": METADATA, "value": encode({}, NAMES), "typed_value": None}, "must have a typed_value"),
        (event("a", MISSING, MISSING), "must have an object in value"),
        (event(None, (text("x"), "y"), MISSING), "found both"),
        ({**event(None, (None, "noop"), MISSING), "metadata": dictionary(["event_ts"])}, "'event_type'"),
        ({**event(None, MISSING, MISSING), "value": container([primitive(0)] * 2, [2, 2])}, "distinct"),
        ({**event(None, MISSING, MISSING), "value": b"\x02\x03\x02\x03\x04\0\0\0\x15" + text("x" * 20)}, "overlap"),
        ({**event(None, MISSING, MISSING), "value": b"\x02\x01\x02\x00\x05\x00"}, "end within"),
        ({**event(None, MISSING, MISSING), "value": container([primitive(0)], [9])}, "below 5, found 9"),
        ({**event(None, MISSING, MISSING), "metadata": None}, "must have metadata"),
    ],
)
def test_contradicting_rows_are_refused(row, reason):
    with pytest.raises(DataError, match=reason):
        variant_to_json(pa.array([row], EVENT))


@pytest.mark.parametrize(
    ("typed", "row", "reason"),
    [
        (pa.int64(), (primitive(1), 5), "found both"),
        (pa.int64(), (primitive(0), 5), "found both"),
        (pa.list_(GROUP), (primitive(1), []), "found both"),
        (pa.int64(), (b"", None), "where a value must start"),
        (pa.uint8(), (None, 5), "type of the specification, found uint8"),
        (pa.timestamp("ms"), (None, 5), "timestamp"),
        (pa.binary(3), (None, b"abc"), "fixed_size_binary"),
        (pa.list_(pa.int64()), (None, [1]), "groups of value and typed_value"),
        (pa.struct({"a": pa.int64()}), (None, {"a": 1}), "group of value and typed_value"),
        (pa.struct({"a": pa.struct({"b": pa.int64()})}), (None, {"a": {"b": 1}}), "fields value and typed_value"),
        (pa.struct({"a": pa.struct({"value": pa.int64()})}), (None, {"a": {"value": 1}}), "must be binary"),
    ],
)
def test_columns_outside_the_specification_are_refused(typed, row, reason):
    with pytest.raises(DataError, match=reason):
        variant_to_json(column(typed, [row]))


def test_decimal_beyond_its_precision_is_refused():
    typed = pa.Array.from_buffers(pa.decimal128(9, 0), 1, [None, pa.py_buffer((10**12).to_bytes(16, "little"))])
    array = pa.StructArray.from_arrays([pa.array([EMPTY]), typed], names=["metadata", "typed_value"])
    with pytest.raises(DataError, match="precision 9"):
        unshred(array)


# === Round trip: shred by the book, put back ===

SCALAR = st.none() | st.integers(-(2**63), 2**63 - 1) | st.text(st.characters(codec="utf-8"), max_size=5)
OBJECTS = st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), SCALAR | st.lists(SCALAR, max_size=3), max_size=4)


@settings(max_examples=100)
@given(st.lists(OBJECTS | SCALAR, max_size=6))
def test_values_shredded_by_the_book_come_back(values):
    names = ["d", "c", "b", "a"]

    def shred(value: object, wanted: type) -> dict[str, object]:
        typed = isinstance(value, wanted) and not isinstance(value, bool)
        return {"value": None if typed else encode(value, names), "typed_value": value if typed else None}

    def row(value: object) -> dict[str, object]:
        if not isinstance(value, dict):
            return {"metadata": dictionary(names), "value": encode(value, names), "typed_value": None}
        missing = {"value": None, "typed_value": None}
        fields = {"a": shred(value["a"], int) if "a" in value else missing, "b": missing}
        if "b" in value:
            fields["b"] = shred(value["b"], list)
            if fields["b"]["typed_value"] is not None:
                fields["b"]["typed_value"] = [shred(item, str) for item in value["b"]]
        rest = {key: item for key, item in value.items() if key in ("c", "d")}
        return {
            "metadata": dictionary(names), "value": encode(rest, names) if rest else None, "typed_value": fields,
        }  # fmt: skip

    typed = pa.struct(
        {
            "a": pa.struct({"value": pa.binary(), "typed_value": pa.int64()}),
            "b": pa.struct({"value": pa.binary(), "typed_value": pa.list_(GROUP)}),
        }
    )
    array = pa.array(
        [row(value) for value in values],
        pa.struct({"metadata": pa.binary(), "value": pa.binary(), "typed_value": typed}),
    )
    assert variants_to_python(array) == values
    assert [json.loads(item) for item in variant_to_json(array).to_pylist()] == values
