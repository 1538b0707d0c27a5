"""The possible results of a predicate for the rows of a file, given partition values and statistics.

Each node returns the *set of results that it can have* for a row: true, false and unknown (null), as bits. So negation
is exact: it swaps true and false. If a node returned only whether it may be true, negation would lose information.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Union

Value = Union[bool, int, float, str]

# The possible results of a predicate for the rows of a file, as bits, because there may be a million files.
Outcome = int
TRUE: Outcome = 1
FALSE: Outcome = 2
NULL: Outcome = 4
ANY: Outcome = TRUE | FALSE | NULL


@dataclass(frozen=True, slots=True)
class Span:
    """The values of one column in one file: bounds (``None`` if unknown), and whether it may contain values and
    nulls."""

    lower: Value | None
    upper: Value | None
    values: bool
    nulls: bool


UNKNOWN = Span(None, None, True, True)

Test = Callable[[Callable[[str], Span]], Outcome]
"""Returns the possible results of a predicate for a file. The argument returns the span of a column by its name."""


class NotUnderstood(ValueError):
    """A hint that this server cannot use; it then has no effect on the response."""


def combined(tests: list[Test], combine: Callable[[Outcome, Outcome], Outcome]) -> Test:
    """Return the conjunction or disjunction of two or more tests; ``combine`` is `all_of` or `any_of`."""

    def test(spans: Callable[[str], Span]) -> Outcome:
        result = tests[0](spans)
        for other in tests[1:]:
            result = combine(result, other(spans))
        return result

    return test


def negated(inner: Test) -> Test:
    """Return the negation of a test; the negation of null is null."""

    def test(spans: Callable[[str], Span]) -> Outcome:
        return _not(inner(spans))

    return test


def _not(outcome: Outcome) -> Outcome:
    return outcome & NULL | (FALSE if outcome & TRUE else 0) | (TRUE if outcome & FALSE else 0)


def all_of(left: Outcome, right: Outcome) -> Outcome:
    """Return the possible results of ``left AND right``."""
    result = (left | right) & FALSE
    if left & TRUE and right & TRUE:
        result |= TRUE
    if (left & NULL and right & (TRUE | NULL)) or (right & NULL and left & (TRUE | NULL)):
        result |= NULL
    return result


def any_of(left: Outcome, right: Outcome) -> Outcome:
    """Return the possible results of ``left OR right``."""
    return _not(all_of(_not(left), _not(right)))


def is_null(name: str) -> Test:
    """Return the test whether a column is null."""

    def test(spans: Callable[[str], Span]) -> Outcome:
        span = spans(name)
        return (TRUE if span.nulls else 0) | (FALSE if span.values else 0)

    return test


def comparison(operation: str, name: str, low: Value, high: Value) -> Test:
    """Return the test that compares a column with a literal between ``low`` and ``high``, both included."""

    def test(spans: Callable[[str], Span]) -> Outcome:
        span = spans(name)
        result = NULL if span.nulls else 0
        if not span.values:
            return result
        lower, upper = span.lower, span.upper
        below = lower is None or lower < high  # type: ignore[operator]
        not_above = lower is None or lower <= high  # type: ignore[operator]
        above = upper is None or upper > low  # type: ignore[operator]
        not_below = upper is None or upper >= low  # type: ignore[operator]
        if operation == "equal":
            can, cannot = not_above and not_below, not (lower == upper == low == high and lower is not None)
        elif operation == "lessThan":
            can, cannot = below, not_below
        elif operation == "lessThanOrEqual":
            can, cannot = not_above, above
        elif operation == "greaterThan":
            can, cannot = above, not_above
        else:
            can, cannot = not_below, below
        return result | (TRUE if can else 0) | (FALSE if cannot else 0)

    return test
