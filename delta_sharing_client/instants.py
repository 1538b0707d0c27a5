"""Instants: ISO 8601 text to a time in UTC, and back to the one form of the protocol's "Timestamp Format" section."""

from __future__ import annotations

import datetime
import re

from delta_sharing_client.errors import UsageError

# ``datetime.fromisoformat`` of Python 3.10 knows neither "Z" nor fractions of other than 3 or 6 digits.
_ISO = re.compile(
    r"\s*(\d{4})-(\d{1,2})-(\d{1,2})"
    r"(?:[Tt ](\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d+))?)?"
    r"\s*(Z|z|UTC|[+-]\d{2}(?::?\d{2})?)?)?\s*"
)


def parse_instant(text: str) -> datetime.datetime:
    """Return the instant that an ISO 8601 ``text`` names, in UTC; a text without an offset is UTC already.

    A date alone is its midnight; digits beyond microseconds are cut. Raises ``ValueError`` for anything else.
    """
    match = _ISO.fullmatch(text)
    if match is None:
        raise ValueError(f"Expected an ISO 8601 timestamp such as 2022-01-01T00:00:00Z, found {text!r}.")
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    micros = int((fraction or "0")[:6].ljust(6, "0"))
    clock = (int(hour or 0), int(minute or 0), int(second or 0), micros)
    local = datetime.datetime(int(year), int(month), int(day), *clock, tzinfo=datetime.timezone.utc)
    if zone is None or zone.upper() in {"Z", "UTC"}:
        return local
    offset = datetime.timedelta(hours=int(zone[1:3]), minutes=int(zone[3:].lstrip(":") or 0))
    try:
        return local + offset if zone[0] == "-" else local - offset
    except OverflowError as error:
        raise ValueError(f"The timestamp {text!r} is out of range.") from error


def to_instant(value: str | datetime.datetime | datetime.date, name: str) -> str:
    """Return ``value`` as ISO 8601 in UTC, such as ``2022-01-01T00:00:00Z``.

    Parameters
    ----------
    value:
        ISO 8601 text (a date alone is its midnight), a ``datetime`` or a ``date``. Without a zone it is UTC.
    name:
        The argument's name, for the error.

    Raises
    ------
    UsageError
        If the value is none of these.
    """
    if isinstance(value, datetime.datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=datetime.timezone.utc)
    elif isinstance(value, datetime.date):
        moment = datetime.datetime(value.year, value.month, value.day, tzinfo=datetime.timezone.utc)
    else:
        try:
            moment = parse_instant(value)
        except (TypeError, ValueError):
            raise UsageError(
                f"{name} must be a datetime or ISO 8601 text such as '2024-01-31T12:00:00Z', found {value!r}"
            ) from None
    moment = moment.astimezone(datetime.timezone.utc)
    fraction = f".{moment.microsecond:06d}".rstrip("0") if moment.microsecond else ""
    return f"{moment.year:04d}-{moment:%m-%dT%H:%M:%S}{fraction}Z"
