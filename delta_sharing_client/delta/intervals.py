"""ANSI interval literals, as partition values hold them: ``INTERVAL '1-2' YEAR TO MONTH`` (Delta RFC "Interval Types").

A year-month interval is a signed number of months, a day-time interval one of microseconds. Spark writes each in the
fields of its type, so ``INTERVAL '25' MONTH`` and ``INTERVAL '25:03:04.5' HOUR TO SECOND`` are read as well.
"""

from __future__ import annotations

import re

from delta_sharing_client.delta.data_types import DAY_TIME_UNITS, YEAR_MONTH_UNITS
from delta_sharing_client.errors import DataError

YEAR_MONTH = "year_month_interval"
DAY_TIME = "day_time_interval"

_LITERAL = re.compile(r"INTERVAL '(?P<body>[^']{1,60})' (?P<units>[A-Z]+(?: TO [A-Z]+)?)\Z", re.IGNORECASE)
# What stands before a field other than the first, and how many of the last field's size it has.
_SEPARATORS = {"month": "-", "hour": " ", "minute": ":", "second": ":"}
_SIZES = {
    "year": 12, "month": 1,
    "day": 86_400_000_000, "hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000,
}  # fmt: skip
_MOST = {"month": 11, "hour": 23, "minute": 59, "second": 59}
_BITS = {YEAR_MONTH: 32, DAY_TIME: 64}


def parse_interval(text: str, base: str) -> int:
    """Return the months (``base`` is ``YEAR_MONTH``) or the microseconds (``DAY_TIME``) of an interval literal.

    Raises
    ------
    DataError
        The text is no literal of this kind, or outside the range of 32 or 64 bits.
    """
    family = YEAR_MONTH_UNITS if base == YEAR_MONTH else DAY_TIME_UNITS
    example = "INTERVAL '1-2' YEAR TO MONTH" if base == YEAR_MONTH else "INTERVAL '1 02:03:04.5' DAY TO SECOND"
    literal = _LITERAL.match(text)
    ends = literal["units"].lower().split(" to ") if literal else [""]
    if literal is None or any(unit not in family for unit in ends):
        raise DataError(f"an interval must be a literal such as {example}")
    units = family[family.index(ends[0]) : family.index(ends[-1]) + 1]
    fields = re.match(_pattern(units), literal["body"]) if units else None
    if fields is None:
        raise DataError(f"an interval must be a literal such as {example}")
    amount = 0
    for position, unit in enumerate(units):
        whole, _, fraction = fields[unit].partition(".")
        if position and int(whole) > _MOST[unit]:
            raise DataError(f"an interval's {unit}s must be at most {_MOST[unit]} after another field")
        amount += int(whole) * _SIZES[unit] + int(fraction.ljust(6, "0") or 0)
    amount = -amount if fields["sign"] == "-" else amount
    limit = 1 << (_BITS[base] - 1)
    if not -limit <= amount < limit:
        raise DataError(f"an interval must fit {_BITS[base]} bits of its smallest field")
    return amount


def interval_text(amount: int, base: str) -> str:
    """Return the literal of ``amount`` months or microseconds; the opposite of :func:`parse_interval`."""
    sign, size = "-" if amount < 0 else "", abs(amount)
    if base == YEAR_MONTH:
        return f"INTERVAL '{sign}{size // 12}-{size % 12}' YEAR TO MONTH"
    days, rest = divmod(size, _SIZES["day"])
    hours, rest = divmod(rest, _SIZES["hour"])
    minutes, rest = divmod(rest, _SIZES["minute"])
    seconds, micros = divmod(rest, _SIZES["second"])
    return f"INTERVAL '{sign}{days} {hours:02d}:{minutes:02d}:{seconds:02d}.{micros:06d}' DAY TO SECOND"


def _pattern(units: tuple[str, ...]) -> str:
    parts = []
    for position, unit in enumerate(units):
        digits = r"[0-9]{1,19}" + (r"(?:\.[0-9]{1,6})?" if unit == "second" else "")
        parts.append((_SEPARATORS[unit] if position else "") + f"(?P<{unit}>{digits})")
    return r"(?P<sign>[+-]?)" + "".join(parts) + r"\Z"
