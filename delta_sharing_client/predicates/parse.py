"""Whatever a caller or an engine gives as a filter, to one predicate tree."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Union

import pyarrow as pa
import pyarrow.compute as pc

from delta_sharing_client.columns import parse_path
from delta_sharing_client.errors import UsageError
from delta_sharing_client.predicates.binding import is_exact
from delta_sharing_client.predicates.tree import (
    Column,
    ColumnBuilder,
    Comparison,
    Expression,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    NullSafeEqual,
    Op,
    Operand,
    StartsWith,
    all_of,
    any_of,
    as_expression,
    known_of_all,
    known_of_any,
    membership,
)

Filter = Union[str, Expression, ColumnBuilder, Sequence[Any], None]


def parse_filter(filter: Filter) -> Expression | None:  # noqa: A002 - the public keyword is called so everywhere
    """Return the predicate that ``filter`` means, ``None`` for no filter.

    Parameters
    ----------
    filter:
        One of

        - SQL text, see :func:`~delta_sharing_client.predicates.sql.parse_sql`;
        - a predicate built from ``col("a") > 1``;
        - ``(column, op, value)`` tuples in a list, all of which must hold: ``[("a", ">", 1), ("b", "in", [1, 2])]``;
          or a list of such lists, any of which must hold, as in pyarrow. ``op`` is one of ``= == != <> < <= > >= <=>``,
          ``in``, ``not in``, ``like``, ``not like``, ``starts_with``, ``is`` and ``is not`` (with ``None`` or a bool).
          The column is a name as :func:`~.tree.col` takes it, or what that returns.

    Raises
    ------
    UsageError
        The filter is none of these, or cannot be read.
    """
    if filter is None:
        return None
    if isinstance(filter, str):
        # Imported for the first text only: the SQL parser takes longer to load than everything else here.
        from delta_sharing_client.predicates.sql import parse_sql

        return parse_sql(filter)
    if isinstance(filter, (Expression, ColumnBuilder)):
        return as_expression(filter)
    if isinstance(filter, Sequence) and len(filter) > 0:
        if isinstance(filter, tuple) and isinstance(filter[0], str):
            return _condition(filter)
        if all(isinstance(item, (list, tuple)) and _holds_conditions(item) for item in filter):
            return any_of(all_of(_condition(item) for item in group) for group in filter)
        return all_of(_condition(item) for item in filter)
    raise UsageError(
        "Expected a filter as SQL text, as col('a') > 1 or as [('a', '>', 1)];"
        f" found {'an empty sequence' if isinstance(filter, Sequence) else type(filter).__name__}."
    )


def _holds_conditions(item: Sequence[Any]) -> bool:
    return len(item) > 0 and all(isinstance(inner, (tuple, list, Expression, ColumnBuilder)) for inner in item)


def _condition(item: object) -> Expression:
    if isinstance(item, (Expression, ColumnBuilder)):
        return as_expression(item)
    if not isinstance(item, (tuple, list)) or len(item) != 3 or not isinstance(item[1], str):
        raise UsageError(f"Expected a condition (column, operator, value); found {item!r}.")
    name, op, value = item
    if isinstance(name, ColumnBuilder):
        column: Operand = name.operand
    elif isinstance(name, (str, tuple)):
        column = Column(parse_path(name))
    else:
        raise UsageError(f"Expected a column name first in the condition {item!r}; found {type(name).__name__}.")
    build = OPERATORS.get(" ".join(op.lower().split()))
    if build is None:
        raise UsageError(f"There is no operator {op!r} for '{column}'. Use one of {', '.join(OPERATORS)}.")
    return build(column, value)


def _comparison(op: Op) -> Callable[[Operand, Any], Expression]:
    return lambda column, value: Comparison(op, column, _operand(column, value))


def _operand(column: Operand, value: Any) -> Operand:
    if isinstance(value, ColumnBuilder):
        return value.operand
    if isinstance(value, (list, tuple, set, frozenset)):
        raise UsageError(
            f"The column '{column}' is compared with a {type(value).__name__}. Use 'in' for a list of values."
        )
    return Literal(value)


def _in(column: Operand, value: Any) -> Expression:
    # An array's own iteration gives its scalars, those of pyarrow included.
    if hasattr(value, "to_pylist"):
        value = value.to_pylist()
    return membership(column, value)


def _is(column: Operand, value: Any) -> Expression:
    if value is None or (isinstance(value, str) and value.lower() == "null"):
        return IsNull(column)
    if isinstance(value, bool):
        return NullSafeEqual(column, Literal(value))
    raise UsageError(f"'is' on column '{column}' takes None, True or False; found {value!r}.")


def _pattern(build: Callable[[Operand, str], Expression], name: str) -> Callable[[Operand, Any], Expression]:
    def convert(column: Operand, value: Any) -> Expression:
        if not isinstance(value, str):
            raise UsageError(f"{name!r} on column '{column}' takes a string; found {type(value).__name__}.")
        return build(column, value)

    return convert


def _negated(build: Callable[[Operand, Any], Expression]) -> Callable[[Operand, Any], Expression]:
    return lambda column, value: Not(build(column, value))


def _not_in(column: Operand, value: Any) -> Expression:
    found = _in(column, value)
    # NOT IN of nothing holds for every row.
    return Literal(True) if isinstance(found, Literal) else Not(found)


OPERATORS: dict[str, Callable[[Operand, Any], Expression]] = {
    "=": _comparison(Op.EQ),
    "==": _comparison(Op.EQ),
    "!=": _comparison(Op.NE),
    "<>": _comparison(Op.NE),
    "<": _comparison(Op.LT),
    "<=": _comparison(Op.LE),
    ">": _comparison(Op.GT),
    ">=": _comparison(Op.GE),
    "<=>": lambda column, value: NullSafeEqual(column, _operand(column, value)),
    "in": _in,
    "not in": _not_in,
    "like": _pattern(Like, "like"),
    "not like": _negated(_pattern(Like, "not like")),
    "starts_with": _pattern(StartsWith, "starts_with"),
    "is": _is,
    "is not": _negated(_is),
}


# === Arrow's own expressions, as engines push them down ===
#
# The tree may only be weaker: whoever pushed the expression down still applies it to the rows. What has no counterpart,
# or another meaning here (NaN does not compare in Arrow), is left out.

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


def columns_of(expressions: Iterable[pc.Expression]) -> set[str] | None:
    """Return the names of the top-level columns that ``expressions`` read, ``None`` where one of them does not tell."""
    names: set[str] = set()
    nodes = [_parse(expression) for expression in expressions]
    if any(node is None for node in nodes):
        return None
    while nodes:
        node = nodes.pop()
        if isinstance(node, Column):
            names.add(node.path[0])
        elif isinstance(node, _Call):
            nodes += node.arguments
    return names


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
        return _compared(_COMPARISONS[node.function], node.arguments, schema)
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
    return _of_column(node, first)


def _of_column(node: _Call, column: Column) -> Expression | None:
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


def _compared(op: Op, arguments: list[_Node], schema: pa.Schema) -> Expression | None:
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
        entries = _entries(batch.schema)
        return _node(*next(entries), entries, batch)
    except (LookupError, ValueError, StopIteration):
        return None


def _node(kind: str, text: str, following: Iterator[tuple[str, str]], batch: pa.RecordBatch) -> _Node:
    if kind == "field_ref":
        return Column((text,))
    if kind == "nested_field_ref":
        return Column(tuple([next(following)[1] for _ in range(int(text))]))
    if kind == "literal":
        return _literal(batch.column(int(text))[0].as_py())
    if kind != "call":
        raise ValueError(kind)
    call = _Call(text)
    while (entry := next(following))[0] != "end":
        if entry[0] == "options":
            call.options = batch.column(int(entry[1]))[0].as_py()
        else:
            call.arguments.append(_node(*entry, following, batch))
    return call


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
