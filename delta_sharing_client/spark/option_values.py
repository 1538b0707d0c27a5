"""The texts of Spark options, to values; each parser raises ``UsageError`` with the option's name and what fits."""

from __future__ import annotations

import datetime
import re
import zoneinfo
from typing import Literal, Union

from delta_sharing_client.errors import UsageError

Start = Union[int, Literal["latest"], None]

_SIZE = re.compile(r"(\d+)\s*([a-z]*)")
_UNITS = {unit + tail: 1024**power for power, unit in enumerate("kmgtp", 1) for tail in ("", "b")}
_SECONDS = {"": 1, "s": 1, "sec": 1, "second": 1, "seconds": 1, "m": 60, "min": 60, "minute": 60, "minutes": 60}
_SECONDS |= {"h": 3600, "hour": 3600, "hours": 3600}
# What Spark's CAST(text AS TIMESTAMP) reads: a year, month, day or time, then a zone.
_TIMESTAMP = re.compile(
    r"(?P<year>\d{4})(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2})"
    r"(?:[T ](?P<hour>\d{1,2})(?::(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})(?:\.(?P<fraction>\d{1,9}))?)?)?"
    r"\s*(?P<zone>Z|[+-]\d{1,2}(?::?\d{2})?|[A-Za-z][A-Za-z0-9_+\-/]*)?)?)?)?"
)
_OFFSET = re.compile(r"([+-])(\d{1,2})(?::?(\d{2}))?")


def text(name: str, value: str) -> str:
    """Return ``value`` if it says anything."""
    if not value.strip():
        raise UsageError(f"Invalid value {value!r} for option '{name}', must not be empty")
    return value


def product(name: str, value: str) -> str | None:
    """Return ``value`` if it can be part of a User-Agent; ``None`` where it is empty."""
    if not re.fullmatch(r"[ -~]*", value):
        raise UsageError(f"Invalid value {value!r} for option '{name}', must be printable ASCII characters")
    return value.strip() or None


def flag(name: str, value: str) -> bool:
    """Read ``true`` or ``false``, in any case."""
    known = {"true": True, "false": False}
    if value.lower() not in known:
        raise UsageError(f"Invalid value '{value}' for option '{name}', must be 'true' or 'false'")
    return known[value.lower()]


def positive(name: str, value: str) -> int:
    """Read an integer greater than zero."""
    return _integer(name, value, 1, "must be a positive integer")


def version(name: str, value: str) -> int:
    """Read a table version."""
    return _integer(name, value, 0, "must be an integer greater than or equal to zero")


def count(name: str, value: str) -> int:
    """Read a number of rows."""
    return _integer(name, value, 0, "must be an integer greater than or equal to zero")


def starting_version(name: str, value: str) -> Start:
    """Read a table version, or ``latest`` in lower case."""
    if value == "latest":
        return "latest"
    return _integer(name, value, 0, "must be 'latest' or an integer that must be greater than or equal to zero")


def size(name: str, value: str) -> int:
    """Read a size in bytes as the JVM writes it: ``12``, ``12k``, ``10g``."""
    match = _SIZE.fullmatch(value.strip().lower())
    factor = {"": 1, "b": 1, **_UNITS}.get(match[2]) if match else None
    if match is None or factor is None or int(match[1]) == 0:
        raise UsageError(f"Invalid value '{value}' for option '{name}', must be a size configuration such as '10g'")
    return int(match[1]) * factor


def seconds(name: str, value: str) -> int:
    """Read a duration: a number of seconds, or ``30s``, ``5m``, ``1h``."""
    match = re.fullmatch(r"(\d+)\s*([a-z]*)", value.strip().lower())
    factor = _SECONDS.get(match[2]) if match else None
    if match is None or factor is None:
        raise UsageError(f"Invalid value '{value}' for option '{name}', must be a number of seconds such as '30s'")
    return int(match[1]) * factor


def timestamp(name: str, value: str) -> str:
    """Read a timestamp as Spark casts text to one and return it as ISO 8601 in UTC.

    A text without a zone is UTC: a data source is not told the session's time zone.
    """
    match = _TIMESTAMP.fullmatch(value.strip())
    if match is not None:
        try:
            return _instant(match)
        except (ValueError, OverflowError, zoneinfo.ZoneInfoNotFoundError):
            pass
    raise UsageError(
        f"The provided timestamp ('{value}') of option '{name}' cannot be converted to a valid timestamp; "
        "write it as 2024-01-31T12:00:00Z"
    )


def moment(instant: str) -> datetime.datetime:
    """Return a text that ``timestamp`` returned as a moment, to compare."""
    match = _TIMESTAMP.fullmatch(instant)
    assert match is not None
    return _moment(match)


def _moment(match: re.Match[str]) -> datetime.datetime:
    local = datetime.datetime(
        int(match["year"]),
        int(match["month"] or 1),
        int(match["day"] or 1),
        int(match["hour"] or 0),
        int(match["minute"] or 0),
        int(match["second"] or 0),
        int((match["fraction"] or "0")[:6].ljust(6, "0")),
        tzinfo=_zone(match["zone"]),
    )
    return local.astimezone(datetime.timezone.utc)


def _instant(match: re.Match[str]) -> str:
    found = _moment(match)
    fraction = f".{found.microsecond:06d}".rstrip("0") if found.microsecond else ""
    return f"{found.year:04d}-{found:%m-%dT%H:%M:%S}{fraction}Z"


def _zone(zone: str | None) -> datetime.tzinfo:
    if zone is None or zone.upper() in ("Z", "UTC", "GMT"):
        return datetime.timezone.utc
    match = _OFFSET.fullmatch(zone)
    if match is None:
        return zoneinfo.ZoneInfo(zone)
    offset = datetime.timedelta(hours=int(match[2]), minutes=int(match[3] or 0))
    return datetime.timezone(-offset if match[1] == "-" else offset)


def _integer(name: str, value: str, least: int, expectation: str) -> int:
    if not re.fullmatch(r"\s*[+-]?\d{1,19}\s*", value) or not least <= int(value) < 2**63:
        raise UsageError(f"Invalid value '{value}' for option '{name}', {expectation}")
    return int(value)
