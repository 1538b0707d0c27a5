"""The table for the self-check of push-down: four rows, of which the pushed predicates select some."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from delta_sharing_client.predicates.arrow import mask
from delta_sharing_client.predicates.binding import bind
from delta_sharing_client.spark.pushed import Pushed
from delta_sharing_client.spark.types import conform, target_schema

OPTION = "delta-sharing-check"
"""The option of the data source that makes it read this table."""
_ARROW = pa.schema(
    [
        ("id", pa.int64()),
        ("a.b", pa.string()),
        ("x", pa.float64()),
        ("day", pa.date32()),
        ("s", pa.struct([("y", pa.int32()), ("z", pa.string())])),
    ]
)
SCHEMA = from_arrow_schema(_ARROW)
_ROWS: list[dict[str, Any]] = [
    {"id": 1, "a.b": "it's", "x": 1.5, "day": 19_000, "s": {"y": 1, "z": "p"}},
    {"id": 2, "a.b": "ä%_\\", "x": math.nan, "day": None, "s": {"y": None, "z": "q"}},
    {"id": 3, "a.b": None, "x": None, "day": 19_001, "s": None},
    {"id": 4, "a.b": "it's", "x": -0.0, "day": 19_002, "s": {"y": 4, "z": None}},
]
CONDITION = "`a.b` = 'it\\'s' AND (x > 1 OR s.y IN (4, 5)) AND id <> 1 AND day >= DATE'2022-01-08'"
"""Selects the last row. A query with this condition must request ``id`` and ``s.y``; a query without it, no column."""


def rows(schema: StructType, pushed: Pushed) -> Iterator[pa.RecordBatch]:
    """Yield the rows that ``pushed`` selects, with the columns of ``schema``. Raises ``ValueError`` if something was
    not pushed."""
    found = pa.RecordBatch.from_pylist(_ROWS, schema=_ARROW)
    told = pushed.filter(SCHEMA, _ARROW)
    if len(schema.names) > 1:  # a counting query has no condition
        if told is None:
            raise ValueError("Spark did not push the condition of a query down.")
        if "z" in schema.simpleString():
            raise ValueError("Spark did not push the columns of a query down.")
        found = found.filter(mask(bind(told, _ARROW), found))
    yield conform(found, target_schema(schema))
