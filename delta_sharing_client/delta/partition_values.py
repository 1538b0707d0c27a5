"""Partition values: text of the log to typed values (Delta log protocol, "Partition Value Serialization").

The column's *current* type decides how a text is read, so a value written before a type was widened (``5`` under a
column that is ``long`` or ``decimal`` now, ``2020-01-01`` under ``timestamp_ntz``) needs no special case.

What a text may be is narrower than what Spark's cast would take: a value that a writer of the specification cannot have
written is an error, because reading it as something else would put every row of the file in the wrong partition.
"""

from __future__ import annotations

import decimal
import math
import re
import struct
from decimal import Decimal

import pyarrow as pa

from delta_sharing_client.delta.data_types import DAY_TIME_UNITS, YEAR_MONTH_UNITS, DataType, DecimalType, PrimitiveType
from delta_sharing_client.delta.schema import to_arrow_type
from delta_sharing_client.errors import DataError
from delta_sharing_client.instants import MICROS_PER_DAY, MICROS_PER_SECOND, days_of

_YEAR_MONTH = "year_month_interval"
_DAY_TIME = "day_time_interval"
_INTEGER_BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_LONGEST_SHOWN = 60
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}\Z")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?\Z")
_SPECIAL_FLOATS = {
    "nan": math.nan, "+nan": math.nan, "-nan": math.nan,
    "infinity": math.inf, "+infinity": math.inf, "-infinity": -math.inf,
    "inf": math.inf, "+inf": math.inf, "-inf": -math.inf,
}  # fmt: skip
_DATE = re.compile(r"([+-]?)([0-9]{1,7})-([0-9]{1,2})-([0-9]{1,2})\Z")
_TIMESTAMP = re.compile(
    r"(?P<date>[+-]?[0-9]{1,7}-[0-9]{1,2}-[0-9]{1,2})"
    r"(?:[ T](?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{1,2})(?::(?P<second>[0-9]{1,2})(?:\.(?P<fraction>[0-9]{1,9}))?)?"
    r"(?P<zone> ?(?:Z|UTC|[+-][0-9]{2}(?::?[0-9]{2}(?::?[0-9]{2})?)?))?)?\Z"
)
_ESCAPED_BINARY = re.compile(r"(?:\\u00[0-9a-fA-F]{2})+\Z")


def parse_partition_value(text: str | None, data_type: DataType, *, column: str | None = None) -> object:
    """Return the Python value of a serialized partition value.

    ``int``, ``float``, ``bool``, ``str``, ``bytes`` and :class:`~decimal.Decimal` (with the type's scale). Dates and
    timestamps are ``int``: days, or microseconds, since 1970; so are intervals: months, or microseconds. ``None`` and
    the empty text are null for every type.

    Parameters
    ----------
    text:
        The value in the log.
    data_type:
        The column's type now.
    column:
        The column's name, for the error.

    Raises
    ------
    DataError
        The text is not a value of the type, or outside its range.
    """
    if text is None or text == "":
        return None
    try:
        return _parse(text, data_type)
    except DataError as error:
        where = "" if column is None else f" in column {column!r}"
        raise DataError(f"{error.message} Found {_shown(text)}{where}.") from None


def partition_scalar(text: str | None, data_type: DataType, *, column: str | None = None) -> pa.Scalar:
    """Return the value of :func:`parse_partition_value` as a scalar of the Arrow type that the column comes out in.

    Raises
    ------
    DataError
        As :func:`parse_partition_value`.
    """
    value = parse_partition_value(text, data_type, column=column)
    arrow_type = to_arrow_type(data_type)
    if value is not None and (pa.types.is_timestamp(arrow_type) or pa.types.is_date32(arrow_type)):
        storage = pa.int64() if pa.types.is_timestamp(arrow_type) else pa.int32()
        return pa.scalar(value, storage).cast(arrow_type)
    return pa.scalar(value, arrow_type)


def binary_text(value: bytes) -> str | None:
    """Return the text that a log holds for bytes, ``None`` for none of them: it cannot tell those from null."""
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if value and (not text or _ESCAPED_BINARY.match(text)):
        return "".join(f"\\u{byte:04X}" for byte in value)
    return text or None


# === Parsing, by type ===


def _parse(text: str, data_type: DataType) -> object:
    if isinstance(data_type, DecimalType):
        return _decimal(text, data_type)
    if not isinstance(data_type, PrimitiveType):
        raise DataError("A partition column must have a simple type, not a nested one.")
    base = data_type.base
    if base == "string":
        _utf8(text, base)
        return text
    if base in _INTEGER_BITS:
        return _integer(text, base)
    if base == "date":
        return _date(text)
    if base in ("timestamp", "timestamp_ntz"):
        return _timestamp(text, base)
    if base == "boolean":
        return _boolean(text)
    if base in ("double", "float"):
        return _float(text, base)
    if base == "binary":
        return _binary(text)
    if base in (_YEAR_MONTH, _DAY_TIME):
        return _interval(text, base)
    if base == "void":
        raise DataError("A partition value of type void must be null.")
    raise DataError(f"A partition column must have a simple type, found {data_type.name!r}.")


def _integer(text: str, base: str) -> int:
    limit = 1 << (_INTEGER_BITS[base] - 1)
    if not _INTEGER.match(text):
        raise DataError(f"A partition value of type {base} must be a whole number.")
    value = int(text)
    if not -limit <= value < limit:
        raise DataError(f"A partition value of type {base} must lie between {-limit} and {limit - 1}.")
    return value


def _boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise DataError("A partition value of type boolean must be true or false.")
    return lowered == "true"


def _float(text: str, base: str) -> float:
    special = _SPECIAL_FLOATS.get(text.lower())
    if special is not None:
        return special
    if not _NUMBER.match(text):
        raise DataError(f"A partition value of type {base} must be a number, NaN, Infinity or -Infinity.")
    value = float(text)
    if base == "float" and math.isfinite(value):
        try:
            (value,) = struct.unpack("<f", struct.pack("<f", value))
        except OverflowError:
            value = math.inf
    if math.isinf(value):
        raise DataError(f"A partition value of type {base} must lie in the range of the type.")
    return value


def _decimal(text: str, data_type: DecimalType) -> Decimal:
    name = f"decimal({data_type.precision},{data_type.scale})"
    if not _NUMBER.match(text):
        raise DataError(f"A partition value of type {name} must be a decimal number.")
    value = Decimal(text)
    if not value:
        return Decimal((0, (0,), -data_type.scale))
    before = data_type.precision - data_type.scale
    if value.adjusted() >= before:
        raise DataError(f"A partition value of type {name} must have at most {before} digits before the point.")
    context = decimal.Context(prec=data_type.precision, traps=[decimal.Inexact, decimal.InvalidOperation])
    try:
        return value.quantize(Decimal((0, (1,), -data_type.scale)), context=context)
    except (decimal.Inexact, decimal.InvalidOperation):
        raise DataError(
            f"A partition value of type {name} must have at most {data_type.scale} digits after the point."
        ) from None


def _binary(text: str) -> bytes:
    # Two spellings exist: the bytes as the characters of a string (Spark), and each byte as a spelled-out \u00XX.
    if _ESCAPED_BINARY.match(text):
        return bytes.fromhex(text.replace("\\u00", ""))
    return _utf8(text, "binary")


def _utf8(text: str, name: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise DataError(f"A partition value of type {name} must be characters, not half of a surrogate pair.") from None


def _date(text: str) -> int:
    days = _days(text, "date")
    if days >= 1 << 31:
        raise DataError("A partition value of type date must lie within 2^31 days of 1970.")
    return days


def _timestamp(text: str, base: str) -> int:
    micros, zone = _micros(text, base)
    if zone and base == "timestamp_ntz":
        raise DataError("A partition value of type timestamp_ntz must have no time zone.")
    return micros


def _days(text: str, name: str) -> int:
    """Days since 1970 in the proleptic Gregorian calendar, for the years 0 to 9999999."""
    match = _DATE.match(text)
    if not match:
        raise DataError(f"A partition value of type {name} must start with a date such as 1970-01-31.")
    sign, year, month, day = match[1], int(match[2]), int(match[3]), int(match[4])
    if sign == "-":
        raise DataError(f"A partition value of type {name} must not have a negative year.")
    days = days_of(year, month, day)
    if days is None:
        raise DataError(f"A partition value of type {name} must be a day of the calendar.")
    return days


def _micros(text: str, name: str) -> tuple[int, str | None]:
    """Microseconds since 1970 (UTC where the text has no zone), and the zone of the text."""
    match = _TIMESTAMP.match(text)
    if not match:
        raise DataError(f"A partition value of type {name} must be a date and time such as 1970-01-31 00:00:00.123456.")
    hour, minute, second = int(match["hour"] or 0), int(match["minute"] or 0), int(match["second"] or 0)
    if hour > 23 or minute > 59 or second > 59:
        raise DataError(f"A partition value of type {name} must be a time of the day.")
    fraction = (match["fraction"] or "").ljust(9, "0")
    if fraction[6:] != "000":
        raise DataError(f"A partition value of type {name} must be whole microseconds.")
    seconds = hour * 3600 + minute * 60 + second - _offset_seconds(match["zone"], name)
    micros = _days(match["date"], name) * MICROS_PER_DAY + seconds * MICROS_PER_SECOND + int(fraction[:6])
    if not -(1 << 63) <= micros < 1 << 63:
        raise DataError(f"A partition value of type {name} must lie within 2^63 microseconds of 1970.")
    return micros, match["zone"]


def _offset_seconds(zone: str | None, name: str) -> int:
    text = (zone or "").strip().replace(":", "")
    if text in ("", "Z", "UTC"):
        return 0
    hours, minutes, seconds = int(text[1:3]), int(text[3:5] or 0), int(text[5:7] or 0)
    if hours > 18 or minutes > 59 or seconds > 59:
        raise DataError(f"A partition value of type {name} must have a zone offset of at most 18 hours.")
    offset = hours * 3600 + minutes * 60 + seconds
    return -offset if text[0] == "-" else offset


def _shown(text: str) -> str:
    return repr(text) if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]!r}..."


# === Intervals ===

_LITERAL = re.compile(r"INTERVAL '(?P<body>[^']{1,60})' (?P<units>[A-Z]+(?: TO [A-Z]+)?)\Z", re.IGNORECASE)
# What stands before a field other than the first, and how many of the last field's size it has.
_SEPARATORS = {"month": "-", "hour": " ", "minute": ":", "second": ":"}
_SIZES = {
    "year": 12, "month": 1,
    "day": 86_400_000_000, "hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000,
}  # fmt: skip
_MOST = {"month": 11, "hour": 23, "minute": 59, "second": 59}
_BITS = {_YEAR_MONTH: 32, _DAY_TIME: 64}


def _interval(text: str, base: str) -> int:
    """Return the months (``base`` is ``_YEAR_MONTH``) or the microseconds (``_DAY_TIME``) of an interval literal."""
    family = YEAR_MONTH_UNITS if base == _YEAR_MONTH else DAY_TIME_UNITS
    example = "INTERVAL '1-2' YEAR TO MONTH" if base == _YEAR_MONTH else "INTERVAL '1 02:03:04.5' DAY TO SECOND"
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
            raise DataError(f"An interval's {unit}s must be at most {_MOST[unit]} after another field.")
        amount += int(whole) * _SIZES[unit] + int(fraction.ljust(6, "0") or 0)
    amount = -amount if fields["sign"] == "-" else amount
    limit = 1 << (_BITS[base] - 1)
    if not -limit <= amount < limit:
        raise DataError(f"An interval must fit {_BITS[base]} bits of its smallest field.")
    return amount


def _pattern(units: tuple[str, ...]) -> str:
    parts = []
    for position, unit in enumerate(units):
        digits = r"[0-9]{1,19}" + (r"(?:\.[0-9]{1,6})?" if unit == "second" else "")
        parts.append((_SEPARATORS[unit] if position else "") + f"(?P<{unit}>{digits})")
    return r"(?P<sign>[+-]?)" + "".join(parts) + r"\Z"
