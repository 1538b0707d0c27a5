"""A read as a ``pyarrow.dataset.Dataset``, for engines that push columns and filters into one: DuckDB, Ibis, Dask."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs

from delta_sharing_client import optional
from delta_sharing_client.arrow_forms import sliced
from delta_sharing_client.columns import resolve_path
from delta_sharing_client.errors import UnsupportedFeatureError, UsageError
from delta_sharing_client.predicates.parse import weaker_predicate

if TYPE_CHECKING:
    import duckdb

    from delta_sharing_client.protocol.names import TableName
    from delta_sharing_client.reads import Read

_BATCH_ROWS = 131_072


class SharedDataset(pads.FileSystemDataset):  # type: ignore[misc]
    """What ``to_dataset()`` returns: ``schema``, ``scanner``, ``to_table``, ``to_batches``, ``head``, ``count_rows``.

    Every scanner asks the server anew. ``columns`` and ``filter`` reach the read, so that only the bytes they need are
    fetched; the filter is then applied to the rows by Arrow, with Arrow's meaning (NaN does not compare). What a
    dataset of local files has besides (fragments, joins, sorting) is refused: read ``to_table()`` first.
    """

    def __init__(self, read: Read, condition: pc.Expression | None = None) -> None:
        # Engines take an instance of pyarrow's class. Whatever would go around ``scanner`` finds a file that is not
        # there, and so an error: an empty dataset would be wrong rows.
        schema = read.schema
        parquet = pads.ParquetFileFormat()
        nowhere = parquet.make_fragment("delta-sharing/read-me-through-scanner", pyarrow.fs.LocalFileSystem())
        super().__init__([nowhere], schema, parquet)
        self._read = read
        self._condition = condition

    def __repr__(self) -> str:
        return f"SharedDataset({self._read!r})"

    def __reduce__(self) -> tuple[Callable[..., SharedDataset], tuple[Read, pc.Expression | None]]:
        return SharedDataset, (self._read, self._condition)

    def scanner(
        self,
        columns: Sequence[str] | dict[str, pc.Expression] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - the name of pyarrow
        batch_size: int = _BATCH_ROWS,
        **_: object,
    ) -> pads.Scanner:
        """Return a one-shot ``pyarrow.dataset.Scanner``; the other options of pyarrow's are its own business.

        Parameters
        ----------
        columns:
            Names in the order of the result, or expressions by the name of the result; all columns if ``None``.
        filter:
            Rows to keep.
        batch_size:
            Greatest number of rows of a batch.
        """
        condition = self._joined(filter)
        batches = self._batches(self._names(columns, condition), condition)
        schema = next(batches)
        return pads.Scanner.from_batches(
            sliced(batches, batch_size),
            schema=schema,
            columns=list(columns) if columns is not None and not isinstance(columns, dict) else columns,
            filter=condition,
        )

    def head(self, num_rows: int, columns: Any = None, filter: Any = None, **options: Any) -> pa.Table:  # noqa: A002
        """Return the first ``num_rows`` rows; no more of the table is read than gives them."""
        if self._joined(filter) is None:
            limit = self._read.limit_rows
            limited = self._read.limit(num_rows if limit is None else min(num_rows, limit))
            return SharedDataset(limited).to_table(columns=columns)
        return self.scanner(columns, filter, **options).head(num_rows)

    def count_rows(self, filter: pc.Expression | None = None, **options: Any) -> int:  # noqa: A002
        """Return the number of rows; without a filter from the log where it tells."""
        condition = self._joined(filter)
        return self._read.count() if condition is None else self.scanner([], filter, **options).to_table().num_rows

    def filter(self, expression: pc.Expression) -> SharedDataset:
        """Return a dataset of the rows for which ``expression`` is true, too."""
        return SharedDataset(self._read, self._joined(expression))

    def replace_schema(self, schema: pa.Schema) -> SharedDataset:
        """Refuse: the schema is the provider's."""
        raise UnsupportedFeatureError("The schema of a shared table cannot be replaced. Cast the table that is read.")

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[pads.Fragment]:  # noqa: A002
        """Refuse: the files lie behind signed URLs, with deletion vectors that a fragment does not know."""
        raise _refused("fragments", "Scan.partitions(n) gives parts of a read.")

    def join(self, *_: object, **__: object) -> Any:
        """Refuse: a join needs both tables in memory."""
        raise _refused("joins", "Read both with to_table() and join the tables.")

    join_asof = join

    def sort_by(self, *_: object, **__: object) -> Any:
        """Refuse: sorting needs the table in memory."""
        raise _refused("sorting", "Read it with to_table() and sort the table.")

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.scanner().to_reader().__arrow_c_stream__(requested_schema)

    def _joined(self, condition: pc.Expression | None) -> pc.Expression | None:
        if self._condition is None or condition is None:
            return self._condition if condition is None else condition
        return self._condition & condition

    def _names(
        self, columns: Sequence[str] | dict[str, pc.Expression] | None, condition: pc.Expression | None
    ) -> list[str] | None:
        """Return the columns to read, ``None`` for all."""
        if columns is None:
            return None
        # An expression does not tell its columns. Its text holds their names, and maybe others: that costs, no more.
        texts = [str(expression) for expression in columns.values()] if isinstance(columns, dict) else []
        texts += [] if condition is None else [str(condition)]
        plain = set() if isinstance(columns, dict) else set(columns)
        for name in sorted(plain - set(self.schema.names)):
            (field,) = resolve_path((name,), self.schema)
            raise UsageError(f"The column '{name}' is spelled '{field.name}': case matters to Arrow.")
        return [name for name in self.schema.names if name in plain or any(name in text for text in texts)]

    def _batches(self, names: list[str] | None, condition: pc.Expression | None) -> Iterator[Any]:
        """Yield the schema of the batches, then the batches."""
        read = self._read if names is None else self._read.select(*((name,) for name in names))
        # A limit counts rows before this filter: pushed below it, the filter would let other rows through.
        if condition is not None and read.limit_rows is None:
            weaker = weaker_predicate(condition, self.schema)
            read = read if weaker is None else read.where(weaker)
        with read.to_reader() as reader:
            yield reader.schema
            yield from reader


# === DuckDB ===


def duckdb_relation(read: Read, connection: duckdb.DuckDBPyConnection | None) -> duckdb.DuckDBPyRelation:
    """Return ``read`` as a relation on ``connection``, DuckDB's default one if ``None``: queries are pushed into it."""
    # A connection of our own would be closed under the relation once nothing else holds it.
    target = optional.load("duckdb", "duckdb") if connection is None else connection
    return target.from_arrow(SharedDataset(read))


def create_views(connection: duckdb.DuckDBPyConnection, reads: Mapping[TableName, Read]) -> None:
    """Make ``share.schema.table`` a view for each of ``reads``: a database in memory a share, a schema a schema."""
    row = connection.execute("SELECT current_database(), current_schema()").fetchone()
    assert row is not None
    try:
        for table, read in reads.items():
            share, schema = _quoted(table.share), _quoted(table.schema)
            connection.execute(f"ATTACH IF NOT EXISTS ':memory:' AS {share}")
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {share}.{schema}")
            # A view of a relation lies where the connection stands, and serves all cursors of the database.
            connection.execute(f"USE {share}.{schema}")
            duckdb_relation(read, connection).create_view(table.table, replace=True)
    finally:
        connection.execute(f"USE {_quoted(row[0])}.{_quoted(row[1])}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _refused(what: str, instead: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(f"A dataset of a shared table has no {what}. {instead}")
