"""Minimum and maximum statistics of one column as true bounds, by type.

Each converter takes the JSON of one value and returns a comparable value, or ``None`` where the value promises nothing;
msgspec's errors, ``ValueError`` and ``ArithmeticError`` mean that it is not of the type.
"""

from __future__ import annotations

import datetime
import decimal
import math
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple, Optional, Union

import msgspec

from delta_sharing_client.delta.civil_time import MICROS_PER_DAY
from delta_sharing_client.delta.data_types import DecimalType, PrimitiveType, StructField

Convert = Callable[[msgspec.Raw], Any]


class BoundConverters(NamedTuple):
    """How the minimum and the maximum of a column become bounds; ``None`` where the type has no usable ones."""

    lower: Optional[Convert] = None
    upper: Optional[Convert] = None
    floating: bool = False


TYPE_CHANGES_KEY = "delta.typeChanges"

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_EPOCH_NTZ = datetime.datetime(1970, 1, 1)
_EPOCH_ORDINAL = datetime.date(1970, 1, 1).toordinal()
_MICROSECOND = datetime.timedelta(microseconds=1)
_TRUNCATED_TEXT = 32  # UTF-16 units; writers cut text at this length, and the maximum may lack a mark of it
_DOUBLE_DIGITS = 15  # decimals of more digits may not survive a double
_DOUBLE_ERROR = Decimal(2) ** -52
_MOST_DIGITS = 76
_WIDE = decimal.Context(prec=2 * _MOST_DIGITS)
_INTEGERS = ("long", "integer", "short", "byte")


def converters(leaf: StructField) -> BoundConverters:
    """Return the converters of a column."""
    data_type = leaf.type
    if isinstance(data_type, DecimalType):
        if data_type.precision <= _DOUBLE_DIGITS:
            return BoundConverters(_decimal, _decimal)
        return BoundConverters(_decimal_below, _decimal_above)
    if not isinstance(data_type, PrimitiveType):
        return BoundConverters()
    base = data_type.base
    if base in _INTEGERS:
        return BoundConverters(INTEGER, INTEGER)
    if base == "string" and leaf.collation is None:
        return BoundConverters(_TEXT.decode, _text_above)
    if base == "double":
        if _was_float(leaf):
            return BoundConverters(_widened_below, _widened_above, floating=True)
        return BoundConverters(_double, _double, floating=True)
    lower, upper = _BOUNDS.get(base, (None, None))
    return BoundConverters(lower, upper, floating=base == "float")


INTEGER: Convert = msgspec.json.Decoder(int).decode
_TEXT = msgspec.json.Decoder(str)
_BOOL = msgspec.json.Decoder(bool)
_NUMBER_OR_TEXT = msgspec.json.Decoder(Union[float, str])
_DATE = msgspec.json.Decoder(datetime.date)
_DATETIME = msgspec.json.Decoder(datetime.datetime)


def _text_above(raw: msgspec.Raw) -> str | None:
    text = _TEXT.decode(raw)
    if _utf16_length(text) < _TRUNCATED_TEXT:
        return text
    # The successor of a prefix is above everything that starts with it. The last character of all has no successor, and
    # is also the mark that writers put after what they cut; surrogates are no characters.
    prefix = text.rstrip("\U0010ffff")
    if prefix.endswith("\ufffd"):
        # The mark of older writers is above what they cut in the order of UTF-16 only; and they may have cut a pair of
        # surrogates in two, of which a question mark is left.
        prefix = prefix.rstrip("\U0010ffff\ufffd").removesuffix("?")
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
    """The text is the shortest that names the float; its double is another number, possibly on the wrong side."""
    value = _double(raw)
    return None if value is None else _to_float(value)


def _to_float(value: float) -> float | None:
    try:
        (rounded,) = struct.unpack("<f", struct.pack("<f", value))
    except OverflowError:
        return None
    return float(rounded)


def _widened_below(raw: msgspec.Raw) -> float | None:
    value = _double(raw)
    narrow = None if value is None else _to_float(value)
    return value if value is None or narrow is None else min(value, narrow)


def _widened_above(raw: msgspec.Raw) -> float | None:
    value = _double(raw)
    narrow = None if value is None else _to_float(value)
    return value if value is None or narrow is None else max(value, narrow)


def _was_float(leaf: StructField) -> bool:
    changes = leaf.metadata.get(TYPE_CHANGES_KEY)
    if not isinstance(changes, (list, tuple)):
        return False
    return any(isinstance(change, dict) and change.get("fromType") == "float" for change in changes)


def _decimal(raw: msgspec.Raw) -> Decimal | None:
    value = Decimal(bytes(raw).decode("ascii").strip('"'))
    return value if value.is_finite() and value.adjusted() < _MOST_DIGITS else None


def _decimal_below(raw: msgspec.Raw) -> Decimal | None:
    value = _decimal(raw)
    return None if value is None else _WIDE.subtract(value, _WIDE.multiply(abs(value), _DOUBLE_ERROR))


def _decimal_above(raw: msgspec.Raw) -> Decimal | None:
    value = _decimal(raw)
    return None if value is None else _WIDE.add(value, _WIDE.multiply(abs(value), _DOUBLE_ERROR))


def _days(raw: msgspec.Raw) -> int:
    return _DATE.decode(raw).toordinal() - _EPOCH_ORDINAL


def _timestamp(raw: msgspec.Raw) -> int | None:
    moment = _moment(raw)
    # Without a zone it could be that of any writer.
    return None if moment is None or moment.tzinfo is None else (moment - _EPOCH) // _MICROSECOND


def _timestamp_above(raw: msgspec.Raw) -> int | None:
    return _above_milliseconds(_timestamp(raw))


def _timestamp_ntz(raw: msgspec.Raw) -> int | None:
    if len(raw_bytes := bytes(raw)) == 12:  # a date, from before the column was widened
        return _days(msgspec.Raw(raw_bytes)) * MICROS_PER_DAY
    moment = _moment(raw)
    return None if moment is None or moment.tzinfo is not None else (moment - _EPOCH_NTZ) // _MICROSECOND


def _timestamp_ntz_above(raw: msgspec.Raw) -> int | None:
    return _above_milliseconds(_timestamp_ntz(raw))


def _moment(raw: msgspec.Raw) -> datetime.datetime | None:
    fraction = bytes(raw).partition(b".")[2]
    if fraction[:7].isdigit() and len(fraction) >= 7:
        return None  # finer than microseconds: it would be rounded
    return _DATETIME.decode(raw)


def _above_milliseconds(micros: int | None) -> int | None:
    return micros if micros is None or micros % 1000 else micros + 999


_BOUNDS: dict[str, tuple[Convert, Convert]] = {
    "float": (_float, _float),
    "boolean": (_BOOL.decode, _BOOL.decode),
    "date": (_days, _days),
    "timestamp": (_timestamp, _timestamp_above),
    "timestamp_ntz": (_timestamp_ntz, _timestamp_ntz_above),
}
