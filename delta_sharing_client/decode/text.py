"""Finds invalid UTF-8 in files, and reports it or replaces it as Spark does.

Arrow's readers do not validate text. One invalid value makes other libraries fail for the whole column, or return
different text.
"""

from __future__ import annotations

import codecs

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delta_sharing_client.errors import DataError

# For fewer values, checking one by one is faster.
_FEW_VALUES = 4096
_FEW_BYTES = 128 * 1024
# The maximum number of bytes of a value in a message.
_MOST_SHOWN = 60
# The maximum number of bytes of dictionary values that are expanded into rows at a time.
_MOST_RESERVED = 4 * 1024 * 1024
_SURROGATE = 0xED
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class NotUtf8(Exception):
    """The row ``row`` of a batch has invalid UTF-8: the bytes ``value`` at ``path`` in the column."""

    def __init__(self, row: int, path: tuple[str, ...], value: bytes) -> None:
        super().__init__(row, path, value)
        self.row = row
        self.path = path
        self.value = value

    def in_file(self, row: int) -> DataError:
        """Return the error for the row ``row`` of the file, counted from 0."""
        shown = repr(self.value[:_MOST_SHOWN]) + ("..." if len(self.value) > _MOST_SHOWN else "")
        return DataError(
            f"Text in column {'.'.join(self.path)!r} must be UTF-8, but row {row} of the file, counted from 0, has "
            f"{shown}. Ask the provider to correct it, or read with ReadOptions(invalid_text='replace')."
        )


def check_text(array: pa.StringArray) -> None:
    """Raise ``pyarrow.ArrowInvalid`` if a value is not UTF-8.

    All values are checked at once: they are ASCII, or together they are UTF-8 and none of them starts inside a
    character.
    """
    _, offsets, data = array.buffers()
    # Small text is first checked for ASCII without Arrow, because an Arrow call lets other threads take the interpreter
    # lock, and waits to get it back.
    if data is None or (data.size <= _FEW_BYTES and data.to_pybytes().isascii()):
        return
    if len(array) < _FEW_VALUES:
        array.validate(full=True)
        return
    bounds = np.frombuffer(offsets, np.int32, len(array) + 1, array.offset * 4)
    first, last = bounds[0], bounds[-1]
    if first == last:
        return
    together = pa.py_buffer(np.array([first, last], np.int32))
    pa.Array.from_buffers(pa.string(), 1, [None, together, data]).validate(full=True)
    starts = bounds[:-1]
    if starts[-1] == last:
        starts = starts[starts < last]
    if ((np.frombuffer(data, np.uint8)[starts] & 0xC0) == 0x80).any():
        raise pa.ArrowInvalid("Invalid UTF8 sequence")


def expanded(array: pa.Array) -> pa.Array:
    """Decode an array that was read as a dictionary; return any other array unchanged.

    Raises ``pyarrow.ArrowIndexError`` for an index that the dictionary does not have.
    """
    if not isinstance(array, pa.DictionaryArray):
        return array
    values, indices = array.dictionary, array.indices
    # Arrow reserves memory for one string of the dictionary's average length per row, so one long string among few
    # would reserve gigabytes.
    rows = max(1, _MOST_RESERVED * len(values) // max(1, values.nbytes))
    # Unlike 'take', a cast does not check the indices, which come from the file.
    parts = [values.take(indices.slice(start, rows)) for start in range(0, max(1, len(indices)), rows)]
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


# === The first invalid value ===


def first_invalid(array: pa.Array, path: tuple[str, ...]) -> NotUtf8 | None:
    """Return the first string in ``array`` or its children that is not UTF-8; ``path`` names the array."""
    types = pa.types
    if types.is_string(array.type):
        values = array.cast(pa.binary()).to_pylist()
        return next((NotUtf8(row, path, value) for row, value in enumerate(values) if not _is_utf8(value)), None)
    invalid: list[NotUtf8 | None] = []
    if types.is_struct(array.type):
        invalid = [
            first_invalid(child, (*path, field.name)) for child, field in zip(array.flatten(), array.type, strict=True)
        ]
    elif types.is_map(array.type):
        keys, items = array.type.key_field, array.type.item_field
        lists = [(_lists(array, array.keys, keys), "key"), (_lists(array, array.items, items), "value")]
        invalid = [_first_in_lists(each, (*path, name)) for each, name in lists]
    elif types.is_list(array.type):
        invalid = [_first_in_lists(array, (*path, "element"))]
    return min((each for each in invalid if each is not None), key=lambda each: each.row, default=None)


def _is_utf8(value: bytes | None) -> bool:
    try:
        return value is None or value.decode() is not None
    except UnicodeDecodeError:
        return False


def _lists(maps: pa.MapArray, values: pa.Array, field: pa.Field) -> pa.ListArray:
    buffers = maps.buffers()[:2]
    return pa.Array.from_buffers(pa.list_(field), len(maps), buffers, maps.null_count, maps.offset, children=[values])


def _first_in_lists(array: pa.ListArray, path: tuple[str, ...]) -> NotUtf8 | None:
    invalid = first_invalid(pc.list_flatten(array), path)
    if invalid is None:
        return None
    return NotUtf8(pc.list_parent_indices(array)[invalid.row].as_py(), invalid.path, invalid.value)


# === Replacement ===


def replaced(array: pa.StringArray) -> pa.StringArray:
    """Return ``array`` with U+FFFD in place of invalid UTF-8."""
    try:
        check_text(array)
    except pa.ArrowInvalid:
        values = array.cast(pa.binary()).to_pylist()
        return pa.array([None if value is None else as_shown(value) for value in values], pa.string())
    return array


def as_shown(value: bytes) -> str:
    """Return the text that Spark (Java's decoder) shows for ``value``.

    As in Python and browsers, one U+FFFD replaces each incomplete or invalid part of a character (Unicode, "U+FFFD
    Substitution of Maximal Subparts"). Unlike there, one U+FFFD also replaces each encoded surrogate, for which they
    use two or three.
    """
    return value.decode("utf-8", _AS_JAVA)


_AS_JAVA = "delta-sharing-as-java"


def _as_java(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    first, *following = error.object[error.start : error.start + 3]
    if first == _SURROGATE and following and 0xA0 <= following[0] <= 0xBF:
        is_whole = len(following) == 2 and 0x80 <= following[1] <= 0xBF
        return _REPLACEMENT, error.start + (3 if is_whole else 2)
    return _REPLACEMENT, error.end


codecs.register_error(_AS_JAVA, _as_java)
