from __future__ import annotations

import base64
import datetime
import itertools
import json
import math
import re
import struct
import uuid
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delta_sharing_client.delta.type_rows import VARIANT_ARROW_TYPE
from delta_sharing_client.delta.variant import column as variant_column
from delta_sharing_client.delta.variant.column import unshred, variant_to_json, variant_to_python
from delta_sharing_client.delta.variant.encoding import MAX_DEPTH
from delta_sharing_client.errors import DataError
from tests.quota import meets, met
from tests.unit.delta.variant_encoder import (
    EMPTY,
    container,
    dictionary,
    encode,
    keys_of,
    primitive,
    text,
    variants_to_python,
)

UTC = datetime.timezone.utc


def column(values: list[tuple[bytes, bytes] | None], *, value_first: bool = False) -> pa.StructArray:
    """Return a variant column whose rows are given as (value, metadata)."""
    fields = [pa.field("metadata", pa.binary()), pa.field("value", pa.binary())]
    rows = [None if item is None else {"value": item[0], "metadata": item[1]} for item in values]
    return pa.array(rows, pa.struct(fields[::-1] if value_first else fields))


def as_json(value: bytes, metadata: bytes = EMPTY) -> str:
    return variant_to_json(column([(value, metadata)])).to_pylist()[0]


# === Scalars: Spark 4.1 printed the expected texts with to_json, in time zone UTC ===


def double(value: float) -> bytes:
    return primitive(7, struct.pack("<d", value))


def single(value: float) -> bytes:
    return primitive(14, struct.pack("<f", value))


def decimal_(kind: int, scale: int, unscaled: int) -> bytes:
    return primitive(kind, bytes([scale]) + unscaled.to_bytes({8: 4, 9: 8, 10: 16}[kind], "little", signed=True))


def long_(kind: int, value: int) -> bytes:
    return primitive(kind, struct.pack("<q", value))


DAY = 86_400_000_000
SCALARS = [
    (primitive(0), "null", None),
    (primitive(1), "true", True),
    (primitive(2), "false", False),
    (primitive(3, b"\x80"), "-128", -128),
    (primitive(4, struct.pack("<h", -2)), "-2", -2),
    (primitive(5, struct.pack("<i", 2**31 - 1)), "2147483647", 2**31 - 1),
    (long_(6, 9007199254740993), "9007199254740993", 9007199254740993),
    (double(1e10), "1.0E10", 1e10),
    (double(1.5e-5), "1.5E-5", 1.5e-5),
    (double(0.001), "0.001", 0.001),
    (double(1234567.0), "1234567.0", 1234567.0),
    (double(12345678.0), "1.2345678E7", 12345678.0),
    (double(1e7), "1.0E7", 1e7),
    (double(9.999e-4), "9.999E-4", 9.999e-4),
    (double(1.7976931348623157e308), "1.7976931348623157E308", 1.7976931348623157e308),
    (double(100.0), "100.0", 100.0),
    (double(-0.0), "-0.0", -0.0),
    (double(math.inf), '"Infinity"', math.inf),
    (double(-math.inf), '"-Infinity"', -math.inf),
    (single(3.4), "3.4", 3.4000000953674316),
    (single(1e10), "1.0E10", 1e10),
    (single(1.17549435e-38), "1.1754944E-38", 1.1754943508222875e-38),
    (decimal_(8, 2, 110), "1.1", Decimal("1.10")),
    (decimal_(8, 0, 100), "100", Decimal(100)),
    (decimal_(9, 18, -5), "-0.000000000000000005", Decimal("-5E-18")),
    (decimal_(10, 18, 0), "0", Decimal("0E-18")),
    (decimal_(10, 3, 12345678901234567890123456789012345678), "12345678901234567890123456789012345.678",
     Decimal("12345678901234567890123456789012345.678")),
    (primitive(11, struct.pack("<i", 19723)), '"2024-01-01"', datetime.date(2024, 1, 1)),
    (primitive(11, struct.pack("<i", 2932897)), '"+10000-01-01"', "+10000-01-01"),
    (primitive(11, struct.pack("<i", -735525)), '"-0044-03-15"', "-0044-03-15"),
    (long_(12, 1704067200000000), '"2024-01-01 00:00:00+00:00"', datetime.datetime(2024, 1, 1, tzinfo=UTC)),
    (long_(12, 1704067200120000), '"2024-01-01 00:00:00.12+00:00"',
     datetime.datetime(2024, 1, 1, 0, 0, 0, 120000, tzinfo=UTC)),
    (long_(12, 316516204800000000), '"+12000-01-01 00:00:00+00:00"', "+12000-01-01 00:00:00+00:00"),
    (long_(12, -1), '"1969-12-31 23:59:59.999999+00:00"',
     datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
    (long_(13, 1704067201000001), '"2024-01-01 00:00:01.000001"', datetime.datetime(2024, 1, 1, 0, 0, 1, 1)),
    (primitive(15, b"\x02\0\0\0\x00\xff"), '"AP8="', b"\x00\xff"),
    (text('a\x01\x1f\x7f\u2028"\\/é\n'), '"a\\u0001\\u001F\x7f\u2028\\"\\\\/é\\n"', 'a\x01\x1f\x7f\u2028"\\/é\n'),
    (text("short", long=True), '"short"', "short"),
    (text("x" * 64), '"' + "x" * 64 + '"', "x" * 64),
    (text(""), '""', ""),
    # Types that Spark cannot print, in the same format.
    (long_(17, 0), '"00:00:00"', datetime.time(0)),
    (long_(17, 45_296_000_001), '"12:34:56.000001"', datetime.time(12, 34, 56, 1)),
    (long_(18, 1_704_067_200_000_000_001), '"2024-01-01 00:00:00.000000001+00:00"',
     "2024-01-01 00:00:00.000000001+00:00"),
    (long_(18, 1_704_067_200_000_001_000), '"2024-01-01 00:00:00.000001+00:00"',
     datetime.datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
    (long_(19, -1), '"1969-12-31 23:59:59.999999999"', "1969-12-31 23:59:59.999999999"),
    (primitive(20, bytes(range(16))), '"00010203-0405-0607-0809-0a0b0c0d0e0f"', uuid.UUID(bytes=bytes(range(16)))),
]  # fmt: skip


@pytest.mark.parametrize(("value", "shown", "python"), SCALARS, ids=[shown[:30] for _, shown, _ in SCALARS])
def test_every_primitive_type_is_converted_to_json_and_python(value, shown, python):
    assert as_json(value) == shown
    decoded = variant_to_python(value, EMPTY)
    assert decoded == python
    assert type(decoded) is type(python)
    json.loads(shown)


def test_length_of_a_json_column_is_limited(monkeypatch):
    values = column([(primitive(1), EMPTY), None, (primitive(2), EMPTY)])
    assert variant_to_json(values).to_pylist() == ["true", None, "false"]
    monkeypatch.setattr(variant_column, "_LONGEST_COLUMN", 9)
    assert variant_to_json(values).null_count == 1
    monkeypatch.setattr(variant_column, "_LONGEST_COLUMN", 8)
    with pytest.raises(DataError, match="below 2 GiB"):
        variant_to_json(values)


def test_nan_is_a_string_in_json_and_a_float_in_python():
    assert as_json(double(math.nan)) == as_json(single(math.nan)) == '"NaN"'
    assert math.isnan(variant_to_python(double(math.nan), EMPTY))


@meets(fraction=6, negative=11)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_keep_their_value_in_json(value):
    met("fraction", value % 1)
    met("negative", value < 0)
    assert json.loads(as_json(double(value))) == value


@meets(fraction=17, whole=7)
@given(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(0, 38))
def test_decimals_keep_their_value_in_json(unscaled, scale):
    met("fraction" if scale else "whole")
    shown = as_json(decimal_(10, scale, unscaled))
    assert "E" not in shown
    assert Decimal(shown) == variant_to_python(decimal_(10, scale, unscaled), EMPTY) == Decimal(f"{unscaled}E-{scale}")


# === Objects and arrays ===

TREES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=70)
    | st.text(st.characters(codec="utf-8"), min_size=20, max_size=30).map(lambda text: 3 * text)
    | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


def plain(value: object) -> object:
    """Return the value that one gets by parsing the JSON text of a tree."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


@meets(objects=8, lists=10, texts=3)
@settings(max_examples=150)
@given(TREES, st.integers(0, 3), st.booleans(), st.booleans(), st.integers(1, 4))
def test_trees_decode_in_every_layout(tree, extra, large, backwards, width):
    met("objects", isinstance(tree, dict) and tree)
    met("lists", isinstance(tree, list) and tree)
    met("texts", re.search(r'"[^"]{64}', json.dumps(plain(tree), ensure_ascii=False)))
    names = sorted(keys_of(tree))[::-1]
    metadata = dictionary(names, width)
    value = encode(tree, names, extra=extra, large=large, backwards=backwards)
    assert variant_to_python(value, metadata) == tree
    assert json.loads(as_json(value, metadata)) == plain(tree)


def test_many_elements_and_wide_offsets_decode():
    names = [f"key{index:05d}" for index in range(300)]
    tree = {name: [index, "x" * 300] for index, name in enumerate(names)}
    assert variant_to_python(encode(tree, names), dictionary(names, sorted_names=True)) == tree


def test_object_has_the_json_text_that_spark_writes():
    tree = {"a": [1, None, "x"], "b": 1, "é": {}}
    assert as_json(encode(tree, list(tree)), dictionary(list(tree))) == '{"a":[1,null,"x"],"b":1,"é":{}}'
    assert as_json(container([])) == "[]"


def test_trees_deeper_than_the_limit_are_refused():
    value = primitive(0)
    for _ in range(MAX_DEPTH):
        value = container([value])
    assert as_json(value) == "[" * MAX_DEPTH + "null" + "]" * MAX_DEPTH
    assert variant_to_python(value, EMPTY) == json.loads(as_json(value))
    with pytest.raises(DataError, match=f"deeper than {MAX_DEPTH}"):
        as_json(container([value]))
    with pytest.raises(DataError, match="deeper"):
        variant_to_python(container([value]), EMPTY)


# === Columns ===


@pytest.mark.parametrize("value_first", [False, True])
def test_null_struct_is_null_and_variant_null_is_json_null(value_first):
    array = column([(primitive(0), EMPTY), None, (primitive(1), EMPTY)], value_first=value_first)
    assert variant_to_json(array).to_pylist() == ["null", None, "true"]
    assert variant_to_json(array).type == pa.string()
    assert variants_to_python(array) == [None, None, True]
    assert unshred(array).type == VARIANT_ARROW_TYPE
    assert unshred(array).is_valid().to_pylist() == [True, False, True]


def test_slices_and_empty_columns_are_read():
    array = column([(encode(index, []), EMPTY) for index in range(10)])
    assert variant_to_json(array.slice(3, 2)).to_pylist() == ["3", "4"]
    assert variant_to_json(array.slice(0, 0)).to_pylist() == []
    assert unshred(array.slice(7)).field("value").to_pylist() == [encode(index, []) for index in (7, 8, 9)]


def test_variants_in_other_binary_types_are_read():
    for binary in (pa.large_binary(), getattr(pa, "binary_view", pa.binary)()):
        array = pa.StructArray.from_arrays(
            [pa.array([EMPTY], binary), pa.array([primitive(1)], binary)], names=["metadata", "value"]
        )
        assert variant_to_json(array).to_pylist() == ["true"]


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1]),
        pa.array([{"value": b"\0"}]),
        pa.array([{"metadata": EMPTY}]),
        pa.array([{"metadata": EMPTY, "value": b"\0", "other": 1}]),
        pa.array([{"metadata": "a", "value": b"\0"}]),
        pa.array([{"metadata": EMPTY, "value": "x"}]),
        pa.array([{"metadata": EMPTY, "value": None}], pa.struct({"metadata": pa.binary(), "value": pa.binary()})),
        pa.array([{"metadata": None, "value": b"\0"}], pa.struct({"metadata": pa.binary(), "value": pa.binary()})),
    ],
)
def test_columns_other_than_variants_are_refused(array):
    with pytest.raises(DataError, match="variant"):
        variant_to_json(array)


# === Damage ===

ONE_NAME = dictionary(["a"])


@pytest.mark.parametrize(
    ("value", "metadata", "reason"),
    [
        (b"", EMPTY, "where a value must start"),
        (primitive(21), EMPTY, "one of 0 to 20, found 21"),
        (primitive(6, b"\0" * 7), EMPTY, "9 bytes expected, 8 found"),
        (primitive(16, b"\0\0"), EMPTY, "inside a length"),
        (primitive(16, struct.pack("<I", 2**32 - 1) + b"x"), EMPTY, "inside a value"),
        (b"\xfd", EMPTY, "inside a string"),
        (text("a") + b"\0", EMPTY, "1 bytes after it"),
        (b"\x05\xff", EMPTY, "UTF-8"),
        (primitive(16, struct.pack("<I", 1) + b"\xff"), EMPTY, "UTF-8"),
        (decimal_(8, 10, 1), EMPTY, "at most 9 digits"),
        (decimal_(8, 0, 10**9), EMPTY, "at most 9 digits"),
        (primitive(10, b"\x27" + bytes(16)), EMPTY, "at most 38 digits"),
        (long_(17, DAY), EMPTY, "within a day"),
        (long_(17, -1), EMPTY, "within a day"),
        (b"\x03", EMPTY, "inside the size"),
        (b"\x03\x01\x00\x05\x00", EMPTY, "must end within"),
        (b"\x13\xff\xff\xff\xff\x00", EMPTY, "4294967295 elements"),
        (b"\x42\xff\xff\xff\x7f\x00", ONE_NAME, "2147483647 elements"),
        (container([primitive(0)], [1]), ONE_NAME, "below 1, found 1"),
        (container([primitive(0)] * 2, [0, 0]), ONE_NAME, "distinct"),
        (container([primitive(0)] * 2, [0, 1]), dictionary(["a", "a"]), "distinct"),
        (b"\x03\x01\x01\x01\x00", EMPTY, "start before the end"),
        (b"\x03\x01\x00\x00", EMPTY, "start before the end"),
        (b"\x03\x01\x00\x02\x00\x00", EMPTY, "1 bytes after it"),
        (b"\x03\x04\x00\x00\x00\x00\x04" + text("abc"), EMPTY, "overlap"),
        (b"\x03\x01\x00\x02\x0c", EMPTY, "must end within"),
        (b"\x03\x01\x00\x01\x0c\x00", EMPTY, "inside a value"),
        (primitive(0), b"", "but it is empty"),
        (primitive(0), b"\x02\x00\x00", "version 1, found 2"),
        (primitive(0), b"\x01", "must have 3 bytes"),
        (primitive(0), b"\xc1\xff\xff\xff\xff\x00", "4294967295 names"),
        (primitive(0), b"\x01\x01\x00\x05a", "span its last 1 bytes"),
        (primitive(0), b"\x01\x01\x01\x01a", "span"),
        (primitive(0), b"\x01\x00\x00a", "span"),
        (container([primitive(0)], [0]), b"\x01\x02\x00\x09\x01a", "must ascend"),
        (container([primitive(0)], [1]), b"\x01\x02\x00\x01\x00", "span|ascend"),
        (container([primitive(0)], [0]), b"\x01\x01\x00\x01\xff", "UTF-8"),
    ],
)
def test_damaged_variants_are_refused(value, metadata, reason):
    with pytest.raises(DataError, match=reason):
        variant_to_python(value, metadata)
    with pytest.raises(DataError, match=reason):
        as_json(value, metadata)


def test_overlapping_children_are_refused():
    # Each level lists the next one eight times: without the check, a few hundred bytes would hold 8**12 values.
    value = primitive(0)
    for _ in range(12):
        value = b"\x03\x08" + bytes(8) + bytes([len(value)]) + value
    with pytest.raises(DataError, match="overlap"):
        as_json(value)


def test_repeated_long_names_are_refused():
    names = ["x" * (1 << 20)]
    tree = [{names[0]: None}] * 300
    with pytest.raises(DataError, match="characters in total"):
        as_json(encode(tree, names), dictionary(names))


@meets(refused=65, read=9)
@settings(max_examples=300)
@given(TREES, st.data())
def test_damaged_trees_decode_or_are_data_errors(tree, data):
    names = sorted(keys_of(tree))
    parts = [bytearray(encode(tree, names)), bytearray(dictionary(names))]
    for _ in range(data.draw(st.integers(1, 3))):
        part = parts[data.draw(st.integers(0, 1))]
        part[data.draw(st.integers(0, len(part) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = variant_to_python(*parts)
    except DataError:
        met("refused")
        with pytest.raises(DataError):
            as_json(bytes(parts[0]), bytes(parts[1]))
        return
    met("read")
    shown = json.loads(as_json(bytes(parts[0]), bytes(parts[1])))
    assert isinstance(found, dict) == isinstance(shown, dict)


# === Shredding ===

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


def shredded(typed: pa.DataType, rows: list[tuple[bytes | None, object] | None], metadata: bytes = EMPTY) -> pa.Array:
    """Return a shredded column whose rows are given as (value, typed_value)."""
    return pa.array(
        [None if row is None else {"metadata": metadata, "value": row[0], "typed_value": row[1]} for row in rows],
        pa.struct({"metadata": pa.binary(), "value": pa.binary(), "typed_value": typed}),
    )


def event(value: object, kind: object, ts: object) -> dict[str, object]:
    """Return a row of ``EVENT``; ``kind`` and ``ts`` are (value, typed_value)."""
    fields = {
        "event_type": {"value": kind[0], "typed_value": kind[1]},
        "event_ts": {"value": ts[0], "typed_value": ts[1]},
    }
    return {"metadata": METADATA, "value": None if value is None else encode(value, NAMES), "typed_value": fields}


MISSING = (None, None)
NULL = (primitive(0), None)


def test_measurements_of_the_specification_are_unshredded():
    array = shredded(pa.int64(), [(None, 34), (primitive(0), None), (text("n/a"), None), (None, 100), None, MISSING])
    assert variant_to_json(array).to_pylist() == ["34", "null", '"n/a"', "100", None, "null"]


def test_fields_of_a_shredded_column_may_have_any_order():
    array = shredded(pa.int64(), [(None, 34), (text("n/a"), None), None])
    for names in itertools.permutations(["metadata", "value", "typed_value"]):
        fields = [pa.field(name, array.type.field(name).type) for name in names]
        reordered = pa.StructArray.from_arrays(
            [array.field(name) for name in names], fields=fields, mask=array.is_null()
        )
        assert variant_to_json(reordered).to_pylist() == ["34", '"n/a"', None]


def test_tags_of_the_specification_are_unshredded():
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
        array = shredded(typed, rows)
        assert variants_to_python(array) == expected
        for start in range(len(rows)):
            assert variants_to_python(array.slice(start, 2)) == expected[start : start + 2]


def test_events_of_the_specification_are_unshredded():
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


def test_nested_objects_and_arrays_are_unshredded():
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
    array = shredded(typed, [(encode({"z": True}, names), row)], dictionary(names))
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
    array = shredded(typed, [(None, value), (primitive(0), None), (None, value)]).slice(1)
    values = unshred(array).field("value").to_pylist()
    assert values[0] == primitive(0)
    assert values[1][0] == kind << 2
    assert variant_to_json(array).to_pylist() == ["null", shown]


def test_short_text_and_uuid_are_unshredded():
    assert unshred(shredded(pa.string(), [(None, "é")])).field("value").to_pylist() == [text("é")]
    identifier = uuid.uuid4()
    array = shredded(pa.null(), [(primitive(1), None)])
    assert variants_to_python(array) == [True]
    typed = pa.array([identifier.bytes], pa.binary(16))
    if hasattr(pa, "uuid"):
        typed = pa.ExtensionArray.from_storage(pa.uuid(), typed)
    array = pa.StructArray.from_arrays([pa.array([EMPTY]), typed], names=["metadata", "typed_value"])
    assert variants_to_python(array) == [identifier]


# === Invalid shredding ===


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (
            event({"event_type": "login"}, (None, "login"), MISSING),
            "'event_type' of a variant must not also be in its value",
        ),
        (event({"event_type": "login"}, MISSING, MISSING), "'event_type' of a variant must not also be in its value"),
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
        ({**event(None, MISSING, MISSING), "metadata": None}, "found a row whose metadata is null"),
    ],
)
def test_contradictory_rows_are_refused(row, reason):
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
        (pa.timestamp("ms", "UTC"), (None, 5), "timestamp"),
        (pa.month_day_nano_interval(), (None, None), "month_day_nano_interval"),
        (pa.decimal256(10, 2), (None, None), "decimal256"),
        (pa.list_(pa.int64()), (None, [1]), "groups of value and typed_value"),
        (pa.struct({"a": pa.int64()}), (None, {"a": 1}), "group of value and typed_value"),
        (pa.struct({"a": pa.struct({"b": pa.int64()})}), (None, {"a": {"b": 1}}), "fields value and typed_value"),
        (pa.struct({"a": pa.struct({"value": pa.int64()})}), (None, {"a": {"value": 1}}), "must be binary"),
    ],
)
def test_columns_outside_the_specification_are_refused(typed, row, reason):
    with pytest.raises(DataError, match=reason):
        variant_to_json(shredded(typed, [row]))


def group(**fields: pa.Array) -> pa.StructArray:
    """Return a struct array. Trailing ``_`` are dropped from names, so that a name can occur twice."""
    return pa.StructArray.from_arrays(list(fields.values()), names=[name.rstrip("_") for name in fields])


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        (group(typed_value=pa.array([1]), typed_value_=pa.array([1])), "fields value and typed_value"),
        (group(value=pa.array([b"\0"]), value_=pa.array([b"\0"])), "fields value and typed_value"),
        (group(typed_value=pa.array([1]), other=pa.array([1])), "fields value and typed_value"),
        (group(other=pa.array([1])), "fields value and typed_value"),
    ],
)
def test_field_that_is_not_a_shredded_group_is_refused(field, reason):
    array = group(metadata=pa.array([ONE_NAME]), typed_value=group(a=field))
    with pytest.raises(DataError, match=reason):
        unshred(array)


def test_shredded_field_may_not_be_repeated():
    field = group(typed_value=pa.array([1]))
    array = group(metadata=pa.array([ONE_NAME]), typed_value=group(a=field, a_=field))
    with pytest.raises(DataError, match="distinct names"):
        unshred(array)


def test_decimal_beyond_its_precision_is_refused():
    typed = pa.Array.from_buffers(pa.decimal128(9, 0), 1, [None, pa.py_buffer((10**12).to_bytes(16, "little"))])
    array = pa.StructArray.from_arrays([pa.array([EMPTY]), typed], names=["metadata", "typed_value"])
    with pytest.raises(DataError, match="precision 9"):
        unshred(array)


# === Round trip: values are shredded as specified, and unshredded ===

SCALAR = st.none() | st.integers(-(2**63), 2**63 - 1) | st.text(st.characters(codec="utf-8"), max_size=5)
OBJECTS = st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), SCALAR | st.lists(SCALAR, max_size=3), max_size=4)


@meets(objects=11, others=22)
@settings(max_examples=100)
@given(st.lists(OBJECTS | SCALAR, max_size=6))
def test_shredded_values_round_trip(values):
    met("objects", any(isinstance(value, dict) and value for value in values))
    met("others", any(not isinstance(value, dict) for value in values))
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
