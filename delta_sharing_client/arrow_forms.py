"""Small helpers that work with every supported version of pyarrow: string and binary types, masks, streams of batches.

View types are new in pyarrow 16; older versions never return one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_is_string_view = getattr(pa.types, "is_string_view", lambda _: False)
_is_binary_view = getattr(pa.types, "is_binary_view", lambda _: False)


def is_text(arrow_type: pa.DataType) -> bool:
    """Return whether the type is a string type of any kind."""
    types = pa.types
    return bool(types.is_string(arrow_type) or types.is_large_string(arrow_type) or _is_string_view(arrow_type))


def is_bytes(arrow_type: pa.DataType) -> bool:
    """Return whether the type is a binary type of any kind and variable length."""
    types = pa.types
    return bool(types.is_binary(arrow_type) or types.is_large_binary(arrow_type) or _is_binary_view(arrow_type))


def is_view(arrow_type: pa.DataType) -> bool:
    """Return whether the type is a view type, which few kernels accept."""
    return bool(_is_string_view(arrow_type) or _is_binary_view(arrow_type))


def count_true(mask: pa.BooleanArray) -> int:
    """Return the number of true values. In pyarrow 14, ``mask.true_count`` crashes if a kernel returned the mask."""
    return pc.sum(mask).as_py() or 0


def reader_of(data: Any) -> pa.RecordBatchReader:
    """Return a reader of the batches of ``data``, an object with the method ``__arrow_c_stream__``."""
    if hasattr(pa.RecordBatchReader, "from_stream"):
        return pa.RecordBatchReader.from_stream(data)
    return pa.RecordBatchReader._import_from_c_capsule(data.__arrow_c_stream__())


def sliced(batches: Iterable[pa.RecordBatch], rows: int | None) -> Iterator[pa.RecordBatch]:
    """Yield the batches in slices of at most ``rows`` rows; ``None`` yields them unchanged."""
    for batch in batches:
        size = rows or max(1, batch.num_rows)
        for start in range(0, max(1, batch.num_rows), size):
            yield batch.slice(start, size)


def has_extension(field: pa.Field, unwanted: Callable[[dict[bytes, bytes]], bool] = lambda metadata: True) -> bool:
    """Return whether a field, or one below it, has an extension type whose metadata is ``unwanted``."""
    metadata, kind = field.metadata or {}, field.type
    below = (kind.field(place) for place in range(kind.num_fields)) if pa.types.is_nested(kind) else ()
    own = b"ARROW:extension:name" in metadata and unwanted(metadata)
    return own or any(has_extension(item, unwanted) for item in below)


def without_extension(field: pa.Field, unwanted: Callable[[dict[bytes, bytes]], bool]) -> pa.Field:
    """Return ``field`` with plain types in place of the extension types that ``has_extension`` finds.

    List types of every kind become plain lists, so call this only for fields that have such an extension type.
    """
    kind = field.type
    if pa.types.is_struct(kind):
        field = field.with_type(pa.struct([without_extension(item, unwanted) for item in kind]))
    elif pa.types.is_map(kind):
        key, item = (without_extension(each, unwanted) for each in (kind.key_field, kind.item_field))
        field = field.with_type(pa.map_(key, item))
    elif pa.types.is_list(kind):
        field = field.with_type(pa.list_(without_extension(kind.value_field, unwanted)))
    return field.remove_metadata() if unwanted(field.metadata or {}) else field


def counting_name(schema: pa.Schema) -> str:
    """Return a name that no column has, not even in a different case.

    An engine that counts rows reads the first column, however large it is. So an empty column with this name, which the
    user does not see, is put first.
    """
    taken = {name.lower() for name in schema.names}
    return next(name for number in range(len(taken) + 1) if (name := f"_rows{number or ''}") not in taken)


def with_counting(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    """Return ``batch`` with the empty column ``name`` in front; see ``counting_name``."""
    field = pa.field(name, pa.bool_())
    return pa.RecordBatch.from_arrays(
        [pa.nulls(batch.num_rows, field.type), *batch.columns], schema=pa.schema([field, *batch.schema])
    )
