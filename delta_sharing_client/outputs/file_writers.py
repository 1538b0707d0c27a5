"""Writes rows to files, batch by batch, completely or not at all."""

from __future__ import annotations

import contextlib
import gzip
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from delta_sharing_client import durable
from delta_sharing_client.arrow_forms import is_text
from delta_sharing_client.errors import UsageError
from delta_sharing_client.file_lock import try_lock
from delta_sharing_client.local_paths import check_target
from delta_sharing_client.outputs.file_formats import NO_ROOM, FileFormat, compact_json, is_compressed
from delta_sharing_client.outputs.json_values import json_rows, json_values
from delta_sharing_client.plan.read_columns import check_nothing_left_out

_TEMPORARY_SUFFIX = ".part"
_LONGEST_PREFIX = 200
# The default of the gzip command; the highest level takes three times as long to save one percent.
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

    The file gets its name only when it is complete; an existing file is unchanged if the read fails or the process
    ends. With ``lasting``, the file survives a power failure. Raises ``UsageError`` if ``target`` cannot be written,
    ``UnsupportedFeatureError`` if columns were left out without the user's choice.
    """
    check_nothing_left_out(schema, f"The file '{target}'")
    compressed = is_compressed(target, file_format)
    check_target(target)
    try:
        if target.is_dir():
            raise UsageError(f"Cannot write '{target}': it is a directory. Give the name of a file.")
        _remove_left_behind(target)
        prefix = _temporary_prefix(target)
        handle, name = tempfile.mkstemp(prefix=prefix, suffix=_TEMPORARY_SUFFIX, dir=target.parent)
        try:
            with _ended_by_signals(), os.fdopen(handle, "wb") as sink:
                # On a file system without locks, the file is written too, but no later process can remove it.
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
        if not target.parent.is_dir():
            raise UsageError(f"Cannot write '{target}': there is no directory '{target.parent}'. Create it.") from None
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
    # A long name is shortened, because with the suffix it would exceed the limit of file systems.
    return f".{os.fsdecode(os.fsencode(target.name)[:_LONGEST_PREFIX])}."


def _remove_left_behind(target: Path) -> None:
    """Remove the temporary files for ``target`` that killed processes left behind; a running writer holds a lock."""
    for entry in os.scandir(target.parent):
        if entry.name.startswith(_temporary_prefix(target)) and entry.name.endswith(_TEMPORARY_SUFFIX):
            with contextlib.suppress(OSError):
                with open(entry.path, "r+b") as stream:
                    left_behind = try_lock(stream.fileno())
                # Removed after closing it, because Windows cannot remove an open file. No other writer can have taken
                # the name, because each writer creates its own.
                if left_behind:
                    os.unlink(entry.path)


def _write(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, sink: BinaryIO, file_format: FileFormat, *, compressed: bool
) -> int:
    if not compressed:
        return write_stream(batches, schema, sink, file_format)
    # The gzip header has no name and no time, so that equal rows give equal bytes.
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


class _CsvWriter(contextlib.AbstractContextManager["_CsvWriter"]):
    """Writes lines in the form of pyarrow's CSV writer: strings and names in quotes, nulls as nothing.

    That writer would put numbers in this package's JSON form in quotes as well.
    """

    def __init__(self, sink: BinaryIO, schema: pa.Schema) -> None:
        self._sink = sink
        sink.write(_lines([pa.array([name]) for name in map(_quoted_name, schema.names)], 1))

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self._sink.write(_lines([_csv_text(column) for column in batch.columns], batch.num_rows))

    def __exit__(self, *exc: object) -> None: ...


class _JsonLinesWriter(contextlib.AbstractContextManager["_JsonLinesWriter"]):
    def __init__(self, sink: BinaryIO, schema: pa.Schema) -> None:
        self._sink = sink

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self._sink.writelines(f"{compact_json(row)}\n".encode() for row in json_rows(batch))

    def __exit__(self, *exc: object) -> None: ...


class _JsonWriter(contextlib.AbstractContextManager["_JsonWriter"]):
    """Writes an array with one object per line; the file is invalid JSON if the rows end with an error."""

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


def _excel_writer(sink: BinaryIO, schema: pa.Schema) -> Any:
    # Imported only when an Excel file is written.
    from delta_sharing_client.outputs.excel import ExcelWriter

    return ExcelWriter(sink, schema)


def _parquet_writer(sink: BinaryIO, schema: pa.Schema) -> pq.ParquetWriter:
    try:
        return pq.ParquetWriter(sink, schema)
    except pa.ArrowNotImplementedError as error:
        # Types of DuckDB, such as INTERVAL.
        raise UsageError(
            f"Parquet has no type for one of the columns ({error}). Cast it to text in the query, or write CSV."
        ) from None


_WRITERS: dict[FileFormat, Callable[[BinaryIO, pa.Schema], Any]] = {
    FileFormat.PARQUET: _parquet_writer,
    FileFormat.CSV: _CsvWriter,
    FileFormat.ARROW: pa.ipc.new_file,
    FileFormat.JSONL: _JsonLinesWriter,
    FileFormat.JSON: _JsonWriter,
    FileFormat.XLSX: _excel_writer,
}


def _lines(columns: Sequence[pa.Array], rows: int) -> pa.Buffer | bytes:
    """Return lines of the texts of ``columns``, which have ``rows`` rows."""
    if not columns:
        return b"\n" * rows
    if not rows:
        return b""
    # Twice, because the separator after the last column is a different one. The texts of a batch may exceed 2 GB.
    large = [column.cast(pa.large_string()) for column in columns]
    replaced = {"null_handling": "replace", "null_replacement": ""}
    joined = pc.binary_join_element_wise(*large, pa.scalar(",", pa.large_string()), **replaced)
    ends = pa.scalar("", pa.large_string()), pa.scalar("\n", pa.large_string())
    lines = pc.binary_join_element_wise(joined, *ends, **replaced)
    return lines.buffers()[2].slice(0, pc.sum(pc.binary_length(lines)).as_py())


def _csv_text(column: pa.Array) -> pa.Array:
    """Return the text of each value in a CSV file; a null stays null."""
    if pa.types.is_duration(column.type):
        column = column.cast(pa.duration("us")).cast(pa.int64())
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return column.cast(pa.string())
    if pa.types.is_floating(kind):
        return pa.array([str(value) if value is not None else None for value in json_values(column)], pa.string())
    if not is_text(kind):
        values = json_values(column)
        texts = [value if value is None or isinstance(value, str) else compact_json(value) for value in values]
        column = pa.array(texts, pa.large_string())
    return _quoted(column.cast(pa.large_string()))


def _quoted(texts: pa.Array) -> pa.Array:
    doubled = pc.replace_substring(texts, pattern='"', replacement='""')
    marks = pa.scalar('"', pa.large_string()), pa.scalar("", pa.large_string())
    return pc.binary_join_element_wise(marks[0], doubled, *marks)


def _quoted_name(name: str) -> str:
    return f'"{name.replace(chr(34), chr(34) * 2)}"'


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
