from __future__ import annotations

import datetime
import json
import math
import struct
import zoneinfo
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_sharing_client.delta.actions import AddFile, DeletionVectorDescriptor
from delta_sharing_client.delta.column_mapping import ColumnMappingMode
from delta_sharing_client.delta.data_types import (
    PHYSICAL_NAME_KEY,
    ArrayType,
    DataType,
    DecimalType,
    PrimitiveType,
    StructField,
    StructType,
)
from delta_sharing_client.delta.statistics import ColumnBounds, FileStatistics, StatisticsReader, num_records
from tests.quota import meets, met


def field(name: str, data_type: str | DataType, **metadata: object) -> StructField:
    return StructField(name, PrimitiveType(data_type) if isinstance(data_type, str) else data_type, True, metadata)


def read(
    data_type: str | DataType | StructField, stats: object, *, deleted: int | None = None, name: str = "c"
) -> FileStatistics:
    column = data_type if isinstance(data_type, StructField) else field(name, data_type)
    reader = StatisticsReader(StructType((column,)), ColumnMappingMode.NONE, [], [(column.name,)])
    vector = None if deleted is None else DeletionVectorDescriptor("p", "x", 40, deleted, 1)
    text = stats if isinstance(stats, str) or stats is None else json.dumps(stats)
    return reader.read(AddFile("f", stats=text, deletion_vector=vector))


def bounds(data_type: str | DataType | StructField, low: object, high: object, **more: object) -> ColumnBounds | None:
    return read(
        data_type, {"numRecords": 10, "minValues": {"c": low}, "maxValues": {"c": high}, "nullCount": {"c": 0}, **more}
    ).bounds(("c",))


DAY = 86_400_000_000_000


@pytest.mark.parametrize(
    ("data_type", "low", "high", "lower", "upper"),
    [
        ("long", -(2**63), 2**63 - 1, -(2**63), 2**63 - 1),
        ("byte", 1, 2, 1, 2),
        ("string", "a", "b", "a", "b"),
        ("string", "", "é", "", "é"),
        ("string", "x" * 32, "x" * 32, "x" * 32, "x" * 31 + "y"),
        ("string", "x", "x" * 31 + "\ud7ff", "x", "x" * 31 + "\ue000"),
        ("string", "x", "x" * 32 + "\U0010ffff", "x", "x" * 31 + "y"),
        ("string", "x", "\U0010ffff" * 32, "x", None),
        ("string", "x", "x" * 31, "x", "x" * 31),
        ("string", "x", "\U0001f600" * 15 + "x", "x", "\U0001f600" * 15 + "x"),
        ("string", "x", "\U0001f600" * 16, "x", "\U0001f600" * 15 + "\U0001f601"),
        ("string", "abcdefgh", "abcdefgh\ufffd", "abcdefgh", "abcdefgi"),
        ("string", "a", "ab\uffff\ufffd\ufffd", "a", "ab\U00010000"),
        ("string", "a", "ab?\ufffd", "a", "ac"),
        ("string", "x", "?\ufffd", "x", None),
        ("string", "", "\ufffd", "", None),
        ("string", "a", "ab\x7f", "a", "ab\x7f"),
        ("string", "a", "ab\U0010ffff", "a", "ab\U0010ffff"),
        ("string", "x", "x\ufffdx", "x", "x\ufffdx"),
        ("boolean", False, True, False, True),
        ("date", "1969-12-31", "1970-01-02", -1, 1),
        ("timestamp", "1970-01-01T00:00:01.000Z", "1970-01-01T00:00:02.000Z", 1_000_000_000, 2_000_999_999),
        (
            "timestamp",
            "1973-01-01T00:00:00.000-08:00",
            "1973-01-01T00:00:00-08:00",
            (3 * 365 + 1) * DAY + 28_800_000_000_000,
            (3 * 365 + 1) * DAY + 28_800_000_999_999,
        ),
        ("timestamp", "1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00.000001Z", -1_000_000, 1000),
        ("timestamp_ntz", "1970-01-01T00:00:01.000", "1970-01-01 00:00:01", 1_000_000_000, 1_000_999_999),
        ("timestamp_ntz", "1970-01-02", "1970-01-03", DAY, 2 * DAY + 999_999),
        ("timestamp_nanos", "1970-01-01T00:00:00.001Z", "1970-01-01T00:00:00.002000001Z", 1_000_000, 2_000_001),
        ("timestamp_nanos", "1970-01-01T01:00:00+01:00:00", "1970-01-01T00:00:00.001Z", 0, 1_999_999),
        ("timestamp_nanos", "1970-01-01T00:00:00.000001Z", "1970-01-01T00:00:00.000002Z", 1_000, 2_999),
        ("timestamp_nanos_ntz", "1970-01-01 00:00:00.000001", "1970-01-01 00:00:00.001001", 1_000, 1_001_999),
        ("timestamp", "1970-01-01T00:00:00.000001Z", "1970-01-01T00:00:00.000002Z", 1_000, 2_000),
        ("timestamp_nanos", "1970-01-01 00:00:00", "1970-01-01 00:00:01", None, None),
        ("timestamp_nanos_ntz", "1970-01-01 00:00:00.000000001", "1970-01-01T00:00:00.123", 1, 123_999_999),
        ("timestamp_nanos_ntz", "1970-01-01T00:00:00Z", "1970-01-01T00:00:00.5Z", None, None),
        ("geometry(OGC:CRS84)", "POINT(1 2)", "POINT(3 4)", None, None),
        ("geography(OGC:CRS84, spherical)", "POINT(1 2)", "POINT(3 4)", None, None),
        (DecimalType(5, 2), 1.25, "2.50", Decimal("1.25"), Decimal("2.50")),
        (DecimalType(15, 0), 123456789012345, 123456789012345, Decimal(123456789012345), Decimal(123456789012345)),
    ],
)
def test_bounds_have_the_comparable_type_of_the_column(data_type, low, high, lower, upper):
    column_bounds = bounds(data_type, low, high)
    assert column_bounds == ColumnBounds(lower, upper, 0, 10)
    assert type(column_bounds.lower) is type(lower)


@pytest.mark.parametrize(
    ("data_type", "value"),
    [
        ("long", "5"),
        ("long", 5.5),
        ("long", 5.0),
        ("long", True),
        ("long", None),
        ("long", {"x": 1}),
        ("long", [1]),
        ("string", 5),
        ("string", None),
        ("boolean", "true"),
        ("boolean", 1),
        ("date", "2020-13-01"),
        ("date", "10000-01-01"),
        ("date", 5),
        ("timestamp", "1970-01-01T00:00:01.000"),
        ("timestamp", "1970-01-01"),
        ("timestamp", "12000-01-01T00:00:00Z"),
        ("timestamp", "1970-01-01T00:00:01.0000001Z"),
        ("timestamp_ntz", "1970-01-01T00:00:01.000Z"),
        ("timestamp_ntz", "1970-13-01"),
        ("double", "abc"),
        ("double", "NaN"),
        ("float", 1e300),
        ("float", True),
        ("binary", "abc"),
        ("variant", "0rJlc5f$EczEEx[cTw04cUW9st(>6d00"),
        (DecimalType(5, 2), "NaN"),
        (DecimalType(5, 2), "x"),
        (DecimalType(5, 2), "1E999999999"),
        (ArrayType(PrimitiveType("long")), 5),
        (field("c", "string", __COLLATIONS={"c": "ICU.de_DE"}), "a"),
    ],
)
def test_values_of_the_wrong_type_are_unknown_bounds(data_type, value):
    assert bounds(data_type, value, value) == ColumnBounds(None, None, 0, 10)


def test_unreadable_bound_does_not_affect_the_other():
    assert bounds("long", 1, "x") == ColumnBounds(1, None, 0, 10)
    for stats, expected in (({"minValues": {"c": 1}}, (1, None)), ({"maxValues": {"c": 1}}, (None, 1))):
        assert read("long", {"numRecords": 10, **stats}).bounds(("c",)) == ColumnBounds(*expected, None, 10)


@pytest.mark.parametrize(
    ("data_type", "low", "high"),
    [
        ("long", 2, 1),
        ("boolean", True, False),
        ("string", "b", "a"),
        ("date", "2024-01-02", "2024-01-01"),
        ("timestamp", "2024-01-01T00:00:00.001Z", "2024-01-01T00:00:00.000Z"),
        ("timestamp_ntz", "2024-01-01T00:00:00.001", "2024-01-01T00:00:00.000"),
        ("timestamp_nanos", "2024-01-01T00:00:00.001000Z", "2024-01-01T00:00:00.000Z"),
        ("double", 2.5, -2.5),
        ("double", "Infinity", 1),
        ("float", 0.25, 0.125),
        (DecimalType(5, 2), "1.25", "1.24"),
        (DecimalType(38, 2), 1.25, -1.25),
    ],
)
def test_bounds_in_the_wrong_order_are_unknown(data_type, low, high):
    """``tests/unit/delta/test_value_bounds.py`` tests the same for bounds from footers."""
    assert bounds(data_type, low, high) == ColumnBounds(None, None, 0, 10)
    assert bounds(data_type, high, low) != ColumnBounds(None, None, 0, 10)


def test_bounds_in_the_wrong_order_inside_a_struct_are_unknown():
    column = field("A", StructType((field("b", "long"), field("c", "long"))))
    reader = StatisticsReader(StructType((column,)), ColumnMappingMode.NONE, [], [("A", "b"), ("A", "c")])
    low, high = {"A": {"b": 2, "c": 1}}, {"A": {"b": 1, "c": 2}}
    statistics = reader.read(AddFile("f", stats=json.dumps({"numRecords": 3, "minValues": low, "maxValues": high})))
    assert statistics.bounds(("A", "b")) is None
    assert statistics.bounds(("A", "c")) == ColumnBounds(1, 2, None, 3)


# === Floating point ===


def test_bounds_may_be_zeros_of_different_signs():
    for low, high in ((0.0, -0.0), (-0.0, 0.0)):
        zeros = bounds("double", low, high)
        assert zeros.lower == zeros.upper_without_nan == 0


def test_floats_may_be_nan_and_so_have_no_upper_bound():
    assert bounds("double", 1.5, 2.5) == ColumnBounds(1.5, None, 0, 10, 2.5)
    assert bounds("double", "-Infinity", "Infinity") == ColumnBounds(-math.inf, None, 0, 10, math.inf)
    assert bounds("double", 1, "NaN") == ColumnBounds(1.0, None, 0, 10)


@meets(inexact=17, negative=7)
@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_float_bounds_hold_for_the_shortest_text(value):
    shortest = json.loads(repr(float(f"{value:.9g}")))
    found = bounds("float", shortest, shortest)
    met("inexact", shortest != value)
    met("negative", value < 0)
    assert found.lower <= value <= found.upper_without_nan


def test_float_widened_to_double_covers_the_written_float():
    (written,) = struct.unpack("<f", struct.pack("<f", 3.4))
    assert written > 3.4
    column = field("c", "double", **{"delta.typeChanges": [{"fromType": "float", "toType": "double"}]})
    widened = bounds(column, 3.4, 3.4)
    assert (widened.lower, widened.upper_without_nan) == (3.4, written)
    widened = bounds(column, -3.4, -3.4)
    assert (widened.lower, widened.upper_without_nan) == (-written, -3.4)
    assert bounds(column, "NaN", 3.4) == ColumnBounds(None, None, 0, 10, written)


def test_doubles_not_widened_from_floats_have_exact_bounds():
    for changes in ([{"fromType": "integer", "toType": "double"}], ["float"], "float", None):
        exact = bounds(field("c", "double", **{"delta.typeChanges": changes}), 3.4, 3.4)
        assert (exact.lower, exact.upper_without_nan) == (3.4, 3.4)


def test_doubles_beyond_the_float_range_have_exact_bounds():
    column = field("c", "double", **{"delta.typeChanges": [{"fromType": "float", "toType": "double"}]})
    exact = bounds(column, -1e300, 1e300)
    assert (exact.lower, exact.upper_without_nan) == (-1e300, 1e300)
    assert bounds(column, None, None) == ColumnBounds(None, None, 0, 10)


# === Truncated bounds ===


@meets(cut=22, wide=22)
@given(st.lists(st.text(max_size=40) | st.text(min_size=33, max_size=40), min_size=1, max_size=5))
def test_text_bounds_hold_for_values_cut_at_32_characters(values):
    values = [value for value in values if not any("\ud800" <= c <= "\udfff" for c in value)] or [""]
    met("cut", any(len(value) > 32 for value in values))
    met("wide", not "".join(values).isascii())
    found = bounds("string", min(values)[:32], max(values)[:32])
    for value in values:
        assert found.lower <= value
        assert found.upper is None or value <= found.upper


def java(text: str) -> list[int]:
    """Return the UTF-16 code units of a text."""
    return list(memoryview(text.encode("utf-16-le")).cast("H"))


def stored(units: list[int]) -> str:
    """Return code units as a writer stores them in UTF-8, which makes half of a surrogate pair a question mark."""
    text = b"".join(unit.to_bytes(2, "little") for unit in units).decode("utf-16-le", "surrogatepass")
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass").encode("utf-8", "replace").decode()


def maximum_before_3_3(text: str, length: int) -> str:
    """Return a maximum as Delta for Spark before 3.3 truncated it."""
    units = java(text)
    if len(units) <= length:
        return text
    kept = length
    while kept < len(units) and units[kept] >= 0xFFFD:
        kept += 1
    return stored([*units[:kept], 0xFFFD])


def maximum_since_3_3(text: str, length: int) -> str | None:
    """Return a maximum as truncated by Delta for Spark 3.3 and later: whole characters, and one above the next one."""
    units = java(text)
    if len(units) <= length:
        return text
    kept = length + (0xD800 <= units[length - 1] < 0xDC00)
    while kept <= 2 * length:
        if kept >= len(units):
            return text
        if units[kept : kept + 2] != java("\U0010ffff"):
            return stored(units[:kept]) + ("\x7f" if units[kept] < 0x7F else "\U0010ffff")
        kept += 2
    return None


@meets(cut=23, marked=7, half=1, above=2)
@given(
    st.lists(st.text("ab\x7f?\ud7ff\uffff\ufffd\U0001f600\U0010ffff", max_size=12), min_size=1, max_size=4),
    st.integers(1, 10),
    st.sampled_from([maximum_before_3_3, maximum_since_3_3]),
)
def test_text_bounds_hold_for_values_cut_at_any_length(values, length, maximum):
    high = maximum(max(values), length)
    met("cut", high != max(values))
    met("marked", high is not None and high != max(values) and high.endswith("\ufffd"))
    met("half", high is not None and high.endswith("?\ufffd"))
    met("above", maximum is maximum_before_3_3 and high < max(values))
    found = bounds("string", stored(java(min(values))[:length]), high)
    for value in values:
        assert found.lower is None or found.lower <= value
        assert found.upper is None or value <= found.upper


@meets(cut=23, past=3)
@given(st.lists(st.datetimes(datetime.datetime(1800, 1, 1)), min_size=1, max_size=5))
def test_timestamp_bounds_hold_for_values_cut_to_milliseconds(values):
    met("cut", any(value.microsecond % 1000 for value in values))
    met("past", any(value.year < 1970 for value in values))
    epoch = datetime.datetime(1970, 1, 1)

    def cut(moment: datetime.datetime) -> str:
        return moment.isoformat(timespec="milliseconds")

    for data_type, zone in (("timestamp", "Z"), ("timestamp_ntz", "")):
        found = bounds(data_type, cut(min(values)) + zone, cut(max(values)) + zone)
        for value in values:
            nanos = (value - epoch) // datetime.timedelta(microseconds=1) * 1000
            assert found.lower <= nanos <= found.upper


SECOND = 1_000_000_000
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def nanos_of(moment: datetime.datetime) -> int:
    return (moment - EPOCH) // datetime.timedelta(microseconds=1) * 1000


def text_of_spark_3(moment: datetime.datetime) -> str:
    """Return a timestamp as Delta for Spark before 4.0 wrote it: no seconds in the offset, and Z for zero minutes."""
    minutes = abs(moment.utcoffset()) // datetime.timedelta(minutes=1)
    sign = "-" if moment.utcoffset() < datetime.timedelta() else "+"
    zone = f"{sign}{minutes // 60:02}:{minutes % 60:02}" if minutes else "Z"
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + zone


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(3208, "+00:53"), (-17762, "-04:56"), (-2670, "-00:44"), (-60, "-00:01"), (-52, "Z"), (59, "Z"), (0, "Z")],
)
def test_text_of_spark_3_has_its_offset_in_javas_format(seconds, text):
    # The expected values come from Java's DateTimeFormatter.ofPattern("XXX").
    zone = datetime.timezone(datetime.timedelta(seconds=seconds))
    assert text_of_spark_3(datetime.datetime(1900, 1, 1, tzinfo=zone)) == "1900-01-01T00:00:00.000" + text


def zones_and_moments():
    sampled = [datetime.datetime(year, 1, 1, 1, 1, 1, 234_567) for year in range(1800, 1980, 10)]
    for key in sorted(zoneinfo.available_timezones()):
        zone = zoneinfo.ZoneInfo(key)
        for moment in (*sampled, datetime.datetime(1972, 1, 6, 23, 59, 59, 999_999)):
            yield moment.replace(tzinfo=zone)
    # An offset from versions of the time zone database before 2020b.
    yield datetime.datetime(1917, 12, 31, 23, 59, 59, 999_999, datetime.timezone(datetime.timedelta(seconds=-52)))


@pytest.mark.parametrize("data_type", ["timestamp", "timestamp_nanos"])
def test_timestamp_bounds_hold_without_offset_seconds(data_type):
    reader = StatisticsReader(StructType((field("c", data_type),)), ColumnMappingMode.NONE, [], [("c",)])
    with_seconds = 0
    for moment in zones_and_moments():
        end = {"c": text_of_spark_3(moment)}
        moment_bounds = reader.read(AddFile("f", stats=json.dumps({"minValues": end, "maxValues": end}))).bounds(("c",))
        assert moment_bounds.lower <= nanos_of(moment) <= moment_bounds.upper, moment
        assert moment_bounds.upper - moment_bounds.lower <= 2 * 59 * SECOND + 999_999
        with_seconds += moment.utcoffset() % datetime.timedelta(minutes=1) > datetime.timedelta()
    assert with_seconds > 1000


@pytest.mark.parametrize("data_type", ["timestamp", "timestamp_nanos"])
@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("1972-01-07T23:59:59.999+00:00", 59),
        ("1972-01-08T00:00:00.000+00:00", 0),
        ("1972-01-08T01:00:00.000+01:00", 0),
        ("1972-01-08T00:00:00.000+00:01", 59),
        ("1972-01-07T23:59:59.999+0000", 59),
        ("1972-01-07T23:59:59.999Z", 0),
        ("1918-01-01T23:59:59.999Z", 59),
        ("1918-01-01T23:59:59.999z", 59),
        ("1918-01-02T00:00:00.000Z", 0),
        ("1918-01-02T00:00:00.000z", 0),
        ("1850-01-01T00:00:00.000-00:00:00", 0),
    ],
)
def test_bounds_are_widened_if_an_offset_may_lack_seconds(data_type, text, error):
    nanos = nanos_of(datetime.datetime.fromisoformat(text.upper().replace("Z", "+00:00")))
    expected = ColumnBounds(nanos - error * SECOND, nanos + error * SECOND + 999_999, 0, 10)
    assert bounds(data_type, text, text) == expected
    if data_type == "timestamp":
        return
    local = text[:23]
    local_bounds = bounds("timestamp_nanos_ntz", local, local)
    assert local_bounds.upper - local_bounds.lower == 999_999


@pytest.mark.parametrize("data_type", ["timestamp", "timestamp_nanos"])
@pytest.mark.parametrize(
    ("text", "zone"),
    [("+00:53:28", 3208), ("-04:56:02", -17762), ("-004430", -2670)],
)
def test_offset_with_seconds_gives_exact_bounds(data_type, text, zone):
    moment = datetime.datetime(1850, 1, 1, 1, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(seconds=zone)))
    for fraction, cut in ((".000", 999_999), (".000001", 0 if data_type == "timestamp" else 999)):
        exact = bounds(data_type, "1850-01-01T01:01:01" + fraction + text, "1850-01-01T01:01:01" + fraction + text)
        lower = nanos_of(moment) + int(float(fraction) * 1_000_000) * 1000
        assert exact == ColumnBounds(lower, lower + cut, 0, 10)


@meets(long=1, fraction=15)
@given(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(0, 38))
def test_decimal_bounds_hold_for_values_written_through_a_double(unscaled, scale):
    met("long", abs(unscaled) > 1 << 53)
    met("fraction", scale and unscaled % 10)
    value = Decimal(unscaled).scaleb(-scale) if abs(unscaled) < 10**28 else Decimal(f"{unscaled}E-{scale}")
    text = json.dumps(
        {"numRecords": 1, "minValues": {"c": float(value)}, "maxValues": {"c": float(value)}, "nullCount": {"c": 0}}
    )
    found = read(DecimalType(38, scale), text).bounds(("c",))
    assert found.lower <= value <= found.upper


def test_bounds_enclose_decimals_with_more_digits_than_doubles():
    digits = "12345678901234567890123456789012345678"
    text = f'{{"numRecords":1,"minValues":{{"c":{digits}}},"maxValues":{{"c":{digits}}},"nullCount":{{"c":0}}}}'
    decimal_bounds = read(DecimalType(38, 0), text).bounds(("c",))
    assert decimal_bounds.lower < Decimal(digits) < decimal_bounds.upper
    assert decimal_bounds.upper - decimal_bounds.lower < Decimal(digits) * Decimal("5E-16")


# === Counts, with tight and wide bounds ===


@pytest.mark.parametrize(
    ("tight", "deleted", "nulls", "expected"),
    [
        (None, None, 3, ColumnBounds(1, 2, 3, 10)),
        (True, None, 3, ColumnBounds(1, 2, 3, 10)),
        (True, 4, 3, ColumnBounds(1, 2, 3, 6)),
        (True, 4, 6, ColumnBounds(1, 2, 6, 6)),
        (True, 4, 7, ColumnBounds(1, 2, None, 6)),
        (False, 4, 3, ColumnBounds(1, 2, None, 6)),
        (False, 4, 0, ColumnBounds(1, 2, 0, 6)),
        (False, 4, 10, ColumnBounds(1, 2, 6, 6)),
        (False, 4, 6, ColumnBounds(1, 2, None, 6)),
        (None, 4, 3, ColumnBounds(1, 2, None, 6)),
        (None, 4, 10, ColumnBounds(1, 2, 6, 6)),
        (False, None, 3, ColumnBounds(1, 2, None, 10)),
        (None, None, 11, ColumnBounds(1, 2, None, 10)),
        (None, None, -1, ColumnBounds(1, 2, None, 10)),
        (None, None, "3", ColumnBounds(1, 2, None, 10)),
        # The vector deletes more rows than the file has.
        (None, 11, 0, ColumnBounds(1, 2, 0, None)),
        (True, 11, 0, ColumnBounds(1, 2, None, None)),
    ],
)
def test_null_counts_are_exact_for_visible_rows_or_unknown(tight, deleted, nulls, expected):
    stats = {"numRecords": 10, "minValues": {"c": 1}, "maxValues": {"c": 2}, "nullCount": {"c": nulls}}
    if tight is not None:
        stats["tightBounds"] = tight
    statistics = read("long", stats, deleted=deleted)
    assert statistics.bounds(("c",)) == expected
    assert statistics.num_records == 10


def test_null_count_without_row_count_is_unknown():
    statistics = read("long", {"minValues": {"c": 1}, "maxValues": {"c": 2}, "nullCount": {"c": 0}})
    assert statistics.bounds(("c",)) == ColumnBounds(1, 2, None, None)
    assert statistics.num_records is None


@pytest.mark.parametrize(
    ("stated", "deleted", "counted", "visible"),
    [(0, None, 0, 0), (-1, None, None, None), (5, 5, 5, 0), (5, 6, 5, None)],
)
def test_row_count_excludes_deleted_rows(stated, deleted, counted, visible):
    statistics = read("long", {"numRecords": stated}, deleted=deleted)
    assert (statistics.num_records, statistics.row_count) == (counted, visible)


def test_bounds_are_tight_by_default_without_a_vector():
    assert read("long", {"numRecords": 1}).tight_bounds is True
    assert read("long", {"numRecords": 1}, deleted=0).tight_bounds is False
    assert read("long", {"numRecords": 1, "tightBounds": False}).tight_bounds is False
    assert read("long", {"numRecords": 1, "tightBounds": True}, deleted=1).tight_bounds is True


@pytest.mark.parametrize(
    "stats",
    [
        None,
        "",
        "{",
        "[]",
        "null",
        "5",
        '"x"',
        '{"numRecords":"10"}',
        '{"minValues":5}',
        '{"minValues":[1]}',
        "\ud800",
        "[" * 100_000,
        '{"x":' * 100_000,
        '{"numRecords":1,"minValues":{"c":"\\ud800"}',
    ],
)
def test_malformed_statistics_are_unknown(stats):
    statistics = read("long", stats)
    assert statistics.bounds(("c",)) is None
    assert statistics.num_records is None
    assert num_records(stats) is None


def test_bounds_without_statistics_are_unknown():
    statistics = read("long", {"numRecords": 10, "minValues": {"other": 1}, "maxValues": None, "nullCount": {}})
    assert statistics.bounds(("c",)) is None
    assert statistics.bounds(("not requested",)) is None
    assert statistics.num_records == statistics.row_count == 10


def test_num_records_is_read_without_a_schema():
    assert num_records('{"minValues":{"a":[{}]},"numRecords":7}') == 7
    assert num_records('{"numRecords":-7}') is None
    assert num_records("{}") is None


# === Names ===


def test_nested_columns_are_found_by_their_physical_names():
    inner = StructType((field("b", "long", **{PHYSICAL_NAME_KEY: "col-b"}), field("s", "string")))
    schema = StructType((field("A", inner, **{PHYSICAL_NAME_KEY: "col-a"}), field("l", ArrayType(inner))))
    needed = [("A", "b"), ("a", "B"), ("A", "s"), ("A",), ("l", "element"), ("l",), ("A", "b", "x"), ("no",), ()]
    values = {"col-a": {"col-b": 5, "s": "x"}, "A": {"b": 7, "s": "y"}}
    stats = json.dumps(
        {"numRecords": 2, "minValues": values, "maxValues": values, "nullCount": {"col-a": {"col-b": 1}}}
    )
    for mode, expected in (
        (ColumnMappingMode.NAME, ColumnBounds(5, 5, 1, 2)),
        (ColumnMappingMode.ID, ColumnBounds(5, 5, 1, 2)),
        (ColumnMappingMode.NONE, ColumnBounds(7, 7, None, 2)),
    ):
        statistics = StatisticsReader(schema, mode, [], needed).read(AddFile("f", stats=stats))
        assert statistics.bounds(("A", "b")) == statistics.bounds(("a", "B")) == expected
        assert [statistics.bounds(path) for path in needed[3:]] == [None] * 6


@pytest.mark.parametrize("name", ["a b", "a.b", "é", "名", "\U0001f600", "f0", "{}", "a'b", "num_records", "class"])
def test_statistics_of_columns_with_unusual_names_are_found(name):
    stats = {"numRecords": 1, "minValues": {name: 1}, "maxValues": {name: 2}, "nullCount": {name: 0}}
    assert read("long", stats, name=name).bounds((name,)) == ColumnBounds(1, 2, 0, 1)


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb"])
def test_bounds_of_columns_whose_names_json_escapes_are_unknown(name):
    schema = StructType((field(name, "long"), field("c", "long")))
    reader = StatisticsReader(schema, ColumnMappingMode.NONE, [], [(name,), ("c",)])
    values = {name: 1, "c": 1}
    statistics = reader.read(
        AddFile("f", stats=json.dumps({"numRecords": 1, "minValues": values, "maxValues": values}))
    )
    assert statistics.bounds((name,)) is None
    assert statistics.bounds(("c",)) == ColumnBounds(1, 1, None, 1)


# === Partition columns ===


@pytest.mark.parametrize(
    ("data_type", "text", "stats", "expected"),
    [
        ("date", "1970-01-02", '{"numRecords":5}', ColumnBounds(1, 1, 0, 5)),
        ("timestamp", "1970-01-01 00:00:00.000001", None, ColumnBounds(1000, 1000, 0, None)),
        ("timestamp_nanos", "1970-01-01T00:00:00.000000001Z", None, ColumnBounds(1, 1, 0, None)),
        ("string", "null", None, ColumnBounds("null", "null", 0, None)),
        ("long", None, '{"numRecords":5}', ColumnBounds(None, None, 5, 5)),
        ("long", "", None, ColumnBounds(None, None, 1, 1)),
        ("timestamp", "", None, ColumnBounds(None, None, 1, 1)),
        ("timestamp_ntz", "1970-01-01 00:00:00.000001", None, ColumnBounds(1000, 1000, 0, None)),
        ("timestamp_nanos_ntz", "1970-01-01T00:00:00.000000001", None, ColumnBounds(1, 1, 0, None)),
        ("double", "1.5", None, ColumnBounds(1.5, 1.5, 0, None, 1.5)),
        ("double", "NaN", None, ColumnBounds(None, None, 0, None)),
        (DecimalType(20, 2), "1.50", None, ColumnBounds(Decimal("1.5"), Decimal("1.5"), 0, None)),
        ("binary", "ab", "{", ColumnBounds(b"ab", b"ab", 0, None)),
        ("long", "abc", None, None),
    ],
)
def test_partition_values_bound_their_column_exactly(data_type, text, stats, expected):
    column = field("P", data_type, **{PHYSICAL_NAME_KEY: "col-p"})
    reader = StatisticsReader(StructType((column,)), ColumnMappingMode.NAME, ["p"], [("P",)])
    assert reader.read(AddFile("f", {"col-p": text}, stats=stats)).bounds(("P",)) == expected


def test_missing_partition_value_is_unknown():
    reader = StatisticsReader(StructType((field("p", "long"),)), ColumnMappingMode.NONE, ["p"], [("p",)])
    assert reader.read(AddFile("f", {})).bounds(("p",)) is None


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["c", "x"]), inner, max_size=2),
    max_leaves=4,
)


COLUMN_STATISTICS = ("minValues", "maxValues", "nullCount")
VALUES_OF_C = st.fixed_dictionaries({"c": JSON_VALUES | st.sampled_from([1, -2.5, "x", "2024-01-01", True])})


@meets(read=3, nothing=10)
@given(
    st.dictionaries(st.sampled_from(["numRecords", "tightBounds", "minValues", "maxValues", "nullCount"]), JSON_VALUES)
    | st.fixed_dictionaries({"numRecords": st.just(3)}, optional=dict.fromkeys(COLUMN_STATISTICS, VALUES_OF_C)),
    st.sampled_from(["long", "string", "double", "float", "date", "timestamp", "timestamp_ntz", "boolean", "binary"]),
)
def test_invalid_statistics_raise_no_error(stats, data_type):
    found = read(data_type, stats).bounds(("c",))
    met("nothing" if found is None else "read")
    assert found is None or isinstance(found, ColumnBounds)
