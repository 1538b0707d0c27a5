"""Runs SQL over shared tables with DuckDB, which gets a view of each table that the query names."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import sqlglot
from sqlglot import exp

from delta_sharing_client import optional
from delta_sharing_client.arrow_forms import reader_of
from delta_sharing_client.client import SharingClient
from delta_sharing_client.errors import OutOfMemoryError, UsageError, check_memory
from delta_sharing_client.limited_reads import stopped_by_end
from delta_sharing_client.protocol.names import AssetName
from delta_sharing_client.table import SharedTable

if TYPE_CHECKING:
    import duckdb

    from delta_sharing_client.read_base import Read

_MISSING = re.compile(r"Table with name (\S+) does not exist")
_NO_COLUMN = re.compile(r'Referenced column "([^"]+)" not found')
# DuckDB's advice, which names settings that cannot be changed everywhere.
_MEMORY_ADVICE = re.compile(r"\n*(?:Database is launched|Possible solutions)")
# The words of DuckDB and Arrow around an error of ours, some with paths of this machine.
_AROUND_OURS = re.compile(
    r"^.*?(?:the Arrow source failed|get_next failed\(\)): (?:\w*Error|Unknown error|Invalid): |^[A-Z]\w*Error: "
    r"|\.? Detail: Python exception: Traceback .*|\s+At:\s+\S+\(\d+\): .*",
    re.DOTALL,
)
_UNDERLINED = re.compile(r"\x1b\[[0-9;]*m")
_SHOW_TABLES = re.compile(r"\s*SHOW\s+(ALL\s+)?TABLES\s*;?\s*", re.IGNORECASE)
_FIRST_WORD = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/|\()*(\w*)", re.DOTALL)
_QUERIES = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "PIVOT", "UNPIVOT", "DESCRIBE", "DESC", "SUMMARIZE")
# The settings keep SQL from accessing anything but shared tables, and DuckDB from printing. The last one prevents
# changes to the others.
_CONFINEMENT = (
    "SET enable_progress_bar = false",
    "SET streaming_buffer_size = '1MB'",
    "SET temp_directory = ''",
    "SET memory_limit = '1GB'",
    "SET python_enable_replacements = false",
    "SET home_directory = 'none'",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)


# Types whose values DuckDB changes without an error when it hands them to Arrow.
_CHANGED_IN_ARROW = frozenset(("bignum", "bit", "time with time zone", "uhugeint", "varint"))
# Classes of sqlglot: functions with the same results in Spark, and parts with others.
_FUNCTIONS_OF_SPARK = re.compile(
    "Abs|And|Avg|Case|Coalesce|Count|DenseRank|Exists|If|Lag|Lead|Lower|Max|Min|Nullif|Or|Rank|Round|RowNumber|Sum|"
    "Upper"
)
_PARTS_UNLIKE_SPARK = re.compile("Bracket|Interval|Lambda|Pivot|PivotAny|Qualify|Struct|TableSample|Values")


class _DuckDB(sqlglot.dialects.DuckDB):  # type: ignore[misc]
    class Tokenizer(sqlglot.dialects.DuckDB.Tokenizer):  # type: ignore[misc]
        # DuckDB 2 has these, too.
        IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ['"', "`"]
        HEX_STRINGS: ClassVar[list[str | tuple[str, str]]] = [("x'", "'"), ("X'", "'")]


def connect() -> duckdb.DuckDBPyConnection:
    """Return a new DuckDB connection whose time zone is UTC. Raises ``UsageError`` if DuckDB is not installed."""
    connection: duckdb.DuckDBPyConnection = optional.load("duckdb", "duckdb").connect()
    connection.execute("SET TimeZone = 'UTC'")
    return connection


@contextlib.contextmanager
def confined(client: SharingClient) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a confined connection to DuckDB, whose queries end with the call (``limited_reads.ENDING``). Errors in the
    block are those of ``errors_of``."""
    with contextlib.closing(connect()) as connection, stopped_by_end(connection.interrupt):
        confine(connection)
        with errors_of(client):
            yield connection


def confine(connection: duckdb.DuckDBPyConnection) -> None:
    """Let SQL on ``connection`` read no file, address, extension or Python object, and change no setting."""
    # Which settings have folders of this machine differs between releases.
    folders = connection.execute("SELECT name FROM duckdb_settings() WHERE suffix(name, '_directory') AND value <> ''")
    for (name,) in folders.fetchall():
        connection.execute(f"SET {name} = 'none'")
    for statement in _CONFINEMENT:
        connection.execute(statement)


def relation(
    client: SharingClient,
    query: str,
    connection: duckdb.DuckDBPyConnection | None = None,
    scan_of: Callable[[SharedTable], Read] = SharedTable.scan,
) -> duckdb.DuckDBPyRelation:
    """Return a relation that runs ``query`` when it is used, on ``connection`` or on a new one in UTC.

    ``scan_of`` returns the read of a table. For the accepted queries and the errors, see ``loaders.sql``.
    """
    connection = connect() if connection is None else connection
    tables = _tables_of(query)
    if tables is None:
        listed = client.list_all_tables()
        columns = {
            "share": [table.share for table in listed],
            "schema": [table.schema for table in listed],
            "name": [table.name for table in listed],
        }
        return connection.from_arrow(pa.table(columns, pa.schema([(name, pa.string()) for name in columns])))
    # Imported here, because listings do not need DuckDB.
    from delta_sharing_client.outputs.dataset import create_views

    create_views(connection, {name: scan_of(client.table(name)) for name in tables})
    with errors_of(client):
        return connection.sql(query)


@contextlib.contextmanager
def rows_of(client: SharingClient, relation: duckdb.DuckDBPyRelation) -> Iterator[pa.RecordBatchReader]:
    """Yield a reader of the rows of ``relation``. It raises the errors of ``errors_of``, also if the query fails after
    its first rows, and ``UsageError`` for a column whose values DuckDB would change."""
    for name, kind in zip(relation.columns, relation.types, strict=True):
        if changed := next((part for part in _parts(kind) if part.id in _CHANGED_IN_ARROW), None):
            raise UsageError(
                f"The column '{name}' has the type {changed}, which Arrow does not have; write CAST(... AS VARCHAR)."
            )
    with errors_of(client), reader_of(relation) as reader:
        yield pa.RecordBatchReader.from_batches(reader.schema, _with_errors(client, reader))


def _parts(kind: Any) -> Iterator[Any]:
    """Yield a type of DuckDB and the types in it."""
    yield kind
    if kind.id in ("array", "list", "map", "struct", "union"):
        for _, child in kind.children:
            if not isinstance(child, int):  # the length of an array
                yield from _parts(child)


def _with_errors(client: SharingClient, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    duckdb = optional.load("duckdb", "duckdb")
    try:
        yield from reader
    except (OSError, pa.ArrowException) as error:
        check_memory(error)
        # Arrow hands on the text of DuckDB's error, not its class.
        is_memory = str(error).startswith("Out of Memory")
        with errors_of(client):
            raise (duckdb.OutOfMemoryException if is_memory else duckdb.Error)(str(error)) from None


@contextlib.contextmanager
def errors_of(client: SharingClient) -> Iterator[None]:
    """Turn errors of DuckDB into ``UsageError``. For an unknown name, the message suggests full names of shared
    tables."""
    duckdb = optional.load("duckdb", "duckdb")
    try:
        yield
    except duckdb.OutOfMemoryException as error:
        raise OutOfMemoryError(
            f"DuckDB has too little memory for the SQL. {' '.join(_MEMORY_ADVICE.split(str(error))[0].split())}. Use "
            "fewer rows or columns at a time; on your own connection, raise the limit with 'SET memory_limit'."
        ) from None
    except (duckdb.Error, OSError) as error:  # the second if the result is read as an Arrow stream
        missing = _MISSING.search(str(error)) if isinstance(error, duckdb.CatalogException) else None
        if missing is None:
            column = _NO_COLUMN.search(str(error))
            advice = f" If it is a string, write it in single quotes: '{column[1]}'." if column else ""
            reason = " ".join(_AROUND_OURS.sub("", str(error)).split())
            raise UsageError(f"DuckDB cannot run the SQL. {reason}{advice}") from None
        parts = missing[1].split(".")
        if len(parts) == 3:
            quoted = ".".join(f'"{part}"' for part in parts)
            raise UsageError(f"The quotes turn '{missing[1]}' into one name. Write {missing[1]} or {quoted}.") from None
        # This replaces DuckDB's message, which suggests similar names of its own tables.
        raise UsageError(
            f"The SQL names the table '{missing[1]}', but a shared table needs its full name: share.schema.table. "
            f"{client._rest.near_names(missing[1])}".rstrip()
        ) from None


def _tables_of(query: str) -> list[AssetName] | None:
    """Return the shared tables that ``query`` names; ``None`` if it asks for the list of tables."""
    parsed = _parsed(query)
    if parsed is None:
        return None
    named = {(table.catalog, table.db, table.name) for table in parsed.find_all(exp.Table)}
    return [AssetName(*names) for names in sorted(named) if all(names)]


def in_spark(query: str, catalog: str) -> str | None:
    """Return ``query`` in Spark's SQL, with its tables in ``catalog`` (``loaders.attach``); ``None`` if parts of it may
    mean something else there."""
    parsed = _parsed(query)
    if not isinstance(parsed, exp.Query) or any(map(_is_unlike_spark, parsed.walk())):
        return None
    for table in list(parsed.find_all(exp.Table)):
        if table.catalog:
            table.set("this", exp.Dot(this=table.args["db"], expression=table.this))
            table.set("db", table.args["catalog"])
            table.set("catalog", exp.to_identifier(catalog))
    try:
        return parsed.sql(dialect="spark", pretty=True, unsupported_level=sqlglot.ErrorLevel.RAISE)
    except sqlglot.errors.UnsupportedError:
        return None


def _is_unlike_spark(part: Any) -> bool:
    name = type(part).__name__
    if isinstance(part, exp.Cast):
        # DuckDB rounds 1.5 to an integer, Spark cuts it.
        return not part.to.is_type("date", "timestamp", "text", "varchar", "double")
    if isinstance(part, exp.Func):
        return not _FUNCTIONS_OF_SPARK.fullmatch(name)
    # A backslash is an escape in Spark's LIKE; a column after a table's full name would need the catalog, too.
    return (
        bool(_PARTS_UNLIKE_SPARK.fullmatch(name))
        or (isinstance(part, exp.Literal) and "\\" in part.name)
        or (isinstance(part, exp.Distinct) and part.args.get("on") is not None)
        or (isinstance(part, exp.Join) and part.method != "")
        or (isinstance(part, exp.Column) and part.db != "")
    )


def _parsed(query: str) -> Any:
    """Return the only query in ``query``; ``None`` if it asks for the list of tables."""
    if not isinstance(query, str):
        raise UsageError(f"Expected SQL as a string, found {type(query).__name__}.")
    if _SHOW_TABLES.fullmatch(query):
        return None
    first = _FIRST_WORD.match(query)
    try:
        statements = sqlglot.parse(query, dialect=_DuckDB) if first and first[1].upper() in _QUERIES else []
    except RecursionError:
        raise UsageError("The SQL cannot be parsed: it has too many levels of parentheses.") from None
    except sqlglot.errors.SqlglotError as error:
        message = _UNDERLINED.sub("'", str(error))
        raise UsageError(f"The SQL cannot be parsed. {' '.join(message.split())}") from None
    if len(statements) != 1 or statements[0] is None:
        raise UsageError(
            "The SQL must be one query, such as SELECT ... FROM share.schema.table, DESCRIBE or SUMMARIZE of a table "
            "or query, or SHOW TABLES."
        )
    return statements[0]
