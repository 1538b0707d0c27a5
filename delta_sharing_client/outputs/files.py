"""Writes rows to files, batch by batch, completely or not at all; and converts rows to JSON values."""

from __future__ import annotations

import contextlib
import gzip
import math
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from delta_sharing_client import durable
from delta_sharing_client.delta.value_texts import non_finite
from delta_sharing_client.errors import UsageError
from delta_sharing_client.file_lock import try_lock
from delta_sharing_client.outputs.file_formats import NO_ROOM, FileFormat, compact_json, is_compressed
from delta_sharing_client.plan.columns import check_nothing_left_out

_TEMPORARY_SUFFIX = ".part"
_LONGEST_PREFIX = 200
# As gzip's command: the highest takes three times as long for a percent.
_GZIP_LEVEL = 6


def write_file(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    target: Path,
    file_format: FileFormat,
    *,
    lasting: bool = False,
) -> int:
    """Write ``batches``, which all have ``schema``, to ``target`` and return the number of rows.

    The file gets its name only when it is complete; an existing one is unchanged if the read fails or the process ends.
    With ``lasting`` a power cut does not lose it. Raises ``UsageError`` if ``target`` cannot be written,
    ``UnsupportedFeatureError`` if columns were left out without the user's choice.
    """
    check_nothing_left_out(schema, f"The file '{target}'")
    compressed = is_compressed(target, file_format)
    try:
        if target.is_dir():
            raise UsageError(f"Cannot write '{target}': it is a directory, and the name of a file was expected.")
        _remove_left_behind(target)
        prefix = _temporary_prefix(target)
        handle, name = tempfile.mkstemp(prefix=prefix, suffix=_TEMPORARY_SUFFIX, dir=target.parent)
        try:
            with _ended_by_signals(), os.fdopen(handle, "wb") as sink:
                # Without locks nobody removes it.
                with contextlib.suppress(OSError):
                    try_lock(handle)
                rows = _write(batches, schema, sink, file_format, compressed=compressed)
                sink.flush()
                os.chmod(name, 0o666 & ~_umask())
            durable.replace(Path(name), target) if lasting else os.replace(name, target)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
            raise
    except OSError as error:
        reason = error.strerror or "the system refused it"
        first = "Make room, or c" if error.errno in NO_ROOM else "C"
        raise UsageError(f"Cannot write '{target}': {reason}. {first}hoose another place.") from None
    return rows


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the process like Ctrl-C, so that temporary files are removed."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = {}
    if threading.current_thread() is threading.main_thread():
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            # An ignored signal (nohup) stays ignored.
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:
                before[number] = signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _temporary_prefix(target: Path) -> str:
    # Part of a long name: with the suffix it would exceed the limit of file systems.
    return f".{os.fsdecode(os.fsencode(target.name)[:_LONGEST_PREFIX])}."


def _remove_left_behind(target: Path) -> None:
    """Remove temporary files of killed processes for ``target``; a running writer holds a lock on its file."""
    for entry in os.scandir(target.parent):
        if entry.name.startswith(_temporary_prefix(target)) and entry.name.endswith(_TEMPORARY_SUFFIX):
            with contextlib.suppress(OSError):
                with open(entry.path, "r+b") as stream:
                    left_behind = try_lock(stream.fileno())
                # Windows cannot remove an open file. The name is not reused: each writer creates its own.
                if left_behind:
                    os.unlink(entry.path)


def _write(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, sink: BinaryIO, file_format: FileFormat, *, compressed: bool
) -> int:
    if not compressed:
        return write_stream(batches, schema, sink, file_format)
    # Without a name and a time, so that the same rows are the same bytes.
    with gzip.GzipFile("", "wb", _GZIP_LEVEL, sink, mtime=0) as packed:
        return write_stream(batches, schema, cast(BinaryIO, packed), file_format)


def write_stream(batches: Iterable[pa.RecordBatch], schema: pa.Schema, sink: BinaryIO, file_format: FileFormat) -> int:
    """Write ``batches``, which all have ``schema``, to ``sink`` as they arrive and return the number of rows."""
    rows = 0
    with _WRITERS[file_format](sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def json_rows(batch: pa.RecordBatch) -> Iterator[dict[str, object]]:
    """Yield every row of ``batch`` as a mapping of column names to JSON values, in column order."""
    names = batch.schema.names
    for row in zip(*(json_values(column) for column in batch.columns), strict=True):
        yield dict(zip(names, row, strict=True))
    if not names:
        yield from ({} for _ in range(batch.num_rows))


def json_values(array: pa.Array) -> list[object]:
    """Return the values of ``array`` as JSON values; a null is None."""
    kind = array.type
    if pa.types.is_struct(kind):
        return _objects(array)
    if pa.types.is_map(kind):
        keys, items = json_values(_child(array, array.keys)), json_values(_child(array, array.items))
        return _lists(array, [list(pair) for pair in zip(keys, items, strict=True)])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _lists(array, json_values(_child(array, array.values)))
    if pa.types.is_timestamp(kind):
        return [None if text is None else text.replace(" ", "T", 1) for text in array.cast(pa.string()).to_pylist()]
    if pa.types.is_date(kind):
        # Through text, because dates and timestamps may be outside the years 1 to 9999 of datetime.
        return list(array.cast(pa.string()).to_pylist())
    if pa.types.is_time(kind):
        return list(array.cast(pa.string()).to_pylist())
    if pa.types.is_duration(kind):
        return list(array.cast(pa.duration("us")).cast(pa.int64()).to_pylist())
    return [_scalar(value) for value in array.to_pylist()]


class _CsvWriter(pa_csv.CSVWriter):  # type: ignore[misc]
    def __init__(self, sink: BinaryIO, schema: pa.Schema) -> None:
        super().__init__(sink, _csv_schema(schema))

    def write_batch(self, batch: pa.RecordBatch) -> None:
        super().write_batch(_csv_batch(batch))


class _JsonLinesWriter(contextlib.AbstractContextManager["_JsonLinesWriter"]):
    def __init__(self, sink: BinaryIO, schema: pa.Schema) -> None:
        self._sink = sink

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self._sink.writelines(f"{compact_json(row)}\n".encode() for row in json_rows(batch))

    def __exit__(self, *exc: object) -> None: ...


class _JsonWriter(contextlib.AbstractContextManager["_JsonWriter"]):
    """Writes an array with one object a line; it is no JSON if the rows end with an error."""

    def __init__(self, sink: BinaryIO, schema: pa.Schema) -> None:
        self._sink = sink
        self._before = b"[\n"

    def write_batch(self, batch: pa.RecordBatch) -> None:
        for row in json_rows(batch):
            self._sink.write(self._before + compact_json(row).encode())
            self._before = b",\n"

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is None:
            self._sink.write(b"[]\n" if self._before == b"[\n" else b"\n]\n")


_WRITERS: dict[FileFormat, Callable[[BinaryIO, pa.Schema], Any]] = {
    FileFormat.PARQUET: pq.ParquetWriter,
    FileFormat.CSV: _CsvWriter,
    FileFormat.ARROW: pa.ipc.new_file,
    FileFormat.JSONL: _JsonLinesWriter,
    FileFormat.JSON: _JsonWriter,
}


def _csv_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([(field.name, pa.string() if _as_text(field.type) else field.type) for field in schema])


def _csv_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [_csv_text(column) if _as_text(column.type) else column for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=_csv_schema(batch.schema))


def _csv_text(column: pa.Array) -> pa.Array:
    texts = [value if value is None or isinstance(value, str) else compact_json(value) for value in json_values(column)]
    return pa.array(texts, pa.string())


def _as_text(kind: pa.DataType) -> bool:
    """Whether a CSV file has values of ``kind`` as this package's JSON text."""
    return (
        pa.types.is_nested(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_temporal(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_null(kind)
    )


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _scalar(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return non_finite(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return value.hex()
    return value


def _objects(array: pa.StructArray) -> list[object]:
    names = [array.type.field(position).name for position in range(array.type.num_fields)]
    columns = [json_values(child) for child in array.flatten()]
    valid = array.is_valid().to_pylist()
    return [
        {name: column[row] for name, column in zip(names, columns, strict=True)} if valid[row] else None
        for row in range(len(array))
    ]


def _lists(array: pa.ListArray | pa.MapArray, values: list[object]) -> list[object]:
    offsets = array.offsets.to_pylist()
    first = offsets[0] if offsets else 0
    valid = array.is_valid().to_pylist()
    return [
        values[offsets[row] - first : offsets[row + 1] - first] if valid[row] else None for row in range(len(array))
    ]


def _child(array: pa.ListArray | pa.MapArray, values: pa.Array) -> pa.Array:
    """Return the part of ``values`` that a sliced ``array`` uses."""
    offsets = array.offsets
    if len(offsets) == 0:
        return values.slice(0, 0)
    start, stop = offsets[0].as_py(), offsets[len(offsets) - 1].as_py()
    return values.slice(start, stop - start)
