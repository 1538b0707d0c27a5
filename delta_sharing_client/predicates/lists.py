"""The constants of ``IN`` lists, prepared once for many statistics and many batches."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from delta_sharing_client.predicates.tree import Expression, In, Joined, Literal, Not
from delta_sharing_client.predicates.value_kinds import comparable, to_arrow


class SortedValues:
    """The sorted constants of a bound ``IN`` list, in the form of statistics, without null and NaN."""

    def __init__(self, values: tuple[Literal, ...]) -> None:
        present = [comparable(item.value) for item in values if item.value is not None]
        self.has_null = len(present) < len(values)
        numbers = [value for value in present if not (isinstance(value, float) and math.isnan(value))]
        self.has_nan = len(numbers) < len(present)
        # -0.0 becomes 0.0, because hashing distinguishes them.
        self.keys = sorted(value + 0.0 if isinstance(value, float) else value for value in numbers)
        self._arrays: dict[pa.DataType, pa.Array] = {}

    def span(self, lower: Any, upper: Any) -> range:
        """Return the positions of the values from ``lower`` to ``upper``; ``None`` means unknown."""
        # A bound that is NaN does not limit the other numbers.
        first = 0 if lower is None or lower != lower else bisect.bisect_left(self.keys, lower)
        last = len(self.keys) if upper is None or upper != upper else bisect.bisect_right(self.keys, upper)
        return range(first, max(first, last))

    def array(self, data_type: pa.DataType) -> pa.Array:
        """Return all values as an array, created once for each type."""
        keys = self._arrays.get(data_type)
        if keys is None:
            keys = self._arrays[data_type] = to_arrow(self.keys, data_type)
        return keys


@dataclass(frozen=True, slots=True)
class InSortedList(In):
    """A prepared ``IN``; only its sorted values at ``positions`` are looked up."""

    known: SortedValues = field(compare=False, repr=False)
    positions: range

    def __post_init__(self) -> None:
        pass  # the values were prepared when the original list was created

    def array(self, data_type: pa.DataType) -> pa.Array:
        """Return the values to look up."""
        return self.known.array(data_type).slice(self.positions.start, len(self.positions))


def listed(expression: In) -> InSortedList:
    """Return a bound ``IN`` with its values prepared."""
    if isinstance(expression, InSortedList):
        return expression
    sorted_values = SortedValues(expression.values)
    return InSortedList(expression.child, expression.values, sorted_values, range(len(sorted_values.keys)))


def prepared(expression: Expression) -> Expression:
    """Return the bound ``expression`` with every list prepared."""
    return _mapped(expression, listed)


def narrowed(expression: Expression, positions: Callable[[InSortedList], range]) -> Expression:
    """Return a prepared ``expression`` whose lists keep only the values at ``positions``, some of the current ones."""

    def narrow(chosen: In) -> In:
        assert isinstance(chosen, InSortedList)
        kept = positions(chosen)
        return chosen if kept == chosen.positions else InSortedList(chosen.child, chosen.values, chosen.known, kept)

    return _mapped(expression, narrow)


def _mapped(expression: Expression, change: Callable[[In], In]) -> Expression:
    match expression:
        case Not(child=inner):
            return Not(_mapped(inner, change))
        case Joined(children=children):
            return type(expression)(tuple(_mapped(child, change) for child in children))
        case In():
            return change(expression)
    return expression
