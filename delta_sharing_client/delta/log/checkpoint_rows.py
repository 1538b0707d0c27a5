"""Rows of a Parquet checkpoint as actions, column by column (Delta log protocol, "Checkpoint Schema").

A checkpoint may have a million rows, so values cross from Arrow to Python a column at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from delta_sharing_client.delta.actions import Action, AddFile, DeletionVectorDescriptor, RemoveFile
from delta_sharing_client.delta.calendars import hybrid_calendar
from delta_sharing_client.delta.log.checkpoint_structs import int96_leaves, partition_texts, statistics_texts
from delta_sharing_client.delta.log.lines import convert_action
from delta_sharing_client.delta.snapshot import Want
from delta_sharing_client.errors import ProtocolError

_FIELDS: dict[str, tuple[type[AddFile] | type[RemoveFile], dict[str, str]]] = {
    "add": (
        AddFile,
        {
            "path": "text",
            "partitionValues": "map",
            "size": "integer",
            "modificationTime": "integer",
            "dataChange": "boolean",
            "stats": "text",
            "tags": "map",
            "deletionVector": "vector",
            "baseRowId": "integer",
            "defaultRowCommitVersion": "integer",
            "clusteringProvider": "text",
        },
    ),
    "remove": (
        RemoveFile,
        {
            "path": "text",
            "dataChange": "boolean",
            "deletionTimestamp": "integer",
            "extendedFileMetadata": "boolean",
            "partitionValues": "map",
            "size": "integer",
            "stats": "text",
            "tags": "map",
            "deletionVector": "vector",
            "baseRowId": "integer",
            "defaultRowCommitVersion": "integer",
        },
    ),
}
_REQUIRED = {"add": ("path", "size", "partitionValues"), "remove": ("path",)}
_DEFAULTS = {"modificationTime": 0, "dataChange": True}
_COUNTS = ("size", "baseRowId")


class FileRows:
    """Turns the ``add`` or the ``remove`` column of one checkpoint file into actions.

    Parameters
    ----------
    parquet:
        The file.
    column:
        ``"add"`` or ``"remove"``.
    want:
        Whether statistics are wanted.
    source:
        The name of the file, for errors.
    """

    def __init__(self, parquet: pq.ParquetFile, column: str, want: Want, source: str) -> None:
        self._column = column
        self._instants = int96_leaves(parquet)
        self._other_calendar = hybrid_calendar(parquet.schema_arrow.metadata) is not None
        self._source = source
        self._kind, self._fields = _FIELDS[column]
        struct = parquet.schema_arrow.field(column).type
        if not pa.types.is_struct(struct):
            raise ProtocolError(f"{source}: the column {column} must be a struct, found {struct}")
        self._present = {struct.field(i).name for i in range(struct.num_fields)}
        self._with_stats = Want.STATS in want and column == "add"
        present = self._present | ({"partitionValues"} if "partitionValues_parsed" in self._present else set())
        missing = [name for name in _REQUIRED[column] if name not in present]
        if missing:
            raise ProtocolError(f"{source}: the column {column} must have the field {missing[0]}, found none")
        # Maps repeat from file to file (all files of a partition), so equal ones are one object.
        self._maps: dict[tuple[object, ...], dict[str, str | None]] = {}

    def leaves(self, *, structs: bool) -> list[str]:
        """Return the columns to read. Struct forms come only where there is no text form, or with ``structs``."""
        wanted = [name for name in self._fields if name in self._present and name != "stats"]
        if self._with_stats:
            wanted += [name for name in ("stats",) if name in self._present]
            if "stats_parsed" in self._present and (structs or "stats" not in self._present):
                wanted.append("stats_parsed")
        if self._column == "add" and "partitionValues" not in self._present:
            wanted += [name for name in ("partitionValues_parsed",) if name in self._present]
        return [f"{self._column}.{name}" for name in wanted]

    def lacks_statistics(self, column: pa.StructArray) -> bool:
        """Whether a file in ``column`` has no text statistics although the checkpoint has a struct form of them."""
        if not self._with_stats or not {"stats", "stats_parsed"} <= self._present:
            return False
        rows = column.filter(column.is_valid())
        return bool(rows.field("stats").null_count)

    def actions(self, column: pa.StructArray) -> list[Action]:
        """Return the actions of the rows in which ``column`` is not null."""
        rows = column.filter(column.is_valid())
        if len(rows) == 0:
            return []
        arrays = {rows.type.field(i).name: array for i, array in enumerate(rows.flatten())}
        values = [self._values(name, kind, arrays, len(rows)) for name, kind in self._fields.items()]
        kind = self._kind
        return [kind(*row) for row in zip(*values, strict=True)]

    def _values(self, name: str, kind: str, arrays: dict[str, pa.Array], count: int) -> list[Any]:
        array = arrays.get(name)
        if name == "stats" and (not self._with_stats or array is None or array.null_count == count):
            parsed = arrays.get("stats_parsed")
            return [None] * count if parsed is None else self._parsed_statistics(parsed)
        if name == "partitionValues" and array is None:
            parsed = arrays.get("partitionValues_parsed")
            if parsed is not None:
                return self._parsed_partitions(parsed)
            return self._absent(name, count)
        if array is None or array.null_count == count:
            return self._absent(name, count)
        try:
            values = self._column_values(array, kind)
        except (pa.ArrowException, TypeError, ValueError, msgspec.ValidationError) as error:
            raise ProtocolError(f"{self._source}: the field {self._column}.{name} has a wrong type: {error}") from None
        if name == "stats" and array.null_count and "stats_parsed" in arrays:
            fallback = self._parsed_statistics(arrays["stats_parsed"])
            values = [text if text is not None else other for text, other in zip(values, fallback, strict=True)]
        return self._checked(name, values, array.null_count)

    def _parsed_statistics(self, parsed: pa.Array) -> list[str | None]:
        if self._other_calendar:
            # Bounds counted in another calendar bound other values.
            return [None] * len(parsed)
        try:
            return statistics_texts(parsed, f"{self._column}.stats_parsed", self._instants)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            # Statistics only help to skip files; without them a file is read.
            return [None] * len(parsed)

    def _parsed_partitions(self, parsed: pa.Array) -> list[dict[str, str | None]]:
        try:
            return partition_texts(parsed, f"{self._column}.partitionValues_parsed", self._instants)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise ProtocolError(
                f"{self._source}: {self._column}.partitionValues_parsed cannot be read: {error}"
            ) from None

    def _absent(self, name: str, count: int) -> list[Any]:
        self._refuse_missing(name)
        return [_DEFAULTS.get(name)] * count

    def _checked(self, name: str, values: list[Any], null_count: int) -> list[Any]:
        if null_count:
            self._refuse_missing(name)
            if name in _DEFAULTS:
                values = [_DEFAULTS[name] if value is None else value for value in values]
        if name in _COUNTS and min((value for value in values if value is not None), default=0) < 0:
            raise ProtocolError(f"{self._source}: {self._column}.{name} must not be negative")
        return values

    def _refuse_missing(self, name: str) -> None:
        if name in _REQUIRED[self._column]:
            raise ProtocolError(f"{self._source}: a row of {self._column} must have a {name}, found none")

    def _column_values(self, array: pa.Array, kind: str) -> list[Any]:
        if kind == "text":
            return _texts(array)
        if kind == "integer":
            return _integers(array)
        if kind == "boolean":
            return array.cast(pa.bool_()).to_numpy(zero_copy_only=False).tolist()
        if kind == "map":
            return self._map_values(array)
        return [
            None if row is None else msgspec.convert(_without_nulls(row), DeletionVectorDescriptor)
            for row in array.to_pylist()
        ]

    def _map_values(self, array: pa.MapArray) -> list[Any]:
        if not pa.types.is_map(array.type):
            raise TypeError(f"expected a map, found {array.type}")
        offsets = array.offsets.to_pylist()
        keys, items = _texts(array.keys), _texts(array.items)
        # The child arrays of a slice are whole; its offsets are not.
        known = self._maps
        values: list[Any] = []
        for row, valid in enumerate(array.is_valid().to_pylist()):
            if not valid:
                values.append(None)
                continue
            start, stop = offsets[row], offsets[row + 1]
            signature = (*keys[start:stop], *items[start:stop])
            value = known.get(signature)
            if value is None:
                value = known[signature] = dict(zip(keys[start:stop], items[start:stop], strict=True))
            values.append(value)
        return values


def other_rows(column: pa.Array, kind: type[Any], source: str) -> Iterator[Action]:
    """Yield the actions of type ``kind`` in a column that has few of them."""
    rows = column.filter(column.is_valid())
    try:
        documents = [_plain(row, rows.type) for row in rows.to_pylist()]
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ProtocolError(f"{source}: a row of {kind.__name__} cannot be read: {error}") from None
    for document in documents:
        yield convert_action(document, kind, source)


def _texts(array: pa.Array) -> list[Any]:
    return array.cast(pa.string()).to_numpy(zero_copy_only=False).tolist()


def _integers(array: pa.Array) -> list[Any]:
    numbers = array.cast(pa.int64())
    if not numbers.null_count:
        return numbers.to_numpy().tolist()
    return numbers.to_pylist()


def _plain(value: Any, arrow_type: pa.DataType) -> Any:
    # Arrow gives maps as lists of pairs; a null field is a field left out.
    if value is None:
        return None
    if pa.types.is_map(arrow_type):
        return dict(value)
    if pa.types.is_struct(arrow_type):
        plain = {item.name: _plain(value[item.name], item.type) for item in arrow_type}
        return _without_nulls(plain)
    return value


def _without_nulls(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}
