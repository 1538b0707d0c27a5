"""Converts a ``pyarrow.compute.Expression``, from an engine or a user, to a predicate tree.

It parses Arrow's serialized form: a record batch of constants and options, whose metadata has the nodes in order.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Union

import pyarrow as pa
import pyarrow.compute as pc

from delta_sharing_client.errors import check_memory
from delta_sharing_client.predicates.arrow import KERNELS
from delta_sharing_client.predicates.engines import Unsaid, UnsaidError, constant, constants, true_column, weaker
from delta_sharing_client.predicates.functions import ROWS
from delta_sharing_client.predicates.tree import (
    And,
    Column,
    Expression,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Operand,
    Or,
    StartsWith,
    call,
    compared,
)


@dataclass
class CallNode:
    """A node of a serialized expression: a function, its arguments, and its options as a dictionary and as stored."""

    function: str
    arguments: list[Node] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    stored_options: pa.Scalar | None = None


class ConstantNode(NamedTuple):
    """A constant in a serialized expression, as a Python value and as stored."""

    value: Any
    scalar: pa.Scalar


Node = Union[CallNode, Column, ConstantNode]


def to_tree(expression: pc.Expression) -> Expression:
    """Return ``expression`` as a predicate, with ``Unsaid`` for unsupported parts."""
    node = parse(expression)
    return Unsaid("A column position or an unknown node") if node is None else _condition(node)


def weaker_predicate(expression: pc.Expression, schema: pa.Schema) -> Expression | None:
    """Return a predicate that is true for every row for which ``expression`` (over columns of ``schema``) is true, or
    ``None``."""
    return weaker(to_tree(expression), schema)


def columns_of(expressions: Iterable[pc.Expression]) -> set[str] | None:
    """Return the top-level columns that ``expressions`` read, ``None`` if one cannot be parsed."""
    names: set[str] = set()
    nodes = [parse(expression) for expression in expressions]
    while nodes:
        node = nodes.pop()
        if node is None:
            return None
        if isinstance(node, Column):
            names.add(node.path[0])
        elif isinstance(node, CallNode):
            nodes += node.arguments
    return names


# === Conditions ===

_COMPARISONS = {kernel.__name__: op for op, kernel in KERNELS.items()}
_JOINS: dict[str, type[And] | type[Or]] = {"and_kleene": And, "and": And, "or_kleene": Or, "or": Or}
# For SetLookupOptions: a null in the column matches if the list contains a null.
MATCH_NULLS = 0


def _condition(node: Node, inverted: bool = False) -> Expression:
    """Convert a condition. Inside a negation (``inverted``), false and unknown must be distinguished."""
    try:
        if not isinstance(node, CallNode):
            return true_column(_operand(node), "A condition")
        if node.function in _JOINS:
            return _JOINS[node.function](tuple(_condition(argument, inverted) for argument in node.arguments))
        if node.function == "invert":
            return Not(_condition(node.arguments[0], True))
        if node.function == "is_in":
            return _is_in(node, inverted)
        if node.function in _COMPARISONS:
            return compared(_COMPARISONS[node.function], *map(_operand, node.arguments))
        test = _TESTS.get(node.function)
        return Unsaid(f"The function '{node.function}'") if test is None else test(node)
    except UnsaidError as error:
        return Unsaid(str(error))


def _is_in(node: CallNode, inverted: bool) -> Expression:
    column, within, has_null = _membership(node)
    if has_null:
        return (
            Or((within, IsNull(column))) if not inverted else Or((And((within, Not(IsNull(column)))), IsNull(column)))
        )
    # In Arrow, is_in is never unknown: a null is not in the list, and the negation is true.
    return And((within, Not(IsNull(column)))) if inverted else within


def _membership(node: CallNode) -> tuple[Operand, Expression, bool]:
    """Return the tested operand, the test for non-null values, and whether the list has a null."""
    values = node.options.get("value_set")
    if not isinstance(values, list) or node.options.get("null_matching_behavior") != MATCH_NULLS:
        raise UnsaidError("A list with its own rules for nulls")
    column, literals = _operand(node.arguments[0]), constants(values, "a list")
    return column, In(column, tuple(literals)) if literals else Literal(False), len(literals) < len(values)


def _if_else(node: CallNode) -> Expression:
    # DuckDB writes IN like this: null for a null, otherwise Arrow's result. This matches the meaning of IN here.
    test, then, otherwise = node.arguments
    is_of_nulls = isinstance(otherwise, ConstantNode) and otherwise.value is None
    functions = [part.function for part in (test, then) if isinstance(part, CallNode)]
    if is_of_nulls and functions == ["is_valid", "is_in"]:
        assert isinstance(test, CallNode)
        assert isinstance(then, CallNode)
        column, within, _ = _membership(then)
        if column == _operand(test.arguments[0]):
            return within
    raise UnsaidError("The function 'if_else'")


def _is_null(node: CallNode) -> Expression:
    if node.options.get("nan_is_null"):
        raise UnsaidError("A test for null or NaN")
    return IsNull(_operand(node.arguments[0]))


def _text(build: Callable[[Operand, str], Expression]) -> Callable[[CallNode], Expression]:
    def test(node: CallNode) -> Expression:
        if node.options.get("ignore_case", True):
            raise UnsaidError(f"The function '{node.function}' that ignores case")
        return build(_operand(node.arguments[0]), str(node.options["pattern"]))

    return test


_TESTS: dict[str, Callable[[CallNode], Expression]] = {
    "if_else": _if_else,
    "is_null": _is_null,
    "is_valid": lambda node: Not(IsNull(_operand(node.arguments[0]))),
    "starts_with": _text(StartsWith),
    "ends_with": _text(lambda column, text: Like(column, "%" + Like.quoted(text))),
    "match_substring": _text(lambda column, text: Like(column, f"%{Like.quoted(text)}%")),
}


# === Operands ===

_CALLS = {function: name for name, row in ROWS.items() for function in row.arrow}


def _operand(node: Node) -> Operand:
    if isinstance(node, Column):
        return node
    if isinstance(node, ConstantNode):
        return constant(node.value, "a comparison")
    name = _CALLS.get(str(node.options.get("to_type")) if node.function == "cast" else node.function)
    if name is None:
        raise UnsaidError(f"The function '{node.function}'")
    return call(name, *map(_operand, node.arguments))


# === The serialized form ===

# Python's times have only microseconds, so values of this type stay Arrow scalars, which no filter accepts.
_NANOS_OF_DAY = "time64[ns]"


def parse(expression: pc.Expression) -> Node | None:
    """Return the nodes of ``expression``, ``None`` if one is unknown."""
    try:
        (buffer,) = expression.__reduce__()[1]
        batch = pa.ipc.open_file(buffer).get_batch(0)
    except (pa.ArrowException, ValueError, TypeError, AttributeError) as error:
        check_memory(error)
        return None
    try:
        entries = _entries(batch.schema)
        return _node(*next(entries), entries, batch)
    except (LookupError, ValueError, StopIteration):
        return None


def _node(kind: str, text: str, following: Iterator[tuple[str, str]], batch: pa.RecordBatch) -> Node:
    if kind == "field_ref":
        return Column((text,))
    if kind == "nested_field_ref":
        return Column(tuple([next(following)[1] for _ in range(int(text))]))
    if kind == "literal":
        value = batch.column(int(text))[0]
        return ConstantNode(value if _NANOS_OF_DAY in str(value.type) else value.as_py(), value)
    if kind != "call":
        raise ValueError(kind)
    call = CallNode(text)
    while (entry := next(following))[0] != "end":
        if entry[0] == "options":
            options = batch.column(int(entry[1]))
            call.options = options[0].as_py()
            call.stored_options = options[0]
            if _NANOS_OF_DAY in str(options.type):
                call.options["value_set"] = list(options[0]["value_set"].values)
            if text == "cast":
                # The value of this option is null; only its type matters.
                call.options["to_type"] = options.type.field("to_type").type
        else:
            call.arguments.append(_node(*entry, following, batch))
    return call


class _CSchema(ctypes.Structure):
    """The start of ``ArrowSchema`` (Arrow C data interface)."""

    _fields_ = (("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p))


def _entries(schema: pa.Schema) -> Iterator[tuple[str, str]]:
    """Yield the metadata of ``schema`` in order; keys repeat, so the dictionary of pyarrow does not suffice."""
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
