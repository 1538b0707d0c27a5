"""The commands of ``delta-sharing``; each prints for people, or JSON with ``--json``.

What a command needs is imported when it runs: ``--help`` and completion answer at once, ``ls`` needs no pyarrow.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer
import typer.core

from delta_sharing_client.cli.exits import ExitCode, Stopped
from delta_sharing_client.cli.target import FileFormat, Settings, format_of, open_client, open_table, share_and_schema
from delta_sharing_client.columns import split_names
from delta_sharing_client.errors import UsageError

if TYPE_CHECKING:
    from delta_sharing_client.delta.schema import DataType, StructField
    from delta_sharing_client.reads import Read
    from delta_sharing_client.replica import Replica
    from delta_sharing_client.table import SharedTable


class _Commands(typer.core.TyperGroup):
    """The commands; says why one stopped before typer, whose releases differ in that, makes an exit code of it."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise Stopped(ExitCode.BROKEN_PIPE) from error
        except KeyboardInterrupt as error:
            raise Stopped(ExitCode.INTERRUPTED) from error


def _print_version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"delta-sharing-client {importlib.metadata.version('delta-sharing-client')}\n")
        raise typer.Exit


app = typer.Typer(
    name="delta-sharing",
    cls=_Commands,
    help="Look at and read tables shared over the Delta Sharing protocol.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ProfileOption = Annotated[
    Optional[str],
    typer.Option("--profile", "-p", metavar="FILE", help="Profile file or URL; default: $DELTA_SHARING_PROFILE."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON on stdout, for machines.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Say on stderr what a read cost.")]
TableArgument = Annotated[str, typer.Argument(metavar="TABLE", help="share.schema.table")]
ColumnsOption = Annotated[
    Optional[list[str]],
    typer.Option("--columns", "-c", metavar="A,B.C", help="Columns to read, separated by commas; may be repeated."),
]
FilterOption = Annotated[
    Optional[str], typer.Option("--filter", "-f", metavar="SQL", help="Rows to read, such as \"date >= '2024-01-01'\".")
]
LimitOption = Annotated[Optional[int], typer.Option("--limit", metavar="N", help="Greatest number of rows.")]
VersionOption = Annotated[Optional[int], typer.Option("--version", metavar="N", help="Version of the table to read.")]
TimestampOption = Annotated[
    Optional[str], typer.Option("--timestamp", metavar="ISO8601", help="Read the version that was current then.")
]
LineageOption = Annotated[bool, typer.Option("--row-lineage", help="Add _row_id and _row_commit_version.")]
ToOption = Annotated[
    Optional[Path], typer.Option("--to", metavar="FILE", help="File to write: .parquet, .csv, .arrow or .jsonl.")
]
FormatOption = Annotated[
    Optional[FileFormat],
    typer.Option("--format", help="How to write rows; default: by the ending of FILE, and csv on stdout."),
]
ExplainOption = Annotated[bool, typer.Option("--explain", help="Say what would be read; read nothing.")]


@app.callback()
def root(
    context: typer.Context,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version of this package and stop.", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    context.obj = Settings(profile, as_json, verbose)


# === Listing ===


@app.command()
def shares(context: typer.Context, profile: ProfileOption = None, as_json: JsonOption = False) -> None:
    """List the shares."""
    settings = Settings.of(context, profile, as_json)
    found = open_client(settings.profile).list_shares()
    _print_listing([{"name": share.name, "id": share.id} for share in found], ["name", "id"], settings)


@app.command()
def schemas(
    context: typer.Context,
    share: Annotated[str, typer.Argument(metavar="SHARE")],
    profile: ProfileOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the schemas of a share."""
    settings = Settings.of(context, profile, as_json)
    found = open_client(settings.profile).list_schemas(share)
    _print_listing([{"name": schema.name, "share": schema.share} for schema in found], ["name", "share"], settings)


@app.command()
def tables(
    context: typer.Context,
    where: Annotated[Optional[str], typer.Argument(metavar="[SHARE[.SCHEMA]]")] = None,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the tables of everything, of a share, or of a schema."""
    settings = Settings.of(context, profile, as_json)
    client = open_client(settings.profile)
    if where is None:
        found = client.list_all_tables()
    else:
        share, schema = share_and_schema(client, where)
        found = client.list_all_tables(share) if schema is None else client.list_tables(f"{share}.{schema}")
    items = [
        {"table": str(table), "share": table.share, "schema": table.schema, "name": table.name, "id": table.id}
        for table in found
    ]
    _print_listing(items, ["table", "id"], settings)


@app.command("ls")
def tree(context: typer.Context, profile: ProfileOption = None, as_json: JsonOption = False) -> None:
    """Show all shares, schemas and tables as a tree."""
    from delta_sharing_client.cli import output

    settings = Settings.of(context, profile, as_json)
    client = open_client(settings.profile)
    shared: dict[str, dict[str, list[str]]] = {}
    for share in client.list_shares():
        schemas = shared.setdefault(share.name, {schema.name: [] for schema in client.list_schemas(share.name)})
        for table in client.list_all_tables(share.name):
            schemas.setdefault(table.schema, []).append(table.name)
    if settings.as_json:
        output.print_json(shared)
    else:
        output.print_tree(client.rest.profile.endpoint, shared)


# === One table ===


@app.command()
def describe(
    context: typer.Context,
    table: TableArgument,
    version: VersionOption = None,
    timestamp: TimestampOption = None,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a table's schema, version, format, features and size."""
    from delta_sharing_client.cli import output

    settings = Settings.of(context, profile, as_json)
    facts, columns = _describe_table(open_table(settings.profile, table), version, timestamp)
    if settings.as_json:
        output.print_json({**facts, "columns": columns})
        return
    output.print_facts(facts)
    sys.stdout.write("\n")
    output.print_items(columns, ["column", "type", "nullable", "comment"])


@app.command("version")
def table_version(
    context: typer.Context,
    table: TableArgument,
    since: Annotated[
        Optional[str], typer.Option("--since", metavar="ISO8601", help="Earliest version at or after this instant.")
    ] = None,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print a table's latest version."""
    from delta_sharing_client.cli import output

    settings = Settings.of(context, profile, as_json)
    number = open_table(settings.profile, table).version(starting_timestamp=since)
    output.print_json({"version": number} if settings.as_json else number)


# === Rows ===


@app.command()
def head(
    context: typer.Context,
    table: TableArgument,
    rows: Annotated[int, typer.Option("--rows", "-n", metavar="N", min=0, help="Number of rows.")] = 10,
    columns: ColumnsOption = None,
    filter_: FilterOption = None,
    version: VersionOption = None,
    timestamp: TimestampOption = None,
    row_lineage: LineageOption = False,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Show the first rows of a table."""
    from delta_sharing_client.cli import output
    from delta_sharing_client.cli.files import json_rows

    settings = Settings.of(context, profile, as_json, verbose)
    read = open_table(settings.profile, table).scan(
        columns=_split(columns),
        filter=filter_,
        limit=rows,
        version=version,
        timestamp=timestamp,
        row_lineage=row_lineage,
    )
    if settings.as_json:
        _write(read, None, FileFormat.JSONL, settings)
        return
    with read.to_reader() as reader:
        output.print_rows(reader.schema.names, [row for batch in reader for row in json_rows(batch)])
    _note_cost(read, settings)


@app.command("read")
def read_table(
    context: typer.Context,
    table: TableArgument,
    to: ToOption = None,
    file_format: FormatOption = None,
    columns: ColumnsOption = None,
    filter_: FilterOption = None,
    limit: LimitOption = None,
    version: VersionOption = None,
    timestamp: TimestampOption = None,
    row_lineage: LineageOption = False,
    explain: ExplainOption = False,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Read a table into a file, or to stdout."""
    settings = Settings.of(context, profile, as_json, verbose)
    read = open_table(settings.profile, table).scan(
        columns=_split(columns),
        filter=filter_,
        limit=limit,
        version=version,
        timestamp=timestamp,
        row_lineage=row_lineage,
    )
    _explain_or_write(read, explain, to, file_format, settings)


@app.command("changes")
def read_changes(
    context: typer.Context,
    table: TableArgument,
    starting_version: Annotated[Optional[int], typer.Option("--starting-version", metavar="N")] = None,
    ending_version: Annotated[Optional[int], typer.Option("--ending-version", metavar="N", help="Inclusive.")] = None,
    starting_timestamp: Annotated[Optional[str], typer.Option("--starting-timestamp", metavar="ISO8601")] = None,
    ending_timestamp: Annotated[
        Optional[str], typer.Option("--ending-timestamp", metavar="ISO8601", help="Inclusive.")
    ] = None,
    to: ToOption = None,
    file_format: FormatOption = None,
    columns: ColumnsOption = None,
    filter_: FilterOption = None,
    limit: LimitOption = None,
    explain: ExplainOption = False,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Read a table's change data feed into a file, or to stdout."""
    if (starting_version is None) == (starting_timestamp is None):
        raise UsageError("The command changes needs one start: --starting-version N or --starting-timestamp ISO8601.")
    settings = Settings.of(context, profile, as_json, verbose)
    read = open_table(settings.profile, table).changes(
        starting_version=starting_version,
        ending_version=ending_version,
        starting_timestamp=starting_timestamp,
        ending_timestamp=ending_timestamp,
        columns=_split(columns),
        filter=filter_,
        limit=limit,
    )
    _explain_or_write(read, explain, to, file_format, settings)


@app.command()
def copy(
    context: typer.Context,
    table: TableArgument,
    directory: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="Where the copy is or shall be.")],
    version: VersionOption = None,
    timestamp: TimestampOption = None,
    keep_days: Annotated[
        float, typer.Option("--keep-days", metavar="N", min=0, help="How long files of older versions stay.")
    ] = 7.0,
    profile: ProfileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a directory a Delta copy of a table, or bring the copy in it up to date."""
    from delta_sharing_client.cli import output

    settings = Settings.of(context, profile, as_json)
    done = open_table(settings.profile, table).replicate(
        directory, version=version, timestamp=timestamp, retention=_retention(keep_days)
    )
    if settings.as_json:
        output.print_json(_copy_facts(done))
    else:
        output.print_text(_copy_text(done))


# === Shared by the commands ===


def _explain_or_write(
    read: Read, explain: bool, to: Path | None, file_format: FileFormat | None, settings: Settings
) -> None:
    from delta_sharing_client.cli import output

    if explain:
        output.print_text(read.explain())
    else:
        _write(read, to, file_format, settings)


def _write(read: Read, to: Path | None, file_format: FileFormat | None, settings: Settings) -> None:
    from delta_sharing_client.cli import output
    from delta_sharing_client.cli.files import write_file, write_stream

    if settings.as_json:
        if file_format not in (None, FileFormat.JSONL):
            raise UsageError(
                f"The option --json writes JSON lines, and --format asks for {file_format.value}; give one of them."
            )
        file_format = FileFormat.JSONL
    chosen = file_format or (FileFormat.CSV if to is None else format_of(to))
    with read.to_reader() as reader:
        if to is None:
            write_stream(reader, reader.schema, sys.stdout.buffer, chosen)
        else:
            written = write_file(reader, reader.schema, to, chosen)
            output.print_note(f"{written} rows written to {to}")
    _note_cost(read, settings)


def _note_cost(read: Read, settings: Settings) -> None:
    from delta_sharing_client.cli import output

    if settings.verbose and read.report is not None:
        output.print_note(str(read.report))


def _print_listing(items: Sequence[Mapping[str, object]], columns: Sequence[str], settings: Settings) -> None:
    from delta_sharing_client.cli import output

    if settings.as_json:
        output.print_json(list(items))
    else:
        output.print_items(items, columns)


def _split(columns: Sequence[str] | None) -> list[str] | None:
    return [name for text in columns for name in split_names(text) or [text]] if columns else None


def _describe_table(
    table: SharedTable, version: int | None, timestamp: str | None
) -> tuple[dict[str, object], list[dict[str, object]]]:
    """Return the facts of ``table`` at a version or timestamp (default: now), and its columns, as JSON values."""
    from delta_sharing_client.delta.schema import parse_schema

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
    from delta_sharing_client.delta.schema import ArrayType, DecimalType, MapType, StructType

    if isinstance(data_type, StructType):
        return f"struct<{', '.join(f'{field.name}: {type_text(field.type)}' for field in data_type.fields)}>"
    if isinstance(data_type, ArrayType):
        return f"array<{type_text(data_type.element)}>"
    if isinstance(data_type, MapType):
        return f"map<{type_text(data_type.key)}, {type_text(data_type.value)}>"
    if isinstance(data_type, DecimalType):
        return f"decimal({data_type.precision},{data_type.scale})"
    return data_type.name


def _retention(days: float) -> datetime.timedelta:
    """Return ``days`` as a duration; ``UsageError`` if it is longer than one can be."""
    try:
        return datetime.timedelta(days=days)
    except (OverflowError, ValueError):
        raise UsageError(f"The option --keep-days must be a number of days such as 7, found {days}.") from None


def _copy_facts(done: Replica) -> dict[str, object]:
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


def _copy_text(done: Replica) -> str:
    """Return one line for people: what the copy holds now, and what this update did."""
    return (
        f"{done.directory} holds version {done.version}: {done.num_files} files, {done.size} bytes; "
        f"downloaded {done.downloaded_files} files, {done.downloaded_bytes} bytes, deleted {done.deleted_files} files"
    )
