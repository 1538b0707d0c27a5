from __future__ import annotations

import datetime
import math
from decimal import Context, Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_sharing_client.delta.data_types import ArrayType, DecimalType, PrimitiveType
from delta_sharing_client.delta.partition_values import binary_text, parse_partition_value
from delta_sharing_client.delta.schema import to_arrow_type
from delta_sharing_client.delta.type_rows import TYPES, is_primitive
from delta_sharing_client.errors import DataError
from delta_sharing_client.instants import EPOCH, EPOCH_NTZ, MICROS_PER_DAY, format_date
from tests.quota import meets, met

MICROSECOND = datetime.timedelta(microseconds=1)
ALL_TYPES = [
    *(PrimitiveType(name) for name, row in TYPES.items() if is_primitive(name) and row.text is not None),
    *(PrimitiveType(name) for name in ("char(3)", "varchar(4)")),
    *(PrimitiveType(name) for name in ("interval year", "interval day to second")),
    DecimalType(38, 10),
]


def micros(*parts: int) -> int:
    return (datetime.datetime(*parts) - EPOCH_NTZ) // MICROSECOND


def kind(name: str) -> PrimitiveType:
    return PrimitiveType(name)


@pytest.mark.parametrize("data_type", ALL_TYPES, ids=str)
@pytest.mark.parametrize("text", ["", None])
def test_empty_string_and_none_are_null(data_type, text):
    assert parse_partition_value(text, data_type) is None


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("string", "null", "null"),
        ("string", "__HIVE_DEFAULT_PARTITION__", "__HIVE_DEFAULT_PARTITION__"),
        ("string", " a/b%20 ", " a/b%20 "),
        ("varchar(5)", "ab", "ab"),
        ("long", "-9223372036854775808", -(2**63)),
        ("long", "5", 5),
        ("integer", "+7", 7),
        ("byte", "127", 127),
        ("byte", "-128", -128),
        ("short", "-32768", -32768),
        ("boolean", "TRUE", True),
        ("boolean", "False", False),
        ("double", "5", 5.0),
        ("double", "1.0E10", 1e10),
        ("double", "-Infinity", -math.inf),
        ("float", "Infinity", math.inf),
        ("float", "3.4", 3.4000000953674316),
        ("binary", "hello", b"hello"),
        ("binary", "\x01\x02\x03", b"\x01\x02\x03"),
        ("binary", "\\u0001\\u00fF\\u0041", b"\x01\xffA"),
        ("binary", "é", "é".encode()),
        ("date", "1970-01-01", 0),
        ("date", "1582-10-10", -141432),
        ("date", "0001-01-01", -719162),
        ("date", "10000-01-01", 2932897),
        ("date", "+10000-01-01", 2932897),
        ("date", "0000-12-31", -719163),
        ("timestamp", "1970-01-01 00:00:00", micros(1970, 1, 1)),
        ("timestamp", "1970-01-01 00:00:00.123456", micros(1970, 1, 1, 0, 0, 0, 123456)),
        ("timestamp", "1969-12-31 23:59:59.5", micros(1969, 12, 31, 23, 59, 59, 500000)),
        ("timestamp", "2024-01-01T10:00:00.000000Z", micros(2024, 1, 1, 10)),
        ("timestamp", "2024-01-01T10:00:00.000-08:00", micros(2024, 1, 1, 18)),
        ("timestamp", "2024-01-01T10:00:00+0530", micros(2024, 1, 1, 4, 30)),
        ("timestamp", "2024-01-01T10:00:00+05", micros(2024, 1, 1, 5)),
        ("timestamp", "2024-01-01T10:00:00-05:30:15", micros(2024, 1, 1, 15, 30, 15)),
        ("timestamp", "2024-01-01T18:00:00+18:00", micros(2024, 1, 1)),
        ("timestamp", "2024-01-01T17:59:59+17:59:59", micros(2024, 1, 1)),
        ("timestamp", "2024-01-01", micros(2024, 1, 1)),
        ("timestamp", "12000-01-01 00:00:00.000001", 316516204800000001),
        ("timestamp", "294247-01-10 04:00:54.775807", 2**63 - 1),
        ("timestamp_nanos", "2262-04-11 23:47:16.854775807", 2**63 - 1),
        ("timestamp_nanos", "1677-09-21 00:12:43.145224192", -(2**63)),
        ("timestamp_ntz", "2020-01-01", micros(2020, 1, 1)),
        ("timestamp_ntz", "2020-01-01 12:34:56.000001", micros(2020, 1, 1, 12, 34, 56, 1)),
        ("timestamp_ntz", "1500-01-01 00:00:00", micros(1500, 1, 1)),
    ],
)
def test_text_of_a_partition_value_is_parsed_by_type(name, text, value):
    parsed = parse_partition_value(text, kind(name))
    assert parsed == value
    assert type(parsed) is type(value)


# Spark 4.3 casts intervals to these strings when it writes partition values.
@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("interval year to month", "INTERVAL '-1-2' YEAR TO MONTH", -14),
        ("interval year", "INTERVAL '5' YEAR", 60),
        ("interval year to month", "INTERVAL '1-11' YEAR TO MONTH", 23),
        ("interval day to second", "INTERVAL '1 23:59:59.5' DAY TO SECOND", 172_799_500_000),
        ("interval month", "INTERVAL '-25' MONTH", -25),
        ("interval year to month", "INTERVAL '-178956970-8' YEAR TO MONTH", -(2**31)),
        ("interval day to second", "INTERVAL '-1 02:03:04.000005' DAY TO SECOND", -93_784_000_005),
        ("interval day to hour", "INTERVAL '1 02' DAY TO HOUR", 93_600_000_000),
        ("interval hour", "INTERVAL '07' HOUR", 25_200_000_000),
        ("interval hour to second", "INTERVAL '-25:03:04.5' HOUR TO SECOND", -90_184_500_000),
        ("interval minute to second", "INTERVAL '90:00' MINUTE TO SECOND", 5_400_000_000),
        ("interval second", "INTERVAL '00.000001' SECOND", 1),
        ("interval day to second", "INTERVAL '-106751991 04:00:54.775808' DAY TO SECOND", -(2**63)),
    ],
)
def test_intervals_become_months_and_microseconds(name, text, value):
    data_type = kind(name)
    assert parse_partition_value(text, data_type) == value
    assert pa.scalar(value, to_arrow_type(data_type)).cast(pa.int64()).as_py() == value


def test_nan_is_read_in_both_float_types():
    assert math.isnan(parse_partition_value("NaN", kind("double")))
    assert math.isnan(parse_partition_value("NaN", kind("float")))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("byte", "128"),
        ("byte", "-129"),
        ("short", "32768"),
        ("integer", "2147483648"),
        ("long", "9223372036854775808"),
        ("long", "9" * 5000),
        ("long", "5.0"),
        ("long", "1_000"),
        ("long", "\u0665"),
        ("long", " 5"),
        ("long", "5\n"),
        ("boolean", "yes"),
        ("boolean", "1"),
        ("double", "1_0.0"),
        ("double", "0x10"),
        ("double", "1e999"),
        ("double", "1e99999999999"),
        ("float", "1e39"),
        ("float", "abc"),
        ("date", "-0001-01-01"),
        ("date", "9999999-12-31"),
        ("date", "2023-02-29"),
        ("date", "1900-02-29"),
        ("date", "2023-13-01"),
        ("date", "20230101"),
        ("date", "2023-01-01 00:00:00"),
        ("timestamp", "2023-01-01 24:00:00"),
        ("timestamp", "2023-01-01 00:60:00"),
        ("timestamp", "2023-01-01 00:00:60"),
        ("timestamp", "2023-01-01 00:00:00.0000001"),
        ("timestamp", "-0044-03-15 00:00:00"),
        ("timestamp", "9999999-01-01 00:00:00"),
        ("timestamp", "294247-01-10 04:00:54.775808"),
        ("timestamp_nanos", "2262-04-11 23:47:16.854775808"),
        ("timestamp_nanos", "1677-09-21 00:12:43.145224191"),
        ("timestamp", "2023-01-01 00:00:00+18:60"),
        ("timestamp", "2023-01-01 00:00:00+19:00"),
        ("timestamp", "2023-01-01 00:00:00+18:59:60"),
        ("timestamp", "2023-01-01 00:00:00 Europe/Berlin"),
        ("timestamp_ntz", "2023-01-01 00:00:00Z"),
        ("void", "1"),
        ("interval year to month", "1"),
        ("interval year to month", "INTERVAL '1-12' YEAR TO MONTH"),
        ("interval year to month", "INTERVAL '2147483648' MONTH"),
        ("interval year to month", "INTERVAL '1' DAY"),
        ("interval year to month", "INTERVAL '1-2' MONTH TO YEAR"),
        ("interval day to second", "INTERVAL '1 24:00:00' DAY TO SECOND"),
        ("interval day to second", "INTERVAL '1 02:03:04.0000001' DAY TO SECOND"),
        ("interval day to second", "INTERVAL '106751992' DAY"),
        ("interval day to second", "INTERVAL '1:2:3' DAY TO SECOND"),
        ("interval day to second", "INTERVAL '1.5' DAY"),
        ("interval day to second", "INTERVAL '1.5:02' HOUR TO MINUTE"),
        ("variant", "1"),
        ("binary", "\ud800"),
        ("string", "a\udfff"),
    ],
)
def test_invalid_text_is_refused_with_column_and_value(name, text):
    with pytest.raises(DataError, match=r"Found .* in column 'p'") as caught:
        parse_partition_value(text, kind(name), column="p")
    assert repr(text[:60])[1:20] in str(caught.value)


def test_nested_partition_type_is_refused():
    with pytest.raises(DataError, match="nested"):
        parse_partition_value("1", ArrayType(kind("long")))


@pytest.mark.parametrize(
    ("precision", "scale", "text", "value"),
    [
        (38, 0, "9" * 38, "9" * 38),
        (38, 38, "-0." + "9" * 38, "-0." + "9" * 38),
        (12, 5, "-2342342.23423", "-2342342.23423"),
        (10, 3, "5", "5.000"),
        (10, 1, "1.2000", "1.2"),
        (38, 18, "0E-18", "0.000000000000000000"),
        (5, 2, "1.5E+2", "150.00"),
        (5, 2, "-0", "0.00"),
    ],
)
def test_decimals_are_exact_and_rescaled(precision, scale, text, value):
    parsed = parse_partition_value(text, DecimalType(precision, scale))
    assert format(parsed, "f") == value
    assert pa.scalar(parsed, to_arrow_type(DecimalType(precision, scale))).as_py() == Decimal(value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1000.00", "before the point"),
        ("1E+999999999", "before the point"),
        ("1E9999999999", "decimal number"),
        ("0.001", "after the point"),
        ("1E-999999999", "after the point"),
        ("NaN", "decimal number"),
        ("0" * 3 + "1,5", "decimal number"),
    ],
)
def test_decimals_that_do_not_fit_are_refused(text, reason):
    with pytest.raises(DataError, match=reason):
        parse_partition_value(text, DecimalType(5, 2))


@pytest.mark.parametrize(
    ("data_type", "text", "arrow_type"),
    [
        (kind("byte"), "5", pa.int8()),
        (kind("float"), "0.5", pa.float32()),
        (kind("binary"), "x", pa.binary()),
        (kind("date"), "10000-01-01", pa.date32()),
        (kind("timestamp"), "12000-01-01 00:00:00", pa.timestamp("us", tz="UTC")),
        (kind("timestamp_ntz"), "2020-01-01", pa.timestamp("us")),
        (kind("boolean"), "true", pa.bool_()),
        (DecimalType(20, 5), "1.5", pa.decimal128(20, 5)),
    ],
)
def test_parsed_values_fit_the_arrow_type_of_their_column(data_type, text, arrow_type):
    assert to_arrow_type(data_type) == arrow_type
    assert pa.scalar(parse_partition_value(text, data_type), arrow_type).is_valid


# === Round trips ===

MICROS = st.integers(-62_167_219_200_000_000, (1 << 63) - 1 - 86_400_000_000)


@st.composite
def typed_values(draw):
    name = draw(
        st.sampled_from(
            ["string", "long", "integer", "short", "byte", "double", "float", "boolean", "binary", "date", "timestamp",
             "timestamp_ntz", "decimal"]
        )
    )  # fmt: skip
    if name == "decimal":
        precision = draw(st.integers(1, 38))
        scale = draw(st.integers(0, precision))
        unscaled = draw(st.integers(-(10**precision) + 1, 10**precision - 1))
        return DecimalType(precision, scale), (
            Decimal(unscaled).scaleb(-scale, Context(prec=38)) if unscaled else Decimal(0)
        )
    values = {
        "string": st.text(min_size=1),
        "long": st.integers(-(2**63), 2**63 - 1),
        "integer": st.integers(-(2**31), 2**31 - 1),
        "short": st.integers(-(2**15), 2**15 - 1),
        "byte": st.integers(-128, 127),
        "double": st.floats(allow_nan=False),
        "float": st.floats(allow_nan=False, width=32),
        "boolean": st.booleans(),
        "binary": st.binary(min_size=1),
        "date": st.integers(-719_528, 2_000_000_000),
        "timestamp": MICROS,
        "timestamp_ntz": MICROS,
    }
    return kind(name), draw(values[name])


def written(value, data_type):
    """Return the string that the specification requires for a value."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, repr(value))
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return binary_text(value)
    if data_type == kind("date"):
        return format_date(value)
    if data_type in (kind("timestamp"), kind("timestamp_ntz")):
        days, rest = divmod(value, MICROS_PER_DAY)
        return f"{format_date(days)} {(EPOCH_NTZ + rest * MICROSECOND).time()}"
    return str(value)


@meets(text=2, numbers=15, other=6)
@given(typed_values())
def test_written_values_parse_to_themselves(case):
    data_type, value = case
    met("text" if isinstance(value, str) else "numbers" if isinstance(value, (int, float)) else "other")
    assert parse_partition_value(written(value, data_type), data_type) == value


@meets(past=17)
@given(st.dates())
def test_dates_agree_with_the_standard_library(day):
    met("past", day.year < 1970)
    assert parse_partition_value(day.isoformat(), kind("date")) == (day - EPOCH.date()).days


@meets(offset=22, fraction=22)
@given(st.datetimes(timezones=st.timezones()))
def test_zoned_datetimes_keep_their_instant(moment):
    met("offset", moment.utcoffset())
    met("fraction", moment.microsecond)
    found = parse_partition_value(moment.isoformat(" "), kind("timestamp"))
    assert found == (moment - EPOCH) // MICROSECOND


@meets(read=4, refused=17)
@given(st.text(max_size=30), st.sampled_from(ALL_TYPES))
def test_any_text_is_parsed_or_is_a_data_error(text, data_type):
    try:
        parse_partition_value(text, data_type)
    except DataError:
        met("refused")
        return
    met("read", text)
    assert text or parse_partition_value(text, data_type) is None


def test_empty_bytes_are_null_in_the_log():
    assert binary_text(b"") is None
