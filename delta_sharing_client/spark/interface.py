"""The classes by which PySpark knows a data source, or stand-ins for those that this PySpark does not have.

PySpark 3.5 has no Python data sources: there the same classes plan and read, and ``to_spark`` hands Spark their tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxBytes,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )

    HAS_DATA_SOURCES = HAS_LIMITS = True
else:
    try:
        from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
    except ImportError:  # PySpark 3.5

        class DataSource:
            """Stands in for PySpark's class of this name, as those below do."""

            def __init__(self, options: Any) -> None:
                self.options = options

        class DataSourceReader: ...

        class DataSourceStreamReader: ...

        class InputPartition:
            def __init__(self, value: Any) -> None:
                self.value = value

        HAS_DATA_SOURCES = False
    else:
        HAS_DATA_SOURCES = True
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadMaxBytes,
            ReadMaxFiles,
            SupportsTriggerAvailableNow,
        )
    except ImportError:  # PySpark 4.1 and older
        ReadAllAvailable = ReadMaxBytes = ReadMaxFiles = None

        class SupportsTriggerAvailableNow: ...

        HAS_LIMITS = False
    else:
        HAS_LIMITS = True

__all__ = [
    "HAS_DATA_SOURCES",
    "HAS_LIMITS",
    "DataSource",
    "DataSourceReader",
    "DataSourceStreamReader",
    "InputPartition",
    "ReadAllAvailable",
    "ReadMaxBytes",
    "ReadMaxFiles",
    "SupportsTriggerAvailableNow",
]
