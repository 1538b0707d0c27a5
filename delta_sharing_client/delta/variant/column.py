"""Variant columns: semi-structured values as JSON text or Python objects, whichever way a file stores them.

A variant column is a struct of ``metadata`` and ``value`` (binary, in either order) and, where it is shredded,
``typed_value`` (Parquet "Variant Binary Encoding" and "Variant Shredding"). A null struct is SQL's null; a variant that
holds the JSON value ``null`` is the text ``null``.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from delta_sharing_client.delta.arrow_types import VARIANT_ARROW_TYPE
from delta_sharing_client.delta.variant.encoding import VariantMetadata, decode, decode_json
from delta_sharing_client.delta.variant.shredding import Shredded, is_shredded, storage_of
from delta_sharing_client.errors import DataError

_LONGEST_COLUMN = (1 << 31) - 1  # bytes of text in one Arrow string array


def variant_to_json(array: pa.Array) -> pa.StringArray:
    """Return a variant column as JSON text, in the form of Spark's ``to_json``.

    Numbers keep all their digits, ``NaN`` and infinities are strings, dates and times are strings (timestamps in UTC),
    binary is Base64. Null structs are null.

    Parameters
    ----------
    array:
        A struct array with the binary fields ``metadata`` and ``value``, shredded (``typed_value``) or not.

    Raises
    ------
    DataError
        A value is not a valid variant, or the array is not a variant column.
    """
    plain = unshred(array)
    texts: list[str | None] = []
    size = 0
    for metadata, value in _rows(plain):
        if value is None or metadata is None:
            texts.append(None)
            continue
        text = decode_json(value, metadata)
        size += len(text)
        if size > _LONGEST_COLUMN:
            raise DataError("The JSON text of one batch must stay below 2 GiB: read smaller batches.")
        texts.append(text)
    try:
        return pa.array(texts, pa.large_string()).cast(pa.string())
    except pa.ArrowInvalid:
        raise DataError("The JSON text of one batch must stay below 2 GiB: read smaller batches.") from None


def variant_to_python(value: bytes, metadata: bytes) -> object:
    """Return one unshredded variant as Python objects.

    Objects are ``dict``, arrays ``list``, decimals :class:`~decimal.Decimal`, dates and times those of :mod:`datetime`,
    UUIDs :class:`~uuid.UUID`; a date or time that those cannot hold exactly is its text.

    Raises
    ------
    DataError
        The bytes are not a valid variant.
    """
    return decode(bytes(value), VariantMetadata(bytes(metadata)))


def unshred(array: pa.Array) -> pa.StructArray:
    """Return a variant column as ``struct<metadata: binary, value: binary>``, with typed values put back.

    Raises
    ------
    DataError
        The array is not a variant column, or ``value`` and ``typed_value`` contradict each other.
    """
    storage = storage_of(array)
    valid = storage.is_valid()
    metadata = storage.field("metadata")
    if is_shredded(storage.type):
        shredded, parse = Shredded(storage), _MetadataCache()
        rows = enumerate(zip(valid.to_pylist(), metadata.to_pylist(), strict=True))
        values = pa.array([shredded.rebuild(row, parse(data)) if ok else None for row, (ok, data) in rows], pa.binary())
    else:
        values = storage.field("value")
    for name, column in (("metadata", metadata), ("value", values)):
        if pc.any(pc.and_(valid, pc.is_null(column))).as_py():
            raise DataError(f"A variant must have metadata and a value, found one without {name}.")
    if storage.type == VARIANT_ARROW_TYPE:
        return storage
    # The fields are not nullable, so that rows without a variant hold empty bytes behind a null struct.
    columns = [column.cast(pa.binary()).fill_null(b"") for column in (metadata, values)]
    return pa.StructArray.from_arrays(columns, fields=list(VARIANT_ARROW_TYPE), mask=pc.invert(valid))


class _MetadataCache:
    """Parses metadata, which mostly repeats from row to row, once."""

    def __init__(self) -> None:
        self._data: bytes | None = None
        self._parsed: VariantMetadata | None = None

    def __call__(self, data: bytes | None) -> VariantMetadata:
        if data is None:
            raise DataError("A variant must have metadata, found a row without.")
        if self._parsed is None or data != self._data:
            self._data, self._parsed = data, VariantMetadata(data)
        return self._parsed


def _rows(plain: pa.StructArray) -> list[tuple[VariantMetadata | None, bytes | None]]:
    parse = _MetadataCache()
    rows: list[tuple[VariantMetadata | None, bytes | None]] = []
    for valid, metadata, value in zip(
        plain.is_valid().to_pylist(), plain.field("metadata").to_pylist(), plain.field("value").to_pylist(), strict=True
    ):
        rows.append((parse(metadata), value) if valid else (None, None))
    return rows
