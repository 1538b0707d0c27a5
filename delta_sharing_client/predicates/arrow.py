"""Evaluates a bound predicate on Arrow batches, exactly.

Every node becomes one or more calls of vectorized kernels, which return a nullable boolean array; null means unknown.
This module compensates for differences between Arrow's kernels and SQL (NaN, mixed numeric types, dates and
timestamps).
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from delta_sharing_client.arrow_forms import count_true
from delta_sharing_client.errors import DataError
from delta_sharing_client.instants import NANOS_PER_DAY
from delta_sharing_client.predicates import functions
from delta_sharing_client.predicates.lists import InSortedList, listed
from delta_sharing_client.predicates.tree import (
    And,
    Call,
    Column,
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
    Or,
    StartsWith,
    columns,
    has_calls,
)
from delta_sharing_client.predicates.value_kinds import DATES, NANOS, NUMBERS, Kind, kind_of, to_arrow
from delta_sharing_client.predicates.values import Value

# pyarrow has no types for its kernels; these are their arguments and results.
_Array = Any
_Truth = Any  # BooleanArray, or BooleanScalar if all rows have the same value


def mask(expression: Expression, batch: pa.RecordBatch) -> pa.BooleanArray:
    """Return which rows of ``batch`` match, without nulls: ``False`` also where the predicate is unknown.

    ``expression`` must be bound to a schema with the batch's columns, by the same names. Dictionary-encoded columns and
    other encodings of the bound types are accepted. Raises ``DataError`` if the batch lacks a column or has it with
    a different type.
    """
    rows = batch.num_rows
    truth: _Truth = None
    for part in expression.children if isinstance(expression, And) else (expression,):
        if truth is None:
            truth = _full(_evaluate(part, batch), rows).fill_null(False)
        elif has_calls(part):
            # A call may fail for rows that earlier conditions exclude.
            truth = pc.replace_with_mask(truth, truth, _evaluate_where(truth, part, batch).fill_null(False))
        else:
            truth = pc.and_(truth, _full(_evaluate(part, batch), rows).fill_null(False))
        # No later conjunct can add rows.
        if count_true(truth) == 0:
            break
    return truth


def _full(truth: _Truth, rows: int) -> _Array:
    return pa.repeat(truth, rows) if isinstance(truth, pa.Scalar) else truth


def _evaluate(expression: Expression, batch: pa.RecordBatch) -> _Truth:
    match expression:
        case And(children=children):
            return _fold(pc.and_kleene, children, batch, decisive=False)
        case Or(children=children):
            return _fold(pc.or_kleene, children, batch, decisive=True)
        case Not(child=inner):
            return pc.invert(_evaluate(inner, batch))
        case Literal(value=value):
            return pa.scalar(value, pa.bool_())
        case Comparison(op=op, left=left, right=Literal(value=value)):
            return _on_values(left, batch, lambda array: _compare(op, array, value))
        case Comparison(op=op, left=left, right=right):
            return _compare_columns(op, _decoded(left, batch), _decoded(right, batch))
        case NullSafeEqual(left=left, right=Literal(value=value)):
            values_listed = _on_values(left, batch, lambda array: _compare(Op.EQ, array, value))
            return pc.fill_null(values_listed, False)
        case NullSafeEqual(left=left, right=right):
            return _null_safe(_decoded(left, batch), _decoded(right, batch))
        case In(child=child):
            values_listed = listed(expression)
            return _on_values(child, batch, lambda array: _in(array, values_listed))
        case IsNull(child=child):
            return _is_null(_column(child, batch) if isinstance(child, Column) else _decoded(child, batch))
        case Like(child=child):
            return _on_values(child, batch, lambda array: _like(array, expression))
        case StartsWith(child=child, prefix=prefix):
            return _on_values(child, batch, lambda array: pc.starts_with(array, pattern=prefix))
    raise TypeError(f"not a bound predicate: {expression}")


def _fold(
    combine: Callable[..., _Truth], children: tuple[Expression, ...], batch: pa.RecordBatch, *, decisive: bool
) -> _Truth:
    """Combine conditions from left to right; one that may fail is evaluated only for rows that are not yet
    ``decisive``.
    """
    truth = _evaluate(children[0], batch)
    for child in children[1:]:
        if not has_calls(child):
            truth = combine(truth, _evaluate(child, batch))
            continue
        truth = _full(truth, batch.num_rows)
        undecided = (pc.invert(truth) if decisive else truth).fill_null(True)
        decided = combine(truth.filter(undecided), _evaluate_where(undecided, child, batch))
        truth = pc.replace_with_mask(truth, undecided, decided)
    return truth


def _evaluate_where(rows: pa.BooleanArray, expression: Expression, batch: pa.RecordBatch) -> _Array:
    """Evaluate ``expression`` only for the rows for which ``rows`` is true."""
    some = batch.select(list({path[0] for path in columns(expression)}))
    return _evaluate(expression, some.filter(rows))


# === Columns ===


def _column(column: Column, batch: pa.RecordBatch) -> _Array:
    index = batch.schema.get_field_index(column.path[0])
    if index < 0:
        raise DataError(f"The batch has no column '{column}'; it has {', '.join(batch.schema.names)}.")
    array = batch.column(index)
    for name in column.path[1:]:
        positions = array.type.get_all_field_indices(name) if pa.types.is_struct(array.type) else []
        if len(positions) != 1:
            raise DataError(f"The column '{column}' has no field {name!r} in the batch; it is {array.type}.")
        # Unlike .field(), this makes the children of a null parent null.
        array = pc.struct_field(array, positions)
    return array


def _on_values(operand: Operand, batch: pa.RecordBatch, test: Callable[[_Array], _Truth]) -> _Truth:
    """Apply ``test`` to an operand, or only to the values of its dictionary if that is less work."""
    if not isinstance(operand, Column):
        return test(_decoded(operand, batch))
    column = operand
    array = _column(column, batch)
    if isinstance(array, pa.DictionaryArray) and len(array.dictionary) <= len(array):
        return test(_as_bound(array.dictionary, column)).take(array.indices)
    return test(_as_bound(array, column))


def _as_bound(array: _Array, column: Column) -> _Array:
    data_type: Any = column.type
    if pa.types.is_dictionary(data_type):
        data_type = data_type.value_type
    if pa.types.is_timestamp(data_type) and data_type.unit != "ns":
        # Constants are in microseconds.
        data_type = pa.timestamp("us", data_type.tz)
    if array.type == data_type:
        return array
    if kind_of(array.type) is kind_of(data_type):
        try:
            return array.cast(data_type)
        except pa.ArrowInvalid:
            pass
    raise DataError(f"The column '{column}' is {array.type} in the batch, but the filter is bound to {data_type}.")


def _decoded(operand: Operand, batch: pa.RecordBatch) -> _Array:
    if isinstance(operand, Call):
        return _computed(operand, batch)
    assert isinstance(operand, Column), "a constant is only allowed next to a column, or in a call"
    return _as_bound(_column(operand, batch), operand)


def _is_null(array: _Array) -> _Array:
    if isinstance(array, pa.DictionaryArray):
        # The dictionary itself may contain a null.
        return array.dictionary.is_null().take(array.indices).fill_null(True)
    return array.is_null()


# === Comparisons ===

KERNELS: dict[Op, Callable[..., _Truth]] = {
    Op.EQ: pc.equal, Op.NE: pc.not_equal,
    Op.LT: pc.less, Op.LE: pc.less_equal, Op.GT: pc.greater, Op.GE: pc.greater_equal,
}  # fmt: skip


def _compare(op: Op, array: _Array, value: Value) -> _Truth:
    kernel = KERNELS[op]
    if kind_of(array.type) is not Kind.FLOATING:
        return kernel(array, to_arrow([value], array.type)[0])
    assert isinstance(value, float)
    nan = pc.is_nan(array)
    if math.isnan(value):
        # NaN equals itself and is greater than all other values.
        if op in (Op.EQ, Op.GE):
            return nan
        if op in (Op.NE, Op.LT):
            return pc.invert(nan)
        return pc.or_kleene(nan, pc.invert(nan)) if op is Op.LE else pc.and_kleene(nan, pc.invert(nan))
    truth = kernel(array, pa.scalar(value, array.type))
    return pc.or_(truth, nan) if op in (Op.GT, Op.GE) else truth


def _in(array: _Array, values: InSortedList) -> _Truth:
    if kind_of(array.type) is Kind.FLOATING:
        # Hashing distinguishes -0.0 from 0.0; adding zero makes both 0.0.
        truth = pc.is_in(pc.add(array, pa.scalar(0.0, array.type)), values.array(array.type))
    else:
        truth = pc.is_in(array, values.array(array.type))
    if values.known.has_nan:
        truth = pc.or_(truth, pc.is_nan(array))
    if values.known.has_null:
        # With a null in the list, a miss is unknown.
        return pc.if_else(pc.and_(truth, array.is_valid()), True, pa.scalar(None, pa.bool_()))
    return pc.if_else(array.is_valid(), truth, pa.scalar(None, pa.bool_()))


def _like(array: _Array, like: Like) -> _Truth:
    tokens = list(like.tokens())
    wild = [index for index, (_, wildcard) in enumerate(tokens) if wildcard]
    plain = "".join(char for char, wildcard in tokens if not wildcard)
    if not wild:
        return pc.equal(array, pa.scalar(plain, array.type))
    if all(tokens[index][0] == "%" for index in wild):
        if wild == [len(tokens) - 1]:
            return pc.starts_with(array, pattern=plain)
        if wild == [0]:
            return pc.ends_with(array, pattern=plain)
        if wild == [0, len(tokens) - 1]:
            return pc.match_substring(array, pattern=plain)
    return pc.match_substring_regex(array, pattern=rf"\A(?:{like.regex()})\z")


# === Two columns ===


def _null_safe(a: _Array, b: _Array) -> _Truth:
    equal = _compare_columns(Op.EQ, a, b).fill_null(False)
    return pc.or_(equal, pc.and_(a.is_null(), b.is_null()))


def _compare_columns(op: Op, a: _Array, b: _Array) -> _Array:
    kinds = {kind_of(a.type), kind_of(b.type)}
    if Kind.FLOATING in kinds:
        return _compare_doubles(op, _as_double(a), _as_double(b))
    if Kind.BOOLEAN in kinds:
        a, b = a.cast(pa.int8()), b.cast(pa.int8())
    elif a.type != b.type:
        # The types are of one kind, or two kinds of exact numbers, or dates and timestamps.
        if kinds & NUMBERS:
            a, b = _as_decimals(a, b)
        elif kinds & DATES:
            a, b = _as_nanoseconds(a), _as_nanoseconds(b)
        else:
            b = b.cast(a.type)
    return KERNELS[op](a, b)


def _compare_doubles(op: Op, a: _Array, b: _Array) -> _Array:
    if op in (Op.NE, Op.GE, Op.LE):
        return pc.invert(_compare_doubles(op.negated, a, b))
    nan_a, nan_b = pc.is_nan(a), pc.is_nan(b)
    if op is Op.EQ:
        return pc.or_(pc.equal(a, b), pc.and_(nan_a, nan_b))
    if op is Op.GT:
        return pc.or_(pc.greater(a, b), pc.and_(nan_a, pc.invert(nan_b)))
    return pc.or_(pc.less(a, b), pc.and_(nan_b, pc.invert(nan_a)))


def _as_double(array: _Array) -> _Array:
    if pa.types.is_decimal(array.type):
        # The cast of text rounds to the nearest double; the direct cast may differ in the last bit.
        return array.cast(pa.string()).cast(pa.float64())
    return array.cast(pa.float64(), safe=False)


def _as_decimals(a: _Array, b: _Array) -> tuple[_Array, _Array]:
    digits = [(t.precision, t.scale) if pa.types.is_decimal(t) else (20, 0) for t in (a.type, b.type)]
    scale = max(pair[1] for pair in digits)
    common = pa.decimal256(max(precision - own for precision, own in digits) + scale, scale)
    return a.cast(common), b.cast(common)


def _as_nanoseconds(array: _Array) -> _Array:
    # As decimals, because the nanoseconds of most dates exceed 64 bits.
    if pa.types.is_date(array.type):
        count, nanos = array.cast(pa.int32()), NANOS_PER_DAY
    else:
        count, nanos = array.cast(pa.int64()), NANOS[array.type.unit]
    # Wide enough for every integer, and narrow enough for the product.
    return pc.multiply(count.cast(pa.decimal128(19, 0)), decimal.Decimal(nanos)).cast(pa.decimal128(38, 0))


# === Operators and functions ===


def _computed(call: Call, batch: pa.RecordBatch) -> _Array:
    arguments: list[Any] = [item if isinstance(item, Literal) else _decoded(item, batch) for item in call.arguments]
    constants = [item.value for item in arguments[1:] if isinstance(item, Literal)]
    row = functions.row_of(call.name, constants)
    if row.skips_nulls:
        return _full(pc.coalesce(*(_argument(item, call.type) for item in arguments)), batch.num_rows)
    if row.arithmetic is not None:
        return _arithmetic(row.arithmetic, call, arguments)
    return functions.compute(call.name, arguments[0], constants, call.type, str(call))


def _argument(argument: Any, data_type: pa.DataType) -> Any:
    """Return an argument (an array or a constant) in the type in which its call computes."""
    if isinstance(argument, Literal):
        return to_arrow([functions.as_type(argument.value, data_type)], data_type)[0]
    if pa.types.is_floating(data_type):
        return _as_double(argument).cast(data_type)
    if pa.types.is_decimal(data_type) and pa.types.is_integer(argument.type):
        return argument.cast(pa.decimal128(20, 0)).cast(data_type)
    return argument.cast(data_type)


def _arithmetic(arithmetic: functions.Arithmetic, call: Call, arguments: list[Any]) -> _Array:
    if pa.types.is_decimal(call.type):
        operands = [item.value if isinstance(item, Literal) else item.type for item in arguments]
        sides = [_argument(item, functions.decimal_type(own)) for item, own in zip(arguments, operands, strict=True)]
    else:
        sides = [_argument(item, call.type) for item in arguments]
    if arithmetic.divides:
        rows = next(len(side) for side in sides if isinstance(side, pa.Array))
        both = sides[0].is_valid() if isinstance(sides[0], pa.Array) else pa.scalar(True)
        if pc.any(pc.and_(_full(pc.equal(sides[1], pa.scalar(0, call.type)), rows), both)).as_py():
            raise functions.division_by_zero(str(call))
    try:
        return arithmetic.arrays(*sides).cast(call.type)
    except pa.ArrowInvalid:
        raise functions.overflow(str(call), call.type) from None
