"""Parses dates, timestamps and times of day, and computes with the calendar.

The accepted forms are those of ISO 8601 and of Spark's ``CAST(text AS TIMESTAMP)``, so a string means the same in an
argument, a filter, a Spark option, the command line and a profile:

- a year, a year and month, or a date; after ``T`` or a blank an hour, minute, second and fraction, each optional
  (``2024-1-31 8:5``, ``2024-01-31T08:05:00,5Z``, ISO 8601's basic form ``20240131T080500Z``);
- then a zone: ``Z``, ``UTC``, ``GMT``, an offset of up to 18 hours (``+2``, ``+2:00``, ``+0200``, ``UTC+02:00``) or the
  name of a region (``Europe/Berlin``).

A fraction is cut after nine digits. The calendar is proleptic Gregorian, for any year.
"""

from __future__ import annotations

import datetime
import re
import time
import zoneinfo
from typing import Any, Final, NamedTuple

from delta_sharing_client.errors import UsageError

MICROS_PER_SECOND: Final = 1_000_000
MICROS_PER_DAY: Final = 86_400 * MICROS_PER_SECOND
NANOS_PER_SECOND: Final = MICROS_PER_SECOND * 1000
NANOS_PER_DAY: Final = MICROS_PER_DAY * 1000

_UTC = datetime.timezone.utc
EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=_UTC)
EPOCH_NTZ: Final = datetime.datetime(1970, 1, 1)

# === The clock ===

_AHEAD = time.time() - time.monotonic()


def steady_ms() -> int:
    """Return the time in epoch milliseconds from a clock that is set once, when the process starts. So the difference
    between two calls is the elapsed time, even if the machine's clock is changed in between."""
    return int((time.monotonic() + _AHEAD) * 1000)


# === Timestamps as text ===

_EXTENDED = re.compile(
    r"(?P<year>[+-]?\d{4,7})(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2})"
    r"(?:[Tt ](?P<hour>\d{1,2})(?::(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})(?:[.,](?P<fraction>\d+))?)?)?"
    r"\s*(?P<zone>[A-Za-z+-].*)?)?)?)?",
    re.ASCII,
)
_BASIC = re.compile(
    r"(?P<year>\d{4})(?P<month>\d{2})(?P<day>\d{2})"
    r"[Tt](?P<hour>\d{2})(?:(?P<minute>\d{2})(?:(?P<second>\d{2})(?:[.,](?P<fraction>\d+))?)?)?(?P<zone>[A-Za-z+-].*)?",
    re.ASCII,
)
_OFFSET = re.compile(
    r"(?:UTC|GMT|UT)?(?:(?P<sign>[+-])"
    r"(?:(?P<hour>\d{1,2})(?::(?P<minute>\d{1,2})(?::(?P<second>\d{2}))?)?|(?P<digits>\d{4}|\d{6})))?|Z",
    re.ASCII | re.IGNORECASE,
)
_MOST_OFFSET = 18 * 3600
# The blanks that Spark's casts ignore, and the forms that they accept.
_SPARK_BLANKS = "".join(map(chr, (*range(33), 127)))
_SPARK_DATE = re.compile(
    r"(?P<year>[+-]?\d{4,7})(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2})(?:[ T].*)?)?)?", re.ASCII | re.DOTALL
)
_SPARK_TIMESTAMP = re.compile(
    r"(?P<year>[+-]?\d{4,6})(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2})(?:[ T](?P<hour>\d{1,2})(?::(?P<minute>\d{1,2})"
    r"(?::(?P<second>\d{1,2})(?:\.(?P<fraction>\d*))?(?P<zone>[^\d.].*)?)?)?)?)?)?",
    re.ASCII | re.DOTALL,
)
_SPARK_OFFSET = re.compile(
    r"Z|(?:UTC|GMT|UT)|(?:UTC|GMT|UT)?[+-](?:\d|\d\d|\d{4}|\d{6}|\d{1,2}:\d{1,2}|\d{1,2}:\d\d:\d\d)", re.ASCII
)
_CLOCK = re.compile(
    r"(?P<hour>\d{1,2}):(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})(?:[.,](?P<fraction>\d+))?)?", re.ASCII
)
_DATE_EXAMPLE = "write it as yyyy-mm-dd, for example '2024-01-31'"
_EXAMPLE = (
    "write it as yyyy-mm-dd hh:mm:ss[.fraction] with an optional zone (Z, an offset like +02:00 or a region like "
    "Europe/Berlin), for example '2024-01-31T08:00:00Z'"
)


class Timestamp(NamedTuple):
    """A parsed timestamp in nanoseconds since 1970: in UTC if the string was ``zoned``, otherwise in local time."""

    nanoseconds: int
    zoned: bool


def parse_timestamp(text: str) -> Timestamp:
    """Parse a timestamp in any form listed in the module's docstring; missing parts have their lowest value.

    Raises ``UsageError`` for other strings, and for a day, time or zone that does not exist.
    """
    stripped = text.strip()
    match = _EXTENDED.fullmatch(stripped) or _BASIC.fullmatch(stripped)
    local = None if match is None else _local_nanoseconds(match)
    if match is not None and local is not None:
        if match["zone"] is None:
            return Timestamp(local, zoned=False)
        offset = _offset_seconds(match["zone"].strip(), local)
        if offset is not None:
            return Timestamp(local - offset * 1_000_000_000, zoned=True)
    raise UsageError(f"{text!r} is not a timestamp; {_EXAMPLE}.")


def parse_date(text: str) -> int:
    """Parse ``yyyy-mm-dd`` as days since 1970-01-01; ``yyyy-mm`` and ``yyyy`` mean their first day.

    Raises ``UsageError`` for other strings, and for a day that does not exist.
    """
    match = _EXTENDED.fullmatch(text.strip())
    days = None if match is None or match["hour"] is not None else _days(match)
    if days is None:
        raise UsageError(f"{text!r} is not a date; {_DATE_EXAMPLE}.")
    return days


def parse_clock(text: str) -> int:
    """Parse a time of day, ``hh:mm`` or ``hh:mm:ss[.fraction]``, as nanoseconds since midnight.

    Raises ``UsageError`` for other strings, and for a time that does not exist.
    """
    nanos = clock_nanoseconds(text.strip())
    if nanos is None:
        raise UsageError(f"{text!r} is not a time of day; write it as hh:mm:ss[.fraction], for example '08:00:00'.")
    return nanos


def clock_nanoseconds(text: str) -> int | None:
    """Return a time of day as :func:`parse_clock` does, or ``None`` if ``text`` is not a time of day."""
    match = _CLOCK.fullmatch(text)
    return None if match is None else _nanoseconds_of_day(match)


def format_clock(nanoseconds: int) -> str:
    """Return nanoseconds since midnight as ``hh:mm:ss``, with a fraction of six or nine digits unless it is 0."""
    seconds, nanos = divmod(nanoseconds, NANOS_PER_SECOND)
    digits = f"{nanos:09d}"
    fraction = "" if nanos == 0 else "." + (digits if nanos % 1000 else digits[:6])
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"


def cast_timestamp(text: str, *, ignore_zone: bool = False) -> int | None:
    """Return the result of Spark's ``CAST(text AS TIMESTAMP)`` as nanoseconds since 1970, truncated to microseconds.

    Without a zone, or with ``ignore_zone`` as in a cast to ``TIMESTAMP_NTZ``, the text is in UTC. Returns ``None``
    where the cast fails: it accepts fewer forms than :func:`parse_timestamp`. Two forms that Spark accepts are not
    supported: a time without a date, and regions without a slash.
    """
    match = _SPARK_TIMESTAMP.fullmatch(text.strip(_SPARK_BLANKS))
    local = None if match is None else _local_nanoseconds(match)
    if match is None or local is None:
        return None
    nanos = local // 1000 * 1000
    if match["zone"] is not None:
        zone = match["zone"].strip(_SPARK_BLANKS)
        region = "/" in zone and not zone.startswith(("posix/", "right/"))
        offset = _offset_seconds(zone, local) if region or _SPARK_OFFSET.fullmatch(zone) else None
        if offset is None:
            return None
        nanos -= 0 if ignore_zone else offset * 1_000_000_000
    return nanos if -(1 << 63) <= nanos // 1000 < 1 << 63 else None


def cast_date(text: str) -> int | None:
    """Return the result of Spark's ``CAST(text AS DATE)`` as days since 1970-01-01; ``None`` where it fails.

    Any text after the date is ignored.
    """
    match = _SPARK_DATE.fullmatch(text.strip(_SPARK_BLANKS))
    days = None if match is None else _days(match)
    return days if days is not None and -(1 << 31) <= days < 1 << 31 else None


def parse_instant(text: str) -> datetime.datetime:
    """Return ``text`` as a ``datetime`` in UTC, with microseconds; without a zone, ``text`` is in UTC.

    Raises ``UsageError`` for strings that :func:`parse_timestamp` refuses, and for years other than 1 to 9999.
    """
    return _moment(parse_timestamp(text).nanoseconds // 1000, text)


def to_instant(value: str | datetime.datetime | datetime.date, name: str, *, up: bool = False) -> str:
    """Return ``value`` in the protocol's "Timestamp Format", such as ``2022-01-01T00:00:00Z``.

    ``value`` is a string (see :func:`parse_timestamp`), a ``datetime`` or a ``date`` (midnight); without a zone it is
    in UTC. ``name`` is the argument's name, for the error. Commit times have milliseconds and servers truncate to them,
    so a finer time is moved to the millisecond that selects the same commits: the one before or, with ``up`` (for the
    start of a range), the one after. Raises ``UsageError`` for other values.
    """
    if isinstance(value, datetime.datetime):
        # pandas.Timestamp is a datetime with additional nanoseconds.
        whole = (value if value.tzinfo else value.replace(tzinfo=_UTC)) - EPOCH
        nanoseconds = whole // datetime.timedelta(microseconds=1) * 1000 + int(getattr(value, "nanosecond", 0))
    elif isinstance(value, datetime.date):
        nanoseconds = days_of_date(value) * NANOS_PER_DAY
    elif isinstance(value, str):
        try:
            nanoseconds = parse_timestamp(value).nanoseconds
        except UsageError as error:
            raise UsageError(f"The value of '{name}' cannot be used. {error.message}") from None
    else:
        raise UsageError(
            f"'{name}' must be a datetime, a date or a string such as '2024-01-31T12:00:00Z', found {value!r}."
        )
    millis = -(-nanoseconds // 1_000_000) if up else nanoseconds // 1_000_000
    moment = _moment(millis * 1000, value)
    fraction = f".{moment.microsecond // 1000:03d}".rstrip("0") if moment.microsecond else ""
    return f"{moment.year:04d}-{moment:%m-%dT%H:%M:%S}{fraction}Z"


def _moment(micros: int, value: object) -> datetime.datetime:
    try:
        return EPOCH + datetime.timedelta(microseconds=micros)
    except OverflowError:
        raise UsageError(f"The timestamp {str(value)!r} is outside the years 1 to 9999.") from None


def _days(match: re.Match[str]) -> int | None:
    return days_of(int(match["year"]), int(match["month"] or 1), int(match["day"] or 1))


def _local_nanoseconds(match: re.Match[str]) -> int | None:
    days, rest = _days(match), _nanoseconds_of_day(match)
    return None if days is None or rest is None else days * NANOS_PER_DAY + rest


def _nanoseconds_of_day(match: re.Match[str]) -> int | None:
    hour, minute, second = int(match["hour"] or 0), int(match["minute"] or 0), int(match["second"] or 0)
    if hour > 23 or minute > 59 or second > 59:
        return None
    fraction = int((match["fraction"] or "")[:9].ljust(9, "0"))
    return (hour * 3600 + minute * 60 + second) * NANOS_PER_SECOND + fraction


def _offset_seconds(zone: str, local: int) -> int | None:
    """Return by how many seconds ``zone`` is ahead of UTC at a local time; ``None`` if there is no such zone."""
    match = _OFFSET.fullmatch(zone)
    if match is None:
        return _region_offset(zone, local)
    digits = match["digits"] or ""
    hour, minute = int(match["hour"] or digits[:2] or 0), int(match["minute"] or digits[2:4] or 0)
    second = int(match["second"] or digits[4:] or 0)
    offset = hour * 3600 + minute * 60 + second
    if minute > 59 or second > 59 or offset > _MOST_OFFSET:
        return None
    return -offset if match["sign"] == "-" else offset


def _region_offset(zone: str, local: int) -> int | None:
    try:
        region = zoneinfo.ZoneInfo(zone)
        moment = EPOCH_NTZ + datetime.timedelta(seconds=local // 1_000_000_000)
        # As in Java, an ambiguous local time means the earlier one, and a time in a gap is moved forward by the gap.
        offset = moment.replace(tzinfo=region).utcoffset()
    except (KeyError, ValueError, OSError, OverflowError):
        return None
    return None if offset is None else offset // datetime.timedelta(seconds=1)


# === The civil calendar ===

_DAYS_0000_TO_1970 = 719_528
_MARCH = 60  # days before 1 March of the year 0; here, years start in March, so that a leap day is their last day


def days_of(year: int, month: int, day: int) -> int | None:
    """Return the days from 1970-01-01 to a date; ``None`` if the calendar has no such day."""
    if not 1 <= month <= 12 or not 1 <= day <= days_in_month(year, month):
        return None
    years = year - (month < 3)
    leap_days = years // 4 - years // 100 + years // 400
    return years * 365 + leap_days + (153 * ((month + 9) % 12) + 2) // 5 + day - 1 + _MARCH - _DAYS_0000_TO_1970


def days_of_date(date: datetime.date) -> int:
    """Return the days from 1970-01-01 to a date."""
    return date.toordinal() - EPOCH.toordinal()


def civil_of(days: Any) -> tuple[Any, Any, Any]:
    """Return the year, month and day of the date ``days`` after 1970-01-01; for an array of days, three arrays."""
    # 400 years are 146097 days.
    cycle, day_of_cycle = divmod(days + _DAYS_0000_TO_1970 - _MARCH, 146_097)
    year_of_cycle = (day_of_cycle - day_of_cycle // 1460 + day_of_cycle // 36_524 - day_of_cycle // 146_096) // 365
    day_of_year = day_of_cycle - (365 * year_of_cycle + year_of_cycle // 4 - year_of_cycle // 100)
    shifted = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted + 2) // 5 + 1
    month = shifted + 3 - 12 * (shifted >= 10)
    return cycle * 400 + year_of_cycle + (month < 3), month, day


def format_date(days: int) -> str:
    """Return days since 1970-01-01 as ``yyyy-mm-dd``; years outside 0000 to 9999 have a sign."""
    year, month, day = civil_of(days)
    return f"{year:04d}-{month:02d}-{day:02d}" if 0 <= year <= 9999 else f"{year:+05d}-{month:02d}-{day:02d}"


def format_millis(milliseconds: int) -> str:
    """Return a time, in milliseconds since 1970, in the form ``2024-01-31 08:00:00.250 UTC``, for any year."""
    days, rest = divmod(milliseconds, 86_400_000)
    seconds, millis = divmod(rest, 1000)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}" + (f".{millis:03}" if millis else "")
    return f"{format_date(days)} {clock} UTC"


def days_in_month(year: int, month: int) -> int:
    """Return the number of days in a month."""
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


# === Offsets with seconds ===

OFFSET_ERROR: Final = 59 * NANOS_PER_SECOND
"""The largest error of a time, in nanoseconds, if the offset of its zone was truncated to minutes."""
# In the IANA time zone database, Africa/Monrovia has -00:44:30 until 1972-01-07. Before its release 2020b, Africa/Accra
# had -00:00:52 until 1918-01-01; without its seconds, that offset is UTC.
OFFSETS_WITH_SECONDS_END: Final = days_of_date(datetime.date(1972, 1, 8)) * NANOS_PER_DAY
"""From this time on (nanoseconds since 1970, UTC), every zone's offset is a whole number of minutes."""
OFFSETS_BELOW_A_MINUTE_END: Final = days_of_date(datetime.date(1918, 1, 2)) * NANOS_PER_DAY
"""From this time on, no zone has an offset shorter than a minute, other than 0."""


def instant_text(instant: datetime.datetime) -> str:
    """Return a point in time as rows of data show it: ``2024-01-31T10:00:00Z``."""
    return instant.astimezone(_UTC).isoformat().replace("+00:00", "Z")
