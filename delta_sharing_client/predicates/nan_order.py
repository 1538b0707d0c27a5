"""Expressions of pyarrow from DuckDB 1, in whose order NaN is equal to itself and greater than every other number.

DuckDB 1 gives its filters to Arrow and does not apply them again, but in Arrow no comparison with NaN is true.
"""

from __future__ import annotations

import math

import pyarrow as pa
import pyarrow.compute as pc

from delta_sharing_client.errors import UnsupportedFeatureError, check_memory
from delta_sharing_client.predicates.arrow_expressions import CallNode, ConstantNode, Node, parse
from delta_sharing_client.predicates.decimal_scales import UnknownCallError, rebuilt_call
from delta_sharing_client.predicates.tree import Column

_JOINS = frozenset(("and_kleene", "or_kleene", "and", "or", "invert"))
_MIRRORED = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}


def nan_greatest(expression: pc.Expression, schema: pa.Schema) -> pc.Expression:
    """Return ``expression`` with comparisons of floating-point columns of ``schema`` in the order of DuckDB.

    Raises ``UnsupportedFeatureError`` if it has a part for which that is not possible.
    """
    floats = [field.name for field in schema if _has_floats(field.type)]
    if not floats:
        return expression
    try:
        node = parse(expression)
        if node is not None:
            return _rebuilt(node, schema, expression)
    except (UnknownCallError, pa.ArrowException, TypeError, ValueError) as error:
        check_memory(error)
    raise _refused(expression)


def _rebuilt(node: Node, schema: pa.Schema, whole: pc.Expression, inverted: bool = False) -> pc.Expression:
    if isinstance(node, ConstantNode):
        if node.value is False and not inverted:
            # "b > 'nan'": neither false nor unknown keeps a row.
            return pc.scalar(node.scalar)
        # DuckDB writes "b <= 'nan'" as true, which would also keep nulls; the column is not known any more.
        raise _refused(whole)
    if isinstance(node, Column):
        return pc.field(*node.path)
    if node.function in _JOINS:
        inside = inverted or node.function == "invert"
        parts = [_rebuilt(argument, schema, whole, inside) for argument in node.arguments]
        if node.function == "invert":
            return ~parts[0]
        return parts[0] & parts[1] if node.function.startswith("and") else parts[0] | parts[1]
    if not any(_reads_floats(argument, schema) for argument in node.arguments):
        return rebuilt_call(node, [_unchanged(argument) for argument in node.arguments])
    return _test(node, schema, whole)


def _reads_floats(node: Node, schema: pa.Schema) -> bool:
    if isinstance(node, Column):
        return _has_floats(_type_of(node, schema))
    return isinstance(node, CallNode) and any(_reads_floats(argument, schema) for argument in node.arguments)


def _unchanged(node: Node) -> pc.Expression:
    if isinstance(node, ConstantNode):
        return pc.scalar(node.scalar)
    if isinstance(node, Column):
        return pc.field(*node.path)
    return rebuilt_call(node, [_unchanged(argument) for argument in node.arguments])


def _type_of(column: Column, schema: pa.Schema) -> pa.DataType:
    kind: pa.DataType = schema.field(column.path[0]).type
    for name in column.path[1:]:
        kind = kind.field(name).type
    return kind


def _test(node: CallNode, schema: pa.Schema, whole: pc.Expression) -> pc.Expression:
    function, arguments = node.function, node.arguments
    if len(arguments) == 2 and isinstance(arguments[0], ConstantNode) and isinstance(arguments[1], Column):
        function, arguments = _MIRRORED.get(function, function), arguments[::-1]
    if isinstance(arguments[0], Column):
        column = pc.field(*arguments[0].path)
        if function == "is_valid":
            return column.is_valid()
        if function == "is_null" and not node.options.get("nan_is_null"):
            return column.is_null()
        if function == "is_nan":
            return pc.is_nan(column)
        if function == "is_in":
            # Arrow compares bits, of which NaN and zero have several.
            within = rebuilt_call(node, [column])
            numbers = [value for value in node.options["value_set"] if isinstance(value, float)]
            if any(map(math.isnan, numbers)):
                within |= pc.is_nan(column)
            return within | (column == 0.0) if 0.0 in numbers else within
        if len(arguments) == 2 and isinstance(arguments[1], ConstantNode):
            return _comparison(function, column, arguments[1], whole)
    raise _refused(whole)


def _comparison(function: str, column: pc.Expression, constant: ConstantNode, whole: pc.Expression) -> pc.Expression:
    if function not in (*_MIRRORED, "equal", "not_equal"):
        raise _refused(whole)
    plain = getattr(pc, function)(column, pc.scalar(constant.scalar))
    is_nan = pc.is_nan(column)
    if isinstance(constant.value, float) and math.isnan(constant.value):
        # Null for null: a comparison of a null is unknown, also inside a negation.
        return {
            "equal": is_nan,
            "greater_equal": is_nan,
            "not_equal": ~is_nan,
            "less": ~is_nan,
            "less_equal": is_nan | ~is_nan,
            "greater": is_nan & ~is_nan,
        }[function]
    return plain | is_nan if function in ("greater", "greater_equal") else plain


def _has_floats(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_floats(kind.field(place).type) for place in range(kind.num_fields))
    return bool(pa.types.is_floating(kind))


def _refused(expression: pc.Expression) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"The filter '{expression}' of DuckDB may compare NaN, which DuckDB 1 and Arrow order differently. Update"
        " DuckDB to version 2, or use SQL text as the filter of scan().",
        feature="comparisons of NaN",
    )
