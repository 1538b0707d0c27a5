"""Days and microseconds since 1970 to calendar text and back, for years that :mod:`datetime` cannot hold.

The calendar is the proleptic Gregorian one with a year 0, as in ISO 8601 and java.time.
"""

from __future__ import annotations

from typing import Final

MICROS_PER_SECOND: Final = 1_000_000
MICROS_PER_DAY: Final = 86_400 * MICROS_PER_SECOND

_DAYS_0000_TO_1970 = 719_528
_MARCH = 60  # days before 1 March of the year 0; years are counted from there, so that a leap day is the last


def days_of(year: int, month: int, day: int) -> int | None:
    """Return the days from 1970-01-01 to a date, ``None`` if the calendar has no such day."""
    if not 1 <= month <= 12 or not 1 <= day <= _days_in_month(year, month):
        return None
    years = year - (month < 3)
    leap_days = years // 4 - years // 100 + years // 400
    return years * 365 + leap_days + (153 * ((month + 9) % 12) + 2) // 5 + day - 1 + _MARCH - _DAYS_0000_TO_1970


def civil_of(days: int) -> tuple[int, int, int]:
    """Return (year, month, day) of the date ``days`` after 1970-01-01."""
    # 400 years are 146097 days.
    cycle, day_of_cycle = divmod(days + _DAYS_0000_TO_1970 - _MARCH, 146_097)
    year_of_cycle = (day_of_cycle - day_of_cycle // 1460 + day_of_cycle // 36_524 - day_of_cycle // 146_096) // 365
    day_of_year = day_of_cycle - (365 * year_of_cycle + year_of_cycle // 4 - year_of_cycle // 100)
    shifted = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted + 2) // 5 + 1
    month = shifted + 3 if shifted < 10 else shifted - 9
    return cycle * 400 + year_of_cycle + (month < 3), month, day


def _days_in_month(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31
