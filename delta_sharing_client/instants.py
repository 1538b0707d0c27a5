"""Timestamps as callers give them, in the one form that the protocol's "Timestamp Format" section accepts."""

from __future__ import annotations

import datetime
import re

from delta_sharing_client.errors import UsageError

_ISO = re.compile(
    r"(?P<date>\d{4}-\d{2}-\d{2})"
    r"(?:[T ](?P<hour>\d{2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:\.(?P<fraction>\d{1,9}))?)?"
    r"\s*(?P<zone>Z|z|[+-]\d{2}:?\d{2})?)?"
)


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
        moment = _parse(value, name)
    moment = moment.astimezone(datetime.timezone.utc)
    fraction = f".{moment.microsecond:06d}".rstrip("0") if moment.microsecond else ""
    return f"{moment.year:04d}-{moment:%m-%dT%H:%M:%S}{fraction}Z"


def _parse(value: object, name: str) -> datetime.datetime:
    match = _ISO.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise UsageError(
            f"{name} must be a datetime or ISO 8601 text such as '2024-01-31T12:00:00Z', found {value!r}"
        )
    date, fraction, zone = match["date"], (match["fraction"] or "0")[:6].ljust(6, "0"), match["zone"]
    clock = f"{match['hour'] or '00'}:{match['minute'] or '00'}:{match['second'] or '00'}.{fraction}"
    offset = "+0000" if zone in (None, "Z", "z") else zone.replace(":", "")
    try:
        return datetime.datetime.strptime(f"{date} {clock} {offset}", "%Y-%m-%d %H:%M:%S.%f %z")
    except ValueError:
        raise UsageError(f"{name} {value!r} is not a date and time that exists") from None
