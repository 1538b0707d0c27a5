"""The PySpark data source ``deltaSharing``. Options: ``options``; for users: ``docs/spark.md``."""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from delta_sharing_client.delta.features import Operation
from delta_sharing_client.spark.batch import BatchReader
from delta_sharing_client.spark.columns import narrowed_columns, relation_columns
from delta_sharing_client.spark.options import SparkOptions
from delta_sharing_client.spark.served_table import Description, ServedTable
from delta_sharing_client.spark.stream import StreamReader

NAME = "deltaSharing"


class DeltaSharingSource(DataSource):
    """``spark.read.format("deltaSharing")`` and ``spark.readStream.format("deltaSharing")``.

    Spark pickles the instance after ``schema()``, so what it found is there for the readers; with a schema of the
    user, ``schema()`` is not called.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._parsed = SparkOptions.parse(options)
        self._described: Description | None = None

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        """Return the table's schema, or what the option ``columns`` selects of it (asks the server)."""
        self._described = self._describe(Operation.SNAPSHOT)
        return relation_columns(self._described.metadata.schema_string, self._parsed).schema

    def reader(self, schema: StructType) -> BatchReader:
        """Return the reader of a batch query."""
        options = self._parsed.for_batch()
        operation = Operation.CHANGES if options.read_change_feed else Operation.SNAPSHOT
        described = self._described or self._describe(operation)
        columns = narrowed_columns(described.metadata.schema_string, options, schema)
        return BatchReader(ServedTable(options, operation), columns)

    def streamReader(self, schema: StructType) -> StreamReader:
        """Return the reader of a streaming query."""
        options = self._parsed.for_stream()
        described = self._described or self._describe(Operation.STREAMING)
        columns = narrowed_columns(described.metadata.schema_string, options, schema)
        return StreamReader(ServedTable(options, Operation.STREAMING), columns, described)

    def _describe(self, operation: Operation) -> Description:
        table = ServedTable(self._parsed, operation)
        try:
            return table.describe(self._parsed.version, self._parsed.timestamp)
        finally:
            table.close()


class DeltaSharingAlias(DeltaSharingSource):
    """The same under a name of its own: the JVM connector's jar, where it is on the class path, is ``deltaSharing``."""

    @classmethod
    def name(cls) -> str:
        return "delta_sharing"
