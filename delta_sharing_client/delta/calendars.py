"""Dates and timestamps in Spark's hybrid calendar, which is Julian before 15 October 1582.

Spark 2 wrote files in it, and later versions do if ``spark.sql.parquet.datetimeRebaseModeInWrite`` requests it; keys
``org.apache.spark.*`` in the file's footer record this. Delta always uses the Gregorian calendar of ISO 8601, in which
the same date is a different number. Dates are converted exactly. Timestamps before 1900 are converted only if the
writer's time zone was UTC: for other zones the conversion depends on the offsets in the writer's Java, so these
timestamps are refused.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delta_sharing_client.errors import DataError
from delta_sharing_client.instants import MICROS_PER_DAY

_VERSION = b"org.apache.spark.version"
_ROW_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
_LEGACY_DATES = b"org.apache.spark.legacyDateTime"
_LEGACY_INT96 = b"org.apache.spark.legacyINT96"
_ZONE = b"org.apache.spark.timeZone"
_UTC = ("UTC", "Etc/UTC", "GMT", "Z", "Etc/GMT", "UTC+0", "+00:00")
_SWITCH = -141_427  # 15 October 1582, in days since 1970
_AGREED_MICROS = -2_208_988_800_000_000  # 1900: later timestamps are the same in both calendars, in every time zone
_JULIAN_MARCH = 719_470  # days from 1 March of the Julian year 0 to 1970


@dataclass(frozen=True, slots=True)
class HybridCalendar:
    """Which values of a file use the hybrid calendar, and the time zone of its writer.

    ``numbers`` is true if dates (INT32) and INT64 timestamps use it, ``int96`` if INT96 timestamps do.
    """

    numbers: bool
    int96: bool
    zone: str | None

    def concerns(self, stored: pa.DataType) -> bool:
        """Return whether a column that the Parquet reader returns as the type ``stored`` uses the hybrid calendar.

        The reader returns INT64 timestamps of Spark with a time zone, and INT96 timestamps without one.
        """
        if pa.types.is_timestamp(stored):
            return self.int96 if stored.tz is None else self.numbers
        return self.numbers and pa.types.is_date32(stored)

    def instants(self, array: pa.TimestampArray) -> pa.TimestampArray:
        """Convert timestamps in microseconds to the calendar of ISO 8601.

        Raises ``DataError`` if one is before 1900 and the writer's time zone was not UTC.
        """
        oldest = pc.min(array.view(pa.int64())).as_py()
        if oldest is None or oldest >= _AGREED_MICROS:
            return array
        if self.zone not in _UTC:
            raise DataError(
                "The file has timestamps before 1900 in Spark's hybrid calendar, written in "
                f"{f'the time zone {self.zone!r}' if self.zone else 'an unknown time zone'}, so they are "
                "ambiguous. Ask the provider to rewrite the file with a newer version of Spark."
            )
        micros = _numbers(array, pa.int64())
        days, rest = np.divmod(micros, MICROS_PER_DAY)
        return _with_numbers(array, _gregorian(days) * MICROS_PER_DAY + rest)


def hybrid_calendar(keys: Mapping[bytes, bytes] | None) -> HybridCalendar | None:
    """Return which values use the hybrid calendar in a file whose footer has ``keys``; ``None`` if no value does."""
    if not keys:
        return None
    if _VERSION in keys:
        version = _version(keys[_VERSION])
        numbers = version < (3, 0) or _LEGACY_DATES in keys
        int96 = version < (3, 1) or _LEGACY_INT96 in keys
    else:
        # Spark has recorded its version since 2.4.6; older versions only wrote the schema of their rows.
        numbers = int96 = _ROW_SCHEMA in keys
    if not numbers and not int96:
        return None
    zone = keys.get(_ZONE)
    return HybridCalendar(numbers, int96, None if zone is None else zone.decode("utf-8", "replace"))


def gregorian_dates(array: pa.Date32Array) -> pa.Date32Array:
    """Convert dates from the hybrid calendar to ISO 8601: the same year, month and day.

    A 29 February that the Gregorian calendar lacks (in 1500, 1400, 1300, 1100, ...) becomes 1 March, as in Spark.
    """
    oldest = pc.min(array.view(pa.int32())).as_py()
    if oldest is None or oldest >= _SWITCH:
        return array
    return _with_numbers(array, _gregorian(_numbers(array, pa.int32()).astype(np.int64)).astype(np.int32))


def _gregorian(days: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    # Years start in March, so that a leap day is the last day of its year. The Gregorian calendar lacks three leap days
    # in four centuries; 1 March of the year 200 is the same day in both calendars.
    year = (4 * (days + _JULIAN_MARCH) + 3) // 1461
    drift = year // 100 - year // 400 - 2
    return np.where(days < _SWITCH, days - drift, days)


def _numbers(array: pa.Array, storage: pa.DataType) -> npt.NDArray[np.int64]:
    # The values behind nulls are meaningless.
    filled: npt.NDArray[np.int64] = array.view(storage).fill_null(_SWITCH).to_numpy()
    return filled


def _with_numbers(array: pa.Array, numbers: npt.NDArray[np.generic]) -> pa.Array:
    nulls = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return pa.array(numbers, mask=nulls).view(array.type)


def _version(text: bytes) -> tuple[int, ...]:
    match = re.match(rb"(\d{1,4})\.(\d{1,4})", text)
    # A version that cannot be parsed does not mean an old one.
    return tuple(map(int, match.groups())) if match else (sys.maxsize,)
