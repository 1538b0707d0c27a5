"""Rows into a file, batch by batch: all of them, or no file at all."""

from __future__ import annotations

import contextlib
import enum
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from delta_sharing_client.cli.output import compact_json, json_rows, json_values
from delta_sharing_client.errors import UsageError

Write = Callable[[pa.RecordBatch], None]


class FileFormat(str, enum.Enum):
    """How rows are written; the values are the names on the command line."""

    PARQUET = "parquet"
    CSV = "csv"
    ARROW = "arrow"
    JSONL = "jsonl"


_BY_SUFFIX = {
    ".parquet": FileFormat.PARQUET,
    ".csv": FileFormat.CSV,
    ".arrow": FileFormat.ARROW,
    ".feather": FileFormat.ARROW,
    ".jsonl": FileFormat.JSONL,
    ".ndjson": FileFormat.JSONL,
}


def format_of(target: Path) -> FileFormat:
    """Return the format that the ending of ``target`` names. UsageError for any other ending."""
    try:
        return _BY_SUFFIX[target.suffix.lower()]
    except KeyError:
        raise UsageError(
            f"Cannot tell the format of {str(target)!r} from its ending; "
            f"expected one of {', '.join(_BY_SUFFIX)}, or choose with --format"
        ) from None


def write_file(batches: Iterable[pa.RecordBatch], schema: pa.Schema, target: Path, file_format: FileFormat) -> int:
    """Write ``batches``, which all have ``schema``, to ``target`` and return the number of rows.

    The file appears under its name only when it is complete; an existing one stays as it was if the read fails.
    UsageError if the folder cannot be written to.
    """
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise UsageError(f"Cannot write {str(target)!r}: {error.strerror}") from error
    try:
        with os.fdopen(handle, "wb") as sink:
            rows = write_stream(batches, schema, sink, file_format)
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise
    return rows


def write_stream(batches: Iterable[pa.RecordBatch], schema: pa.Schema, sink: BinaryIO, file_format: FileFormat) -> int:
    """Write ``batches``, which all have ``schema``, to ``sink`` as they come and return the number of rows."""
    rows = 0
    with _WRITERS[file_format](sink, schema) as write:
        for batch in batches:
            write(batch)
            rows += batch.num_rows
    return rows


@contextlib.contextmanager
def _parquet(sink: BinaryIO, schema: pa.Schema) -> Iterator[Write]:
    with pq.ParquetWriter(sink, schema) as writer:
        yield writer.write_batch


@contextlib.contextmanager
def _arrow(sink: BinaryIO, schema: pa.Schema) -> Iterator[Write]:
    with pa.ipc.new_file(sink, schema) as writer:
        yield writer.write_batch


@contextlib.contextmanager
def _csv(sink: BinaryIO, schema: pa.Schema) -> Iterator[Write]:
    with pa_csv.CSVWriter(sink, _csv_schema(schema)) as writer:
        yield lambda batch: writer.write_batch(_csv_batch(batch))


@contextlib.contextmanager
def _jsonl(sink: BinaryIO, schema: pa.Schema) -> Iterator[Write]:
    def write(batch: pa.RecordBatch) -> None:
        sink.writelines(f"{compact_json(row)}\n".encode() for row in json_rows(batch))

    yield write


_WRITERS: dict[FileFormat, Callable[[BinaryIO, pa.Schema], contextlib.AbstractContextManager[Write]]] = {
    FileFormat.PARQUET: _parquet,
    FileFormat.CSV: _csv,
    FileFormat.ARROW: _arrow,
    FileFormat.JSONL: _jsonl,
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
    """Say whether a CSV file holds values of ``kind`` as this package's JSON text: it has no form of its own."""
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
