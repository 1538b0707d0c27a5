"""Reads checkpoints as streams of actions: classic, multi-part and V2 with sidecars (Delta log protocol,
"Checkpoints").

Parquet files are read one row group at a time, and only the columns that are needed. So memory holds neither all
statistics nor two copies of the rows of a checkpoint with a million files. Statistics and partition values that a
checkpoint has only as structs (``stats_parsed``, ``partitionValues_parsed``) are converted to the text of a commit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice, pairwise
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from delta_sharing_client.arrow_forms import is_bytes
from delta_sharing_client.delta.actions import (
    Action,
    AddFile,
    CheckpointMetadata,
    DeletionVectorDescriptor,
    RemoveFile,
    Sidecar,
)
from delta_sharing_client.delta.calendars import hybrid_calendar
from delta_sharing_client.delta.log.log_files import Checkpoint, LogDirectory
from delta_sharing_client.delta.log.log_lines import ACTION_NAMES, convert_action, read_actions
from delta_sharing_client.delta.partition_values import binary_text
from delta_sharing_client.delta.paths import is_absolute
from delta_sharing_client.delta.snapshot import Want
from delta_sharing_client.delta.value_texts import non_finite
from delta_sharing_client.errors import DataError, ProtocolError, check_memory
from delta_sharing_client.instants import NANOS_PER_DAY, OFFSETS_WITH_SECONDS_END, format_date
from delta_sharing_client.int96 import Int96File

SIDECAR_DIRECTORY = "_sidecars"
BATCH_ROWS = 32_768
_FILES: dict[str, type[AddFile] | type[RemoveFile]] = {"add": AddFile, "remove": RemoveFile}
_OTHER = {name: kind for kind, name in ACTION_NAMES.items() if name not in (*_FILES, "cdc", "commitInfo")}
_FIELDS = {
    "path": "text",
    "partitionValues": "map",
    "size": "integer",
    "modificationTime": "integer",
    "dataChange": "boolean",
    "deletionTimestamp": "integer",
    "extendedFileMetadata": "boolean",
    "stats": "text",
    "tags": "map",
    "deletionVector": "vector",
    "baseRowId": "integer",
    "defaultRowCommitVersion": "integer",
    "clusteringProvider": "text",
}
_REQUIRED = {"add": ("path", "size", "partitionValues"), "remove": ("path",)}
_DEFAULTS = {"modificationTime": 0, "dataChange": True}
_COUNTS = ("size", "baseRowId")
_ENCODER = msgspec.json.Encoder(decimal_format="number")
_NAMES = {"nullCounts": "nullCount"}
_WHOLE_MINUTES = format_date(OFFSETS_WITH_SECONDS_END // NANOS_PER_DAY)


def read_checkpoint(directory: LogDirectory, checkpoint: Checkpoint, want: Want = Want.STATS) -> Iterator[Action]:
    """Yield the actions of a checkpoint, including those in its sidecars.

    ``remove`` actions are included only with :attr:`Want.TOMBSTONES`, ``stats`` of files only with :attr:`Want.STATS`.
    Raises ``DataError`` if a file is missing or is not readable Parquet, ``ProtocolError`` if a row is not a valid
    action, a sidecar names sidecars, or the checkpoint states a different version.
    """
    sidecars: list[Sidecar] = []
    directory.expect(checkpoint.files)
    for name in checkpoint.files:
        for action in _manifest_actions(directory, name, want):
            if isinstance(action, Sidecar):
                sidecars.append(action)
            elif isinstance(action, CheckpointMetadata) and action.version != checkpoint.version:
                raise ProtocolError(
                    f"'{name}' must be the checkpoint of version {checkpoint.version}, but it states version "
                    f"{action.version}."
                )
            else:
                yield action
    paths = [item.path if is_absolute(item.path) else f"{SIDECAR_DIRECTORY}/{item.path}" for item in sidecars]
    directory.expect(paths)
    for path in paths:
        yield from _sidecar_actions(directory, path, want)


def read_table_state(directory: LogDirectory, checkpoint: Checkpoint) -> Iterator[Action]:
    """Yield only the actions of a checkpoint that are not about files: protocol, metadata and the like."""
    for name in checkpoint.files:
        if name.endswith(".json"):
            actions = _manifest_actions(directory, name, Want.NOTHING)
            yield from (action for action in actions if type(action) in _OTHER.values())
        else:
            with _opened(directory, name) as parquet:
                yield from _other_actions(parquet, name)


# === Files of a checkpoint ===


def _manifest_actions(directory: LogDirectory, name: str, want: Want) -> Iterator[Action]:
    if name.endswith(".json"):
        try:
            with directory.open(name) as stream:
                yield from read_actions(stream, name)
        except OSError as error:
            raise DataError(f"The checkpoint '{name}' cannot be read: {error.strerror}.") from None
        return
    with _opened(directory, name) as parquet:
        yield from _other_actions(parquet, name)
        yield from _file_actions(parquet, name, want)


def _sidecar_actions(directory: LogDirectory, path: str, want: Want) -> Iterator[Action]:
    name = path.rpartition("/")[2]
    with _opened(directory, path) as parquet:
        if any(isinstance(action, Sidecar) for action in _other_actions(parquet, name)):
            raise ProtocolError(f"The sidecar '{name}' must hold file actions only, but it names sidecars.")
        yield from _file_actions(parquet, name, want)


def _other_actions(parquet: Int96File, source: str) -> Iterator[Action]:
    columns = [name for name in parquet.schema_arrow.names if name in _OTHER]
    if not columns:
        return
    for batch in parquet.iter_batches(BATCH_ROWS, columns=columns, use_threads=False):
        for name in columns:
            yield from other_rows(batch.column(name), _OTHER[name], source)


def _file_actions(parquet: Int96File, source: str, want: Want) -> Iterator[Action]:
    for column, is_wanted in (("add", True), ("remove", Want.TOMBSTONES in want)):
        if not is_wanted or column not in parquet.schema_arrow.names:
            continue
        rows = FileActions(parquet, column, want, source)
        for group in range(parquet.metadata.num_row_groups):
            yield from _group_actions(parquet, rows, column, group)


def _group_actions(parquet: Int96File, rows: FileActions, column: str, group: int) -> Iterator[Action]:
    batches = _batches(parquet, group, rows.leaves(structs=False))
    for number, batch in enumerate(batches):
        if rows.lacks_statistics(batch.column(column)):
            # This is rare, so the struct form is read only now, from this batch on. (The null counts in the footer
            # would show it earlier, but accessing those of a damaged file aborts the process.)
            for again in islice(_batches(parquet, group, rows.leaves(structs=True)), number, None):
                yield from rows.actions(again.column(column))
            return
        yield from rows.actions(batch.column(column))


def _batches(parquet: Int96File, group: int, leaves: list[str]) -> Iterator[pa.RecordBatch]:
    return parquet.iter_batches(BATCH_ROWS, row_groups=[group], columns=leaves, use_threads=False)


@contextmanager
def _opened(directory: LogDirectory, path: str) -> Iterator[Int96File]:
    name = path.rpartition("/")[2]
    try:
        with directory.open(path) as stream:
            parquet = Int96File(stream)
            names = parquet.schema_arrow.names
            if len(set(names)) != len(names):
                raise ProtocolError(f"The checkpoint file '{name}' must have each column once, found {names}.")
            yield parquet
    except (OSError, pa.ArrowException, EOFError, UnicodeError) as error:
        check_memory(error)
        reason = "it does not exist" if isinstance(error, FileNotFoundError) else str(error).splitlines()[0]
        raise DataError(f"The checkpoint file '{name}' cannot be read: {reason}.") from None


# === Rows of a file ===


class FileActions:
    """Converts the ``add`` or the ``remove`` column of one checkpoint file, called ``source`` in errors, to actions."""

    def __init__(self, parquet: Int96File, column: str, want: Want, source: str) -> None:
        self._column = column
        self._instants = parquet.int96
        self._other_calendar = hybrid_calendar(parquet.schema_arrow.metadata) is not None
        self._source = source
        self._kind = _FILES[column]
        # In the order of the action's fields, to which the values are passed by position.
        self._fields = {name: _FIELDS[name] for name in self._kind.__struct_encode_fields__ if name in _FIELDS}
        struct = parquet.schema_arrow.field(column).type
        if not pa.types.is_struct(struct):
            raise ProtocolError(f"The column '{column}' of '{source}' must be a struct, found {struct}.")
        self._present = {field.name for field in struct}
        self._with_stats = Want.STATS in want and column == "add"
        present = self._present | ({"partitionValues"} if "partitionValues_parsed" in self._present else set())
        missing = [name for name in _REQUIRED[column] if name not in present]
        if missing:
            raise ProtocolError(f"The column '{column}' of '{source}' must have the field '{missing[0]}', found none.")
        # All files of a partition have equal maps, so equal maps become one object.
        self._maps: dict[tuple[object, ...], dict[str, str | None]] = {}

    def leaves(self, *, structs: bool) -> list[str]:
        """Return the columns to read. The struct forms of statistics and partition values are read only if the text
        form is missing; with ``structs``, that of statistics is read as well."""
        names = [name for name in self._fields if name in self._present and name != "stats"]
        if self._with_stats:
            names += ["stats"] if "stats" in self._present else []
            if "stats_parsed" in self._present and (structs or "stats" not in self._present):
                names.append("stats_parsed")
        if self._column == "add" and "partitionValues" not in self._present:
            names.append("partitionValues_parsed")
        return [f"{self._column}.{name}" for name in names]

    def lacks_statistics(self, column: pa.StructArray) -> bool:
        """Return whether a file in ``column`` has no statistics as text, but may have them as a struct."""
        if not self._with_stats or not {"stats", "stats_parsed"} <= self._present:
            return False
        return bool(column.filter(column.is_valid()).field("stats").null_count)

    def actions(self, column: pa.StructArray) -> list[Action]:
        """Return the actions of the rows in which ``column`` is not null."""
        rows = column.filter(column.is_valid())
        if len(rows) == 0:
            return []
        arrays = {field.name: array for field, array in zip(rows.type, rows.flatten(), strict=True)}
        values = [self._values(name, kind, arrays, len(rows)) for name, kind in self._fields.items()]
        return [self._kind(*row) for row in zip(*values, strict=True)]

    def _values(self, name: str, kind: str, arrays: dict[str, pa.Array], count: int) -> list[Any]:
        array, parsed = arrays.get(name), arrays.get(f"{name}_parsed")
        if array is None and parsed is not None and name == "partitionValues":
            return self._parsed_partitions(parsed)
        if array is None or array.null_count == count:
            is_parsed = parsed is not None and name == "stats"
            return self._parsed_statistics(parsed) if is_parsed else self._absent(name, count)
        try:
            values = self._column_values(array, kind)
        except (pa.ArrowException, TypeError, ValueError, msgspec.ValidationError) as error:
            check_memory(error)
            raise ProtocolError(
                f"The field '{self._column}.{name}' of '{self._source}' has the wrong type: {error}."
            ) from None
        if name == "stats" and array.null_count and parsed is not None:
            fallback = self._parsed_statistics(parsed)
            values = [text if text is not None else other for text, other in zip(values, fallback, strict=True)]
        return self._checked(name, values, array.null_count)

    def _parsed_statistics(self, parsed: pa.Array) -> list[str | None]:
        if self._other_calendar:
            # Bounds in the hybrid calendar would be those of other dates.
            return [None] * len(parsed)
        try:
            return statistics_texts(parsed, f"{self._column}.stats_parsed", self._instants)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            check_memory(error)
            # Statistics are optional; a file without them is not skipped.
            return [None] * len(parsed)

    def _parsed_partitions(self, parsed: pa.Array) -> list[dict[str, str | None]]:
        try:
            return partition_texts(parsed, f"{self._column}.partitionValues_parsed", self._instants)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            check_memory(error)
            raise ProtocolError(
                f"The field '{self._column}.partitionValues_parsed' of '{self._source}' cannot be read: {error}."
            ) from None

    def _absent(self, name: str, count: int) -> list[Any]:
        self._refuse_missing(name)
        return [_DEFAULTS.get(name)] * count

    def _checked(self, name: str, values: list[Any], null_count: int) -> list[Any]:
        if null_count:
            self._refuse_missing(name)
            if name in _DEFAULTS:
                values = [_DEFAULTS[name] if value is None else value for value in values]
        if name in _COUNTS and (least := min((value for value in values if value is not None), default=0)) < 0:
            raise ProtocolError(
                f"The field '{self._column}.{name}' of '{self._source}' must not be negative, found {least}."
            )
        return values

    def _refuse_missing(self, name: str) -> None:
        if name in _REQUIRED[self._column]:
            raise ProtocolError(
                f"Each '{self._column}' row of '{self._source}' must have a {name!r}, but one has none."
            )

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
        # The keys and items of a slice are those of the whole array; its offsets point into them.
        maps = self._maps
        values: list[Any] = []
        for valid, (start, stop) in zip(array.is_valid().to_pylist(), pairwise(offsets), strict=True):
            signature = (*keys[start:stop], *items[start:stop])
            value = maps.get(signature)
            if value is None:
                value = maps[signature] = dict(zip(keys[start:stop], items[start:stop], strict=True))
            values.append(value if valid else None)
        return values


def other_rows(column: pa.Array, kind: type[Any], source: str) -> Iterator[Action]:
    """Yield the actions of type ``kind`` in ``column``, one by one, because a checkpoint has few of them."""
    rows = column.filter(column.is_valid())
    try:
        documents = [_plain(row, rows.type) for row in rows.to_pylist()]
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        check_memory(error)
        raise ProtocolError(f"A {ACTION_NAMES[kind]!r} row of '{source}' cannot be read: {error}.") from None
    for document in documents:
        yield convert_action(document, kind, source)


def _texts(array: pa.Array) -> list[Any]:
    return array.cast(pa.string()).to_numpy(zero_copy_only=False).tolist()


def _integers(array: pa.Array) -> list[Any]:
    numbers = array.cast(pa.int64())
    return numbers.to_pylist() if numbers.null_count else numbers.to_numpy().tolist()


def _plain(value: Any, arrow_type: pa.DataType) -> Any:
    # Arrow returns maps as lists of pairs; a null field is a missing field.
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


# === Struct forms of statistics and partition values ===


def statistics_texts(parsed: pa.StructArray, path: str, instants: frozenset[str]) -> list[str | None]:
    """Return the ``stats`` JSON of each row of a ``stats_parsed`` column, ``None`` if it is null.

    Null values are omitted: a missing bound is unknown. ``path`` is the column's dotted path, ``instants`` has the
    dotted paths of INT96 columns, whose values are instants although Arrow gives them no time zone.
    """
    return [
        None if row is None else _ENCODER.encode({_NAMES.get(key, key): value for key, value in row.items()}).decode()
        for row in _json_values(parsed, path, instants)
    ]


def partition_texts(parsed: pa.StructArray, path: str, instants: frozenset[str]) -> list[dict[str, str | None]]:
    """Return the ``partitionValues`` of each row of a ``partitionValues_parsed`` column.

    ``path`` and ``instants`` as in :func:`statistics_texts`.
    """
    names = [field.name for field in parsed.type]
    columns = [
        _partition_column(array, f"{path}.{name}" in instants)
        for name, array in zip(names, parsed.flatten(), strict=True)
    ]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _json_values(array: pa.Array, path: str, instants: frozenset[str]) -> list[Any]:
    kind = array.type
    if pa.types.is_struct(kind):
        return _json_objects(array, path, instants)
    if pa.types.is_timestamp(kind):
        is_instant = kind.tz is not None or path in instants
        return _mapped(_local_text(array), lambda text: _moment_text(text, is_instant))
    if pa.types.is_date(kind):
        return _cast_texts(array)
    if pa.types.is_floating(kind):
        return _mapped(array.to_pylist(), _json_float)
    if is_bytes(kind) or pa.types.is_nested(kind):
        # Binary columns, lists and maps have no bounds in JSON.
        return [None] * len(array)
    return array.to_pylist()


def _json_objects(array: pa.StructArray, path: str, instants: frozenset[str]) -> list[Any]:
    columns = [
        (field.name, _json_values(child, f"{path}.{field.name}", instants))
        for field, child in zip(array.type, array.flatten(), strict=True)
    ]
    return [
        {name: values[row] for name, values in columns if values[row] is not None} if present else None
        for row, present in enumerate(array.is_valid().to_pylist())
    ]


def _moment_text(text: str, is_instant: bool) -> str:
    # The timestamp may come from a string whose offset lacked its seconds. Then the returned text must not end in Z:
    # readers of statistics assume a smaller error for Z (``delta.value_bounds``).
    zone = "" if not is_instant else "+00:00" if text < _WHOLE_MINUTES else "Z"
    return text.replace(" ", "T") + zone


def _partition_column(array: pa.Array, is_instant: bool) -> list[str | None]:
    kind = array.type
    if pa.types.is_timestamp(kind):
        texts = _local_text(array)
        is_local = kind.tz is None and not is_instant
        return texts if is_local else _mapped(texts, lambda text: text.replace(" ", "T") + "Z")
    if pa.types.is_floating(kind):
        return _mapped(array.to_pylist(), lambda value: str(_json_float(value)))
    if is_bytes(kind):
        return _mapped(array.to_pylist(), binary_text)
    if pa.types.is_decimal(kind):
        # Arrow's text of a small decimal has an exponent.
        return _mapped(array.to_pylist(), lambda value: format(value, "f"))
    return _cast_texts(array)


def _local_text(array: pa.Array) -> list[Any]:
    # The cast to the zone-less type gives text in UTC, also for years beyond 9999. No digit may be lost: a maximum
    # would be smaller than values of its rows.
    unit = "ns" if array.type.unit == "ns" else "us"
    texts = _cast_texts(array.cast(pa.timestamp(unit)))
    return texts if unit == "us" else _mapped(texts, lambda text: text.removesuffix("000"))


def _cast_texts(array: pa.Array) -> list[Any]:
    return pc.cast(array, pa.string()).to_pylist()


def _json_float(value: float) -> object:
    return value if math.isfinite(value) else non_finite(value)


def _mapped(values: list[Any], function: Callable[[Any], Any]) -> list[Any]:
    return [None if value is None else function(value) for value in values]
