"""Converts SQL text to a predicate tree; ``str(expression)`` is the inverse.

This module parses string literals as Spark does, and hides them from sqlglot, which parses the rest. Syntax that
sqlglot accepts but this module does not support is refused by name.
"""

from __future__ import annotations

import dataclasses
import decimal
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp

from delta_sharing_client.errors import UsageError
from delta_sharing_client.instants import MICROS_PER_DAY, MICROS_PER_SECOND
from delta_sharing_client.predicates.advice import advice, backticks_advice, quoted
from delta_sharing_client.predicates.dialect import DECIMAL_MESSAGE, FLOAT_MESSAGE, check_zone
from delta_sharing_client.predicates.functions import CASTS, FUNCTIONS, OPERATORS, ROWS
from delta_sharing_client.predicates.string_literals import (
    is_double_quoted,
    shield,
    unshield,
    without_literals,
)
from delta_sharing_client.predicates.text_spans import Rewritten, Span, span_of_name
from delta_sharing_client.predicates.tree import (
    And,
    Call,
    Column,
    Comparison,
    DoubleQuoted,
    Expression,
    IsNull,
    Like,
    Literal,
    Not,
    NullSafeEqual,
    Op,
    Operand,
    Or,
    StartsWith,
    call,
    cast,
    compared,
    membership,
)
from delta_sharing_client.predicates.values import (
    Interval,
    Moment,
    Value,
    Zone,
    as_float,
    is_number,
    parse_clock,
    parse_date,
    parse_moment,
)

_SUPPORTED = (
    "Supported are comparisons (= <> < <= > >= <=>), AND, OR, NOT, IN, BETWEEN, LIKE, ILIKE, startswith(), IS [NOT]"
    f" NULL, IS [NOT] TRUE or FALSE and IS [NOT] DISTINCT FROM, of columns, constants, {' '.join(OPERATORS)} and the"
    f" functions {', '.join(FUNCTIONS[:-1])} and {FUNCTIONS[-1]}."
)


class _Unsupported(UsageError):
    """SQL that is not supported; the message names it."""


def parse_sql(text: str) -> Expression:
    """Parse a Spark SQL condition, for example ``"date >= '2024-01-01' AND a.b IN (1, 2)"``.

    Backticks quote a name; a dot inside them is part of the name, a dot outside separates struct fields. Numbers with a
    point are exact decimals, those with an exponent doubles. ``DATE '...'``, ``TIMESTAMP '...'``, ``X'...'`` and
    ``CAST(constant AS type)`` are constants too. Raises ``UsageError`` if the text is not a condition, or uses
    unsupported SQL, which the message names.
    """
    quoted: tuple[tuple[str, Span], ...] = ()
    try:
        shielded, quoted = shield(text)
        tree: Any = sqlglot.parse_one(shielded.text, read="databricks", into=exp.Condition)
        predicate = _predicate(tree)
        return DoubleQuoted(predicate, quoted) if quoted else predicate
    except UsageError as error:
        more, span = _advice(text)
        if isinstance(error, _Unsupported):
            more = more or _SUPPORTED
        elif quoted and "backticks" not in error.message:
            more = more or backticks_advice(quoted[0][0])
        origin = error.span and shielded.span(*error.span) if isinstance(error, _Unsupported) else error.span
        origin = origin or next((span for string, span in quoted if f"'{string}'" in error.message), None)
        refused = UsageError(f"The filter {_shorten(text)} cannot be used. {error.message} {more}".rstrip())
        refused.span = span or span_of_name(text, error.message) or origin
        raise refused from None
    except sqlglot.errors.SqlglotError as error:
        more, span = _advice(text)
        more = more or (
            "Write strings in single quotes, and put backticks around names that are keywords or have special"
            f" characters. {_SUPPORTED}"
        )
        where = _place(error)
        refused = UsageError(f"The filter {_shorten(text)} cannot be parsed as a SQL condition{where}. {more}")
        refused.span = span or _stopped_at(error, shielded)
        raise refused from None
    except RecursionError:
        raise UsageError(f"The filter {_shorten(text)} is nested too deep. Use fewer levels of parentheses.") from None


def _advice(text: str) -> tuple[str, Span | None]:
    """Return advice on the filter ``text``, and the part of the text that it is about."""
    written = without_literals(text)
    sentence, span = advice(written.text)
    return sentence, None if span is None else written.span(*span)


def _stopped_at(error: sqlglot.errors.SqlglotError, shielded: Rewritten) -> Span | None:
    """Return the position where sqlglot stopped, in the original text; ``None`` if it does not report it."""
    problems: list[dict[str, Any]] = getattr(error, "errors", [])
    before, stopped = (str((problems[0] if problems else {}).get(key) or "") for key in ("start_context", "highlight"))
    # The context begins a hundred characters before the position where sqlglot stopped, or at the start of the text.
    start = shielded.text.find(before + stopped)
    return shielded.span(start + len(before), start + len(before) + len(stopped)) if stopped and start >= 0 else None


# === Predicates ===


def _predicate(node: exp.Expression) -> Expression:
    convert = _PREDICATES.get(type(node))
    if convert is not None:
        return convert(node)
    if _row_of(type(node).__name__) is None:
        raise _unsupported(node)
    return _bare(node)


def _comparison(op: Op) -> Callable[[exp.Expression], Expression]:
    return lambda node: _compared(op, node, *_sides(node))


def _compared(op: Op, node: exp.Expression, left: Operand, right: Operand) -> Comparison:
    """Return ``left op right``. Refuse constants alone if one of them is in double quotes, because it is probably the
    name of a column."""
    if isinstance(left, Literal) and isinstance(right, Literal):
        for literal in node.find_all(exp.Literal):
            if _is_double_quoted(literal):
                text = str(unshield(str(literal.this)))
                raise UsageError(
                    f"It compares constants only: '{text}' in double quotes is a string. {backticks_advice(text)}"
                )
    return compared(op, left, right)


def _null_safe(node: exp.Expression) -> Expression:
    equal = _compared(Op.EQ, node, *_sides(node))
    return NullSafeEqual(equal.left, equal.right)


def _between(node: exp.Expression) -> Expression:
    _only(node, "this", "low", "high")
    child = _operand(_part(node, "this"))
    low, high = _operand(_part(node, "low")), _operand(_part(node, "high"))
    return And((_compared(Op.GE, node, child, low), _compared(Op.LE, node, child, high)))


def _in(node: exp.Expression) -> Expression:
    _only(node, "this", "expressions")
    column = _computed(_part(node, "this"))
    values = [_constant(item) for item in node.expressions]
    if not values:
        raise UsageError("IN needs at least one value.")
    return membership(column, values)


def _is(node: exp.Expression) -> Expression:
    right = _part(node, "expression")
    if isinstance(right, exp.Null):
        return IsNull(_computed(_part(node, "this")))
    if isinstance(right, exp.Boolean):
        return NullSafeEqual(_computed(_part(node, "this")), Literal(bool(right.this)))
    raise UsageError("IS must be followed by NULL, TRUE, FALSE or DISTINCT FROM.")


def _like(node: exp.Expression, escape: str = "\\") -> Expression:
    _only(node, "this", "expression", "negate")
    pattern = _text(_part(node, "expression"), "The pattern of LIKE")
    operand = _computed(_part(node, "this"))
    if isinstance(node, exp.ILike):
        if escape.lower() != escape.upper():
            raise UsageError(f"The escape character of ILIKE must have no upper or lower case, found {escape!r}.")
        operand, pattern = call("lower", operand), pattern.lower()
    like = Like(operand, pattern, escape)
    return Not(like) if node.args.get("negate") else like


def _escape(node: exp.Expression) -> Expression:
    like = _part(node, "this")
    if not isinstance(like, (exp.Like, exp.ILike)):
        raise _unsupported(like)
    return _like(like, _text(_part(node, "expression"), "The escape of LIKE"))


def _starts_with(node: exp.Expression) -> Expression:
    return StartsWith(
        _computed(_part(node, "this")), _text(_part(node, "expression"), "The second argument of startswith")
    )


def _anonymous(node: exp.Expression) -> Expression:
    name = str(unshield(str(node.this))).lower()
    if name in ("isnull", "isnotnull") and len(node.expressions) == 1:
        test = IsNull(_computed(node.expressions[0]))
        return test if name == "isnull" else Not(test)
    return _bare(node)


def _bare(node: exp.Expression) -> Expression:
    # A column, a function or a constant used as a condition
    operand = _operand(node)
    return operand if isinstance(operand, Literal) else Comparison(Op.EQ, operand, Literal(True))


_PREDICATES: dict[type[exp.Expression], Callable[[exp.Expression], Expression]] = {
    exp.EQ: _comparison(Op.EQ),
    exp.NEQ: _comparison(Op.NE),
    exp.LT: _comparison(Op.LT),
    exp.LTE: _comparison(Op.LE),
    exp.GT: _comparison(Op.GT),
    exp.GTE: _comparison(Op.GE),
    exp.Paren: lambda node: _predicate(_only(node, "this")),
    exp.And: lambda node: And(tuple(map(_predicate, _chain(node, exp.And)))),
    exp.Or: lambda node: Or(tuple(map(_predicate, _chain(node, exp.Or)))),
    exp.Not: lambda node: Not(_predicate(_only(node, "this"))),
    exp.NullSafeEQ: _null_safe,
    exp.NullSafeNEQ: lambda node: Not(_null_safe(node)),
    exp.Between: _between,
    exp.In: _in,
    exp.Is: _is,
    exp.Like: _like,
    exp.ILike: _like,
    exp.Escape: _escape,
    exp.StartsWith: _starts_with,
    exp.Anonymous: _anonymous,
    exp.Column: _bare,
    exp.Dot: _bare,
    exp.Cast: _bare,
    exp.Boolean: _bare,
    exp.Null: _bare,
}


def _chain(node: exp.Expression, kind: type[exp.Expression]) -> list[exp.Expression]:
    # Not recursive, because a filter may join thousands of conditions.
    items: list[exp.Expression] = []
    stack = [node]
    while stack:
        item = stack.pop()
        if isinstance(item, kind):
            stack += [_part(item, "expression"), _part(item, "this")]
        else:
            items.append(item)
    return items


# === Operands ===


def _operand(node: exp.Expression) -> Operand:
    convert = _OPERANDS.get(type(node))
    if convert is not None:
        return convert(node)
    name = _row_of(type(node).__name__)
    if name is None:
        raise _unsupported(node)
    return call(name, *_sides(node)) if name in OPERATORS else _function(name, node)


def _row_of(kind: str) -> str | None:
    """Return the name of the function for a node class of sqlglot, or of the cast for one of its types."""
    return next((name for name, row in ROWS.items() if kind in row.sql), None)


def _negative(node: exp.Expression) -> Operand:
    inner = _operand(_only(node, "this"))
    if not isinstance(inner, Literal):
        return call("-", inner)
    value = inner.value
    if isinstance(value, decimal.Decimal):
        return Literal(value.copy_negate())  # a minus sign would round to the 28 digits of the thread's context
    if is_number(value) or isinstance(value, Interval):
        return Literal(-value)
    raise _unsupported(node)


def _old_date_add(node: exp.Expression) -> Operand:
    # Older releases parse both functions as this node, although they differ for timestamps.
    raise UsageError(
        "The functions date_add and dateadd need a newer release of sqlglot. Update it, or add an interval, as in"
        " day + INTERVAL '1' DAY."
    )


def _add_to_date(unit: str) -> Callable[[exp.Expression], Operand]:
    return lambda node: call("+", call("date", _operand(_part(node, "this"))), Literal(Interval(_count(node), unit)))


def _add_to_timestamp(node: exp.Expression) -> Operand:
    unit_and_size = _UNITS.get(str(node.args.get("unit")).upper())
    if unit_and_size is None:
        raise _unsupported(node)
    unit, size = unit_and_size
    return call("+", _operand(_part(node, "this")), Literal(Interval(_count(node) * size, unit)))


# For each unit of an interval in SQL, the unit of ``Interval`` and the number of those in it.
_UNITS = {
    "YEAR": ("MONTH", 12), "MONTH": ("MONTH", 1), "WEEK": ("DAY", 7), "DAY": ("DAY", 1),
    "HOUR": ("MICROSECOND", MICROS_PER_DAY // 24), "MINUTE": ("MICROSECOND", MICROS_PER_SECOND * 60),
    "SECOND": ("MICROSECOND", MICROS_PER_SECOND), "MILLISECOND": ("MICROSECOND", 1000),
    "MICROSECOND": ("MICROSECOND", 1),
}  # fmt: skip


def _interval(node: exp.Expression) -> Literal:
    amount, unit = node.this, str(node.args.get("unit") or "").upper().removesuffix("S")
    text = unshield(str(amount.this)) if isinstance(amount, exp.Literal) else None
    fraction = r"(?:\.[0-9]{1,6})?" if unit == "SECOND" else ""
    if (
        unit not in _UNITS
        or not isinstance(text, str)
        or not re.fullmatch(rf"[+-]?[0-9]{{1,18}}{fraction}", text.strip())
    ):
        raise UsageError(
            f"The interval {node.sql('spark')} is not supported. Write a constant number and one of"
            f" {', '.join(_UNITS)}, such as INTERVAL '2' HOUR, and add several intervals with +."
        )
    own, size = _UNITS[unit]
    return Literal(Interval(int(decimal.Decimal(text) * size), own))


def _count(node: exp.Expression) -> int:
    """Return the constant number of days or months that a function adds."""
    count = _part(node, "expression")
    sign = 1
    if isinstance(count, exp.Mul) and count.expression.sql() == "-1":
        count, sign = _part(count, "this"), -1  # sqlglot's form of date_sub
    operand = _operand(count)
    if isinstance(operand, Literal) and type(operand.value) is int:
        return operand.value * sign
    raise UsageError(f"{_describe(node).capitalize()} must add a constant whole number; found {operand}.")


def _sides(node: exp.Expression) -> tuple[Operand, Operand]:
    return _operand(_part(node, "this")), _operand(_part(node, "expression"))


def _cast(node: exp.Expression) -> Operand:
    assert isinstance(node, exp.Cast)
    operand, target = _operand(_part(node, "this")), node.to
    # Only constants can be cast to TIME.
    name = "time" if target.this.name == "TIME" else _row_of(target.this.name)
    if name == "time" and target.expressions:
        raise UsageError("TIME always has six digits after the point; write it without a number of digits.")
    if name == "decimal" and not target.expressions:
        raise UsageError(DECIMAL_MESSAGE)
    if isinstance(operand, Literal):
        if name == "float":
            raise UsageError(FLOAT_MESSAGE)
        return operand if operand.value is None else Literal(_cast_constant(operand.value, name, target))
    if name not in CASTS:
        raise UsageError(
            f"Casting {operand} to {target.this.name} is not supported. Columns can be cast to {', '.join(CASTS)}."
        )
    computed = cast(operand, name, *_digits(target))
    assert isinstance(computed, Call)
    return dataclasses.replace(computed, in_sql=True)


def _digits(target: exp.DataType) -> list[int]:
    """Return the written precision and scale of a decimal type."""
    digits = [str(param.this.this) for param in target.expressions]
    if digits and (
        target.this.name != "DECIMAL" or len(digits) > 2 or not all(re.fullmatch("[0-9]{1,9}", n) for n in digits)
    ):
        raise UsageError(
            f"The type {target.sql('spark')} is not supported in a cast. Leave out the part in parentheses."
        )
    return list(map(int, digits))


def _function(name: str, node: exp.Expression) -> Operand:
    if not ROWS[name].folds:
        if any(node.args.values()):
            raise _unsupported(node)
        return call(name)
    first = _only(node, "this", "expressions")
    if isinstance(first, exp.TsOrDsToDate):  # sqlglot's form for year() of a string
        first = _only(first, "this")
    others = node.args.get("expressions") or []
    return call(name, *map(_operand, (first, *others)))


def _unknown(node: exp.Expression) -> Operand:
    """Return the call of a function that this release of sqlglot does not know."""
    name = str(unshield(str(node.this))).lower()
    name = "timestamp" if name == "to_timestamp" else name
    if name in CASTS and len(node.expressions) == 1:
        return cast(_operand(node.expressions[0]), name)
    if name not in ROWS or name in CASTS or bool(node.expressions) is not ROWS[name].folds:
        raise _unsupported(node)
    return call(name, *map(_operand, node.expressions))


_OPERANDS: dict[type[exp.Expression], Callable[[exp.Expression], Operand]] = {
    exp.Paren: lambda node: _operand(_only(node, "this")),
    exp.Column: lambda node: _column(node),
    exp.Dot: lambda node: _column(node),
    exp.Null: lambda node: Literal(None),
    exp.Boolean: lambda node: Literal(node.this),
    exp.Literal: lambda node: Literal(unshield(str(node.this)) if node.is_string else _number(str(node.this))),
    exp.Neg: _negative,
    exp.Interval: _interval,
    exp.DateAdd: _old_date_add,
    exp.TsOrDsAdd: _add_to_date("DAY"),
    exp.AddMonths: _add_to_date("MONTH"),
    exp.TimestampAdd: _add_to_timestamp,
    exp.Cast: _cast,
    exp.Anonymous: _unknown,
}


def _computed(node: exp.Expression) -> Operand:
    """Return a column, or a value computed from columns."""
    operand = _operand(node)
    if isinstance(operand, Literal):
        raise UsageError(
            f"A column was expected, found the constant {operand}. Write names in backticks, not in quotes."
        )
    return operand


def _column(node: exp.Expression) -> Column:
    if isinstance(node, exp.Dot):
        return Column((*_column(_part(node, "this")).path, _name(_part(node, "expression"))), in_sql=True)
    if isinstance(node, exp.Column):
        parts: list[Any] = list(node.parts)
        return Column(tuple(_name(part) for part in parts), in_sql=True)
    raise UsageError(f"A column was expected, found {_describe(node)}.")


def _name(node: exp.Expression) -> str:
    if not isinstance(node, exp.Identifier) or not node.this:
        raise _unsupported(node)
    return str(node.this)


def _constant(node: exp.Expression) -> Literal:
    operand = _operand(node)
    if isinstance(operand, Literal):
        return operand
    if isinstance(operand, Column):
        more = quoted(operand.path[0]) if len(operand.path) == 1 else ""
        raise UsageError(f"A constant was expected, found the column '{operand}'. {more}".rstrip())
    raise UsageError(f"A constant was expected, found {operand}.")


def _number(text: str) -> Value:
    if re.fullmatch(r"\d{1,4000}", text, re.ASCII):  # Python refuses longer integers, and no filter needs them.
        return int(text)
    if re.fullmatch(r"\d+\.?\d*|\.\d+", text, re.ASCII):
        return decimal.Decimal(text)
    if re.fullmatch(r"(\d+\.?\d*|\.\d+)[eE][+-]?\d+", text, re.ASCII):
        return float(text)
    raise UsageError(f"{text!r} is not a number.")


def _cast_constant(value: Value, name: str | None, target: exp.DataType) -> Value:
    if name is None or (name in _TEXTS and not isinstance(value, str)):
        raise UsageError(f"Casting {value!r} to {target.this.name} is not supported; write the constant in that type.")
    if name in _TEXTS:
        return _TEXTS[name](str(value))
    if name in _NUMBERS:
        return _NUMBERS[name](value, name)
    folded = cast(Literal(value), name, *_digits(target))
    assert isinstance(folded, Literal)
    return folded.value


def _moment(text: str) -> Moment:
    moment = parse_moment(text)
    check_zone(text, moment)
    return moment


def _local_moment(text: str) -> Moment:
    moment = parse_moment(text)
    if moment.zone is Zone.UTC:
        raise UsageError(f"TIMESTAMP_NTZ {text!r} has a zone; leave it out or write TIMESTAMP.")
    return moment


def _to_integer(value: Value, name: str) -> int:
    digits = str(value).strip() if isinstance(value, (str, int)) else ""
    if not re.fullmatch(r"[+-]?\d{1,20}", digits, re.ASCII):
        raise UsageError(f"{value!r} is not an integer constant.")
    data_type = ROWS[name].result
    assert isinstance(data_type, pa.DataType)
    bound = 1 << (data_type.bit_width - 1)
    # One more than the maximum is accepted, because a minus sign may be applied later.
    if not -bound <= int(digits) <= bound:
        raise UsageError(f"{digits} does not fit in {name.upper()}.")
    return int(digits)


def _to_floating(value: Value, name: str) -> float:
    try:
        if isinstance(value, bool) or not isinstance(value, (str, int, float, decimal.Decimal)):
            raise ValueError
        number = float(value)
    except (ValueError, OverflowError):
        raise UsageError(f"{value!r} is not a floating point constant.") from None
    return as_float(number) if name == "float" else number


_TEXTS: dict[str, Callable[[str], Value]] = {
    "string": str, "date": parse_date, "timestamp": _moment, "timestamp_ntz": _local_moment,
    "time": parse_clock,
}  # fmt: skip
_NUMBERS: dict[str, Callable[[Value, str], Value]] = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), _to_integer),
    **dict.fromkeys(("float", "double"), _to_floating),
}


def _text(node: exp.Expression, what: str) -> str:
    value = _constant(node).value
    if not isinstance(value, str):
        raise UsageError(f"{what} must be a string constant.")
    return value


# === Checked access to sqlglot's nodes ===


def _is_double_quoted(node: exp.Expression) -> bool:
    return isinstance(node, exp.Literal) and is_double_quoted(str(node.this))


def _part(node: exp.Expression, key: str) -> exp.Expression:
    part = node.args.get(key)
    if not isinstance(part, exp.Expression):
        raise _unsupported(node)
    return part


def _only(node: exp.Expression, *keys: str) -> exp.Expression:
    """Return the first of ``keys``; refuse a node that has arguments other than ``keys``."""
    if any(value for key, value in node.args.items() if key not in keys):
        raise _unsupported(node)
    return _part(node, keys[0])


def _unsupported(node: exp.Expression) -> UsageError:
    if _is_double_quoted(node):
        text = str(unshield(str(node.this)))
        return UsageError(
            f"A name or condition was expected, found the string '{text}' in double quotes. {backticks_advice(text)}"
        )
    described = _describe(node)
    error = _Unsupported(f"{described[0].upper()}{described[1:]} is not supported.")
    # Releases of sqlglot differ in the nodes that have a position.
    spans = [(one.meta["start"], one.meta["end"] + 1) for one in node.walk() if {"start", "end"} <= one.meta.keys()]
    error.span = (min(spans)[0], max(stop for _, stop in spans)) if spans else None
    return error


_NAMED: dict[type[exp.Expression], str] = {
    exp.IntDiv: "the operator 'DIV'", exp.DPipe: "the operator '||'",
    exp.BitwiseAnd: "the operator '&'", exp.BitwiseOr: "the operator '|'", exp.BitwiseXor: "the operator '^'",
    exp.BitwiseNot: "the operator '~'", exp.Bracket: "a subscript in square brackets", exp.Case: "CASE",
    exp.Interval: "an INTERVAL", exp.Placeholder: "a parameter", exp.Parameter: "a parameter", exp.Star: "a star",
    exp.JSONExtract: "a path into JSON", exp.Lambda: "a lambda",
    exp.Subquery: "a subquery", exp.Select: "a subquery", exp.Column: "a column", exp.Dot: "a column",
    exp.RegexpLike: "RLIKE",
}  # fmt: skip


def _describe(node: exp.Expression) -> str:
    if node.args.get("query"):
        return "a subquery"
    if isinstance(node, exp.Literal):
        return f"the constant {unshield(str(node.this))!r}"
    if isinstance(node, exp.Anonymous):
        return f"the function '{str(unshield(str(node.this))).lower()}'"
    if type(node) in _NAMED:
        return _NAMED[type(node)]
    if type(node) in _PREDICATES:
        return f"the condition '{_written(node)}' as a value"
    if isinstance(node, exp.Func) and not isinstance(node, exp.Connector):
        # The name as Spark spells it, because sqlglot has its own names for some functions.
        written = re.match(r"\w+(?=\()", node.sql("spark"))
        return f"the function '{(written[0] if written else node.sql_name()).lower()}'"
    return f"the SQL '{_written(node)}'"


def _written(node: exp.Expression) -> str:
    """Return a node as SQL, with the original literals, on one line of at most 60 characters."""
    copied = node.copy()
    for literal in copied.find_all(exp.Literal, exp.National):
        if literal.is_string or isinstance(literal, exp.National):
            original = unshield(str(literal.this))
            literal.set("this", original if isinstance(original, str) else original.hex())
    text = " ".join(copied.sql("databricks").split())
    return text if len(text) <= 60 else text[:57] + "..."


def _place(error: sqlglot.errors.SqlglotError) -> str:
    """Return the place where sqlglot stopped, as part of a sentence; "" if it does not report it."""
    problems: list[dict[str, Any]] = getattr(error, "errors", [])
    shown = unshield(str(problems[0].get("highlight") or "").strip("'")) if problems else ""
    return f" at '{shown}'" if isinstance(shown, str) and shown.isprintable() and 0 < len(shown) <= 60 else ""


def _shorten(text: str) -> str:
    return repr(text if len(text) <= 120 else text[:117] + "...")
