"""What Arrow types compare with, and what messages call them."""

from __future__ import annotations

import enum
from collections.abc import Callable

import pyarrow as pa

from delta_sharing_client.arrow_forms import is_bytes, is_text


class Kind(enum.Enum):
    """What a column's type compares with."""

    VOID = "void"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    FLOATING = "floating point"
    DECIMAL = "decimal"
    STRING = "string"
    BINARY = "binary"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMP_NTZ = "timestamp without time zone"
    OTHER = "other"


NUMBERS = frozenset((Kind.INTEGER, Kind.FLOATING, Kind.DECIMAL))


def kind_of(data_type: pa.DataType) -> Kind:
    """Return the :class:`Kind` of an Arrow type; a dictionary's is that of its values."""
    types = pa.types
    if types.is_dictionary(data_type):
        return kind_of(data_type.value_type)
    for matches, kind in _KINDS:
        if matches(data_type):
            return kind
    if types.is_timestamp(data_type) and data_type.unit != "ns":
        return Kind.TIMESTAMP if data_type.tz else Kind.TIMESTAMP_NTZ
    return Kind.OTHER


def describe(data_type: pa.DataType) -> str:
    """Return the name of a type as messages have it: Delta's where it has one."""
    if pa.types.is_dictionary(data_type):
        data_type = data_type.value_type
    kind = kind_of(data_type)
    if kind is Kind.OTHER:
        for test, name in (
            (pa.types.is_struct, "struct"), (pa.types.is_map, "map"), (pa.types.is_nested, "array"),
        ):  # fmt: skip
            if test(data_type):
                return name
        return str(data_type)
    if kind is Kind.DECIMAL:
        return f"decimal({data_type.precision}, {data_type.scale})"
    return str(_NAMES.get(data_type, kind.value))


_KINDS: tuple[tuple[Callable[[pa.DataType], bool], Kind], ...] = (
    (pa.types.is_null, Kind.VOID),
    (pa.types.is_boolean, Kind.BOOLEAN),
    (pa.types.is_integer, Kind.INTEGER),
    (lambda t: pa.types.is_float32(t) or pa.types.is_float64(t), Kind.FLOATING),
    (pa.types.is_decimal, Kind.DECIMAL),
    (is_text, Kind.STRING),
    (is_bytes, Kind.BINARY),
    (pa.types.is_date32, Kind.DATE),
)

_NAMES = {
    pa.int8(): "byte", pa.int16(): "short", pa.int32(): "integer", pa.int64(): "long",
    pa.float32(): "float", pa.float64(): "double", pa.bool_(): "boolean",
}  # fmt: skip
