"""What the command prints: tables and trees for people, JSON for machines."""

from __future__ import annotations

import datetime
import io
import json
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TextIO

import pyarrow as pa
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from delta_sharing_client.delta.schema import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
    parse_schema,
)
from delta_sharing_client.errors import UsageError
from delta_sharing_client.replica import Replica
from delta_sharing_client.table import SharedTable


def json_rows(batch: pa.RecordBatch) -> Iterator[dict[str, object]]:
    """Yield every row of ``batch`` as column name -> JSON value, in the order of the columns."""
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
        return _lists(array, [list(pair) for pair in zip(*_entries(array), strict=True)])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _lists(array, json_values(_child(array, array.values)))
    if pa.types.is_timestamp(kind):
        return [None if text is None else text.replace(" ", "T", 1) for text in array.cast(pa.string()).to_pylist()]
    if pa.types.is_date(kind):
        # Through text, as dates and timestamps may lie outside the years 1 to 9999 that datetime can hold.
        return list(array.cast(pa.string()).to_pylist())
    if pa.types.is_duration(kind):
        return list(array.cast(pa.duration("us")).cast(pa.int64()).to_pylist())
    return [_scalar(value) for value in array.to_pylist()]


def compact_json(value: object) -> str:
    """Return ``value`` as JSON text on one line, with characters outside ASCII as they are."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _scalar(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
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


def _entries(array: pa.MapArray) -> tuple[list[object], list[object]]:
    return json_values(_child(array, array.keys)), json_values(_child(array, array.items))


def _child(array: pa.ListArray | pa.MapArray, values: pa.Array) -> pa.Array:
    """Return the part of ``values`` that a sliced ``array`` refers to."""
    offsets = array.offsets
    if len(offsets) == 0:
        return values.slice(0, 0)
    start, stop = offsets[0].as_py(), offsets[len(offsets) - 1].as_py()
    return values.slice(start, stop - start)


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_NULL = Text("null", style="dim")
# Columns narrower than this cannot be read; a row then gets a block of its own.
_NARROWEST_COLUMN = 8
_PIPE_WIDTH = 100_000


def print_json(value: object) -> None:
    """Print ``value`` as one line of JSON."""
    sys.stdout.write(f"{compact_json(value)}\n")


def print_items(items: Sequence[Mapping[str, object]], columns: Sequence[str]) -> None:
    """Print a listing: one line an item, with ``columns`` of it; a column in which no item has a value is left out."""
    shown = [name for name in columns if name == columns[0] or any(item.get(name) is not None for item in items)]
    table = _table(shown)
    for item in items:
        table.add_row(*(cell("" if item.get(name) is None else item[name]) for name in shown))
    _print(table)


def print_rows(names: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
    """Print data rows as a table, or one below the other where the terminal is too narrow for all columns."""
    if len(names) * (_NARROWEST_COLUMN + 2) > _console(sys.stdout).width:
        for number, row in enumerate(rows, 1):
            _print(Text(f"row {number}", style="bold"))
            _print(_pairs(row))
        return
    table = _table(names)
    for row in rows:
        table.add_row(*(cell(row[name]) for name in names))
    _print(table)


def print_facts(facts: Mapping[str, object]) -> None:
    """Print names and values, one a line; a value of None is left out."""
    _print(_pairs({name: value for name, value in facts.items() if value is not None}))


def print_tree(title: str, tree: Mapping[str, Mapping[str, Sequence[str]]]) -> None:
    """Print shares, their schemas and their tables as a tree."""
    root = Tree(cell(title))
    for share, schemas in tree.items():
        branch = root.add(cell(share))
        for schema, tables in schemas.items():
            leaves = branch.add(cell(schema))
            for table in tables:
                leaves.add(cell(table))
    _print(root)


def print_text(text: str) -> None:
    """Print ``text`` as it is, except for control characters inside its lines."""
    for line in text.splitlines():
        _print(cell(line))


def print_note(text: str) -> None:
    """Print ``text`` on stderr, where it does not disturb what is piped."""
    sys.stderr.write(f"{printable(text)}\n")


def cell(value: object) -> Text:
    """Return a JSON value as text for a terminal; names and data cannot send it control sequences or markup."""
    if value is None:
        return _NULL
    return Text(printable(value if isinstance(value, str) else compact_json(value)))


def printable(text: str) -> str:
    """Return ``text`` with its control characters written out as escapes."""
    return _CONTROL.sub(lambda match: match.group().encode("unicode_escape").decode(), text)


def _table(names: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in names:
        table.add_column(cell(name), overflow="ellipsis", no_wrap=True)
    return table


def _pairs(facts: Mapping[str, object]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(cell(name), cell(value))
    return table


def _print(what: RenderableType) -> None:
    if sys.stdout.isatty():
        _console(sys.stdout).print(what)
        return
    text = io.StringIO()
    _console(text).print(what)
    # Cells are padded to the width of their column, which means nothing in a pipe.
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


def _console(file: TextIO) -> Console:
    # A pipe has no width: nothing is cut there.
    return Console(file=file, highlight=False, width=None if file.isatty() else _PIPE_WIDTH)


def describe_table(
    table: SharedTable, version: int | None, timestamp: str | None
) -> tuple[dict[str, object], list[dict[str, object]]]:
    """Return the facts of ``table`` at a version or timestamp (default: now), and its columns, as JSON values."""
    details = table.metadata(version=version, timestamp=timestamp)
    protocol = details.protocol
    facts: dict[str, object] = {
        "table": str(table.name),
        "id": details.id,
        "name": details.name,
        "description": details.description,
        "version": details.version,
        "format": details.response_format.value,
        "minReaderVersion": protocol.min_reader_version,
        "readerFeatures": list(protocol.reader_features or ()),
        "partitionColumns": list(details.partition_columns),
        "sizeInBytes": details.size,
        "numFiles": details.num_files,
        "configuration": dict(details.configuration),
    }
    return facts, [_column(field) for field in parse_schema(details.schema_string).fields]


def _column(field: StructField) -> dict[str, object]:
    return {
        "column": field.name,
        "type": type_text(field.type),
        "nullable": field.nullable,
        "comment": field.metadata.get("comment"),
    }


def type_text(data_type: DataType) -> str:
    """Return ``data_type`` on one line, such as ``array<struct<a: long>>``, in the names of the Delta log."""
    if isinstance(data_type, StructType):
        return f"struct<{', '.join(f'{field.name}: {type_text(field.type)}' for field in data_type.fields)}>"
    if isinstance(data_type, ArrayType):
        return f"array<{type_text(data_type.element)}>"
    if isinstance(data_type, MapType):
        return f"map<{type_text(data_type.key)}, {type_text(data_type.value)}>"
    if isinstance(data_type, DecimalType):
        return f"decimal({data_type.precision},{data_type.scale})"
    return data_type.name


def retention(days: float) -> datetime.timedelta:
    """Return ``days`` as a duration; ``UsageError`` if it is longer than one can be."""
    try:
        return datetime.timedelta(days=days)
    except (OverflowError, ValueError):
        raise UsageError(f"--keep-days must be a number of days such as 7, found {days}") from None


def copy_facts(done: Replica) -> dict[str, object]:
    """Return what ``--json`` prints of an update; the keys are stable."""
    return {
        "directory": str(done.directory),
        "version": done.version,
        "localVersion": done.local_version,
        "numFiles": done.num_files,
        "sizeInBytes": done.size,
        "downloadedFiles": done.downloaded_files,
        "downloadedBytes": done.downloaded_bytes,
        "deletedFiles": done.deleted_files,
    }


def copy_text(done: Replica) -> str:
    """Return one line for people: what the copy holds now, and what this update did."""
    return (
        f"{done.directory} holds version {done.version}: {done.num_files} files, {done.size} bytes; "
        f"downloaded {done.downloaded_files} files, {done.downloaded_bytes} bytes, deleted {done.deleted_files} files"
    )
