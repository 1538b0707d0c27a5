"""Partition values: text of the log to typed values (Delta log protocol, "Partition Value Serialization").

The column's *current* type decides how a text is read, so a value written before a type was widened (``5`` under a
column that is ``long`` or ``decimal`` now, ``2020-01-01`` under ``timestamp_ntz``) needs no special case. How each type
is read is in its row of ``delta.data_types``.
"""

from __future__ import annotations

import pyarrow as pa

from delta_sharing_client.delta.data_types import DataType, DecimalType, PrimitiveType, row_of
from delta_sharing_client.delta.schema import to_arrow_type
from delta_sharing_client.delta.value_texts import ESCAPED_BINARY
from delta_sharing_client.errors import DataError

_LONGEST_SHOWN = 60


def parse_partition_value(text: str | None, data_type: DataType, *, column: str | None = None) -> object:
    """Return the Python value of a serialized partition value.

    ``int``, ``float``, ``bool``, ``str``, ``bytes`` and :class:`~decimal.Decimal` (with the type's scale). Dates and
    timestamps are ``int``: days, or the type's own unit (micro- or nanoseconds), since 1970; so are intervals: months,
    or microseconds. ``None`` and
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
    if value and (not text or ESCAPED_BINARY.match(text)):
        return "".join(f"\\u{byte:04X}" for byte in value)
    return text or None


def partition_bound(text: str | None, data_type: DataType, *, column: str | None = None) -> object:
    """Return the same as ``ColumnBounds`` has it: timestamps in nanoseconds."""
    value = parse_partition_value(text, data_type, column=column)
    row = row_of(data_type)
    is_micros = row is not None and pa.types.is_timestamp(row.arrow) and row.arrow.unit == "us"
    return value * 1000 if is_micros and isinstance(value, int) else value


def _parse(text: str, data_type: DataType) -> object:
    row = row_of(data_type)
    if row is None:
        raise DataError("A partition column must have a simple type, not a nested one.")
    if row.text is None:
        assert isinstance(data_type, (PrimitiveType, DecimalType))
        raise DataError(f"A partition column must have a simple type, found {getattr(data_type, 'name', 'decimal')!r}.")
    return row.text(text, data_type)


def _shown(text: str) -> str:
    return repr(text) if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]!r}..."
