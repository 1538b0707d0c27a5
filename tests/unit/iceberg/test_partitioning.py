"""Partition values: the bounds derived from them hold for every row that pyiceberg puts into the partition."""

from __future__ import annotations

import datetime
import decimal
import math
import struct
import uuid
from decimal import Decimal
from typing import Any

import hypothesis.strategies as st
import mmh3
import pytest
from hypothesis import given
from pyiceberg import conversions, transforms
from pyiceberg import types as theirs
from pyiceberg.utils.decimal import decimal_to_bytes

from delta_sharing_client.delta.data_types import DecimalType, PrimitiveType, StructField, StructType
from delta_sharing_client.delta.partition_values import parse_partition_value
from delta_sharing_client.delta.statistics import ColumnBounds
from delta_sharing_client.iceberg.avro import StoredType
from delta_sharing_client.iceberg.metadata import PartitionField, PartitionSpec
from delta_sharing_client.iceberg.partition_types import PartitionTypes, Undecoded, partition_text
from delta_sharing_client.iceberg.partitioning import (
    BoundField,
    FieldSummary,
    Source,
    bind_spec,
    bucket_of,
    equal_values,
    identity_columns,
    intersection,
    possible_buckets,
    sources,
)
from delta_sharing_client.iceberg.single_values import bounds_decoder, value_decoder
from delta_sharing_client.iceberg.transforms import Transform
from delta_sharing_client.predicates.binding import bind
from delta_sharing_client.predicates.parse import parse_filter
from delta_sharing_client.predicates.values import Clock, Day, Moment, Zone
from tests.quota import meets, met

_DECIMAL = DecimalType(38, 2)
_OLDEST, _NEWEST = -62_135_596_800_000_000, 253_402_300_799_999_999  # microseconds: years 1 to 9999


def _field(transform: str, data_type: Any) -> BoundField:
    return BoundField(0, 1000, Transform.parse(transform), Source(("c",), StructField("c", data_type)))


def _decoded(raw: Any, transform: str, data_type: Any) -> Any:
    """Return the partition value that a manifest has as ``raw``, in the Avro type that Iceberg writes."""
    spec = PartitionSpec(0, [PartitionField("p", transform, 1, field_id=1000)])
    types = PartitionTypes({0: spec}, {1: StructField("c", data_type)})
    return types.decoder(0, {"1000": _stored_as(raw)})({"1000": raw})["1000"]


def _stored_as(raw: Any) -> StoredType:
    names = {bool: "boolean", int: "long", float: "double", str: "string", bytes: "bytes"}
    return StoredType(names.get(type(raw), "null"))


# --- hashes (Iceberg, Appendix B) ---


@pytest.mark.parametrize(
    ("value", "data_type", "expected"),
    [
        (34, PrimitiveType("integer"), 2017239379),
        (34, PrimitiveType("long"), 2017239379),
        (Decimal("14.20"), DecimalType(9, 2), -500754589),
        (Day(17486), PrimitiveType("date"), -653330422),
        (Moment(1_510_871_468_000_000_000, Zone.LOCAL), PrimitiveType("timestamp_ntz"), -2047944441),
        (Moment(1_510_871_468_000_001_000, Zone.LOCAL), PrimitiveType("timestamp_ntz"), -1207196810),
        (Moment(1_510_871_468_000_001_001, Zone.UTC), PrimitiveType("timestamp_nanos"), -1207196810),
        ("iceberg", PrimitiveType("string"), 1210000089),
        (b"\0\1\2\3", PrimitiveType("binary"), -188683207),
        (Clock(81_068_000_000_000), PrimitiveType("time"), -662762989),
        ("f79c3e09-677c-4bbd-a479-3f349cb785e7", PrimitiveType("uuid"), 1488055340),
    ],
)
def test_hashes_match_the_specification(value: Any, data_type: Any, expected: int) -> None:
    assert bucket_of(value, data_type, 1 << 31) == expected & 0x7FFFFFFF


def _bucket(data: bytes, count: int) -> int:
    """Return the bucket of bytes according to the specification."""
    return (mmh3.hash(data) & 0x7FFFFFFF) % count


@meets(negative=20)
@given(st.integers(-(2**63), 2**63 - 1), st.integers(1, 1000))
def test_buckets_of_numbers_match_the_specification(value: int, count: int) -> None:
    met("negative", value < 0)
    expected = _bucket(struct.pack("<q", value), count)

    assert bucket_of(value, PrimitiveType("long"), count) == expected


@meets(negative=20)
@given(st.decimals(-(10**30), 10**30, places=2), st.integers(1, 100))
def test_buckets_of_decimals_match_the_specification(value: Decimal, count: int) -> None:
    met("negative", value < 0)
    unscaled = int(value.scaleb(2, decimal.Context(prec=60)))
    length = next(size for size in range(1, 20) if -(1 << (8 * size - 1)) <= unscaled < 1 << (8 * size - 1))
    expected = _bucket(unscaled.to_bytes(length, "big", signed=True), count)

    assert bucket_of(value, _DECIMAL, count) == expected


@meets(long_characters=20)
@given(st.text(st.characters(exclude_categories=("Cs",))), st.integers(1, 100))
def test_buckets_of_strings_match_the_specification(value: str, count: int) -> None:
    met("long_characters", not value.isascii())
    expected = _bucket(value.encode(), count)

    assert bucket_of(value, PrimitiveType("string"), count) == expected


@pytest.mark.parametrize(
    ("value", "data_type"),
    [
        (1.5, PrimitiveType("long")),
        (True, PrimitiveType("long")),
        (2**70, PrimitiveType("long")),
        (Decimal("1.234"), DecimalType(9, 2)),
        ("a", PrimitiveType("binary")),
        (1.0, PrimitiveType("double")),
        (Day(1), PrimitiveType("timestamp")),
        ("F79C3E09-677C-4BBD-A479-3F349CB785E7", PrimitiveType("uuid")),
        ("a text", PrimitiveType("uuid")),
    ],
)
def test_constants_that_do_not_fit_the_type_have_no_bucket(value: Any, data_type: Any) -> None:
    assert bucket_of(value, data_type, 16) is None


# --- bounds of the source column ---


def _check_inside(field: BoundField, raw: Any, value: Any) -> None:
    name, width = field.transform
    transform = f"{name}[{width}]" if width else name
    bounds = field.bounds(_decoded(raw, transform, field.source.field.type), 3)
    if bounds is None:
        return
    met("bounded")
    assert bounds.null_count == 0
    assert bounds.lower <= value
    assert bounds.upper is None or bounds.upper >= value


@meets(bounded=50)
@given(st.integers(_OLDEST, _NEWEST), st.sampled_from(["year", "month", "day", "hour", "identity"]))
def test_a_timestamp_is_inside_the_bounds_of_its_partition(micros: int, name: str) -> None:
    raw = _transformed(name, theirs.TimestampType(), micros)

    _check_inside(_field(name, PrimitiveType("timestamp_ntz")), raw, micros * 1000)
    _check_inside(_field(name, PrimitiveType("timestamp")), raw, micros * 1000)


@meets(bounded=50)
@given(st.integers(_OLDEST // 86_400_000_000, _NEWEST // 86_400_000_000), st.sampled_from(["year", "month", "day"]))
def test_a_date_is_inside_the_bounds_of_its_partition(days: int, name: str) -> None:
    raw = _transformed(name, theirs.DateType(), days)

    _check_inside(_field(name, PrimitiveType("date")), raw, days)


@meets(bounded=50)
@given(st.integers(-(2**31), 2**31 - 1), st.integers(1, 10_000))
def test_a_number_is_inside_the_bounds_of_its_partition(value: int, width: int) -> None:
    raw = transforms.TruncateTransform(width).transform(theirs.IntegerType())(value)

    for name in ("integer", "long"):
        bounds = _field(f"truncate[{width}]", PrimitiveType(name)).bounds(raw, 3)
        assert bounds is not None
        assert (bounds.lower, bounds.upper) == (raw, raw + width - 1)
    _check_inside(_field(f"truncate[{width}]", PrimitiveType("integer")), raw, value)


@meets(bounded=50)
@given(st.decimals(-(10**20), 10**20, places=2), st.integers(1, 10_000))
def test_a_decimal_is_inside_the_bounds_of_its_partition(value: Decimal, width: int) -> None:
    raw = transforms.TruncateTransform(width).transform(theirs.DecimalType(38, 2))(value)

    _check_inside(_field(f"truncate[{width}]", _DECIMAL), decimal_to_bytes(raw), value)


@meets(bounded=50)
@given(st.text(st.characters(exclude_categories=("Cs",))), st.integers(1, 6))
def test_a_string_is_inside_the_bounds_of_its_partition(value: str, width: int) -> None:
    raw = transforms.TruncateTransform(width).transform(theirs.StringType())(value)

    _check_inside(_field(f"truncate[{width}]", PrimitiveType("string")), raw, value)


@meets(bounded=50)
@given(st.binary(), st.integers(1, 6))
def test_bytes_are_inside_the_bounds_of_their_partition(value: bytes, width: int) -> None:
    raw = transforms.TruncateTransform(width).transform(theirs.BinaryType())(value)

    _check_inside(_field(f"truncate[{width}]", PrimitiveType("binary")), raw, value)


def _transformed(name: str, source: Any, value: int) -> Any:
    result = transforms.parse_transform(name).transform(source)(value)
    return result if isinstance(result, int) or result is None else (result - datetime.date(1970, 1, 1)).days


def test_day_partitions_after_1970_have_exact_bounds() -> None:
    bounds = _field("day", PrimitiveType("date")).bounds(19_000, 1)

    assert bounds is not None
    assert (bounds.lower, bounds.upper) == (19_000, 19_000)


@pytest.mark.parametrize("name", ["year", "month", "day", "hour"])
def test_bounds_before_1970_allow_values_that_are_one_too_high(name: str) -> None:
    # Iceberg's Java writers rounded toward zero before 0.12.
    exact = _field(name, PrimitiveType("timestamp")).bounds(-3, 1)
    wide = _field(name, PrimitiveType("timestamp")).bounds(-2, 1)

    assert exact is not None
    assert wide is not None
    assert wide.lower < exact.upper


@pytest.mark.parametrize("raw", [2**62, -(2**62)])
def test_partition_values_out_of_range_give_no_bounds(raw: int) -> None:
    assert _field("year", PrimitiveType("date")).bounds(raw, 1) is None


@pytest.mark.parametrize("name", ["bucket[4]", "void", "zorder", "truncate[0]", "truncate[x]", "bucket"])
def test_unordered_or_unknown_transforms_give_no_bounds(name: str) -> None:
    assert _field(name, PrimitiveType("long")).bounds(3, 1) is None
    assert _field(name, PrimitiveType("long")).bounds(None, 1) is None


def test_null_partition_value_means_only_null_rows() -> None:
    bounds = _field("day", PrimitiveType("date")).bounds(None, 5)

    assert bounds is not None
    assert (bounds.null_count, bounds.row_count) == (5, 5)


def test_nan_is_not_a_bound() -> None:
    assert _field("identity", PrimitiveType("double")).bounds(math.nan, 5) is None


@pytest.mark.parametrize("raw", ["text", b"bytes", 1.5, True])
def test_values_of_a_wrong_type_give_no_bounds(raw: Any) -> None:
    for name, data_type in (("identity", PrimitiveType("long")), ("day", PrimitiveType("date"))):
        value = _decoded(raw, name, data_type)
        assert value == Undecoded(raw)
        assert _field(name, data_type).bounds(value, 1) is None


# --- manifests ---


@meets(bounded=50)
@given(st.lists(st.integers(-5000, 25_000), min_size=1), st.sampled_from(["year", "month", "day", "identity"]))
def test_dates_are_inside_the_summary_of_their_manifest(days: list[int], name: str) -> None:
    raws = [_transformed(name, theirs.DateType(), one) for one in days]
    lower, upper = struct.pack("<i", min(raws)), struct.pack("<i", max(raws))

    bounds = _field(name, PrimitiveType("date")).summary_bounds(FieldSummary(False, lower, upper))

    assert bounds is not None
    met("bounded")
    assert bounds.null_count == 0
    assert bounds.lower <= min(days)
    assert bounds.upper >= max(days)


def test_summaries_without_bounds_give_no_bounds() -> None:
    field = _field("identity", PrimitiveType("long"))

    assert field.summary_bounds(FieldSummary(True, None, None)) is None
    assert field.summary_bounds(FieldSummary(False, b"123", b"456")) is None


# --- filters ---

_SCHEMA = StructType(
    (
        StructField("a", PrimitiveType("long"), metadata={"delta.columnMapping.id": 1}),
        StructField("b", PrimitiveType("string"), metadata={"delta.columnMapping.id": 2}),
        StructField("s", StructType((StructField("c", PrimitiveType("long"), True, {"delta.columnMapping.id": 4}),)),
                    metadata={"delta.columnMapping.id": 3}),
    )
)  # fmt: skip


def _bound(text: str) -> Any:
    from delta_sharing_client.delta.schema import to_arrow_schema

    predicate = parse_filter(text)
    assert predicate is not None
    return bind(predicate, to_arrow_schema(_SCHEMA))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 1", {1}),
        ("a IN (1, 2, NULL)", {1, 2}),
        ("a = 1 OR a = 2", {1, 2}),
        ("a = 1 AND b = 'x'", {1}),
        ("a IN (1, 2) AND a IN (2, 3)", {2}),
        ("a = 1 OR b = 'x'", None),
        ("a > 1", None),
        ("NOT a = 1", None),
        ("a <> 1", None),
        ("a IS NULL", None),
        ("a <=> 1", {1}),
        ("a <=> NULL", None),
        ("s.c = 3", None),
        ("a = 1 OR (a = 2 AND b > 'x')", {1, 2}),
        ("a + 1 = 2", None),
    ],
)
def test_equality_filters_limit_a_column_to_their_values(text: str, expected: set[int] | None) -> None:
    result = equal_values(_bound(text), ("a",))

    assert result == (None if expected is None else frozenset(expected))


def test_equality_filters_limit_the_buckets() -> None:
    spec = PartitionSpec(0, [PartitionField("p", "bucket[8]", 1, field_id=1000), PartitionField("q", "day", 1)])
    fields = bind_spec(spec, sources(_SCHEMA))

    assert possible_buckets(_bound("a IN (34, 35)"), fields) == {
        1000: {bucket_of(34, PrimitiveType("long"), 8), bucket_of(35, PrimitiveType("long"), 8)}
    }
    assert possible_buckets(_bound("a > 34"), fields) == {}


def test_partition_specs_are_bound_by_field_id() -> None:
    spec = PartitionSpec(
        3,
        [
            PartitionField("gone", "identity", 99),
            PartitionField("n", "identity", 4),
            PartitionField("b", "identity", 2),
        ],
    )

    nested, own = bind_spec(spec, sources(_SCHEMA))

    assert (nested.source.path, nested.field_id, nested.place) == (("s", "c"), 1001, 1)
    assert (own.source.path, own.field_id) == (("b",), 1002)
    assert [field.name for field in identity_columns([[nested, own]])] == ["b"]


# --- partition values as strings ---

_TEXTS = st.one_of(
    st.tuples(st.integers(-(2**63), 2**63 - 1), st.just(PrimitiveType("long"))),
    st.tuples(st.booleans(), st.just(PrimitiveType("boolean"))),
    st.tuples(st.floats(width=32), st.just(PrimitiveType("float"))),
    st.tuples(st.floats(), st.just(PrimitiveType("double"))),
    st.tuples(st.text(st.characters(exclude_categories=("Cs",)), min_size=1), st.just(PrimitiveType("string"))),
    st.tuples(st.binary(min_size=1), st.just(PrimitiveType("binary"))),
    st.tuples(st.integers(-719_528, 2_932_896), st.just(PrimitiveType("date"))),
    st.tuples(st.integers(0, 86_400_000_000 - 1), st.just(PrimitiveType("time"))),
    st.tuples(st.uuids().map(lambda found: found.bytes), st.just(PrimitiveType("uuid"))),
    st.tuples(
        st.integers(_OLDEST, _NEWEST), st.sampled_from([PrimitiveType("timestamp"), PrimitiveType("timestamp_ntz")])
    ),
    st.tuples(st.integers(-(2**62), 2**62), st.just(PrimitiveType("timestamp_nanos"))),
)


@meets(floating=10)
@given(_TEXTS)
def test_partition_value_round_trips_through_text(pair: tuple[Any, Any]) -> None:
    met("floating", isinstance(pair[0], float))
    raw, data_type = pair

    text = partition_text(_decoded(raw, "identity", data_type), data_type)
    found = parse_partition_value(text, data_type)

    assert text
    if isinstance(raw, float):
        assert struct.pack("<d", found) == struct.pack("<d", raw) or (math.isnan(raw) and math.isnan(found))
    else:
        assert found == (str(uuid.UUID(bytes=raw)) if data_type == PrimitiveType("uuid") else raw)


@meets(negative=20)
@given(st.decimals(-(10**30), 10**30, places=2))
def test_decimal_round_trips_through_partition_text(value: Decimal) -> None:
    met("negative", value < 0)
    text = partition_text(_decoded(decimal_to_bytes(value), "identity", _DECIMAL), _DECIMAL)

    assert parse_partition_value(text, _DECIMAL) == value


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (-800_000, "date"),
        (2**62, "timestamp"),
        ("x", "long"),
        (None, "long"),
        (86_400_000_000, "time"),
        (-1, "time"),
        (b"short", "uuid"),
        ("0" * 16, "uuid"),
    ],
)
def test_invalid_partition_values_have_no_text(raw: Any, kind: str) -> None:
    data_type = PrimitiveType(kind)

    assert partition_text(_decoded(raw, "identity", data_type), data_type) is None


def test_empty_text_and_bytes_are_not_null() -> None:
    assert partition_text("", PrimitiveType("string")) == ""
    assert partition_text(b"", PrimitiveType("binary")) == ""
    assert parse_partition_value("", PrimitiveType("string"), empty_is_null=False) == ""
    assert parse_partition_value("", PrimitiveType("binary"), empty_is_null=False) == b""


# --- bounds of columns, as bytes (Iceberg, Appendix D) ---

_BOUNDS = st.one_of(
    st.tuples(st.just("integer"), st.just(theirs.IntegerType()), st.integers(-(2**31), 2**31 - 1)),
    st.tuples(st.just("long"), st.just(theirs.LongType()), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just("long"), st.just(theirs.IntegerType()), st.integers(-(2**31), 2**31 - 1)),
    st.tuples(st.just("float"), st.just(theirs.FloatType()), st.floats(width=32, allow_nan=False)),
    st.tuples(st.just("double"), st.just(theirs.DoubleType()), st.floats(allow_nan=False)),
    st.tuples(st.just("double"), st.just(theirs.FloatType()), st.floats(width=32, allow_nan=False)),
    st.tuples(st.just("boolean"), st.just(theirs.BooleanType()), st.booleans()),
    st.tuples(st.just("date"), st.just(theirs.DateType()), st.integers(-(2**31), 2**31 - 1)),
    st.tuples(st.just("string"), st.just(theirs.StringType()), st.text(st.characters(exclude_categories=("Cs",)))),
    st.tuples(st.just("binary"), st.just(theirs.BinaryType()), st.binary()),
    st.tuples(st.just("uuid"), st.just(theirs.UUIDType()), st.uuids()),
)


@meets(widened=5)
@given(_BOUNDS)
def test_bounds_that_pyiceberg_writes_are_read(drawn: tuple[str, Any, Any]) -> None:
    met("widened", drawn[0] in ("long", "double") and drawn[1] in (theirs.IntegerType(), theirs.FloatType()))
    kind, written_as, value = drawn
    decode = value_decoder(PrimitiveType(kind))

    assert decode is not None
    assert decode(conversions.to_bytes(written_as, value)) == (str(value) if kind == "uuid" else value)


# Some UUIDs have the highest bit of the first half set, some that of the second half, and some are close together.
_UUIDS = st.lists(
    st.builds(
        lambda high, low, last: uuid.UUID(int=high << 127 | low << 63 | last),
        *(st.booleans(), st.booleans(), st.integers(0, 3)),
    )
    | st.uuids(),
    min_size=1,
    max_size=4,
)


def _signed(found: uuid.UUID) -> tuple[int, ...]:
    """Return a key with the order of ``java.util.UUID``, which compares both halves as signed numbers."""
    return struct.unpack(">qq", found.bytes)


@meets(bounded=10, differs=20)
@given(_UUIDS, st.booleans())
def test_uuid_bounds_hold_in_both_orders_that_writers_use(values: list[uuid.UUID], is_signed: bool) -> None:
    key = _signed if is_signed else (lambda found: found.bytes)
    least, greatest = min(values, key=key), max(values, key=key)
    decode = bounds_decoder(PrimitiveType("uuid"))
    assert decode is not None

    lower, upper = decode(least.bytes, greatest.bytes)

    met("differs", min(values, key=_signed) != min(values))
    met("bounded", lower is not None and upper is not None and lower < upper)
    for value in values:
        assert lower is None or lower <= str(value)
        assert upper is None or upper >= str(value)
    assert decode(least.bytes, None) == decode(None, least.bytes) == decode(b"short", least.bytes) == (None, None)
    assert decode(least.bytes, least.bytes) == (str(least), str(least))


@meets(negative=20)
@given(st.integers(-(2**55), 2**55))
def test_bounds_of_times_are_decoded_to_nanoseconds(count: int) -> None:
    met("negative", count < 0)
    micros, nanos = value_decoder(PrimitiveType("timestamp")), value_decoder(PrimitiveType("timestamp_nanos_ntz"))
    data = conversions.to_bytes(theirs.TimestamptzType(), count)

    assert micros is not None
    assert nanos is not None
    assert micros(data) == count * 1000
    assert nanos(data) == count
    assert micros(struct.pack("<i", 2)) == 2 * 86_400 * 10**9
    clock = value_decoder(PrimitiveType("time"))
    assert clock is not None
    # Dates are never promoted to times of day.
    assert (clock(data), clock(struct.pack("<i", 2))) == (count * 1000, None)


@meets(negative=20)
@given(st.decimals(-(10**30), 10**30, places=2))
def test_bounds_of_decimals_are_exact(value: Decimal) -> None:
    met("negative", value < 0)
    decode = value_decoder(_DECIMAL)

    assert decode is not None
    with decimal.localcontext(prec=40):
        assert decode(conversions.to_bytes(theirs.DecimalType(38, 2), value)) == value


@pytest.mark.parametrize("kind", ["integer", "long", "float", "double", "date", "timestamp", "boolean", "uuid"])
def test_malformed_bounds_are_unknown(kind: str) -> None:
    decode = value_decoder(PrimitiveType(kind))

    assert decode is not None
    assert decode(b"") is None
    assert decode(b"12345") is None


def test_nan_and_invalid_utf8_are_unknown() -> None:
    double, text = value_decoder(PrimitiveType("double")), value_decoder(PrimitiveType("string"))

    assert double is not None
    assert text is not None
    assert double(struct.pack("<d", math.nan)) is None
    assert text(b"\xff\xfe") is None


@pytest.mark.parametrize("kind", ["variant", "geometry", "void"])
def test_bounds_of_types_without_an_order_are_not_decoded(kind: str) -> None:
    assert value_decoder(PrimitiveType(kind)) is None


@pytest.mark.parametrize(("lower", "upper"), [(None, None), (b"\1\0\0\0", None), (None, b"\2\0\0\0")])
def test_summary_with_one_bound_implies_nothing(lower: bytes | None, upper: bytes | None) -> None:
    field = _field("identity", PrimitiveType("integer"))
    assert field.summary_bounds(FieldSummary(False, lower, upper)) is None
    whole = field.summary_bounds(FieldSummary(False, lower or b"\1\0\0\0", upper or b"\2\0\0\0"))
    assert whole is not None
    assert (whole.lower, whole.upper, whole.null_count) == (1, 2, 0)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (None, None, None),
        (ColumnBounds(1, 5, 0, 9), None, ColumnBounds(1, 5, 0, 9)),
        (None, ColumnBounds(1, 5, 0, 9), ColumnBounds(1, 5, 0, 9)),
        (ColumnBounds(1, 5, 0, 9), ColumnBounds(2, 7, 0, None), ColumnBounds(2, 5, 0, 9)),
        (ColumnBounds(1, None, 3, None), ColumnBounds(None, 7, None, 9), ColumnBounds(1, 7, 3, 9)),
        # Two statements that contradict each other state nothing.
        (ColumnBounds(1, 5, 0, 9), ColumnBounds(1, 5, 3, 9), ColumnBounds(1, 5, None, 9)),
    ],
)
def test_bounds_of_the_same_rows_are_combined(one: Any, other: Any, expected: Any) -> None:
    assert intersection(one, other) == intersection(other, one) == expected
