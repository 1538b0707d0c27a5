"""ISO-8601 timestamps as profiles and servers write them, to instants."""

from __future__ import annotations

import datetime as dt
import re

# ``datetime.fromisoformat`` of Python 3.10 knows neither "Z" nor fractions of other than 3 or 6 digits.
_ISO = re.compile(
    r"\s*(\d{4})-(\d{1,2})-(\d{1,2})"
    r"(?:[Tt ](\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d+))?)?"
    r"\s*(Z|z|UTC|[+-]\d{2}(?::?\d{2})?)?)?\s*"
)


def parse_timestamp(text: str) -> dt.datetime:
    """Return the instant that an ISO-8601 ``text`` names, in UTC; a text without an offset is UTC already.

    Digits beyond microseconds are cut. Raises ``ValueError`` for anything else.
    """
    match = _ISO.fullmatch(text)
    if match is None:
        raise ValueError(f"Expected an ISO-8601 timestamp such as 2022-01-01T00:00:00Z, found {text!r}.")
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    micros = int((fraction or "0")[:6].ljust(6, "0"))
    local = dt.datetime(
        int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0), micros, dt.timezone.utc
    )
    if zone is None or zone.upper() in {"Z", "UTC"}:
        return local
    offset = dt.timedelta(hours=int(zone[1:3]), minutes=int(zone[3:].lstrip(":") or 0))
    try:
        return local + offset if zone[0] == "-" else local - offset
    except OverflowError as error:
        raise ValueError(f"The timestamp {text!r} is out of range.") from error
