"""The predicate tree: frozen nodes, and the builder ``col("a") > 1``.

A predicate is true, false or unknown for a row, as in SQL: a comparison with null is unknown, ``AND``, ``OR`` and
``NOT`` follow Kleene's logic, and only rows for which it is true match. :mod:`.meaning` defines the meaning of each
node. :func:`~delta_sharing_client.predicates.parse.parse_filter` can parse ``str(expression)``, which is Spark SQL.
"""

from __future__ import annotations

import enum
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Union

import pyarrow as pa

from delta_sharing_client.columns import ColumnPath, parse_path, quote_name
from delta_sharing_client.errors import UsageError
from delta_sharing_client.predicates import functions
from delta_sharing_client.predicates.text_spans import Span
from delta_sharing_client.predicates.value_kinds import Kind, kind_of
from delta_sharing_client.predicates.values import (
    Day,
    Interval,
    Value,
    as_double,
    format_value,
    is_number,
    normalise,
)


class Op(enum.Enum):
    """A comparison operator; the value is its SQL."""

    EQ = "="
    NE = "<>"
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="

    @property
    def flipped(self) -> Op:
        """The operator that has the same meaning with its sides exchanged."""
        return _FLIPPED[self]

    @property
    def negated(self) -> Op:
        """The operator that is true where this one is false; both are unknown for nulls."""
        return _NEGATED[self]

    def holds(self, ordering: int) -> bool:
        """Return whether the operator is true for two values that :func:`~.values.order` compares as ``ordering``."""
        return ordering in _HOLDS[self]


_FLIPPED = {Op.EQ: Op.EQ, Op.NE: Op.NE, Op.LT: Op.GT, Op.LE: Op.GE, Op.GT: Op.LT, Op.GE: Op.LE}
_NEGATED = {Op.EQ: Op.NE, Op.NE: Op.EQ, Op.LT: Op.GE, Op.LE: Op.GT, Op.GT: Op.LE, Op.GE: Op.LT}
_HOLDS = {Op.EQ: (0,), Op.NE: (-1, 1), Op.LT: (-1,), Op.LE: (-1, 0), Op.GT: (1,), Op.GE: (0, 1)}


class Expression:
    """The base of the predicates: combine them with ``&``, ``|`` and ``~``."""

    __slots__ = ()

    def __and__(self, other: object) -> Expression:
        return And((self, as_expression(other)))

    def __or__(self, other: object) -> Expression:
        return Or((self, as_expression(other)))

    def __invert__(self) -> Expression:
        return Not(self)

    def __rand__(self, other: object) -> Expression:
        raise _loose(other)

    __ror__ = __rand__

    def __bool__(self) -> bool:
        raise UsageError(NO_TRUTH_VALUE)


def _loose(other: object) -> UsageError:
    return UsageError(
        f"The operators & and | need a condition on both sides, found {other!r}. They bind more tightly than"
        " comparisons: write (col('a') > 3) & (col('b') == 'x')."
    )


NO_TRUTH_VALUE = (
    "A filter has no truth value in Python: use & | ~ (with parentheses) instead of and, or, not,"
    " and .between() or two comparisons instead of a < column < b."
)


# === Operands ===


@dataclass(frozen=True, slots=True)
class Column:
    """A column by its path: ``("a", "b")`` is field ``b`` of struct ``a``. Binding sets ``type``.

    ``in_sql`` says that SQL text has it, so that binding refuses what the text would mean differently in DuckDB.
    """

    path: ColumnPath
    type: pa.DataType | None = None
    in_sql: bool = field(default=False, compare=False, repr=False)

    def __str__(self) -> str:
        return ".".join(quote_name(name) for name in self.path)


@dataclass(frozen=True, slots=True, eq=False)
class Literal(Expression):
    """A constant; as a predicate it is ``TRUE``, ``FALSE`` or ``NULL``. Values are normalized, see :mod:`.values`."""

    value: Value

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", normalise(self.value))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[type, object]:
        # 1, 1.0 and True are different constants, and NaN equals NaN.
        nan = isinstance(self.value, float) and math.isnan(self.value)
        return type(self.value), "NaN" if nan else self.value

    def __str__(self) -> str:
        return format_value(self.value)


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or function with its operands, see :mod:`.functions`. Binding sets ``type``.

    ``in_sql`` says that SQL text has it in the form ``CAST(... AS ...)``, see :class:`Column`.
    """

    name: str
    arguments: tuple[Operand, ...]
    type: pa.DataType | None = None
    in_sql: bool = field(default=False, compare=False, repr=False)

    def __str__(self) -> str:
        return functions.format_call(self.name, self.arguments)


Operand = Union[Column, Literal, Call]


def call(name: str, *arguments: Operand) -> Operand:
    """Return a call, or its value if all arguments are constant; ``UsageError`` if there is no value.

    An interval, or a number of days that is added to a date, becomes the right side of ``+``.
    """
    if name in ("+", "-") and len(arguments) == 2:
        name, *shifted = _shift(name, *arguments)
        arguments = tuple(shifted)
    expression = Call(name, arguments)
    values = [item.value for item in arguments if isinstance(item, Literal)]
    if len(values) < len(arguments) or not functions.ROWS[name].folds:
        return expression
    return Literal(functions.fold(name, values, str(expression)))


def _shift(name: str, left: Operand, right: Operand) -> tuple[str, Operand, Operand]:
    if name == "+" and (_interval(left, right) or _is_date(right)):
        left, right = right, left
    interval = _interval(right, left)
    if interval is None:
        return name, left, right
    return "+", left, Literal(interval if name == "+" else -interval)


def _interval(operand: Operand, other: Operand) -> Interval | None:
    """Return ``operand`` if it is a constant interval, or a whole number of days beside a date; otherwise ``None``."""
    value = operand.value if isinstance(operand, Literal) else None
    if type(value) is int and _is_date(other):
        return Interval(value, "DAY")
    return value if isinstance(value, Interval) else None


def _is_date(operand: Operand) -> bool:
    if isinstance(operand, Literal):
        return isinstance(operand.value, Day)
    return operand.type is not None and kind_of(operand.type) is Kind.DATE


def cast(operand: Operand, name: str, *digits: int) -> Operand:
    """Return a cast to a type of ``functions.CASTS``; ``digits`` are the precision and scale of a decimal."""
    return call(name, operand, *map(Literal, (*digits, *functions.ROWS[name].defaults[len(digits) :])))


# === Predicates ===


@dataclass(frozen=True, slots=True)
class Comparison(Expression):
    """``left op right``; unknown if a side is null."""

    op: Op
    left: Operand
    right: Operand

    def __str__(self) -> str:
        return f"{self.left} {self.op.value} {self.right}"


@dataclass(frozen=True, slots=True)
class NullSafeEqual(Expression):
    """``left <=> right``: equality in which null equals null; never unknown."""

    left: Operand
    right: Operand

    def __str__(self) -> str:
        return f"{self.left} <=> {self.right}"


@dataclass(frozen=True, slots=True)
class In(Expression):
    """``child IN (values)``; with a null among the values, every miss is unknown. Duplicates are dropped.

    All sides have one type, as in Spark: with a double among the numbers, all of them and the child are compared as
    doubles.
    """

    child: Operand
    values: tuple[Literal, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise UsageError(f"IN needs at least one value for '{self.child}'.")
        values = self.values
        if any(isinstance(item.value, float) for item in values):
            values = tuple(Literal(as_double(item.value)) if is_number(item.value) else item for item in values)
        object.__setattr__(self, "values", tuple(dict.fromkeys(values)))

    def __str__(self) -> str:
        return f"{self.child} IN ({', '.join(map(str, self.values))})"


@dataclass(frozen=True, slots=True)
class IsNull(Expression):
    """``child IS NULL``, for a column of any type."""

    child: Operand

    def __str__(self) -> str:
        return f"{self.child} IS NULL"


@dataclass(frozen=True, slots=True)
class Like(Expression):
    """``child LIKE pattern``: ``%`` matches any text, ``_`` one character; after ``escape``, both match themselves."""

    child: Operand
    pattern: str
    escape: str = "\\"

    def __post_init__(self) -> None:
        normalise(self.pattern)
        if len(self.escape) != 1 or self.escape in "%_":
            raise UsageError(
                f"The escape character of LIKE must be one character other than % and _; found {self.escape!r}."
            )
        for _ in self.tokens():
            pass

    def tokens(self) -> Iterator[tuple[str, bool]]:
        """Yield the characters of the pattern, each with whether it is a wildcard (``%`` or ``_``)."""
        rest = iter(self.pattern)
        for char in rest:
            if char == self.escape:
                quoted = next(rest, "")
                if quoted not in ("%", "_", self.escape):
                    raise UsageError(
                        f"The LIKE pattern {self.pattern!r} has its escape character {self.escape!r} before something"
                        " other than %, _ or the escape character; double it to match it literally."
                    )
                yield quoted, False
            else:
                yield char, char in "%_"

    @staticmethod
    def quoted(text: str) -> str:
        """Return a pattern that only ``text`` matches."""
        return "".join(f"\\{char}" if char in "%_\\" else char for char in text)

    @property
    def prefix(self) -> str:
        """The common prefix of all matches."""
        return "".join(char for char, _ in itertools.takewhile(lambda token: not token[1], self.tokens()))

    def regex(self) -> str:
        """Return the pattern as a regular expression for Python and RE2, to be matched with whole strings."""
        wild = {"%": "(?s:.*)", "_": "(?s:.)"}
        return "".join(wild[char] if wildcard else _regex_quote(char) for char, wildcard in self.tokens())

    def __str__(self) -> str:
        escape = "" if self.escape == "\\" else f" ESCAPE {Literal(self.escape)}"
        return f"{self.child} LIKE {Literal(self.pattern)}{escape}"


@dataclass(frozen=True, slots=True)
class StartsWith(Expression):
    """``startswith(child, prefix)``."""

    child: Operand
    prefix: str

    def __post_init__(self) -> None:
        normalise(self.prefix)

    def __str__(self) -> str:
        return f"startswith({self.child}, {Literal(self.prefix)})"


@dataclass(frozen=True, slots=True)
class Not(Expression):
    """``NOT child``; unknown stays unknown."""

    child: Expression

    def __str__(self) -> str:
        child = self.child
        if isinstance(child, IsNull):
            return f"{child.child} IS NOT NULL"
        if isinstance(child, In):
            return f"{child.child} NOT IN ({', '.join(map(str, child.values))})"
        return f"NOT ({child})"


@dataclass(frozen=True, slots=True)
class Joined(Expression):
    """``AND`` or ``OR`` of two or more children; nested nodes of the same kind are flattened."""

    children: tuple[Expression, ...]

    def __post_init__(self) -> None:
        kind, flat = type(self), list[Expression]()
        for child in self.children:
            flat.extend(child.children if isinstance(child, kind) else (child,))
        if len(flat) < 2:
            raise UsageError(f"{kind.__name__.upper()} needs at least two conditions; found {len(flat)}.")
        object.__setattr__(self, "children", tuple(flat))

    def __str__(self) -> str:
        shown = (f"({child})" if isinstance(child, (Joined, DoubleQuoted)) else str(child) for child in self.children)
        return f" {type(self).__name__.upper()} ".join(shown)


@dataclass(frozen=True, slots=True)
class DoubleQuoted(Expression):
    """``child``, whose SQL text has ``texts`` in double quotes, each with its position. They are strings here and names
    in most dialects, so binding, which removes this node, refuses those that are names of columns."""

    child: Expression
    texts: tuple[tuple[str, Span], ...]

    def __str__(self) -> str:
        return str(self.child)


class And(Joined):
    """``AND``: true if all of the children are."""

    __slots__ = ()


class Or(Joined):
    """``OR``: true if any of the children is."""

    __slots__ = ()


def all_of(children: Iterable[Expression]) -> Expression:
    """Return the conjunction of any number of predicates (none: ``TRUE``)."""
    parts = tuple(children)
    return And(parts) if len(parts) > 1 else parts[0] if parts else Literal(True)


def any_of(children: Iterable[Expression]) -> Expression:
    """Return the disjunction of any number of predicates (none: ``FALSE``)."""
    parts = tuple(children)
    return Or(parts) if len(parts) > 1 else parts[0] if parts else Literal(False)


def known_of_all(children: Iterable[Expression | None]) -> Expression | None:
    """Return the conjunction of the known ``children``, ``None`` if none is known."""
    present = [child for child in children if child is not None]
    return all_of(present) if present else None


def known_of_any(children: Iterable[Expression | None]) -> Expression | None:
    """Return the disjunction of ``children``, ``None`` if one is unknown, because it could be true."""
    all_children = list(children)
    present = [child for child in all_children if child is not None]
    return any_of(present) if len(present) == len(all_children) else None


def as_expression(value: object) -> Expression:
    """Return ``value`` as a predicate: a column builder becomes ``column = TRUE``, and a bool becomes a constant."""
    if isinstance(value, Expression):
        return value
    if isinstance(value, ColumnBuilder):
        return Comparison(Op.EQ, value._operand, Literal(True))
    if isinstance(value, bool):
        return Literal(value)
    raise UsageError(f"A condition such as col('a') > 1 was expected; found {type(value).__name__}.")


def _regex_quote(char: str) -> str:
    return char if char.isalnum() or not char.isascii() else f"\\x{ord(char):02x}"


# === Builder ===


def _comparing(op: Op) -> Callable[[ColumnBuilder, object], Comparison]:
    return lambda self, other: Comparison(op, self._operand, _operand(other))


def _computing(name: str) -> tuple[Callable[[ColumnBuilder, object], ColumnBuilder], ...]:
    """Return the methods for an operator with a column on its left, and on its right."""
    return (
        lambda self, other: ColumnBuilder(call(name, self._operand, _operand(other))),
        lambda self, other: ColumnBuilder(call(name, _operand(other), self._operand)),
    )


class ColumnBuilder:
    """The result of :func:`col`: supports arithmetic, functions, and comparisons, which return predicates.

    A column builder that is used as a condition must be boolean.
    """

    __slots__ = ("_operand",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, operand: Operand) -> None:
        self._operand = operand

    __eq__ = _comparing(Op.EQ)  # type: ignore[assignment]
    __ne__ = _comparing(Op.NE)  # type: ignore[assignment]
    __lt__, __le__ = _comparing(Op.LT), _comparing(Op.LE)
    __gt__, __ge__ = _comparing(Op.GT), _comparing(Op.GE)
    __add__, __radd__ = _computing("+")
    __sub__, __rsub__ = _computing("-")
    __mul__, __rmul__ = _computing("*")
    __truediv__, __rtruediv__ = _computing("/")
    __mod__, __rmod__ = _computing("%")

    def __neg__(self) -> ColumnBuilder:
        return self._call("-")

    def __and__(self, other: object) -> Expression:
        return as_expression(self) & other

    def __or__(self, other: object) -> Expression:
        return as_expression(self) | other

    def __invert__(self) -> Expression:
        return Not(as_expression(self))

    def __rand__(self, other: object) -> Expression:
        raise _loose(other)

    __ror__ = __rand__

    def __bool__(self) -> bool:
        raise UsageError(NO_TRUTH_VALUE)

    def __getattr__(self, name: str) -> object:
        advice = f"; write {_ELSEWHERE[name]}" if name in _ELSEWHERE else ""
        raise AttributeError(f"{self!r} has no {name!r}{advice}.", name=name, obj=self)

    def __repr__(self) -> str:
        return f"col({str(self._operand)!r})" if isinstance(self._operand, Column) else str(self._operand)

    def _call(self, name: str, *others: object) -> ColumnBuilder:
        return ColumnBuilder(call(name, self._operand, *map(_operand, others)))

    def lower(self) -> ColumnBuilder:
        """Return the string in lower case."""
        return self._call("lower")

    def upper(self) -> ColumnBuilder:
        """Return the string in upper case."""
        return self._call("upper")

    def length(self) -> ColumnBuilder:
        """Return the number of characters of a string, or of bytes of binary."""
        return self._call("length")

    def year(self) -> ColumnBuilder:
        """Return the year of a date, or of a timestamp in UTC."""
        return self._call("year")

    def month(self) -> ColumnBuilder:
        """Return the month, 1 to 12, of a date, or of a timestamp in UTC."""
        return self._call("month")

    def day(self) -> ColumnBuilder:
        """Return the day of the month of a date, or of a timestamp in UTC."""
        return self._call("day")

    def date(self) -> ColumnBuilder:
        """Return the date; for a timestamp, the date in UTC."""
        return self._call("date")

    def cast(self, type_name: str) -> ColumnBuilder:
        """Return the value cast to ``tinyint``, ``smallint``, ``int``, ``bigint``, ``float``, ``double``,
        ``decimal(precision, scale)``, ``boolean``, ``string``, ``date``, ``timestamp`` or ``timestamp_ntz``.
        """
        match = re.fullmatch(r"(\w+)(?:\(([0-9]+)(?:,([0-9]+))?\))?", type_name.lower().replace(" ", ""))
        name, *digits = match.groups() if match else ("", None)
        if name not in functions.CASTS or (digits[0] and not functions.ROWS[name].defaults):
            raise UsageError(f"The type of a cast must be one of {', '.join(functions.CASTS)}; found {type_name!r}.")
        return ColumnBuilder(cast(self._operand, name, *(int(digit) for digit in digits if digit)))

    def coalesce(self, *others: object) -> ColumnBuilder:
        """Return the first non-null value of this column and ``others`` (columns or values)."""
        return self._call("coalesce", *others)

    def is_in(self, values: Iterable[object]) -> Expression:
        """Return ``column IN (values)``: an empty list matches nothing; with a ``None`` in it, a miss is unknown."""
        return membership(self._operand, values)

    def is_null(self) -> Expression:
        """Return ``column IS NULL``."""
        return IsNull(self._operand)

    def is_not_null(self) -> Expression:
        """Return ``column IS NOT NULL``."""
        return Not(IsNull(self._operand))

    def between(self, low: object, high: object) -> Expression:
        """Return ``column BETWEEN low AND high``, both ends included."""
        return And((self >= low, self <= high))

    def like(self, pattern: str, escape: str = "\\") -> Expression:
        """Return ``column LIKE pattern``: ``%`` matches any text, ``_`` one character."""
        return Like(self._operand, pattern, escape)

    def ilike(self, pattern: str, escape: str = "\\") -> Expression:
        """Return ``column ILIKE pattern``: ``LIKE`` with string and pattern in lower case."""
        return Like(call("lower", self._operand), pattern.lower(), escape)

    def starts_with(self, prefix: str) -> Expression:
        """Return the test of whether the string starts with ``prefix``."""
        return StartsWith(self._operand, prefix)

    def equals_null_safe(self, other: object) -> Expression:
        """Return ``column <=> other``: null equals null, and the result is never unknown."""
        return NullSafeEqual(self._operand, _operand(other))


# Names of column methods in other libraries, and what to write here.
_ELSEWHERE = {
    **dict.fromkeys(("isin", "isInCollection"), ".is_in([...])"),
    **dict.fromkeys(("isnull", "isna", "isNull"), ".is_null()"),
    **dict.fromkeys(("notnull", "notna", "isNotNull", "is_valid"), ".is_not_null()"),
    **dict.fromkeys(("contains", "str"), ".like('%text%'), .starts_with(text), .lower() or .length()"),
    **dict.fromkeys(("startswith", "startsWith"), ".starts_with(text)"),
    **dict.fromkeys(("endswith", "endsWith"), ".like('%text')"),
    **dict.fromkeys(("dt",), ".year(), .month(), .day() or .date()"),
    **dict.fromkeys(("is_between",), ".between(low, high)"),
    **dict.fromkeys(("rlike", "match"), ".like('a%')"),
}


def col(name: str | Iterable[str]) -> ColumnBuilder:
    """Name a column to compare: ``col("a") > 1``.

    Parameters
    ----------
    name:
        ``"a"``, ``"a.b"`` for field ``b`` of struct ``a``, backticks around a name that contains a dot, or the path
        as a tuple: ``("a", "b.c")``.

    Raises
    ------
    UsageError
        The name is empty or its backticks do not match.

    Examples
    --------
    >>> print((col("amount") > 100) & col("country").is_in(["DE", "FR"]))
    amount > 100 AND country IN ('DE', 'FR')
    """
    return ColumnBuilder(Column(parse_path(name)))


def membership(column: Operand, values: Iterable[object]) -> Expression:
    """Return ``column IN (values)``, ``FALSE`` if there are no values."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise UsageError(f"IN on '{column}' needs a list of values; found {type(values).__name__}.")
    literals = tuple(value if isinstance(value, Literal) else Literal(normalise(value)) for value in values)
    return In(column, literals) if literals else Literal(False)


def _operand(value: object) -> Operand:
    if isinstance(value, ColumnBuilder):
        return value._operand
    return Literal(normalise(value))


# === Queries on a tree ===


def tests(expression: Expression) -> Iterator[Expression]:
    """Yield the comparisons, tests and constants that ``AND``, ``OR`` and ``NOT`` combine."""
    match expression:
        case Not(child=inner) | DoubleQuoted(child=inner):
            yield from tests(inner)
        case Joined(children=children):
            for child in children:
                yield from tests(child)
        case _:
            yield expression


def columns(expression: Expression) -> frozenset[ColumnPath]:
    """Return the paths of all columns that ``expression`` reads."""
    all_operands = (operand for test in tests(expression) for operand in operands(test))
    return frozenset(column.path for operand in all_operands for column in columns_in(operand))


def operands(expression: Expression) -> tuple[Operand, ...]:
    """Return the operands of a comparison or test; none for a constant."""
    parts = (getattr(expression, name) for name in expression.__match_args__)  # type: ignore[attr-defined]
    return tuple(part for part in parts if isinstance(part, (Column, Literal, Call)))


def compared(op: Op, left: Operand, right: Operand) -> Comparison:
    """Return ``left op right``, with a constant on the right."""
    if isinstance(left, Literal) and not isinstance(right, Literal):
        return Comparison(op.flipped, right, left)
    return Comparison(op, left, right)


def columns_in(operand: Operand) -> list[Column]:
    """Return the columns in ``operand``."""
    if isinstance(operand, Call):
        return [column for item in operand.arguments for column in columns_in(item)]
    return [operand] if isinstance(operand, Column) else []


def has_calls(expression: Expression) -> bool:
    """Return whether ``expression`` computes anything from its columns."""
    return any(isinstance(operand, Call) for test in tests(expression) for operand in operands(test))


def push_not(expression: Expression, *, negate: bool = False) -> Expression:
    """Return an equivalent predicate with ``NOT`` only before ``IN``, ``IS NULL``, ``LIKE`` and the like.

    This is sound in three-valued logic: every step distinguishes true, false and unknown.
    """
    match expression:
        case Not(child=inner):
            return push_not(inner, negate=not negate)
        case Joined(children=children):
            kind = And if isinstance(expression, And) is not negate else Or
            return kind(tuple(push_not(inner, negate=negate) for inner in children))
        case Comparison(op=op, left=left, right=right) if negate:
            return Comparison(op.negated, left, right)
        case Literal(value=value) if negate:
            holds = truth(value)
            return Literal(None if holds is None else not holds)
    return Not(expression) if negate else expression


def truth(value: Value) -> bool | None:
    """Return a constant as a truth value; ``UsageError`` if it is not one."""
    if value is None or isinstance(value, bool):
        return value
    raise UsageError(f"A condition must be true, false or null; found the constant {format_value(value)}.")
