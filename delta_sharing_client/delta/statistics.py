"""Reads the statistics of a data file's columns (Delta log protocol, "Per-file Statistics").

Statistics are hints: a missing or malformed value, or one whose type is not the column's, is *unknown*, never an error,
and an unknown bound skips nothing. A known bound is true for every row that a reader can see:

- A deletion vector does not invalidate bounds. With one, unless ``tightBounds`` is ``true``, a null count is used only
  if it holds for the remaining rows: no nulls, or only nulls.
- Writers truncate text to a prefix and timestamps to milliseconds, so their upper bounds are raised to cover the part
  that was cut off. Some writers also cut the seconds off a time zone's offset, so both bounds of timestamps before 1972
  are moved outward by the possible error.
- Bounds whose minimum is above the maximum are unknown.
- Some writers ignore ``NaN`` in minimum and maximum, and Spark orders it last, so floating-point columns have no upper
  bound; :attr:`ColumnBounds.upper_without_nan` is the upper bound of all other values.
- Some writers convert decimals to double; bounds of decimals that a double cannot represent are moved outward by the
  error.
- Statistics that were written before a type was widened are read as the column's current type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any, NamedTuple, Optional, Union

import msgspec

from delta_sharing_client.columns import ColumnPath, Names
from delta_sharing_client.delta.actions import AddFile
from delta_sharing_client.delta.column_mapping import ColumnMappingMode
from delta_sharing_client.delta.data_types import DataType, StructType
from delta_sharing_client.delta.partition_values import partition_bound
from delta_sharing_client.delta.type_rows import row_of
from delta_sharing_client.delta.value_bounds import INTEGER, Converters, ordered
from delta_sharing_client.errors import DataError

# No file has more rows: a larger number is malformed.
_MOST_RECORDS = 1 << 40


class ColumnBounds(NamedTuple):
    """The known bounds of one column in the rows that a reader of the file sees; ``None`` means unknown.

    Values are ``int``, ``float``, ``bool``, ``str``, ``bytes`` or ``Decimal``. A date is an ``int`` of days since 1970,
    a timestamp of nanoseconds since 1970, a time of nanoseconds since midnight. No non-null value is smaller than
    ``lower`` or larger than ``upper``, where ``NaN`` is the largest. In a ``float`` or ``double`` column, only ``NaN``
    is larger than ``upper_without_nan``. ``null_count`` is exact; ``row_count`` does not include deleted rows.
    """

    lower: object | None
    upper: object | None
    null_count: int | None
    row_count: int | None
    upper_without_nan: float | None = None


class FileStatistics:
    """The statistics of one file, decoded on demand.

    ``num_records`` is the number of rows in the data file, including deleted ones, and ``row_count`` the number that a
    reader sees; each is ``None`` if unknown. ``tight_bounds`` is true if the statistics describe exactly the rows that
    a reader sees.
    """

    __slots__ = ("_add", "_document", "_found", "_path", "_plan", "num_records", "row_count", "tight_bounds")

    def __init__(self, add: AddFile, document: Any, plan: dict[ColumnPath, _Column]) -> None:
        self._add = add
        self._document = document
        self._plan = plan
        self._path: ColumnPath | None = None
        count = None if document is None else document.num_records
        self.num_records: int | None = _possible(count)
        deleted = 0 if add.deletion_vector is None else add.deletion_vector.cardinality
        visible = None if self.num_records is None else self.num_records - deleted
        self.row_count: int | None = visible if visible is not None and visible >= 0 else None
        tight = None if document is None else document.tight_bounds
        # Only writers of deletion vectors write the flag, so bounds without the flag are tight if there is no vector.
        self.tight_bounds: bool = tight is True or (tight is None and add.deletion_vector is None)

    def bounds(self, path: ColumnPath) -> ColumnBounds | None:
        """Return the bounds of the column at ``path`` (logical names), or ``None``.

        Only the ``needed`` columns of the :class:`StatisticsReader` are known.
        """
        # A range predicate asks for the same column twice in a row.
        if path != self._path:
            self._path, self._found = path, self._bounds(path)
        return self._found

    def _bounds(self, path: ColumnPath) -> ColumnBounds | None:
        column = self._plan.get(path)
        if column is None:
            return None
        if column.partition is not None:
            return self._partition_bounds(column.partition, column)
        document = self._document
        if document is None:
            return None
        nulls = self._null_count(_leaf(document.null_count, column.slots))
        lower = upper = without_nan = None
        convert = column.convert
        if convert.lower is not None and convert.upper is not None:
            lower = _converted(convert.lower, _leaf(document.min_values, column.slots))
            upper = _converted(convert.upper, _leaf(document.max_values, column.slots))
            lower, upper = ordered(lower, upper)
            if convert.floating:
                without_nan, upper = upper, None
        if lower is None and upper is None and without_nan is None and nulls is None:
            return None
        return ColumnBounds(lower, upper, nulls, self.row_count, without_nan)

    def _null_count(self, raw: object) -> int | None:
        count = _converted(INTEGER, raw)
        if count is None or count < 0 or self.num_records is None:
            return None
        if self.tight_bounds:
            return count if self.row_count is not None and count <= self.row_count else None
        if count == 0:
            return 0
        return self.row_count if count == self.num_records else None

    def _partition_bounds(self, name: str, column: _Column) -> ColumnBounds | None:
        try:
            text = self._add.partition_values[name]
            value = partition_bound(text, column.type, empty_is_null=column.empty_is_null)
        except (KeyError, DataError):
            return None  # the error is raised when the file is read
        if value is None:
            # If the number of rows is unknown, one null row represents all of them.
            rows = 1 if self.row_count is None else self.row_count
            return ColumnBounds(None, None, rows, rows)
        if isinstance(value, float):
            finite = None if math.isnan(value) else value
            return ColumnBounds(finite, finite, 0, self.row_count, finite)
        return ColumnBounds(value, value, 0, self.row_count)


class StatisticsReader:
    """Reads the statistics of many files of one table; it decodes only the columns in ``needed``.

    ``schema``, ``partition_columns`` and ``needed`` have logical names; ``mode`` maps them to the names in
    statistics and partition values. Partition values are exact bounds; an empty one is null if ``empty_is_null``.
    Arrays and maps have no statistics; their bounds are unknown.
    """

    def __init__(
        self,
        schema: StructType,
        mode: ColumnMappingMode,
        partition_columns: Collection[str],
        needed: Collection[ColumnPath],
        *,
        empty_is_null: bool = True,
    ) -> None:
        partitions = {name.lower() for name in partition_columns}
        self._plan: dict[ColumnPath, _Column] = {}
        tree: _Tree = {}
        all_names = Names(schema)
        for path in needed:
            fields = all_names.find(path)
            if not fields:
                continue
            names = [mode.stored_name(item) for item in fields]
            leaf = fields[-1]
            if len(fields) == 1 and leaf.name.lower() in partitions:
                self._plan[path] = _Column(leaf.type, partition=names[0], empty_is_null=empty_is_null)
            elif not isinstance(leaf.type, StructType) and all(map(_nameable, names)):
                row = row_of(leaf.type)
                convert = Converters() if row is None else row.statistics(leaf)
                self._plan[path] = _Column(leaf.type, _slots(tree, names), convert=convert)
        values = _optional_values_type(tree)
        document = msgspec.defstruct(
            "Document",
            [
                ("num_records", Optional[int], None),
                ("tight_bounds", Optional[bool], None),
                ("min_values", values, None),
                ("max_values", values, None),
                ("null_count", values, None),
            ],
            rename="camel",
            gc=False,
        )
        self._decode: Callable[[str], Any] = msgspec.json.Decoder(document).decode

    def read(self, add: AddFile) -> FileStatistics:
        """Return the statistics of ``add``. Malformed statistics count as unknown."""
        return FileStatistics(add, _converted(self._decode, add.stats), self._plan)


def num_records(stats_json: str | None) -> int | None:
    """Return the number of rows in the data file, including deleted ones; ``None`` if unknown."""
    document = _converted(_count_only, stats_json)
    count = None if document is None else document.num_records
    return _possible(count)


def _possible(count: int | None) -> int | None:
    return count if count is not None and 0 <= count <= _MOST_RECORDS else None


# === Where the statistics of a column are ===

_Tree = dict[str, Any]  # physical name -> (slot, subtree or None)


class _Column(NamedTuple):
    type: DataType
    slots: tuple[str, ...] = ()
    partition: str | None = None
    empty_is_null: bool = True
    convert: Converters = Converters()


class _CountOnly(msgspec.Struct, rename="camel", gc=False):
    num_records: Union[int, None] = None


_count_only = msgspec.json.Decoder(_CountOnly).decode


def _nameable(name: str) -> bool:
    """Return whether msgspec accepts the name. Quotes, backslashes and control characters are legal in a column name;
    the statistics of such a column stay unknown."""
    return not any(character in '\\"' or character < " " for character in name)


def _slots(tree: _Tree, names: list[str]) -> tuple[str, ...]:
    slots: list[str] = []
    for name in names:
        slot, tree = tree.setdefault(name, (f"f{len(tree)}", {}))
        slots.append(slot)
    return tuple(slots)


def _optional_values_type(tree: _Tree) -> Any:
    fields = [(slot, _optional_values_type(below) if below else msgspec.Raw, None) for slot, below in tree.values()]
    names = {slot: name for name, (slot, _) in tree.items()}
    # The type is created at run time, so mypy cannot know it.
    struct_type: Any = msgspec.defstruct("Values", fields, rename=names, gc=False)
    return Optional[struct_type]


def _leaf(values: Any, slots: tuple[str, ...]) -> object:
    for slot in slots:
        if values is None:
            return None
        values = getattr(values, slot)
    return values


def _converted(convert: Callable[[Any], Any], raw: object) -> Any:
    if raw is None:
        return None
    try:
        return convert(raw)
    except (msgspec.MsgspecError, ValueError, ArithmeticError, RecursionError):
        return None
