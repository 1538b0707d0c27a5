"""The commands of ``delta-sharing``; each prints for people, or JSON with ``--json``.

A command's imports run when it is called: ``--help`` and completion are fast, and ``ls`` needs no pyarrow.
"""

import datetime
import importlib.util
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

import delta_sharing_client
from delta_sharing_client.cli import asset_files, provider_checks, shares
from delta_sharing_client.cli.program import (
    JsonOption,
    ProfileOption,
    Program,
    Settings,
    VerboseOption,
    names_of_tables,
    open_client,
    open_table,
    run_sql,
    version_of_text,
)
from delta_sharing_client.errors import UsageError
from delta_sharing_client.instants import instant_text
from delta_sharing_client.local_paths import expanded
from delta_sharing_client.options import HEAD_ROWS
from delta_sharing_client.outputs.file_formats import BY_ENDING, FileFormat, format_of

if TYPE_CHECKING:
    import pyarrow as pa

    from delta_sharing_client.cli import output
    from delta_sharing_client.scans import ReadOutputs
else:
    # The module imports a library for tables and colors, which is slow, so it is imported on first use.
    _spec = importlib.util.find_spec("delta_sharing_client.cli.output")
    _spec.loader = importlib.util.LazyLoader(_spec.loader)
    output = sys.modules[_spec.name] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(output)


def _print_version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"delta-sharing-client {delta_sharing_client.__version__}\n")
        raise typer.Exit


app = Program(
    name="delta-sharing", help="Look at and read what is shared over the Delta Sharing and OpenSharing protocols."
)

TableArgument = Annotated[
    str, typer.Argument(metavar="TABLE", help="share.schema.table", autocompletion=names_of_tables)
]
ColumnsOption = Annotated[
    Optional[list[str]],
    typer.Option("--columns", "-c", metavar="A,B.C", help="Columns to read, separated by commas; may be repeated."),
]
FilterOption = Annotated[
    Optional[str], typer.Option("--filter", "-f", metavar="SQL", help="Rows to read, such as \"date >= '2024-01-01'\".")
]
LimitOption = Annotated[Optional[int], typer.Option("--limit", "-n", metavar="N", help="Maximum number of rows.")]
VersionOption = Annotated[
    Optional[str],
    typer.Option("--version", metavar="N", help="Version to read; for an Iceberg table a snapshot id, branch or tag."),
]
TimestampOption = Annotated[
    Optional[str],
    typer.Option("--timestamp", metavar="ISO8601", help="Read the version that was current at that time."),
]
LineageOption = Annotated[
    bool,
    typer.Option("--row-lineage", help="Add _row_id, and the version or sequence number that last changed the row."),
]
ToOption = Annotated[
    Optional[Path],
    typer.Option(
        "--to", "-o", metavar="FILE", help=f"File to write: {', '.join(BY_ENDING)}, text also with .gz; - for stdout."
    ),
]
FormatOption = Annotated[
    Optional[FileFormat],
    typer.Option(
        "--format",
        metavar="FORMAT",
        help=f"{', '.join(FileFormat)}; default: the ending of FILE; csv for stdout.",
    ),
]
ExplainOption = Annotated[
    bool,
    typer.Option("--explain", help="Show what would be read, and what is skipped and why, without reading it."),
]


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

for _name, _command in (*shares.COMMANDS.items(), *asset_files.COMMANDS.items(), *provider_checks.COMMANDS.items()):
    app.command(_name)(_command)

profile_app = Program(help="Get and look at profiles.")
app.add_typer(profile_app, name="profile")


@profile_app.command("list")
def profile_list(settings: Settings) -> None:
    """List the named profiles: the files NAME.share in ~/.config/delta-sharing. --profile also accepts a NAME.

    Example: delta-sharing profile list
    Example: delta-sharing profile list --json
    """
    from delta_sharing_client.errors import ProfileError
    from delta_sharing_client.protocol import named_profiles
    from delta_sharing_client.protocol.profile import Profile

    items: list[dict[str, object]] = []
    for name in named_profiles.names():
        item: dict[str, object] = {"name": name, "endpoint": None, "tokenExpires": None, "problem": None}
        path = os.path.join(named_profiles.directory(), name + named_profiles.ENDING)
        try:
            profile = Profile.load(path)
        except ProfileError as error:
            item["problem"] = error.message
        else:
            expires = profile.expiration_time
            item["endpoint"] = profile.endpoint
            item["tokenExpires"] = None if expires is None else instant_text(expires)
        items.append(item)
    if not items and not settings.as_json:
        output.print_note(f"There are no profiles in {named_profiles.directory()}.")
    output.show_listing(items, ["name", "endpoint", "tokenExpires", "problem"], settings)


@profile_app.command("activate")
def profile_activate(
    settings: Settings,
    link: Annotated[str, typer.Argument(metavar="LINK", help="the link that the data provider sent")],
    file: Annotated[
        Optional[Path], typer.Argument(metavar="FILE", help="where to write the profile; by default config.share")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace an existing file")] = False,
) -> None:
    """Use an activation link, which works once, and write its profile to FILE, which only you can read.

    Example: delta-sharing profile activate https://h.example.com/a/8d2f
    Example: delta-sharing profile activate https://h.example.com/a/8d2f new.share
    """
    from delta_sharing_client.protocol.activation import DEFAULT_FILE, activate
    from delta_sharing_client.protocol.profile import Profile

    path = activate(link, file or DEFAULT_FILE, overwrite=overwrite)
    profile = Profile.load(path)
    expires = profile.expiration_time
    output.show_facts(
        {
            "file": str(path),
            "endpoint": profile.endpoint,
            "tokenExpires": None if expires is None else instant_text(expires),
        },
        settings,
    )


@profile_app.command("check")
def profile_check(settings: Settings) -> None:
    """Check whether the server responds, when the token expires, which shares are visible, and how many assets of each
    kind they have.

    Example: delta-sharing profile check --profile demo.share
    Example: delta-sharing profile check --json
    """
    from delta_sharing_client.protocol.asset_kinds import KINDS
    from delta_sharing_client.sources.contents import assets_in

    client = open_client(settings.profile)
    used = client._rest.profile
    shares = [share.name for share in client.list_shares()]
    expires = used.expiration_time
    facts: dict[str, object] = {
        "endpoint": used.endpoint,
        "credentials": type(used.credentials).__name__,
        "tokenExpires": None if expires is None else instant_text(expires),
        "shares": shares,
        "icebergEndpoint": used.iceberg_endpoint,
    }
    kinds = Counter(entry.kind for share in shares for entry in assets_in(client._rest, share)[1])
    facts |= {f"num{kind.plural.capitalize()}": kinds[kind] for kind in KINDS}
    if not settings.as_json:
        facts["tokenExpires"] = facts["tokenExpires"] or "not stated in the profile"
    output.show_facts(facts, settings)


# === One table ===


@app.command("version")
def table_version(
    settings: Settings,
    table: TableArgument,
    since: Annotated[
        Optional[str], typer.Option("--since", metavar="ISO8601", help="Earliest version at or after this time.")
    ] = None,
) -> None:
    """Print a table's latest version.

    Example: delta-sharing version demo.shop.orders
    Example: delta-sharing version demo.shop.orders --since 2026-01-08
    """
    number = open_table(settings.profile, table).version(starting_timestamp=since)
    _print_number("version", number, settings)


@app.command()
def count(
    settings: Settings,
    table: TableArgument,
    filter_: FilterOption = None,
    version: VersionOption = None,
    timestamp: TimestampOption = None,
) -> None:
    """Print the number of rows, from the table's log if possible.

    Example: delta-sharing count demo.shop.orders
    Example: delta-sharing count demo.shop.orders --filter "amount > 100"
    """
    scan = open_table(settings.profile, table).scan(
        filter=filter_, version=version_of_text(version), timestamp=timestamp
    )
    _print_number("rows", scan.count(), settings)


@app.command()
def files(
    settings: Settings,
    table: TableArgument,
    filter_: FilterOption = None,
    version: VersionOption = None,
    timestamp: TimestampOption = None,
) -> None:
    """List the files that a read would open: id, size in bytes, rows, partition values.

    Example: delta-sharing files demo.shop.orders
    Example: delta-sharing files demo.shop.orders --filter "country = 'DE'" --json
    """
    plan = (
        open_table(settings.profile, table)
        .scan(filter=filter_, version=version_of_text(version), timestamp=timestamp)
        .plan()
    )
    names = {field.physical_name: field.name for field in plan.context.schema.fields}
    items = [
        {
            "file": task.file_id,
            "bytes": task.size,
            "rows": task.live_records,
            "partition": {names.get(name, name): value for name, value in task.partition_values.items()} or None,
        }
        for task in plan.tasks
    ]
    output.show_listing(items, ["file", "bytes", "rows", "partition"], settings)


@app.command()
def history(
    settings: Settings,
    table: TableArgument,
    starting_version: Annotated[int, typer.Option("--starting-version", metavar="N", help="First version.")] = 0,
) -> None:
    """Count the changes of each version in the change data feed, and show its operation if the log is shared.

    Example: delta-sharing history demo.shop.orders
    Example: delta-sharing history demo.shop.orders --starting-version 1 --json
    """
    from delta_sharing_client.descriptions import describe_version

    versions = open_table(settings.profile, table).history(starting_version)
    columns = ["version", "timestamp", "operation", "inserts", "updates", "deletes"]
    output.show_listing(list(map(describe_version, versions)), columns, settings)


@app.command()
def credentials(
    settings: Settings,
    table: TableArgument,
    show_secrets: Annotated[bool, typer.Option("--show-secrets", help="Print the keys, for another program.")] = False,
) -> None:
    """Request temporary credentials for a table's directory. Keys are masked unless --show-secrets is given.

    Example: delta-sharing credentials demo.shop.orders
    Example: delta-sharing credentials demo.shop.orders --json --show-secrets
    """
    client = open_client(settings.profile)
    credentials_of_table = client._rest.temporary_table_credentials(open_table(settings.profile, table).name)
    output.show_facts(output.storage_facts(credentials_of_table, show_secrets), settings)


# === Rows ===


@app.command(tells_cost=True)
def head(
    settings: Settings,
    table: TableArgument,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", min=0, help="Number of rows.")] = HEAD_ROWS,
    columns: ColumnsOption = None,
    filter_: FilterOption = None,
    version: VersionOption = None,
    timestamp: TimestampOption = None,
    row_lineage: LineageOption = False,
) -> None:
    """Show the first rows of a table.

    Example: delta-sharing head demo.shop.orders
    Example: delta-sharing head demo.shop.orders -n 3 --columns order_id,amount
    """
    from delta_sharing_client.outputs.json_values import json_rows

    read = open_table(settings.profile, table).scan(
        _split(columns), filter_, limit, version=version_of_text(version), timestamp=timestamp, row_lineage=row_lineage
    )
    if settings.as_json:
        _write(read, None, FileFormat.JSONL, settings)
        return
    with read.to_reader() as reader:
        output.print_rows(reader.schema.names, [row for batch in reader for row in json_rows(batch)])
    _note_cost(read, settings)


@app.command("read", tells_cost=True)
def read_table(
    settings: Settings,
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
) -> None:
    """Write a table's rows to a file or to stdout.

    Example: delta-sharing read demo.shop.orders --limit 5
    Example: delta-sharing read demo.shop.orders -f "amount > 100" -o big.parquet
    Example: delta-sharing read demo.shop.orders -f "order_id = 7" --explain
    """
    read = open_table(settings.profile, table).scan(
        _split(columns), filter_, limit, version=version_of_text(version), timestamp=timestamp, row_lineage=row_lineage
    )
    _print_plan(read, settings) if explain else _write(read, to, file_format, settings)


@app.command("sql")
def sql(
    settings: Settings,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="SELECT ... FROM share.schema.table")],
    to: ToOption = None,
    file_format: FormatOption = None,
) -> None:
    """Run SQL over shared tables with DuckDB; it downloads only the columns and rows that it needs.

    Example: delta-sharing sql "SELECT max(amount) FROM demo.shop.orders"
    Example: delta-sharing sql "SELECT * FROM demo.shop.orders" -o all.parquet
    """
    from delta_sharing_client.outputs.json_values import json_rows

    with run_sql(settings.profile, query) as reader:
        if to is None and file_format is None and not settings.as_json and sys.stdout.isatty():
            output.print_rows(reader.schema.names, [row for batch in reader for row in json_rows(batch)])
        else:
            _write_rows(reader, to, _chosen_format(to, file_format, settings))


@app.command("changes", tells_cost=True)
def read_changes(
    settings: Settings,
    table: TableArgument,
    starting_version: Annotated[
        Optional[int], typer.Option("--starting-version", metavar="N", help="The first version.")
    ] = None,
    ending_version: Annotated[
        Optional[int], typer.Option("--ending-version", metavar="N", help="The last version.")
    ] = None,
    starting_timestamp: Annotated[
        Optional[str], typer.Option("--starting-timestamp", metavar="ISO8601", help="Or the start time.")
    ] = None,
    ending_timestamp: Annotated[
        Optional[str], typer.Option("--ending-timestamp", metavar="ISO8601", help="Or the end time.")
    ] = None,
    to: ToOption = None,
    file_format: FormatOption = None,
    columns: ColumnsOption = None,
    filter_: FilterOption = None,
    limit: LimitOption = None,
    explain: ExplainOption = False,
) -> None:
    """Write a table's change data feed to a file or to stdout.

    Example: delta-sharing changes demo.shop.orders --starting-version 2
    Example: delta-sharing changes demo.shop.orders --starting-version 3 --json
    """
    if (starting_version is None) == (starting_timestamp is None):
        raise UsageError(
            "The command 'changes' needs a start: give --starting-version N or --starting-timestamp ISO8601."
        )
    read = open_table(settings.profile, table).changes(
        starting_version=starting_version,
        ending_version=ending_version,
        starting_timestamp=starting_timestamp,
        ending_timestamp=ending_timestamp,
        columns=_split(columns),
        filter=filter_,
        limit=limit,
    )
    _print_plan(read, settings) if explain else _write(read, to, file_format, settings)


@app.command("follow")
def follow_table(
    settings: Settings,
    table: TableArgument,
    cursor: Annotated[Path, typer.Option("--cursor", metavar="FILE", help="File that stores the position.")],
    to: Annotated[
        str,
        typer.Option("--to", "-o", metavar="DIR", help="Directory for one file per step; - for JSON lines on stdout."),
    ] = "-",
    file_format: Annotated[
        Optional[FileFormat], typer.Option("--format", metavar="FORMAT", help="Format of the files; default: parquet.")
    ] = None,
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", help="Time between two requests for changes.")
    ] = 60.0,
    available_now: Annotated[bool, typer.Option("--available-now", help="End with the latest version.")] = False,
    starting_version: Annotated[
        Optional[str],
        typer.Option("--starting-version", metavar="N", help="Begin at this version (or: latest), without a snapshot."),
    ] = None,
    starting_timestamp: Annotated[
        Optional[str], typer.Option("--starting-timestamp", metavar="ISO8601", help="Or at this time.")
    ] = None,
    columns: ColumnsOption = None,
    filter_: FilterOption = None,
) -> None:
    """Write a table's rows, and then its changes, step by step. A later run continues at the cursor.

    Example: delta-sharing follow demo.shop.orders --cursor c --available-now
    Example: delta-sharing follow demo.shop.orders --cursor c -o d --available-now
    """
    steps = open_table(settings.profile, table).follow(
        cursor,
        every=every,
        trigger="available-now" if available_now else None,
        starting_version=version_of_text(starting_version),
        starting_timestamp=starting_timestamp,
        columns=_split(columns),
        filter=filter_,
    )
    for changes in steps:
        output.store_step(changes, None if to == "-" else Path(expanded(to)), file_format, settings)
        changes.commit()


@app.command()
def replicate(
    settings: Settings,
    table: TableArgument,
    directory: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="Directory of the copy.")],
    columns: ColumnsOption = None,
    version: Annotated[Optional[int], typer.Option("--version", metavar="N", help="Version of the table.")] = None,
    timestamp: TimestampOption = None,
    keep_days: Annotated[
        float, typer.Option("--keep-days", metavar="N", min=0, help="Days to keep files of older versions.")
    ] = 7.0,
    every: Annotated[
        Optional[float],
        typer.Option("--every", metavar="SECONDS", min=0.1, help="Repeat after so many seconds, until Ctrl-C."),
    ] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Compare all files with their checksums, and repair the copy.")
    ] = False,
) -> None:
    """Create a Delta copy of a table in a directory, or update it.

    Example: delta-sharing replicate demo.shop.orders orders
    Example: delta-sharing replicate demo.shop.orders orders --keep-days 1 --json
    """
    if every is not None and (version is not None or timestamp is not None):
        raise UsageError("The option --every follows the latest version. Leave out --version and --timestamp.")
    shared, shown = open_table(settings.profile, table), None
    while True:
        done = shared.replicate(
            directory,
            columns=_split(columns),
            version=version,
            timestamp=timestamp,
            retention=_retention(keep_days),
            repair=repair,
        )
        if done.version != shown:
            output.print_json(output.replica_facts(done)) if settings.as_json else output.print_text(
                output.replica_text(done)
            )
            sys.stdout.flush()
        if every is None:
            return
        shown = done.version
        time.sleep(every)


@app.command("serve", add_help_option=False, context_settings={"ignore_unknown_options": True})
def serve(words: Annotated[Optional[list[str]], typer.Argument(metavar="OPTIONS")] = None) -> None:
    """Start a sharing server for tests and demos, with --demo, --tables DIR or --config FILE.

    Example: delta-sharing serve --help
    Example: delta-sharing serve --list-faults
    """
    from delta_sharing_client import optional, testing

    command = optional.load(f"{testing.server_package().__name__}.command", "server")
    raise typer.Exit(command.app(args=words or [], prog_name="delta-sharing serve", standalone_mode=False) or 0)


@app.command("browse")
def browse(
    settings: Settings,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open a browser; print the address only.")] = False,
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65535, help="Port of this machine; default: a free one.")
    ] = 0,
) -> None:
    """Browse shared assets on a page in the browser, with rows, history, files and downloads.

    Example: delta-sharing browse
    Example: delta-sharing browse --no-open
    """
    from delta_sharing_client import optional

    server = optional.load("delta_sharing_client.browse.page", "browse")

    def tell(address: str, is_opened: bool) -> None:
        output.print_json({"address": address}) if settings.as_json else sys.stdout.write(f"{address}\n")
        sys.stdout.flush()
        way = "The page opens in your browser." if is_opened else "Open this address in a browser on this machine."
        output.print_note(f"{way} Keep the address secret: whoever has it sees what you see. Ctrl-C ends the page.")

    server.serve(settings.profile, port=port, opens=not no_open, tell=tell)


@app.command("mcp")
def mcp_server(
    settings: Settings,
    max_rows: Annotated[
        int, typer.Option("--max-rows", metavar="N", min=1, help="Maximum number of rows in a result.")
    ] = 200,
    max_megabytes: Annotated[
        int, typer.Option("--max-megabytes", metavar="N", min=1, help="Maximum download of one call.")
    ] = 100,
    max_seconds: Annotated[
        int, typer.Option("--max-seconds", metavar="N", min=1, help="Maximum duration of one call.")
    ] = 60,
    shares: Annotated[
        Optional[list[str]],
        typer.Option("--share", metavar="SHARE", help="Offer only this share; repeat it for more."),
    ] = None,
    tables: Annotated[
        Optional[list[str]],
        typer.Option("--table", metavar="TABLE", help="Offer only this table, in full; repeat it for more."),
    ] = None,
    http: Annotated[
        Optional[int],
        typer.Option(
            "--http", metavar="PORT", min=0, max=65535, help="Listen on this port of this machine; 0: a free one."
        ),
    ] = None,
) -> None:
    """Let an assistant list, describe and query shared assets (Model Context Protocol, on stdin and stdout).

    Example: delta-sharing mcp
    Example: delta-sharing mcp --share demo --table other.sales.orders
    Example: delta-sharing mcp --max-rows 50 --max-megabytes 20
    Example: delta-sharing mcp --http 0
    """
    from delta_sharing_client import optional

    server = optional.load(f"delta_sharing_client.mcp.{'server' if http is None else 'http_server'}", "mcp")
    limits = optional.load("delta_sharing_client.mcp.limits", "mcp").Limits
    scope = optional.load("delta_sharing_client.mcp.scope", "mcp").Scope.of(shares or (), tables or ())
    chosen = limits(rows=max_rows, megabytes=max_megabytes, seconds=max_seconds)

    def tell(address: str, token: str) -> None:
        header = f"Authorization: Bearer {token}"
        output.print_json({"url": address, "headers": {"Authorization": f"Bearer {token}"}}) if settings.as_json else (
            sys.stdout.write(f"{address}\n{header}\n")
        )
        sys.stdout.flush()
        output.print_note("Give the assistant's program this address and header, and keep them secret. Ctrl-C ends it.")

    if http is not None:
        server.serve(settings.profile, chosen, scope, port=http, tell=tell)
        return
    if sys.stdin.isatty():
        output.print_note("Waiting for an assistant, which starts this command by itself; Ctrl-C ends it.")
    server.serve(settings.profile, chosen, scope)


# === Shared by the commands ===


def _print_plan(read: "ReadOutputs", settings: Settings) -> None:
    text = read.explain()
    output.print_json({"plan": text.splitlines()}) if settings.as_json else output.print_text(text)


def _write(read: "ReadOutputs", to: Path | None, file_format: FileFormat | None, settings: Settings) -> None:
    chosen = _chosen_format(to, file_format, settings)
    if chosen is FileFormat.XLSX:
        from delta_sharing_client.outputs.excel import check_fits

        check_fits(read)
    with read.to_reader() as reader:
        _write_rows(reader, to, chosen)
    _note_cost(read, settings)


def _write_rows(reader: "pa.RecordBatchReader", to: Path | None, file_format: FileFormat) -> None:
    from delta_sharing_client.outputs.file_writers import write_file, write_stream

    if to is None or str(to) == "-":
        write_stream(reader, reader.schema, sys.stdout.buffer, file_format)
    else:
        written = write_file(reader, reader.schema, Path(expanded(to)), file_format)
        output.print_note(f"{written} rows written to {to}")


def _chosen_format(to: Path | None, file_format: FileFormat | None, settings: Settings) -> FileFormat:
    """Return the format of the rows in ``to``. Raises ``UsageError`` if the options exclude each other."""
    if settings.as_json:
        if file_format not in (None, FileFormat.JSONL, FileFormat.JSON):
            raise UsageError(
                f"The option --json writes JSON lines, but --format requests {file_format.value}; give one of them."
            )
        is_array = str(to or "").lower().endswith((".json", ".json.gz"))
        return file_format or (FileFormat.JSON if is_array else FileFormat.JSONL)
    return file_format or (FileFormat.CSV if to is None or str(to) == "-" else format_of(to))


def _note_cost(read: "ReadOutputs", settings: Settings) -> None:
    if settings.verbose and read.report is not None:
        output.print_note(str(read.report))


def _print_number(name: str, number: int, settings: Settings) -> None:
    output.print_json({name: number} if settings.as_json else number)


def _retention(days: float) -> datetime.timedelta:
    """Return ``days`` as a duration. Raises ``UsageError`` if it is too long."""
    try:
        return datetime.timedelta(days=days)
    except (OverflowError, ValueError):
        raise UsageError(f"The option --keep-days must be a number of days such as 7, found {days}.") from None


def _split(columns: Sequence[str] | None) -> list[str] | None:
    from delta_sharing_client.columns import split_names

    return [name for text in columns for name in split_names(text) or [text]] if columns else None
