"""Whether decoded values are values of their type: what the Parquet reader takes from a file on trust.

It checks neither that text is UTF-8 nor that a decimal has no more digits than its type.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pyarrow as pa

Check = Callable[[pa.Array], None]


@functools.lru_cache(maxsize=1024)
def checker(data_type: pa.DataType) -> Check | None:
    """Return a function that raises ``pyarrow.ArrowInvalid`` for an array of ``data_type`` with an impossible value.

    ``None`` where the type has no impossible values.
    """
    types = pa.types
    if types.is_string(data_type):
        return _check_text
    if types.is_decimal(data_type):
        return lambda array: array.validate(full=True)
    if types.is_struct(data_type):
        fields = [(index, checker(data_type.field(index).type)) for index in range(data_type.num_fields)]
        return _all([_after(_field(index), check) for index, check in fields if check is not None])
    if types.is_map(data_type):
        keys, items = checker(data_type.key_type), checker(data_type.item_type)
        below = [_after(_keys, keys)] if keys is not None else []
        return _all([*below, _after(_items, items)] if items is not None else below)
    if types.is_list(data_type):
        values = checker(data_type.value_type)
        return None if values is None else _after(_flat, values)
    return None


def _check_text(array: pa.StringArray) -> None:
    """Check all values at once: together they are UTF-8, and none of them begins inside a character."""
    _, offsets, data = array.buffers()
    if not len(array) or data is None:
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


def _all(checks: list[Check]) -> Check | None:
    def check(array: pa.Array) -> None:
        for each in checks:
            each(array)

    return check if checks else None


def _after(step: Callable[[pa.Array], pa.Array], check: Check) -> Check:
    return lambda array: check(step(array))


def _field(index: int) -> Callable[[pa.Array], pa.Array]:
    return lambda array: array.field(index)


def _flat(array: pa.Array) -> pa.Array:
    return array.flatten()


def _keys(array: pa.Array) -> pa.Array:
    return array.keys


def _items(array: pa.Array) -> pa.Array:
    return array.items
