"""Parses partition values in the log's text form, by type (Delta log protocol, "Partition Value Serialization").

Fewer strings are accepted than by Spark's cast: a string that no writer can have written according to the specification
is an error, because a wrong value would put every row of the file into the wrong partition. Each parser takes a
non-empty string and the column's type, and raises ``DataError`` if the string is not a value of the type.
"""

from __future__ import annotations

import decimal
import math
import re
import struct
from decimal import Decimal
from typing import NoReturn

from delta_sharing_client.delta import uuids
from delta_sharing_client.delta.data_types import YEAR_MONTH_UNITS, DecimalType
from delta_sharing_client.delta.data_types import PrimitiveType as Simple
from delta_sharing_client.errors import DataError
from delta_sharing_client.instants import NANOS_PER_DAY, clock_nanoseconds, days_of

_INTEGER = re.compile(r"[+-]?[0-9]{1,40}\Z")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?\Z")
_SPECIAL_FLOAT = re.compile(r"[+-]?(?:nan|inf(?:inity)?)\Z", re.IGNORECASE | re.ASCII)
_DATE = re.compile(r"([+-]?)([0-9]{1,7})-([0-9]{1,2})-([0-9]{1,2})\Z")
_TIMESTAMP = re.compile(
    r"(?P<date>[+-]?[0-9]{1,7}-[0-9]{1,2}-[0-9]{1,2})"
    r"(?:[ T](?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{1,2})(?::(?P<second>[0-9]{1,2})(?:\.(?P<fraction>[0-9]{1,9}))?)?"
    r"(?P<zone> ?(?:Z|UTC|[+-][0-9]{2}(?::?[0-9]{2}(?::?[0-9]{2})?)?))?)?\Z"
)
ESCAPED_BINARY = re.compile(r"(?:\\u00[0-9a-fA-F]{2})+\Z")


def non_finite(value: float) -> str:
    """Return the text of ``NaN`` or an infinity in Delta's JSON and in partition values."""
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def string(text: str, data_type: Simple) -> str:
    """Return the text, which must not contain half of a surrogate pair."""
    _utf8(text, data_type.base)
    return text


def void(text: str, data_type: Simple) -> NoReturn:
    """Raise ``DataError``, because this type has no values."""
    raise DataError("A partition value of type void must be null.")


def integer(text: str, data_type: Simple, *, bits: int) -> int:
    base = data_type.base
    limit = 1 << (bits - 1)
    if not _INTEGER.match(text):
        raise DataError(f"A partition value of type {base} must be a whole number.")
    value = int(text)
    if not -limit <= value < limit:
        raise DataError(f"A partition value of type {base} must lie between {-limit} and {limit - 1}.")
    return value


def boolean(text: str, data_type: Simple) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise DataError("A partition value of type boolean must be true or false.")
    return lowered == "true"


def floating(text: str, data_type: Simple, *, bits: int) -> float:
    base = data_type.base
    if _SPECIAL_FLOAT.match(text):
        return float(text)
    if not _NUMBER.match(text):
        raise DataError(f"A partition value of type {base} must be a number, NaN, Infinity or -Infinity.")
    value = float(text)
    if bits == 32 and math.isfinite(value):
        try:
            (value,) = struct.unpack("<f", struct.pack("<f", value))
        except OverflowError:
            value = math.inf
    if math.isinf(value):
        raise DataError(f"A partition value of type {base} must lie in the range of the type.")
    return value


def exact_decimal(text: str, data_type: DecimalType) -> Decimal:
    name = f"decimal({data_type.precision},{data_type.scale})"
    if not _NUMBER.match(text):
        raise DataError(f"A partition value of type {name} must be a decimal number.")
    value, zero = Decimal(text), Decimal((0, (0,), -data_type.scale))
    if not value:
        return zero
    before = data_type.precision - data_type.scale
    if value.adjusted() >= before:
        raise DataError(f"A partition value of type {name} must have at most {before} digits before the point.")
    context = decimal.Context(prec=data_type.precision, traps=[decimal.Inexact, decimal.InvalidOperation])
    try:
        return value.quantize(zero, context=context)
    except (decimal.Inexact, decimal.InvalidOperation):
        raise DataError(
            f"A partition value of type {name} must have at most {data_type.scale} digits after the point."
        ) from None


def binary(text: str, data_type: Simple) -> bytes:
    # There are two forms: the bytes as characters of a string (Spark), and each byte as an escape \u00XX.
    if ESCAPED_BINARY.match(text):
        return bytes.fromhex(text.replace("\\u00", ""))
    return _utf8(text, data_type.base)


def _utf8(text: str, name: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise DataError(f"A partition value of type {name} must not contain half of a surrogate pair.") from None


def date(text: str, data_type: Simple) -> int:
    days = _days(text, "date")
    if days >= 1 << 31:
        raise DataError("A partition value of type date must lie within 2^31 days of 1970.")
    return days


def timestamp(text: str, data_type: Simple, *, zoned: bool, unit: str = "microseconds") -> int:
    """Return the ``unit`` (microseconds or nanoseconds) since 1970; the text may have a zone only if ``zoned``."""
    name = data_type.base
    nanos, zone = _nanoseconds(text, name)
    if zone and not zoned:
        raise DataError(f"A partition value of type {name} must have no time zone.")
    count, rest = (nanos, 0) if unit == "nanoseconds" else divmod(nanos, 1000)
    if rest:
        raise DataError(f"A partition value of type {name} must be a whole number of {unit}.")
    if not -(1 << 63) <= count < 1 << 63:
        raise DataError(f"A partition value of type {name} must lie within 2^63 {unit} of 1970.")
    return count


def time_of_day(text: str, data_type: Simple) -> int:
    """Return the microseconds since midnight."""
    nanos = clock_nanoseconds(text)
    if nanos is None or nanos % 1000:
        raise DataError("A partition value of type time must be a time of day such as 08:00:00.123456.")
    return nanos // 1000


def uuid_text(text: str, data_type: Simple) -> str:
    """Return the UUID in lower case."""
    uuid = uuids.canonical(text)
    if uuid is None:
        raise DataError("A partition value of type uuid must be a UUID such as f79c3e09-677c-4bbd-a479-3f349cb785e7.")
    return uuid


def _days(text: str, name: str) -> int:
    """Return the days since 1970 in the proleptic Gregorian calendar, for the years 0 to 9999999."""
    match = _DATE.match(text)
    if not match:
        raise DataError(f"A partition value of type {name} must be a date such as 1970-01-31.")
    sign, year, month, day = match[1], int(match[2]), int(match[3]), int(match[4])
    if sign == "-":
        raise DataError(f"A partition value of type {name} must not have a negative year.")
    days = days_of(year, month, day)
    if days is None:
        raise DataError(f"A partition value of type {name} must be a date that exists in the calendar.")
    return days


def _nanoseconds(text: str, name: str) -> tuple[int, str | None]:
    """Return the nanoseconds since 1970 (UTC if the text has no zone), and the zone of the text."""
    match = _TIMESTAMP.match(text)
    if not match:
        raise DataError(f"A partition value of type {name} must be a date and time such as 1970-01-31 00:00:00.123456.")
    hour, minute, second = int(match["hour"] or 0), int(match["minute"] or 0), int(match["second"] or 0)
    if hour > 23 or minute > 59 or second > 59:
        raise DataError(f"A partition value of type {name} must have a time of day from 00:00:00 to 23:59:59.")
    fraction = (match["fraction"] or "").ljust(9, "0")
    seconds = hour * 3600 + minute * 60 + second - _offset_seconds(match["zone"], name)
    return _days(match["date"], name) * NANOS_PER_DAY + seconds * 1_000_000_000 + int(fraction), match["zone"]


def _offset_seconds(zone: str | None, name: str) -> int:
    text = (zone or "").strip().replace(":", "")
    if text in ("", "Z", "UTC"):
        return 0
    hours, minutes, seconds = int(text[1:3]), int(text[3:5] or 0), int(text[5:7] or 0)
    if hours > 18 or minutes > 59 or seconds > 59:
        raise DataError(f"A partition value of type {name} must have a zone offset of at most 18 hours.")
    offset = hours * 3600 + minutes * 60 + seconds
    return -offset if text[0] == "-" else offset


# === Intervals ===

_LITERAL = re.compile(r"INTERVAL '(?P<body>[^']{1,60})' (?P<units>[A-Z]+(?: TO [A-Z]+)?)\Z", re.IGNORECASE)
# For each field of a literal: the separator before it (unless it is the first), its size in months or microseconds, and
# its greatest value after a larger field.
_SEPARATORS = {"month": "-", "hour": " ", "minute": ":", "second": ":"}
_SIZES = {
    "year": 12, "month": 1,
    "day": 86_400_000_000, "hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000,
}  # fmt: skip
_MOST = {"month": 11, "hour": 23, "minute": 59, "second": 59}


def interval(text: str, data_type: Simple, *, family: tuple[str, ...], bits: int) -> int:
    """Return the months or microseconds of an interval literal whose units are in ``family``."""
    is_months = family is YEAR_MONTH_UNITS
    example = "INTERVAL '1-2' YEAR TO MONTH" if is_months else "INTERVAL '1 02:03:04.5' DAY TO SECOND"
    literal = _LITERAL.match(text)
    ends = literal["units"].lower().split(" to ") if literal else [""]
    if literal is None or any(unit not in family for unit in ends):
        raise DataError(f"An interval must be a literal such as {example}.")
    units = family[family.index(ends[0]) : family.index(ends[-1]) + 1]
    fields = re.match(_pattern(units), literal["body"]) if units else None
    if fields is None:
        raise DataError(f"An interval must be a literal such as {example}.")
    amount = 0
    for position, unit in enumerate(units):
        whole, _, fraction = fields[unit].partition(".")
        if position and int(whole) > _MOST[unit]:
            raise DataError(f"An interval's {unit}s must be at most {_MOST[unit]} after a larger field.")
        amount += int(whole) * _SIZES[unit] + int(fraction.ljust(6, "0"))
    amount = -amount if fields["sign"] == "-" else amount
    limit = 1 << (bits - 1)
    if not -limit <= amount < limit:
        raise DataError(f"An interval must fit in {bits} bits as {'months' if is_months else 'microseconds'}.")
    return amount


def _pattern(units: tuple[str, ...]) -> str:
    parts = []
    for position, unit in enumerate(units):
        digits = r"[0-9]{1,19}" + (r"(?:\.[0-9]{1,6})?" if unit == "second" else "")
        parts.append((_SEPARATORS[unit] if position else "") + f"(?P<{unit}>{digits})")
    return r"(?P<sign>[+-]?)" + "".join(parts) + r"\Z"
