"""The table, and a caller's request to read it: the input of planning.

A request is frozen and uses the caller's names; ``bound`` resolves them in one schema. ``SharedTable.scan``,
``SharedTable.changes`` and the options of a Spark source create the same requests.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from delta_sharing_client.columns import ColumnName, Names, resolve_columns
from delta_sharing_client.delta.actions import Metadata, Protocol
from delta_sharing_client.delta.column_mapping import ColumnMappingMode, mapping_mode
from delta_sharing_client.delta.data_types import StructField, StructType, is_variant
from delta_sharing_client.delta.schema import to_arrow_schema
from delta_sharing_client.delta.snapshot import table_schema
from delta_sharing_client.errors import UnsupportedFeatureError, UsageError
from delta_sharing_client.fetch.place import Place
from delta_sharing_client.lazy import lazy
from delta_sharing_client.options import ResponseFormat
from delta_sharing_client.plan.read_columns import (
    CHANGE_FIELDS,
    COMMIT_VERSION,
    ROW_LINEAGE_FIELDS,
)
from delta_sharing_client.plan.tasks import RowLineage
from delta_sharing_client.predicates.binding import bind, double_quoted, fixed
from delta_sharing_client.predicates.tree import Column, Expression, IsNull, columns_in, known_of_all, operands, tests
from delta_sharing_client.predicates.tree import columns as columns_of
from delta_sharing_client.predicates.values import current_moment

if TYPE_CHECKING:
    from delta_sharing_client.fetch.place import Place
    from delta_sharing_client.parquet.field_ids import NameMapping

RequestT = TypeVar("RequestT", bound="ScanRequest | ChangesRequest")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScanRequest:
    """A read of one snapshot.

    Parameters
    ----------
    columns:
        Columns to return, in this order, in the forms of ``columns.resolve_columns``; ``None`` for all columns. A
        nested path keeps its top-level column with only the named part. ``()`` returns rows without columns (a count).
    filter:
        Predicate tree; rows for which it is not true are not returned.
    pushed_filter:
        Condition of the engine that reads the rows, which applies it itself: rows for which it is not true may be left
        out. It skips data only; ``filter`` and ``limit`` define the rows. Dropped if there is a ``limit``, which counts
        rows before the engine's condition.
    limit:
        Maximum number of rows, ``None`` for all.
    version, timestamp:
        Snapshot to read, at most one of the two; ``timestamp`` is ISO 8601 text as sent to the server. A ``version``
        that is a string, but not a number, is the name of a branch or tag of an Iceberg table.
    row_lineage:
        Append ``_row_id`` and ``_row_commit_version`` (Delta Transaction Log Protocol, "Row Tracking"), or
        ``_last_updated_sequence_number`` of an Iceberg table (Iceberg table spec, "Row Lineage").
    lineage_fields:
        The names and types of these columns, which depend on the table.
    response_format:
        The response format to request; it does not change the rows.
    described:
        The table's schema string and partition columns, if a response has stated them: hints for the server are made
        for them, without a request of their own. If the table no longer has them, the hints are not used.

    Raises
    ------
    UsageError
        A negative or non-integer limit or version, or both a version and a timestamp.
    """

    columns: Sequence[ColumnName] | None = None
    filter: Expression | None = None
    pushed_filter: Expression | None = None
    limit: int | None = None
    version: int | str | None = None
    timestamp: str | None = None
    row_lineage: bool = False
    lineage_fields: tuple[pa.Field, ...] = dataclasses.field(default=ROW_LINEAGE_FIELDS, repr=False)
    response_format: ResponseFormat = ResponseFormat.AUTO
    described: tuple[str, list[str]] | None = dataclasses.field(default=None, repr=False)

    def __post_init__(self) -> None:
        _make_counts(self, "limit")
        _drop_pushed_under_limit(self)
        if not self.is_of_reference:
            # -1 is the version of an Iceberg table without commits; a Delta table has no such version.
            _make_counts(self, "version", least=-1)
        if self.version is not None and self.timestamp is not None:
            raise UsageError("Give either version or timestamp, not both.")

    @property
    def skipping(self) -> Expression | None:
        """A condition that is true for every row that must be returned: by it, data is skipped."""
        return known_of_all((self.filter, self.pushed_filter))

    @property
    def is_of_reference(self) -> bool:
        """Whether the request reads a branch or tag."""
        return is_reference(self.version)

    @property
    def number(self) -> int | None:
        """The version of a Delta table to read, ``None`` for the latest. Raises ``UsageError`` for the name of a branch
        or tag, and for -1."""
        return version_number(self.version)

    @property
    def added_fields(self) -> tuple[pa.Field, ...]:
        """The columns that the read adds to the table's."""
        return self.lineage_fields if self.row_lineage else ()

    def bound(self, schema: StructType) -> ScanRequest:
        """Return the request with its columns as paths of ``schema``, and its filters bound to ``schema``.

        Raises ``UsageError`` if they do not fit, ``UnsupportedFeatureError`` if they name a column that cannot be read.
        """
        return _bound(self, schema)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChangesRequest:
    """A read of the change data feed between two versions or timestamps, both inclusive.

    ``columns`` and ``filter`` may also name ``_change_type``, ``_commit_version`` and ``_commit_timestamp``. Without an
    end, the range ends at the latest version. Timestamps are ISO 8601 text. The changes of a view (``of_view``, known
    from the response) have no ``_commit_version``. The rest is as in ``ScanRequest``. Raises ``UsageError`` if there
    is no start, or two starts or ends, if the end version is before the start, or if a number is negative.
    """

    starting_version: int | None = None
    ending_version: int | None = None
    starting_timestamp: str | None = None
    ending_timestamp: str | None = None
    columns: Sequence[ColumnName] | None = None
    filter: Expression | None = None
    pushed_filter: Expression | None = None
    limit: int | None = None
    response_format: ResponseFormat = ResponseFormat.AUTO
    of_view: bool = False

    def __post_init__(self) -> None:
        _make_counts(self, "starting_version", "ending_version", "limit")
        _drop_pushed_under_limit(self)
        if (self.starting_version is None) == (self.starting_timestamp is None):
            raise UsageError("A change feed needs exactly one of starting_version and starting_timestamp.")
        if self.ending_version is not None and self.ending_timestamp is not None:
            raise UsageError("Give either ending_version or ending_timestamp, not both.")
        if (
            self.starting_version is not None
            and self.ending_version is not None
            and self.ending_version < self.starting_version
        ):
            raise UsageError(
                f"'ending_version' {self.ending_version} is before 'starting_version' {self.starting_version}. "
                "Exchange them."
            )

    @property
    def skipping(self) -> Expression | None:
        """As in ``ScanRequest``."""
        return known_of_all((self.filter, self.pushed_filter))

    @property
    def added_fields(self) -> tuple[pa.Field, ...]:
        """The columns that the read adds to the table's."""
        return tuple(field for field in CHANGE_FIELDS if not self.of_view or field.name != COMMIT_VERSION)

    def bound(self, schema: StructType) -> ChangesRequest:
        """Like ``ScanRequest.bound``."""
        return _bound(self, schema)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableState:
    """A table as a server describes it at a version, and how to access its files.

    Parameters
    ----------
    name:
        The table's name, for messages.
    version:
        The version described; ``None`` if it is not known yet.
    row_lineage, lineage_fields:
        The columns in its files that store row lineage; ``None`` if the table's properties name them, as in a Delta
        table; and the columns of a read that return it.
    equality_columns, name_mapping:
        As in ``ScanContext``.
    empty_is_null:
        Whether an empty partition value is null, as in a Delta table.
    place:
        The place of its files; ``None`` in a description that is not read.
    query_id:
        The id of the read's requests, for errors.
    """

    name: str
    version: int | None
    protocol: Protocol
    metadata: Metadata
    row_lineage: RowLineage | None = None
    lineage_fields: tuple[pa.Field, ...] = ROW_LINEAGE_FIELDS
    empty_is_null: bool = True
    equality_columns: Mapping[int, StructField] = dataclasses.field(default_factory=dict)
    name_mapping: NameMapping | None = None
    place: Place | None = None
    query_id: str | None = None

    @lazy
    def schema(self) -> StructType:
        """The table's columns; raises ``ProtocolError`` or ``UnsupportedFeatureError`` if they cannot be read."""
        return table_schema(self.metadata, table=self.name)

    def bound(self, request: RequestT) -> RequestT:
        """Return ``request`` bound to the table's columns, with the columns of its row lineage. Raises the errors of
        ``ScanRequest.bound``."""
        if isinstance(request, ScanRequest):
            request = dataclasses.replace(request, lineage_fields=self.lineage_fields)
        return _bound(request, self.schema)

    @property
    def mapping_mode(self) -> ColumnMappingMode:
        return mapping_mode(self.metadata)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The names of the partition columns as spelled in the schema."""
        fields = (self.schema.find(name) for name in self.metadata.partition_columns)
        return tuple(field.name for field in fields if field is not None)


def is_reference(version: object) -> bool:
    """Return whether a version is the name of a branch or tag; a string of digits is a number."""
    return isinstance(version, str) and not version.isdecimal() and version != ""


def version_number(version: int | str | None) -> int | None:
    """Return the version of a Delta table. Raises ``UsageError`` for the name of a branch or tag, and for -1, which an
    Iceberg table has before its first commit."""
    if whole_number(version) == -1:
        raise UsageError(f"'version' must be an integer of 0 or more, not {version!r}.")
    if isinstance(version, str):
        raise UsageError(
            f"'version' ('versionAsOf' in Spark) must be an integer of 0 or more, not {version!r}: this is a Delta "
            "table, and only Iceberg tables have branches and tags."
        )
    return version


def whole_number(value: Any) -> Any:
    """Convert an integer of another library (NumPy's) to ``int``; return other values unchanged."""
    is_other = hasattr(value, "__index__") and not isinstance(value, (int, bool, np.bool_))
    return operator.index(value) if is_other else value


def as_of_now(request: RequestT) -> RequestT:
    """Return the request with ``current_date()`` and ``now()`` in its filters replaced by their current values."""
    if request.skipping is None:
        return request
    moment = current_moment()
    own, pushed = (
        None if condition is None else fixed(condition, moment) for condition in (request.filter, request.pushed_filter)
    )
    return dataclasses.replace(request, filter=own, pushed_filter=pushed)


def _bound(request: RequestT, schema: StructType) -> RequestT:
    added: tuple[pa.Field, ...] = request.added_fields
    _check_readable(request, schema)
    columns = resolve_columns(request.columns, schema, [field.name for field in added])
    if request.skipping is None:
        return dataclasses.replace(request, columns=columns)
    request, arrow = as_of_now(request), pa.schema([*to_arrow_schema(schema), *added])
    if request.filter is not None:
        _check_variants(request.filter, Names(schema))
    own, pushed = (None if one is None else bind(one, arrow) for one in (request.filter, request.pushed_filter))
    return dataclasses.replace(request, columns=columns, filter=own, pushed_filter=pushed)


def _check_variants(condition: Expression, names: Names) -> None:
    """Raise ``UsageError`` if a filter asks more of a variant than whether it is null."""
    for test in tests(condition):
        for column in (column for operand in operands(test) for column in columns_in(operand)):
            is_null_test = isinstance(test, IsNull) and test.child is column
            for depth in range(1, len(column.path) + 1):
                fields = names.find(column.path[:depth])
                if fields and is_variant(fields[-1].type) and not (is_null_test and depth == len(column.path)):
                    raise UsageError(
                        f"The column '{Column(column.path[:depth])}' is a variant, which a filter can only test with IS"
                        " NULL. Filter the rows after they are read, or query the variant's JSON text with SQL."
                    )


def _check_readable(request: ScanRequest | ChangesRequest, schema: StructType) -> None:
    """Raise ``UnsupportedFeatureError`` if the request names a column that this package cannot decode."""
    if not (left_out := schema.all_left_out):
        return
    named = [column if isinstance(column, str) else ".".join(column) for column in request.columns or ()]
    named += [".".join(path) for path in (() if request.skipping is None else columns_of(request.skipping))]
    strings = () if request.filter is None else double_quoted(request.filter)
    for item in left_out:
        name = ".".join(item.path).lower()
        if any(f"{text.lower()}.".startswith(f"{name}.") for text in strings):
            raise UsageError(
                f"The filter has the name of a column, '{'.'.join(item.path)}', in double quotes, which enclose "
                "strings here, and the type of this column is not supported. Write a string in single quotes."
            )
        if any(f"{asked.lower()}.".startswith(f"{name}.") for asked in named):
            raise UnsupportedFeatureError(item.reason, feature=item.feature)


def _drop_pushed_under_limit(request: ScanRequest | ChangesRequest) -> None:
    if request.limit is not None:
        object.__setattr__(request, "pushed_filter", None)


def _make_counts(request: ScanRequest | ChangesRequest, *names: str, least: int = 0) -> None:
    for name in names:
        value = whole_number(getattr(request, name))
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
            raise UsageError(f"'{name}' must be an integer of 0 or more, not {value!r}.")
        object.__setattr__(request, name, value)
