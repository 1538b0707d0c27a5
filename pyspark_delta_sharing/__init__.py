"""Makes ``spark.read.format("deltaSharing")`` work without registration: PySpark looks for ``pyspark_*`` packages.

PySpark imports every such package when it first meets a format that it does not know, and one that fails to import
hides all others. So nothing but PySpark is imported here before the format is used.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, NoReturn

import pyspark

try:
    from pyspark.sql.datasource import DataSource
except ImportError:
    raise ImportError(
        f"The format 'deltaSharing' needs PySpark 4.0 or newer, found {pyspark.__version__}, which has no Python data "
        "sources. Use delta_sharing_client.load_as_spark and load_table_changes_as_spark: they work on PySpark 3.5."
    ) from None

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """The data source ``deltaSharing``; everything is done by ``delta_sharing_client.spark.datasource``."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        from delta_sharing_client.spark.datasource import DeltaSharingSource

        self._source = DeltaSharingSource(options)

    def __getstate__(self) -> dict[str, object]:
        return {"_source": self._source}  # which has the options as well, but not where they could reach a file

    @classmethod
    def name(cls) -> str:
        return "deltaSharing"

    def schema(self) -> StructType | str:
        return self._source.schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        return self._source.reader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        self._source.writer(schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:
        self._source.streamWriter(schema, overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return self._source.streamReader(schema)
