"""The changes of a column's type that a reader supports (Delta log protocol, "Type Widening")."""

from __future__ import annotations

from delta_sharing_client.delta.data_types import (
    ColumnPath,
    DataType,
    DecimalType,
    PrimitiveType,
    StructType,
    children,
    is_void,
)
from delta_sharing_client.delta.schema import simple_type
from delta_sharing_client.errors import UnsupportedFeatureError

_INTEGER_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 20}
_WIDENINGS = {
    "byte": ("short", "integer", "long", "double"),
    "short": ("integer", "long", "double"),
    "integer": ("long", "double"),
    "float": ("double",),
    "date": ("timestamp_ntz",),
}


def holds(new: DataType, old: DataType) -> bool:
    """Return whether a column of type ``new`` can represent every value of ``old`` (Delta log protocol,
    "Supported Type Changes" and "Void Type").
    """
    if is_void(old):
        return True  # the old column has only nulls
    if isinstance(new, DecimalType):
        if isinstance(old, DecimalType):
            return new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale
        digits = _INTEGER_DIGITS.get(old.base) if isinstance(old, PrimitiveType) else None
        # The specification assumes 20 digits for any long.
        return digits is not None and new.precision - new.scale >= digits
    if not isinstance(new, PrimitiveType) or not isinstance(old, PrimitiveType):
        return False
    if new.coordinates != old.coordinates:
        return False  # the same coordinates would mean a different place
    return new.base == old.base or new.base in _WIDENINGS.get(old.base, ())


def check_type_changes(data_type: DataType, above: ColumnPath = ()) -> None:
    """Refuse a schema with a column whose type was changed to one that cannot hold the earlier values (Delta log
    protocol, "Reader Requirements for Type Widening").

    Raises ``UnsupportedFeatureError``, which names the column and both types.
    """
    for item in data_type.fields if isinstance(data_type, StructType) else ():
        path = (*above, item.name)
        for old, new in item.type_changes:
            before = simple_type(old, path)
            # A void column may have become a nested one, whose type is not a simple name.
            if not is_void(before) and not holds(simple_type(new, path), before):
                raise UnsupportedFeatureError(
                    f"The type of column {'.'.join(path)!r} was changed from {old} to {new}, which the Delta protocol "
                    "does not allow as a widening, so values in older files may be lost. Upgrade the client, or ask "
                    "the provider to rewrite the table.",
                    feature=f"type change from {old} to {new}",
                )
    for name, child in children(data_type):
        check_type_changes(child, (*above, name))
