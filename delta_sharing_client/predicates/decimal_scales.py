"""Expressions of pyarrow that compare decimals of different scales (apache/arrow#41011).

pyarrow before 22 compares their digits without the scales: 1.00 is not less than 24. There, an expression is rebuilt
with casts to one type, or refused if that is not possible.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc

from delta_sharing_client.errors import UnsupportedFeatureError, check_memory
from delta_sharing_client.predicates.arrow import KERNELS
from delta_sharing_client.predicates.arrow_expressions import MATCH_NULLS, CallNode, ConstantNode, Node, parse
from delta_sharing_client.predicates.tree import Column

_COMPARISONS = frozenset(kernel.__name__ for kernel in KERNELS.values())
# These give the right result for different scales, or raise an error, in every supported version of pyarrow.
_SAFE = frozenset(("add", "subtract", "multiply", "divide", "coalesce", "if_else", "cast"))
_SAFE |= frozenset(f"{name}_checked" for name in ("add", "subtract", "multiply", "divide"))
# Options that a function takes as arguments of the same names.
_ARGUMENTS = frozenset(("pattern", "ignore_case", "nan_is_null"))
_TYPE_NAME = "_type_name"


@functools.cache
def heeds_scales() -> bool:
    """Return whether the installed pyarrow compares decimals of different scales by their values."""
    # The functions themselves are right; only expressions do without the cast.
    table = pa.table({"d": pa.array([Decimal(1)], pa.decimal128(15, 2))})
    return bool(_projected([pc.field("d") < Decimal(24)], table).column(0)[0].as_py())


def exact(expression: pc.Expression, schema: pa.Schema) -> pc.Expression:
    """Return an expression over columns of ``schema`` that compares decimals by their values.

    Raises ``UnsupportedFeatureError`` if the installed pyarrow would not, and the expression cannot be rebuilt.
    """
    if heeds_scales():
        return expression
    node = parse(expression)
    if node is not None and not _has_decimals(node, schema):
        return expression
    try:
        if node is None:
            raise UnknownCallError
        rebuilt, is_changed = _rebuilt(node, schema)
    except (UnknownCallError, pa.ArrowException, TypeError, ValueError) as error:
        check_memory(error)
        raise UnsupportedFeatureError(
            f"The expression '{expression}' may compare decimals of different scales, which pyarrow {pa.__version__} "
            "does incorrectly. Update pyarrow to version 22 or newer, or use SQL text as the filter of scan().",
            feature="comparisons of decimals",
        ) from None
    return rebuilt if is_changed else expression


class UnknownCallError(Exception):
    """The expression has a part that cannot be rebuilt."""


def _has_decimals(node: Node, schema: pa.Schema) -> bool:
    if isinstance(node, Column):
        name = node.path[0]
        return name not in schema.names or "decimal" in str(schema.field(name).type)
    if isinstance(node, ConstantNode):
        return "decimal" in str(node.scalar.type)
    if "decimal" in str(node.options.get("to_type")):
        return True
    return any(_has_decimals(argument, schema) for argument in node.arguments)


def _rebuilt(node: Node, schema: pa.Schema) -> tuple[pc.Expression, bool]:
    """Return the expression of ``node``, and whether it has casts that ``node`` lacks."""
    if isinstance(node, Column):
        return pc.field(*node.path), False
    if isinstance(node, ConstantNode):
        return pc.scalar(node.scalar), False
    parts = [_rebuilt(argument, schema) for argument in node.arguments]
    arguments, is_changed = [part for part, _ in parts], any(changed for _, changed in parts)
    decimals = {kind for kind in _types(arguments, schema) if pa.types.is_decimal(kind)}
    if len({kind.scale for kind in decimals}) > 1 and node.function not in _SAFE:
        if node.function not in _COMPARISONS:
            raise UnknownCallError
        common = _common(decimals)
        arguments, is_changed = [argument.cast(common) for argument in arguments], True
    return rebuilt_call(node, arguments), is_changed


def _types(expressions: Sequence[pc.Expression], schema: pa.Schema) -> list[pa.DataType]:
    return _projected(expressions, schema.empty_table()).schema.types


def _projected(expressions: Sequence[pc.Expression], table: pa.Table) -> pa.Table:
    names = [str(number) for number in range(len(expressions))]
    steps = [
        acero.Declaration("table_source", acero.TableSourceNodeOptions(table)),
        acero.Declaration("project", acero.ProjectNodeOptions(list(expressions), names)),
    ]
    return acero.Declaration.from_sequence(steps).to_table(use_threads=False)


def _common(decimals: set[pa.DataType]) -> pa.DataType:
    scale = max(kind.scale for kind in decimals)
    precision = max(kind.precision - kind.scale for kind in decimals) + scale
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)


def rebuilt_call(node: CallNode, arguments: list[pc.Expression]) -> pc.Expression:
    """Return the call of ``node`` with other ``arguments``. Raises ``UnknownCallError`` for an unknown call."""
    options = {name: value for name, value in node.options.items() if name != _TYPE_NAME}
    if node.function == "cast":
        kind = options.pop("to_type")
        return arguments[0].cast(options=pc.CastOptions(kind, **options))
    if node.function == "is_in":
        if options.get("null_matching_behavior") != MATCH_NULLS or node.stored_options is None:
            raise UnknownCallError
        return arguments[0].isin(node.stored_options["value_set"].values)
    if not options.keys() <= _ARGUMENTS:
        raise UnknownCallError
    function: Callable[..., Any] | None = getattr(pc, node.function, None)
    if function is None:
        raise UnknownCallError
    return function(*arguments, **options)
