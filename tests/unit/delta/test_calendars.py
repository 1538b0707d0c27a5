"""The hybrid Julian and Gregorian calendar of old Spark versions."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

from delta_sharing_client.delta.calendars import HybridCalendar, gregorian_dates, hybrid_calendar
from delta_sharing_client.errors import DataError

EPOCH = datetime.date(1970, 1, 1)
DAY = 86_400_000_000
VERSION, ROWS = b"org.apache.spark.version", b"org.apache.spark.sql.parquet.row.metadata"
DATES, INT96, ZONE = b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96", b"org.apache.spark.timeZone"


def julian_day(year: int, month: int, day: int) -> int:
    """Return a Julian date as days since 1970 (formula of the Explanatory Supplement to the Astronomical Almanac)."""
    a = (14 - month) // 12
    y, m = year + 4800 - a, month + 12 * a - 3
    return day + (153 * m + 2) // 5 + 365 * y + y // 4 - 32_083 - 2_440_588


def dates(*days: int | None) -> pa.Array:
    return pa.array(days, pa.int32()).cast(pa.date32())


# The Gregorian calendar has no 29 February 1500.
JULIAN = [(1582, 10, 4), (1500, 3, 1), (1500, 2, 28), (1400, 2, 28), (1000, 1, 1), (200, 3, 1), (100, 2, 28), (1, 1, 1)]


@pytest.mark.parametrize("date", JULIAN, ids=str)
def test_date_keeps_its_year_month_and_day(date: tuple[int, int, int]) -> None:
    expected = (datetime.date(*date) - EPOCH).days
    converted = gregorian_dates(dates(None, julian_day(*date), 0))

    assert converted.type == pa.date32()
    assert converted.cast(pa.int32()).to_pylist() == [None, expected, 0]


def test_leap_day_only_in_the_julian_calendar_becomes_1_march() -> None:
    assert gregorian_dates(dates(julian_day(1500, 2, 29))).to_pylist() == [datetime.date(1500, 3, 1)]


def test_dates_since_15_october_1582_are_unchanged() -> None:
    first = (datetime.date(1582, 10, 15) - EPOCH).days
    array = dates(first, 0, None)

    assert gregorian_dates(array) is array
    # In the hybrid calendar, the day before is 4 October.
    days = [datetime.date(1582, 10, 4), datetime.date(1582, 10, 15)]
    assert gregorian_dates(dates(first - 1, first)).to_pylist() == days
    assert gregorian_dates(dates(None)).to_pylist() == [None]


def test_timestamps_of_a_utc_writer_keep_their_time_of_day() -> None:
    calendar = HybridCalendar(numbers=True, int96=True, zone="UTC")
    micros = julian_day(1000, 1, 1) * DAY + 3_600_000_001
    converted = calendar.instants(pa.array([micros, None, 0], pa.timestamp("us", "UTC")))

    expected = (datetime.date(1000, 1, 1) - EPOCH).days * DAY + 3_600_000_001
    assert converted.type == pa.timestamp("us", "UTC")
    assert converted.cast(pa.int64()).to_pylist() == [expected, None, 0]


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_timestamps_before_1900_of_other_zones_are_refused(zone: str | None) -> None:
    calendar = HybridCalendar(numbers=True, int96=True, zone=zone)
    micros_of_1900 = (datetime.date(1900, 1, 1) - EPOCH).days * DAY
    since_1900 = pa.array([micros_of_1900, None], pa.timestamp("us", "UTC"))

    assert calendar.instants(since_1900) is since_1900
    assert calendar.instants(pa.array([None], pa.timestamp("us"))).to_pylist() == [None]
    with pytest.raises(DataError, match=repr(zone) if zone else "unknown time zone"):
        calendar.instants(pa.array([micros_of_1900 - 1], pa.timestamp("us", "UTC")))


@pytest.mark.parametrize(
    ("keys", "numbers", "int96"),
    [
        ({VERSION: b"2.4.8"}, True, True),
        ({VERSION: b"3.0.0"}, False, True),
        ({VERSION: b"3.1.0"}, False, False),
        ({VERSION: b"3.10.1"}, False, False),
        ({VERSION: b"3.5.0", DATES: b""}, True, False),
        ({VERSION: b"3.5.0", INT96: b""}, False, True),
        ({VERSION: b"nightly"}, False, False),
        ({ROWS: b"{}"}, True, True),
        ({b"other": b""}, False, False),
        ({}, False, False),
        (None, False, False),
    ],
)
def test_footer_metadata_determines_the_calendar(keys: dict[bytes, bytes] | None, numbers: bool, int96: bool) -> None:
    calendar = hybrid_calendar(keys)

    assert (calendar is not None) == (numbers or int96)
    if calendar is not None:
        assert (calendar.numbers, calendar.int96, calendar.zone) == (numbers, int96, None)
        assert calendar.concerns(pa.date32()) is numbers
        assert calendar.concerns(pa.timestamp("us", "UTC")) is numbers
        assert calendar.concerns(pa.timestamp("us")) is int96
        assert not calendar.concerns(pa.int32())
        assert hybrid_calendar({**(keys or {}), ZONE: b"UTC"}) == HybridCalendar(numbers, int96, "UTC")


def test_time_zone_that_is_not_utf_8_is_refused() -> None:
    calendar = hybrid_calendar({VERSION: b"2.4.8", ZONE: b"Europe/\xff"})
    assert calendar is not None
    with pytest.raises(DataError, match="Europe/\ufffd"):
        calendar.instants(pa.array([-200 * 365 * DAY], pa.timestamp("us", "UTC")))
