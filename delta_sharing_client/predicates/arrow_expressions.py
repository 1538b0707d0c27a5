"""Arrow's own expressions (``pyarrow.compute.Expression``), as engines push them down, to a predicate tree.

The tree may only be weaker: whoever pushed the expression down still applies it to the rows. What has no counterpart,
or another meaning here (NaN does not compare in Arrow), is left out.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Iterator
from typing import Any, Union

import pyarrow as pa
import pyarrow.compute as pc

from delta_sharing_client.errors import UsageError
from delta_sharing_client.predicates.binding import is_exact
from delta_sharing_client.predicates.tree import (
    Column,
    Comparison,
    Expression,
    In,
    IsNull,
    Literal,
    Not,
    Op,
    StartsWith,
    known_of_all,
    known_of_any,
)

_COMPARISONS = {
    "equal": Op.EQ,
    "not_equal": Op.NE,
    "less": Op.LT,
    "less_equal": Op.LE,
    "greater": Op.GT,
    "greater_equal": Op.GE,
}


class _Call:
    """A node of a serialised expression: a function, what it takes, and its options as a dictionary."""

    def __init__(self, function: str) -> None:
        self.function = function
        self.arguments: list[_Node] = []
        self.options: dict[str, Any] = {}


_Node = Union[_Call, Column, Literal, None]


def weaker_predicate(expression: pc.Expression, schema: pa.Schema) -> Expression | None:
    """Return a predicate that is true of every row of which ``expression`` is true; ``None`` where there is none.

    Parameters
    ----------
    expression:
        Over columns of ``schema``, which are those of the table.
    """
    return _weaker(_parse(expression), schema)


def _weaker(node: _Node, schema: pa.Schema) -> Expression | None:
    if isinstance(node, _Call) and node.function in ("and_kleene", "and"):
        return known_of_all(_weaker(argument, schema) for argument in node.arguments)
    if isinstance(node, _Call) and node.function in ("or_kleene", "or"):
        return known_of_any(_weaker(argument, schema) for argument in node.arguments)
    leaf = _leaf(node, schema)
    return leaf if leaf is not None and is_exact(leaf, schema) else None


def _leaf(node: _Node, schema: pa.Schema) -> Expression | None:
    if isinstance(node, Column):
        return Comparison(Op.EQ, node, Literal(True)) if _type_of(node, schema) == pa.bool_() else None
    if not isinstance(node, _Call):
        return None
    first = node.arguments[0] if node.arguments else None
    if node.function in _COMPARISONS:
        return _comparison(_COMPARISONS[node.function], node.arguments, schema)
    if node.function == "invert" and isinstance(first, Column) and _type_of(first, schema) == pa.bool_():
        return Comparison(Op.EQ, first, Literal(False))
    if node.function == "invert" and isinstance(first, _Call) and first.function == "is_null":
        # Never unknown, so that its negation has one meaning; with nan_is_null there is no counterpart.
        inner = _leaf(first, schema)
        return None if inner is None else Not(inner)
    if node.function == "if_else" and len(node.arguments) == 3:
        # How DuckDB writes IN, with null for a null: whatever the condition, only the first branch can be true.
        other = node.arguments[2]
        return _leaf(node.arguments[1], schema) if isinstance(other, Literal) and not other.value else None
    if not isinstance(first, Column) or _type_of(first, schema) is None:
        return None
    return _of_column(node, first, schema)


def _of_column(node: _Call, column: Column, schema: pa.Schema) -> Expression | None:
    if node.function == "is_valid":
        return Not(IsNull(column))
    if node.function == "is_null":
        return None if node.options.get("nan_is_null") else IsNull(column)
    if node.function == "starts_with" and not node.options.get("ignore_case", True):
        return StartsWith(column, str(node.options["pattern"]))
    if node.function == "is_in" and isinstance(node.options.get("value_set"), list):
        values = [_literal(value) for value in node.options["value_set"]]
        known = [value for value in values if value is not None and value.value is not None]
        if len(known) != len(values):
            return None
        return In(column, tuple(known)) if known else Literal(False)
    return None


def _comparison(op: Op, arguments: list[_Node], schema: pa.Schema) -> Expression | None:
    left, right = arguments
    if isinstance(left, Literal) and isinstance(right, Column):
        left, right, op = right, left, op.flipped
    if not isinstance(left, Column) or not isinstance(right, Literal) or _type_of(left, schema) is None:
        return None
    return Comparison(op, left, right)


def _type_of(column: Column, schema: pa.Schema) -> pa.DataType | None:
    """Return the type of ``column`` in ``schema``, ``None`` if it has none or not exactly one."""
    fields: Any = schema
    kind: pa.DataType | None = None
    for name in column.path:
        if fields is None or fields.get_field_index(name) < 0:
            return None
        kind = fields.field(fields.get_field_index(name)).type
        fields = kind if pa.types.is_struct(kind) else None
    return kind


def _literal(value: object) -> Literal | None:
    if isinstance(value, float) and math.isnan(value):
        return None
    try:
        return Literal(value)  # type: ignore[arg-type]
    except UsageError:
        return None


# === The serialised form of an expression: a record batch whose metadata lists its nodes in order ===


def _parse(expression: pc.Expression) -> _Node:
    try:
        (buffer,) = expression.__reduce__()[1]
        batch = pa.ipc.open_file(buffer).get_batch(0)
    except (pa.ArrowException, ValueError, TypeError, AttributeError):
        return None
    try:
        return _node(_entries(batch.schema), batch)
    except (LookupError, ValueError, StopIteration):
        return None


def _node(entries: Iterator[tuple[str, str]], batch: pa.RecordBatch) -> _Node:
    kind, text = next(entries)
    if kind == "field_ref":
        return Column((text,))
    if kind == "nested_field_ref":
        return Column(tuple(name for _, name in (next(entries) for _ in range(int(text)))))
    if kind == "literal":
        return _literal(batch.column(int(text))[0].as_py())
    if kind != "call":
        raise ValueError(kind)
    return _call(_Call(text), entries, batch)


def _call(call: _Call, entries: Iterator[tuple[str, str]], batch: pa.RecordBatch) -> _Call:
    while True:
        kind, text = next(entries)
        if kind == "end":
            return call
        if kind == "options":
            call.options = batch.column(int(text))[0].as_py()
        elif kind == "call":
            call.arguments.append(_call(_Call(text), entries, batch))
        else:
            call.arguments.append(_node(iter([(kind, text), *_more(kind, text, entries)]), batch))


def _more(kind: str, text: str, entries: Iterator[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the entries that belong to a reference of a nested field."""
    return [next(entries) for _ in range(int(text))] if kind == "nested_field_ref" else []


class _CSchema(ctypes.Structure):
    """The head of ``ArrowSchema`` (Arrow C data interface)."""

    _fields_ = (("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p))


def _entries(schema: pa.Schema) -> Iterator[tuple[str, str]]:
    """Yield the metadata of ``schema`` in order. pyarrow gives a dictionary, and here keys come again."""
    capsule = schema.__arrow_c_schema__()
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    address = _CSchema.from_address(pointer_of(capsule, b"arrow_schema")).metadata
    if not address:
        return
    (count,) = struct.unpack("=i", ctypes.string_at(address, 4))
    address += 4
    for _ in range(count):
        pair = []
        for _ in range(2):
            (length,) = struct.unpack("=i", ctypes.string_at(address, 4))
            pair.append(ctypes.string_at(address + 4, length).decode())
            address += 4 + length
        yield pair[0], pair[1]
