"""Parses partition values (Delta log protocol, "Partition Value Serialization").

A value is parsed as the column's *current* type, so values written before a type was widened (``5`` in a column that is
``long`` or ``decimal`` now, ``2020-01-01`` for ``timestamp_ntz``) need no special case. ``delta.type_rows`` has the
parser of each type.
"""

from __future__ import annotations

import pyarrow as pa

from delta_sharing_client.delta.data_types import DataType
from delta_sharing_client.delta.schema import to_arrow_type
from delta_sharing_client.delta.type_rows import row_of
from delta_sharing_client.delta.value_texts import ESCAPED_BINARY
from delta_sharing_client.errors import DataError

_LONGEST_SHOWN = 60


def parse_partition_value(
    text: str | None, data_type: DataType, *, column: str | None = None, empty_is_null: bool = True
) -> object:
    """Return the Python value of a serialized partition value; errors name ``column``.

    The value is an ``int``, ``float``, ``bool``, ``str``, ``bytes`` or :class:`~decimal.Decimal` (with the type's
    scale). A date is the number of days since 1970, a timestamp the number of the type's own units (micro- or
    nanoseconds) since 1970, a time of day the microseconds since midnight, and an interval its months or
    microseconds. ``None`` is null; so is the empty string if ``empty_is_null``, as in a Delta table. Raises
    ``DataError`` for a string that is not a value of the type, or that is out of its range.
    """
    if text is None or (empty_is_null and not text):
        return None
    row = row_of(data_type)
    try:
        if row is None:
            raise DataError("A partition column must not have a nested type.")
        if row.text is None:
            name = data_type.name  # type: ignore[union-attr]
            raise DataError(f"A partition column must not have the type {name!r}.")
        return row.text(text, data_type)
    except DataError as error:
        where = "" if column is None else f" in column {column!r}"
        shown = repr(text) if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]!r}..."
        raise DataError(f"{error.message} Found {shown}{where}.") from None


def binary_text(value: bytes) -> str | None:
    """Return the text of ``value`` in a log; ``None`` if it is empty, which a log cannot distinguish from null."""
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if value and (not text or ESCAPED_BINARY.match(text)):
        return "".join(f"\\u{byte:04X}" for byte in value)
    return text or None


def partition_bound(
    text: str | None, data_type: DataType, *, column: str | None = None, empty_is_null: bool = True
) -> object:
    """Return a partition value in the form of ``ColumnBounds``: timestamps and times of day in nanoseconds."""
    value = parse_partition_value(text, data_type, column=column, empty_is_null=empty_is_null)
    is_micros = to_arrow_type(data_type) in (pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.time64("us"))
    return value * 1000 if is_micros and isinstance(value, int) else value
