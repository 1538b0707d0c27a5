"""The nodes of a predicate tree: frozen values that print as SQL and combine with ``& | ~``."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Union

import pyarrow as pa

from delta_sharing_client.errors import UsageError
from delta_sharing_client.predicates.text import ColumnPath, format_value, quote_name
from delta_sharing_client.predicates.values import Value, normalise


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
        """The operator that means the same with its sides exchanged."""
        return _FLIPPED[self]

    @property
    def negated(self) -> Op:
        """The operator that is true where this one is false; both are unknown for nulls."""
        return _NEGATED[self]

    def holds(self, ordering: int) -> bool:
        """Whether the operator is true of two values that :func:`~.values.order` compares as ``ordering``."""
        return ordering in _HOLDS[self]


_FLIPPED = {Op.EQ: Op.EQ, Op.NE: Op.NE, Op.LT: Op.GT, Op.LE: Op.GE, Op.GT: Op.LT, Op.GE: Op.LE}
_NEGATED = {Op.EQ: Op.NE, Op.NE: Op.EQ, Op.LT: Op.GE, Op.LE: Op.GT, Op.GT: Op.LE, Op.GE: Op.LT}
_HOLDS = {Op.EQ: (0,), Op.NE: (-1, 1), Op.LT: (-1,), Op.LE: (-1, 0), Op.GT: (1,), Op.GE: (0, 1)}


class Expression:
    """Base of the predicates: combine them with ``&``, ``|`` and ``~``."""

    __slots__ = ()

    def __and__(self, other: object) -> Expression:
        return And((self, as_expression(other)))

    def __or__(self, other: object) -> Expression:
        return Or((self, as_expression(other)))

    def __invert__(self) -> Expression:
        return Not(self)

    def __bool__(self) -> bool:
        raise UsageError(NO_TRUTH_VALUE)


NO_TRUTH_VALUE = (
    "A filter has no truth value in Python: use & | ~ (with parentheses) instead of and, or, not,"
    " and .between() or two comparisons instead of a < column < b."
)


# === Operands ===


@dataclass(frozen=True, slots=True)
class Column:
    """A column by its path: ``("a", "b")`` is field ``b`` of struct ``a``. ``type`` is set by binding."""

    path: ColumnPath
    type: pa.DataType | None = None

    def __str__(self) -> str:
        return ".".join(quote_name(name) for name in self.path)


@dataclass(frozen=True, slots=True, eq=False)
class Literal(Expression):
    """A constant; as a predicate it is ``TRUE``, ``FALSE`` or ``NULL``. Values are normalised, see :mod:`.values`."""

    value: Value

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", normalise(self.value))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[type, object]:
        # 1, 1.0 and True are different constants, and NaN is one.
        nan = isinstance(self.value, float) and math.isnan(self.value)
        return type(self.value), "NaN" if nan else self.value

    def __str__(self) -> str:
        return format_value(self.value)


Operand = Union[Column, Literal]


class ColumnLike:
    """Base of the builder, which stands for a column until it is compared."""

    __slots__ = ("column",)

    def __init__(self, column: Column) -> None:
        self.column = column


# === Predicates ===


@dataclass(frozen=True, slots=True)
class Comparison(Expression):
    """``left op right``; unknown where a side is null."""

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
    """``child IN (values)``; a null among the values makes every miss unknown. Repeated values are dropped."""

    child: Column
    values: tuple[Literal, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise UsageError(f"IN needs at least one value for column {self.child}.")
        object.__setattr__(self, "values", tuple(dict.fromkeys(self.values)))

    def __str__(self) -> str:
        return f"{self.child} IN ({', '.join(map(str, self.values))})"


@dataclass(frozen=True, slots=True)
class IsNull(Expression):
    """``child IS NULL``, for a column of any type."""

    child: Column

    def __str__(self) -> str:
        return f"{self.child} IS NULL"


@dataclass(frozen=True, slots=True)
class Like(Expression):
    r"""``child LIKE pattern``: ``%`` is any text, ``_`` one character, ``escape`` (a backslash) quotes either."""

    child: Column
    pattern: str
    escape: str = "\\"

    def __post_init__(self) -> None:
        normalise(self.pattern)
        if len(self.escape) != 1 or self.escape in "%_":
            raise UsageError(f"The escape of LIKE must be one character other than % and _; found {self.escape!r}.")
        for _ in self.tokens():
            pass

    def tokens(self) -> Iterator[tuple[str, bool]]:
        """Yield the characters of the pattern, each with whether it is a wildcard (``%`` or ``_``)."""
        rest = iter(self.pattern)
        for char in rest:
            if char == self.escape:
                quoted = next(rest, None)
                if quoted is None or quoted not in ("%", "_", self.escape):
                    raise UsageError(
                        f"The LIKE pattern {self.pattern!r} has its escape {self.escape!r} before something other than"
                        f" %, _ or the escape itself; write it twice for itself."
                    )
                yield quoted, False
            else:
                yield char, char in "%_"

    @property
    def prefix(self) -> str:
        """The text that every match starts with."""
        found = []
        for char, wildcard in self.tokens():
            if wildcard:
                break
            found.append(char)
        return "".join(found)

    def regex(self) -> str:
        """The pattern as a regular expression of the subset that Python and RE2 share; it matches whole strings."""
        wild = {"%": "(?s:.*)", "_": "(?s:.)"}
        return "".join(wild[char] if wildcard else _regex_quote(char) for char, wildcard in self.tokens())

    def __str__(self) -> str:
        escape = "" if self.escape == "\\" else f" ESCAPE {format_value(self.escape)}"
        return f"{self.child} LIKE {format_value(self.pattern)}{escape}"


@dataclass(frozen=True, slots=True)
class StartsWith(Expression):
    """``startswith(child, prefix)``."""

    child: Column
    prefix: str

    def __post_init__(self) -> None:
        normalise(self.prefix)

    def __str__(self) -> str:
        return f"startswith({self.child}, {format_value(self.prefix)})"


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
class And(Expression):
    """All of two or more children; nested ones are flattened."""

    children: tuple[Expression, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "children", _flatten(And, self.children))

    def __str__(self) -> str:
        return " AND ".join(f"({child})" if isinstance(child, Or) else str(child) for child in self.children)


@dataclass(frozen=True, slots=True)
class Or(Expression):
    """Any of two or more children; nested ones are flattened."""

    children: tuple[Expression, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "children", _flatten(Or, self.children))

    def __str__(self) -> str:
        return " OR ".join(f"({child})" if isinstance(child, And) else str(child) for child in self.children)


def all_of(children: Iterable[Expression]) -> Expression:
    """Return the conjunction of any number of predicates (none: ``TRUE``)."""
    found = tuple(children)
    return And(found) if len(found) > 1 else found[0] if found else Literal(True)


def any_of(children: Iterable[Expression]) -> Expression:
    """Return the disjunction of any number of predicates (none: ``FALSE``)."""
    found = tuple(children)
    return Or(found) if len(found) > 1 else found[0] if found else Literal(False)


def as_expression(value: object) -> Expression:
    """Return ``value`` as a predicate: a predicate as it is, a column builder as ``column = TRUE``, a bool."""
    if isinstance(value, Expression):
        return value
    if isinstance(value, ColumnLike):
        return Comparison(Op.EQ, value.column, Literal(True))
    if isinstance(value, bool):
        return Literal(value)
    raise UsageError(f"Expected a condition such as col('a') > 1; found {type(value).__name__}.")


def _flatten(kind: type[And] | type[Or], children: Iterable[Expression]) -> tuple[Expression, ...]:
    flat: list[Expression] = []
    for child in children:
        flat.extend(child.children if isinstance(child, kind) else (child,))
    if len(flat) < 2:
        raise UsageError(f"{kind.__name__.upper()} needs at least two conditions; found {len(flat)}.")
    return tuple(flat)


def _regex_quote(char: str) -> str:
    return char if char.isalnum() or ord(char) > 127 else f"\\x{ord(char):02x}"
