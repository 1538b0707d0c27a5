"""The hybrid calendar of old Spark versions, against days that the calendars themselves name."""

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
    """Days since 1970 of a date of the Julian calendar (the formula of the Astronomical Almanac's supplement)."""
    a = (14 - month) // 12
    y, m = year + 4800 - a, month + 12 * a - 3
    return day + (153 * m + 2) // 5 + 365 * y + y // 4 - 32_083 - 2_440_588


def dates(*days: int | None) -> pa.Array:
    return pa.array(days, pa.int32()).cast(pa.date32())


# 29 February 1500 is a day that the Gregorian calendar does not have.
JULIAN = [(1582, 10, 4), (1500, 3, 1), (1500, 2, 28), (1400, 2, 28), (1000, 1, 1), (200, 3, 1), (100, 2, 28), (1, 1, 1)]


@pytest.mark.parametrize("date", JULIAN, ids=str)
def test_a_date_keeps_its_year_month_and_day(date: tuple[int, int, int]) -> None:
    expected = (datetime.date(*date) - EPOCH).days
    found = gregorian_dates(dates(None, julian_day(*date), 0))

    assert found.type == pa.date32()
    assert found.cast(pa.int32()).to_pylist() == [None, expected, 0]


def test_leap_day_of_one_calendar_becomes_the_first_of_march() -> None:
    assert gregorian_dates(dates(julian_day(1500, 2, 29))).to_pylist() == [datetime.date(1500, 3, 1)]


def test_from_the_fifteenth_of_october_1582_on_nothing_changes() -> None:
    first = (datetime.date(1582, 10, 15) - EPOCH).days
    array = dates(first, 0, None)

    assert gregorian_dates(array) is array
    # The day before it in the hybrid calendar is the fourth.
    days = [datetime.date(1582, 10, 4), datetime.date(1582, 10, 15)]
    assert gregorian_dates(dates(first - 1, first)).to_pylist() == days
    assert gregorian_dates(dates(None)).to_pylist() == [None]


def test_instants_of_a_writer_in_utc_keep_their_time_of_day() -> None:
    calendar = HybridCalendar(numbers=True, int96=True, zone="UTC")
    micros = julian_day(1000, 1, 1) * DAY + 3_600_000_001
    found = calendar.instants(pa.array([micros, None, 0], pa.timestamp("us", "UTC")))

    expected = (datetime.date(1000, 1, 1) - EPOCH).days * DAY + 3_600_000_001
    assert found.type == pa.timestamp("us", "UTC")
    assert found.cast(pa.int64()).to_pylist() == [expected, None, 0]


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_instants_before_1900_of_another_zone_are_refused(zone: str | None) -> None:
    calendar = HybridCalendar(numbers=True, int96=True, zone=zone)
    agreed = (datetime.date(1900, 1, 1) - EPOCH).days * DAY
    kept = pa.array([agreed, None], pa.timestamp("us", "UTC"))

    assert calendar.instants(kept) is kept
    assert calendar.instants(pa.array([None], pa.timestamp("us"))).to_pylist() == [None]
    with pytest.raises(DataError, match=repr(zone) if zone else "unknown time zone"):
        calendar.instants(pa.array([agreed - 1], pa.timestamp("us", "UTC")))


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
def test_footer_names_the_calendar(keys: dict[bytes, bytes] | None, numbers: bool, int96: bool) -> None:
    found = hybrid_calendar(keys)

    assert (found is not None) == (numbers or int96)
    if found is not None:
        assert (found.numbers, found.int96, found.zone) == (numbers, int96, None)
        assert found.concerns(pa.date32()) is numbers
        assert found.concerns(pa.timestamp("us", "UTC")) is numbers
        assert found.concerns(pa.timestamp("us")) is int96
        assert not found.concerns(pa.int32())
        assert hybrid_calendar({**(keys or {}), ZONE: b"UTC"}) == HybridCalendar(numbers, int96, "UTC")


def test_zone_that_is_not_text_is_refused_like_another_zone() -> None:
    found = hybrid_calendar({VERSION: b"2.4.8", ZONE: b"Europe/\xff"})
    assert found is not None
    with pytest.raises(DataError, match="Europe/\ufffd"):
        found.instants(pa.array([-200 * 365 * DAY], pa.timestamp("us", "UTC")))
