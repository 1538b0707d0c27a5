"""A read as a ``pyarrow.dataset.Dataset``, for engines that push columns and filters down to it: DuckDB, Ibis, Dask."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs

from delta_sharing_client import optional
from delta_sharing_client.arrow_forms import counting_name, has_extension, sliced, with_counting, without_extension
from delta_sharing_client.columns import narrowed, resolve_path
from delta_sharing_client.errors import DataError, ProtocolError, RequestError, UnsupportedFeatureError, UsageError
from delta_sharing_client.lazy import lazy
from delta_sharing_client.outputs.streams import end_on_interrupt, stream_reader
from delta_sharing_client.predicates.arrow_expressions import columns_of, weaker_predicate
from delta_sharing_client.predicates.decimal_scales import exact
from delta_sharing_client.predicates.nan_order import nan_greatest
from delta_sharing_client.read_base import Read, with_pushed
from delta_sharing_client.threads import mapped

if TYPE_CHECKING:
    import duckdb

    from delta_sharing_client.protocol.names import AssetName

_BATCH_ROWS = 131_072
# The maximum number of concurrent schema requests.
_AT_ONCE = 16
_BUFFER = "streaming_buffer_size"


class SharedDataset(pads.FileSystemDataset):  # type: ignore[misc]
    """The result of ``to_dataset()``: ``schema``, ``scanner``, ``to_table``, ``to_batches``, ``head``, ``count_rows``.

    Every scanner sends new requests. ``columns`` and ``filter`` are pushed down to the read, so only the needed
    bytes are downloaded; Arrow then applies the filter to the rows with its own semantics (no comparison with NaN is
    true). Methods that need the whole table in memory (joins, sorting) are refused: read it with ``to_table()`` first.
    """

    # The name of the schema's first column, if that exists only to count rows by.
    _counting: str | None = None

    def __init__(self, read: Read, condition: pc.Expression | None = None) -> None:
        # Engines require an instance of pyarrow's class. Code that bypasses ``scanner`` gets an error for a missing
        # file; an empty dataset would give wrong rows.
        schema = self._shown(read.schema)
        parquet = pads.ParquetFileFormat()
        nowhere = parquet.make_fragment("delta-sharing/read-me-through-scanner", pyarrow.fs.LocalFileSystem())
        super().__init__([nowhere], schema, parquet)
        self._read = read
        self._condition = condition
        end_on_interrupt()

    def __repr__(self) -> str:
        return f"SharedDataset({self._read!r})"

    def __reduce__(self) -> tuple[Callable[..., SharedDataset], tuple[Read, pc.Expression | None]]:
        return type(self), (self._read, self._condition)

    def scanner(
        self,
        columns: Sequence[str] | dict[str, pc.Expression] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - the name of pyarrow
        batch_size: int = _BATCH_ROWS,
        **options: object,
    ) -> SharedScanner | pads.Scanner:
        """Return a scanner, which sends requests when it is read. Errors as for ``Scan.to_arrow``.

        Parameters
        ----------
        columns:
            Names in the order of the result, or expressions by the names of their result columns; all columns if
            ``None``.
        filter:
            Rows to keep.
        batch_size:
            Maximum number of rows of a batch.
        options:
            Other options of pyarrow. With one of them the result is a one-shot ``pyarrow.dataset.Scanner``, as
            ``pyarrow.dataset.write_dataset`` needs; it reads ahead on its own threads.
        """
        own = self._scanner(columns, filter, batch_size)
        return pads.Scanner.from_batches(own.to_reader(), **options) if options else own

    def to_batches(self, columns: Any = None, filter: Any = None, **options: Any) -> Iterator[pa.RecordBatch]:  # noqa: A002
        """Return the rows as an iterator of record batches; parameters as in ``scanner``. Errors as for
        ``Scan.to_batches``."""
        return self._scanner(columns, filter, **options).to_batches()

    def to_table(self, columns: Any = None, filter: Any = None, **options: Any) -> pa.Table:  # noqa: A002
        """Return the rows as a table; parameters as in ``scanner``. Errors as for ``Scan.to_arrow``."""
        return self._scanner(columns, filter, **options).to_table()

    def head(self, num_rows: int, columns: Any = None, filter: Any = None, **options: Any) -> pa.Table:  # noqa: A002
        """Return the first ``num_rows`` rows; reads no more than needed for them. Errors as for ``Scan.to_arrow``."""
        if self._joined(filter) is None:
            limit = self._read.limit_rows
            limited = self._read.limit(num_rows if limit is None else min(num_rows, limit))
            return type(self)(limited).to_table(columns=columns)
        return self._scanner(columns, filter, **options).head(num_rows)

    def count_rows(self, filter: pc.Expression | None = None, **_: Any) -> int:  # noqa: A002
        """Return the number of rows; without a filter, from the log if it states them. Other options have no effect.
        Errors as for ``Scan.count``."""
        return self._read.count() if self._joined(filter) is None else self._scanner([], filter).count_rows()

    def filter(self, expression: pc.Expression) -> SharedDataset:
        """Return a dataset of the rows for which ``expression`` is also true. Errors as for ``scanner``."""
        return type(self)(self._read, self._joined(expression))

    def replace_schema(self, schema: pa.Schema) -> SharedDataset:
        """Raise ``UnsupportedFeatureError``, because the provider sets the schema."""
        raise UnsupportedFeatureError(
            "The schema of a shared table cannot be replaced. Cast the table that to_table() returns."
        )

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[SharedFragment]:  # noqa: A002
        """Yield one fragment, which reads all rows; DataFusion calls this method. It is not one of pyarrow's fragments,
        which would ignore deletion vectors. ``Scan.partitions`` returns parts of similar size. Errors as for
        ``scanner``."""
        yield SharedFragment(self if filter is None else self.filter(filter))

    def join(self, *_: object, **__: object) -> Any:
        """Raise ``UnsupportedFeatureError``, because a join needs both tables in memory."""
        raise _refused("joins", "Read both with to_table() and join the tables.")

    join_asof = join

    def sort_by(self, *_: object, **__: object) -> Any:
        """Raise ``UnsupportedFeatureError``, because sorting needs the table in memory."""
        raise _refused("sorting", "Read it with to_table() and sort the table.")

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.scanner().__arrow_c_stream__(requested_schema)

    def _scanner(
        self, columns: Any, condition: pc.Expression | None, batch_size: int = _BATCH_ROWS, **_: object
    ) -> SharedScanner:
        return SharedScanner(self._read, self.schema, columns, self._joined(condition), batch_size, self._counting)

    def _joined(self, condition: pc.Expression | None) -> pc.Expression | None:
        if self._condition is None or condition is None:
            return self._condition if condition is None else condition
        return self._condition & condition

    def _shown(self, schema: pa.Schema) -> pa.Schema:
        """Return ``schema`` as the engine sees it."""
        return schema


class SharedFragment:
    """All rows of a dataset, with the methods of ``pyarrow.dataset.Fragment`` that read rows."""

    def __init__(self, dataset: SharedDataset) -> None:
        self._dataset = dataset

    @property
    def physical_schema(self) -> pa.Schema:
        """Schema of the rows."""
        return self._dataset.schema

    def scanner(self, schema: pa.Schema | None = None, **options: Any) -> SharedScanner | pads.Scanner:
        """Return ``SharedDataset.scanner`` with these options.

        Raises ``UnsupportedFeatureError`` if ``schema`` differs from the dataset's.
        """
        if schema is not None and not schema.equals(self.physical_schema):
            self._dataset.replace_schema(schema)
        return self._dataset.scanner(**options)

    def to_batches(self, schema: pa.Schema | None = None, **options: Any) -> Iterator[pa.RecordBatch]:
        """Return the rows as an iterator of record batches; errors and options as ``scanner``."""
        return iter(self.scanner(schema, **options).to_batches())

    def to_table(self, schema: pa.Schema | None = None, **options: Any) -> pa.Table:
        """Return the rows as a table; errors and options as ``scanner``."""
        return self.scanner(schema, **options).to_table()


class SharedScanner:
    """A query of a shared table, with the methods of ``pyarrow.dataset.Scanner``: see ``SharedDataset.scanner``.

    It reads only as far as rows are taken. pyarrow's own scanner reads ahead, on threads that neither Ctrl-C nor the
    end of the program stops.
    """

    def __init__(
        self,
        read: Read,
        schema: pa.Schema,
        columns: Sequence[str] | dict[str, pc.Expression] | None,
        condition: pc.Expression | None,
        batch_rows: int,
        counting: str | None = None,
        *,
        evaluated: pc.Expression | None = None,
    ) -> None:
        self.dataset_schema = schema
        self._counting = counting
        self._condition = condition
        # ``evaluated`` is ``condition`` with the engine's meaning, as Arrow computes it.
        of_engine = condition if evaluated is None else evaluated
        self._evaluated = None if of_engine is None else exact(of_engine, schema)
        self._batch_rows = batch_rows
        names = schema.names if columns is None else list(columns)
        if not isinstance(columns, dict):
            for name in sorted(set(names) - set(schema.names)):
                (field,) = resolve_path((name,), schema)
                raise UsageError(f"The column '{name}' must be spelled '{field.name}', because case matters to Arrow.")
        asked = columns if isinstance(columns, dict) else {name: pc.field(name) for name in names}
        self._asked = {name: exact(expression, schema) for name, expression in asked.items()}
        self._plain = [name for name, expression in self._asked.items() if expression.equals(pc.field(name))]
        self._read = self._pushed(read)

    @lazy
    def projected_schema(self) -> pa.Schema:
        """Schema of the rows."""
        computed = self._query(self.dataset_schema.empty_table()).schema
        # The fields of Arrow's result have no metadata and are nullable, so a plain column keeps the dataset's field.
        plain = set(self._plain)
        return pa.schema(self.dataset_schema.field(field.name) if field.name in plain else field for field in computed)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a reader; it reads only as far as rows are taken."""
        begin = functools.partial(self._read.to_batches, eager=False)
        return stream_reader(self.projected_schema, begin, self._queried, small_first=True)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Return the rows as an iterator of record batches."""
        return iter(self.to_reader())

    def to_table(self) -> pa.Table:
        """Return the rows as a table."""
        return self._whole().read_all()

    def head(self, num_rows: int) -> pa.Table:
        """Return the first ``num_rows`` rows; reads no more than needed for them."""
        batches, left = [], num_rows
        with self.to_reader() as reader:
            for batch in reader if left > 0 else ():
                batches.append(batch.slice(0, left))
                left -= batches[-1].num_rows
                if left == 0:
                    break
            return pa.Table.from_batches(batches, reader.schema)

    def count_rows(self) -> int:
        """Return the number of rows."""
        return sum(batch.num_rows for batch in self._whole())

    def _whole(self) -> pa.RecordBatchReader:
        return stream_reader(self.projected_schema, self._read.to_batches, self._queried)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def _pushed(self, read: Read) -> Read:
        """Return ``read`` with the parts of this query that can be pushed down."""
        expressions = [*self._asked.values(), *([] if self._condition is None else [self._condition])]
        needed = columns_of(expressions)
        if needed is not None:
            # In the order of the result, if the query gives one.
            names = dict.fromkeys([*self._asked, *self.dataset_schema.names])
            names.pop(self._counting, None)
            read = read.select(*narrowed(read.request.columns, [name for name in names if name in needed]))
        if self._condition is not None:
            read = with_pushed(read, weaker_predicate(self._condition, self.dataset_schema))
        return read

    def _queried(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        # Rows without columns take no memory, but those of the query may.
        parts = sliced([batch], None if batch.num_columns else self._batch_rows)
        return [found for part in parts for found in self._queried_part(part)]

    def _queried_part(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        if self._counting is not None and self._counting in self._asked:
            batch = with_counting(batch, self._counting)
        if self._condition is None and self._plain == list(self._asked) == batch.schema.names:
            return list(sliced([self._promised(batch)], self._batch_rows))
        rows = self._query(pa.Table.from_batches([batch])).combine_chunks()
        return list(sliced(map(self._promised, rows.to_batches()), self._batch_rows))

    def _promised(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return ``batch`` with the schema of the rows."""
        schema = self.projected_schema
        assert batch.schema.names == schema.names, "the query's columns differ from its schema"
        assert batch.schema.types == schema.types, "the query's types differ from its schema"
        # Without columns, Arrow would lose the number of rows.
        return pa.RecordBatch.from_arrays(batch.columns, schema=schema) if schema.names else batch

    def _query(self, table: pa.Table) -> pa.Table:
        steps = [acero.Declaration("table_source", acero.TableSourceNodeOptions(table))]
        if self._evaluated is not None:
            steps.append(acero.Declaration("filter", acero.FilterNodeOptions(self._evaluated)))
        project = acero.ProjectNodeOptions(list(self._asked.values()), list(self._asked))
        steps.append(acero.Declaration("project", project))
        # Computed on this thread, because the interpreter may wait for the caller's thread at exit.
        return acero.Declaration.from_sequence(steps).to_table(use_threads=False)


# === DuckDB ===


class _ForDuckDB(SharedDataset):
    """A dataset for DuckDB. Its first column exists to count rows by. Geography is plain binary, because DuckDB's
    geometry has only straight edges, and DuckDB refuses others."""

    def _shown(self, schema: pa.Schema) -> pa.Schema:
        self._counting = counting_name(schema)
        fields = known_to_duckdb(schema)
        return pa.schema([pa.field(self._counting, pa.bool_()), *fields])

    def relation(self, target: Any) -> duckdb.DuckDBPyRelation:
        """Return all columns except the first as a relation on ``target``, a connection or the module ``duckdb``."""
        return target.from_arrow(self).project(f"* EXCLUDE ({_quoted(self.schema.names[0])})")

    def _scanner(
        self, columns: Any, condition: pc.Expression | None, batch_size: int = _BATCH_ROWS, **_: object
    ) -> SharedScanner:
        joined = self._joined(condition)
        evaluated = None
        # DuckDB 2 applies its filters itself.
        if joined is not None and optional.load("duckdb", "duckdb").__version__.startswith("1."):
            evaluated = nan_greatest(joined, self.schema)
        return SharedScanner(self._read, self.schema, columns, joined, batch_size, self._counting, evaluated=evaluated)


def known_to_duckdb(schema: pa.Schema) -> pa.Schema:
    """Return ``schema`` with geography as plain binary, at every level of nesting.

    Raises ``UnsupportedFeatureError`` for a column whose values this version of DuckDB would truncate.
    """
    version = optional.load("duckdb", "duckdb").__version__
    cut = next((field.name for field in schema if _has_nanoseconds(field.type)), None)
    if cut is not None and version.startswith("1."):
        raise UnsupportedFeatureError(
            f"DuckDB {version} truncates timestamps with a time zone to microseconds, but the column '{cut}' has"
            " nanoseconds. Update DuckDB, or leave the column out.",
            feature="timestamp_nanos",
        )
    # DuckDB 1.1 refuses geometry as well; later releases before 2 read it as binary.
    refuses_all = version.startswith("1.1.")

    def unwanted(metadata: dict[bytes, bytes]) -> bool:
        return refuses_all or b'"edges"' in metadata.get(b"ARROW:extension:metadata", b"")

    fields = (without_extension(field, unwanted) if has_extension(field, unwanted) else field for field in schema)
    return pa.schema(fields)


def _has_nanoseconds(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_nanoseconds(kind.field(place).type) for place in range(kind.num_fields))
    return pa.types.is_timestamp(kind) and kind.unit == "ns" and kind.tz is not None


def duckdb_relation(read: Read, connection: duckdb.DuckDBPyConnection | None) -> duckdb.DuckDBPyRelation:
    """Return ``read`` as a relation on ``connection``, or else on DuckDB's default connection; queries are pushed
    down."""
    # A new connection would be closed while the relation still uses it.
    target = optional.load("duckdb", "duckdb") if connection is None else connection
    if not hasattr(target, "from_arrow"):
        raise UsageError(
            f"Expected a DuckDB connection, found {type(target).__name__}; duckdb.connect() returns a new one."
        )
    return _ForDuckDB(read).relation(target)


def create_views(connection: duckdb.DuckDBPyConnection, reads: Mapping[AssetName, Read]) -> None:
    """Create a view ``share.schema.table`` for each of ``reads``; each share becomes an in-memory database.

    A table that cannot be read gets a view too, whose queries fail with the reason. The connection buffers 1 MB of a
    result that is fetched in parts, unless its setting for that was changed.
    """
    end_on_interrupt()
    # By default, DuckDB 2 fills 10 MiB before it returns the first row, DuckDB 1 only 1 MB.
    if connection.execute(f"SELECT current_setting('{_BUFFER}')").fetchone() == ("10.0 MiB",):
        connection.execute(f"SET {_BUFFER} = '1MB'")
    datasets = mapped(_dataset_or_reason, reads.values(), most=_AT_ONCE, name="attach")
    row = connection.execute("SELECT current_database(), current_schema()").fetchone()
    assert row is not None
    try:
        for table, dataset in zip(reads, datasets, strict=True):
            share, schema = _quoted(table.share), _quoted(table.schema)
            connection.execute(f"ATTACH IF NOT EXISTS ':memory:' AS {share}")
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {share}.{schema}")
            # A view of a relation belongs to the connection's current schema, and works in all cursors of the database.
            connection.execute(f"USE {share}.{schema}")
            if isinstance(dataset, _ForDuckDB):
                dataset.relation(connection).create_view(table.name, replace=True)
            else:
                reason = dataset.replace("'", "''")
                # The error is in the condition, so that a query without columns fails too, instead of returning a row.
                connection.execute(
                    f"CREATE OR REPLACE VIEW {_quoted(table.name)} AS "
                    f"SELECT NULL AS reason WHERE error('{reason}') IS NULL"
                )
    finally:
        connection.execute(f"USE {_quoted(row[0])}.{_quoted(row[1])}")


def _dataset_or_reason(read: Read) -> _ForDuckDB | str:
    try:
        return _ForDuckDB(read)
    # A UsageError here can only mean that an extra is not installed.
    except (UnsupportedFeatureError, DataError, ProtocolError, RequestError, UsageError) as error:
        return str(error)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _refused(what: str, instead: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(f"A dataset of a shared table does not support {what}. {instead}")
