"""Converts variant columns to JSON text or Python objects, from every form in which a file stores them.

A variant column is a struct of ``metadata`` and ``value`` (binary, in either order) and, if shredded, ``typed_value``
(Parquet "Variant Binary Encoding" and "Variant Shredding"). A null struct is SQL's null; a variant with the JSON value
``null`` becomes the text ``null``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Union

import pyarrow as pa
import pyarrow.compute as pc

from delta_sharing_client.arrow_forms import count_true, is_bytes, is_text
from delta_sharing_client.delta.type_rows import VARIANT_ARROW_TYPE
from delta_sharing_client.delta.variant.encoding import (
    DECIMALS,
    VARIANT_NULL,
    Primitive,
    VariantMetadata,
    decode,
    decode_json,
    encode_array,
    encode_object,
    is_object,
    layout,
    size_of,
    write_primitive,
)
from delta_sharing_client.errors import DataError

_LONGEST_COLUMN = (1 << 31) - 1  # bytes of text in one Arrow string array


def variant_to_json(array: pa.Array) -> pa.StringArray:
    """Return a variant column, shredded or not, as JSON text in the form of Spark's ``to_json``.

    Numbers keep all their digits, ``NaN`` and infinities are strings, dates and times are strings (timestamps in UTC),
    binary is Base64. Null structs are null. Raises ``DataError`` if a value is not a valid variant, or the array is not
    a variant column.
    """
    plain, parse = unshred(array), _MetadataCache()
    texts: list[str | None] = []
    size = 0
    columns = (plain.field(name).to_pylist() for name in ("metadata", "value"))
    for valid, metadata, value in zip(_valid(plain), *columns, strict=True):
        if not valid:
            texts.append(None)
            continue
        text = decode_json(value, parse(metadata))
        size += len(text)
        if size > _LONGEST_COLUMN:
            raise DataError("The JSON text of one batch must stay below 2 GiB: read smaller batches.")
        texts.append(text)
    try:
        return pa.array(texts, pa.large_string()).cast(pa.string())
    except pa.ArrowInvalid:
        raise DataError("The JSON text of one batch must stay below 2 GiB: read smaller batches.") from None


def variant_to_python(value: bytes, metadata: bytes) -> object:
    """Return one unshredded variant as Python objects; ``DataError`` if the bytes are not a valid variant.

    An object becomes a ``dict``, an array a ``list``, a decimal a :class:`~decimal.Decimal`, a UUID a
    :class:`~uuid.UUID`, and a date or time an object of :mod:`datetime`, or text if that cannot represent it exactly.
    """
    return decode(bytes(value), VariantMetadata(bytes(metadata)))


def unshred(array: pa.Array) -> pa.StructArray:
    """Return a variant column as ``struct<metadata: binary, value: binary>``, with typed values reassembled.

    Raises ``DataError`` if it is not a variant column, or ``value`` and ``typed_value`` contradict each other.
    """
    storage = _storage_of(array)
    valid = storage.is_valid()
    metadata = storage.field("metadata")
    if storage.type.get_field_index("typed_value") >= 0:
        shredded, parse = _Shredded(storage), _MetadataCache()
        rows = enumerate(zip(_valid(storage), metadata.to_pylist(), strict=True))
        values = pa.array([shredded.rebuild(row, parse(data)) if ok else None for row, (ok, data) in rows], pa.binary())
    else:
        values = _value_of(storage)
    for name, column in (("metadata", metadata), ("value", values)):
        if count_true(pc.and_(valid, pc.is_null(column))):
            raise DataError(f"A variant must have metadata and a value, found a row whose {name} is null.")
    if storage.type == VARIANT_ARROW_TYPE:
        return storage
    # The fields are not nullable, so rows without a variant have empty bytes behind a null struct.
    columns = [column.cast(pa.binary()).fill_null(b"") for column in (metadata, values)]
    return pa.StructArray.from_arrays(columns, fields=list(VARIANT_ARROW_TYPE), mask=pc.invert(valid))


def _valid(array: pa.Array) -> list[bool]:
    is_valid: list[bool] = array.is_valid().to_numpy(zero_copy_only=False).tolist()
    return is_valid


class _MetadataCache:
    """Keeps the last parsed metadata, because most rows have the same metadata as the row before."""

    def __init__(self) -> None:
        self._data: bytes | None = None
        self._parsed: VariantMetadata | None = None

    def __call__(self, data: bytes | None) -> VariantMetadata:
        if data is None:
            raise DataError("A variant must have metadata, found a row whose metadata is null.")
        if self._parsed is None or data != self._data:
            self._data, self._parsed = data, VariantMetadata(data)
        return self._parsed


# === Shredding: typed Parquet columns are put back into the values they were taken from ===
#
# =========  ===============  ========================================================
# ``value``  ``typed_value``  meaning
# =========  ===============  ========================================================
# null       null             missing: an absent object field; elsewhere a variant null
# set        null             any value that is not of the typed kind
# null       set              the typed value
# set        set              an object, partly shredded: both hold fields of it
# =========  ===============  ========================================================
#
# Everything else is an error: a reader that reads only one of the columns would see a different value.

_FIELDS = ("metadata", "value", "typed_value")
_Rebuild = Callable[[int, VariantMetadata], Union[bytes, None]]


def _storage_of(array: pa.Array) -> pa.StructArray:
    """Return the struct array of a variant column, which may have an Arrow extension type."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    arrow_type = array.type
    if not pa.types.is_struct(arrow_type):
        raise DataError(f"A variant column must be a struct of metadata and value, found {arrow_type}.")
    names = [field.name for field in arrow_type]
    is_variant = sorted(names) in (sorted(_FIELDS[:2]), sorted(_FIELDS), ["metadata", "typed_value"])
    if not is_variant or not is_bytes(arrow_type.field("metadata").type):
        raise DataError(f"A variant column must have the binary fields metadata and value, found {arrow_type}.")
    return array


def _value_of(group: pa.StructArray) -> pa.Array:
    value = group.field("value")
    if not is_bytes(value.type):
        raise DataError(f"The field value of a variant must be binary, found {value.type}.")
    return value


def _missing(index: int, metadata: VariantMetadata) -> None:
    return None


class _Shredded:
    """A ``value`` and its ``typed_value``, at the top level or within an object or array."""

    def __init__(self, group: pa.StructArray) -> None:
        names = [field.name for field in group.type]
        if not {"value", "typed_value"} & set(names) or len(set(names)) != len(names) or set(names) - set(_FIELDS):
            raise DataError(f"A shredded variant must have the fields value and typed_value, found {names}.")
        self._present = _valid(group)
        self._value: list[bytes | None] = _value_of(group).to_pylist() if "value" in names else [None] * len(group)
        self._typed: _Rebuild = _missing
        self._objects: _Objects | None = None
        if "typed_value" in names:
            typed = group.field("typed_value")
            if pa.types.is_struct(typed.type):
                self._objects = _Objects(typed)
            elif pa.types.is_list(typed.type) or pa.types.is_large_list(typed.type):
                self._typed = _Arrays(typed).rebuild
            else:
                self._typed = _primitive_encoder(typed)

    def rebuild(self, index: int, metadata: VariantMetadata) -> bytes:
        """Return the encoded value of a row; a variant null if it is missing."""
        value = self.rebuild_field(index, metadata)
        return VARIANT_NULL if value is None else value

    def rebuild_field(self, index: int, metadata: VariantMetadata) -> bytes | None:
        """Return the encoded value of a row; ``None`` if it is missing."""
        if not self._present[index]:
            return None
        value = self._value[index]
        if self._objects is not None:
            if self._objects.present[index]:
                return self._objects.rebuild(index, value, metadata)
            if value is not None and is_object(value):
                raise DataError("A variant object must have a typed_value in a column of shredded objects, found null.")
            return value
        typed = self._typed(index, metadata)
        if typed is not None and value is not None:
            raise DataError("A shredded variant that is not an object must have value or typed_value, found both.")
        return value if typed is None else typed


class _Objects:
    """Objects with shredded fields."""

    def __init__(self, typed: pa.StructArray) -> None:
        self.present = _valid(typed)
        names = [field.name for field in typed.type]
        if len(set(names)) != len(names):
            raise DataError("The shredded fields of a variant must have distinct names, found a name twice.")
        self._fields: dict[str, _Shredded] = {}
        for position, field in enumerate(typed.type):
            if not pa.types.is_struct(field.type):
                raise DataError(f"A shredded field must be a group of value and typed_value, found {field.type}.")
            self._fields[field.name] = _Shredded(typed.field(position))

    def rebuild(self, index: int, value: bytes | None, metadata: VariantMetadata) -> bytes:
        fields: list[tuple[str, int, bytes]] = []
        for name, shredded in self._fields.items():
            data = shredded.rebuild_field(index, metadata)
            if data is not None:
                fields.append((name, metadata.id_of(name), data))
        if value is not None:
            fields += self._unshredded(value, metadata)
        return encode_object(fields)

    def _unshredded(self, value: bytes, metadata: VariantMetadata) -> list[tuple[str, int, bytes]]:
        if not is_object(value):
            raise DataError("A variant with a shredded object in typed_value must have an object in value.")
        layout_of_value = layout(value, 0, len(value))
        fields: dict[str, tuple[str, int, bytes]] = {}
        copied = 0
        assert layout_of_value.field_ids is not None
        for field_id, offset in zip(layout_of_value.field_ids, layout_of_value.offsets, strict=False):
            name = metadata.name(field_id)
            if name in self._fields:
                raise DataError(f"The shredded field {name!r} of a variant must not also be in its value.")
            if name in fields:
                raise DataError("The field names of a variant's object must be distinct, found a name twice.")
            start = layout_of_value.start + offset
            size = size_of(value, start, layout_of_value.stop)
            copied += size
            if copied > layout_of_value.stop - layout_of_value.start:
                raise DataError("The elements of a variant must not overlap, but they are longer than the variant.")
            fields[name] = (name, field_id, value[start : start + size])
        return list(fields.values())


class _Arrays:
    """Arrays with shredded elements."""

    def __init__(self, typed: pa.ListArray) -> None:
        self._present = _valid(typed)
        self._offsets = typed.offsets.to_pylist()
        element = typed.type.value_type
        if not pa.types.is_struct(element):
            raise DataError(
                f"The elements of a shredded array must be groups of value and typed_value, found {element}."
            )
        # Only the elements of this slice are decoded, so that batches of one large column stay fast.
        self._first = self._offsets[0]
        self._elements = _Shredded(typed.values.slice(self._first, self._offsets[-1] - self._first))

    def rebuild(self, index: int, metadata: VariantMetadata) -> bytes | None:
        if not self._present[index]:
            return None
        start, stop = self._offsets[index] - self._first, self._offsets[index + 1] - self._first
        return encode_array([self._elements.rebuild(element, metadata) for element in range(start, stop)])


# === Primitives ===


def _primitive_encoder(typed: pa.Array) -> _Rebuild:
    if isinstance(typed, pa.ExtensionArray):
        typed = typed.storage
    arrow_type = typed.type
    if pa.types.is_null(arrow_type):
        return _missing
    if pa.types.is_boolean(arrow_type):
        encoded = {True: write_primitive(Primitive.TRUE), False: write_primitive(Primitive.FALSE)}
        return _encoder(typed, encoded.__getitem__)
    if pa.types.is_decimal128(arrow_type):
        return _encoder(typed.view(pa.binary(16)), _decimal_writer(arrow_type.precision, arrow_type.scale))
    kind = _fixed_kind(arrow_type)
    if kind is not None:
        # Arrow's buffers have the same bytes as a variant: little-endian, two's complement, IEEE 754.
        typed = typed.view(pa.binary(arrow_type.bit_width // 8))
    elif is_text(arrow_type):
        typed, kind = typed.cast(pa.large_string()).cast(pa.large_binary()), Primitive.STRING
    elif is_bytes(arrow_type):
        kind = Primitive.BINARY
    elif arrow_type == pa.binary(16):
        kind = Primitive.UUID
    else:
        raise DataError(
            f"The typed_value of a shredded variant must have a type of the specification, found {arrow_type}."
        )
    return _encoder(typed, functools.partial(write_primitive, kind))


def _encoder(typed: pa.Array, write: Callable[[Any], bytes]) -> _Rebuild:
    # A value is encoded only when it is requested, because the data behind a null may be arbitrary.
    values = typed.to_numpy(zero_copy_only=False).tolist()
    return lambda index, metadata: None if values[index] is None else write(values[index])


def _fixed_kind(arrow_type: pa.DataType) -> Primitive | None:
    if pa.types.is_timestamp(arrow_type) and arrow_type.tz is not None:
        return {"us": Primitive.TIMESTAMP, "ns": Primitive.TIMESTAMP_NANOS}.get(arrow_type.unit)
    return {
        pa.int8(): Primitive.INT8,
        pa.int16(): Primitive.INT16,
        pa.int32(): Primitive.INT32,
        pa.int64(): Primitive.INT64,
        pa.float32(): Primitive.FLOAT,
        pa.float64(): Primitive.DOUBLE,
        pa.date32(): Primitive.DATE,
        pa.time64("us"): Primitive.TIME,
        pa.timestamp("us"): Primitive.TIMESTAMP_NTZ,
        pa.timestamp("ns"): Primitive.TIMESTAMP_NTZ_NANOS,
    }.get(arrow_type)


def _decimal_writer(precision: int, scale: int) -> Callable[[bytes], bytes]:
    kind = next(kind for kind, (_, digits) in DECIMALS.items() if precision <= digits)
    width, _ = DECIMALS[kind]

    def write(data: bytes) -> bytes:
        if abs(int.from_bytes(data, "little", signed=True)) >= 10**precision:
            raise DataError(
                f"A shredded decimal of precision {precision} must have at most {precision} digits, found more."
            )
        return write_primitive(kind, bytes([scale]) + data[:width])

    return write
