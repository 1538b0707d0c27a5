"""Create inline deletion vectors in the forms of several writers, and put poison values into the rows that they remove.

The client has no code for this, because it only reads inline vectors and writes vectors to files.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyroaring
from hypothesis import strategies as st

from delta_sharing_client.delta.actions import DeletionVectorDescriptor
from delta_sharing_client.delta.deletion_vectors import DeletionVector, encode_file, z85_encode


def encode_inline(vector: DeletionVector, *, text_padding: bool = False) -> DeletionVectorDescriptor:
    """Return an inline descriptor of ``vector``. Its bytes are padded as Delta Lake does it, or its text as in
    ``in_padded_text``."""
    file, (stored,) = encode_file([vector], "file:///vector")
    offset = stored.offset or 0
    # In a file, the bytes of a vector are between their size and their checksum.
    data = file[offset + 4 : offset + 4 + stored.size_in_bytes]
    text = in_padded_text(data) if text_padding else z85_encode(data + bytes(-len(data) % 4))
    return DeletionVectorDescriptor("i", text, len(data), vector.cardinality)


def in_padded_text(data: bytes) -> str:
    """Return the Z85 text of ``data`` as delta-kernel-rs writes it: missing bytes are "#" in front of the last group.

    The Rust library z85 (3.0, README, "padding") puts zero bytes before the last bytes and overwrites as many of the
    group's characters, which are zeros.
    """
    whole = len(data) // 4 * 4
    missing = -len(data) % 4
    if not missing:
        return z85_encode(data)
    return z85_encode(data[:whole]) + "#" * missing + z85_encode(bytes(missing) + data[whole:])[missing:]


# --- removed rows ---

# For each type, values for removed rows whose evaluation fails: they overflow, divide by zero, have no order or are not
# valid text.
_POISON: list[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], pa.Array]]] = [
    (pa.types.is_signed_integer, lambda kind: pa.array([(1 << kind.bit_width - 1) - 1, 0], kind)),
    (pa.types.is_floating, lambda kind: pa.array([float("nan"), 0.0], kind)),
    (pa.types.is_decimal, lambda kind: pa.array([decimal.Decimal("9" * kind.precision).scaleb(-kind.scale)] * 2, kind)),
    (pa.types.is_string, lambda kind: pa.array([b"\xff\xfe", b"\xc3"], pa.binary()).view(kind)),
    (pa.types.is_binary, lambda kind: pa.array([b"\xff\xfe", b""], kind)),
    (pa.types.is_date32, lambda kind: pa.array([(1 << 31) - 1, -(1 << 31)], pa.int32()).view(kind)),
    (pa.types.is_timestamp, lambda kind: pa.array([(1 << 63) - 1, 1 - (1 << 63)], pa.int64()).view(kind)),
    (
        pa.types.is_fixed_size_binary,
        lambda kind: pa.array([b"\xff" * kind.byte_width, b"\x7f" * kind.byte_width], kind),
    ),
    (pa.types.is_null, lambda kind: pa.nulls(2)),
    (pa.types.is_boolean, lambda kind: pa.array([True, False])),
    (pa.types.is_struct, lambda kind: pa.StructArray.from_arrays([poison(item.type) for item in kind], fields=[*kind])),
    (pa.types.is_list, lambda kind: pa.ListArray.from_arrays(_HALVES, poison(kind.value_type)).cast(kind)),
    (pa.types.is_map, lambda kind: pa.MapArray.from_arrays(_HALVES, poison(kind.key_type), poison(kind.item_type))),
]
_HALVES = pa.array([0, 1, 2], pa.int32())


def poison(kind: pa.DataType) -> pa.Array:
    """Return two values of a type whose evaluation fails."""
    return next(make(kind) for fits, make in _POISON if fits(kind))


def poisoned(rows: pa.Table, positions: Sequence[int]) -> pa.Table:
    """Return ``rows`` with poison values in the rows at ``positions``, also in nested fields. A deletion vector must
    remove these rows."""
    if not len(positions):
        return rows
    indices = list(range(len(rows)))
    for number, position in enumerate(positions):
        indices[position] = len(rows) + number % 2
    columns = [
        pa.chunked_array([*column.chunks, poison(column.type)], column.type).combine_chunks().take(pa.array(indices))
        for column in rows.columns
    ]
    return pa.Table.from_arrays(columns, schema=rows.schema)


# --- every form of a bitmap ---

CONTAINER = 1 << 16
_ARRAY_LIMIT = 4096
KINDS = {"array", "run", "bitset", "0 over", "1 over", "2 over", "3 over", "limit"}


def container_values() -> st.SearchStrategy[list[int]]:
    """Return a strategy for the values of one container, which ``bitmaps`` may store as an array, as runs or as a
    bitset."""
    scattered = st.lists(st.integers(0, CONTAINER - 1), min_size=1, max_size=20)
    run = st.tuples(st.integers(0, CONTAINER - 1), st.integers(1, 9000))
    runs = st.lists(run, min_size=1, max_size=4).map(
        lambda pairs: [value for start, rows in pairs for value in range(start, min(start + rows, CONTAINER))]
    )
    # Every second value, so that runs would not save space. With about this many values, an array becomes a bitset.
    many = st.integers(_ARRAY_LIMIT - 1, _ARRAY_LIMIT + 2).map(lambda count: list(range(1, 2 * count, 2)))
    return scattered | runs | many


@st.composite
def bitmaps(draw: st.DrawFn, keys: Sequence[int]) -> pyroaring.BitMap64:
    """Draw a bitmap of some of the containers ``keys``; the first value of container k is k * 65,536."""
    result = pyroaring.BitMap64()
    for key in draw(st.lists(st.sampled_from(keys), unique=True, max_size=5)):
        result |= pyroaring.BitMap64([key * CONTAINER + value for value in draw(container_values())])
    if draw(st.booleans()):
        result.run_optimize()
    return result


def kinds(bitmap: pyroaring.BitMap64, size: int, keys: Sequence[int]) -> set[str]:
    """Return which ``KINDS`` occur in a bitmap of the containers ``keys`` that has ``size`` serialized bytes."""
    counts = bitmap.get_statistics()
    results = {kind for kind in ("array", "run", "bitset") if counts[f"n_{kind}_containers"]}
    if any(bitmap.range_cardinality(key * CONTAINER, (key + 1) * CONTAINER) == _ARRAY_LIMIT + 1 for key in keys):
        results.add("limit")
    return results | {f"{size % 4} over"}
