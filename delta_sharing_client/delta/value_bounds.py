"""Converts the minimum and maximum of a column to bounds by type, from the log's statistics and Parquet footers.

A returned bound holds for every non-null value; an uncertain bound is ``None``. Values have the forms of
``delta.statistics.ColumnBounds``: timestamps and times of day are in nanoseconds, whatever the type's own unit.
"""

from __future__ import annotations

import datetime
import decimal
import functools
import math
import re
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple, Optional, Union

import msgspec
import pyarrow as pa

from delta_sharing_client.delta import uuids
from delta_sharing_client.delta.data_types import StructField
from delta_sharing_client.instants import (
    EPOCH,
    EPOCH_NTZ,
    NANOS_PER_DAY,
    NANOS_PER_SECOND,
    OFFSET_ERROR,
    OFFSETS_BELOW_A_MINUTE_END,
    OFFSETS_WITH_SECONDS_END,
    days_of_date,
    parse_timestamp,
)

Convert = Callable[[msgspec.Raw], Any]
Footer = tuple[Any, Any, Optional[float]]
"""Lower bound, upper bound, and the upper bound of all values other than ``NaN``; ``None`` means unknown."""
UNKNOWN: Footer = (None, None, None)
_UNIT_NANOS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1000, "ns": 1}


def ordered(lower: Any, upper: Any) -> tuple[Any, Any]:
    """Return ``(lower, upper)``, or ``(None, None)`` (unknown) if ``lower`` is above ``upper`` or one is ``NaN``.

    Some writers order values differently or swap the bounds, and then neither bound can be trusted.
    """
    if lower is not None and upper is not None and not lower <= upper:
        return None, None
    return lower, upper


# === Statistics in the log (Delta log protocol, "Per-file Statistics") ===


class Converters(NamedTuple):
    """Functions that convert a minimum and a maximum to bounds; ``None`` if they are not usable."""

    lower: Optional[Convert] = None
    upper: Optional[Convert] = None
    floating: bool = False


_MICROSECOND = datetime.timedelta(microseconds=1)
# UTF-16 units; writers truncate text at this length, and the maximum may lack the mark of truncation
_TRUNCATED_TEXT = 32
_OLD_MARK = "\ufffd"  # the character that Delta for Spark before 3.3 appends to a truncated maximum
_DOUBLE_DIGITS = 15  # decimals with more digits may change in a double
_DOUBLE_ERROR = Decimal(2) ** -52
_MOST_DIGITS = 76
_WIDE = decimal.Context(prec=2 * _MOST_DIGITS)


INTEGER: Convert = msgspec.json.Decoder(int).decode
_TEXT = msgspec.json.Decoder(str)
_NUMBER_OR_TEXT = msgspec.json.Decoder(Union[float, str])
_DATE = msgspec.json.Decoder(datetime.date)
_DATETIME = msgspec.json.Decoder(datetime.datetime)


def _text_above(raw: msgspec.Raw) -> str | None:
    text = _TEXT.decode(raw)
    # The old mark indicates a truncation at any length, because the length can be configured. The marks of newer
    # writers, U+007F and U+10FFFF, are greater than the removed text.
    if _utf16_length(text) < _TRUNCATED_TEXT and not text.endswith(_OLD_MARK):
        return text
    # The successor of a prefix is greater than every string that starts with it. The last character, U+10FFFF, has no
    # successor, and writers also append it to truncated text; surrogates are not characters.
    prefix = text.rstrip("\U0010ffff")
    if prefix.endswith(_OLD_MARK):
        # The old mark is greater than the truncated text only in UTF-16 order, and a truncated surrogate
        # pair leaves a question mark.
        prefix = prefix.rstrip("\U0010ffff" + _OLD_MARK).removesuffix("?")
    if not prefix:
        return None
    last = ord(prefix[-1])
    return prefix[:-1] + chr(0xE000 if last == 0xD7FF else last + 1)


def _utf16_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _double(raw: msgspec.Raw) -> float | None:
    value = _NUMBER_OR_TEXT.decode(raw)
    if isinstance(value, str):
        value = {"Infinity": math.inf, "-Infinity": -math.inf}.get(value)
    return None if value is None or math.isnan(value) else value


def _float(raw: msgspec.Raw) -> float | None:
    """Parse the shortest text of a float. Parsed as a double, it would be a different number, possibly on the wrong
    side of the bound."""
    value = _double(raw)
    return None if value is None else _to_float(value)


def _to_float(value: float) -> float | None:
    try:
        (rounded,) = struct.unpack("<f", struct.pack("<f", value))
    except OverflowError:
        return None
    return float(rounded)


def _widened(raw: msgspec.Raw, farther: Callable[[float, float], float]) -> float | None:
    """Return the ``farther`` of the two values that a bound has if it was written as a float or as a double."""
    value = _double(raw)
    if value is None:
        return None
    narrow = _to_float(value)
    return value if narrow is None else farther(value, narrow)


def _was_float(leaf: StructField) -> bool:
    return any(old == "float" for old, _ in leaf.type_changes)


def _decimal(raw: msgspec.Raw) -> Decimal | None:
    value = Decimal(bytes(raw).decode("ascii").strip('"'))
    return value if value.is_finite() and value.adjusted() < _MOST_DIGITS else None


def _decimal_beyond(raw: msgspec.Raw, move: Callable[[Decimal, Decimal], Decimal]) -> Decimal | None:
    """Return the bound, moved outward by the possible error of a double."""
    value = _decimal(raw)
    return None if value is None else move(value, _WIDE.multiply(abs(value), _DOUBLE_ERROR))


def _days(raw: msgspec.Raw) -> int:
    return days_of_date(_DATE.decode(raw))


_SECONDS_OF_OFFSET = re.compile(rb'([+-])\d\d:?\d\d(:?(\d\d))"\Z')


def _timestamp(raw: msgspec.Raw, side: int) -> int | None:
    """Return the lower (``side`` -1) or the upper (``side`` 1) bound for the timestamp ``raw``, in nanoseconds."""
    text = bytes(raw)
    seconds = 0
    if (match := _SECONDS_OF_OFFSET.search(text)) is not None:
        # msgspec rejects offsets with seconds, so they are cut off here and subtracted below.
        seconds = int(match[1] + match[3])
        text = text[: match.start(2)] + b'"'
    moment = _moment(text)
    if moment is None or moment.tzinfo is None:
        return None  # without a zone it could be a local time in any zone
    nanos = (moment - EPOCH) // _MICROSECOND * 1000 - seconds * NANOS_PER_SECOND
    return nanos if match else nanos + side * _offset_error(text, nanos)


def _offset_error(text: bytes, nanos: int) -> int:
    """Return the possible error, in nanoseconds, of a timestamp whose ``text`` has no seconds in its zone's offset.

    Delta for Spark before 4.0 cut them off: it wrote ``+00:53`` for ``+00:53:28``, and ``Z`` for ``-00:00:52``.
    """
    end = OFFSETS_BELOW_A_MINUTE_END if text.endswith((b'Z"', b'z"')) else OFFSETS_WITH_SECONDS_END
    return OFFSET_ERROR if nanos < end else 0


def _timestamp_ntz(raw: msgspec.Raw) -> int | None:
    if len(raw_bytes := bytes(raw)) == 12:  # a date, written before the column was widened
        return _days(msgspec.Raw(raw_bytes)) * NANOS_PER_DAY
    moment = _moment(raw_bytes)
    return None if moment is None or moment.tzinfo is not None else (moment - EPOCH_NTZ) // _MICROSECOND * 1000


def _nanos(raw: msgspec.Raw, zoned: bool, side: int) -> int | None:
    moment = parse_timestamp(_TEXT.decode(raw))
    if moment.zoned is not zoned:
        return None
    if not zoned or _SECONDS_OF_OFFSET.search(text := bytes(raw)):
        return moment.nanoseconds
    return moment.nanoseconds + side * _offset_error(text, moment.nanoseconds)


def _above_millisecond(convert: Convert, in_microsecond: int = 0) -> Convert:
    """Return a function like ``convert`` for the upper bound of values that writers truncate to milliseconds: it
    returns the last nanosecond of that millisecond. Values in nanoseconds may also be truncated to microseconds, in
    which case ``in_microsecond`` is added."""

    def above(raw: msgspec.Raw) -> int | None:
        nanos = convert(raw)
        if nanos is None or nanos % 1000:
            return nanos
        return nanos + (in_microsecond if nanos % 1_000_000 else 999_999)

    return above


def _moment(text: bytes) -> datetime.datetime | None:
    fraction = text.partition(b".")[2]
    if fraction[:7].isdigit() and len(fraction) >= 7:
        return None  # finer than microseconds, so it would be rounded
    return _DATETIME.decode(text)


def _always(
    lower: Convert | None = None, upper: Convert | None = None, *, floating: bool = False
) -> Callable[[StructField], Converters]:
    """Return a function that returns these converters for every column; ``upper`` defaults to ``lower``."""
    converters = Converters(lower, upper or lower, floating)
    return lambda leaf: converters


no_statistics = _always()
"""For types whose statistics in the log are not used."""
integer_statistics = _always(INTEGER)
boolean_statistics = _always(msgspec.json.Decoder(bool).decode)
date_statistics = _always(_days)
timestamp_statistics = _always(
    functools.partial(_timestamp, side=-1), _above_millisecond(functools.partial(_timestamp, side=1))
)
timestamp_ntz_statistics = _always(_timestamp_ntz, _above_millisecond(_timestamp_ntz))
float_statistics = _always(_float, floating=True)


def nanos_statistics(zoned: bool) -> Callable[[StructField], Converters]:
    lower, upper = (functools.partial(_nanos, zoned=zoned, side=side) for side in (-1, 1))
    return _always(lower, _above_millisecond(upper, 999))


def text_statistics(leaf: StructField) -> Converters:
    return Converters() if leaf.collation is not None else Converters(_TEXT.decode, _text_above)


def double_statistics(leaf: StructField) -> Converters:
    if _was_float(leaf):
        return Converters(
            functools.partial(_widened, farther=min), functools.partial(_widened, farther=max), floating=True
        )
    return Converters(_double, _double, floating=True)


def decimal_statistics(leaf: StructField) -> Converters:
    if leaf.type.precision <= _DOUBLE_DIGITS:  # type: ignore[union-attr]
        return Converters(_decimal, _decimal)
    return Converters(
        functools.partial(_decimal_beyond, move=_WIDE.subtract), functools.partial(_decimal_beyond, move=_WIDE.add)
    )


# === Parquet footers (Apache Parquet, "Statistics"): from plain values and the Arrow type of the Parquet column ===


def no_footer(lower: Any, upper: Any, stored: pa.DataType) -> Footer:
    return UNKNOWN


def _footer_of(
    fits: Callable[[pa.DataType], bool], convert: Callable[[Any], Any]
) -> Callable[[Any, Any, pa.DataType], Footer]:
    def footer(lower: Any, upper: Any, stored: pa.DataType) -> Footer:
        return _footer(convert(lower), convert(upper)) if fits(stored) else UNKNOWN

    return footer


integer_footer = _footer_of(pa.types.is_signed_integer, int)
boolean_footer = _footer_of(pa.types.is_boolean, bool)
date_footer = _footer_of(pa.types.is_date32, int)


def uuid_footer(lower: Any, upper: Any, stored: pa.DataType) -> Footer:
    # Parquet orders UUIDs as unsigned bytes.
    is_stored = stored == uuids.STORED and isinstance(lower, bytes)
    low, high = (uuids.text_of(lower), uuids.text_of(upper)) if is_stored else (None, None)
    return UNKNOWN if low is None or high is None else _footer(low, high)


def text_footer(lower: Any, upper: Any, stored: pa.DataType) -> Footer:
    is_text = pa.types.is_string(stored) and isinstance(lower, bytes)
    return _footer(lower.decode(), upper.decode()) if is_text else UNKNOWN


def binary_footer(lower: Any, upper: Any, stored: pa.DataType) -> Footer:
    return _footer(lower, upper) if pa.types.is_binary(stored) and isinstance(lower, bytes) else UNKNOWN


def _nanos_footer_of(is_stored: Callable[[pa.DataType], bool]) -> Callable[[Any, Any, pa.DataType], Footer]:
    def footer(lower: Any, upper: Any, stored: pa.DataType) -> Footer:
        if not is_stored(stored) or not isinstance(lower, int):
            return UNKNOWN
        size = _UNIT_NANOS[stored.unit]
        return _footer(lower * size, upper * size)

    return footer


timestamp_footer = _nanos_footer_of(pa.types.is_timestamp)
time_footer = _nanos_footer_of(pa.types.is_time)


def timestamp_ntz_footer(lower: Any, upper: Any, stored: pa.DataType) -> Footer:
    if pa.types.is_date32(stored):
        return _footer(int(lower) * NANOS_PER_DAY, int(upper) * NANOS_PER_DAY)
    return timestamp_footer(lower, upper, stored)


def floating_footer(lower: Any, upper: Any, stored: pa.DataType) -> Footer:
    # Integers of 64 bits may not be exact as floats.
    if stored not in (pa.float32(), pa.float64(), pa.int8(), pa.int16(), pa.int32()):
        return UNKNOWN
    low, high = ordered(float(lower), float(upper))
    return low, None, high


def decimal_footer(lower: Any, upper: Any, stored: pa.DataType) -> Footer:
    if not (pa.types.is_decimal(stored) or pa.types.is_signed_integer(stored)):
        return UNKNOWN
    return _footer(_of_decimal(lower, stored), _of_decimal(upper, stored))


def _footer(lower: Any, upper: Any) -> Footer:
    return (*ordered(lower, upper), None)


def _of_decimal(value: Any, stored: pa.DataType) -> Decimal:
    if pa.types.is_signed_integer(stored):
        return Decimal(int(value))
    unscaled = value if isinstance(value, int) else int.from_bytes(value, "big", signed=True)
    return Decimal(unscaled).scaleb(-stored.scale, decimal.Context(prec=78))
